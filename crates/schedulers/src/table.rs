//! A policy as a table: what was learnt elsewhere, at the speed of a look-up.
//!
//! A [`Table`] cuts a few measures of the paths into bins; each combination of bins is a cell, and
//! a cell has an action. It is made for the scenario that it was learnt on: paths are known by
//! their ids.
//!
//! ```
//! use anabranch_schedulers::table::{Feature, Measure, Table};
//!
//! // Path 1 is used only while more than 50 packets wait.
//! let waiting = Feature { measure: Measure::Backlog, path: 0, edges: vec![50.0] };
//! let fast = Feature { measure: Measure::Ready, path: 0, edges: vec![0.5] };
//! let table = Table::new(vec![waiting, fast], vec![2, 0, 1, 0], 2)?;
//! let scheduler = table.scheduler("patient");
//! assert_eq!(scheduler.name(), "patient");
//! # Ok::<(), anabranch_schedulers::table::TableError>(())
//! ```

use anabranch_proto::sched::{Choice, PathView, Reason, Scheduler, SchedulerFactory, SendView};
use std::sync::Arc;
use thiserror::Error;

/// The most cells of a table.
pub const MAX_CELLS: usize = 1 << 20;

/// What a feature looks at. A path that does not exist has 0 everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// 1 if the path can take a packet now.
    Ready,
    /// Smoothed RTT in seconds, 0 before the first sample.
    SmoothedRtt,
    /// Smallest RTT in seconds.
    MinRtt,
    /// Packets that the window still has room for.
    Room,
    /// Packets in flight.
    InFlight,
    /// Delivery rate in megabytes per second.
    DeliveryRate,
    /// The share of packets lost lately, 0 to 1.
    Loss,
    /// The user's cost per byte.
    Cost,
    /// Packets of the connection that wait to be sent for the first time, as large as the path's.
    Backlog,
}

impl Measure {
    /// All of them, in the order of the observations of `anabranch.learning`.
    pub const ALL: [(Self, &'static str); 9] = [
        (Self::Ready, "ready"),
        (Self::SmoothedRtt, "smoothed_rtt"),
        (Self::MinRtt, "min_rtt"),
        (Self::Room, "room"),
        (Self::InFlight, "in_flight"),
        (Self::DeliveryRate, "delivery_rate"),
        (Self::Loss, "loss"),
        (Self::Cost, "cost"),
        (Self::Backlog, "backlog"),
    ];

    /// The measure of this name.
    pub fn named(name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|(_, known)| *known == name)
            .map(|(measure, _)| measure)
    }

    fn of(self, path: &PathView, is_ready: bool, view: &SendView<'_>) -> f32 {
        let packet = f64::from(path.max_datagram_size.max(1));
        let value = match self {
            Self::Ready => f64::from(u8::from(is_ready)),
            Self::SmoothedRtt => path.smoothed_rtt.as_secs_f64(),
            Self::MinRtt => path.min_rtt.as_secs_f64(),
            Self::Room => path.room() as f64 / packet,
            Self::InFlight => path.bytes_in_flight as f64 / packet,
            Self::DeliveryRate => path.delivery_rate as f64 / 1e6,
            Self::Loss => f64::from(path.loss),
            Self::Cost => f64::from(path.cost),
            Self::Backlog => view.backlog.unsent as f64 / packet,
        };
        value as f32
    }
}

/// One measure of one path, cut into bins.
#[derive(Debug, Clone, PartialEq)]
pub struct Feature {
    /// What is looked at.
    pub measure: Measure,
    /// The id of the path.
    pub path: u32,
    /// Where one bin ends and the next begins, in ascending order. A value is in the bin whose
    /// number is the count of edges that it has reached.
    pub edges: Vec<f64>,
}

/// Why a table cannot be.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TableError {
    /// Edges are not in ascending order.
    #[error("feature {0}: edges must be numbers in ascending order")]
    Edges(usize),
    /// The bins make too many combinations.
    #[error("the features make more than {MAX_CELLS} cells: use fewer of them, or fewer edges")]
    TooLarge,
    /// The number of actions is not that of the cells.
    #[error("{actions} actions for {cells} cells: expected one for each")]
    Actions {
        /// How many actions there are.
        actions: usize,
        /// How many cells.
        cells: usize,
    },
    /// An action is neither a path nor to hold.
    #[error("action {action} of cell {cell}: expected the id of a path, or {paths} to hold")]
    Action {
        /// The action.
        action: u8,
        /// Where it is.
        cell: usize,
        /// How many paths there are.
        paths: u8,
    },
}

/// A policy: an action for each combination of bins.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    features: Vec<Feature>,
    actions: Vec<u8>,
    paths: u8,
}

impl Table {
    /// `actions` has one for each cell, the last feature's bins next to each other: the id of a
    /// path, or `paths` to hold.
    ///
    /// # Errors
    /// What does not fit together.
    pub fn new(features: Vec<Feature>, actions: Vec<u8>, paths: u8) -> Result<Self, TableError> {
        let mut cells: usize = 1;
        for (at, feature) in features.iter().enumerate() {
            // Not ascending, or no number.
            if !feature.edges.is_sorted_by(|one, next| one < next)
                || feature.edges.iter().any(|edge| edge.is_nan())
            {
                return Err(TableError::Edges(at));
            }
            cells = cells.saturating_mul(feature.edges.len() + 1);
            if cells > MAX_CELLS {
                return Err(TableError::TooLarge);
            }
        }
        if actions.len() != cells {
            let actions = actions.len();
            return Err(TableError::Actions { actions, cells });
        }
        if let Some(cell) = actions.iter().position(|action| *action > paths) {
            let action = actions[cell];
            return Err(TableError::Action {
                action,
                cell,
                paths,
            });
        }
        Ok(Self {
            features,
            actions,
            paths,
        })
    }

    /// A scheduler for each connection that decides by this table.
    pub fn scheduler(self, name: impl Into<String>) -> SchedulerFactory {
        let table = Arc::new(self);
        SchedulerFactory::from_fn(name, move || Box::new(Frozen(Arc::clone(&table))))
    }

    /// The cell of this view.
    fn cell(&self, view: &SendView<'_>) -> usize {
        let mut cell = 0;
        for feature in &self.features {
            let path = view.paths.iter().find(|path| path.id.0 == feature.path);
            let value = path.map_or(0.0, |path| {
                feature.measure.of(path, is_ready(path, view), view)
            });
            let bin = feature.edges.iter().filter(|edge| **edge as f32 <= value);
            cell = cell * (feature.edges.len() + 1) + bin.count();
        }
        cell
    }
}

/// Whether a path is among those to choose from and can take a packet.
fn is_ready(path: &PathView, view: &SendView<'_>) -> bool {
    path.can_send(view.now) && view.candidates().any(|one| one.id == path.id)
}

/// Decides by a table.
#[derive(Debug)]
struct Frozen(Arc<Table>);

impl Scheduler for Frozen {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        let action = self.0.actions[self.0.cell(view)];
        let chosen = view
            .paths
            .iter()
            .find(|path| path.id.0 == u32::from(action));
        match chosen {
            Some(path) if action < self.0.paths && is_ready(path, view) => {
                Choice::send(path.id, Reason::Other("table"))
            }
            _ => Choice::hold(Reason::Other("held")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_proto::sched::{Backlog, Decision};
    use anabranch_proto::time::{Duration, Instant};

    fn feature(measure: Measure, path: u32, edges: &[f64]) -> Feature {
        Feature {
            measure,
            path,
            edges: edges.to_vec(),
        }
    }

    fn decide(table: &Table, unsent: u64, in_flight: [u64; 2]) -> Decision {
        let mut paths = [PathView::new(0), PathView::new(1)];
        for (path, bytes) in paths.iter_mut().zip(in_flight) {
            path.bytes_in_flight = bytes;
            path.smoothed_rtt = Duration::from_millis(20);
        }
        let view = SendView {
            now: Instant::ZERO,
            paths: &paths,
            backlog: Backlog {
                unsent,
                ..Backlog::default()
            },
            unit: anabranch_proto::sched::Unit::default(),
            streams: &[],
        };
        table.clone().scheduler("t").build().select(&view).decision
    }

    #[test]
    fn a_cell_is_found_by_its_bins_and_its_action_is_taken() {
        let waiting = feature(Measure::Backlog, 0, &[50.0]);
        let fast = feature(Measure::Ready, 0, &[0.5]);
        let table = Table::new(vec![waiting, fast], vec![2, 0, 1, 0], 2).unwrap();
        let packet = u64::from(PathView::new(0).max_datagram_size);
        let full = PathView::new(0).congestion_window;
        let send = |id| Decision::Send(anabranch_proto::wire::PathId(id));
        let hold = Decision::Hold { until: None };
        assert_eq!(decide(&table, packet, [0, 0]), send(0));
        assert_eq!(decide(&table, packet, [full, 0]), hold);
        assert_eq!(decide(&table, 50 * packet, [full, 0]), send(1));
        // The table does not know that path 1 is full too: the engine would hold, so does it.
        assert_eq!(decide(&table, 50 * packet, [full, full]), hold);
    }

    #[test]
    fn a_value_at_an_edge_is_in_the_upper_bin_and_one_of_no_path_is_0() {
        let at = |edges: &[f64], path| {
            let feature = feature(Measure::SmoothedRtt, path, edges);
            let actions = (0..=edges.len()).map(|bin| u8::from(bin == 1)).collect();
            let table = Table::new(vec![feature], actions, 2).unwrap();
            decide(&table, 0, [0, 0])
        };
        let send = |id| Decision::Send(anabranch_proto::wire::PathId(id));
        assert_eq!(at(&[0.02], 0), send(1));
        assert_eq!(at(&[0.021], 0), send(0));
        assert_eq!(at(&[0.0, 0.01], 0), send(0));
        assert_eq!(at(&[0.0, 0.01], 7), send(1));
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let one = |edges: &[f64]| vec![feature(Measure::Room, 0, edges)];
        for (edges, actions, message) in [
            (vec![1.0, 1.0], 3, "feature 0: edges must be numbers"),
            (vec![f64::NAN], 2, "feature 0: edges must be numbers"),
            (vec![1.0], 3, "3 actions for 2 cells: expected one for each"),
        ] {
            let error = Table::new(one(&edges), vec![0; actions], 2).unwrap_err();
            assert!(error.to_string().starts_with(message), "{error}");
        }
        let error = Table::new(one(&[1.0]), vec![2, 3], 2)
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("action 3 of cell 1: expected"), "{error}");
        let edges: Vec<f64> = (0..2000).map(f64::from).collect();
        let many = vec![
            feature(Measure::Room, 0, &edges),
            feature(Measure::Room, 1, &edges),
        ];
        assert_eq!(Table::new(many, Vec::new(), 2), Err(TableError::TooLarge));
    }

    #[test]
    fn every_measure_is_found_by_its_name() {
        for (measure, name) in Measure::ALL {
            assert_eq!(Measure::named(name), Some(measure));
        }
        assert_eq!(Measure::named("rooms"), None);
    }
}
