//! The input of a filter: an array, or a level of an image.

use teatime::{Error, StoredType, store::Node};
use teatime_image::Multiscale;

use super::{
    Task,
    args::{ArrayArgs, axis},
};
use crate::{
    array::{Array, Files},
    failure::Failure,
    remote,
};

#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) stored: Array,
    /// The OME-Zarr image, if the array is one of its levels.
    pub(crate) image: Option<Multiscale>,
}

impl Input {
    /// Opens the input and reads only its metadata.
    pub(super) fn open(task: &Task<'_>) -> Result<Self, Failure> {
        let args = task.array;
        let (path, missing) = (args.input.display().to_string(), task.result.missing_chunk);
        // Integers are kept if their results are integers too.
        let keeps = |dtype| !matches!((task.result_type)(dtype), StoredType::F32 | StoredType::F64);
        let is_group =
            !remote::is_file(&args.input) && Node::at(&*remote::open(&args.input)?, "")? == Node::Group;
        if is_group {
            let image = Multiscale::open_in(&remote::open(&args.input)?, "")?;
            let level = args.level.unwrap_or(0);
            // The image's metadata are checked before the state of the files is recorded; the array's metadata are read again after that.
            image.level(level, missing)?;
            let files = Files::at(&args.input.join(&image.levels()[level].path))?;
            let stored = Array::of_zarr(path, files, image.level(level, missing)?, keeps);
            return Ok(Self { stored, image: Some(image) });
        }
        let level = [(args.level.is_some(), "--level")].into_iter();
        let of_images = level.chain(task.of_images.iter().copied());
        for (given, flag) in of_images.chain([(args.pyramid, "--pyramid")]) {
            if given {
                return Err(Failure::Usage(format!(
                    "{flag} is of OME-Zarr images alone, which {path} is not"
                )));
            }
        }
        Ok(Self { stored: Array::open(&args.input, missing, keeps)?, image: None })
    }

    /// Returns the axes that are filtered: by default those of an image that are along space. Fails for an axis that does not exist.
    pub(crate) fn axes(&self, args: &ArrayArgs) -> Result<Vec<usize>, Failure> {
        let axes = self.stored.array.shape().len();
        let channel = args.channel_axis.map(|number| axis("--channel-axis", number, axes)).transpose()?;
        match &args.axes {
            Some(numbers) => numbers.iter().map(|&number| axis("--axes", number, axes)).collect(),
            None => {
                let spatial =
                    self.image.as_ref().map_or_else(|| (0..axes).collect(), Multiscale::spatial_axes);
                Ok(spatial.into_iter().filter(|&axis| Some(axis) != channel).collect())
            }
        }
    }

    /// Converts an error of the library to one that names command-line options.
    pub(crate) fn named(&self, error: Error) -> Failure {
        match &error {
            Error::Argument { op: "sigma_in_pixels", why, .. } => Failure::Error(format!("--sigma: {why}")),
            Error::Argument {
                name: name @ ("sigma" | "truncate" | "radius" | "order" | "mode" | "axes" | "weight" | "eps"),
                why,
                ..
            } => Failure::Error(format!("--{name}: {why}")),
            Error::Shape { expected, got, .. } => {
                Failure::Error(format!("{}: expected {expected}, got {got}", self.stored.path))
            }
            Error::Argument { .. } | Error::Limit { .. } => {
                Failure::Error(format!("{}: {error}", self.stored.path))
            }
            _ => error.into(),
        }
    }
}
