//! The checker of the exercises, as a library: what `cargo course` is made of.
//!
//! Reading order: [`home`] finds the exercises, [`exercise`] is one of them; the overlay engine is
//! [`scratch`] (some sources built with a pristine manifest), [`confine`] (a child under limits) and
//! [`judge`] (what the rows find of a program); [`verdict`] says what that means, [`misconception`] which
//! wrong server it looks like; the rest are the commands.

pub mod check;
pub mod confine;
pub mod doctor;
pub mod exercise;
pub mod hint;
pub mod home;
pub mod judge;
pub mod misconception;
pub mod say;
pub mod scratch;
pub mod state;
pub mod verdict;
pub mod verify;
