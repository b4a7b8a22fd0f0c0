//! Decodes a precompressed file that has no file without a coding beside it, for clients that do not accept its coding.
//!
//! Called by the look-up of a file, in a job thread. The content is the operator's; what it becomes is bounded all the
//! same.

use sanderling_http::ContentCoding;
use std::io::{self, Read};
use std::panic::catch_unwind;

/// Bytes that the decoder of brotli reads at once.
const BUFFER_BYTES: usize = 16 * 1024;
/// The largest window of zstd, as a power of two: more than 8 MiB may not be sent (RFC 9659 §3).
const ZSTD_WINDOW_BITS_MAX: u32 = 23;

/// Decodes `content`, to at most `length_max` bytes. A panic of a decoder concerns this file alone.
pub(crate) fn decode(content: &[u8], coding: ContentCoding, length_max: u64) -> io::Result<Vec<u8>> {
    catch_unwind(|| decode_by(content, coding, length_max)).unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
}

fn decode_by(content: &[u8], coding: ContentCoding, length_max: u64) -> io::Result<Vec<u8>> {
    let decoder: Box<dyn Read> = match coding {
        ContentCoding::Identity => Box::new(content),
        ContentCoding::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(content)),
        ContentCoding::Zstd => {
            let mut decoder = zstd::Decoder::with_buffer(content)?;
            decoder.window_log_max(ZSTD_WINDOW_BITS_MAX)?;
            Box::new(decoder)
        }
        ContentCoding::Brotli => Box::new(brotli::Decompressor::new(content, BUFFER_BYTES)),
    };
    let mut decoded = Vec::new();
    decoder.take(length_max + 1).read_to_end(&mut decoded)?;
    if decoded.len() as u64 > length_max {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    decoded.shrink_to_fit();
    Ok(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compression::compress;

    #[test]
    fn decoded_content_is_the_original_or_an_error() {
        let original: Vec<u8> =
            (0..40_000_u32).flat_map(|number| format!("<li>{number}</li>\n").into_bytes()).collect();
        let length = original.len() as u64;
        for coding in ContentCoding::COMPRESSED {
            let coded = compress(&original, coding).expect("compressed");
            assert!(decode(&coded, coding, length).is_ok_and(|decoded| decoded == original), "{coding:?}");
            for (content, length_max) in
                [(&coded[..], length - 1), (&coded[..coded.len() / 2], length), (b"text", length)]
            {
                assert!(decode(content, coding, length_max).is_err(), "{coding:?} {} {length_max}", content.len());
            }
        }
    }
}
