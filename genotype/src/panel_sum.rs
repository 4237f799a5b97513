//! A sum to which panels are added, packed or not.

use teatime::{Error, Result, linalg::BlockSum, packed::IntegerSums};

use super::part::SumValues;

/// A sum of integers over packed rows, or in f32 over a block of other rows, and in a [`BlockSum`] across blocks.
pub(crate) enum PanelSum<P> {
    Packed(P),
    Dense(Box<BlockSum>),
}

impl<P: IntegerSums> PanelSum<P> {
    /// Waits for the sums, and returns them for [`set_values`](Self::set_values) of another sum.
    pub(crate) fn into_values(self) -> Result<SumValues> {
        match self {
            Self::Packed(sum) => sum.into_sums().map(|(values, unit)| SumValues::Whole { values, unit }),
            Self::Dense(sum) => sum.into_sums().map(SumValues::Real),
        }
    }

    /// Replaces the sums.
    pub(crate) fn set_values(&mut self, values: &SumValues) -> Result<()> {
        match (self, values) {
            (Self::Packed(sum), SumValues::Whole { values, unit }) => sum.set_sums(values, *unit),
            (Self::Dense(sum), SumValues::Real(values)) => sum.set_sums(values),
            (Self::Packed(_), _) => Err(Error::shape("sums", "whole ones", "sums of f64")),
            (Self::Dense(_), _) => Err(Error::shape("sums", "sums of f64", "whole ones")),
        }
    }
}
