//! Any bytes as the input of a signature: nothing panics, and the check does not accept an input with a byte more or
//! less.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sanderling_dns::Name;
use sanderling_dnssec::Algorithm;
use sanderling_dnssec::signing_input::check;

const APEX: &[u8] = b"\x01z\0";
/// An RRSIG for A records of two labels, with the algorithm 13 and the key tag 7, up to the signer.
const HEAD: &[u8] = b"\0\x01\x0d\x02\0\0\0\x3c\0\0\x07\xd0\0\0\x03\xe8\0\x07\x01z\0";

fuzz_target!(|bytes: &[u8]| {
    let apex = Name::parse(APEX).expect("an apex");
    let check = |input: &[u8]| check(input, apex, Algorithm::EcdsaP256, 7);
    let _ = check(bytes);
    let mut input = [HEAD, bytes].concat();
    if check(&input).is_ok() {
        input.pop();
        assert!(check(&input).is_err());
    }
});
