//! The members of catalogs (RFC 9432): decides, from the current members of the catalogs and their earlier ones, which
//! zones are added, removed, reset, or handed from one catalog to another. This module does no I/O.

use sanderling_config::{DomainName, MemberRefusal};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

/// A zone that a catalog lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listing {
    pub(crate) zone: DomainName,
    pub(crate) label: String,
    /// The catalog that may take it over.
    pub(crate) new_owner: Option<DomainName>,
    pub(crate) groups: Vec<String>,
}

/// The members of each catalog, by its name. `None` if a catalog is broken, expired, or was not transferred yet: its
/// members do not change (RFC 9432 §5.1).
pub(crate) type Listings = BTreeMap<DomainName, Option<Vec<Listing>>>;

/// A zone that a catalog has brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// The catalog that owns it.
    pub(crate) catalog: DomainName,
    pub(crate) label: String,
    pub(crate) groups: Vec<String>,
}

/// The zones that catalogs have brought, by their names.
pub(crate) type Members = BTreeMap<DomainName, Member>;

/// A zone that a catalog lists but that is ignored, and the cause (RFC 9432 §5.2).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Clash {
    pub(crate) catalog: DomainName,
    pub(crate) zone: DomainName,
    pub(crate) cause: ClashCause,
}

/// The reason why the zone is ignored.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ClashCause {
    /// This server's configuration defines the zone.
    Configured,
    /// Another catalog owns the zone.
    Owned(DomainName),
    /// The operator has not allowed the catalog to add the zone.
    Refused(MemberRefusal),
}

impl fmt::Display for Clash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Clash { catalog, zone, cause } = self;
        match cause {
            ClashCause::Owned(owner) => write!(
                out,
                "catalog {catalog}: ignoring the zone {zone}, which belongs to the catalog {owner}; it changes over \
                    when {owner} has a property `coo` with {catalog}"
            ),
            ClashCause::Configured => {
                write!(out, "catalog {catalog}: ignoring the zone {zone}, which is in the configuration")
            }
            ClashCause::Refused(refusal) => write!(out, "catalog {catalog}: ignoring the zone {zone}: {refusal}"),
        }
    }
}

/// The action to take.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) members: Members,
    /// The zones whose state is dropped. Some of these are members again.
    pub(crate) dropped: Vec<DomainName>,
    pub(crate) clashes: Vec<Clash>,
}

/// The fate of `current`. A zone with a `refusal` is not taken from that catalog.
pub(crate) fn reconcile(
    current: &Members,
    listings: &Listings,
    refusal: impl Fn(&DomainName, &DomainName) -> Option<ClashCause>,
) -> Outcome {
    let by_zone: BTreeMap<&DomainName, BTreeMap<&DomainName, &Listing>> = listings
        .iter()
        .map(|(catalog, listed)| (catalog, listed.iter().flatten().map(|one| (&one.zone, one)).collect()))
        .collect();
    let find =
        |catalog: &DomainName, zone: &DomainName| by_zone.get(catalog).and_then(|listed| listed.get(zone)).copied();
    let mut outcome = Outcome::default();
    for (zone, member) in current {
        let allowed = |catalog| find(catalog, zone).filter(|_| refusal(catalog, zone).is_none());
        let listed = allowed(&member.catalog).map(|listing| (&member.catalog, listing));
        let last = listed.map(|listed| last_owner(listed, allowed, listings.len()));
        let next = match (last, listings.get(&member.catalog)) {
            _ if refusal(&member.catalog, zone).is_some() => None,
            (Some((owner, listing)), _) => Some(listing.member_of(owner)),
            (None, Some(None)) => Some(member.clone()),
            (None, Some(Some(_)) | None) => None,
        };
        // RFC 9432 §5.3, §5.4.
        if next.as_ref().is_none_or(|next| next.label != member.label) {
            outcome.dropped.push(zone.clone());
        }
        outcome.members.extend(next.map(|next| (zone.clone(), next)));
    }
    for (catalog, listed) in listings {
        for listing in listed.iter().flatten() {
            let clash = |cause| Clash { catalog: catalog.clone(), zone: listing.zone.clone(), cause };
            if let Some(cause) = refusal(catalog, &listing.zone) {
                outcome.clashes.push(clash(cause));
                continue;
            }
            match outcome.members.entry(listing.zone.clone()) {
                Entry::Vacant(place) => drop(place.insert(listing.member_of(catalog))),
                Entry::Occupied(place) if place.get().catalog == *catalog => {}
                // The old owner of a zone that has changed over may still list it.
                Entry::Occupied(place) if listing.new_owner.as_ref() == Some(&place.get().catalog) => {}
                Entry::Occupied(place) => outcome.clashes.push(clash(ClashCause::Owned(place.get().catalog.clone()))),
            }
        }
    }
    outcome
}

/// A zone's final catalog, and its entry for the zone: the catalog in the owner's `coo` follows the owner if that
/// catalog lists the zone as well (RFC 9432 §4.3.1). If they form a circle, the first catalog keeps the zone.
fn last_owner<'l>(
    first: (&'l DomainName, &'l Listing),
    find: impl Fn(&'l DomainName) -> Option<&'l Listing>,
    catalogs_max: usize,
) -> (&'l DomainName, &'l Listing) {
    let mut last = first;
    for _ in 0..=catalogs_max {
        let next = last.1.new_owner.as_ref().and_then(|owner| Some((owner, find(owner)?)));
        match next {
            Some(next) => last = next,
            None => return last,
        }
    }
    first
}

impl Listing {
    fn member_of(&self, catalog: &DomainName) -> Member {
        Member { catalog: catalog.clone(), label: self.label.clone(), groups: self.groups.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> DomainName {
        DomainName::parse(text).expect("a name")
    }

    /// `ZONE LABEL`, or `ZONE LABEL > CATALOG`, or `ZONE LABEL + GROUP`.
    fn listing(text: &str) -> Listing {
        let words: Vec<&str> = text.split_whitespace().collect();
        let after = |sign| words.iter().position(|word| *word == sign).map(|index| words[index + 1]);
        Listing {
            zone: name(words[0]),
            label: words[1].to_owned(),
            new_owner: after(">").map(name),
            groups: after("+").map(str::to_owned).into_iter().collect(),
        }
    }

    /// The server has the zone `own`, and does not take `n.own` from the catalog `c`.
    fn refusal(catalog: &DomainName, zone: &DomainName) -> Option<ClashCause> {
        match (catalog.as_str(), zone.as_str()) {
            (_, "own") => Some(ClashCause::Configured),
            ("c", "n.own") => Some(ClashCause::Refused(MemberRefusal::BelowOwn("own".to_owned()))),
            _ => None,
        }
    }

    fn shown(members: &Members) -> String {
        let one = |(zone, member): (&DomainName, &Member)| {
            let groups: String = member.groups.iter().map(|group| format!("+{group}")).collect();
            format!("{zone}:{}/{}{groups}", member.catalog, member.label)
        };
        members.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    /// The successive versions of the catalogs `c` and `d`; `!` is a broken catalog, and `-` a catalog that is not
    /// configured.
    #[track_caller]
    fn check(versions: &[([&str; 2], &str, &str)]) {
        let mut members = Members::new();
        for ([c, d], expected, expected_dropped) in versions {
            let mut listings = Listings::new();
            for (catalog, text) in [("c", c), ("d", d)] {
                match *text {
                    "-" => {}
                    "!" => drop(listings.insert(name(catalog), None)),
                    text => {
                        let listed = text.split(',').filter(|one| !one.trim().is_empty()).map(listing).collect();
                        listings.insert(name(catalog), Some(listed));
                    }
                }
            }
            let outcome = reconcile(&members, &listings, refusal);
            assert_eq!(shown(&outcome.members), *expected, "{c} | {d}");
            let dropped: Vec<&str> = outcome.dropped.iter().map(DomainName::as_str).collect();
            assert_eq!(dropped.join(" "), *expected_dropped, "{c} | {d}");
            // Doing it again changes nothing.
            let again = reconcile(&outcome.members, &listings, refusal);
            assert_eq!((&again.members, again.dropped.len()), (&outcome.members, 0), "{c} | {d}");
            members = outcome.members;
        }
    }

    #[test]
    fn members_are_added_removed_and_reset() {
        check(&[
            (["a 1", ""], "a:c/1", ""),
            (["a 1, b 2", ""], "a:c/1 b:c/2", ""),
            (["a 9, b 2 + g", ""], "a:c/9 b:c/2+g", "a"),
            (["b 2", ""], "b:c/2", "a"),
            (["", ""], "", "b"),
        ]);
    }

    #[test]
    fn broken_catalog_changes_nothing_and_one_without_configuration_is_as_if_empty() {
        check(&[
            (["a 1", "b 2"], "a:c/1 b:d/2", ""),
            (["!", "b 2, e 3"], "a:c/1 b:d/2 e:d/3", ""),
            (["!", "!"], "a:c/1 b:d/2 e:d/3", ""),
            (["a 1", "-"], "a:c/1", "b e"),
        ]);
    }

    #[test]
    fn zone_changes_its_catalog_only_if_both_say_so() {
        // The first catalog keeps the zone.
        check(&[(["a 1", ""], "a:c/1", ""), (["a 1", "a 1"], "a:c/1", ""), (["", "a 1"], "a:d/1", "a")]);
        check(&[(["a 1", ""], "a:c/1", ""), (["a 1 > d", ""], "a:c/1", ""), (["a 1 > d", "a 1"], "a:d/1", "")]);
        // The old owner continues to list it, or removes it.
        check(&[(["a 1", ""], "a:c/1", ""), (["a 1 > d", "a 1"], "a:d/1", ""), (["", "a 1"], "a:d/1", "")]);
        // A changed label drops the zone's state.
        check(&[(["a 1", ""], "a:c/1", ""), (["a 1 > d", "a 2"], "a:d/2", "a")]);
        // A circle.
        check(&[(["a 1", ""], "a:c/1", ""), (["a 1 > d", "a 2 > c"], "a:c/1", "")]);
        // A catalog that `coo` does not name, or a broken catalog, does not get the zone.
        check(&[(["a 1", ""], "a:c/1", ""), (["a 1 > x", "a 1"], "a:c/1", "")]);
        check(&[(["a 1", ""], "a:c/1", ""), (["a 1 > d", "!"], "a:c/1", "")]);
        check(&[(["a 1", ""], "a:c/1", ""), (["!", "a 1"], "a:c/1", "")]);
    }

    #[test]
    fn refused_zone_is_ignored_and_dropped_and_the_other_zones_are_taken() {
        check(&[(["a 1, n.own 2", ""], "a:c/1", ""), (["a 1, n.own 2", "n.own 3"], "a:c/1 n.own:d/3", "")]);
        // A zone does not move to a catalog that must not list it, and is dropped if it was accepted before.
        check(&[(["n.own 2", "n.own 3 > c"], "n.own:d/3", "")]);
        let member = Member { catalog: name("c"), label: "2".to_owned(), groups: Vec::new() };
        let outcome = reconcile(&[(name("n.own"), member)].into(), &[(name("c"), None)].into(), refusal);
        assert_eq!((shown(&outcome.members).as_str(), outcome.dropped.as_slice()), ("", &[name("n.own")][..]));
        let listings: Listings = [(name("c"), Some(vec![listing("n.own 2")]))].into();
        let texts: Vec<String> =
            reconcile(&Members::new(), &listings, refusal).clashes.iter().map(ToString::to_string).collect();
        let text = "catalog c: ignoring the zone n.own: it is below own, which is in the configuration; to accept it \
                    from the catalog, add it to `members_below`";
        assert_eq!(texts, [text]);
    }

    #[test]
    fn zones_of_the_configuration_are_ignored_and_clashes_reported() {
        let listings: Listings =
            [("c", "own 1"), ("d", "a 1")].map(|(catalog, text)| (name(catalog), Some(vec![listing(text)]))).into();
        let member = Member { catalog: name("c"), label: "1".to_owned(), groups: Vec::new() };
        let current: Members = [(name("a"), member.clone()), (name("own"), member)].into();
        let listings_without_c: Listings = [(name("c"), None), (name("d"), listings[&name("d")].clone())].into();
        let outcome = reconcile(&current, &listings_without_c, refusal);
        assert_eq!((shown(&outcome.members).as_str(), outcome.dropped.as_slice()), ("a:c/1", &[name("own")][..]));
        let texts: Vec<String> = outcome.clashes.iter().map(ToString::to_string).collect();
        let text = "catalog d: ignoring the zone a, which belongs to the catalog c; it changes over when c has a \
                    property `coo` with d";
        assert_eq!(texts, [text]);
        let outcome = reconcile(&Members::new(), &listings, refusal);
        assert_eq!(shown(&outcome.members), "a:d/1");
        let texts: Vec<String> = outcome.clashes.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["catalog c: ignoring the zone own, which is in the configuration"]);
    }
}
