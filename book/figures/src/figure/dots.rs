//! `kind=dots`: names from top to bottom, and what was measured of each on one axis from left to right.
//!
//! For many names and one number each: names on a horizontal axis would lie over one another. A second
//! measure stands on the same axis, as a ring, so that the way from one to the other is a length.

use super::chart::{Size, mark, text, text_width, wrapped};
use super::data::{Data, Kind, Line, Panel, Point, Spread};
use super::scale::{Extent, Scale};
use super::spec::Spec;
use crate::fault::{Result, fault};
use crate::html::escape;
use crate::number::significant;
use std::fmt::Write;

const ROW: f64 = 18.0;
const LINE_HEIGHT: f64 = 15.0;
/// How many hues there are before grey.
const HUES: usize = 4;
/// How much lower the reader's own stands in its row.
const BELOW: f64 = 5.0;

/// What is drawn, and how.
pub struct Dots<'a> {
    /// What was asked for.
    pub spec: &'a Spec,
    /// All panels, since they share their axis.
    pub data: &'a Data,
    /// This one.
    pub panel: &'a Panel,
    /// What ids of this chart begin with.
    pub id: String,
    /// How large.
    pub size: Size,
}

/// A row of the chart: the name of a series, or one of the words.
enum Row {
    Heading(usize),
    Word(f64, usize),
}

impl Dots<'_> {
    /// The SVG, without an empty line: that would end it for Markdown.
    ///
    /// # Errors
    /// If x has no words, or the names leave no room.
    pub fn draw(&self) -> Result<String> {
        let rows = self.rows()?;
        let (scale, left, right) = self.scale()?;
        let titles: Vec<_> = self.titles();
        let mut top = if self.panel.name.is_some() { 22.0 } else { 0.0 };
        let first_title = top + 12.0;
        top += LINE_HEIGHT * titles.len() as f64 + 4.0;
        let bottom = top + ROW * rows.len() as f64 + 4.0;
        let (id, width, height) = (&self.id, self.size.width, bottom + 24.0);
        let mut svg = format!(
            "<svg class=\"{}\" viewBox=\"0 0 {width} {height:.0}\" role=\"img\" aria-labelledby=\"{id}-t {id}-d\" \
             xmlns=\"http://www.w3.org/2000/svg\">\n<title id=\"{id}-t\">{}</title>\n<desc id=\"{id}-d\">{}</desc>\n",
            self.size.class,
            escape(&self.heading()),
            escape(&self.in_words(&rows))
        );
        if let Some(name) = &self.panel.name {
            svg += &text(0.0, 14.0, "panel", self.spec.name(name));
        }
        for (at, title) in titles.iter().enumerate() {
            svg += &text(0.0, first_title + LINE_HEIGHT * at as f64, "axis", title);
        }
        svg += &axis(&scale, (left, right), (top, bottom));
        for (at, row) in rows.iter().enumerate() {
            let y = top + ROW * (at as f64 + 0.5) + 2.0;
            svg += &match *row {
                Row::Heading(series) => self.group(series, y),
                Row::Word(word, series) => self.row(word, series, y, (&scale, left)),
            };
        }
        Ok(svg + "</svg>\n")
    }

    /// The words, under the name of their series.
    fn rows(&self) -> Result<Vec<Row>> {
        let Some(words) = &self.data.words else {
            return fault(
                format!("kind=dots has a row for each word, and {} is a number", self.spec.x),
                "leave `kind` out, or name a column of words as x",
            );
        };
        let mut rows = Vec::new();
        for (series, name) in self.data.series.iter().enumerate() {
            let lines: Vec<_> = self.panel.lines.iter().filter(|it| it.series == series).collect();
            let is_here =
                |word: f64| lines.iter().any(|it| it.points.iter().any(|it| it.x == word));
            let here: Vec<f64> =
                (0..words.len()).map(|it| it as f64).filter(|it| is_here(*it)).collect();
            if !here.is_empty() && !name.is_empty() {
                rows.push(Row::Heading(series));
            }
            rows.extend(here.into_iter().map(|it| Row::Word(it, series)));
        }
        Ok(rows)
    }

    /// The axis, and where it begins and ends.
    fn scale(&self) -> Result<(Scale, f64, f64)> {
        let values = self.data.values(|_| true).flat_map(|it| [it.min, it.max]);
        let extent = Extent::of(values, self.spec.y_is_log[0]);
        if extent.min > extent.max {
            return fault(
                format!("there is no number to draw of `{}`", self.spec.ys[0].text),
                "name another column, or other rows with `where`: all its fields are empty",
            );
        }
        let names = self.data.words.iter().flatten().map(|it| text_width(self.spec.name(it)));
        let left = names.fold(0.0, f64::max) + 10.0;
        let values = self.data.values_of(0).map(|it| text_width(&significant(it.median)));
        let beside = if self.spec.ys.len() == 1 { values.fold(0.0, f64::max) + 4.0 } else { 0.0 };
        let right = self.size.width - beside - 12.0;
        if right - left < self.size.width / 4.0 {
            return fault(
                "the names leave no room for what was measured",
                "give them shorter ones: names=\"value: name\"",
            );
        }
        Ok((Scale::of_values(extent, left, right), left, right))
    }

    /// What the marks are.
    fn titles(&self) -> Vec<String> {
        let signs: &[&str] = if self.spec.ys.len() > 1 { &["● ", "○ "] } else { &[""] };
        let titles = self.spec.y_titles.iter().zip(signs);
        titles
            .flat_map(|(title, sign)| wrapped(&format!("{sign}{title}"), self.size.width))
            .collect()
    }

    fn heading(&self) -> String {
        match &self.panel.name {
            Some(name) => format!("{}: {}", self.spec.title, self.spec.name(name)),
            None => self.spec.title.clone(),
        }
    }

    /// What a reader who does not see it may want to know.
    fn in_words(&self, rows: &[Row]) -> String {
        let mut words = Vec::new();
        for row in rows {
            let Row::Word(word, series) = row else { continue };
            for line in self.lines(*series) {
                let Some(point) = line.points.iter().find(|it| it.x == *word) else { continue };
                let values: Vec<_> = point.ys.iter().map(|it| told(*it)).collect();
                let yours = if line.kind == Kind::Yours { " (yours)" } else { "" };
                words.push(format!("{}{yours} {}", self.word(*word), values.join(" and ")));
            }
        }
        format!("{}: {}.", self.spec.y_titles.join(", and "), words.join("; "))
    }

    fn lines(&self, series: usize) -> impl Iterator<Item = &Line> {
        self.panel.lines.iter().filter(move |it| it.series == series)
    }

    fn word(&self, word: f64) -> &str {
        let words = self.data.words.as_deref().unwrap_or_default();
        words.get(word as usize).map_or("", |it| self.spec.name(it))
    }

    /// The name of a series, with its mark.
    fn group(&self, series: usize, y: f64) -> String {
        let hue = self.hue(series);
        let name = self.spec.name(&self.data.series[series]);
        format!(
            "<g class=\"series {}\">\n{}</g>\n{}",
            class(hue),
            mark(hue, 4.0, y),
            text(12.0, y + 4.0, "strong", name)
        )
    }

    fn row(&self, word: f64, series: usize, y: f64, (scale, left): (&Scale, f64)) -> String {
        let mut svg = text(left - 10.0, y + 4.0, "tick end", self.word(word));
        let mut label = None;
        for line in self.lines(series) {
            let Some(point) = line.points.iter().find(|it| it.x == word) else { continue };
            let (yours, lower) =
                if line.kind == Kind::Yours { (" yours", BELOW) } else { ("", 0.0) };
            let hue = self.hue(series);
            let _ = writeln!(svg, "<g class=\"series {}{yours}\">", class(hue));
            svg += &marks(point, hue, y + lower, scale);
            svg += "</g>\n";
            if line.kind == Kind::Ours {
                label = Some(point);
            }
        }
        if let (Some(point), 1) = (label, self.spec.ys.len()) {
            svg += &text(self.size.width - 4.0, y + 4.0, "tick end", &told(point.ys[0]));
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

/// What was measured of one: from the least to the greatest, and the middle; the second measure as a ring.
fn marks(point: &Point, hue: Option<usize>, y: f64, scale: &Scale) -> String {
    let mut svg = String::new();
    if let [Some(one), Some(other)] = point.ys[..] {
        let (from, to) = (scale.place(one.median), scale.place(other.median));
        let _ = writeln!(svg, "<path class=\"leader\" d=\"M{from:.1} {y:.1}H{to:.1}\"/>");
    }
    for (at, spread) in point.ys.iter().enumerate() {
        let Some(spread) = spread else { continue };
        let (from, to) = (scale.place(spread.min), scale.place(spread.max));
        if spread.max > spread.min {
            let _ = writeln!(svg, "<path class=\"whisker\" d=\"M{from:.1} {y:.1}H{to:.1}\"/>");
        }
        let x = scale.place(spread.median);
        svg += &match at {
            0 => mark(hue, x, y),
            _ => format!("<circle class=\"ring\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>\n"),
        };
    }
    svg
}

/// The grid, the axis below it, and as many of its numbers as have room.
fn axis(scale: &Scale, (left, right): (f64, f64), (top, bottom): (f64, f64)) -> String {
    let mut svg = String::new();
    let mut free = f64::NEG_INFINITY;
    for tick in &scale.ticks {
        let (x, number) = (scale.place(*tick), significant(*tick));
        let _ = writeln!(svg, "<path class=\"grid\" d=\"M{x:.1} {top:.1}V{bottom:.1}\"/>");
        let half = text_width(&number) / 2.0;
        if x - half >= free {
            svg += &text(x, bottom + 17.0, "tick middle", &number);
            free = x + half + 6.0;
        }
    }
    let _ = writeln!(svg, "<path class=\"axis\" d=\"M{left:.1} {bottom:.1}H{right:.1}\"/>");
    svg
}

fn class(hue: Option<usize>) -> String {
    hue.map_or("hue-grey".to_owned(), |it| format!("hue-{}", it + 1))
}

fn told(spread: Option<Spread>) -> String {
    spread.map_or("–".to_owned(), |it| significant(it.median))
}
