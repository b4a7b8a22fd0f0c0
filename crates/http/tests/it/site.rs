//! A site with a fixed set of files and directories, and the checks of its responses.

use sanderling_http::{
    Body, ContentCoding, FileMetadata, FileTime, HttpDate, LookupError, Negotiation, Parsed, Part, PathTraits,
    Persistence, Representation, Request, RequestLimits, Response, SitePath, Validator, media_type, negotiate_coding,
    parse_request, respond,
};

/// The date of all responses: Sun, 06 Nov 1994 08:49:37 GMT.
pub(crate) const NOW_UNIX_S: u64 = 784_111_777;
/// The modification time of all files, a day earlier.
pub(crate) const MODIFIED: &str = "Sat, 05 Nov 1994 08:49:37 GMT";
pub(crate) const MODIFIED_UNIX_S: i64 = 784_025_377;

pub(crate) fn metadata(length_bytes: u64) -> FileMetadata {
    let time = FileTime { unix_s: MODIFIED_UNIX_S, nanos: 123_456_789 };
    FileMetadata { length_bytes, modified: time, changed: time, device: 2049, inode: 77 }
}

/// What the site refuses in a path.
const REFUSED: PathTraits = PathTraits::HIDDEN.union(PathTraits::TOO_LONG);

/// The codings in which `app.js` is available, besides identity.
const CODINGS_OF_APP: [ContentCoding; 2] = [ContentCoding::Brotli, ContentCoding::Gzip];
/// The length of `app.js` without a coding.
pub(crate) const APP_BYTES: u64 = 1_000;

/// The representation of the file at `path` that `request` negotiates.
fn representation(path: &[u8], request: &Request<'_>) -> Option<Representation> {
    let length_bytes = match path {
        b"index.html" | b"a b.txt" | b".well-known/security.txt" => 36,
        b"ten-thousand.txt" => 10_000,
        b"empty.txt" => 0,
        b"huge.bin" => u64::MAX,
        b"app.js" => return Some(app(negotiate_coding(&request.fields, CODINGS_OF_APP))),
        _ => return None,
    };
    Some(new_representation(&metadata(length_bytes), path, Negotiation::None))
}

/// `app.js` in a coding; each has its own length, modification time and inode.
fn app(coding: ContentCoding) -> Representation {
    let plain = metadata(APP_BYTES);
    let metadata = match coding {
        ContentCoding::Identity => plain,
        _ => FileMetadata {
            length_bytes: plain.length_bytes - 100 * coding as u64,
            modified: FileTime { unix_s: plain.modified.unix_s + coding as i64, nanos: 0 },
            inode: plain.inode + coding as u64,
            ..plain
        },
    };
    new_representation(&metadata, b"app.js", Negotiation::AcceptEncoding(coding))
}

fn new_representation(metadata: &FileMetadata, path: &[u8], variant: Negotiation) -> Representation {
    Representation::new(
        metadata,
        Validator::of_metadata(metadata),
        media_type(path),
        variant,
        b"Cache-Control: no-cache\r\n",
        NOW_UNIX_S,
    )
}

/// The entity tag, with its quotes, of a file of 36 bytes.
pub(crate) fn etag(path: &str) -> String {
    etag_of(&new_representation(&metadata(36), path.as_bytes(), Negotiation::None))
}

/// The entity tag of `app.js` in a coding.
pub(crate) fn etag_of_app(coding: ContentCoding) -> String {
    etag_of(&app(coding))
}

fn etag_of(file: &Representation) -> String {
    String::from_utf8(file.etag().to_vec()).expect("an entity tag is ASCII")
}

/// The response to a request, as the client sees it.
#[derive(Debug)]
pub(crate) struct TestResponse {
    /// The lines of the head, without the empty one.
    pub(crate) lines: Vec<String>,
    /// `none`, `page LENGTH`, `file START+LENGTH` or `parts START+LENGTH,START+LENGTH`.
    pub(crate) body: String,
    pub(crate) is_close: bool,
    /// Length of the request head; `None` if the request was refused.
    pub(crate) head_bytes: Option<usize>,
}

impl TestResponse {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let lines = self.lines[1..].iter();
        let mut values = lines.filter_map(|line| line.split_once(": ").filter(|(other, _)| *other == name));
        let value = values.next().map(|(_, value)| value);
        assert!(values.next().is_none(), "{name} is repeated in {:#?}", self.lines);
        value
    }

    pub(crate) fn status(&self) -> u16 {
        self.lines[0].split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status line")
    }
}

/// The response to the first request in `bytes`; `None` if it is incomplete.
pub(crate) fn response_to(bytes: &[u8]) -> Option<TestResponse> {
    match parse_request(bytes, 0, &RequestLimits::default()) {
        Ok(Parsed::Partial) => None,
        Err(error) => Some(write(&Response::error(error.status(), bytes), None)),
        Ok(Parsed::Complete { request, head_bytes }) => {
            let path = request.path().map(SitePath::parse);
            let file = path.as_ref().and_then(|path| representation(path.as_ref().ok()?.as_bytes(), &request));
            let file_result = match (&path, &file) {
                (None, _) => Err(LookupError::NotLookedUp),
                (Some(Err(error)), _) => Err(LookupError::from(*error)),
                (Some(Ok(path)), _) if path.traits().intersects(REFUSED) => Err(LookupError::NotFound),
                (Some(Ok(_)), Some(file)) => Ok(file),
                (Some(Ok(path)), None) if [&b"docs"[..], "größe".as_bytes()].contains(&path.as_bytes()) => {
                    Err(LookupError::Directory(path))
                }
                (Some(Ok(_)), None) => Err(LookupError::NotFound),
            };
            Some(write(&respond(&request, file_result, NOW_UNIX_S), Some(head_bytes)))
        }
    }
}

/// The response of a site that redirects to HTTPS at `port`; `None` if the request cannot be redirected.
pub(crate) fn https_redirect_of(request: &str, port: u16) -> Option<TestResponse> {
    let request = request.replace('\n', "\r\n");
    match parse_request(request.as_bytes(), 0, &RequestLimits::default()) {
        Ok(Parsed::Complete { request, .. }) => Some(write(&Response::https_redirect(&request, port)?, None)),
        other => panic!("{other:?}"),
    }
}

fn write(response: &Response<'_>, head_bytes: Option<usize>) -> TestResponse {
    let mut head = Vec::new();
    response.write_head(&HttpDate::from_unix_s(NOW_UNIX_S), &mut head);
    let head = String::from_utf8(head).expect("a head is ASCII");
    let lines = head.strip_suffix("\r\n\r\n").expect("an empty line at the end").split("\r\n");
    let body = match response.body() {
        Body::Empty | Body::DnsMessage => "none".to_owned(),
        Body::Text(text) => format!("text {}", text.len()),
        Body::StatusPage(page) => format!("page {}", page.len()),
        Body::File { start_bytes, length_bytes } => format!("file {start_bytes}+{length_bytes}"),
        Body::Multipart(multipart) => {
            let part = |part: Part| format!("{}+{}", part.start_bytes, part.length_bytes);
            format!("parts {}", multipart.parts().map(part).collect::<Vec<_>>().join(","))
        }
    };
    TestResponse {
        lines: lines.map(str::to_owned).collect(),
        body,
        is_close: response.persistence() == Persistence::Close,
        head_bytes,
    }
}

/// Checks the response to a request, with `\n` replaced by CRLF.
///
/// Each expectation is a line of the head, `!Name` for a field that must be absent, or `> body` as in
/// [`TestResponse::body`].
#[track_caller]
pub(crate) fn check(request: &str, expected: &[&str]) {
    check_bytes(request.replace('\n', "\r\n").as_bytes(), expected);
}

#[track_caller]
pub(crate) fn check_bytes(request: &[u8], expected: &[&str]) {
    let text = request.escape_ascii();
    let Some(response) = response_to(request) else { panic!("no response to {text}") };
    for &line in expected {
        let is_met = match line.split_at(1) {
            ("!", name) => response.field(name).is_none(),
            (">", body) => response.body == body.trim(),
            _ if line.starts_with("HTTP/") => response.lines[0] == line,
            _ => response.lines[1..].iter().any(|other| other == line),
        };
        assert!(is_met, "expected {line:?} in response to {text}: {response:#?}");
    }
}

/// Checks that the response has `status` and `Connection: close`.
#[track_caller]
pub(crate) fn check_refused(request: &[u8], status: u16) {
    let text = request.escape_ascii();
    let Some(response) = response_to(request) else { panic!("no response to {text}") };
    assert_eq!(response.status(), status, "{text}: {response:#?}");
    assert!(response.is_close, "{text}: {response:#?}");
    assert_eq!(response.field("Connection"), Some("close"), "{text}");
}
