//! One random world, drawn from a seed.

use anabranch_sim::{Dice, Seed};
use std::fmt::Write as _;

/// What makes a world harder than links with a rate, a delay, a queue and loss by chance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Condition {
    /// None of what follows.
    Plain,
    /// Delays vary from packet to packet.
    Jitter,
    /// Losses come in bursts.
    Bursts,
    /// The way back has another rate.
    Asymmetric,
    /// A rate changes in the middle.
    Steps,
    /// Cross traffic: another TCP flow shares a link.
    Cross,
    /// A link fails for a while.
    Outage,
}

impl Condition {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Plain,
        Self::Jitter,
        Self::Bursts,
        Self::Asymmetric,
        Self::Steps,
        Self::Cross,
        Self::Outage,
    ];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Jitter => "jitter",
            Self::Bursts => "bursts of loss",
            Self::Asymmetric => "asymmetric",
            Self::Steps => "steps of rate",
            Self::Cross => "cross traffic",
            Self::Outage => "outage",
        }
    }
}

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Work {
    /// One file of this many bytes.
    File(u64),
    /// This many requests, each answered by so many bytes, one every so many seconds.
    Requests(u64, u64, f64),
    /// Datagrams: bytes each, bits per second, seconds, deadline in seconds.
    Datagrams(u64, f64, f64, f64),
}

/// One direction of a link.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Direction {
    bits: f64,
    delay: f64,
    queue: f64,
    /// Share of packets, and mean length of a burst.
    loss: Option<(f64, Option<u64>)>,
    jitter: Option<f64>,
}

/// A world: its links in random order, what is sent over them, what happens meanwhile.
#[derive(Debug, Clone, PartialEq)]
pub struct World {
    /// The seed it was drawn from.
    pub seed: u64,
    /// What is sent.
    pub work: Work,
    /// What makes it hard; [`Condition::Plain`] alone if nothing does.
    pub conditions: Vec<Condition>,
    upload: bool,
    links: Vec<[Direction; 2]>,
    /// Text of `[[event]]` and `[[background]]`.
    meanwhile: String,
}

/// Fewer bits per second than this never come out of a changed rate.
const LEAST_RATE: f64 = 50e3;

struct Draw(Dice);

impl Draw {
    /// From 0 to below 1.
    fn unit(&mut self) -> f64 {
        (self.0.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Each doubling equally likely.
    fn log(&mut self, low: f64, high: f64) -> f64 {
        low * (high / low).powf(self.unit())
    }

    fn is(&mut self, share: f64) -> bool {
        self.unit() < share
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound as u64) as usize
    }
}

impl World {
    /// The world of this seed. A `plain` one has no condition and carries a file.
    pub fn draw(seed: u64, plain: bool) -> Self {
        let mut draw = Draw(Dice::new(Seed(seed).derive("promise", 0)));
        let count = 2 + [0.6, 0.9]
            .iter()
            .filter(|share| draw.unit() >= **share)
            .count();
        let mut links: Vec<[Direction; 2]> = (0..count).map(|_| link(&mut draw)).collect();
        let upload = draw.is(0.3);
        let mut work = Work::File(draw.log(1e4, 6e7) as u64);
        let mut conditions = Vec::new();
        let mut meanwhile = String::new();
        if !plain {
            work = other_work(&mut draw, work);
            harden(&mut draw, &mut links, &mut conditions);
            let lasts = duration(&links, upload, &work);
            happen(&mut draw, &links, lasts, &mut conditions, &mut meanwhile);
        }
        if conditions.is_empty() {
            conditions.push(Condition::Plain);
        }
        Self {
            seed,
            work,
            conditions,
            upload,
            links,
            meanwhile,
        }
    }

    /// How many links it has.
    pub fn links(&self) -> usize {
        self.links.len()
    }

    /// Seconds from one end of a link to the other and back, without queues.
    pub fn round_trip(&self, link: usize) -> f64 {
        self.links[link].iter().map(|way| way.delay).sum()
    }

    /// The name of a link in the scenario.
    pub fn link_name(link: usize) -> &'static str {
        ["a", "b", "c", "d"][link]
    }

    /// Seconds that the work takes at the rate of all links together, and a few round trips.
    pub fn ideal(&self) -> f64 {
        duration(&self.links, self.upload, &self.work)
    }

    /// The scenario as the text of a file, for these settings. The bins of its series are
    /// `1 / detail` of the ideal time.
    pub fn scenario(&self, scheduler: &str, congestion: Option<&str>, detail: f64) -> String {
        let mut text = format!(
            "format = 1\nname = \"promise-{}\"\nstop = \"{:.0}s\"\n\n",
            self.seed,
            60.0 + 100.0 * self.slowest()
        );
        for (at, [forward, backward]) in self.links.iter().enumerate() {
            let _ = write!(
                text,
                "[[path]]\nname = \"{}\"\nforward = {}\nbackward = {}\n\n",
                Self::link_name(at),
                forward.text(),
                backward.text()
            );
        }
        text.push_str(&self.meanwhile);
        let way = if self.upload { "forward" } else { "backward" };
        let _ = match self.work {
            Work::File(bytes) => writeln!(text, "[[flow]]\nkind = \"bulk\"\nbytes = \"{bytes}B\""),
            Work::Requests(count, answer, every) => writeln!(
                text,
                "[[flow]]\nkind = \"requests\"\ncount = {count}\nsize = \"400B\"\n\
                 answer = \"{answer}B\"\nevery = \"{}\"",
                time(every)
            ),
            Work::Datagrams(size, bits, lasts, deadline) => writeln!(
                text,
                "[[flow]]\nkind = \"datagrams\"\nsize = \"{size}B\"\nrate = \"{}\"\n\
                 duration = \"{}\"\ndeadline = \"{}\"",
                rate(bits),
                time(lasts),
                time(deadline)
            ),
        };
        let _ = writeln!(text, "direction = \"{way}\"\n\n[transport]\nrace = true");
        if let Some(congestion) = congestion {
            let _ = writeln!(text, "congestion = \"{congestion}\"");
        }
        let _ = writeln!(
            text,
            "\n[contenders]\nanabranch = {{ scheduler = \"{scheduler}\" }}\n\n[repeat]\nruns = 1\n\
             seed = {}\n\n[record]\nseries = \"{}\"",
            self.seed % (1 << 62),
            time((self.ideal() / detail).clamp(0.001, 1.0))
        );
        text
    }

    /// Seconds that the work takes on the slowest link alone.
    fn slowest(&self) -> f64 {
        let alone = |link: &[Direction; 2]| duration(&[*link], self.upload, &self.work);
        self.links.iter().map(alone).fold(0.0, f64::max)
    }
}

fn link(draw: &mut Draw) -> [Direction; 2] {
    let bits = draw.log(1e6, 5e8);
    let delay = draw.log(0.002, 0.3);
    let queue = draw.log(0.02, 1.5);
    let loss = draw.is(0.5).then(|| (draw.log(1e-4, 0.03), None));
    let forward = Direction {
        bits,
        delay,
        queue,
        loss,
        jitter: None,
    };
    [forward; 2]
}

/// Sometimes something else than a file.
fn other_work(draw: &mut Draw, file: Work) -> Work {
    match draw.below(20) {
        0..3 => Work::Requests(
            20 + draw.below(80) as u64,
            draw.log(1e3, 2e5) as u64,
            draw.log(0.005, 0.3),
        ),
        3..5 => Work::Datagrams(
            200 + draw.below(900) as u64,
            draw.log(64e3, 4e6),
            draw.between(4.0, 8.0),
            draw.log(0.05, 0.5),
        ),
        _ => file,
    }
}

/// Makes links worse.
fn harden(draw: &mut Draw, links: &mut [[Direction; 2]], conditions: &mut Vec<Condition>) {
    for link in links {
        if draw.is(0.12) {
            let jitter = draw.between(0.05, 0.3) * link[0].delay;
            for way in link.iter_mut() {
                way.jitter = Some(jitter);
            }
            note(conditions, Condition::Jitter);
        }
        if let Some((share, _)) = link[0].loss
            && draw.is(0.2)
        {
            let burst = 2 + draw.below(8) as u64;
            for way in link.iter_mut() {
                way.loss = Some((share, Some(burst)));
            }
            note(conditions, Condition::Bursts);
        }
        if draw.is(0.2) {
            let worse = draw.below(2);
            link[worse].bits = (link[worse].bits * draw.log(0.03, 1.0)).max(LEAST_RATE);
            note(conditions, Condition::Asymmetric);
        }
    }
}

/// Things that happen while something is sent, which takes some `lasts` seconds.
fn happen(
    draw: &mut Draw,
    links: &[[Direction; 2]],
    lasts: f64,
    conditions: &mut Vec<Condition>,
    text: &mut String,
) {
    let at = |draw: &mut Draw| time(draw.between(0.1, 0.9) * lasts);
    if draw.is(0.12) {
        let link = draw.below(links.len());
        for way in ["forward", "backward"] {
            let bits = links[link][usize::from(way == "backward")].bits;
            let new = (bits * draw.log(0.1, 3.0)).max(LEAST_RATE);
            let _ = writeln!(
                text,
                "[[event]]\nat = \"{}\"\npath = \"{}\"\ndirection = \"{way}\"\n\
                 set = {{ rate = \"{}\" }}\n",
                at(draw),
                World::link_name(link),
                rate(new)
            );
        }
        note(conditions, Condition::Steps);
    }
    if draw.is(0.1) {
        let way = ["forward", "backward"][draw.below(2)];
        let _ = writeln!(
            text,
            "[[background]]\nkind = \"tcp\"\npath = \"{}\"\ncongestion = \"cubic\"\n\
             direction = \"{way}\"\nstart = \"{}\"\n",
            World::link_name(draw.below(links.len())),
            time(draw.between(0.0, 0.5) * lasts)
        );
        note(conditions, Condition::Cross);
    }
    if draw.is(0.08) {
        let link = World::link_name(draw.below(links.len()));
        let down = draw.between(0.1, 0.9) * lasts;
        let up = down + draw.log(0.1, 10.0);
        for (at, what) in [(down, "down"), (up, "up")] {
            let _ = writeln!(
                text,
                "[[event]]\nat = \"{}\"\npath = \"{link}\"\n{what} = \"both\"\n",
                time(at)
            );
        }
        note(conditions, Condition::Outage);
    }
}

fn note(conditions: &mut Vec<Condition>, condition: Condition) {
    if !conditions.contains(&condition) {
        conditions.push(condition);
    }
}

/// Seconds that the work takes at the rates of these links together, and three round trips of the
/// nearest.
fn duration(links: &[[Direction; 2]], upload: bool, work: &Work) -> f64 {
    let bits: f64 = links
        .iter()
        .map(|link| link[usize::from(!upload)].bits)
        .sum();
    let nearest = links.iter().map(|link| link[0].delay + link[1].delay);
    let start = 3.0 * nearest.fold(f64::INFINITY, f64::min);
    match *work {
        Work::File(bytes) => start + bytes as f64 * 8.0 / bits,
        Work::Requests(count, answer, every) => {
            start + (count as f64 * every).max(count as f64 * answer as f64 * 8.0 / bits)
        }
        Work::Datagrams(_, _, lasts, _) => start + lasts,
    }
}

impl Direction {
    fn text(&self) -> String {
        let mut text = format!(
            "{{ rate = \"{}\", delay = \"{}\", queue = \"{}\"",
            rate(self.bits),
            time(self.delay),
            time(self.queue)
        );
        let _ = match self.loss {
            None => Ok(()),
            Some((share, None)) => write!(text, ", loss = \"{:.3}%\"", share * 100.0),
            Some((share, Some(burst))) => write!(
                text,
                ", loss = {{ mean = \"{:.3}%\", burst = {burst} }}",
                share * 100.0
            ),
        };
        if let Some(jitter) = self.jitter {
            let _ = write!(text, ", jitter = {{ sd = \"{}\" }}", time(jitter));
        }
        text.push_str(" }");
        text
    }
}

/// Three digits are enough for a world that is drawn at random.
fn rate(bits: f64) -> String {
    format!("{:.0}kbit/s", (bits / 1e3).max(1.0))
}

fn time(seconds: f64) -> String {
    format!("{:.0}us", (seconds * 1e6).max(1.0))
}
