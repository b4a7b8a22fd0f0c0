//! A server process shuts down the listeners, which all processes share, and changes their options.

use super::{BOTH, CONNECTION, may_play, serves, small_directory};
use sanderling_os::socket::{SocketType, socket_type};
use sanderling_os::tcp::Listener;
use sanderling_os::udp::Socket;
use sanderling_testkit::{TestServer, descriptor_of, inherited_by, send_signal, wait_until};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, OwnedFd};

/// Copies of a server process's bound sockets.
fn sockets_of(pid: u32) -> Vec<OwnedFd> {
    let inherited = inherited_by(pid).expect("it runs");
    let is_bound = |(_, name): &&(i32, String)| matches!(name.as_str(), "http" | "dns");
    inherited.iter().filter(is_bound).map(|(number, _)| descriptor_of(pid, *number).expect("taken")).collect()
}

/// Shuts a socket down. Of one that is not connected, the kernel says so, and does it all the same.
fn shut_down(socket: &OwnedFd, how: Shutdown) {
    let _ = TcpStream::from(socket.as_fd().try_clone_to_owned().expect("a copy")).shutdown(how);
}

#[test]
fn listeners_that_were_shut_down_are_bound_again() {
    if !may_play() {
        return;
    }
    let directory = small_directory();
    let server = TestServer::start_command(directory.serve_command(), BOTH);
    let (http, dns) = (server.http(), server.dns());
    wait_until("the files are served", || serves(http, dns));
    // By a process that goes on: it notices that it accepts nothing any more, and the next one gets other sockets.
    let pid = server.server_process_id();
    let sockets = sockets_of(pid);
    assert!(sockets.len() >= 3, "{:?}", inherited_by(pid));
    for socket in &sockets {
        if Listener::from(socket.as_fd().try_clone_to_owned().expect("a copy")).is_listening() {
            shut_down(socket, Shutdown::Both);
        }
    }
    wait_until("the files are served by another process", || serves(http, dns) && server.server_process_id() != pid);
    server.wait_for_error("another process has shut down a listener");
    server.wait_for_error(&format!("HTTP {http} had been shut down by a server process; it is bound again"));
    server.wait_for_error(&format!("DNS {dns} had been shut down by a server process; it is bound again"));
    // By one that ends at once, with the sockets for datagrams, each in another way.
    for how in [Shutdown::Read, Shutdown::Write] {
        let pid = server.server_process_id();
        let sockets = sockets_of(pid);
        send_signal("STOP", &pid.to_string());
        sockets.iter().for_each(|socket| shut_down(socket, how));
        let is_of_datagrams = |socket: &&OwnedFd| socket_type(socket).is_ok_and(|kind| kind == SocketType::Datagram);
        for socket in sockets.iter().filter(is_of_datagrams) {
            let copy = Socket::from_fd(socket.as_fd().try_clone_to_owned().expect("a copy")).expect("a socket");
            assert!(copy.is_shut_down(), "{how:?}");
        }
        drop(sockets);
        send_signal("KILL", &pid.to_string());
        wait_until("the files are served by the next process", || serves(http, dns));
    }
    // A reload and an upgrade have nothing to do with it.
    assert_eq!(directory.control("reload").code(), Some(0));
    assert_eq!(directory.control("upgrade").code(), Some(0), "{}", server.errors());
    wait_until("the files are served after an upgrade", || serves(http, dns));
    assert!(descriptor_of(server.server_process_id(), CONNECTION).is_ok());
    assert_eq!(server.stop().code(), Some(0));
}
