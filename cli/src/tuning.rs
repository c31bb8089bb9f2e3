//! How data is spread over paths: what a user may choose, on the command line or, for downloads, in
//! a request. The sender decides, so a download is tuned by headers that the server reads.

use crate::files::{CHUNK_HEADER, CHUNK_RANGE, CONGESTION_HEADER, SCHEDULER_HEADER};
use crate::output::units::ByteSize;
use anabranch_net::connection::Connection;
use anabranch_net::engine::TransportConfig;
use anabranch_proto::congestion::Registry as Controllers;
use anabranch_proto::sched::SchedulerFactory;
use anabranch_proto::spec::{Spec, SpecError};
use http::{HeaderMap, HeaderName, HeaderValue};

/// Congestion controls that a client may ask a server for. `constant` is left out, because it
/// ignores congestion.
const GRANTED_CONTROLS: [&str; 11] = [
    "cubic", "new-reno", "bbr", "lia", "olia", "balia", "wvegas", "cmt", "cmt-rpv1", "cmt-rpv2",
    "westwood",
];

/// Their parameters that a client may ask for. Those that set a window are left out, so that a
/// server starts in an unknown network as carefully as RFC 9002 wants.
const GRANTED_PARAMETERS: [&str; 3] = ["coupling", "fast-convergence", "hystart"];

/// Which sending parameters clients may choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Granted {
    Nothing,
    /// What does no harm to the networks in between.
    Harmless,
    /// For clients that run in this very process.
    Everything,
}

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
    anabranch_schedulers::builtin().build(&spec)?;
    Ok(spec)
}

/// A congestion control's name with parameters, checked.
pub(crate) fn congestion(text: &str) -> Result<Spec, SpecError> {
    let spec = text.parse()?;
    Controllers::builtin().factory(&spec)?;
    Ok(spec)
}

fn check_harmless(spec: &Spec) -> Result<(), String> {
    let refused = |what: &str| {
        Err(format!(
            "{CONGESTION_HEADER}: {what} is not for clients to choose; give it to `serve`"
        ))
    };
    if !GRANTED_CONTROLS.contains(&&*spec.name) {
        return refused(&format!("`{}`", spec.name));
    }
    match spec
        .params
        .keys()
        .find(|key| !GRANTED_PARAMETERS.contains(key))
    {
        Some(key) => refused(&format!("`{key}`")),
        None => Ok(()),
    }
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
    /// Changes the settings of future connections.
    pub(crate) fn configure(&self, transport: &mut TransportConfig) -> Result<(), SpecError> {
        if let Some(spec) = &self.scheduler {
            transport.scheduler = SchedulerFactory::new(&anabranch_schedulers::builtin(), spec)?;
        }
        if let Some(spec) = &self.congestion {
            transport.congestion = Controllers::builtin().factory(spec)?;
        }
        if self.chunk.is_some() {
            transport.chunk = self.chunk;
        }
        Ok(())
    }

    /// Changes a connection. Has no effect on one that has ended.
    pub(crate) fn apply(&self, connection: &Connection) -> Result<(), SpecError> {
        if let Some(spec) = &self.scheduler {
            let scheduler = anabranch_schedulers::builtin().build(spec)?;
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

    /// Whether a client may ask for this. Any of our schedulers is allowed: none can exceed a
    /// congestion window.
    ///
    /// # Errors
    ///
    /// What is not allowed.
    pub(crate) fn check(&self, granted: Granted) -> Result<(), String> {
        match (granted, &self.congestion) {
            (Granted::Nothing, _) => {
                Err("this server does not let clients choose how it sends".into())
            }
            (Granted::Harmless, Some(spec)) => check_harmless(spec),
            _ => Ok(()),
        }
    }

    /// Adopts what a client asks for on its connection; returns what of it is new.
    ///
    /// # Errors
    ///
    /// It asks for a different congestion control than before: a new one would not know of the
    /// losses so far.
    pub(crate) fn choose(&mut self, wanted: Self) -> Result<Self, String> {
        let mut news = wanted;
        match (&self.congestion, &news.congestion) {
            (Some(chosen), Some(wanted)) if chosen != wanted => {
                return Err(format!(
                    "{CONGESTION_HEADER}: this connection has {chosen} already; a new connection \
                     may have another"
                ));
            }
            (Some(_), _) => news.congestion = None,
            (None, wanted) => self.congestion.clone_from(wanted),
        }
        if news.scheduler == self.scheduler {
            news.scheduler = None;
        } else if news.scheduler.is_some() {
            self.scheduler.clone_from(&news.scheduler);
        }
        Ok(news)
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
    /// What is wrong with them, in words for the person who sent them.
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

    fn asked(congestion_control: &str) -> Tuning {
        Tuning {
            congestion: Some(congestion(congestion_control).unwrap()),
            ..Tuning::default()
        }
    }

    #[test]
    fn a_client_gets_no_window_beyond_the_rfc_by_asking() {
        for harmless in ["cubic", "bbr", "lia:coupling=all", "cubic:hystart=false"] {
            assert_eq!(asked(harmless).check(Granted::Harmless), Ok(()));
            assert!(asked(harmless).check(Granted::Nothing).is_err());
        }
        for (greedy, word) in [
            ("constant", "`constant`"),
            ("constant:initial-window=100000", "`constant`"),
            ("cubic:initial-window=100", "`initial-window`"),
            ("cmt-rpv1:floor=100", "`floor`"),
        ] {
            let words = asked(greedy).check(Granted::Harmless).unwrap_err();
            assert!(words.contains(word), "{greedy}: {words}");
        }
    }

    #[test]
    fn a_client_forgets_no_losses_by_asking_again() {
        let mut chosen = Tuning::default();
        chosen.choose(asked("cubic")).unwrap();
        let again = chosen.choose(asked("cubic")).unwrap();
        assert_eq!(again, Tuning::default(), "nothing is to be made anew");
        assert!(chosen.choose(asked("new-reno")).is_err());
        let other = Tuning {
            scheduler: Some(scheduler("redundant").unwrap()),
            ..Tuning::default()
        };
        assert_eq!(chosen.choose(other.clone()).unwrap(), other);
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
        let mut transport = anabranch_net::defaults::transport();
        tuning().configure(&mut transport).unwrap();
        assert!(transport.scheduler.name().starts_with("weighted"));
        assert_eq!(
            (transport.congestion.name(), transport.chunk),
            ("cubic", Some(4096))
        );
    }
}
