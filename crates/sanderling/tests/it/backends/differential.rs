//! The same requests to this program and to nginx as proxies in front of one application: what it sees. Each difference
//! is explained by a row of `EXPLANATIONS`, and each row explains one.

mod cases;

use super::{Proxy, accept_with, route};
use crate::nginx::Nginx;
use sanderling_testkit::{RawConnection, TestDirectory};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

const CASE_COUNT_MIN: usize = 60;

/// Why an application may see something else: the rule that this program follows.
struct Explanation {
    rule: &'static str,
    applies: fn(&str, &Difference) -> bool,
}

macro_rules! explanations {
    ($($rule:literal: |$case:tt, $difference:tt| $applies:expr;)*) => {
        &[$(Explanation { rule: $rule, applies: |$case, $difference| $applies }),*]
    };
}

/// The first row that applies explains a difference.
const EXPLANATIONS: &[Explanation] = explanations! {
    "RFC 9110 §7.6.3: a proxy adds Via":
        |_, difference| difference.what == "via";
    "RFC 7239: a proxy names the client in Forwarded and X-Forwarded-*, and replaces what strangers say":
        |_, difference| difference.what == "forwarded" || difference.what.starts_with("x-forwarded-")
            || difference.what == "x-real-ip";
    "RFC 9110 §7.6.1: the fields of a connection, and those that Connection names, are not passed on":
        |case, difference| difference.ours.is_empty() && (["connection", "te", "trailer", "proxy-connection", "keep-alive",
            "upgrade", "http2-settings", "proxy", "proxy-authorization"].contains(&&*difference.what)
            || case.to_ascii_lowercase().contains("connection: x-own"));
    "RFC 9110 §7.8: an upgrade is passed on to the application":
        |case, difference| case.contains("Upgrade: websocket") && ["connection", "upgrade"].contains(&&*difference.what);
    "RFC 9110 §10.1.1: the proxy answers an expectation, which it knows":
        |case, difference| case.contains("Expect: ") && (difference.what == "expect" || difference.is_status("417", &["200"]));
    "RFC 9112 §7.1: content without a length is passed on as it arrives, in chunks":
        |case, difference| case.contains("Transfer-Encoding: ")
            && ["content-length", "transfer-encoding"].contains(&&*difference.what);
    "RFC 9110 §8.6: the absence of content is stated where it is expected":
        |case, difference| difference.what == "content-length" && difference.ours == "0" && !case.starts_with("GET");
    "RFC 9113 §8.2.3: cookies are one line":
        |case, difference| difference.what == "cookie" && case.matches("Cookie: ").count() > 1;
    "RFC 9112 §6.3: ambiguous framing gets 400":
        |case, difference| (case.contains("Content-Length") || case.contains("Transfer-Encoding"))
            && difference.ours == "400" && difference.what == "status";
    "RFC 3986 §6.2.2.3: dot segments are refused, since an application might resolve them otherwise":
        |case, difference| ["/../", "/./", "%2e", "..%2f"].iter().any(|part| case.to_ascii_lowercase().contains(part))
            && difference.what == "status" && difference.ours == "400";
    "RFC 9112 §3.2 and §2.2: what is not exactly a request line gets 400":
        |case, difference| difference.is_status("400", &["200"]) && !case.starts_with("GET / HTTP/1.1\r\nHost: example.com\r\n");
    "RFC 9110 §5.1 and §5.5: a field name is a token, and a value has no control bytes":
        |case, difference| difference.is_status("400", &["200"]) && case.starts_with("GET / HTTP/1.1\r\nHost: example.com\r\n");
    "RFC 9110 §9.1: a method is any token, in upper or lower case":
        |case, difference| case.starts_with("get ") && difference.is_status("200", &["400"]);
    "RFC 9110 §4.2.3: a host is passed on as it was received":
        |case, difference| difference.what == "host" && case.contains("EXAMPLE");
    "RFC 9112 §3.2: a request has a Host, which is empty if it is unknown":
        |case, difference| difference.what == "host" && !case.contains("Host: ");
    "RFC 9110 §5.1: a field name is any token":
        |case, difference| ["x_own", "x.own"].contains(&&*difference.what) && case.contains(": 1");
    "RFC 9110 §15.5.20: a host of no site is misdirected":
        |_, difference| difference.is_status("421", &["200"]);
};

/// What an application has seen, or the status of the response that came from the proxy.
type Seen = BTreeMap<String, String>;

#[derive(Debug)]
struct Difference {
    what: String,
    ours: String,
    theirs: String,
}

impl Difference {
    fn is_status(&self, ours: &str, theirs: &[&str]) -> bool {
        self.what == "status" && self.ours == ours && theirs.contains(&&*self.theirs)
    }
}

#[test]
fn each_difference_to_nginx_that_an_application_sees_is_explained_by_a_rule() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let own = Arc::clone(&log);
    let address = accept_with(move |stream| while record(&stream, &own).is_some() {});
    let proxy = Proxy::new(&route("/", &format!("proxy = \"{address}\"")));
    let server = format!(
        "location / {{\nproxy_pass http://{address};\nproxy_http_version 1.1;\nproxy_ignore_client_abort on;\n\
         proxy_set_header Host $http_host;\nproxy_set_header Connection \"\";\n\
         proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n}}"
    );
    let directory = TestDirectory::new();
    let nginx = Nginx::start(&directory, "", &server);
    let take = || std::mem::take(&mut *log.lock().expect("no holder panics"));
    let ours = |request: &[u8]| {
        let mut connection = RawConnection::open(proxy.http());
        let _ = connection.try_send(request);
        connection.finish_sending();
        connection.read_to_close()
    };
    let cases = cases::all();
    assert!(cases.len() >= CASE_COUNT_MIN);
    let (mut unexplained, mut used, mut same) = (Vec::new(), vec![0; EXPLANATIONS.len()], 0);
    for case in &cases {
        let seen = [seen(&ours(case.as_bytes()), &take()), seen(&nginx.exchange(case.as_bytes()), &take())];
        let differences = differences(&seen[0], &seen[1]);
        same += usize::from(
            differences.iter().all(|difference| EXPLANATIONS[..2].iter().any(|row| (row.applies)(case, difference))),
        );
        for difference in differences {
            match EXPLANATIONS.iter().position(|explanation| (explanation.applies)(case, &difference)) {
                Some(index) => used[index] += 1,
                None => unexplained.push(format!("{}\n  {difference:?}", case.escape_debug())),
            }
        }
    }
    let report: String =
        EXPLANATIONS.iter().zip(&used).map(|(row, count)| format!("{count:5} {}\n", row.rule)).collect();
    println!("{} requests, {same} of them seen alike; differences:\n{report}", cases.len());
    assert!(unexplained.is_empty(), "{} unexplained:\n{}", unexplained.len(), unexplained.join("\n"));
    assert!(!used.contains(&0), "a row explains nothing:\n{report}");
}

fn differences(ours: &Seen, theirs: &Seen) -> Vec<Difference> {
    let value = |seen: &Seen, name: &str| seen.get(name).cloned().unwrap_or_default();
    let differing =
        |name: &str| Difference { what: name.to_owned(), ours: value(ours, name), theirs: value(theirs, name) };
    if value(ours, "status") != value(theirs, "status") {
        return vec![differing("status")];
    }
    let names: std::collections::BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
    names.into_iter().filter(|name| ours.get(*name) != theirs.get(*name)).map(|name| differing(name)).collect()
}

/// What the application has seen of a request, by which the proxy got this response.
fn seen(response: &[u8], recorded: &[Seen]) -> Seen {
    let text = String::from_utf8_lossy(response);
    let finals = text.split("HTTP/1.1 ").skip(1).filter(|rest| !rest.starts_with("100"));
    let statuses: Vec<&str> = finals.filter_map(|rest| rest.get(..3)).collect();
    let mut seen = Seen::new();
    match recorded {
        [] => {}
        [first] => seen = first.clone(),
        several => drop(seen.insert("requests".to_owned(), several.len().to_string())),
    }
    seen.insert("status".to_owned(), statuses.join(" "));
    seen
}

/// Reads a request, records it and answers; `None` at the end of the connection.
fn record(stream: &TcpStream, log: &Mutex<Vec<Seen>>) -> Option<()> {
    // The proxies send nothing after a request before its response.
    let mut reader = BufReader::new(stream);
    let mut line = || {
        let mut line = Vec::new();
        reader.read_until(b'\n', &mut line).ok()?;
        line.strip_suffix(b"\r\n").map(|line| String::from_utf8_lossy(line).into_owned())
    };
    let mut seen = Seen::from([("line".to_owned(), line()?)]);
    while let Some((name, value)) = line()?.split_once(':') {
        let values = seen.entry(name.to_ascii_lowercase()).or_default();
        *values = format!("{values}{}{}", if values.is_empty() { "" } else { "|" }, value.trim());
    }
    let mut content = Vec::new();
    if let Some(length) = seen.get("content-length").and_then(|length| length.parse().ok()) {
        content.resize(length, 0);
        reader.read_exact(&mut content).ok()?;
    } else if seen.contains_key("transfer-encoding") {
        loop {
            let mut size = String::new();
            reader.read_line(&mut size).ok()?;
            let size = usize::from_str_radix(size.trim(), 16).ok()?;
            let mut chunk = vec![0; size + 2];
            reader.read_exact(&mut chunk).ok()?;
            content.extend_from_slice(&chunk[..size]);
            if size == 0 {
                break;
            }
        }
    }
    let is_head = seen["line"].starts_with("HEAD ");
    seen.insert("content".to_owned(), String::from_utf8_lossy(&content).into_owned());
    log.lock().expect("no holder panics").push(seen);
    let content = if is_head { "" } else { "seen" };
    let mut stream = stream;
    stream.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n{content}").as_bytes()).ok()
}
