//! Applications behind TLS: another server is the application.

use super::{Front, Proxy, Setup, route};
use sanderling_testkit::{run, wait_until};

/// A server as the application, and one before it with these keys of its route.
fn behind_tls(keys: &str) -> (Proxy, Proxy) {
    let application = Proxy::new("");
    let proxy = before(&application, keys);
    (application, proxy)
}

fn before(application: &Proxy, keys: &str) -> Proxy {
    let keys = route("/", &format!("proxy = \"https://{}\"\n{keys}", application.https));
    let certificate = std::fs::read(application.directory.path().join("chain.pem")).expect("a certificate");
    Proxy::with(Setup { keys, ..Setup::default() }, &[("root.pem", &certificate)])
}

#[test]
fn certificate_is_verified_by_roots_and_name() {
    for (keys, expected) in [
        ("tls_roots = \"root.pem\"\nhost = \"example.com\"", None),
        ("tls_roots = \"root.pem\"\ntls_name = \"example.com\"", None),
        ("tls_verify = false", None),
        ("tls_roots = \"root.pem\"", Some("has a certificate for another name")),
        ("tls_roots = \"root.pem\"\ntls_name = \"a.example\"", Some("has a certificate for another name")),
        ("tls_name = \"example.com\"", Some("has a certificate that is not trusted")),
        // A certificate of the proxy itself, for the same name.
        ("tls_roots = \"chain.pem\"\ntls_name = \"example.com\"", Some("has a certificate that is not trusted")),
        ("tls_verify = false\nprotocol = \"h2\"", None),
    ] {
        let (application, proxy) = behind_tls(keys);
        let answer = proxy.ask(Front::Http1, "/static.txt", &[]);
        match expected {
            None => {
                assert_eq!((answer.status, answer.content.as_str()), (200, "static\n"), "{keys}: {answer:?}");
                for front in [Front::Https1, Front::Https2] {
                    assert_eq!(proxy.ask(front, "/static.txt", &[]).content, "static\n", "{keys}");
                }
            }
            Some(expected) => {
                assert_eq!((answer.status, answer.content), (502, format!("The application {expected}.\n")), "{keys}");
                proxy.server.wait_for_error(&format!("backend {} {expected}", application.https));
            }
        }
    }
}

#[test]
fn checks_speak_the_protocol_of_the_application() {
    for protocol in ["http/1.1", "h2"] {
        let keys = format!(
            "tls_roots = \"root.pem\"\nhost = \"example.com\"\nprotocol = \"{protocol}\"\ncheck = \"/missing\"\n\
             check_interval = \"100ms\""
        );
        let (_application, proxy) = behind_tls(&keys);
        proxy.server.wait_for_error("answers 404 to the check");
        // It is the only server, which is tried nevertheless.
        assert_eq!(proxy.ask(Front::Http2, "/static.txt", &[]).content, "static\n", "{protocol}");
    }
}

#[test]
fn server_without_tls_is_named_and_a_replaced_file_of_roots_is_read_again() {
    let application = Proxy::new("");
    let keys = route("/", &format!("proxy = \"https://{}\"\ntls_verify = false", application.http()));
    let proxy = Proxy::new(&keys);
    let answer = proxy.ask(Front::Http1, "/", &[]);
    assert!(answer.status == 502 && answer.content.ends_with(" in the TLS handshake.\n"), "{answer:?}");
    let ended = run(&["check", "--config", &proxy.directory.argument("sanderling.toml")]);
    assert!(ended.errors.contains("the route `/` accepts every certificate, so that"), "{ended}");

    let (application, proxy) = behind_tls("tls_roots = \"roots.pem\"\nhost = \"example.com\"");
    proxy.server.wait_for_error("roots.pem");
    assert_eq!(proxy.ask(Front::Http1, "/static.txt", &[]).status, 502);
    let certificate = std::fs::read(application.directory.path().join("chain.pem")).expect("a certificate");
    proxy.directory.replace("roots.pem", &certificate);
    wait_until("the roots are read", || proxy.ask(Front::Http1, "/static.txt", &[]).status == 200);
}
