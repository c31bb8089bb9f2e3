//! Colours, dashes and marks of the series, which never differ by colour alone.

/// Text and axes. A dark page may replace this and the next three colours.
pub(crate) const INK: &str = "#1d2329";
/// Numbers on axes, and remarks.
pub(crate) const QUIET: &str = "#56616b";
/// Grid lines.
pub(crate) const FAINT: &str = "#dde2e6";
/// The background.
pub(crate) const PAPER: &str = "#ffffff";
/// Cells of heat maps without a figure.
pub(crate) const EMPTY: &str = "#eceff1";

/// Okabe and Ito's colours, which are distinct with every kind of colour blindness. Black and
/// yellow would vanish on a dark or white page; grey and brown replace them.
const COLOURS: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a7f85", "#8c613c",
];

const DASHES: [&str; 8] = [
    "",
    "7 3",
    "2 2",
    "8 3 2 3",
    "4 2",
    "10 3 2 2 2 3",
    "1 2",
    "12 4",
];

/// The colour of a series.
pub(crate) fn colour(series: usize) -> &'static str {
    COLOURS[series % COLOURS.len()]
}

/// Its dashes, which change with each further round of colours.
pub(crate) fn dash(series: usize) -> &'static str {
    DASHES[(series + series / COLOURS.len()) % DASHES.len()]
}

/// The number of its mark and hatching, below 8.
pub(crate) fn mark(series: usize) -> usize {
    (series + series / COLOURS.len()) % DASHES.len()
}

/// Eleven colours of viridis (Smith and van der Walt, CC0), dark to light.
const VIRIDIS: [[u8; 3]; 11] = [
    [68, 1, 84],
    [72, 36, 117],
    [65, 68, 135],
    [53, 95, 141],
    [42, 120, 142],
    [33, 145, 140],
    [34, 168, 132],
    [68, 191, 112],
    [122, 209, 81],
    [189, 223, 38],
    [253, 231, 37],
];

/// From orange over white to blue, for values below and above the middle.
const DIVERGING: [[u8; 3]; 7] = [
    [158, 68, 0],
    [217, 118, 40],
    [247, 196, 144],
    [246, 246, 246],
    [156, 200, 228],
    [62, 141, 196],
    [0, 84, 142],
];

/// The colour of viridis at a position from 0 to 1.
pub(crate) fn viridis(share: f64) -> [u8; 3] {
    between(&VIRIDIS, share)
}

/// The colour at a position: orange at 0, white at one half, blue at 1.
pub(crate) fn diverging(share: f64) -> [u8; 3] {
    between(&DIVERGING, share)
}

fn between(colours: &[[u8; 3]], share: f64) -> [u8; 3] {
    let at = share.clamp(0.0, 1.0) * (colours.len() - 1) as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    let mix = |channel: usize| {
        let (a, b) = (
            f64::from(colours[low][channel]),
            f64::from(colours[high][channel]),
        );
        (a + (b - a) * at.fract()).round() as u8
    };
    [mix(0), mix(1), mix(2)]
}

/// A colour in SVG's notation.
pub(crate) fn hexadecimal([red, green, blue]: [u8; 3]) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// Black or white, whichever has more contrast with a colour (as WCAG 2 defines it).
pub(crate) fn readable_on(colour: [u8; 3]) -> &'static str {
    if luminance(colour) > 0.179 {
        "#000000"
    } else {
        "#fefefe"
    }
}

/// Relative luminance, 0 to 1 (WCAG 2).
pub(crate) fn luminance(colour: [u8; 3]) -> f64 {
    let linear = |channel: u8| {
        let share = f64::from(channel) / 255.0;
        if share <= 0.04045 {
            share / 12.92
        } else {
            ((share + 0.055) / 1.055).powf(2.4)
        }
    };
    0.2126 * linear(colour[0]) + 0.7152 * linear(colour[1]) + 0.0722 * linear(colour[2])
}
