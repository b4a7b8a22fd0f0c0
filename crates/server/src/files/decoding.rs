//! Decodes a precompressed file without an uncompressed one, for clients that do not accept its coding.
//!
//! Called by the look-up of a file, in a job thread. The content is the operator's; its decoded size is bounded anyway.

use sanderling_http::{CODED_HEAD_BYTES, CODED_TAIL_BYTES, ContentCoding, coding_fault};
use std::io::{self, Read};
use std::panic::catch_unwind;

/// Bytes that the brotli decoder reads in one step.
const BUFFER_BYTES: usize = 16 * 1024;
/// The largest window of zstd, as a power of two: more than 8 MiB may not be sent (RFC 9659 §3).
const ZSTD_WINDOW_BITS_MAX: u32 = 23;

/// Decodes `content`, to at most `length_max` bytes, if it may be sent in this coding too. A panic of a decoder affects
/// only this file.
pub(crate) fn decode(content: &[u8], coding: ContentCoding, length_max: u64) -> io::Result<Vec<u8>> {
    catch_unwind(|| decode_by(content, coding, length_max)).unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
}

fn decode_by(content: &[u8], coding: ContentCoding, length_max: u64) -> io::Result<Vec<u8>> {
    let head = &content[..content.len().min(CODED_HEAD_BYTES)];
    let tail = &content[content.len().saturating_sub(CODED_TAIL_BYTES)..];
    if let Some(fault) = coding_fault(coding, head, tail, None) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("the content {fault}")));
    }
    let decoder: Box<dyn Read> = match coding {
        ContentCoding::Identity => Box::new(content),
        ContentCoding::Gzip => return decode_gzip(content, length_max),
        ContentCoding::Zstd => {
            let mut decoder = zstd::Decoder::with_buffer(content)?;
            decoder.window_log_max(ZSTD_WINDOW_BITS_MAX)?;
            Box::new(decoder)
        }
        ContentCoding::Brotli => Box::new(brotli::Decompressor::new(content, BUFFER_BYTES)),
    };
    read_decoded(decoder, length_max)
}

/// Browsers decode only the first member (RFC 1952 §2.2), and skip the rest.
fn decode_gzip(content: &[u8], length_max: u64) -> io::Result<Vec<u8>> {
    let mut decoder = flate2::bufread::GzDecoder::new(content);
    let decoded = read_decoded(&mut decoder, length_max)?;
    match decoder.into_inner() {
        [] => Ok(decoded),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "more data follows the first gzip member")),
    }
}

fn read_decoded(decoder: impl Read, length_max: u64) -> io::Result<Vec<u8>> {
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
    use crate::files::compression::compress;

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

    /// Files that tools decode, but browsers refuse or truncate.
    #[test]
    fn content_that_browsers_do_not_decode_whole_is_an_error() {
        let half = b"a line of text\n".repeat(1_000);
        let whole = half.repeat(2);
        let check = |content: &[u8], coding| {
            assert!(decode(content, coding, whole.len() as u64).is_err(), "{coding:?}");
        };
        let gzip = compress(&half, ContentCoding::Gzip).expect("compressed");
        check(&gzip.repeat(2), ContentCoding::Gzip);
        check(&[&gzip[..], b"rest"].concat(), ContentCoding::Gzip);
        let mut zstd = zstd::Encoder::new(Vec::new(), 1).expect("an encoder");
        zstd.window_log(24).expect("a window");
        std::io::Write::write_all(&mut zstd, &whole).expect("in memory");
        check(&zstd.finish().expect("in memory"), ContentCoding::Zstd);
        let parameters = brotli::enc::BrotliEncoderParams { large_window: true, lgwin: 25, ..Default::default() };
        let mut large = Vec::new();
        brotli::BrotliCompress(&mut &whole[..], &mut large, &parameters).expect("in memory");
        check(&large, ContentCoding::Brotli);
    }
}
