//! Damages a backup and its archived log, forges checksums, restores and opens it.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    aerostat_fuzz::storage::backup_decode(input);
});
