//! A site of six files and a folder, served from a table the way a server would serve it.

use sanderling_http::{
    Body, ContentCoding, FileMetadata, FileTime, HttpDate, LookupError, Negotiation, Parsed, Persistence,
    Representation, Request, RequestLimits, Response, SitePath, media_type, negotiate_coding, parse_request, respond,
};

/// The time of all answers: Sun, 06 Nov 1994 08:49:37 GMT.
pub(crate) const NOW_UNIX_S: u64 = 784_111_777;
/// When all files were changed: a day before.
pub(crate) const MODIFIED: &str = "Sat, 05 Nov 1994 08:49:37 GMT";
pub(crate) const MODIFIED_UNIX_S: i64 = 784_025_377;

pub(crate) fn facts(length_bytes: u64) -> FileMetadata {
    let time = FileTime { unix_s: MODIFIED_UNIX_S, nanos: 123_456_789 };
    FileMetadata { length_bytes, modified: time, changed: time, device: 2049, inode: 77 }
}

/// The codings that `app.js` is there in, besides the file as it is.
const CODINGS_OF_APP: [ContentCoding; 2] = [ContentCoding::Brotli, ContentCoding::Gzip];
/// The length of `app.js` as it is.
pub(crate) const APP_BYTES: u64 = 1_000;

/// The file that answers `request`, when there is one at this path.
fn representation(path: &[u8], request: &Request<'_>) -> Option<Representation> {
    let length_bytes = match path {
        b"index.html" | b"a b.txt" | b".well-known/security.txt" => 36,
        b"empty.txt" => 0,
        b"huge.bin" => u64::MAX,
        b"app.js" => return Some(app(negotiate_coding(&request.fields, CODINGS_OF_APP))),
        _ => return None,
    };
    Some(representation_of(&facts(length_bytes), path, Negotiation::None))
}

/// `app.js` in a coding, each of them with a length, a time and a number of its own.
fn app(coding: ContentCoding) -> Representation {
    let plain = facts(APP_BYTES);
    let facts = match coding {
        ContentCoding::Identity => plain,
        _ => FileMetadata {
            length_bytes: plain.length_bytes - 100 * coding as u64,
            modified: FileTime { unix_s: plain.modified.unix_s + coding as i64, nanos: 0 },
            inode: plain.inode + coding as u64,
            ..plain
        },
    };
    representation_of(&facts, b"app.js", Negotiation::AcceptEncoding(coding))
}

fn representation_of(facts: &FileMetadata, path: &[u8], variant: Negotiation) -> Representation {
    Representation::new(facts, media_type(path), variant, b"Cache-Control: no-cache\r\n", NOW_UNIX_S)
}

/// The entity tag of a file of the site that has 36 bytes, with its quotes.
pub(crate) fn etag(path: &str) -> String {
    etag_of(&representation_of(&facts(36), path.as_bytes(), Negotiation::None))
}

/// The entity tag of `app.js` in a coding.
pub(crate) fn etag_of_app(coding: ContentCoding) -> String {
    etag_of(&app(coding))
}

fn etag_of(file: &Representation) -> String {
    String::from_utf8(file.etag().to_vec()).expect("an entity tag is ASCII")
}

/// What a connection does with the first request of its bytes.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The head without its last empty line, in lines.
    pub(crate) lines: Vec<String>,
    /// What follows the head: `none`, `page` with its length, or `file` with its first byte and its length.
    pub(crate) content: String,
    pub(crate) is_close: bool,
    /// Where the next request starts; nothing when the request was refused as such.
    pub(crate) head_bytes: Option<usize>,
}

impl Answer {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let lines = self.lines[1..].iter();
        let mut values = lines.filter_map(|line| line.split_once(": ").filter(|(other, _)| *other == name));
        let value = values.next().map(|(_, value)| value);
        assert!(values.next().is_none(), "{name} stands twice in {:#?}", self.lines);
        value
    }

    pub(crate) fn status(&self) -> u16 {
        self.lines[0].split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status line")
    }
}

/// The answer to the first request of `bytes`; nothing while it is incomplete.
pub(crate) fn answer(bytes: &[u8]) -> Option<Answer> {
    match parse_request(bytes, &RequestLimits::default()) {
        Ok(Parsed::Partial) => None,
        Err(error) => Some(written(&Response::error(error.status()), None)),
        Ok(Parsed::Complete { request, head_bytes }) => {
            let path = request.path().map(SitePath::parse);
            let file = path.as_ref().and_then(|path| representation(path.as_ref().ok()?.as_bytes(), &request));
            let found = match (&path, &file) {
                (None, _) => Err(LookupError::NotLookedUp),
                (Some(Err(error)), _) => Err(LookupError::from(*error)),
                (Some(Ok(_)), Some(file)) => Ok(file),
                (Some(Ok(path)), None) if [&b"docs"[..], "größe".as_bytes()].contains(&path.as_bytes()) => {
                    Err(LookupError::Directory(path))
                }
                (Some(Ok(_)), None) => Err(LookupError::NotFound),
            };
            Some(written(&respond(&request, found), Some(head_bytes)))
        }
    }
}

fn written(response: &Response<'_>, head_bytes: Option<usize>) -> Answer {
    let mut head = Vec::new();
    response.write_head(&HttpDate::from_unix_s(NOW_UNIX_S), &mut head);
    let head = String::from_utf8(head).expect("our heads are ASCII");
    let lines = head.strip_suffix("\r\n\r\n").expect("an empty line at the end").split("\r\n");
    let content = match response.body() {
        Body::Empty => "none".to_owned(),
        Body::Page(page) => format!("page {}", page.len()),
        Body::File { start_bytes, length_bytes } => format!("file {start_bytes}+{length_bytes}"),
    };
    Answer {
        lines: lines.map(str::to_owned).collect(),
        content,
        is_close: response.persistence() == Persistence::Close,
        head_bytes,
    }
}

/// Checks the answer to a request whose lines end with `\n` for `\r\n`.
///
/// Each expectation is a line of the head; or `!Name`, a field that must not be there; or `> content` as
/// [`Answer::content`] has it.
#[track_caller]
pub(crate) fn check(request: &str, expected: &[&str]) {
    check_bytes(request.replace('\n', "\r\n").as_bytes(), expected);
}

#[track_caller]
pub(crate) fn check_bytes(request: &[u8], expected: &[&str]) {
    let text = request.escape_ascii();
    let Some(answer) = answer(request) else { panic!("no answer to {text}") };
    for &line in expected {
        let is_met = match line.split_at(1) {
            ("!", name) => answer.field(name).is_none(),
            (">", content) => answer.content == content.trim(),
            _ if line.starts_with("HTTP/") => answer.lines[0] == line,
            _ => answer.lines[1..].iter().any(|other| other == line),
        };
        assert!(is_met, "expected {line:?} in answer to {text}: {answer:#?}");
    }
}

/// Checks that a request gets `status`, and that the connection closes and says so.
#[track_caller]
pub(crate) fn check_refused(request: &[u8], status: u16) {
    let text = request.escape_ascii();
    let Some(answer) = answer(request) else { panic!("no answer to {text}") };
    assert_eq!(answer.status(), status, "{text}: {answer:#?}");
    assert!(answer.is_close, "{text}: {answer:#?}");
    assert_eq!(answer.field("Connection"), Some("close"), "{text}");
}
