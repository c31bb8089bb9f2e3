//! What the two products are made of: the command with the laboratory, and the one without.
//!
//! Without it nothing of the folder `lab/` is built, and the engine has no way to send packets
//! without protection. With it the engine has one, and only simulated hosts may use it: whoever
//! opens a socket does not even name it, and who may name it opens none.

use crate::Finding;
use crate::source::Source;
use std::path::Path;

/// The feature of the engine, and the method that it makes exist.
const WORDS: [&str; 2] = ["null-protection", "leave_unprotected"];

/// Where they may stand: the engine, the simulator, the one backend that simulates, and this rule.
const ALLOWED: [&str; 6] = [
    "crates/proto/",
    "lab/sim/",
    "lab/lab/Cargo.toml",
    "lab/lab/src/backend/sim/",
    "dev/xtask/src/tidy/products.rs",
    // Builds the simulator's bench.
    "dev/xtask/src/pgo.rs",
];

/// Where hosts are simulated.
const SIMULATED: [&str; 2] = ["lab/sim/src/", "lab/lab/src/backend/sim/"];

/// What opens sockets.
const SOCKETS: [&str; 10] = [
    "anabranch_net",
    "UdpSocket",
    "UnixDatagram",
    "TcpStream",
    "TcpListener",
    "tokio::net",
    "socket2",
    "sys::socket",
    "rustix::net",
    "libc::socket",
];

/// Finds crates of the laboratory in the small product, and sockets near packets in the clear.
pub(super) fn check(root: &Path, sources: &[Source]) -> Result<Vec<Finding>, String> {
    let found = sources
        .iter()
        .flat_map(|source| [mention(source), socket(source)]);
    let mut findings: Vec<Finding> = found.flatten().collect();
    let tree = tree(root)?;
    let lab = format!("({}/lab/", root.display());
    findings.extend(tree.lines().filter_map(|line| foreign(line, &lab)));
    Ok(findings)
}

/// The first mention of packets in the clear in a file that has no business with them.
fn mention(source: &Source) -> Option<Finding> {
    let is_code = ["rs", "toml"].contains(&source.extension());
    let is_allowed = ALLOWED.iter().any(|place| source.path.starts_with(place));
    if !is_code || is_allowed {
        return None;
    }
    let message = "only the simulator may leave packets unprotected";
    first_of(&WORDS, source, message)
}

/// The first mention of a socket where hosts are simulated.
fn socket(source: &Source) -> Option<Finding> {
    let is_simulated = SIMULATED.iter().any(|place| source.path.starts_with(place));
    if !is_simulated || source.extension() != "rs" {
        return None;
    }
    first_of(&SOCKETS, source, "a simulated host has no sockets")
}

fn first_of(words: &[&str], source: &Source, why: &str) -> Option<Finding> {
    let mut lines = source.text.lines().enumerate();
    let (at, word) = lines.find_map(|(at, line)| {
        let word = words.iter().find(|word| line.contains(**word))?;
        Some((at, word))
    })?;
    Some(Finding {
        file: source.path.clone(),
        line: at + 1,
        message: format!("`{word}`: {why}"),
    })
}

/// The packages of the small product with their features, a line each:
/// `NAME VERSION (FOLDER)|FEATURES`.
fn tree(root: &Path) -> Result<String, String> {
    let words = "tree --locked --package anabranch-cli --no-default-features --edges normal,build \
                 --prefix none --format {p}|{f}";
    let mut command = crate::cargo();
    let output = command.current_dir(root).args(words.split_whitespace());
    let output = output
        .output()
        .map_err(|error| format!("cannot run cargo tree: {error}"))?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cargo tree failed: {}", reason.trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What a line of the tree has that the small product must not have; `lab` is how the folder of a
/// crate of the laboratory begins.
fn foreign(line: &str, lab: &str) -> Option<Finding> {
    let (package, features) = line.split_once('|').unwrap_or((line, ""));
    let name = package.split(' ').next().unwrap_or_default();
    let mut features = features.trim_end_matches(" (*)").split(',');
    let message = if package.contains(lab) {
        format!("without the feature `lab` it is built of `{name}` all the same")
    } else if features.any(|feature| feature == WORDS[0]) {
        format!(
            "without the feature `lab` it has `{}` of `{name}`",
            WORDS[0]
        )
    } else {
        return None;
    };
    Some(Finding {
        file: "cli/Cargo.toml".to_owned(),
        line: 0,
        message,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Option<String> {
        let source = Source {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        mention(&source).map(|finding| finding.to_string())
    }

    #[test]
    fn whoever_opens_sockets_does_not_name_packets_in_the_clear() {
        let text = "fn bind() {\n    engine.leave_unprotected();\n}\n";
        for path in [
            "crates/net/src/driver.rs",
            "cli/src/session.rs",
            "lab/agent/src/run.rs",
        ] {
            let found = found(path, text).expect("a finding");
            assert!(found.starts_with(&format!("{path}:2: ")), "{found}");
        }
        let feature = "anabranch-proto = { workspace = true, features = [\"null-protection\"] }\n";
        assert!(found("crates/net/Cargo.toml", feature).is_some());
        assert_eq!(found("lab/sim/src/quic/mod.rs", text), None);
        assert_eq!(found("docs/security.md", text), None);
    }

    #[test]
    fn simulated_hosts_have_no_sockets() {
        let found = |path: &str, text: &str| {
            let source = Source {
                path: path.to_owned(),
                text: text.to_owned(),
            };
            socket(&source).map(|finding| finding.to_string())
        };
        let text = "use anabranch_net::Endpoint;\n";
        let path = "lab/lab/src/backend/sim/network.rs";
        let finding = found(path, text).expect("a finding");
        assert!(finding.starts_with(&format!("{path}:1: ")), "{finding}");
        assert!(found("lab/sim/src/quic/mod.rs", "std::net::UdpSocket::bind").is_some());
        assert_eq!(
            found("lab/sim/src/quic/mod.rs", "std::net::SocketAddr"),
            None
        );
        assert_eq!(found("crates/net/src/lib.rs", text), None);
    }

    #[test]
    fn nothing_of_the_laboratory_is_in_the_small_product() {
        let found = |line: &str| foreign(line, "(/house/lab/").map(|finding| finding.message);
        assert_eq!(found("anabranch-proto v0.1.0 (/house/crates/proto)|"), None);
        assert_eq!(found("tokio v1.54.1|default,net (*)"), None);
        let sim = found("anabranch-sim v0.1.0 (/house/lab/sim)| (*)").expect("a finding");
        assert!(sim.contains("built of `anabranch-sim`"), "{sim}");
        let clear = found("anabranch-proto v0.1.0 (/house/crates/proto)|null-protection (*)");
        assert!(
            clear
                .expect("a finding")
                .contains("`null-protection` of `anabranch-proto`")
        );
    }
}
