//! Formatting of numbers as text.

use units::in_groups;

/// Formats a fraction in per cent. A fraction below 1 is never rounded up to 100 %.
pub(crate) fn almost(share: f64) -> String {
    let percent = share * 100.0;
    if percent >= 100.0 {
        "100 %".into()
    } else {
        format!("{} %", number((percent * 1000.0).floor() / 1000.0))
    }
}

pub(crate) fn percent(share: u8) -> String {
    format!("{share} %")
}

/// Text before a rate that is only a lower bound, because no upper bound is known.
pub const AT_LEAST: &str = "≥ ";

/// Formats a number with grouped thousands and only the significant digits.
pub fn number(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 1000.0 || v.fract() == 0.0 => 0,
        v if v >= 100.0 => 1,
        v if v >= 1.0 => 2,
        v if v >= 0.1 => 3,
        // Two significant digits.
        v => (1.0 - v.log10().floor()).min(9.0) as usize,
    };
    let text = format!("{value:.digits$}");
    let (sign, text) = text.strip_prefix('-').map_or(("", &text[..]), |text| ("-", text));
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    let (whole, rest) = (in_groups(whole), rest.trim_end_matches('0'));
    if rest.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{rest}") }
}
