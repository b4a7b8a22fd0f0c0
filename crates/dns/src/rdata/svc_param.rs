//! The SvcParams of SVCB and HTTPS records (RFC 9460): their keys, and the shape of each value on the wire.

use core::fmt;

/// A SvcParamKey.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key(pub(crate) u16);

impl Key {
    pub(crate) const MANDATORY: Key = Key(0);
    pub(crate) const ALPN: Key = Key(1);
    pub(crate) const NO_DEFAULT_ALPN: Key = Key(2);
    /// The key that RFC 9460 §14.3.2 keeps invalid for ever.
    const INVALID: Key = Key(65_535);

    /// The key that `text` names: a registered one, or `key65280` (RFC 9460 §2.1). Keys are in lower case.
    pub(crate) fn from_text(text: &[u8]) -> Option<Key> {
        let known = |number: &u16| Key(*number).row().is_some_and(|(name, _)| name.as_bytes() == text);
        if let Some(number) = (0..KEYS.len() as u16).find(known) {
            return Some(Key(number));
        }
        let digits = text.strip_prefix(b"key")?;
        // "the decimal value with no leading zeros" (RFC 9460 §2.1).
        let canonical = digits == b"0" || digits.first().is_some_and(|first| matches!(first, b'1'..=b'9'));
        let number = core::str::from_utf8(digits).ok().filter(|_| canonical)?.parse().ok()?;
        Some(Key(number)).filter(|&key| key != Key::INVALID)
    }

    /// What the key's value is.
    pub(crate) fn value(self) -> Value {
        self.row().map_or(Value::Opaque, |&(_, value)| value)
    }

    fn row(self) -> Option<&'static (&'static str, Value)> {
        KEYS.get(usize::from(self.0))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.row() {
            Some((name, _)) => out.write_str(name),
            None => write!(out, "key{}", self.0),
        }
    }
}

/// What a key's value is, on the wire and as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// Keys, ascending (RFC 9460 §8).
    Keys,
    /// Protocol identifiers, each behind an octet of length (RFC 9460 §7.1).
    Protocols,
    /// None.
    Empty,
    /// A number of 16 bits (RFC 9460 §7.2).
    Port,
    /// IPv4 addresses (RFC 9460 §7.3).
    Ipv4,
    /// Octets, in base 64 (RFC 9848).
    Base64,
    /// IPv6 addresses (RFC 9460 §7.3).
    Ipv6,
    /// A URI template with the variable `dns` (RFC 9461 §5).
    DohPath,
    /// Octets of any kind.
    Opaque,
}

/// Name and value of each registered key, by number.
const KEYS: [(&str, Value); 9] = [
    ("mandatory", Value::Keys),
    ("alpn", Value::Protocols),
    ("no-default-alpn", Value::Empty),
    ("port", Value::Port),
    ("ipv4hint", Value::Ipv4),
    ("ech", Value::Base64),
    ("ipv6hint", Value::Ipv6),
    ("dohpath", Value::DohPath),
    // RFC 9540 §4.
    ("ohttp", Value::Empty),
];

/// The parameters in `octets`, until their end or the first that is cut off.
pub(crate) fn params(octets: &[u8]) -> impl Iterator<Item = (Key, &[u8])> {
    let mut rest = octets;
    core::iter::from_fn(move || {
        let (&[key_high, key_low, length_high, length_low], behind) = rest.split_first_chunk()?;
        let (value, behind) = behind.split_at_checked(usize::from(u16::from_be_bytes([length_high, length_low])))?;
        rest = behind;
        Some((Key(u16::from_be_bytes([key_high, key_low])), value))
    })
}

/// Whether `octets` are SvcParams: keys strictly ascending, values of the right shape, `mandatory` kept.
pub(crate) fn check(octets: &[u8]) -> Result<(), &'static str> {
    let mut length_bytes = 0;
    let mut previous = None;
    for (key, value) in params(octets) {
        length_bytes += 4 + value.len();
        if previous >= Some(key) {
            return Err(if previous == Some(key) { "have a key twice" } else { "have keys out of order" });
        }
        if key == Key::INVALID {
            return Err("have the key 65535, which RFC 9460 keeps invalid");
        }
        previous = Some(key);
        check_value(key.value(), value)?;
        if key == Key::MANDATORY {
            check_mandatory(value, octets)?;
        }
        if key == Key::NO_DEFAULT_ALPN && !has(octets, Key::ALPN) {
            // RFC 9460 §7.1.1.
            return Err("have no-default-alpn without alpn");
        }
    }
    if length_bytes == octets.len() { Ok(()) } else { Err("end within a parameter") }
}

fn has(octets: &[u8], wanted: Key) -> bool {
    params(octets).any(|(key, _)| key == wanted)
}

fn check_value(kind: Value, value: &[u8]) -> Result<(), &'static str> {
    let empty = value.is_empty();
    match kind {
        Value::Keys if empty || !value.len().is_multiple_of(2) => Err("have a mandatory list that is no list of keys"),
        Value::Protocols if !are_protocols(value) => Err("have an alpn that is no list of protocols"),
        Value::Empty if !empty => Err("have a value behind a key that takes none"),
        Value::Port if value.len() != 2 => Err("have a port that is no number of 16 bits"),
        Value::Ipv4 if empty || !value.len().is_multiple_of(4) => Err("have an ipv4hint that is no list of addresses"),
        Value::Ipv6 if empty || !value.len().is_multiple_of(16) => Err("have an ipv6hint that is no list of addresses"),
        Value::Base64 if empty => Err("have an empty ech"),
        Value::DohPath if !is_doh_path(value) => Err("have a dohpath that is no template like /dns-query{?dns}"),
        _ => Ok(()),
    }
}

/// RFC 9460 §7.1.1: one identifier at least, each of one octet at least.
fn are_protocols(mut value: &[u8]) -> bool {
    let mut count = 0;
    while let [length, rest @ ..] = value {
        let Some(behind) = rest.get(usize::from(*length)..).filter(|_| *length > 0) else { return false };
        value = behind;
        count += 1;
    }
    count > 0 && value.is_empty()
}

/// RFC 9461 §5: a relative URI template in UTF-8 that has the variable `dns`.
fn is_doh_path(value: &[u8]) -> bool {
    core::str::from_utf8(value).is_ok_and(|path| path.starts_with('/') && path.contains("{?dns"))
}

/// RFC 9460 §8: keys ascending, each present, `mandatory` not among them.
fn check_mandatory(value: &[u8], octets: &[u8]) -> Result<(), &'static str> {
    let mut previous = Key::MANDATORY;
    for pair in value.chunks_exact(2) {
        let key = Key(u16::from_be_bytes([pair[0], pair[1]]));
        if key == Key::MANDATORY {
            return Err("have mandatory in the list of mandatory keys");
        }
        if key <= previous {
            return Err("have a key twice, or out of order, in the list of mandatory keys");
        }
        if !has(octets, key) {
            return Err("lack a key that mandatory lists");
        }
        previous = key;
    }
    Ok(())
}
