//! Files of sites: the cache of open files, and the threads that look them up and read them.

pub(crate) mod local_files;
pub(crate) mod file_cache;
pub(crate) mod eviction;
pub(crate) mod watched_directories;
pub(crate) mod file_reads;
pub(crate) mod jobs;
pub(crate) mod work_queue;
pub(crate) mod known_contents;
pub(crate) mod file_lookup;
pub(crate) mod open_file;
pub(crate) mod compression;
pub(crate) mod decoding;
pub(crate) mod file_variant;
pub(crate) mod disk_file;
