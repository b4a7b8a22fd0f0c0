//! The client of HTTPS for certificate authorities: one connection for each request, over HTTP/1.1. Time and size of an answer are
//! limited.

use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue, RETRY_AFTER};
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::fmt;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Bytes of the longest answer: a certificate chain.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;
const PORT: u16 = 443;

/// A client that trusts some roots.
#[derive(Clone)]
pub(crate) struct HttpsClient {
    tls: TlsConnector,
    /// For a request and its answer.
    timeout: Duration,
    retry_after: Arc<RetryAfter>,
}

/// When an authority that has refused a request because of too many lets the client ask again (RFC 6585 §4), in seconds; 0 if it has not
/// said so.
#[derive(Default)]
pub(crate) struct RetryAfter(AtomicU64);

impl RetryAfter {
    /// What the authority has said since the last call.
    pub(crate) fn take(&self) -> Option<u64> {
        Some(self.0.swap(0, Ordering::Relaxed)).filter(|seconds| *seconds > 0)
    }
}

impl HttpsClient {
    /// A client that trusts the roots in the file `root`, or those of the system, and waits for `timeout` for an answer.
    ///
    /// # Errors
    /// There are none.
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
        Ok(HttpsClient { tls: TlsConnector::from(Arc::new(config)), timeout, retry_after: Arc::default() })
    }

    pub(crate) fn retry_after(&self) -> &RetryAfter {
        &self.retry_after
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
        let stream = TcpStream::connect((address, port))
            .await
            .map_err(|error| format!("cannot connect to {host}, port {port}: {error}"))?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(address.to_owned())?;
        let stream = self
            .tls
            .connect(name, stream)
            .await
            .map_err(|error| format!("no TLS connection to {host}: {error}{}", clock_remedy(&error)))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let authority = uri.authority().ok_or("a URL without a host")?.as_str();
        request.headers_mut().insert(HOST, HeaderValue::from_str(authority)?);
        *request.uri_mut() =
            Uri::builder().path_and_query(uri.path_and_query().map_or("/", |path| path.as_str())).build()?;
        let answer = async {
            let (parts, body) = sender.send_request(request).await.map_err(described)?.into_parts();
            if parts.status == StatusCode::TOO_MANY_REQUESTS {
                let seconds = parts.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
                self.retry_after.0.store(seconds.unwrap_or(0), Ordering::Relaxed);
            }
            let is_described = parts
                .headers
                .get(CONTENT_TYPE)
                .is_some_and(|value| value.to_str().is_ok_and(|text| text.contains("json")));
            let is_error = parts.status.is_server_error() || parts.status == StatusCode::TOO_MANY_REQUESTS;
            if is_error && !is_described {
                return Err(StatusError(parts.status).into());
            }
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await?.to_bytes();
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

/// What to do if the certificate of the authority is not valid at this time: it is the clock of this machine more often than the authority.
fn clock_remedy(error: &io::Error) -> &'static str {
    use rustls::CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
    match error.get_ref().and_then(|error| error.downcast_ref()) {
        Some(rustls::Error::InvalidCertificate(
            Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. },
        )) => "; check the clock of this machine",
        _ => "",
    }
}

fn described(error: hyper::Error) -> BoxError {
    match error.is_parse() {
        true => format!("the authority answers something else than HTTP: {error}").into(),
        false => error.into(),
    }
}

/// The authority has answered with a status of an error, and not described it (RFC 8555 §6.7).
#[derive(Debug)]
pub(crate) struct StatusError(pub(crate) StatusCode);

impl fmt::Display for StatusError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "the authority answers with status {}", self.0)
    }
}

impl std::error::Error for StatusError {}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl HttpClient for HttpsClient {
    fn request(
        &self,
        request: Request<BodyWrapper<hyper::body::Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let client = self.clone();
        Box::pin(async move {
            match tokio::time::timeout(client.timeout, client.exchange(request)).await {
                Ok(answered) => answered.map_err(Error::Other),
                Err(_) => {
                    let time = client.timeout.as_secs_f64();
                    Err(Error::Other(format!("the authority has not answered within {time} s").into()))
                }
            }
        })
    }
}
