//! Variables of the environment in strings of the configuration file: `${NAME}`.
//!
//! Only the process that reads the text looks at its environment: see `config_text.rs`.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// The variables that a configuration uses, each with its value.
#[derive(Debug, Default)]
pub(super) struct Variables(BTreeMap<String, String>);

impl Variables {
    /// Adds those in `text` that `value_of` knows.
    pub(super) fn add_from(&mut self, text: &str, value_of: impl Fn(&str) -> Option<String>) {
        let result = substitute(text, |name| {
            if let Some(value) = value_of(name) {
                self.0.insert(name.to_owned(), value);
            }
            // All names are wanted, also those after one that is unknown.
            Some("")
        });
        debug_assert!(result.is_ok());
    }

    /// Adds `name` with its value.
    pub(super) fn insert(&mut self, name: String, value: String) {
        self.0.insert(name, value);
    }

    /// `text` with the values in place of the variables; see [`substitute`].
    pub(super) fn substitute<'t>(&self, text: &'t str) -> Result<Cow<'t, str>, &'t str> {
        substitute(text, |name| self.0.get(name))
    }

    /// Names and values, in the order of the names.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// The value of a variable in the environment of this process; `None` if it is not set, or is not UTF-8.
pub(super) fn of_environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// `text` with the variables of the environment of this process, for a program that reads a single key.
///
/// # Errors
/// The name of a variable that is not set.
pub fn substitute_from_environment(text: &str) -> Result<Cow<'_, str>, &str> {
    substitute(text, of_environment)
}

/// The text with the value of each `${NAME}`, whose name consists of capital letters, digits and underscores;
/// `$${NAME}` stands for `${NAME}` itself. Others, such as `${status}` in the format of a log, stay as they are.
///
/// # Errors
/// The name of a variable that `value_of` does not know.
fn substitute<V: AsRef<str>>(text: &str, mut value_of: impl FnMut(&str) -> Option<V>) -> Result<Cow<'_, str>, &str> {
    if !text.contains("${") {
        return Ok(Cow::Borrowed(text));
    }
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(start) = rest.find("${") {
        let (before, after) = (&rest[..start], &rest[start + 2..]);
        rest = match (leading_name(after), before.strip_suffix('$')) {
            (None, _) => {
                out.push_str(before);
                out.push_str("${");
                after
            }
            (Some(name), Some(before)) => {
                out.push_str(before);
                out.push_str(&format!("${{{name}}}"));
                &after[name.len() + 1..]
            }
            (Some(name), None) => {
                out.push_str(before);
                out.push_str(value_of(name).ok_or(name)?.as_ref());
                &after[name.len() + 1..]
            }
        };
    }
    out.push_str(rest);
    Ok(Cow::Owned(out))
}

/// The text for which [`substitute`] returns `text`, without any variable.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (index, character) in text.char_indices() {
        if text[index..].strip_prefix("${").and_then(leading_name).is_some() {
            out.push('$');
        }
        out.push(character);
    }
    out
}

/// The name of the variable in the text after a `${`.
fn leading_name(after: &str) -> Option<&str> {
    after.split_once('}').map(|(name, _)| name).filter(|name| is_name(name))
}

fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_uppercase() || first == '_')
        && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::{escaped, substitute};

    #[test]
    fn variables_have_their_values() {
        let value_of = |name: &str| (name == "ROOT_1").then(|| "/srv".to_owned());
        for (text, expected) in [
            ("plain $host", Ok("plain $host")),
            ("${ROOT_1}/site", Ok("/srv/site")),
            ("${ROOT_1}${ROOT_1}", Ok("/srv/srv")),
            ("$${ROOT_1} ${ROOT_1}", Ok("${ROOT_1} /srv")),
            ("${status} ${ROOT_1", Ok("${status} ${ROOT_1")),
            ("${} ${1A}", Ok("${} ${1A}")),
            ("$${${ROOT_1}", Ok("$${/srv")),
            ("${OTHER}", Err("OTHER")),
        ] {
            assert_eq!(substitute(text, value_of).as_deref().map_err(|name| *name), expected, "{text}");
            assert_eq!(substitute(&escaped(text), value_of).as_deref(), Ok(text));
        }
    }
}
