//! Requests and responses: field sections that keep to RFC 9114, sections 4.1 to 4.4.
//!
//! CONNECT asks for a tunnel over TCP, extended CONNECT (RFC 9220) for one of another kind. Any
//! other request is read as well, so that it can be answered. Whether a target, protocol or path
//! makes sense is not decided here.

mod check;
mod request;
mod response;

pub use request::{Request, RequestLine};
pub use response::Response;
pub(crate) use response::{Following, following};

use crate::error::{Error, malformed};
use crate::field::Field;

/// Checks a trailer section, which nothing here uses.
pub(crate) fn check_trailers(fields: &[Field]) -> Result<(), Error> {
    for field in fields {
        if field.name.starts_with(b":") {
            return Err(malformed("a trailer section has a pseudo-header field"));
        }
        check::regular(field)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
