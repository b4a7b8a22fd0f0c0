//! Receives a zone by AXFR (RFC 5936), or its changes by IXFR (RFC 1995), message by message. A complete result is
//! whole: it begins and ends with the SOA, and all of it is signed if a key is given. Records outside the zone are left
//! out, as in a zone file.

use crate::messages::question::MessageRecord;
use crate::messages::tsig::{SignatureError, TsigKey};
use crate::text::name::Name;
use crate::text::rtype::Rtype;
use crate::text::zonefile::{Position, Record};
use crate::transfers::client::{QueryKind, ReplyError, ReplyReader, SoaTimers, put_rdata, query};
pub use crate::zones::journal::RecordRole;
use crate::zones::journal::{is_in_zones, is_later};
use crate::zones::packed_rrset::CLASS_IN;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// The longest TTL (RFC 2181 §8).
const TTL_S_MAX: u32 = i32::MAX.cast_unsigned();

/// The reason why a transfer is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransferError {
    /// A message is not accepted.
    Reply(ReplyError),
    /// The first record is not the zone's SOA.
    NoSoa,
    /// A record has a class or a type that no zone has: its owner and its type.
    ForeignRecord(String, Rtype),
    /// The transfer ends with a different SOA than it began with.
    OtherSoa,
    /// A change does not continue from the previous version, or does not lead to a later version.
    BrokenChange,
    /// Records follow the SOA that ends the transfer.
    AfterEnd,
    /// The messages have more bytes than allowed.
    TooLarge(SizeLimit),
    /// More messages than allowed have no records.
    EmptyMessages(u32),
}

/// A number of bytes, and the name of the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeLimit {
    /// The number.
    pub bytes_max: u64,
    /// The configuration's key.
    pub key: &'static str,
}

/// A transfer's permitted size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferLimits {
    /// Bytes of all messages.
    pub size: SizeLimit,
    /// Messages without records, which are useless: they bring the end of the transfer no nearer.
    pub empty_messages_max: u32,
}

impl fmt::Display for TransferError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TransferError::Reply(error) => error.fmt(out),
            TransferError::NoSoa => write!(out, "its transfer does not begin with the SOA of the zone"),
            TransferError::ForeignRecord(owner, rtype) => {
                write!(out, "its transfer has the record {owner} {rtype}, which cannot be in the zone")
            }
            TransferError::OtherSoa => write!(out, "its transfer begins and ends with different SOA records"),
            TransferError::BrokenChange => write!(out, "its changes are not consecutive"),
            TransferError::AfterEnd => write!(out, "its transfer has records after the SOA that ends it"),
            TransferError::TooLarge(SizeLimit { bytes_max, key }) => {
                write!(out, "its transfer has more than {bytes_max} bytes (`{key}`)")
            }
            TransferError::EmptyMessages(max) => {
                let key = "zone_transfer_in_empty_messages_max";
                write!(out, "its transfer has more than {max} messages without records (`{key}`)")
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
    /// The server has no later version than the version in the query.
    UpToDate,
}

/// Records that a transfer has, and that were left out, since their owners are outside the zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// The number of records.
    pub count: u64,
    /// The owner and the type of the first one.
    pub first: Option<(String, Rtype)>,
}

impl LeftOut {
    fn add(&mut self, owner: Name<'_>, rtype: Rtype) {
        self.count += 1;
        self.first.get_or_insert_with(|| (owner.to_string(), rtype));
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((owner, rtype)) = &self.first else { return write!(out, "no records") };
        match self.count {
            1 => write!(out, "the record {owner} {rtype}, which is outside the zone"),
            count => write!(out, "{count} records outside the zone, the first one {owner} {rtype}"),
        }
    }
}

/// The kind of the next records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The SOA of the transferred version.
    Start,
    /// The record that shows whether changes follow.
    Second,
    /// The whole zone's records.
    Zone,
    /// The records that a change removes from the version with this serial.
    Removed(u32),
    /// The added records of a change, which lead to the version with this serial.
    Added(u32),
    /// None.
    End,
}

/// A transfer in progress.
#[derive(Clone, Debug)]
pub struct TransferReceiver {
    reader: ReplyReader,
    /// The serial of the version that there is, if the query is for its changes.
    stored_serial: Option<u32>,
    stage: Stage,
    /// The SOA that has begun the transfer: its TTL and its RDATA.
    soa: Option<(u32, Vec<u8>)>,
    record_count: u32,
    left_out: LeftOut,
    /// Bytes that further messages may have.
    budget_bytes: u64,
    empty_message_count: u32,
    limits: TransferLimits,
    rdata: Vec<u8>,
}

impl TransferReceiver {
    /// Makes the query for the zone at `apex`, signed with `key`, and the receiver of its replies. With
    /// `stored_serial`, the query is for the changes since then; the answer may still be the whole zone.
    pub fn new(
        apex: Name<'_>,
        stored_serial: Option<u32>,
        id: u16,
        key: Option<&TsigKey>,
        now_unix_s: u64,
        limits: TransferLimits,
    ) -> (Vec<u8>, TransferReceiver) {
        let kind = stored_serial.map_or(QueryKind::Axfr, QueryKind::Ixfr);
        let (message, reader) = query(kind, apex, id, key, now_unix_s);
        let receiver = TransferReceiver {
            reader,
            stored_serial,
            stage: Stage::Start,
            soa: None,
            record_count: 0,
            left_out: LeftOut::default(),
            budget_bytes: limits.size.bytes_max,
            empty_message_count: 0,
            limits,
            rdata: Vec::new(),
        };
        (message, receiver)
    }

    /// The SOA with which the transfer has begun.
    pub fn soa(&self) -> Option<SoaTimers> {
        SoaTimers::of_rdata(&self.soa.as_ref()?.1)
    }

    /// The records ignored so far.
    pub fn left_out(&self) -> &LeftOut {
        &self.left_out
    }

    /// Takes the next message, and passes its records to `add`. The whole zone's SOA is among them, once.
    ///
    /// # Errors
    /// Returns an error if the transfer is not accepted; the added records must not be used.
    pub fn receive(
        &mut self,
        message: &[u8],
        now_unix_s: u64,
        mut add: impl FnMut(RecordRole, &Record<'_>),
    ) -> Result<Progress, TransferError> {
        self.budget_bytes =
            self.budget_bytes.checked_sub(message.len() as u64).ok_or(TransferError::TooLarge(self.limits.size))?;
        let reply = self.reader.read(message, now_unix_s)?;
        let mut is_empty = true;
        for record in reply.answers() {
            is_empty = false;
            self.take_record(message, &record?, &mut add)?;
        }
        self.empty_message_count = self.empty_message_count.saturating_add(u32::from(is_empty));
        if self.empty_message_count > self.limits.empty_messages_max {
            return Err(TransferError::EmptyMessages(self.limits.empty_messages_max));
        }
        let progress = match self.stage {
            Stage::End => Progress::Complete,
            Stage::Second if self.is_up_to_date() => Progress::UpToDate,
            _ => return Ok(Progress::More),
        };
        match self.reader.is_complete() {
            true => Ok(progress),
            false => Err(ReplyError::Signature(SignatureError::Missing).into()),
        }
    }

    /// Whether the server's version is not later than the stored one.
    fn is_up_to_date(&self) -> bool {
        self.soa().zip(self.stored_serial).is_some_and(|(soa, stored)| !is_later(soa.serial, stored))
    }

    fn take_record(
        &mut self,
        message: &[u8],
        record: &MessageRecord<'_>,
        add: &mut impl FnMut(RecordRole, &Record<'_>),
    ) -> Result<(), TransferError> {
        if self.stage == Stage::End {
            return Err(TransferError::AfterEnd);
        }
        let (owner, rtype) = (record.owner.as_name(), record.rtype());
        let is_inside = owner.is_at_or_below(self.reader.name());
        let is_data = record.class() == CLASS_IN && is_in_zones(rtype);
        if self.stage == Stage::Start && !(is_inside && is_data) {
            return Err(TransferError::NoSoa);
        }
        if !is_data {
            return Err(TransferError::ForeignRecord(owner.to_string(), rtype));
        }
        self.rdata.clear();
        put_rdata(message, record, &mut self.rdata)?;
        let is_soa = rtype == Rtype::SOA && owner.eq_ignore_case(self.reader.name());
        let soa = if is_soa { SoaTimers::of_rdata(&self.rdata) } else { None };
        let ttl_s = if record.ttl_s() > TTL_S_MAX { 0 } else { record.ttl_s() };
        let Some((first_ttl_s, first_rdata)) = &self.soa else {
            if soa.is_none() {
                return Err(TransferError::NoSoa);
            }
            self.soa = Some((ttl_s, self.rdata.clone()));
            self.stage = Stage::Second;
            return Ok(());
        };
        let is_whole =
            self.stage == Stage::Second && (soa.is_none() || soa.map(|soa| soa.serial) != self.stored_serial);
        if is_whole {
            self.record_count = 1;
            add(RecordRole::OfZone, &record_of(1, self.reader.name(), Rtype::SOA, *first_ttl_s, first_rdata));
            self.stage = Stage::Zone;
        }
        let first = SoaTimers::of_rdata(first_rdata);
        self.stage = self.stage.next(soa, first.unwrap_or_default())?;
        let role = match self.stage {
            Stage::Zone => RecordRole::OfZone,
            Stage::Removed(_) => RecordRole::Removed,
            Stage::Added(_) => RecordRole::Added,
            Stage::Start | Stage::Second | Stage::End => return Ok(()),
        };
        if !is_inside {
            // The record was left out when it was added.
            if role != RecordRole::Removed {
                self.left_out.add(owner, rtype);
            }
            return Ok(());
        }
        self.record_count = self.record_count.saturating_add(1);
        add(role, &record_of(self.record_count, owner, rtype, ttl_s, &self.rdata));
        Ok(())
    }
}

impl Stage {
    /// The role of a record in the transfer; `soa` if it is the zone's SOA. `first` has begun the transfer.
    fn next(self, soa: Option<SoaTimers>, first: SoaTimers) -> Result<Stage, TransferError> {
        let Some(soa) = soa else { return Ok(self) };
        match self {
            Stage::Zone if soa == first => Ok(Stage::End),
            Stage::Zone => Err(TransferError::OtherSoa),
            // The version that the query named.
            Stage::Second => Ok(Stage::Removed(soa.serial)),
            Stage::Removed(before) if is_later(soa.serial, before) => Ok(Stage::Added(soa.serial)),
            Stage::Added(version) if version == first.serial && soa == first => Ok(Stage::End),
            Stage::Added(version) if version == soa.serial => Ok(Stage::Removed(version)),
            Stage::Start | Stage::Removed(_) | Stage::Added(_) | Stage::End => Err(TransferError::BrokenChange),
        }
    }
}

/// A record of the transfer. Diagnostics of the zone have its number as their line.
fn record_of<'r>(number: u32, owner: Name<'r>, rtype: Rtype, ttl_s: u32, rdata: &'r [u8]) -> Record<'r> {
    Record { position: Position { file_index: 0, line: number, column: 1 }, owner, rtype, ttl_s, rdata }
}
