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
    assert!(
        shown.starts_with("cg1 of eh1 at localhost: 4 partitions, 1 instance, lag 0 events\n"),
        "{shown}"
    );
    assert!(shown.contains("alpha        4  live"), "{shown}");

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
    assert!(fleet.says("status", &[]).contains("lag unknown\nNo lag: nobody answers"));
}
