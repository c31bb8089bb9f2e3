//! What is kept, for how long, and for whom.

use super::*;
use std::os::unix::fs::PermissionsExt;

fn tickets() -> (tempfile::TempDir, Tickets) {
    let directory = tempfile::tempdir().unwrap();
    let tickets = Tickets {
        directory: directory.path().join("state"),
        quiet: false,
    };
    (directory, tickets)
}

#[test]
fn a_damaged_file_is_ignored_and_replaced() {
    let (_guard, tickets) = tickets();
    fs::create_dir_all(&tickets.directory).unwrap();
    fs::write(tickets.directory.join(FILE), "{ half").unwrap();
    assert!(tickets.take("h:1", |_| true).is_none());
    let left = fs::read_to_string(tickets.directory.join(FILE)).unwrap();
    assert_eq!(left, "[]");
}

#[test]
fn entries_that_are_no_states_are_dropped() {
    let (_guard, tickets) = tickets();
    fs::create_dir_all(&tickets.directory).unwrap();
    let entry = r#"[{"server":"h:1","taken_ms":0,"state":"AAAA"}]"#;
    fs::write(tickets.directory.join(FILE), entry).unwrap();
    assert!(tickets.take("h:1", |_| true).is_none());
}

#[test]
fn nobody_else_can_read_what_is_kept() {
    let (_guard, tickets) = tickets();
    tickets.try_change(|_, _| {}).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&tickets.directory.join(FILE)), 0o600);
    assert_eq!(mode(&tickets.directory), 0o700);
}

#[test]
fn where_no_file_is_none_is_made_to_look() {
    let (_guard, tickets) = tickets();
    assert!(tickets.take("h:1", |_| true).is_none());
    assert!(!tickets.directory.exists());
}
