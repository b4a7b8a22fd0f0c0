//! An application with the HTTP server of Python, which closes its connections.

use super::{Answer, Application, FRONTS, Front, Proxy, all_to};
use sanderling_testkit::http::HttpClient;
use sanderling_testkit::{run_program, tcp_exchange};

#[test]
fn content_until_the_close_and_in_chunks_arrives_whole() {
    let application = Application::python();
    let proxy = Proxy::new(&all_to(&application));
    for front in FRONTS {
        let answer = proxy.ask(front, "/until-close", &[]);
        assert_eq!((answer.status, answer.content.len()), (200, 100_000), "{front:?}");
        let answer = proxy.ask(front, "/chunked", &[]);
        assert!(answer.content.len() == 70_011 && answer.content.bytes().all(|byte| byte == b'x'), "{front:?}");
        assert!(answer.all("trailer").is_empty(), "{answer:?}");
        // It is cut, or an error, if nothing was sent to the client when it ended.
        let cut = proxy.curl(front, "/chunked-cut", &["-i"]);
        let is_error = cut.text().contains(" 502") && !cut.text().contains("hello");
        assert!(cut.code() != Some(0) || is_error, "{front:?} {cut}");
        assert_eq!(proxy.ask(front, "/missing", &[]).status, 404);
    }
    // A client of HTTP/1.0 gets it until the close.
    let received = tcp_exchange(proxy.http(), b"GET /chunked HTTP/1.0\r\nHost: example.com\r\n\r\n");
    let old = Answer::of(&received);
    assert_eq!((old.content.len(), old.all("transfer-encoding").len()), (70_011, 0), "{:?}", old.fields);
}

#[test]
fn events_without_a_length_arrive_one_by_one() {
    for front in [Front::Http1, Front::Https2] {
        let application = Application::python();
        let proxy = Proxy::new(&all_to(&application));
        let mut stream = proxy.stream(front, "/events");
        assert_eq!(stream.line(), "data: first", "{front:?}");
        assert_eq!(proxy.ask(Front::Http1, "/fire", &[]).content, "fired");
        assert_eq!(stream.line(), "data: second");
        assert!(stream.end().1);
    }
}

#[test]
fn requests_of_a_connection_are_answered_although_the_application_closes_after_each() {
    let application = Application::python();
    let proxy = Proxy::new(&all_to(&application));
    let sum = run_program("sh", "dash", &["-c", "printf hello | sha256sum"]).text();
    let expected = sum.split(' ').next().expect("a hash");
    let mut client = HttpClient::connect(proxy.http());
    for _ in 0..50 {
        client.send("POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 5\r\n\r\nhello");
        let response = client.response();
        assert_eq!((response.status, response.text().as_str()), (200, expected));
    }
}
