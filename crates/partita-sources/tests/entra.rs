//! Tokens of Microsoft Entra ID: any credential of the Azure SDK does, and a token is replaced before it ends.
#![cfg(feature = "entra")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use azure_core::credentials::{AccessToken, TokenCredential, TokenRequestOptions};
use azure_core::time::OffsetDateTime;
use partita_core::source::{EventSource, SourceErrorKind};
use partita_sources::eventhubs::{BuildError, EventHubs};
use support::service::{Part, PutToken, Service};

/// Numbers its tokens; each lasts a few seconds.
#[derive(Debug)]
struct Numbered {
    given: AtomicU32,
    fails: bool,
}

#[async_trait::async_trait]
impl TokenCredential for Numbered {
    async fn get_token(
        &self,
        scopes: &[&str],
        _: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        assert_eq!(scopes, ["https://eventhubs.azure.net/.default"]);
        if self.fails {
            return Err(azure_core::Error::with_message(
                azure_core::error::ErrorKind::Credential,
                "no such tenant",
            ));
        }
        let number = self.given.fetch_add(1, Ordering::Relaxed);
        Ok(AccessToken::new(format!("token-{number}"), OffsetDateTime::now_utc() + Duration::from_secs(4)))
    }
}

fn client(service: &Service, fails: bool) -> EventHubs {
    EventHubs::in_namespace("contoso.servicebus.windows.net", "homes")
        .endpoint(format!("amqp://{}", service.address))
        .credential(Arc::new(Numbered { given: AtomicU32::new(0), fails }))
        .build()
        .expect("a client")
}

#[tokio::test]
async fn a_credential_s_tokens_are_put_and_replaced_before_they_end() {
    let mut service = Service::new(Part::default()).await;
    let hubs = client(&service, false);
    assert_eq!(hubs.properties().await.expect("described").partitions.len(), 2);
    let put = |number: u32| PutToken {
        kind: "jwt".into(),
        audience: "sb://contoso.servicebus.windows.net/homes".into(),
        token: format!("token-{number}"),
    };
    assert_eq!(service.token().await, put(0));
    let began = tokio::time::Instant::now();
    assert_eq!(service.token().await, put(1));
    assert!(began.elapsed() < Duration::from_secs(4), "it had ended by then");
    assert_eq!(service.token().await, put(2));
}

#[tokio::test]
async fn a_credential_that_gives_no_token_is_quoted() {
    let service = Service::new(Part::default()).await;
    let error = client(&service, true).source().describe().await.expect_err("no token");
    assert_eq!(error.kind(), SourceErrorKind::Retriable);
    assert!(
        error.to_string().contains("no token could be had") && error.to_string().contains("no such tenant")
    );
    let nothing = EventHubs::in_namespace("contoso.servicebus.windows.net", "homes").build();
    assert!(matches!(nothing, Err(BuildError::NoCredential)));
}
