//! The content type of a file, by its name.

use std::ffi::OsStr;
use std::path::Path;

/// The value of `Content-Type`; bytes of no known kind unless the name says more.
pub(super) fn content_type(name: &OsStr) -> String {
    match mime_guess::from_path(Path::new(name)).first_raw() {
        None => "application/octet-stream".into(),
        // Without a charset, some browsers guess one from the user's language.
        Some(text) if text.starts_with("text/") => format!("{text}; charset=utf-8"),
        Some(kind) => kind.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_follows_the_end_of_the_name() {
        for (name, kind) in [
            ("index.html", "text/html; charset=utf-8"),
            ("A.PDF", "application/pdf"),
            ("clip.mp4", "video/mp4"),
            ("x.tar.gz", "application/gzip"),
            ("README", "application/octet-stream"),
            (".html", "application/octet-stream"),
        ] {
            assert_eq!(content_type(OsStr::new(name)), kind, "{name}");
        }
    }
}
