//! The configurations of the manual: `check` finds nothing wrong with them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::https::issue_for;
use sanderling_testkit::{TestDirectory, run};

const ZONE: &[u8] = b"@ 3600 IN SOA ns1 host 1 3600 600 86400 300\n@ IN NS ns1\nns1 IN A 192.0.2.1\n";
const SEVERAL_SIGNERS_ZONE: &[u8] = b"@ 3600 IN SOA ns1 host 1 3600 600 86400 300\n@ IN NS ns1\nns1 IN A 192.0.2.1\n\
    @ IN DNSKEY 257 3 13 AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+Pw==\n";
const FILES: &[(&str, &[u8])] = &[
    ("public/index.html", b"index\n"),
    ("public/404.html", b"page\n"),
    ("public/gone.html", b"page\n"),
    ("public/maintenance.html", b"page\n"),
    ("public/healthz.txt", b"ok\n"),
    ("public/removed.html", b"page\n"),
    ("dist/index.html", b"index\n"),
    ("blog/index.html", b"index\n"),
    ("users/index.html", b"index\n"),
    ("others/index.html", b"index\n"),
    ("releases/current/index.html", b"index\n"),
    ("example.com.zone", ZONE),
    ("example.org.zone", ZONE),
    ("several-signers.zone", SEVERAL_SIGNERS_ZONE),
    ("reverse.zone", ZONE),
    ("zones/example.com.zone", ZONE),
    ("sites/example.com/index.html", b"index\n"),
    ("sites/example.com.toml", b"[domain.\"example.com\"]\nsite = \"public\"\n"),
    ("users.htpasswd", include_bytes!("site_rules/users.htpasswd")),
    ("ca-root.pem", b"-----BEGIN CERTIFICATE-----\n"),
    ("zerossl.key", b"c2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0IHNlY3JldA\n"),
    ("acme.key", b"c2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0IHNlY3JldA==\n"),
    ("transfer.key", b"c2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0IHNlY3JldA==\n"),
];
/// The part that an example may omit, since an earlier example has it.
const SITE: &str = "\n[domain.\"example.com\"]\nsite = \"public\"\n";
/// Paths and names of other machines.
const ELSEWHERE: [(&str, &str); 14] = [
    ("/etc/letsencrypt/live/example.com/", ""),
    ("\"certificate/", "\""),
    ("\"keys/transfer", "\"transfer"),
    ("/srv/example.com/current", "public"),
    ("/srv/example.com", "public"),
    ("/srv/mastodon/public", "public"),
    ("/srv/wordpress", "public"),
    ("/srv/project", "public"),
    ("/srv/blog", "public"),
    ("/srv/app", "public"),
    ("/srv/nas", "public"),
    ("/var/log/sanderling/", ""),
    ("/usr/local/bin/copy-certificate", "/usr/bin/true"),
    ("user = \"sanderling\"", "user = \"nobody\""),
];

#[test]
fn configurations_of_the_manual_are_valid() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec![root.join("README.md")];
    pages.extend(fs::read_dir(root.join("docs")).expect("a directory").map(|entry| entry.expect("an entry").path()));
    let directory = TestDirectory::with(FILES);
    issue_for("example.com,DNS:*.example.com", &directory, "fullchain.pem", "privkey.pem", "example.com");
    issue_for("app.internal", &directory, "internal-ca.pem", "internal-ca.key", "app.internal");
    let secret = fs::Permissions::from_mode(0o600);
    for file in ["acme.key", "transfer.key", "zerossl.key"] {
        fs::set_permissions(directory.path().join(file), secret.clone()).expect("set");
    }
    let file = directory.argument("sanderling.toml");
    let mut count = 0;
    for page in pages.iter().filter(|page| page.extension().is_some_and(|extension| extension == "md")) {
        let text = fs::read_to_string(page).expect("text");
        for block in text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()) {
            let mut config = block.to_owned();
            for (there, here) in ELSEWHERE {
                config = config.replace(there, here);
            }
            let mut arguments = vec!["check", "--config", &file];
            if ["[domain.", "zones = ", "include = "].iter().any(|content| config.contains(content)) {
                arguments.push("--strict");
            } else {
                config += SITE;
            }
            directory.write("sanderling.toml", config.as_bytes());
            let ended = run(&arguments);
            assert_eq!(ended.code(), Some(0), "{}\n{}\n{config}", page.display(), ended.errors);
            count += 1;
        }
    }
    assert!(count > 20, "the manual has configurations");
}
