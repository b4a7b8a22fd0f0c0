//! The directives and global options of Caddy.

use crate::table::Handling::{Default, Key, NotYet, Unneeded};
use crate::table::{Row, rows};

const MODULE: &str = "requests are not passed to a module";
const TLS: &str = "TLS 1.2 and 1.3 with current cipher suites";
const NO_PART: &str = "answers are made of whole files";

pub(crate) const TABLE: &[Row] = rows! {
    "site" "root" => Key(&["domain.site"], "one document root for each domain");
    "site" "file_server" => Key(&["domain.site", "domain.listing", "domain.index"], "");
    "site" "redir" => Key(&["domain.redirects"], "");
    "site" "rewrite" => Key(&["domain.redirects"], "to a file");
    "site" "try_files" => Key(&["domain.redirects", "domain.clean_urls"], "");
    "site" "respond" | "error" | "abort" => Key(&["domain.redirects", "domain.access", "domain.route"],
        "for paths or addresses");
    "site" "header" => Key(&["domain.headers", "domain.hsts"], "");
    "site" "basic_auth" | "basicauth" => Key(&["domain.auth"], "the hashes are in a file");
    "site" "handle" | "handle_path" | "route" => Key(&["domain.redirects", "domain.headers"], "with a matcher of paths");
    "site" "handle_errors" => Key(&["domain.redirects"], "404 only; `/404.html` needs no rule");
    "site" "tls" => Key(&["domain.certificate", "certificates.contact", "certificates.authorities"], "");
    "site" "log" => Key(&["log.access", "log.format", "log.rotate", "log.keep"], "one log for all domains");
    "site" "bind" => Key(&["http.listen", "https.listen"], "all addresses serve all domains");
    "site" "encode" => Default("compresses text with brotli, zstd and gzip, and sends precompressed files");
    "site" "import" | "@*" => Default("snippets, files and matchers are read");
    "site" "log_skip" | "skip_log" | "log_append" | "log_name" => NotYet("one log has the requests of all domains and paths",
        "use a format with $host, and select lines with jq or grep");
    "site" "request_body" => NotYet("only routes limit the content of a request",
        "set `request_body_max` in the route of an application; files discard the content");
    "site" "push" => Unneeded("browsers have removed server push");
    "site" "reverse_proxy" | "php_fastcgi" => Key(&["domain.route"], "to an address or `localhost`, without TLS");
    "site" "forward_auth" => NotYet("an authenticator is not translated", "write `forward_auth` in the route");
    "site" "fastcgi" | "proxy" => NotYet("Caddyfiles of Caddy 1 are not supported", "upgrade the Caddyfile first");
    "site" "uri" | "method" | "request_header" | "vars" | "map" | "copy_response*" | "intercept" | "invoke" | "fs" =>
        NotYet("requests are not modified on their way to an application", "write a rule for each path");
    "site" "templates" => NotYet(NO_PART, "build the files beforehand");
    "site" "metrics" => NotYet("no site has a status page", "use `[metrics]` and `sanderling status`");
    "site" "acme_server" | "tracing" | "webdav" | "cache" | "rate_limit" | "crowdsec" | "authenticate" | "authorize" |
        "appsec" | "mercure" | "vulcain" | "php" | "php_server" | "cgi" | "git" | "ext" | "gzip" | "minify" | "layer4" |
        "filter" | "replace" | "geoip" | "jwt" | "markdown" | "websocket" | "internal" | "limits" | "errors" | "status" |
        "expvar" | "pprof" | "timeouts" | "cors" =>
        NotYet(MODULE, "run the module in an application on another host name");
    "options" "email" => Key(&["certificates.contact"], "");
    "options" "acme_ca" => Key(&["certificates.authorities"], "");
    "options" "http_port" => Key(&["http.listen"], "");
    "options" "https_port" => Key(&["https.listen"], "");
    "options" "auto_https" => Key(&["domain.https_redirect"], "");
    "options" "default_bind" => Key(&["http.listen", "https.listen"], "");
    "options" "default_sni" | "fallback_sni" => Default("a client without a server name gets the first certificate");
    "options" "servers" => Key(&["http.trusted_proxies", "http.client_from", "http.http2"],
        "`trusted_proxies static`; deadlines and sizes have their own limits");
    "options" "log" => Unneeded("messages go to standard error, which the service manager keeps");
    "options" "debug" | "admin" | "persist_config" | "grace_period" | "shutdown_delay" | "storage*" | "renew_interval" |
        "key_type" | "order" | "skip_install_trust" | "ocsp_*" | "metrics" | "acme_ca_root" | "cert_lifetime" |
        "preferred_chains" | "cert_issuer" => Unneeded("the supervisor, the state folder and the agent do this");
    "options" "acme_dns" | "dns" => NotYet("records are not changed at a DNS provider",
        "serve the zone here, or validate over HTTP, which is the default");
    "options" "acme_eab" => NotYet("the account with an authority is set in `authorities`",
        "write `external_account` in `authorities` of [certificates]");
    "options" "on_demand_tls" => NotYet("certificates are requested for the names of the configuration", "list the names");
    "options" "local_certs" | "pki" => NotYet("there is no local authority", "use `mkcert`, and name the files in `certificate`");
    "options" "filesystem" | "layer4" | "crowdsec" | "security" | "cache" | "php" | "frankenphp" | "dynamic_dns" | "exec" =>
        NotYet(MODULE, "run the module in an application on another host name");
    "tls" "protocols" | "ciphers" | "curves" | "alpn" | "key_type" | "reuse_private_keys" | "insecure_secrets_log" => Default(TLS);
    "tls" "ca" => Key(&["certificates.authorities"], "");
    "tls" "issuer" => Key(&["certificates.authorities"], "`acme` without options");
    "tls" "dns" | "dns_ttl" | "propagation_*" | "resolvers" | "dns_challenge_override_domain" =>
        NotYet("records are not changed at a DNS provider", "serve the zone here, or validate over HTTP");
    "tls" "on_demand" => NotYet("certificates are requested for the names of the configuration", "list the names");
    "tls" "client_auth" => NotYet("clients are not asked for certificates", "use `auth` or `access`");
    "tls" "ca_root" | "eab" | "load" | "get_certificate" | "renewal_window_ratio" | "cert" | "force_automate" =>
        NotYet("certificates come from files or from an authority of [certificates]", "name the files in `certificate`");
};
