//! Requests that are passed on to a backend, and its responses.

mod http2;
mod lost_connections;
mod names;
mod servers;

use super::*;
use crate::options::HttpOptions;
use crate::site::sites::{BuiltinFile, DefaultSite, Root, Site, SiteOptions, SiteRules, Sites};
use sanderling_dns::{HashSeed, ZoneMap};
use sanderling_site_rules::{
    Backend, BackendAddress, BackendProtocol, BackendRoute, BackendServer, Distribution, Pattern, Route, RouteAction,
    Routes,
};

const UNLIMITED: usize = usize::MAX;
const ITERATIONS_MAX: usize = 1_000;
const FILES: &[BuiltinFile] = &[BuiltinFile { path: "file", bytes: b"a file" }];
const TIMEOUT: Duration = Duration::from_secs(60);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);
/// Bytes that wait for a slow side, at most.
const WAITING_BYTES_MAX: usize = 200 * 1024;

pub(super) fn backend(server_count: u16, connections_max: usize) -> Arc<Backend> {
    let server =
        |index| BackendServer { address: BackendAddress::Tcp(SocketAddr::new(CLIENT, 3_000 + index)), weight: 1 };
    Arc::new(Backend {
        servers: (0..server_count).map(server).collect(),
        protocol: BackendProtocol::Http1,
        tls: None,
        connect_timeout: CONNECT_TIMEOUT,
        idle_timeout: IDLE_TIMEOUT,
        connections_max,
        distribution: Distribution::default(),
    })
}

pub(super) fn backend_route(backend: &Arc<Backend>) -> BackendRoute {
    BackendRoute { body_bytes_max: 1024 * 1024, ..BackendRoute::new(Arc::clone(backend), TIMEOUT) }
}

pub(super) fn route(name: &str, action: RouteAction) -> Route {
    Route::new(name, Pattern::parse(name, &[]).expect("a pattern"), action)
}

/// A site with a file `/file`, and these routes.
pub(super) fn site_with(routes: Vec<Route>) -> Sites {
    let rules = SiteRules { routes: Arc::new(Routes::new(routes)), ..SiteRules::default() };
    let options = SiteOptions { rules: Some(Box::new(rules)), ..SiteOptions::default() };
    let site = Site { id: 0, hosts: vec!["example.com".to_owned()], root: Root::Builtin(FILES), options };
    Sites::new(vec![site], DefaultSite::Addresses(0))
}

/// A server with this site.
pub(super) fn simulate_routes(routes: Vec<Route>, act: impl FnOnce(&mut Simulation<'_>)) {
    let snapshot = Snapshot::new(site_with(routes), ZoneMap::new(HashSeed(1), []));
    let http2 = sanderling_http2::Limits { accepts_websockets: true, ..sanderling_http2::Limits::default() };
    let http = HttpOptions { accepts_http2: true, http2, ..HttpOptions::default() };
    simulate(snapshot, Options { http, ..Options::default() }, |simulation| {
        simulation.use_memory_backends();
        act(simulation);
    });
}

/// The same with one route for all paths, to one server.
fn simulate_backend(act: impl FnOnce(&mut Simulation<'_>)) {
    let action = RouteAction::Pass(Box::new(backend_route(&backend(1, 100))));
    simulate_routes(vec![route("/*", action)], act);
}

impl Simulation<'_> {
    fn request(&mut self, request: &str) -> usize {
        let client = self.connect(Protocol::Http, request.as_bytes(), UNLIMITED).expect("accepted");
        self.run(ITERATIONS_MAX);
        client
    }

    fn response(&mut self, client: usize) -> String {
        self.run(ITERATIONS_MAX);
        String::from_utf8(self.take_received(client)).expect("text")
    }

    fn backend_text(&mut self, connection: usize) -> String {
        String::from_utf8(self.take_of_backend(connection)).expect("text")
    }
}

const GET: &str = "GET /api/x?q=1 HTTP/1.1\r\nHost: example.com\r\n\r\n";
const POST: &str = "POST /api/x HTTP/1.1\r\nHost: example.com\r\nContent-Length: 5\r\n\r\nhello";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn status(response: &str) -> &str {
    response.split(' ').nth(1).unwrap_or("none")
}

#[test]
fn request_is_passed_on_and_its_response_back_and_the_connection_is_used_again() {
    simulate_backend(|simulation| {
        let client = simulation.request(GET);
        assert_eq!(simulation.backend_count(), 1);
        let request = simulation.backend_text(0);
        assert!(request.starts_with("GET /api/x?q=1 HTTP/1.1\r\nHost: example.com\r\n"), "{request}");
        assert!(request.contains("X-Forwarded-For: 192.0.2.1\r\n"), "{request}");
        assert_eq!(simulation.response(client), "");
        simulation.send_by_backend(0, OK);
        let response = simulation.response(client);
        assert!(response.starts_with("HTTP/1.1 200 OK\r\n") && response.ends_with("\r\n\r\nok"), "{response}");
        simulation.send(client, GET.as_bytes());
        simulation.run(ITERATIONS_MAX);
        assert_eq!((simulation.backend_count(), simulation.backend_text(0)), (1, request));
        simulation.send_by_backend(0, OK);
        assert_eq!(status(&simulation.response(client)), "200");
        assert!(simulation.is_open(client));
    });
}

#[test]
fn file_route_and_fixed_response_answer_their_paths() {
    let pass =
        |strip_prefix| RouteAction::Pass(Box::new(BackendRoute { strip_prefix, ..backend_route(&backend(1, 100)) }));
    let routes = vec![
        route("/health", RouteAction::Respond { status: 204, text: String::new() }),
        route("/text", RouteAction::Respond { status: 200, text: "hello\n".to_owned() }),
        route("/stripped/*", pass(true)),
        Route { files_first: true, ..route("/*", pass(false)) },
    ];
    simulate_routes(routes, |simulation| {
        let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: example.com\r\n\r\n");
        let client = simulation.request(&get("/health"));
        let response = simulation.response(client);
        assert!(status(&response) == "204" && !response.contains("Content-Length"), "{response}");
        let client = simulation.request(&get("/text"));
        assert!(simulation.response(client).ends_with("Content-Length: 6\r\n\r\nhello\n"));
        let client = simulation.request(&get("/file"));
        assert!(simulation.response(client).ends_with("a file"));
        simulation.request(&get("/other"));
        assert!(simulation.backend_text(0).starts_with("GET /other "));
        simulation.request(&get("/stripped/a%20b/?q"));
        assert!(simulation.backend_text(1).starts_with("GET /a%20b/?q "));
        simulation.request(&get("/stripped"));
        assert!(simulation.backend_text(2).starts_with("GET / "));
        simulation.request(&get("/%73tripped/a%2fb"));
        assert!(simulation.backend_text(3).starts_with("GET /a/b "));
    });
}

#[test]
fn path_with_dot_segments_is_refused() {
    simulate_backend(|simulation| {
        for path in ["/a/../b", "/a/%2e%2e/b", "/a/..%2fb", "/./a", "/a/%2E", "/a%00b", "/a\\b", "/.."] {
            let client = simulation.request(&format!("GET {path} HTTP/1.1\r\nHost: example.com\r\n\r\n"));
            assert_eq!(status(&simulation.response(client)), "400", "{path}");
        }
        assert_eq!(simulation.backend_count(), 0);
        simulation.request("GET /a//b%2Fc/...? HTTP/1.1\r\nHost: example.com\r\n\r\n");
        assert!(simulation.backend_text(0).starts_with("GET /a//b%2Fc/...? HTTP/1.1\r\n"));
    });
}

#[test]
fn content_of_a_request_is_passed_on_as_it_arrives() {
    simulate_backend(|simulation| {
        let head = "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 300000\r\n\r\n";
        let client = simulation.request(head);
        let received = simulation.backend_text(0);
        assert!(received.contains("Content-Length: 300000\r\n"), "{received}");
        simulation.send(client, &[b'x'; 100_000]);
        simulation.run(ITERATIONS_MAX);
        assert_eq!(simulation.take_of_backend(0).len(), 100_000);
        // A backend that takes nothing stops the client.
        simulation.set_backend_window(0, 0);
        simulation.send(client, &[b'x'; 200_000]);
        simulation.run(ITERATIONS_MAX);
        assert!(simulation.unreceived_bytes(client) > 0 || simulation.held_bytes() <= WAITING_BYTES_MAX);
        assert!(simulation.held_bytes() <= WAITING_BYTES_MAX, "{}", simulation.held_bytes());
        simulation.set_backend_window(0, UNLIMITED);
        simulation.run(ITERATIONS_MAX);
        assert_eq!(simulation.take_of_backend(0).len(), 200_000);
        simulation.send_by_backend(0, OK);
        assert_eq!(status(&simulation.response(client)), "200");
        assert!(simulation.is_open(client));
    });
}

#[test]
fn chunked_content_is_framed_anew() {
    simulate_backend(|simulation| {
        let request = "POST / HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\n\r\n3;ext=1\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: x\r\n\r\n";
        let client = simulation.request(request);
        let received = simulation.backend_text(0);
        let (head, content) = received.split_once("\r\n\r\n").expect("a head");
        assert!(head.contains("Transfer-Encoding: chunked") && !head.contains("Content-Length"), "{head}");
        assert_eq!(content, "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
        simulation.send_by_backend(0, OK);
        assert_eq!(status(&simulation.response(client)), "200");
    });
}

#[test]
fn long_upload_has_no_deadline_but_the_least_rate() {
    simulate_backend(|simulation| {
        let client = simulation.request("POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 1000000\r\n\r\n");
        for _ in 0..20 {
            simulation.send(client, &[b'x'; 20_000]);
            simulation.advance(Duration::from_secs(10));
            simulation.run(ITERATIONS_MAX);
        }
        assert!(simulation.is_open(client));
        assert_eq!(simulation.response(client), "");
        for _ in 0..8 {
            simulation.advance(Duration::from_secs(10));
        }
        assert_eq!(status(&simulation.response(client)), "408");
        assert_eq!(simulation.count(Counter::HttpSlowRequests), 1);
    });
}

#[test]
fn content_beyond_the_limit_of_the_route_is_refused() {
    simulate_backend(|simulation| {
        let client = simulation.request("POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 1048577\r\n\r\n");
        assert_eq!(status(&simulation.response(client)), "413");
        assert_eq!(simulation.backend_count(), 0);
        let client =
            simulation.request("POST / HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\n\r\n100001\r\nx");
        assert_eq!(status(&simulation.response(client)), "413");
    });
}

#[test]
fn response_is_passed_back_as_it_arrives_and_a_slow_client_stops_the_backend() {
    simulate_backend(|simulation| {
        let client = simulation.connect(Protocol::Http, GET.as_bytes(), 0).expect("accepted");
        simulation.run(ITERATIONS_MAX);
        simulation.send_by_backend(0, b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
        simulation.send_by_backend(0, &vec![b'x'; 1_000_000]);
        simulation.run(ITERATIONS_MAX);
        assert!(simulation.unreceived_of_backend(0) > 700_000, "{}", simulation.unreceived_of_backend(0));
        assert!(simulation.held_bytes() < 2 * WAITING_BYTES_MAX, "{}", simulation.held_bytes());
        simulation.open_window(client, UNLIMITED);
        let response = simulation.response(client);
        assert!(response.contains("Content-Length: 1000000\r\n"));
        assert_eq!(response.len() - response.find("\r\n\r\n").expect("a head") - 4, 1_000_000);
        assert!(simulation.is_open(client));
    });
}

#[test]
fn content_without_a_length_is_sent_in_chunks_at_once() {
    simulate_backend(|simulation| {
        let client = simulation.request(GET);
        simulation.send_by_backend(0, b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n");
        let response = simulation.response(client);
        assert!(response.contains("Transfer-Encoding: chunked\r\n"), "{response}");
        assert!(response.ends_with("\r\n\r\n9\r\ndata: 1\n\n\r\n"), "{response}");
        // An event may take longer than any timeout of the client.
        simulation.advance(Duration::from_secs(50));
        simulation.send_by_backend(0, b"data: 2\n\n");
        assert_eq!(simulation.response(client), "9\r\ndata: 2\n\n\r\n");
        simulation.close_by_backend(0);
        assert_eq!(simulation.response(client), "0\r\n\r\n");
        assert!(simulation.is_open(client));
        // HTTP/1.0 knows no chunks.
        let client = simulation.request("GET / HTTP/1.0\r\nHost: example.com\r\n\r\n");
        simulation.send_by_backend(1, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n");
        let response = simulation.response(client);
        assert!(!response.contains("chunked") && response.ends_with("\r\n\r\nab"), "{response}");
        simulation.send_by_backend(1, b"1\r\nc\r\n0\r\n\r\n");
        assert_eq!(simulation.response(client), "c");
        assert!(!simulation.is_open(client));
    });
}

#[test]
fn response_that_is_cut_off_never_looks_whole() {
    for response in [
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab",
    ] {
        simulate_backend(|simulation| {
            let client = simulation.request(GET);
            simulation.send_by_backend(0, response.as_bytes());
            assert_eq!(status(&simulation.response(client)), "200", "{response}");
            simulation.close_by_backend(0);
            assert!(!simulation.response(client).contains("0\r\n\r\n"), "{response}");
            assert_eq!(simulation.ending(client), Ending::Reset, "{response}");
        });
    }
}

#[test]
fn invalid_response_is_answered_with_502_and_nothing_of_it_is_passed_back() {
    for response in [
        "garbage\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
        "HTTP/1.1 999 OK\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        "HTTP/1.1 200",
    ] {
        simulate_backend(|simulation| {
            let client = simulation.request(GET);
            simulation.send_by_backend(0, response.as_bytes());
            simulation.run(ITERATIONS_MAX);
            for connection in 0..3 {
                if connection < simulation.backend_count() {
                    simulation.close_by_backend(connection);
                    simulation.run(ITERATIONS_MAX);
                }
            }
            let answer = simulation.response(client);
            assert_eq!(status(&answer), "502", "{response}: {answer}");
            assert!(answer.contains("The application "), "{answer}");
        });
    }
}

#[test]
fn answers_to_head_and_without_content_have_no_content() {
    simulate_backend(|simulation| {
        let client = simulation.request("HEAD / HTTP/1.1\r\nHost: example.com\r\n\r\n");
        simulation.send_by_backend(0, b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
        let response = simulation.response(client);
        assert!(response.contains("Content-Length: 1000\r\n") && response.ends_with("\r\n\r\n"), "{response}");
        for head in ["304 Not Modified\r\nETag: \"a\"\r\nContent-Length: 7", "204 No Content"] {
            simulation.send(client, GET.as_bytes());
            simulation.run(ITERATIONS_MAX);
            simulation.send_by_backend(0, format!("HTTP/1.1 {head}\r\n\r\n").as_bytes());
            let response = simulation.response(client);
            assert!(response.starts_with(&format!("HTTP/1.1 {}", &head[..3])), "{response}");
        }
        assert_eq!(simulation.backend_count(), 1);
    });
}

#[test]
fn interim_responses_are_skipped_and_continue_is_our_own() {
    simulate_backend(|simulation| {
        let client = simulation
            .request("POST / HTTP/1.1\r\nHost: example.com\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
        assert_eq!(simulation.response(client), "HTTP/1.1 100 Continue\r\n\r\n");
        simulation.send(client, b"ab");
        simulation.run(ITERATIONS_MAX);
        let request = simulation.backend_text(0);
        assert!(!request.contains("Expect") && request.ends_with("\r\n\r\nab"), "{request}");
        simulation.send_by_backend(0, b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n");
        simulation.send_by_backend(0, OK);
        assert!(simulation.response(client).starts_with("HTTP/1.1 200 OK\r\n"));
    });
}

#[test]
fn stale_connection_is_replaced_without_an_error() {
    for (is_reset, request) in [(false, GET), (true, GET), (false, POST)] {
        simulate_backend(|simulation| {
            let client = simulation.request(GET);
            simulation.send_by_backend(0, OK);
            assert_eq!(status(&simulation.response(client)), "200");
            simulation.take_of_backend(0);
            // The backend closes while the request is on its way: it takes none of it.
            simulation.set_backend_window(0, if request == POST { 0 } else { UNLIMITED });
            simulation.send(client, request.as_bytes());
            simulation.run(ITERATIONS_MAX);
            if is_reset {
                simulation.break_off_backend(0);
            } else {
                simulation.close_by_backend(0);
            }
            simulation.run(ITERATIONS_MAX);
            assert_eq!(simulation.backend_count(), 2, "{request}");
            simulation.send_by_backend(1, OK);
            assert_eq!(status(&simulation.response(client)), "200", "{request}");
        });
    }
}

#[test]
fn connection_that_ends_with_its_response_is_not_used_again() {
    simulate_backend(|simulation| {
        let client = simulation.request(GET);
        simulation.send_by_backend(0, OK);
        simulation.close_by_backend(0);
        assert_eq!(status(&simulation.response(client)), "200");
        simulation.send(client, POST.as_bytes());
        simulation.run(ITERATIONS_MAX);
        assert_eq!(simulation.backend_count(), 2);
    });
}

#[test]
fn request_that_may_have_been_carried_out_is_not_repeated() {
    simulate_backend(|simulation| {
        let client = simulation.request(POST);
        assert!(simulation.backend_text(0).ends_with("hello"));
        simulation.close_by_backend(0);
        assert_eq!(status(&simulation.response(client)), "502");
        assert_eq!(simulation.backend_count(), 1);
        // Nor one whose response has begun.
        let client = simulation.request(GET);
        simulation.send_by_backend(1, b"HTTP/1.1 200 OK\r\nContent-");
        simulation.run(ITERATIONS_MAX);
        simulation.close_by_backend(1);
        assert_eq!(status(&simulation.response(client)), "502");
        assert_eq!(simulation.backend_count(), 2);
    });
}

#[test]
fn bytes_after_a_response_belong_to_no_other_request() {
    simulate_backend(|simulation| {
        let client = simulation.request(GET);
        simulation.send_by_backend(0, &[OK, b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"].concat());
        assert!(simulation.response(client).ends_with("\r\n\r\nok"));
        let other = simulation.request(GET);
        assert_eq!((simulation.backend_count(), simulation.response(other).as_str()), (2, ""));
        simulation.send_by_backend(1, OK);
        assert!(simulation.response(other).ends_with("\r\n\r\nok"));
        // Nor do bytes that an unused connection receives.
        simulation.send_by_backend(1, b"HTTP/1.1 408 Request Timeout\r\n\r\n");
        simulation.run(ITERATIONS_MAX);
        simulation.request(GET);
        assert_eq!(simulation.backend_count(), 3);
    });
}

#[test]
fn answer_before_the_end_of_the_request_closes_the_connection_after_it() {
    simulate_backend(|simulation| {
        let client = simulation.request("POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 1000\r\n\r\nabc");
        simulation.send_by_backend(0, b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
        let response = simulation.response(client);
        assert!(status(&response) == "403" && response.contains("Connection: close\r\n"), "{response}");
        // The rest is not the next request.
        simulation.send(client, GET.as_bytes());
        assert_eq!(simulation.response(client), "");
        // The connection to the backend, which waits for the rest, is not used again.
        simulation.request(GET);
        assert_eq!(simulation.backend_count(), 2);
    });
}

#[test]
fn silent_backend_is_given_up_after_its_timeout() {
    simulate_backend(|simulation| {
        let client = simulation.request(GET);
        simulation.advance(TIMEOUT - Duration::from_secs(1));
        assert_eq!(simulation.response(client), "");
        simulation.advance(Duration::from_secs(2));
        let response = simulation.response(client);
        assert!(status(&response) == "504" && response.contains("did not respond within 60 s"), "{response}");
        assert!(simulation.is_open(client));
        simulation.refuse_backends(true);
        let client = simulation.request(GET);
        let response = simulation.response(client);
        assert!(status(&response) == "502" && response.contains("refuses connections"), "{response}");
    });
}

#[test]
fn client_that_leaves_gives_its_request_up() {
    simulate_backend(|simulation| {
        let client = simulation.request(GET);
        simulation.send_by_backend(0, b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc");
        simulation.run(ITERATIONS_MAX);
        simulation.break_off(client);
        simulation.run(ITERATIONS_MAX);
        simulation.send_by_backend(0, &[b'x'; 50]);
        simulation.run(ITERATIONS_MAX);
        assert!(!simulation.is_open(client));
        simulation.request(GET);
        assert_eq!(simulation.backend_count(), 2, "the rest of its response would be that of another request");
    });
}

#[test]
fn requests_wait_for_a_connection_and_servers_share_them() {
    let action = RouteAction::Pass(Box::new(backend_route(&backend(2, 2))));
    simulate_routes(vec![route("/*", action)], |simulation| {
        let clients: Vec<usize> = (0..5).map(|_| simulation.request(GET)).collect();
        assert_eq!(simulation.backend_count(), 4);
        simulation.send_by_backend(2, OK);
        assert_eq!(status(&simulation.response(clients[2])), "200");
        simulation.take_of_backend(0);
        assert!(simulation.backend_text(2).matches("GET ").count() == 2, "the fifth request follows");
        simulation.send_by_backend(2, OK);
        assert_eq!(status(&simulation.response(clients[4])), "200");
        let late: Vec<usize> = (0..3).map(|_| simulation.request(GET)).collect();
        simulation.advance(CONNECT_TIMEOUT + Duration::from_secs(1));
        assert_eq!(status(&simulation.response(late[2])), "503");
    });
}

#[test]
fn requests_wait_for_a_backend_that_is_being_restarted() {
    simulate_backend(|simulation| {
        let client = simulation.request(GET);
        simulation.send_by_backend(0, OK);
        assert_eq!(status(&simulation.response(client)), "200");
        simulation.refuse_backends(true);
        simulation.close_by_backend(0);
        simulation.run(ITERATIONS_MAX);
        let waiting = simulation.request(POST);
        for _ in 0..20 {
            simulation.advance(Duration::from_millis(100));
        }
        assert_eq!(simulation.response(waiting), "");
        simulation.refuse_backends(false);
        simulation.advance(Duration::from_millis(100));
        simulation.send_by_backend(1, OK);
        assert_eq!(status(&simulation.response(waiting)), "200");
        // Not for longer than a connection may take.
        simulation.refuse_backends(true);
        simulation.close_by_backend(1);
        simulation.run(ITERATIONS_MAX);
        let waiting = simulation.request(GET);
        simulation.advance(CONNECT_TIMEOUT + Duration::from_millis(100));
        assert_eq!(status(&simulation.response(waiting)), "502");
    });
}

#[test]
fn unused_connection_expires_before_the_backend_closes_it() {
    simulate_backend(|simulation| {
        let client = simulation.request(GET);
        simulation.send_by_backend(0, b"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=3\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(status(&simulation.response(client)), "200");
        simulation.advance(Duration::from_millis(1_500));
        simulation.send(client, GET.as_bytes());
        simulation.run(ITERATIONS_MAX);
        assert_eq!(simulation.backend_count(), 1);
        simulation.send_by_backend(0, b"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=3\r\nContent-Length: 0\r\n\r\n");
        simulation.run(ITERATIONS_MAX);
        simulation.advance(Duration::from_millis(2_100));
        simulation.send(client, GET.as_bytes());
        simulation.run(ITERATIONS_MAX);
        assert_eq!(simulation.backend_count(), 2);
    });
}

#[test]
fn upgrade_becomes_a_tunnel_after_the_backend_agrees() {
    simulate_backend(|simulation| {
        let request = "GET /ws HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        let client = simulation.request(&format!("{request}early"));
        let passed = simulation.backend_text(0);
        assert!(passed.contains("Upgrade: websocket\r\n") && !passed.contains("early"), "{passed}");
        simulation.send_by_backend(
            0,
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nhello",
        );
        let response = simulation.response(client);
        assert!(response.starts_with("HTTP/1.1 101 ") && response.ends_with("\r\n\r\nhello"), "{response}");
        assert!(response.contains("pgrade: websocket"), "{response}");
        assert_eq!(simulation.backend_text(0), "early");
        // Longer than every other timeout.
        simulation.advance(Duration::from_secs(3_500));
        simulation.send(client, b"ping");
        simulation.run(ITERATIONS_MAX);
        assert_eq!(simulation.backend_text(0), "ping");
        simulation.send_by_backend(0, b"pong");
        assert_eq!(simulation.response(client), "pong");
        simulation.close_by_backend(0);
        simulation.run(ITERATIONS_MAX);
        assert!(!simulation.is_open(client));
        // Silence on both sides ends it.
        let client = simulation.request(request);
        simulation.send_by_backend(
            1,
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        );
        assert_eq!(status(&simulation.response(client)), "101");
        simulation.advance(Duration::from_secs(3_601));
        simulation.run(ITERATIONS_MAX);
        assert!(!simulation.is_open(client));
        // One that declines is an ordinary response, and what follows the request another one.
        let client = simulation.request(request);
        simulation.send_by_backend(2, OK);
        assert_eq!(status(&simulation.response(client)), "200");
        simulation.send(client, GET.as_bytes());
        simulation.run(ITERATIONS_MAX);
        assert!(simulation.backend_text(2).ends_with("\r\n\r\n"));
        assert_eq!(simulation.backend_count(), 3);
    });
}
