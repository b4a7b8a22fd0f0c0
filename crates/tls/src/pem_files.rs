//! Reads the PEM files of a certificate, and reports their problems.

use crate::certificate_error::{CertificateError, FileContent, PemFile};
use crate::der::{self, Elements};
use crate::provider::load_key;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::SigningKey;
use std::sync::Arc;
use zeroize::Zeroize;

const PRIVATE_KEY: &[u8] = b"PRIVATE KEY-----";
const CERTIFICATE: &[u8] = b"-----BEGIN CERTIFICATE-----";

/// The byte order mark that some editors write at the start of a UTF-8 file.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The certificates of `chain`, at least one. `key` is the content of the other file.
pub(crate) fn chain_from_pem(chain: &[u8], key: &[u8]) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let (chain, key) = (without_byte_order_mark(chain), without_byte_order_mark(key));
    check_lines(chain, PemFile::Chain)?;
    let certificates = CertificateDer::pem_slice_iter(chain).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.map_err(|error| syntax_error(PemFile::Chain, &error))?;
    if !certificates.is_empty() {
        return Ok(certificates);
    }
    Err(match FileContent::of(chain) {
        FileContent::Key if contains(key, CERTIFICATE) && !contains(key, PRIVATE_KEY) => CertificateError::Swapped,
        content => CertificateError::NoCertificate(content),
    })
}

/// The certificates of a PEM file of roots, at least one.
pub(crate) fn certificates_from_pem(file: &[u8]) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    chain_from_pem(file, &[])
}

/// The private key of `key`. The decoded key is erased after it is loaded.
pub(crate) fn key_from_pem(key: &[u8]) -> Result<Arc<dyn SigningKey>, CertificateError> {
    let key = without_byte_order_mark(key);
    check_lines(key, PemFile::Key)?;
    let is_encrypted = [&b"-----BEGIN ENCRYPTED PRIVATE KEY"[..], b"Proc-Type: 4,ENCRYPTED"];
    if is_encrypted.iter().any(|mark| contains(key, mark)) {
        return Err(CertificateError::EncryptedKey);
    }
    let mut der = PrivateKeyDer::from_pem_slice(key).map_err(|error| match error {
        pem::Error::NoItemsFound => CertificateError::NoKey(FileContent::of(key)),
        error => syntax_error(PemFile::Key, &error),
    })?;
    let loaded = load_key(&der).map_err(|_| CertificateError::UnsupportedKey(description(&der)));
    der.zeroize();
    loaded
}

fn without_byte_order_mark(content: &[u8]) -> &[u8] {
    content.strip_prefix(BYTE_ORDER_MARK).unwrap_or(content)
}

/// Refuses a file in which a section would be missed, and the next would be taken for the first.
fn check_lines(content: &[u8], file: PemFile) -> Result<(), CertificateError> {
    const BEGIN: &[u8] = b"-----BEGIN ";
    let mut lines = content.split(|&byte| byte == b'\n');
    match lines.position(|line| !line.starts_with(BEGIN) && line.trim_ascii_start().starts_with(BEGIN)) {
        Some(index) => Err(CertificateError::Indented { file, line: index + 1 }),
        None => Ok(()),
    }
}

/// The error text leaves out the key, which must not be shown.
fn syntax_error(file: PemFile, error: &pem::Error) -> CertificateError {
    let reason = match error {
        pem::Error::MissingSectionEnd { .. } => return CertificateError::Cut(file),
        pem::Error::IllegalSectionStart { .. } => "a line -----BEGIN …----- is incomplete",
        pem::Error::Base64Decode(_) => "a character is missing, or is not base64",
        _ => "it is too large",
    };
    CertificateError::Damaged { file, reason: reason.to_owned() }
}

impl FileContent {
    fn of(file: &[u8]) -> FileContent {
        let marks: [(&[u8], FileContent); 6] = [
            (PRIVATE_KEY, FileContent::Key),
            (CERTIFICATE, FileContent::Certificate),
            (b"CERTIFICATE REQUEST-----", FileContent::Request),
            (b"PUBLIC KEY-----", FileContent::PublicKey),
            (b"-----BEGIN PKCS7-----", FileContent::Pkcs7),
            (b"-----BEGIN PKCS #7", FileContent::Pkcs7),
        ];
        if let Some((_, content)) = marks.iter().find(|(mark, _)| contains(file, mark)) {
            return *content;
        }
        match Elements(file).next() {
            _ if file.trim_ascii().is_empty() => FileContent::Nothing,
            // RFC 7292 §4: the version is 3, and the rest is signed or enveloped data.
            Some((der::SEQUENCE, content)) => {
                let mut fields = Elements(content);
                let is_pkcs12 = fields.take_tagged(der::INTEGER) == Some(&[3])
                    && fields.take_tagged(der::SEQUENCE).is_some_and(|data| data.first() == Some(&der::OBJECT_ID));
                if is_pkcs12 { FileContent::Pkcs12 } else { FileContent::Der }
            }
            _ => FileContent::Unknown,
        }
    }
}

pub(crate) fn contains(file: &[u8], mark: &[u8]) -> bool {
    file.windows(mark.len()).any(|window| window == mark)
}

/// Type and size of a key that cannot be used: `it is RSA with 1024 bits`.
fn description(key: &PrivateKeyDer<'_>) -> String {
    let described = match key {
        PrivateKeyDer::Pkcs1(key) => rsa(key.secret_pkcs1_der()),
        PrivateKeyDer::Sec1(key) => sec1_curve(key.secret_sec1_der()),
        PrivateKeyDer::Pkcs8(key) => pkcs8(key.secret_pkcs8_der()),
        _ => None,
    };
    format!("it is {}", described.as_deref().unwrap_or("damaged, or of an unknown type"))
}

/// RFC 8017 §A.1.2.
fn rsa(key: &[u8]) -> Option<String> {
    let mut fields = Elements(Elements(key).take_tagged(der::SEQUENCE)?);
    fields.take_tagged(der::INTEGER)?;
    let modulus = fields.take_tagged(der::INTEGER)?;
    let leading_zeros = modulus.iter().take_while(|byte| **byte == 0).count();
    let bits = 8 * (modulus.len() - leading_zeros);
    (!(2048..=8192).contains(&bits)).then(|| format!("RSA with {bits} bits"))
}

/// RFC 5915 §3.
fn sec1_curve(key: &[u8]) -> Option<String> {
    const PARAMETERS: u8 = 0xa0;
    let mut fields = Elements(Elements(key).take_tagged(der::SEQUENCE)?);
    fields.take_tagged(der::INTEGER)?;
    fields.take_tagged(der::OCTET_STRING)?;
    curve(Elements(fields.take_tagged(PARAMETERS)?).take_tagged(der::OBJECT_ID)?)
}

/// RFC 5958 §2.
fn pkcs8(key: &[u8]) -> Option<String> {
    const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
    const RSA_PSS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 10];
    const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
    const DSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x38, 4, 1];
    const ED448: &[u8] = &[0x2b, 0x65, 0x71];
    let mut fields = Elements(Elements(key).take_tagged(der::SEQUENCE)?);
    fields.take_tagged(der::INTEGER)?;
    let mut algorithm = Elements(fields.take_tagged(der::SEQUENCE)?);
    match algorithm.take_tagged(der::OBJECT_ID)? {
        RSA => rsa(fields.take_tagged(der::OCTET_STRING)?),
        RSA_PSS => Some("RSA for RSASSA-PSS alone".to_owned()),
        EC => curve(algorithm.take_tagged(der::OBJECT_ID)?),
        DSA => Some("DSA".to_owned()),
        ED448 => Some("Ed448".to_owned()),
        _ => None,
    }
}

/// Curves that are supported have no description: such a key is damaged.
fn curve(id: &[u8]) -> Option<String> {
    let name = match id {
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7] | [0x2b, 0x81, 4, 0, 34] => return None,
        [0x2b, 0x81, 4, 0, 10] => "the curve secp256k1",
        der::P521 => "the curve P-521",
        [0x2b, 0x81, 4, 0, 33] => "the curve P-224",
        [0x2b, 0x24, 3, 3, 2, 8, 1, 1, ..] => "a brainpool curve",
        _ => "an unsupported curve",
    };
    Some(format!("ECDSA with {name}"))
}
