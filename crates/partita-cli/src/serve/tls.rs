//! `--tls-self-signed`: an authority of the hub's own, and what clients do to trust it.
//!
//! The authority is made once and kept. The hub's own certificate is made at every start and kept nowhere: its names are
//! those that are served now, and it never runs out.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use partita_hub::listener::transport::tls::{ServerConfig, server_config};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use time::{Duration, OffsetDateTime};

use super::data::write_private;

/// The authority's name in its certificate. Always the same: a certificate names its issuer by it.
const AUTHORITY: &str = "Partita local authority";
const AUTHORITY_DAYS: i64 = 3_650;
/// The most that systems accept of a certificate whose authority a user added.
const CERTIFICATE_DAYS: i64 = 825;

/// TLS with a certificate that the hub made.
pub(crate) struct SelfSigned {
    pub(crate) config: Arc<ServerConfig>,
    /// The authority's certificate, which clients must trust.
    pub(crate) authority: PathBuf,
    /// Whether the authority is new.
    pub(crate) is_new: bool,
}

/// Makes a certificate for `names`, signed by the authority in `dir`, which is made if it is not there.
pub(crate) fn self_signed(dir: &Path, names: &[String]) -> Result<SelfSigned, String> {
    let authority = dir.join("ca.pem");
    let key_file = dir.join("ca-key.pem");
    let unusable = |error: rcgen::Error| {
        format!(
            "the authority in {} cannot be used ({error}): delete that directory and trust the new one",
            dir.display()
        )
    };
    let kept = match (std::fs::read_to_string(&key_file), authority.exists()) {
        (Ok(pem), true) => Some(KeyPair::from_pem(&pem).map_err(unusable)?),
        // Half of it is of no use: nobody can have trusted a certificate that was never whole.
        _ => None,
    };
    let is_new = kept.is_none();
    let key = match kept {
        Some(key) => key,
        None => new_authority(dir, &authority, &key_file)?,
    };
    let issuer = Issuer::new(authority_params().map_err(unusable)?, key);
    let made = || {
        let key = KeyPair::generate()?;
        let certificate = certificate_params(names)?.signed_by(&key, &issuer)?;
        Ok::<_, rcgen::Error>((certificate, key))
    };
    let (certificate, key) =
        made().map_err(|error| format!("cannot make a certificate for {}: {error}", names.join(", ")))?;
    let key =
        key.serialize_der().try_into().map_err(|error| format!("cannot use a key just made: {error}"))?;
    let config = server_config(vec![certificate.der().clone()], key).map_err(|error| error.to_string())?;
    Ok(SelfSigned { config, authority, is_new })
}

fn new_authority(dir: &Path, authority: &Path, key_file: &Path) -> Result<KeyPair, String> {
    let made = || {
        let key = KeyPair::generate()?;
        let certificate = authority_params()?.self_signed(&key)?;
        Ok::<_, rcgen::Error>((certificate, key))
    };
    let (certificate, key) =
        made().map_err(|error| format!("cannot make a certificate authority: {error}"))?;
    let kept = std::fs::create_dir_all(dir)
        .and_then(|()| write_private(key_file, key.serialize_pem().as_bytes()))
        .and_then(|()| std::fs::write(authority, certificate.pem()));
    kept.map_err(|error| format!("cannot keep the certificate authority in {}: {error}", dir.display()))?;
    Ok(key)
}

fn authority_params() -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, AUTHORITY);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    (params.not_before, params.not_after) = validity(AUTHORITY_DAYS);
    Ok(params)
}

fn certificate_params(names: &[String]) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    for name in names {
        params.subject_alt_names.push(match name.parse() {
            Ok(ip) => SanType::IpAddress(ip),
            Err(_) => SanType::DnsName(name.as_str().try_into()?),
        });
    }
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, "Partita hub");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    (params.not_before, params.not_after) = validity(CERTIFICATE_DAYS);
    Ok(params)
}

/// From yesterday, for clients whose clock is behind.
fn validity(days: i64) -> (OffsetDateTime, OffsetDateTime) {
    let from = OffsetDateTime::now_utc() - Duration::days(1);
    (from, from + Duration::days(days))
}

/// The names a certificate is made for: those of this machine by which it is served, and those that were asked for.
pub(crate) fn names(listen: Option<IpAddr>, host: Option<String>, asked: &[String]) -> Vec<String> {
    let mut names = vec!["localhost".to_owned()];
    names.extend(
        [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)].map(|ip| ip.to_string()),
    );
    match listen {
        Some(ip) if ip.is_unspecified() => names.extend(host),
        Some(ip) => names.push(ip.to_string()),
        None => {}
    }
    names.extend(asked.iter().cloned());
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names
}

/// What each SDK needs to trust the authority, in lines that fit a terminal but for the path. `docs/serving.md` says the
/// same in more words.
pub(crate) fn how_to_trust(authority: &Path) -> Vec<String> {
    let ca = authority.display();
    let rows = [
        ("", format!("export CA={ca}").as_str()),
        ("Python", "connection_verify=os.environ[\"CA\"] when a client is made"),
        ("JS", "NODE_EXTRA_CA_CERTS=$CA"),
        ("Go, Rust", "SSL_CERT_FILE=$CA"),
        (".NET", "SSL_CERT_FILE=$CA on Linux, else add it to the system's store"),
        ("Java", "keytool -importcert -noprompt -alias partita -file $CA \\"),
        ("", "  -keystore trust.p12 -storepass partita"),
        ("", "java -Djavax.net.ssl.trustStore=trust.p12 \\"),
        ("", "  -Djavax.net.ssl.trustStorePassword=partita ..."),
    ]
    .map(|(client, how)| {
        if client.is_empty() && how.starts_with("export") {
            how.to_owned()
        } else {
            format!("{client:<9} {how}")
        }
    });
    rows.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_authority_is_kept_and_half_of_one_is_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let tls = dir.path().join("tls");
        let names = names(None, None, &[]);
        assert!(self_signed(&tls, &names).unwrap().is_new);
        let authority = std::fs::read_to_string(tls.join("ca.pem")).unwrap();
        assert!(!self_signed(&tls, &names).unwrap().is_new);
        assert_eq!(
            std::fs::read_to_string(tls.join("ca.pem")).unwrap(),
            authority,
            "trusted once, trusted on"
        );
        std::fs::remove_file(tls.join("ca.pem")).unwrap();
        assert!(self_signed(&tls, &names).unwrap().is_new);
        assert_ne!(std::fs::read_to_string(tls.join("ca.pem")).unwrap(), authority);
        std::fs::write(tls.join("ca-key.pem"), "nothing").unwrap();
        let said = self_signed(&tls, &names).err().unwrap();
        assert!(said.starts_with("the authority in ") && said.contains("delete that directory"), "{said}");
    }

    #[test]
    fn a_certificate_has_the_names_that_are_served() {
        let asked = ["hub.test".to_owned(), "localhost".to_owned()];
        let all = names(Some("0.0.0.0".parse().unwrap()), Some("box".into()), &asked);
        assert_eq!(all, ["localhost", "127.0.0.1", "::1", "box", "hub.test"]);
        assert_eq!(
            names(Some("192.0.2.1".parse().unwrap()), Some("box".into()), &[]).last().unwrap(),
            "192.0.2.1"
        );
        let dir = tempfile::tempdir().unwrap();
        let said = self_signed(dir.path(), &["bad name\u{e9}".to_owned()]).err().unwrap();
        assert!(said.contains("cannot make a certificate for bad name"), "{said}");
    }
}
