//! Private files that a site would serve: the configuration file, logs, keys and the like, below a document root. The
//! state folder contains all domains' private keys: no site in or around it is served.

use sanderling_config::diagnostic::{Diagnostic, Location, Problem};
use sanderling_config::{Config, DEFAULT_STATE, PrivateFile};
use sanderling_http::PathTraits;
use sanderling_server::{Root, Site};
use std::collections::HashMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A state folder: the one that is used, or the default one if it exists, which another server may use.
#[derive(Debug)]
pub(crate) struct PrivateState {
    path: PathBuf,
    /// The path without symbolic links.
    real: PathBuf,
}

impl PrivateState {
    /// The state folders next to a server with `config`, whose own is `state`, if it has one.
    pub(crate) fn all(config: &Config, state: Option<&Path>) -> Vec<PrivateState> {
        let default = Path::new(DEFAULT_STATE);
        let is_private = |path: &Path| fs::symlink_metadata(path).is_ok();
        let own = state.filter(|path| config.uses_state_folder() || is_private(path));
        let other = Some(default).filter(|path| own != Some(path) && is_private(path));
        own.into_iter().chain(other).map(|path| PrivateState::new(path.to_owned())).collect()
    }

    /// The folder at `path`, which need not exist. This makes no call that the sandbox denies.
    fn new(path: PathBuf) -> PrivateState {
        let real = fs::canonicalize(&path).ok().or_else(|| real_path(&path, &mut HashMap::new()));
        PrivateState { real: real.unwrap_or_else(|| path.clone()), path }
    }

    /// The reason why the directory `real`, a path without symbolic links, must not be served. `kind` and `path` come
    /// from the configuration.
    pub(crate) fn check(&self, kind: &str, path: &Path, real: &Path, location: &Location) -> Result<(), Diagnostic> {
        let (state, path) = (self.path.display(), path.display());
        let message = if self.real == real {
            format!("the {kind} `{path}` is the state folder `{state}`, which contains private keys")
        } else if self.real.starts_with(real) {
            format!("the state folder `{state}`, which contains private keys, is in the {kind} `{path}`")
        } else if real.starts_with(&self.real) {
            format!("the {kind} `{path}` is in the state folder `{state}`, which contains private keys")
        } else {
            return Ok(());
        };
        let remedy = format!("it is not served; set `state` to a folder outside all sites, or move the {kind}");
        Err(Diagnostic::error(location.clone(), Problem::new(message, remedy)))
    }
}

/// A warning for each private file of `config` that one of `sites`, the sites of `config`, would serve.
pub(crate) fn warnings(config: &Config, sites: &[Site]) -> Vec<Diagnostic> {
    let mut roots: HashMap<&Path, Vec<usize>> = HashMap::new();
    for (index, site) in sites.iter().enumerate() {
        if let Root::Directory(root) = &site.root {
            roots.entry(root.real_path()).or_default().push(index);
        }
    }
    let mut real_folders = HashMap::new();
    let warnings = config.private_files().into_iter().filter_map(|file| {
        let real = real_path(file.path, &mut real_folders)?;
        let (index, path) = real.ancestors().find_map(|root| {
            let path = real.strip_prefix(root).ok()?;
            let serving = roots.get(root)?.iter().find(|index| is_served(&sites[**index], path));
            serving.map(|index| (*index, path))
        })?;
        let site = &config.sites[index];
        let (message, location) = (message(&file, &site.root_text(), path), file.location.unwrap_or(&site.location));
        let remedy = "move it, or serve a folder that contains only public files";
        Some(Diagnostic::warning(location.clone(), Problem::new(message, remedy)))
    });
    warnings.collect()
}

fn message(file: &PrivateFile<'_>, root: &str, path: &Path) -> String {
    let (kind, shown, path) = (file.kind, file.path.display(), path.display());
    let served = if file.is_folder { "its files are served below" } else { "is served at" };
    format!("the {kind} `{shown}` is in the document root `{root}`, and {served} /{path}")
}

/// Whether `site` serves the file or the files in the folder at `path` below its document root, if its user may read
/// them.
fn is_served(site: &Site, path: &Path) -> bool {
    let path = path.as_os_str().as_bytes();
    path.is_empty() || !PathTraits::of(path).intersects(site.options.refused_paths)
}

/// The path without symbolic links and `..`, but a file's name, which need not exist. `real_folders` caches the
/// folders' paths, since thousands of zone files can be in one folder. This makes no call that the sandbox denies.
fn real_path<'f>(path: &'f Path, real_folders: &mut HashMap<&'f Path, PathBuf>) -> Option<PathBuf> {
    let (folder, name) = (path.parent()?, path.file_name()?);
    let real_folder = real_folders.entry(folder).or_insert_with(|| {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        // Where the user may not look, only the text of the path is known.
        fs::canonicalize(folder).or_else(|_| std::path::absolute(folder)).unwrap_or_default()
    });
    Some(real_folder.join(name))
}
