//! Clients of TLS: HTTP/1.1, and just enough of HTTP/2 to count the system calls of the server.

use rustls::client::{ClientConfig, ClientConnection};
use rustls::{RootCertStore, StreamOwned};
use sanderling_server::Tls;
use sanderling_tls::{Alpn, CertificateStore, ServerTls, TICKET_KEY_BYTES, TicketKeys, self_signed};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::SystemTime;

/// What the server begins sessions with, and a client that trusts it.
pub(crate) fn tls() -> (Arc<Tls>, ClientConfig) {
    let now_unix_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs();
    let certificate = self_signed::localhost(now_unix_s).expect("random numbers");
    let (mut store, mut roots) = (CertificateStore::new(), RootCertStore::empty());
    store.add("localhost", &certificate);
    roots.add(certificate.chain()[0].clone()).expect("a certificate");
    let (store, tickets) = (Arc::new(store), Arc::new(TicketKeys::new(&[1; TICKET_KEY_BYTES], None)));
    let of = |alpn: &[Alpn]| ServerTls::new(Arc::clone(&store), Arc::clone(&tickets), alpn);
    let tls = Tls { https: of(&[Alpn::H2, Alpn::Http1]), dot: of(&[Alpn::Dot]) };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let client = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let client = client.expect("suites for both").with_root_certificates(roots).with_no_client_auth();
    (Arc::new(tls), client)
}

type TlsStream = StreamOwned<ClientConnection, TcpStream>;

fn connect(server: SocketAddr, config: &ClientConfig, alpn: Alpn) -> TlsStream {
    let mut config = config.clone();
    config.alpn_protocols = vec![alpn.id().to_vec()];
    let name = "localhost".try_into().expect("a name");
    let connection = ClientConnection::new(Arc::new(config), name).expect("a configuration");
    StreamOwned::new(connection, TcpStream::connect(server).expect("connected"))
}

/// A client of HTTP/1.1 over TLS.
pub(crate) struct Http1Client(TlsStream);

impl Http1Client {
    pub(crate) fn connect(server: SocketAddr, config: &ClientConfig) -> Http1Client {
        Http1Client(connect(server, config, Alpn::Http1))
    }

    /// Requests a file, and reads content of this length.
    pub(crate) fn get(&mut self, path: &str, content_bytes: usize) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: example\r\n\r\n");
        self.0.write_all(request.as_bytes()).expect("sent");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).expect("received");
            head.push(byte[0]);
        }
        assert!(head.starts_with(b"HTTP/1.1 200 "), "{}", head.escape_ascii());
        self.0.read_exact(&mut vec![0; content_bytes]).expect("received");
    }
}

/// A client of HTTP/2 over TLS.
pub(crate) struct Http2Client {
    stream: TlsStream,
    next_id: u32,
}

impl Http2Client {
    pub(crate) fn connect(server: SocketAddr, config: &ClientConfig) -> Http2Client {
        let mut stream = connect(server, config, Alpn::H2);
        // The preface, empty settings, and the acknowledgement of the server's.
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\0\x04\x01\0\0\0\0").expect("sent");
        Http2Client { stream, next_id: 1 }
    }

    /// Requests a file `count` times at once, and reads the responses.
    pub(crate) fn get(&mut self, path: &str, count: usize) {
        let path_bytes = u8::try_from(path.len()).expect("a short path");
        // GET, https, a literal `:path` and a literal `:authority` (RFC 7541 §6.2.2).
        let block = [&[0x82, 0x87, 0x04, path_bytes], path.as_bytes(), b"\x01\x07example"].concat();
        let mut frames = Vec::new();
        for _ in 0..count {
            frames.extend([0, 0, u8::try_from(block.len()).expect("a short block"), 1, 5]);
            frames.extend(self.next_id.to_be_bytes());
            frames.extend(&block);
            self.next_id += 2;
        }
        self.stream.write_all(&frames).expect("sent");
        let mut ended_count = 0;
        while ended_count < count {
            let mut header = [0; 9];
            self.stream.read_exact(&mut header).expect("received");
            let [high, middle, low, kind, flags, ..] = header;
            let mut payload = vec![0; u32::from_be_bytes([0, high, middle, low]) as usize];
            self.stream.read_exact(&mut payload).expect("received");
            // SETTINGS, HEADERS with `:status: 200`, perhaps after a size of the table, and DATA, the last with
            // END_STREAM.
            let is_ok = payload.starts_with(b"\x88") || payload.starts_with(b"\x20\x88");
            assert!(kind == 4 || kind == 1 && is_ok || kind == 0, "{header:?} {}", payload.escape_ascii());
            ended_count += usize::from(kind == 0 && flags & 1 == 1);
        }
    }
}
