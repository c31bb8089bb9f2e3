//! The product's tunnel, with hosts behind its nodes that know nothing of it.

use super::*;

const TUNNEL: &str = "[transport]\nkind = \"tunnel\"\n";

fn flow(text: &str, extra: &str) -> Outcome {
    run(&(TWO.replace("kind = \"bulk\"\nbytes = \"4MB\"", text) + extra))
}

#[test]
fn a_connection_of_a_host_gets_the_sum_of_the_paths() {
    for way in ["forward", "backward"] {
        let text = format!("kind = \"bulk\"\nbytes = \"4MB\"\ndirection = \"{way}\"");
        let outcome = flow(&text, TUNNEL);
        assert_eq!(outcome.status, Status::Ok, "{way}: {}", outcome.reason);
        assert_eq!(outcome.bytes, 4_000_000);
        let goodput = outcome.goodput_bps.unwrap();
        assert!((11e6..15e6).contains(&goodput), "{way}: {goodput}");
        for path in &outcome.paths {
            assert!(path.share.unwrap() > 0.2, "{way}: {path:?}");
        }
        // What a host sees of the paths is the time they take.
        assert!(outcome.first_byte_s.unwrap() > 0.01, "{way}");
    }
}

#[test]
fn scheduler_and_congestion_control_are_those_of_the_nodes() {
    let with = |settings: &str| {
        let text = format!("{TUNNEL}{settings}[repeat]\nruns = 1\n");
        let outcome = run(&(TWO.to_owned() + &text));
        assert_eq!(outcome.status, Status::Ok, "{settings}: {}", outcome.reason);
        let sent: u64 = outcome.paths.iter().map(|path| path.sent_bytes).sum();
        (sent, outcome.trace_hash)
    };
    let (once, trace) = with("");
    let (twice, _) = with("scheduler = \"redundant\"\n");
    assert!(once < 4_800_000 && twice > 6_000_000, "{once} and {twice}");
    assert_eq!(with("").1, trace, "the same packets again");
    assert_ne!(with("congestion = \"bbr\"\n").1, trace);
}

#[test]
fn files_requests_and_several_hosts_pass() {
    let files = flow("kind = \"files\"\ncount = 5\nsize = \"20kB\"", TUNNEL);
    assert_eq!((files.status, files.units), (Status::Ok, 5));
    let requests = |way: &str| {
        let text = "kind = \"requests\"\ncount = 4\nsize = \"200B\"\nanswer = \"50kB\"";
        let text = format!("{text}\nevery = \"10ms\"\ndirection = \"{way}\"");
        flow(&text, TUNNEL)
    };
    let asked = requests("backward");
    assert_eq!((asked.status, asked.bytes), (Status::Ok, 200_000));
    let refused = requests("forward");
    assert_eq!(refused.status, Status::Unsupported);
    assert!(
        refused.reason.contains("at the client"),
        "{}",
        refused.reason
    );
    let file = "kind = \"bulk\"\nbytes = \"1MB\"\n";
    let two = flow(&format!("{file}[[flow]]\n{file}start = \"1s\""), TUNNEL);
    assert_eq!((two.status, two.bytes), (Status::Ok, 2_000_000));
}

#[test]
fn a_cut_path_is_left() {
    let cut = "[[event]]\nat = \"1s\"\npath = \"a\"\ndown = \"both\"\n";
    let outcome = run(&format!("{TWO}{cut}{TUNNEL}"));
    assert_eq!(outcome.status, Status::Ok, "{}", outcome.reason);
    assert_eq!(outcome.bytes, 4_000_000);
}

#[test]
fn a_connection_is_steered_as_its_class_is_in_both_directions() {
    for way in ["forward", "backward"] {
        let sent = |class: &str| {
            let text = format!("kind = \"bulk\"\nbytes = \"2MB\"\ndirection = \"{way}\"{class}");
            let outcome = flow(&text, TUNNEL);
            assert_eq!((outcome.status, outcome.bytes), (Status::Ok, 2_000_000));
            outcome.paths.iter().map(|path| path.sent_bytes).collect()
        };
        let plain: Vec<u64> = sent("");
        let fastest: Vec<u64> = sent("\nclass = { steering = \"active-standby\" }");
        let twice: Vec<u64> = sent("\nclass = { steering = \"redundant\" }");
        assert!(plain[1] > 400_000, "{way}: {plain:?}");
        assert!(fastest[1] < 200_000, "{way}: {fastest:?}");
        let total = |sent: &[u64]| sent.iter().sum::<u64>();
        assert!(
            total(&twice) * 4 > total(&plain) * 5,
            "{way}: {plain:?}, {twice:?}"
        );
    }
}

#[test]
fn a_class_of_higher_priority_goes_before_others_while_it_carries_little_if_it_is_light() {
    let with = |class: &str| {
        let (bulk, file) = ("kind = \"bulk\"\nbytes = \"12MB\"", "kind = \"files\"");
        let file = format!("[[flow]]\n{file}\ncount = 1\nsize = \"2MB\"\nstart = \"1s\"\n{class}");
        let outcome = flow(&format!("{bulk}\n{file}"), TUNNEL);
        assert_eq!(outcome.status, Status::Ok, "{}", outcome.reason);
        outcome.unit_p50_s.expect("a file")
    };
    let plain = with("");
    let first = with("class = { priority = 3 }\n");
    let light = with("class = { like = \"shell\" }\n");
    let last = with("class = { priority = -3 }\n");
    assert!(first < 0.75 * plain, "{first} and {plain}");
    assert!(last > 1.2 * plain, "{last} and {plain}");
    assert!(
        first < light && light <= 1.05 * plain,
        "{light} and {plain}"
    );
}
