//! Answers that are written record by record: chains of aliases, and answers with proofs between their answer and
//! additional sections.

use crate::answers::proofs::{PROOFS_OF_LOOKUP_MAX, Proofs};
use crate::messages::compression::NameOffsets;
use crate::messages::message::{MessageFull, Rcode, ReplyWriter, Section};
use crate::messages::query::ParsedQuery;
use crate::messages::zone_map::{CNAME_CHAIN_MAX, FoundZone, ZoneMap};
use crate::text::name::{LABEL_COUNT_MAX, Name, NameBuf};
use crate::text::rtype::Rtype;
use crate::zones::layout::{Form, NodeIndex};
use crate::zones::name_hash::{IndexedName, NameHash};
use crate::zones::zone::{FoundRrset, Lookup, Place, Zone};

/// Proofs of one reply: one for each alias that a wildcard made, and those for the end of the chain.
const PROOFS_MAX: usize = CNAME_CHAIN_MAX + PROOFS_OF_LOOKUP_MAX;

/// The aliases that a reply has followed.
struct AliasChain<'z> {
    aliases: [Alias<'z>; CNAME_CHAIN_MAX],
    count: usize,
}

#[derive(Clone, Copy, Default)]
struct Alias<'z> {
    /// The hash of the alias's own name. Among so few names, equal hashes mean equal names.
    name: NameHash,
    /// The zone and the node of the CNAME or DNAME.
    owner: Option<(&'z Zone, NodeIndex)>,
}

impl<'z> AliasChain<'z> {
    fn push(&mut self, name: NameHash, zone: &'z Zone, found: &FoundRrset<'_>) {
        self.aliases[self.count] = Alias { name, owner: Some((zone, found.node)) };
        self.count += 1;
    }

    fn contains_name(&self, name: NameHash) -> bool {
        self.aliases[..self.count].iter().any(|alias| alias.name == name)
    }

    fn contains_owner(&self, zone: &Zone, found: &FoundRrset<'_>) -> bool {
        let is_owner = |(of, node): (&Zone, NodeIndex)| core::ptr::eq(of, zone) && node == found.node;
        self.aliases[..self.count].iter().filter_map(|alias| alias.owner).any(is_owner)
    }
}

/// Writes a chain of aliases, and the data at its end.
pub(crate) struct ChainWriter<'a, 'z, 'o> {
    qtype: Rtype,
    zones: &'z ZoneMap,
    reply: &'a mut ReplyWriter<'o>,
    known: NameOffsets,
    chain: AliasChain<'z>,
    /// QNAME, or the target of the last alias.
    name: NameBuf,
    /// If the client asks for signatures.
    proofs: Option<Proofs<'z, PROOFS_MAX>>,
}

/// The end of a chain.
enum ChainEnd<'z> {
    /// No further records: the target is in no zone, or the chain has reached its maximum length.
    Open(Rcode),
    /// An RRset of the last name.
    Answer(FoundRrset<'z>),
    Referral(FoundRrset<'z>),
    Negative(&'z Zone, Rcode),
}

impl<'z> ChainWriter<'_, 'z, '_> {
    /// Writes the chain that starts with `lookup`, the result for QNAME in the zone of `found`. There QNAME is at
    /// `place`, if the zone is signed.
    // Not inlined: the chain takes kilobytes of stack that other answers do not need.
    #[inline(never)]
    pub(crate) fn put(
        query: &ParsedQuery<'z, '_>,
        found: &FoundZone<'z>,
        place: Option<&Place<'z>>,
        lookup: &Lookup<'z>,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<Rcode, MessageFull> {
        let (question, zones) = (&query.question, query.zones.expect("the zone was found in them"));
        let chain = AliasChain { aliases: [Alias::default(); CNAME_CHAIN_MAX], count: 0 };
        let known = NameOffsets::of_question(question.qname);
        let proofs = query.asks_for_signatures().then(Proofs::new);
        let name = question.qname.to_owned();
        let mut writer = ChainWriter { qtype: question.qtype, zones, reply, known, chain, name, proofs };
        let end = writer.put_aliases(found, place, lookup)?;
        let rcode = match &end {
            ChainEnd::Open(rcode) | ChainEnd::Negative(_, rcode) => *rcode,
            ChainEnd::Answer(_) | ChainEnd::Referral(_) => Rcode::NoError,
        };
        if writer.put_end(&end).is_err() {
            writer.reply.truncate();
        }
        Ok(rcode)
    }

    fn put_aliases(
        &mut self,
        found: &FoundZone<'z>,
        place: Option<&Place<'z>>,
        lookup: &Lookup<'z>,
    ) -> Result<ChainEnd<'z>, MessageFull> {
        let form = if self.proofs.is_some() { Form::Signed } else { Form::Plain };
        let (mut zone, mut hash, mut place, mut lookup) = (found.zone, found.hashes.name, place.copied(), *lookup);
        loop {
            if let (Some(proofs), Some(place)) = (&mut self.proofs, &place) {
                proofs.add_for(zone, place, self.name.as_name(), &lookup);
            }
            if let Lookup::Cname(alias) | Lookup::Dname(alias) = &lookup {
                if self.chain.count == self.zones.cname_chain_max() {
                    // The bound: the answer is the chain so far.
                    return Ok(ChainEnd::Open(Rcode::NoError));
                }
                let is_written = self.chain.contains_owner(zone, alias);
                self.chain.push(hash, zone, alias);
                let name = self.name;
                self.name = match &lookup {
                    Lookup::Dname(dname) => match self.put_dname(dname, name.as_name(), is_written)? {
                        // QTYPE CNAME: the synthesized CNAME is the answer. RFC 6672 §3.2 would continue, but no server
                        // does, and NXDOMAIN for the target would deny the record in the answer section.
                        Some(_) if self.qtype == Rtype::CNAME => return Ok(ChainEnd::Open(Rcode::NoError)),
                        // The DNAME would apply repeatedly, to ever longer names.
                        Some(_) if dname.alias_target().1.as_name().is_at_or_below(dname.owner) => {
                            return Ok(ChainEnd::Open(Rcode::NoError));
                        }
                        Some(target) => target,
                        None => return Ok(ChainEnd::Open(Rcode::YxDomain)),
                    },
                    _ => self.put_cname(alias, name.as_name())?,
                };
            } else {
                return Ok(self.end(zone, &lookup));
            }
            let indexed = IndexedName::of(self.name.as_name());
            // RFC 1034 §4.3.2 step 3a: the target is looked up from step 2 on, in the server's nearest zone.
            let Ok(next) = self.zones.find(&indexed, self.qtype) else { return Ok(ChainEnd::Open(Rcode::NoError)) };
            (zone, hash) = (next.zone, next.hashes.name);
            if self.chain.contains_name(hash) {
                // A loop: all its aliases are in the answer section.
                return Ok(ChainEnd::Open(Rcode::NoError));
            }
            let next_place = zone.place(self.name.as_name(), next.hashes);
            lookup = zone.lookup_at(&next_place, self.qtype, form);
            place = Some(next_place);
        }
    }

    /// The end for the result of the lookup in `zone` for the last target of the chain.
    fn end(&self, zone: &'z Zone, lookup: &Lookup<'z>) -> ChainEnd<'z> {
        match lookup {
            // QTYPE DNAME, and the DNAME has led back to its own owner.
            Lookup::Answer(found)
                if found.is_dname_of(self.name.as_name()) && self.chain.contains_owner(zone, found) =>
            {
                ChainEnd::Open(Rcode::NoError)
            }
            // The answer to QTYPE RRSIG is complete: the signature of the DNAME is already written.
            Lookup::Answer(found)
                if self.qtype == Rtype::RRSIG && self.proofs.is_some() && self.chain.contains_owner(zone, found) =>
            {
                ChainEnd::Open(Rcode::NoError)
            }
            Lookup::Answer(found) => ChainEnd::Answer(*found),
            Lookup::Referral(found) => ChainEnd::Referral(*found),
            Lookup::Nodata => ChainEnd::Negative(zone, Rcode::NoError),
            // RFC 6604 §3: the RCODE is determined by the last name of the chain.
            Lookup::Nxdomain => ChainEnd::Negative(zone, Rcode::NxDomain),
            Lookup::Cname(_) | Lookup::Dname(_) => unreachable!("put_aliases follows aliases itself"),
        }
    }

    /// Writes the end of the chain, and the proofs of all its aliases.
    fn put_end(&mut self, end: &ChainEnd<'z>) -> Result<(), MessageFull> {
        let name = self.name;
        let (section, found, owner) = match end {
            ChainEnd::Open(_) => return self.put_proofs(None),
            ChainEnd::Negative(zone, _) => {
                let soa = zone.negative_soa(if self.proofs.is_some() { Form::Signed } else { Form::Plain });
                self.reply.put_compressed(Section::Authority, &soa, soa.owner, &mut self.known)?;
                return self.put_proofs(None);
            }
            ChainEnd::Answer(found) => (Section::Answer, found, name.as_name()),
            ChainEnd::Referral(found) => (Section::Authority, found, found.owner),
        };
        self.reply.put_compressed(section, found, owner, &mut self.known)?;
        self.put_proofs(Some(found))?;
        self.reply.put_compressed_additional(section, found, owner, &mut self.known)
    }

    /// Writes the proofs, except for that which the signed form of `last`, a referral, already has.
    fn put_proofs(&mut self, last: Option<&FoundRrset<'_>>) -> Result<(), MessageFull> {
        let Some(proofs) = &self.proofs else { return Ok(()) };
        let is_written = |proof: &FoundRrset<'_>| {
            last.is_some_and(|last| last.rrset.rtype() == Rtype::NS && last.owner == proof.owner && last.has_nsec())
        };
        for found in proofs.rrsets().filter(|proof| !is_written(proof)) {
            self.reply.put_compressed(Section::Authority, &found, found.owner, &mut self.known)?;
        }
        Ok(())
    }

    /// Writes a CNAME record of the zone. Returns its target.
    fn put_cname(&mut self, found: &FoundRrset<'_>, name: Name<'_>) -> Result<NameBuf, MessageFull> {
        self.reply.put_compressed(Section::Answer, found, name, &mut self.known)?;
        Ok(found.alias_target().1)
    }

    /// Writes the DNAME, unless it `is_written` already, and the CNAME synthesized for `name` (RFC 6672 §3.1). Returns
    /// the target of the CNAME; `None` when it would be too long.
    fn put_dname(
        &mut self,
        found: &FoundRrset<'_>,
        name: Name<'_>,
        is_written: bool,
    ) -> Result<Option<NameBuf>, MessageFull> {
        if !is_written {
            self.reply.put_compressed(Section::Answer, found, found.owner, &mut self.known)?;
        }
        let (record, substitute) = found.alias_target();
        let kept_count = name.labels().count() - found.owner.labels().count();
        let mut labels = [&[][..]; LABEL_COUNT_MAX];
        for (label, kept) in labels.iter_mut().zip(name.labels().take(kept_count)) {
            *label = kept;
        }
        let Ok(target) = NameBuf::joined(&labels[..kept_count], substitute.as_name()) else { return Ok(None) };
        self.reply.put_synthesized_cname(name, record.ttl(), target.as_name(), &mut self.known)?;
        Ok(Some(target))
    }
}
