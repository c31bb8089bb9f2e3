//! What a client keeps of its paths for later connections.

use super::*;

/// Some of it arrives before the window is large enough to be worth remembering.
const UPLOAD: usize = 8_000_000;

/// An address as states have it.
fn encoded(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

#[tokio::test]
async fn each_path_is_kept_with_the_address_that_it_left_from() {
    let mut pair = resuming_pair();
    pair.use_paths_in_turn();
    let (connection, accepted, _manager) = pair.connect(&["127.0.0.1", "127.0.0.2"]).await;
    let is_open = |at: &PathId| connection.path_stats(*at).is_some_and(|it| it.validated);
    soon(async {
        while !is_open(&PathId(1)) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    let mut send = soon(connection.open_uni()).await.unwrap();
    let sending = async {
        send.write_all(&vec![7; UPLOAD]).await.unwrap();
        send.finish().unwrap();
    };
    let receiving = async {
        let mut recv = accepted.accept_uni().await.unwrap();
        recv.read_to_end(UPLOAD).await.unwrap().len()
    };
    let ((), got) = soon(async { tokio::join!(sending, receiving) }).await;
    assert_eq!(got, UPLOAD);
    soon(connection.resumable()).await;
    let state = connection.take_resumption().unwrap().encode();
    let server = encoded(pair.target.remotes[0].ip());
    for local in [[127, 0, 0, 1], [127, 0, 0, 2]] {
        let both_ends = [server, encoded(local.into())].concat();
        let knows = state.windows(32).any(|part| part == both_ends);
        assert!(knows, "{local:?}: {:?}", connection.path_stats(PathId(1)));
    }
}
