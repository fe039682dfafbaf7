//! Misconception: fifty clients at once are a burst.
//!
//! x
//!
//! Killed by: wrong-accepts-some-an-edge (passes)
//! Hint: x

fn main() {}
