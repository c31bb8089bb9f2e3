//! Hosts that pause what they fetch, beside one that does not.

use super::socks::Near;
use super::*;
use std::net::IpAddr;
use tokio::net::TcpStream;

/// More than a connection takes for streams that nobody reads, if each takes what it took first.
const PAUSED: usize = 12;

/// What a host reads before it pauses: enough for windows to grow.
const BEFORE: usize = 8 << 20;

/// What the system may keep for a host that reads nothing and whose buffer is `LITTLE`: 256 KiB are
/// not sent, and buffers count more than they hold.
const KEPT: u64 = 512 << 10;
const LITTLE: u32 = 8 << 10;

/// Sends to each host as much as it takes.
async fn source() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut host, _)) = listener.accept().await {
            tokio::spawn(async move {
                let bytes = vec![7; 64 << 10];
                while host.write_all(&bytes).await.is_ok() {}
            });
        }
    });
    address
}

/// A connection to `target` by the SOCKS5 proxy of a near end.
async fn by(near: &Near, target: SocketAddr) -> TcpStream {
    let host = TcpStream::connect(near.proxy).await.unwrap();
    ask_for(host, target).await
}

async fn ask_for(mut host: TcpStream, target: SocketAddr) -> TcpStream {
    let IpAddr::V4(ip) = target.ip() else {
        panic!("{target} is no IPv4 address");
    };
    let mut request = vec![5, 1, 0, 5, 1, 0, 1];
    request.extend(ip.octets());
    request.extend(target.port().to_be_bytes());
    host.write_all(&request).await.unwrap();
    let mut answer = [0; 12];
    host.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer[..4], [5, 0, 5, 0]);
    host
}

async fn read(host: &mut TcpStream, bytes: usize) {
    let mut buffer = vec![0; bytes];
    let read = timeout(END, host.read_exact(&mut buffer)).await;
    read.expect("bytes come in time").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_that_pause_what_they_fetch_do_not_stop_others() {
    let place = Place::open(100);
    let (near, target) = (Near::open(&place).await, source().await);
    let mut paused = Vec::new();
    for _ in 0..PAUSED {
        let mut host = by(&near, target).await;
        read(&mut host, BEFORE).await;
        paused.push(host);
    }
    let mut host = by(&near, target).await;
    read(&mut host, 4 * BEFORE).await;
    // Whoever goes on gets what was held, and more.
    for host in &mut paused {
        read(host, 2 * BEFORE).await;
    }
}

/// What has left the stream of the only flow for its host.
async fn brought(near: &Near, target: SocketAddr) -> u64 {
    let target = target.to_string();
    let flows = near.entry.flows(Some(&target), 9).await;
    flows.flows[0].down_bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn little_waits_in_the_system_for_a_host_that_does_not_read() {
    let place = Place::open(100);
    let (near, target) = (Near::open(&place).await, source().await);
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(LITTLE).unwrap();
    let host = socket.connect(near.proxy).await.unwrap();
    let mut host = ask_for(host, target).await;
    let brought = timeout(END, async {
        let mut before = 0;
        loop {
            // Each look takes a second: nothing comes any more.
            let now = brought(&near, target).await;
            if now > 0 && now == before {
                return now;
            }
            before = now;
        }
    });
    let brought = brought.await.expect("it stands still in time");
    assert!(brought <= KEPT, "{brought} bytes");
    read(&mut host, BEFORE).await;
}
