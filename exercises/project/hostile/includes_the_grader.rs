//! Hostile: takes the grader's own solution at compile time.
//!
//! Bounded: it is never built. The test of the grader puts the path of the repository in.

include!("@ROOT@/exercises/project/solution/src/main.rs");
