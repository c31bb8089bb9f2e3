//! The contexts by which payloads of a request leave: that of its target, and one for each other
//! remote end of a bound socket (draft-ietf-masque-connect-udp-listen).

use super::order;
use crate::treatment;
use anabranch_masque::capsule::{Capsule, NumberBits};
use anabranch_masque::contexts::Context;
use anabranch_masque::datagram::{put_context, put_remote};
use anabranch_masque::{Contexts, limits};
use anabranch_tunnel::{Numbering, Treatment};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// The context of payloads of the request's target (RFC 9298, section 4).
pub(super) const TARGET: u64 = 0;

/// What precedes payloads of one context.
#[derive(Debug, Clone)]
pub(super) struct Way {
    context: u64,
    /// Counts them, if they are numbered.
    numbering: Option<Numbering>,
    /// Whom each payload names, in a context of many remote ends.
    names: Option<SocketAddr>,
    /// The treatment of what comes back that the peer knows of.
    told: Treatment,
}

impl Way {
    fn new(context: u64) -> Self {
        Self {
            context,
            numbering: None,
            names: None,
            told: Treatment::default(),
        }
    }

    /// Asks for another treatment of what comes back than the peer knows of.
    fn tell(&mut self, treatment: Treatment, owed: &mut Vec<Capsule>) {
        if self.told != treatment {
            self.told = treatment;
            owed.push(Capsule::ContextClass {
                context: self.context,
                class: treatment::text(&treatment).into(),
            });
        }
    }

    /// Numbers what it carries, if there are `numbers`.
    fn number(&mut self, numbers: Option<(u64, NumberBits)>) {
        self.numbering = numbers.map(|(own, bits)| Numbering::new(own, order::size(bits)));
    }

    pub(super) fn is_numbered(&self) -> bool {
        self.numbering.is_some()
    }

    /// Appends what precedes the next payload.
    pub(super) fn put_header(&mut self, out: &mut Vec<u8>) {
        match &mut self.numbering {
            Some(numbering) => {
                numbering.put_header(out);
            }
            None => put_context(out, self.context),
        }
        if let Some(remote) = self.names {
            put_remote(out, remote);
        }
    }
}

/// The ways of a request.
#[derive(Debug)]
pub(super) struct Ways {
    target: Option<Way>,
    others: BTreeMap<SocketAddr, Way>,
    /// The size of our numbers, if there are some.
    bits: Option<NumberBits>,
    /// Registers contexts for those that we send to.
    opens: bool,
    /// How the request itself asks for what comes back to be treated.
    treatment: Treatment,
    /// Whether a context is registered for remote ends that nothing is sent to.
    has_any: bool,
}

impl Ways {
    /// The ways of a new request; appends what has to be said first.
    pub(super) fn begin(
        contexts: &mut Contexts,
        bits: Option<NumberBits>,
        (opens, treatment): (bool, Treatment),
        owed: &mut Vec<Capsule>,
    ) -> Self {
        let target = contexts.find(TARGET).map(|_| {
            let mut way = Way::new(TARGET);
            way.number(number(contexts, TARGET, bits, owed));
            way
        });
        Self {
            target,
            others: BTreeMap::new(),
            bits,
            opens,
            treatment,
            has_any: false,
        }
    }

    /// The way to a remote end, `None` being the target; `None` if there is no context for it.
    /// Appends what has to be said first, such as how to treat what comes back, if that is its own.
    pub(super) fn to(
        &mut self,
        remote: Option<SocketAddr>,
        treatment: Option<Treatment>,
        contexts: &mut Contexts,
        owed: &mut Vec<Capsule>,
    ) -> Option<Way> {
        let Some(remote) = remote else {
            return self.target.clone();
        };
        let open = contexts.of_remote(remote);
        if let Some(known) = self.others.get_mut(&remote) {
            if open == Some(known.context) {
                if let Some(treatment) = treatment.filter(|_| self.opens) {
                    known.tell(treatment, owed);
                }
                return Some(known.clone());
            }
            self.others.remove(&remote);
        }
        let context = match open {
            Some(open) => open,
            None if self.opens => {
                if !self.has_any {
                    self.has_any = true;
                    owed.extend(contexts.open_any().map(|(_, capsule)| capsule));
                }
                let (open, capsule) = contexts.open(remote)?;
                owed.push(capsule);
                open
            }
            None => {
                let any = contexts.toward(remote)?;
                return Some(Way {
                    names: Some(remote),
                    ..Way::new(any)
                });
            }
        };
        let mut way = Way {
            told: self.treatment,
            ..Way::new(context)
        };
        if let Some(treatment) = treatment.filter(|_| self.opens) {
            way.tell(treatment, owed);
        }
        // What the peer numbers it by will do: each direction counts for itself.
        let numbers = self.bits.and_then(|_| contexts.numbers_of(context));
        let numbers = numbers.or_else(|| number(contexts, context, self.bits, owed));
        if self.others.len() >= limits::CONTEXTS {
            self.others
                .retain(|remote, way| contexts.of_remote(*remote) == Some(way.context));
        }
        way.number(numbers);
        self.others.insert(remote, way.clone());
        Some(way)
    }

    /// A payload has left by this way.
    pub(super) fn advance(&mut self, remote: Option<SocketAddr>, way: Way) {
        let place = match remote {
            None => self.target.as_mut(),
            Some(remote) => self.others.get_mut(&remote),
        };
        if let Some(place) = place {
            *place = way;
        }
    }

    /// Nothing is sent to a remote end for now.
    pub(super) fn close(
        &mut self,
        remote: SocketAddr,
        contexts: &mut Contexts,
        owed: &mut Vec<Capsule>,
    ) {
        self.others.remove(&remote);
        let open = contexts.of_remote(remote);
        owed.extend(open.and_then(|context| contexts.close(context)));
    }

    #[cfg(test)]
    pub(super) fn target(&self) -> Option<&Way> {
        self.target.as_ref()
    }
}

/// Registers numbers in front of what a context carries, if there are to be some.
fn number(
    contexts: &mut Contexts,
    context: u64,
    bits: Option<NumberBits>,
    owed: &mut Vec<Capsule>,
) -> Option<(u64, NumberBits)> {
    let bits = bits?;
    let (own, capsule) = contexts.number(context, bits)?;
    owed.push(capsule);
    Some((own, bits))
}

/// Whose context a capsule closes that was not taken yet, and whether both sides had it.
pub(super) fn closes(capsule: &Capsule, contexts: &Contexts) -> Option<(SocketAddr, bool)> {
    let Capsule::CompressionClose { context } = capsule else {
        return None;
    };
    match contexts.find(*context)? {
        Context::Remote(remote) => Some((remote, contexts.toward(remote) == Some(*context))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_masque::{Extensions, Protocol};
    use anabranch_proto::wire::Side;
    use bytes::Bytes;
    use std::time::Duration;

    const BITS: Option<NumberBits> = Some(NumberBits::Sixteen);
    /// What there is without asking.
    const AS_EVER: Treatment = Treatment {
        steering: None,
        priority: 0,
        light: false,
        deadline: None,
        wait: None,
        copies: false,
    };

    fn remote(last: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, last], 443))
    }

    fn contexts(side: Side, has_target: bool) -> Contexts {
        let both = Extensions {
            numbers: true,
            repair: true,
            bind: true,
        };
        Contexts::new(side, Protocol::Udp, both, has_target)
    }

    fn give(owed: &mut Vec<Capsule>, to: &mut Contexts) -> Vec<Capsule> {
        let capsules = owed.drain(..);
        let answers = capsules.flat_map(|one| to.on_capsule(&one, |_| true).unwrap());
        answers.collect()
    }

    fn bytes(mut way: Way) -> Vec<u8> {
        let mut out = Vec::new();
        way.put_header(&mut out);
        out
    }

    #[test]
    fn each_remote_end_has_a_context_and_numbers_of_its_own_both_ways() {
        let mut owed = Vec::new();
        let mut near = contexts(Side::Client, true);
        let mut far = contexts(Side::Server, true);
        let mut ways = Ways::begin(&mut near, BITS, (true, AS_EVER), &mut owed);
        assert_eq!(
            bytes(ways.to(None, None, &mut near, &mut owed).unwrap()),
            [2, 0, 0]
        );
        // The one between them is for those that are not sent to.
        for (last, context) in [(1, 8), (2, 12)] {
            let to = Some(remote(last));
            let mut way = ways.to(to, None, &mut near, &mut owed).unwrap();
            let mut out = Vec::new();
            way.put_header(&mut out);
            assert_eq!(out, [context, 0, 0]);
            ways.advance(to, way);
            let next = ways.to(to, None, &mut near, &mut owed).unwrap();
            assert_eq!(bytes(next), [context, 0, 1]);
        }
        // Two capsules for each, one for the target and one for all others.
        assert_eq!(owed.len(), 6);
        let answers = give(&mut owed, &mut far);
        assert_eq!(answers.len(), 3, "{answers:?}");
        let mut back = Ways::begin(&mut far, BITS, (false, AS_EVER), &mut owed);
        let way = back.to(Some(remote(1)), None, &mut far, &mut owed).unwrap();
        assert_eq!(bytes(way.clone()), [8, 0, 0], "the numbers of the near end");
        assert_eq!(owed.len(), 1, "those of the target");
        let mut datagram = bytes(way);
        datagram.push(b'x');
        let received = near.read(Bytes::from(datagram)).unwrap().unwrap();
        assert_eq!(received.remote, Some(remote(1)));
    }

    #[test]
    fn nobody_is_sent_to_whom_the_client_did_not_open() {
        let (mut near, mut far) = (contexts(Side::Client, false), contexts(Side::Server, false));
        let mut owed = Vec::new();
        let mut back = Ways::begin(&mut far, BITS, (false, AS_EVER), &mut owed);
        assert!(
            back.to(None, None, &mut far, &mut owed).is_none(),
            "no target"
        );
        assert!(
            back.to(Some(remote(1)), None, &mut far, &mut owed)
                .is_none()
        );
        assert_eq!(owed, []);
        // A client that wants to hear of all has a context which names them.
        let (any, capsule) = near.open_any().unwrap();
        give(&mut vec![capsule], &mut far);
        let way = back.to(Some(remote(1)), None, &mut far, &mut owed).unwrap();
        assert_eq!(bytes(way), [any as u8, 4, 192, 0, 2, 1, 1, 187]);
        assert_eq!(owed, []);
    }

    #[test]
    fn a_treatment_is_told_if_it_is_not_that_of_the_request_and_when_it_changes() {
        let (mut near, mut owed) = (contexts(Side::Client, true), Vec::new());
        let wait = |ms| Treatment {
            wait: Some(Duration::from_millis(ms)),
            ..AS_EVER
        };
        let mut ways = Ways::begin(&mut near, BITS, (true, wait(50)), &mut owed);
        let mut told = |remote, treatment| {
            owed.clear();
            ways.to(remote, Some(treatment), &mut near, &mut owed)
                .unwrap();
            let capsules = owed.iter().map(|capsule| match capsule {
                Capsule::ContextClass { context, class } => {
                    format!("{context} {}", String::from_utf8_lossy(class))
                }
                Capsule::CompressionAssign { context, remote } => {
                    format!("{context}{}", if remote.is_some() { " opens" } else { "" })
                }
                Capsule::RegisterSequence { context, .. } => format!("{context} numbers"),
                other => panic!("{other:?}"),
            });
            capsules.collect::<Vec<_>>()
        };
        assert!(told(None, wait(50)).is_empty());
        let first = told(Some(remote(1)), wait(20));
        assert_eq!(first, ["4", "6 opens", "6 wait=20", "8 numbers"]);
        assert!(told(Some(remote(1)), wait(20)).is_empty(), "it is known");
        assert_eq!(told(Some(remote(1)), AS_EVER), ["6 "]);
        assert_eq!(told(Some(remote(2)), wait(50)), ["10 opens", "12 numbers"]);
    }

    #[test]
    fn what_is_closed_is_opened_anew_and_ways_do_not_grow_without_bound() {
        let (mut near, mut owed) = (contexts(Side::Client, true), Vec::new());
        let mut ways = Ways::begin(&mut near, None, (true, AS_EVER), &mut owed);
        for round in 0..1000u16 {
            let remote = SocketAddr::from(([192, 0, 2, 1], round + 1));
            let way = ways.to(Some(remote), None, &mut near, &mut owed).unwrap();
            let again = ways.to(Some(remote), None, &mut near, &mut owed).unwrap();
            assert_eq!(bytes(way), bytes(again));
            if round % 2 == 0 {
                ways.close(remote, &mut near, &mut owed);
            } else {
                let context = near.of_remote(remote).unwrap();
                if round % 4 == 1 {
                    let ack = Capsule::CompressionAck { context };
                    near.on_capsule(&ack, |_| false).unwrap();
                }
                let close = Capsule::CompressionClose { context };
                assert_eq!(closes(&close, &near), Some((remote, round % 4 == 1)));
                near.on_capsule(&close, |_| false).unwrap();
            }
            assert_eq!(near.of_remote(remote), None);
        }
        assert!(ways.others.len() <= limits::CONTEXTS + 1);
    }
}
