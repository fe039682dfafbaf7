//! Which servers take part: the columns of the table of promises.

use anyhow::{Result, bail};
use contract::verdicts::{CHAPTERS, Column, columns};

/// The program of all models of chapter 07: not in the table of 01 to 06, since it speaks HTTP.
pub const CH07: Column = Column { name: "ch07", about: "eleven models, one HTTP core" };

/// The servers named in `text` (`01,04` or `ch01,ch03-one-recv`), or all chapters.
///
/// # Errors
/// If a name is unknown or stands there twice: the sentence lists those that there are.
pub fn choose(text: Option<&str>) -> Result<Vec<Column>> {
    let Some(text) = text else { return Ok(CHAPTERS.to_vec()) };
    let mut chosen: Vec<Column> = Vec::new();
    for name in text.split(',').map(str::trim) {
        let Some(column) = columns().find(|it| it.name == name || short(it.name) == name) else {
            let known: Vec<&str> = columns().map(|it| short(it.name)).collect();
            bail!("no server is called '{name}': there is {}", known.join(", "));
        };
        if chosen.contains(&column) {
            bail!("'{name}' is named twice: each server runs once");
        }
        chosen.push(column);
    }
    Ok(chosen)
}

/// The columns of those of `names` that there are, in their order.
pub fn named(names: &[&str]) -> Vec<Column> {
    names.iter().filter_map(|name| columns().find(|it| it.name == *name)).collect()
}

/// How people call a server: `01` for `ch01`.
pub fn short(name: &str) -> &str {
    name.strip_prefix("ch").unwrap_or(name)
}

/// The package that holds the binary `name`: `ch03` for `ch03-one-recv`.
pub fn package(name: &str) -> &str {
    name.get(..4).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_found_by_either_name() {
        let chosen = choose(Some("04, ch01,03-one-recv")).unwrap();
        let names: Vec<&str> = chosen.iter().map(|it| it.name).collect();
        assert_eq!(names, ["ch04", "ch01", "ch03-one-recv"]);
        assert_eq!(choose(None).unwrap(), CHAPTERS);
        assert_eq!(package("ch03-one-recv"), "ch03");
    }

    #[test]
    fn an_unknown_server_and_a_double_one_are_refused() {
        let unknown = choose(Some("01,09")).unwrap_err().to_string();
        assert!(
            unknown.starts_with("no server is called '09': there is 01, 02, 03, 04, "),
            "{unknown}"
        );
        let double = choose(Some("01,ch01")).unwrap_err().to_string();
        assert_eq!(double, "'ch01' is named twice: each server runs once");
        assert!(choose(Some("")).is_err());
    }
}
