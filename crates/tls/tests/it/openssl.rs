//! Sessions with the client of OpenSSL.

use crate::pair::server_tls;
use crate::pki::pki;
use sanderling_testkit::{TestDirectory, run_program};
use sanderling_tls::{ServerTls, Session, State, Version};
use std::io::Read;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;

/// Answers one line with itself and ends the session; the version, and whether it was resumed.
fn serve(mut stream: TcpStream, tls: &ServerTls) -> (Option<Version>, bool) {
    let mut session = Session::new(tls);
    let mut buffer = vec![0; 65_536];
    while session.state() != State::Failed {
        let received = stream.read(&mut buffer).unwrap();
        let length = session.decrypt_in_place(&mut buffer, received).unwrap_or(0);
        if length > 0 {
            session.write(&[b"answer to ", &buffer[..length]], 0);
            session.close();
        }
        while session.has_unsent() {
            session.send(&mut stream).unwrap();
        }
        if length > 0 || received == 0 {
            break;
        }
    }
    stream.shutdown(Shutdown::Write).unwrap();
    (session.version(), session.is_resumed())
}

#[test]
fn openssl_gets_an_answer_and_resumes_its_session() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let folder = TestDirectory::new();
    let (request, ticket) = (folder.write("request", b"a line\n"), folder.argument("ticket"));
    let request = request.to_str().unwrap();
    for (version, expected) in [("-tls1_2", Version::Tls12), ("-tls1_3", Version::Tls13)] {
        for resumes in [false, true] {
            let server = thread::spawn({
                let listener = listener.try_clone().unwrap();
                move || serve(listener.accept().unwrap().0, &server_tls())
            });
            let script = format!(
                "openssl s_client -connect {address} {version} -servername example.com -alpn h2 -CAfile {} \
                 -verify_return_error -verify_hostname www.example.com -ign_eof -{} {ticket} < {request}",
                pki().path("root.pem"),
                if resumes { "sess_in" } else { "sess_out" },
            );
            let ended = run_program("sh", "dash", &["-c", &script]);
            assert!(ended.status.success() && ended.text().contains("answer to a line"), "{ended}");
            let (served, is_resumed) = server.join().unwrap();
            assert_eq!((served, is_resumed), (Some(expected), resumes));
        }
    }
}
