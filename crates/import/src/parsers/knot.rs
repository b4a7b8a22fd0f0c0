//! Parses knot.conf: sections with attributes, some of which are lists of items that begin with a hyphen.
//!
//! A section is a statement with a block. An item is a statement with its first attribute, and the others in its block.

use crate::syntax::{Cursor, Statement, SyntaxError, Word};

/// Parses the text of the file with this index.
pub(crate) fn parse(text: &str, file: usize, _is_nested: bool) -> Result<Vec<Statement>, SyntaxError> {
    let mut cursor = Cursor::new(text, file);
    let mut sections: Vec<Statement> = Vec::new();
    loop {
        let indentation = cursor.take_while(|next| next == ' ' || next == '\t');
        match cursor.peek() {
            None => return Ok(sections),
            Some('\n' | '\r' | '#') => {
                cursor.take_line();
                cursor.next();
            }
            Some(_) => line(&mut cursor, !indentation.is_empty(), &mut sections)?,
        }
    }
}

/// A line that is not empty.
fn line(cursor: &mut Cursor<'_>, is_indented: bool, sections: &mut Vec<Statement>) -> Result<(), SyntaxError> {
    let is_item = cursor.take("-");
    cursor.take_while(|next| next == ' ' || next == '\t');
    let mut statement = attribute(cursor)?;
    let at = statement.name.at;
    if !is_indented && !is_item {
        // `include: FILE` is not a section.
        if statement.arguments.is_empty() {
            statement.blocks.push(Vec::new());
        }
        sections.push(statement);
        return Ok(());
    }
    let Some(block) = sections.last_mut().and_then(|section| section.blocks.first_mut()) else {
        return Cursor::error(at, format!("`{}` is in no section", statement.name()));
    };
    if is_item {
        statement.blocks.push(Vec::new());
        block.push(statement);
        return Ok(());
    }
    match block.last_mut().and_then(|item| item.blocks.first_mut()) {
        Some(item) => item.push(statement),
        None => block.push(statement),
    }
    Ok(())
}

/// `name: value` with its values, and the end of its line.
fn attribute(cursor: &mut Cursor<'_>) -> Result<Statement, SyntaxError> {
    let at = cursor.at();
    let text = cursor.take_while(|next| !next.is_whitespace() && next != ':' && next != '#');
    if text.is_empty() || !cursor.take(":") {
        return Cursor::error(at, format!("`{text}` is not followed by a colon"));
    }
    let mut statement = Statement::new(Word { text: text.to_owned(), at });
    let mut is_list = false;
    loop {
        cursor.take_while(|next| (next.is_whitespace() && next != '\n') || (is_list && (next == '\n' || next == ',')));
        let at = cursor.at();
        match cursor.peek() {
            Some('#') => drop(cursor.take_line()),
            None if is_list => return Cursor::error(statement.name.at, "the list is not closed"),
            None => return Ok(statement),
            Some('\n') => {
                cursor.next();
                return Ok(statement);
            }
            Some('[') if !is_list => {
                cursor.next();
                is_list = true;
            }
            Some(']') if is_list => {
                cursor.next();
                is_list = false;
            }
            Some('"') => {
                cursor.next();
                statement.arguments.push(Word { text: cursor.take_quoted(at)?, at });
            }
            Some(_) => {
                let is_part =
                    |next: char| !next.is_whitespace() && next != '#' && !(is_list && (next == ',' || next == ']'));
                let text = cursor.take_while(is_part).to_owned();
                statement.arguments.push(Word { text, at });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parsers::shown;

    #[test]
    fn sections_have_attributes_or_items() {
        for (text, expected) in [
            ("server:\n    listen: [ 0.0.0.0@53, ::@53 ] # c\n", "server [listen 0.0.0.0@53 ::@53]"),
            (
                "zone:\n  - domain: a.example\n    file: \"a b\"\n  - domain: b.example\n",
                "zone [domain a.example [file a b] | domain b.example []]",
            ),
            ("zone:\n- domain: a\n  acl: [x,\n y]\n", "zone [domain a [acl x y]]"),
            ("\n# c\n\nlog:\n  - target: syslog\n    any: info", "log [target syslog [any info]]"),
            ("include: \"a.conf\"\n", "include a.conf"),
            ("server:\n  a:\u{b}\u{3000}b\n", "server [a b]"),
            ("server:\n  listen [", "2:3: `listen` is not followed by a colon"),
            ("server:\n  listen: [ a", "2:3: the list is not closed"),
            ("server:\n  nsid: \"a", "2:9: the quotation is not closed"),
            ("  a: b", "1:3: `a` is in no section"),
        ] {
            assert_eq!(shown(parse(text, 0, false)), expected, "{text}");
        }
    }
}
