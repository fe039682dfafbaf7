//! Misconception: numbers of nine digits fit into 32 bits, so that their sum does.
//!
//! Five of them do not.

mod frame;
mod mine;
mod right;

use std::process::ExitCode;

use frame::Session;
use mine::Framing;

fn main() -> ExitCode {
    right::run(|client| {
        let mut session = Session::default();
        let mut bytes = [0; 4096];
        let mut deadline = right::deadline();
        while !session.is_over() {
            let length = right::read_before(deadline, client, &mut bytes)?;
            if length == 0 {
                session.feed(b"");
            }
            for byte in &bytes[..length] {
                session.feed(std::slice::from_ref(byte));
                if !session.unsent().is_empty() {
                    send_narrowly(client, &mut session)?;
                    deadline = right::deadline();
                }
                if session.is_over() {
                    break;
                }
            }
        }
        right::hang_up(client)
    })
}

/// Sends the one answer that waits, without what is above 32 bits.
fn send_narrowly(mut client: &std::net::TcpStream, session: &mut Session) -> std::io::Result<()> {
    let framed = session.unsent();
    let answer = match mine::framing() {
        Framing::Delimiter(_) => &framed[..framed.len() - 1],
        Framing::Digits(digits) => &framed[digits..],
        Framing::BigEndian | Framing::LittleEndian => &framed[2..],
    };
    let sum = std::str::from_utf8(answer).ok().and_then(|it| it.parse::<u64>().ok());
    let narrow = sum.map_or(answer.to_vec(), |it| (it as u32).to_string().into_bytes());
    std::io::Write::write_all(&mut client, &frame::framed(&narrow))?;
    let length = framed.len();
    session.sent(length);
    Ok(())
}
