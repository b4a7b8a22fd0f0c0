//! Turns the text of RDATA into its wire form, field by field as the table of [`crate::rdata`] lists them.

use super::entry;
use super::location_text;
use super::name_text;
use super::number;
use super::scanner::{self, Scanner, Shown, Token};
use super::svc_params_text;
use super::{Error, Position};
use crate::name::Name;
use crate::rdata::encoding::{Base, Decoder, DigitsError};
use crate::rdata::mnemonic::{self, Mnemonics};
use crate::rdata::{self, Kind, RDATA_BYTES_MAX};
use crate::rtype::Rtype;
use alloc::format;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

/// What mends a time.
pub(super) const PERIOD_REMEDY: &str = "write seconds, or numbers with the units w, d, h, m or s, as in 1h30m";
/// What mends RDATA that has no fields.
const GENERIC_REMEDY: &str = "write \\# length hexadecimal-digits (RFC 3597)";
/// Octets of the longest `<character-string>` (RFC 1035 §3.3).
const STRING_BYTES_MAX: usize = 255;

/// The RDATA of one record, on its way from text to wire form.
pub(super) struct RdataText<'r> {
    pub(super) scanner: &'r mut Scanner,
    origin: Name<'r>,
    rtype: Rtype,
    /// The field that is being read, for messages, and where it starts.
    field: &'static str,
    field_start: Option<Token>,
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

    /// Reads all RDATA up to the end of the entry.
    pub(super) fn read(mut self) -> Result<(), Error> {
        if let Some(marker) = self.scanner.generic_marker()? {
            self.put_generic(marker)?;
            return expect_end(self.scanner);
        }
        let Some(fields) = rdata::fields(self.rtype) else {
            let problem = format!("the data of {} cannot be written in fields", self.rtype);
            let position = match self.scanner.token()? {
                Some(token) => self.scanner.position_of(token),
                None => self.scanner.position(),
            };
            return Err(Error::new(position, problem, GENERIC_REMEDY));
        };
        for field in fields {
            self.field = field.name;
            self.field_start = None;
            let start = self.out.len();
            self.put(field.kind)?;
            if needs_check(field.kind) {
                rdata::field_end(field.kind, self.out, start).map_err(|problem| self.misshapen(problem))?;
            }
            if self.out.len() > RDATA_BYTES_MAX {
                return Err(self.too_long());
            }
        }
        expect_end(self.scanner)
    }

    fn put(&mut self, kind: Kind) -> Result<(), Error> {
        match kind {
            Kind::U8 => self.put_number(1),
            Kind::U16 => self.put_number(2),
            Kind::U32 => self.put_number(4),
            Kind::U64 => self.put_number(8),
            Kind::Period => {
                self.put_parsed(4, "time", PERIOD_REMEDY, |text| number::parse_period_s(text).map(u64::from))
            }
            Kind::Time => {
                let remedy = "write YYYYMMDDHHmmSS, or seconds since 1970";
                self.put_parsed(4, "date", remedy, |text| number::parse_time(text).map(u64::from))
            }
            Kind::Rtype => self.put_parsed(2, "record type", "write a type such as A, or TYPE65280", |text| {
                Rtype::from_text(text).map(|rtype| u64::from(rtype.0))
            }),
            Kind::Algorithm => self.put_mnemonic(1, mnemonic::ALGORITHMS),
            Kind::DigestType => self.put_mnemonic(1, mnemonic::DIGEST_TYPES),
            Kind::CertificateType => self.put_mnemonic(2, mnemonic::CERTIFICATE_TYPES),
            Kind::Scheme => self.put_mnemonic(1, mnemonic::DSYNC_SCHEMES),
            Kind::Ipv4 => self.put_ipv4(),
            Kind::Ipv6 => self.put_ipv6(),
            Kind::Locator => self.put_groups(4, 4, b':', "64 bits in four groups, as in 2001:db8:1140:1000"),
            Kind::Eui48 => self.put_groups(6, 2, b'-', "six pairs of hexadecimal digits, as in 00-00-5e-00-53-2a"),
            Kind::Eui64 => {
                self.put_groups(8, 2, b'-', "eight pairs of hexadecimal digits, as in 00-00-5e-ef-10-00-00-2a")
            }
            Kind::CompressibleName | Kind::Name => self.put_name(),
            Kind::String | Kind::Digits | Kind::Coordinate | Kind::Tag => self.put_string(),
            Kind::OptionalString => self.put_optional_string(),
            Kind::Strings => self.put_strings(),
            Kind::RestAsString => self.put_rest_as_string(),
            Kind::Hex | Kind::DsDigest | Kind::Fingerprint | Kind::ZoneDigest => self.put_digits(Base::Base16, true),
            Kind::Base64 => self.put_digits(Base::Base64, true),
            Kind::OptionalBase64 => self.put_digits(Base::Base64, false),
            Kind::DashBase64 => self.put_dash_or_base64(),
            Kind::Salt => self.put_salt(),
            Kind::HashedName => self.put_hashed_name(),
            Kind::Bitmap => self.put_bitmap(),
            Kind::Services => self.put_services(),
            Kind::Nsap => self.put_nsap(),
            Kind::Location => location_text::put_location(self),
            Kind::Prefixes => self.put_prefixes(),
            Kind::Gateway => self.put_gateway(),
            Kind::Relay => self.put_relay(),
            Kind::HostIdentity => self.put_host_identity(),
            Kind::Names => self.put_names(),
            Kind::SvcParams => svc_params_text::put_params(self),
        }
    }

    /// The next token of this field; it must be there.
    pub(super) fn token(&mut self) -> Result<Token, Error> {
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
                Err(Error::new(self.scanner.position(), problem, remedy))
            }
        }
    }

    /// The next token of this field, if the entry goes on.
    pub(super) fn optional_token(&mut self) -> Result<Option<Token>, Error> {
        let token = self.scanner.token()?;
        self.field_start = self.field_start.or(token);
        Ok(token)
    }

    /// An error about `token`: it is no `what`.
    #[cold]
    pub(super) fn not_a(&self, token: Token, what: &str, remedy: &str) -> Error {
        let shown = Shown(self.scanner.text_of(token));
        Error::new(
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
    fn misshapen(&self, problem: &str) -> Error {
        let position = self.field_position();
        let remedy = format!("see the RFC of {} for what the field may be", self.rtype);
        Error::new(position, format!("the {} of {} {problem}", self.field, self.rtype), remedy)
    }

    #[cold]
    fn too_long(&self) -> Error {
        let position = self.field_position();
        let problem =
            format!("the {} of {} makes the record longer than {RDATA_BYTES_MAX} octets", self.field, self.rtype);
        Error::new(position, problem, "shorten it, or cut it into several records")
    }

    /// The lowest `width_bytes` octets of `value`.
    pub(super) fn put_integer(&mut self, value: u64, width_bytes: usize) {
        self.out.extend_from_slice(&value.to_be_bytes()[8 - width_bytes..]);
    }

    fn put_number(&mut self, width_bytes: usize) -> Result<(), Error> {
        let max = u64::MAX >> (64 - 8 * width_bytes);
        let token = self.token()?;
        let Some(value) = number::parse_decimal(self.scanner.text_of(token), max) else {
            return Err(self.not_a(token, "number in range", &format!("write a number from 0 to {max}")));
        };
        self.put_integer(value, width_bytes);
        Ok(())
    }

    fn put_parsed(
        &mut self,
        width_bytes: usize,
        what: &str,
        remedy: &str,
        parse: impl Fn(&[u8]) -> Option<u64>,
    ) -> Result<(), Error> {
        let token = self.token()?;
        let value = parse(self.scanner.text_of(token)).ok_or_else(|| self.not_a(token, what, remedy))?;
        self.put_integer(value, width_bytes);
        Ok(())
    }

    fn put_mnemonic(&mut self, width_bytes: usize, mnemonics: Mnemonics) -> Result<(), Error> {
        let max = u64::MAX >> (64 - 8 * width_bytes);
        let (example, number) = mnemonics[0];
        let remedy = format!("write a number from 0 to {max}, or a name such as {example} for {number}");
        self.put_parsed(width_bytes, "number or name", &remedy, |text| {
            number::parse_decimal(text, max).or_else(|| mnemonic::number_of(mnemonics, text).map(u64::from))
        })
    }

    fn put_ipv4(&mut self) -> Result<(), Error> {
        let token = self.token()?;
        match parse_ipv4(self.scanner.text_of(token)) {
            Some(octets) => self.out.extend_from_slice(&octets),
            None => return Err(self.not_a(token, "IPv4 address", "write four numbers up to 255, as in 192.0.2.1")),
        }
        Ok(())
    }

    fn put_ipv6(&mut self) -> Result<(), Error> {
        let token = self.token()?;
        match parse_address::<Ipv6Addr>(self.scanner.text_of(token)) {
            Some(address) => self.out.extend_from_slice(&address.octets()),
            None => return Err(self.not_a(token, "IPv6 address", "write hexadecimal groups, as in 2001:db8::1")),
        }
        Ok(())
    }

    /// `count` groups of up to `digits` hexadecimal digits.
    fn put_groups(&mut self, count: usize, digits: usize, border: u8, what: &str) -> Result<(), Error> {
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

    fn put_name(&mut self) -> Result<(), Error> {
        let token = self.token()?;
        self.put_name_of(token)
    }

    fn put_name_of(&mut self, token: Token) -> Result<(), Error> {
        name_text::put_name(self.scanner.text_of(token), token.form, self.origin, self.out)
            .map(|_| ())
            .map_err(|error| entry::bad_name(self.field, self.scanner, token, error))
    }

    fn put_names(&mut self) -> Result<(), Error> {
        while let Some(token) = self.optional_token()? {
            self.put_name_of(token)?;
        }
        Ok(())
    }

    fn put_string(&mut self) -> Result<(), Error> {
        let token = self.token()?;
        self.put_string_of(token)
    }

    fn put_optional_string(&mut self) -> Result<(), Error> {
        match self.optional_token()? {
            Some(token) => self.put_string_of(token),
            None => Ok(()),
        }
    }

    fn put_string_of(&mut self, token: Token) -> Result<(), Error> {
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
    fn put_strings(&mut self) -> Result<(), Error> {
        let mut token = self.token()?;
        loop {
            let start = self.out.len();
            self.out.push(0);
            put_unescaped(self.scanner, token, self.out)?;
            let mut length_at = start;
            while self.out.len() - length_at - 1 > STRING_BYTES_MAX {
                self.out[length_at] = STRING_BYTES_MAX as u8;
                length_at += 1 + STRING_BYTES_MAX;
                self.out.insert(length_at, 0);
            }
            self.out[length_at] = (self.out.len() - length_at - 1) as u8;
            match self.optional_token()? {
                Some(next) if self.out.len() <= RDATA_BYTES_MAX => token = next,
                Some(_) => return Err(self.too_long()),
                None => return Ok(()),
            }
        }
    }

    fn put_rest_as_string(&mut self) -> Result<(), Error> {
        let token = self.token()?;
        put_unescaped(self.scanner, token, self.out)
    }

    /// Digits up to the end of the entry, blanks anywhere between them.
    fn put_digits(&mut self, base: Base, required: bool) -> Result<(), Error> {
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

    fn decode(&mut self, decoder: &mut Decoder, token: Token, base: Base) -> Result<(), Error> {
        decoder.take(self.scanner.text_of(token), self.out).map_err(|error| self.bad_digits(token, base, error))
    }

    fn finish(&self, decoder: Decoder, last: Token, base: Base) -> Result<(), Error> {
        decoder.finish().map_err(|error| self.bad_digits(last, base, error))
    }

    #[cold]
    fn bad_digits(&self, token: Token, base: Base, error: DigitsError) -> Error {
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

    fn put_dash_or_base64(&mut self) -> Result<(), Error> {
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
    fn put_counted_digits(&mut self, base: Base) -> Result<(), Error> {
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
    fn put_salt(&mut self) -> Result<(), Error> {
        if self.scanner.take_dash()? {
            self.out.push(0);
            return Ok(());
        }
        self.put_counted_digits(Base::Base16)
    }

    fn put_hashed_name(&mut self) -> Result<(), Error> {
        self.put_counted_digits(Base::Base32)
    }

    fn put_bitmap(&mut self) -> Result<(), Error> {
        let start = self.out.len();
        while let Some(token) = self.optional_token()? {
            let Some(rtype) = Rtype::from_text(self.scanner.text_of(token)) else {
                return Err(self.not_a(token, "record type", "write types such as A or TYPE65280"));
            };
            rdata::bitmap::insert(rtype, start, self.out);
        }
        Ok(())
    }

    fn put_services(&mut self) -> Result<(), Error> {
        self.put_mnemonic(1, mnemonic::PROTOCOLS)?;
        let start = self.out.len();
        while let Some(token) = self.optional_token()? {
            let text = self.scanner.text_of(token);
            let number = number::parse_decimal(text, u64::from(u16::MAX)).map(|port| port as u16);
            let Some(port) = number.or_else(|| mnemonic::number_of(mnemonic::SERVICES, text)) else {
                return Err(self.not_a(token, "service", "write the number of its port"));
            };
            let at = start + usize::from(port / 8);
            if at >= self.out.len() {
                self.out.resize(at + 1, 0);
            }
            self.out[at] |= 0x80 >> (port % 8);
        }
        Ok(())
    }

    /// RFC 1706 §5: dots anywhere mean nothing.
    fn put_nsap(&mut self) -> Result<(), Error> {
        let token = self.token()?;
        let text = self.scanner.text_of(token);
        let Some(digits) = text.strip_prefix(b"0x").or(text.strip_prefix(b"0X")) else {
            return Err(self.not_a(token, "NSAP address", "write 0x and hexadecimal digits"));
        };
        let mut decoder = Decoder::new(Base::Base16);
        for piece in digits.split(|&octet| octet == b'.') {
            decoder.take(piece, self.out).map_err(|error| self.bad_digits(token, Base::Base16, error))?;
        }
        self.finish(decoder, token, Base::Base16)
    }

    /// RFC 3123 §5: `[!]family:address/prefix`, up to the end.
    fn put_prefixes(&mut self) -> Result<(), Error> {
        while let Some(token) = self.optional_token()? {
            let Some((head, address)) = parse_prefix(self.scanner.text_of(token)) else {
                return Err(self.not_a(
                    token,
                    "range of addresses",
                    "write 1:192.0.2.0/24, 2:2001:db8::/32, or ! before one",
                ));
            };
            self.out.extend_from_slice(&head);
            // "trailing zero octets do not bear any information": they are left out (RFC 3123 §4).
            let length = address.iter().rposition(|&octet| octet != 0).map_or(0, |last| last + 1);
            self.out.extend_from_slice(&address[..length]);
        }
        Ok(())
    }

    fn put_gateway(&mut self) -> Result<(), Error> {
        let kind_at = self.out.len();
        self.put_number(1)?;
        self.put_mnemonic(1, &[("RSA", 2), ("DSA", 1)])?;
        self.put_host(self.out[kind_at])
    }

    fn put_relay(&mut self) -> Result<(), Error> {
        let discovery = self.token()?;
        let bit = match self.scanner.text_of(discovery) {
            b"0" => 0x00,
            b"1" => 0x80,
            _ => return Err(self.not_a(discovery, "discovery bit", "write 0 or 1")),
        };
        let kind_at = self.out.len();
        self.put_number(1)?;
        let relay_type = self.out[kind_at];
        // The type has seven bits; any that means something has two.
        self.out[kind_at] = bit | relay_type & 0x7f;
        self.put_host(relay_type)
    }

    /// What a gateway or a relay is: `.`, an address, or a name (RFC 4025 §3.1, RFC 8777 §4.3).
    fn put_host(&mut self, host_type: u8) -> Result<(), Error> {
        match host_type {
            0 => {
                let token = self.token()?;
                if self.scanner.text_of(token) != b"." {
                    return Err(self.not_a(token, "dot", "the type 0 has nothing: write a dot"));
                }
                Ok(())
            }
            1 => self.put_ipv4(),
            2 => self.put_ipv6(),
            3 => self.put_name(),
            _ => Err(self.misshapen("has a type other than 0 to 3")),
        }
    }

    /// RFC 8005 §6: algorithm, tag in base 16, key in base 64.
    fn put_host_identity(&mut self) -> Result<(), Error> {
        let start = self.out.len();
        // The lengths are filled in when they are known.
        self.out.extend_from_slice(&[0; 4]);
        let algorithm = self.token()?;
        let Some(number) = number::parse_decimal(self.scanner.text_of(algorithm), 255) else {
            return Err(self.not_a(algorithm, "number in range", "write a number from 0 to 255"));
        };
        self.out[start + 1] = number as u8;
        let tag_length = self.put_one_token(Base::Base16, usize::from(u8::MAX))?;
        self.out[start] = tag_length as u8;
        let key_length = self.put_one_token(Base::Base64, usize::from(u16::MAX))?;
        self.out[start + 2..start + 4].copy_from_slice(&(key_length as u16).to_be_bytes());
        Ok(())
    }

    /// One token of digits; returns how many octets it was.
    fn put_one_token(&mut self, base: Base, bytes_max: usize) -> Result<usize, Error> {
        let token = self.token()?;
        let start = self.out.len();
        let mut decoder = Decoder::new(base);
        self.decode(&mut decoder, token, base)?;
        self.finish(decoder, token, base)?;
        let length_bytes = self.out.len() - start;
        if length_bytes > bytes_max {
            return Err(self.not_a(token, "value that fits", "shorten it"));
        }
        Ok(length_bytes)
    }

    /// RFC 3597 §5: `\# length digits`; for a type that the table knows, the octets must have its shape.
    fn put_generic(&mut self, marker: Token) -> Result<(), Error> {
        self.field = "length";
        let token = self.token()?;
        let Some(length_bytes) = number::parse_decimal(self.scanner.text_of(token), RDATA_BYTES_MAX as u64) else {
            return Err(self.not_a(token, "number in range", "write the number of octets, 0 to 65535"));
        };
        self.field = "data";
        self.put_digits(Base::Base16, length_bytes > 0)?;
        if self.out.len() as u64 != length_bytes {
            let problem = format!("the length is {length_bytes}, but {} octets follow", self.out.len());
            return Err(Error::new(self.scanner.position_of(token), problem, "count the octets: two digits are one"));
        }
        rdata::check(self.rtype, self.out).map_err(|misshapen| {
            let problem = format!("these octets are no {}: its {} {}", self.rtype, misshapen.field, misshapen.problem);
            Error::new(
                self.scanner.position_of(marker),
                problem,
                format!("write the data in the fields of {}", self.rtype),
            )
        })
    }
}

/// Whether text of this kind can be read and still have no shape on the wire.
fn needs_check(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Digits
            | Kind::Coordinate
            | Kind::Tag
            | Kind::Hex
            | Kind::Base64
            | Kind::DsDigest
            | Kind::Fingerprint
            | Kind::ZoneDigest
            | Kind::HashedName
            | Kind::Nsap
            | Kind::Location
            | Kind::Relay
            | Kind::HostIdentity
            | Kind::SvcParams
    )
}

/// Fails when something is left of the entry.
pub(super) fn expect_end(scanner: &mut Scanner) -> Result<(), Error> {
    match scanner.token()? {
        None => Ok(()),
        Some(token) => {
            let problem = format!("{} is more than belongs here", Shown(scanner.text_of(token)));
            Err(Error::new(scanner.position_of(token), problem, "take it away, or start a new line before it"))
        }
    }
}

/// What a token says, its escapes resolved.
pub(super) fn unescaped(scanner: &Scanner, token: Token) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    put_unescaped(scanner, token, &mut out)?;
    Ok(out)
}

/// Appends what a token says, its escapes resolved.
pub(super) fn put_unescaped(scanner: &Scanner, token: Token, out: &mut Vec<u8>) -> Result<(), Error> {
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
                return Err(Error::not_a(scanner, token, "string: it has an escape that is no octet", remedy));
            }
        };
    }
    out.extend_from_slice(rest);
    Ok(())
}

/// Family, prefix, and negation with length; then the address, all its octets.
fn parse_prefix(text: &[u8]) -> Option<([u8; 4], Vec<u8>)> {
    let (negation, text) = match text.strip_prefix(b"!") {
        Some(text) => (0x80, text),
        None => (0, text),
    };
    let colon = text.iter().position(|&octet| octet == b':')?;
    let slash = text.iter().rposition(|&octet| octet == b'/').filter(|&slash| slash > colon)?;
    let address = &text[colon + 1..slash];
    let (family, bits_max, octets) = match &text[..colon] {
        b"1" => (1, 32, parse_address::<Ipv4Addr>(address)?.octets().to_vec()),
        b"2" => (2, 128, parse_address::<Ipv6Addr>(address)?.octets().to_vec()),
        _ => return None,
    };
    let prefix_bits = number::parse_decimal(&text[slash + 1..], bits_max)? as u8;
    let length = octets.iter().rposition(|&octet| octet != 0).map_or(0, |last| last as u8 + 1);
    Some(([0, family, prefix_bits, negation | length], octets))
}

/// The octets of an IPv4 address: four numbers up to 255 without zeros before them.
///
/// It does what the standard library does, in a third of the time: of the records of most zones, most are addresses.
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
