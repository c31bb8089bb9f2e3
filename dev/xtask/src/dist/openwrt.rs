//! Tests of the files in `dist/openwrt`, with stand-ins for what a router's shell has.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
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
start() { start_service; }
"#;

const URL: &str = "anabranch://PIN@192.0.2.1:4434/join/X";

fn folder() -> PathBuf {
    crate::root().join("dist/openwrt/anabranch")
}

/// What the service does where these variables are the configuration.
fn start(options: &str) -> String {
    let run = tempfile::tempdir().expect("a directory");
    run_in(run.path(), options, "start_service\nservice_triggers")
}

/// What the script says to these `orders`; `run` is for what lasts as long as the service.
fn run_in(run: &Path, options: &str, orders: &str) -> String {
    let script = folder().join("files/anabranch.init");
    let (script, run) = (script.display(), run.display());
    let text = format!("{STANDINS}\n{options}\n. '{script}'\nRUN='{run}'\n{orders}\n");
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
    let options = format!(
        "option_enabled=1; option_url={URL}; option_state={}
         list_listen='192.168.1.1:1080 [fd00::1]:1080'; list_path='wan wwan0,backup'",
        kept.display()
    );
    let said = run_in(
        state.path(),
        &options,
        "start_service\nstart_service\nservice_triggers",
    );
    let url = state.path().join("anabranch-main.url");
    let command = format!(
        "set command /usr/bin/anabranch tunnel join --url-file {} --state {}",
        url.display(),
        kept.display()
    );
    // Everybody may see commands, but not the file.
    assert!(!said.contains(URL), "{said}");
    let written = fs::read_to_string(&url).expect("the URL");
    assert_eq!(written, format!("{URL}\n"));
    let mode = fs::metadata(&url).expect("the URL").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let watched = format!("set file {}", url.display());
    for line in [
        command.as_str(),
        watched.as_str(),
        "append command --listen 192.168.1.1:1080",
        "append command --listen [fd00::1]:1080",
        "append command --path wan",
        "append command --path wwan0,backup",
        "set respawn 3600 5 0",
        "close",
        "trigger anabranch",
    ] {
        assert!(said.lines().any(|said| said == line), "{line}: {said}");
    }
    assert!(kept.is_dir());
    for option in ["--capture", "--kill-switch", "--metrics"] {
        assert!(!said.contains(option), "{option}: {said}");
    }
}

#[test]
fn hosts_of_the_lan_are_captured_and_metrics_served_if_that_is_wanted() {
    let state = tempfile::tempdir().expect("a directory");
    let said = start(&format!(
        "option_enabled=1; option_url=https://proxy.example/; option_state={}
         list_capture='lan=br-lan host'; option_kill_switch=1; option_metrics=:9434",
        state.path().display()
    ));
    for line in [
        "append command --capture lan=br-lan",
        "append command --capture host",
        "append command --kill-switch",
        "append command --metrics :9434",
    ] {
        assert!(said.lines().any(|said| said == line), "{line}: {said}");
    }
}

#[test]
fn a_section_with_a_file_runs_by_it_alone_and_reads_it_again_when_told_to() {
    let state = tempfile::tempdir().expect("a directory");
    let file = state.path().join("tunnel.toml");
    let options = format!(
        "option_enabled=1; option_config={}; option_state={}; option_url={URL}; list_path=wan",
        file.display(),
        state.path().display()
    );
    let said = start(&options);
    assert!(
        !said.contains("open") && said.contains("there is no file"),
        "{said}"
    );
    fs::write(&file, "[near]\n").expect("a file");
    // Stands in for the program that is told to.
    let orders = "PROG=echo\nlogger() { sed 's/^/log /'; }\nreload_service";
    let said = run_in(state.path(), &options, orders);
    let (place, file) = (state.path().display(), file.display());
    for line in [
        format!("set command echo tunnel up {file}"),
        format!("set env XDG_RUNTIME_DIR={place} XDG_STATE_HOME={place}"),
        "close".to_owned(),
        "log tunnel reload".to_owned(),
    ] {
        assert!(said.lines().any(|said| said == line), "{line}: {said}");
    }
    assert!(!said.contains("--path"), "{said}");
    // Without any file nobody is asked to read one.
    let options = format!(
        "option_enabled=1; option_url={URL}; option_state={}",
        state.path().display()
    );
    let said = run_in(state.path(), &options, orders);
    assert!(!said.contains("tunnel reload"), "{said}");
}

#[test]
fn the_package_brings_what_capture_needs_of_the_system() {
    let makefile = fs::read_to_string(folder().join("Makefile")).expect("a file of the tree");
    for needed in [
        "+nftables",
        "+kmod-nft-tproxy",
        "+kmod-nft-fib",
        "+kmod-nft-nat",
        "+kmod-tun",
    ] {
        assert!(makefile.contains(needed), "{needed}");
    }
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
    let makefile = fs::read_to_string(folder().join("Makefile")).expect("a file of the tree");
    let version = concat!("PKG_VERSION:=", env!("CARGO_PKG_VERSION"));
    assert!(makefile.lines().any(|line| line == version));
}
