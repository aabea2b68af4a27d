//! The bodies of the fuzz targets. They are functions of the crates' tests, which drive
//! them with seeds (`crates/segment/tests/hostile.rs`, `crates/storage/tests/hostile.rs`);
//! here libFuzzer does.

#[path = "../../crates/segment/tests/model/mod.rs"]
pub mod model;
#[path = "../../crates/storage/tests/targets/mod.rs"]
pub mod storage;
#[path = "../../crates/segment/tests/targets/mod.rs"]
pub mod targets;
