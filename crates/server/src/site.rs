//! Sites: their hosts, options, and the rules that protect their files.

pub(crate) mod challenges;
pub(crate) mod mail_policies;
pub(crate) mod sites;
pub(crate) mod earlier_files;
pub(crate) mod protection;
pub(crate) mod script_path;
pub(crate) mod users;
