//! Tokens of Microsoft Entra ID, from any credential of the Azure SDK.

use std::sync::Arc;

use azure_core::credentials::TokenCredential;
use futures_util::future::BoxFuture;
use partita_core::model::Timestamp;
use partita_core::store::BoxError;

use super::{Secret, Token, TokenSource};

/// What tokens are asked for: the service as a whole. What they allow is said by roles.
const SCOPE: &str = "https://eventhubs.azure.net/.default";

/// Asks a credential.
#[derive(Debug)]
pub(super) struct Entra(pub(super) Arc<dyn TokenCredential>);

impl TokenSource for Entra {
    fn token(&self) -> BoxFuture<'_, Result<Token, BoxError>> {
        Box::pin(async {
            let token = self.0.get_token(&[SCOPE], None).await?;
            let expires = Timestamp(token.expires_on.unix_timestamp().saturating_mul(1_000));
            Ok(Token { secret: Secret::from(token.token.secret()), expires })
        })
    }
}
