//! Certificates and ticket keys: read or made here, and passed to server processes in sealed memory, since their account must
//! not be able to read the files.

use super::Supervisor;
use sanderling_config::diagnostic::error_text;
use sanderling_config::log::log;
use sanderling_config::{CertificateFiles, Config};
use sanderling_ipc::tls::{PemFiles, TICKET_KEY_BYTES, TicketKeyPair, certificates_to_memfd};
use sanderling_ipc::{Command, FdKind, IncomingFds};
use sanderling_os::memfd;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use zeroize::Zeroizing;

/// Time between two checks whether a file has changed.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a ticket key is the current one, and then the previous one.
const TICKET_KEY_LIFETIME_S: u64 = 12 * 3600;

/// What is known of the files of the certificates, and the ticket keys.
#[derive(Debug, Default)]
pub(super) struct TlsFiles {
    /// The files when they were passed on last.
    versions: Vec<[Option<FileVersion>; 2]>,
    /// When the files are checked next; `None` if there are none.
    next_check: Option<Instant>,
    ticket_keys: Option<(TicketKeyPair, OwnedFd)>,
    /// Good versions of the certificates, which the serving process has sent.
    kept: Option<OwnedFd>,
}

/// A change of a file changes one of these numbers: device, inode, length, and the time of the last change.
type FileVersion = (u64, u64, u64, i64, i64);

impl TlsFiles {
    /// Takes over the ticket keys and good versions of the supervisor before this one, which has passed on certificates for
    /// `config`. They are passed on again, since its last versions of the files are unknown.
    pub(super) fn inherit(&mut self, ticket_keys: Option<OwnedFd>, kept: Option<OwnedFd>, config: &Config) {
        self.ticket_keys = ticket_keys.and_then(|file| Some((TicketKeyPair::from_memfd(&file).ok()?, file)));
        self.kept = kept;
        self.next_check = config.has_tls().then(Instant::now);
    }

    /// Keeps good versions of certificates for the next server process.
    pub(super) fn keep(&mut self, descriptors: IncomingFds) {
        for (kind, kept) in descriptors {
            // What its sender can still change, another process must not trust.
            if kind == FdKind::KeptCertificates && memfd::is_sealed(&kept) {
                self.kept = Some(kept);
            } else {
                log("a server process sends certificates to keep in memory that is not sealed; ignoring them");
            }
        }
    }

    pub(super) fn kept(&self) -> Option<BorrowedFd<'_>> {
        self.kept.as_ref().map(AsFd::as_fd)
    }

    pub(super) fn ticket_keys(&self) -> Option<BorrowedFd<'_>> {
        self.ticket_keys.as_ref().map(|(_, file)| file.as_fd())
    }

    pub(super) fn next_check(&self) -> Option<Instant> {
        self.next_check
    }

    /// What a server process with `config` needs; nothing if it has no certificates.
    pub(super) fn descriptors(&mut self, config: &Config) -> io::Result<IncomingFds> {
        self.versions = versions(&config.certificates);
        self.next_check = config.has_tls().then(|| Instant::now() + CHECK_INTERVAL);
        if !config.has_tls() {
            self.kept = None;
            return Ok(Vec::new());
        }
        let read = |files: &CertificateFiles| files.read().map_err(|problem| problem.to_string());
        let files: Vec<PemFiles> = config.certificates.iter().map(read).collect();
        let certificates = certificates_to_memfd(&files)?;
        self.rotate(unix_s(SystemTime::now()))?;
        let ticket_keys = self.ticket_keys().map(|file| file.try_clone_to_owned()).transpose()?;
        let mut descriptors = vec![(FdKind::Certificates, certificates)];
        descriptors.extend(ticket_keys.map(|file| (FdKind::TicketKeys, file)));
        Ok(descriptors)
    }

    /// Makes a ticket key if there is none, or if the current one is too old; whether it has.
    fn rotate(&mut self, now_unix_s: u64) -> io::Result<bool> {
        let current = self.ticket_keys.as_ref().map(|(keys, _)| keys);
        if current.is_some_and(|keys| !is_expired(keys, now_unix_s)) {
            return Ok(false);
        }
        let mut key = Zeroizing::new([0; TICKET_KEY_BYTES]);
        File::open("/dev/urandom")?.read_exact(&mut key[..])?;
        let previous = current.map(|keys| keys.current.clone());
        let keys = TicketKeyPair { made_at_unix_s: now_unix_s, current: key, previous };
        let file = keys.to_memfd()?;
        self.ticket_keys = Some((keys, file));
        Ok(true)
    }
}

/// Whether another key must replace the current one, also if the clock was set back.
fn is_expired(keys: &TicketKeyPair, now_unix_s: u64) -> bool {
    !(keys.made_at_unix_s..keys.made_at_unix_s + TICKET_KEY_LIFETIME_S).contains(&now_unix_s)
}

impl Supervisor {
    /// Passes certificates and ticket keys on to the serving process if a file has changed, or if the keys are too old.
    pub(super) fn update_tls(&mut self) {
        let now = Instant::now();
        if self.task.is_some() || self.tls.next_check.is_none_or(|at| now < at) {
            return;
        }
        self.tls.next_check = Some(now + CHECK_INTERVAL);
        let config = &self.active.config;
        let has_changed = versions(&config.certificates) != self.tls.versions;
        let is_due = self.tls.ticket_keys.as_ref().is_some_and(|(keys, _)| is_expired(keys, unix_s(SystemTime::now())));
        if !has_changed && !is_due {
            return;
        }
        match self.tls.descriptors(config) {
            Ok(descriptors) => {
                if let Some(process) = self.serving_process() {
                    process.send(Command::UpdateTls, descriptors);
                }
            }
            Err(error) => log(&format!("cannot pass on certificates: {}; retrying", error_text(&error))),
        }
    }
}

fn versions(certificates: &[CertificateFiles]) -> Vec<[Option<FileVersion>; 2]> {
    let version = |path: &Path| {
        let metadata = fs::metadata(path).ok()?;
        Some((metadata.dev(), metadata.ino(), metadata.len(), metadata.ctime(), metadata.ctime_nsec()))
    };
    certificates.iter().map(|files| [version(&files.chain), version(&files.key)]).collect()
}

fn unix_s(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticket_key_is_the_current_one_and_then_the_previous_one() {
        let mut tls = TlsFiles::default();
        let current = |tls: &TlsFiles| tls.ticket_keys.as_ref().map(|(keys, _)| keys.clone()).expect("made");
        let start = 1_800_000_000;
        assert!(tls.rotate(start).expect("random numbers"));
        let first = current(&tls);
        assert!(!tls.rotate(start + TICKET_KEY_LIFETIME_S - 1).expect("nothing to do"));
        assert!(tls.rotate(start + TICKET_KEY_LIFETIME_S).expect("random numbers"));
        let second = current(&tls);
        assert_eq!(second.previous.as_ref(), Some(&first.current));
        assert_ne!(second.current, first.current);
        // Another supervisor continues with them.
        let mut next = TlsFiles::default();
        let keys = tls.ticket_keys().map(|file| file.try_clone_to_owned().expect("a copy"));
        next.inherit(keys, None, &Config::default());
        assert!(!next.rotate(start + TICKET_KEY_LIFETIME_S).expect("nothing to do"));
        assert_eq!(current(&next).current, second.current);
    }
}
