//! Things that go wrong around a transfer: killed programs, full disks, wrong names, noise on the
//! network. Existing data is not lost, nobody waits forever, and the messages help.

mod common;

use anabranch_testbed::{Need, Node, Rate};
use common::ending::ended;
use common::figures::{number, shares};
use common::files::{Noise, names};
use common::process::{Ended, Process};
use common::{Family, Lab, PORT, PROGRAM, Server, judge, measured, wait_for};
use nix::sys::signal::Signal;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Two links: 2 MB/s together.
const LINKS: [Rate; 2] = [Rate::mbit(8); 2];

/// Five seconds' worth: long enough for something to go wrong in the middle.
const LENGTH: usize = 10_000_000;

/// For what has no limit of its own but must not take forever.
const END: Duration = Duration::from_secs(300);

/// For what must not wait for the idle timeout of half a minute, however busy the machine.
const AT_ONCE: Duration = Duration::from_secs(15);

/// The default of `--connect-timeout`.
const CONNECT: Duration = Duration::from_secs(10);

/// A network with a server, and a file to fetch.
fn start(name: &str) -> Option<(Lab, Server)> {
    let mut lab = Lab::new(name, &LINKS)?;
    lab.make_file("files/data", LENGTH);
    let server = lab.serve(&[lab.family.server()], &["--writable"]);
    Some((lab, server))
}

/// Waits until this many bytes have been written to a directory.
#[track_caller]
fn wait_until_written(lab: &Lab, directory: &str, bytes: u64, process: &mut Process) {
    wait_until_part(lab, directory, "", bytes, process);
}

/// Waits until this many bytes have been written to an unfinished file whose name begins with
/// `name`.
#[track_caller]
fn wait_until_part(lab: &Lab, directory: &str, name: &str, bytes: u64, process: &mut Process) {
    let directory = lab.path(directory);
    let is_part = |found: &&String| found.starts_with(name) && found.contains(".part");
    wait_for("progress", END, || {
        assert!(process.is_running(), "ended early: {}", process.stderr());
        let parts = names(&directory);
        let mut parts = parts.iter().filter(is_part);
        parts.any(|name| fs::metadata(directory.join(name)).is_ok_and(|data| data.len() > bytes))
    });
}

#[track_caller]
fn assert_failed(ended: &Ended, code: i32, words: &[&str]) {
    assert_eq!(ended.code(), Some(code), "{ended:?}");
    for word in words {
        assert!(
            ended.stderr.contains(word),
            "`{word}` is missing: {}",
            ended.stderr
        );
    }
    assert!(ended.stdout.is_empty(), "{ended:?}");
}

/// Checks that the same command, given again, transfers the rest and only that.
#[track_caller]
fn assert_resumes(lab: &Lab, process: Process) {
    let report = process.wait(END).report();
    let before = number(&report, "resumed_from");
    assert!(before > 1e6, "started from scratch: {report}");
    assert_eq!(report["verified"], "whole");
    lab.assert_same("files/data", "got/data");
}

#[test]
fn a_download_goes_on_after_the_server_was_killed() {
    let Some((mut lab, server)) = start("server-killed") else {
        return;
    };
    let mut get = lab.start_get(&server, "data", &[]);
    wait_until_written(&lab, "got", 3_000_000, &mut get);
    assert_eq!(
        lab.got(),
        ["data.part", "data.part.etag"],
        "nothing under the file's own name"
    );
    server.process.signal(Signal::SIGKILL);
    drop(server);
    let killed = Instant::now();
    let server = lab.serve(&[lab.family.server()], &["--writable"]);
    let ended = get.wait(END);
    let noticed = killed.elapsed();
    eprintln!(
        "server-killed: noticed {:.2} s after its restart",
        noticed.as_secs_f64()
    );
    assert_failed(&ended, 1, &["data.part is kept", "same command again"]);
    assert!(noticed < AT_ONCE, "{noticed:?}");
    assert_resumes(&lab, lab.start_get(&server, "data", &[]));
    assert_eq!(lab.got(), ["data"]);
}

#[test]
fn a_download_goes_on_after_the_client_was_killed() {
    let Some((lab, server)) = start("client-killed") else {
        return;
    };
    let mut get = lab.start_get(&server, "data", &[]);
    wait_until_written(&lab, "got", 3_000_000, &mut get);
    drop(get);
    assert_eq!(lab.got(), ["data.part", "data.part.etag"]);
    assert_resumes(&lab, lab.start_get(&server, "data", &[]));
    assert_eq!(lab.got(), ["data"]);
}

#[test]
fn an_upload_goes_on_after_the_client_was_killed() {
    let Some((lab, server)) = start("upload-killed") else {
        return;
    };
    fs::remove_file(lab.path("files/data")).unwrap();
    lab.make_file("got/data", LENGTH);
    let mut put = lab.start_put(&server, "data", &[]);
    wait_until_written(&lab, "files", 3_000_000, &mut put);
    drop(put);
    assert!(
        names(&lab.path("files"))
            .iter()
            .all(|name| name.starts_with(".data."))
    );
    let early = lab.start_get(&server, "data", &["-o", "early"]).wait(END);
    assert_failed(&early, 1, &["404"]);
    // The server considers the first connection alive for half a minute; the upload need not
    // wait for that.
    let again = lab.start_put(&server, "data", &[]).wait(END);
    assert!(!again.stderr.contains("409"), "{}", again.stderr);
    eprintln!(
        "upload-killed: done again after {:.1} s",
        again.after.as_secs_f64()
    );
    let report = again.report();
    assert!(number(&report, "resumed_from") > 1e6, "{report}");
    lab.assert_same("files/data", "got/data");
    assert_eq!(names(&lab.path("files")), ["data"]);
}

#[test]
fn an_interrupted_transfer_ends_at_once_and_goes_on_later() {
    let Some((lab, server)) = start("interrupted") else {
        return;
    };
    let mut get = lab.start_get(&server, "data", &[]);
    wait_until_written(&lab, "got", 3_000_000, &mut get);
    get.signal(Signal::SIGINT);
    let interrupted = Instant::now();
    let ended = get.wait(END);
    let after = interrupted.elapsed();
    eprintln!("interrupted: ended after {} ms", after.as_millis());
    assert_failed(&ended, 1, &["interrupted", "data.part is kept"]);
    assert!(after < AT_ONCE, "{after:?}");
    assert_resumes(&lab, lab.start_get(&server, "data", &[]));
}

#[test]
fn a_server_that_is_stopped_says_so() {
    let Some((lab, server)) = start("stopped") else {
        return;
    };
    let mut get = lab.start_get(&server, "data", &[]);
    wait_until_written(&lab, "got", 3_000_000, &mut get);
    server.process.signal(Signal::SIGINT);
    let ended = get.wait(AT_ONCE);
    assert_failed(&ended, 1, &["the server was stopped", "data.part is kept"]);
    let server = server.process.wait(AT_ONCE);
    assert_eq!(server.code(), Some(0), "{server:?}");
}

#[test]
fn a_full_disk_here_is_told_and_the_rest_comes_once_there_is_room() {
    let Some((lab, server)) = start("full-here") else {
        return;
    };
    // `ip netns exec` also makes a mount namespace: nobody else sees this file system.
    let script = "mount -t tmpfs -o size=4m tmpfs . && cd \"$PWD\" && \
                  \"$0\" \"$@\"; echo code $? >&2; \
                  ls -A >&2; mount -o remount,size=64m . ; \"$0\" \"$@\" && cmp data ../files/data";
    let url = server.url_of("data");
    let mut command = lab.client.command("sh");
    command.args([
        "-c", script, PROGRAM, "get", &url, "--json", "--path", "path0",
    ]);
    command.current_dir(lab.path("got"));
    command.env("XDG_STATE_HOME", lab.path("state"));
    let ended = Process::start(&mut command, &lab.directory).wait(END);
    for words in [
        "data.part",
        "No space left",
        "make room",
        "code 1\n",
        "data.part.etag\n",
    ] {
        assert!(
            ended.stderr.contains(words),
            "`{words}` is missing: {}",
            ended.stderr
        );
    }
    let report = ended.report();
    assert!(number(&report, "resumed_from") > 1e6, "{report}");
}

#[test]
fn a_full_disk_there_is_told_and_the_server_stays() {
    let Some(mut lab) = Lab::new("full-there", &LINKS) else {
        return;
    };
    if !Need::Network.programs("full-there", &["sh", "mount"]) {
        return;
    }
    lab.make_file("got/data", LENGTH);
    let root = lab.path("files");
    let server = lab.serve_with(
        &[lab.family.server()],
        &["--writable", "--keep-free", "0"],
        |node: &Node| {
            let mut command = node.command("sh");
            let script = "mount -t tmpfs -o size=4m tmpfs \"$1\" && echo small > \"$1/small\" && \
                      shift && exec \"$0\" \"$@\"";
            command.args(["-c", script, PROGRAM]).arg(&root);
            command
        },
    );
    let ended = lab.start_put(&server, "data", &[]).wait(END);
    assert_failed(&ended, 1, &["disk is full", "507"]);
    let ended = lab.start_get(&server, "small", &[]).wait(END);
    assert_eq!(ended.report()["bytes"], 6);
}

#[test]
fn a_file_that_cannot_be_read_is_told() {
    let Some(mut lab) = Lab::new("unreadable", &LINKS) else {
        return;
    };
    if !Need::Network.programs("unreadable", &["setpriv"]) {
        return;
    }
    for name in ["files/secret", "got/secret"] {
        let path = lab.make_file(name, 1000);
        fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
    }
    // Without these capabilities, even root cannot read it.
    let without = ["--bounding-set", "-dac_override,-dac_read_search", "--"];
    let server = lab.serve_with(&[lab.family.server()], &["--writable"], |node: &Node| {
        let mut command = node.command("setpriv");
        command.args(without).arg(PROGRAM);
        command
    });
    let ended = lab.start_get(&server, "secret", &["-o", "copy"]).wait(END);
    assert_failed(&ended, 1, &["/secret", "403"]);
    let mut put = lab.client.command("setpriv");
    put.args(without)
        .args([PROGRAM, "put", "secret", &server.url_of("copy")])
        .env("XDG_STATE_HOME", lab.path("state"));
    let ended = Process::start(put.current_dir(lab.path("got")), &lab.directory).wait(END);
    assert_failed(&ended, 2, &["cannot read secret", "Permission denied"]);
    assert_eq!(lab.got(), ["secret"], "no empty file is left");
}

#[test]
fn a_wrong_key_a_wrong_host_and_a_closed_port_are_told_apart() {
    let Some((lab, server)) = start("wrong") else {
        return;
    };
    let (pin, _) = server
        .url
        .strip_prefix("anabranch://")
        .unwrap()
        .split_once('@')
        .unwrap();
    let get = |url: &str| {
        lab.start(&["get", url, "--path", "path*", "--connect-timeout", "2"])
            .wait(END)
    };
    let wrong_pin = pin.chars().rev().collect::<String>();
    let wrong_key = get(&server.url_of("data").replace(pin, &wrong_pin));
    assert_failed(
        &wrong_key,
        1,
        &["the server's key is not the one in the URL"],
    );
    let no_such_name = get(&format!("anabranch://{pin}@no-such-host.invalid/data"));
    assert_failed(
        &no_such_name,
        1,
        &["no-such-host.invalid", "is the host's name right"],
    );
    let nobody_there = get(&format!("anabranch://{pin}@10.1.0.77/data"));
    assert_failed(&nobody_there, 1, &["10.1.0.77", "does UDP get through?"]);
    let closed = get(&format!("anabranch://{pin}@{}:9/data", lab.family.server()));
    assert_failed(&closed, 1, &[":9", "is the server running there"]);
    eprintln!(
        "wrong: key after {} ms, name {} ms, host {} ms, port {} ms",
        wrong_key.after.as_millis(),
        no_such_name.after.as_millis(),
        nobody_there.after.as_millis(),
        closed.after.as_millis(),
    );
    for ended in [&wrong_key, &nobody_there, &closed] {
        assert!(ended.after < CONNECT, "{ended:?}");
    }
    assert!(lab.got().is_empty(), "{:?}", lab.got());
}

#[test]
fn two_downloads_at_once_do_not_disturb_each_other() {
    let Some((lab, server)) = start("two") else {
        return;
    };
    let mut one = lab.start_get(&server, "data", &["-o", "one"]);
    let other = lab.start_get(&server, "data", &["-o", "other"]);
    wait_until_part(&lab, "got", "one.part", 1_000_000, &mut one);
    let same = lab.start_get(&server, "data", &["-o", "one"]).wait(END);
    assert_failed(&same, 2, &["one.part", "another process is writing it"]);
    for (process, name) in [(one, "got/one"), (other, "got/other")] {
        process.wait(END).report();
        lab.assert_same("files/data", name);
    }
    assert_eq!(lab.got(), ["one", "other"]);
}

#[test]
fn noise_at_the_servers_port_does_not_stop_it_or_fill_its_memory() {
    let Some((mut lab, server)) = start("noise") else {
        return;
    };
    // Noise comes over the second link as fast as possible; the transfer uses the first.
    let quiet = server.process.memory_kib();
    let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let address = (Family::V4.address(1, 2), PORT);
    let socket = || UdpSocket::bind((Family::V4.address(1, 1), 0)).unwrap();
    let sockets: Vec<UdpSocket> = (0..4).map(|_| lab.client.enter(socket).unwrap()).collect();
    let before = lab.carried(1).1;
    let (report, loud) = thread::scope(|scope| {
        for (seed, socket) in sockets.iter().enumerate() {
            let (stop, sent) = (&stop, &sent);
            scope.spawn(move || make_noise(socket, address, seed as u64, stop, sent));
        }
        let get = lab.start(&["get", &server.url_of("data"), "--json", "--path", "path0"]);
        let mut loud = 0;
        let mut get = Some(get);
        while get.as_mut().is_some_and(Process::is_running) {
            loud = loud.max(server.process.memory_kib());
            thread::sleep(Duration::from_millis(50));
        }
        stop.store(true, Ordering::Relaxed);
        (get.take().unwrap().wait(END).report(), loud)
    });
    lab.assert_same("files/data", "got/data");
    eprintln!(
        "noise: {} datagrams, {} bytes passed; {} Mbit/s beside them; the server's memory: \
         {quiet} KiB before, {loud} KiB at most",
        sent.load(Ordering::Relaxed),
        lab.carried(1).1 - before,
        number(&report, "goodput_bps") / 1e6,
    );
    assert!(loud < quiet + 64 * 1024, "{loud} KiB");
    // The server still accepts new clients.
    let again = lab
        .start_get(&server, "data", &["-o", "again"])
        .wait(END)
        .report();
    assert_eq!(again["verified"], "whole");
}

/// Sends datagrams that look like the beginning of QUIC packets, and random ones.
fn make_noise(
    socket: &UdpSocket,
    address: (std::net::IpAddr, u16),
    seed: u64,
    stop: &AtomicBool,
    sent: &AtomicU64,
) {
    let mut noise = Noise::new(seed);
    let mut bytes = [0; 1252];
    while !stop.load(Ordering::Relaxed) {
        noise.fill(&mut bytes);
        let length = match noise.below(4) {
            // An Initial packet of version 1 with two connection IDs of 8 bytes, no token and a
            // plausible length: only its keys reveal that it is noise.
            0 => {
                bytes[..6].copy_from_slice(&[0xc3, 0, 0, 0, 1, 8]);
                bytes[14] = 8;
                bytes[23..26].copy_from_slice(&[0, 0x44, 0x96]);
                1200
            }
            // A long header of an unknown version, which may be answered.
            1 => {
                bytes[0] |= 0xc0;
                1200
            }
            // A short header for a connection that does not exist.
            2 => {
                bytes[0] = 0x40 | (bytes[0] & 0x3f);
                40 + noise.below(1000) as usize
            }
            _ => noise.below(bytes.len() as u64) as usize,
        };
        // A full queue is no reason to stop.
        if socket.send_to(&bytes[..length], address).is_ok() {
            sent.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn mistakes_in_arguments_end_with_code_2_and_the_nearest_right_word() {
    let Some(lab) = Lab::new("arguments", &LINKS) else {
        return;
    };
    let url = format!("anabranch://{}@10.99.0.1/data", "0".repeat(64));
    let cases: [(&[&str], &str); 10] = [
        (&["gett", &url], "'get'"),
        (&["get", &url, "--shceduler", "min-rtt"], "'--scheduler'"),
        (&["get", &url, "--scheduler", "min-rt"], "`min-rtt`"),
        (&["get", &url, "--scheduler", "ecf:bata=1"], "`beta`"),
        (&["get", &url, "--congestion", "cubik"], "`cubic`"),
        (&["get", &url, "--path", "paht0"], "`path0`"),
        (&["get", &url, "--path", "path0,bakcup"], "`backup`"),
        (&["get", &url, "--chunk", "1"], "500"),
        (&["get", "http://10.99.0.1/data"], "anabranch://"),
        (
            &["serve", "--root", "/no/such/directory"],
            "/no/such/directory",
        ),
    ];
    for (arguments, hint) in cases {
        let ended = lab.start(arguments).wait(END);
        assert_failed(&ended, 2, &[hint]);
    }
    assert!(lab.got().is_empty(), "{:?}", lab.got());
}

#[test]
fn nobody_reading_the_output_is_no_error() {
    let Some((lab, server)) = start("closed-pipe") else {
        return;
    };
    let url = server.url_of("data");
    let listing = format!("{}/", server.url);
    let commands: [&[&str]; 3] = [
        &["get", &url, "--json"],
        &["get", &listing],
        &["schedulers"],
    ];
    for arguments in commands {
        let mut command: Command = lab.client_command(arguments);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        let output = ended(child);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {stderr}");
        assert!(
            !stderr.contains("rror") && !stderr.contains("panic"),
            "{stderr}"
        );
    }
    lab.assert_same("files/data", "got/data");
}

/// Somebody on the client's host who sends UDP packets with source port 0 to a server, as only raw
/// sockets can. Nobody can be answered there.
struct PortZero {
    enough: Arc<AtomicBool>,
    sending: thread::JoinHandle<u64>,
}

impl PortZero {
    fn start(lab: &Lab, to: [SocketAddr; 2]) -> Self {
        let open = || Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP));
        let raw = lab.client.enter(open);
        let raw = raw.expect("a host of ours").expect("a raw socket");
        let enough = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&enough);
        let sending = thread::spawn(move || {
            let mut sent = 0;
            while !stop.load(Ordering::Relaxed) {
                for to in to {
                    let packet = Self::packet(to.port());
                    sent += u64::from(raw.send_to(&packet, &SockAddr::from(to)).is_ok());
                }
                thread::sleep(Duration::from_millis(10));
            }
            sent
        });
        Self { enough, sending }
    }

    /// Looks like a packet of a connection that the server does not know: it would be reset.
    fn packet(port: u16) -> Vec<u8> {
        let contents = [&[0x45][..], b"nobody's", &[0; 40]].concat();
        let length = 8 + contents.len() as u16;
        let header = [[0, 0], port.to_be_bytes(), length.to_be_bytes(), [0, 0]];
        [header.concat(), contents].concat()
    }

    /// Ends it; returns how many packets were sent.
    fn end(self) -> u64 {
        self.enough.store(true, Ordering::Relaxed);
        self.sending.join().expect("it sends")
    }
}

#[test]
fn packets_from_port_0_cast_no_doubt_on_a_path_and_end_nothing() {
    measured("port-0", measure_port_0);
}

fn measure_port_0() -> Option<Result<(), String>> {
    let mut lab = Lab::new("port-0", &LINKS)?;
    lab.make_file("files/data", LENGTH);
    let hosts = [0, 1].map(|link| lab.family.address(link, 2));
    let listen = hosts.map(|host| SocketAddr::new(host, PORT));
    let [one, two] = listen.map(|address| address.to_string());
    let qlog = lab.path("qlog");
    let folder = qlog.display().to_string();
    let options = ["--listen", &one, "--listen", &two, "--qlog", &folder];
    let server = lab.serve(&hosts, &options);
    let mut get = lab.start_get(&server, "data", &[]);
    wait_until_written(&lab, "got", 1_000_000, &mut get);
    let nobody = PortZero::start(&lab, listen);
    let report = get.wait(END).report();
    let sent = nobody.end();
    assert_eq!(report["verified"], "whole");
    lab.assert_same("files/data", "got/data");
    assert!(sent > 50, "{sent} packets from port 0");
    server.process.signal(Signal::SIGINT);
    let ended = server.process.wait(END);
    assert_eq!(ended.code(), Some(0), "{ended:?}");
    let logs = names(&qlog);
    let states = |new: &str| -> usize {
        let new = format!("\"new\":\"{new}\"");
        let text = |name| fs::read_to_string(qlog.join(name)).expect("a log");
        logs.iter()
            .map(|name| text(name).matches(&new).count())
            .sum()
    };
    assert!(states("opened") > 0, "the log tells of paths: {logs:?}");
    let doubts = states("doubted");
    eprintln!(
        "port-0: {sent} packets, {doubts} doubts; {}",
        shares(&report)
    );
    Some(judge(&[(
        doubts == 0,
        format!("the server doubted its paths {doubts} times"),
    )]))
}
