//! Which flow is of which class.

use super::*;
use proptest::prelude::*;

fn flow(transport: Transport, port: u16) -> Flow<'static> {
    Flow {
        transport,
        source: Some([192, 168, 1, 7].into()),
        target: Some([192, 0, 2, 1].into()),
        domain: None,
        port,
        dscp: None,
        owner: None,
    }
}

fn own(name: &str, one: Match) -> Class {
    Class {
        name: name.into(),
        matches: vec![one],
        treatment: Treatment::default(),
    }
}

fn name<'a>(classes: &'a Classes, flow: &Flow<'_>) -> &'a str {
    &classes.of(flow).name
}

#[test]
fn without_a_word_of_configuration_what_people_wait_for_has_a_class() {
    let classes = Classes::default();
    let of = |transport, port| name(&classes, &flow(transport, port)).to_owned();
    for (transport, port, expected) in [
        (Transport::Udp, 3478, "voice"),
        (Transport::Udp, 27015, "game"),
        (Transport::Tcp, 22, "shell"),
        (Transport::Udp, 60001, "shell"),
        (Transport::Udp, 53, "names"),
        (Transport::Tcp, 853, "names"),
        (Transport::Udp, 443, "bulk"),
        (Transport::Tcp, 443, "bulk"),
        (Transport::Tcp, 3478, "bulk"),
    ] {
        assert_eq!(of(transport, port), expected, "{transport:?} {port}");
    }
    let marked = Flow {
        dscp: Some(46),
        ..flow(Transport::Udp, 40_000)
    };
    assert_eq!(name(&classes, &marked), "voice");
}

#[test]
fn the_first_class_of_which_all_conditions_hold_has_a_flow() {
    let both = Match {
        transport: Some(Transport::Tcp),
        ports: vec![8000..=8010],
        sources: vec!["192.168.1.0/24".parse().unwrap()],
        ..Match::default()
    };
    let classes = Classes::new(vec![
        own("both", both),
        own(
            "ports",
            Match {
                ports: vec![22..=22, 8000..=8010],
                ..Match::default()
            },
        ),
    ]);
    assert_eq!(name(&classes, &flow(Transport::Tcp, 8005)), "both");
    assert_eq!(name(&classes, &flow(Transport::Udp, 8005)), "ports");
    assert_eq!(name(&classes, &flow(Transport::Tcp, 22)), "ports");
    let elsewhere = Flow {
        source: Some([192, 168, 2, 7].into()),
        ..flow(Transport::Tcp, 8005)
    };
    assert_eq!(name(&classes, &elsewhere), "ports");
}

#[test]
fn a_target_is_known_by_its_address_or_by_its_name() {
    let one = Match {
        targets: vec!["2001:db8::/32".parse().unwrap()],
        domains: vec!["example.org".into()],
        ..Match::default()
    };
    let to = |target: Option<&str>, domain: Option<&'static str>| {
        one.is_met(&Flow {
            target: target.map(|text| text.parse().unwrap()),
            domain,
            ..flow(Transport::Tcp, 443)
        })
    };
    assert!(to(Some("2001:db8::7"), None) && !to(Some("192.0.2.1"), None));
    assert!(to(None, Some("example.org")) && to(None, Some("www.EXAMPLE.org.")));
    assert!(!to(None, Some("notexample.org")) && !to(None, Some("org")) && !to(None, None));
}

#[test]
fn what_is_not_known_of_a_flow_is_no_match() {
    let owned = Match {
        owners: vec![1000],
        ..Match::default()
    };
    let classes = Classes::new(vec![own("mine", owned)]);
    assert!(classes.wants_owner() && !Classes::default().wants_owner());
    assert_eq!(name(&classes, &flow(Transport::Tcp, 443)), "bulk");
    let mine = Flow {
        owner: Some(1000),
        ..flow(Transport::Tcp, 443)
    };
    assert_eq!(name(&classes, &mine), "mine");
}

#[test]
fn a_class_of_the_name_of_a_built_in_one_takes_its_place() {
    let treatment = Treatment {
        priority: 7,
        ..Treatment::default()
    };
    let changed = Class {
        name: "shell".into(),
        matches: Vec::new(),
        treatment,
    };
    let other = own(
        "voice",
        Match {
            ports: vec![7000..=7000],
            ..Match::default()
        },
    );
    let classes = Classes::new(vec![changed, other]);
    let names: Vec<&str> = classes.iter().map(|class| &*class.name).collect();
    assert_eq!(names, ["voice", "game", "shell", "names", "bulk"]);
    assert_eq!(classes.of(&flow(Transport::Tcp, 22)).treatment, treatment);
    assert_eq!(name(&classes, &flow(Transport::Udp, 3478)), "bulk");
    assert_eq!(name(&classes, &flow(Transport::Udp, 7000)), "voice");
}

#[test]
fn what_the_built_in_classes_ask_for_may_be_asked_for() {
    for class in &Classes::default() {
        let Treatment {
            priority,
            deadline,
            wait,
            ..
        } = class.treatment;
        assert!(PRIORITIES.contains(&priority));
        assert!(deadline.is_none_or(|it| DEADLINES.contains(&it)));
        assert!(wait.is_none_or(|it| it <= LONGEST_WAIT));
    }
}

#[test]
fn modes_of_steering_have_names() {
    for one in Steering::ALL {
        assert_eq!(one.to_string().parse(), Ok(one));
    }
    assert!("fastest".parse::<Steering>().is_err());
}

#[test]
fn what_is_not_steered_is_of_the_scheduler_s_first_class() {
    let plain = Treatment::default();
    assert_eq!((plain.class(), plain.is_critical()), (0, false));
    let redundant = Treatment {
        steering: Some(Steering::Redundant),
        ..plain
    };
    assert_eq!((redundant.class(), redundant.is_critical()), (5, true));
}

#[test]
fn subnets_are_written_with_their_bits() {
    let prefix = |text: &str| text.parse::<Prefix>();
    let has = |text: &str, ip: &str| prefix(text).unwrap().contains(ip.parse().unwrap());
    assert!(has("192.0.2.0/24", "192.0.2.255") && !has("192.0.2.0/24", "192.0.3.0"));
    assert!(has("192.0.2.7", "::ffff:192.0.2.7") && has("0.0.0.0/0", "1.2.3.4"));
    assert!(has("::/0", "2001:db8::1") && !has("::/0", "1.2.3.4"));
    assert!(has("2001:db8::/33", "2001:db8:7fff::") && !has("2001:db8::/33", "2001:db8:8000::"));
    for wrong in ["", "a", "1.2.3.4/33", "1.2.3.0/", "::/129", "1.2.3/8"] {
        assert_eq!(prefix(wrong), Err(InvalidPrefix::Form), "{wrong}");
    }
    let told = prefix("192.0.2.7/24").unwrap_err().to_string();
    assert!(told.ends_with("expected 192.0.2.0/24"), "{told}");
}

#[test]
fn numbered_datagrams_have_an_order_unless_they_are_urgent_or_not_waited_for() {
    let ms = Duration::from_millis;
    let of = |treatment: Treatment| (treatment.max_skew(), treatment.class_of_numbered());
    let plain = Treatment::default();
    assert_eq!(of(plain), (Some(ms(20)), ORDERED));
    let longer = Treatment {
        wait: Some(ms(50)),
        ..plain
    };
    assert_eq!(of(longer), (Some(ms(50)), ORDERED));
    let light = Treatment {
        light: true,
        ..plain
    };
    let due = Treatment {
        deadline: Some(ms(100)),
        ..plain
    };
    let alone = Treatment {
        wait: Some(ms(0)),
        ..plain
    };
    for urgent in [light, due, alone] {
        assert_eq!(of(urgent), (None, 0), "{urgent:?}");
    }
    let steered = Treatment {
        steering: Some(Steering::SmallestDelay),
        ..plain
    };
    assert_eq!(of(steered).1, Steering::SmallestDelay.class());
    assert!(Steering::ALL.iter().all(|mode| mode.class() != ORDERED));
}

proptest! {
    #[test]
    fn every_flow_has_a_class(port: u16, udp: bool, domain in "\\PC{0,20}", dscp in 0u8..64) {
        let transport = if udp { Transport::Udp } else { Transport::Tcp };
        let flow = Flow { domain: Some(&domain), dscp: Some(dscp), ..flow(transport, port) };
        let _ = Classes::default().of(&flow);
        let one = Match { domains: vec!["ä.de".into()], ..Match::default() };
        let _ = one.is_met(&flow);
    }
}
