//! What hostile peers and networks try, and what must hold: one test at least for each row of the
//! checklist in `docs/security.md`, whose number its name or comment carries.

#[path = "../pair/mod.rs"]
mod pair;
#[path = "../raw/mod.rs"]
mod raw;

mod acks;
mod floods;
mod migration;
mod paths;
mod privacy;
mod probing;
mod protection;
mod wakeups;

use anabranch_proto::wire::{PathId, Side};
use raw::assert_closed;

const BOTH: [Side; 2] = [Side::Client, Side::Server];
const ZERO: PathId = PathId::ZERO;
const ONE: PathId = PathId(1);
