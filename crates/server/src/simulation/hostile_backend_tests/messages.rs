//! A strict reader of messages (RFC 9112), which shares no code with the server: what it takes for one message, every
//! recipient does.

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// The first line.
    pub(super) start: Vec<u8>,
    /// Names in lower case, and values.
    pub(super) fields: Vec<(String, Vec<u8>)>,
    pub(super) body: Vec<u8>,
}

/// What stands at the start of some bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Read<'b> {
    /// A message, and what follows it.
    Whole(Message, &'b [u8]),
    /// The start of one, and whether its head is complete.
    Partial(Option<Message>),
    Invalid,
}

/// The recipient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    /// A recipient of requests.
    Requests,
    /// The same, which takes nothing that is optional: no chunk extensions, no trailers, no other version.
    BackendRequests,
    /// A recipient of responses, which are to HEAD or not, and of which the sender has closed its side or not.
    Responses { is_head: bool, is_closed: bool },
}

enum Length {
    None,
    Bytes(usize),
    Chunked,
    UntilClose,
}

impl Message {
    pub(super) fn field(&self, name: &str) -> Option<&[u8]> {
        self.fields.iter().find(|(own, _)| own == name).map(|(_, value)| &value[..])
    }

    fn all(&self, name: &str) -> Vec<&[u8]> {
        self.fields.iter().filter(|(own, _)| own == name).map(|(_, value)| &value[..]).collect()
    }

    /// A part of the first line, which is divided by spaces.
    pub(super) fn part(&self, index: usize) -> &[u8] {
        self.start.split(|&byte| byte == b' ').nth(index).unwrap_or_default()
    }

    pub(super) fn status(&self) -> u16 {
        std::str::from_utf8(self.part(1)).ok().and_then(|digits| digits.parse().ok()).unwrap_or_default()
    }
}

/// Reads the message at the start of `bytes`.
pub(super) fn read(reader: Reader, bytes: &[u8]) -> Read<'_> {
    let (mut message, rest) = match read_head(bytes) {
        Ok(Some(read)) => read,
        Ok(None) => return Read::Partial(None),
        Err(()) => return Read::Invalid,
    };
    let is_valid = match reader {
        // RFC 9110 §2.5: a higher minor version is that of the recipient.
        Reader::Requests => is_request_line(&message, b'0'..=b'9'),
        Reader::BackendRequests => is_request_line(&message, b'1'..=b'1') && message.all("host").len() == 1,
        Reader::Responses { .. } => is_status_line(&message.start),
    };
    let Some(length) = length_of(&message, reader).filter(|_| is_valid) else { return Read::Invalid };
    let rest = match length {
        Length::None => rest,
        Length::Bytes(length) => match rest.split_at_checked(length) {
            Some((body, rest)) => {
                message.body = body.to_vec();
                rest
            }
            None => {
                message.body = rest.to_vec();
                return Read::Partial(Some(message));
            }
        },
        Length::Chunked => match read_chunks(rest, reader, &mut message.body) {
            Ok(Some(rest)) => rest,
            Ok(None) => return Read::Partial(Some(message)),
            Err(()) => return Read::Invalid,
        },
        Length::UntilClose => {
            message.body = rest.to_vec();
            if !matches!(reader, Reader::Responses { is_closed: true, .. }) {
                return Read::Partial(Some(message));
            }
            &[]
        }
    };
    Read::Whole(message, rest)
}

/// A line without its CRLF, and what follows.
type Line<'b> = (&'b [u8], &'b [u8]);

/// The next line; `Ok(None)` if it is incomplete.
fn read_line(bytes: &[u8]) -> Result<Option<Line<'_>>, ()> {
    let Some(end) = bytes.iter().position(|&byte| byte == b'\n') else { return Ok(None) };
    let line = bytes[..end].strip_suffix(b"\r").ok_or(())?;
    if line.iter().any(|&byte| byte == 0x7f || (byte < b' ' && byte != b'\t')) {
        Err(())
    } else {
        Ok(Some((line, &bytes[end + 1..])))
    }
}

fn read_head(bytes: &[u8]) -> Result<Option<(Message, &[u8])>, ()> {
    let Some((start, mut rest)) = read_line(bytes)? else { return Ok(None) };
    let mut message = Message { start: start.to_vec(), fields: Vec::new(), body: Vec::new() };
    loop {
        let Some((line, after)) = read_line(rest)? else { return Ok(None) };
        rest = after;
        if line.is_empty() {
            return Ok(Some((message, rest)));
        }
        let colon = line.iter().position(|&byte| byte == b':').ok_or(())?;
        let name = std::str::from_utf8(&line[..colon]).map_err(|_| ())?;
        if name.is_empty()
            || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
        {
            return Err(());
        }
        message.fields.push((name.to_ascii_lowercase(), line[colon + 1..].trim_ascii().to_vec()));
    }
}

fn is_request_line(message: &Message, minor_versions: std::ops::RangeInclusive<u8>) -> bool {
    let parts: Vec<&[u8]> = message.start.split(|&byte| byte == b' ').collect();
    let has_version =
        matches!(message.part(2), [b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor] if minor_versions.contains(minor));
    parts.len() == 3 && parts.iter().all(|part| !part.is_empty()) && has_version
}

fn is_status_line(line: &[u8]) -> bool {
    let version = line.starts_with(b"HTTP/1.1 ") || line.starts_with(b"HTTP/1.0 ");
    let digits = line.get(9..12).is_some_and(|digits| digits.iter().all(u8::is_ascii_digit));
    version && digits && (b'1'..=b'5').contains(&line[9]) && matches!(line.get(12), None | Some(b' '))
}

fn length_of(message: &Message, reader: Reader) -> Option<Length> {
    let (lengths, codings) = (message.all("content-length"), message.all("transfer-encoding"));
    let length = match lengths[..] {
        [] => None,
        [digits] if (1..=19).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit) => {
            Some(std::str::from_utf8(digits).ok()?.parse().ok()?)
        }
        _ => return None,
    };
    let is_chunked = match codings[..] {
        [] => false,
        [coding] if coding.eq_ignore_ascii_case(b"chunked") && length.is_none() => true,
        _ => return None,
    };
    let is_old = message.start.ends_with(b"HTTP/1.0") || message.start.starts_with(b"HTTP/1.0");
    if is_chunked && is_old {
        return None;
    }
    let by_fields = if is_chunked { Some(Length::Chunked) } else { length.map(Length::Bytes) };
    match reader {
        Reader::Requests | Reader::BackendRequests => Some(by_fields.unwrap_or(Length::None)),
        Reader::Responses { is_head, .. } => match message.status() {
            100..=199 | 204 | 304 => Some(Length::None),
            _ if is_head => Some(Length::None),
            _ => Some(by_fields.unwrap_or(Length::UntilClose)),
        },
    }
}

/// Reads chunks and the trailers after them; `Ok(None)` if they are incomplete.
fn read_chunks<'b>(mut bytes: &'b [u8], reader: Reader, body: &mut Vec<u8>) -> Result<Option<&'b [u8]>, ()> {
    loop {
        let Some((line, rest)) = read_line(bytes)? else { return Ok(None) };
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let extension = line[digits..].trim_ascii();
        let is_strict = reader == Reader::BackendRequests;
        if !(1..=15).contains(&digits) || !(extension.is_empty() || (extension[0] == b';' && !is_strict)) {
            return Err(());
        }
        let size = std::str::from_utf8(&line[..digits]).map_err(|_| ())?;
        let size = usize::from_str_radix(size, 16).map_err(|_| ())?;
        if size == 0 {
            // Trailers are fields.
            let Some((trailers, after)) = read_head(&[b"\r\n", rest].concat())
                .map(|read| read.map(|(message, after)| (message.fields, after.len())))?
            else {
                return Ok(None);
            };
            if is_strict && !trailers.is_empty() {
                return Err(());
            }
            return Ok(Some(&rest[rest.len() - after..]));
        }
        let Some((chunk, after)) = rest.split_at_checked(size) else {
            body.extend_from_slice(rest);
            return Ok(None);
        };
        body.extend_from_slice(chunk);
        match after {
            [b'\r', b'\n', after @ ..] => bytes = after,
            [] | [b'\r'] => return Ok(None),
            _ => return Err(()),
        }
    }
}
