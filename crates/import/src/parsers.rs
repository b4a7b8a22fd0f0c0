//! A parser for each format.

pub(crate) mod nginx;
pub(crate) mod caddyfile;
pub(crate) mod named;
pub(crate) mod nsd;
pub(crate) mod knot;

use crate::syntax::{Cursor, Statement, SyntaxError};

/// Parses a text whose blocks are in braces; `block` reads statements up to a closing brace or the end.
fn parse_blocks(
    text: &str,
    file: usize,
    block: fn(&mut Cursor<'_>, usize) -> Result<Vec<Statement>, SyntaxError>,
) -> Result<Vec<Statement>, SyntaxError> {
    let mut cursor = Cursor::new(text, file);
    let statements = block(&mut cursor, 0)?;
    match cursor.peek() {
        Some(_) => Cursor::error(cursor.at(), "a closing brace without an opening one"),
        None => Ok(statements),
    }
}

/// The statements with those in their blocks, or the error.
#[cfg(test)]
fn shown(parsed: Result<Vec<Statement>, SyntaxError>) -> String {
    fn all(statements: &[Statement]) -> String {
        let one = |statement: &Statement| {
            let words = Statement { blocks: Vec::new(), ..statement.clone() };
            let blocks: String = statement.blocks.iter().map(|block| format!(" [{}]", all(block))).collect();
            format!("{words}{blocks}")
        };
        statements.iter().map(one).collect::<Vec<_>>().join(" | ")
    }
    parsed.map_or_else(|error| error.to_string(), |statements| all(&statements))
}
