//! A certificate chain with its private key: read from PEM, refused if clients could not use it, and checked for
//! defects that clients might refuse.

use crate::certificate_error::{CertificateError, CertificateProblem, FileContent};
use crate::der::{self, Elements};
use crate::pem_files::{chain_from_pem, contains, key_from_pem};
use crate::remote_key::{KeyId, PrivateKey, RemoteKey, RemoteSigner};
use rustls::SignatureAlgorithm;
use rustls::pki_types::CertificateDer;
use rustls::sign::{CertifiedKey, SigningKey};
use std::net::IpAddr;
use std::sync::Arc;
use webpki::EndEntityCert;

/// A lifetime below this one counts as short.
const SHORT_LIFETIME_S: u64 = 10 * 86_400;

/// A certificate chain and the key of its first certificate. A clone shares them.
#[derive(Clone, Debug)]
pub struct Certificate {
    certified: Arc<CertifiedKey>,
    facts: Arc<Facts>,
}

/// The contents of the first certificate.
#[derive(Debug)]
struct Facts {
    dns_names: Vec<String>,
    addresses: Vec<IpAddr>,
    /// The other alternative names, for which no client accepts the certificate.
    unusable_names: Vec<String>,
    /// The name of its subject.
    subject: String,
    /// Whether the permitted uses exclude servers.
    is_for_clients_only: bool,
    /// Whether the certificate demands a stapled response about its revocation.
    must_staple: bool,
    /// The key's type, with the curve or other parameters, as DER.
    key_algorithm: Vec<u8>,
    issuer: String,
    not_before_unix_s: u64,
    not_after_unix_s: u64,
}

impl Certificate {
    /// A chain of certificates, the server certificate first, and its key as PKCS#8, SEC1 or PKCS#1, both as PEM.
    ///
    /// The decoded key is erased after it is loaded. The caller erases `key`.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Certificate, CertificateError> {
        Certificate::new(chain_from_pem(chain, key)?, key_from_pem(key)?)
    }

    /// A chain, and a key that may be in another process.
    pub(crate) fn new(
        chain: Vec<CertificateDer<'static>>,
        key: Arc<dyn SigningKey>,
    ) -> Result<Certificate, CertificateError> {
        let leaf = chain.first().ok_or(CertificateError::NoCertificate(FileContent::Nothing))?;
        let invalid = |index, reason| CertificateError::InvalidCertificate { number: index + 1, reason };
        let mut of_key = None;
        for (index, certificate) in chain.iter().enumerate() {
            let parsed = EndEntityCert::try_from(certificate).map_err(|error| invalid(index, error.to_string()))?;
            if of_key.is_none() && key.public_key().is_none_or(|public| public == parsed.subject_public_key_info()) {
                of_key = Some(index);
            }
        }
        match of_key {
            Some(0) => {}
            Some(index) => return Err(CertificateError::NotFirst { number: index + 1 }),
            None => return Err(CertificateError::KeyMismatch),
        }
        let facts = Facts::of(leaf).ok_or_else(|| invalid(0, "a field is missing".into()))?;
        Ok(Certificate { certified: Arc::new(CertifiedKey::new(chain, key)), facts: Arc::new(facts) })
    }

    /// A chain as DER, the server certificate first, whose key is in another process.
    pub fn with_remote_key(
        chain: Vec<Vec<u8>>,
        signer: &Arc<dyn RemoteSigner>,
    ) -> Result<Certificate, CertificateError> {
        let chain: Vec<_> = chain.into_iter().map(CertificateDer::from).collect();
        let leaf = chain.first().ok_or(CertificateError::NoCertificate(FileContent::Nothing))?;
        let invalid = |reason: String| CertificateError::InvalidCertificate { number: 1, reason };
        let parsed = EndEntityCert::try_from(leaf).map_err(|error| invalid(error.to_string()))?;
        let algorithm = Fields::of(leaf).and_then(|fields| Elements(fields.key).take_tagged(der::SEQUENCE));
        let algorithm = algorithm.ok_or_else(|| invalid("a field is missing".into()))?;
        let key = RemoteKey::new(parsed.subject_public_key_info().into_owned(), algorithm, Arc::clone(signer))?;
        Certificate::new(chain, Arc::new(key))
    }

    /// The certificate's key, which is in this process.
    pub fn private_key(&self) -> PrivateKey {
        PrivateKey(Arc::clone(&self.certified.key))
    }

    /// The name of the key of a certificate as DER, if it can be parsed.
    pub fn key_id_of(certificate: &[u8]) -> Option<KeyId> {
        let certificate = CertificateDer::from(certificate);
        let parsed = EndEntityCert::try_from(&certificate).ok()?;
        Some(KeyId::of(&parsed.subject_public_key_info()))
    }

    /// The certificates, the server certificate first.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.certified.cert
    }

    /// The names, wildcards and addresses for which it is valid, in lower case.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.facts.names()
    }

    pub(crate) fn has_addresses(&self) -> bool {
        !self.facts.addresses.is_empty()
    }

    /// Whether the certificate is valid for `host`: a name in any letter case, with or without a dot at its end, one of
    /// its own wildcards, or an address, IPv6 perhaps in brackets. A wildcard holds for one label (RFC 9525 §6.3).
    pub fn is_valid_for_host(&self, host: &[u8]) -> bool {
        self.facts.is_valid_for_host(host)
    }

    /// Whether its time has begun and is not over.
    pub fn is_valid_at(&self, now_unix_s: u64) -> bool {
        (self.facts.not_before_unix_s..=self.facts.not_after_unix_s).contains(&now_unix_s)
    }

    /// Whether clients support this key if they support the key of `other`.
    pub fn has_same_key_type(&self, other: &Certificate) -> bool {
        self.facts.key_algorithm == other.facts.key_algorithm
    }

    /// The name of the issuer.
    pub fn issuer(&self) -> &str {
        &self.facts.issuer
    }

    /// The last second of the validity, since 1970.
    pub fn not_after_unix_s(&self) -> u64 {
        self.facts.not_after_unix_s
    }

    /// The first second of the validity, since 1970.
    pub fn not_before_unix_s(&self) -> u64 {
        self.facts.not_before_unix_s
    }

    /// The key's type: `ECDSA`, `RSA`, `Ed25519`, or `ECDSA (P-521)`, which fewer clients support.
    pub fn key_type(&self) -> &'static str {
        match self.certified.key.algorithm() {
            SignatureAlgorithm::ECDSA if contains(&self.facts.key_algorithm, der::P521) => "ECDSA (P-521)",
            SignatureAlgorithm::ECDSA => "ECDSA",
            SignatureAlgorithm::ED25519 => "Ed25519",
            _ => "RSA",
        }
    }

    /// The reasons why clients may refuse the certificate at `now_unix_s` for `names`: host names, wildcards and
    /// addresses.
    pub fn problems<'n>(&self, now_unix_s: u64, names: impl IntoIterator<Item = &'n str>) -> Vec<CertificateProblem> {
        problems(&self.certified.cert, &self.facts, now_unix_s, names)
    }

    /// The problem that browsers do not support the key.
    pub fn key_problem(&self) -> Option<CertificateProblem> {
        let key_type = self.key_type();
        let is_supported = matches!(key_type, "ECDSA" | "RSA");
        (!is_supported).then_some(CertificateProblem::UnsupportedByBrowsers { key_type })
    }

    /// The problem of its validity at `now_unix_s`.
    pub fn time_problem(&self, now_unix_s: u64) -> Option<CertificateProblem> {
        time_problem(self.facts.not_before_unix_s, self.facts.not_after_unix_s, now_unix_s)
    }

    pub(crate) fn certified(&self) -> &Arc<CertifiedKey> {
        &self.certified
    }
}

/// A chain that a server presents to clients. Its key is unknown.
#[derive(Debug)]
pub struct PresentedChain {
    chain: Vec<CertificateDer<'static>>,
    facts: Facts,
}

impl PresentedChain {
    /// A chain as DER, the certificate of the server first.
    ///
    /// # Errors
    /// It has no certificate, or the first one is damaged.
    pub fn new(chain: Vec<Vec<u8>>) -> Result<PresentedChain, CertificateError> {
        let chain: Vec<_> = chain.into_iter().map(CertificateDer::from).collect();
        let leaf = chain.first().ok_or(CertificateError::NoCertificate(FileContent::Nothing))?;
        let damaged = || CertificateError::InvalidCertificate { number: 1, reason: "a field is missing".into() };
        let facts = Facts::of(leaf).ok_or_else(damaged)?;
        Ok(PresentedChain { chain, facts })
    }

    /// As [`Certificate::problems`].
    pub fn problems<'n>(&self, now_unix_s: u64, names: impl IntoIterator<Item = &'n str>) -> Vec<CertificateProblem> {
        problems(&self.chain, &self.facts, now_unix_s, names)
    }

    /// As [`Certificate::time_problem`].
    pub(crate) fn time_problem(&self, now_unix_s: u64) -> Option<CertificateProblem> {
        time_problem(self.facts.not_before_unix_s, self.facts.not_after_unix_s, now_unix_s)
    }

    /// The last second in which its first certificate is valid, since 1970.
    pub fn not_after_unix_s(&self) -> u64 {
        self.facts.not_after_unix_s
    }

    /// The time for which its first certificate was issued.
    pub fn lifetime_s(&self) -> u64 {
        self.facts.not_after_unix_s.saturating_sub(self.facts.not_before_unix_s)
    }
}

/// Why clients may refuse `chain`, whose first certificate has `facts`, as that of `names`.
fn problems<'n>(
    chain: &[CertificateDer<'_>],
    facts: &Facts,
    now_unix_s: u64,
    names: impl IntoIterator<Item = &'n str>,
) -> Vec<CertificateProblem> {
    let mut problems = Vec::new();
    problems.extend(time_problem(facts.not_before_unix_s, facts.not_after_unix_s, now_unix_s));
    problems.extend(chain_problem(chain));
    problems.extend(weak_signature(chain));
    if facts.is_for_clients_only {
        problems.push(CertificateProblem::NotForServers);
    }
    if facts.must_staple {
        problems.push(CertificateProblem::MustStaple);
    }
    let unusable_names = &facts.unusable_names;
    let has_names = facts.names().next().is_some();
    if !has_names && unusable_names.is_empty() {
        problems.push(CertificateProblem::NoAlternativeName { subject: facts.subject.clone() });
        return problems;
    }
    let count = problems.len();
    let missing = names.into_iter().filter(|name| !facts.is_valid_for_host(name.as_bytes()));
    problems.extend(missing.map(|name| CertificateProblem::MissingName(name.to_owned())));
    if !unusable_names.is_empty() && (!has_names || problems.len() > count) {
        // Mostly why a name is missing.
        problems.insert(count, CertificateProblem::UnusableNames { names: unusable_names.join(", ") });
    }
    problems
}

/// The problem at `now_unix_s` of a certificate with this validity. "Soon" is the last third of its lifetime, or the
/// last half of a short one: most ACME clients renew it then.
pub fn time_problem(not_before_unix_s: u64, not_after_unix_s: u64, now_unix_s: u64) -> Option<CertificateProblem> {
    if now_unix_s < not_before_unix_s {
        return Some(CertificateProblem::NotYetValid { in_s: not_before_unix_s - now_unix_s });
    }
    let Some(in_s) = not_after_unix_s.checked_sub(now_unix_s) else {
        return Some(CertificateProblem::Expired { since_s: now_unix_s - not_after_unix_s });
    };
    let lifetime_s = not_after_unix_s - not_before_unix_s;
    let last_s = if lifetime_s < SHORT_LIFETIME_S { lifetime_s / 2 } else { lifetime_s / 3 };
    (in_s < last_s).then_some(CertificateProblem::ExpiresSoon { in_s })
}

/// The first place where the issuer does not follow.
fn chain_problem(chain: &[CertificateDer<'_>]) -> Option<CertificateProblem> {
    let names: Vec<_> = chain.iter().filter_map(|certificate| Fields::of(certificate)).collect();
    for (index, certificate) in names.iter().enumerate() {
        let number = index + 1;
        match names.get(number) {
            Some(next) if next.subject == certificate.issuer => {}
            Some(_) if names.iter().any(|other| other.subject == certificate.issuer) => {
                return Some(CertificateProblem::ChainOutOfOrder { number });
            }
            // Clients have the root certificate that issued the last intermediate one.
            None if index > 0 || certificate.subject == certificate.issuer => {}
            _ => {
                let issuer = name_text(certificate.issuer);
                return Some(CertificateProblem::ChainIncomplete { number, issuer });
            }
        }
    }
    None
}

/// The first certificate, other than a root, whose signature clients no longer accept.
fn weak_signature(chain: &[CertificateDer<'_>]) -> Option<CertificateProblem> {
    chain.iter().enumerate().find_map(|(index, certificate)| {
        // The signature of a root is not verified.
        let fields = Fields::of(certificate).filter(|fields| fields.issuer != fields.subject)?;
        let algorithm = Elements(fields.algorithm).take_tagged(der::OBJECT_ID)?;
        let (_, hash) = der::WEAK_SIGNATURES.into_iter().find(|(weak, _)| *weak == algorithm)?;
        Some(CertificateProblem::WeakSignature { number: index + 1, hash })
    })
}

/// The fields of a certificate that follow one another (RFC 5280 §4.1).
struct Fields<'d> {
    /// Of the signature.
    algorithm: &'d [u8],
    issuer: &'d [u8],
    validity: &'d [u8],
    subject: &'d [u8],
    key: &'d [u8],
    rest: Elements<'d>,
}

impl<'d> Fields<'d> {
    fn of(certificate: &'d [u8]) -> Option<Fields<'d>> {
        const VERSION: u8 = 0xa0;
        let mut fields =
            Elements(Elements(Elements(certificate).take_tagged(der::SEQUENCE)?).take_tagged(der::SEQUENCE)?);
        fields.take_tagged(VERSION);
        fields.take_tagged(der::INTEGER)?;
        let mut next = || fields.take_tagged(der::SEQUENCE);
        let (algorithm, issuer, validity, subject, key) = (next()?, next()?, next()?, next()?, next()?);
        Some(Fields { algorithm, issuer, validity, subject, key, rest: fields })
    }

    /// The elements of the list that is the value of an extension (RFC 5280 §4.2); none without the extension.
    fn extension(&self, wanted: &[u8]) -> Elements<'d> {
        const EXTENSIONS: u8 = 0xa3;
        let mut extensions = self
            .rest
            .filter(|(tag, _)| *tag == EXTENSIONS)
            .flat_map(|(_, list)| Elements(list))
            .flat_map(|(_, list)| Elements(list));
        let found = extensions.find_map(|(_, extension)| {
            let mut fields = Elements(extension);
            let is_wanted = fields.take_tagged(der::OBJECT_ID)? == wanted;
            let (_, value) = fields.find(|(tag, _)| *tag == der::OCTET_STRING).filter(|_| is_wanted)?;
            Elements(value).take_tagged(der::SEQUENCE)
        });
        Elements(found.unwrap_or_default())
    }

    /// The addresses among the alternative names (RFC 5280 §4.2.1.6).
    fn addresses(&self) -> Vec<IpAddr> {
        let names = self.extension(der::SUBJECT_ALTERNATIVE_NAME);
        names.filter(|(tag, _)| *tag == der::IP_ADDRESS).filter_map(|(_, bytes)| address(bytes)).collect()
    }

    /// The alternative names other than addresses and `dns_names`.
    fn other_names(&self, dns_names: &[String]) -> Vec<String> {
        let names = self.extension(der::SUBJECT_ALTERNATIVE_NAME).filter_map(|(tag, bytes)| match tag {
            der::DNS_NAME => {
                let name = String::from_utf8_lossy(bytes).to_ascii_lowercase();
                (!dns_names.contains(&name)).then(|| format!("`{}`", name.escape_debug()))
            }
            der::IP_ADDRESS if address(bytes).is_some() => None,
            der::IP_ADDRESS => Some("an address of a wrong length".to_owned()),
            der::EMAIL_ADDRESS => Some("an email address".to_owned()),
            der::URI => Some("a URI".to_owned()),
            _ => Some("a name of another type".to_owned()),
        });
        names.collect()
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from).ok();
    v4.or_else(|| <[u8; 16]>::try_from(bytes).map(IpAddr::from).ok())
}

impl Facts {
    fn of(certificate: &CertificateDer<'_>) -> Option<Facts> {
        let names = Fields::of(certificate)?;
        let mut validity = Elements(names.validity).map(|(tag, text)| der::unix_s(tag, text));
        let parsed = EndEntityCert::try_from(certificate).ok()?;
        // No client accepts a certificate for a name that ends with a dot (RFC 5280 §4.2.1.6).
        let dns_names = parsed.valid_dns_names().filter(|name| !name.ends_with('.'));
        let dns_names: Vec<String> = dns_names.map(str::to_ascii_lowercase).collect();
        let purposes = || names.extension(der::EXTENDED_KEY_USAGE).map(|(_, purpose)| purpose);
        let mut features = names.extension(der::TLS_FEATURE);
        Some(Facts {
            unusable_names: names.other_names(&dns_names),
            dns_names,
            addresses: names.addresses(),
            is_for_clients_only: purposes().next().is_some()
                && !purposes().any(|purpose| purpose == der::SERVER_AUTH || purpose == der::ANY_PURPOSE),
            must_staple: features.any(|(_, feature)| feature == der::STATUS_REQUEST),
            subject: name_text(names.subject),
            key_algorithm: Elements(names.key).take_tagged(der::SEQUENCE)?.to_vec(),
            issuer: name_text(names.issuer),
            not_before_unix_s: validity.next()??,
            not_after_unix_s: validity.next()??,
        })
    }

    /// As [`Certificate::is_valid_for_host`].
    fn is_valid_for_host(&self, host: &[u8]) -> bool {
        let name = host.strip_suffix(b".").unwrap_or(host);
        let first_label_bytes = name.iter().position(|&byte| byte == b'.').filter(|&bytes| bytes > 0);
        let parent = first_label_bytes.map(|bytes| &name[bytes..]);
        let is_valid_for_name = self.dns_names.iter().any(|valid| match valid.strip_prefix('*') {
            Some(dot_and_name) => parent.is_some_and(|parent| parent.eq_ignore_ascii_case(dot_and_name.as_bytes())),
            None => name.eq_ignore_ascii_case(valid.as_bytes()),
        });
        is_valid_for_name || (!self.addresses.is_empty() && self.is_valid_for_address(host))
    }

    fn is_valid_for_address(&self, host: &[u8]) -> bool {
        let host = host.strip_prefix(b"[").and_then(|host| host.strip_suffix(b"]")).unwrap_or(host);
        let address: Option<IpAddr> = str::from_utf8(host).ok().and_then(|host| host.parse().ok());
        address.is_some_and(|address| self.addresses.contains(&address))
    }

    /// The names, wildcards and addresses for which it is valid, in lower case.
    fn names(&self) -> impl Iterator<Item = String> {
        self.dns_names.iter().cloned().chain(self.addresses.iter().map(IpAddr::to_string))
    }
}

/// The common name of a distinguished name, or else its organization.
fn name_text(name: &[u8]) -> String {
    let attribute = |wanted: &[u8]| {
        Elements(name).flat_map(|(_, set)| Elements(set)).find_map(|(_, attribute)| {
            let mut parts = Elements(attribute);
            (parts.take_tagged(der::OBJECT_ID)? == wanted).then(|| parts.next()).flatten()
        })
    };
    let text = attribute(der::COMMON_NAME).or_else(|| attribute(der::ORGANIZATION)).map_or(&[][..], |(_, text)| text);
    text.utf8_chunks().flat_map(|chunk| chunk.valid().chars()).filter(|character| !character.is_control()).collect()
}
