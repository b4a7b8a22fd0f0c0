//! What each kind of request is answered with.

use sanderling_http::{
    FileMetadata, FileTime, HttpDate, LookupError, Negotiation, Parsed, Representation, RequestLimits, SitePath,
    parse_request, respond,
};

use crate::site::{answer, check, etag};

#[test]
fn a_file_comes_whole_with_all_its_fields_in_their_order() {
    let request = b"GET /index.html HTTP/1.1\r\nHost: example.com\r\n\r\n";
    let answer = answer(request).expect("an answer");
    let etag = format!("ETag: {}", etag("index.html"));
    assert_eq!(
        answer.lines,
        [
            "HTTP/1.1 200 OK",
            "Server: sanderling",
            "Date: Sun, 06 Nov 1994 08:49:37 GMT",
            "Content-Length: 36",
            "Content-Type: text/html; charset=utf-8",
            "Last-Modified: Sat, 05 Nov 1994 08:49:37 GMT",
            "Accept-Ranges: bytes",
            "X-Content-Type-Options: nosniff",
            &etag,
            "Cache-Control: no-cache",
        ]
    );
    assert_eq!(answer.content, "file 0+36");
    assert_eq!(answer.head_bytes, Some(request.len()));
    assert!(!answer.is_close);
}

#[test]
fn head_gets_the_head_of_get_and_no_content() {
    for path in ["/index.html", "/empty.txt", "/huge.bin", "/docs", "/missing", "/.hidden"] {
        let both = ["GET", "HEAD"].map(|method| {
            answer(format!("{method} {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).expect("an answer")
        });
        assert_eq!(both[0].lines, both[1].lines, "{path}");
        assert_eq!(both[1].content, "none", "{path}");
    }
}

#[test]
fn an_empty_file_has_a_length_of_zero() {
    check("GET /empty.txt HTTP/1.1\nHost: a\n\n", &["HTTP/1.1 200 OK", "Content-Length: 0", "> none"]);
}

#[test]
fn a_path_is_decoded_once() {
    check("GET /a%20b.txt HTTP/1.1\nHost: a\n\n", &["HTTP/1.1 200 OK", "> file 0+36"]);
    check("GET /%69ndex.html?a=%2f&b[]=|{} HTTP/1.1\nHost: a\n\n", &["HTTP/1.1 200 OK"]);
    check("GET /a%2520b.txt HTTP/1.1\nHost: a\n\n", &["HTTP/1.1 404 Not Found"]);
}

#[test]
fn an_absolute_target_is_read_like_its_path() {
    check("GET http://Example.com/index.html HTTP/1.1\nHost: example.com:80\n\n", &["HTTP/1.1 200 OK"]);
    check("OPTIONS http://example.com HTTP/1.1\nHost: example.com\n\n", &["HTTP/1.1 204 No Content"]);
    check("GET HTTP://example.com?q HTTP/1.1\nHost: example.com\n\n", &["HTTP/1.1 404 Not Found"]);
}

#[test]
fn missing_files_get_a_page_and_the_connection_goes_on() {
    check(
        "GET /missing HTTP/1.1\nHost: a\n\n",
        &["HTTP/1.1 404 Not Found", "Content-Type: text/html; charset=utf-8", "!Connection", "!ETag"],
    );
}

#[test]
fn hidden_files_are_missing_but_well_known_ones_are_not() {
    for path in ["/.git/config", "/.env", "/docs/.htaccess", "/docs/.well-known/a", "/.well-known/.a", "/..."] {
        check(&format!("GET {path} HTTP/1.1\nHost: a\n\n"), &["HTTP/1.1 404 Not Found"]);
    }
    check("GET /.well-known/security.txt HTTP/1.1\nHost: a\n\n", &["HTTP/1.1 200 OK"]);
}

#[test]
fn a_folder_is_redirected_to_its_slash_by_a_path() {
    check(
        "GET /docs HTTP/1.1\nHost: example.com\n\n",
        &["HTTP/1.1 301 Moved Permanently", "Location: /docs/", "!ETag"],
    );
    check("GET /d%6fcs?a=/b?c&d=%0d HTTP/1.1\nHost: a\n\n", &["Location: /docs/?a=/b?c&d=%0d"]);
    check("GET http://evil.example/docs HTTP/1.1\nHost: evil.example\n\n", &["Location: /docs/"]);
    check("GET /gr%c3%b6%C3%9fe HTTP/1.1\nHost: a\n\n", &["Location: /gr%C3%B6%C3%9Fe/"]);
}

/// H13: `//` would be the address of another host.
#[test]
fn even_the_root_is_redirected_to_one_slash() {
    let request = b"GET /?q HTTP/1.1\r\nHost: a\r\n\r\n";
    let Ok(Parsed::Complete { request, .. }) = parse_request(request, &RequestLimits::default()) else {
        panic!("no request")
    };
    let root = SitePath::parse(b"/").expect("the root");
    let mut head = Vec::new();
    respond(&request, Err(LookupError::Directory(&root))).write_head(&HttpDate::from_unix_s(0), &mut head);
    assert!(String::from_utf8_lossy(&head).contains("\r\nLocation: /?q\r\n"));
}

#[test]
fn methods_that_do_not_suit_a_file_are_told_which_do() {
    for method in ["POST", "PUT", "DELETE", "TRACE", "PATCH"] {
        check(
            &format!("{method} /index.html HTTP/1.1\nHost: a\n\n"),
            &["HTTP/1.1 405 Method Not Allowed", "Allow: GET, HEAD, OPTIONS", "!Connection"],
        );
    }
    for method in ["get", "BREW", "PROPFIND", "M-SEARCH"] {
        check(&format!("{method} / HTTP/1.1\nHost: a\n\n"), &["HTTP/1.1 501 Not Implemented", "!Connection"]);
    }
    check(
        "CONNECT example.com:443 HTTP/1.1\nHost: example.com:443\n\n",
        &["HTTP/1.1 405 Method Not Allowed", "Connection: close"],
    );
}

#[test]
fn options_tells_the_methods_and_sends_nothing() {
    for target in ["*", "/", "/missing"] {
        check(
            &format!("OPTIONS {target} HTTP/1.1\nHost: a\n\n"),
            &["HTTP/1.1 204 No Content", "Allow: GET, HEAD, OPTIONS", "!Content-Length", "!Connection", "> none"],
        );
    }
}

#[test]
fn persistence_follows_version_and_connection() {
    for (version, connection, expected) in [
        ("1.1", "", "!Connection"),
        ("1.1", "Connection: keep-alive\n", "!Connection"),
        ("1.1", "Connection: close\n", "Connection: close"),
        ("1.1", "connection: TE , CLOSE\n", "Connection: close"),
        ("1.1", "Connection: keep-alive\nConnection: close\n", "Connection: close"),
        ("1.1", "Connection: closed\n", "!Connection"),
        ("1.1", "Connection:\n", "!Connection"),
        ("1.0", "", "Connection: close"),
        ("1.0", "Connection: Keep-Alive\n", "Connection: keep-alive"),
        ("1.0", "Connection: keep-alive, close\n", "Connection: close"),
        ("1.2", "", "!Connection"),
        ("1.9", "Connection: close\n", "Connection: close"),
    ] {
        for (path, status) in [("index.html", "HTTP/1.1 200 OK"), ("missing", "HTTP/1.1 404 Not Found")] {
            check(&format!("GET /{path} HTTP/{version}\nHost: a\n{connection}\n"), &[status, expected]);
        }
    }
}

#[test]
fn http_1_0_needs_no_host() {
    check("GET /index.html HTTP/1.0\n\n", &["HTTP/1.1 200 OK", "Connection: close"]);
    check("GET http://a/index.html HTTP/1.0\n\n", &["HTTP/1.1 200 OK"]);
}

#[test]
fn two_empty_lines_before_a_request_are_passed_over() {
    check("\n\nGET /index.html HTTP/1.1\nHost: a\n\n", &["HTTP/1.1 200 OK"]);
}

#[test]
fn a_peer_that_awaits_100_continue_with_content_is_answered_and_left() {
    let request = |version, length| {
        format!("GET /index.html HTTP/{version}\nHost: a\nExpect: 100-continue\nContent-Length: {length}\n\n")
    };
    check(&request("1.1", 5), &["HTTP/1.1 200 OK", "Connection: close"]);
    check(&request("1.1", 0), &["HTTP/1.1 200 OK", "!Connection"]);
    let keep_alive = "Host: a\nConnection: keep-alive\n";
    check(&request("1.0", 5).replace("Host: a\n", keep_alive), &["HTTP/1.1 200 OK", "Connection: keep-alive"]);
}

#[test]
fn pipelined_requests_are_cut_where_each_ends() {
    let one = "GET /index.html HTTP/1.1\r\nHost: a\r\n\r\n";
    let all = one.repeat(16);
    let mut rest = all.as_bytes();
    for _ in 0..16 {
        let head_bytes = answer(rest).expect("an answer").head_bytes.expect("a request");
        assert_eq!(head_bytes, one.len());
        rest = &rest[head_bytes..];
    }
    assert!(rest.is_empty());
}

#[test]
fn a_modification_time_nobody_can_believe_is_not_told() {
    let now_unix_s = 1_000_000;
    let modified = |unix_s| {
        let facts = FileMetadata { modified: FileTime { unix_s, nanos: 0 }, ..crate::site::facts(1) };
        Representation::new(&facts, "text/plain", Negotiation::None, b"", now_unix_s).modified_unix_s()
    };
    assert_eq!(modified(999_999), Some(999_999));
    assert_eq!(modified(1_000_001), Some(1_000_000), "not after now");
    for stamp in [i64::MIN, -1, 0, 1] {
        assert_eq!(modified(stamp), None, "{stamp}");
    }
}

/// H23: whatever changes of a file changes its tag.
#[test]
fn each_fact_is_in_the_entity_tag() {
    let base = crate::site::facts(36);
    let later = FileTime { unix_s: base.modified.unix_s, nanos: base.modified.nanos + 1 };
    let swapped = FileMetadata { device: base.inode, inode: base.device, ..base };
    let all = [
        base,
        FileMetadata { length_bytes: 37, ..base },
        FileMetadata { modified: later, ..base },
        FileMetadata { changed: later, ..base },
        FileMetadata { modified: later, changed: later, ..base },
        FileMetadata { device: base.device + 1, ..base },
        FileMetadata { inode: base.inode + 1, ..base },
        swapped,
    ];
    let mut tags: Vec<_> =
        all.map(|facts| Representation::new(&facts, "a/b", Negotiation::None, b"", 0).etag().to_vec()).into();
    tags.sort();
    tags.dedup();
    assert_eq!(tags.len(), all.len());
    assert!(tags.iter().all(|tag| tag.len() == 34 && tag.starts_with(b"\"") && tag.ends_with(b"\"")));
}
