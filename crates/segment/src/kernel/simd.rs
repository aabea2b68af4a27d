//! Loops that are compiled several times, for the baseline, AVX2 and AVX-512, and the few
//! instructions that the compiler does not find by itself. The machine decides which version
//! runs.
//!
//! A loop is a [`Kernel`]: plain code, generic over the operations of [`Simd`]. A value of a
//! `Simd` type exists only where the machine has the instructions, so its methods are safe to
//! call.

#[cfg(target_arch = "x86_64")]
use std::{
    arch::x86_64::{__m128i, __m512i},
    sync::OnceLock,
};

use crate::kernel::plain::Plain;

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

    /// Which of 64 codes are in a set of 1,024, 2,048 or 4,096 bits; codes beyond are not.
    #[inline(always)]
    fn in_small_set(self, codes: &[u16; 64], set: &[u16]) -> u64 {
        let mut hits = [0u8; 64];
        for (hit, &code) in hits.iter_mut().zip(codes) {
            let word = set.get(usize::from(code / 16)).copied().unwrap_or(0);
            *hit = (word >> (code % 16) & 1) as u8;
        }
        self.bits_of(&hits)
    }

    /// Which of at most 64 codes, sixteen or a multiple of it, have their bit set; codes beyond
    /// the bits have none.
    #[inline(always)]
    fn are_members(self, codes: &[u32], bits: &[u64]) -> u64 {
        let mut hits = [0u8; 64];
        for (hit, &code) in hits.iter_mut().zip(codes) {
            let word = bits.get(code as usize / 64).copied().unwrap_or(0);
            *hit = (word >> (code % 64) & 1) as u8;
        }
        self.bits_of(&hits)
    }

    /// Keeps the items whose bit is set, of words of 64 bits.
    #[inline(always)]
    fn keep_rows(self, rows: &mut Vec<u32>, hits: &[u64]) {
        let mut kept = 0;
        for at in 0..rows.len() {
            rows[kept] = rows[at];
            kept += (hits[at / 64] >> (at % 64) & 1) as usize;
        }
        rows.truncate(kept);
    }

    /// Reads codes of the first rows from packed ones ([`frozen::pack`](crate::frozen)), of lanes of
    /// at most 32 bits, as many as `codes` takes; `false` where there are no instructions for it,
    /// and nothing is read. The memory of the codes of rows behind is asked for.
    ///
    /// # Panics
    /// At a row beyond the lanes.
    #[inline(always)]
    fn pick<L: Plain>(self, lanes: &[L], width: u32, rows: &[u32], codes: &mut [u32]) -> bool {
        let _ = (lanes, width, rows, codes);
        false
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
        #[target_feature(
            enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vbmi2,avx512vpopcntdq,bmi1,bmi2,popcnt"
        )]
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
    fn are_members(self, codes: &[u32], bits: &[u64]) -> u64 {
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
    fn are_members(self, codes: &[u32], bits: &[u64]) -> u64 {
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
    fn keep_rows(self, rows: &mut Vec<u32>, hits: &[u64]) {
        use std::arch::x86_64::{
            _mm512_mask_storeu_epi32, _mm512_maskz_compress_epi32, _mm512_maskz_loadu_epi32,
        };
        let mut kept = 0;
        for first in (0..rows.len()).step_by(16) {
            let all = u16::MAX >> (16 - (rows.len() - first).min(16));
            let hits = (hits[first / 64] >> (first % 64)) as u16 & all;
            // SAFETY: the machine has AVX-512 F, since there is a value of this type. As many
            // items are loaded as there are, 16 at most, and no more stored, from `kept` on, which
            // is not beyond `first`.
            unsafe {
                let base = rows.as_mut_ptr().cast::<i32>();
                let items = _mm512_maskz_loadu_epi32(all, base.add(first));
                let wanted = _mm512_maskz_compress_epi32(hits, items);
                _mm512_mask_storeu_epi32(base.add(kept), all, wanted);
            }
            kept += hits.count_ones() as usize;
        }
        rows.truncate(kept);
    }

    #[inline(always)]
    fn pick<L: Plain>(self, lanes: &[L], width: u32, rows: &[u32], codes: &mut [u32]) -> bool {
        let lane_bits = 8 * size_of::<L>() as u32;
        let words = i32::try_from(size_of_val(lanes) / 4);
        let (Ok(words), true) = (words, lane_bits <= 32) else {
            return false;
        };
        let packed = PackedLanes {
            base: lanes.as_ptr().cast(),
            words: words as u32,
            lane_bits,
            width,
        };
        let wanted = rows.len().min(codes.len());
        for first in (0..wanted).step_by(16) {
            if first + 64 < rows.len() {
                let ahead = &rows[first + 64..];
                // SAFETY: the machine has AVX-512 F, since there is a value of this type.
                unsafe { packed.prefetch(ahead) };
            }
            let len = (wanted - first).min(16);
            let (rows, codes) = (&rows[first..first + len], &mut codes[first..first + len]);
            // SAFETY: the machine has AVX-512 F, since there is a value of this type, and the
            // words are those of the lanes, which take every bit pattern.
            unsafe { packed.pick(rows, codes) };
        }
        true
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
    fn in_small_set(self, codes: &[u16; 64], set: &[u16]) -> u64 {
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
                let has = |bit: i16| _mm512_test_epi16_mask(codes, _mm512_set1_epi16(bit));
                let words = match pairs {
                    [only] => word(only),
                    [low, high] => _mm512_mask_blend_epi16(has(1 << 10), word(low), word(high)),
                    [first, second, third, fourth] => {
                        let odd = has(1 << 10);
                        let low = _mm512_mask_blend_epi16(odd, word(first), word(second));
                        let high = _mm512_mask_blend_epi16(odd, word(third), word(fourth));
                        _mm512_mask_blend_epi16(has(1 << 11), low, high)
                    }
                    _ => unreachable!("sets have one, two or four times 1,024 bits"),
                };
                let bit = _mm512_and_si512(codes, _mm512_set1_epi16(15));
                let bit = _mm512_sllv_epi16(_mm512_set1_epi16(1), bit);
                let end = (16 * set.len()) as i16;
                let inside = _mm512_cmplt_epu16_mask(codes, _mm512_set1_epi16(end));
                _mm512_mask_test_epi16_mask(inside, words, bit)
            };
            mask |= u64::from(hits) << (32 * nth);
        }
        mask
    }

    #[inline(always)]
    fn push_rows(self, rows: &mut Vec<u32>, base: u32, mask: u64) {
        use std::arch::x86_64::{
            _mm512_extracti32x4_epi32, _mm512_loadu_si512, _mm512_maskz_compress_epi8,
            _mm512_set1_epi32,
        };
        const NUMBERS: [u8; 64] = {
            let (mut numbers, mut at) = ([0; 64], 0);
            while at < 64 {
                numbers[at] = at as u8;
                at += 1;
            }
            numbers
        };
        rows.reserve(64);
        let (len, count) = (rows.len(), mask.count_ones() as usize);
        // SAFETY: the machine has AVX-512 F and VBMI2, since there is a value of this type. Four
        // times 16 numbers at most are stored within the 64 that are reserved. The length grows
        // by the bits of the mask, and at least as many numbers are initialised.
        unsafe {
            let to = rows.as_mut_ptr().add(len);
            let numbers = _mm512_loadu_si512(NUMBERS.as_ptr().cast());
            let wanted = _mm512_maskz_compress_epi8(mask, numbers);
            let base = _mm512_set1_epi32(base as i32);
            store_numbers(to, _mm512_extracti32x4_epi32::<0>(wanted), base);
            if count > 16 {
                store_numbers(to.add(16), _mm512_extracti32x4_epi32::<1>(wanted), base);
                store_numbers(to.add(32), _mm512_extracti32x4_epi32::<2>(wanted), base);
                store_numbers(to.add(48), _mm512_extracti32x4_epi32::<3>(wanted), base);
            }
            rows.set_len(len + count);
        }
    }
}

/// Stores 16 bytes as numbers, each added to a base.
///
/// # Safety
/// The machine has AVX-512 F, and 16 numbers can be stored.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn store_numbers(to: *mut u32, bytes: __m128i, base: __m512i) {
    use std::arch::x86_64::{_mm512_add_epi32, _mm512_cvtepu8_epi32, _mm512_storeu_si512};
    // SAFETY: as the caller says.
    unsafe {
        let numbers = _mm512_add_epi32(_mm512_cvtepu8_epi32(bytes), base);
        _mm512_storeu_si512(to.cast(), numbers);
    }
}

/// Packed codes in lanes of 8, 16 or 32 bits, as words of 32 bits.
#[cfg(target_arch = "x86_64")]
struct PackedLanes {
    base: *const i32,
    /// Whole lines of 16.
    words: u32,
    lane_bits: u32,
    width: u32,
}

#[cfg(target_arch = "x86_64")]
impl PackedLanes {
    /// Where the codes of the first 16 rows begin (as `frozen::pack` lays them out): in which
    /// word, which has one lane or several, behind how many of its bits the lane begins, and
    /// behind how many of the lane's the code. Of rows that there are not, that of row 0.
    ///
    /// # Safety
    /// The machine has AVX-512 F.
    #[inline(always)]
    unsafe fn places(&self, rows: &[u32]) -> [__m512i; 3] {
        use std::arch::x86_64::{
            _mm512_add_epi32, _mm512_and_si512, _mm512_maskz_loadu_epi32, _mm512_mullo_epi32,
            _mm512_set1_epi32, _mm512_slli_epi32, _mm512_sllv_epi32, _mm512_srli_epi32,
            _mm512_srlv_epi32,
        };
        let lanes = 512 / self.lane_bits;
        let all = ((1u32 << rows.len().min(16)) - 1) as u16;
        // SAFETY: the caller's machine has the instructions; as many rows are loaded as there are,
        // 16 at most.
        unsafe {
            let width = _mm512_set1_epi32(self.width as i32);
            let lane_bits_log = _mm512_set1_epi32(self.lane_bits.ilog2() as i32);
            let lanes_log = _mm512_set1_epi32(lanes.ilog2() as i32);
            let row = _mm512_maskz_loadu_epi32(all, rows.as_ptr().cast());
            let nth = _mm512_and_si512(row, _mm512_set1_epi32(511));
            let bit = _mm512_mullo_epi32(_mm512_srlv_epi32(nth, lanes_log), width);
            let block = _mm512_mullo_epi32(_mm512_srli_epi32::<9>(row), width);
            let line = _mm512_add_epi32(block, _mm512_srlv_epi32(bit, lane_bits_log));
            let lane = _mm512_and_si512(row, _mm512_set1_epi32(lanes as i32 - 1));
            let before = _mm512_sllv_epi32(lane, lane_bits_log);
            let word = _mm512_slli_epi32::<4>(line);
            let word = _mm512_add_epi32(word, _mm512_srli_epi32::<5>(before));
            let shift = _mm512_and_si512(bit, _mm512_set1_epi32(self.lane_bits as i32 - 1));
            [word, _mm512_and_si512(before, _mm512_set1_epi32(31)), shift]
        }
    }

    /// Asks for the words of the first 16 rows.
    ///
    /// # Safety
    /// As of `places`.
    #[inline(always)]
    unsafe fn prefetch(&self, rows: &[u32]) {
        use std::arch::x86_64::_mm512_storeu_si512;
        let mut words = [0u32; 16];
        // SAFETY: the caller's machine has the instructions; 64 bytes are stored to 64.
        unsafe {
            let [word, ..] = self.places(rows);
            _mm512_storeu_si512(words.as_mut_ptr().cast(), word);
        }
        for word in words {
            hint(self.base.wrapping_add(word as usize));
        }
    }

    /// The codes of at most 16 rows, for as many codes.
    ///
    /// # Safety
    /// As of `places`, and `words` words can be read from `base` on.
    #[inline(always)]
    unsafe fn pick(&self, rows: &[u32], codes: &mut [u32]) {
        use std::arch::x86_64::{
            _mm512_add_epi32, _mm512_and_si512, _mm512_cmplt_epu32_mask, _mm512_i32gather_epi32,
            _mm512_mask_storeu_epi32, _mm512_min_epu32, _mm512_or_si512, _mm512_set1_epi32,
            _mm512_slli_epi32, _mm512_sllv_epi32, _mm512_srlv_epi32, _mm512_sub_epi32,
        };
        let all = ((1u32 << codes.len().min(16)) - 1) as u16;
        let of_lane = u32::MAX >> (32 - self.lane_bits);
        let of_code = u32::MAX.checked_shr(32 - self.width).unwrap_or(0);
        // SAFETY: the caller's machine has the instructions. All words that are gathered there
        // are: their numbers are compared with how many there are, or are less than that. As many
        // codes are stored as there are, 16 at most.
        unsafe {
            let [word, before, shift] = self.places(rows);
            let of_lane = _mm512_set1_epi32(of_lane as i32);
            let inside = _mm512_cmplt_epu32_mask(word, _mm512_set1_epi32(self.words as i32));
            assert!(inside == u16::MAX, "rows are of the lanes");
            let low = _mm512_srlv_epi32(_mm512_i32gather_epi32::<4>(word, self.base), before);
            let mut code = _mm512_srlv_epi32(_mm512_and_si512(low, of_lane), shift);
            if !self.lane_bits.is_multiple_of(self.width) {
                // Where nothing crosses, what the next line shifts in is cut off by the mask.
                let next = _mm512_add_epi32(word, _mm512_set1_epi32(16));
                let next = _mm512_min_epu32(next, _mm512_set1_epi32(self.words as i32 - 1));
                let high = _mm512_srlv_epi32(_mm512_i32gather_epi32::<4>(next, self.base), before);
                let twice = _mm512_slli_epi32::<1>(_mm512_and_si512(high, of_lane));
                let up = _mm512_set1_epi32(self.lane_bits as i32 - 1);
                let crossing = _mm512_sllv_epi32(twice, _mm512_sub_epi32(up, shift));
                code = _mm512_or_si512(code, crossing);
            }
            let code = _mm512_and_si512(code, _mm512_set1_epi32(of_code as i32));
            _mm512_mask_storeu_epi32(codes.as_mut_ptr().cast(), all, code);
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

/// Keeps the items whose bit is set, of words of 64 bits.
pub(crate) fn keep_rows(rows: &mut Vec<u32>, hits: &[u64]) {
    struct Keep<'a>(&'a mut Vec<u32>, &'a [u64]);
    impl Kernel for Keep<'_> {
        type Output = ();
        #[inline(always)]
        fn run<S: Simd>(self, simd: S) {
            simd.keep_rows(self.0, self.1);
        }
    }
    dispatch(Keep(rows, hits));
}

/// Asks for the cache line of an item that is read soon.
#[inline(always)]
pub(crate) fn prefetch<T>(items: &[T], at: usize) {
    if let Some(item) = items.get(at) {
        hint(item);
    }
}

/// Asks for the cache line so many bytes behind an item, be there one or not.
#[inline(always)]
pub(crate) fn prefetch_ahead<T>(items: &[T], at: usize, bytes: usize) {
    hint(items.as_ptr().wrapping_add(at).wrapping_byte_add(bytes));
}

/// Asks for a cache line, if there is one.
#[inline(always)]
fn hint<T>(at: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 machine has the instruction, which is a hint and reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
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
            && is_x86_feature_detected!("avx512vbmi2")
            && is_x86_feature_detected!("avx512vpopcntdq")
        {
            Level::Avx512
        } else if common && is_x86_feature_detected!("avx2") {
            Level::Avx2
        } else {
            Level::Baseline
        }
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::model::Random;

    /// What every method says of the same input.
    struct All<'a> {
        hits: &'a [u8; 64],
        codes: &'a [u8; 64],
        set: &'a [u8; 32],
        words: &'a [u16; 64],
        small_set: &'a [u16],
        members: &'a [u32; 64],
        bits: &'a [u64],
        mask: u64,
    }

    impl Kernel for All<'_> {
        type Output = (u64, u64, Vec<u32>, u64, u64, u64, Vec<u32>);
        fn run<S: Simd>(self, simd: S) -> Self::Output {
            let mut rows = vec![1, 2, 3];
            simd.push_rows(&mut rows, 1 << 20, self.mask);
            let mut kept: Vec<u32> = (7..7 + 70 + self.mask.count_ones()).collect();
            simd.keep_rows(&mut kept, &[self.mask, !self.mask, self.mask]);
            (
                simd.bits_of(self.hits),
                simd.in_set(self.codes, self.set),
                rows,
                simd.deposit(0x1234_5678_9ABC_DEF0, self.mask),
                simd.are_members(self.members, self.bits),
                simd.in_small_set(self.words, self.small_set),
                kept,
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
            let small_set: Vec<u16> = (0..random.pick(&[64, 128, 256]))
                .map(|_| random.next() as u16)
                .collect();
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
            let is_kept = |at: &u32| {
                let word = [mask, !mask, mask][*at as usize / 64];
                word >> (at % 64) & 1 == 1
            };
            let kept = (0..70 + mask.count_ones()).filter(is_kept);
            assert!(best.6.iter().copied().eq(kept.map(|at| at + 7)));
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
