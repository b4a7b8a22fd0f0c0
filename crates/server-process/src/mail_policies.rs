//! The policies for mail servers (MTA-STS) that follow from a configuration and its zones.

use sanderling_config::Config;
use sanderling_dns::ZoneMap;
use sanderling_server::MailPolicies;
use sanderling_zone_files::served_mail_policies;
use std::sync::Arc;

/// The policies, by their hosts; `None` if no domain has one.
pub(crate) fn mail_policies(config: &Config, zones: &ZoneMap) -> Option<Arc<MailPolicies>> {
    let has_policies = config.derived.iter().any(|derived| derived.mail_policy.is_some());
    has_policies.then(|| Arc::new(served_mail_policies(config, zones).into_iter().collect()))
}
