//! Variables of the environment in strings of the configuration file: `${NAME}`.

use std::borrow::Cow;

/// The text with the value of each `${NAME}`, whose name consists of capital letters, digits and underscores;
/// `$${NAME}` stands for `${NAME}` itself. Others, such as `${status}` in the format of a log, stay as they are.
///
/// # Errors
/// The name of a variable that `value_of` does not know.
pub(super) fn substitute<'t>(
    text: &'t str,
    value_of: impl Fn(&str) -> Option<String>,
) -> Result<Cow<'t, str>, &'t str> {
    if !text.contains("${") {
        return Ok(Cow::Borrowed(text));
    }
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(start) = rest.find("${") {
        let (before, after) = (&rest[..start], &rest[start + 2..]);
        let name = after.split_once('}').map(|(name, _)| name).filter(|name| is_name(name));
        rest = match (name, before.strip_suffix('$')) {
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
                out.push_str(&value_of(name).ok_or(name)?);
                &after[name.len() + 1..]
            }
        };
    }
    out.push_str(rest);
    Ok(Cow::Owned(out))
}

fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_uppercase() || first == '_')
        && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::substitute;

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
            ("${OTHER}", Err("OTHER")),
        ] {
            assert_eq!(substitute(text, value_of).as_deref().map_err(|name| *name), expected, "{text}");
        }
    }
}
