//! placeholder
/// placeholder
pub struct MemoryHub;
/// placeholder
pub struct MemorySource;
