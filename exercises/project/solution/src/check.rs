//! A client of the server at the address in the first argument, which says by its exit status whether
//! that server is right.
//!
//! Each promise is a function; the first one that is broken is said on stderr.

mod mine;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use mine::{Framing, Stop};

/// How long an answer may take when nobody holds the server up.
const ANSWER: Duration = Duration::from_secs(3);

fn main() -> ExitCode {
    let address = std::env::args().nth(1).unwrap_or_default();
    match address.parse().context("an address").and_then(check) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn check(address: SocketAddr) -> anyhow::Result<()> {
    sums(address).context("sums")?;
    splits(address).context("a request in pieces")?;
    pipelines(address).context("requests in one piece")?;
    refuses(address).context("an overlong request")?;
    stops(address).context("the stop rule")?;
    // These wait, and need not wait for each other.
    thread::scope(|scope| {
        let silent = scope.spawn(|| lets_go(address, false).context("a silent client"));
        let dripping = scope.spawn(|| lets_go(address, true).context("a dripping client"));
        let stalls = scope.spawn(|| stalls_nobody(address).context("half a request"));
        for thread in [silent, dripping, stalls] {
            thread.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
        }
        Ok(())
    })
}

fn sums(address: SocketAddr) -> anyhow::Result<()> {
    for (request, answer) in [
        ("7", "7"),
        ("1 2 3", "6"),
        ("999999999 999999999 999999999 999999999 999999999", "4999999995"),
        ("1  2", "ERR"),
        ("x", "ERR"),
    ] {
        let mut client = connect(address)?;
        client.write_all(&framed(request))?;
        hear(&mut client, &framed(answer), ANSWER)?;
    }
    Ok(())
}

fn splits(address: SocketAddr) -> anyhow::Result<()> {
    let request = framed("12 30");
    for at in 1..request.len() {
        let mut client = connect(address)?;
        client.write_all(&request[..at])?;
        thread::sleep(Duration::from_millis(20));
        client.write_all(&request[at..])?;
        hear(&mut client, &framed("42"), ANSWER)?;
    }
    Ok(())
}

fn pipelines(address: SocketAddr) -> anyhow::Result<()> {
    let mut client = connect(address)?;
    client.write_all(&[framed("1"), framed("2 2")].concat())?;
    hear(&mut client, &[framed("1"), framed("4")].concat(), ANSWER)
}

fn refuses(address: SocketAddr) -> anyhow::Result<()> {
    let mut client = connect(address)?;
    // The server need not wait for the rest, and must not.
    let begun = match mine::framing() {
        Framing::Delimiter(_) => vec![b'1'; 121],
        _ => framed(&"1".repeat(121)),
    };
    client.write_all(&begun)?;
    hear(&mut client, &framed("ERR"), Duration::from_secs(1))?;
    ends(&mut client, ANSWER)
}

fn stops(address: SocketAddr) -> anyhow::Result<()> {
    let mut client = connect(address)?;
    match mine::stop() {
        Stop::Word => {
            client.write_all(&[framed("BYE"), framed("1")].concat())?;
            hear(&mut client, &framed("BYE"), ANSWER)?;
        }
        Stop::Empty => client.write_all(&[framed(""), framed("1")].concat())?,
        Stop::Count(answers) => {
            for _ in 0..=answers {
                client.write_all(&framed("1"))?;
            }
            for _ in 0..answers {
                hear(&mut client, &framed("1"), ANSWER)?;
            }
        }
    }
    // Before its patience would have ended it.
    ends(&mut client, Duration::from_millis(mine::patience_ms() / 2))
}

/// Connects, and says nothing, or something now and then.
fn lets_go(address: SocketAddr, drips: bool) -> anyhow::Result<()> {
    let mut client = connect(address)?;
    let start = Instant::now();
    let most = Duration::from_millis(mine::patience_ms()) + Duration::from_secs(2);
    let request = framed("123456789 123456789 123456789");
    let mut bytes = request.iter();
    while start.elapsed() < most {
        if drips
            && let Some(byte) = bytes.next()
            && client.write_all(&[*byte]).is_err()
        {
            return Ok(());
        }
        client.set_read_timeout(Some(Duration::from_millis(400)))?;
        match client.read(&mut [0; 64]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Ok(1..) => anyhow::bail!("was answered"),
            _ => return Ok(()),
        }
    }
    anyhow::bail!("was still held after {most:?}")
}

fn stalls_nobody(address: SocketAddr) -> anyhow::Result<()> {
    let mut holders = Vec::new();
    for _ in 0..mine::silent_clients() {
        let mut holder = connect(address)?;
        holder.write_all(&framed("1")[..1])?;
        holders.push(holder);
    }
    let mut client = connect(address)?;
    client.write_all(&framed("2"))?;
    hear(&mut client, &framed("2"), Duration::from_secs(1))
}

fn connect(address: SocketAddr) -> anyhow::Result<TcpStream> {
    let client = TcpStream::connect_timeout(&address, ANSWER).context("connect")?;
    client.set_nodelay(true)?;
    Ok(client)
}

fn framed(text: &str) -> Vec<u8> {
    let length = text.len();
    let mut bytes = match mine::framing() {
        Framing::Delimiter(_) => Vec::new(),
        Framing::Digits(digits) => format!("{length:0digits$}").into_bytes(),
        Framing::BigEndian => (length as u16).to_be_bytes().to_vec(),
        Framing::LittleEndian => (length as u16).to_le_bytes().to_vec(),
    };
    bytes.extend_from_slice(text.as_bytes());
    if let Framing::Delimiter(byte) = mine::framing() {
        bytes.push(byte);
    }
    bytes
}

fn hear(client: &mut TcpStream, expected: &[u8], within: Duration) -> anyhow::Result<()> {
    client.set_read_timeout(Some(within))?;
    let mut heard = vec![0; expected.len()];
    client.read_exact(&mut heard).with_context(|| {
        format!("no answer {:?} within {within:?}", String::from_utf8_lossy(expected))
    })?;
    ensure!(
        heard == expected,
        "heard {:?}, not {:?}",
        String::from_utf8_lossy(&heard),
        String::from_utf8_lossy(expected)
    );
    Ok(())
}

fn ends(client: &mut TcpStream, within: Duration) -> anyhow::Result<()> {
    client.set_read_timeout(Some(within))?;
    let length = client.read(&mut [0; 64]).context("no end in good order")?;
    ensure!(length == 0, "heard more than it should");
    Ok(())
}
