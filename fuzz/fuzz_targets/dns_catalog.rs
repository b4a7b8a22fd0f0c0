//! Any text as a catalog zone: nothing panics, and what a catalog lists is in one that is written from it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sanderling_dns::catalog::{CatalogMember, CatalogReader, catalog_text};
use sanderling_dns::zonefile::{Entry, Parser, ParserLimits};
use sanderling_dns::{Name};
use std::collections::BTreeSet;

const APEX: &[u8] = b"\x01c\0";
const MEMBERS_MAX: usize = 100;

fn read(text: &[u8]) -> Option<Vec<CatalogMember>> {
    let apex = Name::parse(APEX).expect("an apex");
    let mut reader = CatalogReader::new(apex, MEMBERS_MAX);
    let mut parser = Parser::new("c.zone".into(), text.to_vec(), apex, ParserLimits::default());
    while let Some(entry) = parser.next() {
        if let Ok(Entry::Record(record)) = entry {
            reader.add(&record);
        }
    }
    reader.finish().ok()
}

/// The groups of each member that are no longer than one string.
fn short_groups(members: &[CatalogMember]) -> Vec<Vec<Vec<u8>>> {
    let short = |member: &CatalogMember| member.groups.iter().filter(|group| group.len() <= 255).cloned().collect();
    members.iter().map(short).collect()
}

fuzz_target!(|input: &[u8]| {
    let with_version = [b"version 0 TXT 2\n", input].concat();
    for text in [input, &with_version] {
        let Some(members) = read(text) else { continue };
        assert!(members.len() <= MEMBERS_MAX);
        let zones = |members: &[CatalogMember]| -> BTreeSet<(Vec<u8>, BTreeSet<Vec<u8>>)> {
            let zone = |member: &CatalogMember| member.zone.as_name().as_bytes().to_vec();
            let groups = short_groups(members).into_iter().map(BTreeSet::from_iter);
            members.iter().map(zone).zip(groups).collect()
        };
        let short = short_groups(&members);
        let names = members.iter().map(|member| member.zone).zip(short.iter().map(Vec::as_slice));
        let written = catalog_text(Name::parse(APEX).expect("an apex"), 1, names);
        let again = read(written.as_bytes()).expect("not broken");
        assert_eq!(zones(&again), zones(&members));
    }
});
