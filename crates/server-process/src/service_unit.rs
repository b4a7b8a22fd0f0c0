//! The unit of systemd that the packages install: the user of its server. `check` run by root tests whether that user
//! can read what the server reads, since the server itself is not root then.

use sanderling_config::{ConfigSource, DEFAULT_FILES};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const NAME: &str = "sanderling.service";
/// The folders of units; the first one with the unit has the one that is used (systemd.unit(5)).
const FOLDERS: [&str; 4] =
    ["/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"];
/// Bytes that are read of each file.
const BYTES_MAX: u64 = 1024 * 1024;

/// A unit whose server is not started by root.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ServiceUnit {
    pub(crate) path: PathBuf,
    /// Its `User=`.
    pub(crate) user: String,
    /// Its `Group=`.
    pub(crate) group: Option<String>,
}

impl ServiceUnit {
    /// The unit that serves the configuration of `source`, if there is one with a user.
    pub(crate) fn of(source: &ConfigSource) -> Option<ServiceUnit> {
        let ConfigSource::File(file) = source else { return None };
        ServiceUnit::find(&FOLDERS.map(Path::new), file)
    }

    fn find(folders: &[&Path], file: &Path) -> Option<ServiceUnit> {
        let path = folders.iter().map(|folder| folder.join(NAME)).find(|path| path.exists())?;
        let mut settings = Settings::default();
        settings.read(&path);
        let of_folder = |folder: &&Path| fs::read_dir(folder.join(format!("{NAME}.d"))).into_iter().flatten().flatten();
        let mut drop_ins: Vec<PathBuf> = folders.iter().rev().flat_map(of_folder).map(|entry| entry.path()).collect();
        // By name, whatever the folder.
        drop_ins.sort_by(|one, other| one.file_name().cmp(&other.file_name()));
        drop_ins.iter().filter(|path| path.extension().is_some_and(|it| it == "conf")).for_each(|it| settings.read(it));
        let served = fs::canonicalize(settings.config_file()).ok()?;
        let is_root = matches!(&*settings.user, "" | "root" | "0");
        (!is_root && fs::canonicalize(file).ok()? == served).then(|| ServiceUnit {
            path,
            user: settings.user,
            group: Some(settings.group).filter(|group| !group.is_empty()),
        })
    }
}

/// The settings that are judged here, each empty if the unit does not have it.
#[derive(Default)]
struct Settings {
    user: String,
    group: String,
    command: String,
}

impl Settings {
    /// Takes those of a file; the last value of each counts.
    fn read(&mut self, path: &Path) {
        let text = fs::File::open(path).and_then(|file| io::read_to_string(io::Read::take(file, BYTES_MAX)));
        for line in text.unwrap_or_default().lines() {
            let Some((name, value)) = line.split_once('=') else { continue };
            let setting = match name.trim() {
                "User" => &mut self.user,
                "Group" => &mut self.group,
                "ExecStart" => &mut self.command,
                _ => continue,
            };
            value.trim().clone_into(setting);
        }
    }

    /// The configuration file of the command.
    fn config_file(&self) -> &str {
        let mut arguments = self.command.split_whitespace();
        let named = arguments.find_map(|argument| match argument.strip_prefix("--config") {
            Some("") => Some(None),
            Some(rest) => rest.strip_prefix('=').map(Some),
            None => None,
        });
        let [_, default] = DEFAULT_FILES;
        match named {
            Some(Some(file)) => file,
            Some(None) => arguments.next().unwrap_or(default),
            None => default,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_is_that_of_the_unit_with_its_drop_ins_for_its_configuration() {
        let folder = tempfile::tempdir().expect("created");
        let [first, second] = ["etc", "lib"].map(|name| folder.path().join(name));
        let file = folder.path().join("a.toml");
        fs::write(&file, "").expect("written");
        fs::write(folder.path().join("b.toml"), "").expect("written");
        let shown = file.display();
        let check = |unit: &str, drop_in: &str, expected: Option<(&str, Option<&str>)>| {
            let _ = (fs::remove_dir_all(&first), fs::remove_dir_all(&second));
            fs::create_dir_all(first.join("sanderling.service.d")).expect("created");
            fs::create_dir_all(&second).expect("created");
            fs::write(second.join(NAME), unit).expect("written");
            fs::write(first.join("sanderling.service.d/user.conf"), drop_in).expect("written");
            let found = ServiceUnit::find(&[&first, &second], &file);
            let found = found.as_ref().map(|unit| (unit.user.as_str(), unit.group.as_deref()));
            assert_eq!(found, expected, "{unit}{drop_in}");
        };
        let unit = |user: &str, arguments: &str| {
            format!("[Service]\n{user}\nExecStart=/usr/bin/sanderling serve{arguments}\n")
        };
        let own = format!(" --config {shown}");
        check(&unit("User=www", &own), "", Some(("www", None)));
        check(&unit("User = www\nGroup=web", &format!(" --config={shown} --state /s")), "", Some(("www", Some("web"))));
        check(&unit("User=www", &own), "[Service]\nUser=other\n", Some(("other", None)));
        check(&unit("User=www", &own), "[Service]\nUser=\n", None);
        check(&unit("User=root", &own), "", None);
        check(&unit("", &own), "", None);
        check(&unit("User=www", &own.replace("a.toml", "b.toml")), "", None);
        check(&unit("User=www", ""), "", None);
        check(
            &unit("User=www", ""),
            &format!("[Service]\nExecStart=\nExecStart=/sanderling serve{own}"),
            Some(("www", None)),
        );
        assert_eq!(ServiceUnit::find(&[&second.join("missing")], &file), None);
    }
}
