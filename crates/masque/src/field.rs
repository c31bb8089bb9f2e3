//! Fields, and the header of a message without its pseudo-header fields.

use bytes::Bytes;
use std::fmt;

/// A name and its value, as in a field section. Names that begin with a colon are pseudo-headers.
#[derive(Clone, PartialEq, Eq)]
pub struct Field {
    /// The name.
    pub name: Bytes,
    /// The value.
    pub value: Bytes,
}

impl Field {
    /// A field. Names are to be lowercase; nothing is checked here.
    pub fn new(name: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self {
            name: name.into(),
            value: value.into(),
        }
    }

    /// Whether the value proves who somebody is: it is not to be indexed or printed.
    pub(crate) fn is_secret(&self) -> bool {
        matches!(
            &self.name[..],
            b"authorization" | b"proxy-authorization" | b"cookie" | b"set-cookie"
        )
    }
}

impl fmt::Debug for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value: &dyn fmt::Display = if self.is_secret() {
            &"(secret)"
        } else {
            &self.value.escape_ascii()
        };
        write!(f, "{}: {value}", self.name.escape_ascii())
    }
}

/// The header fields of a request or response, in their order.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Headers(Vec<Field>);

impl Headers {
    /// None.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Appends a header: for headers written down in one expression.
    #[must_use]
    pub fn with(mut self, name: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        self.push(name, value);
        self
    }

    /// Appends a field, with its name in lowercase.
    pub fn push(&mut self, name: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.0.push(Field::new(name, value));
    }

    /// The fields.
    pub fn iter(&self) -> std::slice::Iter<'_, Field> {
        self.0.iter()
    }

    /// The values of all fields with this name.
    pub fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Bytes> {
        let named = self.iter().filter(move |field| field.name == name);
        named.map(|field| &field.value)
    }

    /// The value of the one field with this name; `None` if there is none, or several.
    pub fn one(&self, name: &str) -> Option<&Bytes> {
        let mut all = self.all(name);
        let value = all.next()?;
        all.next().is_none().then_some(value)
    }

    /// The only value of this name, as text.
    pub fn text(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.one(name)?).ok()
    }

    /// Whether a structured field of type Boolean is there and true (RFC 8941, section 3.3.6).
    /// Anything but a Boolean counts as no field, and parameters mean nothing.
    pub fn is_true(&self, name: &str) -> bool {
        let value = self.one(name).map(|value| value.trim_ascii());
        let rest = value.and_then(|value| value.strip_prefix(b"?1"));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b";"))
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.0).finish()
    }
}

impl From<Vec<Field>> for Headers {
    fn from(fields: Vec<Field>) -> Self {
        Self(fields)
    }
}

impl<'a> IntoIterator for &'a Headers {
    type Item = &'a Field;
    type IntoIter = std::slice::Iter<'a, Field>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_single_true_boolean_counts_as_true() {
        let is_true = |value: &'static str| Headers::new().with("x", value).is_true("x");
        assert!(is_true("?1") && is_true(" ?1 ") && is_true("?1;a=b"));
        assert!(!is_true("?0") && !is_true("1") && !is_true("?1, ?1") && !is_true("?10"));
        assert!(!Headers::new().is_true("x"));
        let twice = Headers::new().with("x", "?1").with("x", "?1");
        assert!(!twice.is_true("x"));
    }

    #[test]
    fn credentials_are_not_printed() {
        let headers = Headers::new()
            .with("authorization", "Bearer 123")
            .with("a", "\u{1b}");
        assert_eq!(
            format!("{headers:?}"),
            r"[authorization: (secret), a: \x1b]"
        );
    }
}
