//! The arguments of `import`.

use crate::import_command::ImportCommand;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use sanderling_import::SourceKind;
use std::path::PathBuf;

/// Translate the configuration of nginx, Caddy, BIND, NSD or Knot DNS
///
/// Reads the files and those that they include, and writes a configuration of Sanderling, and a report of what it
/// cannot express: each statement with its place, the reason, and the nearest way. The other server is not changed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sanderling import nginx /etc/nginx/nginx.conf --out sanderling.toml
  sanderling import caddy Caddyfile > sanderling.toml
  sanderling import named /etc/bind/named.conf --out sanderling.toml --report report.txt

Exit status: 0 if a configuration was written, 1 if a file cannot be read or parsed or nothing can be
served, 2 for a wrong command line.")]
pub(super) struct ImportArgs {
    /// The other server
    #[arg(value_name = "KIND", value_parser = kinds())]
    kind: SourceKind,

    /// Its configuration file; several are read as one
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// The configuration to write: a new file, or one with only comments [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// The report to write, a new file [default: standard error]
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// The kinds of configurations, by their names.
fn kinds() -> impl TypedValueParser<Value = SourceKind> {
    let find = |name: String| SourceKind::ALL.into_iter().find(|kind| kind.name() == name).ok_or("unknown kind");
    PossibleValuesParser::new(SourceKind::ALL.map(SourceKind::name)).try_map(find)
}

impl ImportArgs {
    pub(super) fn command(self) -> ImportCommand {
        ImportCommand { kind: self.kind, files: self.files, out: self.out, report: self.report }
    }
}
