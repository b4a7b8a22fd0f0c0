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
    for (name, key_type) in
        [("ecdsa", "ECDSA"), ("rsa", "RSA"), ("ed25519", "Ed25519"), ("other", "ECDSA"), ("p521", "ECDSA (P-521)")]
    {
        let certificate = load(&[name, "intermediate"], &format!("{name}.key")).unwrap();
        assert_eq!((certificate.key_type(), certificate.issuer()), (key_type, "Test-intermediate"));
    }
}

#[test]
fn byte_order_marks_and_line_ends_of_windows_mean_nothing() {
    let of_windows = |text: &[u8]| {
        let text = String::from_utf8(text.to_vec()).unwrap();
        format!("\u{feff}{}", text.replace('\n', "\r\n")).into_bytes()
    };
    let (chain, key) = (pki().chain(&["ecdsa", "intermediate"]), pki().read("ecdsa.key"));
    let certificate = Certificate::from_pem(&of_windows(&chain), &of_windows(&key)).unwrap();
    assert_eq!(certificate.names().count(), 3);
}

#[test]
fn certificate_says_its_names_and_its_time() {
    let certificate = load(&["ecdsa", "intermediate"], "ecdsa.key").unwrap();
    assert_eq!(certificate.names().collect::<Vec<_>>(), ["example.com", "*.example.com", "example.org"]);
    let other = load(&["other", "intermediate"], "other.key").unwrap();
    assert_eq!(other.names().collect::<Vec<_>>(), ["other.example.com", "192.0.2.1"]);
    let days_left = (certificate.not_after_unix_s() - now_unix_s()) / 86_400;
    assert!((9..=10).contains(&days_left), "{days_left}");
}

#[test]
fn chain_or_key_that_cannot_be_used_is_refused_with_a_remedy() {
    let check_files = |chain: &[u8], key: &[u8], expected: &str, remedy: &str| {
        let error = Certificate::from_pem(chain, key).unwrap_err();
        assert_eq!(error.to_string(), expected);
        assert!(error.remedy().contains(remedy), "{expected}: {}", error.remedy());
    };
    let check = |chain: &[u8], key: &str, expected: &str, remedy: &str| {
        check_files(chain, &pki().read(key), expected, remedy);
    };
    let chain = pki().chain(&["ecdsa", "intermediate"]);
    let no_certificate = |file: &str, expected: &str, remedy: &str| {
        check(&pki().read(file), "ecdsa.key", &format!("the chain has no certificate: it {expected}"), remedy);
    };
    check(b" \n", "ecdsa.key", "the chain has no certificate: it is empty", "fullchain.pem");
    check(b"nonsense", "ecdsa.key", "the chain has no certificate: it is not PEM", "fullchain.pem");
    no_certificate("ecdsa.key", "has a private key", "fullchain.pem");
    no_certificate("request.pem", "has a certificate request", "has issued for it");
    no_certificate("der.pem", "is DER, which is not PEM", "openssl x509 -inform der");
    no_certificate("pkcs12.pem", "is PKCS#12 (.p12, .pfx)", "openssl pkcs12 -in FILE -nokeys");
    no_certificate("pkcs7.pem", "is PKCS#7", "openssl pkcs7 -print_certs");
    let swapped = "the chain has a private key, and the key file has a certificate";
    check(&pki().read("ecdsa.key"), "ecdsa.pem", swapped, "swap");
    let cut = "the chain ends in the middle: the line -----END …----- is missing";
    check(&chain[..chain.len() - 30], "ecdsa.key", cut, "copy the whole chain again");
    check(&chain[..200], "ecdsa.key", cut, "copy the whole chain again");

    let no_key = |file: &str, expected: &str, remedy: &str| {
        check(&chain, file, &format!("the key file has no private key: it {expected}"), remedy);
    };
    no_key("ecdsa.pem", "has a certificate", "privkey.pem");
    no_key("public.key", "has a public key", "privkey.pem");
    no_key("der.key", "is DER, which is not PEM", "openssl pkey -inform der");
    no_key("pkcs12.pem", "is PKCS#12 (.p12, .pfx)", "openssl pkcs12 -in FILE -nocerts");
    let key = pki().read("other.key");
    let cut = "the key file ends in the middle: the line -----END …----- is missing";
    check_files(&chain, &key[..key.len() - 30], cut, "copy the whole key again");
    check(&chain, "rsa.key", "the private key does not match the certificate", "was requested with");
    for encrypted in ["encrypted.key", "encrypted-sec1.key"] {
        check(&chain, encrypted, "the private key is encrypted", "openssl pkey");
    }
    for (key, kind) in [("short", "RSA with 1024 bits"), ("secp256k1", "ECDSA with the curve secp256k1")] {
        for form in ["", "-pkcs8"] {
            let expected = format!("the private key cannot be used: it is {kind}");
            check(&chain, &format!("{key}{form}.key"), &expected, "request a certificate with an ECDSA key");
        }
    }
    let expected = "the private key belongs to certificate 2 of the chain, not to the first one";
    check(&pki().chain(&["intermediate", "ecdsa"]), "ecdsa.key", expected, "first");
    let text = |file: &[u8]| String::from_utf8(file.to_vec()).unwrap();
    let key = text(&pki().read("ecdsa.key"));
    for (file, line, chain, key) in [
        ("the chain", 1, format!("  {}", text(&chain).replace('\n', "\n  ")), key.clone()),
        // The first certificate would not be seen, and the second one be taken for it.
        ("the chain", 2, format!("a comment\n\t{}", text(&chain)), key.clone()),
        ("the key file", 1, text(&chain), format!(" {key}")),
    ] {
        let expected = format!("{file} has white space before -----BEGIN in line {line}");
        check_files(chain.as_bytes(), key.as_bytes(), &expected, "sed -i 's/^[ \\t]*//' FILE");
    }
    let pem = |content: &str| format!("-----BEGIN CERTIFICATE-----\n{content}\n-----END CERTIFICATE-----\n");
    let expected = "certificate 1 of the chain is damaged or cut (TrailingData(SignedData))";
    check(pem("AAAA").as_bytes(), "ecdsa.key", expected, "copy the whole chain again");
    let expected = "the chain is damaged: a character is missing, or is not base64";
    for damaged in ["!", "AAAAA"] {
        check(pem(damaged).as_bytes(), "ecdsa.key", expected, "copy the whole chain again");
    }
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
        |number| format!("certificate {number} of the chain is not followed by its issuer's certificate");
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
    check("ecdsa", &["*.example.org", "*.a.example.com"], &["*.example.org", "*.a.example.com"]);
    check("ecdsa", &["a.b.example.com", "example.net", "192.0.2.1"], &["a.b.example.com", "example.net", "192.0.2.1"]);
    check("other", &["192.0.2.1", "192.0.2.2", "*.example.com"], &["192.0.2.2", "*.example.com"]);
}

#[test]
fn certificate_or_key_that_browsers_refuse_is_reported() {
    let unnamed = load(&["unnamed", "intermediate"], "unnamed.key").unwrap();
    let problems = unnamed.problems(now_unix_s(), ["example.com", "www.example.com"]);
    let text = "the certificate has no subject alternative name, and clients ignore its common name, Test-unnamed";
    assert_eq!(problems.iter().map(ToString::to_string).collect::<Vec<_>>(), [text]);
    assert!(problems[0].remedy().contains("-addext subjectAltName=DNS:NAME"));
    for (name, kind) in [("ecdsa", None), ("rsa", None), ("ed25519", Some("Ed25519")), ("p521", Some("ECDSA (P-521)"))]
    {
        let problem = load(&[name, "intermediate"], &format!("{name}.key")).unwrap().key_problem();
        let expected = kind.map(|kind| format!("the key is {kind}, which browsers do not support"));
        assert_eq!(problem.as_ref().map(ToString::to_string), expected, "{name}");
        assert!(problem.is_none_or(|problem| problem.remedy().contains("P-256")));
    }
}

#[test]
fn names_purposes_and_signatures_that_clients_refuse_are_reported() {
    let check = |name: &str, served: &[&str], expected: &[&str]| {
        let loaded = load(&[name, "intermediate"], &format!("{name}.key")).unwrap();
        let problems = loaded.problems(now_unix_s(), served.iter().copied());
        assert_eq!(problems.iter().map(ToString::to_string).collect::<Vec<_>>(), expected, "{name}");
        assert!(problems.iter().all(|problem| problem.remedy().starts_with("request a certificate")));
    };
    let unusable = "clients do not accept these subject alternative names of the certificate: `*.test`, `ex.test.`, an \
                    email address, a URI";
    check("unusable", &[], &[unusable]);
    check("unusable", &["ex.test"], &[unusable, "the certificate is not valid for ex.test"]);
    let unusable = "clients do not accept these subject alternative names of the certificate: `example.org.`";
    check("partly-unusable", &["example.org"], &[unusable, "the certificate is not valid for example.org"]);
    check("partly-unusable", &["example.com"], &[]);
    check(
        "for-clients",
        &["example.com"],
        &["the certificate is not for servers: its extended key usage lacks serverAuth"],
    );
    check("for-any", &["example.com"], &[]);
    check(
        "must-staple",
        &["example.com"],
        &[
            "the certificate demands OCSP stapling (must-staple), which this server does not support, and some browsers refuse it",
        ],
    );
    check("sha1", &["example.com"], &["certificate 1 of the chain has a signature with SHA-1, which browsers refuse"]);
}

#[test]
fn time_of_a_certificate_is_reported_in_days() {
    let certificate = load(&["ecdsa", "intermediate"], "ecdsa.key").unwrap();
    let text = |unix_s| certificate.problems(unix_s, []).iter().map(ToString::to_string).collect::<Vec<_>>();
    let end = certificate.not_after_unix_s();
    assert_eq!(text(end - 5 * 86_400), [""; 0]);
    assert_eq!(text(end), ["the certificate expires in less than a day"]);
    assert_eq!(text(end - 86_400), ["the certificate expires in 1 day"]);
    assert_eq!(text(end + 1), ["the certificate expired less than a day ago"]);
    assert_eq!(text(end + 86_400), ["the certificate expired 1 day ago"]);
    assert_eq!(text(end + 9 * 86_400), ["the certificate expired 9 days ago"]);
    assert_eq!(text(end - 12 * 86_400), ["the certificate becomes valid in 2 days"]);
}
