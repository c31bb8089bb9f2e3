//! Lists and dictionaries of structured fields (RFC 9651), as far as the fields of proxies need
//! them.

use crate::field::Headers;
use std::fmt::Write as _;

/// A value without its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bare {
    /// A word.
    Token(String),
    /// Text in quotes.
    String(String),
    /// Another type, as it was written.
    Other(String),
}

/// What a flag is that is set.
const TRUE: &str = "?1";

/// The longest value of a dictionary that is read, in bytes.
const MAX_DICTIONARY: usize = 1024;

impl Bare {
    /// What a token or a string says.
    pub fn into_text(self) -> Option<String> {
        match self {
            Self::Token(text) | Self::String(text) => Some(text),
            Self::Other(_) => None,
        }
    }

    /// The whole number that it is, if it is one.
    pub fn integer(&self) -> Option<i64> {
        let Self::Other(text) = self else {
            return None;
        };
        // RFC 9651, section 4.2.4: fifteen digits, and no plus sign.
        let digits = text.strip_prefix('-').unwrap_or(text);
        let is_one = (1..=15).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
        is_one.then(|| text.parse().ok()).flatten()
    }

    /// Whether it is a flag that is set.
    pub fn is_true(&self) -> bool {
        matches!(self, Self::Other(text) if text == TRUE)
    }
}

/// The members of a dictionary in all fields of this name: the last one of each key counts, and
/// parameters are left out. `None` if it is none, or longer than anything that is asked for, or has
/// inner lists.
pub fn dictionary(headers: &Headers, name: &str) -> Option<Vec<(String, Bare)>> {
    let mut whole = String::new();
    for value in headers.all(name) {
        let text = std::str::from_utf8(value).ok()?;
        if whole.len() + text.len() > MAX_DICTIONARY {
            return None;
        }
        if !whole.is_empty() {
            whole.push(',');
        }
        whole.push_str(text);
    }
    let mut members: Vec<(String, Bare)> = Vec::new();
    separated(&whole, |rest| {
        let key = key(rest)?;
        let value = value(rest)?;
        parameters(rest)?;
        members.retain(|(other, _)| *other != key);
        members.push((key, value));
        Some(())
    })?;
    Some(members)
}

/// A member of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) value: Bare,
    pub(crate) parameters: Vec<(String, Bare)>,
}

/// The members of all lists in fields of this name. Values that are no lists have none.
pub(crate) fn members<'a>(
    headers: &'a Headers,
    name: &'a str,
) -> impl Iterator<Item = Member> + 'a {
    let values = headers.all(name);
    let texts = values.filter_map(|value| std::str::from_utf8(value).ok());
    texts.filter_map(list).flatten()
}

/// Reads a list; `None` if it is none, or has inner lists.
fn list(text: &str) -> Option<Vec<Member>> {
    let mut members = Vec::new();
    separated(text, |rest| {
        let value = bare(rest)?;
        let parameters = parameters(rest)?;
        members.push(Member { value, parameters });
        Some(())
    })?;
    Some(members)
}

/// Reads what commas separate, each by `read`, which takes it off the front.
fn separated(text: &str, mut read: impl FnMut(&mut &str) -> Option<()>) -> Option<()> {
    let mut rest = text.trim_matches([' ', '\t']);
    while !rest.is_empty() {
        read(&mut rest)?;
        rest = rest.trim_start_matches([' ', '\t']);
        if rest.is_empty() {
            break;
        }
        rest = rest.strip_prefix(',')?.trim_start_matches([' ', '\t']);
        if rest.is_empty() {
            return None;
        }
    }
    Some(())
}

fn parameters(rest: &mut &str) -> Option<Vec<(String, Bare)>> {
    let mut parameters = Vec::new();
    while let Some(after) = rest.strip_prefix(';') {
        *rest = after.trim_start_matches(' ');
        let key = key(rest)?;
        parameters.push((key, value(rest)?));
    }
    Some(parameters)
}

fn key(rest: &mut &str) -> Option<String> {
    let is_key = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.*".contains(c);
    let end = rest.find(|c| !is_key(c)).unwrap_or(rest.len());
    let (key, after) = rest.split_at(end);
    *rest = after;
    (!key.is_empty()).then(|| key.to_owned())
}

/// What follows a key: a value, or nothing where it is a flag that is set.
fn value(rest: &mut &str) -> Option<Bare> {
    match rest.strip_prefix('=') {
        Some(after) => {
            *rest = after;
            bare(rest)
        }
        None => Some(Bare::Other(TRUE.to_owned())),
    }
}

fn bare(rest: &mut &str) -> Option<Bare> {
    if let Some(after) = rest.strip_prefix('"') {
        return string(after, rest).map(Bare::String);
    }
    let is_end = |c: char| matches!(c, ';' | ',' | ' ' | '\t');
    let end = rest.find(is_end).unwrap_or(rest.len());
    let (text, after) = rest.split_at(end);
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) || text.starts_with('(')
    {
        return None;
    }
    *rest = after;
    let text = text.to_owned();
    Some(if is_token(&text) {
        Bare::Token(text)
    } else {
        Bare::Other(text)
    })
}

/// Reads what follows the first quotation mark.
fn string<'a>(text: &'a str, rest: &mut &'a str) -> Option<String> {
    let (mut out, mut chars) = (String::new(), text.char_indices());
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => {
                *rest = &text[at + 1..];
                return Some(out);
            }
            '\\' => out.push(
                chars
                    .next()
                    .map(|(_, c)| c)
                    .filter(|c| matches!(c, '"' | '\\'))?,
            ),
            ' '..='~' => out.push(c),
            _ => return None,
        }
    }
    None
}

fn is_token(text: &str) -> bool {
    let is_first = |c: char| c.is_ascii_alphabetic() || c == '*';
    let is_next = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~:/".contains(c);
    text.starts_with(is_first) && text.chars().all(is_next)
}

/// Appends a token, or a string if the text is none. Characters that no string has become `?`.
pub(crate) fn put(out: &mut String, text: &str) {
    if is_token(text) {
        return out.push_str(text);
    }
    put_string(out, text);
}

/// Appends a string.
pub(crate) fn put_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        let _ = match c {
            '"' | '\\' => write!(out, "\\{c}"),
            ' '..='~' => write!(out, "{c}"),
            _ => write!(out, "?"),
        };
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn members_have_values_and_parameters() {
        let read = list(r#"a; b="x\"y";c=1;d , "e, f";g=h, 12;*i=:aGk=:"#).unwrap();
        let parameters: Vec<_> = read.iter().map(|member| member.parameters.len()).collect();
        assert_eq!(parameters, [3, 1, 1]);
        assert_eq!(read[0].value, Bare::Token("a".into()));
        assert_eq!(
            read[0].parameters[0],
            ("b".into(), Bare::String("x\"y".into()))
        );
        assert_eq!(read[1].value, Bare::String("e, f".into()));
        assert_eq!(read[2].value, Bare::Other("12".into()));
        assert_eq!(list(""), Some(Vec::new()));
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in [
            "a,",
            ",",
            "a b",
            "\"a",
            "a;",
            "a;B=c",
            "a;b=",
            "(a b)",
            "\"\\a\"",
            "\"\u{e4}\"",
            "\u{e4}",
        ] {
            assert_eq!(list(text), None, "{text}");
        }
    }

    #[test]
    fn a_dictionary_has_a_value_for_each_key_and_the_last_one_counts() {
        let of = |texts: &[&str]| {
            let mut headers = Headers::new();
            for text in texts {
                headers.push("d", (*text).to_owned());
            }
            dictionary(&headers, "d")
        };
        let read = of(&["a=1, b;x=2, c=word", "a=-7 , d=\"t\""]).unwrap();
        let keys: Vec<&str> = read.iter().map(|(key, _)| &**key).collect();
        assert_eq!(keys, ["b", "c", "a", "d"]);
        assert!(read[0].1.is_true() && !read[1].1.is_true());
        assert_eq!((read[2].1.integer(), read[1].1.integer()), (Some(-7), None));
        assert_eq!(read[3].1.clone().into_text(), Some("t".to_owned()));
        assert_eq!(of(&[]), Some(Vec::new()));
        let long = format!("a={}", "1".repeat(MAX_DICTIONARY));
        for wrong in ["a=", "=1", "A=1", "a=(1 2)", "a=1,", "a 1", &long] {
            assert_eq!(of(&[wrong]), None, "{wrong}");
        }
    }

    #[test]
    fn whole_numbers_have_fifteen_digits_at_most() {
        let number = |text: &str| Bare::Other(text.to_owned()).integer();
        assert_eq!(number("999999999999999"), Some(999_999_999_999_999));
        for wrong in ["", "-", "+1", "1.5", "1000000000000000", "?1"] {
            assert_eq!(number(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_visible_text_comes_back(text in "[ -~]{0,20}") {
            let mut out = String::new();
            put(&mut out, &text);
            let read = list(&out).unwrap();
            prop_assert_eq!(read.len(), 1);
            prop_assert_eq!(read[0].value.clone().into_text(), Some(text));
        }

        #[test]
        fn any_text_is_a_list_or_refused(text in "\\PC{0,30}") {
            let _ = list(&text);
        }
    }
}
