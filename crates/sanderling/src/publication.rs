//! The commands `publish` and `rollback`: switch the link of a site to another release, and tell the running server.
//!
//! The commands write only symbolic links in the link's directory. The server reads where these lead; see
//! [`ReleaseLink`] for their names.

use sanderling_config::diagnostic::error_text;
use sanderling_config::log::{log, print};
use sanderling_config::{ConfigSource, DomainName, PREVIOUS_RELEASES_MAX, ReleaseLink, Site, most_similar};
use sanderling_ipc::Command;
use sanderling_ipc::client::{self, AskError};
use std::fs::{self, File, TryLockError};
use std::io;
use std::iter;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A site that is switched to another release.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Publication {
    /// The configuration with the site.
    pub(crate) source: ConfigSource,
    /// The site's domain.
    pub(crate) name: DomainName,
    pub(crate) release: Release,
    /// The server's control socket, or why it is unknown.
    pub(crate) socket: Result<PathBuf, String>,
    /// For the server's answer.
    pub(crate) timeout: Duration,
}

/// The release that becomes current.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Release {
    Folder(PathBuf),
    /// The previous release.
    Previous,
}

impl Release {
    /// The name of the command.
    pub(crate) fn command(&self) -> &'static str {
        match self {
            Release::Folder(_) => "publish",
            Release::Previous => "rollback",
        }
    }
}

impl Publication {
    /// Switches the link, and tells the server; switches it back if the server cannot serve the release.
    ///
    /// # Errors
    /// Returns the problem and its remedy.
    pub(crate) fn run(self) -> Result<(), String> {
        let config = self.source.load().map_err(|diagnostics| lines(diagnostics.iter()))?;
        let site = self.find(&config.sites)?;
        let Some(document_root) = &site.document_root else {
            return Err(format!("{} has no document root; add site = \"FOLDER\" to the domain", self.name));
        };
        let link = ReleaseLink::new(document_root);
        let links = Links::lock(&link)?;
        let current = link.current();
        let release = match &self.release {
            Release::Folder(folder) => check_folder(folder, &links, site, current.as_deref())?,
            Release::Previous => previous(&link, current.as_deref())?,
        };
        let before = links.read();
        links.switch_to(&release, current.as_deref()).inspect_err(|_| links.restore(&before))?;
        let name = links.shown(&release);
        match self.tell_server(site) {
            Ok(answer) => print(&answer),
            Err(AskError::Absent(reason) | AskError::Unreachable(reason)) => {
                log(&format!("{reason}\nA running server notices the new release within a second or two."));
            }
            Err(AskError::NoAnswer(reason)) => return Err(format!("the link points to {name}, but {reason}")),
            Err(AskError::Failed(reason)) => {
                links.restore(&before);
                return Err(format!("{reason}\n{name} was not published; the link is unchanged"));
            }
        }
        let previous = current.filter(|current| *current != release).map(|current| links.shown(&current));
        let previous = previous.map_or(String::new(), |previous| format!("; before: {previous}"));
        print(&format!("{}: release {name}{previous}\n", self.name));
        Ok(())
    }

    fn find<'s>(&self, sites: &'s [Site]) -> Result<&'s Site, String> {
        sites.iter().find(|site| site.hosts.contains(&self.name)).ok_or_else(|| {
            let known = sites.iter().flat_map(|site| &site.hosts).map(DomainName::as_str);
            let similar = most_similar(self.name.as_str(), known);
            let hint = similar.map_or(String::new(), |similar| format!("; did you mean {similar}?"));
            format!("the configuration has no site for {}{hint}", self.name)
        })
    }

    fn tell_server(&self, site: &Site) -> Result<String, AskError> {
        let socket = self.socket.clone().map_err(AskError::Unreachable)?;
        let name = site.hosts.first().map(|host| host.as_str().to_owned());
        client::ask(Command::ReloadSite { name }, &socket, self.timeout)
    }
}

/// The release before the current one.
fn previous(link: &ReleaseLink, current: Option<&Path>) -> Result<PathBuf, String> {
    let found = current.and_then(|current| link.previous(current).into_iter().next());
    found.ok_or_else(|| {
        let shown = link.previous_path(1);
        format!("there is no earlier release: {} does not point to one; publish a folder instead", shown.display())
    })
}

/// The real path of `folder`, if it can be a release.
fn check_folder(folder: &Path, links: &Links<'_>, site: &Site, current: Option<&Path>) -> Result<PathBuf, String> {
    let shown = folder.display();
    let real = fs::canonicalize(folder).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!("the folder {shown} does not exist"),
        _ => format!("cannot reach the folder {shown}: {}", error_text(&error)),
    })?;
    if !real.is_dir() {
        return Err(format!("{shown} is not a folder"));
    }
    if !links.link.is_release(&real) {
        return Err(format!(
            "the folder {shown} is not below {}, where the server can read releases; copy it there",
            links.directory.display()
        ));
    }
    let mut entries = fs::read_dir(&real).map_err(|error| format!("cannot list {shown}: {}", error_text(&error)))?;
    if entries.next().is_none() {
        return Err(format!("the folder {shown} is empty"));
    }
    let has_index = |root: &Path| site.options.files.index.iter().any(|name| has_file(root, name, site));
    if !has_index(&real) && current.is_some_and(has_index) {
        let names = site.options.files.index.join(" or ");
        return Err(format!("the folder {shown} has no {names}, which the current release has; complete it"));
    }
    Ok(real)
}

/// Whether the server can serve the file `name` of a release, be it precompressed.
fn has_file(root: &Path, name: &str, site: &Site) -> bool {
    let Ok(root) = fs::canonicalize(root) else { return false };
    ["", ".br", ".zst", ".gz"].iter().any(|coding| {
        let targets = site.options.link_targets.iter().map(|(target, _)| target);
        fs::canonicalize(root.join(format!("{name}{coding}"))).is_ok_and(|path| {
            path.is_file() && iter::once(&root).chain(targets).any(|directory| path.starts_with(directory))
        })
    })
}

/// A site's links, which no other process switches at the same time.
struct Links<'l> {
    link: &'l ReleaseLink,
    /// The real path of the links' directory.
    directory: PathBuf,
    /// The open directory, with a lock.
    lock: File,
}

/// The targets of the links, the current link first; `None` for a missing link.
type Targets = Vec<(PathBuf, Option<PathBuf>)>;

impl<'l> Links<'l> {
    fn lock(link: &'l ReleaseLink) -> Result<Links<'l>, String> {
        let path = link.path().display();
        if !link.exists() && link.path().exists() {
            return Err(format!(
                "{path} is not a symbolic link; move it into a folder of releases, and set `site` to the path of a link there, \
                 such as \"releases/current\""
            ));
        }
        let unreachable = |error: &io::Error| format!("cannot reach the folder of {path}: {}", error_text(error));
        let directory = link.directory().map_err(|error| unreachable(&error))?;
        let lock = File::open(&directory).map_err(|error| unreachable(&error))?;
        match lock.try_lock() {
            Ok(()) => Ok(Links { link, directory, lock }),
            Err(TryLockError::WouldBlock) => Err(format!("another process is publishing at {path}; try again later")),
            Err(TryLockError::Error(error)) => Err(format!("cannot lock {}: {error}", directory.display())),
        }
    }

    fn paths(&self) -> impl Iterator<Item = PathBuf> {
        let previous = (1..=PREVIOUS_RELEASES_MAX).map(|age| self.link.previous_path(age));
        iter::once(self.link.path().to_owned()).chain(previous)
    }

    fn read(&self) -> Targets {
        self.paths().map(|path| (path.clone(), fs::read_link(path).ok())).collect()
    }

    /// Makes `release` the current release, and `current` the previous one.
    fn switch_to(&self, release: &Path, current: Option<&Path>) -> Result<(), String> {
        let Some(current) = current.filter(|current| *current != release) else {
            return self.set(self.link.path(), &self.relative(release));
        };
        let earlier = self.link.previous(current);
        let previous = iter::once(current).chain(earlier.iter().map(PathBuf::as_path)).filter(|path| *path != release);
        for (index, path) in previous.take(PREVIOUS_RELEASES_MAX).enumerate().collect::<Vec<_>>().into_iter().rev() {
            self.set(&self.link.previous_path(index + 1), &self.relative(path))?;
        }
        // Last: before that, nothing has changed for clients.
        self.set(self.link.path(), &self.relative(release))
    }

    /// Makes the links lead where they led before.
    fn restore(&self, before: &Targets) {
        for (path, target) in before {
            let result = match target {
                Some(target) => self.set(path, target),
                None => match fs::remove_file(path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        Err(format!("cannot remove {}: {}", path.display(), error_text(&error)))
                    }
                    _ => Ok(()),
                },
            };
            if let Err(problem) = result {
                log(&problem);
            }
        }
    }

    /// Makes the link at `path` point to `target`, atomically and durably.
    fn set(&self, path: &Path, target: &Path) -> Result<(), String> {
        let new = path.with_extension(format!("new-{}", std::process::id()));
        let replace = || {
            symlink(target, &new)?;
            fs::rename(&new, path).inspect_err(|_| drop(fs::remove_file(&new)))?;
            self.lock.sync_all()
        };
        replace().map_err(|error| {
            let text = error_text(&error);
            format!("cannot write the link {}: {text}; run this as the owner of its folder", path.display())
        })
    }

    /// A release in the form of the links, which may be moved with their directory.
    fn relative(&self, release: &Path) -> PathBuf {
        release.strip_prefix(&self.directory).unwrap_or(release).to_owned()
    }

    fn shown(&self, release: &Path) -> String {
        self.relative(release).display().to_string()
    }
}

fn lines(texts: impl Iterator<Item = impl ToString>) -> String {
    texts.map(|text| text.to_string()).collect::<Vec<_>>().join("\n")
}
