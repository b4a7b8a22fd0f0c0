//! Files, datagrams and connections. The system calls below these tests have fallbacks, and `cargo xtask test
//! --fallbacks` runs the tests with each fallback forced.

mod dns_queries;
mod file_cache_limits;
mod http_files;
mod http_mirror;
mod http_pipelines;
mod http_requests;
mod lifecycle;
mod precompressed_files;
