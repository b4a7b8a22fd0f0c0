//! A thread for each agent: waits for a request about keys of zones, and answers it.

use crate::signing_thread::Shared;
use crate::zone_keys::ZoneKeys;
use sanderling_ipc::zone_signing::{ZoneKeyAnswer, ZoneKeyRequest};
use std::io;
use std::os::unix::net::UnixStream;

/// Answers the requests that come over `stream`, until the agent closes it or sends something else.
pub(crate) fn serve(mut keys: ZoneKeys, shared: &Shared, mut stream: UnixStream) -> io::Result<()> {
    loop {
        let request = ZoneKeyRequest::receive(&mut stream)?;
        let answer = keys.answer(request);
        if let ZoneKeyAnswer::Signatures(signatures) = &answer {
            shared.count_zone_signatures(signatures.len());
        }
        answer.send(&mut stream)?;
    }
}
