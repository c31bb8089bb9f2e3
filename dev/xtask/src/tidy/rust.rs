//! Rules on Rust code, by its syntax tree and tokens: comments and strings never count.

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::spanned::Spanned as _;
use syn::visit::Visit;

use super::MAX_FUNCTION_LINES;
use crate::Finding;
use crate::source::Source;

/// Crates that read no clock, open no socket and iterate in one order: same inputs, same outputs.
const DETERMINISTIC: &[&str] = &[
    "wire",
    "masque",
    "proto",
    "schedulers",
    "link",
    "tunnel",
    "sim",
];
/// Token sequences deterministic crates may not contain, and what to use.
const BANNED: &[(&[&str], &str)] = &[
    (
        &["HashMap"],
        "hash order breaks replay: BTreeMap, Vec or slab",
    ),
    (&["HashSet"], "hash order breaks replay: BTreeSet"),
    (&["Instant", "::", "now"], "time comes from outside"),
    (&["SystemTime"], "time comes from outside"),
    (&["thread", "::", "sleep"], "time comes from outside"),
    (&["UdpSocket"], "I/O belongs to anabranch-net"),
];

/// Structs with behaviour, each in its file: whoever wants something of them calls a method.
const OWNERS: &[(&str, &str)] = &[
    ("crates/proto/src/handshake/flights.rs", "Flights"),
    ("crates/proto/src/identity.rs", "Identity"),
    ("crates/proto/src/idle.rs", "Idle"),
    ("crates/proto/src/life.rs", "Life"),
    ("crates/proto/src/outbox.rs", "Outbox"),
    ("crates/proto/src/path/ack_routes.rs", "AckRoutes"),
    ("crates/proto/src/path/route.rs", "Route"),
    ("crates/proto/src/path/state.rs", "Path"),
    ("crates/proto/src/path/liveness/mod.rs", "Liveness"),
    ("crates/proto/src/path/manager.rs", "Manager"),
    ("crates/proto/src/path/manager/slot.rs", "Slot"),
    ("crates/proto/src/placement/mod.rs", "Placement"),
    ("crates/proto/src/placement/mechanisms/mod.rs", "Mechanisms"),
    ("crates/proto/src/recovery/space.rs", "PacketSpace"),
];

/// Adds what is wrong with `source`.
pub(super) fn check(source: &Source, findings: &mut Vec<Finding>) {
    let mut add = |line: usize, message: String| {
        findings.push(Finding {
            file: source.path.clone(),
            line,
            message,
        });
    };
    if !source.text.starts_with("//!") {
        add(1, "a file opens with `//!` and what it decides".to_owned());
    }
    let file = match syn::parse_file(&source.text) {
        Ok(file) => file,
        Err(e) => return add(e.span().start().line, format!("cannot parse: {e}")),
    };
    let mut functions = Functions {
        too_long: Vec::new(),
    };
    functions.visit_file(&file);
    for (line, name, lines) in functions.too_long {
        add(
            line,
            format!("`{name}` has {lines} lines, {MAX_FUNCTION_LINES} are allowed"),
        );
    }
    for (line, message) in open_fields(&source.path, &file) {
        add(line, message);
    }
    let Ok(stream) = source.text.parse::<TokenStream>() else {
        return;
    };
    let mut tokens = Vec::new();
    flatten(stream, &mut tokens);
    for (_, line) in tokens.iter().filter(|(token, _)| token == "unsafe") {
        add(*line, "no crate of ours holds `unsafe` code".to_owned());
    }
    // A bench is a driver: it measures the engine with a clock of its own.
    let bench = source.path.contains("/benches/");
    if DETERMINISTIC.contains(&source.room()) && !bench {
        for (sequence, reason) in BANNED {
            for window in tokens.windows(sequence.len()) {
                if window
                    .iter()
                    .zip(*sequence)
                    .all(|((token, _), wanted)| token == wanted)
                {
                    add(window[0].1, format!("`{}`: {reason}", sequence.concat()));
                }
            }
        }
    }
}

/// Fields of owners that code outside their module could reach into, and owners that are not where
/// they are looked for.
fn open_fields(path: &str, file: &syn::File) -> Vec<(usize, String)> {
    let mut findings = Vec::new();
    for (_, name) in OWNERS.iter().filter(|(at, _)| *at == path) {
        let owner = file.items.iter().find_map(|item| match item {
            syn::Item::Struct(item) if item.ident == *name => Some(item),
            _ => None,
        });
        let Some(owner) = owner else {
            findings.push((1, format!("the owner `{name}` is expected here")));
            continue;
        };
        for field in &owner.fields {
            if is_open(&field.vis) {
                let ident = field.ident.as_ref().map(ToString::to_string);
                let ident = ident.unwrap_or_default();
                let line = field.span().start().line;
                findings.push((
                    line,
                    format!("`{name}::{ident}`: an owner's fields are private to its module"),
                ));
            }
        }
    }
    findings
}

/// Whether more than a module and what is inside it may use something: `pub` and `pub(crate)`.
fn is_open(visibility: &syn::Visibility) -> bool {
    match visibility {
        syn::Visibility::Inherited => false,
        syn::Visibility::Public(_) => true,
        syn::Visibility::Restricted(to) => !to.path.is_ident("super") && !to.path.is_ident("self"),
    }
}

/// Collects functions that are too long.
struct Functions {
    /// Line, name, lines.
    too_long: Vec<(usize, String, usize)>,
}

impl Functions {
    fn measure(&mut self, name: &syn::Ident, from: Span, block: &syn::Block) {
        let first = from.start().line;
        let lines = block.brace_token.span.close().end().line + 1 - first;
        if lines > MAX_FUNCTION_LINES {
            self.too_long.push((first, name.to_string(), lines));
        }
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.measure(&item.sig.ident, item.sig.span(), &item.block);
        syn::visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.measure(&item.sig.ident, item.sig.span(), &item.block);
        syn::visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.measure(&item.sig.ident, item.sig.span(), block);
        }
        syn::visit::visit_trait_item_fn(self, item);
    }
}

/// Tokens with their lines, groups opened up, `::` as one token. Literals count as themselves and
/// so never equal an identifier.
fn flatten(stream: TokenStream, tokens: &mut Vec<(String, usize)>) {
    let mut colon = false;
    for token in stream {
        let line = token.span().start().line;
        let is_colon = matches!(&token, TokenTree::Punct(punct) if punct.as_char() == ':');
        match token {
            TokenTree::Group(group) => {
                tokens.push((String::new(), line));
                flatten(group.stream(), tokens);
                tokens.push((String::new(), line));
            }
            TokenTree::Punct(_) if is_colon && colon => {
                tokens.pop();
                tokens.push(("::".to_owned(), line));
            }
            token => tokens.push((token.to_string(), line)),
        }
        colon = is_colon && !colon;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<(usize, String)> {
        let source = Source {
            path: path.into(),
            text: text.into(),
        };
        let mut findings = Vec::new();
        check(&source, &mut findings);
        findings
            .into_iter()
            .map(|finding| (finding.line, finding.message))
            .collect()
    }

    fn lines(path: &str, text: &str) -> Vec<usize> {
        found(path, text)
            .into_iter()
            .map(|(line, _)| line)
            .collect()
    }

    #[test]
    fn a_function_may_have_70_lines_wherever_it_stands() {
        let body = |count: usize| "    call();\n".repeat(count - 2);
        let fits = format!("//! x\nfn f() {{\n{}}}\n", body(MAX_FUNCTION_LINES));
        assert!(found("cli/a.rs", &fits).is_empty());
        let long = body(MAX_FUNCTION_LINES + 1);
        for (head, tail) in [
            ("", ""),
            ("impl A {", "}"),
            ("trait A {", "}"),
            ("mod m {", "}"),
        ] {
            let text = format!("//! x\n{head}\n/// Doc.\nfn long() {{\n{long}}}\n{tail}\n");
            let findings = found("cli/a.rs", &text);
            assert_eq!(findings.len(), 1, "in {head}");
            assert_eq!(findings[0].0, 4);
            assert!(findings[0].1.contains("`long` has 71 lines"));
        }
    }

    #[test]
    fn every_file_opens_with_its_purpose() {
        assert_eq!(lines("cli/a.rs", "fn f() {}\n"), [1]);
        assert_eq!(lines("cli/a.rs", "//! Purpose.\nfn f() {}\n"), [0; 0]);
    }

    #[test]
    fn unsafe_code_is_found_and_words_in_comments_are_not() {
        let text =
            "//! x\n// unsafe\nfn f() -> &'static str {\n    unsafe { g() };\n    \"unsafe\"\n}\n";
        assert_eq!(lines("cli/a.rs", text), [4]);
    }

    #[test]
    fn clocks_sockets_and_hashes_are_found_in_deterministic_crates_only() {
        let text = "//! x\nuse std::collections::{BTreeMap, HashMap};\nfn f() {\n\
                    std::time::Instant::now();\nthread::sleep(d);\nInstant::from_nanos(1);\n}\n";
        for top in DETERMINISTIC {
            let mut found = lines(&format!("{top}/src/a.rs"), text);
            found.sort_unstable();
            assert_eq!(found, [2, 4, 5], "in {top}");
        }
        assert_eq!(lines("crates/net/src/a.rs", text), [0; 0]);
        assert_eq!(lines("crates/proto/benches/a.rs", text), [0; 0]);
    }

    #[test]
    fn code_that_does_not_parse_is_a_finding() {
        assert_eq!(lines("cli/a.rs", "//! x\nfn f( {}\n"), [2]);
    }

    #[test]
    fn fields_of_an_owner_that_others_may_use_are_found() {
        let (path, name) = OWNERS[0];
        let check = |fields: &str| {
            let file = syn::parse_file(&format!("struct {name} {{ {fields} }}")).unwrap();
            open_fields(path, &file).len()
        };
        assert_eq!(check("a: u8, pub(super) b: u8, pub(self) c: u8"), 0);
        assert_eq!(
            check("pub a: u8, pub(crate) b: u8, pub(in crate::x) c: u8"),
            3
        );
        let elsewhere = syn::parse_file("struct Other;").unwrap();
        assert_eq!(
            open_fields(path, &elsewhere).len(),
            1,
            "the owner is missing"
        );
        assert!(open_fields("crates/proto/src/lib.rs", &elsewhere).is_empty());
    }
}
