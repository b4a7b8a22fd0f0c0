//! Which server of a backend gets a request, and which counts as down.

use super::*;
use sanderling_site_rules::{Balance, ClientHeader, HealthCheck};

/// One route for all paths, to so many servers, whose ports are 3000 and those that follow.
fn simulate_servers(server_count: u16, distribution: Distribution, act: impl FnOnce(&mut Simulation<'_>)) {
    let backend = Backend { distribution, ..Backend::clone(&backend(server_count, 100)) };
    let action = RouteAction::Pass(Box::new(backend_route(&Arc::new(backend))));
    simulate_routes(vec![route("/*", action)], act);
}

fn address(index: u16) -> BackendAddress {
    BackendAddress::Tcp(SocketAddr::new(CLIENT, 3_000 + index))
}

const CLOSING: &str = "GET / HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n";
const UNAVAILABLE: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

impl Simulation<'_> {
    /// Sends a request, which gets `response` on the connection that is made for it; the text that the client receives,
    /// and the port of the server.
    fn exchange(&mut self, request: &str, response: &[u8]) -> (String, String) {
        let client = self.request(request);
        let connection = self.backend_count() - 1;
        self.send_by_backend(connection, response);
        let received = self.response(client);
        (received, self.port_of(connection))
    }

    fn port_of(&mut self, connection: usize) -> String {
        let address = self.backend_address(connection);
        address.rsplit(':').next().expect("a port").to_owned()
    }

    fn down(&self) -> Vec<Option<String>> {
        self.backend_servers().into_iter().map(|server| server.down).collect()
    }
}

/// A response after which the connection closes, so that the next request has one of its own.
const LAST: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

#[test]
fn connection_with_a_proxy_header_is_for_one_request() {
    let distribution = Distribution { client_header: ClientHeader::ProxyV2, ..Distribution::default() };
    simulate_servers(1, distribution, |simulation| {
        let client = simulation.request(GET);
        for connection in 0..3 {
            assert_eq!(simulation.backend_count(), connection + 1);
            let bytes = simulation.take_of_backend(connection);
            assert!(bytes.starts_with(b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x01"), "{bytes:?}");
            assert!(bytes[28..].starts_with(b"GET /api/x?q=1 HTTP/1.1\r\n"), "{bytes:?}");
            simulation.send_by_backend(connection, OK);
            assert_eq!(status(&simulation.response(client)), "200");
            simulation.send(client, GET.as_bytes());
            simulation.run(ITERATIONS_MAX);
        }
        assert_eq!(simulation.backend_servers()[0].connections, 1);
    });
}

#[test]
fn client_has_the_same_server_until_that_is_down() {
    let distribution = Distribution { balance: Balance::Client, ..Distribution::default() };
    simulate_servers(4, distribution, |simulation| {
        let (_, first) = simulation.exchange(CLOSING, LAST);
        for _ in 0..5 {
            assert_eq!(simulation.exchange(CLOSING, LAST).1, first);
        }
        let index = first.parse::<u16>().expect("a port") - 3_000;
        simulation.refuse_backends_at(vec![address(index)]);
        let (response, second) = simulation.exchange(CLOSING, LAST);
        assert_eq!(status(&response), "200");
        assert_ne!(second, first);
        assert_eq!(simulation.exchange(CLOSING, LAST).1, second);
        simulation.refuse_backends_at(Vec::new());
        simulation.advance(Duration::from_secs(1));
        assert_eq!(simulation.exchange(CLOSING, LAST).1, first);
    });
}

#[test]
fn request_that_has_waited_for_a_connection_counts_as_one_of_its_server() {
    let distribution = Distribution { balance: Balance::Cookie("server".to_owned()), ..Distribution::default() };
    let backend = Backend { distribution, ..Backend::clone(&backend(1, 1)) };
    let action = RouteAction::Pass(Box::new(backend_route(&Arc::new(backend))));
    simulate_routes(vec![route("/*", action)], |simulation| {
        let (first, second) = (simulation.request(GET), simulation.request(GET));
        for client in [first, second] {
            simulation.send_by_backend(0, OK);
            let response = simulation.response(client);
            assert!(response.contains("\r\nSet-Cookie: server=0; "), "{response}");
        }
        let [server] = &simulation.backend_servers()[..] else { panic!("one server") };
        assert_eq!((server.requests, server.responses, server.errors), (2, 2, 0));
        simulation.refuse_backends_at(vec![address(0)]);
        simulation.exchange(CLOSING, LAST);
        let [server] = &simulation.backend_servers()[..] else { panic!("one server") };
        assert_eq!((server.requests, server.responses), (3, 3), "the kept connection");
    });
}

#[test]
fn cookie_names_the_server_of_later_requests() {
    let distribution = Distribution { balance: Balance::Cookie("server".to_owned()), ..Distribution::default() };
    simulate_servers(3, distribution, |simulation| {
        let with = |value: &str| {
            format!("GET / HTTP/1.1\r\nHost: example.com\r\nCookie: a=b; server={value}\r\nConnection: close\r\n\r\n")
        };
        let (response, port) = simulation.exchange(CLOSING, LAST);
        assert_eq!(port, "3000");
        assert!(response.contains("\r\nSet-Cookie: server=0; Path=/; HttpOnly; SameSite=Lax\r\n"), "{response}");
        assert!(!response.contains("3000") && response.ends_with("\r\n\r\n"), "{response}");
        for _ in 0..3 {
            let (response, port) = simulation.exchange(&with("2"), LAST);
            assert_eq!(port, "3002");
            assert!(!response.contains("Set-Cookie"), "{response}");
        }
        // A value of no server means a free choice.
        for value in ["3", "", "-1", "99999999999999999999", "192.0.2.1:3002", "\u{e9}"] {
            let (response, _) = simulation.exchange(&with(value), LAST);
            assert!(status(&response) == "200" && response.contains("\r\nSet-Cookie: server="), "{value}: {response}");
        }
        simulation.refuse_backends_at(vec![address(2)]);
        let (response, port) = simulation.exchange(&with("2"), LAST);
        assert_ne!(port, "3002");
        let place = port.parse::<u16>().expect("a port") - 3_000;
        assert!(response.contains(&format!("\r\nSet-Cookie: server={place}; ")), "{response}");
    });
}

#[test]
fn application_keeps_its_own_cookies() {
    let distribution = Distribution { balance: Balance::Cookie("server".to_owned()), ..Distribution::default() };
    simulate_servers(1, distribution, |simulation| {
        let own = b"HTTP/1.1 200 OK\r\nSet-Cookie: session=1\r\nContent-Length: 0\r\n\r\n";
        let (response, _) = simulation.exchange(CLOSING, own);
        assert!(response.contains("Set-Cookie: session=1\r\n"), "{response}");
        assert!(response.contains("Set-Cookie: server=0; "), "{response}");
    });
}

#[test]
fn server_with_errors_in_a_row_gets_no_requests_while_another_one_does() {
    let distribution = Distribution { errors_max: Some(2), ..Distribution::default() };
    simulate_servers(2, distribution, |simulation| {
        let ports: Vec<String> = (0..4).map(|_| simulation.exchange(CLOSING, UNAVAILABLE).1).collect();
        assert_eq!(ports, ["3000", "3001", "3000", "3001"]);
        assert_eq!(simulation.down(), [Some("answers 503".to_owned()), Some("answers 503".to_owned())]);
        // All are down, so that both are tried.
        let (response, port) = simulation.exchange(CLOSING, LAST);
        assert_eq!((status(&response), port.as_str()), ("200", "3000"));
        assert_eq!(simulation.down(), [None, Some("answers 503".to_owned())]);
        for _ in 0..4 {
            assert_eq!(simulation.exchange(CLOSING, LAST).1, "3000");
        }
        simulation.advance(Duration::from_millis(500));
        assert_eq!(simulation.exchange(CLOSING, UNAVAILABLE).1, "3001");
        for _ in 0..4 {
            assert_eq!(simulation.exchange(CLOSING, LAST).1, "3000");
        }
    });
}

#[test]
fn requests_without_a_response_in_time_count_as_errors() {
    let distribution = Distribution { errors_max: Some(1), ..Distribution::default() };
    simulate_servers(1, distribution, |simulation| {
        let client = simulation.request(CLOSING);
        simulation.advance(TIMEOUT);
        assert_eq!(status(&simulation.response(client)), "504");
        assert_eq!(simulation.down(), [Some("did not respond within 60 s".to_owned())]);
        let [server] = &simulation.backend_servers()[..] else { panic!("one server") };
        assert_eq!((server.requests, server.errors, server.responses, server.connections), (1, 1, 0, 0));
    });
}

#[test]
fn server_that_was_down_starts_slowly() {
    let distribution = Distribution { slow_start: Duration::from_secs(64), ..Distribution::default() };
    simulate_servers(2, distribution, |simulation| {
        for _ in 0..20 {
            simulation.exchange(CLOSING, LAST);
        }
        simulation.refuse_backends_at(vec![address(1)]);
        for _ in 0..20 {
            simulation.exchange(CLOSING, LAST);
        }
        simulation.refuse_backends_at(Vec::new());
        simulation.advance(Duration::from_secs(1));
        let count = |simulation: &mut Simulation<'_>| {
            let ports = (0..130).map(|_| simulation.exchange(CLOSING, LAST).1);
            ports.filter(|port| port == "3001").count()
        };
        // One request shows that it is up again. It then has a 64th of the share of the other one.
        let at_first = count(simulation);
        assert!((1..=4).contains(&at_first), "{at_first}");
        simulation.advance(Duration::from_secs(32));
        let half_way = count(simulation);
        assert!((38..=48).contains(&half_way), "{half_way}");
        simulation.advance(Duration::from_secs(32));
        let at_last = count(simulation);
        assert!((62..=68).contains(&at_last), "{at_last}");
    });
}

const INTERVAL: Duration = Duration::from_secs(5);

fn checked(path: Option<&str>) -> Distribution {
    let check = HealthCheck { path: path.map(str::to_owned), host: None, interval: INTERVAL };
    Distribution { check: Some(check), ..Distribution::default() }
}

#[test]
fn server_that_fails_checks_in_a_row_gets_no_requests_until_one_succeeds() {
    simulate_servers(2, checked(Some("/healthz")), |simulation| {
        let mut connection = 0;
        let mut check = |simulation: &mut Simulation<'_>, responses: [&[u8]; 2]| {
            simulation.run(ITERATIONS_MAX);
            for response in responses {
                let request = simulation.backend_text(connection);
                let port = simulation.port_of(connection);
                let expected = format!(
                    "GET /healthz HTTP/1.1\r\nHost: 192.0.2.1:{port}\r\nUser-Agent: sanderling\r\nConnection: close\r\n\r\n"
                );
                assert_eq!(request, expected);
                simulation.send_by_backend(connection, response);
                connection += 1;
            }
            simulation.run(ITERATIONS_MAX);
            simulation.advance(INTERVAL);
        };
        for failures in 0..3 {
            assert_eq!(simulation.down(), [None, None], "after {failures}");
            check(simulation, [b"HTTP/1.1 302 Found\r\n\r\n", UNAVAILABLE]);
        }
        assert_eq!(simulation.down(), [None, Some("answers 503 to the check".to_owned())]);
        check(simulation, [OK, OK]);
        assert_eq!(simulation.down(), [None, None]);
    });
}

#[test]
fn requests_avoid_a_server_that_fails_its_checks_unless_all_do() {
    simulate_servers(2, checked(Some("/healthz")), |simulation| {
        simulation.refuse_backends_at(vec![address(0)]);
        for _ in 0..3 {
            simulation.run(ITERATIONS_MAX);
            let connection = simulation.backend_count() - 1;
            simulation.send_by_backend(connection, OK);
            simulation.run(ITERATIONS_MAX);
            simulation.advance(INTERVAL);
        }
        assert_eq!(simulation.down(), [Some("refuses connections".to_owned()), None]);
        simulation.run(ITERATIONS_MAX);
        let last_check = simulation.backend_count() - 1;
        for _ in 0..3 {
            assert_eq!(simulation.exchange(CLOSING, LAST).1, "3001");
        }
        // No answer in time.
        for check in [Some(last_check), None, None] {
            let check = check.unwrap_or(simulation.backend_count() - 1);
            assert_eq!(simulation.port_of(check), "3001");
            simulation.advance(INTERVAL);
            simulation.run(ITERATIONS_MAX);
            simulation.advance(INTERVAL);
            simulation.run(ITERATIONS_MAX);
        }
        let reason = "no answer to /healthz within 5 s".to_owned();
        assert_eq!(simulation.down(), [Some("refuses connections".to_owned()), Some(reason)]);
        simulation.refuse_backends_at(Vec::new());
        assert_eq!(status(&simulation.exchange(CLOSING, LAST).0), "200");
    });
}

#[test]
fn check_without_a_path_needs_a_connection_only() {
    simulate_servers(1, checked(None), |simulation| {
        for round in 0..3 {
            simulation.run(ITERATIONS_MAX);
            assert_eq!(simulation.backend_count(), round + 1);
            simulation.set_backend_window(round, UNLIMITED);
            simulation.run(ITERATIONS_MAX);
            assert!(simulation.take_of_backend(round).is_empty());
            simulation.advance(INTERVAL);
        }
        assert_eq!(simulation.down(), [None]);
        simulation.refuse_backends(true);
        for _ in 0..3 {
            simulation.run(ITERATIONS_MAX);
            simulation.advance(INTERVAL);
        }
        assert_eq!(simulation.down(), [Some("refuses connections".to_owned())]);
    });
}

#[test]
fn check_sends_a_proxy_header_that_names_no_client() {
    let distribution = Distribution { client_header: ClientHeader::ProxyV2, ..checked(Some("/up")) };
    simulate_servers(1, distribution, |simulation| {
        simulation.run(ITERATIONS_MAX);
        let bytes = simulation.take_of_backend(0);
        assert!(bytes.starts_with(b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0GET /up HTTP/1.1\r\n"), "{bytes:?}");
    });
}

#[test]
fn nothing_is_asked_without_a_check() {
    simulate_servers(2, Distribution::default(), |simulation| {
        simulation.advance(INTERVAL);
        simulation.run(ITERATIONS_MAX);
        assert_eq!(simulation.backend_count(), 0);
    });
}
