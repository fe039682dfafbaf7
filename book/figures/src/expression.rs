//! The expressions of numbers, claims and figures: read once, and evaluated over records or over a row.

use crate::condition::{self, Condition};
use crate::fault::{Fault, Result, fault};
use crate::record::{Records, Row, Table};
use serde_json::Value;

/// Arithmetic over leaves: [`Cell`] in numbers and claims, [`Column`] in figures.
#[derive(Clone, Debug, PartialEq)]
pub enum Expression<L> {
    /// A constant.
    Number(f64),
    /// What stands for a value.
    Leaf(L),
    /// `-a`
    Negative(Box<Expression<L>>),
    /// `a + b`
    Binary(Box<Expression<L>>, char, Box<Expression<L>>),
}

/// A value out of the records.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// `median RECORD[key=value].column`
    Selection {
        /// The record's name.
        record: String,
        /// Which of its rows.
        conditions: Vec<Condition>,
        /// The column.
        column: String,
        /// How several rows become one number; `None` if there has to be one row.
        aggregate: Option<Aggregate>,
    },
    /// `meta(RECORD.path.to.it)`
    Origin {
        /// The record's name.
        record: String,
        /// The keys, from the outside.
        path: Vec<String>,
    },
}

/// A column of the row at hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column(pub String);

/// How several numbers become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregate {
    /// All together.
    Sum,
    /// The arithmetic mean.
    Mean,
    /// The middle one, or the mean of the two in the middle.
    Median,
    /// The least.
    Min,
    /// The greatest.
    Max,
    /// How many.
    Count,
    /// The greatest less the least.
    Spread,
}

/// How two sides are compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Comparison {
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    More,
    /// `>=`
    AtLeast,
    /// `~N%`: they differ by at most this part of the right side, in percent.
    Within(f64),
}

/// An expression and how it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Written<L> {
    /// As written, on one line.
    pub text: String,
    /// What it means.
    pub expression: Expression<L>,
}

/// A first side, and then each comparison with the side to its right.
pub type Chain = (Written<Cell>, Vec<(Comparison, Written<Cell>)>);

const AGGREGATES: [(&str, Aggregate); 7] = [
    ("sum", Aggregate::Sum),
    ("mean", Aggregate::Mean),
    ("median", Aggregate::Median),
    ("min", Aggregate::Min),
    ("max", Aggregate::Max),
    ("count", Aggregate::Count),
    ("spread", Aggregate::Spread),
];

/// Reads an expression over the records, up to its end or to a `|`. Also returns what follows that.
///
/// # Errors
/// If it is no expression.
pub fn over_records(text: &str) -> Result<(Written<Cell>, &str)> {
    let mut parser = Parser { text, at: 0 };
    let read = parser.written(Parser::cell)?;
    Ok((read, parser.rest()?))
}

/// Reads `a < b`, or a longer chain, up to its end or to a `|`. Also returns what follows that.
///
/// # Errors
/// If it is no comparison.
pub fn comparison(text: &str) -> Result<(Chain, &str)> {
    let mut parser = Parser { text, at: 0 };
    let first = parser.written(Parser::cell)?;
    let mut links = Vec::new();
    while let Some(comparison) = parser.comparison()? {
        links.push((comparison, parser.written(Parser::cell)?));
    }
    if links.is_empty() {
        return parser.expected("a comparison (<, <=, >, >=, or ~10%)");
    }
    Ok(((first, links), parser.rest()?))
}

/// Reads an expression over the columns of a row.
///
/// # Errors
/// If it is no expression.
pub fn over_columns(text: &str) -> Result<Written<Column>> {
    let mut parser = Parser { text, at: 0 };
    let read = parser.written(|it| it.name("a column").map(|name| Column(name.to_owned())))?;
    parser.blanks();
    if parser.at < text.len() {
        return parser.expected("an operator (+ - * /) or the end");
    }
    Ok(read)
}

impl Written<Cell> {
    /// Its value in `records`.
    ///
    /// # Errors
    /// If a record, a row or a column is missing, or something is no number or has none.
    pub fn value(&self, records: &Records) -> Result<f64> {
        let found = self.expression.value(&self.text, &mut |it| it.value(records).map(Some))?;
        // A cell is a number or a fault, so that nothing can be missing here.
        found.map_or_else(|| fault(format!("`{}` has no value", self.text), "measure it"), Ok)
    }

    /// The names of the records that it looks into.
    pub fn records(&self) -> Vec<&str> {
        let mut names = Vec::new();
        self.expression.leaves(&mut |leaf| match leaf {
            Cell::Selection { record, .. } | Cell::Origin { record, .. } => names.push(&**record),
        });
        names
    }
}

impl Written<Column> {
    /// Its value in a row; `None` if one of its columns was not measured.
    ///
    /// # Errors
    /// If a column is missing or has something else than a number, or a division is by zero.
    pub fn value(&self, table: &Table, row: &Row) -> Result<Option<f64>> {
        let mut read = |Column(name): &Column| table.number(row, table.column(name)?);
        self.expression.value(&self.text, &mut read).map_err(|it| {
            if it.what.contains(&table.shown) {
                return it;
            }
            Fault { what: format!("{}:{}: {}", table.shown, row.line, it.what), ..it }
        })
    }
}

impl<L> Expression<L> {
    fn value(
        &self,
        text: &str,
        read: &mut impl FnMut(&L) -> Result<Option<f64>>,
    ) -> Result<Option<f64>> {
        let found = match self {
            Expression::Number(value) => Some(*value),
            Expression::Leaf(leaf) => read(leaf)?,
            Expression::Negative(inner) => inner.value(text, read)?.map(|it| -it),
            Expression::Binary(left, sign, right) => {
                // Both sides are looked at, so that a fault of the right one is never hidden.
                let (left, right) = (left.value(text, read)?, right.value(text, read)?);
                let (Some(left), Some(right)) = (left, right) else { return Ok(None) };
                Some(match sign {
                    '+' => left + right,
                    '-' => left - right,
                    '*' => left * right,
                    _ if right == 0.0 => {
                        return fault(
                            format!("`{text}` divides by zero"),
                            "leave out the rows where the divisor is 0, with a condition",
                        );
                    }
                    _ => left / right,
                })
            }
        };
        if found.is_some_and(|it| !it.is_finite()) {
            return fault(format!("`{text}` is too large for a number"), "look at its parts");
        }
        Ok(found)
    }

    fn leaves<'a>(&'a self, see: &mut impl FnMut(&'a L)) {
        match self {
            Expression::Number(_) => {}
            Expression::Leaf(leaf) => see(leaf),
            Expression::Negative(inner) => inner.leaves(see),
            Expression::Binary(left, _, right) => {
                left.leaves(see);
                right.leaves(see);
            }
        }
    }
}

impl Cell {
    fn value(&self, records: &Records) -> Result<f64> {
        match self {
            Cell::Origin { record, path } => origin(records, record, path),
            Cell::Selection { record, conditions, column, aggregate } => {
                let table = records.table(record)?;
                let at = table.column(column)?;
                let rows = condition::select(&table, conditions)?;
                let what = format!("{record}[{}].{column}", condition::written(conditions));
                if aggregate.is_none() && rows.len() > 1 {
                    return fault(
                        format!("{what} is {} rows, and one is needed", rows.len()),
                        format!(
                            "{}; or take the median (or sum, mean, min, max, count, spread)",
                            difference(&table, &rows)
                        ),
                    );
                }
                let numbers: Result<Vec<_>> =
                    rows.iter().map(|row| table.number(row, at)).collect();
                let numbers: Vec<f64> = numbers?.into_iter().flatten().collect();
                let Some(aggregate) = aggregate else {
                    return numbers.first().copied().map_or_else(|| unmeasured(&what), Ok);
                };
                if numbers.is_empty() && *aggregate != Aggregate::Count {
                    return unmeasured(&what);
                }
                Ok(aggregate.of(&numbers))
            }
        }
    }
}

impl Aggregate {
    /// Of numbers of which there is at least one, unless they are counted.
    pub fn of(self, numbers: &[f64]) -> f64 {
        let min = numbers.iter().copied().fold(f64::INFINITY, f64::min);
        let max = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = numbers.iter().sum();
        match self {
            Aggregate::Sum => sum,
            Aggregate::Mean => sum / numbers.len() as f64,
            Aggregate::Min => min,
            Aggregate::Max => max,
            Aggregate::Count => numbers.len() as f64,
            Aggregate::Spread => max - min,
            Aggregate::Median => {
                let mut sorted = numbers.to_vec();
                sorted.sort_by(f64::total_cmp);
                let middle = sorted.len() / 2;
                if sorted.len() % 2 == 1 {
                    sorted[middle]
                } else {
                    (sorted[middle - 1] + sorted[middle]) / 2.0
                }
            }
        }
    }
}

impl Comparison {
    /// Whether it is so.
    pub fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Comparison::Less => left < right,
            Comparison::AtMost => left <= right,
            Comparison::More => left > right,
            Comparison::AtLeast => left >= right,
            Comparison::Within(percent) => (left - right).abs() <= percent / 100.0 * right.abs(),
        }
    }

    /// As it is written.
    pub fn sign(self) -> String {
        match self {
            Comparison::Less => "<".into(),
            Comparison::AtMost => "<=".into(),
            Comparison::More => ">".into(),
            Comparison::AtLeast => ">=".into(),
            Comparison::Within(percent) => format!("~{percent}%"),
        }
    }
}

fn unmeasured(what: &str) -> Result<f64> {
    fault(format!("{what} was not measured: the field is empty"), "select rows that have it")
}

/// The number at `path` in the origin of a record.
fn origin(records: &Records, record: &str, path: &[String]) -> Result<f64> {
    let origin = records.origin(record)?;
    let whole = || format!("meta({record}.{})", path.join("."));
    let mut here: &Value = &origin;
    for key in path {
        let inner = match here {
            Value::Object(object) => object.get(key),
            Value::Array(array) => key.parse().ok().and_then(|at: usize| array.get(at)),
            _ => None,
        };
        let Some(inner) = inner else {
            let keys: Vec<_> = match here {
                Value::Object(object) => object.keys().map(String::as_str).collect(),
                _ => Vec::new(),
            };
            return fault(
                format!("{} is not there: no `{key}`", whole()),
                format!("there is {}", crate::fault::listed(keys)),
            );
        };
        here = inner;
    }
    here.as_f64().map_or_else(
        || fault(format!("{} is {here}, which is no number", whole()), "name a number of it"),
        Ok,
    )
}

/// What rows differ in, as a hint for a condition.
fn difference(table: &Table, rows: &[&Row]) -> String {
    let differ = |at: &usize| rows.iter().any(|it| it.fields[*at] != rows[0].fields[*at]);
    match (0..table.columns.len()).find(differ) {
        Some(at) => {
            let values = rows.iter().map(|it| it.fields[at].as_str());
            let values: std::collections::BTreeSet<_> = values.collect();
            format!("they differ in {} ({})", table.columns[at], crate::fault::listed(values))
        }
        None => "they are equal".to_owned(),
    }
}

/// A reader of one line of text.
struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn written<L>(&mut self, mut leaf: impl FnMut(&mut Self) -> Result<L>) -> Result<Written<L>> {
        self.blanks();
        let start = self.at;
        let expression = self.sum(&mut leaf)?;
        let text = self.text[start..self.at].split_whitespace().collect::<Vec<_>>().join(" ");
        Ok(Written { text, expression })
    }

    fn sum<L>(&mut self, leaf: &mut impl FnMut(&mut Self) -> Result<L>) -> Result<Expression<L>> {
        let mut left = self.product(leaf)?;
        while let Some(sign) = self.sign(['+', '-']) {
            let right = self.product(leaf)?;
            left = Expression::Binary(Box::new(left), sign, Box::new(right));
        }
        Ok(left)
    }

    fn product<L>(
        &mut self,
        leaf: &mut impl FnMut(&mut Self) -> Result<L>,
    ) -> Result<Expression<L>> {
        let mut left = self.atom(leaf)?;
        while let Some(sign) = self.sign(['*', '/']) {
            let right = self.atom(leaf)?;
            left = Expression::Binary(Box::new(left), sign, Box::new(right));
        }
        Ok(left)
    }

    fn atom<L>(&mut self, leaf: &mut impl FnMut(&mut Self) -> Result<L>) -> Result<Expression<L>> {
        self.blanks();
        if self.take("-") {
            return Ok(Expression::Negative(Box::new(self.atom(leaf)?)));
        }
        if self.take("(") {
            let inner = self.sum(leaf)?;
            self.need(")")?;
            return Ok(inner);
        }
        if self.left().starts_with(|it: char| it.is_ascii_digit()) {
            return self.constant().map(Expression::Number);
        }
        leaf(self).map(Expression::Leaf)
    }

    /// `meta(…)`, or a selection with or without an aggregate.
    fn cell(&mut self) -> Result<Cell> {
        let name = self.name("a record, an aggregate or a number")?;
        if name == "meta" {
            self.need("(")?;
            let record = self.name("a record")?.to_owned();
            let mut path = Vec::new();
            while self.take(".") {
                path.push(self.name("a key of the origin")?.to_owned());
            }
            self.need(")")?;
            if path.is_empty() {
                return self.expected("a key, as in meta(RECORD.cores)");
            }
            return Ok(Cell::Origin { record, path });
        }
        let aggregate = AGGREGATES.iter().find(|it| it.0 == name).map(|it| it.1);
        // A record may have the name of an aggregate: then its column follows at once.
        let is_record = self.left().starts_with(['.', '[']);
        let Some(aggregate) = aggregate.filter(|_| !is_record) else {
            return self.selection(name, None);
        };
        let is_enclosed = self.take("(");
        let record = self.name("a record")?;
        let selection = self.selection(record, Some(aggregate))?;
        if is_enclosed {
            self.need(")")?;
        }
        Ok(selection)
    }

    /// What follows the name of a record: `[key=value].column`.
    fn selection(&mut self, record: &str, aggregate: Option<Aggregate>) -> Result<Cell> {
        let mut conditions = Vec::new();
        if self.take("[") {
            let mut is_quoted = false;
            let end = self.left().find(|it| {
                is_quoted ^= it == '\'';
                it == ']' && !is_quoted
            });
            let Some(end) = end else { return self.expected("`]` after the conditions") };
            conditions = condition::parse(&self.left()[..end])?;
            self.at += end + 1;
        }
        if !self.take(".") {
            return self.expected("a column, as in RECORD[key=value].column");
        }
        let column = self.name("a column")?.to_owned();
        Ok(Cell::Selection { record: record.to_owned(), conditions, column, aggregate })
    }

    fn comparison(&mut self) -> Result<Option<Comparison>> {
        self.blanks();
        for (sign, comparison) in [
            ("<=", Comparison::AtMost),
            (">=", Comparison::AtLeast),
            ("<", Comparison::Less),
            (">", Comparison::More),
        ] {
            if self.take(sign) {
                return Ok(Some(comparison));
            }
        }
        if !self.take("~") {
            return Ok(None);
        }
        self.blanks();
        let percent = self.constant()?;
        self.need("%")?;
        Ok(Some(Comparison::Within(percent)))
    }

    fn constant(&mut self) -> Result<f64> {
        let left = self.left();
        let end = left.find(|it: char| !(it.is_ascii_digit() || it == '.')).unwrap_or(left.len());
        let Ok(value) = left[..end].parse() else { return self.expected("a number such as 0.5") };
        self.at += end;
        Ok(value)
    }

    /// Letters, digits and `_`, and hyphens between them.
    fn name(&mut self, what: &str) -> Result<&'a str> {
        self.blanks();
        let left = self.left();
        let is_part = |it: char| it.is_alphanumeric() || it == '_' || it == '-';
        let end = left.find(|it| !is_part(it)).unwrap_or(left.len());
        let name = left[..end].trim_end_matches('-');
        if name.is_empty() || name.starts_with('-') {
            return self.expected(what);
        }
        self.at += name.len();
        Ok(name)
    }

    fn sign(&mut self, signs: [char; 2]) -> Option<char> {
        self.blanks();
        let found = signs.into_iter().find(|it| self.left().starts_with(*it))?;
        self.at += 1;
        Some(found)
    }

    fn need(&mut self, sign: &str) -> Result<()> {
        self.blanks();
        if self.take(sign) { Ok(()) } else { self.expected(&format!("`{sign}`")) }
    }

    fn take(&mut self, sign: &str) -> bool {
        let is_there = self.left().starts_with(sign);
        if is_there {
            self.at += sign.len();
        }
        is_there
    }

    /// The end, or what follows a `|`.
    fn rest(&mut self) -> Result<&'a str> {
        self.blanks();
        if self.left().is_empty() || self.take("|") {
            return Ok(self.left());
        }
        self.expected("an operator, `|` or the end")
    }

    fn blanks(&mut self) {
        self.at = self.text.len() - self.left().trim_start().len();
    }

    fn left(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn expected<T>(&self, what: &str) -> Result<T> {
        let next: String = self.left().chars().take(24).collect();
        let next = if next.trim().is_empty() { "the end".to_owned() } else { format!("`{next}`") };
        fault(
            format!("{what} is expected where there is {next}"),
            "expressions are described in book/figures/README.md",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn records() -> (tempfile::TempDir, Records) {
        let folder = tempfile::tempdir().unwrap();
        let text = "server,rate,seed,p50_ms,good,due\n\
            ch01,10,1,5,10,10\nch01,10,2,7,9,10\nch01,110,1,,0,0\nch-02,10,1,1.5,10,10\n";
        fs::write(folder.path().join("race.csv"), text).unwrap();
        fs::write(folder.path().join("odd.csv"), "a\nNaN\n").unwrap();
        let json = "{\"cores\": 2, \"noise\": {\"p50\": [1.5, 2]}, \"date\": \"today\"}";
        fs::write(folder.path().join("race.json"), json).unwrap();
        let records = Records::new(folder.path(), "book/data");
        (folder, records)
    }

    fn value(text: &str) -> Result<f64> {
        let (_folder, records) = records();
        over_records(text)?.0.value(&records)
    }

    #[test]
    fn expressions_have_values() {
        for (text, expected) in [
            ("1 + 2 * 3 - 4 / 8", 6.5),
            ("(1 + 2) * -3", -9.0),
            ("1-2", -1.0),
            ("race[server=ch01, seed=1, rate=10].p50_ms", 5.0),
            ("race[server=ch-02].p50_ms * 2", 3.0),
            ("sum race[server=ch01].p50_ms", 12.0),
            ("mean(race[server=ch01].p50_ms)", 6.0),
            ("median race[rate=10].p50_ms", 5.0),
            ("median race[server=ch01].p50_ms / 2", 3.0),
            ("min race.p50_ms + max race.p50_ms", 8.5),
            ("count race.p50_ms", 3.0),
            ("count race[rate=110].p50_ms", 0.0),
            ("spread race.p50_ms", 5.5),
            ("meta(race.cores) * meta(race.noise.p50.0)", 3.0),
        ] {
            assert_eq!(value(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_has_no_value_is_told_with_a_remedy() {
        for (text, what, remedy) in [
            ("none.p50_ms", "there is no book/data/none.csv", "odd, race"),
            ("race.p99_ms", "has no column p99_ms", "it has server, rate"),
            ("race[server=ch07].p50_ms", "no row with server=ch07", "server is there ch-02, ch01"),
            ("race[server=ch01].p50_ms", "is 3 rows", "they differ in rate (10, 110)"),
            ("race[rate=110].p50_ms", "was not measured", "select rows"),
            ("max race[rate=110].p50_ms", "was not measured", "select rows"),
            ("max odd.a", "book/data/odd.csv:2: a is `NaN`, which is no number", "empty field"),
            ("race.server", "is 4 rows", ""),
            ("1 / race[rate=110].due", "divides by zero", "leave out"),
            ("meta(race.noise.p99)", "no `p99`", "there is p50"),
            ("meta(race.date)", "is \"today\", which is no number", ""),
            ("meta(odd.cores)", "there is no book/data/odd.json", ""),
        ] {
            let told = value(text).unwrap_err();
            assert!(told.what.contains(what), "{text}: {told}");
            assert!(told.remedy.contains(remedy), "{text}: {told}");
        }
    }

    #[test]
    fn what_is_no_expression_is_told_where() {
        for (text, told) in [
            ("", "a record, an aggregate or a number is expected where there is the end"),
            ("race", "a column, as in RECORD[key=value].column is expected where there is the end"),
            ("race[server=ch01", "`]` after the conditions is expected where there is `server"),
            ("(1 + 2", "`)` is expected where there is the end"),
            ("1 2", "an operator, `|` or the end is expected where there is `2`"),
            ("1.2.3", "a number such as 0.5 is expected where there is `1.2.3`"),
        ] {
            let error = over_records(text).unwrap_err().to_string();
            assert!(error.starts_with(told), "{text}: {error}");
        }
        assert!(over_columns("100 * good / due )").is_err());
    }

    #[test]
    fn comparisons_are_read_to_the_options() {
        let (chain, rest) = comparison("a[x=1|2].b < 2 ~10% max(c.d) | text=\"x\"").unwrap();
        assert_eq!(chain.0.text, "a[x=1|2].b");
        let links: Vec<_> = chain.1.iter().map(|it| (it.0, it.1.text.as_str())).collect();
        assert_eq!(links, [(Comparison::Less, "2"), (Comparison::Within(10.0), "max(c.d)")]);
        assert_eq!(rest, " text=\"x\"");
        assert!(comparison("a.b").unwrap_err().what.starts_with("a comparison"));
        assert!(Comparison::Within(10.0).holds(109.0, 100.0));
        assert!(!Comparison::Within(10.0).holds(111.0, 100.0));
        assert!(Comparison::Within(10.0).holds(-95.0, -100.0));
    }

    #[test]
    fn a_row_without_a_measurement_has_no_value() {
        let text = "good,due\n9,10\n,10\n0,0\n";
        let table = Table::parse(text, "data/x.csv".into()).unwrap();
        let percent = over_columns("100 * good / due").unwrap();
        assert_eq!(percent.value(&table, &table.rows[0]), Ok(Some(90.0)));
        assert_eq!(percent.value(&table, &table.rows[1]), Ok(None));
        let told = percent.value(&table, &table.rows[2]).unwrap_err().what;
        assert_eq!(told, "data/x.csv:4: `100 * good / due` divides by zero");
    }
}
