//! The command line, parsed into a command with well-formed arguments.

mod dnssec;
mod doctor;
mod config;
mod state;
mod zone;
mod domain;
mod init;
mod control;
mod generate;
mod manual_page;
mod import;
mod search;

use crate::config_listing::ConfigListing;
use crate::folder_zone::FolderZone;
use crate::import_command::ImportCommand;
use crate::init::Init;
use crate::publication::{Publication, Release};
use crate::renewal_command::RenewalCommand;
use crate::state_files::{StateAction, StateCommand};
use clap::builder::PossibleValuesParser;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};
use config::ConfigArgs;
use control::ControlArgs;
use doctor::DoctorArgs;
use domain::DomainArgs;
use import::ImportArgs;
use init::InitArgs;
use sanderling_config::{
    ConfigSource, DomainName, EXAMPLE, Flags, ProxyFlag, SearchPaths, Zone, limits_help, parse_listen_address,
    parse_proxy_argument, parse_zone_argument,
};
use sanderling_doctor as doctor_command;
use sanderling_ipc::control_path::RuntimeEnv;
use sanderling_ipc::{Command as Request, StatusFormat, ZoneCommand};
use sanderling_probe as probe;
use sanderling_server_process::CheckOptions;
use sanderling_top as top;
use search::find_file;
use state::StateArgs;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use control::ControlRequest;
pub(crate) use generate::GenerateArgs;

/// The examples of `--help`.
macro_rules! examples {
    () => {
        "Examples:
  sanderling demo                       serve a built-in domain on this machine
  sanderling serve public               serve the directory `public` at http://127.0.0.1:8080/
  sanderling serve                      serve the configuration in sanderling.toml
  sanderling init example.com           write a configuration, a zone and a site to begin with
  sanderling check                      check sanderling.toml first
  sanderling doctor                     what the world sees: what is wrong, and what to do
  sanderling probe                      measure this machine
  sanderling status                     show the status of the running server
  sanderling top                        live view, refreshed every second
  sanderling reload                     reload its configuration
  sanderling publish example.com DIR    make DIR the current release of a site
  sanderling zone show example.com      show a zone as it is served
  sanderling zone add example.com FILE  add a zone to the zone folder
  sanderling import nginx FILE          translate the configuration of another server
"
    };
}

/// The end of `check -h`.
const CHECK_HELP: &str = "Examples:
  sanderling check
  sanderling check --config /etc/sanderling/sanderling.toml
  sanderling check --zone example.com=example.com.zone
  sanderling check --strict --json

Exit status: 0 without errors, 1 with errors, 2 for a wrong command line.";

/// A parsed command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Invocation {
    pub(crate) command: Command,
    /// The values of all `--force`, in the order of the command line. The crate `os` knows the features.
    pub(crate) forced: Vec<String>,
}

/// The remedy.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Serve the built-in domain.
    Demo { http: SocketAddr, https: SocketAddr, dns: SocketAddr, site: Option<PathBuf> },
    /// Supervise a server process.
    Serve {
        source: ConfigSource,
        /// The argument of `--control`.
        control: Option<PathBuf>,
        /// The argument of `--state`.
        state: Option<PathBuf>,
    },
    /// Serve with the state inherited from a supervisor.
    ServerProcess {
        source: ConfigSource,
        /// The control socket's path.
        control: Option<PathBuf>,
        /// The state folder, if there are transferred zones.
        state: Option<PathBuf>,
        /// Zones that are loaded even if they have lost records or their serial went back.
        forced_zones: Vec<DomainName>,
    },
    /// Exchange data with other servers, with the state inherited from a supervisor.
    Agent {
        source: ConfigSource,
        /// The state folder.
        state: PathBuf,
    },
    /// Hold private keys with the state inherited from a supervisor.
    Keeper {
        source: ConfigSource,
        /// The state folder, if zones are signed.
        state: Option<PathBuf>,
    },
    /// Run the command of a domain whose certificate was renewed.
    RunOnRenew(RenewalCommand),
    /// Report the configuration's errors.
    Check(ConfigSource, CheckOptions),
    /// Write the files of a domain to begin with.
    Init(Init),
    /// Print the effective configuration.
    Config(ConfigListing),
    /// Look at the server and its domains as the world sees them.
    Doctor(doctor_command::Options),
    /// Measure kernel features.
    Probe(probe::Options),
    /// Switch a site to another release.
    Publish(Publication),
    /// Change the zone folder.
    FolderZone(FolderZone),
    /// Copy the content of the state folder.
    State(StateCommand),
    /// Control the running server.
    Control(ControlRequest),
    /// Show a live view of the running server.
    Top(ControlRequest, top::Options),
    /// Translate the configuration of another server.
    Import(ImportCommand),
    /// Write manual pages or completions.
    Generate(GenerateArgs),
}

impl Invocation {
    /// Parses `arguments`, the first of which is the program's name. A configuration file that they do not give is
    /// looked for in `search_paths`, and the control socket of the running server in `env`.
    ///
    /// # Errors
    /// Returns everything that ends the program here, `--help` included. The error's `exit` prints it and exits with 0
    /// or 2.
    pub(crate) fn parse(
        arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>,
        search_paths: &SearchPaths,
        env: &RuntimeEnv,
    ) -> Result<Invocation, clap::Error> {
        let cli = Cli::try_parse_from(arguments)?;
        let control = |name: &str, request: Result<ControlRequest, String>| match request {
            Ok(request) => Ok(Command::Control(request)),
            Err(problem) => Err(usage_error(name, ErrorKind::MissingRequiredArgument, &problem)),
        };
        let command = match cli.command {
            CliCommand::Demo(DemoArgs { http, https, dns, site }) => Command::Demo { http, https, dns, site },
            CliCommand::Serve(mut serve) => {
                let (control, state) = (serve.control.take(), serve.state.take());
                Command::Serve { control, state, source: serve.source(search_paths)? }
            }
            CliCommand::ServerProcess { mut serve, forced_zones } => Command::ServerProcess {
                control: serve.control.take(),
                state: serve.state.take(),
                source: serve.source(search_paths)?,
                forced_zones,
            },
            CliCommand::Agent { mut serve } => {
                let state = serve.state.take().unwrap_or_default();
                Command::Agent { state, source: serve.source(search_paths)? }
            }
            CliCommand::Keeper { mut serve } => {
                let state = serve.state.take();
                Command::Keeper { state, source: serve.source(search_paths)? }
            }
            CliCommand::OnRenew { domain, state, timeout_ms, command } => {
                let timeout = Duration::from_millis(timeout_ms);
                Command::RunOnRenew(RenewalCommand { domain, state, timeout, command })
            }
            CliCommand::Check(check) => {
                let options = CheckOptions { is_strict: check.strict, is_json: check.json };
                Command::Check(check.source(search_paths)?, options)
            }
            CliCommand::Init(init) => Command::Init(init.into()),
            CliCommand::Config(config) => Command::Config(config.listing(search_paths)?),
            CliCommand::Doctor(doctor) => Command::Doctor(doctor.options(search_paths, env)?),
            CliCommand::Probe(probe) => Command::Probe(probe.into()),
            CliCommand::Status { json, metrics, verbose, control: arguments } => {
                let request = Request::Status(status_format(json, metrics, verbose));
                control("status", arguments.request(request, search_paths, env))?
            }
            CliCommand::Reload { zone, forced_zones, control: arguments } => {
                let request = reload_request(zone, &forced_zones)?;
                control("reload", arguments.request(request, search_paths, env))?
            }
            CliCommand::Publish { name, folder, arguments } => {
                let source = arguments.source("publish", search_paths)?;
                Command::Publish(arguments.publication(name, Release::Folder(folder), source, (search_paths, env)))
            }
            CliCommand::Rollback { name, arguments } => {
                let source = arguments.source("rollback", search_paths)?;
                Command::Publish(arguments.publication(name, Release::Previous, source, (search_paths, env)))
            }
            CliCommand::Dnssec { command } => command.command(search_paths, env)?,
            CliCommand::Zone { command } => command.command(search_paths, env)?,
            CliCommand::Certificates { name, json, control: arguments } => {
                let command = Request::Certificates { name: name.map(|name| name.to_string()), is_json: json };
                control("certificates", arguments.request(command, search_paths, env))?
            }
            CliCommand::Renew { name, control: arguments } => {
                let command = Request::RenewCertificate { name: name.to_string() };
                control("renew", arguments.request(command, search_paths, env))?
            }
            CliCommand::Revoke { name, key_compromised, control: arguments } => {
                let command =
                    Request::RevokeCertificate { name: name.to_string(), is_key_compromised: key_compromised };
                control("revoke", arguments.request(command, search_paths, env))?
            }
            CliCommand::Export { name, folder, arguments } => {
                Command::State(arguments.command(StateAction::Export(name, folder), search_paths))
            }
            CliCommand::Backup { folder, arguments } => {
                Command::State(arguments.command(StateAction::Backup(folder), search_paths))
            }
            CliCommand::Upgrade(arguments) => {
                control("upgrade", arguments.request(Request::Upgrade, search_paths, env))?
            }
            CliCommand::Reopen(arguments) => control("reopen", arguments.request(Request::Reopen, search_paths, env))?,
            CliCommand::Stop(arguments) => control("stop", arguments.request(Request::Stop, search_paths, env))?,
            CliCommand::Top { once, interval, control: arguments } => {
                let options = top::Options { is_once: once, interval: Duration::from_secs(interval) };
                let request = Request::Status(StatusFormat::Metrics);
                match arguments.request(request, search_paths, env) {
                    Ok(request) => Command::Top(request, options),
                    Err(problem) => return Err(usage_error("top", ErrorKind::MissingRequiredArgument, &problem)),
                }
            }
            CliCommand::Import(import) => Command::Import(import.command()),
            CliCommand::Generate(generate) => Command::Generate(generate),
        };
        Ok(Invocation { command, forced: cli.forced })
    }
}

/// The definition of the command line, for manual pages and completions.
pub(crate) fn definition() -> clap::Command {
    Cli::command()
}

/// Sanderling serves a domain: its web site over HTTP and its zone over DNS.
#[derive(Debug, Parser)]
#[command(
    name = "sanderling",
    bin_name = "sanderling",
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    after_help = concat!(examples!(), "
See also: `sanderling help serve` for `serve`, and so on for every other command."),
    after_long_help = concat!(examples!(), "
Exit status:
  0   success
  1   a failure at run time; `check`, `doctor` or `status` found problems; the running server did not answer
      or refused
  2   the command line is wrong
  78  the configuration for `serve` is wrong

Environment:
  SANDERLING_CONFIG  the configuration file, unless an argument gives one
  RUNTIME_DIRECTORY  the directory of the control socket, unless its path is set; the default is
                     /run/sanderling for root, and $XDG_RUNTIME_DIR/sanderling for other users
  SANDERLING_FORCE   as --force, several separated by commas; --force takes precedence
  NO_COLOR           if not empty, messages have no colour

See also: `sanderling help serve` for `serve`, and so on for every other command.")
)]
struct Cli {
    #[command(subcommand)]
    command: CliCommand,

    /// Force VARIANT of a kernel FEATURE, for example udp-io=recvmsg
    ///
    /// For tests and diagnosis.
    #[arg(long = "force", value_name = "FEATURE=VARIANT", global = true, hide_short_help = true, display_order = 100)]
    forced: Vec<String>,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    Demo(DemoArgs),
    Serve(ServeArgs),
    /// The server process; `serve` starts it.
    #[command(name = "internal-server-process", hide = true)]
    ServerProcess {
        #[command(flatten)]
        serve: ServeArgs,
        #[arg(long = "force-zone", value_parser = parse_zone_name)]
        forced_zones: Vec<DomainName>,
    },
    /// The process that requests certificates, transfers zones and notifies secondaries; `serve` starts it.
    #[command(name = "internal-agent", hide = true)]
    Agent {
        #[command(flatten)]
        serve: ServeArgs,
    },
    /// The process that holds the private keys; `serve` starts it.
    #[command(name = "internal-keeper", hide = true)]
    Keeper {
        #[command(flatten)]
        serve: ServeArgs,
    },
    /// The process that runs `on_renew` of a domain; `serve` starts it.
    #[command(name = "internal-on-renew", hide = true)]
    OnRenew {
        #[arg(value_parser = parse_zone_name)]
        domain: DomainName,
        state: PathBuf,
        timeout_ms: u64,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    Init(InitArgs),
    Check(CheckArgs),
    Config(ConfigArgs),
    Doctor(DoctorArgs),
    Probe(ProbeArgs),
    /// Show the running server's status
    ///
    /// The server's addresses, processes with their uptime, problems, and counters.
    #[command(after_help = "Examples:
  sanderling status
  sanderling status --verbose                               with all threads, sites and zones
  sanderling status --json                                  for programs
  sanderling status --metrics                               as a Prometheus server collects them
  sanderling status --control /run/sanderling/control.sock

Exit status: 0 if everything is served as configured, 1 if the server does not answer or a site, zone,
certificate, TSIG key, process or log has a problem (with --metrics only if it does not answer),
2 for a wrong command line.")]
    Status {
        /// Write JSON instead of text
        #[arg(long)]
        json: bool,
        /// Write the metrics in OpenMetrics format
        #[arg(long, conflicts_with_all = ["json", "verbose"])]
        metrics: bool,
        /// List all threads, sites and zones
        #[arg(long, conflicts_with = "json")]
        verbose: bool,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Show a live view of the running server
    ///
    /// Requests, queries and bytes per second, response times, connections, cache hits, the busiest sites and zones,
    /// certificates, and limits that were reached. Sites, zones and times need the section `[metrics]` of the
    /// configuration.
    #[command(after_help = "Keys: q or Ctrl-C quits, p pauses, s sorts sites and zones by rate, errors, bytes or name.

Examples:
  sanderling top
  sanderling top --once                 one page as text, for scripts

Exit status: 0 after q or with --once, 1 if the server does not answer, 2 for a wrong command line.")]
    Top {
        /// Print one page as text, and exit
        #[arg(long)]
        once: bool,
        /// Time between two refreshes
        #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = |text: &str| parse_number(text, 3_600))]
        interval: u64,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Reload configuration and zones
    ///
    /// With NAME, only this zone is reloaded, or loaded if it is a new file in the zone folder; the configuration file
    /// is not read.
    ///
    /// A configuration file with errors is refused, and the server keeps the current one. A zone or site that cannot be
    /// loaded does not affect the others: its last good version stays in service. Errors and changes are printed. Where
    /// possible, no connection is closed. SIGHUP to the server does the same, with errors and changes in its log.
    #[command(after_help = "Examples:
  sanderling check && sanderling reload
  sanderling reload --config /etc/sanderling/sanderling.toml
  sanderling reload example.com                 only this zone
  sanderling reload --force-zone example.com    after half of its records were deleted on purpose

Exit status: 0 if everything is in effect, 1 if the configuration was refused, a zone or site could
not be loaded, or the server did not answer, 2 for a wrong command line.")]
    Reload {
        /// The zone to reload, instead of everything that has changed
        #[arg(value_name = "NAME", value_parser = parse_zone_name)]
        zone: Option<DomainName>,
        /// Reload zone NAME even if it has lost many records or its serial went back; can be repeated
        #[arg(long = "force-zone", value_name = "NAME", value_parser = parse_zone_name)]
        forced_zones: Vec<DomainName>,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Make a folder the current release of a site atomically
    ///
    /// The key `site` of the domain is the path of a symbolic link, such as `releases/current`; FOLDER is a folder next
    /// to the link. The link is switched atomically, and the server is notified. Requests in progress get the previous
    /// release. Files of the last two releases with a hash of their content in their name are still served. If the
    /// server cannot serve the folder, the link is switched back.
    #[command(after_help = "Examples:
  cp -r dist /srv/example/releases/2026-11-23
  sanderling publish example.com /srv/example/releases/2026-11-23

Exit status: 0 if the folder is the current release, 1 if it is not or the server did not confirm it, 2
for a wrong command line.")]
    Publish {
        /// The domain of the site
        #[arg(value_name = "NAME", value_parser = parse_zone_name)]
        name: DomainName,
        /// The folder of the new release
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
        #[command(flatten)]
        arguments: DomainArgs,
    },
    /// Roll a site back to its previous release
    ///
    /// A second rollback undoes the first one.
    #[command(after_help = "Examples:
  sanderling rollback example.com

Exit status: 0 if the previous release is current, 1 if there is none or the server did not confirm it, 2
for a wrong command line.")]
    Rollback {
        /// The domain of the site
        #[arg(value_name = "NAME", value_parser = parse_zone_name)]
        name: DomainName,
        #[command(flatten)]
        arguments: DomainArgs,
    },
    /// List the running server's zones, show a zone or its state, add or remove one
    Zone {
        #[command(subcommand)]
        command: zone::ZoneArgs,
    },
    /// Show, replace, export or import the keys of a zone that the server signs
    Dnssec {
        #[command(subcommand)]
        command: dnssec::DnssecArgs,
    },
    /// Show the automatic certificates
    ///
    /// For each: its names, its issuer, the time until it expires, the time of and reason for the next order, and the
    /// last error with its remedy. Certificates from files are in `sanderling status`.
    #[command(after_help = "Examples:
  sanderling certificates                 all of them
  sanderling certificates example.com     one of them
  sanderling certificates --json          for programs

Exit status: 0 if the server answers, 1 if it does not, or has no such automatic certificate, 2 for a
wrong command line.")]
    Certificates {
        /// The domain, or another name of the certificate
        #[arg(value_name = "NAME", value_parser = parse_zone_name)]
        name: Option<DomainName>,
        /// Write JSON instead of text
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Request a certificate now
    ///
    /// Before it is due, or after an error was corrected. The current certificate stays in service until the new one is
    /// issued.
    #[command(after_help = "Examples:
  sanderling renew example.com

Exit status: 0 if it was issued, 1 if not or if the server did not answer, 2 for a wrong command
line.")]
    Renew {
        /// The domain, or another name of the certificate
        #[arg(value_name = "NAME", value_parser = parse_zone_name)]
        name: DomainName,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Revoke a certificate, and request a replacement
    ///
    /// The replacement has a new key, and is requested first, so that the site stays available. If that fails, nothing
    /// is revoked.
    #[command(after_help = "Examples:
  sanderling revoke example.com
  sanderling revoke example.com --key-compromised   someone else may have the private key

Exit status: 0 if it was revoked, 1 if not or if the server did not answer, 2 for a wrong command
line.")]
    Revoke {
        /// The domain, or another name of the certificate
        #[arg(value_name = "NAME", value_parser = parse_zone_name)]
        name: DomainName,
        /// Tell the authority that someone else may have the private key
        #[arg(long)]
        key_compromised: bool,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Write a certificate and its key for another program
    ///
    /// To `privkey.pem`, `fullchain.pem`, and `combined.pem` with both, the key first. An existing file keeps its owner
    /// and mode; only this user can read new ones, except the chain. The server does not need to run.
    #[command(after_help = "Examples:
  sanderling export mail.example.com /etc/postfix/tls

Exit status: 0 if the files were written, 1 if not, 2 for a wrong command line.")]
    Export {
        /// The domain
        #[arg(value_name = "NAME", value_parser = parse_zone_name)]
        name: DomainName,
        /// The folder of the files
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
        #[command(flatten)]
        arguments: StateArgs,
    },
    /// Make a consistent copy of the state folder
    ///
    /// The copy contains certificates, private keys, accounts and transferred zones; only this user can read it. The
    /// server can run while it is copied. To restore the copy, stop the server and replace the folder with it.
    #[command(after_help = "Examples:
  sanderling backup /var/backups/sanderling-1
  tar -C /var/backups/sanderling-1 -cf sanderling.tar .   as one file

Exit status: 0 if everything was copied, 1 if not, 2 for a wrong command line.")]
    Backup {
        /// The new folder
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
        #[command(flatten)]
        arguments: StateArgs,
    },
    /// Switch to the newly installed binary without closing sockets
    ///
    /// The process ID stays the same, and no client is refused meanwhile. Downloads that take longer than
    /// `drain_timeout` are aborted. If the new program cannot serve, the old one is kept. SIGUSR2 to the server does
    /// the same, with the errors in its log.
    #[command(after_help = "Examples:
  sanderling upgrade                    after a new version was installed

Exit status: 0 if the new program serves, 1 if the old one still does or did not answer, 2 for a
wrong command line.")]
    Upgrade(ControlArgs),
    /// Reopen the logs of requests
    ///
    /// After another program, such as logrotate, has renamed them. SIGUSR1 to the server does the same. Logs with the
    /// key `rotate` do not need it.
    #[command(after_help = "Examples:
  mv access.log access.log.1 && sanderling reopen

Exit status: 0 if later lines are in a new file, 1 if it cannot be opened or the server did not
answer, 2 for a wrong command line.")]
    Reopen(ControlArgs),
    /// Stop the running server gracefully
    ///
    /// The server answers the requests that have been received or arrive within 200 ms, accepts no more connections,
    /// and exits when all requests are finished or `drain_timeout` has passed. SIGTERM to the server does the same; a
    /// second SIGTERM stops it immediately.
    #[command(after_help = "Examples:
  sanderling stop
  sanderling stop --timeout 600         if drain_timeout is long

Exit status: 0 if the server has stopped, 1 if it has not or did not answer, 2 for a wrong command
line.")]
    Stop(ControlArgs),
    Import(ImportArgs),
    #[command(hide = true)]
    Generate(GenerateArgs),
}

/// Serve a small built-in domain on localhost
///
/// The site and the zone are part of the program. The command prints the addresses, and `curl` and `dig` commands to
/// try. Ctrl-C stops it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sanderling demo
  sanderling demo --site public                                                your own site
  sanderling demo --http 127.0.0.1:0 --https 127.0.0.1:0 --dns 127.0.0.1:0     on free ports")]
struct DemoArgs {
    /// Listen address for HTTP; port 0 selects a free port
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8080", value_parser = parse_listen_address)]
    http: SocketAddr,

    /// Listen address for HTTPS, with a self-signed certificate; port 0 selects a free port
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8443", value_parser = parse_listen_address)]
    https: SocketAddr,

    /// Listen address for DNS, over UDP and TCP; port 0 selects a free port
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:5353", value_parser = parse_listen_address)]
    dns: SocketAddr,

    /// Serve the files in this directory instead of the built-in site
    #[arg(long, value_name = "FOLDER")]
    site: Option<PathBuf>,
}

/// Serve a directory over HTTP, zones over DNS, or everything in a configuration file
///
/// What to serve is given by arguments or by a configuration file, not by both. Without arguments, the file is
/// $SANDERLING_CONFIG, else ./sanderling.toml, else /etc/sanderling/sanderling.toml.
///
/// When the server is ready, it prints each listen address: `http 127.0.0.1:8080`.
#[derive(Debug, Args)]
#[command(
    override_usage = "sanderling serve [FOLDER] [--proxy [PATH=]ADDRESS]... [--http ADDR:PORT]... \
                      [--https ADDR:PORT]... [--certificate FILE --key FILE] \
                      [--zone NAME=FILE]... [--dns ADDR:PORT]... [--workers N] [--control PATH]\n       sanderling serve [--config FILE] [--control PATH]",
    after_help = "Examples:
  sanderling serve public
      the directory `public` at http://127.0.0.1:8080/
  sanderling serve public --http 0.0.0.0:80 --http [::]:80
      the same for all machines
  sanderling serve public --https 127.0.0.1:8443
      also over HTTPS on this machine, with a self-signed certificate
  sanderling serve public --proxy /api/=127.0.0.1:3000
      the directory, and an application below /api/
  sanderling serve --proxy 127.0.0.1:3000 --https 127.0.0.1:8443
      an application alone, also over HTTPS
  sanderling serve --zone example.com=example.com.zone
      a zone at 127.0.0.1, port 5353, over UDP and TCP
  sanderling serve --config /etc/sanderling/sanderling.toml
      any number of sites and zones

Exit status: 0 if the server was stopped, 1 after a failure, 2 for a wrong command line, 78 for a
wrong configuration, after which a restart does not help."
)]
struct ServeArgs {
    /// The directory to serve, for every host
    #[arg(value_name = "FOLDER")]
    directory: Option<PathBuf>,

    /// An application that answers below a path, or for the whole host; can be repeated
    ///
    /// ADDRESS is 127.0.0.1:3000, http://127.0.0.1:3000 or unix:/run/app.sock. PATH begins with `/`, for example
    /// /api/=127.0.0.1:3000. Without PATH, the application answers all requests, but those for files of FOLDER if there
    /// is one.
    #[arg(long = "proxy", value_name = "[PATH=]ADDRESS", value_parser = parse_proxy_argument)]
    proxies: Vec<ProxyFlag>,

    /// List directories without an index.html
    #[arg(long, requires = "directory")]
    listing: bool,

    /// Listen address for HTTP; can be repeated; port 0 selects a free port [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_listen_address)]
    http: Vec<SocketAddr>,

    /// Listen address for HTTPS; can be repeated; port 0 selects a free port
    ///
    /// Without --certificate, the server makes a self-signed certificate for localhost, and listens on loopback
    /// addresses only.
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_listen_address)]
    https: Vec<SocketAddr>,

    /// The certificate for HTTPS, followed by its chain, in PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,

    /// The certificate's private key, in PEM
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,

    /// A zone and its zone file; can be repeated
    #[arg(long = "zone", value_name = "NAME=FILE", value_parser = parse_zone_argument)]
    zones: Vec<Zone>,

    /// Listen address for DNS, over UDP and TCP; can be repeated; port 0 selects a free port [default: 127.0.0.1:5353]
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_listen_address)]
    dns: Vec<SocketAddr>,

    /// Other servers have this option
    #[arg(long, short, value_name = "PORT", hide = true)]
    port: Option<String>,

    /// Worker threads [default: one per processor]
    #[arg(long, value_name = "N", value_parser = |text: &str| parse_number(text, 1024))]
    workers: Option<u64>,

    /// The configuration file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["directory", "proxies", "listing", "http", "https", "certificate", "key", "zones", "dns", "workers"])]
    config: Option<PathBuf>,

    /// The control socket, for `sanderling status`, `reload`, `upgrade` and `stop`
    ///
    /// With a configuration file the default is the key `control`, else $RUNTIME_DIRECTORY/control.sock, else
    /// /run/sanderling/control.sock for root and $XDG_RUNTIME_DIR/sanderling/control.sock for other users. Without a
    /// configuration file there is none by default.
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,

    /// The folder for certificates, keys and accounts
    ///
    /// The default is the key `state`, else $STATE_DIRECTORY, else /var/lib/sanderling for root.
    #[arg(long, value_name = "FOLDER")]
    state: Option<PathBuf>,
}

fn parse_zone_name(name: &str) -> Result<DomainName, String> {
    DomainName::parse_argument(name).map_err(|problem| problem.to_string())
}

impl ServeArgs {
    fn source(self, search_paths: &SearchPaths) -> Result<ConfigSource, clap::Error> {
        if let Some(port) = &self.port {
            let message = format!(
                "`serve` has no option --port; use --http ADDR:PORT, for example --http 127.0.0.1:{port} for this \
                 machine only or --http 0.0.0.0:{port} for all"
            );
            return Err(usage_error("serve", ErrorKind::UnknownArgument, &message));
        }
        if let Some(file) = self.config {
            return Ok(ConfigSource::File(file));
        }
        let has_site = self.directory.is_some() || !self.proxies.is_empty();
        let problem = if !has_site && !self.http.is_empty() {
            Some("`--http` needs a FOLDER to serve: sanderling serve FOLDER --http ADDR:PORT")
        } else if !has_site && !self.https.is_empty() {
            Some("`--https` needs a FOLDER to serve: sanderling serve FOLDER --https ADDR:PORT")
        } else if self.https.is_empty() && self.certificate.is_some() {
            Some("`--certificate` needs an address for HTTPS: add --https ADDR:PORT")
        } else if self.zones.is_empty() && !self.dns.is_empty() {
            Some("`--dns` needs a zone to serve: add --zone NAME=FILE")
        } else if !has_site && self.zones.is_empty() && self.workers.is_some() {
            Some("`--workers` needs a FOLDER or --zone; in a configuration file it is the key `workers`")
        } else {
            None
        };
        if let Some(problem) = problem {
            return Err(usage_error("serve", ErrorKind::MissingRequiredArgument, problem));
        }
        if !has_site && self.zones.is_empty() {
            return find_file("serve", search_paths);
        }
        Ok(ConfigSource::Flags(Flags {
            directory: self.directory,
            proxies: self.proxies,
            listing: self.listing,
            http_listen: self.http,
            https_listen: self.https,
            certificate: self.certificate.zip(self.key),
            zones: self.zones,
            dns_listen: self.dns,
            worker_count: self.workers.map(|count| count as usize),
        }))
    }
}

/// Check a configuration file with its zones and sites
///
/// Each error is printed as FILE:LINE:COLUMN: PROBLEM; REMEDY, on a terminal with its source line. No socket is opened,
/// so you can run it while a server is running. As root, it reads sites and zones as the configured user. Without
/// arguments, the file is $SANDERLING_CONFIG, else ./sanderling.toml, else /etc/sanderling/sanderling.toml.
#[derive(Debug, Args)]
#[command(after_help = CHECK_HELP, after_long_help = check_long_help())]
struct CheckArgs {
    /// The configuration file
    #[arg(long, value_name = "FILE", conflicts_with = "zones")]
    config: Option<PathBuf>,

    /// A zone and its zone file instead of a configuration file; can be repeated
    #[arg(long = "zone", value_name = "NAME=FILE", value_parser = parse_zone_argument)]
    zones: Vec<Zone>,

    /// Exit with 1 even if there are only warnings
    #[arg(long)]
    strict: bool,

    /// Print the problems as JSON
    #[arg(long)]
    json: bool,
}

impl CheckArgs {
    fn source(self, search_paths: &SearchPaths) -> Result<ConfigSource, clap::Error> {
        match self.config {
            Some(file) => Ok(ConfigSource::File(file)),
            None if self.zones.is_empty() => find_file("check", search_paths),
            None => Ok(ConfigSource::Flags(Flags { zones: self.zones, ..Flags::default() })),
        }
    }
}

/// Measure what each variant of a kernel feature costs on this machine
///
/// The command measures each supported variant in many short slices in random order, so that other load has little
/// influence. The report names the variant that the server uses. Sockets use the loopback interface and ports that the
/// kernel chooses, so you can run it while a server is running.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sanderling probe
  sanderling probe --quick --only cloexec --only stat
  sanderling probe --json > machine.json    to compare machines

Exit status: 0, even if the report says that something cannot be measured; 1 if the report cannot
be written; 2 for a wrong command line.")]
struct ProbeArgs {
    /// Take about five seconds instead of half a minute
    #[arg(long)]
    quick: bool,

    /// Measure only NAME; can be repeated
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(probe::measurement_names()))]
    only: Vec<String>,

    /// Write JSON instead of a table
    #[arg(long)]
    json: bool,
}

impl From<ProbeArgs> for probe::Options {
    fn from(arguments: ProbeArgs) -> probe::Options {
        let ProbeArgs { quick, only, json } = arguments;
        probe::Options { json, is_quick: quick, only }
    }
}

fn status_format(json: bool, metrics: bool, verbose: bool) -> StatusFormat {
    match (json, metrics, verbose) {
        (true, _, _) => StatusFormat::Json,
        (_, true, _) => StatusFormat::Metrics,
        (_, _, true) => StatusFormat::Verbose,
        (false, false, false) => StatusFormat::Text,
    }
}

/// The request to reload everything, or one zone.
fn reload_request(zone: Option<DomainName>, forced_zones: &[DomainName]) -> Result<Request, clap::Error> {
    let Some(zone) = zone else {
        return Ok(Request::Reload { forced_zones: forced_zones.iter().map(ToString::to_string).collect() });
    };
    if let Some(other) = forced_zones.iter().find(|forced| **forced != zone) {
        let message = format!("only the zone {zone} is reloaded, so {other} cannot be forced");
        return Err(usage_error("reload", ErrorKind::ArgumentConflict, &message));
    }
    let command = ZoneCommand::Reload { zone: zone.to_string(), is_forced: !forced_zones.is_empty() };
    Ok(Request::Zone(command))
}

fn check_long_help() -> String {
    let example: String = EXAMPLE.lines().map(|line| format!("{}\n", format!("  {line}").trim_end())).collect();
    format!(
        "{CHECK_HELP}

Configuration file: all keys, except the limits
{example}
Limits: their defaults
  [limits]
{}",
        limits_help()
    )
}

/// Parses an integer from 1 to `max`.
fn parse_number(text: &str, max: u64) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| (1..=max).contains(number));
    number.ok_or_else(|| format!("write an integer from 1 to {max}"))
}

/// An error of the command line as clap prints it, with the usage of `command`.
fn usage_error(command: &str, kind: ErrorKind, message: &str) -> clap::Error {
    let mut cli = Cli::command();
    cli.build();
    match cli.find_subcommand_mut(command) {
        Some(subcommand) => subcommand.error(kind, message),
        None => cli.error(kind, message),
    }
}

#[cfg(test)]
mod tests;
