//! gunicorn's corpus of raw requests: each a file, some right and some wrong, which gunicorn's own parser
//! has to take or to refuse.
//!
//! It comes with the source of gunicorn, which pip fetches from the index that it is configured for, once,
//! into the target directory. To be told the package's name, pip runs its build script; nothing else of it
//! is run, and of what is unpacked only the requests are kept.
//!
//! A request is written as text, over as many lines as are pleasant: the ends of lines mean nothing, and
//! what is sent is written as `\r\n`, `\n`, `\t`, `\0` or `\x` with two digits.
//!
//! Many requests of version 1.1 have no Host, which gunicorn's parser does not look at and every server
//! has to refuse (RFC 9112, 3.2). So all are sent twice: as they are, and with a Host where it is missing.
//! Without that a right one is refused, and a wrong one is, but not for what is wrong with it.

use super::{
    tally::{Miss, Tally},
    wire::{self, Verdict},
};
use crate::{binaries, screen::Screen};
use anyhow::{Context, Result, ensure};
use std::{
    env, fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The version whose corpus is fetched.
pub const VERSION: &str = "27.0.1";

/// What the suite is called in the record.
pub const SUITE: &str = "gunicorn";

/// Where the requests are in gunicorn's source.
const REQUESTS: &str = "tests/requests";

/// What stands for bytes that a text cannot show.
const ESCAPES: [(&[u8], &[u8]); 4] =
    [(b"r\\n", b"\r\n"), (b"n", b"\n"), (b"t", b"\t"), (b"0", b"\0")];

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// Its name, without its ending.
    pub name: String,
    /// What is sent.
    pub bytes: Vec<u8>,
}

/// All files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corpus {
    /// Those that a server should take.
    pub valid: Vec<Case>,
    /// Those that it should refuse.
    pub invalid: Vec<Case>,
}

/// Fetches the source with pip, unless it is there, and says where it is.
///
/// # Errors
/// If there is no pip, or it cannot fetch, or the archive cannot be unpacked: the sentence says what to do.
pub fn fetch(screen: &Screen) -> Result<PathBuf> {
    let folder = target()?.join("suites");
    let name = format!("gunicorn-{VERSION}");
    let source = folder.join(&name);
    if source.is_dir() {
        return Ok(source);
    }
    fs::create_dir_all(&folder).with_context(|| format!("mkdir({})", folder.display()))?;
    // Nobody finds half of it, whenever this is ended.
    let half = tempfile::tempdir_in(&folder).context("mkdtemp")?;
    screen.say(&format!("fetching the source of gunicorn {VERSION} with pip, for its requests"));
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"])
        .args(["--no-binary", "gunicorn", &format!("gunicorn=={VERSION}"), "--dest"])
        .arg(half.path());
    run(&mut pip).with_context(|| {
        format!(
            "gunicorn's corpus is not there: pip does not fetch it (apt-get install python3-pip, and a \
             network). Or unpack the source of gunicorn {VERSION} yourself: --gunicorn FOLDER"
        )
    })?;
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(half.path().join(format!("{name}.tar.gz")));
    tar.arg("-C").arg(half.path()).arg(format!("{name}/{REQUESTS}"));
    run(&mut tar).context("gunicorn's corpus is not there: its archive cannot be unpacked")?;
    let (from, to) = (half.path().join(&name), &source);
    fs::rename(&from, to).with_context(|| format!("rename({})", to.display()))?;
    Ok(source)
}

impl Corpus {
    /// Reads the requests in the source of gunicorn.
    ///
    /// # Errors
    /// If there are none, or one is written in another way than is known here.
    pub fn read(source: &Path) -> Result<Corpus> {
        let folder = source.join(REQUESTS);
        Ok(Corpus { valid: read(&folder.join("valid"))?, invalid: read(&folder.join("invalid"))? })
    }

    /// Sends all of them, one connection each.
    ///
    /// # Errors
    /// If the server at `address` has gone.
    pub fn ask(&self, server: &'static str, address: SocketAddr) -> Result<Vec<Tally>> {
        let with_host = |it: &Case| Case { bytes: with_host(&it.bytes), name: it.name.clone() };
        let hosted = |cases: &[Case]| cases.iter().map(with_host).collect::<Vec<Case>>();
        let kinds = [
            ("invalid", &self.invalid, Verdict::Refused),
            ("invalid-with-host", &hosted(&self.invalid), Verdict::Refused),
            ("valid", &self.valid, Verdict::Taken),
            ("valid-with-host", &hosted(&self.valid), Verdict::Taken),
        ];
        let mut tallies = Vec::new();
        for (kind, cases, wished) in kinds {
            let mut misses = Vec::new();
            for case in cases {
                let heard = wire::exchange(address, &case.bytes);
                let heard = heard.with_context(|| format!("{SUITE}, {kind}, {}", case.name))?;
                if heard.verdict(&case.bytes) != wished {
                    misses.push(Miss { name: case.name.clone(), heard: heard.words() });
                }
            }
            tallies.push(Tally { server, suite: SUITE, kind, total: cases.len(), misses });
        }
        Ok(tallies)
    }
}

/// The bytes that a file of the corpus stands for.
///
/// # Errors
/// If a backslash stands for something that is not known here.
pub fn decode(text: &[u8]) -> Result<Vec<u8>> {
    let text: Vec<u8> = text.iter().copied().filter(|it| *it != b'\n').collect();
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = &text[..];
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'\\' {
            bytes.push(*first);
        } else if let Some((name, meant)) = ESCAPES.iter().find(|it| after.starts_with(it.0)) {
            bytes.extend_from_slice(meant);
            rest = &after[name.len()..];
        } else {
            bytes.push(hexadecimal(after).context("a backslash that stands for nothing known")?);
            rest = &after[3..];
        }
    }
    Ok(bytes)
}

/// `bytes` with a Host in each request of version 1.1 that has none.
pub fn with_host(bytes: &[u8]) -> Vec<u8> {
    const END: &[u8] = b" HTTP/1.1\r\n";
    let mut whole = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(at) = find(rest, END) {
        let (line, after) = rest.split_at(at + END.len());
        whole.extend_from_slice(line);
        if !has_host(after) {
            whole.extend_from_slice(b"Host: localhost\r\n");
        }
        rest = after;
    }
    whole.extend_from_slice(rest);
    whole
}

/// Whether there is a Host among the fields that `head` begins with.
fn has_host(head: &[u8]) -> bool {
    let lines = head.split(|it| *it == b'\n').take_while(|it| !it.is_empty() && *it != b"\r");
    let name = |line: &[u8]| line.split(|it| *it == b':').next().unwrap_or_default().to_vec();
    lines.map(name).any(|it| it.trim_ascii().eq_ignore_ascii_case(b"host"))
}

fn find(bytes: &[u8], sought: &[u8]) -> Option<usize> {
    bytes.windows(sought.len()).position(|it| it == sought)
}

/// From `x0D`, and whatever follows.
fn hexadecimal(text: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(text.strip_prefix(b"x")?.get(..2)?).ok()?;
    u8::from_str_radix(digits, 16).ok()
}

/// The requests in `folder`, by name.
fn read(folder: &Path) -> Result<Vec<Case>> {
    let entries = fs::read_dir(folder).with_context(|| {
        format!("{}: this is no source of gunicorn: its requests are not there", folder.display())
    })?;
    let mut cases = Vec::new();
    for entry in entries {
        let path = entry.context("readdir")?.path();
        if path.extension().is_none_or(|it| it != "http") {
            continue;
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = fs::read(&path).with_context(|| format!("read({})", path.display()))?;
        let bytes = decode(&text).with_context(|| path.display().to_string())?;
        cases.push(Case { name, bytes });
    }
    ensure!(!cases.is_empty(), "{}: no requests are in it", folder.display());
    cases.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(cases)
}

/// Where cargo puts what it builds.
fn target() -> Result<PathBuf> {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => Ok(PathBuf::from(folder)),
        None => Ok(binaries::workspace()?.join("target")),
    }
}

fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    let status = status.with_context(|| format!("{name} cannot be started"))?;
    ensure!(status.success(), "{name}: {status}: its own words are above");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_it_is_written() {
        let text = b"GET / HTTP/1.1\\r\\n\nA:\\tb\\0\\x0D\\xe9\n\\n\\r\\n\n\\r\\n";
        assert_eq!(decode(text).unwrap(), b"GET / HTTP/1.1\r\nA:\tb\0\r\xe9\n\r\n\r\n");
        assert_eq!(decode("\u{e9}".as_bytes()).unwrap(), "\u{e9}".as_bytes());
    }

    #[test]
    fn a_backslash_that_is_not_known_is_told() {
        for text in [&b"\\q"[..], b"\\x0", b"\\xzz", b"\\", b"\\r"] {
            assert!(decode(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_host_is_added_where_it_is_missing_and_only_there() {
        let two = b"GET /a HTTP/1.1\r\n\r\nPOST /b HTTP/1.1\r\nA: b\r\n\r\nbody";
        let both = b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n\
                     POST /b HTTP/1.1\r\nHost: localhost\r\nA: b\r\n\r\nbody";
        assert_eq!(with_host(two), both);
        for whole in [&b"GET / HTTP/1.1\r\nA: b\r\nhOST: x\r\n\r\n"[..], b"GET / HTTP/1.0\r\n\r\n"]
        {
            assert_eq!(with_host(whole), whole);
        }
        // A Host of the next request is not this one's.
        let next = b"GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n";
        let both = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n";
        assert_eq!(with_host(next), both);
    }

    #[test]
    fn a_folder_without_requests_is_named() {
        let error = format!("{:#}", Corpus::read(Path::new("/nowhere")).unwrap_err());
        assert!(error.starts_with("/nowhere/tests/requests/valid: this is no source"), "{error}");
    }

    #[test]
    fn files_are_read_by_name_and_others_are_left() {
        let folder = tempfile::tempdir().unwrap();
        for (kind, name) in
            [("valid", "2.http"), ("valid", "1.http"), ("valid", "1.py"), ("invalid", "a.http")]
        {
            let path = folder.path().join(REQUESTS).join(kind);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join(name), "GET\\r\\n").unwrap();
        }
        let corpus = Corpus::read(folder.path()).unwrap();
        let names: Vec<_> = corpus.valid.iter().map(|it| it.name.as_str()).collect();
        assert_eq!((names, corpus.invalid.len()), (vec!["1", "2"], 1));
        assert_eq!(corpus.invalid[0].bytes, b"GET\r\n");
    }
}
