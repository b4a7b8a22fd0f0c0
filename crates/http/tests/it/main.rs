//! Tests of whole requests and responses, against a site with a fixed set of files.

mod content_codings;
mod hostile;
mod multipart;
mod passed_messages;
mod preconditions;
mod properties;
mod responses;

mod site;
