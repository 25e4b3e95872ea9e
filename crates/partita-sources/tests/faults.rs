//! Whatever goes wrong between here and the hub: nothing is lost, the order is kept, and what helps is said.

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use partita_core::model::{Epoch, Event, HubName, Position, SequenceNumber};
use partita_core::source::{EventSource, PartitionReader, ReadRequest, SourceErrorKind};
use partita_hub::fault::{Fault, FaultKind, FaultRole};
use partita_sources::eventhubs::{
    ConnectionString, Credential, EventHubs, EventHubsSource, Route, Secret, Service,
};
use support::proxy::Proxy;
use support::{PATIENCE, Served, counted, open, request, take};

/// Reads a partition from its start on and opens another reader where one fails, as a processor does.
struct Follower {
    source: EventHubsSource,
    reader: Option<Box<dyn PartitionReader>>,
    events: Vec<Event>,
    failures: usize,
}

impl Follower {
    fn new(source: EventHubsSource) -> Self {
        Self { source, reader: None, events: Vec::new(), failures: 0 }
    }

    /// Until there are `count` events, in order and without gaps.
    async fn until(&mut self, count: usize) {
        let began = Instant::now();
        while self.events.len() < count {
            assert!(began.elapsed() < PATIENCE, "{} of {count} events came", self.events.len());
            let from = match self.events.last() {
                Some(last) => last.next_position(),
                None => Position::Earliest,
            };
            let error = match &mut self.reader {
                None => match self.source.open(request(0, from)).await {
                    Ok(reader) => {
                        self.reader = Some(reader);
                        continue;
                    }
                    Err(error) => error,
                },
                Some(reader) => {
                    let read = reader.read(50, &mut self.events);
                    match tokio::time::timeout(PATIENCE, read).await.expect("in time") {
                        Ok(()) => continue,
                        Err(error) => error,
                    }
                }
            };
            assert_eq!(error.kind(), SourceErrorKind::Retriable, "{error}");
            self.failures += 1;
            self.reader = None;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let numbers: Vec<i64> = self.events.iter().map(|event| event.sequence_number().0).collect();
        assert_eq!(numbers, (0..self.events.len() as i64).collect::<Vec<_>>());
    }
}

fn events(count: usize) -> impl Iterator<Item = partita_core::model::EventBuilder> {
    (0..count).map(|n| Event::builder(format!("{n:0>200}")))
}

fn through(proxy: &Proxy, served: &Served) -> EventHubs {
    let builder = served.builder().endpoint(format!("amqp://{}", proxy.address));
    builder.build().expect("a client")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_cut_anywhere_loses_and_repeats_nothing() {
    let served = Served::new(1).await;
    served.append(0, events(2_000)).await;
    let proxy = Proxy::to(served.address).await;
    let mut follower = Follower::new(through(&proxy, &served).source());
    let mut longest = Duration::ZERO;
    for step in 1..40 {
        // In handshakes, in the middle of frames, and between them.
        proxy.cut_after(step * 211);
        // Another reader: what is already here would do otherwise.
        follower.reader = None;
        let began = Instant::now();
        follower.until((step as usize) * 20).await;
        longest = longest.max(began.elapsed());
    }
    proxy.cut_after(50_000);
    follower.until(2_000).await;
    assert!(follower.failures >= 10, "only {} connections were cut", follower.failures);
    counted(&format!("{} connections cut, and read on {longest:?} later at most", follower.failures));
    assert!(
        follower.events.iter().enumerate().all(|(n, event)| *event.text().unwrap() == format!("{n:0>200}"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn detached_links_and_a_busy_hub_pass() {
    let served = Served::new(1).await;
    served.append(0, events(200)).await;
    let mut follower = Follower::new(served.client().source());
    follower.until(100).await;
    let detach = FaultKind::Detach {
        condition: "amqp:link:detach-forced".into(),
        description: "The link is moved to another node.".into(),
    };
    let mut appended = 200;
    for kind in [detach, FaultKind::Busy, FaultKind::Drop] {
        let before = follower.failures;
        let fault = Fault { count: Some(2), role: FaultRole::Receiver, ..Fault::new(kind.clone()) };
        let id = served.server.faults().add(fault);
        // Busy strikes links that attach.
        if kind == FaultKind::Busy {
            follower.reader = None;
        }
        let began = Instant::now();
        // Events may come before the fault strikes: then it strikes with the next.
        while follower.failures == before {
            assert!(began.elapsed() < PATIENCE, "{kind:?} struck nobody");
            served.append(0, events(10)).await;
            appended += 10;
            follower.until(appended).await;
        }
        let name = format!("{kind:?}");
        let name = name.split_whitespace().next().unwrap_or_default().to_lowercase();
        counted(&format!("fault {name}: read on {:?} later", began.elapsed()));
        served.server.faults().remove(id);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_is_killed_and_comes_back_is_read_on() {
    let served = Served::new(1).await;
    served.append(0, events(100)).await;
    let mut follower = Follower::new(served.client().source());
    follower.until(100).await;
    let stopped = served.stop().await;
    let error = follower.reader.take().expect("a reader").read(1, &mut Vec::new()).await.expect_err("cut");
    assert_eq!(error.kind(), SourceErrorKind::Retriable);
    let ((served, back), ()) = tokio::join!(
        async {
            tokio::time::sleep(Duration::from_millis(700)).await;
            let served = stopped.start().await;
            let back = Instant::now();
            served.append(0, events(100)).await;
            (served, back)
        },
        follower.until(200),
    );
    counted(&format!("a hub that was away for 0.7 s is read on {:?} after it is back", back.elapsed()));
    drop(served);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_says_nothing_any_more_is_left() {
    let served = Served::new(1).await;
    let proxy = Proxy::to(served.address).await;
    let builder = served.builder().endpoint(format!("amqp://{}", proxy.address));
    let client = builder.idle_timeout(Duration::from_secs(1)).build().expect("a client");
    let mut reader = open(&client.source(), 0, Position::Earliest).await;
    proxy.silence(true);
    let began = Instant::now();
    let read = tokio::time::timeout(PATIENCE, reader.read(1, &mut Vec::new())).await.expect("in time");
    assert_eq!(read.expect_err("gone").kind(), SourceErrorKind::Retriable);
    proxy.silence(false);
    served.append(0, events(1)).await;
    // On a busy machine a second may pass without a word from us, too: then it is opened again, as a processor does.
    let mut there = Vec::new();
    let read_on = async {
        while there.is_empty() {
            if let Ok(mut reader) = client.source().open(request(0, Position::Earliest)).await {
                let _ = reader.read(1, &mut there).await;
            }
        }
    };
    tokio::time::timeout(PATIENCE, read_on).await.expect("in time");
    counted(&format!(
        "a hub that is silent, with an idle timeout of 1 s: read on {:?} later",
        began.elapsed()
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_hub_is_away_it_is_seldom_tried() {
    let served = Served::new(4).await;
    let proxy = Proxy::to(served.address).await;
    let source = Arc::new(through(&proxy, &served).source());
    drop(open(&*source, 0, Position::Earliest).await);
    let _stopped = served.stop().await;
    let before = proxy.connections();
    // Many readers that try again at once when they fail.
    let began = Instant::now();
    let tasks = (0..16).map(|n| {
        let source = source.clone();
        tokio::spawn(async move {
            while began.elapsed() < Duration::from_secs(3) {
                let left = Duration::from_secs(3).saturating_sub(began.elapsed());
                let opened =
                    tokio::time::timeout(left, source.open(request(n % 4, Position::Earliest))).await;
                assert!(!matches!(opened, Ok(Ok(_))), "nobody is there");
                tokio::task::yield_now().await;
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("no panic");
    }
    let tried = proxy.connections() - before;
    assert!((1..=12).contains(&tried), "{tried} attempts in three seconds");
    counted(&format!("16 readers of a hub that is away made {tried} attempts to connect in 3 s"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_renewed_before_they_end() {
    let served = Served::new(1).await;
    let client = served.builder().token_lifetime(Duration::from_secs(4)).build().expect("a client");
    let mut reader = open(&client.source(), 0, Position::Earliest).await;
    // Longer than a token lasts; the hub detaches links whose token has ended.
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(7) {
        served.append(0, events(1)).await;
        take(&mut reader, 1).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signature_that_ends_ends_its_readers_with_a_reason() {
    let served = Served::new(1).await;
    let expires = partita_core::model::Timestamp(partita_core::model::Timestamp::now().millis() + 2_000);
    let resource = format!("sb://{}/{}", served.address.ip(), support::HUB);
    let signature =
        partita_dialect::sas::sign(&resource, "RootManageSharedAccessKey", b"SAS_KEY_VALUE", expires);
    let connection = ConnectionString::builder("127.0.0.1", Credential::Signature(Secret::from(signature)))
        .port(served.address.port())
        .service(Service::Emulator)
        .hub(HubName::new(support::HUB))
        .build();
    let client = EventHubs::new(&connection).expect("a client");
    let mut reader = open(&client.source(), 0, Position::Earliest).await;
    let read = tokio::time::timeout(PATIENCE, reader.read(1, &mut Vec::new())).await.expect("in time");
    let error = read.expect_err("the token ended");
    assert_eq!(error.kind(), SourceErrorKind::Fatal, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_loses_the_partition_to_another_is_told_so() {
    let served = Served::new(1).await;
    let source = served.client().source();
    let level = |level| ReadRequest { owner_level: Some(Epoch(level)), ..request(0, Position::Earliest) };
    let mut first = source.open(level(1)).await.expect("opens");
    let other = served.client().source();
    let _second = other.open(level(2)).await.expect("takes it");
    let read = tokio::time::timeout(PATIENCE, first.read(1, &mut Vec::new())).await.expect("in time");
    assert_eq!(read.expect_err("evicted").kind(), SourceErrorKind::OwnershipLost);
    assert_eq!(source.open(level(1)).await.err().expect("refused").kind(), SourceErrorKind::OwnershipLost);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sends_get_through_a_hub_that_is_busy_detaches_or_is_cut() {
    let served = Served::new(1).await;
    let producer = served.client().producer();
    let mut sent = 0;
    for kind in [
        FaultKind::Busy,
        FaultKind::Detach { condition: "amqp:link:detach-forced".into(), description: "moved".into() },
        FaultKind::Drop,
    ] {
        let fault = Fault { count: Some(2), role: FaultRole::Sender, ..Fault::new(kind) };
        served.server.faults().add(fault);
        for _ in 0..3 {
            let body = sent.to_string();
            producer.send_event(Route::partition(0), Event::builder(body)).await.expect("sent in the end");
            sent += 1;
        }
    }
    let mut reader = open(&served.client().source(), 0, Position::Earliest).await;
    let mut seen = Vec::new();
    while seen.last() != Some(&(sent - 1)) {
        let event = take(&mut reader, 1).await.remove(0);
        seen.push(event.text().unwrap().parse::<i32>().unwrap());
    }
    // Where an answer was lost an event may be there twice, one after the other.
    seen.dedup();
    assert_eq!(seen, (0..sent).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_is_said_quickly_and_in_a_sentence() {
    let served = Served::new(1).await;
    let connect =
        |text: String| EventHubs::new(&text.parse::<ConnectionString>().expect("parses")).expect("a client");
    let string = |endpoint: &str, key: &str, hub: &str| {
        format!(
            "Endpoint=sb://{endpoint};SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey={key};\
             UseDevelopmentEmulator=true;EntityPath={hub}"
        )
    };
    let here = served.address.to_string();
    let gone =
        { tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("bound") };
    for (text, kind, words) in [
        (
            string("no-such-host.invalid", "SAS_KEY_VALUE", "homes"),
            SourceErrorKind::Retriable,
            "the host 'no-such-host.invalid' is not found",
        ),
        (
            string(&gone.to_string(), "SAS_KEY_VALUE", "homes"),
            SourceErrorKind::Retriable,
            "is the hub running?",
        ),
        (string(&here, "wrong", "homes"), SourceErrorKind::Fatal, "check key, signature and hub name"),
        (string(&here, "SAS_KEY_VALUE", "cars"), SourceErrorKind::Fatal, "could not be found"),
    ] {
        let began = Instant::now();
        let error = connect(text).source().describe().await.expect_err("wrong");
        assert_eq!(error.kind(), kind, "{error}");
        let sentence = error.to_string();
        assert!(sentence.contains(words), "{sentence}");
        assert!(!sentence.contains("SAS_KEY") && !sentence.contains('\n'), "{sentence}");
        assert!(began.elapsed() < Duration::from_secs(10));
        counted(&format!("said after {:?}: {words}", began.elapsed()));
    }
    let source = connect(string(&here, "SAS_KEY_VALUE", "cars")).source();
    let error = source.open(request(0, Position::Earliest)).await.err().expect("no such hub");
    assert_eq!(error.kind(), SourceErrorKind::Fatal, "{error}");
    let far = Position::at_sequence(SequenceNumber(1_000));
    let error = served.client().source().open(request(0, far)).await.err().expect("past the end");
    assert_eq!(error.kind(), SourceErrorKind::PositionGone, "{error}");
}
