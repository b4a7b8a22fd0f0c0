//! Whole requests in, whole answers out, against a site that is a table.

mod answers;
mod codings;
mod conditions;
mod hostile;
mod properties;

mod site;
