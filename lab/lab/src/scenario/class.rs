//! How a tunnel treats a flow: the name of a class it has, or a class of its own.

use super::mistake::Mistake;
use super::reader::{Item, Table};
use anabranch_tunnel::class::{DEADLINES, LONGEST_WAIT, PRIORITIES, REST, Steering};
use anabranch_tunnel::{Classes, Treatment};
use std::time::Duration;

/// The treatment of what no class wants.
pub(super) fn usual() -> Treatment {
    let classes = Classes::default();
    let rest = classes.iter().find(|class| class.name == REST);
    rest.map(|class| class.treatment).unwrap_or_default()
}

/// Reads the class of a flow of datagrams.
pub(super) fn of_datagrams(item: &Item<'_>) -> Result<Treatment, Mistake> {
    class(item, |table, treatment| {
        let deadline = within(*DEADLINES.start(), *DEADLINES.end());
        if let Some(deadline) = table.read("deadline", deadline)? {
            treatment.deadline = Some(deadline);
        }
        if let Some(wait) = table.read("wait", within(Duration::ZERO, LONGEST_WAIT))? {
            treatment.wait = Some(wait);
        }
        if let Some(copies) = table.read("copies", Item::flag)? {
            treatment.copies = copies;
        }
        Ok(())
    })
}

/// Reads the class of a flow whose hosts speak TCP.
pub(super) fn of_connections(item: &Item<'_>) -> Result<Treatment, Mistake> {
    class(item, |table, treatment| {
        if let Some(priority) = table.read("priority", |item| item.whole(PRIORITIES))? {
            treatment.priority = priority;
        }
        if let Some(light) = table.read("light", Item::flag)? {
            treatment.light = light;
        }
        Ok(())
    })
}

fn within(least: Duration, most: Duration) -> impl Fn(&Item<'_>) -> Result<Duration, Mistake> {
    move |item: &Item<'_>| {
        let time = item.time()?;
        if (least..=most).contains(&time) {
            Ok(time)
        } else {
            Err(item.expected(&format!("a time from {least:?} to {most:?}")))
        }
    }
}

/// Reads a class, of whose table `more` reads the keys that not every kind of flow has.
fn class(
    item: &Item<'_>,
    more: impl FnOnce(&mut Table<'_>, &mut Treatment) -> Result<(), Mistake>,
) -> Result<Treatment, Mistake> {
    if item.table().is_err() {
        return named(item, "one of the tunnel's classes, or a table");
    }
    let mut table = item.table()?;
    let like = table.read("like", |item| named(item, "one of the tunnel's classes"))?;
    let mut treatment = like.unwrap_or_else(usual);
    let modes = Steering::ALL.map(|mode| (mode.name(), mode));
    if let Some(steering) = table.read("steering", |item| item.word(&modes))? {
        treatment.steering = Some(steering);
    }
    more(&mut table, &mut treatment)?;
    table.finish()?;
    Ok(treatment)
}

fn named(item: &Item<'_>, what: &str) -> Result<Treatment, Mistake> {
    let classes = Classes::default();
    let known = classes.iter().map(|one| (one.name.as_str(), one.treatment));
    let known: Vec<(&str, Treatment)> = known.collect();
    if item.text().is_err() {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        return Err(item.expected(&format!("{what}: {}", names.join(", "))));
    }
    item.word(&known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Changes, Plan};
    use crate::scenario::{Document, FlowKind, Scenario};

    /// A flow of datagrams with these keys.
    fn planned(keys: &str, kind: &str) -> Result<Scenario, String> {
        let flow = "kind = \"datagrams\"\nsize = \"150B\"\nduration = \"1s\"\n";
        planned_as(&format!("{flow}{keys}"), kind)
    }

    fn planned_as(flow: &str, kind: &str) -> Result<Scenario, String> {
        let text = format!(
            "format = 1\nname = \"t\"\nstop = \"9s\"\nsingles = false\n[[path]]\nname = \"a\"\n\
             forward = {{ rate = \"1Mbit/s\" }}\n[transport]\nkind = \"{kind}\"\n[[flow]]\n\
             {flow}\n"
        );
        let document = Document::parse("t.toml", &text).map_err(|error| error.to_string())?;
        let plan = Plan::make(&document, &Changes::default());
        let plan = plan.map_err(|error| error.to_string())?;
        Ok(plan.runs[0].scenario.as_ref().clone())
    }

    fn treatment(class: &str) -> Treatment {
        let scenario = planned(&format!("rate = \"1Mbit/s\"\n{class}"), "tunnel");
        let scenario = scenario.unwrap_or_else(|error| panic!("{class}: {error}"));
        scenario.flows[0].marks.treatment()
    }

    #[test]
    fn a_class_is_a_name_of_the_tunnels_or_says_how_it_differs_from_one() {
        assert_eq!(treatment(""), usual());
        assert_eq!(treatment("class = \"bulk\""), usual());
        let voice = treatment("class = \"voice\"");
        assert_eq!(voice.wait, Some(Duration::from_millis(20)));
        let more = "{ like = \"voice\", wait = \"0ms\", steering = \"redundant\", copies = true }";
        let expected = Treatment {
            wait: Some(Duration::ZERO),
            steering: Some(Steering::Redundant),
            copies: true,
            ..voice
        };
        assert_eq!(treatment(&format!("class = {more}")), expected);
        let lasting = treatment("class = { deadline = \"2s\" }");
        assert_eq!(lasting.deadline, Some(Duration::from_secs(2)));
        assert_eq!(lasting.wait, usual().wait);
    }

    #[test]
    fn connections_have_a_priority_in_place_of_what_is_of_datagrams() {
        let treatment = |class: &str| {
            let planned = planned_as(
                &format!("kind = \"bulk\"\nbytes = \"1MB\"\n{class}"),
                "tunnel",
            );
            planned.map(|scenario| scenario.flows[0].marks.treatment())
        };
        assert_eq!(treatment(""), Ok(usual()));
        let shell = treatment("class = \"shell\"").unwrap();
        assert_eq!((shell.priority, shell.light), (2, true));
        let lower = "class = { like = \"shell\", priority = -7, light = false }";
        let expected = Treatment {
            priority: -7,
            light: false,
            ..shell
        };
        assert_eq!(treatment(lower), Ok(expected));
        for (key, told) in [
            ("priority = 8", "from -7 to 7"),
            ("priority = 1.5", "from -7 to 7"),
            ("priority = \"1s\"", "from -7 to 7"),
            ("wait = \"5ms\"", "no key `wait`"),
            ("copies = true", "no key `copies`"),
        ] {
            let error = treatment(&format!("class = {{ {key} }}")).unwrap_err();
            assert!(error.contains(told), "{key}: {error}");
        }
    }

    #[test]
    fn datagrams_come_at_a_rate_or_at_an_interval() {
        let kind = |keys: &str| planned(keys, "tunnel").map(|scenario| scenario.flows[0].kind);
        for (keys, time) in [
            ("rate = \"120kbit/s\"", Duration::from_millis(10)),
            ("every = \"10ms\"", Duration::from_millis(10)),
            // Less than a bit a second.
            ("every = \"1h\"", Duration::from_secs(3600)),
        ] {
            let Ok(FlowKind::Datagrams { every, .. }) = kind(keys) else {
                panic!("{keys} is taken");
            };
            assert_eq!(every, time);
        }
        for (keys, told) in [
            ("", "every"),
            (
                "rate = \"1Mbit/s\"\nevery = \"1ms\"",
                "one of rate and every",
            ),
            ("every = \"0ms\"", "above 0"),
        ] {
            let error = kind(keys).unwrap_err();
            assert!(error.contains(told), "{keys}: {error}");
        }
    }

    #[test]
    fn a_mistake_in_a_class_is_told_with_its_line_and_what_was_meant() {
        for (keys, kind, told) in [
            ("class = \"voise\"", "tunnel", "voice"),
            ("class = 7", "tunnel", "voice, game"),
            ("class = { like = true }", "tunnel", "voice, game"),
            (
                "class = { steering = \"redundent\" }",
                "tunnel",
                "redundant",
            ),
            ("class = { wait = \"501ms\" }", "tunnel", "to 500ms"),
            ("class = { deadline = \"0ms\" }", "tunnel", "from 1ms"),
            ("class = { priority = 3 }", "tunnel", "no key `priority`"),
            ("class = \"voice\"", "anabranch", "it is for kind = tunnel"),
            (
                "resequence = \"5ms\"",
                "tunnel",
                "it is for kind = anabranch",
            ),
        ] {
            let error = planned(&format!("rate = \"1Mbit/s\"\n{keys}"), kind).unwrap_err();
            assert!(error.contains(told), "{keys}: {error}");
            assert!(error.contains("t.toml:15"), "{keys}: {error}");
        }
    }
}
