//! The preferences of a client, by Accept (RFC 9110 §12.5.1), Sec-Fetch-Mode (Fetch Metadata) and Origin (RFC 6454).

use memchr::memchr;

use crate::content_coding::Weight;
use crate::grammar::{list_members, trim};
use crate::request::{Method, Request};
use crate::target::Target;

const HTML: &[u8] = b"text/html";
const JSON: &[u8] = b"application/json";

impl Request<'_> {
    /// Whether Accept names HTML. Browsers name it where they show a page; scripts, images and programs send `*/*`.
    #[cold]
    pub fn accepts_html(&self) -> bool {
        self.weight_of(HTML) > Weight::ZERO
    }

    /// Whether Accept names JSON, and not HTML with the same or a higher weight.
    #[cold]
    pub fn prefers_json(&self) -> bool {
        self.weight_of(JSON) > self.weight_of(HTML)
    }

    /// The field Origin (RFC 6454 §7).
    #[cold]
    pub fn origin(&self) -> Option<&[u8]> {
        self.fields.find_single(b"origin")
    }

    /// The field Authorization (RFC 9110 §11.6.2).
    #[cold]
    pub fn authorization(&self) -> Option<&[u8]> {
        self.fields.find_single(b"authorization")
    }

    /// Whether a browser asks whether it may make another request (CORS).
    #[cold]
    pub fn is_preflight(&self) -> bool {
        self.method == Method::Options
            && self.origin().is_some()
            && self.fields.find_first(b"access-control-request-method").is_some()
    }

    /// Whether a browser is to show the response as a page. By Sec-Fetch-Mode, where the client sends it; otherwise the
    /// last segment of the path must be without a dot, as that of a script or an image is not.
    #[cold]
    pub fn is_navigation(&self) -> bool {
        let Target::Path { path, .. } = self.target else { return false };
        let is_page = match self.fields.find_first(b"sec-fetch-mode") {
            Some(mode) => mode == b"navigate",
            None => path.rsplit(|&byte| byte == b'/').next().is_none_or(|name| memchr(b'.', name).is_none()),
        };
        is_page && self.accepts_html()
    }

    /// The weight of a media type that Accept names; 0 of another one, whatever wildcards it has.
    fn weight_of(&self, media_type: &[u8]) -> Weight {
        let members = self.fields.find_all(b"accept").flat_map(list_members);
        let weights = members.filter_map(|member| {
            let (name, parameters) = member.split_at(memchr(b';', member).unwrap_or(member.len()));
            trim(name).eq_ignore_ascii_case(media_type).then(|| weight_in(parameters))
        });
        weights.max().unwrap_or(Weight::ZERO)
    }
}

/// The parameter `q`; an invalid one counts as 0.
fn weight_in(parameters: &[u8]) -> Weight {
    let mut weights = parameters.split(|&byte| byte == b';').filter_map(|parameter| match trim(parameter) {
        [b'q' | b'Q', b'=', weight @ ..] => Some(Weight::parse(weight).unwrap_or(Weight::ZERO)),
        _ => None,
    });
    weights.next().unwrap_or(Weight::ONE)
}

#[cfg(test)]
mod tests {
    use crate::request::{Parsed, Request, RequestLimits, parse_request};
    use alloc::format;

    #[track_caller]
    fn check(path: &str, fields: &str, ask: impl Fn(&Request<'_>) -> bool, expected: bool) {
        let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        match parse_request(head.as_bytes(), 0, &RequestLimits::default()) {
            Ok(Parsed::Complete { request, .. }) => assert_eq!(ask(&request), expected, "{path} {fields}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn html_is_accepted_by_its_name() {
        for (accept, expected) in [
            ("Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n", true),
            ("Accept: TEXT/HTML ; charset=utf-8\r\n", true),
            ("accept: image/png\r\nACCEPT: text/html;q=0.1\r\n", true),
            ("Accept: */*\r\n", false),
            ("Accept: text/*\r\n", false),
            ("Accept: text/html;q=0\r\n", false),
            ("Accept: text/html;level=1; q=0.000\r\n", false),
            ("Accept: text/html;q=x\r\n", false),
            ("Accept:\r\n", false),
            ("", false),
        ] {
            check("/", accept, |request| request.accepts_html(), expected);
        }
    }

    #[test]
    fn json_is_preferred_where_it_weighs_more_than_html() {
        for (accept, expected) in [
            ("Accept: application/json\r\n", true),
            ("Accept: application/json, text/html;q=0.9\r\n", true),
            ("Accept: application/json, text/html\r\n", false),
            ("Accept: text/html, */*\r\n", false),
            ("", false),
        ] {
            check("/", accept, |request| request.prefers_json(), expected);
        }
    }

    #[test]
    fn a_navigation_wants_html_of_a_path_without_extension_or_says_so() {
        const HTML: &str = "Accept: text/html\r\n";
        let of = |path: &str, fields: &str, expected| check(path, fields, |request| request.is_navigation(), expected);
        of("/users/7", HTML, true);
        of("/v1.2/users", HTML, true);
        of("/", HTML, true);
        of("/users?x=a.b", HTML, true);
        of("/app.js", HTML, false);
        of("/users/7", "Accept: */*\r\n", false);
        of("/users/7", "", false);
        of("/users/a.b", "Accept: text/html\r\nSec-Fetch-Mode: navigate\r\n", true);
        of("/users/7", "Accept: text/html\r\nSec-Fetch-Mode: cors\r\n", false);
        of("/app.js", "Accept: */*\r\nSec-Fetch-Mode: navigate\r\n", false);
    }
}
