//! The components of the program: the list in the form of CycloneDX 1.5, and the texts of their licences.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::release::{Release, triple};
use super::{read, sha256};
use crate::program::Program;

/// Beginnings of names of files with licences, in upper case.
const LICENCE_FILES: &[&str] = &["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];

/// The roots that certificate authorities are checked by. The package ca-certificates of this machine has them.
pub(super) const ROOTS: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The crates of the program and the libraries of the compiler, sorted by name and version.
#[derive(Debug)]
pub(super) struct Components(BTreeMap<Id, Component>);

/// Name and version.
type Id = (String, String);

#[derive(Debug)]
struct Component {
    /// Its address (<https://github.com/package-url/purl-spec>).
    purl: String,
    /// An expression of SPDX.
    licence: String,
    /// The SHA-256 sum of the source at the registry; crates of this workspace have none.
    checksum: Option<String>,
    /// The folder of the source.
    folder: Option<PathBuf>,
    dependencies: BTreeSet<Id>,
}

impl Components {
    /// Asks cargo for the crates that the program consists of.
    pub(super) fn of_program(release: &Release) -> Result<Components, String> {
        let tree = Program::cargo().args("tree --locked --package sanderling --edges normal --prefix depth --target");
        let tree = tree.args_of(&[triple()]).current_dir(&release.sources).output().ok_or("cargo tree fails")?;
        let metadata = Program::cargo().args("metadata --locked --format-version 1 --filter-platform");
        let metadata =
            metadata.args_of(&[triple()]).current_dir(&release.sources).output().ok_or("cargo metadata fails")?;
        let metadata: Value = serde_json::from_str(&metadata).map_err(|error| format!("cargo metadata: {error}"))?;
        let checksums = checksums(&read(&release.sources.join("Cargo.lock"))?);
        let mut components = BTreeMap::new();
        for (id, dependencies) in dependencies(&tree)? {
            let text = |package: &Value, key: &str| package[key].as_str().unwrap_or_default().to_owned();
            let is_it = |package: &&Value| text(package, "name") == id.0 && text(package, "version") == id.1;
            let package = metadata["packages"].as_array().into_iter().flatten().find(is_it);
            let package = package.ok_or_else(|| format!("cargo metadata has no {} {}", id.0, id.1))?;
            // The older form of `OR`.
            let licence = text(package, "license").replace('/', " OR ");
            let folder = Path::new(&text(package, "manifest_path")).parent().map(Path::to_owned);
            let checksum = checksums.get(&id).cloned();
            let purl = format!("pkg:cargo/{}@{}", id.0, id.1);
            components.insert(id, Component { purl, licence, checksum, folder, dependencies });
        }
        add_libraries_of_compiler(&mut components, release)?;
        Ok(Components(components))
    }

    /// The list in JSON.
    pub(super) fn cyclone_dx(&self, release: &Release) -> Result<String, String> {
        let time =
            Program::new("date").args("--utc +%Y-%m-%dT%H:%M:%SZ --date").args_of(&[format!("@{}", release.epoch_s)]);
        let time = time.output().ok_or("date fails")?;
        let program = ("sanderling".to_owned(), release.version.clone());
        let purl = |id: &Id| self.0[id].purl.as_str();
        let others = self.0.iter().filter(|(id, _)| **id != program).map(|(id, component)| component.json(id));
        let dependencies = self.0.values().map(|component| {
            json!({ "ref": component.purl, "dependsOn": component.dependencies.iter().map(purl).collect::<Vec<_>>() })
        });
        let list = json!({
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "version": 1,
            "metadata": {
                "timestamp": time.trim(),
                "component": {
                    "type": "application", "name": program.0, "version": program.1,
                    "bom-ref": purl(&program), "purl": purl(&program),
                },
            },
            "components": others.chain([roots_of_image()?]).collect::<Vec<_>>(),
            "dependencies": dependencies.collect::<Vec<_>>(),
        });
        serde_json::to_string_pretty(&list).map(|text| text + "\n").map_err(|error| error.to_string())
    }

    /// A page with the licences of all components, and each text once.
    pub(super) fn licence_texts(&self) -> Result<String, String> {
        let mut page = "The program is linked with these libraries.\n\n".to_owned();
        let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for ((name, version), component) in &self.0 {
            page += &format!("{name} {version}: {}\n", component.licence);
            // The licences of the workspace are separate files.
            let folder = component.folder.iter().filter(|_| component.checksum.is_some());
            for file in folder.map(|folder| licence_files(folder)).collect::<Result<Vec<_>, _>>()?.concat() {
                let bytes = fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
                let text = String::from_utf8_lossy(&bytes).trim().to_owned();
                let names = texts.entry(text).or_default();
                if names.last().is_none_or(|last| last != name) {
                    names.push(name.clone());
                }
            }
        }
        for (text, names) in texts {
            page += &format!("\n\n== {} ==\n\n{text}\n", names.join(", "));
        }
        Ok(page)
    }
}

impl Component {
    fn json(&self, id: &Id) -> Value {
        let mut value = json!({
            "type": "library", "name": id.0, "version": id.1, "bom-ref": self.purl, "purl": self.purl,
            "licenses": [{ "expression": self.licence }],
        });
        if let Some(checksum) = &self.checksum {
            value["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
        }
        value
    }
}

/// A static program also contains the C library and the standard library.
fn add_libraries_of_compiler(components: &mut BTreeMap<Id, Component>, release: &Release) -> Result<(), String> {
    let rust = Program::new("rustc").args("--version").output();
    let rust = rust.as_deref().and_then(|text| text.split_whitespace().nth(1)).ok_or("rustc fails")?.to_owned();
    // Its revision, too: patches of the distribution close holes without a new version.
    let glibc = source_version("libc6-dev")?;
    let libraries = [
        ("glibc", purl_of_distribution("glibc", &glibc, "source")?, glibc, "LGPL-2.1-or-later"),
        ("std", format!("pkg:generic/std@{rust}"), rust, "MIT OR Apache-2.0"),
    ];
    let program = components.get_mut(&("sanderling".to_owned(), release.version.clone()));
    let program = program.ok_or("cargo tree does not have the program itself")?;
    program.dependencies.extend(libraries.iter().map(|(name, _, version, _)| ((*name).to_owned(), version.clone())));
    for (name, purl, version, licence) in libraries {
        let (licence, dependencies) = (licence.to_owned(), BTreeSet::new());
        let component = Component { purl, licence, checksum: None, folder: None, dependencies };
        components.insert((name.to_owned(), version), component);
    }
    Ok(())
}

/// The root certificates of the image, which the program is not linked with.
fn roots_of_image() -> Result<Value, String> {
    let version = source_version("ca-certificates")?;
    let purl = purl_of_distribution("ca-certificates", &version, "all")?;
    let bundle = Component {
        checksum: Some(sha256(Path::new(ROOTS))?),
        licence: "MPL-2.0".to_owned(),
        folder: None,
        dependencies: BTreeSet::new(),
        purl,
    };
    Ok(bundle.json(&("ca-certificates".to_owned(), version)))
}

/// The version, with the revision, of the source of an installed package.
fn source_version(package: &str) -> Result<String, String> {
    let version = Program::new("dpkg-query").args("--show --showformat ${source:Version}").args(package).output();
    version.filter(|version| !version.is_empty()).ok_or_else(|| format!("the package {package} is not installed"))
}

/// The address of a package of the distribution of this machine (os-release(5)).
fn purl_of_distribution(name: &str, version: &str, architecture: &str) -> Result<String, String> {
    let text = read(Path::new("/etc/os-release"))?;
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(|value| value.trim_matches('"'));
    let (Some(id), Some(release)) = (value("ID="), value("VERSION_ID=")) else {
        return Err("/etc/os-release has no ID or VERSION_ID".to_owned());
    };
    let version = version.replace('+', "%2B").replace(':', "%3A");
    Ok(format!("pkg:deb/{id}/{name}@{version}?arch={architecture}&distro={id}-{release}"))
}

/// The crates in the output of `cargo tree --prefix depth`, with what they depend on directly.
fn dependencies(tree: &str) -> Result<BTreeMap<Id, BTreeSet<Id>>, String> {
    let mut found: BTreeMap<Id, BTreeSet<Id>> = BTreeMap::new();
    let mut path: Vec<Id> = Vec::new();
    for line in tree.lines() {
        // `2serde v1.0.229 (*)`
        let digits = line.len() - line.trim_start_matches(|first: char| first.is_ascii_digit()).len();
        let mut words = line[digits..].split(' ');
        let id = words.next().zip(words.next().and_then(|version| version.strip_prefix('v')));
        let (Ok(depth), Some((name, version))) = (line[..digits].parse::<usize>(), id) else {
            return Err(format!("`{line}` is not a line of cargo tree"));
        };
        let id = (name.to_owned(), version.to_owned());
        path.truncate(depth);
        if let Some(parent) = path.last() {
            found.entry(parent.clone()).or_default().insert(id.clone());
        }
        found.entry(id.clone()).or_default();
        path.push(id);
    }
    Ok(found)
}

/// The checksums in the text of Cargo.lock.
fn checksums(lock: &str) -> BTreeMap<Id, String> {
    let value = |package: &str, key: &str| {
        let line = package.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""))?;
        line.strip_suffix('"').map(str::to_owned)
    };
    let packages = lock.split("[[package]]");
    packages.filter_map(|it| Some(((value(it, "name")?, value(it, "version")?), value(it, "checksum")?))).collect()
}

fn licence_files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |error| format!("{}: {error}", folder.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        if path.is_file() && LICENCE_FILES.iter().any(|beginning| name.starts_with(beginning)) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str, version: &str) -> Id {
        (name.to_owned(), version.to_owned())
    }

    #[test]
    fn tree_of_cargo_has_the_dependencies() {
        let tree = "0a v0.1.0 (/src/a)\n1b v1.2.3\n2c v4.0.0 (proc-macro)\n1c v4.0.0 (proc-macro) (*)\n";
        let found = dependencies(tree).expect("well-formed");
        let expected = [
            (id("a", "0.1.0"), BTreeSet::from([id("b", "1.2.3"), id("c", "4.0.0")])),
            (id("b", "1.2.3"), BTreeSet::from([id("c", "4.0.0")])),
            (id("c", "4.0.0"), BTreeSet::new()),
        ];
        assert_eq!(found, BTreeMap::from(expected));
        for line in ["", "a v1.0.0", "0a 1.0.0", "0a"] {
            let error = dependencies(&format!("{line}\n")).expect_err(line);
            assert_eq!(error, format!("`{line}` is not a line of cargo tree"));
        }
    }

    #[test]
    fn addresses_of_packages_have_the_revision_and_the_distribution() {
        let address = purl_of_distribution("glibc", "2.36-9+deb12u14", "source").expect("a distribution");
        let (distribution, rest) = address.split_once("/glibc@").expect("a name");
        let id = distribution.strip_prefix("pkg:deb/").expect("a kind");
        let expected = format!("2.36-9%2Bdeb12u14?arch=source&distro={id}-");
        assert!(rest.strip_prefix(&expected).is_some_and(|release| !release.is_empty()), "{address}");
        let roots = roots_of_image().expect("the package ca-certificates");
        assert_eq!(roots["hashes"][0]["content"].as_str().map(str::len), Some(64), "{roots}");
    }

    #[test]
    fn checksums_are_those_of_the_registry() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"0.1.0\"\n\n[[package]]\nname = \"b\"\n\
                    version = \"1.2.3\"\nsource = \"registry\"\nchecksum = \"00ff\"\n";
        assert_eq!(checksums(lock), BTreeMap::from([(id("b", "1.2.3"), "00ff".to_owned())]));
    }
}
