//! Answers from a signed zone for clients that ask for signatures (RFC 4035 §3.1).

use crate::answers::alias_chain::ChainWriter;
use crate::answers::proofs::{PROOFS_OF_LOOKUP_MAX, Proofs};
use crate::messages::message::{MessageFull, Rcode, ReplyWriter, Section};
use crate::messages::query::ParsedQuery;
use crate::messages::zone_map::FoundZone;
use crate::zones::layout::Form;
use crate::zones::zone::Lookup;

/// Writes all sections. [`ChainWriter`] writes answers that are not ready in packed form.
pub(crate) fn put<'z>(
    query: &ParsedQuery<'z, '_>,
    found: &FoundZone<'z>,
    reply: &mut ReplyWriter<'_>,
) -> Result<Rcode, MessageFull> {
    let question = &query.question;
    let qname_bytes = question.qname.length_bytes();
    let zone = found.zone;
    let place = zone.place(question.qname, found.hashes);
    let lookup = zone.lookup_at(&place, question.qtype, Form::Signed);
    if !matches!(lookup, Lookup::Referral(_)) {
        reply.set_authoritative();
    }
    let rcode = match &lookup {
        Lookup::Answer(rrset) if place.exists => {
            let owner = rrset.owner_in_question(qname_bytes);
            reply.put_packed(Section::Answer, (rrset.owner, &rrset.rrset), owner)?;
            return Ok(Rcode::NoError);
        }
        Lookup::Referral(rrset) if !zone.proves_delegation_apart(&zone.node(rrset.node)) => {
            let owner = rrset.owner_in_question(qname_bytes);
            reply.put_packed(Section::Authority, (rrset.owner, &rrset.rrset), owner)?;
            return Ok(Rcode::NoError);
        }
        Lookup::Answer(_) | Lookup::Referral(_) | Lookup::Cname(_) | Lookup::Dname(_) => {
            return ChainWriter::put(query, found, Some(&place), &lookup, reply);
        }
        Lookup::Nodata => Rcode::NoError,
        Lookup::Nxdomain => Rcode::NxDomain,
    };
    let mut proofs = Proofs::<PROOFS_OF_LOOKUP_MAX>::new();
    proofs.add_for(zone, &place, question.qname, &lookup);
    if put_negative(found, &proofs, qname_bytes, reply).is_err() {
        reply.truncate();
    }
    Ok(rcode)
}

/// Writes the SOA and the proofs of a negative answer.
fn put_negative(
    found: &FoundZone<'_>,
    proofs: &Proofs<'_, PROOFS_OF_LOOKUP_MAX>,
    qname_bytes: usize,
    reply: &mut ReplyWriter<'_>,
) -> Result<(), MessageFull> {
    let soa = found.zone.negative_soa(Form::Signed);
    let apex = soa.owner_in_question(qname_bytes);
    reply.put_packed(Section::Authority, (soa.owner, &soa.rrset), apex)?;
    for proof in proofs.rrsets() {
        reply.put_below(Section::Authority, &proof, apex)?;
    }
    Ok(())
}
