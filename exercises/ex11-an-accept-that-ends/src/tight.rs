//! What this exercise leaves its server, which is little on purpose: it is not to be edited.

use anyhow::Context;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// The submission queue. The completion queue has twice as many: what a busy server meets now and then,
/// this one meets in every burst.
pub const ENTRIES: usize = 4;

/// The buffers that are lent to the kernel.
pub const BUFFERS: usize = 128;

/// The descriptors that it may have open.
const DESCRIPTORS: u64 = 32;

/// Lowers the limit of this process.
///
/// It has to be done before the accept is asked for: the kernel looks at the limit when an operation is
/// handed in, and a multishot accept is handed in once.
pub fn few_descriptors() -> anyhow::Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).context("getrlimit(RLIMIT_NOFILE)")?;
    setrlimit(Resource::RLIMIT_NOFILE, DESCRIPTORS, most).context("setrlimit(RLIMIT_NOFILE)")
}
