//! What clients are told: connection strings.

use std::fmt;
use std::net::IpAddr;

/// The emulator's port, which clients use when a connection string names none.
pub(crate) const AMQP_PORT: u16 = 5672;
/// The same with TLS.
pub(crate) const TLS_PORT: u16 = 5671;

/// Who a client is, for a connection string.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) rule: String,
    pub(crate) key: String,
    /// The hub that the rule holds for, if not for all.
    pub(crate) hub: Option<String>,
    /// Where the key came from; `None` if everybody knows it.
    pub(crate) secret_from: Option<String>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("rule", &self.rule).field("hub", &self.hub).finish_non_exhaustive()
    }
}

impl Identity {
    /// What is written where the key belongs, for people to see.
    fn shown_key(&self) -> String {
        match &self.secret_from {
            None => self.key.clone(),
            Some(place) => format!("<key in {place}>"),
        }
    }

    /// The connection string for plain AMQP, as the official emulator's.
    pub(crate) fn plain(&self, host: &str, port: u16) -> String {
        self.text(&endpoint(host, port, AMQP_PORT), &self.key, true)
    }

    /// The same, without a secret.
    pub(crate) fn plain_shown(&self, host: &str, port: u16) -> String {
        self.text(&endpoint(host, port, AMQP_PORT), &self.shown_key(), true)
    }

    /// The connection string for TLS, as the service's.
    pub(crate) fn tls(&self, host: &str, port: u16) -> String {
        self.text(&endpoint(host, port, TLS_PORT), &self.key, false)
    }

    /// The same, without a secret.
    pub(crate) fn tls_shown(&self, host: &str, port: u16) -> String {
        self.text(&endpoint(host, port, TLS_PORT), &self.shown_key(), false)
    }

    fn text(&self, endpoint: &str, key: &str, emulator: bool) -> String {
        let mut text =
            format!("Endpoint={endpoint};SharedAccessKeyName={};SharedAccessKey={key};", self.rule);
        if emulator {
            text.push_str("UseDevelopmentEmulator=true;");
        }
        if let Some(hub) = &self.hub {
            text.push_str(&format!("EntityPath={hub};"));
        }
        text
    }
}

fn endpoint(host: &str, port: u16, usual: u16) -> String {
    if port == usual { format!("sb://{host}") } else { format!("sb://{host}:{port}") }
}

/// The host that clients on this machine use for a hub that listens there.
pub(crate) fn host_of(listen: Option<IpAddr>) -> String {
    match listen {
        None => "localhost".to_owned(),
        Some(ip) if ip.is_unspecified() => "localhost".to_owned(),
        Some(IpAddr::V4(ip)) => ip.to_string(),
        Some(IpAddr::V6(ip)) => format!("[{ip}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn well_known() -> Identity {
        Identity {
            rule: "RootManageSharedAccessKey".into(),
            key: "SAS_KEY_VALUE".into(),
            hub: None,
            secret_from: None,
        }
    }

    #[test]
    fn the_default_is_the_emulators_own_connection_string() {
        assert_eq!(
            well_known().plain("localhost", 5672),
            "Endpoint=sb://localhost;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;\
             UseDevelopmentEmulator=true;"
        );
        assert!(well_known().plain("localhost", 5673).starts_with("Endpoint=sb://localhost:5673;"));
    }

    #[test]
    fn a_key_of_ones_own_is_not_shown() {
        let own = Identity {
            rule: "sender".into(),
            key: "s3cret".into(),
            hub: Some("eh1".into()),
            secret_from: Some("/run/secrets/sender".into()),
        };
        for shown in [own.plain_shown("localhost", 1), own.tls_shown("localhost", 2), format!("{own:?}")] {
            assert!(!shown.contains("s3cret"), "{shown}");
        }
        assert_eq!(
            own.tls("hub.example", 5671),
            "Endpoint=sb://hub.example;SharedAccessKeyName=sender;SharedAccessKey=s3cret;EntityPath=eh1;"
        );
        assert!(own.plain_shown("localhost", 1).contains("SharedAccessKey=<key in /run/secrets/sender>;"));
    }

    #[test]
    fn clients_of_this_machine_are_told_a_host_that_they_can_reach() {
        let host = |ip: &str| host_of(Some(ip.parse().unwrap()));
        assert_eq!(host_of(None), "localhost");
        assert_eq!(
            ["0.0.0.0", "::", "192.0.2.1", "2001:db8::1"].map(host),
            ["localhost", "localhost", "192.0.2.1", "[2001:db8::1]"]
        );
    }
}
