//! Arrow buffers and views over published bytes of a segment, without a copy.
//!
//! An Arrow buffer is immutable bytes plus an owner that keeps them alive. The bytes below the
//! arena's watermarks are immutable, and the owner is the segment's body, with the extent that has
//! them where that may be evicted.

use std::ptr::NonNull;

use arrow_array::{
    BinaryViewArray, GenericByteViewArray, StringViewArray,
    types::{BinaryViewType, ByteViewType, StringViewType},
};
use arrow_buffer::{ArrowNativeType, Buffer, NullBuffer, ScalarBuffer};

use crate::{
    Pinned,
    kernel::{hash::load_short, plain::Plain},
};

/// Rows `from..to` of an attribute as an Arrow buffer, when they lie side by side.
pub(crate) fn column<T: Plain + ArrowNativeType>(
    segment: &Pinned<'_>,
    attribute: usize,
    from: usize,
    to: usize,
) -> Option<ScalarBuffer<T>> {
    if !segment.may_be_shared() {
        return None;
    }
    let values = segment
        .form()
        .slots::<T>(attribute)
        .part(from, to)
        .as_slice()?;
    let len = size_of_val(values);
    let owner = segment.owner(attribute);
    // SAFETY: a slice's address is not null and valid for its size; as_slice gave published
    // bytes, which do not change, of the arena and the extent that `owner` keeps in memory.
    let buffer =
        unsafe { Buffer::from_custom_allocation(NonNull::from(values).cast(), len, owner) };
    Some(ScalarBuffer::new(buffer, 0, len / size_of::<T>()))
}

/// Bytes `from..to` of an attribute's long values as an Arrow buffer, shared or a copy.
fn heap(segment: &Pinned<'_>, attribute: usize, from: usize, to: usize) -> Buffer {
    let bytes = &segment.form().heap_of(attribute)[from..to];
    if !segment.may_be_shared() {
        return Buffer::from(bytes);
    }
    let owner = segment.owner(attribute);
    // SAFETY: as in `column`.
    unsafe { Buffer::from_custom_allocation(NonNull::from(bytes).cast(), bytes.len(), owner) }
}

/// Views over a segment's heap, in the making. Keeps the invariant that every view
/// was made from a slot, or a dictionary's string, of one text attribute (or one bytea
/// attribute) of the segment.
pub(crate) struct Views<'a> {
    segment: &'a Pinned<'a>,
    attribute: usize,
    views: Vec<u128>,
    /// The part of the heap that views point to.
    from: usize,
    to: usize,
}

impl<'a> Views<'a> {
    /// The views of an attribute's values at these rows.
    pub(crate) fn of(
        segment: &'a Pinned<'a>,
        attribute: usize,
        rows: impl Iterator<Item = u32>,
    ) -> Views<'a> {
        let slots = segment.form().slots::<u64>(attribute);
        let heap = segment.form().heap_of(attribute);
        let (mut from, mut to) = (usize::MAX, 0);
        let views = rows
            .map(|row| {
                let (view, span) = view_of(slots.get(row as usize), heap);
                if let Some((start, end)) = span {
                    (from, to) = (from.min(start), to.max(end));
                }
                view
            })
            .collect();
        Views {
            segment,
            attribute,
            views,
            from: from.min(to),
            to,
        }
    }

    /// The views of strings at these places in the attribute's heap.
    pub(crate) fn of_spans(
        segment: &'a Pinned<'a>,
        attribute: usize,
        spans: impl Iterator<Item = std::ops::Range<usize>>,
    ) -> Views<'a> {
        let heap = segment.form().heap_of(attribute);
        let (mut from, mut to) = (usize::MAX, 0);
        let views = spans
            .map(|span| {
                if span.len() > VIEW_INLINE_BYTES_MAX as usize {
                    (from, to) = (from.min(span.start), to.max(span.end));
                }
                view_of_bytes(&heap[span.clone()], span.start)
            })
            .collect();
        Views {
            segment,
            attribute,
            views,
            from: from.min(to),
            to,
        }
    }

    /// Views that are chosen from these, by position.
    pub(crate) fn chosen(self, choose: impl FnOnce(&[u128]) -> Vec<u128>) -> Views<'a> {
        let views = choose(&self.views);
        debug_assert!(views.iter().all(|view| self.views.contains(view)));
        Views { views, ..self }
    }

    /// As a text array.
    ///
    /// # Panics
    /// When the attribute holds no text.
    pub(crate) fn into_text(self, nulls: Option<NullBuffer>) -> StringViewArray {
        assert!(
            self.segment.schema().attributes()[self.attribute]
                .ty
                .is_text(),
            "a text attribute"
        );
        // SAFETY: it is a text attribute (asserted), and slots of text attributes are made from
        // Arrow text arrays, or were found to be UTF-8 by attach.
        unsafe { self.into_array::<StringViewType>(nulls) }
    }

    /// As an array of bytes.
    pub(crate) fn into_bytes(self, nulls: Option<NullBuffer>) -> BinaryViewArray {
        // SAFETY: bytes need no encoding.
        unsafe { self.into_array::<BinaryViewType>(nulls) }
    }

    /// A copy of the long values, to which the views point from now on.
    fn copied(&mut self, long_bytes: usize) -> Buffer {
        let heap = self.segment.form().heap_of(self.attribute);
        let mut copy = Vec::with_capacity(long_bytes);
        for view in &mut self.views {
            let len = *view as u32;
            if len > VIEW_INLINE_BYTES_MAX {
                let offset = (*view >> 96) as usize;
                let to = copy.len() as u128;
                copy.extend_from_slice(&heap[offset..offset + len as usize]);
                *view = *view & (u128::MAX >> 32) | to << 96;
            }
        }
        Buffer::from_vec(copy)
    }

    /// # Safety
    /// The values are valid for `T`: UTF-8 for text.
    unsafe fn into_array<T: ByteViewType>(
        mut self,
        nulls: Option<NullBuffer>,
    ) -> GenericByteViewArray<T> {
        // Only the span in use is handed out, so that whoever accounts for the array's
        // memory does not see the whole heap.
        let mut buffers = Vec::new();
        let long = self.views.iter().map(|view| *view as u32);
        let long = long.filter(|len| *len > VIEW_INLINE_BYTES_MAX);
        let long_bytes: usize = long.map(|len| len as usize).sum();
        let span = self.to.saturating_sub(self.from);
        let is_copied = match self.segment.may_be_shared() {
            true => long_bytes * COPIED_SHARE < span,
            false => long_bytes > 0,
        };
        if is_copied && long_bytes <= span {
            buffers.push(self.copied(long_bytes));
        } else if self.from < self.to {
            buffers.push(heap(self.segment, self.attribute, self.from, self.to));
            for view in &mut self.views {
                let long = *view as u32 > VIEW_INLINE_BYTES_MAX;
                *view -= u128::from(long) * ((self.from as u128) << 96);
            }
        }
        assert!(
            nulls
                .as_ref()
                .is_none_or(|nulls| nulls.len() == self.views.len()),
            "a bit per view"
        );
        // SAFETY: a view of up to 12 bytes is inline and zero-padded; a longer one has its
        // prefix, buffer 0, and an offset within from..to, rebased to from, or of its copy; the
        // nulls are as many as the views (asserted); the values are valid for T (caller).
        unsafe {
            GenericByteViewArray::new_unchecked(ScalarBuffer::from(self.views), buffers, nulls)
        }
    }
}

/// Long values are copied where they are less than this share of the bytes that they lie among, as a
/// divisor: a few rows are not to keep a segment's texts in memory.
const COPIED_SHARE: usize = 16;

/// An Arrow view holds values up to this length itself.
const VIEW_INLINE_BYTES_MAX: u32 = 12;

/// The Arrow view of a slot, with the heap offset as its offset; and the heap bytes it
/// points to, if it does.
fn view_of(slot: u64, heap: &[u8]) -> (u128, Option<(usize, usize)>) {
    use crate::format::intern::SlotForm;
    match SlotForm::of(slot) {
        SlotForm::Short { len, bytes } => (u128::from(bytes) << 32 | len as u128, None),
        SlotForm::Long { len, offset } => {
            let view = view_of_bytes(&heap[offset..offset + len], offset);
            let is_long = len > VIEW_INLINE_BYTES_MAX as usize;
            (view, is_long.then_some((offset, offset + len)))
        }
    }
}

/// The Arrow view of bytes that start at an offset.
fn view_of_bytes(value: &[u8], offset: usize) -> u128 {
    let len = value.len();
    if len > VIEW_INLINE_BYTES_MAX as usize {
        let prefix = load_short(&value[..4]);
        return (offset as u128) << 96 | u128::from(prefix) << 32 | len as u128;
    }
    let (low, high) = value.split_at(len.min(7));
    let bytes = u128::from(load_short(low)) | u128::from(load_short(high)) << 56;
    bytes << 32 | len as u128
}
