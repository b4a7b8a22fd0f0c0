//! Parses the text of a format.

use crate::escape::Escape;
use crate::http_record::HttpRecord;
use crate::http_variable::HttpVariable;
use crate::timestamp::Timestamp;
use crate::variable::{SHARED_VARIABLES, SharedVariable, Variable};
use std::fmt;

/// Bytes of a format; a longer one is an error.
const FORMAT_BYTES_MAX: usize = 4096;

/// The usual size of the texts between variables.
const SHORT_TEXT_BYTES: usize = 16;

/// The format of a log whose variables are `V`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format<V> {
    parts: Vec<Part<V>>,
    escape: Escape,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part<V> {
    Text(Vec<u8>),
    /// A text of at most [`SHORT_TEXT_BYTES`], filled up with zeros: it is copied without a call.
    ShortText([u8; SHORT_TEXT_BYTES], usize),
    Shared(SharedVariable),
    Own(V),
}

/// The reason why a text is not a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FormatError {
    /// There is no such variable.
    UnknownVariable(String),
    /// A `$` without a name after it.
    NoName,
    /// `${` without `}`.
    NoEnd,
    /// A line break or another control character.
    ControlCharacter,
    /// No variable at all.
    NoVariable,
    /// The format is too long.
    TooLong,
}

impl<V: Variable> Format<V> {
    /// The preset of this name, or a format with variables such as `$status` or `${status}`; `$$` is a dollar sign.
    /// Values in a format that begins with `{` are escaped as in strings of JSON.
    ///
    /// # Errors
    /// Returns the problem.
    pub fn parse(text: &str) -> Result<Format<V>, FormatError> {
        let text = V::PRESETS.iter().find(|(name, _)| *name == text).map_or(text, |(_, preset)| preset);
        if text.len() > FORMAT_BYTES_MAX {
            return Err(FormatError::TooLong);
        }
        if text.chars().any(|character| character.is_control() && character != '\t') {
            return Err(FormatError::ControlCharacter);
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            push_text(&mut parts, before);
            rest = match after.strip_prefix('$') {
                Some(after) => {
                    push_text(&mut parts, "$");
                    after
                }
                None => {
                    let (name, after) = split_name(after)?;
                    let shared = SharedVariable::from_name(name).map(Part::Shared);
                    let variable = shared.or_else(|| V::from_name(name).map(Part::Own));
                    parts.push(variable.ok_or_else(|| FormatError::UnknownVariable(name.to_owned()))?);
                    after
                }
            };
        }
        push_text(&mut parts, rest);
        if parts.iter().all(|part| matches!(part, Part::Text(_))) {
            return Err(FormatError::NoVariable);
        }
        for part in &mut parts {
            if let Part::Text(text) = part
                && text.len() <= SHORT_TEXT_BYTES
            {
                let mut short = [0; SHORT_TEXT_BYTES];
                short[..text.len()].copy_from_slice(text);
                *part = Part::ShortText(short, text.len());
            }
        }
        let escape = if text.starts_with('{') { Escape::Json } else { Escape::Text };
        Ok(Format { parts, escape })
    }

    /// Appends the line of `record`, with a line feed at its end.
    pub(crate) fn write(&self, record: &V::Record<'_>, time: &Timestamp, out: &mut Vec<u8>) {
        for part in &self.parts {
            match part {
                Part::Text(text) => out.extend_from_slice(text),
                Part::ShortText(text, length) => {
                    let end = out.len() + length;
                    out.extend_from_slice(text);
                    out.truncate(end);
                }
                Part::Shared(variable) => variable.write(record, time, out),
                Part::Own(variable) => variable.write(record, self.escape, out),
            }
        }
        out.push(b'\n');
    }

    /// The names of the presets.
    pub fn preset_names() -> impl Iterator<Item = &'static str> {
        V::PRESETS.iter().map(|(name, _)| *name)
    }

    /// The fixed names of variables.
    pub fn variable_names() -> impl Iterator<Item = &'static str> {
        let own_names = V::VARIABLES.iter().map(|(name, ..)| *name);
        SHARED_VARIABLES.iter().map(|(name, ..)| *name).chain(own_names)
    }
}

impl Format<HttpVariable> {
    /// The field lines of `record` that a log line needs.
    pub(crate) fn needed_fields(&self, record: &HttpRecord<'_>) -> Vec<u8> {
        let mut lines = Vec::new();
        for part in &self.parts {
            let Part::Own(variable) = part else { continue };
            if let Some((name, value)) = variable.field().and_then(|name| Some((name, record.field(name)?))) {
                for part in [name, b":", value, b"\r\n"] {
                    lines.extend_from_slice(part);
                }
            }
        }
        lines
    }
}

fn push_text<V>(parts: &mut Vec<Part<V>>, text: &str) {
    match parts.last_mut() {
        _ if text.is_empty() => {}
        Some(Part::Text(last)) => last.extend_from_slice(text.as_bytes()),
        _ => parts.push(Part::Text(text.as_bytes().to_vec())),
    }
}

/// Splits `NAME` or `{NAME}` off the text after a `$`.
fn split_name(text: &str) -> Result<(&str, &str), FormatError> {
    if let Some(text) = text.strip_prefix('{') {
        return text.split_once('}').ok_or(FormatError::NoEnd);
    }
    let is_end = |character: char| !character.is_ascii_alphanumeric() && character != '_';
    match text.split_at(text.find(is_end).unwrap_or(text.len())) {
        ("", _) => Err(FormatError::NoName),
        parts => Ok(parts),
    }
}

impl fmt::Display for FormatError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FormatError::UnknownVariable(name) => write!(formatter, "there is no variable ${name}"),
            FormatError::NoName => formatter.write_str("no name follows a `$`"),
            FormatError::NoEnd => formatter.write_str("`${` has no `}` after it"),
            FormatError::ControlCharacter => {
                formatter.write_str("it contains a line break or another control character")
            }
            FormatError::NoVariable => formatter.write_str("it is not a preset and contains no variable"),
            FormatError::TooLong => write!(formatter, "it is longer than {FORMAT_BYTES_MAX} bytes"),
        }
    }
}
