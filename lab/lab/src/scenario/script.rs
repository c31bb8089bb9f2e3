//! Reads the events that happen to a network.
//!
//! An event that would have no effect is a mistake: a handover where the client has no address, a
//! rebinding where there is no NAT, a change of a property that the link does not have.

use super::links::{self, Change};
use super::mistake::Mistake;
use super::reader::{Item, Table};
use super::topology::{Action, CLIENT, Event, Network, NodeKind, Sides};
use anabranch_proto::time::Instant;
use anabranch_sim::Fade;
use std::time::Duration;

/// Steps of a fade, unless the file sets them.
const FADE_STEPS: u32 = 20;

/// Most steps of a fade.
const MOST_STEPS: u64 = 10_000;

/// An event as it stands in the file.
struct Entry<'a> {
    at: Duration,
    link: usize,
    action: Wish<'a>,
}

enum Wish<'a> {
    Plain(Action),
    Set(Item<'a>, Sides, Box<Change>),
    Fade(Item<'a>, Sides, Fading),
}

/// A rate that changes in steps.
#[derive(Debug, Clone, Copy)]
struct Fading {
    from: Option<u64>,
    to: u64,
    over: Duration,
    steps: u32,
}

/// Reads the script.
pub(super) fn events(items: Option<&Item<'_>>, network: &Network) -> Result<Vec<Event>, Mistake> {
    let mut entries = Vec::new();
    for item in items.map(Item::list).unwrap_or_default() {
        entries.push(event(&item, network)?);
    }
    entries.sort_by_key(|entry| entry.at);
    // A change or a fade starts from the state that earlier events left.
    let rates = network.links.iter();
    let mut rates: Vec<[Option<u64>; 2]> = rates
        .map(|link| [link.forward.rate(), link.backward.rate()])
        .collect();
    let mut events = Vec::new();
    for Entry { at, link, action } in entries {
        let rates = &mut rates[link];
        match action {
            Wish::Plain(action) => events.push(Event { at, link, action }),
            Wish::Set(item, sides, change) => {
                for side in lines(sides) {
                    rates[side] = change.rate().or(rates[side]);
                    if let Some(what) = change.misses_a_rate().filter(|_| rates[side].is_none()) {
                        return Err(item.mistake(what));
                    }
                }
                let action = Action::Set(sides, change);
                events.push(Event { at, link, action });
            }
            Wish::Fade(item, sides, fading) => {
                for side in lines(sides) {
                    let from = fading.from.or(rates[side]).ok_or_else(|| {
                        item.mistake("the link has no rate to start from: expected `from`")
                    })?;
                    rates[side] = Some(fading.to);
                    events.extend(fading.events(at, link, side, from));
                }
            }
        }
    }
    events.sort_by_key(|event| event.at);
    Ok(events)
}

/// The delay that an event sets forward (0) or backward (1), if any.
pub(super) fn delay(event: &Event, side: usize) -> Option<Duration> {
    match &event.action {
        Action::Set(sides, change) if lines(*sides).contains(&side) => change.delay(),
        _ => None,
    }
}

/// Forward and backward as 0 and 1.
fn lines(sides: Sides) -> std::ops::Range<usize> {
    match sides {
        Sides::Forward => 0..1,
        Sides::Backward => 1..2,
        Sides::Both => 0..2,
    }
}

impl Fading {
    fn events(self, at: Duration, link: usize, side: usize, from: u64) -> Vec<Event> {
        let fade = Fade {
            start: Instant::ZERO + at,
            duration: self.over,
            steps: self.steps,
            from,
            to: self.to,
        };
        let sides = [Sides::Forward, Sides::Backward][side];
        let event = |(at, rate): (Instant, u64)| Event {
            at: at.since(Instant::ZERO),
            link,
            action: Action::Set(sides, Box::new(Change::to_rate(rate))),
        };
        fade.rates().into_iter().map(event).collect()
    }
}

fn event<'a>(item: &Item<'a>, network: &Network) -> Result<Entry<'a>, Mistake> {
    let mut table = item.table()?;
    let at = table.required("at", "when it happens")?.time()?;
    let path = table.read("path", |item| network.path_item(item))?;
    let link = table.read("link", |item| network.link_item(item))?;
    let link = match (path, link) {
        (Some(path), None) => network.paths[path].client_link,
        (None, Some(link)) => link,
        _ => return Err(item.mistake("expected one of path and link")),
    };
    let words = [
        ("forward", Some(Sides::Forward)),
        ("backward", Some(Sides::Backward)),
        ("both", Some(Sides::Both)),
        ("admin", None),
    ];
    let down = table.read("down", |item| item.word(&words))?;
    let up = table.read("up", |item| item.word(&words))?;
    let (direction, sides) = direction(&mut table)?;
    let set = table.read("set", |item| Ok((item.clone(), links::change(item)?)))?;
    let fade = table.read("fade", |item| Ok((item.clone(), fading(item)?)))?;
    let handover = flagged(&mut table, "handover")?;
    let rebind = flagged(&mut table, "nat-rebind")?;
    table.finish()?;
    let plain = |action| Wish::Plain(action);
    let mut wishes = Vec::new();
    wishes.extend(down.map(|sides| plain(sides.map_or(Action::AdminDown, Action::Down))));
    wishes.extend(up.map(|sides| plain(sides.map_or(Action::AdminUp, Action::Up))));
    wishes.extend(set.map(|(item, set)| Wish::Set(item, sides, Box::new(set))));
    wishes.extend(fade.map(|(item, fade)| Wish::Fade(item, sides, fade)));
    if let Some(item) = handover {
        is_the_clients(&item, network, link)?;
        wishes.push(plain(Action::Handover));
    }
    let mut link = link;
    if let Some(item) = rebind {
        link = beside_a_nat(&item, network, path, link)?;
        wishes.push(plain(Action::Rebind));
    }
    let one = "expected one of down, up, set, fade, handover and nat-rebind";
    let mut wishes = wishes.into_iter();
    let (Some(action), None) = (wishes.next(), wishes.next()) else {
        return Err(item.mistake(one));
    };
    if let (Some(direction), Wish::Plain(_)) = (direction, &action) {
        let what = "goes with set and fade only: down and up name their direction themselves, as \
                    down = \"forward\"";
        return Err(direction.mistake(what));
    }
    Ok(Entry { at, link, action })
}

/// The key `direction`, if present, and its meaning.
fn direction<'a>(table: &mut Table<'a>) -> Result<(Option<Item<'a>>, Sides), Mistake> {
    let words = [
        ("forward", Sides::Forward),
        ("backward", Sides::Backward),
        ("both", Sides::Both),
    ];
    let item = table.item("direction");
    let sides = item.as_ref().map(|item| item.word(&words)).transpose()?;
    Ok((item, sides.unwrap_or(Sides::Both)))
}

/// The key, if it is present and true.
fn flagged<'a>(table: &mut Table<'a>, key: &'static str) -> Result<Option<Item<'a>>, Mistake> {
    let item = table.item(key);
    let wanted = item.as_ref().map(Item::flag).transpose()?;
    Ok(item.filter(|_| wanted == Some(true)))
}

fn is_the_clients(item: &Item<'_>, network: &Network, link: usize) -> Result<(), Mistake> {
    let on = |link: &super::topology::NetLink| link.ends.0 == 0 || link.ends.1 == 0;
    if on(&network.links[link]) {
        return Ok(());
    }
    let known = network.links.iter().filter(|link| on(link));
    let known: Vec<&str> = known.map(|link| link.name.as_str()).collect();
    Err(item.mistake(format!(
        "the {CLIENT} has no address on the link `{}`: expected one of {}",
        network.links[link].name,
        known.join(", ")
    )))
}

/// The link, of those that the event names, with a NAT at one end.
fn beside_a_nat(
    item: &Item<'_>,
    network: &Network,
    path: Option<usize>,
    link: usize,
) -> Result<usize, Mistake> {
    let is_nat = |node: usize| network.nodes[node].kind == NodeKind::Nat;
    let beside = |link: &usize| {
        let ends = network.links[*link].ends;
        is_nat(ends.0) || is_nat(ends.1)
    };
    let far = path.map(|path| network.paths[path].server_link);
    let found = [Some(link), far].into_iter().flatten().find(beside);
    found.ok_or_else(|| {
        let known = (0..network.links.len()).filter(|link| beside(link));
        let known: Vec<&str> = known
            .map(|link| network.links[link].name.as_str())
            .collect();
        let name = &network.links[link].name;
        item.mistake(if known.is_empty() {
            "the network has no NAT: expected a node of kind = \"nat\"".to_owned()
        } else {
            format!(
                "there is no NAT at an end of the link `{name}`: expected one of {}",
                known.join(", ")
            )
        })
    })
}

fn fading(item: &Item<'_>) -> Result<Fading, Mistake> {
    let mut table = item.table()?;
    let from = table.read("from", Item::rate)?;
    let to = table.required("to", "the rate at the end")?.rate()?;
    let over = table.required("over", "how long it takes")?.time()?;
    let steps = table.read("steps", |item| item.count(1..=MOST_STEPS))?;
    table.finish()?;
    Ok(Fading {
        from,
        to,
        over,
        steps: steps.map_or(FADE_STEPS, |steps| steps as u32),
    })
}
