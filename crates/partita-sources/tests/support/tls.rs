//! A certificate for this machine.

use std::sync::Arc;

use partita_hub::listener::transport::tls::server_config_from_files;
use tokio_rustls::rustls::ServerConfig;

/// What servers on `localhost` use, and the certificate to trust, in PEM form.
pub(crate) fn localhost() -> (Arc<ServerConfig>, String) {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("made");
    let pem = certified.cert.pem();
    let dir = tempfile::tempdir().expect("dir");
    let (chain, key) = (dir.path().join("chain.pem"), dir.path().join("key.pem"));
    std::fs::write(&chain, &pem).expect("written");
    std::fs::write(&key, certified.signing_key.serialize_pem()).expect("written");
    (server_config_from_files(&chain, &key).expect("a configuration"), pem)
}
