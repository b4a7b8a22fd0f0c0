//! Zones and sites that are reloaded one by one.

use super::*;
use sanderling_config::ConfigSource;
use sanderling_dns::change_log::put_change;
use sanderling_dns::journal::{RecordRole, ZoneChangeBuilder};
use sanderling_dns::zonefile::{Entry, Parser, ParserLimits};
use sanderling_dns::{Name, NameBuf};
use sanderling_ipc::catalog::{ListedMember, MemberList};
use sanderling_zone_files::ZoneText;
use std::fs;

/// A folder with a configuration of zones.
struct Fixture {
    folder: tempfile::TempDir,
    loader: Loader,
}

impl Fixture {
    fn new(zone_count: usize) -> Fixture {
        let fixture = Fixture { folder: tempfile::tempdir().unwrap(), loader: Loader::new() };
        fs::create_dir(fixture.path("public")).unwrap();
        (0..zone_count).for_each(|index| fixture.write(index, 1));
        let domains = (0..zone_count).map(|index| format!("[domain.\"z{index}.example\"]\nzone = \"z{index}.zone\"\n"));
        let site = "[domain.\"site.example\"]\nsite = \"public\"\n";
        fs::write(fixture.path("sanderling.toml"), domains.collect::<String>() + site).unwrap();
        fixture
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, index: usize, serial: u32) {
        let text = format!("@ 60 SOA ns host {serial} 1 1 1 1\n@ 60 NS ns\nns 60 A 192.0.2.1\n");
        fs::write(self.path(&format!("z{index}.zone")), text).unwrap();
    }

    fn load(&mut self) -> Loaded {
        let source = ConfigSource::File(self.path("sanderling.toml"));
        let config = source.load().unwrap();
        self.loader.load(&config, &[])
    }
}

#[track_caller]
fn check(loaded: &Loaded, index: usize, serial: Option<u32>, problem: Option<&str>) {
    let state = &loaded.load_status.zones[index];
    assert_eq!(state.serial, serial, "{state:?}");
    match (problem, &state.problem) {
        (Some(part), Some(text)) => assert!(text.contains(part), "{text}"),
        (expected, found) => assert_eq!(found.as_deref(), expected),
    }
    let apex = NameBuf::joined(&[format!("z{index}").as_bytes(), b"example"], Name::ROOT).unwrap();
    let served = match loaded.snapshot.zones.get(apex.as_name()).expect("an entry") {
        ZoneEntry::Served(zone) | ZoneEntry::Restricted(zone) => Some(zone.serial()),
        ZoneEntry::Unavailable { .. } => None,
    };
    assert_eq!(served, serial);
}

#[test]
fn only_zones_whose_files_have_changed_are_parsed() {
    let mut fixture = Fixture::new(5);
    assert_eq!(fixture.load().changes.parsed_count, 5);
    assert_eq!(fixture.load().changes.parsed_count, 5);
    fixture.write(3, 2);
    let loaded = fixture.load();
    assert_eq!(loaded.changes.parsed_count, 6);
    assert_eq!(loaded.changes.to_text(), "zones: 0 added, 1 changed, 0 removed\n  z3.example: serial 1 -> 2\n");
    check(&loaded, 3, Some(2), None);
}

#[test]
fn forced_zone_that_does_not_exist_is_a_problem() {
    let mut fixture = Fixture::new(1);
    let config = ConfigSource::File(fixture.path("sanderling.toml")).load().unwrap();
    let forced = ["z0.example", "z9.example"].map(|name| DomainName::parse(name).unwrap());
    let loaded = fixture.loader.load(&config, &forced);
    let errors: Vec<String> = loaded.errors.iter().map(ToString::to_string).collect();
    assert_eq!(errors, ["--force-zone z9.example: there is no zone z9.example; did you mean z0.example?"]);
    assert_eq!(loaded.load_status.problem_count(), 1);
    assert_eq!(fixture.load().load_status.problem_count(), 0);
}

#[test]
fn server_reports_the_first_warning_of_a_zone_and_check_all_of_them() {
    for (kept, counts) in [(None, [1, 3]), (Some(KeptZones::from_segments(&[])), [1, 1])] {
        let is_server = kept.is_some();
        let mut fixture = Fixture::new(3);
        fixture.loader.kept = kept;
        for (index, count) in [(1, 1), (2, 3)] {
            fixture.write(index, 1);
            let path = fixture.path(&format!("z{index}.zone"));
            let text = fs::read_to_string(&path).unwrap() + &"other.test. 60 A 192.0.2.1\n".repeat(count);
            fs::write(path, text).unwrap();
        }
        let warnings: Vec<String> = fixture.load().warnings.iter().map(ToString::to_string).collect();
        let of_zone = |name: &str| warnings.iter().filter(|warning| warning.contains(name)).count();
        assert_eq!(["z0.zone:", "z1.zone:", "z2.zone:"].map(of_zone), [0, counts[0], counts[1]], "{warnings:?}");
        let last = warnings.last().expect("warnings");
        assert_eq!(last.contains("the zone has 2 more warnings; `sanderling check` shows"), is_server, "{last}");
        assert!(!warnings[0].contains("more warning"), "{}", warnings[0]);
    }
}

#[test]
fn a_broken_zone_keeps_its_last_good_version_and_affects_no_other_one() {
    let mut fixture = Fixture::new(2);
    fixture.load();
    fs::write(fixture.path("z0.zone"), "bad A 1.2.3\n").unwrap();
    fixture.write(1, 2);
    let loaded = fixture.load();
    check(&loaded, 0, Some(1), Some("z0.zone:1:7:"));
    check(&loaded, 1, Some(2), None);
    assert_eq!(loaded.load_status.problem_count(), 1);
    assert_eq!(loaded.load_status.problems_text(), "zone z0.example: not reloaded, keeping serial 1\n");
    // The file is read again each time, until it is correct.
    assert_eq!(fixture.load().load_status.problem_count(), 1);
    fixture.write(0, 3);
    check(&fixture.load(), 0, Some(3), None);
    fs::remove_file(fixture.path("z0.zone")).unwrap();
    check(&fixture.load(), 0, Some(3), Some("does not exist"));
}

/// The zone that a compromised process makes the supervisor keep: a zone of 64 records with a high serial.
fn kept_by_a_taken_process() -> KeptZones {
    let hosts = (0..60).map(|number| format!("f{number} 60 A 192.0.2.6\n"));
    let text = format!("@ 60 SOA ns host 4000 1 1 1 1\n@ 60 NS ns\nns 60 A 192.0.2.6\n{}", hosts.collect::<String>());
    let info = VersionInfo { serial: 4000, record_count: 64, loaded_at_unix_s: u64::MAX, ends_with_newline: true };
    let files = vec![("z0.zone".to_owned(), text.len() as u64)];
    let text = ZoneText { hash: 1, files, content: Some(text.into_bytes()), ends_with_newline: true };
    let mut kept = KeptZones::default();
    kept.keep(&DomainName::parse("z0.example").unwrap(), info, &text, u64::MAX).expect("kept");
    let segment = kept.seal().expect("sealed").expect("a segment");
    KeptZones::from_segments(&[segment.descriptor])
}

#[test]
fn kept_version_is_not_served_in_the_place_of_a_file_that_can_be_loaded() {
    let mut fixture = Fixture::new(1);
    fixture.loader.kept = Some(kept_by_a_taken_process());
    let loaded = fixture.load();
    check(&loaded, 0, Some(1), None);
    let warnings: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
    assert!(warnings.iter().any(|one| one.contains("61 of 64 records are missing")), "{warnings:?}");
    // The process has loaded a version now, which guards the next one.
    fixture.write(0, 0);
    check(&fixture.load(), 0, Some(1), Some("the serial went back from 1 to 0"));
}

#[test]
fn nothing_is_built_from_the_kept_version_of_another_process_once_the_file_was_loaded() {
    let mut fixture = Fixture::new(1);
    fixture.load();
    // As if there had been no memory to keep the file's version.
    fixture.loader.kept = Some(kept_by_a_taken_process());
    let config = ConfigSource::File(fixture.path("sanderling.toml")).load().unwrap();
    let built = fixture.loader.load_updates(&config, &DomainName::parse("z0.example").unwrap());
    assert_eq!(built.iter().map(|one| one.state.serial).collect::<Vec<_>>(), [Some(1)]);
}

#[test]
fn kept_version_is_served_until_the_file_can_be_loaded_and_guards_nothing() {
    let mut fixture = Fixture::new(1);
    fs::write(fixture.path("z0.zone"), "bad A 1.2.3\n").unwrap();
    fixture.loader.kept = Some(kept_by_a_taken_process());
    check(&fixture.load(), 0, Some(4000), Some("z0.zone:1:7:"));
    fixture.write(0, 1);
    check(&fixture.load(), 0, Some(1), None);
}

#[test]
fn a_zone_without_a_good_version_is_unavailable() {
    let mut fixture = Fixture::new(2);
    fs::write(fixture.path("z0.zone"), "bad A 1.2.3\n").unwrap();
    let loaded = fixture.load();
    check(&loaded, 0, None, Some("z0.zone:1:7:"));
    check(&loaded, 1, Some(1), None);
    assert!(!loaded.errors.is_empty() && loaded.denial == Denial::None);
}

/// A configuration whose zones are all in the folder `zones`.
fn folder_fixture(zone_count: usize) -> Fixture {
    let fixture = Fixture::new(0);
    fs::create_dir(fixture.path("zones")).unwrap();
    fs::write(fixture.path("sanderling.toml"), "[dns]\nzones = \"zones/*.zone\"\n").unwrap();
    (0..zone_count).for_each(|index| write_in_folder(&fixture, index, 1));
    fixture
}

fn write_in_folder(fixture: &Fixture, index: usize, serial: u32) {
    fixture.write(index, serial);
    fs::rename(fixture.path(&format!("z{index}.zone")), fixture.path(&format!("zones/z{index}.example.zone"))).unwrap();
}

#[test]
fn new_and_removed_files_of_the_folder_take_effect() {
    let mut fixture = folder_fixture(3);
    let loaded = fixture.load();
    (0..3).for_each(|index| check(&loaded, index, Some(1), None));
    assert_eq!(loaded.changes.parsed_count, 3);
    assert!(fixture.loader.zone_directories().contains(&fixture.path("zones")));
    write_in_folder(&fixture, 1, 2);
    write_in_folder(&fixture, 7, 1);
    fs::remove_file(fixture.path("zones/z0.example.zone")).unwrap();
    let loaded = fixture.load();
    let expected = "zones: 1 added, 1 changed, 1 removed\n  z1.example: serial 1 -> 2\n  z7.example: added, serial 1\n  z0.example: removed\n";
    assert_eq!(loaded.changes.to_text(), expected);
    assert_eq!(loaded.changes.parsed_count, 5);
    assert_eq!(loaded.load_status.problem_count(), 0);
}

#[test]
fn one_broken_file_of_the_folder_stops_no_other_one() {
    let mut fixture = folder_fixture(2);
    fs::write(fixture.path("zones/z0.example.zone"), "@ 60 SOA ns host 1 1 1 1 1\nbad A 1.2.3\n").unwrap();
    fs::write(fixture.path("zones/a..b.zone"), "").unwrap();
    let loaded = fixture.load();
    check(&loaded, 0, None, Some("zones/z0.example.zone:2:7:"));
    check(&loaded, 1, Some(1), None);
    assert_eq!(loaded.load_status.problem_count(), 2);
    let errors: Vec<String> = loaded.errors.iter().map(ToString::to_string).collect();
    assert!(errors[0].contains("zones/a..b.zone: the file name is not a zone name"), "{errors:?}");
}

#[test]
fn folder_that_cannot_be_listed_keeps_its_zones() {
    let mut fixture = folder_fixture(2);
    fixture.loader.kept = Some(KeptZones::default());
    let segment = fixture.load().kept.expect("kept");
    fs::rename(fixture.path("zones"), fixture.path("away")).unwrap();
    let check_kept = |loaded: &Loaded| {
        (0..2).for_each(|index| check(loaded, index, Some(1), Some("does not exist")));
        let text = loaded.load_status.problems_text();
        assert!(text.contains("*.zone: not listed, keeping 2 zones\n"), "{text}");
    };
    check_kept(&fixture.load());
    // The next process finds it so, too.
    fixture.loader = Loader::keeping(KeptZones::from_segments(&[segment.descriptor]), None);
    check_kept(&fixture.load());
    fs::rename(fixture.path("away"), fixture.path("zones")).unwrap();
    let loaded = fixture.load();
    (0..2).for_each(|index| check(&loaded, index, Some(1), None));
    assert_eq!(loaded.load_status.problem_count(), 0);
}

#[test]
fn a_changed_include_is_a_change_of_the_zone() {
    let mut fixture = Fixture::new(1);
    let text = fs::read_to_string(fixture.path("z0.zone")).unwrap() + "$INCLUDE more\n";
    fs::write(fixture.path("z0.zone"), text).unwrap();
    fs::write(fixture.path("more"), "www 60 A 192.0.2.2\n").unwrap();
    assert_eq!(fixture.load().load_status.zones[0].record_count, 4);
    fs::write(fixture.path("more"), "www 60 A 192.0.2.2\nftp 60 A 192.0.2.2\n").unwrap();
    let loaded = fixture.load();
    assert_eq!((loaded.load_status.zones[0].record_count, loaded.changes.parsed_count), (5, 2));
    assert!(loaded.changes.to_text().contains("its serial is still 1"));
    // Another order is no change.
    fs::write(fixture.path("more"), "ftp 60 A 192.0.2.2\n\nwww 60 A 192.0.2.2\n").unwrap();
    let loaded = fixture.load();
    assert_eq!(loaded.changes.parsed_count, 3);
    assert_eq!(loaded.changes.to_text(), "zones: 0 added, 0 changed, 0 removed\n");
}

#[test]
fn a_site_without_its_folder_keeps_the_one_that_was_opened_or_is_unavailable() {
    let mut fixture = Fixture::new(0);
    assert_eq!(fixture.load().load_status.problem_count(), 0);
    fs::rename(fixture.path("public"), fixture.path("away")).unwrap();
    let loaded = fixture.load();
    assert!(loaded.load_status.sites[0].problem.as_ref().is_some_and(|text| text.contains("does not exist")));
    assert!(matches!(loaded.snapshot.sites.all()[0].root, Root::Directory(_)));
    fixture.loader = Loader::new();
    assert!(matches!(fixture.load().snapshot.sites.all()[0].root, Root::Unavailable));
}

#[test]
fn a_site_with_a_wrong_path_keeps_its_last_good_directory_until_the_path_is_corrected() {
    let mut fixture = Fixture::new(0);
    fs::create_dir(fixture.path("other")).unwrap();
    fixture.load();
    let config = fixture.path("sanderling.toml");
    let mut load_with = |path: &str| {
        fs::write(&config, format!("[domain.\"site.example\"]\nsite = \"{path}\"\n")).unwrap();
        fixture.load()
    };
    let served = |loaded: &Loaded| match &loaded.snapshot.sites.all()[0].root {
        Root::Directory(root) => root.real_path().file_name().unwrap().to_owned(),
        root => panic!("{root:?}"),
    };
    for _ in 0..2 {
        let loaded = load_with("publicc");
        assert_eq!((served(&loaded), loaded.load_status.problem_count()), ("public".into(), 1));
        let text = loaded.load_status.problems_text();
        assert!(text.contains("publicc for site.example: not reloaded, keeping the directory "), "{text}");
        assert!(text.ends_with("/public\n") && loaded.errors[0].to_string().contains("does not exist"), "{text}");
    }
    let loaded = load_with("other");
    assert_eq!((served(&loaded), loaded.load_status.problem_count()), ("other".into(), 0));
    assert_eq!(served(&load_with("publicc")), "other");
}

#[test]
fn a_zone_with_keys_or_signatures_is_not_served_unsigned() {
    let mut fixture = Fixture::new(2);
    fixture.loader.state = Some(fixture.path("state"));
    let text = fs::read_to_string(fixture.path("z1.zone")).unwrap();
    // Inception and expiration are in 2025 and 2100.
    let rrsig = "@ 60 RRSIG SOA 13 2 60 21000101000000 20250101000000 1 z1.example. AAAA\n";
    fs::write(fixture.path("z1.zone"), format!("{text}{rrsig}")).unwrap();
    check(&fixture.load(), 1, Some(1), None);
    let config = fs::read_to_string(fixture.path("sanderling.toml")).unwrap();
    let lines = config.replace(".zone\"\n", ".zone\"\ndnssec = true\n");
    fs::write(fixture.path("sanderling.toml"), lines).unwrap();
    fixture.write(0, 2);
    fixture.write(1, 2);
    let loaded = fixture.load();
    check(&loaded, 0, Some(2), None);
    check(&loaded, 1, Some(1), None);
    assert!(loaded.errors.is_empty(), "{:?}", loaded.errors);
    fs::create_dir_all(fixture.path("state/keys/z0.example")).unwrap();
    fixture.write(0, 3);
    check(&fixture.load(), 0, Some(2), None);
    // A new process has no version before.
    fixture.loader = Loader::new();
    fixture.loader.state = Some(fixture.path("state"));
    check(&fixture.load(), 0, None, None);
    fs::create_dir(fixture.path("state/signed")).unwrap();
    fs::copy(fixture.path("z0.zone"), fixture.path("state/signed/z0.example.zone")).unwrap();
    check(&fixture.load(), 0, Some(3), None);
}

#[test]
fn a_transferred_zone_that_is_to_be_signed_keeps_its_version_before() {
    let mut fixture = Fixture::new(1);
    fixture.loader.state = Some(fixture.path("state"));
    fs::create_dir_all(fixture.path("state/zones")).unwrap();
    let transferred = fixture.path("state/zones/z0.example.zone");
    fs::rename(fixture.path("z0.zone"), &transferred).unwrap();
    let lines = "[domain.\"z0.example\"]\nprimaries = [{ address = \"192.0.2.7\" }]\n";
    fs::write(fixture.path("sanderling.toml"), lines).unwrap();
    check(&fixture.load(), 0, Some(1), None);
    fs::write(fixture.path("sanderling.toml"), format!("{lines}dnssec = true\n")).unwrap();
    check(&fixture.load(), 0, Some(1), None);
    // The zone has expired.
    fs::remove_file(transferred).unwrap();
    check(&fixture.load(), 0, None, None);
}

#[test]
fn a_log_of_changes_that_cannot_be_read_is_an_error_of_the_zone() {
    let mut fixture = Fixture::new(1);
    fixture.loader.state = Some(fixture.path("state"));
    fs::create_dir_all(fixture.path("state/zones")).unwrap();
    let transferred = fixture.path("state/zones/z0.example.zone");
    fs::rename(fixture.path("z0.zone"), &transferred).unwrap();
    let lines = "[domain.\"z0.example\"]\nprimaries = [{ address = \"192.0.2.7\" }]\n";
    fs::write(fixture.path("sanderling.toml"), lines).unwrap();
    check(&fixture.load(), 0, Some(1), None);
    fixture.write(0, 2);
    fs::rename(fixture.path("z0.zone"), &transferred).unwrap();
    let log = sanderling_config::changes_file(&transferred);
    fs::create_dir(&log).unwrap();
    // Without the log, an earlier version would be served.
    check(&fixture.load(), 0, Some(1), Some(log.file_name().unwrap().to_str().unwrap()));
    fs::remove_dir(&log).unwrap();
    check(&fixture.load(), 0, Some(2), None);
}

#[test]
fn changes_of_a_transferred_zone_are_applied_to_the_version_in_service() {
    let mut fixture = Fixture::new(1);
    fixture.loader.state = Some(fixture.path("state"));
    fs::create_dir_all(fixture.path("state/zones")).unwrap();
    fs::rename(fixture.path("z0.zone"), fixture.path("state/zones/z0.example.zone")).unwrap();
    let lines = "[domain.\"z0.example\"]\nprimaries = [{ address = \"192.0.2.7\" }]\n";
    fs::write(fixture.path("sanderling.toml"), lines).unwrap();
    check(&fixture.load(), 0, Some(1), None);
    let apex = NameBuf::joined(&[b"z0".as_slice(), b"example"], Name::ROOT).unwrap();
    let mut change = ZoneChangeBuilder::new(apex.as_name());
    for (role, serial) in [(RecordRole::Removed, 1), (RecordRole::Added, 2)] {
        let text = format!("@ 60 SOA ns host {serial} 1 1 1 1\n");
        let mut parser = Parser::new("soa".to_owned(), text.into_bytes(), apex.as_name(), ParserLimits::default());
        let Some(Ok(Entry::Record(record))) = parser.next() else { panic!("no record") };
        change.add(role, &record);
    }
    let mut changes = Vec::new();
    put_change(&change.finish().expect("a change"), &mut changes);
    let config = ConfigSource::File(fixture.path("sanderling.toml")).load().unwrap();
    let name = DomainName::parse("z0.example").unwrap();
    let mut apply = |changes: &[u8]| fixture.loader.apply_changes(&config, &name, changes).map(|one| one.state.serial);
    assert_eq!(apply(&changes[1..]), None);
    assert_eq!(apply(&changes), Some(Some(2)));
    // The changes do not start from that version.
    assert_eq!(apply(&changes), None);
}

#[test]
fn agent_brings_no_zone_that_its_catalog_may_not_bring() {
    let mut fixture = Fixture::new(1);
    fs::create_dir_all(fixture.path("zones")).unwrap();
    fs::create_dir(fixture.path("folder")).unwrap();
    let zone = "@ 60 SOA ns host 1 1 1 1 1\n@ 60 NS ns\nns 60 A 192.0.2.1\n";
    let own = fs::read_to_string(fixture.path("sanderling.toml")).unwrap();
    let sections = "[dns]\nlisten = [\"127.0.0.1:0\"]\nzones = \"folder/*.zone\"\n\
                    [catalog.\"c.test\"]\nprimaries = [{ address = \"192.0.2.1\" }]\n";
    fs::write(fixture.path("sanderling.toml"), sections.to_owned() + &own).unwrap();
    fs::write(fixture.path("folder/f.example.zone"), zone).unwrap();
    let names = ["a.test", "www.z0.example", "example", "z0.example", "x.f.example", "f.example", ".", "c.test"];
    let members = names.map(|zone| ListedMember {
        zone: zone.to_owned(),
        catalog: "c.test".to_owned(),
        label: "a".to_owned(),
        groups: Vec::new(),
    });
    let list = MemberList { members: members.to_vec(), removed: Vec::new() };
    fs::write(fixture.path("zones/members"), list.encode()).unwrap();
    fixture.loader.state = Some(fixture.folder.path().to_owned());
    let config = ConfigSource::File(fixture.path("sanderling.toml")).load().unwrap();
    fixture.loader.load(&config, &[]);
    let brought = |loader: &Loader| {
        let zones = loader.zones.iter().filter(|(_, loaded)| loaded.state.origin == ZoneOrigin::Primaries);
        zones.map(|(apex, _)| apex.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(brought(&fixture.loader), ["a.test"]);
    let stored = StoredParts::new(&config, None);
    let changes = fixture.loader.load_members(&config, &stored, &mut Report::default());
    assert!(changes.is_empty(), "{changes:?}");
    for name in &names[1..] {
        let zone = fixture.loader.zone_named(&config, &DomainName::parse(name).unwrap());
        assert!(zone.is_none_or(|zone| zone.origin != ZoneOrigin::Primaries), "{name}");
    }
}
