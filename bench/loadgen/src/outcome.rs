//! The kinds of requests, and their possible outcomes.

use rustix::io::Errno;
use std::fmt;

/// An enum whose variants have names for reports.
macro_rules! named {
    ($(#[$doc:meta])* $Name:ident { $($(#[$of_variant:meta])* $Variant:ident = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $Name {
            $($(#[$of_variant])* $Variant,)*
        }

        impl $Name {
            /// All variants, in the order of reports.
            pub const ALL: &[$Name] = &[$($Name::$Variant,)*];
        }

        impl fmt::Display for $Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self {
                    $($Name::$Variant => $name,)*
                })
            }
        }
    };
}

named! {
    /// The way in which a request is sent.
    Kind {
        /// HTTP, one request per connection, with `Connection: close`.
        HttpNew = "http-new",
        /// HTTP on persistent connections.
        HttpKept = "http-kept",
        /// DNS over UDP.
        DnsUdp = "dns-udp",
        /// DNS over TCP, one query per connection.
        DnsTcpNew = "dns-tcp-new",
        /// DNS over TCP on persistent connections (RFC 7766 §6.2.1).
        DnsTcpKept = "dns-tcp-kept",
        /// HTTPS, one request per connection, with `Connection: close`. TLS sessions are resumed.
        HttpsNew = "https-new",
        /// HTTPS with HTTP/1.1 on persistent connections.
        HttpsKept = "https-kept",
        /// HTTPS with HTTP/2, concurrent requests on persistent connections.
        Http2 = "http2",
    }
}

named! {
    /// The reason why a request is lost. Each request without a correct response has exactly one cause.
    Cause {
        /// A reset in answer to the SYN, or "port unreachable" in answer to a datagram.
        Refused = "refused",
        /// The network has no route to the server.
        Unreachable = "unreachable",
        /// The connection was reset before the first byte of the response.
        ResetBefore = "reset before the response",
        /// The connection was reset between the first byte of the response and the last.
        ResetDuring = "reset during the response",
        /// The server closed the connection after the request was sent, without a response.
        ClosedBefore = "closed before the response",
        /// The server closed the connection before the end of the response.
        ClosedDuring = "closed during the response",
        /// An HTTP status other than 200, or a DNS response code other than the expected one.
        WrongStatus = "wrong status",
        /// Content or records other than the expected ones, or bytes after their end.
        WrongContent = "wrong content",
        /// A malformed response, or one to another question.
        BadResponse = "bad response",
        /// The deadline passed.
        Timeout = "timeout",
        /// The load generator ran out of file descriptors, ports or memory.
        NotSent = "not sent",
    }
}

named! {
    /// An event that is no loss.
    Note {
        /// A connection was opened.
        Opened = "connections opened",
        /// The server announced `Connection: close` in a correct response on a persistent connection, or sent GOAWAY.
        ConnectionClose = "closed after Connection: close",
        /// The server closed a persistent connection without an outstanding request.
        IdleClose = "closed while idle",
        /// The server reset a persistent connection without an outstanding request.
        IdleReset = "reset while idle",
        /// After a correct response with `Connection: close` the server reset the connection.
        ResetAfter = "reset after the response",
        /// After a correct response with `Connection: close` the server kept the connection open until the deadline.
        NotClosed = "not closed after the response",
        /// Bytes or a datagram that answer no outstanding request: duplicated, late, or with an unknown ID.
        Unexpected = "unexpected responses",
        /// A request was above the last stream of GOAWAY, and was sent again on another connection.
        Unprocessed = "sent again after GOAWAY",
        /// A correct, truncated reply over UDP (TC).
        Truncated = "truncated",
    }
}

impl Cause {
    /// The cause behind an error of a socket, after `received_bytes` of the response. An error that is neither the
    /// server's fault nor the network's is the load generator's own.
    pub(crate) fn of(errno: Errno, received_bytes: usize) -> Cause {
        match errno {
            Errno::CONNREFUSED => Cause::Refused,
            Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::HOSTDOWN | Errno::NETDOWN => Cause::Unreachable,
            Errno::CONNRESET | Errno::PIPE | Errno::CONNABORTED if received_bytes > 0 => Cause::ResetDuring,
            Errno::CONNRESET | Errno::PIPE | Errno::CONNABORTED => Cause::ResetBefore,
            Errno::TIMEDOUT => Cause::Timeout,
            _ => Cause::NotSent,
        }
    }
}
