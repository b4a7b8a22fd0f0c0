//! Reads the fields of RDATA from text: numbers, addresses, names, strings, digits.

use super::name_text;
use super::number;
use super::scanner::{self, Excerpt, Scanner, Token};
use super::{Diagnostic, Position};
use crate::text::name::Name;
use crate::text::rdata::base::Base;
use crate::text::rdata::mnemonic::{self, Mnemonics};
use crate::text::rdata::{self, RDATA_BYTES_MAX};
use crate::text::rtype::Rtype;
use alloc::format;
use alloc::vec::Vec;
use core::net::Ipv6Addr;

/// How to write a duration.
pub(super) const DURATION_REMEDY: &str = "write seconds, or numbers with the units w, d, h, m or s, as in 1h30m";
/// How to write RDATA without fields.
pub(super) const GENERIC_REMEDY: &str = "write \\# length hexadecimal-digits (RFC 3597 section 5)";
/// Bytes of the longest `<character-string>` (RFC 1035 §3.3).
const STRING_BYTES_MAX: usize = 255;

/// Reads the RDATA of one record from text and appends its wire form.
pub(super) struct RdataReader<'r> {
    pub(super) scanner: &'r mut Scanner,
    origin: Name<'r>,
    pub(super) rtype: Rtype,
    /// The current field, for messages, and its first token.
    pub(super) field: &'static str,
    pub(super) field_start: Option<Token>,
    /// A string that was split.
    pub(super) split_string: Option<Token>,
    pub(super) out: &'r mut Vec<u8>,
    /// A buffer for text without escapes or blanks.
    pub(super) scratch: &'r mut Vec<u8>,
}

impl<'r> RdataReader<'r> {
    /// A reader of the text after the type. `out` is empty.
    pub(super) fn new(
        scanner: &'r mut Scanner,
        origin: Name<'r>,
        rtype: Rtype,
        out: &'r mut Vec<u8>,
        scratch: &'r mut Vec<u8>,
    ) -> RdataReader<'r> {
        RdataReader { scanner, origin, rtype, field: "RDATA", field_start: None, split_string: None, out, scratch }
    }

    /// The next token of the field, which is required.
    pub(super) fn token(&mut self) -> Result<Token, Diagnostic> {
        match self.optional_token()? {
            Some(token) => Ok(token),
            None => {
                let problem = format!("{} {}: the field is missing", self.rtype, self.field);
                let names: Vec<&str> =
                    rdata::fields(self.rtype).unwrap_or_default().iter().map(|field| field.name).collect();
                let remedy = match &names[..] {
                    [] => GENERIC_REMEDY.into(),
                    names => format!("the fields of {} are: {}", self.rtype, names.join(", ")),
                };
                Err(Diagnostic::error(self.scanner.position(), problem, remedy))
            }
        }
    }

    /// The next token of the field, unless the entry ends.
    pub(super) fn optional_token(&mut self) -> Result<Option<Token>, Diagnostic> {
        let token = self.scanner.token()?;
        self.field_start = self.field_start.or(token);
        Ok(token)
    }

    /// An error about `token`. `problem` completes a sentence that begins with the token.
    #[cold]
    pub(super) fn invalid(&self, token: Token, problem: &str, remedy: &str) -> Diagnostic {
        let excerpt = Excerpt(self.scanner.text_of(token));
        let problem = format!("{} {}: {excerpt} {problem}", self.rtype, self.field);
        Diagnostic::error(self.scanner.position_of(token), problem, remedy)
    }

    /// An error about a number in `token`.
    #[cold]
    pub(super) fn out_of_range(&self, token: Token, max: u64) -> Diagnostic {
        let text = self.scanner.text_of(token);
        let problem =
            if !text.is_empty() && text.iter().all(u8::is_ascii_digit) { "is out of range" } else { "is not a number" };
        self.invalid(token, problem, &format!("write 0 to {max}"))
    }

    /// An error about the whole field.
    #[cold]
    pub(super) fn malformed(&self, problem: &str, remedy: &str) -> Diagnostic {
        Diagnostic::error(self.field_position(), format!("{} {}: {problem}", self.rtype, self.field), remedy)
    }

    #[cold]
    pub(super) fn too_long(&self) -> Diagnostic {
        let problem = format!("the record has more than {RDATA_BYTES_MAX} bytes of data");
        self.malformed(&problem, "shorten the data, or split it into several records")
    }

    /// The position of the field, or of the end of the entry if the field is missing.
    fn field_position(&self) -> Position {
        self.field_start.map_or_else(|| self.scanner.position(), |token| self.scanner.position_of(token))
    }

    /// Appends the lowest `width_bytes` bytes of `value`.
    pub(super) fn put_integer(&mut self, value: u64, width_bytes: usize) {
        self.out.extend_from_slice(&value.to_be_bytes()[8 - width_bytes..]);
    }

    pub(super) fn put_number(&mut self, width_bytes: usize) -> Result<(), Diagnostic> {
        let max = u64::MAX >> (64 - 8 * width_bytes);
        let token = self.token()?;
        let Some(value) = number::parse_decimal(self.scanner.text_of(token), max) else {
            return Err(self.out_of_range(token, max));
        };
        self.put_integer(value, width_bytes);
        Ok(())
    }

    pub(super) fn put_parsed(
        &mut self,
        width_bytes: usize,
        problem: &str,
        remedy: &str,
        parse: impl Fn(&[u8]) -> Option<u64>,
    ) -> Result<(), Diagnostic> {
        let token = self.token()?;
        let value = parse(self.scanner.text_of(token)).ok_or_else(|| self.invalid(token, problem, remedy))?;
        self.put_integer(value, width_bytes);
        Ok(())
    }

    pub(super) fn put_mnemonic(&mut self, width_bytes: usize, mnemonics: Mnemonics) -> Result<(), Diagnostic> {
        let max = u64::MAX >> (64 - 8 * width_bytes);
        let (example, number) = mnemonics[0];
        let remedy = format!("write 0 to {max}, or a name such as {example} for {number}");
        self.put_parsed(width_bytes, "is neither a number in range nor a known name", &remedy, |text| {
            number::parse_decimal(text, max).or_else(|| mnemonic::number_of(mnemonics, text).map(u64::from))
        })
    }

    pub(super) fn put_ipv4(&mut self) -> Result<(), Diagnostic> {
        let token = self.token()?;
        let Some(bytes) = parse_ipv4(self.scanner.text_of(token)) else {
            return Err(self.invalid(token, "is not an IPv4 address", "write four numbers up to 255, as in 192.0.2.1"));
        };
        self.out.extend_from_slice(&bytes);
        Ok(())
    }

    pub(super) fn put_ipv6(&mut self) -> Result<(), Diagnostic> {
        let token = self.token()?;
        let Some(bytes) = parse_ipv6(self.scanner.text_of(token)) else {
            return Err(self.invalid(token, "is not an IPv6 address", "write hexadecimal groups, as in 2001:db8::1"));
        };
        self.out.extend_from_slice(&bytes);
        Ok(())
    }

    /// Reads `count` groups of up to `digits` hexadecimal digits.
    pub(super) fn put_groups(
        &mut self,
        count: usize,
        digits: usize,
        separator: u8,
        remedy: &str,
    ) -> Result<(), Diagnostic> {
        let token = self.token()?;
        let mut groups_left = count;
        for group in self.scanner.text_of(token).split(|&byte| byte == separator) {
            // Leading zeros of a group are optional (RFC 6742 §2.1.2; in BIND for EUI too).
            let fits = (1..=digits).contains(&group.len());
            let value = core::str::from_utf8(group).ok().filter(|_| fits && groups_left > 0);
            let Some(value) = value.and_then(|group| u16::from_str_radix(group, 16).ok()) else {
                return Err(self.invalid(token, "has the wrong form", remedy));
            };
            self.out.extend_from_slice(&value.to_be_bytes()[2 - digits / 2..]);
            groups_left -= 1;
        }
        if groups_left > 0 {
            return Err(self.invalid(token, "is too short", remedy));
        }
        Ok(())
    }

    pub(super) fn put_name(&mut self) -> Result<(), Diagnostic> {
        let token = self.token()?;
        self.put_name_of(token)
    }

    fn put_name_of(&mut self, token: Token) -> Result<(), Diagnostic> {
        name_text::put_name(self.scanner.text_of(token), token.kind, self.origin, self.out)
            .map(|_| ())
            .map_err(|error| error.about(self.field, self.scanner, token))
    }

    pub(super) fn put_names(&mut self) -> Result<(), Diagnostic> {
        while let Some(token) = self.optional_token()? {
            self.put_name_of(token)?;
        }
        Ok(())
    }

    pub(super) fn put_string(&mut self) -> Result<(), Diagnostic> {
        let token = self.token()?;
        self.put_string_of(token)
    }

    pub(super) fn put_optional_string(&mut self) -> Result<(), Diagnostic> {
        match self.optional_token()? {
            Some(token) => self.put_string_of(token),
            None => Ok(()),
        }
    }

    fn put_string_of(&mut self, token: Token) -> Result<(), Diagnostic> {
        let length_offset = self.out.len();
        self.out.push(0);
        put_unescaped(self.scanner, token, self.out)?;
        let length_bytes = self.out.len() - length_offset - 1;
        self.out[length_offset] =
            u8::try_from(length_bytes).map_err(|_| self.invalid(token, "has more than 255 bytes", "shorten it"))?;
        Ok(())
    }

    /// Reads strings up to the end of the entry. A string over 255 bytes is split into several, which readers of TXT
    /// records concatenate (RFC 7208 §3.3, RFC 6376 §3.6.2.2).
    pub(super) fn put_strings(&mut self) -> Result<(), Diagnostic> {
        let mut token = self.token()?;
        loop {
            let start = self.out.len();
            self.out.push(0);
            put_unescaped(self.scanner, token, self.out)?;
            // This precedes the split, which moves the bytes after each boundary.
            if self.out.len() > RDATA_BYTES_MAX {
                return Err(self.too_long());
            }
            let mut length_offset = start;
            while self.out.len() - length_offset - 1 > STRING_BYTES_MAX {
                self.split_string = Some(token);
                self.out[length_offset] = STRING_BYTES_MAX as u8;
                length_offset += 1 + STRING_BYTES_MAX;
                self.out.insert(length_offset, 0);
            }
            self.out[length_offset] = (self.out.len() - length_offset - 1) as u8;
            match self.optional_token()? {
                Some(next) => token = next,
                None => return Ok(()),
            }
        }
    }

    pub(super) fn put_rest_as_string(&mut self) -> Result<(), Diagnostic> {
        let token = self.token()?;
        put_unescaped(self.scanner, token, self.out)
    }

    /// Reads digits up to the end of the entry, with blanks anywhere between them (RFC 4034 §2.2).
    pub(super) fn put_digits(&mut self, base: Base) -> Result<(), Diagnostic> {
        let first = self.token()?;
        self.put_digits_from(base, first)
    }

    pub(super) fn put_optional_digits(&mut self, base: Base) -> Result<(), Diagnostic> {
        match self.optional_token()? {
            Some(first) => self.put_digits_from(base, first),
            None => Ok(()),
        }
    }

    pub(super) fn put_dash_or_base64(&mut self) -> Result<(), Diagnostic> {
        let first = self.token()?;
        if self.scanner.text_of(first) == b"-" { Ok(()) } else { self.put_digits_from(Base::Base64, first) }
    }

    fn put_digits_from(&mut self, base: Base, first: Token) -> Result<(), Diagnostic> {
        self.scratch.clear();
        let mut last = first;
        loop {
            self.check_digits(base, last, self.scanner.text_of(last))?;
            self.scratch.extend_from_slice(self.scanner.text_of(last));
            match self.optional_token()? {
                Some(next) => last = next,
                None => return self.decode_scratch(base, last),
            }
        }
    }

    /// Reads one token of digits. Returns the number of bytes.
    pub(super) fn put_digits_token(&mut self, base: Base, bytes_max: usize) -> Result<usize, Diagnostic> {
        let token = self.token()?;
        let start = self.out.len();
        self.scratch.clear();
        self.check_digits(base, token, self.scanner.text_of(token))?;
        self.scratch.extend_from_slice(self.scanner.text_of(token));
        self.decode_scratch(base, token)?;
        let length_bytes = self.out.len() - start;
        if length_bytes > bytes_max {
            return Err(self.invalid(token, &format!("has more than {bytes_max} bytes"), "shorten it"));
        }
        Ok(length_bytes)
    }

    /// Checks that `text`, which is part of `token`, has digits only.
    pub(super) fn check_digits(&self, base: Base, token: Token, text: &[u8]) -> Result<(), Diagnostic> {
        let Some(byte) = base.first_invalid(text) else { return Ok(()) };
        let (problem, digits) = match base {
            Base::Base16 => ("is not hexadecimal", "0 to 9 and a to f"),
            Base::Base32 => ("is not base 32", "0 to 9 and a to v"),
            Base::Base64 => ("is not base 64", "A to Z, a to z, 0 to 9, + and /"),
        };
        Err(self.invalid(token, problem, &format!("{} is not a digit; write {digits}", Excerpt(&[byte]))))
    }

    /// Appends the bytes that the digits in `scratch` encode; `last` is their last token.
    pub(super) fn decode_scratch(&mut self, base: Base, last: Token) -> Result<(), Diagnostic> {
        base.decode(self.scratch, self.out).map_err(|_| {
            let remedy = match (self.rtype, &self.scratch[..]) {
                (Rtype::CDS, b"0") => "write CDS 0 0 0 00 to ask for the deletion of the DS (RFC 8078 section 4)",
                (Rtype::CDNSKEY, b"0") => {
                    "write CDNSKEY 0 3 0 AA== to ask for the deletion of the DS (RFC 8078 section 4)"
                }
                _ => "copy the whole text again",
            };
            self.invalid(last, "has missing or superfluous digits", remedy)
        })
    }

    /// Reads one token of digits, with a length byte before the bytes.
    pub(super) fn put_counted_digits(&mut self, base: Base) -> Result<(), Diagnostic> {
        let length_offset = self.out.len();
        self.out.push(0);
        let length_bytes = self.put_digits_token(base, usize::from(u8::MAX))?;
        self.out[length_offset] = length_bytes as u8;
        Ok(())
    }

    /// RFC 5155 §3.3: `-` is an empty salt.
    pub(super) fn put_salt(&mut self) -> Result<(), Diagnostic> {
        if self.scanner.token_if(b"-")?.is_some() {
            self.out.push(0);
            return Ok(());
        }
        self.put_counted_digits(Base::Base16)
    }

    pub(super) fn put_bitmap(&mut self) -> Result<(), Diagnostic> {
        let start = self.out.len();
        while let Some(token) = self.optional_token()? {
            let Some(rtype) = Rtype::from_text(self.scanner.text_of(token)) else {
                return Err(self.invalid(token, "is not a record type", "write types such as A or TYPE65280"));
            };
            rdata::bitmap::insert(rtype, start, self.out);
        }
        Ok(())
    }
}

/// Returns an error unless the entry is at its end.
pub(super) fn expect_end(scanner: &mut Scanner) -> Result<(), Diagnostic> {
    match scanner.token()? {
        None => Ok(()),
        Some(token) => Err(Diagnostic::about(
            scanner,
            token,
            "comes after the last field of the entry",
            "remove it, or start a new line before it",
        )),
    }
}

/// The text of a token without escapes.
pub(super) fn unescaped(scanner: &Scanner, token: Token) -> Result<Vec<u8>, Diagnostic> {
    let mut out = Vec::new();
    put_unescaped(scanner, token, &mut out)?;
    Ok(out)
}

/// Appends the text of a token without escapes.
pub(super) fn put_unescaped(scanner: &Scanner, token: Token, out: &mut Vec<u8>) -> Result<(), Diagnostic> {
    let mut rest = scanner.text_of(token);
    while let Some(plain) = rest.iter().position(|&byte| byte == b'\\') {
        out.extend_from_slice(&rest[..plain]);
        rest = match scanner::split_byte(&rest[plain..]) {
            Some(Ok((byte, tail))) => {
                out.push(byte);
                tail
            }
            Some(Err(scanner::InvalidEscape)) | None => {
                return Err(Diagnostic::about(scanner, token, "has an invalid escape", name_text::ESCAPE_REMEDY));
            }
        };
    }
    out.extend_from_slice(rest);
    Ok(())
}

/// Parses an IPv4 address: four numbers up to 255 without leading zeros.
///
/// The standard library's parser accepts the same texts, and is slower. Most records of most zones have addresses.
pub(super) fn parse_ipv4(text: &[u8]) -> Option<[u8; 4]> {
    let mut bytes = [0; 4];
    let mut numbers = text.split(|&byte| byte == b'.');
    for byte in &mut bytes {
        *byte = match *numbers.next()? {
            [ones @ b'0'..=b'9'] => ones - b'0',
            [tens @ b'1'..=b'9', ones @ b'0'..=b'9'] => (tens - b'0') * 10 + (ones - b'0'),
            [hundreds @ b'1'..=b'2', tens @ b'0'..=b'9', ones @ b'0'..=b'9'] => {
                (hundreds - b'0').checked_mul(100)?.checked_add((tens - b'0') * 10 + (ones - b'0'))?
            }
            _ => return None,
        };
    }
    numbers.next().is_none().then_some(bytes)
}

/// Parses an IPv6 address.
pub(super) fn parse_ipv6(text: &[u8]) -> Option<[u8; 16]> {
    let address: Ipv6Addr = core::str::from_utf8(text).ok()?.parse().ok()?;
    Some(address.to_bits().to_be_bytes())
}
