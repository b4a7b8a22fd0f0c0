//! Parses nsd.conf: sections, and below each of them attributes with their values, usually one on each line.

use crate::syntax::{Cursor, Statement, SyntaxError, Word};

const SECTIONS: [&str; 8] = ["server", "remote-control", "verify", "key", "pattern", "zone", "tls-auth", "dnstap"];

/// Parses the text of the file with this index.
pub(crate) fn parse(text: &str, file: usize, _is_nested: bool) -> Result<Vec<Statement>, SyntaxError> {
    let mut cursor = Cursor::new(text, file);
    let mut sections: Vec<Statement> = Vec::new();
    let mut attribute: Option<Statement> = None;
    loop {
        cursor.take_while(char::is_whitespace);
        let at = cursor.at();
        match cursor.peek() {
            None => break,
            Some('#') => {
                cursor.take_line();
            }
            Some(quote @ ('"' | '\'')) => {
                cursor.next();
                let text = cursor.take_while(|next| next != quote && next != '\n').to_owned();
                if cursor.next() != Some(quote) {
                    return Cursor::error(at, "the quotation is not closed");
                }
                add_value(&mut attribute, Word { text, at })?;
            }
            Some(_) => {
                let text = cursor.take_while(|next| !next.is_whitespace() && next != '#').to_owned();
                match name_of(&text) {
                    Some(name) => {
                        finish(&mut attribute, &mut sections);
                        attribute = Some(Statement::new(Word { text: name.to_owned(), at }));
                        begin_section(&mut attribute, &mut sections);
                    }
                    None => add_value(&mut attribute, Word { text, at })?,
                }
            }
        }
    }
    finish(&mut attribute, &mut sections);
    Ok(sections)
}

/// The name in `name:`. An address such as `2001:db8::` is a value.
fn name_of(text: &str) -> Option<&str> {
    let name = text.strip_suffix(':')?;
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    (!name.is_empty() && name.bytes().all(is_name) && name.starts_with(|first: char| first.is_ascii_lowercase()))
        .then_some(name)
}

/// Begins a section if the attribute is its name.
fn begin_section(attribute: &mut Option<Statement>, sections: &mut Vec<Statement>) {
    let Some(mut section) = attribute.take_if(|found| SECTIONS.contains(&found.name())) else { return };
    section.blocks.push(Vec::new());
    sections.push(section);
}

/// Ends an attribute.
fn finish(attribute: &mut Option<Statement>, sections: &mut Vec<Statement>) {
    let Some(attribute) = attribute.take() else { return };
    // An included file can begin with attributes of the section that includes it.
    let is_include = attribute.name() == "include";
    match sections.last_mut().and_then(|section| section.blocks.first_mut()) {
        Some(block) if !is_include => block.push(attribute),
        _ => sections.push(attribute),
    }
}

fn add_value(attribute: &mut Option<Statement>, word: Word) -> Result<(), SyntaxError> {
    match attribute {
        Some(attribute) => attribute.arguments.push(word),
        None => return Cursor::error(word.at, format!("`{}` follows no attribute", word.text)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parsers::shown;

    #[test]
    fn sections_have_attributes() {
        for (text, expected) in [
            ("server:\n\tport: 53 # c\nzone:\n  name: \"a.example\"\n", "server [port 53] | zone [name a.example]"),
            ("key: name: k  secret: \"YQ==\"", "key [name k | secret …]"),
            ("zone:\n notify: 2001:db8::1@53 NOKEY", "zone [notify 2001:db8::1@53 NOKEY]"),
            ("zone:\n notify: 2001:db8:: k", "zone [notify 2001:db8:: k]"),
            ("a", "1:1: `a` follows no attribute"),
            ("server:\n identity: \"a", "2:12: the quotation is not closed"),
        ] {
            assert_eq!(shown(parse(text, 0, false)), expected, "{text}");
        }
    }
}
