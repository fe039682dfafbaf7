//! What the reader sees of a trace: a table for each server, and all servers in one.

use super::Seen;
use crate::servers::short;
use contract::trace::Trace;
use std::fmt::Write;

/// The tables of all servers, and if there are several, one line for each.
pub fn of(seen: &[Seen]) -> String {
    let mut text = String::new();
    for server in seen {
        text += &calls(server);
        text.push('\n');
    }
    if seen.len() > 1 {
        text += &summary(seen);
    }
    text
}

/// How often a server made each call, and how often for an answer.
fn calls(Seen { column, idle, batch, .. }: &Seen) -> String {
    let threads = match batch.threads {
        1 => "one thread".to_owned(),
        several => format!("{several} threads"),
    };
    let mut text = format!("{} {}, {threads}\n", short(column.name), column.about);
    line(&mut text, "", [&together(idle, "one at a time"), &together(batch, "at once")]);
    line(&mut text, "system call", ["count   per answer"; 2]);
    for name in names(&[idle, batch]) {
        let cell = |trace: &Trace| cell(count(trace, &name), trace.answers);
        line(&mut text, &name, [&cell(idle), &cell(batch)]);
    }
    let all = |trace: &Trace| cell(trace.calls.len(), trace.answers);
    line(&mut text, "all", [&all(idle), &all(batch)]);
    text
}

fn summary(seen: &[Seen]) -> String {
    let mut text = String::from("system calls per answer\n");
    line(&mut text, "", ["one at a time", "at once"]);
    for Seen { column, idle, tried, batch } in seen {
        let asked = batch.asked;
        let got_in = if asked < *tried { format!("({asked} got in) ") } else { String::new() };
        let batch = got_in + &per_answer(batch.calls.len(), batch.answers);
        let idle = per_answer(idle.calls.len(), idle.answers);
        line(&mut text, short(column.name), [&idle, &batch]);
    }
    text
}

fn line(text: &mut String, name: &str, cells: [&str; 2]) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "  {name:<18}{:>22}{:>22}", cells[0], cells[1]);
}

fn together(trace: &Trace, how: &str) -> String {
    format!("{} {how}", trace.answers)
}

fn cell(count: usize, answers: usize) -> String {
    format!("{count}   {:>10}", per_answer(count, answers))
}

fn per_answer(count: usize, answers: usize) -> String {
    match answers {
        0 => "no answer".into(),
        _ => format!("{:.2}", count as f64 / answers as f64),
    }
}

/// The calls of all traces, those that are made most often first.
fn names(traces: &[&Trace]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (name, _) in traces.iter().flat_map(|it| it.counts()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn count(trace: &Trace, name: &str) -> usize {
    trace.counts().iter().find(|it| it.0 == name).map_or(0, |it| it.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::{trace::Call, verdicts::CHAPTERS};
    use nix::libc;

    fn trace(answers: usize, calls: &[(i64, usize)]) -> Trace {
        let call = |number| Call {
            thread: 1,
            number,
            descriptor: None,
            start_us: 0,
            duration_us: None,
            returned: None,
        };
        let calls = calls.iter().flat_map(|&(number, count)| vec![call(number); count]).collect();
        Trace { asked: answers, answers, threads: 1, calls, ..Trace::default() }
    }

    #[test]
    fn a_table_is_read_at_a_glance() {
        let idle = [(libc::SYS_recvfrom, 128), (libc::SYS_accept4, 64)];
        let many = [(libc::SYS_recvfrom, 128), (libc::SYS_accept4, 65), (libc::SYS_mmap, 1)];
        let seen = [
            Seen {
                column: CHAPTERS[0],
                idle: trace(64, &idle),
                tried: 64,
                batch: trace(2, &[(libc::SYS_recvfrom, 4), (libc::SYS_accept4, 3)]),
            },
            Seen {
                column: CHAPTERS[1],
                idle: trace(0, &[]),
                tried: 64,
                batch: Trace { threads: 3, ..trace(64, &many) },
            },
        ];
        insta::assert_snapshot!(of(&seen));
    }
}
