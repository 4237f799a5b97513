//! Metrics: the terms that are added up over features, and the formula that makes a distance of their sums.

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
    stable_text::StableText,
};

/// A measure of how far two observations are from each other, or how alike. The [table](crate::distance#metrics) says what each is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[allow(missing_docs, reason = "the table of the module says what each is")]
#[non_exhaustive]
pub enum Metric {
    #[default]
    Euclidean,
    SqEuclidean,
    CityBlock,
    Chebyshev,
    /// With its exponent, above 0.
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
    /// They are multiplied by powers of two, where squares would leave f32 or f64.
    Scale,
    /// Their means are subtracted, and they are multiplied by such powers.
    Centre,
    /// They are divided by their lengths.
    Unit,
    /// Their means are subtracted, and they are divided by their lengths.
    CentreAndUnit,
    /// They are divided by their sums.
    Shares,
}

/// Powers of two that keep terms within f32 or f64, where they would not be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scaling {
    /// Nothing.
    None,
    /// One power of two for all observations. Sums of f32 stay within it, and lose nothing, of elements whose largest is between 2 to these
    /// powers.
    Common([f64; 2]),
    /// A power of two for each observation: the distance is the same for any.
    Each,
}

/// Other names of metrics, which scikit-learn and cuVS have.
const ALIASES: [(&str, Metric); 4] = [
    ("manhattan", Metric::CityBlock),
    ("l1", Metric::CityBlock),
    ("l2", Metric::Euclidean),
    ("inner-product", Metric::InnerProduct),
];

impl Metric {
    /// Every metric, Minkowski's with the exponent 2.
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

    /// Its name: scipy's where scipy has it, else cuVS's.
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

    /// True where the distance from a to b is that from b to a.
    pub const fn is_symmetric(self) -> bool {
        !matches!(self, Self::KlDivergence)
    }

    /// True where an observation is at distance 0 from itself.
    pub const fn is_zero_on_diagonal(self) -> bool {
        !matches!(self, Self::InnerProduct | Self::RussellRao | Self::Hellinger)
    }

    /// True where elements have to be 0 or more.
    pub(super) const fn needs_nonnegative(self) -> bool {
        matches!(self, Self::JensenShannon | Self::Hellinger | Self::KlDivergence)
    }

    /// The powers of two that elements are multiplied by; sums are of f64 if `wide`.
    pub(super) fn scaling(self, wide: bool) -> Scaling {
        // Sums of squares are up to 2^126 where elements are up to 2^50, of 2^24 features; differences are 2^-24 of elements or more.
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

    /// Every name that [`from_str`](Self::from_str) knows.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::ALL.iter().map(|metric| metric.name()).chain(ALIASES.map(|(name, _)| name))
    }

    /// Minkowski's with another exponent: of an infinite one it is [`Chebyshev`](Self::Chebyshev). None of another metric.
    pub fn with_exponent(self, p: f64) -> Option<Self> {
        match self {
            Self::Minkowski(_) if p == f64::INFINITY => Some(Self::Chebyshev),
            Self::Minkowski(_) => Some(Self::Minkowski(p)),
            _ => None,
        }
    }

    /// Checks that there are such distances.
    ///
    /// # Errors
    /// [`Error::Argument`] for an exponent that is neither infinite nor a normal f32 above 0, and for a rule for missing elements that the
    /// metric does not know.
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

    /// The exponent of [`Term::Power`].
    pub(super) const fn power(self) -> f64 {
        if let Self::Minkowski(p) = self { p } else { 1.0 }
    }

    /// The terms, of which [`distance`](Self::distance) gets the sums in this order, and what comes before. Where elements
    /// may be missing, the number of features that both have comes last.
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
            // The distance is half the squared distance of vectors of length 1: nothing cancels between close ones.
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

    /// The terms where not all features are there at once, so that nothing is known of observations before.
    pub(super) fn terms_in_parts(self, masked: bool) -> Vec<Term> {
        let (mut terms, _) = self.recipe(true);
        terms.truncate(terms.len() - usize::from(!masked));
        terms
    }

    /// The formula for the sums of the terms; for one term alone, observations were prepared.
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

    /// True where the distance is a function of the first sum, or of that sum rescaled, whatever elements are missing.
    pub(super) const fn is_of_sum(self) -> bool {
        matches!(self.formula(false), Formula::Plain | Formula::Root | Formula::Largest | Formula::Power)
    }

    /// The distance, of the sums of the terms over `features`, of which rounding may leave the share `noise` where terms cancel.
    #[inline(always)]
    pub(super) fn distance(self, sums: &[f64], features: f64, missing: Missing, noise: f64) -> f64 {
        let formula = self.formula(sums.len() == 1);
        Finished { formula, power: self.power(), features, missing, noise }.distance(sums)
    }
}

/// All that it takes to make distances of the sums of pairs.
pub(super) struct Finish<'a> {
    pub(super) metric: Metric,
    pub(super) missing: Missing,
    pub(super) features: u64,
    /// For each observation of x, and of y, whether no distance from it is a number.
    pub(super) undefined: [&'a [bool]; 2],
    /// True where the observations are taken with themselves.
    pub(super) is_self: bool,
    /// True where sums are of f64.
    pub(super) wide: bool,
}

impl Finish<'_> {
    /// The distances of an observation of x from those of y from `first` on, of the sums of each term.
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
            // The choice of a metric outside of the loop leaves a loop over vectors.
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
                values
                    .iter_mut()
                    .zip(&mut sums)
                    .for_each(|(value, sums)| *value = sums.next().unwrap_or(f64::NAN));
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

impl StableText for Metric {
    fn stable_text(&self) -> String {
        match self {
            Self::Euclidean => "Euclidean".into(),
            Self::SqEuclidean => "SqEuclidean".into(),
            Self::CityBlock => "CityBlock".into(),
            Self::Chebyshev => "Chebyshev".into(),
            Self::Minkowski(p) => format!("Minkowski({})", p.stable_text()),
            Self::Cosine => "Cosine".into(),
            Self::Correlation => "Correlation".into(),
            Self::InnerProduct => "InnerProduct".into(),
            Self::Canberra => "Canberra".into(),
            Self::BrayCurtis => "BrayCurtis".into(),
            Self::Hamming => "Hamming".into(),
            Self::Jaccard => "Jaccard".into(),
            Self::Dice => "Dice".into(),
            Self::RussellRao => "RussellRao".into(),
            Self::JensenShannon => "JensenShannon".into(),
            Self::Hellinger => "Hellinger".into(),
            Self::KlDivergence => "KlDivergence".into(),
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// By its name, or by the other names `manhattan`, `l1`, `l2` and `inner-product`; Minkowski's with the exponent 2, as in scipy.
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
