//! What the schedulers of this crate are made of, for authors of new ones.
//!
//! Times are nanoseconds, sizes bytes, rates bytes per second, unless a name or a type says
//! otherwise. Nothing here allocates once it is made, divides by zero or overflows, whatever a view
//! holds.
//!
//! | for | use |
//! |---|---|
//! | the lowest of any key | [`lowest_by`] |
//! | a wait for a path that is full, sure to end | [`Patience`], [`hold_for`] |
//! | values for each path | [`PerPath`] |
//! | lost data on a path that has not carried it | [`leaves`], [`carried`] |
//! | data left for other paths | [`Booked`], [`send_behind`], [`skip_limit`], [`skip_credit`] |
//! | delays and rates, measured or assumed | [`Delays`], [`bandwidth`], [`delivered_rate`] |
//! | when what is sent now arrives, queues counted | [`forecast`] |
//! | turns in proportion to weights | [`Shares`] |
//! | copies at the end, and of what is slow | [`repeat`], [`is_outlasted`] |
//! | copies: a limit on them, those that measure | [`Budget`], [`Prober`] |
//! | a wrapper that leaves paths alone | [`Demoter`], and [`Demoted`] where the wait is its own |
//! | arithmetic that saturates | [`units`] |
//!
//! The order by RTT is the engine's own, as `min-rtt` rests on it: [`rank`], [`lowest_rtt`] and
//! [`Contest`], the path that would be better if it had room.
//!
//! A scheduler that waits for the fastest path if that is at most twice as fast as what is free:
//!
//! ```
//! use anabranch_proto::sched::{Choice, Contest, PathEvent, Reason, Scheduler, SendView};
//! use anabranch_schedulers::toolkit::Patience;
//!
//! #[derive(Debug, Default)]
//! struct Twice {
//!     patience: Patience,
//! }
//!
//! impl Scheduler for Twice {
//!     fn select(&mut self, view: &SendView<'_>) -> Choice {
//!         let Some(contest) = Contest::of(view) else {
//!             return view.no_room();
//!         };
//!         let (fastest, open) = (contest.fastest, contest.open);
//!         if contest.is_decided() || open.smoothed_rtt <= fastest.smoothed_rtt * 2 {
//!             self.patience.end();
//!             return contest.send();
//!         }
//!         self.patience.wait_for(view, fastest, Reason::WaitForBetter)
//!     }
//!
//!     fn on_event(&mut self, event: &PathEvent) {
//!         self.patience.on_event(event);
//!     }
//! }
//! ```
//!
//! [`rank`]: anabranch_proto::sched::rank
//! [`lowest_rtt`]: anabranch_proto::sched::lowest_rtt
//! [`Contest`]: anabranch_proto::sched::Contest

mod booked;
mod budget;
mod copying;
mod delays;
mod demote;
pub mod forecast;
mod lowest;
mod patience;
mod per_path;
mod placing;
mod prober;
mod rates;
mod shares;
pub mod units;

pub use booked::{Booked, send_behind};
pub use budget::Budget;
pub use copying::{is_outlasted, repeat};
pub use delays::Delays;
pub use demote::{Demoted, Demoter, lacks_room};
pub use lowest::lowest_by;
pub use patience::{Patience, hold_for, longest_wait};
pub use per_path::{PerPath, position};
pub use placing::{carried, leaves, skip_credit, skip_limit, unit};
pub use prober::Prober;
pub use rates::{assumed_window_rate, bandwidth, delivered_rate, window_rate};
pub use shares::{Share, Shares};
