//! Secrets of the operator that the server process could read, although it needs none of them: a private key next to
//! zone files, the state folder below a site, and the like. Asked in the sandbox, by opening them.

use sanderling_config::diagnostic::{Diagnostic, Location, Problem};
use sanderling_config::{Config, PrivateFile, STATE_REMEDY};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// A warning for each folder with secrets of `config` that this process can open, and for the state folder.
pub(crate) fn warnings(config: &Config, state: Option<&Path>) -> Vec<Diagnostic> {
    let mut by_folder: BTreeMap<&Path, Vec<PrivateFile<'_>>> = BTreeMap::new();
    for file in config.secret_files().into_iter().filter(|file| File::open(file.path).is_ok()) {
        by_folder.entry(file.path.parent().unwrap_or(Path::new(""))).or_default().push(file);
    }
    let of_folder = |files: Vec<PrivateFile<'_>>| {
        let first = files.first()?;
        let others = match files.len() - 1 {
            0 => String::new(),
            1 => " and 1 other secret next to it".to_owned(),
            others => format!(" and {others} other secrets next to it"),
        };
        let secret = format!("the {} `{}`{others}", first.kind, first.path.display());
        Some(warning(first.location?.clone().into(), &secret, &remedy(first.path)))
    };
    let mut warnings: Vec<Diagnostic> = by_folder.into_values().filter_map(of_folder).collect();
    if let Some(state) = state.filter(|state| config.uses_state_folder() && is_exposed(state)) {
        let location = config.state_location.clone().map_or_else(|| Location::File(state.to_owned()), Location::from);
        let secret = format!("the state folder `{}` with all private keys", state.display());
        warnings.push(warning(location, &secret, STATE_REMEDY));
    }
    warnings
}

/// The files that must be moved: the secret, or those because of which this process can read the folder above it.
fn remedy(secret: &Path) -> String {
    let folder = secret.parent().map(|folder| std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned()));
    let readable = folder.iter().flat_map(|folder| folder.ancestors()).take_while(|above| fs::read_dir(above).is_ok());
    match readable.last().filter(|above| Some(*above) != folder.as_deref()) {
        // Without Landlock, all folders that the user may read can be.
        Some(above) if above != Path::new("/") => {
            format!("move the files of zones, sites and users out of {} into separate folders", above.display())
        }
        _ => {
            "move it to a separate folder without zones, sites and user files, such as /etc/sanderling/keys".to_owned()
        }
    }
}

/// Whether this process can list the folder at `path`, or its parent if it must be created there.
fn is_exposed(path: &Path) -> bool {
    match fs::read_dir(path) {
        Ok(_) => true,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
            fs::read_dir(above).is_ok()
        }
        Err(_) => false,
    }
}

fn warning(location: Location, secret: &str, remedy: &str) -> Diagnostic {
    let message = format!("the server process can read {secret}");
    Diagnostic::warning(location, Problem::new(message, remedy))
}
