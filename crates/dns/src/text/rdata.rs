//! The fields of the RDATA of each type, for reading, printing and checking RDATA.

mod presentation;
mod wire;
pub(crate) mod canonical;
pub(crate) mod svc_param;
pub(crate) mod bitmap;
pub(crate) mod mnemonic;
pub(crate) mod base;

use crate::text::name::Name;
use crate::text::rtype::Rtype;

pub use canonical::{has_folded_names, put_canonical_rdata};
pub use presentation::PresentationFormat;
pub(crate) use wire::{HOST_TYPE_PROBLEM, field_end};

/// Bytes of the longest RDATA: its length field has 16 bits (RFC 1035 §3.2.1).
pub const RDATA_BYTES_MAX: usize = 65_535;

/// A field of RDATA.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The name of the field in the RFC of the type, for messages.
    pub name: &'static str,
    /// The kind of the field.
    pub kind: FieldKind,
}

/// The kind of a field, in wire form and as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// A number of 8 bits.
    U8,
    /// A number of 16 bits.
    U16,
    /// A number of 32 bits.
    U32,
    /// A number of 64 bits.
    U64,
    /// Seconds in 32 bits. Text may have units: `1h30m`.
    Duration,
    /// Seconds since 1970 in 32 bits. Text is `YYYYMMDDHHmmSS` (RFC 4034 §3.2).
    Timestamp,
    /// A record type.
    Rtype,
    /// A DNSSEC algorithm, 8 bits (RFC 4034 appendix A.1).
    Algorithm,
    /// A digest algorithm of DS, 8 bits.
    DigestType,
    /// A certificate type, 16 bits (RFC 4398 §2.1).
    CertificateType,
    /// A scheme of DSYNC, 8 bits (RFC 9859 §2.1).
    Scheme,
    /// An IPv4 address.
    Ipv4,
    /// An IPv6 address.
    Ipv6,
    /// 64 bits as four groups of hexadecimal digits (RFC 6742 §2.1.2).
    Locator,
    /// 48 bits as six pairs of hexadecimal digits with hyphens (RFC 7043 §3.2).
    Eui48,
    /// 64 bits as eight pairs of hexadecimal digits with hyphens (RFC 7043 §4.2).
    Eui64,
    /// A name.
    Name,
    /// A `<character-string>`: a length byte and the bytes (RFC 1035 §3.3).
    String,
    /// A `<character-string>` of at least four decimal digits (RFC 1183 §3.1).
    Digits,
    /// A `<character-string>` with a decimal number of degrees or metres (RFC 1712 §3).
    Coordinate,
    /// A `<character-string>`, or nothing at the end of the RDATA.
    OptionalString,
    /// One or more `<character-string>`s up to the end.
    Strings,
    /// The name of a CAA property: a length byte, letters and digits (RFC 8659 §4.1).
    Tag,
    /// Bytes up to the end, as one string without a length.
    RestAsString,
    /// At least one byte, up to the end, in hexadecimal.
    Hex,
    /// The digest of a DS. The preceding digest type determines its length.
    DsDigest,
    /// The fingerprint of an SSHFP. The preceding fingerprint type determines its length.
    Fingerprint,
    /// The digest of a ZONEMD. The preceding hash algorithm determines its length.
    ZoneDigest,
    /// At least one byte, up to the end, in base 64.
    Base64,
    /// Bytes up to the end, in base 64. This field may be empty.
    OptionalBase64,
    /// Bytes up to the end, in base 64, or `-` if empty (draft-durand-doa-over-dns §3.2).
    DashBase64,
    /// A length byte and bytes, in hexadecimal, or `-` if empty (RFC 5155 §3.3).
    Salt,
    /// A length byte and at least one byte, in base 32 with the extended hex alphabet (RFC 5155 §3.3).
    HashedName,
    /// A set of types up to the end (RFC 4034 §4.1.2). This field may be empty.
    Bitmap,
    /// A protocol number and a bit map of ports, up to the end (RFC 1035 §3.4.2).
    Services,
    /// An OSI address up to the end, as `0x` and hexadecimal digits (RFC 1706 §5).
    Nsap,
    /// A location on Earth, 16 bytes (RFC 1876 §2).
    Location,
    /// Address prefixes up to the end (RFC 3123 §4). There may be none.
    Prefixes,
    /// Gateway type, algorithm and gateway (RFC 4025 §2.1).
    Gateway,
    /// Discovery bit, relay type and relay (RFC 8777 §4.2).
    Relay,
    /// Lengths, algorithm, tag and key (RFC 8005 §5).
    HostIdentity,
    /// Names up to the end. There may be none.
    Names,
    /// SvcParams up to the end, in ascending order of keys (RFC 9460 §2.2). There may be none.
    SvcParams,
}

/// The fields of a type: name and kind of each.
macro_rules! row {
    ($($name:literal $kind:ident),* $(,)?) => {
        Some(const { &[$(Field { name: $name, kind: FieldKind::$kind }),*] })
    };
}

/// The fields of `rtype`, in order; `None` for a type whose only text form is the generic form of RFC 3597 §5.
pub fn fields(rtype: Rtype) -> Option<&'static [Field]> {
    match rtype {
        Rtype::A => row!["address" Ipv4],
        Rtype::NS | Rtype::MD | Rtype::MF | Rtype::MB => row!["host" Name],
        Rtype::CNAME | Rtype::PTR => row!["target" Name],
        Rtype::SOA => row![
            "primary" Name, "mailbox" Name, "serial" U32,
            "refresh" Duration, "retry" Duration, "expire" Duration, "minimum" Duration,
        ],
        Rtype::MG | Rtype::MR => row!["mailbox" Name],
        Rtype::WKS => row!["address" Ipv4, "services" Services],
        Rtype::HINFO => row!["CPU" String, "OS" String],
        Rtype::MINFO => row!["responsible mailbox" Name, "error mailbox" Name],
        Rtype::MX => row!["preference" U16, "exchange" Name],
        Rtype::TXT | Rtype::SPF | Rtype::AVC | Rtype::RESINFO | Rtype::WALLET | Rtype::NINFO | Rtype::CLA => {
            row!["text" Strings]
        }
        Rtype::RP => row!["mailbox" Name, "text name" Name],
        Rtype::AFSDB => row!["subtype" U16, "host" Name],
        Rtype::X25 => row!["PSDN address" Digits],
        Rtype::ISDN => row!["ISDN address" String, "subaddress" OptionalString],
        Rtype::RT => row!["preference" U16, "intermediate host" Name],
        Rtype::NSAP => row!["address" Nsap],
        Rtype::NSAP_PTR => row!["target" Name],
        Rtype::PX => row!["preference" U16, "RFC 822 name" Name, "X.400 name" Name],
        Rtype::GPOS => row!["longitude" Coordinate, "latitude" Coordinate, "altitude" Coordinate],
        Rtype::AAAA => row!["address" Ipv6],
        Rtype::LOC => row!["location" Location],
        Rtype::EID | Rtype::NIMLOC => row!["locator" Hex],
        Rtype::SRV => row!["priority" U16, "weight" U16, "port" U16, "target" Name],
        Rtype::NAPTR => row![
            "order" U16, "preference" U16, "flags" String, "services" String, "regular expression" String,
            "replacement" Name,
        ],
        Rtype::KX => row!["preference" U16, "exchanger" Name],
        Rtype::CERT => row!["type" CertificateType, "key tag" U16, "algorithm" Algorithm, "certificate" Base64],
        Rtype::DNAME => row!["target" Name],
        Rtype::APL => row!["prefixes" Prefixes],
        Rtype::DS | Rtype::CDS | Rtype::DLV | Rtype::TA => {
            row!["key tag" U16, "algorithm" Algorithm, "digest type" DigestType, "digest" DsDigest]
        }
        Rtype::SSHFP => row!["algorithm" U8, "fingerprint type" U8, "fingerprint" Fingerprint],
        Rtype::IPSECKEY => row!["precedence" U8, "gateway" Gateway, "public key" OptionalBase64],
        Rtype::RRSIG | Rtype::SIG => row![
            "type covered" Rtype, "algorithm" Algorithm, "labels" U8, "original TTL" Duration, "expiration" Timestamp,
            "inception" Timestamp, "key tag" U16, "signer" Name, "signature" Base64,
        ],
        Rtype::NSEC => row!["next name" Name, "types" Bitmap],
        Rtype::DNSKEY | Rtype::CDNSKEY | Rtype::RKEY => {
            row!["flags" U16, "protocol" U8, "algorithm" Algorithm, "public key" Base64]
        }
        // RFC 2535 §3.1.2: the key may be absent.
        Rtype::KEY => row!["flags" U16, "protocol" U8, "algorithm" Algorithm, "public key" OptionalBase64],
        Rtype::DHCID => row!["digest" Base64],
        Rtype::NSEC3 => row![
            "hash algorithm" U8, "flags" U8, "iterations" U16, "salt" Salt, "next hashed name" HashedName,
            "types" Bitmap,
        ],
        Rtype::NSEC3PARAM => row!["hash algorithm" U8, "flags" U8, "iterations" U16, "salt" Salt],
        Rtype::TLSA | Rtype::SMIMEA => {
            row!["certificate usage" U8, "selector" U8, "matching type" U8, "association" Hex]
        }
        Rtype::HIP => row!["host identity" HostIdentity, "rendezvous servers" Names],
        Rtype::TALINK => row!["previous name" Name, "next name" Name],
        Rtype::OPENPGPKEY => row!["public key" Base64],
        Rtype::CSYNC => row!["serial" U32, "flags" U16, "types" Bitmap],
        Rtype::ZONEMD => row!["serial" U32, "scheme" U8, "hash algorithm" U8, "digest" ZoneDigest],
        Rtype::SVCB | Rtype::HTTPS => row!["priority" U16, "target" Name, "parameters" SvcParams],
        Rtype::DSYNC => row!["type" Rtype, "scheme" Scheme, "port" U16, "target" Name],
        Rtype::HHIT | Rtype::BRID => row!["payload" Base64],
        Rtype::NID => row!["preference" U16, "node identifier" Locator],
        Rtype::L32 => row!["preference" U16, "locator" Ipv4],
        Rtype::L64 => row!["preference" U16, "locator" Locator],
        Rtype::LP => row!["preference" U16, "name" Name],
        Rtype::EUI48 => row!["address" Eui48],
        Rtype::EUI64 => row!["address" Eui64],
        Rtype::URI => row!["priority" U16, "weight" U16, "target" RestAsString],
        Rtype::CAA => row!["flags" U8, "property" Tag, "value" RestAsString],
        Rtype::DOA => row!["enterprise" U32, "type" U32, "location" U8, "media type" String, "content" DashBase64],
        Rtype::AMTRELAY => row!["precedence" U8, "relay" Relay],
        Rtype::IPN => row!["node" U64],
        _ => None,
    }
}

/// RDATA does not have the format of its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedRdata {
    /// The field at fault, or `RDATA` if it has bytes after the last field.
    pub field: &'static str,
    /// The problem, for a message: `the data ends too early`.
    pub problem: &'static str,
}

/// Checks that `rdata`, in wire form, has the format of `rtype`. RDATA of an unknown type always passes.
///
/// # Errors
/// Returns the first malformed field.
pub fn check(rtype: Rtype, rdata: &[u8]) -> Result<(), MalformedRdata> {
    for field in FieldSlices::of(rtype, rdata) {
        field?;
    }
    Ok(())
}

/// The host whose addresses belong in the additional section of an answer with this record.
///
/// `None` for types without such a host, for the root, which means that there is no service (RFC 2782, RFC 7505) or, in
/// SVCB and HTTPS, the owner itself (RFC 9460 §2.5.2), and for malformed RDATA.
pub fn target(rtype: Rtype, rdata: &[u8]) -> Option<Name<'_>> {
    Name::parse(rdata.get(target_offset(rtype)?..)?).ok().filter(|name| !name.is_root())
}

/// Whether records of this type have a [`target`].
pub(crate) fn has_target(rtype: Rtype) -> bool {
    target_offset(rtype).is_some()
}

fn target_offset(rtype: Rtype) -> Option<usize> {
    Some(match rtype {
        // RFC 1035 §3.3.11 (NS), §3.3.3 and on (MB, MD, MF).
        Rtype::NS | Rtype::MB | Rtype::MD | Rtype::MF => 0,
        // RFC 1035 §3.3.9, RFC 1183 §1 and §3.3, RFC 2230 §2.1, RFC 6742 §2.4, RFC 9460 §4.1.
        Rtype::MX | Rtype::AFSDB | Rtype::RT | Rtype::KX | Rtype::LP | Rtype::SVCB | Rtype::HTTPS => 2,
        // RFC 2782.
        Rtype::SRV => 6,
        _ => return None,
    })
}

/// Bytes of the numbers at the end of a SOA's RDATA, beginning with the serial.
pub const SOA_NUMBERS_BYTES: usize = 20;

/// The serial in the RDATA of a SOA (RFC 1035 §3.3.13); `None` if that is too short.
pub fn serial_of(soa: &[u8]) -> Option<u32> {
    let at = soa.len().checked_sub(SOA_NUMBERS_BYTES)?;
    soa[at..].first_chunk().map(|serial| u32::from_be_bytes(*serial))
}

/// Whether this is an SVCB or HTTPS record in AliasMode (RFC 9460 §2.4.1).
pub(crate) fn is_svcb_alias(rtype: Rtype, rdata: &[u8]) -> bool {
    matches!(rtype, Rtype::SVCB | Rtype::HTTPS) && rdata.starts_with(&[0, 0])
}

/// Iterates over the checked fields of RDATA. An error is the last item.
pub(crate) struct FieldSlices<'a> {
    fields: core::slice::Iter<'static, Field>,
    rdata: &'a [u8],
    at: usize,
}

impl<'a> FieldSlices<'a> {
    pub(crate) fn of(rtype: Rtype, rdata: &'a [u8]) -> FieldSlices<'a> {
        match fields(rtype) {
            Some(fields) => FieldSlices { fields: fields.iter(), rdata, at: 0 },
            None => FieldSlices { fields: [].iter(), rdata, at: rdata.len() },
        }
    }
}

impl<'a> Iterator for FieldSlices<'a> {
    type Item = Result<(Field, &'a [u8]), MalformedRdata>;

    fn next(&mut self) -> Option<Self::Item> {
        let Some(field) = self.fields.next() else {
            let surplus = self.at < self.rdata.len();
            self.at = self.rdata.len();
            return surplus
                .then_some(Err(MalformedRdata { field: "RDATA", problem: "there are bytes after the last field" }));
        };
        match field_end(field.kind, self.rdata, self.at) {
            Ok(end) => {
                let bytes = &self.rdata[self.at..end];
                self.at = end;
                Some(Ok((*field, bytes)))
            }
            Err(problem) => {
                self.fields = [].iter();
                self.at = self.rdata.len();
                Some(Err(MalformedRdata { field: field.name, problem }))
            }
        }
    }
}
