//! Frame Streams, the protocol in which dnstap messages are passed on: its control frames, and the handshake of the
//! writer.
//!
//! A frame is its length, 4 bytes in network order, and its content. A control frame is a length of 0 followed by a
//! separate frame. The specification is the manual of the library `fstrm`.

use std::fmt;

/// The type of the content, as both sides of a connection name it.
const CONTENT_TYPE: &[u8] = b"protobuf:dnstap.Dnstap";
/// Bytes of the longest control frame after its length (`FSTRM_CONTROL_FRAME_LENGTH_MAX`).
const CONTROL_BYTES_MAX: usize = 512;
/// Bytes of a length, of a type, and of the mark of a control frame.
const NUMBER_BYTES: usize = 4;
/// The bytes before the content of a control frame.
const CONTROL_HEADER_BYTES: usize = 2 * NUMBER_BYTES;

const ACCEPT: u32 = 1;
const START: u32 = 2;
const STOP: u32 = 3;
const READY: u32 = 4;
/// The only field of a control frame.
const FIELD_CONTENT_TYPE: u32 = 1;

/// The frame with which a writer asks whether the reader accepts dnstap messages.
pub fn ready() -> Vec<u8> {
    control_frame(READY, CONTENT_TYPE)
}

/// The frame after which the frames with messages follow.
pub fn start() -> Vec<u8> {
    control_frame(START, CONTENT_TYPE)
}

/// The last frame.
pub fn stop() -> Vec<u8> {
    control_frame(STOP, b"")
}

fn control_frame(frame_type: u32, content_type: &[u8]) -> Vec<u8> {
    let mut content = frame_type.to_be_bytes().to_vec();
    if !content_type.is_empty() {
        content.extend_from_slice(&FIELD_CONTENT_TYPE.to_be_bytes());
        content.extend_from_slice(&(content_type.len() as u32).to_be_bytes());
        content.extend_from_slice(content_type);
    }
    let length = (content.len() as u32).to_be_bytes();
    [&[0; NUMBER_BYTES], &length[..], &content].concat()
}

/// The fault of a reader's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeError {
    /// The frame is not a control frame, or it is too long.
    NoControlFrame,
    /// The frame is a control frame other than ACCEPT.
    NotAccepted,
    /// The reader accepts only content of other types.
    OtherContent,
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            HandshakeError::NoControlFrame => "the reader does not speak Frame Streams",
            HandshakeError::NotAccepted => "the reader of Frame Streams does not accept the connection",
            HandshakeError::OtherContent => "the reader of Frame Streams does not accept dnstap messages",
        })
    }
}

impl std::error::Error for HandshakeError {}

/// Whether `received`, the reader's answer, accepts the connection; `None` if it is not complete. Data after the frame
/// is ignored: a reader sends nothing before the end.
///
/// # Errors
/// Returns an error if the reader does not accept it.
pub fn is_accepted(received: &[u8]) -> Result<Option<()>, HandshakeError> {
    let known_count = received.len().min(NUMBER_BYTES);
    if received[..known_count].iter().any(|&byte| byte != 0) {
        return Err(HandshakeError::NoControlFrame);
    }
    let Some(length_bytes) = number_at(received, NUMBER_BYTES).map(|length| length as usize) else { return Ok(None) };
    if !(NUMBER_BYTES..=CONTROL_BYTES_MAX).contains(&length_bytes) {
        return Err(HandshakeError::NoControlFrame);
    }
    let Some(content) = received.get(CONTROL_HEADER_BYTES..CONTROL_HEADER_BYTES + length_bytes) else {
        return Ok(None);
    };
    if number_at(content, 0) != Some(ACCEPT) {
        return Err(HandshakeError::NotAccepted);
    }
    let mut fields = &content[NUMBER_BYTES..];
    // Without a type, it accepts all.
    let mut is_accepted = fields.is_empty();
    while !fields.is_empty() {
        let (Some(FIELD_CONTENT_TYPE), Some(length_bytes)) = (number_at(fields, 0), number_at(fields, NUMBER_BYTES))
        else {
            return Err(HandshakeError::NoControlFrame);
        };
        let rest = &fields[CONTROL_HEADER_BYTES..];
        let (value, others) = rest.split_at_checked(length_bytes as usize).ok_or(HandshakeError::NoControlFrame)?;
        is_accepted |= value == CONTENT_TYPE;
        fields = others;
    }
    if is_accepted { Ok(Some(())) } else { Err(HandshakeError::OtherContent) }
}

fn number_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|number| u32::from_be_bytes(*number))
}

/// The number of complete frames at the beginning of `frames`, of which none is a control frame.
pub fn frame_count(mut frames: &[u8]) -> usize {
    let mut count = 0;
    while let Some(length_bytes) = number_at(frames, 0)
        && let Some(rest) = frames.get(NUMBER_BYTES + length_bytes as usize..)
    {
        frames = rest;
        count += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn accept(content_types: &[&[u8]]) -> Vec<u8> {
        let mut content = ACCEPT.to_be_bytes().to_vec();
        for content_type in content_types {
            content.extend_from_slice(&FIELD_CONTENT_TYPE.to_be_bytes());
            content.extend_from_slice(&(content_type.len() as u32).to_be_bytes());
            content.extend_from_slice(content_type);
        }
        [&[0; 4], &(content.len() as u32).to_be_bytes()[..], &content].concat()
    }

    #[test]
    fn control_frames_are_those_of_fstrm() {
        assert_eq!(stop(), b"\0\0\0\0\0\0\0\x04\0\0\0\x03");
        assert_eq!(ready(), b"\0\0\0\0\0\0\0\x22\0\0\0\x04\0\0\0\x01\0\0\0\x16protobuf:dnstap.Dnstap");
        assert_eq!(start()[8..12], [0, 0, 0, 2]);
    }

    #[test]
    fn acceptance_may_arrive_in_parts() {
        for content_types in [&[][..], &[CONTENT_TYPE], &[b"text", CONTENT_TYPE]] {
            let frame = accept(content_types);
            for length in 0..frame.len() {
                assert_eq!(is_accepted(&frame[..length]), Ok(None), "{length}");
            }
            assert_eq!(is_accepted(&frame), Ok(Some(())));
        }
    }

    #[test]
    fn other_answers_are_refused() {
        for (answer, expected) in [
            (accept(&[b"text"]), HandshakeError::OtherContent),
            (accept(&[&[CONTENT_TYPE, b"x"].concat()]), HandshakeError::OtherContent),
            (stop(), HandshakeError::NotAccepted),
            (b"HTTP/1.1 400 Bad Request\r\n".to_vec(), HandshakeError::NoControlFrame),
            (b"\0\0\0\x05".to_vec(), HandshakeError::NoControlFrame),
            (b"\0\0\0\0\0\0\0\x03".to_vec(), HandshakeError::NoControlFrame),
            (b"\0\0\0\0\0\0\x02\x01".to_vec(), HandshakeError::NoControlFrame),
            (b"\0\0\0\0\xff\xff\xff\xff".to_vec(), HandshakeError::NoControlFrame),
            // A field of another type, one that is cut off, and one that ends after the frame.
            (b"\0\0\0\0\0\0\0\x0c\0\0\0\x01\0\0\0\x02\0\0\0\0".to_vec(), HandshakeError::NoControlFrame),
            (b"\0\0\0\0\0\0\0\x08\0\0\0\x01\0\0\0\x01".to_vec(), HandshakeError::NoControlFrame),
            (b"\0\0\0\0\0\0\0\x0c\0\0\0\x01\0\0\0\x01\xff\xff\xff\xff".to_vec(), HandshakeError::NoControlFrame),
        ] {
            assert_eq!(is_accepted(&answer), Err(expected), "{answer:?}");
        }
    }

    #[test]
    fn frames_are_counted() {
        assert_eq!(frame_count(b""), 0);
        assert_eq!(frame_count(b"\0\0\0\x02ab\0\0\0\x01c"), 2);
        assert_eq!(frame_count(b"\0\0\0\x02ab\0\0\0\x02c"), 1);
    }

    proptest! {
        #[test]
        fn any_answer_is_decided(bytes in prop::collection::vec(prop_oneof![Just(0_u8), Just(1), any::<u8>()], 0..600)) {
            let answer = is_accepted(&bytes);
            if let Ok(None) = answer {
                prop_assert!(bytes.len() < CONTROL_HEADER_BYTES + CONTROL_BYTES_MAX);
            }
            let _ = frame_count(&bytes);
        }
    }
}
