//! What the kit lets pass and what not.

use super::*;
use anabranch_proto::sched::{Choice, Entry, Reason, Scheduler, SendView};

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

/// Takes only every hundredth chance.
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
fn a_strict_scheduler_is_excused_with_its_reason_and_its_other_mode_is_not() {
    let kit = few();
    let report = kit
        .check(&Names::default(), "round-robin:mode=hold")
        .unwrap();
    assert!(report.is_conformant(), "{report}");
    assert!(
        report.to_string().contains("because turns are kept"),
        "{report}"
    );
    let spec: Spec = "round-robin".parse().unwrap();
    assert_eq!(excuse(&spec, "round-robin", Rule::BestPath), None);
}

#[test]
fn the_default_scheduler_conforms_on_all_sixteen_networks() {
    let report = Kit::new().check(&Names::default(), "min-rtt").unwrap();
    eprintln!("{report}");
    assert!(report.is_conformant(), "{report}");
}
