//! Both ends of a tunnel over loopback: what applications get through it, and who is let in.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "common/ending.rs"]
mod ending;
#[path = "common/files.rs"]
mod files;
#[path = "common/tunnels.rs"]
mod tunnels;

use anabranch_testbed::resumed;
use files::noise;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::Duration;
use tunnels::{Far, Near, connect_http, connect_socks, limited};

/// Carries out `serve` for the first connection of a listener; returns where that is.
fn once(serve: impl FnOnce(TcpStream) + Send + 'static) -> (String, thread::JoinHandle<()>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let serving = thread::spawn(move || serve(limited(listener.accept().unwrap().0)));
    (address, serving)
}

fn echo(mut stream: TcpStream) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = resumed(|| stream.read(&mut buffer)) {
        stream.write_all(&buffer[..count]).unwrap();
    }
}

/// A port on which nobody listens.
fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// Sends and receives a megabyte at once.
#[track_caller]
fn assert_echoes(mut stream: &TcpStream) {
    let data = noise(1_000_000);
    let sent = data.clone();
    let mut sender = stream.try_clone().unwrap();
    let sending = thread::spawn(move || {
        sender.write_all(&sent).unwrap();
        sender.shutdown(Shutdown::Write).unwrap();
    });
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    sending.join().unwrap();
    assert!(got == data, "{} bytes came back", got.len());
}

#[test]
fn bytes_pass_both_ways_by_either_proxy_and_ends_are_passed_on() {
    let far = Far::start(&[]);
    let near = Near::join(&far);
    let (address, _) = once(echo);
    assert_echoes(&connect_socks(near.proxy, &address).unwrap());
    let (address, _) = once(echo);
    assert_echoes(&connect_http(near.proxy, &address).unwrap());
    let port = address.rsplit_once(':').unwrap().1.to_owned();
    let named = connect_socks(near.proxy, &format!("localhost:{port}"));
    assert_eq!(
        named.unwrap_err(),
        "5",
        "resolved at the far end, and nobody is there now"
    );
}

#[test]
fn everything_works_without_ipv4() {
    let Ok(listener) = TcpListener::bind("[::1]:0") else {
        return anabranch_testbed::Need::Network.skip("tunnel-ipv6", "there is no IPv6");
    };
    let far = Far::start(&["--listen", "[::1]:0", "--allow", "::1"]);
    let bare = far.url.split_once('@').unwrap().1;
    let v6 = bare
        .split(['/', ','])
        .find(|host| host.starts_with('['))
        .unwrap();
    let pin = far.url.split_once('@').unwrap().0;
    let invitation = far.url.rsplit_once('/').unwrap().1;
    let url = format!("{pin}@{v6}/join/{invitation}");
    let state = tempfile::tempdir().unwrap();
    let near = Near::join_in(state, &url, &["--listen", "[::1]:0"]);
    let address = listener.local_addr().unwrap().to_string();
    let serving = thread::spawn(move || echo(listener.accept().unwrap().0));
    assert_echoes(&connect_socks(near.proxy, &address).unwrap());
    serving.join().unwrap();
}

#[test]
fn our_own_far_end_is_a_proxy_like_any_other_to_who_knows_nothing_of_joining() {
    let far = Far::start(&[]);
    let added = far.ask(&["clients", "add", "phone"]);
    assert!(added.status.success(), "{added:?}");
    let state = tempfile::tempdir().unwrap();
    let credential = state.path().join("credential");
    std::fs::write(&credential, added.stdout).unwrap();
    let pin = far
        .url
        .split_once("://")
        .unwrap()
        .1
        .split_once('@')
        .unwrap()
        .0;
    let url = format!("https://{pin}@127.0.0.1:{}/", far.port());
    let credential = credential.display().to_string();
    let near = Near::join_in(state, &url, &["--credential", &credential]);
    let (address, _) = once(echo);
    assert_echoes(&connect_socks(near.proxy, &address).unwrap());
    assert_eq!(connect_socks(near.proxy, "127.0.0.2:80").unwrap_err(), "2");
    let stranger = Near::join_in(tempfile::tempdir().unwrap(), &url, &[]);
    assert_eq!(connect_socks(stranger.proxy, &address).unwrap_err(), "1");
    stranger.wait_for("the proxy wants to know who this is\n  hint: ");
    let mixed = Near::refused_with(&far.url, &["--credential", &credential]);
    let said = String::from_utf8(mixed.stderr).unwrap();
    assert!(
        said.contains("`--credential` is for proxies of others"),
        "{said}"
    );
}

#[test]
fn what_cannot_be_reached_is_told_as_what_it_is() {
    let far = Far::start(&[]);
    let near = Near::join(&far);
    let closed = format!("127.0.0.1:{}", free_port());
    let refused = |target: &str| connect_socks(near.proxy, target).unwrap_err();
    assert_eq!(refused(&closed), "5");
    assert_eq!(refused("no-such-host.invalid:80"), "4");
    assert_eq!(refused("127.0.0.2:80"), "2", "not among --allow");
    assert_eq!(refused("[::1]:80"), "2");
    let refused = |target: &str| connect_http(near.proxy, target).unwrap_err();
    let told = refused(&closed);
    assert!(told.starts_with("HTTP/1.1 502 "), "{told}");
    assert!(
        told.contains("Proxy-Status: anabranch; error=connection_refused"),
        "{told}"
    );
    let told = refused("127.0.0.2:80");
    assert!(
        told.starts_with("HTTP/1.1 502 ") && told.contains("--allow"),
        "{told}"
    );
    assert!(refused("no-such-host.invalid:80").starts_with("HTTP/1.1 50"));
}

#[test]
fn a_host_that_has_said_all_still_gets_its_answer() {
    let far = Far::start(&[]);
    let near = Near::join(&far);
    let (address, serving) = once(|mut stream| {
        let mut question = Vec::new();
        stream.read_to_end(&mut question).unwrap();
        stream.write_all(&question.repeat(3)).unwrap();
    });
    let mut stream = connect_socks(near.proxy, &address).unwrap();
    stream.write_all(b"well?").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "well?well?well?");
    serving.join().unwrap();
}

#[test]
fn a_reset_reaches_the_other_host_as_a_reset() {
    let far = Far::start(&[]);
    let near = Near::join(&far);
    let (address, serving) = once(|mut stream| {
        stream.read_exact(&mut [0]).unwrap();
        tunnels::reset(stream);
    });
    let mut stream = connect_socks(near.proxy, &address).unwrap();
    stream.write_all(b"x").unwrap();
    let error = stream.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    serving.join().unwrap();

    let (address, serving) = once(|mut stream| {
        let error = stream.read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    });
    let mut stream = connect_socks(near.proxy, &address).unwrap();
    stream.write_all(b"x").unwrap();
    tunnels::reset(stream);
    serving.join().unwrap();
}

#[test]
fn an_invitation_lets_in_one_machine_which_may_come_again() {
    let far = Far::start(&[]);
    let near = Near::join(&far);
    let (address, _) = once(echo);
    assert_echoes(&connect_socks(near.proxy, &address).unwrap());
    let ended = Near::refused(&far.url);
    assert_eq!(ended.status.code(), Some(1));
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(said.contains("tunnel invite"), "{said}");
    let state = near.stop();
    let near = Near::join_in(state, &far.url, &[]);
    let (address, _) = once(echo);
    assert_echoes(&connect_socks(near.proxy, &address).unwrap());
    let state = near.stop();
    let bare = far.url.split_once("/join/").unwrap().0;
    let near = Near::join_in(state, bare, &[]);
    let (address, _) = once(echo);
    assert_echoes(&connect_socks(near.proxy, &address).unwrap());
}

#[test]
fn a_far_end_that_cannot_write_down_whom_it_lets_in_is_asked_again() {
    let far = Far::start(&[]);
    // A directory in the place of the file that is written first: as good as a full disk.
    let obstacle = far.state().join("tunnel-clients.json.new");
    std::fs::create_dir(&obstacle).unwrap();
    let near = Near::start(tempfile::tempdir().unwrap(), &far.url, &[]);
    near.wait_for("cannot write down whom it lets in: see its log (status 503); trying again");
    far.wait_for("not let in: ");
    std::fs::remove_dir(&obstacle).unwrap();
    near.wait_for("connected to");
}

#[test]
fn a_file_that_is_taken_for_a_node_is_left_alone() {
    let state = tempfile::tempdir().unwrap();
    let file = state.path().join("notes");
    std::fs::write(&file, "precious").unwrap();
    let output = tunnels::ask(&state, &["status", "--control", file.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("no socket"),
        "{said}"
    );
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
}

#[test]
fn new_connections_go_on_after_the_far_end_was_restarted() {
    let far = Far::start(&[]);
    let near = Near::join(&far);
    let (address, _) = once(echo);
    let mut held = connect_socks(near.proxy, &address).unwrap();
    held.write_all(b"x").unwrap();
    held.read_exact(&mut [0]).unwrap();
    let far = far.restart();
    let (address, _) = once(echo);
    assert_echoes(&connect_socks(near.proxy, &address).unwrap());
    assert!(
        held.read_to_end(&mut Vec::new()).is_err(),
        "it was lost, and is told so"
    );
    near.wait_for("the tunnel broke");
    drop(far);
}

#[test]
fn a_client_that_is_revoked_is_out_at_once_and_for_good() {
    let far = Far::start(&[]);
    let near = Near::join_in(tempfile::tempdir().unwrap(), &far.url, &["--name", "van"]);
    let (address, _) = once(echo);
    let mut held = connect_socks(near.proxy, &address).unwrap();
    let listed = json(&far.ask(&["clients", "--json"]));
    assert_eq!(listed[0]["name"], "van");
    assert_eq!(listed[0]["connected"], true);
    let output = far.ask(&["clients", "revoke", "car"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(far.ask(&["clients", "revoke", "van"]).status.success());
    assert!(held.read_to_end(&mut Vec::new()).is_err());
    let (code, said) = near.ended();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("does not let this machine in"), "{said}");
    assert_eq!(
        json(&far.ask(&["clients", "--json"])),
        serde_json::json!([])
    );
}

#[test]
fn a_credential_for_a_client_of_others_is_shown_once_and_written_nowhere() {
    let far = Far::start(&[]);
    let output = far.ask(&["clients", "add", "phone"]);
    let (shown, said) = (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    );
    let credential = shown.trim();
    assert_eq!(credential.len(), 43, "{shown}");
    assert!(
        said.contains("phone") && !said.contains(credential),
        "{said}"
    );
    let again = far.ask(&["clients", "add", "phone"]);
    assert_eq!((again.status.code(), again.stdout), (Some(1), Vec::new()));
    let said = String::from_utf8(again.stderr).unwrap();
    assert!(said.contains("take another name"), "{said}");
    let added = json(&far.ask(&["clients", "--json", "add", "tablet"]));
    assert_eq!(added["name"], "tablet");
    let listed = json(&far.ask(&["clients", "--json"])).to_string();
    assert!(
        listed.contains("phone") && listed.contains("tablet"),
        "{listed}"
    );
    let second = added["credential"].as_str().unwrap();
    let files = std::fs::read_dir(far.state()).unwrap();
    let texts = files.filter_map(|file| std::fs::read(file.unwrap().path()).ok());
    let texts: Vec<String> = texts
        .map(|text| String::from_utf8_lossy(&text).into_owned())
        .collect();
    assert!(texts.iter().any(|text| text.contains("phone")));
    for text in texts.iter().chain([&listed]) {
        assert!(
            !text.contains(credential) && !text.contains(second),
            "{text}"
        );
    }
}

#[test]
fn both_ends_tell_what_they_do() {
    let far = Far::start(&["--name", "home"]);
    let near = Near::join_in(tempfile::tempdir().unwrap(), &far.url, &["--name", "van"]);
    let (address, _) = once(echo);
    let mut held = connect_socks(near.proxy, &address).unwrap();
    held.write_all(&[1; 1000]).unwrap();
    held.read_exact(&mut [0; 1000]).unwrap();
    let status = json(&near.ask(&["status", "--json"]));
    assert_eq!(
        (&status["node"], &status["far_end"]),
        (&"near".into(), &"home".into())
    );
    assert_eq!(status["connections"]["open"], 1);
    assert_eq!(status["traffic"]["up_bytes"], 1000);
    assert_eq!(status["paths"][0]["state"], "open");
    let status = json(&far.ask(&["status", "--json"]));
    let client = &status["clients"][0];
    assert_eq!(
        (&client["name"], &client["open"]),
        (&"van".into(), &1.into())
    );
    assert_eq!(client["traffic"]["down_bytes"], 1000);
    let text = String::from_utf8(near.ask(&["status"]).stdout).unwrap();
    assert!(
        text.starts_with("near end, connected to home for "),
        "{text}"
    );
    let text = String::from_utf8(far.ask(&["clients"]).stdout).unwrap();
    assert!(text.contains("van") && text.contains("connected"), "{text}");
    let url = String::from_utf8(far.ask(&["invite"]).stdout).unwrap();
    let second = Near::join_in(tempfile::tempdir().unwrap(), url.trim(), &[]);
    assert_eq!(
        json(&far.ask(&["clients", "--json"]))
            .as_array()
            .unwrap()
            .len(),
        2
    );
    let nobody = second.stop();
    let output = tunnels::ask(&nobody, &["status"]);
    assert_eq!(output.status.code(), Some(1), "its socket went with it");
}

fn json(output: &std::process::Output) -> serde_json::Value {
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn both_ends_leave_at_once_when_told_to() {
    let far = Far::start(&[]);
    let near = Near::join(&far);
    let (address, _) = once(echo);
    let held = connect_socks(near.proxy, &address).unwrap();
    near.stop();
    far.stop();
    drop(held);
}

#[test]
fn an_unmodified_curl_fetches_by_either_proxy() {
    if !anabranch_testbed::Need::Network.programs("tunnel-curl", &["curl"]) {
        return;
    }
    let far = Far::start(&[]);
    let near = Near::join(&far);
    for proxy in ["socks5h", "http"] {
        let (address, serving) = once(|mut stream| {
            let mut request = [0; 1024];
            assert!(resumed(|| stream.read(&mut request)).unwrap() > 0);
            let head = b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n";
            stream.write_all(head).unwrap();
            stream.write_all(&noise(3_000_000)).unwrap();
        });
        let output = ending::output(
            Command::new("curl")
                .args([
                    "--silent",
                    "--show-error",
                    "--fail",
                    "--proxytunnel",
                    "--max-time",
                    "60",
                ])
                .args(["--proxy", &format!("{proxy}://{}", near.proxy)])
                .arg(format!("http://{address}/")),
        );
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{proxy}: {words}");
        assert!(output.stdout == noise(3_000_000), "{proxy}");
        serving.join().unwrap();
    }
}

#[test]
fn a_client_that_asks_without_waiting_loses_nothing() {
    let far = Far::start(&[]);
    let near = Near::join(&far);
    let (address, _) = once(echo);
    let mut stream = limited(TcpStream::connect(near.proxy).unwrap());
    let ask = format!("CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\nearly");
    stream.write_all(ask.as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nearly"),
        "{answer}"
    );
}

#[test]
fn connections_wait_for_a_far_end_that_is_not_there_yet() {
    let far = Far::start(&[]);
    let (url, state, port) = far.leave();
    let near = Near::start(
        tempfile::tempdir().unwrap(),
        &url,
        &["--connect-timeout", "1"],
    );
    let (address, _) = once(echo);
    let proxy = near.proxy;
    let waiting = thread::spawn(move || assert_echoes(&connect_socks(proxy, &address).unwrap()));
    thread::sleep(Duration::from_millis(500));
    let far = Far::start_in(state, port, &[]);
    waiting.join().unwrap();
    drop(far);
}
