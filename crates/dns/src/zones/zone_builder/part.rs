//! Builds some nodes of a version that shares the others with an earlier one.

use super::names::NameId;
use super::{Authority, ZoneBuilder, has_error};
use crate::text::name::Name;
use crate::text::rdata::serial_of;
use crate::text::rtype::Rtype;
use crate::text::zonefile::{Diagnostic, Position};
use crate::zones::delta::{Delta, Nodes};
use crate::zones::denial::DenialChain;
use crate::zones::layout::{self, Form, NodeIndex, Proof};
use crate::zones::packed_rrset::RrsetPacker;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// The part of a version that is built again.
#[derive(Debug)]
pub(crate) struct BuiltPart {
    /// The nodes of the names that were asked for, in their order, and whether queries find them: they do not find
    /// owners of NSEC3 records.
    pub(crate) nodes: Vec<(NodeIndex, bool)>,
    pub(crate) negative_soa: Box<[u8]>,
    /// If the zone is signed: the SOA with signatures, and the chain.
    pub(crate) signed: Option<(Box<[u8]>, DenialChain)>,
    pub(crate) serial: u32,
    /// Warnings about the names.
    pub(crate) diagnostics: Vec<Diagnostic>,
}

impl ZoneBuilder {
    /// Adds a name, which may have no records.
    pub(crate) fn add_name(&mut self, name: Name<'_>) {
        self.names.intern(name);
    }

    /// Appends the nodes of `names` to `delta`. The builder has the records of these names, of all their ancestors and
    /// wildcard children, and of their records' targets. `node_of` returns the nodes of names other than `names`.
    /// Returns `None` if `delta` has no room, or if the zone denies existence with other records. `chain` is the
    /// previous version's chain, without the nodes that are not shared, if the zone is signed. Diagnostics about
    /// missing records have the position `end`.
    ///
    /// # Errors
    /// Returns the records' problems, as if the whole zone were built. Warnings about other names are left out.
    pub(crate) fn finish_part(
        mut self,
        names: &[Name<'_>],
        delta: &mut Delta,
        arena: &[u8],
        chain: Option<DenialChain>,
        node_of: impl Fn(Name<'_>) -> Option<NodeIndex>,
        end: Position,
    ) -> Result<Option<BuiltPart>, Vec<Diagnostic>> {
        let mut diagnostics = Vec::new();
        self.arrange(&mut diagnostics);
        let ids: Vec<NameId> = names.iter().map(|name| self.names.find(*name).expect("was added")).collect();
        self.check_apex(end, &mut diagnostics);
        for &id in &ids {
            self.check_aliases(id, &mut diagnostics);
            self.check_authority(id, &mut diagnostics);
            self.rrsets_of(id).iter().for_each(|rrset| self.check_rrset(id, rrset, &mut diagnostics));
        }
        if has_error(&diagnostics) {
            return Err(diagnostics);
        }
        let is_signed = self.is_signed();
        if is_signed != chain.is_some() {
            return Ok(None);
        }
        let mut packer = RrsetPacker::new();
        let mut all: Vec<NodeIndex> =
            self.names.ids().map(|id| node_of(self.names.name(id)).unwrap_or_default()).collect();
        let mut nodes = Vec::with_capacity(ids.len());
        for &id in &ids {
            let put = |chunk: &mut Vec<u8>| self.put_node(id, is_signed, &mut packer, chunk, &mut diagnostics);
            let Some(node) = delta.push(put) else { return Ok(None) };
            all[id.index()] = node;
            nodes.push((node, !self.is_nsec3_owner(id)));
        }
        let is_new: BTreeSet<NameId> = ids.iter().copied().collect();
        self.each_node_field(|id, field| {
            if is_new.contains(&id) {
                let (chunk, offset) = delta.chunk_mut(all[id.index()]);
                field.write(chunk, offset, &all);
            }
        });
        let mut signed = None;
        if let Some(mut chain) = chain {
            let nodes = nodes.iter().map(|&(node, _)| node);
            if self.continue_chain(ids.iter().copied().zip(nodes), delta, arena, &mut chain).is_none() {
                return Ok(None);
            }
            signed = self.negative_soa(Form::Signed, &mut packer).map(|soa| (soa, chain));
        }
        let negative_soa = self.negative_soa(Form::Plain, &mut packer);
        let serial = self.soa().and_then(|soa| serial_of(self.rdata(soa)));
        // `put_node` reports RRsets that are too long.
        match (negative_soa, serial) {
            (Some(negative_soa), Some(serial)) if !has_error(&diagnostics) => {
                Ok(Some(BuiltPart { nodes, negative_soa, signed, serial, diagnostics }))
            }
            _ => Err(diagnostics),
        }
    }

    /// Adds the nodes among `nodes` that belong to `chain`, and sets the proofs of all nodes. `None` if the chain
    /// cannot be continued.
    fn continue_chain(
        &self,
        new: impl Iterator<Item = (NameId, NodeIndex)> + Clone,
        delta: &mut Delta,
        arena: &[u8],
        chain: &mut DenialChain,
    ) -> Option<()> {
        let nodes = Nodes { arena, delta: Some(delta) };
        for (id, node) in new.clone() {
            let authority = self.authority(id);
            let is_shown = authority == Authority::Authoritative || authority == Authority::Delegated(id);
            match chain {
                DenialChain::Nsec(chain) if is_shown && self.has_rrset(id, Rtype::NSEC) => chain.insert(nodes, node),
                DenialChain::Nsec3(chain) if self.is_in_chain(id, chain.parameters()) => chain.insert(nodes, node),
                // No query would find it.
                _ if self.is_nsec3_owner(id) => return None,
                DenialChain::Nsec(_) | DenialChain::Nsec3(_) | DenialChain::None => {}
            }
        }
        let apex = self.names.name(self.apex);
        let has_apex = match chain {
            DenialChain::None => false,
            DenialChain::Nsec(chain) => chain.first().is_some_and(|first| nodes.get(first).name() == apex),
            DenialChain::Nsec3(chain) => chain.matching(nodes, apex).is_some(),
        };
        has_apex.then_some(())?;
        for (_, node) in new.filter(|&(id, _)| !self.is_nsec3_owner(id)) {
            for proof in [Proof::Types, Proof::NoWildcard] {
                let nodes = Nodes { arena, delta: Some(delta) };
                if let Some(target) = chain.proof_of(nodes, &nodes.get(node), proof) {
                    let (chunk, offset) = delta.chunk_mut(node);
                    layout::set_proof(chunk, offset, proof, target);
                }
            }
        }
        Some(())
    }
}
