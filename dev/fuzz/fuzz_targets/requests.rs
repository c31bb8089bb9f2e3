//! Whatever a client asks the file service for, it gets a status, or bytes of a file below the
//! served directory, and never of one beside it.
//!
//! The modules are private to the command, and are taken from where they lie. HTTP/3 has
//! turned a request into a method, a path and fields by then.

#![no_main]
#![allow(dead_code, reason = "the command uses all of it")]
#![allow(unused_imports, reason = "the command uses all of it")]

#[path = "../../../cli/src/failure.rs"]
mod failure;
#[path = "../../../cli/src/files/mod.rs"]
mod files;
#[path = "../../../cli/src/url.rs"]
mod url;

/// What the command says to people, which nobody reads here.
mod output {
    pub(crate) fn say(_: impl std::fmt::Display) {}
}

use files::service::{Answer, Service};
use files::uploads::{Account, Limits};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use libfuzzer_sys::fuzz_target;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// What stands in the file beside the served directory.
const SECRET: &[u8] = b"nobody may read this";

/// Fields that the service looks at; a field of the input names one by its first byte.
const FIELDS: [&str; 13] = [
    "range",
    "if-range",
    "content-range",
    "content-length",
    "if-none-match",
    "accept",
    "anabranch-upload",
    "anabranch-offset",
    "x-unknown",
    "if-match",
    "if-modified-since",
    "last-modified",
    "want-repr-digest",
];

/// A directory with files, a link inside and two that lead out, once for the whole run.
fn services() -> &'static [Service; 2] {
    static SERVICES: OnceLock<[Service; 2]> = OnceLock::new();
    SERVICES.get_or_init(|| {
        let program = std::env::current_exe().expect("a program has a path");
        let base: PathBuf = program.with_extension("files");
        let _ = std::fs::remove_dir_all(&base);
        let root = base.join("served");
        std::fs::create_dir_all(root.join("dir/deep")).expect("a folder");
        std::fs::write(base.join("secret"), SECRET).expect("a file");
        std::fs::write(root.join("empty"), b"").expect("a file");
        std::fs::write(root.join("a"), vec![7; 5000]).expect("a file");
        std::fs::write(root.join("dir/b c%"), b"ten bytes.").expect("a file");
        let link = |to: &str, name: &str| {
            std::os::unix::fs::symlink(to, root.join(name)).expect("a link");
        };
        link("../secret", "out");
        link("../..", "dir/up");
        link("dir/b c%", "in");
        [Some(Limits::default()), None]
            .map(|limits| Service::new(&root, limits).expect("a served folder"))
    })
}

fuzz_target!(|input: &[u8]| {
    let Some((first, rest)) = input.split_first() else {
        return;
    };
    let method = match first % 5 {
        0 | 1 => Method::GET,
        2 => Method::HEAD,
        3 => Method::PUT,
        _ => Method::POST,
    };
    let service = &services()[usize::from(first & 0x80 != 0)];
    let mut lines = rest.split(|byte| *byte == b'\n');
    let path = String::from_utf8_lossy(lines.next().unwrap_or_default()).into_owned();
    let mut headers = HeaderMap::new();
    for line in lines {
        let Some((name, value)) = line.split_first() else {
            continue;
        };
        let name = FIELDS[usize::from(*name) % FIELDS.len()];
        if let Ok(value) = HeaderValue::from_bytes(value) {
            headers.append(HeaderName::from_static(name), value);
        }
    }
    let account = Arc::new(Account::default());
    check(match service.answer(&method, &path, &headers, &account) {
        Answer::Make(making) => service.make(&making, &account),
        answer => answer,
    });
});

fn check(answer: Answer) {
    match answer {
        Answer::Text(head, text) => {
            let known: Option<usize> = head
                .headers
                .get("content-length")
                .and_then(|length| length.to_str().ok()?.parse().ok());
            if head.status != StatusCode::OK || !text.is_empty() {
                assert!(known.is_none_or(|length| text.is_empty() || length == text.len()));
            }
        }
        Answer::File(head, mut body) | Answer::Digest(head, mut body) => {
            let (start, end) = (body.span.start, body.span.end);
            assert!(start <= end && end <= body.version.length);
            assert_eq!(
                head.status == StatusCode::PARTIAL_CONTENT,
                head.headers.contains_key("content-range")
            );
            let mut bytes = Vec::new();
            body.file.seek(SeekFrom::Start(0)).expect("a file");
            body.file.read_to_end(&mut bytes).expect("a file");
            assert_ne!(bytes, SECRET);
        }
        Answer::Store(incoming) => {
            assert!(incoming.total.is_none_or(|total| incoming.start <= total));
            incoming.upload.discard();
            let beside = services()[0].open("/../secret");
            assert!(beside.is_err());
        }
        Answer::Make(_) => unreachable!("a directory was made in its place"),
    }
}
