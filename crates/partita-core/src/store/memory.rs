//! placeholder
/// placeholder
pub struct MemoryStore;
