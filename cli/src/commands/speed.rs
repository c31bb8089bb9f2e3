//! `anabranch speed`: how fast data moves between here and a server, from memory to memory.

use super::interrupted;
use crate::args::Speed;
use crate::failure::{Failure, Outcome};
use crate::output::{self, units};
use crate::paths::{self, Direction, Row, Samples};
use crate::session::{KEEP_ALIVE, Options, Session, words};
use crate::speed::{HEADER, Received};
use anabranch_schedulers::Names;
use bytes::{Buf, Bytes};
use h3::error::Code;
use http::header::{HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use serde::Serialize;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout_at};

/// How long to wait for paths to open before anything is measured.
const OPENING: Duration = Duration::from_millis(1500);

/// How much longer than the test its result may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server that stays silent for this long is gone: a live one acknowledges data, and the packets
/// that ask whether it is alive ([`KEEP_ALIVE`]).
const SILENCE: Duration = KEEP_ALIVE.saturating_add(Duration::from_secs(3));

/// Time between two checks whether something has arrived.
const LOOK: Duration = Duration::from_millis(500);

/// Bytes sent at a time.
const PIECE: usize = 64 << 10;

/// The most bytes of a result that are read.
const MAX_RESULT: usize = 4096;

/// The result of the command.
#[derive(Debug, Serialize)]
struct Report {
    command: &'static str,
    /// Whether both sides spoke multipath QUIC.
    multipath: bool,
    /// From the server to here.
    down: Option<Measured>,
    /// From here to the server.
    up: Option<Measured>,
}

/// One direction.
#[derive(Debug, Serialize)]
struct Measured {
    bytes: u64,
    seconds: f64,
    goodput_bps: f64,
    /// What each path did during the measurement.
    paths: Vec<Row>,
}

/// Runs the command.
pub(crate) async fn run(args: &Speed, names: &Names, quiet: bool) -> Outcome {
    let sending = args.tuning.resolve(names)?;
    let options = Options {
        paths: &args.paths,
        sending: &sending,
        quiet,
        trust: &args.trust,
        qlog: args.report.qlog.as_deref(),
        timestamps: false,
        early: None,
    };
    let session = tokio::select! {
        session = Session::open(&args.url, &options) => session?,
        () = interrupted() => return Err(Failure::failed("interrupted while connecting")),
    };
    let test = Test {
        args,
        quiet,
        session: &session,
    };
    let result = tokio::select! {
        result = test.run() => result,
        () = interrupted() => Err(Failure::failed("interrupted")),
        () = silence(|| heard(&session)) => {
            let what = format!("nothing came from the server for {} s", SILENCE.as_secs());
            Err(Failure::failed(what).hint("is it still running, and is there a network?"))
        }
    };
    session.close().await;
    let report = result?;
    if args.report.json {
        return output::json(&report);
    }
    let both = [("down", &report.down), ("up", &report.up)];
    for (name, measured) in both {
        if let Some(measured) = measured {
            output::data(measured.in_words(name))?;
        }
    }
    Ok(())
}

/// Counts the packets received from the server on open paths: any change means that it is there.
fn heard(session: &Session) -> u64 {
    let paths = session.connection.paths();
    let packets = paths.iter().map(|(_, path)| path.counters.received_packets);
    packets.sum()
}

/// Returns once `heard` has not changed for [`SILENCE`].
async fn silence(heard: impl Fn() -> u64) {
    let (mut last, mut since) = (heard(), tokio::time::Instant::now());
    while since.elapsed() < SILENCE {
        sleep(LOOK).await;
        let now = heard();
        if now != last {
            (last, since) = (now, tokio::time::Instant::now());
        }
    }
}

/// A test in progress.
struct Test<'a> {
    args: &'a Speed,
    quiet: bool,
    session: &'a Session,
}

impl Test<'_> {
    async fn run(&self) -> Outcome<Report> {
        self.session.opened(OPENING).await;
        let down = if self.args.up {
            None
        } else {
            Some(self.down().await?)
        };
        let up = if self.args.down {
            None
        } else {
            Some(self.up().await?)
        };
        Ok(Report {
            command: "speed",
            multipath: self.session.connection.has_multipath(),
            down,
            up,
        })
    }

    async fn down(&self) -> Outcome<Measured> {
        self.say("down");
        let broken = |error: &_| self.session.broken(error);
        let mut exchange = self
            .session
            .request("GET", &self.args.url, self.headers())
            .await?;
        // Not a failure: the server may not need the rest of the request.
        let _ = exchange.finish().await;
        let response = exchange
            .recv_response()
            .await
            .map_err(|error| broken(&error))?;
        if response.status() != StatusCode::OK {
            return Err(refused(&response, &words(&mut exchange, &response).await));
        }
        let (before, started) = (self.sample(), Instant::now());
        let end = tokio::time::Instant::from_std(started) + self.time();
        let mut bytes = 0;
        // If data were always ready, `timeout_at` would never check the deadline.
        while tokio::time::Instant::now() < end {
            let Ok(piece) = timeout_at(end, exchange.recv_data()).await else {
                break;
            };
            match piece.map_err(|error| broken(&error))? {
                Some(piece) => bytes += piece.remaining() as u64,
                None => break,
            }
        }
        let duration = started.elapsed();
        let samples = self.sample();
        exchange.stop_sending(Code::H3_REQUEST_CANCELLED);
        Ok(self.measured(bytes, duration, Direction::In, &samples.since(&before)))
    }

    async fn up(&self) -> Outcome<Measured> {
        self.say("up");
        let broken = |error: &_| self.session.broken(error);
        let exchange = self
            .session
            .request("PUT", &self.args.url, self.headers())
            .await?;
        let (mut send, mut recv) = exchange.split();
        let before = self.sample();
        let sending = async {
            let piece = Bytes::from(vec![0; PIECE]);
            // The server says when it has seen enough.
            while send.send_data(piece.clone()).await.is_ok() {}
            std::future::pending::<()>().await;
        };
        let response = tokio::select! {
            response = recv.recv_response() => response.map_err(|error| broken(&error))?,
            () = sending => return Err(Failure::failed("sending ended")),
            () = sleep(self.time() + PATIENCE) => {
                return Err(Failure::failed("the server tells no result"));
            }
        };
        let samples = self.sample();
        let mut text = Vec::new();
        while let Some(piece) = recv.recv_data().await.map_err(|error| broken(&error))? {
            text.extend_from_slice(piece.chunk());
            if text.len() > MAX_RESULT {
                break;
            }
        }
        if response.status() != StatusCode::OK {
            let text = String::from_utf8_lossy(&text);
            return Err(refused(&response, text.trim()));
        }
        let received: Received = serde_json::from_slice(&text)
            .map_err(|error| Failure::failed(format!("the result cannot be read: {error}")))?;
        let duration = Duration::try_from_secs_f64(received.seconds).unwrap_or_default();
        let samples = samples.since(&before);
        Ok(self.measured(received.bytes, duration, Direction::Out, &samples))
    }

    fn time(&self) -> Duration {
        Duration::from_secs(self.args.time.into())
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        self.args.tuning.to_headers(&mut headers);
        headers.insert(HEADER, HeaderValue::from(self.args.time));
        headers
    }

    fn sample(&self) -> Samples {
        let mut samples = Samples::default();
        samples.take(&self.session.connection, &self.session.labels);
        samples
    }

    fn say(&self, direction: &str) {
        if !self.quiet {
            let time = self.args.time;
            output::say(format!("measuring {direction} for {time} s"));
        }
    }

    fn measured(
        &self,
        bytes: u64,
        duration: Duration,
        direction: Direction,
        samples: &Samples,
    ) -> Measured {
        Measured {
            bytes,
            seconds: units::json_seconds(duration),
            goodput_bps: units::rate(bytes, duration).round(),
            paths: samples.rows(direction, &self.session.labels),
        }
    }
}

impl Measured {
    fn in_words(&self, name: &str) -> String {
        let table = paths::table(&self.paths, Duration::from_secs_f64(self.seconds));
        format!(
            "{name}: {} in {:.2} s, {}\n{table}",
            units::bytes(self.bytes),
            self.seconds,
            units::bit_rate(self.goodput_bps),
        )
    }
}

fn refused(response: &Response<()>, words: &str) -> Failure {
    let failure = Failure::failed(format!("the speed cannot be measured: {words}"));
    match response.status() {
        StatusCode::FORBIDDEN => failure.hint("the server has to be started with `--speed`"),
        StatusCode::BAD_REQUEST => failure.hint("the server may know other schedulers than we do"),
        _ => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use tokio::time::{Instant, timeout};

    #[tokio::test(start_paused = true)]
    async fn a_server_is_gone_when_nothing_came_of_it_for_some_seconds() {
        let began = Instant::now();
        // It answers now and then for a minute.
        let packets = || began.elapsed().as_secs().min(60) / KEEP_ALIVE.as_secs();
        silence(packets).await;
        let ended = began.elapsed().as_secs();
        let expected = 60 + SILENCE.as_secs();
        assert!((expected..=expected + 1).contains(&ended), "{ended}");
        let count = Cell::new(0);
        let there = || count.replace(count.get() + 1);
        let for_ever = timeout(Duration::from_secs(600), silence(there)).await;
        assert!(for_ever.is_err(), "it was there all the time");
    }
}
