//! The attributes of nsd.conf.

use crate::table::Handling::{Default, Key, NotYet, Unneeded};
use crate::table::{Row, rows};

const PROCESS: &str = "the supervisor and the service manager do this";
const STATE: &str = "the state folder holds what must survive restarts";

pub(crate) const TABLE: &[Row] = rows! {
    "top" "include" => Default("included files are read");
    "server" "ip-address" | "interface" | "port" => Key(&["dns.listen"], "");
    "server" "username" => Key(&["user", "group"], "");
    "server" "server-count" => Key(&["workers"], "");
    "server" "nsid" | "identity" => Key(&["dns.nsid"], "text, or `ascii_` with text");
    "server" "version" => Key(&["dns.version"], "");
    "server" "zonesdir" => Key(&["domain.zone"], "the directory of zone files");
    "server" "cookie-secret-file" => Key(&["dns.cookie_secret_file"], "");
    "server" "tcp-count" => Key(&["limits.dns_tcp_connections_max"], "");
    "server" "tcp-timeout" => Key(&["limits.dns_tcp_idle_timeout"], "");
    "server" "rrl-ratelimit" => Key(&["limits.dns_udp_replies_per_second_max"], "");
    "server" "rrl-slip" => Key(&["limits.dns_udp_slip"], "");
    "server" "hide-version" | "hide-identity" => Default("`version.bind` and `id.server` are refused, unless there is a key");
    "server" "answer-cookie" => Default("cookies are on; the secret is in a file, or the server makes it");
    "server" "cookie-secret" | "cookie-staging-secret" => NotYet("the secret is in a file",
        "write it into a file, and set `cookie_secret_file`");
    "server" "minimal-responses" | "refuse-any" | "round-robin" | "confine-to-zone" | "ipv4-edns-size" | "ipv6-edns-size" |
        "do-ip4" | "do-ip6" | "reuseport" | "ip-transparent" | "ip-freebind" | "tcp-mss" | "outgoing-tcp-mss" |
        "send-buffer-size" | "receive-buffer-size" | "tcp-query-count" | "tcp-listen-queue" | "tcp-reject-overflow" |
        "drop-updates" | "log-time-*" | "rrl-*" | "xfrd-tcp-*" | "zone-stats*" | "metrics-*" => Default("own defaults and limits apply");
    "server" "cpu-affinity" | "server-*" | "xfrd-cpu-affinity" | "chroot" | "pidfile" | "logfile" | "log-only-syslog" |
        "verbosity" | "debug-mode" | "statistics" | "ip4-only" | "ip6-only" => Unneeded(PROCESS);
    "server" "database" | "zonelistfile" | "xfrdfile" | "xfrdir" | "difffile" | "xfrd-reload-timeout" | "zonefiles-check" |
        "zonefiles-write" | "reload-config" | "xfrd-*" => Unneeded(STATE);
    "server" "tls-*" => NotYet("certificates belong to a domain", "add `certificate` to a domain, and `tls` to [dns]");
    "server" "proxy-protocol-port" | "proxy_protocol_port" | "allow-proxy" | "xdp-*" | "setfib" | "bindtodevice" =>
        NotYet("queries come over UDP and TCP of the kernel", "listen on other addresses");
    "remote-control" "*" => Unneeded("a socket of the file system controls the server");
    "key" "name" | "algorithm" | "secret" => Key(&["tsig.algorithm", "tsig.secret_file"], "the secret is in a file");
    "pattern, zone" "name" | "include-pattern" => Key(&["domain.zone"], "patterns are read into the zones that include them");
    "pattern, zone" "zonefile" => Key(&["domain.zone"], "transferred zones are in the state folder");
    "pattern, zone" "request-xfr" => Key(&["domain.primaries"], "");
    "pattern, zone" "provide-xfr" => Key(&["domain.transfer_allow"], "`BLOCKED` is reported");
    "pattern, zone" "notify" => Key(&["domain.secondaries"], "");
    "pattern, zone" "catalog" | "catalog-member-pattern" | "catalog-producer-zone" => Key(&["catalog.primaries", "catalog.secondaries"], "");
    "pattern, zone" "allow-notify" => Default("NOTIFY is accepted from the primaries");
    "pattern, zone" "allow-query" => NotYet("queries for a zone are answered for everyone", "limit clients with a firewall");
    "pattern, zone" "outgoing-interface" => NotYet("the kernel chooses the source address",
        "set the source of the route: ip route … src ADDRESS");
    "pattern, zone" "store-ixfr" | "create-ixfr" | "ixfr-*" | "allow-axfr-fallback" | "notify-retry" | "size-limit-xfr" |
        "max-refresh-time" | "min-refresh-time" | "max-retry-time" | "min-retry-time" | "min-expire-time" |
        "multi-primary-check" | "multi-master-check" | "zonestats" | "rrl-whitelist" | "verify*" | "verifier*" =>
        Default("zones are checked, kept with a journal, and transferred by IXFR");
    "dnstap" "*" => NotYet("queries and replies are sent to a socket", "set `dnstap` in [log]");
    "verify" "*" => NotYet("no program verifies a zone", "zones are checked before they are served");
    "tls-auth" "*" => NotYet("zones are transferred over TCP without TLS", "transfer them with a key");
};
