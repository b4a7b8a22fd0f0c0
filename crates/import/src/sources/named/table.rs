//! The statements of named.conf.

use crate::table::Handling::{Default, Key, NotYet, Unneeded};
use crate::table::{Row, rows};

const RECURSION: &str = "the server answers for its own zones only";
const RESOLVER: &str = "run a resolver such as unbound on another address";
const NO_ADDRESS: &str = "the kernel chooses the source address";
const SIGNING: &str = "the server signs again and replaces keys itself";
const CACHE: &str = "there is no cache";

pub(crate) const TABLE: &[Row] = rows! {
    "top" "options" | "zone" | "view" | "include" | "acl" | "primaries" | "masters" | "remote-servers" | "parental-agents" =>
        Default("the blocks, lists and included files are read; several views are reported");
    "top" "key" => Key(&["tsig.algorithm", "tsig.secret_file"], "the secret is in a file");
    "top" "logging" => Key(&["log.queries", "log.rotate", "log.keep"], "the category `queries`");
    "top" "dnssec-policy" => Key(&["domain.dnssec"], "");
    "top" "controls" | "rndc" => Unneeded("a socket of the file system controls the server");
    "top" "statistics-channels" => NotYet("counters are not sent as XML or JSON", "use `[metrics]` and `sanderling status`");
    "top" "trusted-keys" | "managed-keys" | "trust-anchors" => Unneeded("only resolvers validate");
    "top" "tls" | "http" => NotYet("certificates belong to a domain",
        "add `certificate` to a domain, and `tls` to [dns] or `doh` to the domain");
    "top" "server" => Key(&["domain.primaries", "domain.secondaries"], "its key");
    "top" "dlz" | "dyndb" | "plugin" | "key-store" => NotYet("zones are in files", "export them into zone files");
    "options" "directory" => Key(&["domain.zone"], "paths of zone files");
    "options" "listen-on" | "listen-on-v6" => Key(&["dns.listen"], "");
    "options" "version" => Key(&["dns.version"], "");
    "options" "server-id" => Key(&["dns.nsid"], "");
    "options" "rate-limit" => Key(&["limits.dns_udp_replies_per_second_max", "limits.dns_udp_slip",
        "limits.dns_udp_errors_per_second_max", "dns.rate_limit_dry_run", "dns.rate_limit_exempt"], "");
    "options" "catalog-zones" => Key(&["catalog.primaries"], "");
    "options" "querylog" => Key(&["log.queries"], "");
    "options" "max-udp-size" | "edns-udp-size" => Default("replies over UDP have at most 1232 bytes");
    "options" "tcp-clients" => Key(&["limits.dns_tcp_connections_max"], "");
    "options" "transfers-in" => Key(&["limits.zone_transfers_in_max"], "");
    "options" "transfers-out" => Key(&["limits.dns_transfers_max"], "");
    "options" "cookie-secret" => NotYet("the secret is in a file", "write it into a file, and set `cookie_secret_file`");
    "options" "hostname" => Default("`hostname.bind` is not answered, unless `nsid` is set");
    "options" "send-cookie" | "answer-cookie" | "cookie-algorithm" | "nocookie-udp-size" | "tcp-keepalive*" | "tcp-idle*" |
        "tcp-initial*" | "tcp-advertised*" => Default("cookies and keepalive are on");
    "options" "dnstap*" | "fstrm-*" => NotYet("queries and replies are sent to a socket", "set `dnstap` in [log]");
    "options" "recursion" | "allow-recursion" | "allow-recursion-on" => Default("there is no recursion; `yes` is reported");
    "options" "forwarders" | "forward" | "dns64*" | "response-policy" | "allow-query-cache*" | "dual-stack-servers" |
        "prefetch" | "qname-minimization" | "fetches-*" | "synth-from-dnssec" | "resolver-*" | "stale-*" | "rrset-order" |
        "sortlist" | "deny-answer-*" | "root-key-sentinel" | "disable-*" => NotYet(RECURSION, RESOLVER);
    "options" "max-cache-*" | "max-ncache-*" | "cleaning-interval" | "min-cache-ttl" | "lame-ttl" | "servfail-ttl" |
        "cache-file" | "dnssec-validation" | "dnssec-lookaside" | "dnssec-accept-expired" | "dnssec-must-be-secure" |
        "bindkeys-file" | "validate-except" | "trust-anchor-telemetry" | "empty-zones-enable" | "empty-*" |
        "disable-empty-zone" | "filter-aaaa*" | "additional-from-*" | "minimal-any" | "minimal-responses" |
        "fetch-glue" | "root-delegation-only" | "recursive-clients" | "clients-per-query" | "max-clients-per-query" |
        "geoip-*" | "avoid-v*" | "use-v*" | "query-source*" | "zero-no-soa-ttl*" => Unneeded(CACHE);
    "options" "pid-file" | "statistics-file" | "dump-file" | "memstatistics*" | "session-key*" | "managed-keys-directory" |
        "recursing-file" | "secroots-file" | "lock-file" | "lmdb-mapsize" | "new-zones-directory" | "allow-new-zones" |
        "tkey-*" | "interface-interval" | "automatic-interface-scan" | "heartbeat-interval" | "coresize" | "datasize" |
        "stacksize" | "files" | "port" | "startup-notify-rate" | "serial-query-rate" | "transfers-per-ns" |
        "transfer-message-size" | "reserved-sockets" | "flush-zones-on-shutdown" | "deallocate-on-exit" | "has-old-clients" |
        "reuseport" | "udp-*" | "match-mapped-addresses" | "blackhole" | "random-device" | "hostname-*" | "auth-nxdomain" |
        "message-compression" | "parental-source*" | "zone-statistics" | "statistics-interval" | "notify-rate" | "listen-*" =>
        Unneeded("the supervisor, the state folder and the agent do this");
    "options, zone" "allow-transfer" => Key(&["domain.transfer_allow", "dns.transfer_allow"], "");
    "options, zone" "also-notify" => Key(&["domain.secondaries"], "");
    "options, zone" "notify" | "notify-to-soa" => Default("the `secondaries` are notified");
    "options, zone" "allow-notify" => Default("NOTIFY is accepted from the primaries");
    "options, zone" "allow-query" | "allow-query-on" => Default("queries are answered for everyone; others are reported");
    "options, zone" "dnssec-policy" | "inline-signing" | "auto-dnssec" => Key(&["domain.dnssec"], "");
    "options, zone" "dnssec-enable" | "dnssec-secure-to-insecure" | "dnssec-update-mode" | "sig-*" | "dnssec-loadkeys-interval" |
        "dnssec-dnskey-kskonly" | "update-check-ksk" | "key-directory" | "checkds" => Unneeded(SIGNING);
    "options, zone" "transfer-source*" | "notify-source*" | "alt-transfer-source*" | "use-alt-transfer-source" =>
        NotYet(NO_ADDRESS, "set the source of the route: ip route … src ADDRESS");
    "options, zone" "check-*" | "masterfile-*" | "max-journal-size" | "max-zone-ttl" | "max-records*" | "max-types-per-name" |
        "ixfr-*" | "provide-ixfr" | "request-*" | "max-ixfr-ratio" | "max-refresh-time" | "min-refresh-time" |
        "max-retry-time" | "min-retry-time" | "max-transfer-*" | "serial-update-method" | "notify-delay" | "notify-defer" |
        "zone-propagation-delay" | "multi-master" | "try-tcp-refresh" | "dialup" | "journal" =>
        Default("zones are checked, kept with a journal, and transferred by IXFR");
    "options, zone" "allow-update-forwarding" => NotYet("updates are not passed on", "send them to the primary");
    "zone" "type" => Key(&["domain.zone", "domain.primaries"], "primary and secondary");
    "zone" "file" => Key(&["domain.zone"], "transferred zones are in the state folder");
    "zone" "primaries" | "masters" => Key(&["domain.primaries"], "");
    "zone" "allow-update" | "update-policy" => Key(&["domain.update"], "");
    "zone" "zone-statistics" => Default("counters of zones are in [metrics]");
    "zone" "parental-agents" => Unneeded(SIGNING);
    "zone" "database" | "in-view" | "delegation-only" | "server-addresses" |
        "server-names" | "forwarders" | "forward" | "log-report-channel" => NotYet(RECURSION, RESOLVER);
    "view" "match-clients" | "match-destinations" | "match-recursive-only" => Default("a single view for everyone is read");
};
