//! My test: a client of the server at the address in the first argument. It ends with status 0 when that
//! server is right, and with another one, after a sentence on stderr, when it is wrong.

mod mine;

use std::process::ExitCode;

fn main() -> ExitCode {
    // A test that has seen nothing must not say that all is well.
    eprintln!("not written yet: how is a server with {:?} known to be wrong?", mine::framing());
    ExitCode::FAILURE
}
