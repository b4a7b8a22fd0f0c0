//! Whole requests in, whole answers out, against a site that is a table.

mod site;

mod answers;
mod hostile;
mod conditions;
mod properties;
