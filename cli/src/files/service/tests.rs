//! Status and headers for good and bad requests.

use super::*;
use std::fs;
use tempfile::TempDir;

fn service(writable: bool) -> (TempDir, Service) {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("file"), "0123456789").unwrap();
    fs::create_dir(root.path().join("dir")).unwrap();
    let limits = writable.then(Limits::default);
    let service = Service::new(root.path(), limits).unwrap();
    (root, service)
}

fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
    let fields = fields.iter().map(|(name, value)| {
        (
            HeaderName::from_static(name),
            HeaderValue::from_str(value).unwrap(),
        )
    });
    fields.collect()
}

fn ask(service: &Service, method: &Method, path: &str, fields: &[(&'static str, &str)]) -> Answer {
    service.answer(method, path, &headers(fields), &Arc::default())
}

fn head_of(answer: &Answer) -> &Head {
    match answer {
        Answer::Text(head, _) | Answer::File(head, _) | Answer::Digest(head, _) => head,
        Answer::Store(_) | Answer::Make(_) => panic!("an upload"),
    }
}

fn status(service: &Service, method: &Method, path: &str, fields: &[(&'static str, &str)]) -> u16 {
    head_of(&ask(service, method, path, fields)).status.as_u16()
}

#[test]
fn a_file_is_sent_whole_or_in_part() {
    let (_root, service) = service(false);
    let Answer::File(head, body) = ask(&service, &Method::GET, "/file", &[]) else {
        panic!("no file");
    };
    assert_eq!(head.status, 200);
    assert_eq!(body.span, Span { start: 0, end: 10 });
    let etag = head.headers[header::ETAG].to_str().unwrap().to_owned();
    let known = [("range", "bytes=4-"), ("if-range", &*etag)];
    let Answer::File(head, body) = ask(&service, &Method::GET, "/file", &known) else {
        panic!("no file");
    };
    assert_eq!(head.status, 206);
    assert_eq!(head.headers[header::CONTENT_RANGE], "bytes 4-9/10");
    assert_eq!(body.span, Span { start: 4, end: 10 });
    let stale = [("range", "bytes=4-"), ("if-range", "\"old\"")];
    let Answer::File(head, body) = ask(&service, &Method::GET, "/file", &stale) else {
        panic!("no file");
    };
    assert_eq!((head.status.as_u16(), body.span.start), (200, 0));
}

#[test]
fn a_changed_file_has_another_tag() {
    let (root, service) = service(false);
    let tag = || {
        let answer = ask(&service, &Method::HEAD, "/file", &[]);
        head_of(&answer).headers[header::ETAG].clone()
    };
    let before = tag();
    fs::write(root.path().join("file"), "0123456789ab").unwrap();
    assert_ne!(before, tag());
}

#[test]
fn refusals_have_the_right_status() {
    let (root, service) = service(false);
    let get =
        |path: &str, fields: &[(&'static str, &str)]| status(&service, &Method::GET, path, fields);
    assert_eq!(get("/nothing", &[]), 404);
    assert_eq!(get("/../etc/passwd", &[]), 403);
    assert_eq!(get("/file", &[("range", "bytes=10-")]), 416);
    assert_eq!(get("/dir/", &[]), 200);
    assert_eq!(status(&service, &Method::POST, "/file", &[]), 405);
    assert_eq!(
        status(&service, &Method::PUT, "/new", &[]),
        403,
        "not writable"
    );
    std::os::unix::fs::symlink("/etc/passwd", root.path().join("out")).unwrap();
    assert_eq!(get("/out", &[]), 403);
}

#[test]
fn a_directory_is_listed_as_text_or_json() {
    let (_root, service) = service(false);
    let text = |fields: &[(&'static str, &str)]| match ask(&service, &Method::GET, "/", fields) {
        Answer::Text(_, text) => String::from_utf8(text.to_vec()).unwrap(),
        _ => panic!("no text"),
    };
    assert!(text(&[]).contains("10  file"));
    let entries: Vec<listing::Entry> =
        serde_json::from_str(&text(&[("accept", "application/json")])).unwrap();
    assert_eq!(entries.len(), 2);
}

#[test]
fn a_head_request_tells_the_digest_once_it_is_known() {
    let (_root, service) = service(false);
    let head = |service: &Service| {
        let answer = ask(service, &Method::HEAD, "/file", &[]);
        head_of(&answer).headers.get(REPR_DIGEST).cloned()
    };
    assert_eq!(head(&service), None);
    let body = service.open("/file").unwrap();
    service.digests.remember(body.version, Sum([7; 32]), true);
    assert_eq!(head(&service).unwrap(), Sum([7; 32]).to_field().as_str());
}

#[test]
fn an_upload_begins_only_where_it_can_end() {
    let (_root, service) = service(true);
    let put = |path: &str, fields: &[(&'static str, &str)]| match ask(
        &service,
        &Method::PUT,
        path,
        fields,
    ) {
        Answer::Store(incoming) => Ok((incoming.start, incoming.total, incoming.replaces)),
        Answer::Make(making) => {
            let made = service.make(&making, &Account::default());
            Err(head_of(&made).status.as_u16())
        }
        other => Err(head_of(&other).status.as_u16()),
    };
    assert_eq!(
        put("/new", &[("content-length", "5")]),
        Ok((0, Some(5), false))
    );
    assert_eq!(put("/file", &[]), Ok((0, None, true)));
    assert_eq!(put("/file", &[("if-none-match", "*")]), Err(412));
    assert_eq!(put("/dir", &[]), Err(409));
    assert_eq!(put("/missing/new", &[]), Err(409));
    assert_eq!(put("/made/inner/", &[("content-length", "0")]), Err(201));
    assert_eq!(put("/made/inner/", &[]), Err(200));
    assert_eq!(put("/made/", &[("content-length", "1")]), Err(400));
    assert_eq!(put("/file/", &[]), Err(409));
    assert_eq!(put("/file/x/", &[]), Err(409));
    assert_eq!(put("/made/../x/", &[]), Err(403));
    assert_eq!(put("/made/inner/file", &[]), Ok((0, None, false)));
    assert_eq!(
        put("/new", &[("content-range", "bytes 2-9/10")]),
        Err(416),
        "nothing is here"
    );
    assert_eq!(
        put("/new", &[("content-range", "bytes 0-3/10")]),
        Err(400),
        "not to the end"
    );
}

#[test]
fn a_client_can_ask_how_much_of_its_upload_is_here() {
    let (root, service) = service(true);
    let offset = |service: &Service| {
        let answer = ask(service, &Method::HEAD, "/new", &[(UPLOAD_HEADER, "tag")]);
        let head = head_of(&answer);
        (
            head.status.as_u16(),
            head.headers.get(OFFSET_HEADER).cloned(),
        )
    };
    assert_eq!(offset(&service), (204, Some(HeaderValue::from_static("0"))));
    let Answer::Store(incoming) = ask(&service, &Method::PUT, "/new", &[(UPLOAD_HEADER, "tag")])
    else {
        panic!("no upload");
    };
    incoming.upload.file().unwrap().set_len(7).unwrap();
    assert_eq!(offset(&service).0, 423, "while it is being sent");
    drop(incoming);
    fs::write(root.path().join("new"), "12345").unwrap();
    assert_eq!(offset(&service), (204, Some(HeaderValue::from_static("7"))));
    let state = ask(&service, &Method::HEAD, "/new", &[(UPLOAD_HEADER, "tag")]);
    assert_eq!(head_of(&state).headers[LENGTH_HEADER], "5");
}

#[test]
fn a_directory_without_slash_is_not_taken_for_a_file() {
    let (_root, service) = service(false);
    let answer = ask(&service, &Method::GET, "/dir", &[]);
    assert_eq!(head_of(&answer).status, 308);
    assert_eq!(head_of(&answer).headers[header::LOCATION], "/dir/");
    // Two slashes would lead to another host.
    let answer = ask(&service, &Method::GET, "//dir", &[]);
    assert_eq!(head_of(&answer).headers[header::LOCATION], "/dir/");
}

#[test]
fn a_file_says_what_it_is_and_when_it_changed() {
    let (root, service) = service(false);
    fs::write(root.path().join("page.html"), "<p>").unwrap();
    let answer = ask(&service, &Method::GET, "/page.html", &[]);
    let fields = &head_of(&answer).headers;
    assert_eq!(fields[header::CONTENT_TYPE], "text/html; charset=utf-8");
    assert_eq!(fields[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
    let date = fields[header::LAST_MODIFIED].to_str().unwrap();
    let etag = fields[header::ETAG].to_str().unwrap();
    let get =
        |fields: &[(&'static str, &str)]| status(&service, &Method::GET, "/page.html", fields);
    assert_eq!(get(&[("if-modified-since", date)]), 304);
    assert_eq!(get(&[("if-none-match", etag)]), 304);
    assert_eq!(
        get(&[("if-none-match", "\"old\""), ("if-modified-since", date)]),
        200
    );
}

#[test]
fn a_head_request_gets_no_content() {
    let (_root, service) = service(false);
    for path in ["/", "/file", "/nothing", "/dir"] {
        match ask(&service, &Method::HEAD, path, &[]) {
            Answer::Text(head, text) => {
                assert!(text.is_empty(), "{path}");
                let has_reason = head.headers.contains_key(REASON_HEADER);
                assert_eq!(has_reason, !head.status.is_success(), "{path}");
            }
            _ => panic!("content of {path}"),
        }
    }
    let wanted = [("want-repr-digest", "sha-256=10")];
    let answer = ask(&service, &Method::HEAD, "/file", &wanted);
    assert!(matches!(answer, Answer::Digest(..)));
}

#[test]
fn what_is_wrong_with_an_upload_is_told_apart() {
    let (_root, service) = service(true);
    let put = |path: &str, fields: &[(&'static str, &str)]| match ask(
        &service,
        &Method::PUT,
        path,
        fields,
    ) {
        Answer::Text(head, text) => (head.status.as_u16(), String::from_utf8_lossy(&text).into()),
        _ => (0, String::new()),
    };
    let (status, words) = put("/missing/file", &[]);
    assert!(
        status == 409 && words.contains("no such directory"),
        "{words}"
    );
    let (status, words) = put("/dir", &[]);
    assert!(
        status == 409 && words.contains("a directory has"),
        "{words}"
    );
    assert_eq!(put("/x", &[("content-length", "ten")]).0, 400);
    let tag = [("anabranch-upload", "mine")];
    let first = ask(&service, &Method::PUT, "/x", &tag);
    let (status, words) = put("/x", &tag);
    assert!(
        status == 423 && words.contains("another connection"),
        "{words}"
    );
    let state = ask(&service, &Method::HEAD, "/x", &tag);
    assert_eq!(head_of(&state).status, 423);
    drop(first);
    assert_eq!(put("/x", &tag).0, 0);
    assert_eq!(put("/file", &[("if-match", "\"old\"")]).0, 412);
    assert_eq!(put("/file", &[("if-match", "*")]).0, 0);
}

#[test]
fn who_is_told_that_the_server_is_busy_is_told_when_to_ask_again() {
    // Hashing the earlier part of a continued upload took too long.
    let late = io::Error::from(io::ErrorKind::TimedOut);
    let answer = Answer::from(Refusal::from(late));
    let head = head_of(&answer);
    assert_eq!(head.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(head.headers[header::RETRY_AFTER], "10");
}
