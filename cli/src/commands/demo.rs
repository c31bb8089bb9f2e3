//! x
use crate::args::Demo;
use crate::failure::Outcome;
pub(crate) async fn run(_args: &Demo, _quiet: bool) -> Outcome { Ok(()) }
