//! Certificates, private keys and ticket keys on their way from the supervisor to a server process: the content of the sealed
//! files [`FdKind::Certificates`](crate::FdKind::Certificates) and [`FdKind::TicketKeys`](crate::FdKind::TicketKeys); and back the
//! good versions of certificates, for the next server process ([`FdKind::KeptCertificates`](crate::FdKind::KeptCertificates)).
//!
//! Copies in memory are erased after use.

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

const FILES: u8 = 0;
const UNREADABLE: u8 = 1;

/// A certificate chain and its private key as PEM; the text of the error if they could not be read.
pub type PemFiles = Result<(Vec<u8>, Zeroizing<Vec<u8>>), String>;

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
            FILES => Ok((take(&mut rest)?.to_vec(), Zeroizing::new(take(&mut rest)?.to_vec()))),
            UNREADABLE => Err(String::from_utf8_lossy(take(&mut rest)?).into_owned()),
            _ => return Err(malformed()),
        });
    }
    Ok(certificates)
}

/// A good version of a certificate.
#[derive(Clone, PartialEq, Eq)]
pub struct KeptCertificate {
    /// The file of its chain.
    pub file: PathBuf,
    /// The chain as PEM.
    pub chain: Vec<u8>,
    /// The private key as PEM.
    pub key: Zeroizing<Vec<u8>>,
}

/// Writes good versions of certificates.
pub fn kept_certificates_to_memfd<'k>(kept: impl Iterator<Item = &'k KeptCertificate> + Clone) -> io::Result<OwnedFd> {
    let parts = |kept: &'k KeptCertificate| [kept.file.as_os_str().as_bytes(), &kept.chain, &kept.key];
    let bytes = kept.clone().flat_map(parts).map(|part| 4 + part.len()).sum();
    let mut content = Zeroizing::new(Vec::with_capacity(bytes));
    kept.flat_map(parts).for_each(|part| put(part, &mut content));
    memfd::create("kept-certificates", &content)
}

/// Reads what [`kept_certificates_to_memfd`] has written.
///
/// # Errors
/// The content is malformed.
pub fn kept_certificates_from_memfd(descriptor: impl AsFd) -> io::Result<Vec<KeptCertificate>> {
    let content = Zeroizing::new(memfd::read(descriptor, CERTIFICATES_BYTES_MAX)?);
    let mut rest = &content[..];
    let mut kept = Vec::new();
    while !rest.is_empty() {
        let file = PathBuf::from(OsStr::from_bytes(take(&mut rest)?));
        let chain = take(&mut rest)?.to_vec();
        kept.push(KeptCertificate { file, chain, key: Zeroizing::new(take(&mut rest)?.to_vec()) });
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

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the certificates or ticket keys of the supervisor are malformed")
}

/// The keys that encrypt session tickets.
#[derive(Clone)]
pub struct TicketKeyPair {
    /// When the current key was made, in seconds since 1970.
    pub made_at_unix_s: u64,
    /// The key for new tickets.
    pub current: Zeroizing<[u8; TICKET_KEY_BYTES]>,
    /// The key before it, whose tickets are still accepted.
    pub previous: Option<Zeroizing<[u8; TICKET_KEY_BYTES]>>,
}

impl TicketKeyPair {
    /// Writes the keys.
    pub fn to_memfd(&self) -> io::Result<OwnedFd> {
        let mut content = Zeroizing::new(Vec::with_capacity(8 + 2 * TICKET_KEY_BYTES));
        content.extend_from_slice(&self.made_at_unix_s.to_le_bytes());
        content.extend_from_slice(&self.current[..]);
        if let Some(previous) = &self.previous {
            content.extend_from_slice(&previous[..]);
        }
        memfd::create("ticket-keys", &content)
    }

    /// Reads what [`TicketKeyPair::to_memfd`] has written.
    ///
    /// # Errors
    /// The content is malformed.
    pub fn from_memfd(descriptor: impl AsFd) -> io::Result<TicketKeyPair> {
        let content = Zeroizing::new(memfd::read(descriptor, 8 + 2 * TICKET_KEY_BYTES as u64)?);
        let (made_at, rest) = content.split_first_chunk().ok_or_else(malformed)?;
        let (current, rest) = rest.split_first_chunk().ok_or_else(malformed)?;
        let previous = match rest {
            [] => None,
            rest => Some(Zeroizing::new(<[u8; TICKET_KEY_BYTES]>::try_from(rest).map_err(|_| malformed())?)),
        };
        let made_at_unix_s = u64::from_le_bytes(*made_at);
        Ok(TicketKeyPair { made_at_unix_s, current: Zeroizing::new(*current), previous })
    }
}

impl std::fmt::Debug for TicketKeyPair {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("TicketKeyPair").field("made_at_unix_s", &self.made_at_unix_s).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_arrive_as_they_were_sent() {
        let certificates: [PemFiles; 3] = [
            Ok((b"chain".to_vec(), Zeroizing::new(b"key".to_vec()))),
            Err("no such file".to_owned()),
            Ok((Vec::new(), Zeroizing::new(Vec::new()))),
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
    fn kept_certificates_arrive_as_they_were_sent() {
        let kept = |file: &str, chain: &[u8]| KeptCertificate {
            file: file.into(),
            chain: chain.to_vec(),
            key: Zeroizing::new(b"key".to_vec()),
        };
        let all = [kept("/a/chain.pem", b"chain"), kept("b.pem", b"")];
        for count in 0..=all.len() {
            let file = kept_certificates_to_memfd(all[..count].iter()).expect("created");
            assert_eq!(kept_certificates_from_memfd(&file).expect("read"), all[..count]);
        }
        let whole = memfd::read(kept_certificates_to_memfd(all[..1].iter()).expect("created"), 100).expect("read");
        for length in 1..whole.len() {
            let file = memfd::create("test", &whole[..length]).expect("created");
            assert!(kept_certificates_from_memfd(&file).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn ticket_keys_arrive_as_they_were_sent() {
        let key = |byte| Zeroizing::new([byte; TICKET_KEY_BYTES]);
        for previous in [None, Some(key(2))] {
            let keys = TicketKeyPair { made_at_unix_s: 1_800_000_000, current: key(1), previous };
            let read = TicketKeyPair::from_memfd(keys.to_memfd().expect("created")).expect("read");
            assert_eq!(read.made_at_unix_s, keys.made_at_unix_s);
            assert_eq!((read.current, read.previous), (keys.current, keys.previous));
        }
        let cut = memfd::create("test", &[0; 8 + TICKET_KEY_BYTES + 1]).expect("created");
        assert!(TicketKeyPair::from_memfd(&cut).is_err());
    }
}
