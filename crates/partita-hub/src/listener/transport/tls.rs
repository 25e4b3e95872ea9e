//! What a server needs for TLS: a certificate chain, its key, and one crypto provider.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;
use tokio_rustls::rustls;
pub use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};

/// Why there is no TLS.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file was not read.
    #[error("cannot read {what} from {}: {source}", path.display())]
    File {
        /// What was to be in it.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: std::io::Error,
    },
    /// A file holds something else.
    #[error("{} holds no {what} in PEM form", path.display())]
    Pem {
        /// What was to be in it.
        what: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// Certificate and key do not work, or not together.
    #[error("the certificate and its key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

/// What a listener is given for a certificate chain and its key.
pub fn server_config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    Ok(Arc::new(config))
}

/// The same, from files in PEM form: the certificate first, then those that lead to its root.
pub fn server_config_from_files(chain: &Path, key: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_file_iter(chain).and_then(Iterator::collect);
    let certificates = certificates.map_err(|error| unread("a certificate", chain, error))?;
    if certificates.is_empty() {
        return Err(TlsError::Pem { what: "certificate", path: chain.to_owned() });
    }
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unread("a private key", key, error))?;
    server_config(certificates, key)
}

fn unread(what: &'static str, path: &Path, error: pem::Error) -> TlsError {
    match error {
        pem::Error::Io(source) => TlsError::File { what, path: path.to_owned(), source },
        // "a private key" with its article removed.
        _ => TlsError::Pem { what: what.trim_start_matches("a "), path: path.to_owned() },
    }
}
