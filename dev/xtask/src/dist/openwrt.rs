//! Tests of the files in `dist/openwrt`, with stand-ins for what a router's shell has.

use std::path::PathBuf;
use std::process::Command;

/// What a router's `functions.sh` and `procd.sh` do, for one section of the configuration: commands
/// and settings are printed.
const STANDINS: &str = r#"
config_load() { echo "load $1"; }
config_foreach() { "$1" main; }
config_get() { eval "$1=\${option_$3:-$4}"; }
config_get_bool() { config_get "$@"; }
config_list_foreach() { for item in $(eval "echo \$list_$2"); do "$3" "$item"; done; }
procd_open_instance() { echo "open $1"; }
procd_set_param() { echo "set $*"; }
procd_append_param() { echo "append $*"; }
procd_close_instance() { echo close; }
procd_add_reload_trigger() { echo "trigger $1"; }
logger() { echo "log $*"; }
"#;

fn folder() -> PathBuf {
    crate::root().join("dist/openwrt/anabranch")
}

/// What the service does where these variables are the configuration.
fn start(options: &str) -> String {
    let script = folder().join("files/anabranch.init");
    let script = script.display();
    let text = format!("{STANDINS}\n{options}\n. '{script}'\nstart_service\nservice_triggers\n");
    let mut shell = Command::new("/bin/sh");
    // What makes directories, wherever the test is run from.
    shell.args(["-c", &text]).env("PATH", "/usr/bin:/bin");
    let output = shell.output().expect("a shell");
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn an_enabled_section_becomes_one_process_with_its_paths() {
    let state = tempfile::tempdir().expect("a directory");
    let kept = state.path().join("kept");
    let said = start(&format!(
        "option_enabled=1; option_url=anabranch://PIN@192.0.2.1:4434/join/X; option_state={}
         list_listen='192.168.1.1:1080 [fd00::1]:1080'; list_path='wan wwan0,backup'",
        kept.display()
    ));
    let command = format!(
        "set command /usr/bin/anabranch tunnel join {} --state {}",
        "anabranch://PIN@192.0.2.1:4434/join/X",
        kept.display()
    );
    for line in [
        command.as_str(),
        "append command --listen 192.168.1.1:1080",
        "append command --listen [fd00::1]:1080",
        "append command --path wan",
        "append command --path wwan0,backup",
        "close",
        "trigger anabranch",
    ] {
        assert!(said.lines().any(|said| said == line), "{line}: {said}");
    }
    assert!(kept.is_dir());
}

#[test]
fn what_is_not_enabled_or_has_no_url_starts_nothing() {
    let said = start("option_enabled=0; option_url=anabranch://PIN@192.0.2.1:4434/join/X");
    assert!(!said.contains("open"), "{said}");
    let said = start("option_enabled=1; option_url=anabranch://...");
    assert!(
        !said.contains("open") && said.contains("log -t anabranch"),
        "{said}"
    );
}

#[test]
fn the_package_has_the_version_of_the_workspace() {
    let makefile = std::fs::read_to_string(folder().join("Makefile")).expect("a file of the tree");
    let version = concat!("PKG_VERSION:=", env!("CARGO_PKG_VERSION"));
    assert!(makefile.lines().any(|line| line == version));
}
