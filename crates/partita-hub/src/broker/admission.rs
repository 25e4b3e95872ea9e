//! Who may read a partition in a consumer group. Pure: the caller evicts whom it is told to.

use std::sync::Arc;

use partita_core::model::Epoch;
use thiserror::Error;

/// Readers without an epoch that a partition and group have at most.
pub const PLAIN_READERS_MAX: usize = 5;

/// Why a reader is not admitted. The words are the service's: clients look for them.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Refused {
    /// There is a reader of a higher epoch.
    #[error(
        "Receiver '{name}' with a higher epoch '{epoch}' already exists. Receiver '{refused}' with epoch {asked} cannot be created. Make sure you are creating receiver with increasing epoch value to ensure connectivity, or ensure all old epoch receivers are closed or disconnected"
    )]
    LowerEpoch {
        /// That reader.
        name: Arc<str>,
        /// Its epoch.
        epoch: Epoch,
        /// The one that is not admitted.
        refused: Arc<str>,
        /// The epoch that it has.
        asked: Epoch,
    },
    /// There is a reader with an epoch, and this one has none.
    #[error(
        "At least one receiver for the endpoint is created with epoch of '{epoch}', and so non-epoch receiver is not allowed"
    )]
    Exclusive {
        /// Its epoch.
        epoch: Epoch,
    },
    /// There are as many as there may be.
    #[error(
        "Exceeded the maximum number of allowed receivers per partition in a consumer group which is {PLAIN_READERS_MAX}. List of connected receivers - {readers}"
    )]
    TooMany {
        /// Who they are.
        readers: String,
    },
}

/// A reader that must go, and what it is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Evicted {
    pub(crate) id: u64,
    pub(crate) reason: String,
}

#[derive(Clone, Debug)]
struct Reader {
    id: u64,
    name: Arc<str>,
    epoch: Option<Epoch>,
}

/// The readers of one partition in one group: up to five plain ones, or one with an epoch.
#[derive(Debug, Default)]
pub(crate) struct Readers(Vec<Reader>);

impl Readers {
    /// Adds a reader.
    ///
    /// - With an epoch: refused beside a higher one; otherwise it is alone from now on.
    /// - Without: refused beside one with an epoch, and as the sixth.
    pub(crate) fn admit(
        &mut self,
        id: u64,
        name: Arc<str>,
        epoch: Option<Epoch>,
    ) -> Result<Vec<Evicted>, Refused> {
        let holder = self.0.iter().find_map(|reader| Some((reader.epoch?, reader.name.clone())));
        let evicted = match (epoch, holder) {
            (Some(asked), Some((epoch, holder))) if epoch > asked => {
                return Err(Refused::LowerEpoch { name: holder, epoch, refused: name, asked });
            }
            (Some(epoch), _) => self.0.drain(..).map(|reader| evict(&reader, &name, epoch)).collect(),
            (None, Some((epoch, _))) => return Err(Refused::Exclusive { epoch }),
            (None, None) if self.0.len() >= PLAIN_READERS_MAX => {
                let names: Vec<&str> = self.0.iter().map(|reader| &*reader.name).collect();
                return Err(Refused::TooMany { readers: names.join(", ") });
            }
            (None, None) => Vec::new(),
        };
        self.0.push(Reader { id, name, epoch });
        Ok(evicted)
    }

    /// Removes a reader that left; one that was evicted is gone already.
    pub(crate) fn leave(&mut self, id: u64) {
        self.0.retain(|reader| reader.id != id);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn evict(reader: &Reader, by: &str, epoch: Epoch) -> Evicted {
    let name = &reader.name;
    let held = reader.epoch.map_or_else(|| "none".to_owned(), |held| held.to_string());
    let reason = format!(
        "New receiver '{by}' with higher epoch of '{epoch}' is created hence current receiver '{name}' with epoch '{held}' is getting disconnected. If you are recreating the receiver, make sure a higher epoch is used."
    );
    Evicted { id: reader.id, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admit(readers: &mut Readers, id: u64, epoch: Option<u64>) -> Result<Vec<u64>, Refused> {
        let evicted = readers.admit(id, format!("r{id}").into(), epoch.map(Epoch))?;
        Ok(evicted.into_iter().map(|evicted| evicted.id).collect())
    }

    #[test]
    fn five_plain_readers_and_no_sixth() {
        let mut readers = Readers::default();
        for id in 0..5 {
            assert_eq!(admit(&mut readers, id, None), Ok(vec![]));
        }
        let error = admit(&mut readers, 5, None).expect_err("refused").to_string();
        assert!(error.ends_with("which is 5. List of connected receivers - r0, r1, r2, r3, r4"), "{error}");
        readers.leave(2);
        assert_eq!(admit(&mut readers, 6, None), Ok(vec![]));
    }

    #[test]
    fn an_equal_or_higher_epoch_evicts_and_a_lower_one_is_refused() {
        let mut readers = Readers::default();
        assert_eq!(admit(&mut readers, 0, Some(3)), Ok(vec![]));
        assert_eq!(admit(&mut readers, 1, Some(3)), Ok(vec![0]));
        assert_eq!(admit(&mut readers, 2, Some(4)), Ok(vec![1]));
        let refused = admit(&mut readers, 3, Some(2));
        let error = refused.expect_err("lower").to_string();
        assert_eq!(
            error,
            "Receiver 'r2' with a higher epoch '4' already exists. Receiver 'r3' with epoch 2 cannot be created. \
             Make sure you are creating receiver with increasing epoch value to ensure connectivity, or ensure all old \
             epoch receivers are closed or disconnected"
        );
    }

    #[test]
    fn an_epoch_reader_is_alone() {
        let mut readers = Readers::default();
        assert_eq!(admit(&mut readers, 0, None), Ok(vec![]));
        assert_eq!(admit(&mut readers, 1, None), Ok(vec![]));
        assert_eq!(admit(&mut readers, 2, Some(0)), Ok(vec![0, 1]));
        assert_eq!(admit(&mut readers, 3, None), Err(Refused::Exclusive { epoch: Epoch(0) }));
        readers.leave(2);
        assert_eq!(admit(&mut readers, 3, None), Ok(vec![]));
    }
}
