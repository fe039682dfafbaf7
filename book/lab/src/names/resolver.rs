//! A name server on loopback that is slow in a known way: it works on one question at a time, for a set
//! time, and lets only so many wait.
//!
//! Simplified: it knows one answer, 127.0.0.1 for whatever name, and of RFC 1035 only what that takes.

use anyhow::{Context, Result};
use std::{
    collections::VecDeque,
    io::ErrorKind,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// The length of a header, and of the type and class after a name.
const HEADER: usize = 12;
const TYPE_AND_CLASS: usize = 4;

/// The longest that it sleeps between two looks at whether it is to stop.
const LOOK: Duration = Duration::from_millis(50);

/// The resolver, in a thread of its own. It ends when it is dropped.
#[derive(Debug)]
pub struct Resolver {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Resolver {
    /// Starts it on a free port of 127.0.0.1: each question takes `work`, and `waiting_max` wait at most.
    ///
    /// # Errors
    /// If there is no socket or no thread for it.
    pub fn start(work: Duration, waiting_max: usize) -> Result<Resolver> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context("bind: the resolver")?;
        let address = socket.local_addr().context("getsockname: the resolver")?;
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let serve = move || {
            // A resolver that ends early answers nobody, and the rows show it.
            let _ = serve(&socket, work, waiting_max, &seen);
        };
        let thread = thread::Builder::new().name("resolver".into()).spawn(serve);
        let thread = Some(thread.context("clone: no thread for the resolver")?);
        Ok(Resolver { address, stop, thread })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Takes questions as they come, and answers the first of those that wait when its time is over.
fn serve(
    socket: &UdpSocket,
    work: Duration,
    waiting_max: usize,
    stop: &AtomicBool,
) -> std::io::Result<()> {
    let mut waiting: VecDeque<(Vec<u8>, SocketAddr)> = VecDeque::new();
    let mut ready_at = Instant::now();
    let mut buffer = [0; 512];
    while !stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        if !waiting.is_empty() && ready_at <= now {
            if let Some((question, from)) = waiting.pop_front()
                && let Some(answer) = answer(&question)
            {
                socket.send_to(&answer, from)?;
            }
            // From the moment it was due, so that a late thread serves no fewer.
            ready_at += work;
            continue;
        }
        let until = if waiting.is_empty() { LOOK } else { ready_at - now };
        socket.set_read_timeout(Some(until.min(LOOK).max(Duration::from_micros(1))))?;
        match socket.recv_from(&mut buffer) {
            Ok((length, from)) if waiting.len() < waiting_max => {
                if waiting.is_empty() {
                    ready_at = ready_at.max(Instant::now() + work);
                }
                waiting.push_back((buffer[..length].to_vec(), from));
            }
            Ok(_) => {} // Dropped, as a full queue does.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The question `what is the address of name?` with the number `id`.
///
/// # Panics
/// If a label of `name` has more than 63 bytes.
pub fn question(id: u16, name: &str) -> Vec<u8> {
    let mut packet = Vec::with_capacity(HEADER + name.len() + 2 + TYPE_AND_CLASS);
    packet.extend(id.to_be_bytes());
    packet.extend([0x01, 0x00]); // A question; recursion is wished for.
    packet.extend([0, 1, 0, 0, 0, 0, 0, 0]); // One question, nothing else.
    for label in name.split('.') {
        let length = u8::try_from(label.len()).ok().filter(|length| *length < 64);
        packet.push(length.expect("a label has at most 63 bytes"));
        packet.extend(label.as_bytes());
    }
    packet.push(0);
    packet.extend([0, 1, 0, 1]); // An address (A) of the internet (IN).
    packet
}

/// The answer to `question`: 127.0.0.1. `None` if it is no question.
pub fn answer(question: &[u8]) -> Option<Vec<u8>> {
    let is_question = question.get(2)? & 0x80 == 0 && question.get(4..6)? == [0, 1];
    let end = end_of_name(question, HEADER)? + TYPE_AND_CLASS;
    let mut packet = question.get(..end)?.to_vec();
    if !is_question {
        return None;
    }
    packet[2] = 0x81; // An answer.
    packet[3] = 0x80; // Recursion is available, and nothing went wrong.
    packet.get_mut(6..12)?.copy_from_slice(&[0, 1, 0, 0, 0, 0]); // One answer.
    packet.extend([0xC0, HEADER as u8]); // Its name is the one in the question.
    packet.extend([0, 1, 0, 1, 0, 0, 0, 0, 0, 4]); // A, IN, not to be kept, four bytes.
    packet.extend(Ipv4Addr::LOCALHOST.octets());
    Some(packet)
}

/// The number and the address of an answer to [`question`]. `None` if it is none.
pub fn read_answer(packet: &[u8]) -> Option<(u16, Ipv4Addr)> {
    let id = u16::from_be_bytes([*packet.first()?, *packet.get(1)?]);
    let is_good = packet.get(2)? & 0x80 != 0 && packet.get(3)? & 0x0F == 0;
    let has_answer = packet.get(6..8)? == [0, 1];
    let record = end_of_name(packet, HEADER)? + TYPE_AND_CLASS;
    // A name of two bytes (a reference), type, class, time to live, length.
    let address: [u8; 4] = packet.get(record + 12..record + 16)?.try_into().ok()?;
    (is_good && has_answer).then(|| (id, Ipv4Addr::from(address)))
}

/// Where the name that begins at `at` ends.
fn end_of_name(packet: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match usize::from(*packet.get(at)?) {
            0 => return Some(at + 1),
            length if length < 64 => at += 1 + length,
            _ => return None, // A reference: nobody here sends one in a question.
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_answered() {
        let asked = question(0x1234, "server.test");
        let said = answer(&asked).unwrap();
        assert_eq!(read_answer(&said), Some((0x1234, Ipv4Addr::LOCALHOST)));
        assert_eq!(read_answer(&asked), None, "a question is no answer");
        assert_eq!(answer(&said), None, "an answer is no question");
        for length in 0..asked.len() {
            assert_eq!(answer(&asked[..length]), None, "{length} bytes of {}", asked.len());
        }
        for length in 0..said.len() {
            assert_eq!(read_answer(&said[..length]), None, "{length} bytes of {}", said.len());
        }
    }

    #[test]
    fn who_comes_when_the_queue_is_full_is_dropped() {
        // Its time for one question is longer than this test takes to ask.
        let work = Duration::from_millis(300);
        let resolver = Resolver::start(work, 2).unwrap();
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        let start = Instant::now();
        for id in 1..=5 {
            socket.send_to(&question(id, "server.test"), resolver.address()).unwrap();
        }
        let mut buffer = [0; 512];
        let mut heard = Vec::new();
        while let Ok(length) = socket.recv(&mut buffer) {
            heard.push(read_answer(&buffer[..length]).unwrap().0);
        }
        assert_eq!(heard, [1, 2]);
        assert!(start.elapsed() >= 2 * work, "one at a time");
    }
}
