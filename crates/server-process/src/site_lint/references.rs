//! Finds the references in pages and style sheets: the URLs that a browser follows or offers to follow.

use html5gum::emitters::callback::{CallbackEmitter, CallbackEvent};
use html5gum::{Span, Tokenizer};
use sanderling_server::LinkUse;

/// A reference to another document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reference {
    pub(super) url: String,
    pub(super) link_use: LinkUse,
    /// The position in the document.
    pub(super) offset: usize,
}

/// The references of a page. Relative ones are relative to `base`, if the page has that.
#[derive(Debug, Default)]
pub(super) struct PageReferences {
    pub(super) base: Option<String>,
    pub(super) references: Vec<Reference>,
}

/// How the value of an attribute is read.
#[derive(Clone, Copy)]
enum Value {
    Url(LinkUse),
    /// URLs with descriptors, separated by commas (HTML §2.6.9 `srcset`).
    SourceSet,
    /// The base of the other URLs.
    Base,
}

/// The attributes with URLs that are loaded, or opened by a click.
fn value_of(element: &[u8], attribute: &[u8]) -> Option<Value> {
    match (element, attribute) {
        (b"a" | b"area", b"href") | (b"iframe" | b"frame", b"src") => Some(Value::Url(LinkUse::Navigation)),
        (b"link", b"href")
        | (b"img" | b"script" | b"audio" | b"video" | b"source" | b"track" | b"embed" | b"input", b"src")
        | (b"video", b"poster")
        | (b"object", b"data") => Some(Value::Url(LinkUse::Resource)),
        // Pictures in SVG, within a page.
        (b"image" | b"use", b"href" | b"xlink:href") => Some(Value::Url(LinkUse::Resource)),
        (b"img" | b"source", b"srcset") | (b"link", b"imagesrcset") => Some(Value::SourceSet),
        (b"base", b"href") => Some(Value::Base),
        _ => None,
    }
}

impl PageReferences {
    /// Adds the references of a `style` element or attribute, which begins at `start`.
    fn add_styles(&mut self, content: &[u8], start: usize) {
        let references = of_style_sheet(content).into_iter();
        self.references.extend(references.map(|one| Reference { offset: start + one.offset, ..one }));
    }
}

/// The references of an HTML document.
pub(super) fn of_page(content: &[u8]) -> PageReferences {
    let mut page = PageReferences::default();
    let (mut element, mut attribute) = (Vec::new(), Vec::new());
    // Templates that the place is in: a script may use their content, or change it first.
    let mut template_depth = 0_usize;
    let mut is_in_style = false;
    let callback = |event: CallbackEvent<'_>, span: Span<usize>| -> Option<()> {
        match event {
            CallbackEvent::OpenStartTag { name } => element = name.to_vec(),
            CallbackEvent::AttributeName { name } => attribute = name.to_vec(),
            CallbackEvent::AttributeValue { .. } | CallbackEvent::String { .. } if template_depth > 0 => {}
            CallbackEvent::String { value } if is_in_style => page.add_styles(value, span.start),
            CallbackEvent::AttributeValue { value } if attribute == b"style" && !element.is_empty() => {
                page.add_styles(value, span.start);
            }
            CallbackEvent::AttributeValue { value } => {
                let text = String::from_utf8_lossy(value);
                let mut add = |url: &str, link_use| {
                    page.references.push(Reference { url: url.to_owned(), link_use, offset: span.start });
                };
                match value_of(&element, &attribute) {
                    Some(Value::Url(link_use)) => add(&text, link_use),
                    Some(Value::SourceSet) => source_set(&text).for_each(|url| add(url, LinkUse::Resource)),
                    Some(Value::Base) => page.base = page.base.take().or_else(|| Some(text.into_owned())),
                    None => {}
                }
            }
            CallbackEvent::CloseStartTag { .. } => {
                template_depth += usize::from(element == b"template");
                is_in_style = element == b"style";
                element.clear();
            }
            // The specification lets end tags have attributes, which mean nothing.
            CallbackEvent::EndTag { name } => {
                template_depth = template_depth.saturating_sub(usize::from(name == b"template"));
                is_in_style = false;
                element.clear();
            }
            _ => {}
        }
        None
    };
    let mut emitter = CallbackEmitter::new(callback);
    // The content of scripts and styles has no tags.
    emitter.naively_switch_states(true);
    for token in Tokenizer::new_with_emitter(content, emitter) {
        let Ok(()) = token;
    }
    page
}

/// The URLs of a `srcset`. A URL with commas, such as `data:`, may come in parts, none of which is a path of a site.
fn source_set(text: &str) -> impl Iterator<Item = &str> {
    let has_data = text.contains("data:");
    text.split(',').filter_map(|candidate| candidate.split_ascii_whitespace().next()).filter(move |_| !has_data)
}

/// The references of a style sheet: `url(…)` and `@import "…"` (CSS Syntax §4.3.6, CSS Cascade §2).
pub(super) fn of_style_sheet(content: &[u8]) -> Vec<Reference> {
    let mut references = Vec::new();
    let mut at = 0;
    while at < content.len() {
        let rest = &content[at..];
        if rest.starts_with(b"/*") {
            at += memchr::memmem::find(rest, b"*/").map_or(rest.len(), |end| end + 2);
            continue;
        }
        let before_argument = if starts_with_ignoring_case(rest, b"url(") {
            4
        } else if starts_with_ignoring_case(rest, b"@import") {
            7
        } else {
            at += match rest[0] {
                b'"' | b'\'' => quoted(rest).len() + 2,
                _ => 1,
            };
            continue;
        };
        at += before_argument;
        at += content[at..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        let rest = &content[at..];
        if rest.is_empty() {
            break;
        }
        let url = match rest.first() {
            Some(b'"' | b'\'') => quoted(rest),
            _ if before_argument == 4 => {
                let end = rest.iter().position(|byte| *byte == b')' || byte.is_ascii_whitespace());
                &rest[..end.unwrap_or(rest.len())]
            }
            _ => continue,
        };
        // Escapes are rare; a URL with one is left out.
        if !url.contains(&b'\\') {
            let url_text = String::from_utf8_lossy(url).into_owned();
            references.push(Reference { url: url_text, link_use: LinkUse::Resource, offset: at });
        }
        // The text includes the quotes, if any.
        at += url.len() + if matches!(rest[0], b'"' | b'\'') { 2 } else { 0 };
    }
    references
}

fn starts_with_ignoring_case(text: &[u8], prefix: &[u8]) -> bool {
    text.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// The text between the quotes at the start of `text`.
fn quoted(text: &[u8]) -> &[u8] {
    let mut end = 1;
    while end < text.len() && text[end] != text[0] && text[end] != b'\n' {
        end += if text[end] == b'\\' { 2 } else { 1 };
    }
    &text[1..end.min(text.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_page(html: &str, expected: &str) {
        let page = of_page(html.as_bytes());
        let found: Vec<_> = page.references.iter().map(|one| format!("{:?} {}", one.link_use, one.url)).collect();
        assert_eq!(found.join("; "), expected, "{html}");
        for Reference { url, offset, .. } in page.references {
            assert!(html.contains('&') || html[offset..].contains(&url), "{url} is not after {offset} in {html}");
        }
    }

    #[test]
    fn references_of_pages_are_found() {
        check_page("<a href=x>", "Navigation x");
        check_page("<A HREF='a b' title=y>", "Navigation a b");
        check_page("<a href=\"?a=1&amp;b=2\">", "Navigation ?a=1&b=2");
        check_page("<a name=x><img alt=href src=i.png>", "Resource i.png");
        check_page("<img srcset='a.png 1x, b.png 2x'>", "Resource a.png; Resource b.png");
        check_page("<img srcset='data:image/png;base64,xyz 1x'>", "");
        check_page("<script src=/s.js>'<a href=no>'</script><link href=c.css>", "Resource /s.js; Resource c.css");
        check_page("<!-- <a href=no> --><video poster=p src=v></video>", "Resource p; Resource v");
        check_page("<style>a { b: '<a href=no>' }</style><textarea><a href=no></textarea>", "");
        check_page("<style>\na { b: url(x.png) }</style><p style=no>url(no)", "Resource x.png");
        check_page("<p style='background: url(\"x.png\")' class='url(no)'></p style='url(no)'>", "Resource x.png");
        check_page("<style>a { b: c }</style>url(no)<style/>@import 'x'</style><a href=y>", "Resource x; Navigation y");
        check_page(
            "<svg><image href=a.png /><image xlink:href='b.png'/><use href='i.svg#x'/></svg>",
            "Resource a.png; Resource b.png; Resource i.svg#x",
        );
        check_page(
            "<template><a href=no><template></template><style>a { b: url(no) }</style></template><a href=x>",
            "Navigation x",
        );
        check_page("</template><a href=x><template><base href=no>", "Navigation x");
        check_page("<p>a</p href=no><div href=no>", "");
        check_page("<a href", "");
        check_page("", "");
        assert_eq!(of_page(b"<base href=/x/><base href=/y/>").base.as_deref(), Some("/x/"));
    }

    #[test]
    fn references_of_style_sheets_are_found() {
        let check = |css: &str, expected: &str| {
            let found: Vec<_> = of_style_sheet(css.as_bytes()).into_iter().map(|one| one.url).collect();
            assert_eq!(found.join("; "), expected, "{css}");
        };
        check("a { b: url(x.png) } c { d: URL( 'y z.png' ) }", "x.png; y z.png");
        check("@import \"a.css\"; @import url(b.css) print; @import foo", "a.css; b.css");
        check("/* url(no) */ a::before { content: 'url(no)'; b: url(x) }", "x");
        check("a { b: url(x\\)y); c: url(\"d\\\"e\") }", "");
        check("/* url(no)", "");
        check("a { b: url(x", "x");
        check("a { b: url(", "");
        check("'", "");
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read(content: Vec<u8>) {
            of_page(&content);
            of_style_sheet(&content);
            of_style_sheet(&[b"url('".as_slice(), &content].concat());
        }
    }
}
