//! Turns the text of one field of RDATA into its wire form: numbers, addresses, names, strings, digits.

use super::name_text;
use super::number;
use super::scanner::{self, Scanner, Shown, Token};
use super::{Diagnostic, Position};
use crate::name::Name;
use crate::rdata::encoding::{Base, Decoder, DigitsError};
use crate::rdata::mnemonic::{self, Mnemonics};
use crate::rdata::{self, RDATA_BYTES_MAX};
use crate::rtype::Rtype;
use alloc::format;
use alloc::vec::Vec;
use core::net::Ipv6Addr;
use core::str::FromStr;

/// What mends a time.
pub(super) const PERIOD_REMEDY: &str = "write seconds, or numbers with the units w, d, h, m or s, as in 1h30m";
/// What mends RDATA that has no fields.
pub(super) const GENERIC_REMEDY: &str = "write \\# length hexadecimal-digits (RFC 3597)";
/// Octets of the longest `<character-string>` (RFC 1035 §3.3).
const STRING_BYTES_MAX: usize = 255;

/// The RDATA of one record, on its way from text to wire form.
pub(super) struct RdataText<'r> {
    pub(super) scanner: &'r mut Scanner,
    origin: Name<'r>,
    pub(super) rtype: Rtype,
    /// The field that is being read, for messages, and where it starts.
    pub(super) field: &'static str,
    pub(super) field_start: Option<Token>,
    pub(super) out: &'r mut Vec<u8>,
    /// Octets of a token without its escapes.
    pub(super) scratch: &'r mut Vec<u8>,
}

impl<'r> RdataText<'r> {
    /// Reads from `scanner`, behind the type, into `out`, which is empty.
    pub(super) fn new(
        scanner: &'r mut Scanner,
        origin: Name<'r>,
        rtype: Rtype,
        out: &'r mut Vec<u8>,
        scratch: &'r mut Vec<u8>,
    ) -> RdataText<'r> {
        RdataText { scanner, origin, rtype, field: "RDATA", field_start: None, out, scratch }
    }

    /// The next token of this field; it must be there.
    pub(super) fn token(&mut self) -> Result<Token, Diagnostic> {
        match self.optional_token()? {
            Some(token) => Ok(token),
            None => {
                let problem = format!("the {} of {} is missing", self.field, self.rtype);
                let names: Vec<&str> =
                    rdata::fields(self.rtype).unwrap_or_default().iter().map(|field| field.name).collect();
                let remedy = match &names[..] {
                    [] => GENERIC_REMEDY.into(),
                    names => format!("the fields are: {}", names.join(", ")),
                };
                Err(Diagnostic::error(self.scanner.position(), problem, remedy))
            }
        }
    }

    /// The next token of this field, if the entry goes on.
    pub(super) fn optional_token(&mut self) -> Result<Option<Token>, Diagnostic> {
        let token = self.scanner.token()?;
        self.field_start = self.field_start.or(token);
        Ok(token)
    }

    /// An error about `token`: it is no `what`.
    #[cold]
    pub(super) fn not_a(&self, token: Token, what: &str, remedy: &str) -> Diagnostic {
        let shown = Shown(self.scanner.text_of(token));
        Diagnostic::error(
            self.scanner.position_of(token),
            format!("the {} of {}, {shown}, is no {what}", self.field, self.rtype),
            remedy,
        )
    }

    /// Where the field starts, or where it should.
    fn field_position(&self) -> Position {
        self.field_start.map_or_else(|| self.scanner.position(), |token| self.scanner.position_of(token))
    }

    /// An error about the whole field.
    #[cold]
    pub(super) fn malformed(&self, problem: &str) -> Diagnostic {
        let position = self.field_position();
        let remedy = format!("see the RFC of {} for what the field may be", self.rtype);
        Diagnostic::error(position, format!("the {} of {} {problem}", self.field, self.rtype), remedy)
    }

    #[cold]
    pub(super) fn too_long(&self) -> Diagnostic {
        let position = self.field_position();
        let problem =
            format!("the {} of {} makes the record longer than {RDATA_BYTES_MAX} octets", self.field, self.rtype);
        Diagnostic::error(position, problem, "shorten it, or cut it into several records")
    }

    /// The lowest `width_bytes` octets of `value`.
    pub(super) fn put_integer(&mut self, value: u64, width_bytes: usize) {
        self.out.extend_from_slice(&value.to_be_bytes()[8 - width_bytes..]);
    }

    pub(super) fn put_number(&mut self, width_bytes: usize) -> Result<(), Diagnostic> {
        let max = u64::MAX >> (64 - 8 * width_bytes);
        let token = self.token()?;
        let Some(value) = number::parse_decimal(self.scanner.text_of(token), max) else {
            return Err(self.not_a(token, "number in range", &format!("write a number from 0 to {max}")));
        };
        self.put_integer(value, width_bytes);
        Ok(())
    }

    pub(super) fn put_parsed(
        &mut self,
        width_bytes: usize,
        what: &str,
        remedy: &str,
        parse: impl Fn(&[u8]) -> Option<u64>,
    ) -> Result<(), Diagnostic> {
        let token = self.token()?;
        let value = parse(self.scanner.text_of(token)).ok_or_else(|| self.not_a(token, what, remedy))?;
        self.put_integer(value, width_bytes);
        Ok(())
    }

    pub(super) fn put_mnemonic(&mut self, width_bytes: usize, mnemonics: Mnemonics) -> Result<(), Diagnostic> {
        let max = u64::MAX >> (64 - 8 * width_bytes);
        let (example, number) = mnemonics[0];
        let remedy = format!("write a number from 0 to {max}, or a name such as {example} for {number}");
        self.put_parsed(width_bytes, "number or name", &remedy, |text| {
            number::parse_decimal(text, max).or_else(|| mnemonic::number_of(mnemonics, text).map(u64::from))
        })
    }

    pub(super) fn put_ipv4(&mut self) -> Result<(), Diagnostic> {
        let token = self.token()?;
        match parse_ipv4(self.scanner.text_of(token)) {
            Some(octets) => self.out.extend_from_slice(&octets),
            None => return Err(self.not_a(token, "IPv4 address", "write four numbers up to 255, as in 192.0.2.1")),
        }
        Ok(())
    }

    pub(super) fn put_ipv6(&mut self) -> Result<(), Diagnostic> {
        let token = self.token()?;
        match parse_address::<Ipv6Addr>(self.scanner.text_of(token)) {
            Some(address) => self.out.extend_from_slice(&address.octets()),
            None => return Err(self.not_a(token, "IPv6 address", "write hexadecimal groups, as in 2001:db8::1")),
        }
        Ok(())
    }

    /// `count` groups of up to `digits` hexadecimal digits.
    pub(super) fn put_groups(&mut self, count: usize, digits: usize, border: u8, what: &str) -> Result<(), Diagnostic> {
        let token = self.token()?;
        let mut groups_left = count;
        for group in self.scanner.text_of(token).split(|&octet| octet == border) {
            // Zeros at the start of a group may lack (RFC 6742 §2.1.2; BIND takes that for EUI too).
            let right = (1..=digits).contains(&group.len());
            let value = core::str::from_utf8(group).ok().filter(|_| right && groups_left > 0);
            let Some(value) = value.and_then(|group| u16::from_str_radix(group, 16).ok()) else {
                return Err(self.not_a(token, "address of this kind", &format!("write {what}")));
            };
            self.out.extend_from_slice(&value.to_be_bytes()[2 - digits / 2..]);
            groups_left -= 1;
        }
        if groups_left > 0 {
            return Err(self.not_a(token, "address of this kind", &format!("write {what}")));
        }
        Ok(())
    }

    pub(super) fn put_name(&mut self) -> Result<(), Diagnostic> {
        let token = self.token()?;
        self.put_name_of(token)
    }

    pub(super) fn put_name_of(&mut self, token: Token) -> Result<(), Diagnostic> {
        name_text::put_name(self.scanner.text_of(token), token.form, self.origin, self.out)
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

    pub(super) fn put_string_of(&mut self, token: Token) -> Result<(), Diagnostic> {
        let length_at = self.out.len();
        self.out.push(0);
        put_unescaped(self.scanner, token, self.out)?;
        let length_bytes = self.out.len() - length_at - 1;
        self.out[length_at] =
            u8::try_from(length_bytes).map_err(|_| self.not_a(token, "string of at most 255 octets", "shorten it"))?;
        Ok(())
    }

    /// Strings up to the end; one over 255 octets is cut into several, which readers of TXT join again
    /// (RFC 7208 §3.3, RFC 6376 §3.6.2.2).
    pub(super) fn put_strings(&mut self) -> Result<(), Diagnostic> {
        let mut token = self.token()?;
        loop {
            let start = self.out.len();
            self.out.push(0);
            put_unescaped(self.scanner, token, self.out)?;
            // Before the cutting, which moves what is behind each cut.
            if self.out.len() > RDATA_BYTES_MAX {
                return Err(self.too_long());
            }
            let mut length_at = start;
            while self.out.len() - length_at - 1 > STRING_BYTES_MAX {
                self.out[length_at] = STRING_BYTES_MAX as u8;
                length_at += 1 + STRING_BYTES_MAX;
                self.out.insert(length_at, 0);
            }
            self.out[length_at] = (self.out.len() - length_at - 1) as u8;
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

    /// Digits up to the end of the entry, blanks anywhere between them.
    pub(super) fn put_digits(&mut self, base: Base, required: bool) -> Result<(), Diagnostic> {
        let mut decoder = Decoder::new(base);
        let mut last = match self.optional_token()? {
            Some(token) => token,
            None if required => self.token()?,
            None => return Ok(()),
        };
        loop {
            self.decode(&mut decoder, last, base)?;
            match self.optional_token()? {
                Some(next) => last = next,
                None => break,
            }
        }
        self.finish(decoder, last, base)
    }

    pub(super) fn decode(&mut self, decoder: &mut Decoder, token: Token, base: Base) -> Result<(), Diagnostic> {
        decoder.take(self.scanner.text_of(token), self.out).map_err(|error| self.bad_digits(token, base, error))
    }

    pub(super) fn finish(&self, decoder: Decoder, last: Token, base: Base) -> Result<(), Diagnostic> {
        decoder.finish().map_err(|error| self.bad_digits(last, base, error))
    }

    #[cold]
    pub(super) fn bad_digits(&self, token: Token, base: Base, error: DigitsError) -> Diagnostic {
        let name = match base {
            Base::Base16 => "hexadecimal",
            Base::Base32 => "base 32",
            Base::Base64 => "base 64",
        };
        match error {
            DigitsError::NoDigit(octet) => {
                let remedy = format!("{} cannot stand there", Shown(&[octet]));
                self.not_a(token, &format!("{name} text"), &remedy)
            }
            DigitsError::Incomplete => {
                let remedy = "digits are missing, or there are too many: copy the whole of it";
                self.not_a(token, &format!("complete {name} text"), remedy)
            }
        }
    }

    pub(super) fn put_dash_or_base64(&mut self) -> Result<(), Diagnostic> {
        let token = self.token()?;
        if self.scanner.text_of(token) == b"-" {
            return Ok(());
        }
        let mut decoder = Decoder::new(Base::Base64);
        let mut last = token;
        loop {
            self.decode(&mut decoder, last, Base::Base64)?;
            match self.optional_token()? {
                Some(next) => last = next,
                None => return self.finish(decoder, last, Base::Base64),
            }
        }
    }

    /// One token of digits behind an octet of their length.
    pub(super) fn put_counted_digits(&mut self, base: Base) -> Result<(), Diagnostic> {
        let token = self.token()?;
        let length_at = self.out.len();
        self.out.push(0);
        let mut decoder = Decoder::new(base);
        self.decode(&mut decoder, token, base)?;
        self.finish(decoder, token, base)?;
        let length_bytes = self.out.len() - length_at - 1;
        self.out[length_at] =
            u8::try_from(length_bytes).map_err(|_| self.not_a(token, "value of at most 255 octets", "shorten it"))?;
        Ok(())
    }

    /// RFC 5155 §3.3: `-` is no salt.
    pub(super) fn put_salt(&mut self) -> Result<(), Diagnostic> {
        if self.scanner.take_dash()? {
            self.out.push(0);
            return Ok(());
        }
        self.put_counted_digits(Base::Base16)
    }

    pub(super) fn put_hashed_name(&mut self) -> Result<(), Diagnostic> {
        self.put_counted_digits(Base::Base32)
    }

    pub(super) fn put_bitmap(&mut self) -> Result<(), Diagnostic> {
        let start = self.out.len();
        while let Some(token) = self.optional_token()? {
            let Some(rtype) = Rtype::from_text(self.scanner.text_of(token)) else {
                return Err(self.not_a(token, "record type", "write types such as A or TYPE65280"));
            };
            rdata::bitmap::insert(rtype, start, self.out);
        }
        Ok(())
    }
}

/// Fails when something is left of the entry.
pub(super) fn expect_end(scanner: &mut Scanner) -> Result<(), Diagnostic> {
    match scanner.token()? {
        None => Ok(()),
        Some(token) => {
            let problem = format!("{} is more than belongs here", Shown(scanner.text_of(token)));
            Err(Diagnostic::error(scanner.position_of(token), problem, "take it away, or start a new line before it"))
        }
    }
}

/// What a token says, its escapes resolved.
pub(super) fn unescaped(scanner: &Scanner, token: Token) -> Result<Vec<u8>, Diagnostic> {
    let mut out = Vec::new();
    put_unescaped(scanner, token, &mut out)?;
    Ok(out)
}

/// Appends what a token says, its escapes resolved.
pub(super) fn put_unescaped(scanner: &Scanner, token: Token, out: &mut Vec<u8>) -> Result<(), Diagnostic> {
    let mut rest = scanner.text_of(token);
    while let Some(plain) = rest.iter().position(|&octet| octet == b'\\') {
        out.extend_from_slice(&rest[..plain]);
        rest = match scanner::split_octet(&rest[plain..]) {
            Some(Ok((octet, behind))) => {
                out.push(octet);
                behind
            }
            Some(Err(scanner::BadEscape)) | None => {
                let remedy = "write three decimal digits, \\000 to \\255, or \\\\ for a backslash";
                return Err(Diagnostic::not_a(scanner, token, "string: it has an escape that is no octet", remedy));
            }
        };
    }
    out.extend_from_slice(rest);
    Ok(())
}

/// The octets of an IPv4 address: four numbers up to 255 without zeros before them.
///
/// It takes what the standard library takes, without its general machinery: of most zones, most records are addresses.
fn parse_ipv4(text: &[u8]) -> Option<[u8; 4]> {
    let mut octets = [0; 4];
    let mut numbers = text.split(|&octet| octet == b'.');
    for octet in &mut octets {
        *octet = match *numbers.next()? {
            [ones @ b'0'..=b'9'] => ones - b'0',
            [tens @ b'1'..=b'9', ones @ b'0'..=b'9'] => (tens - b'0') * 10 + (ones - b'0'),
            [hundreds @ b'1'..=b'2', tens @ b'0'..=b'9', ones @ b'0'..=b'9'] => {
                (hundreds - b'0').checked_mul(100)?.checked_add((tens - b'0') * 10 + (ones - b'0'))?
            }
            _ => return None,
        };
    }
    numbers.next().is_none().then_some(octets)
}

/// An IPv4 or IPv6 address.
pub(super) fn parse_address<A: FromStr>(text: &[u8]) -> Option<A> {
    core::str::from_utf8(text).ok()?.parse().ok()
}
