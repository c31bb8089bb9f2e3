//! The flows of a run over the kernel's TCP: a connection for each, its units one after another.

use crate::engine::AFTERGLOW;
use crate::ledger::{Ledger, due};
use crate::machine::clock_ns;
use crate::payload::{ENDLESS, HEAD, Head, PIECE, datagram, open_datagram, piece};
use anabranch_lab::hosts::JobFlow;
use anabranch_lab::scenario::FlowKind;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// A receiver's answer once it has a whole unit.
const HAVE_IT: u8 = 1;

/// The most bytes of one read.
const READ: usize = 256 << 10;

/// How far the hosts' clocks may differ about the end of a flow.
const SLACK: Duration = Duration::from_secs(1);

/// Carries this host's part of a flow. Returns the connection, whose counters are still needed,
/// unless the flow goes on in the background.
pub(super) async fn carry(
    mut stream: TcpStream,
    ledger: Arc<Ledger>,
    index: u32,
) -> io::Result<Option<TcpStream>> {
    let Some(flow) = ledger.flow(index).cloned() else {
        return Ok(Some(stream));
    };
    let source = ledger.is_source(&flow);
    match flow.kind {
        FlowKind::BulkBytes(bytes) if source => {
            ledger.wait_until(flow.start).await;
            send_unit(&mut stream, &ledger, index, 0, bytes).await?;
        }
        FlowKind::BulkTime(time) if source => {
            ledger.wait_until(flow.start).await;
            send_for(stream, &ledger, index, flow.start + time).await?;
            return Ok(None);
        }
        FlowKind::Files { count, size, gap } if source => {
            for unit in 0..count {
                ledger.wait_until(due(&flow, gap, unit)).await;
                send_unit(&mut stream, &ledger, index, unit, size).await?;
            }
        }
        FlowKind::Requests { count, answer, .. } if source => {
            for _ in 0..count {
                let head = read_head(&mut stream).await?;
                skip(&mut stream, head.length, |_| {}).await?;
                fill(&mut stream, answer).await?;
                ledger.sent(index);
            }
        }
        FlowKind::Datagrams { .. } if source => {
            send_datagrams(&mut stream, &ledger, index, &flow).await?;
        }
        FlowKind::BulkTime(time) => {
            read_head(&mut stream).await?;
            let read = skip(&mut stream, ENDLESS, |bytes| ledger.arrived(index, bytes)).await;
            if ledger.elapsed() + SLACK < flow.start + time {
                read?;
            }
        }
        FlowKind::BulkBytes(_) | FlowKind::Files { .. } => {
            receive_units(&mut stream, &ledger, index, &flow).await?;
        }
        FlowKind::Requests { .. } => ask_all(&mut stream, &ledger, index, &flow).await?,
        FlowKind::Datagrams { size, .. } => {
            receive_datagrams(&mut stream, &ledger, size as usize).await?;
        }
    }
    Ok(Some(stream))
}

/// Sends a unit and waits until the other host has it.
async fn send_unit(
    stream: &mut TcpStream,
    ledger: &Ledger,
    flow: u32,
    unit: u64,
    length: u64,
) -> io::Result<()> {
    let head = Head {
        flow,
        unit,
        stamp_ns: clock_ns(),
        length,
    };
    stream.write_all(&head.encode()).await?;
    fill(stream, length).await?;
    if stream.read_u8().await? != HAVE_IT {
        return Err(io::Error::other("the other host does not confirm a unit"));
    }
    ledger.sent(flow);
    Ok(())
}

async fn fill(stream: &mut (impl AsyncWrite + Unpin), bytes: u64) -> io::Result<()> {
    let mut left = bytes;
    while left > 0 {
        let next = piece(left);
        left -= next.len() as u64;
        stream.write_all(&next).await?;
    }
    Ok(())
}

/// Sends until `end`, and a little longer in the background.
async fn send_for(
    mut stream: TcpStream,
    ledger: &Arc<Ledger>,
    flow: u32,
    end: Duration,
) -> io::Result<()> {
    let clock = Arc::clone(ledger);
    let head = Head {
        flow,
        unit: 0,
        stamp_ns: clock_ns(),
        length: ENDLESS,
    };
    let mut writer = tokio::spawn(async move {
        stream.write_all(&head.encode()).await?;
        while clock.elapsed() < end + AFTERGLOW {
            stream.write_all(&piece(ENDLESS)).await?;
        }
        io::Result::Ok(())
    });
    tokio::select! {
        result = &mut writer => {
            // Close to the end, the other host may have left because its clock is ahead.
            if ledger.elapsed() + SLACK < end {
                result.map_err(io::Error::other)??;
            }
            ledger.wait_until(end).await;
        }
        () = ledger.wait_until(end) => {}
    }
    ledger.sent(flow);
    Ok(())
}

/// Creates datagrams at their times, and writes them as fast as the connection accepts them.
async fn send_datagrams(
    stream: &mut TcpStream,
    ledger: &Arc<Ledger>,
    index: u32,
    flow: &JobFlow,
) -> io::Result<()> {
    let FlowKind::Datagrams {
        size,
        every,
        duration,
        ..
    } = flow.kind
    else {
        return Ok(());
    };
    let start = flow.start;
    let (made, mut waiting) = mpsc::unbounded_channel();
    let clock = Arc::clone(ledger);
    let maker = tokio::spawn(async move {
        let (mut next, mut number) = (start, 0);
        while next < start + duration {
            clock.wait_until(next).await;
            if made.send((number, clock_ns())).is_err() {
                return;
            }
            clock.sent(index);
            number += 1;
            next += every;
        }
    });
    let mut result = Ok(());
    while let Some((number, stamp_ns)) = waiting.recv().await {
        let bytes = datagram(index, number, stamp_ns, size as usize);
        result = stream.write_all(&bytes).await;
        if result.is_err() {
            break;
        }
    }
    maker.abort();
    // After that, the other host may have stopped waiting for late ones.
    if ledger.elapsed() < start + duration {
        result?;
    }
    Ok(())
}

async fn receive_datagrams(stream: &mut TcpStream, ledger: &Ledger, size: usize) -> io::Result<()> {
    let mut bytes = vec![0; size];
    loop {
        match stream.read_exact(&mut bytes).await {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
        if let Some((flow, number, stamp_ns)) = open_datagram(&bytes) {
            ledger.datagram(flow, number, stamp_ns, size as u64);
        }
    }
}

async fn receive_units(
    stream: &mut TcpStream,
    ledger: &Ledger,
    index: u32,
    flow: &JobFlow,
) -> io::Result<()> {
    let (count, size) = match flow.kind {
        FlowKind::BulkBytes(bytes) => (1, bytes),
        FlowKind::Files { count, size, .. } => (count, size),
        _ => return Ok(()),
    };
    for _ in 0..count {
        let head = read_head(stream).await?;
        if head.length != size {
            let length = head.length;
            return Err(io::Error::other(format!(
                "the other host sends {length} bytes: expected {size}"
            )));
        }
        skip(stream, size, |bytes| ledger.arrived(index, bytes)).await?;
        stream.write_u8(HAVE_IT).await?;
        ledger.completed(index, head.unit, head.stamp_ns);
    }
    Ok(())
}

/// Sends requests one after another. A request is timed from when it was due, even if it had to
/// wait.
async fn ask_all(
    stream: &mut TcpStream,
    ledger: &Ledger,
    index: u32,
    flow: &JobFlow,
) -> io::Result<()> {
    let FlowKind::Requests {
        count,
        size,
        answer,
        every,
    } = flow.kind
    else {
        return Ok(());
    };
    for unit in 0..count {
        let due = due(flow, every, unit);
        ledger.wait_until(due).await;
        let stamp_ns = ledger.stamp_ns(due);
        let head = Head {
            flow: index,
            unit,
            stamp_ns,
            length: size,
        };
        stream.write_all(&head.encode()).await?;
        fill(stream, size).await?;
        skip(stream, answer, |bytes| ledger.arrived(index, bytes)).await?;
        ledger.completed(index, unit, stamp_ns);
    }
    Ok(())
}

async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Head> {
    let mut bytes = [0; HEAD];
    stream.read_exact(&mut bytes).await?;
    Ok(Head::decode(&bytes))
}

/// Reads this many bytes and reports each piece.
async fn skip(
    stream: &mut (impl AsyncRead + Unpin),
    bytes: u64,
    mut tell: impl FnMut(u64),
) -> io::Result<()> {
    let mut buffer = vec![0; READ.min(bytes.max(1) as usize).max(PIECE.min(READ))];
    let mut left = bytes;
    while left > 0 {
        let most = left.min(buffer.len() as u64) as usize;
        let count = stream.read(&mut buffer[..most]).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        left -= count as u64;
        tell(count as u64);
    }
    Ok(())
}
