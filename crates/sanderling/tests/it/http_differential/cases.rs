//! The requests.

/// A request, in which `TAG` stands for the entity tag of `ten-thousand.txt`.
pub(super) struct Case {
    request: String,
}

const TARGET: &str = "/ten-thousand.txt";

impl Case {
    fn new(request: &str) -> Case {
        Case { request: request.replace('\n', "\r\n") }
    }

    pub(super) fn bytes(&self, tag: &str) -> Vec<u8> {
        // Of a byte above 0x7f only that byte is sent.
        self.request.replace("TAG", tag).chars().map(|char| char as u8).collect()
    }

    pub(super) fn is_head(&self) -> bool {
        self.request.starts_with("HEAD ")
    }

    pub(super) fn has(&self, part: &str) -> bool {
        self.request.contains(part)
    }

    /// Whether several lines start like this.
    pub(super) fn repeats(&self, start: &str) -> bool {
        let mut lines: Vec<_> = self.request.lines().filter(|line| line.starts_with(start)).collect();
        let count = lines.len();
        lines.iter_mut().for_each(|line| *line = line.split(':').next().unwrap_or_default());
        lines.sort_unstable();
        lines.dedup();
        lines.len() < count
    }

    /// Whether the request begins with `start` and contains `part`.
    pub(super) fn is(&self, start: &str, part: &str) -> bool {
        self.request.starts_with(start) && self.request.contains(part)
    }
}

/// All requests.
pub(super) fn all() -> Vec<Case> {
    let all = [methods(), paths(), ranges(), preconditions(), codings(), versions(), hosts(), framing(), malformed()];
    all.iter().flatten().map(|request| Case::new(request)).collect()
}

fn get(target: &str, fields: &str) -> String {
    format!("GET {target} HTTP/1.1\nHost: localhost\n{fields}\n")
}

fn methods() -> Vec<String> {
    let mut requests = Vec::new();
    for method in
        ["GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE", "TRACE", "PATCH", "PROPFIND", "BREW", "get", "M-S"]
    {
        for target in ["/", TARGET, "/empty.txt", "/docs", "/docs/", "/missing"] {
            requests.push(format!("{method} {target} HTTP/1.1\nHost: localhost\n\n"));
        }
    }
    requests.push("OPTIONS * HTTP/1.1\nHost: localhost\n\n".to_owned());
    requests.push("GET * HTTP/1.1\nHost: localhost\n\n".to_owned());
    requests.push("CONNECT localhost:80 HTTP/1.1\nHost: localhost:80\n\n".to_owned());
    requests
}

fn paths() -> Vec<String> {
    let targets = [
        "/index.html",
        "/docs?a=b",
        "/docs?//evil.example",
        "/docs/?a",
        "/docs/a%20b.txt",
        "/docs/a b.txt",
        "/docs/a+b.txt",
        "/no-index",
        "/no-index/",
        "/no-index/a.txt",
        "/no-index/a.txt/",
        "/empty.txt/",
        "/.well-known/security.txt",
        "/%69ndex.html",
        "/%2569ndex.html",
        "/ten-thousand.txt?range",
        "/ten-thousand.txt#fragment",
        "/?",
        "/?a?b",
        "//",
        "//index.html",
        "///docs//",
        "//docs",
        "/docs//a%20b.txt",
        "/./index.html",
        "/docs/.",
        "/docs/./",
        "/docs/..",
        "/docs/../",
        "/docs/../index.html",
        "/docs/../../index.html",
        "/..",
        "/../index.html",
        "/../",
        "/%2e%2e/index.html",
        "/docs/%2e%2e/index.html",
        "/docs/%2E./index.html",
        "/docs%2findex.html",
        "/docs%2f",
        "/docs%2F..%2findex.html",
        "/..%2findex.html",
        "/%2f",
        "/%2findex.html",
        "/missing/../index.html",
        "/missing/",
        "/%00",
        "/index.html%00",
        "/%zz",
        "/%",
        "/%2",
        "/docs/%5c",
        "/docs/\\",
        "/docs/..%5cindex.html",
        "/\u{e9}",
        "/%e9",
        "/%c3%a9",
        "/a\tb",
        "/a\"b",
        "/a<b>",
        "/a[1].txt",
        "/a|b",
        "/a{b}",
        "/a^b",
        "/a`b",
        "/index.html?%zz",
        "/index.html?a b",
        "/index.html?\u{e9}",
        "/~",
        "/a:b",
        "/index.html;a",
        "/INDEX.HTML",
        "/index",
        "/index.html.",
        "/docs/index.html",
        "docs",
        "",
        "?a",
        "#",
    ];
    let mut requests: Vec<String> = targets.iter().map(|target| get(target, "")).collect();
    requests.extend(('!'..='~').map(|byte| get(&format!("/index.html?{byte}"), "")));
    for length in [255, 256, 4_000, 6_000, 9_000, 20_000] {
        requests.push(get(&format!("/{}", "a".repeat(length)), ""));
        requests.push(get(&format!("/?{}", "a".repeat(length)), ""));
    }
    requests.push(get(&format!("/{}index.html", "a/../".repeat(100)), ""));
    requests.push(get(&format!("/{}index.html", "/".repeat(1_000)), ""));
    requests
}

fn ranges() -> Vec<String> {
    let all = [
        "bytes=0-0",
        "bytes=0-99",
        "bytes=9999-9999",
        "bytes=9990-",
        "bytes=-1",
        "bytes=-10000",
        "bytes=-10001",
        "bytes=-0",
        "bytes=0-",
        "bytes=0-9999",
        "bytes=0-10000",
        "bytes=0-99999999999999999999999",
        "bytes=10000-",
        "bytes=10000-10001",
        "bytes=99999999999999999999-",
        "bytes=5-4",
        "bytes=",
        "bytes=-",
        "bytes",
        "bytes=a-b",
        "bytes=1",
        "bytes=1-a",
        "bytes=--1",
        "bytes=+1-2",
        "bytes=0x1-2",
        "bytes= 0-1",
        "bytes =0-1",
        "bytes=0-1 ",
        "bytes=0 - 1",
        "BYTES=0-1",
        "bYtEs=0-1",
        "items=0-1",
        "none",
        "bytes=0-1,",
        "bytes=,0-1",
        "bytes=0-1,,",
        "bytes=0-99,200-299",
        "bytes=200-299,0-99",
        "bytes=0-0,-1",
        "bytes=0-1,4-5",
        "bytes=0-99,50-149",
        "bytes=0-99,0-99",
        "bytes=0-99, 1000-1099 ,5000-",
        "bytes=0-99,10000-",
        "bytes=10000-,10001-",
        "bytes=0-99,a",
        "bytes=0-99,5-4",
        "bytes=0-4999,5081-9999",
        "bytes=0-,0-",
        "bytes=-1,-2,-3",
    ];
    let mut requests = Vec::new();
    for range in all {
        requests.push(get(TARGET, &format!("Range: {range}\n")));
        requests.push(get(TARGET, &format!("Range: {range}\n")).replacen("GET", "HEAD", 1));
    }
    for range in ["bytes=0-", "bytes=0-0", "bytes=-1", "bytes=-0", "bytes=5-", "bytes=0-0,5-5"] {
        requests.push(get("/empty.txt", &format!("Range: {range}\n")));
    }
    let many = |count: usize| (0..count).map(|index| format!("{0}-{0}", 200 * index)).collect::<Vec<_>>().join(",");
    for count in [15, 16, 17, 50] {
        requests.push(get(TARGET, &format!("Range: bytes={}\n", many(count))));
    }
    requests.push(get(TARGET, "Range: bytes=0-1\nRange: bytes=4-5\n"));
    requests.push(get("/missing", "Range: bytes=0-1\n"));
    requests.push(get("/docs", "Range: bytes=0-1\n"));
    for if_range in ["TAG", "W/TAG", "\"other\"", "*", "TAG, TAG", SAME, EARLIER, LATER, "yesterday", ""] {
        for range in ["bytes=0-0", "bytes=10000-", "bytes=0-99,200-299", "bytes=a"] {
            requests.push(get(TARGET, &format!("Range: {range}\nIf-Range: {if_range}\n")));
        }
    }
    requests
}

const SAME: &str = "Mon, 13 Nov 2023 22:13:20 GMT";
const EARLIER: &str = "Mon, 13 Nov 2023 22:13:19 GMT";
const LATER: &str = "Mon, 13 Nov 2023 22:13:21 GMT";

fn preconditions() -> Vec<String> {
    let mut requests = Vec::new();
    let if_match = ["", "If-Match: TAG\n", "If-Match: \"other\"\n"];
    let if_unmodified_since =
        [String::new(), format!("If-Unmodified-Since: {SAME}\n"), format!("If-Unmodified-Since: {EARLIER}\n")];
    let if_none_match = ["", "If-None-Match: TAG\n", "If-None-Match: \"other\"\n"];
    let if_modified_since =
        [String::new(), format!("If-Modified-Since: {SAME}\n"), format!("If-Modified-Since: {EARLIER}\n")];
    for im in if_match {
        for ius in &if_unmodified_since {
            for inm in if_none_match {
                for ims in &if_modified_since {
                    requests.push(get(TARGET, &[im, ius, inm, ims].concat()));
                }
            }
        }
    }
    for value in
        ["*", "W/TAG", "\"other\", TAG", "TAG,", ", TAG", "\"a,b\", TAG", "unquoted", "TAG x", "w/TAG", "\"TAG", ""]
    {
        for name in ["If-Match", "If-None-Match"] {
            requests.push(get(TARGET, &format!("{name}: {value}\n")));
            requests.push(get("/missing", &format!("{name}: {value}\n")));
        }
    }
    requests.push(get(TARGET, "If-None-Match: \"other\"\nIf-None-Match: TAG\n"));
    requests.push(get(TARGET, "If-Match: \"other\"\nIf-Match: TAG\n"));
    for date in [
        LATER,
        "Monday, 13-Nov-23 22:13:20 GMT",
        "Mon Nov 13 22:13:20 2023",
        "Fri, 31 Dec 9999 23:59:59 GMT",
        "now",
        "0",
    ] {
        for name in ["If-Modified-Since", "If-Unmodified-Since"] {
            requests.push(get(TARGET, &format!("{name}: {date}\n")));
        }
    }
    for method in ["HEAD", "POST", "OPTIONS"] {
        requests.push(get(TARGET, "If-None-Match: TAG\n").replacen("GET", method, 1));
        requests.push(get(TARGET, "If-Match: \"other\"\n").replacen("GET", method, 1));
    }
    requests.push(get("/docs", "If-None-Match: *\n"));
    requests.push(get(TARGET, "Range: bytes=0-0\nIf-None-Match: TAG\n"));
    requests.push(get(TARGET, "Range: bytes=0-0\nIf-Match: \"other\"\n"));
    requests.push(get(TARGET, "Range: bytes=10000-\nIf-None-Match: TAG\n"));
    requests
}

/// `coded.txt` has a file with the coding gzip next to it.
fn codings() -> Vec<String> {
    let mut requests = Vec::new();
    for accepted in [
        "gzip",
        "GZIP",
        "x-gzip",
        "gzip;q=1",
        "gzip;q=0.001",
        "gzip;q=0",
        "gzip;q=0.000",
        "gzip; q=0",
        "gzip;q=0.5, identity",
        "gzip, identity;q=0.5",
        "gzip;q=2",
        "gzip;q=x",
        "gzip;level=9",
        "br",
        "br, gzip",
        "br;q=1.0, gzip;q=0.8, *;q=0.1",
        "zstd, br, deflate",
        "*",
        "*;q=0",
        "gzip, *;q=0",
        "gzip;q=0, *",
        "identity",
        "identity;q=0",
        "identity;q=0, gzip",
        "",
        ",gzip,",
        "gzipped",
        "a gzip",
    ] {
        requests.push(get("/coded.txt", &format!("Accept-Encoding: {accepted}\n")));
    }
    let gzip = "Accept-Encoding: gzip\n";
    requests.push(get("/coded.txt", ""));
    requests.push(get("/coded.txt.gz", ""));
    requests.push(get("/coded.txt.gz", gzip));
    requests.push(get("/coded.txt", gzip).replacen("GET", "HEAD", 1));
    requests.push(get("/coded.txt", gzip).replacen("1.1", "1.0", 1));
    requests.push(get("/coded.txt", "Accept-Encoding: br\nAccept-Encoding: gzip\n"));
    for range in ["bytes=0-9", "bytes=-10", "bytes=50-", "bytes=5000-", "bytes=0-9,20-29"] {
        requests.push(get("/coded.txt", &format!("{gzip}Range: {range}\n")));
        requests.push(get("/coded.txt", &format!("Range: {range}\n")));
    }
    requests.push(get("/coded.txt", &format!("{gzip}If-Modified-Since: {SAME}\n")));
    requests.push(get("/coded.txt", &format!("{gzip}If-None-Match: TAG\n")));
    requests.push(get("/coded.txt", &format!("{gzip}Range: bytes=0-9\nIf-Range: {SAME}\n")));
    requests
}

fn versions() -> Vec<String> {
    let mut requests = Vec::new();
    for version in [
        "HTTP/1.1",
        "HTTP/1.0",
        "HTTP/1.2",
        "HTTP/1.9",
        "HTTP/2.0",
        "HTTP/0.9",
        "HTTP/3.0",
        "HTTP/1",
        "HTTP/1.10",
        "http/1.1",
        "HTTPS/1.1",
    ] {
        requests.push(format!("GET {TARGET} {version}\nHost: localhost\n\n"));
    }
    for connection in
        ["close", "keep-alive", "Keep-Alive", "CLOSE", "keep-alive, close", "upgrade", "", "TE", "close, TE"]
    {
        for version in ["1.0", "1.1"] {
            requests.push(format!("GET {TARGET} HTTP/{version}\nHost: localhost\nConnection: {connection}\n\n"));
        }
    }
    requests.push(format!("GET {TARGET}\n"));
    requests.push(format!("GET {TARGET}\n\n"));
    requests
}

fn hosts() -> Vec<String> {
    let mut requests = Vec::new();
    for host in
        ["localhost", "LOCALHOST", "localhost:80", "localhost:8080", "127.0.0.1", "[::1]", "[::1]:80", "localhost."]
    {
        requests.push(format!("GET / HTTP/1.1\nHost: {host}\n\n"));
    }
    for host in [
        "",
        " ",
        "a b",
        "a/b",
        "a@localhost",
        "localhost:",
        "localhost:a",
        "localhost:65536",
        "local,host",
        "[::1",
        "[x]",
        "..",
        "a..b",
    ] {
        requests.push(format!("GET / HTTP/1.1\nHost: {host}\n\n"));
    }
    requests.push("GET / HTTP/1.1\n\n".to_owned());
    requests.push("GET / HTTP/1.0\n\n".to_owned());
    requests.push("GET / HTTP/1.1\nHost: localhost\nHost: localhost\n\n".to_owned());
    requests.push("GET / HTTP/1.1\nHost: localhost\nHost: other\n\n".to_owned());
    for target in [
        "http://localhost/",
        "http://localhost:8080/",
        "HTTP://localhost/",
        "http://localhost",
        "http://localhost?a",
        "https://localhost/",
        "ftp://localhost/",
        "http:///",
        "http://a@localhost/",
        "http://localhost/docs",
        "http://localhost//docs",
    ] {
        requests.push(get(target, ""));
        requests.push(format!("GET {target} HTTP/1.1\nHost: other.example\n\n"));
    }
    requests
}

fn framing() -> Vec<String> {
    let mut requests = Vec::new();
    let bodies = [
        ("Content-Length: 0\n", ""),
        ("Content-Length: 5\n", "hello"),
        ("Content-Length: 05\n", "hello"),
        ("Content-Length: +5\n", "hello"),
        ("Content-Length: -1\n", ""),
        ("Content-Length: 5, 5\n", "hello"),
        ("Content-Length: 5\nContent-Length: 5\n", "hello"),
        ("Content-Length: 5\nContent-Length: 6\n", "hello"),
        ("Content-Length: 0x5\n", "hello"),
        ("Content-Length: 5 5\n", "hello"),
        ("Content-Length:\n", ""),
        ("Content-Length: five\n", "hello"),
        ("Content-Length: 99999999999999999999\n", ""),
        ("Transfer-Encoding: chunked\n", "0\n\n"),
        ("Transfer-Encoding: chunked\n", "5\nhello\n0\n\n"),
        ("Transfer-Encoding: Chunked\n", "0\n\n"),
        ("Transfer-Encoding: chunked\n", "5;a=b\nhello\n0\n\n"),
        ("Transfer-Encoding: chunked\n", "5;\nhello\n0\n\n"),
        ("Transfer-Encoding: chunked\n", "5 \nhello\n0\n\n"),
        ("Transfer-Encoding: chunked\n", "0\nA: b\n\n"),
        ("Transfer-Encoding: chunked\n", "x\n"),
        ("Transfer-Encoding: chunked\n", "-5\nhello\n0\n\n"),
        ("Transfer-Encoding: chunked\n", "5\nhello0\n\n"),
        ("Transfer-Encoding: chunked\n", "0x5\nhello\n0\n\n"),
        ("Transfer-Encoding: chunked\n", "fffffffffffffffff\nhello\n0\n\n"),
        ("Transfer-Encoding: chunked\n", "00005\nhello\n000\n\n"),
        ("Transfer-Encoding: chunked\nContent-Length: 5\n", "0\n\n"),
        ("Content-Length: 5\nTransfer-Encoding: chunked\n", "0\n\n"),
        ("Transfer-Encoding: gzip\n", ""),
        ("Transfer-Encoding: gzip, chunked\n", "0\n\n"),
        ("Transfer-Encoding: chunked, gzip\n", "0\n\n"),
        ("Transfer-Encoding: identity\n", ""),
        ("Transfer-Encoding: chunked\nTransfer-Encoding: chunked\n", "0\n\n"),
        ("Transfer-Encoding: xchunked\n", "0\n\n"),
        ("Transfer-Encoding:\n", ""),
        ("Transfer-Encoding : chunked\n", "0\n\n"),
        ("Expect: 100-continue\nContent-Length: 0\n", ""),
        ("Expect: tea\n", ""),
        ("Expect: 100-continue\n", ""),
    ];
    for (fields, body) in bodies {
        for method in ["GET", "POST"] {
            requests.push(get(TARGET, fields).replacen("GET", method, 1) + body);
        }
    }
    requests.push(format!(
        "GET {TARGET} HTTP/1.0\nHost: localhost\nConnection: keep-alive\nTransfer-Encoding: chunked\n\n0\n\n"
    ));
    requests.push(format!("GET {TARGET} HTTP/1.0\nConnection: keep-alive\nContent-Length: 5\n\nhello"));
    requests
}

fn malformed() -> Vec<String> {
    let mut requests: Vec<String> = [
        "\n",
        "\n\n",
        "\n\n\n",
        " GET / HTTP/1.1\n",
        "GET  / HTTP/1.1\n",
        "GET /  HTTP/1.1\n",
        "GET / HTTP/1.1 \n",
        "GET\t/ HTTP/1.1\n",
        "GET / \n",
        "GET /\n",
        "/ HTTP/1.1\n",
        "G@T / HTTP/1.1\n",
        "GET / HTTP/1.1 x\n",
    ]
    .iter()
    .map(|line| {
        if line.trim().is_empty() {
            get(TARGET, "").replacen("GET", &format!("{line}GET"), 1)
        } else {
            format!("{line}Host: localhost\n\n")
        }
    })
    .collect();
    for field in [
        "No colon\n",
        ": no name\n",
        "Space : a\n",
        " Leading: a\n",
        "Folded: a\n b\n",
        "Folded: a\n\tb\n",
        "Empty:\n",
        "Tab:\ta\t\n",
        "Under_score: a\n",
        "Quote\": a\n",
        "Null: a\0b\n",
        "Null\0: a\n",
        "Control: a\u{1}b\n",
        "Delete: a\u{7f}b\n",
        "High: a\u{e9}b\n",
        "H\u{e9}: a\n",
        "Bare: a\rb\n",
        "Dots.: a\n",
        "A: b\n\u{b}\n",
        "(a): b\n",
        "A,b: c\n",
    ] {
        requests.push(get(TARGET, field));
    }
    for count in [50, 99, 101, 200] {
        requests.push(get(TARGET, &"A: b\n".repeat(count)));
    }
    for length in [1_000, 7_000, 12_000, 17_000, 40_000] {
        requests.push(get(TARGET, &format!("Long: {}\n", "a".repeat(length))));
    }
    requests.push(get(TARGET, &format!("{}: a\n", "a".repeat(500))));
    requests
}
