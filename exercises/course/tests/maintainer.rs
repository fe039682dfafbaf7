//! `verify` is green here, and red with a sentence for whatever is broken.

mod common;

use std::fs;

use common::Copy;

#[test]
fn whatever_is_broken_is_told() {
    let copy = Copy::of(&["ex01", "ex02"]);
    let (one, two) = ("exercises/solutions/ex01", "exercises/solutions/ex02");
    // A starter that was mended, an attempt that was committed, a solution that solves nothing.
    copy.put(&format!("{one}/main.rs"), &format!("{one}/starter.rs"));
    copy.put(&format!("{two}/starter.rs"), &format!("{two}/main.rs"));
    // Wrong servers: one that is right, one that says too little, one that does not compile, one that is
    // not formatted.
    copy.put(&format!("{two}/wrong/reads_until_the_end.rs"), &format!("{two}/wrong/lingers.rs"));
    let path = copy.path(&format!("{two}/wrong/lingers.rs"));
    let header = "//! Misconception: none.\n//!\n//! Killed by: an_overlong_line_is_refused (resets the connection)\n//! Hint: None.\n";
    let right = "mod common;\n\nuse std::process::ExitCode;\n\nfn main() -> ExitCode {\n    \
        common::run(|listener| common::thread_each(&listener, common::converse))\n}\n";
    fs::write(&path, format!("{header}\n{right}")).unwrap();
    let spoil = |path: &str, from: &str, to: &str| {
        let text = fs::read_to_string(copy.path(path)).unwrap();
        assert!(text.contains(from), "{path} has no {from:?}");
        fs::write(copy.path(path), text.replacen(from, to, 1)).unwrap();
    };
    spoil(&format!("{one}/wrong/needs_a_newline.rs"), "fn main()", "fn mian()");
    spoil(&format!("{one}/wrong/answers_each_recv.rs"), "mod common;", "mod  common;");
    spoil(
        &format!("{two}/wrong/reads_until_the_end.rs"),
        "//! In other rows, timing decides whether it is seen.\n",
        "",
    );
    spoil("exercises/ex01-say-what-you-wait-for/README.md", "## Predict first", "## Guess");
    let (said, status) = copy.course(&["verify"], 300);
    let words = [
        "ex01: exercises/ex01-say-what-you-wait-for/src/main.rs is not the pristine copy",
        "ex01: README.md has no `## Predict first`",
        "answers_each_recv.rs: is not formatted",
        "ex01-wrong-needs-a-newline does not compile:",
        "the starter of ex01 is to say \"does not answer\" in answers_odd_even_invalid, and says \"holds\"",
        "the starter of ex01 is to get STALL, and gets PASS",
        "the solution of ex02 says \"resets the connection\" in an_overlong_line_is_refused, 3 times of 3",
        "ex02-wrong-lingers is to be killed by an_overlong_line_is_refused (resets the connection), which says \"holds\"",
        "ex02-wrong-reads-until-the-end breaks an_overlong_line_is_refused, too, and does not say so",
        "things are not as they are said to be",
    ];
    for word in words {
        assert!(said.contains(word), "no {word:?} in:\n{said}");
    }
    assert_eq!(status, 1);
}
