//! Tests of the response to each kind of request.

use sanderling_http::{
    ContentCoding, ContentHash, FileMetadata, FileTime, HttpDate, LookupError, Negotiation, Parsed, PathTraits,
    Representation, RequestLimits, SitePath, Validator, parse_request, respond,
};

use crate::site::{check, etag, https_redirect_of, response_to};

#[test]
fn file_response_has_all_fields_in_order() {
    let request = b"GET /index.html HTTP/1.1\r\nHost: example.com\r\n\r\n";
    let response = response_to(request).expect("a response");
    let etag = format!("ETag: {}", etag("index.html"));
    assert_eq!(
        response.lines,
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
    assert_eq!(response.body, "file 0+36");
    assert_eq!(response.head_bytes, Some(request.len()));
    assert!(!response.is_close);
}

#[test]
fn head_response_equals_get_without_body() {
    for path in ["/index.html", "/empty.txt", "/huge.bin", "/docs", "/missing", "/.hidden"] {
        let both = ["GET", "HEAD"].map(|method| {
            response_to(format!("{method} {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).expect("a response")
        });
        assert_eq!(both[0].lines, both[1].lines, "{path}");
        assert_eq!(both[1].body, "none", "{path}");
    }
}

#[test]
fn empty_file_has_content_length_zero() {
    check("GET /empty.txt HTTP/1.1\nHost: a\n\n", &["HTTP/1.1 200 OK", "Content-Length: 0", "> none"]);
}

#[test]
fn path_is_decoded_once() {
    check("GET /a%20b.txt HTTP/1.1\nHost: a\n\n", &["HTTP/1.1 200 OK", "> file 0+36"]);
    check("GET /%69ndex.html?a=%2f&b[]=|{} HTTP/1.1\nHost: a\n\n", &["HTTP/1.1 200 OK"]);
    check("GET /a%2520b.txt HTTP/1.1\nHost: a\n\n", &["HTTP/1.1 404 Not Found"]);
}

#[test]
fn absolute_form_equals_origin_form() {
    check("GET http://Example.com/index.html HTTP/1.1\nHost: example.com:80\n\n", &["HTTP/1.1 200 OK"]);
    // RFC 9112 §3.2.2: Host is ignored.
    check("GET http://localhost:8080/index.html HTTP/1.1\nHost: localhost\n\n", &["HTTP/1.1 200 OK"]);
    check("OPTIONS http://example.com HTTP/1.1\nHost: example.com\n\n", &["HTTP/1.1 204 No Content"]);
    check("GET HTTP://example.com?q HTTP/1.1\nHost: example.com\n\n", &["HTTP/1.1 404 Not Found"]);
}

#[test]
fn missing_file_is_404_and_connection_persists() {
    check(
        "GET /missing HTTP/1.1\nHost: a\n\n",
        &["HTTP/1.1 404 Not Found", "Content-Type: text/html; charset=utf-8", "!Connection", "!ETag"],
    );
}

#[test]
fn hidden_file_and_backup_are_404() {
    for path in ["/.git/config", "/.env", "/docs/.htaccess", "/docs/.well-known/a", "/.well-known/.a", "/..."] {
        check(&format!("GET {path} HTTP/1.1\nHost: a\n\n"), &["HTTP/1.1 404 Not Found"]);
    }
    for path in
        ["/index.html~", "/a/%7E", "/x.bak", "/x.swp", "/dump.sql", "/x.orig", "/x.save", "/x.part", "/a/%23x%23"]
    {
        assert_eq!(SitePath::parse(path.as_bytes()).map(|path| path.traits()), Ok(PathTraits::HIDDEN), "{path}");
    }
    for path in ["/~user", "/a.bak/b", "/bak", "/.well-known/a", "/x.back", "/a%23", "/x.sqlite"] {
        assert_eq!(SitePath::parse(path.as_bytes()).map(|path| path.traits()), Ok(PathTraits::NONE), "{path}");
    }
    check("GET /.well-known/security.txt HTTP/1.1\nHost: a\n\n", &["HTTP/1.1 200 OK"]);
}

#[test]
fn directory_without_slash_is_redirected() {
    check(
        "GET /docs HTTP/1.1\nHost: example.com\n\n",
        &["HTTP/1.1 301 Moved Permanently", "Location: /docs/", "!ETag"],
    );
    check("GET /d%6fcs?a=/b?c&d=%0d HTTP/1.1\nHost: a\n\n", &["Location: /docs/?a=/b?c&d=%0d"]);
    check("GET http://evil.example/docs HTTP/1.1\nHost: evil.example\n\n", &["Location: /docs/"]);
    check("GET /gr%c3%b6%C3%9fe HTTP/1.1\nHost: a\n\n", &["Location: /gr%C3%B6%C3%9Fe/"]);
}

/// In Location, `//` would start the name of another host.
#[test]
fn redirect_never_starts_with_two_slashes() {
    let request = b"GET /?q HTTP/1.1\r\nHost: a\r\n\r\n";
    let Ok(Parsed::Complete { request, .. }) = parse_request(request, 0, &RequestLimits::default()) else {
        panic!("invalid request")
    };
    let root = SitePath::parse(b"/").expect("the root");
    let mut head = Vec::new();
    respond(&request, Err(LookupError::Directory(&root)), 0).write_head(&HttpDate::from_unix_s(0), &mut head);
    assert!(String::from_utf8_lossy(&head).contains("\r\nLocation: /?q\r\n"));
}

#[test]
fn unsupported_method_is_405_or_501() {
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
fn options_lists_allowed_methods() {
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
fn http_1_0_requires_no_host() {
    check("GET /index.html HTTP/1.0\n\n", &["HTTP/1.1 200 OK", "Connection: close"]);
    check("GET http://a/index.html HTTP/1.0\n\n", &["HTTP/1.1 200 OK"]);
}

#[test]
fn two_empty_lines_before_request_are_ignored() {
    check("\n\nGET /index.html HTTP/1.1\nHost: a\n\n", &["HTTP/1.1 200 OK"]);
}

#[test]
fn expect_100_continue_with_body_closes_connection() {
    let request = |version, length| {
        format!("GET /index.html HTTP/{version}\nHost: a\nExpect: 100-continue\nContent-Length: {length}\n\n")
    };
    check(&request("1.1", 5), &["HTTP/1.1 200 OK", "Connection: close"]);
    check(&request("1.1", 0), &["HTTP/1.1 200 OK", "!Connection"]);
    let keep_alive = "Host: a\nConnection: keep-alive\n";
    check(&request("1.0", 5).replace("Host: a\n", keep_alive), &["HTTP/1.1 200 OK", "Connection: keep-alive"]);
}

#[test]
fn pipelined_requests_are_parsed_one_by_one() {
    let one = "GET /index.html HTTP/1.1\r\nHost: a\r\n\r\n";
    let all = one.repeat(16);
    let mut rest = all.as_bytes();
    for _ in 0..16 {
        let head_bytes = response_to(rest).expect("a response").head_bytes.expect("a request");
        assert_eq!(head_bytes, one.len());
        rest = &rest[head_bytes..];
    }
    assert!(rest.is_empty());
}

#[test]
fn implausible_modification_time_is_omitted() {
    let now_unix_s = 1_000_000_000;
    let modified = |unix_s| {
        let metadata = FileMetadata { modified: FileTime { unix_s, nanos: 0 }, ..crate::site::metadata(1) };
        let validator = Validator::of_metadata(&metadata);
        Representation::new(&metadata, validator, "text/plain", Negotiation::None, b"", now_unix_s).modified_unix_s()
    };
    assert_eq!(modified(999_999_999), Some(999_999_999));
    assert_eq!(modified(1_000_000_001), Some(1_000_000_000), "not after now");
    // What reproducible builds, buildpacks and npm give to all files.
    for stamp in [i64::MIN, -1, 0, 1, 315_532_800, 315_532_801, 499_162_500] {
        assert_eq!(modified(stamp), None, "{stamp}");
    }
}

/// Long after the times of all files.
const NOW_UNIX_S: u64 = 3_000_000_000;

/// The number of different entity tags.
fn tag_count(files: &[(FileMetadata, Option<&[u8]>, Negotiation)]) -> usize {
    let tag = |(metadata, content, negotiation): &(FileMetadata, Option<&[u8]>, Negotiation)| {
        let validator = content.map_or_else(|| Validator::of_metadata(metadata), Validator::of_content);
        let file = Representation::new(metadata, validator, "a/b", *negotiation, b"", NOW_UNIX_S);
        let tag = String::from_utf8(file.etag().to_vec()).expect("ASCII");
        assert!(tag.len() == 34 && tag.starts_with('"') && tag.ends_with('"'), "{tag}");
        tag
    };
    files.iter().map(tag).collect::<std::collections::BTreeSet<_>>().len()
}

#[test]
fn entity_tag_of_a_large_file_depends_on_length_time_and_coding() {
    let base = crate::site::metadata(36);
    let later = FileTime { unix_s: base.modified.unix_s, nanos: base.modified.nanos + 1 };
    let next_second = FileTime { unix_s: base.modified.unix_s + 1, nanos: base.modified.nanos };
    let plain = |metadata| (metadata, None, Negotiation::None);
    let coded = |coding| (base, None, Negotiation::AcceptEncoding(coding));
    let versions = [
        plain(base),
        plain(FileMetadata { length_bytes: 37, ..base }),
        plain(FileMetadata { modified: later, ..base }),
        plain(FileMetadata { modified: next_second, ..base }),
        coded(ContentCoding::Gzip),
        coded(ContentCoding::Zstd),
        coded(ContentCoding::Brotli),
    ];
    assert_eq!(tag_count(&versions), versions.len());
    // A copy with its times, a chmod, a hard link, a compressed file next to it.
    let same = [
        plain(base),
        plain(FileMetadata { changed: later, device: 1, inode: 2, ..base }),
        coded(ContentCoding::Identity),
    ];
    assert_eq!(tag_count(&same), 1);
}

/// As reproducible builds, npm, archives and images of containers set it, for all versions of a file.
#[test]
fn entity_tag_of_a_large_file_with_a_time_that_may_be_set_depends_on_all_metadata() {
    for unix_s in [-5, 0, 1, 315_532_801, 499_162_500, 1_700_000_000, NOW_UNIX_S as i64] {
        let base = FileMetadata { modified: FileTime { unix_s, nanos: 0 }, ..crate::site::metadata(36) };
        let later = FileTime { unix_s: base.changed.unix_s, nanos: base.changed.nanos + 1 };
        let versions = [
            base,
            FileMetadata { length_bytes: 37, ..base },
            FileMetadata { changed: later, ..base },
            FileMetadata { device: base.device + 1, ..base },
            FileMetadata { inode: base.inode + 1, ..base },
            FileMetadata { device: base.inode, inode: base.device, ..base },
        ]
        .map(|metadata| (metadata, None, Negotiation::None));
        assert_eq!(tag_count(&versions), versions.len());
    }
}

#[test]
fn validator_of_content_is_the_same_in_parts() {
    let content: Vec<u8> = (0..1_003_u32).map(|number| (number * 7 % 251) as u8).collect();
    for part_bytes in [8, 64, 1_000, 1_008] {
        let mut hash = ContentHash::new(content.len() as u64);
        content.chunks(part_bytes).for_each(|part| hash.put(part));
        assert_eq!(hash.finish(), Validator::of_content(&content), "{part_bytes}");
    }
}

#[test]
fn entity_tag_of_a_small_file_depends_on_its_content_alone() {
    let base = crate::site::metadata(36);
    let other = FileMetadata { modified: base.changed, changed: FileTime::default(), device: 1, inode: 2, ..base };
    let same: Vec<_> = [base, other].map(|metadata| (metadata, Some(&b"the content"[..]), Negotiation::None)).into();
    assert_eq!(tag_count(&same), 1);

    // Each bit of each byte, and each length with the same bytes.
    let mut contents = vec![Vec::new()];
    for length in 1..20 {
        contents.push(vec![0; length]);
        for bit in 0..8 * length {
            let mut content = vec![0; length];
            content[bit / 8] |= 1 << (bit % 8);
            contents.push(content);
        }
    }
    let files = contents.iter().map(|content| {
        let metadata = FileMetadata { length_bytes: content.len() as u64, ..base };
        (metadata, Some(&content[..]), Negotiation::None)
    });
    assert_eq!(tag_count(&files.collect::<Vec<_>>()), contents.len());
}

#[test]
fn redirect_to_https_keeps_host_path_and_query() {
    let check = |target: &str, host: &str, port: u16, expected: &str| {
        for method in ["GET", "POST", "OPTIONS", "DELETE", "PROPFIND", "HEAD"] {
            let request = format!("{method} {target} HTTP/1.1\nHost: {host}\n\n");
            let response = https_redirect_of(&request, port).expect("a redirect");
            assert_eq!((response.status(), response.field("Location")), (308, Some(expected)), "{request}");
            assert_eq!((response.body.starts_with("page "), response.is_close), (method != "HEAD", false), "{request}");
        }
    };
    check("/", "Example.com", 443, "https://Example.com/");
    check("/a/%2e%2e/b?c=//d&e", "example.com:80", 443, "https://example.com/a/%2e%2e/b?c=//d&e");
    check("/a?", "example.com:8080", 8443, "https://example.com:8443/a?");
    // What is no part of a URL is encoded.
    check("/\"<>{}?50%&a=\"<ü>#", "example.com", 443, "https://example.com/%22%3C%3E{}?50%&a=%22%3C%C3%BC%3E%23");
    check("//evil.example/x", "example.com", 443, "https://example.com//evil.example/x");
    check("/@evil.example", "example.com", 443, "https://example.com/@evil.example");
    check("http://example.org/a", "example.com", 443, "https://example.org/a");
}

#[test]
fn request_without_a_host_or_a_path_is_not_redirected() {
    for request in ["GET / HTTP/1.0\n\n", "OPTIONS * HTTP/1.1\nHost: a\n\n", "CONNECT a:1 HTTP/1.1\nHost: a\n\n"] {
        assert!(https_redirect_of(request, 443).is_none(), "{request}");
    }
}
