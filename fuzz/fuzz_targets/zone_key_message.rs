//! Messages between the agent and the keeper about keys of zones: any bytes, and those that are a message are written
//! as they were read.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sanderling_ipc::zone_signing::{ZoneKeyAnswer, ZoneKeyRequest};

fuzz_target!(|message: &[u8]| {
    if let Some(request) = ZoneKeyRequest::parse(message) {
        let sent = request.to_message().expect("it is no longer than before");
        assert_eq!(ZoneKeyRequest::receive(&mut &sent[..]).expect("it was sent"), request);
    }
    if let Some(answer) = ZoneKeyAnswer::parse(message) {
        let mut sent = Vec::new();
        answer.send(&mut sent).expect("it is no longer than before");
        assert_eq!(ZoneKeyAnswer::receive(&mut &sent[..]).expect("it was sent"), answer);
    }
});
