//! The files that the configurations name, with a case for each key of a site or of a zone.

use super::super::https::issue_for;
use super::super::name_servers::SECRET;
use sanderling_testkit::TestDirectory;
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};

const ZONE: &str = "$TTL 300\n@ SOA ns1 host 10 3600 600 86400 60\n@ NS ns1\n@ MX 10 mail\nns1 A 192.0.2.1\n\
    www A 192.0.2.2\nwww A 192.0.2.3\nwww A 192.0.2.4\nwww A 192.0.2.5\nmail A 192.0.2.6\none CNAME two\ntwo CNAME three\n\
    three CNAME www\n*.wild TXT wild\n";
/// The password is `pw`.
const HASH: &str = "$2b$04$abcdefghijklmnopqrstuuyvPXIbu7xe6/CED2DzX8z6Si09MlzlW\n";

pub(super) fn write_files(directory: &TestDirectory) {
    let long: String = (0..1_000).map(|number| format!("{number}\n")).collect();
    let big: String = (0..4).map(|number| format!("big TXT \"{number}{}\"\n", "b".repeat(240))).collect();
    let zone = format!("{ZONE}{big}$INCLUDE included.txt\n");
    for (path, content) in [
        ("public/index.html", "index\n"),
        ("public/other.html", "other\n"),
        ("public/about.html", "about\n"),
        ("public/plain.txt", &long),
        ("public/.hidden", "hidden\n"),
        ("public/admin/index.html", "admin\n"),
        ("public/private/index.html", "private\n"),
        ("public/secret/index.html", "secret\n"),
        ("public/new/index.html", "new\n"),
        ("public/new/page", "new\n"),
        ("public/old/page", "old\n"),
        ("public/listed/a.txt", "a\n"),
        ("public/listed/b.txt", "b\n"),
        ("public/assets/app-0123456789abcdef.js", "let a = 1;\n"),
        ("public/_redirects", "/from/a /to/a 302\n/from/b /to/b 302\n/from/c /to/c 302\n/from/d /to/d 302\n"),
        ("public/_headers", "/plain.txt\n  X-Rules: file\n"),
        ("other/index.html", "another site\n"),
        ("linked/file.txt", "linked\n"),
        ("users/a.htpasswd", &format!("user:{HASH}")),
        ("users/b.htpasswd", &format!("other:{HASH}")),
        ("other-users/b.htpasswd", &format!("user:{HASH}")),
        ("files/site.zone", &zone),
        ("files/auto.zone", ZONE),
        ("files/signed.zone", ZONE),
        ("files/split.zone", ZONE),
        ("files/plain.zone", &zone),
        ("files/other.zone", &zone.replace("192.0.2.2", "192.0.2.222")),
        ("files/included.txt", "included A 192.0.2.7\n"),
        ("zones/folder.test.zone", ZONE),
        ("other-zones/another.test.zone", ZONE),
        ("more/included.toml", "[domain.\"included.test\"]\nzone = \"files/plain.zone\"\n"),
        ("account.key", "aGVsbG8gaGVsbG8gaGVsbG8gaGVsbG8gaGVsbG8gaGU\n"),
        ("other-account.key", "aGVsbG8gaGVsbG8gaGVsbG8gaGVsbG8gaGVsbG8gaGU\n"),
        ("transfer.key", SECRET),
        ("other.key", SECRET),
        ("third.key", &SECRET.replace("c2Vj", "c3Vj")),
        ("cookie.secret", "0123456789abcdef0123456789abcdef\n"),
    ] {
        directory.write(path, content.as_bytes());
        if path.ends_with(".key") || path.ends_with(".secret") {
            set_mode(directory, path, 0o600);
        }
    }
    symlink("../linked/file.txt", directory.path().join("public/link.txt")).expect("created");
    issue_for(
        "site.test,DNS:www.site.test,DNS:mta-sts.site.test,DNS:small.test",
        directory,
        "chain.pem",
        "key.pem",
        "first",
    );
    issue_for("auto.test,DNS:site.test,DNS:www.site.test", directory, "auto.pem", "auto.key", "second");
    std::fs::copy(directory.path().join("chain.pem"), directory.path().join("ca.pem")).expect("copied");
    std::fs::copy(directory.path().join("chain.pem"), directory.path().join("renewed.pem")).expect("copied");
    std::fs::create_dir(directory.path().join("logs")).expect("created");
    ["key.pem", "auto.key"].iter().for_each(|path| set_mode(directory, path, 0o600));
}

fn set_mode(directory: &TestDirectory, path: &str, mode: u32) {
    std::fs::set_permissions(directory.path().join(path), Permissions::from_mode(mode)).expect("ours");
}

/// Files and configuration of the primary server.
pub(super) fn write_primary(directory: &TestDirectory, address: &str, secondary: &str) {
    directory.write("copy.zone", ZONE.as_bytes());
    let config = format!(
        "workers = 1\nstate = \"state\"\n[dns]\nlisten = [\"{address}\"]\nsecondaries = [{{ address = \"{secondary}\" }}]\n\
         [catalog.\"members.test\"]\n[domain.\"copy.test\"]\nzone = \"copy.zone\"\n\
         [domain.\"member.test\"]\nzone = \"copy.zone\"\n"
    );
    directory.write("sanderling.toml", config.as_bytes());
}
