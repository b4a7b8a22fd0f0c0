//! Paths that only clients with some addresses may request.

use super::{HTTP, Site};
use sanderling_testkit::{TestDirectory, TestServer};

/// `ann` with the password `secret`.
const USERS: &[u8] = include_bytes!("users.htpasswd");

/// A site behind a proxy on this machine, which names its clients.
fn site() -> Site {
    let directory = TestDirectory::with(&[
        ("users.htpasswd", USERS),
        ("public/index.html", b"index\n"),
        ("public/admin/index.html", b"secret\n"),
        ("public/admin/app.js", b"secret\n"),
        ("public/open.txt", b"open\n"),
        (
            "sanderling.toml",
            b"workers = 2\n[http]\nlisten = [\"127.0.0.1:0\"]\nhttp2 = true\ntrusted_proxies = [\"127.0.0.0/8\"]\n\
              client_from = \"x-forwarded-for\"\n[domain.\"example.com\"]\nsite = \"public\"\n\
              redirects = { \"/out/*\" = { to = \"/admin/:splat\", status = 200 } }\n\
              [domain.\"example.com\".auth]\n\"/admin/both/*\" = { users_file = \"users.htpasswd\" }\n\
              [domain.\"example.com\".access]\n\
              \"/admin/*\" = { allow = [\"192.0.2.0/24\", \"2001:db8::/32\"], deny = [\"192.0.2.7\"] }\n\
              \"/blocked/*\" = { deny = [\"198.51.100.0/24\"] }\n",
        ),
        ("public/admin/both/file", b"secret\n"),
        ("public/blocked/file", b"for the others\n"),
    ]);
    let server = TestServer::start_command(directory.serve_command(), HTTP);
    Site { server, directory }
}

#[test]
fn only_clients_with_allowed_addresses_get_the_paths_of_a_rule() {
    let site = site();
    let check = |client: &str, path: &str, status: u16| {
        let field = format!("X-Forwarded-For: {client}");
        site.check(path, &["-H", &field], status, &[]);
    };
    for path in ["/admin/", "/admin/app.js", "//admin/./app.js", "/%61dmin/app.js", "/out/app.js"] {
        for client in ["192.0.2.1", "2001:db8:1::1", "::ffff:192.0.2.1"] {
            check(client, path, 200);
        }
        for client in ["198.51.100.1", "192.0.2.7", "2001:db9::1"] {
            check(client, path, 403);
        }
    }
    // A path that does not exist tells nothing either.
    for path in ["/admin/none", "/admin", "/admin/app.js.br", "/admin/index.html"] {
        check("198.51.100.1", path, 403);
    }
    check("198.51.100.1", "/open.txt", 200);
    check("198.51.100.1", "/blocked/file", 403);
    check("192.0.2.1", "/blocked/file", 200);
    // The proxy itself has an address, too.
    site.check("/admin/app.js", &[], 403, &["!cache-control"]);
    let allowed = ["-H", "X-Forwarded-For: 192.0.2.1"];
    site.check("/admin/app.js", &allowed, 200, &["cache-control: private, no-cache"]);
    site.check("/open.txt", &allowed, 200, &["!cache-control"]);
    let preflight = ["-X", "OPTIONS", "-H", "Origin: https://a.example", "-H", "Access-Control-Request-Method: GET"];
    site.check("/admin/app.js", &preflight, 403, &[]);
    site.check("/admin/app.js", &["-X", "POST"], 403, &[]);
}

#[test]
fn address_and_password_must_both_be_right() {
    let site = site();
    let path = "/admin/both/file";
    let (inside, outside) = ("X-Forwarded-For: 192.0.2.1", "X-Forwarded-For: 198.51.100.1");
    site.check(path, &["-H", outside, "-u", "ann:secret"], 403, &["!www-authenticate"]);
    site.check(path, &["-H", inside], 401, &["www-authenticate: Basic realm=\"private\", charset=\"UTF-8\""]);
    site.check(path, &["-H", inside, "-u", "ann:wrong"], 401, &[]);
    site.check(path, &["-H", inside, "-u", "ann:secret"], 200, &[]);
}
