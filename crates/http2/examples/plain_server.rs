//! A server for HTTP/2 over TCP with prior knowledge, for tests with other programs such as h2spec:
//! `plain_server [ADDRESS]`. Each path has the same file of 1 KiB, and `/large` one of 1 MiB.

use sanderling_http::{
    Body, FileMetadata, HttpDate, Negotiation, Parsed, Representation, Response, parse_request, respond,
};
use sanderling_http2::{Content, DATA_BYTES_MAX, Limits, Received, Request, Scratch, Session};
use std::io::{Read, Result, Write};
use std::net::{TcpListener, TcpStream};

const CONTENT: &[u8] = &[b'x'; 1024 * 1024];
const OUTPUT_BYTES_USUAL: usize = 96 * 1024;

fn main() -> Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".into());
    let listener = TcpListener::bind(address)?;
    println!("{}", listener.local_addr()?);
    for stream in listener.incoming() {
        let stream = stream?;
        // The client is gone, or has ended the connection.
        std::thread::spawn(move || drop(Server::new().serve(&stream)));
    }
    Ok(())
}

struct Server {
    limits: Limits,
    session: Session<usize>,
    scratch: Scratch,
    head: Vec<u8>,
    output: Vec<u8>,
    small: Representation,
    large: Representation,
}

impl Server {
    fn new() -> Server {
        let representation = |length_bytes| {
            let time = sanderling_http::FileTime::default();
            let metadata = FileMetadata { length_bytes, modified: time, changed: time, device: 1, inode: length_bytes };
            Representation::new(&metadata, None, "text/plain", Negotiation::None, b"", 0)
        };
        let limits = Limits { requests_max: u64::MAX, ..Limits::default() };
        Server {
            session: Session::new(&limits),
            limits,
            scratch: Scratch::default(),
            head: Vec::new(),
            output: Vec::new(),
            small: representation(1024),
            large: representation(CONTENT.len() as u64),
        }
    }

    fn serve(&mut self, mut stream: &TcpStream) -> Result<()> {
        stream.set_nodelay(true)?;
        let mut input = vec![0; 64 * 1024];
        let mut filled = 0;
        loop {
            let count = stream.read(&mut input[filled..])?;
            if count == 0 {
                return Ok(());
            }
            filled += count;
            let mut consumed = 0;
            loop {
                let (taken, received) =
                    self.session.receive(&input[consumed..filled], &self.limits, &mut self.scratch, &mut self.output);
                consumed += taken;
                match received {
                    Received::Request(request) => self.answer(request),
                    Received::Partial | Received::Closed => break,
                }
                if self.output.len() >= OUTPUT_BYTES_USUAL {
                    stream.write_all(&self.output)?;
                    self.output.clear();
                }
            }
            input.copy_within(consumed..filled, 0);
            filled -= consumed;
            while let Some(mut frame) = self.session.next_data(DATA_BYTES_MAX, &self.limits, &mut self.output) {
                let (offset, room) = frame.parts();
                room.copy_from_slice(&CONTENT[*offset..*offset + room.len()]);
                *offset += room.len();
                let length_bytes = room.len();
                frame.finish(length_bytes);
                if self.output.len() >= OUTPUT_BYTES_USUAL {
                    stream.write_all(&self.output)?;
                    self.output.clear();
                }
            }
            stream.write_all(&self.output)?;
            self.output.clear();
            if self.session.is_finished() {
                return Ok(());
            }
        }
    }

    fn answer(&mut self, request: Request) {
        let parsed = match request.error() {
            Some(error) => Err(error),
            None => parse_request(&self.scratch.head, 0, &self.limits.request),
        };
        let response = match &parsed {
            Ok(Parsed::Complete { request, .. }) => {
                let is_large = request.path() == Some(b"/large");
                respond(request, Ok(if is_large { &self.large } else { &self.small }), 0)
            }
            Ok(Parsed::Partial) => unreachable!("the head is complete"),
            Err(error) => Response::error(error.status()),
        };
        self.head.clear();
        response.write_head(&HttpDate::from_unix_s(0), &mut self.head);
        let content = match response.body() {
            Body::Empty | Body::Multipart(_) | Body::DnsMessage => Content::Empty,
            Body::StatusPage(page) if self.session.has_room_for(&request, page.len() as u64) => Content::Bytes(page),
            Body::StatusPage(page) => Content::Later { body: 0, length_bytes: page.len() as u64 },
            Body::File { start_bytes, length_bytes } if self.session.has_room_for(&request, length_bytes) => {
                Content::Bytes(&CONTENT[start_bytes as usize..(start_bytes + length_bytes) as usize])
            }
            Body::File { start_bytes, length_bytes } => Content::Later { body: start_bytes as usize, length_bytes },
        };
        self.session.answer(request, &self.head, content, &self.limits, &mut self.output);
    }
}
