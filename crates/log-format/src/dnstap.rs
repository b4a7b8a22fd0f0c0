//! dnstap messages: a DNS message with its time, client and transport, in the encoding of Protocol Buffers
//! (`dnstap.proto`, <https://dnstap.info>).
//!
//! Two messages of a dozen fields are written here by hand, without an allocation for each, since a thread that serves
//! writes them.

use std::net::{IpAddr, SocketAddr};

/// A transport of DNS, with its number (`SocketProtocol`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnstapTransport {
    /// UDP.
    Udp = 1,
    /// TCP.
    Tcp = 2,
    /// TLS.
    Tls = 3,
    /// HTTPS.
    Https = 4,
}

/// A query or reply that is passed on.
#[derive(Clone, Copy, Debug)]
pub struct DnstapMessage<'m> {
    /// Whether it is a reply.
    pub is_reply: bool,
    /// The message's client.
    pub client: SocketAddr,
    /// The transport on which the message was received or sent.
    pub transport: DnstapTransport,
    /// The time of the message, in milliseconds since 1970.
    pub time_unix_ms: u64,
    /// The bytes of the message.
    pub message: &'m [u8],
}

/// Writes frames with dnstap messages.
#[derive(Clone, Debug)]
pub struct DnstapWriter {
    /// The fields that all messages have.
    common: Vec<u8>,
    /// The fields before the DNS message.
    fields: Vec<u8>,
}

/// The numbers of the fields of `Dnstap`.
mod outer {
    pub(super) const IDENTITY: u8 = 1;
    pub(super) const VERSION: u8 = 2;
    pub(super) const MESSAGE: u8 = 14;
    pub(super) const TYPE: u8 = 15;
}

/// The numbers of the fields of `Message`.
mod inner {
    pub(super) const TYPE: u8 = 1;
    pub(super) const SOCKET_FAMILY: u8 = 2;
    pub(super) const SOCKET_PROTOCOL: u8 = 3;
    pub(super) const QUERY_ADDRESS: u8 = 4;
    pub(super) const QUERY_PORT: u8 = 6;
    pub(super) const QUERY_TIME_SEC: u8 = 8;
    pub(super) const QUERY_TIME_NSEC: u8 = 9;
    pub(super) const QUERY_MESSAGE: u8 = 10;
    pub(super) const RESPONSE_TIME_SEC: u8 = 12;
    pub(super) const RESPONSE_TIME_NSEC: u8 = 13;
    pub(super) const RESPONSE_MESSAGE: u8 = 14;
}

/// `Dnstap.Type.MESSAGE`.
const TYPE_MESSAGE: u64 = 1;
/// `Message.Type` of a query; the reply's value is the next number.
const AUTH_QUERY: u64 = 1;
const UPDATE_QUERY: u64 = 13;
/// The families of addresses.
const INET: u64 = 1;
const INET6: u64 = 2;
const OPCODE_UPDATE: u8 = 5;

/// How a field is encoded.
#[derive(Clone, Copy)]
enum WireType {
    Varint = 0,
    Bytes = 2,
    Fixed32 = 5,
}

impl DnstapWriter {
    /// A writer of messages of the server with this name, if it has one, and of this version.
    pub fn new(identity: Option<&str>, version: &str) -> DnstapWriter {
        let mut common = Vec::new();
        if let Some(identity) = identity {
            put_bytes(&mut common, outer::IDENTITY, identity.as_bytes());
        }
        put_bytes(&mut common, outer::VERSION, version.as_bytes());
        put_number(&mut common, outer::TYPE, TYPE_MESSAGE);
        DnstapWriter { common, fields: Vec::new() }
    }

    /// Appends the frame of `record` to `out`.
    pub fn write(&mut self, record: &DnstapMessage<'_>, out: &mut Vec<u8>) {
        let &DnstapMessage { is_reply, client, transport, time_unix_ms, message } = record;
        let fields = &mut self.fields;
        fields.clear();
        let is_update = message.get(2).is_some_and(|flags| flags >> 3 & 0xf == OPCODE_UPDATE);
        let query_type = if is_update { UPDATE_QUERY } else { AUTH_QUERY };
        put_number(fields, inner::TYPE, query_type + u64::from(is_reply));
        put_number(fields, inner::SOCKET_FAMILY, if client.is_ipv4() { INET } else { INET6 });
        put_number(fields, inner::SOCKET_PROTOCOL, transport as u64);
        match client.ip() {
            IpAddr::V4(ip) => put_bytes(fields, inner::QUERY_ADDRESS, &ip.octets()),
            IpAddr::V6(ip) => put_bytes(fields, inner::QUERY_ADDRESS, &ip.octets()),
        }
        put_number(fields, inner::QUERY_PORT, client.port().into());
        let (seconds, nanoseconds, dns_message) = match is_reply {
            false => (inner::QUERY_TIME_SEC, inner::QUERY_TIME_NSEC, inner::QUERY_MESSAGE),
            true => (inner::RESPONSE_TIME_SEC, inner::RESPONSE_TIME_NSEC, inner::RESPONSE_MESSAGE),
        };
        put_number(fields, seconds, time_unix_ms / 1_000);
        put_key(fields, nanoseconds, WireType::Fixed32);
        fields.extend_from_slice(&((time_unix_ms % 1_000 * 1_000_000) as u32).to_le_bytes());
        put_key(fields, dns_message, WireType::Bytes);
        put_varint(fields, message.len() as u64);

        let record_bytes = fields.len() + message.len();
        let frame_bytes = self.common.len() + 1 + varint_bytes(record_bytes as u64) + record_bytes;
        out.extend_from_slice(&(frame_bytes as u32).to_be_bytes());
        out.extend_from_slice(&self.common);
        put_key(out, outer::MESSAGE, WireType::Bytes);
        put_varint(out, record_bytes as u64);
        out.extend_from_slice(fields);
        out.extend_from_slice(message);
    }
}

/// All fields have numbers below 16, so that the key is one byte.
fn put_key(out: &mut Vec<u8>, field: u8, wire_type: WireType) {
    out.push(field << 3 | wire_type as u8);
}

fn put_number(out: &mut Vec<u8>, field: u8, value: u64) {
    put_key(out, field, WireType::Varint);
    put_varint(out, value);
}

fn put_bytes(out: &mut Vec<u8>, field: u8, value: &[u8]) {
    put_key(out, field, WireType::Bytes);
    put_varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn varint_bytes(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame_streams::frame_count;

    #[test]
    fn message_is_encoded_as_dnstap_proto_says() {
        let mut writer = DnstapWriter::new(Some("ns1"), "v");
        let record = DnstapMessage {
            is_reply: true,
            client: "192.0.2.7:5353".parse().expect("an address"),
            transport: DnstapTransport::Tcp,
            time_unix_ms: 1_500,
            message: b"\0\x01\x80\0",
        };
        let mut out = Vec::new();
        writer.write(&record, &mut out);
        let mut inner = b"\x08\x02\x10\x01\x18\x02\x22\x04\xc0\0\x02\x07\x30\xe9\x29".to_vec();
        inner.extend_from_slice(b"\x60\x01\x6d\0\x65\xcd\x1d\x72\x04\0\x01\x80\0");
        let outer = [b"\x0a\x03ns1\x12\x01v\x78\x01\x72".as_slice(), &[inner.len() as u8], &inner].concat();
        assert_eq!(out, [&(outer.len() as u32).to_be_bytes(), &outer[..]].concat());
    }

    #[test]
    fn updates_have_types_of_their_own() {
        for (flags, is_reply, expected) in [(0, false, 1), (0x80, true, 2), (0x28, false, 13), (0xa8, true, 14)] {
            let message = [0, 1, flags, 0];
            let client = "[2001:db8::1]:53".parse().expect("an address");
            let (transport, time_unix_ms) = (DnstapTransport::Udp, 0);
            let mut out = Vec::new();
            DnstapWriter::new(None, "")
                .write(&DnstapMessage { is_reply, client, transport, time_unix_ms, message: &message }, &mut out);
            // The length, the version, the type, and the key and length of the message.
            assert_eq!(out[4 + 2 + 2 + 2..][..2], [8, expected], "{flags:#x}");
        }
    }

    #[test]
    fn frames_of_all_lengths_follow_each_other() {
        let mut writer = DnstapWriter::new(None, "v");
        let mut out = Vec::new();
        let lengths = [0, 12, 60, 100, 128, 16_300, 16_384, 65_535];
        for length in lengths {
            let message = vec![0; length];
            let client = "[2001:db8::1]:53".parse().expect("an address");
            let transport = DnstapTransport::Https;
            let time_unix_ms = 1_800_000_000_999;
            writer.write(
                &DnstapMessage { is_reply: false, client, transport, time_unix_ms, message: &message },
                &mut out,
            );
        }
        assert_eq!(frame_count(&out), lengths.len());
        let mut rest = &out[..];
        for _ in lengths {
            let (length, frame) = rest.split_first_chunk().expect("a frame");
            rest = &frame[u32::from_be_bytes(*length) as usize..];
        }
        assert!(rest.is_empty());
    }
}
