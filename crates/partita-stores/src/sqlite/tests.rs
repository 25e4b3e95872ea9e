//! What is particular to this store; the protocol is the conformance suite's.
