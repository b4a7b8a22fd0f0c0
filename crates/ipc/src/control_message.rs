//! What a command and the server that it asks say to each other on the control socket, as packets.
//!
//! The command sends one request of eight octets: `SDLG`, the version of this form, a verb, and two zeros. The server
//! answers with any number of packets `[kind][text…]`: what is to be written on standard output and standard error, and
//! last of all how it ended. Both sides may be of different versions of the program, and either may be somebody else
//! altogether: whatever comes in is checked.

use sanderling_os::seqpacket::MESSAGE_BYTES_MAX;
use std::fmt;

const MAGIC: [u8; 4] = *b"SDLG";
const VERSION: u8 = 1;

/// Octets of a request.
pub const REQUEST_BYTES: usize = 8;

/// Octets of the text that one packet of an answer carries beside its kind.
pub const TEXT_BYTES_MAX: usize = MESSAGE_BYTES_MAX - 1;

/// What a server is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Say how it stands, for people.
    Status,
    /// Say how it stands, as JSON.
    StatusJson,
    /// Take up its configuration anew.
    Reload,
    /// Finish what runs, and end.
    Stop,
    /// Go on as the program that now stands where its own stood.
    Upgrade,
    /// Hand its sockets to the one who asks, and end.
    TakeOver,
}

impl Request {
    const ALL: [Request; 6] =
        [Request::Status, Request::StatusJson, Request::Reload, Request::Stop, Request::Upgrade, Request::TakeOver];

    /// Its number in a packet, from 1.
    fn verb(self) -> u8 {
        match self {
            Request::Status => 1,
            Request::StatusJson => 2,
            Request::Reload => 3,
            Request::Stop => 4,
            Request::Upgrade => 5,
            Request::TakeOver => 6,
        }
    }

    /// The packet that asks for it.
    pub fn encode(self) -> [u8; REQUEST_BYTES] {
        let [s, d, l, g] = MAGIC;
        [s, d, l, g, VERSION, self.verb(), 0, 0]
    }

    /// What `packet` asks for.
    ///
    /// # Errors
    ///
    /// The fault of whoever sent it, in words for them.
    pub fn decode(packet: &[u8]) -> Result<Request, RequestFault> {
        let packet: [u8; REQUEST_BYTES] = packet.try_into().map_err(|_| RequestFault::NoRequest)?;
        let [s, d, l, g, version, verb, rest @ ..] = packet;
        if [s, d, l, g] != MAGIC {
            return Err(RequestFault::NoRequest);
        }
        // Before all else, which a later version may have changed.
        if version != VERSION {
            return Err(RequestFault::OtherVersion(version));
        }
        if rest != [0, 0] {
            return Err(RequestFault::NoRequest);
        }
        Request::ALL.into_iter().find(|request| request.verb() == verb).ok_or(RequestFault::UnknownVerb(verb))
    }
}

/// Why a packet is no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFault {
    /// It looks like nothing that this program sends.
    NoRequest,
    /// It is a request of this version of the form.
    OtherVersion(u8),
    /// It asks for something that has this number.
    UnknownVerb(u8),
}

impl fmt::Display for RequestFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestFault::NoRequest => {
                write!(out, "the server understands nothing of this; ask it by `sanderling status` and its like")
            }
            RequestFault::OtherVersion(version) => write!(
                out,
                "the request has form {version}, and the server that runs knows form {VERSION}; ask it by the version \
                 of sanderling that it was started with"
            ),
            RequestFault::UnknownVerb(verb) => write!(
                out,
                "the server that runs does not know request {verb}; ask it by the version of sanderling that it was \
                 started with"
            ),
        }
    }
}

/// One packet of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// Text for standard output, at most [`TEXT_BYTES_MAX`] octets.
    Out(&'a str),
    /// Text for standard error, at most [`TEXT_BYTES_MAX`] octets.
    Err(&'a str),
    /// That was all. The exit status: 0 if it was done, 1 if it failed or was refused.
    End(u8),
}

const KIND_OUT: u8 = 0;
const KIND_ERR: u8 = 1;
const KIND_END: u8 = 2;

impl<'a> Answer<'a> {
    /// Writes the packet into `buffer`, and returns what it takes of it. Longer text must have been cut by [`pieces`].
    pub fn encode<'b>(&self, buffer: &'b mut [u8; MESSAGE_BYTES_MAX]) -> &'b [u8] {
        let (kind, content) = match self {
            Answer::Out(text) => (KIND_OUT, text.as_bytes()),
            Answer::Err(text) => (KIND_ERR, text.as_bytes()),
            Answer::End(status) => (KIND_END, std::slice::from_ref(status)),
        };
        assert!(content.len() <= TEXT_BYTES_MAX, "the text was cut into pieces");
        let [first, rest @ ..] = &mut *buffer;
        *first = kind;
        rest[..content.len()].copy_from_slice(content);
        &buffer[..1 + content.len()]
    }

    /// What `packet` says.
    ///
    /// # Errors
    ///
    /// It is no packet of an answer.
    pub fn decode(packet: &'a [u8]) -> Result<Answer<'a>, AnswerFault> {
        let (&kind, content) = packet.split_first().ok_or(AnswerFault)?;
        let text = || str::from_utf8(content).map_err(|_| AnswerFault);
        match (kind, content) {
            (KIND_OUT, _) => Ok(Answer::Out(text()?)),
            (KIND_ERR, _) => Ok(Answer::Err(text()?)),
            (KIND_END, &[status]) => Ok(Answer::End(status)),
            _ => Err(AnswerFault),
        }
    }
}

/// A packet is no part of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerFault;

impl fmt::Display for AnswerFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the answer is none that this version of sanderling understands")
    }
}

/// Cuts `text` into pieces that one packet each can carry, between characters; none if it is empty.
pub fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (piece, behind) = rest.split_at(rest.floor_char_boundary(TEXT_BYTES_MAX));
        rest = behind;
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn requests_have_the_octets_that_other_versions_expect() {
        for (request, octets) in [
            (Request::Status, b"SDLG\x01\x01\0\0"),
            (Request::StatusJson, b"SDLG\x01\x02\0\0"),
            (Request::Reload, b"SDLG\x01\x03\0\0"),
            (Request::Stop, b"SDLG\x01\x04\0\0"),
            (Request::Upgrade, b"SDLG\x01\x05\0\0"),
            (Request::TakeOver, b"SDLG\x01\x06\0\0"),
        ] {
            assert_eq!(&request.encode(), octets);
            assert_eq!(Request::decode(octets), Ok(request));
        }
    }

    #[test]
    fn whatever_is_no_request_is_told_apart() {
        for (packet, fault) in [
            (&b""[..], RequestFault::NoRequest),
            (b"GET / HT", RequestFault::NoRequest),
            (b"SDLG\x01\x01\0", RequestFault::NoRequest),
            (b"SDLG\x01\x01\0\0\0", RequestFault::NoRequest),
            (b"SDLG\x01\x01\0\x01", RequestFault::NoRequest),
            (b"SDLG\x02\x01\x07\0", RequestFault::OtherVersion(2)),
            (b"SDLG\x01\0\0\0", RequestFault::UnknownVerb(0)),
            (b"SDLG\x01\x07\0\0", RequestFault::UnknownVerb(7)),
        ] {
            assert_eq!(Request::decode(packet), Err(fault), "{packet:?}");
        }
    }

    #[test]
    fn answers_have_the_octets_that_other_versions_expect() {
        for (answer, octets) in [
            (Answer::Out("up\n"), &b"\x00up\n"[..]),
            (Answer::Out(""), b"\x00"),
            (Answer::Err("no\n"), b"\x01no\n"),
            (Answer::End(0), b"\x02\x00"),
            (Answer::End(1), b"\x02\x01"),
        ] {
            assert_eq!(answer.encode(&mut [9; MESSAGE_BYTES_MAX]), octets);
            assert_eq!(Answer::decode(octets), Ok(answer));
        }
    }

    #[test]
    fn whatever_is_no_answer_is_refused() {
        for packet in [&b""[..], b"\x00\xff", b"\x01caf\xc3", b"\x02", b"\x02\x00\x00", b"\x03text"] {
            assert_eq!(Answer::decode(packet), Err(AnswerFault), "{packet:?}");
        }
    }

    #[test]
    fn text_is_cut_between_characters() {
        assert_eq!(pieces("").count(), 0);
        assert_eq!(pieces("short").collect::<Vec<_>>(), ["short"]);
        let full = "x".repeat(TEXT_BYTES_MAX);
        assert_eq!(pieces(&full).collect::<Vec<_>>(), [&full]);
        let longer = format!("{full}y");
        assert_eq!(pieces(&longer).collect::<Vec<_>>(), [&full, "y"]);
        // The character of four octets does not fit behind the others any more.
        let shorter = "x".repeat(TEXT_BYTES_MAX - 1);
        let wide = format!("{shorter}\u{1f426}y");
        assert_eq!(pieces(&wide).collect::<Vec<_>>(), [&shorter, "\u{1f426}y"]);
    }

    proptest! {
        #[test]
        fn any_octets_are_either_refused_or_come_back(octets in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(request) = Request::decode(&octets) {
                prop_assert_eq!(&request.encode()[..], &octets[..]);
            }
            if let Ok(answer) = Answer::decode(&octets) {
                let mut buffer = [0; MESSAGE_BYTES_MAX];
                prop_assert_eq!(answer.encode(&mut buffer), &octets[..]);
            }
        }

        #[test]
        fn the_octets_of_a_request_with_a_fault_are_refused(place in 0..REQUEST_BYTES, octet: u8) {
            let right = Request::Status.encode();
            let mut packet = right;
            packet[place] = octet;
            let is_other_verb = place == 5 && (1..=6).contains(&octet);
            prop_assert_eq!(Request::decode(&packet).is_ok(), packet == right || is_other_verb);
        }

        #[test]
        fn pieces_make_the_text_again(text in "(é|x|\u{1f426}){0,6000}") {
            let mut buffer = [0; MESSAGE_BYTES_MAX];
            let mut arrived = String::new();
            for piece in pieces(&text) {
                match Answer::decode(Answer::Out(piece).encode(&mut buffer)) {
                    Ok(Answer::Out(text)) => arrived.push_str(text),
                    other => prop_assert!(false, "{:?}", other),
                }
            }
            prop_assert_eq!(arrived, text);
        }
    }
}
