//! The hash of keys and long values. It is part of the format: the key index in a segment's bytes
//! depends on it, so it has no random seed.
//!
//! Folded multiplication (wyhash, also in foldhash): the 128-bit product of the running hash and
//! a constant, its halves xored. A key of one or two integers takes two or three multiplications.

const STEP: u64 = 0x9E37_79B9_7F4A_7C15; // 2^64 / golden ratio
const LAST: u64 = 0xD6E8_FEB8_6659_FD93; // from Pelle Evensen's rrmxmx mixer

fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ (product >> 64) as u64
}

/// The hash of some bytes.
pub(crate) fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut hash = LAST ^ bytes.len() as u64;
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        hash = fold(hash ^ u64::from_le_bytes(*word), STEP);
    }
    if !rest.is_empty() {
        hash = fold(hash ^ load_short(rest), STEP);
    }
    fold(hash ^ STEP, LAST)
}

/// The hash of a number, in memory only. After one multiplication the hashes of consecutive
/// numbers would be spread too evenly to be counted by chance.
pub(crate) fn hash_number(number: u128) -> u64 {
    let first = fold(number as u64 ^ STEP, (number >> 64) as u64 ^ LAST);
    fold(first ^ STEP, LAST)
}

/// Up to 7 bytes as a little-endian number, by overlapping loads in place of a
/// byte loop.
pub(crate) fn load_short(bytes: &[u8]) -> u64 {
    match *bytes {
        [] => 0,
        [a] => u64::from(a),
        [a, b] => u64::from(u16::from_le_bytes([a, b])),
        [a, b, c] => u64::from(u32::from_le_bytes([a, b, c, 0])),
        [a, b, c, d, ..] => {
            let low = u64::from(u32::from_le_bytes([a, b, c, d]));
            let last = bytes
                .last_chunk::<4>()
                .map_or(0, |last| u64::from(u32::from_le_bytes(*last)));
            low | last << (8 * (bytes.len() - 4))
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn short_loads_are_little_endian() {
        for len in 0..8 {
            let bytes: Vec<u8> = (1..=len as u8).collect();
            let mut padded = [0; 8];
            padded[..len].copy_from_slice(&bytes);
            assert_eq!(load_short(&bytes), u64::from_le_bytes(padded));
        }
    }

    #[test]
    fn consecutive_keys_spread() {
        // 64 buckets for 64,000 consecutive keys: 1,000 each, ±5 standard deviations (√1000 ≈ 32).
        let mut buckets = [0u32; 64];
        for key in 0..64_000u64 {
            buckets[(hash_bytes(&key.to_be_bytes()) >> 58) as usize] += 1;
        }
        assert!(
            buckets.iter().all(|&n| (840..1160).contains(&n)),
            "{buckets:?}"
        );
    }
}
