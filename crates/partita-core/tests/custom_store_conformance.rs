//! The example of a store of one's own keeps the contract.

#[path = "../examples/custom_store/store.rs"]
mod store;
#[path = "../examples/custom_store/text.rs"]
mod text;

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use partita_core::store::CheckpointStore;
use partita_core::testkit::store::StoreHarness;

/// A directory that goes with its test. Every handle is a store of its own on it, as in another process.
struct Directory(PathBuf);

impl StoreHarness for Directory {
    fn open(&self) -> BoxFuture<'_, Arc<dyn CheckpointStore>> {
        let store = store::DirectoryStore::open(&self.0).expect("a directory can be made");
        Box::pin(std::future::ready(Arc::new(store) as Arc<dyn CheckpointStore>))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn fresh() -> Directory {
    Directory(std::env::temp_dir().join(format!("partita-conformance-{:032x}", fastrand::u128(..))))
}

partita_core::testkit::store_conformance!(fresh);
