//! Filters that are products of weights along each axis: Gaussians, their derivatives, and what is made of these.
//!
//! | for | take | scipy, skimage |
//! |---|---|---|
//! | a Gaussian, or a derivative of it | [`gaussian()`], [`gaussian_into`] | `gaussian_filter` |
//! | the sum of its second derivatives; the length of its gradient | [`gaussian_laplace`], [`gaussian_gradient_magnitude`] | the same names |
//! | a Gaussian less a wider one | [`difference_of_gaussians`] | the same name |
//! | weights of your own along each axis | [`separable`] | `correlate1d` along each axis |
//! | a Gaussian of a stored array into another, box by box | [`write_gaussian`] | |
//! | a box of the Gaussian of a stored array | [`gaussian_box`] | |
//!
//! An array of one to five axes that the device holds takes the first four; what does not fit memory the last two. A filter of your own of
//! what does not fit memory is a [`BoxOperation`](crate::stream::BoxOperation).
//!
//! # Conventions
//!
//! Conventions are those of `scipy.ndimage`, number for number: a Gaussian of standard deviation sigma has 2 r + 1 weights along an axis, exp(-x² / 2 sigma²)
//! over their sum, with r = truncate sigma + 0.5 without its fraction, and derivatives are the same times a polynomial. Axes of which
//! sigma is 0 (1e-15 or less) are left alone. Axes are filtered in ascending order, and what stands beyond the ends of one is made of what
//! those before it gave ([`Mode`]). NaN and infinity spread as far as the weights reach, and no further.
//!
//! # Types
//!
//! Sums are in f32; where the input or the output is of f64, i32 or u32, or [`Rounding::Scipy`] asks for it, they are in f64, on devices that
//! [can](crate::Limits::f64): the cpu and CUDA. Others give [`Error::NoF64`], unless [`GaussianOptions::narrow`] asks for f32. Between axes
//! nothing is rounded to the output's type. The output is f32, f64, or of the input's type. Integers are rounded once, to the nearest and of two as near to
//! the even one; beyond their bounds they are the bound, and of NaN 0.
//!
//! # Accuracy
//!
//! A sum of weights that are the same on both sides is the centre times what they add up to, and differences of neighbours. So errors are relative
//! to how far apart elements are: with d the largest less the smallest element under the weights, times the sum of |weight| over all axes, f32 is
//! within (r + 4) 2^-23 d and 2^-23 of what each axis gives, for each axis of radius r, and f64 within (r + 4) 2^-52 d and 2^-52 of what it
//! gives. A mean is between the least and the largest of its elements. In f32, sums along axes of derivatives are made first, so that the
//! others round no more than these leave; but not where the edges are a [`Mode::Constant`] other than 0, which does not commute: then an
//! axis before rounds to 2^-24 of what it gives, as in scipy. Each sum of elements as large as the type holds is finite wherever that fits, or
//! misses it by rounding (of weights that add up to less than 2^32; with [`Rounding::Scipy`] too, where scipy's may be infinite). Weights of your own without symmetry are within (r + 4) 2^-23 of the sum of
//! |weight| |element|, or 2^-52; and so are sums with [`Rounding::Scipy`], and those from 8 bits to 8 bits, whose rounding shows no difference.
//!
//! Two devices are within twice these bounds of each other, and integers that are rounded once within 1. Beside scipy in f64, f32 is within 2e-6
//! of the range of the elements, and a derivative within 2e-6 of its own range, or to each the f32 next to it. Results depend neither on the
//! number of threads nor on how the array is cut, to the bit.

pub(crate) mod axis;
pub(crate) mod boxes;
mod derived;
mod gaussian;
mod options;
mod passes;
mod stored;
pub(crate) mod taps;

pub use self::{
    derived::{difference_of_gaussians, gaussian_gradient_magnitude, gaussian_laplace, separable},
    gaussian::{gaussian, gaussian_into},
    options::{GaussianOptions, Mode, PerAxis, Rounding, SeparableOptions},
    stored::{gaussian_box, write_gaussian},
};
#[cfg(doc)]
use crate::Error;
