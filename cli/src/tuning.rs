//! How data is spread over paths: what a user may choose, on the command line or, for downloads, in
//! a request. The sender decides, so a download is tuned by headers that the server reads.

use crate::failure::{Failure, Outcome};
use crate::files::{CHUNK_HEADER, CHUNK_RANGE, CONGESTION_HEADER, SCHEDULER_HEADER};
use crate::output::units::ByteSize;
use anabranch_net::connection::Connection;
use anabranch_net::engine::TransportConfig;
use anabranch_proto::congestion::ControllerFactory;
use anabranch_proto::sched::SchedulerFactory;
use anabranch_proto::spec::{Spec, SpecError};
use anabranch_schedulers::Names;
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
    /// All parameters: the client runs in this process, as in `demo`.
    #[cfg(feature = "lab")]
    Everything,
}

/// A choice of scheduler and congestion control, in a user's words. What is not given is the
/// engine's default. Whether there is something of that name shows in [`Self::resolve`].
#[derive(Debug, Clone, PartialEq, Eq, Default, clap::Args)]
pub(crate) struct Tuning {
    /// Which path each packet takes: see `anabranch schedulers`
    #[arg(long, value_name = "NAME[:KEY=VALUE,...]")]
    pub(crate) scheduler: Option<Spec>,
    /// How fast each path is used: see `anabranch congestion`
    #[arg(long, value_name = "NAME[:KEY=VALUE,...]")]
    pub(crate) congestion: Option<Spec>,
    /// Bytes per scheduling decision, 500 to 65536; one packet unless given, and always with
    /// schedulers that choose streams, skip ahead or send copies
    #[arg(long, value_name = "BYTES", value_parser = chunk)]
    pub(crate) chunk: Option<u64>,
}

/// How this side sends: a [`Tuning`] whose names were found.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sending {
    scheduler: Option<SchedulerFactory>,
    congestion: Option<ControllerFactory>,
    chunk: Option<u64>,
}

/// Where a choice was made, as messages name it: that of a scheduler, that of a control.
type Source = [&'static str; 2];

const OPTIONS: Source = ["--scheduler", "--congestion"];
const HEADERS: Source = [SCHEDULER_HEADER, CONGESTION_HEADER];

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
    /// Finds what the options of a command name.
    ///
    /// # Errors
    ///
    /// There is nothing of that name, or a parameter is wrong.
    pub(crate) fn resolve(&self, names: &Names) -> Outcome<Sending> {
        self.find(names, OPTIONS).map_err(Failure::usage)
    }

    /// Finds what the headers of a request name.
    ///
    /// # Errors
    ///
    /// What is wrong, in words for the person who sent them.
    pub(crate) fn resolve_headers(&self, names: &Names) -> Result<Sending, String> {
        self.find(names, HEADERS)
    }

    fn find(&self, names: &Names, [scheduler, congestion]: Source) -> Result<Sending, String> {
        let wrong = |place: &str, error: SpecError| format!("{place}: {error}");
        let found = self.scheduler.as_ref();
        let found = found.map(|spec| SchedulerFactory::new(&names.schedulers, spec));
        let control = self.congestion.as_ref();
        let control = control.map(|spec| names.controllers.factory(spec));
        Ok(Sending {
            scheduler: found.transpose().map_err(|error| wrong(scheduler, error))?,
            congestion: control
                .transpose()
                .map_err(|error| wrong(congestion, error))?,
            chunk: self.chunk,
        })
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

    /// What is new in what a client asks for on its connection.
    ///
    /// # Errors
    ///
    /// It asks for a different congestion control than before: a new one would not know of the
    /// losses so far.
    pub(crate) fn news(&self, wanted: Self) -> Result<Self, String> {
        let mut news = wanted;
        match (&self.congestion, &news.congestion) {
            (Some(chosen), Some(wanted)) if chosen != wanted => {
                return Err(format!(
                    "{CONGESTION_HEADER}: this connection has {chosen} already; a new connection \
                     may have another"
                ));
            }
            (Some(_), _) => news.congestion = None,
            (None, _) => {}
        }
        if news.scheduler == self.scheduler {
            news.scheduler = None;
        }
        Ok(news)
    }

    /// Remembers what was new.
    pub(crate) fn adopt(&mut self, news: Self) {
        self.congestion = news.congestion.or(self.congestion.take());
        self.scheduler = news.scheduler.or(self.scheduler.take());
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

    /// Reads the request headers, without looking up the names in them.
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
        let spec = |name: &'static str| {
            let parsed = text(name)?.map(str::parse).transpose();
            parsed.map_err(|error: SpecError| format!("{name}: {error}"))
        };
        let (scheduler, congestion) = (spec(SCHEDULER_HEADER)?, spec(CONGESTION_HEADER)?);
        let parsed = text(CHUNK_HEADER)?.map(chunk).transpose();
        let chunk = parsed.map_err(|error| format!("{CHUNK_HEADER}: {error}"))?;
        Ok(Self {
            scheduler,
            congestion,
            chunk,
        })
    }
}

impl Sending {
    /// Changes the settings of future connections.
    pub(crate) fn configure(&self, transport: &mut TransportConfig) {
        if let Some(scheduler) = &self.scheduler {
            transport.scheduler = scheduler.clone();
        }
        if let Some(congestion) = &self.congestion {
            transport.congestion = congestion.clone();
        }
        if self.chunk.is_some() {
            transport.chunk = self.chunk;
        }
    }

    /// Changes a connection. Has no effect on one that has ended.
    pub(crate) fn apply(self, connection: &Connection) {
        if let Some(scheduler) = self.scheduler {
            let scheduler = scheduler.build();
            let _ = connection.with_engine(|engine| engine.set_scheduler(scheduler));
        }
        if let Some(congestion) = self.congestion {
            let _ = connection.set_congestion(congestion);
        }
        if self.chunk.is_some() {
            let _ = connection.with_engine(|engine| engine.set_chunk(self.chunk));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuning() -> Tuning {
        Tuning {
            scheduler: Some("weighted:weights=1/2".parse().unwrap()),
            congestion: Some("cubic".parse().unwrap()),
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
        let wanted = Tuning::from_headers(&headers).unwrap();
        let message = wanted.resolve_headers(&Names::default()).unwrap_err();
        assert!(
            message.contains(SCHEDULER_HEADER) && message.contains("`min-rtt`"),
            "{message}"
        );
        let failure = wanted.resolve(&Names::default()).unwrap_err();
        assert!(matches!(failure, Failure::Usage(_)), "exit code 2");
        let message = failure.what();
        assert!(
            message.starts_with("--scheduler: ") && message.contains("`min-rtt`"),
            "{message}"
        );
        headers.insert(SCHEDULER_HEADER, HeaderValue::from_static("min rtt"));
        let message = Tuning::from_headers(&headers).unwrap_err();
        assert!(message.contains(SCHEDULER_HEADER), "{message}");
    }

    fn asked(congestion_control: &str) -> Tuning {
        Tuning {
            congestion: Some(congestion_control.parse().unwrap()),
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
        let news = chosen.news(asked("cubic")).unwrap();
        assert_eq!(news, asked("cubic"));
        chosen.adopt(news);
        let again = chosen.news(asked("cubic")).unwrap();
        assert_eq!(again, Tuning::default(), "nothing is to be made anew");
        assert!(chosen.news(asked("new-reno")).is_err());
        let other = Tuning {
            scheduler: Some("redundant".parse().unwrap()),
            ..Tuning::default()
        };
        let news = chosen.news(other.clone()).unwrap();
        assert_eq!(news, other);
        chosen.adopt(news);
        assert_eq!(chosen.news(other).unwrap(), Tuning::default());
        assert!(chosen.news(asked("new-reno")).is_err());
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
        let sending = tuning().resolve(&Names::default()).unwrap();
        sending.configure(&mut transport);
        assert!(transport.scheduler.name().starts_with("weighted"));
        assert_eq!(
            (transport.congestion.name(), transport.chunk),
            ("cubic", Some(4096))
        );
    }
}
