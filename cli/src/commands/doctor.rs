//! `anabranch doctor`: what this machine supports, what is missing and how to get it.

mod checks;
#[cfg(feature = "lab")]
mod lab;

use crate::args::Listing;
use crate::failure::{Failure, Outcome};
use crate::output;
use crate::output::table::Table;
use anabranch_net::interfaces;
use serde::Serialize;

/// One thing that was checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Check {
    /// Its name.
    name: &'static str,
    /// Whether it is there.
    ok: bool,
    /// Whether nothing works without it.
    essential: bool,
    /// What was found.
    found: String,
    /// How to get it, if it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

impl Check {
    /// A check that is not essential; `remedy` is kept only if it failed.
    fn new(
        name: &'static str,
        ok: bool,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let remedy = (!ok).then(|| remedy.into());
        Self {
            name,
            ok,
            essential: false,
            found: found.into(),
            remedy,
        }
    }

    fn essential(mut self) -> Self {
        self.essential = true;
        self
    }
}

/// Runs the command. Fails if something essential is missing.
pub(crate) async fn run(args: &Listing) -> Outcome {
    let checks = all().await;
    if args.json {
        output::json(&checks)?;
    } else {
        output::data(table(&checks))?;
    }
    let broken = checks.iter().filter(|check| check.essential && !check.ok);
    let broken: Vec<&str> = broken.map(|check| check.name).collect();
    if broken.is_empty() {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "nothing works without: {}",
        broken.join(", ")
    )))
}

async fn all() -> Vec<Check> {
    let mut checks = match interfaces::list().await {
        Ok(interfaces) => checks::interfaces(&interfaces),
        Err(error) => {
            let remedy = "netlink is needed to find interfaces: is this Linux, without a sandbox?";
            vec![Check::new("interfaces", false, error.to_string(), remedy)]
        }
    };
    checks.extend(checks::sockets());
    checks.extend(checks::limits());
    checks.extend(checks::kernel());
    checks.push(checks::capture());
    #[cfg(feature = "lab")]
    checks.extend(lab::kernel().into_iter().chain(lab::parts()));
    checks
}

fn table(checks: &[Check]) -> Table {
    let mut table = Table::new(&["", "what", "found"]);
    for check in checks {
        let mark = if check.ok { "ok" } else { "missing" };
        table.row([mark.into(), check.name.into(), check.found.clone()]);
        if let Some(remedy) = &check.remedy {
            table.row([String::new(), String::new(), format!("-> {remedy}")]);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn this_machine_can_be_examined() {
        let checks = all().await;
        for name in [
            "UDP sockets",
            "socket buffers",
            "open files",
            "TUN devices",
            "tunnel: capture",
        ] {
            assert!(checks.iter().any(|check| check.name == name), "{name}");
        }
        for name in ["kernel MPTCP", "lab: namespaces", "lab: emulated links"] {
            let is_checked = checks.iter().any(|check| check.name == name);
            assert_eq!(is_checked, cfg!(feature = "lab"), "{name}");
        }
        for check in &checks {
            assert_eq!(check.ok, check.remedy.is_none(), "{check:?}");
        }
    }

    #[test]
    fn a_remedy_follows_what_is_missing() {
        let checks = [
            Check::new("a", true, "yes", "-"),
            Check::new("b", false, "no", "get it"),
        ];
        let text = table(&checks).to_string();
        assert_eq!(text.lines().count(), 4);
        assert!(text.ends_with("-> get it"));
    }
}
