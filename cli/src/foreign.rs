//! Files of unsupported formats, and how to convert them.

use std::{fs::File, io::Read, path::Path};

use teatime::store::zip_archive;

use crate::failure::Failure;

/// Endings of files that are not read, what these are, and what to do.
const FOREIGN: [(&str, &str, &str); 10] = [
    // Names are compared in lower case, so only the first bytes of a file lead here.
    ("PK", "a zip file under another name", "give it the ending .zip if a Zarr store is in it"),
    (
        "h5 hdf5 h5ad loom mat ims",
        "an HDF5 file",
        "write its array with `zarr.save` or `numpy.save` in Python, or an AnnData with `write_zarr`",
    ),
    ("nc nc4 cdf grib grib2", "a file of xarray's", "`xarray.open_dataset(FILE).to_zarr(FOLDER)`"),
    (
        "tif tiff czi nd2 lif svs ndpi vsi lsm dcm mrc",
        "a file of images",
        "`bioformats2raw FILE FOLDER` makes an OME-Zarr image of it, and `numpy.save` a .npy file of an array in Python",
    ),
    ("png jpg jpeg", "a picture", "`numpy.save` its array in Python as a .npy file"),
    (
        "vcf vcf.gz vcf.bgz bcf",
        "a VCF file",
        "`vcf2zarr convert FILE FOLDER` (bio2zarr) or `plink2 --make-bed`",
    ),
    ("pgen pvar psam bgen gen", "a file of PLINK 2 or BGEN", "`plink2 --make-bed` makes a .bed of it"),
    ("npz", "several arrays in one file", "`numpy.save` the one that is meant as a .npy file"),
    ("csv tsv txt parquet mtx", "a table", "`numpy.save` its numbers in Python as a .npy file"),
    ("tar tar.gz tgz gz", "an archive", "unpack it"),
];

/// Refuses a file of an unsupported format, recognised by its extension or first bytes, and says how to convert it.
pub(crate) fn refuse(path: &Path) -> Result<(), Failure> {
    let foreign = |what: &str, how: &str| {
        Err(Failure::Error(format!("{}: is {what}, which is not read: {how}", path.display())))
    };
    if zip_archive(path).is_some() {
        return Ok(());
    }
    if path.is_dir() {
        // An Icechunk repository has these folders.
        let is_icechunk = ["refs", "snapshots", "manifests"].iter().all(|name| path.join(name).is_dir());
        return match is_icechunk {
            true => foreign(
                "an Icechunk repository",
                "copy it, as by `xarray.open_zarr(session.store).to_zarr(FOLDER)` in Python",
            ),
            false => Ok(()),
        };
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let by_start = || {
        let mut start = [0; 4];
        let is_read =
            path.is_file() && File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok();
        match start {
            [b'P', b'K', 3 | 5, _] if is_read => ".PK",
            [0x89, b'H', b'D', b'F'] if is_read => ".h5",
            _ => "",
        }
    };
    let row_of = |name: &str| {
        let is_of = |ending: &str| name.strip_suffix(ending).is_some_and(|start| start.ends_with('.'));
        FOREIGN.iter().find(|(endings, ..)| endings.split(' ').any(is_of))
    };
    row_of(&name).or_else(|| row_of(by_start())).map_or(Ok(()), |(_, what, how)| foreign(what, how))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn other_formats_are_named_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let why = |name: &str| match refuse(&folder.path().join(name)) {
            Ok(()) => String::new(),
            Err(failure) => format!("{failure:?}"),
        };
        for (name, what) in [
            ("a.h5ad", "write_zarr"),
            ("a.ome.tiff", "bioformats2raw"),
            ("a.vcf.gz", "vcf2zarr"),
            ("a.pgen", "--make-bed"),
        ] {
            assert!(why(name).contains(what), "{name}: {}", why(name));
        }
        assert!(["a.npy", "a.zarr", "a.ozx", "cohort.bed", "cohort"].map(why).iter().all(String::is_empty));
        for name in ["store", "store.zip"] {
            fs::write(folder.path().join(name), b"PK\x03\x04more").unwrap();
        }
        fs::write(folder.path().join("short"), b"PK").unwrap();
        assert!(
            why("store").contains("a zip file") && why("store.zip").is_empty() && why("short").is_empty()
        );
        for name in ["refs", "snapshots", "manifests"] {
            fs::create_dir_all(folder.path().join("ice").join(name)).unwrap();
        }
        assert!(why("ice").contains("Icechunk"));
    }
}
