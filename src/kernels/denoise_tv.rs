//! Total variation denoising: steps of Chambolle's projection, and their result.

use std::ops::Range;

use pulp::NullaryFnOnce;
use rayon::prelude::*;

use super::{
    WG,
    cpu::{simd::wide, vectors::SimdFloat},
};
use crate::kernel::{CpuLaunch, Kernel, kernel, params};

params! {
    /// Parameters of the kernel.
    pub(crate) struct Params {
        /// The extents of the image, along z, y and x, of which the last `axes` are denoised; the others are 1.
        pub(crate) nz: u32,
        pub(crate) ny: u32,
        pub(crate) nx: u32,
        pub(crate) axes: u32,
        /// The index of the image's first element, and the number of elements from one to the next along each axis.
        pub(crate) f0: u32,
        pub(crate) fz: u32,
        pub(crate) fy: u32,
        pub(crate) fx: u32,
        /// The part of the image that becomes the result: its start, and its extents along y and x.
        pub(crate) oz: u32,
        pub(crate) oy: u32,
        pub(crate) ox: u32,
        pub(crate) my: u32,
        pub(crate) mx: u32,
        /// The index of the result's first element, and the number of elements from one to the next along each axis.
        pub(crate) q0: u32,
        pub(crate) qz: u32,
        pub(crate) qy: u32,
        pub(crate) qx: u32,
        /// The rows of the launch, of the image or of the result: the first, and their number.
        pub(crate) row0: u32,
        pub(crate) rows: u32,
        /// The number of groups of a row.
        pub(crate) groups: u32,
        /// 1 if energies are written, otherwise 0.
        pub(crate) energies: u32,
        /// The factor of the image's elements in steps, and the factors of its elements and of d in the result: the nearest f32, and
        /// the remainder.
        pub(crate) factor: f32,
        pub(crate) factor_rest: f32,
        pub(crate) scale: f32,
        pub(crate) scale_rest: f32,
        pub(crate) weight: f32,
        pub(crate) weight_rest: f32,
    }
}

pub(crate) static DENOISE_TV: Kernel<Params> =
    kernel!("denoise_tv", Params, [Read, Read, ReadWrite, ReadWrite], denoise_tv, specs);

/// Returns the constants of a program.
pub(crate) const fn spec(result: bool, wide: bool) -> [(&'static str, u32); 3] {
    [("WG", WG), ("RESULT", result as u32), ("WIDE", wide as u32)]
}

fn specs() -> Vec<Vec<(&'static str, u32)>> {
    [[false, false], [true, false], [false, true], [true, true]]
        .map(|[result, wide]| spec(result, wide).into())
        .into()
}

/// Returns the number of groups of a row: those before the column `origin`, which the first group may not fill, and those from it on.
pub(crate) fn groups(nx: u64, origin: u64) -> u64 {
    origin.div_ceil(WG.into()) + (nx - origin).div_ceil(WG.into())
}

fn denoise_tv(launch: CpuLaunch<'_>) {
    if launch.constant("WIDE") != 0 { denoise_in::<f64>(launch) } else { denoise_in::<f32>(launch) }
}

fn denoise_in<R: SimdFloat>(launch: CpuLaunch<'_>) {
    let (params, is_result) = (launch.params::<Params>(), launch.constant("RESULT") != 0);
    let [f, p, q, energies] = launch.args();
    let image = Image::<R> { f: &f.read::<R>()[params.f0 as usize..], p: p.read(), params };
    if is_result { image.result(q.write()) } else { image.step(q.write(), energies.write()) }
}

/// An image, and the fields of an iteration.
struct Image<'a, R> {
    params: Params,
    f: &'a [R],
    p: &'a [R],
}

/// A row of elements, and of divergences.
#[derive(Clone, Default)]
struct Line<R> {
    f: Vec<R>,
    d: Vec<R>,
}

/// The minimum number of elements of a task.
const TASK: usize = 1 << 14;

impl<R: SimdFloat> Image<'_, R> {
    fn nx(&self) -> usize {
        self.params.nx as usize
    }

    /// Returns row `row` of the field of an axis: 0 for x, 1 for y, 2 for z.
    #[inline(always)]
    fn field(&self, axis: usize, row: usize) -> &[R] {
        let (Params { nz, ny, axes, .. }, nx) = (self.params, self.nx());
        let first = (axes as usize - 1 - axis) * nz as usize * ny as usize + row;
        &self.p[first * nx..][..nx]
    }

    fn line(&self) -> Line<R> {
        Line { f: vec![R::default(); self.nx()], d: vec![R::default(); self.nx()] }
    }

    /// Computes a row.
    #[inline(always)]
    fn fill(&self, row: usize, line: &mut Line<R>) {
        let Params { ny, fz, fy, fx, .. } = self.params;
        let (z, y) = (row / ny as usize, row % ny as usize);
        let f = &self.f[z * fz as usize + y * fy as usize..];
        if fx == 1 {
            line.f.copy_from_slice(&f[..self.nx()]);
        } else {
            line.f.iter_mut().zip(f.iter().step_by(fx as usize)).for_each(|(out, &f)| *out = f);
        }
        line.d.fill(R::default());
        if self.params.axes > 2 {
            add_differences(
                &mut line.d,
                (z > 0).then(|| self.field(2, row - ny as usize)),
                self.field(2, row),
            );
        }
        if self.params.axes > 1 {
            add_differences(&mut line.d, (y > 0).then(|| self.field(1, row - 1)), self.field(1, row));
        }
        let x = self.field(0, row);
        line.d[0] += R::default() - x[0];
        for ((d, &x), &before) in line.d[1..].iter_mut().zip(&x[1..]).zip(x) {
            *d += before - x;
        }
    }

    /// Computes the result in the part of `q` that holds it.
    fn result(&self, q: &mut [R]) {
        let p = self.params;
        let [my, mx, qx] = [p.my, p.mx, p.qx].map(|extent| extent as usize);
        let [scale, weight] = [(p.scale, p.scale_rest), (p.weight, p.weight_rest)]
            .map(|(near, rest)| R::nearest(near) + R::nearest(rest));
        let rows = (p.row0 as usize)..(p.row0 + p.rows) as usize;
        let place = |row: usize| p.q0 as usize + row / my * p.qz as usize + row % my * p.qy as usize;
        let from = |row: usize| (row / my + p.oz as usize) * p.ny as usize + row % my + p.oy as usize;
        let put = |row: usize, line: &mut Line<R>, out: &mut [R]| {
            self.fill(from(row), line);
            let values = line.f.iter().zip(&line.d).skip(p.ox as usize);
            let out = out.iter_mut().step_by(qx).take(mx);
            out.zip(values).for_each(|(out, (&f, &d))| *out = scale * f + weight * d);
        };
        // Rows of several interleaved images cannot be divided among threads as slices.
        if qx == 1 && place(rows.start + 1) > place(rows.start) {
            let tasks = divided(q, rows, mx, place);
            return tasks.into_par_iter().for_each(|rows| {
                let mut line = self.line();
                rows.into_iter().for_each(|(row, out)| put(row, &mut line, out));
            });
        }
        let mut line = self.line();
        rows.for_each(|row| put(row, &mut line, &mut q[place(row)..]));
    }

    /// Computes the next fields, and the energies if they are wanted.
    fn step(&self, q: &mut [R], energies: &mut [R]) {
        let (p, nx, groups) = (self.params, self.nx(), self.params.groups as usize);
        let rows = p.row0 as usize..(p.row0 + p.rows) as usize;
        let size = p.nz as usize * p.ny as usize * nx;
        let each = TASK.div_ceil(nx);
        let fields =
            q.chunks_mut(size).map(|field| field[rows.start * nx..rows.end * nx].chunks_mut(each * nx));
        let mut fields: Vec<_> = fields.collect();
        let energies = if p.energies == 1 {
            &mut energies[rows.start * groups..][..rows.len() * groups]
        } else {
            &mut []
        };
        let mut energies = energies.chunks_mut(each * groups);
        let firsts = rows.clone().step_by(each);
        let tasks: Vec<_> = firsts
            .map(|first| Task {
                image: self,
                rows: first..rows.end.min(first + each),
                q: fields.iter_mut().rev().filter_map(Iterator::next).collect(),
                energies: energies.next().unwrap_or_default(),
            })
            .collect();
        tasks.into_par_iter().for_each(wide);
    }
}

/// Divides the rows of a result among tasks, each with its rows' indices and their `mx` elements.
fn divided<R>(
    q: &mut [R],
    rows: Range<usize>,
    mx: usize,
    place: impl Fn(usize) -> usize,
) -> Vec<Vec<(usize, &mut [R])>> {
    let (mut rest, mut at, each) = (q, 0, TASK.div_ceil(mx));
    let mut tasks: Vec<Vec<_>> = Vec::new();
    for row in rows {
        let (_, from) = std::mem::take(&mut rest).split_at_mut(place(row) - at);
        let (out, after) = from.split_at_mut(mx);
        (rest, at) = (after, place(row) + mx);
        match tasks.last_mut().filter(|task| task.len() < each) {
            Some(task) => task.push((row, out)),
            None => tasks.push(vec![(row, out)]),
        }
    }
    tasks
}

/// Adds to each element of `d` the field's element in `before`, or 0 without one, less the field's element in `at`.
#[inline(always)]
fn add_differences<R: SimdFloat>(d: &mut [R], before: Option<&[R]>, at: &[R]) {
    match before {
        Some(before) => {
            d.iter_mut().zip(before.iter().zip(at)).for_each(|(d, (&before, &at))| *d += before - at);
        }
        None => d.iter_mut().zip(at).for_each(|(d, &at)| *d += R::default() - at),
    }
}

/// A step for some rows.
struct Task<'a, R> {
    image: &'a Image<'a, R>,
    rows: Range<usize>,
    /// The rows of the next fields of x, y and z.
    q: Vec<&'a mut [R]>,
    /// The energies of the rows; empty if they are not wanted.
    energies: &'a mut [R],
}

impl<R: SimdFloat> NullaryFnOnce for Task<'_, R> {
    type Output = ();

    #[inline(always)]
    fn call(mut self) {
        let (image, p) = (self.image, self.image.params);
        let (nx, ny) = (image.nx(), p.ny as usize);
        let (factor, tau) =
            (R::nearest(p.factor) + R::nearest(p.factor_rest), R::nearest(1.0f32) / R::nearest(2 * p.axes));
        let [mut line, mut next, mut below] = [(); 3].map(|()| image.line());
        let [mut gx, mut gy, mut gz] = [(); 3].map(|()| vec![R::default(); nx]);
        let mut lengths = vec![R::default(); nx];
        image.fill(self.rows.start, &mut line);
        for (index, row) in self.rows.clone().enumerate() {
            let (z, y) = (row / ny, row % ny);
            differences(&mut gx[..nx - 1], (&line.f[1..], &line.d[1..]), factor, &line);
            if y + 1 < ny {
                image.fill(row + 1, &mut next);
                differences(&mut gy, (&next.f, &next.d), factor, &line);
            } else {
                gy.fill(R::default());
            }
            if z + 1 < p.nz as usize {
                image.fill(row + ny, &mut below);
                differences(&mut gz, (&below.f, &below.d), factor, &line);
            } else {
                gz.fill(R::default());
            }
            let gradients = gx.iter().zip(&gy).zip(&gz);
            lengths.iter_mut().zip(gradients).for_each(|(length, ((&x, &y), &z))| {
                *length = (x * x + y * y + z * z).sqrt();
            });
            for (axis, (q, g)) in self.q.iter_mut().zip([&gx, &gy, &gz]).enumerate() {
                let old = image.field(axis, row).iter().zip(g).zip(&lengths);
                q[index * nx..][..nx].iter_mut().zip(old).for_each(|(q, ((&old, &g), &length))| {
                    *q = (old - tau * g) / (R::nearest(1.0f32) + tau * length);
                });
            }
            if !self.energies.is_empty() {
                let groups = p.groups as usize;
                let out = &mut self.energies[index * groups..][..groups];
                energies(&line.d, &lengths, p.ox as usize, out);
            }
            if y + 1 < ny {
                std::mem::swap(&mut line, &mut next);
            } else if row + 1 < self.rows.end {
                image.fill(row + 1, &mut line);
            }
        }
    }
}

/// Computes the differences from a row, `line`, to the next elements `f` with divergences `d`.
#[inline(always)]
fn differences<R: SimdFloat>(g: &mut [R], (f, d): (&[R], &[R]), factor: R, line: &Line<R>) {
    let next = f.iter().zip(d);
    let here = line.f.iter().zip(&line.d);
    g.iter_mut().zip(next.zip(here)).for_each(|(g, ((&next_f, &next_d), (&f, &d)))| {
        *g = factor * (next_f - f) + (next_d - d);
    });
}

/// The number of partial sums of a group of energies, so that the sum is vectorised.
const LANES: usize = 16;

/// Computes the sums of energies over the groups of a row, which are counted from the column `origin`.
#[inline(always)]
fn energies<R: SimdFloat>(d: &[R], lengths: &[R], origin: usize, out: &mut [R]) {
    let wg = WG as usize;
    // The number of elements that the first group lacks.
    let before = origin.next_multiple_of(wg) - origin;
    for (group, out) in out.iter_mut().enumerate() {
        let columns = (group * wg).saturating_sub(before)..((group + 1) * wg - before).min(d.len());
        let mut sums = [R::default(); LANES];
        let (d, d_rest) = d[columns.clone()].as_chunks::<LANES>();
        let (lengths, lengths_rest) = lengths[columns].as_chunks::<LANES>();
        for (d, lengths) in d.iter().zip(lengths) {
            for lane in 0..LANES {
                sums[lane] += d[lane] * d[lane] + lengths[lane];
            }
        }
        for (sum, (&d, &length)) in sums.iter_mut().zip(d_rest.iter().zip(lengths_rest)) {
            *sum += d * d + length;
        }
        *out = sums.into_iter().fold(R::default(), |total, sum| total + sum);
    }
}
