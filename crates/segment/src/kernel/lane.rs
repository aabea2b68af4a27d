//! Lanes: the unsigned integers into which codes are packed bit by bit, in an order that suits
//! vector instructions.
//!
//! Codes come in blocks of 512, of a fixed width in bits. A block is a stream of 512-bit lines,
//! one cache line each; a block of width `w` is exactly `w` lines. A line is divided into lanes
//! of 8, 16, 32 or 64 bits: the narrowest that the width fits. Code `i` of the block belongs to
//! lane `i mod lanes`, and the codes of a lane follow one another in the lane's own stream of
//! bits:
//!
//! ```text
//!  width 12, 16-bit lanes     lane 0             lane 1             … lane 31
//!  line 0                     │c32▯▯▯▯│   c0  │  │c33▯▯▯▯│   c1  │    │…│  c31 │
//!  line 1                     │ c64 ▯▯│▯▯ c32 │  │ c65 ▯▯│▯▯ c33 │    …
//! ```
//!
//! So a whole line of neighbouring codes is unpacked with one shift, or two where the codes cross
//! into the next line, the same for all lanes, and comes out in row order. The width is a
//! run-time number: shifts by a register are as fast as shifts by a constant, and there is one
//! kernel per lane size instead of one per width. Narrow codes stay in narrow lanes, so
//! byte-packed codes are not needed beside the bit-packed ones: with 8 bits this layout *is*
//! bytes.
//!
//! The loops here are plain, and are compiled for each kind of machine where a kernel calls them
//! (`simd`).

use std::ops::{BitAnd, BitOr, Shl, Shr};

use crate::kernel::plain::Plain;

/// Codes of a block: the bits of a cache line, so that a block of width `w` has `w` of them.
pub(crate) const BLOCK_CODES: usize = 512;

/// Bytes of a line.
pub(crate) const LINE_BYTES: usize = 64;

/// A lane: an unsigned integer that codes are packed into.
pub(crate) trait Lane:
    Plain
    + Default
    + Ord
    + Into<u64>
    + Shl<u32, Output = Self>
    + Shr<u32, Output = Self>
    + BitAnd<Output = Self>
    + BitOr<Output = Self>
{
    /// Its bits.
    const BITS: u32;
    /// Lanes of a line.
    const LANES: usize = BLOCK_CODES / Self::BITS as usize;
    /// The low bits of a number.
    fn low(value: u64) -> Self;
    fn wrapping_sub(self, other: Self) -> Self;
    /// Codes as what they are.
    fn narrow(codes: &[Self; BLOCK_CODES]) -> Narrow<'_>;
    /// Unpacks the lines of one block.
    fn unpack(lanes: &[Self], width: u32, codes: &mut [Self; BLOCK_CODES]);
    /// Packs a block into lines of zeros.
    fn pack(codes: &[Self; BLOCK_CODES], width: u32, lines: &mut [u8]);
}

/// The codes of a block, for what there is for narrow ones alone.
pub(crate) enum Narrow<'a> {
    Bytes(&'a [u8; BLOCK_CODES]),
    Words(&'a [u16; BLOCK_CODES]),
    /// Wider.
    None,
}

macro_rules! lane {
    ($ty:ty, $narrow:expr) => {
        impl Lane for $ty {
            const BITS: u32 = <$ty>::BITS;
            #[inline(always)]
            fn low(value: u64) -> $ty {
                value as $ty
            }
            #[inline(always)]
            fn wrapping_sub(self, other: $ty) -> $ty {
                <$ty>::wrapping_sub(self, other)
            }
            #[inline(always)]
            fn narrow(codes: &[$ty; BLOCK_CODES]) -> Narrow<'_> {
                $narrow(codes)
            }
            #[inline(always)]
            fn unpack(lanes: &[$ty], width: u32, codes: &mut [$ty; BLOCK_CODES]) {
                // Lines of a known length: each is one vector.
                const LANES: usize = <$ty as Lane>::LANES;
                let (lines, _) = lanes.as_chunks::<LANES>();
                let ones = mask(width) as $ty;
                for (nth, out) in codes.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                    let bit = nth as u32 * width;
                    let (line, shift) = ((bit / <$ty>::BITS) as usize, bit % <$ty>::BITS);
                    // Where nothing crosses, what the next line shifts in is cut off by the mask.
                    let next = (line + 1).min(width as usize - 1);
                    let (low, high) = (&lines[line], &lines[next]);
                    // Made before it is stored: a store could else change what is still to be read.
                    let mut unpacked = [0; LANES];
                    for ((code, &low), &high) in unpacked.iter_mut().zip(low).zip(high) {
                        let crossing = (high << 1) << (<$ty>::BITS - 1 - shift);
                        *code = (low >> shift | crossing) & ones;
                    }
                    *out = unpacked;
                }
            }
            #[inline(always)]
            fn pack(codes: &[$ty; BLOCK_CODES], width: u32, lines: &mut [u8]) {
                const LANES: usize = <$ty as Lane>::LANES;
                let mut packed = [[0; LANES]; <$ty>::BITS as usize];
                for (nth, codes) in codes.as_chunks::<LANES>().0.iter().enumerate() {
                    let bit = nth as u32 * width;
                    let (line, shift) = ((bit / <$ty>::BITS) as usize, bit % <$ty>::BITS);
                    for (to, &code) in packed[line].iter_mut().zip(codes) {
                        *to |= code << shift;
                    }
                    if shift + width > <$ty>::BITS {
                        for (to, &code) in packed[line + 1].iter_mut().zip(codes) {
                            *to = code >> (<$ty>::BITS - shift);
                        }
                    }
                }
                let (to, _) = lines.as_chunks_mut::<{ size_of::<$ty>() }>();
                for (to, lane) in to.iter_mut().zip(packed.as_flattened()) {
                    *to = lane.to_le_bytes();
                }
            }
        }
    };
}
lane!(u8, Narrow::Bytes);
lane!(u16, Narrow::Words);
lane!(u32, |_| Narrow::None);
lane!(u64, |_| Narrow::None);

/// Bits that are needed for codes up to `max`.
pub(crate) fn width_of(max: u64) -> u32 {
    u64::BITS - max.leading_zeros()
}

/// Bytes of `len` packed codes.
pub(crate) fn packed_bytes(len: usize, width: u32) -> usize {
    len.div_ceil(BLOCK_CODES) * width as usize * LINE_BYTES
}

/// All ones in the low `width` bits.
pub(crate) fn mask(width: u32) -> u64 {
    u64::MAX.checked_shr(u64::BITS - width).unwrap_or(0)
}
