//! The SvcParams of SVCB and HTTPS records (RFC 9460): keys, and the wire form of values.

use core::fmt;

/// A SvcParamKey.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SvcParamKey(pub(crate) u16);

impl SvcParamKey {
    pub(crate) const MANDATORY: SvcParamKey = SvcParamKey(0);
    pub(crate) const ALPN: SvcParamKey = SvcParamKey(1);
    pub(crate) const NO_DEFAULT_ALPN: SvcParamKey = SvcParamKey(2);
    /// RFC 9460 §14.3.2 reserves this key as invalid.
    const INVALID: SvcParamKey = SvcParamKey(65_535);

    /// The key in `text`: a registered one in lower case, or `key65280` (RFC 9460 §2.1).
    pub(crate) fn from_text(text: &[u8]) -> Option<SvcParamKey> {
        if let Some(number) = KEYS.iter().position(|(name, _)| name.as_bytes() == text) {
            return Some(SvcParamKey(number as u16));
        }
        let digits = text.strip_prefix(b"key")?;
        // RFC 9460 §2.1: no leading zeros.
        let canonical = digits == b"0" || digits.first().is_some_and(|first| matches!(first, b'1'..=b'9'));
        let number = core::str::from_utf8(digits).ok().filter(|_| canonical)?.parse().ok()?;
        Some(SvcParamKey(number)).filter(|&key| key != SvcParamKey::INVALID)
    }

    /// The kind of the key's value.
    pub(crate) fn value_kind(self) -> ValueKind {
        self.row().map_or(ValueKind::Opaque, |&(_, kind)| kind)
    }

    fn row(self) -> Option<&'static (&'static str, ValueKind)> {
        KEYS.get(usize::from(self.0))
    }
}

impl fmt::Display for SvcParamKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.row() {
            Some((name, _)) => out.write_str(name),
            None => write!(out, "key{}", self.0),
        }
    }
}

/// The kind of a value, in wire form and as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueKind {
    /// Keys, ascending (RFC 9460 §8).
    Keys,
    /// Protocol identifiers, each with a length byte (RFC 9460 §7.1).
    Protocols,
    /// No value.
    Empty,
    /// A number of 16 bits (RFC 9460 §7.2).
    Port,
    /// IPv4 addresses (RFC 9460 §7.3).
    Ipv4,
    /// Bytes, in base 64 as text (RFC 9848).
    Base64,
    /// IPv6 addresses (RFC 9460 §7.3).
    Ipv6,
    /// A URI template with the variable `dns` (RFC 9461 §5).
    DohPath,
    /// Any bytes.
    Opaque,
}

/// The name and the kind of value of each registered key, by number.
const KEYS: [(&str, ValueKind); 9] = [
    ("mandatory", ValueKind::Keys),
    ("alpn", ValueKind::Protocols),
    ("no-default-alpn", ValueKind::Empty),
    ("port", ValueKind::Port),
    ("ipv4hint", ValueKind::Ipv4),
    ("ech", ValueKind::Base64),
    ("ipv6hint", ValueKind::Ipv6),
    ("dohpath", ValueKind::DohPath),
    // RFC 9540 §4.
    ("ohttp", ValueKind::Empty),
];

/// The parameters in `bytes`, up to the first incomplete one.
pub(crate) fn params(bytes: &[u8]) -> impl Iterator<Item = (SvcParamKey, &[u8])> {
    let mut rest = bytes;
    core::iter::from_fn(move || {
        let (&[key_high, key_low, length_high, length_low], tail) = rest.split_first_chunk()?;
        let (value, tail) = tail.split_at_checked(usize::from(u16::from_be_bytes([length_high, length_low])))?;
        rest = tail;
        Some((SvcParamKey(u16::from_be_bytes([key_high, key_low])), value))
    })
}

/// Checks that `bytes` are SvcParams: keys ascend, values are well-formed, and mandatory keys are present. An error is
/// the problem, for a message.
pub(crate) fn check(bytes: &[u8]) -> Result<(), &'static str> {
    let mut length_bytes = 0;
    let mut previous = None;
    for (key, value) in params(bytes) {
        length_bytes += 4 + value.len();
        if previous >= Some(key) {
            return Err(if previous == Some(key) {
                "a key is repeated"
            } else {
                "the keys are not in ascending order"
            });
        }
        if key == SvcParamKey::INVALID {
            return Err("the key 65535 is reserved as invalid");
        }
        previous = Some(key);
        check_value(key.value_kind(), value)?;
        if key == SvcParamKey::MANDATORY {
            check_mandatory(value, bytes)?;
        }
        if key == SvcParamKey::NO_DEFAULT_ALPN && !has(bytes, SvcParamKey::ALPN) {
            // RFC 9460 §7.1.1.
            return Err("no-default-alpn requires alpn");
        }
    }
    if length_bytes == bytes.len() { Ok(()) } else { Err("the last parameter is incomplete") }
}

fn has(bytes: &[u8], wanted: SvcParamKey) -> bool {
    params(bytes).any(|(key, _)| key == wanted)
}

fn check_value(kind: ValueKind, value: &[u8]) -> Result<(), &'static str> {
    let empty = value.is_empty();
    match kind {
        ValueKind::Keys if empty || !value.len().is_multiple_of(2) => Err("mandatory is not a list of keys"),
        ValueKind::Protocols if !are_protocols(value) => Err("alpn is not a list of protocol identifiers"),
        ValueKind::Empty if !empty => Err("a key without value has one"),
        ValueKind::Port if value.len() != 2 => Err("port is not a number of 16 bits"),
        ValueKind::Ipv4 if empty || !value.len().is_multiple_of(4) => Err("ipv4hint is not a list of addresses"),
        ValueKind::Ipv6 if empty || !value.len().is_multiple_of(16) => Err("ipv6hint is not a list of addresses"),
        ValueKind::Base64 if empty => Err("ech is empty"),
        ValueKind::DohPath if !is_doh_path(value) => Err("dohpath is not a template such as /dns-query{?dns}"),
        _ => Ok(()),
    }
}

/// RFC 9460 §7.1.1: at least one identifier, each of at least one byte.
fn are_protocols(mut value: &[u8]) -> bool {
    let mut count = 0;
    while let [length, rest @ ..] = value {
        let Some(tail) = rest.get(usize::from(*length)..).filter(|_| *length > 0) else { return false };
        value = tail;
        count += 1;
    }
    count > 0 && value.is_empty()
}

/// RFC 9461 §5: a relative URI template in UTF-8 that has the variable `dns`.
fn is_doh_path(value: &[u8]) -> bool {
    core::str::from_utf8(value).is_ok_and(|path| path.starts_with('/') && path.contains("{?dns"))
}

/// RFC 9460 §8: the keys ascend, are present, and do not include `mandatory`.
fn check_mandatory(value: &[u8], bytes: &[u8]) -> Result<(), &'static str> {
    let mut previous = SvcParamKey::MANDATORY;
    for pair in value.chunks_exact(2) {
        let key = SvcParamKey(u16::from_be_bytes([pair[0], pair[1]]));
        if key == SvcParamKey::MANDATORY {
            return Err("mandatory lists itself");
        }
        if key <= previous {
            return Err("mandatory repeats a key, or its keys are not in ascending order");
        }
        if !has(bytes, key) {
            return Err("mandatory lists a key that is not present");
        }
        previous = key;
    }
    Ok(())
}
