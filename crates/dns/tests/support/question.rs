//! Questions as text, `www.example. A +tcp +edns=1232`, and as queries in wire form.

use super::zone_text::name_bytes;
use sanderling_dns::{DnsTransport, Name, Rtype};
use std::fmt;

/// Every query's id.
pub(crate) const ID: u16 = 0x1d1d;

/// UDP with the default of the longest reply.
pub(crate) const UDP: DnsTransport = DnsTransport::Udp { reply_bytes_max: 1232 };

/// A question with transport, flags and EDNS.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Question {
    /// The name, in wire form.
    pub(crate) name: Vec<u8>,
    pub(crate) rtype: Rtype,
    pub(crate) class: u16,
    pub(crate) transport: DnsTransport,
    /// The UDP payload size that the client announces.
    pub(crate) edns_bytes: Option<u16>,
    pub(crate) edns_version: u8,
    pub(crate) dnssec_ok: bool,
    pub(crate) recursion_desired: bool,
}

impl Question {
    /// A question over UDP without EDNS.
    pub(crate) fn new(name: Vec<u8>, rtype: Rtype) -> Question {
        Question {
            name,
            rtype,
            class: 1,
            transport: UDP,
            edns_bytes: None,
            edns_version: 0,
            dnssec_ok: false,
            recursion_desired: false,
        }
    }

    /// Parses name, type and options.
    ///
    /// `+tcp`; `+edns` or `+edns=BYTES`; `+version=1`; `+do`; `+rd`; `+class=3`; `+max=BYTES` for the longest
    /// reply that the server sends.
    pub(crate) fn parse(text: &str) -> Question {
        let mut words = text.split_whitespace();
        let name = name_bytes(words.next().expect("a name"));
        let rtype = words.next().and_then(|word| Rtype::from_text(word.as_bytes())).expect("a type");
        let mut question = Question::new(name, rtype);
        for word in words {
            let (key, value) = word.split_once('=').unwrap_or((word, "1232"));
            let number: u16 = value.parse().expect("a number");
            match key {
                "+tcp" => question.transport = DnsTransport::Tcp,
                "+max" => question.transport = DnsTransport::Udp { reply_bytes_max: number },
                "+edns" => question.edns_bytes = Some(number),
                "+version" => question.edns_version = u8::try_from(number).expect("below 256"),
                "+do" => question.dnssec_ok = true,
                "+rd" => question.recursion_desired = true,
                "+class" => question.class = number,
                _ => panic!("unknown option {word}"),
            }
        }
        question
    }

    /// The bytes of the query.
    pub(crate) fn message(&self) -> Vec<u8> {
        let flags = if self.recursion_desired { 0x0100u16 } else { 0 };
        let mut message = vec![];
        for number in [ID, flags, 1, 0, 0, u16::from(self.edns_bytes.is_some())] {
            message.extend(number.to_be_bytes());
        }
        message.extend(&self.name);
        message.extend(self.rtype.0.to_be_bytes());
        message.extend(self.class.to_be_bytes());
        if let Some(payload_bytes) = self.edns_bytes {
            message.extend([0, 0, 41]);
            message.extend(payload_bytes.to_be_bytes());
            message.extend([0, self.edns_version, if self.dnssec_ok { 0x80 } else { 0 }, 0, 0, 0]);
        }
        message
    }

    /// Bytes that the reply may have (RFC 1035 §4.2.1, RFC 6891 §6.2.3).
    pub(crate) fn reply_bytes_max(&self) -> usize {
        match self.transport {
            DnsTransport::Tcp | DnsTransport::Tls | DnsTransport::Https => 65_535,
            DnsTransport::Udp { reply_bytes_max } => {
                let asked = self.edns_bytes.unwrap_or(512).max(512);
                usize::from(asked.min(reply_bytes_max))
            }
        }
    }
}

/// In the form of [`Question::parse`], for messages.
impl fmt::Debug for Question {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {} {:?}", Name::parse(&self.name).expect("a name"), self.rtype, self.transport)?;
        match self.edns_bytes {
            Some(payload_bytes) => write!(out, " +edns={payload_bytes}"),
            None => Ok(()),
        }
    }
}
