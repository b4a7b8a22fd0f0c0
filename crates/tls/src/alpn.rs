//! The protocols that a client can ask for in its first message (ALPN, RFC 7301).

/// A protocol above TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alpn {
    /// HTTP/2 (RFC 9113).
    H2,
    /// HTTP/1.1 (RFC 9112).
    Http1,
    /// HTTP/1.0, for clients that ask only for it (RFC 9112 Appendix C.2). The connection uses HTTP/1.1.
    Http10,
    /// DNS over TLS (RFC 9103 §7.1).
    Dot,
}

impl Alpn {
    const ALL: [Alpn; 4] = [Alpn::H2, Alpn::Http1, Alpn::Http10, Alpn::Dot];

    /// The name that IANA has registered.
    pub fn id(self) -> &'static [u8] {
        match self {
            Alpn::H2 => b"h2",
            Alpn::Http1 => b"http/1.1",
            Alpn::Http10 => b"http/1.0",
            Alpn::Dot => b"dot",
        }
    }

    /// The protocol of a registered name.
    pub(crate) fn from_id(id: &[u8]) -> Option<Alpn> {
        Alpn::ALL.into_iter().find(|protocol| protocol.id() == id)
    }
}
