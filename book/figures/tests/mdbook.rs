//! The command as mdBook runs it: with a book of JSON, and by mdBook itself where it is installed.

use assert_cmd::Command;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process;

const BINARY: &str = env!("CARGO_BIN_EXE_mdbook-figures");

/// What mdBook writes to a preprocessor: where the book is, and a chapter that says `content`.
fn input(root: &Path, content: &str) -> String {
    let content = content.replace('\n', "\\n").replace('"', "\\\"");
    format!(
        r#"[{{"root": "{}", "config": {{"book": {{"src": "src"}}, "preprocessor": {{"figures": {{}}}}}},
            "renderer": "html", "mdbook_version": "0.5.4"}},
           {{"items": [{{"Chapter": {{"name": "One", "content": "{content}", "number": [1], "sub_items": [],
             "path": "index.md", "source_path": "README.md", "parent_names": []}}}}, "Separator"]}}]"#,
        root.display()
    )
}

/// A book's folder with one record.
fn book() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let book = folder.path().join("book");
    fs::create_dir_all(book.join("data")).expect("a folder");
    fs::create_dir_all(book.join("src")).expect("a folder");
    fs::write(book.join("data/knee.csv"), "server,qps\nch02,120\nch04,390\n").expect("a file");
    fs::write(book.join("data/knee.json"), "{}").expect("a file");
    folder
}

#[test]
fn a_book_goes_in_and_comes_out() {
    let folder = book();
    let root = folder.path().join("book");
    let output = Command::new(BINARY)
        .write_stdin(input(&root, "About {{#number knee[server=ch04].qps}}."))
        .assert()
        .success();
    let text = String::from_utf8(output.get_output().stdout.clone()).expect("text");
    assert!(text.starts_with("{\"items\":[{\"Chapter\":{\"name\":\"One\""), "{text}");
    assert!(text.contains(">390</data>."), "{text}");
}

#[test]
fn a_false_claim_ends_it_with_a_sentence() {
    let folder = book();
    let root = folder.path().join("book");
    let page = "# One\n\n{{#claim knee[server=ch02].qps > knee[server=ch04].qps}}\n";
    let output = Command::new(BINARY).write_stdin(input(&root, page)).assert().failure();
    let told = String::from_utf8(output.get_output().stderr.clone()).expect("text");
    insta::assert_snapshot!(told, @"
    mdbook-figures: 1 to mend before the book can be built:
    book/src/README.md:3: claim: it is false: knee[server=ch02].qps = 120 is not > knee[server=ch04].qps = 390
        change the sentence, or measure again: it is checked against the committed records
    ");
    assert_eq!(output.get_output().stdout, b"");
}

#[test]
fn what_is_wrong_in_several_places_is_said_once() {
    let folder = book();
    let root = folder.path().join("book");
    let page = "{{#number a.b}}\n{{#number c.d}}\n{{#number a.b}}\n{{#claim 1 < a.b}}\n";
    let output = Command::new(BINARY).write_stdin(input(&root, page)).assert().failure();
    let told = String::from_utf8(output.get_output().stderr.clone()).expect("text");
    insta::assert_snapshot!(told, @"
    mdbook-figures: 4 to mend before the book can be built:
    book/src/README.md:1: number: there is no book/data/a.csv
        measure it (cargo lab list), or name one that is there: knee
        the same at book/src/README.md:3, book/src/README.md:4
    book/src/README.md:2: number: there is no book/data/c.csv
        measure it (cargo lab list), or name one that is there: knee
    ");
}

#[test]
fn whoever_runs_it_by_hand_is_told_what_it_is_for() {
    let output = Command::new(BINARY).write_stdin("").assert().failure();
    let told = String::from_utf8(output.get_output().stderr.clone()).expect("text");
    assert!(told.starts_with("mdbook-figures: mdBook runs this and gives it the book"), "{told}");
    Command::new(BINARY).args(["supports", "html"]).assert().success();
}

/// Builds the book in `folder` by mdBook, if it is there.
fn build(folder: &Path) -> Option<process::Output> {
    match process::Command::new("mdbook").arg("build").arg(folder).output() {
        Ok(output) => Some(output),
        Err(error) => {
            // Not by a macro: of a test that passes, those are not shown.
            let told = "NEEDS mdbook: cargo install mdbook --version 0.5.4 --locked";
            writeln!(io::stderr(), "\n{told} ({error})").expect("standard error");
            None
        }
    }
}

#[test]
fn mdbook_builds_a_page_with_its_line_numbers_and_fails_with_our_sentence() {
    let folder = book();
    let root = folder.path().join("book");
    let config = format!(
        "[book]\ntitle = \"T\"\n[preprocessor.figures]\ncommand = \"{BINARY}\"\nbefore = [\"links\"]\n\
         renderers = [\"html\"]\n"
    );
    fs::write(root.join("book.toml"), config).expect("a file");
    fs::write(root.join("src/SUMMARY.md"), "- [One](one.md)\n").expect("a file");
    // Four lines, which mdBook puts in the place of one: ours are those of the page.
    fs::write(root.join("src/four.svg"), "<svg>\n<!-- a -->\n<!-- b -->\n</svg>\n")
        .expect("a file");
    let page = |claim: &str| {
        let figure = "{{#figure knee x=server y=qps title=\"Knees\"}}";
        let page =
            format!("# One\n\n{{{{#include four.svg}}}}\n\n{figure}\n\n{{{{#claim {claim}}}}}\n");
        fs::write(root.join("src/one.md"), page).expect("a file");
    };
    page("knee[server=ch02].qps < knee[server=ch04].qps");
    let Some(output) = build(&root) else { return };
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{told}");
    let html = fs::read_to_string(root.join("book/one.html")).expect("the page");
    let figure = html.split_once("<figure class=\"measured\"").expect("the figure").1;
    let (figure, after) = figure.split_once("</figure>").expect("its end");
    // HTML does not mind how `viewBox` is written, and mdBook writes it in its own way.
    assert!(
        figure.contains("<desc ") && figure.contains("<th scope=\"row\">ch04</th>"),
        "{figure}"
    );
    assert!(!figure.contains("&lt;"), "Markdown took a part of it for text: {figure}");
    assert!(after.contains("class=\"checked\""), "{after}");
    page("knee[server=ch02].qps > knee[server=ch04].qps");
    let output = build(&root).expect("it was there a moment ago");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{told}");
    assert!(
        told.contains("book/src/one.md:7: claim: it is false: knee[server=ch02].qps = 120"),
        "{told}"
    );
}
