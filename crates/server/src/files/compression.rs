//! Variants of files that are compressed when a client first accepts them: by one thread, while the client gets the
//! uncompressed file.
//!
//! The variants belong to the entry of the open-file cache, which is one version of the file, and are freed with it.
//! Evicting entries bounds their total size ([`FileCache`](crate::files::file_cache::FileCache)). The thread has the
//! lowest priority, and one queue with a bound, so that clients that ask for many files cannot occupy the machine with
//! it.

use crate::files::disk_file::DiskFile;
use crate::files::file_variant::{FileContent, FileVariant, Gauges, http_metadata};
use crate::options::CompressionOptions;
use sanderling_http::{
    CompressorVersion, ContentCoding, FieldName, Method, Negotiation, Representation, Request, Validator,
    accepts_identity, is_not_modified, negotiate_coding,
};
use sanderling_os::file::Metadata;
use sanderling_os::process::{NICE_MAX, lower_thread_priority};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

/// Files that wait to be compressed, with up to `small_file_bytes_max` of content each.
const QUEUED_MAX: usize = 256;
/// A variant that is not shorter than the file by this fraction is not used: it saves less than it costs.
const SAVED_FRACTION_MIN: usize = 16;
/// The fraction of the budget that one variant may have, so that one does not evict all others.
const BUDGET_FRACTION_MAX: u64 = 4;

// The levels are those from which on the time grows faster than the length falls: docs/decisions/0027-compression.md.
const GZIP_LEVEL: u32 = 6;
const ZSTD_LEVEL: i32 = 6;
const BROTLI_QUALITY: i32 = 5;
/// The window of brotli, as a power of two: larger than any file that is compressed.
const BROTLI_WINDOW_BITS: i32 = 22;

/// Raised with each change of the compressors' output for the same content: the entity tags of variants follow from
/// that of the file and from this number, so that they are known before a variant is made. The test
/// `compressors_make_the_bytes_of_their_version` notices such a change.
pub(crate) const COMPRESSORS: CompressorVersion = CompressorVersion(1);

/// The variants of one file, each made when a client first prefers it.
#[derive(Debug)]
pub(crate) struct OnDemand {
    queue: Arc<CompressionQueue>,
    variants: [OnceLock<FileVariant>; ContentCoding::COMPRESSED.len()],
    /// The codings that were asked for, as bits: they are made, or cannot be.
    requested: AtomicU8,
    media_type: String,
    field_lines: &'static [u8],
    metadata: Metadata,
    /// The validator of the file, from which those of the variants follow.
    validator: Validator,
    unix_s: u64,
    gauges: Arc<Gauges>,
}

/// Files that wait to be compressed.
#[derive(Debug)]
pub(crate) struct CompressionQueue {
    options: CompressionOptions,
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    queued: VecDeque<Compression>,
    is_closed: bool,
}

/// A file to compress.
#[derive(Debug)]
pub(crate) struct Compression {
    on_demand: Arc<OnDemand>,
    coding: ContentCoding,
    source: Source,
}

/// Where the content of the file is.
#[derive(Debug)]
enum Source {
    Memory(Vec<u8>),
    Disk(Arc<DiskFile>),
}

impl CompressionQueue {
    pub(crate) fn new(options: CompressionOptions) -> CompressionQueue {
        CompressionQueue { options, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Whether a file of this length is compressed.
    pub(crate) fn is_for(&self, length_bytes: u64) -> bool {
        self.options.content_bytes_max > 0
            && (self.options.file_bytes_min..=self.options.file_bytes_max).contains(&length_bytes)
    }

    /// Bytes that the content of a precompressed file may have once it is decoded; 0 if none is decoded.
    pub(crate) fn decoded_bytes_max(&self) -> u64 {
        self.options.file_bytes_max.min(self.options.content_bytes_max / BUDGET_FRACTION_MAX)
    }

    /// Queues a file; `false` if too many are queued, or another thread has the queue: no worker waits for it.
    fn try_enqueue(&self, work: impl FnOnce() -> Option<Compression>) -> bool {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        if state.queued.len() >= QUEUED_MAX {
            return false;
        }
        let Some(work) = work() else { return false };
        state.queued.push_back(work);
        drop(state);
        self.changed.notify_one();
        true
    }

    /// Compresses queued files until the queue is closed; calls `on_made` after each new variant.
    pub(crate) fn run_thread(&self, on_made: impl Fn()) {
        // Without it the thread has the same priority as the others.
        let _ = lower_thread_priority(NICE_MAX);
        while let Some(work) = self.next() {
            if work.run() {
                on_made();
            }
        }
    }

    /// Waits for work; `None` if the thread is to end.
    fn next(&self) -> Option<Compression> {
        let mut state = self.lock();
        loop {
            if state.is_closed {
                return None;
            }
            if let Some(work) = state.queued.pop_front() {
                return Some(work);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Compresses the next file, if one is queued; `false` if none is.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn run_next(&self, on_made: impl Fn()) -> bool {
        let next = self.lock().queued.pop_front();
        let has_made = next.as_ref().is_some_and(Compression::run);
        if has_made {
            on_made();
        }
        next.is_some()
    }

    /// Ends the thread.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OnDemand {
    /// For a file with this media type, whose variants' heads get `field_lines`.
    pub(crate) fn new(
        queue: &Arc<CompressionQueue>,
        (media_type, field_lines): (&str, &'static [u8]),
        (metadata, validator): (Metadata, Validator),
        unix_s: u64,
        gauges: &Arc<Gauges>,
    ) -> OnDemand {
        OnDemand {
            queue: Arc::clone(queue),
            variants: Default::default(),
            requested: AtomicU8::new(0),
            media_type: media_type.to_owned(),
            field_lines,
            metadata,
            validator,
            unix_s,
            gauges: Arc::clone(gauges),
        }
    }

    /// The coding for `request` among those that exist; one that the client would prefer is asked for. `uncompressed`
    /// is the file.
    pub(crate) fn coding_for(self: &Arc<Self>, request: &Request<'_>, uncompressed: &FileVariant) -> ContentCoding {
        let fields = &request.fields;
        if !fields.contains(FieldName::AcceptEncoding) {
            return ContentCoding::Identity;
        }
        let wanted = negotiate_coding(fields, ContentCoding::COMPRESSED);
        // A client that has a variant gets 304 without it.
        if wanted == ContentCoding::Identity || is_not_modified(fields, &uncompressed.representation) {
            return ContentCoding::Identity;
        }
        if self.variant(wanted).is_none() {
            self.request(wanted, &uncompressed.content);
        }
        let made = ContentCoding::COMPRESSED.into_iter().filter(|&coding| self.variant(coding).is_some());
        let coding = negotiate_coding(fields, made);
        // The client has the uncompressed file, or a part of it, and continues with that: a variant that was made later
        // must not replace it.
        let names = |field, etag: &[u8]| fields.values(field).any(|tags| memchr::memmem::find(tags, etag).is_some());
        let etag = uncompressed.representation.etag();
        // RFC 9110 §14.2: of HEAD a range is ignored.
        let is_of_other = if request.method == Method::Get && fields.contains(FieldName::Range) {
            let is_of_coded = |coded: &FileVariant| {
                let coded = coded.representation.etag();
                fields.single(FieldName::IfRange) == Some(coded)
                    || names(FieldName::IfMatch, coded) && !names(FieldName::IfMatch, etag)
            };
            accepts_identity(fields) && !self.variant(coding).is_some_and(is_of_coded)
        } else {
            names(FieldName::IfMatch, etag)
        };
        if is_of_other { ContentCoding::Identity } else { coding }
    }

    pub(crate) fn variant(&self, coding: ContentCoding) -> Option<&FileVariant> {
        self.variants[index_of(coding)?].get()
    }

    pub(crate) fn variants(&self) -> impl Iterator<Item = &FileVariant> {
        self.variants.iter().filter_map(OnceLock::get)
    }

    /// Asks for a coding, once.
    #[cold]
    fn request(self: &Arc<Self>, coding: ContentCoding, content: &FileContent) {
        let Some(index) = index_of(coding) else { return };
        let bit = 1 << index;
        if self.requested.load(Ordering::Relaxed) & bit != 0
            || self.requested.fetch_or(bit, Ordering::Relaxed) & bit != 0
        {
            return;
        }
        let is_queued = self.queue.try_enqueue(|| {
            let source = match content {
                FileContent::Memory(content) => Source::Memory(content.to_vec()),
                FileContent::Descriptor(file) => Source::Disk(Arc::clone(file)),
                FileContent::Builtin(_) => return None,
            };
            Some(Compression { on_demand: Arc::clone(self), coding, source })
        });
        if !is_queued {
            // A later request asks again.
            self.requested.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

fn index_of(coding: ContentCoding) -> Option<usize> {
    ContentCoding::COMPRESSED.iter().position(|&candidate| candidate == coding)
}

impl Compression {
    /// Makes the variant; `false` if there is none.
    fn run(&self) -> bool {
        // The entry was evicted meanwhile: no client would get the variant.
        if Arc::strong_count(&self.on_demand) == 1 {
            return false;
        }
        let OnDemand { metadata, validator, media_type, field_lines, unix_s, gauges, queue, .. } = &*self.on_demand;
        let compressed = match &self.source {
            Source::Memory(content) => compress(content, self.coding),
            Source::Disk(file) => {
                read_whole(file, metadata.length_bytes).and_then(|content| compress(&content, self.coding))
            }
        };
        let Ok(content) = compressed else { return false };
        let length_max = metadata.length_bytes as usize / SAVED_FRACTION_MIN * (SAVED_FRACTION_MIN - 1);
        if content.len() > length_max || content.len() as u64 > queue.options.content_bytes_max / BUDGET_FRACTION_MAX {
            return false;
        }
        let of_variant = Metadata { length_bytes: content.len() as u64, ..*metadata };
        let representation = Representation::new(
            &http_metadata(&of_variant),
            validator.compressed_by(COMPRESSORS),
            media_type,
            Negotiation::AcceptEncoding(self.coding),
            field_lines,
            *unix_s,
        );
        let variant = FileVariant::recoded(content, representation, *metadata, gauges);
        index_of(self.coding).is_some_and(|index| self.on_demand.variants[index].set(variant).is_ok())
    }
}

/// Reads this version of a file.
pub(crate) fn read_whole(file: &DiskFile, length_bytes: u64) -> io::Result<Vec<u8>> {
    let mut content = vec![0; length_bytes as usize];
    let is_whole = file.file().read_at(&mut content, 0)? == content.len() && file.is_unchanged();
    if is_whole { Ok(content) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Compresses `content`. A panic of a compressor affects only this file.
pub(crate) fn compress(content: &[u8], coding: ContentCoding) -> io::Result<Vec<u8>> {
    catch_unwind(|| compress_by(content, coding)).unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
}

fn compress_by(content: &[u8], coding: ContentCoding) -> io::Result<Vec<u8>> {
    match coding {
        ContentCoding::Identity => Ok(content.to_vec()),
        ContentCoding::Gzip => {
            let out = Vec::with_capacity(content.len() / 2);
            let mut encoder = flate2::write::GzEncoder::new(out, flate2::Compression::new(GZIP_LEVEL));
            encoder.write_all(content)?;
            encoder.finish()
        }
        // Its window at this level is at most 2 MiB; RFC 9659 §3 allows 8 MiB.
        ContentCoding::Zstd => zstd::bulk::compress(content, ZSTD_LEVEL),
        ContentCoding::Brotli => {
            let parameters = brotli::enc::BrotliEncoderParams {
                quality: BROTLI_QUALITY,
                lgwin: BROTLI_WINDOW_BITS,
                size_hint: content.len(),
                ..Default::default()
            };
            let mut out = Vec::with_capacity(content.len() / 2);
            brotli::BrotliCompress(&mut &content[..], &mut out, &parameters)?;
            Ok(out)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn every_coding_gives_the_content_back() {
        let content: Vec<u8> = (0..40_000_u32).flat_map(|number| format!("<li>{number}</li>\n").into_bytes()).collect();
        for coding in ContentCoding::COMPRESSED {
            let compressed = compress(&content, coding).expect("compressed");
            assert!(compressed.len() < content.len() / 3, "{coding:?}: {}", compressed.len());
            let mut back = Vec::new();
            match coding {
                ContentCoding::Gzip => {
                    flate2::read::GzDecoder::new(&compressed[..]).read_to_end(&mut back).expect("gzip")
                }
                ContentCoding::Brotli => {
                    brotli::BrotliDecompress(&mut &compressed[..], &mut back).expect("brotli");
                    0
                }
                _ => {
                    // The frame header has the size of the window: 8 MiB at most (RFC 9659).
                    back = zstd::bulk::decompress(&compressed, content.len()).expect("zstd");
                    0
                }
            };
            assert!(back == content, "{coding:?}");
        }
    }

    /// An update of a compressor, or another level, may change the output for the same content. Then a client with a
    /// part of the former bytes must not be sent the rest of the new ones.
    #[test]
    fn compressors_make_the_bytes_of_their_version() {
        let mut random = 1_u64;
        let content: Vec<u8> = (0..30_000_u32)
            .flat_map(|number| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                format!("<li class=\"{}\">{number}</li>\n", random >> 52).into_bytes()
            })
            .collect();
        let made: String = ContentCoding::COMPRESSED
            .into_iter()
            .map(|coding| {
                let compressed = compress(&content, coding).expect("compressed");
                format!("{} {} {:?}\n", coding.name(), compressed.len(), Validator::of_content(&compressed))
            })
            .collect();
        let expected = "CompressorVersion(1)
br 130590 Validator(00aee6d5b21089f87b1fe0a548c379f3)
zstd 142402 Validator(ae19a3f272e25fa6fc4c9cb7f9db72e8)
gzip 154064 Validator(96a36cdd30deed0087ad9ca106d807ff)
";
        let text = format!("{COMPRESSORS:?}\n{made}");
        assert_eq!(text, expected, "raise `COMPRESSORS`, and change the text of this test");
    }
}
