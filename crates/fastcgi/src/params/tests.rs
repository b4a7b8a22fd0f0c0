//! Tests of the parameters, which are read as an application reads them.

use super::*;
use crate::record::{HEADER_BYTES, Header};
use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use sanderling_http::{Parsed, RequestLimits, parse_request};

/// The parameters in these records, in order.
#[track_caller]
fn read(records: &[u8]) -> Vec<(String, String)> {
    let (mut rest, mut content, mut has_end) = (records, vec![], false);
    while let Some((header, after)) = rest.split_first_chunk::<HEADER_BYTES>() {
        assert!(!has_end, "a record after the end");
        let header = Header::from_bytes(*header);
        assert_eq!((header.version, header.kind, header.request_id), (1, kind::PARAMS, 1));
        has_end = header.content_bytes == 0;
        content.extend_from_slice(&after[..usize::from(header.content_bytes)]);
        rest = &after[usize::from(header.content_bytes) + usize::from(header.padding_bytes)..];
    }
    assert!(has_end && rest.is_empty());
    let (mut content, mut params) = (&content[..], vec![]);
    while !content.is_empty() {
        let lengths = [take_length(&mut content), take_length(&mut content)];
        let [name, value] =
            lengths.map(|length| String::from_utf8(take(&mut content, length).to_vec()).expect("UTF-8"));
        params.push((name, value));
    }
    params
}

fn take<'b>(bytes: &mut &'b [u8], count: usize) -> &'b [u8] {
    let (taken, after) = bytes.split_at(count);
    *bytes = after;
    taken
}

fn take_length(bytes: &mut &[u8]) -> usize {
    if bytes[0] < 0x80 {
        return usize::from(take(bytes, 1)[0]);
    }
    let length: [u8; 4] = take(bytes, 4).try_into().expect("four bytes");
    (u32::from_be_bytes(length) & 0x7fff_ffff) as usize
}

/// The parameters of a request, to which `change` is applied.
#[track_caller]
fn params_of(head: &str, change: impl FnOnce(&mut ScriptRequest<'_>)) -> Vec<(String, String)> {
    read(&records_of(&format!("{head}\n").replace('\n', "\r\n"), change))
}

/// The records of these parameters.
#[track_caller]
fn records_of(head: &str, change: impl FnOnce(&mut ScriptRequest<'_>)) -> Vec<u8> {
    let limits = RequestLimits { head_bytes_max: 300_000, ..RequestLimits::default() };
    let Ok(Parsed::Complete { request, .. }) = parse_request(head.as_bytes(), 0, &limits) else { panic!("{head}") };
    let mut passed = ScriptRequest {
        request: &request,
        script: Script { root: b"/srv/app", file: b"/srv/app/index.php", name: b"/index.php", path_info: b"" },
        framing: request.framing,
        host: None,
        client: "192.0.2.1:5000".parse().expect("an address"),
        local: "198.51.100.1:443".parse().expect("an address"),
        scheme: Scheme::Https,
        protocol: "HTTP/1.1",
        server_name: "example.com",
        trusted: None,
        edits: &[],
    };
    change(&mut passed);
    let mut out = b"before".to_vec();
    passed.put_params(&mut out);
    out.split_off(b"before".len())
}

/// Each of these parameters has this value, or is missing (`None`).
#[track_caller]
fn check(head: &str, change: impl FnOnce(&mut ScriptRequest<'_>), expected: &[(&str, Option<&str>)]) {
    let params = params_of(head, change);
    for (name, value) in expected {
        let values: Vec<&str> = params.iter().filter(|(own, _)| own == name).map(|(_, value)| &value[..]).collect();
        assert_eq!(values, value.iter().copied().collect::<Vec<_>>(), "{name} of {params:?}");
    }
}

/// The variables `HTTP_*` of a request with these fields, except HTTP_HOST.
#[track_caller]
fn check_fields(fields: &str, change: impl FnOnce(&mut ScriptRequest<'_>), expected: &[(&str, &str)]) {
    let params = params_of(&format!("GET / HTTP/1.1\nHost: a\n{fields}"), change);
    let variables: Vec<(&str, &str)> = params
        .iter()
        .filter_map(|(name, value)| Some((name.strip_prefix("HTTP_")?, &value[..])))
        .filter(|(name, _)| *name != "HOST")
        .collect();
    assert_eq!(variables, expected, "{fields}");
}

#[test]
fn all_variables_of_a_request_are_set() {
    let params = params_of("GET /a/b?c=d&e HTTP/1.1\nHost: Example.com:8443\nAccept: */*\n", |passed| {
        passed.script.path_info = b"/x";
    });
    let expected = [
        ("SCRIPT_FILENAME", "/srv/app/index.php"),
        ("SCRIPT_NAME", "/index.php"),
        ("PATH_INFO", "/x"),
        ("DOCUMENT_ROOT", "/srv/app"),
        ("DOCUMENT_URI", "/index.php/x"),
        ("REQUEST_URI", "/a/b?c=d&e"),
        ("QUERY_STRING", "c=d&e"),
        ("REQUEST_METHOD", "GET"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("SERVER_NAME", "example.com"),
        ("SERVER_ADDR", "198.51.100.1"),
        ("SERVER_PORT", "443"),
        ("REMOTE_ADDR", "192.0.2.1"),
        ("REMOTE_PORT", "5000"),
        ("REQUEST_SCHEME", "https"),
        ("HTTPS", "on"),
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("SERVER_SOFTWARE", "sanderling"),
        ("REDIRECT_STATUS", "200"),
        ("HTTP_HOST", "Example.com:8443"),
        ("HTTP_ACCEPT", "*/*"),
    ];
    assert_eq!(params, expected.map(|(name, value)| (name.to_string(), value.to_string())));
}

#[test]
fn variables_follow_the_request() {
    check(
        "GET / HTTP/1.1\nHost: a\n",
        |_| (),
        &[("PATH_INFO", None), ("QUERY_STRING", Some("")), ("REQUEST_URI", Some("/"))],
    );
    check("GET http://b/c?d HTTP/1.1\nHost: a\n", |_| (), &[("REQUEST_URI", Some("/c?d")), ("HTTP_HOST", Some("b"))]);
    check("OPTIONS * HTTP/1.1\nHost: a\n", |_| (), &[("REQUEST_URI", Some("*")), ("REQUEST_METHOD", Some("OPTIONS"))]);
    check("GET /%2e?? HTTP/1.1\nHost: a\n", |_| (), &[("REQUEST_URI", Some("/%2e??")), ("QUERY_STRING", Some("?"))]);
    check("GET / HTTP/1.0\n", |_| (), &[("HTTP_HOST", None)]);
    check("GET / HTTP/1.1\nHost: a\n", |passed| passed.host = Some("app:1"), &[("HTTP_HOST", Some("app:1"))]);
    let plain = |passed: &mut ScriptRequest<'_>| {
        passed.scheme = Scheme::Http;
        passed.client = "[::ffff:192.0.2.9]:7".parse().expect("an address");
        passed.local = "[2001:db8::1]:80".parse().expect("an address");
    };
    let expected = [("HTTPS", None), ("REMOTE_ADDR", Some("192.0.2.9")), ("SERVER_ADDR", Some("2001:db8::1"))];
    check("GET / HTTP/1.1\nHost: a\n", plain, &expected);
}

#[test]
fn content_has_its_type_and_the_length_that_is_sent() {
    let expect = |length, content_type| {
        [
            ("CONTENT_LENGTH", length),
            ("CONTENT_TYPE", content_type),
            ("HTTP_CONTENT_LENGTH", None),
            ("HTTP_CONTENT_TYPE", None),
        ]
    };
    let post = "POST / HTTP/1.1\nHost: a\nContent-Type: text/plain\n";
    check(&format!("{post}Content-Length: 07\n"), |_| (), &expect(Some("7"), Some("text/plain")));
    let collected = |passed: &mut ScriptRequest<'_>| passed.framing = Framing::Length(9);
    check(&format!("{post}Transfer-Encoding: chunked\n"), collected, &expect(Some("9"), Some("text/plain")));
    check("GET / HTTP/1.1\nHost: a\n", |_| (), &expect(None, None));
}

#[test]
fn fields_are_variables_with_one_value() {
    check_fields("X-a: 1\nAccept: b\nx-A: 2\nX-A: 3\n", |_| (), &[("X_A", "1, 2, 3"), ("ACCEPT", "b")]);
    check_fields("Cookie: a=1\ncookie: b=2\n", |_| (), &[("COOKIE", "a=1; b=2")]);
    check_fields("Authorization: Basic x\nX-Empty:\n", |_| (), &[("AUTHORIZATION", "Basic x"), ("X_EMPTY", "")]);
    let name = "a-".repeat(50);
    check_fields(&format!("{name}: 1\n"), |_| (), &[(&name.replace('-', "_").to_uppercase(), "1")]);
}

#[test]
fn names_that_a_script_cannot_tell_apart_are_dropped() {
    check_fields("X_A: 1\nX.A: 2\nX!A: 3\nX-A: 4\n", |_| (), &[("X_A", "4")]);
    check_fields("Remote_User: admin\nContent_Length: 1\n", |_| (), &[]);
}

#[test]
fn proxy_field_never_becomes_a_variable() {
    check_fields("Proxy: http://evil.example\nproxy: x\n", |_| (), &[]);
    let edits = [("Proxy".to_string(), Some("x".to_string()))];
    let params = params_of("GET / HTTP/1.1\nHost: a\nProxy: y\n", |passed| passed.edits = leak(&edits));
    assert!(params.iter().all(|(name, _)| name != "HTTP_PROXY"), "{params:?}");
}

/// Edits that live as long as any request.
fn leak(edits: &[(String, Option<String>)]) -> &'static [(String, Option<String>)] {
    edits.to_vec().leak()
}

#[test]
fn hop_by_hop_fields_are_no_variables() {
    check_fields(
        "Connection: close, x-a\nX-A: 1\nTE: trailers\nKeep-Alive: 5\nUpgrade: h2c\nExpect: 100-continue\n",
        |_| (),
        &[],
    );
    check_fields("Connection: authorization\nAuthorization: x\n", |_| (), &[("AUTHORIZATION", "x")]);
}

#[test]
fn forwarding_fields_are_those_of_a_trusted_proxy() {
    let fields = "X-Forwarded-For: 1.2.3.4\nX-Real-IP: 1.2.3.4\nForwarded: for=1.2.3.4\n";
    check_fields(fields, |_| (), &[]);
    let trust = |field| move |passed: &mut ScriptRequest<'_>| passed.trusted = Some(field);
    let expected = [("X_FORWARDED_FOR", "1.2.3.4"), ("X_REAL_IP", "1.2.3.4")];
    check_fields(fields, trust(ForwardedField::XForwardedFor), &expected);
    check_fields(fields, trust(ForwardedField::Forwarded), &[("FORWARDED", "for=1.2.3.4")]);
}

#[test]
fn edits_set_and_remove_variables() {
    let edit = |name: &str, value: Option<&str>| (name.to_string(), value.map(str::to_string));
    let edits =
        leak(&[edit("x-a", Some("2")), edit("X-B", None), edit("Content-Length", Some("5")), edit("a_b", Some("6"))]);
    check_fields("X-A: 1\nX-B: 1\nX-C: 1\n", |passed| passed.edits = edits, &[("X_C", "1"), ("X_A", "2")]);
    check_fields("", |passed| passed.edits = edits, &[("X_A", "2")]);
}

/// PHP reads each record by itself.
#[test]
fn pairs_that_fit_into_a_record_are_not_divided() {
    for value_bytes in [32_000, 32_700, 32_764, 65_500] {
        let fields: String = (0..4).map(|index| format!("X-{index}: {}\n", "v".repeat(value_bytes))).collect();
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", fields.replace('\n', "\r\n"));
        let records = records_of(&head, |_| ());
        let (mut rest, mut record_count) = (&records[..], 0);
        while let Some((header, after)) = rest.split_first_chunk::<HEADER_BYTES>() {
            let header = Header::from_bytes(*header);
            let (mut content, after) = after.split_at(usize::from(header.content_bytes));
            while !content.is_empty() {
                let lengths = take_length(&mut content) + take_length(&mut content);
                take(&mut content, lengths);
            }
            rest = &after[usize::from(header.padding_bytes)..];
            record_count += 1;
        }
        assert!(record_count > 2, "{value_bytes}");
    }
}

/// Lengths of one byte up to 127, of four bytes from 128.
#[test]
fn long_names_and_values_have_long_lengths() {
    for length in [0, 1, 126, 127, 128, 129, 255, 256, 65_520, 65_528, 65_536, 140_000] {
        let value = "v".repeat(length);
        check_fields(&format!("X-A: {value}\nX-B: 1\n"), |_| (), &[("X_A", &value), ("X_B", "1")]);
        if length > 0 && length < 300 {
            let name = "N".repeat(length);
            check_fields(&format!("{name}: 1\nX-B: 1\n"), |_| (), &[(&name, "1"), ("X_B", "1")]);
        }
    }
}
