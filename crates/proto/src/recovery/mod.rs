//! Loss recovery (RFC 9002): what was sent, what arrived, what is lost, how fast to send.
//!
//! A [`PacketSpace`] belongs to one packet number space: Initial, Handshake, or the 1-RTT packets
//! of one path. [`RttEstimator`], [`Pacer`] and [`DeliveryRate`] belong to a route. Nothing here
//! decides a congestion window, arms a timer or writes a frame other than acknowledgements: the
//! owner of a space asks for deadlines, hands in acknowledgements and passes on what became of the
//! packets.

pub mod ack_policy;
pub mod ack_requests;
pub mod loss;
pub(crate) mod max_filter;
pub mod one_way;
pub mod pacer;
pub mod packet_pair;
pub mod rate;
pub mod received;
pub mod rtt;
pub mod sent;
pub mod sent_packets;
pub mod space;

pub use ack_policy::AckWish;
pub use ack_requests::AckRequests;
pub use one_way::{DelayDifference, DelayMethod, OneWay};
pub use pacer::Pacer;
pub use packet_pair::PacketPairs;
pub use rate::DeliveryRate;
pub use rtt::RttEstimator;
pub use sent_packets::SentPacket;
pub use space::{LargestNewlyAcked, PacketSpace};
