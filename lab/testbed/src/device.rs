//! What the kernel knows of a network device: its state, and what it and its queues have counted.

use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::Error;
use crate::shell::run;

/// How long the kernel may take to notice a carrier.
pub(crate) const CARRIER: Duration = Duration::from_secs(60);

/// A locally administered address that depends only on the indices of link and end.
pub(crate) fn hardware_address(link: usize, end: usize) -> String {
    let [.., high, low] = link.to_be_bytes();
    format!("02:ab:00:{high:02x}:{low:02x}:{:02x}", end + 1)
}

/// Waits until the kernel has noticed that a device is up. Until then it silently drops what is
/// sent.
pub(crate) fn wait_until_up(namespace: &str, device: &str) -> Result<(), Error> {
    let started = Instant::now();
    let show = ["-n", namespace, "link", "show", "dev", device];
    while !run("ip", &show)?.contains(" state UP ") {
        if started.elapsed() > CARRIER {
            return Err(answer("ip", &show, format!("no carrier after {CARRIER:?}")));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// What a device has sent, Ethernet headers included.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(crate) struct Sent {
    pub(crate) bytes: u64,
    pub(crate) packets: u64,
}

/// What a device has sent.
pub(crate) fn sent(namespace: &str, device: &str) -> Result<Sent, Error> {
    #[derive(Deserialize)]
    struct Device {
        stats64: Stats,
    }
    #[derive(Deserialize)]
    struct Stats {
        tx: Sent,
    }
    let words = ["-n", namespace, "-s", "-j", "link", "show", "dev", device];
    let shown: Vec<Device> = ask("ip", &words)?;
    let first = shown.into_iter().next();
    first
        .map(|device| device.stats64.tx)
        .ok_or_else(|| answer("ip", &words, "it shows nothing".to_owned()))
}

/// A queueing discipline and what it has counted.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Queue {
    pub(crate) kind: String,
    pub(crate) dev: String,
    pub(crate) bytes: u64,
    pub(crate) packets: u64,
    pub(crate) drops: u64,
    /// Bytes waiting.
    pub(crate) backlog: u64,
}

/// The queues of a namespace; `which` narrows that down as `tc qdisc show` has it.
pub(crate) fn queues(namespace: &str, which: &[&str]) -> Result<Vec<Queue>, Error> {
    let mut words = vec!["-n", namespace, "-s", "-j", "qdisc", "show"];
    words.extend(which);
    ask("tc", &words)
}

fn ask<T: serde::de::DeserializeOwned>(program: &str, words: &[&str]) -> Result<T, Error> {
    let text = run(program, words)?;
    serde_json::from_str(&text).map_err(|e| answer(program, words, e.to_string()))
}

fn answer(program: &str, words: &[&str], reason: String) -> Error {
    Error::Answer {
        command: format!("{program} {}", words.join(" ")),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_addresses_differ_between_links_and_ends() {
        let ends = [(0, 0), (0, 1), (1, 0), (256, 0)];
        let all = ends.map(|(link, end)| hardware_address(link, end));
        for (at, one) in all.iter().enumerate() {
            assert!(!all[..at].contains(one));
        }
        assert_eq!(hardware_address(258, 1), "02:ab:00:01:02:02");
    }
}
