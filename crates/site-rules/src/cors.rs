//! The other origins that may read the responses of a site (CORS, in the Fetch standard).

use crate::field::FieldEdits;

/// The origins that may read responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cors {
    /// All.
    Any,
    /// These, as browsers send them: `https://app.example`, in lower case.
    Origins(Vec<String>),
}

/// Fields that scripts can read in addition to the safelisted ones.
const EXPOSED: &[u8] = b"Accept-Ranges, Content-Range, ETag";

impl Cors {
    /// Whether `text` is an origin that a browser can send (RFC 6454 §6.2).
    pub fn is_origin(text: &str) -> bool {
        let Some((scheme, host)) = text.split_once("://") else { return false };
        let is_scheme_byte = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"+-.".contains(&byte);
        let is_host_byte = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.:[]_".contains(&byte);
        scheme.starts_with(|first: char| first.is_ascii_lowercase())
            && scheme.bytes().all(is_scheme_byte)
            && !host.is_empty()
            && host.bytes().all(is_host_byte)
    }

    /// Adds the fields for a request with the field Origin. `is_preflight`: it asks whether another request may be
    /// made.
    pub fn add_fields(&self, origin: Option<&[u8]>, is_preflight: bool, edits: &mut FieldEdits<'_>) {
        let allowed = match self {
            Cors::Any => Some(&b"*"[..]),
            Cors::Origins(origins) => {
                // The field is added even without Origin: a cache would send one origin's response to another.
                edits.set("Vary", b"Origin".to_vec());
                origin.filter(|origin| origins.iter().any(|own| own.as_bytes() == *origin))
            }
        };
        let Some(allowed) = allowed else { return };
        edits.set("Access-Control-Allow-Origin", allowed.to_vec());
        if is_preflight {
            edits.set("Access-Control-Allow-Methods", b"GET, HEAD, OPTIONS".to_vec());
            // The asterisk does not stand for Authorization.
            edits.set("Access-Control-Allow-Headers", b"*, Authorization".to_vec());
            edits.set("Access-Control-Max-Age", b"86400".to_vec());
        } else {
            edits.set("Access-Control-Expose-Headers", EXPOSED.to_vec());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(cors: &Cors, origin: Option<&str>, is_preflight: bool) -> String {
        let mut edits = FieldEdits::default();
        cors.add_fields(origin.map(str::as_bytes), is_preflight, &mut edits);
        let mut out = b"HTTP/1.1 204 No Content\r\n\r\n".to_vec();
        edits.apply(0, crate::field::ContentOf::Path, &mut out);
        String::from_utf8(out).expect("text").replace("HTTP/1.1 204 No Content\r\n", "").replace("\r\n", "|")
    }

    #[test]
    fn allowed_origin_is_named_and_any_other_is_not() {
        let cors = Cors::Origins(vec!["https://app.example".to_owned()]);
        let allowed = fields(&cors, Some("https://app.example"), false);
        assert!(allowed.starts_with("Vary: Origin|Access-Control-Allow-Origin: https://app.example|"), "{allowed}");
        for origin in [None, Some("https://other.example"), Some("https://app.example:444"), Some("null"), Some("")] {
            assert_eq!(fields(&cors, origin, true), "Vary: Origin||", "{origin:?}");
        }
        let any = fields(&Cors::Any, None, false);
        assert!(any.starts_with("Access-Control-Allow-Origin: *|") && !any.contains("Vary"), "{any}");
        let preflight = fields(&Cors::Any, Some("https://x.example"), true);
        assert!(preflight.contains("|Access-Control-Allow-Methods: GET, HEAD, OPTIONS|"), "{preflight}");
    }

    #[test]
    fn origin_has_a_scheme_and_a_host_and_nothing_else() {
        for origin in ["https://app.example", "http://localhost:8080", "http://[::1]:80", "capacitor://localhost"] {
            assert!(Cors::is_origin(origin), "{origin}");
        }
        for text in
            ["", "*", "null", "app.example", "https://", "https://A.example", "https://a.example/", "https://*.example"]
        {
            assert!(!Cors::is_origin(text), "{text}");
        }
    }
}
