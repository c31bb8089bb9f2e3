//! Whatever is typed as a server's URL is refused with a reason or means the same after it was
//! printed, and its path survives the way into a request and back.
//!
//! The module is private to the command, and is taken from where it lies.

#![no_main]
#![allow(dead_code, reason = "the command uses all of it")]

#[path = "../../../cli/src/url.rs"]
mod url;

use libfuzzer_sys::fuzz_target;
use url::ServerUrl;

fuzz_target!(|text: &str| {
    let Ok(url) = text.parse::<ServerUrl>() else {
        return;
    };
    assert!(!url.hosts.is_empty());
    let again: ServerUrl = url.to_string().parse().expect("a printed URL is one");
    assert_eq!(again, url);
    let request = url.request_path();
    assert!(request.starts_with('/') && request.is_ascii());
    assert_eq!(url::unescape(&request[1..]), url.path.as_bytes());
    if let Some(name) = url.file_name() {
        assert!(!name.contains('/') && name != "." && name != "..");
    }
});
