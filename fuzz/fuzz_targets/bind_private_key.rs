//! Private keys in the form of BIND: any text, and what is accepted can be written and read again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sanderling_keeper::bind_key::{from_private, to_private};

fuzz_target!(|input: (&str, &[u8])| {
    let (text, public_key) = input;
    let Ok((algorithm, pkcs8)) = from_private(text, public_key) else { return };
    if let Some(written) = to_private(algorithm, &pkcs8) {
        let (again, _) = from_private(&written, public_key).expect("it was written");
        assert_eq!(again, algorithm);
    }
});
