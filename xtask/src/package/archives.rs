//! The tarball, and the packages of Debian and RPM.

use std::fs;
use std::path::{Path, PathBuf};

use super::components::Components;
use super::installed::{self, ZSH, ZSH_OF_DEBIAN, add_configuration, install, tree};
use super::release::Release;
use super::{absolute, emptied, put, read};
use crate::program::{Log, Program};

const SCRIPTS: &str = "packaging/scripts";
/// Scripts, and the names that dpkg has for them.
const DEBIAN_SCRIPTS: &[(&str, &str)] =
    &[("after-install.sh", "postinst"), ("before-remove.sh", "prerm"), ("after-remove.sh", "postrm")];

/// A tarball with the tree in one folder. It has files alone, so that unpacking it into `/` changes no folder.
pub(super) fn tarball(
    release: &Release,
    components: &Components,
    out: &Path,
    log: &mut Log,
) -> Result<PathBuf, String> {
    let name = release.full_name();
    tree(release, components, (&name, ZSH), log)?;
    let archive = absolute(&out.join(format!("{name}.tar.xz")))?;
    let script = format!(
        "set -o pipefail; find '{name}' -type f | LC_ALL=C sort | tar --create --no-recursion --files-from=- \
         --mtime=@{} --owner=0 --group=0 --numeric-owner --format=gnu | xz -{} --threads=1 > '{}'",
        release.epoch_s,
        release.compression_level(),
        archive.display()
    );
    Program::new("bash").args("-c").args_of(&[script]).current_dir(&release.work).run(log).into_result()?;
    Ok(archive)
}

/// The package of Debian.
pub(super) fn debian(
    release: &Release,
    components: &Components,
    version: &str,
    out: &Path,
    log: &mut Log,
) -> Result<PathBuf, String> {
    let root = tree(release, components, ("debian", ZSH_OF_DEBIAN), log)?;
    add_configuration(release, &root)?;
    let architecture = match release.architecture {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let (control, version) = (root.join("DEBIAN"), package_version(version));
    let text = read(&release.sources.join("packaging/debian/control"))?
        .replace("@VERSION@", &version)
        .replace("@ARCHITECTURE@", architecture)
        .replace("@INSTALLED_KIB@", &installed_kib(&root)?.to_string());
    installed::create(&control)?;
    put(&control.join("control"), &text)?;
    put(&control.join("conffiles"), "/etc/sanderling/sanderling.toml\n")?;
    for (script, name) in DEBIAN_SCRIPTS {
        install(&release.sources.join(SCRIPTS).join(script), &control.join(name), 0o755)?;
    }
    let package = out.join(format!("sanderling_{version}_{architecture}.deb"));
    let paths = [&root, &package].map(|path| path.to_string_lossy().into_owned());
    let dpkg = Program::new("dpkg-deb")
        .args("--root-owner-group -Zxz")
        .args_of(&[format!("-z{}", release.compression_level())])
        .args("--build")
        .args_of(&paths);
    dpkg.env("SOURCE_DATE_EPOCH", &release.epoch_s).run(log).into_result()?;
    Ok(package)
}

/// The package of RPM.
pub(super) fn rpm(
    release: &Release,
    components: &Components,
    version: &str,
    out: &Path,
    log: &mut Log,
) -> Result<PathBuf, String> {
    let root = tree(release, components, ("rpm", ZSH), log)?;
    add_configuration(release, &root)?;
    let (top, version) = (release.work.join("rpmbuild"), package_version(version));
    emptied(&top)?;
    let scripts = release.sources.join(SCRIPTS);
    let definitions = [
        format!("_topdir {}", top.display()),
        format!("package_version {version}"),
        format!("staging {}", root.display()),
        format!("scripts {}", scripts.display()),
        format!("_binary_payload w{}.xzdio", release.compression_level()),
    ];
    let mut arguments: Vec<String> = definitions.into_iter().flat_map(|it| ["--define".to_owned(), it]).collect();
    arguments.extend(["--target".to_owned(), format!("{}-linux", release.architecture)]);
    let rpmbuild =
        Program::new("rpmbuild").args("-bb --quiet").args_of(&arguments).args("packaging/rpm/sanderling.spec");
    rpmbuild.env("SOURCE_DATE_EPOCH", &release.epoch_s).current_dir(&release.sources).run(log).into_result()?;
    let name = format!("sanderling-{version}-1.{}.rpm", release.architecture);
    let (built, package) = (top.join("RPMS").join(release.architecture).join(&name), out.join(&name));
    fs::copy(&built, &package).map_err(|error| format!("{}: {error}", built.display()))?;
    Ok(package)
}

/// A version before a release is older than the release in both formats: `1.0.0-rc.1` is `1.0.0~rc.1`.
fn package_version(version: &str) -> String {
    version.replace('-', "~")
}

/// The size that a file system with blocks of 1 KiB needs.
fn installed_kib(root: &Path) -> Result<u64, String> {
    let path = root.to_string_lossy().into_owned();
    let text = Program::new("du").args("--apparent-size --summarize --block-size=1024").args_of(&[path]).output();
    let number = text.as_deref().and_then(|text| text.split_whitespace().next()?.parse().ok());
    number.ok_or_else(|| format!("du cannot measure {}", root.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_before_a_release_have_a_tilde() {
        assert_eq!(package_version("1.0.0-rc.1"), "1.0.0~rc.1");
        assert_eq!(package_version("0.1.0"), "0.1.0");
    }
}
