//! Turns what is wrong with an operator's input into text that says where it stands and what would mend it.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

/// Diagnostics that one report shows in full; the rest are only counted.
const SHOWN_MAX: usize = 100;
/// Octets of a source line that are read for showing it.
const LINE_BYTES_MAX: u64 = 64 * 1024;
/// Characters of a source line that are shown; a longer line is cut around its column.
const SHOWN_CHARS_MAX: usize = 100;
/// A tab reaches to the next multiple of this many characters.
const TAB_CHARS: usize = 4;

/// What is wrong and what would mend it, both without a dot at the end; where it stands is not known yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What is wrong: `port 99999 is too large`.
    pub problem: String,
    /// What would mend it: `a port is a number from 0 to 65535`; empty if there is nothing to say.
    pub remedy: String,
}

impl Fault {
    /// A fault of these two sentences.
    pub fn new(problem: impl Into<String>, remedy: impl Into<String>) -> Fault {
        Fault { problem: problem.into(), remedy: remedy.into() }
    }
}

/// `problem; remedy` on one line.
impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_visibly(out, &self.problem)?;
        if !self.remedy.is_empty() {
            out.write_str("; ")?;
            write_visibly(out, &self.remedy)?;
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}

/// Whether the program can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// It can't: the configuration or the zone is refused.
    Error,
    /// It can, but the operator should look.
    Warning,
}

impl Severity {
    fn word(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        }
    }
}

/// Where a fault stands. Places of one file are ordered by line, then column.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// An argument of the command line, as typed: `--zone example.com=x.zone`.
    Argument(String),
    /// A whole file.
    File(PathBuf),
    /// A place in a file.
    Position {
        /// The file.
        file: PathBuf,
        /// Line, from 1.
        line: u32,
        /// Column in octets, from 1; one behind the last octet means the end of the line.
        column: u32,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Argument(argument) => write_visibly(out, argument),
            Place::File(file) => write_visibly(out, &file.to_string_lossy()),
            Place::Position { file, line, column } => {
                write_visibly(out, &file.to_string_lossy())?;
                write!(out, ":{line}:{column}")
            }
        }
    }
}

/// One message to the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Whether the program can go on.
    pub severity: Severity,
    /// Where the fault stands.
    pub place: Place,
    /// What is wrong and what would mend it.
    pub fault: Fault,
}

impl Diagnostic {
    /// A fault that the program refuses to start with.
    pub fn error(place: Place, fault: Fault) -> Diagnostic {
        Diagnostic { severity: Severity::Error, place, fault }
    }

    /// A fault that the program lives with.
    pub fn warning(place: Place, fault: Fault) -> Diagnostic {
        Diagnostic { severity: Severity::Warning, place, fault }
    }

    /// The message over several lines, with its source line and a caret under the column:
    ///
    /// ```text
    /// error: unknown key `lissten` in [http]; did you mean `listen`?
    ///  --> sanderling.toml:2:1
    ///   |
    /// 2 | lissten = ["127.0.0.1:8080"]
    ///   | ^
    /// ```
    ///
    /// `source_line` is the line at [`Diagnostic::place`], with or without its end; `None` leaves the drawing out.
    pub fn render(&self, source_line: Option<&[u8]>, colour: Colour) -> String {
        let (mark, dim, plain) = colour.codes(self.severity);
        let mut text = format!("{mark}{}{plain}: {}\n", self.severity.word(), self.fault);
        let number = match self.place {
            Place::Position { line, .. } => line.to_string(),
            Place::Argument(_) | Place::File(_) => String::new(),
        };
        let margin = " ".repeat(number.len());
        text.push_str(&format!("{margin} {dim}-->{plain} {}\n", self.place));
        if let (Place::Position { column, .. }, Some(source_line)) = (&self.place, source_line) {
            let shown = ShownLine::cut(source_line, *column);
            let caret_margin = " ".repeat(shown.caret_chars);
            text.push_str(&format!("{margin} {dim}|{plain}\n"));
            text.push_str(&format!("{dim}{number} |{plain} {}\n", shown.text));
            text.push_str(&format!("{margin} {dim}|{plain} {caret_margin}{mark}^{plain}\n"));
        }
        text
    }
}

/// `file:line:column: problem; remedy` on one line, as compilers write and editors read it; a warning says so.
impl fmt::Display for Diagnostic {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: ", self.place)?;
        if self.severity == Severity::Warning {
            write!(out, "{}: ", self.severity.word())?;
        }
        write!(out, "{}", self.fault)
    }
}

/// Whether text may hold the colour codes of terminals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// It may.
    On,
    /// It must not.
    Off,
}

impl Colour {
    /// The codes that start the severity's word, start what frames a line, and end either.
    fn codes(self, severity: Severity) -> (&'static str, &'static str, &'static str) {
        match (self, severity) {
            (Colour::Off, _) => ("", "", ""),
            (Colour::On, Severity::Error) => ("\x1b[1;31m", "\x1b[34m", "\x1b[0m"),
            (Colour::On, Severity::Warning) => ("\x1b[1;33m", "\x1b[34m", "\x1b[0m"),
        }
    }
}

/// How diagnostics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One line each, for scripts, logs and editors.
    Line,
    /// With the source line and a caret, for people.
    Drawing(Colour),
}

impl Form {
    /// The form that suits `output`: drawings on a terminal only, colour if the environment does not refuse it.
    pub fn for_output(output: &impl IsTerminal) -> Form {
        let refused = |name| std::env::var_os(name).is_some_and(|value: std::ffi::OsString| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        match (output.is_terminal(), refused("NO_COLOR") || dumb) {
            (false, _) => Form::Line,
            (true, true) => Form::Drawing(Colour::Off),
            (true, false) => Form::Drawing(Colour::On),
        }
    }
}

/// Writes `diagnostics` in their order, then how many there are of each severity.
///
/// # Errors
///
/// Only those of `out`; a source line that can't be read is left out.
pub fn report(diagnostics: &[Diagnostic], form: Form, out: &mut dyn Write) -> io::Result<()> {
    for diagnostic in diagnostics.iter().take(SHOWN_MAX) {
        match form {
            Form::Line => writeln!(out, "{diagnostic}")?,
            Form::Drawing(colour) => {
                let source_line = source_line(&diagnostic.place);
                writeln!(out, "{}", diagnostic.render(source_line.as_deref(), colour))?;
            }
        }
    }
    if diagnostics.len() > SHOWN_MAX {
        writeln!(out, "and {} more", diagnostics.len() - SHOWN_MAX)?;
    }
    let error_count = diagnostics.iter().filter(|one| one.severity == Severity::Error).count();
    match (error_count, diagnostics.len() - error_count) {
        (0, 0) => Ok(()),
        (0, warning_count) => writeln!(out, "{}", counted(warning_count, "warning")),
        (_, 0) => writeln!(out, "{}", counted(error_count, "error")),
        (_, warning_count) => {
            writeln!(out, "{}, {}", counted(error_count, "error"), counted(warning_count, "warning"))
        }
    }
}

/// `1 error`, `2 errors`.
fn counted(count: usize, word: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {word}{plural}")
}

/// The line at `place`, read anew: a zone may be a gigabyte, so that no check keeps its text.
fn source_line(place: &Place) -> Option<Vec<u8>> {
    let Place::Position { file, line, .. } = place else { return None };
    read_line(file, *line).ok()
}

fn read_line(path: &Path, line: u32) -> io::Result<Vec<u8>> {
    let mut reader = BufReader::new(File::open(path)?);
    for _ in 1..line {
        if reader.skip_until(b'\n')? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    let mut text = Vec::new();
    reader.take(LINE_BYTES_MAX).read_until(b'\n', &mut text)?;
    Ok(text)
}

/// The part of a source line that is shown, and where its caret stands.
struct ShownLine {
    text: String,
    caret_chars: usize,
}

impl ShownLine {
    /// Cuts `line` to [`SHOWN_CHARS_MAX`] characters around `column` (octets, from 1). Each character counts one place.
    fn cut(line: &[u8], column: u32) -> ShownLine {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let column_index = usize::try_from(column.saturating_sub(1)).unwrap_or(usize::MAX);
        let (chars, caret) = visible_chars(line, column_index);
        let start = if chars.len() <= SHOWN_CHARS_MAX { 0 } else { caret.saturating_sub(SHOWN_CHARS_MAX * 2 / 3) };
        let end = chars.len().min(start + SHOWN_CHARS_MAX);
        let (before, after) = (if start > 0 { "…" } else { "" }, if end < chars.len() { "…" } else { "" });
        let middle: String = chars[start..end].iter().collect();
        let caret_chars = caret - start + before.chars().count();
        ShownLine { text: format!("{before}{middle}{after}").trim_end().to_owned(), caret_chars }
    }
}

/// The characters of `line`, tabs spread out and what a terminal would obey or can't show replaced; with them the
/// index of the character that holds the octet at `column_index`, or their number if the line ends before.
fn visible_chars(line: &[u8], column_index: usize) -> (Vec<char>, usize) {
    let mut chars = Vec::with_capacity(line.len());
    let mut caret = None;
    let mut octet_index = 0;
    for chunk in line.utf8_chunks() {
        for character in chunk.valid().chars() {
            octet_index += character.len_utf8();
            if column_index < octet_index {
                caret.get_or_insert(chars.len());
            }
            match character {
                '\t' => chars.resize((chars.len() / TAB_CHARS + 1) * TAB_CHARS, ' '),
                _ if is_obeyed(character) => chars.push(char::REPLACEMENT_CHARACTER),
                _ => chars.push(character),
            }
        }
        for _ in chunk.invalid() {
            octet_index += 1;
            if column_index < octet_index {
                caret.get_or_insert(chars.len());
            }
            chars.push(char::REPLACEMENT_CHARACTER);
        }
    }
    let caret = caret.unwrap_or(chars.len());
    (chars, caret)
}

/// Whether a terminal acts on `character` instead of showing it: controls and the marks that turn the direction of
/// text. A file or a file name from somebody else must not be able to paint over the report.
fn is_obeyed(character: char) -> bool {
    character.is_control() || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Writes `text` on one line, what a terminal would obey as an escape.
fn write_visibly(out: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    for character in text.chars() {
        if is_obeyed(character) {
            write!(out, "{}", character.escape_default())?;
        } else {
            write!(out, "{character}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(line: u32, column: u32) -> Diagnostic {
        let place = Place::Position { file: "a.toml".into(), line, column };
        Diagnostic::error(place, Fault::new("it is wrong", "mend it"))
    }

    /// A fault at `column` of `source_line` is drawn as `expected`, which is the line and the row of the caret.
    #[track_caller]
    fn check(source_line: &[u8], column: u32, expected: [&str; 2]) {
        let drawing = at(7, column).render(Some(source_line), Colour::Off);
        let head = format!("error: it is wrong; mend it\n  --> a.toml:7:{column}\n  |\n");
        assert_eq!(drawing, format!("{head}7 | {}\n  | {}\n", expected[0], expected[1]));
    }

    #[test]
    fn a_line_has_the_form_that_editors_read() {
        assert_eq!(at(2, 10).to_string(), "a.toml:2:10: it is wrong; mend it");
        let warning = Diagnostic::warning(Place::File("a.zone".into()), Fault::new("it is large", ""));
        assert_eq!(warning.to_string(), "a.zone: warning: it is large");
        let argument = Diagnostic::error(Place::Argument("--zone a=b".into()), Fault::new("no", "yes"));
        assert_eq!(argument.to_string(), "--zone a=b: no; yes");
    }

    #[test]
    fn the_caret_stands_below_the_column() {
        check(b"listen = 3\n", 10, ["listen = 3", "         ^"]);
        check(b"listen = 3", 1, ["listen = 3", "^"]);
    }

    #[test]
    fn a_column_behind_the_end_puts_the_caret_there() {
        check(b"[http\n", 6, ["[http", "     ^"]);
        check(b"[http\n", 600, ["[http", "     ^"]);
        check(b"[http\n", u32::MAX, ["[http", "     ^"]);
        check(b"", 1, ["", "^"]);
        check(b"", 0, ["", "^"]);
    }

    #[test]
    fn tabs_reach_to_the_next_stop() {
        check(b"\tsite\t= 3\n", 7, ["    site    = 3", "            ^"]);
        check(b"ab\tc", 4, ["ab  c", "    ^"]);
        check(b"ab\tc", 3, ["ab  c", "  ^"]);
    }

    #[test]
    fn columns_are_octets_and_carets_characters() {
        // In UTF-8 "ä" is two octets and "€" three.
        check("ä€x\n".as_bytes(), 1, ["ä€x", "^"]);
        check("ä€x\n".as_bytes(), 2, ["ä€x", "^"]);
        check("ä€x\n".as_bytes(), 3, ["ä€x", " ^"]);
        check("ä€x\n".as_bytes(), 6, ["ä€x", "  ^"]);
    }

    #[test]
    fn octets_that_are_no_utf_8_are_replaced_one_by_one() {
        check(b"a\xff\xfeb", 4, ["a\u{fffd}\u{fffd}b", "   ^"]);
        check(b"a\xe2\x82", 2, ["a\u{fffd}\u{fffd}", " ^"]);
    }

    #[test]
    fn line_ends_of_windows_are_not_shown() {
        check(b"x = 1\r\n", 6, ["x = 1", "     ^"]);
        check(b"a\rb\r\n", 3, ["a\u{fffd}b", "  ^"]);
    }

    #[test]
    fn what_a_terminal_would_obey_is_replaced() {
        check(b"\x1b[2Ja\x07", 5, ["\u{fffd}[2Ja\u{fffd}", "    ^"]);
        check("a\u{202e}b".as_bytes(), 5, ["a\u{fffd}b", "  ^"]);
        let place = Place::File("a\n\x1b[2J.toml".into());
        let diagnostic = Diagnostic::error(place, Fault::new("x\ny", "z\u{202e}"));
        assert_eq!(diagnostic.to_string(), "a\\n\\u{1b}[2J.toml: x\\ny; z\\u{202e}");
    }

    #[test]
    fn long_lines_are_cut_around_the_caret() {
        let line = format!("{}X{}", "a".repeat(300), "b".repeat(300));
        let shown = format!("…{}X{}…", "a".repeat(66), "b".repeat(33));
        let caret = format!("{}^", " ".repeat(67));
        check(line.as_bytes(), 301, [&shown, &caret]);
        let shown = format!("{}…", "a".repeat(100));
        check(line.as_bytes(), 1, [&shown, "^"]);
        let shown = format!("…{}", "b".repeat(66));
        check(line.as_bytes(), 602, [&shown, &caret]);
    }

    #[test]
    fn without_its_line_a_diagnostic_is_drawn_without() {
        assert_eq!(at(12, 3).render(None, Colour::Off), "error: it is wrong; mend it\n   --> a.toml:12:3\n");
        let file = Diagnostic::warning(Place::File("a.zone".into()), Fault::new("it is large", "split it"));
        assert_eq!(file.render(Some(b"x"), Colour::Off), "warning: it is large; split it\n --> a.zone\n");
    }

    #[test]
    fn colour_adds_codes_and_nothing_else() {
        let coloured = at(1, 1).render(Some(b"x"), Colour::On);
        assert!(coloured.starts_with("\x1b[1;31merror\x1b[0m: "), "{coloured:?}");
        let mut plain = coloured;
        for code in ["\x1b[1;31m", "\x1b[34m", "\x1b[0m"] {
            plain = plain.replace(code, "");
        }
        assert_eq!(plain, at(1, 1).render(Some(b"x"), Colour::Off));
    }

    fn reported(diagnostics: &[Diagnostic], form: Form) -> String {
        let mut text = Vec::new();
        report(diagnostics, form, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_report_counts_by_severity() {
        let warning = Diagnostic::warning(Place::File("a".into()), Fault::new("b", "c"));
        let end = |diagnostics: &[Diagnostic]| reported(diagnostics, Form::Line).lines().last().map(str::to_owned);
        assert_eq!(end(&[]), None);
        assert_eq!(end(&[at(1, 1)]).unwrap(), "1 error");
        assert_eq!(end(&[at(1, 1), at(2, 1), warning.clone()]).unwrap(), "2 errors, 1 warning");
        assert_eq!(end(&[warning.clone(), warning]).unwrap(), "2 warnings");
    }

    #[test]
    fn a_report_has_an_end() {
        let text = reported(&vec![at(1, 1); SHOWN_MAX + 5], Form::Line);
        assert_eq!(text.lines().count(), SHOWN_MAX + 2);
        assert!(text.ends_with("and 5 more\n105 errors\n"), "{text}");
    }

    #[test]
    fn a_drawing_reads_the_line_from_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.toml");
        std::fs::write(&file, "first\nsecond\r\n").unwrap();
        let drawn = |line| {
            let place = Place::Position { file: file.clone(), line, column: 2 };
            reported(&[Diagnostic::error(place, Fault::new("a", "b"))], Form::Drawing(Colour::Off))
        };
        assert!(drawn(2).contains("\n2 | second\n  |  ^\n"), "{}", drawn(2));
        assert!(!drawn(9).contains('|'), "{}", drawn(9));
    }

    #[test]
    fn what_is_no_terminal_gets_lines() {
        assert_eq!(Form::for_output(&tempfile::tempfile().unwrap()), Form::Line);
    }
}
