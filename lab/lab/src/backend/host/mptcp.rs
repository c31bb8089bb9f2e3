//! Whether the kernel's path manager is set up for the paths of a run. It is queried, never
//! changed.

use super::Road;
use crate::backend::refusal::Refusal;
use std::net::IpAddr;
use std::process::Command;

/// What the path manager of a host is set up for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Setup {
    /// Addresses from which it opens subflows.
    subflows: Vec<IpAddr>,
    /// The most subflows of a connection, not counting the first.
    limit: usize,
}

/// Checks that multipath TCP would open one subflow for each path.
///
/// # Errors
/// Unsupported, with the commands that would change that.
pub(super) fn check(roads: &[&Road]) -> Result<(), Refusal> {
    let [_, further @ ..] = roads else {
        return Ok(());
    };
    if further.is_empty() {
        return Ok(());
    }
    let ask = |words: &[&str]| {
        let output = Command::new("ip").arg("mptcp").args(words).output();
        let output = output.map_err(|error| format!("cannot run `ip`: {error}"))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let why = String::from_utf8_lossy(&output.stderr);
        Err(format!("`ip mptcp {}`: {}", words.join(" "), why.trim()))
    };
    let setup = ask(&["endpoint", "show"])
        .and_then(|endpoints| Ok(Setup::read(&endpoints, &ask(&["limits", "show"])?)));
    let setup = setup.map_err(|why| {
        Refusal::Unsupported(format!("kernel MPTCP: cannot tell how it is set up: {why}"))
    })?;
    match setup.missing(roads) {
        None => Ok(()),
        Some(what) => Err(Refusal::Unsupported(what)),
    }
}

impl Setup {
    /// Parses the output of `ip mptcp endpoint show` and `ip mptcp limits show`.
    fn read(endpoints: &str, limits: &str) -> Self {
        let subflow = |line: &str| {
            let mut words = line.split_whitespace();
            let address = words.next()?.parse().ok()?;
            words.any(|word| word == "subflow").then_some(address)
        };
        let mut words = limits
            .split_whitespace()
            .skip_while(|word| *word != "subflows");
        let limit = words.nth(1).and_then(|count| count.parse().ok());
        Self {
            subflows: endpoints.lines().filter_map(subflow).collect(),
            limit: limit.unwrap_or(0),
        }
    }

    /// The commands that would set up what these paths still need; `None` if nothing is missing.
    fn missing(&self, roads: &[&Road]) -> Option<String> {
        let further = &roads[1..];
        for (index, road) in roads.iter().enumerate() {
            if roads[..index].iter().any(|other| other.local == road.local) {
                let what = format!(
                    "kernel MPTCP: path `{}` leaves from an address of another path: it opens one \
                     subflow from each address",
                    road.path
                );
                return Some(what);
            }
            if road.remote != roads[0].remote {
                let what = format!(
                    "kernel MPTCP: path `{}` leads to {}, and path `{}` to {}: it opens every \
                     subflow to the first one's address; leave `={}` away, or give all paths one",
                    road.path, road.remote, roads[0].path, roads[0].remote, road.remote
                );
                return Some(what);
            }
        }
        let mut commands = Vec::new();
        if self.limit < further.len() {
            commands.push(format!("ip mptcp limits set subflows {}", further.len()));
        }
        for Road {
            local, interface, ..
        } in further
        {
            if !self.subflows.contains(local) {
                commands.push(format!(
                    "ip mptcp endpoint add {local} dev {interface} subflow"
                ));
            }
        }
        (!commands.is_empty()).then(|| {
            format!(
                "kernel MPTCP is not set up for these paths, and nothing is reconfigured here: {}",
                commands.join("; ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn road(path: &str, local: [u8; 4]) -> Road {
        Road {
            path: path.to_owned(),
            interface: format!("if-{path}"),
            local: local.into(),
            remote: [192, 0, 2, 9].into(),
        }
    }

    #[test]
    fn what_is_missing_is_told_as_commands() {
        let roads = [road("a", [10, 0, 0, 1]), road("b", [10, 0, 1, 1])];
        let roads: Vec<&Road> = roads.iter().collect();
        let nothing = Setup::read("", "add_addr_accepted 0 subflows 0");
        let what = nothing.missing(&roads).unwrap();
        for command in [
            "ip mptcp limits set subflows 1",
            "ip mptcp endpoint add 10.0.1.1 dev if-b subflow",
        ] {
            assert!(what.contains(command), "{what}");
        }
        let all = Setup::read(
            "10.0.1.1 id 1 subflow dev eth1\n10.0.2.1 id 2 signal\n",
            "add_addr_accepted 0 subflows 2\n",
        );
        assert_eq!(all.subflows, [IpAddr::from([10, 0, 1, 1])]);
        assert_eq!(all.missing(&roads), None);
        let announced = Setup::read("10.0.1.1 id 1 signal\n", "subflows 2");
        assert!(announced.missing(&roads).is_some());
    }

    #[test]
    fn paths_from_one_address_cannot_be_told_apart() {
        let roads = [road("a", [10, 0, 0, 1]), road("b", [10, 0, 0, 1])];
        let roads: Vec<&Road> = roads.iter().collect();
        let what = Setup::default().missing(&roads).unwrap();
        assert!(what.contains("path `b`"), "{what}");
    }

    #[test]
    fn paths_to_different_addresses_are_not_claimed() {
        let there = Road {
            remote: [192, 0, 2, 10].into(),
            ..road("b", [10, 0, 1, 1])
        };
        let what = Setup::default().missing(&[&road("a", [10, 0, 0, 1]), &there]);
        let what = what.unwrap();
        assert!(what.contains("`b` leads to 192.0.2.10"), "{what}");
    }

    #[test]
    fn one_path_needs_no_set_up() {
        assert!(check(&[&road("a", [10, 0, 0, 1])]).is_ok());
    }
}
