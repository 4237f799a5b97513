//! Messages about OME-Zarr groups that are not images.

use teatime::{
    Error,
    store::{Node, Storage, join},
};

use crate::{entry::Entry, metadata::Metadata};

/// The maximum number of names that a message lists.
const LISTED: usize = 8;

/// Returns the error for the group at `path`, which has metadata `ome` but is no image. The error names the images in it.
pub(crate) fn not_an_image(storage: &dyn Storage, path: &str, ome: &Entry<'_>) -> Error {
    let why = if let Some(plate) = ome.find("plate") {
        let wells = paths(&plate.get("wells"));
        // The images of one well suffice.
        let images = wells.first().map_or_else(Vec::new, |well| {
            let images = images_of_well(storage, &join(path, well));
            images.iter().map(|image| join(well, image)).collect()
        });
        format!("is a plate with the wells {}: name an image of one, such as {}", list(&wells), list(&images))
    } else if let Some(well) = ome.find("well") {
        let images = list(&paths(&well.get("images")));
        format!("is a well of a plate, with the images {images}: name one of them")
    } else if ome.find("bioformats2raw.layout").is_some() {
        let images = list(&series(storage, path));
        format!("holds several images, as bioformats2raw writes them, {images}: name one of them")
    } else if let Some(labels) = ome.find("labels") {
        format!("is a list of labels, {}: name one of them", list(&texts(&labels)))
    } else {
        let arrays = Node::arrays(storage, path);
        let named = format!("; an array in it can be named by itself: {}", list(&arrays));
        let arrays = if arrays.is_empty() { "" } else { &named };
        return ome.get("multiscales").refuse(&format!("the metadata of an OME-Zarr image{arrays}"));
    };
    Error::store(storage.place(path), why)
}

fn images_of_well(storage: &dyn Storage, path: &str) -> Vec<String> {
    let Ok(metadata) = Metadata::read(storage, path) else { return Vec::new() };
    metadata.ome().map_or_else(|_| Vec::new(), |ome| paths(&ome.get("well").get("images")))
}

/// Returns the images that bioformats2raw wrote: the images that it lists, or otherwise the folders whose names are numbers.
fn series(storage: &dyn Storage, path: &str) -> Vec<String> {
    if let Ok(metadata) = Metadata::read(storage, &join(path, "OME"))
        && let Ok(ome) = metadata.ome()
        && ome.get("series").items().is_ok()
    {
        return texts(&ome.get("series"));
    }
    let names = storage.list(path).unwrap_or_default();
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    numbers.iter().map(u64::to_string).collect()
}

/// Returns the texts of a list.
fn texts(entry: &Entry<'_>) -> Vec<String> {
    let items = entry.items().unwrap_or_default();
    items.iter().filter_map(|item| item.text().ok()).map(str::to_owned).collect()
}

/// Returns the `path` of each entry of a list.
fn paths(entry: &Entry<'_>) -> Vec<String> {
    let items = entry.items().unwrap_or_default();
    items.iter().filter_map(|item| item.get("path").text().ok()).map(str::to_owned).collect()
}

fn list(names: &[String]) -> String {
    let shown: Vec<String> = names.iter().take(LISTED).map(|name| format!("`{name}`")).collect();
    match names.len().checked_sub(LISTED) {
        _ if names.is_empty() => "(it names none)".to_owned(),
        Some(more @ 1..) => format!("{} and {more} more", shown.join(", ")),
        _ => shown.join(", "),
    }
}
