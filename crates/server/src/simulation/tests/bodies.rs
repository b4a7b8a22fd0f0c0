//! Requests with a body, which is skipped.

use super::*;

#[test]
fn an_expectation_of_an_http_1_0_client_is_ignored() {
    let head =
        |version| format!("GET /file HTTP/{version}\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    simulate_default(|simulation| {
        let client = simulation.http(head("1.1"));
        assert!(simulation.received(client).starts_with("HTTP/1.1 200 "));
        // It sends the body, which is discarded.
        let client = simulation.http(head("1.0").replacen("\r\n", "\r\nConnection: keep-alive\r\n", 1));
        assert!(simulation.received(client).starts_with("HTTP/1.1 200 "));
        assert_eq!(simulation.ask(client, "hello"), "");
        assert!(simulation.ask(client, GET).starts_with("HTTP/1.1 200 "));
    });
}

#[test]
fn a_request_is_answered_before_its_body_if_the_response_does_not_depend_on_it() {
    let post = "POST /file HTTP/1.1\r\nHost: a\r\n";
    let length = format!("{post}Content-Length: 9\r\n\r\n");
    let chunked = format!("{post}Transfer-Encoding: chunked\r\n\r\n");
    simulate_default(|simulation| {
        for (start, rest) in [
            (length.clone(), "123456789"),
            (format!("{length}1234"), "56789"),
            (format!("{chunked}5\r\n12"), "345\r\n0\r\n\r\n"),
            (length.replace("POST", "GET"), "123456789"),
            (length.replace("POST", "CONNECT").replace("/file", "a:1").replacen("\r\n", "\r\nX-Y: z\r\n", 1), ""),
        ] {
            let is_connect = start.starts_with("CONNECT");
            let client = simulation.http(&start);
            let answer = simulation.received(client);
            let status = if start.starts_with("GET") { "200" } else { "405" };
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{start}: {answer}");
            assert_eq!(answer.contains(CLOSE), is_connect, "the start of what follows is known: {answer}");
            if is_connect {
                continue;
            }
            // What is sent after the body is the next request, and there is no second response.
            for byte in rest.bytes() {
                assert_eq!(simulation.ask(client, [byte]), "", "{start}");
            }
            assert!(simulation.ask(client, GET).starts_with(OK), "{start}");
            // Afterwards the connection is idle.
            simulation.advance(Duration::from_secs(59));
            assert!(simulation.is_open(client));
            let answers = simulation.ask(client, format!("{start}{rest}{GET}"));
            assert_eq!(count(&answers, "HTTP/1.1 "), 2, "{answers}");
        }
        // An error in the rest ends the connection, without a second response.
        let client = simulation.http(format!("{chunked}5\r\n12"));
        assert!(simulation.received(client).starts_with("HTTP/1.1 405 "));
        assert_eq!(simulation.ask(client, "345xx"), "");
        assert!(!simulation.is_open(client));
        // The rest of a body after the last response is discarded.
        let client = simulation.http(length.replacen("\r\n", "\r\nConnection: close\r\n", 1));
        assert!(simulation.received(client).contains(CLOSE));
        assert_eq!(simulation.ending(client), Ending::ShutDown);
        assert_eq!(simulation.ask(client, format!("123456789{GET}")), "");
        simulation.check_ends(client);
    });
}
