//! The signed zones' private keys: a file of PKCS#8 for each, in a folder that no other process may read.

use crate::rrsig_input::{SigningKeyName, asks_for_removal, may_name_keys};
use crate::zone_key::ZonePrivateKey;
use data_encoding::{BASE64, HEXLOWER};
use sanderling_config::{DomainName, zone_file_name};
use sanderling_ipc::signing::KEY_ID_BYTES;
use sanderling_ipc::zone_signing::{ZoneKey, ZoneKeyAnswer, ZoneKeyId, ZoneKeyRequest};
use sanderling_os::clock::unix_seconds;
use sanderling_os::file::open_regular_without_link;
use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Keys of one zone at most: a rollover has four.
const KEYS_MAX: usize = 32;
/// Bytes of the longest file: an RSA key of 4096 bits has 3,300.
const FILE_BYTES_MAX: u64 = 16 * 1024;
const EXTENSION: &str = "pem";
const PEM_START: &str = "-----BEGIN PRIVATE KEY-----\n";
const PEM_END: &str = "-----END PRIVATE KEY-----\n";
/// Characters of a line of PEM (RFC 7468 §2).
const PEM_LINE_CHARACTERS: usize = 64;

/// The folder with the keys.
#[derive(Clone, Debug)]
pub(crate) struct KeyFolder {
    pub(crate) path: PathBuf,
    /// The zones for which keys are made: the zones with `dnssec` in the configuration.
    pub(crate) zones: Vec<DomainName>,
    /// The zones that are becoming unsigned. These zones may ask the parent zone to remove their DS records.
    pub(crate) leaving_zones: Vec<DomainName>,
    /// The zones that others sign too (RFC 8901). The DNSKEY, CDS and CDNSKEY records of these zones may name other
    /// signers' keys.
    pub(crate) shared_zones: Vec<DomainName>,
}

/// The keys, read when they are needed.
#[derive(Debug)]
pub(crate) struct ZoneKeys {
    folder: KeyFolder,
    loaded: HashMap<(DomainName, ZoneKeyId), LoadedKey>,
}

#[derive(Debug)]
struct LoadedKey {
    key: ZonePrivateKey,
    name: SigningKeyName,
}

impl ZoneKeys {
    /// The keys in `folder`.
    pub(crate) fn new(folder: KeyFolder) -> ZoneKeys {
        ZoneKeys { folder, loaded: HashMap::new() }
    }

    /// Carries out a request.
    pub(crate) fn answer(&mut self, request: ZoneKeyRequest) -> ZoneKeyAnswer {
        self.try_answer(request).unwrap_or_else(ZoneKeyAnswer::Refused)
    }

    fn try_answer(&mut self, request: ZoneKeyRequest) -> Result<ZoneKeyAnswer, String> {
        match request {
            ZoneKeyRequest::List { zone } => Ok(ZoneKeyAnswer::Keys(self.list(&parse_zone(&zone)?)?)),
            ZoneKeyRequest::Make { zone, algorithm } => {
                Ok(ZoneKeyAnswer::Keys(vec![self.make(&parse_zone(&zone)?, algorithm)?]))
            }
            ZoneKeyRequest::Erase { zone, key } => {
                self.erase(parse_zone(&zone)?, key)?;
                Ok(ZoneKeyAnswer::Keys(Vec::new()))
            }
            ZoneKeyRequest::Sign { zone, key, inputs } => {
                let is_of = |zones: &[DomainName]| zones.iter().any(|known| known.as_str() == zone);
                let (is_leaving, is_shared) = (is_of(&self.folder.leaving_zones), is_of(&self.folder.shared_zones));
                let apex = parse_zone(&zone)?;
                let known =
                    if inputs.iter().any(|input| may_name_keys(input)) { self.list(&apex)? } else { Vec::new() };
                let LoadedKey { key, name } = self.load(apex, key)?;
                let now_unix_s = unix_seconds();
                let sign = |input: &Vec<u8>| {
                    name.check(input, now_unix_s)
                        .map_err(|reason| format!("refusing to sign for the zone {zone}: {reason}"))?;
                    if let Some(records) = name.naming_keys(input) {
                        let is_allowed = if asks_for_removal(&records) { is_leaving } else { is_shared };
                        if !is_allowed {
                            name.check_named_keys(&records, &known)?;
                        }
                    }
                    key.sign(input)
                };
                inputs.iter().map(sign).collect::<Result<_, _>>().map(ZoneKeyAnswer::Signatures)
            }
        }
    }

    fn list(&self, zone: &DomainName) -> Result<Vec<ZoneKey>, String> {
        let files = self.files(zone)?;
        files.iter().map(|file| Ok(file.read()?.public())).collect()
    }

    fn make(&mut self, zone: &DomainName, algorithm: u8) -> Result<ZoneKey, String> {
        if !self.folder.zones.contains(zone) || self.folder.leaving_zones.contains(zone) {
            return Err(format!("the zone {zone} has no `dnssec` in the configuration"));
        }
        if self.files(zone)?.len() >= KEYS_MAX {
            return Err(format!("the zone {zone} has {KEYS_MAX} keys; remove unused keys"));
        }
        let pkcs8 = ZonePrivateKey::make(algorithm)?;
        self.store(zone, algorithm, &pkcs8)?;
        Ok(ZonePrivateKey::from_pkcs8(algorithm, &pkcs8)?.public())
    }

    /// Writes a key of the zone to its own file, and returns the path.
    pub(crate) fn store(&self, zone: &DomainName, algorithm: u8, pkcs8: &[u8]) -> Result<PathBuf, String> {
        let public = ZonePrivateKey::from_pkcs8(algorithm, pkcs8)?.public();
        let folder = self.folder_of(zone);
        let path = folder.join(format!("{algorithm:03}-{}.{EXTENSION}", HEXLOWER.encode(&public.id)));
        let written = sanderling_state::create_folder(&folder)
            .and_then(|()| sanderling_state::write_durably(&path, to_pem(pkcs8).as_bytes()));
        written.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        Ok(path)
    }

    /// The private key with this ID, as PKCS#8.
    pub(crate) fn read_pkcs8(&self, zone: &DomainName, id: ZoneKeyId) -> Result<Zeroizing<Vec<u8>>, String> {
        let file = self.files(zone)?.into_iter().find(|file| file.id == id);
        file.ok_or_else(|| self.missing(zone, id))?.read_pkcs8()
    }

    fn missing(&self, zone: &DomainName, id: ZoneKeyId) -> String {
        let (folder, id) = (self.folder_of(zone).display().to_string(), HEXLOWER.encode(&id));
        format!(
            "the private key {id} is missing from {folder}; restore it from a backup of the state folder, and do not \
                change `dnssec`"
        )
    }

    fn erase(&mut self, zone: DomainName, id: ZoneKeyId) -> Result<(), String> {
        if let Some(file) = self.files(&zone)?.into_iter().find(|file| file.id == id) {
            let removed = sanderling_state::remove_durably(&file.path);
            removed.map_err(|error| format!("cannot remove {}: {error}", file.path.display()))?;
        }
        self.loaded.remove(&(zone, id));
        Ok(())
    }

    fn load(&mut self, zone: DomainName, id: ZoneKeyId) -> Result<&LoadedKey, String> {
        let place = (zone, id);
        if !self.loaded.contains_key(&place) {
            let zone = &place.0;
            let file = self.files(zone)?.into_iter().find(|file| file.id == id);
            let file = file.ok_or_else(|| self.missing(zone, id))?;
            let key = file.read()?;
            let name = SigningKeyName::new(zone, &key.public()).ok_or("it has an unknown algorithm")?;
            self.loaded.insert(place.clone(), LoadedKey { key, name });
        }
        Ok(&self.loaded[&place])
    }

    fn folder_of(&self, zone: &DomainName) -> PathBuf {
        self.folder.path.join(zone_file_name(zone))
    }

    /// The files of the zone's keys, sorted by their names.
    fn files(&self, zone: &DomainName) -> Result<Vec<KeyFile>, String> {
        let folder = self.folder_of(zone);
        let failed = |error| format!("cannot read {}: {error}", folder.display());
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut files = Vec::new();
        for entry in entries {
            files.extend(KeyFile::of(entry.map_err(failed)?.path()));
        }
        files.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(files)
    }
}

/// A key's file, whose name has its algorithm and its ID.
#[derive(Debug)]
struct KeyFile {
    path: PathBuf,
    algorithm: u8,
    id: ZoneKeyId,
}

impl KeyFile {
    /// `None` if the name belongs to another file.
    fn of(path: PathBuf) -> Option<KeyFile> {
        let name = path.file_name()?.to_str()?.strip_suffix(EXTENSION)?.strip_suffix('.')?;
        let (algorithm, id) = name.split_once('-')?;
        let (algorithm, id) = (algorithm.parse().ok()?, HEXLOWER.decode(id.as_bytes()).ok()?);
        let id: [u8; KEY_ID_BYTES] = id.try_into().ok()?;
        Some(KeyFile { path, algorithm, id })
    }

    fn read_pkcs8(&self) -> Result<Zeroizing<Vec<u8>>, String> {
        let of_file = |problem: String| format!("{}: {problem}", self.path.display());
        let pem = read_short(&self.path).map_err(of_file)?;
        from_pem(&pem).ok_or_else(|| of_file("it is not PKCS#8 in PEM".to_owned()))
    }

    fn read(&self) -> Result<ZonePrivateKey, String> {
        let of_file = |problem: String| format!("{}: {problem}", self.path.display());
        let pkcs8 = self.read_pkcs8()?;
        let key = ZonePrivateKey::from_pkcs8(self.algorithm, &pkcs8).map_err(of_file)?;
        match key.public().id == self.id {
            true => Ok(key),
            false => Err(of_file("the key does not match its file name".to_owned())),
        }
    }
}

fn read_short(path: &Path) -> Result<Zeroizing<String>, String> {
    use std::io::Read;
    let mut content = Zeroizing::new(String::with_capacity(FILE_BYTES_MAX as usize));
    // Another process of this user may have put a FIFO there, or a link, while `check` reads it as root.
    let read = open_regular_without_link(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut content));
    read.map(|_| content).map_err(|error| error.to_string())
}

/// A zone's name; any form that differs from the configuration's is refused.
fn parse_zone(text: &str) -> Result<DomainName, String> {
    let name = DomainName::parse(text).map_err(|problem| problem.message)?;
    if name.as_str() == text { Ok(name) } else { Err(format!("`{text}` is not the name of a zone")) }
}

fn to_pem(pkcs8: &[u8]) -> Zeroizing<String> {
    let base64 = Zeroizing::new(BASE64.encode(pkcs8));
    let lines = base64.len().div_ceil(PEM_LINE_CHARACTERS);
    // The buffer is allocated once, so that no copy is left behind.
    let mut pem = Zeroizing::new(String::with_capacity(PEM_START.len() + base64.len() + lines + PEM_END.len()));
    pem.push_str(PEM_START);
    let mut rest = &base64[..];
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(PEM_LINE_CHARACTERS));
        pem.push_str(line);
        pem.push('\n');
        rest = after;
    }
    pem.push_str(PEM_END);
    pem
}

fn from_pem(pem: &str) -> Option<Zeroizing<Vec<u8>>> {
    let base64 = pem.strip_prefix(PEM_START)?.strip_suffix(PEM_END)?;
    let mut digits = Zeroizing::new(String::with_capacity(base64.len()));
    base64.lines().for_each(|line| digits.push_str(line));
    BASE64.decode(digits.as_bytes()).ok().map(Zeroizing::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanderling_dns::Rtype;
    use sanderling_dnssec::zone_keys::CDS_DELETE;
    use sanderling_dnssec::{Algorithm, KeyRole, PublicKey};
    use std::os::unix::fs::PermissionsExt;

    const ECDSAP256SHA256: u8 = 13;
    const ED25519: u8 = 15;

    fn zone_keys(folder: &Path) -> ZoneKeys {
        let zones = ["a.test", "b.test", "0/25.2.0.192.in-addr.arpa"].map(|zone| parse_zone(zone).expect("a name"));
        ZoneKeys::new(KeyFolder {
            path: folder.to_owned(),
            zones: zones.to_vec(),
            leaving_zones: Vec::new(),
            shared_zones: vec![parse_zone("b.test").expect("a name")],
        })
    }

    fn make(keys: &mut ZoneKeys, zone: &str, algorithm: u8) -> ZoneKey {
        match keys.answer(ZoneKeyRequest::Make { zone: zone.to_owned(), algorithm }) {
            ZoneKeyAnswer::Keys(mut made) if made.len() == 1 => made.remove(0),
            other => panic!("{other:?}"),
        }
    }

    fn list(keys: &mut ZoneKeys, zone: &str) -> Vec<ZoneKey> {
        match keys.answer(ZoneKeyRequest::List { zone: zone.to_owned() }) {
            ZoneKeyAnswer::Keys(keys) => keys,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn refused(answer: ZoneKeyAnswer, expected: &str) {
        let ZoneKeyAnswer::Refused(reason) = answer else { panic!("{answer:?}") };
        assert!(reason.contains(expected), "{reason}");
    }

    #[test]
    fn keys_are_files_that_outlive_the_process() {
        let folder = tempfile::tempdir().expect("created");
        let mut keys = zone_keys(folder.path());
        assert_eq!(list(&mut keys, "a.test"), []);
        let (one, two) = (make(&mut keys, "a.test", ECDSAP256SHA256), make(&mut keys, "a.test", ED25519));
        let of_another_zone = make(&mut keys, "0/25.2.0.192.in-addr.arpa", ED25519);
        let mut next = zone_keys(folder.path());
        assert_eq!(list(&mut next, "a.test"), [one, two]);
        assert_eq!(list(&mut next, "0/25.2.0.192.in-addr.arpa"), [of_another_zone]);
        let file = fs::read_dir(folder.path().join("a.test")).expect("listed").next().expect("a file").expect("listed");
        assert_eq!(file.metadata().expect("a file").permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn key_signs_for_its_own_zone_alone() {
        let folder = tempfile::tempdir().expect("created");
        let mut keys = zone_keys(folder.path());
        let (key, other) = (make(&mut keys, "a.test", ED25519), make(&mut keys, "b.test", ED25519));
        let sign = |zone: &str, key: &ZoneKey, input: &[u8]| ZoneKeyRequest::Sign {
            zone: zone.to_owned(),
            key: key.id,
            inputs: vec![input.to_vec()],
        };
        refused(keys.answer(sign("a.test", &other, b"")), "is missing from");
        let of_unsigned = ZoneKeyRequest::Make { zone: "c.test".to_owned(), algorithm: ED25519 };
        refused(keys.answer(of_unsigned), "the zone c.test has no `dnssec` in the configuration");
        refused(keys.answer(sign("a.test", &key, b"text")), "refusing to sign for the zone a.test: ");
        for zone in ["A.test", "a.test.", "../a.test", "", "a..test"] {
            assert!(matches!(keys.answer(sign(zone, &key, b"")), ZoneKeyAnswer::Refused(_)), "{zone}");
        }
        assert_eq!(
            keys.answer(ZoneKeyRequest::Sign { zone: "a.test".to_owned(), key: key.id, inputs: Vec::new() }),
            ZoneKeyAnswer::Signatures(Vec::new())
        );
    }

    /// The keeper signs keys of others only for a zone that has other signers, and never a request to remove all DS
    /// records for such a zone.
    #[test]
    fn keys_of_others_are_signed_for_shared_zones_alone() {
        let folder = tempfile::tempdir().expect("created");
        let mut keys = zone_keys(folder.path());
        for (zone, apex, is_shared) in [("a.test", b"\x01a\x04test\0", false), ("b.test", b"\x01b\x04test\0", true)] {
            let key = make(&mut keys, zone, ED25519);
            let public = PublicKey { algorithm: Algorithm::Ed25519, role: KeyRole::Csk, bytes: key.public_key.clone() };
            let now = unix_seconds() as u32;
            let (inception, expiration) = (now.to_be_bytes(), (now + 60).to_be_bytes());
            let mut sign = |rtype: Rtype, rdatas: &[&[u8]]| {
                let head = [&rtype.0.to_be_bytes()[..], &[15, 2, 0, 0, 0, 60], &expiration, &inception].concat();
                let mut input = [&head[..], &public.tag().to_be_bytes(), apex].concat();
                for rdata in rdatas {
                    input.extend(
                        [&apex[..], &rtype.0.to_be_bytes(), &[0, 1, 0, 0, 0, 60, 0], &[rdata.len() as u8], rdata]
                            .concat(),
                    );
                }
                let answer =
                    keys.answer(ZoneKeyRequest::Sign { zone: zone.to_owned(), key: key.id, inputs: vec![input] });
                matches!(answer, ZoneKeyAnswer::Signatures(_))
            };
            assert!(sign(Rtype::DNSKEY, &[&public.rdata()]), "{zone}");
            assert_eq!(sign(Rtype::DNSKEY, &[b"\x01\x01\x03\x0fkey of another"]), is_shared, "{zone}");
            assert!(!sign(Rtype::CDS, &[&CDS_DELETE]), "{zone}");
        }
    }

    #[test]
    fn erased_key_is_gone_from_disk_and_memory() {
        let folder = tempfile::tempdir().expect("created");
        let mut keys = zone_keys(folder.path());
        let (one, other) = (make(&mut keys, "a.test", ED25519), make(&mut keys, "a.test", ED25519));
        let sign = || ZoneKeyRequest::Sign { zone: "a.test".to_owned(), key: one.id, inputs: Vec::new() };
        assert_eq!(keys.answer(sign()), ZoneKeyAnswer::Signatures(Vec::new()));
        let erase = |zone: &str| ZoneKeyRequest::Erase { zone: zone.to_owned(), key: one.id };
        // Another zone does not have this key.
        for zone in ["b.test", "a.test", "a.test"] {
            assert_eq!(keys.answer(erase(zone)), ZoneKeyAnswer::Keys(Vec::new()));
        }
        assert_eq!(list(&mut keys, "a.test"), [other]);
        refused(keys.answer(sign()), "is missing from");
        refused(keys.answer(erase("../a.test")), "");
    }

    #[test]
    fn files_with_another_key_are_refused() {
        let folder = tempfile::tempdir().expect("created");
        let mut keys = zone_keys(folder.path());
        make(&mut keys, "a.test", ED25519);
        let file = keys.files(&parse_zone("a.test").expect("a name")).expect("listed").remove(0);
        let good = fs::read_to_string(&file.path).expect("read");
        assert_eq!(from_pem(&good).map(|pkcs8| to_pem(&pkcs8).to_string()), Some(good));
        for (content, expected) in [("", "it is not PKCS#8"), (&*to_pem(b"junk"), "it is not a private key")] {
            fs::write(&file.path, content).expect("written");
            refused(keys.answer(ZoneKeyRequest::List { zone: "a.test".to_owned() }), expected);
        }
        fs::remove_file(&file.path).expect("removed");
        let made = std::process::Command::new("mkfifo").arg(&file.path).status();
        assert!(made.is_ok_and(|status| status.success()), "mkfifo");
        refused(keys.answer(ZoneKeyRequest::List { zone: "a.test".to_owned() }), "it is not a regular file");
        fs::remove_file(&file.path).expect("removed");
        std::os::unix::fs::symlink("/etc/passwd", &file.path).expect("linked");
        refused(keys.answer(ZoneKeyRequest::List { zone: "a.test".to_owned() }), "symbolic link");
        fs::remove_file(&file.path).expect("removed");
        let other = to_pem(&ZonePrivateKey::make(ED25519).expect("made"));
        fs::write(&file.path, other.as_bytes()).expect("written");
        refused(
            keys.answer(ZoneKeyRequest::List { zone: "a.test".to_owned() }),
            "the key does not match its file name",
        );
    }
}
