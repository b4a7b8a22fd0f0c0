//! Answers HTTP or DNS by the unavoidable calls alone: what no server can be cheaper than.
//!
//! It is no server. It takes whatever comes for a request, and its answer was ready before; what a real server costs
//! beyond it is parsing, looking up and caring. `cargo xtask compare` divides by it.

mod http;
mod dns_stream;
mod stream;
mod dns;
mod calls;

use std::env;
use std::io::{self, Write};
use std::net::{TcpListener, UdpSocket};
use std::process::ExitCode;
use std::thread;

const USAGE: &str = "usage: floor http ADDR:PORT BODY_BYTES [STATUS] [close]
       floor dns ADDR:PORT

  http   answers each end of a request head (an empty line) by a ready-made response with content of BODY_BYTES;
         STATUS is 200 unless given; `close` ends the connection after one response
  dns    answers each datagram, and each message of a TCP connection, by itself with one address behind it

The address is printed once it answers; port 0 takes a free one.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let served = match words[..] {
        ["http", address, body_bytes, ref rest @ ..] => match http_options(body_bytes, rest) {
            Some(options) => serve_http(address, options),
            None => return usage(),
        },
        ["dns", address] => serve_dns(address),
        _ => return usage(),
    };
    match served {
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

fn http_options(body_bytes: &str, rest: &[&str]) -> Option<http::Options> {
    let mut options = http::Options { body_bytes: body_bytes.parse().ok()?, status: 200, closes: false };
    for word in rest {
        match *word {
            "close" => options.closes = true,
            status => options.status = status.parse().ok()?,
        }
    }
    Some(options)
}

fn serve_http(address: &str, options: http::Options) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    calls::defer_silent(&listener)?;
    let response = http::Response::new(&options)?;
    announce("http", &listener.local_addr()?.to_string())?;
    stream::serve(&listener, || http::Connection::new(&response))
}

/// UDP on the first thread, TCP on a second one, as the queries come over the one or the other.
fn serve_dns(address: &str) -> io::Result<()> {
    let socket = UdpSocket::bind(address)?;
    let listener = TcpListener::bind(socket.local_addr()?)?;
    announce("dns", &socket.local_addr()?.to_string())?;
    thread::scope(|scope| {
        scope.spawn(|| {
            if let Err(error) = stream::serve(&listener, dns_stream::Connection::new) {
                eprintln!("floor: TCP: {error}");
            }
        });
        dns::serve(&socket)
    })
}

fn announce(service: &str, address: &str) -> io::Result<()> {
    println!("{service} {address}");
    io::stdout().flush()
}
