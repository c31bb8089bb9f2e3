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

fn entry(server: &str, taken_ms: u64) -> Entry {
    Entry {
        server: server.into(),
        taken_ms,
        state: String::new(),
    }
}

#[test]
fn the_oldest_tickets_of_a_server_go_and_those_of_others_stay() {
    let many = PER_SERVER as u64 + 2;
    let mut entries: Vec<Entry> = (0..many).map(|at| entry("h:1", at)).collect();
    entries.insert(0, entry("other:1", 9));
    keep_newest(&mut entries, "h:1");
    let times: Vec<u64> = entries.iter().map(|entry| entry.taken_ms).collect();
    let newest: Vec<u64> = std::iter::once(9).chain(2..many).collect();
    assert_eq!(times, newest);
}

#[test]
fn of_many_servers_the_oldest_tickets_go() {
    let many = IN_ALL as u64 + 3;
    let mut entries: Vec<Entry> = (0..many).map(|at| entry(&format!("h:{at}"), at)).collect();
    keep_newest(&mut entries, "h:0");
    assert_eq!(entries.len(), IN_ALL);
    assert_eq!(entries[0].taken_ms, 3);
}

#[test]
fn a_ticket_from_the_future_has_no_age() {
    assert_eq!(entry("h:1", 5).age(4), None);
    assert_eq!(entry("h:1", 5).age(7), Some(Duration::from_millis(2)));
}
