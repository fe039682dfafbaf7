//! Pages as a writer writes them: what they become, and what is said of those that are wrong.

use figures::record::Records;
use figures::{Page, Sources, expand};
use std::fs;
use std::path::Path;

/// A few records, and none of the reader's.
fn sources() -> (tempfile::TempDir, Sources) {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("local")).expect("a folder in it");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("a file");
    write(
        "race.csv",
        "experiment,server,stall,seed,target_qps,due,good,p50_ms\n\
         race,ch01,silent,1,10,10,10,5\nrace,ch01,silent,2,10,10,8,9\nrace,ch01,silent,1,110,100,20,\n\
         race,ch04,silent,1,10,10,10,1\nrace,ch04,silent,2,10,10,10,2\nrace,ch04,silent,1,110,100,100,4\n",
    );
    write(
        "race.json",
        "{\"date\": \"2030-01-02T03:04:05Z\", \"command\": \"cargo lab race\", \"commit\": \"abc\", \
         \"kernel\": \"6.1\", \"cpu\": \"A <fast> one\", \"cores\": 2, \"interrupted\": true}",
    );
    write("odd.csv", "rate,p50_ms\n1,NaN\n");
    write("odd.json", "{}");
    write("empty.csv", "rate,p50_ms\n1,\n2,\n");
    write("empty.json", "{}");
    let sources = Sources {
        ours: Records::new(folder.path(), "book/data"),
        yours: Records::new(folder.path().join("local"), "book/data/local"),
        chapters: Path::new(env!("CARGO_MANIFEST_DIR")).join("../../chapters"),
        notes: Default::default(),
    };
    (folder, sources)
}

/// The page made of `text`.
fn page(text: &str) -> Page {
    let (_folder, sources) = sources();
    expand(text, "book/src/p.md", &sources)
}

/// What it says, if nothing is wrong with it.
fn good(text: &str) -> String {
    let page = page(text);
    assert_eq!(page.problems, [], "{text}");
    page.text
}

/// What is said of a page that is wrong.
fn told(text: &str) -> Vec<String> {
    page(text).problems.iter().map(ToString::to_string).collect()
}

const FIGURE: &str = "{{#figure race x=target_qps y=\"100 * good / due\" y2=p50_ms log=y2 series=server\n\
     title=\"Who answers\" x_title=\"requests per second\" y_title=\"answered, %\" y2_title=\"median, ms\"}}\n";

#[test]
fn a_number_stands_in_its_sentence() {
    insta::assert_snapshot!(
        good("It takes {{#number median race[server=ch01, target_qps=10].p50_ms | unit=ms digits=1}}."),
        @r#"It takes <data class="number" value="7" title="median race[server=ch01, target_qps=10].p50_ms">7.0 ms</data>."#
    );
}

#[test]
fn a_claim_is_a_sentence_with_a_mark() {
    insta::assert_snapshot!(
        good("{{#claim max race[server=ch04].p50_ms < 5 ~25% meta(race.cores) * 2\n | text=\"`04` takes {max race[server=ch04].p50_ms | unit=ms}.\"}}"),
        @r#"<span class="claim">`04` takes <data class="number" value="4" title="max race[server=ch04].p50_ms">4 ms</data>.&#8288;<span class="checked" role="img" aria-label="checked against the records" title="max race[server=ch04].p50_ms &lt; 5 ~25% meta(race.cores) * 2">✓</span></span>"#
    );
}

#[test]
fn a_figure_of_lines() {
    insta::assert_snapshot!("lines", good(FIGURE));
}

#[test]
fn a_figure_of_words_and_panels() {
    let text = "{{#figure race x=server y=p50_ms panel=target_qps where=\"stall=silent\" highlight=\"\" \
         names=\"10: ten, ch04: the fourth\" title=\"How soon\" y_title=\"median, ms\"}}\n";
    insta::assert_snapshot!("words", good(text));
}

#[test]
fn a_figure_of_dots() {
    let (folder, sources) = sources();
    let rows = "server,family,seed,load,mean_ms,worst_ms\n\
         iterative,one,1,few,1,900\niterative,one,2,few,2,1100\nfork,each,1,few,3,40\n\
         thread-per-connection,each,1,few,4,\niterative,one,1,many,1,\n";
    fs::write(folder.path().join("arena.csv"), rows).expect("a file");
    fs::write(folder.path().join("arena.json"), "{}").expect("a file");
    let text = "{{#figure arena kind=dots x=server y=mean_ms y2=worst_ms series=family log=y \
         where=\"load=few\" title=\"Who waits\" x_title=model y_title=\"mean, ms\" \
         y2_title=\"longest, ms\" names=\"one: a fixed number\"}}\n";
    let page = expand(text, "book/src/p.md", &sources);
    assert_eq!(page.problems, []);
    insta::assert_snapshot!("dots", page.text);
    let alone = "{{#figure arena kind=dots x=server y=mean_ms panel=load title=T}}\n";
    let page = expand(alone, "book/src/p.md", &sources);
    assert_eq!(page.problems, []);
    assert!(page.text.contains("<text class=\"tick end\" x=\"336.0\" y="), "{}", page.text);
    let odd = "{{#figure arena kind=dots x=seed y=mean_ms where=\"server=fork\" title=T}}\n";
    let page = expand(odd, "book/src/p.md", &sources);
    let told = page.problems[0].to_string();
    assert!(told.contains("kind=dots has a row for each word, and seed is a number"), "{told}");
}

#[test]
fn what_was_not_measured_is_a_gap() {
    let (folder, sources) = sources();
    let rows = "rate,p50_ms\n1,1\n2,2\n3,\n4,4\n5,5\n6,\n7,7\n";
    fs::write(folder.path().join("gap.csv"), rows).expect("a file");
    fs::write(folder.path().join("gap.json"), "{}").expect("a file");
    let page = expand("{{#figure gap x=rate y=p50_ms title=T}}\n", "book/src/p.md", &sources);
    let wide = page.text.split("</svg>").next().unwrap_or_default();
    let count = |part: &str| wide.matches(part).count();
    assert_eq!((count("<path class=\"line\""), count("<circle class=\"mark\"")), (2, 5), "{wide}");
}

#[test]
fn a_prediction_is_dashed_and_in_the_table() {
    let figure = |x: &str| {
        good(&format!(
            "{{{{#figure race x={x} y=p50_ms predicted=\"0.05 * due\" panel=seed title=T \
             where=\"target_qps=110|10, server=ch04\"}}}}\n"
        ))
    };
    let lines = figure("target_qps");
    for part in [
        "<g class=\"series hue-1 predicted\">\n<path class=\"line\" ",
        "<p class=\"origin\">Dashes: predicted. Measured: ",
        "<th scope=\"col\">p50_ms (predicted)</th></tr></thead>\n<tbody>\n\
         <tr><th scope=\"row\">10</th><td>1</td><td>0.5</td></tr>",
        "p50_ms: from 1 at 10 to 4 at 110; (predicted) from 0.5 at 10 to 5 at 110.",
    ] {
        assert!(lines.contains(part), "{part}: {lines}");
    }
}

#[test]
fn a_figure_has_no_empty_line_and_its_ids_are_its_own() {
    let text = good(&format!("{FIGURE}\ntext\n\n{FIGURE}"));
    let blocks: Vec<_> = text.split("<figure").collect();
    assert_eq!(blocks.len(), 3);
    for block in &blocks[1..] {
        let (block, _) = block.split_once("</figure>").expect("its end");
        assert!(
            block.lines().all(|it| !it.trim().is_empty()),
            "an empty line ends HTML in Markdown"
        );
    }
    let mut ids: Vec<_> =
        text.match_indices(" id=\"").map(|(at, _)| &text[at + 5..][..40]).collect();
    let ids_of_all = ids.len();
    ids = ids.into_iter().map(|it| it.split('"').next().unwrap_or_default()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), ids_of_all, "{ids:#?}");
    assert!(ids.iter().all(|it| it.starts_with("p-p-figure-")), "{ids:#?}");
}

#[test]
fn a_false_claim_is_told_with_both_of_its_sides() {
    assert_eq!(
        told(
            "# P\n\nText.\n{{#claim min race[server=ch04].p50_ms > max race[server=ch01].p50_ms | text=\"x\"}}\n"
        ),
        [
            "book/src/p.md:4: claim: it is false: min race[server=ch04].p50_ms = 1 is not > max race[server=ch01].p50_ms = 9\n    \
          change the sentence, or measure again: it is checked against the committed records"
        ]
    );
    let chain = told("{{#claim 1 < 2 < 2}}");
    assert!(chain[0].contains("it is false: 2 is not < 2"), "{chain:?}");
}

#[test]
fn a_claim_that_is_true_becomes_false_with_its_data() {
    let text = "{{#claim race[server=ch04, target_qps=110].p50_ms < 5}}";
    let (folder, sources) = sources();
    assert_eq!(expand(text, "book/src/p.md", &sources).problems, []);
    let path = folder.path().join("race.csv");
    let changed = fs::read_to_string(&path).expect("it").replace("100,100,4", "100,100,6");
    fs::write(&path, changed).expect("it");
    let sources = Sources { ours: Records::new(folder.path(), "book/data"), ..sources };
    let told = expand(text, "book/src/p.md", &sources).problems[0].to_string();
    assert!(told.contains("p50_ms = 6 is not < 5"), "{told}");
}

#[test]
fn whatever_is_wrong_is_told_with_its_line() {
    let figure = |rest: &str| format!("\n\n{{{{#figure {rest} title=T}}}}\n");
    for (text, expected) in [
        ("\n\n{{#number none.p50_ms}}", "number: there is no book/data/none.csv"),
        ("\n\n{{#number max race.p99_ms}}", "number: book/data/race.csv has no column p99_ms"),
        ("\n\n{{#number max odd.p50_ms}}", "number: book/data/odd.csv:2: p50_ms is `NaN`"),
        ("\n\n{{#number max empty.p50_ms}}", "number: empty[].p50_ms was not measured"),
        ("\n\n{{#number race.p50_ms}}", "number: race[].p50_ms is 6 rows, and one is needed"),
        ("\n\n{{#number max race.p50_ms | unit=ms unit=s}}", "number: `unit` is there twice"),
        ("\n\n{{#number max race.p50_ms", "a directive: it is not closed"),
        ("\n\n{{#claim 1 < 2 | text=\"{1\"}}", "claim: a `{` of the text is not closed"),
        ("\n\n{{#claim 1 < 2 | text=\"{none.a}\"}}", "claim: there is no book/data/none.csv"),
        ("\n\n{{#numbr 1}}", "numbr: there is no such directive\n    there are number, claim"),
        ("\n\n{{#verdicts ch99}}\n", "verdicts: the table has no column ch99"),
        ("\n\n{{#diff ch03 ch99}}\n", "diff: there is no chapter of ch99"),
        ("\n\n  {{#verdicts}}\n", "verdicts: it does not stand alone on its lines"),
        ("\n\n{{#verdicts}} here\n", "verdicts: it does not stand alone on its lines"),
        (&figure("none x=rate y=p50_ms"), "figure: there is no book/data/none.csv"),
        (&figure("race x=rate y=p50_ms"), "figure: book/data/race.csv has no column rate"),
        (&figure("odd x=rate y=p50_ms"), "figure: book/data/odd.csv:2: p50_ms is `NaN`"),
        (
            &figure("empty x=rate y=p50_ms"),
            "figure: book/data/empty.csv: there is no number to draw",
        ),
    ] {
        let told = told(text);
        assert_eq!(told.len(), 1, "{text}: {told:?}");
        let expected = format!("book/src/p.md:3: {expected}");
        assert!(told[0].starts_with(&expected), "{text}: {} is not\n{expected}", told[0]);
    }
}

#[test]
fn all_that_is_wrong_is_told_at_once_and_the_rest_is_done() {
    let page = page("{{#number a.b}}\n{{#number 1 + 1}}\n\n{{#claim 2 < 1}}\n");
    let lines: Vec<_> = page.problems.iter().map(|it| it.line).collect();
    assert_eq!(lines, [1, 4]);
    assert!(page.text.contains("value=\"2\""), "{}", page.text);
}

#[test]
fn what_is_mdbooks_or_code_stays_as_it_is() {
    let text = "{{#title A}}\n```rust\n{{#include ../x.rs:anchor}}\n// ANCHOR_END\n```\n\
        {{#include y.svg}} `{{#number a.b}}` \\{{#number a.b}}\n\n~~~~text\n{{#figure nothing}}\n~~~~\n";
    assert_eq!(good(text), text);
}

#[test]
fn rows_and_diffs_are_markdown_of_their_own() {
    let text = good(
        "Before.\n{{#verdicts ch03 ch04: half_a_line_stalls_nobody}}\nAfter.\n\n{{#diff ch03 ch04-bare}}\n",
    );
    assert!(text.starts_with("Before.\n\n| a good server … | `ch03` | `ch04` |\n|---|"), "{text}");
    assert!(text.contains(" | holds |\n\nAfter.\n"), "{text}");
    let (_, diff) = text.split_once("```diff\n--- chapters/03-").expect("a diff");
    assert!(diff.contains("\n+++ chapters/04-") && diff.ends_with("\n```\n\n"), "{diff}");
    assert!(!diff.contains("ANCHOR"), "anchors are the book's");
}

#[test]
fn the_readers_record_is_laid_over_ours() {
    let (folder, sources) = sources();
    let local = folder.path().join("local");
    let write = |name: &str, text: &str| fs::write(local.join(name), text).expect("a file");
    write(
        "race.csv",
        "experiment,server,stall,seed,target_qps,due,good,p50_ms\nrace,ch04,silent,1,10,10,5,3\n\
         race,ch04,silent,1,110,100,50,30\n",
    );
    write("race.json", "{\"cpu\": \"mine\", \"cores\": 1}");
    let text = format!(
        "{{{{#number race[server=ch04, target_qps=110].p50_ms | unit=ms}}}}\n\
         {{{{#number max race[server=ch01].p50_ms}}}}\n{{{{#number meta(race.cores)}}}}\n\
         {{{{#claim race[server=ch04, target_qps=110].p50_ms < 5}}}}\n\n{FIGURE}"
    );
    let page = expand(&text, "book/src/p.md", &sources);
    assert_eq!(page.problems, [], "claims are about ours");
    assert_eq!(sources.notes.take(), [""; 0]);
    let mut lines = page.text.lines();
    let mut next = || lines.next().unwrap_or_default();
    assert!(next().ends_with("4\u{a0}ms</data> <span class=\"yours\">(yours: 30\u{a0}ms)</span>"));
    assert!(!next().contains("yours"), "it has no ch01");
    assert!(next().contains("(yours: 1)"));
    let of_two = "{{#number max race.p50_ms + count odd[rate=1].rate}}";
    let text = expand(of_two, "book/src/p.md", &sources).text;
    assert!(!text.contains("yours"), "half of it would be ours: {text}");
    assert_eq!(sources.notes.take(), [""; 0]);
    for part in [
        "<g class=\"series hue-2 yours\">",
        "<th scope=\"col\">ch04 (yours)</th>",
        "Dotted, yours: mine, 1 core.",
    ] {
        assert!(page.text.contains(part), "{part}: {}", page.text);
    }
}

#[test]
fn a_broken_record_of_the_reader_is_left_out_and_told() {
    let (folder, sources) = sources();
    fs::write(folder.path().join("local/race.csv"), "server\nch04\n").expect("a file");
    let text = format!("{{{{#number max race.p50_ms}}}}\n\n{FIGURE}");
    let page = expand(&text, "book/src/p.md", &sources);
    assert_eq!(page.problems, []);
    assert!(!page.text.contains("yours"), "{}", page.text);
    let told = "your own record is left out: book/data/local/race.csv has no column";
    assert!(sources.notes.borrow()[0].starts_with(told), "{:?}", sources.notes);
    // A number is told of a file that is no table; what a table does not have is just not shown.
    fs::write(folder.path().join("local/odd.csv"), "a,a\n").expect("a file");
    expand("{{#number count odd[rate=1].rate}}", "book/src/p.md", &sources);
    let is_told = |it: &String| {
        it.contains("book/data/local/odd.csv is no record: it has the column a twice")
    };
    assert!(sources.notes.borrow().iter().any(is_told), "{:?}", sources.notes);
}
