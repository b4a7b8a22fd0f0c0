//! The metrics of the servers of applications.

use super::text::{MetricsWriter, Seconds};
use crate::service_state::{BackendCondition, Condition, ServiceState, counts};
use sanderling_server::BackendServerStatus;

/// Servers that are listed.
const LISTED_MAX: usize = 1_000;

/// Writes the metrics of all servers, those that are down first.
pub(super) fn put_backend_servers(state: &ServiceState<'_>, out: &mut MetricsWriter) {
    let servers = state.backend_servers();
    let mut samples = out.family("sanderling_backend_servers");
    for (condition, count) in counts(servers.iter().map(|server| state.backend_server(server))) {
        samples.sample(&[condition.name()], count);
    }
    let is_up = |server: &BackendServerStatus| state.backend_server(server) == BackendCondition::Served;
    let (up, down): (Vec<_>, Vec<_>) = servers.iter().partition(|server| is_up(server));
    let listed: Vec<&BackendServerStatus> = down.into_iter().chain(up).take(LISTED_MAX).collect();
    let mut put = |name: &str, value_of: &dyn Fn(&BackendServerStatus) -> u64| {
        let mut samples = out.family(name);
        for server in &listed {
            samples.sample(&[&server.address], value_of(server));
        }
    };
    put("sanderling_backend_server_up", &|server| u64::from(is_up(server)));
    put("sanderling_backend_server_requests", &|server| server.requests);
    put("sanderling_backend_server_errors", &|server| server.errors);
    put("sanderling_backend_server_connections", &|server| server.connections);
    put("sanderling_backend_server_responses", &|server| server.responses);
    let mut samples = out.family("sanderling_backend_server_response_seconds");
    for server in &listed {
        samples.sample(&[&server.address], Seconds(server.response_ms));
    }
}
