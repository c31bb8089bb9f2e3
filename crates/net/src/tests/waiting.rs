//! Waiting for paths.

use super::{pair, soon};
use crate::Endpoint;

#[tokio::test]
async fn waiting_for_paths_ends_when_so_many_are_open() {
    let pair = pair();
    let (client, server, _manager) = pair.connect(&["127.0.0.1", "127.0.0.2"]).await;
    for side in [&client, &server] {
        soon(side.wait_for_paths(2)).await.unwrap();
        let paths = side.paths();
        assert_eq!(paths.iter().filter(|(_, path)| path.is_open()).count(), 2);
    }
}

#[tokio::test]
async fn waiting_for_paths_ends_with_the_connection() {
    let pair = pair();
    let (client, server, _manager) = pair.connect(&["127.0.0.1"]).await;
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.wait_for_paths(2).await }
    });
    server.close(7, b"done");
    let error = soon(waiting).await.unwrap().unwrap_err().to_string();
    assert!(error.contains("done"), "{error}");
}

#[tokio::test]
async fn an_endpoint_goes_round_when_somebody_waits_for_that() {
    let idle = Endpoint::client().unwrap();
    soon(idle.turned()).await;
    soon(idle.turned()).await;
}

#[test]
fn an_endpoint_whose_driver_is_gone_goes_round_no_more() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap()
    };
    let first = runtime();
    let endpoint = first.block_on(async { Endpoint::client().unwrap() });
    drop(first);
    let turned = async {
        tokio::select! {
            biased;
            () = endpoint.turned() => true,
            // By now everything that could go on has.
            () = async { for _ in 0..100 { tokio::task::yield_now().await } } => false,
        }
    };
    assert!(!runtime().block_on(turned));
}
