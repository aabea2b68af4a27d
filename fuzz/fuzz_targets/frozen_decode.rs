//! Damages the bytes of a frozen segment, forges the checksum, uses what is attached.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    aerostat_fuzz::targets::frozen_decode(input);
});
