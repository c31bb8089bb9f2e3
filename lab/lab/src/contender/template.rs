//! Texts with placeholders that are filled in when a run begins.

use crate::scenario::nearest;
use std::fmt;
use std::path::Path;

/// The placeholders and their meanings.
pub const PLACEHOLDERS: [(&str, Place, &str); 12] = [
    (
        "server",
        Place::Server,
        "the server's address on the first path",
    ),
    (
        "client",
        Place::Client,
        "the client's address on the first path",
    ),
    (
        "servers",
        Place::Servers,
        "the server's addresses, one a path, with commas",
    ),
    (
        "clients",
        Place::Clients,
        "the client's addresses, one a path, with commas",
    ),
    (
        "pairs",
        Place::Pairs,
        "CLIENT=SERVER of each path, with commas",
    ),
    (
        "interfaces",
        Place::Interfaces,
        "the program's interfaces, one a path, with commas",
    ),
    ("port", Place::Port, "a port for the server"),
    ("bytes", Place::Bytes, "bytes to move; 0 if a time is given"),
    (
        "seconds",
        Place::Seconds,
        "seconds to go on; 0 if bytes are given",
    ),
    (
        "direction",
        Place::Direction,
        "upload or download, as the client sees it",
    ),
    ("seed", Place::Seed, "the repetition's seed"),
    (
        "folder",
        Place::Folder,
        "an empty folder that both programs see during the run",
    ),
];

/// A value to be filled in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The server's address on the first path.
    Server,
    /// The client's address on the first path.
    Client,
    /// The server's addresses.
    Servers,
    /// The client's addresses.
    Clients,
    /// Both ends of each path.
    Pairs,
    /// The interfaces of the program's host.
    Interfaces,
    /// A port.
    Port,
    /// Bytes to move.
    Bytes,
    /// How many seconds to send.
    Seconds,
    /// The direction.
    Direction,
    /// The repetition's seed.
    Seed,
    /// A folder.
    Folder,
}

/// A text with placeholders. `{{` and `}}` are braces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Place(Place),
}

/// An unknown placeholder, or a brace without its partner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown {
    what: String,
    /// The nearest known placeholder.
    pub hint: Option<String>,
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Template {
    /// Parses a text.
    ///
    /// # Errors
    /// `Unknown` for an unknown placeholder.
    pub fn parse(text: &str) -> Result<Self, Unknown> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, from) = rest.split_at(at);
            plain.push_str(before);
            if let Some(after) = from.strip_prefix("{{").or_else(|| from.strip_prefix("}}")) {
                plain.push_str(&from[..1]);
                rest = after;
                continue;
            }
            let inner = from
                .strip_prefix('{')
                .and_then(|inner| inner.split_once('}'));
            let Some((name, after)) = inner else {
                let what = format!("a brace without its partner in `{text}`: {{{{ is a brace");
                return Err(Unknown { what, hint: None });
            };
            let known = PLACEHOLDERS.iter().find(|(known, ..)| *known == name);
            let Some((_, place, _)) = known else {
                let names = PLACEHOLDERS.map(|(name, ..)| name);
                let what = format!(
                    "there is no {{{name}}} to fill in: expected one of {}",
                    names.join(", ")
                );
                let hint = nearest(name, names.into_iter());
                return Err(Unknown { what, hint });
            };
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
            }
            pieces.push(Piece::Place(*place));
            rest = after;
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Self(pieces))
    }

    /// Whether it contains this placeholder.
    pub fn has(&self, place: Place) -> bool {
        self.0.contains(&Piece::Place(place))
    }

    /// The text with its placeholders filled in by `fill`.
    #[must_use]
    pub fn filled(&self, fill: &dyn Fn(Place) -> String) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Place(place) => fill(*place),
        };
        self.0.iter().map(piece).collect()
    }

    /// Makes a path that begins with `./` or `../` relative to `base`.
    pub(super) fn resolve(&mut self, base: &Path) {
        if let Some(Piece::Text(text)) = self.0.first_mut()
            && (text.starts_with("./") || text.starts_with("../"))
        {
            *text = base.join(&*text).display().to_string();
        }
    }
}
