//! Certificates, private keys and shared keys on their way from the supervisor to a server process: the content of the
//! sealed files [`FdKind::Certificates`](crate::FdKind::Certificates) and
//! [`FdKind::SharedKeys`](crate::FdKind::SharedKeys); and back the good versions of certificates, for the next server
//! process ([`FdKind::KeptCertificates`](crate::FdKind::KeptCertificates)).
//!
//! With a keeper, the supervisor sends it the certificates with their keys, and the keeper passes them on to the server
//! process without the keys. The keeper also gives the supervisor the keys, for the next keeper
//! ([`FdKind::HeldKeys`](crate::FdKind::HeldKeys)).
//!
//! Copies in memory are erased after use.

use sanderling_config::COOKIE_SECRET_BYTES;
use sanderling_os::memfd;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use zeroize::Zeroizing;

/// Bytes of all certificates with their keys.
const CERTIFICATES_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Bytes of one ticket key.
pub const TICKET_KEY_BYTES: usize = 48;
/// The time in seconds for which a shared key is current, and after that previous.
pub const KEY_LIFETIME_S: u64 = 12 * 3600;

/// The first byte of good versions: another version of the program may have kept them.
const KEPT_FORMAT: u8 = 3;
const FILES: u8 = 0;
const UNREADABLE: u8 = 1;
const HELD: u8 = 2;
const UNUSABLE: u8 = 3;

/// The content of a file that may have a private key. It is erased.
pub type SecretContent = Zeroizing<Vec<u8>>;

/// A certificate with its key.
#[derive(Clone, PartialEq, Eq)]
pub enum CertificateContent {
    /// Files as PEM.
    Files {
        /// The chain, which may have the private key.
        chain: SecretContent,
        /// The private key.
        key: SecretContent,
    },
    /// The certificates as DER, the server certificate first. The keeper has the key.
    Held(Vec<Vec<u8>>),
}

/// Without the key.
impl std::fmt::Debug for CertificateContent {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            CertificateContent::Files { .. } => "Files",
            CertificateContent::Held(_) => "Held",
        })
    }
}

/// The reason why there is no certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoCertificate {
    /// The files cannot be read: the text of the error.
    Unreadable(String),
    /// The keeper cannot use the content of the files.
    Unusable {
        /// The reason.
        problem: String,
        /// The remedy.
        remedy: String,
    },
}

/// A certificate of the configuration, or why there is none.
pub type PassedCertificate = Result<CertificateContent, NoCertificate>;

/// Writes each certificate, in the order of the configuration.
pub fn certificates_to_memfd(certificates: &[PassedCertificate]) -> io::Result<OwnedFd> {
    let bytes = |certificate: &PassedCertificate| match certificate {
        Ok(content) => content.written_bytes(),
        Err(NoCertificate::Unreadable(error)) => tagged_bytes([error.len()]),
        Err(NoCertificate::Unusable { problem, remedy }) => tagged_bytes([problem.len(), remedy.len()]),
    };
    // The buffer is allocated in one step: growing would leave copies that are not erased.
    let mut out = Zeroizing::new(Vec::with_capacity(certificates.iter().map(bytes).sum()));
    for certificate in certificates {
        match certificate {
            Ok(content) => content.put(&mut out),
            Err(NoCertificate::Unreadable(error)) => {
                out.push(UNREADABLE);
                put(error.as_bytes(), &mut out);
            }
            Err(NoCertificate::Unusable { problem, remedy }) => {
                out.push(UNUSABLE);
                put(problem.as_bytes(), &mut out);
                put(remedy.as_bytes(), &mut out);
            }
        }
    }
    memfd::create("certificates", &out)
}

/// Reads the output of [`certificates_to_memfd`].
///
/// # Errors
/// Returns an error if the content is malformed.
pub fn certificates_from_memfd(descriptor: impl AsFd) -> io::Result<Vec<PassedCertificate>> {
    let content = Zeroizing::new(memfd::read(descriptor, CERTIFICATES_BYTES_MAX)?);
    let mut rest = &content[..];
    let mut certificates = Vec::new();
    while let Some((tag, after)) = rest.split_first() {
        certificates.push(match *tag {
            UNREADABLE => {
                rest = after;
                Err(NoCertificate::Unreadable(take_text(&mut rest)?))
            }
            UNUSABLE => {
                rest = after;
                Err(NoCertificate::Unusable { problem: take_text(&mut rest)?, remedy: take_text(&mut rest)? })
            }
            _ => Ok(CertificateContent::take(&mut rest)?),
        });
    }
    Ok(certificates)
}

impl CertificateContent {
    /// The server's certificate, if it is DER.
    pub fn held(&self) -> Option<&[u8]> {
        match self {
            CertificateContent::Held(chain) => chain.first().map(Vec::as_slice),
            CertificateContent::Files { .. } => None,
        }
    }

    fn written_bytes(&self) -> usize {
        match self {
            CertificateContent::Files { chain, key } => tagged_bytes([chain.len(), key.len()]),
            CertificateContent::Held(chain) => tagged_bytes([bytes_of(chain)]),
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            CertificateContent::Files { chain, key } => {
                out.push(FILES);
                put(chain, out);
                put(key, out);
            }
            CertificateContent::Held(chain) => {
                out.push(HELD);
                out.extend_from_slice(&(bytes_of(chain) as u32).to_le_bytes());
                chain.iter().for_each(|certificate| put(certificate, out));
            }
        }
    }

    fn take(rest: &mut &[u8]) -> io::Result<CertificateContent> {
        let (tag, after) = rest.split_first().ok_or_else(malformed)?;
        *rest = after;
        match *tag {
            FILES => Ok(CertificateContent::Files { chain: take_secret(rest)?, key: take_secret(rest)? }),
            HELD => {
                let mut certificates = take(rest)?;
                let mut chain = Vec::new();
                while !certificates.is_empty() {
                    chain.push(take(&mut certificates)?.to_vec());
                }
                Ok(CertificateContent::Held(chain))
            }
            _ => Err(malformed()),
        }
    }
}

/// Bytes of all parts, each with its length.
fn bytes_of(parts: &[Vec<u8>]) -> usize {
    parts.iter().map(|part| part_bytes(part.len())).sum()
}

/// Bytes of a part with its length.
fn part_bytes(bytes: usize) -> usize {
    bytes.saturating_add(4)
}

/// Bytes of parts of these lengths after a tag.
fn tagged_bytes<const COUNT: usize>(parts: [usize; COUNT]) -> usize {
    parts.map(part_bytes).into_iter().fold(1, usize::saturating_add)
}

/// Writes private keys as PEM, for the next keeper.
pub fn held_keys_to_memfd<'k>(keys: impl Iterator<Item = &'k SecretContent> + Clone) -> io::Result<OwnedFd> {
    let mut out = Zeroizing::new(Vec::with_capacity(keys.clone().map(|key| part_bytes(key.len())).sum()));
    keys.for_each(|key| put(key, &mut out));
    memfd::create("held-keys", &out)
}

/// Reads the output of [`held_keys_to_memfd`].
///
/// # Errors
/// Returns an error if the content is malformed.
pub fn held_keys_from_memfd(descriptor: impl AsFd) -> io::Result<Vec<SecretContent>> {
    let content = Zeroizing::new(memfd::read(descriptor, CERTIFICATES_BYTES_MAX)?);
    let mut rest = &content[..];
    let mut keys = Vec::new();
    while !rest.is_empty() {
        keys.push(take_secret(&mut rest)?);
    }
    Ok(keys)
}

/// The secret of a TSIG key; the text of the error if it could not be read.
pub type TsigSecret = Result<Zeroizing<Vec<u8>>, String>;

/// Writes the secret of each TSIG key, in the order of the configuration.
pub fn tsig_secrets_to_memfd(secrets: &[TsigSecret]) -> io::Result<OwnedFd> {
    let bytes = |secret: &TsigSecret| tagged_bytes([secret.as_ref().map_or_else(String::len, |secret| secret.len())]);
    let mut content = Zeroizing::new(Vec::with_capacity(secrets.iter().map(bytes).sum()));
    for secret in secrets {
        content.push(if secret.is_ok() { FILES } else { UNREADABLE });
        match secret {
            Ok(secret) => put(secret, &mut content),
            Err(error) => put(error.as_bytes(), &mut content),
        }
    }
    memfd::create("tsig-secrets", &content)
}

/// Reads the output of [`tsig_secrets_to_memfd`].
///
/// # Errors
/// Returns an error if the content is malformed.
pub fn tsig_secrets_from_memfd(descriptor: impl AsFd) -> io::Result<Vec<TsigSecret>> {
    let content = Zeroizing::new(memfd::read(descriptor, CERTIFICATES_BYTES_MAX)?);
    let mut rest = &content[..];
    let mut secrets = Vec::new();
    while let Some((tag, after)) = rest.split_first() {
        rest = after;
        let part = take(&mut rest)?;
        secrets.push(match *tag {
            FILES => Ok(Zeroizing::new(part.to_vec())),
            UNREADABLE => Err(String::from_utf8_lossy(part).into_owned()),
            _ => return Err(malformed()),
        });
    }
    Ok(secrets)
}

/// A good version of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptCertificate {
    /// The domain that the certificate is used for; empty for every host.
    pub domain: String,
    /// The file of its chain.
    pub file: PathBuf,
    /// The certificate.
    pub content: CertificateContent,
}

/// Writes good versions of certificates.
pub fn kept_certificates_to_memfd<'k>(kept: impl Iterator<Item = &'k KeptCertificate> + Clone) -> io::Result<OwnedFd> {
    let names = |kept: &'k KeptCertificate| [kept.domain.as_bytes(), kept.file.as_os_str().as_bytes()];
    let bytes = |kept| {
        let of_names = names(kept).iter().map(|name| part_bytes(name.len())).sum::<usize>();
        of_names.saturating_add(kept.content.written_bytes())
    };
    let mut out = Zeroizing::new(Vec::with_capacity(kept.clone().map(bytes).fold(1, usize::saturating_add)));
    out.push(KEPT_FORMAT);
    for kept in kept {
        names(kept).into_iter().for_each(|name| put(name, &mut out));
        kept.content.put(&mut out);
    }
    memfd::create("kept-certificates", &out)
}

/// Reads the output of [`kept_certificates_to_memfd`].
///
/// # Errors
/// Returns an error if the content is malformed, or of another format.
pub fn kept_certificates_from_memfd(descriptor: impl AsFd) -> io::Result<Vec<KeptCertificate>> {
    let content = Zeroizing::new(memfd::read(descriptor, CERTIFICATES_BYTES_MAX)?);
    let (format, mut rest) = content.split_first().ok_or_else(malformed)?;
    if *format != KEPT_FORMAT {
        let message = format!("the kept certificates have format {format}, this program reads {KEPT_FORMAT}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    let mut kept = Vec::new();
    while !rest.is_empty() {
        let domain = take_text(&mut rest)?;
        let file = PathBuf::from(OsStr::from_bytes(take(&mut rest)?));
        kept.push(KeptCertificate { domain, file, content: CertificateContent::take(&mut rest)? });
    }
    Ok(kept)
}

fn put(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn take<'b>(rest: &mut &'b [u8]) -> io::Result<&'b [u8]> {
    let (length, after) = rest.split_first_chunk().ok_or_else(malformed)?;
    let (bytes, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or_else(malformed)?;
    *rest = after;
    Ok(bytes)
}

fn take_secret(rest: &mut &[u8]) -> io::Result<Zeroizing<Vec<u8>>> {
    Ok(Zeroizing::new(take(rest)?.to_vec()))
}

fn take_text(rest: &mut &[u8]) -> io::Result<String> {
    Ok(String::from_utf8_lossy(take(rest)?).into_owned())
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the received certificates or keys are malformed")
}

/// Keys that all server processes of a machine share, and the previous keys, which are still accepted.
#[derive(Clone, Default)]
pub struct SharedKeys {
    /// When the current ticket key was made, in seconds since 1970.
    pub made_at_unix_s: u64,
    /// The keys that encrypt TLS session tickets.
    pub tickets: KeyPair<TICKET_KEY_BYTES>,
    /// The keys that create and check DNS cookies.
    pub cookies: KeyPair<COOKIE_SECRET_BYTES>,
}

/// A key, and a second key that is also accepted.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyPair<const BYTES: usize> {
    /// The key for new secrets.
    pub current: Zeroizing<[u8; BYTES]>,
    /// The previous key.
    pub previous: Option<Zeroizing<[u8; BYTES]>>,
}

impl<const BYTES: usize> std::fmt::Debug for KeyPair<BYTES> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The keys do not get into logs.
        out.write_str("KeyPair")
    }
}

impl<const BYTES: usize> Default for KeyPair<BYTES> {
    fn default() -> KeyPair<BYTES> {
        KeyPair { current: Zeroizing::new([0; BYTES]), previous: None }
    }
}

impl<const BYTES: usize> KeyPair<BYTES> {
    /// Bytes that [`KeyPair::put`] writes.
    const WRITTEN_BYTES: usize = 1 + 2 * BYTES;

    /// Makes `key` the current one, and the current one the previous one, if it `was_in_use`.
    pub fn rotate(&mut self, key: Zeroizing<[u8; BYTES]>, was_in_use: bool) {
        let before = std::mem::replace(&mut self.current, key);
        self.previous = was_in_use.then_some(before);
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.previous.is_some()));
        out.extend_from_slice(&self.current[..]);
        out.extend_from_slice(self.previous.as_ref().map_or(&[0; BYTES], |previous| &**previous));
    }

    fn take(rest: &mut &[u8]) -> io::Result<KeyPair<BYTES>> {
        let (pair, after) = rest.split_at_checked(Self::WRITTEN_BYTES).ok_or_else(malformed)?;
        *rest = after;
        let (tag, keys) = pair.split_first().ok_or_else(malformed)?;
        let (current, previous) = keys.split_first_chunk().ok_or_else(malformed)?;
        let key = |key: &[u8; BYTES]| Zeroizing::new(*key);
        let previous = if *tag == 0 { None } else { Some(key(previous.first_chunk().ok_or_else(malformed)?)) };
        Ok(KeyPair { current: key(current), previous })
    }
}

impl SharedKeys {
    const WRITTEN_BYTES: usize =
        8 + KeyPair::<TICKET_KEY_BYTES>::WRITTEN_BYTES + KeyPair::<COOKIE_SECRET_BYTES>::WRITTEN_BYTES;

    /// Writes the keys.
    pub fn to_memfd(&self) -> io::Result<OwnedFd> {
        let mut content = Zeroizing::new(Vec::with_capacity(SharedKeys::WRITTEN_BYTES));
        content.extend_from_slice(&self.made_at_unix_s.to_le_bytes());
        self.tickets.put(&mut content);
        self.cookies.put(&mut content);
        memfd::create("shared-keys", &content)
    }

    /// Reads the output of [`SharedKeys::to_memfd`].
    ///
    /// # Errors
    /// Returns an error if the content is malformed.
    pub fn from_memfd(descriptor: impl AsFd) -> io::Result<SharedKeys> {
        let content = Zeroizing::new(memfd::read(descriptor, SharedKeys::WRITTEN_BYTES as u64)?);
        let (made_at, mut rest) = content.split_first_chunk().ok_or_else(malformed)?;
        let (tickets, cookies) = (KeyPair::take(&mut rest)?, KeyPair::take(&mut rest)?);
        let made_at_unix_s = u64::from_le_bytes(*made_at);
        if rest.is_empty() { Ok(SharedKeys { made_at_unix_s, tickets, cookies }) } else { Err(malformed()) }
    }
}

impl std::fmt::Debug for SharedKeys {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("SharedKeys").field("made_at_unix_s", &self.made_at_unix_s).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_keys_arrive_as_they_were_sent() {
        let secrets: Vec<TsigSecret> = vec![
            Ok(Zeroizing::new(b"secret".to_vec())),
            Err("no such file".to_owned()),
            Ok(Zeroizing::new(vec![0; 64])),
        ];
        let file = tsig_secrets_to_memfd(&secrets).expect("created");
        assert_eq!(tsig_secrets_from_memfd(&file).expect("read"), secrets);
        assert!(tsig_secrets_from_memfd(memfd::create("test", b"\0\x09\0\0\0short").expect("created")).is_err());
    }

    #[test]
    fn kept_certificates_arrive_as_they_were_sent() {
        let kept = |file: &str, chain: &[u8]| KeptCertificate {
            domain: "a.test".to_owned(),
            file: file.into(),
            content: CertificateContent::Files {
                chain: Zeroizing::new(chain.to_vec()),
                key: Zeroizing::new(b"key".to_vec()),
            },
        };
        let held = CertificateContent::Held(vec![b"leaf".to_vec(), b"issuer".to_vec()]);
        let all = [
            kept("/a/chain.pem", b"chain"),
            kept("b.pem", b""),
            KeptCertificate { content: held, ..kept("c.pem", b"") },
        ];
        for count in 0..=all.len() {
            let file = kept_certificates_to_memfd(all[..count].iter()).expect("created");
            assert_eq!(kept_certificates_from_memfd(&file).expect("read"), all[..count]);
        }
        let whole = memfd::read(kept_certificates_to_memfd(all[..1].iter()).expect("created"), 100).expect("read");
        // A file with only the format has no certificates.
        for length in (0..whole.len()).filter(|length| *length != 1) {
            let file = memfd::create("test", &whole[..length]).expect("created");
            assert!(kept_certificates_from_memfd(&file).is_err(), "{length} bytes");
        }
        let of_another_version = memfd::create("test", &[&[KEPT_FORMAT + 1], &whole[1..]].concat()).expect("created");
        let error = kept_certificates_from_memfd(of_another_version).expect_err("refused");
        assert_eq!(error.to_string(), "the kept certificates have format 4, this program reads 3");
    }

    #[test]
    fn certificates_arrive_as_they_were_sent() {
        let files = |chain: &[u8], key: &[u8]| {
            let [chain, key] = [chain, key].map(|content| Zeroizing::new(content.to_vec()));
            Ok(CertificateContent::Files { chain, key })
        };
        let certificates: [PassedCertificate; 6] = [
            files(b"chain", b"key"),
            Err(NoCertificate::Unreadable("no such file".to_owned())),
            files(b"", b""),
            Ok(CertificateContent::Held(vec![b"leaf".to_vec(), Vec::new()])),
            Err(NoCertificate::Unusable { problem: "it is empty".to_owned(), remedy: String::new() }),
            Ok(CertificateContent::Held(Vec::new())),
        ];
        for count in 0..=certificates.len() {
            let sent = &certificates[..count];
            let file = certificates_to_memfd(sent).expect("created");
            assert_eq!(certificates_from_memfd(&file).expect("read"), sent);
        }
    }

    #[test]
    fn held_keys_arrive_as_they_were_sent() {
        let keys = [b"one".to_vec(), Vec::new(), b"three".to_vec()].map(Zeroizing::new);
        let file = held_keys_to_memfd(keys.iter()).expect("created");
        assert_eq!(held_keys_from_memfd(&file).expect("read"), keys);
        assert!(held_keys_from_memfd(memfd::create("test", b"\x09\0\0\0short").expect("created")).is_err());
    }

    #[test]
    fn malformed_certificates_are_refused() {
        let whole = [&[FILES][..], &5u32.to_le_bytes(), b"chain", &3u32.to_le_bytes(), b"key"].concat();
        for length in 1..whole.len() {
            let file = memfd::create("test", &whole[..length]).expect("created");
            assert!(certificates_from_memfd(&file).is_err(), "{length} bytes");
        }
        for malformed in [&[HELD][..], &[HELD, 1, 0, 0, 0, 0], &[UNUSABLE, 0, 0, 0, 0], &[9]] {
            let file = memfd::create("test", malformed).expect("created");
            assert!(certificates_from_memfd(&file).is_err(), "{malformed:?}");
        }
    }

    #[test]
    fn keys_arrive_as_they_were_sent() {
        let mut keys = SharedKeys { made_at_unix_s: 1_800_000_000, ..SharedKeys::default() };
        for (byte, was_in_use) in [(1, false), (2, true), (3, true)] {
            keys.tickets.rotate(Zeroizing::new([byte; TICKET_KEY_BYTES]), was_in_use);
            keys.cookies.rotate(Zeroizing::new([byte + 100; COOKIE_SECRET_BYTES]), was_in_use);
            let read = SharedKeys::from_memfd(keys.to_memfd().expect("created")).expect("read");
            assert_eq!(read.made_at_unix_s, keys.made_at_unix_s);
            assert_eq!(
                (read.tickets.current, read.cookies.current),
                (keys.tickets.current.clone(), keys.cookies.current.clone())
            );
            assert_eq!(
                (&read.tickets.previous, &read.cookies.previous),
                (&keys.tickets.previous, &keys.cookies.previous)
            );
            assert_eq!(read.cookies.previous.is_some(), was_in_use);
        }
        for length in [0, SharedKeys::WRITTEN_BYTES - 1, SharedKeys::WRITTEN_BYTES + 1] {
            let other = memfd::create("test", &vec![0; length]).expect("created");
            assert!(SharedKeys::from_memfd(&other).is_err(), "{length} bytes");
        }
    }
}
