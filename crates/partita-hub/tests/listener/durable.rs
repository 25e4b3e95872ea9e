//! What was accepted is there after a restart, and nothing is accepted before it is durable.

use std::sync::Arc;
use std::time::Duration;

use partita_amqp::connection::Event;
use partita_amqp::performative::DeliveryState;
use partita_core::model::HubName;
use partita_hub::broker::{Broker, HubOptions};
use partita_hub::log::{Fault, Settings, SimDisk, When};
use partita_hub::server::ServerOptions;

use crate::client::{EARLIEST, Hosted, soon, text};
use crate::logged_disk::LoggedDisk;

#[tokio::test]
async fn accepted_events_are_there_after_a_restart_of_the_hub() {
    let dir = tempfile::tempdir().expect("dir");
    let open = || Arc::new(Broker::open(dir.path().join("data")).expect("opens").0);
    let broker = open();
    broker.create_hub(&HubName::new("eh1"), HubOptions::default()).expect("made");
    let hosted = Hosted::on(broker, ServerOptions::default()).await;
    let mut client = hosted.client().await;
    let sender = client.sender("eh1/Partitions/3").await;
    for n in 0..20 {
        assert_eq!(client.send(sender, text(n.to_string())).await, DeliveryState::Accepted);
    }
    hosted.server.shutdown(Duration::from_secs(10)).await;
    let error = client.until("close", |event| match event {
        Event::Closed { error, .. } => Some(error.clone()),
        _ => None,
    });
    assert_eq!(&*error.await.expect("a reason").condition, "amqp:connection:forced");
    drop((hosted, client));

    let hosted = Hosted::on(open(), ServerOptions::default()).await;
    let mut client = hosted.client().await;
    let reader = client.reader(3, EARLIEST, 100).await;
    let expected: Vec<_> = (0..20).map(|n| n.to_string()).collect();
    assert_eq!(client.texts(reader, 20).await, expected);
}

/// The power goes at any of the disk's calls, under load; whatever a client was told is accepted is there afterwards, once.
#[tokio::test]
async fn nothing_is_accepted_before_the_disk_has_it() {
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        let open = || Broker::open_with(Arc::new(disk.clone()), "/data", Settings::new(1)).expect("opens").0;
        let broker = open();
        let options = HubOptions { partitions: 1, ..HubOptions::default() };
        broker.create_hub(&HubName::new("eh1"), options).expect("made");
        let hosted = Hosted::on(Arc::new(broker), ServerOptions::default()).await;
        let mut client = hosted.client().await;
        let sender = client.sender("eh1").await;
        disk.plan(When::Call(disk.calls() + 3 + seed), Fault::PowerOff);
        let (mut sent, mut accepted) = (0, Vec::new());
        while !disk.is_off() {
            let mut ids = Vec::new();
            for _ in 0..1 + seed % 7 {
                ids.push((sent.to_string(), client.send_only(sender, 0, text(sent.to_string())).await));
                sent += 1;
            }
            for (n, id) in ids {
                if client.outcome(id).await == DeliveryState::Accepted {
                    accepted.push(n);
                }
            }
            assert!(sent < 10_000, "the power did not go");
        }
        drop(client);
        hosted.server.shutdown(Duration::from_secs(5)).await;
        drop(hosted);
        disk.reboot();
        let hosted = Hosted::on(Arc::new(open()), ServerOptions::default()).await;
        let mut client = hosted.client().await;
        let info = hosted.server.broker().hub("eh1").expect("there").partition(0).expect("there");
        let reader = client.reader(0, EARLIEST, 1_000).await;
        let found = client.texts(reader, info.next_seq as usize).await;
        for n in &accepted {
            assert_eq!(found.iter().filter(|text| *text == n).count(), 1, "seed {seed}: {n} was accepted");
        }
    }
}

/// By the disk's own log: where a write is durable when it returns, and where it takes a sync.
#[tokio::test]
async fn no_accept_comes_before_the_write_or_its_sync_has_returned() {
    for direct in [true, false] {
        let sim = SimDisk::new(1);
        sim.set_direct(direct);
        let disk = LoggedDisk::new(Arc::new(sim));
        let broker = Broker::open_with(Arc::new(disk.clone()), "/data", Settings::new(1)).expect("opens").0;
        let options = HubOptions { partitions: 1, ..HubOptions::default() };
        broker.create_hub(&HubName::new("eh1"), options).expect("made");
        let hosted = Hosted::on(Arc::new(broker), ServerOptions::default()).await;
        let mut client = hosted.client().await;
        let sender = client.sender("eh1").await;
        // Under load: whatever is accepted is in the log already.
        for round in 0..20 {
            let mut ids = Vec::new();
            for n in 0..10 {
                let body = format!("event {round}-{n} of many");
                ids.push((client.send_only(sender, 0, text(&*body)).await, body));
            }
            for (id, body) in ids {
                assert_eq!(client.outcome(id).await, DeliveryState::Accepted);
                assert!(disk.has_durable(body.as_bytes()), "direct {direct}: {body} was accepted too early");
            }
        }
        // While the call does not return, no answer does, though the server goes on otherwise.
        let hold = disk.hold();
        let id = client.send_only(sender, 0, text("the one that is held")).await;
        client.sender("eh1/Partitions/0").await;
        soon("write", async {
            while !disk.is_waited_for() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
        for _ in 0..5 {
            client.sender("eh1/Partitions/0").await;
        }
        let answered = client.stashed().any(|event| matches!(event, Event::Outcome { .. }));
        assert!(!answered && !disk.has_durable(b"the one that is held"), "direct {direct}");
        drop(hold);
        assert_eq!(client.outcome(id).await, DeliveryState::Accepted);
        assert!(disk.has_durable(b"the one that is held"), "direct {direct}");
    }
}

#[tokio::test]
async fn a_shutdown_lets_senders_have_their_answers() {
    let hosted = Hosted::new().await;
    let mut client = hosted.client().await;
    let sender = client.sender("eh1").await;
    let mut last = 0;
    for n in 0..200 {
        last = client.send_only(sender, 0, text(n.to_string())).await;
    }
    // All of it is on its way before the server hears of its end.
    let reader = client.reader(0, EARLIEST, 1).await;
    client.texts(reader, 1).await;
    let server = hosted.server.clone();
    let end = tokio::spawn(async move { server.shutdown(Duration::from_secs(20)).await });
    assert_eq!(client.outcome(last).await, DeliveryState::Accepted);
    client.until("close", |event| matches!(event, Event::Closed { .. }).then_some(())).await;
    drop(client);
    soon("end", end).await.expect("ended");
    assert!(hosted.server.connections().is_empty());
}
