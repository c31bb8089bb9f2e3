//! Requests.

use super::check;
use crate::error::{Error, malformed};
use crate::field::{Field, Headers};
use crate::protocol::Protocol;
use bytes::Bytes;

/// What a request asks for: its pseudo-header fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestLine {
    /// A TCP connection to a host and port (RFC 9114, section 4.4).
    Connect {
        /// `:authority`, which names the target.
        authority: String,
    },
    /// A tunnel of another kind (RFC 9220).
    Extended {
        /// `:protocol`, which says what kind.
        protocol: String,
        /// `:scheme`
        scheme: String,
        /// `:authority`, which names the proxy.
        authority: String,
        /// `:path`, which names the target by the proxy's URI template.
        path: String,
    },
    /// Anything else. It is read to be answered.
    Other {
        /// `:method`
        method: String,
        /// `:scheme`
        scheme: String,
        /// `:authority`, or the field `host` in its place.
        authority: Option<String>,
        /// `:path`
        path: String,
    },
}

/// A request's header section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// What the request asks for.
    pub line: RequestLine,
    /// The request's other fields.
    pub headers: Headers,
}

/// Pseudo-header fields as they come, each at most once.
#[derive(Default)]
struct Pseudo {
    method: Option<Bytes>,
    protocol: Option<Bytes>,
    scheme: Option<Bytes>,
    authority: Option<Bytes>,
    path: Option<Bytes>,
}

impl Pseudo {
    fn set(&mut self, field: Field) -> Result<(), Error> {
        let slot = match &field.name[..] {
            b":method" => &mut self.method,
            b":protocol" => &mut self.protocol,
            b":scheme" => &mut self.scheme,
            b":authority" => &mut self.authority,
            b":path" => &mut self.path,
            _ => return Err(malformed("a pseudo-header field that no request has")),
        };
        match slot.replace(field.value) {
            None => Ok(()),
            Some(_) => Err(malformed("a pseudo-header field occurs twice")),
        }
    }
}

impl Request {
    /// A request without other fields.
    pub const fn new(line: RequestLine) -> Self {
        Self {
            line,
            headers: Headers::new(),
        }
    }

    /// Reads a header section.
    ///
    /// # Errors
    /// Of the stream: the request is malformed.
    pub fn from_fields(fields: Vec<Field>) -> Result<Self, Error> {
        let (mut pseudo, mut headers) = (Pseudo::default(), Vec::new());
        for field in fields {
            if !field.name.starts_with(b":") {
                check::regular(&field)?;
                headers.push(field);
            } else if headers.is_empty() {
                pseudo.set(field)?;
            } else {
                return Err(malformed("a pseudo-header field after other fields"));
            }
        }
        let headers = Headers::from(headers);
        let line = RequestLine::new(pseudo, &headers)?;
        if let RequestLine::Extended { protocol, .. } = &line
            && Protocol::from_token(protocol).is_some()
        {
            check::without_content(&headers)?;
        }
        Ok(Self { line, headers })
    }

    /// The header section.
    pub fn to_fields(&self) -> Vec<Field> {
        let mut fields = Vec::new();
        let mut put = |name: &'static str, value: &str| {
            fields.push(Field::new(name, value.to_owned()));
        };
        match &self.line {
            RequestLine::Connect { authority } => {
                put(":method", "CONNECT");
                put(":authority", authority);
            }
            RequestLine::Extended {
                protocol,
                scheme,
                authority,
                path,
            } => {
                put(":method", "CONNECT");
                put(":protocol", protocol);
                put(":scheme", scheme);
                put(":authority", authority);
                put(":path", path);
            }
            RequestLine::Other {
                method,
                scheme,
                authority,
                path,
            } => {
                put(":method", method);
                put(":scheme", scheme);
                // Without `:authority` it is the field `host`, which is among the others.
                if let Some(authority) = authority.as_ref().filter(|_| !self.has_host()) {
                    put(":authority", authority);
                }
                put(":path", path);
            }
        }
        fields.extend(self.headers.iter().cloned());
        fields
    }

    fn has_host(&self) -> bool {
        self.headers.all("host").next().is_some()
    }
}

impl RequestLine {
    fn new(pseudo: Pseudo, headers: &Headers) -> Result<Self, Error> {
        let method = pseudo.method.ok_or(malformed("a request has no :method"))?;
        let method = check::token(&method)?;
        let authority = authority(pseudo.authority.as_ref(), headers)?;
        // What a CONNECT asks for, or whom, is said by `:authority` alone.
        let own = authority.clone().filter(|_| pseudo.authority.is_some());
        match (method == "CONNECT", pseudo.protocol) {
            (true, None) => {
                if pseudo.scheme.is_some() || pseudo.path.is_some() {
                    return Err(malformed("a CONNECT has a :scheme or a :path"));
                }
                let authority = own.ok_or(malformed("a CONNECT has no :authority"))?;
                Ok(Self::Connect { authority })
            }
            (true, Some(protocol)) => {
                let (scheme, path) = scheme_and_path(pseudo.scheme, pseudo.path)?;
                Ok(Self::Extended {
                    protocol: check::token(&protocol)?,
                    scheme,
                    authority: own.ok_or(malformed("an extended CONNECT has no :authority"))?,
                    path,
                })
            }
            (false, Some(_)) => Err(malformed("a request other than CONNECT has a :protocol")),
            (false, None) => {
                let (scheme, path) = scheme_and_path(pseudo.scheme, pseudo.path)?;
                if authority.is_none() && matches!(&scheme[..], "http" | "https") {
                    return Err(malformed("a request has neither :authority nor host"));
                }
                Ok(Self::Other {
                    method,
                    scheme,
                    authority,
                    path,
                })
            }
        }
    }
}

/// `:authority`, or `host` in its place; if both are there, they are the same.
fn authority(pseudo: Option<&Bytes>, headers: &Headers) -> Result<Option<String>, Error> {
    let mut hosts = headers.all("host");
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(malformed("a request has several fields host"));
    }
    if let (Some(authority), Some(host)) = (pseudo, host)
        && authority != host
    {
        return Err(malformed("the fields :authority and host differ"));
    }
    let Some(value) = pseudo.or(host) else {
        return Ok(None);
    };
    let text = check::visible(value)?;
    if text.contains('@') {
        return Err(malformed("an authority names a user"));
    }
    Ok(Some(text))
}

fn scheme_and_path(scheme: Option<Bytes>, path: Option<Bytes>) -> Result<(String, String), Error> {
    let scheme = scheme.ok_or(malformed("a request has no :scheme"))?;
    let path = path.ok_or(malformed("a request has no :path"))?;
    let (scheme, path) = (check::token(&scheme)?, check::visible(&path)?);
    // `*` is that of OPTIONS for the whole server.
    if matches!(&scheme[..], "http" | "https") && !path.starts_with('/') && path != "*" {
        return Err(malformed("a :path does not begin with a slash"));
    }
    Ok((scheme, path))
}
