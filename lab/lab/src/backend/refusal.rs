//! Why a run in real kernels has no outcome of its own.

use crate::hosts::HostError;
use crate::scenario::{Flow, FlowKind, Kind, Scenario, Transport, Way};
use anabranch_testbed::emulate::Error as LinkError;
use std::fmt;

/// The kernel's TCP acknowledges every second packet by itself.
const KERNEL_ACK_EVERY: u64 = 2;

/// Why something could not be built or carried out.
#[derive(Debug)]
pub(super) enum Refusal {
    /// Nothing here can do what the scenario asks for.
    Unsupported(String),
    /// Something went wrong.
    Failed(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Unsupported(what) | Self::Failed(what)) = self;
        f.write_str(what)
    }
}

impl From<anabranch_testbed::Error> for Refusal {
    fn from(error: anabranch_testbed::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<LinkError> for Refusal {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Unsupported { .. } => Self::Unsupported(error.to_string()),
            other => Self::Failed(other.to_string()),
        }
    }
}

impl From<HostError> for Refusal {
    fn from(error: HostError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl Refusal {
    /// What an agent's answer [`Answer::Failed`](crate::hosts::Answer::Failed) amounts to. It
    /// prefixes `unsupported` if nothing went wrong.
    pub(super) fn of_agent(host: &str, why: &str) -> Self {
        match why.strip_prefix("unsupported: ") {
            Some(what) => Self::Unsupported(what.to_owned()),
            None => Self::Failed(format!("{host}: {why}")),
        }
    }
}

/// Why a run has no outcome of its own.
#[derive(Debug)]
pub(super) enum Broken {
    /// It was refused or went wrong.
    Refused(Refusal),
    /// The user aborted it.
    Off,
}

impl From<Refusal> for Broken {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<HostError> for Broken {
    fn from(error: HostError) -> Self {
        Self::Refused(error.into())
    }
}

/// The flows that a tunnel or a proxy does not carry, in the simulator or in kernels: it takes
/// connections in at its near end alone. `None` if there are none.
pub(super) fn from_behind_the_far_end(scenario: &Scenario) -> Option<&'static str> {
    let asks =
        |flow: &Flow| matches!(flow.kind, FlowKind::Requests { .. }) && flow.way == Way::Forward;
    let tunnel = matches!(scenario.transport.kind, Kind::Tunnel | Kind::MptcpProxy);
    (tunnel && scenario.flows.iter().any(asks)).then_some(
        "requests of the server through a tunnel, which takes connections in at the client alone: \
         give the flow direction = \"backward\"",
    )
}

/// The settings of a transport that only the simulator carries out; `None` if there are none. A
/// bond takes `packet-size` as the MTU of its device.
pub(super) fn only_simulated(transport: &Transport) -> Option<String> {
    let settings = &transport.settings;
    let tcp = matches!(transport.kind, Kind::Tcp | Kind::Bonding);
    let acks = settings.ack_every;
    let keys = [
        (
            "packet-size",
            transport.kind == Kind::Tcp && settings.packet_size.is_some(),
        ),
        ("initial-window", tcp && settings.initial_window.is_some()),
        (
            "ack-every",
            tcp && acks.is_some_and(|packets| packets != KERNEL_ACK_EVERY),
        ),
        ("ack-delay", tcp && settings.ack_delay.is_some()),
        (
            "protection = false",
            transport.kind == Kind::Anabranch && settings.protection == Some(false),
        ),
    ];
    let asked = keys.iter().filter(|(_, asked)| *asked);
    let names: Vec<String> = asked.map(|(key, _)| format!("`{key}`")).collect();
    let what = match transport.kind {
        _ if names.is_empty() => return None,
        Kind::Anabranch => "packets are always protected",
        _ => "the kernel's TCP goes its own way",
    };
    Some(format!(
        "{}: {what}, the simulator does as told: leave it out, or --backend sim",
        names.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Changes, Plan};
    use crate::scenario::Document;

    fn what_is_refused(transport: &str) -> Option<String> {
        let text = format!(
            "format = 1\nname = \"r\"\nstop = \"9s\"\nsingles = false\n\
             [[path]]\nforward = {{ rate = \"1Mbit/s\" }}\n[transport]\n{transport}\n\
             [[flow]]\nkind = \"bulk\"\nbytes = \"1MB\"\n"
        );
        let document = Document::parse("r.toml", &text).unwrap();
        let plan = Plan::make(&document, &Changes::default()).unwrap();
        only_simulated(&plan.runs[0].scenario.transport)
    }

    #[test]
    fn settings_that_a_kernel_would_ignore_are_refused_by_name() {
        for (kind, setting, key) in [
            ("tcp", "packet-size = \"1300B\"", "packet-size"),
            ("tcp", "initial-window = 4", "initial-window"),
            ("bonding", "initial-window = 4", "initial-window"),
            ("tcp", "ack-every = 1", "ack-every"),
            ("bonding", "ack-delay = \"200ms\"", "ack-delay"),
            ("anabranch", "protection = false", "protection"),
        ] {
            let refused = what_is_refused(&format!("kind = \"{kind}\"\n{setting}"));
            let refused = refused.unwrap_or_else(|| panic!("{kind} takes {setting}"));
            assert!(refused.contains(&format!("`{key}")), "{refused}");
        }
        let both = what_is_refused("kind = \"tcp\"\nack-every = 1\ninitial-window = 4").unwrap();
        assert!(
            both.starts_with("`initial-window`, `ack-every`: "),
            "{both}"
        );
    }

    #[test]
    fn settings_that_are_carried_out_or_are_the_kernels_own_are_not_refused() {
        for taken in [
            "kind = \"tcp\"\nack-every = 2\nreceive-buffer = \"64KiB\"",
            "kind = \"bonding\"\npacket-size = \"1300B\"",
            "initial-window = 4\nack-every = 4\nack-delay = \"5ms\"\npacket-size = \"1300B\"",
            "protection = true",
        ] {
            assert_eq!(what_is_refused(taken), None, "{taken}");
        }
    }
}
