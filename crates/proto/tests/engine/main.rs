//! The engine as its users meet it: whole connections between two endpoints on a virtual clock
//! (`pair`), and scripted peers that have the keys of a connection and none of its manners (`raw`).

mod abandonment;
mod attacks;
mod caller;
mod careful_resume;
mod containment;
mod ecn;
mod errors;
mod failover;
mod first_answer;
mod gaps;
mod incoming;
mod late_acks;
mod mechanisms;
mod migration;
mod mtu;
mod one_way;
mod opening;
mod pair;
mod placement;
mod policies;
mod probes;
mod qlog;
mod raw;
mod repair;
mod resting;
mod resumption;
mod review;
mod scheduler_events;
mod schedulers;
mod spurious;
mod transfer;
mod view;
