//! Holds the eleven models of chapter 07 to their table: a line for each row, with a letter for each model.
//!
//! The letters stand in the order of the columns and say what is declared; a line is green when that is
//! what every model was seen to do. Three variables change what is held to what:
//!
//! * `MODEL=epoll-edge` tries that model alone;
//! * `EXPECT=multireactor` holds what is tried to that column;
//! * `SERVER=path/to/program` puts any program in the chapter's place: it is started as
//!   `program --model NAME ADDRESS`, with further options.

use std::env;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use libtest_mimic::{Completion, Failed, Trial};

use super::{judge, replacement, told, wrap};
use crate::probes::Observation;
use crate::probes::http::{self, Subject};
use crate::verdicts::models::{HTTP, MODELS};
use crate::verdicts::{Column, Row, Verdict};

/// How much runs at once, in the unit of [`http::weight`]. Most cells sleep most of the time.
const ROOM: usize = 16;

/// What a cell found.
type Finding = (&'static Row, &'static str, Result<Observation, String>);

/// What is tried, and what it is held to.
#[derive(Clone)]
struct Plan {
    /// The model as it is named, the column that it is held to, and the server.
    tried: Vec<(Column, &'static str, Subject)>,
    findings: Arc<Mutex<Vec<Finding>>>,
    room: Arc<Room>,
}

/// The `main` of `tests/contract.rs` of chapter 07: holds `exe` to all columns.
///
/// The exit status is 0 when every cell is as declared, 101 when one is not, as libtest's.
pub fn models(exe: &str) -> ExitCode {
    let plan = match plan(exe) {
        Ok(plan) => plan,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::from(2);
        }
    };
    let arguments = super::arguments(HTTP.rows.len()); // The rows wait for room by themselves.
    if !arguments.list {
        println!("\n{}", legend(&plan));
    }
    let trials = HTTP.rows.iter().map(|row| trial(row, plan.clone())).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !arguments.list {
        let findings = plan.findings.lock().unwrap_or_else(PoisonError::into_inner);
        print!("{}", report(&plan, &findings));
    }
    conclusion.exit_code()
}

fn plan(exe: &str) -> Result<Plan, String> {
    let exe = replacement(exe)?;
    let named = |variable: &str| -> Result<Option<Column>, String> {
        let Ok(name) = env::var(variable) else { return Ok(None) };
        let known = MODELS.map(|it| it.name).join(", ");
        let found = MODELS.into_iter().find(|it| it.name == name);
        found
            .map(Some)
            .ok_or(format!("{variable}={name}: there is no such model; there are {known}"))
    };
    let (only, expected) = (named("MODEL")?, named("EXPECT")?);
    let tried = MODELS.into_iter().filter(|it| only.is_none_or(|only| only == *it));
    let tried = tried.map(|it| {
        let held_to = expected.unwrap_or(it).name;
        let subject = Subject::new(it.program(&exe), held_to);
        (it, held_to, subject)
    });
    Ok(Plan { tried: tried.collect(), findings: Arc::default(), room: Arc::new(Room::new(ROOM)) })
}

/// What the letters mean: the order of the models, and how they fail.
fn legend(plan: &Plan) -> String {
    let models: Vec<&str> = plan.tried.iter().map(|it| it.0.name).collect();
    let mut used: Vec<Verdict> = Vec::new();
    for row in HTTP.rows {
        let declared = plan.tried.iter().filter_map(|it| row.cell(it.1));
        used.extend(declared.filter(|it| *it != Verdict::Holds));
    }
    used.sort_by_key(|it| it.letter());
    used.dedup();
    let used: Vec<String> = used.iter().map(|it| format!("{} {it}", it.letter())).collect();
    let used = used.join("; ").replace("fails: ", "");
    wrap(&format!("One letter for each of {}. A dot: holds; {used}.", models.join(", ")))
}

fn trial(row: &'static Row, plan: Plan) -> Trial {
    let letters = plan.tried.iter().filter_map(|it| row.cell(it.1)).map(Verdict::letter);
    let letters: String = letters.collect();
    Trial::ignorable_test(row.name, move || try_all(row, &plan)).with_kind(letters)
}

/// Tries a row on every model, side by side as far as there is room.
fn try_all(row: &'static Row, plan: &Plan) -> Result<Completion, Failed> {
    let weight = http::weight(row.name);
    thread::scope(|scope| {
        for (column, held_to, subject) in &plan.tried {
            scope.spawn(move || {
                let judged = {
                    let _taken = plan.room.take(weight);
                    judge(row, held_to, http::run(row.name, subject))
                };
                let (finding, _) = told(judged);
                let mut findings = plan.findings.lock().unwrap_or_else(PoisonError::into_inner);
                findings.push((row, column.name, finding));
            });
        }
    });
    let findings = plan.findings.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut wrong, mut needs) = (String::new(), Vec::new());
    for (_, _, finding) in findings.iter().filter(|it| it.0 == row) {
        match finding {
            Ok(_) => {}
            Err(why) if why.starts_with(NEEDS) => needs.push(why.clone()),
            Err(why) => wrong += &format!("{why}\n"),
        }
    }
    match (wrong.is_empty(), needs.is_empty()) {
        (false, _) => Err(wrong.into()),
        (true, false) => Ok(Completion::ignored_with(needs.join("; "))),
        (true, true) => Ok(Completion::Completed),
    }
}

/// How a finding begins that is none, since this machine lacks something.
const NEEDS: &str = "NEEDS ";

/// What is said when all rows have run: for each row that some break, who and how, and what was seen of
/// the first of them; then the sum of each model.
fn report(plan: &Plan, findings: &[Finding]) -> String {
    let mut text = String::new();
    for row in HTTP.rows {
        let mut broken: Vec<(Verdict, &str, Vec<&str>)> = Vec::new();
        // In the order of the columns, not of who was done first.
        for (column, ..) in &plan.tried {
            let found = findings.iter().find(|it| it.0 == row && it.1 == column.name);
            let Some((_, name, Ok(observation))) = found else { continue };
            if observation.verdict == Verdict::Holds {
                continue;
            }
            match broken.iter_mut().find(|it| it.0 == observation.verdict) {
                Some((_, _, names)) => names.push(name),
                None => broken.push((observation.verdict, &observation.seen, vec![name])),
            }
        }
        for (verdict, seen, names) in broken {
            let verb = if names.len() == 1 { "fails" } else { "fail" };
            let how = verdict.to_string().replacen("fails", verb, 1);
            let (names, first) = (names.join(", "), names[0]);
            text += &wrap(&format!("{}: {names} {how}. Seen of {first}: {seen}", row.name));
            text.push('\n');
        }
    }
    for (column, held_to, _) in &plan.tried {
        let of = findings.iter().filter(|it| it.1 == column.name).map(|it| &it.2);
        text += &sum(column.name, held_to, of);
    }
    text
}

/// `poll: 27 promises held, 1 broken as declared`
fn sum<'a>(
    name: &str,
    held_to: &str,
    findings: impl Iterator<Item = &'a Result<Observation, String>>,
) -> String {
    let (mut held, mut broken, mut untried, mut wrong) = (0, 0, 0, 0);
    for finding in findings {
        match finding {
            Ok(it) if it.verdict == Verdict::Holds => held += 1,
            Ok(_) => broken += 1,
            Err(why) if why.starts_with(NEEDS) => untried += 1,
            Err(_) => wrong += 1,
        }
    }
    let mut text = format!("{name}: {held} promises held, {broken} broken as declared");
    if untried > 0 {
        let _ = write!(text, ", {untried} NOT TRIED");
    }
    if wrong > 0 {
        let _ = write!(text, ", {wrong} NOT AS DECLARED");
    }
    if held_to != name {
        let _ = write!(text, " (held to the column of {held_to})");
    }
    text + "\n"
}

/// Room for so many cells at once; some need more of it than others.
///
/// Whoever needs much comes last: those that need little take what there is as it becomes free.
struct Room {
    left: Mutex<usize>,
    more: Condvar,
}

/// Room that was taken; given back on drop.
struct Taken<'a> {
    room: &'a Room,
    weight: usize,
}

impl Room {
    fn new(left: usize) -> Room {
        Room { left: Mutex::new(left), more: Condvar::new() }
    }

    fn take(&self, weight: usize) -> Taken<'_> {
        let left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let left = self.more.wait_while(left, |left| *left < weight);
        *left.unwrap_or_else(PoisonError::into_inner) -= weight;
        Taken { room: self, weight }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *self.room.left.lock().unwrap_or_else(PoisonError::into_inner) += self.weight;
        self.room.more.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn of(models: &[&str], held_to: Option<&'static str>) -> Plan {
        let tried = MODELS.into_iter().filter(|it| models.contains(&it.name));
        let subject = |it: Column| Subject::new(it.program(Path::new("ch07")), it.name);
        let tried = tried.map(|it| (it, held_to.unwrap_or(it.name), subject(it))).collect();
        Plan { tried, findings: Arc::default(), room: Arc::new(Room::new(1)) }
    }

    #[test]
    fn a_report_tells_who_breaks_what_and_ends_with_the_sums() {
        let plan = of(&["iterative", "poll", "io-uring"], None);
        let mut findings: Vec<Finding> = Vec::new();
        for row in HTTP.rows {
            for (column, ..) in &plan.tried {
                let verdict = row.cell(column.name).unwrap();
                let seen = format!("What {} showed.", column.name);
                let finding = match (row.name, column.name) {
                    ("nothing_leaks", "poll") => Err("poll holds, says the table.".into()),
                    ("nothing_leaks", "io-uring") => Err("NEEDS io_uring".into()),
                    _ => Ok(Observation { verdict, seen }),
                };
                findings.push((row, column.name, finding));
            }
        }
        insta::assert_snapshot!(format!("{}\n{}", legend(&plan), report(&plan, &findings)));
        let held_to_another = report(&of(&["poll"], Some("io-uring")), &findings);
        let last = "(held to the column of io-uring)\n";
        assert!(held_to_another.ends_with(last), "{held_to_another}");
    }

    #[test]
    fn every_model_is_started_as_itself() {
        let exe = Path::new("ch07");
        for model in MODELS {
            assert_eq!(
                model.program(exe),
                crate::server::Program::new(exe, &["--model", model.name])
            );
        }
        let chapter = crate::verdicts::CHAPTERS[0];
        assert_eq!(chapter.program(exe), crate::server::Program::new(exe, &[]));
    }

    #[test]
    fn no_more_than_there_is_room_for_runs_at_once() {
        let (room, inside, most) = (Room::new(4), AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for weight in [1, 3, 4, 2, 1, 4, 2, 3] {
                let (room, inside, most) = (&room, &inside, &most);
                scope.spawn(move || {
                    let _taken = room.take(weight);
                    let now = inside.fetch_add(weight, Ordering::SeqCst) + weight;
                    most.fetch_max(now, Ordering::SeqCst);
                    thread::yield_now();
                    inside.fetch_sub(weight, Ordering::SeqCst);
                });
            }
        });
        assert!(most.into_inner() <= 4);
        assert_eq!(*room.left.lock().unwrap(), 4);
    }
}
