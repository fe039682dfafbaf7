//! The records: a CSV of what was measured, and beside it a JSON of where it comes from.

use crate::fault::{Fault, Result, fault, listed};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// A folder of records, each read once.
pub struct Records {
    folder: PathBuf,
    shown: String,
    tables: Cache<Table>,
    origins: Cache<Value>,
}

/// What was read, or why it could not be.
type Cache<T> = RefCell<HashMap<String, Result<Rc<T>>>>;

/// The rows of one record.
#[derive(Debug)]
pub struct Table {
    /// Its file, as errors call it.
    pub shown: String,
    /// The names of its columns.
    pub columns: Vec<String>,
    /// Its rows, in the order of the file.
    pub rows: Vec<Row>,
}

/// One measured step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its line in the file, from 1.
    pub line: u64,
    /// One for each column; empty if it was not measured.
    pub fields: Vec<String>,
}

impl Records {
    /// The records in `folder`, which errors call `shown`. The folder need not be there.
    pub fn new(folder: impl Into<PathBuf>, shown: impl Into<String>) -> Records {
        Records {
            folder: folder.into(),
            shown: shown.into(),
            tables: RefCell::default(),
            origins: RefCell::default(),
        }
    }

    /// Whether there is a record called `name`, readable or not.
    pub fn has(&self, name: &str) -> bool {
        self.folder.join(format!("{name}.csv")).exists()
    }

    /// The rows of the record called `name`.
    ///
    /// # Errors
    /// If there is none, or it is no table.
    pub fn table(&self, name: &str) -> Result<Rc<Table>> {
        cached(&self.tables, name, || {
            let (text, shown) = self.read(name, "csv")?;
            Table::parse(&text, shown)
        })
    }

    /// Where the record called `name` comes from: an object of JSON.
    ///
    /// # Errors
    /// If it is not said, or not as JSON.
    pub fn origin(&self, name: &str) -> Result<Rc<Value>> {
        cached(&self.origins, name, || {
            let (text, shown) = self.read(name, "json")?;
            serde_json::from_str(&text).map_err(|it| Fault {
                what: format!("{shown} is not JSON: {it}"),
                remedy: format!("measure again, so that it is written again: cargo lab {name}"),
            })
        })
    }

    fn read(&self, name: &str, ending: &str) -> Result<(String, String)> {
        let path = self.folder.join(format!("{name}.{ending}"));
        let shown = format!("{}/{name}.{ending}", self.shown);
        match fs::read_to_string(&path) {
            Ok(text) => Ok((text, shown)),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let names = self.names();
                fault(
                    format!("there is no {shown}"),
                    format!(
                        "measure it (cargo lab list), or name one that is there: {}",
                        listed(names.iter().map(String::as_str))
                    ),
                )
            }
            Err(error) => fault(
                format!("read({shown}): {error}"),
                "it has to be a readable file of UTF-8 text",
            ),
        }
    }

    /// The records that are there, sorted.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let paths = entries.map(|it| it.path());
        let stem = |path: &Path| path.file_stem()?.to_str().map(str::to_owned);
        let mut names: Vec<_> = paths
            .filter(|it| it.extension().is_some_and(|it| it == "csv"))
            .filter_map(|it| stem(&it))
            .collect();
        names.sort();
        names
    }
}

/// What `cache` has for `name`, or what `read` finds.
fn cached<T>(cache: &Cache<T>, name: &str, read: impl FnOnce() -> Result<T>) -> Result<Rc<T>> {
    if let Some(known) = cache.borrow().get(name) {
        return known.clone();
    }
    let found = read().map(Rc::new);
    cache.borrow_mut().insert(name.to_owned(), found.clone());
    found
}

impl Table {
    /// Reads CSV with a header. `shown` is what errors call it.
    ///
    /// # Errors
    /// If it has no header, or a column twice, or a row that is too long or too short.
    pub fn parse(text: &str, shown: String) -> Result<Table> {
        let broken = |what: String| Fault {
            what: format!("{shown} is no record: {what}"),
            remedy: "it needs a header, and as many fields in each row as the header has".into(),
        };
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let header = reader.headers().map_err(|it| broken(it.to_string()))?;
        let columns: Vec<String> = header.iter().map(str::to_owned).collect();
        if columns.iter().all(String::is_empty) {
            return Err(broken("it is empty".into()));
        }
        if let Some(twice) = columns.iter().enumerate().find(|it| columns[..it.0].contains(it.1)) {
            return Err(broken(format!("it has the column {} twice", twice.1)));
        }
        let mut rows = Vec::new();
        for record in reader.records() {
            let record = record.map_err(|it| broken(it.to_string()))?;
            let line = record.position().map_or(0, csv::Position::line);
            rows.push(Row { line, fields: record.iter().map(str::to_owned).collect() });
        }
        Ok(Table { shown, columns, rows })
    }

    /// Where the column called `name` stands.
    ///
    /// # Errors
    /// If there is none.
    pub fn column(&self, name: &str) -> Result<usize> {
        self.columns.iter().position(|it| it == name).map_or_else(
            || {
                fault(
                    format!("{} has no column {name}", self.shown),
                    format!("it has {}", listed(self.columns.iter().map(String::as_str))),
                )
            },
            Ok,
        )
    }

    /// The number in a field, if one was measured.
    ///
    /// # Errors
    /// If there is something else.
    pub fn number(&self, row: &Row, column: usize) -> Result<Option<f64>> {
        let field = row.fields[column].trim();
        if field.is_empty() {
            return Ok(None);
        }
        match field.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(Some(value)),
            _ => fault(
                format!(
                    "{}:{}: {} is `{field}`, which is no number",
                    self.shown, row.line, self.columns[column]
                ),
                "what was not measured is an empty field; or name another column",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Result<Table> {
        Table::parse(text, "data/x.csv".into())
    }

    #[test]
    fn what_is_no_table_is_told() {
        for (text, word) in [
            ("", "it is empty"),
            ("a,b,a\n", "the column a twice"),
            ("a,b\n1\n", "line: 2"),
            ("a,b\n1,2,3\n", "line: 2"),
        ] {
            let told = table(text).unwrap_err().to_string();
            assert!(told.starts_with("data/x.csv is no record: "), "{told}");
            assert!(told.contains(word), "{told}");
        }
    }

    #[test]
    fn fields_are_numbers_or_were_not_measured() {
        let table = table("a\n1.5\n\"\"\nNaN\ninf\n12 ms\n").unwrap();
        let number = |at: usize| table.number(&table.rows[at], 0);
        assert_eq!(number(0), Ok(Some(1.5)));
        assert_eq!(number(1), Ok(None));
        for (at, text) in [(2, "NaN"), (3, "inf"), (4, "12 ms")] {
            let told = number(at).unwrap_err().to_string();
            let line = at + 2;
            assert!(
                told.starts_with(&format!("data/x.csv:{line}: a is `{text}`, which is no number")),
                "{told}"
            );
        }
    }

    #[test]
    fn a_missing_record_and_a_missing_column_are_told_with_what_there_is() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("knee.csv"), "a,b\n1,2\n").unwrap();
        let records = Records::new(folder.path(), "book/data");
        let told = records.table("nee").unwrap_err().to_string();
        assert!(told.contains("there is no book/data/nee.csv") && told.contains("knee"), "{told}");
        let told = records.origin("knee").unwrap_err().to_string();
        assert!(told.contains("there is no book/data/knee.json"), "{told}");
        let told = records.table("knee").unwrap().column("c").unwrap_err().to_string();
        assert_eq!(told, "book/data/knee.csv has no column c\n    it has a, b");
    }
}
