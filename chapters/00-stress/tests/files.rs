//! The files that a run writes, read back.

use hdrhistogram::{
    Histogram,
    serialization::{
        Deserializer,
        interval_log::{IntervalLogIterator, LogEntry},
    },
};
use serde_json::Value;
use std::{fs, process::Command, time::Duration};
use stress::known::{Behaviour, KnownServer};

#[test]
fn every_file_holds_every_request() {
    let server = KnownServer::start(Behaviour::Answer(Duration::from_millis(1))).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let output = Command::new(env!("CARGO_BIN_EXE_stress"))
        .args(["run", &server.address.to_string(), "--staircase", "20..60:20", "--hold", "1"])
        .args(["--warmup", "1", "--stall", "10%:silent", "--timeout", "10"])
        .arg("--log")
        .arg(path("log.jsonl"))
        .arg("--json")
        .arg(path("report.json"))
        .arg("--hdr")
        .arg(path("run.hlog"))
        .arg("--chart")
        .arg(path("chart.svg"))
        .output()
        .unwrap();
    // On a machine busy with other things the generator may well blame itself.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{output:?}");
    let read = |name: &str| fs::read_to_string(path(name)).unwrap();
    let report: Value = serde_json::from_str(&read("report.json")).unwrap();
    the_report(&report);
    let correct = the_log(&read("log.jsonl"));
    the_histograms(&fs::read(path("run.hlog")).unwrap(), correct);
    the_chart(&read("chart.svg"));
}

fn the_report(report: &Value) {
    assert_eq!(report["steps"].as_array().map(Vec::len), Some(4));
    assert_eq!(report["steps"][0]["phase"], "warmup");
    assert_eq!(report["totals"]["scheduled"], 120);
    assert_eq!(report["steps"][3]["target_qps"], 60.0);
    assert_eq!(report["stalled"][0]["kind"], "silent");
    assert_eq!(report["stalled"][0]["tried"], 13);
    for metric in ["queue", "connect", "first_byte", "total", "any_end", "from_start"] {
        let latency = &report["totals"]["latency"][metric];
        for value in
            ["count", "min_ms", "mean_ms", "p50_ms", "p90_ms", "p99_ms", "p99.9_ms", "max_ms"]
        {
            assert!(latency[value].is_number(), "{metric} {value}");
        }
    }
}

/// Returns how many were correct.
fn the_log(text: &str) -> u64 {
    let lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 130);
    for (index, line) in lines.iter().enumerate() {
        assert_eq!(line["id"], index + 1);
        let keys: Vec<&str> =
            line.as_object().expect("an object").keys().map(String::as_str).collect();
        for key in [
            "id",
            "t_scheduled",
            "phase",
            "target_qps",
            "t_start",
            "t_connected",
            "t_first_byte",
            "t_close",
            "bytes",
            "status",
            "error",
        ] {
            assert!(keys.contains(&key), "no {key} in {line}");
        }
        if line["status"] == "correct" {
            let moments = ["t_scheduled", "t_start", "t_connected", "t_first_byte", "t_close"];
            assert!(moments.map(|key| line[key].as_f64().expect("a number")).is_sorted(), "{line}");
            assert!(line["error"].is_null());
        }
    }
    lines.iter().filter(|line| line["status"] == "correct").count() as u64
}

fn the_histograms(bytes: &[u8], correct: u64) {
    let mut untagged = 0;
    let mut deserializer = Deserializer::new();
    for entry in IntervalLogIterator::new(bytes) {
        let LogEntry::Interval(interval) = entry.expect("a line of the log") else { continue };
        let encoded = interval.encoded_histogram();
        // The usual viewers read the compressed form only: its cookie begins so.
        assert!(encoded.starts_with("HISTF"), "{encoded}");
        let bytes = decode_base64(encoded);
        let histogram: Histogram<u64> =
            deserializer.deserialize(&mut &bytes[..]).expect("a histogram");
        match interval.tag() {
            None => untagged += histogram.len(),
            Some(tag) => assert!(["queue", "connect", "first_byte"].contains(&tag.as_str())),
        }
    }
    assert_eq!(untagged, correct);
}

fn the_chart(svg: &str) {
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
    assert!(
        svg.lines().all(|line| !line.trim().is_empty()),
        "a blank line ends inline SVG in Markdown"
    );
    for part in
        ["<title", "<desc", "prefers-color-scheme:dark", "p50", "p99", "scheduled", "under way"]
    {
        assert!(svg.contains(part), "no {part}");
    }
    for part in ["NaN", "inf", "http://", "https://"] {
        let svg = svg.replace("http://www.w3.org/2000/svg", "");
        assert!(!svg.contains(part), "{part}");
    }
}

fn decode_base64(text: &str) -> Vec<u8> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        other => panic!("not base64: {other}"),
    };
    let mut bytes = Vec::new();
    for group in text.trim_end_matches('=').as_bytes().chunks(4) {
        let bits = group.iter().fold(0u32, |bits, byte| bits << 6 | u32::from(value(*byte)));
        let bits = bits << (6 * (4 - group.len()));
        bytes.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    bytes
}
