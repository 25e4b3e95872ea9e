//! A partition in requests and answers.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A partition: always a text in answers, as the service's ids are; taken as a text or a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PartitionNumber(pub(crate) u32);

impl Serialize for PartitionNumber {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for PartitionNumber {
    fn deserialize<D: Deserializer<'de>>(given: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Given {
            Number(u32),
            Text(String),
        }
        let wrong = || D::Error::custom("a partition is written as its id, such as \"0\"");
        match Given::deserialize(given).map_err(|_| wrong())? {
            Given::Number(id) => Ok(Self(id)),
            Given::Text(id) => id.parse().map(Self).map_err(|_| wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_taken_as_text_or_number_and_given_as_text() {
        for given in ["\"3\"", "3"] {
            let read: PartitionNumber = serde_json::from_str(given).unwrap();
            assert_eq!((read, serde_json::to_string(&read).unwrap().as_str()), (PartitionNumber(3), "\"3\""));
        }
        for wrong in ["\"x\"", "-1", "null", "1.5"] {
            let said = serde_json::from_str::<PartitionNumber>(wrong).unwrap_err().to_string();
            assert!(said.contains("such as"), "{said}");
        }
    }
}
