//! Turns `$GENERATE range owner [TTL] [class] type RDATA` into the lines that it stands for, as BIND does.

use super::number;
use super::scanner::{Form, Scanner, Shown, Token};
use super::{Diagnostic, ParserLimits, Position};
use alloc::format;
use alloc::vec::Vec;

/// Digits that a place may be padded to; BIND has the same bound.
const WIDTH_MAX: u32 = 127;

/// A `$GENERATE` at work.
#[derive(Debug)]
pub(super) struct Generate {
    position: Position,
    /// The next value, if there is one more.
    next: Option<u32>,
    stop: u32,
    step: u32,
    owner: Vec<u8>,
    /// TTL, class and type, taken as they are.
    head: Vec<u8>,
    rdata: Vec<u8>,
    /// The line, a buffer used again and again.
    line: Vec<u8>,
}

impl Generate {
    /// Reads what stands behind `$GENERATE`.
    pub(super) fn parse(
        position: Position,
        scanner: &mut Scanner,
        limits: &ParserLimits,
    ) -> Result<Generate, Diagnostic> {
        let range = part(scanner, "range")?;
        let (start, stop, step) = parse_range(scanner.text_of(range)).ok_or_else(|| {
            Diagnostic::not_a(scanner, range, "range", "write start-stop or start-stop/step, as in 1-254 or 0-62/2")
        })?;
        if (stop - start) / step >= limits.generate_count_max {
            let problem =
                format!("{} is more than {} records", Shown(scanner.text_of(range)), limits.generate_count_max);
            return Err(Diagnostic::error(scanner.position_of(range), problem, "cut the range, or use a wildcard"));
        }
        let owner = part(scanner, "owner")?;
        let owner = scanner.source_of(owner).to_vec();
        let mut head = Vec::new();
        loop {
            let token = part(scanner, "type")?;
            let text = scanner.text_of(token);
            let is_type = crate::rtype::Rtype::from_text(text).is_some();
            head.extend_from_slice(text);
            head.push(b' ');
            if is_type {
                break;
            }
        }
        let first = part(scanner, "RDATA")?;
        let mut rdata = scanner.source_of(first).to_vec();
        let mut count = 1;
        while let Some(token) = scanner.token()? {
            rdata.push(b' ');
            rdata.extend_from_slice(scanner.source_of(token));
            count += 1;
        }
        // BIND takes one token only; where it is quoted, the quotes hold several fields together: "10 mx$".
        if count == 1 && first.form == Form::Quoted {
            rdata = scanner.text_of(first).to_vec();
        }
        Ok(Generate { position, next: Some(start), stop, step, owner, head, rdata, line: Vec::new() })
    }

    /// The line for the next value; `None` behind the last.
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
            Err(problem) => {
                let remedy =
                    "write $, ${offset}, ${offset,width} or ${offset,width,base} with a base of d, o, x, X, n or N";
                Err(Diagnostic::error(self.position, problem, remedy))
            }
        })
    }

    /// Takes the buffer of a line back when it has been read.
    pub(super) fn take_back(&mut self, scanner: Scanner) {
        self.line = scanner.into_text();
    }
}

/// The next part of the directive; each is required.
fn part(scanner: &mut Scanner, what: &str) -> Result<Token, Diagnostic> {
    scanner.token()?.ok_or_else(|| {
        let remedy = "write $GENERATE start-stop owner type RDATA";
        Diagnostic::error(scanner.position(), format!("$GENERATE ends before its {what}"), remedy)
    })
}

/// `start-stop` or `start-stop/step`.
fn parse_range(text: &[u8]) -> Option<(u32, u32, u32)> {
    let number = |digits: &[u8]| number::parse_decimal(digits, i32::MAX as u64).map(|value| value as u32);
    let (range, step) = match split_at_octet(text, b'/') {
        Some((range, step)) => (range, number(step)?),
        None => (text, 1),
    };
    let (start, stop) = split_at_octet(range, b'-')?;
    let (start, stop) = (number(start)?, number(stop)?);
    (start <= stop && step > 0).then_some((start, stop, step))
}

fn split_at_octet(text: &[u8], border: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|&octet| octet == border)?;
    Some((&text[..at], &text[at + 1..]))
}

/// Appends `template` with its places filled: `$` is the value, `$$` and `\$` are a dollar sign.
fn expand(template: &[u8], value: u32, out: &mut Vec<u8>) -> Result<(), &'static str> {
    let mut rest = template;
    loop {
        rest = match rest {
            [] => return Ok(()),
            [b'\\', escaped, behind @ ..] => {
                out.extend_from_slice(&[b'\\', *escaped]);
                behind
            }
            [b'$', b'$', behind @ ..] => {
                out.push(b'$');
                behind
            }
            [b'$', b'{', behind @ ..] => {
                let (place, behind) = split_at_octet(behind, b'}').ok_or("a place ${ has no end")?;
                Place::parse(place).ok_or("a place ${…} is wrong")?.fill(value, out)?;
                behind
            }
            [b'$', behind @ ..] => {
                Place::PLAIN.fill(value, out)?;
                behind
            }
            [octet, behind @ ..] => {
                out.push(*octet);
                behind
            }
        };
    }
}

/// `${offset,width,base}`.
struct Place {
    offset: i32,
    width: u32,
    base: u8,
}

impl Place {
    const PLAIN: Place = Place { offset: 0, width: 0, base: b'd' };

    /// Reads what stands between the braces.
    fn parse(text: &[u8]) -> Option<Place> {
        let mut parts = text.splitn(3, |&octet| octet == b',');
        let offset = core::str::from_utf8(parts.next()?).ok()?.parse().ok()?;
        let width = parts.next().map_or(Some(0), |width| number::parse_decimal(width, u64::from(WIDTH_MAX)))? as u32;
        let base = match parts.next() {
            None => b'd',
            Some(&[base @ (b'd' | b'o' | b'x' | b'X' | b'n' | b'N')]) => base,
            Some(_) => return None,
        };
        Some(Place { offset, width, base })
    }

    fn fill(&self, value: u32, out: &mut Vec<u8>) -> Result<(), &'static str> {
        // Values are below 2^31, so that the sum fits; BIND has no larger ones either.
        let sum = i64::from(value) + i64::from(self.offset);
        let sum = i32::try_from(sum).map_err(|_| "a value with its offset is over 2147483647")?;
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

/// Hexadecimal digits as labels, the lowest first, for `ip6.arpa`; `width` counts digits and dots.
fn put_nibbles(value: u32, width: u32, upper_case: bool, out: &mut Vec<u8>) {
    let mut rest = value;
    let mut room = width;
    loop {
        let digit = char::from_digit(rest & 0xf, 16).expect("four bits are a hexadecimal digit");
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
