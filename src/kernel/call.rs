//! One launch: its grid, and the part of it that a function for the cpu device gets.

use bytemuck::Pod;

use super::Spec;
use crate::{Cancel, Error, Result};

/// Number of workgroups (blocks, in CUDA) along each axis, and the arithmetic in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Workgroups along x, y and z. With a zero in it, a launch does nothing.
    pub groups: [u32; 3],
    /// Rough number of operations of the whole launch, by which wgpu decides when to submit: in portions of about 50 ms on
    /// a small GPU, so that a screen goes on being drawn. One launch is not divided.
    pub work: u64,
}

impl Grid {
    /// `groups` workgroups numbered along one line, folded into x and y where x alone would pass `per_axis`, which is
    /// [`Limits::groups_per_axis`](crate::Limits::groups_per_axis) of the device.
    ///
    /// Kernels number them `y * num_workgroups.x + x` and stop past their last item: folding may add some.
    ///
    /// # Errors
    /// [`Error::Limit`] past `per_axis` squared.
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

    /// `x` by `y` workgroups.
    pub const fn tiles(x: u32, y: u32, work: u64) -> Self {
        Self { groups: [x, y, 1], work }
    }
}

/// One argument as a function for the cpu device gets it: exactly the elements of the tensor, or of the part of it, that was
/// given to the launch.
#[derive(Debug)]
#[non_exhaustive]
pub enum CpuArg<'a> {
    /// The bytes of one that is only read.
    Read(&'a [u8]),
    /// The bytes of one that is written.
    Write(&'a mut [u8]),
}

impl<'a> CpuArg<'a> {
    /// The elements of an argument. Of one that is only written they may have any value.
    pub fn read<T: Pod>(&self) -> &[T] {
        match self {
            Self::Read(bytes) => whole(bytes),
            Self::Write(bytes) => whole(bytes),
        }
    }

    /// The elements of an argument that is written.
    ///
    /// # Panics
    /// When the kernel's binding is only read.
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

/// As elements; what is less than one at the end is left out.
fn whole<T: Pod>(bytes: &[u8]) -> &[T] {
    bytemuck::cast_slice(&bytes[..bytes.len() / size_of::<T>() * size_of::<T>()])
}

/// A launch as a function for the cpu device gets it. The function runs inside the device's pool, so rayon's parallel calls
/// use that pool.
#[derive(Debug)]
pub struct CpuLaunch<'a> {
    pub(crate) args: Vec<CpuArg<'a>>,
    pub(crate) params: &'a [u8],
    pub(crate) spec: Spec<'a>,
    pub(crate) cancel: Option<&'a Cancel>,
}

impl<'a> CpuLaunch<'a> {
    /// The parameters.
    ///
    /// # Panics
    /// When `P` has not the size of the kernel's.
    pub fn params<P: Pod>(&self) -> P {
        bytemuck::pod_read_unaligned(self.params)
    }

    /// The value of a constant in this launch.
    ///
    /// # Panics
    /// When the kernel has no constant of that name.
    pub fn constant(&self, name: &str) -> u32 {
        let value = self.spec.iter().find(|(n, _)| *n == name);
        value.expect("a kernel should declare every constant that it reads").1
    }

    /// The flag that ends the call, if there is one: once it is set, a function that takes long may leave its outputs as they are.
    pub fn cancel(&self) -> Option<&'a Cancel> {
        self.cancel
    }

    /// The arguments, in the order of the kernel's bindings.
    ///
    /// # Panics
    /// When there are more or fewer than `N`.
    pub fn args<const N: usize>(self) -> [CpuArg<'a>; N] {
        self.args.try_into().expect("a kernel's function should take as many arguments as it has bindings")
    }
}

/// A number for a kernel's parameters, of a panel that one launch sees.
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
