//! A NOTIFY (RFC 1996) from another server: a zone has changed there. The caller decides whether it is one of the
//! zone's primaries.

use crate::messages::message::Rcode;
use crate::messages::query::ParsedQuery;
use crate::messages::question::{FormErr, Header, MessageRecord, read_name};
use crate::messages::tsig::{ReplySigner, Tsig, TsigError, TsigKey, append_unsigned};
use crate::text::name::{Name, NameBuf};
use crate::text::rtype::Rtype;
use crate::transfers::client::{SoaTimers, put_rdata};
use crate::zones::packed_rrset::{CLASS_IN, HEADER_BYTES, OPT_BYTES, QUESTION_TAIL_BYTES};
use alloc::vec::Vec;

const OPCODE_NOTIFY: u8 = 4;
/// QR and AA, next to the opcode (RFC 1996 §4).
const FLAGS: u8 = 0x84 | OPCODE_NOTIFY << 3;
/// Records of a message: the SOA, an OPT, a signature, and a few unknown ones.
const RECORDS_MAX: u32 = 16;

/// The answer to a NOTIFY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotifyAnswer {
    /// NOERROR: the zone is looked after.
    Accepted,
    /// REFUSED: the sender is not one of the primaries.
    NotAllowed,
    /// NOTAUTH: this server is not a secondary of the zone.
    NotSecondary,
    /// The signature is not accepted.
    Tsig(TsigError),
}

/// A NOTIFY.
#[derive(Debug)]
pub struct NotifyRequest<'q> {
    message: &'q [u8],
    apex: NameBuf,
    /// The offset after the question.
    question_end: usize,
    serial: Option<u32>,
    has_edns: bool,
    tsig_offset: Option<usize>,
    signer: Option<ReplySigner>,
}

impl<'q> NotifyRequest<'q> {
    /// `query` as a NOTIFY; `None` if it is not a NOTIFY, or malformed.
    pub fn new(query: &ParsedQuery<'_, 'q>) -> Option<NotifyRequest<'q>> {
        let message = query.message;
        let header =
            Header::parse(message).filter(|header| header.opcode() == OPCODE_NOTIFY && !header.is_response())?;
        NotifyRequest::parse(header, message).ok().flatten()
    }

    fn parse(header: Header<'_>, message: &'q [u8]) -> Result<Option<NotifyRequest<'q>>, FormErr> {
        let counts = [1, 2, 3].map(|section| header.record_count(section));
        let record_count = counts.iter().map(|&count| u32::from(count)).sum::<u32>();
        if header.record_count(0) != 1 || record_count > RECORDS_MAX {
            return Ok(None);
        }
        let (apex, at) = read_name(message, HEADER_BYTES)?;
        let question_end = at + QUESTION_TAIL_BYTES;
        let tail = message.get(at..question_end).ok_or(FormErr)?;
        // RFC 1996 §3.7: other types are for later use.
        if tail[..2] != Rtype::SOA.0.to_be_bytes() || tail[2..] != CLASS_IN.to_be_bytes() {
            return Ok(None);
        }
        let (serial, has_edns, tsig_offset, signer) = (None, false, None, None);
        let mut request = NotifyRequest { message, apex, question_end, serial, has_edns, tsig_offset, signer };
        let mut at = question_end;
        for index in 0..record_count {
            let record = MessageRecord::parse(message, at)?;
            // RFC 8945 §5.1: the TSIG record is the last one.
            if request.tsig_offset.is_some() {
                return Err(FormErr);
            }
            match record.rtype() {
                Rtype::SOA if index < u32::from(counts[0]) => request.serial = serial_of(message, &record),
                Rtype::OPT => request.has_edns = true,
                Rtype::TSIG => request.tsig_offset = Some(at),
                _ => {}
            }
            at = record.end;
        }
        Ok(Some(request))
    }

    /// The zone's name.
    pub fn apex(&self) -> Name<'_> {
        self.apex.as_name()
    }

    /// The sender's serial, if it is in the message. The serial is a hint (RFC 1996 §3.7).
    pub fn serial(&self) -> Option<u32> {
        self.serial
    }

    /// Checks the signature, if there is one. After this, the reply is signed.
    ///
    /// # Errors
    /// Returns an error if the signature is not accepted.
    pub fn verify(&mut self, keys: &[TsigKey], now_unix_s: u64) -> Result<(), TsigError> {
        let Some(offset) = self.tsig_offset else { return Ok(()) };
        let Some(tsig) = self.tsig() else { return Err(TsigError::Malformed) };
        let (result, signer) = tsig.verify(self.message, offset, keys, now_unix_s);
        self.signer = signer;
        result
    }

    /// The name of the key of an accepted signature, in lower case.
    pub fn key(&self) -> Option<Name<'_>> {
        self.signer.as_ref().map(|signer| signer.key().name())
    }

    fn tsig(&self) -> Option<Tsig<'q>> {
        MessageRecord::parse(self.message, self.tsig_offset?).ok()?.tsig()
    }

    /// Writes the reply to `out`; its length, or `None` if it does not fit.
    pub fn reply(mut self, answer: NotifyAnswer, now_unix_s: u64, out: &mut [u8]) -> Option<usize> {
        let rcode = match answer {
            NotifyAnswer::Accepted => Rcode::NoError,
            NotifyAnswer::NotAllowed => Rcode::Refused,
            NotifyAnswer::Tsig(TsigError::Malformed) => Rcode::FormErr,
            NotifyAnswer::NotSecondary | NotifyAnswer::Tsig(_) => Rcode::NotAuth,
        };
        let mut end = self.question_end;
        out.get_mut(..end)?.copy_from_slice(&self.message[..end]);
        (out[2], out[3]) = (FLAGS, rcode as u8);
        out[6..12].fill(0);
        if self.has_edns {
            // RFC 6891 §6.1.1. The payload size is the smallest one, since no answer is longer.
            let opt = [0, 0, Rtype::OPT.0 as u8, 2, 0, 0, 0, 0, 0, 0, 0];
            out.get_mut(end..end + OPT_BYTES)?.copy_from_slice(&opt);
            (end, out[11]) = (end + OPT_BYTES, 1);
        }
        match (&mut self.signer, answer) {
            (Some(signer), _) => signer.sign(out, end, now_unix_s),
            (None, NotifyAnswer::Tsig(error @ (TsigError::BadKey | TsigError::BadSig))) => {
                let tsig = self.tsig()?;
                Some(append_unsigned(out, end, &tsig, error))
            }
            _ => Some(end),
        }
    }
}

fn serial_of(message: &[u8], soa: &MessageRecord<'_>) -> Option<u32> {
    let mut rdata = Vec::new();
    put_rdata(message, soa, &mut rdata).ok()?;
    SoaTimers::of_rdata(&rdata).map(|soa| soa.serial)
}
