//! The files of the page "Host it for real", held to the programs that will read them: systemd's units,
//! nftables' rules, and the script that waits until a server listens.
//!
//! None of them is started: `systemd-analyze verify` and `nft -c` read them as the real thing would.
//! Each check is first shown a file with a mistake in it, since a check that accepts everything would
//! accept ours too.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};

use anyhow::{Context, ensure};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use tempfile::TempDir;

/// Where the files are.
const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../book/src/host-for-real");

/// Where the page puts the programs: a machine that checks the units need not have them.
const PROGRAMS: &str = "/usr/local/bin/";

type Check = fn() -> anyhow::Result<Completion>;

const CHECKS: [(&str, Check); 6] = [
    ("systemd_accepts_every_unit", systemd_accepts),
    ("systemd_names_a_misspelt_line", systemd_names_a_mistake),
    ("nftables_accepts_the_rules", nftables_accepts),
    ("nftables_names_a_misspelt_rule", nftables_names_a_mistake),
    ("the_script_comes_back_when_somebody_listens", script_sees_a_listener),
    ("the_script_comes_back_when_nobody_is_left_to_listen", script_sees_an_end),
];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let trials = CHECKS.map(|(name, check)| {
        Trial::ignorable_test(name, move || check().map_err(|it| Failed::from(format!("{it:#}"))))
    });
    libtest_mimic::run(&arguments, trials.into()).exit_code()
}

fn systemd_accepts() -> anyhow::Result<Completion> {
    let (folder, units) = units(|text| text)?;
    ensure!(units.len() >= 3, "only {} units in {FILES}: are they elsewhere now?", units.len());
    let Some(output) = verify(&units)? else { return Ok(needs_systemd()) };
    let said = said(&output);
    let folder = folder.path().display().to_string();
    ensure!(
        output.status.success() && said.is_empty(),
        "systemd-analyze verify ({}): {}",
        output.status,
        said.replace(&folder, FILES)
    );
    Ok(Completion::Completed)
}

fn systemd_names_a_mistake() -> anyhow::Result<Completion> {
    let (_folder, units) = units(|text| text.replace("LimitNOFILE=", "LimitNOFILES="))?;
    let Some(output) = verify(&units)? else { return Ok(needs_systemd()) };
    let said = said(&output);
    ensure!(said.contains("LimitNOFILES"), "nothing is said of it: {said:?}");
    Ok(Completion::Completed)
}

fn nftables_accepts() -> anyhow::Result<Completion> {
    let rules = Path::new(FILES).join("oddeven.nft");
    let nft = match nft(&rules)? {
        Ok(output) => output,
        Err(needs) => return Ok(Completion::ignored_with(needs)),
    };
    ensure!(nft.status.success(), "nft -c -f {}: {}", rules.display(), said(&nft));
    Ok(Completion::Completed)
}

fn nftables_names_a_mistake() -> anyhow::Result<Completion> {
    let text = fs::read_to_string(Path::new(FILES).join("oddeven.nft"))?;
    let folder = tempfile::tempdir()?;
    let rules = folder.path().join("wrong.nft");
    fs::write(&rules, text.replace("policy drop", "policy dorp"))?;
    let nft = match nft(&rules)? {
        Ok(output) => output,
        Err(needs) => return Ok(Completion::ignored_with(needs)),
    };
    ensure!(!nft.status.success(), "nft takes `policy dorp`");
    ensure!(said(&nft).contains("dorp"), "it does not name the mistake: {}", said(&nft));
    Ok(Completion::Completed)
}

fn script_sees_a_listener() -> anyhow::Result<Completion> {
    if Command::new("awk").arg("BEGIN { exit }").output().is_err() {
        return Ok(Completion::ignored_with("NEEDS the command `awk`: install mawk or gawk"));
    }
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let output = script(listener.local_addr()?.port(), std::process::id())?;
    ensure!(output.status.success(), "{}: {}", output.status, said(&output));
    Ok(Completion::Completed)
}

fn script_sees_an_end() -> anyhow::Result<Completion> {
    if Command::new("awk").arg("BEGIN { exit }").output().is_err() {
        return Ok(Completion::ignored_with("NEEDS the command `awk`: install mawk or gawk"));
    }
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port(); // Closed again at once.
    let mut ended = Command::new("true").spawn().context("true")?;
    let pid = ended.id();
    ended.wait()?;
    let output = script(port, pid)?;
    ensure!(!output.status.success(), "it says that process {pid} listens, which has ended");
    ensure!(said(&output).contains("before it listened"), "it does not say why: {}", said(&output));
    Ok(Completion::Completed)
}

/// Copies of the units, edited, with the programs that they name beside them.
fn units(edit: fn(String) -> String) -> anyhow::Result<(TempDir, Vec<PathBuf>)> {
    let folder = tempfile::tempdir()?;
    let programs = format!("{}/", folder.path().display());
    for program in ["ch05", "oddeven-listens"] {
        let path = folder.path().join(program);
        fs::write(&path, "#!/bin/sh\n")?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    let mut units = Vec::new();
    for entry in fs::read_dir(FILES).context(FILES)? {
        let path = entry?.path();
        let kind = path.extension().unwrap_or_default();
        if kind != "service" && kind != "socket" {
            continue;
        }
        let copy = folder.path().join(path.file_name().context("a name")?);
        fs::write(&copy, edit(fs::read_to_string(&path)?).replace(PROGRAMS, &programs))?;
        // A template cannot be verified as it is: an instance of it can.
        let name = copy.display().to_string();
        if name.contains("@.") {
            let instance = PathBuf::from(name.replace("@.", "@1."));
            symlink(&copy, &instance)?;
            units.push(instance);
        } else {
            units.push(copy);
        }
    }
    Ok((folder, units))
}

/// What systemd says of `units`; `None` where there is no systemd.
fn verify(units: &[PathBuf]) -> anyhow::Result<Option<Output>> {
    let result = Command::new("systemd-analyze").args(["verify", "--man=no"]).args(units).output();
    match result {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        result => Ok(Some(result.context("systemd-analyze")?)),
    }
}

fn needs_systemd() -> Completion {
    Completion::ignored_with("NEEDS the command `systemd-analyze`: install systemd")
}

/// What nftables says of `rules`, in a network namespace of its own; or what is missing.
fn nft(rules: &Path) -> anyhow::Result<Result<Output, &'static str>> {
    let Ok(version) = Command::new("nft").arg("--version").output() else {
        return Ok(Err("NEEDS the command `nft`: install nftables"));
    };
    ensure!(version.status.success(), "nft --version: {}", said(&version));
    let inside = |program: &str| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--net", program]);
        command
    };
    // `nft -c` asks the kernel, and that takes the rights of an administrator of some network.
    let possible = inside("nft").args(["list", "ruleset"]).output();
    if !possible.is_ok_and(|it| it.status.success()) {
        return Ok(Err(
            "NEEDS user namespaces and nf_tables in the kernel: `unshare -rn nft list ruleset` fails",
        ));
    }
    Ok(Ok(inside("nft").arg("-c").arg("-f").arg(rules).output().context("unshare")?))
}

fn script(port: u16, pid: u32) -> anyhow::Result<Output> {
    Command::new(Path::new(FILES).join("oddeven-listens"))
        .args([port.to_string(), pid.to_string()])
        .output()
        .context("oddeven-listens: is it executable?")
}

/// All that `output` has to say.
fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
