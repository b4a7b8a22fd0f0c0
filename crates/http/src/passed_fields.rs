//! The rules for fields that a proxy passes on, in either direction: which belong to one connection, and how the
//! configuration changes the others.

use crate::fields::{FieldName, Fields};
use crate::grammar::list_members;
use alloc::string::String;
use alloc::vec::Vec;

/// A field that is set, or removed (`None`).
pub(crate) type Edit = (String, Option<String>);

/// Names in Connection that count. No honest sender names so many; without the bound, each field would be compared with
/// thousands.
const NAMED_FIELDS_MAX: usize = 16;

/// The fields that Connection names, and that therefore end at this connection (RFC 9110 §7.6.1).
pub(crate) struct NamedFields<'b> {
    names: [&'b [u8]; NAMED_FIELDS_MAX],
    count: usize,
}

impl<'b> NamedFields<'b> {
    /// Those of a message. Fields that concern all recipients are never among them: a client would name those that a
    /// proxy before this one has added, so that the backend does not see them.
    pub(crate) fn of(fields: &Fields<'b>) -> NamedFields<'b> {
        let mut named = NamedFields { names: [b""; NAMED_FIELDS_MAX], count: 0 };
        if !fields.contains(FieldName::Connection) {
            return named;
        }
        let names = fields.values(FieldName::Connection).flat_map(list_members);
        let names = names.filter(|name| !is_end_to_end(name)).filter(|name| !is_hop_by_hop(name));
        for (place, name) in named.names.iter_mut().zip(names) {
            *place = name;
            named.count += 1;
        }
        named
    }

    /// Whether this field is one of them.
    #[inline]
    pub(crate) fn contain(&self, name: &[u8]) -> bool {
        self.names[..self.count].iter().any(|named| named.eq_ignore_ascii_case(name))
    }
}

/// Whether the field belongs to one connection whether Connection names it or not (RFC 9110 §7.6.1), or frames content,
/// which each connection does in its own way.
#[inline]
pub(crate) fn is_hop_by_hop(name: &[u8]) -> bool {
    let is = |expected: &[u8]| name.eq_ignore_ascii_case(expected);
    match name.len() {
        2 => is(b"te"),
        // Reserved, since Connection has an option with this name (RFC 9110 §18.4).
        5 => is(b"close"),
        7 => is(b"trailer") || is(b"upgrade"),
        10 => is(b"connection") || is(b"keep-alive"),
        14 => is(b"content-length"),
        16 => is(b"proxy-connection"),
        17 => is(b"transfer-encoding"),
        18 => is(b"proxy-authenticate"),
        19 => is(b"proxy-authorization"),
        _ => false,
    }
}

/// Whether the field concerns all recipients, so that Connection cannot remove it.
fn is_end_to_end(name: &[u8]) -> bool {
    const NAMES: [&[u8]; 14] = [
        b"authorization",
        b"cache-control",
        b"cookie",
        b"date",
        b"etag",
        b"forwarded",
        b"host",
        b"location",
        b"origin",
        b"set-cookie",
        b"vary",
        b"via",
        b"www-authenticate",
        b"x-real-ip",
    ];
    const PREFIXES: [&[u8]; 5] = [b"access-control-", b"content-", b"sec-", b"strict-transport-", b"x-forwarded-"];
    NAMES.iter().any(|known| known.eq_ignore_ascii_case(name))
        || PREFIXES.iter().any(|prefix| starts_with(name, prefix))
}

/// Whether a name begins with `prefix`, in any letter case.
#[inline]
pub(crate) fn starts_with(name: &[u8], prefix: &[u8]) -> bool {
    name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// Whether an edit sets or removes this field.
#[inline]
pub(crate) fn is_edited(name: &[u8], edits: &[Edit]) -> bool {
    edits.iter().any(|(edited, _)| edited.as_bytes().eq_ignore_ascii_case(name))
}

/// The same for a field of a request: an application that gets fields as variables cannot tell `Remote_User` from
/// Remote-User.
#[inline]
pub(crate) fn is_edited_in_request(name: &[u8], edits: &[Edit]) -> bool {
    let folded = |byte: u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    let is_same =
        |edited: &str| edited.len() == name.len() && edited.bytes().map(folded).eq(name.iter().copied().map(folded));
    edits.iter().any(|(edited, _)| is_same(edited))
}

/// Appends the fields that edits set, except those for which `is_own` is true.
pub(crate) fn put_edits(edits: &[Edit], is_own: impl Fn(&[u8]) -> bool, out: &mut Vec<u8>) {
    for (name, value) in edits {
        if let Some(value) = value
            && !is_own(name.as_bytes())
        {
            put_field(name.as_bytes(), value.as_bytes(), out);
        }
    }
}

/// Appends a field line.
#[inline]
pub(crate) fn put_field(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}
