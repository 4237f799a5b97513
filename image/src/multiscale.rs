//! Reading of images.

use std::{path::Path, sync::Arc};

use serde_json::Value;
use teatime::{
    ChunkedArray, Error, MissingChunk, Result,
    store::{Attributes, Node, Storage, StorageOptions, ZarrArray, join, key_within, open_storage},
};

use crate::{
    axis::{self, Axis, MOST_AXES},
    elsewhere,
    entry::Entry,
    metadata::{Metadata, OmeVersion, version},
};

/// The versions whose arrays are of Zarr version 2.
const OF_ZARR_2: [(&str, OmeVersion); 4] =
    [("0.4", OmeVersion::V04), ("0.3", OmeVersion::V03), ("0.2", OmeVersion::V02), ("0.1", OmeVersion::V01)];

/// The axes of images of the versions 0.1 and 0.2.
const FIRST_AXES: [&str; MOST_AXES] = ["t", "c", "z", "y", "x"];

/// One size of an image.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Level {
    /// The path of the level's array within the folder of the image: [a key](teatime::store::key_within).
    pub path: String,
    /// The size of a pixel along each axis, in the axis's unit. It is finite and above 0.
    pub scale: Vec<f64>,
    /// The position of the centre of the first pixel along each axis, in the axis's unit. It is finite.
    pub translation: Vec<f64>,
}

/// An OME-Zarr image, with its axes and its levels, starting with the largest.
#[derive(Debug)]
pub struct Multiscale {
    storage: Arc<dyn Storage>,
    path: String,
    version: OmeVersion,
    name: Option<String>,
    axes: Vec<Axis>,
    levels: Vec<Level>,
    omero: Option<Attributes>,
}

impl Multiscale {
    /// Opens the image whose folder is `path`, or a zip archive or URL as of [`open_storage`]. Reads only its metadata.
    ///
    /// The image may also be part of a plate or of bioformats2raw's output; then `path` is the image's own folder. Axes without a type are
    /// classified by their names: `z`, `y` and `x` are spatial, `t` is time, and `c` is channels.
    ///
    /// Images before version 0.4 have neither units nor scales: a pixel of the first level has the size 1, and that of another level has
    /// the ratio of the levels' extents.
    ///
    /// # Errors
    /// - [`Error::Store`]: there is no image at `path` (for another OME-Zarr group, such as a plate, the error names the images in it); the
    ///   version is not one of 0.1 to 0.5; the folder holds several images; or the metadata are damaged, such as a scale that is not above
    ///   0: the error names the file, the key and the expected value.
    /// - [`Error::Io`]: the metadata cannot be read.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_in(&open_storage(path, &StorageOptions::default())?, "")
    }

    /// Opens the image at `path` within any store, as [`open`](Self::open) does; an empty path means the store itself.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub fn open_in(storage: &Arc<dyn Storage>, path: &str) -> Result<Self> {
        let (what, place) = (Node::at(&**storage, path)?, storage.place(path));
        match what {
            Node::Group => {}
            Node::Array => {
                let why = "is an array, not an image: the folder that it is in may be one";
                return Err(Error::store(place, why));
            }
            Node::Absent => return Err(Error::store(place, "is no Zarr group, so no OME-Zarr image")),
        }
        let metadata = Metadata::read(&**storage, path)?;
        let ome = metadata.ome()?;
        let Some(multiscales) = ome.find("multiscales") else {
            return Err(elsewhere::not_an_image(&**storage, path, &ome));
        };
        let items = multiscales.items()?;
        let [image] = items.as_slice() else {
            return Err(multiscales.refuse(&format!("one image: there are {}", items.len())));
        };
        let version = match metadata.version {
            OmeVersion::V05 => OmeVersion::V05,
            _ => version(&image.get("version"), &OF_ZARR_2)?,
        };
        let axes = match version {
            OmeVersion::V01 | OmeVersion::V02 => FIRST_AXES.map(|name| Axis::new(name, None, None)).into(),
            _ => read_axes(&image.get("axes"), version)?,
        };
        let levels = match version {
            OmeVersion::V04 | OmeVersion::V05 => read_levels(image, axes.len())?,
            _ => read_plain_levels(storage, path, image, axes.len())?,
        };
        let omero = ome.find("omero").map(|omero| match omero.value() {
            Some(Value::Object(omero)) => Ok(omero.clone()),
            _ => Err(omero.refuse("an object")),
        });
        Ok(Self {
            storage: Arc::clone(storage),
            path: path.to_owned(),
            version,
            name: image.get("name").text_or_none()?.map(str::to_owned),
            levels,
            axes,
            omero: omero.transpose()?,
        })
    }

    /// Returns the version of OME-Zarr.
    pub fn version(&self) -> OmeVersion {
        self.version
    }

    /// Returns the image's name, if it has one.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the axes of the image and its arrays, of which there are 2 to 5.
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// Returns the indices of the 2 or 3 spatial axes. Filters leave the other axes (time, channels and others) alone.
    pub fn spatial_axes(&self) -> Vec<usize> {
        axis::spatial(&self.axes).collect()
    }

    /// Returns the levels, starting with the largest; there is at least one. Their scales and translations include the transformations that the
    /// metadata give for all levels.
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// Returns the display settings of the channels (`omero`), as in the metadata, if there are any.
    pub fn omero(&self) -> Option<&Attributes> {
        self.omero.as_ref()
    }

    /// Opens the array of a level. Writers leave out chunks of background, so `missing` is [`MissingChunk::Fill`] for most images.
    ///
    /// # Errors
    /// [`Error::Argument`]: there is no such level; [`Error::Store`]: the array is absent, damaged or not supported, or its axes are not the
    /// image's; [`Error::Io`]: the array's metadata cannot be read.
    pub fn level(&self, level: usize, missing: MissingChunk) -> Result<ZarrArray> {
        let path = join(&self.path, &self.find(level)?.path);
        let array = ZarrArray::open_in(&self.storage, &path, missing)?;
        let (axes, stored) = (self.axes.len(), array.shape().len());
        if stored != axes {
            let why = format_args!("has {stored} axes, expected the {axes} of its image: {}", self.names());
            return Err(Error::store(array.name(), why));
        }
        // Up to version 0.4, names of axes are not part of the format.
        let (names, own) = (array.dimension_names(), self.axes.iter().map(|axis| &axis.name));
        if self.version == OmeVersion::V05 && !names.is_empty() && !names.iter().eq(own) {
            let (names, own) = (names.join(", "), self.names());
            let why = format_args!("has the axes {names}, expected those of its image: {own}");
            return Err(Error::store(array.name(), why));
        }
        Ok(array)
    }

    /// Converts lengths in units to pixels of a level, for each axis of the array: 0 for axes that are not spatial. `sigma` has one length for
    /// each spatial axis, in the axis's unit and in order, or one for all of them if they have the same unit.
    ///
    /// # Errors
    /// [`Error::Argument`]: there is no such level; the number of lengths is wrong; a length is negative, or not finite in units or pixels;
    /// there is one length for axes of several units. The error names axes and units.
    pub fn sigma_in_pixels(&self, level: usize, sigma: &[f64]) -> Result<Vec<f64>> {
        let refuse = |why: String| Error::argument("sigma_in_pixels", "sigma", why);
        let scale = &self.find(level)?.scale;
        let spatial = self.spatial_axes();
        let units = || {
            let unit = |&at: &usize| format!("{} in {}", self.axes[at].name, self.axes[at].unit_name());
            spatial.iter().map(unit).collect::<Vec<_>>().join(", ")
        };
        let lengths = match *sigma {
            [one] if spatial.iter().all(|&at| self.axes[at].unit == self.axes[spatial[0]].unit) => {
                vec![one; spatial.len()]
            }
            [one] => return Err(refuse(format!("{one} for axes of several units: {}", units()))),
            _ if sigma.len() == spatial.len() => sigma.to_vec(),
            _ => {
                let (given, wanted) = (sigma.len(), spatial.len());
                return Err(refuse(format!("{given} numbers, expected one or {wanted}: {}", units())));
            }
        };
        let mut pixels = vec![0.0; scale.len()];
        for (&at, length) in spatial.iter().zip(lengths) {
            let (axis, unit, size) = (&self.axes[at].name, self.axes[at].unit_name(), scale[at]);
            if !(length >= 0.0 && length.is_finite()) {
                let why = format!("{length} {unit} along `{axis}`, expected a finite number of at least 0");
                return Err(refuse(why));
            }
            pixels[at] = length / size;
            if pixels[at].is_infinite() {
                let why = format!("whose pixels are {size} {unit}, are too many pixels");
                return Err(refuse(format!("{length} {unit} along `{axis}`, {why}")));
            }
        }
        Ok(pixels)
    }

    /// Returns a level by its index.
    pub(crate) fn find(&self, level: usize) -> Result<&Level> {
        self.levels.get(level).ok_or_else(|| {
            let why =
                format!("{level}, and {} has {} levels", self.storage.place(&self.path), self.levels.len());
            Error::argument("Multiscale", "level", why)
        })
    }

    fn names(&self) -> String {
        self.axes.iter().map(|axis| &*axis.name).collect::<Vec<_>>().join(", ")
    }
}

fn read_axes(entry: &Entry<'_>, version: OmeVersion) -> Result<Vec<Axis>> {
    let items = entry.items()?;
    if items.len() > MOST_AXES {
        return Err(entry.refuse(&format!("at most {MOST_AXES} axes: there are {}", items.len())));
    }
    let axis = |item: &Entry<'_>| {
        if version == OmeVersion::V03 {
            return Ok(Axis::new(item.text()?, None, None));
        }
        let (kind, unit) = (item.get("type").text_or_none()?, item.get("unit").text_or_none()?);
        Ok(Axis::new(item.get("name").text()?, kind, unit))
    };
    let axes = items.iter().map(axis).collect::<Result<Vec<Axis>>>()?;
    axis::misfit(&axes).map_or(Ok(axes), |why| Err(entry.refuse(&format!("axes of an image: {why}"))))
}

/// Returns the entries of the levels, with their paths.
fn datasets<'a>(image: &Entry<'a>) -> Result<Vec<(Entry<'a>, String)>> {
    let datasets = image.get("datasets");
    let items = datasets.items()?;
    if items.is_empty() {
        return Err(datasets.refuse("at least one level"));
    }
    let path = |item: Entry<'a>| {
        let path = item.get("path");
        let path = key_within(path.text()?).ok_or_else(|| path.refuse("a path within the image"))?;
        Ok((item, path))
    };
    items.into_iter().map(path).collect()
}

/// Reads levels without transformations, whose scales follow from the extents of their arrays.
fn read_plain_levels(
    storage: &Arc<dyn Storage>,
    image_path: &str,
    image: &Entry<'_>,
    axes: usize,
) -> Result<Vec<Level>> {
    let mut whole = vec![0; axes];
    let level = |(at, (_, path)): (usize, (Entry<'_>, String))| {
        let array = ZarrArray::open_in(storage, &join(image_path, &path), MissingChunk::Fill)?;
        let shape = array.shape();
        if shape.len() != axes {
            let why = format_args!("has {} axes, expected the {axes} of its image", shape.len());
            return Err(Error::store(array.name(), why));
        }
        if at == 0 {
            whole.copy_from_slice(shape);
        }
        let scale = whole.iter().zip(shape).map(|(&whole, &len)| whole.max(1) as f64 / len.max(1) as f64);
        Ok(Level { path, scale: scale.collect(), translation: vec![0.0; axes] })
    };
    datasets(image)?.into_iter().enumerate().map(level).collect()
}

fn read_levels(image: &Entry<'_>, axes: usize) -> Result<Vec<Level>> {
    // These transformations apply after the levels' own.
    let (scale_of_image, moved) = match image.find("coordinateTransformations") {
        Some(entry) => read_transformations(&entry, axes)?,
        None => (vec![1.0; axes], vec![0.0; axes]),
    };
    let level = |(item, path): (Entry<'_>, String)| {
        let entry = item.get("coordinateTransformations");
        let (mut scale, mut translation) = read_transformations(&entry, axes)?;
        for axis in 0..axes {
            scale[axis] *= scale_of_image[axis];
            translation[axis] = translation[axis] * scale_of_image[axis] + moved[axis];
            if !(scale[axis] > 0.0 && scale[axis].is_finite() && translation[axis].is_finite()) {
                let why = "scales above 0 and translations, finite with those of the whole image";
                return Err(entry.refuse(why));
            }
        }
        Ok(Level { path, scale, translation })
    };
    datasets(image)?.into_iter().map(level).collect()
}

/// Reads a scale, followed by an optional translation.
fn read_transformations(entry: &Entry<'_>, axes: usize) -> Result<(Vec<f64>, Vec<f64>)> {
    let items = entry.items()?;
    let [first, rest @ ..] = items.as_slice() else {
        return Err(entry.refuse("a scale"));
    };
    let numbers = |item: &Entry<'_>, kind: &str| {
        let named = item.get("type");
        if named.text()? != kind {
            return Err(named.refuse(&format!("{kind:?}: a scale, and after it a translation or nothing")));
        }
        item.get(kind).numbers(axes)
    };
    let scale = numbers(first, "scale")?;
    if scale.iter().any(|&size| !(size > 0.0 && size.is_finite())) {
        return Err(first.get("scale").refuse("numbers above 0"));
    }
    let translation = match rest {
        [] => vec![0.0; axes],
        [translation] => numbers(translation, "translation")?,
        _ => return Err(entry.refuse("a scale, and after it a translation or nothing")),
    };
    Ok((scale, translation))
}
