//! gRPC: its library for Python as the application and as the client.

use super::{Application, Front, GRPC_APPLICATION_PY, GRPC_CLIENT_PY, Proxy, route};
use sanderling_testkit::{Ended, run_program};

const SEEN: &str = "unary hello | from the client | last\nNOT_FOUND nothing at 100% of a\nto client 40 2000110\n\
    from client 50 2000000\nboth echo 0\nboth echo 1\nboth echo 2\nrest []\ncalls 150\n";

/// The application, by TLS with these files of the chain, the key and so on.
fn application(files: &[String]) -> Application {
    let found = run_program("python3", "python3", &["-c", "import grpc"]);
    assert_eq!(found.code(), Some(0), "{found}; `cargo xtask setup` installs it (PyPI package grpcio)");
    Application::start_with("python3", "python3", GRPC_APPLICATION_PY, files)
}

/// Calls the application through the server.
fn call(proxy: &Proxy, front: Front, is_down: bool) -> Ended {
    let mut arguments = vec![GRPC_CLIENT_PY.to_owned()];
    arguments.extend(is_down.then(|| "down".to_owned()));
    match front {
        Front::Http1 | Front::Http2 => arguments.push(proxy.http().to_string()),
        Front::Https1 | Front::Https2 => {
            arguments.extend([proxy.https.to_string(), proxy.directory.argument("chain.pem")]);
        }
    }
    run_program("python3", "python3", &arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

fn h2_route(url: &str, keys: &str) -> String {
    route("/", &format!("proxy = \"{url}\"\nprotocol = \"h2\"\n{keys}"))
}

#[test]
fn each_kind_of_method_works_and_an_application_that_is_down_is_unavailable() {
    let mut application = application(&[]);
    let proxy = Proxy::new(&h2_route(&application.url(), ""));
    for front in [Front::Http2, Front::Https2] {
        let seen = call(&proxy, front, false);
        assert_eq!((seen.text().as_str(), seen.code()), (SEEN, Some(0)), "{front:?} {seen}");
    }
    application.kill();
    let seen = call(&proxy, Front::Http2, true).text();
    let expected = "UNAVAILABLE The application refuses connections.\n";
    assert_eq!(seen, expected);
}

#[test]
fn application_behind_tls_is_called_with_the_certificate_that_it_asks_for() {
    let proxy = Proxy::new("");
    let file = |name: &str| proxy.directory.argument(name);
    let mut application = application(&[file("chain.pem"), file("key.pem"), file("chain.pem")]);
    let keys = "tls_roots = \"chain.pem\"\ntls_name = \"example.com\"";
    let url = application.url().replace("http", "https");
    proxy.reload(&h2_route(&url, keys));
    let refused = call(&proxy, Front::Https2, true).text();
    assert!(refused.starts_with("UNAVAILABLE The application "), "{refused}");
    proxy.reload(&h2_route(&url, &format!("{keys}\ntls_certificate = \"chain.pem\"\ntls_key = \"key.pem\"")));
    let seen = call(&proxy, Front::Https2, false);
    assert_eq!((seen.text().as_str(), seen.code()), (SEEN, Some(0)), "{seen}");
    application.kill();
}
