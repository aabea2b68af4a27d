//! An encoded attribute: the future contents of each of its areas, before the arena exists.

use std::collections::HashMap;

use crate::{
    format::header::ZONE_WORDS,
    frozen::{
        lanes::{LaneVec, Starts, with_lanes},
        pack::pack,
        plan::{AttributePlan, CodesAt, Descriptor, EncodingKind, offset_width},
    },
    kernel::lane::Lane,
};

/// The offset and bytes of an area, and what is to be there.
pub(crate) type Part = (usize, usize, Vec<u8>);

/// An attribute, encoded.
pub(crate) struct Encoded {
    pub(crate) descriptor: Descriptor,
    /// A code per row, or per run.
    pub(crate) codes: LaneVec,
    /// Where runs start, if there is a code for each.
    pub(crate) starts: Option<Starts>,
    /// A value per row, in the form of its slot.
    pub(crate) slots: Vec<u8>,
    pub(crate) values: Vec<u8>,
    pub(crate) offsets: Vec<u64>,
    pub(crate) heap: Vec<u8>,
    pub(crate) nulls: Vec<u64>,
    pub(crate) bloom: Vec<u8>,
    pub(crate) zones: Vec<[u64; ZONE_WORDS]>,
    /// Different values, if they have been counted.
    pub(crate) distinct: Option<usize>,
}

impl Encoded {
    pub(crate) fn new(kind: EncodingKind) -> Encoded {
        let descriptor = Descriptor {
            kind,
            width: 0,
            runs: None,
            nulls: false,
            bloom_lines: 0,
            base: 0,
            entries: 0,
            heap_bytes: 0,
        };
        Encoded {
            descriptor,
            codes: LaneVec::U8(Vec::new()),
            starts: None,
            slots: Vec::new(),
            values: Vec::new(),
            offsets: Vec::new(),
            heap: Vec::new(),
            nulls: Vec::new(),
            bloom: Vec::new(),
            zones: Vec::new(),
            distinct: None,
        }
    }

    /// Keeps a code per run if that is much smaller.
    pub(crate) fn find_runs(&mut self) {
        self.starts = self.codes.cut_into_runs(self.descriptor.width);
        self.descriptor.runs = self.starts.as_ref().map(|starts| starts.runs);
    }

    /// Puts the content of each area to `parts`, and that of a group's tuples to `tuples`,
    /// which attributes share: by their offset.
    pub(crate) fn into_parts(
        self,
        at: &AttributePlan,
        rows: usize,
        tuples: &mut HashMap<usize, Vec<u8>>,
        parts: &mut Vec<Part>,
    ) {
        let width = self.descriptor.width;
        let mut part = |offset, bytes, content| parts.push((offset, bytes, content));
        match at.codes {
            CodesAt::Nowhere => {}
            CodesAt::Tuples { .. } if width == 0 => {}
            CodesAt::Packed(area) => part(area.offset, area.bytes, pack(&self.codes, width)),
            CodesAt::Runs {
                starts: bits,
                ranks,
                codes,
            } => {
                let starts = self.starts.expect("a code per run comes with their starts");
                let before = starts.ranks();
                let before = before.into_iter().flat_map(u32::to_le_bytes).collect();
                part(ranks.offset, ranks.bytes, before);
                part(bits.offset, bits.bytes, bytes_of(starts.bits));
                part(codes.offset, codes.bytes, pack(&self.codes, width));
            }
            CodesAt::Slots {
                tuples: area,
                stride,
                offset,
            } => {
                let slot = self.slots.len() / rows;
                if stride == slot {
                    part(area.offset, area.bytes, self.slots);
                } else {
                    let bytes = tuples
                        .entry(area.offset)
                        .or_insert_with(|| vec![0; area.bytes]);
                    let slots = self.slots.chunks_exact(slot);
                    for (tuple, value) in bytes.chunks_exact_mut(stride).zip(slots) {
                        tuple[offset..offset + slot].copy_from_slice(value);
                    }
                }
            }
            CodesAt::Tuples {
                tuples: area,
                stride,
                bit,
            } => {
                let bytes = tuples
                    .entry(area.offset)
                    .or_insert_with(|| vec![0; area.bytes]);
                with_lanes!(&self.codes, codes => put_in_tuples(codes, width, bytes, stride, bit));
            }
        }
        part(at.values.offset, at.values.bytes, self.values);
        if !self.offsets.is_empty() {
            let width = offset_width(self.descriptor.heap_bytes);
            let offsets = LaneVec::of(&self.offsets, width, |offset: u64| offset);
            part(at.offsets.offset, at.offsets.bytes, pack(&offsets, width));
        }
        part(at.heap.offset, at.heap.bytes, self.heap);
        part(at.nulls.offset, at.nulls.words * 8, bytes_of(self.nulls));
        part(at.bloom.offset, at.bloom.bytes, self.bloom);
    }
}

/// Puts codes to where zeros are, at a bit of each tuple.
fn put_in_tuples<L: Lane>(codes: &[L], width: u32, bytes: &mut [u8], stride: usize, bit: usize) {
    let shift = (bit % 8) as u32;
    for (nth, &code) in codes.iter().enumerate() {
        let code: u64 = code.into();
        let at = nth * stride + bit / 8;
        let to = bytes[at..]
            .first_chunk_mut()
            .expect("tuples are followed by slack");
        *to = (u64::from_le_bytes(*to) | code << shift).to_le_bytes();
        if shift + width > u64::BITS {
            bytes[at + 8] |= (code >> (u64::BITS - shift)) as u8;
        }
    }
}

/// Words as they are in memory.
pub(crate) fn bytes_of(words: Vec<u64>) -> Vec<u8> {
    let mut bytes = vec![0; words.len() * 8];
    for (to, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
        *to = word.to_le_bytes();
    }
    bytes
}
