//! One measure over the levels of a factor, every value visible.
//!
//! Levels stand side by side at equal distances, whatever they are: most experiments double a number
//! or compare names. The y axis begins at 0, unless the values differ so much that it has to be
//! logarithmic.

use std::ops::Range;

use anyhow::{Result, anyhow};
use plotters::coord::ranged1d::{
    AsRangedCoord, DefaultFormatting, KeyPointHint, Ranged, ValueFormatter,
};
use plotters::prelude::*;

use crate::measure::statistics::Samples;

const SIZE: (u32, u32) = (860, 440);
/// Told apart with any kind of colour vision (Okabe and Ito, 2008).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(60, 60, 60),
];
/// How much of the distance between levels the series take at most, all together and each.
const USED: f64 = 0.8;
const WIDEST: f64 = 0.3;
/// Greatest over least value from which on the y axis is logarithmic.
const WIDE: f64 = 30.0;

/// What is drawn.
#[derive(Debug, Default)]
pub(super) struct Plot {
    /// Title of the x axis.
    pub(super) x: String,
    /// What stands there.
    pub(super) levels: Vec<String>,
    /// Whether those are numbers, so that it means something to join them.
    pub(super) numbers: bool,
    /// Title of the y axis, with its unit.
    pub(super) y: String,
    pub(super) series: Vec<Series>,
}

/// Values of one colour.
#[derive(Debug)]
pub(super) struct Series {
    /// Empty if there is only one.
    pub(super) name: String,
    /// Those at each level.
    pub(super) values: Vec<Vec<f64>>,
}

impl Plot {
    /// Says what is seen.
    pub(super) fn caption(&self) -> String {
        let Self { x, y, .. } = self;
        let joined = if self.numbers {
            ", which a line joins"
        } else {
            ""
        };
        let scale = if self.logarithmic() {
            "logarithmic"
        } else {
            "linear, from 0"
        };
        format!(
            "{y} by {x}. Each dot is a value; the thick bar is the median{joined}; the thin bars are the \
             least value and the 95th percentile. The y axis is {scale}; levels of {x} stand side by \
             side in their order, not to scale."
        )
    }

    /// The picture, as an `svg` element.
    ///
    /// # Errors
    /// If it cannot be drawn.
    pub(super) fn svg(&self) -> Result<String> {
        let mut text = String::new();
        {
            let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
            let (least, greatest) = self.extremes();
            let drawn = if self.logarithmic() {
                self.draw(&area, (least * 0.8..greatest * 1.25).log_scale())
            } else {
                let top = if greatest > 0.0 { greatest * 1.08 } else { 1.0 };
                self.draw(&area, least.min(0.0)..top)
            };
            drawn.map_err(|error| anyhow!("draw {}: {error}", self.y))?;
        }
        Ok(text)
    }

    fn all(&self) -> impl Iterator<Item = f64> {
        let series = self.series.iter();
        series
            .flat_map(|series| series.values.iter().flatten())
            .copied()
    }

    fn extremes(&self) -> (f64, f64) {
        let least = self.all().fold(f64::INFINITY, f64::min);
        let greatest = self.all().fold(f64::NEG_INFINITY, f64::max);
        if least > greatest {
            (0.0, 0.0)
        } else {
            (least, greatest)
        }
    }

    fn logarithmic(&self) -> bool {
        let (least, greatest) = self.extremes();
        least > 0.0 && greatest > least * WIDE
    }

    fn draw<Y>(&self, area: &Area<'_>, y: Y) -> Drawn
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .x_label_area_size(50)
            .y_label_area_size(74)
            .build_cartesian_2d(Levels(self.levels.len()), y)?;
        let level = |x: &f64| {
            self.levels
                .get(x.round() as usize)
                .cloned()
                .unwrap_or_default()
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .bold_line_style(BLACK.mix(0.15))
            .light_line_style(BLACK.mix(0.05))
            .x_labels(self.levels.len())
            .x_desc(&self.x)
            .y_desc(&self.y)
            .x_label_formatter(&level)
            .y_label_formatter(&|y| tick(*y))
            .label_style(("sans-serif", 14))
            .axis_desc_style(("sans-serif", 15))
            .draw()?;
        for (index, series) in self.series.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            let places = self.places(index);
            let mut medians = Vec::new();
            for (values, place) in series.values.iter().zip(places) {
                let Ok(samples) = Samples::new(&series.name, values.clone()) else {
                    continue;
                };
                let middle = f64::midpoint(place.start, place.end);
                medians.push((middle, samples.median()));
                let dots = spread(values.len(), &place).zip(values);
                chart.draw_series(
                    dots.map(|(x, y)| Circle::new((x, *y), 2.5, colour.mix(0.45).filled())),
                )?;
                let bar = |y, width| {
                    PathElement::new(
                        [(place.start, y), (place.end, y)],
                        colour.stroke_width(width),
                    )
                };
                chart.draw_series([
                    bar(samples.min(), 1),
                    bar(samples.median(), 3),
                    bar(samples.percentile(95), 1),
                ])?;
            }
            if !self.numbers {
                medians.clear();
            }
            let line = chart.draw_series(LineSeries::new(medians, colour.mix(0.5)))?;
            if !series.name.is_empty() {
                line.label(&series.name).legend(move |(x, y)| {
                    Rectangle::new([(x, y - 4), (x + 12, y + 4)], colour.filled())
                });
            }
        }
        if self.series.len() > 1 {
            chart
                .configure_series_labels()
                .position(SeriesLabelPosition::UpperLeft)
                .background_style(WHITE.mix(0.8))
                .border_style(BLACK.mix(0.2))
                .label_font(("sans-serif", 14))
                .draw()?;
        }
        area.present()?;
        Ok(())
    }

    /// Where a series stands at each level.
    fn places(&self, series: usize) -> impl Iterator<Item = Range<f64>> + use<> {
        let count = self.series.len() as f64;
        let width = (USED / count).min(WIDEST);
        let left = (series as f64 - count / 2.0) * width;
        // A little air between neighbours.
        let place = move |level| {
            let left = f64::from(level) + left;
            left + width * 0.1..left + width * 0.9
        };
        (0_u32..).map(place)
    }
}

/// The x axis: so many levels at whole numbers from 0, with room for their series around them.
struct Levels(usize);

impl Ranged for Levels {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (left, right): (i32, i32)) -> i32 {
        let part = (value + 0.5) / self.0 as f64;
        left + (part * f64::from(right - left)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        (0..self.0).map(|level| level as f64).collect()
    }

    fn range(&self) -> Range<f64> {
        -0.5..self.0 as f64 - 0.5
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<<SVGBackend<'static> as DrawingBackend>::ErrorType>>;

/// Side by side in their order, so that a drift within a run is seen too.
fn spread(count: usize, place: &Range<f64>) -> impl Iterator<Item = f64> + use<> {
    let (start, width) = (place.start, place.end - place.start);
    (0..count).map(move |index| start + width * (index as f64 + 0.5) / count as f64)
}

/// A number at an axis, without zeros that say nothing.
fn tick(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
#[path = "plot_test.rs"]
mod tests;
