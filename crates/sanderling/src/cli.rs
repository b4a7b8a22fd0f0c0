//! Turns the command line into a command whose arguments are all well-formed.

mod control;
mod generate;

use clap::builder::PossibleValuesParser;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};
use sanderling_config::{
    CONFIG_VARIABLE, ConfigSource, Flags, SearchPaths, Zone, limits_help, parse_listen_address, parse_zone_argument,
};
use sanderling_ipc::control_path::Surroundings;
use sanderling_probe as probe;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

pub(crate) use control::Question;
pub(crate) use generate::GenerateLine;

/// One use of the program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Invocation {
    /// What to do.
    pub(crate) command: Command,
    /// The words of every `--force`, `FEATURE=VARIANT`, in the order of the command line. Which jobs and ways there are is for
    /// the crate `os` to say.
    pub(crate) forced: Vec<String>,
}

/// What to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Serve the built-in domain.
    Demo {
        /// Where HTTP is answered.
        http: SocketAddr,
        /// Where DNS is answered.
        dns: SocketAddr,
    },
    /// Serve what the source says, until told to stop.
    Serve {
        /// What to serve.
        source: ConfigSource,
        /// Where to be asked, if the command line says.
        control: Option<PathBuf>,
    },
    /// Serve what a supervisor hands over.
    ServerProcess {
        /// What to serve.
        source: ConfigSource,
        /// Where to be asked when the supervisor is gone.
        control: Option<PathBuf>,
    },
    /// Look for errors in what the source says, and serve nothing.
    Check(ConfigSource),
    /// Measure what the ways of the server's jobs cost on this machine.
    Probe(probe::Options),
    /// Ask the server that runs.
    Ask(Question),
    /// Write manual pages or completions, for a package.
    Generate(GenerateLine),
}

impl Invocation {
    /// Reads `arguments`, the program's name first; looks for a configuration file in `places` if none is named, and
    /// for the control socket of a server in its `surroundings`.
    ///
    /// # Errors
    ///
    /// Everything that ends the program here, `--help` among it; `exit` on it prints and ends with 0 or 2, and a
    /// reader who went away is no fault.
    pub(crate) fn parse(
        arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>,
        places: &SearchPaths,
        surroundings: &Surroundings,
    ) -> Result<Invocation, clap::Error> {
        let line = Line::try_parse_from(arguments)?;
        let ask = |command: &str, question: Result<Question, String>| match question {
            Ok(question) => Ok(Command::Ask(question)),
            Err(fault) => Err(usage_error(command, ErrorKind::MissingRequiredArgument, &fault)),
        };
        let command = match line.command {
            Subcommands::Demo(demo) => Command::Demo { http: demo.http, dns: demo.dns },
            Subcommands::Serve(mut serve) => {
                Command::Serve { control: serve.control.take(), source: serve.source(places)? }
            }
            Subcommands::ServerProcess(mut serve) => {
                Command::ServerProcess { control: serve.control.take(), source: serve.source(places)? }
            }
            Subcommands::Check(check) => Command::Check(check.source(places)?),
            Subcommands::Probe(probe) => Command::Probe(probe.into()),
            Subcommands::Status(status) => ask("status", status.question(places, surroundings))?,
            Subcommands::Reload(reload) => ask("reload", reload.question(places, surroundings))?,
            Subcommands::Upgrade(upgrade) => ask("upgrade", upgrade.question(places, surroundings))?,
            Subcommands::Stop(stop) => ask("stop", stop.question(places, surroundings))?,
            Subcommands::Generate(generate) => Command::Generate(generate),
        };
        Ok(Invocation { command, forced: line.forced })
    }
}

/// The whole command line, for whoever describes it.
pub(crate) fn grammar() -> clap::Command {
    Line::command()
}

/// Sanderling answers for a domain: its web site over HTTP and its zone over DNS.
#[derive(Debug, Parser)]
#[command(
    name = "sanderling",
    bin_name = "sanderling",
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    after_help = "Examples:
  sanderling demo                       see it work, on this machine alone
  sanderling serve public               serve the folder `public` at http://127.0.0.1:8080/
  sanderling serve                      serve what sanderling.toml says
  sanderling check                      look for errors in it first
  sanderling probe                      measure what this machine is good at
  sanderling status                     ask the server that runs how it stands
  sanderling reload                     have it take up its configuration anew

See also: `sanderling help serve` tells more, and so for each command.",
    after_long_help = "Examples:
  sanderling demo                       see it work, on this machine alone
  sanderling serve public               serve the folder `public` at http://127.0.0.1:8080/
  sanderling serve                      serve what sanderling.toml says
  sanderling check                      look for errors in it first
  sanderling probe                      measure what this machine is good at
  sanderling status                     ask the server that runs how it stands
  sanderling reload                     have it take up its configuration anew

Exit status:
  0   done
  1   something failed at run time, `check` found errors, or the server that was asked did not
      answer or refused
  2   the command line is wrong
  78  the configuration that `serve` was given is wrong

Environment:
  SANDERLING_CONFIG  the configuration file, if no argument names one
  RUNTIME_DIRECTORY  the folder of the control socket, if nothing names it; else it is
                     /run/sanderling for root, and $XDG_RUNTIME_DIR/sanderling for others
  NO_COLOR           if not empty, messages have no colour

See also: `sanderling help serve` tells more, and so for each command."
)]
struct Line {
    #[command(subcommand)]
    command: Subcommands,

    /// Use this VARIANT of a kernel FEATURE, as in open=walk (for tests and diagnosis)
    #[arg(long = "force", value_name = "FEATURE=VARIANT", global = true, hide_short_help = true, display_order = 100)]
    forced: Vec<String>,
}

#[derive(Debug, Subcommand)]
enum Subcommands {
    Demo(DemoLine),
    Serve(ServeLine),
    /// The process that serves, which `serve` starts itself.
    #[command(name = "internal-server-process", hide = true)]
    ServerProcess(ServeLine),
    Check(CheckLine),
    Probe(ProbeLine),
    Status(control::StatusLine),
    Reload(control::ReloadLine),
    Upgrade(control::UpgradeLine),
    Stop(control::StopLine),
    #[command(hide = true)]
    Generate(GenerateLine),
}

/// See it work: serve a small built-in domain on this machine alone.
///
/// The web site and the zone are inside the program, and no other machine can reach them. The addresses are printed
/// with `curl` and `dig` lines to try. Ctrl-C ends it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sanderling demo
  sanderling demo --http 127.0.0.1:0 --dns 127.0.0.1:0     on free ports")]
struct DemoLine {
    /// Where to answer HTTP; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8080", value_parser = parse_listen_address)]
    http: SocketAddr,

    /// Where to answer DNS, over UDP and TCP; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:5353", value_parser = parse_listen_address)]
    dns: SocketAddr,
}

/// Serve a folder over HTTP, zones over DNS, or all that a configuration file names.
///
/// Either arguments say what to serve, or a configuration file does; they do not mix. Without any argument the file
/// is the one that SANDERLING_CONFIG names, else ./sanderling.toml, else /etc/sanderling/sanderling.toml.
///
/// Each address is printed on a line of its own once it answers: `http 127.0.0.1:8080`.
#[derive(Debug, Args)]
#[command(
    override_usage = "sanderling serve [FOLDER] [--http ADDR:PORT]... [--zone NAME=FILE]... [--dns ADDR:PORT]... \
                      [--workers N] [--control PATH]\n       sanderling serve [--config FILE] [--control PATH]",
    after_help = "Examples:
  sanderling serve public
      the folder `public` at http://127.0.0.1:8080/
  sanderling serve public --http 0.0.0.0:80 --http [::]:80
      the same for everybody
  sanderling serve --zone example.com=example.com.zone
      a zone at 127.0.0.1, port 5353, over UDP and TCP
  sanderling serve --config /etc/sanderling/sanderling.toml
      any number of sites and zones

Exit status: 0 if told to stop, 1 if something fails, 2 for a wrong command line, 78 for a wrong
configuration, after which another start is of no use."
)]
struct ServeLine {
    /// The folder to serve, whatever host a request names
    #[arg(value_name = "FOLDER")]
    folder: Option<PathBuf>,

    /// Where to answer HTTP, once for each address; port 0 takes a free one [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_listen_address)]
    http: Vec<SocketAddr>,

    /// A zone to answer for and its zone file, once for each zone
    #[arg(long = "zone", value_name = "NAME=FILE", value_parser = parse_zone_argument)]
    zones: Vec<Zone>,

    /// Where to answer DNS, over UDP and TCP, once for each address; port 0 takes a free one [default: 127.0.0.1:5353]
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_listen_address)]
    dns: Vec<SocketAddr>,

    /// Threads that serve [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,

    /// The configuration file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["folder", "http", "zones", "dns", "workers"])]
    config: Option<PathBuf>,

    /// Where `sanderling status`, `reload`, `upgrade` and `stop` reach this server: a socket at this path
    ///
    /// With a configuration file it is, if left out, what the key `control` says, else
    /// $RUNTIME_DIRECTORY/control.sock, else /run/sanderling/control.sock for root and
    /// $XDG_RUNTIME_DIR/sanderling/control.sock for others. Without one, there is none unless it is named.
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

impl ServeLine {
    fn source(self, places: &SearchPaths) -> Result<ConfigSource, clap::Error> {
        if let Some(file) = self.config {
            return Ok(ConfigSource::File(file));
        }
        let without_use = if self.folder.is_none() && !self.http.is_empty() {
            Some("`--http` says where, but there is no FOLDER to serve: sanderling serve FOLDER --http ADDR:PORT")
        } else if self.zones.is_empty() && !self.dns.is_empty() {
            Some("`--dns` says where, but there is no zone to answer for: add --zone NAME=FILE")
        } else if self.folder.is_none() && self.zones.is_empty() && self.workers.is_some() {
            Some("`--workers` needs a FOLDER or a --zone; in a configuration file it is the key `workers`")
        } else {
            None
        };
        if let Some(fault) = without_use {
            return Err(usage_error("serve", ErrorKind::MissingRequiredArgument, fault));
        }
        if self.folder.is_none() && self.zones.is_empty() {
            return find_file("serve", places);
        }
        Ok(ConfigSource::Flags(Flags {
            folder: self.folder,
            http_listen: self.http,
            zones: self.zones,
            dns_listen: self.dns,
            worker_count: self.workers.map(usize::from),
        }))
    }
}

/// Look for errors in a configuration file, its zones and its sites, without serving them.
///
/// Every error is printed as FILE:LINE:COLUMN: PROBLEM; REMEDY, on a terminal with the line it stands in. No socket
/// is opened, so that it can run beside a server. Without any argument the file is the one that SANDERLING_CONFIG
/// names, else ./sanderling.toml, else /etc/sanderling/sanderling.toml.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:
  sanderling check
  sanderling check --config /etc/sanderling/sanderling.toml
  sanderling check --zone example.com=example.com.zone

Exit status: 0 if there are no errors, 1 if there are some, 2 for a wrong command line.",
    after_long_help = check_long_help()
)]
struct CheckLine {
    /// The configuration file
    #[arg(long, value_name = "FILE", conflicts_with = "zones")]
    config: Option<PathBuf>,

    /// A zone and its zone file instead of a configuration file, once for each zone
    #[arg(long = "zone", value_name = "NAME=FILE", value_parser = parse_zone_argument)]
    zones: Vec<Zone>,
}

impl CheckLine {
    fn source(self, places: &SearchPaths) -> Result<ConfigSource, clap::Error> {
        match self.config {
            Some(file) => Ok(ConfigSource::File(file)),
            None if self.zones.is_empty() => find_file("check", places),
            None => Ok(ConfigSource::Flags(Flags { zones: self.zones, ..Flags::default() })),
        }
    }
}

/// Measure what each way of doing a job costs on this machine, and say which one the server uses and why.
///
/// Each job is done in every way that this kernel has, in many short slices and in an order that changes all the time,
/// so that other work on the machine does little harm. What the founding documents claimed stands beside it. Loops
/// over sockets stay on the loopback interface and on ports that the kernel chooses: it can run beside a server.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sanderling probe
  sanderling probe --quick --only cloexec --only facts
  sanderling probe --plot probe.svg         and a picture of it
  sanderling probe --json > machine.json    to compare machines

Exit status: 0, also where something cannot be measured, which is told; 1 if the report cannot be
written; 2 for a wrong command line.")]
struct ProbeLine {
    /// Take about five seconds instead of half a minute
    #[arg(long)]
    quick: bool,

    /// Measure this job alone, or each job that is named so
    #[arg(long, value_name = "JOB", value_parser = PossibleValuesParser::new(probe::job_names()))]
    only: Vec<String>,

    /// Write JSON instead of a table
    #[arg(long)]
    json: bool,

    /// Draw a picture (SVG) into this file as well
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

impl From<ProbeLine> for probe::Options {
    fn from(line: ProbeLine) -> probe::Options {
        probe::Options { json: line.json, plot: line.plot, is_quick: line.quick, only: line.only }
    }
}

fn check_long_help() -> String {
    format!(
        "Examples:
  sanderling check
  sanderling check --config /etc/sanderling/sanderling.toml
  sanderling check --zone example.com=example.com.zone

A configuration file with every key but the limits:
  workers = 4                         # threads that serve; one for each processor if left out

  [http]
  listen = [\"0.0.0.0:80\", \"[::]:80\"]  # where to answer HTTP; 127.0.0.1:8080 if left out
  default = \"example.com\"             # whose site answers requests for an address

  [dns]
  listen = [\"0.0.0.0:53\", \"[::]:53\"]  # where to answer DNS; 127.0.0.1:5353 if left out

  [domain.\"example.com\"]              # any number of these, each with a site, a zone or both
  site = \"public\"                     # a folder; paths start at the file's own folder
  aliases = [\"www.example.com\"]       # other names of the site
  zone = \"example.com.zone\"           # a zone file

Limits, with their values if left out:
  [limits]
{}
Exit status: 0 if there are no errors, 1 if there are some, 2 for a wrong command line.",
        limits_help()
    )
}

/// The first configuration file in `places`, for `command` to serve or to check.
fn find_file(command: &str, places: &SearchPaths) -> Result<ConfigSource, clap::Error> {
    if let Some(file) = places.find() {
        return Ok(ConfigSource::File(file));
    }
    let usual: Vec<String> = places.defaults().iter().map(|path| format!("  {}", path.display())).collect();
    let folder = if command == "serve" { "  sanderling serve FOLDER                  a web site\n" } else { "" };
    let message = format!(
        "there is nothing to {command}: no configuration file was found

Looked for, as {CONFIG_VARIABLE} names none:
{}

Name what you want to {command}:
{folder}  sanderling {command} --zone NAME=FILE        a zone
  sanderling {command} --config FILE           all that a configuration file names
  sanderling demo                          the built-in domain, to see it work",
        usual.join("\n")
    );
    Err(usage_error(command, ErrorKind::MissingRequiredArgument, &message))
}

/// An error of the command line in clap's own form, with the usage of `command`.
fn usage_error(command: &str, kind: ErrorKind, message: &str) -> clap::Error {
    let mut line = Line::command();
    line.build();
    match line.find_subcommand_mut(command) {
        Some(subcommand) => subcommand.error(kind, message),
        None => line.error(kind, message),
    }
}

#[cfg(test)]
mod tests;
