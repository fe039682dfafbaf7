//! Conditions: which rows of a record are meant.

use crate::fault::{Result, fault, listed};
use crate::record::{Row, Table};
use std::collections::BTreeSet;

/// `key=value`, `key=a|b`, `key!=value`, `key<9` …
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    key: String,
    relation: Relation,
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Any,
    None,
    Less,
    AtMost,
    More,
    AtLeast,
}

/// In this order: the longer ones first.
const RELATIONS: [(&str, Relation); 6] = [
    ("!=", Relation::None),
    ("<=", Relation::AtMost),
    (">=", Relation::AtLeast),
    ("<", Relation::Less),
    (">", Relation::More),
    ("=", Relation::Any),
];

/// Reads `key=value, key=value`.
///
/// # Errors
/// If it is something else.
pub fn parse(text: &str) -> Result<Vec<Condition>> {
    let parts = split(text, ',');
    parts.into_iter().filter(|it| !it.trim().is_empty()).map(parse_one).collect()
}

/// The rows of `table` for which all of `conditions` are so.
///
/// # Errors
/// If there is no such row, or a condition names a column that is not there.
pub fn select<'a>(table: &'a Table, conditions: &[Condition]) -> Result<Vec<&'a Row>> {
    let mut rows: Vec<&Row> = table.rows.iter().collect();
    for condition in conditions {
        let column = table.column(&condition.key)?;
        let left: Vec<&Row> =
            rows.iter().filter(|it| condition.holds(&it.fields[column])).copied().collect();
        if left.is_empty() && !rows.is_empty() {
            let there: BTreeSet<_> = rows.iter().map(|it| it.fields[column].as_str()).collect();
            return fault(
                format!("{} has no row with {}", table.shown, written(conditions)),
                format!("{} is there {}", condition.key, listed(there)),
            );
        }
        rows = left;
    }
    if rows.is_empty() {
        return fault(format!("{} has no rows", table.shown), "measure it again: cargo lab list");
    }
    Ok(rows)
}

/// Conditions as they are written.
pub fn written(conditions: &[Condition]) -> String {
    let each = conditions.iter().map(|it| {
        let sign = RELATIONS.iter().find(|known| known.1 == it.relation).map_or("=", |it| it.0);
        format!("{}{sign}{}", it.key, it.values.join("|"))
    });
    each.collect::<Vec<_>>().join(", ")
}

/// Whether two values are the same: as numbers if both are numbers, otherwise as text.
pub fn same(one: &str, other: &str) -> bool {
    match (number(one), number(other)) {
        (Some(one), Some(other)) => one == other,
        _ => one.trim() == other.trim(),
    }
}

fn number(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|it: &f64| it.is_finite())
}

fn parse_one(text: &str) -> Result<Condition> {
    let found = text.char_indices().find_map(|(at, _)| {
        RELATIONS.iter().find(|it| text[at..].starts_with(it.0)).map(|it| (at, it))
    });
    let Some((at, (sign, relation))) = found else {
        return fault(
            format!("`{}` is no condition", text.trim()),
            "write key=value, key=a|b, key!=value or key<9",
        );
    };
    let key = text[..at].trim().to_owned();
    let values = split(&text[at + sign.len()..], '|');
    let values: Vec<String> = values.into_iter().map(|it| unquoted(it.trim()).to_owned()).collect();
    let is_order = !matches!(relation, Relation::Any | Relation::None);
    if key.is_empty() || (is_order && (values.len() != 1 || number(&values[0]).is_none())) {
        return fault(
            format!("`{}` is no condition", text.trim()),
            "a column stands on the left, and on the right of < and > one number",
        );
    }
    Ok(Condition { key, relation: *relation, values })
}

/// `text` in pieces between separators that are outside of single quotes.
fn split(text: &str, separator: char) -> Vec<&str> {
    let mut is_quoted = false;
    text.split(|it| {
        is_quoted ^= it == '\'';
        it == separator && !is_quoted
    })
    .collect()
}

fn unquoted(text: &str) -> &str {
    text.strip_prefix('\'').and_then(|it| it.strip_suffix('\'')).unwrap_or(text)
}

impl Condition {
    /// Whether it is so of a row that has `field` in the column.
    fn holds(&self, field: &str) -> bool {
        let is_any = || self.values.iter().any(|it| same(it, field));
        // A field that is empty or text is neither less nor more than a number.
        let order = || number(field)?.partial_cmp(&number(&self.values[0])?);
        match self.relation {
            Relation::Any => is_any(),
            Relation::None => !is_any(),
            Relation::Less => order().is_some_and(|it| it.is_lt()),
            Relation::AtMost => order().is_some_and(|it| it.is_le()),
            Relation::More => order().is_some_and(|it| it.is_gt()),
            Relation::AtLeast => order().is_some_and(|it| it.is_ge()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_selected() {
        let text = "server,rate,p50\nch01,10,\nch01,110.0,5\n\"a, b\",210,6\n";
        let table = Table::parse(text, "data/x.csv".into()).unwrap();
        for (conditions, lines) in [
            ("server=ch01", &[2, 3][..]),
            ("server=ch01, rate=110", &[3]),
            ("rate = 110.00", &[3]),
            ("rate=10|210", &[2, 4]),
            ("server='a, b'", &[4]),
            ("server!=ch01|ch02", &[4]),
            ("p50=", &[2]),
            ("rate>=110", &[3, 4]),
            ("rate>110, p50<7", &[4]),
            ("p50<=5", &[3]),
            ("", &[2, 3, 4]),
        ] {
            let rows = select(&table, &parse(conditions).unwrap()).unwrap();
            let found: Vec<_> = rows.iter().map(|it| it.line).collect();
            assert_eq!(found, lines, "{conditions}");
        }
    }

    #[test]
    fn a_selection_of_nothing_is_told_with_what_there_is() {
        let table = Table::parse("server,rate\nch01,10\nch02,20\n", "data/x.csv".into()).unwrap();
        let told = select(&table, &parse("server=ch02, rate=10").unwrap()).unwrap_err().to_string();
        assert_eq!(told, "data/x.csv has no row with server=ch02, rate=10\n    rate is there 20");
        let told = select(&table, &parse("servr=ch02").unwrap()).unwrap_err().to_string();
        assert!(told.contains("no column servr"), "{told}");
    }

    #[test]
    fn what_is_no_condition_is_told() {
        for text in ["server", "=ch01", "rate<fast", "rate<1|2"] {
            let told = parse(text).unwrap_err().to_string();
            assert!(told.starts_with(&format!("`{text}` is no condition")), "{told}");
        }
    }
}
