//! `{{#diff ch03 ch04}}`: what changes from one server to the next.

use crate::fault::{Fault, Result, fault, listed};
use similar::{Algorithm, TextDiff};
use std::fs;
use std::path::Path;

/// The directive's Markdown: a block of code with the unified diff of two loop files of `chapters`,
/// without the lines that are there for the book alone.
///
/// # Errors
/// If it does not name two servers that are there, or they do not differ.
pub fn render(body: &str, chapters: &Path) -> Result<String> {
    let names: Vec<_> = body.split_whitespace().collect();
    let [old, new] = names[..] else {
        return fault("it takes two servers", "write {{#diff ch03 ch04}}");
    };
    let (old_name, old) = source(old, chapters)?;
    let (new_name, new) = source(new, chapters)?;
    let diff = TextDiff::configure().algorithm(Algorithm::Patience).diff_lines(&old, &new);
    let text = diff.unified_diff().context_radius(3).header(&old_name, &new_name).to_string();
    if text.is_empty() {
        return fault(
            format!("{old_name} and {new_name} do not differ"),
            "leave the directive out",
        );
    }
    // What looks like a directive is code here, and mdBook looks into code too.
    let text = text.replace("{{#", "\\{{#");
    let fence = "`".repeat(longest_fence(&text).max(2) + 1);
    Ok(format!("{fence}diff\n{text}{fence}\n"))
}

/// The loop file of the server called `name`, and how it is called.
fn source(name: &str, chapters: &Path) -> Result<(String, String)> {
    let number = name.strip_prefix("ch").and_then(|it| it.get(..2));
    let folders = folders(chapters);
    let folder =
        number.and_then(|number| folders.iter().find(|it| it.starts_with(&format!("{number}-"))));
    let Some(folder) = folder else {
        return fault(
            format!("there is no chapter of {name}"),
            format!("write ch and the number of one of {}", listed(folders.iter().map(|it| &**it))),
        );
    };
    let path = match name.get(4..).unwrap_or_default() {
        "" => format!("{folder}/src/main.rs"),
        beside => {
            format!("{folder}/src/bin/{}.rs", beside.trim_start_matches('-').replace('-', "_"))
        }
    };
    let text = fs::read_to_string(chapters.join(&path)).map_err(|error| Fault {
        what: format!("read(chapters/{path}): {error}"),
        remedy: format!("{name} is shown by this file: name a server that has one"),
    })?;
    Ok((format!("chapters/{path}"), without_anchors(&text)))
}

/// The folders of the chapters, sorted.
fn folders(chapters: &Path) -> Vec<String> {
    let entries = fs::read_dir(chapters).into_iter().flatten().flatten();
    let names = entries.filter_map(|it| it.file_name().into_string().ok());
    let mut names: Vec<_> =
        names.filter(|it| it.starts_with(|it: char| it.is_ascii_digit())).collect();
    names.sort();
    names
}

/// The text without the lines of anchors, as mdBook leaves them out of an include.
fn without_anchors(text: &str) -> String {
    let is_anchor = |line: &str| line.contains("ANCHOR:") || line.contains("ANCHOR_END:");
    text.split_inclusive('\n').filter(|it| !is_anchor(it)).collect()
}

/// The longest run of backticks: the fence around them has to be longer.
fn longest_fence(text: &str) -> usize {
    text.split(|it| it != '`').map(str::len).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of `files`, in which `@` stands for the word that makes an anchor.
    fn chapters(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text.replace('@', "ANCHOR")).unwrap();
        }
        folder
    }

    #[test]
    fn a_diff_leaves_anchors_out_and_code_alone() {
        let folder = chapters(&[
            ("03-a/src/main.rs", "// @: f\nfn f() {}\n// @_END: f\n//! ```\n1\n"),
            ("03-a/src/bin/one_recv.rs", "fn f() {}\n// @: g\n//! ````\n//! {{#number x}}\n1\n"),
        ]);
        let expected = "`````diff\n--- chapters/03-a/src/main.rs\n\
            +++ chapters/03-a/src/bin/one_recv.rs\n@@ -1,3 +1,4 @@\n fn f() {}\n-//! ```\n\
            +//! ````\n+//! \\{{#number x}}\n 1\n`````\n";
        assert_eq!(render("ch03 ch03-one-recv", folder.path()).unwrap(), expected);
    }

    #[test]
    fn what_cannot_be_compared_is_told() {
        let folder = chapters(&[("03-a/src/main.rs", "1\n"), ("04-b/src/main.rs", "1\n")]);
        for (body, told) in [
            ("ch03", "it takes two servers"),
            ("ch03 ch04", "chapters/03-a/src/main.rs and chapters/04-b/src/main.rs do not differ"),
            (
                "ch03 ch05",
                "there is no chapter of ch05\n    write ch and the number of one of 03-a",
            ),
            ("ch03 main.rs", "there is no chapter of main.rs"),
            ("ch03 ch04-mio", "read(chapters/04-b/src/bin/mio.rs): No such file"),
        ] {
            let error = render(body, folder.path()).unwrap_err().to_string();
            assert!(error.starts_with(told), "{body}: {error}");
        }
    }
}
