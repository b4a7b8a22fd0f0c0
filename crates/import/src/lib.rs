//! Translates the configuration of nginx, Caddy, BIND, NSD and Knot: `sanderling import`.
//!
//! Each format has a parser, which makes statements, a table of its directives, and an interpreter, which makes a
//! model of the statements. One writer makes a configuration file of the model. What cannot be expressed is in the
//! [`Report`], statement by statement. This crate does no I/O: the files come from [`SourceFiles`].
#![forbid(unsafe_code)]

mod sources;
mod collected;
mod zone_rules;
mod settings;
mod http_sites;
mod backends;
mod place;
mod writer;
mod rules;
mod model;
mod toml_text;
mod networks;
mod regex;
mod table;
mod parsers;
mod source_files;
mod ledger;
mod syntax;

pub use ledger::{Note, NoteKind, Report};
pub use source_files::{FILE_BYTES_MAX, SourceFiles};
pub use sources::{Imported, SourceKind, import};
