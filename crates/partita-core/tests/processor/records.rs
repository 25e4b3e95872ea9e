//! Whose records a group works with: of this hub, under this name, of partitions that there are.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use partita_core::model::{Namespace, PartitionId, Position, Scope, StreamId};
use partita_core::processor::{Operation, Processor, ProcessorHandle, StartError};
use partita_core::source::{
    EventSource, HubDescription, MemoryHub, PartitionReader, ReadRequest, SourceError,
};
use partita_core::store::{CheckpointStore, MemoryStore, Resume};

use crate::support::{Errors, HUB, Machine, World, ms, partition, secs, soon};

/// A hub as it may be described, too.
#[derive(Clone)]
struct Described {
    hub: MemoryHub,
    says: Arc<Mutex<HubDescription>>,
    former: Vec<Namespace>,
}

impl Described {
    fn new(hub: &MemoryHub, namespace: &str) -> Self {
        let says = HubDescription { namespace: Namespace::new(namespace), ..hub.description() };
        Self { hub: hub.clone(), says: Arc::new(Mutex::new(says)), former: Vec::new() }
    }

    fn formerly(mut self, namespace: &str) -> Self {
        self.former.push(Namespace::new(namespace));
        self
    }

    fn is_now(&self, change: impl FnOnce(&mut HubDescription)) {
        change(&mut self.says.lock().unwrap());
    }

    fn scope(&self) -> Scope {
        let says = self.says.lock().unwrap();
        Scope { namespace: says.namespace.clone(), hub: says.hub.clone(), group: Default::default() }
    }
}

impl EventSource for Described {
    fn describe(&self) -> BoxFuture<'_, Result<HubDescription, SourceError>> {
        Box::pin(std::future::ready(Ok(self.says.lock().unwrap().clone())))
    }

    fn former_namespaces(&self) -> Vec<Namespace> {
        self.former.clone()
    }

    fn open(&self, request: ReadRequest) -> BoxFuture<'_, Result<Box<dyn PartitionReader>, SourceError>> {
        Box::pin(async move { self.hub.source().open(request).await })
    }
}

async fn start(
    name: &str,
    source: &Described,
    store: &MemoryStore,
    errors: &Errors,
) -> Result<ProcessorHandle, StartError> {
    let seed = name.bytes().map(u64::from).sum();
    let processor = Processor::builder(source.clone(), store.clone())
        .instance_id(name)
        .runtime(Machine::new(seed))
        .on_error(errors.listener())
        .on_event(async |_, _| Ok(()));
    soon("the start", processor.build().unwrap().start()).await
}

async fn owns(handle: &ProcessorHandle, partitions: usize) {
    let reads = |status: &partita_core::processor::Status| {
        status.owned().filter(|p| p.here.is_some()).count() == partitions
    };
    soon("it owns them", handle.wait_for(reads)).await;
}

/// The instances of a scope that write heartbeats, by name.
async fn records_of(store: &MemoryStore, scope: &Scope) -> (usize, Vec<PartitionId>) {
    let view = store.view(scope).await.unwrap();
    (view.instances.len(), view.ownerships.into_iter().map(|held| held.partition).collect())
}

/// Rewrites the records as a version wrote them that knew nothing of ports.
async fn as_formerly(store: &MemoryStore, from: &Scope, to: &Scope, stream: &StreamId) {
    use partita_core::model::{Epoch, Incarnation, InstanceId};
    use partita_core::store::{CheckpointWrite, Op};
    let op = Op { by: Incarnation::new(InstanceId::new("former"), 1), number: 1 };
    for record in store.checkpoints(from).await.unwrap() {
        let Some(Resume::After(mut last)) = record.resume else { continue };
        last.enqueued_time = None;
        let (partition, epoch) = (record.partition, Epoch(1));
        let seal = CheckpointWrite::Seal { partition: partition.clone(), epoch, op: op.clone() };
        store.write_checkpoint(to, seal).await.unwrap();
        let stream = Some(stream.clone());
        let advance = CheckpointWrite::Advance { partition, epoch, last, stream, op: op.clone() };
        store.write_checkpoint(to, advance).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn records_under_a_former_name_are_moved_when_a_processor_starts() {
    let world = World::new(2);
    world.fill(10);
    let a = world.join("a").await;
    world.checkpointed(9).await;
    a.shutdown().await;
    let (store, errors) = (world.store.clone(), Errors::default());
    let source = Described::new(&world.hub, "host:7001").formerly("host");
    let former = Scope { namespace: Namespace::new("host"), ..source.scope() };
    let stream = world.hub.description().stream.unwrap();
    as_formerly(&store, &world.scope(), &former, &stream).await;
    let b = start("b", &source, &store, &errors).await.unwrap();
    owns(&b, 2).await;
    assert_eq!(store.checkpoints(&former).await.unwrap(), Vec::new(), "nothing is left behind");
    for record in store.checkpoints(&source.scope()).await.unwrap() {
        assert!(matches!(&record.resume, Some(Resume::After(last)) if last.sequence.0 == 9), "{record:?}");
    }
    assert_eq!(errors.all().len(), 0);
    b.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn records_of_another_hub_stay_under_the_name_that_both_had() {
    let world = World::new(1);
    world.fill(10);
    let a = world.join("a").await;
    world.checkpointed(9).await;
    a.shutdown().await;
    let other = MemoryHub::new(HUB, 1);
    let source = Described::new(&other, "host:7002").formerly("host");
    let former = Scope { namespace: Namespace::new("host"), ..source.scope() };
    let stream = world.hub.description().stream.unwrap();
    as_formerly(&world.store, &world.scope(), &former, &stream).await;
    let errors = Errors::default();
    let b = start("b", &source, &world.store, &errors).await.unwrap();
    owns(&b, 1).await;
    assert_eq!(world.store.checkpoints(&former).await.unwrap().len(), 1);
    let told = errors.of(Operation::Register);
    assert!(told[0].to_string().contains("they are of another hub"), "{}", told[0]);
    b.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_start_is_refused_while_an_instance_lives_under_the_former_name() {
    use partita_core::model::{Incarnation, InstanceId};
    use partita_core::store::{InstanceRecord, InstanceState, InstanceWrite};
    let hub = MemoryHub::new(HUB, 1);
    let (store, errors) = (MemoryStore::new(), Errors::default());
    let source = Described::new(&hub, "host:7001").formerly("host");
    let former = Scope { namespace: Namespace::new("host"), ..source.scope() };
    let record = InstanceRecord {
        incarnation: Incarnation::new(InstanceId::new("old"), 1),
        host: "there".into(),
        started: Default::default(),
        ttl: secs(5),
        stopping: false,
        declines: Vec::new(),
        state: InstanceState::Live,
        beat: 0,
        details: Default::default(),
    };
    let beating = {
        let (store, former) = (store.clone(), former.clone());
        store.write_instance(&former, InstanceWrite::Register(record)).await.unwrap();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(secs(1)).await;
                let seen = store.view(&former).await.unwrap().instances.remove(0);
                let write = InstanceWrite::Beat { record: seen.record, expect: seen.version };
                store.write_instance(&former, write).await.unwrap();
            }
        })
    };
    let error = start("new", &source, &store, &errors).await.expect_err("it is refused");
    assert!(matches!(error, StartError::FormerNameInUse { .. }), "{error}");
    let said = error.to_string();
    assert!(said.contains("old still runs as host/hub/$Default") && said.contains("stop all"), "{said}");
    assert_eq!(records_of(&store, &source.scope()).await, (0, Vec::new()), "nothing was written");
    // One that crashes is waited for.
    beating.abort();
    let started = start("new", &source, &store, &errors).await.expect("nobody is left");
    started.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn two_hubs_under_one_name_do_not_become_one_group() {
    let (one, two) = (MemoryHub::new(HUB, 4), MemoryHub::new(HUB, 4));
    let (store, errors) = (MemoryStore::new(), Errors::default());
    let a = start("a", &Described::new(&one, "host"), &store, &errors).await.unwrap();
    owns(&a, 4).await;
    let error = start("b", &Described::new(&two, "host"), &store, &errors).await.expect_err("refused");
    assert!(matches!(error, StartError::OtherHub { .. }), "{error}");
    assert!(
        error.to_string().contains("a on ") && error.to_string().contains("reads another hub"),
        "{error}"
    );
    assert_eq!(a.status().owned().count(), 4, "the first one keeps all");
    a.shutdown().await.unwrap();
    let b = start("b", &Described::new(&two, "host"), &store, &errors).await.expect("the other one is gone");
    owns(&b, 4).await;
    b.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn two_hubs_under_one_name_that_start_at_the_same_moment_are_refused() {
    let hubs = [MemoryHub::new(HUB, 4), MemoryHub::new(HUB, 4)];
    let [one, two] = hubs.map(|hub| Described::new(&hub, "host"));
    let (store, errors) = (MemoryStore::new(), Errors::default());
    let started = tokio::join!(start("a", &one, &store, &errors), start("b", &two, &store, &errors));
    assert!(started.0.is_err() || started.1.is_err(), "both started");
    for handle in [started.0, started.1].into_iter().flatten() {
        handle.shutdown().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_turns_to_another_hub_is_told_of() {
    let hub = MemoryHub::new(HUB, 2);
    let (store, errors) = (MemoryStore::new(), Errors::default());
    let (first, second) = (Described::new(&hub, "host"), Described::new(&hub, "host"));
    let a = start("a", &first, &store, &errors).await.unwrap();
    let b = start("b", &second, &store, &errors).await.unwrap();
    owns(&a, 1).await;
    second.is_now(|says| says.stream = Some(StreamId::new("another")));
    soon("it is told", async {
        let told = |name: &str| {
            let about = format!("{name} reads another hub under the same name");
            errors.of(Operation::View).iter().any(|error| error.to_string().contains(&about))
        };
        while !(told("a") && told("b")) {
            tokio::time::sleep(ms(500)).await;
        }
    })
    .await;
    for handle in [a, b] {
        let _ = handle.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_was_reset_is_followed_by_all_without_a_complaint() {
    let hub = MemoryHub::new(HUB, 2);
    let (store, errors) = (MemoryStore::new(), Errors::default());
    let (first, second) = (Described::new(&hub, "host"), Described::new(&hub, "host"));
    let a = start("a", &first, &store, &errors).await.unwrap();
    tokio::time::sleep(secs(4)).await;
    let b = start("b", &second, &store, &errors).await.unwrap();
    owns(&a, 1).await;
    for says in [&first, &second] {
        says.is_now(|says| says.stream = Some(StreamId::new("new life")));
    }
    let c = start("c", &first, &store, &errors).await.expect("it waits until the others have noticed");
    tokio::time::sleep(secs(30)).await;
    assert_eq!(errors.of(Operation::View).len(), 0, "{:?}", errors.of(Operation::View));
    for handle in [a, b, c] {
        handle.shutdown().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn partitions_that_the_hub_does_not_have_are_nobodys() {
    let hub = MemoryHub::new(HUB, 6);
    let (store, errors) = (MemoryStore::new(), Errors::default());
    let all = Described::new(&hub, "host");
    let a = start("a", &all, &store, &errors).await.unwrap();
    owns(&a, 6).await;
    // Made again with fewer, while one instance runs, whose records name it as the owner of all.
    let fewer = Described::new(&MemoryHub::new(HUB, 2), "host");
    fewer.is_now(|says| says.stream = all.says.lock().unwrap().stream.clone());
    a.shutdown().await.unwrap();
    let scope = all.scope();
    let before = store.moves(&scope).await.unwrap().len();
    let b = start("b", &fewer, &store, &errors).await.unwrap();
    let c = start("c", &fewer, &store, &errors).await.unwrap();
    owns(&b, 1).await;
    owns(&c, 1).await;
    tokio::time::sleep(secs(120)).await;
    for handle in [&b, &c] {
        let status = handle.status();
        assert_eq!(status.owned().count(), 1, "one each: {status:?}");
        assert_eq!(status.partitions.len(), 2, "the others are not shown");
    }
    let moves: Vec<_> = store.moves(&scope).await.unwrap().split_off(before);
    let gone: Vec<_> = moves.iter().filter(|moved| moved.partition > partition(1)).collect();
    assert!(gone.is_empty(), "what there is not was moved: {gone:?}");
    assert!(moves.len() <= 3, "two claims and a hand-off: {moves:?}");
    assert_eq!(records_of(&store, &scope).await.1.len(), 6, "records stay");
    assert_eq!(errors.of(Operation::OpenReader).len(), 0);
    for handle in [b, c] {
        handle.shutdown().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_instance_lets_go_of_a_partition_that_the_hub_lost_while_it_ran() {
    let hub = MemoryHub::new(HUB, 3);
    let (store, errors) = (MemoryStore::new(), Errors::default());
    let source = Described::new(&hub, "host");
    let a = start("a", &source, &store, &errors).await.unwrap();
    owns(&a, 3).await;
    source.is_now(|says| says.partitions.truncate(2));
    hub.fail_readers(&partition(2), partita_core::source::SourceErrorKind::Fatal, "no such partition");
    soon("nobody owns it", async {
        loop {
            let view = store.view(&source.scope()).await.unwrap();
            let gone = view.ownerships.iter().find(|held| held.partition == partition(2)).unwrap();
            if gone.owner.is_none() && a.status().partitions.len() == 2 {
                break;
            }
            tokio::time::sleep(secs(1)).await;
        }
    })
    .await;
    let before = store.moves(&source.scope()).await.unwrap().len();
    tokio::time::sleep(secs(60)).await;
    assert_eq!(store.moves(&source.scope()).await.unwrap().len(), before, "it is left alone");
    a.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_instance_tells_where_it_starts_and_what_fails() {
    let world = World::new(2);
    world.fill(5);
    let works = Arc::new(AtomicBool::new(false));
    let healed = Arc::clone(&works);
    let (builder, ready) = world.prepare("a-01234567-0123-4123-8123-0123456789ab");
    let errors = Errors::default();
    let processor = builder.on_error(errors.listener()).initial_position(Position::Earliest).on_event(
        move |event, cx| {
            let fails = event.sequence_number().0 == 3 && *cx.partition() == partition(1);
            let fails = fails && !healed.load(Ordering::Relaxed);
            async move { if fails { Err("no\nroom".into()) } else { Ok(()) } }
        },
    );
    let a = ready.started(soon("the start", processor.build().unwrap().start()).await.unwrap());
    let failing = soon("it is told", async {
        loop {
            let view = world.store.view(&world.scope()).await.unwrap();
            let details = view.instances.into_iter().next().map(|seen| seen.record.details);
            match details {
                Some(details) if details.failing.first().is_some_and(|one| one.attempts > 3) => {
                    break details;
                }
                _ => tokio::time::sleep(ms(100)).await,
            }
        }
    })
    .await;
    assert_eq!(failing.initial_position, Some(Position::Earliest));
    assert_eq!(failing.stream, world.hub.description().stream);
    let [one] = &failing.failing[..] else { panic!("{failing:?}") };
    assert_eq!(
        (&one.partition, one.sequence.map(|seq| seq.0), &*one.error),
        (&partition(1), Some(3), "no room")
    );
    assert!(one.retry_at > one.since);
    let error = &errors.of(Operation::HandlerEvents)[1];
    let events = error.events.expect("a handler's error names its event");
    assert_eq!((events.first.0, events.last.0, events.attempt), (3, 3, 2));
    assert!(
        error.to_string().starts_with("a-01234567, partition 1, event 3, attempt 2: handling events: "),
        "{error}"
    );
    works.store(true, Ordering::Relaxed);
    soon("it works again", async {
        while !world.store.view(&world.scope()).await.unwrap().instances[0].record.details.failing.is_empty()
        {
            tokio::time::sleep(ms(100)).await;
        }
    })
    .await;
    a.shutdown().await;
}
