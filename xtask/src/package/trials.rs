//! Tries the packages: installs, upgrades under load, removes and purges them in a separate Debian system, and runs
//! the image as a container engine does. The scripts are in `packaging/`.

use std::fs;
use std::path::{Path, PathBuf};

use super::release::Release;
use super::{Packages, absolute, archives, emptied, file_name, image};
use crate::program::{Log, Program};
use crate::setup::debian_root;

/// Tries each package.
pub(super) fn run(release: &Release, packages: &Packages, log: &mut Log) -> Result<(), String> {
    let next = release.work.join("next");
    emptied(&next)?;
    let version = format!("{}+next", release.version);
    let next_debian = archives::debian(release, &packages.components, &version, &next, log)?;
    let next_rpm = archives::rpm(release, &packages.components, &version, &next, log)?;
    for (kind, package, next) in [
        ("deb", &packages.debian, &next_debian),
        ("rpm", &packages.rpm, &next_rpm),
        ("tar", &packages.tarball, &packages.tarball),
    ] {
        in_debian(release, kind, [package, next], log)?;
    }
    let root = std::env::temp_dir().join(format!("sanderling-image-{}", std::process::id()));
    let tried = image::unpack(release, &root, log).and_then(|(user, command)| {
        let script = Program::new("packaging/container/trial.sh");
        script.args_of(&[root.to_string_lossy().into_owned(), user]).args_of(&command).run(log).into_result()
    });
    let removed = fs::remove_dir_all(&root).map_err(|error| format!("{}: {error}", root.display()));
    tried.and(removed)
}

/// Runs the script in a new copy of the Debian system.
fn in_debian(release: &Release, kind: &str, packages: [&PathBuf; 2], log: &mut Log) -> Result<(), String> {
    let root = release.work.join("debian-root");
    emptied(&root)?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let unpack = Program::new("tar").args("--extract --exclude=./dev/* --file").args_of(&[text(&debian_root())]);
    unpack.args("--directory").args_of(&[text(&root)]).run(log).into_result()?;
    let mut bwrap = Program::new("bwrap")
        .args("--unshare-pid --unshare-ipc --unshare-uts --unshare-net --die-with-parent --bind")
        .args_of(&[text(&root)])
        .args("/ --proc /proc --dev /dev --tmpfs /tmp --tmpfs /run --ro-bind packaging/trial.sh /packages/trial.sh");
    let mut inside = Vec::new();
    for (name, package) in ["first", "next"].into_iter().zip(packages) {
        let path = format!("/packages/{name}-{}", file_name(package));
        bwrap = bwrap.args("--ro-bind").args_of(&[text(&absolute(package)?), path.clone()]);
        inside.push(path);
    }
    let command = ["/packages/trial.sh".to_owned(), kind.to_owned()];
    bwrap
        .args("--clearenv --setenv PATH /usr/sbin:/usr/bin --setenv LC_ALL C")
        .args_of(&command)
        .args_of(&inside)
        .run(log)
        .into_result()?;
    emptied(&root)
}
