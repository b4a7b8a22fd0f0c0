//! Whether the response of a backend is compressed for the client, and how its head says so.

use crate::net::content_encoder::{ContentEncoder, STREAMED};
use sanderling_http::{
    BackendResponse, ContentCoding, Method, Request, ResponseFraming, is_text, negotiate_coding, weak_etag,
};

/// Content that is shorter is not worth the fields that it would get.
const CONTENT_BYTES_MIN: u64 = 1024;

/// How a response is changed.
#[derive(Debug, Default)]
pub(super) struct Recoding {
    pub(super) encoder: Option<Box<ContentEncoder>>,
    /// Fields that are set or removed.
    pub(super) edits: Vec<(String, Option<String>)>,
}

impl Recoding {
    /// For a route that compresses responses, and changes them by `edits`. `length_bytes`: of the content, if it is
    /// known.
    pub(super) fn of(
        response: &BackendResponse<'_>,
        request: &Request<'_>,
        length_bytes: Option<u64>,
        edits: &[(String, Option<String>)],
    ) -> Recoding {
        let mut recoding = Recoding::default();
        let is_edited = |name: &str| edits.iter().any(|(edited, _)| edited.eq_ignore_ascii_case(name));
        if is_edited("Content-Encoding") || !is_eligible(response) {
            return recoding;
        }
        recoding.vary(response);
        let has_content = !matches!(response.framing(), ResponseFraming::None);
        let is_long = length_bytes.is_none_or(|length_bytes| length_bytes >= CONTENT_BYTES_MIN);
        if !has_content || !is_long || request.method == Method::Head {
            return recoding;
        }
        let coding = negotiate_coding(&request.fields, STREAMED);
        // Without memory for a compressor, the content is sent as it is.
        if let Ok(Some(encoder)) = ContentEncoder::new(coding) {
            recoding.encode(encoder, coding, response);
        }
        // Those of the operator take precedence; lines of Vary add up.
        recoding.edits.retain(|(name, _)| name == "Vary" || !is_edited(name));
        recoding
    }

    /// Compresses the whole content at once.
    pub(super) fn encode_whole(&mut self, content: &mut Vec<u8>) {
        match self.encoder.take().map(|encoder| encoder.encode(content)) {
            None => {}
            Some(Ok(encoded)) => *content = encoded,
            Some(Err(_)) => self.edits.clear(),
        }
    }

    /// Extends Vary of all responses that may be compressed, also of those that are not (RFC 9110 §12.5.5).
    fn vary(&mut self, response: &BackendResponse<'_>) {
        let mut names = Vec::new();
        for line in response.field_values(b"vary") {
            names.extend(line.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).map(String::from_utf8_lossy));
        }
        if !names.iter().any(|name| name == "*" || name.eq_ignore_ascii_case("accept-encoding")) {
            names.push("Accept-Encoding".into());
            self.edits.push(("Vary".to_owned(), Some(names.join(", "))));
        }
    }

    fn encode(&mut self, encoder: ContentEncoder, coding: ContentCoding, response: &BackendResponse<'_>) {
        self.encoder = Some(Box::new(encoder));
        self.edits.push(("Content-Encoding".to_owned(), Some(coding.name().to_owned())));
        // Ranges are those of the content without the coding.
        self.edits.push(("Accept-Ranges".to_owned(), None));
        if let Some(etag) = response.field(b"etag") {
            // The bytes differ, although the content does not (RFC 9110 §8.8.3.3).
            self.edits.push(("ETag".to_owned(), weak_etag(etag)));
        }
    }
}

/// Whether a response may be compressed, for a client that accepts it.
fn is_eligible(response: &BackendResponse<'_>) -> bool {
    // They are about the bytes that the backend sends.
    const OF_BYTES: [&[u8]; 5] = [b"content-range", b"content-digest", b"repr-digest", b"digest", b"content-md5"];
    let is_whole = response.status() >= 200 && !matches!(response.status(), 204 | 206);
    let is_coded = response.field_values(b"content-encoding").any(|coding| !coding.eq_ignore_ascii_case(b"identity"));
    let forbids = |line: &[u8]| memchr::memmem::find(&line.to_ascii_lowercase(), b"no-transform").is_some();
    // A 304 does not repeat the type of the content.
    let is_text = response.status() == 304 || response.field(b"content-type").is_some_and(is_text);
    is_whole
        && is_text
        && !is_coded
        && !OF_BYTES.iter().any(|name| response.has_field(name))
        && !response.field_values(b"cache-control").any(forbids)
}
