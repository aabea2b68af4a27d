//! Loops that are compiled several times, for the baseline, AVX2 and AVX-512, and
//! the few instructions that the compiler does not find by itself. The machine
//! decides which version runs.
//!
//! A loop is a [`Kernel`]: plain code, generic over what [`Simd`] offers. A value
//! of a `Simd` type exists only where the machine has the instructions, so its
//! methods are safe to call.

#[cfg(target_arch = "x86_64")]
use std::sync::OnceLock;

/// Instructions beyond plain loops.
pub(crate) trait Simd: Copy {
    /// 64 bytes of 0 or 1 as 64 bits.
    #[inline(always)]
    fn bits_of(self, hits: &[u8; 64]) -> u64 {
        bits_of(hits)
    }

    /// Which of 64 codes are in a set of 256 bits.
    #[inline(always)]
    fn in_set(self, codes: &[u8; 64], set: &[u8; 32]) -> u64 {
        let mut hits = [0u8; 64];
        for (hit, &code) in hits.iter_mut().zip(codes) {
            *hit = set[usize::from(code / 8)] >> (code % 8) & 1;
        }
        self.bits_of(&hits)
    }

    /// Which of 64 codes are in a set of 4,096 bits; codes beyond are not.
    #[inline(always)]
    fn in_small_set(self, codes: &[u16; 64], set: &[u16; 256]) -> u64 {
        let mut hits = [0u8; 64];
        for (hit, &code) in hits.iter_mut().zip(codes) {
            let word = set.get(usize::from(code / 16)).copied().unwrap_or(0);
            *hit = (word >> (code % 16) & 1) as u8;
        }
        self.bits_of(&hits)
    }

    /// Which of 64 codes have their bit set; codes beyond the bits have none.
    #[inline(always)]
    fn are_members(self, codes: &[u32; 64], bits: &[u64]) -> u64 {
        let mut hits = [0u8; 64];
        for (hit, &code) in hits.iter_mut().zip(codes) {
            let word = bits.get(code as usize / 64).copied().unwrap_or(0);
            *hit = (word >> (code % 64) & 1) as u8;
        }
        self.bits_of(&hits)
    }

    /// The low bits of a number, moved to where the mask has bits.
    #[inline(always)]
    fn deposit(self, bits: u64, mask: u64) -> u64 {
        let (mut rest, mut deposited) = (mask, 0);
        for nth in 0..mask.count_ones() {
            deposited |= (bits >> nth & 1) << rest.trailing_zeros();
            rest &= rest - 1;
        }
        deposited
    }

    /// Appends `base + i` for each bit `i` of the mask.
    #[inline(always)]
    fn push_rows(self, rows: &mut Vec<u32>, base: u32, mask: u64) {
        let mut numbers = [0; 64];
        let (mut rest, mut len) = (mask, 0);
        while rest != 0 {
            numbers[len] = base + rest.trailing_zeros();
            (rest, len) = (rest & (rest - 1), len + 1);
        }
        rows.extend_from_slice(&numbers[..len]);
    }
}

/// A loop, compiled for each kind of machine. `run` and what it calls are inlined.
pub(crate) trait Kernel {
    /// What the loop yields.
    type Output;
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

/// Runs the version of a loop that suits the machine.
#[inline]
pub(crate) fn dispatch<K: Kernel>(kernel: K) -> K::Output {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,bmi1,bmi2,popcnt")]
        fn avx512<K: Kernel>(kernel: K) -> K::Output {
            kernel.run(Avx512(()))
        }
        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
        fn avx2<K: Kernel>(kernel: K) -> K::Output {
            kernel.run(Avx2(()))
        }
        match level() {
            // SAFETY: the machine has these instructions, says `level`.
            Level::Avx512 => return unsafe { avx512(kernel) },
            // SAFETY: as above.
            Level::Avx2 => return unsafe { avx2(kernel) },
            Level::Baseline => {}
        }
    }
    kernel.run(Baseline)
}

/// What every machine has.
#[derive(Clone, Copy)]
pub(crate) struct Baseline;

impl Simd for Baseline {}

/// Made by `dispatch` alone, on machines that have AVX2.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
struct Avx2(());

#[cfg(target_arch = "x86_64")]
impl Simd for Avx2 {
    #[inline(always)]
    fn bits_of(self, hits: &[u8; 64]) -> u64 {
        use std::arch::x86_64::{_mm256_loadu_si256, _mm256_movemask_epi8, _mm256_slli_epi16};
        let half = |half: &[u8; 32]| {
            // SAFETY: the machine has AVX2, since there is a value of this type; 32 bytes are
            // read from an array of 32.
            let bits = unsafe {
                let bytes = _mm256_loadu_si256(half.as_ptr().cast());
                // The lowest bit of a byte becomes its highest.
                _mm256_movemask_epi8(_mm256_slli_epi16::<7>(bytes))
            };
            u64::from(bits as u32)
        };
        let (halves, _) = hits.as_chunks::<32>();
        half(&halves[0]) | half(&halves[1]) << 32
    }

    #[inline(always)]
    fn are_members(self, codes: &[u32; 64], bits: &[u64]) -> u64 {
        use std::arch::x86_64::{
            _mm256_and_si256, _mm256_castsi256_ps, _mm256_cmpgt_epi32, _mm256_loadu_si256,
            _mm256_mask_i32gather_epi32, _mm256_movemask_ps, _mm256_set1_epi32,
            _mm256_setzero_si256, _mm256_slli_epi32, _mm256_srli_epi32, _mm256_srlv_epi32,
        };
        // Half words: with the five low bits gone, a code's is below 2^27.
        let halves = i32::try_from(bits.len() * 2).unwrap_or(i32::MAX);
        let mut mask = 0;
        for (nth, codes) in codes.as_chunks::<8>().0.iter().enumerate() {
            // SAFETY: the machine has AVX2, since there is a value of this type; 32 bytes are
            // read from an array of 32. Half words are gathered from the bits where they are
            // fewer than there are: their order in memory is that of their bits.
            let hits = unsafe {
                let codes = _mm256_loadu_si256(codes.as_ptr().cast());
                let at = _mm256_srli_epi32::<5>(codes);
                let inside = _mm256_cmpgt_epi32(_mm256_set1_epi32(halves), at);
                let zeros = _mm256_setzero_si256();
                let words =
                    _mm256_mask_i32gather_epi32::<4>(zeros, bits.as_ptr().cast(), at, inside);
                let low = _mm256_and_si256(codes, _mm256_set1_epi32(31));
                let bit = _mm256_slli_epi32::<31>(_mm256_srlv_epi32(words, low));
                _mm256_movemask_ps(_mm256_castsi256_ps(bit))
            };
            mask |= u64::from(hits as u8) << (8 * nth);
        }
        mask
    }

    #[inline(always)]
    fn deposit(self, bits: u64, mask: u64) -> u64 {
        // SAFETY: the machine has BMI2, since there is a value of this type.
        unsafe { std::arch::x86_64::_pdep_u64(bits, mask) }
    }
}

/// Made by `dispatch` alone, on machines that have AVX-512 with the parts it enables.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
struct Avx512(());

#[cfg(target_arch = "x86_64")]
impl Simd for Avx512 {
    #[inline(always)]
    fn bits_of(self, hits: &[u8; 64]) -> u64 {
        use std::arch::x86_64::{_mm512_loadu_si512, _mm512_test_epi8_mask};
        // SAFETY: the machine has AVX-512 F and BW, since there is a value of this type; 64
        // bytes are read from an array of 64.
        unsafe {
            let bytes = _mm512_loadu_si512(hits.as_ptr().cast());
            _mm512_test_epi8_mask(bytes, bytes)
        }
    }

    #[inline(always)]
    fn are_members(self, codes: &[u32; 64], bits: &[u64]) -> u64 {
        use std::arch::x86_64::{
            _mm512_and_si512, _mm512_cmplt_epu32_mask, _mm512_loadu_si512,
            _mm512_mask_i32gather_epi32, _mm512_set1_epi32, _mm512_setzero_si512,
            _mm512_sllv_epi32, _mm512_srli_epi32, _mm512_test_epi32_mask,
        };
        // Half words: with the five low bits gone, a code's is below 2^27.
        let halves = i32::try_from(bits.len() * 2).unwrap_or(i32::MAX);
        let mut mask = 0;
        for (nth, codes) in codes.as_chunks::<16>().0.iter().enumerate() {
            // SAFETY: the machine has AVX-512 F, since there is a value of this type; 64 bytes
            // are read from an array of 64. Half words are gathered from the bits where they are
            // fewer than there are: their order in memory is that of their bits.
            let hits = unsafe {
                let codes = _mm512_loadu_si512(codes.as_ptr().cast());
                let at = _mm512_srli_epi32::<5>(codes);
                let inside = _mm512_cmplt_epu32_mask(at, _mm512_set1_epi32(halves));
                let zeros = _mm512_setzero_si512();
                let words =
                    _mm512_mask_i32gather_epi32::<4>(zeros, inside, at, bits.as_ptr().cast());
                let low = _mm512_and_si512(codes, _mm512_set1_epi32(31));
                let bit = _mm512_sllv_epi32(_mm512_set1_epi32(1), low);
                _mm512_test_epi32_mask(words, bit)
            };
            mask |= u64::from(hits) << (16 * nth);
        }
        mask
    }

    #[inline(always)]
    fn deposit(self, bits: u64, mask: u64) -> u64 {
        // SAFETY: the machine has BMI2, since there is a value of this type.
        unsafe { std::arch::x86_64::_pdep_u64(bits, mask) }
    }

    #[inline(always)]
    fn in_set(self, codes: &[u8; 64], set: &[u8; 32]) -> u64 {
        use std::arch::x86_64::{
            _mm256_loadu_si256, _mm512_and_si512, _mm512_broadcast_i64x4, _mm512_loadu_si512,
            _mm512_permutexvar_epi8, _mm512_set1_epi8, _mm512_set1_epi64, _mm512_shuffle_epi8,
            _mm512_srli_epi16, _mm512_test_epi8_mask,
        };
        // SAFETY: the machine has AVX-512 F, BW and VBMI, since there is a value of this type;
        // 64 bytes are read from an array of 64 and 32 from one of 32.
        unsafe {
            let codes = _mm512_loadu_si512(codes.as_ptr().cast());
            let set = _mm512_broadcast_i64x4(_mm256_loadu_si256(set.as_ptr().cast()));
            // The byte that has a code's bit, and the bit.
            let at = _mm512_and_si512(_mm512_srli_epi16::<3>(codes), _mm512_set1_epi8(31));
            let bytes = _mm512_permutexvar_epi8(at, set);
            let low = _mm512_and_si512(codes, _mm512_set1_epi8(7));
            let powers = _mm512_set1_epi64(0x8040_2010_0804_0201_u64 as i64);
            _mm512_test_epi8_mask(bytes, _mm512_shuffle_epi8(powers, low))
        }
    }

    #[inline(always)]
    fn in_small_set(self, codes: &[u16; 64], set: &[u16; 256]) -> u64 {
        use std::arch::x86_64::{
            _mm512_and_si512, _mm512_cmplt_epu16_mask, _mm512_loadu_si512, _mm512_mask_blend_epi16,
            _mm512_mask_test_epi16_mask, _mm512_permutex2var_epi16, _mm512_set1_epi16,
            _mm512_sllv_epi16, _mm512_srli_epi16, _mm512_test_epi16_mask,
        };
        let (pairs, _) = set.as_chunks::<64>();
        let mut mask = 0;
        for (nth, codes) in codes.as_chunks::<32>().0.iter().enumerate() {
            // SAFETY: the machine has AVX-512 F and BW, since there is a value of this type; 64
            // bytes are read from an array of 64, and twice 64 from each of 128.
            let hits = unsafe {
                let codes = _mm512_loadu_si512(codes.as_ptr().cast());
                // Six bits of a code's word choose one of 64, two more which 64.
                let at = _mm512_srli_epi16::<4>(codes);
                let word = |pair: &[u16; 64]| {
                    let low = _mm512_loadu_si512(pair.as_ptr().cast());
                    let high = _mm512_loadu_si512(pair.as_ptr().add(32).cast());
                    _mm512_permutex2var_epi16(low, at, high)
                };
                let second = _mm512_test_epi16_mask(codes, _mm512_set1_epi16(1 << 10));
                let upper = _mm512_test_epi16_mask(codes, _mm512_set1_epi16(1 << 11));
                let low = _mm512_mask_blend_epi16(second, word(&pairs[0]), word(&pairs[1]));
                let high = _mm512_mask_blend_epi16(second, word(&pairs[2]), word(&pairs[3]));
                let words = _mm512_mask_blend_epi16(upper, low, high);
                let bit = _mm512_and_si512(codes, _mm512_set1_epi16(15));
                let bit = _mm512_sllv_epi16(_mm512_set1_epi16(1), bit);
                let inside = _mm512_cmplt_epu16_mask(codes, _mm512_set1_epi16(1 << 12));
                _mm512_mask_test_epi16_mask(inside, words, bit)
            };
            mask |= u64::from(hits) << (32 * nth);
        }
        mask
    }

    #[inline(always)]
    fn push_rows(self, rows: &mut Vec<u32>, base: u32, mask: u64) {
        use std::arch::x86_64::{
            _mm512_add_epi32, _mm512_maskz_compress_epi32, _mm512_set1_epi32, _mm512_setr_epi32,
            _mm512_storeu_si512,
        };
        // Four groups of 16 numbers; a whole vector is stored for each, of which what is not
        // wanted is written over by the next.
        rows.reserve(64);
        let len = rows.len();
        let mut stored = 0;
        // SAFETY: the machine has AVX-512 F, since there is a value of this type. Before group
        // g at most 16·g numbers are stored, so its 16 end within the 64 reserved. The length
        // grows by the bits of the mask, and as many numbers are initialised.
        unsafe {
            let to = rows.as_mut_ptr().add(len);
            let first = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
            let mut numbers = _mm512_add_epi32(first, _mm512_set1_epi32(base as i32));
            for group in 0..4 {
                let bits = (mask >> (16 * group)) as u16;
                let wanted = _mm512_maskz_compress_epi32(bits, numbers);
                _mm512_storeu_si512(to.add(stored).cast(), wanted);
                stored += bits.count_ones() as usize;
                numbers = _mm512_add_epi32(numbers, _mm512_set1_epi32(16));
            }
            rows.set_len(len + stored);
        }
    }
}

/// 64 bytes of 0 or 1 as 64 bits: the multiplier moves byte i's bit to bit 56 + i, and
/// no two of the partial products meet, so nothing carries.
#[inline(always)]
pub(crate) fn bits_of(hits: &[u8; 64]) -> u64 {
    let (words, _) = hits.as_chunks::<8>();
    words.iter().enumerate().fold(0, |mask, (at, word)| {
        mask | (u64::from_le_bytes(*word).wrapping_mul(0x0102_0408_1020_4080) >> 56) << (8 * at)
    })
}

/// Appends `base + i` for each bit `i` of the mask.
pub(crate) fn push_rows(rows: &mut Vec<u32>, base: u32, mask: u64) {
    struct Push<'a>(&'a mut Vec<u32>, u32, u64);
    impl Kernel for Push<'_> {
        type Output = ();
        #[inline(always)]
        fn run<S: Simd>(self, simd: S) {
            simd.push_rows(self.0, self.1, self.2);
        }
    }
    dispatch(Push(rows, base, mask));
}

/// Asks for the cache line of an item that is read soon.
#[inline(always)]
pub(crate) fn prefetch<T>(items: &[T], at: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if let Some(item) = items.get(at) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 machine has the instruction, which is a hint and reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(item).cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (items, at);
}

#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Baseline,
    Avx2,
    Avx512,
}

/// The best of the compiled versions that this machine runs. What it is asked for is
/// exactly what the functions enable.
#[cfg(target_arch = "x86_64")]
#[inline]
fn level() -> Level {
    // One load in place of one for each instruction set.
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(|| {
        let common = is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("popcnt");
        if common
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vbmi")
        {
            Level::Avx512
        } else if common && is_x86_feature_detected!("avx2") {
            Level::Avx2
        } else {
            Level::Baseline
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Random;

    /// What every method says of the same input.
    struct All<'a> {
        hits: &'a [u8; 64],
        codes: &'a [u8; 64],
        set: &'a [u8; 32],
        words: &'a [u16; 64],
        small_set: &'a [u16; 256],
        members: &'a [u32; 64],
        bits: &'a [u64],
        mask: u64,
    }

    impl Kernel for All<'_> {
        type Output = (u64, u64, Vec<u32>, u64, u64, u64);
        fn run<S: Simd>(self, simd: S) -> Self::Output {
            let mut rows = vec![1, 2, 3];
            simd.push_rows(&mut rows, 1 << 20, self.mask);
            (
                simd.bits_of(self.hits),
                simd.in_set(self.codes, self.set),
                rows,
                simd.deposit(0x1234_5678_9ABC_DEF0, self.mask),
                simd.are_members(self.members, self.bits),
                simd.in_small_set(self.words, self.small_set),
            )
        }
    }

    #[test]
    fn the_machines_version_says_what_the_plain_one_says() {
        let mut random = Random(9);
        for _ in 0..if cfg!(miri) { 5 } else { 200 } {
            let hits = std::array::from_fn(|_| random.below(2) as u8);
            let codes = std::array::from_fn(|_| random.next() as u8);
            let set = std::array::from_fn(|_| random.next() as u8);
            let mask = random.next() & random.next() | random.pick(&[0, 0, u64::MAX]);
            let small_set = std::array::from_fn(|_| random.next() as u16);
            let words = std::array::from_fn(|_| match random.below(9) {
                0 => random.next() as u16,
                _ => random.below(4200) as u16,
            });
            let bits: Vec<u64> = (0..random.below(40)).map(|_| random.next()).collect();
            let members = std::array::from_fn(|_| match random.below(9) {
                0 => random.next() as u32,
                _ => random.below(2600) as u32,
            });
            let all = || All {
                words: &words,
                small_set: &small_set,
                members: &members,
                bits: &bits,
                hits: &hits,
                codes: &codes,
                set: &set,
                mask,
            };
            let best = dispatch(all());
            assert_eq!(best, all().run(Baseline));
            let bit = |at: usize| u64::from(hits[at]) << at;
            assert_eq!(best.0, (0..64).map(bit).sum::<u64>());
            let has = |code: u8| set[usize::from(code / 8)] >> (code % 8) & 1 == 1;
            assert!((0..64).all(|at| best.1 >> at & 1 == u64::from(has(codes[at]))));
            let is_in = |code: u16| {
                let word = small_set.get(usize::from(code / 16));
                word.is_some_and(|word| word >> (code % 16) & 1 == 1)
            };
            assert!((0..64).all(|at| best.5 >> at & 1 == u64::from(is_in(words[at]))));
            let is_member = |code: u32| {
                let word = bits.get(code as usize / 64);
                word.is_some_and(|word| word >> (code % 64) & 1 == 1)
            };
            assert!((0..64).all(|at| best.4 >> at & 1 == u64::from(is_member(members[at]))));
            let rows = (0..64u32).filter(|at| mask >> at & 1 == 1);
            assert!(
                best.2[3..]
                    .iter()
                    .copied()
                    .eq(rows.map(|at| (1 << 20) + at))
            );
        }
    }
}
