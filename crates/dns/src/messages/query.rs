//! Parses a query and finds its zone, before the zone's records are read.
//!
//! A caller with a batch of queries parses all of them, then prefetches the hash slots of all, then the records of all,
//! and then answers: the cache misses of the queries overlap.

use crate::messages::message::Rcode;
use crate::messages::question::{Header, Question, find_edns, tsig_at};
use crate::messages::reply_options::{QueryOptions, ReplyOptions};
use crate::messages::tsig::{Tsig, TsigError};
use crate::messages::zone_map::{FoundZone, ZoneMap};
use crate::text::name::Name;
use crate::text::rtype::Rtype;
use crate::zones::hash_slots::Slot;
use crate::zones::name_hash::IndexedName;
use crate::zones::packed_rrset::{CLASS_CH, CLASS_IN, HEADER_BYTES};
use crate::zones::zone::Lookup;
use core::net::IpAddr;
use core::num::NonZeroU16;

const OPCODE_QUERY: u8 = 0;

/// A parsed query.
#[derive(Clone, Copy, Debug)]
pub struct ParsedQuery<'z, 'q> {
    /// The whole message.
    pub(crate) message: &'q [u8],
    /// The question, if it was parsed according to `reply_kind`.
    pub(crate) question: Question<'q>,
    pub(crate) reply_kind: ReplyKind<'z>,
    /// The map that was searched, if it was.
    pub(crate) zones: Option<&'z ZoneMap>,
    /// The first slot for QNAME, once it is prefetched.
    slot: Slot,
}

/// The kind of reply to the query.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReplyKind<'z> {
    /// No reply: the message is not a query.
    NoReply,
    /// A reply of a header alone: the question was not parsed.
    HeaderOnly(Rcode),
    /// A reply of header and question.
    QuestionOnly(Rcode),
    /// A reply from a zone.
    InZone(FoundZone<'z>),
    /// A reply of header and question with the flag TC, so that the client asks over TCP.
    Truncated,
}

/// The class of replies that a rate limit counts together, with a number that distinguishes the replies of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReplyClass {
    /// An error, without data of a zone.
    Error,
    /// Records of this name, or none of its records.
    Name(u64),
    /// A wildcard or a DNAME of this zone, which answer any number of names.
    Synthesized(u64),
    /// A referral to this delegation point.
    Referral(u64),
    /// A name does not exist in this zone.
    NameError(u64),
}

impl<'z, 'q> ParsedQuery<'z, 'q> {
    /// Takes the place of a dropped message.
    pub const EMPTY: ParsedQuery<'z, 'q> = ParsedQuery::without_question(&[], ReplyKind::NoReply);

    const fn without_question(message: &'q [u8], reply_kind: ReplyKind<'z>) -> ParsedQuery<'z, 'q> {
        ParsedQuery { message, question: Question::EMPTY, reply_kind, zones: None, slot: Slot::EMPTY }
    }

    /// A query whose question is not parsed.
    #[cold]
    fn header_only(header: Header<'_>, message: &'q [u8], rcode: Rcode) -> ParsedQuery<'z, 'q> {
        let mut query = ParsedQuery::without_question(message, ReplyKind::HeaderOnly(rcode));
        query.question.edns = find_edns(header, message);
        query
    }

    /// Parses `message` and finds its zone in `zones`.
    #[inline]
    pub fn parse(zones: &'z ZoneMap, message: &'q [u8]) -> ParsedQuery<'z, 'q> {
        let Some(header) = Header::parse(message).filter(|header| !header.is_response()) else {
            return ParsedQuery::without_question(message, ReplyKind::NoReply);
        };
        if header.opcode() != OPCODE_QUERY {
            return ParsedQuery::header_only(header, message, Rcode::NotImp);
        }
        let mut name = IndexedName::root();
        let parsed = name.parse(&message[HEADER_BYTES..]).ok();
        let Some(question) = parsed.and_then(|()| Question::parse(header, name.name(), message).ok()) else {
            return ParsedQuery::header_only(header, message, Rcode::FormErr);
        };
        let reply_kind = match refusal(&question) {
            Some(rcode) => ReplyKind::QuestionOnly(rcode),
            None => zones.find(&name, question.qtype).map_or_else(ReplyKind::QuestionOnly, ReplyKind::InZone),
        };
        ParsedQuery { message, question, reply_kind, zones: Some(zones), slot: Slot::EMPTY }
    }

    /// The whole message; empty for a dropped message.
    pub fn message(&self) -> &'q [u8] {
        self.message
    }

    /// The name in the question; `None` if the question was not parsed.
    pub fn qname(&self) -> Option<Name<'q>> {
        self.parsed_question().map(|question| question.qname)
    }

    /// The class in the question; `None` if the question was not parsed.
    pub fn qclass(&self) -> Option<u16> {
        self.parsed_question().map(|question| question.qclass)
    }

    /// The type in the question; `None` if the question was not parsed.
    pub fn qtype(&self) -> Option<Rtype> {
        self.parsed_question().map(|question| question.qtype)
    }

    fn parsed_question(&self) -> Option<&Question<'q>> {
        match self.reply_kind {
            ReplyKind::NoReply | ReplyKind::HeaderOnly(_) => None,
            ReplyKind::QuestionOnly(_) | ReplyKind::InZone(_) | ReplyKind::Truncated => Some(&self.question),
        }
    }

    /// The index of the zone that answers in [`ZoneMap::entries`], if one does.
    pub fn zone_index(&self) -> Option<usize> {
        match (&self.reply_kind, self.zones) {
            (ReplyKind::InZone(found), Some(zones)) => zones.index_of_zone(found.zone),
            _ => None,
        }
    }

    /// The RCODE of `reply`, the reply to this query.
    pub fn rcode_of(&self, reply: &[u8]) -> u16 {
        let rcode = reply.get(3).map_or(0, |flags| u16::from(flags & 0xf));
        match self.reply_kind {
            // The RCODE's upper bits are in the OPT record (RFC 6891 §6.1.3).
            ReplyKind::QuestionOnly(Rcode::BadVers) if rcode == Rcode::BadVers as u16 & 0xf => Rcode::BadVers as u16,
            _ => rcode,
        }
    }

    /// Whether the client asks for signatures and proofs: the flag DO (RFC 3225).
    #[inline]
    pub(crate) fn asks_for_signatures(&self) -> bool {
        self.question.edns.is_some_and(|edns| edns.dnssec_ok)
    }

    /// Whether the reply is an error without data of a zone.
    #[inline]
    pub fn is_refused(&self) -> bool {
        matches!(self.reply_kind, ReplyKind::HeaderOnly(_) | ReplyKind::QuestionOnly(_))
    }

    /// Whether the reply may have some of `options`. Otherwise the reply is the same without them.
    #[inline]
    pub fn is_concerned_by(&self, options: &ReplyOptions) -> bool {
        self.may_have_options() || options.concern_all()
    }

    /// [`ParsedQuery::is_concerned_by`] options that do not concern all replies.
    #[inline]
    pub fn may_have_options(&self) -> bool {
        self.is_refused() || self.options_offset().is_some()
    }

    /// The offset of the length of the options, if there are some.
    #[inline]
    pub(crate) fn options_offset(&self) -> Option<NonZeroU16> {
        self.question.edns.and_then(|edns| edns.options_offset)
    }

    /// The reply's class; `None` if there is none.
    pub fn reply_class(&self) -> Option<ReplyClass> {
        let found = match &self.reply_kind {
            ReplyKind::NoReply | ReplyKind::Truncated => return None,
            ReplyKind::HeaderOnly(_) | ReplyKind::QuestionOnly(_) => return Some(ReplyClass::Error),
            ReplyKind::InZone(found) => found,
        };
        let (qname, name, zone) = (self.question.qname, found.hashes.name.number(), found.zone.apex_hash.number());
        let class = match found.zone.lookup(qname, found.hashes, self.question.qtype) {
            Lookup::Answer(rrset) | Lookup::Cname(rrset) | Lookup::Dname(rrset)
                if rrset.owner.eq_ignore_case(qname) =>
            {
                ReplyClass::Name(name)
            }
            Lookup::Nodata if found.zone.has_name(qname, found.hashes) => ReplyClass::Name(name),
            Lookup::Answer(_) | Lookup::Cname(_) | Lookup::Dname(_) | Lookup::Nodata => ReplyClass::Synthesized(zone),
            Lookup::Referral(rrset) => ReplyClass::Referral(zone ^ u64::from(rrset.node.0)),
            Lookup::Nxdomain => ReplyClass::NameError(zone),
        };
        Some(class)
    }

    /// Whether the query has a cookie that shows that its source address is not forged.
    pub fn has_valid_cookie(&self, options: &ReplyOptions, client: IpAddr, now_unix_s: u64) -> bool {
        let Some(secrets) = &options.cookies else { return false };
        let cookie = QueryOptions::read(self.message, self.options_offset()).ok().and_then(|asked| asked.cookie);
        cookie.is_some_and(|(_, cookie)| secrets.is_valid(cookie, client, now_unix_s as u32))
    }

    /// Whether the query is signed with one of the keys of `options`, so that its source address is not forged.
    #[cold]
    pub fn has_valid_signature(&self, options: &ReplyOptions, now_unix_s: u64) -> bool {
        self.tsig()
            .is_some_and(|(tsig, offset)| tsig.verify(self.message, offset, &options.tsig_keys, now_unix_s).0.is_ok())
    }

    /// The reason why the query's signature is not accepted; `None` if it is, or if the query has none.
    #[cold]
    pub fn signature_error(&self, options: &ReplyOptions, now_unix_s: u64) -> Option<TsigError> {
        let (tsig, offset) = self.tsig()?;
        tsig.verify(self.message, offset, &options.tsig_keys, now_unix_s).0.err()
    }

    /// Whether the query asks for a zone, or its changes, and may get them (RFC 5936, RFC 1995).
    #[inline]
    pub fn is_for_transfer(&self) -> bool {
        let is_unanswered = matches!(self.reply_kind, ReplyKind::QuestionOnly(Rcode::Refused | Rcode::NotAuth));
        is_unanswered && matches!(self.question.qtype, Rtype::AXFR | Rtype::IXFR) && self.question.qclass == CLASS_IN
    }

    /// The TSIG record and its offset.
    pub(crate) fn tsig(&self) -> Option<(Tsig<'q>, usize)> {
        let offset = self.question.tsig_offset?;
        Some((tsig_at(self.message, offset)?, usize::from(offset.get())))
    }

    /// The query without its signature, which was checked.
    #[cold]
    pub(crate) fn without_tsig(&self) -> ParsedQuery<'z, 'q> {
        let mut query = *self;
        query.question.tsig_offset = None;
        query.reply_kind = match (refusal_by_type(&query.question), self.zones) {
            (None, Some(zones)) => {
                let name = IndexedName::of(query.question.qname);
                // This function is separate from `find`, whose only call is inlined.
                let found = zones.find_among_many(&name, query.question.qtype);
                found.map_or_else(ReplyKind::QuestionOnly, ReplyKind::InZone)
            }
            (rcode, _) => ReplyKind::QuestionOnly(rcode.unwrap_or(Rcode::Refused)),
        };
        query
    }

    /// Requests a reply with the TC flag and nothing else.
    pub fn truncate_reply(&mut self) {
        self.reply_kind = ReplyKind::Truncated;
    }

    /// Whether the query asks only for the contents of an OPT: without a question and without further records.
    pub(crate) fn is_of_edns_alone(&self) -> bool {
        matches!(self.reply_kind, ReplyKind::HeaderOnly(Rcode::FormErr))
            && self.message[4..12] == [0, 0, 0, 0, 0, 0, 0, 1]
    }

    /// The text of `options` that the query asks for: of the class CH, which no zone has.
    pub(crate) fn identity<'o>(&self, options: &'o ReplyOptions) -> Option<&'o [u8]> {
        let is_for_text = matches!(self.reply_kind, ReplyKind::QuestionOnly(Rcode::Refused))
            && self.question.qclass == CLASS_CH
            && matches!(self.question.qtype, Rtype::TXT | Rtype::ANY);
        options.identity(self.question.qname).filter(|_| is_for_text)
    }

    /// Whether `options` answer the query, so that the reply is not an error: it asks for the name or version of this
    /// server, or only for a cookie (RFC 7873 §5.4).
    #[cold]
    pub fn is_answered_by(&self, options: &ReplyOptions) -> bool {
        let asks_for_cookie =
            || QueryOptions::read(self.message, self.options_offset()).is_ok_and(|asked| asked.cookie.is_some());
        self.identity(options).is_some() || (options.cookies.is_some() && self.is_of_edns_alone() && asks_for_cookie())
    }

    /// Loads the slot of the zone's hash table at which the search for QNAME starts.
    #[inline]
    pub fn prefetch_slot(&mut self) {
        if let ReplyKind::InZone(found) = &self.reply_kind {
            self.slot = found.zone.first_slot(found.hashes.name);
        }
    }

    /// Loads the records that the prefetched slot refers to or, if it is not the slot of QNAME, the parent name's
    /// records.
    #[inline]
    pub fn prefetch_records(&self) {
        if let ReplyKind::InZone(found) = &self.reply_kind {
            found.zone.prefetch_node(self.slot, found.hashes, self.asks_for_signatures());
        }
    }
}

/// The RCODE for a question that no zone is searched for.
#[inline]
fn refusal(question: &Question<'_>) -> Option<Rcode> {
    if question.edns.is_some_and(|edns| edns.version != 0) {
        return Some(Rcode::BadVers);
    }
    if question.tsig_offset.is_some() {
        // RFC 8945 §5.2.1: unless the signature is checked before.
        return Some(Rcode::NotAuth);
    }
    refusal_by_type(question)
}

#[inline]
fn refusal_by_type(question: &Question<'_>) -> Option<Rcode> {
    if question.qclass != CLASS_IN {
        return Some(Rcode::Refused);
    }
    match question.qtype {
        Rtype::OPT => Some(Rcode::FormErr),
        Rtype::AXFR | Rtype::IXFR => Some(Rcode::Refused),
        Rtype::TKEY | Rtype::TSIG | Rtype::MAILA | Rtype::MAILB => Some(Rcode::NotImp),
        _ => None,
    }
}
