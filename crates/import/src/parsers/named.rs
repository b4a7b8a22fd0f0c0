//! Parses named.conf: statements that end with a semicolon, with any number of blocks between their words.

use super::parse_blocks;
use crate::syntax::{BLOCK_DEPTH_MAX, Cursor, Statement, SyntaxError, Word};

/// Parses the text of the file with this index.
pub(crate) fn parse(text: &str, file: usize, _is_nested: bool) -> Result<Vec<Statement>, SyntaxError> {
    parse_blocks(text, file, block)
}

/// Statements up to the closing brace, which is left, or the end of the file.
fn block(cursor: &mut Cursor<'_>, depth: usize) -> Result<Vec<Statement>, SyntaxError> {
    let mut statements = Vec::new();
    let mut current: Option<Statement> = None;
    loop {
        skip_blank(cursor)?;
        let at = cursor.at();
        match cursor.peek() {
            None | Some('}') => {
                return match current {
                    Some(Statement { name, .. }) => {
                        Cursor::error(name.at, format!("`{}` does not end with a semicolon", name.text))
                    }
                    None => Ok(statements),
                };
            }
            Some(';') => {
                cursor.next();
                statements.extend(current.take());
            }
            Some('{') => {
                cursor.next();
                if depth == BLOCK_DEPTH_MAX {
                    return Cursor::error(at, format!("blocks are nested more than {BLOCK_DEPTH_MAX} levels deep"));
                }
                let nested = block(cursor, depth + 1)?;
                if !cursor.take("}") {
                    return Cursor::error(at, "the brace is not closed");
                }
                let unnamed = || Statement::new(Word { text: String::new(), at });
                current.get_or_insert_with(unnamed).blocks.push(nested);
            }
            Some(_) => {
                let word = word(cursor)?;
                match &mut current {
                    Some(statement) => statement.arguments.push(word),
                    None => current = Some(Statement::new(word)),
                }
            }
        }
    }
}

fn skip_blank(cursor: &mut Cursor<'_>) -> Result<(), SyntaxError> {
    loop {
        cursor.take_while(char::is_whitespace);
        let at = cursor.at();
        if cursor.rest().starts_with('#') || cursor.rest().starts_with("//") {
            cursor.take_line();
        } else if cursor.take("/*") {
            while !cursor.take("*/") {
                if cursor.next().is_none() {
                    return Cursor::error(at, "the comment is not closed");
                }
            }
        } else {
            return Ok(());
        }
    }
}

fn word(cursor: &mut Cursor<'_>) -> Result<Word, SyntaxError> {
    let at = cursor.at();
    if cursor.take("!") {
        return Ok(Word { text: "!".to_owned(), at });
    }
    if cursor.take("\"") {
        return Ok(Word { text: cursor.take_quoted(at)?, at });
    }
    // A slash begins a comment only with another one or an asterisk: 192.0.2.0/24 is a word.
    let mut text = String::new();
    while let Some(next) = cursor.peek() {
        let is_comment = cursor.rest().starts_with("//") || cursor.rest().starts_with("/*");
        if next.is_whitespace() || matches!(next, ';' | '{' | '}' | '"') || is_comment {
            break;
        }
        text.push(next);
        cursor.next();
    }
    Ok(Word { text, at })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parsers::shown;

    #[test]
    fn statements_have_words_and_blocks() {
        for (text, expected) in [
            ("options { directory \"/var\"; };", "options [directory /var]"),
            ("a 192.0.2.0/24; // b;\n/* c; */ d; # e;", "a 192.0.2.0/24 | d"),
            ("zone \"example.com\" IN { type primary; };", "zone example.com IN [type primary]"),
            ("! 192.0.2.1; !{ a; };", "! 192.0.2.1 | ! [a]"),
            ("{ a; };", " [a]"),
            ("a", "1:1: `a` does not end with a semicolon"),
            ("a { b; ", "1:3: the brace is not closed"),
            ("/* a", "1:1: the comment is not closed"),
            ("a \"b;", "1:3: the quotation is not closed"),
            ("}", "1:1: a closing brace without an opening one"),
        ] {
            assert_eq!(shown(parse(text, 0, false)), expected, "{text}");
        }
    }

    #[test]
    fn statement_can_have_several_blocks() {
        let statements = parse("inet 127.0.0.1 allow { a; } keys { b; };", 0, false).expect("parsed");
        assert_eq!(statements[0].texts(), ["127.0.0.1", "allow", "keys"]);
        assert_eq!(statements[0].nested().map(Statement::name).collect::<Vec<_>>(), ["a", "b"]);
    }
}
