//! A parser for each format.

pub(crate) mod nginx;
pub(crate) mod caddyfile;
pub(crate) mod named;
pub(crate) mod nsd;
pub(crate) mod knot;
