//! What lets us in at a far end, and what that can do.
//!
//! ```text
//! an exit of ours   one request first, by a credential or an invitation ──┐
//! any other proxy   nothing first: each request shows who asks          ──┴──> Terms
//! ```
//! The terms are all that requests depend on: behind them nobody asks which of both it is.

use super::uplink::Failed;
use crate::identity::{INVITATION, Kept, Known, NAME, Secret, on_disk, plain_name};
use crate::payloads;
use crate::refusal::Refusal;
use crate::session::{Broken, Session};
use crate::treatment;
use anabranch_masque::target::InvalidTemplate;
use anabranch_masque::{
    Ask, Extensions, Headers, Protocol, Request, RequestLine, Settings, Target, Templates,
};
use anabranch_tunnel::Treatment;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::fmt;
use std::str::FromStr;

/// What lets us in.
#[derive(Debug)]
pub enum Entrance {
    /// An exit of ours: we show an invitation at first, then the credential it has taken.
    Exit(Invited),
    /// Any other proxy: we show the credential it already knows, if it asks for one.
    Proxy(Proxy),
}

/// Somebody whom an exit knows, or has invited.
#[derive(Debug)]
pub struct Invited {
    /// Where credentials are kept.
    pub kept: Kept,
    /// The fingerprint of the exit's key.
    pub server: String,
    /// The invitation, if there is one.
    pub invitation: Option<Secret>,
    /// The name by which we want to be known.
    pub name: String,
}

/// A proxy that speaks HTTP/3 and knows nothing of us: CONNECT, and what it offers of CONNECT-UDP
/// and CONNECT-IP.
#[derive(Debug)]
pub struct Proxy {
    authority: String,
    templates: Templates,
    credential: Option<Credential>,
}

impl Proxy {
    /// The proxy at this authority (default port 443). `None` if `authority` is not valid.
    pub fn at(authority: &str) -> Option<Self> {
        Some(Self {
            authority: authority.to_owned(),
            templates: Templates::of_proxy(authority)?,
            credential: None,
        })
    }

    /// Uses this template for CONNECT-UDP. If it begins with `/`, the proxy's own authority
    /// precedes it.
    ///
    /// # Errors
    ///
    /// [`InvalidTemplate`] if it is not a valid template.
    pub fn with_udp(self, template: &str) -> Result<Self, InvalidTemplate> {
        self.with(Protocol::Udp, template)
    }

    /// Uses this template for CONNECT-IP. If it begins with `/`, the proxy's own authority precedes
    /// it.
    ///
    /// # Errors
    ///
    /// [`InvalidTemplate`] if it is not a valid template.
    pub fn with_ip(self, template: &str) -> Result<Self, InvalidTemplate> {
        self.with(Protocol::Ip, template)
    }

    fn with(mut self, protocol: Protocol, template: &str) -> Result<Self, InvalidTemplate> {
        let whole = if template.starts_with('/') {
            format!("https://{}{template}", self.authority)
        } else {
            template.to_owned()
        };
        self.templates = self.templates.with(protocol, &whole)?;
        Ok(self)
    }

    /// Shows this credential with each request.
    #[must_use]
    pub fn with_credential(mut self, credential: Credential) -> Self {
        self.credential = Some(credential);
        self
    }

    fn shown(&self) -> Headers {
        let mut shown = Headers::new();
        if let Some(Credential(value)) = &self.credential {
            // For CONNECT it is a proxy, for other requests the server of a resource.
            shown.push("proxy-authorization", value.clone());
            shown.push("authorization", value.clone());
        }
        shown
    }
}

/// What a proxy knows us by, as a request shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential(String);

/// A text that is no credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected USER:PASSWORD, or a token of letters, digits and -._~+/=")]
pub struct NoCredential;

impl FromStr for Credential {
    type Err = NoCredential;

    /// `USER:PASSWORD` (RFC 7617), or a token (RFC 6750), which has no colon.
    fn from_str(text: &str) -> Result<Self, NoCredential> {
        let is_of_token = |c: char| c.is_ascii_alphanumeric() || "-._~+/=".contains(c);
        if text.contains(':') && !text.contains(char::is_control) {
            return Ok(Self(format!("Basic {}", STANDARD.encode(text))));
        }
        let is_token = !text.is_empty() && text.chars().all(is_of_token);
        is_token
            .then(|| Self(format!("Bearer {text}")))
            .ok_or(NoCredential)
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential(..)")
    }
}

/// What a far end that let us in is called and can do, and what requests show it.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    /// What people call it.
    pub(super) name: String,
    /// Who asks.
    shown: Headers,
    templates: Templates,
    pub(super) settings: Settings,
    /// What we offer beyond RFC 9298 and RFC 9484.
    pub(super) offered: Extensions,
    /// Whether the far end heeds how it is asked to treat what it sends.
    hears_treatments: bool,
}

impl Terms {
    fn headers(&self, treatment: &Treatment) -> Headers {
        let mut headers = self.shown.clone();
        if self.hears_treatments {
            treatment::put(&mut headers, treatment);
        }
        headers
    }

    /// The request for a TCP connection.
    pub(super) fn connect(&self, target: &Target, treatment: &Treatment) -> Request {
        Request {
            line: self.templates.request(&Ask::Connect(target.clone())),
            headers: self.headers(treatment),
        }
    }

    /// The request for a tunnel of datagrams; `None` if the far end takes no such requests.
    pub(super) fn ask(
        &self,
        ask: &Ask,
        offered: Extensions,
        treatment: &Treatment,
    ) -> Option<Request> {
        let mut headers = self.headers(treatment);
        offered.put(&mut headers);
        self.settings.connect_protocol.then(|| Request {
            line: self.templates.request(ask),
            headers,
        })
    }
}

impl Entrance {
    /// The credentials that may let us in, to be tried in this order. Asks nobody.
    pub(super) async fn known(&self) -> Result<Vec<Known>, Failed> {
        match self {
            Self::Exit(invited) => invited.known().await,
            Self::Proxy(_) => Ok(Vec::new()),
        }
    }

    /// What we offer beyond the RFCs.
    pub(super) fn offered(&self) -> Extensions {
        match self {
            Self::Exit(_) => payloads::OURS,
            // Drafts change while what they are offered by stays the same.
            Self::Proxy(_) => Extensions::default(),
        }
    }

    /// Whether payloads may precede the answer to their request: RFC 9298, section 5, allows it,
    /// but not everybody's proxy has to like it.
    pub(super) fn takes_early(&self) -> bool {
        matches!(self, Self::Exit(_))
    }

    /// Gets us in on a new connection. Removes credentials from `known` that do not let us in any
    /// more.
    pub(super) async fn enter(
        &self,
        session: &Session,
        known: &mut Vec<Known>,
    ) -> Result<Terms, Failed> {
        match self {
            Self::Exit(invited) => {
                let (name, shown) = invited.enter(session, known).await?;
                Ok(Terms {
                    name,
                    shown,
                    templates: crate::templates(),
                    settings: settings(session).await?,
                    offered: self.offered(),
                    hears_treatments: true,
                })
            }
            Self::Proxy(proxy) => Ok(Terms {
                name: proxy.authority.clone(),
                shown: proxy.shown(),
                templates: proxy.templates.clone(),
                settings: settings(session).await?,
                offered: self.offered(),
                hears_treatments: false,
            }),
        }
    }

    /// What to tell a user whose requests are refused because of who we are. An exit says so when
    /// we enter.
    pub(super) fn denied(&self) -> Option<Failed> {
        let Self::Proxy(proxy) = self else {
            return None;
        };
        let (words, hint) = if proxy.credential.is_some() {
            (
                "the proxy does not accept the credential",
                "`--credential FILE` has to hold what its operator gave: USER:PASSWORD, or a token",
            )
        } else {
            (
                "the proxy wants to know who this is",
                "put USER:PASSWORD, or a token, into a file: `--credential FILE`",
            )
        };
        Some(Failed {
            words: words.into(),
            hint: hint.into(),
            is_final: false,
        })
    }
}

/// What the far end says about itself.
async fn settings(session: &Session) -> Result<Settings, Failed> {
    let told = session.settings().await;
    told.map_err(|reason| speaks_none(&reason.into()))
}

impl Invited {
    async fn known(&self) -> Result<Vec<Known>, Failed> {
        let (kept, server) = (self.kept.clone(), self.server.clone());
        let invitation = self.invitation.clone();
        let known = on_disk(move || kept.for_server(&server, invitation.as_ref())).await;
        let known = known.map_err(|error| Failed::not_now(error.to_string()))?;
        if known.is_empty() {
            return Err(not_let_in(self.invitation.is_some()));
        }
        Ok(known)
    }

    /// Shows what may let us in, one after the other. Returns what the exit calls itself, and what
    /// it knows us by.
    async fn enter(
        &self,
        session: &Session,
        known: &mut Vec<Known>,
    ) -> Result<(String, Headers), Failed> {
        while let Some(mut first) = known.first().cloned() {
            let authorization = format!("Bearer {}", first.credential.as_str());
            let shown = Headers::new().with("authorization", authorization);
            let mut headers = shown.clone().with(NAME, plain_name(&self.name));
            if let Some(invitation) = self.invitation.as_ref().filter(|_| !first.is_accepted) {
                headers.push(INVITATION, invitation.as_str().to_owned());
            }
            let line = RequestLine::Other {
                method: "POST".into(),
                scheme: "https".into(),
                authority: Some(crate::AUTHORITY.into()),
                path: crate::JOIN_PATH.into(),
            };
            let asked = session.request(&Request { line, headers }).await;
            let (mut outgoing, mut incoming) = asked.map_err(|broken| speaks_none(&broken))?;
            outgoing.finish();
            let response = incoming.response().await;
            let response = response.map_err(|broken| speaks_none(&broken))?;
            if response.is_success() {
                if !first.is_accepted {
                    first.is_accepted = true;
                    let (kept, accepted) = (self.kept.clone(), first.clone());
                    let written = on_disk(move || kept.accept(&accepted)).await;
                    written.map_err(|error| Failed::not_now(error.to_string()))?;
                }
                *known = vec![first];
                let name = plain_name(response.headers.text(NAME).unwrap_or_default());
                return Ok((name, shown));
            }
            match Refusal::of(&response) {
                Refusal::Unauthenticated => drop(known.remove(0)),
                refusal => {
                    let status = response.status;
                    let words = format!("not let in now: {refusal} (status {status})");
                    return Err(Failed::not_now(words));
                }
            }
        }
        Err(not_let_in(self.invitation.is_some()))
    }
}

/// The connection broke before we were in.
pub(super) fn speaks_none(broken: &Broken) -> Failed {
    Failed::not_now(format!("the far end speaks no tunnel: {broken}"))
}

fn not_let_in(was_invited: bool) -> Failed {
    let (words, hint) = if was_invited {
        (
            "the far end does not let this machine in: the invitation in the URL was used by \
             another one, is older than a week, or was revoked",
            "`anabranch tunnel invite` there prints a new URL",
        )
    } else {
        (
            "the far end does not let this machine in",
            "take the whole URL that `anabranch tunnel invite` prints there",
        )
    };
    Failed {
        words: words.into(),
        hint: hint.into(),
        is_final: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_a_password_or_a_token_and_never_shown_by_chance() {
        let value = |text: &str| text.parse::<Credential>().map(|one| one.0);
        assert_eq!(
            value("Aladdin:open sesame").as_deref(),
            Ok("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==")
        );
        assert_eq!(
            value("mF_9.B5f-4.1JqM=").as_deref(),
            Ok("Bearer mF_9.B5f-4.1JqM=")
        );
        for text in ["", "two words", "a:b\nc", "\u{e4}"] {
            assert_eq!(value(text), Err(NoCredential), "{text:?}");
        }
        let one: Credential = "user:password".parse().unwrap();
        let proxy = Proxy::at("h").unwrap().with_credential(one.clone());
        assert!(!format!("{one:?}{proxy:?}").contains(&one.0));
    }

    #[test]
    fn a_proxy_is_asked_by_its_templates_wherever_they_are() {
        let path = |proxy: Proxy, ask: &Ask| match proxy.templates.request(ask) {
            RequestLine::Extended {
                authority, path, ..
            } => format!("{authority}{path}"),
            other => panic!("{other:?}"),
        };
        let proxy = || Proxy::at("[2001:db8::1]:4433").unwrap();
        let udp = Ask::Udp("a.example:53".parse().ok());
        let expected = "[2001:db8::1]:4433/.well-known/masque/udp/a.example/53/";
        assert_eq!(path(proxy(), &udp), expected);
        let own = proxy().with_udp("/u?h={target_host}&p={target_port}");
        let expected = "[2001:db8::1]:4433/u?h=a.example&p=53";
        assert_eq!(path(own.unwrap(), &udp), expected);
        let elsewhere = proxy().with_udp("https://b.example/{target_host},{target_port}");
        assert_eq!(path(elsewhere.unwrap(), &udp), "b.example/a.example,53");
        let ip = Ask::Ip(anabranch_masque::target::Scope::ALL);
        let own = proxy().with_ip("/ip/*/*/");
        assert_eq!(path(own.unwrap(), &ip), "[2001:db8::1]:4433/ip/*/*/");
        assert!(proxy().with_udp("/u/{target_host}").is_err());
        assert!(proxy().with_ip("ip/").is_err());
        assert!(Proxy::at("user@h").is_none());
    }
}
