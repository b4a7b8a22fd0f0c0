//! What a server signs in a handshake. All else is refused: a certificate request, a certificate, a token, a record of a zone.

/// The beginning of what a server signs in TLS 1.3 (RFC 8446 §4.4.3), before the hash of the messages.
const CERTIFICATE_VERIFY: &[u8] =
    b"                                                                TLS 1.3, server CertificateVerify\0";
/// Bytes of a hash: SHA-256, SHA-384.
const HASH_BYTES: [usize; 2] = [32, 48];

/// Bytes of the random values of client and server.
const RANDOM_BYTES: usize = 2 * 32;
/// The beginnings of the parameters of a key exchange in TLS 1.2, and the bytes of the rest: a named curve, its number, the
/// length of the public key, and for curves of NIST that it is not compressed (RFC 8422 §5.4).
const PARAMETERS: [(&[u8], usize); 3] = [(&[3, 0, 29, 32], 32), (&[3, 0, 23, 65, 4], 64), (&[3, 0, 24, 97, 4], 96)];

/// Whether `input` is what a server signs in a handshake of TLS 1.3 or 1.2.
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

/// Whether `input` is one DER element that begins as a certificate or the request for one does. The parameters of a key exchange
/// could be within a name or an extension of it. Random values begin so once in 2^40 handshakes or less often.
fn is_certificate_or_request(input: &[u8]) -> bool {
    const SEQUENCE: u8 = 0x30;
    let content = match *input {
        [SEQUENCE, length @ 0..=0x7f, ref content @ ..] if content.len() == usize::from(length) => content,
        [SEQUENCE, 0x81, length, ref content @ ..] if content.len() == usize::from(length) => content,
        _ => return false,
    };
    // A request has the version 0 and a name (RFC 2986 §4.1), a certificate the version 2 or 3 (RFC 5280 §4.1).
    content.starts_with(&[2, 1, 0, SEQUENCE]) || content.starts_with(&[0xa0, 3, 2, 1])
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
        // Neither of them has the length, or the beginning, of a whole element.
        check(p384, 96, &[0x30, 0x81, 161, 2, 1, 0, 0x30], true);
        check(p384, 96, &[0x30, 0x81, 162, 2, 1, 1], true);
    }
}
