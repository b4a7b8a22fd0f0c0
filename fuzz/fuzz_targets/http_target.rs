//! Decodes paths: each result stays below the document root, and is decoded again from its encoding.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sanderling_http::{Host, PathTraits, SEGMENT_BYTES_MAX, SITE_PATH_BYTES_MAX, SitePath, media_type};

fuzz_target!(|bytes: &[u8]| {
    Host::parse(bytes);
    media_type(bytes);
    let Ok(site_path) = SitePath::parse(bytes) else { return };
    let path = site_path.as_bytes();
    let is_too_long = site_path.traits().intersects(PathTraits::TOO_LONG);
    assert!(path.len() <= SITE_PATH_BYTES_MAX || is_too_long);
    assert!(!path.iter().any(|byte| byte.is_ascii_control()) && !path.contains(&b'\\'));
    if !path.is_empty() {
        for (index, segment) in path.split(|&byte| byte == b'/').enumerate() {
            assert!(!segment.is_empty() && (segment.len() <= SEGMENT_BYTES_MAX || is_too_long));
            let is_hidden = segment.starts_with(b".") && !(index == 0 && segment == b".well-known");
            assert!(!is_hidden || site_path.traits().intersects(PathTraits::HIDDEN));
            assert!(segment != b"." && segment != b"..");
        }
    }
    let encode = |byte: &u8| if *byte == b'/' { "/".to_owned() } else { format!("%{byte:02x}") };
    let encoded = format!("/{}", path.iter().map(encode).collect::<String>());
    let again = SitePath::parse(encoded.as_bytes()).expect("an encoded path is valid");
    assert_eq!(again.as_bytes(), path);
});
