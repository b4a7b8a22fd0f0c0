//! Record types and their mnemonics (the IANA registry of DNS parameters).

use core::fmt;

/// The type of a record or of a question.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rtype(pub u16);

macro_rules! rtypes {
    ($($name:ident = $number:literal),* $(,)?) => {
        #[allow(missing_docs, reason = "the names are those of the registry")]
        impl Rtype {
            $(pub const $name: Rtype = Rtype($number);)*
        }

        /// Each mnemonic, by number.
        const MNEMONICS: &[(u16, &str)] = &[$(($number, stringify!($name))),*];
    };
}

// `mnemonic` returns NSAP-PTR with a hyphen, as in the registry.
rtypes! {
    A = 1, NS = 2, MD = 3, MF = 4, CNAME = 5, SOA = 6, MB = 7, MG = 8, MR = 9, NULL = 10, WKS = 11, PTR = 12,
    HINFO = 13, MINFO = 14, MX = 15, TXT = 16, RP = 17, AFSDB = 18, X25 = 19, ISDN = 20, RT = 21, NSAP = 22,
    NSAP_PTR = 23, SIG = 24, KEY = 25, PX = 26, GPOS = 27, AAAA = 28, LOC = 29, NXT = 30, EID = 31, NIMLOC = 32,
    SRV = 33, ATMA = 34, NAPTR = 35, KX = 36, CERT = 37, A6 = 38, DNAME = 39, SINK = 40, OPT = 41, APL = 42, DS = 43,
    SSHFP = 44, IPSECKEY = 45, RRSIG = 46, NSEC = 47, DNSKEY = 48, DHCID = 49, NSEC3 = 50, NSEC3PARAM = 51, TLSA = 52,
    SMIMEA = 53, HIP = 55, NINFO = 56, RKEY = 57, TALINK = 58, CDS = 59, CDNSKEY = 60, OPENPGPKEY = 61, CSYNC = 62,
    ZONEMD = 63, SVCB = 64, HTTPS = 65, DSYNC = 66, HHIT = 67, BRID = 68, SPF = 99, NID = 104, L32 = 105, L64 = 106,
    LP = 107, EUI48 = 108, EUI64 = 109, TKEY = 249, TSIG = 250, IXFR = 251, AXFR = 252, MAILB = 253, MAILA = 254,
    ANY = 255, URI = 256, CAA = 257, AVC = 258, DOA = 259, AMTRELAY = 260, RESINFO = 261, WALLET = 262, CLA = 263,
    IPN = 264, TA = 32768, DLV = 32769,
}

impl Rtype {
    /// The mnemonic in the registry, if there is one.
    fn mnemonic(self) -> Option<&'static str> {
        let found = MNEMONICS.binary_search_by_key(&self.0, |&(number, _)| number).ok()?;
        Some(if self == Rtype::NSAP_PTR { "NSAP-PTR" } else { MNEMONICS[found].1 })
    }

    /// The type in `text`: a mnemonic or `TYPE65280` (RFC 3597 §5), ignoring case.
    pub fn from_text(text: &[u8]) -> Option<Rtype> {
        if let Some(digits) = text.split_at_checked(4).filter(|(head, _)| head.eq_ignore_ascii_case(b"TYPE")) {
            return core::str::from_utf8(digits.1).ok()?.parse().ok().map(Rtype);
        }
        let key = folded_key(text)?;
        let mut slot = slot_of(key);
        // The search ends at an empty slot.
        while BY_MNEMONIC[slot].0 != 0 {
            if BY_MNEMONIC[slot].0 == key {
                return Some(Rtype(BY_MNEMONIC[slot].1));
            }
            slot = (slot + 1) % SLOT_COUNT;
        }
        None
    }

    /// Whether a name with a CNAME record may have records of this type (RFC 2181 §10.1, RFC 2535 §2.3.5, RFC 4034 §3
    /// and §4).
    pub(crate) fn may_be_beside_cname(self) -> bool {
        matches!(self, Rtype::CNAME | Rtype::RRSIG | Rtype::NSEC | Rtype::KEY | Rtype::SIG)
    }

    /// Whether a zone can hold records of this type: not QTYPEs and Meta-TYPEs (RFC 6895 §3.1).
    pub fn is_data(self) -> bool {
        !matches!(self.0, 0 | 41 | 128..=255)
    }
}

/// The source of a type's records in a zone that this server signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordSource {
    /// The operator or the primary provides the records, as in an unsigned zone.
    Zone,
    /// The keys bring the records, together with other signers' keys.
    Keys,
    /// Each signed version has its own.
    Version,
}

impl RecordSource {
    /// The source of records of this type, at the apex or another name. The rules for keys, NSEC3PARAM and ZONEMD are
    /// for the apex (RFC 4034 §2.1.1, RFC 7344 §4.1, RFC 5155 §4, RFC 8976 §2): at any other name these are data, as
    /// the CDS records of RFC 9615.
    pub fn of(rtype: Rtype, is_apex: bool) -> RecordSource {
        match rtype {
            Rtype::RRSIG | Rtype::NSEC | Rtype::NSEC3 => RecordSource::Version,
            Rtype::NSEC3PARAM | Rtype::ZONEMD if is_apex => RecordSource::Version,
            Rtype::DNSKEY | Rtype::CDS | Rtype::CDNSKEY if is_apex => RecordSource::Keys,
            _ => RecordSource::Zone,
        }
    }
}

/// Bytes of the longest mnemonic that fits into a [`folded_key`].
const MNEMONIC_BYTES_MAX: usize = 16;
/// Slots of [`BY_MNEMONIC`]: more than twice the mnemonics, so that searches are short.
const SLOT_COUNT: usize = 256;

/// Numbers by the [`folded_key`] of their mnemonics, each in the first free slot from [`slot_of`] on. The key 0 is an
/// empty slot.
static BY_MNEMONIC: [(u128, u16); SLOT_COUNT] = {
    assert!(MNEMONICS.len() * 2 < SLOT_COUNT, "a search ends at an empty slot");
    let mut slots = [(0, 0); SLOT_COUNT];
    let mut index = 0;
    while index < MNEMONICS.len() {
        let Some(key) = folded_key(MNEMONICS[index].1.as_bytes()) else { panic!("a mnemonic is too long") };
        let mut slot = slot_of(key);
        while slots[slot].0 != 0 {
            slot = (slot + 1) % SLOT_COUNT;
        }
        slots[slot] = (key, MNEMONICS[index].0);
        index += 1;
    }
    slots
};

/// The bytes of `text` as one number, with letters in upper case and hyphens as underscores; `None` if it is too long
/// for a mnemonic.
const fn folded_key(text: &[u8]) -> Option<u128> {
    if text.len() > MNEMONIC_BYTES_MAX {
        return None;
    }
    let mut key = 0;
    let mut at = 0;
    while at < text.len() {
        let byte = if text[at] == b'-' { b'_' } else { text[at].to_ascii_uppercase() };
        key = key << 8 | byte as u128;
        at += 1;
    }
    Some(key)
}

/// The slot at which the search for `key` starts.
const fn slot_of(key: u128) -> usize {
    // Fibonacci hashing: the upper bits of the product depend on every byte of the key.
    let folded = (key as u64) ^ ((key >> 64) as u64).rotate_left(29);
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize
}

impl fmt::Display for Rtype {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mnemonic() {
            Some(name) => out.write_str(name),
            None => write!(out, "TYPE{}", self.0),
        }
    }
}

impl fmt::Debug for Rtype {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn mnemonics_and_numbers_are_converted_both_ways() {
        assert!(MNEMONICS.is_sorted_by_key(|&(number, _)| number), "mnemonic() does a binary search");
        for &(number, _) in MNEMONICS {
            let rtype = Rtype(number);
            assert_eq!(Rtype::from_text(rtype.to_string().as_bytes()), Some(rtype));
        }
        assert_eq!(Rtype::from_text(b"https"), Some(Rtype::HTTPS));
        assert_eq!(Rtype::from_text(b"TYPE65280"), Some(Rtype(65280)));
        assert_eq!(Rtype::from_text(b"type1"), Some(Rtype::A));
        assert_eq!(Rtype::from_text(b"TYPE65536"), None);
        assert_eq!(Rtype::from_text(b"TYPE"), None);
        assert_eq!(Rtype::from_text(b"NOPE"), None);
        assert_eq!(Rtype::from_text(b""), None);
        assert_eq!(Rtype::from_text(b"nsap-ptr"), Some(Rtype::NSAP_PTR));
        assert_eq!(Rtype::from_text(b"A\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0A"), None);
        assert_eq!(Rtype(65280).to_string(), "TYPE65280");
    }
}
