//! Answers a query from a map of zones (RFC 1034 §4.3.2), section by section: answer, authority, additional.
//!
//! The caller owns the buffers of query and reply. Nothing here allocates, blocks or panics on any bytes of a query.

use crate::message::{Additional, Edns, MessageFull, Question, Rcode, ReplyWriter, Section};
use crate::name::{LABEL_COUNT_MAX, Name, NameBuf};
use crate::name_hash::{IndexedName, NameHash, NameHashes};
use crate::packed_rrset::{HEADER_BYTES, OPT_BYTES, OwnerLocation};
use crate::query::{ParsedQuery, ReplyKind};
use crate::rtype::Rtype;
use crate::zone::{FoundRrset, Lookup, Zone};
use crate::zone_map::{CNAME_CHAIN_MAX, FoundZone, ZoneMap};
use core::net::SocketAddr;

/// Bytes of a UDP reply to a client that does not announce a larger payload (RFC 1035 §4.2.1).
pub const UDP_REPLY_BYTES: usize = 512;
/// Bytes of the longest message (RFC 1035 §4.2.2). `out` has at least this length for TCP.
pub const TCP_REPLY_BYTES_MAX: usize = 65_535;

/// The transport of a request, which bounds the length of its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnsTransport {
    /// A datagram.
    Udp {
        /// Bytes of the longest reply that is sent without truncation: at least 512.
        reply_bytes_max: u16,
    },
    /// A stream.
    Tcp,
}

/// The circumstances of a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestInfo {
    /// Address and port of the client.
    pub client: SocketAddr,
    /// The transport of request and reply.
    pub transport: DnsTransport,
    /// The time, in seconds since 1970-01-01 00:00 UTC.
    pub now_unix_s: u64,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Send nothing: the message is not a query, and a reply could start a loop.
    NoReply,
    /// Send this many bytes from the start of `out`.
    Reply(usize),
}

/// Answers `query` from `zones` into `out`, which has the length of the longest reply of the transport.
pub fn answer(zones: &ZoneMap, info: &RequestInfo, query: &[u8], out: &mut [u8]) -> Answer {
    answer_parsed(&ParsedQuery::parse(zones, query), info, out)
}

/// Answers a parsed query into `out`, which has the length of the longest reply of the transport.
#[inline]
pub fn answer_parsed(query: &ParsedQuery<'_, '_>, info: &RequestInfo, out: &mut [u8]) -> Answer {
    match &query.reply_kind {
        ReplyKind::NoReply => Answer::NoReply,
        &ReplyKind::HeaderOnly(rcode) => {
            Answer::Reply(ReplyWriter::start(out, query.message, 0, HEADER_BYTES).finish(rcode, None))
        }
        &ReplyKind::QuestionOnly(rcode) => reply_to(query, info.transport, out, |_| rcode),
        ReplyKind::InZone(found) => reply_to(query, info.transport, out, |reply| put_sections(query, found, reply)),
    }
}

/// The payload size that replies over TCP announce. It concerns UDP alone, so it is the default of UDP replies.
const TCP_PAYLOAD_BYTES: u16 = 1_232;

/// Writes a reply that repeats the question, with the sections that `put` writes and the RCODE that it returns.
#[inline]
fn reply_to<'o>(
    query: &ParsedQuery<'_, '_>,
    transport: DnsTransport,
    out: &'o mut [u8],
    put: impl FnOnce(&mut ReplyWriter<'o>) -> Rcode,
) -> Answer {
    let question = &query.question;
    let (limit, own_payload_bytes) = match transport {
        DnsTransport::Tcp => (TCP_REPLY_BYTES_MAX, TCP_PAYLOAD_BYTES),
        DnsTransport::Udp { reply_bytes_max } => {
            // RFC 6891 §6.2.3: values below 512 are treated as 512.
            let wanted = question.edns.map_or(UDP_REPLY_BYTES, |edns| usize::from(edns.payload_bytes));
            (wanted.clamp(UDP_REPLY_BYTES, usize::from(reply_bytes_max)), reply_bytes_max)
        }
    };
    // RFC 3225 §3: DO is copied.
    let own_edns = question.edns.map(|edns| Edns { payload_bytes: own_payload_bytes, version: 0, ..edns });
    let opt_bytes = if own_edns.is_some() { OPT_BYTES } else { 0 };
    let mut reply = ReplyWriter::start(out, query.message, question.section_bytes(), limit - opt_bytes);
    let rcode = put(&mut reply);
    Answer::Reply(reply.finish(rcode, own_edns))
}

#[inline]
fn put_sections(query: &ParsedQuery<'_, '_>, found: &FoundZone<'_>, reply: &mut ReplyWriter<'_>) -> Rcode {
    let &ParsedQuery { ref question, cname_chain_max, .. } = query;
    let mut answer = AnswerWriter { zone: found.zone, qtype: question.qtype, cname_chain_max, reply };
    answer.put(question, found.hashes).unwrap_or_else(|MessageFull| {
        answer.reply.truncate();
        Rcode::NoError
    })
}

/// Writes the sections of one reply from one zone.
struct AnswerWriter<'a, 'o> {
    zone: &'a Zone,
    qtype: Rtype,
    cname_chain_max: usize,
    reply: &'a mut ReplyWriter<'o>,
}

/// Where the current name of a lookup, QNAME or the target of an alias, is in the reply.
#[derive(Clone, Copy)]
enum NameLocation {
    /// In the question section.
    Question,
    /// In the RDATA of an alias, at this offset.
    Target(usize),
}

/// The aliases of one reply.
struct AliasChain {
    aliases: [Alias; CNAME_CHAIN_MAX],
    count: usize,
}

#[derive(Clone, Copy, Default)]
struct Alias {
    /// The hash of the alias's own name. Among so few names, equal hashes mean equal names.
    name: NameHash,
    /// The node of the CNAME or DNAME.
    node: usize,
}

impl Default for AliasChain {
    fn default() -> AliasChain {
        AliasChain { aliases: [Alias::default(); CNAME_CHAIN_MAX], count: 0 }
    }
}

impl AliasChain {
    fn push(&mut self, name: NameHash, node: usize) {
        self.aliases[self.count] = Alias { name, node };
        self.count += 1;
    }

    fn contains_name(&self, name: NameHash) -> bool {
        self.aliases[..self.count].iter().any(|alias| alias.name == name)
    }

    fn contains_node(&self, node: usize) -> bool {
        self.aliases[..self.count].iter().any(|alias| alias.node == node)
    }
}

impl AnswerWriter<'_, '_> {
    /// Writes all sections. RRsets for QNAME itself are copied in packed form; those after an alias are written with
    /// uncompressed names.
    #[inline(always)]
    fn put(&mut self, question: &Question<'_>, hashes: NameHashes) -> Result<Rcode, MessageFull> {
        let qname_bytes = question.qname.length_bytes();
        let lookup = self.zone.lookup(question.qname, hashes, self.qtype);
        let is_referral = matches!(lookup, Lookup::Referral(_));
        if !is_referral {
            self.reply.set_authoritative();
        }
        match lookup {
            Lookup::Answer(found) | Lookup::Referral(found) => {
                let section = if is_referral { Section::Authority } else { Section::Answer };
                let owner = owner_in_question(&found, qname_bytes);
                match self.reply.put_packed_with_additional(section, &found.rrset, owner)? {
                    // RFC 9471 §3.1: missing glue sets TC, because the client needs it; other addresses are optional
                    // (RFC 2181 §9).
                    Additional::Omitted if is_referral => Err(MessageFull),
                    _ => Ok(Rcode::NoError),
                }
            }
            Lookup::Nodata => Ok(self.put_negative(NameLocation::Question, qname_bytes, Rcode::NoError)),
            Lookup::Nxdomain => Ok(self.put_negative(NameLocation::Question, qname_bytes, Rcode::NxDomain)),
            Lookup::Cname(_) | Lookup::Dname(_) => self.put_chain(question, hashes.name, &lookup),
        }
    }

    /// Writes the chain of aliases that starts with `lookup` for QNAME, and the data at its end.
    // Not inlined: the chain takes kilobytes of stack that other answers do not need.
    #[inline(never)]
    fn put_chain(
        &mut self,
        question: &Question<'_>,
        hash: NameHash,
        lookup: &Lookup<'_>,
    ) -> Result<Rcode, MessageFull> {
        let qname_bytes = question.qname.length_bytes();
        let (mut lookup, mut hash, mut location) = (*lookup, hash, NameLocation::Question);
        let mut target;
        let mut name = question.qname;
        let mut chain = AliasChain::default();
        loop {
            let (target_offset, next) = match lookup {
                // The bound: the answer is the chain so far.
                Lookup::Cname(_) | Lookup::Dname(_) if chain.count == self.cname_chain_max => {
                    return Ok(Rcode::NoError);
                }
                Lookup::Cname(found) => {
                    chain.push(hash, found.node);
                    self.put_cname(&found, name, location, qname_bytes)?
                }
                Lookup::Dname(found) => {
                    let is_written = chain.contains_node(found.node);
                    chain.push(hash, found.node);
                    match self.put_dname(&found, name, location, is_written)? {
                        // QTYPE CNAME: the synthesized CNAME is the answer. RFC 6672 §3.2 would go on, but no server
                        // does, and NXDOMAIN for the target would deny the record in the answer section.
                        Some(_) if self.qtype == Rtype::CNAME => return Ok(Rcode::NoError),
                        Some(next) => next,
                        None => return Ok(Rcode::YxDomain),
                    }
                }
                // QTYPE DNAME, and the DNAME has led back to its own owner.
                Lookup::Answer(found) if chain.contains_node(found.node) && found.is_dname_of(name) => {
                    return Ok(Rcode::NoError);
                }
                end => return self.put_chain_end(&end, name, location, qname_bytes),
            };
            if !next.as_name().is_at_or_below(self.zone.apex()) {
                return Ok(Rcode::NoError);
            }
            target = next;
            name = target.as_name();
            let hashes = IndexedName::of(name).hashes(self.zone.seed);
            hash = hashes.name;
            if chain.contains_name(hash) {
                // A loop: all its aliases are in the answer section.
                return Ok(Rcode::NoError);
            }
            location = NameLocation::Target(target_offset);
            lookup = self.zone.lookup(name, hashes, self.qtype);
        }
    }

    /// Writes the result of the lookup for `name`, the last target of a chain.
    fn put_chain_end(
        &mut self,
        lookup: &Lookup<'_>,
        name: Name<'_>,
        location: NameLocation,
        qname_bytes: usize,
    ) -> Result<Rcode, MessageFull> {
        match lookup {
            Lookup::Answer(found) => {
                self.reply.put_uncompressed(Section::Answer, found, location.owner_of(name, &mut [0; 2]))?;
                Ok(Rcode::NoError)
            }
            Lookup::Referral(delegation) => {
                self.reply.put_uncompressed(Section::Authority, delegation, delegation.owner.as_bytes())?;
                self.reply.put_uncompressed_additional(delegation)?;
                Ok(Rcode::NoError)
            }
            Lookup::Nodata => Ok(self.put_negative(location, qname_bytes, Rcode::NoError)),
            // RFC 6604 §3: the RCODE is that of the last name of the chain.
            Lookup::Nxdomain => Ok(self.put_negative(location, qname_bytes, Rcode::NxDomain)),
            Lookup::Cname(_) | Lookup::Dname(_) => unreachable!("put_chain follows aliases itself"),
        }
    }

    /// Writes a CNAME record of the zone. Returns the offset of its target in the reply, and the target.
    fn put_cname(
        &mut self,
        found: &FoundRrset<'_>,
        name: Name<'_>,
        location: NameLocation,
        qname_bytes: usize,
    ) -> Result<(usize, NameBuf), MessageFull> {
        let (record, target) = found.alias_target();
        let rdata_offset = match location {
            NameLocation::Question => {
                let rdata_offset = self.reply.position() + record.rdata_start;
                self.reply.put_packed(Section::Answer, &found.rrset, owner_in_question(found, qname_bytes))?;
                rdata_offset
            }
            NameLocation::Target(_) => {
                self.reply.put_uncompressed(Section::Answer, found, location.owner_of(name, &mut [0; 2]))?
            }
        };
        Ok((rdata_offset, target))
    }

    /// Writes the DNAME, unless it `is_written` already, and the CNAME synthesized for `name` (RFC 6672 §3.1). Returns
    /// the offset of the CNAME's target in the reply, and the target; `None` when the target would be too long.
    fn put_dname(
        &mut self,
        found: &FoundRrset<'_>,
        name: Name<'_>,
        location: NameLocation,
        is_written: bool,
    ) -> Result<Option<(usize, NameBuf)>, MessageFull> {
        if !is_written {
            self.reply.put_uncompressed(Section::Answer, found, found.owner.as_bytes())?;
        }
        let (record, substitute) = found.alias_target();
        let kept_count = name.labels().count() - found.owner.labels().count();
        let mut labels = [&[][..]; LABEL_COUNT_MAX];
        for (label, kept) in labels.iter_mut().zip(name.labels().take(kept_count)) {
            *label = kept;
        }
        let Ok(target) = NameBuf::joined(&labels[..kept_count], substitute.as_name()) else { return Ok(None) };
        let owner = &mut [0; 2];
        let target_offset =
            self.reply.put_synthesized_cname(location.owner_of(name, owner), record.ttl(), target.as_name())?;
        Ok(Some((target_offset, target)))
    }

    /// Writes the SOA with which resolvers cache a negative answer (RFC 2308 §3).
    fn put_negative(&mut self, location: NameLocation, qname_bytes: usize, rcode: Rcode) -> Rcode {
        let soa = self.zone.negative_soa();
        let owner = owner_in_question(&soa, qname_bytes);
        let put = match location {
            NameLocation::Question => self.reply.put_packed(Section::Authority, &soa.rrset, owner),
            NameLocation::Target(_) => {
                self.reply.put_uncompressed(Section::Authority, &soa, &pointer_to(owner.offset)).map(|_| ())
            }
        };
        if put == Err(MessageFull) {
            self.reply.truncate();
        }
        rcode
    }
}

impl NameLocation {
    /// The owner field of records of `name`, which is at this location: a compression pointer, or the whole name beyond
    /// the reach of pointers. Only long chains of long names get there.
    fn owner_of<'n>(self, name: Name<'n>, pointer: &'n mut [u8; 2]) -> &'n [u8] {
        let at = match self {
            NameLocation::Question => HEADER_BYTES,
            NameLocation::Target(at) if at < POINTER_REACH_BYTES => at,
            NameLocation::Target(_) => return name.as_bytes(),
        };
        *pointer = pointer_to(at);
        pointer
    }
}

/// The owner of `found` as a suffix of QNAME. Of a wildcard, it is the suffix of the same length.
fn owner_in_question(found: &FoundRrset<'_>, qname_bytes: usize) -> OwnerLocation {
    let length_bytes = found.owner.length_bytes();
    OwnerLocation { offset: HEADER_BYTES + qname_bytes - length_bytes, length_bytes }
}

/// Offsets below this fit into a compression pointer: 14 bits (RFC 1035 §4.1.4).
const POINTER_REACH_BYTES: usize = 1 << 14;

/// A compression pointer to offset `at`.
fn pointer_to(at: usize) -> [u8; 2] {
    debug_assert!(at < POINTER_REACH_BYTES);
    (0xc000 | at as u16).to_be_bytes()
}
