//! Damages a tenant's log files, forges lengths and checksums, opens the tenant.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    aerostat_fuzz::storage::log_decode(input);
});
