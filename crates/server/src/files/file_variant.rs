//! A file in one content coding, or a page that was made of a directory: its content, and response heads that are
//! already written.

use crate::files::disk_file::DiskFile;
use sanderling_http::{FileMetadata, FileTime, Negotiation, Representation, Validator};
use sanderling_os::file::Metadata;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A file in one content coding.
#[derive(Debug)]
pub(crate) struct FileVariant {
    pub(crate) representation: Representation,
    pub(crate) content: FileContent,
    /// The result of `fstat`; `None` for a file in the program itself.
    pub(crate) metadata: Option<Metadata>,
    pub(crate) usage: Usage,
}

/// One version of a file on disk.
#[derive(Debug)]
pub(crate) struct FileVersion {
    pub(crate) metadata: Metadata,
    pub(crate) content: FileContent,
    pub(crate) validator: Validator,
}

/// The content of a file.
#[derive(Debug)]
pub(crate) enum FileContent {
    /// In memory, whole.
    Memory(Box<[u8]>),
    /// In the program itself.
    Builtin(&'static [u8]),
    /// On disk, behind an open descriptor. A read in progress shares it.
    Descriptor(Arc<DiskFile>),
}

impl FileContent {
    #[inline]
    pub(crate) fn in_memory(&self) -> Option<&[u8]> {
        match self {
            FileContent::Memory(content) => Some(content),
            FileContent::Builtin(content) => Some(content),
            FileContent::Descriptor(_) => None,
        }
    }
}

/// The total use of all open files.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    pub(crate) descriptors: AtomicU64,
    pub(crate) content_bytes: AtomicU64,
    /// Content that was compressed or decoded on demand.
    pub(crate) compressed_bytes: AtomicU64,
}

impl FileVariant {
    /// A file on disk. `media_type` describes the content without a coding; its head gets `field_lines`.
    pub(crate) fn new(
        version: FileVersion,
        (media_type, field_lines): (&str, &[u8]),
        negotiation: Negotiation,
        unix_s: u64,
        gauges: &Arc<Gauges>,
    ) -> FileVariant {
        let FileVersion { metadata, content, validator } = version;
        let for_http = http_metadata(&metadata);
        let representation = Representation::new(&for_http, validator, media_type, negotiation, field_lines, unix_s);
        let usage = match &content {
            FileContent::Memory(content) => Usage::new(gauges, 0, content.len() as u64),
            FileContent::Descriptor(_) => Usage::new(gauges, 1, 0),
            FileContent::Builtin(_) => Usage::new(gauges, 0, 0),
        };
        FileVariant { representation, content, metadata: Some(metadata), usage }
    }

    /// The listing of a directory with this metadata.
    pub(crate) fn generated(
        content: Vec<u8>,
        (media_type, field_lines): (&str, &[u8]),
        metadata: Metadata,
        unix_s: u64,
        gauges: &Arc<Gauges>,
    ) -> FileVariant {
        // The times of the directory say nothing about the files in it, whose lengths the content has.
        let of_content = FileMetadata {
            length_bytes: content.len() as u64,
            modified: FileTime::default(),
            changed: FileTime::default(),
            device: 0,
            inode: 0,
        };
        let validator = Validator::of_content(&content);
        let representation =
            Representation::new(&of_content, validator, media_type, Negotiation::None, field_lines, unix_s);
        let usage = Usage::new(gauges, 0, content.len() as u64);
        let content = FileContent::Memory(content.into_boxed_slice());
        FileVariant { representation, content, metadata: Some(metadata), usage }
    }

    /// The result of compressing or decoding the file with this metadata.
    pub(crate) fn recoded(
        content: Vec<u8>,
        representation: Representation,
        metadata: Metadata,
        gauges: &Arc<Gauges>,
    ) -> FileVariant {
        let usage = Usage::with_compressed(gauges, 0, 0, content.len() as u64);
        let content = FileContent::Memory(content.into_boxed_slice());
        FileVariant { representation, content, metadata: Some(metadata), usage }
    }

    /// A file in the program itself.
    pub(crate) fn builtin(content: &'static [u8], representation: Representation, gauges: &Arc<Gauges>) -> FileVariant {
        FileVariant {
            representation,
            content: FileContent::Builtin(content),
            metadata: None,
            usage: Usage::new(gauges, 0, 0),
        }
    }

    /// Whether the last change is at least `sendfile_after` ago, so that probably no process is writing the file.
    pub(crate) fn may_use_sendfile(&self, unix_s: u64, sendfile_after: Duration) -> bool {
        self.metadata.as_ref().is_none_or(|metadata| is_older(metadata, unix_s, sendfile_after))
    }

    /// Whether the file still has the version that the head was made for.
    #[cfg(test)]
    pub(crate) fn is_unchanged(&self) -> bool {
        match &self.content {
            FileContent::Descriptor(file) => file.is_unchanged(),
            FileContent::Memory(_) | FileContent::Builtin(_) => true,
        }
    }

    pub(crate) fn is_deleted(&self) -> bool {
        match &self.content {
            FileContent::Descriptor(file) => file.is_deleted(),
            _ => false,
        }
    }
}

/// The use of one variant, counted in the gauges as long as it exists.
#[derive(Debug)]
pub(crate) struct Usage {
    gauges: Arc<Gauges>,
    pub(crate) descriptors: u64,
    pub(crate) content_bytes: u64,
    pub(crate) compressed_bytes: u64,
}

impl Usage {
    fn new(gauges: &Arc<Gauges>, descriptors: u64, content_bytes: u64) -> Usage {
        Usage::with_compressed(gauges, descriptors, content_bytes, 0)
    }

    fn with_compressed(gauges: &Arc<Gauges>, descriptors: u64, content_bytes: u64, compressed_bytes: u64) -> Usage {
        gauges.descriptors.fetch_add(descriptors, Ordering::Relaxed);
        gauges.content_bytes.fetch_add(content_bytes, Ordering::Relaxed);
        gauges.compressed_bytes.fetch_add(compressed_bytes, Ordering::Relaxed);
        Usage { gauges: Arc::clone(gauges), descriptors, content_bytes, compressed_bytes }
    }
}

impl Drop for Usage {
    fn drop(&mut self) {
        self.gauges.descriptors.fetch_sub(self.descriptors, Ordering::Relaxed);
        self.gauges.content_bytes.fetch_sub(self.content_bytes, Ordering::Relaxed);
        self.gauges.compressed_bytes.fetch_sub(self.compressed_bytes, Ordering::Relaxed);
    }
}

/// Whether the last change is at least `age` ago.
pub(crate) fn is_older(metadata: &Metadata, unix_s: u64, age: Duration) -> bool {
    let changed_s = metadata.modified.seconds.max(metadata.changed.seconds);
    // A time before 1970 is not a real one, and a time in the future comes from another clock.
    u64::try_from(changed_s).is_ok_and(|changed_s| changed_s + age.as_secs() <= unix_s)
}

pub(crate) fn http_metadata(metadata: &Metadata) -> FileMetadata {
    let time = |time: sanderling_os::file::Timestamp| FileTime { unix_s: time.seconds, nanos: time.nanoseconds };
    FileMetadata {
        length_bytes: metadata.length_bytes,
        modified: time(metadata.modified),
        changed: time(metadata.changed),
        device: metadata.device,
        inode: metadata.inode,
    }
}
