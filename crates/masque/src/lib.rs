//! HTTP/3 as far as a tunnel needs it: CONNECT, extended CONNECT, capsules and HTTP datagrams.
//!
//! This crate decides what those bytes mean and whether a peer kept to RFC 9114, 9204, 9297, 9298
//! and 9484. It has no socket, clock or task, keeps no payload, and knows neither which requests to
//! accept nor what to do with what they carry.
//!
//! | module | of a connection |
//! |---|---|
//! | [`control`], [`settings`] | the streams of one direction: settings, GOAWAY, an idle QPACK |
//! | [`stream`], [`qpack`], [`message`] | a request stream: frames, field sections, messages |
//! | [`target`], [`extensions`], [`proxy_status`] | what is asked for and answered in messages |
//! | [`structured`] | values of fields that are lists or dictionaries |
//! | [`capsule`], [`datagram`], [`contexts`] | what a tunnel carries |
//! | [`ip`] | addresses and routes of a tunnel of IP packets, their headers, errors of ICMP |
//!
//! A client asks for a tunnel, and a proxy reads what it asks for:
//!
//! ```
//! use anabranch_masque::stream::{self, Item, Reader};
//! use anabranch_masque::{Ask, Extensions, Request, Templates};
//! use anabranch_wire::Side;
//!
//! let templates = Templates::of_proxy("proxy.example").expect("an authority");
//! let ask = Ask::Udp(Some("192.0.2.6:443".parse()?));
//! let mut request = Request::new(templates.request(&ask));
//! Extensions::default().put(&mut request.headers);
//! let sent = stream::headers(&request.to_fields());
//!
//! let mut reader = Reader::new(Side::Server);
//! reader.push(sent.into());
//! while let Some(item) = reader.poll()? {
//!     if let Item::Head(fields) = item {
//!         let request = Request::from_fields(fields)?;
//!         assert_eq!(templates.read(&request.line)?, ask);
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub mod capsule;
pub mod contexts;
pub mod control;
pub mod datagram;
pub mod error;
pub mod extensions;
pub mod field;
pub mod ip;
pub mod limits;
pub mod message;
pub mod protocol;
pub mod proxy_status;
pub mod qpack;
pub mod settings;
pub mod stream;
pub mod structured;
pub mod target;

mod frame;
mod input;

pub use contexts::Contexts;
pub use error::{Code, Error};
pub use extensions::Extensions;
pub use field::{Field, Headers};
pub use message::{Request, RequestLine, Response};
pub use protocol::Protocol;
pub use proxy_status::{ProxyError, ProxyStatus};
pub use settings::Settings;
pub use target::{Ask, Host, Target, Templates};

#[cfg(test)]
mod testing;
