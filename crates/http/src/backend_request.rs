//! Writes the head of a request to a backend that speaks HTTP/1.1.
//!
//! Framing is written from what is known of the content, and never copied: two recipients that read different fields
//! would disagree about where a request ends.

use crate::fields::{FieldName, Fields};
use crate::forwarded::ForwardedField;
use crate::grammar::is_token_byte;
use crate::host::Host;
use crate::output::{put_fmt, put_number};
use crate::passed_fields::{
    NamedFields, is_edited, is_edited_in_request, is_hop_by_hop, put_edits, put_field, starts_with,
};
use crate::request::{Framing, Request, Version};
use crate::target::Scheme;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

/// A request as it is passed on to a backend.
#[derive(Clone, Debug)]
pub struct BackendRequest<'r> {
    /// The request of the client.
    pub request: &'r Request<'r>,
    /// The path with the query, as the backend gets it. It has no space and no control byte.
    pub target: &'r [u8],
    /// The Host field; `None` for that of the client.
    pub host: Option<&'r str>,
    /// The framing of the content that is sent.
    pub framing: Framing,
    /// The address of the peer: of the client, or of the proxy through which it comes.
    pub client: IpAddr,
    /// The scheme of the request.
    pub scheme: Scheme,
    /// Trailers of the response are passed on to a client that takes them, so that the backend may send some.
    pub passes_trailers: bool,
    /// The field that the peer writes, if it is a trusted proxy. This field is extended, those of the other kind are
    /// removed, since the proxy may have passed on those of its client. Of any other peer both kinds are replaced.
    pub trusted: Option<ForwardedField>,
    /// Fields that are set, or removed (`None`), with valid names and values. Those that this type writes itself for
    /// the connection to the backend (Host, Connection, Content-Length and so on) stay as they are.
    pub edits: &'r [(String, Option<String>)],
}

impl BackendRequest<'_> {
    /// Appends the head, including its last empty line, to `out`.
    ///
    /// Expect is removed, since the proxy answers it, and Trailer, which is a mere announcement.
    pub fn write_head(&self, out: &mut Vec<u8>) {
        let request = self.request;
        let upgrade = request.upgrade();
        self.put_start(request.method_name(), out);
        if let Some(protocol) = upgrade {
            out.extend_from_slice(b"Connection: upgrade\r\n");
            put_field(b"Upgrade", protocol, out);
        }
        if self.passes_trailers && request.takes_trailers() {
            put_field(b"TE", b"trailers", out);
        }
        let collected = self.put_passed(|_| true, out);
        self.put_framing(out);
        self.put_collected(&collected, out);
        put_edits(self.edits, |name| Kind::of(name) == Kind::Own, out);
        out.extend_from_slice(b"\r\n");
    }

    /// Appends the head of a GET request that asks another server about this one. It has no content, upgrades nothing,
    /// and its response depends on no condition or range of the client, which are about another one.
    pub fn write_question_head(&self, out: &mut Vec<u8>) {
        self.put_start(b"GET", out);
        let collected = self.put_passed(is_of_question, out);
        self.put_collected(&collected, out);
        put_edits(self.edits, |name| Kind::of(name) == Kind::Own, out);
        out.extend_from_slice(b"\r\n");
    }

    /// Appends the request line and Host.
    fn put_start(&self, method: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(method);
        out.push(b' ');
        out.extend_from_slice(self.target);
        out.extend_from_slice(b" HTTP/1.1\r\nHost: ");
        match self.host {
            Some(host) => out.extend_from_slice(host.as_bytes()),
            // RFC 9112 §3.2: the value is empty if there is no authority.
            None => put_host(self.request.host, out),
        }
        out.extend_from_slice(b"\r\n");
    }

    /// Appends the fields that are passed on unchanged, those of other kinds only if `is_wanted`, and collects those
    /// that need more.
    #[inline]
    fn put_passed(&self, is_wanted: impl Fn(&[u8]) -> bool, out: &mut Vec<u8>) -> Collected<'_> {
        let fields = &self.request.fields;
        let named = NamedFields::of(fields);
        let mut collected = Collected::default();
        for line in fields.field_lines() {
            let name = line.name();
            let is_passed = match Kind::of(name) {
                Kind::Own => false,
                Kind::Cookie => {
                    collected.cookie.record(line.value());
                    false
                }
                Kind::Forwarded => {
                    collected.forwarded.record(line.value());
                    false
                }
                Kind::ForwardedFor => {
                    collected.forwarded_for.record(line.value());
                    false
                }
                kind @ (Kind::ForwardedProto | Kind::ForwardedHost | Kind::OtherForwarded) => {
                    let is_trusted = self.trusted == Some(ForwardedField::XForwardedFor);
                    collected.has_proto |= is_trusted && kind == Kind::ForwardedProto;
                    collected.has_host |= is_trusted && kind == Kind::ForwardedHost;
                    is_trusted && !is_edited(name, self.edits)
                }
                Kind::Other => !named.contain(name) && !is_edited_in_request(name, self.edits) && is_wanted(name),
            };
            if is_passed {
                put_field(name, line.value(), out);
            }
        }
        collected
    }

    fn put_framing(&self, out: &mut Vec<u8>) {
        match self.framing {
            Framing::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
            Framing::Length(length_bytes) => {
                put_number(b"Content-Length: ", length_bytes, out);
                out.extend_from_slice(b"\r\n");
            }
            // RFC 9110 §8.6: of these methods content is expected, so that its absence is stated.
            Framing::None
                if matches!(self.request.method_name(), b"POST" | b"PUT" | b"PATCH")
                    || self.request.fields.contains(FieldName::ContentLength) =>
            {
                out.extend_from_slice(b"Content-Length: 0\r\n");
            }
            Framing::None => {}
        }
    }

    /// Appends the fields that are made of several lines, or of the facts of the connection.
    fn put_collected(&self, collected: &Collected<'_>, out: &mut Vec<u8>) {
        let fields = &self.request.fields;
        let is_passed = |name: &[u8]| !is_edited(name, self.edits);
        if collected.cookie.first.is_some() && is_passed(b"cookie") {
            out.extend_from_slice(b"Cookie: ");
            // RFC 9113 §8.2.3: HTTP/2 divides them.
            collected.cookie.put(b"cookie", b"; ", fields, out);
            out.extend_from_slice(b"\r\n");
        }
        if is_passed(b"via") {
            // RFC 9110 §7.6.3: the version is that of the received message. Lines before this one are its start.
            let version: &[u8] = if self.request.version == Version::Http10 { b"1.0" } else { b"1.1" };
            out.extend_from_slice(b"Via: ");
            out.extend_from_slice(version);
            out.extend_from_slice(b" sanderling\r\n");
        }
        let client = self.client.to_canonical();
        if self.trusted != Some(ForwardedField::Forwarded) {
            if is_passed(b"x-forwarded-for") {
                out.extend_from_slice(b"X-Forwarded-For: ");
                if self.trusted.is_some() {
                    collected.forwarded_for.put_start(b"x-forwarded-for", fields, out);
                }
                put_fmt(out, format_args!("{client}\r\n"));
            }
            if !collected.has_proto && is_passed(b"x-forwarded-proto") {
                put_field(b"X-Forwarded-Proto", self.scheme.name().as_bytes(), out);
            }
            if !collected.has_host && is_passed(b"x-forwarded-host") && self.request.host.is_some() {
                out.extend_from_slice(b"X-Forwarded-Host: ");
                put_host(self.request.host, out);
                out.extend_from_slice(b"\r\n");
            }
        }
        if self.trusted != Some(ForwardedField::XForwardedFor) && is_passed(b"forwarded") {
            out.extend_from_slice(b"Forwarded: ");
            if self.trusted.is_some() {
                collected.forwarded.put_start(b"forwarded", fields, out);
            }
            self.put_forwarded_element(client, out);
        }
    }

    /// `for=192.0.2.1;host=example.com;proto=https` (RFC 7239 §4)
    fn put_forwarded_element(&self, client: IpAddr, out: &mut Vec<u8>) {
        match client {
            IpAddr::V4(address) => put_fmt(out, format_args!("for={address}")),
            // §6: a colon needs the quotes.
            IpAddr::V6(address) => put_fmt(out, format_args!("for=\"[{address}]\"")),
        }
        if let Some(host) = self.request.host {
            let is_token = host.port.is_none() && host.name.iter().all(|&byte| is_token_byte(byte));
            // No byte of a host must be escaped in quotes.
            let quote: &[u8] = if is_token { b"" } else { b"\"" };
            out.extend_from_slice(b";host=");
            out.extend_from_slice(quote);
            put_host(Some(host), out);
            out.extend_from_slice(quote);
        }
        out.extend_from_slice(b";proto=");
        out.extend_from_slice(self.scheme.name().as_bytes());
        out.extend_from_slice(b"\r\n");
    }
}

impl<'b> Request<'b> {
    /// The names and values of the field lines that an application gets by any protocol; `trusted` is that of
    /// [`BackendRequest::trusted`]. Host is not among them: [`Request::host`] is what counts.
    pub fn passed_fields(&self, trusted: Option<ForwardedField>) -> impl Iterator<Item = (&'b [u8], &'b [u8])> {
        let named = NamedFields::of(&self.fields);
        let is_passed = move |name: &[u8]| match Kind::of(name) {
            Kind::Own => false,
            Kind::Cookie => true,
            Kind::Forwarded => trusted == Some(ForwardedField::Forwarded),
            Kind::ForwardedFor | Kind::ForwardedProto | Kind::ForwardedHost | Kind::OtherForwarded => {
                trusted == Some(ForwardedField::XForwardedFor)
            }
            Kind::Other => !named.contain(name),
        };
        self.fields.field_lines().map(|line| (line.name(), line.value())).filter(move |(name, _)| is_passed(name))
    }
}

/// Whether a field means something without the content of its request, and for another response than its own.
fn is_of_question(name: &[u8]) -> bool {
    let is_condition = starts_with(name, b"if-") || name.eq_ignore_ascii_case(b"range");
    !is_condition && !starts_with(name, b"content-") && !starts_with(name, b"sec-websocket-")
}

fn put_host(host: Option<Host<'_>>, out: &mut Vec<u8>) {
    let Some(Host { name, port }) = host else { return };
    out.extend_from_slice(name);
    if let Some(port) = port {
        put_number(b":", u64::from(port), out);
    }
}

/// The treatment of a field of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Passed on, unless Connection names it.
    Other,
    /// Not passed on: the proxy writes it itself, or it concerns the connection of the client.
    Own,
    /// Cookie: one line.
    Cookie,
    /// Forwarded (RFC 7239).
    Forwarded,
    /// X-Forwarded-For.
    ForwardedFor,
    /// X-Forwarded-Proto.
    ForwardedProto,
    /// X-Forwarded-Host.
    ForwardedHost,
    /// Other fields by which proxies describe a client.
    OtherForwarded,
}

impl Kind {
    #[inline]
    fn of(name: &[u8]) -> Kind {
        let kind = Kind::of_exact(name);
        match kind {
            Kind::Other if name.contains(&b'_') => Kind::of_alias(name),
            _ => kind,
        }
    }

    #[inline]
    fn of_exact(name: &[u8]) -> Kind {
        let is = |expected: &[u8]| name.eq_ignore_ascii_case(expected);
        match name.len() {
            4 if is(b"host") => Kind::Own,
            // Applications that get fields as variables take it for the proxy of their own requests, HTTP_PROXY.
            5 if is(b"proxy") => Kind::Own,
            6 if is(b"cookie") => Kind::Cookie,
            6 if is(b"expect") => Kind::Own,
            9 if is(b"forwarded") => Kind::Forwarded,
            9 if is(b"x-real-ip") => Kind::OtherForwarded,
            14 if is(b"http2-settings") => Kind::Own,
            15 if is(b"x-forwarded-for") => Kind::ForwardedFor,
            16 if is(b"x-forwarded-host") => Kind::ForwardedHost,
            17 if is(b"x-forwarded-proto") => Kind::ForwardedProto,
            13.. if starts_with(name, b"x-forwarded-") => Kind::OtherForwarded,
            _ if is_hop_by_hop(name) => Kind::Own,
            _ => Kind::Other,
        }
    }

    /// Applications that get fields as variables cannot tell `X_Forwarded_For` from X-Forwarded-For, so that the name
    /// with an underscore is not passed on if the other one means something to a proxy.
    #[cold]
    fn of_alias(name: &[u8]) -> Kind {
        /// No name in [`Kind::of_exact`] is longer.
        const NAME_BYTES_MAX: usize = 24;
        let mut plain = [0; NAME_BYTES_MAX];
        let plain = &mut plain[..name.len().min(NAME_BYTES_MAX)];
        for (plain, &byte) in plain.iter_mut().zip(name) {
            *plain = if byte == b'_' { b'-' } else { byte };
        }
        if Kind::of_exact(plain) == Kind::Other { Kind::Other } else { Kind::Own }
    }
}

/// The fields that are not copied line by line.
#[derive(Default)]
struct Collected<'b> {
    cookie: Lines<'b>,
    forwarded: Lines<'b>,
    forwarded_for: Lines<'b>,
    /// The trusted proxy has written X-Forwarded-Proto.
    has_proto: bool,
    /// The trusted proxy has written X-Forwarded-Host.
    has_host: bool,
}

/// The lines of one field.
#[derive(Default)]
struct Lines<'b> {
    first: Option<&'b [u8]>,
    is_repeated: bool,
}

impl<'b> Lines<'b> {
    fn record(&mut self, value: &'b [u8]) {
        self.is_repeated |= self.first.is_some();
        self.first = self.first.or(Some(value));
    }

    /// Appends all values with `separator` between them. They are searched for again only if there are several.
    fn put(&self, name: &[u8], separator: &[u8], fields: &Fields<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(self.first.unwrap_or_default());
        if self.is_repeated {
            for value in fields.find_all(name).skip(1) {
                out.extend_from_slice(separator);
                out.extend_from_slice(value);
            }
        }
    }

    /// Appends the start of a list, to which another member is added. One line for all: applications often read only
    /// the first line.
    fn put_start(&self, name: &[u8], fields: &Fields<'_>, out: &mut Vec<u8>) {
        let is_empty = !self.is_repeated && self.first.is_none_or(<[u8]>::is_empty);
        if !is_empty {
            self.put(name, b", ", fields, out);
            out.extend_from_slice(b", ");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passed_fields::Edit;
    use crate::request::{Parsed, RequestLimits, parse_request};
    use alloc::format;
    use alloc::string::ToString;
    use alloc::vec;

    const OF_STRANGER: &str = "Via: 1.1 sanderling\nX-Forwarded-For: 192.0.2.1\nX-Forwarded-Proto: https\n\
        X-Forwarded-Host: a\nForwarded: for=192.0.2.1;host=a;proto=https\n";

    /// A request of a stranger over HTTPS, with these edits.
    fn of_stranger<'r>(request: &'r Request<'r>, edits: &'r [Edit]) -> BackendRequest<'r> {
        BackendRequest {
            request,
            target: b"/t",
            host: None,
            framing: request.framing,
            client: IpAddr::from([192, 0, 2, 1]),
            scheme: Scheme::Https,
            passes_trailers: false,
            trusted: None,
            edits,
        }
    }

    /// The head that the backend gets of a request with these lines, with `change` applied.
    #[track_caller]
    fn written(lines: &str, change: impl FnOnce(&mut BackendRequest<'_>)) -> String {
        let head = format!("{lines}\n").replace('\n', "\r\n");
        let Ok(Parsed::Complete { request, .. }) = parse_request(head.as_bytes(), 0, &RequestLimits::default()) else {
            panic!("{head}");
        };
        let mut passed = of_stranger(&request, &[]);
        change(&mut passed);
        let mut out = vec![];
        passed.write_head(&mut out);
        let text = String::from_utf8(out).expect("UTF-8").replace("\r\n", "\n");
        text.strip_suffix("\n\n").expect("an empty line at the end").to_string() + "\n"
    }

    /// A GET of a stranger with `fields` reaches the backend with `expected` before the fields of the proxy.
    #[track_caller]
    fn check(fields: &str, expected: &str) {
        let text = written(&format!("GET / HTTP/1.1\nHost: a\n{fields}"), |_| ());
        assert_eq!(text, format!("GET /t HTTP/1.1\nHost: a\n{expected}{OF_STRANGER}"));
    }

    /// The fields of the proxy are `expected` if the peer is trusted to write `trusted`.
    #[track_caller]
    fn check_trusted(trusted: ForwardedField, fields: &str, expected: &str) {
        let lines = format!("GET / HTTP/1.1\nHost: a\n{fields}");
        let text = written(&lines, |passed| passed.trusted = Some(trusted));
        assert_eq!(text, format!("GET /t HTTP/1.1\nHost: a\n{expected}"));
    }

    #[test]
    fn end_to_end_fields_are_passed_on_in_order() {
        check("", "");
        check("Accept:  */* \nx-a: 1\nX-A: 2\nX-Empty:\n", "Accept: */*\nx-a: 1\nX-A: 2\nX-Empty: \n");
        check("Via: 1.0 a, 1.1 b\n", "Via: 1.0 a, 1.1 b\n");
    }

    #[test]
    fn hop_by_hop_fields_are_removed() {
        check("Connection: keep-alive\nKeep-Alive: timeout=5\nProxy-Connection: keep-alive\n", "");
        check("Proxy-Authorization: Basic x\nProxy-Authenticate: Basic\nTrailer: x\nUpgrade: x\n", "");
        check("TE: trailers\nConnection: TE\n", "");
        check("TE: gzip;q=0.5\nConnection: close, x-a ,X-B\nX-A: 1\nx-b: 1\nX-C: 1\n", "X-C: 1\n");
    }

    #[test]
    fn fields_of_all_recipients_stay_although_connection_names_them() {
        check(
            "Connection: Host, Authorization, Origin, Content-Type, Sec-Fetch-Site\nAuthorization: x\nOrigin: y\n\
             Content-Type: z\nSec-Fetch-Site: none\n",
            "Authorization: x\nOrigin: y\nContent-Type: z\nSec-Fetch-Site: none\n",
        );
        check("Connection: cookie, x-forwarded-for, forwarded, via\nCookie: a=1\n", "Cookie: a=1\n");
        check_trusted(
            ForwardedField::XForwardedFor,
            "Connection: close, X-Forwarded-For, X-Forwarded-Host, X-Real-IP\nX-Forwarded-For: 1.2.3.4\n\
             X-Forwarded-Host: b\nX-Real-IP: 1.2.3.4\n",
            "X-Forwarded-Host: b\nX-Real-IP: 1.2.3.4\nVia: 1.1 sanderling\nX-Forwarded-For: 1.2.3.4, 192.0.2.1\n\
             X-Forwarded-Proto: https\n",
        );
    }

    #[test]
    fn connection_with_thousands_of_names_is_bounded() {
        let names: String = (0..1000).map(|index| format!("x-{index},")).collect();
        check(&format!("Connection: {names}\nX-3: 1\nX-999: 1\n"), "X-999: 1\n");
    }

    #[test]
    fn framing_is_made_of_what_is_sent() {
        let check = |line: &str, fields: &str, framing: Option<Framing>, expected: &str| {
            let text = written(&format!("{line}\nHost: a\n{fields}"), |passed| {
                passed.framing = framing.unwrap_or(passed.framing);
            });
            let lines: String = text.lines().filter(|line| line.contains("ength") || line.contains("coding")).collect();
            assert_eq!(lines, expected, "{text}");
        };
        check("POST / HTTP/1.1", "content-LENGTH: 0012\n", None, "Content-Length: 12");
        check("POST / HTTP/1.1", "transfer-encoding: CHUNKED\n", None, "Transfer-Encoding: chunked");
        check("POST / HTTP/1.1", "Transfer-Encoding: chunked\n", Some(Framing::Length(7)), "Content-Length: 7");
        check("POST / HTTP/1.1", "Content-Length: 7\n", Some(Framing::Chunked), "Transfer-Encoding: chunked");
        // Methods that usually have none keep their content.
        check("DELETE / HTTP/1.1", "Transfer-Encoding: chunked\n", None, "Transfer-Encoding: chunked");
        check("OPTIONS / HTTP/1.1", "Transfer-Encoding: chunked\n", None, "Transfer-Encoding: chunked");
        check("GET / HTTP/1.1", "Content-Length: 3\n", None, "Content-Length: 3");
        check("POST / HTTP/1.1", "", None, "Content-Length: 0");
        check("DELETE / HTTP/1.1", "", None, "");
        check("DELETE / HTTP/1.1", "Content-Length: 0\n", None, "Content-Length: 0");
    }

    #[test]
    fn expectation_and_proxy_field_are_removed() {
        check("Expect: 100-continue\nproxy: http://evil.example\nX-Proxy: 1\n", "X-Proxy: 1\n");
    }

    #[test]
    fn upgrade_to_a_websocket_is_the_only_one() {
        check(
            "Connection: keep-alive, Upgrade\nUpgrade: WebSocket, h2c\nSec-WebSocket-Key: x\n",
            "Connection: upgrade\nUpgrade: websocket\nSec-WebSocket-Key: x\n",
        );
        check("Connection: Upgrade, HTTP2-Settings\nUpgrade: h2c\nHTTP2-Settings: AAMAAABk\n", "");
        check("HTTP2-Settings: AAMAAABk\n", "");
    }

    #[test]
    fn forwarding_fields_of_strangers_are_replaced() {
        check("X-Forwarded-For: 6.6.6.6\nX-Forwarded-Proto: http\nX-Forwarded-Host: evil.example\n", "");
        check("Forwarded: for=6.6.6.6\nX-Forwarded-Port: 1\nx-forwarded-prefix: /a\nX-Real-IP: 6.6.6.6\n", "");
    }

    #[test]
    fn names_that_an_application_cannot_tell_apart_are_removed() {
        check("X_Forwarded_For: 6.6.6.6\nX-Forwarded_Server: a\nContent_Length: 9\nTransfer_Encoding: x\n", "");
        check("X_FORWARDED_SOMETHING_THAT_IS_LONGER: 1\nx_real_ip: 6.6.6.6\n_: 1\napi_key: 1\n", "_: 1\napi_key: 1\n");
        check_trusted(
            ForwardedField::XForwardedFor,
            "X_Forwarded_For: 6.6.6.6\nX-Forwarded-For: 1.2.3.4\n",
            "Via: 1.1 sanderling\nX-Forwarded-For: 1.2.3.4, 192.0.2.1\nX-Forwarded-Proto: https\nX-Forwarded-Host: a\n",
        );
    }

    #[test]
    fn list_of_a_trusted_proxy_is_extended_and_the_other_kind_removed() {
        check_trusted(
            ForwardedField::XForwardedFor,
            "X-Forwarded-For: 1.2.3.4\nX-Forwarded-Proto: http\nForwarded: for=6.6.6.6\nX-Forwarded-Port: 80\n\
             x-forwarded-for: 10.0.0.1\n",
            "X-Forwarded-Proto: http\nX-Forwarded-Port: 80\nVia: 1.1 sanderling\n\
             X-Forwarded-For: 1.2.3.4, 10.0.0.1, 192.0.2.1\nX-Forwarded-Host: a\n",
        );
        check_trusted(
            ForwardedField::Forwarded,
            "X-Forwarded-For: 6.6.6.6\nX-Forwarded-Host: b\nForwarded: for=1.2.3.4\nForwarded: for=10.0.0.1\n",
            "Via: 1.1 sanderling\nForwarded: for=1.2.3.4, for=10.0.0.1, for=192.0.2.1;host=a;proto=https\n",
        );
        check_trusted(
            ForwardedField::Forwarded,
            "Forwarded:\n",
            "Via: 1.1 sanderling\nForwarded: for=192.0.2.1;host=a;proto=https\n",
        );
    }

    #[test]
    fn address_of_the_peer_has_its_plain_form() {
        let check = |client: &str, forwarded_for: &str, forwarded: &str| {
            let text = written("GET / HTTP/1.1\nHost: a:8080\n", |passed| {
                passed.client = client.parse().expect("an address");
            });
            assert!(text.contains(&format!("\nX-Forwarded-For: {forwarded_for}\n")), "{text}");
            let forwarded = format!("\nForwarded: for={forwarded};host=\"a:8080\";proto=https\n");
            assert!(text.contains(&forwarded), "{text}");
        };
        check("192.0.2.7", "192.0.2.7", "192.0.2.7");
        check("::ffff:192.0.2.7", "192.0.2.7", "192.0.2.7");
        check("2001:db8::1", "2001:db8::1", "\"[2001:db8::1]\"");
    }

    #[test]
    fn question_has_the_fields_of_the_client_but_no_content_condition_or_upgrade() {
        let lines = "POST /x?y HTTP/1.1\nHost: a\nContent-Length: 5\nContent-Type: text/plain\nIf-None-Match: \"a\"\n\
            Range: bytes=0-1\nCookie: a=1\nAuthorization: b\nConnection: upgrade\nUpgrade: websocket\n\
            Sec-WebSocket-Key: c\nExpect: 100-continue\nX-Forwarded-Method: PUT\nX_Forwarded_Uri: /z\n";
        let head = format!("{lines}\n").replace('\n', "\r\n");
        let parsed = parse_request(head.as_bytes(), 0, &RequestLimits::default()).expect("valid");
        let edits = vec![("X-Forwarded-Method".to_string(), Some("POST".to_string()))];
        let request = parsed.request().expect("complete");
        let passed = BackendRequest { target: b"/auth", framing: Framing::None, ..of_stranger(request, &edits) };
        let mut out = vec![];
        passed.write_question_head(&mut out);
        let text = String::from_utf8(out).expect("UTF-8").replace("\r\n", "\n");
        let expected = format!(
            "GET /auth HTTP/1.1\nHost: a\nAuthorization: b\nCookie: a=1\n{OF_STRANGER}X-Forwarded-Method: POST\n\n"
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn host_is_that_of_the_target_or_of_the_configuration() {
        let check = |lines: &str, host: Option<&'static str>, expected: &[&str]| {
            let text = written(lines, |passed| passed.host = host);
            for line in expected {
                assert!(text.lines().any(|own| own == *line), "{line} in {text}");
            }
            assert_eq!(text.lines().filter(|line| line.starts_with("Host:")).count(), 1, "{text}");
        };
        check("GET http://B:81/ HTTP/1.1\nHost: a\n", None, &["Host: B:81", "X-Forwarded-Host: B:81"]);
        check("GET / HTTP/1.1\nHost: a\n", Some("app:3000"), &["Host: app:3000", "X-Forwarded-Host: a"]);
        check("GET / HTTP/1.0\n", None, &["Host: ", "Via: 1.0 sanderling", "Forwarded: for=192.0.2.1;proto=https"]);
    }

    #[test]
    fn divided_cookies_are_one_line() {
        check("Cookie: a=1\nX-A: 1\ncookie: b=2\nCookie: c=3\n", "X-A: 1\nCookie: a=1; b=2; c=3\n");
    }

    #[test]
    fn edits_set_and_remove_fields_except_those_of_the_connection() {
        let check = |fields: &str, edits: &[(&str, Option<&str>)], expected: &str| {
            let edit = |(name, value): &(&str, Option<&str>)| (name.to_string(), value.map(str::to_string));
            let edits: Vec<Edit> = edits.iter().map(edit).collect();
            let lines = format!("GET / HTTP/1.1\nHost: a\n{fields}");
            let head = format!("{lines}\n").replace('\n', "\r\n");
            let parsed = parse_request(head.as_bytes(), 0, &RequestLimits::default()).expect("valid");
            let request = parsed.request().expect("complete");
            let mut out = vec![];
            of_stranger(request, &edits).write_head(&mut out);
            let text = String::from_utf8(out).expect("UTF-8").replace("\r\n", "\n");
            assert_eq!(text, format!("GET /t HTTP/1.1\nHost: a\n{expected}\n"), "{edits:?}");
        };
        let without = [("x-forwarded-host", None), ("Via", None), ("forwarded", None), ("x-forwarded-for", None)];
        let proto = "X-Forwarded-Proto: https\n";
        check("Via: 1.1 b\nForwarded: for=b\n", &without, proto);
        check("X-A: 1\n", &[("x-a", Some("2")), ("Y", Some("3"))], &format!("{OF_STRANGER}x-a: 2\nY: 3\n"));
        check("remote_user: a\nRemote-User: b\nRemote_Users: c\n", &[("Remote-User", None)], &{
            "Remote_Users: c\n".to_string() + OF_STRANGER
        });
        check("Cookie: a\nAuthorization: b\n", &[("cookie", None), ("authorization", None)], OF_STRANGER);
        check("", &[("X-Forwarded-Proto", Some("wss")), ("X-None", None)], &{
            OF_STRANGER.replace(proto, "") + "X-Forwarded-Proto: wss\n"
        });
        let own = ["Host", "connection", "content-length", "Transfer-Encoding", "Upgrade", "TE", "keep-alive"];
        let own = own.map(|name| (name, Some("x")));
        check("", &own, OF_STRANGER);
    }
}
