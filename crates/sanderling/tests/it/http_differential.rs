//! Identical requests to this program and to nginx. Each difference is explained by a row of `EXPLANATIONS`, and each
//! row explains one.
//!
//! Compared are the status, the fields that the meaning of the response depends on, the content, and whether the next
//! request on the connection is answered: that shows where a server sees the end of a request.

mod cases;

use std::collections::BTreeMap;
use std::fs::File;
use std::time::{Duration, SystemTime};

use crate::domain::Domain;
use crate::nginx::Nginx;
use cases::Case;
use sanderling_testkit::{RawConnection, TestDirectory, run_program};

const CASE_COUNT_MIN: usize = 400;
/// Sent after each request.
const NEXT: &str = "GET /next.txt HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
/// Of all files: 13 November 2023, 22:13:20.
const MODIFIED: Duration = Duration::from_secs(1_699_913_600);
/// Compared where both responses are successful; Content-Range and Location in all.
const FIELDS: [&str; 6] =
    ["Content-Length", "Content-Type", "Last-Modified", "Accept-Ranges", "Content-Encoding", "Vary"];

/// The reason why both servers may answer differently: the rule that this program follows.
struct Explanation {
    rule: &'static str,
    applies: fn(&Case, &Difference) -> bool,
}

macro_rules! explanations {
    ($($rule:literal: |$case:tt, $difference:tt| $applies:expr;)*) => {
        &[$(Explanation { rule: $rule, applies: |$case, $difference| $applies }),*]
    };
}

/// The first row that applies explains a difference.
const EXPLANATIONS: &[Explanation] = explanations! {
    "RFC 9110 §14.2: a range applies to GET only":
        |case, difference| case.is("HEAD", "Range: ") && difference.ours.starts_with("200");
    "RFC 9110 §14.2: an invalid Range is ignored, as is any of an empty file":
        |case, difference| case.has("\r\nRange: ") && difference.is_status("200", &["416"]);
    "RFC 9110 §14.2: a Range is ignored that is invalid, repeated, or has more or longer parts than are sent":
        |case, difference| case.has("\r\nRange: ") && difference.is_status("200", &["206"]);
    "RFC 9110 §14.1.2 and §5.6.1.2: a position beyond the end is the end, and empty members of a list are ignored":
        |case, difference| case.has("\r\nRange: ") && difference.is_status("206", &["416"]);
    "RFC 9110 §15.3.7.2: ranges that overlap or are near become one":
        |case, difference| case.has("\r\nRange: ") && case.has(",")
            && difference.ours.starts_with("206") && difference.what != "Accept-Ranges";
    "RFC 9110 §14.3: Accept-Ranges says that ranges are supported":
        |_, difference| difference.what == "Accept-Ranges";
    "RFC 9110 §12.5.5: Vary says that a file may later be sent compressed, also before that was done":
        |_, difference| difference.what == "Vary" && difference.ours.ends_with(" Accept-Encoding")
            && difference.theirs.ends_with(' ');
    "RFC 9110 §5.3: repeated lines of a list are one list":
        |case, difference| (case.repeats("If-") && difference.theirs == "400")
            || (case.repeats("Accept-Encoding") && difference.is_of_coding());
    "RFC 9110 §12.5.3: of the codings with the highest weight one is sent, whatever the version of the request is":
        |case, difference| difference.is_of_coding() && (case.has(";q=0.5, identity") || case.has(" HTTP/1.0\r\n"));
    "RFC 9110 §12.5.3: `*` stands for any coding":
        |case, difference| difference.is_of_coding() && case.has("Accept-Encoding: *\r\n");
    "RFC 9110 §8.4.1.3: x-gzip is gzip":
        |case, difference| difference.is_of_coding() && case.has("Accept-Encoding: x-gzip\r\n");
    "RFC 9110 §12.5.3: what is no coding names none":
        |case, difference| difference.is_of_coding() && case.has("Accept-Encoding: a gzip\r\n");
    "RFC 9110 §14.2: a range is one of the selected representation, also of one with a coding":
        |case, difference| case.is("GET /coded.txt ", "Accept-Encoding: gzip\r\nRange: ")
            && ["206", "416"].contains(&&*difference.ours) && difference.theirs == "200";
    "RFC 9110 §13.2.2: If-Match precedes If-Unmodified-Since, and If-None-Match precedes If-Modified-Since":
        |case, difference| (case.has("If-Match: ") && case.has("If-Unmodified-Since: ") && difference.theirs == "412")
            || (case.has("If-None-Match: ") && case.has("If-Modified-Since: ") && difference.is_status("304", &["200"]));
    "RFC 9110 §13.1.3: a later date is not before the modification":
        |case, difference| case.has("If-Modified-Since: ") && difference.is_status("304", &["200"]);
    "RFC 9110 §13.1.4: an invalid date is ignored":
        |case, difference| case.has("If-Unmodified-Since: ") && difference.is_status("200", &["412"]);
    "RFC 9110 §9.3.7: OPTIONS is answered":
        |case, difference| case.is("OPTIONS", "") && difference.is_status("204", &["405", "400"]);
    "RFC 9110 §15.6.2: an unknown method gets 501":
        |_, difference| difference.is_status("501", &["405", "400"]);
    "RFC 9110 §15.5.6: the method is refused before the file is looked up":
        |case, difference| case.is("POST", "") && difference.is_status("405", &["301", "404"]);
    "RFC 9110 §9.3.6: an origin server without CONNECT refuses the method":
        |case, difference| case.is("CONNECT", "") && difference.is_status("405", &["400"]);
    "RFC 9112 §9.3: the connection persists after a response whose request has a known end":
        |_, difference| difference.what == "next" && difference.ours.ends_with(" answered")
            && ["405", "412"].iter().any(|status| difference.ours.starts_with(status));
    "RFC 9110 §10.1.1: an unknown expectation gets 417, and without content 100 is omitted":
        |case, difference| case.has("Expect: ") && (difference.ours == "417" || difference.is_status("200", &["100"]));
    "RFC 9112 §6.3: 400 if chunked is not the last transfer coding":
        |case, difference| case.has("Transfer-Encoding:") && difference.is_status("400", &["501"]);
    "RFC 9112 §7.1: an invalid chunk is refused, also before a response that does not need the content":
        |case, difference| case.has("Transfer-Encoding: chunked") && difference.is_status("400", &["200", "405"]);
    "RFC 9110 §15.6.6: another major version gets 505":
        |_, difference| difference.is_status("505", &["400"]);
    "RFC 9112 §3: a request line has a version":
        |_, difference| difference.is_status("400", &["no head"]);
    "RFC 6585 §5: each server has its own limits of the header section":
        |case, difference| (case.has("Long: ") || case.repeats("A: "))
            && (difference.ours == "431" || difference.is_status("200", &["400"]));
    "RFC 9110 §15.5.20: a host of no site is misdirected":
        |_, difference| difference.is_status("421", &["200", "400"]);
    "RFC 9110 §15.5.5: a directory without an index does not exist":
        |_, difference| difference.is_status("404", &["403"]);
    "RFC 9110 §15.4.9: the URL of a file has no slash at its end; others are redirected to it":
        |case, difference| case.has(".txt/ ") && difference.is_status("308", &["404"]);
    "RFC 9110 §7.4: another scheme than that of the connection is refused":
        |case, difference| (case.has("GET https:") || case.has("GET ftp:")) && difference.is_status("400", &["200"]);
    "RFC 9112 §3.2: an invalid Host gets 400":
        |case, difference| case.is("GET / HTTP/1.1", "\r\nHost: ") && !case.has("Host: localhost\r\n")
            && difference.is_status("400", &["200"]);
    "RFC 9112 §3.2: an invalid target gets 400; no site has a name with a backslash":
        |case, difference| case.is("GET /", " HTTP/1.1\r\nHost: localhost\r\n\r\n")
            && difference.is_status("400", &["200", "404"]);
    "RFC 9112 §2.2, §2.3 and §3: of the lenient forms of a request line only two empty lines before it are accepted":
        |case, difference| (!case.has(" HTTP/1.1\r\n") || case.has("  ") || case.is("\r\n", ""))
            && difference.is_status("400", &["200"]);
    "RFC 9110 §5.1 and §5.5: a field name is a token, and a value has no control bytes":
        |case, difference| case.is("GET /ten-thousand.txt HTTP/1.1\r\nHost: localhost\r\n", ": ")
            && difference.is_status("400", &["200"]);
};

/// The compared parts of an answer, by name.
type Answer = BTreeMap<&'static str, String>;

#[derive(Debug)]
struct Difference {
    what: &'static str,
    /// The status and the value.
    ours: String,
    theirs: String,
}

impl Difference {
    fn is_status(&self, ours: &str, theirs: &[&str]) -> bool {
        self.what == "status" && self.ours == ours && theirs.contains(&&*self.theirs)
    }

    /// Whether one of the servers has sent the file with a coding, and the other one without.
    fn is_of_coding(&self) -> bool {
        ["Content-Encoding", "Content-Length", "content"].contains(&self.what)
    }
}

#[test]
fn each_difference_to_nginx_is_explained_by_a_rule() {
    let ten_thousand: Vec<u8> = (0..10_000).map(|index| b'a' + (index % 23) as u8).collect();
    let text = "a line that is repeated\n".repeat(100);
    let plain = TestDirectory::with(&[("coded.txt", text.as_bytes())]);
    let gzip = run_program("gzip", "gzip", &["--stdout", "--no-name", &plain.argument("coded.txt")]).output;
    let files: [(&str, &[u8]); 10] = [
        ("index.html", b"<!doctype html><title>hello</title>\n"),
        ("ten-thousand.txt", &ten_thousand),
        ("empty.txt", b""),
        ("coded.txt", text.as_bytes()),
        ("coded.txt.gz", &gzip),
        ("next.txt", b"the next response\n"),
        ("docs/index.html", b"<!doctype html><title>docs</title>\n"),
        ("docs/a b.txt", b"a space\n"),
        ("no-index/a.txt", b"a\n"),
        (".well-known/security.txt", b"Contact: mailto:a@example.com\n"),
    ];
    let domain = Domain::with_site(&files);
    let root = domain.directory.path().join("public");
    for (path, _) in files {
        let modified = SystemTime::UNIX_EPOCH + MODIFIED;
        File::options().append(true).open(root.join(path)).and_then(|file| file.set_modified(modified)).expect("set");
    }
    let http = "charset utf-8;\ncharset_types text/plain;\ngzip_static on;\ngzip_vary on;\n\
                types { text/html html; text/plain txt; application/gzip gz; }";
    let nginx = Nginx::start(&domain.directory, http, "root public;");
    let ours = |request: &[u8]| {
        let mut connection = RawConnection::open(domain.server.http());
        connection.send(request);
        connection.finish_sending();
        connection.read_to_close()
    };
    let theirs = |request: &[u8]| nginx.exchange(request);
    let tags = [tag(ours), tag(theirs)];

    let cases = cases::all();
    assert!(cases.len() >= CASE_COUNT_MIN, "{} requests", cases.len());
    let (mut unexplained, mut used) = (Vec::new(), vec![0; EXPLANATIONS.len()]);
    for case in &cases {
        let answers = [answer(ours, case, &tags[0]), answer(theirs, case, &tags[1])];
        for difference in differences(&answers[0], &answers[1]) {
            match EXPLANATIONS.iter().position(|explanation| (explanation.applies)(case, &difference)) {
                Some(index) => used[index] += 1,
                None => {
                    let Difference { what, ours, theirs } = &difference;
                    let request = case.bytes("TAG");
                    unexplained.push(format!("{}\n  {what}: {ours:.99} | {theirs:.99}", request.escape_ascii()));
                }
            }
        }
    }
    let report: String =
        EXPLANATIONS.iter().zip(&used).map(|(row, count)| format!("{count:5} {}\n", row.rule)).collect();
    println!("{} requests; differences:\n{report}", cases.len());
    assert!(unexplained.is_empty(), "{} unexplained:\n{}", unexplained.len(), unexplained.join("\n"));
    assert!(!used.contains(&0), "a row explains nothing:\n{report}");
}

fn differences(ours: &Answer, theirs: &Answer) -> Vec<Difference> {
    let status = |answer: &Answer| answer.get("status").cloned().unwrap_or_default();
    let shown = |answer: &Answer, name| format!("{} {}", status(answer), answer.get(name).cloned().unwrap_or_default());
    if status(ours) != status(theirs) {
        return vec![Difference { what: "status", ours: status(ours), theirs: status(theirs) }];
    }
    let names = ours.keys().chain(theirs.keys()).collect::<std::collections::BTreeSet<_>>();
    let differing = names.into_iter().filter(|name| ours.get(*name) != theirs.get(*name));
    differing.map(|name| Difference { what: name, ours: shown(ours, name), theirs: shown(theirs, name) }).collect()
}

fn tag(exchange: impl Fn(&[u8]) -> Vec<u8>) -> String {
    let received = exchange(b"GET /ten-thousand.txt HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let received = String::from_utf8(received).expect("ASCII");
    let tag = received.lines().find_map(|line| line.strip_prefix("ETag: ")).expect("an entity tag");
    tag.to_owned()
}

fn answer(exchange: impl Fn(&[u8]) -> Vec<u8>, case: &Case, tag: &str) -> Answer {
    let received = exchange(&[case.bytes(tag), NEXT.as_bytes().to_vec()].concat());
    let mut answer = Answer::new();
    let Some((head, rest)) = split_head(&received) else {
        answer.insert("status", if received.is_empty() { "none" } else { "no head" }.to_owned());
        return answer;
    };
    let field = |name: &str| {
        let lines = head.split("\r\n").filter_map(|line| line.split_once(": "));
        lines.filter(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned()).next()
    };
    let status = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let has_body = !case.is_head() && !matches!(&*status, "204" | "304");
    let length = field("Content-Length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let body = if has_body { &rest[..rest.len().min(length)] } else { &[] };
    let next = if rest[body.len()..].is_empty() { "not answered" } else { "answered" };
    answer.insert("next", next.to_owned());
    let is_success = status.starts_with('2');
    for name in FIELDS.into_iter().filter(|_| is_success).chain(["Content-Range", "Location"]) {
        if let Some(value) = field(name) {
            answer.insert(name, value);
        }
    }
    let content_type = answer.get("Content-Type").cloned().unwrap_or_default();
    if let Some((multipart, boundary)) = content_type.split_once("boundary=") {
        // The boundary, and so the length, is each server's own.
        let parts = String::from_utf8_lossy(body).replace(boundary, "BOUNDARY");
        let lines = parts.split("\r\n").filter(|line| !line.starts_with("Content-Type"));
        answer.insert("parts", lines.collect::<Vec<_>>().join("\n"));
        answer.insert("Content-Type", multipart.to_owned());
        answer.remove("Content-Length");
    } else if is_success {
        answer.insert("content", String::from_utf8_lossy(body).into_owned());
    }
    answer.insert("status", status);
    answer
}

fn split_head(received: &[u8]) -> Option<(String, &[u8])> {
    let end = received.windows(4).position(|window| window == b"\r\n\r\n")?;
    Some((String::from_utf8_lossy(&received[..end]).into_owned(), &received[end + 4..]))
}
