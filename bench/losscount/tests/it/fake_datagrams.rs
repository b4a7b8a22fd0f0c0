//! A script turned into a UDP server: the datagrams it sends upon each query.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Runs until it is dropped.
pub(crate) struct FakeDatagrams {
    pub(crate) address: SocketAddr,
    is_over: Arc<AtomicBool>,
    serving: Option<JoinHandle<()>>,
}

/// Datagrams, each with the client that it goes to.
pub(crate) type Sends = Vec<(SocketAddr, Vec<u8>)>;

impl FakeDatagrams {
    /// The script is given the number of the query, from 0, who sent it, and the query.
    pub(crate) fn start(script: impl FnMut(u64, SocketAddr, &[u8]) -> Sends + Send + 'static) -> FakeDatagrams {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a free port");
        FakeDatagrams::start_on(socket, script)
    }

    fn start_on(
        socket: UdpSocket,
        mut script: impl FnMut(u64, SocketAddr, &[u8]) -> Sends + Send + 'static,
    ) -> FakeDatagrams {
        let address = socket.local_addr().expect("the socket is bound");
        let is_over = Arc::new(AtomicBool::new(false));
        let serving = std::thread::spawn({
            let is_over = Arc::clone(&is_over);
            move || {
                let mut buffer = [0; 1500];
                for number in 0.. {
                    let (length_bytes, client) =
                        socket.recv_from(&mut buffer).expect("an unconnected socket has no errors");
                    if is_over.load(Ordering::SeqCst) {
                        return;
                    }
                    for (to, datagram) in script(number, client, &buffer[..length_bytes]) {
                        socket.send_to(&datagram, to).expect("loopback takes it");
                    }
                }
            }
        });
        FakeDatagrams { address, is_over, serving: Some(serving) }
    }
}

impl Drop for FakeDatagrams {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        let waking = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a free port");
        waking.send_to(&[0], self.address).expect("loopback takes it");
        if let Some(serving) = self.serving.take() {
            serving.join().expect("the script does not panic");
        }
    }
}

/// A port whose datagrams come back, for as long as the socket lives: it receives from one peer alone, which never sends.
pub(crate) fn refusing_port() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a free port");
    let address = socket.local_addr().expect("the socket is bound");
    socket.connect(address).expect("it may be its own peer");
    (socket, address)
}
