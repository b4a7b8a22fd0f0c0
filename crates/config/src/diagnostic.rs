//! A problem in the operator's input: its place, the problem, and the remedy; as one line or with the source line.

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::ops::Deref;
use std::path::{Path, PathBuf};

/// Diagnostics that one report shows; the rest are only counted.
const SHOWN_MAX: usize = 100;
/// Bytes of a source line that are read in order to show it.
const LINE_BYTES_MAX: u64 = 64 * 1024;
/// Columns of the terminal that a source line may take; a longer line is cut around the reported column.
const TERMINAL_COLUMNS: usize = 110;

/// The problem and the remedy, both without a full stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The problem: `port 99999 is out of range`.
    pub message: String,
    /// How to fix it: `write 0 to 65535`. May be empty.
    pub remedy: String,
}

impl Problem {
    /// A problem and its remedy.
    pub fn new(message: impl Into<String>, remedy: impl Into<String>) -> Problem {
        Problem { message: message.into(), remedy: remedy.into() }
    }
}

/// `message; remedy` on one line.
impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&escaped(&self.message))?;
        if !self.remedy.is_empty() {
            write!(out, "; {}", escaped(&self.remedy))?;
        }
        Ok(())
    }
}

impl std::error::Error for Problem {}

/// Whether the input is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The input is refused.
    Error,
    /// The input is refused, and the rest of it was not read: it may contain more errors.
    Incomplete,
    /// The input is accepted, but the operator should check it.
    Warning,
    /// The input is valid, and the message explains its effect.
    Note,
}

impl Severity {
    /// The syslog severity of its messages (RFC 5424 §6.2.1).
    fn priority(self) -> u8 {
        match self {
            Severity::Error | Severity::Incomplete => 3,
            Severity::Warning => 4,
            Severity::Note => 6,
        }
    }
}

/// Where a problem is. Locations in one file are ordered by line, then by column.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Location {
    /// A command-line argument as typed: `--zone example.com=x.zone`.
    Argument(String),
    /// A whole file or directory.
    File(PathBuf),
    /// A position in a file.
    Position {
        /// The file.
        file: PathBuf,
        /// Line, from 1.
        line: u32,
        /// Column in bytes, from 1; one past the last byte is the end of the line.
        column: u32,
    },
}

impl fmt::Display for Location {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Argument(argument) => out.write_str(&escaped(argument)),
            Location::File(file) => out.write_str(&escaped(&file.to_string_lossy())),
            Location::Position { file, line, column } => {
                write!(out, "{}:{line}:{column}", escaped(&file.to_string_lossy()))
            }
        }
    }
}

/// The position of a value in the configuration. It is used only in messages: two positions always compare equal, so
/// that two configurations are equal if their values are, whatever lines and comments are between. The fields compared
/// with `==` decide which processes a reload replaces.
#[derive(Clone, Debug)]
pub struct ValueLocation(pub Location);

impl PartialEq for ValueLocation {
    fn eq(&self, _: &ValueLocation) -> bool {
        true
    }
}

impl Eq for ValueLocation {}

impl From<Location> for ValueLocation {
    fn from(location: Location) -> ValueLocation {
        ValueLocation(location)
    }
}

impl From<ValueLocation> for Location {
    fn from(location: ValueLocation) -> Location {
        location.0
    }
}

impl fmt::Display for ValueLocation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl Deref for ValueLocation {
    type Target = Location;

    fn deref(&self) -> &Location {
        &self.0
    }
}

/// A message to the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Whether the input is refused.
    pub severity: Severity,
    /// Where the problem is.
    pub location: Location,
    /// The problem.
    pub problem: Problem,
}

impl Diagnostic {
    /// Whether the input is refused because of the problem.
    pub fn is_error(&self) -> bool {
        matches!(self.severity, Severity::Error | Severity::Incomplete)
    }

    /// A problem for which the input is refused.
    pub fn error(location: impl Into<Location>, problem: Problem) -> Diagnostic {
        let location = location.into();
        Diagnostic { severity: Severity::Error, location, problem }
    }

    /// A problem for which the input is refused without reading the rest of it.
    pub fn incomplete(location: impl Into<Location>, problem: Problem) -> Diagnostic {
        let location = location.into();
        Diagnostic { severity: Severity::Incomplete, location, problem }
    }

    /// A problem that does not make the input invalid.
    pub fn warning(location: impl Into<Location>, problem: Problem) -> Diagnostic {
        let location = location.into();
        Diagnostic { severity: Severity::Warning, location, problem }
    }

    /// A consequence of valid input, which needs no change.
    pub fn note(location: impl Into<Location>, problem: Problem) -> Diagnostic {
        let location = location.into();
        Diagnostic { severity: Severity::Note, location, problem }
    }

    /// The message over several lines:
    ///
    /// ```text
    /// sanderling.toml:2:1: error: unknown key `lissten` in [http]
    ///   |
    /// 2 | lissten = ["127.0.0.1:8080"]
    ///   | ^
    ///   |
    ///   = help: did you mean `listen`?
    /// ```
    ///
    /// `source_line` is the line at the location, with or without its end; `None` leaves the source out.
    pub fn to_snippet(&self, source_line: Option<&[u8]>, colour: Colour) -> String {
        let (level, name) = match self.severity {
            Severity::Error | Severity::Incomplete => (Level::ERROR, "error"),
            Severity::Warning => (Level::WARNING, "warning"),
            Severity::Note => (Level::NOTE, "note"),
        };
        let level = level.with_name(format!("{}: {name}", self.location));
        let mut report = Group::with_title(level.primary_title(escaped(&self.problem.message)));
        if let (Location::Position { line, column, .. }, Some(source_line)) = (&self.location, source_line) {
            let (source, mark) = marked_line(source_line, *column);
            let mark = AnnotationKind::Primary.span(mark..mark);
            report = report.element(Snippet::source(source).line_start(*line as usize).annotation(mark));
        }
        if !self.problem.remedy.is_empty() {
            report = report.element(Level::HELP.message(escaped(&self.problem.remedy)));
        }
        let renderer = match colour {
            Colour::Off => Renderer::plain(),
            Colour::On => Renderer::styled(),
        };
        renderer.decor_style(DecorStyle::Ascii).term_width(TERMINAL_COLUMNS).render(&[report])
    }
}

/// `FILE:LINE:COLUMN: MESSAGE; REMEDY` on one line, as editors and scripts read it.
impl fmt::Display for Diagnostic {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error | Severity::Incomplete => "",
            Severity::Warning => "warning: ",
            Severity::Note => "note: ",
        };
        write!(out, "{}: {severity}{}", self.location, self.problem)
    }
}

/// Whether messages have colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// Text only.
    Off,
    /// Text with terminal escape sequences.
    On,
}

/// How diagnostics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One line for each problem, for scripts, logs and editors.
    Line,
    /// One line for each problem, with the priority in front for journald (sd-daemon(3)).
    Journal,
    /// With the source line, for a terminal.
    Snippet(Colour),
}

impl Format {
    /// The format for `output`: snippets on a terminal only, colours unless `NO_COLOR` is set or the terminal has none.
    pub fn for_output(output: &impl IsTerminal) -> Format {
        let is_set = |name| std::env::var_os(name).is_some_and(|value: std::ffi::OsString| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        match (output.is_terminal(), is_set("NO_COLOR") || is_dumb) {
            (false, _) => Format::Line,
            (true, true) => Format::Snippet(Colour::Off),
            (true, false) => Format::Snippet(Colour::On),
        }
    }
}

/// Writes `diagnostics` in their order, then the number of errors, warnings and notes.
///
/// # Errors
/// Returns only the errors of `out`; a source line that cannot be read is left out.
pub fn write_report(diagnostics: &[Diagnostic], format: Format, out: &mut dyn Write) -> io::Result<()> {
    for diagnostic in diagnostics.iter().take(SHOWN_MAX) {
        match format {
            Format::Line => writeln!(out, "{diagnostic}")?,
            Format::Journal => writeln!(out, "<{}>{diagnostic}", diagnostic.severity.priority())?,
            Format::Snippet(colour) => {
                let source_line = source_line(&diagnostic.location);
                writeln!(out, "{}\n", diagnostic.to_snippet(source_line.as_deref(), colour))?;
            }
        }
    }
    let is_incomplete = diagnostics.iter().any(|one| one.severity == Severity::Incomplete);
    let at_least = if is_incomplete { "at least " } else { "" };
    let worst = diagnostics.iter().map(|one| one.severity.priority()).min();
    let priority = worst.filter(|_| format == Format::Journal).map_or(String::new(), |worst| format!("<{worst}>"));
    if diagnostics.len() > SHOWN_MAX {
        writeln!(out, "{priority}and {at_least}{} more", diagnostics.len() - SHOWN_MAX)?;
    }
    let counts = [
        ("error", diagnostics.iter().filter(|one| one.is_error()).count()),
        ("warning", diagnostics.iter().filter(|one| one.severity == Severity::Warning).count()),
        ("note", diagnostics.iter().filter(|one| one.severity == Severity::Note).count()),
    ];
    let counts: Vec<String> =
        counts.iter().filter(|(_, count)| *count > 0).map(|&(noun, count)| counted(count, noun)).collect();
    if counts.is_empty() { Ok(()) } else { writeln!(out, "{priority}{at_least}{}", counts.join(", ")) }
}

/// The lines for a client whose command caused them; the log has the rest.
pub fn for_client(diagnostics: &[Diagnostic]) -> impl Iterator<Item = String> {
    let more = diagnostics.len().saturating_sub(SHOWN_MAX);
    let rest = (more > 0).then(|| format!("and {more} more in the log\n"));
    diagnostics.iter().take(SHOWN_MAX).map(|diagnostic| format!("{diagnostic}\n")).chain(rest)
}

/// `1 error`, `2 errors`.
fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// The text of an I/O error for the operator: without the number that the standard library adds to it, and with the
/// remedy if the process or the system lacks something.
pub fn error_text(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error ") {
        Some((before, after)) => {
            let (number, rest) = after.split_once(')').unwrap_or((after, ""));
            format!("{before}{rest}{}", remedy(number))
        }
        None => text,
    }
}

/// The remedy for the error with this number (errno(3)).
fn remedy(number: &str) -> &'static str {
    const NO_MEMORY: &str = "12";
    const NO_DESCRIPTOR_IN_SYSTEM: &str = "23";
    const NO_DESCRIPTOR: &str = "24";
    match number {
        NO_MEMORY => "; free memory, or raise the memory limit of the service (MemoryMax= of systemd)",
        NO_DESCRIPTOR_IN_SYSTEM => "; raise the limit of open files of the system (sysctl fs.file-max)",
        NO_DESCRIPTOR => "; raise the limit of open files (ulimit -n, LimitNOFILE= of systemd)",
        _ => "",
    }
}

/// The line at `location`, read again: a zone may have a gigabyte, so nothing keeps its text.
fn source_line(location: &Location) -> Option<Vec<u8>> {
    let Location::Position { file, line, .. } = location else { return None };
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

/// A source line as text without its end, and the offset in it of `column` (in bytes of `line`, from 1).
fn marked_line(line: &[u8], column: u32) -> (String, usize) {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let before = &line[..line.len().min(column.saturating_sub(1) as usize)];
    let text: String = String::from_utf8_lossy(line).chars().map(shown).collect();
    let before: usize = String::from_utf8_lossy(before).chars().map(|character| shown(character).len_utf8()).sum();
    let mark = text.floor_char_boundary(before);
    (text, mark)
}

/// A character of a source line as it is shown: terminal control characters are replaced.
fn shown(character: char) -> char {
    if is_obeyed(character) && character != '\t' { char::REPLACEMENT_CHARACTER } else { character }
}

/// Whether a terminal acts on `character` instead of showing it: control characters, and marks that change the
/// direction of text. Text from a file must not be able to paint over the report.
fn is_obeyed(character: char) -> bool {
    character.is_control() || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// `text` on one line, with terminal control characters escaped.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if is_obeyed(character) {
            out.extend(character.escape_default());
        } else {
            out.push(character);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_at(line: u32, column: u32) -> Diagnostic {
        let location = Location::Position { file: "a.toml".into(), line, column };
        Diagnostic::error(location, Problem::new("it is wrong", "correct it"))
    }

    /// The snippet of a problem at `column` of `source_line` has the line and the mark of `expected`.
    #[track_caller]
    fn check(source_line: &[u8], column: u32, expected: [&str; 2]) {
        let snippet = error_at(7, column).to_snippet(Some(source_line), Colour::Off);
        let head = format!("a.toml:7:{column}: error: it is wrong\n  |\n");
        let [line, mark] = expected;
        let line = format!("7 | {line}");
        let body = format!("{}\n  | {mark}\n  |\n  = help: correct it", line.trim_end());
        assert_eq!(snippet, format!("{head}{body}"));
    }

    #[test]
    fn line_format_is_that_of_editors() {
        assert_eq!(error_at(2, 10).to_string(), "a.toml:2:10: it is wrong; correct it");
        let warning = Diagnostic::warning(Location::File("a.zone".into()), Problem::new("it is large", ""));
        assert_eq!(warning.to_string(), "a.zone: warning: it is large");
        let argument = Diagnostic::error(Location::Argument("--zone a=b".into()), Problem::new("no", "yes"));
        assert_eq!(argument.to_string(), "--zone a=b: no; yes");
    }

    #[test]
    fn mark_is_under_the_column() {
        check(b"listen = 3\n", 10, ["listen = 3", "         ^"]);
        check(b"listen = 3", 1, ["listen = 3", "^"]);
        check(b"[http\n", 6, ["[http", "     ^"]);
        check(b"[http\n", 600, ["[http", "     ^"]);
        check(b"[http\n", u32::MAX, ["[http", "     ^"]);
        check(b"x = 1\r\n", 6, ["x = 1", "     ^"]);
    }

    #[test]
    fn columns_are_bytes_and_marks_characters() {
        // In UTF-8 "ä" is two bytes and "€" three.
        check("ä€x\n".as_bytes(), 3, ["ä€x", " ^"]);
        check("ä€x\n".as_bytes(), 6, ["ä€x", "  ^"]);
        check(b"a\xff\xfeb", 4, ["a\u{fffd}\u{fffd}b", "   ^"]);
    }

    #[test]
    fn control_characters_are_not_written() {
        check(b"\x1b[2Ja\x07", 5, ["\u{fffd}[2Ja\u{fffd}", "    ^"]);
        check("a\u{202e}b".as_bytes(), 5, ["a\u{fffd}b", "  ^"]);
        let location = Location::File("a\n\x1b[2J.toml".into());
        let diagnostic = Diagnostic::error(location, Problem::new("x\ny", "z\u{202e}"));
        assert_eq!(diagnostic.to_string(), "a\\n\\u{1b}[2J.toml: x\\ny; z\\u{202e}");
        assert!(!diagnostic.to_snippet(None, Colour::Off).contains(['\x1b', '\u{202e}']));
    }

    #[test]
    fn long_line_is_cut_around_the_column() {
        let line = format!("{}X{}", "a".repeat(300), "b".repeat(300));
        let snippet = error_at(7, 301).to_snippet(Some(line.as_bytes()), Colour::Off);
        assert!(snippet.contains("aXb") && snippet.lines().all(|line| line.len() <= 120), "{snippet}");
    }

    #[test]
    fn snippet_without_a_source_line_has_the_location() {
        let expected = "a.toml:12:3: error: it is wrong\n |\n = help: correct it";
        assert_eq!(
            error_at(12, 3).to_snippet(None, Colour::Off).replace("   -->", " -->").replace("   ", "  "),
            expected
        );
        let file = Diagnostic::warning(Location::File("a.zone".into()), Problem::new("it is large", "split it"));
        let snippet = file.to_snippet(Some(b"x"), Colour::Off);
        assert!(snippet.starts_with("a.zone: warning: it is large\n"), "{snippet}");
    }

    #[test]
    fn colour_adds_escape_sequences() {
        assert!(error_at(1, 1).to_snippet(Some(b"x"), Colour::On).contains("\x1b["));
        assert!(!error_at(1, 1).to_snippet(Some(b"x"), Colour::Off).contains("\x1b["));
    }

    fn report(diagnostics: &[Diagnostic], format: Format) -> String {
        let mut text = Vec::new();
        write_report(diagnostics, format, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn report_ends_with_the_count_by_severity() {
        let warning = Diagnostic::warning(Location::File("a".into()), Problem::new("b", "c"));
        let end = |diagnostics: &[Diagnostic]| report(diagnostics, Format::Line).lines().last().map(str::to_owned);
        assert_eq!(end(&[]), None);
        assert_eq!(end(&[error_at(1, 1)]).unwrap(), "1 error");
        assert_eq!(end(&[error_at(1, 1), error_at(2, 1), warning.clone()]).unwrap(), "2 errors, 1 warning");
        assert_eq!(end(&[warning.clone(), warning.clone()]).unwrap(), "2 warnings");
        let note = Diagnostic::note(Location::File("a".into()), Problem::new("b", "c"));
        assert_eq!(end(std::slice::from_ref(&note)).unwrap(), "1 note");
        assert_eq!(end(&[warning, note]).unwrap(), "1 warning, 1 note");
    }

    #[test]
    fn each_line_of_a_report_has_its_priority_for_journald() {
        let warning = Diagnostic::warning(Location::File("a".into()), Problem::new("b", "c"));
        let note = Diagnostic::note(Location::File("a".into()), Problem::new("b", ""));
        for (diagnostics, expected) in [
            (vec![error_at(1, 1), note], "<3>a.toml:1:1: it is wrong; correct it\n<6>a: note: b\n<3>1 error, 1 note\n"),
            (vec![warning], "<4>a: warning: b; c\n<4>1 warning\n"),
            (vec![], ""),
        ] {
            assert_eq!(report(&diagnostics, Format::Journal), expected);
        }
        let long = report(&vec![error_at(1, 1); SHOWN_MAX + 5], Format::Journal);
        assert!(long.ends_with("<3>and 5 more\n<3>105 errors\n"), "{long}");
    }

    #[test]
    fn report_is_bounded() {
        let text = report(&vec![error_at(1, 1); SHOWN_MAX + 5], Format::Line);
        assert_eq!(text.lines().count(), SHOWN_MAX + 2);
        assert!(text.ends_with("and 5 more\n105 errors\n"), "{text}");
    }

    #[test]
    fn lines_for_a_client_are_bounded() {
        let lines = |count| for_client(&vec![error_at(1, 1); count]).collect::<Vec<_>>();
        assert_eq!(lines(0), [""; 0]);
        assert_eq!(lines(SHOWN_MAX).len(), SHOWN_MAX);
        assert_eq!(lines(SHOWN_MAX + 5).last().map(String::as_str), Some("and 5 more in the log\n"));
    }

    #[test]
    fn report_about_input_that_was_not_read_to_its_end_says_at_least() {
        let mut diagnostics = vec![error_at(1, 1); SHOWN_MAX];
        diagnostics.push(Diagnostic::incomplete(Location::File("a".into()), Problem::new("b", "c")));
        let text = report(&diagnostics, Format::Line);
        assert!(text.ends_with("and at least 1 more\nat least 101 errors\n"), "{text}");
    }

    #[test]
    fn report_reads_the_source_line_from_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.toml");
        std::fs::write(&file, "first\nsecond\r\n").unwrap();
        let shown = |line| {
            let location = Location::Position { file: file.clone(), line, column: 2 };
            report(&[Diagnostic::error(location, Problem::new("a", "b"))], Format::Snippet(Colour::Off))
        };
        assert!(shown(2).contains("\n2 | second\n  |  ^\n"), "{}", shown(2));
        assert!(!shown(9).contains("second"), "{}", shown(9));
    }

    #[test]
    fn output_that_is_not_a_terminal_gets_lines() {
        assert_eq!(Format::for_output(&tempfile::tempfile().unwrap()), Format::Line);
    }

    #[test]
    fn reason_has_no_error_number() {
        let error = io::Error::from_raw_os_error(13);
        assert_eq!(error_text(&error), "Permission denied");
        let wrapped = io::Error::other(format!("bind(\"x\") failed: {error}; start as root"));
        assert_eq!(error_text(&wrapped), "bind(\"x\") failed: Permission denied; start as root");
        assert_eq!(error_text(&io::Error::other("plain")), "plain");
        let without_memory = io::Error::from_raw_os_error(12);
        assert_eq!(
            error_text(&io::Error::other(format!("epoll_create1() failed: {without_memory}"))),
            "epoll_create1() failed: Cannot allocate memory; free memory, or raise the memory limit of the service \
             (MemoryMax= of systemd)"
        );
    }
}
