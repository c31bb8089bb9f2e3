//! What a configuration says, and what is said of one that is wrong.

use super::*;
use anabranch_proto::wire::frame::PathStatus;
use anabranch_tunnel::class::Transport;
use anabranch_tunnel::links::{Cap, Role, Rule, Then};
use std::time::Duration;

const URL_TEXT: &str =
    "anabranch://00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff@h";

/// A directory with a configuration, and what that names.
pub(super) struct Folder(tempfile::TempDir);

impl Folder {
    pub(super) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Puts a file beside the configuration.
    pub(super) fn put(&self, name: &str, text: &str) {
        fs::write(self.0.path().join(name), text).unwrap();
    }

    pub(super) fn read(&self, text: &str) -> Result<Configuration, Vec<String>> {
        self.read_on(text, None)
    }

    pub(super) fn read_on(
        &self,
        text: &str,
        interfaces: Option<&[Interface]>,
    ) -> Result<Configuration, Vec<String>> {
        self.put("t.toml", &text.replace("URL", &format!("\"{URL_TEXT}\"")));
        let file = self.0.path().join("t.toml");
        let before = format!("{}:", file.display());
        Configuration::read_on(&file, &Names::default(), interfaces).map_err(|faults| {
            let lines = faults.lines().into_iter();
            lines.map(|line| line.replace(&before, "")).collect()
        })
    }

    fn near(&self, text: &str) -> Join {
        match self.read(text).unwrap().settings {
            Settings::Near(join) => *join,
            Settings::Far(_) => panic!("a far end"),
        }
    }
}

/// A certificate and its key, in PEM.
pub(super) fn certificate() -> (String, String) {
    let made = rcgen::generate_simple_self_signed(vec!["proxy.example".to_owned()]).unwrap();
    (made.cert.pem(), made.signing_key.serialize_pem())
}

fn faults(text: &str) -> Vec<String> {
    Folder::new().read(text).unwrap_err()
}

/// The only fault has these parts.
#[track_caller]
fn assert_fault(text: &str, parts: &[&str]) {
    let faults = faults(text);
    assert_eq!(faults.len(), 1, "{faults:?}");
    for part in parts {
        assert!(
            faults[0].contains(part),
            "`{part}` is not in: {}",
            faults[0]
        );
    }
}

fn near(text: &str) -> Join {
    Folder::new().near(text)
}

#[test]
fn what_new_writes_is_right_once_it_has_its_url() {
    let folder = Folder::new();
    assert!(matches!(
        folder
            .read(&template(false, Some(URL_TEXT)))
            .unwrap()
            .settings,
        Settings::Near(_)
    ));
    assert!(matches!(
        folder.read(&template(true, None)).unwrap().settings,
        Settings::Far(_)
    ));
    assert_fault(&template(false, None), &["near.url: expected", "12:7"]);
}

#[test]
fn a_link_has_a_role_and_what_it_may_carry_in_a_month() {
    let links = |path: &str| {
        let text = format!("[near]\nurl = URL\n[[path]]\ninterface = \"wwan0\"\n{path}\n");
        let wanted = near(&text).links();
        (wanted[0].rule, wanted[0].spec.to_string(), wanted.len())
    };
    let usual = Rule::default();
    assert_eq!(links(""), (usual, "wwan0,paths=1".into(), 1));
    let above = Role::Secondary { above: 2_500_000 };
    let (rule, spec, _) = links("role = \"secondary\"\nspill-above = \"2.5 Mbit/s\"");
    assert_eq!((rule.role, &*spec), (above, "wwan0,backup,paths=1"));
    let (rule, spec, count) = links("role = \"never\"");
    // Whoever only leaves interfaces out wants all others.
    assert_eq!((rule.role, &*spec, count), (Role::Never, "wwan0,never", 2));
    let (rule, ..) = links("cap = \"20GB\"\ncap-day = 15\ncap-then = \"backup\"");
    let (bytes, day, then) = (20_000_000_000, 15, Then::Backup);
    assert_eq!(rule.cap, Some(Cap { bytes, day, then }));
}

#[test]
fn rules_of_links_that_cannot_be_are_told() {
    let path = "[near]\nurl = URL\n[[path]]\ninterface = ";
    for (rest, parts) in [
        (
            "\"a\"\nrole = \"secondary\"",
            &["`spill-above` is missing"][..],
        ),
        (
            "\"a\"\nspill-above = \"1Mbit/s\"",
            &["role = \"secondary\""],
        ),
        (
            "\"a\"\nrole = \"secondary\"\nspill-above = \"20M\"",
            &["`20M`", "20Mbit/s"],
        ),
        ("\"a\"\nrole = \"nevr\"", &["did you mean `never`?"]),
        ("\"a\"\ncap-day = 15", &["there is no `cap` here"]),
        ("\"a\"\ncap = \"20GB\"\ncap-day = 31", &["from 1 to 28"]),
        ("\"a\"\ncap = \"lots\"", &["`lots`"]),
        ("\"wwan*\"\ncap = \"20GB\"", &["for one link"]),
        ("\"a\"\nkeep-alive = \"2min\"", &["5s", "25s"]),
        ("\"a\"\nkeep-alive = \"0s\"", &["5s", "25s"]),
        ("\"a\"\nkeep-alive = 20", &["keep-alive"]),
    ] {
        assert_fault(&format!("{path}{rest}\n"), parts);
    }
}

#[test]
fn what_new_shows_as_an_example_is_right() {
    for (is_far, url) in [(false, Some(URL_TEXT)), (true, None)] {
        let text = template(is_far, url);
        let shown = text.lines().map(|line| match line.strip_prefix('#') {
            // One way to the URL is enough.
            Some(rest) if rest.starts_with("url-file") => line,
            // That user is on no machine for sure.
            Some(rest) if rest.starts_with("users") => "users = [\"root\"]",
            // TCP has no deadlines.
            Some(rest) if rest.starts_with("protocol") => "protocol = \"udp\"",
            Some(rest) if rest.starts_with(|c: char| c.is_ascii_lowercase() || c == '[') => rest,
            _ => line,
        });
        let shown: Vec<&str> = shown.collect();
        let folder = Folder::new();
        folder.put("lb.key", "00112233445566778899aabbccddeeff\n");
        let read = folder.read(&shown.join("\n"));
        assert!(read.is_ok(), "{read:?}");
    }
}

#[test]
fn keys_are_the_options_of_the_command_line() {
    let join = near(
        "[near]\nurl = URL\nlisten = [\":1081\", \"127.0.0.1\"]\ncapture = \"host\"\n\
         kill-switch = true\nscheduler = \"ecf\"\nconnect-timeout = 2.5\nstate = \"keys\"\n",
    );
    assert_eq!(join.addresses().len(), 2);
    assert!(join.kill_switch && join.capture.len() == 1);
    assert_eq!(join.paths.connect_timeout, Duration::from_millis(2500));
    assert!(join.place.state.unwrap().ends_with("keys"));
    assert_eq!(join.paths.specs().len(), 1, "every uplink");
    let text =
        "[far]\nlisten = \":4435\"\nallow = [\"10.0.0.0/8\", \"127.0.0.1,80\"]\nmax-flows = 9\n";
    let read = Folder::new().read(text).unwrap();
    let Settings::Far(serve) = read.settings else {
        panic!("a near end")
    };
    assert_eq!(
        (serve.listen.len(), serve.allow.len(), serve.max_flows),
        (1, 2, 9)
    );
}

#[test]
fn a_proxy_of_others_has_its_keys_too() {
    let folder = Folder::new();
    folder.put("proxy.secret", "user:password\n");
    folder.put("ca.pem", &certificate().0);
    let join = folder.near(
        "[near]\nurl = \"https://proxy.example:4433/\"\ncredential = \"proxy.secret\"\n\
         ca = \"ca.pem\"\nudp-template = \"/u?h={target_host}&p={target_port}\"\n",
    );
    let far_end = join.far_end().unwrap();
    assert_eq!(far_end.to_string(), "https://proxy.example:4433/");
    assert_eq!(join.foreign.given(), Some("--credential"));
}

#[test]
fn paths_have_a_key_for_each_option() {
    let join = near(
        "[near]\nurl = URL\n[[path]]\ninterface = \"eth0\"\nweight = 3\npaths = 2\n\
         [[path]]\ninterface = \"wlan*\"\nrole = \"backup\"\ncost = 7\npriority = -1\n\
         keep-alive = \"20s\"\n",
    );
    let specs = join.paths.specs();
    assert_eq!(specs[0].to_string(), "eth0,weight=3,paths=2");
    assert_eq!(
        specs[1].to_string(),
        "wlan*,backup,priority=-1,cost=7,keep-alive=20s,paths=1"
    );
    assert_eq!(specs[1].options.status, PathStatus::Backup);
}

#[test]
fn classes_have_conditions_and_a_treatment() {
    let join = near(
        "[near]\nurl = URL\n[[class]]\nname = \"work\"\nprotocol = \"udp\"\n\
         ports = [443, \"8000-8010\"]\ndomains = [\"*.Example.org\"]\nto = \"203.0.113.0/24\"\n\
         from = [\"192.168.1.20\"]\ndscp = [\"ef\", 34]\nusers = [1000, \"root\"]\npriority = -2\n\
         light = true\ndeadline = \"100ms\"\nwait = \"20 ms\"\ncopies = true\n\
         [[class]]\nname = \"bulk\"\nwait = \"0s\"\n",
    );
    let [work, bulk] = &*join.classes else {
        panic!("{:?}", join.classes)
    };
    let one = &work.matches[0];
    assert_eq!(one.transport, Some(Transport::Udp));
    assert_eq!(one.ports, [443..=443, 8000..=8010]);
    assert_eq!(one.domains, ["example.org"]);
    assert_eq!(
        (one.dscp.as_slice(), one.owners.as_slice()),
        (&[46, 34][..], &[1000, 0][..])
    );
    let treatment = work.treatment;
    assert_eq!((treatment.priority, treatment.light), (-2, true));
    assert_eq!(treatment.deadline, Some(Duration::from_millis(100)));
    assert!(bulk.matches.is_empty() && bulk.treatment.wait == Some(Duration::ZERO));
}

#[test]
fn the_url_may_be_in_a_file_beside_it() {
    let folder = Folder::new();
    let text = "[near]\nurl-file = \"join.url\"\n";
    let missing = folder.read(text).unwrap_err();
    assert!(
        missing[0].starts_with("2:12: near.url-file: "),
        "{missing:?}"
    );
    fs::write(folder.0.path().join("join.url"), format!("{URL_TEXT}\n")).unwrap();
    assert!(folder.read(text).is_ok());
}

#[test]
fn all_that_is_wrong_is_told_at_once_with_its_place_and_what_was_meant() {
    let told = faults(
        "[near]\nurl = URL\nlisten = 7\nlistn = \"a\"\ncapture = \"lan\"\nkill-switch = 1\n\
         scheduler = \"min-rt\"\nname = [\"a\"]\n[[path]]\nrole = \"backup\"\n\
         [[path]]\ninterface = \"a,backup\"\nrole = \"bakup\"\nweight = 0\n\
         [[class]]\nnam = \"x\"\nports = 70000\n[[clas]]\n",
    );
    let expected = [
        "3:10: near.listen: `7`: expected an address",
        "4:1: near.listn: there is no such key here; did you mean `listen`?",
        "5:11: near.capture: `lan`: expected `host` or `lan=INTERFACE`",
        "6:15: near.kill-switch: expected true or false, found 1",
        "7:13: near.scheduler: ",
        "8:8: near.name: expected one value, found a list",
        "path.1: `interface` is missing",
        "12:13: path.2.interface: expected an interface alone",
        "13:8: path.2.role: expected one of always, secondary, backup, never, found \"bakup\"; did",
        "14:10: path.2.weight: expected a whole number from 1",
        "class.1: `name` is missing",
        "16:1: class.1.nam: there is no such key here; did you mean `name`?",
        "17:9: class.1.ports: `70000`: expected a port or a range",
        "clas: there is no such section here; did you mean `class`?",
    ];
    for part in expected {
        assert!(
            told.iter().any(|line| line.contains(part)),
            "{part}: {told:#?}"
        );
    }
    assert_eq!(told.len(), expected.len(), "{told:#?}");
}

#[test]
fn each_kind_of_fault_has_its_words() {
    let path = "[[path]]\ninterface = \"a\"\n";
    for (text, part) in [
        ("", "expected a section [near] or [far]"),
        ("[near]\nurl = URL\n[far]\n", "one file is for one end"),
        ("near = 7\n", "1:8: near: expected a table, found 7"),
        (
            "[near]\n",
            "`url` is missing: expected what `anabranch tunnel serve`",
        ),
        ("[near]\nurl = \"h\"\n", "2:7: near.url: `h`: "),
        (
            "[near]\nurl = \"anabranch://x@h/join/secret\"\n",
            "`anabranch://x@h/join/...`: ",
        ),
        (
            "[near]\nurl = \"https://user:secret@h/\"\n",
            "`https://...@h/`: the URL has a user or password",
        ),
        (
            "[near]\nurl = URL\nudp-template = \"/u/{target_host}/{target_port}\"\n",
            "`--udp-template` is for proxies of others",
        ),
        (
            "[near]\nurl = URL\nkill-switch = true\n",
            "`capture` is missing",
        ),
        ("[near]\nurl = URL\nurl-file = \"x\"\n", "exclude"),
        ("[near]\nurl = URL\npath = \"eth0\"\n", "given by [[path]]"),
        ("[far]\n[[class]]\nname = \"x\"\n", "this is for near ends"),
        ("[far]\ncert = \"x\"\n", "`key` is missing"),
        ("[far]\nmax-flows = 0\n", "2:13: far.max-flows: `0`: "),
        (
            &format!("[near]\nurl = URL\n{path}{path}"),
            "there are two of a",
        ),
    ] {
        assert_fault(text, &[part]);
    }
    let broken = faults("[near]\nurl = \n = 3\n");
    assert!(
        broken.len() >= 2 && broken[0].starts_with("2:"),
        "{broken:?}"
    );
    let nowhere = Configuration::read(Path::new("no/such.toml"), &Names::default());
    let lines = nowhere.unwrap_err().lines();
    assert!(lines[0].starts_with("no/such.toml: "), "{lines:?}");
}

#[test]
fn each_fault_of_a_class_has_its_words() {
    for (keys, part) in [
        (
            "",
            "class.x: no flow is named: expected some of protocol, ports",
        ),
        ("ports = []", "at least one value"),
        ("ports = 1\ndscp = \"eff\"", "did you mean `ef`?"),
        ("protocol = \"tcp\"\ndscp = 46", "code point of TCP"),
        (
            "protocol = \"tcp\"\nwait = \"1ms\"",
            "this is for datagrams",
        ),
        (
            "ports = 1\ndeadline = 50",
            "a time with its unit, as \"50ms\"",
        ),
        ("ports = 1\nwait = \"2s\"", "from 0s to 500ms, found \"2s\""),
        ("ports = 1\npriority = 9", "from -7 to 7, found 9"),
        ("ports = 1\nsteering = \"redundent\"", "redundant"),
        ("users = \"no-such-user-here\"", "a user of this machine"),
        ("to = \"192.0.2.7/24\"", "expected 192.0.2.0/24"),
        (
            "ports = 1\n[[class]]\nname = \"x\"\nports = 2",
            "of this name already",
        ),
    ] {
        let text = format!("[near]\nurl = URL\n[[class]]\nname = \"x\"\n{keys}\n");
        assert_fault(&text, &[part]);
    }
}

#[test]
fn what_differs_but_for_paths_and_classes_is_named() {
    let folder = Folder::new();
    let read = |text: &str| folder.read(&format!("[near]\nurl = URL\n{text}")).unwrap();
    let before = read("listen = \":1081\"\nname = \"a\"\n");
    let path = "[[path]]\ninterface = \"eth0\"\n[[class]]\nname = \"bulk\"\n";
    let same = read(&format!("listen = [\":1081\"]\nname = \"a\"\n{path}"));
    assert_eq!(before.differences(&same), [""; 0]);
    let other = read("listen = \":1082\"\nkill-switch = false\n");
    let keys = before.differences(&other);
    assert_eq!(keys, ["near.listen", "near.name"]);
    let far = folder.read("[far]\n").unwrap();
    assert_eq!(before.differences(&far), ["near, far"]);
}
