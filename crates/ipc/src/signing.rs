//! The requests of a server process's worker to the keeper, and the answers: fixed messages over a socket pair for each
//! worker ([`FdKind::Keeper`](crate::FdKind::Keeper)).
//!
//! Both have a header of 8 bytes: the version, the result (0 in a request), the signature scheme of TLS (0 in an
//! answer), and a number that the answer repeats. In a request, the ID of the key and the input to sign follow; in an
//! answer, the signature.

use serde::{Deserialize, Serialize};

/// A change of the messages requires the next version number.
const VERSION: u8 = 1;
const HEADER_BYTES: usize = 8;
/// Bytes of a key's ID: the SHA-256 of its public key.
pub const KEY_ID_BYTES: usize = 32;
/// The longest input of a signature in a handshake has 165 bytes.
const INPUT_BYTES_MAX: usize = 256;
/// A signature by an RSA key of 8192 bits.
const SIGNATURE_BYTES_MAX: usize = 1024;
/// Bytes of the longest request.
pub const REQUEST_BYTES_MAX: usize = HEADER_BYTES + KEY_ID_BYTES + INPUT_BYTES_MAX;
/// Bytes of the longest answer.
pub const ANSWER_BYTES_MAX: usize = HEADER_BYTES + SIGNATURE_BYTES_MAX;

/// A request for a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignRequest<'m> {
    /// The answer repeats this number.
    pub number: u32,
    /// The signature scheme (RFC 8446 §4.2.3).
    pub scheme: u16,
    /// The key.
    pub key: &'m [u8; KEY_ID_BYTES],
    /// The input to sign, at most 256 bytes.
    pub input: &'m [u8],
}

impl<'m> SignRequest<'m> {
    /// The message; `None` if the input is too long.
    pub fn encode<'b>(&self, buffer: &'b mut [u8; REQUEST_BYTES_MAX]) -> Option<&'b [u8]> {
        let length_bytes = self.input.len().saturating_add(HEADER_BYTES + KEY_ID_BYTES);
        let message = buffer.get_mut(..length_bytes)?;
        put_header(message, 0, self.scheme, self.number);
        message[HEADER_BYTES..][..KEY_ID_BYTES].copy_from_slice(self.key);
        message[HEADER_BYTES + KEY_ID_BYTES..].copy_from_slice(self.input);
        Some(message)
    }

    /// The request in a message; `None` if it is malformed or too long.
    pub fn decode(message: &'m [u8]) -> Option<SignRequest<'m>> {
        let (&[VERSION, 0, s0, s1, n0, n1, n2, n3], rest) = message.split_first_chunk()? else { return None };
        let (key, input) = rest.split_first_chunk()?;
        let (scheme, number) = (u16::from_be_bytes([s0, s1]), u32::from_be_bytes([n0, n1, n2, n3]));
        (input.len() <= INPUT_BYTES_MAX).then_some(SignRequest { number, scheme, key, input })
    }
}

/// The reason why the keeper does not sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The message is not a request.
    Malformed = 1,
    /// The input is not what a server signs in a handshake.
    NotOfHandshake = 2,
    /// The keeper does not have the key.
    UnknownKey = 3,
    /// The key has no such signature scheme, or cannot sign.
    WrongScheme = 4,
}

impl Refusal {
    /// All of them, in the order of their numbers from 1.
    pub const ALL: [Refusal; 4] =
        [Refusal::Malformed, Refusal::NotOfHandshake, Refusal::UnknownKey, Refusal::WrongScheme];

    /// The refusal's name in the status and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Refusal::Malformed => "malformed",
            Refusal::NotOfHandshake => "not_of_handshake",
            Refusal::UnknownKey => "unknown_key",
            Refusal::WrongScheme => "wrong_scheme",
        }
    }
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignAnswer<'m> {
    /// The number of the request; 0 if it was malformed.
    pub number: u32,
    /// The signature.
    pub result: Result<&'m [u8], Refusal>,
}

impl<'m> SignAnswer<'m> {
    /// The message; `None` if the signature is too long.
    pub fn encode<'b>(&self, buffer: &'b mut [u8; ANSWER_BYTES_MAX]) -> Option<&'b [u8]> {
        let (result, signature) = match self.result {
            Ok(signature) => (0, signature),
            Err(refusal) => (refusal as u8, &[][..]),
        };
        let message = buffer.get_mut(..signature.len().saturating_add(HEADER_BYTES))?;
        put_header(message, result, 0, self.number);
        message[HEADER_BYTES..].copy_from_slice(signature);
        Some(message)
    }

    /// The answer in a message; `None` if it is malformed.
    pub fn decode(message: &'m [u8]) -> Option<SignAnswer<'m>> {
        let (&[VERSION, result, 0, 0, n0, n1, n2, n3], signature) = message.split_first_chunk()? else { return None };
        let refusal = result.checked_sub(1).map(|index| Refusal::ALL.get(usize::from(index)).copied());
        let result = match refusal {
            None => Ok(signature),
            Some(refusal) => Err(refusal?),
        };
        Some(SignAnswer { number: u32::from_be_bytes([n0, n1, n2, n3]), result })
    }
}

fn put_header(message: &mut [u8], result: u8, scheme: u16, number: u32) {
    let ([s0, s1], [n0, n1, n2, n3]) = (scheme.to_be_bytes(), number.to_be_bytes());
    message[..HEADER_BYTES].copy_from_slice(&[VERSION, result, s0, s1, n0, n1, n2, n3]);
}

/// A keeper's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SigningCounts {
    /// Signatures of handshakes.
    pub signatures: u64,
    /// Signatures of records of zones.
    pub zone_signatures: u64,
    /// Requests that were refused, in the order of [`Refusal::ALL`].
    pub refused: [u64; Refusal::ALL.len()],
}

impl SigningCounts {
    /// The counts of two keepers together.
    pub fn plus(&self, other: &SigningCounts) -> SigningCounts {
        let refused = std::array::from_fn(|index| self.refused[index].saturating_add(other.refused[index]));
        let zone_signatures = self.zone_signatures.saturating_add(other.zone_signatures);
        SigningCounts { signatures: self.signatures.saturating_add(other.signatures), zone_signatures, refused }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_arrive_as_they_were_sent() {
        let mut buffer = [0; REQUEST_BYTES_MAX];
        for length in [0, 1, INPUT_BYTES_MAX] {
            let input = vec![7; length];
            let request = SignRequest { number: 0x0102_0304, scheme: 0x0403, key: &[9; KEY_ID_BYTES], input: &input };
            let message = request.encode(&mut buffer).expect("it fits");
            assert_eq!(SignRequest::decode(message), Some(request));
        }
        let too_long = vec![7; INPUT_BYTES_MAX + 1];
        let request = SignRequest { number: 1, scheme: 0, key: &[9; KEY_ID_BYTES], input: &too_long };
        assert_eq!(request.encode(&mut buffer), None);
    }

    #[test]
    fn malformed_messages_are_none() {
        let whole = [&[VERSION, 0, 4, 3, 0, 0, 0, 1][..], &[0; KEY_ID_BYTES]].concat();
        assert!(SignRequest::decode(&whole).is_some());
        for length in 0..whole.len() {
            assert_eq!(SignRequest::decode(&whole[..length]), None, "{length}");
        }
        for (index, value) in [(0, VERSION + 1), (1, 1)] {
            let mut changed = whole.clone();
            changed[index] = value;
            assert_eq!(SignRequest::decode(&changed), None, "{index}");
            assert_eq!(SignAnswer::decode(&changed), None, "{index}");
        }
        assert_eq!(SignRequest::decode(&[whole, vec![0; INPUT_BYTES_MAX + 1]].concat()), None);
        assert_eq!(SignAnswer::decode(&[VERSION, 5, 0, 0, 0, 0, 0, 1]), None);
    }

    #[test]
    fn answers_arrive_as_they_were_sent() {
        let mut buffer = [0; ANSWER_BYTES_MAX];
        let signature = [7; SIGNATURE_BYTES_MAX];
        for result in [Ok(&signature[..]), Ok(&[][..])].into_iter().chain(Refusal::ALL.map(Err)) {
            let answer = SignAnswer { number: 0xffff_fffe, result };
            assert_eq!(SignAnswer::decode(answer.encode(&mut buffer).expect("it fits")), Some(answer));
        }
    }
}
