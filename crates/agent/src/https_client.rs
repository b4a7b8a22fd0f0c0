//! The client of HTTPS for certificate authorities: one connection for each request, over HTTP/1.1. Time and size of an
//! answer are limited.

use crate::clock::unix_s;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{HOST, HeaderValue, RETRY_AFTER};
use hyper::{HeaderMap, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient, Problem};
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use sanderling_http::HttpDate;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Bytes of the longest answer: a certificate chain.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;
const PORT: u16 = 443;
/// The longest delay that an authority may ask for.
const RETRY_AFTER_S_MAX: u64 = 7 * 24 * 3600;

/// A client that trusts some roots.
#[derive(Clone)]
pub(crate) struct HttpsClient {
    tls: TlsConnector,
    /// For a request and its answer.
    timeout: Duration,
}

impl HttpsClient {
    /// A client that trusts the roots in the file `root`, or those of the system, and waits for `timeout` for an
    /// answer.
    ///
    /// # Errors
    /// The file cannot be read, or there is no root.
    pub(crate) fn new(root: Option<&Path>, timeout: Duration) -> io::Result<HttpsClient> {
        let mut roots = RootCertStore::empty();
        match root {
            Some(path) => {
                let failed = |error: &dyn std::fmt::Display| {
                    io::Error::other(format!("cannot read the root {}: {error}", path.display()))
                };
                for certificate in
                    rustls::pki_types::CertificateDer::pem_file_iter(path).map_err(|error| failed(&error))?
                {
                    let certificate = certificate.map_err(|error| failed(&error))?;
                    roots.add(certificate).map_err(|error| failed(&error))?;
                }
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        if roots.is_empty() {
            return Err(io::Error::other(
                "there is no root to trust; install the package ca-certificates, or set `root` of the authority",
            ));
        }
        #[cfg(feature = "aws-lc-rs")]
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        #[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
        let provider = rustls::crypto::ring::default_provider();
        let config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(HttpsClient { tls: TlsConnector::from(Arc::new(config)), timeout })
    }

    /// Half of the time of a request is for all addresses: one that does not answer leaves time for the next one.
    async fn connect(&self, host: &str, port: u16) -> Result<TcpStream, String> {
        let addresses = lookup_host((host, port)).await.map_err(|error| error.to_string())?;
        let addresses: Vec<SocketAddr> = addresses.collect();
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
        let host =
            uri.host().filter(|_| uri.scheme_str() == Some("https")).ok_or("the authority names no https URL")?;
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
            .map_err(|error| format!("no TLS connection to {host}: {error}{}", remedy(&error)))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let authority = uri.authority().ok_or("a URL without a host")?.as_str();
        request.headers_mut().insert(HOST, HeaderValue::from_str(authority)?);
        *request.uri_mut() =
            Uri::builder().path_and_query(uri.path_and_query().map_or("/", |path| path.as_str())).build()?;
        let answer = async {
            let (mut parts, body) = sender.send_request(request).await.map_err(described)?.into_parts();
            let retry_after_s = normalize_retry_after(&mut parts.headers, unix_s());
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await?.to_bytes();
            let (status, is_delayed) = (parts.status, retry_after_s.is_some());
            let is_error = status.is_server_error() || status.is_client_error() && is_delayed;
            if is_error || status == StatusCode::TOO_MANY_REQUESTS {
                let problem = serde_json::from_slice(&body).ok();
                return Err(AnswerError { status, problem, retry_after_s }.into());
            }
            Ok::<_, BoxError>(BytesResponse::from(Response::from_parts(parts, Full::new(body))))
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

/// Tries the addresses one after the other, each for at most `time_max`.
///
/// # Errors
/// Why the last one did not accept the connection.
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

/// Gives the field Retry-After the form of a number of seconds, which is the result; removes it if it has no form of
/// RFC 9110 §10.2.3.
fn normalize_retry_after(headers: &mut HeaderMap, now_unix_s: u64) -> Option<u64> {
    let text = headers.remove(RETRY_AFTER)?;
    let text = text.as_bytes().trim_ascii();
    let seconds = if !text.is_empty() && text.iter().all(u8::is_ascii_digit) {
        // One with too many digits is as long as possible.
        std::str::from_utf8(text).ok()?.parse().unwrap_or(u64::MAX)
    } else {
        HttpDate::parse_unix_s(text)?.saturating_sub(now_unix_s)
    };
    let seconds = seconds.min(RETRY_AFTER_S_MAX);
    headers.insert(RETRY_AFTER, seconds.into());
    Some(seconds)
}

/// What to do if the certificate of the authority is not valid at this time, which is the clock of this machine more
/// often than the authority; or if nobody that is trusted has issued it.
fn remedy(error: &io::Error) -> &'static str {
    use rustls::CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext, UnknownIssuer};
    match error.get_ref().and_then(|error| error.downcast_ref()) {
        Some(rustls::Error::InvalidCertificate(
            Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. },
        )) => "; check the clock of this machine",
        Some(rustls::Error::InvalidCertificate(UnknownIssuer)) => {
            "; set `root` of this authority in [certificates] to a file with the root that its server has a certificate of, as PEM"
        }
        _ => "",
    }
}

fn described(error: hyper::Error) -> BoxError {
    match error.is_parse() {
        true => format!("the authority answers something else than HTTP: {error}").into(),
        false => error.into(),
    }
}

/// The authority answers with an error of its own, or that it is asked too often.
#[derive(Debug)]
pub(crate) struct AnswerError {
    pub(crate) status: StatusCode,
    /// How it describes the error, if it does (RFC 8555 §6.7).
    pub(crate) problem: Option<Problem>,
    /// In how many seconds it lets the server ask again, if it says so (RFC 8555 §6.6).
    pub(crate) retry_after_s: Option<u64>,
}

impl fmt::Display for AnswerError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "the authority answers with status {}", self.status)
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
                    Err(Error::Other(format!("the authority has not answered within {time} s").into()))
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
        let of = |error: rustls::CertificateError| remedy(&io::Error::other(rustls::Error::InvalidCertificate(error)));
        assert!(
            of(rustls::CertificateError::UnknownIssuer).contains("; set `root` of this authority in [certificates]")
        );
        assert_eq!(of(rustls::CertificateError::Expired), "; check the clock of this machine");
        assert_eq!(of(rustls::CertificateError::Revoked), "");
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
            assert_eq!(normalize_retry_after(&mut headers, 784_111_777), expected, "{text}");
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
        assert_eq!(normalize_retry_after(&mut HeaderMap::new(), 0), None);
    }
}
