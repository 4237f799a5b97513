//! One launch: its grid, and its arguments as the cpu function receives them.

use bytemuck::Pod;

use super::Spec;
use crate::{Cancel, Error, Result};

/// The number of workgroups (CUDA's blocks) along each axis, and the amount of arithmetic in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Workgroups along x, y and z. If one is zero, the launch does nothing.
    pub groups: [u32; 3],
    /// The approximate number of operations of the whole launch. With it, wgpu decides when to submit: in portions of about 50 ms on a small
    /// GPU, so that the screen keeps updating. A single launch is not divided.
    pub work: u64,
}

impl Grid {
    /// Creates a grid of `groups` consecutively numbered workgroups, folded into x and y if x alone would exceed `per_axis`, the
    /// [`Limits::groups_per_axis`](crate::Limits::groups_per_axis) of the device.
    ///
    /// Kernels compute the number as `y * num_workgroups.x + x` and stop after their last item, as folding may add some workgroups.
    ///
    /// # Errors
    /// [`Error::Limit`] for more than `per_axis` squared.
    pub fn linear(groups: u64, per_axis: u32, work: u64) -> Result<Self> {
        let rows = groups.div_ceil(u64::from(per_axis.max(1))).max(1);
        let rows_fit = u32::try_from(rows).ok().filter(|&y| y <= per_axis);
        let (Ok(x), Some(y)) = (u32::try_from(groups.div_ceil(rows)), rows_fit) else {
            return Err(Error::Limit {
                what: "workgroups",
                requested: groups,
                max: u64::from(per_axis).pow(2),
            });
        };
        Ok(Self { groups: [x, y, u32::from(groups > 0)], work })
    }

    /// Creates a grid of `x` by `y` workgroups.
    pub const fn tiles(x: u32, y: u32, work: u64) -> Self {
        Self { groups: [x, y, 1], work }
    }
}

/// One argument of a function for the cpu device: exactly the elements of the tensor, or of the part of the tensor, that the launch was given.
#[derive(Debug)]
#[non_exhaustive]
pub enum CpuArg<'a> {
    /// The bytes of an argument that is only read.
    Read(&'a [u8]),
    /// The bytes of an argument that is written.
    Write(&'a mut [u8]),
}

impl<'a> CpuArg<'a> {
    /// Returns the elements of an argument. An argument that is only written may hold any values.
    pub fn read<T: Pod>(&self) -> &[T] {
        match self {
            Self::Read(bytes) => whole(bytes),
            Self::Write(bytes) => whole(bytes),
        }
    }

    /// Returns the elements of an argument that is written.
    ///
    /// # Panics
    /// If the kernel only reads this binding.
    pub fn write<T: Pod>(self) -> &'a mut [T] {
        match self {
            Self::Write(bytes) => {
                let len = bytes.len() / size_of::<T>() * size_of::<T>();
                bytemuck::cast_slice_mut(&mut bytes[..len])
            }
            Self::Read(_) => panic!("a kernel should write only what its bindings say"),
        }
    }
}

/// Returns bytes as elements; an incomplete element at the end is dropped.
fn whole<T: Pod>(bytes: &[u8]) -> &[T] {
    bytemuck::cast_slice(&bytes[..bytes.len() / size_of::<T>() * size_of::<T>()])
}

/// A launch as the cpu function receives it. The function runs inside the device's pool, so rayon's parallel calls use that pool.
#[derive(Debug)]
pub struct CpuLaunch<'a> {
    pub(crate) args: Vec<CpuArg<'a>>,
    pub(crate) params: &'a [u8],
    pub(crate) spec: Spec<'a>,
    pub(crate) cancel: Option<&'a Cancel>,
}

impl<'a> CpuLaunch<'a> {
    /// Returns the parameters.
    ///
    /// # Panics
    /// If `P` has not the size of the kernel's parameters.
    pub fn params<P: Pod>(&self) -> P {
        bytemuck::pod_read_unaligned(self.params)
    }

    /// Returns the value of a constant in this launch.
    ///
    /// # Panics
    /// If the kernel has no constant of that name.
    pub fn constant(&self, name: &str) -> u32 {
        let value = self.spec.iter().find(|(n, _)| *n == name);
        value.expect("a kernel should declare every constant that it reads").1
    }

    /// Returns the flag that cancels the call, if any. Once it is set, a slow function may return early and leave its outputs incomplete.
    pub fn cancel(&self) -> Option<&'a Cancel> {
        self.cancel
    }

    /// Returns the arguments, in the order of the kernel's bindings.
    ///
    /// # Panics
    /// If there are more or fewer than `N`.
    pub fn args<const N: usize>(self) -> [CpuArg<'a>; N] {
        self.args.try_into().expect("a kernel's function should take as many arguments as it has bindings")
    }
}

/// Converts a size or index within one launch's panel to a kernel parameter.
pub(crate) fn small(number: u64) -> u32 {
    u32::try_from(number).expect("a panel should be small")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_grids_fold() {
        assert_eq!(Grid::linear(0, 16, 0).unwrap().groups, [0, 1, 0]);
        assert_eq!(Grid::linear(16, 16, 0).unwrap().groups, [16, 1, 1]);
        assert_eq!(Grid::linear(17, 16, 0).unwrap().groups, [9, 2, 1]);
        assert_eq!(Grid::linear(70_000, 65_535, 0).unwrap().groups, [35_000, 2, 1]);
        for (groups, per_axis) in [(257, 16), (u64::MAX, u32::MAX), (1, 0)] {
            let refused = Grid::linear(groups, per_axis, 0);
            assert!(
                matches!(refused, Err(Error::Limit { requested, .. }) if requested == groups),
                "{refused:?}"
            );
        }
    }
}
