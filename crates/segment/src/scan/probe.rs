//! Probes: a lookup table in the form in which the rows of one segment are tested.
//!
//! A probe is made once per segment: on codes the table becomes a set of codes, or a range, so a
//! join's condition costs as much as a predicate. Slots are looked up one by one.

use std::sync::Arc;

use aerostat_types::{Physical, SqlType};

use crate::{
    LookupTable, Pinned, Probe, Segment, SegmentSchema, Selection,
    body::segment::Form,
    input::condition::{OnCodes, Passing},
    kernel::{
        order::key_of_i128,
        plain::{Plain, Slots},
    },
};

impl SegmentSchema {
    /// Whether an attribute's values can be keys of a lookup table: integers, and dates as
    /// their days.
    pub fn is_lookup_key(&self, attribute: usize) -> bool {
        self.attributes().get(attribute).is_some_and(|spec| {
            let ty = spec.ty;
            matches!(
                ty,
                SqlType::SmallInt | SqlType::Integer | SqlType::BigInt | SqlType::Date
            )
        })
    }
}

impl Segment {
    /// Whether a row of the vector can have a key of the table, as far as its zone tells.
    pub fn may_have_member(&self, vector: u32, probe: &Probe) -> bool {
        if let Some(OnCodes {
            passing: Passing::None,
            ..
        }) = probe.on_codes
        {
            return false;
        }
        let zone = self.zone(vector, probe.attribute);
        let bounds = probe.table.bounds();
        bounds.is_some_and(|(least, greatest)| {
            let (least, greatest) = (key_of_i128(least.into()), key_of_i128(greatest.into()));
            zone.any && zone.min <= greatest && least <= zone.max
        })
    }
}

impl Pinned<'_> {
    /// What a lookup table is to this segment. It is asked of rows that are published by now
    /// or later.
    ///
    /// # Panics
    /// When the attribute's values are [no keys](SegmentSchema::is_lookup_key).
    pub fn probe(&self, attribute: usize, table: &Arc<LookupTable>) -> Probe {
        assert!(
            self.schema().is_lookup_key(attribute),
            "the caller checks with SegmentSchema::is_lookup_key"
        );
        self.assert_has(attribute);
        let on_codes = match self.form() {
            Form::Frozen(frozen) if !frozen.is_plain(attribute) => Some(OnCodes {
                passing: frozen.members(attribute, table),
                translated: frozen.translated(attribute, table),
            }),
            _ => None,
        };
        Probe {
            attribute,
            table: Arc::clone(table),
            on_codes,
        }
    }

    /// Adds the code of each selected row's key, times `scale`, to the row's number. The rows
    /// are such as [`Pinned::keep`] has kept; others add anything up to the
    /// greatest code.
    ///
    /// # Panics
    /// When there is not a number for each row.
    pub fn add_codes(&self, probe: &Probe, selection: &Selection, scale: u64, to: &mut [u64]) {
        assert_eq!(selection.len(), to.len(), "a number for each row");
        self.assert_has(probe.attribute);
        if let (Form::Frozen(frozen), Some(on_codes)) = (self.form(), &probe.on_codes) {
            return frozen.add_codes(
                probe.attribute,
                &probe.table,
                on_codes.translated.as_deref(),
                selection,
                scale,
                to,
            );
        }
        match self.schema().physical(probe.attribute) {
            Physical::I16 => self.add_slots::<i16>(probe, selection, scale, to),
            Physical::I32 => self.add_slots::<i32>(probe, selection, scale, to),
            _ => self.add_slots::<i64>(probe, selection, scale, to),
        }
    }

    fn add_slots<T: Plain + Into<i64>>(
        &self,
        probe: &Probe,
        selection: &Selection,
        scale: u64,
        to: &mut [u64],
    ) {
        const KEYS: usize = 512;
        let slots: Slots<'_, T> = self.form().slots(probe.attribute);
        let mut keys = [0i64; KEYS];
        let mut rows = selection.iter();
        for to in to.chunks_mut(KEYS) {
            for (key, row) in keys.iter_mut().zip(rows.by_ref().take(to.len())) {
                *key = slots.get(row as usize).into();
            }
            probe.table.add_codes(&keys[..to.len()], scale, to);
        }
    }
}
