//! WordPress with MariaDB, as a visitor and as its author use it.

use super::{Known, Running};
use crate::backends::php::Php;
use sanderling_testkit::{Ended, TestDirectory, run_program, wait_until};
use std::os::unix::net::UnixStream;
use std::process::Command;

const WORDPRESS: &str = "/usr/share/wordpress";
/// A picture of one point.
const PICTURE: &[u8] =
    b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff!\xf9\x04\x01\0\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;";

/// A database server.
struct MariaDb {
    _running: Running,
    socket: String,
}

impl MariaDb {
    fn new(directory: &TestDirectory) -> MariaDb {
        let data = format!("--datadir={}", directory.argument("database"));
        let socket = directory.argument("database.sock");
        let install = ["--no-defaults", &data, "--auth-root-authentication-method=normal", "--skip-test-db"];
        check(&run_program("mariadb-install-db", "mariadb-server-core", &install));
        let mut command = Command::new("mariadbd");
        command.args(["--no-defaults", &data, &format!("--socket={socket}"), "--skip-networking", "--user=root"]);
        command.args(["--innodb-buffer-pool-size=16M", "--innodb-flush-log-at-trx-commit=0"]);
        let running = Running::start(command, "mariadb-server-core");
        wait_until("the database accepts connections", || UnixStream::connect(&socket).is_ok());
        let database = MariaDb { _running: running, socket };
        database.run(
            "CREATE DATABASE wordpress; CREATE USER wordpress@localhost IDENTIFIED BY 'secret'; \
            GRANT ALL ON wordpress.* TO wordpress@localhost",
        );
        database
    }

    fn run(&self, statements: &str) {
        let socket = format!("--socket={}", self.socket);
        check(&run_program("mariadb", "mariadb-client", &["--no-defaults", &socket, "--user=root", "-e", statements]));
    }
}

fn check(ended: &Ended) {
    assert!(ended.status.success(), "{ended}");
}

/// The folder of WordPress, with the files themselves, as an upload would leave it.
fn upload(directory: &TestDirectory, database: &MariaDb) {
    check(&run_program("cp", "coreutils", &["-RL", WORDPRESS, &directory.argument("wordpress")]));
    let config = format!(
        "<?php\ndefine('DB_NAME', 'wordpress');\ndefine('DB_USER', 'wordpress');\ndefine('DB_PASSWORD', 'secret');\n\
         define('DB_HOST', 'localhost:{}');\ndefine('DB_CHARSET', 'utf8mb4');\ndefine('DB_COLLATE', '');\n\
         define('DISABLE_WP_CRON', true);\ndefine('WP_HTTP_BLOCK_EXTERNAL', true);\n\
         foreach (['AUTH', 'SECURE_AUTH', 'LOGGED_IN', 'NONCE'] as $name) {{\n\
         define($name . '_KEY', $name);\ndefine($name . '_SALT', $name . ' salt');\n}}\n$table_prefix = 'wp_';\n\
         if (!defined('ABSPATH')) define('ABSPATH', __DIR__ . '/');\nrequire_once ABSPATH . 'wp-settings.php';\n",
        database.socket
    );
    directory.write("wordpress/wp-config.php", config.as_bytes());
    // The scripts run as another user.
    check(&run_program("chmod", "coreutils", &["-R", "a+rwX", &directory.argument("wordpress/wp-content")]));
}

#[test]
fn wordpress_is_installed_written_to_and_read() {
    let directory = TestDirectory::new();
    let (database, php) = (MariaDb::new(&directory), Php::new(0));
    upload(&directory, &database);
    let [socket, _] = php.servers();
    let replaced = [("/srv/wordpress", "wordpress"), ("unix:/run/php/php-fpm.sock", &*socket)];
    let site = Known::start("WordPress", &replaced, directory);
    let url = |path: &str| format!("https://blog.example.com{path}");

    let (status, page) = site.status(&url("/wp-admin/install.php"), &[]);
    assert!(status == 200 && page.contains("weblog_title"), "{status} {page}");
    let form = "weblog_title=Birds&user_name=ann&admin_password=correct-horse&admin_password2=correct-horse\
        &admin_email=ann@example.com&blog_public=1";
    let (status, page) = site.status(&url("/wp-admin/install.php?step=2"), &["-d", form]);
    assert!(status == 200 && page.contains("Success!"), "{status} {page}");

    let (status, page) = site.status(&url("/"), &[]);
    assert!(status == 200 && page.contains("<title>Birds</title>"), "{status} {page}");
    assert!(page.contains("https://blog.example.com/wp-includes/"), "WordPress knows the scheme: {page}");
    let style = site.ask(&url("/wp-includes/css/dashicons.min.css"), &[]);
    assert_eq!((style.status, style.all("cache-control")), (200, vec!["public, max-age=604800"]));

    let jar = site.directory.argument("cookies");
    let keep = ["-b", &jar, "-c", &jar];
    site.ask(&url("/wp-login.php"), &keep);
    let login = "log=ann&pwd=correct-horse&testcookie=1&redirect_to=%2Fwp-admin%2F";
    let answer = site.ask(&url("/wp-login.php"), &[&keep[..], &["-d", login]].concat());
    assert_eq!((answer.status, answer.all("location")), (302, vec!["/wp-admin/"]), "{answer:?}");
    let (status, nonce) = site.status(&url("/wp-admin/admin-ajax.php?action=rest-nonce"), &keep);
    assert_eq!((status, nonce.len()), (200, 10), "{nonce}");

    let with_nonce = format!("X-WP-Nonce: {nonce}");
    let picture = format!("@{}", site.directory.write("picture.gif", PICTURE).display());
    let more =
        ["-H", &with_nonce, "-H", "Content-Type: image/gif", "-H", "Content-Disposition: attachment; filename=p.gif"];
    let upload = [&keep[..], &more, &["--data-binary", &picture]].concat();
    let (status, media) = site.status(&url("/index.php?rest_route=/wp/v2/media"), &upload);
    assert_eq!(status, 201, "{media}");
    let (_, rest) = media.split_once("\"source_url\":\"").expect("a URL");
    let source = rest.split('"').next().expect("a text").replace("\\/", "/");
    let answer = site.ask(&source, &[]);
    assert_eq!((answer.status, answer.all("content-type")), (200, vec!["image/gif"]), "{source}");

    database.run(
        "UPDATE wordpress.wp_options SET option_value = '/%postname%/' WHERE option_name = 'permalink_structure'; \
        DELETE FROM wordpress.wp_options WHERE option_name = 'rewrite_rules'",
    );
    let post = [&keep[..], &["-H", &with_nonce, "-d", "title=Waders&content=On+the+shore&status=publish"]].concat();
    let (status, made) = site.status(&url("/index.php?rest_route=/wp/v2/posts"), &post);
    assert!(status == 201 && made.contains("\"slug\":\"waders\""), "{status} {made}");
    for front in ["--http1.1", "--http2"] {
        let (status, page) = site.status(&url("/waders/"), &[front]);
        assert!(status == 200 && page.contains("On the shore"), "{status} {page}");
        assert_eq!(site.ask(&url("/waders"), &[front]).all("location"), ["https://blog.example.com/waders/"]);
        assert_eq!(site.status(&url("/nothing-here/"), &[front]).0, 404);
    }
    // The REST API by its permalink.
    assert!(site.status(&url("/wp-json/wp/v2/posts?search=Waders"), &[]).1.contains("On the shore"));

    site.directory.write("wordpress/wp-content/uploads/evil.php", b"<?php echo 'it runs';\n");
    for (path, status) in [
        ("/wp-content/uploads/evil.php", 404),
        ("/wp-content/uploads/evil.php/x", 404),
        ("/wp-config.php", 404),
        ("/xmlrpc.php", 403),
    ] {
        let answer = site.ask(&url(path), &[]);
        assert!(answer.status == status && !answer.content.contains("it runs"), "{path}: {answer:?}");
    }
}
