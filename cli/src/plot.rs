//! The parts that plots have in common: size, colours, font and axes.

use std::{error::Error, ops::Range, sync::Once};

use plotters::{
    coord::{Shift, types::RangedCoordf64},
    prelude::*,
    style::FontStyle,
};

use crate::text;

/// Okabe and Ito's colours, which people with colour blindness can distinguish, starting with those that stand out on white.
pub(crate) const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(60, 60, 60),
];
pub(crate) const INK: RGBColor = RGBColor(51, 51, 51);
const GRID: RGBColor = RGBColor(232, 232, 232);
const FRAME: RGBColor = RGBColor(150, 150, 150);
pub(crate) const FONT: &str = "sans-serif";

pub(crate) const SIZE: (u32, u32) = (1200, 900);

pub(crate) type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(crate) type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
pub(crate) type Drawn<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// Returns a chart with a title, whose axes have these ranges.
pub(crate) fn chart<'a, 'b>(
    canvas: &'a Canvas<'b>,
    title: &str,
    [x, y]: [Range<f64>; 2],
) -> Drawn<Chart<'a, 'b>> {
    let style = (FONT, 26).into_font().color(&INK);
    let mut chart = ChartBuilder::on(canvas);
    chart.margin(24).margin_top(18).caption(title, style).x_label_area_size(72).y_label_area_size(96);
    Ok(chart.build_cartesian_2d(x, y)?)
}

pub(crate) fn axes(chart: &mut Chart<'_, '_>, names: &[String; 2]) -> Drawn {
    chart
        .configure_mesh()
        .x_labels(8)
        .y_labels(8)
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(FRAME)
        .label_style((FONT, 20).into_font().color(&INK))
        .axis_desc_style((FONT, 26).into_font().color(&INK))
        .x_label_formatter(&|x| text::general(*x, 4))
        .y_label_formatter(&|y| text::general(*y, 4))
        .x_desc(&names[0])
        .y_desc(&names[1])
        .draw()?;
    Ok(())
}

/// Registers the font that text is measured with; a viewer draws text with its own font.
pub(crate) fn register_font() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let font = include_bytes!("../assets/DejaVuSans-ascii.ttf");
        let registered = plotters::style::register_font(FONT, FontStyle::Normal, font);
        assert!(registered.is_ok(), "the embedded font should be a font");
    });
}
