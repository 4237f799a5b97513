//! Total variation denoising.

mod projection;
mod stored;

use self::projection::{Core, FACTORS, Frame, Projection, Rule};
pub use self::stored::{DenoisedTv, write_denoised_tv};
use super::gaussian::{checked_axes, image_scale};
use crate::{Element, Error, Real, Result, StoredType, Tensor, TensorView, array::elementwise::converted};

const OP: &str = "denoise_tv";

/// Options of [`denoise_tv`], with the defaults of skimage.
///
/// ```
/// use teatime::filter::TvOptions;
/// let options = TvOptions::default().weight(0.2).eps(0.0).max_iterations(50);
/// assert_eq!(options.axes, None);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TvOptions {
    /// The axes of an image, one to three; `None` takes all axes. Images along the other axes, such as channels, are denoised separately.
    pub axes: Option<Vec<usize>>,
    /// The weight of the total variation, in the units of the image's elements as floats: the larger it is, the smoother is the result.
    /// It is above 0, and from 1e-30 to 1e30, also relative to the scale of integers.
    pub weight: f64,
    /// The iteration ends when the energy changes by less than this factor of its first value. 0 for always the maximum number of
    /// iterations.
    pub eps: f64,
    /// The maximum number of iterations, at least 1.
    pub max_iterations: u64,
    /// True if stored images whose elements are computed in f64 (of f64, and integers of 32 and 64 bits) are computed in f32, to which
    /// elements are rounded. [`denoise_tv`] computes in the type of its result.
    pub narrow: bool,
}

impl Default for TvOptions {
    fn default() -> Self {
        Self { axes: None, weight: 0.1, eps: 2e-4, max_iterations: 200, narrow: false }
    }
}

crate::setters! {
    TvOptions {
        axes(impl IntoIterator<Item = usize>) = Some(axes.into_iter().collect()),
        weight(f64),
        eps(f64),
        max_iterations(u64),
        narrow(bool),
    }
}

crate::stable_text! { struct TvOptions { axes, weight, eps, max_iterations, narrow } }

/// Removes noise from an image, and keeps its edges, like `skimage.restoration.denoise_tv_chambolle`: approximates the image u with the
/// least sum of (u - x)² / 2 + `weight` |∇u|, where ∇u are the differences of neighbours. Returns it, and the number of iterations for
/// each image, in C order of the axes that are not [denoised](TvOptions::axes).
///
/// Integers become floats as in skimage: they are divided by the maximum of their type. (Skimage also clips the minimum integer to -1,
/// which is slightly less here.) The default options end after 5 to 50 iterations, as skimage does; the result is then far from that
/// minimum. More [iterations](TvOptions::max_iterations) with an `eps` of 0 come closer.
///
/// The method is that of A. Chambolle, "An algorithm for total variation minimization and applications", Journal of Mathematical Imaging
/// and Vision 20 (2004), with the fixed step 1 / (2 axes) of skimage. In each iteration, u is x + d, where d is the divergence of a vector
/// field p that starts at 0; then p becomes (p - τ g) / (1 + τ / `weight` |g|), where g are the forward differences of u. The energy of an
/// iteration is the mean of d² + `weight` |g|.
///
/// # Shapes
/// `x`: one to five axes -> the same. The type R of the result, f32 or f64, is that of the computation, to which elements are rounded.
///
/// # Errors
/// [`Error::Argument`] for options out of range, for more than three axes, and if the first energy is infinite or NaN: for elements that
/// are, or that differ by more than some 10^18 times the weight; [`Error::Shape`] for an array without axes or with more than five;
/// [`Error::NoF64`] for f64 on a device that does not [compute in f64](crate::Limits::f64); [`Error::Limit`] if a number for each element
/// and axis of an image does not fit a binding ([`write_denoised_tv`] cuts images); [`Error::OutOfMemory`].
///
/// # Cost
/// Memory for two numbers for each element and axis of an image, for the result, and for `x` in its type if it has another. Each
/// iteration reads the image and as many fields as there are axes, and writes these, once each; with an `eps` it also waits for the
/// device.
///
/// ```
/// use teatime::{Device, Tensor, filter::{TvOptions, denoise_tv}};
/// let noisy = [0.1f32, -0.1, 0.1, -0.1, 1.1, 0.9, 1.1, 0.9];
/// let x = Tensor::from_slice(&Device::best()?, &noisy, &[8])?;
/// let (u, iterations) = denoise_tv::<_, f32>(&x, &TvOptions::default().weight(0.2))?;
/// let u = u.read()?;
/// assert!((u[1] - u[0]).abs() < 0.02 && u[4] - u[3] > 0.7 && iterations[0] < 200, "{u:?}");
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn denoise_tv<T: Element, R: Real>(x: &Tensor<T>, options: &TvOptions) -> Result<(Tensor<R>, Vec<u64>)> {
    let device = x.device();
    device.computes::<R>(OP)?;
    let scale = image_scale(T::DTYPE).unwrap_or(1.0);
    let axes = options.image_axes(x.shape(), scale)?;
    let mut out = Tensor::empty(device, x.shape())?;
    if x.is_empty() {
        return Ok((out, Vec::new()));
    }
    let f: TensorView<'_, R> =
        if T::DTYPE == R::DTYPE { x.view().cast() } else { TensorView::new(converted(OP, x)?) };
    let frame = Frame::new(&axes, x.shape());
    let core = Core { start: [0; 3], extents: frame.extents };
    let mut projection =
        Projection::<R>::new(&f, (frame.clone(), axes.len()), core, [scale, options.weight])?;
    let mut denoise = |image| {
        projection.begin(image)?;
        let updates = projection.iterate(&Rule::new(options))?;
        projection.result(core, &mut out, (&frame, image))?;
        Ok(updates + 1)
    };
    let iterations = (0..frame.firsts.len()).map(&mut denoise).collect::<Result<_>>()?;
    Ok((out, iterations))
}

impl TvOptions {
    /// Returns the type in which [`write_denoised_tv`] computes images of a stored type: f64 for f64 and integers of 32 and 64 bits unless
    /// [`narrow`](Self::narrow) is set, otherwise f32.
    pub fn computed_type(&self, stored: StoredType) -> StoredType {
        use StoredType::{F32, F64, I32, I64, U32, U64};
        if matches!(stored, F64 | I32 | U32 | I64 | U64) && !self.narrow { F64 } else { F32 }
    }

    /// Returns the axes of an image in an array of this shape, in ascending order. `scale` is the factor that makes floats of its elements.
    /// Fails with [`Error::Shape`], and [`Error::Argument`] for any option that is out of range.
    fn image_axes(&self, shape: &[u64], scale: f64) -> Result<Vec<usize>> {
        let mut axes = checked_axes(OP, shape, self.axes.as_deref())?;
        axes.sort_unstable();
        if !(1..=3).contains(&axes.len()) {
            let why = format_args!("{} axes; an image has one to three", axes.len());
            return Err(Error::argument(OP, "axes", why));
        }
        let Self { weight, eps, max_iterations, .. } = *self;
        if ![weight, scale / weight].iter().all(|factor| FACTORS.contains(factor)) {
            let why = format_args!(
                "{weight}; it is from 1e-30 to 1e30, also over {scale:e}, the factor of the elements"
            );
            return Err(Error::argument(OP, "weight", why));
        }
        if !(eps.is_finite() && eps >= 0.0) {
            return Err(Error::argument(OP, "eps", format_args!("{eps}; it is a finite number from 0 on")));
        }
        if max_iterations == 0 {
            return Err(Error::argument(OP, "max_iterations", "0; at least 1"));
        }
        Ok(axes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stable_text::StableText;

    /// Arrays begun with these texts can be finished only while the texts stay the same.
    #[test]
    fn texts_stay() {
        let options = TvOptions::default().axes([0, 2]).weight(0.25).eps(1e-4).max_iterations(7).narrow(true);
        let expected =
            "TvOptions { axes: Some([0, 2]), weight: 0.25, eps: 0.0001, max_iterations: 7, narrow: true }";
        assert_eq!(options.stable_text(), expected);
        use StoredType::{Bool, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
        let types = vec![Bool, I8, U8, I16, U16, I32, U32, I64, U64, F16, F32, F64];
        assert_eq!(types.stable_text(), "[Bool, I8, U8, I16, U16, I32, U32, I64, U64, F16, F32, F64]");
    }
}
