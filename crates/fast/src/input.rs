//! The inputs of a program's run: parameters, literals, the time.

use std::{fmt, sync::Arc};

use aerostat_storage::ValueRef;
use aerostat_types::{RelationId, SqlType, Zone};

use crate::{ListedRows, Value};

/// A literal of a statement's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Literal {
    /// Digits, perhaps behind a minus.
    Integer(i64),
    /// Digits with a point: all of them as a number. How many stand after the point is in
    /// the shape.
    Decimal(i128),
    /// A string.
    Text(String),
}

impl Literal {
    pub(crate) fn value(&self) -> ValueRef<'_> {
        match self {
            Literal::Integer(value) => ValueRef::I64(*value),
            Literal::Decimal(value) => ValueRef::I128(*value),
            Literal::Text(value) => ValueRef::Bytes(value.as_bytes()),
        }
    }
}

/// Gives the numbers of sequences.
pub trait Numbers: fmt::Debug + Send + Sync {
    /// Takes a number of a sequence, if one is at hand: whoever has to wait for one is unfit.
    fn next(&self, sequence: RelationId) -> Option<i64>;

    /// The program runs again: the numbers that it has taken come once more.
    fn again(&self);
}

/// What the values of one run are. Clones share them.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// The parameters.
    pub parameters: Arc<[Value]>,
    /// Their types.
    pub types: Arc<[SqlType]>,
    /// The literals of the text.
    pub literals: Arc<[Literal]>,
    /// When the transaction began, in microseconds since 1970-01-01 UTC.
    pub now_micros: i64,
    /// The session's zone.
    pub zone: Zone,
    /// The rows of a statement that lists them apart from its shape.
    pub rows: Option<ListedRows>,
    /// The sequences that the program takes numbers of; `None` if it takes none.
    pub numbers: Option<Arc<dyn Numbers>>,
}

/// The values of a run, borrowed: parameters first, then literals.
pub(crate) struct Values<'a> {
    pub(crate) inputs: &'a Inputs,
    values: Vec<ValueRef<'a>>,
}

impl<'a> Values<'a> {
    /// `None` when a parameter is not of its type's form.
    pub(crate) fn of(inputs: &'a Inputs) -> Option<Self> {
        assert_eq!(
            inputs.parameters.len(),
            inputs.types.len(),
            "each parameter has its type"
        );
        let parameters = inputs.parameters.iter().zip(inputs.types.iter());
        let parameters = parameters.map(|(value, ty)| value.is_of(*ty).then(|| value.borrowed()));
        let literals = inputs.literals.iter().map(|literal| Some(literal.value()));
        Some(Self {
            values: parameters.chain(literals).collect::<Option<_>>()?,
            inputs,
        })
    }

    pub(crate) fn get(&self, at: usize) -> ValueRef<'a> {
        self.values[at]
    }
}
