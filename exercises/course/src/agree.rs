//! What must agree in the files of an exercise, and can be read off them.

use std::fs;

use crate::check::hole;
use crate::exercise::{Exercise, Kind};
use crate::hint;
use crate::home::Home;

/// What does not agree in the files of an exercise, in sentences.
pub fn disagreements(home: &Home, exercise: &Exercise) -> Vec<String> {
    let mut problems = names(exercise);
    problems.extend(files(home, exercise));
    problems.extend(readme(exercise));
    problems.into_iter().map(|it| format!("{}: {it}", exercise.id)).collect()
}

/// Those of `demands` that are not so.
fn unmet(demands: impl IntoIterator<Item = (bool, String)>) -> Vec<String> {
    demands.into_iter().filter(|it| !it.0).map(|it| it.1).collect()
}

fn names(exercise: &Exercise) -> Vec<String> {
    let Exercise { id, title, .. } = exercise;
    let manifest = fs::read_to_string(exercise.folder.join("Cargo.toml")).unwrap_or_default();
    let number = id.strip_prefix("ex").unwrap_or_default();
    let is_number = number.len() == 2 && number.parse::<u8>().is_ok();
    let folder = exercise.folder_name();
    unmet([
        (is_number, "the id is not as ex03".to_owned()),
        (
            folder.starts_with(&format!("{id}-")),
            format!("the folder {folder} does not begin with {id}-"),
        ),
        (
            manifest.contains(&format!("\nname = \"{id}\"\ndescription = \"{title}\"\n")),
            format!("Cargo.toml does not call it {id}, with the description {title:?}"),
        ),
    ])
}

fn files(home: &Home, exercise: &Exercise) -> Vec<String> {
    let number = exercise.id.trim_start_matches("ex");
    let (main, starter) = (home.shown(&exercise.main()), home.shown(&exercise.starter()));
    let mut problems = unmet([(
        exercise.starter().is_file() && exercise.is_untouched(),
        format!(
            "{main} is not the pristine copy {starter}: an attempt must not be committed (cargo course \
             reset); where it is the starter that has changed, copy it there"
        ),
    )]);
    let why = exercise.solutions.join("WHY.md");
    problems.extend(unmet([(why.is_file(), format!("{} is not there", home.shown(&why)))]));
    for path in [exercise.starter(), exercise.solution()] {
        let text = fs::read_to_string(&path).unwrap_or_default();
        let begins = text.starts_with(&format!("//! Exercise {number}"));
        let what = format!("{} does not begin with `//! Exercise {number}`", home.shown(&path));
        problems.extend(unmet([(begins, what)]));
    }
    let text = fs::read_to_string(exercise.starter()).unwrap_or_default();
    let hints = fs::read_to_string(exercise.folder.join("HINTS.md")).unwrap_or_default();
    let hints = hint::levels(&hints).len();
    let wrong = exercise.wrong().map_or(usize::MAX, |it| it.len());
    problems.extend(unmet([
        (
            hole(&text).is_some() == (exercise.kind == Kind::Hole),
            "a starter has a todo!() if, and only if, its kind is \"hole\"".to_owned(),
        ),
        (hints == 3, format!("HINTS.md has {hints} levels (`## 1`), and three are to be there")),
        (wrong >= 3, format!("it has {wrong} wrong programs, and three are the least")),
    ]));
    problems
}

fn readme(exercise: &Exercise) -> Vec<String> {
    let Exercise { id, title, minutes, .. } = exercise;
    let number = id.trim_start_matches("ex");
    let text = fs::read_to_string(exercise.folder.join("README.md")).unwrap_or_default();
    let first = text.lines().next().unwrap_or_default().to_lowercase();
    let expected = format!("# Exercise {number}: {title}");
    let mut demands = vec![(
        first == expected.to_lowercase(),
        format!("README.md does not begin with `{expected}`"),
    )];
    let parts = [
        "**Chapter** [".to_owned(),
        format!("**About** {minutes} minutes"),
        "**You may edit** ".to_owned(),
        "\n## The task\n".to_owned(),
        "\n## Predict first\n".to_owned(),
        "<details><summary>The answer</summary>".to_owned(),
        "\n## Done when\n".to_owned(),
        format!("cargo course check {id}"),
        format!("cargo course hint {id}"),
    ];
    let edited = exercise.edit.iter().map(|it| format!("`{it}`"));
    for part in parts.into_iter().chain(edited) {
        demands.push((text.contains(&part), format!("README.md has no `{}`", part.trim())));
    }
    unmet(demands)
}
