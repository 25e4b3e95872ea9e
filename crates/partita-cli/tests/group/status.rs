//! Who owns what, how far they are, and what moved.

use serde_json::{Value, json};

use crate::fleet::Fleet;

fn lags(status: &Value) -> Option<u64> {
    status["partitions"].as_array()?.iter().map(|partition| partition["lag_events"].as_u64()).sum()
}

#[test]
fn lag_counts_what_nobody_has_handled() {
    let fleet = Fleet::new("eh1:4:cg1");
    fleet.produce(&["--body", "x", "--count", "100"]);
    let alpha = fleet.start("alpha");
    let status = fleet.wait("all handled", |status| lags(status) == Some(0));
    for partition in status["partitions"].as_array().unwrap() {
        assert_eq!(
            (&partition["owner"], &partition["epoch"], &partition["reason"]),
            (&json!("alpha"), &json!(1), &json!("claimed"))
        );
        assert_eq!(partition["checkpoint"]["sequence"], partition["last_enqueued_sequence"]);
        assert_eq!((&partition["lag_events"], &partition["lag_seconds"]), (&json!(0), &json!(0.0)));
    }
    let shown = fleet.says("status", &[]);
    let title = format!("cg1 of eh1 at {}: 4 partitions, 1 instance, lag 0 events\n", fleet.namespace());
    assert!(shown.starts_with(&title), "{shown}");
    assert!(shown.contains("alpha        4  live"), "{shown}");
    let alpha_seen = &status["instances"][0];
    assert_eq!(alpha_seen["process_id"], std::process::id(), "{alpha_seen}");
    let host = alpha_seen["host"].as_str().unwrap();
    let row = shown.lines().find(|line| line.starts_with("alpha")).unwrap();
    assert!(row.ends_with(&format!("  {}  {host}", std::process::id())), "{shown}");

    fleet.stop(alpha);
    fleet.produce(&["--body", "x", "--count", "7"]);
    let status = fleet.json("status", &[]);
    assert_eq!(lags(&status), Some(7));
    for partition in status["partitions"].as_array().unwrap() {
        assert_eq!((&partition["owner"], &partition["epoch"]), (&Value::Null, &json!(2)));
        assert!(partition["lag_seconds"].as_f64().is_some(), "read in $Default: {partition}");
    }
    let shown = fleet.says("status", &[]);
    assert!(shown.contains("lag 7 events") && shown.contains("No instance is running."), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
}

#[test]
fn a_failing_partition_says_since_when_at_which_event_and_when_it_is_tried_again() {
    let fleet = Fleet::new("eh1:1:cg1");
    fleet.produce(&["--body", "x", "--count", "3"]);
    let alpha = fleet.start_with("alpha", |event| match event.sequence_number().0 {
        1 => Err("no room for password=hunter2".into()),
        _ => Ok(()),
    });
    let status =
        fleet.wait("it fails", |status| status["partitions"][0]["failing"]["attempts"].as_u64() > Some(2));
    let partition = &status["partitions"][0];
    assert_eq!((&partition["failing"]["sequence"], &partition["lag_events"]), (&json!(1), &json!(2)));
    assert_eq!(partition["failing"]["error"], "no room for password=***");
    assert!(partition["failing"]["retry_in_seconds"].as_f64().is_some(), "{partition}");
    let since = partition["failing"]["since"].clone();
    let shown = fleet.says("status", &[]);
    assert!(
        shown.contains("Partition 0 has been failing for ") && shown.contains(": event 1, attempt "),
        "{shown}"
    );
    let later = fleet.wait("it goes on failing", |status| {
        status["partitions"][0]["failing"]["attempts"].as_u64() > partition["failing"]["attempts"].as_u64()
    });
    assert_eq!(later["partitions"][0]["failing"]["since"], since, "it is one failure");
    fleet.stop(alpha);
    assert_eq!(fleet.json("status", &[])["partitions"][0]["failing"], Value::Null);
}

#[test]
fn a_checkpoint_is_as_old_after_a_restart_as_before() {
    let fleet = Fleet::new("eh1:1:cg1");
    fleet.produce(&["--body", "x"]);
    let alpha = fleet.start("alpha");
    let status = fleet.wait("handled", |status| status["partitions"][0]["checkpoint"]["sequence"] == 0);
    let written = status["partitions"][0]["checkpoint"]["time"].clone();
    fleet.stop(alpha);
    let beta = fleet.start("beta");
    let status = fleet.wait_for_owners(&[("beta", 1)]);
    assert_eq!(status["partitions"][0]["checkpoint"]["time"], written);
    fleet.stop(beta);
}

#[test]
fn lag_without_a_checkpoint_counts_from_the_first_event_that_is_left() {
    let fleet = Fleet::new("eh1:1:cg1");
    fleet.produce(&["--body", "x", "--count", "5"]);
    let alpha = fleet.start_with("alpha", |_| Err("not today".into()));
    let status = fleet.wait("it fails", |status| status["partitions"][0]["failing"].is_object());
    assert_eq!(status["partitions"][0]["checkpoint"]["sequence"], Value::Null);
    assert_eq!(lags(&status), Some(5));
    assert_eq!(status["instances"][0]["initial_position"], "earliest");
    fleet.stop(alpha);
}

#[test]
fn two_hubs_of_one_host_are_two_groups_in_one_store() {
    let one = Fleet::new("eh1:4:cg1");
    let two = one.beside("eh1:4:cg1");
    assert_ne!(one.namespace(), two.namespace());
    for fleet in [&one, &two] {
        fleet.produce(&["--body", "x", "--count", "40"]);
    }
    let (alpha, beta) = (one.start("alpha"), two.start("beta"));
    for (fleet, name) in [(&one, "alpha"), (&two, "beta")] {
        let status = fleet.wait_for_owners(&[(name, 4)]);
        assert_eq!(status["instances"].as_array().unwrap().len(), 1, "{status}");
        fleet.wait("each hub's events are all handled", |status| lags(status) == Some(0));
    }
    one.stop(alpha);
    two.stop(beta);
}

#[test]
fn moves_are_listed_with_their_reasons() {
    let fleet = Fleet::new("eh1:2:cg1");
    let alpha = fleet.start("alpha");
    fleet.wait_for_owners(&[("alpha", 2)]);
    let beta = fleet.start("beta");
    fleet.wait_for_owners(&[("alpha", 1), ("beta", 1)]);
    fleet.stop(alpha);
    fleet.wait_for_owners(&[("beta", 2)]);
    fleet.stop(beta);
    let moves = fleet.json("moves", &[]);
    let moves: Vec<[&str; 3]> = moves
        .as_array()
        .unwrap()
        .iter()
        .map(|one| ["from", "to", "reason"].map(|field| one[field].as_str().unwrap_or("-")))
        .collect();
    let (first, rest) = moves.split_at(2);
    assert_eq!(first, [["-", "alpha", "claimed"]; 2]);
    assert_eq!(rest[0], ["alpha", "beta", "hand-off"]);
    // A stop passes on what somebody asks for, or leaves it free.
    assert!(
        rest[1..]
            .iter()
            .any(|one| *one == ["alpha", "-", "released"] || *one == ["alpha", "beta", "hand-off"])
    );
    assert_eq!(rest.last().unwrap()[0..2], ["beta", "-"]);
    let shown = fleet.says("moves", &["-n", "1"]);
    assert_eq!(shown.lines().count(), 2, "{shown}");
    assert!(shown.contains("released"), "{shown}");
    let of_one = fleet.json("moves", &["--partition", "1"]);
    assert!(of_one.as_array().unwrap().iter().all(|one| one["partition"] == "1"));
}

#[test]
fn an_instance_that_owns_nothing_is_a_standby() {
    let fleet = Fleet::new("eh1:1:cg1");
    let alpha = fleet.start("alpha");
    fleet.wait_for_owners(&[("alpha", 1)]);
    let beta = fleet.start("beta");
    let status = fleet.wait("both", |status| status["instances"].as_array().unwrap().len() == 2);
    let states: Vec<&str> =
        status["instances"].as_array().unwrap().iter().map(|i| i["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["live", "standby"]);
    assert!(fleet.says("status", &[]).contains("beta         0  standby"), "{}", fleet.says("status", &[]));
    fleet.stop(alpha);
    fleet.stop(beta);
}

#[test]
fn without_the_hub_all_but_the_lag_is_shown() {
    let mut fleet = Fleet::new("eh1:2:cg1");
    let alpha = fleet.start("alpha");
    fleet.wait_for_owners(&[("alpha", 2)]);
    fleet.stop(alpha);
    fleet.hub.signal(rustix::process::Signal::TERM);
    fleet.hub.wait();
    let status = fleet.json("status", &[]);
    assert!(status["hub_error"].as_str().unwrap().contains("is the hub running?"), "{status}");
    assert_eq!(status["partitions"].as_array().unwrap().len(), 2);
    assert!(fleet.says("status", &[]).contains("lag unknown\nNo lag: cannot connect to"));
}
