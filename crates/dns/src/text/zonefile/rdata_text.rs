//! Reads the RDATA of a record from text, field by field in the order of [`crate::text::rdata::fields`].

use super::Diagnostic;
use super::field_text::{self, DURATION_REMEDY, GENERIC_REMEDY, RdataReader};
use super::location_text;
use super::number;
use super::scanner::Token;
use super::svc_params_text;
use crate::text::rdata::base::Base;
use crate::text::rdata::mnemonic;
use crate::text::rdata::{self, FieldKind, RDATA_BYTES_MAX};
use crate::text::rtype::Rtype;
use alloc::format;
use alloc::vec::Vec;

impl RdataReader<'_> {
    /// Reads the RDATA up to the end of the entry.
    pub(super) fn read(&mut self) -> Result<(), Diagnostic> {
        // RFC 3597 §5.
        if let Some(marker) = self.scanner.token_if(b"\\#")? {
            self.put_generic(marker)?;
            return field_text::expect_end(self.scanner);
        }
        let Some(fields) = rdata::fields(self.rtype) else {
            let problem = format!("the text form of {} records is not supported", self.rtype);
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
            if let Some(remedy) = check_remedy(field.kind) {
                rdata::field_end(field.kind, self.out, start).map_err(|problem| self.malformed(problem, remedy))?;
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
            FieldKind::Duration => self.put_parsed(4, "is not a duration", DURATION_REMEDY, |text| {
                number::parse_duration_s(text).map(u64::from)
            }),
            FieldKind::Timestamp => {
                let remedy = "write YYYYMMDDHHmmSS, or seconds since 1970";
                self.put_parsed(4, "is not a date", remedy, |text| number::parse_timestamp(text).map(u64::from))
            }
            FieldKind::Rtype => {
                self.put_parsed(2, "is not a record type", "write a type such as A, or TYPE65280", |text| {
                    Rtype::from_text(text).map(|rtype| u64::from(rtype.0))
                })
            }
            FieldKind::Algorithm => self.put_mnemonic(1, mnemonic::ALGORITHMS),
            FieldKind::DigestType => self.put_mnemonic(1, mnemonic::DIGEST_TYPES),
            FieldKind::CertificateType => self.put_mnemonic(2, mnemonic::CERTIFICATE_TYPES),
            FieldKind::Scheme => self.put_mnemonic(1, mnemonic::DSYNC_SCHEMES),
            FieldKind::Ipv4 => self.put_ipv4(),
            FieldKind::Ipv6 => self.put_ipv6(),
            FieldKind::Locator => self.put_groups(4, 4, b':', "write 64 bits in four groups, as in 2001:db8:1140:1000"),
            FieldKind::Eui48 => {
                self.put_groups(6, 2, b'-', "write six pairs of hexadecimal digits, as in 00-00-5e-00-53-2a")
            }
            FieldKind::Eui64 => {
                self.put_groups(8, 2, b'-', "write eight pairs of hexadecimal digits, as in 00-00-5e-ef-10-00-00-2a")
            }
            FieldKind::Name => self.put_name(),
            FieldKind::String | FieldKind::Digits | FieldKind::Coordinate | FieldKind::Tag => self.put_string(),
            FieldKind::OptionalString => self.put_optional_string(),
            FieldKind::Strings => self.put_strings(),
            FieldKind::RestAsString => self.put_rest_as_string(),
            FieldKind::Hex | FieldKind::DsDigest | FieldKind::Fingerprint | FieldKind::ZoneDigest => {
                self.put_digits(Base::Base16)
            }
            FieldKind::Base64 => self.put_digits(Base::Base64),
            FieldKind::OptionalBase64 => self.put_optional_digits(Base::Base64),
            FieldKind::DashBase64 => self.put_dash_or_base64(),
            FieldKind::Salt => self.put_salt(),
            FieldKind::HashedName => self.put_counted_digits(Base::Base32),
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

    /// RFC 3597 §5: `\# length digits`. Data of a known type must be well-formed.
    fn put_generic(&mut self, marker: Token) -> Result<(), Diagnostic> {
        self.field = "length";
        let token = self.token()?;
        let Some(length_bytes) = number::parse_decimal(self.scanner.text_of(token), RDATA_BYTES_MAX as u64) else {
            return Err(self.out_of_range(token, RDATA_BYTES_MAX as u64));
        };
        self.field = "data";
        if length_bytes == 0 { self.put_optional_digits(Base::Base16) } else { self.put_digits(Base::Base16) }?;
        if self.out.len() as u64 != length_bytes {
            let problem = format!("the length is {length_bytes}, but the number of bytes is {}", self.out.len());
            let remedy = "correct the length; two digits are one byte";
            return Err(Diagnostic::error(self.scanner.position_of(token), problem, remedy));
        }
        rdata::check(self.rtype, self.out).map_err(|malformed| {
            Diagnostic::error(
                self.scanner.position_of(marker),
                format!("{} {}: {}", self.rtype, malformed.field, malformed.problem),
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
                return Err(self.invalid(token, "is not a known service", "write its port number, 0 to 65535"));
            };
            let at = start + usize::from(port / 8);
            if at >= self.out.len() {
                self.out.resize(at + 1, 0);
            }
            self.out[at] |= 0x80 >> (port % 8);
        }
        Ok(())
    }

    /// RFC 1706 §5: dots are ignored.
    fn put_nsap(&mut self) -> Result<(), Diagnostic> {
        let token = self.token()?;
        let text = self.scanner.text_of(token);
        let Some(digits) = text.strip_prefix(b"0x").or(text.strip_prefix(b"0X")) else {
            let remedy = "write 0x and hexadecimal digits, as in 0x47.0005.80 (RFC 1706 section 5)";
            return Err(self.invalid(token, "does not start with 0x", remedy));
        };
        self.scratch.clear();
        for piece in digits.split(|&byte| byte == b'.') {
            self.check_digits(Base::Base16, token, piece)?;
            self.scratch.extend_from_slice(piece);
        }
        self.decode_scratch(Base::Base16, token)
    }

    /// RFC 3123 §5: `[!]family:address/prefix`, up to the end of the entry.
    fn put_prefixes(&mut self) -> Result<(), Diagnostic> {
        while let Some(token) = self.optional_token()? {
            let Some((head, address)) = parse_prefix(self.scanner.text_of(token)) else {
                let remedy = "write 1:192.0.2.0/24, 2:2001:db8::/32, or ! before one (RFC 3123 section 5)";
                return Err(self.invalid(token, "is not an address prefix", remedy));
            };
            self.out.extend_from_slice(&head);
            // RFC 3123 §4: trailing zero bytes are omitted.
            let length = address.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
            self.out.extend_from_slice(&address[..length]);
        }
        Ok(())
    }

    /// RFC 4025 §3.1: type, algorithm and gateway.
    fn put_gateway(&mut self) -> Result<(), Diagnostic> {
        let type_offset = self.out.len();
        self.put_number(1)?;
        self.put_mnemonic(1, &[("RSA", 2), ("DSA", 1)])?;
        self.put_host(self.out[type_offset])
    }

    /// RFC 8777 §4.3.1: discovery bit, type and relay.
    fn put_relay(&mut self) -> Result<(), Diagnostic> {
        let discovery = self.token()?;
        let bit = match self.scanner.text_of(discovery) {
            b"0" => 0x00,
            b"1" => 0x80,
            _ => return Err(self.invalid(discovery, "is not a discovery bit", "write 0 or 1")),
        };
        let type_offset = self.out.len();
        self.put_number(1)?;
        let relay_type = self.out[type_offset];
        // The type has seven bits. Valid types have two.
        self.out[type_offset] = bit | relay_type & 0x7f;
        self.put_host(relay_type)
    }

    /// Reads a gateway or relay: `.`, an address or a name (RFC 4025 §3.1, RFC 8777 §4.3.1).
    fn put_host(&mut self, host_type: u8) -> Result<(), Diagnostic> {
        match host_type {
            0 => {
                let token = self.token()?;
                if self.scanner.text_of(token) != b"." {
                    return Err(self.invalid(
                        token,
                        "is a host, but type 0 means that there is none",
                        "write a dot, or correct the type",
                    ));
                }
                Ok(())
            }
            1 => self.put_ipv4(),
            2 => self.put_ipv6(),
            3 => self.put_name(),
            _ => Err(self.malformed(rdata::HOST_TYPE_PROBLEM, HOST_TYPE_REMEDY)),
        }
    }

    /// RFC 8005 §6: algorithm, tag in base 16, key in base 64.
    fn put_host_identity(&mut self) -> Result<(), Diagnostic> {
        let start = self.out.len();
        // The lengths of tag and key are written below.
        self.out.extend_from_slice(&[0; 4]);
        let algorithm = self.token()?;
        let Some(number) = number::parse_decimal(self.scanner.text_of(algorithm), 255) else {
            return Err(self.out_of_range(algorithm, 255));
        };
        self.out[start + 1] = number as u8;
        let tag_length = self.put_digits_token(Base::Base16, usize::from(u8::MAX))?;
        self.out[start] = tag_length as u8;
        let key_length = self.put_digits_token(Base::Base64, usize::from(u16::MAX))?;
        self.out[start + 2..start + 4].copy_from_slice(&(key_length as u16).to_be_bytes());
        Ok(())
    }
}

const HOST_TYPE_REMEDY: &str = "write 0 for none, 1 for an IPv4 address, 2 for an IPv6 address or 3 for a name";

/// The remedy for a field of this kind whose wire form is malformed; `None` for kinds whose text always has a valid
/// wire form.
fn check_remedy(kind: FieldKind) -> Option<&'static str> {
    Some(match kind {
        FieldKind::Digits => "write digits, as in 311061700956 (RFC 1183 section 3.1)",
        FieldKind::Coordinate => "write decimal degrees or metres, as in -32.6882 (RFC 1712 section 3)",
        FieldKind::Tag => "write a property such as issue (RFC 8659 section 4.1)",
        FieldKind::Hex | FieldKind::Base64 | FieldKind::HashedName | FieldKind::Nsap => "write at least one byte",
        FieldKind::DsDigest => "copy the whole digest, or correct the digest type (RFC 4034 section 5.1)",
        FieldKind::Fingerprint => "copy the whole fingerprint, or correct its type (RFC 4255 section 3.1)",
        FieldKind::ZoneDigest => "copy the whole digest, or correct the hash algorithm (RFC 8976 section 2.2)",
        FieldKind::Location => location_text::REMEDY,
        FieldKind::Relay => HOST_TYPE_REMEDY,
        FieldKind::HostIdentity => "write algorithm, tag in base 16 and key in base 64 (RFC 8005 section 6)",
        FieldKind::SvcParams => "correct the parameters (RFC 9460 sections 7 and 8)",
        _ => return None,
    })
}

/// Family, prefix length, and negation with address length; then all bytes of the address.
fn parse_prefix(text: &[u8]) -> Option<([u8; 4], Vec<u8>)> {
    let (negation, text) = match text.strip_prefix(b"!") {
        Some(text) => (0x80, text),
        None => (0, text),
    };
    let colon = text.iter().position(|&byte| byte == b':')?;
    let slash = text.iter().rposition(|&byte| byte == b'/').filter(|&slash| slash > colon)?;
    let address = &text[colon + 1..slash];
    let (family, bits_max, bytes) = match &text[..colon] {
        b"1" => (1, 32, field_text::parse_ipv4(address)?.to_vec()),
        b"2" => (2, 128, field_text::parse_ipv6(address)?.to_vec()),
        _ => return None,
    };
    let prefix_bits = number::parse_decimal(&text[slash + 1..], bits_max)? as u8;
    let length = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last as u8 + 1);
    Some(([0, family, prefix_bits, negation | length], bytes))
}
