//! The SQLite store keeps the contract of stores: with all handles in one process, and with connections of their own, as
//! separate processes have.

#![cfg(feature = "sqlite")]

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use partita_core::store::CheckpointStore;
use partita_core::testkit::store::StoreHarness;
use partita_stores::sqlite::SqliteStore;

/// A directory that goes with its test.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("partita-sqlite-{:032x}", fastrand::u128(..)));
        std::fs::create_dir(&path).expect("a directory can be made");
        Self(path)
    }

    fn open(&self) -> SqliteStore {
        SqliteStore::open(self.0.join("checkpoints.db")).expect("a store can be opened")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

mod handles_of_one_process {
    use super::*;

    struct Shared(SqliteStore, #[allow(dead_code)] Directory);

    impl StoreHarness for Shared {
        fn open(&self) -> BoxFuture<'_, Arc<dyn CheckpointStore>> {
            Box::pin(std::future::ready(Arc::new(self.0.clone()) as Arc<dyn CheckpointStore>))
        }
    }

    async fn fresh() -> Shared {
        let directory = Directory::new();
        Shared(directory.open(), directory)
    }

    partita_core::testkit::store_conformance!(fresh);
}

mod connections_of_their_own {
    use super::*;

    impl StoreHarness for Directory {
        fn open(&self) -> BoxFuture<'_, Arc<dyn CheckpointStore>> {
            Box::pin(std::future::ready(Arc::new(Directory::open(self)) as Arc<dyn CheckpointStore>))
        }
    }

    async fn fresh() -> Directory {
        Directory::new()
    }

    partita_core::testkit::store_conformance!(fresh);
}
