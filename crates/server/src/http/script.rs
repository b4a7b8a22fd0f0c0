//! The script of a FastCGI application that answers a request.
//!
//! A script is only named to the application if it is a file of the site, which no link leads out of: PHP would
//! otherwise run `x.jpg` for `/x.jpg/y.php`.

use crate::context::Context;
use crate::files::file_cache::Lookup;
use crate::site::script_path::divide;
use crate::site::sites::Site;
use crate::waiter::Waiter;
use sanderling_http::{SitePath, put_path_segment};
use sanderling_site_rules::FastCgiOptions;
use std::sync::Arc;

/// The script that answers for a directory.
const INDEX: &[u8] = b"index.php";

/// The result of looking for a script.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Script {
    /// It is at `name`, a path without a slash at its start. `path_info` is empty, or begins with a slash.
    Found { name: Vec<u8>, path_info: Vec<u8> },
    /// The waiter receives an event.
    Pending,
    /// The path is that of a directory with a script, and lacks the slash at its end.
    LacksSlash,
    /// There is none.
    Missing,
}

/// Finds the script for `path`.
pub(super) fn find(
    options: &FastCgiOptions,
    site: &Arc<Site>,
    path: &SitePath<'_>,
    waiter: (Waiter, bool),
    context: &mut Context<'_, '_>,
) -> Script {
    let bytes = path.as_bytes();
    let (own, path_info) = match divide(bytes) {
        Some((name, path_info)) => {
            let slash: &[u8] = if path.ends_with_slash() { b"/" } else { b"" };
            (name.to_vec(), [path_info, slash].concat())
        }
        None if bytes.is_empty() => (INDEX.to_vec(), Vec::new()),
        None => ([bytes, b"/", INDEX].concat(), Vec::new()),
    };
    let is_directory = divide(bytes).is_none() && !bytes.is_empty();
    match is_file(&own, site, waiter, context) {
        None => return Script::Pending,
        Some(true) if is_directory && !path.ends_with_slash() => return Script::LacksSlash,
        Some(true) => return Script::Found { name: own, path_info },
        Some(false) => {}
    }
    match &options.front_controller {
        Some(name) if name.as_bytes() != own => match is_file(name.as_bytes(), site, waiter, context) {
            None => Script::Pending,
            Some(true) => Script::Found { name: name.clone().into_bytes(), path_info: Vec::new() },
            Some(false) => Script::Missing,
        },
        _ => Script::Missing,
    }
}

/// Whether there is a file at `name`; `None` if that is not known yet.
fn is_file(name: &[u8], site: &Arc<Site>, waiter: (Waiter, bool), context: &mut Context<'_, '_>) -> Option<bool> {
    let mut encoded = Vec::with_capacity(name.len() + 1);
    for segment in name.split(|&byte| byte == b'/') {
        encoded.push(b'/');
        put_path_segment(segment, &mut encoded);
    }
    let Ok(path) = SitePath::parse(&encoded) else { return Some(false) };
    match context.files.open(site, &path, waiter, context.clock) {
        Lookup::Cached(_) | Lookup::Opened(_) => Some(true),
        Lookup::Pending => None,
        Lookup::Failed(_) | Lookup::Fallback(_) | Lookup::NotFoundPage(_) => Some(false),
    }
}
