//! Collects the NSEC or NSEC3 records that a reply from a signed zone needs.

use crate::text::name::Name;
use crate::text::rtype::Rtype;
use crate::zones::denial::{DenialChain, Nsec3Chain};
use crate::zones::layout::{Form, Node, NodeIndex, Proof};
use crate::zones::zone::{FoundRrset, Lookup, Place, Zone};

/// Records that the result of one lookup needs: for the closest encloser, the next closer name and the wildcard
/// (RFC 5155 §7.2.2, §7.2.5).
pub(crate) const PROOFS_OF_LOOKUP_MAX: usize = 3;

/// The proofs of one reply, each once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proofs<'z, const MAX: usize> {
    records: [Option<(&'z Zone, NodeIndex)>; MAX],
    count: usize,
}

impl<'z, const MAX: usize> Proofs<'z, MAX> {
    pub(crate) fn new() -> Proofs<'z, MAX> {
        Proofs { records: [None; MAX], count: 0 }
    }

    /// The NSEC or NSEC3 RRsets with their signatures.
    pub(crate) fn rrsets(&self) -> impl Iterator<Item = FoundRrset<'z>> {
        self.records[..self.count].iter().flatten().filter_map(|&(zone, node)| {
            let node = zone.node(node);
            let is_nsec3 = matches!(zone.denial(), DenialChain::Nsec3(_));
            let rrset = node.rrset_in(if is_nsec3 { Rtype::NSEC3 } else { Rtype::NSEC }, Form::Signed)?;
            Some(FoundRrset { owner: node.name(), rrset, node: node.index })
        })
    }

    /// Adds the proofs for `lookup`, the result for `name`, which is at `place`.
    pub(crate) fn add_for(&mut self, zone: &'z Zone, place: &Place<'z>, name: Name<'_>, lookup: &Lookup<'z>) {
        match lookup {
            Lookup::Dname(_) => {}
            Lookup::Answer(_) | Lookup::Cname(_) => {
                // RFC 4035 §3.1.3.3, RFC 5155 §7.2.6: no name is closer to QNAME than the wildcard.
                if !place.exists {
                    self.add_covering(zone, place.node, name);
                }
            }
            Lookup::Referral(found) => {
                if zone.proves_delegation_apart(&zone.node(found.node)) {
                    self.add_types(zone, zone.node(found.node));
                }
            }
            Lookup::Nodata if place.exists => self.add_types(zone, place.node),
            // RFC 4035 §3.1.3.4, RFC 5155 §7.2.5.
            Lookup::Nodata => {
                let encloser = self.add_name_error(zone, place.node, name);
                let wildcard =
                    zone.wildcard_child(&place.node).and_then(|wildcard| zone.proof(&wildcard, Proof::Types));
                // The record that covers the wildcard, if Opt-Out leaves it out of the chain.
                self.add(zone, wildcard.or_else(|| zone.proof(&encloser, Proof::NoWildcard)));
            }
            // RFC 4035 §3.1.3.2, RFC 5155 §7.2.2.
            Lookup::Nxdomain => {
                let encloser = self.add_name_error(zone, place.node, name);
                self.add(zone, zone.proof(&encloser, Proof::NoWildcard));
            }
        }
    }

    fn add(&mut self, zone: &'z Zone, node: Option<NodeIndex>) {
        let Some(node) = node else { return };
        let is_it = |other: &Option<(&Zone, NodeIndex)>| {
            other.is_some_and(|(of, other)| core::ptr::eq(of, zone) && other == node)
        };
        if !self.records[..self.count].iter().any(is_it) && self.count < MAX {
            self.records[self.count] = Some((zone, node));
            self.count += 1;
        }
    }

    /// Adds the proof of the types that the name of `node` has.
    fn add_types(&mut self, zone: &'z Zone, node: Node<'z>) {
        match (zone.proof(&node, Proof::Types), zone.denial()) {
            (Some(proof), _) => self.add(zone, Some(proof)),
            // RFC 5155 §7.2.4 and §7.2.7: the name is not in the chain, by Opt-Out.
            (None, DenialChain::Nsec3(chain)) => {
                self.add_closest_encloser(zone, chain, node, node.name());
            }
            (None, DenialChain::Nsec(_) | DenialChain::None) => {}
        }
    }

    /// Adds the proof that `name` does not exist, and returns its closest encloser for which there is a proof.
    /// `encloser` is the closest one.
    fn add_name_error(&mut self, zone: &'z Zone, encloser: Node<'z>, name: Name<'_>) -> Node<'z> {
        match zone.denial() {
            DenialChain::Nsec3(chain) => self.add_closest_encloser(zone, chain, encloser, name),
            DenialChain::Nsec(_) | DenialChain::None => {
                self.add_covering(zone, encloser, name);
                encloser
            }
        }
    }

    /// Adds the record that covers `name` or, of NSEC3 records, its ancestor next to `encloser`.
    fn add_covering(&mut self, zone: &'z Zone, encloser: Node<'z>, name: Name<'_>) {
        let name = name.to_lowercase();
        let covering = match zone.denial() {
            DenialChain::None => None,
            DenialChain::Nsec(chain) => chain.covering(zone.nodes(), name.as_name()),
            DenialChain::Nsec3(chain) => chain.covering(zone.nodes(), next_closer(name.as_name(), encloser.name())),
        };
        self.add(zone, covering);
    }

    /// Adds the proof of the closest encloser of `name` (RFC 5155 §7.2.1): its record, and the record that covers the
    /// next closer name. Returns the closest encloser with a record: `encloser` or one of its ancestors.
    fn add_closest_encloser(
        &mut self,
        zone: &'z Zone,
        chain: &'z Nsec3Chain,
        encloser: Node<'z>,
        name: Name<'_>,
    ) -> Node<'z> {
        let mut encloser = encloser;
        let proof = loop {
            let proof = zone.proof(&encloser, Proof::Types);
            if proof.is_some() {
                break proof;
            }
            let Some(parent) = zone.parent(&encloser) else { return encloser };
            encloser = parent;
        };
        self.add(zone, proof);
        let name = name.to_lowercase();
        self.add(zone, chain.covering(zone.nodes(), next_closer(name.as_name(), encloser.name())));
        encloser
    }
}

/// The suffix of `name` with one label more than `encloser`.
fn next_closer<'n>(name: Name<'n>, encloser: Name<'_>) -> Name<'n> {
    let mut name = name;
    while let Some(parent) = name.parent().filter(|parent| parent.length_bytes() > encloser.length_bytes()) {
        name = parent;
    }
    name
}
