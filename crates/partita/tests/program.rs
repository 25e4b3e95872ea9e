//! The program that a user wants to write, on a hub that is served on a port of this machine.
#![cfg(all(feature = "eventhubs", feature = "signal", feature = "sqlite"))]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use partita::eventhubs::EventHubs;
use partita::hub::server::{Server, ServerOptions, Transport};
use partita::hub::{Broker, HubOptions};
use partita::sqlite::SqliteStore;
use partita::{Event, Phase, Processor, Route, shutdown_signal};
use tokio::sync::mpsc;

/// As short as in the documentation. It is only compiled: it ends when its process is told to.
#[allow(dead_code, clippy::print_stdout)]
async fn program(connection_string: String) -> Result<(), Box<dyn std::error::Error>> {
    let hub = EventHubs::connect(&connection_string, "eh1")?;
    Processor::builder(hub, SqliteStore::open("checkpoints.db")?)
        .on_event(|event, cx| async move {
            println!("{} {}", cx.partition(), event.text().unwrap_or_default());
            Ok(())
        })
        .run_until(shutdown_signal())
        .await?;
    Ok(())
}

/// A served hub's connection string. It is served as long as the runtime lives.
async fn serve(data: &Path) -> String {
    let (broker, _) = Broker::open(data).expect("opens");
    let options = HubOptions { partitions: 2, ..HubOptions::default() };
    broker.create_hub(&"eh1".into(), options).expect("made");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let server = Server::new(Arc::new(broker), ServerOptions::default());
    tokio::spawn(async move { server.listen(listener, Transport::Plain).await });
    format!(
        "Endpoint=sb://{address};SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;\
         UseDevelopmentEmulator=true;"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn the_short_program_handles_what_a_producer_sent_and_resumes_after_its_checkpoint() {
    let dir = tempfile::tempdir().expect("dir");
    let hub = EventHubs::connect(&serve(&dir.path().join("data")).await, "eh1").expect("a client");
    let producer = hub.producer();
    for text in ["first", "second"] {
        producer.send_event(Route::partition(1), Event::builder(text)).await.expect("sent");
        let (handled, mut events) = mpsc::channel(8);
        let store = SqliteStore::open(dir.path().join("checkpoints.db")).expect("opens");
        let running = Processor::builder(hub.clone(), store)
            .on_event(move |event, cx| {
                let handled = handled.clone();
                async move {
                    handled.send(format!("{} {}", cx.partition(), event.text().unwrap_or_default())).await?;
                    Ok(())
                }
            })
            .run_until(async { assert_eq!(events.recv().await, Some(format!("1 {text}"))) });
        let status = tokio::time::timeout(Duration::from_secs(60), running).await.expect("in time");
        assert_eq!(status.expect("stopped in good order").phase, Phase::Stopped);
        assert_eq!(events.recv().await, None, "nothing was handled twice");
    }
}
