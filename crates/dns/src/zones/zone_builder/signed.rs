//! A signed zone's additional data: signatures of RRsets, and the chain of NSEC or NSEC3 records.

use super::names::NameId;
use super::{Authority, RrsetRange, StagedRecord, ZoneBuilder};
use crate::text::name::NameBuf;
use crate::text::rtype::Rtype;
use crate::zones::delta::Nodes;
use crate::zones::denial::{DenialChain, Nsec3Chain, Nsec3Parameters, NsecChain, is_nsec3_owner};
use crate::zones::layout::{self, NodeIndex, Proof};
use alloc::vec::Vec;

/// The type that the RRSIG with this RDATA covers (RFC 4034 §3.1).
pub(super) fn type_covered(rdata: &[u8]) -> Rtype {
    Rtype(u16::from_be_bytes([rdata[0], rdata[1]]))
}

/// The nodes of a zone that is being built.
fn nodes_of(arena: &[u8]) -> Nodes<'_> {
    Nodes { arena, delta: None }
}

impl ZoneBuilder {
    /// Whether the zone has signatures: its SOA has one.
    pub(super) fn is_signed(&self) -> bool {
        self.signatures(self.apex, Rtype::SOA).next().is_some()
    }

    /// The RRSIG records of `name` that cover `rtype`.
    pub(super) fn signatures(&self, name: NameId, rtype: Rtype) -> impl Iterator<Item = &StagedRecord> {
        let signatures = self.rrset_of(name, Rtype::RRSIG).map_or(&[][..], |rrset| self.records_of(rrset));
        signatures.iter().filter(move |signature| type_covered(self.rdata(signature)) == rtype)
    }

    /// Whether an RRset has more records in an answer with signatures.
    pub(super) fn has_signed_form(&self, id: NameId, rrset: &RrsetRange) -> bool {
        self.signatures(id, rrset.rtype).next().is_some()
            || self.is_referral(id, rrset) && self.delegation_proof(id).is_some()
    }

    /// The RRset with a referral to `id` that shows whether the delegated zone is signed (RFC 4035 §3.1.4): its DS or,
    /// of the NSEC records, the one without DS.
    pub(super) fn delegation_proof(&self, id: NameId) -> Option<&RrsetRange> {
        self.rrset_of(id, Rtype::DS).or_else(|| self.rrset_of(id, Rtype::NSEC))
    }

    /// Whether `id` is an owner of NSEC3 records and has no other data. Queries do not find such a name (RFC 5155
    /// §7.2.8).
    pub(super) fn is_nsec3_owner(&self, id: NameId) -> bool {
        let rrsets = self.rrsets_of(id);
        rrsets.iter().any(|rrset| rrset.rtype == Rtype::NSEC3)
            && rrsets.iter().all(|rrset| matches!(rrset.rtype, Rtype::NSEC3 | Rtype::RRSIG))
            && is_nsec3_owner(self.names.name(id), self.names.name(self.apex))
    }

    /// The parameters for hashing names, if there is a chain of NSEC3 records (RFC 5155 §7.2). Of several chains, the
    /// first complete one is used.
    pub(super) fn nsec3_parameters(&self) -> Option<Nsec3Parameters> {
        let records = self.rrset_of(self.apex, Rtype::NSEC3PARAM).map_or(&[][..], |rrset| self.records_of(rrset));
        let apex = self.names.name(self.apex);
        records.iter().filter_map(|record| Nsec3Parameters::read(self.rdata(record))).find(|parameters| {
            let owner = NameBuf::child(&parameters.hash_label(apex), apex).ok();
            let owner = owner.and_then(|owner| self.names.find(owner.as_name()));
            owner.is_some_and(|owner| self.is_in_chain(owner, parameters))
        })
    }

    /// Whether `id` has an NSEC3 record with these parameters.
    pub(super) fn is_in_chain(&self, id: NameId, parameters: &Nsec3Parameters) -> bool {
        let is_owner = is_nsec3_owner(self.names.name(id), self.names.name(self.apex));
        let rrset = self.rrset_of(id, Rtype::NSEC3).filter(|_| is_owner);
        let records = rrset.map_or(&[][..], |rrset| self.records_of(rrset));
        records.iter().any(|record| Nsec3Parameters::read(self.rdata(record)).as_ref() == Some(parameters))
    }

    /// The names with NSEC records that are not hidden, in canonical order.
    pub(super) fn nsec_owners(&self) -> Vec<NameId> {
        let is_owner = |&id: &NameId| {
            let authority = self.authority(id);
            self.has_rrset(id, Rtype::NSEC)
                && (authority == Authority::Authoritative || authority == Authority::Delegated(id))
        };
        let mut owners: Vec<NameId> = self.names.ids().filter(is_owner).collect();
        // Mostly sorted already, as signers write it.
        owners.sort_by(|&left, &right| self.names.name(left).canonical_cmp(self.names.name(right)));
        owners
    }

    /// Makes the chain of `nodes`, and sets the proofs of each node.
    pub(super) fn put_denial_chain(&self, is_signed: bool, nodes: &[NodeIndex], arena: &mut [u8]) -> DenialChain {
        if !is_signed {
            return DenialChain::None;
        }
        if let Some(parameters) = self.nsec3_parameters() {
            let owners = self.names.ids().filter(|&id| self.is_in_chain(id, &parameters));
            let owners: Vec<NodeIndex> = owners.map(|id| nodes[id.index()]).collect();
            let chain = Nsec3Chain::new(parameters, nodes_of(arena), &owners);
            self.put_nsec3_proofs(&chain, nodes, arena);
            return DenialChain::Nsec3(chain);
        }
        let owners = self.nsec_owners();
        if owners.first() != Some(&self.apex) {
            return DenialChain::None;
        }
        let chain: Vec<NodeIndex> = owners.iter().map(|owner| nodes[owner.index()]).collect();
        let chain = NsecChain::new(nodes_of(arena), &chain);
        self.put_nsec_proofs(&owners, &chain, nodes, arena);
        DenialChain::Nsec(chain)
    }

    fn put_nsec3_proofs(&self, chain: &Nsec3Chain, nodes: &[NodeIndex], arena: &mut [u8]) {
        for id in self.names.ids().filter(|&id| !self.is_nsec3_owner(id)) {
            let authority = self.authority(id);
            let name = self.names.name(id);
            if authority == Authority::Authoritative || authority == Authority::Delegated(id) {
                self.put_proof(nodes, arena, id, Proof::Types, |arena| chain.matching(nodes_of(arena), name));
            }
            if authority == Authority::Authoritative {
                self.put_proof(nodes, arena, id, Proof::NoWildcard, |arena| {
                    chain.covering(nodes_of(arena), NameBuf::child(b"*", name).ok()?.as_name())
                });
            }
        }
    }

    fn put_nsec_proofs(&self, owners: &[NameId], chain: &NsecChain, nodes: &[NodeIndex], arena: &mut [u8]) {
        for (index, &id) in owners.iter().enumerate() {
            let name = self.names.name(id);
            self.put_proof(nodes, arena, id, Proof::Types, |_| Some(nodes[id.index()]));
            let Ok(wildcard) = NameBuf::child(b"*", name) else { continue };
            // Mostly no name is between a name and its wildcard.
            let is_next_after = owners
                .get(index + 1)
                .is_none_or(|&next| self.names.name(next).canonical_cmp(wildcard.as_name()).is_gt());
            self.put_proof(nodes, arena, id, Proof::NoWildcard, |arena| match is_next_after {
                true => Some(nodes[id.index()]),
                false => chain.covering(nodes_of(arena), wildcard.as_name()),
            });
        }
        let is_empty =
            |&id: &NameId| self.authority(id) == Authority::Authoritative && !self.has_rrset(id, Rtype::NSEC);
        for id in self.names.ids().filter(is_empty) {
            let name = self.names.name(id);
            self.put_proof(nodes, arena, id, Proof::Types, |arena| chain.covering(nodes_of(arena), name));
            self.put_proof(nodes, arena, id, Proof::NoWildcard, |arena| {
                chain.covering(nodes_of(arena), NameBuf::child(b"*", name).ok()?.as_name())
            });
        }
    }

    fn put_proof(
        &self,
        nodes: &[NodeIndex],
        arena: &mut [u8],
        id: NameId,
        proof: Proof,
        find: impl Fn(&[u8]) -> Option<NodeIndex>,
    ) {
        if let Some(target) = find(arena) {
            layout::set_proof(arena, nodes[id.index()].offset(), proof, target);
        }
    }
}
