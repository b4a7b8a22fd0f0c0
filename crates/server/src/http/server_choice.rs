//! The properties of a request that decide which server of a backend answers it, and the header that names its client.

use crate::backends::client_hash;
use crate::http::asked::Asked;
use crate::log::access_log::LoggedUpstream;
use crate::net::call::{Affinity, CallHandle, Chosen, ResponseTime};
use crate::net::proxy_protocol;
use sanderling_http::Scheme;
use sanderling_site_rules::{Backend, Balance, ClientHeader};
use std::sync::Arc;

/// Which server of `backend` the request prefers.
pub(super) fn affinity_of(asked: &Asked<'_>, backend: &Backend) -> Affinity {
    match &backend.distribution.balance {
        Balance::Least => Affinity::None,
        Balance::Client => Affinity::Client(client_hash(asked.connection.client.ip())),
        Balance::Cookie(name) => place_of(asked, name).map_or(Affinity::None, Affinity::Place),
    }
}

/// The place of the server that the cookie `name` names. Every value is harmless: it may be that of a server, which the
/// client could have been given, or that of none.
fn place_of(asked: &Asked<'_>, name: &str) -> Option<u32> {
    str::from_utf8(asked.request.cookie(name.as_bytes())?).ok()?.parse().ok()
}

/// Appends the header of the PROXY protocol, if the backend gets one.
pub(super) fn put_client_header(asked: &Asked<'_>, backend: &Backend, out: &mut Vec<u8>) {
    if backend.distribution.client_header == ClientHeader::ProxyV2 {
        let local = asked.connection.transport.local_address();
        proxy_protocol::put(*asked.connection.client, local, out);
    }
}

/// The field line by which the client gets the cookie that names the server of its next requests; `None` if it needs
/// none. The cookie ends with the session of the browser, and scripts of pages do not see it.
pub(super) fn cookie_line(call: &CallHandle, asked: &Asked<'_>) -> Option<String> {
    let state = call.state();
    let Balance::Cookie(name) = &state.backend_route().backend.distribution.balance else { return None };
    let Chosen { place, .. } = state.chosen.as_ref()?;
    if state.request.affinity == Affinity::Place(*place) {
        return None;
    }
    let secure = if asked.scheme() == Scheme::Https { "; Secure" } else { "" };
    Some(format!("Set-Cookie: {name}={place}; Path=/; HttpOnly; SameSite=Lax{secure}\r\n"))
}

/// The server that got the request, for the access log.
pub(super) fn logged(call: &CallHandle) -> Option<LoggedUpstream> {
    let state = call.state();
    let Chosen { server, time, .. } = state.chosen.as_ref()?;
    let header_ms = match time {
        ResponseTime::Since(_) => None,
        ResponseTime::After(header_ms) => Some(*header_ms),
    };
    Some(LoggedUpstream { address: Arc::clone(server.name()), header_ms })
}
