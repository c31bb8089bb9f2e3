//! How data is spread over paths: what a user may choose, on the command line or, for downloads,
//! in a request. The sender decides, so that a download is tuned by headers the server reads.

use crate::files::{CHUNK_HEADER, CHUNK_RANGE, CONGESTION_HEADER, SCHEDULER_HEADER};
use crate::output::units::ByteSize;
use anabranch_net::connection::Connection;
use anabranch_net::engine::TransportConfig;
use anabranch_proto::congestion::Registry as Controllers;
use anabranch_proto::sched::{Registry as Schedulers, SchedulerFactory};
use anabranch_proto::spec::{Spec, SpecError};
use http::{HeaderMap, HeaderName, HeaderValue};

/// A choice of scheduler and congestion control. What is not given is the engine's default.
#[derive(Debug, Clone, PartialEq, Eq, Default, clap::Args)]
pub(crate) struct Tuning {
    /// Which path each packet takes: see `anabranch schedulers`
    #[arg(long, value_name = "NAME[:KEY=VALUE,...]", value_parser = scheduler)]
    pub(crate) scheduler: Option<Spec>,
    /// How fast each path is used: see `anabranch congestion`
    #[arg(long, value_name = "NAME[:KEY=VALUE,...]", value_parser = congestion)]
    pub(crate) congestion: Option<Spec>,
    /// Bytes per scheduling decision, 500 to 65536; one packet unless given, and always with
    /// schedulers that choose streams, skip ahead or send copies
    #[arg(long, value_name = "BYTES", value_parser = chunk)]
    pub(crate) chunk: Option<u64>,
}

/// A scheduler's name with parameters, checked.
pub(crate) fn scheduler(text: &str) -> Result<Spec, SpecError> {
    let spec = text.parse()?;
    Schedulers::builtin().build(&spec)?;
    Ok(spec)
}

/// A congestion control's name with parameters, checked.
pub(crate) fn congestion(text: &str) -> Result<Spec, SpecError> {
    let spec = text.parse()?;
    Controllers::builtin().factory(&spec)?;
    Ok(spec)
}

/// Bytes per scheduling decision, checked.
pub(crate) fn chunk(text: &str) -> Result<u64, String> {
    let ByteSize(bytes) = text.parse().map_err(|error| format!("{error}"))?;
    if CHUNK_RANGE.contains(&bytes) {
        return Ok(bytes);
    }
    Err(format!(
        "{bytes} is out of range: expected {} to {}",
        CHUNK_RANGE.start(),
        CHUNK_RANGE.end()
    ))
}

impl Tuning {
    /// Changes the settings of connections to come.
    pub(crate) fn configure(&self, transport: &mut TransportConfig) -> Result<(), SpecError> {
        if let Some(spec) = &self.scheduler {
            transport.scheduler = SchedulerFactory::new(&Schedulers::builtin(), spec)?;
        }
        if let Some(spec) = &self.congestion {
            transport.congestion = Controllers::builtin().factory(spec)?;
        }
        if self.chunk.is_some() {
            transport.chunk = self.chunk;
        }
        Ok(())
    }

    /// Changes a connection. One that has ended stays as it was.
    pub(crate) fn apply(&self, connection: &Connection) -> Result<(), SpecError> {
        if let Some(spec) = &self.scheduler {
            let scheduler = Schedulers::builtin().build(spec)?;
            let _ = connection.with_engine(|engine| engine.set_scheduler(scheduler));
        }
        if let Some(spec) = &self.congestion {
            let factory = Controllers::builtin().factory(spec)?;
            let _ = connection.set_congestion(factory);
        }
        if self.chunk.is_some() {
            let _ = connection.with_engine(|engine| engine.set_chunk(self.chunk));
        }
        Ok(())
    }

    /// Adds the request headers that ask the server for this.
    pub(crate) fn to_headers(&self, headers: &mut HeaderMap) {
        let fields = [
            (
                SCHEDULER_HEADER,
                self.scheduler.as_ref().map(ToString::to_string),
            ),
            (
                CONGESTION_HEADER,
                self.congestion.as_ref().map(ToString::to_string),
            ),
            (CHUNK_HEADER, self.chunk.map(|bytes| bytes.to_string())),
        ];
        for (name, value) in fields {
            // A checked specification is made of visible ASCII characters.
            if let Some(value) = value.and_then(|value| HeaderValue::try_from(value).ok()) {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
    }

    /// Reads the request headers.
    ///
    /// # Errors
    ///
    /// What is wrong, for the person who sent them.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Result<Self, String> {
        let text = |name: &'static str| match headers.get(name).map(HeaderValue::to_str) {
            None => Ok(None),
            Some(Ok(text)) => Ok(Some(text)),
            Some(Err(_)) => Err(format!("{name}: not text")),
        };
        let parsed = text(SCHEDULER_HEADER)?.map(scheduler).transpose();
        let scheduler = parsed.map_err(|error| format!("{SCHEDULER_HEADER}: {error}"))?;
        let parsed = text(CONGESTION_HEADER)?.map(congestion).transpose();
        let congestion = parsed.map_err(|error| format!("{CONGESTION_HEADER}: {error}"))?;
        let parsed = text(CHUNK_HEADER)?.map(chunk).transpose();
        let chunk = parsed.map_err(|error| format!("{CHUNK_HEADER}: {error}"))?;
        Ok(Self {
            scheduler,
            congestion,
            chunk,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuning() -> Tuning {
        Tuning {
            scheduler: Some(scheduler("weighted:weights=1/2").unwrap()),
            congestion: Some(congestion("cubic").unwrap()),
            chunk: Some(4096),
        }
    }

    #[test]
    fn what_is_asked_for_arrives() {
        let mut headers = HeaderMap::new();
        tuning().to_headers(&mut headers);
        assert_eq!(Tuning::from_headers(&headers), Ok(tuning()));
        assert_eq!(
            Tuning::from_headers(&HeaderMap::new()),
            Ok(Tuning::default())
        );
    }

    #[test]
    fn a_mistake_names_the_header_and_what_is_nearest() {
        let mut headers = HeaderMap::new();
        headers.insert(SCHEDULER_HEADER, HeaderValue::from_static("min-rrt"));
        let message = Tuning::from_headers(&headers).unwrap_err();
        assert!(
            message.contains(SCHEDULER_HEADER) && message.contains("`min-rtt`"),
            "{message}"
        );
    }

    #[test]
    fn chunks_have_limits() {
        assert_eq!(chunk("500"), Ok(500));
        assert_eq!(chunk("64Ki"), Ok(65_536));
        for text in ["499", "65537", "x"] {
            assert!(chunk(text).is_err(), "{text}");
        }
    }

    #[test]
    fn all_choices_reach_the_engine() {
        let mut transport = TransportConfig::default();
        tuning().configure(&mut transport).unwrap();
        assert!(transport.scheduler.name().starts_with("weighted"));
        assert_eq!(
            (transport.congestion.name(), transport.chunk),
            ("cubic", Some(4096))
        );
    }
}
