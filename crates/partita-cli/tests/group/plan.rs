//! What would move is what then moves.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::fleet::Fleet;
use crate::support::text;

fn owners(status: &Value) -> BTreeMap<String, String> {
    let pair =
        |partition: &Value| Some((partition["id"].as_str()?.into(), partition["owner"].as_str()?.into()));
    status["partitions"].as_array().unwrap().iter().filter_map(pair).collect()
}

#[test]
fn a_plan_for_an_instance_that_comes_is_what_happens_when_it_does() {
    let fleet = Fleet::new("eh1:5:cg1");
    let alpha = fleet.start("alpha");
    let before = owners(&fleet.wait_for_owners(&[("alpha", 5)]));
    assert!(fleet.says("plan", &[]).starts_with("Nothing would move: of 5 partitions"));
    let plan = fleet.json("plan", &["--join", "1"]);
    let shown = fleet.says("plan", &["--join", "1"]);
    assert!(shown.starts_with("2 of 5 partitions would move:\n"), "{shown}");
    assert!(shown.contains("hand-off") && shown.contains("new-1"), "{shown}");
    assert_eq!(owners(&fleet.json("status", &[])), before, "a plan changes nothing");

    // A name that sorts as the plan's own does: the same plan.
    let beta = fleet.start("new-1");
    let after = owners(&fleet.wait_for_owners(&[("alpha", 3), ("new-1", 2)]));
    let moved: BTreeMap<String, String> =
        after.into_iter().filter(|(partition, owner)| before[partition] != *owner).collect();
    let planned: BTreeMap<String, String> = plan["moves"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["partition"].as_str().unwrap().into(), one["to"].as_str().unwrap().into()))
        .collect();
    assert_eq!(moved, planned);

    let leave = fleet.json("plan", &["--leave", "new"]);
    assert_eq!(leave["moves"].as_array().unwrap().len(), 2, "{leave}");
    assert!(leave["moves"].as_array().unwrap().iter().all(|one| one["to"] == "alpha"));
    let both = fleet.says("plan", &["--leave", "new", "--leave", "alpha"]);
    assert!(both.contains("left without an owner"), "{both}");
    let unknown = fleet.output("plan", &["--leave", "gamma"]);
    assert_eq!(unknown.status.code(), Some(7));
    assert!(text(&unknown.stderr).contains("no live instance is called gamma: there is alpha, new-1"));
    fleet.stop(alpha);
    fleet.stop(beta);
}
