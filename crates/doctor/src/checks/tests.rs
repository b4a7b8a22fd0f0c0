//! Each planted fault is named, with its remedy, and nothing else is: the facts of a server with which all is right are
//! changed in one place.

use super::*;
use crate::facts::{CheckProblem, CheckReport, Holder, OpenFileFacts, PortFacts, Running, ServerFacts, Transport};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use sanderling_agent::outside::{
    CaaView, ClockView, Connection, ConnectionView, Delegation, DsView, HostView, OutsideView, OwnAnswers, ParentView,
    Presented, ServerAnswer, ServerView, Trust, ZoneView,
};
use sanderling_config::{DomainName, Service};
use std::net::{IpAddr, SocketAddr};

const NOW: u64 = 1_800_000_000;
const DAY: u64 = 86_400;
const HOST: &str = "www.example.com";
const DS: &str = "12345 13 2 AB";

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn socket(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn own_answers() -> OwnAnswers {
    OwnAnswers {
        serial: 7,
        servers: vec!["ns1.example.com".to_owned(), "ns.example.net".to_owned()],
        addresses: vec![("ns1.example.com".to_owned(), ip("5.9.1.2"))],
        has_keys: true,
        wanted_ds: vec![DS.to_owned()],
    }
}

fn server_view(host: &str, address: &str) -> ServerView {
    let expires_unix_s = Some((NOW + 9 * DAY) as u32);
    let answer = ServerAnswer::Soa { serial: 7, expires_unix_s };
    ServerView { host: host.to_owned(), address: socket(address), answer, tcp_problem: None }
}

/// A server of the parent zone.
fn parent_view(address: &str) -> ParentView {
    ParentView {
        server: socket(address),
        delegation: Ok(Delegation::Servers {
            servers: vec!["ns.example.net".to_owned(), "ns1.example.com".to_owned()],
            glue: vec![("ns1.example.com".to_owned(), ip("5.9.1.2"))],
        }),
        ds: Ok(vec![DsView { text: DS.to_owned(), has_key: true }]),
    }
}

fn zone_view() -> ZoneView {
    let ParentView { delegation, ds: parent_ds, .. } = parent_view("5.9.8.1:53");
    // A server that answers nothing, and one that serves the zone too, are not compared.
    let silent = ParentView {
        delegation: Err("nothing arrives".to_owned()),
        ds: Err("nothing arrives".to_owned()),
        ..parent_view("5.9.8.3:53")
    };
    let of_both = ParentView { delegation: Ok(Delegation::Hidden), ..parent_view("5.9.8.4:53") };
    ZoneView {
        apex: DomainName::parse("example.com").expect("a name"),
        own: Ok(own_answers()),
        delegation,
        parent_ds,
        parents: vec![parent_view("5.9.8.1:53"), parent_view("5.9.8.2:53"), silent, of_both],
        servers: vec![server_view("ns1.example.com", "5.9.1.2:53"), server_view("ns.example.net", "5.9.7.7:53")],
        without_address: Vec::new(),
        forbidden: Vec::new(),
    }
}

/// The chain of a certificate for `name`, until `not_after` seconds since 1970, with or without its intermediate.
fn chain(name: &str, not_after_unix_s: u64, has_intermediate: bool) -> Presented {
    let authority = |name: &str| {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        params
    };
    let (root_key, key) = (KeyPair::generate().expect("a key"), KeyPair::generate().expect("a key"));
    let root = Issuer::new(authority("root"), root_key);
    let intermediate_key = KeyPair::generate().expect("a key");
    let intermediate = authority("intermediate").signed_by(&intermediate_key, &root).expect("signed");
    let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
    let date = |unix_s: u64| std::time::UNIX_EPOCH + std::time::Duration::from_secs(unix_s);
    params.not_before = date(NOW - 30 * DAY).into();
    params.not_after = date(not_after_unix_s).into();
    let leaf = params.signed_by(&key, &Issuer::new(authority("intermediate"), intermediate_key)).expect("signed");
    let mut chain = vec![leaf.der().to_vec()];
    chain.extend(has_intermediate.then(|| intermediate.der().to_vec()));
    Presented { chain, trust: if has_intermediate { Trust::Trusted } else { Trust::UnknownIssuer } }
}

fn host_view() -> HostView {
    let connection = |service: Service, address: &str| {
        let connection = match service.is_encrypted() {
            true => Connection::Encrypted(chain(HOST, NOW + 60 * DAY, true)),
            false => Connection::Accepted,
        };
        ConnectionView { service, address: socket(address), connection }
    };
    HostView {
        left_out_count: 0,
        host: DomainName::parse(HOST).expect("a name"),
        is_automatic: false,
        addresses: Ok(vec![ip("5.9.1.2"), ip("2a01:4f8::2")]),
        resolved: Some(Ok(vec![ip("2a01:4f8::2"), ip("5.9.1.2")])),
        connections: vec![
            connection(Service::Http, "5.9.1.2:80"),
            connection(Service::Https, "5.9.1.2:443"),
            connection(Service::Http, "[2a01:4f8::2]:80"),
            connection(Service::Https, "[2a01:4f8::2]:443"),
        ],
    }
}

/// The facts of a server with which all is right.
fn healthy() -> Facts {
    let port = |service, address: &str, transport| PortFacts {
        service,
        address: socket(address),
        transport,
        holder: Holder::Own,
        is_local: true,
        needs_root: false,
    };
    let clock = ClockView { server: "https://ca.example/".to_owned(), unix_s: NOW, own_unix_s: NOW };
    Facts {
        config_file: "sanderling.toml".to_owned(),
        check: Ok(CheckReport::default()),
        server: ServerFacts::Running(Running { pid: 10, process_pid: 12, problems: Vec::new() }),
        ports: vec![
            port(Service::Http, "0.0.0.0:80", Transport::Tcp),
            port(Service::Dns, "5.9.1.2:53", Transport::Udp),
        ],
        open_files: OpenFileFacts { limit: 524_288, is_of_server: true, problem: None },
        name: None,
        interfaces: ["127.0.0.1", "5.9.1.2", "2a01:4f8::2"].map(ip).to_vec(),
        has_proxies: false,
        outside: Some(Ok(OutsideView {
            zones: vec![zone_view()],
            hosts: vec![host_view()],
            left_out_count: 0,
            clock: Some(Ok(clock)),
        })),
        now_unix_s: NOW,
    }
}

impl Facts {
    fn view(&mut self) -> &mut OutsideView {
        self.outside.as_mut().expect("there").as_mut().expect("seen")
    }

    fn zone(&mut self) -> &mut ZoneView {
        &mut self.view().zones[0]
    }

    fn own(&mut self) -> &mut OwnAnswers {
        self.zone().own.as_mut().expect("answered")
    }

    fn host(&mut self) -> &mut HostView {
        &mut self.view().hosts[0]
    }

    /// Presents another chain at all addresses.
    fn present(&mut self, presented: &Presented) {
        for view in &mut self.host().connections {
            if view.service.is_encrypted() {
                view.connection = Connection::Encrypted(presented.clone());
            }
        }
    }

    /// A problem that `sanderling check` reports.
    fn problem(&mut self, severity: &str, problem: &str, remedy: &str) {
        let (line, column) = (Some(3), Some(1));
        let (place, severity) = ("sanderling.toml".to_owned(), severity.to_owned());
        let (problem, remedy) = (problem.to_owned(), remedy.to_owned());
        let problem = CheckProblem { severity, place, line, column, problem, remedy };
        self.check.as_mut().expect("a report").problems.push(problem);
    }
}

fn other(name: &str, address: &str) -> Holder {
    Holder::Other { name: name.to_owned(), pid: 812, address: socket(address) }
}

/// A fault: its name, how it changes the facts, the check that names it, a part of the text, and a part of the remedy.
type Fault = (&'static str, Plant, &'static str, &'static str, &'static str);
/// A change of the facts.
type Plant = fn(&mut Facts);

const FAULTS: &[Fault] = &[
    (
        "port 53 taken",
        |facts| {
            facts.server = ServerFacts::Running(Running::default());
            facts.ports[1].holder = other("systemd-resolve", "5.9.1.2:53");
        },
        "ports",
        "the program systemd-resolve (pid 812) has 5.9.1.2:53",
        "DNSStubListener=no",
    ),
    (
        "port 53 taken at another address",
        |facts| {
            facts.ports[1].address = socket("0.0.0.0:53");
            facts.ports[1].holder = other("systemd-resolve", "127.0.0.53:53");
        },
        "ports",
        "systemd-resolve (pid 812) has 127.0.0.53:53",
        "set `listen` in [dns] to the addresses of this machine",
    ),
    (
        "port 80 taken",
        |facts| facts.ports[0].holder = other("nginx", "0.0.0.0:80"),
        "ports",
        "the program nginx (pid 812) has 0.0.0.0:80",
        "systemctl disable --now nginx",
    ),
    (
        "address not bound",
        |facts| facts.ports[0].holder = Holder::None,
        "ports",
        "the running server does not listen there",
        "sanderling reload",
    ),
    (
        "address of another machine",
        |facts| {
            facts.ports[0].holder = Holder::None;
            facts.ports[0].is_local = false;
        },
        "ports",
        "this machine does not have the address",
        "correct `listen` in [http]",
    ),
    (
        "address of DNS over TLS of another machine",
        |facts| {
            facts.ports[0].service = Service::Dot;
            facts.ports[0].holder = Holder::None;
            facts.ports[0].is_local = false;
        },
        "ports",
        "this machine does not have the address",
        "correct `tls` in [dns]",
    ),
    (
        "configuration does not parse",
        |facts| facts.problem("error", "unknown key `lissten` in [http]", "did you mean `listen`?"),
        "configuration",
        "unknown key `lissten`",
        "did you mean `listen`?",
    ),
    (
        "zone file missing",
        |facts| facts.problem("error", "the zone file `a.zone` does not exist", "create it"),
        "configuration",
        "`a.zone` does not exist",
        "create it",
    ),
    (
        "state folder of another user",
        |facts| facts.problem("error", "/var/lib/sanderling belongs to user nobody", "chown -R"),
        "configuration",
        "belongs to user nobody",
        "chown",
    ),
    (
        "state folder of a later version",
        |facts| facts.problem("error", "it has the form 2", "install the later version"),
        "configuration",
        "the form 2",
        "install",
    ),
    (
        "secret readable by the server process",
        |facts| facts.problem("warning", "the server process can read the private key `a.key`", "move it"),
        "configuration",
        "the server process can read the private key",
        "move it",
    ),
    (
        "site not readable by the user of the server",
        |facts| facts.problem("error", "the user `sanderling` cannot read the site `public`", "chmod"),
        "configuration",
        "cannot read the site",
        "chmod",
    ),
    (
        "server not running",
        |facts| facts.server = ServerFacts::Absent("/run/sanderling/control.sock".to_owned()),
        "server",
        "it does not run: no server answers at /run/sanderling/control.sock",
        "sudo sanderling serve",
    ),
    (
        "server with problems",
        |facts| {
            let problems = vec!["zone example.com is kept".to_owned()];
            facts.server = ServerFacts::Running(Running { problems, ..Running::default() });
        },
        "server",
        "zone example.com is kept",
        "sanderling status",
    ),
    (
        "serial differs",
        |facts| {
            facts.zone().servers[1].answer = ServerAnswer::Soa { serial: 5, expires_unix_s: Some(NOW as u32 + 900) }
        },
        "name servers",
        "it has serial 5, and this server 7",
        "transfer_allow",
    ),
    (
        "name server does not answer",
        |facts| facts.zone().servers[1].answer = ServerAnswer::Silent("nothing arrives in 2 s".to_owned()),
        "name servers",
        "it does not answer over UDP: nothing arrives",
        "firewall",
    ),
    (
        "name server without TCP",
        |facts| facts.zone().servers[1].tcp_problem = Some("timed out".to_owned()),
        "name servers",
        "it accepts no connection over TCP: timed out",
        "TCP",
    ),
    (
        "name server refuses the zone",
        |facts| facts.zone().servers[1].answer = ServerAnswer::Lame("it answers REFUSED".to_owned()),
        "name servers",
        "it does not serve the zone: it answers REFUSED",
        "configure the zone there",
    ),
    (
        "name server without address",
        |facts| facts.zone().without_address.push("the name server x. has no known address: none".to_owned()),
        "name servers",
        "the name server x. has no known address",
        "correct the NS record",
    ),
    (
        "own zone not served",
        |facts| facts.zone().own = Err("it answers SERVFAIL".to_owned()),
        "name servers",
        "this server does not answer for it: it answers SERVFAIL",
        "zone status example.com",
    ),
    (
        "no delegation",
        |facts| facts.zone().delegation = Ok(Delegation::None),
        "delegation",
        "the parent zone does not have it",
        "at the registrar: ns1.example.com, ns.example.net",
    ),
    (
        "delegation to others",
        |facts| {
            let servers = vec!["ns.parking.example".to_owned()];
            facts.zone().delegation = Ok(Delegation::Servers { servers, glue: Vec::new() });
        },
        "delegation",
        "the parent zone refers to ns.parking.example, and the zone has ns1.example.com",
        "enter the name servers",
    ),
    (
        "glue differs",
        |facts| facts.own().addresses[0].1 = ip("5.9.1.9"),
        "glue",
        "the parent zone has 5.9.1.2, and the zone has 5.9.1.9",
        "enter the addresses",
    ),
    (
        "glue missing",
        |facts| match &mut facts.zone().delegation {
            Ok(Delegation::Servers { glue, .. }) => glue.clear(),
            other => panic!("{other:?}"),
        },
        "glue",
        "no address of it (glue)",
        "at the registrar: 5.9.1.2",
    ),
    (
        "a server of the parent zone with another delegation",
        |facts| {
            let servers = vec!["ns.parking.example".to_owned()];
            let glue = vec![("ns1.example.com".to_owned(), ip("5.9.1.2"))];
            facts.zone().parents[1].delegation = Ok(Delegation::Servers { servers, glue });
        },
        "delegation",
        "has ns.parking.example, and 5.9.8.1 has ns.example.net, ns1.example.com",
        "tell the registrar",
    ),
    (
        "a server of the parent zone without the delegation",
        |facts| facts.zone().parents[1].delegation = Ok(Delegation::None),
        "delegation",
        "this server of the parent zone lacks ns.example.net, ns1.example.com, which 5.9.8.1 has",
        "tell the registrar",
    ),
    (
        "a server of the parent zone with other glue",
        |facts| match &mut facts.zone().parents[1].delegation {
            Ok(Delegation::Servers { glue, .. }) => glue[0].1 = ip("5.9.1.9"),
            other => panic!("{other:?}"),
        },
        "glue",
        "has ns1.example.com at 5.9.1.9, and 5.9.8.1 has ns1.example.com at 5.9.1.2",
        "tell the registrar",
    ),
    (
        "a server of the parent zone without the DS record",
        |facts| facts.zone().parents[1].ds = Ok(Vec::new()),
        "DS",
        "this server of the parent zone lacks 12345 13 2 AB, which 5.9.8.1 has",
        "tell the registrar",
    ),
    (
        "DS without a key",
        |facts| facts.zone().parent_ds = Ok(vec![DsView { text: "1 13 2 CD".to_owned(), has_key: false }]),
        "DS",
        "the parent zone has 1 13 2 CD, which belongs to no key",
        DS,
    ),
    (
        "DS missing",
        |facts| facts.zone().parent_ds = Ok(Vec::new()),
        "DS",
        "the keys are ready, and the parent zone has no DS record",
        DS,
    ),
    (
        "DS of an unsigned zone",
        |facts| {
            facts.own().has_keys = false;
            for server in &mut facts.zone().servers {
                server.answer = ServerAnswer::Soa { serial: 7, expires_unix_s: None };
            }
        },
        "DS",
        "the zone is not signed, and the parent zone has 12345",
        "restore its backup",
    ),
    (
        "expired signature",
        |facts| {
            let expires_unix_s = Some((NOW - 3 * DAY) as u32);
            facts.zone().servers[0].answer = ServerAnswer::Soa { serial: 7, expires_unix_s };
        },
        "signatures",
        "its signatures expired 3 days ago",
        "dnssec status",
    ),
    (
        "server without signatures",
        |facts| facts.zone().servers[1].answer = ServerAnswer::Soa { serial: 7, expires_unix_s: None },
        "signatures",
        "it answers without signatures",
        "transfer the signed zone",
    ),
    (
        "clock behind",
        |facts| {
            let clock = ClockView { server: "https://ca.example/".to_owned(), unix_s: NOW + 600, own_unix_s: NOW };
            facts.view().clock = Some(Ok(clock));
        },
        "clock",
        "the clock is 600 s behind that of https://ca.example/",
        "timedatectl",
    ),
    (
        "clock ahead",
        |facts| {
            let clock = ClockView { server: "https://ca.example/".to_owned(), unix_s: NOW - 31, own_unix_s: NOW };
            facts.view().clock = Some(Ok(clock));
        },
        "clock",
        "the clock is 31 s ahead of that of",
        "timedatectl",
    ),
    (
        "certificate expired",
        |facts| facts.present(&chain(HOST, NOW - 2 * DAY, true)),
        "certificates",
        "the certificate expired 2 days ago",
        "renew",
    ),
    (
        "name that is not in the configuration",
        |facts| {
            facts.name = Some("nosuch.org".to_owned());
            facts.view().zones.clear();
            facts.view().hosts.clear();
        },
        "delegation",
        "the configuration has no zone or site with this name",
        "sanderling config",
    ),
    (
        "domain still at the earlier server",
        |facts| facts.host().resolved = Some(Ok(vec![ip("5.9.9.9")])),
        "addresses",
        "a resolver finds 5.9.9.9, and the zone of this server has 5.9.1.2 and 2a01:4f8::2",
        "at the registrar",
    ),
    (
        "certificate not renewed in time",
        |facts| facts.present(&chain(HOST, NOW + 3 * DAY, true)),
        "certificates",
        "the certificate expires in 3 days",
        "find out why it was not renewed",
    ),
    (
        "certificate for another name",
        |facts| facts.present(&chain("other.example", NOW + 60 * DAY, true)),
        "certificates",
        "the certificate is not valid for www.example.com",
        "request a certificate with this name",
    ),
    (
        "chain incomplete",
        |facts| facts.present(&chain(HOST, NOW + 60 * DAY, false)),
        "certificates",
        "the issuer of certificate 1, intermediate, is not in the chain",
        "fullchain",
    ),
    (
        "issuer without trust",
        |facts| facts.present(&Presented { trust: Trust::UnknownIssuer, ..self_signed() }),
        "certificates",
        "no trusted root has issued the certificate",
        "public authority",
    ),
    (
        "CAA forbids the authority",
        |facts| {
            let problem = "the CAA records at example.com forbid it".to_owned();
            let remedy = "add it to the zone";
            facts.zone().forbidden.push(CaaView { authority: "letsencrypt".to_owned(), problem, remedy });
        },
        "CAA",
        "letsencrypt may not issue a certificate: the CAA records",
        "add it to the zone",
    ),
    (
        "published address is not of this machine",
        |facts| facts.host().addresses.as_mut().expect("known").push(ip("5.9.9.9")),
        "addresses",
        "5.9.9.9 is not an address of this machine",
        "this machine has 5.9.1.2 and 2a01:4f8::2",
    ),
    (
        "host without an address",
        |facts| facts.host().addresses = Ok(Vec::new()),
        "addresses",
        "it has no address",
        "add A and AAAA records",
    ),
    (
        "published AAAA does not answer",
        |facts| facts.host().connections[2].connection = Connection::Failed("Connection refused".to_owned()),
        "connections",
        "no connection: Connection refused",
        "add \"[::]:80\" to `listen` in [http], or remove the AAAA record",
    ),
    (
        "published A does not answer",
        |facts| facts.host().connections[0].connection = Connection::Failed("timed out".to_owned()),
        "connections",
        "no connection: timed out",
        "firewall",
    ),
    (
        "no TLS",
        |facts| facts.host().connections[1].connection = Connection::NotEncrypted("alert".to_owned()),
        "connections",
        "no TLS: alert",
        "sanderling certificates",
    ),
    (
        "limit of open files too low",
        |facts| {
            facts.open_files.problem = Some("the limit of 64 file descriptors; raise it with LimitNOFILE=".to_owned());
        },
        "open files",
        "the limit of 64",
        "LimitNOFILE=",
    ),
];

/// A certificate that is its own issuer.
fn self_signed() -> Presented {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(vec![HOST.to_owned()]).expect("a name");
    let date = |unix_s: u64| std::time::UNIX_EPOCH + std::time::Duration::from_secs(unix_s);
    params.not_before = date(NOW - 30 * DAY).into();
    params.not_after = date(NOW + 60 * DAY).into();
    let certificate = params.self_signed(&key).expect("signed");
    Presented { chain: vec![certificate.der().to_vec()], trust: Trust::UnknownIssuer }
}

#[test]
fn nothing_is_wrong_with_a_healthy_server_and_every_check_says_so() {
    let findings = judge(&healthy());
    for finding in &findings {
        assert!(matches!(finding.verdict, Verdict::Good(_)), "{finding:?}");
    }
    for check in ROWS.iter().filter(|check| check.name != "CAA") {
        assert!(findings.iter().any(|finding| finding.check == check.name), "{}", check.name);
    }
}

#[test]
fn each_fault_is_named_with_its_remedy() {
    for (name, plant, check, text, remedy_part) in FAULTS {
        let mut facts = healthy();
        plant(&mut facts);
        let findings = judge(&facts);
        let wrong: Vec<&Finding> = findings.iter().filter(|finding| finding.verdict.is_wrong()).collect();
        assert!(!wrong.is_empty() && wrong.iter().all(|finding| finding.check == *check), "{name}: {wrong:?}");
        let is_named = wrong.iter().any(|finding| match &finding.verdict {
            Verdict::Wrong { what, remedy } => what.contains(text) && remedy.contains(remedy_part),
            _ => false,
        });
        assert!(is_named, "{name}: {wrong:?}");
    }
}

#[test]
fn unknown_is_not_wrong() {
    let plants: [(&str, Plant); 15] = [
        ("delegation", |facts| {
            facts.view().zones.clear();
            facts.view().hosts.clear();
        }),
        ("ports", |facts| {
            facts.server = ServerFacts::Unknown("run it as root".to_owned());
            facts.ports[0].holder = Holder::None;
            facts.ports[0].needs_root = true;
        }),
        ("delegation", |facts| facts.view().left_out_count = 3),
        ("addresses", |facts| facts.host().left_out_count = 3),
        ("clock", |facts| facts.view().clock = None),
        ("clock", |facts| facts.view().clock = Some(Err("no network".to_owned()))),
        ("delegation", |facts| facts.zone().delegation = Err("no resolver".to_owned())),
        ("delegation", |facts| facts.zone().delegation = Ok(Delegation::Hidden)),
        ("DS", |facts| facts.zone().parent_ds = Err("no resolver".to_owned())),
        ("name servers", |facts| facts.zone().servers[1].answer = ServerAnswer::NoRoute),
        ("connections", |facts| facts.host().connections[2].connection = Connection::NoRoute),
        ("addresses", |facts| facts.interfaces = vec![ip("10.0.0.5")]),
        ("addresses", |facts| facts.host().resolved = Some(Err("no resolver".to_owned()))),
        ("addresses", |facts| {
            facts.has_proxies = true;
            facts.host().addresses = Ok(vec![ip("5.9.9.9")]);
            facts.host().resolved = None;
        }),
        ("server", |facts| facts.server = ServerFacts::Unknown("run it as root".to_owned())),
    ];
    for (check, plant) in plants {
        let mut facts = healthy();
        plant(&mut facts);
        let findings = judge(&facts);
        assert!(findings.iter().all(|finding| !finding.verdict.is_wrong()), "{check}: {findings:?}");
        let is_unknown = |finding: &Finding| matches!(finding.verdict, Verdict::Unknown { .. });
        assert!(findings.iter().any(|finding| finding.check == check && is_unknown(finding)), "{check}: {findings:?}");
    }
}

/// `check` and `status` judge by the same times.
#[test]
fn certificate_that_is_to_be_renewed_later_is_good() {
    for (left_days, is_automatic, is_wrong) in [(4, false, false), (4, true, true), (3, false, true), (20, true, false)]
    {
        let mut facts = healthy();
        facts.present(&chain(HOST, NOW + left_days * DAY, true));
        facts.host().is_automatic = is_automatic;
        let found = judge(&facts).iter().any(|finding| finding.verdict.is_wrong());
        assert_eq!(found, is_wrong, "{left_days} days of {}", left_days + 30);
    }
}

#[test]
fn texts_of_others_have_no_effect_on_a_terminal() {
    const HOSTILE: &str = "\u{1b}]0;owned\u{7}\u{9b}31m\r\n\u{202e}";
    let plants: [Plant; 5] = [
        |facts| facts.ports[0].holder = other(HOSTILE, "0.0.0.0:80"),
        |facts| {
            let problems = vec![format!("zone {HOSTILE} is kept; run {HOSTILE}"), HOSTILE.to_owned()];
            facts.server = ServerFacts::Running(Running { problems, ..Running::default() });
        },
        |facts| facts.problem("error", HOSTILE, HOSTILE),
        |facts| facts.config_file = HOSTILE.to_owned(),
        |facts| facts.zone().servers[1].answer = ServerAnswer::Lame(HOSTILE.repeat(1_000)),
    ];
    for plant in plants {
        let mut facts = healthy();
        plant(&mut facts);
        for finding in judge(&facts) {
            let texts = match &finding.verdict {
                Verdict::Good(text) | Verdict::Unknown { why: text } => vec![text],
                Verdict::Wrong { what, remedy } => vec![what, remedy],
            };
            for text in texts.into_iter().chain([&finding.subject]) {
                assert!(!text.contains(|next: char| next.is_control() || next == '\u{202e}'), "{text:?}");
                assert!(text.chars().count() <= TEXT_CHARS_MAX + 1, "{} characters", text.len());
            }
        }
    }
}

#[test]
fn command_has_only_the_name_of_a_unit() {
    for (name, is_named) in
        [("nginx", true), ("a_b.c:d-e@", false), ("--now", false), ("a;reboot", false), ("é", false)]
    {
        let mut facts = healthy();
        facts.ports[0].holder = other(name, "0.0.0.0:80");
        let findings = judge(&facts);
        let remedy = findings.iter().find_map(|finding| match &finding.verdict {
            Verdict::Wrong { remedy, .. } => Some(remedy),
            _ => None,
        });
        let remedy = remedy.expect("the port is taken");
        assert_eq!(remedy.contains(name), is_named, "{remedy}");
        assert!(remedy.contains("kill "), "{remedy}");
    }
}

#[test]
fn remedy_of_the_server_is_shown_as_its_words() {
    let mut facts = healthy();
    let problems = vec!["the zone a.test is kept; create the file".to_owned()];
    facts.server = ServerFacts::Running(Running { problems, ..Running::default() });
    let expected = Verdict::wrong("the zone a.test is kept", "the server says: create the file");
    assert!(judge(&facts).iter().any(|finding| finding.verdict == expected));
}

#[test]
fn keys_that_are_not_ready_need_no_ds_record() {
    let mut facts = healthy();
    facts.own().wanted_ds.clear();
    facts.zone().parent_ds = Ok(Vec::new());
    assert!(judge(&facts).iter().all(|finding| !finding.verdict.is_wrong()));
}

#[test]
fn configuration_that_cannot_be_read_leaves_the_checks_of_the_machine() {
    let mut facts = healthy();
    facts.outside = None;
    facts.problem("error", "unclosed table", "expected `]`");
    let checks: Vec<&str> = judge(&facts).iter().map(|finding| finding.check).collect();
    assert_eq!(checks, ["configuration", "server", "ports", "ports", "open files"]);
}

#[test]
fn machines_elsewhere_are_told_what_to_ask() {
    let expected = [
        "dig +norec +notcp @5.9.1.2 example.com SOA",
        "dig +norec +tcp @5.9.1.2 example.com SOA",
        "curl -I https://www.example.com/",
    ];
    assert_eq!(only_from_elsewhere(&healthy()), expected);
}
