//! Routes of a domain in front of real applications: Node, Python and PHP, with curl and raw connections as clients.

mod differential;
mod faults;
mod forward_auth;
mod names;
mod grpc;
mod node;
mod passed_responses;
mod php;
mod known;
mod python;
mod reloads;
mod rules;
mod servers;
mod tls;

use crate::https::issue_for;
use sanderling_testkit::{
    Ended, ListenerCounts, TestDirectory, TestServer, curl, free_address, send_signal, wait_until,
};
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;

const APPLICATION_JS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/backends/application.js");
const WEBSOCKET_JS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/backends/websocket.js");
const WEB_SOCKET_HTTP2_JS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/backends/web_socket_http2.js");
const AUTHENTICATOR_JS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/backends/authenticator.js");
const APPLICATION_PY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/backends/application.py");
const GRPC_APPLICATION_PY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/backends/grpc_application.py");
const GRPC_CLIENT_PY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/backends/grpc_client.py");

/// How a client speaks to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Front {
    Http1,
    Http2,
    Https1,
    Https2,
}

const FRONTS: [Front; 4] = [Front::Http1, Front::Http2, Front::Https1, Front::Https2];

/// An application in this process: `serve` has each connection, in a thread of its own.
fn accept_with(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = serve.clone();
            thread::spawn(move || serve(stream));
        }
    });
    address
}

/// An application that runs; it is killed when this is dropped.
struct Application {
    child: Child,
    address: SocketAddr,
}

impl Application {
    /// The application of Node.
    fn node() -> Application {
        Application::node_at(free_address())
    }

    fn node_at(address: SocketAddr) -> Application {
        Application::start("node", "nodejs", APPLICATION_JS, address)
    }

    /// That of Python.
    fn python() -> Application {
        Application::start("python3", "python3", APPLICATION_PY, free_address())
    }

    fn start(program: &str, package: &str, script: &str, address: SocketAddr) -> Application {
        Application::start_at(program, package, script, address, &[])
    }

    /// One that gets further arguments.
    fn start_with(program: &str, package: &str, script: &str, more: &[String]) -> Application {
        Application::start_at(program, package, script, free_address(), more)
    }

    fn start_at(program: &str, package: &str, script: &str, address: SocketAddr, more: &[String]) -> Application {
        let mut command = Command::new(program);
        command
            .arg(script)
            .arg(address.ip().to_string())
            .arg(address.port().to_string())
            .args(more)
            .stdin(Stdio::null());
        let child = command.spawn().unwrap_or_else(|error| {
            panic!("{program}: {error}; `cargo xtask setup` installs it (Debian package {package})")
        });
        let application = Application { child, address };
        wait_until("the application accepts connections", || TcpStream::connect(address).is_ok());
        application
    }

    fn signal(&self, name: &str) {
        assert!(send_signal(name, &self.child.id().to_string()));
    }

    /// Kills it, and starts it again.
    fn restart(&mut self) {
        self.kill();
        *self = Application::node_at(self.address);
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Its response to a request that does not come through the server.
    fn ask(&self, path: &str) -> String {
        curl(&[&format!("{}{path}", self.url())]).text()
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A server of a domain with routes, `example.com` over HTTP and HTTPS.
struct Proxy {
    server: TestServer,
    directory: TestDirectory,
    https: SocketAddr,
    setup: Setup,
}

/// What it serves, and how.
#[derive(Clone, Debug)]
struct Setup {
    worker_count: usize,
    /// Lines before the first section.
    top: &'static str,
    /// Lines of `[http]`.
    http: String,
    /// How long requests that are not answered delay the end of the server.
    drain_timeout: &'static str,
    /// Sections before those of the domain.
    sections: String,
    /// Keys of the domain, and perhaps further sections.
    keys: String,
    /// Listeners for DNS.
    dns: usize,
}

impl Default for Setup {
    fn default() -> Setup {
        let [http, sections, keys] = Default::default();
        Setup { worker_count: 2, top: "", http, drain_timeout: "1s", sections, keys, dns: 0 }
    }
}

impl Setup {
    fn configuration(&self) -> String {
        let Setup { worker_count, top, http, drain_timeout, sections, keys, .. } = self;
        format!(
            "workers = {worker_count}\n{top}\n[limits]\ndrain_timeout = \"{drain_timeout}\"\n[http]\nlisten = [\"127.0.0.1:0\"]\nhttp2 = true\n{http}\n\
             [https]\nlisten = [\"127.0.0.1:0\"]\n{sections}\n[domain.\"example.com\"]\nsite = \"public\"\n\
             https_redirect = false\ncertificate = {{ chain = \"chain.pem\", key = \"key.pem\" }}\n{keys}"
        )
    }
}

impl Proxy {
    /// With these keys of the domain.
    fn new(keys: &str) -> Proxy {
        Proxy::with(Setup { keys: keys.to_owned(), ..Setup::default() }, &[])
    }

    /// With these files.
    fn with(setup: Setup, files: &[(&str, &[u8])]) -> Proxy {
        let directory = TestDirectory::with(files);
        directory.write("public/static.txt", b"static\n");
        directory.write("sanderling.toml", setup.configuration().as_bytes());
        issue_for("example.com", &directory, "chain.pem", "key.pem", "example.com");
        let counts = ListenerCounts { http: 1, dns: setup.dns };
        let mut server = TestServer::start_command(directory.serve_command(), counts);
        let https = server.encrypted("https");
        Proxy { server, directory, https, setup }
    }

    /// Loads the configuration with other keys of the domain.
    #[track_caller]
    fn reload(&self, keys: &str) {
        let setup = Setup { keys: keys.to_owned(), ..self.setup.clone() };
        self.directory.replace("sanderling.toml", setup.configuration().as_bytes());
        let ended = self.directory.control("reload");
        assert_eq!(ended.code(), Some(0), "{ended}");
    }

    fn http(&self) -> SocketAddr {
        self.server.http()
    }

    /// The arguments of curl for a request.
    fn arguments(&self, front: Front, path: &str) -> Vec<String> {
        let (version, scheme, address) = match front {
            Front::Http1 => ("--http1.1", "http", self.http()),
            Front::Http2 => ("--http2-prior-knowledge", "http", self.http()),
            Front::Https1 => ("--http1.1", "https", self.https),
            Front::Https2 => ("--http2", "https", self.https),
        };
        let (certificate, to) = (self.directory.argument("chain.pem"), format!("::{address}"));
        let url = format!("{scheme}://example.com{path}");
        ["-sS", "--path-as-is", version, "--cacert", &certificate, "--connect-to", &to, &url]
            .map(str::to_owned)
            .to_vec()
    }

    /// Runs curl.
    #[track_caller]
    fn curl(&self, front: Front, path: &str, more: &[&str]) -> Ended {
        let arguments = self.arguments(front, path);
        let arguments: Vec<&str> = more.iter().copied().chain(arguments.iter().map(String::as_str)).collect();
        curl(&arguments)
    }

    /// The response of a request that succeeds.
    #[track_caller]
    fn ask(&self, front: Front, path: &str, more: &[&str]) -> Answer {
        let ended = self.curl(front, path, &[&["-i"], more].concat());
        assert!(ended.code() == Some(0), "{front:?} {path}: {ended}");
        Answer::of(&ended.output)
    }

    /// A curl that runs, to read its output line by line.
    fn stream(&self, front: Front, path: &str) -> Stream {
        self.stream_with(front, path, &[])
    }

    fn stream_with(&self, front: Front, path: &str, more: &[&str]) -> Stream {
        let mut command = Command::new("curl");
        command.args(["--disable", "--no-buffer"]).args(more).args(self.arguments(front, path));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("curl is installed");
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        Stream { child, lines }
    }
}

/// A running curl.
struct Stream {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Stream {
    /// The next line that is not empty.
    fn line(&mut self) -> String {
        let mut line = String::new();
        while line.trim().is_empty() && self.lines.read_line(&mut line).expect("text") > 0 {}
        line.trim().to_owned()
    }

    /// The rest of the output, and whether curl succeeds.
    fn end(mut self) -> (String, bool) {
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).expect("text");
        (rest, self.child.wait().expect("it ends").success())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A response that curl has printed.
#[derive(Debug)]
struct Answer {
    status: u16,
    /// Names in lower case.
    fields: Vec<(String, String)>,
    content: String,
}

impl Answer {
    fn of(output: &[u8]) -> Answer {
        let mut rest = String::from_utf8_lossy(output).into_owned();
        loop {
            let (head, content) = rest.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {rest:?}"));
            let mut lines = head.split("\r\n");
            let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).expect("a status");
            let fields = lines.filter_map(|line| line.split_once(": "));
            let fields = fields.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
            if status >= 200 {
                return Answer { status, fields, content: content.to_owned() };
            }
            rest = content.to_owned();
        }
    }

    /// The values of all lines of a field.
    fn all(&self, name: &str) -> Vec<&str> {
        self.fields.iter().filter(|(own, _)| own == name).map(|(_, value)| &**value).collect()
    }

    /// What the application says of a field of the request: `["value"]`, or nothing.
    #[track_caller]
    fn seen(&self, name: &str) -> String {
        let start = format!("\"{name}\":[");
        let Some((_, rest)) = self.content.split_once(&start) else { return String::new() };
        rest.split_once(']').expect("a list of values").0.to_owned()
    }
}

fn route(path: &str, keys: &str) -> String {
    format!("[domain.\"example.com\".route.\"{path}\"]\n{keys}\n")
}

/// All requests go to this application.
fn all_to(application: &Application) -> String {
    route("/", &format!("proxy = \"{}\"", application.url()))
}
