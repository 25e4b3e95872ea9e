//! Which hubs are to be opened: those that are there, compared with what bears witness to them. A hub, or a description,
//! that went away is refused, and made again only if that was asked for.

use std::io;
use std::path::PathBuf;

use partita_core::model::HubName;

use super::BrokerError;
use super::meta::{self, Meta};
use crate::log::store::hub_numbers;
use crate::log::witness::{self, RecordFile};
use crate::log::{Disk, OpenError, Retention, Store, peek};

/// A hub that is to be opened.
pub(super) struct ToOpen {
    pub(super) id: u64,
    pub(super) meta: Meta,
    /// Whether it goes on without what is missing.
    pub(super) accept_loss: bool,
    /// Whether something was missing that the log does not know of.
    pub(super) missed: bool,
}

/// The hubs of a store. `accept` has the names of those that go on without what is missing.
pub(super) fn find(store: &Store, disk: &dyn Disk, accept: &[String]) -> Result<Vec<ToOpen>, BrokerError> {
    let look = Look { store, disk, accept };
    let mut found = Vec::new();
    for id in store.hubs()? {
        found.extend(look.at(id)?);
    }
    found.extend(look.without_directory()?);
    found.sort_by_key(|hub| hub.id);
    let unknown = accept.iter().find(|name| !found.iter().any(|hub| look.is_meant(name, hub)));
    match unknown {
        Some(name) => Err(BrokerError::NoHub(HubName::new(name))),
        None => Ok(found),
    }
}

struct Look<'a> {
    store: &'a Store,
    disk: &'a dyn Disk,
    accept: &'a [String],
}

impl Look<'_> {
    fn is_meant(&self, name: &str, hub: &ToOpen) -> bool {
        super::fold(name) == super::fold(&hub.meta.name) || name == number(hub.id)
    }

    fn accepts(&self, name: &str) -> bool {
        self.accept.iter().any(|accepted| super::fold(accepted) == super::fold(name))
    }

    /// The hub with this directory; `None` if its making was not finished.
    fn at(&self, id: u64) -> Result<Option<ToOpen>, BrokerError> {
        let dir = self.store.hub_dir(id);
        let path = dir.join(meta::FILE);
        match Meta::load(self.disk, &path) {
            Ok(Some(meta)) => self.with_description(id, meta).map(Some),
            Ok(None) => self.without_description(id, path, "is missing"),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                self.without_description(id, path, "is damaged")
            }
            Err(error) => Err(OpenError::io("reading", path, error).into()),
        }
    }

    fn with_description(&self, id: u64, mut meta: Meta) -> Result<ToOpen, BrokerError> {
        let dir = self.store.hub_dir(id);
        let accept_loss = self.accepts(&meta.name);
        let (name, mut missed) = (HubName::new(&meta.name), false);
        let mut lost = |what: String| match accept_loss {
            true => {
                tracing::warn!(hub = %name, "goes on although it {what}");
                missed = true;
                Ok(())
            }
            false => Err(BrokerError::Lost { hub: name.clone(), what }),
        };
        let path = witness::record_path(&dir);
        let record = match RecordFile::load(self.disk, &dir, self.store.id(), id) {
            Err(OpenError::Damaged { .. }) => {
                lost(format!("has a damaged record of what it acknowledged: restore {}", path.display()))?;
                RecordFile::blank(&dir)
            }
            record => record?,
        };
        match record.last() {
            None if self.store.is_witnessed() && self.peek(id)?.events => {
                lost(format!("has no record of what it acknowledged any more: restore {}", path.display()))?;
            }
            Some(record) if record.table.len() > meta.partitions as usize => {
                let (had, has) = (record.table.len(), meta.partitions);
                let dir = dir.display();
                lost(format!("had {had} partitions and now has {has}: restore the newest copy of {dir}"))?;
                meta.partitions = record.table.len() as u32;
                self.save(id, &meta)?;
            }
            _ => {}
        }
        Ok(ToOpen { id, meta, accept_loss, missed })
    }

    fn without_description(
        &self,
        id: u64,
        path: PathBuf,
        state: &str,
    ) -> Result<Option<ToOpen>, BrokerError> {
        let copy = self.copy(id)?;
        let found = self.peek(id)?;
        if copy.is_none() && !found.events && state == "is missing" {
            return Ok(None);
        }
        // Without a copy the hub is known by its number alone.
        let name = copy.as_ref().map_or_else(|| number(id), |meta| meta.name.clone());
        if !self.accepts(&name) {
            let path = path.display();
            let what = format!(
                "cannot be opened: {path} {state}, with its name, partitions, groups and retention: restore it"
            );
            return Err(BrokerError::Lost { hub: HubName::new(name), what });
        }
        let record = RecordFile::load(self.disk, &self.store.hub_dir(id), self.store.id(), id).ok();
        let recorded = record.and_then(|record| record.last().map(|last| last.table.len() as u32));
        let mut meta = copy.unwrap_or_else(|| Meta {
            name: format!("recovered-{id}"),
            partitions: 1,
            retention: Retention::default(),
            groups: Vec::new(),
            created_ms: 0,
            disabled: false,
        });
        meta.partitions = meta.partitions.max(found.partitions).max(recorded.unwrap_or(0));
        self.save(id, &meta)?;
        tracing::warn!(hub = meta.name, partitions = meta.partitions, "the hub's description was made again");
        Ok(Some(ToOpen { id, meta, accept_loss: true, missed: true }))
    }

    /// Hubs of which only the witness is left.
    fn without_directory(&self) -> Result<Vec<ToOpen>, BrokerError> {
        let data = self.store.path();
        let there = hub_numbers(self.disk, data)?;
        let known = witness::hubs(self.disk, data)
            .map_err(|error| OpenError::io("listing", witness::witness_dir(data), error))?;
        let mut found = Vec::new();
        for id in known.into_iter().filter(|id| !there.contains(id)) {
            let dir = self.store.hub_dir(id);
            if !self.store.is_witnessed() {
                // A program that keeps no records had the directory last, and has deleted the hub.
                let forgotten = witness::forget(self.disk, &dir);
                forgotten.map_err(|error| OpenError::io("deleting", witness::meta_path(&dir), error))?;
                continue;
            }
            let Some(meta) = self.copy(id)? else { continue };
            if !self.accepts(&meta.name) {
                let what = format!("is missing with all its events: restore {}", dir.display());
                return Err(BrokerError::Lost { hub: HubName::new(meta.name), what });
            }
            self.save(id, &meta)?;
            found.push(ToOpen { id, meta, accept_loss: true, missed: true });
        }
        Ok(found)
    }

    fn peek(&self, id: u64) -> Result<peek::Peek, BrokerError> {
        let dir = self.store.hub_dir(id);
        let found = peek::peek(self.disk, &dir, self.store.id());
        Ok(found.map_err(|error| OpenError::io("reading", dir, error))?)
    }

    /// The copy of a hub's description; none if it cannot be read either.
    fn copy(&self, id: u64) -> Result<Option<Meta>, BrokerError> {
        let path = witness::meta_path(&self.store.hub_dir(id));
        match Meta::load(self.disk, &path) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(None),
            meta => Ok(meta.map_err(|error| OpenError::io("reading", path, error))?),
        }
    }

    fn save(&self, id: u64, meta: &Meta) -> Result<(), BrokerError> {
        let dir = self.store.hub_dir(id);
        meta.save(self.disk, &dir).map_err(|source| BrokerError::Io { path: dir, source })
    }
}

/// What a hub without a name is called.
fn number(id: u64) -> String {
    format!("{id:016x}")
}
