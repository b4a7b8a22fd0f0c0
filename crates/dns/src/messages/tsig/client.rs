//! The client side: signs queries, and checks the signatures of their replies (RFC 8945 §5.3). Zone transfers in and
//! NOTIFY use it.

use super::{
    FUDGE_S, MacBytes, MacState, Record, TIME_BYTES, TIME_SIGNED_BYTES, Tsig, TsigError, TsigKey,
    add_to_additional_count, update_with_key, update_with_message,
};
use alloc::vec::Vec;
use core::fmt;

/// Unsigned messages between two signed ones of a stream (RFC 8945 §5.3.1).
const UNSIGNED_MESSAGES_MAX: u32 = 99;

/// The reason why a reply's signature is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignatureError {
    /// A required one is missing.
    Missing,
    /// The signature is wrong.
    Invalid(TsigError),
    /// The server has not accepted the query's signature: the error in its TSIG record.
    Refused(u16),
}

impl fmt::Display for SignatureError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SignatureError::Missing => write!(out, "a message without a signature"),
            SignatureError::Invalid(TsigError::BadKey) => write!(out, "a signature with another key"),
            SignatureError::Invalid(TsigError::BadTime) => {
                write!(out, "a signature with the wrong time; check the clocks of both servers")
            }
            SignatureError::Invalid(_) => write!(out, "a wrong signature; compare the secrets of both servers"),
            SignatureError::Refused(16) => write!(out, "BADSIG; compare the secrets of both servers"),
            SignatureError::Refused(17) => write!(out, "BADKEY; add the key there, with the same name and algorithm"),
            SignatureError::Refused(18) => write!(out, "BADTIME; check the clocks of both servers"),
            SignatureError::Refused(error) => write!(out, "TSIG error {error}"),
        }
    }
}

impl TsigKey {
    /// Appends a signature to the query `message`. The returned value checks the signatures of the replies.
    pub(crate) fn sign_query(&self, message: &mut Vec<u8>, now_unix_s: u64) -> ReplyVerifier {
        let mut time = [0; TIME_BYTES];
        time[..TIME_SIGNED_BYTES].copy_from_slice(&now_unix_s.to_be_bytes()[2..]);
        time[TIME_SIGNED_BYTES..].copy_from_slice(&FUDGE_S.to_be_bytes());
        let mut state = self.state.clone();
        state.update(message);
        update_with_key(&mut state, self);
        state.update(&time);
        // Neither an error nor other data.
        state.update(&[0; 4]);
        let mac = state.finish();
        let record = Record {
            key: self.name(),
            algorithm: self.algorithm.wire(),
            time,
            mac: mac.as_slice(),
            original_id: [message[0], message[1]],
            error: 0,
            other: &[],
        };
        let unsigned_bytes = message.len();
        message.resize(unsigned_bytes + self.record_bytes(), 0);
        record.put(&mut message[unsigned_bytes..]).expect("the record has this length");
        add_to_additional_count(message, 1);
        ReplyVerifier { state: continuing(self, &mac), key: self.clone(), is_first: true, unsigned_count: 0 }
    }
}

/// Checks the signatures of the replies to one query, in their order.
#[derive(Clone, Debug)]
pub(crate) struct ReplyVerifier {
    key: TsigKey,
    /// The MAC of the signed message before, at first the query, and the unsigned messages since then.
    state: MacState,
    is_first: bool,
    unsigned_count: u32,
}

impl ReplyVerifier {
    /// Checks the next message; `tsig` is its TSIG record with its offset.
    pub(crate) fn verify(
        &mut self,
        message: &[u8],
        tsig: Option<(Tsig<'_>, usize)>,
        now_unix_s: u64,
    ) -> Result<(), SignatureError> {
        let Some((tsig, offset)) = tsig else {
            if self.is_first || self.unsigned_count == UNSIGNED_MESSAGES_MAX {
                return Err(SignatureError::Missing);
            }
            self.unsigned_count += 1;
            self.state.update(message);
            return Ok(());
        };
        let refused = match u16::from_be_bytes(tsig.error) {
            0 => None,
            error => Some(SignatureError::Refused(error)),
        };
        // RFC 8945 §5.3.2: BADSIG and BADKEY come without a MAC.
        if let (Some(refused), true) = (refused, tsig.mac.is_empty()) {
            return Err(refused);
        }
        let is_same_key = self.key.name().eq_ignore_case(tsig.key.as_name())
            && tsig.algorithm.as_bytes().eq_ignore_ascii_case(self.key.algorithm.wire());
        if !is_same_key {
            return Err(SignatureError::Invalid(TsigError::BadKey));
        }
        if tsig.mac.len() != self.key.state.length_bytes() {
            return Err(SignatureError::Invalid(TsigError::BadTrunc));
        }
        let mut state = self.state.clone();
        update_with_message(&mut state, &message[..offset], tsig.original_id);
        // RFC 8945 §5.3.1: later messages of a stream have only the time.
        if self.is_first {
            update_with_key(&mut state, &self.key);
        }
        state.update(tsig.time);
        if self.is_first {
            state.update(&tsig.error);
            state.update(&(tsig.other.len() as u16).to_be_bytes());
            state.update(tsig.other);
        }
        if !state.begins_with(tsig.mac) {
            return Err(SignatureError::Invalid(TsigError::BadSig));
        }
        if let Some(refused) = refused {
            return Err(refused);
        }
        if now_unix_s.abs_diff(tsig.time_signed_s()) > u64::from(tsig.fudge_s()) {
            return Err(SignatureError::Invalid(TsigError::BadTime));
        }
        let mut mac = MacBytes { bytes: [0; super::MAC_BYTES_MAX], length: tsig.mac.len() };
        mac.bytes[..tsig.mac.len()].copy_from_slice(tsig.mac);
        self.state = continuing(&self.key, &mac);
        (self.is_first, self.unsigned_count) = (false, 0);
        Ok(())
    }

    /// Whether all messages so far are covered by a signature: the last one of a stream is signed (RFC 8945 §5.3.1).
    pub(crate) fn is_complete(&self) -> bool {
        self.unsigned_count == 0
    }
}

/// The computation of the next MAC, which begins with the previous one (RFC 8945 §4.3.1).
fn continuing(key: &TsigKey, mac: &MacBytes) -> MacState {
    let mut state = key.state.clone();
    state.update(&(mac.length as u16).to_be_bytes());
    state.update(mac.as_slice());
    state
}

impl fmt::Debug for MacState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The secret does not get into logs.
        write!(out, "MacState({} bytes)", self.length_bytes())
    }
}
