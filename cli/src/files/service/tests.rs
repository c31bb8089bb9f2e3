//! Status and headers for good requests and bad ones.

use super::*;
use std::fs;
use tempfile::TempDir;

fn service(writable: bool) -> (TempDir, Service) {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("file"), "0123456789").unwrap();
    fs::create_dir(root.path().join("dir")).unwrap();
    let service = Service::new(root.path(), writable).unwrap();
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

fn head_of(answer: &Answer) -> &Head {
    match answer {
        Answer::Text(head, _) | Answer::File(head, _) => head,
        Answer::Store(_) => panic!("an upload"),
    }
}

fn status(service: &Service, method: &Method, path: &str, fields: &[(&'static str, &str)]) -> u16 {
    head_of(&service.answer(method, path, &headers(fields)))
        .status
        .as_u16()
}

#[test]
fn a_file_is_sent_whole_or_in_part() {
    let (_root, service) = service(false);
    let Answer::File(head, body) = service.answer(&Method::GET, "/file", &HeaderMap::new()) else {
        panic!("no file");
    };
    assert_eq!(head.status, 200);
    assert_eq!(body.span, Span { start: 0, end: 10 });
    let etag = head.headers[header::ETAG].to_str().unwrap().to_owned();
    let known = headers(&[("range", "bytes=4-"), ("if-range", &etag)]);
    let Answer::File(head, body) = service.answer(&Method::GET, "/file", &known) else {
        panic!("no file");
    };
    assert_eq!(head.status, 206);
    assert_eq!(head.headers[header::CONTENT_RANGE], "bytes 4-9/10");
    assert_eq!(body.span, Span { start: 4, end: 10 });
    let stale = headers(&[("range", "bytes=4-"), ("if-range", "\"old\"")]);
    let Answer::File(head, body) = service.answer(&Method::GET, "/file", &stale) else {
        panic!("no file");
    };
    assert_eq!((head.status.as_u16(), body.span.start), (200, 0));
}

#[test]
fn a_changed_file_has_another_tag() {
    let (root, service) = service(false);
    let tag = || {
        let answer = service.answer(&Method::HEAD, "/file", &HeaderMap::new());
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
    assert_eq!(get("/dir", &[]), 200);
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
    let text =
        |fields: &[(&'static str, &str)]| match service.answer(&Method::GET, "/", &headers(fields))
        {
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
        let answer = service.answer(&Method::HEAD, "/file", &HeaderMap::new());
        head_of(&answer).headers.get(REPR_DIGEST).cloned()
    };
    assert_eq!(head(&service), None);
    let body = service.open("/file").unwrap();
    service.remember(body.version, Sum([7; 32]));
    assert_eq!(head(&service).unwrap(), Sum([7; 32]).to_field().as_str());
}

#[tokio::test]
async fn the_digest_of_the_whole_is_found_for_a_part() {
    let (_root, service) = service(false);
    let service = Arc::new(service);
    let body = service.open("/file").unwrap();
    let sum = Arc::clone(&service)
        .whole_sum(body.file, body.version)
        .await
        .unwrap();
    let hash = <sha2::Sha256 as sha2::Digest>::new_with_prefix(b"0123456789");
    assert_eq!(sum, Sum::of(hash));
    assert_eq!(service.cache.look_up(&body.version), Some(sum));
}

#[test]
fn an_upload_begins_only_where_it_can_end() {
    let (_root, service) = service(true);
    let put = |path: &str, fields: &[(&'static str, &str)]| match service.answer(
        &Method::PUT,
        path,
        &headers(fields),
    ) {
        Answer::Store(incoming) => Ok((incoming.start, incoming.total, incoming.replaces)),
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
        let answer = service.answer(&Method::HEAD, "/new", &headers(&[(UPLOAD_HEADER, "tag")]));
        let head = head_of(&answer);
        (
            head.status.as_u16(),
            head.headers.get(OFFSET_HEADER).cloned(),
        )
    };
    assert_eq!(offset(&service).1.unwrap(), "0");
    let root = Root::open(root.path()).unwrap();
    let place = Place::new(&root, &RelPath::parse("/new").unwrap(), Some("tag")).unwrap();
    let _upload = place.open().unwrap();
    assert_eq!(offset(&service).0, 204);
}
