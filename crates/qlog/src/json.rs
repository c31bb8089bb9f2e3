//! Just enough JSON to write records, without an intermediate tree.

use anabranch_proto::time::Duration;
use std::fmt::{Display, Write};

/// An object under construction.
pub(super) struct Object<'a> {
    out: &'a mut String,
    empty: bool,
}

impl<'a> Object<'a> {
    /// Appends an object with the members that `fill` adds.
    pub(super) fn write(out: &'a mut String, fill: impl FnOnce(&mut Object<'_>)) {
        out.push('{');
        fill(&mut Object {
            out: &mut *out,
            empty: true,
        });
        out.push('}');
    }

    fn key(&mut self, key: &str) -> &mut String {
        if !std::mem::take(&mut self.empty) {
            self.out.push(',');
        }
        self.out.push('"');
        self.out.push_str(key);
        self.out.push_str("\":");
        self.out
    }

    pub(super) fn text(&mut self, key: &str, value: &str) {
        quote(self.key(key), value);
    }

    /// A text that needs no escapes.
    pub(super) fn display(&mut self, key: &str, value: &dyn Display) {
        let out = self.key(key);
        // Writing to a string cannot fail.
        let _ = write!(out, "\"{value}\"");
    }

    pub(super) fn number(&mut self, key: &str, value: impl Into<u64>) {
        let value = value.into();
        let _ = write!(self.key(key), "{value}");
    }

    pub(super) fn flag(&mut self, key: &str, value: bool) {
        self.key(key).push_str(if value { "true" } else { "false" });
    }

    /// A duration in milliseconds, exact to the nanosecond.
    pub(super) fn millis(&mut self, key: &str, value: Duration) {
        millis(self.key(key), value);
    }

    pub(super) fn hex(&mut self, key: &str, bytes: &[u8]) {
        let out = self.key(key);
        out.push('"');
        for byte in bytes {
            let _ = write!(out, "{byte:02x}");
        }
        out.push('"');
    }

    pub(super) fn object(&mut self, key: &str, fill: impl FnOnce(&mut Object<'_>)) {
        Object::write(self.key(key), fill);
    }

    /// An array whose items `write` appends.
    pub(super) fn list<T>(
        &mut self,
        key: &str,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut String, T),
    ) {
        let out = self.key(key);
        out.push('[');
        for (index, item) in items.into_iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            write(out, item);
        }
        out.push(']');
    }
}

/// Appends a string literal.
pub(super) fn quote(out: &mut String, value: &str) {
    out.push('"');
    for c in value.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

fn millis(out: &mut String, value: Duration) {
    let _ = write!(out, "{}", value.as_millis());
    let rest = value.subsec_nanos() % 1_000_000;
    if rest > 0 {
        let _ = write!(out, ".{rest:06}");
        out.truncate(out.trim_end_matches('0').len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(fill: impl FnOnce(&mut Object<'_>)) -> String {
        let mut out = String::new();
        Object::write(&mut out, fill);
        out
    }

    #[test]
    fn members_are_separated_and_nested() {
        let json = written(|o| {
            o.number("a", 1u32);
            o.object("b", |o| o.flag("c", true));
            o.list("d", [1, 2], |out, n| out.push_str(&n.to_string()));
            o.hex("e", &[0, 255]);
            o.object("f", |_| {});
        });
        assert_eq!(
            json,
            r#"{"a":1,"b":{"c":true},"d":[1,2],"e":"00ff","f":{}}"#
        );
    }

    #[test]
    fn milliseconds_keep_their_nanoseconds_and_no_zeros() {
        let of = |nanos| written(|o| o.millis("t", Duration::from_nanos(nanos)));
        assert_eq!(of(0), r#"{"t":0}"#);
        assert_eq!(of(1_500_000), r#"{"t":1.5}"#);
        assert_eq!(of(20_000_001), r#"{"t":20.000001}"#);
        assert_eq!(of(30_000_000), r#"{"t":30}"#);
    }

    proptest! {
        #[test]
        fn any_text_is_read_back_as_it_was(text in "\\PC*|[\\x00-\\x7f]*") {
            let json = written(|o| o.text("t", &text));
            let read: serde_json::Value = serde_json::from_str(&json).unwrap();
            prop_assert_eq!(read["t"].as_str(), Some(text.as_str()));
        }
    }
}
