//! An application of Node: requests, uploads, downloads, events, WebSockets, and its faults.

use super::{Application, FRONTS, Front, Proxy, WEBSOCKET_JS, all_to, route};
use sanderling_testkit::http::{HttpClient, response_to};
use sanderling_testkit::{random_bytes, run_program, seed};

const LARGE_BYTES: usize = 50_000_000;
/// An opening handshake (RFC 6455 §1.2), and the fields that it gets.
pub(super) const UPGRADE: &str = "GET /socket HTTP/1.1\r\nHost: example.com\r\nConnection: keep-alive, Upgrade\r\n\
     Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const ACCEPT: &str = "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";

/// A masked frame with a text (RFC 6455 §5.2).
pub(super) fn frame(opcode: u8, text: &str) -> Vec<u8> {
    let mask = [1, 2, 3, 4];
    let content = text.bytes().enumerate().map(|(index, byte)| byte ^ mask[index % 4]);
    [0x80 | opcode, 0x80 | text.len() as u8].into_iter().chain(mask).chain(content).collect()
}

/// The unmasked frame that answers it.
pub(super) fn answer(opcode: u8, text: &str) -> Vec<u8> {
    [&[0x80 | opcode, text.len() as u8], text.as_bytes()].concat()
}

#[test]
fn request_and_response_are_passed_on_over_every_version_of_http() {
    let application = Application::node();
    let proxy = Proxy::new(&all_to(&application));
    for front in FRONTS {
        let more = ["-H", "Cookie: a=1", "-H", "Cookie: b=2", "-H", "X-Own: x", "-d", "hello"];
        let answer = proxy.ask(front, "/echo?q=1&q=%20", &more);
        assert_eq!(answer.status, 200, "{front:?}");
        assert_eq!(answer.all("set-cookie"), ["a=1", "b=2; HttpOnly"], "{front:?}");
        assert_eq!(answer.all("x-powered-by"), ["Node"]);
        assert_eq!(answer.all("connection").len() + answer.all("keep-alive").len(), 0, "{front:?} {answer:?}");
        for part in
            ["\"method\":\"POST\"", "\"url\":\"/echo?q=1&q=%20\"", "\"text\":\"hello\"", "\"httpVersion\":\"1.1\""]
        {
            assert!(answer.content.contains(part), "{front:?} {part}: {}", answer.content);
        }
        let scheme = if matches!(front, Front::Http1 | Front::Http2) { "http" } else { "https" };
        // curl sends two lines over HTTP/1.1 and HTTP/2; an application gets one (RFC 6265 §5.4).
        for (field, value) in [
            ("cookie", "\"a=1; b=2\""),
            ("host", "\"example.com\""),
            ("x-own", "\"x\""),
            ("x-forwarded-proto", &format!("\"{scheme}\"")),
            ("x-forwarded-for", "\"127.0.0.1\""),
            ("x-forwarded-host", "\"example.com\""),
            ("forwarded", &format!("\"for=127.0.0.1;host=example.com;proto={scheme}\"")),
            ("content-length", "\"5\""),
            ("transfer-encoding", ""),
        ] {
            assert_eq!(answer.seen(field), value, "{front:?} {field}: {}", answer.content);
        }
        assert_eq!(proxy.ask(front, "/missing", &[]).content, "the application has no such path");
        let head = proxy.ask(front, "/download?bytes=10", &["-I"]);
        assert_eq!((head.all("content-length"), head.content.as_str()), (vec!["10"], ""));
        assert_eq!(proxy.ask(front, "/early", &[]).content, "late");
    }
}

#[test]
fn uploads_and_downloads_of_50_mb_arrive_whole() {
    let application = Application::node();
    let proxy = Proxy::new(&all_to(&application));
    let content = random_bytes(&mut fastrand::Rng::with_seed(seed()), LARGE_BYTES);
    let upload = proxy.directory.write("upload", &content);
    let upload = upload.to_str().expect("UTF-8");
    let sum = run_program("sha256sum", "coreutils", &[upload]).text();
    let expected = format!("{LARGE_BYTES} {}", sum.split(' ').next().expect("a hash"));
    let from = format!("@{upload}");
    for front in [Front::Http1, Front::Http2, Front::Https2] {
        assert_eq!(proxy.curl(front, "/upload", &["--data-binary", &from]).text(), expected, "{front:?}");
        let download = proxy.curl(front, &format!("/download?bytes={LARGE_BYTES}"), &[]).output;
        let is_right = download.chunks(16).all(|part| part == &b"0123456789abcdef"[..part.len()]);
        assert!(download.len() == LARGE_BYTES && is_right, "{front:?}: {} bytes", download.len());
    }
    // Without a length, in both directions.
    let chunked = ["-T", upload, "-H", "Content-Length:", "-H", "Transfer-Encoding: chunked", "-X", "POST"];
    assert_eq!(proxy.curl(Front::Http1, "/upload", &chunked).text(), expected);
    let chunked = proxy.curl(Front::Http2, &format!("/download?chunked&bytes={LARGE_BYTES}"), &[]);
    assert_eq!(chunked.output.len(), LARGE_BYTES);
}

#[test]
fn events_arrive_one_by_one() {
    let application = Application::node();
    let proxy = Proxy::new(&all_to(&application));
    for front in FRONTS {
        let mut stream = proxy.stream(front, "/events");
        assert_eq!(stream.line(), "data: first", "{front:?}");
        assert_eq!(proxy.ask(Front::Http1, "/fire", &[]).content, "1");
        assert_eq!(stream.line(), "data: second", "{front:?}");
        assert!(stream.end().1, "{front:?}");
    }
}

#[test]
fn web_sockets_are_tunnels_with_and_without_encryption() {
    let application = Application::node();
    let proxy = Proxy::new(&all_to(&application));
    let mut client = HttpClient::connect(proxy.http());
    // The first message follows the handshake at once.
    client.send([UPGRADE.as_bytes(), &frame(1, "early")].concat());
    let head = client.tcp().read_until(&answer(1, "early"));
    let head = String::from_utf8_lossy(&head);
    assert!(
        head.starts_with("HTTP/1.1 101 ") && head.contains(ACCEPT) && head.contains("pgrade: websocket\r\n"),
        "{head}"
    );
    for number in 0..100 {
        let text = format!("message {number}");
        client.send(frame(1, &text));
        client.tcp().read_until(&answer(1, &text));
    }
    client.send(frame(8, ""));
    assert_eq!(client.tcp().read_to_close(), answer(8, ""));

    let (host, port) = (proxy.https.ip().to_string(), proxy.https.port().to_string());
    let arguments = [WEBSOCKET_JS, &host, &port, "example.com", "/socket", "one", "two"];
    let received = run_program("node", "nodejs", &arguments);
    let expected = [answer(1, "one"), answer(1, "two"), answer(8, "")].concat();
    assert!(received.output.ends_with(&expected), "{received}");
}

#[test]
fn bytes_after_a_declined_upgrade_are_the_next_request() {
    let application = Application::node();
    // Node answers an upgrade that it does not want as any request.
    let keys = route("/", &format!("proxy = \"{}\"\nrequest_headers = {{ X = \"y\" }}", application.url()));
    let proxy = Proxy::new(&keys);
    let mut client = HttpClient::connect(proxy.http());
    let declined = "GET /echo HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
    client.send([declined, "GET /pid HTTP/1.1\r\nHost: example.com\r\n\r\n"].concat());
    let first = client.response();
    assert!(first.status == 200 && !first.text().contains("\"upgrade\""), "{first:?}");
    assert_eq!(client.response().text(), application.child.id().to_string());
}

#[test]
fn faults_of_the_application_never_look_like_whole_responses() {
    let application = Application::node();
    let proxy = Proxy::new(&all_to(&application));
    for front in FRONTS {
        // It is cut, or an error, if nothing was sent to the client when it ended.
        let cut = proxy.curl(front, "/cut", &["-i"]);
        let is_error = cut.text().contains(" 502") && !cut.text().contains("the first part");
        assert!(cut.code() != Some(0) || is_error, "{front:?} {cut}");
        for (path, cause) in [
            ("/vanish", "closed the connection before the end of its response"),
            ("/garbage", "sent an invalid response: "),
        ] {
            let answer = proxy.ask(front, path, &[]);
            let start = format!("The application {cause}");
            assert!(answer.status == 502 && answer.content.starts_with(&start), "{front:?} {path} {answer:?}");
        }
    }
    // A client of HTTP/1.1 that has got an error keeps its connection.
    let mut client = HttpClient::connect(proxy.http());
    client.send("GET /vanish HTTP/1.1\r\nHost: example.com\r\n\r\nGET /pid HTTP/1.1\r\nHost: example.com\r\n\r\n");
    assert_eq!((client.response().status, client.response().status), (502, 200));
    assert_eq!(response_to(proxy.http(), "GET /static.txt HTTP/1.1\r\nHost: example.com\r\n\r\n").status, 404);
}
