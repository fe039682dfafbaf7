//! What people look at: the scoreboard and the chart, drawn from a record that a real run left.

use contract::verdicts::CHAPTERS;
use lab::{
    experiment::Scale,
    race::{
        chart::chart,
        scoreboard::{Tally, answer, scoreboard},
        stalled::{Demonstration, Meanwhile},
    },
    records::{Record, read_csv},
};
use std::{fs, path::Path, time::Duration};
use stress::StallKind;

fn record() -> Vec<Record> {
    read_csv(&include_bytes!("data/race.csv")[..]).expect("a record of this format")
}

fn demonstrations() -> Vec<Demonstration> {
    let shown = |server: &str, kind, waited: Option<u64>, let_go: bool, asleep: &str, queue| {
        let meanwhile = Meanwhile { sentence: String::new(), asleep: asleep.into(), queue };
        Demonstration {
            server: server.into(),
            kind,
            waited: waited.map(Duration::from_micros),
            let_go: let_go.then_some(Duration::from_secs(4)),
            meanwhile,
        }
    };
    let on_it = "recvfrom on the stalled client";
    vec![
        shown("ch01", StallKind::Silent, Some(4_001_000), true, on_it, Some(1)),
        shown("ch01", StallKind::HalfLine, None, true, on_it, Some(1)),
        shown("ch02", StallKind::Silent, Some(1_995_000), false, on_it, Some(1)),
        shown("ch03", StallKind::HalfLine, Some(1_790_000), false, "cannot be seen", None),
        shown("ch04", StallKind::Silent, Some(240), false, "epoll_wait on all at once", Some(0)),
        shown(
            "ch05",
            StallKind::Silent,
            Some(310),
            false,
            "epoll_wait on all at once × 8",
            Some(0),
        ),
    ]
}

#[test]
fn the_scoreboard_is_read_at_a_glance() {
    let board = scoreboard(&CHAPTERS, &record(), &demonstrations(), &Scale::short());
    insta::assert_snapshot!(board);
    let widest = board.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(100), "{widest:?} columns");
}

#[test]
fn what_was_not_measured_is_said() {
    let mut records = record();
    records.retain(|it| it.server != "ch02" && it.stall != "half-line");
    records.iter_mut().filter(|it| it.server == "ch03").for_each(|it| it.client_bound = true);
    insta::assert_snapshot!(scoreboard(&CHAPTERS, &records, &[], &Scale::short()));
}

#[test]
fn the_answer_names_who_failed_first() {
    let records = record();
    insta::assert_snapshot!(answer(&CHAPTERS, &records, &demonstrations()), @"01 (one client at a time) failed first: at 110/s with silent clients, and answered 6.1 % in all. With one such client, it slept in recvfrom on the stalled client");
    assert_eq!(
        answer(&CHAPTERS[3..], &records, &[]),
        "no server failed anybody in the steps that were measured"
    );
    assert_eq!(answer(&CHAPTERS, &[], &[]), "the staircase was not measured");
}

#[test]
fn sustained_and_knee_are_what_the_scoreboard_says_they_are() {
    let row = |qps: f64, correct| Record {
        experiment: "race-staircase".into(),
        server: "ch01".into(),
        stall: "silent".into(),
        target_qps: qps,
        scheduled: 100,
        correct,
        ..Record::default()
    };
    // In any order; and a step that is whole above one that is not sustains nothing.
    let rows = [row(30.0, 100), row(10.0, 100), row(20.0, 99), row(50.0, 0), row(40.0, 50)];
    let tally = Tally::of(&rows, "ch01", "silent").unwrap();
    assert_eq!((tally.sustained_qps, tally.knee_qps), (Some(10.0), Some(40.0)));
    assert_eq!(tally.first_failure_qps, Some(20.0));
    assert_eq!((tally.correct, tally.scheduled), (349, 500));
    assert_eq!((tally.first.target_qps, tally.knee.target_qps), (10.0, 40.0));
    assert_eq!(Tally::of(&rows, "ch01", "half-line"), None);
    assert_eq!(Tally::of(&[row(10.0, 99)], "ch01", "silent").unwrap().sustained_qps, None);
    // Few missing may be the fault of a late generator, many cannot.
    let late = |qps, correct| Record { client_bound: true, ..row(qps, correct) };
    let tally = Tally::of(&[late(10.0, 95), late(20.0, 80)], "ch01", "silent").unwrap();
    assert_eq!(tally.first_failure_qps, Some(20.0));
}

/// It is left where a reader of this test can look at it.
#[test]
fn the_chart_is_well_formed_and_labelled() {
    let svg = chart(&CHAPTERS, &record(), &Scale::short()).unwrap();
    fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join("race.svg"), &svg).unwrap();
    let texts = texts(&svg);
    for wanted in ["01", "02", "03", "04", "05", "06", "answered", "latency", "4.5 s", "6.1 %"] {
        assert!(texts.iter().any(|it| it.words == wanted), "no label {wanted:?}");
    }
    for name in ["p50", "p99", "10", "460"] {
        let panels = 2 * CHAPTERS.len();
        assert_eq!(texts.iter().filter(|it| it.words == name).count(), panels, "{name} in each");
    }
    assert!(svg.contains("<title ") && svg.contains("01 with silent clients answers"));
    assert!(!svg.contains("\n\n"), "a blank line would end the SVG inside a page");
    // Nothing is loaded from outside: the only address is the name of the format.
    assert_eq!(svg.matches("http").count(), 1);
    for id in svg.split(" id=\"").skip(1) {
        assert!(id.starts_with("race-"), "{id:.20}");
    }
}

#[test]
fn labels_do_not_touch_each_other() {
    let all_and_two = |scale: &Scale| {
        let mut records = record();
        let more: Vec<_> = records.iter().filter(|it| it.server == "ch04").cloned().collect();
        for name in ["ch04-mio", "ch04-polling"] {
            records.extend(more.iter().cloned().map(|it| Record { server: name.into(), ..it }));
        }
        let mut servers = CHAPTERS.to_vec();
        let beside = contract::verdicts::BESIDE.into_iter();
        servers.extend(beside.filter(|it| ["ch04-mio", "ch04-polling"].contains(&it.name)));
        chart(&servers, &records, scale).unwrap()
    };
    let all = chart(&CHAPTERS, &record(), &Scale::short()).unwrap();
    let one = chart(&CHAPTERS[..1], &record(), &Scale::short()).unwrap();
    for (name, svg) in [("all", all), ("one", one), ("more", all_and_two(&Scale::full()))] {
        fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("race-{name}.svg")), &svg)
            .unwrap();
        let texts = texts(&svg);
        let page: f64 = svg.split(' ').nth(4).unwrap().parse().unwrap();
        for (index, one) in texts.iter().enumerate() {
            assert!(one.left >= 0.0 && one.right <= page, "{name}: {one:?} leaves the page");
            for other in &texts[index + 1..] {
                let apart = one.right <= other.left
                    || other.right <= one.left
                    || (one.base - other.base).abs() >= one.size.min(other.size);
                assert!(apart, "{name}: {one:?} touches {other:?}");
            }
        }
    }
}

#[test]
fn a_line_is_broken_where_nobody_was_answered() {
    let mut records = record();
    records.retain(|it| it.server == "ch04");
    let lines = |records: &[Record]| {
        let svg = chart(&CHAPTERS[3..4], records, &Scale::short()).unwrap();
        (svg.matches("<polyline").count(), svg.matches("race-cross race-stroke").count())
    };
    let (whole, crosses) = lines(&records);
    assert_eq!((whole, crosses), (6, 0), "success, p50 and p99, for two kinds");
    let middle = |it: &&mut Record| it.target_qps == 210.0 && it.stall == "silent";
    for record in records.iter_mut().filter(middle) {
        (record.correct, record.p50_ms, record.p99_ms) = (0, None, None);
    }
    assert_eq!(lines(&records), (8, 1), "p50 and p99 in two parts each");
}

#[test]
fn without_a_staircase_there_is_no_chart() {
    assert_eq!(chart(&CHAPTERS, &[], &Scale::short()), None);
}

#[derive(Debug)]
struct Text {
    words: String,
    left: f64,
    right: f64,
    base: f64,
    size: f64,
}

/// The labels of an SVG that is checked to be well formed: each tag closed in the order of opening.
fn texts(svg: &str) -> Vec<Text> {
    let mut open: Vec<&str> = Vec::new();
    let mut texts = Vec::new();
    for part in svg.split('<').skip(1) {
        let (tag, content) = part.split_once('>').expect("each tag ends");
        assert!(!content.contains('&') || content.contains("&amp;") || content.contains("&lt;"));
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "closed in order");
            continue;
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "quotes are closed: {tag}");
        let name = tag.split([' ', '/']).next().unwrap_or_default();
        if name == "text" {
            texts.push(text(tag, content));
        }
        if !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?} are not closed");
    texts
}

/// The width is an estimate: 0.55 of the size for each character, a little more than the fonts take.
fn text(tag: &str, words: &str) -> Text {
    let attribute = |name: &str| {
        let (_, rest) = tag.split_once(&format!(" {name}=\"")).expect("the attribute");
        rest.split('"').next().unwrap_or_default().to_owned()
    };
    let number = |name: &str| attribute(name).parse::<f64>().expect("a number");
    let (x, base, class) = (number("x"), number("y"), attribute("class"));
    let size = match () {
        () if class.contains("race-big") => 17.0,
        () if class.contains("race-kind") => 13.0,
        () if class.contains("race-name") => 15.0,
        () if class.contains("race-small") => 11.0,
        () => 12.0,
    };
    let width = 0.55 * size * words.chars().count() as f64;
    let left = match () {
        () if class.contains("race-middle") => x - width / 2.0,
        () if class.contains("race-end") => x - width,
        () => x,
    };
    Text { words: words.into(), left, right: left + width, base, size }
}
