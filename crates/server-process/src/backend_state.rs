//! The servers of applications, for `status`.

use sanderling_server::BackendServerStatus;
use serde::Serialize;

/// A server of an application.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct BackendServerState {
    address: String,
    requests: u64,
    errors: u64,
    connections: u64,
    /// From a request to the head of its response; `None` without responses.
    mean_ms: Option<u64>,
}

impl BackendServerState {
    pub(crate) fn new(server: &BackendServerStatus) -> BackendServerState {
        BackendServerState {
            address: server.address.clone(),
            requests: server.requests,
            errors: server.errors,
            connections: server.connections,
            mean_ms: server.response_ms.checked_div(server.responses),
        }
    }

    /// The line of the text, for a server that is down for the reason `down`.
    pub(crate) fn text(&self, down: Option<&str>) -> String {
        let BackendServerState { address, requests, errors, connections, mean_ms } = self;
        let state = down.map_or("up".to_owned(), |reason| format!("DOWN: {reason}"));
        let mean = mean_ms.map_or(String::new(), |mean_ms| format!(", {mean_ms} ms on average"));
        format!("{address}: {state}; {requests} requests, {errors} errors, {connections} connections{mean}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_names_the_reason_and_the_mean_time() {
        let check = |responses, down: Option<&str>, expected: &str| {
            let server = BackendServerStatus {
                address: "192.0.2.1:3000".to_owned(),
                down: down.map(str::to_owned),
                requests: 7,
                errors: 2,
                connections: 3,
                responses,
                response_ms: 61,
            };
            assert_eq!(BackendServerState::new(&server).text(down), expected);
        };
        check(5, None, "192.0.2.1:3000: up; 7 requests, 2 errors, 3 connections, 12 ms on average");
        check(
            0,
            Some("refuses connections"),
            "192.0.2.1:3000: DOWN: refuses connections; 7 requests, 2 errors, 3 connections",
        );
    }
}
