//! Parses nginx.conf: `name word word;` and `name word { … }`.

use super::parse_blocks;
use crate::syntax::{BLOCK_DEPTH_MAX, Cursor, Statement, SyntaxError, Word};

/// Directives whose block is a program in another language.
const SCRIPTS: [&str; 2] = ["_by_lua_block", "_by_njs_block"];

/// Parses the text of the file with this index.
pub(crate) fn parse(text: &str, file: usize, _is_nested: bool) -> Result<Vec<Statement>, SyntaxError> {
    parse_blocks(text, file, block)
}

/// Statements up to the closing brace, which is left, or the end of the file.
fn block(cursor: &mut Cursor<'_>, depth: usize) -> Result<Vec<Statement>, SyntaxError> {
    let mut statements = Vec::new();
    let mut words: Vec<Word> = Vec::new();
    loop {
        skip_blank(cursor);
        let at = cursor.at();
        match cursor.peek() {
            None | Some('}') => {
                return match words.first() {
                    Some(first) => Cursor::error(first.at, format!("`{}` does not end with a semicolon", first.text)),
                    None => Ok(statements),
                };
            }
            Some(';') => {
                cursor.next();
                statements.extend(statement(&mut words));
            }
            Some('{') => {
                cursor.next();
                let Some(mut statement) = statement(&mut words) else {
                    return Cursor::error(at, "a block without a name");
                };
                if depth == BLOCK_DEPTH_MAX {
                    return Cursor::error(at, format!("blocks are nested more than {BLOCK_DEPTH_MAX} levels deep"));
                }
                if SCRIPTS.iter().any(|end| statement.name().ends_with(end)) {
                    skip_script(cursor);
                    statement.blocks.push(Vec::new());
                } else {
                    statement.blocks.push(block(cursor, depth + 1)?);
                }
                if !cursor.take("}") {
                    return Cursor::error(at, "the brace is not closed");
                }
                statements.push(statement);
            }
            Some(_) => words.push(word(cursor)?),
        }
    }
}

/// The statement with these words, which are taken.
fn statement(words: &mut Vec<Word>) -> Option<Statement> {
    let mut words = std::mem::take(words).into_iter();
    let name = words.next()?;
    Some(Statement { name, arguments: words.collect(), blocks: Vec::new() })
}

fn skip_blank(cursor: &mut Cursor<'_>) {
    loop {
        cursor.take_while(char::is_whitespace);
        if cursor.peek() != Some('#') {
            return;
        }
        cursor.take_line();
    }
}

/// Skips a program up to the brace that closes it, which is left.
fn skip_script(cursor: &mut Cursor<'_>) {
    let mut open_count = 0_usize;
    while let Some(next) = cursor.peek() {
        match next {
            '{' => open_count += 1,
            '}' if open_count == 0 => return,
            '}' => open_count -= 1,
            _ => {}
        }
        cursor.next();
    }
}

fn word(cursor: &mut Cursor<'_>) -> Result<Word, SyntaxError> {
    let at = cursor.at();
    let mut text = String::new();
    if let Some(quote) = cursor.peek().filter(|next| matches!(next, '"' | '\'')) {
        cursor.next();
        loop {
            match cursor.next() {
                None => return Cursor::error(at, "the quotation is not closed"),
                Some('\\') => escaped(cursor, &mut text),
                Some(next) if next == quote => return Ok(Word { text, at }),
                Some(next) => text.push(next),
            }
        }
    }
    while let Some(next) = cursor.peek() {
        match next {
            '\\' => {
                cursor.next();
                escaped(cursor, &mut text);
            }
            '$' => {
                text.push('$');
                cursor.next();
                // `${name}` is a variable, not a block.
                if cursor.peek() == Some('{') {
                    text.push_str(cursor.take_while(|next| next != '}' && !next.is_whitespace()));
                    text.extend(cursor.take("}").then_some('}'));
                }
            }
            ';' | '{' => break,
            next if next.is_whitespace() => break,
            next => {
                text.push(next);
                cursor.next();
            }
        }
    }
    Ok(Word { text, at })
}

/// The character after a backslash. Only quotes, a backslash and controls lose it: others belong to a regular
/// expression.
fn escaped(cursor: &mut Cursor<'_>, text: &mut String) {
    match cursor.next() {
        Some(next @ ('"' | '\'' | '\\')) => text.push(next),
        Some('t') => text.push('\t'),
        Some('n') => text.push('\n'),
        Some(next) => text.extend(['\\', next]),
        None => text.push('\\'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parsers::shown;

    #[test]
    fn statements_have_words_and_blocks() {
        for (text, expected) in [
            ("user www; # a comment\nworker_processes  2;", "user www | worker_processes 2"),
            ("add_header X \"a; \\\"b\\\" {c}\" always;", "add_header X a; \"b\" {c} always"),
            ("location ~ \\.php$ { deny all; }", "location ~ \\.php$ [deny all]"),
            ("root ${base}/www;", "root ${base}/www"),
            ("content_by_lua_block { if a then b = {1} end } a;", "content_by_lua_block [] | a"),
            ("a", "1:1: `a` does not end with a semicolon"),
            ("a {\n b;", "1:3: the brace is not closed"),
            ("a; }", "1:4: a closing brace without an opening one"),
            (" { }", "1:2: a block without a name"),
            ("a 'b", "1:3: the quotation is not closed"),
        ] {
            assert_eq!(shown(parse(text, 0, false)), expected, "{text}");
        }
        let nested = shown(parse(&"a {".repeat(BLOCK_DEPTH_MAX + 1), 0, false));
        assert!(nested.contains("nested more than 64 levels"), "{nested}");
    }

    #[test]
    fn words_have_their_place() {
        let statements = parse("a {\n  b c;\n}", 3, false).expect("parsed");
        let at = statements[0].block()[0].arguments[0].at;
        assert_eq!((at.file, at.line, at.column), (3, 2, 5));
    }
}
