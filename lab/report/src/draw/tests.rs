//! Properties of drawings.

use super::palette::{colour, diverging, luminance, readable_on, viridis};
use super::scale::{Scale, Unit, decimals};
use super::svg::{Anchor, Letters, Stroke, Svg, fitted, width_of};
use super::*;

fn texts(scale: &Scale, count: usize) -> Vec<String> {
    scale
        .ticks(count)
        .into_iter()
        .map(|(_, text)| text)
        .collect()
}

#[test]
fn numbers_beside_axes_are_round_and_few() {
    assert_eq!(
        texts(&Scale::new(0.0, 10.0, false), 5),
        ["0", "2", "4", "6", "8", "10"]
    );
    assert_eq!(
        texts(&Scale::new(0.0, 0.3, false), 3),
        ["0.0", "0.1", "0.2", "0.3"]
    );
    assert_eq!(
        texts(&Scale::new(1.0, 1000.0, true), 4),
        ["1", "10", "100", "1000"]
    );
    assert_eq!(
        texts(&Scale::new(0.1, 1.0, true), 4),
        ["0.1", "0.2", "0.5", "1"]
    );
    // Too narrow for powers of ten, so equal steps are used.
    assert!(Scale::new(7.1, 7.9, true).ticks(5).len() >= 3);
    assert_eq!(decimals(0.05), 2);
    assert_eq!(decimals(20.0), 0);
}

#[test]
fn values_are_where_the_scale_says() {
    let even = Scale::new(0.0, 10.0, false).between(100.0, 200.0);
    assert!((even.at(2.5) - 125.0).abs() < 1e-9);
    let log = Scale::new(1.0, 100.0, true).between(0.0, 1.0);
    assert!((log.at(10.0) - 0.5).abs() < 1e-9);
    // Even without values, or with a single one, the scale has two ends.
    assert!(Scale::new(3.0, 3.0, false).at(3.0).is_finite());
    assert!(Scale::from_zero([].into_iter()).at(0.0).is_finite());
}

#[test]
fn units_fit_the_largest_figure() {
    assert_eq!(Unit::rate(14.2e6).name, "Mbit/s");
    assert_eq!(Unit::rate(0.0).name, "bit/s");
    assert_eq!(Unit::time(0.03).name, "ms");
    assert_eq!(Unit::size(2e6).title("buffer"), "buffer [MB]");
    assert_eq!(Unit::bare("").title("gain"), "gain");
}

#[test]
fn text_is_escaped_and_cut_to_its_room() {
    let mut svg = Svg::new("t", 100.0, 50.0);
    svg.text(
        (1.0, 2.0),
        "a<b & \"c\"\u{7}",
        &Letters::plain(Anchor::Start),
    );
    let file = svg.file("x > y", "about");
    assert!(
        file.contains("a&lt;b &amp; &quot;c&quot; </text>"),
        "{file}"
    );
    assert!(file.contains("<title id=\"t-t\">x &gt; y</title>"));
    let cut = fitted("a very long name of a contender", 9.5, 60.0);
    assert!(cut.ends_with('…') && width_of(&cut, 9.5) <= 66.0, "{cut}");
    assert_eq!(fitted("short", 9.5, 60.0), "short");
}

#[test]
fn what_has_no_extent_is_not_drawn() {
    let mut svg = Svg::new("t", 100.0, 50.0);
    let stroke = Stroke::solid("#000000", 1.0);
    svg.line((10.0, 5.0), (10.004, 5.0), &stroke);
    svg.polyline(&[(1.0, 1.0), (1.001, 1.0), (1.0, 1.002)], &stroke);
    svg.polygon(&[(1.0, 1.0), (5.0, 1.0), (9.0, 1.001)], "#000000", 1.0);
    let empty = svg.file("x", "y");
    svg.rectangle((1.0, 1.0), (0.004, 5.0), "#000000", 1.0);
    svg.outline((1.0, 1.0), (5.0, 0.0), &stroke);
    assert_eq!(svg.file("x", "y"), empty);
    assert!(!empty.contains("<path"));
    svg.line((10.0, 5.0), (10.01, 5.0), &stroke);
    assert!(svg.file("x", "y").contains("M10 5L10.01 5"));
}

#[test]
fn colours_of_maps_get_lighter_all_the_way_and_text_on_them_can_be_read() {
    let steps = (0..=20).map(|at| f64::from(at) / 20.0);
    let light: Vec<f64> = steps
        .clone()
        .map(|share| luminance(viridis(share)))
        .collect();
    assert!(light.windows(2).all(|pair| pair[0] < pair[1]), "{light:?}");
    for share in steps {
        for back in [viridis(share), diverging(share)] {
            let text = if readable_on(back) == "#000000" {
                0.0
            } else {
                1.0
            };
            let (a, b) = (luminance(back) + 0.05, text + 0.05);
            let contrast = f64::max(a, b) / f64::min(a, b);
            assert!(contrast > 4.0, "{contrast} at {share}");
        }
    }
}

#[test]
fn series_differ_in_more_than_colour() {
    for a in 0..16 {
        for b in 0..a {
            let look = |n: usize| (colour(n), palette::dash(n), palette::mark(n));
            assert_ne!(look(a), look(b), "{a} and {b}");
        }
    }
    for a in 0..8 {
        for b in 0..a {
            assert_ne!(palette::dash(a), palette::dash(b));
            assert_ne!(palette::mark(a), palette::mark(b));
        }
    }
}

#[test]
fn panels_stand_below_each_other_where_there_is_little_room() {
    let axis = || Axis::new("x", Scale::new(0.0, 1.0, false));
    let panels = (0..4).map(|_| Panel::new("p", axis(), axis())).collect();
    let grid = Grid {
        panels,
        columns: 2,
        legend: Vec::new(),
        aspect: 0.5,
    };
    let rows = |width: f64| grid.draw("g", width).size().1 / width;
    assert!(rows(WIDTHS[1].0) > 2.0 * rows(WIDTHS[0].0));
}
