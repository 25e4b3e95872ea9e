//! What a link's address names. Clients write it bare, with a slash, or as a whole URI.

use std::fmt;

use partita_core::model::ConsumerGroup;
use partita_dialect::names::node::{CBS, MANAGEMENT};
use percent_encoding::percent_decode_str;

use super::condition::Refusal;

/// A place in the hub that a link goes to. Names are as the client spelled them; they compare without case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// A hub, to send to: the partition is found by key or in turn.
    Hub(String),
    /// A partition, to send to.
    Partition {
        /// The hub.
        hub: String,
        /// As it was written; see [`partition_number`].
        partition: String,
    },
    /// A partition in a consumer group, to read.
    Reader {
        /// The hub.
        hub: String,
        /// The group.
        group: ConsumerGroup,
        /// As it was written; see [`partition_number`].
        partition: String,
    },
    /// Where tokens are put.
    Cbs,
    /// Where hubs and partitions are asked for. Some clients name the hub here, all name it in the request.
    Management,
}

impl Address {
    /// Reads an address; what names nothing is not found.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let segments = ResourceUri::parse(text).segments;
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let is = |segment: &str, word: &str| segment.eq_ignore_ascii_case(word);
        Ok(match segments[..] {
            [node] if is(node, CBS) => Self::Cbs,
            [node] | [_, node] if is(node, MANAGEMENT) => Self::Management,
            [hub] => Self::Hub(hub.to_owned()),
            [hub, partitions, partition] if is(partitions, "Partitions") => {
                Self::Partition { hub: hub.to_owned(), partition: partition.to_owned() }
            }
            [hub, groups, group, partitions, partition]
                if is(groups, "ConsumerGroups") && is(partitions, "Partitions") =>
            {
                Self::Reader {
                    hub: hub.to_owned(),
                    group: ConsumerGroup::new(group),
                    partition: partition.to_owned(),
                }
            }
            _ => return Err(Refusal::not_found(text)),
        })
    }

    /// The hub that it is in.
    pub fn hub(&self) -> Option<&str> {
        match self {
            Self::Hub(hub) | Self::Partition { hub, .. } | Self::Reader { hub, .. } => Some(hub),
            Self::Cbs | Self::Management => None,
        }
    }

    /// The partition that it is, as it was written.
    pub fn partition(&self) -> Option<&str> {
        match self {
            Self::Partition { partition, .. } | Self::Reader { partition, .. } => Some(partition),
            Self::Hub(_) | Self::Cbs | Self::Management => None,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hub(hub) => f.write_str(hub),
            Self::Partition { hub, partition } => write!(f, "{hub}/Partitions/{partition}"),
            Self::Reader { hub, group, partition } => {
                write!(f, "{hub}/ConsumerGroups/{group}/Partitions/{partition}")
            }
            Self::Cbs => f.write_str(CBS),
            Self::Management => f.write_str(MANAGEMENT),
        }
    }
}

/// The number of a partition of a hub that has so many.
pub fn partition_number(text: &str, partitions: u32) -> Result<u32, Refusal> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|number| digits && *number < partitions);
    number.ok_or_else(|| Refusal::no_partition(partitions))
}

/// A URI taken apart: the host it names, if any, and its path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ResourceUri {
    /// In lower case, without the port.
    pub(crate) host: Option<String>,
    pub(crate) segments: Vec<String>,
}

impl ResourceUri {
    /// Takes a text apart. Empty segments and what follows a question mark do not count.
    pub(crate) fn parse(text: &str) -> Self {
        let text = text.split(['?', '#']).next().unwrap_or_default();
        let (host, path) = match text.split_once("://") {
            Some((_, rest)) => {
                let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
                let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
                (Some(without_port(host).to_lowercase()), path)
            }
            None => (None, text),
        };
        let segments = path.split('/').filter(|segment| !segment.is_empty());
        let segments = segments.map(|s| percent_decode_str(s).decode_utf8_lossy().into_owned()).collect();
        Self { host, segments }
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reader(hub: &str, group: &str, partition: &str) -> Address {
        Address::Reader { hub: hub.into(), group: ConsumerGroup::new(group), partition: partition.into() }
    }

    #[test]
    fn addresses_are_read_in_every_form_that_clients_write() {
        let partition = Address::Partition { hub: "eh1".into(), partition: "3".into() };
        for (text, address) in [
            ("eh1", Address::Hub("eh1".into())),
            ("/eh1", Address::Hub("eh1".into())),
            ("amqps://localhost/eh1", Address::Hub("eh1".into())),
            ("amqp://localhost:5672/eh1/", Address::Hub("eh1".into())),
            ("sb://[::1]:5672/eh1", Address::Hub("eh1".into())),
            ("eh1/Partitions/3", partition.clone()),
            ("amqps://host/eh1/partitions/3", partition),
            ("eh1/ConsumerGroups/$Default/Partitions/0", reader("eh1", "$default", "0")),
            ("sb://h/EH1/consumergroups/%24Default/PARTITIONS/7", reader("EH1", "$Default", "7")),
            ("$cbs", Address::Cbs),
            ("amqp://localhost/$CBS", Address::Cbs),
            ("$management", Address::Management),
            ("eh1/$management", Address::Management),
        ] {
            assert_eq!(Address::parse(text), Ok(address), "{text}");
        }
    }

    #[test]
    fn what_names_nothing_is_not_found_in_the_words_clients_know() {
        for text in
            ["", "/", "amqp://host", "a/b", "eh1/Partitions", "eh1/ConsumerGroups/a/b/0", "a/b/c/d/e/f"]
        {
            let refusal = Address::parse(text).expect_err(text);
            assert_eq!(refusal.condition, "amqp:not-found");
            assert_eq!(refusal.description, format!("The messaging entity '{text}' could not be found."));
        }
    }

    #[test]
    fn partitions_are_numbers_of_the_hub() {
        assert_eq!(partition_number("3", 4), Ok(3));
        for text in ["4", "-1", "+1", "", "one", "99999999999999999999"] {
            let refusal = partition_number(text, 4).expect_err(text);
            assert_eq!(refusal.condition, "com.microsoft:argument-out-of-range");
            assert!(refusal.description.ends_with("It should be between 0 and 3."));
        }
    }

    proptest! {
        #[test]
        fn any_text_is_an_address_or_refused(text in any::<String>()) {
            if let Ok(address) = Address::parse(&text) {
                prop_assert!(!address.to_string().is_empty());
            }
        }

        #[test]
        fn an_address_reads_back_as_it_is_written(
            hub in "[a-zA-Z0-9][a-zA-Z0-9._-]{0,20}", group in "[a-zA-Z0-9$][a-zA-Z0-9._-]{0,20}", number in 0..2_000_u32,
        ) {
            for address in [
                reader(&hub, &group, &number.to_string()),
                Address::Partition { hub: hub.clone(), partition: number.to_string() },
                Address::Hub(hub.clone()),
            ] {
                prop_assert_eq!(Address::parse(&address.to_string()), Ok(address));
            }
        }
    }
}
