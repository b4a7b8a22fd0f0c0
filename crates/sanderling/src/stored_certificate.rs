//! A certificate of the state folder with its key, for other programs. The agent can write the folder, and this process
//! may be root: no link leads out of it, and anything but a certificate with its key is refused.

use sanderling_config::diagnostic::error_text;
use sanderling_config::{DomainName, SecretContent, read_beneath};
use sanderling_os::directory::Directory;
use sanderling_state::{CERTIFICATES, CHAIN_FILE, KEY_FILE};
use sanderling_tls::Certificate;
use std::io;
use std::path::Path;

/// Bytes of a chain or a key.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The content of both files, as PEM.
#[derive(Debug)]
pub(crate) struct StoredCertificate {
    pub(crate) chain: SecretContent,
    pub(crate) key: SecretContent,
    certificate: Certificate,
}

impl StoredCertificate {
    /// The certificate of the domain `name`, if there is one.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or is not a certificate.
    pub(crate) fn read(state: &Path, name: &DomainName) -> Result<Option<StoredCertificate>, String> {
        let path = format!("{CERTIFICATES}/{name}");
        let shown = state.join(&path).display().to_string();
        let unreadable = |error: io::Error| format!("cannot read {shown}: {}", error_text(&error));
        // A renewal switches the link: both files are read in the folder that it leads to now.
        let folder = Directory::open(state).and_then(|state| state.open_directory_beneath(path.as_bytes()));
        let folder = match folder {
            Ok(folder) => folder,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(error)),
        };
        let read = |file: &str| read_beneath(&folder, file.as_bytes(), FILE_BYTES_MAX).map_err(unreadable);
        let (chain, key) = (read(CHAIN_FILE)?, read(KEY_FILE)?);
        let certificate = Certificate::from_pem(&chain, &key)
            .map_err(|error| format!("{shown} has no certificate with a matching key: {error}; request a new one"))?;
        Ok(Some(StoredCertificate { chain, key, certificate }))
    }

    pub(crate) fn is_for(&self, name: &DomainName) -> bool {
        self.certificate.is_valid_for_host(name.as_str().as_bytes())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    /// A certificate for this name, and its key.
    pub(crate) fn pem_for(name: &str) -> (String, String) {
        let folder = tempfile::tempdir().expect("created");
        let path = |file: &str| folder.path().join(file).display().to_string();
        let arguments = format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=a -addext \
             subjectAltName=DNS:{name} -keyout {} -out {}",
            path("key"),
            path("chain")
        );
        let made = std::process::Command::new("openssl").args(arguments.split_whitespace()).output().expect("it runs");
        assert!(made.status.success(), "{made:?}");
        let read = |file: &str| fs::read_to_string(path(file)).expect("made");
        (read("chain"), read("key"))
    }

    /// A state folder with a certificate of example.com for `name`.
    pub(crate) fn state_for(name: &str) -> tempfile::TempDir {
        let (state, (chain, key)) = (tempfile::tempdir().expect("created"), pem_for(name));
        let folder = sanderling_state::StateFolder::open(state.path()).expect("opened");
        folder.store_certificate("example.com", chain.as_bytes(), key.as_bytes()).expect("stored");
        state
    }

    fn read(state: &Path) -> Result<Option<StoredCertificate>, String> {
        StoredCertificate::read(state, &DomainName::parse("example.com").expect("a name"))
    }

    #[test]
    fn certificate_is_read_with_its_key() {
        let state = state_for("www.example.com");
        let stored = read(state.path()).expect("read").expect("stored");
        let name = |name: &str| DomainName::parse(name).expect("a name");
        assert!(stored.is_for(&name("www.example.com")) && !stored.is_for(&name("example.com")));
        assert!(read(tempfile::tempdir().expect("created").path()).expect("none").is_none());
    }

    /// The agent has replaced a part of the certificate with `target`.
    fn check(plant: impl Fn(&Path, &Path), expected: &str) {
        let (state, secret) = (state_for("example.com"), tempfile::tempdir().expect("created"));
        fs::write(secret.path().join(CHAIN_FILE), "root:$6$secret:19000::::::\n").expect("written");
        fs::write(secret.path().join(KEY_FILE), "secret").expect("written");
        plant(state.path(), secret.path());
        let problem = read(state.path()).expect_err("refused");
        assert!(problem.contains(expected) && !problem.contains("$6$"), "{problem}");
    }

    fn replace(path: PathBuf, target: &Path) {
        fs::remove_file(&path).expect("there");
        symlink(target, path).expect("made");
    }

    #[test]
    fn planted_links_lead_nowhere() {
        const GENERATION: &str = "generations/example.com-1";
        check(
            |state, secret| replace(state.join(GENERATION).join(CHAIN_FILE), &secret.join(CHAIN_FILE)),
            "cannot read",
        );
        check(|state, secret| replace(state.join(GENERATION).join(KEY_FILE), &secret.join(KEY_FILE)), "cannot read");
        check(|state, secret| replace(state.join("certificates/example.com"), secret), "cannot read");
        // A link leads out of the certificate's folder, to another folder of the state folder, such as the zone keys.
        let inside = |state: &Path, _: &Path| {
            fs::write(state.join("secret"), "secret").expect("written");
            replace(state.join(GENERATION).join(KEY_FILE), Path::new("../../secret"));
        };
        check(inside, "cannot read");
        // A copy of something else, or a hard link.
        let copied = |state: &Path, secret: &Path| {
            fs::copy(secret.join(CHAIN_FILE), state.join(GENERATION).join(CHAIN_FILE)).expect("copied");
        };
        check(copied, "has no certificate with a matching key");
    }
}
