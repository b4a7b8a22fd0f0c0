//! The syntax that all formats have in common: statements with words and blocks, each with its place.

use std::borrow::Cow;
use std::fmt;

/// Blocks within blocks. nginx, Caddy and BIND need fewer than ten.
pub(crate) const BLOCK_DEPTH_MAX: usize = 64;

/// A place in one of the files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Position {
    /// The index of the file.
    pub(crate) file: usize,
    /// From 1.
    pub(crate) line: u32,
    /// From 1, in bytes.
    pub(crate) column: u32,
}

/// A word, without its quotes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) text: String,
    pub(crate) at: Position,
}

/// A directive with its arguments, and the statements in its braces or below its heading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Statement {
    pub(crate) name: Word,
    pub(crate) arguments: Vec<Word>,
    /// Statements of named.conf can have several.
    pub(crate) blocks: Vec<Vec<Statement>>,
}

/// A file that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SyntaxError {
    pub(crate) at: Position,
    pub(crate) message: String,
}

impl Statement {
    /// A statement with this name.
    pub(crate) fn new(name: Word) -> Statement {
        Statement { name, ..Statement::default() }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name.text
    }

    /// The argument at `index`; empty without it.
    pub(crate) fn argument(&self, index: usize) -> &str {
        self.arguments.get(index).map_or("", |word| &word.text)
    }

    pub(crate) fn texts(&self) -> Vec<&str> {
        self.arguments.iter().map(|word| word.text.as_str()).collect()
    }

    /// The statements of its first block.
    pub(crate) fn block(&self) -> &[Statement] {
        self.blocks.first().map_or(&[], Vec::as_slice)
    }

    /// The statements of all blocks.
    pub(crate) fn nested(&self) -> impl Iterator<Item = &Statement> {
        self.blocks.iter().flatten()
    }

    /// The first statement of its blocks with this name.
    pub(crate) fn find(&self, name: &str) -> Option<&Statement> {
        self.nested().find(|statement| statement.name() == name)
    }
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: {}", self.at.line, self.at.column, printable(&self.message))
    }
}

impl fmt::Display for Statement {
    /// The statement on one line, without the content of its blocks.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = std::iter::once(&self.name).chain(&self.arguments);
        let mut words: Vec<&str> = words.map(|word| word.text.as_str()).filter(|text| !text.is_empty()).collect();
        let shown = words.iter().take(WORDS_BEFORE_SECRETS_MAX).position(|word| is_before_secret(word));
        if let Some(at) = shown.filter(|at| at + 1 < words.len()) {
            // The provider of `dns` is none.
            let count = at + 1 + usize::from(words[at].ends_with("dns"));
            words.truncate(count);
            words.push("…");
        }
        let text = words.join(" ").replace(['\n', '\r'], " ");
        out.write_str(&shortened(&printable(&text)))?;
        if self.blocks.is_empty() { Ok(()) } else { out.write_str(" { … }") }
    }
}

/// Words of a statement among which one that precedes secrets is looked for.
const WORDS_BEFORE_SECRETS_MAX: usize = 3;

/// Whether the next words of a statement may be secrets: tokens of a DNS provider, keys of an authority, passwords.
fn is_before_secret(word: &str) -> bool {
    const WORDS: [&str; 7] = ["dns", "acme_dns", "eab", "issuer", "cert_issuer", "secret", "authorization"];
    WORDS.contains(&&*word.to_ascii_lowercase())
}

/// Whether a character has an effect on a terminal or on the order of others on a line: controls, the ends of lines
/// among them, and those of bidirectional text (UAX #9).
pub(crate) fn has_effect(character: char) -> bool {
    let is_bidirectional =
        matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    character.is_control() || is_bidirectional
}

/// The text for one line of the report or of a comment.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(has_effect) {
        return Cow::Borrowed(text);
    }
    let one = |next: char| if has_effect(next) { next.escape_unicode().to_string() } else { next.to_string() };
    Cow::Owned(text.chars().map(one).collect())
}

/// The start of a text that is too long for a line of the report.
fn shortened(text: &str) -> String {
    const CHARACTERS_MAX: usize = 80;
    if text.chars().count() <= CHARACTERS_MAX {
        return text.to_owned();
    }
    text.chars().take(CHARACTERS_MAX - 1).chain(['…']).collect()
}

/// The bytes of a file, read one by one with their places.
pub(crate) struct Cursor<'t> {
    text: &'t str,
    offset: usize,
    at: Position,
}

impl<'t> Cursor<'t> {
    pub(crate) fn new(text: &'t str, file: usize) -> Cursor<'t> {
        Cursor { text: text.trim_start_matches('\u{feff}'), offset: 0, at: Position { file, line: 1, column: 1 } }
    }

    pub(crate) fn at(&self) -> Position {
        self.at
    }

    /// The text that has not been read.
    pub(crate) fn rest(&self) -> &'t str {
        &self.text[self.offset..]
    }

    pub(crate) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub(crate) fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.offset += next.len_utf8();
        if next == '\n' {
            self.at.line = self.at.line.saturating_add(1);
            self.at.column = 1;
        } else {
            self.at.column = self.at.column.saturating_add(next.len_utf8() as u32);
        }
        Some(next)
    }

    /// Reads `text` if it is next.
    pub(crate) fn take(&mut self, text: &str) -> bool {
        let is_next = self.rest().starts_with(text);
        if is_next {
            for _ in text.chars() {
                self.next();
            }
        }
        is_next
    }

    /// Reads while `is_part` holds.
    pub(crate) fn take_while(&mut self, is_part: impl Fn(char) -> bool) -> &'t str {
        let start = self.offset;
        while self.peek().is_some_and(&is_part) {
            self.next();
        }
        &self.text[start..self.offset]
    }

    /// Reads to the end of the line, which is left.
    pub(crate) fn take_line(&mut self) -> &'t str {
        self.take_while(|next| next != '\n')
    }

    /// Reads up to the quotation mark that ends a quotation on this line, which began at `at`. A backslash makes the
    /// next character a part of it.
    pub(crate) fn take_quoted(&mut self, at: Position) -> Result<String, SyntaxError> {
        let mut text = String::new();
        loop {
            match self.next() {
                None | Some('\n') => return Cursor::error(at, "the quotation is not closed"),
                Some('"') => return Ok(text),
                Some('\\') => text.extend(self.next()),
                Some(next) => text.push(next),
            }
        }
    }

    /// The error `message` at `at`.
    pub(crate) fn error<T>(at: Position, message: impl Into<String>) -> Result<T, SyntaxError> {
        Err(SyntaxError { at, message: message.into() })
    }
}
