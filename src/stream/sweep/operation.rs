//! Work that a sweep does with the boxes of an array.

use std::ops::Range;

use crate::{
    DType, Device, Element, Error, Needs, Result, Tensor,
    driver::HostBytes,
    stream::{Block, Edge},
};

/// The place of a box in its array.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place {
    /// Its elements along each axis, without the halo.
    pub core: Vec<Range<u64>>,
    /// Elements of the halo before the core along each axis: fewer where the array begins.
    pub before: Vec<u64>,
    /// Elements along each axis, the halo among them.
    pub shape: Vec<u64>,
    /// Elements of the whole array along each axis.
    pub array: Vec<u64>,
}

impl Place {
    pub(super) fn new(block: &Block<'_>, array: &[u64]) -> Self {
        let (core, before, shape) = (block.core.clone(), block.before.clone(), block.shape.clone());
        Self { core, before, shape, array: array.to_vec() }
    }

    /// Elements of the core along each axis.
    pub fn extents(&self) -> Vec<u64> {
        self.core.iter().map(|range| range.end - range.start).collect()
    }
}

/// An operation that makes each element of its output from the elements around the one at its place: [`Sweep::map`](super::Sweep::map)
/// applies it to an array of any size, box by box.
///
/// The output should not depend on how the array is cut: an operation is told the [`Place`] of a box in it.
pub trait BoxOperation: Sync {
    /// The type that elements are read as.
    type Input: Element;
    /// The type of the output's elements.
    type Output: Element;

    /// The numbers of elements before and after one, along an axis, that its output depends on.
    fn halo(&self, axis: usize) -> [u64; 2];

    /// The elements that a box has beyond the ends of an axis: with [`Edge::Clip`] none, with [`Edge::Wrap`] those of the other end.
    fn edge(&self, _axis: usize) -> Edge {
        Edge::Clip
    }

    /// Bytes that [`run`](Self::run) takes for a box of a shape, its halo among it, beside the box and its output. None unless it says so.
    fn needs(&self, _shape: &[u64], _device: &Device) -> Needs {
        Needs::default()
    }

    /// Makes the output of a box. `x` has the shape of the [`Place`], and `out` its [`extents`](Place::extents), of undefined elements;
    /// both are on the device. It need not wait.
    ///
    /// # Errors
    /// Any error, which ends the sweep; but after [`Error::OutOfMemory`] the sweep tries the boxes that are left
    /// again, cut smaller.
    fn run(&self, x: &Tensor<Self::Input>, place: &Place, out: &mut Tensor<Self::Output>) -> Result<()>;
}

/// Sums, counts or whatever else is gathered from the boxes of an array: [`Sweep::fold`](super::Sweep::fold) gives it each box once.
pub trait Fold {
    /// The type that elements are read as.
    type Input: Element;

    /// Bytes that it takes while boxes of at most that shape are added, beside two of these: what it keeps, and what the device has not
    /// done yet when [`add`](Self::add) returns. None unless it says so.
    fn needs(&self, _shape: &[u64], _device: &Device) -> Needs {
        Needs::default()
    }

    /// Begins with nothing added. A sweep that finds the device full begins once more, with smaller boxes.
    ///
    /// # Errors
    /// Any error, which ends the sweep.
    fn begin(&mut self, device: &Device) -> Result<()>;

    /// Adds a box, which has no halo. Boxes come in an order of their own. It should enqueue work and not wait, so that the next box is
    /// read meanwhile.
    ///
    /// # Errors
    /// As [`BoxOperation::run`].
    fn add(&mut self, x: &Tensor<Self::Input>, place: &Place) -> Result<()>;

    /// Ends after the last box: the place to wait for results.
    ///
    /// # Errors
    /// As [`BoxOperation::run`].
    fn settle(&mut self) -> Result<()> {
        Ok(())
    }
}

/// A [`BoxOperation`] whose types are known at run time, so that sweeps are compiled once.
pub(crate) trait UntypedOperation: Sync {
    /// The types of the elements as they are read, and as they are written.
    fn types(&self) -> [DType; 2];

    fn halo(&self, axis: usize) -> [u64; 2];

    fn edge(&self, axis: usize) -> Edge;

    /// True where it needs no halo along an axis that a box holds whole, whatever the edge.
    fn knows_whole_axes(&self) -> bool;

    /// Bytes of the widest element that a binding holds on the way.
    fn widest(&self) -> u64;

    fn needs(&self, shape: &[u64], device: &Device) -> Needs;

    /// The outputs of a box of an array of that shape, in C order. Waits.
    fn run(&self, block: Block<'_>, array: &[u64], device: &Device) -> Result<HostBytes>;
}

/// A [`BoxOperation`] without its types.
pub(super) struct Typed<'a, O>(pub(super) &'a O);

impl<O: BoxOperation> UntypedOperation for Typed<'_, O> {
    fn types(&self) -> [DType; 2] {
        [O::Input::DTYPE, O::Output::DTYPE]
    }

    fn halo(&self, axis: usize) -> [u64; 2] {
        self.0.halo(axis)
    }

    fn edge(&self, axis: usize) -> Edge {
        self.0.edge(axis)
    }

    fn knows_whole_axes(&self) -> bool {
        false
    }

    fn widest(&self) -> u64 {
        self.types().map(DType::size).into_iter().fold(4, u64::max)
    }

    fn needs(&self, shape: &[u64], device: &Device) -> Needs {
        self.0.needs(shape, device)
    }

    fn run(&self, block: Block<'_>, array: &[u64], device: &Device) -> Result<HostBytes> {
        let place = Place::new(&block, array);
        let (x, extents) = (block.tensor(&place.shape)?, place.extents());
        let mut out = Tensor::empty(device, &extents)?;
        self.0.run(&x, &place, &mut out)?;
        if out.shape() != extents {
            return Err(Error::shape(
                "sweep",
                format_args!("an output of {extents:?}"),
                format_args!("{:?}", out.shape()),
            ));
        }
        out.into_bytes()
    }
}
