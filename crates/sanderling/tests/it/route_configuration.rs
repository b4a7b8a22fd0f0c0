//! Domains with routes: what `check` says about them, what is served elsewhere, and which reload needs a new process.

use sanderling_testkit::http::response_to;
use sanderling_testkit::{ListenerCounts, TestDirectory, TestServer, run, run_program};

const HTTP: ListenerCounts = ListenerCounts { http: 1, dns: 0 };
const CONFIG: &str = "workers = 1\n[http]\nlisten = [\"127.0.0.1:0\"]\n[domain.\"a.test\".route.\"/api/\"]\n\
    proxy = \"http://127.0.0.1:3000\"\n";

fn directory(config: &str) -> TestDirectory {
    TestDirectory::with(&[("sanderling.toml", config.as_bytes())])
}

#[test]
fn domain_with_routes_has_no_files_and_no_problem() {
    let directory = directory(CONFIG);
    let server = TestServer::start_command(directory.serve_command(), HTTP);
    assert_eq!(response_to(server.http(), "GET /elsewhere HTTP/1.1\r\nHost: a.test\r\n\r\n").status, 404);
    let status = directory.control("status");
    assert!(status.code() == Some(0) && status.text().contains("a.test from (no files)"), "{status}");
    server.stop();
}

#[test]
fn only_another_port_needs_a_new_process() {
    let directory = directory(CONFIG);
    let server = TestServer::start_command(directory.serve_command(), HTTP);
    let reload = |text: &str| {
        let before = server.server_process_id();
        directory.replace("sanderling.toml", text.as_bytes());
        let reload = directory.control("reload");
        assert_eq!(reload.code(), Some(0), "{text}: {reload}");
        (reload.text(), server.server_process_id() != before)
    };
    let slower = format!("{CONFIG}timeout = \"9s\"\n");
    assert!(!reload(&slower).1, "a time is changed in place");
    let of_socket = format!("{slower}[domain.\"a.test\".route.\"/b/\"]\nproxy = \"unix:/run/app.sock\"\n");
    assert!(!reload(&of_socket).1, "the supervisor connects to a UNIX socket");
    let (answer, is_new) = reload(&of_socket.replace(":3000", ":3001"));
    assert!(is_new && answer.contains("because `route` in [domain.\"NAME\"] has changed"), "{answer}");
    assert!(
        !reload(
            "workers = 1\n[http]\nlisten = [\"127.0.0.1:0\"]\n[domain.\"a.test\".route.\"/\"]\n\
        respond = { status = 204 }\n"
        )
        .1,
        "a port that is not used any more does no harm"
    );
    server.stop();
}

#[test]
fn condition_on_a_cookie_holds_over_http2() {
    let config = |conditions: &str| {
        format!(
            "workers = 1\n[http]\nlisten = [\"127.0.0.1:0\"]\nhttp2 = true\n[domain.\"*\".route]\n\
             \"/\" = [{{ respond = {{ status = 200, text = \"all\" }} }}{conditions}]\n"
        )
    };
    let directory = directory(&config(""));
    let server = TestServer::start_command(directory.serve_command(), HTTP);
    let get = |version: &str, cookies: &str| {
        let url = format!("http://{}/", server.http());
        run_program("curl", "curl", &["-s", version, "-b", cookies, &url]).text()
    };
    for (condition, cookie) in [("cookies = { beta = true }", "beta=1"), ("fields = { Cookie = \"a=b\" }", "a=b")] {
        directory.replace("sanderling.toml", config("").as_bytes());
        assert_eq!(directory.control("reload").code(), Some(0));
        assert_eq!(get("--http2-prior-knowledge", cookie), "all");
        let with = config(&format!(", {{ respond = {{ status = 200, text = \"some\" }}, {condition} }}"));
        directory.replace("sanderling.toml", with.as_bytes());
        assert_eq!(directory.control("reload").code(), Some(0));
        for version in ["--http1.1", "--http2-prior-knowledge"] {
            assert_eq!(get(version, cookie), "some", "{condition} {version}");
            assert_eq!(get(version, "other=1"), "all", "{condition} {version}");
        }
    }
    server.stop();
}

#[test]
fn check_reports_wrong_routes_and_warns_of_those_that_never_answer() {
    let check = |routes: &str| {
        let directory = directory(&format!("[domain.\"a.test\".route]\n{routes}"));
        run(&["check", "--config", &directory.argument("sanderling.toml")])
    };
    let wrong =
        check("\"/\" = { proxy = \"http://app:x\" }\n\"/b/\" = { files_first = true, respond = { status = 204 } }\n");
    for expected in
        ["sanderling.toml:2:17: `http://app:x` is not the address of an application", "`files_first` needs files"]
    {
        assert!(wrong.code() == Some(1) && wrong.errors.contains(expected), "{expected}: {wrong}");
    }
    let hidden = check("\"/a/\" = { respond = { status = 204 } }\n\"/a/*\" = { respond = { status = 404 } }\n");
    let expected = "sanderling.toml:3:1: warning: the route `/a/*` never answers: `/a/` at ";
    assert!(hidden.code() == Some(0) && hidden.errors.contains(expected), "{hidden}");
}
