//! OME-Zarr images: the versions 0.1 to [0.5](https://ngff.openmicroscopy.org/0.5/) are read, and
//! [0.4](https://ngff.openmicroscopy.org/0.4/) and 0.5 written. An image consists of several arrays, its levels, from the full size to small
//! sizes, with axes, pixel sizes and units.
//!
//! | concept | item | |
//! |---|---|---|
//! | image | [`Multiscale`] | reads an existing image |
//! | level | [`Level`] | one size of the image, with its scale and translation; its pixels are a [`ZarrArray`](teatime::store::ZarrArray), which [`stream`](teatime::stream) reads |
//! | axis | [`Axis`], [`AxisKind`] | a spatial, channel or time axis, with its unit |
//! | description of an image to write | [`ImageSpec`], [`Pyramid`] | axes, pixel sizes, chunks, the number of smaller levels |
//! | writer | [`MultiscaleWriter`] | writes level 0 tile by tile as the caller provides tiles, and then smaller levels, each from means of the level before |
//!
//! Memory is bounded, whatever the size of an image. Files that a killed process leaves are not recognised as an image, and another process
//! can resume writing it. Errors are [`teatime::Error`] and name the file or chunk. There are no cargo features.
//!
//! # A first program
//!
//! ```
//! use teatime::{Device, MissingChunk, Run, StoredType, store::ArraySpec};
//! use teatime_image::{Axis, ImageSpec, Multiscale, MultiscaleWriter, Pyramid};
//!
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("cells.zarr");
//!
//! // 500 x 300 pixels of 0.5 micrometers each, in tiles of 256 x 256.
//! let axes = vec![Axis::space("y", "micrometer"), Axis::space("x", "micrometer")];
//! let array = ArraySpec::new(StoredType::U8, &[500, 300], &[256, 256]);
//! let mut spec = ImageSpec::new(axes, &[0.5, 0.5], array);
//! spec.pyramid = Pyramid::UntilWithin(256);
//! let image = MultiscaleWriter::create(&path, spec)?;
//! let base = image.base()?;
//! for tile in base.tiles() {
//!     let pixels: u64 = base.extent(&tile).iter().product();
//!     base.write(&tile, &vec![7u8; pixels as usize])?;
//! }
//! image.finish(&Device::cpu(), &Run::default())?;
//!
//! let image = Multiscale::open(&path)?;
//! assert_eq!(image.levels().len(), 2);
//! assert_eq!(image.levels()[1].scale, [1.0, 1.0]);
//! // The middle of the first pixel of level 1 is that of four pixels of level 0.
//! assert_eq!(image.levels()[1].translation, [0.25, 0.25]);
//! // 3 micrometers are 3 pixels of level 1.
//! assert_eq!(image.sigma_in_pixels(1, &[3.0])?, [3.0, 3.0]);
//! let level = image.level(1, MissingChunk::Fill)?;
//! assert_eq!(teatime::ChunkedArray::shape(&level), [250, 150]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod axis;
mod elsewhere;
mod entry;
mod mean;
mod metadata;
mod multiscale;
mod pyramid;
mod spec;
mod writer;

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "test sizes are small")]
mod tests;

pub use self::{
    axis::{Axis, AxisKind},
    metadata::OmeVersion,
    multiscale::{Level, Multiscale},
    spec::{ImageSpec, Pyramid},
    writer::MultiscaleWriter,
};
