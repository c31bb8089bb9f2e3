//! URI templates of level 3 or lower (RFC 6570) as RFC 9298, section 2, allows them.
//!
//! A client fills in its variables; a proxy reads them from the path it was asked for. Variables are
//! in the path and the query only, in the three forms `{a,b}`, `{?a,b}` and `{&a,b}`.

use std::fmt;

/// Bytes of a template: what somebody types, not what a peer sends.
const MAX_TEMPLATE: usize = 2048;

/// A piece of a template's path and query.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Literal(String),
    /// `{a,b}`
    Simple(Vec<String>),
    /// `{?a,b}` or `{&a,b}`, with its first character.
    Query(char, Vec<String>),
}

/// A URI template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    scheme: String,
    authority: String,
    pieces: Vec<Piece>,
}

/// Why a text is no template that can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTemplate {
    /// The text is too long or has characters that no template has.
    #[error("a template has at most 2048 visible ASCII characters")]
    Text,
    /// A part of the URI is missing, or has a variable where none may be.
    #[error("a template is scheme://authority/path, with variables in its path or query")]
    Form,
    /// A variable's expression is not closed, empty or of a form that is not allowed.
    #[error("a template's variables are {{name}}, {{a,b}}, {{?a,b}} or {{&a,b}}")]
    Expression,
    /// The variables for the host or the port are missing.
    #[error("the template lacks the variable target_host or target_port")]
    Variables,
}

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// [`InvalidTemplate`] if it is none, or one that RFC 9298 forbids.
    pub fn parse(text: &str) -> Result<Self, InvalidTemplate> {
        if text.len() > MAX_TEMPLATE || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(InvalidTemplate::Text);
        }
        let (scheme, rest) = text.split_once("://").ok_or(InvalidTemplate::Form)?;
        let slash = rest.find('/').ok_or(InvalidTemplate::Form)?;
        let (authority, path) = rest.split_at(slash);
        let is_scheme =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        let has_others = |c: char| matches!(c, '{' | '}' | '?' | '#' | '@');
        if scheme.is_empty()
            || !scheme.bytes().all(is_scheme)
            || authority.is_empty()
            || authority.contains(has_others)
            || path.contains('#')
        {
            return Err(InvalidTemplate::Form);
        }
        Ok(Self {
            scheme: scheme.to_owned(),
            authority: authority.to_owned(),
            pieces: pieces(path)?,
        })
    }

    /// What stands before `://`.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// The proxy's host, with its port if it has one.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Whether it has a variable of this name.
    pub fn has(&self, name: &str) -> bool {
        self.pieces.iter().any(|piece| match piece {
            Piece::Literal(_) => false,
            Piece::Simple(names) | Piece::Query(_, names) => names.iter().any(|own| own == name),
        })
    }

    /// The path and query with these values for its variables; others are left out.
    pub fn expand(&self, values: &[(&str, &str)]) -> String {
        let value = |name: &String| {
            let found = values.iter().find(|(own, _)| own == name);
            found.map(|(name, value)| (*name, encode(value)))
        };
        let mut out = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Literal(text) => out.push_str(text),
                Piece::Simple(names) => {
                    let values = names.iter().filter_map(value);
                    let values: Vec<_> = values.map(|(_, value)| value).collect();
                    out.push_str(&values.join(","));
                }
                Piece::Query(first, names) => {
                    let mut separator = *first;
                    for (name, value) in names.iter().filter_map(value) {
                        out.push(separator);
                        out.push_str(name);
                        out.push('=');
                        out.push_str(&value);
                        separator = '&';
                    }
                }
            }
        }
        out
    }

    /// The values of its variables in a path and query that was expanded from it, decoded; `None` if
    /// it was not, or if a value is empty or no text.
    pub fn read(&self, path: &str) -> Option<Vec<(&str, String)>> {
        let (mut rest, mut values) = (path, Vec::new());
        for piece in &self.pieces {
            match piece {
                Piece::Literal(text) => rest = rest.strip_prefix(text.as_str())?,
                Piece::Simple(names) => {
                    for (index, name) in names.iter().enumerate() {
                        if index > 0 {
                            rest = rest.strip_prefix(',')?;
                        }
                        values.push((name.as_str(), take_value(&mut rest)?));
                    }
                }
                Piece::Query(first, names) => {
                    let mut separator = *first;
                    for name in names {
                        let after = rest.strip_prefix(separator);
                        let after = after.and_then(|rest| rest.strip_prefix(name.as_str()));
                        // A variable without a value is left out with its name.
                        let Some(after) = after.and_then(|rest| rest.strip_prefix('=')) else {
                            continue;
                        };
                        rest = after;
                        values.push((name.as_str(), take_value(&mut rest)?));
                        separator = '&';
                    }
                }
            }
        }
        rest.is_empty().then_some(values)
    }
}

/// Takes a value off the front of a path: up to a character that would be encoded in one. Colons and
/// stars should be encoded and often are not.
fn take_value(rest: &mut &str) -> Option<String> {
    let is_of_value = |c: char| is_unreserved(c) || matches!(c, '%' | ':' | '*');
    let end = rest.find(|c| !is_of_value(c)).unwrap_or(rest.len());
    let (value, after) = rest.split_at(end);
    *rest = after;
    decode(value).filter(|value| !value.is_empty())
}

const fn is_unreserved(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '~')
}

/// Percent-encodes all but unreserved characters (RFC 6570, section 3.2.1).
fn encode(text: &str) -> String {
    use fmt::Write as _;
    let mut out = String::new();
    for byte in text.bytes() {
        if is_unreserved(byte.into()) {
            out.push(byte.into());
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// Undoes it; `None` for what no encoding gives.
fn decode(text: &str) -> Option<String> {
    let (mut out, mut bytes) = (Vec::new(), text.bytes());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        out.push((high << 4 | low) as u8);
    }
    String::from_utf8(out).ok()
}

fn pieces(path: &str) -> Result<Vec<Piece>, InvalidTemplate> {
    let (mut rest, mut pieces) = (path, Vec::new());
    while let Some((literal, after)) = rest.split_once('{') {
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal.to_owned()));
        }
        let (expression, after) = after.split_once('}').ok_or(InvalidTemplate::Expression)?;
        pieces.push(piece(expression)?);
        rest = after;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Literal(rest.to_owned()));
    }
    let is_closed = |piece: &Piece| matches!(piece, Piece::Literal(text) if text.contains('}'));
    if pieces.iter().any(is_closed) {
        return Err(InvalidTemplate::Expression);
    }
    Ok(pieces)
}

fn piece(expression: &str) -> Result<Piece, InvalidTemplate> {
    let first = expression
        .chars()
        .next()
        .ok_or(InvalidTemplate::Expression)?;
    let is_query = matches!(first, '?' | '&');
    let names = if is_query {
        &expression[1..]
    } else {
        expression
    };
    // Operators and modifiers of other forms are no characters of names.
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.';
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(is_of_name);
    if first == '.' || !names.split(',').all(is_name) {
        return Err(InvalidTemplate::Expression);
    }
    let names = names.split(',').map(str::to_owned).collect();
    Ok(if is_query {
        Piece::Query(first, names)
    } else {
        Piece::Simple(names)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEMPLATES: [&str; 4] = [
        "https://example.org/.well-known/masque/udp/{target_host}/{target_port}/",
        "https://proxy.example.org:4443/masque?h={target_host}&p={target_port}",
        "https://proxy.example.org:4443/masque{?target_host,target_port}",
        "https://proxy.example.org:4443/masque?x=y{&target_host,target_port}",
    ];

    #[test]
    fn the_examples_of_rfc_9298_are_expanded_and_read() {
        let wanted = [
            "/.well-known/masque/udp/2001%3Adb8%3A%3A42/443/",
            "/masque?h=2001%3Adb8%3A%3A42&p=443",
            "/masque?target_host=2001%3Adb8%3A%3A42&target_port=443",
            "/masque?x=y&target_host=2001%3Adb8%3A%3A42&target_port=443",
        ];
        let values = [("target_host", "2001:db8::42"), ("target_port", "443")];
        for (text, wanted) in TEMPLATES.into_iter().zip(wanted) {
            let template = Template::parse(text).unwrap();
            assert_eq!(template.expand(&values), wanted);
            let owned = values.map(|(name, value)| (name, value.to_owned()));
            assert_eq!(template.read(wanted), Some(owned.to_vec()));
            assert!(template.has("target_host") && !template.has("target"));
        }
        let template = Template::parse(TEMPLATES[1]).unwrap();
        assert_eq!(
            (template.scheme(), template.authority()),
            ("https", "proxy.example.org:4443")
        );
    }

    #[test]
    fn variables_without_a_value_are_left_out() {
        let template = Template::parse("https://a/b{?x,y,z}{&v}").unwrap();
        let only = template.expand(&[("y", "1"), ("v", "2")]);
        assert_eq!(only, "/b?y=1&v=2");
        let read = template.read(&only).unwrap();
        assert_eq!(read, [("y", "1".to_owned()), ("v", "2".to_owned())]);
        assert_eq!(template.expand(&[]), "/b");
        assert_eq!(template.read("/b"), Some(Vec::new()));
    }

    #[test]
    fn several_simple_variables_are_separated_by_commas() {
        let template = Template::parse("https://a/{x,y}").unwrap();
        assert_eq!(template.expand(&[("x", "1"), ("y", "a,b")]), "/1,a%2Cb");
        let read = template.read("/1,a%2Cb").unwrap();
        assert_eq!(read, [("x", "1".to_owned()), ("y", "a,b".to_owned())]);
    }

    #[test]
    fn values_are_read_as_careless_clients_write_them() {
        let template = Template::parse(TEMPLATES[0]).unwrap();
        let read = template
            .read("/.well-known/masque/udp/2001:db8::1/443/")
            .unwrap();
        assert_eq!(read[0].1, "2001:db8::1");
        let read = template.read("/.well-known/masque/udp/*/%2a/").unwrap();
        assert_eq!((&*read[0].1, &*read[1].1), ("*", "*"));
    }

    #[test]
    fn other_paths_are_not_of_the_template() {
        let template = Template::parse(TEMPLATES[0]).unwrap();
        for path in [
            "/",
            "/.well-known/masque/udp/a/443",
            "/.well-known/masque/udp/a/443/x",
            "/.well-known/masque/udp//443/",
            "/.well-known/masque/udp/a/b/443/",
            "/.well-known/masque/udp/%/443/",
            "/.well-known/masque/udp/%4/443/",
            "/.well-known/masque/udp/%zz/443/",
            "/.well-known/masque/udp/%ff/443/",
            "/.well-known/masque/udp/a/443/?x",
        ] {
            assert_eq!(template.read(path), None, "{path}");
        }
    }

    #[test]
    fn templates_that_rfc_9298_forbids_are_refused() {
        for text in [
            "https://a/{+x}",
            "https://a/{#x}",
            "https://a/{.x}",
            "https://a{/x}",
            "https://a/{;x}",
            "https://a/{x:3}",
            "https://a/{x*}",
            "https://a/{}",
            "https://a/{?}",
            "https://a/{x,}",
            "https://a/{x",
            "https://a/x}",
            "https://a/{x}}",
            "https://a/{{x}}",
            "https://a/{=x}",
        ] {
            assert!(Template::parse(text).is_err(), "{text}");
        }
        for text in [
            "/x",
            "https:///x",
            "https://a",
            "https://{x}/y",
            "https://a?x/",
            "https://u@a/",
            "https://a/#x",
            "://a/",
        ] {
            assert_eq!(Template::parse(text), Err(InvalidTemplate::Form), "{text}");
        }
        for text in ["https://a/ x", "https://a/\u{e4}", "https://a/\n"] {
            assert_eq!(
                Template::parse(text),
                Err(InvalidTemplate::Text),
                "{text:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn values_come_back(
            text in prop::sample::select(TEMPLATES.to_vec()),
            host in "\\PC{1,20}",
            port in "\\PC{1,8}",
        ) {
            let template = Template::parse(text).unwrap();
            let path = template.expand(&[("target_host", &host), ("target_port", &port)]);
            prop_assert!(path.is_ascii());
            let values = vec![("target_host", host), ("target_port", port)];
            prop_assert_eq!(template.read(&path), Some(values));
        }

        #[test]
        fn any_text_is_a_template_or_refused(text in "https://a/[x{}?&,=+./]{0,12}", path in "/[x?&,=%1]{0,8}") {
            if let Ok(template) = Template::parse(&text) {
                let _ = template.read(&path);
                let _ = template.expand(&[("x", "1")]);
            }
        }
    }
}
