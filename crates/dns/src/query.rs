//! Turns a query into what it asks of which zone, before the zone's records are looked at.
//!
//! Whoever has many queries at once reads all of them, then touches the places of all, then the records of all, and
//! then answers. What one answer would have waited for, one octet after another from main memory, is then under way
//! for all of them at the same time.

use crate::message::{CLASS_IN, Header, Query, Rcode};
use crate::name_hash::IndexedName;
use crate::packed_rrset::HEADER_BYTES;
use crate::rtype::Rtype;
use crate::zone::SlotEntry;
use crate::zone_map::{FoundZone, ZoneMap};

const OPCODE_QUERY: u8 = 0;

/// A query that has been read.
#[derive(Clone, Copy, Debug)]
pub struct ParsedQuery<'z, 'q> {
    /// The whole message.
    pub(crate) message: &'q [u8],
    /// What it asks, as far as `disposition` says that it was understood.
    pub(crate) question: Query<'q>,
    pub(crate) disposition: Disposition<'z>,
    pub(crate) cname_chain_max: usize,
    /// What the first place for the name says; nothing before it has been touched.
    entry: SlotEntry,
}

/// What is known of a reply without the records.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Disposition<'z> {
    /// No reply: it is no query.
    Drop,
    /// A reply that is a header alone: the question was not understood, or not looked at.
    HeaderOnly(Rcode),
    /// A reply that repeats the question, and says no more.
    QuestionOnly(Rcode),
    /// The reply is in a zone.
    InZone(FoundZone<'z>),
}

impl<'z, 'q> ParsedQuery<'z, 'q> {
    /// What deserves no reply.
    pub const EMPTY: ParsedQuery<'z, 'q> = ParsedQuery::without_question(&[], Disposition::Drop);

    const fn without_question(message: &'q [u8], disposition: Disposition<'z>) -> ParsedQuery<'z, 'q> {
        ParsedQuery { message, question: Query::ROOT, disposition, cname_chain_max: 0, entry: SlotEntry::NONE }
    }

    /// Reads `message`, and finds the zone among `zones`.
    #[inline]
    pub fn parse(zones: &'z ZoneMap, message: &'q [u8]) -> ParsedQuery<'z, 'q> {
        let Some(header) = Header::read(message).filter(|header| !header.is_response()) else {
            return ParsedQuery::without_question(message, Disposition::Drop);
        };
        if header.opcode() != OPCODE_QUERY {
            return ParsedQuery::without_question(message, Disposition::HeaderOnly(Rcode::NotImp));
        }
        let mut name = IndexedName::root();
        let parsed = name.parse(&message[HEADER_BYTES..]).ok();
        let Some(question) = parsed.and_then(|()| Query::parse(header, name.name(), message).ok()) else {
            return ParsedQuery::without_question(message, Disposition::HeaderOnly(Rcode::FormErr));
        };
        let disposition = match refusal(&question) {
            Some(rcode) => Disposition::QuestionOnly(rcode),
            None => zones.find(&name, question.rtype).map_or_else(Disposition::QuestionOnly, Disposition::InZone),
        };
        ParsedQuery { message, question, disposition, cname_chain_max: zones.cname_chain_max(), entry: SlotEntry::NONE }
    }

    /// Loads the place in the zone's table where the name is searched for.
    #[inline]
    pub fn prefetch_slot(&mut self) {
        if let Disposition::InZone(found) = &self.disposition {
            self.entry = found.zone.prefetch_slot(found.hashes.name);
        }
    }

    /// Loads the records that the place leads to; those of the name above if it leads to none, or has not been touched.
    #[inline]
    pub fn prefetch_records(&self) {
        if let Disposition::InZone(found) = &self.disposition {
            found.zone.prefetch_node(self.entry, found.hashes);
        }
    }
}

/// Why a question is not looked into, whatever its name is.
#[inline]
fn refusal(question: &Query<'_>) -> Option<Rcode> {
    if question.edns.is_some_and(|edns| edns.version != 0) {
        return Some(Rcode::BadVers);
    }
    if question.has_tsig {
        // RFC 8945 §5.2.1: we hold no keys, so none is known.
        return Some(Rcode::NotAuth);
    }
    if question.class != CLASS_IN {
        return Some(Rcode::Refused);
    }
    match question.rtype {
        Rtype::OPT => Some(Rcode::FormErr),
        Rtype::AXFR | Rtype::IXFR => Some(Rcode::Refused),
        Rtype::TKEY | Rtype::TSIG | Rtype::MAILA | Rtype::MAILB => Some(Rcode::NotImp),
        _ => None,
    }
}
