//! From a scenario file to runs: sweeps and contenders are expanded, repetitions get their seeds.
//!
//! `seed(run) = H(seed, scenario, swept values, repetition)`, without the contender: all contenders
//! meet the same networks, so comparisons are paired.

mod ignored;
mod order;
mod rivals;
mod shard;
mod sweep;

#[cfg(test)]
mod tests;

pub use rivals::add_rivals;
pub use shard::Shard;

use crate::scenario::{
    Document, KINDS, Mistake, Named, Node, Place, Reference, Scenario, Value, are_read,
    flow_keys_are_read, nearest,
};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use sweep::{Point, points};

/// A sweep with more runs than this is a mistake.
pub const MAX_RUNS: usize = 1_000_000;

/// Repetitions unless the file sets them, if anything in the scenario is random.
const DEFAULT_RUNS: u64 = 30;

/// One run to be carried out.
#[derive(Debug, Clone)]
pub struct Run {
    /// A hash of everything that decides its result, 16 hexadecimal digits: equal runs have equal
    /// ids.
    pub id: String,
    /// The contender's name.
    pub contender: String,
    /// The swept keys with their values.
    pub swept: Arc<Vec<(String, String)>>,
    /// Which repetition, from 1.
    pub repetition: u64,
    /// The seed of its randomness.
    pub seed: u64,
    /// Whether it only measures what one path can do alone.
    pub single: bool,
    /// The scenario to run.
    pub scenario: Arc<Scenario>,
}

/// All runs of a scenario file.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The scenario's name.
    pub name: String,
    /// The file as it was read, with all changes.
    pub expanded: String,
    /// The swept keys.
    pub swept: Vec<String>,
    /// Contenders in the order of the file, without those that measure one path alone.
    pub contenders: Vec<String>,
    /// The runs; all contenders of a repetition are adjacent.
    pub runs: Vec<Run>,
    /// Files that its scenarios name.
    pub files: Vec<Named>,
}

/// Changes to a file from the command line.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    /// `key=value`, in the order given.
    pub set: Vec<(String, String)>,
    /// Keys to sweep, each with its values as TOML or separated by commas. They replace the file's
    /// values if it sweeps the key too.
    pub sweep: Vec<(String, String)>,
    /// The campaign's seed, at most [`i64::MAX`]: TOML has no larger numbers.
    pub seed: Option<u64>,
    /// Repetitions.
    pub runs: Option<u64>,
}

struct Contender {
    label: String,
    /// What it changes in `[transport]`.
    overlay: Vec<(String, Node)>,
    single: bool,
}

struct Repeat {
    runs: Option<u64>,
    seed: u64,
}

impl Plan {
    /// Expands `document`.
    ///
    /// # Errors
    /// The first [`Mistake`] in any of the scenarios it stands for.
    pub fn make(document: &Document, changes: &Changes) -> Result<Self, Mistake> {
        let mut document = document.clone();
        let given: Vec<_> = changes.set.iter().chain(&changes.sweep).collect();
        ignored::parameters_exist(&document, &given)?;
        for (key, value) in &changes.set {
            document.set(key, &Node::typed(value))?;
        }
        let sweep = document.root.remove("sweep");
        if sweep.is_some() || !changes.sweep.is_empty() {
            let mut sweep = sweep.unwrap_or_else(|| Node::given(Value::Table(Vec::new())));
            for (key, values) in &changes.sweep {
                sweep::replace(&document, &mut sweep, key, Node::typed_values(values))?;
            }
            document.root.insert("sweep", sweep);
        }
        for (key, number) in [("seed", changes.seed), ("runs", changes.runs)] {
            if let Some(number) = number {
                document.set(&format!("repeat.{key}"), &Node::typed(&number.to_string()))?;
            }
        }
        let repeat = repeat(&document)?;
        let points = points(&document)?;
        let (contenders, swept) = (contenders(&document)?, swept_keys(&points));
        ignored::none_plans(&document, &swept)?;
        ignored::none_is_swept(&document, &changes.set, &swept)?;
        let expanded = document.to_toml();
        let mut base = document;
        let singles = base.root.remove("singles");
        for key in ["contenders", "sweep", "repeat"] {
            base.root.remove(key);
        }
        let mut plan = Self {
            name: Scenario::read(&at_point(&base, points.first())?)?.name,
            expanded,
            swept,
            contenders: contenders.iter().map(|c| c.label.clone()).collect(),
            runs: Vec::new(),
            files: Vec::new(),
        };
        let singles = singles.is_none_or(|node| node.value != Value::Flag(false));
        for point in &points {
            plan.add_point(&base, point, &contenders, singles, &repeat)?;
        }
        Ok(plan)
    }

    fn add_point(
        &mut self,
        base: &Document,
        point: &Point,
        contenders: &[Contender],
        singles: bool,
        repeat: &Repeat,
    ) -> Result<(), Mistake> {
        let document = at_point(base, Some(point))?;
        let swept: Vec<(String, String)> = point
            .iter()
            .map(|(key, node)| (key.clone(), node.plain()))
            .collect();
        let swept = Arc::new(swept);
        let mut scenarios = Vec::new();
        for contender in contenders {
            let (text, scenario) = with_contender(&document, contender)?;
            scenarios.push((contender.label.clone(), contender.single, text, scenario));
        }
        let all: Vec<_> = scenarios.iter().map(|(.., s)| &s.transport).collect();
        flow_keys_are_read(&document, &all)?;
        if let Some(Value::Table(common)) = document.root.get("transport").map(|node| &node.value) {
            let common = common.iter().map(|entry| (entry.key.as_str(), &entry.node));
            are_read(&document.file, common, &all)?;
        }
        if singles {
            let extra = singles_of(&document, &scenarios[0].3, contenders)?;
            scenarios.extend(extra);
        }
        for file in scenarios.iter().flat_map(|(.., scenario)| &scenario.files) {
            if !self.files.contains(file) {
                self.files.push(file.clone());
            }
        }
        let labels: Vec<&str> = contenders.iter().map(|c| c.label.as_str()).collect();
        check_references(base, &scenarios[0].3, &labels)?;
        let random = scenarios.iter().any(|(.., scenario)| scenario.is_random());
        let runs = repeat.runs.unwrap_or(if random { DEFAULT_RUNS } else { 1 });
        if self
            .runs
            .len()
            .saturating_add(runs as usize * scenarios.len())
            > MAX_RUNS
        {
            let what = format!("the sweep has more than {MAX_RUNS} runs");
            return Err(whole_file(base, &what));
        }
        for repetition in 1..=runs {
            let seed = seed(repeat.seed, &self.name, &swept, repetition);
            for (label, single, text, scenario) in &scenarios {
                self.runs.push(Run {
                    id: run_id(text, scenario, label, repetition, seed),
                    contender: label.clone(),
                    swept: Arc::clone(&swept),
                    repetition,
                    seed,
                    single: *single,
                    scenario: Arc::clone(scenario),
                });
            }
        }
        Ok(())
    }
}

type Made = (String, bool, String, Arc<Scenario>);

/// One contender for each path alone, configured like the first contender.
fn singles_of(
    document: &Document,
    first: &Scenario,
    contenders: &[Contender],
) -> Result<Vec<Made>, Mistake> {
    let paths = &first.network.paths;
    if paths.len() < 2 {
        return Ok(Vec::new());
    }
    let mut made = Vec::new();
    for path in paths {
        let mut overlay = contenders
            .first()
            .map(|c| c.overlay.clone())
            .unwrap_or_default();
        overlay.retain(|(key, _)| key != "paths");
        let one = Node::given(Value::Text(path.name.clone()));
        overlay.push(("paths".to_owned(), Node::given(Value::List(vec![one]))));
        let contender = Contender {
            label: format!("only {}", path.name),
            overlay,
            single: true,
        };
        let (text, scenario) = with_contender(document, &contender)?;
        made.push((contender.label, true, text, scenario));
    }
    Ok(made)
}

fn with_contender(
    document: &Document,
    contender: &Contender,
) -> Result<(String, Arc<Scenario>), Mistake> {
    let mut document = document.clone();
    if document.root.get("transport").is_none() {
        let empty = Node::given(Value::Table(Vec::new()));
        document.root.insert("transport", empty);
    }
    for (key, node) in &contender.overlay {
        document.set(&format!("transport.{key}"), node)?;
    }
    let scenario = Scenario::read(&document)?;
    let own = contender.overlay.iter();
    let own = own.map(|(key, node)| (key.as_str(), node));
    are_read(&document.file, own, &[&scenario.transport])?;
    Ok((document.to_toml(), Arc::new(scenario)))
}

fn at_point(base: &Document, point: Option<&Point>) -> Result<Document, Mistake> {
    let mut document = base.clone();
    for (key, node) in point.into_iter().flatten() {
        document.set(key, node)?;
    }
    Ok(document)
}

fn swept_keys(points: &[Point]) -> Vec<String> {
    let first = points.first().map(Vec::as_slice).unwrap_or_default();
    first.iter().map(|(key, _)| key.clone()).collect()
}

fn repeat(document: &Document) -> Result<Repeat, Mistake> {
    let mut repeat = Repeat {
        runs: None,
        seed: 1,
    };
    let Some(node) = document.root.get("repeat") else {
        return Ok(repeat);
    };
    let Value::Table(entries) = &node.value else {
        return Err(mistake(
            document,
            node.place,
            "repeat",
            "expected a table".into(),
        ));
    };
    for entry in entries {
        let key = format!("repeat.{}", entry.key);
        let number = match entry.node.value {
            Value::Whole(number) => u64::try_from(number).ok(),
            _ => None,
        };
        let expected = |what: &str| mistake(document, entry.node.place, &key, what.to_owned());
        match entry.key.as_str() {
            "runs" => {
                let runs = number.filter(|runs| (1..=100_000).contains(runs));
                repeat.runs = Some(runs.ok_or_else(|| expected("expected from 1 to 100000"))?);
            }
            "seed" => {
                repeat.seed =
                    number.ok_or_else(|| expected("expected a whole number, 0 or more"))?;
            }
            other => {
                let what = format!("there is no key `{other}` here: expected runs, seed");
                let mut mistake = mistake(document, entry.place, &key, what);
                mistake.hint = nearest(other, ["runs", "seed"].into_iter());
                return Err(mistake);
            }
        }
    }
    Ok(repeat)
}

/// Reads `[contenders]`. Lists are expanded: one contender for each value.
fn contenders(document: &Document) -> Result<Vec<Contender>, Mistake> {
    let alone = || Contender {
        label: "anabranch".to_owned(),
        overlay: Vec::new(),
        single: false,
    };
    let Some(node) = document.root.get("contenders") else {
        return Ok(vec![alone()]);
    };
    let Value::Table(entries) = &node.value else {
        return Err(mistake(
            document,
            node.place,
            "contenders",
            "expected a table".into(),
        ));
    };
    let mut contenders = Vec::new();
    for entry in entries {
        let Value::Table(fields) = &entry.node.value else {
            let key = format!("contenders.{}", entry.key);
            let what = "expected a table, such as { scheduler = \"min-rtt\" }";
            return Err(mistake(document, entry.node.place, &key, what.to_owned()));
        };
        let mut overlay: Vec<(String, Node)> = fields
            .iter()
            .map(|field| (field.key.clone(), field.node.clone()))
            .collect();
        let named = KINDS.iter().any(|(name, _)| *name == entry.key);
        if named && !overlay.iter().any(|(key, _)| key == "kind") {
            let kind = Node::given(Value::Text(entry.key.clone()));
            overlay.insert(0, ("kind".to_owned(), kind));
        }
        unfold(&entry.key, &overlay, &mut contenders);
    }
    if contenders.is_empty() {
        contenders.push(alone());
    }
    Ok(contenders)
}

/// Adds `overlay` once for each combination of the values in its lists. A list under `paths` gives
/// one contender for each path, as other lists do; a list of lists gives one for each inner list.
fn unfold(label: &str, overlay: &[(String, Node)], out: &mut Vec<Contender>) {
    let list = overlay
        .iter()
        .position(|(_, node)| matches!(node.value, Value::List(_)));
    // Values that were expanded already are wrapped in a table.
    let Some(at) = list else {
        let overlay = overlay
            .iter()
            .map(|(key, node)| (key.clone(), unwrapped(node)))
            .collect();
        out.push(Contender {
            label: label.to_owned(),
            overlay,
            single: false,
        });
        return;
    };
    let Value::List(values) = &overlay[at].1.value else {
        return;
    };
    for value in values {
        let mut one = overlay.to_vec();
        one[at].1 = wrapped(value);
        let label = if values.len() > 1 {
            let plain = value.plain().replace(['[', ']', '"'], "");
            format!("{label} {plain}")
        } else {
            label.to_owned()
        };
        unfold(&label, &one, out);
    }
}

/// A key that no scenario contains.
const WRAP: &str = "\u{1}";

fn wrapped(node: &Node) -> Node {
    if !matches!(node.value, Value::List(_)) {
        return node.clone();
    }
    let mut table = Node::given(Value::Table(Vec::new()));
    table.insert(WRAP, node.clone());
    table
}

fn unwrapped(node: &Node) -> Node {
    node.get(WRAP).unwrap_or(node).clone()
}

fn check_references(
    document: &Document,
    scenario: &Scenario,
    labels: &[&str],
) -> Result<(), Mistake> {
    for check in &scenario.checks {
        if let Reference::Contender(name) = &check.of
            && !labels.contains(&name.as_str())
        {
            let place = document
                .root
                .get("check")
                .map_or(Place::Given, |node| node.place);
            let known = labels.join(", ");
            let what = format!(
                "there is no contender `{name}`: expected sum-of-rates, best-single or one of \
             {known}"
            );
            let mut mistake = mistake(document, place, "check", what);
            mistake.hint = nearest(name, labels.iter().copied());
            return Err(mistake);
        }
    }
    Ok(())
}

fn mistake(document: &Document, place: Place, key: &str, what: String) -> Mistake {
    Mistake {
        file: document.file.clone(),
        place,
        key: key.to_owned(),
        what,
        hint: None,
    }
}

fn whole_file(document: &Document, what: &str) -> Mistake {
    mistake(document, Place::Given, "", what.to_owned())
}

/// The seed of a repetition. It does not depend on the contender, so that all meet the same
/// network.
fn seed(campaign: u64, name: &str, swept: &[(String, String)], repetition: u64) -> u64 {
    let mut hash = Sha256::new();
    hash.update(campaign.to_be_bytes());
    absorb(&mut hash, name);
    for (key, value) in swept {
        absorb(&mut hash, key);
        absorb(&mut hash, value);
    }
    hash.update(repetition.to_be_bytes());
    first_eight(hash)
}

fn run_id(text: &str, scenario: &Scenario, contender: &str, repetition: u64, seed: u64) -> String {
    let mut hash = Sha256::new();
    hash.update(crate::scenario::FORMAT.to_be_bytes());
    absorb(&mut hash, text);
    absorb(&mut hash, contender);
    for file in &scenario.files {
        // The scenario's text contains only its name.
        absorb(&mut hash, &file.text);
    }
    hash.update(repetition.to_be_bytes());
    hash.update(seed.to_be_bytes());
    format!("{:016x}", first_eight(hash))
}

/// Hashes `text` after its length, so that no two sequences of texts give the same input.
fn absorb(hash: &mut Sha256, text: &str) {
    hash.update((text.len() as u64).to_be_bytes());
    hash.update(text);
}

fn first_eight(hash: Sha256) -> u64 {
    let digest = hash.finalize();
    let (first, _) = digest.split_at(8);
    first
        .iter()
        .fold(0, |value, byte| value << 8 | u64::from(*byte))
}
