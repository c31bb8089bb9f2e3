//! Messages: the way back, and every rule of RFC 9114 that a peer may break.

use super::*;
use crate::error::Code;
use crate::field::Headers;
use proptest::prelude::*;

/// Fields written as `name=value`, one a blank.
fn fields(text: &'static str) -> Vec<Field> {
    let pair = |field: &'static str| field.split_once('=').unwrap();
    let fields = text.split_ascii_whitespace().map(pair);
    fields
        .map(|(name, value)| Field::new(name, value))
        .collect()
}

fn request(text: &'static str) -> Result<Request, Code> {
    Request::from_fields(fields(text)).map_err(|error| error.code())
}

fn response(text: &'static str) -> Result<Response, Code> {
    Response::from_fields(fields(text)).map_err(|error| error.code())
}

const CONNECT_UDP: &str = ":method=CONNECT :protocol=connect-udp :scheme=https \
    :authority=proxy.example.org:4443 :path=/.well-known/masque/udp/192.0.2.6/443/ \
    capsule-protocol=?1";

#[test]
fn the_request_of_rfc_9298_is_an_extended_connect() {
    let read = request(CONNECT_UDP).unwrap();
    let line = RequestLine::Extended {
        protocol: "connect-udp".into(),
        scheme: "https".into(),
        authority: "proxy.example.org:4443".into(),
        path: "/.well-known/masque/udp/192.0.2.6/443/".into(),
    };
    assert_eq!(read.line, line);
    assert!(read.headers.is_true("capsule-protocol"));
    assert_eq!(read.to_fields(), fields(CONNECT_UDP));
}

#[test]
fn a_plain_connect_has_its_target_and_nothing_else() {
    let read = request(":method=CONNECT :authority=a.example:443 user-agent=x").unwrap();
    let authority = "a.example:443".to_owned();
    assert_eq!(read.line, RequestLine::Connect { authority });
    assert_eq!(read.headers, Headers::new().with("user-agent", "x"));
}

#[test]
fn other_requests_are_read_so_that_they_can_be_answered() {
    let read = request(":method=GET :scheme=https :path=/ host=a.example te=trailers").unwrap();
    let line = RequestLine::Other {
        method: "GET".into(),
        scheme: "https".into(),
        authority: Some("a.example".into()),
        path: "/".into(),
    };
    assert_eq!(read.line, line);
    assert_eq!(Request::from_fields(read.to_fields()), Ok(read));
    assert!(request(":method=OPTIONS :scheme=https :authority=a :path=*").is_ok());
    assert!(request(":method=GET :scheme=urn :path=x").is_ok());
}

#[test]
fn malformed_requests_end_their_stream() {
    for text in [
        "",
        ":method=GET",
        ":method=GET :scheme=https :authority=a",
        ":method=GET :path=/ :authority=a",
        ":method=GET :scheme=https :path=/",
        ":method=GET :scheme=https :authority=a :path=",
        ":method=GET :scheme=https :authority=a :path=x",
        ":method=GET :scheme=https :authority= :path=/",
        ":method=GET :scheme=https :authority=u@a :path=/",
        ":method=GET :scheme=https :authority=a :path=/ host=b",
        ":method=GET :scheme=https :path=/ host=a host=a",
        ":method=G(T :scheme=https :authority=a :path=/",
        ":method=GET :method=GET :scheme=https :authority=a :path=/",
        ":method=GET :scheme=https :authority=a :path=/ :status=200",
        ":method=GET :scheme=https :authority=a :path=/ :unknown=x",
        ":method=GET :scheme=https :authority=a x=y :path=/",
        ":method=GET :protocol=connect-udp :scheme=https :authority=a :path=/",
        ":method=CONNECT",
        ":method=CONNECT :authority=",
        ":method=CONNECT host=a:443",
        ":method=CONNECT :scheme=https :authority=a:443",
        ":method=CONNECT :authority=a:443 :path=/",
        ":method=CONNECT :authority=a:443 :scheme=https :path=/",
        ":method=CONNECT :protocol=connect-udp :authority=a",
        ":method=CONNECT :protocol=connect-udp :scheme=https :authority=a",
        ":method=CONNECT :protocol=connect-udp :scheme=https :path=/",
        ":method=CONNECT :protocol=connect-udp :scheme=https :path=/ host=a",
        ":method=CONNECT :protocol= :scheme=https :authority=a :path=/",
        ":method=CONNECT :protocol=a/b :scheme=https :authority=a :path=/",
    ] {
        assert_eq!(request(text), Err(Code::MESSAGE_ERROR), "{text}");
    }
}

#[test]
fn names_and_values_that_no_field_has_are_malformed() {
    for (name, value) in [
        ("X", "y"),
        ("content-Type", "y"),
        ("", "y"),
        ("a b", "y"),
        ("a:b", "y"),
        ("a\u{e4}", "y"),
        ("x", "a\rb"),
        ("x", "a\nb"),
        ("x", "a\0b"),
        ("x", "\u{7f}"),
        ("connection", "close"),
        ("keep-alive", "5"),
        ("proxy-connection", "close"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("te", "gzip"),
    ] {
        let mut all = fields(":method=CONNECT :authority=a:443");
        all.push(Field::new(name, value));
        let code = Request::from_fields(all).map_err(|error| error.code());
        assert_eq!(code, Err(Code::MESSAGE_ERROR), "{name}: {value:?}");
        let mut all = fields(":status=200");
        all.push(Field::new(name, value));
        let code = Response::from_fields(all).map_err(|error| error.code());
        assert_eq!(code, Err(Code::MESSAGE_ERROR), "{name}: {value:?}");
        let trailers = check_trailers(&[Field::new(name, value)]);
        assert!(trailers.is_err(), "{name}: {value:?}");
    }
    let fine = [
        Field::new("x", "a\tb \u{e4}"),
        Field::new("!#$%&'*+-.^_`|~0", ""),
    ];
    assert_eq!(check_trailers(&fine), Ok(()));
    assert!(check_trailers(&fields(":status=200")).is_err());
}

#[test]
fn a_response_is_a_status_and_fields() {
    let read = response(":status=502 proxy-status=x").unwrap();
    assert_eq!(read.status, 502);
    assert_eq!(read.to_fields(), fields(":status=502 proxy-status=x"));
    assert!(!read.is_success() && !read.is_interim());
    assert!(Response::new(103).is_interim() && Response::new(199).is_interim());
    assert!(!Response::new(200).is_interim());
    assert!(Response::new(200).is_success() && Response::new(299).is_success());
}

#[test]
fn a_tunnel_of_capsules_has_no_content() {
    let opens = |text| {
        response(text)
            .unwrap()
            .opens_capsules()
            .map_err(|e| e.code())
    };
    assert_eq!(opens(":status=200 capsule-protocol=?1"), Ok(true));
    assert_eq!(opens(":status=502 content-type=text/plain"), Ok(false));
    for text in [
        ":status=204",
        ":status=205",
        ":status=206",
        ":status=200 content-length=0",
        ":status=200 content-type=text/plain",
    ] {
        assert_eq!(opens(text), Err(Code::MESSAGE_ERROR), "{text}");
    }
    for (protocol, read) in [
        ("connect-tcp", Err(Code::MESSAGE_ERROR)),
        ("connect-udp", Err(Code::MESSAGE_ERROR)),
        ("connect-ip", Err(Code::MESSAGE_ERROR)),
        // It may mean something to that.
        ("websocket", Ok(())),
    ] {
        for content in [("content-length", "0"), ("content-type", "text/plain")] {
            let mut fields = fields(CONNECT_UDP);
            fields[1] = Field::new(":protocol", protocol);
            fields.push(Field::new(content.0, content.1));
            let request = Request::from_fields(fields);
            let request = request.map(|_| ()).map_err(|error| error.code());
            assert_eq!(request, read, "{protocol}, {}", content.0);
        }
    }
}

#[test]
fn malformed_responses_end_their_stream() {
    for text in [
        "",
        "x=y",
        ":status=",
        ":status=20",
        ":status=2000",
        ":status=+20",
        ":status=099",
        ":status=101",
        ":status=200 :status=200",
        ":status=200 :method=GET",
        ":status=200 x=y :status=200",
        "x=y :status=200",
        ":status=200 te=trailers",
    ] {
        assert_eq!(response(text), Err(Code::MESSAGE_ERROR), "{text}");
    }
}

fn visible() -> impl Strategy<Value = String> + Clone {
    "[!-?A-~]{1,20}"
}

fn lines() -> impl Strategy<Value = RequestLine> {
    let authority = "[a-z0-9.:\\[\\]-]{1,20}";
    let path = visible().prop_map(|text| format!("/{text}"));
    let extended =
        ("[a-z-]{1,12}", authority, path.clone()).prop_map(|(protocol, authority, path)| {
            let scheme = "https".to_owned();
            RequestLine::Extended {
                protocol,
                scheme,
                authority,
                path,
            }
        });
    let other = ("[A-Z]{1,6}", authority, path)
        .prop_filter("CONNECT is another", |(method, ..)| method != "CONNECT")
        .prop_map(|(method, authority, path)| RequestLine::Other {
            method,
            scheme: "https".to_owned(),
            authority: Some(authority),
            path,
        });
    let connect = authority.prop_map(|authority| RequestLine::Connect { authority });
    prop_oneof![connect, extended, other]
}

fn any_name() -> impl Strategy<Value = String> {
    let known = [
        ":method",
        ":path",
        ":status",
        ":authority",
        ":scheme",
        ":protocol",
        "host",
    ];
    let known = prop::sample::select(known.to_vec()).prop_map(str::to_owned);
    prop_oneof![3 => known, 1 => "[:a-zA-Z\u{0}-\u{ff}]{0,6}"]
}

fn any_value() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("CONNECT".to_owned()),
        Just("/".to_owned()),
        "[ -\u{ff}]{0,6}"
    ]
}

proptest! {
    #[test]
    fn requests_come_back_as_they_were_written(
        line in lines(),
        headers in prop::collection::vec(("x-[a-z0-9-]{1,12}", visible()), 0..5),
    ) {
        let headers = headers.into_iter().map(|(name, value)| Field::new(name, value));
        let headers = Headers::from(headers.collect::<Vec<_>>());
        let request = Request { line, headers };
        prop_assert_eq!(Request::from_fields(request.to_fields()), Ok(request));
    }

    #[test]
    fn any_fields_are_a_message_or_an_error_of_the_stream(
        raw in prop::collection::vec((any_name(), any_value()), 0..8),
    ) {
        let fields = raw.into_iter().map(|(name, value)| Field::new(name, value));
        let fields: Vec<Field> = fields.collect();
        if let Ok(request) = Request::from_fields(fields.clone()) {
            prop_assert_eq!(Request::from_fields(request.to_fields()), Ok(request));
        }
        if let Err(error) = Response::from_fields(fields) {
            prop_assert!(!error.is_connection());
        }
    }
}
