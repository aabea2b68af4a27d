//! Bit-packed codes: blocks of lanes (`lane` draws them) that are packed, unpacked, read one by
//! one and tested.
//!
//! The kernels are plain loops, compiled for each kind of machine by `simd`.

use crate::{
    frozen::lanes::{LaneVec, with_lanes},
    input::condition::{Masks, Test},
    kernel::{
        lane::{BLOCK_CODES, LINE_BYTES, Lane, mask, packed_bytes},
        simd::{self, Kernel, Simd},
    },
};

/// How far ahead the lines of the next blocks are asked for: a page, for the machine itself does
/// not look beyond the one that it is in.
pub(crate) const AHEAD_BYTES: usize = 4096;

/// From so many rows per block on, blocks are unpacked: that costs as much as so many codes
/// one by one.
const UNPACK_ROWS_MIN: usize = 24;

/// Packs codes that have at most `width` bits.
pub(crate) fn pack(codes: &LaneVec, width: u32) -> Vec<u8> {
    if width == 0 {
        return Vec::new();
    }
    with_lanes!(codes, codes => pack_lanes(codes, width))
}

fn pack_lanes<L: Lane>(codes: &[L], width: u32) -> Vec<u8> {
    debug_assert!(codes.iter().all(|&code| code.into() <= mask(width)));
    let mut bytes = vec![0; packed_bytes(codes.len(), width)];
    let mut last = [L::default(); BLOCK_CODES];
    for (codes, bytes) in codes
        .chunks(BLOCK_CODES)
        .zip(bytes.chunks_exact_mut(width as usize * LINE_BYTES))
    {
        let codes = match codes.try_into() {
            Ok(codes) => codes,
            Err(_) => {
                last[..codes.len()].copy_from_slice(codes);
                &last
            }
        };
        simd::dispatch(Pack {
            codes,
            width,
            bytes,
        });
    }
    bytes
}

/// Packs a block.
struct Pack<'a, L> {
    codes: &'a [L; BLOCK_CODES],
    width: u32,
    bytes: &'a mut [u8],
}

impl<L: Lane> Kernel for Pack<'_, L> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        L::pack(self.codes, self.width, self.bytes);
    }
}

/// Where a code begins.
struct CodePosition {
    /// Position among all lanes.
    lane: usize,
    /// The code's lowest bit within it.
    shift: u32,
}

impl CodePosition {
    #[inline(always)]
    fn of<L: Lane>(at: usize, width: u32) -> CodePosition {
        let (block, within) = (at / BLOCK_CODES, at % BLOCK_CODES);
        let bit = (within / L::LANES) as u32 * width;
        let line = block * width as usize + (bit / L::BITS) as usize;
        CodePosition {
            lane: line * L::LANES + within % L::LANES,
            shift: bit % L::BITS,
        }
    }
}

/// Packed codes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed<'a> {
    width: u32,
    lanes: Lanes<'a>,
}

/// The lanes of packed codes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lanes<'a> {
    /// Of width 0 all codes are 0.
    None,
    U8(&'a [u8]),
    U16(&'a [u16]),
    U32(&'a [u32]),
    U64(&'a [u64]),
}

impl<'a> Packed<'a> {
    /// Of lanes that are as many as `width` asks for.
    pub(crate) fn new(width: u32, lanes: Lanes<'a>) -> Packed<'a> {
        Packed { width, lanes }
    }

    /// The code at a position.
    #[inline]
    pub(crate) fn get(&self, at: usize) -> u64 {
        match self.lanes {
            Lanes::None => 0,
            Lanes::U8(lanes) => get(lanes, self.width, at),
            Lanes::U16(lanes) => get(lanes, self.width, at),
            Lanes::U32(lanes) => get(lanes, self.width, at),
            Lanes::U64(lanes) => get(lanes, self.width, at),
        }
    }

    /// Asks for the memory that a code begins in.
    #[inline]
    pub(crate) fn prefetch(&self, at: usize) {
        match self.lanes {
            Lanes::None => {}
            Lanes::U8(lanes) => prefetch_lane(lanes, self.width, at),
            Lanes::U16(lanes) => prefetch_lane(lanes, self.width, at),
            Lanes::U32(lanes) => prefetch_lane(lanes, self.width, at),
            Lanes::U64(lanes) => prefetch_lane(lanes, self.width, at),
        }
    }

    /// Shows a whole block to the visitor.
    #[inline]
    pub(crate) fn visit<V: Visitor>(&self, block: usize, visitor: &mut V) {
        match self.lanes {
            Lanes::None => visitor.codes(&[0u8; BLOCK_CODES]),
            Lanes::U8(lanes) => visit(lanes, self.width, block, visitor),
            Lanes::U16(lanes) => visit(lanes, self.width, block, visitor),
            Lanes::U32(lanes) => visit(lanes, self.width, block, visitor),
            Lanes::U64(lanes) => visit(lanes, self.width, block, visitor),
        }
    }

    /// Shows the codes of rows in any order, 64 at a time, at the end the rest. Where many in a row
    /// are of one block, that is unpacked.
    pub(crate) fn pick(&self, rows: &[u32], out: &mut impl Decode) {
        match self.lanes {
            Lanes::None => in_parts(rows, out, |_| 0),
            Lanes::U8(lanes) => pick(lanes, self.width, rows, out),
            Lanes::U16(lanes) => pick(lanes, self.width, rows, out),
            Lanes::U32(lanes) => pick(lanes, self.width, rows, out),
            Lanes::U64(lanes) => pick(lanes, self.width, rows, out),
        }
    }

    /// Which codes of a block pass.
    pub(crate) fn masks(&self, block: usize, test: &Test, masks: &mut Masks) {
        match self.lanes {
            Lanes::None => masks.fill(if test.passes(0) { u64::MAX } else { 0 }),
            Lanes::U8(lanes) => self.lane_masks(lanes, block, test, masks),
            Lanes::U16(lanes) => self.lane_masks(lanes, block, test, masks),
            Lanes::U32(lanes) => self.lane_masks(lanes, block, test, masks),
            Lanes::U64(lanes) => self.lane_masks(lanes, block, test, masks),
        }
    }

    #[inline(always)]
    fn lane_masks<L: Lane>(&self, lanes: &[L], block: usize, test: &Test, masks: &mut Masks) {
        simd::dispatch(PackedMasks {
            lanes: block_of(lanes, self.width, block),
            width: self.width,
            test,
            masks,
        });
    }
}

/// What takes the codes of a block, in lanes as narrow as they are packed.
pub(crate) trait Visitor {
    fn codes<L: Lane>(&mut self, codes: &[L; BLOCK_CODES]);
}

/// What takes codes in order.
pub(crate) trait Decode {
    fn codes<L: Lane>(&mut self, codes: &[L]);
}

/// Shows what `get` says of each row, 64 at a time.
#[inline]
pub(crate) fn in_parts(rows: &[u32], out: &mut impl Decode, mut get: impl FnMut(usize) -> u64) {
    let mut codes = [0u64; 64];
    for part in rows.chunks(codes.len()) {
        for (code, &row) in codes.iter_mut().zip(part) {
            *code = get(row as usize);
        }
        out.codes(&codes[..part.len()]);
    }
}

#[inline(always)]
fn get<L: Lane>(lanes: &[L], width: u32, at: usize) -> u64 {
    let place = CodePosition::of::<L>(at, width);
    let low: u64 = lanes[place.lane].into() >> place.shift;
    let held = L::BITS - place.shift;
    if L::BITS < u64::BITS {
        // Whether a code crosses cannot be foreseen, so the next lane is read in any case. Where
        // nothing crosses, the mask cuts off what it adds.
        let next: u64 = lanes[(place.lane + L::LANES).min(lanes.len() - 1)].into();
        return (low | next << held) & mask(width);
    }
    let code = if held < width {
        let next: u64 = lanes[place.lane + L::LANES].into();
        low | next << held
    } else {
        low
    };
    code & mask(width)
}

#[inline(always)]
fn prefetch_lane<L: Lane>(lanes: &[L], width: u32, at: usize) {
    simd::prefetch(lanes, CodePosition::of::<L>(at, width).lane);
}

fn pick<L: Lane>(lanes: &[L], width: u32, rows: &[u32], out: &mut impl Decode) {
    if !are_dense(rows) {
        if pick_vectors(lanes, width, rows, out) {
            return;
        }
        // Each is on a line of its own, mostly: they are asked for before they are read.
        let mut ahead = rows.iter().skip(64);
        rows.iter()
            .take(64)
            .for_each(|&row| prefetch_lane(lanes, width, row as usize));
        return in_parts(rows, out, |row| {
            if let Some(&next) = ahead.next() {
                prefetch_lane(lanes, width, next as usize);
            }
            get(lanes, width, row)
        });
    }
    let (mut codes, mut picked) = ([L::default(); BLOCK_CODES], [L::default(); 64]);
    let mut known = usize::MAX;
    for part in rows.chunks(picked.len()) {
        for (code, &row) in picked.iter_mut().zip(part) {
            let block = row as usize / BLOCK_CODES;
            if block != known {
                unpack(block_of(lanes, width, block), width, &mut codes);
                known = block;
            }
            *code = codes[row as usize % BLOCK_CODES];
        }
        out.codes(&picked[..part.len()]);
    }
}

/// Shows the codes of rows by vector instructions, if the machine has some for it.
fn pick_vectors<L: Lane>(lanes: &[L], width: u32, rows: &[u32], out: &mut impl Decode) -> bool {
    let mut codes = [0u32; 64];
    for first in (0..rows.len()).step_by(codes.len()) {
        let rows = &rows[first..];
        let codes = &mut codes[..rows.len().min(64)];
        let is_done = simd::dispatch(PickLanes {
            lanes,
            width,
            rows,
            codes: &mut *codes,
        });
        if !is_done {
            return false;
        }
        out.codes(codes);
    }
    true
}

/// Reads codes of the first rows, as many as fit.
struct PickLanes<'a, L> {
    lanes: &'a [L],
    width: u32,
    rows: &'a [u32],
    codes: &'a mut [u32],
}

impl<L: Lane> Kernel for PickLanes<'_, L> {
    type Output = bool;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> bool {
        simd.pick(self.lanes, self.width, self.rows, self.codes)
    }
}

/// Whether there are so many rows per block that blocks are unpacked. Of rows in no order this
/// is a guess, which costs time at most.
pub(crate) fn are_dense(rows: &[u32]) -> bool {
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
        return false;
    };
    let span = last.abs_diff(*first) as usize + 1;
    rows.len() * BLOCK_CODES >= span.max(BLOCK_CODES) * UNPACK_ROWS_MIN
}

#[inline(always)]
fn visit<L: Lane, V: Visitor>(lanes: &[L], width: u32, block: usize, visitor: &mut V) {
    let mut codes = [L::default(); BLOCK_CODES];
    unpack(block_of(lanes, width, block), width, &mut codes);
    visitor.codes(&codes);
}

/// The lines of a block.
#[inline(always)]
fn block_of<L: Lane>(lanes: &[L], width: u32, block: usize) -> &[L] {
    let block_lanes = width as usize * L::LANES;
    &lanes[block * block_lanes..(block + 1) * block_lanes]
}

/// Unpacks one block, of `width` lines.
fn unpack<L: Lane>(lanes: &[L], width: u32, codes: &mut [L; BLOCK_CODES]) {
    struct Unpack<'a, L>(&'a [L], u32, &'a mut [L; BLOCK_CODES]);
    impl<L: Lane> Kernel for Unpack<'_, L> {
        type Output = ();
        #[inline(always)]
        fn run<S: Simd>(self, _: S) {
            L::unpack(self.0, self.1, self.2);
        }
    }
    simd::dispatch(Unpack(lanes, width, codes));
}

/// Unpacks a block and tests its codes.
struct PackedMasks<'a, L> {
    lanes: &'a [L],
    width: u32,
    test: &'a Test,
    masks: &'a mut Masks,
}

impl<L: Lane> Kernel for PackedMasks<'_, L> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for line in 0..self.width as usize {
            simd::prefetch_ahead(self.lanes, line * L::LANES, AHEAD_BYTES);
        }
        let mut codes = [L::default(); BLOCK_CODES];
        L::unpack(self.lanes, self.width, &mut codes);
        self.test.masks(simd, &codes, self.masks);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::model::Random;

    struct Collect(Vec<u64>);

    impl Visitor for Collect {
        fn codes<L: Lane>(&mut self, codes: &[L; BLOCK_CODES]) {
            Decode::codes(self, codes.as_slice());
        }
    }

    impl Decode for Collect {
        fn codes<L: Lane>(&mut self, codes: &[L]) {
            self.0.extend(codes.iter().map(|&code| code.into()));
        }
    }

    /// The lanes of packed bytes, copied to where they are aligned.
    fn check(bytes: &[u8], width: u32, codes: &[u64]) {
        let words = words_of(bytes);
        let (u16s, u32s): (Vec<u16>, Vec<u32>) = (lanes_of(&words), lanes_of(&words));
        let lanes = match width {
            0 => Lanes::None,
            1..=8 => Lanes::U8(bytes),
            9..=16 => Lanes::U16(&u16s),
            17..=32 => Lanes::U32(&u32s),
            _ => Lanes::U64(&words),
        };
        let packed = Packed::new(width, lanes);
        let mut all = Collect(Vec::new());
        for block in 0..codes.len().div_ceil(BLOCK_CODES) {
            packed.visit(block, &mut all);
        }
        assert_eq!(&all.0[..codes.len()], codes, "width {width}");
        for (at, &code) in codes.iter().enumerate() {
            assert_eq!(packed.get(at), code, "width {width}, code {at}");
        }
        // Few and many of a block, forwards and backwards.
        for step in [1, 7, 61] {
            let mut rows: Vec<u32> = (0..codes.len() as u32).step_by(step).collect();
            rows.extend((0..codes.len() as u32).rev().step_by(step + 2));
            let mut picked = Collect(Vec::new());
            packed.pick(&rows, &mut picked);
            assert!(
                picked
                    .0
                    .iter()
                    .eq(rows.iter().map(|&row| &codes[row as usize])),
                "width {width}"
            );
        }
    }

    #[test]
    fn few_of_many_blocks_are_picked() {
        let mut random = Random(9);
        let len = if cfg!(miri) { 9_000 } else { 20_000 };
        for width in (1..=64).step_by(if cfg!(miri) { 15 } else { 1 }) {
            let codes: Vec<u64> = (0..len).map(|_| random.next() & mask(width)).collect();
            let bytes = pack(&LaneVec::of(&codes, width, |code| code), width);
            let words = words_of(&bytes);
            let (u16s, u32s): (Vec<u16>, Vec<u32>) = (lanes_of(&words), lanes_of(&words));
            let lanes = match width {
                1..=8 => Lanes::U8(&bytes),
                9..=16 => Lanes::U16(&u16s),
                17..=32 => Lanes::U32(&u32s),
                _ => Lanes::U64(&words),
            };
            let packed = Packed::new(width, lanes);
            let up: Vec<u32> = (0..len as u32).rev().step_by(61).collect();
            let down: Vec<u32> = up.iter().rev().copied().collect();
            let one = vec![len as u32 - 1];
            for rows in [up, down, one] {
                assert!(!are_dense(&rows));
                let mut picked = Collect(Vec::new());
                packed.pick(&rows, &mut picked);
                let expected = rows.iter().map(|&row| codes[row as usize]);
                assert!(picked.0.iter().copied().eq(expected), "width {width}");
            }
        }
    }

    /// Bytes where they are aligned.
    fn words_of(bytes: &[u8]) -> Vec<u64> {
        let words = bytes.as_chunks().0.iter();
        words.map(|bytes| u64::from_le_bytes(*bytes)).collect()
    }

    /// Words taken apart to narrower lanes.
    fn lanes_of<L: Lane>(words: &[u64]) -> Vec<L> {
        let lane = |word: u64, at: u32| L::low(word >> (at * L::BITS));
        let lanes = |&word: &u64| (0..64 / L::BITS).map(move |at| lane(word, at));
        words.iter().flat_map(lanes).collect()
    }

    #[test]
    fn codes_of_every_width_come_back() {
        let mut random = Random(7);
        // Miri takes the edges of each lane's widths.
        let edges = [0, 1, 8, 9, 16, 17, 32, 33, 64];
        for width in (0..=64).filter(|width| !cfg!(miri) || edges.contains(width)) {
            let codes: Vec<u64> = (0..1100).map(|_| random.next() & mask(width)).collect();
            let bytes = pack(&LaneVec::of(&codes, width, |code| code), width);
            assert_eq!(bytes.len(), packed_bytes(codes.len(), width));
            check(&bytes, width, &codes);
        }
    }

    #[test]
    fn compiled_versions_agree() {
        let mut random = Random(8);
        for width in (1..=32).step_by(if cfg!(miri) { 5 } else { 1 }) {
            let codes: Vec<u32> = (0..width as usize * 16)
                .map(|_| random.next() as u32)
                .collect();
            let (mut one, mut other) = ([0; BLOCK_CODES], [0; BLOCK_CODES]);
            unpack(&codes, width, &mut one);
            u32::unpack(&codes, width, &mut other);
            assert_eq!(one, other);
        }
    }
}
