//! Files and interfaces that a configuration names: looked at by the code that the end itself uses
//! when it starts, so that `tunnel check` knows what `tunnel up` will say. Nothing is written.

use super::source::Table;
use crate::args::tunnel::{Join, Serve};
use crate::commands::tunnel::{capture, fleet};
use crate::failure::{Failure, Outcome};
use crate::join::FarEnd;
use crate::trust::{ServerTrust, read_certificates, read_key, read_roots};
use anabranch_gateway::entry::capture::{Source, exists};
use anabranch_gateway::entry::ip::Tun;
use anabranch_gateway::exit::ip::Pools;
use anabranch_net::interfaces::Interface;
use std::fs;
use std::path::Path;

const CHAIN: &str = "expected certificates in PEM, this end's own first";

/// What a near end reads when it starts.
pub(super) fn of_near(join: &Join, table: &Table<'_>) {
    let look = Look { table };
    if let Some(name) = &join.tun {
        look.at("tun", Tun::check_name(name).map_err(Failure::usage));
    }
    look.at_directories(join.place.state.as_deref(), join.qlog.as_deref());
    let Some(FarEnd::Proxy(url)) = look.at("url-file", join.far_end()) else {
        return;
    };
    let asked = join.foreign.proxy(&url);
    look.at(
        "credential",
        asked.map_err(|failure| failure.hint_if_none("expected USER:PASSWORD or a token in it")),
    );
    let trust = join.foreign.trust();
    let mut is_sound = true;
    if url.pin.is_none() {
        let roots = read_roots(trust.ca.as_deref());
        let hint = "expected certificates of authorities in PEM";
        let roots = roots.map_err(|failure| failure.hint_if_none(hint));
        is_sound = look.at("ca", roots).is_some();
    }
    if look.at_pair(trust.cert.as_deref(), trust.key.as_deref()) && is_sound {
        look.at("cert", trust.config(&url));
    }
}

/// What a far end reads when it starts. Its own key, which `up` makes, is left alone.
pub(super) fn of_far(serve: &Serve, table: &Table<'_>) {
    let look = Look { table };
    look.at("ip", Pools::new(&serve.ip).map_err(Failure::usage));
    look.at("lb-key", fleet::connection_ids(&serve.fleet));
    look.at_directories(serve.place.state.as_deref(), serve.qlog.as_deref());
    let trust = ServerTrust {
        cert: serve.cert.clone(),
        key: serve.key.clone(),
        ..ServerTrust::default()
    };
    if trust.cert.is_some() && look.at_pair(trust.cert.as_deref(), trust.key.as_deref()) {
        look.at("cert", trust.config(&["localhost"]));
    }
}

/// Whether hosts behind interfaces of this machine are meant.
pub(super) fn interfaces(sources: &[Source], interfaces: &[Interface], table: &Table<'_>) {
    if sources.is_empty() {
        return;
    }
    let items = table.item("capture").map(|item| item.list());
    for item in items.into_iter().flatten() {
        let named = item.as_text().and_then(|text| text.parse().ok());
        let found = named.map_or(Ok(()), |source: Source| exists(&source, interfaces));
        if let Err(error) = found {
            item.wrong(words(&capture::failure(&error)));
        }
    }
}

/// Looks at what keys of a section name.
struct Look<'a> {
    table: &'a Table<'a>,
}

impl Look<'_> {
    /// Notes what went wrong with a key, and returns what went well.
    fn at<T>(&self, key: &str, outcome: Outcome<T>) -> Option<T> {
        let wrong = |failure: Failure| {
            let words = words(&failure);
            let option = format!("--{key}: ");
            let words = words.strip_prefix(&option).unwrap_or(&words);
            match self.table.item(key) {
                Some(item) => item.wrong(words),
                None => self.table.wrong(words),
            }
        };
        outcome.map_err(wrong).ok()
    }

    /// A certificate and its key, if there are both; returns whether nothing is wrong with them.
    fn at_pair(&self, cert: Option<&Path>, key: Option<&Path>) -> bool {
        let (Some(cert), Some(key)) = (cert, key) else {
            return true;
        };
        let chain = read_certificates(cert).map_err(|failure| failure.hint_if_none(CHAIN));
        let chain = self.at("cert", chain);
        self.at("key", read_key(key)).is_some() && chain.is_some()
    }

    /// Directories, which are made by who starts if they are not there.
    fn at_directories(&self, state: Option<&Path>, qlog: Option<&Path>) {
        for (key, path) in [("state", state), ("qlog", qlog)] {
            let mut above = path.into_iter().flat_map(Path::ancestors);
            let found = above.find_map(|path| Some((path, fs::metadata(path).ok()?)));
            if let Some((path, _)) = found.filter(|(_, about)| !about.is_dir()) {
                let what = format!("expected a directory: {} is none", path.display());
                self.at::<()>(key, Err(Failure::usage(what).hint("name another place")));
            }
        }
    }
}

/// What is wrong and what to do, in a line.
fn words(failure: &Failure) -> String {
    match failure.advice() {
        Some(advice) => format!("{}; {advice}", failure.what()),
        None => failure.what().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Folder, certificate};
    use anabranch_net::interfaces;

    const PROXY: &str = "[near]\nurl = \"https://proxy.example/\"\n";

    /// What is wrong with a configuration, in an order that does not matter.
    #[track_caller]
    fn assert_faults(folder: &Folder, text: &str, wanted: &[&str]) {
        let told = folder.read(text).map(|_| ()).unwrap_err();
        let has = |part: &str| told.iter().any(|line| line.contains(part));
        assert!(wanted.iter().all(|part| has(part)), "{told:#?}");
        assert_eq!(told.len(), wanted.len(), "{told:#?}");
    }

    #[test]
    fn files_that_are_not_there_are_told_with_the_line_that_names_them_and_what_they_have_in_them()
    {
        let folder = Folder::new();
        let text = "ca = \"a.pem\"\ncredential = \"b\"\ncert = \"c.pem\"\nkey = \"d.pem\"\n";
        let wanted = [
            "3:6: near.ca: cannot use ",
            "4:14: near.credential: ",
            "5:8: near.cert: cannot use ",
            "6:7: near.key: cannot use ",
        ];
        assert_faults(&folder, &format!("{PROXY}{text}"), &wanted);
        let told = folder
            .read(&format!("{PROXY}{text}"))
            .map(|_| ())
            .unwrap_err();
        for part in [
            "expected certificates of authorities in PEM",
            "expected USER:PASSWORD or a token",
            "this end's own first",
            "openssl pkcs8",
        ] {
            assert!(told.iter().any(|line| line.contains(part)), "{told:#?}");
        }
        let far = "[far]\nserver-id = \"01\"\nlb-key = \"lb.key\"\ncert = \"c\"\nkey = \"d\"\n";
        let wanted = ["3:10: far.lb-key: ", "4:8: far.cert: ", "5:7: far.key: "];
        assert_faults(&folder, far, &wanted);
    }

    #[test]
    fn files_with_something_else_in_them_are_told() {
        let folder = Folder::new();
        for name in ["a.pem", "c.pem", "d.pem", "lb.key", "state"] {
            folder.put(name, "nothing of use\n");
        }
        let text = "ca = \"a.pem\"\ncredential = \"a.pem\"\ncert = \"c.pem\"\nkey = \"d.pem\"\n";
        let wanted = [
            "near.ca: cannot use ",
            "near.credential: ",
            "near.cert: cannot use ",
            "near.key: cannot use ",
        ];
        assert_faults(&folder, &format!("{PROXY}{text}"), &wanted);
        let far = "[far]\nserver-id = \"01\"\nlb-key = \"lb.key\"\n";
        assert_faults(&folder, far, &["expected a key of 32 hexadecimal digits; "]);
        assert_faults(
            &folder,
            "[far]\nstate = \"state/keys\"\n",
            &["2:9: far.state: expected a directory: "],
        );
    }

    #[test]
    fn a_certificate_and_the_key_of_another_one_are_told_apart_from_a_pair() {
        let folder = Folder::new();
        let (chain, key) = certificate();
        folder.put("c.pem", &chain);
        folder.put("d.pem", &key);
        folder.put("other.pem", &certificate().1);
        for section in [format!("{PROXY}ca = \"c.pem\"\n"), "[far]\n".to_owned()] {
            let text = |key: &str| format!("{section}cert = \"c.pem\"\nkey = \"{key}\"\n");
            let read = folder.read(&text("d.pem"));
            assert!(read.is_ok(), "{read:?}");
            assert_faults(&folder, &text("other.pem"), &["cert: "]);
        }
    }

    #[test]
    fn names_and_pools_that_are_none_are_told() {
        let folder = Folder::new();
        let name = "[near]\nurl = URL\ntun = \"far too long a name\"\n";
        assert_faults(
            &folder,
            name,
            &["3:7: near.tun: no interface can be called"],
        );
        assert_faults(&folder, "[far]\nip = \"10.9.0.0/30\"\n", &["2:6: far.ip: "]);
    }

    #[tokio::test]
    async fn interfaces_that_hosts_are_behind_have_to_be_there_if_that_matters() {
        let folder = Folder::new();
        let here = interfaces::list().await.unwrap();
        let text =
            |name: &str| format!("[near]\nurl = URL\ncapture = [\"host\",\n\"lan={name}\"]\n");
        assert!(folder.read(&text("nonexist0")).is_ok());
        assert!(folder.read_on(&text("lo"), Some(&here)).is_ok());
        let told = folder.read_on(&text("nonexist0"), Some(&here));
        let told = told.map(|_| ()).unwrap_err();
        let [line] = &*told else { panic!("{told:#?}") };
        assert!(line.starts_with("4:1: near.capture: "), "{line}");
        assert!(line.contains("`anabranch doctor` lists"), "{line}");
    }
}
