//! Foreign QUIC stacks against this engine, each with nothing of ours at the other end: installs
//! them, runs every case in both roles, and prints a table of what passed for each. Those of a run
//! are in `docs/interop.md`.
//!
//! Programs written here drive the libraries (`dev/interop/peers`); our end is the `anabranch`
//! command, or `dev/interop/examples/our_end` for what no command offers. A peer that cannot be had
//! is *not run*, never passed.

mod aioquic;
mod case;
mod cases;
mod connect_ip_go;
mod curl;
mod far_end;
mod hostile;
mod install;
mod links;
mod masque_go;
mod near_end;
mod ngtcp2;
mod picoquic;
mod process;
mod quic_go;
mod rust_peers;
mod table;

use case::{Case, Outcome, Row};
use install::Installed;
use std::path::{Path, PathBuf};

/// In the environment: a required peer that cannot be had is a failure.
const REQUIRE: &str = "ANABRANCH_REQUIRE_PEERS";

/// One foreign stack.
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    /// Whether [`REQUIRE`] insists on it.
    pub(crate) is_required: bool,
    pub(crate) install: fn(&Shop) -> Result<Installed, String>,
    pub(crate) cases: fn() -> Vec<Case>,
}

/// Where everything lies.
#[derive(Debug)]
pub(crate) struct Shop {
    pub(crate) root: PathBuf,
    /// What is installed and built for this: below `target`.
    pub(crate) cache: PathBuf,
    /// Programs and settings of ours for the peers.
    pub(crate) peers: PathBuf,
}

impl Shop {
    fn new(root: &Path) -> Self {
        Self {
            root: root.to_path_buf(),
            cache: root.join("target/interop"),
            peers: root.join("dev/interop/peers"),
        }
    }
}

const PEERS: &[Peer] = &[
    picoquic::PEER,
    aioquic::PEER,
    hostile::PEER,
    quic_go::PEER,
    ngtcp2::PEER,
    curl::PEER,
    masque_go::PEER,
    connect_ip_go::PEER,
];

/// What `cargo xtask interop` takes, for messages.
fn names() -> Vec<&'static str> {
    let foreign = PEERS.iter().map(|peer| peer.name);
    foreign.chain(rust_peers::NAMES.iter().copied()).collect()
}

/// Runs the named peers, or all; false if a case failed. A name nobody has is an error.
pub(crate) fn run(root: &Path, wanted: &[&str]) -> Result<bool, String> {
    for name in wanted {
        if !names().contains(name) {
            return Err(unknown(name));
        }
    }
    let is_wanted = |name: &str| wanted.is_empty() || wanted.contains(&name);
    let shop = Shop::new(root);
    let insists = std::env::var_os(REQUIRE).is_some_and(|value| value == "1");
    let mut passed = true;
    if PEERS.iter().any(|peer| is_wanted(peer.name)) {
        let ours = install::our_end(&shop)?;
        for peer in PEERS.iter().filter(|peer| is_wanted(peer.name)) {
            let rows = run_peer(&shop, &ours, peer);
            passed &= is_fine(peer, &rows, insists);
            table::print(&format!("{} {}", peer.name, peer.version), &rows);
        }
    }
    for name in rust_peers::NAMES.iter().filter(|name| is_wanted(name)) {
        let rows = rust_peers::run(&shop, name);
        passed &= !rows.iter().any(Row::has_failed);
        table::print_list(name, &rows);
    }
    Ok(passed)
}

fn run_peer(shop: &Shop, ours: &install::Ours, peer: &Peer) -> Vec<Row> {
    eprintln!("interop: {}: installing", peer.name);
    let cases = (peer.cases)();
    let installed = match (peer.install)(shop) {
        Ok(installed) => installed,
        Err(reason) => {
            eprintln!("interop: {} is not run: {reason}", peer.name);
            return cases
                .iter()
                .map(|case| case.row(Outcome::NotRun(reason.clone())))
                .collect();
        }
    };
    let mut rows = Vec::new();
    for case in cases {
        let bench = cases::Bench::new(shop, ours, &installed, peer.name, &case);
        let outcome = case.perform(bench);
        eprintln!("interop: {}: {}: {outcome}", peer.name, case.title());
        rows.push(case.row(outcome));
    }
    rows
}

/// Whether no case failed, and none that must run did not.
fn is_fine(peer: &Peer, rows: &[Row], insists: bool) -> bool {
    let is_missing = |row: &Row| matches!(row.outcome, Outcome::NotRun(_));
    if insists && peer.is_required && rows.iter().any(is_missing) {
        eprintln!("interop: {} was not run, and {REQUIRE} is set", peer.name);
        return false;
    }
    !rows.iter().any(Row::has_failed)
}

fn unknown(name: &str) -> String {
    let names = names();
    let similarity = |known: &&str| strsim::jaro_winkler(name, known);
    let nearest = names
        .iter()
        .copied()
        .filter(|known| similarity(known) > 0.6)
        .max_by(|a, b| similarity(a).total_cmp(&similarity(b)));
    let hint = nearest.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
    format!("no peer `{name}`{hint} There are: {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_peer_is_answered_with_the_nearest_name() {
        let error = run(Path::new("."), &["picoquik"]).expect_err("nobody is called that");
        assert!(error.contains("did you mean `picoquic`?"), "{error}");
        let error = run(Path::new("."), &["zzz"]).expect_err("nobody is called that");
        assert!(
            !error.contains("mean") && error.contains("ngtcp2"),
            "{error}"
        );
    }

    #[test]
    fn a_peer_that_is_not_run_fails_only_where_it_must_not_be_missing() {
        let row = |outcome| Row {
            feature: "GET".to_owned(),
            role: case::Role::OurClient,
            outcome,
        };
        let missing = [
            row(Outcome::Passed),
            row(Outcome::NotRun("no cmake".into())),
        ];
        assert!(!is_fine(&picoquic::PEER, &missing, true));
        assert!(!is_fine(&aioquic::PEER, &missing, true));
        assert!(is_fine(&picoquic::PEER, &missing, false));
        assert!(is_fine(&ngtcp2::PEER, &missing, true));
        let failed = [row(Outcome::Failed("no answer".into()))];
        assert!(!is_fine(&ngtcp2::PEER, &failed, false));
    }

    #[test]
    fn a_peer_has_each_case_once() {
        for peer in PEERS {
            let mut titles: Vec<String> = (peer.cases)().iter().map(Case::title).collect();
            let count = titles.len();
            titles.sort();
            titles.dedup();
            assert_eq!(titles.len(), count, "{}", peer.name);
        }
    }
}
