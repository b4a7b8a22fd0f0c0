//! Connections to a backend that have ended before their request.

use super::*;

#[test]
fn request_that_a_broken_connection_does_not_take_is_sent_on_another_one() {
    for request in [GET, POST] {
        simulate_backend(|simulation| {
            let client = simulation.request(GET);
            simulation.send_by_backend(0, OK);
            assert_eq!(status(&simulation.response(client)), "200");
            // The server learns of it by its write.
            simulation.break_off_backend(0);
            simulation.send(client, request.as_bytes());
            simulation.run(ITERATIONS_MAX);
            assert_eq!(simulation.backend_count(), 2, "{request}");
            simulation.send_by_backend(1, OK);
            assert_eq!(status(&simulation.response(client)), "200", "{request}");
        });
    }
}

#[test]
fn request_is_not_tried_on_all_connections_that_have_ended_together() {
    for connections_max in [100, 5] {
        let action = RouteAction::Pass(Box::new(backend_route(&backend(1, connections_max))));
        simulate_routes(vec![route("/*", action)], |simulation| {
            let clients: Vec<usize> = (0..5).map(|_| simulation.request(GET)).collect();
            (0..5).for_each(|connection| simulation.send_by_backend(connection, OK));
            clients.iter().for_each(|client| assert_eq!(status(&simulation.response(*client)), "200"));
            simulation.send(clients[0], GET.as_bytes());
            (0..5).for_each(|connection| simulation.break_off_backend(connection));
            simulation.run(ITERATIONS_MAX);
            assert_eq!(simulation.backend_count(), 6, "{connections_max}");
            simulation.send_by_backend(5, OK);
            assert_eq!(status(&simulation.response(clients[0])), "200");
        });
    }
}
