//! What a request is, and what may become of it, as names.

use rustix::io::Errno;
use std::fmt;

/// How a request goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// HTTP, each request on a connection of its own, which asks for `Connection: close`.
    HttpNew,
    /// HTTP on connections that are kept.
    HttpKept,
    /// DNS over UDP.
    DnsUdp,
    /// DNS over TCP, each query on a connection of its own.
    DnsTcpNew,
    /// DNS over TCP on connections that are kept (RFC 7766 §6.2.1).
    DnsTcpKept,
}

impl Kind {
    /// All of them, in the order of the tables.
    pub const ALL: [Kind; 5] = [Kind::HttpNew, Kind::HttpKept, Kind::DnsUdp, Kind::DnsTcpNew, Kind::DnsTcpKept];

    /// Its name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Kind::HttpNew => "http-new",
            Kind::HttpKept => "http-kept",
            Kind::DnsUdp => "dns-udp",
            Kind::DnsTcpNew => "dns-tcp-new",
            Kind::DnsTcpKept => "dns-tcp-kept",
        }
    }
}

/// Why a request is lost. Every request that is sent and not answered rightly has exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Nobody listens: a reset in answer to the SYN, or "port unreachable" in answer to a datagram.
    Refused,
    /// The network says that there is no way to the server.
    Unreachable,
    /// The connection was reset before the first octet of the answer.
    ResetBefore,
    /// The connection was reset between the first octet of the answer and the last.
    ResetWithin,
    /// The server closed the connection with the request sent and not an octet of the answer come.
    ClosedBefore,
    /// The server closed the connection within the answer.
    Short,
    /// An HTTP status other than 200, or a DNS response code other than the one expected.
    WrongStatus,
    /// The content is none of those expected, or has octets behind its end.
    WrongContent,
    /// What came is no well-formed answer, or the answer to another question.
    WrongAnswer,
    /// The deadline passed.
    Timeout,
    /// It could not be sent, for want of a descriptor, a port or memory on this side.
    Unsent,
}

impl Cause {
    /// All of them, in the order of the tables.
    pub const ALL: [Cause; 11] = [
        Cause::Refused,
        Cause::Unreachable,
        Cause::ResetBefore,
        Cause::ResetWithin,
        Cause::ClosedBefore,
        Cause::Short,
        Cause::WrongStatus,
        Cause::WrongContent,
        Cause::WrongAnswer,
        Cause::Timeout,
        Cause::Unsent,
    ];

    /// Whose fault an error of the kernel's tells of, when these octets of the answer had come. What is neither the
    /// peer's nor the network's is ours.
    pub(crate) fn of(errno: Errno, received_bytes: usize) -> Cause {
        match errno {
            Errno::CONNREFUSED => Cause::Refused,
            Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::HOSTDOWN | Errno::NETDOWN => Cause::Unreachable,
            Errno::CONNRESET | Errno::PIPE | Errno::CONNABORTED if received_bytes > 0 => Cause::ResetWithin,
            Errno::CONNRESET | Errno::PIPE | Errno::CONNABORTED => Cause::ResetBefore,
            Errno::TIMEDOUT => Cause::Timeout,
            _ => Cause::Unsent,
        }
    }

    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Refused => "refused",
            Cause::Unreachable => "unreachable",
            Cause::ResetBefore => "reset_before",
            Cause::ResetWithin => "reset_within",
            Cause::ClosedBefore => "closed_before",
            Cause::Short => "short",
            Cause::WrongStatus => "wrong_status",
            Cause::WrongContent => "wrong_content",
            Cause::WrongAnswer => "wrong_answer",
            Cause::Timeout => "timeout",
            Cause::Unsent => "unsent",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cause::Refused => "refused",
            Cause::Unreachable => "unreachable",
            Cause::ResetBefore => "reset before the answer",
            Cause::ResetWithin => "reset within the answer",
            Cause::ClosedBefore => "closed before the answer",
            Cause::Short => "short",
            Cause::WrongStatus => "wrong status",
            Cause::WrongContent => "wrong content",
            Cause::WrongAnswer => "wrong answer",
            Cause::Timeout => "timeout",
            Cause::Unsent => "not sent",
        })
    }
}

/// What is worth counting and no loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Note {
    /// A connection was opened.
    Opened,
    /// The server said `Connection: close` in a right answer on a kept connection, and was obeyed.
    PoliteClose,
    /// The server closed a kept connection on which no request was outstanding.
    IdleClose,
    /// The server reset a kept connection on which no request was outstanding.
    IdleReset,
    /// After a right answer and `Connection: close` the server reset the connection instead of closing it.
    ClosingReset,
    /// After a right answer and `Connection: close` the server left the connection open until the deadline.
    NotClosed,
    /// Octets or a datagram that answer no outstanding request: doubled, late, or with another id.
    Stray,
    /// A right answer over UDP that was cut (TC), so that a resolver would ask again over TCP.
    Truncated,
}

impl Note {
    /// All of them, in the order of the tables.
    pub const ALL: [Note; 8] = [
        Note::Opened,
        Note::PoliteClose,
        Note::IdleClose,
        Note::IdleReset,
        Note::ClosingReset,
        Note::NotClosed,
        Note::Stray,
        Note::Truncated,
    ];

    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Note::Opened => "opened",
            Note::PoliteClose => "polite_close",
            Note::IdleClose => "idle_close",
            Note::IdleReset => "idle_reset",
            Note::ClosingReset => "closing_reset",
            Note::NotClosed => "not_closed",
            Note::Stray => "stray",
            Note::Truncated => "truncated",
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Note::Opened => "connections opened",
            Note::PoliteClose => "closed politely",
            Note::IdleClose => "closed while idle",
            Note::IdleReset => "reset while idle",
            Note::ClosingReset => "reset after the answer",
            Note::NotClosed => "not closed after the answer",
            Note::Stray => "strays",
            Note::Truncated => "truncated",
        })
    }
}
