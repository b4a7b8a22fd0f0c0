//! Writes the listing of a directory: a page for people, and JSON for programs.

use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Ordering;

use crate::date::rfc_3339;
use crate::output::{put_fmt, put_number};
use crate::response::put_path_segment;

/// The entries of a directory.
#[derive(Clone, Debug)]
pub struct Listing<'l> {
    /// The directory below the document root, without a slash at either end; empty for the root.
    pub path: &'l [u8],
    /// In the order of [`Listing::sort`].
    pub entries: &'l [ListedFile],
    /// There are more entries than these.
    pub is_truncated: bool,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedFile {
    /// Its name, of any bytes but a slash.
    pub name: Vec<u8>,
    /// It is a directory.
    pub is_directory: bool,
    /// The length of a file.
    pub length_bytes: u64,
    /// Its last modification; negative before 1970.
    pub modified_unix_s: i64,
}

/// Before the title.
const PAGE_START: &[u8] = b"<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>";
/// Between the title and the breadcrumb.
const PAGE_STYLE: &[u8] = b"</title>\n<style>\n\
:root { color-scheme: light dark; --line: #8884; --dim: #666; --hover: #8881 }\n\
@media (prefers-color-scheme: dark) { :root { --dim: #aaa } }\n\
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2.5rem auto; padding: 0 1rem }\n\
nav { font-size: 1.3rem; font-weight: 600; overflow-wrap: anywhere; margin-bottom: 1rem }\n\
nav a { padding: .1em .15em }\n\
table { border-collapse: collapse; width: 100% }\n\
th { text-align: left; font-weight: 500; color: var(--dim); font-size: .85rem }\n\
th, td { border-bottom: 1px solid var(--line); padding: 0 }\n\
th, .size, .date { padding: .35rem .5rem }\n\
td a { display: block; padding: .35rem .5rem; overflow-wrap: anywhere }\n\
tbody tr:hover { background: var(--hover) }\n\
a { color: LinkText; text-decoration: none }\n\
a:hover { text-decoration: underline }\n\
a:focus-visible { outline: 2px solid Highlight; outline-offset: -2px; border-radius: 3px }\n\
.size, .date { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; color: var(--dim); width: 1% }\n\
p { color: var(--dim); font-size: .85rem; padding: 0 .5rem }\n\
@media (max-width: 34rem) { .date { display: none } }\n\
</style>\n</head>\n<body>\n<nav aria-label=\"Directories\">";
const TABLE_START: &[u8] = b"</nav>\n<table>\n<thead>\n<tr><th scope=\"col\">Name</th>\
<th scope=\"col\" class=\"size\">Size</th><th scope=\"col\" class=\"date\">Modified (UTC)</th></tr>\n</thead>\n<tbody>\n";
const PAGE_END: &[u8] = b"</body>\n</html>\n";
/// Units of 1024.
const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

impl Listing<'_> {
    /// Sorts entries: directories first, then by name, with numbers in it in their order.
    pub fn sort(entries: &mut [ListedFile]) {
        entries.sort_by(|left, right| {
            let by_kind = right.is_directory.cmp(&left.is_directory);
            let by_name = by_kind.then_with(|| natural_order(&left.name, &right.name));
            by_name.then_with(|| left.name.cmp(&right.name))
        });
    }

    /// Appends the page.
    pub fn write_html(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(PAGE_START);
        out.push(b'/');
        put_html(self.path, out);
        out.extend_from_slice(PAGE_STYLE);
        self.put_breadcrumb(out);
        out.extend_from_slice(TABLE_START);
        if !self.path.is_empty() {
            out.extend_from_slice(b"<tr><td><a href=\"../\">../</a></td><td></td><td class=\"date\"></td></tr>\n");
        }
        self.entries.iter().for_each(|entry| put_row(entry, out));
        out.extend_from_slice(b"</tbody>\n</table>\n<p>");
        self.put_summary(out);
        out.extend_from_slice(b"</p>\n");
        out.extend_from_slice(PAGE_END);
    }

    /// The directories of the path, each a link except the last.
    fn put_breadcrumb(&self, out: &mut Vec<u8>) {
        if self.path.is_empty() {
            out.extend_from_slice(b"/");
            return;
        }
        out.extend_from_slice(b"<a href=\"/\">/</a>");
        let mut segments = self.path.split(|&byte| byte == b'/').peekable();
        let mut url = Vec::from(&b"/"[..]);
        while let Some(segment) = segments.next() {
            if segments.peek().is_none() {
                out.extend_from_slice(b"<span aria-current=\"page\">");
                put_html(segment, out);
                out.extend_from_slice(b"</span>");
                return;
            }
            put_href(segment, &mut url);
            url.push(b'/');
            out.extend_from_slice(b"<a href=\"");
            out.extend_from_slice(&url);
            out.extend_from_slice(b"\">");
            put_html(segment, out);
            out.extend_from_slice(b"</a>/");
        }
    }

    fn put_summary(&self, out: &mut Vec<u8>) {
        let directory_count = self.entries.iter().filter(|entry| entry.is_directory).count();
        let files = || self.entries.iter().filter(|entry| !entry.is_directory);
        let plural = |count: usize, one: &'static str, many: &'static str| if count == 1 { one } else { many };
        let file_count = files().count();
        put_fmt(out, format_args!("{directory_count} {}, ", plural(directory_count, "directory", "directories")));
        put_fmt(out, format_args!("{file_count} {}, ", plural(file_count, "file", "files")));
        put_size(files().fold(0, |sum: u64, file| sum.saturating_add(file.length_bytes)), out);
        if self.is_truncated {
            out.extend_from_slice(b". The list is incomplete");
        }
        out.push(b'.');
    }

    /// Appends the same as JSON.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"path\":\"/");
        put_json(self.path, out);
        out.extend_from_slice(if self.path.is_empty() { b"\",\"entries\":[" } else { b"/\",\"entries\":[" });
        for (index, entry) in self.entries.iter().enumerate() {
            out.extend_from_slice(if index == 0 { b"\n" } else { b",\n" });
            out.extend_from_slice(b"{\"name\":\"");
            put_json(&entry.name, out);
            out.extend_from_slice(b"\",\"url\":\"");
            put_href(&entry.name, out);
            match entry.is_directory {
                true => out.extend_from_slice(b"/\",\"type\":\"directory\""),
                false => put_number(b"\",\"type\":\"file\",\"size\":", entry.length_bytes, out),
            }
            if let Ok(unix_s) = u64::try_from(entry.modified_unix_s) {
                out.extend_from_slice(b",\"modified\":\"");
                out.extend_from_slice(&rfc_3339(unix_s));
                out.push(b'"');
            }
            out.push(b'}');
        }
        put_fmt(out, format_args!("\n],\"truncated\":{}}}\n", self.is_truncated));
    }
}

fn put_row(entry: &ListedFile, out: &mut Vec<u8>) {
    let slash: &[u8] = if entry.is_directory { b"/" } else { b"" };
    out.extend_from_slice(b"<tr><td><a href=\"");
    put_href(&entry.name, out);
    out.extend_from_slice(slash);
    out.extend_from_slice(b"\">");
    put_html(&entry.name, out);
    out.extend_from_slice(slash);
    out.extend_from_slice(b"</a></td><td class=\"size\">");
    if !entry.is_directory {
        put_size(entry.length_bytes, out);
    }
    out.extend_from_slice(b"</td><td class=\"date\">");
    if let Ok(unix_s) = u64::try_from(entry.modified_unix_s) {
        let time = rfc_3339(unix_s);
        out.extend_from_slice(b"<time datetime=\"");
        out.extend_from_slice(&time);
        out.extend_from_slice(b"\">");
        out.extend_from_slice(&time[..10]);
        out.push(b' ');
        out.extend_from_slice(&time[11..16]);
        out.extend_from_slice(b"</time>");
    }
    out.extend_from_slice(b"</td></tr>\n");
}

/// Appends a name as a relative URL in an attribute. With `./` before it a colon does not end a scheme (RFC 3986 §4.2).
fn put_href(name: &[u8], out: &mut Vec<u8>) {
    if name.contains(&b':') {
        out.extend_from_slice(b"./");
    }
    let start = out.len();
    put_path_segment(name, out);
    // Allowed in a URL, but not in an attribute or a text of HTML.
    let mut at = start;
    while let Some(found) = out[at..].iter().position(|byte| matches!(byte, b'&' | b'\'')) {
        let encoded: &[u8] = if out[at + found] == b'&' { b"%26" } else { b"%27" };
        out.splice(at + found..=at + found, encoded.iter().copied());
        at += found + encoded.len();
    }
}

/// Appends text of HTML, of an element or an attribute. Bytes that are not UTF-8 become U+FFFD.
fn put_html(text: &[u8], out: &mut Vec<u8>) {
    for character in String::from_utf8_lossy(text).chars() {
        match character {
            '&' => out.extend_from_slice(b"&amp;"),
            '<' => out.extend_from_slice(b"&lt;"),
            '>' => out.extend_from_slice(b"&gt;"),
            '"' => out.extend_from_slice(b"&quot;"),
            '\'' => out.extend_from_slice(b"&#39;"),
            _ if is_confusing(character) => put_fmt(out, format_args!("\u{fffd}")),
            _ => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

/// Whether a character is not shown as itself: control characters, and those that change the direction of the text
/// after them, so that `exe.txt` may be shown for `txt.exe`.
fn is_confusing(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Appends the text of a string of JSON (RFC 8259 §7).
fn put_json(text: &[u8], out: &mut Vec<u8>) {
    for character in String::from_utf8_lossy(text).chars() {
        match character {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            _ if character.is_control() => put_fmt(out, format_args!("\\u{:04x}", u32::from(character))),
            _ => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

/// Appends a length with three significant digits, or in bytes.
fn put_size(bytes: u64, out: &mut Vec<u8>) {
    let mut unit = 0;
    while unit + 1 < UNITS.len() && bytes >> (10 * (unit + 1)) != 0 {
        unit += 1;
    }
    let shift = 10 * unit as u32;
    let whole = bytes >> shift;
    if unit == 0 || whole >= 10 {
        put_fmt(out, format_args!("{whole} {}", UNITS[unit]));
    } else {
        let tenths = ((u128::from(bytes) * 10) >> shift) % 10;
        put_fmt(out, format_args!("{whole}.{tenths} {}", UNITS[unit]));
    }
}

/// Compares names as people do: without regard to the case of ASCII letters, and numbers by their value.
fn natural_order(left: &[u8], right: &[u8]) -> Ordering {
    let (mut left, mut right) = (left, right);
    while let ([first, rest @ ..], [other, others @ ..]) = (left, right) {
        if first.is_ascii_digit() && other.is_ascii_digit() {
            let (number, after) = take_number(left);
            let (other_number, other_after) = take_number(right);
            let order = number.len().cmp(&other_number.len()).then_with(|| number.cmp(other_number));
            if order != Ordering::Equal {
                return order;
            }
            (left, right) = (after, other_after);
            continue;
        }
        match first.to_ascii_lowercase().cmp(&other.to_ascii_lowercase()) {
            Ordering::Equal => (left, right) = (rest, others),
            order => return order,
        }
    }
    left.len().cmp(&right.len())
}

/// The digits at the start, without leading zeros, and the rest.
fn take_number(text: &[u8]) -> (&[u8], &[u8]) {
    let (digits, rest) = text.split_at(text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len()));
    (&digits[digits.iter().position(|&byte| byte != b'0').unwrap_or(digits.len())..], rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn file(name: &str) -> ListedFile {
        ListedFile { name: name.into(), is_directory: false, length_bytes: 0, modified_unix_s: 0 }
    }

    fn directory(name: &str) -> ListedFile {
        ListedFile { is_directory: true, ..file(name) }
    }

    fn html(path: &str, entries: &[ListedFile]) -> String {
        let mut out = vec![];
        Listing { path: path.as_bytes(), entries, is_truncated: false }.write_html(&mut out);
        String::from_utf8(out).expect("UTF-8")
    }

    fn json(path: &str, entries: &[ListedFile]) -> String {
        let mut out = vec![];
        Listing { path: path.as_bytes(), entries, is_truncated: true }.write_json(&mut out);
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn directories_are_first_and_numbers_in_their_order() {
        let mut entries = ["b10", "B9", "a", "b010", "b1x", "10", "9", ""].map(file).to_vec();
        entries.extend([directory("z"), directory("y")]);
        Listing::sort(&mut entries);
        let names: Vec<_> = entries.iter().map(|entry| str::from_utf8(&entry.name).expect("text")).collect();
        assert_eq!(names, ["y", "z", "", "9", "10", "a", "b1x", "B9", "b010", "b10"]);
    }

    #[test]
    fn names_are_escaped_in_html_urls_and_json() {
        let name = "<b>\"'&a: %?#\u{202e}\u{1}\\é";
        let page = html("x<y/z", &[file(name)]);
        assert!(page.contains("href=\"./%3Cb%3E%22%27%26a:%20%25%3F%23%E2%80%AE%01%5C%C3%A9\""), "{page}");
        assert!(page.contains(">&lt;b&gt;&quot;&#39;&amp;a: %?#\u{fffd}\u{fffd}\\é</a>"), "{page}");
        assert!(page.contains("<a href=\"/x%3Cy/\">x&lt;y</a>/<span aria-current=\"page\">z</span>"), "{page}");
        assert!(page.contains("<title>/x&lt;y/z</title>"), "{page}");
        let text = json("x\"y", &[file(name)]);
        assert!(text.starts_with("{\"path\":\"/x\\\"y/\","), "{text}");
        assert!(text.contains("\"name\":\"<b>\\\"'&a: %?#\u{202e}\\u0001\\\\é\""), "{text}");
    }

    #[test]
    fn names_that_are_not_utf_8_have_their_bytes_in_the_url() {
        let entry = ListedFile { name: vec![b'a', 0xff], ..file("") };
        assert!(html("", core::slice::from_ref(&entry)).contains("<a href=\"a%FF\">a\u{fffd}</a>"));
        assert!(json("", &[entry]).contains("{\"name\":\"a\u{fffd}\",\"url\":\"a%FF\""));
    }

    #[test]
    fn sizes_and_dates_are_short() {
        for (length_bytes, expected) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1_600_000, "1.5 MiB"),
            (10 << 20, "10 MiB"),
            (u64::MAX, "16383 PiB"),
        ] {
            let entry = ListedFile { length_bytes, modified_unix_s: 951_782_399, ..file("a") };
            let page = html("", &[entry]);
            assert!(page.contains(&alloc::format!("<td class=\"size\">{expected}</td>")), "{page}");
            assert!(page.contains("<time datetime=\"2000-02-28T23:59:59Z\">2000-02-28 23:59</time>"), "{page}");
        }
        let before_1970 = ListedFile { modified_unix_s: -1, ..file("a") };
        assert!(html("", core::slice::from_ref(&before_1970)).contains("<td class=\"date\"></td>"));
        assert!(!json("", &[before_1970]).contains("modified"));
    }

    #[test]
    fn the_summary_counts_and_says_what_is_not_shown() {
        assert!(html("", &[]).contains("<p>0 directories, 0 files, 0 B.</p>"));
        let entries = [directory("a"), ListedFile { length_bytes: 2048, ..file("b") }];
        assert!(html("", &entries).contains("<p>1 directory, 1 file, 2.0 KiB.</p>"));
        let mut out = vec![];
        Listing { path: b"", entries: &entries, is_truncated: true }.write_html(&mut out);
        assert!(String::from_utf8(out).expect("UTF-8").contains("The list is incomplete."));
    }

    #[test]
    fn json_has_a_line_for_each_entry() {
        let entries = [directory("a"), ListedFile { length_bytes: 7, modified_unix_s: 951_782_399, ..file("b.txt") }];
        assert_eq!(
            json("d", &entries),
            "{\"path\":\"/d/\",\"entries\":[\n\
             {\"name\":\"a\",\"url\":\"a/\",\"type\":\"directory\",\"modified\":\"1970-01-01T00:00:00Z\"},\n\
             {\"name\":\"b.txt\",\"url\":\"b.txt\",\"type\":\"file\",\"size\":7,\"modified\":\"2000-02-28T23:59:59Z\"}\n\
             ],\"truncated\":true}\n"
        );
        assert_eq!(json("", &[]), "{\"path\":\"/\",\"entries\":[\n],\"truncated\":true}\n");
    }
}
