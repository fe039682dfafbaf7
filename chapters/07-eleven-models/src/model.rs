//! What the eleven have in common: a name, a sentence, and `serve`.

use std::net::SocketAddr;

use http::{Limits, OddEven};

// ANCHOR: model
/// A way to wait for many clients.
pub trait Model: Sync {
    /// What `--model` calls it.
    fn name(&self) -> &'static str;

    /// What it is, in a few words.
    fn about(&self) -> &'static str;

    /// Serves `app` at `address` until SIGTERM or SIGINT, and until what was in flight then is answered.
    ///
    /// # Errors
    ///
    /// When it cannot listen, or can accept nobody ever again. No client's error is one of the server.
    fn serve(&self, address: SocketAddr, config: &Config, app: OddEven) -> anyhow::Result<()>;
}
// ANCHOR_END: model

// ANCHOR: config
/// What can be set on the command line.
#[derive(Clone, Debug)]
pub struct Config {
    /// How many threads or processes serve, in a model that has a fixed number of them.
    pub workers: usize,
    /// The same for a model whose workers sleep while their client does: more of them than cores.
    pub pool: usize,
    /// How many connections may wait in the queue of the kernel until they are accepted.
    pub backlog: i32,
    /// How long a request may take, and a connection may say nothing.
    pub limits: Limits,
    /// How long a stop waits for what is in flight, in ms.
    pub drain_ms: u64,
    /// How many connections are held at once. Whoever comes then waits in the queue.
    pub connections_max: usize,
    /// How long `io-uring` waits for company when one completion is there, in µs; 0: not at all.
    pub batch_wait_us: u32,
}
// ANCHOR_END: config
