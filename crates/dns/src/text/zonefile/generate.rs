//! Expands `$GENERATE range owner [TTL] [class] type RDATA` into lines, as BIND does.

use super::number;
use super::record_type::RecordType;
use super::scanner::{Excerpt, Scanner, Token, TokenKind};
use super::{Diagnostic, ParserLimits, Position};
use alloc::format;
use alloc::vec::Vec;

/// A problem with a placeholder, and its remedy.
type Fault = (&'static str, &'static str);

const PLACEHOLDER_REMEDY: &str =
    "write $, ${offset}, ${offset,width} or ${offset,width,base} with a base of d, o, x, X, n or N";
const RANGE_REMEDY: &str = "write start-stop or start-stop/step, as in 1-254 or 0-62/2";
/// The highest width of a placeholder, as in BIND.
const WIDTH_MAX: u32 = 127;

/// The current `$GENERATE`.
#[derive(Debug)]
pub(super) struct Generate {
    position: Position,
    /// The next value; `None` after the last.
    next: Option<u32>,
    stop: u32,
    step: u32,
    owner: Vec<u8>,
    /// TTL, class and type.
    head: Vec<u8>,
    rdata: Vec<u8>,
    /// The buffer of a line, for reuse.
    line: Vec<u8>,
}

impl Generate {
    /// Reads the arguments of `$GENERATE`.
    pub(super) fn parse(
        position: Position,
        scanner: &mut Scanner,
        limits: &ParserLimits,
    ) -> Result<Generate, Diagnostic> {
        let range = argument(scanner, "range")?;
        let (start, stop, step) = parse_range(scanner.text_of(range))
            .map_err(|(problem, remedy)| Diagnostic::about(scanner, range, problem, remedy))?;
        if (stop - start) / step >= limits.generate_count_max {
            let problem = format!(
                "the range {} has more than {} values",
                Excerpt(scanner.text_of(range)),
                limits.generate_count_max
            );
            return Err(Diagnostic::error(scanner.position_of(range), problem, "split the range, or use a wildcard"));
        }
        let owner = argument(scanner, "owner")?;
        let owner = scanner.source_of(owner).to_vec();
        let mut head = Vec::new();
        loop {
            let token = argument(scanner, "type")?;
            let text = scanner.text_of(token);
            let is_type = RecordType::from_text(text).is_some();
            head.extend_from_slice(text);
            head.push(b' ');
            if is_type {
                break;
            }
        }
        let first = argument(scanner, "RDATA")?;
        let mut rdata = scanner.source_of(first).to_vec();
        let mut count = 1;
        while let Some(token) = scanner.token()? {
            rdata.push(b' ');
            rdata.extend_from_slice(scanner.source_of(token));
            count += 1;
        }
        // BIND takes one token only. Quotes keep several fields together: "10 mx$".
        if count == 1 && first.kind == TokenKind::Quoted {
            rdata = scanner.text_of(first).to_vec();
        }
        Ok(Generate { position, next: Some(start), stop, step, owner, head, rdata, line: Vec::new() })
    }

    /// The line for the next value; `None` after the last.
    pub(super) fn next_line(&mut self) -> Option<Result<Scanner, Diagnostic>> {
        let value = self.next?;
        self.next = value.checked_add(self.step).filter(|&next| next <= self.stop);
        let mut line = core::mem::take(&mut self.line);
        line.clear();
        let expanded = expand(&self.owner, value, &mut line).and_then(|()| {
            line.push(b' ');
            line.extend_from_slice(&self.head);
            expand(&self.rdata, value, &mut line)
        });
        Some(match expanded {
            Ok(()) => Ok(Scanner::of_generated(self.position, line)),
            Err((problem, remedy)) => Err(Diagnostic::error(self.position, problem, remedy)),
        })
    }

    /// Returns the buffer of a line that was read.
    pub(super) fn reuse_line(&mut self, scanner: Scanner) {
        self.line = scanner.into_text();
    }
}

/// The next argument; each is required.
fn argument(scanner: &mut Scanner, what: &str) -> Result<Token, Diagnostic> {
    scanner.token()?.ok_or_else(|| {
        let remedy = "write $GENERATE start-stop owner type RDATA";
        Diagnostic::error(scanner.position(), format!("$GENERATE has no {what}"), remedy)
    })
}

/// `start-stop` or `start-stop/step`.
fn parse_range(text: &[u8]) -> Result<(u32, u32, u32), Fault> {
    const MALFORMED: Fault = ("is not a range", RANGE_REMEDY);
    let number = |digits: &[u8]| match digits {
        [] => Err(MALFORMED),
        _ if !digits.iter().all(u8::is_ascii_digit) => Err(MALFORMED),
        _ => number::parse_decimal(digits, i32::MAX as u64)
            .map(|value| value as u32)
            .ok_or(("has a number above 2147483647", RANGE_REMEDY)),
    };
    let (range, step) = match split_at_byte(text, b'/') {
        Some((range, step)) => (range, number(step)?),
        None => (text, 1),
    };
    let (start, stop) = split_at_byte(range, b'-').ok_or(MALFORMED)?;
    match (number(start)?, number(stop)?) {
        (start, stop) if start > stop => Err(("ends before it starts", "write the lower number first, as in 1-254")),
        _ if step == 0 => Err(("has a step of 0", "write a step of at least 1, as in 0-62/2")),
        (start, stop) => Ok((start, stop, step)),
    }
}

fn split_at_byte(text: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|&byte| byte == separator)?;
    Some((&text[..at], &text[at + 1..]))
}

/// Appends `template` with its placeholders replaced: `$` is the value, `$$` and `\$` are a dollar sign.
fn expand(template: &[u8], value: u32, out: &mut Vec<u8>) -> Result<(), Fault> {
    let mut rest = template;
    loop {
        rest = match rest {
            [] => return Ok(()),
            [b'\\', escaped, tail @ ..] => {
                out.extend_from_slice(&[b'\\', *escaped]);
                tail
            }
            [b'$', b'$', tail @ ..] => {
                out.push(b'$');
                tail
            }
            [b'$', b'{', tail @ ..] => {
                let (placeholder, tail) =
                    split_at_byte(tail, b'}').ok_or(("a placeholder ${ has no closing brace", PLACEHOLDER_REMEDY))?;
                let placeholder = Placeholder::parse(placeholder);
                placeholder.ok_or(("a placeholder ${…} is invalid", PLACEHOLDER_REMEDY))?.put(value, out)?;
                tail
            }
            [b'$', tail @ ..] => {
                Placeholder::PLAIN.put(value, out)?;
                tail
            }
            [byte, tail @ ..] => {
                out.push(*byte);
                tail
            }
        };
    }
}

/// `${offset,width,base}`.
struct Placeholder {
    offset: i32,
    width: u32,
    base: u8,
}

impl Placeholder {
    const PLAIN: Placeholder = Placeholder { offset: 0, width: 0, base: b'd' };

    /// Parses the text between the braces.
    fn parse(text: &[u8]) -> Option<Placeholder> {
        let mut parts = text.splitn(3, |&byte| byte == b',');
        let offset = core::str::from_utf8(parts.next()?).ok()?.parse().ok()?;
        let width = parts.next().map_or(Some(0), |width| number::parse_decimal(width, u64::from(WIDTH_MAX)))? as u32;
        let base = match parts.next() {
            None => b'd',
            Some(&[base @ (b'd' | b'o' | b'x' | b'X' | b'n' | b'N')]) => base,
            Some(_) => return None,
        };
        Some(Placeholder { offset, width, base })
    }

    /// Appends `value`.
    fn put(&self, value: u32, out: &mut Vec<u8>) -> Result<(), Fault> {
        // As in BIND, values and sums are below 2^31.
        let sum = i64::from(value) + i64::from(self.offset);
        let sum =
            i32::try_from(sum).map_err(|_| ("a value with its offset is above 2147483647", "lower the offset"))?;
        let width = self.width as usize;
        let digits = match self.base {
            b'd' => format!("{sum:0width$}"),
            b'o' => format!("{sum:0width$o}"),
            b'x' => format!("{sum:0width$x}"),
            b'X' => format!("{sum:0width$X}"),
            base => {
                put_nibbles(sum as u32, self.width, base == b'N', out);
                return Ok(());
            }
        };
        out.extend_from_slice(digits.as_bytes());
        Ok(())
    }
}

/// Appends hexadecimal digits as labels, the lowest first, for `ip6.arpa`. `width` counts digits and dots.
fn put_nibbles(value: u32, width: u32, upper_case: bool, out: &mut Vec<u8>) {
    let mut rest = value;
    let mut room = width;
    loop {
        let digit = char::from_digit(rest & 0xf, 16).expect("below 16");
        out.push(if upper_case { digit.to_ascii_uppercase() } else { digit } as u8);
        rest >>= 4;
        room = room.saturating_sub(1);
        if room == 0 && rest == 0 {
            return;
        }
        out.push(b'.');
        room = room.saturating_sub(1);
        if room == 0 && rest == 0 {
            return;
        }
    }
}
