//! Any bytes as the answer of a dnstap reader: nothing panics, and what is accepted is accepted whatever follows it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sanderling_log_format::frame_streams::{frame_count, is_accepted};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(Some(())) = is_accepted(bytes) {
        assert_eq!(is_accepted(&[bytes, b"x"].concat()), Ok(Some(())));
    }
    assert!(frame_count(bytes) <= bytes.len() / 4);
});
