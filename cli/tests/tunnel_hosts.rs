//! Programs that know nothing of a tunnel, as anybody installs them, work through it: on a host
//! that is captured, and at the near end by SOCKS5.
//!
//! ```text
//! host ── 192.168.50.0/24 ── near ══ path0, path1 ══ far ── 203.0.113.0/24 ── target
//! ```
//! Their servers run at the target. Each link carries 20 Mbit/s.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use anabranch_testbed::{Need, Node, browser};
use common::beyond::TARGETS;
use common::captured::{CAPTURED, LINK, Net};
use common::figures::{mbit, number};
use common::files::noise;
use common::process::{Ended, Process};
use common::{judge, measured, wait_for};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fs;
use std::io::Write as _;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take on a machine that is busy with other work.
const END: Duration = Duration::from_secs(60);

/// Where `tunnel join` offers SOCKS5.
const PROXY: &str = "127.0.0.1:1080";

/// The far end, as the target calls it: whoever comes beside the tunnel has another address.
const FAR: [&str; 2] = ["203.0.113.1", "2001:db8:7::1"];

/// Bytes of what is fetched whole.
const LENGTH: usize = 3_000_000;

/// Runs a program to its end, in which it has to succeed.
#[track_caller]
fn run(net: &Net, command: &mut Command) -> Ended {
    let ended = Process::start(command, &net.lab.directory).wait(END);
    let (status, said) = (ended.status, format!("{}{}", ended.stdout, ended.stderr));
    assert!(status.success(), "{command:?}: {status}: {said}");
    ended
}

/// Starts a program that serves at the target, and waits until it listens on a port.
#[track_caller]
fn serve(net: &Net, command: &mut Command, protocol: &str, port: u16) -> Process {
    let mut process = Process::start(command, &net.lab.directory);
    wait_for(&format!("{command:?}"), END, || {
        assert!(process.is_running(), "{command:?}: {}", process.stderr());
        is_taken(&net.target, protocol, port)
    });
    process
}

/// Whether somebody listens on a port of a host, at whichever address.
fn is_taken(node: &Node, protocol: &str, port: u16) -> bool {
    let files = ["", "6"].map(|family| format!("/proc/thread-self/net/{protocol}{family}"));
    let read = || files.map(|file| fs::read_to_string(file).unwrap_or_default());
    let sockets = node.enter(read).unwrap().concat();
    // A number, the own address and `:PORT`, the other one, and the state: of TCP that somebody
    // listens, of UDP that there is no other end.
    let port = format!(":{port:04X}");
    sockets.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        matches!(fields[..], [_, own, _, "0A" | "07", ..] if own.ends_with(&port))
    })
}

/// A server of HTTP for the files in a directory.
#[track_caller]
fn serve_files(net: &Net, address: &str, directory: &Path) -> Process {
    let mut command = net.target.command("python3");
    let server = ["-m", "http.server", "80", "--protocol", "HTTP/1.1"];
    command
        .args(server)
        .args(["--bind", address, "--directory"]);
    serve(net, command.arg(directory), "tcp", 80)
}

/// What `iperf3` of the host reports after some seconds, and what its server does.
#[track_caller]
fn iperf3(net: &Net, options: &[&str]) -> (Value, Value) {
    let mut command = net.host.command("iperf3");
    let client = ["--client", TARGETS[0], "--json", "--get-server-output"];
    command.args(client).args(["--time", "3"]).args(options);
    let mut report = run(net, &mut command).report();
    let server = report["server_output_json"].take();
    assert_eq!(server["start"]["accepted_connection"]["host"], FAR[0]);
    (report, server)
}

#[test]
fn iperf3_of_a_captured_host_gets_the_sum_of_both_links_and_its_datagrams_in_order() {
    const NAME: &str = "hosts-iperf3";
    if !Need::Network.programs(NAME, &["iperf3"]) {
        return;
    }
    measured(NAME, || {
        let mut net = Net::new(NAME)?;
        let _near = net.join(&CAPTURED);
        let mut command = net.target.command("iperf3");
        command.args(["--server", "--json"]);
        let _server = serve(&net, &mut command, "tcp", 5201);
        let mut bars = Vec::new();
        // One link carries less than what it is set to.
        let least = LINK as f64 * 1.3e6;
        for options in [&["--reverse"][..], &[], &["--reverse", "--parallel", "4"]] {
            let (report, _) = iperf3(&net, options);
            let rate = number(&report["end"]["sum_received"], "bits_per_second");
            bars.push((rate > least, format!("TCP, {options:?}: {}", mbit(rate))));
            for stream in report["end"]["streams"].as_array().unwrap() {
                assert!(number(&stream["receiver"], "bytes") > 0.0, "{report}");
            }
        }
        let udp = ["--udp", "--bitrate", "12M", "--length", "1200"];
        for is_down in [true, false] {
            let options: &[&str] = if is_down { &["--reverse"] } else { &[] };
            let (host, target) = iperf3(&net, &[&udp[..], options].concat());
            let receiver = if is_down { host } else { target };
            let counts = &receiver["end"]["streams"][0]["udp"];
            let [lost, disordered, all] =
                ["lost_packets", "out_of_order", "packets"].map(|name| number(counts, name));
            assert!(all > 1000.0, "{receiver}");
            let is_good = lost <= all / 1000.0 && disordered == 0.0;
            let what = format!("{lost} of {all} lost, {disordered} out of order");
            bars.push((is_good, format!("UDP, {options:?}: {what}")));
        }
        for at in 0..2 {
            let (down, up) = net.lab.carried(at);
            assert!(down.min(up) > 1_000_000, "link {at}: {down}, {up}");
        }
        for (_, what) in &bars {
            eprintln!("{NAME}: {what}");
        }
        Some(judge(&bars))
    });
}

#[test]
fn dig_asks_a_server_of_names_by_udp_by_tcp_and_by_both() {
    const NAME: &str = "hosts-dns";
    if !Need::Network.programs(NAME, &["dig", "dnsmasq"]) {
        return;
    }
    let Some(net) = Net::new(NAME) else {
        return;
    };
    let _near = net.join(&CAPTURED);
    let mut command = net.target.command("dnsmasq");
    command.args(["--no-daemon", "--conf-file=/dev/null", "--user=root"]);
    command.args([
        "--no-resolv",
        "--no-hosts",
        "--bind-interfaces",
        "--log-queries",
    ]);
    command.args(TARGETS.map(|target| format!("--listen-address={target}")));
    command.arg("--host-record=host.test,198.51.100.9,2001:db8::9");
    // More than an answer by UDP has room for.
    let long = [0; 8].map(|_| "x".repeat(250)).join(",");
    let server = serve(
        &net,
        command.arg(format!("--txt-record=long.test,{long}")),
        "udp",
        53,
    );
    let dig = |words: &[&str]| {
        let mut command = net.host.command("dig");
        run(&net, command.args(["+time=5", "+tries=5"]).args(words)).stdout
    };
    for (target, far) in TARGETS.into_iter().zip(FAR) {
        let at = format!("@{target}");
        for (transport, option) in [("UDP", "+notcp"), ("TCP", "+tcp")] {
            for (kind, answer) in [("A", "198.51.100.9"), ("AAAA", "2001:db8::9")] {
                let said = dig(&[&at, option, kind, "host.test"]);
                let line = format!("\t{kind}\t{answer}\n");
                assert!(said.contains(&line), "{said}");
                assert!(
                    said.contains(&format!("({target}) ({transport})")),
                    "{said}"
                );
            }
        }
        let said = dig(&[&at, "TXT", "long.test"]);
        assert!(said.contains("retrying in TCP mode"), "{said}");
        assert_eq!(said.matches(&"x".repeat(250)).count(), 8, "{said}");
        let log = server.stderr();
        assert!(log.contains(&format!("host.test from {far}")), "{log}");
    }
}

/// The widths of the pictures of a page.
const WIDTHS: [u32; 6] = [96, 128, 160, 192, 224, 256];

/// A picture that does not compress: 24 bits for each pixel (BMP), as high as it is wide.
fn picture(width: u32) -> Vec<u8> {
    const HEAD: u32 = 54;
    let pixels = noise((width * width * 3) as usize);
    let mut bytes = b"BM".to_vec();
    for field in [HEAD + pixels.len() as u32, 0, HEAD, 40, width, width] {
        bytes.extend(field.to_le_bytes());
    }
    // One plane, 24 bits, no compression, and defaults.
    for field in [1, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0_u16] {
        bytes.extend(field.to_le_bytes());
    }
    assert_eq!(bytes.len(), HEAD as usize);
    bytes.extend(pixels);
    bytes
}

/// A page that tells the sizes of the pictures that it shows.
fn make_page(directory: &Path) {
    let image = |width: u32| {
        let name = format!("{width}.bmp");
        fs::write(directory.join(&name), picture(width)).unwrap();
        format!("<img src=\"{name}\">")
    };
    let mut page = String::from("<!DOCTYPE html><meta charset=\"utf-8\"><body>");
    page += &WIDTHS.map(image).concat();
    page += "<pre id=\"found\"></pre><script>addEventListener('load', () => {
        const size = (image) => `${image.naturalWidth}x${image.naturalHeight}`;
        document.getElementById('found').textContent =
            [...document.images].map(size).join(' ');
    });</script>";
    fs::write(directory.join("index.html"), page).unwrap();
}

/// The page as a browser shows it on a host.
#[track_caller]
fn look(net: &Net, browser: &str, from: &Node, options: &[&str]) -> String {
    let profile = tempfile::tempdir().unwrap();
    let mut command = from.command(browser);
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
    ]);
    command.args([
        "--disable-background-networking",
        "--disable-component-update",
    ]);
    command.args(["--disable-sync", "--disable-dev-shm-usage", "--dump-dom"]);
    command.arg(format!("--user-data-dir={}", profile.path().display()));
    let page = format!("http://{}/", TARGETS[0]);
    run(net, command.args(options).arg(page)).stdout
}

#[test]
fn a_browser_shows_a_page_whether_it_is_captured_or_asks_the_proxy() {
    const NAME: &str = "hosts-browser";
    let Some(browser) = browser() else {
        return;
    };
    if !Need::Network.programs(NAME, &["python3"]) {
        return;
    }
    let Some(net) = Net::new(NAME) else {
        return;
    };
    let _near = net.join(&CAPTURED);
    let directory = net.lab.path("files");
    make_page(&directory);
    let server = serve_files(&net, TARGETS[0], &directory);
    let sizes = WIDTHS.map(|width| format!("{width}x{width}")).join(" ");
    let proxy = format!("--proxy-server=socks5://{PROXY}");
    let (captured, asking) = (
        (&net.host, &[][..]),
        (&net.lab.client, &[proxy.as_str()][..]),
    );
    for (times, (from, options)) in [captured, asking].into_iter().enumerate() {
        let shown = look(&net, browser, from, options);
        assert!(shown.contains(&format!(">{sizes}</pre>")), "{shown}");
        // Each picture was asked for, and from the far end.
        let log = server.stderr();
        for width in WIDTHS {
            let asked = |line: &&str| {
                line.starts_with(FAR[0]) && line.contains(&format!("\"GET /{width}.bmp "))
            };
            assert_eq!(log.lines().filter(asked).count(), times + 1, "{log}");
        }
    }
}

#[test]
fn curl_fetches_a_file_whether_it_is_captured_or_asks_the_proxy() {
    const NAME: &str = "hosts-curl";
    if !Need::Network.programs(NAME, &["curl", "python3"]) {
        return;
    }
    let Some(net) = Net::new(NAME) else {
        return;
    };
    let _near = net.join(&CAPTURED);
    net.lab.make_file("files/file", LENGTH);
    let server = serve_files(&net, TARGETS[0], &net.lab.path("files"));
    let proxy = format!("socks5h://{PROXY}");
    let captured = (&net.host, &[][..]);
    let asking = (&net.lab.client, &["--proxy", proxy.as_str()][..]);
    for (from, options) in [captured, asking] {
        fetch(&net, from, &format!("http://{}/file", TARGETS[0]), options);
    }
    let log = server.stderr();
    let asked = log.lines().filter(|line| line.starts_with(FAR[0]));
    assert_eq!(asked.count(), 2, "{log}");
}

/// Fetches what is in `files/file` with curl.
#[track_caller]
fn fetch(net: &Net, from: &Node, url: &str, options: &[&str]) {
    let mut command = from.command("curl");
    command.args(["--silent", "--show-error", "--fail", "--output"]);
    command.arg(net.lab.path("got/file")).args(options).arg(url);
    run(net, &mut command);
    net.lab.assert_same("files/file", "got/file");
    fs::remove_file(net.lab.path("got/file")).unwrap();
}

/// Addresses within the VPN: the target's and the host's.
const INSIDE: [&str; 2] = ["10.78.0.2", "10.78.0.1"];

/// A key and a certificate in files; the certificate's fingerprint.
fn make_keys(net: &Net, name: &str) -> String {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let write = |kind: &str, text: String| {
        fs::write(net.lab.path(&format!("{name}.{kind}")), text).unwrap();
    };
    write("key", key.serialize_pem());
    write("crt", certificate.pem());
    let digest = Sha256::digest(certificate.der());
    let octets: Vec<String> = digest.iter().map(|octet| format!("{octet:02X}")).collect();
    octets.join(":")
}

/// One end of `OpenVPN`, which knows the other by its certificate.
fn openvpn(net: &Net, node: &Node, name: &str, other: &str) -> Command {
    let mut command = node.command("openvpn");
    for kind in ["cert", "key"] {
        let file = net
            .lab
            .path(&format!("{name}.{}", &kind.replace("cert", "crt")));
        command.arg(format!("--{kind}")).arg(file);
    }
    command.args([
        "--peer-fingerprint",
        other,
        "--dev",
        "vpn",
        "--dev-type",
        "tun",
    ]);
    command.args(["--proto", "udp", "--data-ciphers", "AES-128-GCM"]);
    command
}

#[test]
fn openvpn_within_the_tunnel_carries_a_file() {
    const NAME: &str = "hosts-openvpn";
    if !Need::Network.programs(NAME, &["openvpn", "curl", "python3"]) {
        return;
    }
    let Some(net) = Net::new(NAME) else {
        return;
    };
    let _near = net.join(&CAPTURED);
    let prints = ["inner-far", "inner-near"].map(|name| make_keys(&net, name));
    let mut far = openvpn(&net, &net.target, "inner-far", &prints[1]);
    far.args(["--tls-server", "--dh", "none"]);
    far.args(["--local", TARGETS[0], "--port", "1194"]);
    far.args(["--ifconfig", INSIDE[0], INSIDE[1]]);
    let far = serve(&net, &mut far, "udp", 1194);
    let mut near = openvpn(&net, &net.host, "inner-near", &prints[0]);
    near.args(["--tls-client", "--nobind", "--remote", TARGETS[0], "1194"]);
    near.args(["--ifconfig", INSIDE[1], INSIDE[0]]);
    let near = Process::start(&mut near, &net.lab.directory);
    let stands = |end: &Process| end.stdout().contains("Initialization Sequence Completed");
    wait_for("the VPN", END, || stands(&far) && stands(&near));
    let said = far.stdout();
    assert!(said.contains(&format!("[AF_INET]{}", FAR[0])), "{said}");
    fetch_inside(&net);
}

/// Fetches a file from the target to the host within a VPN between them.
#[track_caller]
fn fetch_inside(net: &Net) {
    net.lab.make_file("files/file", LENGTH);
    let server = serve_files(net, INSIDE[0], &net.lab.path("files"));
    fetch(net, &net.host, &format!("http://{}/file", INSIDE[0]), &[]);
    let log = server.stderr();
    assert!(log.contains(&format!("{} - - ", INSIDE[1])), "{log}");
}

/// One end of `WireGuard`: `sh` becomes `wireguard-go`, after it has begun what waits for its
/// control socket. That is in a folder which these processes see alone, as `ip netns exec` gives
/// them mounts of their own. `$0` is a file with the private key, `$1` the address, the rest what
/// is said of the other end.
const WIREGUARD: &str = "
    set -e
    mount -t tmpfs wireguard /run
    mkdir /run/wireguard
    key=$0 address=$1
    shift
    (
        until test -S /run/wireguard/wg0.sock; do kill -0 $$ || exit 1; sleep 0.02; done
        wg set wg0 listen-port 51820 private-key $key peer $*
        ip address add $address/24 dev wg0
        ip link set wg0 up
        echo ready
    ) &
    exec wireguard-go -f wg0";

#[test]
fn wireguard_within_the_tunnel_carries_a_file() {
    const NAME: &str = "hosts-wireguard";
    let programs = ["wireguard-go", "wg", "sh", "mount", "curl", "python3"];
    if !Need::Network.programs(NAME, &programs) {
        return;
    }
    let Some(net) = Net::new(NAME) else {
        return;
    };
    let _near = net.join(&CAPTURED);
    let [far, near] = ["inner-far", "inner-near"].map(|name| {
        let private = net.lab.path(name);
        let mut keys = net.host.command("sh");
        keys.args(["-c", "wg genkey | tee $0 | wg pubkey"])
            .arg(&private);
        (private, run(&net, &mut keys).stdout.trim().to_owned())
    });
    let start = |node: &Node, (own, _): &(PathBuf, String), address: &str, peer: &[&str]| {
        let mut command = node.command("sh");
        command.args(["-c", WIREGUARD]).arg(own).arg(address);
        let allowed = ["allowed-ips", "10.78.0.0/24"];
        let mut end = Process::start(command.args(peer).args(allowed), &net.lab.directory);
        assert_eq!(end.first_line(), "ready");
        end
    };
    let endpoint = format!("{}:51820", TARGETS[0]);
    let _far = start(&net.target, &far, INSIDE[0], &[&near.1]);
    let _near = start(
        &net.host,
        &near,
        INSIDE[1],
        &[&far.1, "endpoint", &endpoint],
    );
    fetch_inside(&net);
}

/// A program that is killed when a test is over, and reads what the test writes.
struct Fed(Child);

impl Drop for Fed {
    fn drop(&mut self) {
        // Both fail only if it has ended and been waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_live_stream_by_srt_arrives_whole() {
    const NAME: &str = "hosts-srt";
    /// One datagram, as the program makes them: the longest that a link of 1,500 bytes carries.
    const PIECE: usize = 1456;
    const BITS_PER_SECOND: f64 = 6e6;
    const SECONDS: f64 = 4.0;
    if !Need::Network.programs(NAME, &["srt-live-transmit"]) {
        return;
    }
    let Some(net) = Net::new(NAME) else {
        return;
    };
    let _near = net.join(&CAPTURED);
    let srt = |node: &Node, from: &str, to: &str| {
        let mut command = node.command("srt-live-transmit");
        command.args(["-quiet", "-autoreconnect:no", from, to]);
        command
    };
    // What comes later than that is not played: far more than a busy machine takes.
    let late = "latency=2000&conntimeo=30000";
    let here = format!("srt://{}:9000?mode=listener&{late}", TARGETS[0]);
    let receiver = serve(
        &net,
        &mut srt(&net.target, &here, "file://con"),
        "udp",
        9000,
    );
    let there = format!("srt://{}:9000?{late}", TARGETS[0]);
    let mut sender = srt(&net.host, "file://con", &there);
    let sender = sender
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut sender = Fed(sender.spawn().unwrap());
    let mut input = sender.0.stdin.take().unwrap();
    let pieces = (BITS_PER_SECOND * SECONDS) as usize / 8 / PIECE;
    let content: Arc<[u8]> = noise(pieces * PIECE).into();
    let stream = Arc::clone(&content);
    thread::spawn(move || {
        let started = Instant::now();
        // A live stream goes on: so nothing that is looked for is the last of it.
        for (at, piece) in stream.chunks(PIECE).cycle().enumerate() {
            let due = Duration::from_secs_f64((at * PIECE * 8) as f64 / BITS_PER_SECOND);
            thread::sleep(due.saturating_sub(started.elapsed()));
            // It fails once the sender is killed.
            if input.write_all(piece).is_err() {
                break;
            }
        }
    });
    wait_for("the stream", END, || {
        let written = fs::metadata(receiver.stdout_path()).map_or(0, |data| data.len());
        written >= content.len() as u64
    });
    let got = fs::read(receiver.stdout_path()).unwrap();
    // What the program reads before it is connected it throws away, with or without a tunnel.
    let begin = content
        .chunks(PIECE)
        .position(|piece| got.starts_with(piece));
    let begin = begin.expect("a piece of the stream");
    let sent = content.chunks(PIECE).cycle().skip(begin);
    let mut whole = got.chunks(PIECE).zip(sent).take(pieces);
    let differs = whole.position(|(got, sent)| got != sent);
    assert_eq!(differs, None, "of {pieces} pieces from {begin} on");
}

/// Both ends of a QUIC connection of quinn: they believe a certificate made for them.
fn quinn_ends() -> (quinn::ServerConfig, quinn::ClientConfig) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["target.test".to_owned()]).unwrap();
    let certificate: CertificateDer<'_> = params.self_signed(&key).unwrap().into();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let server = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let server = QuicServerConfig::try_from(server).unwrap();
    let client = QuicClientConfig::try_from(client).unwrap();
    (
        quinn::ServerConfig::with_crypto(Arc::new(server)),
        quinn::ClientConfig::new(Arc::new(client)),
    )
}

/// An endpoint of quinn on a host.
fn quinn_on(node: &Node, at: &str, server: Option<quinn::ServerConfig>) -> quinn::Endpoint {
    let socket = node.enter(|| UdpSocket::bind(at).unwrap()).unwrap();
    let (config, runtime) = (quinn::EndpointConfig::default(), quinn::TokioRuntime);
    quinn::Endpoint::new(config, server, socket, Arc::new(runtime)).unwrap()
}

#[tokio::test]
async fn a_quic_connection_of_another_stack_works_within_the_tunnel() {
    let Some(net) = Net::new("hosts-quic") else {
        return;
    };
    let _near = net.join(&CAPTURED);
    let address = format!("{}:443", TARGETS[0]);
    let (server, client) = quinn_ends();
    let server = quinn_on(&net.target, &address, Some(server));
    let mut host = quinn_on(&net.host, "0.0.0.0:0", None);
    host.set_default_client_config(client);
    let content = noise(LENGTH);
    let serving = async {
        let connection = server.accept().await.unwrap().await.unwrap();
        assert_eq!(connection.remote_address().ip().to_string(), FAR[0]);
        let (mut send, mut recv) = connection.accept_bi().await.unwrap();
        let got = recv.read_to_end(LENGTH).await.unwrap();
        send.write_all(&got).await.unwrap();
        send.finish().unwrap();
        connection.closed().await;
    };
    let asking = async {
        let connecting = host.connect(address.parse().unwrap(), "target.test");
        let connection = connecting.unwrap().await.unwrap();
        let (mut send, mut recv) = connection.open_bi().await.unwrap();
        send.write_all(&content).await.unwrap();
        send.finish().unwrap();
        let back = recv.read_to_end(LENGTH).await.unwrap();
        assert!(back == content, "{} bytes", back.len());
        connection.close(0_u32.into(), b"");
    };
    let both = async { tokio::join!(serving, asking) };
    tokio::time::timeout(END, both).await.expect("in time");
}
