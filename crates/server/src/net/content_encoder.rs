//! Compresses the content of a response as it arrives, part by part.
//!
//! Each part can be decoded as soon as it is received: a stream of events is not delayed. The worker does
//! the work for each response, so that the levels are those of the least time, and small windows bound the memory.

use flate2::Compression;
use flate2::write::GzEncoder;
use sanderling_http::ContentCoding;
use std::io::{self, Write};

/// The codings that parts are compressed with: brotli takes twice the time of zstd for the same length.
pub(crate) const STREAMED: [ContentCoding; 2] = [ContentCoding::Zstd, ContentCoding::Gzip];

// By the table in docs/decisions/0027-compression.md: 83 MB/s, and 284 MB/s.
const GZIP_LEVEL: u32 = 4;
const ZSTD_LEVEL: i32 = 1;
/// The window of zstd, as a power of two: that of gzip has 15 bits.
const ZSTD_WINDOW_BITS: u32 = 17;
/// Memory of one compressor, about: 268 kB (zlib.h) and 480 kB.
pub(crate) const ENCODER_BYTES: usize = 512 * 1024;

/// A compressor of one response.
pub(crate) enum ContentEncoder {
    Gzip(GzEncoder<Vec<u8>>),
    Zstd(zstd::Encoder<'static, Vec<u8>>),
}

impl ContentEncoder {
    /// For one of [`STREAMED`]; `None` for others.
    pub(crate) fn new(coding: ContentCoding) -> io::Result<Option<ContentEncoder>> {
        Ok(match coding {
            ContentCoding::Gzip => Some(ContentEncoder::Gzip(GzEncoder::new(Vec::new(), Compression::new(GZIP_LEVEL)))),
            ContentCoding::Zstd => {
                let mut encoder = zstd::Encoder::new(Vec::new(), ZSTD_LEVEL)?;
                encoder.window_log(ZSTD_WINDOW_BITS)?;
                Some(ContentEncoder::Zstd(encoder))
            }
            ContentCoding::Identity | ContentCoding::Brotli => None,
        })
    }

    /// Compresses a part, all of which the result has.
    pub(crate) fn put(&mut self, content: &[u8]) -> io::Result<Vec<u8>> {
        Ok(match self {
            ContentEncoder::Gzip(encoder) => {
                encoder.write_all(content)?;
                encoder.flush()?;
                std::mem::take(encoder.get_mut())
            }
            ContentEncoder::Zstd(encoder) => {
                encoder.write_all(content)?;
                encoder.flush()?;
                std::mem::take(encoder.get_mut())
            }
        })
    }

    /// Compresses the whole content.
    pub(crate) fn encode(mut self, content: &[u8]) -> io::Result<Vec<u8>> {
        match &mut self {
            ContentEncoder::Gzip(encoder) => encoder.write_all(content)?,
            ContentEncoder::Zstd(encoder) => encoder.write_all(content)?,
        }
        self.finish()
    }

    /// The end of the content.
    pub(crate) fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            ContentEncoder::Gzip(encoder) => encoder.finish(),
            ContentEncoder::Zstd(encoder) => encoder.finish(),
        }
    }
}

impl std::fmt::Debug for ContentEncoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ContentEncoder::Gzip(_) => "gzip",
            ContentEncoder::Zstd(_) => "zstd",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn each_part_can_be_decoded_before_the_next_one() {
        for coding in STREAMED {
            let mut encoder = ContentEncoder::new(coding).expect("memory").expect("a coding");
            let mut compressed = encoder.put(b"data: first\n\n").expect("memory");
            let mut part = [0; 13];
            let decoded = match coding {
                ContentCoding::Gzip => flate2::read::GzDecoder::new(&compressed[..]).read_exact(&mut part),
                _ => zstd::Decoder::new(&compressed[..]).and_then(|mut decoder| decoder.read_exact(&mut part)),
            };
            decoded.expect("the whole part");
            assert_eq!(&part, b"data: first\n\n", "{coding:?}");
            compressed.extend(encoder.put(&[b'x'; 100_000]).expect("memory"));
            compressed.extend(encoder.finish().expect("memory"));
            let mut whole = Vec::new();
            let decoded = match coding {
                ContentCoding::Gzip => flate2::read::GzDecoder::new(&compressed[..]).read_to_end(&mut whole),
                _ => zstd::Decoder::new(&compressed[..]).and_then(|mut decoder| decoder.read_to_end(&mut whole)),
            };
            assert_eq!((decoded.expect("whole"), compressed.len() < 1_000), (100_013, true), "{coding:?}");
        }
        assert!(ContentEncoder::new(ContentCoding::Brotli).expect("no work").is_none());
    }
}
