//! Copies keys of a zone out of the state folder and into it, for the operator: in the form of BIND, which other
//! programs read as well. The server need not run.

use crate::bind_key::{from_private, to_private};
use crate::zone_key::ZonePrivateKey;
use crate::zone_keys::{KeyFolder, ZoneKeys};
use sanderling_config::diagnostic::{Diagnostic, Problem};
use sanderling_config::{Config, DomainName, ZONE_KEYS, without_byte_order_mark, zone_file_name};
use sanderling_dns::rdata::PresentationFormat;
use sanderling_dns::zonefile::{Entry, Parser, ParserLimits};
use sanderling_dns::{Name, NameBuf, Rtype};
use sanderling_dnssec::zone_keys::KeyRequest;
use sanderling_dnssec::{Algorithm, KeyRole, PublicKey, SigningState};
use sanderling_os::directory::Directory;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, lchown};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// The folder with the states of zones, below the state folder.
const SIGNING: &str = "signing";
/// Bytes of a zone's state.
const STATE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// The TTL in `.key` files. Other programs take their own.
const TTL_S: u32 = 3600;
/// The flags of DNSKEY records.
const KSK_FLAGS: u16 = 257;
const ZSK_FLAGS: u16 = 256;
/// Shorter RSA keys are refused by the library.
const RSA_BITS_MIN: usize = 2048;

/// A key in the form of BIND.
pub struct BindKey {
    /// The name of its files without `.private` and `.key`.
    pub name: String,
    /// The content of the file with the private key.
    pub private: Zeroizing<String>,
    /// The content of the file with the DNSKEY record.
    pub public: String,
}

/// The keys of `zone` in the state folder `state`.
///
/// # Errors
/// Returns the reason why the keys cannot be read.
pub fn export(state: &Path, zone: &DomainName) -> Result<Vec<BindKey>, String> {
    let keys = folder(state);
    let of_state = read_state(state, &state_file(zone))?;
    let public: Vec<&PublicKey> = of_state.keys.public_keys().collect();
    if public.is_empty() {
        return Err(format!(
            "{} has no keys of the zone {zone}; specify the server's folder with `--state`",
            state.display()
        ));
    }
    // The root zone ends in a dot already. BIND writes slashes in the same way.
    let owner = if zone.as_str() == "." { ".".to_owned() } else { format!("{zone}.") };
    let file_name = owner.replace('/', "%2F");
    let export = |public: &PublicKey| {
        let pkcs8 = keys.read_pkcs8(zone, public.id().0)?;
        let private = to_private(public.algorithm, &pkcs8).ok_or("a key has an unknown form")?;
        let record = format!("{owner} {TTL_S} IN DNSKEY {}\n", PresentationFormat::new(Rtype::DNSKEY, &public.rdata()));
        let name = format!("K{file_name}+{:03}+{:05}", public.algorithm.number(), public.tag());
        Ok(BindKey { name, private, public: record })
    };
    public.into_iter().map(export).collect()
}

/// Copies the keys of the files `private_files` into the state folder: `zone`, which is not signed here yet, is signed
/// with them as soon as it has `dnssec`. Each has its DNSKEY record in a file next to it. Returns the tags.
///
/// # Errors
/// Returns the reason why nothing has changed.
pub fn import(state: &Path, zone: &DomainName, private_files: &[PathBuf]) -> Result<Vec<u16>, String> {
    if !state.is_dir() {
        return Err(format!(
            "there is no state folder {}; specify the server's folder with `--state`, or start the server once",
            state.display()
        ));
    }
    let name = state_file(zone);
    let (file, before) = (state.join(&name), read_state(state, &name)?);
    if before.serial.is_some() {
        return Err(format!(
            "this server signs the zone {zone} with other keys; replace them with `sanderling dnssec rollover {zone}`"
        ));
    }
    let found = private_files.iter().map(|path| read_files(zone, path)).collect::<Result<Vec<_>, _>>()?;
    let has_zsk = found.iter().any(|(flags, ..)| *flags == ZSK_FLAGS);
    if !found.iter().any(|(flags, ..)| *flags == KSK_FLAGS) {
        return Err(format!("no key has the flags {KSK_FLAGS}; import the KSK or CSK too"));
    }
    let mut next = SigningState::default();
    let keys = folder(state);
    let created = sanderling_state::create_folder(&state.join(ZONE_KEYS));
    created.map_err(|error| format!("cannot create {}: {error}", state.join(ZONE_KEYS).display()))?;
    own_as(state, &[&state.join(ZONE_KEYS)])?;
    for (flags, public_key, algorithm, pkcs8) in &found {
        let role = match (*flags, has_zsk) {
            (ZSK_FLAGS, _) => KeyRole::Zsk,
            (_, true) => KeyRole::Ksk,
            (_, false) => KeyRole::Csk,
        };
        let request = KeyRequest { algorithm: *algorithm, role };
        let imported = next.keys.import_key(request, public_key.clone(), sanderling_os::clock::unix_seconds());
        imported.map_err(|error| error.to_string())?;
        let path = keys.store(zone, algorithm.number(), pkcs8)?;
        own_as(state, &[path.parent().expect("it is in a folder"), &path])?;
    }
    // No version was signed with the previous keys.
    let known = before.keys.public_keys().map(PublicKey::id).chain(before.keys_to_erase);
    next.keys_to_erase = known.filter(|id| next.keys.public_keys().all(|key| key.id() != *id)).collect();
    let text = serde_json::to_vec_pretty(&next).expect("the keys of its maps are strings");
    let written = sanderling_state::create_folder(file.parent().expect("it is in a folder"))
        .and_then(|()| sanderling_state::write_durably(&file, &text));
    written.map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    own_as(state, &[file.parent().expect("it is in a folder"), &file])?;
    Ok(next.keys.public_keys().map(PublicKey::tag).collect())
}

/// The findings of `check` about the keys of the zones that `config` signs: private keys in the state folder `state`
/// that cannot be used, and zones that have none yet. Nothing is reported where this user may not read.
pub fn problems(config: &Config, state: &Path) -> Vec<Diagnostic> {
    let keys = folder(state);
    let (mut problems, mut new_zones) = (Vec::new(), Vec::new());
    let is_missing = match fs::read_dir(state) {
        Ok(_) => false,
        Err(error) if error.kind() == ErrorKind::NotFound => true,
        // Problems of the folder are reported elsewhere.
        Err(_) => return problems,
    };
    for zone in config.signed_zones.iter().filter(|zone| !zone.is_leaving) {
        let error = |problem| Diagnostic::error(zone.location.clone(), Problem::new(problem, ""));
        let of_zone = if is_missing { Ok(SigningState::default()) } else { read_state(state, &state_file(&zone.apex)) };
        match of_zone {
            Ok(of_zone) if of_zone.keys.is_empty() => new_zones.push(zone),
            Ok(of_zone) => {
                let read = of_zone.keys.public_keys().map(|key| keys.read_pkcs8(&zone.apex, key.id().0));
                problems.extend(read.filter_map(Result::err).map(error));
            }
            Err(problem) => problems.push(error(problem)),
        }
    }
    problems.extend(new_zones.first().map(|first| {
        let others = match new_zones.len() - 1 {
            0 => String::new(),
            1 => " and 1 other zone".to_owned(),
            others => format!(" and {others} other zones"),
        };
        let message = format!("{}{others}: no keys in the state folder `{}` yet", first.apex, state.display());
        let remedy = "the server creates them unless the parent zone has DS records; restore the folder if it was lost";
        Diagnostic::note(first.location.clone(), Problem::new(message, remedy))
    }));
    problems
}

fn folder(state: &Path) -> ZoneKeys {
    ZoneKeys::new(KeyFolder {
        path: state.join(ZONE_KEYS),
        zones: Vec::new(),
        leaving_zones: Vec::new(),
        shared_zones: Vec::new(),
    })
}

/// The file with a zone's state, below the state folder.
fn state_file(zone: &DomainName) -> PathBuf {
    Path::new(SIGNING).join(format!("{}.json", zone_file_name(zone)))
}

/// The state in the file `name`; without a file, the state of a zone without keys. The agent can write the folder, and
/// this process may be root: no link is followed.
fn read_state(state: &Path, name: &Path) -> Result<SigningState, String> {
    let failed = |error: &dyn std::fmt::Display| format!("cannot read {}: {error}", state.join(name).display());
    let folder = Directory::open(state).map_err(|error| failed(&error))?;
    match folder.open_without_links(name.as_os_str().as_bytes()).and_then(|file| file.read_all(STATE_BYTES_MAX)) {
        Ok(text) => serde_json::from_slice(&text)
            .map_err(|error| format!("{}; restore it from a backup of the state folder", failed(&error))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(SigningState::default()),
        Err(error) => Err(failed(&error)),
    }
}

type FoundKey = (u16, Vec<u8>, Algorithm, Zeroizing<Vec<u8>>);

/// The flags, the public key, the algorithm and the private key as PKCS#8.
fn read_files(zone: &DomainName, private_file: &Path) -> Result<FoundKey, String> {
    let of = |path: &Path, problem: String| format!("{}: {problem}", path.display());
    let read = |path: &Path| fs::read(path).map(Zeroizing::new).map_err(|error| of(path, error.to_string()));
    let text = |path: &Path, content: &[u8]| {
        let text = str::from_utf8(without_byte_order_mark(content)).map(|text| Zeroizing::new(text.to_owned()));
        text.map_err(|_| of(path, "it is not valid UTF-8".to_owned()))
    };
    let (private, public_file) = (text(private_file, &read(private_file)?)?, private_file.with_extension("key"));
    let public = text(&public_file, &read(&public_file)?)?;
    let rdata = dnskey(zone, &public).map_err(|problem| of(&public_file, problem))?;
    let Some((&[flags_high, flags_low, _, algorithm], public_key)) = rdata.split_first_chunk() else {
        return Err(of(&public_file, "the DNSKEY record is too short".to_owned()));
    };
    let found = from_private(&private, public_key).map_err(|problem| of(private_file, problem))?;
    if found.0 == Algorithm::RsaSha256 && rsa_bits(public_key) < RSA_BITS_MIN {
        let (bits, remedy) = (rsa_bits(public_key), "replace it with a longer one in the other program first");
        return Err(of(
            private_file,
            format!("the key has {bits} bits, but at least {RSA_BITS_MIN} are needed; {remedy}"),
        ));
    }
    let is_of_record = ZonePrivateKey::from_pkcs8(found.0.number(), &found.1)
        .is_ok_and(|key| (found.0.number(), &key.public().public_key[..]) == (algorithm, public_key));
    if !is_of_record {
        return Err(of(private_file, format!("it is not the key of the DNSKEY record in {}", public_file.display())));
    }
    match u16::from_be_bytes([flags_high, flags_low]) {
        flags @ (KSK_FLAGS | ZSK_FLAGS) => Ok((flags, public_key.to_vec(), found.0, found.1)),
        flags => Err(of(&public_file, format!("the flags are {flags}; a signing key has {ZSK_FLAGS} or {KSK_FLAGS}"))),
    }
}

/// The bits of the modulus of an RSA key in a DNSKEY record (RFC 3110 section 2).
fn rsa_bits(public_key: &[u8]) -> usize {
    let exponent_bytes = match public_key {
        [0, high, low, ..] => 3 + usize::from(u16::from_be_bytes([*high, *low])),
        [length, ..] => 1 + usize::from(*length),
        [] => 0,
    };
    8 * public_key.len().saturating_sub(exponent_bytes)
}

/// The RDATA of the DNSKEY record of `zone` in the text of a `.key` file.
fn dnskey(zone: &DomainName, text: &str) -> Result<Vec<u8>, String> {
    let labels: Vec<&[u8]> = zone.labels().map(str::as_bytes).collect();
    let apex: NameBuf = NameBuf::joined(&labels, Name::ROOT).map_err(|_| "the name is too long".to_owned())?;
    // BIND leaves the TTL out.
    let text = format!("$TTL {TTL_S}\n{text}");
    let mut parser = Parser::new("key".to_owned(), text.into_bytes(), Name::ROOT, ParserLimits::default());
    match parser.next() {
        Some(Ok(Entry::Record(record))) if record.rtype == Rtype::DNSKEY => {
            match record.owner.eq_ignore_case(apex.as_name()) {
                true => Ok(record.rdata.to_vec()),
                false => Err(format!("it is the key of the zone {}, not of {zone}", record.owner)),
            }
        }
        Some(Err(diagnostic)) => Err(diagnostic.problem),
        _ => Err(format!("it does not begin with a DNSKEY record of {zone}")),
    }
}

/// Changes the owner of the written files to the server's user, which owns the state folder.
fn own_as(state: &Path, paths: &[&Path]) -> Result<(), String> {
    let failed = |error| format!("cannot change the owner of the files to the owner of {}: {error}", state.display());
    let owner = fs::metadata(state).map_err(failed)?;
    // Not the target of a link, with which the agent may have replaced a file meanwhile.
    paths.iter().try_for_each(|path| lchown(path, Some(owner.uid()), Some(owner.gid()))).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exported_keys_can_be_imported_elsewhere() {
        let (one, other, files) = (
            tempfile::tempdir().expect("made"),
            tempfile::tempdir().expect("made"),
            tempfile::tempdir().expect("made"),
        );
        let zone = DomainName::parse("a.test").expect("a name");
        let error = export(one.path(), &zone).err().expect("there is none");
        assert!(error.contains("has no keys of the zone a.test"), "{error}");
        // The files look as if another program had made them.
        let mut private_files = Vec::new();
        for (flags, algorithm) in [(KSK_FLAGS, 13), (ZSK_FLAGS, 13)] {
            let pkcs8 = ZonePrivateKey::make(algorithm).expect("made");
            let key = ZonePrivateKey::from_pkcs8(algorithm, &pkcs8).expect("a key").public();
            let rdata = [&flags.to_be_bytes()[..], &[3, algorithm], &key.public_key].concat();
            let private = to_private(Algorithm::EcdsaP256, &pkcs8).expect("a key");
            let path = files.path().join(format!("Ka.test.+013+{flags}.private"));
            let record = format!("; a comment\nA.test. IN DNSKEY {}\n", PresentationFormat::new(Rtype::DNSKEY, &rdata));
            fs::write(path.with_extension("key"), record).expect("written");
            fs::write(&path, private.as_bytes()).expect("written");
            private_files.push(path);
        }
        let error = import(&one.path().join("no"), &zone, &private_files).expect_err("no folder");
        assert!(error.contains("there is no state folder"), "{error}");
        let error = import(one.path(), &zone, &private_files[1..]).expect_err("the ZSK alone");
        assert!(error.contains("import the KSK or CSK too"), "{error}");
        let tags = import(one.path(), &zone, &private_files).expect("imported");
        assert_eq!(tags.len(), 2);
        // Nothing is signed yet: the keys take the place of the previous ones.
        assert_eq!(import(one.path(), &zone, &private_files[..1]), Ok(tags[..1].to_vec()));
        let name = state_file(&zone);
        let file = one.path().join(&name);
        let mut state = read_state(one.path(), &name).expect("written");
        assert_eq!((state.keys.public_keys().count(), state.keys_to_erase.len()), (1, 1));
        assert_eq!(import(one.path(), &zone, &private_files), Ok(tags.clone()));
        state = read_state(one.path(), &name).expect("written");
        assert_eq!((state.keys.public_keys().count(), state.keys_to_erase.len()), (2, 0));
        state.serial = Some(7);
        fs::write(&file, serde_json::to_vec(&state).expect("written")).expect("written");
        let error = import(one.path(), &zone, &private_files).expect_err("it is signed");
        assert!(error.contains("with other keys; "), "{error}");
        // A link of the agent is not followed.
        let moved = files.path().join("state.json");
        fs::rename(&file, &moved).expect("moved");
        std::os::unix::fs::symlink(&moved, &file).expect("made");
        let error = export(one.path(), &zone).err().expect("a link");
        assert!(error.starts_with("cannot read "), "{error}");
        fs::rename(&moved, &file).expect("moved back");
        let exported = export(one.path(), &zone).expect("exported");
        let mut again = Vec::new();
        for key in &exported {
            let path = files.path().join(format!("{}.private", key.name));
            fs::write(files.path().join(format!("{}.key", key.name)), &key.public).expect("written");
            fs::write(&path, key.private.as_bytes()).expect("written");
            again.push(path);
        }
        assert_eq!(import(other.path(), &zone, &again), Ok(tags));
        fs::copy(private_files[0].with_extension("key"), private_files[1].with_extension("key")).expect("copied");
        let third = tempfile::tempdir().expect("made");
        let error = import(third.path(), &zone, &private_files).expect_err("another key");
        assert!(error.contains("it is not the key of the DNSKEY record"), "{error}");
        let b_test = DomainName::parse("b.test").expect("a name");
        let error = import(third.path(), &b_test, &private_files).expect_err("another zone");
        assert!(error.contains("it is the key of the zone A.test., not of b.test"), "{error}");
    }

    #[test]
    fn keys_of_zones_with_any_name_are_exported() {
        for (name, expected) in [(".", "K.+013+"), ("0/25.2.0.192.in-addr.arpa", "K0%2F25.2.0.192.in-addr.arpa.+013+")]
        {
            let (state, files) = (tempfile::tempdir().expect("made"), tempfile::tempdir().expect("made"));
            let zone = DomainName::parse(name).expect("a name");
            let pkcs8 = ZonePrivateKey::make(13).expect("made");
            let key = ZonePrivateKey::from_pkcs8(13, &pkcs8).expect("a key").public();
            let rdata = [&KSK_FLAGS.to_be_bytes()[..], &[3, 13], &key.public_key].concat();
            let owner = if name == "." { ".".to_owned() } else { format!("{name}.") };
            let path = files.path().join("one.private");
            let record = format!("{owner} IN DNSKEY {}\n", PresentationFormat::new(Rtype::DNSKEY, &rdata));
            fs::write(path.with_extension("key"), record).expect("written");
            fs::write(&path, to_private(Algorithm::EcdsaP256, &pkcs8).expect("a key").as_bytes()).expect("written");
            import(state.path(), &zone, &[path]).expect("imported");
            let exported = export(state.path(), &zone).expect("exported");
            assert!(exported[0].name.starts_with(expected), "{}", exported[0].name);
            assert!(exported[0].public.starts_with(&format!("{owner} 3600 IN DNSKEY")), "{}", exported[0].public);
        }
    }

    #[test]
    fn length_of_an_rsa_key_is_that_of_its_modulus() {
        assert_eq!(rsa_bits(&[&[3, 1, 0, 1][..], &[0x80; 128]].concat()), 1024);
        assert_eq!(rsa_bits(&[&[0, 0, 3, 1, 0, 1][..], &[0x80; 256]].concat()), 2048);
        assert_eq!((rsa_bits(&[]), rsa_bits(&[0, 1]), rsa_bits(&[5, 1])), (0, 8, 0));
    }
}
