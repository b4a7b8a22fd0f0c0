//! The behaviour of a server as clients and the operator see it, without values that change from moment to moment.

use super::super::name_servers::SECRET;
use super::instance::{PORTS, Place};
use sanderling_testkit::{TestDirectory, curl, run_program};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

/// Each question, and the answer.
pub(super) type Fingerprint = BTreeMap<String, String>;

/// Time in which a server answers.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of a body that the fingerprint has as they are.
const SHOWN_BYTES_MAX: usize = 300;

/// Host, target and further fields of requests.
const REQUESTS: &[(&str, &str, &str)] = &[
    ("site.test", "/", ""),
    ("site.test", "/", "Origin: https://app.test\r\n"),
    ("site.test", "/about", ""),
    ("site.test", "/about.html", ""),
    ("site.test", "/plain.txt", "Accept-Encoding: gzip\r\n"),
    ("site.test", "/plain.txt", ""),
    ("site.test", "/old/page", ""),
    ("site.test", "/old/missing", ""),
    ("site.test", "/from/d", ""),
    ("site.test", "/more", ""),
    ("site.test", "/private/", ""),
    ("site.test", "/private/", "Authorization: Basic dXNlcjpwdw==\r\n"),
    ("site.test", "/secret/", ""),
    ("site.test", "/admin/", ""),
    ("site.test", "/admin/", "Forwarded: for=192.0.2.9\r\n"),
    ("site.test", "/admin/", "X-Forwarded-For: 192.0.2.9\r\n"),
    ("site.test", "/plain.txt", "Forwarded: for=192.0.2.9\r\n"),
    ("site.test", "/.hidden", ""),
    ("site.test", "/link.txt", ""),
    ("site.test", "/listed/", ""),
    ("site.test", "/api/", ""),
    ("site.test", "/health", ""),
    ("site.test", "/assets/app-0123456789abcdef.js", ""),
    ("site.test", "//index.html", ""),
    ("site.test", "/missing", "Accept: text/html\r\nSec-Fetch-Mode: navigate\r\n"),
    ("site.test", "/dns-query?dns=AAABAAABAAAAAAAAA3d3dwRzaXRlBHRlc3QAAAEAAQ", ""),
    ("site.test", "/ask?dns=AAABAAABAAAAAAAAA3d3dwRzaXRlBHRlc3QAAAEAAQ", ""),
    ("mta-sts.site.test", "/.well-known/mta-sts.txt", ""),
    ("www.site.test", "/", ""),
    ("web.site.test", "/", ""),
    ("a.wild.test", "/", ""),
    ("other.test", "/", ""),
    ("plain.test", "/", ""),
    ("small.test", "/", ""),
    ("unknown.test", "/", ""),
    ("192.0.2.1", "/", ""),
];
const ZONES: &[&str] = &[
    "site.test",
    "auto.test",
    "signed.test",
    "split.test",
    "plain.test",
    "told.test",
    "copy.test",
    "member.test",
    "members.test",
    "own.test",
    "folder.test",
    "another.test",
    "included.test",
    "small.test",
];
/// Queries for dig, each with its options.
const QUERIES: &[&str] = &[
    "one.plain.test A",
    "one.small.test A",
    "big.plain.test TXT +bufsize=4096 +ignore +notcp",
    "plain.test SOA +nsid +keepalive +tcp",
    "small.test SOA +nsid +keepalive +tcp",
    "elsewhere.invalid A +tcp",
    "version.bind CH TXT +tcp",
    "id.server CH TXT +tcp",
    "a.wild.signed.test TXT +dnssec",
    "split.test CDS +dnssec",
    "site.test HTTPS",
    "auto.test CAA",
];

/// A question that is asked on a thread of its own: on a slow machine each one waits for its turn.
type Probe<'p> = Box<dyn FnOnce() -> Vec<(String, String)> + Send + 'p>;

impl Place {
    /// The current fingerprint. `marker` identifies the expected log lines.
    pub(super) fn fingerprint(&self, marker: &str) -> Fingerprint {
        let sockets = self.sockets();
        let open: BTreeSet<u16> = sockets.keys().map(|(_, placeholder)| *placeholder).collect();
        let mut probes: Vec<Probe<'_>> = vec![Box::new(|| status(&self.directory))];
        open.iter().for_each(|placeholder| probes.extend(self.probes(*placeholder, marker)));
        let mut seen: Vec<(String, String)> = thread::scope(|scope| {
            let threads: Vec<_> = probes.into_iter().map(|probe| scope.spawn(probe)).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("answered")).collect()
        });
        seen.extend(sockets.into_iter().map(|(socket, count)| (format!("sockets {socket:?}"), count.to_string())));
        seen.extend(log_lines(&self.directory, marker));
        let of_any = |text: String| text.replace(&self.address.to_string(), "127.0.0.1");
        seen.into_iter().map(|(question, answer)| (of_any(question), of_any(answer))).collect()
    }

    /// The requests to an address.
    fn probes<'p>(&'p self, placeholder: u16, marker: &'p str) -> Vec<Probe<'p>> {
        let port = self.port(placeholder);
        let address = SocketAddr::from((self.address, port));
        let probe = move |name: &str, ask: fn(SocketAddr) -> String| -> Vec<Probe<'p>> {
            let name = format!("{name} {placeholder}");
            vec![Box::new(move || vec![(name, ask(address))])]
        };
        match placeholder % 1_000 {
            80 => vec![Box::new(move || http_responses(address, placeholder, marker))],
            443 => probe("https", https),
            90 => probe("metrics", metrics),
            53 => self.dns(port, marker),
            _ => vec![Box::new(move || {
                let queries = ["site.test", "signed.test", "unknown.test"].map(|zone| format!("{zone} SOA +dnssec"));
                vec![(format!("dot {placeholder}"), self.dig(port, "+tls +nsid", &queries))]
            })],
        }
    }

    /// The number of listening sockets, by protocol and port.
    fn sockets(&self) -> BTreeMap<(&'static str, u16), usize> {
        let mut counts = BTreeMap::new();
        for (kind, state) in [("tcp", "0A"), ("udp", "07")] {
            let table = fs::read_to_string(format!("/proc/net/{kind}")).expect("procfs");
            for line in table.lines().skip(1) {
                let words: Vec<&str> = line.split_whitespace().collect();
                let Some((address, port)) = words[1].split_once(':') else { continue };
                let address = u32::from_str_radix(address, 16).map(|number| Ipv4Addr::from(number.to_ne_bytes()));
                let port = u16::from_str_radix(port, 16);
                let placeholder = PORTS.iter().find(|placeholder| port == Ok(self.port(**placeholder)));
                if let (Some(placeholder), true, true) = (placeholder, address == Ok(self.address), words[3] == state) {
                    *counts.entry((kind, *placeholder)).or_default() += 1;
                }
            }
        }
        counts
    }

    /// The replies that dig gets, by the options of all queries.
    fn dns<'p>(&'p self, port: u16, marker: &'p str) -> Vec<Probe<'p>> {
        let mut queries: Vec<String> = QUERIES.iter().map(|query| (*query).to_owned()).collect();
        for zone in ZONES {
            queries.extend(["", "nope."].map(|name| format!("{name}{zone} SOA +dnssec")));
            queries.push(format!("{zone} AXFR"));
        }
        queries.extend(["plain.test", "small.test"].map(|zone| format!("{marker}.{zone} A")));
        let signed = || ["told.test AXFR", "site.test AXFR", "plain.test AXFR"].map(str::to_owned).to_vec();
        let with_key = |key: &str| format!("-y hmac-sha256:{key}:{SECRET}");
        let sets = [(String::new(), queries), (with_key("transfer"), signed()), (with_key("other"), signed())];
        let probe = |(options, queries): (String, Vec<String>)| -> Probe<'p> {
            Box::new(move || {
                let replies = self.dig(port, &options, &queries).replace(marker, "MARKER");
                vec![(format!("dns {port} {options}"), replies)]
            })
        };
        sets.into_iter().map(probe).collect()
    }

    fn dig(&self, port: u16, options: &str, queries: &[String]) -> String {
        let (at, port) = (format!("@{}", self.address), port.to_string());
        let mut arguments = vec!["-r", &at, "-p", &port, "+tries=2", "+time=3"];
        arguments.extend(options.split_whitespace().chain(queries.iter().flat_map(|query| query.split(' '))));
        dns_text(&run_program("dig", "bind9-dnsutils", &arguments).text())
    }
}

/// The heads of responses over TLS, with the certificates.
fn https(address: SocketAddr) -> String {
    let connect_to = format!("::{address}");
    let mut arguments = Vec::new();
    for version in ["--http1.1", "--http2"] {
        if !arguments.is_empty() {
            arguments.push("--next");
        }
        let form = "\n%{http_version} %{certs}\n";
        arguments.extend(["-k", "-sS", "-D", "-", version, "--connect-to", &connect_to, "-w", form]);
        for url in ["https://site.test/plain.txt", "https://other.test/", "https://auto.test/", "https://no.test/"] {
            arguments.extend(["-o", "/dev/null", url]);
        }
    }
    let got = curl(&arguments);
    head_text(&got.text()) + &got.errors
}

/// The responses to `REQUESTS`, after two with the marker.
fn http_responses(address: SocketAddr, placeholder: u16, marker: &str) -> Vec<(String, String)> {
    http(address, "site.test", &format!("/{marker}"), "Forwarded: for=192.0.2.9\r\n");
    http(address, "small.test", &format!("/{marker}"), "X-Forwarded-For: 192.0.2.9\r\n");
    let of_request = |(host, target, fields): &(&str, &str, &str)| {
        (format!("http {placeholder} {host}{target} {fields}"), http(address, host, target, fields))
    };
    let mut responses: Vec<_> = REQUESTS.iter().map(of_request).collect();
    responses.push((format!("http {placeholder} HTTP/2"), http2(address)));
    responses
}

/// The response to a GET request.
fn http(address: SocketAddr, host: &str, target: &str, fields: &str) -> String {
    let exchange = || {
        let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.write_all(
            format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{fields}\r\n").as_bytes(),
        )?;
        let mut response = Vec::new();
        stream.read_to_end(&mut response)?;
        std::io::Result::Ok(response)
    };
    let response = match exchange() {
        Ok(response) => response,
        Err(error) => return error.to_string(),
    };
    let end = response.windows(4).position(|window| window == b"\r\n\r\n").map_or(response.len(), |at| at + 4);
    let (head, body) = response.split_at(end);
    let body = match body.len() {
        0..=SHOWN_BYTES_MAX => String::from_utf8_lossy(body).into_owned(),
        length => {
            let mut hasher = DefaultHasher::new();
            body.hash(&mut hasher);
            format!("{length} bytes {:x}", hasher.finish())
        }
    };
    head_text(&String::from_utf8_lossy(head)) + &body
}

/// A head without the time.
fn head_text(head: &str) -> String {
    let is_kept = |line: &&str| {
        let line = line.to_ascii_lowercase();
        !["date:", "etag:"].iter().any(|name| line.starts_with(name))
    };
    head.lines().filter(is_kept).fold(String::new(), |text, line| text + line.trim_end() + "\n")
}

/// The first frame of an HTTP/2 connection without encryption, or what else the server sends.
fn http2(address: SocketAddr) -> String {
    let mut client = TcpStream::connect(address).expect("connected");
    client.set_read_timeout(Some(TIMEOUT)).expect("a time");
    client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").expect("sent");
    let mut start = [0; 9];
    let received = client.read_exact(&mut start);
    format!("{received:?} {}", start.escape_ascii())
}

/// The names of the metrics.
fn metrics(address: SocketAddr) -> String {
    let mut names = BTreeSet::new();
    let mut stream = TcpStream::connect(address).expect("connected");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("received");
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("# TYPE ") {
            names.insert(name.to_owned());
        }
    }
    names.into_iter().fold(String::new(), |text, name| text + &name + "\n")
}

/// A reply as dig prints it, without IDs, times, serials, signatures and keys.
fn dns_text(reply: &str) -> String {
    let mut text = String::new();
    for line in reply.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let kept = match words[..] {
            []
            | [";", "<<>>", ..]
            | [";;", "Query", ..]
            | [";;", "WHEN:", ..]
            | [";;", "MSG", ..]
            | [";;", "SERVER:", ..] => continue,
            [";", "COOKIE:", cookie, ..] => format!("COOKIE of {} digits", cookie.len()),
            [";;", "->>HEADER<<-", ..] => line.split(", id:").next().unwrap_or(line).to_owned(),
            [";;", "XFR", "size:", count, ..] => format!("XFR of {count} records"),
            [owner, ttl, "IN", "SOA", mname, rname, _, ref timers @ ..] => {
                format!("{owner} {ttl} SOA {mname} {rname} {timers:?}")
            }
            [owner, ttl, "IN", "RRSIG", covered, algorithm, labels, original, ..] => {
                format!("{owner} {ttl} RRSIG {covered} {algorithm} {labels} {original}")
            }
            [owner, ttl, "IN", rtype @ ("DNSKEY" | "CDNSKEY"), flags, protocol, algorithm, ..] => {
                format!("{owner} {ttl} {rtype} {flags} {protocol} {algorithm}")
            }
            [owner, ttl, "IN", rtype @ ("CDS" | "DS"), _, algorithm, ..] => {
                format!("{owner} {ttl} {rtype} {algorithm}")
            }
            [owner, ttl, "IN", "ZONEMD", _, scheme, algorithm, ..] => {
                format!("{owner} {ttl} ZONEMD {scheme} {algorithm}")
            }
            [owner, _, "ANY", "TSIG", ..] => format!("{owner} TSIG"),
            _ => words.join(" "),
        };
        text += &(kept + "\n");
    }
    text
}

/// The logs with their lines that have `marker`, without numbers of times.
fn log_lines(directory: &TestDirectory, marker: &str) -> impl Iterator<Item = (String, String)> {
    let mut found = BTreeMap::<String, BTreeSet<String>>::new();
    for entry in fs::read_dir(directory.path().join("logs")).expect("listed") {
        let entry = entry.expect("an entry");
        let lines = found.entry(without_numbers(&entry.file_name().to_string_lossy())).or_default();
        let text = String::from_utf8_lossy(&fs::read(entry.path()).unwrap_or_default()).into_owned();
        let marked = text.lines().filter(|line| line.contains(marker));
        let without_time = |line: &str| line.split('[').next().unwrap_or(line).replace(marker, "MARKER");
        lines.extend(marked.map(without_time));
    }
    found.into_iter().map(|(name, lines)| (format!("log {name}"), format!("{lines:#?}")))
}

/// The lines of the status, without counts and times.
fn status(directory: &TestDirectory) -> Vec<(String, String)> {
    const LEFT_OUT: &[&str] = &[
        "sanderling ",
        "server process",
        "configuration ",
        "restarts of",
        "requests ",
        "errors ",
        "other counts",
        "reloads ",
        "open files",
        "buffers ",
        "in ",
        "now",
        "and ",
        "access log",
        "query log",
        "memory",
    ];
    let ended = directory.control("status");
    let own = directory.path().display().to_string();
    let mut lines = vec![(format!("status {:?}", ended.code()), String::new())];
    for line in ended.text().lines().chain(ended.errors.lines()) {
        let line = line.replace(&own, "DIR");
        let line = line.split(", loaded ").next().unwrap_or_default().trim().to_owned();
        // Counters of unanswered attempts depend on the time.
        if LEFT_OUT.iter().any(|start| line.starts_with(start)) || line.contains(": NOTIFY of serial") {
            continue;
        }
        let kept = ["http ", "https ", "dns ", "dot ", "metrics "].iter().any(|start| line.starts_with(start));
        let line = if kept { line } else { without_numbers(&line) };
        lines.push((format!("status {line}"), String::new()));
    }
    lines
}

/// Each number as `#`, except how many records there are.
fn without_numbers(text: &str) -> String {
    let words = text.split(' ').collect::<Vec<_>>();
    let mut result = Vec::new();
    for (index, word) in words.iter().enumerate() {
        let is_count = words.get(index + 1).is_some_and(|next| next.starts_with("record"));
        if is_count {
            result.push((*word).to_owned());
            continue;
        }
        let mut text = String::new();
        for letter in word.chars() {
            match letter {
                '0'..='9' if text.ends_with('#') => {}
                '0'..='9' => text.push('#'),
                _ => text.push(letter),
            }
        }
        result.push(text);
    }
    result.join(" ")
}
