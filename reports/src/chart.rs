//! Line and scatter charts: plotters draws them in marker inks, and the stylesheet turns each ink into the theme's colour,
//! width and dash, so one drawing serves light, dark and print. Each chart is drawn for a wide and for a narrow screen,
//! of which the stylesheet shows one. No string of a user reaches plotters: only numbers and units.

use crate::format::{Unit, log_ticks, ticks};
use maud::{Markup, PreEscaped, html};
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::prelude::*;
use std::ops::Range;

/// What a stroke means. The colour is a code: `#0A0001` is the first, and so on; `style.css` holds the real ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ink {
    /// Predicted: solid.
    Predicted,
    /// Measured: dashed.
    Measured,
    /// A limit: dotted.
    Limit,
    /// A candidate that fits.
    Feasible,
    /// A candidate that was rejected.
    Rejected,
    /// The plan itself.
    Winner,
    /// A curve with nothing to compare it to.
    Alone,
    /// The candidates that nothing beats.
    Front,
}

impl Ink {
    fn color(self) -> RGBColor {
        RGBColor(0x0A, 0, 1 + self as u8)
    }
    /// Class of the swatch in a legend.
    pub(crate) fn class(self) -> &'static str {
        match self {
            Ink::Predicted => "ink-predicted",
            Ink::Measured => "ink-measured",
            Ink::Limit => "ink-limit",
            Ink::Feasible => "ink-feasible",
            Ink::Rejected => "ink-rejected",
            Ink::Winner => "ink-winner",
            Ink::Alone => "ink-alone",
            Ink::Front => "ink-front",
        }
    }
}

const TEXT: RGBColor = RGBColor(0x0A, 0, 0);
const GRID: RGBColor = RGBColor(0x0A, 0, 0x10);
const AXIS: RGBColor = RGBColor(0x0A, 0, 0x11);
const BAND: RGBColor = RGBColor(0x0A, 0, 0x12);

/// One axis, in its unit.
#[derive(Debug, Clone)]
pub(crate) struct Axis {
    /// What it shows.
    pub(crate) name: String,
    /// Unit of the ends and of every point.
    pub(crate) unit: Unit,
    /// Lower end.
    pub(crate) from: f64,
    /// Upper end.
    pub(crate) to: f64,
    /// Whether it is logarithmic; then both ends are above zero.
    pub(crate) log: bool,
}

/// An axis with its ticks chosen: plotters asks it where values lie. Its own axes choose ticks that fit no unit.
struct Scale {
    axis: Axis,
    ticks: Vec<f64>,
}

impl Scale {
    fn new(axis: &Axis, most: u32) -> Self {
        let ticks = if axis.log {
            log_ticks(axis.from, axis.to, most as usize + 1)
        } else {
            ticks(axis.from, axis.to, most)
        };
        Self { axis: axis.clone(), ticks }
    }
}

impl Ranged for Scale {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (low, high): (i32, i32)) -> i32 {
        let at = |x: f64| if self.axis.log { x.log10() } else { x };
        let (from, to) = (at(self.axis.from), at(self.axis.to));
        let share = if to > from { (at(*value) - from) / (to - from) } else { 0.5 };
        // What lies far outside the axis is drawn just outside.
        low + (f64::from(high - low) * share.clamp(-1.0, 2.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.clone() }
    }

    fn range(&self) -> Range<f64> {
        self.axis.from..self.axis.to
    }
}

/// A chart.
#[derive(Debug, Clone)]
pub(crate) struct Chart {
    /// What a screen reader says of it.
    pub(crate) label: String,
    /// Horizontal axis.
    pub(crate) x: Axis,
    /// Vertical axis.
    pub(crate) y: Axis,
    /// A shaded range of the vertical axis.
    pub(crate) band: Option<(f64, f64)>,
    /// Curves.
    pub(crate) lines: Vec<(Ink, Vec<(f64, f64)>)>,
    /// Clouds of points.
    pub(crate) marks: Vec<(Ink, Vec<(f64, f64)>)>,
}

/// Sizes in pixels: across the page, half of it, a telephone.
const FULL: (u32, u32) = (960, 300);
const HALF: (u32, u32) = (464, 240);
const NARROW: (u32, u32) = (340, 240);

impl Chart {
    /// The chart across the page.
    pub(crate) fn draw(&self) -> Markup {
        self.drawn(FULL, (8, 5))
    }
    /// The chart at half the width of the page, for a pair.
    pub(crate) fn draw_half(&self) -> Markup {
        self.drawn(HALF, (4, 4))
    }

    fn drawn(&self, wide: (u32, u32), ticks: (u32, u32)) -> Markup {
        html! {
            div.chart role="img" aria-label=(self.label) {
                p.axis-name { "↑ " (self.y.name) }
                div.wide { (PreEscaped(self.svg(wide, ticks))) }
                div.narrow { (PreEscaped(self.svg(NARROW, (4, 4)))) }
                p.axis-name.below { (self.x.name) " →" }
            }
        }
    }

    fn svg(&self, size: (u32, u32), ticks: (u32, u32)) -> String {
        let mut svg = String::new();
        self.paint(SVGBackend::with_string(&mut svg, size), ticks)
            .expect("drawing into a string cannot fail");
        // Attributes that say nothing, or that the stylesheet says better; inline SVG needs no namespace.
        let size = format!("width=\"{}\" height=\"{}\" ", size.0, size.1);
        for noise in
            [&size, " xmlns=\"http://www.w3.org/2000/svg\"", " opacity=\"1\"", " font-family=\"sans-serif\""]
        {
            svg = svg.replace(noise, "");
        }
        svg.replace("/>\n", "/>").replace(" \"/>", "\"/>")
    }

    fn paint(
        &self,
        backend: SVGBackend<'_>,
        (x_ticks, y_ticks): (u32, u32),
    ) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
        let root = backend.into_drawing_area();
        let mut context = ChartBuilder::on(&root)
            .margin_top(10)
            .margin_right(24)
            .x_label_area_size(26)
            .y_label_area_size(70)
            .build_cartesian_2d(Scale::new(&self.x, x_ticks), Scale::new(&self.y, y_ticks))?;
        context
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(x_ticks as usize + 1)
            .y_labels(y_ticks as usize + 1)
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(AXIS)
            .label_style(("sans-serif", 15, &TEXT))
            .x_label_formatter(&|x| self.x.unit.tick(*x))
            .y_label_formatter(&|y| self.y.unit.tick(*y))
            .draw()?;
        if let Some((low, high)) = self.band {
            let corners = [(self.x.from, low), (self.x.to, high)];
            context.draw_series([Rectangle::new(corners, BAND.filled())])?;
        }
        for (ink, points) in &self.lines {
            context.draw_series(LineSeries::new(points.iter().copied(), ink.color()))?;
        }
        for (ink, points) in &self.marks {
            let at = points.iter().copied();
            match ink {
                Ink::Rejected => context.draw_series(at.map(|p| Cross::new(p, 3, ink.color())))?,
                Ink::Winner => context.draw_series(at.map(|p| Circle::new(p, 7, ink.color())))?,
                _ => context.draw_series(at.map(|p| Circle::new(p, 4, ink.color())))?,
            };
        }
        root.present()
    }
}

/// A legend of strokes and marks: `(ink, words)`.
pub(crate) fn legend<'a>(items: impl IntoIterator<Item = (Ink, &'a str)>) -> Markup {
    html! {
        ul.legend { @for (ink, words) in items {
            li {
                svg.swatch width="28" height="14" aria-hidden="true" { g class=(ink.class()) { (mark(ink)) } }
                (words)
            }
        } }
    }
}

fn mark(ink: Ink) -> Markup {
    match ink {
        Ink::Predicted | Ink::Measured | Ink::Limit | Ink::Alone | Ink::Front => {
            html! { line x1="0" y1="7" x2="28" y2="7" {} }
        }
        Ink::Feasible => html! { circle cx="14" cy="7" r="4" {} },
        Ink::Winner => html! { circle cx="14" cy="7" r="6" {} },
        Ink::Rejected => html! { path d="M11 4l6 6m0-6l-6 6" {} },
    }
}
