//! Turns the text of a name into its wire form (RFC 1035 §5.1): dots, escapes, `@`, and the origin behind relative names.

use super::Diagnostic;
use super::scanner::{self, Form, Scanner, Shown, Token};
use crate::name::{LABEL_BYTES_MAX, NAME_BYTES_MAX, Name};
use alloc::format;
use alloc::vec::Vec;

/// Why text is no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameTextError {
    /// Nothing between two dots, before the first, or at all.
    EmptyLabel,
    /// A label over 63 octets.
    LongLabel,
    /// Over 255 octets, the origin included.
    LongName,
    /// A backslash before a number that is no octet.
    Escape,
}

impl NameTextError {
    /// The error about `token`, the name of `what`.
    #[cold]
    pub(super) fn about(self, what: &str, scanner: &Scanner, token: Token) -> Diagnostic {
        let problem = format!("the {what} {} {}", Shown(scanner.text_of(token)), self.problem());
        Diagnostic::error(scanner.position_of(token), problem, self.remedy())
    }

    /// The end of a sentence that starts with the name.
    fn problem(self) -> &'static str {
        match self {
            NameTextError::EmptyLabel => "has an empty label",
            NameTextError::LongLabel => "has a label of more than 63 octets",
            NameTextError::LongName => "is longer than 255 octets, its origin included",
            NameTextError::Escape => "has an escape that is no octet",
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            NameTextError::EmptyLabel => "write one dot between two labels, and none before the first",
            NameTextError::LongLabel => "shorten the label, or cut it with a dot",
            NameTextError::LongName => "shorten the name, or end it with a dot if it is absolute",
            NameTextError::Escape => "write three decimal digits, \\000 to \\255, or \\\\ for a backslash",
        }
    }
}

/// How a name was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// With a dot at its end.
    Absolute,
    /// Without: it stands at or below the origin.
    Relative,
}

/// Appends the name that `text` means to `out`; on an error what was appended is rubbish.
pub(super) fn put_name(text: &[u8], form: Form, origin: Name<'_>, out: &mut Vec<u8>) -> Result<Written, NameTextError> {
    if text == b"." {
        out.push(0);
        return Ok(Written::Absolute);
    }
    if text == b"@" && form == Form::Word {
        out.extend_from_slice(origin.as_bytes());
        return Ok(Written::Relative);
    }
    let start = out.len();
    // Shifted by one octet the text is already what the wire form needs: each dot becomes the length of the label behind.
    out.push(0);
    out.extend_from_slice(text);
    let written = match cut_into_labels(&mut out[start..])? {
        Cut::Done(written) => written,
        Cut::Escape => {
            out.truncate(start);
            put_escaped_labels(text, out)?
        }
    };
    if written == Written::Relative {
        out.extend_from_slice(origin.as_bytes());
    }
    if out.len() - start > NAME_BYTES_MAX { Err(NameTextError::LongName) } else { Ok(written) }
}

enum Cut {
    /// There are labels, of an absolute name with the root's.
    Done(Written),
    /// There is a backslash: octets move, and this way cannot be gone.
    Escape,
}

/// Makes labels of `shifted`, which is an octet of no meaning and then text.
fn cut_into_labels(shifted: &mut [u8]) -> Result<Cut, NameTextError> {
    let mut length_at = 0;
    for at in 1..shifted.len() {
        match shifted[at] {
            b'.' => {
                shifted[length_at] = label_length(at - length_at - 1)?;
                length_at = at;
            }
            b'\\' => return Ok(Cut::Escape),
            _ => {}
        }
    }
    let last = shifted.len() - length_at - 1;
    if last == 0 && length_at > 0 {
        // The last dot becomes the length of the root's label.
        shifted[length_at] = 0;
        return Ok(Cut::Done(Written::Absolute));
    }
    shifted[length_at] = label_length(last)?;
    Ok(Cut::Done(Written::Relative))
}

/// Appends the labels of `text`, which has escapes; an absolute name with its root.
fn put_escaped_labels(text: &[u8], out: &mut Vec<u8>) -> Result<Written, NameTextError> {
    let mut rest = text;
    let mut length_at = out.len();
    out.push(0);
    while let Some(split) = scanner::split_octet(rest) {
        let (octet, behind) = split.map_err(|_| NameTextError::Escape)?;
        // A dot is a border only where no backslash stands before it, that is where it is one octet of text.
        if octet == b'.' && rest.len() - behind.len() == 1 {
            out[length_at] = label_length(out.len() - length_at - 1)?;
            length_at = out.len();
            out.push(0);
        } else {
            out.push(octet);
        }
        rest = behind;
    }
    let last = out.len() - length_at - 1;
    if last == 0 {
        // Behind the last dot is the root; a label stands before it, or its length would have been refused.
        return Ok(Written::Absolute);
    }
    out[length_at] = label_length(last)?;
    Ok(Written::Relative)
}

fn label_length(length_bytes: usize) -> Result<u8, NameTextError> {
    match length_bytes {
        0 => Err(NameTextError::EmptyLabel),
        1..=LABEL_BYTES_MAX => Ok(length_bytes as u8),
        _ => Err(NameTextError::LongLabel),
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
        let result = put_name(text.as_bytes(), Form::Word, origin, &mut out);
        let name = result.map(|_| Name::parse(&out[1..]).expect("a name").to_string());
        assert_eq!(name, expected.map(String::from), "{text}");
    }

    #[test]
    fn names() {
        check("@", Ok("example."));
        check(".", Ok("."));
        check("a", Ok("a.example."));
        check("a.b", Ok("a.b.example."));
        check("a.b.", Ok("a.b."));
        check("*", Ok("*.example."));
        check("\\@", Ok("\\@.example."));
        check("a\\.b.c", Ok("a\\.b.c.example."));
        check("a\\046b.c.", Ok("a\\.b.c."));
        check("\\097.", Ok("a."));
        check("\\000", Ok("\\000.example."));
        check("ü", Ok("\\195\\188.example."));
    }

    #[test]
    fn no_names() {
        use NameTextError::{EmptyLabel, Escape, LongLabel, LongName};
        for text in ["", "..", ".a", "a..b", "a..", "\\097..", ".\\097"] {
            check(text, Err(EmptyLabel));
        }
        check("\\256", Err(Escape));
        check("\\25", Err(Escape));
        check("\\300", Err(Escape));
        let label = "a".repeat(63);
        check(&label, Ok(&alloc::format!("{label}.example.")));
        check(&"a".repeat(64), Err(LongLabel));
        check(&("\\a".repeat(64)), Err(LongLabel));
        check(&[&label[..]; 4].join("."), Err(LongName));
        check(&"a.".repeat(127), Ok(&"a.".repeat(127)));
        check(&"a.".repeat(128), Err(LongName));
    }

    #[test]
    fn a_quoted_at_sign_is_a_label() {
        let mut out = vec![];
        put_name(b"@", Form::Quoted, Name::ROOT, &mut out).expect("a name");
        assert_eq!(out, b"\x01@\0");
    }
}
