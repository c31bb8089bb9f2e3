//! The steps of a reader of the page, block by block.
//!
//! A block of `rust` or `toml` is a file, named by the paragraph above it. "At the end of `FILE`"
//! means that the block is appended to the file; otherwise it is the whole file. A block without a
//! language contains commands. Blocks of all other languages (`text`) are only for reading. No mark
//! can exempt a block of code.

use crate::Finding;
use std::path::{Component, Path};

/// Files without which a reader cannot get to the end of the page.
const NEEDED: &[&str] = &[
    "Cargo.toml",
    "src/lib.rs",
    "tests/conformance.rs",
    "src/main.rs",
];
/// Part of the command that the page is about.
const COMMAND: &str = "--test conformance";
/// How the paragraph starts if its block is appended to a file.
const ADDS: &str = "At the end of `";

/// A step, and the line of the page that requires it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) line: usize,
    pub(super) deed: Deed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Deed {
    /// The text is the whole file and replaces an earlier one.
    Write { file: String, text: String },
    /// The text is appended to a file.
    Append { file: String, text: String },
    /// Run `cargo` with these arguments.
    Run { arguments: Vec<String> },
}

/// A fenced block, with the paragraph above it.
struct Block {
    /// The line of its opening fence.
    line: usize,
    language: String,
    above: String,
    text: String,
}

/// The steps of a page, or what is wrong with the page.
pub(super) fn read(page: &str, text: &str) -> Result<Vec<Step>, Vec<Finding>> {
    let wrong = |(line, message): (usize, String)| Finding {
        file: page.to_owned(),
        line,
        message,
    };
    let (mut steps, mut findings) = (Vec::new(), Vec::new());
    let blocks = blocks(text).map_err(|problem| vec![wrong(problem)])?;
    for block in &blocks {
        match steps_of(block) {
            Ok(some) => steps.extend(some),
            Err(message) => findings.push(wrong((block.line, message))),
        }
    }
    if findings.is_empty() {
        findings.extend(gaps(&steps).into_iter().map(wrong));
    }
    if findings.is_empty() {
        Ok(steps)
    } else {
        Err(findings)
    }
}

/// All blocks, in order.
fn blocks(text: &str) -> Result<Vec<Block>, (usize, String)> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut above: Vec<&str> = Vec::new();
    let mut is_ended = false;
    let mut open: Option<(Block, usize)> = None;
    for (at, line) in text.lines().enumerate() {
        let trimmed = line.trim();
        let ticks = trimmed.len() - trimmed.trim_start_matches('`').len();
        if let Some((mut block, fence)) = open.take() {
            if ticks >= fence && ticks == trimmed.len() {
                blocks.push(block);
            } else {
                block.text.push_str(line);
                block.text.push('\n');
                open = Some((block, fence));
            }
            continue;
        }
        if ticks >= 3 {
            let info = &trimmed[ticks..];
            let language = info.split([',', ' ', '{']).next().unwrap_or_default();
            let block = Block {
                line: at + 1,
                language: language.to_owned(),
                above: above.join(" "),
                text: String::new(),
            };
            open = Some((block, ticks));
            above.clear();
        } else if trimmed.is_empty() {
            is_ended = true;
        } else {
            // Text above a heading or another paragraph does not belong to the next block.
            if is_ended || trimmed.starts_with('#') {
                above.clear();
            }
            is_ended = trimmed.starts_with('#');
            above.push(trimmed);
        }
    }
    match open {
        Some((block, _)) => Err((block.line, "the block has no end".to_owned())),
        None => Ok(blocks),
    }
}

fn steps_of(block: &Block) -> Result<Vec<Step>, String> {
    let step = |deed| Step {
        line: block.line,
        deed,
    };
    match block.language.as_str() {
        "rust" | "toml" => {
            let file = file(block)?;
            let text = block.text.clone();
            let deed = if block.above.contains(&format!("{ADDS}{file}`")) {
                Deed::Append { file, text }
            } else {
                Deed::Write { file, text }
            };
            Ok(vec![step(deed)])
        }
        "" | "sh" => {
            let lines = block.text.lines().filter(|line| !line.trim().is_empty());
            let deeds: Result<Vec<Deed>, String> = lines.map(command).collect();
            Ok(deeds?.into_iter().map(step).collect())
        }
        _ => Ok(Vec::new()),
    }
}

/// The file that a block stands for, as named by the paragraph above it.
fn file(block: &Block) -> Result<String, String> {
    let mut files: Vec<&str> = block
        .above
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|code| {
            let extension = Path::new(code).extension();
            let is_source = extension.is_some_and(|it| it == "rs" || it == "toml");
            is_source && !code.contains(' ')
        })
        .collect();
    files.sort_unstable();
    files.dedup();
    let language = &block.language;
    let file = match files[..] {
        [file] => file,
        [] => {
            return Err(format!(
                "the paragraph above this block of `{language}` names no file for it; \
                 if it is to be read only, its language is `text`"
            ));
        }
        _ => {
            return Err(format!(
                "the paragraph above this block of `{language}` names several files: {}",
                files.join(", ")
            ));
        }
    };
    let is_below = Path::new(file)
        .components()
        .all(|component| matches!(component, Component::Normal(_)));
    if is_below {
        Ok(file.to_owned())
    } else {
        Err(format!("`{file}` is not in the crate"))
    }
}

fn command(line: &str) -> Result<Deed, String> {
    let mut words = line.split_whitespace().map(str::to_owned);
    if words.next().as_deref() == Some("cargo") {
        let arguments = words.collect();
        return Ok(Deed::Run { arguments });
    }
    Err(format!(
        "`{line}` is no cargo command; if it is to be read only, its block is one of `text`"
    ))
}

/// What is missing from the steps as a whole.
fn gaps(steps: &[Step]) -> Vec<(usize, String)> {
    let mut gaps = Vec::new();
    let mut written: Vec<&str> = Vec::new();
    let mut library = String::new();
    for step in steps {
        let (file, text) = match &step.deed {
            Deed::Write { file, text } => {
                written.push(file);
                (file, text)
            }
            Deed::Append { file, text } => {
                if !written.contains(&file.as_str()) {
                    let message = format!("adds to `{file}`, which no block above is");
                    gaps.push((step.line, message));
                }
                (file, text)
            }
            Deed::Run { .. } => continue,
        };
        if file == "src/lib.rs" {
            library.push_str(text);
        }
    }
    for file in NEEDED.iter().filter(|file| !written.contains(file)) {
        gaps.push((0, format!("there is no block for `{file}`")));
    }
    for file in written {
        // A module that no `mod` declares is not compiled.
        let module = file
            .strip_prefix("src/")
            .and_then(|file| file.strip_suffix(".rs"));
        let Some(module) = module.filter(|module| !["lib", "main"].contains(module)) else {
            continue;
        };
        if !library.contains(&format!("mod {module};")) {
            gaps.push((0, format!("`src/lib.rs` has no `mod {module};`")));
        }
    }
    let is_the_command = |step: &Step| match &step.deed {
        Deed::Run { arguments } => arguments.join(" ").contains(COMMAND),
        _ => false,
    };
    if !steps.iter().any(is_the_command) {
        gaps.push((0, format!("there is no command with `{COMMAND}`")));
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# A page

The layout:

```text
src/lib.rs
```

`Cargo.toml`:

```toml
[package]
```

The smallest, as a whole `src/lib.rs`, which
does little:

```rust
pub fn one() {}
```

The whole `tests/conformance.rs`:

```rust
#[test]
fn it_conforms() {}
```

At the end of `src/lib.rs`, another:

```rust
pub fn two() {}
```

The whole `src/main.rs`:

```rust
fn main() {}
```

In the folder:

```
cargo test --release --test conformance -- --nocapture
```
";

    fn messages(text: &str) -> Vec<String> {
        let findings = read("page.md", text).expect_err("something is wrong");
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn blocks_are_the_files_named_above_them_and_commands_are_run_in_their_place() {
        let steps = read("page.md", PAGE).expect("a good page");
        let write = |file: &str, text: &str| Deed::Write {
            file: file.to_owned(),
            text: text.to_owned(),
        };
        let words = "test --release --test conformance -- --nocapture";
        let expected = [
            (11, write("Cargo.toml", "[package]\n")),
            (18, write("src/lib.rs", "pub fn one() {}\n")),
            (
                24,
                write("tests/conformance.rs", "#[test]\nfn it_conforms() {}\n"),
            ),
            (
                31,
                Deed::Append {
                    file: "src/lib.rs".to_owned(),
                    text: "pub fn two() {}\n".to_owned(),
                },
            ),
            (37, write("src/main.rs", "fn main() {}\n")),
            (
                43,
                Deed::Run {
                    arguments: words.split(' ').map(str::to_owned).collect(),
                },
            ),
        ];
        assert_eq!(steps, expected.map(|(line, deed)| Step { line, deed }));
    }

    #[test]
    fn code_that_no_file_is_named_for_is_a_finding() {
        let nameless = PAGE.replace("`Cargo.toml`:", "The manifest:");
        let found = messages(&nameless);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with("page.md:11: ") && found[0].contains("names no file"),
            "{found:?}"
        );
        // A file named for another block does not count, nor does one named above the heading.
        let second = PAGE.replace("The whole `tests/conformance.rs`:\n\n", "");
        assert!(messages(&second)[0].contains("names no file"));
        let heading = PAGE.replace("`Cargo.toml`:", "`Cargo.toml`:\n\n## The manifest");
        assert!(messages(&heading)[0].contains("names no file"));
        let several = PAGE.replace("`Cargo.toml`:", "`Cargo.toml`, not `src/lib.rs`:");
        assert!(messages(&several)[0].contains("several files: Cargo.toml, src/lib.rs"));
        // No mark exempts it.
        let marked = nameless.replace("```toml", "```toml,ignore");
        assert!(messages(&marked)[0].contains("names no file"));
    }

    #[test]
    fn nothing_is_written_outside_the_crate() {
        for file in ["../Cargo.toml", "/Cargo.toml"] {
            let page = PAGE.replace("`Cargo.toml`:", &format!("`{file}`:"));
            assert!(messages(&page)[0].contains("is not in the crate"), "{file}");
        }
    }

    #[test]
    fn a_page_that_leads_nowhere_is_a_finding() {
        let without = |from: &str, to: &str| {
            let start = PAGE.find(from).expect("it is there");
            let end = PAGE.find(to).expect("it is there");
            messages(&format!("{}{}", &PAGE[..start], &PAGE[end..]))
        };
        let found = without("`Cargo.toml`:", "The smallest");
        assert_eq!(found, ["page.md: there is no block for `Cargo.toml`"]);
        let found = without("The whole", "At the end");
        assert_eq!(
            found,
            ["page.md: there is no block for `tests/conformance.rs`"]
        );
        let found = without("The smallest", "The whole");
        assert!(found[0].contains("adds to `src/lib.rs`"), "{found:?}");
        let found = messages(&PAGE.replace("--test conformance", "--lib"));
        assert_eq!(
            found,
            ["page.md: there is no command with `--test conformance`"]
        );
        let found = messages(&PAGE.replace("cargo test", "make test"));
        assert!(found[0].contains("is no cargo command"), "{found:?}");
        let found = messages(PAGE.trim_end().trim_end_matches('`'));
        assert_eq!(found, ["page.md:43: the block has no end"]);
    }

    #[test]
    fn a_module_that_the_library_does_not_name_is_a_finding() {
        let module = "`src/more.rs`:\n\n```rust\npub fn three() {}\n```\n\nAt the end of";
        let page = PAGE.replace("At the end of", module);
        assert_eq!(
            messages(&page),
            ["page.md: `src/lib.rs` has no `mod more;`"]
        );
        let named = page.replace("pub fn two() {}", "mod more;\n\npub fn two() {}");
        assert!(read("page.md", &named).is_ok());
    }

    #[test]
    fn a_longer_fence_ends_with_one_as_long() {
        let page = PAGE.replace("```text\nsrc/lib.rs\n```", "````text\n```rust\n```\n````");
        assert!(read("page.md", &page).is_ok());
    }
}
