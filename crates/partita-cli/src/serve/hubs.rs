//! Which hubs there are to be, and making them so.

use std::str::FromStr;

use partita_core::model::{ConsumerGroup, HubName};
use partita_hub::broker::{Broker, BrokerError, HubOptions};
use partita_hub::log::PARTITIONS_MAX;

use super::plan::Plan;
use crate::Failure;

/// The hub of a start that names none; the same name and group as in the emulator's own `Config.json`.
pub(crate) const DEFAULT_HUB: &str = "eh1";
/// Its consumer group beside `$Default`.
pub(crate) const DEFAULT_GROUP: &str = "cg1";
/// Its partitions.
pub(crate) const DEFAULT_PARTITIONS: u32 = 4;

/// A hub that is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct HubSpec {
    pub(crate) name: String,
    pub(crate) partitions: u32,
    /// Besides the default one.
    pub(crate) groups: Vec<String>,
    /// Where it was asked for, for what is said about it.
    pub(crate) origin: String,
}

impl Default for HubSpec {
    fn default() -> Self {
        Self {
            name: DEFAULT_HUB.to_owned(),
            partitions: DEFAULT_PARTITIONS,
            groups: vec![DEFAULT_GROUP.to_owned()],
            origin: "the default".to_owned(),
        }
    }
}

impl FromStr for HubSpec {
    type Err = String;

    /// Reads `NAME:PARTITIONS[:group,group]`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.splitn(3, ':');
        let (Some(name), Some(partitions)) = (parts.next(), parts.next()) else {
            return Err("write NAME:PARTITIONS or NAME:PARTITIONS:GROUP,GROUP, such as eh1:4:cg1".to_owned());
        };
        check_name(name)?;
        let partitions = check_partitions(partitions)?;
        let mut groups = Vec::new();
        for group in
            parts.next().unwrap_or_default().split(',').map(str::trim).filter(|group| !group.is_empty())
        {
            if group.eq_ignore_ascii_case("$Default") {
                continue;
            }
            check_name(group)?;
            groups.push(group.to_owned());
        }
        Ok(Self { name: name.to_owned(), partitions, groups, origin: format!("--hub {text}") })
    }
}

/// Makes the hubs that are asked for and are not there, adds to those that are there what they lack, and sets what all of
/// them keep, if that was said.
pub(crate) fn make(broker: &Broker, plan: &Plan) -> Result<(), Failure> {
    let first = HubSpec::default();
    let asked = match &plan.hubs[..] {
        [] if broker.list().is_empty() => std::slice::from_ref(&first),
        asked => asked,
    };
    for spec in asked {
        make_one(broker, spec, plan).map_err(|error| match error {
            BrokerError::FewerPartitions { hub, found, asked } => Failure::Usage(format!(
                "{}: hub '{hub}' has {found} partitions and partitions are never removed: ask for {found} instead of \
                 {asked}, or begin anew with --reset",
                spec.origin
            )),
            error => Failure::Data(error.to_string()),
        })?;
    }
    for hub in broker.list() {
        let retention = plan.retention(Some(hub.retention()));
        if retention != hub.retention() {
            hub.set_retention(retention).map_err(|error| Failure::Data(error.to_string()))?;
        }
    }
    Ok(())
}

fn make_one(broker: &Broker, spec: &HubSpec, plan: &Plan) -> Result<(), BrokerError> {
    let hub = match broker.hub(&spec.name) {
        Some(hub) => {
            if hub.partitions() != spec.partitions {
                hub.add_partitions(spec.partitions)?;
            }
            hub
        }
        None => {
            let options = HubOptions { partitions: spec.partitions, retention: plan.retention(None) };
            broker.create_hub(&HubName::new(&spec.name), options)?
        }
    };
    spec.groups.iter().try_for_each(|group| hub.create_group(&ConsumerGroup::new(group)))
}

/// Whether a name will do for a hub or a group.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    if partita_hub::broker::is_name(name) {
        Ok(())
    } else if name.len() > 256 {
        Err("names have up to 256 characters".to_owned())
    } else {
        Err("names are of letters, digits, '.', '-' and '_', and begin and end with a letter or digit"
            .to_owned())
    }
}

/// A number of partitions that a hub can have.
pub(crate) fn check_partitions(text: &str) -> Result<u32, String> {
    let good = |count: &u32| (1..=PARTITIONS_MAX).contains(count);
    text.parse().ok().filter(good).ok_or_else(|| format!("a hub has 1 to {PARTITIONS_MAX} partitions"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hub_is_read_with_and_without_groups() {
        let hub = |text: &str| text.parse::<HubSpec>().map(|hub| (hub.name, hub.partitions, hub.groups));
        assert_eq!(hub("eh1:4"), Ok(("eh1".into(), 4, vec![])));
        assert_eq!(hub("eh1:4:cg1,cg2"), Ok(("eh1".into(), 4, vec!["cg1".into(), "cg2".into()])));
        assert_eq!(hub("a:1:$Default, x"), Ok(("a".into(), 1, vec!["x".into()])));
    }

    #[test]
    fn what_is_wrong_with_a_hub_is_said() {
        let refused = |text: &str| text.parse::<HubSpec>().unwrap_err();
        assert!(refused("eh1").contains("such as eh1:4:cg1"));
        assert!(refused("eh1:0").contains("1 to 1024 partitions"));
        assert!(refused("eh1:1025").contains("1 to 1024 partitions"));
        assert!(refused("eh1:x").contains("1 to 1024 partitions"));
        assert!(refused("-eh:1").contains("begin and end with a letter or digit"));
        assert!(refused("eh1:1:c/g").contains("names are of letters"));
        assert!(refused(&format!("{}:1", "x".repeat(257))).contains("256"));
    }
}
