//! Certificates, and the keys that all server processes share: read or made here, and passed on in sealed memory, since
//! the account of server processes must not be able to read the files.

use super::Supervisor;
use sanderling_config::diagnostic::error_text;
use sanderling_config::log::{log_error, log_warning, report};
use sanderling_config::{COOKIE_SECRET_BYTES, CertificateFiles, Config, TsigKeyFile, read_beneath, read_issued};
use sanderling_ipc::backend_files::backend_files_to_memfd;
use sanderling_ipc::derived::{DERIVED_BYTES_MAX, DERIVED_FILE};
use sanderling_ipc::secrets::{
    CertificateContent, KEY_LIFETIME_S, KeptCertificate, KeyPair, NoCertificate, PassedCertificate, SharedKeys,
    TsigSecret, certificates_to_memfd, kept_certificates_from_memfd, tsig_secrets_to_memfd,
};
use sanderling_ipc::{Command, FdKind, IncomingFds};
use sanderling_os::directory::Directory;
use sanderling_os::error::is_missing;
use sanderling_os::memfd;
use sanderling_os::sandbox::forbid_core_dumps;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use zeroize::Zeroizing;

/// Time between two checks whether a file has changed.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two checks if only the keys' age can change.
const KEY_CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// Checks in a row that may find other versions before those are passed on: with many domains, some file may always
/// change.
const UNSETTLED_CHECKS_MAX: u32 = 3;

/// The state of the files with secrets, and the shared keys.
#[derive(Debug, Default)]
pub(super) struct Secrets {
    /// The files when they were passed on last; `None` if that has failed, and everything must be passed on again.
    versions: Option<Vec<Option<FileVersion>>>,
    /// Versions that differ from them, seen in the last check.
    changed: Option<UnsettledVersions>,
    /// The time of the next check of files and keys; `None` if the configuration needs neither.
    next_check: Option<Instant>,
    shared_keys: Option<(SharedKeys, OwnedFd)>,
    /// The file with the secrets of cookies, and the secrets when it was read last without an error.
    cookie_secrets: Option<(PathBuf, KeyPair<COOKIE_SECRET_BYTES>)>,
    /// The state folder, which has the certificates that the agent requests.
    state: Option<PathBuf>,
    /// The derived records when they were read last.
    derived: Option<OwnedFd>,
    /// Good versions of the certificates, which the serving process has sent.
    kept: Option<OwnedFd>,
    /// The last time when everything was read and passed on.
    passed_on_at: Option<Instant>,
}

/// A change of a file changes one of these numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileVersion {
    device: u64,
    inode: u64,
    length_bytes: u64,
    changed_at_s: i64,
    changed_at_ns: i64,
}

impl FileVersion {
    fn of(metadata: &Metadata) -> FileVersion {
        FileVersion {
            device: metadata.dev(),
            inode: metadata.ino(),
            length_bytes: metadata.len(),
            changed_at_s: metadata.ctime(),
            changed_at_ns: metadata.ctime_nsec(),
        }
    }
}

/// Versions of the files that differ from the versions in service.
#[derive(Debug)]
struct UnsettledVersions {
    versions: Vec<Option<FileVersion>>,
    /// Checks in a row that have seen other versions than the previous check.
    check_count: u32,
}

impl Secrets {
    /// Takes over the keys and good versions of the previous supervisor, which has passed on certificates for `config`.
    /// The good versions may come from a server process. All certificates are passed on again, since the last versions
    /// of the files are unknown.
    pub(super) fn inherit(&mut self, shared_keys: Option<OwnedFd>, kept: Option<OwnedFd>, config: &Config) {
        if config.has_secrets()
            && let Err(error) = forbid_core_dumps()
        {
            log_error(&format!("the supervisor's memory can be read: {}", error_text(&error)));
        }
        let shared_keys = shared_keys.filter(|keys| is_unchangeable(keys, "keys"));
        self.shared_keys = shared_keys.and_then(|file| Some((SharedKeys::from_memfd(&file).ok()?, file)));
        self.kept = kept.filter(|kept| is_unchangeable(kept, "certificates"));
        self.pass_on_again(config);
    }

    /// Has certificates and keys passed on again, for `config`.
    pub(super) fn pass_on_again(&mut self, config: &Config) {
        self.versions = None;
        self.next_check = has_secrets(config).then(Instant::now);
    }

    /// Has certificates and keys passed on, but at most once per check interval: the agent, which may ask without end,
    /// requests it.
    pub(super) fn pass_on_soon(&mut self, config: &Config) {
        let at = Instant::now().max(self.passed_on_at.map_or_else(Instant::now, |at| at + CHECK_INTERVAL));
        self.versions = None;
        self.next_check = has_secrets(config).then_some(at);
    }

    /// Forgets good versions that `config`, which is in effect now, has no certificates for.
    pub(super) fn keep_only_for(&mut self, config: &Config) {
        if !config.has_tls() {
            self.kept = None;
        }
    }

    /// Forgets good versions.
    pub(super) fn forget_kept(&mut self) {
        self.kept = None;
    }

    /// Forgets good versions without their private keys, which were in the keeper of an earlier supervisor.
    pub(super) fn forget_versions_without_keys(&mut self) {
        let has_key = |kept: &KeptCertificate| kept.content.held().is_none();
        let have_keys = |file: &OwnedFd| kept_certificates_from_memfd(file).is_ok_and(|all| all.iter().all(has_key));
        self.kept = self.kept.take().filter(have_keys);
    }

    /// Keeps good versions of certificates for the next server process.
    ///
    /// # Errors
    /// Returns an error if the sender must not be trusted.
    pub(super) fn keep(&mut self, descriptors: IncomingFds) -> Result<(), &'static str> {
        for (_, kept) in descriptors.into_iter().filter(|(kind, _)| *kind == FdKind::KeptCertificates) {
            if !memfd::is_sealed(&kept) {
                return Err("it has sent certificates to keep in memory that is not sealed");
            }
            self.kept = Some(kept);
        }
        Ok(())
    }

    /// The good versions that a server process with `config` needs. Sets with private keys go only to server processes
    /// without a keeper, and sets without keys only to those with one.
    pub(super) fn kept_for(&self, config: &Config) -> Option<BorrowedFd<'_>> {
        let kept = self.kept().filter(|_| config.has_tls())?;
        let is_for = |kept: &KeptCertificate| kept.content.held().is_some() == config.keeps_certificates();
        kept_certificates_from_memfd(kept).is_ok_and(|all| all.iter().all(is_for)).then_some(kept)
    }

    pub(super) fn kept(&self) -> Option<BorrowedFd<'_>> {
        self.kept.as_ref().map(AsFd::as_fd)
    }

    pub(super) fn shared_keys(&self) -> Option<BorrowedFd<'_>> {
        self.shared_keys.as_ref().map(|(_, file)| file.as_fd())
    }

    pub(super) fn set_state(&mut self, state: Option<PathBuf>) {
        self.state = state;
    }

    pub(super) fn next_check(&self) -> Option<Instant> {
        self.next_check
    }

    /// The secrets for a server process with `config`; none if it has neither certificates nor cookies. `to_keeper`
    /// exchanges certificates for those without keys, and sockets, if there is a keeper.
    pub(super) fn descriptors(
        &mut self,
        config: &Config,
        to_keeper: impl FnOnce(&[PassedCertificate]) -> io::Result<IncomingFds>,
    ) -> io::Result<IncomingFds> {
        self.versions = None;
        self.changed = None;
        self.passed_on_at = Some(Instant::now());
        // This precedes reading the files: files that change meanwhile are read again.
        let versions = versions(config, self.state.as_deref());
        if config.has_secrets() {
            forbid_core_dumps()?;
        }
        let has_keys = has_keys(config);
        let interval = if versions.is_empty() { KEY_CHECK_INTERVAL } else { CHECK_INTERVAL };
        self.next_check = has_secrets(config).then(|| Instant::now() + interval);
        let mut descriptors = Vec::new();
        if config.has_tls() {
            let read = |files: &CertificateFiles| {
                let read = match (files.is_automatic, &self.state) {
                    (false, _) => files.read().map_err(|problem| problem.to_string()),
                    (true, Some(state)) => read_issued(state, files).map_err(|error| error_text(&error)),
                    (true, None) => Err("there is no state folder".to_owned()),
                };
                read.map(|(chain, key)| CertificateContent::Files { chain, key }).map_err(NoCertificate::Unreadable)
            };
            let certificates: Vec<PassedCertificate> = config.certificates.iter().map(read).collect();
            descriptors = match config.keeps_certificates() {
                true => to_keeper(&certificates)?,
                false => vec![(FdKind::Certificates, certificates_to_memfd(&certificates)?)],
            };
        }
        descriptors.extend(tsig_secrets(config)?.map(|secrets| (FdKind::TsigSecrets, secrets)));
        descriptors.extend(backend_files_to_memfd(config)?.map(|files| (FdKind::BackendFiles, files)));
        descriptors.extend(self.derived_records()?.map(|records| (FdKind::DerivedRecords, records)));
        if has_keys {
            self.read_cookie_secrets(config)?;
            self.rotate(unix_s(SystemTime::now()))?;
            let shared_keys = self.shared_keys().map(|file| file.try_clone_to_owned()).transpose()?;
            descriptors.extend(shared_keys.map(|file| (FdKind::SharedKeys, file)));
        }
        self.versions = Some(versions);
        Ok(descriptors)
    }

    /// Reads the records that the agent has derived for zones. After an error, the previous records are passed on
    /// again: an unusable state folder prevents no process from serving.
    fn derived_records(&mut self) -> io::Result<Option<OwnedFd>> {
        let Some(state) = &self.state else { return Ok(None) };
        let read = || read_beneath(&Directory::open(state)?, DERIVED_FILE.as_bytes(), DERIVED_BYTES_MAX);
        match read() {
            Ok(content) => self.derived = Some(memfd::create("derived-records", &content)?),
            Err(error) if is_missing(&error) => {}
            Err(error) => log_error(&format!("cannot read the derived records: {}", error_text(&error))),
        }
        self.derived.as_ref().map(OwnedFd::try_clone).transpose()
    }

    /// Whether files that have changed are `versions` since the last check. A chain and its key are replaced in two
    /// steps, between which they do not match.
    fn is_settled(&mut self, versions: Vec<Option<FileVersion>>) -> bool {
        let check_count = match self.changed.take() {
            Some(before) if before.versions == versions || before.check_count >= UNSETTLED_CHECKS_MAX => return true,
            Some(before) => before.check_count.saturating_add(1),
            None => 1,
        };
        self.changed = Some(UnsettledVersions { versions, check_count });
        false
    }

    /// Reads the file with the secrets of cookies, if there is one. After an error, its secrets are kept. The secrets
    /// of a file that was removed from the configuration are replaced immediately.
    fn read_cookie_secrets(&mut self, config: &Config) -> io::Result<()> {
        let file = config.replies.cookie_secret_file.as_ref();
        let is_other = |(path, _): &mut (PathBuf, _)| file.is_none_or(|file| file.path != *path);
        if self.cookie_secrets.take_if(is_other).is_some()
            && let Some((keys, _)) = &self.shared_keys
        {
            let mut keys = keys.clone();
            keys.cookies.rotate(random_key()?, false);
            self.share(keys)?;
        }
        match file.map(|file| (file, file.read())) {
            None => {}
            Some((file, Ok((current, previous)))) => {
                self.cookie_secrets = Some((file.path.clone(), KeyPair { current, previous }));
            }
            Some((_, Err(diagnostic))) => report(&[diagnostic]),
        }
        Ok(())
    }

    /// Makes keys if there are none, or if the current ones are too old, or if the secrets in the file have changed.
    fn rotate(&mut self, now_unix_s: u64) -> io::Result<()> {
        let current = self.shared_keys.as_ref().map(|(keys, _)| keys);
        let mut keys = current.cloned().unwrap_or_default();
        let is_expired = is_expired(&keys, now_unix_s);
        if is_expired {
            let was_in_use = current.is_some();
            keys.made_at_unix_s = now_unix_s;
            keys.tickets.rotate(random_key()?, was_in_use);
            keys.cookies.rotate(random_key()?, was_in_use);
        }
        if let Some((_, cookie_secrets)) = &self.cookie_secrets {
            keys.cookies = cookie_secrets.clone();
        }
        if is_expired || current.is_none_or(|current| current.cookies != keys.cookies) {
            self.share(keys)?;
        }
        Ok(())
    }

    fn share(&mut self, keys: SharedKeys) -> io::Result<()> {
        let file = keys.to_memfd()?;
        self.shared_keys = Some((keys, file));
        Ok(())
    }
}

/// The secrets of the TSIG keys of `config`; `None` if there are none.
pub(super) fn tsig_secrets(config: &Config) -> io::Result<Option<OwnedFd>> {
    if config.tsig_keys.is_empty() {
        return Ok(None);
    }
    let read = |key: &TsigKeyFile| key.read().map_err(|diagnostic| diagnostic.to_string());
    let secrets: Vec<TsigSecret> = config.tsig_keys.iter().map(read).collect();
    tsig_secrets_to_memfd(&secrets).map(Some)
}

/// Whether the memory is sealed: a process must not trust memory that its sender can still change.
fn is_unchangeable(received: &OwnedFd, content: &str) -> bool {
    let is_sealed = memfd::is_sealed(received);
    if !is_sealed {
        log_warning(&format!("a server process has had {content} kept in memory that is not sealed; ignoring them"));
    }
    is_sealed
}

fn random_key<const BYTES: usize>() -> io::Result<Zeroizing<[u8; BYTES]>> {
    let mut key = Zeroizing::new([0; BYTES]);
    File::open("/dev/urandom")?.read_exact(&mut key[..])?;
    Ok(key)
}

/// Whether the keys must be replaced, even if the clock was set back.
fn is_expired(keys: &SharedKeys, now_unix_s: u64) -> bool {
    !(keys.made_at_unix_s..keys.made_at_unix_s.saturating_add(KEY_LIFETIME_S)).contains(&now_unix_s)
}

impl Supervisor {
    /// Passes certificates and keys on to the serving process if a file has changed, or if the keys are too old.
    pub(super) fn update_secrets(&mut self) {
        let now = Instant::now();
        if self.task.is_some() || self.secrets.next_check.is_none_or(|at| now < at) {
            return;
        }
        if let Some(at) = self.keeper.process.next_start().filter(|at| now < *at) {
            // Without a keeper, no certificate can be used.
            self.secrets.next_check = Some(at);
            return;
        }
        let config = &self.active.config;
        let versions = versions(config, self.secrets.state.as_deref());
        let interval = if versions.is_empty() { KEY_CHECK_INTERVAL } else { CHECK_INTERVAL };
        self.secrets.next_check = Some(now + interval);
        let has_changed = self.secrets.versions.as_ref() != Some(&versions);
        let is_due =
            self.secrets.shared_keys.as_ref().is_some_and(|(keys, _)| is_expired(keys, unix_s(SystemTime::now())));
        if has_changed && self.secrets.versions.is_some() && !self.secrets.is_settled(versions) && !is_due {
            return;
        }
        if !has_changed && !is_due {
            self.secrets.changed = None;
            return;
        }
        let passed_on = self.active.try_clone().and_then(|active| self.secrets_for(&active));
        match passed_on {
            Ok(descriptors) => {
                if let Some(process) = self.serving_process() {
                    process.send(Command::UpdateSecrets, descriptors);
                }
                self.pass_on_tsig_secrets();
            }
            Err(error) => {
                log_warning(&format!("cannot pass on certificates and keys: {}; retrying", error_text(&error)));
            }
        }
    }
}

/// Whether a server process with `config` needs any of these secrets.
fn has_secrets(config: &Config) -> bool {
    has_keys(config)
        || !config.tsig_keys.is_empty()
        || config.has_derived_records()
        || !config.backend_tls_files().is_empty()
}

/// Whether a server process with `config` needs the keys.
fn has_keys(config: &Config) -> bool {
    config.has_tls() || config.has_cookies()
}

/// The versions of all files with secrets.
fn versions(config: &Config, state: Option<&Path>) -> Vec<Option<FileVersion>> {
    let of_certificates = config.certificates.iter().flat_map(|files| {
        [&files.chain, &files.key].map(|path| {
            // Paths of the agent's files are relative to the state folder.
            if files.is_automatic { state.unwrap_or(Path::new("")).join(path) } else { path.clone() }
        })
    });
    let of_cookies = config.replies.cookie_secret_file.iter().map(|file| file.path.clone());
    let of_tsig = config.tsig_keys.iter().map(|key| key.path.clone());
    let of_backends = config.backend_tls_files().into_iter().flat_map(|(files, _)| files.paths().map(Path::to_owned));
    let of_backends: Vec<PathBuf> = of_backends.collect();
    let derived = state.filter(|_| config.has_derived_records()).map(|state| state.join(DERIVED_FILE));
    of_certificates
        .chain(of_cookies)
        .chain(of_tsig)
        .chain(of_backends)
        .chain(derived)
        .map(|path| Some(FileVersion::of(&fs::metadata(path).ok()?)))
        .collect()
}

fn unix_s(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanderling_config::diagnostic::{Location, ValueLocation};
    use sanderling_config::{ConfigSource, CookieSecretFile};
    use sanderling_ipc::secrets::kept_certificates_to_memfd;
    use std::io::Write;

    const START: u64 = 1_800_000_000;

    fn no_keeper(_: &[PassedCertificate]) -> io::Result<IncomingFds> {
        unreachable!("the configuration needs none")
    }

    fn current(secrets: &Secrets) -> SharedKeys {
        secrets.shared_keys.as_ref().expect("made").0.clone()
    }

    #[test]
    fn key_is_the_current_one_and_then_the_previous_one() {
        let mut secrets = Secrets::default();
        secrets.rotate(START).expect("random numbers");
        let first = current(&secrets);
        assert_eq!((&first.tickets.previous, &first.cookies.previous), (&None, &None));
        secrets.rotate(START + KEY_LIFETIME_S - 1).expect("nothing to do");
        assert_eq!(current(&secrets).tickets, first.tickets);
        secrets.rotate(START + KEY_LIFETIME_S).expect("random numbers");
        let second = current(&secrets);
        assert_eq!(second.tickets.previous.as_ref(), Some(&first.tickets.current));
        assert_eq!(second.cookies.previous.as_ref(), Some(&first.cookies.current));
        assert_ne!(second.tickets.current, first.tickets.current);
        assert_ne!(second.cookies.current, first.cookies.current);
        // The next supervisor continues with them.
        let mut next = Secrets::default();
        let keys = secrets.shared_keys().map(|file| file.try_clone_to_owned().expect("a copy"));
        next.inherit(keys, None, &Config::default());
        next.rotate(START + KEY_LIFETIME_S).expect("nothing to do");
        assert_eq!(current(&next).tickets, second.tickets);
    }

    #[test]
    fn file_that_is_too_long_is_not_cut() {
        let folder = tempfile::tempdir().expect("created");
        std::fs::write(folder.path().join("a"), "1234").expect("written");
        let directory = Directory::open(folder.path()).expect("opened");
        assert_eq!(read_beneath(&directory, b"a", 4).expect("read").as_slice(), b"1234");
        let error = read_beneath(&directory, b"a", 3).expect_err("too long");
        assert_eq!(error.to_string(), "a has more than 3 bytes");
    }

    #[test]
    fn what_its_sender_can_change_is_not_taken_over() {
        let mut unsealed = tempfile::tempfile().expect("created");
        let sealed = SharedKeys { made_at_unix_s: START, ..SharedKeys::default() }.to_memfd().expect("created");
        unsealed.write_all(&memfd::read(&sealed, 1_000).expect("read")).expect("written");
        let check = |file: BorrowedFd<'_>, is_taken_over| {
            let copy = || file.try_clone_to_owned().expect("a copy");
            let mut secrets = Secrets::default();
            secrets.inherit(Some(copy()), Some(copy()), &Config::default());
            assert_eq!((secrets.shared_keys().is_some(), secrets.kept().is_some()), (is_taken_over, is_taken_over));
            let mut secrets = Secrets::default();
            let kept = secrets.keep(vec![(FdKind::KeptCertificates, copy())]);
            assert_eq!((kept.is_ok(), secrets.kept().is_some()), (is_taken_over, is_taken_over));
        };
        check(sealed.as_fd(), true);
        check(unsealed.as_fd(), false);
    }

    #[test]
    fn good_versions_are_kept_until_a_configuration_without_certificates_is_in_effect() {
        let encrypted = Config { has_self_signed_certificate: true, ..Config::default() };
        let kept = kept_certificates_to_memfd([].iter()).expect("created");
        let mut secrets = Secrets { kept: Some(kept), ..Secrets::default() };
        secrets.descriptors(&Config::default(), no_keeper).expect("nothing to read");
        assert!(secrets.kept_for(&Config::default()).is_none() && secrets.kept_for(&encrypted).is_some());
        secrets.keep_only_for(&encrypted);
        assert!(secrets.kept().is_some());
        secrets.keep_only_for(&Config::default());
        assert!(secrets.kept().is_none());
    }

    #[test]
    fn good_versions_with_private_keys_are_not_for_a_process_beside_a_keeper() {
        let files = CertificateContent::Files { chain: Zeroizing::default(), key: Zeroizing::default() };
        let source = ConfigSource::File("sanderling.toml".into());
        let config = |keys: &str| {
            let text = format!("keys = \"{keys}\"\n[domain.\"a.test\"]\nsite = \"a\"\n");
            let text = text + "certificate = { chain = \"a.pem\", key = \"a.key\" }\n";
            source.parse(text.as_bytes()).unwrap_or_else(|diagnostics| panic!("{diagnostics:?}"))
        };
        for (content, of_keeper) in [(files, false), (CertificateContent::Held(vec![vec![1]]), true)] {
            let kept = KeptCertificate { domain: String::new(), file: PathBuf::new(), content };
            let kept = kept_certificates_to_memfd([kept].iter()).expect("created");
            let secrets = Secrets { kept: Some(kept), ..Secrets::default() };
            assert_eq!(secrets.kept_for(&config("keeper")).is_some(), of_keeper);
            assert_eq!(secrets.kept_for(&config("in-process")).is_some(), !of_keeper);
        }
    }

    #[test]
    fn supervisor_with_secrets_makes_no_core_dump() {
        let config = Config { has_self_signed_certificate: true, ..Config::default() };
        Secrets::default().descriptors(&config, no_keeper).expect("random numbers");
        let behavior = rustix::process::dumpable_behavior().expect("known");
        assert_eq!(behavior, rustix::process::DumpableBehavior::NotDumpable);
    }

    #[test]
    fn changed_files_are_passed_on_when_they_have_not_changed_again() {
        let mut secrets = Secrets::default();
        let version = |number| {
            let changed = FileVersion { device: 0, inode: number, length_bytes: 0, changed_at_s: 0, changed_at_ns: 0 };
            vec![Some(changed), None]
        };
        let seen = |secrets: &mut Secrets, numbers: &[u64]| -> Vec<bool> {
            numbers.iter().map(|&number| secrets.is_settled(version(number))).collect()
        };
        assert_eq!(seen(&mut secrets, &[1, 1, 2, 3, 3]), [false, true, false, false, true]);
        // Files that keep changing do not prevent other files from being passed on.
        assert_eq!(seen(&mut secrets, &[1, 2, 3, 4, 5]), [false, false, false, true, false]);
    }

    #[test]
    fn keys_of_any_age_are_replaced_in_time() {
        let check = |made_at_unix_s, is_replaced| {
            let file = SharedKeys { made_at_unix_s, ..SharedKeys::default() }.to_memfd().expect("created");
            let mut secrets = Secrets::default();
            secrets.inherit(Some(file), None, &Config::default());
            secrets.rotate(START).expect("random numbers");
            assert_eq!(current(&secrets).tickets != SharedKeys::default().tickets, is_replaced, "{made_at_unix_s}");
        };
        check(START - 1, false);
        for made_at_unix_s in [0, START + 1, u64::MAX - 1, u64::MAX] {
            check(made_at_unix_s, true);
        }
    }

    #[test]
    fn secrets_of_the_file_are_those_of_cookies() {
        let directory = tempfile::tempdir().expect("created");
        let location: ValueLocation = Location::Argument("test".to_owned()).into();
        let mut secrets = Secrets::default();
        let mut read = |path: Option<&str>, content: &str, now_unix_s| {
            let mut config = Config::default();
            config.replies.cookie_secret_file = path.map(|name| {
                let path = directory.path().join(name);
                fs::write(&path, content).expect("written");
                CookieSecretFile { path, location: location.clone() }
            });
            secrets.read_cookie_secrets(&config).expect("random numbers");
            secrets.rotate(now_unix_s).expect("random numbers");
            let cookies = current(&secrets).cookies;
            (cookies.current[0..2].to_vec(), cookies.previous.map(|previous| previous[0]))
        };
        let [first, second] = ["11", "22"].map(|digits| digits.repeat(COOKIE_SECRET_BYTES));
        let file = Some("cookie.secret");
        assert_eq!(read(file, &first, START), (vec![0x11; 2], None));
        let both = (vec![0x22; 2], Some(0x11));
        assert_eq!(read(file, &format!("{second}\n{first}\n"), START), both);
        assert_eq!(read(file, "nonsense", START + KEY_LIFETIME_S), both, "the last good ones stay");
        // For another file that cannot be used, and without a file, the secrets are replaced immediately.
        for other in [Some("other.secret"), None] {
            assert_eq!(read(file, &first, START + KEY_LIFETIME_S).0, vec![0x11; 2]);
            let (current, previous) = read(other, "nonsense", START + KEY_LIFETIME_S);
            assert!(current != vec![0x11; 2] && previous.is_none(), "{current:?}");
            assert_eq!(read(other, "nonsense", START + KEY_LIFETIME_S).0, current, "they stay until they are too old");
        }
    }
}
