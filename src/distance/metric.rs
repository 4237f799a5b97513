//! Metrics: the terms that are added up over features, and the formulas that compute distances from their sums.

use std::{fmt, str::FromStr};

use super::Missing;
pub(super) use crate::kernels::finish_distance::angle;
use crate::{
    Error, Result,
    dtype::nearest_f32,
    kernels::{
        distance::Term,
        finish_distance::{Finished, Formula, NOISE, NOISE_WIDE},
    },
};

/// A measure of distance, or of similarity, between two observations. The [table](crate::distance#metrics) defines each metric.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[allow(missing_docs, reason = "the table of the module says what each is")]
#[non_exhaustive]
pub enum Metric {
    #[default]
    Euclidean,
    SqEuclidean,
    CityBlock,
    Chebyshev,
    /// Has an exponent above 0.
    Minkowski(f64),
    Cosine,
    Correlation,
    InnerProduct,
    Canberra,
    BrayCurtis,
    Hamming,
    Jaccard,
    Dice,
    RussellRao,
    JensenShannon,
    Hellinger,
    KlDivergence,
}

/// The preparation of observations before terms are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prepare {
    Nothing,
    /// Multiplies elements by powers of two, if squares would leave f32 or f64.
    Scale,
    /// Subtracts each observation's mean, and multiplies by powers of two as [`Self::Scale`] does.
    Centre,
    /// Divides each observation by its length.
    Unit,
    /// Subtracts each observation's mean, and divides by its length.
    CentreAndUnit,
    /// Divides each observation by its sum.
    Shares,
}

/// Scaling by powers of two, for metrics whose terms could leave f32 or f64.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scaling {
    /// No scaling.
    None,
    /// One power of two for all observations. It scales the largest element to between 2 to the two powers given here, where sums in f32
    /// neither overflow nor lose digits.
    Common([f64; 2]),
    /// A power of two for each observation, which does not change its distances.
    Each,
}

/// Alternative names of metrics, from scikit-learn and cuVS.
const ALIASES: [(&str, Metric); 4] = [
    ("manhattan", Metric::CityBlock),
    ("l1", Metric::CityBlock),
    ("l2", Metric::Euclidean),
    ("inner-product", Metric::InnerProduct),
];

impl Metric {
    /// All metrics, with exponent 2 for Minkowski.
    pub const ALL: &[Self] = &[
        Self::Euclidean,
        Self::SqEuclidean,
        Self::CityBlock,
        Self::Chebyshev,
        Self::Minkowski(2.0),
        Self::Cosine,
        Self::Correlation,
        Self::InnerProduct,
        Self::Canberra,
        Self::BrayCurtis,
        Self::Hamming,
        Self::Jaccard,
        Self::Dice,
        Self::RussellRao,
        Self::JensenShannon,
        Self::Hellinger,
        Self::KlDivergence,
    ];

    /// Returns the metric's name: scipy's name if scipy has the metric, otherwise cuVS's.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Euclidean => "euclidean",
            Self::SqEuclidean => "sqeuclidean",
            Self::CityBlock => "cityblock",
            Self::Chebyshev => "chebyshev",
            Self::Minkowski(_) => "minkowski",
            Self::Cosine => "cosine",
            Self::Correlation => "correlation",
            Self::InnerProduct => "inner_product",
            Self::Canberra => "canberra",
            Self::BrayCurtis => "braycurtis",
            Self::Hamming => "hamming",
            Self::Jaccard => "jaccard",
            Self::Dice => "dice",
            Self::RussellRao => "russellrao",
            Self::JensenShannon => "jensenshannon",
            Self::Hellinger => "hellinger",
            Self::KlDivergence => "kl_divergence",
        }
    }

    /// True if the distance from a to b equals that from b to a.
    pub const fn is_symmetric(self) -> bool {
        !matches!(self, Self::KlDivergence)
    }

    /// True if an observation is at distance 0 from itself.
    pub const fn is_zero_on_diagonal(self) -> bool {
        !matches!(self, Self::InnerProduct | Self::RussellRao | Self::Hellinger)
    }

    /// True if elements must be 0 or more.
    pub(super) const fn needs_nonnegative(self) -> bool {
        matches!(self, Self::JensenShannon | Self::Hellinger | Self::KlDivergence)
    }

    /// Returns the scaling of the elements; sums are f64 if `wide`.
    pub(super) fn scaling(self, wide: bool) -> Scaling {
        // With elements up to 2^50 and 2^24 features, sums of squares are up to 2^126. Differences are at least 2^-24 of the elements.
        let degree = match self {
            Self::Cosine | Self::Correlation => return Scaling::Each,
            Self::Canberra => return Scaling::Common([f64::NEG_INFINITY, if wide { 1020.0 } else { 124.0 }]),
            _ if wide => return Scaling::None,
            Self::Euclidean | Self::SqEuclidean | Self::InnerProduct => 2.0,
            Self::CityBlock | Self::Chebyshev | Self::BrayCurtis => 1.0,
            Self::Minkowski(f64::INFINITY) => 1.0,
            Self::Minkowski(p) => p.max(1.0),
            _ => return Scaling::None,
        };
        Scaling::Common([-40.0 / degree, 100.0 / degree])
    }

    /// Returns all names that [`from_str`](Self::from_str) accepts.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::ALL.iter().map(|metric| metric.name()).chain(ALIASES.map(|(name, _)| name))
    }

    /// Returns Minkowski with another exponent, [`Chebyshev`](Self::Chebyshev) for an infinite one. Returns `None` for other metrics.
    pub fn with_exponent(self, p: f64) -> Option<Self> {
        match self {
            Self::Minkowski(_) if p == f64::INFINITY => Some(Self::Chebyshev),
            Self::Minkowski(_) => Some(Self::Minkowski(p)),
            _ => None,
        }
    }

    /// Checks the exponent and the rule for missing elements.
    ///
    /// # Errors
    /// [`Error::Argument`] for an exponent that is neither infinite nor a normal f32 above 0, and for a rule for missing elements that the
    /// metric does not support.
    pub fn check(self, missing: Missing) -> Result<()> {
        if let Self::Minkowski(p) = self
            && !(p > 0.0 && (nearest_f32(p).is_normal() || p.is_infinite()))
        {
            let why = format_args!("minkowski's exponent {p}: infinite, or above 0 and within f32");
            return Err(Error::argument("distance", "metric", why));
        }
        if missing != Missing::Propagate && self.needs_nonnegative() {
            let why = format_args!("{self} knows no rule for missing elements but `propagate`");
            return Err(Error::argument("distance", "missing", why));
        }
        Ok(())
    }

    /// Returns the exponent of [`Term::Power`].
    pub(super) const fn power(self) -> f64 {
        if let Self::Minkowski(p) = self { p } else { 1.0 }
    }

    /// Returns the terms, in the order in which [`distance`](Self::distance) takes their sums, and the preparation. If `masked`, the last term
    /// is the number of features that both observations have.
    pub(super) fn recipe(self, masked: bool) -> (Vec<Term>, Prepare) {
        use Prepare::{Centre, CentreAndUnit, Nothing, Scale, Shares, Unit};
        use Term::{
            Absolute, Both, Canberra, Count, Divergence, Largest, One, Power, Product, Relative, Root,
            Square, Sum, Unequal, X, XSquare, Y, YSquare,
        };
        let (mut terms, prepare) = match self {
            Self::Euclidean | Self::SqEuclidean => (vec![Square], Nothing),
            Self::CityBlock => (vec![Absolute], Nothing),
            Self::Chebyshev | Self::Minkowski(f64::INFINITY) => (vec![Largest], Nothing),
            Self::Minkowski(1.0) => (vec![Absolute], Nothing),
            Self::Minkowski(2.0) => (vec![Square], Nothing),
            Self::Minkowski(_) => (vec![Power], Nothing),
            Self::Cosine if masked => (vec![Product, XSquare, YSquare], Scale),
            Self::Correlation if masked => (vec![Product, XSquare, YSquare, X, Y], Centre),
            // The distance is half the squared distance between vectors of length 1, so that close observations suffer no cancellation.
            Self::Cosine => (vec![Square], Unit),
            Self::Correlation => (vec![Square], CentreAndUnit),
            Self::InnerProduct => (vec![Product], Nothing),
            Self::Canberra => (vec![Canberra], Nothing),
            Self::BrayCurtis => (vec![Absolute, Sum], Nothing),
            Self::Hamming => (vec![Unequal], Nothing),
            Self::Jaccard | Self::Dice => (vec![One, Both], Nothing),
            Self::RussellRao => (vec![Both], Nothing),
            Self::JensenShannon => (vec![Divergence], Shares),
            Self::Hellinger => (vec![Root], Nothing),
            Self::KlDivergence => (vec![Relative], Nothing),
        };
        if masked {
            terms.push(Count);
        }
        (terms, prepare)
    }

    /// Returns the terms for features that arrive in parts, when observations cannot be prepared in advance.
    pub(super) fn terms_in_parts(self, masked: bool) -> Vec<Term> {
        let (mut terms, _) = self.recipe(true);
        terms.truncate(terms.len() - usize::from(!masked));
        terms
    }

    /// Returns the formula for the sums of the terms. A single term means that observations were prepared.
    #[inline(always)]
    pub(super) const fn formula(self, is_one: bool) -> Formula {
        match self {
            Self::Euclidean => Formula::Root,
            Self::SqEuclidean | Self::CityBlock | Self::Canberra | Self::InnerProduct => Formula::Plain,
            Self::Chebyshev | Self::Minkowski(f64::INFINITY) => Formula::Largest,
            Self::Minkowski(_) => Formula::Power,
            Self::Cosine | Self::Correlation if is_one => Formula::HalfSquare,
            Self::Cosine => Formula::Angle,
            Self::Correlation => Formula::CentredAngle,
            Self::BrayCurtis => Formula::Ratio,
            Self::Hamming => Formula::Share,
            Self::Jaccard => Formula::ShareOfAny,
            Self::Dice => Formula::RatioOfBoth,
            Self::RussellRao => Formula::ShareOfNone,
            Self::KlDivergence => Formula::Half,
            Self::JensenShannon => Formula::RootOfHalf,
            Self::Hellinger => Formula::RootOfRest,
        }
    }

    /// True if the distance is a function of the first sum, rescaled or not, regardless of missing elements.
    pub(super) const fn is_of_sum(self) -> bool {
        matches!(self.formula(false), Formula::Plain | Formula::Root | Formula::Largest | Formula::Power)
    }

    /// Returns the distance from the sums of the terms. `noise` is the share of the terms that rounding may leave when they cancel.
    #[inline(always)]
    pub(super) fn distance(self, sums: &[f64], features: f64, missing: Missing, noise: f64) -> f64 {
        let formula = self.formula(sums.len() == 1);
        Finished { formula, power: self.power(), features, missing, noise }.distance(sums)
    }
}

/// The inputs for computing distances from the sums of pairs.
pub(super) struct Finish<'a> {
    pub(super) metric: Metric,
    pub(super) missing: Missing,
    pub(super) features: u64,
    pub(super) undefined: [&'a [bool]; 2],
    pub(super) is_self: bool,
    pub(super) wide: bool,
}

impl Finish<'_> {
    /// Computes the distances from an observation of x to the observations of y from `first` on, from the sums of each term.
    pub(super) fn row(
        &self,
        row: usize,
        first: usize,
        mut sums: Vec<impl Iterator<Item = f64>>,
        out: &mut [f64],
    ) {
        let [x, y] = self.undefined;
        if x[row] {
            return out.fill(f64::NAN);
        }
        let (features, noise) = (self.features as f64, if self.wide { NOISE_WIDE } else { NOISE });
        if let ([sums], Missing::Propagate) = (&mut sums[..], self.missing) {
            // Matching on the metric outside the loop lets the compiler vectorize the loop.
            macro_rules! choose {
                ($($metric:ident)*) => {
                    match self.metric {
                        $(Metric::$metric => {
                            for (out, sum) in out.iter_mut().zip(sums) {
                                *out = Metric::$metric.distance(&[sum], features, Missing::Propagate, noise);
                            }
                        })*
                        metric => {
                            for (out, sum) in out.iter_mut().zip(sums) {
                                *out = metric.distance(&[sum], features, Missing::Propagate, noise);
                            }
                        }
                    }
                };
            }
            choose! { Euclidean SqEuclidean CityBlock Chebyshev Cosine Correlation InnerProduct }
        } else {
            let mut values = vec![0.0; sums.len()];
            for out in &mut *out {
                let next = values.iter_mut().zip(&mut sums);
                next.for_each(|(value, sums)| *value = sums.next().unwrap_or(f64::NAN));
                *out = self.metric.distance(&values, features, self.missing, noise);
            }
        }
        let undefined = out.iter_mut().zip(&y[first..]).filter(|(_, undefined)| **undefined);
        undefined.for_each(|(out, _)| *out = f64::NAN);
        if self.is_self
            && self.metric.is_zero_on_diagonal()
            && let Some(own) = row.checked_sub(first).and_then(|own| out.get_mut(own))
            && !own.is_nan()
        {
            *own = 0.0;
        }
    }
}

crate::stable_text! {
    enum Metric {
        Euclidean, SqEuclidean, CityBlock, Chebyshev, Minkowski(p), Cosine, Correlation, InnerProduct,
        Canberra, BrayCurtis, Hamming, Jaccard, Dice, RussellRao, JensenShannon, Hellinger, KlDivergence,
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Parses the name, or one of the aliases `manhattan`, `l1`, `l2` and `inner-product`. Minkowski has exponent 2, as in scipy.
impl FromStr for Metric {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let named = Self::ALL.iter().copied().find(|metric| metric.name() == name);
        let alias = || ALIASES.iter().find(|(alias, _)| *alias == name).map(|(_, metric)| *metric);
        named.or_else(alias).ok_or_else(|| {
            let names = Self::names().collect::<Vec<_>>().join(", ");
            Error::argument("distance", "metric", format_args!("`{name}`; there are {names}"))
        })
    }
}
