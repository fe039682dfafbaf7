//! The chart of a run, as SVG: success, latency, throughput and concurrency over one axis of time.

use crate::{
    latency::Summary,
    record::{NEVER, Outcome, Record},
    report::{Report, UnderWay, percent},
};
use std::fmt::Write;

const WIDTH: f64 = 960.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 820.0;
const PANEL_TOP: f64 = 84.0;
const PANEL_HEIGHT: f64 = 120.0;
const PANEL_PITCH: f64 = 176.0;
const PANELS: usize = 4;

/// At most this many points in a line.
const POINTS_MAX: u64 = 240;

/// Labels are in the colour of text, and only lines in the hues: a hue alone tells nothing to some readers.
const STYLE: &str = "\
.stress-text{font:13px system-ui,sans-serif;fill:#222}\
.stress-small{font-size:11px;fill:#555}\
.stress-head{font-weight:600}\
.stress-back{fill:#fff}\
.stress-grid{stroke:#ddd;stroke-width:1}\
.stress-bound{fill:#888;opacity:.18}\
.stress-a,.stress-b,.stress-c,.stress-d{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}\
.stress-a{stroke:#1F3A93}.stress-b{stroke:#B9540A}.stress-c{stroke:#888;stroke-dasharray:5 3;stroke-linecap:butt}\
.stress-d{stroke:#7A1E3A}\
@media (prefers-color-scheme:dark){\
.stress-text{fill:#eee}.stress-small{fill:#aaa}.stress-back{fill:#16181d}.stress-grid{stroke:#3a3d45}\
.stress-a{stroke:#67D5F0}.stress-b{stroke:#F2762E}.stress-c{stroke:#999}.stress-d{stroke:#8B8CF0}}\
@media print{.stress-back{fill:none}}";

/// Success, latency, throughput and concurrency over time, as a whole SVG file.
pub fn chart(report: &Report) -> String {
    let mut svg = String::new();
    // Writing to a string does not fail.
    let _ = draw(&mut svg, report);
    svg
}

fn draw(svg: &mut String, report: &Report) -> std::fmt::Result {
    let moments = Moments::of(report);
    let axis = Axis { length_s: moments.end_s };
    let height = PANEL_TOP + PANELS as f64 * PANEL_PITCH;
    writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" role=\"img\" \
         aria-labelledby=\"stress-title stress-desc\">"
    )?;
    writeln!(svg, "<title id=\"stress-title\">stress: {}</title>", report.plan.target)?;
    writeln!(svg, "<desc id=\"stress-desc\">{}</desc>", in_words(report))?;
    writeln!(svg, "<style>{STYLE}</style>")?;
    writeln!(svg, "<rect class=\"stress-back\" width=\"{WIDTH}\" height=\"{height}\"/>")?;
    text(svg, LEFT, 26.0, "stress-head", "start", &format!("Load on {}", report.plan.target))?;
    text(svg, LEFT, 46.0, "stress-small", "start", &in_words(report))?;
    success(svg, report, &moments, &axis)?;
    latency(svg, report, &moments, &axis)?;
    throughput(svg, report, &moments, &axis)?;
    concurrency(svg, report, &moments, &axis)?;
    writeln!(svg, "</svg>")
}

/// The chart for those who do not see it.
fn in_words(report: &Report) -> String {
    let rate =
        |rate: Option<f64>, none: &str| rate.map_or(none.to_owned(), |qps| format!("{qps}/s"));
    format!(
        "{} of {} requests answered right; sustained {}, knee {}; p50 {:.1} ms, p99 {:.1} ms",
        report.totals.correct,
        report.totals.scheduled,
        rate(report.sustained_qps, "nothing"),
        rate(report.knee_qps, "not reached"),
        report.totals.latency.total.p50_ms,
        report.totals.latency.total.p99_ms,
    )
}

fn success(svg: &mut String, report: &Report, moments: &Moments, axis: &Axis) -> std::fmt::Result {
    let came = if report.stall_records.is_empty() { "" } else { "; a tick: a stalled client came" };
    let title = format!("Success, % of scheduled (by scheduled moment{came})");
    let panel = Panel::new(0, Scale::Linear(100.0));
    panel.frame(svg, report, axis, &title)?;
    let points = moments
        .points(|moment| (moment.scheduled > 0).then(|| percent(moment.correct, moment.scheduled)));
    panel.line(svg, axis, "stress-a", &points)?;
    for record in &report.stall_records {
        let x = axis.x(record.started_ns as f64 / 1e9);
        let y = panel.bottom();
        writeln!(svg, "<path class=\"stress-d\" d=\"M{x:.1} {:.1}V{y:.1}\"/>", y - 7.0)?;
    }
    panel.labels(svg, &[("correct", "stress-a", points.last())])
}

fn latency(svg: &mut String, report: &Report, moments: &Moments, axis: &Axis) -> std::fmt::Result {
    let answered = |value: fn(&Summary) -> f64| {
        moments.points(|moment| match moment.total.count {
            0 if moment.scheduled > 0 => Some(GAP),
            0 => None,
            _ => Some(value(&moment.total)),
        })
    };
    let last = |points: &[(f64, f64)]| points.iter().rfind(|point| !point.1.is_nan()).copied();
    let p50 = answered(|summary| summary.p50_ms);
    let p99 = answered(|summary| summary.p99_ms);
    let all = || p50.iter().chain(&p99).map(|point| point.1.log10());
    let lowest = all().fold(f64::INFINITY, f64::min).floor();
    let highest = all().fold(f64::NEG_INFINITY, f64::max).ceil();
    let (lowest, highest) =
        if lowest.is_finite() { (lowest, highest.max(lowest + 1.0)) } else { (0.0, 3.0) };
    let panel = Panel::new(1, Scale::Log(lowest, highest));
    panel.frame(
        svg,
        report,
        axis,
        "Latency of correct answers, ms, log scale (by scheduled moment)",
    )?;
    panel.line(svg, axis, "stress-a", &p50)?;
    panel.line(svg, axis, "stress-b", &p99)?;
    let (p50, p99) = (last(&p50), last(&p99));
    panel.labels(svg, &[("p50", "stress-a", p50.as_ref()), ("p99", "stress-b", p99.as_ref())])
}

fn throughput(
    svg: &mut String,
    report: &Report,
    moments: &Moments,
    axis: &Axis,
) -> std::fmt::Result {
    let per_second = |count: u64| count as f64 / moments.width_s;
    let scheduled: Vec<(f64, f64)> = report
        .steps
        .iter()
        .flat_map(|step| {
            let begin = if step.phase == "warmup" { 0.0 } else { step.target_qps };
            [(step.start_s, begin), (step.start_s + step.length_s, step.target_qps)]
        })
        .collect();
    let answered = moments.points(|moment| Some(per_second(moment.answered)));
    let most = scheduled.iter().chain(&answered).map(|point| point.1).fold(1.0, f64::max);
    let panel = Panel::new(2, Scale::Linear(round_up(most)));
    panel.frame(svg, report, axis, "Correct answers per second (by the moment of their end)")?;
    panel.line(svg, axis, "stress-c", &scheduled)?;
    panel.line(svg, axis, "stress-a", &answered)?;
    panel.labels(
        svg,
        &[("scheduled", "stress-c", scheduled.last()), ("answered", "stress-a", answered.last())],
    )
}

fn concurrency(
    svg: &mut String,
    report: &Report,
    moments: &Moments,
    axis: &Axis,
) -> std::fmt::Result {
    let most = moments.points(|moment| Some(f64::from(moment.under_way)));
    let highest = most.iter().map(|point| point.1).fold(1.0, f64::max);
    let panel = Panel::new(3, Scale::Linear(round_up(highest)));
    panel.frame(svg, report, axis, "Requests under way, most at once")?;
    panel.line(svg, axis, "stress-a", &most)?;
    panel.labels(svg, &[("under way", "stress-a", most.last())])?;
    text(svg, RIGHT, panel.bottom() + 34.0, "stress-small", "end", "seconds")
}

/// A value that lifts the pen: there were requests, and none of them had such a value.
const GAP: f64 = f64::NAN;

/// A line's name, its class, and its last point.
type Named<'a> = (&'a str, &'a str, Option<&'a (f64, f64)>);

struct Axis {
    length_s: f64,
}

impl Axis {
    fn x(&self, at_s: f64) -> f64 {
        LEFT + (RIGHT - LEFT) * (at_s / self.length_s).clamp(0.0, 1.0)
    }
}

#[derive(Clone, Copy)]
enum Scale {
    /// From 0 to this.
    Linear(f64),
    /// From one power of ten to another.
    Log(f64, f64),
}

struct Panel {
    top: f64,
    scale: Scale,
}

impl Panel {
    fn new(index: usize, scale: Scale) -> Panel {
        Panel { top: PANEL_TOP + index as f64 * PANEL_PITCH, scale }
    }

    fn bottom(&self) -> f64 {
        self.top + PANEL_HEIGHT
    }

    fn y(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear(most) => value / most,
            Scale::Log(lowest, highest) => (value.max(1e-9).log10() - lowest) / (highest - lowest),
        };
        self.bottom() - PANEL_HEIGHT * share.clamp(0.0, 1.0)
    }

    /// Title, grid, numbers of both axes, and a shade over the steps that say little about the server.
    fn frame(
        &self,
        svg: &mut String,
        report: &Report,
        axis: &Axis,
        title: &str,
    ) -> std::fmt::Result {
        for step in report.steps.iter().filter(|step| step.client_bound) {
            let (from, to) = (axis.x(step.start_s), axis.x(step.start_s + step.length_s));
            writeln!(
                svg,
                "<rect class=\"stress-bound\" x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" \
                 height=\"{PANEL_HEIGHT}\"><title>client-bound</title></rect>",
                self.top,
                to - from
            )?;
        }
        let shaded = report.steps.iter().any(|step| step.client_bound);
        let note = if shaded && self.top == PANEL_TOP {
            "; shaded: the generator was the limit"
        } else {
            ""
        };
        text(svg, LEFT, self.top - 10.0, "", "start", &format!("{title}{note}"))?;
        for value in self.ticks() {
            let y = self.y(value);
            writeln!(svg, "<path class=\"stress-grid\" d=\"M{LEFT} {y:.1}H{RIGHT}\"/>")?;
            text(svg, LEFT - 8.0, y + 4.0, "stress-small", "end", &plain(value))?;
        }
        let unit = round_up(axis.length_s / 8.0);
        for index in 0..=(axis.length_s / unit) as u32 {
            let at_s = f64::from(index) * unit;
            let x = axis.x(at_s);
            text(svg, x, self.bottom() + 16.0, "stress-small", "middle", &plain(at_s))?;
        }
        Ok(())
    }

    fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Linear(most) => vec![0.0, most / 2.0, most],
            Scale::Log(lowest, highest) => {
                (lowest as i32..=highest as i32).map(|power| 10f64.powi(power)).collect()
            }
        }
    }

    fn line(
        &self,
        svg: &mut String,
        axis: &Axis,
        class: &str,
        points: &[(f64, f64)],
    ) -> std::fmt::Result {
        let mut path = String::new();
        let mut is_down = false;
        for (at_s, value) in points {
            if value.is_nan() {
                is_down = false;
                continue;
            }
            // A point between two gaps is a line of no length, with round ends.
            let letter = if is_down { "L" } else { "M" };
            let (x, y) = (axis.x(*at_s), self.y(*value));
            write!(path, "{letter}{x:.1} {y:.1}")?;
            if !is_down {
                write!(path, "h0")?;
            }
            is_down = true;
        }
        if path.is_empty() {
            Ok(())
        } else {
            writeln!(svg, "<path class=\"{class}\" d=\"{path}\"/>")
        }
    }

    /// Names lines at their right ends, or a little beside, so that no name covers another.
    fn labels(&self, svg: &mut String, lines: &[Named<'_>]) -> std::fmt::Result {
        let mut places: Vec<(f64, &str, &str)> = lines
            .iter()
            .filter_map(|(name, class, end)| end.map(|end| (self.y(end.1), *name, *class)))
            .collect();
        places.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut lowest = self.top;
        let count = places.len();
        for (index, (y, name, class)) in places.into_iter().enumerate() {
            let room_below = 16.0 * (count - 1 - index) as f64;
            let y = y.max(lowest).min(self.bottom() - room_below);
            lowest = y + 16.0;
            writeln!(svg, "<path class=\"{class}\" d=\"M{:.1} {y:.1}h16\"/>", RIGHT + 10.0)?;
            text(svg, RIGHT + 32.0, y + 4.0, "", "start", name)?;
        }
        Ok(())
    }
}

/// What happened in one stretch of time.
#[derive(Default)]
struct Moment {
    scheduled: u64,
    correct: u64,
    answered: u64,
    under_way: u32,
    total: Summary,
}

struct Moments {
    width_s: f64,
    end_s: f64,
    all: Vec<Moment>,
}

impl Moments {
    fn of(report: &Report) -> Moments {
        let last_step = report.steps.last().map_or(1.0, |step| step.start_s + step.length_s);
        let ended = report.records.iter().map(|record| record.closed_ns).filter(|at| *at != NEVER);
        let end_s = last_step.max(ended.max().unwrap_or(0) as f64 / 1e9);
        let width_ns = (end_s * 1e9 / POINTS_MAX as f64).ceil().max(100e6) as u64;
        let under_way = UnderWay::new(&report.records);
        let count = (end_s * 1e9 / width_ns as f64) as u64 + 1;
        let mut latencies: Vec<Vec<u64>> = (0..count).map(|_| Vec::new()).collect();
        let mut all: Vec<Moment> = (0..count).map(|_| Moment::default()).collect();
        let place = |at_ns: u64| ((at_ns / width_ns) as usize).min(count as usize - 1);
        for record in &report.records {
            let due = place(record.scheduled_ns);
            all[due].scheduled += 1;
            if record.outcome == Outcome::Correct {
                all[due].correct += 1;
                all[place(record.closed_ns)].answered += 1;
                latencies[due].push(waited(record));
            }
        }
        for (index, moment) in all.iter_mut().enumerate() {
            let from_ns = index as u64 * width_ns;
            moment.under_way = under_way.between(from_ns, from_ns + width_ns).0;
            moment.total = Summary::of(std::mem::take(&mut latencies[index]));
        }
        Moments { width_s: width_ns as f64 / 1e9, end_s, all }
    }

    /// Points in the middle of each stretch that has a value.
    fn points(&self, value: impl Fn(&Moment) -> Option<f64>) -> Vec<(f64, f64)> {
        let at_s = |index: usize| (index as f64 + 0.5) * self.width_s;
        let all = self.all.iter().enumerate();
        all.filter_map(|(index, moment)| Some((at_s(index), value(moment)?))).collect()
    }
}

fn waited(record: &Record) -> u64 {
    record.closed_ns - record.scheduled_ns
}

fn text(
    svg: &mut String,
    x: f64,
    y: f64,
    class: &str,
    anchor: &str,
    words: &str,
) -> std::fmt::Result {
    writeln!(
        svg,
        "<text class=\"stress-text {class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>"
    )
}

/// The next of 1, 2, 5, 10, 20, 50, …
fn round_up(value: f64) -> f64 {
    let power = 10f64.powf(value.max(1e-6).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0];
    steps.into_iter().map(|step| step * power).find(|step| *step >= value * 0.999).unwrap_or(value)
}

/// A number without needless digits.
fn plain(value: f64) -> String {
    let text = format!("{value:.3}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_end_at_round_numbers() {
        for (value, next) in [(0.3, 0.5), (1.0, 1.0), (46.0, 50.0), (460.0, 500.0), (501.0, 1000.0)]
        {
            assert!((round_up(value) - next).abs() < 1e-9, "{value}");
        }
        assert_eq!(
            (plain(0.1), plain(100.0), plain(2.5)),
            ("0.1".into(), "100".into(), "2.5".into())
        );
    }
}
