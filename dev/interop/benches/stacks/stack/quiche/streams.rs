//! What a client and a server do with the streams of a connection.

use super::super::{answer, request};
use super::endpoint::Connection;
use bytes::Bytes;
use quiche::Error;
use std::collections::{HashMap, VecDeque};
use std::iter::Peekable;
use tokio::sync::oneshot;

/// One end of one connection.
pub(super) trait Application: Default + Send + 'static {
    /// Whether others may connect to it.
    const ACCEPTS: bool;

    /// Someone waits for this connection, whose number this is.
    fn on_connect(&mut self, id: u64, reply: oneshot::Sender<u64>);

    /// Someone wants something of the other end.
    fn on_question(&mut self, question: Question);

    /// Reads what has come, and writes what there is room for.
    fn advance(&mut self, connection: &mut Connection, buffer: &mut [u8]);
}

/// A request that is on its way.
pub(super) struct Question {
    request: [u8; 8],
    /// How much of the request is written.
    written: usize,
    /// How much of the answer has come.
    got: usize,
    reply: oneshot::Sender<usize>,
}

impl Question {
    pub(super) fn new(bytes: usize, reply: oneshot::Sender<usize>) -> Self {
        Self {
            request: request(bytes),
            written: 0,
            got: 0,
            reply,
        }
    }
}

#[derive(Default)]
pub(super) struct Client {
    connecting: Option<(u64, oneshot::Sender<u64>)>,
    /// Those for which there was no stream yet.
    waiting: VecDeque<Question>,
    asked: HashMap<u64, Question>,
    next_stream: u64,
}

impl Application for Client {
    const ACCEPTS: bool = false;

    fn on_connect(&mut self, id: u64, reply: oneshot::Sender<u64>) {
        self.connecting = Some((id, reply));
    }

    fn on_question(&mut self, question: Question) {
        self.waiting.push_back(question);
    }

    fn advance(&mut self, connection: &mut Connection, buffer: &mut [u8]) {
        if !connection.is_established() {
            return;
        }
        if let Some((id, reply)) = self.connecting.take() {
            reply.send(id).unwrap();
        }
        while let Some(stream) = connection.stream_readable_next() {
            self.read(connection, stream, buffer);
        }
        self.write(connection);
    }
}

impl Client {
    fn read(&mut self, connection: &mut Connection, stream: u64, buffer: &mut [u8]) {
        let question = self.asked.get_mut(&stream).expect("the server opens none");
        while let Ok((length, is_last)) = connection.stream_recv(stream, buffer) {
            question.got += length;
            if is_last {
                let question = self.asked.remove(&stream).expect("it is there");
                question.reply.send(question.got).unwrap();
                return;
            }
        }
    }

    fn write(&mut self, connection: &mut Connection) {
        while let Some(question) = self.waiting.front_mut() {
            let rest = &question.request[question.written..];
            match connection.stream_send(self.next_stream, rest, true) {
                Ok(length) => question.written += length,
                Err(Error::Done | Error::StreamLimit) => return,
                Err(error) => panic!("{error}"),
            }
            if question.written == question.request.len() {
                let question = self.waiting.pop_front().expect("it is there");
                self.asked.insert(self.next_stream, question);
                // The next bidirectional one of a client.
                self.next_stream += 4;
            }
        }
    }
}

#[derive(Default)]
pub(super) struct Server {
    requests: HashMap<u64, Vec<u8>>,
    answers: HashMap<u64, Answer>,
}

/// An answer that is on its way.
struct Answer {
    piece: Bytes,
    later: Peekable<Box<dyn Iterator<Item = Bytes> + Send>>,
}

impl Application for Server {
    const ACCEPTS: bool = true;

    fn on_connect(&mut self, _: u64, _: oneshot::Sender<u64>) {
        unreachable!("a server does not connect");
    }

    fn on_question(&mut self, _: Question) {
        unreachable!("a server does not ask");
    }

    fn advance(&mut self, connection: &mut Connection, buffer: &mut [u8]) {
        while let Some(stream) = connection.stream_readable_next() {
            self.read(connection, stream, buffer);
        }
        while let Some(stream) = connection.stream_writable_next() {
            self.write(connection, stream);
        }
    }
}

impl Server {
    fn read(&mut self, connection: &mut Connection, stream: u64, buffer: &mut [u8]) {
        while let Ok((length, is_last)) = connection.stream_recv(stream, buffer) {
            let request = self.requests.entry(stream).or_default();
            request.extend_from_slice(&buffer[..length]);
            if is_last {
                let pieces = Box::new(answer(request)) as Box<dyn Iterator<Item = _> + Send>;
                let mut later = pieces.peekable();
                let piece = later.next().unwrap_or_default();
                self.requests.remove(&stream);
                self.answers.insert(stream, Answer { piece, later });
                self.write(connection, stream);
                return;
            }
        }
    }

    fn write(&mut self, connection: &mut Connection, stream: u64) {
        // A stream can be written before its request has come.
        let Some(answer) = self.answers.get_mut(&stream) else {
            return;
        };
        loop {
            let is_last = answer.later.peek().is_none();
            match connection.stream_send_zc(stream, answer.piece.clone(), is_last) {
                Ok((_, Some(rest))) => {
                    answer.piece = rest;
                    return;
                }
                Ok((_, None)) if is_last => break,
                Ok((_, None)) => answer.piece = answer.later.next().expect("it was seen"),
                // Told again when there is room.
                Err(Error::Done) => return,
                // The connection has ended.
                Err(_) => break,
            }
        }
        self.answers.remove(&stream);
    }
}
