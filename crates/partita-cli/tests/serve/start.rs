//! Starting, stopping, and what is there afterwards.

use std::io::Write;
use std::net::TcpStream;

use partita_core::model::HubName;
use partita_hub::broker::{Broker, HubOptions, Route};
use partita_hub::log::EncodedBatch;
use rustix::process::Signal;
use serde_json::json;

use crate::support::{Hub, serve, wait_for};

#[test]
fn a_start_without_options_serves_a_hub_and_says_where() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().to_owned();
    let hub = Hub::run(serve(&home, &[]), dir);
    let port = hub.port("amqp_port");
    assert_eq!(
        hub.ready["connection_string"],
        format!(
            "Endpoint=sb://localhost:{port};SharedAccessKeyName=RootManageSharedAccessKey;\
             SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
        )
    );
    assert!(hub.ready.get("tls_port").is_none());
    assert_eq!(
        hub.get("/health"),
        (200, r#"{"status":"healthy","message":"Service is healthy."}"#.to_owned())
    );
    let hubs = hub.get_json("/api/v1/hubs");
    assert_eq!(hubs["hubs"][0]["name"], "eh1");
    assert_eq!(hubs["hubs"][0]["partition_count"], 4);
    assert_eq!(hubs["hubs"][0]["consumer_groups"], json!(["$Default", "cg1"]));
    let http = hub.port("http_port");
    let (_dir, said) = hub.stop();
    let data = if cfg!(target_os = "macos") {
        "Library/Application Support/Partita"
    } else {
        ".local/share/partita"
    };
    let data = home.join(data).join("hub");
    let line = format!(
        "partita hub ready: localhost, AMQP {port}, HTTP {http}, 1 hub, data in {}\n",
        data.display()
    );
    assert_eq!(said, line, "one line where nobody looks");
    assert!(data.join("STORE").exists());
    assert!(!home.join("ready.json").exists(), "gone with the hub");
    assert!(
        TcpStream::connect(("127.0.0.1", port)).is_err() && TcpStream::connect(("127.0.0.1", http)).is_err()
    );
}

#[test]
fn hubs_events_and_store_id_are_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (broker, _) = Broker::open(dir.path().join("data")).unwrap();
    let made = broker
        .create_hub(&HubName::new("kept"), HubOptions { partitions: 2, ..HubOptions::default() })
        .unwrap();
    for _ in 0..5 {
        made.send_and_wait(Route::Partition(1), EncodedBatch::of(&["event"]).unwrap()).unwrap();
    }
    let id = broker.store_id().to_string();
    drop((made, broker));

    let hub = Hub::start_in(dir, &[]);
    assert_eq!(hub.get_json("/api/v1")["store_id"], id);
    assert_eq!(hub.get_json("/api/v1/hubs")["hubs"].as_array().unwrap().len(), 1, "no default beside others");
    hub.says(&["hub", "create", "more", "--partitions", "3"]);
    let (dir, _) = hub.stop();

    let hub = Hub::start_in(dir, &["--hub", "kept:4:cg1", "--retention", "2h"]);
    let kept = hub.get_json("/api/v1/hubs/kept");
    assert_eq!((&kept["events"], &kept["partition_count"]), (&json!(5), &json!(4)), "partitions were added");
    assert_eq!(kept["partitions"][1]["last_enqueued_sequence_number"], 4);
    assert_eq!(kept["consumer_groups"], json!(["$Default", "cg1"]));
    assert_eq!(kept["retention_seconds"], 7_200);
    let more = hub.get_json("/api/v1/hubs/more");
    assert_eq!((&more["partition_count"], &more["retention_seconds"]), (&json!(3), &json!(7_200)));
    hub.says(&["hub", "create", "later"]);
    assert_eq!(
        hub.get_json("/api/v1/hubs/later")["retention_seconds"],
        7_200,
        "hubs made later keep as long"
    );
    hub.stop();
}

#[test]
fn the_emulators_config_is_served_with_its_limits_lifted() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("Config.json");
    let many: Vec<_> = (0..12).map(|at| json!({"Name": format!("hub{at}"), "PartitionCount": 33})).collect();
    let mut entities =
        vec![json!({"Name": "eh1", "PartitionCount": "2", "ConsumerGroups": [{"Name": "cg1"}]})];
    entities.extend(many);
    let namespace = json!({"Type": "EventHub", "Name": "emulatorNs1", "Entities": entities});
    let file = json!({"UserConfig": {"NamespaceConfig": [namespace], "LoggingConfig": {"Type": "File"}}});
    std::fs::write(&config, file.to_string()).unwrap();
    let hub = Hub::start_in(dir, &["--memory", "--config", config.to_str().unwrap()]);
    let hubs = hub.get_json("/api/v1/hubs");
    assert_eq!(hubs["hubs"].as_array().unwrap().len(), 13);
    assert_eq!(hub.get_json("/api/v1/hubs/eh1")["partition_count"], 2);
    assert_eq!(hub.get_json("/api/v1/hubs/hub11")["partition_count"], 33);
}

#[test]
fn a_hub_in_memory_leaves_nothing() {
    let hub = Hub::start(&["--memory", "--retention-size", "64MiB"]);
    assert_eq!(hub.get_json("/api/v1/hubs/eh1")["retention_bytes"], 64 << 20);
    let (dir, said) = hub.stop();
    assert!(said.ends_with("1 hub, in memory\n"), "{said}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn sigint_stops_in_good_order_too() {
    let mut hub = Hub::start(&["--memory", "--quiet"]);
    hub.signal(Signal::INT);
    assert!(hub.wait().success());
    assert_eq!(hub.said(), "", "quiet is quiet");
}

/// A client's first words: SASL without a name, then an open without anything.
const OPEN: &[u8] = b"AMQP\x03\x01\x00\x00\
    \x00\x00\x00\x19\x02\x01\x00\x00\x00\x53\x41\xc0\x0c\x01\xa3\x09ANONYMOUS\
    AMQP\x00\x01\x00\x00\
    \x00\x00\x00\x11\x02\x00\x00\x00\x00\x53\x10\xc0\x04\x01\xa1\x01x";

#[test]
fn a_second_signal_does_not_wait_for_clients() {
    let mut hub = Hub::start(&["--memory"]);
    let mut client = TcpStream::connect(("127.0.0.1", hub.port("amqp_port"))).unwrap();
    client.write_all(OPEN).unwrap();
    wait_for("the client's name", || {
        let connections = hub.get_json("/api/v1/connections");
        (connections["connections"][0]["container_id"] == "x").then_some(())
    });
    // The client does not answer the hub's goodbye, so the hub waits for it, but takes no new ones.
    hub.signal(Signal::TERM);
    wait_for("the health check to fail", || {
        let asked =
            ureq::get(format!("{}/health", hub.http())).config().http_status_as_error(false).build().call();
        asked.ok().filter(|answer| answer.status() == 503)
    });
    assert!(!hub.path("ready.json").exists(), "nobody shall find it any more");
    hub.signal(Signal::TERM);
    assert_eq!(hub.wait().code(), Some(130));
}

#[test]
fn a_reset_says_what_it_deletes_and_changes_the_store_id() {
    let hub = Hub::start(&["--hub", "one:1", "--hub", "two:2"]);
    let before = hub.get_json("/api/v1")["store_id"].clone();
    let (dir, _) = hub.stop();
    let hub = Hub::start_in(dir, &["--reset", "--yes"]);
    assert_ne!(hub.get_json("/api/v1")["store_id"], before);
    assert_eq!(hub.get_json("/api/v1/hubs")["hubs"][0]["name"], "eh1", "as after a first start");
    assert_eq!(hub.get_json("/api/v1/hubs")["hubs"].as_array().unwrap().len(), 1);
    let (_, said) = hub.stop();
    for part in [
        "--reset deletes from",
        "hub one: all its events and groups, ",
        "hub two: ",
        "Deleted ",
        "Checkpoints",
    ] {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
}
