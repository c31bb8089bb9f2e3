//! Transport profiles: the engine set up like the systems of the papers.
//!
//! A profile gives a [`TransportConfig`]; what a scenario sets beyond it is applied by whoever
//! reads the scenario. The comment on each profile says which features of the original system the
//! engine has no setting for.

#[cfg(test)]
mod tests;

use anabranch_proto::config::{
    CreditReturn, Mechanisms, Rescue, RetransmissionPolicy, TransportConfig,
};
use anabranch_proto::congestion::ControllerFactory;
use anabranch_proto::spec::{Spec, SpecError};
use anabranch_proto::streams::CreditUpdate;
use anabranch_schedulers::{Names, RECOMMENDED};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A chunk of the third paper's simulations: 1468 bytes with its header of 16, 20 for IP and 12 for
/// SCTP make a packet of 1500 bytes, 1472 of which are UDP payload here.
pub const CMT_DATAGRAM: u16 = 1472;

/// Bytes of a chunk with its header. The third paper's receive buffer is counted in these: 64 KiB
/// hold 44 of them.
const CMT_CHUNK: u64 = 1468;

/// Stream data that stands for a chunk. A packet of [`CMT_DATAGRAM`] bytes has room for this much
/// even if acknowledgements travel with it, so that a chunk is always one packet.
const CMT_CHUNK_DATA: u64 = 1420;

/// The parameter that every controller has for it.
const WINDOW: &str = "initial-window";

/// The largest possible stream window (RFC 9000, section 16), which no announcement can raise.
const NO_LIMIT: u64 = (1 << 62) - 1;

/// The system that the engine is configured to resemble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Profile {
    /// The engine with its own defaults.
    Quic,
    /// Concurrent multipath transfer over SCTP, as in the third paper.
    CmtSctp,
    /// Multipath TCP of the Linux kernel, as in the second and the fifth paper.
    Mptcp,
    /// Striping over plain connections, as in the first paper: one path per connection.
    Stripe,
}

impl Profile {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Quic, Self::CmtSctp, Self::Mptcp, Self::Stripe];

    /// The name users type.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quic => "quic",
            Self::CmtSctp => "cmt-sctp",
            Self::Mptcp => "mptcp",
            Self::Stripe => "stripe",
        }
    }

    /// The engine's settings for it.
    ///
    /// # Errors
    /// If `names` lack a scheduler or controller of the profile.
    pub fn transport(self, names: &Names) -> Result<TransportConfig, SpecError> {
        match self {
            Self::Quic => Ok(anabranch_schedulers::transport()),
            Self::CmtSctp => cmt_sctp(names),
            Self::Mptcp => mptcp(names),
            Self::Stripe => stripe(names),
        }
    }

    /// The congestion control of this name and parameters with this many packets in the initial
    /// window; the profile's own for what is `None`. Parameters that name a window come first, and
    /// the profile's own window applies to other controls too.
    ///
    /// # Errors
    /// If `names` lack a controller of that name, or its parameters are invalid.
    pub fn congestion(
        self,
        names: &Names,
        control: Option<&Spec>,
        initial_window: Option<u64>,
    ) -> Result<ControllerFactory, SpecError> {
        let (own, window) = match self {
            Self::Quic | Self::Stripe => ("cubic", None),
            Self::CmtSctp => ("new-reno", Some(2)),
            Self::Mptcp => ("lia:coupling=all", None),
        };
        let controller = match self {
            Self::Quic => controller,
            // These behave like systems' kernels.
            Self::CmtSctp | Self::Mptcp | Self::Stripe => hosts_controller,
        };
        controller(names, control, own, initial_window.or(window))
    }

    /// Gives the receiver this many bytes of buffer, as the system counts them, for all streams and
    /// paths. The window then never grows, like a socket's buffer.
    pub fn fix_receive_buffer(self, config: &mut TransportConfig, bytes: u64) {
        let bytes = match self {
            Self::CmtSctp => whole_chunks(bytes),
            _ => bytes,
        };
        fix_window(config, bytes);
    }
}

/// The congestion controller of this name and parameters, or the usual one, with this many packets
/// in the initial window unless the parameters set it.
///
/// # Errors
/// What is wrong with the name or its parameters, with the closest known name.
pub fn controller(
    names: &Names,
    control: Option<&Spec>,
    usual: &str,
    initial_window: Option<u64>,
) -> Result<ControllerFactory, SpecError> {
    let mut spec = control.cloned().map_or_else(|| usual.parse(), Ok)?;
    if let Some(packets) = initial_window {
        spec.params.give_unless_given(WINDOW, packets);
    }
    names.controllers.factory(&spec)
}

/// As [`controller`], for systems' kernels: their CUBIC takes every loss for congestion.
///
/// # Errors
/// What is wrong with the name or its parameters, with the closest known name.
pub fn hosts_controller(
    names: &Names,
    control: Option<&Spec>,
    usual: &str,
    initial_window: Option<u64>,
) -> Result<ControllerFactory, SpecError> {
    let mut spec = control.cloned().map_or_else(|| usual.parse(), Ok)?;
    if spec.name == "cubic" {
        spec.params.give_unless_given("random-loss", 0);
    }
    controller(names, Some(&spec), usual, initial_window)
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Profile {
    type Err = SpecError;

    fn from_str(name: &str) -> Result<Self, SpecError> {
        let found = Self::ALL.into_iter().find(|profile| profile.name() == name);
        let known = Self::ALL.into_iter().map(Self::name);
        found.ok_or_else(|| SpecError::unknown_name("profile", name, known))
    }
}

/// One window for all streams and paths that never grows. Streams have no limits of their own: a
/// sender that reaches a stream limit says so in a packet, which may be lost like any other, even
/// if it is the congestion window that holds data back.
fn fix_window(config: &mut TransportConfig, bytes: u64) {
    let streams = &mut config.streams;
    streams.receive_window = bytes;
    streams.max_receive_window = bytes;
    streams.stream_receive_window = NO_LIMIT;
    streams.max_stream_receive_window = NO_LIMIT;
}

/// The stream data of the chunks that fit into a buffer of CMT-SCTP. Its sender never cuts a chunk
/// to fill the rest of the buffer. A QUIC sender would, and a remainder of a few bytes would take a
/// packet and a turn of its own ever after, since credit returns in the pieces in which it was
/// used.
fn whole_chunks(bytes: u64) -> u64 {
    (bytes / CMT_CHUNK).max(1) * CMT_CHUNK_DATA
}

/// Makes the UDP payload of all packets this many bytes from the start, without a search for more.
pub fn fix_datagram_size(config: &mut TransportConfig, size: u16) {
    config.initial_mtu = size;
    config.mtu.min = size;
    config.mtu.max = size;
}

/// CMT-SCTP: packets of 1500 bytes on the wire, one receive buffer of 64 KiB for all paths, one
/// acknowledgement per packet on the path of that packet, loss-based congestion control without
/// coupling or pacing, and chunks in turn on any path with room. Packet number spaces per path
/// already do what CUC, SFR and DAC are for (RFC 10069), and every QUIC acknowledgement works like
/// NR-SACK. The paper names no retransmission policy; ns-2.35, which it simulates with, takes the
/// path with the largest window unless told otherwise (`eCmtRtxPolicy_ 4` in
/// `tcl/lib/ns-default.tcl`).
///
/// Three settings of that simulator have no counterpart here: a minimum of one second for timers
/// (`minRto_`), an initial slow-start threshold of 64 KiB (`initialSsthresh_`), and the limit of
/// one fast retransmission per chunk, after which only the timer helps.
fn cmt_sctp(names: &Names) -> Result<TransportConfig, SpecError> {
    let mut config = TransportConfig {
        ack_threshold: 1,
        ecn: false,
        initial_rtt: Duration::from_millis(100),
        scheduler: names.scheduler("round-robin")?,
        congestion: Profile::CmtSctp.congestion(names, None, None)?,
        mechanisms: Mechanisms {
            retransmission: RetransmissionPolicy::LargestWindow,
            credit_return: CreditReturn::SamePath,
            unpaced: true,
            ..Mechanisms::default()
        },
        ..anabranch_schedulers::transport()
    };
    fix_datagram_size(&mut config, CMT_DATAGRAM);
    config.chunk = Some(CMT_CHUNK_DATA);
    Profile::CmtSctp.fix_receive_buffer(&mut config, 64 * 1024);
    // The receiver reports its free buffer in every acknowledgement; credit that comes in steps
    // would make small buffers even smaller.
    config.streams.credit_update = CreditUpdate::EveryRead;
    Ok(config)
}

/// Multipath TCP: lowest RTT first, window increase coupled over all paths, every second packet
/// acknowledged after 40 ms at the latest, windows that grow to a few megabytes. As in the kernel,
/// data that blocks the receive window is sent again on a faster path and the slow path is
/// penalised; and without the `fq` queue only BBR is paced (`net/ipv4/tcp_output.c` up to 4.19).
fn mptcp(names: &Names) -> Result<TransportConfig, SpecError> {
    let mut config = TransportConfig {
        max_ack_delay: Duration::from_millis(40),
        initial_rtt: Duration::from_secs(1),
        scheduler: names.scheduler(RECOMMENDED)?,
        congestion: Profile::Mptcp.congestion(names, None, None)?,
        mechanisms: Mechanisms {
            rescue: Rescue::CopyAndPenalise,
            unpaced: true,
            ..Mechanisms::default()
        },
        ..anabranch_schedulers::transport()
    };
    // TCP with timestamps carries 1448 bytes of payload in a packet of 1500 bytes. A datagram of
    // 1472 bytes leaves about as much for stream data, a few bytes less for headers and tag.
    fix_datagram_size(&mut config, CMT_DATAGRAM);
    config.streams.receive_window = 128 * 1024;
    config.streams.max_receive_window = 6 << 20;
    config.streams.stream_receive_window = NO_LIMIT;
    config.streams.max_stream_receive_window = NO_LIMIT;
    config.streams.send_buffer = 4 << 20;
    Ok(config)
}

/// One connection of a stripe: a single path that behaves like TCP, with the kernel's usual buffers
/// (128 KiB to 6 MiB and 4 MiB), of which the application uses little. It is paced, unlike the
/// kernel's TCP: in reality a modem's own buffer absorbs bursts, but the scenarios have one short
/// queue for both modems instead. Without pacing, losses in that queue would keep the transfer
/// below the published plateaus.
fn stripe(names: &Names) -> Result<TransportConfig, SpecError> {
    let mut config = mptcp(names)?;
    config.congestion = Profile::Stripe.congestion(names, None, None)?;
    config.max_paths = 0;
    config.mechanisms.unpaced = false;
    config.streams.send_buffer = 128 * 1024;
    Ok(config)
}
