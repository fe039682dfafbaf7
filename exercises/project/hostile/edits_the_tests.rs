//! Hostile: its folder has a manifest, a build script, settings for cargo and tests of its own, which
//! would replace the grader's. This file is its server: it ends at once.
//!
//! Bounded: nothing of it runs. If the build script ran, it would end with an error.

fn main() {
    eprintln!("my manifest says that all is well");
}
