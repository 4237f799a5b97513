//! The work that a sweep does on the boxes of an array.

use std::ops::Range;

use crate::{
    DType, Device, Element, Error, Needs, Result, Tensor,
    driver::HostBytes,
    stream::{Beyond, Block},
};

/// The position of a box in its array.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place {
    /// The box's range of elements along each axis, without the halo.
    pub core: Vec<Range<u64>>,
    /// The number of halo elements before the core along each axis; fewer at the start of the array.
    pub before: Vec<u64>,
    /// The number of elements of the box along each axis, including the halo.
    pub shape: Vec<u64>,
    /// The number of elements of the whole array along each axis.
    pub array: Vec<u64>,
}

impl Place {
    pub(super) fn new(block: &Block<'_>, array: &[u64]) -> Self {
        let (core, before, shape) = (block.core.clone(), block.before.clone(), block.shape.clone());
        Self { core, before, shape, array: array.to_vec() }
    }

    /// Returns the number of elements of the core along each axis.
    pub fn extents(&self) -> Vec<u64> {
        self.core.iter().map(|range| range.end - range.start).collect()
    }
}

/// An operation that computes each output element from the input elements around the same position. [`Sweep::map`](super::Sweep::map)
/// applies it to an array of any size, box by box.
///
/// The output must not depend on how the array is cut into boxes: other budgets, retries and resumed sweeps cut it otherwise. The operation
/// receives the [`Place`] of each box in the array.
pub trait BoxOperation: Sync {
    /// The type to which elements are converted when they are read.
    type Input: Element;
    /// The type of the output elements.
    type Output: Element;

    /// Returns the numbers of elements before and after a position, along an axis, on which the output at that position depends.
    fn halo(&self, axis: usize) -> [u64; 2];

    /// Returns the elements of a box beyond the ends of an axis: none with [`Beyond::Clip`], those of the other end with [`Beyond::Wrap`].
    fn beyond(&self, _axis: usize) -> Beyond {
        Beyond::Clip
    }

    /// Returns the bytes of memory that [`run`](Self::run) takes for a box of this shape, halo included, in addition to the box and its
    /// output. None by default.
    fn needs(&self, _shape: &[u64], _device: &Device) -> Needs {
        Needs::default()
    }

    /// Computes the output of a box. `x` has the shape of the [`Place`]; `out` has the shape of its [`extents`](Place::extents), with
    /// undefined elements. Both are on the device. This need not wait for the device.
    ///
    /// # Errors
    /// Any error, which ends the sweep; only after [`Error::OutOfMemory`] the sweep retries the remaining boxes, cut smaller.
    fn run(&self, x: &Tensor<Self::Input>, place: &Place, out: &mut Tensor<Self::Output>) -> Result<()>;
}

/// A reduction of an array, such as a sum or a count: [`Sweep::fold`](super::Sweep::fold) passes it each box once.
pub trait Fold {
    /// The type to which elements are converted when they are read.
    type Input: Element;

    /// Returns the bytes of memory that the fold takes while boxes of at most this shape are added, in addition to two boxes: its state,
    /// and work that the device has not finished when [`add`](Self::add) returns. None by default.
    fn needs(&self, _shape: &[u64], _device: &Device) -> Needs {
        Needs::default()
    }

    /// Resets the fold to its initial state. A sweep that finds the device full starts over with smaller boxes, and calls this again.
    ///
    /// # Errors
    /// Any error, which ends the sweep.
    fn begin(&mut self, device: &Device) -> Result<()>;

    /// Adds a box, which has no halo. The order of the boxes is unspecified. This should enqueue work without waiting, so that the next
    /// box is read meanwhile.
    ///
    /// # Errors
    /// See [`BoxOperation::run`].
    fn add(&mut self, x: &Tensor<Self::Input>, place: &Place) -> Result<()>;

    /// Ends the fold after the last box; this is the place to wait for results.
    ///
    /// # Errors
    /// See [`BoxOperation::run`].
    fn settle(&mut self) -> Result<()> {
        Ok(())
    }
}

/// The target bytes of a box as read, unless its tiles are larger: large enough for halos to be a small part.
pub(super) const BOX: u64 = 32 << 20;

/// A [`BoxOperation`] whose types are known only at run time, so that the code of sweeps is compiled once.
pub(crate) trait UntypedOperation: Sync {
    /// Returns the types of the elements that are read, and of those that are written.
    fn types(&self) -> [DType; 2];

    fn halo(&self, axis: usize) -> [u64; 2];

    fn beyond(&self, axis: usize) -> Beyond;

    /// True if the operation needs no halo along an axis that a box covers entirely, whatever lies beyond its ends.
    fn knows_whole_axes(&self) -> bool {
        false
    }

    /// Returns the size in bytes of the widest element in any buffer that a kernel binds.
    fn widest(&self) -> u64 {
        self.types().map(DType::size).into_iter().fold(4, u64::max)
    }

    /// Returns the target bytes of a box as read, unless its tiles are larger.
    fn box_bytes(&self) -> u64 {
        BOX
    }

    /// Returns the shape of the tiles that boxes consist of: whole tiles of the writer, whose shape is `written`.
    fn tile(&self, written: Vec<u64>) -> Vec<u64> {
        written
    }

    fn needs(&self, shape: &[u64], device: &Device) -> Needs;

    /// Computes the output of a box, in C order. Waits for the device.
    fn run(&self, block: Block<'_>, place: &Place, device: &Device) -> Result<HostBytes>;
}

/// A wrapper that makes a [`BoxOperation`] an `UntypedOperation`.
pub(super) struct Typed<'a, O>(pub(super) &'a O);

impl<O: BoxOperation> UntypedOperation for Typed<'_, O> {
    fn types(&self) -> [DType; 2] {
        [O::Input::DTYPE, O::Output::DTYPE]
    }

    fn halo(&self, axis: usize) -> [u64; 2] {
        self.0.halo(axis)
    }

    fn beyond(&self, axis: usize) -> Beyond {
        self.0.beyond(axis)
    }

    fn needs(&self, shape: &[u64], device: &Device) -> Needs {
        self.0.needs(shape, device)
    }

    fn run(&self, block: Block<'_>, place: &Place, device: &Device) -> Result<HostBytes> {
        let (x, extents) = (block.tensor(&place.shape)?, place.extents());
        let mut out = Tensor::empty(device, &extents)?;
        self.0.run(&x, place, &mut out)?;
        if out.shape() != extents {
            let expected = format_args!("an output of {extents:?}");
            return Err(Error::shape("sweep", expected, format_args!("{:?}", out.shape())));
        }
        out.into_bytes()
    }
}
