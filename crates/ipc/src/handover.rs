//! All that a supervisor keeps, as descriptors with labels: for the program that takes its place by exec, or for a
//! supervisor that takes a server process over.
//!
//! A label is one line of text. What has an unknown one, of another version of the program, is done without.

use crate::control_message::Answer;
use sanderling_config::log::warn;
use sanderling_config::{ListenerRole, Service};
use sanderling_os::seqpacket::{DESCRIPTORS_PER_MESSAGE_MAX, MESSAGE_BYTES_MAX, Received, SeqpacketSocket};
use sanderling_os::{listen_fds, memfd};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Names, in the environment of a program that was exec'ed, the descriptor of the list.
pub const VARIABLE: &str = "SANDERLING_HANDOVER";
/// Octets of the list: thousands of descriptors.
const LIST_BYTES_MAX: u64 = 1024 * 1024;

/// What a descriptor is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Label {
    /// The text of the configuration that is run by.
    Configuration,
    /// The control socket at this path.
    Control(PathBuf),
    /// A bound socket; those of one address in the order of their siblings, addresses in that of the configuration.
    Listener(ListenerRole),
    /// A server process: its pidfd.
    Process(ProcessLabel),
    /// The channel to the process before.
    Channel,
    /// Somebody who has asked for something by the control socket and waits for its end.
    Client(Awaits),
}

/// What a client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaits {
    /// To hear that the upgrade is done of which the handover is a part.
    ThisUpgrade,
    /// A reload that has not begun.
    Reload,
    /// An upgrade that has not begun.
    Upgrade,
}

impl Awaits {
    const ALL: [Awaits; 3] = [Awaits::ThisUpgrade, Awaits::Reload, Awaits::Upgrade];

    fn word(self) -> &'static str {
        match self {
            Awaits::ThisUpgrade => "this-upgrade",
            Awaits::Reload => "reload",
            Awaits::Upgrade => "upgrade",
        }
    }
}

/// What is known of a server process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessLabel {
    /// The supervisor's number for it: the first is 1.
    pub generation: u64,
    /// The system's number for it.
    pub pid: i32,
    /// Whether it serves, rather than finishing what it has.
    pub is_serving: bool,
    /// When it was ready, in seconds since 1970.
    pub since_unix_s: u64,
}

impl Label {
    fn to_line(&self) -> Vec<u8> {
        match self {
            Label::Configuration => b"configuration".to_vec(),
            Label::Control(path) => [b"control ", path.as_os_str().as_bytes()].concat(),
            Label::Listener(ListenerRole { service, is_external }) => {
                let whose = if *is_external { "given-" } else { "" };
                format!("{whose}listener {}", service.name()).into_bytes()
            }
            Label::Process(process) => {
                let ProcessLabel { generation, pid, is_serving, since_unix_s } = process;
                let stage = if *is_serving { "serving" } else { "draining" };
                format!("process {generation} {pid} {stage} {since_unix_s}").into_bytes()
            }
            Label::Channel => b"channel".to_vec(),
            Label::Client(awaits) => format!("client {}", awaits.word()).into_bytes(),
        }
    }

    fn of_line(line: &[u8]) -> Option<Label> {
        if let Some(path) = line.strip_prefix(b"control ") {
            return Some(Label::Control(Path::new(OsStr::from_bytes(path)).into()));
        }
        let mut words = str::from_utf8(line).ok()?.split(' ');
        let label = match words.next()? {
            "configuration" => Label::Configuration,
            kind @ ("listener" | "given-listener") => {
                let service = Service::from_name(words.next()?)?;
                Label::Listener(ListenerRole { service, is_external: kind == "given-listener" })
            }
            "process" => Label::Process(ProcessLabel {
                generation: words.next()?.parse().ok()?,
                pid: words.next()?.parse().ok()?,
                is_serving: match words.next()? {
                    "serving" => true,
                    "draining" => false,
                    _ => return None,
                },
                since_unix_s: words.next()?.parse().ok()?,
            }),
            "channel" => Label::Channel,
            "client" => {
                let word = words.next()?;
                Label::Client(Awaits::ALL.into_iter().find(|awaits| awaits.word() == word)?)
            }
            _ => return None,
        };
        words.next().is_none().then_some(label)
    }
}

/// Descriptors on their way out, each with its label.
pub type Given<'d> = Vec<(Label, BorrowedFd<'d>)>;
/// Descriptors that have come in, each with its label.
pub type Taken = Vec<(Label, OwnedFd)>;

/// A list of `given` for a program that this process becomes: the list's own descriptor, to be kept open beside theirs,
/// and what to set in the environment.
pub fn list(given: &Given<'_>) -> io::Result<(OwnedFd, (&'static str, String))> {
    let mut text = Vec::new();
    for (label, descriptor) in given {
        text.extend_from_slice(format!("{} ", descriptor.as_raw_fd()).as_bytes());
        text.extend_from_slice(&label.to_line());
        text.push(b'\n');
    }
    let list = memfd::create("handover", &text)?;
    let variable = (VARIABLE, list.as_raw_fd().to_string());
    Ok((list, variable))
}

/// What the program in whose place this one runs has left, if it has.
///
/// # Errors
/// The list does not tell what is there.
pub fn inherited() -> io::Result<Option<Taken>> {
    let Some(number) = std::env::var(VARIABLE).ok().filter(|value| !value.is_empty()) else { return Ok(None) };
    let list = listen_fds::take_fd(number.parse().map_err(|_| not_understood(VARIABLE))?)?;
    let text = memfd::read(&list, LIST_BYTES_MAX)?;
    let mut taken = Vec::new();
    for line in text.split(|&octet| octet == b'\n').filter(|line| !line.is_empty()) {
        let wrong = || not_understood(&String::from_utf8_lossy(line));
        let space = line.iter().position(|&octet| octet == b' ').ok_or_else(wrong)?;
        let (number, label) = (&line[..space], &line[space + 1..]);
        let number: RawFd = str::from_utf8(number).ok().and_then(|text| text.parse().ok()).ok_or_else(wrong)?;
        let descriptor = listen_fds::take_fd(number)?;
        // What only another version knows of is done without: that is better than no supervisor.
        match Label::of_line(label) {
            Some(label) => taken.push((label, descriptor)),
            None => warn(&format!("{}", wrong())),
        }
    }
    Ok(Some(taken))
}

/// First octet of a message: whether more messages follow it. No kind of an answer ([`Answer`]) has these numbers.
const MORE: u8 = 16;
const LAST: u8 = 17;

/// Sends `given` to another process of this machine.
///
/// # Errors
/// The other side is gone, or does not read.
pub fn send(given: &Given<'_>, endpoint: &SeqpacketSocket) -> io::Result<()> {
    let mut rest = given.as_slice();
    loop {
        let mut message = vec![MORE];
        let mut descriptors = Vec::new();
        while let Some((label, descriptor)) = rest.first() {
            let line = label.to_line();
            if message.len() + line.len() + 1 > MESSAGE_BYTES_MAX || descriptors.len() == DESCRIPTORS_PER_MESSAGE_MAX {
                break;
            }
            message.extend_from_slice(&line);
            message.push(b'\n');
            descriptors.push(descriptor.as_fd());
            rest = &rest[1..];
        }
        if rest.is_empty() {
            message[0] = LAST;
        } else if descriptors.is_empty() {
            return Err(io::Error::other("a label is longer than a message"));
        }
        if !endpoint.send(&message, &descriptors)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if rest.is_empty() {
            return Ok(());
        }
    }
}

/// What has come of a handover so far.
#[derive(Debug, Default)]
pub struct Receiving(Taken);

impl Receiving {
    /// Takes what is there; `Some` when all of it is.
    ///
    /// # Errors
    /// The other side is gone, refuses, or has sent something else.
    pub fn advance(&mut self, endpoint: &SeqpacketSocket) -> io::Result<Option<Taken>> {
        let mut buffer = [0; MESSAGE_BYTES_MAX];
        loop {
            let (length_bytes, descriptors) = match endpoint.receive(&mut buffer)? {
                Received::WouldBlock => return Ok(None),
                Received::Closed => return Err(io::ErrorKind::UnexpectedEof.into()),
                Received::Message { length_bytes, descriptors } => (length_bytes, descriptors),
            };
            let message = &buffer[..length_bytes];
            if let Ok(Answer::Err(refusal)) = Answer::decode(message) {
                return Err(io::Error::other(refusal.trim_start_matches("sanderling: ").trim_end().to_owned()));
            }
            let lines: Vec<&[u8]> =
                message[1..].split(|&octet| octet == b'\n').filter(|line| !line.is_empty()).collect();
            if lines.len() != descriptors.len() {
                return Err(not_understood("its labels are not as many as its descriptors"));
            }
            for (line, descriptor) in lines.into_iter().zip(descriptors) {
                let label = Label::of_line(line).ok_or_else(|| not_understood(&String::from_utf8_lossy(line)))?;
                self.0.push((label, descriptor));
            }
            match message[0] {
                MORE => {}
                LAST => return Ok(Some(std::mem::take(&mut self.0))),
                _ => return Err(not_understood("it begins otherwise")),
            }
        }
    }
}

fn not_understood(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("what was handed over is not understood: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels() -> Vec<Label> {
        let process = ProcessLabel { generation: 7, pid: 1234, is_serving: false, since_unix_s: 1_800_000_000 };
        vec![
            Label::Configuration,
            Label::Control("/run/a b/control.sock".into()),
            Label::Listener(ListenerRole::own(Service::Http)),
            Label::Listener(ListenerRole::own(Service::Dns)),
            Label::Listener(ListenerRole { service: Service::Http, is_external: true }),
            Label::Process(process),
            Label::Channel,
            Label::Client(Awaits::ThisUpgrade),
            Label::Client(Awaits::Reload),
        ]
    }

    #[test]
    fn labels_are_read_as_they_were_written() {
        for label in labels() {
            assert_eq!(Label::of_line(&label.to_line()), Some(label));
        }
        for line in [
            "",
            "controls",
            "listener",
            "listener ftp",
            "process 1 2 asleep 3",
            "client",
            "client stop",
            "process x 1 serving 1",
        ] {
            assert_eq!(Label::of_line(line.as_bytes()), None, "{line:?}");
        }
    }

    #[test]
    fn a_handover_of_any_size_arrives() {
        for count in [0, 1, DESCRIPTORS_PER_MESSAGE_MAX, DESCRIPTORS_PER_MESSAGE_MAX + 1, 600] {
            let (giver, taker) = SeqpacketSocket::pair().expect("made");
            let labels: Vec<Label> = labels().into_iter().cycle().take(count).collect();
            let given: Given<'_> = labels.iter().map(|label| (label.clone(), giver.as_fd())).collect();
            send(&given, &giver).expect("sent");
            let taken = Receiving::default().advance(&taker).expect("understood").expect("complete");
            assert_eq!(taken.into_iter().map(|(label, _)| label).collect::<Vec<_>>(), labels);
        }
    }

    #[test]
    fn what_breaks_off_or_is_something_else_is_an_error() {
        let (giver, taker) = SeqpacketSocket::pair().expect("made");
        let mut receiving = Receiving::default();
        assert!(receiving.advance(&taker).expect("no error").is_none());
        giver.send(b"\x11channel\n", &[]).expect("sent");
        receiving.advance(&taker).expect_err("a label without its descriptor");
        drop(giver);
        receiving.advance(&taker).expect_err("gone");
    }
}
