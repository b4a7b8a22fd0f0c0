//! Private keys in the form that BIND's `dnssec-keygen` writes: lines of a field and its value, in a file
//! `Kexample.com.+013+12345.private`.

use crate::der::{INTEGER, OCTET_STRING, SEQUENCE, element, integer, split};
use data_encoding::BASE64;
use sanderling_dnssec::Algorithm;
use zeroize::Zeroizing;

const FORMAT: &str = "Private-key-format: v1.";
/// The fields of an RSA key, in the order of `RSAPrivateKey` (RFC 8017 §A.1.2).
const RSA_FIELDS: [&str; 8] =
    ["Modulus", "PublicExponent", "PrivateExponent", "Prime1", "Prime2", "Exponent1", "Exponent2", "Coefficient"];
/// `AlgorithmIdentifier` with its content: rsaEncryption with NULL, id-ecPublicKey with prime256v1, and id-Ed25519.
const RSA: &[u8] = b"\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01\x05\x00";
const ECDSA_P256: &[u8] = b"\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07";
const ED25519: &[u8] = b"\x30\x05\x06\x03\x2b\x65\x70";

fn mnemonic(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::RsaSha256 => "RSASHA256",
        Algorithm::EcdsaP256 => "ECDSAP256SHA256",
        Algorithm::Ed25519 => "ED25519",
    }
}

/// The text of a `.private` file with the key `pkcs8`; `None` if it is not such a key.
pub fn to_private(algorithm: Algorithm, pkcs8: &[u8]) -> Option<Zeroizing<String>> {
    let (content, _) = split(pkcs8, SEQUENCE)?;
    let (_version, rest) = split(content, INTEGER)?;
    let (_algorithm, rest) = split(rest, SEQUENCE)?;
    let (key, _) = split(rest, OCTET_STRING)?;
    // Longer than any key, so that no copy is left behind.
    let mut text = Zeroizing::new(String::with_capacity(3 * pkcs8.len() + 512));
    text.push_str(FORMAT);
    // Later versions have times at which other programs use the key.
    text.push_str(&format!("2\nAlgorithm: {} ({})\n", algorithm.number(), mnemonic(algorithm)));
    let mut put = |field: &str, value: &[u8]| {
        text.push_str(field);
        text.push_str(": ");
        text.push_str(&Zeroizing::new(BASE64.encode(value)));
        text.push('\n');
    };
    match algorithm {
        Algorithm::RsaSha256 => {
            let (numbers, _) = split(key, SEQUENCE)?;
            let (_version, mut rest) = split(numbers, INTEGER)?;
            for field in RSA_FIELDS {
                let (number, after) = split(rest, INTEGER)?;
                put(field, number.strip_prefix(&[0]).unwrap_or(number));
                rest = after;
            }
        }
        Algorithm::EcdsaP256 => {
            let (content, _) = split(key, SEQUENCE)?;
            let (_version, rest) = split(content, INTEGER)?;
            put("PrivateKey", split(rest, OCTET_STRING)?.0);
        }
        Algorithm::Ed25519 => put("PrivateKey", split(key, OCTET_STRING)?.0),
    }
    Some(text)
}

/// The key in the text of a `.private` file, as PKCS#8, and its algorithm. `public_key` is the key in its DNSKEY
/// record.
///
/// # Errors
/// Returns the problem of the text.
pub fn from_private(text: &str, public_key: &[u8]) -> Result<(Algorithm, Zeroizing<Vec<u8>>), String> {
    if !text.starts_with(FORMAT) {
        return Err(format!("it does not begin with `{FORMAT}`; specify the file that ends in `.private`"));
    }
    let value = |name: &str| {
        let of_line =
            |line: &'_ str| Some(line.split_once(':').filter(|(field, _)| *field == name)?.1.trim().to_owned());
        text.lines().find_map(of_line).map(Zeroizing::new).ok_or_else(|| format!("the field `{name}` is missing"))
    };
    let bytes = |name: &str| {
        let decoded = BASE64.decode(value(name)?.as_bytes()).map(Zeroizing::new);
        decoded.map_err(|_| format!("the field `{name}` is not base64"))
    };
    let number = value("Algorithm")?;
    let algorithm = match number.split(' ').next() {
        Some("8") => Algorithm::RsaSha256,
        Some("13") => Algorithm::EcdsaP256,
        Some("15") => Algorithm::Ed25519,
        _ => {
            let known = "8 (RSASHA256), 13 (ECDSAP256SHA256) and 15 (ED25519) are supported";
            return Err(format!("the algorithm is {}; {known}", *number));
        }
    };
    const VERSION: &[u8] = b"\x02\x01\x00";
    let (identifier, key) = match algorithm {
        Algorithm::RsaSha256 => {
            let mut numbers = Zeroizing::new(VERSION.to_vec());
            // Longer than any key, so that no copy is left behind.
            numbers.reserve_exact(8 * 1024);
            for field in RSA_FIELDS {
                numbers.extend_from_slice(&integer(&bytes(field)?));
            }
            (RSA, element(SEQUENCE, &[&numbers]))
        }
        Algorithm::EcdsaP256 => {
            // RFC 5915 §3: with the public key, as an uncompressed point.
            let point = [b"\xa1\x44\x03\x42\x00\x04", public_key].concat();
            let private = element(OCTET_STRING, &[&bytes("PrivateKey")?]);
            (ECDSA_P256, element(SEQUENCE, &[b"\x02\x01\x01", &private, &point]))
        }
        Algorithm::Ed25519 => (ED25519, element(OCTET_STRING, &[&bytes("PrivateKey")?])),
    };
    Ok((algorithm, element(SEQUENCE, &[VERSION, identifier, &element(OCTET_STRING, &[&key])])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zone_key::ZonePrivateKey;

    #[test]
    fn keys_are_read_as_they_were_written() {
        for algorithm in [Algorithm::EcdsaP256, Algorithm::Ed25519, Algorithm::RsaSha256] {
            let Ok(pkcs8) = ZonePrivateKey::make(algorithm.number()) else {
                assert!(cfg!(not(feature = "aws-lc-rs")) && algorithm == Algorithm::RsaSha256);
                continue;
            };
            let key = ZonePrivateKey::from_pkcs8(algorithm.number(), &pkcs8).expect("a key").public();
            let text = to_private(algorithm, &pkcs8).expect("a key");
            let (read, again) = from_private(&text, &key.public_key).expect("the same");
            assert_eq!(read, algorithm);
            assert_eq!(ZonePrivateKey::from_pkcs8(algorithm.number(), &again).expect("a key").public(), key);
            for cut in 0..text.len() - 1 {
                let Ok((algorithm, cut)) = from_private(&text[..cut], &key.public_key) else { continue };
                ZonePrivateKey::from_pkcs8(algorithm.number(), &cut).expect_err("cut off");
            }
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let check = |text: &str, expected: &str| {
            let error = from_private(text, &[0; 64]).expect_err("wrong");
            assert!(error.contains(expected), "{error}");
        };
        check("example.com. IN DNSKEY 257 3 13 AAAA", "specify the file that ends in `.private`");
        check("Private-key-format: v1.3\n", "the field `Algorithm` is missing");
        check("Private-key-format: v1.3\nAlgorithm: 5 (RSASHA1)\n", "the algorithm is 5 (RSASHA1); 8 (RSASHA256),");
        check("Private-key-format: v1.3\nAlgorithm: 13 (X)\nPrivateKey: !\n", "the field `PrivateKey` is not base64");
    }
}
