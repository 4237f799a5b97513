//! The input of `teatime blur`: an array, or a level of an image.

use teatime::{
    Error, StoredType,
    filter::{GaussianOptions, Mode, PerAxis},
    store::{Folder, Node},
};
use teatime_image::Multiscale;

use super::args::{BlurArgs, Dtype, axis, per_axis};
use crate::{
    args::refuse,
    array::{Array, Files},
    failure::Failure,
};

/// The array to filter.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) stored: Array,
    /// The OME-Zarr image, if the array is one of its levels.
    pub(super) image: Option<Multiscale>,
}

impl Input {
    /// Opens the input and reads only its metadata.
    pub(super) fn open(args: &BlurArgs) -> Result<Self, Failure> {
        let (path, missing) = (args.input.display().to_string(), args.missing_chunk);
        // Integers are kept if their results are integers too.
        let keeps = |dtype| !matches!(args.result_type(dtype), StoredType::F32 | StoredType::F64);
        let is_group = args.input.is_dir() && Node::at(&Folder::new(&args.input), "")? == Node::Group;
        if is_group {
            let (image, level) = (Multiscale::open(&args.input)?, args.level.unwrap_or(0));
            // The image's metadata are checked before the state of the files is recorded; the array's metadata are read again after that.
            image.level(level, missing)?;
            let files = Files::at(&args.input.join(&image.levels()[level].path))?;
            let stored = Array::of_zarr(path, files, image.level(level, missing)?, keeps);
            return Ok(Self { stored, image: Some(image) });
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
        Ok(Self { stored: Array::open(&args.input, missing, keeps)?, image: None })
    }

    /// Returns the options of the filter, including the axes that are filtered.
    pub(super) fn options(&self, args: &BlurArgs) -> Result<GaussianOptions, Failure> {
        let axes = self.stored.array.shape().len();
        let has_constant = args.mode.contains(&Mode::Constant(0.0));
        refuse(&[(args.cval != 0.0 && !has_constant, "--cval is of --mode constant alone")])?;
        if args.dtype == Some(Dtype::Same) && args.loses_negatives(self.stored.array.dtype()) {
            let why = "derivatives are negative too, which the input's type is not; give f32 or f64";
            return Err(Failure::Error(format!("--dtype same: {why}")));
        }
        let mode = |mode: &Mode| match mode {
            Mode::Constant(_) => Mode::Constant(args.cval),
            mode => *mode,
        };
        let channel = args.channel_axis.map(|number| axis("--channel-axis", number, axes)).transpose()?;
        let filtered = match (&args.axes, channel) {
            (Some(numbers), _) => {
                numbers.iter().map(|&number| axis("--axes", number, axes)).collect::<Result<Vec<_>, _>>()?
            }
            (None, channel) => {
                // An image is filtered along its spatial axes.
                let spatial =
                    self.image.as_ref().map_or_else(|| (0..axes).collect(), Multiscale::spatial_axes);
                spatial.into_iter().filter(|&axis| Some(axis) != channel).collect()
            }
        };
        let options = GaussianOptions::default()
            .axes(filtered)
            .order(per_axis(&args.order))
            .mode(per_axis(&args.mode.iter().map(mode).collect::<Vec<_>>()))
            .truncate(args.truncate)
            .narrow(args.narrow);
        Ok(match &args.radius {
            Some(radius) => options.radius(per_axis(radius)),
            None => options,
        })
    }

    /// Returns the standard deviations in elements.
    pub(super) fn sigma(&self, args: &BlurArgs) -> Result<PerAxis<f64>, Failure> {
        match &self.image {
            Some(image) if args.physical => {
                let sigma = image
                    .sigma_in_pixels(args.level.unwrap_or(0), &args.sigma)
                    .map_err(|error| self.named(error))?;
                Ok(PerAxis::Each(image.spatial_axes().into_iter().map(|axis| sigma[axis]).collect()))
            }
            _ => Ok(per_axis(&args.sigma)),
        }
    }

    /// Converts an error of the library to one that names command-line options.
    pub(super) fn named(&self, error: Error) -> Failure {
        match &error {
            Error::Argument { op: "sigma_in_pixels", why, .. } => Failure::Error(format!("--sigma: {why}")),
            Error::Argument {
                name: name @ ("sigma" | "truncate" | "radius" | "order" | "mode" | "axes"),
                why,
                ..
            } => Failure::Error(format!("--{name}: {why}")),
            Error::Shape { expected, got, .. } => {
                Failure::Error(format!("{}: expected {expected}, got {got}", self.stored.path))
            }
            Error::Argument { .. } | Error::Limit { .. } => {
                Failure::Error(format!("{}: {error}", self.stored.path))
            }
            _ => self.stored.with_shards(error),
        }
    }
}
