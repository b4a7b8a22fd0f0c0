//! Authorities that behave as no test authority does: refuse some names, ask for a pause of a day, and deactivate an
//! account. The test runs such an authority in this process, and controls it.

use super::Setup;
use data_encoding::BASE64URL_NOPAD;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use sanderling_testkit::{curl, run_program, wait_until};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

/// The instructions to the authority, and its actions.
#[derive(Default)]
struct Script {
    /// Names that it refuses in an order, and whether it tells which ones.
    refused: Vec<&'static str>,
    is_silent_about_names: bool,
    /// Names that it does not find.
    not_found: Vec<&'static str>,
    /// Looks at an order that is processing, each answered with the wish for a pause of a day.
    processing_looks: usize,
    /// The first account is no longer valid.
    is_deactivated: bool,
    account_count: usize,
    /// The orders' names.
    orders: Vec<Vec<String>>,
    /// Names of the last order that are validated.
    validated: Vec<String>,
    is_issued: bool,
}

/// An authority that does what its script says.
struct Authority {
    script: Arc<Mutex<Script>>,
    address: SocketAddr,
    thread: Option<thread::JoinHandle<()>>,
}

impl Authority {
    /// This authority replaces the authority of the setup.
    fn start(setup: &Setup, script: Script) -> Authority {
        let listener = setup.listen_as_authority();
        let address = listener.local_addr().unwrap();
        let directory = setup.directory.path().to_owned();
        let arguments = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=Issuer -addext \
                         basicConstraints=critical,CA:TRUE -keyout issuer.key -out issuer.pem";
        openssl(&directory, arguments);
        let chain = vec![CertificateDer::from_pem_file(directory.join("pebble.pem")).unwrap()];
        let key = PrivateKeyDer::from_pem_file(directory.join("pebble.key")).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let tls = Arc::new(tls.with_no_client_auth().with_single_cert(chain, key).unwrap());
        let script = Arc::new(Mutex::new(script));
        let shared = Arc::clone(&script);
        let url = format!("https://{address}");
        let thread = thread::spawn(move || serve(&listener, &tls, &url, &directory, &shared));
        Authority { script, address, thread: Some(thread) }
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap()
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        // A connection without a request stops the authority.
        drop(TcpStream::connect(self.address));
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

fn openssl(directory: &Path, arguments: &str) {
    let command = format!("cd {} && openssl {arguments}", directory.display());
    let ended = run_program("sh", "openssl", &["-c", &command]);
    assert!(ended.status.success(), "{ended}");
}

fn serve(listener: &TcpListener, tls: &Arc<ServerConfig>, url: &str, directory: &Path, script: &Mutex<Script>) {
    while let Ok((stream, _)) = listener.accept() {
        let mut stream = StreamOwned::new(ServerConnection::new(Arc::clone(tls)).unwrap(), stream);
        let Some((method, path, body)) = read_request(&mut stream) else { return };
        let answer = answer(&method, &path, &body, url, directory, &mut script.lock().unwrap());
        let Answer { status, fields, body } = answer;
        let head = format!(
            "HTTP/1.1 {status} Status\r\nReplay-Nonce: nonce\r\nConnection: close\r\nContent-Length: {}\r\n{fields}\r\n",
            body.len()
        );
        let body = if method == "HEAD" { "" } else { &body };
        let _ = stream.write_all(format!("{head}{body}").as_bytes());
        stream.conn.send_close_notify();
        let _ = stream.flush();
    }
}

/// The method, the path and the body of a request; `None` if there is none.
fn read_request(stream: &mut impl Read) -> Option<(String, String, Vec<u8>)> {
    let (mut received, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let end = received.windows(4).position(|window| window == b"\r\n\r\n");
        if let Some(end) = end {
            let head = String::from_utf8_lossy(&received[..end]).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
            let length: usize = length.trim().parse().unwrap();
            if received.len() >= end + 4 + length {
                let first = String::from_utf8_lossy(&received[..end]).lines().next()?.to_owned();
                let mut words = first.split(' ');
                let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
                return Some((method, path, received[end + 4..end + 4 + length].to_vec()));
            }
        }
        match stream.read(&mut piece).ok()? {
            0 => return None,
            length => received.extend_from_slice(&piece[..length]),
        }
    }
}

struct Answer {
    status: u16,
    fields: String,
    body: String,
}

impl Answer {
    fn json(status: u16, body: &Value) -> Answer {
        Answer { status, fields: String::new(), body: body.to_string() }
    }

    fn with_field(mut self, field: &str) -> Answer {
        self.fields += field;
        self.fields += "\r\n";
        self
    }

    fn error(status: u16, name: &str, detail: &str) -> Answer {
        Answer::json(status, &json!({ "type": format!("urn:ietf:params:acme:error:{name}"), "detail": detail }))
    }
}

fn decode(text: &Value) -> Vec<u8> {
    BASE64URL_NOPAD.decode(text.as_str().unwrap_or_default().as_bytes()).unwrap()
}

fn answer(method: &str, path: &str, body: &[u8], url: &str, directory: &Path, script: &mut Script) -> Answer {
    if method != "POST" {
        let urls = ["newNonce", "newAccount", "newOrder", "revokeCert", "keyChange"];
        return Answer::json(
            200,
            &urls.into_iter().map(|name| (name.to_owned(), json!(format!("{url}/{name}")))).collect(),
        );
    }
    let jws: Value = serde_json::from_slice(body).unwrap();
    let protected: Value = serde_json::from_slice(&decode(&jws["protected"])).unwrap();
    let payload: Value = serde_json::from_slice(&decode(&jws["payload"])).unwrap_or_default();
    if path == "/newAccount" {
        script.account_count += 1;
        let location = format!("Location: {url}/account/{}", script.account_count);
        return Answer::json(201, &json!({ "status": "valid" })).with_field(&location);
    }
    if script.is_deactivated && protected["kid"].as_str().is_some_and(|account| account.ends_with("/account/1")) {
        return Answer::error(401, "unauthorized", "The account has been deactivated");
    }
    let name = path.rsplit('/').next().unwrap_or_default().to_owned();
    match path.split('/').nth(1).unwrap_or_default() {
        "account" => Answer::json(200, &json!({ "status": "valid" })),
        "newOrder" => new_order(&payload, url, script),
        "authorization" => Answer::json(200, &authorization(&name, url, script)),
        "challenge" => {
            script.validated.push(name.clone());
            Answer::json(200, &authorization(&name, url, script)["challenges"][0])
        }
        "finalize" => {
            issue(&decode(&payload["csr"]), directory, script);
            Answer::json(200, &order(url, script))
        }
        "order" if script.is_issued && script.processing_looks > 0 => {
            let processing = Answer::json(200, &order(url, script)).with_field("Retry-After: 86400");
            script.processing_looks -= 1;
            processing
        }
        "order" => Answer::json(200, &order(url, script)),
        "certificate" => {
            let body = fs::read_to_string(directory.join("leaf.pem")).unwrap();
            Answer { status: 200, fields: String::new(), body }
        }
        _ => Answer::json(404, &json!({})),
    }
}

fn new_order(payload: &Value, url: &str, script: &mut Script) -> Answer {
    let names = payload["identifiers"].as_array().unwrap().iter().map(|it| it["value"].as_str().unwrap().to_owned());
    let names: Vec<String> = names.collect();
    script.orders.push(names.clone());
    if let Some(name) = script.refused.iter().find(|refused| names.iter().any(|name| name == *refused)) {
        let shown = if script.is_silent_about_names { "this" } else { name };
        return Answer::error(400, "rejectedIdentifier", &format!("Cannot issue for \"{shown}\": policy"));
    }
    (script.validated, script.is_issued) = (Vec::new(), false);
    Answer::json(201, &order(url, script)).with_field(&format!("Location: {url}/order"))
}

/// The last order.
fn order(url: &str, script: &Script) -> Value {
    let names = script.orders.last().unwrap();
    let is_invalid = script.validated.iter().any(|name| script.not_found.iter().any(|other| other == name));
    let status = match script.is_issued {
        true if script.processing_looks > 0 => "processing",
        true => "valid",
        false if is_invalid => "invalid",
        false if script.validated.len() >= names.len() => "ready",
        false => "pending",
    };
    let urls: Vec<String> = names.iter().map(|name| format!("{url}/authorization/{name}")).collect();
    let mut order = json!({ "status": status, "authorizations": urls, "finalize": format!("{url}/finalize") });
    if status == "valid" {
        order["certificate"] = json!(format!("{url}/certificate"));
    }
    order
}

fn authorization(name: &str, url: &str, script: &Script) -> Value {
    let status = match script.validated.iter().any(|validated| validated == name) {
        true if script.not_found.contains(&name) => "invalid",
        true => "valid",
        false => "pending",
    };
    let mut challenge =
        json!({ "type": "http-01", "url": format!("{url}/challenge/{name}"), "status": status, "token": "token" });
    if status == "invalid" {
        challenge["error"] = json!({ "type": "urn:ietf:params:acme:error:dns", "detail": "NXDOMAIN" });
    }
    json!({ "status": status, "identifier": { "type": "dns", "value": name }, "challenges": [challenge] })
}

fn issue(request: &[u8], directory: &Path, script: &mut Script) {
    let names: Vec<String> = script.orders.last().unwrap().iter().map(|name| format!("DNS:{name}")).collect();
    fs::write(directory.join("leaf.csr"), request).unwrap();
    let extensions = format!("subjectAltName={}\nauthorityKeyIdentifier=keyid:always\n", names.join(","));
    fs::write(directory.join("leaf.ext"), extensions).unwrap();
    let arguments = "x509 -req -inform der -in leaf.csr -CA issuer.pem -CAkey issuer.key -CAcreateserial -days 90 \
                     -extfile leaf.ext -out leaf.pem";
    openssl(directory, arguments);
    script.is_issued = true;
}

/// The configuration has another zone, so names are validated over HTTP.
fn setup(domain: &str) -> Setup {
    Setup::new(&format!("{domain}\n[domain.\"other.test\"]\nzone = \"other.zone\""))
}

impl Setup {
    fn shown(&self, command: &str) -> String {
        self.directory.control(command).text()
    }

    fn wait_for_shown(&self, expected: &str) {
        wait_until(expected, || self.shown("certificates").contains(expected));
    }
}

#[test]
fn order_in_processing_is_looked_at_again_soon_whatever_the_authority_asks_for() {
    let setup = setup("");
    let authority = Authority::start(&setup, Script { processing_looks: 1, ..Script::default() });
    let _server = setup.start_server();
    setup.wait_for_shown("  issued by Issuer for example.com, ");
    assert_eq!(authority.script().orders.len(), 1);
}

#[test]
fn name_that_is_refused_does_not_keep_the_others_from_https() {
    for (is_silent, is_not_found) in [(false, false), (true, false), (false, true)] {
        let setup = setup("aliases = [\"www.example.com\", \"gone.test\"]");
        let name = vec!["gone.test"];
        let (refused, not_found) = if is_not_found { (Vec::new(), name) } else { (name, Vec::new()) };
        let script = Script { refused, not_found, is_silent_about_names: is_silent, ..Script::default() };
        let authority = Authority::start(&setup, script);
        let mut server = setup.start_server();
        if is_silent {
            // The failing name is found within minutes; the domain itself does not wait for it.
            setup.wait_for_shown("  issued by Issuer for example.com, ");
            setup.wait_for_shown("  requested without gone.test, which is retried ");
            setup.wait_for_shown("  requested without www.example.com, which is retried ");
            continue;
        }
        setup.wait_for_shown("  issued by Issuer for example.com www.example.com, ");
        let shown = setup.shown("certificates");
        let cause = match is_not_found {
            true => "the authority cannot validate gone.test: NXDOMAIN; check that the name points to this server",
            false => {
                "the authority refuses gone.test: Cannot issue for \"gone.test\": policy; remove the name from `aliases` of the domain"
            }
        };
        assert!(
            shown.contains("requested without gone.test, which is retried in ") && shown.contains(cause),
            "{shown}"
        );
        let status = setup.shown("status");
        assert!(
            status.contains(&format!("  certificate example.com: it is requested without gone.test: {cause}")),
            "{status}"
        );
        let metrics = setup.directory.control_with("status", &["--metrics"]).text();
        let missing = "sanderling_certificate_name_missing{domain=\"example.com\",file=\"certificates/example.com/fullchain.pem\",name=\"gone.test\"} 1\n";
        wait_until("the certificate is in service", || {
            metrics.contains(missing) || setup.directory.control_with("status", &["--metrics"]).text().contains(missing)
        });
        assert_eq!(authority.script().orders.len(), 2);
        // Names with a certificate are redirected to HTTPS, and the other one is served without.
        let url = format!("http://127.0.0.1:{}/", setup.http_port);
        let status_of = |host: &str| {
            let field = format!("Host: {host}");
            curl(&["-sS", "-o", "/dev/null", "-w", "%{http_code}", "-H", &field, &url]).text()
        };
        wait_until("the redirect", || status_of("www.example.com") == "308");
        assert_eq!(status_of("gone.test"), "200");
        let https = server.encrypted("https");
        let ca = setup.directory.argument("issuer.pem");
        let page = |host: &str| {
            let connect_to = format!("::{https}");
            curl(&["-sS", "--cacert", &ca, "--connect-to", &connect_to, &format!("https://{host}/")])
        };
        assert_eq!(page("www.example.com").text(), "hi\n");
        assert!(!page("gone.test").status.success());
        // The operator has corrected it.
        (authority.script().refused, authority.script().not_found) = (Vec::new(), Vec::new());
        let renewed = setup.renew();
        assert!(renewed.code() == Some(0) && renewed.text() == "certificate example.com: issued\n", "{renewed}");
        wait_until("all names", || page("gone.test").text() == "hi\n");
        assert!(!setup.shown("certificates").contains("requested without"));
        // The name has lapsed: as long as the certificate in service is valid for it, no certificate without it
        // replaces that certificate.
        authority.script().not_found = vec!["gone.test"];
        let renewed = setup.renew();
        assert!(renewed.code() == Some(1) && renewed.errors.contains("cannot validate gone.test"), "{renewed}");
        assert_eq!(page("gone.test").text(), "hi\n");
    }
}

#[test]
fn account_that_was_deactivated_is_replaced() {
    let setup = setup("");
    let authority = Authority::start(&setup, Script::default());
    let server = setup.start_server();
    setup.wait_for_shown("  issued by Issuer for example.com, ");
    assert_eq!(setup.renew().code(), Some(0));
    assert_eq!(authority.script().account_count, 1);
    authority.script().is_deactivated = true;
    let renewed = setup.renew();
    assert!(renewed.code() == Some(0), "{renewed}");
    assert_eq!(authority.script().account_count, 2);
    server.wait_for_error(
        "can no longer be used: the authority refuses: The account has been deactivated; registering a new account",
    );
}
