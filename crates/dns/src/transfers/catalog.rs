//! Catalog zones (RFC 9432): reads the members in a catalog's records, and writes the text of a catalog.

use crate::text::name::{LABEL_BYTES_MAX, Name, NameBuf};
use crate::text::rtype::Rtype;
use crate::text::zonefile::Record;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::{self, Write};
use sha2::{Digest, Sha256};

/// The version of the form of catalogs (RFC 9432 §4.2.1).
const VERSION: &[u8] = b"2";
/// Bytes of a digest that become a label, two characters each.
const LABEL_DIGEST_BYTES: usize = 16;

/// The reason why a catalog must not be used (RFC 9432 §5.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatalogError {
    /// There is no TXT record at the name `version`.
    NoVersion,
    /// There are several.
    SeveralVersions,
    /// The catalog has another version, given in zone file form.
    OtherVersion(String),
    /// A member node with this label has several PTR records.
    SeveralZones(String),
    /// A member node with this label has several PTR records at `coo`.
    SeveralOwners(String),
    /// Two member nodes have this zone.
    SameZone(String),
    /// The catalog has more members than this limit.
    ManyMembers(usize),
}

impl fmt::Display for CatalogError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CatalogError::NoVersion => write!(out, "it has no version record"),
            CatalogError::SeveralVersions => write!(out, "it has several versions"),
            CatalogError::OtherVersion(version) => write!(out, "it has version {version}, but only \"2\" is supported"),
            CatalogError::SeveralZones(label) => write!(out, "its member {label} has several zones"),
            CatalogError::SeveralOwners(label) => write!(out, "its member {label} has several `coo`"),
            CatalogError::SameZone(zone) => write!(out, "it lists the zone {zone} twice"),
            CatalogError::ManyMembers(max) => write!(out, "it has more than {max} members (`catalog_members_max`)"),
        }
    }
}

/// A zone that a catalog lists.
#[derive(Clone, Debug)]
pub struct CatalogMember {
    /// The zone, in lower case.
    pub zone: NameBuf,
    /// The first label of the member node, in lower case. Another label means that the zone's state is dropped (RFC
    /// 9432 §5.4).
    pub label: Vec<u8>,
    /// The catalog that may take the member over (RFC 9432 §4.3.1), in lower case.
    pub new_owner: Option<NameBuf>,
    /// The member's groups (RFC 9432 §4.3.2).
    pub groups: Vec<Vec<u8>>,
}

/// Collects the members of a catalog from its records, in any order.
#[derive(Debug)]
pub struct CatalogReader {
    apex: NameBuf,
    apex_label_count: usize,
    members_max: usize,
    versions: Vec<Vec<u8>>,
    nodes: BTreeMap<Vec<u8>, MemberNode>,
    serial: Option<u32>,
    error: Option<CatalogError>,
}

/// The records of a member that were read so far.
#[derive(Debug, Default)]
struct MemberNode {
    zone: Option<NameBuf>,
    new_owner: Option<NameBuf>,
    groups: Vec<Vec<u8>>,
}

/// The target of a PTR record.
#[derive(Clone, Copy)]
enum NameOf {
    Zone,
    NewOwner,
}

impl CatalogReader {
    /// A reader of the catalog at `apex`, which may have `members_max` members.
    pub fn new(apex: Name<'_>, members_max: usize) -> CatalogReader {
        CatalogReader {
            apex: apex.to_owned(),
            apex_label_count: apex.labels().count(),
            members_max,
            versions: Vec::new(),
            nodes: BTreeMap::new(),
            serial: None,
            error: None,
        }
    }

    /// Adds a record. Records without a meaning in catalogs are ignored (RFC 9432 §4.1).
    pub fn add(&mut self, record: &Record<'_>) {
        if self.error.is_some() || !record.owner.is_at_or_below(self.apex.as_name()) {
            return;
        }
        let mut labels = [&[][..]; 3];
        let below_count = record.owner.labels().count() - self.apex_label_count;
        let Some(labels) = labels.get_mut(..below_count) else { return };
        labels.iter_mut().zip(record.owner.labels()).for_each(|(place, label)| *place = label);
        let is = |label: &[u8], name: &[u8]| label.eq_ignore_ascii_case(name);
        match (&*labels, record.rtype) {
            ([], Rtype::SOA) => self.serial = serial(record.rdata),
            ([version], Rtype::TXT) if is(version, b"version") => self.versions.push(text(record.rdata)),
            ([label, zones], Rtype::PTR) if is(zones, b"zones") => self.add_name(label, NameOf::Zone, record.rdata),
            ([property, label, zones], Rtype::PTR) if is(zones, b"zones") && is(property, b"coo") => {
                self.add_name(label, NameOf::NewOwner, record.rdata);
            }
            ([property, label, zones], Rtype::TXT) if is(zones, b"zones") && is(property, b"group") => {
                if let Some(node) = self.node(label) {
                    node.groups.push(text(record.rdata));
                }
            }
            _ => {}
        }
    }

    fn add_name(&mut self, label: &[u8], of: NameOf, rdata: &[u8]) {
        let Ok(name) = Name::parse(rdata) else { return };
        let shown = shown(label);
        let Some(node) = self.node(label) else { return };
        let (place, error) = match of {
            NameOf::Zone => (&mut node.zone, CatalogError::SeveralZones(shown)),
            NameOf::NewOwner => (&mut node.new_owner, CatalogError::SeveralOwners(shown)),
        };
        // A name that occurs twice, with different case, is one record (RFC 4343 §3).
        let before = place.replace(name.to_lowercase());
        if before.is_some_and(|before| !before.as_name().eq_ignore_case(name)) {
            self.error = Some(error);
        }
    }

    /// The member with this label; `None` if there are too many.
    fn node(&mut self, label: &[u8]) -> Option<&mut MemberNode> {
        let key = label.to_ascii_lowercase();
        if self.nodes.len() == self.members_max && !self.nodes.contains_key(&key) {
            self.error = Some(CatalogError::ManyMembers(self.members_max));
            return None;
        }
        Some(self.nodes.entry(key).or_default())
    }

    /// The zone's serial, if its SOA was added.
    pub fn serial(&self) -> Option<u32> {
        self.serial
    }

    /// The members, in the order of their labels.
    ///
    /// # Errors
    /// Returns an error if the catalog is broken: it must not be used.
    pub fn finish(self) -> Result<Vec<CatalogMember>, CatalogError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        match &self.versions[..] {
            [] => return Err(CatalogError::NoVersion),
            [version] if version == VERSION => {}
            [version] => return Err(CatalogError::OtherVersion(shown(version))),
            _ => return Err(CatalogError::SeveralVersions),
        }
        let mut zones = BTreeSet::new();
        let mut members = Vec::with_capacity(self.nodes.len());
        for (label, MemberNode { zone, new_owner, groups }) in self.nodes {
            // Properties without a zone have no meaning.
            let Some(zone) = zone else { continue };
            if !zones.insert(zone.as_name().as_bytes().to_vec()) {
                return Err(CatalogError::SameZone(zone.to_string()));
            }
            members.push(CatalogMember { zone, label, new_owner, groups });
        }
        Ok(members)
    }
}

/// The serial in the RDATA of a SOA.
fn serial(rdata: &[u8]) -> Option<u32> {
    let primary = Name::parse(rdata).ok()?;
    let rest = &rdata[primary.length_bytes()..];
    let mailbox = Name::parse(rest).ok()?;
    rest[mailbox.length_bytes()..].first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

/// The strings of a TXT record as one.
fn text(rdata: &[u8]) -> Vec<u8> {
    let (mut text, mut rest) = (Vec::new(), rdata);
    while let Some((&length, after)) = rest.split_first() {
        let (string, after) = after.split_at(usize::from(length).min(after.len()));
        text.extend_from_slice(string);
        rest = after;
    }
    text
}

fn shown(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// The label of `zone` in catalogs of this server: it never changes, so that no secondary drops the zone's state.
pub fn member_label(zone: Name<'_>) -> String {
    const { assert!(2 * LABEL_DIGEST_BYTES <= LABEL_BYTES_MAX) };
    let digest = Sha256::digest(zone.as_bytes().to_ascii_lowercase());
    let mut label = String::with_capacity(2 * LABEL_DIGEST_BYTES);
    for byte in &digest[..LABEL_DIGEST_BYTES] {
        // Writing to a string does not fail.
        let _ = write!(label, "{byte:02x}");
    }
    label
}

/// The text of the catalog at `apex` with these members, each with its groups.
pub fn catalog_text<'g>(
    apex: Name<'_>,
    serial: u32,
    zones: impl IntoIterator<Item = (NameBuf, &'g [Vec<u8>])>,
) -> String {
    // RFC 9432 §4.1: the NS record and the names of the SOA are not used. Secondaries ask every hour in addition to
    // NOTIFY, and the catalog expires as late as possible.
    let mut text = String::new();
    let _ = write!(
        text,
        "$ORIGIN {apex}\n@ 0 IN SOA invalid. invalid. {serial} 3600 600 2147483646 0\n@ 0 IN NS invalid.\nversion 0 IN TXT \"2\"\n"
    );
    for (zone, groups) in zones {
        let label = member_label(zone.as_name());
        let _ = writeln!(text, "{label}.zones 0 IN PTR {zone}");
        for group in groups {
            let _ = write!(text, "group.{label}.zones 0 IN TXT \"");
            for byte in group {
                // RFC 1035 §5.1
                let _ = write!(text, "\\{byte:03}");
            }
            text.push_str("\"\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::zonefile::{Entry, Parser, ParserLimits};
    use alloc::format;
    use alloc::vec;

    const APEX: &[u8] = b"\x07catalog\x07example\0";

    fn read(text: &str, members_max: usize) -> Result<Vec<String>, CatalogError> {
        let apex = Name::parse(APEX).expect("a name");
        let mut reader = CatalogReader::new(apex, members_max);
        let mut parser = Parser::new("test".into(), text.as_bytes().to_vec(), apex, ParserLimits::default());
        while let Some(entry) = parser.next() {
            let Ok(Entry::Record(record)) = entry else { panic!("{text}: {entry:?}") };
            reader.add(&record);
        }
        let shown = |member: CatalogMember| {
            let CatalogMember { zone, label, new_owner, groups } = member;
            let new_owner = new_owner.map_or(String::new(), |owner| format!(" -> {owner}"));
            let groups: String = groups.iter().map(|group| format!(" {}", super::shown(group))).collect();
            format!("{} {zone}{new_owner}{groups}", super::shown(&label))
        };
        Ok(reader.finish()?.into_iter().map(shown).collect())
    }

    const START: &str = "$TTL 0\n@ SOA invalid. invalid. 1 3600 600 2147483646 0\n@ NS invalid.\n";

    #[track_caller]
    fn check(records: &str, expected: &[&str]) {
        let text = format!("{START}version TXT 2\n{records}");
        assert_eq!(read(&text, 3).expect("not broken"), expected, "{records}");
    }

    #[track_caller]
    fn check_broken(records: &str, expected: CatalogError) {
        assert_eq!(read(&format!("{START}{records}"), 3), Err(expected), "{records}");
    }

    #[test]
    fn members_have_their_zones_owners_and_groups() {
        check("", &[]);
        check("B.Zones PTR B.Example.\na.ZONES PTR a.example.\n", &["a a.example.", "b b.example."]);
        check("a.zones PTR a.example.\ncoo.A.zones PTR Other.\n", &["a a.example. -> other."]);
        check("a.zones PTR a.example.\ngroup.a.zones TXT \"one\"\ngroup.a.zones TXT t wo\n", &["a a.example. one two"]);
        // Unknown properties and names, and properties without a zone, are ignored.
        check(
            "a.zones TXT x\nx.ext.a.zones TXT x\nprimaries.ext A 192.0.2.1\nzones PTR x.\na PTR x.\nversion PTR x.\n\
             group.b.zones TXT x\na.zones PTR .\nother.a.zones PTR x.\n",
            &["a ."],
        );
    }

    #[test]
    fn broken_catalogs_are_recognized() {
        check_broken("", CatalogError::NoVersion);
        check_broken("version.zones TXT 2\n", CatalogError::NoVersion);
        check_broken("version TXT 1\n", CatalogError::OtherVersion("1".into()));
        check_broken("version TXT 1\nversion TXT 2\n", CatalogError::SeveralVersions);
        let version = "version TXT 2\n";
        check_broken(&format!("{version}A.zones PTR a.\na.zones PTR b.\n"), CatalogError::SeveralZones("a".into()));
        check_broken(
            &format!("{version}a.zones PTR a.\ncoo.a.zones PTR x.\ncoo.a.zones PTR y.\n"),
            CatalogError::SeveralOwners("a".into()),
        );
        check_broken(&format!("{version}a.zones PTR z.\nb.zones PTR Z.\n"), CatalogError::SameZone("z.".into()));
        let members =
            |count: usize| -> String { (0..count).map(|index| format!("m{index}.zones PTR z{index}.\n")).collect() };
        check(&members(3), &["m0 z0.", "m1 z1.", "m2 z2."]);
        check_broken(&format!("{version}{}", members(4)), CatalogError::ManyMembers(3));
    }

    #[test]
    fn catalog_that_was_written_is_read() {
        let apex = Name::parse(APEX).expect("a name");
        let names = [&b"\x01a\x07example\0"[..], b"\x04a.\x01\"\x07example\0", b"\0"];
        let zones = || names.iter().map(|name| Name::parse(name).expect("a name").to_owned());
        let groups = [vec![], vec![b"one".to_vec(), b"t\"w\\ o".to_vec()], vec![b"root".to_vec()]];
        let text = catalog_text(apex, 7, zones().zip(groups.iter().map(Vec::as_slice)));
        let shown_groups = |groups: &Vec<Vec<u8>>| groups.iter().map(|group| format!(" {}", shown(group))).collect();
        let mut expected: Vec<String> = zones()
            .zip(groups.iter().map(shown_groups))
            .map(|(zone, groups): (_, String)| format!("{} {zone}{groups}", member_label(zone.as_name())))
            .collect();
        expected.sort();
        assert_eq!(read(&text, 3), Ok(expected));
        let upper = Name::parse(b"\x01A\x07EXAMPLE\0").expect("a name");
        assert_eq!(member_label(upper), member_label(Name::parse(names[0]).expect("a name")));
        assert_eq!(read(&catalog_text(apex, 7, vec![]), 3), Ok(vec![]));
    }
}
