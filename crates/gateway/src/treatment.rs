//! How a near end asks its far end to treat what comes back: the header `anabranch-class`.
//!
//! ```text
//! anabranch-class: steering=redundant, priority=3, light, deadline=100, wait=20, copies
//! ```
//! Of a bound UDP socket that is the treatment of the request's target; the same text in a capsule
//! (`Capsule::ContextClass`) is that of what another remote end sends.
//!
//! A dictionary (RFC 9651); times are in milliseconds. It is advice: keys and values that are not
//! known, and a header that is none, are as if they were not there.

use anabranch_masque::Headers;
use anabranch_masque::structured::{Bare, dictionary};
use anabranch_tunnel::class::{DEADLINES, LONGEST_WAIT, PRIORITIES, Treatment};
use std::time::Duration;

const HEADER: &str = "anabranch-class";

/// Asks for a treatment, unless it is what there is without asking.
pub(crate) fn put(headers: &mut Headers, treatment: &Treatment) {
    let text = text(treatment);
    if !text.is_empty() {
        headers.push(HEADER, text);
    }
}

/// The value of the header, which remote ends of a bound socket have too: empty for what there is
/// without asking.
pub(crate) fn text(treatment: &Treatment) -> String {
    let mut members = Vec::new();
    let Treatment {
        steering,
        priority,
        light,
        deadline,
        wait,
        copies,
    } = treatment;
    members.extend(steering.map(|mode| format!("steering={mode}")));
    if *priority != 0 {
        members.push(format!("priority={priority}"));
    }
    if *light {
        members.push("light".to_owned());
    }
    members.extend(deadline.map(|it| format!("deadline={}", it.as_millis())));
    members.extend(wait.map(|it| format!("wait={}", it.as_millis())));
    if *copies {
        members.push("copies".to_owned());
    }
    members.join(", ")
}

/// What a text asks for.
pub(crate) fn read_text(text: &[u8]) -> Treatment {
    let text = String::from_utf8_lossy(text).into_owned();
    read(&Headers::new().with(HEADER, text))
}

/// What a request asks for.
pub(crate) fn read(headers: &Headers) -> Treatment {
    let mut treatment = Treatment::default();
    for (key, value) in dictionary(headers, HEADER).unwrap_or_default() {
        let time = |value: &Bare| {
            let ms = u64::try_from(value.integer()?).ok()?;
            Some(Duration::from_millis(ms))
        };
        match key.as_str() {
            "steering" => {
                treatment.steering = value.into_text().and_then(|text| text.parse().ok());
            }
            "priority" => {
                let number = value.integer().and_then(|it| i32::try_from(it).ok());
                let number = number.filter(|it| PRIORITIES.contains(it));
                treatment.priority = number.unwrap_or_default();
            }
            "light" => treatment.light = value.is_true(),
            "deadline" => {
                treatment.deadline = time(&value).filter(|it| DEADLINES.contains(it));
            }
            "wait" => treatment.wait = time(&value).filter(|it| *it <= LONGEST_WAIT),
            "copies" => treatment.copies = value.is_true(),
            _ => {}
        }
    }
    treatment
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_tunnel::class::Classes;

    fn told(treatment: &Treatment) -> Headers {
        let mut headers = Headers::new();
        put(&mut headers, treatment);
        headers
    }

    #[test]
    fn what_one_end_asks_for_the_other_hears() {
        let everything = Treatment {
            steering: "redundant".parse().ok(),
            priority: -3,
            light: true,
            deadline: Some(Duration::from_millis(100)),
            wait: Some(Duration::ZERO),
            copies: true,
        };
        let text = "steering=redundant, priority=-3, light, deadline=100, wait=0, copies";
        assert_eq!(told(&everything).text(HEADER), Some(text));
        assert_eq!(read(&told(&everything)), everything);
        assert_eq!(told(&Treatment::default()).text(HEADER), None);
        for class in &Classes::default() {
            assert_eq!(
                read(&told(&class.treatment)),
                class.treatment,
                "{}",
                class.name
            );
        }
    }

    #[test]
    fn what_is_not_understood_is_as_if_it_were_not_there() {
        let of = |text: &str| read(&Headers::new().with(HEADER, text.to_owned()));
        for nothing in [
            "",
            "priority=8",
            "priority=high",
            "wait=501",
            "wait=-1",
            "deadline=0",
            "deadline=20000",
            "steering=fastest",
            "copies=?0, later=7",
            "priority=3,",
            "PRIORITY=3",
        ] {
            assert_eq!(of(nothing), Treatment::default(), "{nothing}");
        }
        assert_eq!(of("later=7;x, priority=3").priority, 3);
        assert_eq!(read_text(b"later=7;x, priority=3").priority, 3);
        for nothing in [&b"priority=\xff"[..], b"\0", &[b'1'; 10_000]] {
            assert_eq!(read_text(nothing), Treatment::default());
        }
    }
}
