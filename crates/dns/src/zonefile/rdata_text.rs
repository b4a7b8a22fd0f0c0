//! Turns the text of RDATA into its wire form, field by field as the table of [`crate::rdata`] lists them.

use super::Diagnostic;
use super::field_text::{self, GENERIC_REMEDY, PERIOD_REMEDY, RdataText};
use super::location_text;
use super::number;
use super::scanner::Token;
use super::svc_params_text;
use crate::rdata::encoding::{Base, Decoder};
use crate::rdata::mnemonic;
use crate::rdata::{self, FieldKind, RDATA_BYTES_MAX};
use crate::rtype::Rtype;
use alloc::format;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

impl RdataText<'_> {
    /// Reads all RDATA up to the end of the entry.
    pub(super) fn read(mut self) -> Result<(), Diagnostic> {
        if let Some(marker) = self.scanner.generic_marker()? {
            self.put_generic(marker)?;
            return field_text::expect_end(self.scanner);
        }
        let Some(fields) = rdata::fields(self.rtype) else {
            let problem = format!("the data of {} cannot be written in fields", self.rtype);
            let position = match self.scanner.token()? {
                Some(token) => self.scanner.position_of(token),
                None => self.scanner.position(),
            };
            return Err(Diagnostic::error(position, problem, GENERIC_REMEDY));
        };
        for field in fields {
            self.field = field.name;
            self.field_start = None;
            let start = self.out.len();
            self.put(field.kind)?;
            if needs_check(field.kind) {
                rdata::field_end(field.kind, self.out, start).map_err(|problem| self.malformed(problem))?;
            }
            if self.out.len() > RDATA_BYTES_MAX {
                return Err(self.too_long());
            }
        }
        field_text::expect_end(self.scanner)
    }

    /// Reads one field.
    fn put(&mut self, kind: FieldKind) -> Result<(), Diagnostic> {
        match kind {
            FieldKind::U8 => self.put_number(1),
            FieldKind::U16 => self.put_number(2),
            FieldKind::U32 => self.put_number(4),
            FieldKind::U64 => self.put_number(8),
            FieldKind::Period => {
                self.put_parsed(4, "time", PERIOD_REMEDY, |text| number::parse_period_s(text).map(u64::from))
            }
            FieldKind::Time => {
                let remedy = "write YYYYMMDDHHmmSS, or seconds since 1970";
                self.put_parsed(4, "date", remedy, |text| number::parse_time(text).map(u64::from))
            }
            FieldKind::Rtype => self.put_parsed(2, "record type", "write a type such as A, or TYPE65280", |text| {
                Rtype::from_text(text).map(|rtype| u64::from(rtype.0))
            }),
            FieldKind::Algorithm => self.put_mnemonic(1, mnemonic::ALGORITHMS),
            FieldKind::DigestType => self.put_mnemonic(1, mnemonic::DIGEST_TYPES),
            FieldKind::CertificateType => self.put_mnemonic(2, mnemonic::CERTIFICATE_TYPES),
            FieldKind::Scheme => self.put_mnemonic(1, mnemonic::DSYNC_SCHEMES),
            FieldKind::Ipv4 => self.put_ipv4(),
            FieldKind::Ipv6 => self.put_ipv6(),
            FieldKind::Locator => self.put_groups(4, 4, b':', "64 bits in four groups, as in 2001:db8:1140:1000"),
            FieldKind::Eui48 => self.put_groups(6, 2, b'-', "six pairs of hexadecimal digits, as in 00-00-5e-00-53-2a"),
            FieldKind::Eui64 => {
                self.put_groups(8, 2, b'-', "eight pairs of hexadecimal digits, as in 00-00-5e-ef-10-00-00-2a")
            }
            FieldKind::CompressibleName | FieldKind::Name => self.put_name(),
            FieldKind::String | FieldKind::Digits | FieldKind::Coordinate | FieldKind::Tag => self.put_string(),
            FieldKind::OptionalString => self.put_optional_string(),
            FieldKind::Strings => self.put_strings(),
            FieldKind::RestAsString => self.put_rest_as_string(),
            FieldKind::Hex | FieldKind::DsDigest | FieldKind::Fingerprint | FieldKind::ZoneDigest => {
                self.put_digits(Base::Base16, true)
            }
            FieldKind::Base64 => self.put_digits(Base::Base64, true),
            FieldKind::OptionalBase64 => self.put_digits(Base::Base64, false),
            FieldKind::DashBase64 => self.put_dash_or_base64(),
            FieldKind::Salt => self.put_salt(),
            FieldKind::HashedName => self.put_hashed_name(),
            FieldKind::Bitmap => self.put_bitmap(),
            FieldKind::Services => self.put_services(),
            FieldKind::Nsap => self.put_nsap(),
            FieldKind::Location => location_text::put_location(self),
            FieldKind::Prefixes => self.put_prefixes(),
            FieldKind::Gateway => self.put_gateway(),
            FieldKind::Relay => self.put_relay(),
            FieldKind::HostIdentity => self.put_host_identity(),
            FieldKind::Names => self.put_names(),
            FieldKind::SvcParams => svc_params_text::put_params(self),
        }
    }

    /// RFC 3597 §5: `\# length digits`; for a type that the table knows, the octets must have its shape.
    fn put_generic(&mut self, marker: Token) -> Result<(), Diagnostic> {
        self.field = "length";
        let token = self.token()?;
        let Some(length_bytes) = number::parse_decimal(self.scanner.text_of(token), RDATA_BYTES_MAX as u64) else {
            return Err(self.not_a(token, "number in range", "write the number of octets, 0 to 65535"));
        };
        self.field = "data";
        self.put_digits(Base::Base16, length_bytes > 0)?;
        if self.out.len() as u64 != length_bytes {
            let problem = format!("the length is {length_bytes}, but {} octets follow", self.out.len());
            return Err(Diagnostic::error(
                self.scanner.position_of(token),
                problem,
                "count the octets: two digits are one",
            ));
        }
        rdata::check(self.rtype, self.out).map_err(|malformed| {
            let problem = format!("these octets are no {}: its {} {}", self.rtype, malformed.field, malformed.problem);
            Diagnostic::error(
                self.scanner.position_of(marker),
                problem,
                format!("write the data in the fields of {}", self.rtype),
            )
        })
    }

    fn put_services(&mut self) -> Result<(), Diagnostic> {
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
    fn put_nsap(&mut self) -> Result<(), Diagnostic> {
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
    fn put_prefixes(&mut self) -> Result<(), Diagnostic> {
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

    fn put_gateway(&mut self) -> Result<(), Diagnostic> {
        let kind_at = self.out.len();
        self.put_number(1)?;
        self.put_mnemonic(1, &[("RSA", 2), ("DSA", 1)])?;
        self.put_host(self.out[kind_at])
    }

    fn put_relay(&mut self) -> Result<(), Diagnostic> {
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
    fn put_host(&mut self, host_type: u8) -> Result<(), Diagnostic> {
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
            _ => Err(self.malformed("has a type other than 0 to 3")),
        }
    }

    /// RFC 8005 §6: algorithm, tag in base 16, key in base 64.
    fn put_host_identity(&mut self) -> Result<(), Diagnostic> {
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
    fn put_one_token(&mut self, base: Base, bytes_max: usize) -> Result<usize, Diagnostic> {
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
}

/// Whether text of this kind can be read and still have no shape on the wire.
fn needs_check(kind: FieldKind) -> bool {
    matches!(
        kind,
        FieldKind::Digits
            | FieldKind::Coordinate
            | FieldKind::Tag
            | FieldKind::Hex
            | FieldKind::Base64
            | FieldKind::DsDigest
            | FieldKind::Fingerprint
            | FieldKind::ZoneDigest
            | FieldKind::HashedName
            | FieldKind::Nsap
            | FieldKind::Location
            | FieldKind::Relay
            | FieldKind::HostIdentity
            | FieldKind::SvcParams
    )
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
        b"1" => (1, 32, field_text::parse_address::<Ipv4Addr>(address)?.octets().to_vec()),
        b"2" => (2, 128, field_text::parse_address::<Ipv6Addr>(address)?.octets().to_vec()),
        _ => return None,
    };
    let prefix_bits = number::parse_decimal(&text[slash + 1..], bits_max)? as u8;
    let length = octets.iter().rposition(|&octet| octet != 0).map_or(0, |last| last as u8 + 1);
    Some(([0, family, prefix_bits, negation | length], octets))
}
