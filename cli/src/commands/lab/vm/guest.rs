//! What goes into a guest: this program, the tools it calls, modules, scenarios, earlier results.

use super::failure;
use crate::failure::{Failure, Outcome};
use anabranch_lab::contender::Program;
use anabranch_lab::plan::Plan;
use anabranch_vm::{Image, Kernel};
use std::collections::BTreeMap;
use std::path::Path;

pub(super) use anabranch_vm::RESULTS;

/// The folder for results inside the guest.
pub(super) const OUT: &str = "/results/out";

/// The file for the command's standard output, within the results.
pub(super) const STDOUT: &str = "stdout";

/// The folder inside the guest for files of this machine. They keep their full paths below it, so
/// that files that name each other find each other.
pub(super) const FILES: &str = "/host";

/// Modules that the lab needs.
const MODULES: [&str; 11] = [
    "tun",
    "veth",
    "bonding",
    "ip_gre",
    "sch_netem",
    "sch_tbf",
    "sch_ingress",
    "cls_bpf",
    "act_mirred",
    "inet_diag",
    "tcp_diag",
];

/// Modules that some scenarios need.
const WANTED: [&str; 12] = [
    "tcp_bbr",
    "sch_codel",
    "sch_fq_codel",
    "sch_fq",
    "mptcp_diag",
    "nf_tables",
    "nf_conntrack",
    "nf_nat",
    "nft_chain_nat",
    "nft_masq",
    "nfnetlink",
    "nf_conntrack_netlink",
];

/// Tools that some scenarios need.
const TOOLS: [&str; 2] = ["nft", "conntrack"];

/// Where `tc` has netem's delay distributions, on various systems.
const DISTRIBUTIONS: [&str; 4] = [
    "/usr/lib/x86_64-linux-gnu/tc",
    "/usr/lib/tc",
    "/usr/lib64/tc",
    "/lib/tc",
];

/// A guest in preparation.
#[derive(Debug)]
pub(super) struct Guest {
    image: Image,
    /// The words that name files of this machine, and the paths of these files inside.
    pub(super) files: BTreeMap<String, String>,
}

impl Guest {
    /// A guest with this program and what it needs to build networks.
    pub(super) fn new(kernel: &Kernel) -> Outcome<Self> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::io("cannot find this program's file", &error))?;
        let wanted: Vec<&str> = WANTED.into_iter().filter(|name| kernel.has(name)).collect();
        // The command is set last.
        let none: [&str; 0] = [];
        let mut image = Image::new(&none)
            .modules(kernel, &MODULES)
            .and_then(|image| image.modules(kernel, &wanted))
            .and_then(|image| image.program_at("/bin/anabranch", &program.to_string_lossy()))
            .and_then(|image| image.program("ip"))
            .and_then(|image| image.program("tc"))
            .map_err(failure)?;
        for tool in TOOLS {
            if let Ok(with) = image.clone().program(tool) {
                image = with;
            }
        }
        for folder in DISTRIBUTIONS {
            image = image.folder(folder, Path::new(folder)).map_err(failure)?;
        }
        Ok(Self {
            image,
            files: BTreeMap::new(),
        })
    }

    /// Adds a scenario file, if a target is one.
    pub(super) fn add_scenario(&mut self, word: &str) -> Outcome {
        if Path::new(word).is_file() {
            let inside = self.add_file(Path::new(word))?;
            self.files.insert(word.to_owned(), inside);
        }
        Ok(())
    }

    /// Adds the contender files of a plan and the programs they name.
    pub(super) fn add_contenders(&mut self, plan: &Plan) -> Outcome {
        for run in &plan.runs {
            let Some(contender) = &run.scenario.transport.command else {
                continue;
            };
            self.add_file(&contender.file)?;
            for program in [&contender.server, &contender.client] {
                self.add_program(program)?;
            }
        }
        Ok(())
    }

    fn add_program(&mut self, program: &Program) -> Outcome {
        let Some(word) = program.command.first() else {
            return Ok(());
        };
        let name = word.filled(&|_| String::new());
        // The guest has its own shell.
        if name == "sh" {
            return Ok(());
        }
        let guest = if name.contains('/') {
            inside(Path::new(&name))?
        } else {
            format!("/bin/{name}")
        };
        let with = self.image.clone().program_at(&guest, &name);
        self.image = with.map_err(failure)?;
        Ok(())
    }

    /// Adds the results that an earlier start of the same command brought back.
    pub(super) fn add_results(&mut self, inside: &str, folder: &Path) -> Outcome {
        let parts = folder.join("parts");
        let with = self.image.clone();
        let mut with = with
            .folder(&format!("{inside}/parts"), &parts)
            .map_err(failure)?;
        for name in ["campaign.toml", "notes.jsonl"] {
            let file = folder.join(name);
            if file.is_file() {
                with = with.file(&format!("{inside}/{name}"), &file);
            }
        }
        self.image = with;
        Ok(())
    }

    fn add_file(&mut self, file: &Path) -> Outcome<String> {
        let guest = inside(file)?;
        let whole = file
            .canonicalize()
            .map_err(|error| Failure::io(file.display(), &error))?;
        self.image = self.image.clone().file(&guest, &whole);
        Ok(guest)
    }

    /// The guest's image with its command: this program with these words.
    pub(super) fn image(self, words: &[String]) -> Image {
        let script = format!("exec \"$@\" >{RESULTS}/{STDOUT}");
        let mut command = vec!["sh".to_owned(), "-c".to_owned(), script, "sh".to_owned()];
        command.push("anabranch".to_owned());
        command.extend(words.iter().cloned());
        self.image.command(&command)
    }
}

/// The path of a file inside. It contains the full path here, so that files that name each other
/// find each other.
fn inside(file: &Path) -> Outcome<String> {
    let whole = file
        .canonicalize()
        .map_err(|error| Failure::usage(format!("{}: {error}", file.display())))?;
    Ok(format!("{FILES}{}", whole.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_lab::plan::Changes;
    use anabranch_lab::scenario::Document;

    const SCENARIO: &str = r#"
format = 1
name = "inside"
stop = "9s"
singles = false
[[path]]
forward = { rate = "1Mbit/s" }
[[flow]]
kind = "bulk"
bytes = "1MB"
[transport]
kind = "command"
file = "peer.toml"
"#;

    const PEER: &str = "format = 1\nname = \"peer\"\n\
                        [server]\ncommand = [\"./serve\", \"{port}\"]\n\
                        [client]\ncommand = [\"sh\", \"-c\", \"true\"]\n\
                        [measure]\nbytes = \"{} bytes\"\n";

    #[test]
    fn scenarios_contenders_their_programs_and_earlier_results_are_put_in() {
        // The guest's programs are copied from here, with the libraries they are linked to.
        if !anabranch_testbed::Need::VirtualMachine.programs("a guest's image", &["sh", "ldd"]) {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let write = |name: &str, text: &str| std::fs::write(root.join(name), text).unwrap();
        write("s.toml", SCENARIO);
        write("peer.toml", PEER);
        std::fs::create_dir_all(root.join("out/parts")).unwrap();
        write("out/parts/1.json", "{}");
        write("out/runs.csv", "");
        std::fs::copy("/proc/self/exe", root.join("serve")).unwrap();
        let none: [&str; 0] = [];
        let mut guest = Guest {
            image: Image::new(&none),
            files: BTreeMap::new(),
        };
        let file = root.join("s.toml").display().to_string();
        guest.add_scenario(&file).unwrap();
        guest.add_scenario("aveiro-lbd").unwrap();
        assert_eq!(guest.files.len(), 1);
        assert_eq!(guest.files[&file], format!("/host{file}"));
        let document = Document::parse(&file, SCENARIO).unwrap();
        let plan = Plan::make(&document, &Changes::default()).unwrap();
        guest.add_contenders(&plan).unwrap();
        guest.add_results(OUT, &root.join("out")).unwrap();
        guest.add_results(OUT, &root.join("nowhere")).unwrap();
        let all = guest.image(&["lab".to_owned()]);
        let has = |name: &str| all.holds(name);
        for name in ["s.toml", "peer.toml", "serve"] {
            assert!(has(&format!("/host{}/{name}", root.display())), "{name}");
        }
        assert!(has("/results/out/parts/1.json") && !has("/results/out/runs.csv"));
        assert!(!has("/bin/sh"));
    }
}
