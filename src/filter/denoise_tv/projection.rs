//! The iteration for one image on a device.

use std::{
    mem::swap,
    ops::{Range, RangeInclusive},
};

use super::{OP, TvOptions};
use crate::{
    DType, Error, Needs, Real, Result, Tensor,
    dtype::halves,
    extent::{blocks, to_usize},
    kernel::{Grid, small},
    kernels::{
        WG,
        denoise_tv::{DENOISE_TV, Params, groups, spec},
    },
    tensor::Window,
};

/// The factors that two f32 hold with about 48 bits.
pub(super) const FACTORS: RangeInclusive<f64> = 1e-30..=1e30;

/// The number of operations of a step for an element.
const WORK: u64 = 64;

/// The images of a box of an array, which lie along some of its axes.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    /// The extents of an image along z, y and x; 1 along those that it lacks.
    pub(super) extents: [u64; 3],
    /// The number of elements from one to the next along each axis.
    strides: [u64; 3],
    /// The index of the first element of each image, in C order of the other axes.
    pub(super) firsts: Vec<u64>,
}

impl Frame {
    /// Returns the images along `axes`, in ascending order, of a box of this shape.
    pub(super) fn new(axes: &[usize], shape: &[u64]) -> Self {
        let (mut extents, mut strides, mut firsts) = ([1; 3], [0; 3], vec![0]);
        for axis in 0..shape.len() {
            let stride = shape[axis + 1..].iter().product::<u64>();
            if let Some(place) = axes.iter().position(|&other| other == axis) {
                (extents[3 - axes.len() + place], strides[3 - axes.len() + place]) = (shape[axis], stride);
            } else {
                let along = |first: u64| (0..shape[axis]).map(move |place| first + place * stride);
                firsts = firsts.into_iter().flat_map(along).collect();
            }
        }
        Self { extents, strides, firsts }
    }

    /// Returns the elements from the first of an image to its last.
    fn places(&self, image: usize) -> Range<u64> {
        let axes = self.extents.iter().zip(&self.strides);
        let last: u64 = axes.map(|(extent, stride)| (extent - 1) * stride).sum();
        self.firsts[image]..self.firsts[image] + last + 1
    }
}

/// A part of an image in a box: its start and its extents.
#[derive(Clone, Copy, Debug)]
pub(super) struct Core {
    pub(super) start: [u64; 3],
    pub(super) extents: [u64; 3],
}

/// A sum of numbers with about 106 bits, so that their order has no effect on the leading 53.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    sum: f64,
    rest: f64,
}

impl Sum {
    pub(super) fn add(&mut self, value: f64) {
        let sum = self.sum + value;
        let added = sum - self.sum;
        self.rest += (self.sum - (sum - added)) + (value - added);
        self.sum = sum;
    }

    pub(super) fn join(&mut self, other: Self) {
        self.add(other.sum);
        self.rest += other.rest;
    }

    pub(super) fn value(self) -> f64 {
        self.sum + self.rest
    }
}

/// The iterations that an image takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    eps: f64,
    /// The maximum number of updates of the fields, one less than the number of iterations.
    pub(super) most: u64,
}

impl Rule {
    pub(super) fn new(options: &TvOptions) -> Self {
        Self { eps: options.eps, most: options.max_iterations - 1 }
    }

    /// True if energies may end the iteration.
    pub(super) fn measures(&self) -> bool {
        self.eps > 0.0 && self.most > 0
    }

    /// True if the last of these energies, one for each iteration, ends the iteration.
    fn ends(&self, energies: &[f64]) -> bool {
        matches!(energies, [first, .., before, last] | [first @ before, last] if (before - last).abs() < self.eps * first)
    }

    /// Returns the number of updates after which these energies end the iteration, or `None` if they do not.
    pub(super) fn updates(&self, energies: &[f64]) -> Option<u64> {
        let end = (2..=energies.len()).find(|&len| self.ends(&energies[..len])).map(|len| len as u64 - 1);
        end.or((energies.len() as u64 >= self.most).then_some(self.most))
    }
}

/// The fields of an image.
pub(super) struct Projection<'a, R: Real> {
    f: &'a Tensor<R>,
    frame: Frame,
    axes: u32,
    /// The part whose energy is measured.
    core: Core,
    /// The factors of the image in steps, of the image in the result, and of the divergence there, each in two parts.
    factors: [[f32; 2]; 3],
    /// The fields, and space for the next.
    p: Tensor<R>,
    next: Tensor<R>,
    energies: Tensor<R>,
    /// The number of groups of a row, each of which has an energy.
    groups: u64,
    /// The elements from the image's first to its last.
    places: Range<u64>,
}

impl<'a, R: Real> Projection<'a, R> {
    /// Makes space to denoise the images of a frame one at a time; images have `axes` axes. `core` is the part whose
    /// energy is measured. Fails with [`Error::Limit`] if the fields do not fit a binding; [`Error::OutOfMemory`].
    pub(super) fn new(
        f: &'a Tensor<R>,
        (frame, axes): (Frame, usize),
        core: Core,
        [scale, weight]: [f64; 2],
    ) -> Result<Self> {
        let (device, count) = (f.device(), axes as u64 * frame.extents.iter().product::<u64>());
        let [requested, max] = [count * R::DTYPE.size(), device.limits().room()];
        if requested > max {
            return Err(Error::Limit {
                what: "bytes of the fields of an image or of a box with its halo",
                requested,
                max,
            });
        }
        let [depth, height, width] = frame.extents;
        let groups = groups(width, core.start[2]);
        Ok(Self {
            f,
            axes: small(axes as u64),
            core,
            factors: [scale / weight, scale, weight].map(|factor| halves(factor, false)),
            p: Tensor::empty(device, &[0])?,
            next: Tensor::empty(device, &[count])?,
            energies: Tensor::empty(device, &[depth * height * groups])?,
            groups,
            places: 0..0,
            frame,
        })
    }

    /// Returns the memory for a box of images along `axes`, besides the box and the result.
    pub(super) fn needs(shape: &[u64], axes: &[usize]) -> Needs {
        let image = axes.iter().fold(1, |count: u64, &axis| count.saturating_mul(shape[axis]));
        let width = axes.last().map_or(1, |&axis| shape[axis]);
        let energies = image.saturating_div(width.max(1)).saturating_mul(groups(width, 0) + 1);
        let fields = Needs::device(R::DTYPE.size()) * image * (2 * axes.len() as u64);
        fields + Needs::device(R::DTYPE.size()) * energies + Needs::host(R::DTYPE.size()) * energies
    }

    /// Begins with an image of the frame.
    pub(super) fn begin(&mut self, image: usize) -> Result<()> {
        // The last image's fields are freed first.
        self.p = Tensor::empty(self.f.device(), &[0])?;
        self.p = Tensor::zeros(self.f.device(), self.next.shape())?;
        self.places = self.frame.places(image);
        Ok(())
    }

    /// Updates the fields `times` times.
    pub(super) fn update(&mut self, times: u64) -> Result<()> {
        (0..times).try_for_each(|_| {
            self.step(false)?;
            swap(&mut self.p, &mut self.next);
            Ok(())
        })
    }

    /// Updates the fields `times` times, and returns the energy before each update. Waits.
    pub(super) fn measure(&mut self, times: u64) -> Result<Vec<Sum>> {
        let measure = |_| {
            self.step(true)?;
            swap(&mut self.p, &mut self.next);
            self.energy()
        };
        (0..times).map(measure).collect()
    }

    /// Updates the fields until the rule ends the iteration, and returns the number of updates. Waits.
    pub(super) fn iterate(&mut self, rule: &Rule) -> Result<u64> {
        let mut energies = Vec::new();
        for updates in 0..rule.most {
            let measured = updates == 0 || rule.eps > 0.0;
            self.step(measured)?;
            if measured {
                energies.push(self.energy()?.value());
                if !energies[0].is_finite() {
                    let why = "an element is infinite, NaN, or too large for the weight";
                    return Err(Error::argument(OP, "x", why));
                }
                if rule.ends(&energies) {
                    return Ok(updates);
                }
            }
            swap(&mut self.p, &mut self.next);
        }
        Ok(rule.most)
    }

    /// Enqueues a step from the fields to the next ones.
    fn step(&mut self, measured: bool) -> Result<()> {
        let [depth, height, width] = self.frame.extents;
        let params =
            Params { energies: measured.into(), groups: small(self.groups), ..self.params(self.core) };
        let (f, p) = (self.f.window(self.places.clone()), self.p.window(0..self.p.len()));
        let [len, places] = [self.next.len(), self.energies.len()];
        let (q, energies) = (self.next.window_update(0..len), self.energies.window_update(0..places));
        launch(false, [depth * height, width], params, [f, p, q, energies])
    }

    /// Enqueues the computation of a part of the result, as the image `image` of `out`.
    pub(super) fn result(
        &mut self,
        core: Core,
        out: &mut Tensor<R>,
        (frame, image): (&Frame, usize),
    ) -> Result<()> {
        let [depth, height, width] = core.extents;
        let [qz, qy, qx] = frame.strides.map(small);
        let params = Params { qz, qy, qx, groups: small(width.div_ceil(WG.into())), ..self.params(core) };
        let (f, p) = (self.f.window(self.places.clone()), self.p.window(0..self.p.len()));
        let places = self.energies.len();
        let (q, energies) = (out.window_update(frame.places(image)), self.energies.window_update(0..places));
        launch(true, [depth * height, width], params, [f, p, q, energies])
    }

    /// Returns the parameters of all launches for a part of the image.
    fn params(&self, core: Core) -> Params {
        let ([nz, ny, nx], [fz, fy, fx]) = (self.frame.extents.map(small), self.frame.strides.map(small));
        let ([oz, oy, ox], [_, my, mx]) = (core.start.map(small), core.extents.map(small));
        let [[factor, factor_rest], [scale, scale_rest], [weight, weight_rest]] = self.factors;
        Params {
            nz,
            ny,
            nx,
            axes: self.axes,
            fz,
            fy,
            fx,
            oz,
            oy,
            ox,
            my,
            mx,
            factor,
            factor_rest,
            scale,
            scale_rest,
            weight,
            weight_rest,
            ..Params::default()
        }
    }

    /// Returns the energy of the core, in units of the square of the weight, that the last step measured. Waits.
    fn energy(&self) -> Result<Sum> {
        let energies = self.energies.read()?;
        let (groups, [_, height, _]) = (to_usize(self.groups), self.frame.extents);
        let range = |axis: usize| -> Range<u64> {
            self.core.start[axis]..self.core.start[axis] + self.core.extents[axis]
        };
        let columns = to_usize(self.core.start[2].div_ceil(WG.into()))..;
        let last = to_usize(self.core.extents[2].div_ceil(WG.into()));
        let mut sum = Sum::default();
        for row in range(0).flat_map(|z| range(1).map(move |y| z * height + y)) {
            let row = &energies[to_usize(row) * groups..][..groups];
            row[columns.clone()].iter().take(last).for_each(|&energy| sum.add(energy.to_f64()));
        }
        Ok(sum)
    }
}

/// Enqueues launches for `rows` rows of `width` elements. Fails with [`Error::Cancelled`], and any error of the device.
fn launch(
    result: bool,
    [rows, width]: [u64; 2],
    mut params: Params,
    [f, p, q, energies]: [Window<'_>; 4],
) -> Result<()> {
    let (device, groups) = (f.arg.device, u64::from(params.groups));
    let limits = device.limits();
    let most = u64::from(limits.groups_per_axis).saturating_pow(2) / groups.max(1);
    (params.f0, params.q0) = (f.start, q.start);
    let spec = spec(result, f.arg.dtype == DType::F64);
    for rows in blocks(rows, most.min(limits.work / (WORK * width.max(1))).max(1)) {
        device.check()?;
        let count = rows.end - rows.start;
        (params.row0, params.rows) = (small(rows.start), small(count));
        let work = count * groups * u64::from(WG) * WORK;
        let grid = Grid::linear(count * groups, limits.groups_per_axis, work)?;
        device.launch(&DENOISE_TV, &spec, grid, &[f.arg, p.arg, q.arg, energies.arg], &params)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, device_tests};

    device_tests! { energy_of_a_part }

    /// In the first step, the energy of an element is the difference to the next one, which is a whole number here. The part is as wide as a
    /// group, and has elements on both sides.
    fn energy_of_a_part(device: &Device) {
        let f: Vec<f32> = (0..700u32).map(|i| (i * i % 97) as f32).collect();
        let x = Tensor::from_slice(device, &f, &[700]).unwrap();
        for first in [0, 1, 130, 256, 300, 443, 444] {
            let core = Core { start: [0, 0, first], extents: [1, 1, WG.into()] };
            let frame = Frame::new(&[0], &[700]);
            let mut projection = Projection::new(&x, (frame, 1), core, [1.0; 2]).unwrap();
            projection.begin(0).unwrap();
            let energy = projection.measure(1).unwrap()[0].value();
            let part = f.windows(2).skip(to_usize(first)).take(WG as usize);
            let expected: f32 = part.map(|pair| (pair[1] - pair[0]).abs()).sum();
            assert!((energy - f64::from(expected)).abs() < 0.5, "{first}: {energy}, not {expected}");
        }
    }
}
