//! As whom: tokens for a hub, signed here with a key, made elsewhere, or asked for.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use partita_amqp::message::Message;
use partita_core::model::{Timestamp, Value};
use partita_core::store::BoxError;
use partita_dialect::names::token::{JWT, SAS};
use partita_dialect::sas;

use super::{Credential, EventHubsError, Secret};

/// A token that proves a right for a time.
#[derive(Clone, Debug)]
pub struct Token {
    /// The token.
    pub secret: Secret,
    /// When it ends.
    pub expires: Timestamp,
}

/// Gives tokens of an identity, such as one of Microsoft Entra ID for the scope
/// `https://eventhubs.azure.net/.default`. It is asked again before a token ends.
pub trait TokenSource: Send + Sync + 'static {
    /// A token that is valid for some time.
    fn token(&self) -> BoxFuture<'_, Result<Token, BoxError>>;
}

/// How tokens are come by.
#[derive(Clone)]
pub(crate) enum Authorization {
    Shared(Credential),
    Tokens(Arc<dyn TokenSource>),
}

impl fmt::Debug for Authorization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shared(credential) => credential.fmt(f),
            Self::Tokens(_) => f.write_str("Tokens(..)"),
        }
    }
}

/// A token, and what kind it is.
pub(crate) struct Proof {
    kind: &'static str,
    token: Token,
}

impl Authorization {
    /// A token for `resource`, for `lifetime` if it is made here.
    pub(crate) async fn prove(&self, resource: &str, lifetime: Duration) -> Result<Proof, EventHubsError> {
        let now = Timestamp::now();
        let (kind, token) = match self {
            Self::Shared(Credential::Key { name, key }) => {
                let lifetime = i64::try_from(lifetime.as_millis()).unwrap_or(i64::MAX);
                // A signature tells seconds.
                let expires = Timestamp(now.millis().saturating_add(lifetime) / 1_000 * 1_000);
                let secret = sas::sign(resource, name, key.expose().as_bytes(), expires);
                (SAS, Token { secret: Secret::from(secret), expires })
            }
            Self::Shared(Credential::Signature(secret)) => {
                let parsed = sas::Token::parse(secret.expose()).map_err(|error| {
                    EventHubsError::fatal(format!("the SharedAccessSignature is none: {error}"))
                })?;
                (SAS, Token { secret: secret.clone(), expires: parsed.expires() })
            }
            Self::Shared(Credential::Tokens) => {
                return Err(EventHubsError::fatal("there is no credential for the hub"));
            }
            Self::Tokens(tokens) => {
                let token = tokens.token().await.map_err(|error| {
                    EventHubsError::retriable(format!("no token could be had for the hub: {error}"))
                })?;
                (JWT, token)
            }
        };
        if token.expires <= now {
            let text = format!("the token for the hub ended at {}: get a new one", token.expires);
            return Err(EventHubsError::fatal(text));
        }
        Ok(Proof { kind, token })
    }

    /// Whether another token can be had when one ends.
    pub(crate) fn renews(&self) -> bool {
        !matches!(self, Self::Shared(Credential::Signature(_)))
    }
}

impl Proof {
    /// The request that gives it to the hub, for `audience`.
    pub(crate) fn request(&self, audience: &str) -> Message {
        let properties = [
            ("operation", Value::from("put-token")),
            ("type", Value::from(self.kind)),
            ("name", Value::from(audience)),
            ("expiration", Value::Timestamp(self.token.expires)),
        ];
        Message {
            application_properties: Some(properties.map(|(key, value)| (Value::from(key), value)).to_vec()),
            ..Message::new(Value::from(self.token.secret.expose()))
        }
    }

    /// When it should be replaced: after three quarters of its time.
    pub(crate) fn renew_after(&self) -> Duration {
        let left = self.token.expires.millis().saturating_sub(Timestamp::now().millis());
        Duration::from_millis(u64::try_from(left).unwrap_or(0)) * 3 / 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_key_signs_tokens_that_it_proves() {
        let key = Credential::Key { name: "rule".into(), key: Secret::from("key") };
        let authorization = Authorization::Shared(key);
        let proof = authorization.prove("sb://host/hub", Duration::from_secs(3_600)).await.unwrap();
        let token = sas::Token::parse(proof.token.secret.expose()).unwrap();
        assert!(token.is_signed_with(b"key"));
        assert_eq!((token.rule(), &*token.resource()), ("rule", "sb://host/hub"));
        let renew = proof.renew_after().as_secs();
        assert!((2_690..=2_700).contains(&renew), "{renew}");
        assert!(authorization.renews());
    }

    #[tokio::test]
    async fn a_signature_that_ended_or_is_none_is_told_at_once() {
        for (text, words) in [
            (sas::sign("sb://h/hub", "r", b"key", Timestamp(1_000)), "ended at 1970-01-01"),
            ("nonsense".to_owned(), "SharedAccessSignature is none"),
        ] {
            let authorization = Authorization::Shared(Credential::Signature(Secret::from(&text)));
            let error = authorization.prove("sb://h/hub", Duration::ZERO).await.err().expect("refused");
            assert!(!error.is_retriable() && error.to_string().contains(words), "{error}");
            assert!(!error.to_string().contains(&text) && !authorization.renews());
        }
    }
}
