//! The options of DNS replies for the configuration and the shared keys.

use sanderling_config::Config;
use sanderling_dns::{CookieSecrets, ReplyOptions, TsigKeys};
use sanderling_ipc::secrets::SharedKeys;
use sanderling_zone_files::wire_name;
use std::sync::Arc;

/// The parts of replies other than records.
pub(crate) fn reply_options(config: &Config, keys: Option<&SharedKeys>, tsig_keys: TsigKeys) -> Arc<ReplyOptions> {
    let replies = &config.replies;
    let cookie_secrets = |keys: &SharedKeys| CookieSecrets {
        current: *keys.cookies.current,
        previous: keys.cookies.previous.as_deref().copied(),
    };
    // RFC 7828 §3.1: the unit is 100 ms.
    let idle_timeout_100ms = u16::try_from(config.limits.dns_tcp_idle_timeout_ms / 100).unwrap_or(u16::MAX);
    Arc::new(ReplyOptions {
        nsid: replies.nsid.clone(),
        version: replies.version.clone(),
        cookies: keys.filter(|_| config.has_cookies()).map(cookie_secrets),
        tcp_keepalive_100ms: replies.tcp_keepalive.then_some(idle_timeout_100ms),
        has_extended_errors: replies.extended_errors,
        error_report_agent: replies.error_report_agent.as_ref().map(wire_name),
        tsig_keys,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanderling_config::{DnsReplies, DomainName};

    #[test]
    fn options_are_those_of_the_configuration() {
        let mut config = Config::default();
        config.limits.dns_tcp_idle_timeout_ms = 5_050;
        let agent = DomainName::parse("reports.example").ok();
        config.replies =
            DnsReplies { nsid: "n".to_owned(), version: "v".to_owned(), error_report_agent: agent, ..config.replies };
        let options = reply_options(&config, Some(&SharedKeys::default()), Vec::new());
        assert_eq!((options.nsid.as_str(), options.version.as_str()), ("n", "v"));
        assert_eq!((options.tcp_keepalive_100ms, options.has_extended_errors), (Some(50), true));
        assert_eq!(
            options.error_report_agent.map(|agent| agent.as_name().as_bytes().to_vec()),
            Some(b"\x07reports\x07example\0".to_vec())
        );
        assert!(options.cookies.is_none(), "there is no zone");
        config.replies.tcp_keepalive = false;
        config.replies.extended_errors = false;
        let options = reply_options(&config, None, Vec::new());
        assert_eq!((options.tcp_keepalive_100ms, options.has_extended_errors), (None, false));
    }
}
