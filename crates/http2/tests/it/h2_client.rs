//! The client of the crate `h2` as the other end: what it sends is understood, and what it receives is valid.

use crate::support::*;
use fastrand::Rng;
use h2::RecvStream;
use h2::client::ResponseFuture;
use http_types::Request;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The client's end of a connection in memory.
#[derive(Clone, Default)]
struct Pipe(Rc<RefCell<Bytes>>);

#[derive(Default)]
struct Bytes {
    to_server: Vec<u8>,
    to_client: VecDeque<u8>,
}

impl AsyncRead for Pipe {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let bytes = &mut self.0.borrow_mut().to_client;
        if bytes.is_empty() {
            return Poll::Pending;
        }
        let count = out.remaining().min(bytes.len());
        bytes.drain(..count).for_each(|byte| out.put_slice(&[byte]));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().to_server.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A request of the client.
enum Exchange {
    Sent(ResponseFuture),
    Receiving(RecvStream, usize),
    Done(usize),
}

impl Exchange {
    fn advance(self, task: &mut Context<'_>) -> Exchange {
        match self {
            Exchange::Sent(mut response) => match pin!(&mut response).poll(task) {
                Poll::Ready(response) => {
                    let response = response.expect("a valid response");
                    assert_eq!(response.status(), 200);
                    Exchange::Receiving(response.into_body(), 0).advance(task)
                }
                Poll::Pending => Exchange::Sent(response),
            },
            Exchange::Receiving(mut body, received) => match body.poll_data(task) {
                Poll::Ready(Some(content)) => {
                    let content = content.expect("valid content");
                    assert!(content.iter().all(|byte| *byte == b'x'));
                    body.flow_control().release_capacity(content.len()).expect("received before");
                    Exchange::Receiving(body, received + content.len()).advance(task)
                }
                Poll::Ready(None) => Exchange::Done(received),
                Poll::Pending => Exchange::Receiving(body, received),
            },
            done @ Exchange::Done(_) => done,
        }
    }
}

/// Sends `count` requests, as many at once as the server allows; each is answered by `content_bytes`.
fn check(count: usize, content_bytes: usize, window: u32, rng: &mut Rng) {
    let task = &mut Context::from_waker(Waker::noop());
    let pipe = Pipe::default();
    let mut builder = h2::client::Builder::new();
    // Before the settings of the server arrive, h2 would open any number of streams.
    builder.initial_max_send_streams(100);
    let handshake = builder.initial_window_size(window).handshake::<_, &[u8]>(pipe.clone());
    let Poll::Ready(Ok((mut client, connection))) = pin!(handshake).poll(task) else { panic!("the pipe never waits") };
    let mut connection = pin!(connection);
    let mut server = Server::new(content_bytes);
    let (mut exchanges, mut sent_count) = (vec![], 0);
    let mut expected = vec![];
    for _ in 0..100_000 {
        while sent_count < count && matches!(client.poll_ready(task), Poll::Ready(Ok(()))) {
            let has_content = rng.u8(..4) == 0;
            let path = format!("/{}/{}", rng.u8(..4), "x".repeat(rng.usize(..200)));
            let builder = Request::builder().uri(format!("http://a.example{path}"));
            let builder = builder.method(if has_content { "POST" } else { "GET" }).header("accept", "text/html");
            let builder = (0..rng.u8(..4)).fold(builder, |builder, _| {
                builder.header(format!("x-{}", rng.u8(..)), format!("value {}", rng.u64(..)))
            });
            let request = builder.body(()).expect("a valid request");
            let (response, mut stream) = client.send_request(request, !has_content).expect("sent");
            if has_content {
                stream.send_data(&[7; 1_000], true).expect("sent");
            }
            exchanges.push(Exchange::Sent(response));
            expected.push(format!("{} {path} HTTP/1.1", if has_content { "POST" } else { "GET" }));
            sent_count += 1;
        }
        if let Poll::Ready(end) = connection.as_mut().poll(task) {
            panic!("the client ends the connection: {end:?}");
        }
        // The transport may cut anywhere.
        let to_server = std::mem::take(&mut pipe.0.borrow_mut().to_server);
        let (first, second) = to_server.split_at(rng.usize(0..=to_server.len()));
        let to_client = [server.take_bytes(first), server.take_bytes(second)].concat();
        pipe.0.borrow_mut().to_client.extend(to_client);
        exchanges = exchanges.into_iter().map(|exchange| exchange.advance(task)).collect();
        if sent_count == count && exchanges.iter().all(|exchange| matches!(exchange, Exchange::Done(_))) {
            let mut lines: Vec<String> =
                server.heads.iter().map(|head| head.lines().next().unwrap_or_default().to_owned()).collect();
            lines.sort();
            expected.sort();
            assert_eq!(lines, expected);
            assert!(exchanges.iter().all(|it| matches!(it, Exchange::Done(received) if *received == content_bytes)));
            return;
        }
    }
    panic!("the exchange does not end");
}

#[test]
fn h2_gets_all_its_answers() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let rng = &mut Rng::with_seed(seed);
    for (count, content_bytes) in [(1, 0), (1_000, 10), (300, 5_000), (20, 500_000)] {
        for window in [65_535, 1_000, 1 << 20] {
            check(count, content_bytes, window, rng);
        }
    }
}
