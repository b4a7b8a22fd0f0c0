//! Answers a query out of a set of zones (RFC 1034 §4.3.2), in the order of the message: answer, authority, additional.
//!
//! Nothing is allocated, and nothing is waited for. Whatever the octets of the query are, the outcome is a reply or
//! silence.

use crate::message::{Addresses, Edns, MessageFull, Query, Rcode, ReplyWriter, Section};
use crate::name::{Name, NameBuf};
use crate::name_hash::{IndexedName, NameHash, NameHashes};
use crate::packed_rrset::{HEADER_BYTES, OPT_BYTES, OwnerLocation};
use crate::query::{Disposition, ParsedQuery};
use crate::rtype::Rtype;
use crate::zone::{Found, Lookup, Zone};
use crate::zone_map::{CNAME_CHAIN_MAX, FoundZone, ZoneMap};
use core::net::SocketAddr;

/// Octets of a UDP reply to a client that does not say it takes more (RFC 1035 §4.2.1).
pub const UDP_REPLY_BYTES: usize = 512;
/// Octets of the longest message (RFC 1035 §4.2.2): what `out` must have room for over TCP.
pub const TCP_REPLY_BYTES_MAX: usize = 65_535;

/// How the query came, and so how long its reply may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// In a datagram.
    Udp {
        /// Octets of the longest reply that is sent whole: 512 at least, 1,232 by default, which passes every network.
        reply_bytes_max: u16,
    },
    /// In a stream.
    Tcp,
}

/// What a request is answered by, beside the zones and its own bytes.
#[derive(Clone, Copy, Debug)]
pub struct RequestInfo {
    /// Address and port of the client.
    pub client: SocketAddr,
    /// How the request arrived.
    pub transport: Transport,
    /// The time, in seconds since 1970-01-01 00:00 UTC.
    pub now_unix_s: u64,
}

/// What the caller does about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// Send nothing: the message is not a query, and a reply could start a loop.
    Drop,
    /// Send the first bytes of `out`: this many.
    Reply(usize),
}

/// Answers `query` out of `zones` into `out`, which has room for the longest reply of the transport.
pub fn answer(zones: &ZoneMap, info: &RequestInfo, query: &[u8], out: &mut [u8]) -> Answered {
    answer_parsed(&ParsedQuery::parse(zones, query), info, out)
}

/// Answers a query that was read already into `out`, which has room for the longest reply of the transport.
#[inline]
pub fn answer_parsed(query: &ParsedQuery<'_, '_>, info: &RequestInfo, out: &mut [u8]) -> Answered {
    let transport = info.transport;
    match &query.disposition {
        Disposition::Drop => Answered::Drop,
        &Disposition::HeaderOnly(rcode) => {
            let mut reply = ReplyWriter::start(out, query.message, 0, HEADER_BYTES);
            Answered::Reply(reply.finish(rcode, None))
        }
        &Disposition::QuestionOnly(rcode) => reply_to(query, transport, out, |_| rcode),
        Disposition::InZone(found) => reply_to(query, transport, out, |reply| put_sections(query, found, reply)),
    }
}

/// The payload that replies over TCP announce: that of UDP's default, since it is UDP that the number is about.
const TCP_PAYLOAD_BYTES: u16 = 1_232;

/// A reply that repeats the question, with the sections that `put` puts and the RCODE that it tells.
#[inline]
fn reply_to<'o>(
    query: &ParsedQuery<'_, '_>,
    transport: Transport,
    out: &'o mut [u8],
    put: impl FnOnce(&mut ReplyWriter<'o>) -> Rcode,
) -> Answered {
    let question = &query.question;
    let (limit, own_payload_bytes) = match transport {
        Transport::Tcp => (TCP_REPLY_BYTES_MAX, TCP_PAYLOAD_BYTES),
        Transport::Udp { reply_bytes_max } => {
            // RFC 6891 §6.2.3: less than 512 is meant as 512.
            let wanted = question.edns.map_or(UDP_REPLY_BYTES, |edns| usize::from(edns.payload_bytes));
            (wanted.clamp(UDP_REPLY_BYTES, usize::from(reply_bytes_max)), reply_bytes_max)
        }
    };
    // RFC 3225 §3: DO is copied.
    let own_edns = question.edns.map(|edns| Edns { payload_bytes: own_payload_bytes, version: 0, ..edns });
    let opt_bytes = if own_edns.is_some() { OPT_BYTES } else { 0 };
    let mut reply = ReplyWriter::start(out, query.message, question.question_bytes(), limit - opt_bytes);
    let rcode = put(&mut reply);
    Answered::Reply(reply.finish(rcode, own_edns))
}

#[inline]
fn put_sections(query: &ParsedQuery<'_, '_>, found: &FoundZone<'_>, reply: &mut ReplyWriter<'_>) -> Rcode {
    let &ParsedQuery { ref question, cname_chain_max, .. } = query;
    let mut answering = Answering { zone: found.zone, rtype: question.rtype, cname_chain_max, reply };
    answering.put(question, found.hashes).unwrap_or_else(|MessageFull| {
        answering.reply.truncate();
        Rcode::NoError
    })
}

/// A reply in the making: the zone that it comes out of and the type that was asked for.
struct Answering<'a, 'o> {
    zone: &'a Zone,
    rtype: Rtype,
    cname_chain_max: usize,
    reply: &'a mut ReplyWriter<'o>,
}

/// Where the name that the question has come to, by aliases, stands in the reply.
#[derive(Clone, Copy)]
enum Place {
    /// It is the question's own name.
    Question,
    /// It is the target of an alias, at this octet.
    Target(usize),
}

/// The aliases that a reply has followed.
struct Chain {
    steps: [Step; CNAME_CHAIN_MAX],
    count: usize,
}

/// One alias of a chain.
#[derive(Clone, Copy, Default)]
struct Step {
    /// The hash of the name that it is an alias for; among so few names, none has that of another.
    name: NameHash,
    /// The node of the CNAME or DNAME.
    node: usize,
}

impl Default for Chain {
    fn default() -> Chain {
        Chain { steps: [Step::default(); CNAME_CHAIN_MAX], count: 0 }
    }
}

impl Chain {
    fn push(&mut self, name: NameHash, node: usize) {
        self.steps[self.count] = Step { name, node };
        self.count += 1;
    }

    fn has_passed(&self, name: NameHash) -> bool {
        self.steps[..self.count].iter().any(|step| step.name == name)
    }

    fn has_told(&self, node: usize) -> bool {
        self.steps[..self.count].iter().any(|step| step.node == node)
    }
}

impl Answering<'_, '_> {
    /// Puts all sections. What the zone says of the question's own name is copied as it was made; what stands behind an
    /// alias is written anew.
    #[inline(always)]
    fn put(&mut self, question: &Query<'_>, hashes: NameHashes) -> Result<Rcode, MessageFull> {
        let length_bytes = question.name.length_bytes();
        let lookup = self.zone.lookup(question.name, hashes, self.rtype);
        let is_referral = matches!(lookup, Lookup::Referral(_));
        if !is_referral {
            self.reply.set_authoritative();
        }
        match lookup {
            Lookup::Answer(found) | Lookup::Referral(found) => {
                let section = if is_referral { Section::Authority } else { Section::Answer };
                let owner = owner_in_question(&found, length_bytes);
                match self.reply.put_packed_with_addresses(section, &found.ready, owner)? {
                    // RFC 9471 §3.1: glue, without which the servers may not be found, is worth another try over TCP;
                    // other addresses are not (RFC 2181 §9).
                    Addresses::None if is_referral => Err(MessageFull),
                    _ => Ok(Rcode::NoError),
                }
            }
            Lookup::Nodata => Ok(self.put_negative(Place::Question, length_bytes, Rcode::NoError)),
            Lookup::Nxdomain => Ok(self.put_negative(Place::Question, length_bytes, Rcode::NxDomain)),
            Lookup::Cname(_) | Lookup::Dname(_) => self.put_chain(question, hashes.name, &lookup),
        }
    }

    /// Puts the aliases that lead on from the question, which begins with `lookup`, and what they lead to.
    // A chain has kilobytes on the stack, which other answers would have to make room for.
    #[inline(never)]
    fn put_chain(&mut self, question: &Query<'_>, hash: NameHash, lookup: &Lookup<'_>) -> Result<Rcode, MessageFull> {
        let length_bytes = question.name.length_bytes();
        let (mut lookup, mut hash, mut place) = (*lookup, hash, Place::Question);
        let mut target;
        let mut name = question.name;
        let mut chain = Chain::default();
        loop {
            let (target_at, next) = match lookup {
                // A chain that nobody means: what was found of it is the answer.
                Lookup::Cname(_) | Lookup::Dname(_) if chain.count == self.cname_chain_max => {
                    return Ok(Rcode::NoError);
                }
                Lookup::Cname(found) => {
                    chain.push(hash, found.node);
                    self.put_alias(&found, name, place, length_bytes)?
                }
                Lookup::Dname(found) => {
                    let is_told = chain.has_told(found.node);
                    chain.push(hash, found.node);
                    match self.put_dname(&found, name, place, is_told)? {
                        // The CNAME is the answer; RFC 6672 §3.2 would go on, but nobody does, and NXDOMAIN from what
                        // the target is would deny what stands in the answer.
                        Some(_) if self.rtype == Rtype::CNAME => return Ok(Rcode::NoError),
                        Some(next) => next,
                        None => return Ok(Rcode::YxDomain),
                    }
                }
                // What was asked for is a DNAME that has led to itself.
                Lookup::Answer(found) if chain.has_told(found.node) && found.is_dname_of(name) => {
                    return Ok(Rcode::NoError);
                }
                end => return self.put_end(&end, name, place, length_bytes),
            };
            if !next.as_name().is_at_or_below(self.zone.apex()) {
                return Ok(Rcode::NoError);
            }
            target = next;
            name = target.as_name();
            let hashes = IndexedName::of(name).hashes(self.zone.seed);
            hash = hashes.name;
            if chain.has_passed(hash) {
                // A loop: all of it has been told.
                return Ok(Rcode::NoError);
            }
            place = Place::Target(target_at);
            lookup = self.zone.lookup(name, hashes, self.rtype);
        }
    }

    /// Puts what `lookup` says of `name`, the target that a chain ends with.
    fn put_end(
        &mut self,
        lookup: &Lookup<'_>,
        name: Name<'_>,
        place: Place,
        question_length: usize,
    ) -> Result<Rcode, MessageFull> {
        match lookup {
            Lookup::Answer(found) => {
                self.reply.put_expanded(Section::Answer, found, place.owner_of(name, &mut [0; 2]))?;
                Ok(Rcode::NoError)
            }
            Lookup::Referral(cut) => {
                self.reply.put_expanded(Section::Authority, cut, cut.owner.as_bytes())?;
                self.reply.put_expanded_addresses(cut)?;
                Ok(Rcode::NoError)
            }
            Lookup::Nodata => Ok(self.put_negative(place, question_length, Rcode::NoError)),
            // RFC 6604 §3: the RCODE is that of the last name of the chain.
            Lookup::Nxdomain => Ok(self.put_negative(place, question_length, Rcode::NxDomain)),
            Lookup::Cname(_) | Lookup::Dname(_) => unreachable!("put_chain follows aliases itself"),
        }
    }

    fn put_alias(
        &mut self,
        found: &Found<'_>,
        name: Name<'_>,
        place: Place,
        question_length: usize,
    ) -> Result<(usize, NameBuf), MessageFull> {
        let records = found.ready.records(found.owner);
        let record = records.clone().next().expect("an RRset has a record");
        let mut target = [0; crate::name::NAME_BYTES_MAX];
        let length = records.expand(&record, &mut target).expect("a name has 255 octets at most");
        let target = Name::parse(&target[..length]).expect("the RDATA of a CNAME is a name").to_owned();
        let rdata_at = match place {
            Place::Question => {
                let rdata_at = self.reply.position() + record.rdata_start;
                self.reply.put_packed(Section::Answer, &found.ready, owner_in_question(found, question_length))?;
                rdata_at
            }
            Place::Target(_) => self.reply.put_expanded(Section::Answer, found, place.owner_of(name, &mut [0; 2]))?,
        };
        Ok((rdata_at, target))
    }

    /// RFC 6672 §3.1: the DNAME, unless the reply `is_told` of it already, and the CNAME that it makes of `name`; `None`
    /// when that would be too long.
    fn put_dname(
        &mut self,
        found: &Found<'_>,
        name: Name<'_>,
        place: Place,
        is_told: bool,
    ) -> Result<Option<(usize, NameBuf)>, MessageFull> {
        let records = found.ready.records(found.owner);
        let record = records.clone().next().expect("an RRset has a record");
        if !is_told {
            self.reply.put_expanded(Section::Answer, found, found.owner.as_bytes())?;
        }
        let mut rdata = [0; crate::name::NAME_BYTES_MAX];
        let length = records.expand(&record, &mut rdata).expect("a name has 255 octets at most");
        let substitute = Name::parse(&rdata[..length]).expect("the RDATA of a DNAME is a name");
        let kept_count = name.labels().count() - found.owner.labels().count();
        let mut labels = [&[][..]; crate::name::LABEL_COUNT_MAX];
        for (label, kept) in labels.iter_mut().zip(name.labels().take(kept_count)) {
            *label = kept;
        }
        let Ok(target) = NameBuf::joined(&labels[..kept_count], substitute) else { return Ok(None) };
        let ttl = &record.fixed[4..8];
        let target_at = self.reply.put_cname(place.owner_of(name, &mut [0; 2]), ttl, target.as_name())?;
        Ok(Some((target_at, target)))
    }

    /// RFC 2308 §3: a negative answer carries the SOA, so that it can be kept.
    fn put_negative(&mut self, place: Place, question_length: usize, rcode: Rcode) -> Rcode {
        let soa = self.zone.negative_soa();
        let owner = owner_in_question(&soa, question_length);
        let put = match place {
            Place::Question => self.reply.put_packed(Section::Authority, &soa.ready, owner),
            Place::Target(_) => {
                self.reply.put_expanded(Section::Authority, &soa, &pointer_to(owner.offset)).map(|_| ())
            }
        };
        if put == Err(MessageFull) {
            self.reply.truncate();
        }
        rcode
    }
}

impl Place {
    /// The octets by which records say that they belong to `name`, which stands here: a compression pointer, or the
    /// whole name where no pointer reaches. So far out are only chains of many aliases with long names.
    fn owner_of<'n>(self, name: Name<'n>, pointer: &'n mut [u8; 2]) -> &'n [u8] {
        let at = match self {
            Place::Question => HEADER_BYTES,
            Place::Target(at) if at < POINTER_REACH_BYTES => at,
            Place::Target(_) => return name.as_bytes(),
        };
        *pointer = pointer_to(at);
        pointer
    }
}

/// The owner of `found` is the last labels of the question's name; below a wildcard, so are the wildcard's without `*`.
fn owner_in_question(found: &Found<'_>, question_length: usize) -> OwnerLocation {
    let length_bytes = found.owner.length_bytes();
    OwnerLocation { offset: HEADER_BYTES + question_length - length_bytes, length_bytes }
}

/// Octets of a message that a compression pointer reaches: its target has 14 bits (RFC 1035 §4.1.4).
const POINTER_REACH_BYTES: usize = 1 << 14;

/// A compression pointer to octet `at`, which it reaches.
fn pointer_to(at: usize) -> [u8; 2] {
    debug_assert!(at < POINTER_REACH_BYTES);
    (0xc000 | at as u16).to_be_bytes()
}
