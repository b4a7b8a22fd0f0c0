//! The container image, in the layout of the Open Container Initiative.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::components::{Components, ROOTS};
use super::installed::{create, install, set_modes};
use super::release::Release;
use super::{absolute, emptied, put};
use crate::program::{Log, Program};

const DOCKERFILE: &str = "packaging/container/Dockerfile";
/// Files of the image in addition to the program.
const FILES: &[(&str, &str)] = &[
    ("packaging/container/passwd", "etc/passwd"),
    ("packaging/container/group", "etc/group"),
    (ROOTS, "etc/ssl/certs/ca-certificates.crt"),
    ("LICENSE-APACHE", "usr/share/doc/sanderling/LICENSE-APACHE"),
    ("LICENSE-MIT", "usr/share/doc/sanderling/LICENSE-MIT"),
];
/// Where a container engine mounts something, and what is above the folders of the user.
const FOLDERS: &[&str] = &["dev", "etc/sanderling", "proc", "run", "srv", "tmp", "var/lib"];

/// Builds the image with the Dockerfile, and packs its layout.
pub(super) fn write(release: &Release, components: &Components, out: &Path, log: &mut Log) -> Result<PathBuf, String> {
    let context = release.work.join("image");
    let root = context.join("root");
    emptied(&context)?;
    install(&release.stripped_program, &root.join("usr/bin/sanderling"), 0o755)?;
    for (source, installed) in FILES {
        install(&release.sources.join(source), &root.join(installed), 0o644)?;
    }
    put(&root.join("usr/share/doc/sanderling/THIRD-PARTY.txt"), &components.licence_texts()?)?;
    let state = context.join("state/sanderling");
    for folder in FOLDERS.iter().map(|name| root.join(name)).chain([state.clone()]) {
        create(&folder)?;
    }
    set_modes(&root)?;
    fs::set_permissions(&state, PermissionsExt::from_mode(0o700))
        .map_err(|error| format!("{}: {error}", state.display()))?;
    let (name, layout) = (reference(release), release.work.join("layout"));
    emptied(&layout)?;
    let build = buildah(release)?.args("build --isolation chroot --format oci --layers=false --timestamp");
    build
        .args_of(&[release.epoch_s.clone(), "--tag".to_owned(), name.clone(), "--file".to_owned()])
        .args_of(&[release.sources.join(DOCKERFILE), context].map(|path| path.to_string_lossy().into_owned()))
        .run(log)
        .into_result()?;
    let push = buildah(release)?.args("push --quiet");
    push.args_of(&[name.clone(), format!("oci:{}:{name}", layout.display())]).run(log).into_result()?;
    let archive = absolute(&out.join(format!("{}-image.tar", release.full_name())))?;
    let arguments = ["--file".to_owned(), archive.to_string_lossy().into_owned()];
    let tar = Program::new("tar")
        .args("--create --sort=name --owner=0 --group=0 --numeric-owner --format=gnu --mode=u=rwX,go=rX --mtime")
        .args_of(&[format!("@{}", release.epoch_s)])
        .args_of(&arguments)
        .args("blobs index.json oci-layout");
    tar.current_dir(&layout).run(log).into_result()?;
    Ok(archive)
}

/// The user and the command of the image, and a copy of its files in `root`, which all users can read.
pub(super) fn unpack(release: &Release, root: &Path, log: &mut Log) -> Result<(String, Vec<String>), String> {
    emptied(root)?;
    let layout = format!("oci:{}:{}", release.work.join("layout").display(), reference(release));
    let container = buildah(release)?.args("from --quiet").args_of(&[layout]).output();
    let container = container.ok_or("buildah cannot read the image")?.trim().to_owned();
    let ask = |command: &str| {
        let program = buildah(release)?.args(command).args_of(std::slice::from_ref(&container));
        program.output().map(|text| text.trim().to_owned()).ok_or_else(|| format!("`buildah {command}` fails"))
    };
    let user = ask("inspect --format {{.OCIv1.Config.User}}")?;
    let entry_point = ask("inspect --format {{range.OCIv1.Config.Entrypoint}}{{.}}{{end}}")?;
    let command = ask("inspect --format {{range.OCIv1.Config.Cmd}}{{.}}{{end}}")?;
    let mounted = ask("mount")?;
    let copy = [format!("{mounted}/."), root.to_string_lossy().into_owned()];
    Program::new("cp").args("--archive").args_of(&copy).run(log).into_result()?;
    ask("rm")?;
    fs::metadata(root.join("usr/bin/sanderling")).map_err(|error| format!("the image has no program: {error}"))?;
    Ok((user, vec![entry_point, command]))
}

fn reference(release: &Release) -> String {
    format!("sanderling:{}", release.version)
}

/// Its store is a folder of this build, so that no other image is touched.
fn buildah(release: &Release) -> Result<Program, String> {
    let store = release.work.join("store");
    create(&store)?;
    let folders = ["--root", "--runroot"].into_iter().zip(["images", "run"]);
    let arguments: Vec<String> = folders
        .flat_map(|(option, name)| [option.to_owned(), store.join(name).to_string_lossy().into_owned()])
        .collect();
    Ok(Program::new("buildah").args_of(&arguments).args("--storage-driver vfs"))
}
