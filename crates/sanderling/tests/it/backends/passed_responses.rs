//! Responses that are changed on their way: compressed, announced by hints, or a WebSocket over HTTP/2.

use super::node::answer;
use super::{Application, FRONTS, Front, Proxy, Setup, WEB_SOCKET_HTTP2_JS, all_to, route};
use sanderling_testkit::run_program;

const DOWNLOAD_BYTES: usize = 5_000_000;

#[test]
fn texts_are_compressed_for_clients_that_accept_it_and_events_are_not_delayed() {
    let application = Application::node();
    let keys = route("/", &format!("proxy = \"{}\"\ncompress = true", application.url()));
    let proxy = Proxy::new(&keys);
    for front in FRONTS {
        for (path, is_whole) in [("/text?bytes=5000000", true), ("/text?chunked&bytes=5000000", false)] {
            for coding in ["gzip", "zstd"] {
                let accept = format!("Accept-Encoding: {coding}");
                let head =
                    proxy.curl(front, path, &["-H", &accept, "-D", "-", "-o", "/dev/null"]).text().to_lowercase();
                assert!(head.contains(&format!("content-encoding: {coding}\r\n")), "{front:?} {path} {head}");
                assert!(head.contains("vary: accept-encoding\r\n") && head.contains("etag: w/\"a\""), "{head}");
                assert!(!head.contains("content-length: 5000000"), "{head}");
                let file = proxy.directory.write("coded", &proxy.curl(front, path, &["-H", &accept]).output);
                let file = file.to_str().expect("UTF-8");
                let decoder = if coding == "gzip" { ["gzip", "gzip"] } else { ["zstd", "zstd"] };
                let plain = run_program(decoder[0], decoder[1], &["-dc", file]).output;
                let is_right = plain.chunks(16).all(|part| part == &b"0123456789abcdef"[..part.len()]);
                assert!(plain.len() == DOWNLOAD_BYTES && is_right, "{front:?} {path} {coding} {is_whole}");
            }
            assert_eq!(proxy.curl(front, path, &[]).output.len(), DOWNLOAD_BYTES, "{front:?} {path}");
        }
        let plain = proxy.ask(front, "/download?bytes=5000", &["-H", "Accept-Encoding: gzip"]);
        assert_eq!((plain.all("content-encoding").len(), plain.content.len()), (0, 5_000), "{front:?}");
        let mut stream = proxy.stream_with(front, "/events", &["--compressed"]);
        assert_eq!(stream.line(), "data: first", "{front:?}");
        assert_eq!(proxy.ask(Front::Http1, "/fire", &[]).content, "1");
        assert_eq!(stream.line(), "data: second", "{front:?}");
        assert!(stream.end().1, "{front:?}");
    }
}

#[test]
fn early_hints_reach_clients_of_http2_and_others_by_option() {
    let application = Application::node();
    for (is_on, key) in [(false, ""), (true, "early_hints_http1 = true")] {
        let proxy = Proxy::new(&route("/", &format!("proxy = \"{}\"\n{key}", application.url())));
        for front in FRONTS {
            let text = proxy.curl(front, "/early", &["-i"]).text().to_lowercase();
            let has_hints = text.contains(" 103") && text.contains("link: </a.css>; rel=preload");
            let expected = is_on || matches!(front, Front::Http2 | Front::Https2);
            assert_eq!((has_hints, text.ends_with("late")), (expected, true), "{front:?} {text}");
        }
    }
}

#[test]
fn web_socket_of_http2_is_a_tunnel_to_the_application() {
    let application = Application::node();
    let proxy = Proxy::new(&all_to(&application));
    for url in [format!("http://{}", proxy.http()), format!("https://{}", proxy.https)] {
        let received = run_program("node", "nodejs", &[WEB_SOCKET_HTTP2_JS, &url, "/socket", "one", "two"]);
        let expected = [b"200 undefined\n", &answer(1, "one")[..], &answer(1, "two"), &answer(8, "")].concat();
        assert_eq!(received.output, expected, "{url}: {received}");
    }
    // A server without applications does not offer it.
    let proxy = Proxy::with(Setup::default(), &[]);
    let url = format!("http://{}", proxy.http());
    let received = run_program("node", "nodejs", &[WEB_SOCKET_HTTP2_JS, &url, "/socket"]);
    assert_eq!(received.text(), "no extended CONNECT\n");
}
