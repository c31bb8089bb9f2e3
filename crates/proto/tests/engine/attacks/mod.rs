//! What hostile peers and networks try, and what must hold: one test at least for each row of the
//! checklist in `docs/security.md`, whose number its name or comment carries.

mod acks;
mod admission;
mod closing;
mod floods;
mod memory;
mod migration;
mod paths;
mod privacy;
mod probing;
mod protection;
mod wakeups;
mod windows;

use crate::raw::assert_closed;
use anabranch_proto::wire::{PathId, Side};

const BOTH: [Side; 2] = [Side::Client, Side::Server];
const ZERO: PathId = PathId::ZERO;
const ONE: PathId = PathId(1);
