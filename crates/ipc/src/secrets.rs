//! Certificates, private keys and shared keys on their way from the supervisor to a server process: the content of the sealed
//! files [`FdKind::Certificates`](crate::FdKind::Certificates) and [`FdKind::SharedKeys`](crate::FdKind::SharedKeys); and back the
//! good versions of certificates, for the next server process ([`FdKind::KeptCertificates`](crate::FdKind::KeptCertificates)).
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
/// How long a shared key is the current one, and then the previous one.
pub const KEY_LIFETIME_S: u64 = 12 * 3600;

/// The first byte of good versions: another version of the program may have kept them.
const KEPT_FORMAT: u8 = 2;
const FILES: u8 = 0;
const UNREADABLE: u8 = 1;

/// A certificate chain, which may have the private key, and the key, as PEM; the text of the error if they could not be read.
pub type PemFiles = Result<(Zeroizing<Vec<u8>>, Zeroizing<Vec<u8>>), String>;

/// Writes the files of each certificate, in the order of the configuration.
pub fn certificates_to_memfd(certificates: &[PemFiles]) -> io::Result<OwnedFd> {
    let parts = |files: &PemFiles| match files {
        Ok((chain, key)) => 1 + 4 + chain.len() + 4 + key.len(),
        Err(error) => 1 + 4 + error.len(),
    };
    // Allocated at once: growing would leave copies behind that are not erased.
    let mut content = Zeroizing::new(Vec::with_capacity(certificates.iter().map(parts).sum()));
    for files in certificates {
        match files {
            Ok((chain, key)) => {
                content.push(FILES);
                put(chain, &mut content);
                put(key, &mut content);
            }
            Err(error) => {
                content.push(UNREADABLE);
                put(error.as_bytes(), &mut content);
            }
        }
    }
    memfd::create("certificates", &content)
}

/// Reads what [`certificates_to_memfd`] has written.
///
/// # Errors
/// The content is malformed.
pub fn certificates_from_memfd(descriptor: impl AsFd) -> io::Result<Vec<PemFiles>> {
    let content = Zeroizing::new(memfd::read(descriptor, CERTIFICATES_BYTES_MAX)?);
    let mut rest = &content[..];
    let mut certificates = Vec::new();
    while let Some((tag, after)) = rest.split_first() {
        rest = after;
        certificates.push(match *tag {
            FILES => Ok((take_secret(&mut rest)?, take_secret(&mut rest)?)),
            UNREADABLE => Err(String::from_utf8_lossy(take(&mut rest)?).into_owned()),
            _ => return Err(malformed()),
        });
    }
    Ok(certificates)
}

/// The secret of a TSIG key; the text of the error if it could not be read.
pub type TsigSecret = Result<Zeroizing<Vec<u8>>, String>;

/// Writes the secret of each TSIG key, in the order of the configuration.
pub fn tsig_secrets_to_memfd(secrets: &[TsigSecret]) -> io::Result<OwnedFd> {
    let bytes = |secret: &TsigSecret| 1 + 4 + secret.as_ref().map_or_else(String::len, |secret| secret.len());
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

/// Reads what [`tsig_secrets_to_memfd`] has written.
///
/// # Errors
/// The content is malformed.
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
#[derive(Clone, PartialEq, Eq)]
pub struct KeptCertificate {
    /// The domain that it is used for; empty for every host.
    pub domain: String,
    /// The file of its chain.
    pub file: PathBuf,
    /// The chain as PEM, which may have the private key.
    pub chain: Zeroizing<Vec<u8>>,
    /// The private key as PEM.
    pub key: Zeroizing<Vec<u8>>,
}

/// Writes good versions of certificates.
pub fn kept_certificates_to_memfd<'k>(kept: impl Iterator<Item = &'k KeptCertificate> + Clone) -> io::Result<OwnedFd> {
    let parts =
        |kept: &'k KeptCertificate| [kept.domain.as_bytes(), kept.file.as_os_str().as_bytes(), &kept.chain, &kept.key];
    let bytes: usize = kept.clone().flat_map(parts).map(|part| 4 + part.len()).sum();
    let mut content = Zeroizing::new(Vec::with_capacity(1 + bytes));
    content.push(KEPT_FORMAT);
    kept.flat_map(parts).for_each(|part| put(part, &mut content));
    memfd::create("kept-certificates", &content)
}

/// Reads what [`kept_certificates_to_memfd`] has written.
///
/// # Errors
/// The content is malformed, or of another format.
pub fn kept_certificates_from_memfd(descriptor: impl AsFd) -> io::Result<Vec<KeptCertificate>> {
    let content = Zeroizing::new(memfd::read(descriptor, CERTIFICATES_BYTES_MAX)?);
    let (format, mut rest) = content.split_first().ok_or_else(malformed)?;
    if *format != KEPT_FORMAT {
        let message = format!("the kept certificates have format {format}, this program reads {KEPT_FORMAT}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    let mut kept = Vec::new();
    while !rest.is_empty() {
        let domain = String::from_utf8_lossy(take(&mut rest)?).into_owned();
        let file = PathBuf::from(OsStr::from_bytes(take(&mut rest)?));
        kept.push(KeptCertificate { domain, file, chain: take_secret(&mut rest)?, key: take_secret(&mut rest)? });
    }
    Ok(kept)
}

/// Without the key.
impl std::fmt::Debug for KeptCertificate {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("KeptCertificate").field("file", &self.file).finish_non_exhaustive()
    }
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

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the certificates or keys that were passed on are malformed")
}

/// Keys that all server processes of a machine share, and the keys before them, which are still accepted.
#[derive(Clone, Default)]
pub struct SharedKeys {
    /// When the current ticket key was made, in seconds since 1970.
    pub made_at_unix_s: u64,
    /// They encrypt session tickets of TLS.
    pub tickets: KeyPair<TICKET_KEY_BYTES>,
    /// They make and check cookies of DNS.
    pub cookies: KeyPair<COOKIE_SECRET_BYTES>,
}

/// A key, and another one that is also accepted.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyPair<const BYTES: usize> {
    /// The key for what is made now.
    pub current: Zeroizing<[u8; BYTES]>,
    /// The key before it.
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
        let key = |at: usize| pair[at..].first_chunk().map(|key| Zeroizing::new(*key)).ok_or_else(malformed);
        let previous = if pair[0] == 0 { None } else { Some(key(1 + BYTES)?) };
        Ok(KeyPair { current: key(1)?, previous })
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

    /// Reads what [`SharedKeys::to_memfd`] has written.
    ///
    /// # Errors
    /// The content is malformed.
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
            chain: Zeroizing::new(chain.to_vec()),
            key: Zeroizing::new(b"key".to_vec()),
        };
        let all = [kept("/a/chain.pem", b"chain"), kept("b.pem", b"")];
        for count in 0..=all.len() {
            let file = kept_certificates_to_memfd(all[..count].iter()).expect("created");
            assert_eq!(kept_certificates_from_memfd(&file).expect("read"), all[..count]);
        }
        let whole = memfd::read(kept_certificates_to_memfd(all[..1].iter()).expect("created"), 100).expect("read");
        // With the format alone there are none.
        for length in (0..whole.len()).filter(|length| *length != 1) {
            let file = memfd::create("test", &whole[..length]).expect("created");
            assert!(kept_certificates_from_memfd(&file).is_err(), "{length} bytes");
        }
        let of_another_version = memfd::create("test", &[&[KEPT_FORMAT + 1], &whole[1..]].concat()).expect("created");
        let error = kept_certificates_from_memfd(of_another_version).expect_err("refused");
        assert_eq!(error.to_string(), "the kept certificates have format 3, this program reads 2");
    }

    #[test]
    fn certificates_arrive_as_they_were_sent() {
        let certificates: [PemFiles; 3] = [
            Ok((Zeroizing::new(b"chain".to_vec()), Zeroizing::new(b"key".to_vec()))),
            Err("no such file".to_owned()),
            Ok((Zeroizing::new(Vec::new()), Zeroizing::new(Vec::new()))),
        ];
        for count in 0..=certificates.len() {
            let sent = &certificates[..count];
            let file = certificates_to_memfd(sent).expect("created");
            assert_eq!(certificates_from_memfd(&file).expect("read"), sent);
        }
    }

    #[test]
    fn malformed_certificates_are_refused() {
        let whole = [&[FILES][..], &5u32.to_le_bytes(), b"chain", &3u32.to_le_bytes(), b"key"].concat();
        for length in 1..whole.len() {
            let file = memfd::create("test", &whole[..length]).expect("created");
            assert!(certificates_from_memfd(&file).is_err(), "{length} bytes");
        }
        let file = memfd::create("test", &[2]).expect("created");
        assert!(certificates_from_memfd(&file).is_err());
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
