//! Any request as it is passed on to a backend: the head that is written is one valid request with the framing that was
//! meant, and the parameters for a script are whole records.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sanderling_fastcgi::{Script, ScriptRequest, put_begin, put_stdin, put_stdin_end};
use sanderling_http::{BackendRequest, ForwardedField, Framing, Parsed, Request, RequestLimits, Scheme, parse_request};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
/// Fields that no backend gets from a client that is not a proxy.
const REMOVED: [&[u8]; 9] = [
    b"keep-alive", b"proxy-connection", b"proxy-authorization", b"te", b"trailer", b"expect", b"proxy",
    b"http2-settings", b"x-real-ip",
];

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    // Random bytes are seldom a whole request.
    check(&[b"GET / HTTP/1.1\r\nHost: a\r\n", bytes, b"\r\n\r\n"].concat());
    check(&[b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: ", bytes, b"\r\n\r\n"].concat());
});

fn check(bytes: &[u8]) {
    let limits = RequestLimits::default();
    let Ok(Parsed::Complete { request, .. }) = parse_request(bytes, 0, &limits) else { return };
    let edits = [("X-A".to_owned(), Some("b".to_owned())), ("Cookie".to_owned(), None)];
    for framing in [Framing::None, Framing::Length(7), Framing::Chunked] {
        for trusted in [None, Some(ForwardedField::Forwarded), Some(ForwardedField::XForwardedFor)] {
            for edits in [&[][..], &edits] {
                let passed = BackendRequest {
                    request: &request, target: b"/t?q", host: Some("b"), framing, client: CLIENT,
                    scheme: Scheme::Http, trusted, edits,
                    passes_trailers: false,
                };
                let mut out = Vec::new();
                passed.write_head(&mut out);
                check_head(&out, &request, framing, trusted.is_none());
            }
        }
    }
    check_script(&request, &edits);
}

fn check_head(out: &[u8], request: &Request<'_>, framing: Framing, is_stranger: bool) {
    let limits = RequestLimits { head_bytes_max: 64 * 1024, field_count_max: 200, ..RequestLimits::default() };
    let Ok(Parsed::Complete { request: read, head_bytes }) = parse_request(out, 0, &limits) else {
        panic!("refused: {}", out.escape_ascii());
    };
    assert_eq!(head_bytes, out.len(), "one request");
    assert_eq!((read.framing, read.method_name()), (framing, request.method_name()));
    if is_stranger {
        assert!(REMOVED.iter().all(|name| read.field(name).is_none()), "{}", out.escape_ascii());
        assert_eq!(read.field(b"x-forwarded-for"), Some(&b"192.0.2.1"[..]));
        assert_eq!(read.fields.find_all(b"forwarded").count(), 1);
    }
    match read.field(b"connection") {
        None => assert_eq!(read.field(b"upgrade"), None),
        Some(options) => {
            assert_eq!((options, read.field(b"upgrade")), (&b"upgrade"[..], request.upgrade()));
        }
    }
}

fn check_script(request: &Request<'_>, edits: &[(String, Option<String>)]) {
    let passed = ScriptRequest {
        request,
        script: Script { root: b"/srv", file: b"/srv/a.php", name: b"/a.php", path_info: b"/b" },
        framing: request.framing,
        host: None,
        client: SocketAddr::new(CLIENT, 1),
        local: SocketAddr::new(CLIENT, 80),
        scheme: Scheme::Https,
        protocol: "HTTP/1.1",
        server_name: "a",
        trusted: None,
        edits,
    };
    let mut out = Vec::new();
    put_begin(true, &mut out);
    passed.put_params(&mut out);
    put_stdin(b"content", &mut out);
    put_stdin_end(&mut out);
    let (mut rest, mut kinds, mut names) = (&out[..], Vec::new(), Vec::new());
    while let Some((header, after)) = rest.split_first_chunk::<8>() {
        let (content, padding) = after.split_at(usize::from(u16::from_be_bytes([header[4], header[5]])));
        rest = &padding[usize::from(header[6])..];
        kinds.push(header[1]);
        if header[1] == 4 {
            take_names(content, &mut names);
        }
    }
    assert!(rest.is_empty());
    kinds.dedup();
    assert_eq!(kinds, [1, 4, 5]);
    names.sort();
    let name_count = names.len();
    names.dedup();
    assert!(names.len() == name_count, "each name once");
    assert!(!names.contains(&&b"HTTP_PROXY"[..]) && names.contains(&&b"SCRIPT_FILENAME"[..]));
}

/// The names of the parameters in a record, which are whole there.
fn take_names<'p>(mut pairs: &'p [u8], names: &mut Vec<&'p [u8]>) {
    while !pairs.is_empty() {
        let [name_bytes, value_bytes] = [(); 2].map(|()| {
            let (length, after) = match pairs {
                [short @ ..0x80, after @ ..] => (usize::from(*short), after),
                [a, b, c, d, after @ ..] => (u32::from_be_bytes([a & 0x7f, *b, *c, *d]) as usize, after),
                _ => panic!("half a length"),
            };
            pairs = after;
            length
        });
        names.push(&pairs[..name_bytes]);
        pairs = &pairs[name_bytes + value_bytes..];
    }
}
