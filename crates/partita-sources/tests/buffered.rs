//! Events that are handed over one by one arrive in order, all of them, whatever goes wrong; and they take bounded room here.

mod support;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use partita_core::model::{Event, EventBuilder, Position};
use partita_hub::broker::partition_of;
use partita_hub::fault::{Fault, FaultKind, FaultRole};
use partita_sources::eventhubs::{AddError, BufferedProducer, EventHubs, Receipt, Route, SendError};
use support::proxy::Proxy;
use support::{PATIENCE, Served, counted, open, take};

fn event(n: usize) -> EventBuilder {
    Event::builder(n.to_string())
}

async fn hand_over(producer: &BufferedProducer, route: Route, event: EventBuilder) -> Receipt {
    let sent = tokio::time::timeout(PATIENCE, producer.send(route, event)).await;
    sent.expect("in time").expect("handed over")
}

/// The bodies of a partition, up to its end.
async fn bodies(hubs: &EventHubs, partition: u32) -> Vec<usize> {
    let end = hubs.partition(&partition.into()).await.expect("described").end.position;
    let count = end.map_or(0, |last| last.sequence.0 as usize + 1);
    let events = take(&mut open(&hubs.source(), partition, Position::Earliest).await, count).await;
    events.iter().map(|event| event.text().expect("text").parse().expect("a number")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_arrive_in_order_where_their_route_leads() {
    let served = Served::new(4).await;
    let producer = served.client().buffered_producer().build();
    let mut receipts = Vec::new();
    for n in 0..1_000 {
        receipts.push(hand_over(&producer, Route::partition(1), event(n)).await);
        receipts.push(hand_over(&producer, Route::key("home-2"), event(n)).await);
    }
    for receipt in receipts {
        receipt.await.expect("durable");
    }
    let keyed = partition_of("home-2", 4);
    assert_ne!(keyed, 1, "another key would do");
    let client = served.client();
    assert_eq!(bodies(&client, 1).await, (0..1_000).collect::<Vec<_>>());
    assert_eq!(bodies(&client, keyed).await, (0..1_000).collect::<Vec<_>>());
    let mut reader = open(&client.source(), keyed, Position::Earliest).await;
    assert_eq!(take(&mut reader, 1).await[0].partition_key(), Some("home-2"));
    assert_eq!(producer.buffered(), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_key_batches_go_round_and_all_arrive() {
    let served = Served::new(4).await;
    let producer = served.client().buffered_producer().build();
    for round in 0..8 {
        for n in 0..10 {
            drop(hand_over(&producer, Route::Any, event(round * 10 + n)).await);
        }
        producer.flush().await.expect("sent");
    }
    let mut all = Vec::new();
    for partition in 0..4 {
        let there = bodies(&served.client(), partition).await;
        assert_eq!(there.len(), 20, "each has its turn");
        all.extend(there);
    }
    all.sort_unstable();
    assert_eq!(all, (0..80).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_is_buffered_than_allowed_and_whoever_sends_more_waits() {
    let served = Served::new(2).await;
    served
        .server
        .faults()
        .add(Fault { role: FaultRole::Sender, ..Fault::new(FaultKind::Delay(Duration::from_millis(20))) });
    let producer = served.client().buffered_producer().events_max(10).bytes_max(1_000).build();
    let (mut events_most, mut bytes_most) = (0, 0);
    for n in 0..200 {
        // Events of very different sizes; some larger than all the room.
        let body = vec![7; [1, 90, 300, 2_000][n % 4]];
        drop(hand_over(&producer, Route::partition(n as u32 % 2), Event::builder(body)).await);
        let (events, bytes) = producer.buffered();
        assert!(events <= 10 && bytes <= 1_000, "{events} events, {bytes} bytes");
        (events_most, bytes_most) = (events_most.max(events), bytes_most.max(bytes));
    }
    assert!(events_most > 2 && bytes_most == 1_000, "{events_most} events, {bytes_most} bytes at most");
    producer.close().await.expect("sent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_lingers_goes_when_others_need_its_room() {
    let served = Served::new(2).await;
    let hour = Duration::from_secs(3_600);
    let producer = served.client().buffered_producer().linger(hour).events_max(10).build();
    for n in 0..95 {
        drop(hand_over(&producer, Route::partition(n as u32 % 2), event(n)).await);
    }
    tokio::time::timeout(PATIENCE, producer.flush()).await.expect("in time").expect("sent");
    assert_eq!(producer.buffered(), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_sends_what_is_there_and_so_does_dropping() {
    let served = Served::new(1).await;
    let hour = Duration::from_secs(3_600);
    let producer = served.client().buffered_producer().linger(hour).build();
    let clone = producer.clone();
    let receipt = hand_over(&producer, Route::partition(0), event(0)).await;
    producer.close().await.expect("sent");
    receipt.await.expect("durable");
    assert!(matches!(clone.send(Route::partition(0), event(1)).await, Err(SendError::Closed)));
    let producer = served.client().buffered_producer().linger(hour).build();
    let receipt = hand_over(&producer, Route::partition(0), event(1)).await;
    drop(producer);
    tokio::time::timeout(PATIENCE, receipt).await.expect("in time").expect("durable");
    assert_eq!(bodies(&served.client(), 0).await, [0, 1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_event_is_told_what_became_of_it() {
    let served = Served::new(2).await;
    let producer = served.client().buffered_producer().build();
    let large = producer.send(Route::partition(0), Event::builder(vec![0; 2 << 20])).await;
    assert!(matches!(large, Err(SendError::Event { source: AddError::TooLarge { .. }, .. })), "{large:?}");
    assert!(producer.send(Route::partition(9), event(0)).await.is_err());
    let refusal = FaultKind::Detach { condition: "amqp:not-found".into(), description: "gone".into() };
    let faults = served.server.faults();
    let fault = faults.add(Fault { role: FaultRole::Sender, partition: Some(0), ..Fault::new(refusal) });
    let refused = hand_over(&producer, Route::partition(0), event(1)).await;
    let good = hand_over(&producer, Route::partition(1), event(2)).await;
    let error = refused.await.expect_err("refused");
    assert!(!error.is_retriable() && error.to_string().contains("gone"), "{error}");
    good.await.expect("durable");
    assert!(producer.flush().await.is_err(), "whoever dropped the receipt hears of it here");
    assert!(producer.flush().await.is_ok(), "once");
    faults.remove(fault);
    hand_over(&producer, Route::partition(0), event(3)).await.await.expect("durable");
    assert_eq!(bodies(&served.client(), 0).await, [3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_a_failure_stops_a_partition_the_hub_has_the_beginning_of_what_was_handed_over() {
    let served = Served::new(2).await;
    let hour = Duration::from_secs(3_600);
    let builder = served.client().buffered_producer().linger(hour);
    let producer = builder.idempotent_if_taken().stop_on_failure().build();
    for n in 0..3 {
        drop(hand_over(&producer, Route::partition(0), event(n)).await);
    }
    producer.flush().await.expect("sent");
    let gone = || FaultKind::Detach { condition: "amqp:not-found".into(), description: "gone".into() };
    let faults = served.server.faults();
    // The link that it has is taken away, and the next one; then all would be well again.
    faults.add(Fault { count: Some(2), role: FaultRole::Sender, partition: Some(0), ..Fault::new(gone()) });
    let lost = hand_over(&producer, Route::partition(0), event(3)).await;
    drop(hand_over(&producer, Route::partition(1), event(4)).await);
    assert!(producer.flush().await.is_err());
    assert!(lost.await.is_err());
    let refused = producer.send(Route::partition(0), event(5)).await.expect_err("stopped");
    assert!(refused.to_string().contains("gone") && !refused.may_have_happened(), "{refused}");
    drop(hand_over(&producer, Route::partition(1), event(6)).await);
    let outcomes = producer.outcomes();
    producer.close().await.expect("the other partition goes on");
    assert_eq!(
        outcomes.iter().map(|of| (of.sent_events, of.failed_events)).collect::<Vec<_>>(),
        [(3, 1), (1, 0)]
    );
    // The one that failed may have been written before its link was taken away; nothing is there that came after it.
    let there = bodies(&served.client(), 0).await;
    assert!(there == [0, 1, 2] || there == [0, 1, 2, 3], "{there:?}");
    assert_eq!(bodies(&served.client(), 1).await, [4, 6]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_takes_no_numbers_gets_the_events_without() {
    let served = Served::new(1).await;
    let refusal =
        || FaultKind::Detach { condition: "amqp:not-allowed".into(), description: "no numbers".into() };
    for (numbered, taken) in [(true, false), (false, true)] {
        // It strikes the first link to the partition, which is the one that asks for numbers.
        let fault =
            Fault { count: Some(1), role: FaultRole::Sender, partition: Some(0), ..Fault::new(refusal()) };
        served.server.faults().add(fault);
        let builder = served.client().buffered_producer();
        let builder = if numbered { builder.idempotent() } else { builder.idempotent_if_taken() };
        let receipt = hand_over(&builder.build(), Route::partition(0), event(7)).await;
        assert_eq!(receipt.await.is_ok(), taken, "whoever insists on numbers is told that there are none");
    }
    assert_eq!(bodies(&served.client(), 0).await, [7]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_runtime_that_sends_is_gone_whoever_waits_is_told() {
    let served = Served::new(1).await;
    // Its answers never come, so that a batch is under way and others wait behind it.
    served.server.faults().add(Fault::new(FaultKind::Delay(Duration::from_secs(3_600))));
    let forever = Duration::MAX;
    let builder = served.client().buffered_producer().linger(forever).send_time_max(forever).events_max(2);
    let producer = builder.build();
    let clone = producer.clone();
    let receipts = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let first = hand_over(&clone, Route::partition(0), event(0)).await;
            let second = hand_over(&clone, Route::partition(0), event(1)).await;
            // There is no more room: this lets the first ones go, and waits.
            let third =
                tokio::time::timeout(Duration::from_millis(300), clone.send(Route::Any, event(2))).await;
            assert!(third.is_err(), "there was room");
            [first, second]
        })
    });
    for receipt in receipts.await.expect("no panic") {
        assert!(tokio::time::timeout(PATIENCE, receipt).await.expect("told").is_err());
    }
    let _ = tokio::time::timeout(PATIENCE, producer.flush()).await.expect("flushed");
    assert_eq!(producer.buffered(), (0, 0), "their room is free again");
    let refused = tokio::time::timeout(PATIENCE, producer.send(Route::Any, event(3))).await.expect("told");
    assert!(matches!(refused, Err(SendError::Closed)), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_while_another_connects_closes() {
    let served = Served::new(1).await;
    let producer = served.client().buffered_producer().build();
    let sending = producer.send(Route::Any, event(0));
    tokio::pin!(sending);
    // It asks the hub for its partitions.
    tokio::select! {
        biased;
        _ = &mut sending => panic!("there was no need to ask"),
        () = std::future::ready(()) => {}
    }
    producer.clone().close().await.expect("nothing was sent");
    assert!(matches!(sending.await, Err(SendError::Closed)));
    assert_eq!(bodies(&served.client(), 0).await, [0; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_no_hub_takes_does_not_fail_the_events_around_it() {
    let served = Served::new(1).await;
    let producer = served.client().buffered_producer().build();
    let good = hand_over(&producer, Route::partition(0), event(0)).await;
    let keyed = event(1).partition_key("k".repeat(129));
    let refused = producer.send(Route::partition(0), keyed.clone()).await;
    assert!(matches!(refused, Err(SendError::Event { source: AddError::KeyTooLong { chars: 129 }, .. })));
    good.await.expect("durable");
    let mut batch = served.client().producer().batch(Route::partition(0)).await.expect("a batch");
    assert_eq!(batch.add(keyed), Err(AddError::KeyTooLong { chars: 129 }));
}

/// What is done to a producer while it sends.
async fn trouble(served: Served, proxy: Proxy) -> Served {
    for round in 0..3 {
        for kind in [
            FaultKind::Busy,
            FaultKind::Detach { condition: "amqp:link:detach-forced".into(), description: "moved".into() },
            FaultKind::Drop,
        ] {
            let fault = Fault { count: Some(2), role: FaultRole::Sender, ..Fault::new(kind) };
            served.server.faults().add(fault);
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
        // Answers are cut off, in the middle of a frame or before it.
        for bytes in [0, 1, 17 + round] {
            proxy.cut_after(bytes);
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
    }
    let stopped = served.stop().await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    stopped.start().await
}

/// Sends to two partitions until all trouble is over; what arrived in each, and how many were sent to each.
async fn through_trouble(idempotent: bool) -> (Vec<Vec<usize>>, usize) {
    let served = Served::new(2).await;
    let proxy = Proxy::to(served.address).await;
    let hubs = served.builder().endpoint(format!("amqp://{}", proxy.address)).build().expect("a client");
    let builder = hubs.buffered_producer().linger(Duration::from_millis(1)).events_max(500);
    let producer = if idempotent { builder.idempotent() } else { builder }.build();
    drop(hand_over(&producer, Route::partition(0), event(0)).await);
    drop(hand_over(&producer, Route::partition(1), event(0)).await);
    let mut troubled = tokio::spawn(trouble(served, proxy));
    let (mut sent, mut over, mut after) = (1, None, 0);
    let mut receipts = Vec::new();
    while after < 100 {
        tokio::select! {
            biased;
            done = &mut troubled, if over.is_none() => over = Some((done.expect("no panic"), Instant::now())),
            () = tokio::time::sleep(Duration::from_millis(1)) => {}
        }
        after += usize::from(over.is_some());
        for partition in 0..2 {
            receipts.push(hand_over(&producer, Route::partition(partition), event(sent)).await);
        }
        sent += 1;
    }
    let (served, since) = over.expect("the trouble is over");
    for receipt in receipts {
        tokio::time::timeout(PATIENCE, receipt).await.expect("in time").expect("durable in the end");
    }
    counted(&format!("a buffered producer had caught up {:?} after the hub was back", since.elapsed()));
    let client = served.client();
    (vec![bodies(&client, 0).await, bodies(&client, 1).await], sent)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn order_holds_whatever_is_tried_again() {
    let (partitions, sent) = through_trouble(false).await;
    for mut there in partitions {
        // What was sent again may be there again; all else is there once and in order.
        let mut seen = HashSet::new();
        there.retain(|n| seen.insert(*n));
        assert_eq!(there, (0..sent).collect::<Vec<_>>());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idempotent_producer_repeats_nothing_whatever_is_tried_again() {
    let (partitions, sent) = through_trouble(true).await;
    for there in partitions {
        assert_eq!(there, (0..sent).collect::<Vec<_>>());
    }
}

/// Loses the hub's answer to one event and tells what is in the hub then.
async fn with_a_lost_answer(idempotent: bool, buffered: bool) -> Vec<usize> {
    let served = Served::new(1).await;
    let proxy = Proxy::to(served.address).await;
    let hubs = served.builder().endpoint(format!("amqp://{}", proxy.address)).build().expect("a client");
    let route = || Route::partition(0);
    if buffered {
        let builder = hubs.buffered_producer();
        let producer = if idempotent { builder.idempotent() } else { builder }.build();
        for n in 0..3 {
            if n == 1 {
                proxy.cut_after(0);
            }
            hand_over(&producer, route(), event(n)).await.await.expect("durable");
        }
    } else {
        let producer = if idempotent { hubs.idempotent_producer() } else { hubs.producer() };
        for n in 0..3 {
            if n == 1 {
                proxy.cut_after(0);
            }
            producer.send_event(route(), event(n)).await.expect("durable");
        }
    }
    assert!(proxy.connections() >= 2, "nothing was cut");
    bodies(&served.client(), 0).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_makes_a_duplicate_and_none_if_events_are_numbered() {
    for buffered in [false, true] {
        assert_eq!(with_a_lost_answer(false, buffered).await, [0, 1, 1, 2], "buffered: {buffered}");
        assert_eq!(with_a_lost_answer(true, buffered).await, [0, 1, 2], "buffered: {buffered}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_numbered_send_that_was_given_up_does_not_swallow_the_next() {
    let served = Served::new(1).await;
    let producer = served.client().idempotent_producer();
    producer.send_event(Route::partition(0), event(0)).await.expect("durable");
    let slow = Fault { count: Some(1), ..Fault::new(FaultKind::Delay(Duration::from_secs(3))) };
    served.server.faults().add(slow);
    // It arrives, and its sender does not wait for the answer.
    let given_up = producer.send_event(Route::partition(0), event(1));
    tokio::time::timeout(Duration::from_millis(200), given_up).await.expect_err("slow");
    producer.send_event(Route::partition(0), event(2)).await.expect("durable");
    producer.send_event(Route::key("k"), event(3)).await.expect("durable");
    assert_eq!(bodies(&served.client(), 0).await, [0, 1, 2, 3]);
}
