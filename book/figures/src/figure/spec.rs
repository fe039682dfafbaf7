//! What a figure is asked to show.

use crate::condition::{self, Condition};
use crate::directive;
use crate::expression::{self, Column, Written};
use crate::fault::{Result, fault};

/// The directive, read.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// The record's name.
    pub record: String,
    /// Whether `x` goes from top to bottom, and what is measured from left to right.
    pub is_dots: bool,
    /// The column along the horizontal axis.
    pub x: String,
    /// What the upper chart shows, and the lower one if there is one.
    pub ys: Vec<Written<Column>>,
    /// What the record foretells of the upper chart.
    pub predicted: Option<Written<Column>>,
    /// The column that tells lines apart.
    pub series: Option<String>,
    /// The column that tells charts apart.
    pub panel: Option<String>,
    /// Which rows.
    pub conditions: Vec<Condition>,
    /// What there is to see.
    pub title: String,
    /// What stands at the axes: x, and one for each of `ys`.
    pub x_title: String,
    /// See `x_title`.
    pub y_titles: Vec<String>,
    /// The series in colour; empty if the first ones are. A name that is empty leaves its hue out.
    pub highlight: Vec<String>,
    /// Which axes are logarithmic: x, and one for each of `ys`.
    pub x_is_log: bool,
    /// See `x_is_log`.
    pub y_is_log: Vec<bool>,
    /// What to call values of `series` and `panel`, and words of `x`.
    pub names: Vec<(String, String)>,
}

const KEYS: [&str; 15] = [
    "kind",
    "x",
    "y",
    "y2",
    "predicted",
    "series",
    "panel",
    "where",
    "title",
    "x_title",
    "y_title",
    "y2_title",
    "highlight",
    "log",
    "names",
];

impl Spec {
    /// Reads what stands after `figure`.
    ///
    /// # Errors
    /// If a key is missing, unknown, or has something that it cannot have.
    pub fn read(body: &str) -> Result<Spec> {
        let body = body.trim_start();
        let (record, rest) = body.split_once(char::is_whitespace).unwrap_or((body, ""));
        if record.is_empty() || record.contains('=') {
            return fault(
                "it begins with the name of a record",
                "write {{#figure RECORD x=… y=…}}",
            );
        }
        let options = directive::options(rest, &KEYS)?;
        let find = |key: &str| options.iter().find(|it| it.0 == key).map(|it| it.1.clone());
        let need = |key: &str| {
            find(key).filter(|it| !it.trim().is_empty()).map_or_else(
                || fault(format!("`{key}` is missing"), format!("add {key}=\"…\"")),
                Ok,
            )
        };
        let x = need("x")?;
        let mut ys = vec![expression::over_columns(&need("y")?)?];
        let mut y_titles = vec![find("y_title").unwrap_or_else(|| ys[0].text.clone())];
        if let Some(lower) = find("y2") {
            let lower = expression::over_columns(&lower)?;
            y_titles.push(find("y2_title").unwrap_or_else(|| lower.text.clone()));
            ys.push(lower);
        } else if find("y2_title").is_some() {
            return fault("there is a `y2_title` and no `y2`", "add y2=\"…\", or leave it out");
        }
        let logs = find("log").unwrap_or_default();
        let logs: Vec<_> = logs.split([' ', ',']).filter(|it| !it.is_empty()).collect();
        let axes = &["x", "y", "y2"][..=ys.len()];
        if let Some(other) = logs.iter().find(|it| !axes.contains(it)) {
            return fault(
                format!("log={other} is no axis"),
                format!("there are {}", axes.join(", ")),
            );
        }
        let is_dots = is_dots(find("kind").as_deref())?;
        if is_dots && (find("predicted").is_some() || logs.iter().any(|it| *it != "y")) {
            return fault(
                "kind=dots has one axis of numbers, and nothing that was predicted",
                "leave out `predicted`, and of `log` all but log=y",
            );
        }
        let y_is_log = |it: &&str| logs.contains(it) || is_dots && logs.contains(&"y");
        Ok(Spec {
            record: record.to_owned(),
            is_dots,
            x_title: find("x_title").unwrap_or_else(|| x.clone()),
            x,
            y_titles,
            predicted: find("predicted").map(|it| expression::over_columns(&it)).transpose()?,
            series: find("series"),
            panel: find("panel"),
            conditions: condition::parse(&find("where").unwrap_or_default())?,
            title: need("title")?,
            highlight: highlight(&find("highlight").unwrap_or_default()),
            x_is_log: logs.contains(&"x"),
            y_is_log: axes[1..].iter().map(y_is_log).collect(),
            names: names(&find("names").unwrap_or_default())?,
            ys,
        })
    }

    /// What a value of `series` or `panel`, or a word of `x`, is called.
    pub fn name<'a>(&'a self, value: &'a str) -> &'a str {
        self.names.iter().find(|it| it.0 == value).map_or(value, |it| &it.1)
    }
}

/// Reads what kind of chart it is.
fn is_dots(kind: Option<&str>) -> Result<bool> {
    match kind {
        None => Ok(false),
        Some("dots") => Ok(true),
        Some(other) => fault(format!("there is no kind={other}"), "write kind=dots, or nothing"),
    }
}

/// Reads `name|name`, where a name may be empty.
fn highlight(text: &str) -> Vec<String> {
    match text.trim() {
        "" => Vec::new(),
        names => names.split('|').map(|it| it.trim().to_owned()).collect(),
    }
}

/// Reads `value: name, value: name`.
fn names(text: &str) -> Result<Vec<(String, String)>> {
    let parts = text.split(',').filter(|it| !it.trim().is_empty());
    parts
        .map(|it| match it.split_once(':') {
            Some((value, name)) => Ok((value.trim().to_owned(), name.trim().to_owned())),
            None => fault(
                format!("names: `{}` names nothing", it.trim()),
                "write names=\"value: name, value: name\"",
            ),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_read() {
        let spec = Spec::read(
            " race x=rate y=\"100 * good / due\"\n y2=p50_ms log=\"x y2\" series=server panel=stall\n\
             where=\"link=wifi\" title=\"Who\" y2_title=ms highlight=\"a|b\" names=\"a: one, b: two\"",
        )
        .unwrap();
        assert_eq!((&*spec.record, &*spec.x, &*spec.x_title), ("race", "rate", "rate"));
        assert_eq!(spec.y_titles, ["100 * good / due", "ms"]);
        assert_eq!((spec.x_is_log, &spec.y_is_log[..]), (true, &[false, true][..]));
        assert_eq!(spec.highlight, ["a", "b"]);
        let second = Spec::read("race x=rate y=p50 title=T highlight=\"| b\"").unwrap();
        assert_eq!(second.highlight, ["", "b"]);
        assert_eq!((spec.name("b"), spec.name("c")), ("two", "c"));
    }

    #[test]
    fn what_is_missing_or_unknown_is_told() {
        for (body, told) in [
            ("", "it begins with the name of a record"),
            ("x=rate y=p50", "it begins with the name of a record"),
            ("race y=p50 title=T", "`x` is missing"),
            ("race x=rate title=T", "`y` is missing"),
            ("race x=rate y=p50", "`title` is missing"),
            ("race x=rate y=p50 title=\" \"", "`title` is missing"),
            ("race x=rate y=p50 title=T log=y2", "log=y2 is no axis\n    there are x, y"),
            ("race x=rate y=p50 title=T y2_title=a", "there is a `y2_title` and no `y2`"),
            ("race x=rate y=p50 title=T color=red", "there is no `color`"),
            ("race x=rate y=p50 title=T names=a", "names: `a` names nothing"),
            ("race x=rate y=\"p50 +\" title=T", "a column is expected"),
            ("race x=rate y=p50 title=T kind=pie", "there is no kind=pie"),
            ("race x=rate y=p50 title=T kind=dots log=x", "kind=dots has one axis of numbers"),
        ] {
            let error = Spec::read(body).unwrap_err().to_string();
            assert!(error.starts_with(told), "{body}: {error}");
        }
    }
}
