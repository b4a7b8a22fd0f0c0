//! What stands in the RDATA of each type: a table of fields, for reading text, for printing, and for compressing.

mod text;
mod wire;
pub(crate) mod svc_param;
pub(crate) mod bitmap;
pub(crate) mod mnemonic;
pub(crate) mod encoding;

use crate::name::Name;
use crate::rtype::Rtype;

pub use text::PresentationFormat;
pub(crate) use wire::field_end;

/// Octets that RDATA may have: its length is a field of 16 bits (RFC 1035 §3.2.1).
pub const RDATA_BYTES_MAX: usize = 65_535;

/// One field of a type's RDATA.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The name that the type's RFC gives it, for messages.
    pub name: &'static str,
    /// What its octets are, on the wire and as text.
    pub kind: FieldKind,
}

/// What a field is, on the wire and as text.
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
    /// Seconds in 32 bits; text may have units (`1h30m`).
    Period,
    /// Seconds since 1970 in 32 bits; text is `YYYYMMDDHHmmSS` (RFC 4034 §3.2).
    Time,
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
    /// A name that may be compressed in an answer: those of RFC 1035 alone (RFC 3597 §4).
    CompressibleName,
    /// A name that must not be compressed.
    Name,
    /// A `<character-string>`: one octet of length, then the octets (RFC 1035 §3.3).
    String,
    /// A `<character-string>` of decimal digits, four at least (RFC 1183 §3.1).
    Digits,
    /// A `<character-string>` that holds a decimal number, of degrees or metres (RFC 1712 §3).
    Coordinate,
    /// A `<character-string>` or the end of the RDATA.
    OptionalString,
    /// One or more `<character-string>`s up to the end.
    Strings,
    /// The name of a CAA property: letters and digits behind an octet of length (RFC 8659 §4.1).
    Tag,
    /// Octets up to the end, as one string without a length.
    RestAsString,
    /// One octet or more up to the end, as hexadecimal digits.
    Hex,
    /// The digest of a DS, its length given by the digest type before it.
    DsDigest,
    /// The fingerprint of an SSHFP, its length given by the fingerprint type before it.
    Fingerprint,
    /// The digest of a ZONEMD, its length given by the hash algorithm before it.
    ZoneDigest,
    /// One octet or more up to the end, in base 64.
    Base64,
    /// Octets up to the end, in base 64; there may be none.
    OptionalBase64,
    /// Octets up to the end, in base 64 or `-` for none (draft-durand-doa-over-dns §3.2).
    DashBase64,
    /// An octet of length and the octets, as hexadecimal digits or `-` for none (RFC 5155 §3.3).
    Salt,
    /// An octet of length and one octet or more, in base 32 with the extended alphabet (RFC 5155 §3.3).
    HashedName,
    /// A set of types as windows of bits up to the end (RFC 4034 §4.1.2); it may be empty.
    Bitmap,
    /// A protocol's number and a map of its ports, up to the end (RFC 1035 §3.4.2).
    Services,
    /// The octets of an OSI address up to the end: `0x` and hexadecimal digits (RFC 1706 §5).
    Nsap,
    /// A place on Earth, 16 octets (RFC 1876 §2).
    Location,
    /// Ranges of addresses up to the end (RFC 3123 §4); there may be none.
    Prefixes,
    /// Gateway type, algorithm and gateway (RFC 4025 §2.1).
    Gateway,
    /// A bit, the relay's type, and the relay (RFC 8777 §4.2).
    Relay,
    /// Lengths, algorithm, tag and key of a host (RFC 8005 §5).
    HostIdentity,
    /// Names up to the end; there may be none.
    Names,
    /// SvcParams up to the end, keys ascending (RFC 9460 §2.2); there may be none.
    SvcParams,
}

/// Writes a row of the table: each field's name and kind.
macro_rules! row {
    ($($name:literal $kind:ident),* $(,)?) => {
        Some(const { &[$(Field { name: $name, kind: FieldKind::$kind }),*] })
    };
}

/// The fields of `rtype`, in order; `None` for a type whose text is the form of RFC 3597 §5 alone.
pub fn fields(rtype: Rtype) -> Option<&'static [Field]> {
    match rtype {
        Rtype::A => row!["address" Ipv4],
        Rtype::NS | Rtype::MD | Rtype::MF | Rtype::MB => row!["host" CompressibleName],
        Rtype::CNAME | Rtype::PTR => row!["target" CompressibleName],
        Rtype::SOA => row![
            "primary" CompressibleName, "mailbox" CompressibleName, "serial" U32,
            "refresh" Period, "retry" Period, "expire" Period, "minimum" Period,
        ],
        Rtype::MG | Rtype::MR => row!["mailbox" CompressibleName],
        Rtype::WKS => row!["address" Ipv4, "services" Services],
        Rtype::HINFO => row!["CPU" String, "OS" String],
        Rtype::MINFO => row!["responsible mailbox" CompressibleName, "error mailbox" CompressibleName],
        Rtype::MX => row!["preference" U16, "exchange" CompressibleName],
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
            "type covered" Rtype, "algorithm" Algorithm, "labels" U8, "original TTL" Period, "expiration" Time,
            "inception" Time, "key tag" U16, "signer" Name, "signature" Base64,
        ],
        Rtype::NSEC => row!["next name" Name, "types" Bitmap],
        Rtype::DNSKEY | Rtype::CDNSKEY | Rtype::RKEY => {
            row!["flags" U16, "protocol" U8, "algorithm" Algorithm, "public key" Base64]
        }
        // RFC 2535 §3.1.2: flags can say that there is no key.
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

/// Why RDATA has not the shape of its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedRdata {
    /// The field at fault, or `RDATA` where there is too much of it.
    pub field: &'static str,
    /// What is wrong, as the rest of a sentence about the field: `ends too early`.
    pub problem: &'static str,
}

/// Whether `rdata`, in wire form, has the shape of `rtype`. Types that the table does not know always pass.
pub fn check(rtype: Rtype, rdata: &[u8]) -> Result<(), MalformedRdata> {
    for field in FieldSlices::of(rtype, rdata) {
        field?;
    }
    Ok(())
}

/// Offsets in `rdata` of the names that an answer may compress, which are those of RFC 1035 alone (RFC 3597 §4).
///
/// `rdata` must have passed [`check`]; from one that has not, names behind the fault are left out.
pub fn compressible_names(rtype: Rtype, rdata: &[u8]) -> impl Iterator<Item = usize> {
    let mut at = 0;
    FieldSlices::of(rtype, rdata).map_while(Result::ok).filter_map(move |(field, octets)| {
        let start = at;
        at += octets.len();
        (field.kind == FieldKind::CompressibleName).then_some(start)
    })
}

/// The host whose addresses belong into the additional section of an answer with this record.
///
/// It is `None` for the types that ask for no such thing, for the root as "no such service" (RFC 2782, RFC 7505), and
/// for RDATA that would not pass [`check`]. The root as target of a service-mode SVCB means the owner itself
/// (RFC 9460 §2.5.2): that too is `None`.
pub fn target(rtype: Rtype, rdata: &[u8]) -> Option<Name<'_>> {
    let offset = match rtype {
        // RFC 1035 §3.3.11 (NS), §3.3.3 and on (MB, MD, MF).
        Rtype::NS | Rtype::MB | Rtype::MD | Rtype::MF => 0,
        // RFC 1035 §3.3.9, RFC 1183 §1 and §3.3, RFC 2230 §2.1, RFC 6742 §2.4, RFC 9460 §4.1.
        Rtype::MX | Rtype::AFSDB | Rtype::RT | Rtype::KX | Rtype::LP | Rtype::SVCB | Rtype::HTTPS => 2,
        // RFC 2782.
        Rtype::SRV => 6,
        _ => return None,
    };
    Name::parse(rdata.get(offset..)?).ok().filter(|name| !name.is_root())
}

/// RDATA cut into its fields, each checked; after a fault there is nothing more.
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
            return surplus.then_some(Err(MalformedRdata { field: "RDATA", problem: "goes on behind its last field" }));
        };
        match field_end(field.kind, self.rdata, self.at) {
            Ok(end) => {
                let octets = &self.rdata[self.at..end];
                self.at = end;
                Some(Ok((*field, octets)))
            }
            Err(problem) => {
                self.fields = [].iter();
                self.at = self.rdata.len();
                Some(Err(MalformedRdata { field: field.name, problem }))
            }
        }
    }
}
