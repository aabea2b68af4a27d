//! Signatures only, for the first minutes: bodies follow.
#![allow(clippy::todo, missing_docs, unused_variables, dead_code)]
use std::{ptr::NonNull, ops::Range, sync::Arc};
use aerostat_types::ByteSize;
use aerostat_segment::Region;
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("out of memory: {budget} needs {requested} bytes more than its {used} and may have {limit}")]
pub struct OutOfMemory { pub budget: String, pub requested: u64, pub used: u64, pub limit: u64 }
#[derive(Debug, thiserror::Error)]
pub enum MemoryError { #[error("the operating system refuses {bytes} bytes")] Map { bytes: usize, #[source] source: std::io::Error } }
pub struct Governor {}
impl Governor {
    pub fn new(limit: ByteSize) -> Arc<Self> { todo!() }
    pub fn budget(self: &Arc<Self>, name: &str, max: Option<ByteSize>) -> Arc<Budget> { todo!() }
    pub fn root(&self) -> Arc<Budget> { todo!() }
    pub fn used(&self) -> u64 { todo!() }
    pub fn limit(&self) -> u64 { todo!() }
}
pub struct Budget {}
impl Budget {
    pub fn name(&self) -> &str { todo!() }
    pub fn reserve(self: &Arc<Self>, bytes: u64) -> Result<Reservation, OutOfMemory> { todo!() }
    pub fn used(&self) -> u64 { todo!() }
    pub fn peak(&self) -> u64 { todo!() }
    pub fn max(&self) -> Option<ByteSize> { todo!() }
    pub fn set_max(&self, max: Option<ByteSize>) { todo!() }
    pub fn try_grow_raw(&self, bytes: u64) -> Result<(), OutOfMemory> { todo!() }
    pub fn shrink_raw(&self, bytes: u64) { todo!() }
}
pub struct Reservation {}
impl Reservation {
    pub fn bytes(&self) -> u64 { todo!() }
    pub fn try_grow(&mut self, bytes: u64) -> Result<(), OutOfMemory> { todo!() }
    pub fn shrink(&mut self, bytes: u64) { todo!() }
    pub fn try_resize(&mut self, bytes: u64) -> Result<(), OutOfMemory> { todo!() }
}
pub struct ArenaSource;
impl ArenaSource { pub fn allocate(bytes: usize) -> Result<Mapping, MemoryError> { todo!() } }
pub struct Mapping { base: NonNull<u8>, bytes: usize }
unsafe impl Send for Mapping {}
unsafe impl Sync for Mapping {}
unsafe impl Region for Mapping { fn base(&self) -> NonNull<u8> { self.base } fn bytes(&self) -> usize { self.bytes } }
impl Mapping { pub fn advise_huge(&self, range: Range<usize>) -> Result<(), MemoryError> { todo!() } }
pub fn machine_memory_bytes() -> u64 { todo!() }
