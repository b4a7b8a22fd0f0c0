//! Applications behind a login: by an authenticator that answers as Authelia does, and by oauth2-proxy.

use super::{Known, Running};
use crate::backends::{AUTHENTICATOR_JS, Application};
use sanderling_testkit::{TestDirectory, free_address, wait_until};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

#[test]
fn authelia_guards_two_applications() {
    let authenticator = Application::start("node", "nodejs", AUTHENTICATOR_JS, free_address());
    let (wiki, files) = (Application::node(), Application::node());
    let replaced = [
        ("http://127.0.0.1:9091/api/authz/forward-auth", &*format!("{}/forward-auth", authenticator.url())),
        ("http://127.0.0.1:9091", &*authenticator.url()),
        ("http://127.0.0.1:3000", &*wiki.url()),
        ("http://127.0.0.1:3001", &*files.url()),
    ];
    let site = Known::start("Authelia in front of two applications", &replaced, TestDirectory::new());
    for (host, application) in [("wiki", &wiki), ("files", &files)] {
        let url = |path: &str| format!("https://{host}.example.com{path}");
        let login = site.ask(&url("/pid"), &["-H", "Remote-User: root"]);
        let location = format!("https://login.example/?rd=https%3A%2F%2F{host}.example.com%2Fpid");
        assert_eq!((login.status, login.all("location")), (302, vec![&*location]));
        let session = ["-H", "Cookie: session=ann"];
        assert_eq!(site.status(&url("/pid"), &session), (200, application.child.id().to_string()));
        let echo = site.ask(&url("/echo"), &[&session[..], &["-H", "Remote-User: root", "-d", "x"]].concat());
        assert_eq!(echo.seen("remote-user"), "\"ann\"", "{echo:?}");
    }
}

/// oauth2-proxy with the users of a file.
fn oauth2_proxy(directory: &TestDirectory, address: SocketAddr) -> Running {
    // The password is "secret".
    let users = directory.write("logins", b"ann:$2y$04$1q4MMCbRc.PewLljx7yewO1rIYAC0XxrJZNWB5hZ8xRmeO/eq6zOG\n");
    let home = std::env::var("HOME").unwrap_or_default();
    let mut command = Command::new("oauth2-proxy");
    command.env("PATH", format!("{}:{home}/go/bin", std::env::var("PATH").unwrap_or_default()));
    command.args(["--provider=github", "--client-id=id", "--client-secret=secret", "--email-domain=*"]);
    command.args(["--cookie-secret=0123456789abcdef", "--reverse-proxy", "--set-xauthrequest"]);
    command.args(["--upstream=static://202", &format!("--http-address={address}")]);
    command.arg(format!("--htpasswd-file={}", users.display()));
    let running = Running::start(command, "oauth2-proxy of Go");
    wait_until("oauth2-proxy accepts connections", || TcpStream::connect(address).is_ok());
    running
}

#[test]
fn oauth2_proxy_guards_an_application() {
    let (directory, address, application) = (TestDirectory::new(), free_address(), Application::node());
    let _guard = oauth2_proxy(&directory, address);
    let guard = format!("http://{address}");
    let replaced = [("http://127.0.0.1:3000", &*application.url()), ("http://127.0.0.1:4180", &*guard)];
    let site = Known::start("oauth2-proxy in front of an application", &replaced, directory);
    let url = |path: &str| format!("https://app.example.com{path}");
    let refused = site.ask(&url("/pid"), &["-H", "X-Auth-Request-User: root"]);
    assert!(refused.status == 403 && refused.content.contains("sign_in"), "{refused:?}");
    let jar = site.directory.argument("cookies");
    let keep = ["-b", &jar, "-c", &jar];
    let login = ["-d", "username=ann&password=secret&rd=%2Fpid"];
    let answer = site.ask(&url("/oauth2/sign_in"), &[&keep[..], &login].concat());
    assert_eq!((answer.status, answer.all("location")), (302, vec!["/pid"]), "{answer:?}");
    for front in ["--http1.1", "--http2"] {
        let more = [&keep[..], &[front]].concat();
        assert_eq!(site.status(&url("/pid"), &more), (200, application.child.id().to_string()));
        let echo = site.ask(&url("/echo"), &[&more[..], &["-H", "X-Auth-Request-User: root", "-d", "x"]].concat());
        assert_eq!(echo.seen("x-auth-request-user"), "\"ann\"", "{front} {echo:?}");
    }
}
