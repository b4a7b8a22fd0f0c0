//! The command line turned into a load.

use losscount::{DnsContent, DnsLoad, HttpLoad, IdleNotice, Load, parse_questions};
use std::net::SocketAddr;
use std::time::Duration;

pub(crate) const HELP: &str = "\
Puts a steady load on a web and DNS server and counts what became of every request.

losscount [--http ADDR:PORT --path /FILE --expect FILE …] [--dns ADDR:PORT --names FILE] --seconds S …

HTTP
  --http ADDR:PORT         the web server
  --path /PATH             what to ask for
  --expect FILE            the right content; given more than once, each is right
  --host NAME              the Host field [ADDR:PORT]
  --new-per-s N            requests a second, each on a new connection [2000]
  --kept-per-s N           requests a second on kept connections [2000]
  --connections N          kept connections, of HTTP and of DNS each [16]
DNS
  --dns ADDR:PORT          the DNS server
  --names FILE             lines of name and type, and maybe a response code other than NOERROR
  --dns-content WHICH      as-before: the records that it answers with before the load; any [as-before]
  --udp-per-s N            queries a second over UDP [5000]
  --udp-ports N            ports from which they go out in turn [64]
  --tcp-per-s N            queries a second over TCP, each on a new connection [500]
  --tcp-kept-per-s N       queries a second over TCP on kept connections [0]
Both
  --seconds S              for how long requests are due; may be a fraction
  --until-input-ends       for as long as standard input stays open, but no longer than --seconds
  --idle-notice WHEN       at-once: the end of an idle connection is seen when it comes; at-next-request: only after
                           the next request was sent on it, as from far away [at-once]
  --dns-idle-notice WHEN   the same for DNS alone, where a server cannot say that it is about to close [as for both]
  --tcp-deadline-ms N      from the moment a request is due [5000]
  --udp-deadline-ms N      likewise [2000]
  --seed N                 draws questions and ids [1]
  --json                   the report as one line of JSON

A lost request is never sent again. The exit status is 0 when nothing was lost, 1 when something was, 2 when there was
no load. Latencies count from the moment when a request was due. `silence` is the longest time without a right answer,
`late` the longest delay of this program's own sending.";

const IDLE_NOTICES: [(&str, IdleNotice); 2] =
    [("at-once", IdleNotice::AtOnce), ("at-next-request", IdleNotice::AtNextRequest)];

/// What the command line asks for.
pub(crate) enum Wish {
    Help,
    Run(Box<Arguments>),
}

pub(crate) struct Arguments {
    pub(crate) load: Load,
    /// Whether the end of standard input ends the load.
    pub(crate) until_input_ends: bool,
    pub(crate) json: bool,
}

#[derive(Default)]
struct Given {
    http: Option<SocketAddr>,
    path: Option<String>,
    contents: Vec<Vec<u8>>,
    host: Option<String>,
    new_per_s: Option<u32>,
    kept_per_s: Option<u32>,
    connection_count: Option<usize>,
    dns: Option<SocketAddr>,
    names: Option<String>,
    dns_content: Option<DnsContent>,
    udp_per_s: Option<u32>,
    udp_port_count: Option<usize>,
    tcp_per_s: Option<u32>,
    tcp_kept_per_s: Option<u32>,
    length: Option<Duration>,
    idle_notice: Option<IdleNotice>,
    dns_idle_notice: Option<IdleNotice>,
    tcp_deadline_ms: Option<u64>,
    udp_deadline_ms: Option<u64>,
    seed: Option<u64>,
    until_input_ends: bool,
    json: bool,
}

/// Reads the arguments behind the program's name, and the files that they name.
pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Wish, String> {
    let mut given = Given::default();
    while let Some(option) = arguments.next() {
        match option.as_str() {
            "--help" | "-h" => return Ok(Wish::Help),
            "--json" => given.json = true,
            "--until-input-ends" => given.until_input_ends = true,
            _ => {
                let value = arguments.next().ok_or_else(|| format!("{option} wants a value; see --help"))?;
                given.take(&option, &value)?;
            }
        }
    }
    given.into_arguments().map(|arguments| Wish::Run(Box::new(arguments)))
}

impl Given {
    fn take(&mut self, option: &str, value: &str) -> Result<(), String> {
        match option {
            "--http" => self.http = Some(parse_value(option, value)?),
            "--path" => self.path = Some(value.to_owned()),
            "--expect" => self.contents.push(std::fs::read(value).map_err(|error| format!("read {value}: {error}"))?),
            "--host" => self.host = Some(value.to_owned()),
            "--new-per-s" => self.new_per_s = Some(parse_value(option, value)?),
            "--kept-per-s" => self.kept_per_s = Some(parse_value(option, value)?),
            "--connections" => self.connection_count = Some(parse_value(option, value)?),
            "--dns" => self.dns = Some(parse_value(option, value)?),
            "--names" => self.names = Some(value.to_owned()),
            "--dns-content" => {
                let choices = [("as-before", DnsContent::AsBefore), ("any", DnsContent::Any)];
                self.dns_content = Some(parse_choice(option, value, choices)?);
            }
            "--udp-per-s" => self.udp_per_s = Some(parse_value(option, value)?),
            "--udp-ports" => self.udp_port_count = Some(parse_value(option, value)?),
            "--tcp-per-s" => self.tcp_per_s = Some(parse_value(option, value)?),
            "--tcp-kept-per-s" => self.tcp_kept_per_s = Some(parse_value(option, value)?),
            "--seconds" => {
                let length = Duration::try_from_secs_f64(parse_value(option, value)?);
                self.length = Some(length.map_err(|error| format!("{option} {value}: {error}"))?);
            }
            "--idle-notice" => self.idle_notice = Some(parse_choice(option, value, IDLE_NOTICES)?),
            "--dns-idle-notice" => self.dns_idle_notice = Some(parse_choice(option, value, IDLE_NOTICES)?),
            "--tcp-deadline-ms" => self.tcp_deadline_ms = Some(parse_value(option, value)?),
            "--udp-deadline-ms" => self.udp_deadline_ms = Some(parse_value(option, value)?),
            "--seed" => self.seed = Some(parse_value(option, value)?),
            _ => return Err(format!("{option} is no option; see --help")),
        }
        Ok(())
    }

    fn into_arguments(self) -> Result<Arguments, String> {
        let length = self.length.ok_or("for how long? --seconds 10")?;
        let mut load = Load::new(length, self.seed.unwrap_or(1));
        load.tcp_deadline = self.tcp_deadline_ms.map_or(load.tcp_deadline, Duration::from_millis);
        load.udp_deadline = self.udp_deadline_ms.map_or(load.udp_deadline, Duration::from_millis);
        load.http = self.http.map(|peer| self.http_load(peer)).transpose()?;
        load.dns = self.dns.map(|peer| self.dns_load(peer)).transpose()?;
        if load.http.is_none() && load.dns.is_none() {
            return Err("ask whom? --http ADDR:PORT, --dns ADDR:PORT, or both".to_owned());
        }
        Ok(Arguments { load, until_input_ends: self.until_input_ends, json: self.json })
    }

    fn http_load(&self, peer: SocketAddr) -> Result<HttpLoad, String> {
        let path = self.path.as_deref().ok_or("ask the web server for what? --path /index.html")?;
        let mut http = HttpLoad::new(peer, path, Vec::new());
        if self.contents.is_empty() {
            return Err("which content is right? --expect FILE".to_owned());
        }
        http.contents.clone_from(&self.contents);
        http.host = self.host.clone().unwrap_or(http.host);
        http.new_per_s = self.new_per_s.unwrap_or(2_000);
        http.kept_per_s = self.kept_per_s.unwrap_or(2_000);
        http.connection_count = self.connection_count.unwrap_or(http.connection_count);
        http.idle_notice = self.idle_notice.unwrap_or(http.idle_notice);
        Ok(http)
    }

    fn dns_load(&self, peer: SocketAddr) -> Result<DnsLoad, String> {
        let names = self.names.as_deref().ok_or("ask the DNS server for what? --names FILE")?;
        let text = std::fs::read_to_string(names).map_err(|error| format!("read {names}: {error}"))?;
        let mut dns = DnsLoad::new(peer, parse_questions(&text).map_err(|error| format!("{names}: {error}"))?);
        dns.content = self.dns_content.unwrap_or(dns.content);
        dns.udp_per_s = self.udp_per_s.unwrap_or(5_000);
        dns.udp_port_count = self.udp_port_count.unwrap_or(dns.udp_port_count);
        dns.tcp_new_per_s = self.tcp_per_s.unwrap_or(500);
        dns.tcp_kept_per_s = self.tcp_kept_per_s.unwrap_or(0);
        dns.connection_count = self.connection_count.unwrap_or(dns.connection_count);
        dns.idle_notice = self.dns_idle_notice.or(self.idle_notice).unwrap_or(dns.idle_notice);
        Ok(dns)
    }
}

fn parse_value<T: std::str::FromStr>(option: &str, value: &str) -> Result<T, String>
where
    T::Err: std::fmt::Display,
{
    value.parse().map_err(|error| format!("{option} {value}: {error}"))
}

fn parse_choice<T: Copy, const N: usize>(option: &str, value: &str, choices: [(&str, T); N]) -> Result<T, String> {
    let found = choices.iter().find(|(name, _)| *name == value).map(|(_, choice)| *choice);
    found.ok_or_else(|| format!("{option} {value}: it is {}", choices.map(|(name, _)| name).join(" or ")))
}
