//! What was measured as a table, with a row for each world.

use super::Measured;
use crate::results::schema::{Field, columns_of, number, row, text};
use crate::results::{Cell, Kind, Table};

const WORLDS: &[Field<Measured>] = &[
    ("seed", Kind::Whole, "the world", |one| {
        Cell::Whole(one.seed)
    }),
    ("figure", Kind::Text, "what `all` and `best` are", |one| {
        text(one.figure.name())
    }),
    ("conditions", Kind::Text, "what makes it hard", |one| {
        let names: Vec<&str> = one.conditions.iter().map(|it| it.name()).collect();
        text(&names.join("+"))
    }),
    ("links", Kind::Whole, "how many it has", |one| {
        Cell::Whole(one.links as u64)
    }),
    ("all", Kind::Number, "the figure with all links", |one| {
        number(Some(one.all))
    }),
    ("best", Kind::Number, "that of the best link alone", |one| {
        number(Some(one.best))
    }),
    ("best_link", Kind::Text, "that link", |one| {
        text(one.best_link)
    }),
    (
        "round_trip_s",
        Kind::Number,
        "its round trip without queues",
        |one| number(Some(one.round_trip)),
    ),
    ("oracle_s", Kind::Number, "the oracle's time", |one| {
        number(one.oracle)
    }),
    (
        "twice",
        Kind::Number,
        "stream bytes that arrived more than once, as a share of all",
        |one| number(Some(one.twice)),
    ),
    ("gain", Kind::Number, "best over all", |one| {
        number(Some(one.gain()))
    }),
    (
        "over_1_02",
        Kind::Whole,
        "1 if it took longer than 1.02 times the best link and a round trip",
        |one| Cell::Whole(one.breaks(1.02).into()),
    ),
    (
        "over_1_10",
        Kind::Whole,
        "1 if it took longer than 1.10 times the best link and a round trip",
        |one| Cell::Whole(one.breaks(1.10).into()),
    ),
];

/// The worlds as they were measured, in this order.
pub fn table(measured: &[Measured]) -> Table {
    Table {
        name: "worlds",
        columns: columns_of(WORLDS),
        rows: measured.iter().map(|one| row(WORLDS, one)).collect(),
    }
}
