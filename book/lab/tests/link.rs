//! The link.
fn main() {}
