//! Catalogs of any content: what is written is read again, and nothing panics.

use super::support::zone_text::name_bytes;
use proptest::prelude::*;
use sanderling_dns::catalog::{CatalogReader, catalog_text, member_label};
use sanderling_dns::zonefile::{Entry, Parser, ParserLimits};
use sanderling_dns::{Name, NameBuf};
use std::collections::BTreeSet;

const APEX: &str = "catalog.example.";

fn read(text: String, members_max: usize) -> CatalogReader {
    let apex = name_bytes(APEX);
    let apex = Name::parse(&apex).expect("a name");
    let mut reader = CatalogReader::new(apex, members_max);
    let mut parser = Parser::new("catalog".to_owned(), text.into_bytes(), apex, ParserLimits::default());
    while let Some(entry) = parser.next() {
        if let Ok(Entry::Record(record)) = entry {
            reader.add(&record);
        }
    }
    reader
}

proptest! {
    #[test]
    fn catalog_that_was_written_is_read(
        labels in proptest::collection::btree_set(proptest::collection::vec(any::<u8>(), 1..=63), 0..40),
        serial in any::<u32>(),
    ) {
        let parent = name_bytes("test.");
        let name = |label: &Vec<u8>| NameBuf::child(label, Name::parse(&parent).expect("a name")).expect("short enough");
        let zones: BTreeSet<Vec<u8>> =
            labels.iter().map(|label| name(label).as_name().as_bytes().to_ascii_lowercase()).collect();
        let names = || zones.iter().map(|zone| (Name::parse(zone).expect("a name").to_owned(), &[][..]));
        let apex = name_bytes(APEX);
        let text = catalog_text(Name::parse(&apex).expect("a name"), serial, names());
        let reader = read(text.clone(), zones.len().max(1));
        prop_assert_eq!(reader.serial(), Some(serial));
        let members = reader.finish().expect("not broken");
        let found: BTreeSet<Vec<u8>> = members.iter().map(|member| member.zone.as_name().as_bytes().to_vec()).collect();
        prop_assert_eq!(&found, &zones);
        for member in &members {
            prop_assert_eq!(&member.label, &member_label(member.zone.as_name()).into_bytes());
        }
        if zones.len() > 1 {
            prop_assert!(read(text, zones.len() - 1).finish().is_err());
        }
    }

    #[test]
    fn members_are_distinct_whatever_the_records_are(
        lines in proptest::collection::vec("((coo|group|x)\\.)?(a|b|C)?\\.?(zones|version)? (PTR|TXT|A) (a|b|2|1|192\\.0\\.2\\.1)(\\.test\\.)?", 0..12),
        members_max in 1_usize..4,
    ) {
        let text = format!("$TTL 0\n@ SOA a. b. 1 1 1 1 1\n@ NS a.\nversion TXT 2\n{}\n", lines.join("\n"));
        if let Ok(members) = read(text, members_max).finish() {
            prop_assert!(members.len() <= members_max);
            let zones: BTreeSet<&[u8]> = members.iter().map(|member| member.zone.as_name().as_bytes()).collect();
            prop_assert_eq!(zones.len(), members.len());
        }
    }
}
