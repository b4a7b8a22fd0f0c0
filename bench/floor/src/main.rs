//! Responds over HTTP or DNS by the unavoidable system calls only: no server can cost less.
//!
//! This is no server. The program takes any input for a request, and prepares its response at startup. A real server
//! costs more for parsing and look-ups; `cargo xtask compare` shows how much.

mod http;
mod dns;
mod stream;

use std::env;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::process::ExitCode;
use std::thread;

const USAGE: &str = "usage: floor http ADDR:PORT BODY_BYTES [STATUS] [close]
       floor dns ADDR:PORT [REPLY_BYTES]

  http  sends a prepared response for each empty line; `close` closes the connection after one response
  dns   sends each datagram, and each message over TCP, back with one address appended; a datagram has
        REPLY_BYTES at least
";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["http", address, body_bytes, ref rest @ ..] => match body_bytes.parse() {
            Ok(body_bytes) => {
                let status = rest.iter().find_map(|word| word.parse().ok()).unwrap_or(200);
                serve_http(address, body_bytes, status, rest.contains(&"close"))
            }
            Err(_) => return usage(),
        },
        ["dns", address] => serve_dns(address, 0),
        ["dns", address, reply_bytes] => match reply_bytes.parse() {
            Ok(reply_bytes) if reply_bytes <= dns::DATAGRAM_BYTES_MAX => serve_dns(address, reply_bytes),
            _ => return usage(),
        },
        _ => return usage(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("floor: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprint!("{USAGE}");
    ExitCode::from(2)
}

fn serve_http(address: &str, body_bytes: usize, status: u16, closes: bool) -> io::Result<()> {
    let response = http::Response::new(body_bytes, status, closes)?;
    stream::serve(&TcpListener::bind(address)?, || http::Connection::new(&response))
}

fn serve_dns(address: &str, reply_bytes: usize) -> io::Result<()> {
    let socket = UdpSocket::bind(address)?;
    let listener = TcpListener::bind(address)?;
    thread::scope(|scope| {
        scope.spawn(|| stream::serve(&listener, dns::Connection::default));
        dns::serve(&socket, reply_bytes)
    })
}
