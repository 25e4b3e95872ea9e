//! Stores and groups that are not there: one sentence, and nothing is made.

use crate::fleet::Fleet;
use crate::support::{Hub, partita, text};

#[test]
fn stores_that_cannot_be_looked_into() {
    let hub = Hub::start(&["--memory", "--hub", "eh1:1"]);
    let missing = hub.path("none.db");
    let foreign = hub.path("foreign.db");
    std::fs::write(&foreign, "a diary, not a database").unwrap();
    for (store, code, part) in [
        (format!("sqlite:{}", missing.display()), 2, "there is no store at "),
        (format!("sqlite:{}", foreign.display()), 2, "it is not a Partita database"),
        ("redis://user:s3cret@host".to_owned(), 2, "cannot look into a redis store"),
        ("checkpoints.db".to_owned(), 2, "write sqlite:PATH"),
    ] {
        for name in ["status", "moves", "plan"] {
            let mut command = partita(&[name, "eh1", "--store", &store]);
            command.env("EVENTHUBS_CONNECTION_STRING", hub.ready["connection_string"].as_str().unwrap());
            let output = command.output().unwrap();
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(code), "{said}");
            assert!(said.contains(part) && !said.contains("s3cret") && said.lines().count() == 1, "{said}");
        }
    }
    assert!(!missing.exists(), "looking makes no store");
    assert_eq!(std::fs::read_to_string(foreign).unwrap(), "a diary, not a database");
}

#[test]
fn a_group_that_no_processor_was_in() {
    let fleet = crate::fleet::Fleet::new("eh1:1:cg1");
    let alpha = fleet.start("alpha");
    fleet.wait_for_owners(&[("alpha", 1)]);
    fleet.stop(alpha);
    for name in ["status", "moves", "plan"] {
        let mut command = partita(&[name, "eh1", "-g", "other", "--store"]);
        command.arg(format!("sqlite:{}", fleet.store().display()));
        command.env("EVENTHUBS_CONNECTION_STRING", fleet.hub.ready["connection_string"].as_str().unwrap());
        let output = command.output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(7), "{said}");
        assert!(said.contains("the store knows no group other of hub eh1 at localhost"), "{said}");
    }
}

#[test]
fn a_processor_of_a_group_that_the_hub_does_not_have_does_not_start() {
    let fleet = Fleet::new("eh1:1:cg2");
    let said = fleet.try_start_with("alpha", |_| Ok(())).expect_err("there is no cg1");
    assert!(
        said.contains("'cg1' could not be found: hub 'eh1' has the consumer groups $Default, cg2"),
        "{said}"
    );
}
