//! Turns values into JSON (RFC 8259), for programs that read what this one tells.
//!
//! Written by hand: numbers, texts and lists are forty lines, and need no crate.

use std::fmt::Write;

/// An object of these fields, whose values are JSON already.
pub(crate) fn object(fields: &[(&str, String)]) -> String {
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{}:{value}", text(name))).collect();
    format!("{{{}}}", fields.join(","))
}

/// A list of these values, which are JSON already.
pub(crate) fn array(values: impl Iterator<Item = String>) -> String {
    format!("[{}]", values.collect::<Vec<_>>().join(","))
}

/// The value, or null.
pub(crate) fn optional(value: Option<String>) -> String {
    value.unwrap_or_else(|| "null".to_owned())
}

/// A number with four places. RFC 8259, section 6: infinities, and what is no number, cannot be said; a ratio to nothing
/// is one of them.
pub(crate) fn number(value: f64) -> String {
    if value.is_finite() { format!("{}", (value * 1e4).round() / 1e4) } else { "null".to_owned() }
}

/// A text. RFC 8259, section 7: quotation mark, reverse solidus and control characters must be escaped.
pub(crate) fn text(value: &str) -> String {
    let mut out = String::with_capacity(value.len() + 2);
    out.push('"');
    for character in value.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            '\0'..='\x1f' => drop(write!(out, "\\u{:04x}", character as u32)),
            _ => out.push(character),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[track_caller]
    fn parsed(json: &str) -> Value {
        serde_json::from_str(json).unwrap_or_else(|error| panic!("{error} in {json}"))
    }

    #[test]
    fn every_text_comes_back_as_it_was() {
        for original in
            ["", "plain", "newfstatat(fd, \"\")", "C:\\back\\slash", "tab\tline\nnul\0del\x7f", "µs ≥ 3 % 🐦"]
        {
            assert_eq!(parsed(&text(original)), Value::from(original));
        }
    }

    #[test]
    fn numbers_are_numbers_or_nothing() {
        for (value, expected) in
            [(0.0, "0"), (1.5, "1.5"), (126.044_44, "126.0444"), (-2.0, "-2"), (3e12, "3000000000000")]
        {
            assert_eq!(number(value), expected);
            assert!(parsed(expected).is_number());
        }
        assert_eq!((number(f64::NAN), number(f64::INFINITY)), ("null".to_owned(), "null".to_owned()));
    }
}
