//! What a connection holds while it is busy with a request, and hands on when it is idle again.

use crate::answer::{Answer, Large, Persistence};
use crate::body::{Framing, Reader};
use crate::connection::Unsent;
use crate::head::{Head, Verb};
use crate::target::Target;

/// The buffers of a connection that has begun a request or has not sent all its answers.
#[derive(Debug)]
pub(crate) struct Busy {
    /// What has come and is not understood yet, from `kept_from` on.
    pub kept: Vec<u8>,
    pub kept_from: usize,
    /// Answers, of which `output_sent` bytes have gone. Nothing is added before all has gone: the
    /// kernel may be reading it.
    pub output: Vec<u8>,
    pub output_sent: usize,
    /// What is sent after `output`.
    pub large: Large,
    /// The request whose body is being read or whose answer is not due yet.
    pub begun: Begun,
    pub reader: Reader,
    pub body: Vec<u8>,
    /// The answer that is due at a time (ms).
    pub later: Option<(u64, Answer<'static>)>,
}

/// What has to be remembered of a head while the body comes.
#[derive(Debug)]
pub(crate) struct Begun {
    pub verb: Verb,
    pub persistence: Persistence,
    /// The path, and the query behind it where there is one.
    pub target: String,
    pub path_length: usize,
    pub has_query: bool,
}

impl Begun {
    pub fn is_head(&self) -> bool {
        self.verb == Verb::Head
    }

    pub fn note(&mut self, head: &Head<'_>) {
        (self.verb, self.persistence) = (head.verb, head.persistence);
        (self.path_length, self.has_query) = (head.target.path.len(), head.target.query.is_some());
        self.target.clear();
        self.target.push_str(head.target.path);
        self.target.push_str(head.target.query.unwrap_or_default());
    }

    pub fn target(&self) -> Target<'_> {
        let (path, query) = self.target.split_at(self.path_length);
        Target { path, query: self.has_query.then_some(query) }
    }
}

impl Default for Begun {
    fn default() -> Begun {
        Begun {
            verb: Verb::Unknown,
            persistence: Persistence::Ends,
            target: String::new(),
            path_length: 0,
            has_query: false,
        }
    }
}

impl Default for Busy {
    fn default() -> Busy {
        Busy {
            kept: Vec::new(),
            kept_from: 0,
            output: Vec::new(),
            output_sent: 0,
            large: Large::default(),
            begun: Begun::default(),
            reader: Reader::new(Framing::Length(0)),
            body: Vec::new(),
            later: None,
        }
    }
}

/// A spare buffer does not keep more than these bytes.
const SPARE_BYTES_MAX: usize = 8 * 1024;

impl Busy {
    pub fn unsent(&self) -> Unsent<'_> {
        Unsent { first: &self.output[self.output_sent..], second: self.large.slice() }
    }

    /// Notes what has gone. When everything has, the buffer begins anew.
    pub fn sent(&mut self, length: usize) {
        let first = length.min(self.output.len() - self.output_sent);
        self.output_sent += first;
        self.large.sent(length - first);
        if self.output_sent == self.output.len() {
            self.output.clear();
            self.output_sent = 0;
        }
    }

    pub fn is_sent(&self) -> bool {
        self.output.is_empty() && self.large.left == 0
    }

    pub fn keep(&mut self, bytes: &[u8]) {
        if self.kept_from * 2 > self.kept.len() {
            self.kept.drain(..self.kept_from);
            self.kept_from = 0;
        }
        self.kept.extend_from_slice(bytes);
    }

    /// Forgets everything but the room.
    pub fn clear(&mut self) {
        for buffer in [&mut self.kept, &mut self.output, &mut self.body] {
            buffer.clear();
            buffer.shrink_to(SPARE_BYTES_MAX);
        }
        self.begun.target.clear();
        (self.kept_from, self.output_sent, self.large, self.later) = (0, 0, Large::default(), None);
    }
}
