//! The array that `teatime blur` reads, or a level of an image.

use std::path::PathBuf;

use teatime::{
    Error, StoredType,
    filter::PerAxis,
    store::{Folder, Node},
};
use teatime_image::Multiscale;

use super::{BlurArgs, output, per_axis};
use crate::{
    array::{Array, Files},
    failure::Failure,
};

/// An array.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) path: String,
    /// The file or the folder that has its elements.
    pub(super) place: PathBuf,
    pub(super) files: Files,
    pub(super) stored: Array,
    /// The OME-Zarr image that it is a level of.
    pub(super) image: Option<Multiscale>,
}

impl Input {
    /// Reads metadata alone.
    pub(super) fn open(args: &BlurArgs) -> Result<Self, Failure> {
        let (path, missing) = (args.input.display().to_string(), args.missing_chunk);
        // Integers whose results are integers too.
        let keeps = |of| !matches!(output::dtype(args, of), StoredType::F32 | StoredType::F64);
        let is_group = args.input.is_dir() && Node::at(&Folder::new(&args.input), "")? == Node::Group;
        if is_group {
            let (image, level) = (Multiscale::open(&args.input)?, args.level.unwrap_or(0));
            // The metadata are read before the files are looked at, and those of the array again after it.
            image.level(level, missing)?;
            let place = args.input.join(&image.levels()[level].path);
            let files = Files::at(&place)?;
            let stored = Array::of_zarr(path.clone(), image.level(level, missing)?, keeps);
            return Ok(Self { path, place, files, stored, image: Some(image) });
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
        let (place, files) = (args.input.clone(), Files::at(&args.input)?);
        let stored = Array::open(&args.input, missing, keeps)?;
        Ok(Self { path, place, files, stored, image: None })
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
            Error::Argument { .. } | Error::Limit { .. } => Failure::Error(format!("{}: {error}", self.path)),
            _ => self.stored.with_shards(error),
        }
    }
}
