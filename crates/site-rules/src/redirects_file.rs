//! The file `_redirects` of a document root, as Netlify has defined it: `FROM [NAME=VALUE…] TO [STATUS[!]]` on each
//! line.

use crate::error::{LineProblem, LineProblems, RuleError};
use crate::redirect::{Redirect, RedirectText};
use crate::rule_set::RuleLimits;

/// Bytes of the longest line of a file of rules.
pub(crate) const LINE_BYTES_MAX: usize = 8 * 1024;

/// Parses a file, and takes its rules off `limits`. Wrong lines are skipped and reported.
pub fn parse_redirects_file(content: &[u8], limits: &mut RuleLimits) -> (Vec<Redirect>, Vec<LineProblem>) {
    let (mut redirects, mut problems) = (Vec::new(), LineProblems::default());
    for (number, line) in lines(content) {
        let parsed = line.and_then(parse_line).and_then(|redirect| {
            let Some(redirect) = redirect else { return Ok(None) };
            limits.take(&redirect.pattern).map(|()| Some(redirect))
        });
        match parsed {
            Ok(redirect) => redirects.extend(redirect.map(|redirect| redirect.at_line(number))),
            Err(error) => problems.push(number, error),
        }
    }
    (redirects, problems.into_vec())
}

/// The lines of a file with their numbers.
pub(crate) fn lines(content: &[u8]) -> impl Iterator<Item = (usize, Result<&str, RuleError>)> {
    let content = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content);
    content.split(|&byte| byte == b'\n').enumerate().map(|(index, line)| {
        let text = match str::from_utf8(line) {
            _ if line.len() > LINE_BYTES_MAX => {
                Err(RuleError::new(format!("the line is longer than {LINE_BYTES_MAX} bytes"), "shorten it"))
            }
            Ok(text) => Ok(text.trim()),
            Err(_) => Err(RuleError::new("the line is not valid UTF-8", "save the file as UTF-8")),
        };
        (index + 1, text)
    })
}

/// The rule of a line; `None` if it is empty or a comment.
fn parse_line(line: &str) -> Result<Option<Redirect>, RuleError> {
    let mut tokens = line.split_whitespace().take_while(|token| !token.starts_with('#')).peekable();
    let Some(from) = tokens.next() else { return Ok(None) };
    let mut query = Vec::new();
    let mut to = None;
    // Conditions on the query precede the destination.
    while let Some(token) = tokens.next_if(|token| to.is_none() && parse_status(token).is_none()) {
        if is_destination(token) {
            to = Some(token);
        } else {
            query.push(token.split_once('=').unwrap_or((token, "")));
        }
    }
    let status = tokens.next();
    let (status, force) = match status.map(|text| parse_status(text).ok_or(text)) {
        None => (None, false),
        Some(Ok((status, force))) => (Some(status), force),
        Some(Err(text)) => return Err(unsupported_condition(text)),
    };
    if let Some(condition) = tokens.next() {
        return Err(unsupported_condition(condition));
    }
    if to.is_none() && (status.is_none() || !query.is_empty()) {
        let message = format!("`{from}` has no destination");
        return Err(RuleError::new(message, "write one that begins with /, http:// or https://"));
    }
    let text = RedirectText { from, query: &query, to, status, force: Some(force) };
    Redirect::new(&text).map(Some)
}

fn is_destination(token: &str) -> bool {
    token.starts_with('/') || token.split('=').next().is_some_and(|start| start.contains("://"))
}

/// A status, and whether it has an exclamation mark.
fn parse_status(token: &str) -> Option<(u64, bool)> {
    let (digits, force) = token.strip_suffix('!').map_or((token, false), |digits| (digits, true));
    let is_number = digits.len() == 3 && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok().map(|status| (status, force))).flatten()
}

fn unsupported_condition(text: &str) -> RuleError {
    let message = format!("`{text}` after the destination is not supported");
    RuleError::new(message, "write a status there, or nothing: there are no conditions such as Country= or Role=")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::PROBLEMS_MAX;
    use crate::{Outcome, RedirectStatus, RequestPath, RuleSet};

    const LIMITS: RuleLimits = RuleLimits { rules_max: 1_000, patterns_max: 100 };

    /// The Location of `path?query` and whether the rule is forced.
    fn location(file: &str, path: &str, query: Option<&str>) -> Option<(String, u16, bool)> {
        let (redirects, problems) = parse_redirects_file(file.as_bytes(), &mut LIMITS.clone());
        assert_eq!(problems, []);
        let rules = RuleSet::new(redirects, Vec::new());
        let trimmed = path.trim_matches('/');
        let request = RequestPath {
            is_https: false,
            host: Some(b"blog.example.com"),
            path: trimmed.as_bytes(),
            ends_with_slash: path.ends_with('/'),
            query: query.map(str::as_bytes),
        };
        let found = rules.find(&request)?;
        let (to, status) = match found.outcome() {
            Outcome::Redirect(status, to) => (
                to,
                match status {
                    RedirectStatus::MovedPermanently => 301,
                    RedirectStatus::Found => 302,
                    RedirectStatus::SeeOther => 303,
                    RedirectStatus::TemporaryRedirect => 307,
                    RedirectStatus::PermanentRedirect => 308,
                },
            ),
            Outcome::Rewrite(to) => (to, 200),
            Outcome::Page(_, to) => (to.unwrap_or_default(), 400),
            Outcome::TooLong | Outcome::OutOfSegment => panic!("no destination"),
        };
        Some((String::from_utf8(to).expect("text"), status, found.is_forced()))
    }

    #[track_caller]
    fn check(file: &str, path: &str, query: Option<&str>, expected: Option<(&str, u16)>) {
        let found = location(file, path, query);
        let found = found.as_ref().map(|(to, status, _)| (to.as_str(), *status));
        assert_eq!(found, expected, "{path}");
    }

    #[test]
    fn netlify_first_matching_rule_is_applied() {
        let file = "# a comment\n\n/blog/my-old-title /blog/my-new-title 301\n/blog/my-old-title /blog/better 301\n";
        check(file, "/blog/my-old-title", None, Some(("/blog/my-new-title", 301)));
        check(file, "/blog/other", None, None);
    }

    #[test]
    fn netlify_default_status_is_301_and_others_are_as_written() {
        let file = "/home /\n/my-redirect / 302\n/pass-through /index.html 200\n/ecommerce /store-closed 404\n";
        check(file, "/home", None, Some(("/", 301)));
        check(file, "/my-redirect", None, Some(("/", 302)));
        check(file, "/pass-through", None, Some(("/index.html", 200)));
        check(file, "/ecommerce", None, Some(("/store-closed", 400)));
    }

    #[test]
    fn netlify_placeholders_and_splats_are_inserted() {
        let file = "/news/:month/:date/:year/:slug /blog/:year/:month/:date/:slug\n/news/* /blog/:splat\n";
        check(file, "/news/02/12/2004/my-story", None, Some(("/blog/2004/02/12/my-story", 301)));
        // The path has too few segments for the first rule.
        check(file, "/news/2004/01/my-story", None, Some(("/blog/2004/01/my-story", 301)));
    }

    #[test]
    fn netlify_query_parameters_are_conditions_and_values() {
        let file = "/articles id=:id tag=:tag /posts/:tag/:id 301\n/store id=:id /blog/:id 301\n/path a=b /c\n";
        check(file, "/articles", Some("id=1&tag=x"), Some(("/posts/x/1", 301)));
        check(file, "/articles", Some("id=1"), None);
        check(file, "/store", Some("id=my-blog-post"), Some(("/blog/my-blog-post", 301)));
        check(file, "/path", Some("a=b"), Some(("/c", 301)));
        check(file, "/path", Some("a=c"), None);
    }

    #[test]
    fn netlify_query_is_passed_on_by_default() {
        check("/a /b 301", "/a", Some("x=1&y"), Some(("/b?x=1&y", 301)));
    }

    #[test]
    fn netlify_slash_at_the_end_makes_no_difference() {
        for path in ["/blog/title", "/blog/title/"] {
            check("/blog/title/ /x", path, None, Some(("/x", 301)));
        }
    }

    #[test]
    fn netlify_exclamation_mark_applies_the_rule_where_a_file_exists() {
        assert!(location("/a /b 301!", "/a", None).is_some_and(|(_, _, force)| force));
        assert!(location("/a /b 301", "/a", None).is_some_and(|(_, _, force)| !force));
        assert!(location("/* /index.html 200", "/a", None).is_some_and(|(_, _, force)| !force));
    }

    #[test]
    fn netlify_rule_of_a_domain_matches_only_it() {
        let file = "http://blog.example.com/* https://www.example.com/blog/:splat 301!\n";
        check(file, "/x", None, Some(("https://www.example.com/blog/x", 301)));
        check("https://other.example.com/* /y 302", "/x", None, None);
    }

    #[test]
    fn cloudflare_example_file_is_understood() {
        let file = "/home301 / 301\n/home302 / 302\n/querystrings /?query=string 301\n/twitch https://twitch.tv\n\
                    /trailing /trailing/ 301\n/notrailing/ /nottrailing 301\n/page/ /page2/#fragment 301\n\
                    /blog/* https://blog.my.domain/:splat\n/products/:code/:name /products?code=:code&name=:name\n";
        check(file, "/home301", None, Some(("/", 301)));
        check(file, "/querystrings", Some("x"), Some(("/?query=string", 301)));
        check(file, "/twitch", None, Some(("https://twitch.tv", 301)));
        check(file, "/trailing", None, Some(("/trailing/", 301)));
        check(file, "/trailing/", None, None);
        check(file, "/notrailing/", None, Some(("/nottrailing", 301)));
        check(file, "/page/", None, Some(("/page2/#fragment", 301)));
        check(file, "/blog/a/b", None, Some(("https://blog.my.domain/a/b", 301)));
        check(file, "/products/1/red", None, Some(("/products?code=1&name=red", 301)));
    }

    #[test]
    fn cloudflare_all_statuses_of_redirects_are_understood() {
        for status in [301, 302, 303, 307, 308] {
            check(&format!("/a /b {status}"), "/a", None, Some(("/b", status)));
        }
    }

    #[test]
    fn comment_after_a_rule_and_ends_of_windows_are_understood() {
        check("\u{feff}/a /b 302 # why\r\n/c /d\r\n", "/a", None, Some(("/b", 302)));
        check("\u{feff}/a /b 302 # why\r\n/c /d\r\n", "/c", None, Some(("/d", 301)));
    }

    #[test]
    fn wrong_line_is_skipped_and_reported() {
        let file = "/ok /there\n/a\n/b c\n/api/* https://api.example.com/:splat 200\n/x /y 302 Country=us\n\
                    /x /y 302 Role=admin\n/x /y 42\n/x /y 500\nx /y\n/l id=1 301\n\u{80}\n/last /one\n";
        let mut file = file.as_bytes().to_vec();
        file.extend_from_slice(b"/\xff /x\n");
        let (redirects, problems) = parse_redirects_file(&file, &mut LIMITS.clone());
        assert_eq!(redirects.len(), 2);
        let lines: Vec<u32> = problems.iter().map(|problem| problem.line).collect();
        assert_eq!(lines, [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13]);
        assert!(problems.iter().all(|problem| !problem.error.remedy.is_empty()), "{problems:?}");
    }

    #[test]
    fn wrong_lines_beyond_those_that_are_reported_are_counted_and_rules_after_them_apply() {
        let file = "x\n".repeat(PROBLEMS_MAX + 30) + "/a /b\n";
        let (redirects, problems) = parse_redirects_file(file.as_bytes(), &mut LIMITS.clone());
        assert_eq!((redirects.len(), problems.len()), (1, PROBLEMS_MAX + 1));
        let last = problems.last().expect("the number of the others");
        assert_eq!(last.line as usize, PROBLEMS_MAX + 1);
        assert_eq!(last.error.message, "wrong lines from this one on: 30; all of them are skipped");
    }

    #[test]
    fn rules_beyond_the_limits_are_skipped_and_reported() {
        let file = |count: usize| (0..count).map(|number| format!("/{number}/* /x\n")).collect::<String>();
        let mut limits = RuleLimits { rules_max: 10, patterns_max: 3 };
        let (redirects, problems) = parse_redirects_file(file(3).as_bytes(), &mut limits.clone());
        assert_eq!((redirects.len(), problems.len()), (3, 0));
        let (redirects, problems) = parse_redirects_file(file(4).as_bytes(), &mut limits);
        assert_eq!((redirects.len(), problems[0].line), (3, 4));
        assert!(problems[0].error.remedy.contains("site_patterns_max"));
        let (redirects, problems) = parse_redirects_file("/a /b\n".repeat(8).as_bytes(), &mut limits);
        assert_eq!((redirects.len(), problems[0].line), (7, 8));
        assert!(problems[0].error.remedy.contains("site_rules_max"));
        let long = format!("/{} /x\n/a /b\n", "a".repeat(LINE_BYTES_MAX));
        let (redirects, problems) = parse_redirects_file(long.as_bytes(), &mut LIMITS.clone());
        assert_eq!((redirects.len(), problems.len()), (1, 1));
    }
}
