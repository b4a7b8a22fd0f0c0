//! The requests.

const HOST: &str = "Host: example.com\r\n";

const METHODS: &[&str] = &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "get"];

const TARGETS: &[&str] = &[
    "/a?b=c",
    "/a%20b",
    "/%C3%A9",
    "/a//b",
    "//a",
    "/a/../b",
    "/a/./b",
    "/a/%2e%2e/b",
    "/a/..%2fb",
    "/a%2Fb",
    "/a?b#c",
    "/%",
    "/?",
    "/a?/../b",
    "/a;b",
    "/~a",
    "/a|b",
    "/a\"b",
    "/a?%00",
    "/a%00",
    "http://example.com/a",
    "HTTP://EXAMPLE.com/a",
    "/a+b",
    "/A",
    "/a\\b",
    "*",
    "a",
    "/a?b=\"",
    "/é",
];

/// Fields of a request without content.
const FIELDS: &[&str] = &[
    "X-Own: 1\r\nX-Own: 2",
    "x-own:1",
    "X-Own:  1 \t",
    "X-Own:",
    "X_Own: 1",
    "X.Own: 1",
    "Cookie: a=1",
    "Cookie: a=1\r\nCookie: b=2",
    "Connection: close",
    "Connection: keep-alive",
    "Connection: X-Own\r\nX-Own: 1",
    "Keep-Alive: timeout=5",
    "Proxy-Connection: keep-alive",
    "Proxy: x",
    "TE: trailers",
    "TE: gzip",
    "Upgrade: h2c\r\nConnection: Upgrade",
    "Upgrade: websocket\r\nConnection: Upgrade",
    "X-Forwarded-For: 192.0.2.9",
    "X-Real-IP: 192.0.2.9",
    "Forwarded: for=192.0.2.9",
    "X-Forwarded-Proto: https",
    "Accept-Encoding: gzip",
    "Range: bytes=0-1",
    "If-None-Match: \"a\"",
    "User-Agent: a b",
    "Authorization: Basic YTpi",
    "X Own: 1",
    "X-Own : 1",
    "X-Own: a\u{1}b",
    "X-Own: é",
    "Content-Length: 0",
    "Trailer: X",
    "Proxy-Authorization: Basic YTpi",
    "HTTP2-Settings: x",
    "Via: 1.1 other",
    "X-Own: a\r\n b",
    ": x",
];

/// Fields of a request, and its content.
const CONTENTS: &[(&str, &str)] = &[
    ("Content-Length: 5", "hello"),
    ("Content-Length: 0", ""),
    ("Transfer-Encoding: chunked", "5\r\nhello\r\n0\r\n\r\n"),
    ("Transfer-Encoding: chunked", "5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n"),
    ("Transfer-Encoding: Chunked", "0\r\n\r\n"),
    ("Content-Length: 5\r\nTransfer-Encoding: chunked", "5\r\nhello\r\n0\r\n\r\n"),
    ("Content-Length: 5\r\nContent-Length: 5", "hello"),
    ("Content-Length: 5, 5", "hello"),
    ("Content-Length: +5", "hello"),
    ("Content-Length: 05", "hello"),
    ("Transfer-Encoding: gzip, chunked", "0\r\n\r\n"),
    ("Transfer-Encoding: identity", ""),
    ("Content-Length: 5\r\nExpect: 100-continue", "hello"),
    ("Content-Length: 5\r\nExpect: x", "hello"),
    ("Content-Length: 5\r\nContent-Type: a/b", "hello"),
    ("Transfer-Encoding: chunked", "5\nhello\r\n0\r\n\r\n"),
    ("Transfer-Encoding: chunked", "-5\r\nhello\r\n0\r\n\r\n"),
];

/// Whole heads.
const HEADS: &[&str] = &[
    "GET / HTTP/1.0\r\nHost: example.com",
    "GET / HTTP/1.1\r\nHost: EXAMPLE.COM",
    "GET / HTTP/1.1\r\nHost: example.com:80",
    "GET / HTTP/1.1\r\nHost: example.com.",
    "GET / HTTP/1.1\r\nHost: other.example",
    "GET / HTTP/1.1",
    "GET / HTTP/1.0",
    "GET / HTTP/1.1\r\nHost: example.com\r\nHost: example.com",
    "GET / HTTP/1.1\r\nHost: a@example.com",
    "GET  / HTTP/1.1\r\nHost: example.com",
    "GET / HTTP/1.2\r\nHost: example.com",
    "GET http://other.example/ HTTP/1.1\r\nHost: example.com",
    "\r\nGET / HTTP/1.1\r\nHost: example.com",
];

/// All requests.
pub(super) fn all() -> Vec<String> {
    let methods = METHODS.iter().map(|method| format!("{method} / HTTP/1.1\r\n{HOST}\r\n"));
    let targets = TARGETS.iter().map(|target| format!("GET {target} HTTP/1.1\r\n{HOST}\r\n"));
    let fields = FIELDS.iter().map(|fields| format!("GET / HTTP/1.1\r\n{HOST}{fields}\r\n\r\n"));
    let contents = CONTENTS.iter().flat_map(|(fields, content)| {
        ["POST", "DELETE"].map(|method| format!("{method} / HTTP/1.1\r\n{HOST}{fields}\r\n\r\n{content}"))
    });
    let heads = HEADS.iter().map(|head| format!("{head}\r\n\r\n"));
    methods.chain(targets).chain(fields).chain(contents).chain(heads).collect()
}
