//! Imports a configuration of nginx: it is translated or refused, and the result has no endless parts.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sanderling_import::SourceKind;

mod import;

fuzz_target!(|text: &[u8]| import::check(SourceKind::Nginx, text));
