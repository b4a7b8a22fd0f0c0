//! Splits the text of a zone file into tokens: words, quoted strings and ends of entries (RFC 1035 §5.1).

use super::{Diagnostic, Position};
use alloc::format;
use alloc::vec::Vec;
use core::fmt;

/// The meaning of a byte outside quotes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ByteClass {
    /// Part of a word.
    Word,
    /// Space, tab, and carriage return, which text files have before a line feed only.
    Blank,
    LineFeed,
    Quote,
    Open,
    Close,
    Comment,
    Escape,
}

static BYTE_CLASSES: [ByteClass; 256] = {
    let mut classes = [ByteClass::Word; 256];
    classes[b' ' as usize] = ByteClass::Blank;
    classes[b'\t' as usize] = ByteClass::Blank;
    classes[b'\r' as usize] = ByteClass::Blank;
    classes[b'\n' as usize] = ByteClass::LineFeed;
    classes[b'"' as usize] = ByteClass::Quote;
    classes[b'(' as usize] = ByteClass::Open;
    classes[b')' as usize] = ByteClass::Close;
    classes[b';' as usize] = ByteClass::Comment;
    classes[b'\\' as usize] = ByteClass::Escape;
    classes
};

fn class_of(byte: u8) -> ByteClass {
    BYTE_CLASSES[usize::from(byte)]
}

/// How a token is written.
///
/// The type has the size of its neighbours in [`Token`]. Padding would be copied with the token byte by byte, which
/// stalls on the preceding store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum TokenKind {
    /// Unquoted: `@` and `\#` have a meaning.
    Word,
    /// Between quotes, which are not part of the token.
    Quoted,
}

/// A word or a quoted string: its range in the text, with escapes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    start: usize,
    end: usize,
    pub(super) kind: TokenKind,
}

/// Scans one file, or one line of `$GENERATE`.
#[derive(Debug)]
pub(super) struct Scanner {
    text: Vec<u8>,
    at: usize,
    line_start: usize,
    position: Position,
    /// Open parentheses. The outermost one is at `opened`.
    open_count: u32,
    opened: Position,
    /// Whether `$GENERATE` made the text: all tokens have the position of the directive.
    is_generated: bool,
}

impl Scanner {
    /// Scans a file from its start.
    pub(super) fn new(file_index: u32, text: Vec<u8>) -> Scanner {
        let start = Position { file_index, line: 1, column: 1 };
        // Some editors write a byte order mark.
        let at = if text.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        Scanner { text, at, line_start: 0, position: start, open_count: 0, opened: start, is_generated: false }
    }

    /// Scans a line of the `$GENERATE` at `position`.
    pub(super) fn of_generated(position: Position, text: Vec<u8>) -> Scanner {
        Scanner { text, at: 0, line_start: 0, position, open_count: 0, opened: position, is_generated: true }
    }

    /// Whether `$GENERATE` made the text.
    pub(super) fn is_generated(&self) -> bool {
        self.is_generated
    }

    /// The buffer of the text, for reuse.
    pub(super) fn into_text(self) -> Vec<u8> {
        self.text
    }

    /// The text of a token, with escapes.
    pub(super) fn text_of(&self, token: Token) -> &[u8] {
        &self.text[token.start..token.end]
    }

    /// The text of a token, with escapes and quotes.
    pub(super) fn source_of(&self, token: Token) -> &[u8] {
        match token.kind {
            TokenKind::Word => self.text_of(token),
            TokenKind::Quoted => &self.text[token.start - 1..token.end + 1],
        }
    }

    /// The position of the next byte.
    pub(super) fn position(&self) -> Position {
        self.position_at(self.at)
    }

    /// The position of `token`.
    pub(super) fn position_of(&self, token: Token) -> Position {
        self.position_at(match token.kind {
            TokenKind::Word => token.start,
            TokenKind::Quoted => token.start - 1,
        })
    }

    /// The position of the byte at offset `at`, which is not after the scanner. Lines are counted backwards here, so
    /// that a token needs two offsets only.
    fn position_at(&self, at: usize) -> Position {
        if self.is_generated {
            return self.position;
        }
        let mut line = self.position.line;
        let mut line_start = self.line_start;
        while at < line_start {
            line = line.saturating_sub(1);
            let before = &self.text[..line_start - 1];
            line_start = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |line_feed| line_feed + 1);
        }
        let column = u32::try_from(at - line_start).unwrap_or(u32::MAX).saturating_add(1);
        Position { line, column, ..self.position }
    }

    /// Skips to the next entry. Returns `None` at the end of the text.
    pub(super) fn next_entry(&mut self) -> Option<EntryStart> {
        loop {
            let start = self.at;
            self.skip_blanks();
            match self.text.get(self.at).map(|&byte| class_of(byte))? {
                ByteClass::LineFeed => self.skip_line_feed(),
                ByteClass::Comment => self.skip_line(),
                _ if self.at > start => return Some(EntryStart::Blank),
                _ => return Some(EntryStart::Token),
            }
        }
    }

    /// The entry's next token; `None` at its end, however often it is called.
    #[inline]
    pub(super) fn token(&mut self) -> Result<Option<Token>, Diagnostic> {
        match self.skip_to_token()? {
            Some(TokenKind::Word) => self.word().map(Some),
            Some(TokenKind::Quoted) => self.quoted().map(Some),
            None => Ok(None),
        }
    }

    /// Skips to the entry's next token.
    #[inline]
    fn skip_to_token(&mut self) -> Result<Option<TokenKind>, Diagnostic> {
        loop {
            self.skip_blanks();
            let Some(&byte) = self.text.get(self.at) else {
                return if self.open_count == 0 { Ok(None) } else { Err(self.never_closed()) };
            };
            match class_of(byte) {
                ByteClass::Word | ByteClass::Escape => return Ok(Some(TokenKind::Word)),
                ByteClass::Quote => return Ok(Some(TokenKind::Quoted)),
                ByteClass::LineFeed if self.open_count == 0 => return Ok(None),
                ByteClass::LineFeed => self.skip_line_feed(),
                ByteClass::Comment => self.skip_line(),
                ByteClass::Open => {
                    if self.open_count == 0 {
                        self.opened = self.position();
                    }
                    self.open_count = self.open_count.saturating_add(1);
                    self.at += 1;
                }
                ByteClass::Close if self.open_count > 0 => {
                    self.open_count -= 1;
                    self.at += 1;
                }
                ByteClass::Close => {
                    let position = self.position();
                    self.at += 1;
                    return Err(Diagnostic::error(
                        position,
                        "this closing parenthesis has no opening one",
                        "remove it, or add the opening parenthesis",
                    ));
                }
                ByteClass::Blank => {}
            }
        }
    }

    /// Takes the next token if it is the unquoted word `wanted`.
    pub(super) fn token_if(&mut self, wanted: &[u8]) -> Result<Option<Token>, Diagnostic> {
        self.skip_to_token()?;
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

    /// `token` without its first `skipped_bytes`.
    pub(super) fn without_prefix(&self, token: Token, skipped_bytes: usize) -> Token {
        Token { start: token.start + skipped_bytes, ..token }
    }

    /// Whether a quoted string follows without a blank: `alpn="h2"`.
    pub(super) fn is_at_quote(&self) -> bool {
        self.text.get(self.at) == Some(&b'"')
    }

    /// Skips the rest of the entry, with its errors.
    pub(super) fn skip_entry(&mut self) {
        // The loop ends, because every error is after the byte that caused it.
        while !matches!(self.token(), Ok(None)) {}
    }

    #[inline]
    fn skip_blanks(&mut self) {
        while self.text.get(self.at).is_some_and(|&byte| class_of(byte) == ByteClass::Blank) {
            self.at += 1;
        }
    }

    /// Skips to the line feed of this line, or to the end of the text.
    fn skip_line(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
    }

    fn skip_line_feed(&mut self) {
        self.at += 1;
        if !self.is_generated {
            self.line_start = self.at;
            self.position.line = self.position.line.saturating_add(1);
        }
    }

    #[inline]
    fn word(&mut self) -> Result<Token, Diagnostic> {
        let start = self.at;
        let mut at = start;
        while let Some(&byte) = self.text.get(at) {
            match class_of(byte) {
                ByteClass::Word => at += 1,
                ByteClass::Escape => {
                    // A backslash escapes any byte but the end of the line.
                    if self.text.get(at + 1).is_none_or(|next| matches!(next, b'\n' | b'\r')) {
                        self.at = at + 1;
                        return Err(self.escaped_line_end(at));
                    }
                    at += 2;
                }
                _ => break,
            }
        }
        self.at = at;
        Ok(Token { start, end: at, kind: TokenKind::Word })
    }

    fn quoted(&mut self) -> Result<Token, Diagnostic> {
        let start = self.at + 1;
        let mut at = start;
        loop {
            match self.text.get(at) {
                Some(b'"') => break,
                Some(b'\\') if self.text.get(at + 1).is_some_and(|&next| next != b'\n') => at += 2,
                None | Some(b'\n') => {
                    // A string across lines usually means a missing quote, which would hide the following records.
                    let position = self.position();
                    self.at = at;
                    return Err(Diagnostic::error(
                        position,
                        "the string that starts here does not end on this line",
                        "add the closing quote",
                    ));
                }
                Some(_) => at += 1,
            }
        }
        self.at = at + 1;
        Ok(Token { start, end: at, kind: TokenKind::Quoted })
    }

    #[cold]
    fn never_closed(&mut self) -> Diagnostic {
        self.open_count = 0;
        Diagnostic::error(
            self.opened,
            "this parenthesis is never closed",
            "add the closing parenthesis after the last field of the record",
        )
    }

    #[cold]
    fn escaped_line_end(&self, at: usize) -> Diagnostic {
        let remedy = "write \\\\ for a backslash; continue lines in parentheses";
        Diagnostic::error(self.position_at(at), "the line ends with a backslash", remedy)
    }
}

/// The start of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryStart {
    /// A blank: the record has the owner of the previous one (RFC 1035 §5.1).
    Blank,
    /// An owner or a directive.
    Token,
}

/// An escape is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InvalidEscape;

/// The byte at the start of `text`, unescaped, and the rest: `\DDD` is the byte with this decimal number, `\X` is X
/// (RFC 1035 §5.1).
pub(super) fn split_byte(text: &[u8]) -> Option<Result<(u8, &[u8]), InvalidEscape>> {
    Some(match text {
        [] => return None,
        [b'\\', hundreds @ b'0'..=b'2', tens @ b'0'..=b'9', ones @ b'0'..=b'9', rest @ ..] => {
            let [hundreds, tens, ones] = [hundreds, tens, ones].map(|digit| u16::from(digit - b'0'));
            u8::try_from(hundreds * 100 + tens * 10 + ones).map(|byte| (byte, rest)).map_err(|_| InvalidEscape)
        }
        [b'\\', b'0'..=b'9', ..] | [b'\\'] => Err(InvalidEscape),
        [b'\\', byte, rest @ ..] | [byte, rest @ ..] => Ok((*byte, rest)),
    })
}

/// Bytes of a token that a message shows.
const EXCERPT_BYTES_MAX: usize = 40;

/// A token as messages show it: quoted, shortened and printable.
pub(super) struct Excerpt<'a>(pub(super) &'a [u8]);

impl fmt::Display for Excerpt<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0[..self.0.len().min(EXCERPT_BYTES_MAX)];
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
            for byte in chunk.invalid() {
                write!(out, "\\{byte:03}")?;
            }
        }
        write!(out, "{dots}\"")
    }
}

impl Diagnostic {
    /// An error about `token`. `problem` completes a sentence that begins with the token: `is not a TTL`.
    #[cold]
    pub(super) fn about(scanner: &Scanner, token: Token, problem: &str, remedy: &str) -> Diagnostic {
        Diagnostic::error(scanner.position_of(token), format!("{} {problem}", Excerpt(scanner.text_of(token))), remedy)
    }
}
