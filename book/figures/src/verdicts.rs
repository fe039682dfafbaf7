//! `{{#verdicts ch03 ch04: row row}}`: rows of the tables of promises, as the tests hold them.

use crate::fault::{Fault, Result, listed};
use contract::verdicts::models::HTTP;
use contract::verdicts::{CHAPTERS, LINES, Row, Table, Verdict};

/// What stands for all models of chapter 07, in one letter each: eleven columns of sentences are no table.
const MODELS: &str = "models";

/// The directive's Markdown: a table.
///
/// # Errors
/// If no table of promises has such rows or columns.
pub fn render(body: &str) -> Result<String> {
    let (columns, rows) = body.split_once(':').unwrap_or((body, ""));
    let mut columns: Vec<&str> = columns.split_whitespace().collect();
    let is_short = columns == [MODELS];
    if columns.is_empty() {
        columns = CHAPTERS.iter().map(|it| it.name).collect();
    } else if is_short {
        columns = HTTP.columns.iter().map(|it| it.name).collect();
    }
    let table = table_of(columns[0]);
    if let Some(name) = columns.iter().find(|it| !has(&table, it)) {
        return Err(Fault {
            what: format!("the table has no column {name}"),
            remedy: format!("it has {}", listed(table.columns.iter().map(|it| it.name))),
        });
    }
    let mut chosen: Vec<Row> =
        rows.split_whitespace().map(|it| row(&table, it)).collect::<Result<_>>()?;
    if chosen.is_empty() {
        chosen = table.rows.to_vec();
    }
    if is_short {
        let (kept, broken): (Vec<Row>, _) =
            chosen.into_iter().partition(|it| it.cells.iter().all(|it| *it == Verdict::Holds));
        return Ok(in_letters(&table, &broken) + &kept_by_all(&kept));
    }
    let heads: String = columns.iter().map(|it| format!(" `{it}` |")).collect();
    let mut text = format!("| a good server … |{heads}\n|---|{}\n", "---|".repeat(columns.len()));
    for row in chosen {
        let cells: String = columns.iter().map(|it| cell(&row, it)).collect();
        text += &format!("| {} (`{}`) |{cells}\n", row.promise, row.name);
    }
    Ok(text)
}

/// The table that has `column`; that of the chapters if none has.
fn table_of(column: &str) -> Table {
    if has(&HTTP, column) { HTTP } else { LINES }
}

fn has(table: &Table, column: &str) -> bool {
    table.columns.iter().any(|it| it.name == column)
}

fn row(table: &Table, name: &str) -> Result<Row> {
    table.rows.iter().find(|it| it.name == name).copied().ok_or_else(|| Fault {
        what: format!("the table has no row {name}"),
        remedy: format!("it has {}", listed(table.rows.iter().map(|it| it.name))),
    })
}

fn cell(row: &Row, column: &str) -> String {
    match row.cell(column) {
        Some(Verdict::Fails(symptom)) => format!(" **fails**: {symptom} |"),
        _ => " holds |".to_owned(),
    }
}

/// A letter for each cell, with what the letters and the numbers of the columns mean.
fn in_letters(table: &Table, rows: &[Row]) -> String {
    let heads: String = (1..=table.columns.len()).map(|it| format!(" {it} |")).collect();
    let mut text = format!(
        "<div class=\"letters\">\n\n| a good server … |{heads}\n|---|{}\n",
        ":-:|".repeat(table.columns.len())
    );
    let mut used = Vec::new();
    for row in rows {
        text += &format!("| {} |", row.promise);
        for verdict in row.cells {
            match verdict {
                Verdict::Holds => text += " · |",
                Verdict::Fails(symptom) => {
                    used.push(*symptom);
                    text += &format!(" **{}** |", symptom.letter());
                }
            }
        }
        text.push('\n');
    }
    used.sort_by_key(|it| it.letter());
    used.dedup();
    let used: Vec<_> = used.iter().map(|it| format!("**{}** fails: {it}", it.letter())).collect();
    text += &format!("\n</div>\n\nA dot: holds. {}.\n\n", used.join("; "));
    for (at, column) in table.columns.iter().enumerate() {
        text += &format!("{}. `{}`: {}\n", at + 1, column.name, column.about);
    }
    text
}

/// The rows without a letter, which are no table: a list to open.
fn kept_by_all(rows: &[Row]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut text =
        format!("\n<details>\n<summary>All of them keep {} more</summary>\n\n", rows.len());
    for row in rows {
        text += &format!("- {} (`{}`)\n", row.promise, row.name);
    }
    text + "\n</details>\n"
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
        assert_eq!(whole.lines().count(), 2 + LINES.rows.len());
        assert!(whole.starts_with("| a good server … | `ch01` |"), "{whole}");
        assert_eq!(render("ch06-crate").unwrap().lines().count(), 2 + LINES.rows.len());
    }

    #[test]
    fn the_models_are_in_letters_or_in_words() {
        let text = render("models: half_a_head_stalls_nobody every_core_serves").unwrap();
        let expected = "<div class=\"letters\">\n\n| a good server … | 1 | 2 |";
        assert!(text.starts_with(expected), "{text}");
        let [_, _, _, _, head, cores, ..] = &text.lines().collect::<Vec<_>>()[..] else {
            panic!("{text}")
        };
        assert!(head.ends_with("half a head | **p** | · | · | · | · | · | · | · | · | · | · |"));
        assert!(cores.contains(" **c** |"), "{cores}");
        assert!(
            text.contains("A dot: holds. **c** fails: one core does all the work; **p** fails")
        );
        assert!(text.ends_with("11. `io-uring`: a ring for each core\n"), "{text}");
        let whole = render("models").unwrap();
        assert!(
            whole.contains("\n- sleeps while nobody asks anything (`an_idle_server_"),
            "{whole}"
        );
        let words = render("prefork io-uring: half_a_head_stalls_nobody").unwrap();
        assert!(words.ends_with("(`half_a_head_stalls_nobody`) | holds | holds |\n"), "{words}");
        let told = render("prefork ch01").unwrap_err().to_string();
        assert!(told.starts_with("the table has no column ch01\n    it has iterative, "), "{told}");
    }

    #[test]
    fn what_the_table_does_not_have_is_told_with_what_it_has() {
        let told = render("ch99").unwrap_err().to_string();
        assert!(told.starts_with("the table has no column ch99\n    it has ch01, ch02"), "{told}");
        let told = render("ch01: nothing_leak").unwrap_err().to_string();
        assert!(told.contains("no row nothing_leak") && told.contains("nothing_leaks"), "{told}");
    }
}
