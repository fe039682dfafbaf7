//! may_minihttp: stackful coroutines, with one worker so that it has one server core.

use std::io;

use may_minihttp::{HttpServer, HttpService, Request, Response};

#[derive(Clone)]
struct Answer;

impl HttpService for Answer {
    fn call(&mut self, _: Request, response: &mut Response) -> io::Result<()> {
        response.header("Content-Type: text/plain");
        response.body(std::str::from_utf8(peers::BODY).unwrap_or_default());
        Ok(())
    }
}

fn main() -> io::Result<()> {
    may::config().set_workers(1);
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".into());
    // It does not say which port 0 has become, so that a free one is found first. Simplification: somebody
    // else may take it in between.
    let address = std::net::TcpListener::bind(address)?.local_addr()?;
    let server = HttpServer(Answer).start(address)?;
    println!("listening on {address}");
    let _ = server.join();
    Ok(())
}
