//! Turns the lines of a Cargo.toml into the dependencies that it names.

/// The manifest of the workspace; dependencies that say `workspace = true` are spelled out there.
pub(super) const WORKSPACE: &str = "Cargo.toml";

/// One dependency as its line gives it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Dependency<'a> {
    /// What our code calls it.
    pub(super) key: &'a str,
    /// The package of the registry, where it differs from the key.
    pub(super) package: Option<&'a str>,
    /// Where it lies in the tree, when it is ours.
    pub(super) path: Option<&'a str>,
    /// From 1.
    pub(super) line: usize,
}

impl<'a> Dependency<'a> {
    /// What the registry calls it.
    pub(super) fn package(&self) -> &'a str {
        self.package.unwrap_or(self.key)
    }

    /// The last folder of its path.
    pub(super) fn folder(&self) -> Option<&'a str> {
        self.path.and_then(|path| path.trim_end_matches('/').rsplit('/').next())
    }
}

/// What the package is built from, on whatever target: all but what only its tests and benchmarks use.
pub(super) fn built_from(manifest: &str) -> Vec<Dependency<'_>> {
    dependencies(manifest, |section| {
        let kind = section.strip_prefix("target.").and_then(|target| target.rsplit('.').next()).unwrap_or(section);
        kind == "dependencies" || kind == "build-dependencies"
    })
}

/// What the workspace gives to its packages.
pub(super) fn given_by_workspace(manifest: &str) -> Vec<Dependency<'_>> {
    dependencies(manifest, |section| section == "workspace.dependencies")
}

/// This reads the forms of TOML that cargo's own commands write: one line a dependency, or one section a dependency.
fn dependencies(manifest: &str, is_wanted: impl Fn(&str) -> bool) -> Vec<Dependency<'_>> {
    let mut found: Vec<Dependency<'_>> = Vec::new();
    let mut section = "";
    for (index, line) in manifest.lines().enumerate() {
        let text = line.split(" #").next().unwrap_or(line).trim();
        if let Some(header) = text.strip_prefix('[').and_then(|header| header.strip_suffix(']')) {
            section = header;
            if let Some((_, key)) = header.rsplit_once('.').filter(|(parent, _)| is_wanted(parent)) {
                found.push(Dependency { key, package: None, path: None, line: index + 1 });
            }
        } else if text.starts_with('#') || text.is_empty() {
        } else if is_wanted(section) {
            let key = text.split(['.', ' ', '=']).next().unwrap_or(text).trim_matches('"');
            let (package, path) = (string_of(text, "package"), string_of(text, "path"));
            found.push(Dependency { key, package, path, line: index + 1 });
        } else if section.rsplit_once('.').is_some_and(|(parent, _)| is_wanted(parent))
            && let Some(last) = found.last_mut()
        {
            last.package = last.package.or(string_of(text, "package"));
            last.path = last.path.or(string_of(text, "path"));
        }
    }
    found
}

/// The string given to `key` somewhere in the line.
fn string_of<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let is_key =
        |&(at, _): &(usize, &str)| !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '-' || c == '_');
    line.match_indices(key).filter(is_key).find_map(|(at, _)| {
        let value = line[at + key.len()..].trim_start().strip_prefix('=')?.trim_start().strip_prefix('"')?;
        value.split('"').next()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_read_in_every_form() {
        let manifest = "\
[package]
name = \"example\"

[dependencies]
a = \"1\" # path = \"no\"
b.workspace = true
c = { path = \"../c\", package = \"example-c\" }

[dependencies.d]
package = \"example-d\"

[target.'cfg(unix)'.dependencies]
e = { version = \"1\" }

[dev-dependencies]
f = \"1\"

[build-dependencies]
g = \"1\"
";
        let found = built_from(manifest);
        let seen: Vec<_> = found.iter().map(|d| (d.key, d.package(), d.folder(), d.line)).collect();
        assert_eq!(
            seen,
            [
                ("a", "a", None, 5),
                ("b", "b", None, 6),
                ("c", "example-c", Some("c"), 7),
                ("d", "example-d", None, 9),
                ("e", "e", None, 13),
                ("g", "g", None, 19),
            ]
        );
    }

    #[test]
    fn the_workspace_gives_by_path_or_version() {
        let manifest = "[workspace.dependencies]\nos = { path = \"crates/os\", package = \"x-os\" }\nlibc = \"0.2\"\n";
        let found = given_by_workspace(manifest);
        assert_eq!(found[0], Dependency { key: "os", package: Some("x-os"), path: Some("crates/os"), line: 2 });
        assert_eq!(found[1], Dependency { key: "libc", package: None, path: None, line: 3 });
    }
}
