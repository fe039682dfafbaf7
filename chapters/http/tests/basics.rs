//! The everyday requests: one answer each, kept connections, pipelines, bodies.

use http::{Connection, Core, Limits, OddEven, Wants};

/// Feeds everything at once and sends everything that comes out.
fn talk(pieces: &[&[u8]]) -> (Vec<u8>, Wants) {
    let mut core = Core::new(Limits::default(), OddEven);
    let mut connection = Connection::new(&core, 0);
    let mut said = Vec::new();
    for piece in pieces {
        connection.feed(&mut core, piece, 1);
        while connection.wants() == Wants::Write {
            let unsent = connection.unsent();
            said.extend_from_slice(unsent.first);
            said.extend_from_slice(unsent.second);
            let length = unsent.len();
            connection.sent(&mut core, length, 2);
        }
    }
    (said, connection.wants())
}

#[test]
fn a_get_is_answered_and_the_connection_stays() {
    let (said, wants) = talk(&[b"GET /parity/7 HTTP/1.1\r\nHost: x\r\n\r\n"]);
    let expected = "HTTP/1.1 200 OK\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\
                    Content-Type: text/plain; charset=utf-8\r\nContent-Length: 4\r\n\r\nOdd\n";
    assert_eq!(String::from_utf8_lossy(&said), expected);
    assert_eq!(wants, Wants::Read);
}
