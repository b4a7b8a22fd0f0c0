//! Where the content of a request goes.

use crate::net::call::CallHandle;
use sanderling_http::DNS_MESSAGE_BYTES_MAX;

/// Where the content of a request goes.
#[derive(Debug, Default)]
pub(crate) enum BodySink {
    /// It is discarded.
    #[default]
    Nothing,
    /// It is kept, up to the length of a DNS message.
    Message(Vec<u8>),
    /// A backend gets it as it arrives, at most so many bytes.
    Backend(u64),
}

impl BodySink {
    /// For a DNS message.
    pub(crate) fn message() -> BodySink {
        BodySink::Message(Vec::new())
    }

    /// Bytes that it takes now.
    pub(crate) fn room(&self, call: Option<&CallHandle>) -> usize {
        match (self, call) {
            (BodySink::Backend(_), Some(call)) => call.request_room(),
            _ => usize::MAX,
        }
    }

    /// Takes a part of the content.
    pub(crate) fn put(&mut self, content: &[u8], call: Option<&CallHandle>) {
        match (self, call) {
            (BodySink::Message(message), _) => {
                // One byte more than allowed shows that the message is too long.
                let left_bytes = (DNS_MESSAGE_BYTES_MAX + 1).saturating_sub(message.len());
                message.extend_from_slice(&content[..content.len().min(left_bytes)]);
            }
            (BodySink::Backend(_), Some(call)) => call.put_content(content),
            _ => {}
        }
    }

    /// The content that was kept.
    pub(crate) fn message_content(&self) -> &[u8] {
        match self {
            BodySink::Message(message) => message,
            BodySink::Nothing | BodySink::Backend(_) => &[],
        }
    }

    /// Bytes of memory that it holds.
    pub(crate) fn held_bytes(&self) -> usize {
        match self {
            BodySink::Message(message) => message.capacity(),
            BodySink::Nothing | BodySink::Backend(_) => 0,
        }
    }
}
