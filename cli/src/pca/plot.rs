//! The plot of the first two components.

use std::ops::Range;

use plotters::{
    element::DynElement,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};
use teatime_genotype::Pca;

use crate::{
    failure::Failure,
    output::Output,
    plot::{COLOURS, Canvas, Drawn, FONT, INK, SIZE, axes, chart, register_font},
    text,
};

pub(super) const PLOT: &str = "pca.svg";

#[derive(Clone, Debug)]
pub(crate) struct Groups {
    pub(crate) names: Vec<String>,
    /// The index in `names` of each sample's group.
    pub(crate) of: Vec<usize>,
}

const LEGEND_ROW: i32 = 34;
/// The maximum number of groups that the legend has room for.
const LEGEND_ROWS: usize = 22;
/// The maximum number of points, which a viewer draws without delay.
const MOST_POINTS: usize = 20_000;

pub(crate) fn write(output: &Output, pca: &Pca, groups: Option<&Groups>) -> Result<(), Failure> {
    let mut svg = String::new();
    draw(&mut svg, &Points::new(pca), groups).map_err(|why| Failure::Error(format!("{PLOT}: {why}")))?;
    output.put(PLOT, |file| file.write_all(svg.as_bytes()))
}

struct Points {
    title: String,
    axes: [String; 2],
    /// The index and the coordinates of each sample that is drawn.
    at: Vec<(usize, [f64; 2])>,
}

impl Points {
    fn new(pca: &Pca) -> Self {
        let scores = pca.scores();
        let (samples, k) = (scores.rows(), pca.singular_values.len());
        let share = pca.explained_variance_ratio();
        // Three digits are needed: genotypes spread their variance over many components.
        let axis = |i: usize| format!("PC{} ({} %)", i + 1, text::general(100.0 * share[i], 3));
        let row = |i: usize| &scores.data()[i * k..(i + 1) * k];
        let (axes, at): (_, &dyn Fn(usize) -> [f64; 2]) = if k > 1 {
            ([axis(0), axis(1)], &|i| [row(i)[0], row(i)[1]])
        } else {
            (["Sample".into(), axis(0)], &|i| [i as f64 + 1.0, row(i)[0]])
        };
        let step = samples.div_ceil(MOST_POINTS).max(1);
        let thinned = if step > 1 { format!(" (1 in {step} drawn)") } else { String::new() };
        let size =
            [(samples as u64, "sample"), (pca.counts.used, "variant")].map(|(n, what)| text::plural(n, what));
        let title = format!("{}{thinned}, {}", size[0], size[1]);
        Self { title, axes, at: (0..samples).step_by(step).map(|i| (i, at(i))).collect() }
    }

    /// Returns the range of the points along an axis, with a margin.
    fn range(&self, axis: usize) -> Range<f64> {
        let values = || self.at.iter().map(|(_, point)| point[axis]).filter(|value| value.is_finite());
        let (low, high) =
            (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
        if low >= high || !(high - low).is_finite() {
            let middle = if low.is_finite() { low } else { 0.0 };
            return middle - 1.0..middle + 1.0;
        }
        let margin = 0.05 * (high - low);
        low - margin..high + margin
    }
}

fn draw(svg: &mut String, points: &Points, groups: Option<&Groups>) -> Drawn {
    register_font();
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let canvas = match groups {
        Some(groups) => {
            let longest = groups.names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
            let width = u32::try_from(longest.clamp(6, 20) * 12 + 70)?;
            let (left, right) = root.split_horizontally(SIZE.0 - width);
            legend(&right, groups)?;
            left
        }
        None => root.clone(),
    };
    let mut chart = chart(&canvas, &points.title, [points.range(0), points.range(1)])?;
    axes(&mut chart, &points.axes)?;
    let radius = match points.at.len() {
        0..500 => 6,
        500..5000 => 4,
        _ => 3,
    };
    let group = |sample: usize| groups.map_or(0, |groups| groups.of[sample]);
    for (sample, [x, y]) in &points.at {
        chart.plotting_area().draw(&mark((*x, *y), radius, group(*sample), 0.6))?;
    }
    drop(chart);
    root.present()?;
    Ok(())
}

fn legend(area: &Canvas<'_>, groups: &Groups) -> Drawn {
    let style = TextStyle::from((FONT, 24).into_font()).color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
    let shown = if groups.names.len() > LEGEND_ROWS { LEGEND_ROWS - 1 } else { groups.names.len() };
    let mut y = 80;
    for (i, name) in groups.names.iter().take(shown).enumerate() {
        area.draw(&mark((16, y), 8, i, 0.9))?;
        let short: String = name.chars().take(20).collect();
        area.draw(&Text::new(short, (36, y), style.clone()))?;
        y += LEGEND_ROW;
    }
    let left = groups.names.len() - shown;
    if left > 0 {
        area.draw(&Text::new(format!("and {left} more"), (8, y), style))?;
    }
    Ok(())
}

/// Returns the mark of a group: one of the colours as a disc, then as a square and a triangle.
fn mark<'a, C: Clone + 'static>(
    at: C,
    r: i32,
    group: usize,
    opacity: f64,
) -> DynElement<'a, SVGBackend<'a>, C> {
    let style = COLOURS[group % COLOURS.len()].mix(opacity).filled();
    match group / COLOURS.len() % 3 {
        0 => Circle::new(at, r, style).into_dyn(),
        1 => (EmptyElement::at(at) + Rectangle::new([(-r, -r), (r, r)], style)).into_dyn(),
        _ => (EmptyElement::at(at) + Polygon::new(vec![(-r, r), (r, r), (0, -r)], style)).into_dyn(),
    }
}
