//! TLS of a client: whom it trusts.

use std::fmt;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

use super::BoxStream;
use crate::eventhubs::EventHubsError;

/// Whom a client trusts.
#[derive(Clone)]
pub(crate) struct Client(Arc<ClientConfig>);

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client(..)")
    }
}

type Builder = rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>;

fn builder() -> Result<Builder, EventHubsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    builder.map_err(|error| EventHubsError::fatal(format!("TLS cannot be set up: {error}")))
}

impl Client {
    /// Whomever the platform trusts.
    pub(crate) fn of_platform() -> Result<Self, EventHubsError> {
        use rustls_platform_verifier::BuilderVerifierExt as _;
        let builder = builder()?.with_platform_verifier().map_err(|error| {
            EventHubsError::fatal(format!("the platform's certificates cannot be used: {error}"))
        })?;
        Ok(Self(Arc::new(builder.with_no_client_auth())))
    }

    /// Only those whom these certificates, in PEM form, vouch for.
    pub(crate) fn of_roots(pem: &[u8]) -> Result<Self, EventHubsError> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| {
                EventHubsError::fatal(format!("the certificate is not in PEM form: {error}"))
            })?;
            roots
                .add(certificate)
                .map_err(|error| EventHubsError::fatal(format!("the certificate cannot be used: {error}")))?;
        }
        if roots.is_empty() {
            return Err(EventHubsError::fatal("the given certificate is not in PEM form"));
        }
        Ok(Self(Arc::new(builder()?.with_root_certificates(roots).with_no_client_auth())))
    }

    /// Shakes hands with the server of this name.
    pub(crate) async fn connect<S>(&self, host: &str, stream: S) -> Result<BoxStream, EventHubsError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| EventHubsError::fatal(format!("'{host}' is not a valid name for a certificate")))?;
        let connected = TlsConnector::from(self.0.clone()).connect(name, stream).await;
        let stream = connected.map_err(|error| {
            let certificate = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
            match certificate {
                Some(rustls::Error::InvalidCertificate(why)) => EventHubsError::fatal(format!(
                    "the certificate of '{host}' is not trusted ({why:?}): give the certificate of its authority, or use another host"
                )),
                _ => EventHubsError::of_io(&format!("no TLS could be agreed upon with '{host}'"), &error),
            }
        })?;
        Ok(Box::pin(stream))
    }
}
