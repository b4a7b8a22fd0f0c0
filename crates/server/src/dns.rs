//! DNS messages other than queries to zones: transfers, NOTIFY and dynamic updates.

pub(crate) mod notify;
pub(crate) mod transfers;
pub(crate) mod updates;
pub(crate) mod received_updates;
