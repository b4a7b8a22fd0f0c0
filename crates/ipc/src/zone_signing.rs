//! The requests of the agent to the keeper for signed zones, and the answers, over a separate stream socket
//! ([`FdKind::ZoneKeys`](crate::FdKind::ZoneKeys)): keys that the keeper creates and keeps, and signatures, in batches.
//! No server process has such a socket.
//!
//! A message is its length in 4 bytes, the version, its kind, and its parts, each with its length.

use crate::signing::KEY_ID_BYTES;
use std::io::{self, Read, Write};

/// A change of the messages requires the next version number.
const VERSION: u8 = 1;
/// Bytes of the longest message.
pub const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Parts of a message at most.
pub const PARTS_MAX: usize = 4096;

/// The ID of a key of a zone: the SHA-256 of its public key, as DNSKEY records have it.
pub type ZoneKeyId = [u8; KEY_ID_BYTES];

/// A key of a zone, without the private part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneKey {
    /// The key's ID.
    pub id: ZoneKeyId,
    /// The algorithm of DNSSEC.
    pub algorithm: u8,
    /// The public key as DNSKEY records have it.
    pub public_key: Vec<u8>,
}

/// A request of the agent. Names of zones are text, in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ZoneKeyRequest {
    /// The zone's keys.
    List {
        /// The zone's name.
        zone: String,
    },
    /// Another key for the zone. The key is on the disk when the answer comes.
    Make {
        /// The zone's name.
        zone: String,
        /// The algorithm of DNSSEC.
        algorithm: u8,
    },
    /// The zone's private key is erased from the disk, if it exists.
    Erase {
        /// The zone that has the key.
        zone: String,
        /// The key.
        key: ZoneKeyId,
    },
    /// Signatures.
    Sign {
        /// The zone that has the key.
        zone: String,
        /// The key.
        key: ZoneKeyId,
        /// The signed inputs: RRSIG data without the signature, and the records (RFC 4034 §3.1.8.1).
        inputs: Vec<Vec<u8>>,
    },
}

/// An answer of the keeper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ZoneKeyAnswer {
    /// The zone's keys, the created key, or no keys after an erasure.
    Keys(Vec<ZoneKey>),
    /// A signature for each input, as RRSIG records have it.
    Signatures(Vec<Vec<u8>>),
    /// The keeper has done nothing, for this reason.
    Refused(String),
}

const LIST: u8 = 1;
const MAKE: u8 = 2;
const SIGN: u8 = 3;
const ERASE: u8 = 4;
const KEYS: u8 = 129;
const SIGNATURES: u8 = 130;
const REFUSED: u8 = 131;

impl ZoneKeyRequest {
    /// The encoded request.
    ///
    /// # Errors
    /// Returns an error if the message has more than [`MESSAGE_BYTES_MAX`].
    pub fn to_message(&self) -> io::Result<Vec<u8>> {
        match self {
            ZoneKeyRequest::List { zone } => message(LIST, [zone.as_bytes()].into_iter()),
            ZoneKeyRequest::Make { zone, algorithm } => message(MAKE, [zone.as_bytes(), &[*algorithm]].into_iter()),
            ZoneKeyRequest::Erase { zone, key } => message(ERASE, [zone.as_bytes(), key].into_iter()),
            ZoneKeyRequest::Sign { zone, key, inputs } => {
                message(SIGN, [zone.as_bytes(), key].into_iter().chain(inputs.iter().map(Vec::as_slice)))
            }
        }
    }

    /// Waits for a request.
    ///
    /// # Errors
    /// Returns an error if the other end is closed, or its message is not a request.
    pub fn receive(stream: &mut impl Read) -> io::Result<ZoneKeyRequest> {
        ZoneKeyRequest::parse(&receive(stream)?).ok_or_else(malformed)
    }

    /// The request in a message without its length; `None` if there is none.
    pub fn parse(message: &[u8]) -> Option<ZoneKeyRequest> {
        let (kind, parts) = parts(message)?;
        let mut parts = parts.into_iter();
        let zone = String::from_utf8(parts.next()?.to_vec()).ok()?;
        let request = match kind {
            LIST => ZoneKeyRequest::List { zone },
            MAKE => match parts.next()? {
                [algorithm] => ZoneKeyRequest::Make { zone, algorithm: *algorithm },
                _ => return None,
            },
            ERASE => ZoneKeyRequest::Erase { zone, key: parts.next()?.try_into().ok()? },
            SIGN => {
                let key = parts.next()?.try_into().ok()?;
                ZoneKeyRequest::Sign { zone, key, inputs: parts.by_ref().map(<[u8]>::to_vec).collect() }
            }
            _ => return None,
        };
        parts.next().is_none().then_some(request)
    }
}

impl ZoneKeyAnswer {
    /// Sends the answer.
    pub fn send(&self, stream: &mut impl Write) -> io::Result<()> {
        let message = match self {
            ZoneKeyAnswer::Keys(keys) => {
                let algorithms: Vec<[u8; 1]> = keys.iter().map(|key| [key.algorithm]).collect();
                let parts = keys.iter().zip(&algorithms).flat_map(|(key, algorithm)| {
                    let parts: [&[u8]; 3] = [&key.id, algorithm, &key.public_key];
                    parts
                });
                message(KEYS, parts)
            }
            ZoneKeyAnswer::Signatures(signatures) => message(SIGNATURES, signatures.iter().map(Vec::as_slice)),
            ZoneKeyAnswer::Refused(reason) => message(REFUSED, [reason.as_bytes()].into_iter()),
        };
        stream.write_all(&message?)
    }

    /// Waits for an answer.
    ///
    /// # Errors
    /// Returns an error if the other end is closed, it does not answer in time, or its message is not an answer.
    pub fn receive(stream: &mut impl Read) -> io::Result<ZoneKeyAnswer> {
        ZoneKeyAnswer::parse(&receive(stream)?).ok_or_else(malformed)
    }

    /// The answer in a message without its length; `None` if there is none.
    pub fn parse(message: &[u8]) -> Option<ZoneKeyAnswer> {
        let (kind, parts) = parts(message)?;
        match kind {
            KEYS => {
                let (keys, []) = parts.as_chunks::<3>() else { return None };
                let key = |[id, algorithm, public_key]: &[&[u8]; 3]| {
                    let &[algorithm] = *algorithm else { return None };
                    Some(ZoneKey { id: (*id).try_into().ok()?, algorithm, public_key: public_key.to_vec() })
                };
                keys.iter().map(key).collect::<Option<_>>().map(ZoneKeyAnswer::Keys)
            }
            SIGNATURES => Some(ZoneKeyAnswer::Signatures(parts.into_iter().map(<[u8]>::to_vec).collect())),
            REFUSED => match &parts[..] {
                [reason] => Some(ZoneKeyAnswer::Refused(String::from_utf8_lossy(reason).into_owned())),
                _ => None,
            },
            _ => None,
        }
    }
}

fn message<'p>(kind: u8, parts: impl Iterator<Item = &'p [u8]>) -> io::Result<Vec<u8>> {
    let mut message = vec![0, 0, 0, 0, VERSION, kind];
    for part in parts {
        message.extend_from_slice(&length_of(part)?);
        message.extend_from_slice(part);
    }
    let length = length_of(&message[4..])?;
    message[..4].copy_from_slice(&length);
    Ok(message)
}

fn length_of(bytes: &[u8]) -> io::Result<[u8; 4]> {
    let is_possible = bytes.len() <= MESSAGE_BYTES_MAX;
    let too_long = || io::Error::other(format!("a message has more than {MESSAGE_BYTES_MAX} bytes"));
    is_possible.then(|| (bytes.len() as u32).to_be_bytes()).ok_or_else(too_long)
}

fn receive(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length_bytes = u32::from_be_bytes(length) as usize;
    if length_bytes > MESSAGE_BYTES_MAX {
        return Err(malformed());
    }
    let mut message = vec![0; length_bytes];
    stream.read_exact(&mut message)?;
    Ok(message)
}

/// The kind and the parts of a message; `None` if it is malformed.
fn parts(message: &[u8]) -> Option<(u8, Vec<&[u8]>)> {
    let (&[VERSION, kind], mut rest) = message.split_first_chunk()? else { return None };
    let mut parts = Vec::new();
    while !rest.is_empty() && parts.len() < PARTS_MAX {
        let (length, after) = rest.split_first_chunk()?;
        let (part, after) = after.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        parts.push(part);
        rest = after;
    }
    rest.is_empty().then_some((kind, parts))
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the other process's message is malformed")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests() -> Vec<ZoneKeyRequest> {
        let zone = || "a.test".to_owned();
        let sign = |inputs| ZoneKeyRequest::Sign { zone: zone(), key: [7; KEY_ID_BYTES], inputs };
        vec![
            ZoneKeyRequest::List { zone: zone() },
            ZoneKeyRequest::Make { zone: zone(), algorithm: 13 },
            ZoneKeyRequest::Erase { zone: zone(), key: [8; KEY_ID_BYTES] },
            sign(Vec::new()),
            sign(vec![b"one".to_vec(), Vec::new(), b"three".to_vec()]),
        ]
    }

    fn answers() -> Vec<ZoneKeyAnswer> {
        let key = |byte, algorithm| ZoneKey { id: [byte; KEY_ID_BYTES], algorithm, public_key: vec![byte; 64] };
        vec![
            ZoneKeyAnswer::Keys(Vec::new()),
            ZoneKeyAnswer::Keys(vec![key(1, 13), key(2, 15)]),
            ZoneKeyAnswer::Signatures(Vec::new()),
            ZoneKeyAnswer::Signatures(vec![vec![1; 64], vec![2; 64]]),
            ZoneKeyAnswer::Refused("why".to_owned()),
        ]
    }

    #[test]
    fn messages_arrive_as_they_were_sent() {
        let mut stream = Vec::new();
        requests().iter().for_each(|request| stream.extend(request.to_message().expect("short")));
        let mut rest = &stream[..];
        requests().into_iter().for_each(|it| assert_eq!(ZoneKeyRequest::receive(&mut rest).expect("received"), it));
        let mut stream = Vec::new();
        answers().iter().for_each(|answer| answer.send(&mut stream).expect("sent"));
        let mut rest = &stream[..];
        answers().into_iter().for_each(|it| assert_eq!(ZoneKeyAnswer::receive(&mut rest).expect("received"), it));
        ZoneKeyAnswer::receive(&mut rest).expect_err("the end");
    }

    #[test]
    fn what_is_cut_off_or_too_long_is_no_message() {
        for request in requests() {
            let whole = request.to_message().expect("short");
            for length in 0..whole.len() {
                ZoneKeyRequest::receive(&mut &whole[..length]).expect_err("cut off");
            }
            // A request to sign may have fewer inputs.
            let is_other = |length: &usize| ZoneKeyRequest::parse(&whole[4..*length]).is_none_or(|it| it != request);
            assert!((4..whole.len()).all(|length| is_other(&length)));
            assert!(ZoneKeyAnswer::parse(&whole[4..]).is_none());
        }
        let long = (MESSAGE_BYTES_MAX as u32 + 1).to_be_bytes();
        assert_eq!(ZoneKeyRequest::receive(&mut &long[..]).expect_err("long").kind(), io::ErrorKind::InvalidData);
        let inputs = vec![vec![0; MESSAGE_BYTES_MAX]];
        let long = ZoneKeyRequest::Sign { zone: "a".to_owned(), key: [0; KEY_ID_BYTES], inputs };
        long.to_message().expect_err("too long");
        let many = [&[VERSION, SIGNATURES][..], &vec![0; 4 * (PARTS_MAX + 1)]].concat();
        assert_eq!(ZoneKeyAnswer::parse(&many), None);
        assert!(ZoneKeyAnswer::parse(&many[..many.len() - 4]).is_some());
    }
}
