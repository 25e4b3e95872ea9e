//! What a start notices: hubs, descriptions and records that went away; and what a running hub notices: a data directory
//! that was deleted or replaced.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use partita_core::model::{ConsumerGroup, HubName};
use partita_hub::broker::{Broker, BrokerError, Hub, HubOptions, Reset, Route};
use partita_hub::log::{
    AppendError, EncodedBatch, Fault, OpenError, OsDisk, Retention, Settings, SimDisk, When,
};

fn make(broker: &Broker, name: &str) -> Arc<Hub> {
    broker.create_hub(&HubName::new(name), HubOptions::default()).expect("made")
}

fn put(hub: &Hub, text: &str) -> Result<u64, AppendError> {
    let batch = EncodedBatch::of(&[text]).expect("valid");
    hub.send_and_wait(Route::Partition(0), batch).map(|placed| placed.first_seq)
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn open(dir: &Path, accept: &[&str]) -> Result<Broker, BrokerError> {
    let accept: Vec<String> = accept.iter().map(|name| (*name).to_owned()).collect();
    Broker::open_accepting(Arc::new(OsDisk), dir, Settings::new(1), &accept).map(|(broker, _)| broker)
}

/// A data directory with the hub `telemetry`, which has two events and the group `alerts`.
fn used() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("dir");
    let broker = open(&dir.path().join("data"), &[]).expect("opens");
    let hub = make(&broker, "telemetry");
    hub.create_group(&ConsumerGroup::new("alerts")).expect("made");
    put(&hub, "one").expect("durable");
    put(&hub, "two").expect("durable");
    dir
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("made");
    for entry in fs::read_dir(from).expect("there") {
        let (path, to) = (entry.as_ref().expect("read").path(), to.join(entry.expect("read").file_name()));
        match path.is_dir() {
            true => copy(&path, &to),
            false => assert!(fs::copy(&path, &to).is_ok()),
        }
    }
}

#[track_caller]
fn refused(data: &Path, parts: &[&str]) {
    match open(data, &[]) {
        Err(error @ BrokerError::Lost { .. }) => {
            let said = error.to_string();
            parts.iter().for_each(|part| assert!(said.contains(part), "no {part:?} in {said}"));
        }
        other => panic!("not refused: {other:?}"),
    }
}

const HUB: &str = "hubs/0000000000000001";

#[test]
fn a_missing_or_damaged_description_is_refused_and_made_again_from_its_copy() {
    for damaged in [false, true] {
        let dir = used();
        let data = dir.path().join("data");
        let meta = data.join(HUB).join("meta");
        if damaged {
            fs::write(&meta, b"PARTHUB\n").expect("written")
        } else {
            fs::remove_file(&meta).expect("there")
        }
        let state = if damaged { "is damaged" } else { "is missing" };
        refused(
            &data,
            &["hub 'telemetry' cannot be opened", state, "partitions, groups and retention: restore it"],
        );
        let broker = open(&data, &["Telemetry"]).expect("told to go on");
        let hub = broker.hub("telemetry").expect("there");
        assert_eq!((hub.partitions(), hub.groups().len()), (4, 2));
        assert_eq!(put(&hub, "three").expect("durable"), 2, "no event was missing");
        drop((hub, broker));
        assert!(open(&data, &[]).is_ok());
    }
}

#[test]
fn a_description_without_a_copy_is_missed_too_if_there_are_events() {
    let dir = used();
    let data = dir.path().join("data");
    fs::remove_file(data.join(HUB).join("meta")).expect("there");
    fs::remove_dir_all(data.join("witness")).expect("there");
    refused(&data, &["hub '0000000000000001' cannot be opened"]);
    let broker = open(&data, &["0000000000000001"]).expect("told to go on");
    let hub = broker.hub("recovered-1").expect("there");
    assert_eq!((hub.partitions(), put(&hub, "three").expect("durable")), (4, 2));
}

#[test]
fn a_missing_hub_is_refused_and_its_numbers_are_not_used_again() {
    let dir = used();
    let data = dir.path().join("data");
    fs::remove_dir_all(data.join(HUB)).expect("there");
    refused(&data, &["hub 'telemetry' is missing with all its events"]);
    let unknown = open(&data, &["telemetry", "other"]).expect_err("refused").to_string();
    assert_eq!(unknown, "there is no hub 'other'");
    let broker = open(&data, &["telemetry"]).expect("told to go on");
    let hub = broker.hub("telemetry").expect("there");
    assert_eq!((hub.id(), hub.groups().len(), put(&hub, "three").expect("durable")), (1, 2, 2));
}

#[test]
fn an_older_copy_of_a_hub_is_refused() {
    let dir = used();
    let (data, older) = (dir.path().join("data"), dir.path().join("older"));
    copy(&data.join(HUB), &older);
    let broker = open(&data, &[]).expect("opens");
    let hub = broker.hub("telemetry").expect("there");
    put(&hub, "three").expect("durable");
    drop((hub, broker));
    fs::remove_dir_all(data.join(HUB)).expect("there");
    copy(&older, &data.join(HUB));
    refused(&data, &["hub 'telemetry' lacks event 2 of partition 0, which was acknowledged: restore"]);
    let broker = open(&data, &["telemetry"]).expect("told to go on");
    assert_eq!(put(&broker.hub("telemetry").expect("there"), "four").expect("durable"), 3);
}

#[test]
fn an_older_description_with_fewer_partitions_is_refused() {
    let dir = used();
    let data = dir.path().join("data");
    let meta = data.join(HUB).join("meta");
    let older = fs::read(&meta).expect("there");
    let broker = open(&data, &[]).expect("opens");
    broker.hub("telemetry").expect("there").add_partitions(9).expect("added");
    drop(broker);
    fs::write(&meta, older).expect("written");
    refused(&data, &["had 9 partitions and now has 4"]);
    let broker = open(&data, &["telemetry"]).expect("told to go on");
    assert_eq!(broker.hub("telemetry").expect("there").partitions(), 9);
}

#[test]
fn a_missing_record_is_refused_where_there_must_be_one() {
    let dir = used();
    let data = dir.path().join("data");
    fs::remove_dir_all(data.join("witness")).expect("there");
    refused(&data, &["hub 'telemetry' has no record of what it acknowledged any more"]);
    drop(open(&data, &["telemetry"]).expect("told to go on"));
    drop(open(&data, &[]).expect("opens"));

    // A program that keeps no records writes minor number 0 when it opens the directory.
    fs::remove_dir_all(data.join("witness")).expect("there");
    let mut store = fs::read(data.join("STORE")).expect("there");
    store[10] = 0;
    let crc = crc32fast::hash(&store[..28]);
    store[28..].copy_from_slice(&crc.to_le_bytes());
    fs::write(data.join("STORE"), &store).expect("written");
    drop(open(&data, &[]).expect("opens"));
    assert_eq!(fs::read(data.join("STORE")).expect("there")[10], 1);
    assert_eq!(fs::read_dir(data.join("witness")).expect("made").count(), 2);
}

#[test]
fn deleted_hubs_and_a_reset_leave_no_witness() {
    let dir = used();
    let data = dir.path().join("data");
    let broker = open(&data, &[]).expect("opens");
    make(&broker, "second");
    broker.delete_hub("telemetry").expect("deleted");
    drop(broker);
    assert_eq!(fs::read_dir(data.join("witness")).expect("there").count(), 2);
    let broker = open(&data, &[]).expect("opens");
    assert_eq!(broker.list().len(), 1);
    drop(broker);
    Reset::of(&data).expect("ours").delete().expect("deleted");
    assert_eq!(fs::read_dir(data.join("witness")).expect("there").count(), 0);
    let broker = open(&data, &[]).expect("opens");
    assert!(broker.list().is_empty());
    let hub = make(&broker, "third");
    put(&hub, "one").expect("durable");
    drop((hub, broker));

    // A reset is a way out for a hub of which nothing else is left, too.
    fs::remove_dir_all(data.join("hubs")).expect("there");
    refused(&data, &["hub 'third' is missing"]);
    Reset::of(&data).expect("ours").delete().expect("deleted");
    assert!(open(&data, &[]).expect("opens").list().is_empty());
}

#[test]
fn a_hub_whose_making_or_deletion_a_power_cut_ended_is_not_missed() {
    for cut in 0..60 {
        let disk = SimDisk::new(cut);
        let settings = Settings { single_threaded: true, ..Settings::new(1) };
        let open = || Broker::open_with(Arc::new(disk.clone()), "/data", settings.clone());
        let (broker, _) = open().expect("opens");
        disk.plan(When::Call(disk.calls() + cut), Fault::PowerOff);
        let options = HubOptions { partitions: 1, ..HubOptions::default() };
        if let Ok(hub) = broker.create_hub(&HubName::new("one"), options) {
            let _ = put(&hub, "event");
        }
        let _ = broker.delete_hub("one");
        drop(broker);
        disk.reboot();
        let opened = open();
        assert!(opened.is_ok(), "cut {cut}: {:?}", opened.err());
    }
}

/// Waits until the hub takes no more events; how long that took, and why.
fn displaced(hub: &Hub) -> String {
    wait_until("the hub notices", || hub.log().is_read_only());
    let refused = put(hub, "lost").expect_err("nothing is acknowledged");
    assert!(matches!(refused, AppendError::Displaced { .. }) && refused.is_retriable(), "{refused}");
    refused.to_string()
}

#[test]
#[cfg(unix)]
fn a_data_directory_that_is_deleted_or_replaced_under_a_running_hub_is_noticed() {
    type Strike = fn(&Path, &Path);
    let strikes: [(&str, Strike); 6] = [
        ("data was deleted or moved", |data, _| fs::remove_dir_all(data).expect("there")),
        ("data was replaced", |data, aside| {
            fs::rename(data, aside).expect("moved");
            copy(aside, data);
        }),
        ("0000000000000001 was deleted or moved", |data, aside| {
            fs::rename(data.join(HUB), aside).expect("moved")
        }),
        ("0000000000000001 was replaced", |data, aside| {
            fs::rename(data.join(HUB), aside).expect("moved");
            copy(aside, &data.join(HUB));
        }),
        ("STORE was replaced", |data, aside| {
            fs::rename(data.join("STORE"), aside).expect("moved");
            fs::copy(aside, data.join("STORE")).expect("copied");
        }),
        ("0000000000000001.seg was deleted or moved", |data, _| {
            fs::remove_file(data.join(HUB).join("0000000000000001.seg")).expect("there");
        }),
    ];
    for (said, strike) in strikes {
        let dir = used();
        let data = dir.path().join("data");
        let broker = open(&data, &[]).expect("opens");
        let hub = broker.hub("telemetry").expect("there");
        put(&hub, "three").expect("durable");
        strike(&data, &dir.path().join("aside"));
        let files = files(&data);
        let reason = displaced(&hub);
        assert!(reason.contains(said) && reason.contains("put its data directory back"), "{reason}");
        assert!(hub.create_group(&ConsumerGroup::new("late")).is_err());
        drop((hub, broker));
        // Where other files are still its own, it may have written to them until it noticed.
        let whole = said.starts_with("data was");
        assert!(!whole || self::files(&data) == files, "{said}: nothing is changed in its place");
    }
}

/// Names, sizes and contents, apart from names that come and go.
fn files(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.path().is_dir() {
            true => found.extend(files(&entry.path())),
            false => found.push((entry.path(), fs::read(entry.path()).unwrap_or_default())),
        }
    }
    found.sort();
    found
}

#[test]
#[cfg(unix)]
fn a_directory_whose_store_file_was_replaced_is_still_in_use() {
    let dir = used();
    let data = dir.path().join("data");
    let broker = open(&data, &[]).expect("opens");
    fs::rename(data.join("STORE"), dir.path().join("aside")).expect("moved");
    fs::copy(dir.path().join("aside"), data.join("STORE")).expect("copied");
    let second = open(&data, &[]).expect_err("refused");
    assert!(matches!(second, BrokerError::Log(OpenError::InUse { .. })), "{second}");
    assert!(matches!(Reset::of(&data), Err(OpenError::InUse { .. })));
    assert!(matches!(broker.delete_hub("telemetry"), Err(BrokerError::Displaced(_))));
    drop(broker);
    assert!(open(&data, &[]).is_ok());
}

#[test]
fn a_retention_near_the_largest_number_is_refused() {
    let broker = Broker::in_memory(64 << 20).expect("opens");
    let forever = Retention { age: Duration::from_secs(u64::MAX), bytes_max: None };
    let all = Retention { bytes_max: Some(u64::MAX), ..Retention::default() };
    for retention in [forever, all] {
        let options = HubOptions { retention, ..HubOptions::default() };
        let refused = broker.create_hub(&HubName::new("x"), options).expect_err("refused");
        assert!(matches!(refused, BrokerError::Retention(_)), "{refused}");
    }
    let hub = make(&broker, "x");
    assert!(matches!(hub.set_retention(forever), Err(BrokerError::Retention(_))));
    assert_eq!(hub.retention().age, Retention::default().age);
}
