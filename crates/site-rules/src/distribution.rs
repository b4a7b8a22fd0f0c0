//! How requests are distributed among the servers of a backend, and when a server gets none.

use std::time::Duration;

/// Checks of a server that fail one after another before it gets no more requests.
pub const CHECK_FAILURES_MAX: u32 = 3;

/// How the requests of a backend are distributed among its servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Distribution {
    /// The choice of a server for a request.
    pub balance: Balance,
    /// The header before the request on its connection.
    pub client_header: ClientHeader,
    /// Responses with 502, 503 or 504, or requests without a response in time, one after another, after which a server
    /// counts as down; `None` if they never count.
    pub errors_max: Option<u32>,
    /// How long the share of a server rises that was down.
    pub slow_start: Duration,
    /// The active check; `None` if there is none.
    pub check: Option<HealthCheck>,
}

/// The choice of a server for a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Balance {
    /// The one with the least requests in progress, relative to its weight.
    #[default]
    Least,
    /// The same one for the same address of a client.
    Client,
    /// The one that the cookie with this name names; without it, the least loaded one, and a cookie for later requests.
    Cookie(String),
}

/// The header before a request on its connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ClientHeader {
    /// Nothing.
    #[default]
    None,
    /// A header of the PROXY protocol, version 2, which names the client: its connection is for one request.
    ProxyV2,
}

/// A question at regular intervals whether a server answers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HealthCheck {
    /// The path of a GET request, to be answered with a status from 200 to 399; `None`: a connection suffices.
    pub path: Option<String>,
    /// The Host field of the request; `None` for the address of the server.
    pub host: Option<String>,
    /// Time from one check to the next one, and for its answer.
    pub interval: Duration,
}
