//! One chart as SVG: the lines of a panel, and below it those of a second measure over the same places.
//!
//! Colours are classes, which the book's style sheet fills in for each of its themes.

use super::data::{Data, Kind, Line, Panel, Point, Spread};
use super::labels;
use super::scale::{Extent, Scale};
use super::spec::Spec;
use crate::fault::{Result, fault};
use crate::html::escape;
use crate::number::significant;
use std::fmt::Write;

/// How large a chart is drawn. A unit is a pixel of a screen that is wide enough.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    /// Its class in the style sheet.
    pub class: &'static str,
    /// All of it.
    pub width: f64,
    /// One plot that is alone, or one of two.
    plot_height: [f64; 2],
}

/// Fits a telephone, and twice into a page.
pub const NARROW: Size = Size { class: "narrow", width: 340.0, plot_height: [160.0, 120.0] };

/// Fits a page.
pub const WIDE: Size = Size { class: "wide", width: 680.0, plot_height: [240.0, 170.0] };

const FONT: f64 = 12.0;
const LINE_HEIGHT: f64 = 15.0;
const LABEL_HEIGHT: f64 = 14.0;
/// Between the end of a line and its label.
const LEADER: f64 = 16.0;
/// How many hues there are before grey.
const HUES: usize = 4;

/// What is drawn, and how.
pub struct Chart<'a> {
    /// What was asked for.
    pub spec: &'a Spec,
    /// All panels, since they share their axes.
    pub data: &'a Data,
    /// This one.
    pub panel: &'a Panel,
    /// What ids of this chart begin with.
    pub id: String,
    /// How large.
    pub size: Size,
}

/// Where the plots are.
struct Layout {
    x: Scale,
    ys: Vec<Scale>,
    left: f64,
    right: f64,
    /// The upper ends, and the lower ones.
    plots: Vec<(f64, f64)>,
    /// Whether the words of the x axis are too long to stand upright.
    is_slanted: bool,
    height: f64,
}

impl Chart<'_> {
    /// The SVG, without an empty line: that would end it for Markdown.
    ///
    /// # Errors
    /// If the names of the series leave no room for their lines.
    pub fn draw(&self) -> Result<String> {
        let layout = self.layout()?;
        let (id, width) = (&self.id, self.size.width);
        let mut svg = format!(
            "<svg class=\"{}\" viewBox=\"0 0 {width} {:.0}\" role=\"img\" aria-labelledby=\"{id}-t {id}-d\" \
             xmlns=\"http://www.w3.org/2000/svg\">\n<title id=\"{id}-t\">{}</title>\n<desc id=\"{id}-d\">{}</desc>\n",
            self.size.class,
            layout.height,
            escape(&self.heading()),
            escape(&self.in_words())
        );
        if let Some(name) = &self.panel.name {
            svg += &text(0.0, 14.0, "panel", self.spec.name(name));
        }
        for at in 0..layout.plots.len() {
            svg += &self.axes(&layout, at);
            svg += &self.lines(&layout, at);
            svg += &self.labels(&layout, at);
        }
        svg += &self.x_axis(&layout);
        Ok(svg + "</svg>\n")
    }

    /// The figure's title, and the panel's.
    fn heading(&self) -> String {
        match &self.panel.name {
            Some(name) => format!("{}: {}", self.spec.title, self.spec.name(name)),
            None => self.spec.title.clone(),
        }
    }

    /// What a reader who does not see it may want to know of each line: its ends.
    fn in_words(&self) -> String {
        let mut words = format!("Over {}.", self.spec.x_title);
        for (at, title) in self.spec.y_titles.iter().enumerate() {
            let ends = self.panel.lines.iter().filter_map(|line| {
                let mut there = line.points.iter().filter(|it| it.ys[at].is_some());
                let first = there.next()?;
                let last = there.next_back().unwrap_or(first);
                let end = |point: &Point| {
                    let value = point.ys[at].map_or(0.0, |it| it.median);
                    format!("{} at {}", significant(value), self.x_name(point.x))
                };
                let name = self.line_name(line);
                Some(if first.x == last.x {
                    format!("{name}{}", end(first))
                } else {
                    format!("{name}from {} to {}", end(first), end(last))
                })
            });
            let _ = write!(words, " {title}: {}.", ends.collect::<Vec<_>>().join("; "));
        }
        words
    }

    fn line_name(&self, line: &Line) -> String {
        let series = self.spec.name(&self.data.series[line.series]);
        let kind = match line.kind {
            Kind::Ours => "",
            Kind::Predicted => "(predicted) ",
            Kind::Yours => "(yours) ",
        };
        if series.is_empty() { kind.to_owned() } else { format!("{series} {kind}") }
    }

    fn x_name(&self, x: f64) -> String {
        match &self.data.words {
            Some(words) => self.spec.name(&words[x as usize]).to_owned(),
            None => significant(x),
        }
    }

    fn layout(&self) -> Result<Layout> {
        let (spec, data) = (self.spec, self.data);
        let charts = spec.ys.len();
        let values = |at: usize| data.values_of(at).flat_map(|it| [it.min, it.max]);
        let extents: Vec<_> =
            (0..charts).map(|at| Extent::of(values(at), spec.y_is_log[at])).collect();
        if let Some(at) = extents.iter().position(|it| it.min > it.max) {
            return fault(
                format!("there is no number to draw of `{}`", spec.ys[at].text),
                "name another column, or other rows with `where`: all its fields are empty",
            );
        }
        // All panels share their axes, so that the names of all series count for each of them.
        let names = data.series.iter().map(|it| text_width(spec.name(it)));
        let label_width = names.fold(0.0, f64::max);
        let count = data.series.len();
        let tick_width = extents.iter().flat_map(|it| Scale::of_values(*it, 1.0, 0.0).ticks);
        let left = tick_width.map(|it| text_width(&significant(it))).fold(0.0, f64::max) + 8.0;
        let right =
            self.size.width - if label_width > 0.0 { label_width + LEADER + 4.0 } else { 18.0 };
        if right - left < self.size.width / 3.0 {
            return fault(
                "the names of the series leave no room for their lines",
                "give them shorter ones: names=\"value: name\"",
            );
        }
        let (x, is_slanted) = self.x_scale(left, right);
        let plot_height = self.size.plot_height[charts - 1].max(count as f64 * LABEL_HEIGHT);
        let mut top = if self.panel.name.is_some() { 22.0 } else { 0.0 };
        let mut plots = Vec::new();
        for title in &spec.y_titles {
            top += LINE_HEIGHT * wrapped(title, self.size.width).len() as f64 + 11.0;
            plots.push((top, top + plot_height));
            top += plot_height + 14.0;
        }
        let ys = extents.iter().zip(&plots);
        let ys =
            ys.map(|(extent, (top, bottom))| Scale::of_values(*extent, *bottom, *top)).collect();
        let x_titles = wrapped(&spec.x_title, self.size.width).len() as f64;
        let height = top
            + 6.0
            + if is_slanted { self.slant_height() } else { 0.0 }
            + x_titles * LINE_HEIGHT
            + 6.0;
        Ok(Layout { x, ys, left, right, plots, is_slanted, height })
    }

    fn x_scale(&self, left: f64, right: f64) -> (Scale, bool) {
        let Some(words) = &self.data.words else {
            let places = self.data.places();
            let extent = Extent::of(places.iter().copied(), self.spec.x_is_log);
            let names = places.iter().map(|it| text_width(&significant(*it)));
            let room = names.fold(0.0, f64::max) + 6.0;
            return (Scale::of_places(extent, &places, room, left + 6.0, right - 6.0), false);
        };
        let room = (right - left) / words.len() as f64;
        let is_slanted = words.iter().any(|it| text_width(self.spec.name(it)) > room - 4.0);
        (Scale::of_words(words.len(), left, right), is_slanted)
    }

    fn slant_height(&self) -> f64 {
        let words = self.data.words.iter().flatten().map(|it| text_width(self.spec.name(it)));
        words.fold(0.0, f64::max) * 0.6
    }

    /// The title, the grid and the numbers of one plot.
    fn axes(&self, layout: &Layout, at: usize) -> String {
        let (top, bottom) = layout.plots[at];
        let titles = wrapped(&self.spec.y_titles[at], self.size.width);
        let first = top - 12.0 - LINE_HEIGHT * (titles.len() - 1) as f64;
        let mut svg = String::new();
        for (row, title) in titles.iter().enumerate() {
            svg += &text(0.0, first + LINE_HEIGHT * row as f64, "axis", title);
        }
        let (left, right) = (layout.left, layout.right);
        for tick in &layout.ys[at].ticks {
            let y = layout.ys[at].place(*tick);
            let _ = writeln!(svg, "<path class=\"grid\" d=\"M{left:.1} {y:.1}H{right:.1}\"/>");
            svg += &text(left - 6.0, y + 4.0, "tick end", &significant(*tick));
        }
        for tick in &layout.x.ticks {
            let x = layout.x.place(*tick);
            let _ = writeln!(svg, "<path class=\"axis\" d=\"M{x:.1} {bottom:.1}v4\"/>");
        }
        let _ = writeln!(svg, "<path class=\"axis\" d=\"M{left:.1} {bottom:.1}H{right:.1}\"/>");
        svg
    }

    /// The numbers or words below the lower plot, and the title of the axis.
    fn x_axis(&self, layout: &Layout) -> String {
        let bottom = layout.plots[layout.plots.len() - 1].1;
        let mut svg = String::new();
        for tick in &layout.x.ticks {
            let (x, y) = (layout.x.place(*tick), bottom + 17.0);
            let name = self.x_name(*tick);
            if layout.is_slanted {
                let place = format!("rotate(-35 {x:.1} {y:.1})");
                let name = escape(&name);
                let (x, y) = (x + 4.0, y - 3.0);
                let _ = writeln!(
                    svg,
                    "<text class=\"tick end\" x=\"{x:.1}\" y=\"{y:.1}\" transform=\"{place}\">{name}</text>"
                );
            } else {
                svg += &text(x, y, "tick middle", &name);
            }
        }
        let titles = wrapped(&self.spec.x_title, self.size.width);
        let middle = (layout.left + layout.right) / 2.0;
        let first = layout.height - 6.0 - LINE_HEIGHT * (titles.len() - 1) as f64;
        for (row, title) in titles.iter().enumerate() {
            // In the middle of the plot, unless it would begin outside of the picture.
            let half = text_width(title) / 2.0;
            let x = middle.min(self.size.width - half).max(half);
            svg += &text(x, first + LINE_HEIGHT * row as f64, "axis middle", title);
        }
        svg
    }

    /// The lines of one plot, those in colour over the others.
    fn lines(&self, layout: &Layout, at: usize) -> String {
        let mut lines: Vec<_> = self.panel.lines.iter().collect();
        lines.sort_by_key(|it| self.hue(it.series).is_some());
        let mut svg = String::new();
        for line in lines {
            let hue = self.hue(line.series);
            let class = hue.map_or("hue-grey".to_owned(), |it| format!("hue-{}", it + 1));
            let kind = match line.kind {
                Kind::Ours => "",
                Kind::Predicted => " predicted",
                Kind::Yours => " yours",
            };
            let _ = writeln!(svg, "<g class=\"series {class}{kind}\">");
            let place = |point: &Point| self.x_place(layout, line, point);
            let y = &layout.ys[at];
            for run in runs(line, at) {
                let is_line = run.len() > 1 && self.data.words.is_none();
                svg += &spread(&run, y, place, self.data.words.is_some());
                if is_line {
                    let corners =
                        run.iter().map(|(it, spread)| (place(it), y.place(spread.median)));
                    let _ = writeln!(svg, "<path class=\"line\" d=\"{}\"/>", path(corners));
                }
                for (point, spread) in &run {
                    let (x, y) = (place(point), y.place(spread.median));
                    match line.kind {
                        Kind::Predicted if is_line => {}
                        Kind::Predicted => svg += &bar(x, y),
                        _ => svg += &mark(hue, x, y),
                    }
                }
            }
            svg += "</g>\n";
        }
        svg
    }

    /// Where a point is. Points of several series over one word stand side by side, and what was
    /// predicted over what came of it.
    fn x_place(&self, layout: &Layout, line: &Line, point: &Point) -> f64 {
        let x = layout.x.place(point.x);
        let Some(words) = &self.data.words else { return x };
        let kind = if line.kind == Kind::Predicted { Kind::Ours } else { line.kind };
        let mut beside = self.panel.lines.iter().filter(|it| it.kind != Kind::Predicted);
        let count = beside.clone().count() as f64;
        let index = beside.position(|it| (it.series, it.kind) == (line.series, kind)).unwrap_or(0);
        let room = (layout.right - layout.left) / words.len() as f64;
        let step = (0.7 * room / count).min(12.0);
        x + (index as f64 - (count - 1.0) / 2.0) * step
    }

    /// The names of the lines of one plot, each beside the line's end.
    fn labels(&self, layout: &Layout, at: usize) -> String {
        let named: Vec<_> = self
            .panel
            .lines
            .iter()
            .filter_map(|line| {
                let name = self.spec.name(&self.data.series[line.series]);
                let has_ours = |it: &Line| it.series == line.series && it.kind == Kind::Ours;
                // Another line of a series has its colour, and a name only where there is none of ours.
                let is_known = line.kind != Kind::Ours && self.panel.lines.iter().any(has_ours);
                let last = line.points.iter().rev().find_map(|it| Some((it, it.ys[at]?)))?;
                let x = self.x_place(layout, line, last.0);
                (!is_known && !name.is_empty()).then_some((name, line.series, x, last.1.median))
            })
            .collect();
        let y = &layout.ys[at];
        let (top, bottom) = layout.plots[at];
        let wanted: Vec<_> = named.iter().map(|it| y.place(it.3)).collect();
        let places = labels::apart(&wanted, LABEL_HEIGHT, top + 2.0, bottom - 2.0);
        let mut svg = String::new();
        let label_x = layout.right + LEADER;
        for ((name, series, x, _), (from, to)) in named.iter().zip(wanted.iter().zip(&places)) {
            let (start, turn, end) = (x + 5.0, label_x - 12.0, label_x - 2.0);
            if start + 2.0 < end {
                let bend = turn.max(start);
                let _ = writeln!(
                    svg,
                    "<path class=\"leader\" d=\"M{start:.1} {from:.1}H{bend:.1}L{end:.1} {to:.1}\"/>"
                );
            }
            let class = if self.hue(*series).is_some() { "label strong" } else { "label" };
            svg += &text(label_x, to + 4.0, class, name);
        }
        svg
    }

    /// Which of the hues a series has; `None` if it is grey.
    fn hue(&self, series: usize) -> Option<usize> {
        let highlight = &self.spec.highlight;
        let rank = if highlight.is_empty() {
            Some(series)
        } else {
            highlight.iter().position(|it| *it == self.data.series[series])
        };
        rank.filter(|it| *it < HUES)
    }
}

/// The points of a line without its gaps.
fn runs(line: &Line, at: usize) -> Vec<Vec<(&Point, Spread)>> {
    let mut runs = vec![Vec::new()];
    for point in &line.points {
        match (point.ys[at], runs.last_mut()) {
            (Some(spread), Some(run)) => run.push((point, spread)),
            _ => runs.push(Vec::new()),
        }
    }
    runs.retain(|it| !it.is_empty());
    runs
}

/// From the least to the greatest: a band along a line, or a whisker at a point that has no neighbour.
fn spread(
    run: &[(&Point, Spread)],
    y: &Scale,
    place: impl Fn(&Point) -> f64,
    is_apart: bool,
) -> String {
    let is_wide = |it: &Spread| it.max > it.min;
    if run.len() > 1 && !is_apart {
        if !run.iter().any(|it| is_wide(&it.1)) {
            return String::new();
        }
        let upper = run.iter().map(|(point, it)| (place(point), y.place(it.max)));
        let lower = run.iter().rev().map(|(point, it)| (place(point), y.place(it.min)));
        return format!("<path class=\"band\" d=\"{}Z\"/>\n", path(upper.chain(lower)));
    }
    let wide = run.iter().filter(|it| is_wide(&it.1));
    wide.map(|(point, it)| {
        let (x, from, to) = (place(point), y.place(it.max), y.place(it.min));
        format!("<path class=\"whisker\" d=\"M{x:.1} {from:.1}V{to:.1}\"/>\n")
    })
    .collect()
}

fn path(corners: impl Iterator<Item = (f64, f64)>) -> String {
    let corners: Vec<_> = corners.map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
    format!("M{}", corners.join("L"))
}

/// A mark of its own shape for each hue, so that nobody has to tell them by colour alone.
pub(super) fn mark(hue: Option<usize>, x: f64, y: f64) -> String {
    let shape = match hue {
        Some(0) => {
            return format!("<circle class=\"mark\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>\n");
        }
        Some(1) => "h3v-3h-6v6h6v-3",
        Some(2) => "m0 -4l4 7h-8l4 -7",
        Some(3) => "m0 -4.2l4.2 4.2l-4.2 4.2l-4.2 -4.2z",
        _ => return format!("<circle class=\"mark\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"1.8\"/>\n"),
    };
    format!("<path class=\"mark\" d=\"M{x:.1} {y:.1}{shape}\"/>\n")
}

/// What was predicted: a line through its place, as wide as a mark of what came of it may be.
fn bar(x: f64, y: f64) -> String {
    format!("<path class=\"whisker\" d=\"M{:.1} {y:.1}h12\"/>\n", x - 6.0)
}

pub(super) fn text(x: f64, y: f64, class: &str, content: &str) -> String {
    format!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>\n", escape(content))
}

/// How wide a text is. An estimate from above: which font there is, only the browser knows.
pub(super) fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * FONT * 0.6
}

/// A text in as many lines as it needs.
pub(super) fn wrapped(text: &str, width: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if text_width(line) + text_width(word) + FONT * 0.6 <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    if lines.is_empty() { vec![String::new()] } else { lines }
}
