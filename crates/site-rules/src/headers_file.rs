//! The file `_headers` of a document root, as Netlify has defined it: a path, and below it lines of fields.

use crate::error::{LineProblem, LineProblems, RuleError};
use crate::field::{Field, FieldRule};
use crate::pattern::Pattern;
use crate::redirects_file::lines;
use crate::rule_set::RuleLimits;

/// Parses a file, and takes its rules off `limits`. Wrong lines are skipped and reported.
pub fn parse_headers_file(content: &[u8], limits: &mut RuleLimits) -> (Vec<FieldRule>, Vec<LineProblem>) {
    let (mut rules, mut problems) = (Vec::<FieldRule>::new(), LineProblems::default());
    // The rule of the last path; `None` if there is none, and `Some(None)` if that line is wrong.
    let mut current: Option<Option<FieldRule>> = None;
    for (number, line) in lines(content) {
        let result = match line {
            Ok(line) if line.is_empty() || line.starts_with('#') => Ok(()),
            Ok(line) if is_pattern(line) => {
                rules.extend(current.take().flatten());
                let rule = Pattern::parse(line, &[]).and_then(|pattern| {
                    limits.take(&pattern)?;
                    Ok(FieldRule::new(pattern, Vec::new()))
                });
                match rule {
                    Ok(rule) => {
                        current = Some(Some(rule));
                        Ok(())
                    }
                    Err(error) => {
                        current = Some(None);
                        Err(error)
                    }
                }
            }
            Ok(line) => match &mut current {
                Some(Some(rule)) => parse_field(line, rule.pattern()).map(|field| rule.push(field)),
                // The error of the path is reported.
                Some(None) => Ok(()),
                None => Err(RuleError::new("the field has no path before it", "write a path, such as /*, above it")),
            },
            Err(error) => Err(error),
        };
        if let Err(error) = result {
            problems.push(number, error);
        }
    }
    rules.extend(current.flatten());
    (rules, problems.into_vec())
}

fn is_pattern(line: &str) -> bool {
    line.starts_with('/') || line.starts_with("http://") || line.starts_with("https://")
}

fn parse_field(line: &str, pattern: &Pattern) -> Result<Field, RuleError> {
    if let Some(name) = line.strip_prefix('!') {
        return Field::remove(name.trim());
    }
    let Some((name, value)) = line.split_once(':') else {
        let message = format!("`{line}` is neither a path nor a field");
        return Err(RuleError::new(message, "write Name: value, or begin a path with a slash"));
    };
    Field::join(name.trim(), value, pattern)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FieldEdits, RequestPath, RuleSet};

    const LIMITS: RuleLimits = RuleLimits { rules_max: 1_000, patterns_max: 100 };

    /// The fields of a response to a request for `path`.
    fn fields(file: &str, host: &str, path: &str) -> String {
        let (rules, problems) = parse_headers_file(file.as_bytes(), &mut LIMITS.clone());
        assert_eq!(problems, []);
        let rules = RuleSet::new(Vec::new(), rules);
        let mut edits = FieldEdits::default();
        let path = path.strip_prefix('/').expect("a path");
        let request = RequestPath {
            is_https: false,
            host: Some(host.as_bytes()),
            path: path.as_bytes(),
            ends_with_slash: path.is_empty(),
            query: None,
        };
        rules.add_fields(&request, &mut edits);
        let mut out = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
        edits.apply(0, crate::field::ContentOf::Path, &mut out);
        let out = String::from_utf8(out).expect("text");
        out.trim_start_matches("HTTP/1.1 200 OK\r\n").trim_end().replace("\r\n", "|")
    }

    #[test]
    fn netlify_fields_of_a_path_are_added() {
        let file = "# a path:\n/templates/index.html\n  # fields:\n  X-Frame-Options: DENY\n  X-XSS-Protection: 1; mode=block\n\
                    /templates/index2.html\n  X-Frame-Options: SAMEORIGIN\n";
        assert_eq!(fields(file, "a", "/templates/index.html"), "X-Frame-Options: DENY|X-XSS-Protection: 1; mode=block");
        assert_eq!(fields(file, "a", "/templates/index2.html"), "X-Frame-Options: SAMEORIGIN");
        assert_eq!(fields(file, "a", "/templates/index3.html"), "");
    }

    #[test]
    fn netlify_repeated_field_becomes_one_list() {
        let file = "/*\n  cache-control: max-age=0\n  cache-control: no-cache\n  cache-control: no-store\n";
        assert_eq!(fields(file, "a", "/x"), "cache-control: max-age=0, no-cache, no-store");
    }

    #[test]
    fn netlify_placeholder_matches_all_but_a_slash_and_star_matches_all() {
        let file = "/a/:b\n  X-One: 1\n/a/*\n  X-Two: 2\n";
        assert_eq!(fields(file, "a", "/a/b"), "X-One: 1|X-Two: 2");
        assert_eq!(fields(file, "a", "/a/b/c"), "X-Two: 2");
    }

    #[test]
    fn cloudflare_request_gets_the_fields_of_all_rules_that_match() {
        let file = "# This is a comment\n/secure/page\n  X-Frame-Options: DENY\n  Referrer-Policy: no-referrer\n\
                    /static/*\n  Access-Control-Allow-Origin: *\n  X-Robots-Tag: nosnippet\n\
                    https://myproject.pages.dev/*\n  X-Robots-Tag: noindex\n";
        let custom = |path: &str| fields(file, "custom.domain", path);
        let project = |path: &str| fields(file, "myproject.pages.dev", path);
        assert_eq!(custom("/secure/page"), "X-Frame-Options: DENY|Referrer-Policy: no-referrer");
        assert_eq!(custom("/static/image.jpg"), "Access-Control-Allow-Origin: *|X-Robots-Tag: nosnippet");
        assert_eq!(project("/home"), "X-Robots-Tag: noindex");
        assert_eq!(project("/static/styles.css"), "Access-Control-Allow-Origin: *|X-Robots-Tag: nosnippet, noindex");
    }

    #[test]
    fn cloudflare_exclamation_mark_detaches_a_field() {
        let file = "/*\n  Content-Security-Policy: default-src 'self';\n\n/*.jpg\n  ! Content-Security-Policy\n";
        assert_eq!(fields(file, "a", "/x/y.jpg"), "");
        assert_eq!(fields(file, "a", "/x"), "Content-Security-Policy: default-src 'self';");
    }

    #[test]
    fn cloudflare_placeholder_is_inserted_into_the_value() {
        let file = "/movies/:title\n  x-movie-name: You are watching \":title\"\n/s/*\n  X-S: :splat\n";
        assert_eq!(fields(file, "a", "/movies/alien 3"), "x-movie-name: You are watching \"alien%203\"");
        assert_eq!(fields(file, "a", "/s/a/b"), "X-S: a/b");
    }

    #[test]
    fn wrong_line_is_skipped_and_reported() {
        let file = "X-Early: 1\n/a\n  X-A: 1\n  nonsense\n  : x\n  X-Empty:\n  Content-Length: 1\n  Basic-Auth: a:b\n\
                    /b/*/*\n  X-B: 1\n  nonsense too\n/c\n  X-C: 1\n";
        let (rules, problems) = parse_headers_file(file.as_bytes(), &mut LIMITS.clone());
        assert_eq!(rules.iter().map(|rule| rule.fields.len()).collect::<Vec<_>>(), [1, 1]);
        let lines: Vec<u32> = problems.iter().map(|problem| problem.line).collect();
        assert_eq!(lines, [1, 4, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn rules_beyond_the_limits_are_skipped_and_reported() {
        let (rules, problems) =
            parse_headers_file(b"/a\nX-A: 1\n/b\nX-B: 1\n", &mut RuleLimits { rules_max: 1, patterns_max: 1 });
        assert_eq!((rules.len(), problems.len(), problems[0].line), (1, 1, 3));
    }
}
