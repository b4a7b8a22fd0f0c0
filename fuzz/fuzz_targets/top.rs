//! Draws pages of `sanderling top` from any metrics; run it with `-close_fd_mask=1`, as it prints them.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sanderling_top::{Options, run};
use std::time::Duration;

fuzz_target!(|input: (&str, &str)| {
    let mut texts = [input.0, input.1].into_iter();
    let options = Options { is_once: true, interval: Duration::ZERO };
    run(options, || Ok(texts.next().unwrap_or_default().to_owned()));
});
