//! Primary partitions: the largest sets of attributes that every statement uses alike (HYRISE
//! §5.1). Searches merge these atoms and never look inside.
//!
//! Alike means more than together: attributes that one statement uses in different ways, one as a
//! filter and one as an output, are in different atoms, since their passes have different
//! densities.

use std::cmp::Reverse;

use crate::cost::Model;

/// The atoms, in an order that does not depend on the attributes' positions: what
/// the heaviest statements use comes first and side by side, and a group's tuple
/// keeps this order. Attributes of an atom go by width, widest first, which keeps
/// values of 2, 4 and 8 bytes from straddling lines.
pub(crate) fn atoms(model: &Model<'_>) -> Vec<Vec<usize>> {
    let heaviest_first = heaviest_first(model);
    let signature = |at: usize| -> Vec<Reverse<u16>> {
        let stages = heaviest_first
            .iter()
            .map(|&nth| model.statements[nth].stages[at]);
        stages.map(Reverse).collect()
    };
    let mut attributes: Vec<(Vec<Reverse<u16>>, usize)> = (0..model.shape.names.len())
        .map(|at| (signature(at), at))
        .collect();
    attributes.sort_by(|(a, at), (b, other)| {
        let widths = || model.shape.widths(*other).cmp(&model.shape.widths(*at));
        a.cmp(b).then_with(widths).then(at.cmp(other))
    });
    attributes
        .chunk_by(|(a, _), (b, _)| a == b)
        .map(|atom| atom.iter().map(|(_, at)| *at).collect())
        .collect()
}

/// Statements by the bytes that all their executions pass over. Not by cost, which
/// would depend on the groups and so on the attributes' order.
pub(crate) fn heaviest_first(model: &Model<'_>) -> Vec<usize> {
    let mut bytes: Vec<(f64, usize)> = (0..model.statements.len())
        .map(|nth| (model.bytes_passed(&model.statements[nth]), nth))
        .collect();
    bytes.sort_by(|(a, nth), (b, other)| b.total_cmp(a).then(nth.cmp(other)));
    bytes.into_iter().map(|(_, nth)| nth).collect()
}
