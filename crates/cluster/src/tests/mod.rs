//! Nodes of a cluster in one process.
