//! Which partition an event goes to. Pure, but for where it begins.

use partita_core::model::PartitionId;
use partita_dialect::event::partition_of;

use super::Args;

/// Chooses partitions, by their place in a sorted list.
#[derive(Clone, Debug)]
pub(crate) struct Routing {
    partitions: Vec<PartitionId>,
    fixed: Option<usize>,
    key: Option<String>,
    /// Whether lines may name partitions.
    named: bool,
    next: usize,
}

impl Routing {
    pub(crate) fn new(partitions: &[PartitionId], args: &Args) -> Result<Self, String> {
        let mut routing = Self {
            partitions: partitions.to_vec(),
            fixed: None,
            key: args.key.clone(),
            named: !args.spread,
            // Single lines, sent one by one, are spread, too.
            next: fastrand::usize(..partitions.len().max(1)),
        };
        routing.fixed = match (&args.partition, &args.key) {
            (Some(partition), _) => Some(routing.find(partition)?),
            (None, Some(key)) => Some(routing.of_key(key)),
            (None, None) => None,
        };
        Ok(routing)
    }

    /// The partition of an event that may name one, or a key; and its key.
    pub(crate) fn route(
        &mut self,
        partition: Option<&str>,
        key: Option<String>,
    ) -> Result<(usize, Option<String>), String> {
        let key = self.key.clone().or(key);
        let at = match (self.fixed, partition.filter(|_| self.named), &key) {
            (Some(at), ..) => at,
            (None, Some(partition), _) => self.find(partition)?,
            (None, None, Some(key)) => self.of_key(key),
            (None, None, None) => {
                self.next = (self.next + 1) % self.partitions.len();
                self.next
            }
        };
        Ok((at, key))
    }

    fn find(&self, partition: &str) -> Result<usize, String> {
        let at = self.partitions.iter().position(|id| id.as_str() == partition);
        at.ok_or_else(|| {
            format!("there is no partition {partition}: they are 0 to {}", self.partitions.len() - 1)
        })
    }

    /// As the service does it, so that a key is in one place whoever sends.
    fn of_key(&self, key: &str) -> usize {
        partition_of(key, u32::try_from(self.partitions.len()).unwrap_or(u32::MAX)) as usize
    }
}

#[cfg(test)]
impl Routing {
    pub(crate) fn of_test(partitions: u32) -> Self {
        let partitions = (0..partitions).map(PartitionId::from).collect();
        Self { partitions, fixed: None, key: None, named: true, next: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routing(fixed: Option<usize>, named: bool) -> Routing {
        Routing { fixed, named, ..Routing::of_test(4) }
    }

    #[test]
    fn a_partition_goes_before_a_key_and_a_key_before_going_round() {
        let mut by_line = routing(None, true);
        let own = partition_of("k", 4) as usize;
        assert_eq!(by_line.route(Some("3"), Some("k".into())).unwrap().0, 3);
        assert_eq!(by_line.route(None, Some("k".into())).unwrap(), (own, Some("k".into())));
        let round: Vec<usize> = (0..5).map(|_| by_line.route(None, None).unwrap().0).collect();
        assert_eq!(round, [1, 2, 3, 0, 1]);
        assert_eq!(routing(None, false).route(Some("3"), Some("k".into())).unwrap().0, own);
        assert_eq!(routing(Some(2), true).route(Some("3"), None).unwrap().0, 2);
    }

    #[test]
    fn a_partition_that_is_not_there_is_said() {
        let said = routing(None, true).route(Some("9"), None).unwrap_err();
        assert_eq!(said, "there is no partition 9: they are 0 to 3");
    }
}
