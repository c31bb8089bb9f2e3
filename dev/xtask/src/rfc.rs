//! The index of RFC citations: which lines of the code rely on which section.
//!
//! A citation reads `RFC nnnn, section x.y` and may be wrapped across comment lines anywhere.

use std::collections::BTreeMap;
use std::path::Path;

use crate::source::{self, Source};

/// The RFC number and the parts of the section number, so that 6.10 comes after 6.2.
type Key = (u32, Vec<Part>);

/// One part of a section number; appendices have letters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Number(u32),
    Letter(String),
}

/// Prints the index, one line per section.
pub(crate) fn print(root: &Path) -> Result<bool, String> {
    let mut index: BTreeMap<Key, Vec<String>> = BTreeMap::new();
    for source in source::read_all(root)?
        .iter()
        .filter(|source| source.is_rust())
    {
        for (rfc, section, line) in citations(source) {
            let places = index.entry((rfc, parts(&section))).or_default();
            places.push(format!("{}:{line}", source.path));
        }
    }
    for ((rfc, section), places) in &index {
        crate::say(&format!(
            "RFC {rfc}\t{}\t{}",
            dotted(section),
            places.join(" ")
        ));
    }
    let total: usize = index.values().map(Vec::len).sum();
    eprintln!("rfc: {total} citations of {} sections", index.len());
    Ok(true)
}

/// All citations in a file: RFC number, section, and line counted from 1.
fn citations(source: &Source) -> Vec<(u32, String, usize)> {
    let words = words(&source.text);
    let mut found = Vec::new();
    for (at, (word, line)) in words.iter().enumerate() {
        if word.trim_start_matches(['(', '[', '`', '"']) != "RFC" {
            continue;
        }
        let Some(rfc) = words
            .get(at + 1)
            .and_then(|(word, _)| word.strip_suffix(','))
        else {
            continue;
        };
        let Ok(rfc) = rfc.parse::<u32>() else {
            continue;
        };
        let Some((keyword, _)) = words.get(at + 2) else {
            continue;
        };
        if !["section", "sections", "appendix"].contains(keyword) {
            continue;
        }
        // `sections 5.1, 6.2 and 7` cites each of these.
        for (word, _) in &words[at + 3..] {
            if *word == "and" {
                continue;
            }
            let section = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
            if !is_section(section) {
                break;
            }
            found.push((rfc, section.to_owned(), *line));
            let goes_on = word.ends_with(',') && *keyword == "sections";
            if *keyword != "sections" || (!goes_on && !word.ends_with(char::is_alphanumeric)) {
                break;
            }
        }
    }
    found
}

/// The words with their lines, without comment markers.
fn words(text: &str) -> Vec<(&str, usize)> {
    let lines = text.lines().enumerate();
    let split = lines.flat_map(|(at, line)| line.split_whitespace().map(move |w| (w, at + 1)));
    split
        .filter(|(word, _)| !["//", "///", "//!"].contains(word))
        .collect()
}

fn is_section(text: &str) -> bool {
    let mut parts = text.split('.');
    let first = parts.next().unwrap_or_default();
    let letter = first.len() == 1 && first.starts_with(|c: char| c.is_ascii_uppercase());
    let number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    (letter || number(first)) && parts.all(number)
}

fn parts(section: &str) -> Vec<Part> {
    let part = |part: &str| match part.parse() {
        Ok(number) => Part::Number(number),
        Err(_) => Part::Letter(part.to_owned()),
    };
    section.split('.').map(part).collect()
}

fn dotted(section: &[Part]) -> String {
    let part = |part: &Part| match part {
        Part::Number(number) => number.to_string(),
        Part::Letter(letter) => letter.clone(),
    };
    section.iter().map(part).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cited(text: &str) -> Vec<(u32, String, usize)> {
        citations(&Source {
            path: "a.rs".into(),
            text: text.into(),
        })
    }

    #[test]
    fn a_citation_is_found_with_its_line() {
        let text = "//! x\n/// The PTO (RFC 9002, section 6.2.1).\nfn f() {}\n";
        assert_eq!(cited(text), [(9002, "6.2.1".to_owned(), 2)]);
    }

    #[test]
    fn a_citation_broken_over_two_comment_lines_is_found_where_it_begins() {
        let text = "/// as in RFC 9001,\n/// section 6, so\n";
        assert_eq!(cited(text), [(9001, "6".to_owned(), 1)]);
    }

    #[test]
    fn several_sections_in_one_citation_are_all_indexed() {
        let text = "// RFC 9000, sections 4.1, 4.2 and A.3. Then 7 more\n";
        let sections: Vec<_> = cited(text)
            .into_iter()
            .map(|(_, section, _)| section)
            .collect();
        assert_eq!(sections, ["4.1", "4.2", "A.3"]);
    }

    #[test]
    fn an_rfc_without_a_section_is_no_citation() {
        assert!(cited("// RFC 9221 and RFC 10069, both\n").is_empty());
    }

    #[test]
    fn sections_sort_by_number() {
        assert!(parts("6.2") < parts("6.10"));
    }
}
