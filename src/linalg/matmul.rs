//! Matrix products in f32, or in f64 for types that f32 does not hold.

use super::rows::Rows;
use crate::{
    DType, Element, Error, Limits, Real, Result, Tensor,
    driver::GemmCall,
    extent::{blocks, to_usize},
    kernel::{Grid, small},
    kernels::matmul::{LARGE_TILE, LARGE_TILE_MEMORY, MATMUL, MATMUL_F64, Params, TILE, spec},
};

/// The choice of operands that are stored transposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// a is (m, k), and b is (k, n).
    Nn,
    /// a is (k, m), and b is (k, n).
    Tn,
    /// a is (m, k), and b is (n, k).
    Nt,
}

/// The type of a product of such elements: f64 if one of the two types is f64, `u32` or `i32`, and otherwise f32.
pub type ProductOf<A, B> = <<A as Element>::Real as Real>::With<<B as Element>::Real>;

/// Returns the product `a b`.
///
/// # Shapes
/// `a`: (m, k), `b`: (k, n), of any element types; the result is (m, n) of [`ProductOf`] these types. An empty `k` gives zeros.
///
/// # Accuracy
/// Elements are converted to f32 or f64 exactly. Products and sums are of the same type: |error| <= k eps |a| |b| elementwise, with eps =
/// 2^-23, or 2^-52 in f64.
///
/// # Cost
/// 2 m n k operations. Enqueues and does not wait. A matrix that is larger than a binding takes several launches. In f64, an operand of
/// another type is copied. Call [`Tensor::to_f32`] first to compute in f32.
///
/// # Errors
/// [`Error::Shape`] when the inner extents differ, [`Error::WrongDevice`], [`Error::Limit`] when one row does not fit
/// a binding, [`Error::OutOfMemory`]. In f64, [`Error::NoF64`] on a device that does not [compute in it](Limits::f64).
///
/// ```
/// use teatime::{Device, Tensor, linalg};
/// let device = Device::best()?;
/// let a = Tensor::from_slice(&device, &[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
/// let b = Tensor::from_slice(&device, &[1i8, 0, -1], &[1, 3])?;
/// let column = Tensor::from_slice(&device, &[10.0f32, 20.0], &[2, 1])?;
/// assert_eq!(linalg::matmul(&column, &b)?.read()?, [10.0, 0.0, -10.0, 20.0, 0.0, -20.0]);
/// assert_eq!(linalg::matmul_tn(&a, &column)?.read()?, [70.0, 100.0]);
///
/// let cpu = Device::cpu();
/// let a = Tensor::from_slice(&cpu, &[1.0 + 1e-10, -1.0], &[1, 2])?;
/// let ones = Tensor::from_slice(&cpu, &[1u8, 1], &[2, 1])?;
/// let sum: Vec<f64> = linalg::matmul(&a, &ones)?.read()?;
/// assert!((sum[0] - 1e-10).abs() < 1e-15);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn matmul<A: Element, B: Element>(a: &Tensor<A>, b: &Tensor<B>) -> Result<Tensor<ProductOf<A, B>>> {
    product("matmul", Op::Nn, a, b)
}

/// Returns the product `aᵀ b`. Nothing is transposed in memory.
///
/// # Shapes
/// `a`: (k, m), `b`: (k, n) -> (m, n). Otherwise as [`matmul`].
///
/// # Errors
/// As [`matmul`].
pub fn matmul_tn<A: Element, B: Element>(a: &Tensor<A>, b: &Tensor<B>) -> Result<Tensor<ProductOf<A, B>>> {
    product("matmul_tn", Op::Tn, a, b)
}

/// Returns the product `a bᵀ`. Nothing is transposed in memory.
///
/// # Shapes
/// `a`: (m, k), `b`: (n, k) -> (m, n). Otherwise as [`matmul`].
///
/// # Errors
/// As [`matmul`].
pub fn matmul_nt<A: Element, B: Element>(a: &Tensor<A>, b: &Tensor<B>) -> Result<Tensor<ProductOf<A, B>>> {
    product("matmul_nt", Op::Nt, a, b)
}

/// Returns the lower triangle of `xᵀ x`; elements above the diagonal are unspecified. Otherwise as [`matmul`].
///
/// # Shapes
/// `x`: (k, n) of f32 or f64 -> (n, n).
///
/// # Cost
/// About k n² operations, half of those of [`matmul_tn`].
///
/// # Errors
/// As [`matmul`].
pub fn gram_lower<R: Real>(x: &Tensor<R>) -> Result<Tensor<R>> {
    x.device().computes::<R>("gram")?;
    let n = x.matrix("gram")?[1];
    let mut out = Tensor::empty(x.device(), &[n, n])?;
    Product { lower: true, ..Product::of_tensors("gram", Op::Tn, x, x)? }.run(&mut out)?;
    Ok(out)
}

fn product<A: Element, B: Element>(
    name: &'static str,
    op: Op,
    a: &Tensor<A>,
    b: &Tensor<B>,
) -> Result<Tensor<ProductOf<A, B>>> {
    let [rows, cols] = [a.matrix(name)?, b.matrix(name)?];
    let [m, n] = [rows[usize::from(op == Op::Tn)], cols[usize::from(op != Op::Nt)]];
    a.device().has(name, "b", b.device())?;
    let mut out = Tensor::empty(a.device(), &[m, n])?;
    if A::DTYPE.is_wide() || B::DTYPE.is_wide() {
        a.device().computes_f64(name)?;
        Product::of_tensors(name, op, &*a.in_f64()?, &*b.in_f64()?)?.run(&mut out)?;
    } else {
        Product::of_tensors(name, op, a, b)?.run(&mut out)?;
    }
    Ok(out)
}

/// The product `c (+)= op(a) op(b)`, whose operands are rows of tensors.
pub(crate) struct Product<'a, A: Element, B: Element> {
    pub(crate) name: &'static str,
    pub(crate) op: Op,
    pub(crate) a: Rows<'a, A>,
    pub(crate) b: Rows<'a, B>,
    /// True if only the lower triangle is wanted.
    pub(crate) lower: bool,
    /// True if the product is added to c.
    pub(crate) accumulate: bool,
    /// The maximum number of terms of one sum; such sums are added up. In f32, adding one small number repeatedly loses up to depth / 3
    /// units of rounding, always in the same direction. This happens in products of constant columns.
    pub(crate) depth: u64,
    /// True if a vendor's library may round f32 to TF32's 10 bits of mantissa.
    pub(crate) tf32: bool,
}

/// Returns the number of elements of a row of c.
fn row_len<R: Real>(c: &Tensor<R>) -> u64 {
    c.shape().last().copied().unwrap_or_default()
}

/// The maximum number of rows, columns and terms of one launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Panel {
    m: u64,
    n: u64,
    k: u64,
}

impl Panel {
    /// Returns the panel with fewer rows, or also fewer columns, in whole tiles, so that it has at most `work` terms. It has at least one tile.
    /// Sums keep their terms, since results depend on these.
    fn within(self, work: u64, tile: u64) -> Self {
        let most = |extent: u64, across: u64| {
            let fits = work / (across * self.k);
            if extent <= fits { extent } else { extent.min((fits / tile).max(1) * tile) }
        };
        let n = most(self.n, tile);
        Self { m: most(self.m, n), n, ..self }
    }

    /// Returns the panels of a product of these extents, and the first row, column and term of each. Terms come in order.
    fn panels(self, [m, n, k]: [u64; 3]) -> impl Iterator<Item = ([u64; 3], Self)> {
        let starts = |extent: u64, step: u64| (0..extent).step_by(to_usize(step));
        let rows = starts(m, self.m).flat_map(move |m0| starts(n, self.n).map(move |n0| [m0, n0]));
        rows.flat_map(move |[m0, n0]| starts(k, self.k).map(move |k0| [m0, n0, k0])).map(move |first| {
            let [m0, n0, k0] = first;
            (first, Self { m: self.m.min(m - m0), n: self.n.min(n - n0), k: self.k.min(k - k0) })
        })
    }
}

impl<'a, A: Element, B: Element> Product<'a, A, B> {
    /// Creates a product of rows of tensors: all of it, in f32 or f64 throughout, in sums of any number of terms, and not added to c.
    pub(crate) const fn new(name: &'static str, op: Op, a: Rows<'a, A>, b: Rows<'a, B>) -> Self {
        Self { name, op, a, b, lower: false, accumulate: false, depth: u64::MAX, tf32: false }
    }

    /// Creates a product of whole tensors, as [`new`](Self::new).
    pub(crate) fn of_tensors(name: &'static str, op: Op, a: &'a Tensor<A>, b: &'a Tensor<B>) -> Result<Self> {
        Ok(Self::new(name, op, Rows::from_tensor(name, a)?, Rows::from_tensor(name, b)?))
    }

    fn of_f32() -> bool {
        A::DTYPE == DType::F32 && B::DTYPE == DType::F32
    }

    /// Writes the product to `c`, a tensor of the right shape. It is split into panels that fit the device's bindings and grid.
    pub(crate) fn run<R: Real>(&self, c: &mut Tensor<R>) -> Result<()> {
        let [a_rows, a_cols] = [self.a.count, self.a.cols()];
        let [b_rows, b_cols] = [self.b.count, self.b.cols()];
        let [m, k] = if self.op == Op::Tn { [a_cols, a_rows] } else { [a_rows, a_cols] };
        let [kb, n] = if self.op == Op::Nt { [b_cols, b_rows] } else { [b_rows, b_cols] };
        if k != kb {
            let got = format!("({a_rows}, {a_cols}) and ({b_rows}, {b_cols})");
            return Err(Error::shape(self.name, "equal inner extents", got));
        }
        if m == 0 || n == 0 {
            return Ok(());
        }
        // For a triangle, this crate's own kernel has half as much work, but it does not use the tensor cores for f64.
        if (!self.lower || R::DTYPE == DType::F64)
            && k > 0
            && let Some(result) = self.vendor([m, n, k], c)
        {
            return result;
        }
        let limits = self.a.tensor.device().limits();
        let [rows, columns] = [m, n].map(|extent| extent / u64::from(LARGE_TILE));
        let large = Self::of_f32() && limits.is_filled_by_large(rows * columns);
        let tile = match large && limits.workgroup_memory >= LARGE_TILE_MEMORY {
            true => LARGE_TILE,
            false => TILE,
        };
        self.run_in_tiles(tile, [m, n, k], c)
    }

    /// Computes the product with this crate's own kernel, in tiles of a given size.
    pub(crate) fn run_in_tiles<R: Real>(
        &self,
        tile: u32,
        [m, n, k]: [u64; 3],
        c: &mut Tensor<R>,
    ) -> Result<()> {
        if k == 0 {
            return if self.accumulate { Ok(()) } else { c.device().driver().clear(c.whole()) };
        }
        let panel = self.panel(tile, [m, n, k], R::DTYPE, self.a.tensor.device().limits())?;
        panel.panels([m, n, k]).try_for_each(|(first, extent)| self.launch(tile, first, extent, None, c))
    }

    /// Computes the products `aᵀ b` of parts of the operands: of `depth` rows each, and of the remaining rows. `c` is (parts, m, n) for at
    /// least as many parts, and fits a binding. Such products have few elements, so a single one would leave most of the device idle.
    pub(crate) fn run_parts<R: Real>(&self, c: &mut Tensor<R>) -> Result<()> {
        let ([k, m], n, depth) = ([self.a.count, self.a.cols()], self.b.cols(), self.depth);
        if m == 0 || n == 0 {
            return Ok(());
        }
        let limits = self.a.tensor.device().limits();
        let rows =
            (limits.room() / (m * A::DTYPE.size()).max(n * B::DTYPE.size())).min(limits.work / (m * n));
        let parts = (rows / depth).clamp(1, limits.groups_per_axis.into());
        for rows in blocks(k, parts * depth) {
            let extent = Panel { m, n, k: rows.end - rows.start };
            self.launch(TILE, [0, 0, rows.start], extent, Some(depth), c)?;
        }
        Ok(())
    }

    /// Computes the product with the vendor's library, in sums of at most `depth` terms.
    fn vendor<R: Real>(&self, [m, n, k]: [u64; 3], c: &mut Tensor<R>) -> Option<Result<()>> {
        let device = self.a.tensor.device();
        let panel = Panel { m, n, k: self.depth.min(k) };
        let panel = panel.within(device.limits().work_of(R::DTYPE), TILE.into());
        let calls: Option<Vec<_>> =
            panel.panels([m, n, k]).map(|(first, extent)| self.vendor_call(first, extent, c)).collect();
        for (i, call) in calls?.iter().enumerate() {
            if let Err(cancelled) = device.check() {
                return Some(Err(cancelled));
            }
            let span = device.launch_span(GemmCall::NAME);
            match device.driver().gemm(call, device.timeline()) {
                Some(Ok(())) => device.count_launch(),
                // The library has no such product, and would have none for the other parts.
                None if i == 0 => {
                    span.discard();
                    return None;
                }
                None => {
                    let source = format!("part {i} of the product is refused").into();
                    return Some(Err(Error::Driver { backend: "gemm", source }));
                }
                failed => return failed,
            }
        }
        Some(Ok(()))
    }

    /// Returns a panel of the product, given its first row, column and term.
    fn vendor_call<'c, R: Real>(
        &'c self,
        [m0, n0, k0]: [u64; 3],
        panel: Panel,
        c: &'c Tensor<R>,
    ) -> Option<GemmCall<'c>> {
        let small = |extent: u64| u32::try_from(extent).ok();
        // The number of elements of each operand before the panel.
        let (a_cols, b_cols, ldc) = (self.a.cols(), self.b.cols(), row_len(c));
        let a_start = if self.op == Op::Tn { k0 * a_cols + m0 } else { m0 * a_cols + k0 };
        let b_start = if self.op == Op::Nt { n0 * b_cols + k0 } else { k0 * b_cols + n0 };
        let [c_start, c_end] = [m0 * ldc + n0, (m0 + panel.m - 1) * ldc + n0 + panel.n];
        let c_bytes = R::DTYPE.size() * (c_end - c_start);
        Some(GemmCall {
            m: small(panel.m)?,
            n: small(panel.n)?,
            k: small(panel.k)?,
            a: (A::DTYPE, self.a.bytes_from(a_start)?, small(a_cols)?),
            b: (B::DTYPE, self.b.bytes_from(b_start)?, small(b_cols)?),
            c: (c.slice(R::DTYPE.size() * c_start, c_bytes), small(ldc)?),
            transpose: [self.op == Op::Tn, self.op == Op::Nt],
            accumulate: self.accumulate || k0 > 0,
            tf32: self.tf32,
        })
    }

    fn panel(&self, tile: u32, [m, n, k]: [u64; 3], real: DType, limits: &Limits) -> Result<Panel> {
        let rows = |width: u64, size: u64| {
            let row = (width * size).max(1);
            let max = limits.room();
            let rows = max / row;
            if rows == 0 {
                return Err(Error::Limit { what: "bytes in one row of a matrix", requested: row, max });
            }
            Ok(rows.min(u64::from(u32::MAX) / width.max(1)))
        };
        let a_rows = rows(self.a.cols(), A::DTYPE.size())?;
        let b_rows = rows(self.b.cols(), B::DTYPE.size())?;
        let c_rows = rows(n, real.size())?;
        let axis = u64::from(limits.groups_per_axis).saturating_mul(tile.into());
        // The shader takes fewer than 2 iterations per term.
        let deepest = u64::from(limits.iterations / 2) & !63;
        let (mut panel_m, mut panel_n) = (c_rows.min(axis), n.min(axis));
        let keeps_depth = real == DType::F32 && u64::from(limits.terms) <= self.depth;
        let mut panel_k = k.min(if keeps_depth { u64::MAX } else { self.depth }).min(deepest);
        match self.op {
            Op::Nn => (panel_m, panel_k) = (panel_m.min(a_rows), panel_k.min(b_rows)),
            Op::Tn => panel_k = panel_k.min(a_rows).min(b_rows),
            Op::Nt => (panel_m, panel_n) = (panel_m.min(a_rows), panel_n.min(b_rows)),
        }
        let panel = Panel { m: panel_m.min(m), n: panel_n, k: panel_k };
        Ok(panel.within(limits.work_of(real), tile.into()))
    }

    /// Computes a panel of the product, or with `part` a product for each `part` terms.
    fn launch<R: Real>(
        &self,
        tile: u32,
        [m0, n0, k0]: [u64; 3],
        panel: Panel,
        part: Option<u64>,
        c: &mut Tensor<R>,
    ) -> Result<()> {
        let ldc = row_len(c);
        // The rows of the stored operand that the panel reads, and the first column that it reads of these rows.
        let (a_rows, a_col) = if self.op == Op::Tn { (k0..k0 + panel.k, m0) } else { (m0..m0 + panel.m, k0) };
        let (b_rows, b_col) = if self.op == Op::Nt { (n0..n0 + panel.n, k0) } else { (k0..k0 + panel.k, n0) };
        let (a, b) = (self.a.window(a_rows), self.b.window(b_rows));
        let parts = part.map_or(1, |part| panel.k.div_ceil(part));
        let first = part.map_or(m0, |part| k0 / part * panel.m);
        let c = c.window_update(first * ldc..(first + parts * panel.m) * ldc);
        let params = Params {
            m: small(panel.m),
            n: small(panel.n),
            k: small(panel.k),
            depth: part.map_or(u32::MAX, small),
            lda: small(self.a.cols()),
            ldb: small(self.b.cols()),
            ldc: small(ldc),
            a0: a.start + small(a_col),
            b0: b.start + small(b_col),
            c0: c.start + small(n0),
            c_step: small(panel.m * ldc),
            accumulate: u32::from(self.accumulate || (k0 > 0 && part.is_none())),
            lower: u32::from(self.lower),
            row0: small(m0),
            col0: small(n0),
            a_type: A::DTYPE.code(),
            b_type: B::DTYPE.code(),
        };
        let groups = [params.n.div_ceil(tile), params.m.div_ceil(tile), small(parts)];
        let grid = Grid { groups, work: 2 * panel.m * panel.n * panel.k };
        let spec = spec(tile, [self.op == Op::Tn, self.op == Op::Nt], !Self::of_f32());
        let kernel = if R::DTYPE == DType::F64 { &MATMUL_F64 } else { &MATMUL };
        self.a.tensor.device().launch(kernel, &spec, grid, &[a.arg, b.arg, c.arg], &params)
    }
}
