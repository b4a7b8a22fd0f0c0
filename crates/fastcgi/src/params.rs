//! Writes the parameters of a request: the variables of CGI (RFC 3875 §4.1), and those that nginx and Apache add.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use core::net::SocketAddr;

use sanderling_http::{ForwardedField, Framing, Request, Scheme, Target};

use crate::record::kind;
use crate::requests::{StreamWriter, put_stream_end};

/// The script that answers a request. The caller has checked that the file exists and is inside the root: PHP would run
/// `x.jpg` for `/x.jpg/y.php`.
#[derive(Clone, Copy, Debug)]
pub struct Script<'s> {
    /// The document root, absolute and without symbolic links (DOCUMENT_ROOT).
    pub root: &'s [u8],
    /// The file of the script, absolute (SCRIPT_FILENAME).
    pub file: &'s [u8],
    /// The path of the URL that names the script, decoded (SCRIPT_NAME): `/index.php`.
    pub name: &'s [u8],
    /// The rest of the path, decoded (PATH_INFO): empty, or with a slash at its start.
    pub path_info: &'s [u8],
}

/// A request as it is passed on to a script.
#[derive(Clone, Debug)]
pub struct ScriptRequest<'r> {
    /// The request of the client.
    pub request: &'r Request<'r>,
    /// The script.
    pub script: Script<'r>,
    /// The framing of the content that is sent. Applications read as many bytes as CONTENT_LENGTH says, and none
    /// without it, so that the caller collects chunked content first.
    pub framing: Framing,
    /// The Host field; `None` for that of the client.
    pub host: Option<&'r str>,
    /// The client, which trusted proxies have named.
    pub client: SocketAddr,
    /// The address of the server on the connection.
    pub local: SocketAddr,
    /// The scheme of the request.
    pub scheme: Scheme,
    /// The protocol of the client: `HTTP/1.1`, `HTTP/2.0`.
    pub protocol: &'r str,
    /// The name of the site.
    pub server_name: &'r str,
    /// The field that the peer writes, if it is a trusted proxy. Forwarding fields of others are removed.
    pub trusted: Option<ForwardedField>,
    /// Fields that are set, or removed (`None`), as their variables `HTTP_*`.
    pub edits: &'r [(String, Option<String>)],
}

impl ScriptRequest<'_> {
    /// Appends the records with all parameters, and their end.
    pub fn put_params(&self, out: &mut Vec<u8>) {
        let mut params = Params(StreamWriter::new(kind::PARAMS, out));
        self.put_script(&mut params);
        self.put_connection(&mut params);
        self.put_fields(&mut params);
        params.0.finish();
        put_stream_end(kind::PARAMS, out);
    }

    fn put_script(&self, params: &mut Params<'_>) {
        let Script { root, file, name, path_info } = self.script;
        let (path, query): (&[u8], _) = match self.request.target {
            Target::Path { path, query } => (path, query),
            Target::Asterisk => (b"*", None),
            Target::Authority => (b"", None),
        };
        params.put(b"SCRIPT_FILENAME", &[file]);
        params.put(b"SCRIPT_NAME", &[name]);
        if !path_info.is_empty() {
            params.put(b"PATH_INFO", &[path_info]);
        }
        params.put(b"DOCUMENT_ROOT", &[root]);
        params.put(b"DOCUMENT_URI", &[name, path_info]);
        match query {
            Some(query) => params.put(b"REQUEST_URI", &[path, b"?", query]),
            None => params.put(b"REQUEST_URI", &[path]),
        }
        params.put(b"QUERY_STRING", &[query.unwrap_or_default()]);
        params.put(b"REQUEST_METHOD", &[self.request.method_name()]);
        if let Some(content_type) = self.request.field(b"content-type") {
            params.put(b"CONTENT_TYPE", &[content_type]);
        }
        if let Framing::Length(length_bytes) = self.framing {
            params.put_text(b"CONTENT_LENGTH", format_args!("{length_bytes}"));
        }
    }

    fn put_connection(&self, params: &mut Params<'_>) {
        params.put(b"SERVER_PROTOCOL", &[self.protocol.as_bytes()]);
        params.put(b"SERVER_NAME", &[self.server_name.as_bytes()]);
        for (address, ip, port) in
            [(self.local, &b"SERVER_ADDR"[..], &b"SERVER_PORT"[..]), (self.client, b"REMOTE_ADDR", b"REMOTE_PORT")]
        {
            params.put_text(ip, format_args!("{}", address.ip().to_canonical()));
            params.put_text(port, format_args!("{}", address.port()));
        }
        params.put(b"REQUEST_SCHEME", &[self.scheme.name().as_bytes()]);
        if self.scheme == Scheme::Https {
            params.put(b"HTTPS", &[b"on"]);
        }
        params.put(b"GATEWAY_INTERFACE", &[b"CGI/1.1"]);
        params.put(b"SERVER_SOFTWARE", &[b"sanderling"]);
        // PHP answers only requests that a server has passed on if it is configured with `cgi.force_redirect`.
        params.put(b"REDIRECT_STATUS", &[b"200"]);
    }

    /// The fields of the request as variables (RFC 3875 §4.1.18). Several lines become one value.
    fn put_fields(&self, params: &mut Params<'_>) {
        match (self.host, self.request.host) {
            (Some(host), _) => params.put(b"HTTP_HOST", &[host.as_bytes()]),
            (None, Some(host)) => match host.port {
                None => params.put(b"HTTP_HOST", &[host.name]),
                Some(port) => {
                    let mut text = String::new();
                    let _ = write!(text, ":{port}");
                    params.put(b"HTTP_HOST", &[host.name, text.as_bytes()]);
                }
            },
            (None, None) => {}
        }
        let lines: Vec<(&[u8], &[u8])> =
            self.request.passed_fields(self.trusted).filter(|(name, _)| is_variable(name)).collect();
        for (index, (name, value)) in lines.iter().enumerate() {
            let is_same = |line: &&(&[u8], &[u8])| line.0.eq_ignore_ascii_case(name);
            if self.is_edited(name) || lines[..index].iter().any(|line| is_same(&line)) {
                continue;
            }
            let separator: &[u8] = if name.eq_ignore_ascii_case(b"cookie") { b"; " } else { b", " };
            let mut parts = lines[index + 1..].iter().filter(is_same).peekable();
            if parts.peek().is_none() {
                params.put_field(name, &[value]);
            } else {
                let others = parts.flat_map(|line| [separator, line.1]);
                let all: Vec<&[u8]> = core::iter::once(*value).chain(others).collect();
                params.put_field(name, &all);
            }
        }
        for (name, value) in self.edits {
            if let Some(value) = value
                && is_variable(name.as_bytes())
                && !is_own(name.as_bytes())
            {
                params.put_field(name.as_bytes(), &[value.as_bytes()]);
            }
        }
    }

    fn is_edited(&self, name: &[u8]) -> bool {
        self.edits.iter().any(|(edited, _)| edited.as_bytes().eq_ignore_ascii_case(name))
    }
}

/// Whether a field becomes a variable. Content-Type and Content-Length have variables without a prefix. A script cannot
/// tell `X_A` or `X.A` from `X-A`, so that these names would let a client set fields that a proxy has removed.
fn is_variable(name: &[u8]) -> bool {
    let is_content = [&b"content-type"[..], b"content-length"].iter().any(|own| own.eq_ignore_ascii_case(name));
    !is_content && name.iter().all(|&byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Fields that no edit changes: HTTP_HOST is written from another source, and HTTP_PROXY would be taken for the proxy
/// of requests that the script makes.
fn is_own(name: &[u8]) -> bool {
    [&b"host"[..], b"proxy"].iter().any(|own| own.eq_ignore_ascii_case(name))
}

/// The stream of parameters: pairs of names and values (§3.4).
struct Params<'o>(StreamWriter<'o>);

impl Params<'_> {
    /// Appends a parameter, whose value has several parts.
    fn put(&mut self, name: &[u8], value: &[&[u8]]) {
        self.put_lengths(name.len(), value);
        self.0.put(name);
        value.iter().for_each(|part| self.0.put(part));
    }

    fn put_text(&mut self, name: &[u8], value: core::fmt::Arguments<'_>) {
        let mut text = String::new();
        let _ = text.write_fmt(value);
        self.put(name, &[text.as_bytes()]);
    }

    /// Appends a field as `HTTP_` and its name in capitals.
    fn put_field(&mut self, name: &[u8], value: &[&[u8]]) {
        const PREFIX: &[u8] = b"HTTP_";
        const PIECE_BYTES: usize = 32;
        self.put_lengths(PREFIX.len() + name.len(), value);
        self.0.put(PREFIX);
        for piece in name.chunks(PIECE_BYTES) {
            let mut variable = [0; PIECE_BYTES];
            for (place, byte) in variable.iter_mut().zip(piece) {
                *place = if *byte == b'-' { b'_' } else { byte.to_ascii_uppercase() };
            }
            self.0.put(&variable[..piece.len()]);
        }
        value.iter().for_each(|part| self.0.put(part));
    }

    fn put_lengths(&mut self, name_bytes: usize, value: &[&[u8]]) {
        let value_bytes = value.iter().map(|part| part.len()).sum();
        // PHP reads each record by itself, so that a pair must not continue in the next one if it fits there.
        self.0.reserve(2 * size_of::<u32>() + name_bytes + value_bytes);
        for length in [name_bytes, value_bytes] {
            match u8::try_from(length) {
                Ok(length @ ..=127) => self.0.put(&[length]),
                // No part of a request is as long as the 31 bits allow.
                _ => self.0.put(&(length as u32 | 1 << 31).to_be_bytes()),
            }
        }
    }
}

#[cfg(test)]
mod tests;
