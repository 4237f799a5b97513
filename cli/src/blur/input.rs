//! The array that `teatime blur` reads, or a level of an image.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use teatime::{
    Error, StoredType,
    filter::PerAxis,
    store::{Folder, Node},
    stream::digest,
};
use teatime_image::Multiscale;

use super::{BlurArgs, Dtype, per_axis};
use crate::{array::Array, failure::Failure, foreign};

/// An array.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) path: String,
    /// The file or the folder that has its elements.
    pub(super) place: PathBuf,
    pub(super) stored: Array,
    /// The OME-Zarr image that it is a level of.
    pub(super) image: Option<Multiscale>,
}

impl Input {
    /// Reads metadata alone.
    pub(super) fn open(args: &BlurArgs) -> Result<Self, Failure> {
        let (path, missing) = (args.input.display().to_string(), args.missing_chunk);
        foreign::refuse(&args.input)?;
        // Those whose results are integers too.
        let keeps = |of| args.dtype == Dtype::Same && !matches!(of, StoredType::I64 | StoredType::U64);
        let is_group = args.input.is_dir() && Node::at(&Folder::new(&args.input), "")? == Node::Group;
        if is_group {
            let (image, level) = (Multiscale::open(&args.input)?, args.level.unwrap_or(0));
            let stored = Array::of_zarr(path.clone(), image.level(level, missing)?, keeps);
            let place = args.input.join(&image.levels()[level].path);
            return Ok(Self { path, place, stored, image: Some(image) });
        }
        let of_images =
            [(args.level.is_some(), "--level"), (args.physical, "--physical"), (args.pyramid, "--pyramid")];
        for (given, flag) in of_images {
            if given {
                return Err(Failure::Usage(format!(
                    "{flag} is of OME-Zarr images alone, which {path} is not"
                )));
            }
        }
        let stored = Array::open(&args.input, missing, keeps)?;
        Ok(Self { path, place: args.input.clone(), stored, image: None })
    }

    /// What tells its files from others: where they are, and a digest of their names, sizes and times of change. Reads none of them.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn version(&self) -> Result<String, Error> {
        let of =
            || Ok(format!("{} {:016x}", self.place.canonicalize()?.display(), version(&self.place, "")?));
        of().map_err(|source| Error::Io { path: self.path.as_str().into(), source })
    }

    /// The array that is filtered within OUT.zarr: level 0 of an image, or OUT.zarr itself.
    pub(super) const fn array_of_result(&self) -> &'static str {
        if self.image.is_some() { "0" } else { "" }
    }

    /// The axes that are filtered unless the caller names some: of an image those along space. None: all.
    pub(super) fn axes(&self) -> Option<Vec<usize>> {
        self.image.as_ref().map(Multiscale::spatial_axes)
    }

    /// Standard deviations in elements.
    pub(super) fn sigma(&self, args: &BlurArgs) -> Result<PerAxis<f64>, Failure> {
        match &self.image {
            Some(image) if args.physical => {
                let all = image
                    .sigma_in_pixels(args.level.unwrap_or(0), &args.sigma)
                    .map_err(|error| self.named(error))?;
                Ok(PerAxis::Each(image.spatial_axes().into_iter().map(|axis| all[axis]).collect()))
            }
            _ => Ok(per_axis(&args.sigma)),
        }
    }

    /// An error, in the command line's words.
    pub(super) fn named(&self, error: Error) -> Failure {
        match &error {
            Error::Argument { op: "sigma_in_pixels", why, .. } => Failure::Error(format!("--sigma: {why}")),
            Error::Argument {
                name: name @ ("sigma" | "truncate" | "radius" | "order" | "mode" | "axes"),
                why,
                ..
            } => Failure::Error(format!("--{name}: {why}")),
            Error::Shape { expected, got, .. } => {
                Failure::Error(format!("{}: expected {expected}, got {got}", self.path))
            }
            _ => self.stored.with_shards(error),
        }
    }
}

/// Of a file, or of all that a folder holds, in any order.
fn version(path: &Path, name: &str) -> io::Result<u64> {
    let found = match fs::metadata(path) {
        // A link that leads nowhere, or a file that went away.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        found => found?,
    };
    if !found.is_dir() {
        let changed = found.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        return Ok(digest(found.len(), format!("{name} {changed}").as_bytes()));
    }
    fs::read_dir(path)?.try_fold(0, |sum: u64, entry| {
        let entry = entry?;
        let name = format!("{name}/{}", entry.file_name().to_string_lossy());
        Ok(sum.wrapping_add(version(&entry.path(), &name)?))
    })
}
