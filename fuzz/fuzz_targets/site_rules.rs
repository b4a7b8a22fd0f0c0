//! Parses files of rules, and answers a request by them: nothing gets into a head that ends a line or names another
//! host.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sanderling_http::SitePath;
use sanderling_site_rules::{
    FieldEdits, Outcome, RequestPath, RuleLimits, RuleSet, parse_headers_file, parse_redirects_file,
};

const LIMITS: RuleLimits = RuleLimits { rules_max: 1_000, patterns_max: 100 };

fuzz_target!(|input: (&[u8], &[u8], &[u8], &[u8])| {
    let (redirects, headers, path, query) = input;
    let mut limits = LIMITS;
    let (redirects, _) = parse_redirects_file(redirects, &mut limits);
    let (fields, _) = parse_headers_file(headers, &mut limits);
    let rules = RuleSet::new(redirects, fields);
    let path = [b"/", path].concat();
    let Ok(path) = SitePath::parse(&path) else { return };
    let request = RequestPath {
        is_https: query.len() % 2 == 1,
        host: Some(b"example.com"),
        path: path.as_bytes(),
        ends_with_slash: path.ends_with_slash(),
        query: Some(query),
    };
    match rules.find(&request).map(|found| found.outcome()) {
        Some(Outcome::Redirect(_, location)) => {
            assert!(location.iter().all(|byte| (0x21..0x7f).contains(byte)));
        }
        Some(Outcome::Rewrite(path) | Outcome::Page(_, Some(path))) => assert!(path.starts_with(b"/")),
        _ => {}
    }
    let mut edits = FieldEdits::default();
    rules.add_fields(&request, &mut edits);
    let mut head = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n".to_vec();
    edits.apply(0, sanderling_site_rules::ContentOf::Path, &mut head);
    let text = head.strip_suffix(b"\r\n\r\n").expect("the head ends with an empty line");
    let lines = text.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    for line in lines {
        assert!(!line.is_empty() && line.iter().all(|&byte| byte == b'\t' || !byte.is_ascii_control()));
    }
});
