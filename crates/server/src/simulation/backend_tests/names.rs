//! Backends whose servers are hosts with a name, whose addresses another process finds.

use super::*;

const CLOSING: &str = "GET / HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n";

fn simulate_name(act: impl FnOnce(&mut Simulation<'_>)) {
    let address = BackendAddress::Host { name: "app.internal".to_owned(), port: 3000 };
    let servers = vec![BackendServer { address, weight: 1 }];
    let backend = Backend { servers, ..Backend::clone(&backend(1, 100)) };
    let action = RouteAction::Pass(Box::new(backend_route(&Arc::new(backend))));
    simulate_routes(vec![route("/*", action)], act);
}

impl Simulation<'_> {
    /// The name has these addresses from now on.
    fn find(&mut self, addresses: &[&str]) {
        let addresses = addresses.iter().map(|address| address.parse().expect("an address")).collect();
        self.update_snapshot(|snapshot| {
            snapshot.backend_addresses = Arc::new([("app.internal".to_owned(), addresses)].into());
        });
        self.run(ITERATIONS_MAX);
    }

    /// The address that gets the next request.
    fn next_address(&mut self) -> String {
        let client = self.request(CLOSING);
        let connection = self.backend_count() - 1;
        self.send_by_backend(connection, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        assert_eq!(status(&self.response(client)), "200");
        self.backend_address(connection)
    }

    fn servers(&self) -> Vec<String> {
        self.backend_servers().into_iter().map(|server| server.address).collect()
    }
}

#[test]
fn request_waits_until_the_name_is_found() {
    simulate_name(|simulation| {
        let client = simulation.request(GET);
        assert_eq!((simulation.backend_count(), simulation.response(client)), (0, String::new()));
        simulation.find(&["192.0.2.7"]);
        assert_eq!(simulation.backend_address(0), "192.0.2.7:3000");
        simulation.send_by_backend(0, OK);
        assert_eq!(status(&simulation.response(client)), "200");
    });
}

#[test]
fn name_that_is_not_looked_up_in_time_or_not_found_gets_502() {
    simulate_name(|simulation| {
        let check = |response: String| {
            assert_eq!(status(&response), "502");
            assert!(response.ends_with("\r\n\r\nThe application has a name that was not found.\n"), "{response}");
        };
        let client = simulation.request(GET);
        simulation.advance(CONNECT_TIMEOUT);
        check(simulation.response(client));
        let client = simulation.request(GET);
        simulation.find(&[]);
        check(simulation.response(client));
        let client = simulation.request(GET);
        check(simulation.response(client));
    });
}

#[test]
fn addresses_are_servers_that_come_and_go() {
    simulate_name(|simulation| {
        simulation.find(&["192.0.2.7"]);
        assert_eq!(simulation.next_address(), "192.0.2.7:3000");
        let kept = simulation.request(GET);
        let at_work = simulation.backend_count() - 1;
        simulation.find(&["192.0.2.8", "2001:db8::8"]);
        let mut next = [simulation.next_address(), simulation.next_address()];
        next.sort();
        assert_eq!(next, ["192.0.2.8:3000", "[2001:db8::8]:3000"]);
        // What is in progress ends, and its connection is not used again.
        simulation.send_by_backend(at_work, OK);
        assert_eq!(status(&simulation.response(kept)), "200");
        assert_eq!(simulation.servers(), ["192.0.2.7:3000", "192.0.2.8:3000", "[2001:db8::8]:3000"]);
        simulation.find(&["192.0.2.9", "192.0.2.8"]);
        assert!(!simulation.servers().contains(&"192.0.2.7:3000".to_owned()), "its place is another one's");
        for _ in 0..4 {
            let address = simulation.next_address();
            assert!(["192.0.2.8:3000", "192.0.2.9:3000"].contains(&address.as_str()), "{address}");
        }
    });
}

#[test]
fn unused_connections_of_a_removed_address_are_closed() {
    simulate_name(|simulation| {
        simulation.find(&["192.0.2.7"]);
        let client = simulation.request(GET);
        simulation.send_by_backend(0, OK);
        assert_eq!(status(&simulation.response(client)), "200");
        assert_eq!(simulation.backend_servers()[0].connections, 1);
        simulation.find(&["192.0.2.8"]);
        assert!(simulation.backend_servers().iter().all(|server| server.connections == 0));
        simulation.send(client, GET.as_bytes());
        simulation.run(ITERATIONS_MAX);
        assert_eq!(simulation.backend_address(1), "192.0.2.8:3000");
    });
}
