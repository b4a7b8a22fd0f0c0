//! Checks precompressed files (`app.js.br`) against the file that they stand for.

use sanderling_http::{CODED_HEAD_BYTES, CODED_TAIL_BYTES, CodingFault, ContentCoding, coding_fault, is_compressible};
use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const AGAIN: &str = "compress the file again";
/// The largest window of zstd, as a power of two (RFC 9659 §3).
const ZSTD_WINDOW_BITS_MAX: u32 = 23;
/// Bytes that are compared in one step.
const PIECE_BYTES: usize = 64 * 1024;

/// Types of the parts of pages: a compressed file of another type may be a download.
const PAGE_TYPES: [&str; 5] = ["text/html", "text/css", "text/javascript", "image/svg+xml", "application/wasm"];

/// Bytes that may still be read.
#[derive(Debug)]
pub(super) struct ReadBudget {
    rest: u64,
    /// The number of files that exceeded the budget.
    pub(super) unread_count: usize,
}

impl ReadBudget {
    pub(super) fn new(bytes: u64) -> ReadBudget {
        ReadBudget { rest: bytes, unread_count: 0 }
    }

    /// Takes this many bytes of the budget for a file; returns whether they were left.
    pub(super) fn take(&mut self, bytes: u64) -> bool {
        let rest = self.rest.checked_sub(bytes);
        match rest {
            Some(rest) => self.rest = rest,
            None => self.unread_count += 1,
        }
        rest.is_some()
    }
}

/// A file with the name of a precompressed one.
#[derive(Debug)]
pub(super) struct CodedFile<'p> {
    coding: ContentCoding,
    /// The path of the uncompressed file.
    pub(super) base: &'p [u8],
    /// Whether the file is part of a page, and not a download by its own name.
    is_of_page: bool,
}

/// The file at `path` as a precompressed file, if the server would use it as one; `media_type` returns a name's media
/// type.
pub(super) fn coded_file<'p, 't>(path: &'p [u8], media_type: impl Fn(&[u8]) -> &'t str) -> Option<CodedFile<'p>> {
    let base = ContentCoding::strip_file_extension(path)?;
    let coding = ContentCoding::COMPRESSED
        .into_iter()
        .find(|coding| path.ends_with(coding.file_extension().as_bytes()))
        .expect("the extension is that of a coding");
    let name = base.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let media_type = media_type(name);
    let is_of_page = PAGE_TYPES.iter().any(|page_type| media_type.starts_with(page_type));
    is_compressible(media_type).then_some(CodedFile { coding, base, is_of_page })
}

/// The reason why the precompressed file at `path` is not used, or must not be used, and the remedy. Without a budget
/// for it and the file at `base`, their content is not compared. `decoded_bytes_max`: its largest decoded size if there
/// is no file at `base`.
pub(super) fn problem(
    file: &CodedFile<'_>,
    path: &Path,
    base: &Path,
    budget: &mut ReadBudget,
    decoded_bytes_max: u64,
) -> io::Result<Option<(&'static str, &'static str)>> {
    let metadata = path.metadata()?;
    let base_metadata = match base.metadata() {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound && !file.is_of_page => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound && !budget.take(metadata.len()) => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(match fault(file.coding, path, &metadata, None)? {
                Some(fault) => Some(problem_of_fault(fault)),
                None => problem_alone(Decoder::new(file.coding, path)?, decoded_bytes_max),
            });
        }
        Err(error) => return Err(error),
    };
    if is_older(&metadata, &base_metadata)? {
        return Ok(Some(("is older than its uncompressed file, and is not used", AGAIN)));
    }
    if metadata.len() >= base_metadata.len() {
        return Ok(Some(("is not shorter than its uncompressed file, and is not used", "remove it")));
    }
    if let Some(fault) = fault(file.coding, path, &metadata, Some(base_metadata.len()))? {
        return Ok(Some(problem_of_fault(fault)));
    }
    if !budget.take(metadata.len() + base_metadata.len()) {
        return Ok(None);
    }
    Ok(match is_same(Decoder::new(file.coding, path)?, File::open(base)?) {
        Ok(true) => None,
        Ok(false) => Some(("does not decompress to its uncompressed file", AGAIN)),
        Err(_) => Some(("cannot be decoded by browsers", AGAIN)),
    })
}

/// The reason why the server does not send the file, found by the server's own check.
fn fault(
    coding: ContentCoding,
    path: &Path,
    metadata: &Metadata,
    decoded_bytes: Option<u64>,
) -> io::Result<Option<CodingFault>> {
    let file = File::open(path)?;
    let (mut head, mut tail) = ([0; CODED_HEAD_BYTES], [0; CODED_TAIL_BYTES]);
    let head_bytes = file.read_at(&mut head, 0)?;
    let tail_bytes = file.read_at(&mut tail, metadata.len().saturating_sub(CODED_TAIL_BYTES as u64))?;
    Ok(coding_fault(coding, &head[..head_bytes], &tail[..tail_bytes], decoded_bytes))
}

fn problem_of_fault(fault: CodingFault) -> (&'static str, &'static str) {
    match fault {
        CodingFault::Malformed => ("does not have the coding that its name says, and is not used", AGAIN),
        CodingFault::WindowTooLarge => (
            "needs a larger window than browsers support, and is not used",
            "compress the file again, with zstd --zstd=wlog=23 or without --ultra and --long, with brotli without \
                --large_window",
        ),
        CodingFault::NeedsDictionary => {
            ("needs a dictionary, which browsers lack, and is not used", "compress the file again without it")
        }
        CodingFault::OtherLength => (
            "does not decompress to its uncompressed file, or has several gzip members, of which browsers decode only \
                the first, and is not used",
            AGAIN,
        ),
    }
}

/// The problem of a precompressed file without an uncompressed file, which the server decodes.
fn problem_alone(decoder: impl Read, decoded_bytes_max: u64) -> Option<(&'static str, &'static str)> {
    match io::copy(&mut decoder.take(decoded_bytes_max.saturating_add(1)), &mut io::sink()) {
        Ok(bytes) if bytes <= decoded_bytes_max => None,
        Ok(_) => {
            let remedy = "add the uncompressed file, or raise `compressed_file_max` in [limits]";
            Some(("has no uncompressed file, is too large when decoded, and is not used", remedy))
        }
        Err(_) => Some(("has no uncompressed file, cannot be decoded by browsers, and is not used", AGAIN)),
    }
}

/// Compressors copy the time of the original file, some only in whole seconds.
fn is_older(precompressed: &Metadata, base: &Metadata) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let time = |metadata: &Metadata| (metadata.mtime(), metadata.mtime_nsec());
    let (own, base) = (time(precompressed), time(base));
    Ok(if own.1 == 0 { own.0 < base.0 } else { own < base })
}

/// Decodes as browsers do: data that browsers refuse, or would truncate, is an error.
enum Decoder {
    Brotli(Box<brotli::Decompressor<BufReader<File>>>),
    Zstd(zstd::Decoder<'static, BufReader<File>>),
    Gzip(Box<flate2::bufread::GzDecoder<BufReader<File>>>),
    Identity(BufReader<File>),
}

impl Decoder {
    fn new(coding: ContentCoding, path: &Path) -> io::Result<Decoder> {
        let file = BufReader::new(File::open(path)?);
        Ok(match coding {
            ContentCoding::Brotli => Decoder::Brotli(Box::new(brotli::Decompressor::new(file, PIECE_BYTES))),
            ContentCoding::Zstd => {
                let mut decoder = zstd::Decoder::with_buffer(file)?;
                decoder.window_log_max(ZSTD_WINDOW_BITS_MAX)?;
                Decoder::Zstd(decoder)
            }
            ContentCoding::Gzip => Decoder::Gzip(Box::new(flate2::bufread::GzDecoder::new(file))),
            ContentCoding::Identity => Decoder::Identity(file),
        })
    }
}

impl Read for Decoder {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Decoder::Brotli(decoder) => decoder.read(into),
            Decoder::Zstd(decoder) => decoder.read(into),
            Decoder::Identity(file) => file.read(into),
            Decoder::Gzip(decoder) => {
                let count = decoder.read(into)?;
                if count == 0 && !into.is_empty() && !decoder.get_mut().fill_buf()?.is_empty() {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "more data follows the first gzip member"));
                }
                Ok(count)
            }
        }
    }
}

/// Whether a decoded file has exactly the content of `base`. No more than that is decoded.
fn is_same(mut decoded: impl Read, base: File) -> io::Result<bool> {
    let mut base = BufReader::with_capacity(PIECE_BYTES, base);
    let (mut own, mut other) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
    loop {
        let count = decoded.read(&mut own)?;
        if count == 0 {
            return Ok(base.read(&mut other)? == 0);
        }
        if base.read_exact(&mut other[..count]).is_err() || own[..count] != other[..count] {
            return Ok(false);
        }
    }
}

/// The path of a file of a site.
pub(super) fn beneath(root: &Path, path: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    root.join(std::ffi::OsStr::from_bytes(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;
    use std::time::{Duration, SystemTime};

    fn encode(coding: ContentCoding, content: &[u8]) -> Vec<u8> {
        let mut coded = Vec::new();
        match coding {
            ContentCoding::Brotli => {
                brotli::CompressorWriter::new(&mut coded, PIECE_BYTES, 1, 16).write_all(content).expect("in memory");
            }
            ContentCoding::Zstd => coded = zstd::encode_all(content, 1).expect("in memory"),
            ContentCoding::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(&mut coded, flate2::Compression::fast());
                encoder.write_all(content).expect("in memory");
                encoder.finish().expect("in memory");
            }
            ContentCoding::Identity => unreachable!("not a coding of a file"),
        }
        coded
    }

    const OTHER_LENGTH: &str = "does not decompress to its uncompressed file, or has several gzip members, of which \
        browsers decode only the first, and is not used";

    /// Files that tools decode, but browsers refuse or truncate; with the uncompressed file, and without it.
    #[test]
    fn coding_that_browsers_do_not_decode_whole_is_reported() {
        let folder = tempfile::tempdir().expect("created");
        let (coded_path, base_path) = (folder.path().join("x.coded"), folder.path().join("x"));
        let content = b"a line of text\n".repeat(10_000);
        let check = |coding: ContentCoding, coded: &[u8], expected: &str| {
            for is_alone in [false, true] {
                let _ = fs::remove_file(&base_path);
                if !is_alone {
                    fs::write(&base_path, &content).expect("written");
                }
                fs::write(&coded_path, coded).expect("written");
                let file = CodedFile { coding, base: b"x", is_of_page: true };
                let mut budget = ReadBudget::new(u64::MAX);
                let found = problem(&file, &coded_path, &base_path, &mut budget, u64::MAX).expect("read");
                let found = found.map(|(problem, _)| problem).unwrap_or_default();
                assert!(found.contains(expected), "{coding:?} {is_alone} {found}");
            }
        };
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).expect("an encoder");
        encoder.window_log(24).expect("a window");
        encoder.write_all(&content).expect("in memory");
        let large = encoder.finish().expect("in memory");
        check(ContentCoding::Zstd, &large, "needs a larger window than browsers support");
        let small = zstd::encode_all(&content[..0], 1).expect("in memory");
        check(ContentCoding::Zstd, &[small, large].concat(), "cannot be decoded by browsers");
        let parameters = brotli::enc::BrotliEncoderParams { large_window: true, lgwin: 25, ..Default::default() };
        let mut large = Vec::new();
        brotli::BrotliCompress(&mut &content[..], &mut large, &parameters).expect("in memory");
        check(ContentCoding::Brotli, &large, "needs a larger window than browsers support");
        let (first, second) = content.split_at(100);
        let members = [encode(ContentCoding::Gzip, first), encode(ContentCoding::Gzip, second)].concat();
        check(ContentCoding::Gzip, &members, "browsers");
        let followed = [&encode(ContentCoding::Gzip, &content)[..], b"rest"].concat();
        check(ContentCoding::Gzip, &followed, "browsers");
    }

    #[test]
    fn content_and_time_are_those_of_the_file() {
        let folder = tempfile::tempdir().expect("created");
        let (coded_path, base_path) = (folder.path().join("x.coded"), folder.path().join("x"));
        let content = b"a line of text\n".repeat(10_000);
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(1_800_000_000_500);
        let write = |path: &Path, content: &[u8], time: SystemTime| {
            fs::write(path, content).expect("written");
            File::options().write(true).open(path).and_then(|file| file.set_modified(time)).expect("set");
        };
        for coding in ContentCoding::COMPRESSED {
            let check = |coded: &[u8], time: SystemTime, bytes_max: u64, expected: Option<&str>| {
                write(&coded_path, coded, time);
                let file = CodedFile { coding, base: b"x", is_of_page: true };
                let found =
                    problem(&file, &coded_path, &base_path, &mut ReadBudget::new(bytes_max), content.len() as u64)
                        .expect("read");
                assert_eq!(found.map(|(problem, _)| problem), expected, "{coding:?}");
            };
            let coded = encode(coding, &content);
            let _ = fs::remove_file(&base_path);
            check(&coded, now, u64::MAX, None);
            let alone = "has no uncompressed file, cannot be decoded by browsers, and is not used";
            let malformed = "does not have the coding that its name says, and is not used";
            let nonsense = if coding == ContentCoding::Brotli { alone } else { malformed };
            check(b"nonsense", now, u64::MAX, Some(nonsense));
            check(&coded[..coded.len() / 2], now, u64::MAX, Some(alone));
            let too_large = problem_alone(&content[..], content.len() as u64 - 1);
            assert!(too_large.is_some_and(|(problem, _)| problem.contains("too large")), "{coding:?}");
            write(&base_path, &content, now);
            check(&coded, now, u64::MAX, None);
            // Whole seconds, as some compressors set.
            check(&coded, now - Duration::from_millis(500), u64::MAX, None);
            let older = "is older than its uncompressed file, and is not used";
            check(&coded, now - Duration::from_millis(400), u64::MAX, Some(older));
            let cut = match coding {
                ContentCoding::Gzip => OTHER_LENGTH,
                _ => "cannot be decoded by browsers",
            };
            check(&coded[..coded.len() / 2], now, u64::MAX, Some(cut));
            let nonsense = if coding == ContentCoding::Brotli { cut } else { malformed };
            check(b"nonsense", now, u64::MAX, Some(nonsense));
            let other = "does not decompress to its uncompressed file";
            let upper_case = content.to_ascii_uppercase();
            check(&encode(coding, &upper_case), now, u64::MAX, Some(other));
            check(&encode(coding, &upper_case), now, content.len() as u64, None);
            for changed in [&content[1..], &[&content, &b"x"[..]].concat()] {
                // The header and the end of the file tell, without reading the rest.
                let other = if coding == ContentCoding::Gzip { OTHER_LENGTH } else { other };
                check(&encode(coding, changed), now, u64::MAX, Some(other));
            }
            check(&content, now, u64::MAX, Some("is not shorter than its uncompressed file, and is not used"));
        }
    }

    #[test]
    fn file_for_a_download_is_not_one_of_a_page() {
        let is_of_page = |path: &str| {
            let file = coded_file(path.as_bytes(), |name| sanderling_http::media_type(name));
            file.map(|file| (file.base.len() == path.rfind('.').unwrap_or(0), file.is_of_page))
        };
        for (path, expected) in [
            ("js/app.js.br", Some((true, true))),
            ("a.html.zst", Some((true, true))),
            ("site.tar.gz", Some((true, false))),
            ("dump.gz", Some((true, false))),
            ("photo.jpg.gz", None),
            ("app.js", None),
        ] {
            assert_eq!(is_of_page(path), expected, "{path}");
        }
    }
}
