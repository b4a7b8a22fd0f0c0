//! TSIG (RFC 8945): reads the record of a query, and writes that of an unsigned error.

use crate::name::{Name, NameBuf};
use crate::rtype::Rtype;

const CLASS_ANY: u16 = 255;
/// The error of a key that the server does not have (RFC 8945 §3).
const BADKEY: u16 = 17;
/// Bytes of Time Signed and Fudge.
const TIME_BYTES: usize = 8;

/// The TSIG record of a query.
#[derive(Debug)]
pub(crate) struct Tsig<'q> {
    key: NameBuf,
    algorithm: Name<'q>,
    /// Time Signed and Fudge.
    time: &'q [u8; TIME_BYTES],
}

impl<'q> Tsig<'q> {
    /// The record of `key` with this class and RDATA; `None` if it is malformed (RFC 8945 §4.2).
    pub(crate) fn parse(key: NameBuf, class: u16, rdata: &'q [u8]) -> Option<Tsig<'q>> {
        let algorithm = Name::parse(rdata).ok().filter(|_| class == CLASS_ANY)?;
        let (time, rest) = rdata[algorithm.length_bytes()..].split_first_chunk()?;
        let (_mac, rest) = split_counted(rest)?;
        let (_original_id_and_error, rest) = rest.split_first_chunk::<4>()?;
        let (_other, rest) = split_counted(rest)?;
        rest.is_empty().then_some(Tsig { key, algorithm, time })
    }

    /// Writes the record that answers an unknown key, without a MAC (RFC 8945 §5.3.2), to the start of `out`. Returns its
    /// length, or `None` if it does not fit.
    pub(crate) fn put_badkey(&self, id: [u8; 2], out: &mut [u8]) -> Option<usize> {
        let (key, algorithm) = (self.key.as_name().as_bytes(), self.algorithm.as_bytes());
        let rdata_bytes = (algorithm.len() + TIME_BYTES + 8) as u16;
        let parts: [&[u8]; 11] = [
            key,
            &Rtype::TSIG.0.to_be_bytes(),
            &CLASS_ANY.to_be_bytes(),
            &[0; 4],
            &rdata_bytes.to_be_bytes(),
            algorithm,
            self.time,
            // The length of the MAC.
            &[0; 2],
            &id,
            &BADKEY.to_be_bytes(),
            // The length of Other Data.
            &[0; 2],
        ];
        let mut at = 0;
        for part in parts {
            out.get_mut(at..at + part.len())?.copy_from_slice(part);
            at += part.len();
        }
        Some(at)
    }
}

/// Bytes with their number, 16 bits, before them; and the rest.
pub(crate) fn split_counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (count, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*count)))
}
