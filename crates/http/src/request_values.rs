//! Parts of a request that no file depends on, but a route or a backend does.

use crate::fields::FieldName;
use crate::grammar::{list_members, trim};
use crate::request::{Framing, Method, Request, Version};

/// The protocols to which a connection may switch (RFC 9110 §7.8), in lower case. Not h2c: the streams of such a
/// connection would reach the backend without any check.
const UPGRADES: [&[u8]; 1] = [b"websocket"];

impl<'b> Request<'b> {
    /// The method as it was received.
    pub fn method_name(&self) -> &'b [u8] {
        let line = self.fields.lines().0;
        &line[..memchr::memchr(b' ', line).unwrap_or(line.len())]
    }

    /// The value of the first line of a field. `name` is in lower case.
    pub fn field(&self, name: &[u8]) -> Option<&'b [u8]> {
        self.fields.find_first(name)
    }

    /// The value of the first cookie with this name (RFC 6265 §5.4), with its quotes if it has some.
    pub fn cookie(&self, name: &[u8]) -> Option<&'b [u8]> {
        self.fields.find_all(b"cookie").flat_map(|line| line.split(|&byte| byte == b';')).find_map(|pair| {
            let pair = trim(pair);
            let at = memchr::memchr(b'=', pair)?;
            (trim(&pair[..at]) == name).then(|| trim(&pair[at + 1..]))
        })
    }

    /// The protocol to which the client asks to switch, in lower case; `None` if it does not ask, or for none of those
    /// that are passed on. Only a GET of HTTP/1.1 without content can ask (RFC 6455 §4.1).
    pub fn upgrade(&self) -> Option<&'static [u8]> {
        let is_possible =
            self.method == Method::Get && self.version == Version::Http11 && self.framing == Framing::None;
        if !is_possible || !self.fields.contains(FieldName::Connection) {
            return None;
        }
        let mut options = self.fields.values(FieldName::Connection).flat_map(list_members);
        if !options.any(|option| option.eq_ignore_ascii_case(b"upgrade")) {
            return None;
        }
        let mut protocols = self.fields.find_all(b"upgrade").flat_map(list_members);
        protocols.find_map(|asked| UPGRADES.into_iter().find(|known| known.eq_ignore_ascii_case(asked)))
    }
}

#[cfg(test)]
mod tests {
    use crate::request::{Parsed, RequestLimits, parse_request};
    use alloc::format;

    /// The results of all four for a request with this method and these lines.
    #[track_caller]
    fn check(line: &str, fields: &str, expected: (&str, Option<&str>, Option<&str>, Option<&str>)) {
        let head = format!("{line}\r\nHost: a\r\n{}\r\n", fields.replace('\n', "\r\n"));
        let Ok(Parsed::Complete { request, .. }) = parse_request(head.as_bytes(), 0, &RequestLimits::default()) else {
            panic!("{head}");
        };
        let text = |bytes: Option<&'static [u8]>| bytes.map(|bytes| core::str::from_utf8(bytes).expect("UTF-8"));
        assert_eq!(core::str::from_utf8(request.method_name()), Ok(expected.0), "{head}");
        assert_eq!(request.field(b"x-a"), expected.1.map(str::as_bytes), "{head}");
        assert_eq!(request.cookie(b"id"), expected.2.map(str::as_bytes), "{head}");
        assert_eq!(text(request.upgrade()), expected.3, "{head}");
    }

    #[test]
    fn method_and_fields_are_as_received() {
        check("GET / HTTP/1.1", "", ("GET", None, None, None));
        check("QUERY /a HTTP/1.1", "X-A:  1 \nx-a: 2\n", ("QUERY", Some("1"), None, None));
        check("DELETE / HTTP/1.0", "X-AB: 1\n", ("DELETE", None, None, None));
    }

    #[test]
    fn cookie_is_found_in_any_line_and_place() {
        let cookie = |fields, value| check("GET / HTTP/1.1", fields, ("GET", None, value, None));
        cookie("Cookie: id=1\n", Some("1"));
        cookie("Cookie: a=b; id=1; id=2\n", Some("1"));
        cookie("cookie: a=b\ncookie: id=\"x=y\"\n", Some("\"x=y\""));
        cookie("Cookie: xid=1;ID=2; id\n", None);
        cookie("Cookie: id=\n", Some(""));
        cookie("Set-Cookie: id=1\n", None);
    }

    #[test]
    fn upgrade_is_a_get_of_http11_for_a_listed_protocol() {
        let check = |line, fields, upgrade| check(line, fields, ("GET", None, None, upgrade));
        check("GET / HTTP/1.1", "Connection: keep-alive, Upgrade\nUpgrade: WebSocket\n", Some("websocket"));
        check("GET / HTTP/1.1", "Connection: upgrade\nUpgrade: h2c, websocket\n", Some("websocket"));
        check("GET / HTTP/1.1", "Connection: x\nconnection: upgrade\nUpgrade: websocket\n", Some("websocket"));
        check("GET / HTTP/1.1", "Connection: Upgrade, HTTP2-Settings\nUpgrade: h2c\nHTTP2-Settings: AAMAAABk\n", None);
        check("GET / HTTP/1.1", "Upgrade: websocket\n", None);
        check("GET / HTTP/1.1", "Connection: upgrade\n", None);
        check("GET / HTTP/1.0", "Connection: upgrade\nUpgrade: websocket\n", None);
        check("GET / HTTP/1.1", "Connection: upgrade\nUpgrade: websocket\nContent-Length: 1\n", None);
        check("GET / HTTP/1.1", "Connection: upgrade\nUpgrade: websockets\n", None);
    }
}
