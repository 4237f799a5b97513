//! Options of filters.

use crate::{Error, Result, kernels::correlate::Edge, stable_text::StableText};

/// The elements beyond the ends of an axis `a b c d`, as in scipy. The pattern repeats if weights reach further than the axis is long.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Mode {
    /// `d c b a | a b c d | d c b a`
    #[default]
    Reflect,
    /// A constant everywhere: `k k k | a b c d | k k k`. Each axis has this number itself beyond its ends, not a sum along an earlier axis.
    Constant(f64),
    /// The nearest element: `a a a | a b c d | d d d`
    Nearest,
    /// `d c b | a b c d | c b a`
    Mirror,
    /// `b c d | a b c d | a b c`
    Wrap,
}

impl Mode {
    pub(crate) const fn edge(self) -> Edge {
        match self {
            Self::Reflect => Edge::Reflect,
            Self::Constant(_) => Edge::Constant,
            Self::Nearest => Edge::Nearest,
            Self::Mirror => Edge::Mirror,
            Self::Wrap => Edge::Wrap,
        }
    }

    pub(crate) const fn constant(self) -> f64 {
        match self {
            Self::Constant(constant) => constant,
            _ => 0.0,
        }
    }
}

crate::stable_text! { enum Mode { Reflect, Constant(constant), Nearest, Mirror, Wrap } }

/// One value for all filtered axes, or one for each filtered axis, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum PerAxis<T> {
    /// One value for all filtered axes.
    All(T),
    /// One value for each filtered axis.
    Each(Vec<T>),
}

impl<T: Default> Default for PerAxis<T> {
    fn default() -> Self {
        Self::All(T::default())
    }
}

impl<T> From<T> for PerAxis<T> {
    fn from(value: T) -> Self {
        Self::All(value)
    }
}

impl<T> From<Vec<T>> for PerAxis<T> {
    fn from(values: Vec<T>) -> Self {
        Self::Each(values)
    }
}

impl<T, const N: usize> From<[T; N]> for PerAxis<T> {
    fn from(values: [T; N]) -> Self {
        Self::Each(values.into())
    }
}

impl<T: Clone> PerAxis<T> {
    /// Returns one value for each of `count` axes. Fails with [`Error::Argument`] for another number of values.
    pub(super) fn expand(&self, op: &'static str, name: &'static str, count: usize) -> Result<Vec<T>> {
        match self {
            Self::All(value) => Ok(vec![value.clone(); count]),
            Self::Each(values) if values.len() == count => Ok(values.clone()),
            Self::Each(values) => {
                let why = format_args!("{} values for {count} filtered axes", values.len());
                Err(Error::argument(op, name, why))
            }
        }
    }
}

impl<T: StableText> StableText for PerAxis<T> {
    fn stable_text(&self) -> String {
        match self {
            Self::All(value) => format!("All({})", value.stable_text()),
            Self::Each(values) => format!("Each({})", values.stable_text()),
        }
    }
}

/// The rounding of an integer output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rounding {
    /// The result is rounded once, to the nearest integer; ties go to the even one.
    #[default]
    Once,
    /// The result is rounded towards 0 after each axis, as in scipy, so a constant array may get smaller. Sums are in f64 like scipy's,
    /// and outputs are the same as scipy's. If sums are in f32 ([`narrow`](GaussianOptions::narrow)), outputs of 8 and 16 bits may be off
    /// by 1 if a sum is close to an integer: for noise, fewer than 1 in 10,000 outputs of 8 bits, and 1 in 200 of 16 bits. Outputs
    /// of 32 bits may differ by more, since f32 does not represent all 32-bit integers.
    Scipy,
}

crate::stable_text! { enum Rounding { Once, Scipy } }

/// Options of a Gaussian filter.
///
/// ```
/// use teatime::filter::{GaussianOptions, Mode};
/// let options = GaussianOptions::default().axes([0, 1]).mode([Mode::Nearest, Mode::Constant(1.0)]).radius(3);
/// assert_eq!(options.truncate, 4.0);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct GaussianOptions {
    /// The filtered axes, in the order in which values for each axis are given; filtering is in ascending order. `None` filters all axes.
    pub axes: Option<Vec<usize>>,
    /// The order of the derivative, up to 100; 0 for the Gaussian itself.
    pub order: PerAxis<u32>,
    /// The elements beyond the ends of an axis.
    pub mode: PerAxis<Mode>,
    /// The reach of weights in standard deviations: the radius is `truncate` sigma + 0.5, rounded down.
    pub truncate: f64,
    /// The reach of weights in elements, which replaces `truncate`.
    pub radius: Option<PerAxis<u32>>,
    /// The rounding of an integer output.
    pub rounding: Rounding,
    /// True if integers are filtered as they are. If false, they are divided by the maximum of their type, as skimage converts images to
    /// floats. (Skimage also clips the minimum integer to -1, which is slightly less here.)
    pub preserve_range: bool,
    /// True if sums that would be in f64 (of f64, of 32-bit integers or by [`Rounding::Scipy`]) are in f32. This is faster, and the only
    /// way on devices that do not [compute in f64](crate::Limits::f64). Other sums do not change.
    pub narrow: bool,
}

impl Default for GaussianOptions {
    fn default() -> Self {
        Self {
            axes: None,
            order: PerAxis::All(0),
            mode: PerAxis::All(Mode::Reflect),
            truncate: 4.0,
            radius: None,
            rounding: Rounding::Once,
            preserve_range: true,
            narrow: false,
        }
    }
}

crate::setters! {
    GaussianOptions {
        axes(impl IntoIterator<Item = usize>) = Some(axes.into_iter().collect()),
        order(impl Into<PerAxis<u32>>) = order.into(),
        mode(impl Into<PerAxis<Mode>>) = mode.into(),
        truncate(f64),
        radius(impl Into<PerAxis<u32>>) = Some(radius.into()),
        rounding(Rounding),
        preserve_range(bool),
        narrow(bool),
    }
}

crate::setters! {
    SeparableOptions {
        axes(impl IntoIterator<Item = usize>) = Some(axes.into_iter().collect()),
        mode(impl Into<PerAxis<Mode>>) = mode.into(),
        rounding(Rounding),
        narrow(bool),
    }
}

impl GaussianOptions {
    /// Returns the options of `skimage.filters`: [`Mode::Nearest`], and integers converted to floats as for images.
    pub fn skimage() -> Self {
        Self::default().mode(Mode::Nearest).preserve_range(false)
    }
}

crate::stable_text! {
    struct GaussianOptions {
        axes, order, mode, truncate, radius, rounding, preserve_range, narrow,
    }
}

/// Options of filters with the caller's own weights.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SeparableOptions {
    /// The filtered axes, in the order in which weights for each axis are given; filtering is in ascending order. `None` filters all axes.
    pub axes: Option<Vec<usize>>,
    /// The elements beyond the ends of an axis.
    pub mode: PerAxis<Mode>,
    /// The rounding of an integer output.
    pub rounding: Rounding,
    /// See [`GaussianOptions::narrow`].
    pub narrow: bool,
}
