//! Turns a query into what it asks of which zone, before the zone's records are looked at.
//!
//! Whoever has many queries at once reads all of them, then touches the places of all, then the records of all, and
//! then answers. What one answer would have waited for, one octet after another from main memory, is then under way
//! for all of them at the same time.

use crate::message::{CLASS_IN, Header, Query, Rcode};
use crate::name_hash::LabelledName;
use crate::ready::HEADER_BYTES;
use crate::rtype::Rtype;
use crate::zone::PlaceEntry;
use crate::zones::{FoundZone, ZoneSet};

const OPCODE_QUERY: u8 = 0;

/// A query that has been read.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'z, 'q> {
    /// The whole message.
    pub(crate) message: &'q [u8],
    /// What it asks, as far as `course` says that it was understood.
    pub(crate) question: Query<'q>,
    pub(crate) course: Course<'z>,
    pub(crate) alias_count_max: usize,
    /// What the first place for the name says; nothing before it has been touched.
    entry: PlaceEntry,
}

/// What is known of a reply without the records.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Course<'z> {
    /// No reply: it is no query.
    Silence,
    /// A reply that is a header alone: the question was not understood, or not looked at.
    HeaderOnly(Rcode),
    /// A reply that repeats the question, and says no more.
    QuestionOnly(Rcode),
    /// The reply is in a zone.
    InZone(FoundZone<'z>),
}

impl<'z, 'q> Asked<'z, 'q> {
    /// What deserves no reply.
    pub const NOTHING: Asked<'z, 'q> = Asked::without_question(&[], Course::Silence);

    const fn without_question(message: &'q [u8], course: Course<'z>) -> Asked<'z, 'q> {
        Asked { message, question: Query::ROOT, course, alias_count_max: 0, entry: PlaceEntry::NONE }
    }

    /// Reads `message`, and finds the zone among `zones`.
    #[inline]
    pub fn read(zones: &'z ZoneSet, message: &'q [u8]) -> Asked<'z, 'q> {
        let Some(header) = Header::read(message).filter(|header| !header.is_response()) else {
            return Asked::without_question(message, Course::Silence);
        };
        if header.opcode() != OPCODE_QUERY {
            return Asked::without_question(message, Course::HeaderOnly(Rcode::NotImp));
        }
        let mut name = LabelledName::root();
        let parsed = name.parse(&message[HEADER_BYTES..]).ok();
        let Some(question) = parsed.and_then(|()| Query::parse(header, name.name(), message).ok()) else {
            return Asked::without_question(message, Course::HeaderOnly(Rcode::FormErr));
        };
        let course = match refusal(&question) {
            Some(rcode) => Course::QuestionOnly(rcode),
            None => zones.find(&name, question.rtype).map_or(Course::QuestionOnly(Rcode::Refused), Course::InZone),
        };
        Asked { message, question, course, alias_count_max: zones.alias_count_max(), entry: PlaceEntry::NONE }
    }

    /// Loads the place in the zone's table where the name is searched for.
    #[inline]
    pub fn touch_place(&mut self) {
        if let Course::InZone(found) = &self.course {
            self.entry = found.zone.touch_place(found.hashes.name);
        }
    }

    /// Loads the records that the place leads to; those of the name above if it leads to none, or has not been touched.
    #[inline]
    pub fn touch_records(&self) {
        if let Course::InZone(found) = &self.course {
            found.zone.touch_node(self.entry, found.hashes);
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
