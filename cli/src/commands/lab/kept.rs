//! What a folder of results already holds, and whether more may be added to it.
//!
//! Runs that are there are not repeated. Their names do not say what they were measured on, so this
//! is compared with `machine.json` beside them.

use super::host::Real;
use crate::args::lab::Backend;
use crate::failure::{Failure, Outcome};
use anabranch_lab::plan::Plan;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The facts of an earlier campaign in a folder; `None` if there are none.
fn facts(folder: &Path) -> Option<Value> {
    let text = fs::read_to_string(folder.join("machine.json")).ok()?;
    serde_json::from_str(&text).ok()
}

/// The name of a backend in `machine.json` and in messages.
pub(super) fn name(backend: Backend) -> &'static str {
    match backend {
        Backend::Netns => "netns",
        Backend::Sim => "sim",
        Backend::Host => "host",
    }
}

/// Refuses to mix results of two backends, or of two networks, in one folder.
///
/// # Errors
/// The folder holds runs of another backend or network.
pub(super) fn check(folder: &Path, plan: &Plan, backend: Backend, real: Option<&Real>) -> Outcome {
    let has_parts =
        fs::read_dir(folder.join("parts")).is_ok_and(|mut parts| parts.next().is_some());
    let Some(before) = facts(folder).filter(|_| has_parts) else {
        return Ok(());
    };
    let refuse = |what: String| {
        let failure = Failure::usage(format!("{} holds results {what}", folder.display()));
        Err(failure.hint("choose another --out, or remove that folder if they are of no use"))
    };
    // Older folders say only whether there was a peer.
    let had_peer = before["peer"].is_object();
    let earlier = before["backend"]
        .as_str()
        .or_else(|| had_peer.then_some("host"));
    if let Some(earlier) = earlier.filter(|earlier| *earlier != name(backend)) {
        return refuse(format!(
            "of --backend {earlier}, not of --backend {}",
            name(backend)
        ));
    }
    let Some(real) = real else {
        return Ok(());
    };
    let paths = plan.runs.iter().flat_map(|run| &run.scenario.network.paths);
    let paths: BTreeSet<&str> = paths.map(|path| path.name.as_str()).collect();
    match other_network(&before["peer"], &real.facts(), &paths) {
        Some(what) => refuse(format!("measured over another network: {what}")),
        None => Ok(()),
    }
}

/// How the network differs from before, by the facts of both; `None` if it does not. A peer at
/// another address is the same peer if its key is the same.
fn other_network(before: &Value, now: &Value, paths: &BTreeSet<&str>) -> Option<String> {
    let Some(key) = before["key"].as_str() else {
        return Some("they name no peer".to_owned());
    };
    let ours = now["key"].as_str().unwrap_or_default();
    if key != ours {
        return Some(format!("the peer's key was {key}, now {ours}"));
    }
    let leads = |facts: &Value, path: &str| {
        let roads = facts["paths"].as_array()?;
        let road = roads.iter().find(|road| road["path"] == path)?;
        let of = |end: &str| road[end].as_str().unwrap_or("?").to_owned();
        let (interface, local, remote) = (of("interface"), of("local"), of("remote"));
        Some(format!("from {local} ({interface}) to {remote}"))
    };
    paths.iter().find_map(|path| {
        let now = leads(now, path)?;
        match leads(before, path) {
            Some(earlier) if earlier == now => None,
            Some(earlier) => Some(format!("path `{path}` led {earlier}, now {now}")),
            None => Some(format!("path `{path}` was not among its paths")),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_lab::plan::Changes;
    use anabranch_lab::scenario::{Document, TEMPLATE};
    use serde_json::json;

    fn network(key: &str, lte: &str) -> Value {
        json!({
            "address": "192.0.2.9:4433",
            "key": key,
            "paths": [
                { "path": "dsl", "interface": "eth0", "local": "10.0.0.1", "remote": "192.0.2.9" },
                { "path": "lte", "interface": "wwan0", "local": "10.0.1.1", "remote": lte },
            ],
        })
    }

    #[test]
    fn another_key_or_another_way_of_a_path_is_another_network() {
        let both = BTreeSet::from(["dsl", "lte"]);
        let before = network("k1", "192.0.2.9");
        let mut moved = before.clone();
        moved["address"] = "198.51.100.1:4433".into();
        assert_eq!(other_network(&before, &moved, &both), None);
        let key = other_network(&before, &network("k2", "192.0.2.9"), &both).unwrap();
        assert!(key.contains("was k1, now k2"), "{key}");
        let other = network("k1", "192.0.2.10");
        let road = other_network(&before, &other, &both).unwrap();
        assert!(
            road.contains("path `lte`") && road.contains("now from 10.0.1.1 (wwan0) to 192.0.2.10"),
            "{road}"
        );
        let one = BTreeSet::from(["dsl"]);
        assert_eq!(other_network(&before, &other, &one), None, "not its path");
        assert!(other_network(&Value::Null, &before, &one).is_some());
    }

    #[test]
    fn results_of_another_backend_are_refused_once_there_are_any() {
        let document = Document::parse("t", TEMPLATE).unwrap();
        let plan = Plan::make(&document, &Changes::default()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        let facts = json!({ "backend": "netns" }).to_string();
        fs::write(at.join("machine.json"), facts).unwrap();
        fs::create_dir(at.join("parts")).unwrap();
        assert!(check(at, &plan, Backend::Sim, None).is_ok());
        fs::write(at.join("parts/one.json"), "{}").unwrap();
        assert!(check(at, &plan, Backend::Netns, None).is_ok());
        let refused = check(at, &plan, Backend::Sim, None).unwrap_err();
        assert!(matches!(refused, Failure::Usage(_)), "exit code 2");
        let told = refused.report().unwrap();
        assert!(
            told.contains("--backend netns") && told.contains("--out"),
            "{told}"
        );
        let earlier = json!({ "peer": network("k1", "192.0.2.9") }).to_string();
        fs::write(at.join("machine.json"), earlier).unwrap();
        assert!(check(at, &plan, Backend::Netns, None).is_err());
    }
}
