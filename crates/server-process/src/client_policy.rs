//! The configuration of clients: exemptions from limits, proxies that name the client, and paths for some addresses
//! only.

use sanderling_config::{AccessRule as ConfiguredAccessRule, Config, RateLimit};
use sanderling_server::{AccessRule, HttpClients, IpNetwork, RateLimitPolicy, Snapshot};
use std::net::IpAddr;
use std::sync::Arc;

/// Puts the client settings of `config` into `snapshot`.
pub(crate) fn set_client_policies(config: &Config, snapshot: &mut Snapshot) {
    snapshot.rate_limit_policy = Arc::new(policy(&config.dns_rate_limit));
    snapshot.http_clients = Arc::new(http_clients(config));
}

/// The rule for paths that only some clients may request.
pub(crate) fn access_rule(rule: &ConfiguredAccessRule) -> AccessRule {
    AccessRule { allow: rule.allow.as_deref().map(networks), deny: networks(&rule.deny) }
}

fn policy(limit: &RateLimit) -> RateLimitPolicy {
    RateLimitPolicy { exempt: networks(&limit.exempt), is_dry_run: limit.dry_run }
}

fn networks(networks: &[(IpAddr, u8)]) -> Vec<IpNetwork> {
    networks.iter().map(|&(address, prefix_bits)| IpNetwork::new(address, prefix_bits)).collect()
}

fn http_clients(config: &Config) -> HttpClients {
    let rate_limit = policy(&config.http_rate_limit);
    let Some(proxies) = &config.trusted_proxies else { return HttpClients { rate_limit, ..HttpClients::default() } };
    HttpClients { trusted_proxies: networks(&proxies.networks), client_from: Some(proxies.client_from), rate_limit }
}
