//! Chains and keys as operators write them.

use crate::pki::pki;
use sanderling_tls::{Certificate, CertificateError, CertificateProblem};
use std::time::SystemTime;

fn now_unix_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
}

fn load(chain: &[&str], key: &str) -> Result<Certificate, CertificateError> {
    Certificate::from_pem(&pki().chain(chain), &pki().read(key))
}

#[test]
fn keys_are_read_as_sec1_pkcs1_and_pkcs8() {
    for (name, key_type) in [("ecdsa", "ECDSA"), ("rsa", "RSA"), ("ed25519", "Ed25519"), ("other", "ECDSA")] {
        let certificate = load(&[name, "intermediate"], &format!("{name}.key")).unwrap();
        assert_eq!((certificate.key_type(), certificate.issuer()), (key_type, "Test-intermediate"));
    }
}

#[test]
fn certificate_says_its_names_and_its_time() {
    let certificate = load(&["ecdsa", "intermediate"], "ecdsa.key").unwrap();
    assert_eq!(certificate.dns_names(), ["example.com", "*.example.com", "example.org"]);
    let days_left = (certificate.not_after_unix_s() - now_unix_s()) / 86_400;
    assert!((9..=10).contains(&days_left), "{days_left}");
}

#[test]
fn chain_or_key_that_cannot_be_used_is_refused_with_a_remedy() {
    let check = |chain: &[u8], key: &str, expected: &str| {
        let error = Certificate::from_pem(chain, &pki().read(key)).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(!error.remedy().is_empty());
        error
    };
    let chain = pki().chain(&["ecdsa", "intermediate"]);
    check(b"", "ecdsa.key", "the chain has no certificate");
    check(&pki().read("ecdsa.key"), "ecdsa.key", "the chain has no certificate");
    check(&chain[..chain.len() - 30], "ecdsa.key", "the chain is not PEM");
    check(&chain, "rsa.key", "does not match");
    check(&chain, "ecdsa.pem", "no private key");
    check(&chain, "der.key", "no private key");
    check(&chain, "encrypted.key", "encrypted");
    check(&chain, "encrypted-sec1.key", "encrypted");
    check(&chain, "short.key", "cannot be used");
    check(&pki().chain(&["intermediate", "ecdsa"]), "ecdsa.key", "belongs to certificate 2");
    check(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "ecdsa.key", "certificate 1");
    let damaged = b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
    check(damaged, "ecdsa.key", "the chain is not PEM");
}

#[test]
fn chain_that_clients_may_refuse_is_reported() {
    let check = |chain: &[&str], expected: &[&str]| {
        let problems = load(chain, "ecdsa.key").unwrap().problems(now_unix_s(), []);
        let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(texts, expected, "{chain:?}");
        assert!(problems.iter().all(|problem| !problem.remedy().is_empty()));
    };
    let out_of_order =
        |number| format!("certificate {number} of the chain is not followed by the certificate of its issuer");
    check(&["ecdsa", "intermediate"], &[]);
    check(&["ecdsa", "intermediate", "root"], &[]);
    check(&["ecdsa"], &["the issuer of certificate 1, Test-intermediate, is not in the chain"]);
    check(&["ecdsa", "root"], &["the issuer of certificate 1, Test-intermediate, is not in the chain"]);
    check(&["ecdsa", "root", "intermediate"], &[&out_of_order(1)]);
    check(&["ecdsa", "ecdsa", "intermediate"], &[&out_of_order(1)]);
}

#[test]
fn names_that_the_certificate_lacks_are_reported() {
    let check = |certificate: &str, names: &[&str], missing: &[&str]| {
        let loaded = load(&[certificate, "intermediate"], &format!("{certificate}.key")).unwrap();
        let problems = loaded.problems(now_unix_s(), names.iter().copied());
        let expected: Vec<_> = missing.iter().map(|name| CertificateProblem::MissingName((*name).to_owned())).collect();
        assert_eq!(problems, expected, "{names:?}");
    };
    check("ecdsa", &["example.com", "EXAMPLE.org", "www.example.com", "*.Example.com"], &[]);
    check("ecdsa", &["a.b.example.com", "example.net", "192.0.2.1"], &["a.b.example.com", "example.net", "192.0.2.1"]);
    check("other", &["192.0.2.1", "192.0.2.2", "*.example.com"], &["192.0.2.2", "*.example.com"]);
}

#[test]
fn time_of_a_certificate_is_reported_in_days() {
    let certificate = load(&["ecdsa", "intermediate"], "ecdsa.key").unwrap();
    let text = |unix_s| certificate.problems(unix_s, []).iter().map(ToString::to_string).collect::<Vec<_>>();
    let end = certificate.not_after_unix_s();
    assert_eq!(text(end), [""; 0]);
    assert_eq!(text(end + 1), ["the certificate expired less than a day ago"]);
    assert_eq!(text(end + 86_400), ["the certificate expired 1 day ago"]);
    assert_eq!(text(end + 9 * 86_400), ["the certificate expired 9 days ago"]);
    assert_eq!(text(end - 12 * 86_400), ["the certificate becomes valid in 2 days"]);
}
