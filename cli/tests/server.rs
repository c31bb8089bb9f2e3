//! The server against misbehaving clients: they cancel, stall, send tiny pieces, try to leave the
//! directory, and send more than they may.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "common/ending.rs"]
mod ending;
#[path = "common/files.rs"]
mod files;

use anabranch_net::engine::{ClientConfig, tls};
use anabranch_net::h3::H3Connection;
use anabranch_net::identity::provider;
use anabranch_net::{Connection, Endpoint, PathManager, PathsConfig, Target};
use bytes::{Buf, Bytes};
use files::{names, noise};
use h3::client::{RequestStream, SendRequest};
use http::{HeaderMap, Request, StatusCode};
use std::fs;
use std::future::Future;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_anabranch");

/// For what takes an instant on a machine with time for it.
const SOON: Duration = Duration::from_secs(120);

/// A server with its own directory; killed at the end.
struct Server {
    directory: TempDir,
    process: Child,
    url: String,
}

impl Server {
    fn start(options: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("root")).unwrap();
        let log = fs::File::create(directory.path().join("log")).unwrap();
        let mut process = Command::new(PROGRAM)
            .args(["serve", "--listen", "127.0.0.1:0"])
            .arg("--root")
            .arg(directory.path().join("root"))
            .arg("--identity")
            .arg(directory.path().join("identity"))
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut url = String::new();
        let mut lines = BufReader::new(process.stdout.take().unwrap());
        lines.read_line(&mut url).unwrap();
        Self {
            directory,
            process,
            url: url.trim().into(),
        }
    }

    fn root(&self, name: &str) -> PathBuf {
        self.directory.path().join("root").join(name)
    }

    /// Makes a file that takes long to read but needs no room on the disk.
    fn offer_endless(&self, name: &str) {
        let file = fs::File::create(self.root(name)).unwrap();
        file.set_len(200 << 30).unwrap();
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap()
    }

    /// How many files of its directory the server has open.
    fn open_files(&self) -> usize {
        let open = fs::read_dir(format!("/proc/{}/fd", self.process.id())).unwrap();
        let targets = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        let below = self.root("");
        let file = |target: &PathBuf| target.starts_with(&below) && !target.is_dir();
        targets.filter(file).count()
    }

    async fn client(&self) -> Client {
        let (pin, host) = self.url.split_once('@').unwrap();
        let pin = pin.strip_prefix("anabranch://").unwrap().parse().unwrap();
        let tls = tls::ClientTls::pinned(provider(), pin).alpn(&[b"h3"]);
        let endpoint = Endpoint::client().unwrap();
        let target = Target {
            name: "localhost".into(),
            remotes: vec![host.parse().unwrap()],
        };
        let config = ClientConfig::new(tls.build().unwrap());
        let paths = PathsConfig::default();
        let connected = soon(endpoint.connect(&target, config, &paths)).await;
        let (connection, manager) = connected.unwrap();
        let built = h3::client::builder()
            .send_grease(false)
            .build(H3Connection::new(connection.clone()))
            .await;
        let (mut driver, requests) = built.unwrap();
        tokio::spawn(async move { driver.wait_idle().await });
        Client {
            connection,
            requests,
            _manager: manager,
            _endpoint: endpoint,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

type Exchange = RequestStream<anabranch_net::h3::BidiStream<Bytes>, Bytes>;

struct Client {
    connection: Connection,
    requests: SendRequest<H3Connection, Bytes>,
    _manager: PathManager,
    _endpoint: Endpoint,
}

impl Client {
    /// Sends the head of a request.
    async fn open(&mut self, method: &str, path: &str, fields: &[(&str, &str)]) -> Exchange {
        let uri = format!("https://localhost{path}");
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let sent = self.requests.send_request(request.body(()).unwrap());
        soon(sent).await.unwrap()
    }

    /// Sends a request with `body` and waits for the response.
    async fn ask(
        &mut self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> (StatusCode, HeaderMap, String) {
        let mut exchange = self.open(method, path, fields).await;
        // A server that has seen enough of the body stops reading and responds.
        if !body.is_empty() {
            let _ = soon(exchange.send_data(Bytes::copy_from_slice(body))).await;
        }
        let _ = soon(exchange.finish()).await;
        let response = soon(exchange.recv_response()).await.unwrap();
        let mut text = Vec::new();
        while let Ok(Some(mut piece)) = soon(exchange.recv_data()).await {
            text.extend_from_slice(&piece.copy_to_bytes(piece.remaining()));
        }
        let text = String::from_utf8_lossy(&text).into_owned();
        (response.status(), response.headers().clone(), text)
    }
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, future).await.expect("in time")
}

/// Waits until a condition is true.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(SOON, waiting).await;
    assert!(waited.is_ok(), "{what}");
}

#[tokio::test]
async fn cancelled_requests_for_parts_leave_no_file_open() {
    let server = Server::start(&[]);
    server.offer_endless("big");
    let mut client = server.client().await;
    for _ in 0..12 {
        let last = (200_u64 << 30) - 100;
        let range = format!("bytes={last}-");
        let mut exchange = client.open("GET", "/big", &[("range", &range)]).await;
        soon(exchange.finish()).await.unwrap();
        let response = soon(exchange.recv_response()).await.unwrap();
        assert_eq!(response.status(), 206);
        let mut piece = soon(exchange.recv_data()).await.unwrap().unwrap();
        piece.advance(piece.remaining());
        // The digest of the whole file would come next, but the client does not wait for it.
        exchange.stop_sending(h3::error::Code::H3_REQUEST_CANCELLED);
    }
    until("the file is closed", || server.open_files() == 0).await;
    // Another client still gets its digest.
    fs::write(server.root("small"), "0123456789").unwrap();
    let fields = [("want-repr-digest", "sha-256=10")];
    let (status, headers, _) = client.ask("HEAD", "/small", &fields, b"").await;
    assert!(
        status == 200 && headers.contains_key("repr-digest"),
        "{headers:?}"
    );
}

#[tokio::test]
async fn a_client_that_waits_for_a_digest_and_leaves_ends_the_work() {
    let server = Server::start(&[]);
    server.offer_endless("big");
    let mut client = server.client().await;
    let fields = [("want-repr-digest", "sha-256=10")];
    let mut exchange = client.open("HEAD", "/big", &fields).await;
    soon(exchange.finish()).await.unwrap();
    until("it is being hashed", || server.open_files() > 0).await;
    client.connection.close(0x100_u32, b"");
    until("the file is closed", || server.open_files() == 0).await;
}

#[tokio::test]
async fn clients_that_want_digests_of_large_files_hold_up_no_upload() {
    let server = Server::start(&["--writable"]);
    server.offer_endless("big");
    let mut greedy = [server.client().await, server.client().await];
    let mut asked = Vec::new();
    for client in &mut greedy {
        for _ in 0..3 {
            let fields = [("want-repr-digest", "sha-256=10")];
            let mut exchange = client.open("HEAD", "/big", &fields).await;
            soon(exchange.finish()).await.unwrap();
            asked.push(exchange);
        }
    }
    until("they are being hashed", || server.open_files() >= 6).await;
    let mut client = server.client().await;
    let (status, _, words) = client.ask("PUT", "/new", &[], b"hello").await;
    assert_eq!(status, 201, "{words}");
    let tag = ("anabranch-upload", "a");
    let fields = [tag, ("content-range", "bytes 0-4/5")];
    let (status, _, words) = client.ask("PUT", "/more", &fields, b"hel").await;
    assert_eq!(status, 400, "it is short: {words}");
    let fields = [tag, ("content-range", "bytes 3-4/5")];
    let (status, _, words) = client.ask("PUT", "/more", &fields, b"lo").await;
    assert_eq!(status, 201, "{words}");
    assert_eq!(fs::read(server.root("more")).unwrap(), b"hello");
}

#[tokio::test]
async fn an_upload_whose_beginning_is_being_hashed_is_taken_over() {
    let server = Server::start(&["--writable"]);
    let mut client = server.client().await;
    let tag = ("anabranch-upload", "a");
    let fields = [tag, ("content-range", "bytes 0-1/2")];
    let (status, _, words) = client.ask("PUT", "/file", &fields, b"x").await;
    assert_eq!(status, 400, "it is short: {words}");
    let length = 200_u64 << 30;
    let part = names(&server.root("")).remove(0);
    let part = fs::File::options().write(true).open(server.root(&part));
    part.unwrap().set_len(length).unwrap();
    let range = format!("bytes {length}-{length}/{}", length + 1);
    let fields = [tag, ("content-range", &range)];
    let _hashed = client.open("PUT", "/file", &fields).await;
    until("it is being hashed", || server.open_files() > 0).await;
    let mut other = server.client().await;
    let again = async {
        // The first client has to be silent for a while.
        while other.ask("PUT", "/file", &[tag], b"whole").await.0 != 201 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    soon(again).await;
    assert_eq!(fs::read(server.root("file")).unwrap(), b"whole");
}

#[tokio::test]
async fn an_upload_in_crumbs_arrives_whole() {
    let server = Server::start(&["--writable"]);
    let mut client = server.client().await;
    let data = noise(20_000);
    let mut exchange = client.open("PUT", "/crumbs", &[]).await;
    for byte in data.chunks(1) {
        soon(exchange.send_data(Bytes::copy_from_slice(byte)))
            .await
            .unwrap();
    }
    soon(exchange.finish()).await.unwrap();
    assert_eq!(soon(exchange.recv_response()).await.unwrap().status(), 201);
    assert!(fs::read(server.root("crumbs")).unwrap() == data);
}

#[tokio::test]
async fn a_connection_brings_no_more_than_it_may() {
    let server = Server::start(&[
        "--writable",
        "--max-upload",
        "100k",
        "--max-upload-files",
        "4",
    ]);
    let mut client = server.client().await;
    let put = async |client: &mut Client, name: &str, fields: &[(&str, &str)], bytes: usize| {
        let (status, _, words) = client.ask("PUT", name, fields, &noise(bytes)).await;
        (status.as_u16(), words)
    };
    let told = [("content-length", "200000")];
    let (status, words) = put(&mut client, "/told", &told, 1000).await;
    assert!(
        status == 413 && words.contains("more than"),
        "{status} {words}"
    );
    assert_eq!(put(&mut client, "/first", &[], 60_000).await.0, 201);
    assert_eq!(put(&mut client, "/second", &[], 60_000).await.0, 413);
    assert_eq!(put(&mut client, "/third", &[], 1).await.0, 413);
    assert_eq!(put(&mut client, "/fifth", &[], 1).await.0, 429);
    assert_eq!(names(&server.root("")), ["first"], "no part is left");
    let mut another = server.client().await;
    assert_eq!(put(&mut another, "/other", &[], 60_000).await.0, 201);
}

#[tokio::test]
async fn of_two_uploads_that_must_not_replace_anything_one_is_told() {
    let server = Server::start(&["--writable"]);
    let mut client = server.client().await;
    let fields = [("if-none-match", "*")];
    let mut one = client.open("PUT", "/file", &fields).await;
    let mut other = client.open("PUT", "/file", &fields).await;
    for exchange in [&mut one, &mut other] {
        soon(exchange.send_data(Bytes::from_static(b"x")))
            .await
            .unwrap();
    }
    let mut statuses = Vec::new();
    for mut exchange in [one, other] {
        soon(exchange.finish()).await.unwrap();
        statuses.push(
            soon(exchange.recv_response())
                .await
                .unwrap()
                .status()
                .as_u16(),
        );
    }
    assert_eq!(statuses, [201, 412]);
    assert_eq!(names(&server.root("")), ["file"]);
}

#[tokio::test]
async fn a_directory_is_made_of_no_content_and_as_the_client_expects() {
    let server = Server::start(&["--writable"]);
    let mut client = server.client().await;
    let (status, _, words) = client.ask("PUT", "/dir/", &[], b"content").await;
    assert_eq!(status, 400, "{words}");
    assert!(!server.root("dir").exists());
    let mut ask = async |fields: &[(&str, &str)]| client.ask("PUT", "/dir/", fields, b"").await.0;
    assert_eq!(ask(&[("if-match", "*")]).await, 412, "there is none");
    assert_eq!(ask(&[("if-none-match", "*")]).await, 201);
    assert_eq!(ask(&[("if-none-match", "*")]).await, 412, "there is one");
    assert_eq!(ask(&[("if-match", "*")]).await, 200);
    assert_eq!(
        ask(&[("if-match", "\"1-2-3\"")]).await,
        412,
        "it has no tag"
    );
    assert_eq!(ask(&[]).await, 200);
}

#[tokio::test]
async fn no_path_leads_out_of_the_directory() {
    let server = Server::start(&["--writable"]);
    fs::write(server.directory.path().join("secret"), "x").unwrap();
    let mut client = server.client().await;
    for path in [
        "/../secret",
        "/%2e%2e/secret",
        "/..%2fsecret",
        "/%2e%2e%2fsecret",
        "//../secret",
        "/x/../../secret",
        "/.%2e/secret",
        "/%00/../secret",
        "/etc/passwd",
        "//etc/passwd",
        "/proc/self/environ",
    ] {
        for method in ["GET", "HEAD", "PUT"] {
            let (status, _, _) = client.ask(method, path, &[], b"").await;
            assert!(
                [400, 403, 404, 409].contains(&status.as_u16()),
                "{method} {path}: {status}"
            );
        }
    }
    assert!(names(&server.root("")).is_empty());
    assert_eq!(
        fs::read(server.directory.path().join("secret")).unwrap(),
        b"x"
    );
}

#[tokio::test]
async fn a_client_may_not_choose_windows_of_its_own() {
    let server = Server::start(&[]);
    fs::write(server.root("file"), "x").unwrap();
    let mut client = server.client().await;
    for greedy in [
        "constant:initial-window=100000",
        "cubic:initial-window=1000",
    ] {
        let fields = [("anabranch-congestion", greedy)];
        let (status, _, words) = client.ask("GET", "/file", &fields, b"").await;
        assert!(
            status == 400 && words.contains("not for clients"),
            "{status} {words}"
        );
    }
    let fields = [
        ("anabranch-congestion", "bbr"),
        ("anabranch-scheduler", "redundant"),
    ];
    assert_eq!(client.ask("GET", "/file", &fields, b"").await.0, 200);
    let fixed = Server::start(&["--fixed-tuning"]);
    fs::write(fixed.root("file"), "x").unwrap();
    let mut client = fixed.client().await;
    assert_eq!(client.ask("GET", "/file", &fields, b"").await.0, 400);
    assert_eq!(client.ask("GET", "/file", &[], b"").await.0, 200);
}

#[tokio::test]
async fn requests_given_up_at_every_step_leave_nothing_behind() {
    let server = Server::start(&["--writable"]);
    fs::write(server.root("file"), noise(3_000_000)).unwrap();
    let mut client = server.client().await;
    let tag = [("anabranch-upload", "mine"), ("content-length", "1000000")];
    for round in 0..40 {
        let (method, fields): (_, &[(&str, &str)]) = match round % 4 {
            0 => ("GET", &[]),
            1 => ("GET", &[("range", "bytes=1000000-")]),
            2 => ("PUT", &tag),
            _ => ("PUT", &[]),
        };
        let path = if method == "GET" { "/file" } else { "/new" };
        let mut exchange = client.open(method, path, fields).await;
        for step in 0..round / 4 {
            match (method, step) {
                ("PUT", _) => {
                    let piece = Bytes::from(noise(10_000));
                    // The server refuses an upload whose name another one is using.
                    let _ = soon(exchange.send_data(piece)).await;
                }
                (_, 0) => soon(exchange.finish()).await.unwrap(),
                (_, 1) => drop(soon(exchange.recv_response()).await.unwrap()),
                _ => drop(soon(exchange.recv_data()).await.unwrap()),
            }
        }
        drop(exchange);
    }
    until("all files are closed", || server.open_files() == 0).await;
    let left = names(&server.root(""));
    let parts = left.iter().filter(|name| name.starts_with(".new.")).count();
    assert!(parts <= 1 && !left.contains(&"new".into()), "{left:?}");
    let (status, _, text) = client.ask("GET", "/", &[], b"").await;
    assert!(status == 200 && text.contains("file"), "{text}");
}

#[tokio::test]
async fn a_head_without_end_is_not_collected() {
    let server = Server::start(&[]);
    let mut client = server.client().await;
    let (mut send, _recv) = soon(client.connection.open_bi()).await.unwrap();
    // HEADERS of 2^40 bytes.
    let head = [0x01, 0xc0, 0, 1, 0, 0, 0, 0, 0];
    send.write_all(&head).await.unwrap();
    let sending = async {
        let piece = Bytes::from(vec![0; 1 << 20]);
        for _ in 0..256 {
            send.write_bytes(piece.clone()).await?;
        }
        Ok::<_, anabranch_net::error::WriteError>(())
    };
    assert!(
        soon(sending).await.is_err(),
        "the server took a quarter of a gigabyte"
    );
    assert_eq!(client.ask("GET", "/", &[], b"").await.0, 200);
}

#[tokio::test]
async fn the_log_has_times_and_no_words_of_a_client_as_they_came() {
    let server = Server::start(&[]);
    let mut client = server.client().await;
    let path = "/a\u{9b}31m\u{202e}b";
    assert_eq!(client.ask("GET", path, &[], b"").await.0, 404);
    until("it is told", || server.log().contains("GET")).await;
    let log = server.log();
    let (time, rest) = log.lines().next().unwrap().split_once(' ').unwrap();
    assert!(humantime::parse_rfc3339(time).is_ok(), "{log}");
    assert!(rest.starts_with("127.0.0.1 GET /a?31m?b 404"), "{log}");
    assert!(rest.contains("over 1 path"), "{log}");
}

#[tokio::test]
async fn a_client_that_is_not_let_in_leaves_a_line_with_its_fingerprint() {
    let server = Server::start(&["--client-pin", &"0".repeat(64)]);
    let url = format!("{}/file", server.url);
    let mut get = Command::new(PROGRAM);
    get.args(["get", &url, "--identity", "stranger"])
        .current_dir(server.directory.path())
        .env("XDG_STATE_HOME", server.directory.path());
    let output = ending::output(&mut get);
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    let shown = words.trim_end().rsplit(' ').next().unwrap();
    assert_eq!(shown.len(), 64, "{words}");
    until("it is told", || server.log().contains("refused")).await;
    let log = server.log();
    let line = log.lines().next().unwrap();
    assert!(
        line.contains(" 127.0.0.1 refused: ") && line.contains(shown),
        "{log}"
    );
}

#[tokio::test]
async fn an_address_has_so_many_connections_and_no_more() {
    let server = Server::start(&["--max-connections-per-address", "2"]);
    fs::write(server.root("file"), "hello").unwrap();
    let one = server.client().await;
    let _other = server.client().await;
    let url = format!("{}/file", server.url);
    let get = || {
        let mut get = Command::new(PROGRAM);
        get.args(["get", &url, "-o", "-"])
            .env("XDG_STATE_HOME", server.directory.path());
        ending::output(&mut get)
    };
    let refused = get();
    let words = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{words}");
    assert!(words.contains("takes no more connections"), "{words}");
    one.connection.close(0x100_u32, b"");
    let has_room = || get().stdout == b"hello";
    until("there is room again", has_room).await;
}
