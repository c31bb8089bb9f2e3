//! The flows of a run over the engine: each unit on a stream of its own.

use super::Failure;
use crate::ledger::{Ledger, due};
use crate::machine::clock_ns;
use crate::payload::{ENDLESS, HEAD, Head, datagram, open_datagram, piece};
use anabranch_lab::hosts::JobFlow;
use anabranch_lab::scenario::FlowKind;
use anabranch_net::error::{SendDatagramError, WriteError};
use anabranch_net::{Connection, RecvStream, SendStream};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// The most bytes of one read.
const READ: usize = 256 << 10;

/// How much longer than measured a flow of a given duration is sent, so that its end does not
/// affect the figures.
pub(crate) const AFTERGLOW: Duration = Duration::from_secs(1);

/// Carries this host's part of a flow, except for what the other host starts.
pub(super) async fn carry(
    connection: Connection,
    ledger: Arc<Ledger>,
    index: u32,
) -> Result<(), Failure> {
    let Some(flow) = ledger.flow(index).cloned() else {
        return Ok(());
    };
    match (flow.kind, ledger.is_source(&flow)) {
        (FlowKind::BulkBytes(bytes), true) => {
            ledger.wait_until(flow.start).await;
            send_unit(&connection, &ledger, index, 0, bytes).await
        }
        (FlowKind::BulkTime(time), true) => {
            ledger.wait_until(flow.start).await;
            send_for(connection, &ledger, index, flow.start + time).await
        }
        (FlowKind::Files { count, size, gap }, true) => {
            for unit in 0..count {
                ledger.wait_until(due(&flow, gap, unit)).await;
                send_unit(&connection, &ledger, index, unit, size).await?;
            }
            Ok(())
        }
        (FlowKind::Datagrams { .. }, true) => send_datagrams(&connection, &ledger, index).await,
        (FlowKind::Requests { .. }, false) => ask_all(&connection, &ledger, index, &flow).await,
        _ => Ok(()),
    }
}

/// Sends a unit and waits until the other host has it.
async fn send_unit(
    connection: &Connection,
    ledger: &Ledger,
    flow: u32,
    unit: u64,
    bytes: u64,
) -> Result<(), Failure> {
    let stamp_ns = clock_ns();
    let mut stream = connection.open_uni().await?;
    let head = Head {
        flow,
        unit,
        stamp_ns,
        length: bytes,
    };
    write(&mut stream, &head).await?;
    stream.stopped().await?;
    ledger.sent(flow);
    Ok(())
}

/// Writes a head and as many bytes as it announces.
async fn write(stream: &mut SendStream, head: &Head) -> Result<(), Failure> {
    stream.write_bytes(head.encode()).await?;
    fill(stream, head.length).await?;
    stream.finish()?;
    Ok(())
}

async fn fill(stream: &mut SendStream, bytes: u64) -> Result<(), Failure> {
    let mut left = bytes;
    while left > 0 {
        let next = piece(left);
        left -= next.len() as u64;
        stream.write_bytes(next).await?;
    }
    Ok(())
}

/// Sends until `end`, and a little longer in the background.
async fn send_for(
    connection: Connection,
    ledger: &Arc<Ledger>,
    flow: u32,
    end: Duration,
) -> Result<(), Failure> {
    let head = Head {
        flow,
        unit: 0,
        stamp_ns: clock_ns(),
        length: ENDLESS,
    };
    let clock = Arc::clone(ledger);
    let writer = async move {
        let mut stream = connection.open_uni().await?;
        stream.write_bytes(head.encode()).await?;
        while clock.elapsed() < end + AFTERGLOW {
            match stream.write_bytes(piece(ENDLESS)).await {
                // The other host's clock is a little ahead, and says that the flow is over.
                Err(WriteError::Stopped(_)) => break,
                result => result?,
            }
        }
        Ok::<(), Failure>(())
    };
    let mut writer = tokio::spawn(writer);
    tokio::select! {
        result = &mut writer => {
            result.unwrap_or_else(|error| Err(Failure::other(&error)))?;
            ledger.wait_until(end).await;
        }
        () = ledger.wait_until(end) => {}
    }
    ledger.sent(flow);
    Ok(())
}

async fn send_datagrams(
    connection: &Connection,
    ledger: &Ledger,
    index: u32,
) -> Result<(), Failure> {
    let Some(&JobFlow {
        kind:
            FlowKind::Datagrams {
                size,
                every,
                duration,
                ..
            },
        start,
        ..
    }) = ledger.flow(index)
    else {
        return Ok(());
    };
    let (mut next, mut number) = (start, 0);
    let (mut taken, mut too_large) = (false, None);
    while next < start + duration {
        ledger.wait_until(next).await;
        let bytes = datagram(index, number, clock_ns(), size as usize);
        match connection.send_datagram(bytes) {
            Ok(()) => taken = true,
            Err(SendDatagramError::Full) => {}
            // Packets may still grow: MTU discovery takes time.
            Err(error @ SendDatagramError::TooLarge { .. }) => too_large = Some(error),
            Err(SendDatagramError::Connection(error)) => return Err(error.into()),
            Err(error) => return Err(Failure::other(&error)),
        }
        // A datagram that the connection did not accept counts as sent, and is late.
        ledger.sent(index);
        number += 1;
        next += every;
    }
    match too_large {
        Some(error) if !taken => Err(Failure::Other(format!("flow {}: {error}", index + 1))),
        _ => Ok(()),
    }
}

/// Sends requests at equal intervals, whether earlier ones are answered or not.
async fn ask_all(
    connection: &Connection,
    ledger: &Arc<Ledger>,
    index: u32,
    flow: &JobFlow,
) -> Result<(), Failure> {
    let FlowKind::Requests {
        count, size, every, ..
    } = flow.kind
    else {
        return Ok(());
    };
    let mut asked = JoinSet::new();
    for unit in 0..count {
        ledger.wait_until(due(flow, every, unit)).await;
        let (connection, ledger) = (connection.clone(), Arc::clone(ledger));
        asked.spawn(async move { ask(&connection, &ledger, index, unit, size).await });
        while let Some(done) = asked.try_join_next() {
            done.unwrap_or_else(|error| Err(Failure::other(&error)))?;
        }
    }
    while let Some(done) = asked.join_next().await {
        done.unwrap_or_else(|error| Err(Failure::other(&error)))?;
    }
    Ok(())
}

async fn ask(
    connection: &Connection,
    ledger: &Ledger,
    flow: u32,
    unit: u64,
    size: u64,
) -> Result<(), Failure> {
    // The time spent waiting for a stream counts, since the user asked now.
    let stamp_ns = clock_ns();
    let (mut send, mut receive) = connection.open_bi().await?;
    let head = Head {
        flow,
        unit,
        stamp_ns,
        length: size,
    };
    write(&mut send, &head).await?;
    while let Some(bytes) = receive.read_chunk(READ).await? {
        ledger.arrived(flow, bytes.len() as u64);
    }
    ledger.completed(flow, unit, stamp_ns);
    Ok(())
}

/// Receives what the other host sends, until the connection ends.
pub(super) async fn receive(connection: Connection, ledger: Arc<Ledger>) {
    let mut readers = JoinSet::new();
    loop {
        tokio::select! {
            stream = connection.accept_uni() => {
                let Ok(stream) = stream else { break };
                readers.spawn(read_unit(stream, Arc::clone(&ledger)));
            }
            stream = connection.accept_bi() => {
                let Ok((send, receive)) = stream else { break };
                readers.spawn(answer(send, receive, Arc::clone(&ledger)));
            }
            datagram = connection.read_datagram() => {
                let Ok(bytes) = datagram else { break };
                if let Some((flow, number, stamp_ns)) = open_datagram(&bytes) {
                    ledger.datagram(flow, number, stamp_ns, bytes.len() as u64);
                }
            }
            // A stream fails only with its connection, or on purpose.
            Some(_) = readers.join_next(), if !readers.is_empty() => {}
        }
    }
    // Complete streams can still be read to the end.
    while readers.join_next().await.is_some() {}
}

async fn read_head(stream: &mut RecvStream) -> Option<Head> {
    let mut bytes = [0; HEAD];
    stream.read_exact(&mut bytes).await.ok()?;
    Some(Head::decode(&bytes))
}

/// Reads a unit; returns its length if it is complete.
async fn read_unit(mut stream: RecvStream, ledger: Arc<Ledger>) -> Option<()> {
    let head = read_head(&mut stream).await?;
    let flow = ledger.flow(head.flow)?;
    if ledger.is_source(flow) {
        return None;
    }
    let mut received = 0;
    while let Some(bytes) = stream.read_chunk(READ).await.ok()? {
        received += bytes.len() as u64;
        ledger.arrived(head.flow, bytes.len() as u64);
    }
    if received == head.length {
        ledger.completed(head.flow, head.unit, head.stamp_ns);
    }
    Some(())
}

/// Answers a request.
async fn answer(mut send: SendStream, mut receive: RecvStream, ledger: Arc<Ledger>) -> Option<()> {
    let head = read_head(&mut receive).await?;
    let flow = ledger.flow(head.flow)?;
    let FlowKind::Requests { answer, .. } = flow.kind else {
        return None;
    };
    while receive.read_chunk(READ).await.ok()?.is_some() {}
    fill(&mut send, answer).await.ok()?;
    send.finish().ok()?;
    send.stopped().await.ok()?;
    ledger.sent(head.flow);
    Some(())
}
