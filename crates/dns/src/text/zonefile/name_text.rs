//! Converts names from text to wire form (RFC 1035 §5.1): dots, escapes, `@`, and the origin of relative names.

use super::Diagnostic;
use super::scanner::{self, Excerpt, Scanner, Token, TokenKind};
use crate::text::name::{LABEL_BYTES_MAX, NAME_BYTES_MAX, Name};
use alloc::format;
use alloc::vec::Vec;

/// How to fix an escape.
pub(super) const ESCAPE_REMEDY: &str = "write three decimal digits, \\000 to \\255, or \\\\ for a backslash";

/// The reason why text is not a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameTextError {
    /// Between two dots, before the first, or in an empty text.
    EmptyLabel,
    /// A label over 63 bytes.
    LabelTooLong,
    /// Over 255 bytes with the origin.
    NameTooLong,
    /// A backslash before a number over 255.
    InvalidEscape,
}

impl NameTextError {
    /// The error about the name in `token`. `what` names its field.
    #[cold]
    pub(super) fn about(self, what: &str, scanner: &Scanner, token: Token) -> Diagnostic {
        let (problem, remedy) = match self {
            NameTextError::EmptyLabel => {
                ("has an empty label", "write one dot between two labels, and none before the first")
            }
            NameTextError::LabelTooLong => {
                ("has a label of more than 63 bytes", "shorten the label, or split it with a dot")
            }
            NameTextError::NameTooLong => {
                ("has more than 255 bytes with its origin", "shorten the name, or end it with a dot if it is absolute")
            }
            NameTextError::InvalidEscape => ("has an invalid escape", ESCAPE_REMEDY),
        };
        let problem = format!("the {what} {} {problem}", Excerpt(scanner.text_of(token)));
        Diagnostic::error(scanner.position_of(token), problem, remedy)
    }
}

/// How a name is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameForm {
    /// With a final dot.
    Absolute,
    /// Without a final dot: at or below the origin.
    Relative,
}

/// Appends the name in `text` to `out`. After an error the appended bytes are unspecified.
pub(super) fn put_name(
    text: &[u8],
    kind: TokenKind,
    origin: Name<'_>,
    out: &mut Vec<u8>,
) -> Result<NameForm, NameTextError> {
    if text == b"." {
        out.push(0);
        return Ok(NameForm::Absolute);
    }
    if text == b"@" && kind == TokenKind::Word {
        out.extend_from_slice(origin.as_bytes());
        return Ok(NameForm::Relative);
    }
    let start = out.len();
    // Shifted by one byte the text has the layout of the wire form: each dot becomes the length of the next label.
    out.push(0);
    out.extend_from_slice(text);
    let form = match split_in_place(&mut out[start..])? {
        Split::Done(form) => form,
        Split::Escape => {
            out.truncate(start);
            put_escaped_labels(text, out)?
        }
    };
    if form == NameForm::Relative {
        out.extend_from_slice(origin.as_bytes());
    }
    if out.len() - start > NAME_BYTES_MAX { Err(NameTextError::NameTooLong) } else { Ok(form) }
}

enum Split {
    /// The labels are complete, for an absolute name with the root label.
    Done(NameForm),
    /// The text has an escape, which changes the offsets of bytes.
    Escape,
}

/// Splits `shifted`, which is text after one unspecified byte, into labels.
fn split_in_place(shifted: &mut [u8]) -> Result<Split, NameTextError> {
    let mut length_offset = 0;
    for at in 1..shifted.len() {
        match shifted[at] {
            b'.' => {
                shifted[length_offset] = label_length(at - length_offset - 1)?;
                length_offset = at;
            }
            b'\\' => return Ok(Split::Escape),
            _ => {}
        }
    }
    let last = shifted.len() - length_offset - 1;
    if last == 0 && length_offset > 0 {
        // The last dot becomes the root label.
        shifted[length_offset] = 0;
        return Ok(Split::Done(NameForm::Absolute));
    }
    shifted[length_offset] = label_length(last)?;
    Ok(Split::Done(NameForm::Relative))
}

/// Appends the labels of `text`, which has escapes, for an absolute name with the root label.
fn put_escaped_labels(text: &[u8], out: &mut Vec<u8>) -> Result<NameForm, NameTextError> {
    let mut rest = text;
    let mut length_offset = out.len();
    out.push(0);
    while let Some(split) = scanner::split_byte(rest) {
        let (byte, tail) = split.map_err(|_| NameTextError::InvalidEscape)?;
        // A dot that is one byte of text is not escaped and ends a label.
        if byte == b'.' && rest.len() - tail.len() == 1 {
            out[length_offset] = label_length(out.len() - length_offset - 1)?;
            length_offset = out.len();
            out.push(0);
        } else {
            out.push(byte);
        }
        rest = tail;
    }
    let last = out.len() - length_offset - 1;
    if last == 0 {
        // The text ends with a dot. The preceding label is not empty, or its length would have been rejected.
        return Ok(NameForm::Absolute);
    }
    out[length_offset] = label_length(last)?;
    Ok(NameForm::Relative)
}

fn label_length(length_bytes: usize) -> Result<u8, NameTextError> {
    match length_bytes {
        0 => Err(NameTextError::EmptyLabel),
        1..=LABEL_BYTES_MAX => Ok(length_bytes as u8),
        _ => Err(NameTextError::LabelTooLong),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::{String, ToString};
    use alloc::vec;

    #[track_caller]
    fn check(text: &str, expected: Result<&str, NameTextError>) {
        let mut out = vec![0xff];
        let origin = Name::parse(b"\x07example\0").expect("a name");
        let result = put_name(text.as_bytes(), TokenKind::Word, origin, &mut out);
        let name = result.map(|_| Name::parse(&out[1..]).expect("a name").to_string());
        assert_eq!(name, expected.map(String::from), "{text}");
    }

    #[test]
    fn invalid_names_are_rejected() {
        use NameTextError::{EmptyLabel, InvalidEscape, LabelTooLong, NameTooLong};
        for text in ["", "..", ".a", "a..b", "a..", "\\097..", ".\\097"] {
            check(text, Err(EmptyLabel));
        }
        check("\\256", Err(InvalidEscape));
        check("\\25", Err(InvalidEscape));
        check("\\300", Err(InvalidEscape));
        let label = "a".repeat(63);
        check(&label, Ok(&alloc::format!("{label}.example.")));
        check(&"a".repeat(64), Err(LabelTooLong));
        check(&("\\a".repeat(64)), Err(LabelTooLong));
        check(&[&label[..]; 4].join("."), Err(NameTooLong));
        check(&"a.".repeat(127), Ok(&"a.".repeat(127)));
        check(&"a.".repeat(128), Err(NameTooLong));
    }
}
