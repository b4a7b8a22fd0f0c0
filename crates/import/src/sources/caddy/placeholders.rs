//! Placeholders of Caddy in destinations, and variables of the environment.

/// The text with `{$NAME}` as `${NAME}`, and `{$NAME:default}` as its default.
pub(super) fn environment(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("{$") {
        let Some(length) = rest[start..].find('}') else { break };
        out.push_str(&rest[..start]);
        let inner = &rest[start + 2..start + length];
        match inner.split_once(':') {
            Some((_, default)) => out.push_str(default),
            None => out.push_str(&format!("${{{inner}}}")),
        }
        rest = &rest[start + length + 1..];
    }
    out.push_str(rest);
    out
}

/// A destination, for a path that matches `rest`, as a destination writes it.
///
/// # Errors
/// The placeholder that it cannot have.
pub(super) fn destination(text: &str, rest: &str, captures: &[String]) -> Result<String, String> {
    let mut url = environment(text);
    for start in [
        "{scheme}://{host}",
        "{http.request.scheme}://{http.request.host}",
        "https://{host}",
        "https://{hostport}",
        "http://{host}",
    ] {
        if let Some(path) = url.strip_prefix(start) {
            url = path.to_owned();
        }
    }
    for query in ["?{query}", "?{http.request.uri.query}"] {
        url = url.strip_suffix(query).map_or(url.clone(), str::to_owned);
    }
    for (index, capture) in captures.iter().enumerate() {
        let number = index + 1;
        while let Some(start) = url.find("{re.").or_else(|| url.find("{http.regexp.")) {
            let Some(length) = url[start..].find('}') else { break };
            if !url[start..start + length].ends_with(&format!(".{number}")) {
                break;
            }
            url.replace_range(start..=start + length, capture);
        }
    }
    for placeholder in ["{uri}", "{path}", "{http.request.uri}", "{http.request.uri.path}", "{http.request.orig_uri}"] {
        url = url.replace(placeholder, rest);
    }
    if let Some((scheme, rest)) = url.split_once("://") {
        url = format!("{scheme}://{}", rest.replace("//", "/"));
    } else {
        url = url.replace("//", "/");
    }
    match placeholder(&url) {
        Some(name) => Err(name),
        None => Ok(url),
    }
}

/// The first placeholder of a text.
pub(super) fn placeholder(text: &str) -> Option<String> {
    let start = text.match_indices('{').map(|(at, _)| at).find(|at| *at == 0 || text.as_bytes()[at - 1] != b'$')?;
    let length = text[start..].find('}')?;
    Some(text[start..=start + length].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_keep_only_what_rules_can_name() {
        for (text, expected) in [
            ("https://www.example.com{uri}", Ok("https://www.example.com/:splat")),
            ("/new{uri}", Ok("/new/:splat")),
            ("https://{host}{uri}", Ok("/:splat")),
            ("/b/{re.x.1}", Ok("/b/one")),
            ("https://{$DOMAIN}{uri}", Ok("https://${DOMAIN}/:splat")),
            ("https://{$DOMAIN:a.example}/", Ok("https://a.example/")),
            ("/{labels.1}", Err("{labels.1}")),
        ] {
            let found = destination(text, "/:splat", &["one".to_owned()]);
            assert_eq!(found.as_deref().map_err(String::as_str), expected, "{text}");
        }
    }
}
