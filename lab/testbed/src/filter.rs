//! Filters that lose packets: classic BPF programs, as `tc` reads them.

/// The action of a `direct-action` filter that lets a packet pass.
pub(crate) const PASS: u32 = 0;
/// The action that asks the next filter (`TC_ACT_UNSPEC`, -1).
pub(crate) const ASK_NEXT: u32 = u32::MAX;
const DROP: u32 = 2;

/// The result of a program without `direct-action` that matches a packet.
const MATCH: u32 = u32::MAX;

/// Load a random word: an ancillary load at `SKF_AD_OFF` + `SKF_AD_RANDOM`.
const LOAD: u32 = 0x20;
const RANDOM: u32 = (-0x1000_i32 + 56).cast_unsigned();
/// Compare it with a constant; return a constant.
const JUMP_IF_AT_LEAST: u32 = 0x35;
const RETURN: u32 = 0x06;

/// A program that matches every packet; not every kernel has the filter `matchall`.
pub(crate) fn matching_all() -> String {
    format!("1,{RETURN} 0 0 {MATCH},")
}

/// A program that drops a packet with `probability`, and has `kept` happen to the others.
pub(crate) fn losing(probability: f64, kept: u32) -> String {
    if probability <= 0.0 {
        return format!("1,{RETURN} 0 0 {kept},");
    }
    if probability >= 1.0 {
        return format!("1,{RETURN} 0 0 {DROP},");
    }
    let threshold = (probability * 2f64.powi(32)) as u32;
    format!(
        "4,{LOAD} 0 0 {RANDOM},{JUMP_IF_AT_LEAST} 0 1 {threshold},\
         {RETURN} 0 0 {kept},{RETURN} 0 0 {DROP},"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_draws_a_word_only_if_chance_decides() {
        assert_eq!(losing(0.0, PASS), "1,6 0 0 0,");
        assert_eq!(losing(1.0, PASS), "1,6 0 0 2,");
        assert_eq!(
            losing(0.5, ASK_NEXT),
            "4,32 0 0 4294963256,53 0 1 2147483648,6 0 0 4294967295,6 0 0 2,"
        );
        // As near to certain as a word can come, and not beyond.
        assert!(losing(1.0 - f64::EPSILON, PASS).contains("53 0 1 4294967295,"));
    }
}
