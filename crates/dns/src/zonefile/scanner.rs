//! Turns zone-file text into tokens: words, quoted strings, and the ends of entries (RFC 1035 §5.1).

use super::{Diagnostic, Position};
use alloc::format;
use alloc::vec::Vec;
use core::fmt;

/// What an octet is to the scanner.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Part of a word.
    Word,
    /// A blank; so is the carriage return, because it stands before a line feed or nowhere.
    Blank,
    LineFeed,
    Quote,
    Open,
    Close,
    Comment,
    Escape,
}

static CLASSES: [Class; 256] = {
    let mut classes = [Class::Word; 256];
    classes[b' ' as usize] = Class::Blank;
    classes[b'\t' as usize] = Class::Blank;
    classes[b'\r' as usize] = Class::Blank;
    classes[b'\n' as usize] = Class::LineFeed;
    classes[b'"' as usize] = Class::Quote;
    classes[b'(' as usize] = Class::Open;
    classes[b')' as usize] = Class::Close;
    classes[b';' as usize] = Class::Comment;
    classes[b'\\' as usize] = Class::Escape;
    classes
};

fn class_of(octet: u8) -> Class {
    CLASSES[usize::from(octet)]
}

/// How a token is written.
///
/// It is as wide as its neighbours in [`Token`]: padding behind it would be copied with it, octet by octet, and that
/// makes the processor wait for the store before (0.081 s became 0.066 s for 300,000 records of `examples/zonefile_speed.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Form {
    /// As it is: `@` and `\#` mean something.
    Word,
    /// Between quotes, which are no part of it.
    Quoted,
}

/// A word or a quoted string of the present entry: where it stands in the text, escapes and all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    start: usize,
    end: usize,
    pub(super) form: Form,
}

/// Walks one file, or one line that `$GENERATE` made.
#[derive(Debug)]
pub(super) struct Scanner {
    text: Vec<u8>,
    at: usize,
    line_start: usize,
    position: Position,
    /// Parentheses that are open, the outermost first opened at `opened`.
    open_count: u32,
    opened: Position,
    /// Whether all tokens stand where the directive stands that made the text.
    pinned: bool,
}

impl Scanner {
    /// Scans a file from its start.
    pub(super) fn new(file_index: u32, text: Vec<u8>) -> Scanner {
        let start = Position { file_index, line: 1, column: 1 };
        // Some editors put a byte order mark before UTF-8 text.
        let at = if text.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        Scanner { text, at, line_start: 0, position: start, open_count: 0, opened: start, pinned: false }
    }

    /// Scans what the directive at `position` made.
    pub(super) fn of_generated(position: Position, text: Vec<u8>) -> Scanner {
        Scanner { text, at: 0, line_start: 0, position, open_count: 0, opened: position, pinned: true }
    }

    /// Whether a directive made the text.
    pub(super) fn is_generated(&self) -> bool {
        self.pinned
    }

    /// The text, given back to be filled again.
    pub(super) fn into_text(self) -> Vec<u8> {
        self.text
    }

    /// What a token says, escapes as written.
    pub(super) fn text_of(&self, token: Token) -> &[u8] {
        &self.text[token.start..token.end]
    }

    /// What a token looks like in the file, its quotes included.
    pub(super) fn source_of(&self, token: Token) -> &[u8] {
        match token.form {
            Form::Word => self.text_of(token),
            Form::Quoted => &self.text[token.start - 1..token.end + 1],
        }
    }

    /// Where the scanner stands.
    pub(super) fn position(&self) -> Position {
        self.position_at(self.at)
    }

    /// Where `token` starts.
    pub(super) fn position_of(&self, token: Token) -> Position {
        self.position_at(match token.form {
            Form::Word => token.start,
            Form::Quoted => token.start - 1,
        })
    }

    /// Where the octet `at`, which has been passed, stands. Lines are counted back only here, so that a token costs no
    /// more than two offsets.
    fn position_at(&self, at: usize) -> Position {
        if self.pinned {
            return self.position;
        }
        let mut line = self.position.line;
        let mut line_start = self.line_start;
        while at < line_start {
            line = line.saturating_sub(1);
            let before = &self.text[..line_start - 1];
            line_start = before.iter().rposition(|&octet| octet == b'\n').map_or(0, |line_feed| line_feed + 1);
        }
        let column = u32::try_from(at - line_start).unwrap_or(u32::MAX).saturating_add(1);
        Position { line, column, ..self.position }
    }

    /// Goes to the next entry; says whether it starts with a blank, `None` at the end of the text.
    pub(super) fn next_entry(&mut self) -> Option<Leading> {
        loop {
            let start = self.at;
            self.skip_blanks();
            match self.text.get(self.at).map(|&octet| class_of(octet))? {
                Class::LineFeed => self.pass_line_feed(),
                Class::Comment => self.skip_line(),
                _ if self.at > start => return Some(Leading::Blank),
                _ => return Some(Leading::Token),
            }
        }
    }

    /// The next token of this entry; `None`, again and again, at its end.
    #[inline]
    pub(super) fn token(&mut self) -> Result<Option<Token>, Diagnostic> {
        match self.pass_to_token()? {
            Some(Form::Word) => self.word().map(Some),
            Some(Form::Quoted) => self.quoted().map(Some),
            None => Ok(None),
        }
    }

    /// Goes to the next token of this entry; says how it is written.
    #[inline]
    fn pass_to_token(&mut self) -> Result<Option<Form>, Diagnostic> {
        loop {
            self.skip_blanks();
            let Some(&octet) = self.text.get(self.at) else {
                return if self.open_count == 0 { Ok(None) } else { Err(self.never_closed()) };
            };
            match class_of(octet) {
                Class::Word | Class::Escape => return Ok(Some(Form::Word)),
                Class::Quote => return Ok(Some(Form::Quoted)),
                Class::LineFeed if self.open_count == 0 => return Ok(None),
                Class::LineFeed => self.pass_line_feed(),
                Class::Comment => self.skip_line(),
                Class::Open => {
                    if self.open_count == 0 {
                        self.opened = self.position();
                    }
                    self.open_count = self.open_count.saturating_add(1);
                    self.at += 1;
                }
                Class::Close if self.open_count > 0 => {
                    self.open_count -= 1;
                    self.at += 1;
                }
                Class::Close => {
                    let position = self.position();
                    self.at += 1;
                    return Err(Diagnostic::error(
                        position,
                        "this parenthesis closes none",
                        "take it away, or open one before",
                    ));
                }
                Class::Blank => {}
            }
        }
    }

    /// Takes the marker `\\#` of RFC 3597 §5 if it stands here, unquoted and alone.
    pub(super) fn generic_marker(&mut self) -> Result<Option<Token>, Diagnostic> {
        self.token_if(b"\\#")
    }

    /// Takes a `-` that stands alone; says whether it did.
    pub(super) fn take_dash(&mut self) -> Result<bool, Diagnostic> {
        Ok(self.token_if(b"-")?.is_some())
    }

    /// Takes the next token if it is the word `wanted`.
    fn token_if(&mut self, wanted: &[u8]) -> Result<Option<Token>, Diagnostic> {
        self.pass_to_token()?;
        if !self.text[self.at..].starts_with(wanted) {
            return Ok(None);
        }
        let before = self.at;
        let token = self.word()?;
        if self.text_of(token) == wanted {
            return Ok(Some(token));
        }
        self.at = before;
        Ok(None)
    }

    /// What `token` says behind its first `skipped_bytes`.
    pub(super) fn behind(&self, token: Token, skipped_bytes: usize) -> Token {
        Token { start: token.start + skipped_bytes, ..token }
    }

    /// Whether a quoted string follows at once, without a blank: `alpn="h2"`.
    pub(super) fn stands_at_quote(&self) -> bool {
        self.text.get(self.at) == Some(&b'"')
    }

    /// Goes behind the entry, whatever is left of it; faults in the rest are not reported.
    pub(super) fn skip_entry(&mut self) {
        // Every error is found behind the octet that caused it, so that this ends.
        while !matches!(self.token(), Ok(None)) {}
    }

    #[inline]
    fn skip_blanks(&mut self) {
        while self.text.get(self.at).is_some_and(|&octet| class_of(octet) == Class::Blank) {
            self.at += 1;
        }
    }

    /// Goes to the line feed of this line, or to the end of the text.
    fn skip_line(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.iter().position(|&octet| octet == b'\n').unwrap_or(rest.len());
    }

    fn pass_line_feed(&mut self) {
        self.at += 1;
        if !self.pinned {
            self.line_start = self.at;
            self.position.line = self.position.line.saturating_add(1);
        }
    }

    #[inline]
    fn word(&mut self) -> Result<Token, Diagnostic> {
        let start = self.at;
        let mut at = start;
        while let Some(&octet) = self.text.get(at) {
            match class_of(octet) {
                Class::Word => at += 1,
                Class::Escape => {
                    // Whatever stands behind a backslash is part of the word, but the end of the line is not.
                    if self.text.get(at + 1).is_none_or(|next| matches!(next, b'\n' | b'\r')) {
                        self.at = at + 1;
                        return Err(self.escapes_nothing(at));
                    }
                    at += 2;
                }
                _ => break,
            }
        }
        self.at = at;
        Ok(Token { start, end: at, form: Form::Word })
    }

    fn quoted(&mut self) -> Result<Token, Diagnostic> {
        let start = self.at + 1;
        let mut at = start;
        loop {
            match self.text.get(at) {
                Some(b'"') => break,
                Some(b'\\') if self.text.get(at + 1).is_some_and(|&next| next != b'\n') => at += 2,
                None | Some(b'\n') => {
                    // A string across lines is more often a forgotten quote, which would swallow the records behind it.
                    let position = self.position();
                    self.at = at;
                    return Err(Diagnostic::error(
                        position,
                        "the string that starts here has no end on this line",
                        "add the closing quote",
                    ));
                }
                Some(_) => at += 1,
            }
        }
        self.at = at + 1;
        Ok(Token { start, end: at, form: Form::Quoted })
    }

    #[cold]
    fn never_closed(&mut self) -> Diagnostic {
        self.open_count = 0;
        Diagnostic::error(
            self.opened,
            "the parenthesis opened here is never closed",
            "close it behind the last field of the record",
        )
    }

    #[cold]
    fn escapes_nothing(&self, at: usize) -> Diagnostic {
        let remedy = "write \\\\ for a backslash; join lines with parentheses";
        Diagnostic::error(self.position_at(at), "a backslash stands at the end of the line", remedy)
    }
}

/// What an entry starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leading {
    /// A blank: the owner is that of the entry before (RFC 1035 §5.1).
    Blank,
    /// An owner or a directive.
    Token,
}

/// Why the escapes of a token mean nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadEscape;

/// The octet at the start of `text` and what follows it: `\DDD` is the octet of that decimal number, `\X` is X itself
/// (RFC 1035 §5.1).
pub(super) fn split_octet(text: &[u8]) -> Option<Result<(u8, &[u8]), BadEscape>> {
    Some(match text {
        [] => return None,
        [b'\\', hundreds @ b'0'..=b'2', tens @ b'0'..=b'9', ones @ b'0'..=b'9', rest @ ..] => {
            let [hundreds, tens, ones] = [hundreds, tens, ones].map(|digit| u16::from(digit - b'0'));
            u8::try_from(hundreds * 100 + tens * 10 + ones).map(|octet| (octet, rest)).map_err(|_| BadEscape)
        }
        [b'\\', b'0'..=b'9', ..] | [b'\\'] => Err(BadEscape),
        [b'\\', octet, rest @ ..] | [octet, rest @ ..] => Ok((*octet, rest)),
    })
}

/// Octets of a token that a message shows.
const SHOWN_BYTES_MAX: usize = 40;

/// A token as a message shows it: quoted, short, and printable.
pub(super) struct Shown<'a>(pub(super) &'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0[..self.0.len().min(SHOWN_BYTES_MAX)];
        let dots = if shown.len() < self.0.len() { "…" } else { "" };
        out.write_str("\"")?;
        for chunk in shown.utf8_chunks() {
            for character in chunk.valid().chars() {
                match character {
                    '"' => out.write_str("\"")?,
                    _ if character.is_control() => write!(out, "\\{:03}", u32::from(character))?,
                    _ => write!(out, "{character}")?,
                }
            }
            for octet in chunk.invalid() {
                write!(out, "\\{octet:03}")?;
            }
        }
        write!(out, "{dots}\"")
    }
}

impl Diagnostic {
    /// An error that says: `token` is no `what`.
    #[cold]
    pub(super) fn not_a(scanner: &Scanner, token: Token, what: &str, remedy: &str) -> Diagnostic {
        Diagnostic::error(scanner.position_of(token), format!("{} is no {what}", Shown(scanner.text_of(token))), remedy)
    }
}
