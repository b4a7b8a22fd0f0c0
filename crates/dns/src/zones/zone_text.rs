//! The records of a zone as a zone file (RFC 1035 §5), a part at a time.

use crate::text::name::Name;
use crate::text::rdata::PresentationFormat;
use crate::text::rtype::Rtype;
use crate::zones::packed_rrset::{AnswerRecord, RdataPart};
use crate::zones::zone::{FoundRrset, Zone};
use crate::zones::zone_walk::{Position, Visit};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

/// Writes the records of one zone, each on a line, with complete names: `www.example.com. 3600 IN A 192.0.2.1`.
#[derive(Debug)]
pub struct ZoneTextWriter {
    position: Position,
    rdata: Vec<u8>,
}

/// The form in which an RRset's records are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineForm<'c> {
    /// The plain form.
    Plain,
    /// With a comment: `www.example.com. 3600 IN A 192.0.2.1 ; text`.
    Commented(&'c str),
    /// Not at all.
    LeftOut,
}

impl Default for ZoneTextWriter {
    fn default() -> ZoneTextWriter {
        ZoneTextWriter { position: Position::Start, rdata: Vec::new() }
    }
}

impl Zone {
    /// Calls `visit` with owner, type, TTL and data of each record, the SOA first. Names in the data are complete.
    pub fn each_record(&self, mut visit: impl FnMut(Name<'_>, Rtype, u32, &[u8])) {
        let mut rdata = Vec::new();
        Position::Start.walk(self, |found, record| {
            copy_rdata(found, record, &mut rdata);
            visit(found.owner, record.rtype, ttl_of(record), &rdata);
            Visit::Next
        });
    }

    /// Calls `visit` with the data of each record of type `rtype` at `owner`. Names in the data are complete.
    pub fn each_rdata_of(&self, owner: Name<'_>, rtype: Rtype, mut visit: impl FnMut(&[u8])) {
        let owner = owner.to_lowercase();
        let Some(node) = self.node_named(owner.as_name()) else { return };
        let Some(rrset) = node.rrset(rtype) else { return };
        let found = FoundRrset { owner: owner.as_name(), rrset, node: node.index };
        let (mut rdata, mut at) = (Vec::new(), 0);
        while let Some(record) = found.rrset.answer_record(at) {
            copy_rdata(&found, &record, &mut rdata);
            visit(&rdata);
            at = record.end;
        }
    }
}

/// Replaces the content of `rdata` by the record's data.
fn copy_rdata(found: &FoundRrset<'_>, record: &AnswerRecord<'_>, rdata: &mut Vec<u8>) {
    rdata.clear();
    let put = |part: RdataPart<'_>| {
        match part {
            RdataPart::Bytes(bytes) => rdata.extend_from_slice(bytes),
            RdataPart::Name(name) => rdata.extend_from_slice(name.as_bytes()),
        }
        Ok::<(), core::convert::Infallible>(())
    };
    let Ok(()) = found.rrset.records(found.owner).each_part(record.rtype, record.rdata_start..record.end, put);
}

fn ttl_of(record: &AnswerRecord<'_>) -> u32 {
    u32::from_be_bytes(*record.fixed[4..].first_chunk().expect("four bytes"))
}

impl ZoneTextWriter {
    /// Maximum records that one call examines: records of another type take time as well.
    const RECORDS_PER_CALL_MAX: usize = 10_000;

    /// Appends the next records to `out`, only those of `rtype` if there is one, until it has `bytes_min` bytes or many
    /// were examined; returns whether there may be more. Each call is for the same zone.
    pub fn write(&mut self, zone: &Zone, rtype: Option<Rtype>, out: &mut String, bytes_min: usize) -> bool {
        self.write_with_forms(zone, rtype, out, bytes_min, |_, _| LineForm::Plain)
    }

    /// [`ZoneTextWriter::write`], with each RRset in the form that `form_of` returns for the owner in lower case.
    pub fn write_with_forms<'c>(
        &mut self,
        zone: &Zone,
        rtype: Option<Rtype>,
        out: &mut String,
        bytes_min: usize,
        form_of: impl Fn(Name<'_>, Rtype) -> LineForm<'c>,
    ) -> bool {
        let mut record_count = 0;
        let rdata = &mut self.rdata;
        self.position.walk(zone, |found, record| {
            if out.len() >= bytes_min || record_count == Self::RECORDS_PER_CALL_MAX {
                return Visit::Stop;
            }
            record_count += 1;
            if rtype.is_some_and(|rtype| rtype != record.rtype) {
                return Visit::Next;
            }
            let comment = match form_of(found.owner, record.rtype) {
                LineForm::LeftOut => return Visit::Next,
                LineForm::Plain => None,
                LineForm::Commented(comment) => Some(comment),
            };
            copy_rdata(found, record, rdata);
            let ttl_s = ttl_of(record);
            let data = PresentationFormat::new(record.rtype, rdata);
            // Writing to a string does not fail.
            let _ = write!(out, "{} {ttl_s} IN {} {data}", found.owner, record.rtype);
            if let Some(comment) = comment {
                let _ = write!(out, " ; {comment}");
            }
            out.push('\n');
            Visit::Next
        });
        self.position != Position::End
    }
}
