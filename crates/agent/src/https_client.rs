//! The client of HTTPS for certificate authorities: one connection for each request, over HTTP/1.1. Time and size of an
//! answer are limited.

use crate::clock::unix_s;
use crate::host_addresses::look_up;
use crate::unverified_tls::{crypto_provider, unverified_config};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{DATE, HOST, HeaderValue, LOCATION, RETRY_AFTER};
use hyper::http::response::Parts;
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient, Problem};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use sanderling_http::HttpDate;
use serde::Deserialize;
use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Bytes of the longest answer: a certificate chain.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;
const PORT: u16 = 443;
/// The longest delay that an authority can ask for; each kind of wait has its own bound
/// ([`Failure::delay_s`](crate::failure::Failure::delay_s)).
const RETRY_AFTER_S_MAX: u64 = 7 * 24 * 3600;
/// The longest pause between two checks of an order in progress. Some ask for a day, although the certificate is ready
/// within seconds.
const POLL_PAUSE_S_MAX: u64 = 15;
/// The error of an authority that requires an action of the operator, on a page that it names (RFC 8555 §7.3.3).
const USER_ACTION_REQUIRED: &str = "urn:ietf:params:acme:error:userActionRequired";

/// A client that trusts some roots.
#[derive(Clone)]
pub(crate) struct HttpsClient {
    tls: TlsConnector,
    /// The time for a request and its answer.
    timeout: Duration,
}

impl HttpsClient {
    /// A client that trusts the roots in the file `root`, or the system's roots, and waits up to `timeout` for an
    /// answer.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or contains no root certificate, or the system has none.
    pub(crate) fn new(root: Option<&Path>, timeout: Duration) -> io::Result<HttpsClient> {
        let mut roots = RootCertStore::empty();
        match root {
            Some(path) => {
                for certificate in read_root(path)? {
                    roots.add(certificate).map_err(|error| unreadable_root(path, &error))?;
                }
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        if roots.is_empty() {
            return Err(io::Error::other("this machine has no trusted root certificates"));
        }
        let config = ClientConfig::builder_with_provider(Arc::new(crypto_provider()))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(HttpsClient { tls: TlsConnector::from(Arc::new(config)), timeout })
    }

    /// A client for [`HttpsClient::date`] alone: it accepts every certificate, since to a clock that is wrong, those of
    /// all servers seem expired.
    pub(crate) fn for_dates(timeout: Duration) -> HttpsClient {
        HttpsClient { tls: TlsConnector::from(unverified_config()), timeout }
    }

    /// The time of the server at `url`, in seconds since 1970, that its answer has (RFC 9110 §6.6.1).
    ///
    /// # Errors
    /// It does not answer, or does not say it.
    pub(crate) async fn date(&self, url: &str) -> Result<u64, String> {
        let request = Request::get(url).body(Full::<Bytes>::default()).map_err(|error| error.to_string())?;
        let answer = timeout(self.timeout, self.exchange(request)).await;
        let answer = answer.map_err(|_| "it does not answer in time".to_owned())?.map_err(|error| error.to_string())?;
        let date = answer.parts.headers.get(DATE).and_then(|date| HttpDate::parse_unix_s(date.as_bytes()));
        date.ok_or_else(|| "its answer has no date".to_owned())
    }

    /// Half of the time of a request is for all addresses: one that does not answer leaves time for the next one.
    async fn connect(&self, host: &str, port: u16) -> Result<TcpStream, String> {
        let addresses = look_up(host, port).await?;
        let time_max = self.timeout / 2 / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
        connect_to_first(&addresses, time_max).await
    }

    async fn exchange<B>(&self, mut request: Request<B>) -> Result<BytesResponse, BoxError>
    where
        B: hyper::body::Body + Send + Unpin + 'static,
        B::Data: Send,
        B::Error: Into<BoxError>,
    {
        let uri = request.uri().clone();
        let host = uri
            .host()
            .filter(|_| uri.scheme_str() == Some("https"))
            .ok_or("the authority sent a URL that is not https")?;
        let port = uri.port_u16().unwrap_or(PORT);
        let address = host.trim_matches(['[', ']']);
        let stream = self
            .connect(address, port)
            .await
            .map_err(|problem| format!("cannot connect to {host}, port {port}: {problem}"))?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(address.to_owned())?;
        let stream = self
            .tls
            .connect(name, stream)
            .await
            .map_err(|error| format!("no TLS connection to {host}: {}", tls_problem(&error)))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let authority = uri.authority().ok_or("a URL without a host")?.as_str();
        request.headers_mut().insert(HOST, HeaderValue::from_str(authority)?);
        *request.uri_mut() =
            Uri::builder().path_and_query(uri.path_and_query().map_or("/", |path| path.as_str())).build()?;
        let method = request.method().clone();
        let answer = async {
            let (mut parts, body) = sender.send_request(request).await.map_err(described)?.into_parts();
            // The library itself waits only for an order that is processing.
            let is_poll = method == Method::POST && parts.status.is_success();
            let delay_s_max = if is_poll { POLL_PAUSE_S_MAX } else { RETRY_AFTER_S_MAX };
            let retry_after_s = normalize_retry_after(&mut parts.headers, unix_s(), delay_s_max);
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await?.to_bytes();
            match AnswerError::of(method, &parts, &body, retry_after_s) {
                Some(error) => Err(error.into()),
                None => Ok::<_, BoxError>(BytesResponse::from(Response::from_parts(parts, Full::new(body)))),
            }
        };
        tokio::pin!(answer);
        tokio::select! {
            answer = &mut answer => answer,
            // The connection ends after the answer, or without one.
            ended = connection => {
                ended.map_err(described)?;
                answer.await
            }
        }
    }
}

/// The certificates in the PEM file of a root.
///
/// # Errors
/// It cannot be read.
pub(crate) fn read_root(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let certificates = CertificateDer::pem_file_iter(path).map_err(|error| unreadable_root(path, &error))?;
    certificates.map(|certificate| certificate.map_err(|error| unreadable_root(path, &error))).collect()
}

fn unreadable_root(path: &Path, error: &dyn fmt::Display) -> io::Error {
    io::Error::other(format!("cannot read the root {}: {error}", path.display()))
}

/// Tries the addresses in turn, each for at most `time_max`.
///
/// # Errors
/// Returns the reason why the last address did not accept the connection.
async fn connect_to_first(addresses: &[SocketAddr], time_max: Duration) -> Result<TcpStream, String> {
    let mut problem = "it has no address".to_owned();
    for address in addresses {
        match timeout(time_max, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => problem = format!("{error} ({})", address.ip()),
            Err(_) => problem = format!("no answer within {} s ({})", time_max.as_secs_f64(), address.ip()),
        }
    }
    Err(problem)
}

/// Converts the field Retry-After to a number of seconds, and returns that; removes the field if it does not match RFC
/// 9110 §10.2.3.
fn normalize_retry_after(headers: &mut HeaderMap, now_unix_s: u64, delay_s_max: u64) -> Option<u64> {
    let text = headers.remove(RETRY_AFTER)?;
    let text = text.as_bytes().trim_ascii();
    let seconds = if !text.is_empty() && text.iter().all(u8::is_ascii_digit) {
        // A number with too many digits is the maximum.
        std::str::from_utf8(text).ok()?.parse().unwrap_or(u64::MAX)
    } else {
        HttpDate::parse_unix_s(text)?.saturating_sub(now_unix_s)
    };
    let seconds = seconds.min(delay_s_max);
    headers.insert(RETRY_AFTER, seconds.into());
    Some(seconds)
}

/// The reason why the TLS connection failed, and the remedy. If the authority's certificate is not valid at this time,
/// this machine's clock is wrong more often than the authority.
fn tls_problem(error: &io::Error) -> Cow<'static, str> {
    use rustls::CertificateError as Problem;
    let Some(rustls::Error::InvalidCertificate(problem)) = error.get_ref().and_then(|error| error.downcast_ref())
    else {
        return error.to_string().into();
    };
    match problem {
        Problem::Expired | Problem::ExpiredContext { .. } => {
            "the server's certificate has expired; check the system clock".into()
        }
        Problem::NotValidYet | Problem::NotValidYetContext { .. } => {
            "the server's certificate is not valid yet; check the system clock".into()
        }
        Problem::UnknownIssuer => {
            "the server's certificate is issued by an untrusted root; set `root` of this authority in \
                [certificates] to a PEM file with its root certificate"
                .into()
        }
        Problem::NotValidForName | Problem::NotValidForNameContext { .. } => {
            "the server's certificate is not for this name; check `directory` of this authority in [certificates]"
                .into()
        }
        Problem::InvalidPurpose | Problem::InvalidPurposeContext { .. } => {
            "the server's certificate is for another purpose than TLS servers".into()
        }
        // The library has no variant for it.
        Problem::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            "the server presents a CA certificate; give it a certificate issued by this CA, and keep the CA as `root` \
                of this authority in [certificates]"
                .into()
        }
        other => format!("the server's certificate cannot be used: {other}").into(),
    }
}

fn described(error: hyper::Error) -> BoxError {
    match error.is_parse() {
        true => format!("the authority's response is not HTTP: {error}").into(),
        false => error.into(),
    }
}

/// An answer of the authority that the ACME library would not understand, or only in part.
#[derive(Debug)]
pub(crate) struct AnswerError {
    pub(crate) method: Method,
    pub(crate) status: StatusCode,
    /// The authority's description of the error, if any (RFC 8555 §6.7).
    pub(crate) problem: Option<Problem>,
    /// The number of seconds after which the server may retry, if the authority says so (RFC 8555 §6.6).
    pub(crate) retry_after_s: Option<u64>,
    /// The target of a redirect.
    pub(crate) location: Option<String>,
    /// The page that the operator should open (RFC 8555 §7.3.3).
    pub(crate) instance: Option<String>,
}

impl AnswerError {
    /// `None` if the library should see the answer: a success, or a refusal that is explained in its body.
    fn of(method: Method, answer: &Parts, body: &[u8], retry_after_s: Option<u64>) -> Option<AnswerError> {
        #[derive(Deserialize)]
        struct Instance {
            instance: Option<String>,
        }
        let status = answer.status;
        if status.is_success() {
            return None;
        }
        let problem: Option<Problem> = serde_json::from_slice(body).ok();
        let error = problem.as_ref().and_then(|problem| problem.r#type.as_deref());
        let needs_user = error == Some(USER_ACTION_REQUIRED);
        let is_limit = status == StatusCode::TOO_MANY_REQUESTS || retry_after_s.is_some();
        if status.is_client_error() && error.is_some() && !is_limit && !needs_user {
            return None;
        }
        let instance = serde_json::from_slice::<Instance>(body).ok().and_then(|it| it.instance);
        let location = answer.headers.get(LOCATION).filter(|_| status.is_redirection());
        let location = location.and_then(|location| location.to_str().ok()).map(str::to_owned);
        Some(AnswerError {
            method,
            status,
            problem,
            retry_after_s,
            location,
            instance: instance.filter(|_| needs_user),
        })
    }
}

impl fmt::Display for AnswerError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "the authority responded with status {}", self.status)?;
        self.location.as_ref().map_or(Ok(()), |location| write!(out, ", to {location}"))
    }
}

impl std::error::Error for AnswerError {}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl HttpClient for HttpsClient {
    fn request(
        &self,
        request: Request<BodyWrapper<hyper::body::Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let client = self.clone();
        Box::pin(async move {
            match timeout(client.timeout, client.exchange(request)).await {
                Ok(answered) => answered.map_err(Error::Other),
                Err(_) => {
                    let time = client.timeout.as_secs_f64();
                    Err(Error::Other(format!("the authority did not answer within {time} s").into()))
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpSocket;

    #[test]
    fn certificate_that_is_not_trusted_has_a_remedy() {
        #[derive(Debug)]
        struct CaUsedAsEndEntity;
        impl fmt::Display for CaUsedAsEndEntity {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a CA")
            }
        }
        impl std::error::Error for CaUsedAsEndEntity {}
        let of = |error| tls_problem(&io::Error::other(rustls::Error::InvalidCertificate(error))).into_owned();
        assert!(
            of(rustls::CertificateError::UnknownIssuer).contains("; set `root` of this authority in [certificates]")
        );
        assert!(of(rustls::CertificateError::Expired).ends_with("; check the system clock"));
        let ca = rustls::OtherError(Arc::new(CaUsedAsEndEntity));
        let text = of(rustls::CertificateError::Other(ca));
        assert!(text.starts_with("the server presents a CA certificate; give it a certificate"), "{text}");
        assert_eq!(tls_problem(&io::Error::other("reset")), "reset");
    }

    #[test]
    fn library_sees_what_it_understands() {
        let check = |status: u16, body: &str, retry_after_s, is_seen: bool| {
            let (parts, ()) = Response::builder().status(status).body(()).expect("an answer").into_parts();
            let error = AnswerError::of(Method::GET, &parts, body.as_bytes(), retry_after_s);
            assert_eq!(error.is_none(), is_seen, "{status} {body}");
        };
        let problem = "{\"type\":\"urn:ietf:params:acme:error:badNonce\"}";
        check(200, "", Some(1), true);
        check(400, problem, None, true);
        check(400, problem, Some(1), false);
        check(429, problem, None, false);
        check(404, "<h1>Not found</h1>", None, false);
        check(404, "{}", None, false);
        check(308, "", None, false);
        check(503, problem, None, false);
        let text =
            "{\"type\":\"urn:ietf:params:acme:error:userActionRequired\",\"instance\":\"https://ca.example/terms\"}";
        let (parts, ()) = Response::builder().status(403).body(()).expect("an answer").into_parts();
        let error = AnswerError::of(Method::POST, &parts, text.as_bytes(), None).expect("for the operator");
        assert_eq!(error.instance.as_deref(), Some("https://ca.example/terms"));
    }

    #[test]
    fn address_that_does_not_answer_leaves_time_for_the_next_one() {
        crate::testing::run(async {
            let socket = TcpSocket::new_v4().expect("created");
            socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("bound");
            let silent = socket.listen(0).expect("listens");
            let silent_address = silent.local_addr().expect("bound");
            let time_max = Duration::from_millis(100);
            // The kernel drops the requests for connections that its queue has no room for.
            let mut waiting = Vec::new();
            while let Ok(connected) = timeout(time_max, TcpStream::connect(silent_address)).await {
                waiting.push(connected.expect("connected"));
            }
            let good = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bound");
            let good = good.local_addr().expect("bound");
            let stream = connect_to_first(&[silent_address, good], time_max).await.expect("connected");
            assert_eq!(stream.peer_addr().expect("connected"), good);
            let problem = connect_to_first(&[silent_address], time_max).await.expect_err("silent");
            assert_eq!(problem, "no answer within 0.1 s (127.0.0.1)");
        });
    }

    #[test]
    fn delay_is_a_number_or_a_date() {
        let check = |text: &str, expected: Option<u64>| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, HeaderValue::from_str(text).expect("a value"));
            assert_eq!(normalize_retry_after(&mut headers, 784_111_777, RETRY_AFTER_S_MAX), expected, "{text}");
            let normalized = headers.get(RETRY_AFTER).map(|value| value.to_str().expect("text").to_owned());
            assert_eq!(normalized, expected.map(|seconds| seconds.to_string()), "{text}");
        };
        for (text, expected) in [
            ("0", Some(0)),
            (" 120 ", Some(120)),
            ("18446744073709551615", Some(RETRY_AFTER_S_MAX)),
            ("99999999999999999999999", Some(RETRY_AFTER_S_MAX)),
            ("Sun, 06 Nov 1994 09:49:37 GMT", Some(3_600)),
            ("Sunday, 06-Nov-94 08:49:38 GMT", Some(1)),
            ("Sun, 06 Nov 1994 07:49:37 GMT", Some(0)),
            ("Fri, 31 Dec 9999 23:59:59 GMT", Some(RETRY_AFTER_S_MAX)),
            ("", None),
            ("-1", None),
            ("+1", None),
            ("soon", None),
        ] {
            check(text, expected);
        }
        assert_eq!(normalize_retry_after(&mut HeaderMap::new(), 0, RETRY_AFTER_S_MAX), None);
        // While an order is processing.
        let mut headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static("86400"))]);
        assert_eq!(normalize_retry_after(&mut headers, 0, POLL_PAUSE_S_MAX), Some(POLL_PAUSE_S_MAX));
    }
}
