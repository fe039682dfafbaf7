//! The student's test against our servers: one that is right, and eight that are not.
//!
//! Simplified: a test that looks into /proc sees how many threads each of our processes has, and could
//! guess from that which is which. Whoever reads the test sees it, too.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use contract::bounded::{self, Listening};
use contract::microscope;
use contract::server::Server;
use nix::sys::prctl;

use super::scenarios::Finding;
use super::student;
use crate::confine::course;
use crate::home::Home;
use crate::scratch::{self, Program};

/// The hidden command that lets a test meet one server.
pub const MEET: &str = "__meet";

/// How the words of a test that is not content begin. What does not begin so was not said by a test.
pub const SAID: &str = "The test said: ";

/// How long a student's test may take with one server.
pub const TEST: Duration = Duration::from_secs(15);

/// What the right one is called.
pub const OURS: &str = "ours";

const BANK: &str = "exercises/project/bank";
const SOLUTION: &str = "exercises/project/solution/src";
const DERIVE: &str = "exercises/project/template/src/bin/parameters/derive.rs";
const MANIFEST: &str = "exercises/project/template/Cargo.toml";

/// The names of the wrong servers, in their order.
///
/// # Errors
///
/// When the bank is not there.
pub fn names(home: &Home) -> anyhow::Result<Vec<String>> {
    let folder = home.path(BANK).join("wrong");
    let entries = fs::read_dir(&folder).with_context(|| {
        format!("{}: this copy has no wrong servers, and cannot grade", folder.display())
    })?;
    let paths = entries.flatten().map(|it| it.path());
    let rust = paths.filter(|it| it.extension().is_some_and(|it| it == "rs"));
    let mut names: Vec<String> =
        rust.filter_map(|it| Some(it.file_stem()?.to_str()?.to_owned())).collect();
    names.sort();
    Ok(names)
}

/// The programs of the bank, built: the name of each, and where it is. The right one is the first.
///
/// # Errors
///
/// When they do not compile.
pub fn build(home: &Home) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let beside = home.target()?.join("course").join("bank-sources");
    fs::create_dir_all(beside.join("mine")).context("the bank's folder")?;
    // The variant is not compiled in: `mine` is one that listens to what it is told.
    for (from, to) in [
        (home.path(SOLUTION).join("frame.rs"), "frame.rs"),
        (home.path(SOLUTION).join("poll.rs"), "poll.rs"),
        (home.path(SOLUTION).join("ring.rs"), "ring.rs"),
        (home.path(BANK).join("mine.rs"), "mine.rs"),
        (home.path(BANK).join("right.rs"), "right.rs"),
        (home.path(DERIVE), "mine/derive.rs"),
    ] {
        // Another grader may be reading it: written only when it differs.
        let (text, to) = (fs::read(&from), beside.join(to));
        let text = text.with_context(|| from.display().to_string())?;
        if fs::read(&to).ok().as_ref() != Some(&text) {
            fs::write(&to, text).with_context(|| to.display().to_string())?;
        }
    }
    let program = |name: &str, main: PathBuf| Program {
        name: program_name(name),
        main,
        beside: Some(beside.clone()),
        manifest: home.path(MANIFEST),
    };
    let mut programs = vec![program(OURS, home.path(SOLUTION).join("main.rs"))];
    let names = names(home)?;
    for name in &names {
        let main = home.path(BANK).join("wrong").join(format!("{name}.rs"));
        programs.push(program(name, main));
    }
    let built = scratch::build(home, "bank", &programs)?;
    let all = [OURS].into_iter().chain(names.iter().map(String::as_str));
    all.map(|it| Ok((it.to_owned(), built.program(&program_name(it))?.to_owned()))).collect()
}

fn program_name(name: &str) -> String {
    format!("bank-{}", name.replace('_', "-"))
}

/// The main function of the hidden command: `TEST SERVER`, the finding on stdout. It holds when the test
/// is content with the server.
///
/// # Errors
///
/// When the arguments are none of ours.
pub fn main(arguments: &[OsString]) -> anyhow::Result<()> {
    prctl::set_dumpable(false).context("prctl(PR_SET_DUMPABLE)")?;
    let [test, server] = arguments else { bail!("{MEET} TEST SERVER") };
    let finding = match meet(Path::new(test), Path::new(server)) {
        Ok(finding) => finding,
        Err(error) => Finding::Lacks(format!("{error:#}")),
    };
    crate::say::line(serde_json::to_string(&finding).context("a finding")?);
    Ok(())
}

/// Lets the test meet a server of its own.
fn meet(test: &Path, server: &Path) -> anyhow::Result<Finding> {
    let server = Server::start(server).context("a server of the bank")?;
    let address = server.address().to_string();
    let mut command = Command::new(course()?);
    command.arg(student::STUDENT).args(student::arguments(
        student::DESCRIPTORS,
        test,
        &[&address],
    )?);
    command.env_remove("COURSE_PARAMETERS");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().context("the student's test")?;
    let stderr = Listening::to(child.stderr.take().context("stderr was piped")?, 2000)?;
    let Some(status) = bounded::wait_fairly(&mut child, TEST).context("waitpid")? else {
        let doing = microscope::doing_all(child.id());
        bounded::end(&mut child).context("the student's test")?;
        return Ok(Finding::Lacks(format!(
            "The test did not end in {} s: {doing}.",
            TEST.as_secs()
        )));
    };
    // Its own children may hold the pipe; they end with this process. Who they are is not the test's word.
    let said = stderr.heard(Duration::from_millis(500));
    let said = match said.held_by {
        None => said.text().trim().to_owned(),
        Some(_) => String::new(),
    };
    ensure!(status.code().is_some(), "the test ended by {status}");
    Ok(match status.success() {
        true => Finding::Holds("The test was content with it.".into()),
        false => Finding::Broken(format!("{SAID}{said}")),
    })
}
