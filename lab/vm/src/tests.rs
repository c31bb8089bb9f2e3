//! The archive as other programs read it, and guests that run.

use crate::archive::Archive;
use crate::{Acceleration, Control, Error, Image, Kernel, Machine, RESULTS, requirements};
use anabranch_testbed::Need;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The archive's entries as (name, mode, content), read by the rules of the format.
fn entries(bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
    let mut all = Vec::new();
    let mut at = 0;
    loop {
        assert_eq!(&bytes[at..at + 6], b"070701");
        let field = |index: usize| {
            let text = std::str::from_utf8(&bytes[at + 6 + index * 8..][..8]).unwrap();
            usize::from_str_radix(text, 16).unwrap()
        };
        let (mode, size, name_size) = (field(1), field(6), field(11));
        let name = &bytes[at + 110..at + 110 + name_size - 1];
        let start = (at + 110 + name_size).next_multiple_of(4);
        let content = bytes[start..start + size].to_vec();
        at = (start + size).next_multiple_of(4);
        let name = String::from_utf8(name.to_vec()).unwrap();
        if name == "TRAILER!!!" {
            assert_eq!(at, bytes.len());
            return all;
        }
        all.push((name, u32::try_from(mode).unwrap(), content));
    }
}

#[test]
fn an_archive_gives_back_what_went_in_with_its_modes() {
    let mut archive = Archive::new(Vec::new());
    archive.directory("/bin").unwrap();
    archive.file("/bin/x", 0o100_755, b"abcde").unwrap();
    archive.link("/bin/sh", "/bin/x").unwrap();
    archive.device("/dev/console", (5, 1)).unwrap();
    let read = entries(&archive.finish().unwrap());
    let expected = [
        ("bin", 0o040_755, &b""[..]),
        ("bin/x", 0o100_755, b"abcde"),
        ("bin/sh", 0o120_777, b"/bin/x"),
        ("dev/console", 0o020_600, b""),
    ];
    for (entry, (name, mode, content)) in read.iter().zip(expected) {
        assert_eq!(
            (entry.0.as_str(), entry.1, &entry.2[..]),
            (name, mode, content)
        );
    }
    assert_eq!(read.len(), expected.len());
}

/// A prepared kernel, if there is one and qemu to start it; otherwise the test is skipped.
#[track_caller]
fn kernel() -> Option<(Kernel, MutexGuard<'static, ()>)> {
    /// One guest at a time, since each takes a processor.
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let missing = requirements().into_iter().find(|one| one.found.is_none());
    let kernel = Kernel::default_folder().and_then(|folder| Kernel::find(&folder));
    let why = match (missing, kernel) {
        (Some(missing), _) => format!("there is no `{}`", missing.program),
        (None, Err(error)) => error.to_string(),
        (None, Ok(kernel)) => return Some((kernel, alone)),
    };
    let test = std::panic::Location::caller();
    Need::VirtualMachine.skip(&test.to_string(), why);
    None
}

fn shell(kernel: &Kernel, script: &str) -> Image {
    Image::new(&["sh", "-c", script])
        .modules(kernel, &["bonding"])
        .unwrap()
}

#[test]
fn a_guest_has_the_modules_asked_for_and_leaves_its_results() {
    let Some((kernel, _alone)) = kernel() else {
        return;
    };
    let script = format!(
        "/bin/ip -V; ls /sys/class/net/bonding_masters; cat /etc/greeting; \
         uname -r >{RESULTS}/release; exit 7"
    );
    let image = shell(&kernel, &script)
        .program("ip")
        .unwrap()
        .text("/etc/greeting", "hello from outside\n");
    let mut lines = Vec::new();
    let machine = Machine {
        acceleration: Acceleration::Software,
        ..Machine::default()
    };
    let end = machine
        .run(&kernel, &image, &mut |line| lines.push(line.to_owned()))
        .unwrap();
    assert_eq!(end.code, 7, "{lines:?}");
    assert!(
        lines.iter().any(|line| line == "hello from outside"),
        "{lines:?}"
    );
    assert!(
        lines.iter().any(|line| line.starts_with("ip utility")),
        "{lines:?}"
    );
    assert!(
        lines.iter().any(|line| line.ends_with("bonding_masters")),
        "{lines:?}"
    );
    let release = std::fs::read_to_string(end.results().join("release")).unwrap();
    assert_eq!(release.trim(), kernel.release());
}

#[test]
fn a_guest_that_does_not_end_is_stopped_at_its_limit() {
    let Some((kernel, _alone)) = kernel() else {
        return;
    };
    let machine = Machine {
        acceleration: Acceleration::Software,
        limit: Duration::from_secs(5),
        ..Machine::default()
    };
    let image = shell(&kernel, "echo waiting; while :; do :; done");
    match machine.run(&kernel, &image, &mut |_| {}) {
        Err(Error::TimedOut { console, .. }) => assert!(console.contains("waiting"), "{console}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_module_the_kernel_lacks_is_refused_before_anything_starts() {
    let Some((kernel, _alone)) = kernel() else {
        return;
    };
    let refused = Image::new(&["sh"]).modules(&kernel, &["no_such_module"]);
    assert!(matches!(refused, Err(Error::NoModule { .. })));
}

#[test]
fn what_is_not_installed_is_told_with_its_package() {
    for one in requirements() {
        assert!(!one.program.is_empty() && !one.package.is_empty());
        assert_eq!(
            one.found.is_some(),
            crate::programs::find(one.program).is_some()
        );
    }
}

#[test]
fn a_guest_in_software_sleeps_by_a_clock_of_its_own() {
    let Some((kernel, _alone)) = kernel() else {
        return;
    };
    let machine = Machine {
        acceleration: Acceleration::Software,
        ..Machine::default()
    };
    let script = "from=$(cut -d. -f1 /proc/uptime); sleep 600; to=$(cut -d. -f1 /proc/uptime); \
                  echo slept $((to - from)); grep -o anabranch.vm=.* /proc/cmdline";
    let began = Instant::now();
    let mut lines = Vec::new();
    let image = Image::new(&["sh", "-c", script]);
    let end = machine
        .run(&kernel, &image, &mut |line| lines.push(line.to_owned()))
        .unwrap();
    assert_eq!(end.code, 0, "{lines:?}");
    assert!(began.elapsed() < Duration::from_secs(600));
    let slept = lines.iter().find_map(|line| line.strip_prefix("slept "));
    let slept: u64 = slept.unwrap().parse().unwrap();
    assert!((600..603).contains(&slept), "{slept}");
    assert!(lines.contains(&"anabranch.vm=tcg".to_owned()), "{lines:?}");
}

#[test]
fn an_interruption_reaches_the_command_and_its_results_come_back() {
    let Some((kernel, _alone)) = kernel() else {
        return;
    };
    let control = Control::default();
    let machine = Machine {
        acceleration: Acceleration::Software,
        control: control.clone(),
        ..Machine::default()
    };
    // It waits without sleeping: for a sleeping guest, hours may pass before it is interrupted.
    let script =
        format!("trap 'echo heard >{RESULTS}/said; exit 3' INT; echo waiting; while :; do :; done");
    let image = Image::new(&["sh", "-c", &script]);
    let end = machine
        .run(&kernel, &image, &mut |line| {
            if line == "waiting" {
                control.interrupt();
            }
        })
        .unwrap();
    assert_eq!(end.code, 3);
    let said = std::fs::read_to_string(end.results().join("said")).unwrap();
    assert_eq!(said, "heard\n");
}

#[test]
fn a_guest_is_stopped_from_outside() {
    let Some((kernel, _alone)) = kernel() else {
        return;
    };
    let control = Control::default();
    control.interrupt();
    let machine = Machine {
        acceleration: Acceleration::Software,
        control,
        ..Machine::default()
    };
    let image = Image::new(&["sh", "-c", "while :; do :; done"]);
    let stopped = machine.run(&kernel, &image, &mut |_| {});
    assert!(matches!(stopped, Err(Error::Stopped)), "{stopped:?}");
}
