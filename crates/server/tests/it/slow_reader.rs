//! A file that is changed in place while a slow client receives it is never completed as a mixture.

use crate::support::{serve, snapshot, wait_until_readable};
use sanderling_os::directory::Directory;
use sanderling_os::tcp::Listener;
use sanderling_server::{Options, Role, Root, SocketSet};
use sanderling_testkit::http::get;
use sanderling_testkit::{RawConnection, TestDirectory};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

const BYTES: usize = 2_500_000;
const CLIENT_COUNT: usize = 20;

#[test]
fn a_response_that_waits_in_the_socket_is_cut_off_when_its_file_is_changed_in_place() {
    let directory = TestDirectory::with(&[("file", &[b'a'; BYTES])]);
    let path = directory.path().join("file");
    wait_until_readable(&path);
    let listener = Listener::bind("127.0.0.1:0".parse().expect("an address")).expect("bound");
    listener.set_unsent_limit();
    let address = listener.local_address().expect("bound");
    let sockets = SocketSet { streams: vec![(Role::HTTP, Arc::new(listener))], datagrams: Vec::new() };
    let root = Root::Directory(Arc::new(Directory::open(directory.path()).expect("opened")));
    let mut options = Options::default();
    // The file is sent without a copy.
    options.open_files.sendfile_after = Duration::ZERO;
    let received = serve(snapshot(root), options, &[sockets], 1, |_| {
        let mut clients = [(); CLIENT_COUNT].map(|()| RawConnection::open(address));
        for client in &mut clients {
            client.send(get("/file").as_bytes());
            // The worker sends until the socket takes no more, and then answers the next client.
            assert!(!client.read_piece().is_empty());
        }
        let file = File::options().write(true).open(&path).expect("opened");
        file.write_all_at(&[b'b'; BYTES], 0).expect("written");
        clients.map(|mut client| client.read_to_close().len())
    });
    assert!(received.iter().all(|&bytes| bytes < BYTES), "{received:?}");
}
