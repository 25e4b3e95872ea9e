//! Deleting hubs and groups, emptying a data directory, and hubs that never were on a disk.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use partita_core::model::{ConsumerGroup, HubName, Position};
use partita_hub::broker::{
    Attach, AttachError, Broker, BrokerError, Hub, HubOptions, HubReadError, Reset, Route,
};
use partita_hub::log::{
    Ack, AckSink, AppendError, EncodedBatch, Fault, OpenError, Retention, Settings, SimDisk, StoredBatch,
    When,
};

fn make(broker: &Broker, name: &str) -> Arc<Hub> {
    broker.create_hub(&HubName::new(name), HubOptions::default()).expect("made")
}

fn batch(text: &str) -> EncodedBatch {
    EncodedBatch::of(&[text]).expect("valid")
}

fn put(hub: &Hub, text: &str) {
    hub.send_and_wait(Route::Partition(0), batch(text)).expect("durable");
}

fn attach(group: &str) -> Attach {
    Attach {
        group: ConsumerGroup::new(group),
        partition: 0,
        from: Position::Earliest,
        epoch: None,
        name: "test".into(),
    }
}

fn texts(hub: &Arc<Hub>) -> Vec<String> {
    let mut reader = hub.attach(attach("$Default")).expect("attached");
    let mut batches = Vec::new();
    while reader.next_seq() < hub.partition(0).expect("there").next_seq {
        reader.read(1 << 20, &mut batches).expect("read");
    }
    let events = batches.iter().flat_map(StoredBatch::events);
    events.map(|event| String::from_utf8(event.data.to_vec()).expect("text")).collect()
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_deleted_hub_is_gone_for_everybody_and_other_hubs_are_not_touched() {
    let dir = tempfile::tempdir().expect("dir");
    let (broker, _) = Broker::open(dir.path()).expect("opens");
    let (first, second) = (make(&broker, "first"), make(&broker, "Second"));
    put(&first, "stays");
    put(&second, "goes");
    let mut waiting = second.attach(attach("$Default")).expect("attached");
    waiting.seek(1);
    let waiter = std::thread::spawn(move || {
        assert!(waiting.wait(Duration::from_secs(30)), "woken");
        waiting.check()
    });

    broker.delete_hub("SECOND").expect("deleted");
    let told = waiter.join().expect("ended").expect_err("told");
    assert!(matches!(&told, HubReadError::Deleted { entity } if entity == "Second"), "{told}");
    assert_eq!(told.to_string(), "The messaging entity 'Second' could not be found");
    let (sender, _answers) = mpsc::sync_channel::<Ack>(1);
    let sink: Arc<dyn AckSink> = Arc::new(sender);
    let refused = second.send(Route::RoundRobin, batch("late"), 0, &sink);
    assert_eq!(refused, Err(AppendError::Deleted));
    assert!(matches!(second.attach(attach("$Default")), Err(AttachError::NoHub { .. })));
    assert!(matches!(second.add_partitions(9), Err(BrokerError::NoHub(_))), "nothing of it comes back");
    assert!(broker.hub("second").is_none());
    assert!(matches!(broker.delete_hub("second"), Err(BrokerError::NoHub(_))));

    // Its number is not given again: a checkpoint of its former life must not fit the new one.
    let again = make(&broker, "second");
    assert!(again.id() > second.id());
    assert_eq!(texts(&again), [""; 0]);
    assert_eq!(texts(&first), ["stays"]);
    put(&first, "goes on");
    broker.delete_hub("second").expect("deleted");
    drop((first, second, again, broker));

    let (broker, found) = Broker::open(dir.path()).expect("opens");
    assert_eq!(found.len(), 1);
    assert_eq!(texts(&broker.hub("first").expect("there")), ["stays", "goes on"]);
    let left: Vec<_> = fs::read_dir(dir.path().join("hubs")).expect("there").collect();
    assert_eq!(left.len(), 2, "one hub, and the highest number: {left:?}");
    assert_eq!(make(&broker, "third").id(), 4);
}

fn small() -> Settings {
    Settings {
        segment_bytes_first: 16 << 10,
        segment_bytes_max: 64 << 10,
        batch_bytes_max: 6 << 10,
        ..Settings::new(1)
    }
}

#[test]
fn a_power_cut_while_a_hub_is_deleted_leaves_it_whole_or_gone() {
    let mut outcomes = [0, 0];
    for cut in 0.. {
        let disk = SimDisk::new(cut);
        let (broker, _) = Broker::open_with(Arc::new(disk.clone()), "/data", small()).expect("opens");
        let (kept, goes) = (make(&broker, "kept"), make(&broker, "goes"));
        put(&kept, "here");
        put(&goes, "there");
        disk.plan(When::Call(disk.calls() + cut), Fault::PowerOff);
        let deleted = broker.delete_hub("goes").is_ok();
        let finished = !disk.is_off();
        disk.plan(When::Call(disk.calls()), Fault::PowerOff);
        drop((kept, goes, broker));
        disk.reboot();

        let (broker, found) = Broker::open_with(Arc::new(disk), "/data", small()).expect("opens");
        assert!(found.iter().all(|(_, recovery)| recovery.is_clean()), "cut {cut}");
        assert_eq!(texts(&broker.hub("kept").expect("there")), ["here"], "cut {cut}");
        match broker.hub("goes") {
            Some(hub) => {
                assert!(!deleted, "cut {cut}: it said that the hub was deleted");
                assert_eq!(texts(&hub), ["there"], "cut {cut}");
                outcomes[0] += 1;
            }
            None => outcomes[1] += 1,
        }
        if finished {
            assert!(deleted);
            break;
        }
    }
    assert!(outcomes.iter().all(|n| *n > 0), "both were met: {outcomes:?}");
}

#[test]
fn readers_of_a_deleted_group_are_told_and_others_read_on() {
    let dir = tempfile::tempdir().expect("dir");
    let (broker, _) = Broker::open(dir.path()).expect("opens");
    let hub = make(&broker, "telemetry");
    let [alerts, other] = ["Alerts", "other"].map(ConsumerGroup::new);
    hub.create_group(&alerts).expect("made");
    hub.create_group(&other).expect("made");
    let mut gone = hub.attach(attach("ALERTS")).expect("attached");
    let mut stays = hub.attach(attach("other")).expect("attached");

    hub.delete_group(&ConsumerGroup::new("alerts")).expect("deleted");
    assert!(matches!(gone.check(), Err(HubReadError::Deleted { entity }) if entity == "alerts"));
    assert!(gone.read(1, &mut Vec::new()).is_err());
    put(&hub, "event");
    let mut batches = Vec::new();
    stays.read(1 << 10, &mut batches).expect("reads on");
    assert_eq!(batches.len(), 1);
    assert!(matches!(hub.attach(attach("alerts")), Err(AttachError::NoGroup { .. })));
    assert!(matches!(hub.delete_group(&alerts), Err(BrokerError::NoGroup { .. })));
    assert!(matches!(hub.delete_group(&ConsumerGroup::new("$default")), Err(BrokerError::DefaultGroup)));
    drop((gone, stays, hub, broker));
    let (broker, _) = Broker::open(dir.path()).expect("opens");
    assert_eq!(broker.hub("telemetry").expect("there").groups(), [ConsumerGroup::default(), other]);
}

#[test]
fn retention_can_be_changed_while_the_hub_runs() {
    let dir = tempfile::tempdir().expect("dir");
    let settings = || Settings { buffered: true, ..small() };
    let open =
        || Broker::open_with(Arc::new(partita_hub::log::OsDisk), dir.path(), settings()).expect("opens").0;
    let broker = open();
    let hub = make(&broker, "telemetry");
    for _ in 0..200 {
        put(&hub, &"x".repeat(4_000));
    }
    let limit = Retention { bytes_max: Some(128 << 10), ..Retention::default() };
    assert!(hub.log().size().1 > 500 << 10);
    hub.set_retention(limit).expect("changed");
    wait_until("the oldest segments go", || hub.log().size().1 <= 128 << 10);
    assert!(hub.partition(0).expect("there").first_seq > 100);
    drop((hub, broker));
    assert_eq!(open().hub("telemetry").expect("there").retention(), limit);
}

#[test]
fn a_broker_in_memory_works_like_any_other_and_is_bounded() {
    let limit = 32 << 20;
    let broker = Broker::in_memory(limit).expect("opens");
    let hub = make(&broker, "telemetry");
    let text = "m".repeat(500_000);
    for i in 0..200 {
        put(&hub, &format!("{i} {text}"));
    }
    wait_until("the oldest segments go", || hub.log().size().1 <= limit);
    let first = hub.partition(0).expect("there").first_seq;
    let read = texts(&hub);
    assert_eq!(read.len() as u64, 200 - first);
    assert!(first > 100 && read.last().expect("some").starts_with("199 "), "{first}");
    broker.delete_hub("telemetry").expect("deleted");
    assert_eq!(texts(&make(&broker, "telemetry")), [""; 0]);
}

#[test]
fn a_reset_deletes_what_is_ours_and_starts_a_new_life() {
    let dir = tempfile::tempdir().expect("dir");
    let (broker, _) = Broker::open(dir.path()).expect("opens");
    put(&make(&broker, "telemetry"), "gone soon");
    let (id, number) = (broker.store_id(), broker.hub("telemetry").expect("there").id());
    let in_use = Reset::of(dir.path()).expect_err("in use");
    assert!(matches!(in_use, OpenError::InUse { .. }), "{in_use}");
    drop(broker);
    let hub_dir = dir.path().join(format!("hubs/{number:016x}"));
    fs::write(hub_dir.join("notes.txt"), "mine").expect("written");
    fs::write(dir.path().join("readme"), "mine").expect("written");

    let reset = Reset::of(dir.path()).expect("ours");
    let [hub] = reset.hubs() else { panic!("{reset:?}") };
    assert_eq!(hub.name, Some(HubName::new("telemetry")));
    assert!(hub.files.iter().all(|(path, _)| !path.ends_with("notes.txt")));
    assert!(reset.bytes() >= 1 << 20, "{reset:?}");
    let in_use = Broker::open(dir.path()).expect_err("nobody opens it meanwhile").to_string();
    assert!(in_use.contains("in use by another process"), "{in_use}");
    reset.delete().expect("deleted");

    assert_eq!(fs::read_to_string(hub_dir.join("notes.txt")).expect("there"), "mine");
    assert_eq!(fs::read_to_string(dir.path().join("readme")).expect("there"), "mine");
    assert!(!hub_dir.join("meta").exists());
    let (broker, found) = Broker::open(dir.path()).expect("opens");
    assert!(found.is_empty());
    assert_ne!(broker.store_id(), id);
    assert_eq!(texts(&make(&broker, "telemetry")), [""; 0]);
}

#[test]
fn a_reset_refuses_what_is_not_ours_and_has_nothing_to_do_where_nothing_is() {
    let dir = tempfile::tempdir().expect("dir");
    let foreign = |name: &str, content: &[u8]| {
        let path = dir.path().join(name);
        fs::create_dir(&path).expect("made");
        fs::write(path.join(if content.is_empty() { "thesis.doc" } else { "STORE" }), content)
            .expect("written");
        let refused = Reset::of(&path).expect_err("foreign");
        assert!(matches!(refused, OpenError::Foreign { .. }), "{refused}");
    };
    foreign("a", b"");
    foreign("b", b"somebody else's file of this name");
    let nothing = |path: &Path| {
        let reset = Reset::of(path).expect("nothing there");
        assert_eq!((reset.hubs().len(), reset.bytes()), (0, 0));
        reset.delete().expect("nothing to do");
    };
    nothing(&dir.path().join("c"));
    assert!(!dir.path().join("c").exists());
    fs::create_dir(dir.path().join("d")).expect("made");
    nothing(&dir.path().join("d"));
}

#[test]
fn a_power_cut_during_a_reset_leaves_hubs_whole_or_gone_and_never_mixes_two_lives() {
    for cut in 0.. {
        let disk = SimDisk::new(cut);
        let (broker, _) = Broker::open_with(Arc::new(disk.clone()), "/data", small()).expect("opens");
        for name in ["one", "two"] {
            put(&make(&broker, name), name);
        }
        let former = broker.store_id();
        drop(broker);
        disk.plan(When::Call(disk.calls() + cut), Fault::PowerOff);
        let done = Reset::on(Arc::new(disk.clone()), "/data").and_then(Reset::delete).is_ok();
        disk.reboot();
        let (broker, found) = Broker::open_with(Arc::new(disk), "/data", small()).expect("opens");
        assert!(found.iter().all(|(_, recovery)| recovery.is_clean()), "cut {cut}");
        for hub in broker.list() {
            assert_eq!(broker.store_id(), former, "cut {cut}");
            assert_eq!(texts(&hub), [hub.name().as_str()], "cut {cut}");
        }
        if broker.store_id() == former {
            assert!(make(&broker, "three").id() > 2, "cut {cut}: no number of this life is given twice");
        }
        if done {
            assert!(broker.store_id() != former);
            break;
        }
    }
}
