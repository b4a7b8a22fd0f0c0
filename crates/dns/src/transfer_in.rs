//! Receives a zone by AXFR (RFC 5936), message by message. What it returns as complete is whole: it begins and ends with the SOA,
//! has no record of another zone, and all of it is signed if a key is given.

use crate::client::{QueryKind, ReplyError, ReplyReader, SoaTimers, put_rdata, query};
use crate::name::Name;
use crate::packed_rrset::CLASS_IN;
use crate::question::MessageRecord;
use crate::rtype::Rtype;
use crate::tsig::{SignatureError, TsigKey};
use crate::zonefile::{Position, Record};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// The longest TTL (RFC 2181 §8).
const TTL_S_MAX: u32 = i32::MAX.cast_unsigned();
/// Types that are none of records in a zone: those of questions and of messages (RFC 6895 §3.1), and OPT.
const OTHER_TYPES: core::ops::RangeInclusive<u16> = 128..=255;

/// Why a transfer is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransferError {
    /// A message is not accepted.
    Reply(ReplyError),
    /// The first record is not the SOA of the zone.
    NoSoa,
    /// A record is not one of the zone: its owner and its type.
    ForeignRecord(String, Rtype),
    /// Another SOA ends the transfer than has begun it.
    OtherSoa,
    /// Records follow the SOA that ends the transfer.
    AfterEnd,
    /// The messages have more bytes than allowed.
    TooLarge(u64),
}

impl fmt::Display for TransferError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TransferError::Reply(error) => error.fmt(out),
            TransferError::NoSoa => write!(out, "its transfer does not begin with the SOA of the zone"),
            TransferError::ForeignRecord(owner, rtype) => {
                write!(out, "its transfer has the record {owner} {rtype}, which cannot be in the zone")
            }
            TransferError::OtherSoa => write!(out, "its transfer ends with another SOA than it began with"),
            TransferError::AfterEnd => write!(out, "its transfer has records after the SOA that ends it"),
            TransferError::TooLarge(bytes_max) => {
                write!(out, "its transfer has more than {bytes_max} bytes (`zone_file_bytes_max`)")
            }
        }
    }
}

impl From<ReplyError> for TransferError {
    fn from(error: ReplyError) -> TransferError {
        TransferError::Reply(error)
    }
}

/// Whether messages are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Another message follows.
    More,
    /// The transfer is complete.
    Complete,
}

/// A transfer in progress.
#[derive(Clone, Debug)]
pub struct TransferReceiver {
    reader: ReplyReader,
    /// The SOA that has begun the transfer: its RDATA.
    soa: Option<Vec<u8>>,
    has_end: bool,
    record_count: u32,
    /// Bytes that further messages may have.
    budget_bytes: u64,
    bytes_max: u64,
    rdata: Vec<u8>,
}

impl TransferReceiver {
    /// Makes the query for the zone at `apex`, signed with `key`, and the receiver of its replies, which may have `bytes_max`.
    pub fn new(
        apex: Name<'_>,
        id: u16,
        key: Option<&TsigKey>,
        now_unix_s: u64,
        bytes_max: u64,
    ) -> (Vec<u8>, TransferReceiver) {
        let (message, reader) = query(QueryKind::Axfr, apex, id, key, now_unix_s);
        let receiver = TransferReceiver {
            reader,
            soa: None,
            has_end: false,
            record_count: 0,
            budget_bytes: bytes_max,
            bytes_max,
            rdata: Vec::new(),
        };
        (message, receiver)
    }

    /// The SOA with which the transfer has begun.
    pub fn soa(&self) -> Option<SoaTimers> {
        SoaTimers::of_rdata(self.soa.as_ref()?)
    }

    /// Takes the next message, and passes its records to `add`. The SOA is one of them, once.
    ///
    /// # Errors
    /// The transfer is not accepted; what was added must not be used.
    pub fn receive(
        &mut self,
        message: &[u8],
        now_unix_s: u64,
        mut add: impl FnMut(&Record<'_>),
    ) -> Result<Progress, TransferError> {
        self.budget_bytes =
            self.budget_bytes.checked_sub(message.len() as u64).ok_or(TransferError::TooLarge(self.bytes_max))?;
        let reply = self.reader.read(message, now_unix_s)?;
        for record in reply.answers() {
            self.take_record(message, &record?, &mut add)?;
        }
        match self.has_end {
            false => Ok(Progress::More),
            true if self.reader.is_complete() => Ok(Progress::Complete),
            true => Err(ReplyError::Signature(SignatureError::Missing).into()),
        }
    }

    fn take_record(
        &mut self,
        message: &[u8],
        record: &MessageRecord<'_>,
        add: &mut impl FnMut(&Record<'_>),
    ) -> Result<(), TransferError> {
        if self.has_end {
            return Err(TransferError::AfterEnd);
        }
        let (owner, rtype) = (record.owner.as_name(), record.rtype());
        let is_of_zone = owner.is_at_or_below(self.reader.name())
            && record.class() == CLASS_IN
            && rtype.0 != 0
            && rtype != Rtype::OPT
            && !OTHER_TYPES.contains(&rtype.0);
        if !is_of_zone {
            return Err(match self.soa {
                None => TransferError::NoSoa,
                Some(_) => TransferError::ForeignRecord(owner.to_string(), rtype),
            });
        }
        self.rdata.clear();
        put_rdata(message, record, &mut self.rdata)?;
        let is_soa = rtype == Rtype::SOA && owner.eq_ignore_case(self.reader.name());
        match (&self.soa, is_soa) {
            (None, false) => return Err(TransferError::NoSoa),
            (None, true) => self.soa = Some(self.rdata.clone()),
            (Some(soa), true) if SoaTimers::of_rdata(soa) == SoaTimers::of_rdata(&self.rdata) => {
                self.has_end = true;
                return Ok(());
            }
            (Some(_), true) => return Err(TransferError::OtherSoa),
            (Some(_), false) => {}
        }
        self.record_count = self.record_count.saturating_add(1);
        let ttl_s = record.ttl_s();
        add(&Record {
            // Diagnostics of the zone have the number of the record as their line.
            position: Position { file_index: 0, line: self.record_count, column: 1 },
            owner,
            rtype,
            ttl_s: if ttl_s > TTL_S_MAX { 0 } else { ttl_s },
            rdata: &self.rdata,
        });
        Ok(())
    }
}
