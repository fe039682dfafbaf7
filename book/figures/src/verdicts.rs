//! `{{#verdicts ch03 ch04: row row}}`: rows of the table of promises, as the tests hold it.

use crate::fault::{Fault, Result, listed};
use contract::verdicts::{self, CHAPTERS, Row, TABLE, Verdict};

/// The directive's Markdown: a table.
///
/// # Errors
/// If the table of promises has no such row or column.
pub fn render(body: &str) -> Result<String> {
    let (columns, rows) = body.split_once(':').unwrap_or((body, ""));
    let mut columns: Vec<&str> = columns.split_whitespace().collect();
    if columns.is_empty() {
        columns = CHAPTERS.iter().map(|it| it.name).collect();
    }
    if let Some(name) =
        columns.iter().find(|it| verdicts::columns().all(|known| known.name != **it))
    {
        return Err(Fault {
            what: format!("the table has no column {name}"),
            remedy: format!("it has {}", listed(verdicts::columns().map(|it| it.name))),
        });
    }
    let mut rows: Vec<Row> = rows.split_whitespace().map(row).collect::<Result<_>>()?;
    if rows.is_empty() {
        rows = TABLE.to_vec();
    }
    let heads: String = columns.iter().map(|it| format!(" `{it}` |")).collect();
    let mut table = format!("| a good server … |{heads}\n|---|{}\n", "---|".repeat(columns.len()));
    for row in rows {
        let cells: String = columns.iter().map(|it| cell(&row, it)).collect();
        table += &format!("| {} (`{}`) |{cells}\n", row.promise, row.name);
    }
    Ok(table)
}

fn row(name: &str) -> Result<Row> {
    verdicts::find(name).copied().ok_or_else(|| Fault {
        what: format!("the table has no row {name}"),
        remedy: format!("it has {}", TABLE.map(|it| it.name).join(", ")),
    })
}

fn cell(row: &Row, column: &str) -> String {
    match row.cell(column) {
        Some(Verdict::Fails(symptom)) => format!(" **fails**: {symptom} |"),
        _ => " holds |".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_columns_can_be_chosen() {
        let table = render(" ch02 ch04: half_a_line_stalls_nobody nothing_leaks").unwrap();
        let expected = "| a good server … | `ch02` | `ch04` |\n|---|---|---|\n\
            | serves others while a client has said half a line (`half_a_line_stalls_nobody`) \
            | **fails**: others wait for its 2 s of patience | holds |\n\
            | gives back descriptors, threads and memory when its clients have left (`nothing_leaks`) \
            | holds | holds |\n";
        assert_eq!(table, expected);
        let whole = render("").unwrap();
        assert_eq!(whole.lines().count(), 2 + TABLE.len());
        assert!(whole.starts_with("| a good server … | `ch01` |"), "{whole}");
        assert_eq!(render("ch06-crate").unwrap().lines().count(), 2 + TABLE.len());
    }

    #[test]
    fn what_the_table_does_not_have_is_told_with_what_it_has() {
        let told = render("ch99").unwrap_err().to_string();
        assert!(told.starts_with("the table has no column ch99\n    it has ch01, ch02"), "{told}");
        let told = render("ch01: nothing_leak").unwrap_err().to_string();
        assert!(told.contains("no row nothing_leak") && told.contains("nothing_leaks"), "{told}");
    }
}
