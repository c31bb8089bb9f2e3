//! Helpers for the tests of several modules.

use crate::error::Error;
use bytes::Bytes;
use std::fmt::Debug;

/// What is read of one stream, in chunks.
pub(crate) trait Stream {
    /// What comes out.
    type Item: Debug + PartialEq;

    fn push(&mut self, bytes: Bytes);
    fn finish(&mut self);
    fn poll(&mut self) -> Result<Option<Self::Item>, Error>;

    /// The bytes of an item that comes in as many pieces as its stream.
    fn piece(item: &mut Self::Item) -> Option<&mut Bytes>;
}

/// Items of a stream with pieces put together, and the error it ended with, if one.
pub(crate) fn read<S: Stream>(
    mut stream: S,
    chunks: &[Bytes],
    is_finished: bool,
) -> (Vec<S::Item>, Option<Error>) {
    let (mut items, mut error) = (Vec::new(), None);
    for chunk in chunks {
        stream.push(chunk.clone());
        error = error.or(drain(&mut stream, &mut items));
    }
    if is_finished {
        stream.finish();
        error = error.or(drain(&mut stream, &mut items));
    }
    (items, error)
}

fn drain<S: Stream>(stream: &mut S, items: &mut Vec<S::Item>) -> Option<Error> {
    loop {
        let mut item = match stream.poll() {
            Ok(None) => return None,
            Ok(Some(item)) => item,
            Err(error) => return Some(error),
        };
        match (items.last_mut().and_then(S::piece), S::piece(&mut item)) {
            (Some(data), Some(more)) => *data = [&data[..], &more[..]].concat().into(),
            _ => items.push(item),
        }
    }
}

/// What a reader makes of `bytes`, the same however they are cut.
pub(crate) fn reads<S: Stream>(
    new: impl Fn() -> S,
    bytes: &[u8],
    is_finished: bool,
) -> (Vec<S::Item>, Option<Error>) {
    let mut all = cuts(bytes).into_iter();
    let first = read(new(), &all.next().unwrap(), is_finished);
    for chunks in all {
        assert_eq!(read(new(), &chunks, is_finished), first, "{chunks:?}");
    }
    first
}

/// The bytes given in hexadecimal by `text`, ignoring everything else.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter_map(|c| c.to_digit(16))
        .map(|digit| digit as u8)
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

/// All ways to cut `bytes` that tests try: whole, byte by byte, and in two at every place.
pub(crate) fn cuts(bytes: &[u8]) -> Vec<Vec<Bytes>> {
    let piece = Bytes::copy_from_slice;
    let mut cuts = vec![vec![piece(bytes)], bytes.chunks(1).map(piece).collect()];
    for at in 1..bytes.len() {
        cuts.push(vec![piece(&bytes[..at]), piece(&bytes[at..])]);
    }
    cuts
}
