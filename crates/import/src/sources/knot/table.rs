//! The attributes of knot.conf.

use crate::table::Handling::{Default, Key, NotYet, Unneeded};
use crate::table::{Row, rows};

const PROCESS: &str = "the supervisor and the state folder do this";
const SIGNING: &str = "the server signs again, waits and replaces keys itself";
const NO_MODULE: &str = "there are no modules";

pub(crate) const TABLE: &[Row] = rows! {
    "top" "include" => Default("included files are read");
    "server" "listen" => Key(&["dns.listen"], "");
    "server" "user" => Key(&["user", "group"], "");
    "server" "identity" | "nsid" => Key(&["dns.nsid"], "");
    "server" "version" => Key(&["dns.version"], "");
    "server" "udp-workers" => Key(&["workers"], "");
    "server" "tcp-max-clients" => Key(&["limits.dns_tcp_connections_max"], "");
    "server" "tcp-idle-timeout" => Key(&["limits.dns_tcp_idle_timeout"], "");
    "server" "automatic-acl" => Key(&["domain.secondaries"], "");
    "server" "listen-tls" | "cert-file" | "key-file" => NotYet("certificates belong to a domain",
        "add `certificate` to a domain, and `tls` to [dns]");
    "server" "listen-quic" | "listen-xdp" | "quic-*" | "proxy-allowlist" => NotYet("queries come over UDP, TCP, TLS and HTTPS",
        "listen on other addresses");
    "server" "*" => Unneeded("own defaults and limits apply");
    "xdp" "*" => NotYet("queries come from the network stack of the kernel", "listen on UDP");
    "control, database, statistics, log, keystore" "*" => Unneeded(PROCESS);
    "key" "id" | "algorithm" | "secret" | "comment" => Key(&["tsig.algorithm", "tsig.secret_file"], "the secret is in a file");
    "remote" "id" | "address" | "key" | "comment" => Key(&["domain.primaries", "domain.secondaries"], "");
    "remote" "via" => NotYet("the kernel chooses the source address", "set the source of the route: ip route … src ADDRESS");
    "remote" "quic" | "tls" | "cert-key" | "cert-hostname" => NotYet("zones are transferred over TCP without TLS", "transfer them with a key");
    "remote" "block-notify-after-transfer" | "no-edns" | "automatic-acl" => Default("NOTIFY follows each version");
    "remotes" "*" => Default("lists of servers are read");
    "acl" "id" | "address" | "key" | "action" | "remote" | "update-type" | "update-owner" | "update-owner-match" |
        "update-owner-name" | "deny" | "comment" => Key(&["domain.transfer_allow", "domain.update"], "`deny` is reported");
    "acl" "cert-key" | "cert-hostname" | "protocol" => NotYet("clients are not asked for certificates", "use a key");
    "policy" "id" | "algorithm" | "single-type-signing" | "nsec3" | "ksk-lifetime" | "zsk-lifetime" | "dnskey-ttl" =>
        Key(&["domain.dnssec"], "");
    "policy" "*" => Unneeded(SIGNING);
    "submission, dnskey-sync, external" "*" => Unneeded(SIGNING);
    "template, zone" "id" | "domain" | "template" => Key(&["domain.zone"], "templates are read into the zones that name them");
    "template, zone" "file" | "storage" => Key(&["domain.zone"], "transferred zones are in the state folder");
    "template, zone" "master" => Key(&["domain.primaries"], "");
    "template, zone" "notify" => Key(&["domain.secondaries"], "");
    "template, zone" "acl" => Key(&["domain.transfer_allow", "domain.update"], "");
    "template, zone" "dnssec-signing" | "dnssec-policy" | "serial-policy" => Key(&["domain.dnssec"], "");
    "template, zone" "zonemd-generate" => Key(&["domain.dnssec"], "of a signed zone");
    "template, zone" "catalog-role" | "catalog-template" | "catalog-zone" | "catalog-group" =>
        Key(&["catalog.primaries", "catalog.secondaries"], "without groups");
    "template, zone" "module" => NotYet(NO_MODULE, "cookies, rate limits and query logs have keys of [dns], [limits] and [log]");
    "template, zone" "ddns-master" => NotYet("updates are not passed on", "send them to the primary");
    "template, zone" "include-from" | "reverse-generate" => NotYet("records are not made of other zones", "write them into the zone file");
    "template, zone" "*" => Default("zones are checked, kept with a journal, and transferred by IXFR");
};
