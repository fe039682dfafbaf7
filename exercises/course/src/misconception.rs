//! Which wrong server a learner's attempt looks like.
//!
//! Two programs that fail the same rows in the same ways need not be wrong for the same reason, but mostly
//! are. The nearest of the wrong servers is looked up, and not named when it is far away.

use std::collections::BTreeSet;

use crate::exercise::Wrong;

/// A row, or a server, and what was found of it, in words.
pub type Cell = (String, String);

/// The wrong servers that `failed` looks like: none, or the nearest, several where they are as near.
pub fn matching<'a>(bank: &'a [Wrong], failed: &[Cell]) -> Vec<&'a Wrong> {
    let near = |wrong: &Wrong| likeness(wrong, failed);
    let best = bank.iter().map(near).fold(0.0, f64::max);
    if best < 0.5 {
        return Vec::new();
    }
    bank.iter().filter(|it| near(it) >= best).collect()
}

/// How much alike the cells of `wrong` and those that `failed` are: 1 where they are the same, 0 where the
/// row that is to kill it did not fail.
fn likeness(wrong: &Wrong, failed: &[Cell]) -> f64 {
    let failed: BTreeSet<&Cell> = failed.iter().collect();
    if !failed.contains(&wrong.killed_by) {
        return 0.0;
    }
    let mut its: BTreeSet<&Cell> = wrong.breaks_too.iter().collect();
    its.insert(&wrong.killed_by);
    let common = its.intersection(&failed).count() as f64;
    let all = if wrong.timing_decides { its.len() } else { its.union(&failed).count() };
    common / all as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(name: &str, cells: &[(&str, &str)]) -> Wrong {
        let cells: Vec<Cell> = cells.iter().map(|it| (it.0.into(), it.1.into())).collect();
        Wrong {
            name: name.into(),
            path: name.into(),
            misconception: String::new(),
            hint: String::new(),
            killed_by: cells[0].clone(),
            breaks_too: cells[1..].to_vec(),
            timing_decides: false,
        }
    }

    #[test]
    fn the_nearest_is_named_and_none_that_is_far() {
        let bank = [
            wrong("a", &[("x", "1")]),
            wrong("b", &[("x", "1"), ("y", "2")]),
            wrong("c", &[("z", "3")]),
            wrong("d", &[("z", "3")]),
        ];
        let named = |failed: &[(&str, &str)]| -> Vec<String> {
            let failed: Vec<Cell> = failed.iter().map(|it| (it.0.into(), it.1.into())).collect();
            matching(&bank, &failed).iter().map(|it| it.name.clone()).collect()
        };
        assert_eq!(named(&[("x", "1")]), ["a"]);
        assert_eq!(named(&[("y", "2"), ("x", "1")]), ["b"]);
        assert_eq!(named(&[("z", "3")]), ["c", "d"]);
        assert_eq!(named(&[("z", "4")]), [""; 0]);
        assert_eq!(named(&[("z", "3"), ("u", "1"), ("v", "1")]), [""; 0]);
    }
}
