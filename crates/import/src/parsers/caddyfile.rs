//! Parses a Caddyfile: a directive on each line, with a block if the line ends with a brace.
//!
//! The options before the sites are a statement without a name. A site is a statement whose name and arguments are its
//! addresses.

use crate::syntax::{BLOCK_DEPTH_MAX, Cursor, Position, Statement, SyntaxError, Word};

/// A word, and whether a line ends before it.
struct Token {
    word: Word,
    is_first_of_line: bool,
    is_quoted: bool,
}

impl Token {
    fn is(&self, text: &str) -> bool {
        self.word.text == text && !self.is_quoted
    }
}

/// The tokens that have not been parsed.
struct Tokens {
    tokens: std::iter::Peekable<std::vec::IntoIter<Token>>,
}

/// Parses the text of the file with this index.
///
/// With `is_nested` it is one that is imported into a site, and has directives.
pub(crate) fn parse(text: &str, file: usize, is_nested: bool) -> Result<Vec<Statement>, SyntaxError> {
    let tokens = tokens(text, file)?;
    let mut tokens = Tokens { tokens: tokens.into_iter().peekable() };
    if is_nested {
        let statements = tokens.statements(0)?;
        return match tokens.tokens.next() {
            Some(brace) => Cursor::error(brace.word.at, "a closing brace without an opening one"),
            None => Ok(statements),
        };
    }
    let mut statements = Vec::new();
    while let Some(first) = tokens.tokens.next() {
        if first.is("{") {
            let block = tokens.block(first.word.at, 0)?;
            let mut options = Statement::new(Word { text: String::new(), at: first.word.at });
            options.blocks.push(block);
            statements.push(options);
            continue;
        }
        if first.is("}") {
            return Cursor::error(first.word.at, "a closing brace without an opening one");
        }
        let mut site = Statement::new(first.word);
        if site.name() == "import" {
            let rest = std::iter::from_fn(|| tokens.tokens.next_if(|token| !token.is_first_of_line));
            site.arguments = rest.map(|token| token.word).collect();
            statements.push(site);
            continue;
        }
        if !tokens.addresses(&mut site) {
            // A file with one site needs no braces.
            site.blocks.push(tokens.statements(0)?);
            if let Some(brace) = tokens.tokens.next() {
                return Cursor::error(brace.word.at, "a closing brace without an opening one");
            }
        } else {
            let at = site.name.at;
            site.blocks.push(tokens.block(at, 0)?);
        }
        strip_commas(&mut site);
        statements.push(site);
    }
    Ok(statements)
}

/// Addresses may have commas between them.
fn strip_commas(site: &mut Statement) {
    for word in std::iter::once(&mut site.name).chain(&mut site.arguments) {
        word.text = word.text.trim_end_matches(',').to_owned();
    }
    let mut split = Vec::new();
    for word in site.arguments.drain(..) {
        split.extend(
            word.text
                .split(',')
                .filter(|text| !text.is_empty())
                .map(|text| Word { text: text.to_owned(), at: word.at }),
        );
    }
    site.arguments = split;
}

impl Tokens {
    /// The other addresses of a site; whether its block follows, whose brace is taken.
    fn addresses(&mut self, site: &mut Statement) -> bool {
        let mut goes_on = site.name.text.ends_with(',');
        while let Some(token) = self.tokens.peek() {
            if token.is("{") {
                self.tokens.next();
                return true;
            }
            if token.is_first_of_line && !goes_on {
                return false;
            }
            goes_on = token.word.text.ends_with(',');
            site.arguments.extend(self.tokens.next().map(|token| token.word));
        }
        false
    }

    /// The statements of a block whose opening brace, at `at`, was taken, and its closing one.
    fn block(&mut self, at: Position, depth: usize) -> Result<Vec<Statement>, SyntaxError> {
        if depth == BLOCK_DEPTH_MAX {
            return Cursor::error(at, format!("blocks are nested more than {BLOCK_DEPTH_MAX} levels deep"));
        }
        let statements = self.statements(depth)?;
        match self.tokens.next() {
            Some(_) => Ok(statements),
            None => Cursor::error(at, "the brace is not closed"),
        }
    }

    /// Statements up to a closing brace, which is left, or the end of the file.
    fn statements(&mut self, depth: usize) -> Result<Vec<Statement>, SyntaxError> {
        let mut statements = Vec::new();
        while let Some(first) = self.tokens.next_if(|token| !token.is("}")) {
            let at = first.word.at;
            let mut statement = Statement::new(first.word);
            while let Some(token) = self.tokens.next_if(|token| !token.is_first_of_line && !token.is("}")) {
                let ends_line = self.tokens.peek().is_none_or(|next| next.is_first_of_line || next.is("}"));
                if token.is("{") && ends_line {
                    statement.blocks.push(self.block(at, depth + 1)?);
                    break;
                }
                statement.arguments.push(token.word);
            }
            statements.push(statement);
        }
        Ok(statements)
    }
}

fn tokens(text: &str, file: usize) -> Result<Vec<Token>, SyntaxError> {
    let mut cursor = Cursor::new(text, file);
    let mut tokens = Vec::new();
    let mut is_first_of_line = true;
    loop {
        match cursor.peek() {
            None => return Ok(tokens),
            Some('\n') => {
                is_first_of_line = true;
                cursor.next();
            }
            Some('#') => drop(cursor.take_line()),
            Some('\\') if is_continuation(&cursor) => {
                cursor.take_while(|next| next != '\n');
                cursor.next();
            }
            Some(next) if next.is_whitespace() => drop(cursor.next()),
            Some(next) => {
                let at = cursor.at();
                let text = word(&mut cursor)?;
                let is_quoted = matches!(next, '"' | '`');
                tokens.push(Token { word: Word { text, at }, is_first_of_line, is_quoted });
                is_first_of_line = false;
            }
        }
    }
}

/// Whether a backslash ends the line.
fn is_continuation(cursor: &Cursor<'_>) -> bool {
    let rest = &cursor.rest()[1..];
    rest.starts_with('\n') || rest.starts_with("\r\n")
}

fn word(cursor: &mut Cursor<'_>) -> Result<String, SyntaxError> {
    let at = cursor.at();
    let mut text = String::new();
    if let Some(quote) = cursor.peek().filter(|next| matches!(next, '"' | '`')) {
        cursor.next();
        loop {
            match cursor.next() {
                None => return Cursor::error(at, "the quotation is not closed"),
                Some(next) if next == quote => return Ok(text),
                Some('\\') if quote == '"' && cursor.peek() == Some('"') => text.extend(cursor.next()),
                Some(next) => text.push(next),
            }
        }
    }
    let marker = cursor.rest().strip_prefix("<<").map(|rest| rest.split(char::is_whitespace).next().unwrap_or(""));
    if let Some(marker) = marker.filter(|marker| !marker.is_empty() && marker.chars().all(char::is_alphanumeric)) {
        return heredoc(cursor, marker);
    }
    while let Some(next) = cursor.peek().filter(|next| !next.is_whitespace()) {
        cursor.next();
        let escapes = next == '\\' && cursor.peek().is_some_and(|next| matches!(next, '{' | '}' | '"' | '`'));
        if escapes { text.extend(cursor.next()) } else { text.push(next) }
    }
    Ok(text)
}

/// The lines up to one that begins with `marker`, without the indentation of that line.
fn heredoc(cursor: &mut Cursor<'_>, marker: &str) -> Result<String, SyntaxError> {
    let at = cursor.at();
    cursor.take_line();
    let mut lines: Vec<&str> = Vec::new();
    loop {
        if cursor.next().is_none() {
            return Cursor::error(at, format!("the text does not end with a line {marker}"));
        }
        let indentation = cursor.take_while(|next| next != '\n' && next.is_whitespace());
        if cursor.take(marker) {
            let lines = lines.iter().map(|line| line.strip_prefix(indentation).unwrap_or(line));
            return Ok(lines.collect::<Vec<_>>().join("\n"));
        }
        lines.push(cursor.take_line());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parsers::shown;

    #[test]
    fn sites_have_addresses_and_directives() {
        for (text, expected) in [
            ("a.example {\n\troot * /srv # c\n}\n", "a.example [root * /srv]"),
            ("a.example, b.example,\nc.example {\n\tlog\n}", "a.example b.example c.example [log]"),
            ("a.example\nfile_server\nencode gzip", "a.example [file_server | encode gzip]"),
            ("{\n\temail a@b.example\n}\n:80 {\n}", " [email a@b.example] | :80 []"),
            ("a {\n\thandle /b {\n\t\tredir /c\n\t}\n}", "a [handle /b [redir /c]]"),
            ("a {\n\trespond \"x } {\" 200\n}", "a [respond x } { 200]"),
            ("a {\n\tredir https://b{uri}\n}", "a [redir https://b{uri}]"),
            ("a {\n\theader \\\n\t\tX 1\n}", "a [header X 1]"),
            ("a {\n\trespond <<END\n\t\tone\n\t\tEND 200\n}", "a [respond one 200]"),
            ("(s) {\n\tlog\n}\na {\n\timport s\n}", "(s) [log] | a [import s]"),
            ("import sites/*\na {\n}", "import sites/* | a []"),
            ("a {\n", "1:1: the brace is not closed"),
            ("a {\n}\n}", "3:1: a closing brace without an opening one"),
            ("a {\n\tb \"c\n}", "2:4: the quotation is not closed"),
            ("a {\n\tb <<END\n}", "2:4: the text does not end with a line END"),
        ] {
            assert_eq!(shown(parse(text, 0, false)), expected, "{text}");
        }
    }
}
