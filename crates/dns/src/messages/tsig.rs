//! TSIG (RFC 8945): keys, and the signatures of queries and replies.

mod client;

use crate::text::name::{Name, NameBuf};
use crate::text::rtype::Rtype;
use crate::zones::packed_rrset::HEADER_BYTES;
use alloc::vec::Vec;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Sha256, Sha384, Sha512};

pub(crate) use client::ReplyVerifier;
pub use client::SignatureError;

const CLASS_ANY: u16 = 255;
/// Bytes of Time Signed and Fudge.
const TIME_BYTES: usize = 8;
/// Bytes of Time Signed (RFC 8945 §4.2).
const TIME_SIGNED_BYTES: usize = 6;
/// Bytes of the longest MAC, HMAC-SHA-512.
const MAC_BYTES_MAX: usize = 64;
/// Bytes of a TSIG record without the names and the MAC: type, class, TTL, length; time, fudge, MAC size, original ID,
/// error, other length.
const FIXED_BYTES: usize = 10 + TIME_BYTES + 2 + 2 + 2 + 2;
/// The fudge of signed replies (RFC 8945 §10).
const FUDGE_S: u16 = 300;
/// Bytes of the shortest MAC that is not malformed (RFC 8945 §5.2.2.1).
const MAC_BYTES_MIN: usize = 10;

/// A key's algorithm. Algorithms with MD5 and SHA-1 are obsolete and missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TsigAlgorithm {
    /// HMAC-SHA-256.
    HmacSha256,
    /// HMAC-SHA-384.
    HmacSha384,
    /// HMAC-SHA-512.
    HmacSha512,
}

impl TsigAlgorithm {
    /// All algorithms.
    pub const ALL: [TsigAlgorithm; 3] =
        [TsigAlgorithm::HmacSha256, TsigAlgorithm::HmacSha384, TsigAlgorithm::HmacSha512];

    /// The name in a configuration: `hmac-sha256`.
    pub fn name(self) -> &'static str {
        match self {
            TsigAlgorithm::HmacSha256 => "hmac-sha256",
            TsigAlgorithm::HmacSha384 => "hmac-sha384",
            TsigAlgorithm::HmacSha512 => "hmac-sha512",
        }
    }

    /// The name in a message (RFC 8945 §6).
    fn wire(self) -> &'static [u8] {
        match self {
            TsigAlgorithm::HmacSha256 => b"\x0bhmac-sha256\0",
            TsigAlgorithm::HmacSha384 => b"\x0bhmac-sha384\0",
            TsigAlgorithm::HmacSha512 => b"\x0bhmac-sha512\0",
        }
    }
}

/// A computation of a MAC that has begun with the secret.
#[derive(Clone)]
enum MacState {
    Sha256(Hmac<Sha256>),
    Sha384(Hmac<Sha384>),
    Sha512(Hmac<Sha512>),
}

/// A MAC.
#[derive(Clone, Copy, Debug)]
struct MacBytes {
    bytes: [u8; MAC_BYTES_MAX],
    length: usize,
}

impl MacBytes {
    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl MacState {
    fn new(algorithm: TsigAlgorithm, secret: &[u8]) -> MacState {
        const ANY: &str = "HMAC has keys of any length";
        match algorithm {
            TsigAlgorithm::HmacSha256 => MacState::Sha256(Hmac::new_from_slice(secret).expect(ANY)),
            TsigAlgorithm::HmacSha384 => MacState::Sha384(Hmac::new_from_slice(secret).expect(ANY)),
            TsigAlgorithm::HmacSha512 => MacState::Sha512(Hmac::new_from_slice(secret).expect(ANY)),
        }
    }

    fn length_bytes(&self) -> usize {
        match self {
            MacState::Sha256(_) => 32,
            MacState::Sha384(_) => 48,
            MacState::Sha512(_) => 64,
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            MacState::Sha256(mac) => mac.update(bytes),
            MacState::Sha384(mac) => mac.update(bytes),
            MacState::Sha512(mac) => mac.update(bytes),
        }
    }

    fn finish(self) -> MacBytes {
        let mut bytes = [0; MAC_BYTES_MAX];
        let length = self.length_bytes();
        let out = &mut bytes[..length];
        match self {
            MacState::Sha256(mac) => out.copy_from_slice(&mac.finalize().into_bytes()),
            MacState::Sha384(mac) => out.copy_from_slice(&mac.finalize().into_bytes()),
            MacState::Sha512(mac) => out.copy_from_slice(&mac.finalize().into_bytes()),
        }
        MacBytes { bytes, length }
    }

    /// Whether `mac` is the MAC, or its first bytes, compared in constant time.
    fn begins_with(self, mac: &[u8]) -> bool {
        match self {
            MacState::Sha256(state) => state.verify_truncated_left(mac).is_ok(),
            MacState::Sha384(state) => state.verify_truncated_left(mac).is_ok(),
            MacState::Sha512(state) => state.verify_truncated_left(mac).is_ok(),
        }
    }
}

/// A key that this server shares with others.
#[derive(Clone)]
pub struct TsigKey {
    /// In lower case.
    name: NameBuf,
    algorithm: TsigAlgorithm,
    state: MacState,
}

impl TsigKey {
    /// The key `name` with this secret.
    pub fn new(name: Name<'_>, algorithm: TsigAlgorithm, secret: &[u8]) -> TsigKey {
        TsigKey { name: name.to_lowercase(), algorithm, state: MacState::new(algorithm, secret) }
    }

    /// The name, in lower case.
    pub fn name(&self) -> Name<'_> {
        self.name.as_name()
    }

    /// Bytes of a TSIG record of this key without other data.
    fn record_bytes(&self) -> usize {
        self.name().length_bytes() + self.algorithm.wire().len() + FIXED_BYTES + self.state.length_bytes()
    }
}

impl core::fmt::Debug for TsigKey {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        // The secret does not get into logs.
        write!(out, "TsigKey({}, {})", self.name, self.algorithm.name())
    }
}

/// The reason why a signature is not accepted (RFC 8945 §5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TsigError {
    /// The MAC has an impossible length: FORMERR.
    Malformed,
    /// BADKEY: the key is unknown, or has another algorithm.
    BadKey,
    /// BADSIG: the MAC is wrong.
    BadSig,
    /// BADTIME: the message was signed too long ago, or the clocks differ.
    BadTime,
    /// BADTRUNC: the MAC is truncated, which is not accepted.
    BadTrunc,
}

impl TsigError {
    fn code(self) -> u16 {
        match self {
            TsigError::Malformed => 0,
            TsigError::BadSig => 16,
            TsigError::BadKey => 17,
            TsigError::BadTime => 18,
            TsigError::BadTrunc => 22,
        }
    }
}

/// The TSIG record of a query.
#[derive(Debug)]
pub(crate) struct Tsig<'q> {
    key: NameBuf,
    algorithm: Name<'q>,
    /// Time Signed and Fudge.
    time: &'q [u8; TIME_BYTES],
    mac: &'q [u8],
    original_id: [u8; 2],
    error: [u8; 2],
    other: &'q [u8],
}

impl<'q> Tsig<'q> {
    /// The record of `key` with this class and RDATA; `None` if it is malformed (RFC 8945 §4.2).
    pub(crate) fn parse(key: NameBuf, class: u16, rdata: &'q [u8]) -> Option<Tsig<'q>> {
        let algorithm = Name::parse(rdata).ok().filter(|_| class == CLASS_ANY)?;
        let (time, rest) = rdata[algorithm.length_bytes()..].split_first_chunk()?;
        let (mac, rest) = split_counted(rest)?;
        let (&[id_high, id_low, error_high, error_low], rest) = rest.split_first_chunk::<4>()?;
        let (other, rest) = split_counted(rest)?;
        let (original_id, error) = ([id_high, id_low], [error_high, error_low]);
        rest.is_empty().then_some(Tsig { key, algorithm, time, mac, original_id, error, other })
    }

    fn time_signed_s(&self) -> u64 {
        let mut bytes = [0; 8];
        bytes[2..].copy_from_slice(&self.time[..TIME_SIGNED_BYTES]);
        u64::from_be_bytes(bytes)
    }

    /// The start of the MAC; `None` if it is shorter.
    pub(crate) fn mac_start<const N: usize>(&self) -> Option<&'q [u8; N]> {
        self.mac.first_chunk()
    }

    /// The last second at which the signature is accepted.
    pub(crate) fn expires_at_unix_s(&self) -> u64 {
        self.time_signed_s().saturating_add(u64::from(self.fudge_s()))
    }

    pub(crate) fn fudge_s(&self) -> u16 {
        u16::from_be_bytes([self.time[TIME_SIGNED_BYTES], self.time[TIME_SIGNED_BYTES + 1]])
    }

    /// Checks the signature of `message`, whose TSIG record is at `offset`. The signature of the reply continues it;
    /// after an error there is one only if the MAC was right.
    pub(crate) fn verify(
        &self,
        message: &[u8],
        offset: usize,
        keys: &[TsigKey],
        now_unix_s: u64,
    ) -> (Result<(), TsigError>, Option<ReplySigner>) {
        let key = keys.iter().find(|key| {
            key.name().eq_ignore_case(self.key.as_name())
                && self.algorithm.as_bytes().eq_ignore_ascii_case(key.algorithm.wire())
        });
        let Some(key) = key else { return (Err(TsigError::BadKey), None) };
        let whole_bytes = key.state.length_bytes();
        if self.mac.len() > whole_bytes || self.mac.len() < MAC_BYTES_MIN.max(whole_bytes / 2) {
            return (Err(TsigError::Malformed), None);
        }
        let mut state = key.state.clone();
        update_with_message(&mut state, &message[..offset], self.original_id);
        update_with_key(&mut state, key);
        state.update(self.time);
        state.update(&self.error);
        state.update(&(self.other.len() as u16).to_be_bytes());
        state.update(self.other);
        if !state.begins_with(self.mac) {
            return (Err(TsigError::BadSig), None);
        }
        let mut mac = MacBytes { bytes: [0; MAC_BYTES_MAX], length: self.mac.len() };
        mac.bytes[..self.mac.len()].copy_from_slice(self.mac);
        let mut signer = ReplySigner { key: key.clone(), mac, is_first: true, error: 0, time: None };
        let error = if self.mac.len() < whole_bytes {
            Some(TsigError::BadTrunc)
        } else if now_unix_s.abs_diff(self.time_signed_s()) > u64::from(self.fudge_s()) {
            // RFC 8945 §5.2.3: the reply has the time of the query.
            signer.time = Some(*self.time);
            Some(TsigError::BadTime)
        } else {
            None
        };
        signer.error = error.map_or(0, TsigError::code);
        (error.map_or(Ok(()), Err), Some(signer))
    }

    /// Writes the record that answers an error, without a MAC (RFC 8945 §5.3.2), to the start of `out`. Returns its
    /// length, or `None` if it does not fit.
    pub(crate) fn put_unsigned(&self, error: TsigError, id: [u8; 2], out: &mut [u8]) -> Option<usize> {
        let record = Record {
            key: self.key.as_name(),
            algorithm: self.algorithm.as_bytes(),
            time: *self.time,
            mac: &[],
            original_id: id,
            error: error.code(),
            other: &[],
        };
        record.put(out)
    }
}

/// The fields of a TSIG record to write.
struct Record<'r> {
    key: Name<'r>,
    algorithm: &'r [u8],
    time: [u8; TIME_BYTES],
    mac: &'r [u8],
    original_id: [u8; 2],
    error: u16,
    other: &'r [u8],
}

impl Record<'_> {
    /// Writes the record to the start of `out`; its length, or `None` if it does not fit.
    fn put(&self, out: &mut [u8]) -> Option<usize> {
        let rdata_bytes = self.algorithm.len() + TIME_BYTES + 8 + self.mac.len() + self.other.len();
        let parts: [&[u8]; 13] = [
            self.key.as_bytes(),
            &Rtype::TSIG.0.to_be_bytes(),
            &CLASS_ANY.to_be_bytes(),
            &[0; 4],
            &(rdata_bytes as u16).to_be_bytes(),
            self.algorithm,
            &self.time,
            &(self.mac.len() as u16).to_be_bytes(),
            self.mac,
            &self.original_id,
            &self.error.to_be_bytes(),
            &(self.other.len() as u16).to_be_bytes(),
            self.other,
        ];
        let mut at = 0;
        for part in parts {
            out.get_mut(at..at + part.len())?.copy_from_slice(part);
            at += part.len();
        }
        Some(at)
    }
}

/// Signs the replies to one query.
#[derive(Clone, Debug)]
pub(crate) struct ReplySigner {
    key: TsigKey,
    /// The MAC of the previous message: at first, of the query.
    mac: MacBytes,
    is_first: bool,
    error: u16,
    /// Time Signed and Fudge, if they differ from the current time and the default.
    time: Option<[u8; TIME_BYTES]>,
}

impl ReplySigner {
    /// The key that signs.
    pub(crate) fn key(&self) -> &TsigKey {
        &self.key
    }

    /// Bytes that a signature adds to a message.
    pub(crate) fn record_bytes(&self) -> usize {
        self.key.record_bytes() + if self.time.is_some() { TIME_SIGNED_BYTES } else { 0 }
    }

    /// Appends the signature to the message in the first `length_bytes` bytes of `out`; the new length, or `None` if it
    /// does not fit.
    pub(crate) fn sign(&mut self, out: &mut [u8], length_bytes: usize, now_unix_s: u64) -> Option<usize> {
        let (message, rest) = out.split_at_mut(length_bytes);
        let original_id = [message[0], message[1]];
        let now = now_unix_s.to_be_bytes();
        let mut time = [0; TIME_BYTES];
        time[..TIME_SIGNED_BYTES].copy_from_slice(&now[2..]);
        time[TIME_SIGNED_BYTES..].copy_from_slice(&FUDGE_S.to_be_bytes());
        // RFC 8945 §5.2.3: Other Data of BADTIME is the time of the server.
        let other: &[u8] = if self.time.is_some() { &now[2..] } else { &[] };
        let time = self.time.unwrap_or(time);
        let mut state = self.key.state.clone();
        state.update(&(self.mac.length as u16).to_be_bytes());
        state.update(self.mac.as_slice());
        state.update(message);
        // RFC 8945 §5.3.1: later messages of a stream have only the time.
        if self.is_first {
            update_with_key(&mut state, &self.key);
        }
        state.update(&time);
        if self.is_first {
            state.update(&self.error.to_be_bytes());
            state.update(&(other.len() as u16).to_be_bytes());
            state.update(other);
        }
        self.mac = state.finish();
        self.is_first = false;
        let record = Record {
            key: self.key.name(),
            algorithm: self.key.algorithm.wire(),
            time,
            mac: self.mac.as_slice(),
            original_id,
            error: self.error,
            other,
        };
        let record_bytes = record.put(rest)?;
        add_to_additional_count(message, 1);
        Some(length_bytes + record_bytes)
    }
}

/// Adds to ARCOUNT of the message.
fn add_to_additional_count(message: &mut [u8], count: u16) {
    let additional_count = u16::from_be_bytes([message[10], message[11]]) + count;
    message[10..12].copy_from_slice(&additional_count.to_be_bytes());
}

/// Appends the record that answers `error`, without a MAC, to the reply at the start of `out`. Returns the new length;
/// without space the reply is not changed.
#[cold]
pub(crate) fn append_unsigned(out: &mut [u8], length_bytes: usize, tsig: &Tsig<'_>, error: TsigError) -> usize {
    let id = [out[0], out[1]];
    let Some(record_bytes) = tsig.put_unsigned(error, id, &mut out[length_bytes..]) else { return length_bytes };
    add_to_additional_count(out, 1);
    length_bytes + record_bytes
}

/// The query before it was signed (RFC 8945 §4.3.2): with its original ID, and without the TSIG record.
fn update_with_message(state: &mut MacState, message: &[u8], original_id: [u8; 2]) {
    let mut header = [0; HEADER_BYTES];
    header.copy_from_slice(&message[..HEADER_BYTES]);
    header[..2].copy_from_slice(&original_id);
    let additional_count = u16::from_be_bytes([header[10], header[11]]).wrapping_sub(1);
    header[10..].copy_from_slice(&additional_count.to_be_bytes());
    state.update(&header);
    state.update(&message[HEADER_BYTES..]);
}

/// Name, class, TTL and algorithm of the TSIG variables (RFC 8945 §4.3.3).
fn update_with_key(state: &mut MacState, key: &TsigKey) {
    state.update(key.name().as_bytes());
    state.update(&CLASS_ANY.to_be_bytes());
    state.update(&[0; 4]);
    state.update(key.algorithm.wire());
}

/// A server's keys.
pub type TsigKeys = Vec<TsigKey>;

/// Bytes with their number, 16 bits, before them; and the rest.
pub(crate) fn split_counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (count, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*count)))
}
