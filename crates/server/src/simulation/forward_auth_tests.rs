//! Requests about which an authenticator is asked first, and limits of routes.

use super::backend_tests::{backend, backend_route, route, simulate_routes, site_with};
use super::http2_tests::{frame, opening};
use super::*;
use sanderling_site_rules::{ForwardAuth, Route, RouteAction, RouteRate};

const UNLIMITED: usize = usize::MAX;
const ITERATIONS_MAX: usize = 1_000;
const AUTH_TIMEOUT: Duration = Duration::from_secs(10);
const GET: &str = "GET /api/x?q=1 HTTP/1.1\r\nHost: example.com\r\nCookie: a=1\r\nRemote-User: root\r\n\
    remote_user: root\r\nRemote-Groups: admins\r\n\r\n";
const ADMITTED: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nRemote-User: alice\r\nSecret: x\r\n\r\nok";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const HEADERS: u8 = 1;
const DATA: u8 = 0;
const RST_STREAM: u8 = 3;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const AUTH: usize = 0;
const BACKEND: usize = 1;

/// A route with an authenticator, which is another backend.
fn guarded(name: &str, action: RouteAction) -> Route {
    // It differs from the backend of the route, so that it has its own connections.
    let mut pass = backend_route(&backend(1, 99));
    pass.timeout = AUTH_TIMEOUT;
    let auth = ForwardAuth {
        route: Arc::new(route(name, RouteAction::Pass(Box::new(pass)))),
        target: "/auth?x=1".to_owned(),
        fields: vec!["Remote-User".to_owned(), "Remote-Groups".to_owned()],
    };
    Route { forward_auth: Some(Box::new(auth)), ..route(name, action) }
}

fn pass() -> RouteAction {
    RouteAction::Pass(Box::new(backend_route(&backend(1, 100))))
}

fn simulate_guarded(act: impl FnOnce(&mut Simulation<'_>)) {
    simulate_routes(vec![guarded("/api/*", pass()), guarded("/file", RouteAction::File)], act);
}

impl Simulation<'_> {
    fn requested(&mut self, request: &str) -> usize {
        let client = self.connect(Protocol::Http, request.as_bytes(), UNLIMITED).expect("accepted");
        self.run(ITERATIONS_MAX);
        client
    }

    fn answer(&mut self, connection: usize, response: &[u8]) {
        self.send_by_backend(connection, response);
        self.run(ITERATIONS_MAX);
    }

    fn got(&mut self, client: usize) -> String {
        self.run(ITERATIONS_MAX);
        String::from_utf8(self.take_received(client)).expect("text")
    }

    fn passed(&mut self, connection: usize) -> String {
        String::from_utf8(self.take_of_backend(connection)).expect("text")
    }
}

#[test]
fn admitted_request_has_the_fields_of_the_authenticator_and_none_of_the_client() {
    simulate_guarded(|simulation| {
        let client = simulation.requested(GET);
        assert_eq!(simulation.backend_count(), 1);
        let question = simulation.passed(AUTH);
        assert!(question.starts_with("GET /auth?x=1 HTTP/1.1\r\nHost: example.com\r\n"), "{question}");
        for line in [
            "Cookie: a=1",
            "X-Forwarded-Method: GET",
            "X-Forwarded-Proto: http",
            "X-Forwarded-Host: example.com",
            "X-Forwarded-Uri: /api/x?q=1",
            "X-Forwarded-For: 192.0.2.1",
            "X-Original-Method: GET",
            "X-Original-URL: http://example.com/api/x?q=1",
        ] {
            assert!(question.contains(&format!("\r\n{line}\r\n")), "{line}: {question}");
        }
        simulation.answer(AUTH, ADMITTED);
        let request = simulation.passed(BACKEND);
        assert!(request.starts_with("GET /api/x?q=1 HTTP/1.1\r\n"), "{request}");
        assert!(request.contains("\r\nRemote-User: alice\r\n") && request.contains("\r\nCookie: a=1\r\n"), "{request}");
        assert!(!request.contains("root") && !request.contains("admins") && !request.contains("Secret"), "{request}");
        simulation.answer(BACKEND, OK);
        let response = simulation.got(client);
        assert!(response.starts_with("HTTP/1.1 200 OK\r\n") && response.ends_with("\r\n\r\nok"), "{response}");
        assert!(response.contains("Cache-Control: private, no-cache\r\n"), "{response}");
        // Each request is asked about, on the same connections.
        simulation.send(client, GET.as_bytes());
        simulation.run(ITERATIONS_MAX);
        assert_eq!((simulation.passed(AUTH), simulation.passed(BACKEND)), (question, String::new()));
        simulation.answer(AUTH, ADMITTED);
        assert_eq!((simulation.passed(BACKEND), simulation.backend_count()), (request, 2));
    });
}

#[test]
fn refusal_is_passed_back_and_the_backend_gets_nothing() {
    simulate_guarded(|simulation| {
        let refusals = [
            "302 Found\r\nLocation: https://login.example/?a=b\r\nSet-Cookie: s=1\r\nSet-Cookie: t=2",
            "401 Unauthorized\r\nWWW-Authenticate: Bearer",
            "403 Forbidden\r\nX-A: b",
            "404 Not Found\r\nX-A: b",
        ];
        let client = simulation.requested("");
        for refusal in refusals {
            for method in ["GET", "HEAD"] {
                simulation.send(client, GET.replace("GET", method).as_bytes());
                simulation.run(ITERATIONS_MAX);
                assert!(simulation.passed(AUTH).starts_with("GET /auth"), "{method}");
                simulation.answer(AUTH, format!("HTTP/1.1 {refusal}\r\nContent-Length: 4\r\n\r\nstop").as_bytes());
                let response = simulation.got(client);
                assert!(response.starts_with(&format!("HTTP/1.1 {refusal}\r\n")), "{response}");
                assert!(response.contains("Content-Length: 4\r\n"), "{response}");
                assert_eq!(response.ends_with("\r\n\r\nstop"), method == "GET", "{response}");
            }
        }
        // After a response to HEAD, a new connection: the server has asked with GET.
        assert!(simulation.is_open(client));
        assert_eq!(simulation.count(Counter::BackendErrors), 0);
    });
}

#[test]
fn authenticator_that_does_not_decide_admits_nobody() {
    let check = |answer: &[u8], closes: bool, expected: &str| {
        simulate_guarded(|simulation| {
            let client = simulation.requested(GET);
            simulation.answer(AUTH, answer);
            // A question may be asked again.
            for connection in 0..3 {
                if closes && connection < simulation.backend_count() {
                    simulation.close_by_backend(connection);
                    simulation.run(ITERATIONS_MAX);
                }
            }
            simulation.advance(AUTH_TIMEOUT);
            let response = simulation.got(client);
            assert!(response.starts_with(expected), "{response}");
            let text = response.split("\r\n\r\n").nth(1).expect("content");
            assert!(text.starts_with("The authenticator 192.0.2.1:3000 "), "{text}");
            for connection in 0..simulation.backend_count() {
                assert!(!simulation.passed(connection).contains("/api/x?q=1 HTTP"), "nothing was passed on");
            }
            assert_eq!(simulation.count(Counter::BackendErrors), 1);
        });
    };
    check(b"", true, "HTTP/1.1 502 ");
    check(b"", false, "HTTP/1.1 504 ");
    check(b"HTTP/1.1 200 OK\r\nX-A:", false, "HTTP/1.1 504 ");
    check(b"HTTP/1.1 200 OK\r\nX-A:", true, "HTTP/1.1 502 ");
    check(b"garbage\r\n\r\n", false, "HTTP/1.1 502 ");
    check(b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n", false, "HTTP/1.1 502 ");
    check(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", false, "HTTP/1.1 502 ");
    check(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", false, "HTTP/1.1 502 ");
    check(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nRemote-User: \xff\r\n\r\n", false, "HTTP/1.1 502 ");
    simulate_guarded(|simulation| {
        simulation.refuse_backends(true);
        let client = simulation.requested(GET);
        simulation.advance(AUTH_TIMEOUT);
        let response = simulation.got(client);
        assert!(response.ends_with("\r\n\r\nThe authenticator 192.0.2.1:3000 refuses connections.\n"), "{response}");
    });
}

#[test]
fn content_of_the_authenticator_is_passed_back_only_with_a_refusal_and_needs_little_memory() {
    const LENGTH: usize = 100_000_000;
    let piece = vec![b'x'; 1_000_000];
    simulate_guarded(|simulation| {
        let client = simulation.requested(GET);
        simulation.answer(AUTH, format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n").as_bytes());
        assert!(simulation.passed(BACKEND).starts_with("GET /api/x"));
        simulation.answer(BACKEND, OK);
        assert!(simulation.got(client).ends_with("ok"));
        assert_eq!(simulation.backend_count(), 2);
        let client = simulation.connect(Protocol::Http, GET.as_bytes(), 2_000).expect("accepted");
        simulation.run(ITERATIONS_MAX);
        // What the authenticator still sends on the first connection belongs to no request.
        let auth = 2;
        assert_eq!(simulation.backend_count(), 3);
        simulation.answer(auth, format!("HTTP/1.1 403 No\r\nContent-Length: {LENGTH}\r\n\r\n").as_bytes());
        let head = simulation.got(client);
        assert!(head.ends_with("\r\n\r\n"), "{head}");
        simulation.answer(auth, &piece);
        let left_bytes = simulation.unreceived_of_backend(auth);
        assert!(left_bytes > piece.len() - 400_000, "a slow client stops it: {left_bytes}");
    });
}

#[test]
fn upload_is_neither_sent_before_the_decision_nor_lost() {
    let head = "POST /api/x HTTP/1.1\r\nHost: example.com\r\nContent-Type: text/plain\r\nContent-Length: 10\r\n";
    simulate_guarded(|simulation| {
        let client = simulation.requested(&format!("{head}\r\nhello"));
        let question = simulation.passed(AUTH);
        assert!(question.starts_with("GET /auth") && question.ends_with("\r\n\r\n"), "{question}");
        assert!(!question.contains("Content-") && question.contains("X-Forwarded-Method: POST\r\n"), "{question}");
        simulation.send(client, b"wo");
        simulation.run(ITERATIONS_MAX);
        assert_eq!((simulation.backend_count(), simulation.passed(AUTH)), (1, String::new()));
        simulation.answer(AUTH, ADMITTED);
        simulation.send(client, b"rld");
        simulation.run(ITERATIONS_MAX);
        let request = simulation.passed(BACKEND);
        assert!(request.starts_with("POST /api/x") && request.ends_with("\r\n\r\nhelloworld"), "{request}");
        simulation.answer(BACKEND, OK);
        assert!(simulation.got(client).ends_with("ok"));
        // A client that waits for 100 (Continue) gets it after the decision.
        simulation.send(client, format!("{head}Expect: 100-continue\r\n\r\n").as_bytes());
        assert_eq!(simulation.got(client), "");
        simulation.answer(AUTH, ADMITTED);
        assert_eq!(simulation.got(client), "HTTP/1.1 100 Continue\r\n\r\n");
        simulation.send(client, b"helloworld");
        simulation.run(ITERATIONS_MAX);
        assert!(simulation.passed(BACKEND).ends_with("\r\n\r\nhelloworld"));
        simulation.answer(BACKEND, OK);
        assert!(simulation.got(client).ends_with("ok"));
        // The content of a refused request is discarded, and the connection stays open.
        simulation.send(client, format!("{head}\r\nhello").as_bytes());
        simulation.run(ITERATIONS_MAX);
        simulation.answer(AUTH, b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n");
        assert!(simulation.got(client).starts_with("HTTP/1.1 403 "));
        simulation.send(client, &[b"world", GET.as_bytes()].concat());
        simulation.run(ITERATIONS_MAX);
        simulation.answer(AUTH, ADMITTED);
        assert!(simulation.passed(BACKEND).starts_with("GET /api/x"));
    });
}

/// Literal fields without indexing and Huffman codes (RFC 7541 §6.2.2).
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    fields.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect()
}

#[test]
fn upload_by_http2_is_neither_sent_before_the_decision_nor_lost() {
    const FIELDS: [(&str, &str); 4] =
        [(":method", "POST"), (":scheme", "http"), (":authority", "example.com"), (":path", "/api/x")];
    // The parts that arrive before and after the decision.
    for (before, after) in [(&["hello", "world"][..], &[][..]), (&["hello"], &["world"]), (&[], &["hello", "world"])] {
        simulate_guarded(|simulation| {
            let head = frame(HEADERS, END_HEADERS, 1, &block(&FIELDS));
            let client = simulation.connect(Protocol::Http, &[opening(), head].concat(), UNLIMITED).expect("accepted");
            simulation.run(ITERATIONS_MAX);
            let send = |simulation: &mut Simulation<'_>, parts: &[&str], is_last: bool| {
                for (index, part) in parts.iter().enumerate() {
                    let end = if is_last && index + 1 == parts.len() { END_STREAM } else { 0 };
                    simulation.send(client, &frame(DATA, end, 1, part.as_bytes()));
                    simulation.run(ITERATIONS_MAX);
                }
            };
            send(simulation, before, after.is_empty());
            assert_eq!(simulation.backend_count(), 1);
            let question = simulation.passed(AUTH);
            assert!(question.starts_with("GET /auth") && !question.contains("hello"), "{question}");
            simulation.answer(AUTH, ADMITTED);
            send(simulation, after, true);
            let request = simulation.passed(BACKEND);
            let (head, mut content) = request.split_once("\r\n\r\n").expect("a head");
            assert!(head.starts_with("POST /api/x HTTP/1.1\r\n") && head.contains("chunked"), "{head}");
            let mut whole = String::new();
            while let Some((length, rest)) = content.split_once("\r\n") {
                let length = usize::from_str_radix(length, 16).expect("a length");
                whole.push_str(&rest[..length]);
                content = &rest[length + 2..];
                if length == 0 {
                    break;
                }
            }
            assert_eq!((whole.as_str(), content), ("helloworld", ""), "{before:?} {after:?}");
            simulation.answer(BACKEND, OK);
            assert!(simulation.take_received(client).ends_with(b"ok"));
        });
    }
}

#[test]
fn upgrade_waits_for_the_decision() {
    simulate_guarded(|simulation| {
        let client = simulation.requested(
            "GET /api/ws HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nearly",
        );
        let question = simulation.passed(AUTH);
        assert!(!question.to_lowercase().contains("upgrade:") && !question.contains("early"), "{question}");
        simulation.answer(AUTH, ADMITTED);
        let request = simulation.passed(BACKEND);
        assert!(request.contains("Upgrade: websocket\r\n") && request.contains("Remote-User: alice\r\n"), "{request}");
        simulation.answer(
            BACKEND,
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nhello",
        );
        assert!(simulation.got(client).ends_with("\r\n\r\nhello"));
        assert_eq!(simulation.passed(BACKEND), "early");
    });
}

#[test]
fn file_is_sent_after_the_decision() {
    simulate_guarded(|simulation| {
        let request = "GET /file HTTP/1.1\r\nHost: example.com\r\n\r\n";
        let client = simulation.requested(request);
        assert_eq!(simulation.got(client), "");
        simulation.answer(AUTH, ADMITTED);
        let response = simulation.got(client);
        assert!(response.starts_with("HTTP/1.1 200 OK\r\n") && response.ends_with("a file"), "{response}");
        assert!(response.contains("Cache-Control: private, no-cache\r\n"), "{response}");
        // The decision was about that request only.
        simulation.send(client, request.as_bytes());
        assert_eq!(simulation.got(client), "");
        simulation.answer(AUTH, b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n");
        assert!(simulation.got(client).starts_with("HTTP/1.1 401 "));
        // The authenticator could read another path in these.
        for path in ["/api/../file", "/api/%2e%2e/file"] {
            let client = simulation.requested(&format!("GET {path} HTTP/1.1\r\nHost: example.com\r\n\r\n"));
            let response = simulation.got(client);
            assert!(response.starts_with("HTTP/1.1 400 "), "{path}: {response}");
        }
        assert_eq!(simulation.backend_count(), 1);
    });
}

#[test]
fn decision_is_valid_for_the_route_that_was_asked_about() {
    let mut other = guarded("/api/*", pass());
    if let Some(auth) = &mut other.forward_auth {
        auth.target = "/other".to_owned();
    }
    simulate_guarded(|simulation| {
        let client = simulation.requested(GET);
        assert!(simulation.passed(AUTH).starts_with("GET /auth?x=1 "));
        simulation.update_snapshot(|snapshot| snapshot.sites = site_with(vec![other]).into());
        simulation.answer(AUTH, ADMITTED);
        assert!(simulation.passed(AUTH).starts_with("GET /other "));
        simulation.answer(AUTH, ADMITTED);
        assert!(simulation.passed(BACKEND).starts_with("GET /api/x"));
        simulation.answer(BACKEND, OK);
        assert!(simulation.got(client).ends_with("ok"));
        // Without the route, there is nothing to decide.
        simulation.send(client, GET.replace("/api/x?q=1", "/file").as_bytes());
        simulation.run(ITERATIONS_MAX);
        simulation
            .update_snapshot(|snapshot| snapshot.sites = site_with(vec![guarded("/file", RouteAction::File)]).into());
        simulation.send(client, GET.replace("/api/x?q=1", "/file").as_bytes());
        simulation.run(ITERATIONS_MAX);
        simulation.update_snapshot(|snapshot| snapshot.sites = site_with(Vec::new()).into());
        // The reload before has closed the unused connections of the other authenticator.
        let last = simulation.backend_count() - 1;
        simulation.answer(last, b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(simulation.got(client).matches("a file").count(), 2);
    });
}

#[test]
fn request_that_is_reset_gives_the_question_up() {
    const FIELDS: [(&str, &str); 4] =
        [(":method", "GET"), (":scheme", "http"), (":authority", "example.com"), (":path", "/api/x")];
    simulate_guarded(|simulation| {
        let head = |stream| frame(HEADERS, END_HEADERS | END_STREAM, stream, &block(&FIELDS));
        let client = simulation.connect(Protocol::Http, &[opening(), head(1)].concat(), UNLIMITED).expect("accepted");
        simulation.run(ITERATIONS_MAX);
        assert!(simulation.passed(AUTH).starts_with("GET /auth"));
        simulation.send(client, &frame(RST_STREAM, 0, 1, &8u32.to_be_bytes()));
        simulation.run(ITERATIONS_MAX);
        // The answer belongs to no other request.
        simulation.answer(AUTH, ADMITTED);
        simulation.send(client, &head(3));
        simulation.run(ITERATIONS_MAX);
        assert!(simulation.passed(1).starts_with("GET /auth"));
        assert_eq!((simulation.backend_count(), simulation.passed(AUTH)), (2, String::new()));
    });
}

#[test]
fn route_limits_the_requests_of_a_client() {
    let limited = |name: &str, per_second_max, at_once_max| Route {
        rate: Some(RouteRate { per_second_max, at_once_max }),
        ..route(name, RouteAction::Respond { status: 204, text: String::new() })
    };
    simulate_routes(vec![limited("/login", 1, 2), limited("/other", 1, 1), route("/*", pass())], |simulation| {
        let client = simulation.requested("");
        let check = |simulation: &mut Simulation<'_>, path: &str, expected: &str| {
            simulation.send(client, format!("GET {path} HTTP/1.1\r\nHost: example.com\r\n\r\n").as_bytes());
            let response = simulation.got(client);
            assert!(response.starts_with(&format!("HTTP/1.1 {expected}")), "{path}: {response}");
            assert_eq!(expected == "429", response.contains("\r\nRetry-After: 1\r\n"), "{response}");
        };
        check(simulation, "/login", "204");
        check(simulation, "/login?a", "204");
        check(simulation, "/%6cogin", "429");
        check(simulation, "/other", "204");
        check(simulation, "/other", "429");
        simulation.advance(Duration::from_secs(1));
        check(simulation, "/login", "204");
        check(simulation, "/login", "429");
        assert_eq!(simulation.count(Counter::HttpOverRate), 3);
    });
}
