//! Options of sites and of clients that the server takes unchanged from the configuration.

/// The options for finding a request's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOptions {
    /// The names of the file that answers for a directory; the first existing file is used.
    pub index: Vec<String>,
    /// Whether the URL of `a.html` is `a`.
    pub clean_urls: bool,
    /// Whether directories without an index are listed.
    pub listing: bool,
    /// Whether files are compressed when a client first accepts that.
    pub compress: bool,
    /// The file that answers navigations to paths without a file, relative to the document root.
    pub fallback: Option<String>,
    /// Whether scripts and the like that the current release lacks are served from the releases before.
    pub earlier_releases: bool,
}

impl Default for FileOptions {
    fn default() -> FileOptions {
        FileOptions {
            index: vec!["index.html".to_owned()],
            clean_urls: false,
            listing: false,
            compress: true,
            fallback: None,
            earlier_releases: true,
        }
    }
}

/// The way in which a proxy names its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientFrom {
    /// The proxy names the client with the PROXY protocol, at the start of the connection.
    ProxyProtocol,
    /// The proxy names the client in each request's field Forwarded (RFC 7239).
    Forwarded,
    /// The proxy names the client in each request's field X-Forwarded-For.
    XForwardedFor,
}
