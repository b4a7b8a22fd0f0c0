//! Resolves a reference to the request path, as browsers do (URL Standard §4.4), if it stays within the site.

use sanderling_server::is_own_authority;

/// The site of references, in the form of URLs.
#[derive(Debug)]
pub(super) struct SiteHosts<'s> {
    pub(super) hosts: &'s [String],
    /// The ports at which the server listens for HTTP and HTTPS.
    pub(super) ports: &'s [u16],
}

impl SiteHosts<'_> {
    /// The path and query of a request for `reference` in a document whose path begins with `directory`, which begins
    /// and ends with a slash; `None` if it leads elsewhere, or to a place in the document itself.
    pub(super) fn target(&self, directory: &str, reference: &str) -> Option<String> {
        let reference: String = reference.trim_ascii().chars().filter(|c| !matches!(c, '\t' | '\n' | '\r')).collect();
        let reference = reference.split('#').next().unwrap_or_default();
        let relative = self.strip_own_origin(reference)?;
        let (path, query) = match relative.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (relative, None),
        };
        let path = path.replace('\\', "/");
        if path.is_empty() {
            return (relative.len() != reference.len()).then(|| "/".to_owned());
        }
        let whole = if path.starts_with('/') { path } else { format!("{directory}{path}") };
        let mut target = without_dot_segments(&whole);
        if let Some(query) = query {
            target += "?";
            target += query;
        }
        Some(target)
    }

    /// The directory that references are relative to in a document with `base`; `None` if that leads elsewhere.
    pub(super) fn base(&self, directory: &str, base: &str) -> Option<String> {
        let target = self.target(directory, base)?;
        let path = target.split('?').next().unwrap_or_default();
        Some(path[..=path.rfind('/')?].to_owned())
    }

    /// A reference without its scheme and host, if these are the site's own.
    fn strip_own_origin<'r>(&self, reference: &'r str) -> Option<&'r str> {
        let scheme = reference.split_once(':').filter(|(scheme, _)| {
            scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
        });
        let after_scheme = match scheme {
            Some((scheme, rest)) if ["http", "https"].iter().any(|own| scheme.eq_ignore_ascii_case(own)) => rest,
            Some(_) => return None,
            None => reference,
        };
        match after_scheme.strip_prefix("//") {
            Some(rest) => {
                let end = rest.find(['/', '?']).unwrap_or(rest.len());
                is_own_authority(&rest.as_bytes()[..end], self.hosts, self.ports).then_some(&rest[end..])
            }
            None if scheme.is_some() => None,
            None => Some(reference),
        }
    }
}

/// The path after resolving `..`, which removes the preceding segment, and has no effect at the root.
fn without_dot_segments(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            "." => {}
            ".." => drop(kept.pop()),
            segment => {
                kept.push(segment);
                continue;
            }
        }
        if is_last {
            kept.push("");
        }
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_resolved_as_browsers_do() {
        let hosts = ["example.com".to_owned()];
        let site = SiteHosts { hosts: &hosts, ports: &[8080, 8443] };
        for (reference, expected) in [
            ("a.html", Some("/blog/a.html")),
            (" ./a.html\n", Some("/blog/a.html")),
            ("../", Some("/")),
            ("..", Some("/")),
            (".", Some("/blog/")),
            ("../../../a", Some("/a")),
            ("/x/../y/./z/", Some("/y/z/")),
            ("/a?b=/../c#d", Some("/a?b=/../c")),
            ("a b", Some("/blog/a b")),
            ("x\\y", Some("/blog/x/y")),
            ("//example.com/a", Some("/a")),
            ("https://EXAMPLE.com:8443/a", Some("/a")),
            ("https://example.com", Some("/")),
            ("http://example.com?x", Some("/")),
            ("http://example.com:80/a", Some("/a")),
            ("https://example.com:443/a", Some("/a")),
            ("https://example.com:/a", Some("/a")),
            // The URL leads to another server on the same host.
            ("http://example.com:3000/grafana/", None),
            ("//example.com:9090", None),
            ("http://example.com:x/a", None),
            ("https://example.org/a", None),
            ("//example.org/a", None),
            ("mailto:a@example.com", None),
            ("javascript:void(0)", None),
            ("data:,x", None),
            ("#top", None),
            ("", None),
            ("?page=2", None),
            ("a:b", None),
            ("./a:b", Some("/blog/a:b")),
            ("1:b", Some("/blog/1:b")),
        ] {
            assert_eq!(site.target("/blog/", reference).as_deref(), expected, "{reference}");
        }
        for (base, expected) in
            [("/app/", Some("/app/")), ("x/y.html", Some("/blog/x/")), ("https://example.org/", None)]
        {
            assert_eq!(site.base("/blog/", base).as_deref(), expected, "{base}");
        }
    }
}
