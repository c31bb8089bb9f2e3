//! Responses.

use super::check;
use crate::error::{Error, malformed};
use crate::field::{Field, Headers};

/// A response's header section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The status code, from 100 to 999.
    pub status: u16,
    /// The response's other fields.
    pub headers: Headers,
}

impl Response {
    /// A response without other fields.
    pub const fn new(status: u16) -> Self {
        Self {
            status,
            headers: Headers::new(),
        }
    }

    /// Reads a header section.
    ///
    /// # Errors
    /// Of the stream: the response is malformed.
    pub fn from_fields(fields: Vec<Field>) -> Result<Self, Error> {
        let (mut status, mut headers) = (None, Vec::new());
        for field in fields {
            if !field.name.starts_with(b":") {
                check::regular(&field)?;
                if &field.name[..] == b"te" {
                    return Err(malformed("a response has the field te"));
                }
                headers.push(field);
            } else if &field.name[..] != b":status" {
                return Err(malformed("a pseudo-header field that no response has"));
            } else if !headers.is_empty() {
                return Err(malformed("a pseudo-header field after other fields"));
            } else if status.replace(status_code(&field.value)?).is_some() {
                return Err(malformed("a response has two fields :status"));
            }
        }
        Ok(Self {
            status: status.ok_or(malformed("a response has no :status"))?,
            headers: headers.into(),
        })
    }

    /// The header section.
    pub fn to_fields(&self) -> Vec<Field> {
        let mut fields = vec![Field::new(":status", self.status.to_string())];
        fields.extend(self.headers.iter().cloned());
        fields
    }

    /// Whether another response to the same request follows.
    pub const fn is_interim(&self) -> bool {
        is_interim(self.status)
    }

    /// Whether a CONNECT succeeded (RFC 9110, section 9.3.6).
    pub const fn is_success(&self) -> bool {
        is_success(self.status)
    }

    /// Whether a tunnel of capsules begins: the extended CONNECT succeeded.
    ///
    /// # Errors
    /// Of the stream: it says that it succeeded, and has content (RFC 9297, section 3.2).
    pub fn opens_capsules(&self) -> Result<bool, Error> {
        if !self.is_success() {
            return Ok(false);
        }
        if matches!(self.status, 204..=206) {
            return Err(malformed("a tunnel begins with a status of content"));
        }
        check::without_content(&self.headers)?;
        Ok(true)
    }
}

const fn is_interim(status: u16) -> bool {
    matches!(status, 100..=199)
}

const fn is_success(status: u16) -> bool {
    matches!(status, 200..=299)
}

/// What a status means for what follows on its stream.
pub(crate) enum Following {
    /// Another response.
    Response,
    /// What the tunnel carries.
    Tunnel,
    /// Why there is no tunnel.
    Content,
}

/// What follows a response to a CONNECT. One that is malformed is found later, by
/// [`Response::from_fields`].
pub(crate) fn following(fields: &[Field]) -> Following {
    let status = fields.iter().find(|field| &field.name[..] == b":status");
    match status.and_then(|field| status_code(&field.value).ok()) {
        Some(status) if is_interim(status) => Following::Response,
        Some(status) if is_success(status) => Following::Tunnel,
        _ => Following::Content,
    }
}

fn status_code(value: &[u8]) -> Result<u16, Error> {
    match value {
        [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] => {
            let digit = |byte: &u8| u16::from(byte - b'0');
            let status = 100 * digit(a) + 10 * digit(b) + digit(c);
            // RFC 9114, section 4.5.
            if status == 101 {
                return Err(malformed("HTTP/3 has no status 101"));
            }
            Ok(status)
        }
        _ => Err(malformed("a :status is not three digits")),
    }
}
