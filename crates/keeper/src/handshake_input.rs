//! The input that a server signs in a handshake. All else is refused: a certificate request, a certificate, a token, a
//! record of a zone.

/// The beginning of the input that a server signs in TLS 1.3 (RFC 8446 §4.4.3), before the hash of the messages.
const CERTIFICATE_VERIFY: &[u8] =
    b"                                                                TLS 1.3, server CertificateVerify\0";
/// Bytes of a hash: SHA-256, SHA-384.
const HASH_BYTES: [usize; 2] = [32, 48];

/// Bytes of the random values of client and server.
const RANDOM_BYTES: usize = 2 * 32;
/// The first bytes of key exchange parameters in TLS 1.2, and the number of remaining bytes: a named curve, its number,
/// the length of the public key, and for NIST curves the mark of an uncompressed point (RFC 8422 §5.4).
const PARAMETERS: [(&[u8], usize); 3] = [(&[3, 0, 29, 32], 32), (&[3, 0, 23, 65, 4], 64), (&[3, 0, 24, 97, 4], 96)];

/// Whether `input` is the data that a server signs in a TLS 1.3 or 1.2 handshake.
pub(crate) fn is_of_handshake(input: &[u8]) -> bool {
    if let Some(hash) = input.strip_prefix(CERTIFICATE_VERIFY) {
        return HASH_BYTES.contains(&hash.len());
    }
    let Some((_, parameters)) = input.split_at_checked(RANDOM_BYTES) else { return false };
    let is_key_exchange = |(start, rest_bytes): &(&[u8], usize)| {
        parameters.strip_prefix(*start).is_some_and(|rest| rest.len() == *rest_bytes)
    };
    PARAMETERS.iter().any(is_key_exchange) && !is_certificate_or_request(input)
}

/// Tags of ASN.1: class, whether the element has elements, and number (X.690 §8.1.2).
const INTEGER: Tag = (0, 2);
const SEQUENCE: Tag = (0x20, 16);
const VERSION_OF_CERTIFICATE: Tag = (0xa0, 0);

/// Class and form, and number.
type Tag = (u8, u64);

/// Whether `input` is one element of ASN.1 that begins as a certificate or the request for one does. The parameters of
/// a key exchange could be within a name or an extension of it. A random value begins with these bytes in one of 2^40
/// handshakes at most.
///
/// Forms that only BER has are read too: there are programs that accept them in a request.
fn is_certificate_or_request(input: &[u8]) -> bool {
    let is_whole = |(length, content): &(Option<u64>, &[u8])| length.is_none_or(|bytes| bytes == content.len() as u64);
    let content = after_tag(input, SEQUENCE).and_then(after_length).filter(is_whole);
    let Some((_, content)) = content else { return false };
    // A request has the version 0 and a name (RFC 2986 §4.1), a certificate the version 2 or 3 (RFC 5280 §4.1).
    let is_request = after_version(content).is_some_and(|rest| after_tag(rest, SEQUENCE).is_some());
    let of_certificate = after_tag(content, VERSION_OF_CERTIFICATE).and_then(after_length);
    is_request || of_certificate.is_some_and(|(_, version)| after_version(version).is_some())
}

/// The field after a version: a number from 0 to 2.
fn after_version(input: &[u8]) -> Option<&[u8]> {
    let (length, content) = after_length(after_tag(input, INTEGER)?)?;
    let (number, rest) = content.split_at_checked(usize::try_from(length?).ok()?)?;
    let (&last, leading) = number.split_last()?;
    (last <= 2 && leading.iter().all(|&byte| byte == 0)).then_some(rest)
}

/// The rest of `input` after `tag`, if it begins with that tag (X.690 §8.1.2).
fn after_tag(input: &[u8], tag: Tag) -> Option<&[u8]> {
    const NUMBER: u8 = 0x1f;
    const MORE: u8 = 0x80;
    let (&first, mut rest) = input.split_first()?;
    let mut number = u64::from(first & NUMBER);
    if first & NUMBER == NUMBER {
        // The number follows.
        let digit_count = rest.iter().position(|byte| byte & MORE == 0)? + 1;
        let (digits, after) = rest.split_at(digit_count);
        rest = after;
        let add = |number: u64, digit: &u8| Some(number.checked_mul(128)? + u64::from(digit & !MORE));
        number = digits.iter().try_fold(0, add)?;
    }
    ((first & !NUMBER, number) == tag).then_some(rest)
}

/// The length at the start of `input`, and the rest; an indefinite length is `None` (X.690 §8.1.3).
fn after_length(input: &[u8]) -> Option<(Option<u64>, &[u8])> {
    const INDEFINITE: u8 = 0x80;
    let (&first, rest) = input.split_first()?;
    if first <= INDEFINITE {
        return Some(((first < INDEFINITE).then_some(first.into()), rest));
    }
    let (digits, content) = rest.split_at_checked(usize::from(first & !INDEFINITE))?;
    let add = |length: u64, &digit: &u8| length.checked_mul(256)?.checked_add(digit.into());
    Some((Some(digits.iter().try_fold(0, add)?), content))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The 64 bytes of both random values, and these parameters.
    fn key_exchange(parameters: &[u8], rest_bytes: usize) -> Vec<u8> {
        [&[0xaa; RANDOM_BYTES][..], parameters, &vec![0xbb; rest_bytes]].concat()
    }

    #[test]
    fn handshakes_are_signed() {
        for hash_bytes in [32, 48] {
            let context = "TLS 1.3, server CertificateVerify\0";
            assert!(is_of_handshake(&[" ".repeat(64).as_bytes(), context.as_bytes(), &vec![7; hash_bytes]].concat()));
        }
        assert!(is_of_handshake(&key_exchange(&[3, 0, 29, 32], 32)));
        assert!(is_of_handshake(&key_exchange(&[3, 0, 23, 65, 4], 64)));
        assert!(is_of_handshake(&key_exchange(&[3, 0, 24, 97, 4], 96)));
    }

    #[test]
    fn other_signatures_are_refused() {
        let verify = |context: &str, hash_bytes| {
            [" ".repeat(64).as_bytes(), context.as_bytes(), &[0], &vec![7; hash_bytes]].concat()
        };
        let server = "TLS 1.3, server CertificateVerify";
        let jws = b"eyJhbGciOiJFUzI1NiJ9.eyJ0ZXJtc09mU2VydmljZUFncmVlZCI6dHJ1ZX0";
        // The RDATA of an RRSIG before the signature: type A, algorithm 13, ..., signer example.com, and a record.
        let rrsig = [
            &[0, 1, 13, 2, 0, 0, 14, 16, 0x65, 0, 0, 0, 0x64, 0, 0, 0, 1, 2][..],
            b"\x07example\x03com\0\x07example\x03com\0\0\x01\0\x01\0\0\x0e\x10\0\x04\x7f\0\0\x01",
        ]
        .concat();
        for refused in [
            &b""[..],
            b"x",
            &[b' '; 146],
            &verify("TLS 1.3, client CertificateVerify", 32),
            &verify(server, 31),
            &verify(server, 64),
            &verify(server, 0),
            &verify(server, 32)[1..],
            &key_exchange(&[3, 0, 29, 32], 31),
            &key_exchange(&[3, 0, 29, 32], 33),
            &key_exchange(&[3, 0, 29, 32], 32)[1..],
            // A compressed point, an explicit curve, another curve.
            &key_exchange(&[3, 0, 23, 65, 2], 64),
            &key_exchange(&[1, 0, 23, 65, 4], 64),
            &key_exchange(&[3, 0, 25, 133, 4], 132),
            &[7; 256],
            jws,
            &rrsig,
        ] {
            assert!(!is_of_handshake(refused), "{refused:x?}");
        }
    }

    #[test]
    fn certificate_request_with_the_parameters_in_a_name_is_refused() {
        let check = |parameters: &[u8], rest_bytes, start: &[u8], expected| {
            let mut input = key_exchange(parameters, rest_bytes);
            input[..start.len()].copy_from_slice(start);
            assert_eq!(is_of_handshake(&input), expected, "{start:x?}");
        };
        let (x25519, p256, p384) = (&[3, 0, 29, 32], &[3, 0, 23, 65, 4], &[3, 0, 24, 97, 4]);
        check(x25519, 32, &[0x30, 98, 2, 1, 0, 0x30], false);
        check(p256, 64, &[0x30, 0x81, 130, 2, 1, 0, 0x30], false);
        check(p384, 96, &[0x30, 0x81, 162, 2, 1, 0, 0x30], false);
        check(p384, 96, &[0x30, 0x81, 162, 0xa0, 3, 2, 1, 2], false);
        // Forms that only BER has: lengths with leading zeros, or in more bytes than needed, without a length, and long
        // tags.
        check(x25519, 32, &[0x30, 0x81, 97, 2, 1, 0, 0x30, 1], false);
        check(p384, 96, &[0x30, 0x82, 0, 161, 2, 1, 0, 0x30, 1], false);
        check(p384, 96, &[0x30, 0x83, 0, 0, 160, 2, 1, 0, 0x30, 1], false);
        check(p384, 96, &[0x30, 0x84, 0, 0, 0, 159, 2, 1, 0, 0x30, 1], false);
        check(p384, 96, &[0x30, 0x89, 0, 0, 0, 0, 0, 0, 0, 0, 154, 2, 1, 0, 0x30, 1], false);
        check(p384, 96, &[0x30, 0x80, 2, 1, 0, 0x30, 1], false);
        check(p384, 96, &[0x3f, 16, 0x81, 161, 2, 1, 0, 0x30, 1], false);
        check(p384, 96, &[0x3f, 0x80, 16, 0x81, 160, 2, 1, 0, 0x30, 1], false);
        check(p384, 96, &[0x30, 0x81, 162, 2, 0x81, 1, 0, 0x30, 1], false);
        check(p384, 96, &[0x30, 0x81, 162, 2, 2, 0, 0, 0x30, 1], false);
        check(p384, 96, &[0x30, 0x81, 162, 2, 1, 0, 0x3f, 16, 1], false);
        check(p384, 96, &[0x30, 0x81, 162, 0xa0, 0x80, 2, 1, 2], false);
        check(p384, 96, &[0x30, 0x81, 162, 0xa0, 0x81, 3, 2, 1, 2], false);
        // Neither has the length, or the beginning, of a whole element.
        check(p384, 96, &[0x30, 0x81, 161, 2, 1, 0, 0x30], true);
        check(p384, 96, &[0x30, 0x81, 162, 2, 1, 3, 0x30], true);
        check(p384, 96, &[0x30, 0x82, 0, 162, 2, 1, 0, 0x30], true);
        check(p384, 96, &[0x30, 0xff], true);
    }
}
