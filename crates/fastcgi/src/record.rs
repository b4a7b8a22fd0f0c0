//! The header of a record (FastCGI 1.0, §3.3).

/// Bytes of a header.
pub(crate) const HEADER_BYTES: usize = 8;
/// The only version.
pub(crate) const VERSION: u8 = 1;
/// The only request of a connection. The number 0 is that of management records.
pub(crate) const REQUEST_ID: u16 = 1;

/// Types of records (§8).
pub(crate) mod kind {
    pub(crate) const BEGIN_REQUEST: u8 = 1;
    pub(crate) const ABORT_REQUEST: u8 = 2;
    pub(crate) const END_REQUEST: u8 = 3;
    pub(crate) const PARAMS: u8 = 4;
    pub(crate) const STDIN: u8 = 5;
    pub(crate) const STDOUT: u8 = 6;
    pub(crate) const STDERR: u8 = 7;
}

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) version: u8,
    pub(crate) kind: u8,
    pub(crate) request_id: u16,
    pub(crate) content_bytes: u16,
    pub(crate) padding_bytes: u8,
}

impl Header {
    /// The header of a record with this content, padded to a multiple of eight bytes, as §3.3 recommends.
    pub(crate) fn of_request(kind: u8, content_bytes: u16) -> Header {
        let padding_bytes = (content_bytes.wrapping_neg() % 8) as u8;
        Header { version: VERSION, kind, request_id: REQUEST_ID, content_bytes, padding_bytes }
    }

    pub(crate) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let [id_high, id_low] = self.request_id.to_be_bytes();
        let [length_high, length_low] = self.content_bytes.to_be_bytes();
        [self.version, self.kind, id_high, id_low, length_high, length_low, self.padding_bytes, 0]
    }

    pub(crate) fn from_bytes(bytes: [u8; HEADER_BYTES]) -> Header {
        let [version, kind, id_high, id_low, length_high, length_low, padding_bytes, _] = bytes;
        Header {
            version,
            kind,
            request_id: u16::from_be_bytes([id_high, id_low]),
            content_bytes: u16::from_be_bytes([length_high, length_low]),
            padding_bytes,
        }
    }
}
