//! The page in a browser: it makes no requests, nothing overflows, and the plots are there.

#![allow(clippy::unwrap_used, reason = "a test that cannot run has failed")]

mod results;

use anabranch_report::{PageOptions, page};
use anabranch_testbed::browser;
use results::{CUT, Made, SWEPT, make};
use resvg::tiny_skia::Pixmap;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Starts the browser on a file and returns what it wrote to stdout and to stderr.
fn open(browser: &str, profile: &Path, file: &Path, arguments: &[&str]) -> (String, String) {
    let output = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
        ])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
        ])
        .args([
            "--disable-sync",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
        ])
        // A script in a file beside the page inspects it.
        .args(["--allow-file-access-from-files", "--enable-logging=stderr"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(arguments)
        .arg(format!("file://{}", file.display()))
        .output()
        .expect("it answered before");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// Opens the page in a frame of a given width and reports what it finds.
const LOOK: &str = r#"<!DOCTYPE html><meta charset="utf-8"><body style="margin:0">
<iframe id="f" src="report.html" style="border:0;height:900px;width:WIDTHpx"></iframe>
<pre id="found"></pre><script>
document.getElementById("f").onload = () => {
  const inner = document.getElementById("f").contentWindow, page = inner.document;
  for (const details of page.querySelectorAll("details")) details.open = true;
  const shown = [...page.querySelectorAll("figure")].map((figure) =>
    [...figure.querySelectorAll("svg")].map((svg) => svg.getBoundingClientRect())
      .filter((box) => box.width > 0 && box.height > 40)
      .map((box) => [box.left, box.right]));
  const small = [...page.querySelectorAll("svg text")]
    .filter((text) => text.getBoundingClientRect().height > 0)
    .filter((text) => text.getBoundingClientRect().height < 8 && text.getBBox().width > 8)
    .map((text) => text.textContent);
  const outside = inner.performance.getEntriesByType("resource").map((entry) => entry.name)
    .filter((name) => !name.startsWith("data:"));
  document.getElementById("found").textContent = JSON.stringify({
    wide: page.documentElement.scrollWidth, room: page.documentElement.clientWidth,
    shown, small, outside, dark: inner.getComputedStyle(page.documentElement).backgroundColor,
  });
};
</script>"#;

fn look(browser: &str, folder: &Path, width: u32, arguments: &[&str]) -> Value {
    let file = folder.join(format!("look-{width}.html"));
    fs::write(&file, LOOK.replace("WIDTH", &width.to_string())).unwrap();
    let profile = tempfile::tempdir().unwrap();
    let size = format!("--window-size={},1000", width + 40);
    let mut all = vec!["--dump-dom", "--virtual-time-budget=60000", size.as_str()];
    all.extend(arguments);
    let (found, log) = open(browser, profile.path(), &file, &all);
    let complaints: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("CONSOLE"))
        .collect();
    assert!(complaints.is_empty(), "{complaints:?}");
    let found = found
        .split("<pre id=\"found\">")
        .nth(1)
        .and_then(|rest| rest.split('<').next());
    let found = found
        .expect("the page was looked at")
        .replace("&gt;", ">")
        .replace("&lt;", "<");
    serde_json::from_str(&found.replace("&amp;", "&")).unwrap_or_else(|e| panic!("{e}: {found}"))
}

#[test]
fn the_page_fits_a_phone_and_a_desk_and_asks_nobody_for_anything() {
    let Some(browser) = browser() else {
        return;
    };
    let base = tempfile::tempdir().unwrap();
    let made = |name, factor| Made { name, factor };
    let folders = [
        make(base.path(), "cut", CUT, made("sim", 1.0)),
        make(base.path(), "swept", SWEPT, made("sim", 1.0)),
        make(base.path(), "real", SWEPT, made("netns", 0.97)),
    ];
    let options = PageOptions {
        out: base.path().join("out"),
        no_png: true,
        ..PageOptions::default()
    };
    let written = page(&folders, &options).unwrap();
    for width in [390, 1280] {
        let found = look(browser, &options.out, width, &[]);
        let number = |name: &str| found[name].as_f64().unwrap();
        assert!(
            number("wide") <= number("room"),
            "scrolls sideways at {width}: {found}"
        );
        assert_eq!(found["outside"], serde_json::json!([]));
        let shown = found["shown"].as_array().unwrap();
        assert_eq!(shown.len(), written.figures.len());
        for (figure, boxes) in written.figures.iter().zip(shown) {
            let boxes = boxes.as_array().unwrap();
            assert_eq!(boxes.len(), 1, "{figure} is drawn once at {width}");
            let right = boxes[0][1].as_f64().unwrap();
            assert!(
                right <= number("room") + 0.5,
                "{figure} ends at {right} of {width}"
            );
        }
        assert_eq!(
            found["small"],
            serde_json::json!([]),
            "too small to read at {width}"
        );
    }
    let dark = look(
        browser,
        &options.out,
        800,
        &["--blink-settings=preferredColorScheme=0"],
    );
    assert_eq!(dark["dark"], "rgb(20, 24, 27)", "dark where dark is wanted");
}

#[test]
fn plots_have_the_colours_of_their_series_on_the_screen() {
    let Some(browser) = browser() else {
        return;
    };
    let base = tempfile::tempdir().unwrap();
    let sim = Made {
        name: "sim",
        factor: 1.0,
    };
    let folder = make(base.path(), "cut", CUT, sim);
    let options = PageOptions {
        out: base.path().join("out"),
        no_png: true,
        ..PageOptions::default()
    };
    let written = page(&[folder], &options).unwrap();
    let picture = base.path().join("page.png");
    let profile = tempfile::tempdir().unwrap();
    let shot = format!("--screenshot={}", picture.display());
    let arguments = ["--window-size=1280,3000", shot.as_str()];
    open(browser, profile.path(), &written.page.unwrap(), &arguments);
    let pixels = Pixmap::decode_png(&fs::read(picture).unwrap()).unwrap();
    for colour in [[0x00, 0x72, 0xb2], [0xd5, 0x5e, 0x00], [0x00, 0x9e, 0x73]] {
        let same = pixels
            .pixels()
            .iter()
            .filter(|pixel| [pixel.red(), pixel.green(), pixel.blue()] == colour);
        assert!(same.count() > 100, "{colour:?}");
    }
}
