//! Damages a tenant's manifest and images, forges checksums, opens the tenant.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    aerostat_fuzz::storage::checkpoint_decode(input);
});
