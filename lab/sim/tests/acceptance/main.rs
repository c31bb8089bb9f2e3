//! What each scheduler is for, measured on the real engine in virtual time.
//!
//! One file per family. What a scheduler fails to reach is in `docs/schedulers-acceptance.md` with
//! its figures.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests may panic, as tests do"
)]

mod common;
mod copies;
mod delays;
mod forward_delay;
mod steering;
mod trial;
mod turns;
mod waiting;
