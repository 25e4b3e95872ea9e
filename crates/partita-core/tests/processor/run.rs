//! A processor from start to shutdown in one call.

use std::sync::Arc;

use partita_core::model::Event;
use partita_core::processor::Phase;
use partita_core::processor::{Builder, ConfigError, NoHandler, Processor, RunError, StartError};
use partita_core::source::MemoryHub;
use partita_core::store::MemoryStore;
use tokio::sync::{mpsc, oneshot};

use crate::support::{Machine, secs};

fn builder(hub: &MemoryHub) -> Builder<NoHandler> {
    Processor::builder(hub.source(), MemoryStore::new()).runtime(Machine::new(1))
}

#[tokio::test(start_paused = true)]
async fn run_until_handles_events_until_it_is_stopped_and_returns_the_last_status() {
    let hub = MemoryHub::new("hub", 2);
    hub.append(&"1".into(), Event::builder("hello"));
    let (handled, mut calls) = mpsc::channel(1);
    // Its arguments have no types: they are inferred.
    let running = builder(&hub).on_event(move |event, cx| {
        let handled = handled.clone();
        async move {
            handled.send(format!("{} {}", cx.partition(), event.text().unwrap_or_default())).await?;
            Ok(())
        }
    });
    let status = running.run_until(async {
        assert_eq!(calls.recv().await.as_deref(), Some("1 hello"));
    });
    let status = status.await.expect("stopped in good order");
    assert_eq!(status.phase, Phase::Stopped);
    assert_eq!(status.owned().count(), 0, "all partitions were released");
}

#[tokio::test(start_paused = true)]
async fn a_processor_that_ends_by_itself_ends_run_until_with_its_error() {
    let (hub, machine) = (MemoryHub::new("hub", 1), Machine::new(1));
    hub.append(&"0".into(), Event::builder("x"));
    let (handled, first) = oneshot::channel();
    let handled = Arc::new(std::sync::Mutex::new(Some(handled)));
    let running = builder(&hub).runtime(machine.clone()).on_event(move |_, _| {
        let handled = handled.lock().unwrap().take();
        async move {
            handled.into_iter().for_each(|handled| handled.send(()).unwrap());
            Ok(())
        }
    });
    let crash = async {
        first.await.expect("an event was handled");
        machine.crash();
    };
    let running = tokio::time::timeout(secs(60), running.run_until(std::future::pending()));
    let (ended, ()) = tokio::join!(running, crash);
    let error = ended.expect("it says so at once").expect_err("nobody asked it to end");
    assert!(matches!(error, RunError::Ended(_)), "{error:?}");
    assert_eq!(
        error.to_string(),
        "the processor ended by itself: the coordination ended unexpectedly; start it again"
    );
}

#[tokio::test(start_paused = true)]
async fn what_prevents_a_build_or_a_start_is_run_untils_error() {
    let hub = MemoryHub::new("hub", 1);
    let running = builder(&hub).batch_size(0).on_event(async |_, _| Ok(()));
    let error = running.run_until(std::future::pending()).await.expect_err("no batch of none");
    assert!(matches!(error, RunError::Config(ConfigError::Zero { option: "batch_size" })), "{error:?}");
    let empty = MemoryHub::new("hub", 0);
    let running = builder(&empty).on_event(async |_, _| Ok(()));
    let error = running.run_until(std::future::pending()).await.expect_err("nothing to read");
    assert!(matches!(error, RunError::Start(StartError::NoPartitions(_))), "{error:?}");
}
