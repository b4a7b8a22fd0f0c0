//! Questions turned into questions with the digest of their answers, by asking each once before the load.

use crate::dns_stream::DnsStream;
use crate::protocol::{Protocol, Taken};
use crate::question::Question;
use crate::random::Random;
use crate::reply::{Transport, check_reply};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// Asks the server each question over TCP, on one connection, and keeps what it says.
pub(crate) fn learn_digests(
    peer: SocketAddr,
    questions: &[Question],
    deadline: Duration,
) -> Result<Vec<Question>, String> {
    let mut learned = questions.to_vec();
    let io_error = |what: &str, error: &std::io::Error| format!("{what} {peer}: {error}");
    let mut stream = TcpStream::connect_timeout(&peer, deadline).map_err(|error| io_error("connect to", &error))?;
    stream.set_read_timeout(Some(deadline)).map_err(|error| io_error("receive from", &error))?;
    stream.set_write_timeout(Some(deadline)).map_err(|error| io_error("send to", &error))?;
    let mut protocol = DnsStream::new(Arc::from(questions), Random::new(0, 0));
    let mut buffer = [0; 4096];
    for (index, question) in learned.iter_mut().enumerate() {
        let mut query = Vec::new();
        let mut answer = protocol.ask_question(index, &mut query);
        stream.write_all(&query).map_err(|error| io_error("send to", &error))?;
        // Bounded: an answer has at most 65,537 octets, and each receive brings one at least.
        loop {
            let length_bytes = stream.read(&mut buffer).map_err(|error| io_error("receive from", &error))?;
            if length_bytes == 0 {
                return Err(format!("{peer} closed the connection instead of answering {question}"));
            }
            match protocol.take(&mut answer, &buffer[..length_bytes]) {
                Taken::More => {}
                Taken::Wrong(_, what) => return Err(what),
                Taken::Whole { .. } => break,
            }
        }
        let message = answer.message().expect("the answer is whole");
        let id = u16::from_be_bytes([query[2], query[3]]);
        let reply = check_reply(message, id, question, Transport::Tcp).map_err(|(_, what)| what)?;
        question.digest = Some(reply.digest);
    }
    Ok(learned)
}
