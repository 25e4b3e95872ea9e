//! The stores and the source in the box keep the contract that others are held to.

mod store {
    use std::sync::Arc;

    use partita_core::store::{CheckpointStore, MemoryStore};

    async fn fresh() -> Arc<dyn CheckpointStore> {
        Arc::new(MemoryStore::new())
    }

    partita_core::testkit::store_conformance!(fresh);
}

mod single_record_store {
    use std::sync::Arc;

    use partita_core::store::{CheckpointStore, MemoryStore};

    async fn fresh() -> Arc<dyn CheckpointStore> {
        Arc::new(MemoryStore::single_record())
    }

    partita_core::testkit::store_conformance!(fresh);
}

mod source {
    use partita_core::source::MemoryHub;

    partita_core::testkit::source_conformance!(async || MemoryHub::new("hub", 2));
}
