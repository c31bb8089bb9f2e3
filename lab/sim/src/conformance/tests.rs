//! What the kit accepts and what it rejects.

use super::*;
use anabranch_link::{LinkConfig, Loss, Probability};
use anabranch_proto::sched::{
    Choice, Decision, Entry, Reason, Scheduler, SendView, UnitKind, Wants, lowest_rtt,
};

fn few() -> Kit {
    let all = networks();
    let wanted = ["equal", "a tenth of the rate"];
    let few = all.into_iter().filter(|n| wanted.contains(&n.name));
    Kit::on(few.collect())
}

#[test]
fn there_are_sixteen_networks_with_names_of_their_own() {
    let all = networks();
    assert_eq!(all.len(), 16);
    for (at, network) in all.iter().enumerate() {
        let first = all.iter().position(|other| other.name == network.name);
        assert_eq!(first, Some(at));
    }
}

/// Sends at one opportunity in a hundred.
#[derive(Debug, Default)]
struct Lazy(u32);

impl Scheduler for Lazy {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        self.0 += 1;
        match view.ready().next() {
            Some(path) if self.0.is_multiple_of(100) => Choice::send(path.id, Reason::Turn),
            _ => Choice::hold(Reason::WaitForBetter),
        }
    }
}

#[test]
fn a_scheduler_that_wastes_its_chances_is_found_out() {
    let mut names = Names::default();
    names.schedulers.register(Entry {
        name: "lazy",
        summary: "takes few chances",
        params: &[],
        build: |_| Ok(Box::<Lazy>::default()),
    });
    let report = few().check(&names, "lazy").unwrap();
    let broken: Vec<_> = report.breaches().map(|finding| finding.rule).collect();
    assert!(broken.contains(&Rule::BestPath), "{report}");
}

#[test]
fn a_strict_scheduler_is_excused_with_its_reason() {
    let kit = few();
    let report = kit
        .check(&Names::default(), "round-robin:mode=hold")
        .unwrap();
    assert!(report.is_conformant(), "{report}");
    assert!(
        report.to_string().contains("because turns are kept"),
        "{report}"
    );
}

#[test]
fn an_excuse_holds_for_its_mode_its_networks_and_so_far_only() {
    let slow = Measured {
        factor: Some(2.0),
        ..finding(Rule::BestPath, &networks()[11], false, String::new())
    };
    let excused = |text: &str, measured: &Measured| {
        let spec: Spec = text.parse().unwrap();
        excuse(&spec, text, measured).is_some()
    };
    assert_eq!(slow.finding.network, "a tenth of the rate");
    assert!(excused("round-robin:mode=hold", &slow));
    assert!(
        excused("guard+round-robin:mode=hold", &slow),
        "a wrapper changes no nature"
    );
    assert!(!excused("round-robin", &slow), "the other mode");
    let slower = Measured {
        factor: Some(20.0),
        ..slow.clone()
    };
    assert!(!excused("round-robin:mode=hold", &slower));
    let never = Measured {
        factor: None,
        ..slow.clone()
    };
    assert!(!excused("round-robin:mode=hold", &never), "it does not end");
    let elsewhere = Measured {
        factor: Some(2.0),
        ..finding(Rule::BestPath, &networks()[0], false, String::new())
    };
    assert!(!excused("round-robin:mode=hold", &elsewhere));
}

/// Serves one stream after the other, by the lowest RTT.
#[derive(Debug, Default)]
struct OneByOne;

impl Scheduler for OneByOne {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        let choice = lowest_rtt(view);
        let oldest = view.streams.iter().map(|stream| stream.id).min();
        match (choice.decision, oldest) {
            (Decision::Send(path), Some(stream)) if view.unit.kind == UnitKind::Fresh => Choice {
                decision: Decision::SendStream { path, stream },
                ..choice
            },
            _ => choice,
        }
    }

    fn wants(&self) -> Wants {
        Wants {
            streams: true,
            ..Wants::default()
        }
    }
}

#[test]
fn a_scheduler_that_serves_one_stream_after_the_other_is_found_out() {
    let mut names = Names::default();
    names.schedulers.register(Entry {
        name: "one-by-one",
        summary: "one stream after the other",
        params: &[],
        build: |_| Ok(Box::<OneByOne>::default()),
    });
    let report = few().check(&names, "one-by-one").unwrap();
    let broken: Vec<_> = report.breaches().map(|finding| finding.rule).collect();
    assert_eq!(broken, [Rule::NoStarvation], "{report}");
}

#[test]
fn a_path_that_is_late_now_and_then_costs_next_to_nothing() {
    let late = calm(&anabranch_schedulers::recommended());
    let names: Vec<_> = late.iter().map(|late| late.finding.network).collect();
    assert_eq!(names, ["a late peer", "jitter", "brief stalls"]);
    for measured in late {
        eprintln!("{}: {}", measured.finding.network, measured.finding.figure);
        assert!(measured.finding.kept, "{measured:?}");
    }
}

#[test]
fn bytes_that_are_sent_again_break_the_rule_about_lateness() {
    let lossy = LinkConfig {
        loss: Loss::Independent(Probability::new(0.1).expect("a share")),
        ..networks::patient()
    };
    let network = Network {
        name: "10 % loss",
        links: [lossy.clone(), lossy],
    };
    let scheduler = anabranch_schedulers::recommended();
    let measured = lateness(&scheduler, &network, Trouble::None);
    assert!(!measured.finding.kept, "{measured:?}");
}

#[test]
fn the_default_scheduler_conforms_on_all_sixteen_networks() {
    let report = Kit::new().check(&Names::default(), "tail+min-rtt").unwrap();
    eprintln!("{report}");
    assert!(report.is_conformant(), "{report}");
}
