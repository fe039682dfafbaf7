//! The grader: the starter gets nothing, our solution everything, a server that hangs a part, and nine
//! submissions that try something else than serving get nothing.
//!
//! Each submission is handed in as a folder, and graded by the program that an instructor runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use contract::bounded;
use contract::inject::{Fault, Injection};
use course::grade::LIMIT;
use course::grade::parameters::Parameters;
use course::grade::results::Results;
use course::grade::scenarios::SCENARIOS;
use nix::errno::Errno;
use tempfile::TempDir;

const SEED: &str = "2027S/alice@example.org";

/// How long a grading may take here, on a busy machine: its own limit comes first, and says what it
/// waited for.
const GRADED: Duration = Duration::from_secs(LIMIT.as_secs() + 60);

/// What the hostile submissions are tried with: little, since each scenario may take its whole cap.
const SHORT: &str = "sums_are_right,it_restarts_at_once,tests by the student";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

fn project(inside: &str) -> PathBuf {
    root().join("exercises/project").join(inside)
}

fn course() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_course"));
    command.current_dir(root());
    command
}

/// A folder that is handed in.
struct Submission(TempDir);

impl Submission {
    /// With the starter's files, as they are in the template.
    fn starter() -> Submission {
        let it = Submission(TempDir::new().expect("a folder"));
        for name in ["main.rs", "check.rs"] {
            it.put(&format!("src/{name}"), &read(&project("template/src").join(name)));
        }
        it.put("src/mine.rs", &mine(SEED));
        it
    }

    /// With our solution's.
    fn solution(seed: &str) -> Submission {
        let it = Submission(TempDir::new().expect("a folder"));
        for entry in fs::read_dir(project("solution/src")).expect("the solution").flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            it.put(&format!("src/{name}"), &read(&entry.path()));
        }
        it.put("src/mine.rs", &mine(seed));
        it.put("submission.toml", &read(&project("solution/submission.toml")));
        it
    }

    fn put(&self, inside: &str, text: &str) {
        let path = self.0.path().join(inside);
        fs::create_dir_all(path.parent().expect("it is inside")).expect("a folder");
        fs::write(&path, text).expect("a file");
    }

    /// Grades it: the results, as whoever reads them on the other side is told what may be in them.
    fn graded(&self, seed: &str, options: &[&str]) -> Results {
        let folder = TempDir::new().expect("a folder");
        let out = folder.path().join("results.json");
        let mut command = course();
        command.arg("grade").arg(self.0.path()).args(["--seed", seed]).args(options);
        command.arg("--out").arg(&out);
        let output = bounded::output(&mut command, GRADED).expect("course");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stdout));
        let results: Results = serde_json::from_str(&read(&out)).expect("results of that form");
        println!("{}", String::from_utf8_lossy(&output.stdout));
        if let Ok(questions) = fs::read_to_string(out.with_extension("oral.md")) {
            println!("{questions}");
            // Who answers the grader answers the tracer, whose clients ask in the same frame.
            let is_refused = questions.contains("heard the sum. One of the others");
            assert!(!is_refused || !lost(&results).is_empty(), "{questions}");
        }
        results
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|it| panic!("{}: {it}", path.display()))
}

fn mine(seed: &str) -> String {
    let text = read(&project("template/src/bin/parameters/mine.txt"));
    Parameters::of(seed).mine(seed, &text)
}

fn most(results: &Results) -> f64 {
    results.tests.iter().map(|it| it.max_score).sum()
}

fn lost(results: &Results) -> Vec<String> {
    let lost = results.tests.iter().filter(|it| it.score < it.max_score);
    lost.map(|it| format!("{}: {}", it.name, it.output)).collect()
}

#[test]
fn the_starter_gets_nothing() {
    let results = Submission::starter().graded(SEED, &[]);
    assert_eq!(results.score, 0.0, "{results:#?}");
    assert_eq!(most(&results), 70.0);
}

#[test]
fn our_solution_gets_everything() {
    let results = Submission::solution(SEED).graded(SEED, &[]);
    assert_eq!(lost(&results), [""; 0]);
    assert!((results.score - 70.0).abs() < 0.01, "{}", results.score);
}

/// The other choice, and the other half of our solution.
#[test]
fn a_defended_choice_gets_everything_that_a_program_gives() {
    let defended = Submission::solution(SEED);
    let ring = read(&project("solution/src/ring.rs"));
    // A ring without an entry is refused, so that epoll serves.
    defended.put("src/ring.rs", &ring.replace(".build(ENTRIES)", ".build(0)"));
    defended.put("submission.toml", "student = \"ours\"\nmilestone_4 = \"defended\"\n");
    let results = defended.graded(SEED, &[]);
    assert_eq!(lost(&results), [""; 0]);
    assert_eq!((results.score, most(&results)), (65.0, 65.0));
    assert!(results.output.contains("given by people"), "{}", results.output);
}

/// A seccomp filter forbids io_uring to the grader and to all that it starts, as a container does.
#[test]
fn where_io_uring_is_forbidden_its_points_are_shared_out() {
    let solution = Submission::solution(SEED);
    let out = solution.0.path().join("results.json");
    let mut command = course();
    command.arg("grade").arg(solution.0.path()).args(["--seed", SEED, "--out"]).arg(&out);
    command.args(["--only", "every_reactor_serves,asked_to_stop_it_finishes"]);
    command.args(["--only", "few_system_calls_per_answer"]);
    let forbidden = [Fault::Fail(Errno::EPERM); 1000];
    let pending = Injection::new().on(nix::libc::SYS_io_uring_setup, &forbidden);
    let pending = pending.install(&mut command).expect("a filter");
    let mut child = command.stdin(Stdio::null()).spawn().expect("course");
    drop(command);
    let injector = pending.attach(child.id()).expect("the filter's descriptor");
    let status = bounded::wait(&mut child, GRADED).expect("waitpid");
    assert!(status.expect("it ends").success());
    assert!(injector.made(nix::libc::SYS_io_uring_setup) > 0, "nobody asked for a ring");
    let results: Results = serde_json::from_str(&read(&out)).expect("results of that form");
    assert!((results.score - 10.0).abs() < 0.01, "{results:#?}");
    assert!((most(&results) - 10.0).abs() < 0.01, "{results:#?}");
    assert!(results.output.contains("were shared out"), "{}", results.output);
}

/// Root without the right to look into others' processes, as in most containers.
#[test]
fn without_the_right_to_look_servers_are_graded_all_the_same() {
    if !nix::unistd::getuid().is_root() {
        // Not `eprintln!`, which a test that passes keeps to itself.
        let what = "NOT TRIED: this needs root, whose rights can be taken away\n";
        std::io::Write::write_all(&mut std::io::stderr(), what.as_bytes()).expect("stderr");
        return;
    }
    let solution = Submission::solution(SEED);
    let out = solution.0.path().join("results.json");
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-sys_ptrace,-sys_resource", env!("CARGO_BIN_EXE_course")]);
    command.arg("grade").arg(solution.0.path()).args(["--seed", SEED, "--out"]).arg(&out);
    command.args(["--only", "sums_are_right,nothing_leaks,few_system_calls_per_answer"]);
    command.current_dir(root()).stdin(Stdio::null());
    let status = bounded::status(&mut command, GRADED);
    assert!(status.expect("setpriv, of util-linux").success());
    let results: Results = serde_json::from_str(&read(&out)).expect("results of that form");
    assert!((results.score - 11.0).abs() < 0.01, "{results:#?}");
    assert!(results.output.contains("were shared out"), "{}", results.output);
}

#[test]
fn the_rubric_has_the_points_of_the_grader() {
    let rubric = read(&project("template/RUBRIC.md"));
    for scenario in SCENARIOS {
        let row = format!("| | {} | `{}` |", scenario.points, scenario.name);
        let completion = format!("| | {} | `{}`; ", scenario.points, scenario.name);
        assert!(rubric.contains(&row) || rubric.contains(&completion), "{row}");
    }
    let wrong = fs::read_dir(project("bank/wrong")).expect("the bank").count();
    assert_eq!(wrong, 8, "the rubric's points are for eight");
}

#[test]
fn the_template_shows_the_variant_of_nobody() {
    assert_eq!(read(&project("template/src/mine.rs")), mine("0000X/YOUR-NAME"));
}

#[test]
fn our_solution_serves_every_kind_of_variant() {
    use std::mem::discriminant;
    let (mut framings, mut stops) = (Vec::new(), Vec::new());
    let seeds = (0..200).map(|at| format!("2027S/student-{at}"));
    for seed in seeds {
        let parameters = Parameters::of(&seed);
        let (framing, stop) = (discriminant(&parameters.framing), discriminant(&parameters.stop));
        // Each frame and each stop rule once, not all pairs of them.
        if framings.contains(&framing) && stops.contains(&stop) {
            continue;
        }
        framings.push(framing);
        stops.push(stop);
        let only = "sums_are_right,any_split_is_the_same_request,the_stop_rule_ends_a_conversation,\
                    what_is_no_request_is_refused,few_system_calls_per_answer";
        let results = Submission::solution(&seed).graded(&seed, &["--only", only]);
        assert_eq!(lost(&results), [""; 0], "{parameters}");
    }
    assert!(framings.len() >= 4, "{} variants were tried", framings.len());
}

#[test]
fn another_variant_gets_next_to_nothing() {
    let other = "2027S/bob@example.org";
    assert_ne!(Parameters::of(SEED).framing, Parameters::of(other).framing);
    let only = ["--only", "sums_are_right,any_split_is_the_same_request", "--cap", "10"];
    let results = Submission::solution(other).graded(SEED, &only);
    assert_eq!(results.score, 0.0, "{results:#?}");
}

/// Our solution with a request at which it hangs for ever.
fn hanging() -> Submission {
    let hangs = Submission::solution(SEED);
    let right = read(&project("solution/src/frame.rs"));
    let wrong = right.replace(
        "    if numbers.len() > NUMBERS_MAX {\n",
        "    while numbers == [&b\"12\"[..], b\"30\", b\"8\"] {}\n    if numbers.len() > NUMBERS_MAX {\n",
    );
    assert_ne!(right, wrong);
    hangs.put("src/frame.rs", &wrong);
    hangs
}

#[test]
fn a_server_that_hangs_gets_a_part() {
    let hangs = hanging();
    let only = ["--only", "sums_are_right,any_split_is_the_same_request,it_restarts_at_once"];
    let results = hangs.graded(SEED, &[&only[..], &["--cap", "10"]].concat());
    assert_eq!(results.score, 5.0, "{results:#?}");
}

/// The results are written after each scenario, and what was started ends with the grader.
#[test]
fn a_grader_that_is_killed_leaves_what_was_earned() {
    use std::os::unix::fs::PermissionsExt;
    let hangs = hanging();
    let folder = TempDir::new().expect("a folder");
    // The submission runs in it, as nobody.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711)).expect("chmod");
    let out = folder.path().join("results.json");
    let mut command = course();
    command.arg("grade").arg(hangs.0.path()).args(["--seed", SEED, "--out"]).arg(&out);
    command.args(["--only", "sums_are_right,any_split_is_the_same_request", "--cap", "60"]);
    command.env("TMPDIR", folder.path()).stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = command.spawn().expect("course");
    let score = || -> Option<f64> {
        let text = fs::read_to_string(&out).ok()?;
        Some(serde_json::from_str::<Results>(&text).expect("never a half of a file").score)
    };
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut first = None;
    while score() != Some(4.0) {
        first = first.or(score());
        assert!(Instant::now() < deadline, "{:?}", score());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(first, Some(0.0), "what is there first");
    bounded::end(&mut child).expect("kill");
    assert_eq!(score(), Some(4.0));
    let runs = || {
        let processes = fs::read_dir("/proc").expect("/proc").flatten();
        let lines = processes.filter_map(|it| fs::read(it.path().join("cmdline")).ok());
        let ours = folder.path().display().to_string();
        lines.into_iter().any(|it| String::from_utf8_lossy(&it).contains(&ours))
    };
    let deadline = Instant::now() + Duration::from_secs(10);
    while runs() {
        assert!(Instant::now() < deadline, "the submission goes on without its grader");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_test_that_is_always_content_gets_nothing() {
    let content = Submission::starter();
    content.put("src/check.rs", "//! Content.\nfn main() {}\n");
    let results = content.graded(SEED, &["--only", "tests by the student"]);
    assert_eq!(results.score, 0.0, "{results:#?}");
}

/// The nine, one after the other: a fork bomb beside others would be theirs, too.
#[test]
fn hostile_submissions_gain_nothing() {
    let start = Instant::now();
    let mut tried = 0;
    for entry in fs::read_dir(project("hostile")).expect("the hostile ones").flatten() {
        let name = entry.path().file_stem().expect("a name").to_string_lossy().into_owned();
        let text = read(&entry.path()).replace("@ROOT@", &root().display().to_string());
        let hostile = Submission::starter();
        let mut right = None;
        match name.as_str() {
            "edits_the_tests" => edit_tests(&hostile),
            "borrows_a_port" => right = Some(Right::start()),
            _ => {}
        }
        let port = right.as_ref().map_or(String::new(), |it| it.port.clone());
        hostile.put("src/main.rs", &text.replace("@PORT@", &port));
        // A test that prints is content with everybody.
        if name == "prints_results" {
            hostile.put("src/check.rs", &text);
        }
        let begun = Instant::now();
        let results = hostile.graded(SEED, &["--only", SHORT, "--cap", "10"]);
        println!("{name}: {} points in {:?}", results.score, begun.elapsed());
        assert_eq!(results.score, 0.0, "{name}: {results:#?}");
        assert_eq!(most(&results), 20.0, "{name}");
        tried += 1;
    }
    assert_eq!(tried, 9);
    let left = fs::read_dir("/proc").expect("/proc").flatten().filter(|it| {
        let line = fs::read(it.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains("generation-")
    });
    assert_eq!(left.count(), 0, "processes of the fork bomb are left");
    // Each has its caps; together they are to take two minutes, or twice that on a busy machine.
    assert!(start.elapsed() < Duration::from_secs(240), "{:?}", start.elapsed());
}

/// Somebody else's right server, of the variant that is graded.
struct Right {
    child: std::process::Child,
    port: String,
}

impl Right {
    fn start() -> Right {
        use std::io::{BufRead, BufReader};
        let prepared = bounded::status(course().args(["grade", "--prepare"]), GRADED);
        assert!(prepared.expect("course").success());
        let target = Path::new(env!("CARGO_BIN_EXE_course")).ancestors().nth(2).expect("target");
        let mut command = Command::new(target.join("course/build/debug/bank-ours"));
        command.arg("127.0.0.1:0").env("COURSE_PARAMETERS", Parameters::of(SEED).to_string());
        let mut child = command.stdout(Stdio::piped()).spawn().expect("a server of the bank");
        let stdout = child.stdout.take().expect("it was piped");
        let (say, said) = mpsc::channel();
        std::thread::spawn(move || {
            let _ = say.send(BufReader::new(stdout).lines().next());
        });
        let line = said.recv_timeout(Duration::from_secs(10)).expect("a word in ten seconds");
        let line = line.expect("a line").expect("text");
        let port = line.trim().rsplit(':').next().expect("a port").to_owned();
        Right { child, port }
    }
}

impl Drop for Right {
    fn drop(&mut self) {
        bounded::end(&mut self.child).expect("kill");
    }
}

/// What would replace the grader's own, if anything of it were taken.
fn edit_tests(hostile: &Submission) {
    hostile
        .put("Cargo.toml", "[package]\nname = \"contract\"\nbuild = \"build.rs\"\n[workspace]\n");
    hostile.put("build.rs", "fn main() { panic!(\"the build script ran\") }\n");
    hostile.put("tests/contract.rs", "#[test]\nfn all_is_well() {}\n");
    hostile.put(".cargo/config.toml", "[build]\nrustc = \"/bin/false\"\n");
    hostile.put("exercises/course/src/grade.rs", "fn main() {}\n");
    hostile.put("results.json", "{\"score\":100.0,\"tests\":[]}");
}

/// The two scripts in a folder laid out as Gradescope's, with a grader that is built already.
#[test]
fn gradescope_finds_results_where_it_looks() {
    use std::os::unix::fs::symlink;
    let starter = Submission::starter();
    let root = TempDir::new().expect("a folder");
    let inside = |path: &str| root.path().join(path);
    for folder in ["source/grader/target/debug", "submission", "results"] {
        fs::create_dir_all(inside(folder)).expect("a folder");
    }
    let program = inside("source/grader/target/debug/course");
    symlink(env!("CARGO_BIN_EXE_course"), program).expect("a link");
    symlink(starter.0.path().join("src"), inside("submission/src")).expect("a link");
    fs::write(inside("source/term"), "2027S\n").expect("a file");
    let run = |metadata: &str| -> serde_json::Value {
        fs::write(inside("submission_metadata.json"), metadata).expect("a file");
        let mut script = Command::new(project("gradescope/run_autograder"));
        script.env("AUTOGRADER", root.path());
        let output = bounded::output(&mut script, GRADED).expect("bash");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "apt-get install jq, if that is missing: {said}");
        serde_json::from_str(&read(&inside("results/results.json"))).expect("JSON")
    };
    let results = run(r#"{"users":[{"email":"alice@example.org","id":7}]}"#);
    let results: Results = serde_json::from_value(results).expect("results of that form");
    assert_eq!((results.score, most(&results)), (0.0, 70.0));
    assert!(results.output.contains("2027S/alice@example.org"), "{}", results.output);
    assert!(!inside("results/results.oral.md").exists(), "the questions are not the student's");
    // Nobody is named: a sentence, and no points.
    let results = run(r#"{"users":[]}"#);
    assert_eq!(results["score"], 0);
    assert!(results["output"].as_str().is_some_and(|it| it.contains("no student")));
}

/// The other way to the grader's files: a module with a path, which the compiler notes down.
#[test]
fn a_module_from_elsewhere_is_seen() {
    let sly = Submission::solution(SEED);
    let main = read(&project("solution/src/main.rs"));
    let path = project("solution/src/frame.rs");
    let mod_frame = format!("#[path = \"{}\"]\nmod frame;", path.display());
    sly.put("src/main.rs", &main.replace("mod frame;", &mod_frame));
    let results = sly.graded(SEED, &["--only", "sums_are_right"]);
    assert_eq!(results.score, 0.0, "{results:#?}");
    let told = &results.tests[0].output;
    assert!(told.contains("outside of src"), "{told}");
}

#[test]
fn a_term_is_exported_without_answers() {
    let folder = TempDir::new().expect("a folder");
    let out = folder.path().join("term");
    let mut command = course();
    command.args(["new-term", "--seed", "2027S", "--out"]).arg(&out);
    assert!(bounded::status(&mut command, GRADED).expect("course").success());
    let mut files = Vec::new();
    let mut folders = vec![out.clone()];
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(&at).expect("a folder").flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else {
                files.push(entry.path());
            }
        }
    }
    for wanted in
        ["README.md", "RUBRIC.md", "REPORT.md", "AGENTS.md", ".github/workflows/grade.yml"]
    {
        assert!(out.join(wanted).is_file(), "{wanted}");
    }
    for file in &files {
        let text = read(file);
        let is_ours = text.contains("Misconception:") || text.contains("struct Session");
        assert!(!is_ours, "{} is an answer", file.display());
    }
    assert!(read(&out.join("src/bin/parameters/term.rs")).contains("\"2027S\""));
    // The program that a student runs first says what the grader derives.
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["run", "--quiet", "--offline", "--bin", "parameters", "--", "alice@example.org"]);
    let output = bounded::output(cargo.current_dir(&out), GRADED).expect("cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), mine(SEED));
    // A second export does not mix with the first.
    let mut command = course();
    command.args(["new-term", "--seed", "2028S", "--out"]).arg(&out);
    assert!(!bounded::output(&mut command, GRADED).expect("course").status.success());
}

/// Whatever a grading waits for, it ends, and says what that was. Here it is the lock of what is built,
/// which this test holds, as somebody else's build would that never ends.
#[test]
fn a_grading_that_waits_for_ever_ends_and_says_for_what() {
    use nix::fcntl::{Flock, FlockArg};
    let target = Path::new(env!("CARGO_BIN_EXE_course")).ancestors().nth(2).expect("target");
    // A target directory of its own: the others build meanwhile.
    let folder = TempDir::new().expect("a folder");
    let program = folder.path().join("debug/course");
    fs::create_dir_all(folder.path().join("debug")).expect("a folder");
    fs::create_dir_all(folder.path().join("course")).expect("a folder");
    fs::copy(target.join("debug/course"), &program).expect("a copy");
    let lock = fs::File::create(folder.path().join("course/lock")).expect("a file");
    let lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock).map_err(|it| it.1);
    let _lock = lock.expect("nobody else's lock");
    let starter = Submission::starter();
    let out = folder.path().join("results.json");
    let mut command = Command::new(&program);
    command.current_dir(root()).arg("grade").arg(starter.0.path()).args(["--seed", SEED]);
    command.args(["--limit", "2", "--out"]).arg(&out);
    let output = bounded::output(&mut command, Duration::from_secs(120)).expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(124), "{said}");
    assert!(said.contains("It waited for the bank's servers to be built"), "{said}");
    assert!(said.contains("sleeps in flock"), "{said}");
    let results: Results = serde_json::from_str(&read(&out)).expect("results of that form");
    assert_eq!(results.score, 0.0);
}
