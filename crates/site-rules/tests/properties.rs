//! Random rules and requests: matching agrees with a slow reference, and no text gets into a head that ends a line or
//! names another host.

use proptest::prelude::*;
use sanderling_site_rules::{
    ContentOf, FieldEdits, Outcome, Redirect, RedirectText, RequestPath, RuleLimits, RuleSet, parse_headers_file,
    parse_redirects_file,
};

const LIMITS: RuleLimits = RuleLimits { rules_max: 1_000, patterns_max: 1_000 };

/// Whether the pattern matches `text`, by trying all possibilities.
fn reference(pattern: &[u8], text: &[u8]) -> bool {
    match pattern {
        [] => text.is_empty(),
        [b'*', rest @ ..] => (0..=text.len()).any(|start| reference(rest, &text[start..])),
        [b':', name, rest @ ..] if name.is_ascii_alphabetic() => {
            let length = rest.iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
            let part = text.iter().take_while(|byte| **byte != b'/').count();
            (1..=part).any(|start| reference(&rest[length..], &text[start..]))
        }
        [byte, rest @ ..] => text.first() == Some(byte) && reference(rest, &text[1..]),
    }
}

fn reference_of_rule(pattern: &str, path: &str) -> bool {
    let pattern = pattern.trim_end_matches('/');
    let text = if path.is_empty() { String::new() } else { format!("/{path}") };
    let without_rest = pattern.strip_suffix("/*");
    reference(pattern.as_bytes(), text.as_bytes())
        || without_rest.is_some_and(|pattern| reference(pattern.as_bytes(), text.as_bytes()))
}

fn pattern() -> impl Strategy<Value = String> {
    let segment = prop_oneof![
        4 => "[ab.]{1,2}".prop_filter("a segment", |segment| !matches!(segment.as_str(), "." | "..")),
        1 => Just("*".to_owned()),
        1 => "[ab]?\\*[ab]?",
        // A dot ends the name of a placeholder.
        2 => "[ab]?:[xyz](\\.[ab]?)?",
    ];
    (prop::collection::vec(segment, 0..4), "/?").prop_map(|(segments, slash)| {
        if segments.is_empty() { "/".to_owned() } else { format!("/{}{slash}", segments.join("/")) }
    })
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec("[ab.]{1,3}", 0..5).prop_map(|segments| segments.join("/"))
}

fn request<'r>(path: &'r [u8], query: Option<&'r [u8]>) -> RequestPath<'r> {
    RequestPath { is_https: false, host: None, path, ends_with_slash: path.is_empty(), query }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn first_rule_is_that_of_the_reference(patterns in prop::collection::vec(pattern(), 1..12), path in path()) {
        let rule = |pattern: &String, number: usize| {
            let to = format!("/to{number}");
            let text = RedirectText { from: pattern, query: &[], to: Some(&to), status: Some(302), force: Some(false) };
            Redirect::new(&text)
        };
        let valid: Vec<&String> = patterns.iter().filter(|pattern| rule(pattern, 0).is_ok()).collect();
        let rules = valid.iter().enumerate().map(|(number, pattern)| rule(pattern, number).expect("it is valid"));
        let rules = RuleSet::new(rules.collect(), Vec::new());
        let found = rules.find(&request(path.as_bytes(), None)).map(|found| found.outcome());
        let expected = valid.iter().position(|pattern| reference_of_rule(pattern, &path));
        match (found, expected) {
            (Some(Outcome::Redirect(_, location)), Some(number)) => {
                prop_assert_eq!(location, format!("/to{number}").into_bytes());
            }
            (found, expected) => prop_assert!(found.is_none() && expected.is_none(), "{:?} {:?}", found, expected),
        }
    }

    #[test]
    fn location_has_no_control_byte_and_no_host(
        from in prop_oneof![Just("/a/*"), Just("/a*"), Just("/*"), Just("/:x/*"), Just("/*/:x"), Just("/:x")],
        to in prop_oneof![
            Just("/:splat"), Just("/b/:splat"), Just("/:x"), Just("/:x/:splat"), Just("/:splat:x"), Just("/b?c=:x#:splat"),
        ],
        path in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..30),
            "a/[/\\\\.%a]{0,12}".prop_map(String::into_bytes),
        ],
        query in prop::option::of(prop::collection::vec(any::<u8>(), 0..20)),
    ) {
        let text = RedirectText { from, query: &[], to: Some(to), status: None, force: Some(false) };
        let Ok(rule) = Redirect::new(&text) else { return Ok(()) };
        let rules = RuleSet::new(vec![rule], Vec::new());
        let Some(found) = rules.find(&request(&path, query.as_deref())) else { return Ok(()) };
        let location = match found.outcome() {
            Outcome::Redirect(_, location) => location,
            outcome => {
                prop_assert_eq!(outcome, Outcome::OutOfSegment);
                return Ok(());
            }
        };
        prop_assert!(location.iter().all(|byte| (0x21..0x7f).contains(byte)), "{:?}", location);
        prop_assert!(location.starts_with(b"/"));
        prop_assert!(!location.starts_with(b"//") && !location.starts_with(b"/\\"), "{:?}", location);
    }

    #[test]
    fn part_of_a_request_stays_in_its_segment(
        from in prop_oneof![Just("/a/*"), Just("/a*"), Just("/:x/*"), Just("/*/:x"), Just("/:x"), Just("/a:x")],
        (to, segments) in prop_oneof![
            Just(("/pub/:id", 2)), Just(("/pub/.:id", 2)), Just(("/pub/:id:id/b", 3)), Just(("/:id.:id", 1)), Just(("/:x", 1)),
            Just(("/pub/:x.:id", 2)),
        ],
        status in prop_oneof![Just(200), Just(302), Just(404)],
        path in prop_oneof!["[a./\\\\%2eF]{0,9}", "a[./\\\\]{0,3}/[a./]{0,6}"],
        id in prop_oneof!["([./\\\\a?#&:]|%2[eEfF]|%5[cC]|%25){1,6}", ".{1,6}"],
    ) {
        let text = RedirectText { from, query: &[("id", ":id")], to: Some(to), status: Some(status), force: None };
        let Ok(rule) = Redirect::new(&text) else { return Ok(()) };
        let rules = RuleSet::new(vec![rule], Vec::new());
        let query = format!("id={id}");
        let path = path.split('/').filter(|part| !matches!(*part, "" | "." | "..")).collect::<Vec<_>>().join("/");
        let Some(found) = rules.find(&request(path.as_bytes(), Some(query.as_bytes()))) else { return Ok(()) };
        let url = match found.outcome() {
            Outcome::Redirect(_, url) | Outcome::Rewrite(url) | Outcome::Page(_, Some(url)) => url,
            outcome => {
                prop_assert_eq!(outcome, Outcome::OutOfSegment);
                return Ok(());
            }
        };
        let url = String::from_utf8(url).expect("ASCII");
        prop_assert!(url.starts_with('/') && !url.contains(['?', '#', '\\']), "{}", url);
        prop_assert_eq!(url.split('/').skip(1).count(), segments, "{}", url);
        // Clients and servers read it so, and some servers decode slashes before they remove dots.
        let decoded = url.replace("%2F", "/").replace("%5C", "/").replace("%2E", ".");
        prop_assert!(!decoded.split('/').any(|part| matches!(part, "." | "..")), "{}", url);
        if status != 302 {
            prop_assert!(!url.contains("%2F"), "{}", url);
        }
    }

    #[test]
    fn head_stays_a_head(file in "(/[a*:x/]{0,6}\n|[ !]{0,2}[A-Za-z-]{1,12}:? ?[ -~]{0,12}\n|[\\PC\n]{0,12}){0,12}", path in path()) {
        let (rules, _) = parse_headers_file(file.as_bytes(), &mut LIMITS.clone());
        let rules = RuleSet::new(Vec::new(), rules);
        let mut edits = FieldEdits::default();
        rules.add_fields(&request(path.as_bytes(), None), &mut edits);
        let mut head = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nETag: \"a\"\r\n\r\n".to_vec();
        edits.apply(0, ContentOf::Path, &mut head);
        let text = String::from_utf8_lossy(&head).into_owned();
        prop_assert!(text.starts_with("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nETag: \"a\"\r\n"), "{}", text);
        let lines = text.strip_suffix("\r\n\r\n").expect("an end of the head").split("\r\n").skip(1);
        for line in lines {
            let (name, value) = line.split_once(": ").expect("a field");
            prop_assert!(!name.is_empty() && !name.contains(char::is_whitespace));
            prop_assert!(!value.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t'), "{}", line);
        }
        prop_assert_eq!(text.matches("Content-Length").count(), 1);
    }

    #[test]
    fn any_file_is_parsed(file in prop::collection::vec(any::<u8>(), 0..200)) {
        parse_redirects_file(&file, &mut LIMITS.clone());
        parse_headers_file(&file, &mut LIMITS.clone());
    }
}
