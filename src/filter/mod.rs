//! Separable filters, given by weights along each axis: Gaussians, their derivatives, and combinations of these; and total variation
//! denoising.
//!
//! | for | take | scipy, skimage |
//! |---|---|---|
//! | a Gaussian, or a derivative of it | [`gaussian()`], [`gaussian_into`] | `gaussian_filter` |
//! | the sum of its second derivatives; the length of its gradient | [`gaussian_laplace`], [`gaussian_gradient_magnitude`] | the same names |
//! | the difference of a Gaussian and a wider one | [`difference_of_gaussians`] | the same name |
//! | weights of your own along each axis | [`separable`] | `correlate1d` along each axis |
//! | a Gaussian of a stored array into another, box by box | [`write_gaussian`] | |
//! | a box of the Gaussian of a stored array | [`gaussian_box`] | |
//! | an image without noise, with its edges | [`denoise_tv()`] | `denoise_tv_chambolle` |
//! | that of a stored array into another, box by box | [`write_denoised_tv`] | |
//!
//! Functions of tensors filter an array of one to five axes that the device holds, those of stored arrays one that need not fit memory. To
//! filter such an array by a method of your own, write a [`BoxOperation`](crate::stream::BoxOperation).
//!
//! # Conventions
//!
//! These are the conventions of separable filters; [`denoise_tv()`] states its own. The conventions are exactly those of `scipy.ndimage`. A
//! Gaussian of standard deviation sigma has 2 r + 1 weights along an axis, exp(-x² / 2 sigma²) divided by their sum, where r is truncate
//! sigma + 0.5, rounded down; the weights of a derivative are multiplied by a polynomial. Axes with a sigma of 0 (1e-15 or less) are not
//! filtered. Axes are filtered in ascending order, and the elements beyond the ends of an axis are derived from the results of the axes
//! before it ([`Mode`]). NaN and infinity spread as far as the weights reach, and no further.
//!
//! # Types
//!
//! Sums are in f32. If the input or the output is of f64, i32 or u32, or [`Rounding::Scipy`] asks for it, they are in f64, on devices
//! that [compute in f64](crate::Limits::f64): the cpu and CUDA. Other devices return [`Error::NoF64`], unless [`GaussianOptions::narrow`]
//! asks for f32. Between axes nothing is rounded to the output's type. The output is f32, f64, or of the input's type. Integers are
//! rounded once, to the nearest, with ties to even; values out of bounds become the bound, and NaN becomes 0.
//!
//! # Accuracy
//!
//! A sum with symmetric weights is computed as the centre times the sum of the weights, plus weighted differences of neighbours. So
//! errors are relative to the differences between elements. Let d be the largest minus the smallest element under the weights, times the
//! sum of |weight| over all axes. For each axis of radius r, f32 is within (r + 4) 2^-23 d plus 2^-23 of the axis's result, and f64
//! within (r + 4) 2^-52 d plus 2^-52 of it. A mean lies between the smallest and the largest of its elements. In f32, axes with
//! derivatives are filtered first, so that the other axes round only relative to the derivatives. This is not done if an edge is a
//! [`Mode::Constant`] other than 0, which does not commute: then an axis before the derivative rounds to 2^-24 of its result, as in
//! scipy. Each sum of elements as large as the type holds is finite if the exact sum fits the type, up to rounding (for weights whose sum
//! is less than 2^32; also with [`Rounding::Scipy`], where scipy's sum may be infinite). Weights of your own without symmetry are within
//! (r + 4) 2^-23 of the sum of |weight| |element|, or 2^-52 in f64; so are sums with [`Rounding::Scipy`], and those from 8 bits to 8
//! bits, whose rounding shows no difference.
//!
//! Two devices differ by at most twice these bounds, and integers that are rounded once by at most 1. Compared with scipy in f64, f32 is
//! within 2e-6 of the range of the elements, and a derivative within 2e-6 of its own range, or else the adjacent f32. Results depend
//! neither on the number of threads nor on how the array is cut, to the bit.

pub(crate) mod axis;
pub(crate) mod boxes;
mod denoise_tv;
mod derived;
mod gaussian;
mod options;
mod passes;
mod stored;
pub(crate) mod taps;

pub use self::{
    denoise_tv::{DenoisedTv, TvOptions, denoise_tv, write_denoised_tv},
    derived::{difference_of_gaussians, gaussian_gradient_magnitude, gaussian_laplace, separable},
    gaussian::{gaussian, gaussian_into},
    options::{GaussianOptions, Mode, PerAxis, Rounding, SeparableOptions},
    stored::{gaussian_box, write_gaussian},
};
#[cfg(doc)]
use crate::Error;
