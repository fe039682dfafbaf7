//! `cargo course doctor`: what this machine is, and which chapters run on it.

use anyhow::{Context, bail};
use io_uring::{IoUring, Probe, opcode};

/// Sets up a ring as chapter 06 does, and hands it to the kernel once.
///
/// # Errors
///
/// A sentence that says what is in the way, and what to do.
pub fn ring() -> anyhow::Result<()> {
    let ring: std::io::Result<IoUring> =
        IoUring::builder().setup_single_issuer().setup_defer_taskrun().setup_submit_all().build(8);
    let ring = match ring {
        Ok(ring) => ring,
        Err(error) => bail!("io_uring_setup: {error}: {}", remedy(&error)),
    };
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe).context("io_uring_register(PROBE)")?;
    let wanted = [
        ("accept", opcode::Accept::CODE),
        ("recv", opcode::Recv::CODE),
        ("send", opcode::Send::CODE),
        ("close", opcode::Close::CODE),
        ("async cancel", opcode::AsyncCancel::CODE),
        ("link timeout", opcode::LinkTimeout::CODE),
    ];
    if let Some((name, _)) = wanted.iter().find(|it| !probe.is_supported(it.1)) {
        bail!("io_uring has no operation {name}: it is too old here: take Linux 6.1 or later");
    }
    // A filter may forbid this call alone.
    ring.submitter().submit().context("io_uring_enter: a seccomp filter may forbid it")?;
    Ok(())
}

fn remedy(error: &std::io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(38) => "io_uring is missing: this kernel was built without it, or a sandbox hides it",
        Some(1 | 13) => {
            "io_uring is forbidden: by a container's seccomp profile (`--security-opt \
             seccomp=unconfined` allows it), or by kernel.io_uring_disabled (0 allows it)"
        }
        Some(22) => "io_uring is too old here: take Linux 6.1 or later",
        _ => "io_uring cannot be set up: `ulimit -l` may be short of memory",
    }
}
