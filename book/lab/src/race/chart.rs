//! The chart of the race (SVG): a column for each server, success above latency, one server in colour
//! over the others in grey.

use crate::{
    experiment::Scale,
    race::{
        KINDS, STALL_SHARE,
        scoreboard::{Tally, thousands},
    },
    records::Record,
    servers::short,
};
use contract::verdicts::Column;
use std::fmt::Write;
use stress::StallKind;

const WIDTH_MAX: f64 = 960.0;
/// The lines below the title need as much.
const WIDTH_MIN: f64 = 680.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 18.0;
const GAP: f64 = 22.0;
const PANEL_WIDTH_MAX: f64 = 360.0;
const HEAD: f64 = 116.0;
const KIND_TITLE: f64 = 50.0;
const SUCCESS_HEIGHT: f64 = 84.0;
const BETWEEN: f64 = 26.0;
const LATENCY_HEIGHT: f64 = 150.0;
const TICKS: f64 = 42.0;
/// The least latency that is drawn.
const LEAST_MS: f64 = 0.015;
/// Labels of steps closer than this would touch.
const TICK_LABELS_APART: f64 = 30.0;
/// From a point to the middle of a label beside it.
const NAME_BESIDE: f64 = 13.0;
/// Room for what a server is, below its name.
const ABOUT_WIDTH: f64 = 190.0;

/// The chart, if there is a staircase to draw.
pub fn chart(servers: &[Column], records: &[Record], scale: &Scale) -> Option<String> {
    let staircase: Vec<&Record> =
        records.iter().filter(|it| it.experiment == "race-staircase").collect();
    if staircase.is_empty() {
        return None;
    }
    let chart = Chart { servers, records: staircase, scale };
    Some(chart.draw())
}

/// The rate of a step, and its value if it has one.
type Step = (f64, Option<f64>);

struct Chart<'a> {
    servers: &'a [Column],
    records: Vec<&'a Record>,
    scale: &'a Scale,
}

/// Where one panel stands, and which values its edges are.
#[derive(Clone, Copy)]
struct Panel {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
    rate_max: f64,
    axis: Axis,
}

#[derive(Clone, Copy)]
enum Axis {
    /// From 0 to 100.
    Percent,
    /// In decades, from [`LEAST_MS`] to this.
    Milliseconds(f64),
}

impl Chart<'_> {
    fn draw(&self) -> String {
        let band = KIND_TITLE + SUCCESS_HEIGHT + BETWEEN + LATENCY_HEIGHT + TICKS;
        let height = HEAD + band * KINDS.len() as f64;
        let (last_x, last_width) = self.column(self.servers.len().saturating_sub(1));
        let width = (last_x + last_width + RIGHT).max(WIDTH_MIN);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" class=\"race\" \
             role=\"img\" aria-labelledby=\"race-title race-description\">\n\
             <title id=\"race-title\">The race: servers, stalled clients, a staircase of load</title>\n\
             <desc id=\"race-description\">{}</desc>\n<style>\n{STYLE}</style>\n\
             <rect class=\"race-page\" width=\"{width}\" height=\"{height}\"/>\n",
            escape(&self.description())
        );
        text(&mut svg, "race-big", (LEFT, 26.0), "Who goes on serving while some clients stall?");
        for (line, words) in self.legend().iter().enumerate() {
            text(&mut svg, "race-small", (LEFT, 44.0 + 15.0 * line as f64), words);
        }
        for (index, server) in self.servers.iter().enumerate() {
            let (x, width) = self.column(index);
            let class = format!("race-name race-fill{}", hue(server));
            text(&mut svg, &class, (x, HEAD - 19.0), short(server.name));
            if width >= ABOUT_WIDTH {
                text(&mut svg, "race-small", (x, HEAD - 3.0), server.about);
            }
        }
        for (index, kind) in KINDS.into_iter().enumerate() {
            self.draw_kind(&mut svg, kind, HEAD + band * index as f64);
        }
        svg += "</svg>\n";
        svg
    }

    fn draw_kind(&self, svg: &mut String, kind: StallKind, top: f64) {
        let title = format!("{} % of the clients {}", STALL_SHARE * 100.0, kind_words(kind));
        text(svg, "race-kind", (LEFT, top + 26.0), &title);
        for (index, server) in self.servers.iter().enumerate() {
            let (x, width) = self.column(index);
            let rate_max = self.scale.rates.iter().copied().fold(1.0, f64::max);
            let success = Panel {
                x,
                y: top + KIND_TITLE,
                width,
                height: SUCCESS_HEIGHT,
                rate_max,
                axis: Axis::Percent,
            };
            let latency = Panel {
                y: success.y + SUCCESS_HEIGHT + BETWEEN,
                height: LATENCY_HEIGHT,
                axis: Axis::Milliseconds(self.patience_ms() * 1.6),
                ..success
            };
            success.grid(svg, index == 0, &[(0.0, "0"), (50.0, "50"), (100.0, "100 %")]);
            latency.grid(svg, index == 0, &self.latency_ticks());
            self.draw_rates(svg, &latency, index == 0);
            self.draw_patience(svg, &latency, index == 0);
            for other in self.servers.iter().filter(|it| *it != server) {
                success.line(svg, "race-other", &self.values(other, kind, success_of));
                latency.line(svg, "race-other", &self.values(other, kind, |it| it.p50_ms));
            }
            if index == 0 {
                text(svg, "race-small", (x, success.y - 7.0), "answered");
                text(svg, "race-small", (x, latency.y - 7.0), "latency");
            }
            self.draw_server(svg, server, kind, &success, &latency);
        }
    }

    fn draw_server(
        &self,
        svg: &mut String,
        server: &Column,
        kind: StallKind,
        success: &Panel,
        latency: &Panel,
    ) {
        let hue = hue(server);
        let records: Vec<Record> = self.records.iter().map(|it| (*it).clone()).collect();
        let Some(tally) = Tally::of(&records, server.name, kind.name()) else {
            let middle = (success.x + success.width / 2.0, success.y + success.height / 2.0);
            text(svg, "race-small race-middle", middle, "not measured");
            return;
        };
        let line = format!("race-line race-stroke{hue}");
        let thin = format!("race-thin race-stroke{hue}");
        let answered = self.values(server, kind, success_of);
        success.line(svg, &line, &answered);
        success.dots(svg, hue, &answered);
        let total = format!("{:.1} %", tally.percent());
        // Where the line is not: below it if it ends high, above it if it ends low.
        let ends_high = answered.last().is_some_and(|(_, percent)| *percent > Some(50.0));
        let at = success.y + success.height * if ends_high { 0.4 } else { 0.25 };
        text(svg, "race-label race-end", (success.x + success.width - 4.0, at), &total);
        let p50 = self.values(server, kind, |it| it.p50_ms);
        let p99 = self.values(server, kind, |it| it.p99_ms);
        latency.line(svg, &thin, &p99);
        latency.line(svg, &line, &p50);
        latency.dots(svg, hue, &p50);
        latency.name_lines(svg, &p50, &p99);
        self.draw_unanswered(svg, server, kind, latency);
    }

    /// A cross at the clients' patience for each step in which nobody was answered: without latency, it
    /// would look as if there had been no load.
    fn draw_unanswered(&self, svg: &mut String, server: &Column, kind: StallKind, panel: &Panel) {
        let rows = self.rows(server, kind).into_iter();
        let empty: Vec<f64> =
            rows.filter(|it| it.p50_ms.is_none()).map(|it| it.target_qps).collect();
        let y = panel.y_of(self.patience_ms());
        for rate in &empty {
            let x = panel.x_of(*rate);
            // Writing to a string cannot fail.
            let _ = writeln!(
                svg,
                "<path class=\"race-cross race-stroke{}\" d=\"M{:.1} {:.1}l8 8m0 -8l-8 8\"/>",
                hue(server),
                x - 4.0,
                y - 4.0
            );
        }
    }

    fn draw_patience(&self, svg: &mut String, panel: &Panel, named: bool) {
        let y = panel.y_of(self.patience_ms());
        let _ = writeln!(
            svg,
            "<path class=\"race-patience\" d=\"M{:.1} {y:.1}h{:.1}\"/>",
            panel.x, panel.width
        );
        if named {
            text(svg, "race-small race-end", (panel.x - 6.0, y + 4.0), &self.patience());
        }
    }

    /// The steps, at the foot of the latency panel. Labels that would touch are left out, the last one
    /// never.
    fn draw_rates(&self, svg: &mut String, panel: &Panel, named: bool) {
        let foot = panel.y + panel.height;
        let last = panel.x_of(panel.rate_max);
        let mut free_from = f64::NEG_INFINITY;
        for rate in &self.scale.rates {
            let x = panel.x_of(*rate);
            let _ = writeln!(svg, "<path class=\"race-grid\" d=\"M{x:.1} {foot:.1}v4\"/>");
            if x >= free_from && (x == last || x <= last - TICK_LABELS_APART) {
                text(svg, "race-small race-middle", (x, foot + 16.0), &rate.to_string());
                free_from = x + TICK_LABELS_APART;
            }
        }
        if named {
            text(svg, "race-small", (panel.x, foot + 31.0), "requests per second");
        }
    }

    fn latency_ticks(&self) -> Vec<(f64, &'static str)> {
        let ticks = [
            (0.1, "0.1 ms"),
            (1.0, "1 ms"),
            (10.0, "10 ms"),
            (100.0, "0.1 s"),
            (1_000.0, "1 s"),
            (10_000.0, "10 s"),
        ];
        // The clients' patience has a line of its own, and its label wants room.
        ticks.into_iter().filter(|(value, _)| *value < self.patience_ms() / 2.0).collect()
    }

    fn patience(&self) -> String {
        format!("{} s", self.scale.timeout.as_secs_f64())
    }

    fn patience_ms(&self) -> f64 {
        self.scale.timeout.as_secs_f64() * 1e3
    }

    /// Left edge and width of a server's column.
    fn column(&self, index: usize) -> (f64, f64) {
        let count = self.servers.len().max(1) as f64;
        let width = ((WIDTH_MAX - LEFT - RIGHT - GAP * (count - 1.0)) / count).min(PANEL_WIDTH_MAX);
        (LEFT + index as f64 * (width + GAP), width)
    }

    fn rows(&self, server: &Column, kind: StallKind) -> Vec<&Record> {
        let mine = |it: &&&Record| it.server == server.name && it.stall == kind.name();
        let mut rows: Vec<&Record> = self.records.iter().filter(mine).copied().collect();
        rows.sort_by(|one, other| one.target_qps.total_cmp(&other.target_qps));
        rows
    }

    /// Rate and value of each step, in order of the rate.
    fn values(
        &self,
        server: &Column,
        kind: StallKind,
        value: fn(&Record) -> Option<f64>,
    ) -> Vec<Step> {
        self.rows(server, kind).into_iter().map(|it| (it.target_qps, value(it))).collect()
    }

    fn legend(&self) -> [String; 2] {
        let requests = thousands(self.scale.requests());
        let patience = self.patience();
        [
            format!(
                "{requests} requests to each server over loopback.{} Cross: nobody was answered.",
                if self.servers.len() > 1 { " Grey: the other servers." } else { "" }
            ),
            format!(
                "Latency of those answered: thick p50, thin p99; dashed: a client's patience, {patience}."
            ),
        ]
    }

    /// The chart in words.
    fn description(&self) -> String {
        let records: Vec<Record> = self.records.iter().map(|it| (*it).clone()).collect();
        let mut words =
            String::from("Columns are servers; rows are success and latency over load.");
        for kind in KINDS {
            for server in self.servers {
                let Some(tally) = Tally::of(&records, server.name, kind.name()) else { continue };
                let knee = tally.knee_qps.map_or_else(
                    || "and has no knee".into(),
                    |qps| format!("and falls to half or less at {qps} per second"),
                );
                let _ = write!(
                    words,
                    " {} with {kind} clients answers {:.1} % {knee}.",
                    short(server.name),
                    tally.percent()
                );
            }
        }
        words
    }
}

impl Panel {
    fn x_of(&self, rate: f64) -> f64 {
        // A margin on both sides, so that the first and the last dot are whole.
        self.x + 8.0 + (self.width - 16.0) * rate / self.rate_max
    }

    fn y_of(&self, value: f64) -> f64 {
        let share = match self.axis {
            Axis::Percent => value / 100.0,
            Axis::Milliseconds(most) => {
                (value.max(LEAST_MS) / LEAST_MS).ln() / (most / LEAST_MS).ln()
            }
        };
        self.y + self.height * (1.0 - share.clamp(0.0, 1.0))
    }

    fn grid(&self, svg: &mut String, named: bool, ticks: &[(f64, &str)]) {
        for (value, name) in ticks {
            let y = self.y_of(*value);
            let _ = writeln!(
                svg,
                "<path class=\"race-grid\" d=\"M{:.1} {y:.1}h{:.1}\"/>",
                self.x, self.width
            );
            if named {
                text(svg, "race-small race-end", (self.x - 6.0, y + 4.0), name);
            }
        }
    }

    /// A line through the steps that have a value, broken where one has none.
    fn line(&self, svg: &mut String, class: &str, steps: &[Step]) {
        for part in steps.split(|(_, value)| value.is_none()).filter(|part| part.len() > 1) {
            let points: Vec<String> =
                self.points(part).iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let _ = writeln!(svg, "<polyline class=\"{class}\" points=\"{}\"/>", points.join(" "));
        }
    }

    fn dots(&self, svg: &mut String, hue: usize, steps: &[Step]) {
        for (x, y) in self.points(steps) {
            let _ = writeln!(
                svg,
                "<circle class=\"race-fill{hue}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>"
            );
        }
    }

    /// Where the steps that have a value are drawn.
    fn points(&self, steps: &[Step]) -> Vec<(f64, f64)> {
        steps
            .iter()
            .filter_map(|(rate, value)| Some((self.x_of(*rate), self.y_of((*value)?))))
            .collect()
    }

    /// Names the two lines where they are furthest apart, each on the side that its line leaves free.
    /// The first point has no room on its left.
    fn name_lines(&self, svg: &mut String, p50: &[Step], p99: &[Step]) {
        let (low, high) = (self.points(p50), self.points(p99));
        let gap = |index: &usize| low[*index].1 - high[*index].1;
        let count = low.len().min(high.len());
        let first = usize::from(count > 1);
        let widest = (first..count).max_by(|one, other| gap(one).total_cmp(&gap(other)));
        let Some(index) = widest else { return };
        let above = (high[index].1 - 7.0).max(self.y + 4.0);
        self.name_line(svg, "p99", &high, index, above, |next, here| next < here);
        self.name_line(svg, "p50", &low, index, low[index].1 + 15.0, |next, here| next > here);
    }

    /// `meets` says whether a line that goes on from the one y to the other would meet a label to the
    /// right of the point.
    fn name_line(
        &self,
        svg: &mut String,
        name: &str,
        points: &[(f64, f64)],
        index: usize,
        y: f64,
        meets: fn(f64, f64) -> bool,
    ) {
        let (here_x, here_y) = points[index];
        let to_left = points.get(index + 1).is_none_or(|next| meets(next.1, here_y));
        let x = here_x + if to_left { -NAME_BESIDE } else { NAME_BESIDE };
        let x = x.clamp(self.x + NAME_BESIDE, self.x + self.width - NAME_BESIDE);
        text(svg, "race-label race-middle", (x, y), name);
    }
}

fn success_of(record: &Record) -> Option<f64> {
    Some(record.success_percent())
}

fn kind_words(kind: StallKind) -> &'static str {
    match kind {
        StallKind::Silent => "connect and say nothing",
        StallKind::HalfLine => "say half a line and stop",
        StallKind::Drip => "drip",
        StallKind::Deaf => "never read the answer",
    }
}

/// The colour of a server: that of its chapter.
fn hue(server: &Column) -> usize {
    let number: usize = short(server.name).get(..2).and_then(|it| it.parse().ok()).unwrap_or(1);
    (number + HUES - 1) % HUES
}

const HUES: usize = 4;

fn text(svg: &mut String, class: &str, at: (f64, f64), words: &str) {
    let _ = writeln!(
        svg,
        "<text class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
        at.0,
        at.1,
        escape(words)
    );
}

fn escape(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Labels have the colour of text, never of a line; behind them a rim of the page's colour keeps grey
/// lines off them.
const STYLE: &str = "\
.race text { font: 12px system-ui, sans-serif; fill: #222; }
.race .race-page { fill: #fff; }
.race .race-big { font-size: 17px; font-weight: 600; }
.race .race-kind { font-size: 13px; font-weight: 600; }
.race .race-name { font-size: 15px; font-weight: 700; }
.race .race-small { font-size: 11px; fill: #555; }
.race .race-label { stroke: #fff; stroke-width: 3px; paint-order: stroke; }
.race .race-middle { text-anchor: middle; }
.race .race-end { text-anchor: end; }
.race .race-grid { stroke: #ddd; fill: none; }
.race .race-patience { stroke: #888; stroke-dasharray: 4 3; fill: none; }
.race .race-other { stroke: #c4c4c4; stroke-width: 1.2; fill: none; }
.race .race-line { stroke-width: 2.4; fill: none; }
.race .race-thin { stroke-width: 1.2; fill: none; }
.race .race-cross { stroke-width: 2; fill: none; }
.race .race-stroke0 { stroke: #1F3A93; } .race .race-fill0 { fill: #1F3A93; }
.race .race-stroke1 { stroke: #B9540A; } .race .race-fill1 { fill: #B9540A; }
.race .race-stroke2 { stroke: #5B7FD1; } .race .race-fill2 { fill: #5B7FD1; }
.race .race-stroke3 { stroke: #7A1E3A; } .race .race-fill3 { fill: #7A1E3A; }
@media (prefers-color-scheme: dark) {
.race text { fill: #eee; }
.race .race-page { fill: #16191d; }
.race .race-small { fill: #b5b5b5; }
.race .race-label { stroke: #16191d; }
.race .race-grid { stroke: #33383e; }
.race .race-patience { stroke: #888; }
.race .race-other { stroke: #565c63; }
.race .race-stroke0 { stroke: #67D5F0; } .race .race-fill0 { fill: #67D5F0; }
.race .race-stroke1 { stroke: #F2762E; } .race .race-fill1 { fill: #F2762E; }
.race .race-stroke2 { stroke: #F7DC6F; } .race .race-fill2 { fill: #F7DC6F; }
.race .race-stroke3 { stroke: #8B8CF0; } .race .race-fill3 { fill: #8B8CF0; }
}
";
