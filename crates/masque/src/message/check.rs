//! What names and values of fields may be (RFC 9114, sections 4.2 and 10.3; RFC 9110, section 5).

use crate::error::{Error, malformed};
use crate::field::{Field, Headers};
use bytes::Bytes;

/// Whether a byte may be in a token: a method, a protocol, in lowercase also a field's name.
pub(super) const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.')
        || matches!(byte, b'^'..=b'`' | b'|' | b'~')
}

/// Checks a field that is no pseudo-header.
pub(super) fn regular(field: &Field) -> Result<(), Error> {
    let name = &field.name[..];
    if name.iter().any(u8::is_ascii_uppercase) {
        return Err(malformed("a field's name has capital letters"));
    }
    if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) {
        return Err(malformed("a field's name has characters that no name has"));
    }
    let is_control = |byte: &u8| byte.is_ascii_control() && *byte != b'\t';
    if field.value.iter().any(is_control) {
        return Err(malformed("a field's value has control characters"));
    }
    match name {
        b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => {
            Err(malformed("a field is about a connection of HTTP/1.1"))
        }
        b"te" if &field.value[..] != b"trailers" => {
            Err(malformed("the field te is not `trailers`"))
        }
        _ => Ok(()),
    }
}

/// Checks that nothing is said of content: a tunnel of capsules has none (RFC 9297, section 3.2).
pub(super) fn without_content(headers: &Headers) -> Result<(), Error> {
    let is_of_content =
        |field: &Field| matches!(&field.name[..], b"content-length" | b"content-type");
    if headers.iter().any(is_of_content) {
        return Err(malformed("a tunnel of capsules has fields about content"));
    }
    Ok(())
}

/// The text of a pseudo-header: visible ASCII, at least one character.
pub(super) fn visible(value: &Bytes) -> Result<String, Error> {
    let text = std::str::from_utf8(value).ok();
    let is_fine =
        |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    let text = text.filter(is_fine);
    text.map(str::to_owned).ok_or(malformed(
        "a pseudo-header field is empty or not plain text",
    ))
}

/// The text of a pseudo-header that is one token.
pub(super) fn token(value: &Bytes) -> Result<String, Error> {
    if !value.iter().all(|byte| is_token(*byte)) {
        return Err(malformed("a pseudo-header field is not one word"));
    }
    visible(value)
}
