//! Encodes values, and reads what went in.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    aerostat_fuzz::targets::encodings(input);
});
