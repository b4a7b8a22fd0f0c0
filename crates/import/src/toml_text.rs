//! Writes values of TOML.

use crate::syntax::has_effect;
use std::fmt;

/// A value of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    Number(u64),
    Boolean(bool),
    List(Vec<Value>),
    Table(Vec<(String, Value)>),
}

impl Value {
    /// A list of strings.
    pub(crate) fn texts<T: Into<String>>(texts: impl IntoIterator<Item = T>) -> Value {
        Value::List(texts.into_iter().map(|text| Value::Text(text.into())).collect())
    }

    /// The text; empty for another value.
    pub(crate) fn text(&self) -> &str {
        match self {
            Value::Text(text) => text,
            _ => "",
        }
    }

    /// A table on one line.
    pub(crate) fn table<const N: usize>(entries: [(&str, Value); N]) -> Value {
        Value::Table(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => out.write_str(&quoted(text)),
            Value::Number(number) => write!(out, "{number}"),
            Value::Boolean(is_true) => write!(out, "{is_true}"),
            Value::List(items) => {
                let items: Vec<String> = items.iter().map(ToString::to_string).collect();
                write!(out, "[{}]", items.join(", "))
            }
            Value::Table(entries) => {
                let one = |(name, value): (&str, &Value)| format!("{} = {value}", key(name));
                let entries = entries.iter().map(|(name, value)| (name.as_str(), value));
                write!(out, "{{ {} }}", last_of_each(entries).map(one).collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// The entries without those whose key has a later one: a source may set a value repeatedly, and the last is valid.
pub(crate) fn last_of_each<'e>(
    entries: impl Iterator<Item = (&'e str, &'e Value)> + Clone,
) -> impl Iterator<Item = (&'e str, &'e Value)> {
    let all = entries.clone();
    entries
        .enumerate()
        .filter(move |(index, (name, _))| all.clone().skip(index + 1).all(|(other, _)| other != *name))
        .map(|(_, entry)| entry)
}

/// A key, in quotes if it needs them.
pub(crate) fn key(text: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if !text.is_empty() && text.bytes().all(is_bare) { text.to_owned() } else { quoted(text) }
}

/// The text of a value that the server reads as `text`, without a variable of the environment (`${NAME}`).
pub(crate) fn without_variables(text: &str) -> String {
    let is_byte = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    let is_variable = |after: &str| after.split_once('}').is_some_and(|(name, _)| name.bytes().all(is_byte));
    let mut parts = text.split("${");
    let mut out = parts.next().unwrap_or("").to_owned();
    for part in parts {
        out.push_str(if is_variable(part) { "$${" } else { "${" });
        out.push_str(part);
    }
    out
}

/// A basic string (TOML 1.0, "String").
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for next in text.chars() {
        match next {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            next if has_effect(next) => out.push_str(&format!("\\u{:04X}", u32::from(next))),
            next => out.push(next),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::{quoted, without_variables};

    #[test]
    fn variables_are_text() {
        for (text, expected) in [
            ("plain $host", "plain $host"),
            ("${HOME}/a", "$${HOME}/a"),
            ("$${A} ${A1_}${b} ${A", "$$${A} $${A1_}${b} ${A"),
        ] {
            assert_eq!(without_variables(text), expected);
        }
    }

    #[test]
    fn characters_with_an_effect_are_escaped() {
        assert_eq!(quoted("a\u{1b}\u{9b}\u{202e}\n\"\\é"), r#""a\u001B\u009B\u202E\n\"\\é""#);
    }
}
