//! Requests and responses with random faults, most of them in their framing.

use fastrand::Rng;

/// Faults of one message.
pub(super) const FAULTS_MAX: usize = 3;

/// Lines that are inserted before others.
const REQUEST_LINES: &[&str] = &[
    "Content-Length: 0",
    "Content-Length: 5",
    "Content-Length: 30",
    "Content-Length: +5",
    "Content-Length: 5, 5",
    "Content-Length: 0x5",
    "Content-Length : 5",
    "Content-Length:",
    "Content-Length: 18446744073709551617",
    "Content-Length: -1",
    "Content-Length: 5 ",
    "Content-Length:\t5",
    "Content_Length: 5",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: Chunked",
    "Transfer-Encoding: chunked, gzip",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding: identity",
    "Transfer-Encoding: xchunked",
    "Transfer-Encoding : chunked",
    "Transfer-Encoding:\tchunked",
    "Transfer-Encoding: \"chunked\"",
    "Transfer-Encoding: chunked;q=1",
    "Transfer-Encoding:",
    "Transfer_Encoding: chunked",
    " Transfer-Encoding: chunked",
    "X: y\r\n Transfer-Encoding: chunked",
    "Transfer-Encoding:\r\n chunked",
    "Transfer-Encoding: chunked\r",
    "X: y\nTransfer-Encoding: chunked",
    "X: y\rTransfer-Encoding: chunked",
    "Connection: close",
    "Connection: Content-Length",
    "Connection: Transfer-Encoding",
    "Connection: Host, X-Forwarded-For",
    "Connection: keep-alive, close",
    "Connection: Upgrade\r\nUpgrade: websocket",
    "Upgrade: h2c",
    "Host: example.com",
    "Host: evil.example",
    "Host:",
    "Host : example.com",
    "Expect: 100-continue",
    "Expect: 200-ok",
    "TE: trailers",
    "Trailer: Content-Length",
    "X-Forwarded-For: 1.2.3.4",
    "X_Forwarded_For: 1.2.3.4",
    "Proxy: http://evil.example",
    "Keep-Alive: timeout=1",
    "X: \0",
    "X: a\u{7f}",
    "",
    "\u{b}",
    ": x",
    "X",
    "X:y",
    "GET /smuggled HTTP/1.1",
];

const RESPONSE_LINES: &[&str] = &[
    "Content-Length: 0",
    "Content-Length: 5",
    "Content-Length: 300",
    "Content-Length: +5",
    "Content-Length: 5, 5",
    "Content-Length : 5",
    "Content-Length:",
    "Content-Length: 18446744073709551617",
    "Content-Length: -1",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: chunked, gzip",
    "Transfer-Encoding: gzip",
    "Transfer-Encoding:",
    "Transfer-Encoding : chunked",
    "Transfer-Encoding:\tchunked",
    " Transfer-Encoding: chunked",
    "X: y\r\n Content-Length: 3",
    "X: y\nContent-Length: 3",
    "X: y\rContent-Length: 3",
    "Connection: close",
    "Connection: keep-alive",
    "Connection: Content-Length",
    "Connection: Date, Via",
    "Keep-Alive: timeout=0",
    "Keep-Alive: timeout=99999999999",
    "Connection: Upgrade\r\nUpgrade: websocket",
    "Upgrade: websocket",
    "Trailer: X",
    "X: \0",
    "",
    ": x",
    "X",
    "HTTP/1.1 200 OK",
    "HTTP/1.1 100 Continue\r\n",
    "X-Accel-Redirect: /file",
];

/// What replaces another part.
const PARTS: &[(&str, &str)] = &[
    ("\r\n", "\n"),
    ("\r\n", "\r"),
    ("\r\n", "\r\r\n"),
    ("\r\n", "\r\n\r\n"),
    ("\r\n", ""),
    (": ", ":"),
    (": ", " : "),
    (": ", ":\t"),
    (" ", "  "),
    (" ", "\t"),
    ("HTTP/1.1", "HTTP/1.0"),
    ("HTTP/1.1", "HTTP/2.0"),
    ("HTTP/1.1", "http/1.1"),
    ("HTTP/1.1", "HTTP/1.1 "),
    ("chunked", "Chunked"),
    ("chunked", "chunke"),
    ("chunked", " chunked"),
    ("5\r\n", "05\r\n"),
    ("5\r\n", "+5\r\n"),
    ("5\r\n", "0x5\r\n"),
    ("5\r\n", "5;a=\"b\"\r\n"),
    ("5\r\n", "5;a\nb\r\n"),
    ("5\r\n", "5 \r\n"),
    ("5\r\n", "ffffffffffffffff\r\n"),
    ("5\r\n", "10000000000000005\r\n"),
    ("5\r\n", "-5\r\n"),
    ("5\r\n", "6\r\n"),
    ("0\r\n\r\n", "0\r\n"),
    ("0\r\n\r\n", "0\r\nX: y\r\n\r\n"),
    ("0\r\n\r\n", "0\r\nContent-Length: 5\r\n\r\n"),
    ("0\r\n\r\n", "00000\r\n\r\n"),
    ("0\r\n\r\n", ""),
    ("Length: ", "Length: 0"),
    ("Length: ", "Length: 1"),
    ("Length", "length"),
    ("200", "204"),
    ("200", "304"),
    ("200", "101"),
    ("200", "100"),
    ("200", "103"),
    ("200", "205"),
    ("200", "099"),
    ("200", "600"),
    ("200", "2 0"),
    ("200 OK", "200"),
    ("OK", "O\0K"),
    ("/m/", "/%2e%2e/"),
    ("/m/", "//"),
    ("/m/", "http://example.com/m/"),
    ("/m/", "http://evil.example/m/"),
    ("/m/", "/m/../"),
    ("/m/", "/m/%00"),
    ("/m/", "*"),
    ("/m/", "m/"),
    ("/m/", "/m#"),
    ("GET", "HEAD"),
    ("GET", "POST"),
    ("POST", "GET"),
    ("POST", "CONNECT"),
    ("GET", "TRACE"),
    ("GET", "get"),
    ("GET", "G T"),
    ("Host", "host"),
    ("Host", "Hos"),
    ("example.com", "evil.example"),
];

/// Puts one to three faults into a request.
pub(super) fn damage_request(random: &mut Rng, message: &mut Vec<u8>) {
    damage(random, message, REQUEST_LINES);
}

/// The same for a response.
pub(super) fn damage_response(random: &mut Rng, message: &mut Vec<u8>) {
    damage(random, message, RESPONSE_LINES);
}

fn damage(random: &mut Rng, message: &mut Vec<u8>, lines: &[&str]) {
    for _ in 0..random.usize(1..=FAULTS_MAX) {
        match random.u8(..10) {
            0..4 => {
                let ends: Vec<usize> = (2..=message.len()).filter(|&end| message[..end].ends_with(b"\r\n")).collect();
                let Some(&at) = ends.get(random.usize(..ends.len().clamp(1, 5))) else { continue };
                let line = format!("{}\r\n", random.choice(lines).expect("there are some"));
                // Of a byte above 0x7f only that byte is sent.
                let bytes: Vec<u8> = line.chars().map(|char| char as u8).collect();
                message.splice(at..at, bytes);
            }
            4..8 => {
                let (from, to) = random.choice(PARTS).expect("there are some");
                let places: Vec<usize> =
                    (0..message.len()).filter(|&at| message[at..].starts_with(from.as_bytes())).collect();
                if let Some(&at) = random.choice(&places) {
                    message.splice(at..at + from.len(), to.bytes());
                }
            }
            8 if !message.is_empty() => {
                let at = random.usize(..message.len());
                match random.u8(..3) {
                    0 => message[at] = random.u8(..),
                    1 => message.insert(at, random.u8(..)),
                    _ => drop(message.remove(at)),
                }
            }
            _ => message.truncate(random.usize(..=message.len())),
        }
    }
}
