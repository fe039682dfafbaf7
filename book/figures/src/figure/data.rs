//! What a figure shows: rows of a record as lines of points, with the spread of their repeats.

use super::spec::Spec;
use crate::condition::{self, same};
use crate::expression::{Aggregate, Column, Written};
use crate::fault::{Result, fault};
use crate::record::{Row, Table};
use std::collections::BTreeSet;

/// All of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Data {
    /// The places of the x axis, if they are words.
    pub words: Option<Vec<String>>,
    /// The series, in the order of the record.
    pub series: Vec<String>,
    /// The charts, in the order of the record; one without a name if they are not told apart.
    pub panels: Vec<Panel>,
}

/// A chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// The value of the panel's column.
    pub name: Option<String>,
    /// Its lines, ours before the reader's.
    pub lines: Vec<Line>,
}

/// A line.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Which of the series.
    pub series: usize,
    /// What it tells.
    pub kind: Kind,
    /// From left to right.
    pub points: Vec<Point>,
}

/// What a line tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What a committed record says.
    Ours,
    /// What it says was foretold.
    Predicted,
    /// What the reader's says.
    Yours,
}

/// What was measured at one place.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The place: a number, or which of the words.
    pub x: f64,
    /// One for each `y`; `None` if it was not measured.
    pub ys: Vec<Option<Spread>>,
}

/// Repeats of one measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle one.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// How many.
    pub count: usize,
}

/// What an experiment chooses: rows that differ in one of these are no repeats of each other.
const CHOSEN: [&str; 13] = [
    "experiment",
    "server",
    "link",
    "stall",
    "stall_percent",
    "target_qps",
    "cores",
    "reactors",
    "clients",
    "connections",
    "idle",
    "pipeline",
    "workers",
];

/// Gathers what `spec` asks for from our record, and adds the reader's to it if there is one.
///
/// # Errors
/// If a column is missing, a field is no number, nothing is left to draw, or what is taken for repeats
/// is none.
pub fn gather(spec: &Spec, ours: &Table) -> Result<Data> {
    let rows = condition::select(ours, &spec.conditions)?;
    let mut data =
        Data { words: words(spec, ours, &rows)?, series: Vec::new(), panels: Vec::new() };
    data.add(spec, ours, &rows, Kind::Ours)?;
    for (at, name) in data.series.iter().enumerate() {
        let has_value = data.values(|it| it.series == at && it.kind == Kind::Ours).next().is_some();
        if !has_value {
            return fault(
                format!("{}: there is no number to draw of {name}", ours.shown),
                "leave it out with `where`, or measure it: all its fields are empty",
            );
        }
    }
    let mut named = spec.highlight.iter().filter(|it| !it.is_empty());
    if let Some(lost) = named.find(|it| !data.series.contains(it)) {
        return fault(
            format!("highlight={lost} is none of the series"),
            format!("there are {}", data.series.join(", ")),
        );
    }
    Ok(data)
}

/// Adds the lines of the reader's record.
///
/// # Errors
/// As [`gather`]. Then `data` is as it was.
pub fn overlay(data: &mut Data, spec: &Spec, yours: &Table) -> Result<()> {
    let mut both = data.clone();
    let rows = condition::select(yours, &spec.conditions)?;
    let theirs = words(spec, yours, &rows)?;
    match (&mut both.words, theirs) {
        (None, None) => {}
        (Some(words), theirs) => {
            let column = yours.column(&spec.x)?;
            let new = theirs.unwrap_or_else(|| distinct(&rows, column));
            let new: Vec<_> = new.into_iter().filter(|it| !words.contains(it)).collect();
            words.extend(new);
        }
        (None, Some(_)) => return fault(format!("{} has words", spec.x), "ours has numbers there"),
    }
    both.add(spec, yours, &rows, Kind::Yours)?;
    *data = both;
    Ok(())
}

impl Data {
    /// Every number that is drawn of the lines that `is_meant`.
    pub fn values(&self, is_meant: impl Fn(&Line) -> bool) -> impl Iterator<Item = Spread> {
        let lines = self.panels.iter().flat_map(|it| &it.lines).filter(move |it| is_meant(it));
        lines.flat_map(|it| &it.points).flat_map(|it| it.ys.iter().flatten().copied())
    }

    /// Every number of the chart with this index: 0 is the upper one.
    pub fn values_of(&self, chart: usize) -> impl Iterator<Item = Spread> {
        let lines = self.panels.iter().flat_map(|it| &it.lines);
        lines.flat_map(|it| &it.points).filter_map(move |it| it.ys[chart])
    }

    /// Every place of the x axis, sorted, each once.
    pub fn places(&self) -> Vec<f64> {
        let lines = self.panels.iter().flat_map(|it| &it.lines);
        let mut places: Vec<_> = lines.flat_map(|it| &it.points).map(|it| it.x).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        places
    }

    fn add(&mut self, spec: &Spec, table: &Table, rows: &[&Row], kind: Kind) -> Result<()> {
        let value = |row: &Row, column: &Option<String>| -> Result<Option<String>> {
            let Some(column) = column else { return Ok(None) };
            Ok(Some(row.fields[table.column(column)?].clone()))
        };
        let mut groups: Vec<(usize, usize, f64, Vec<&Row>)> = Vec::new();
        for row in rows {
            let panel = value(row, &spec.panel)?;
            let panel = position(
                &mut self.panels,
                |it| it.name == panel,
                || Panel { name: panel.clone(), lines: Vec::new() },
            );
            let series = value(row, &spec.series)?.unwrap_or_default();
            let series = position(&mut self.series, |it| *it == series, || series.clone());
            let x = self.place(spec, table, row)?;
            let at = position(
                &mut groups,
                |it| (it.0, it.1) == (panel, series) && it.2 == x,
                || (panel, series, x, Vec::new()),
            );
            groups[at].3.push(row);
        }
        for (panel, series, x, rows) in groups {
            are_repeats(spec, table, &rows)?;
            let logs = spec.ys.iter().zip(&spec.y_is_log);
            let ys: Result<Vec<_>> =
                logs.map(|(y, is_log)| spread(y, *is_log, table, &rows)).collect();
            self.panels[panel].add(series, kind, Point { x, ys: ys? });
            let Some(predicted) = spec.predicted.as_ref().filter(|_| kind == Kind::Ours) else {
                continue;
            };
            let median = spread(predicted, spec.y_is_log[0], table, &rows)?;
            // A formula has no spread of its own: that of what goes into it is not drawn.
            let alone = median.map(|Spread { median, .. }| Spread {
                median,
                min: median,
                max: median,
                count: 1,
            });
            let mut ys = vec![None; spec.ys.len()];
            ys[0] = alone;
            self.panels[panel].add(series, Kind::Predicted, Point { x, ys });
        }
        for line in self.panels.iter_mut().flat_map(|it| &mut it.lines) {
            line.points.sort_by(|one, other| one.x.total_cmp(&other.x));
        }
        Ok(())
    }

    /// Where on the x axis a row is.
    fn place(&self, spec: &Spec, table: &Table, row: &Row) -> Result<f64> {
        let column = table.column(&spec.x)?;
        let place = match &self.words {
            Some(words) => {
                words.iter().position(|it| *it == row.fields[column]).map(|it| it as f64)
            }
            None => table.number(row, column)?,
        };
        match place {
            Some(x) if spec.x_is_log && x <= 0.0 => fault(
                format!(
                    "{}:{}: {} is {x}, and a logarithm needs more than 0",
                    table.shown, row.line, spec.x
                ),
                "leave the row out with `where`, or x out of `log`",
            ),
            Some(x) => Ok(x),
            None => fault(
                format!("{}:{}: {} is empty", table.shown, row.line, spec.x),
                "leave the row out with `where`: it has no place on the x axis",
            ),
        }
    }
}

impl Panel {
    /// Adds a point to the line of a series, which is added too if it is not there.
    fn add(&mut self, series: usize, kind: Kind, point: Point) {
        let is_it = |it: &Line| (it.series, it.kind) == (series, kind);
        let line = position(&mut self.lines, is_it, || Line { series, kind, points: Vec::new() });
        self.lines[line].points.push(point);
    }
}

/// Where in `list` the first that `is_it` stands; it is added if there is none.
fn position<T>(list: &mut Vec<T>, is_it: impl Fn(&T) -> bool, make: impl FnOnce() -> T) -> usize {
    list.iter().position(is_it).unwrap_or_else(|| {
        list.push(make());
        list.len() - 1
    })
}

/// The values of x, in the order of the record, if they are not numbers.
fn words(spec: &Spec, table: &Table, rows: &[&Row]) -> Result<Option<Vec<String>>> {
    let column = table.column(&spec.x)?;
    let is_text = |row: &&&Row| row.fields[column].trim().parse::<f64>().is_err();
    // One that is empty or broken is told by its line, if the others are numbers.
    let has_numbers = rows.iter().any(|it| !is_text(&it));
    Ok((!has_numbers).then(|| distinct(rows, column)))
}

fn distinct(rows: &[&Row], column: usize) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for row in rows {
        if !words.contains(&row.fields[column]) {
            words.push(row.fields[column].clone());
        }
    }
    words
}

/// Whether rows at one place of one line are repeats: a median over different things would be a lie.
fn are_repeats(spec: &Spec, table: &Table, rows: &[&Row]) -> Result<()> {
    let column = |name: &&str| table.columns.iter().position(|it| it == name);
    let place = format!("{}:{}", table.shown, rows[0].line);
    for at in CHOSEN.iter().filter_map(column) {
        let first = &rows[0].fields[at];
        if let Some(other) = rows.iter().find(|it| !same(&it.fields[at], first)) {
            let (name, other) = (&table.columns[at], &other.fields[at]);
            return fault(
                format!("{place}: one point would be of {name}={first} and of {name}={other}"),
                format!("add where=\"{name}={first}\", or series={name}, or panel={name}"),
            );
        }
    }
    // Seeds tell repeats apart. Where there are none, a step is a round, of one thing again and again.
    let of = |row: &Row, name: &str| {
        column(&name).map(|at| row.fields[at].trim().to_owned()).filter(|it| !it.is_empty())
    };
    let mut seen = BTreeSet::new();
    let twice = rows.iter().find(|it| !seen.insert(of(it, "seed").or_else(|| of(it, "step"))));
    let step = |row: &Row| of(row, "seed").and_then(|_| of(row, "step"));
    let climbed = rows.iter().find(|it| step(it) != step(rows[0]));
    match twice.or(climbed) {
        Some(other) => fault(
            format!(
                "{place} and line {} have one place in the figure, and are no repeats by their seed",
                other.line
            ),
            format!("say which with `where`, or tell them apart with `series`; x is {}", spec.x),
        ),
        None => Ok(()),
    }
}

/// The spread of one `y` over repeats; `None` if it was measured in none of them.
fn spread(
    y: &Written<Column>,
    is_log: bool,
    table: &Table,
    rows: &[&Row],
) -> Result<Option<Spread>> {
    let values: Result<Vec<_>> = rows.iter().map(|it| y.value(table, it)).collect();
    let values: Vec<f64> = values?.into_iter().flatten().collect();
    if values.is_empty() {
        return Ok(None);
    }
    let min = Aggregate::Min.of(&values);
    if is_log && min <= 0.0 {
        return fault(
            format!(
                "{}:{}: `{}` is {min}, and a logarithm needs more than 0",
                table.shown, rows[0].line, y.text
            ),
            "leave the row out with `where`, or the axis out of `log`",
        );
    }
    Ok(Some(Spread {
        median: Aggregate::Median.of(&values),
        min,
        max: Aggregate::Max.of(&values),
        count: values.len(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = "server,stall,seed,rate,p50,link\n\
        a,silent,1,10,1,x\na,silent,2,10,5,x\na,silent,3,10,2,x\na,silent,1,20,,x\n\
        b,silent,1,20,4,y\nb,silent,1,10,3,y\n";

    fn gathered(options: &str, rows: &str) -> Result<Data> {
        let spec = Spec::read(&format!("r title=T {options}")).unwrap();
        gather(&spec, &Table::parse(rows, "data/r.csv".into()).unwrap())
    }

    #[test]
    fn repeats_become_a_median_and_a_spread() {
        let data = gathered("x=rate y=p50 series=server", ROWS).unwrap();
        assert_eq!(data.series, ["a", "b"]);
        let [panel] = &data.panels[..] else { panic!("{data:?}") };
        let points = &panel.lines[0].points;
        let spread = Spread { median: 2.0, min: 1.0, max: 5.0, count: 3 };
        assert_eq!(points[0], Point { x: 10.0, ys: vec![Some(spread)] });
        assert_eq!(points[1], Point { x: 20.0, ys: vec![None] });
        let places: Vec<_> = panel.lines[1].points.iter().map(|it| it.x).collect();
        assert_eq!(places, [10.0, 20.0], "from left to right");
    }

    #[test]
    fn words_have_places_in_the_order_of_the_record() {
        let data = gathered("x=link y=p50 panel=server where=\"seed=1, rate=10\"", ROWS).unwrap();
        assert_eq!(data.words.as_deref(), Some(&["x".to_owned(), "y".to_owned()][..]));
        assert_eq!(data.panels[1].name.as_deref(), Some("b"));
        assert_eq!(data.panels[1].lines[0].points[0].x, 1.0);
    }

    #[test]
    fn what_cannot_be_drawn_is_told() {
        let mixed = "x=rate y=p50";
        for (options, rows, what) in [
            (mixed, ROWS, "data/r.csv:2: one point would be of server=a and of server=b"),
            (mixed, "rate,p50\n1,1\n1,2\n", "data/r.csv:2 and line 3 have one place"),
            (mixed, "seed,rate,p50\n1,1,1\n1,1,2\n", "data/r.csv:2 and line 3 have one place"),
            (mixed, "rate,p50\n1,NaN\n", "data/r.csv:2: p50 is `NaN`, which is no number"),
            (mixed, "rate,p50\n1,1\n,2\n", "data/r.csv:3: rate is empty"),
            (mixed, "rate,p50\n1,1\nmany,2\n", "data/r.csv:3: rate is `many`, which is no number"),
            (mixed, "rate,p50\n1,\n2,\n", "data/r.csv: there is no number to draw of "),
            (mixed, "rate,p50\n", "data/r.csv has no rows"),
            (mixed, "seed,step,rate,p50\n1,1,1,1\n2,2,1,2\n", "data/r.csv:2 and line 3 have one"),
            (mixed, "seed,step,rate,p50\n1,1,1,1\n1,2,1,2\n", "data/r.csv:2 and line 3 have one"),
            ("x=rate y=p99 series=server", ROWS, "data/r.csv has no column p99"),
            ("x=rate y=p50 series=sever", ROWS, "data/r.csv has no column sever"),
            ("x=rate y=p50 where=server=c", ROWS, "data/r.csv has no row with server=c"),
            ("x=rate y=p50 log=y", "rate,p50\n1,0\n", "data/r.csv:2: `p50` is 0, and a logarithm"),
            ("x=rate y=p50 log=x", "rate,p50\n0,1\n", "data/r.csv:2: rate is 0, and a logarithm"),
            ("x=rate y=\"1/p50\"", "rate,p50\n0,0\n", "data/r.csv:2: `1/p50` divides by zero"),
            ("x=rate y=p50 series=server highlight=c", ROWS, "highlight=c is none of the series"),
        ] {
            let told = gathered(options, rows).unwrap_err().what;
            assert!(told.starts_with(what), "{options}: {told}");
        }
        let empty = "server,rate,p50\na,1,1\nb,1,\n";
        let told = gathered("x=rate y=p50 series=server", empty).unwrap_err().what;
        assert_eq!(told, "data/r.csv: there is no number to draw of b");
    }

    #[test]
    fn rounds_are_repeats_where_there_are_no_seeds() {
        let data = gathered("x=rate y=p50", "seed,step,rate,p50\n,1,1,1\n,2,1,3\n").unwrap();
        assert_eq!(data.panels[0].lines[0].points[0].ys[0].unwrap().median, 2.0);
    }

    #[test]
    fn a_prediction_is_a_line_beside_what_was_measured() {
        let rows = "seed,rate,p50,limit\n1,1,5,4\n2,1,7,6\n1,2,,8\n";
        let data = gathered("x=rate y=p50 y2=rate predicted=\"limit * 2\"", rows).unwrap();
        let [ours, predicted] = &data.panels[0].lines[..] else { panic!("{data:?}") };
        assert_eq!((ours.kind, predicted.kind), (Kind::Ours, Kind::Predicted));
        let spread = Spread { median: 10.0, min: 10.0, max: 10.0, count: 1 };
        assert_eq!(predicted.points[0].ys, [Some(spread), None]);
        assert_eq!(predicted.points[1].ys[0].unwrap().median, 16.0);
    }

    #[test]
    fn the_readers_rows_are_lines_of_their_own() {
        let spec = Spec::read("r title=T x=rate y=p50 series=server").unwrap();
        let table = |rows: &str| Table::parse(rows, "data/r.csv".into()).unwrap();
        let mut data = gather(&spec, &table(ROWS)).unwrap();
        let before = data.clone();
        assert!(overlay(&mut data, &spec, &table("server,rate,p50\na,10,fast\n")).is_err());
        assert_eq!(data, before);
        overlay(&mut data, &spec, &table("server,rate,p50\na,10,9\nc,10,8\n")).unwrap();
        assert_eq!(data.series, ["a", "b", "c"]);
        let yours: Vec<_> =
            data.panels[0].lines.iter().filter(|it| it.kind == Kind::Yours).collect();
        assert_eq!(yours.iter().map(|it| it.series).collect::<Vec<_>>(), [0, 2]);
    }
}
