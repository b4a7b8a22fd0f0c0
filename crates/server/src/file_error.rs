//! Why a path of a site leads to no file.

use sanderling_http::CanonicalUrl;

/// Why a path leads to no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileError {
    /// It names a directory, and lacks the final slash.
    IsDirectory,
    /// The file has another URL.
    Moved(CanonicalUrl),
    /// No file exists, or one that is not served: a FIFO, a symbolic link out of the document root.
    NotFound,
    /// The same, and there is a page for it: in the directory that so many bytes of the path are.
    NotFoundWithPage(u16),
    /// The server may not read it.
    Forbidden,
    /// No descriptors are free, even after others were closed.
    Busy,
    /// The site's document root could not be opened.
    Unavailable,
    /// The file system reports an error.
    Failed,
}

impl FileError {
    /// Whether the path belongs to a page that has a clean URL.
    pub(crate) fn has_clean_url(self) -> bool {
        matches!(self, FileError::Moved(CanonicalUrl::WithoutExtension | CanonicalUrl::OfDirectory))
    }

    /// Whether it is a property of the path, which is cached, and not of the moment.
    pub(crate) fn is_of_path(self) -> bool {
        match self {
            FileError::IsDirectory
            | FileError::Moved(_)
            | FileError::NotFound
            | FileError::NotFoundWithPage(_)
            | FileError::Forbidden => true,
            FileError::Busy | FileError::Unavailable | FileError::Failed => false,
        }
    }
}
