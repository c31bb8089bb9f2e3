//! The links of a near end: what the user wants of each, and what that comes to now.
//!
//! ```text
//! paths of the connection ──bytes of each link──> rules (anabranch_tunnel::links)
//!                                                   │ how each is to be used
//! manager of paths  <──specifications that differ───┘
//! ```
//! Beside the rules, a link that does harm stands by for a while (module `quarantine`).
//! What a link with a cap has carried is kept in a file, over restarts. Headers of IP and UDP are
//! counted, since they are on the bill too.

use super::quarantine::Quarantines;
use super::uplink::{News, Up, Uplink};
use crate::SPARING_KEEP_ALIVE;
use crate::identity::FileError;
use crate::identity::file::{directory, read, replace};
use crate::session::close;
use crate::status::{self, Path as Shown};
use anabranch_masque::Code;
use anabranch_net::engine::PathStats;
use anabranch_net::interfaces::spec::{Candidate, PathSpec, Selector};
use anabranch_net::manager::EntryState;
use anabranch_net::{Notice, PathNotices};
use anabranch_proto::wire::PathId;
use anabranch_proto::wire::frame::PathStatus;
use anabranch_tunnel::links::{Day, Level, Links as Rules, Role, Rule, Use, Used};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use time::OffsetDateTime;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

/// How often it is looked at what links carry where a rule depends on it.
const LOOK: Duration = Duration::from_millis(250);

/// How often they are looked at otherwise.
const SELDOM: Duration = Duration::from_secs(1);

/// How often the bytes that links carried are saved, if they have grown.
const SAVE: Duration = Duration::from_secs(10);

/// How long a connection may go on over nothing but links that are not to be used.
const GRACE: Duration = Duration::from_secs(3);

/// Bytes of an IP and a UDP header.
const HEADERS: [u64; 2] = [28, 48];

/// A link as the user wants it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Which interfaces it is, and how its paths are used.
    pub spec: PathSpec,
    /// What it may be used for. A rule that looks at traffic takes one interface or address.
    pub rule: Rule,
}

impl From<PathSpec> for Wanted {
    fn from(spec: PathSpec) -> Self {
        let role = match (spec.options.paths, spec.options.status) {
            (Some(0), _) => Role::Never,
            (_, PathStatus::Backup) => Role::Backup,
            (_, PathStatus::Available) => Role::Always,
        };
        let rule = Rule { role, cap: None };
        Self { spec, rule }
    }
}

impl Wanted {
    fn name(&self) -> String {
        self.spec.selector.to_string()
    }

    /// Whether this link is meant, by its name or address.
    fn is_at(&self, interface: &str, local: &str) -> bool {
        match &self.spec.selector {
            Selector::Name(name) => name == interface,
            Selector::Address(ip) => ip.to_string() == local,
            Selector::Auto | Selector::Glob(_) => false,
        }
    }

    /// How long its paths may rest, if that is another time than usual.
    fn keep_alive(&self, used: Use) -> Option<Duration> {
        let costs = self.rule.cap.is_some() || self.spec.options.cost > 0;
        let is_spared = used == Use::StandBy || costs;
        let own = self.spec.options.keep_alive;
        own.or(is_spared.then_some(SPARING_KEEP_ALIVE))
    }

    fn used_as(&self, used: Use) -> PathSpec {
        let mut spec = self.spec.clone();
        spec.options.keep_alive = self.keep_alive(used);
        match used {
            Use::Carry => spec.options.status = PathStatus::Available,
            Use::StandBy => spec.options.status = PathStatus::Backup,
            Use::Nothing => spec.options.paths = Some(0),
        }
        spec
    }
}

/// What a link has carried, as it is kept in the file.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Kept {
    /// Months since the year 0.
    month: i32,
    bytes: u64,
}

/// A path whose bytes are counted.
#[derive(Debug, Clone, Copy)]
struct Counted {
    link: usize,
    bytes: u64,
}

#[derive(Debug)]
struct State {
    wanted: Vec<Wanted>,
    rules: Rules,
    /// What links carried, by their names: also of those that are not wanted now.
    kept: BTreeMap<String, Kept>,
    /// The number of the connection that is counted, and its paths.
    counted: (u64, BTreeMap<PathId, Counted>),
    /// The number of a connection, and how it was told to use its paths.
    applied: (u64, Vec<PathSpec>),
    /// `None` if all links are to be trusted whatever they do.
    quarantines: Option<Quarantines>,
    /// The number of a connection, and the interfaces it was told are in quarantine.
    standing_by: (u64, Vec<String>),
    looked: Option<Instant>,
    saved: Option<Instant>,
    /// What was said of each cap.
    told: Vec<Level>,
    /// Since when only links that are not to be used have paths.
    astray: Option<Instant>,
}

/// The links of a near end.
#[derive(Debug)]
pub struct Links {
    /// Where what they carried is kept, if it is.
    file: Option<PathBuf>,
    state: Mutex<State>,
}

impl Links {
    /// Opens links with these wishes; `file` holds what they carried before.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn open(file: Option<PathBuf>, wanted: Vec<Wanted>) -> Result<Self, FileError> {
        let kept = file.as_deref().map(read).transpose()?;
        let links = Self {
            state: Mutex::new(State {
                wanted: Vec::new(),
                rules: Rules::default(),
                kept: kept.unwrap_or_default(),
                counted: (0, BTreeMap::new()),
                applied: (0, Vec::new()),
                looked: None,
                saved: None,
                told: Vec::new(),
                astray: None,
                quarantines: Some(Quarantines::default()),
                standing_by: (0, Vec::new()),
            }),
            file,
        };
        links.set(wanted);
        Ok(links)
    }

    /// Puts no link in quarantine any more: links are used by their rules alone.
    pub fn trust(&self) {
        self.lock().quarantines = None;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the wanted links; returns whether they changed.
    pub fn set(&self, wanted: Vec<Wanted>) -> bool {
        let mut state = self.lock();
        if state.wanted == wanted {
            return false;
        }
        let used = |one: &Wanted| {
            let kept = state.kept.get(&one.name()).copied().unwrap_or_default();
            let (month, bytes) = (kept.month, kept.bytes);
            (one.rule, Used { month, bytes })
        };
        state.rules = Rules::new(wanted.iter().map(used).collect::<Vec<_>>());
        // A clock that is only read while something is carried would show the month before last.
        state.rules.carry(&[], Duration::ZERO, today());
        state.told = vec![Level::Low; wanted.len()];
        state.counted.1.clear();
        state.wanted = wanted;
        state.keep_used();
        true
    }

    /// How paths are to be used now.
    pub fn specs(&self) -> Vec<PathSpec> {
        self.lock().specs()
    }

    /// Saves what was carried. For the end, when `keep` does not run any more.
    pub fn save(&self) {
        if let Some(saving) = self.saving() {
            saving();
        }
    }

    /// A function that saves it; `None` if there is nothing to save.
    fn saving(&self) -> Option<impl FnOnce() + Send + 'static> {
        let (file, kept) = (self.file.clone()?, self.lock().kept.clone());
        let save = move || {
            let place = file.parent().map_or(Ok(()), directory);
            if let Err(error) = place.and_then(|()| replace(&file, &kept)) {
                tracing::warn!("what links have carried is not saved: {error}");
            }
        };
        (!self.lock().kept.is_empty()).then_some(save)
    }

    /// Has the connection's paths be used by the rules. Does not end.
    pub(super) async fn keep(&self, uplink: &Uplink) -> Infallible {
        let mut heard: Option<(Up, PathNotices)> = None;
        loop {
            let up = uplink.current();
            if up.as_ref().map(|up| up.number) != heard.as_ref().map(|(up, _)| up.number) {
                let hear = |up: &Up| (up.clone(), up.session.connection().path_notices());
                heard = up.as_ref().map(hear);
            }
            for news in self.look(up.as_ref(), Instant::now(), today()) {
                uplink.say(&news);
            }
            if self.is_save_due()
                && let Some(saving) = self.saving()
            {
                // It only fails if the program ends, or by a panic that was told.
                let _ = spawn_blocking(saving).await;
            }
            // It is time to look again, or there is another connection.
            let _ = timeout(self.pause(), self.hear(heard.as_mut(), uplink)).await;
        }
    }

    /// Hears what happens to the paths of a connection until there is another one.
    async fn hear(&self, heard: Option<&mut (Up, PathNotices)>, uplink: &Uplink) {
        let mut seen = 0;
        if let Some((up, notices)) = heard {
            while let Some(notice) = notices.next().await {
                let mut state = self.lock();
                if let (Some(quarantines), Notice::Path(notice)) = (&mut state.quarantines, notice)
                {
                    quarantines.on_notice(up, notice, Instant::now());
                }
            }
            seen = up.number;
        }
        uplink.next_up(seen).await;
    }

    fn pause(&self) -> Duration {
        if self.lock().rules.depend_on_traffic() {
            LOOK
        } else {
            SELDOM
        }
    }

    /// Counts what was carried, and changes how paths are used if that is due.
    fn look(&self, up: Option<&Up>, now: Instant, today: Day) -> Vec<News> {
        let mut state = self.lock();
        let time = state
            .looked
            .replace(now)
            .map_or(LOOK, |before| now - before);
        let bytes = up.map(|up| state.count(up)).unwrap_or_default();
        state.rules.carry(&bytes, time, today);
        state.keep_used();
        let mut news = state.news();
        if let Some(up) = up {
            // A connection may have been dialled by what held a moment ago.
            let wanted = (up.number, state.specs());
            if state.applied != wanted {
                up.manager.set_specs(wanted.1.clone());
                state.applied = wanted;
            }
            news.extend(state.put_aside(up, time));
            state.leave_astray(up, now);
        }
        news
    }

    fn is_save_due(&self) -> bool {
        let mut state = self.lock();
        let is_due = state.saved.is_none_or(|before| before.elapsed() >= SAVE);
        if is_due {
            state.saved = Some(Instant::now());
        }
        is_due
    }

    /// Adds to the rows of paths what their links are for, and rows of links that are not used.
    pub(super) fn describe(&self, rows: &mut Vec<Shown>) {
        let state = self.lock();
        for row in rows.iter_mut() {
            let quarantines = state.quarantines.as_ref();
            let now = quarantines.and_then(|it| it.of(&row.interface));
            if now.is_some() && row.state == "backup" {
                row.state = "quarantine".into();
            }
            row.quarantine = now.map(status::Quarantine::of);
        }
        let uses: Vec<Use> = state.rules.uses().collect();
        for (at, (wanted, (rule, used))) in state.wanted.iter().zip(state.rules.rules()).enumerate()
        {
            let cap = rule.cap.map(|cap| status::Cap::of(cap, used));
            let mut is_shown = false;
            for row in rows.iter_mut() {
                let local = row.local.clone().unwrap_or_default();
                if wanted.is_at(&row.interface, &local) {
                    row.role = status::role(rule.role).into();
                    row.cap.clone_from(&cap);
                    is_shown = true;
                }
            }
            if !is_shown && cap.is_some() && uses[at] == Use::Nothing {
                let mut row = Shown::without(wanted.name(), status::role(rule.role), "capped");
                row.cap = cap;
                rows.push(row);
            }
        }
    }
}

impl State {
    fn specs(&self) -> Vec<PathSpec> {
        let wanted = self.wanted.iter().zip(self.rules.uses());
        wanted.map(|(wanted, used)| wanted.used_as(used)).collect()
    }

    fn link_of(&self, place: &Candidate) -> Option<usize> {
        let local = place.local.to_string();
        let mut wanted = self.wanted.iter();
        wanted.position(|one| one.is_at(&place.interface, &local))
    }

    /// The bytes that each link carried since the last time.
    fn count(&mut self, up: &Up) -> Vec<u64> {
        if self.counted.0 != up.number {
            self.counted = (up.number, BTreeMap::new());
        }
        for entry in up.manager.entries() {
            let link = self.link_of(&entry.candidate);
            if let (Some(id), Some(link)) = (entry.state.path(), link) {
                let new = Counted { link, bytes: 0 };
                self.counted.1.entry(id).or_insert(new);
            }
        }
        let mut bytes = vec![0; self.wanted.len()];
        let paths = up.session.connection().paths();
        for (id, stats) in &paths {
            if let Some(counted) = self.counted.1.get_mut(id) {
                let all = carried(stats);
                bytes[counted.link] += all.saturating_sub(counted.bytes);
                counted.bytes = all;
            }
        }
        // Paths that are gone do not come back: their numbers are not used again.
        self.counted
            .1
            .retain(|id, _| paths.iter().any(|(one, _)| one == id));
        bytes
    }

    fn keep_used(&mut self) {
        for (wanted, (rule, used)) in self.wanted.iter().zip(self.rules.rules()) {
            if rule.cap.is_some() {
                let Used { month, bytes } = used;
                self.kept.insert(wanted.name(), Kept { month, bytes });
            }
        }
    }

    /// Has the links that do harm stand by, and no others.
    fn put_aside(&mut self, up: &Up, time: Duration) -> Vec<News> {
        let Some(quarantines) = &mut self.quarantines else {
            return Vec::new();
        };
        let news = quarantines.look(up, time);
        let standing_by = (up.number, quarantines.interfaces());
        if self.standing_by != standing_by {
            up.manager.set_standing_by(standing_by.1.clone());
            self.standing_by = standing_by;
        }
        news
    }

    /// Ends a connection that has no path left but over links that are not to be used: the manager
    /// leaves the last path open.
    fn leave_astray(&mut self, up: &Up, now: Instant) {
        let entries = up.manager.entries();
        let is_lost = |state: EntryState| matches!(state, EntryState::Lost(_));
        let mut open = entries.iter().filter(|entry| entry.state.path().is_some());
        let forbidden = |link: usize| self.rules.uses().nth(link) == Some(Use::Nothing);
        let astray = |place: &Candidate| self.link_of(place).is_some_and(forbidden);
        let all = entries.iter().any(|entry| is_lost(entry.state))
            && open.all(|entry| is_lost(entry.state) && astray(&entry.candidate));
        if !all {
            self.astray = None;
        } else if now - *self.astray.get_or_insert(now) >= GRACE {
            self.astray = None;
            let connection = up.session.connection();
            close(
                connection,
                Code::NO_ERROR,
                "no link is left that may be used",
            );
        }
    }

    /// What is to be said of caps.
    fn news(&mut self) -> Vec<News> {
        let links = self
            .wanted
            .iter()
            .zip(self.rules.rules())
            .zip(&mut self.told);
        let news = links.filter_map(|((wanted, (rule, used)), told)| {
            let cap = rule.cap?;
            let before = std::mem::replace(told, cap.level(used));
            (*told > before).then(|| News::Cap {
                link: wanted.name(),
                cap,
                used,
            })
        });
        news.collect()
    }
}

/// Bytes of a path in both directions, with all headers.
fn carried(stats: &PathStats) -> u64 {
    let counters = &stats.counters;
    let packets = counters.sent_packets + counters.received_packets;
    let headers = HEADERS[usize::from(stats.tuple.remote.is_ipv6())];
    counters.sent_bytes + counters.received_bytes + packets * headers
}

/// The day, by UTC: a month's end at the operator's is not known anyway.
fn today() -> Day {
    let date = OffsetDateTime::now_utc().date();
    Day {
        year: date.year(),
        month: date.month().into(),
        day: date.day(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_tunnel::links::{Cap, Then};

    fn capped(bytes: u64) -> Wanted {
        let mut wanted = Wanted::from("wwan0".parse::<PathSpec>().unwrap());
        let (day, then) = (1, Then::Never);
        wanted.rule.cap = Some(Cap { bytes, day, then });
        wanted
    }

    fn words(links: &Links) -> Vec<String> {
        links.specs().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_a_link_has_carried_outlasts_a_restart_and_a_change_of_its_cap() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("links.json");
        let auto = Wanted::from("auto".parse::<PathSpec>().unwrap());
        let links = Links::open(Some(file.clone()), vec![capped(1000), auto.clone()]).unwrap();
        assert_eq!(words(&links), ["wwan0,keep-alive=25s", "auto"]);
        links.lock().rules.carry(&[1000], LOOK, today());
        links.lock().keep_used();
        assert_eq!(words(&links), ["wwan0,keep-alive=25s,never", "auto"]);
        links.save();
        drop(links);
        let links = Links::open(Some(file.clone()), vec![capped(1000), auto.clone()]).unwrap();
        assert_eq!(words(&links), ["wwan0,keep-alive=25s,never", "auto"]);
        let mut rows = Vec::new();
        links.describe(&mut rows);
        let cap = rows[0].cap.as_ref().unwrap();
        assert_eq!((&*rows[0].state, cap.used_bytes), ("capped", 1000));
        assert!(links.set(vec![capped(2000), auto.clone()]));
        assert_eq!(words(&links), ["wwan0,keep-alive=25s", "auto"]);
        assert!(!links.set(vec![capped(2000), auto]));
        std::fs::write(&file, "{").unwrap();
        let error = Links::open(Some(file), Vec::new()).unwrap_err().to_string();
        assert!(error.contains("links.json is damaged"), "{error}");
    }

    #[test]
    fn links_in_reserve_and_links_that_cost_rest_longer_unless_somebody_says_how_long() {
        let wanted = |spec: &str| Wanted::from(spec.parse::<PathSpec>().unwrap());
        let above = 8_000_000;
        let mut secondary = wanted("wwan1");
        secondary.rule.role = Role::Secondary { above };
        let all = vec![
            wanted("eth0"),
            wanted("eth1,cost=3"),
            wanted("eth2,backup"),
            wanted("eth3,backup,keep-alive=20s"),
            wanted("eth4,keep-alive=10s"),
            capped(1000),
            secondary,
        ];
        let links = Links::open(None, all).unwrap();
        let rests = || {
            let specs = links.specs();
            let rests = specs.iter().map(|spec| spec.options.keep_alive);
            rests
                .map(|rest| rest.map_or(0, |time| time.as_secs()))
                .collect::<Vec<_>>()
        };
        assert_eq!(rests(), [0, 25, 25, 20, 10, 25, 25]);
        for _ in 0..2 {
            links.lock().rules.carry(&[300_000], LOOK, today());
        }
        assert_eq!(rests(), [0, 25, 25, 20, 10, 25, 0], "the last one helps");
    }

    #[test]
    fn each_step_of_a_cap_is_told_once() {
        let folder = tempfile::tempdir().unwrap();
        let wanted = vec![capped(1000 << 20)];
        let links = Links::open(Some(folder.path().join("links.json")), wanted).unwrap();
        let carry = |mebibytes: u64| {
            links.lock().rules.carry(&[mebibytes << 20], LOOK, today());
            let news = links.look(None, Instant::now(), today());
            news.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(carry(700), [""; 0]);
        assert!(carry(100)[0].starts_with("wwan0 has carried 838 MB of 1048 MB; "));
        assert_eq!(carry(100), [""; 0]);
        assert!(carry(100)[0].starts_with("wwan0 has carried its 1048 MB: not used until 20"));
        assert_eq!(carry(100), [""; 0]);
    }
}
