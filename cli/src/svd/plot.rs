//! The plot of the components' shares.

use plotters::prelude::*;
use teatime::stream::StoredSvd;

use crate::{
    failure::Failure,
    output::Output,
    plot::{COLOURS, Drawn, SIZE, axes, chart, register_font},
};

pub(super) const SCREE: &str = "scree.svg";

/// Writes the plot of a matrix of this `size`.
pub(super) fn write(output: &Output, svd: &StoredSvd, size: &str) -> Result<(), Failure> {
    let mut svg = String::new();
    draw(&mut svg, svd, size).map_err(|why| Failure::Error(format!("{SCREE}: {why}")))?;
    output.put(SCREE, |file| file.write_all(svg.as_bytes()))
}

fn draw(svg: &mut String, svd: &StoredSvd, size: &str) -> Drawn {
    register_font();
    let canvas = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    canvas.fill(&WHITE)?;
    let shares: Vec<f64> = svd.shares().iter().map(|share| 100.0 * share).collect();
    let most = shares.first().copied().filter(|share| *share > 0.0).unwrap_or(1.0);
    let mut chart = chart(&canvas, size, [0.5..shares.len() as f64 + 0.5, 0.0..1.05 * most])?;
    let share =
        if svd.explained_variance().is_some() { "Explained variance (%)" } else { "Share of squares (%)" };
    axes(&mut chart, &["Component".into(), share.into()])?;
    let points: Vec<(f64, f64)> = (1..=shares.len()).map(|number| number as f64).zip(shares).collect();
    let radius = if points.len() > 200 { 2 } else { 6 };
    let area = chart.plotting_area();
    area.draw(&PathElement::new(points.clone(), COLOURS[0].stroke_width(2)))?;
    points.into_iter().try_for_each(|point| area.draw(&Circle::new(point, radius, COLOURS[0].filled())))?;
    drop(chart);
    canvas.present()?;
    Ok(())
}
