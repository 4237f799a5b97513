//! The block Krylov iteration of a matrix known only through products, which takes one product at a time.

use super::{
    checkpoint::Saved,
    kept::Kept,
    krylov::{Krylov, random},
    map::{LinearMap, Pass},
    matrix::Matrix,
    right_svd::{OP, RightSvd, SvdOptions},
    sign::SignRule,
    svd_plan::{Found, Products, ROUNDING, SvdPlan, one_thread},
    transpose::transpose,
};
use crate::{Error, Needs, Result, Run, Status, Tensor, extent::to_usize};

/// The iteration of [`randomized_svd`](super::randomized_svd) for a matrix A whose products the caller computes, for example on other
/// machines.
///
/// [`next_input`](Self::next_input) returns the X that is to be multiplied, and [`give`](Self::give) takes `Aᵀ (A X)`, until no more products
/// are needed. Products are taken to be as precise as sums in f32, and one thread does the small algebra between two products.
///
/// ```
/// use teatime::{Run, linalg::{Matrix, SvdOptions, SvdSteps}};
/// let mut steps = SvdSteps::new([3, 2], 1, &SvdOptions::default(), &Run::default())?;
/// while let Some(x) = steps.next_input()? {
///     // The matrix is diagonal, with 3 and 4, and has a row of zeros below.
///     let product = (0..x.cols()).map(|j| 9.0 * x[(0, j)]).chain((0..x.cols()).map(|j| 16.0 * x[(1, j)]));
///     steps.give(&Matrix::from_vec(product.collect(), 2, x.cols())?)?;
/// }
/// assert!((steps.components()?.s[0] - 4.0).abs() < 1e-9);
/// # Ok::<(), teatime::Error>(())
/// ```
#[derive(Debug)]
pub struct SvdSteps {
    plan: SvdPlan,
    pub(crate) krylov: Krylov,
    /// The vectors that are multiplied next, as rows; None if the iteration is done.
    block: Option<Tensor<f64>>,
    status: Status,
    /// The number of products that were saved before.
    resumed: u32,
    /// The products with the basis, if all are kept.
    kept: Option<Kept>,
    pub(crate) found: Found,
    /// True after a product that was refused halfway: the basis and the components no longer belong together.
    is_broken: bool,
}

impl SvdSteps {
    /// Starts the iteration for the `k` largest singular values of a matrix (m, n). The basis is planned within the memory of `run`.
    ///
    /// # Cost
    /// The object holds a cpu device of one thread, and in its memory twice as many vectors of n f64 as all products so far have columns.
    /// The iteration restarts when these reach the budget.
    ///
    /// # Errors
    /// [`Error::Argument`] for more components than m or n, options that [`randomized_svd`](super::randomized_svd) refuses, and
    /// [`SignRule::MaxAbsU`], which takes a product with A; [`Error::Budget`] with the least that would do.
    pub fn new(shape: [u64; 2], k: usize, options: &SvdOptions, run: &Run) -> Result<Self> {
        if options.sign == SignRule::MaxAbsU {
            return Err(Error::argument(OP, "sign", "MaxAbsU, which takes a product with the matrix"));
        }
        let (precision, names) = (f32::EPSILON.into(), ["shape", "product"]);
        let (home, needs) = (one_thread()?, Needs::default());
        let products = Products { shape, precision, device: home.clone(), home, needs, saved: false, names };
        Self::start(SvdPlan::new(OP, products, k, options, run)?)
    }

    /// Returns the iteration before its first product. Without components it needs no product.
    pub(super) fn start(plan: SvdPlan) -> Result<Self> {
        let krylov = Krylov::new(plan.op, &plan.home, plan.n, plan.capacity);
        let first = || krylov.first(&random(&plan.home, [plan.l, plan.n], plan.seed)?);
        let block = (plan.k > 0).then(first).transpose()?;
        let status = Status::new(0, plan.passes, plan.m);
        let kept = plan.kept.map(|room| Kept::new(to_usize(plan.m), room));
        Ok(Self { plan, krylov, block, status, resumed: 0, kept, found: Found::default(), is_broken: false })
    }

    /// Returns a copy of the X (n, columns) that is multiplied next, or `None` if no more products are needed.
    ///
    /// # Errors
    /// [`Error::Argument`] after a product that ended the iteration; [`Error::OutOfHostMemory`].
    pub fn next_input(&self) -> Result<Option<Matrix>> {
        self.check()?;
        self.block.as_ref().map(|block| Matrix::from_tensor(&transpose(block)?)).transpose()
    }

    /// Returns true if the components are found and no more products are needed.
    pub fn is_done(&self) -> bool {
        self.block.is_none() && !self.is_broken
    }

    /// Takes the product `Aᵀ (A X)` (n, columns) of the [`next_input`](Self::next_input).
    ///
    /// # Errors
    /// [`Error::Shape`] for a product of another shape, after which the right product is still taken; [`Error::Argument`] if none is needed, and
    /// for NaN and infinity; [`Error::OutOfHostMemory`]. After NaN, infinity or a lack of memory, the iteration cannot continue.
    pub fn give(&mut self, product: &Matrix) -> Result<()> {
        self.check()?;
        let Some(block) = self.block.take() else {
            return Err(Error::argument(OP, "product", "the iteration is done, and wants none"));
        };
        let (wanted, got) =
            ([block.shape()[1], block.shape()[0]], [product.rows() as u64, product.cols() as u64]);
        if got != wanted {
            self.block = Some(block);
            return Err(Error::shape(OP, format_args!("a product of {wanted:?}"), format_args!("{got:?}")));
        }
        self.is_broken = true;
        self.push(block, transpose(&product.to_real(&self.plan.home)?)?)?;
        self.is_broken = false;
        Ok(())
    }

    /// Fails with [`Error::Argument`] after a product that ended the iteration.
    fn check(&self) -> Result<()> {
        if self.is_broken {
            let why = "a product could not be taken, which ended the iteration";
            return Err(Error::argument(self.plan.op, "self", why));
        }
        Ok(())
    }

    /// Returns the number of products that were given.
    pub fn given(&self) -> u32 {
        self.status.pass
    }

    /// Computes the components from the products so far. There are none before the first product.
    ///
    /// # Errors
    /// [`Error::Argument`] after a product that ended the iteration; [`Error::OutOfHostMemory`].
    pub fn components(&self) -> Result<RightSvd> {
        self.check()?;
        let mut svd = self.unsigned()?;
        svd.v.negate_columns(&self.plan.sign.negative(&svd.v));
        Ok(svd)
    }

    /// Returns the [`components`](Self::components) with the signs that the iteration leaves.
    pub(super) fn unsigned(&self) -> Result<RightSvd> {
        if self.status.pass == 0 {
            return Ok(RightSvd::empty(self.plan.n));
        }
        let v = Matrix::from_tensor(&self.krylov.vectors(&self.found.ritz)?)?.transposed();
        let Found { s, residuals, converged, .. } = self.found.clone();
        let (passes, found) = (self.status.pass, self.resumed);
        Ok(RightSvd { s, v, residuals, converged, passes, found, image: None })
    }

    /// Returns the product of the matrix with the components' vectors, if products with the whole basis were kept.
    pub(super) fn image(&self) -> Result<Option<Matrix>> {
        self.kept.as_ref().map(|kept| kept.times(self.found.ritz.y.as_ref(), &self.plan.home)).transpose()
    }

    /// Takes the products that were saved, and those that `map` makes, until no more products are needed.
    pub(super) fn run(&mut self, map: &dyn LinearMap, saved: Option<&Saved<'_>>, run: &Run) -> Result<()> {
        while let Some(block) = self.block.take() {
            run.cancel.check()?;
            let image = self.product(map, &block, saved, run)?;
            self.push(block, image)?;
        }
        Ok(())
    }

    /// Returns the product with a block, which was saved, or which `map` makes.
    fn product(
        &mut self,
        map: &dyn LinearMap,
        block: &Tensor<f64>,
        saved: Option<&Saved<'_>>,
        run: &Run,
    ) -> Result<Tensor<f64>> {
        let number = self.status.pass;
        if let Some(saved) = saved
            && let Some(image) = saved.find(number, block)?
        {
            if let Some(mut kept) = self.kept.take()
                && let Some(values) = saved.find_kept(number, block, self.plan.m)?
                && kept.add(to_usize(block.shape()[0]), values)
            {
                self.kept = Some(kept);
            }
            self.resumed += 1;
            return Ok(image);
        }
        let pass = Pass::new(run, self.status);
        let kept = self.kept.as_mut().map(|kept| kept.multiply(map, block, &pass)).transpose()?.flatten();
        let image = match kept {
            Some(image) => image,
            None => {
                self.kept = None;
                map.apply_normal_rows(block, &pass)?
            }
        };
        if let Some(saved) = saved {
            saved.put(number, block, &image, self.kept.as_ref().and_then(Kept::last))?;
        }
        Ok(image)
    }

    /// Adds a block and its image, and makes the next block.
    fn push(&mut self, block: Tensor<f64>, image: Tensor<f64>) -> Result<()> {
        let plan = &self.plan;
        if image.shape() != block.shape() {
            let (wanted, got) = (format!("products of {:?}", block.shape()), format!("{:?}", image.shape()));
            return Err(Error::shape(plan.op, wanted, got));
        }
        let cols = self.krylov.cols() + to_usize(block.shape()[0]);
        self.krylov.push(block, image, plan.k + plan.l)?;
        if self.krylov.cols() < cols {
            // The basis restarted. Products with its old vectors would have to be rounded once more for each restart.
            self.kept = None;
        }
        plan.check(self.krylov.not_finite()?)?;
        self.status.pass += 1;
        self.found = plan.find(&self.krylov)?;
        self.status.residual = Some(self.found.worst());
        let done = plan.early && self.found.converged.iter().all(|&converged| converged);
        if !done && self.status.pass < plan.passes {
            let next = self.krylov.next(ROUNDING * plan.precision * self.found.ritz.theta[0])?;
            // AᵀA maps the basis to itself if nothing is new, as far as products can tell.
            self.block = Some(next).filter(|next| !next.is_empty());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::{RowSink, Stop, randomized_svd};

    /// A diagonal matrix.
    struct Diagonal([f64; 5]);

    impl Diagonal {
        fn product(&self, x: &Matrix) -> Matrix {
            let mut product = x.clone();
            for (row, d) in product.data_mut().chunks_exact_mut(x.cols().max(1)).zip(self.0) {
                row.iter_mut().for_each(|value| *value *= d * d);
            }
            product
        }
    }

    impl LinearMap for Diagonal {
        fn shape(&self) -> [u64; 2] {
            [5, 5]
        }

        fn apply_normal(&self, x: &Matrix, _: &Pass<'_>) -> Result<Matrix> {
            Ok(self.product(x))
        }

        fn apply(&self, _: &Matrix, _: &Pass<'_>, _: &mut RowSink<'_>) -> Result<()> {
            unreachable!("no rule that is tested takes a product with A")
        }
    }

    fn start(k: usize, options: &SvdOptions) -> SvdSteps {
        SvdSteps::new([5, 5], k, options, &Run::default()).unwrap()
    }

    #[test]
    fn steps_find_what_the_whole_iteration_finds() {
        let a = Diagonal([2.0, 5.0, 1.0, 4.0, 3.0]);
        let counted = SvdOptions::default().stop(Stop::PowerIterations(1)).oversamples(0);
        for options in [SvdOptions::default(), counted, counted.sign(SignRule::DaskSum).seed(3)] {
            for k in [0, 1, 2, 5] {
                let mut steps = start(k, &options);
                while let Some(x) = steps.next_input().unwrap() {
                    steps.give(&a.product(&x)).unwrap();
                }
                let whole = randomized_svd(&a, k, &options, &Run::default()).unwrap();
                assert_eq!(steps.components().unwrap(), whole, "{k} by {options:?}");
                assert_eq!(steps.given(), whole.passes);
            }
        }
    }

    #[test]
    fn what_cannot_be_taken_is_refused() {
        let a = Diagonal([2.0, 5.0, 1.0, 4.0, 3.0]);
        let mut steps = start(1, &SvdOptions::default().oversamples(0));
        let other = crate::assert_err!(steps.give(&Matrix::zeros(5, 3)), Error::Shape { .. });
        assert!(other.to_string().contains("a product of [5, 1]"), "{other}");
        assert!(!steps.is_done() && steps.components().unwrap().s.is_empty());
        // The right product is still taken; one that holds NaN ends the iteration.
        let x = steps.next_input().unwrap().unwrap();
        steps.give(&a.product(&x)).unwrap();
        let mut product = steps.next_input().unwrap().unwrap();
        product.data_mut()[2] = f64::NAN;
        let error = steps.give(&product).unwrap_err().to_string();
        assert!(error.contains("`product`: 1 of the 5 products are NaN or infinite"), "{error}");
        for ended in [steps.next_input().err(), steps.components().err(), steps.give(&x).err()] {
            assert!(ended.unwrap().to_string().contains("ended the iteration"));
        }
        assert!(!steps.is_done());
        let done = start(0, &SvdOptions::default()).give(&Matrix::zeros(5, 1)).unwrap_err();
        assert!(done.to_string().contains("`product`: the iteration is done"), "{done}");
        let options = SvdOptions::default().sign(SignRule::MaxAbsU);
        let signs = SvdSteps::new([5, 5], 1, &options, &Run::default()).unwrap_err();
        assert!(signs.to_string().contains("`sign`: MaxAbsU"), "{signs}");
    }
}
