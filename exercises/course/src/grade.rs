//! Grades the course project: a submission, its seed, and a file of results.
//!
//! Reading order: `parameters` says which variant a student has, [`protocol`] what is sent and heard,
//! [`submission`] takes and builds what was handed in, [`student`] is the process that becomes it,
//! [`scenarios`] are what the server is tried with, [`bank`] what the student's own test is tried with,
//! [`results`] is the file, [`oral`] asks about what was traced.
//!
//! Whoever grades is root, and the submission is nobody: it can neither read the grader nor end it, nor
//! write the results. Where the grader is not root, the limits hold all the same, but the submission is
//! the grader's own user: this is a rehearsal, and the results say so.

mod bank;
mod caller;
pub mod command;
mod oral;
#[path = "../../project/template/src/bin/parameters/derive.rs"]
pub mod parameters;
mod protocol;
pub mod results;
pub mod scenarios;
mod student;
pub mod submission;
mod watchdog;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use contract::bounded;
use nix::sys::prctl;
use serde::{Deserialize, Serialize};

use crate::confine::{Confined, Limits, course};
use crate::home::Home;
use crate::say::line;
use crate::scratch;
use parameters::{Dice, Parameters};
use results::{Book, Format, Status, Test, Visibility};
use scenarios::{COMPLETION, Finding, Part, SCENARIOS, Scenario};
use submission::{Choice, Programs};
use watchdog::Watchdog;

/// The hidden command that builds a submission.
const BUILD: &str = "__build";

/// How long a grading may take in all, if nothing else is said: it waits for others that build, builds
/// the bank if need be, builds the submission and tries it. Each of these has a bound of its own; this one
/// is for what nobody has thought of.
pub const LIMIT: Duration = Duration::from_secs(1800);

/// How long all scenarios and meetings may take.
const BUDGET: Duration = Duration::from_secs(450);

/// How long the compiler may take.
const BUILD_CAP: Duration = Duration::from_secs(120);

/// How much longer the process may take that takes the submission and starts the compiler.
const STAGING: Duration = Duration::from_secs(20);

/// How long one scenario may take, if nothing else is said.
pub const CAP: Duration = Duration::from_secs(20);

/// How many of the bank's servers a student's test meets at once.
const MEETINGS: usize = 3;

/// What a student's test is worth when it passes ours, and for each wrong server that it then kills.
const PASSES_OURS: f64 = 3.0;
const KILLS: f64 = 1.5;

/// What is to be graded, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder that was handed in.
    pub submission: PathBuf,
    /// `TERM/STUDENT`.
    pub seed: String,
    /// Where the results are written.
    pub out: PathBuf,
    /// Only these scenarios; all, if there are none.
    pub only: Vec<String>,
    /// How long one scenario may take.
    pub cap: Duration,
    /// How long all of it may take.
    pub limit: Duration,
    /// Only what is due by this milestone.
    pub milestone: u8,
}

/// The hidden commands: what `arguments` ask for, if it is one of them.
pub fn hidden(arguments: &[OsString]) -> Option<ExitCode> {
    let (first, rest) = arguments.split_first()?;
    let result = match first.to_str()? {
        student::STUDENT => return Some(student::main(rest)),
        scenarios::SCENARIO => scenarios::main(rest),
        bank::MEET => bank::main(rest),
        oral::TRACE => oral::main(rest),
        BUILD => build_main(rest),
        _ => return None,
    };
    Some(match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("course: {error:#}");
            ExitCode::from(2)
        }
    })
}

/// Builds what every submission needs, so that grading is offline and short.
///
/// # Errors
///
/// When it does not compile.
pub fn prepare(home: &Home) -> anyhow::Result<()> {
    let bank = bank::build(home)?;
    line(format_args!("built the bank: {} servers", bank.len()));
    let template = home.path("exercises/project/template");
    let programs = build(home, &template, "prepare", Limits::BUILD.wall)?;
    for program in [programs.server, programs.check] {
        program.map_err(anyhow::Error::msg).context("the starter")?;
    }
    line("built the starter: a submission needs nothing else");
    Ok(())
}

/// Grades: the score, and what could be had.
///
/// # Errors
///
/// When the grader itself fails. What the submission does wrong is in the results.
pub fn grade(home: &Home, options: &Options) -> anyhow::Result<(f64, f64)> {
    // Nobody else of this user may look into this process.
    prctl::set_dumpable(false).context("prctl(PR_SET_DUMPABLE)")?;
    let watchdog = Watchdog::start(options.limit);
    let wrong = bank::names(home)?;
    let choice = submission::choice(&options.submission);
    let mut book = Book::begin(&options.out, tests(options, choice, wrong.len())?)?;
    let parameters = Parameters::of(&options.seed);
    book.say(&format!("The variant of {}: {parameters}.", options.seed));
    if !student::is_apart() {
        book.say(
            "A rehearsal, no grade: the grader is not root, so that the submission ran as the same user.",
        );
    }
    if choice == Choice::Defended && options.milestone >= 4 {
        book.say("Milestone 4 is defended in the report: its points are given by people.");
    }
    watchdog.at("the bank's servers to be built");
    let bank = bank::build(home)?;
    watchdog.at("the submission to be built");
    match build_confined(home, options) {
        Err(error) => {
            let why = format!("The submission was not built: {error:#}.");
            fail_all(&mut book, &why);
        }
        Ok(programs) => {
            let start = Instant::now();
            let ran = Run { options, parameters, start, bank, watchdog: &watchdog };
            ran.all(&mut book, &programs)?;
        }
    }
    share_out(&mut book);
    book.write()?;
    let most = book.results.tests.iter().map(|it| it.max_score).sum();
    Ok((book.results.score, most))
}

/// All tests, none of which has any points yet.
fn tests(options: &Options, choice: Choice, wrong: usize) -> anyhow::Result<Vec<Test>> {
    let mut tests = Vec::new();
    for name in &options.only {
        ensure!(name == Part::Tests.name() || scenarios::named(name).is_ok(), "{name:?}?");
    }
    let mut place = [0; 5];
    let mut add = |name: String, milestone: u8, points: f64| {
        place[usize::from(milestone)] += 1;
        tests.push(Test {
            score: 0.0,
            max_score: points,
            status: Status::Failed,
            name,
            number: format!("{milestone}.{}", place[usize::from(milestone)]),
            output: "It was not run.".into(),
            output_format: Format::Text,
            visibility: Visibility::Visible,
        });
    };
    for scenario in chosen(options) {
        if scenario.name != COMPLETION || choice == Choice::Completion {
            add(scenario.name.into(), scenario.milestone, scenario.points);
        }
    }
    if has_tests(options) {
        add(passes_ours(), 2, PASSES_OURS);
        for at in 1..=wrong {
            add(kills(at), 2, KILLS);
        }
    }
    Ok(tests)
}

fn passes_ours() -> String {
    "my_test_passes_the_right_server".into()
}

/// The student is told no name: what is wrong with it is for them to think of.
fn kills(at: usize) -> String {
    format!("my_test_kills_wrong_server_{at}")
}

/// The scenarios that are asked for.
fn chosen(options: &Options) -> impl Iterator<Item = Scenario> {
    let is_due = move |it: &Scenario| it.milestone <= options.milestone;
    let is_named = move |it: &Scenario| {
        options.only.is_empty() || options.only.iter().any(|name| name == it.name)
    };
    SCENARIOS.into_iter().filter(move |it| is_due(it) && is_named(it))
}

fn has_tests(options: &Options) -> bool {
    let is_named = options.only.iter().any(|it| it == Part::Tests.name());
    options.milestone >= 2 && (options.only.is_empty() || is_named)
}

fn fail_all(book: &mut Book, why: &str) {
    let names: Vec<String> = book.results.tests.iter().map(|it| it.name.clone()).collect();
    for name in names {
        book.enter(&name, false, why);
    }
}

/// What the hidden command says of the build.
#[derive(Serialize, Deserialize)]
struct Told {
    server: Result<PathBuf, String>,
    check: Result<PathBuf, String>,
}

/// Builds the submission in a process that has its limits, too: a source can keep a compiler busy.
fn build_confined(home: &Home, options: &Options) -> anyhow::Result<Programs> {
    let arguments: Vec<OsString> = vec![
        BUILD.into(),
        home.path("").into(),
        options.submission.clone().into(),
        id(options).into(),
    ];
    // Others may build before it. The compiler's own time begins when it is its turn.
    let wall = scratch::TURN + bounded::STRETCH * BUILD_CAP + STAGING;
    let limits = Limits { wall, ..Limits::BUILD };
    let said = confined(arguments, limits, Vec::new())?;
    let told: Result<Told, String> = match said.last.as_deref().map(serde_json::from_str) {
        Some(Ok(told)) => told,
        _ if said.time_is_up => bail!("it did not end: {}", said.doing),
        _ => bail!("{}", said.stderr.trim()),
    };
    let told = told.map_err(anyhow::Error::msg)?;
    Ok(Programs { server: told.server, check: told.check })
}

/// The main function of the hidden command: `HOME SUBMISSION ID`.
fn build_main(arguments: &[OsString]) -> anyhow::Result<()> {
    let [root, submission, id] = arguments else { bail!("{BUILD} HOME SUBMISSION ID") };
    let home = Home::find(Some(Path::new(root)))?;
    let built = build(&home, Path::new(submission), &id.to_string_lossy(), BUILD_CAP);
    let told = built
        .map(|it| Told { server: it.server, check: it.check })
        .map_err(|error| format!("{error:#}"));
    line(serde_json::to_string(&told).context("what was built")?);
    Ok(())
}

fn build(home: &Home, submission: &Path, id: &str, wall: Duration) -> anyhow::Result<Programs> {
    let staged = home.target()?.join("course").join(format!("submission-{id}"));
    if staged.exists() {
        fs::remove_dir_all(&staged).context("the grader's folder")?;
    }
    fs::create_dir_all(&staged).context("the grader's folder")?;
    submission::take(submission, &staged)?;
    submission::build(home, &staged, id, wall)
}

/// What its crate and its programs are called: two graders may run side by side.
fn id(options: &Options) -> String {
    let mut dice = Dice::of(&format!("{}{}", options.seed, options.submission.display()));
    format!("{:08x}", dice.roll(1 << 32))
}

/// What a confined process of ours has said.
#[derive(Debug)]
struct Said {
    last: Option<String>,
    stderr: String,
    time_is_up: bool,
    /// What its processes did when the time was up.
    doing: String,
}

/// Runs this program with a hidden command, and all that it starts, to its end.
fn confined(
    arguments: Vec<OsString>,
    limits: Limits,
    variables: Vec<(OsString, OsString)>,
) -> anyhow::Result<Said> {
    let course = course()?;
    let program = course.clone();
    let folder = PathBuf::from("/");
    let confined = Confined { course, limits, program, arguments, folder, variables };
    let mut last = None;
    let ended = confined.run(|line| last = Some(line.to_owned()))?;
    let doing = ended.doing();
    Ok(Said { last, stderr: ended.stderr, time_is_up: ended.status.is_none(), doing })
}

/// What a scenario, or a meeting, has found.
fn find(arguments: Vec<OsString>, cap: Duration, variables: Vec<(OsString, OsString)>) -> Finding {
    let limits = Limits { wall: cap, processes: 256, memory_mib: 4096, descriptors: 4096 };
    let said = match confined(arguments, limits, variables) {
        Ok(said) => said,
        Err(error) => return Finding::Broken(format!("It could not be tried: {error:#}.")),
    };
    let finding = said.last.as_deref().and_then(|it| serde_json::from_str(it).ok());
    finding.unwrap_or_else(|| {
        Finding::Broken(match said.time_is_up {
            true => format!("It hangs: nothing was found {}.", said.doing),
            false => format!("The scenario was ended from outside: {}", said.stderr.trim()),
        })
    })
}

/// What a meeting has found. That it hung or could not be tried is nothing that a test has said, and earns
/// nothing: where the server is a wrong one, "broken" is what is wanted.
fn met(finding: Finding) -> Finding {
    match finding {
        Finding::Broken(why) if !why.starts_with(bank::SAID) => Finding::Lacks(why),
        finding => finding,
    }
}

/// Grading, once everything is built.
struct Run<'a> {
    options: &'a Options,
    parameters: Parameters,
    start: Instant,
    bank: Vec<(String, PathBuf)>,
    watchdog: &'a Watchdog,
}

impl Run<'_> {
    fn all(&self, book: &mut Book, programs: &Programs) -> anyhow::Result<()> {
        let folder = Folder::new()?;
        match &programs.server {
            Ok(exe) => self.scenarios(book, &folder.copy(exe, "server")?)?,
            Err(why) => {
                for scenario in chosen(self.options) {
                    book.enter(scenario.name, false, &format!("There is no server: {why}."));
                }
            }
        }
        if has_tests(self.options) {
            match &programs.check {
                Ok(exe) => self.tests(book, &folder.copy(exe, "check")?, &folder)?,
                Err(why) => {
                    for name in
                        std::iter::once(passes_ours()).chain((1..self.bank.len()).map(kills))
                    {
                        book.enter(&name, false, &format!("There is no test: {why}."));
                    }
                }
            }
        }
        Ok(())
    }

    fn scenarios(&self, book: &mut Book, exe: &Path) -> anyhow::Result<()> {
        for scenario in chosen(self.options) {
            if !book.results.tests.iter().any(|it| it.name == scenario.name) {
                continue;
            }
            let cap = self.cap();
            self.watchdog.at(scenario.name);
            let finding = match cap.is_zero() {
                true => Finding::Broken("No time was left for it.".into()),
                false => find(self.arguments(scenarios::SCENARIO, scenario.name, exe), cap, vec![]),
            };
            line(format_args!("{:40} {}", scenario.name, shown(&finding)));
            match &finding {
                Finding::Holds(seen) => book.enter(scenario.name, true, seen),
                Finding::Broken(seen) => book.enter(scenario.name, false, seen),
                Finding::Lacks(what) => {
                    let sentence = format!("{LACKS}{what}.");
                    book.enter(scenario.name, false, &sentence);
                }
            }
            book.write()?;
        }
        if self.options.only.is_empty() && !self.cap().is_zero() {
            self.watchdog.at("the trace for the oral questions");
            let arguments = self.arguments(oral::TRACE, "", exe);
            oral::ask(&self.options.out, &self.options.seed, find(arguments, self.cap(), vec![]))?;
        }
        Ok(())
    }

    fn arguments(&self, command: &str, name: &str, exe: &Path) -> Vec<OsString> {
        let parameters = self.parameters.to_string();
        let texts = [command, name].map(OsString::from);
        let rest = [exe.as_os_str(), OsStr::new(&parameters), OsStr::new(&self.options.seed)];
        texts.into_iter().chain(rest.map(OsStr::to_owned)).collect()
    }

    /// How long the next thing may take.
    fn cap(&self) -> Duration {
        self.options.cap.min(BUDGET.saturating_sub(self.start.elapsed()))
    }

    /// The student's test against each server of the bank, a few at a time.
    fn tests(&self, book: &mut Book, exe: &Path, folder: &Folder) -> anyhow::Result<()> {
        self.watchdog.at("the student's test to meet the servers of the bank");
        let next = AtomicUsize::new(0);
        // Under names that say nothing: everybody may read what a process is called.
        let servers: Vec<PathBuf> =
            self.bank.iter().map(|it| folder.copy(&it.1, &any_name())).collect::<Result<_, _>>()?;
        let (say, said) = mpsc::channel();
        let variables = vec![("COURSE_PARAMETERS".into(), self.parameters.to_string().into())];
        let mut findings: Vec<Option<Finding>> = vec![None; self.bank.len()];
        thread::scope(|scope| {
            for _ in 0..MEETINGS {
                let (say, next, variables, servers) = (say.clone(), &next, &variables, &servers);
                scope.spawn(move || {
                    while let Some((at, server)) =
                        servers.iter().enumerate().nth(next.fetch_add(1, Ordering::Relaxed))
                    {
                        let arguments = vec![bank::MEET.into(), exe.into(), server.into()];
                        // The meeting itself hardly needs a core, and is not stretched with its test.
                        let most = bounded::STRETCH * bank::TEST + Duration::from_secs(3);
                        let cap = most.min(bounded::STRETCH * self.cap());
                        let _ = say.send((at, met(find(arguments, cap, variables.clone()))));
                    }
                });
            }
            drop(say);
            said.into_iter().for_each(|(at, finding)| findings[at] = Some(finding));
        });
        self.enter_tests(book, &findings);
        book.write()
    }

    fn enter_tests(&self, book: &mut Book, findings: &[Option<Finding>]) {
        let is_content = |it: &Option<Finding>| matches!(it, Some(Finding::Holds(_)));
        let kills_it = |it: &Option<Finding>| matches!(it, Some(Finding::Broken(_)));
        // A test that is content with everything has tested nothing.
        let passes = findings.first().is_some_and(is_content) && findings.iter().any(kills_it);
        for (at, ((name, _), finding)) in self.bank.iter().zip(findings).enumerate() {
            let words = finding.as_ref().map_or("nothing was found".into(), shown);
            line(format_args!("my test and {name:28} {words}"));
            if at == 0 {
                book.enter(&passes_ours(), passes, &words);
                continue;
            }
            let is_killed = kills_it(finding);
            let seen = match (passes, is_killed) {
                (false, _) => "A test that says the same of all servers kills nothing.",
                (true, true) => "Killed.",
                (true, false) => "Your test was content with it, or did not end.",
            };
            book.enter(&kills(at), passes && is_killed, seen);
        }
    }
}

/// How the output of a test begins whose points are shared out.
const LACKS: &str = "This machine cannot try it: ";

fn shown(finding: &Finding) -> String {
    match finding {
        Finding::Holds(seen) => format!("holds: {seen}"),
        Finding::Broken(seen) => format!("broken: {seen}"),
        Finding::Lacks(what) => format!("not found out: {what}"),
    }
}

/// Shares out the points of what this machine could not try among the other scenarios of the same part,
/// and says so.
fn share_out(book: &mut Book) {
    let part = |name: &str| scenarios::named(name).ok().map(|it| it.part);
    let lacking: Vec<(String, f64, Option<Part>)> = book
        .results
        .tests
        .iter()
        .filter(|it| it.output.starts_with(LACKS))
        .map(|it| (it.name.clone(), it.max_score, part(&it.name)))
        .collect();
    for (name, points, of) in lacking {
        let others = |it: &Test| it.max_score > 0.0 && it.name != name;
        let near = |it: &Test| others(it) && part(&it.name) == of;
        let is_near = book.results.tests.iter().any(near);
        let takes = |it: &Test| if is_near { near(it) } else { others(it) };
        let sum: f64 =
            book.results.tests.iter().filter(|it| takes(it)).map(|it| it.max_score).sum();
        if sum == 0.0 {
            continue;
        }
        let factor = (sum + points) / sum;
        for test in &mut book.results.tests {
            if takes(test) {
                test.max_score *= factor;
                test.score *= factor;
            } else if test.name == name {
                test.max_score = 0.0;
            }
        }
        book.say(&format!(
            "{name} could not be tried on this machine: its {points} points were shared out among the \
             other scenarios{}.",
            if is_near { " of its part" } else { "" }
        ));
    }
}

/// A name that nobody can foretell who does not know the moment, to the nanosecond.
fn any_name() -> String {
    let moment = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let mut dice = Dice::of(&format!("{moment:?}{}", std::process::id()));
    format!("{:016x}", dice.roll(u64::MAX))
}

/// A folder that everybody may enter and nobody may list, with what the submission runs.
struct Folder(PathBuf);

impl Folder {
    fn new() -> anyhow::Result<Folder> {
        let path = std::env::temp_dir().join(format!("course-{}", any_name()));
        let made = fs::DirBuilder::new().mode(0o711).create(&path);
        made.with_context(|| format!("mkdir {}", path.display()))?;
        Ok(Folder(path))
    }

    fn copy(&self, exe: &Path, name: &str) -> anyhow::Result<PathBuf> {
        let to = self.0.join(name);
        fs::copy(exe, &to).with_context(|| exe.display().to_string())?;
        fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).context("chmod")?;
        Ok(to)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn a_meeting_that_was_not_tried_kills_nobody() {
        let said = || Finding::Broken(format!("{}it answers half a line", bank::SAID));
        assert!(matches!(met(said()), Finding::Broken(_)));
        let not_tried = Finding::Broken("It could not be tried: no such file.".into());
        assert!(matches!(met(not_tried), Finding::Lacks(_)));
        assert!(matches!(met(Finding::Holds("It held.".into())), Finding::Holds(_)));
    }

    fn test(name: &str, score: f64, max_score: f64, output: &str) -> Test {
        Test {
            score,
            max_score,
            status: Status::Passed,
            name: name.into(),
            number: "1.1".into(),
            output: output.into(),
            output_format: Format::Text,
            visibility: Visibility::Visible,
        }
    }

    #[test]
    fn what_a_machine_lacks_is_shared_out_and_said() {
        let file = std::env::temp_dir().join(format!("course-unit-{}", std::process::id()));
        let tests = vec![
            test("sums_are_right", 4.0, 4.0, "seen"),
            test("every_reactor_serves", 3.0, 3.0, "seen"),
            test("asked_to_stop_it_finishes", 0.0, 2.0, "seen"),
            test(COMPLETION, 0.0, 5.0, &format!("{LACKS}io_uring.")),
        ];
        let mut book = Book::begin(&file, tests).unwrap();
        share_out(&mut book);
        let points: Vec<_> = book.results.tests.iter().map(|it| (it.score, it.max_score)).collect();
        assert_eq!(points, [(4.0, 4.0), (6.0, 6.0), (0.0, 4.0), (0.0, 0.0)]);
        assert!(book.results.output.contains("shared out"), "{}", book.results.output);
        fs::remove_file(file).unwrap();
    }
}
