//! Summarises a study in five lines.

use crate::compare::{self, Judgement, Options};
use crate::draw::Unit;
use crate::figures::View;
use crate::study::{Agreement, Claim, Study};
use anabranch_lab::report::Row;
use anabranch_lab::results::Status;
use anabranch_lab::words::counted;
use std::collections::BTreeSet;
use std::fmt::Write;

/// The lines, from what was run to the most certain result.
pub(crate) fn lines(study: &Study, claims: &[Claim]) -> Vec<String> {
    let mut lines = vec![runs(study), held(claims)];
    lines.extend(best(study));
    lines.extend(difference(study));
    lines.extend(against_best(study));
    lines.extend(worlds(study).or_else(|| wait(study)));
    lines.truncate(5);
    lines
}

fn runs(study: &Study) -> String {
    let parts = || study.folders.iter().flat_map(|folder| &folder.parts);
    let contenders: BTreeSet<&str> = parts()
        .filter(|part| !part.single)
        .map(|part| part.contender.as_str())
        .collect();
    let points: BTreeSet<&[(String, String)]> = parts().map(|part| part.swept.as_slice()).collect();
    let worlds: Vec<String> = (0..study.folders.len()).map(|at| study.label(at)).collect();
    let mut text = format!(
        "{} of {} in {}",
        counted(parts().count(), "run"),
        counted(contenders.len(), "contender"),
        worlds.join(" and ")
    );
    if points.len() > 1 {
        let _ = write!(text, ", at {} points", points.len());
    }
    let bad = parts()
        .filter(|part| part.outcome.status != Status::Ok)
        .count();
    let missing: usize = study.folders.iter().map(|folder| folder.missing).sum();
    match bad {
        0 => text.push_str("; all ended well"),
        1 => text.push_str("; 1 did not end well and does not count"),
        bad => {
            let _ = write!(text, "; {bad} did not end well and do not count");
        }
    }
    if missing > 0 {
        let _ = write!(
            text,
            ". {} of the plan have no result yet",
            counted(missing, "run")
        );
    }
    text + "."
}

fn held(claims: &[Claim]) -> String {
    let with = |agree: Agreement| claims.iter().filter(move |claim| claim.agree == agree);
    let (yes, no) = (with(Agreement::Yes).count(), with(Agreement::No).count());
    if claims.is_empty() {
        return "Nothing was claimed: the scenario has no [check] and is of no paper.".to_owned();
    }
    let mut text = format!("{yes} of {} hold", counted(yes + no, "claim"));
    let missed: Vec<&str> = with(Agreement::No).map(|claim| claim.id.as_str()).collect();
    match missed.len() {
        0 => {}
        1..=4 => {
            let _ = write!(text, "; not {}", missed.join(", "));
        }
        more => {
            let _ = write!(text, "; {more} do not, see the table");
        }
    }
    let told = with(Agreement::Told).count();
    if told > 0 {
        let _ = write!(text, "; {told} told only");
    }
    text + "."
}

fn rows(study: &Study) -> impl Iterator<Item = &Row> {
    study
        .folders
        .iter()
        .take(1)
        .flat_map(|folder| &folder.report.rows)
}

/// The rows of each point, in the order of the report.
fn points(study: &Study) -> Vec<Vec<&Row>> {
    let mut points: Vec<Vec<&Row>> = Vec::new();
    for row in rows(study) {
        match points.last_mut().filter(|rows| rows[0].swept == row.swept) {
            Some(rows) => rows.push(row),
            None => points.push(vec![row]),
        }
    }
    points
}

/// A lead by less than this share is not counted.
const LEAD: f64 = 0.01;

/// The contenders of a point by their mean goodput, the highest first.
fn ranking<'r>(rows: &[&'r Row]) -> Vec<(&'r Row, f64)> {
    let rivals = rows.iter().filter(|row| !row.single);
    let mut means: Vec<(&Row, f64)> = rivals
        .filter_map(|row| Some((*row, row.goodput?.mean)))
        .collect();
    means.sort_by(|a, b| b.1.total_cmp(&a.1));
    means
}

/// Whether the first of these means leads over the second; a single mean does not.
fn leads(means: &[f64]) -> bool {
    matches!(means, [first, second, ..] if *first > second * (1.0 + LEAD))
}

/// How often each contender leads, the most frequent first.
fn wins<'n>(points: &[Vec<(&'n str, f64)>]) -> Vec<(&'n str, usize)> {
    let mut wins: Vec<(&str, usize)> = Vec::new();
    for ranking in points {
        let means: Vec<f64> = ranking.iter().map(|(_, mean)| *mean).collect();
        let Some((leader, _)) = ranking.first().filter(|_| leads(&means)) else {
            continue;
        };
        match wins.iter_mut().find(|(name, _)| name == leader) {
            Some((_, count)) => *count += 1,
            None => wins.push((leader, 1)),
        }
    }
    wins.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    wins
}

fn best<'s>(study: &'s Study) -> Option<String> {
    let points = points(study);
    if points.len() > 1 {
        let named = |rows: &Vec<&'s Row>| -> Vec<(&'s str, f64)> {
            let ranking = ranking(rows).into_iter();
            ranking
                .map(|(row, mean)| (row.contender.as_str(), mean))
                .collect()
        };
        let named: Vec<_> = points.iter().map(named).collect();
        if named.iter().all(|ranking| ranking.len() < 2) {
            return None;
        }
        let margin = LEAD * 100.0;
        let wins = wins(&named);
        let led: usize = wins.iter().map(|(_, count)| count).sum();
        let Some((name, count)) = wins.first() else {
            return Some(format!(
                "No contender leads in goodput by more than {margin:.0} % at any of {} points.",
                points.len()
            ));
        };
        return Some(format!(
            "Highest goodput, by more than {margin:.0} %, most often: {name}, at {count} of {} \
             points; at {} nobody leads.",
            points.len(),
            points.len() - led
        ));
    }
    let rows = points.first()?;
    let ranking = ranking(rows);
    let (row, _) = ranking.first()?;
    let goodput = row.goodput?;
    let means: Vec<f64> = ranking.iter().map(|(_, mean)| *mean).collect();
    let also = match ranking.get(1) {
        Some((second, _)) if !leads(&means) => {
            format!(" ({} is within {:.0} %)", second.contender, LEAD * 100.0)
        }
        _ => String::new(),
    };
    let contender = &row.contender;
    let mut text = format!("Highest goodput: {contender}{also}, {}", rate(goodput.mean));
    if let Some(interval) = goodput.interval {
        let _ = write!(
            text,
            " (95 %: {} to {})",
            rate(interval.low),
            rate(interval.high)
        );
    }
    let singles = rows.iter().filter(|row| row.single);
    let single = singles
        .filter_map(|row| Some(row.goodput?.mean))
        .reduce(f64::max);
    if let Some(single) = single.filter(|single| *single > 0.0) {
        let times = goodput.mean / single;
        let _ = write!(text, ", {times:.2} times the best path alone");
    }
    let sum = study
        .folders
        .first()?
        .parts
        .iter()
        .find_map(|part| part.sum_rate_bps);
    if let Some(sum) = sum.filter(|sum| *sum > 0) {
        let share = goodput.mean / sum as f64 * 100.0;
        let _ = write!(text, ", {share:.1} % of the sum of rates");
    }
    Some(text + ".")
}

/// The largest significant difference from the first contender.
fn difference(study: &Study) -> Option<String> {
    let first = rows(study).next()?.contender.clone();
    let judged: Vec<&Row> = rows(study)
        .filter(|row| !row.single && row.against_first.is_some())
        .collect();
    if judged.is_empty() {
        return None;
    }
    let sure = |row: &&&Row| {
        let interval = row.against_first.and_then(|found| found.interval);
        interval.is_some_and(|interval| interval.low > 1.0 || interval.high < 1.0)
    };
    let size = |row: &Row| {
        row.against_first
            .map_or(0.0, |found| found.ratio.ln().abs())
    };
    let largest = judged
        .iter()
        .filter(sure)
        .max_by(|a, b| size(a).total_cmp(&size(b)));
    let Some(row) = largest else {
        let repeated = judged
            .iter()
            .any(|row| row.against_first.is_some_and(|f| f.pairs > 1));
        return repeated.then(|| format!("No contender surely differs from {first}."));
    };
    let found = row.against_first?;
    let interval = found.interval?;
    let place = if row.swept.is_empty() {
        String::new()
    } else {
        format!(" at {}", crate::sweep::point(&row.swept))
    };
    Some(format!(
        "Largest sure difference in goodput: {} {:+.1} % against {first}{place} (95 %: {:+.1} to \
         {:+.1} %).",
        row.contender,
        (found.ratio - 1.0) * 100.0,
        (interval.low - 1.0) * 100.0,
        (interval.high - 1.0) * 100.0
    ))
}

/// A contender counts as slower than the best path alone only if it is slower by more than this
/// share.
const MARGIN: f64 = 0.02;

/// For a sweep: where contenders are slower than the best path alone.
fn against_best(study: &Study) -> Option<String> {
    let view = View::of(study.folders.first()?, None).filter(|view| view.points.len() > 1)?;
    let mut worst: Option<(f64, String)> = None;
    let (mut good, mut all) = (0, 0);
    for rival in view.contenders.iter().filter(|contender| !contender.single) {
        for at in &view.points {
            let Some(found) = compare_to_best(&view, at, &rival.name) else {
                continue;
            };
            all += 1;
            good += usize::from(found >= 1.0 - MARGIN);
            if worst.as_ref().is_none_or(|(least, _)| found < *least) {
                worst = Some((
                    found,
                    format!("{} at {}", rival.name, crate::sweep::point(at)),
                ));
            }
        }
    }
    let (least, place) = worst?;
    Some(format!(
        "Not slower than the best path alone (margin {:.0} %) in {good} of {all} cases; least \
         ratio {least:.3}, {place}.",
        MARGIN * 100.0
    ))
}

fn compare_to_best(view: &View<'_>, at: &[(String, String)], contender: &str) -> Option<f64> {
    let runs = view.runs(at, contender).iter();
    let pairs: Vec<(f64, f64)> = runs
        .filter_map(|part| {
            let best = view.best_single(at, part.repetition)?;
            Some((part.outcome.goodput_bps?, best))
        })
        .collect();
    Some(anabranch_lab::stats::compare(&pairs)?.ratio)
}

fn worlds(study: &Study) -> Option<String> {
    let (first, others) = study.folders.split_first()?;
    let options = Options::default();
    let lines: Vec<compare::Line> = others
        .iter()
        .flat_map(|other| compare::lines(first, Some(other), &options))
        .collect();
    let both = lines
        .iter()
        .filter(|line| line.judgement != Judgement::Missing)
        .count();
    let bad = lines
        .iter()
        .filter(|line| line.judgement == Judgement::Disagrees)
        .count();
    (both > 0).then(|| {
        format!(
            "{} of {} lie within tolerance of {} in the other results ({:.0} % goodput, {:.0} % \
             short times).",
            both - bad,
            counted(both, "figure"),
            study.label(0),
            options.goodput * 100.0,
            options.completion * 100.0
        )
    })
}

fn wait(study: &Study) -> Option<String> {
    let waits = rows(study).filter(|row| !row.single && row.swept.is_empty());
    let mut waits: Vec<(&str, f64)> = waits
        .filter_map(|row| Some((row.contender.as_str(), row.reseq_wait?)))
        .collect();
    waits.sort_by(|a, b| a.1.total_cmp(&b.1));
    let ((least, low), (most, high)) = (waits.first()?, waits.last()?);
    let unit = Unit::time(*high);
    let time = |seconds: f64| format!("{:.1} {}", seconds * unit.factor, unit.name);
    if waits.len() == 1 || *high < low * 1.01 {
        return Some(format!("Mean delay by re-sequencing: {}.", time(*low)));
    }
    Some(format!(
        "Mean delay by re-sequencing: least {least} with {}, most {most} with {}.",
        time(*low),
        time(*high)
    ))
}

/// A bit rate with its unit.
pub(crate) fn rate(bps: f64) -> String {
    let unit = Unit::rate(bps);
    format!("{:.2} {}", bps * unit.factor, unit.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_ahead_by_next_to_nothing_has_not_won() {
        let equal = vec![("ecf", 10.000_1), ("min-rtt", 10.0)];
        let ahead = vec![("blest", 10.2), ("ecf", 10.0)];
        assert_eq!(wins(&[equal.clone(), equal.clone()]), []);
        assert_eq!(wins(&[equal, ahead.clone(), ahead]), [("blest", 2)]);
        assert_eq!(wins(&[vec![("ecf", 10.0)]]), [], "nobody to be ahead of");
    }
}
