//! The TAP device at one end of a link.

use crate::Node;
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

use crate::emulate::{Error, LinkPlan};

/// Frames that the kernel holds for the emulator to fetch: some 40 ms at 1 Gbit/s. If there are
/// more, the kernel drops them, and the run is invalid.
const RING_FRAMES: u32 = 4096;

/// Creates the device. It is down, has no address, and vanishes when closed.
pub(crate) fn open(plan: &LinkPlan, end: usize) -> Result<SyncDevice, Error> {
    let (node, name) = (&plan.ends[end].node, &plan.ends[end].interface);
    let made = node.enter(|| {
        // Without offloads the kernel hands over packets as they would be on a wire: no larger than
        // the MTU, with checksums.
        let device = DeviceBuilder::new()
            .name(name)
            .layer(Layer::L2)
            .enable(false)
            .with(|builder| {
                builder.tx_queue_len(RING_FRAMES).offload(false);
            })
            .build_sync()?;
        device.set_nonblocking(true)?;
        Ok(device)
    })?;
    let device = made.map_err(|reason| Error::Tap {
        interface: name.clone(),
        node: node.name().to_owned(),
        reason,
    })?;
    // No batches of segments, which would leave the host all at once, and no queue but the
    // emulator's.
    node.ip(&[format!("link set dev {name} gso_max_segs 1")])?;
    node.tc(&[format!("qdisc replace dev {name} root noqueue")])?;
    Ok(device)
}

/// Frames that the kernel dropped at both ends because the emulator did not fetch them in time.
pub(crate) fn missed(plan: &LinkPlan) -> u64 {
    let ends = plan.ends.iter();
    ends.map(|end| dropped(&end.node, &end.interface)).sum()
}

/// Frames that the kernel dropped on sending; zero if the interface is gone.
fn dropped(node: &Node, interface: &str) -> u64 {
    let read = node.enter(|| std::fs::read_to_string("/proc/thread-self/net/dev"));
    let Ok(Ok(text)) = read else { return 0 };
    let counts = text.lines().find_map(|line| {
        let (name, counts) = line.split_once(':')?;
        (name.trim() == interface).then_some(counts)
    });
    // proc_pid_net(5): eight receive counters, then the bytes, packets, errors and drops of
    // sending.
    let dropped = counts.and_then(|counts| counts.split_whitespace().nth(11));
    dropped
        .and_then(|count| count.parse().ok())
        .unwrap_or_default()
}
