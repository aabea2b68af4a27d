//! `nextval`, `currval` and the other functions of sequences.

use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

use aerostat_catalog::{
    SequenceEntry,
    sequence::{Position, not_a_sequence},
};
use aerostat_sql::{grants::Privilege, sequence_text::NEXT_OF_IDENTITY};
use aerostat_types::{ErrorKind, RelationId, SqlError, quote_ident};
use datafusion::{
    arrow::{array::Int64Array, datatypes::DataType},
    common::Result,
    logical_expr::{
        ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
    },
};

use super::{Call, Definition, Reg, external, function};
use crate::{cell::Cell, view::classes::ClassKind};

pub(super) fn definitions() -> Vec<Definition> {
    let acts = |definition: Definition| Definition {
        acts: true,
        ..definition
    };
    vec![
        acts(function("nextval", &["regclass"], "int8", |call| {
            next(call, true)
        })),
        acts(function(NEXT_OF_IDENTITY, &["regclass"], "int8", |call| {
            next(call, false)
        })),
        acts(function("currval", &["regclass"], "int8", current)),
        acts(function("lastval", &[], "int8", last)),
        acts(function(
            "setval",
            &["regclass", "int8", "bool?"],
            "int8",
            set,
        )),
        function(
            "pg_get_serial_sequence",
            &["text", "text"],
            "text",
            serial_sequence,
        ),
        acts(function(
            "pg_sequence_last_value",
            &["regclass"],
            "int8",
            |call| {
                let entry = sequence(call)?;
                require(call, &entry, &[Privilege::Select, Privilege::Usage])?;
                let position = entry.counter.position()?;
                Ok(position.is_called.then_some(position.last_value).into())
            },
        )),
    ]
}

/// The sequence that the first argument means, as the statement may use it.
fn sequence(call: &Call<'_>) -> Result<Arc<SequenceEntry>, SqlError> {
    let oid = call.oid(0, Reg::Class)?;
    let missing = || {
        SqlError::new(
            ErrorKind::UndefinedTable,
            format!("could not open relation with OID {oid}"),
        )
    };
    let class = call.view.class(oid).ok_or_else(missing)?;
    let ClassKind::Sequence(entry) = &class.kind else {
        return Err(not_a_sequence(&class.name));
    };
    call.view.facts.sequence(entry.oid)?.ok_or_else(missing)
}

/// # Errors
/// The role has none of these privileges.
fn require(call: &Call<'_>, sequence: &SequenceEntry, any: &[Privilege]) -> Result<(), SqlError> {
    let class = call.view.class(sequence.oid.into());
    let role = &call.view.role;
    let may =
        |privilege: &Privilege| class.is_some_and(|class| call.view.may(role, class, *privilege));
    if any.iter().any(may) {
        return Ok(());
    }
    Err(aerostat_catalog::ddl::denied("sequence", &sequence.name))
}

fn next(call: &Call<'_>, checks_rights: bool) -> Result<Cell, SqlError> {
    let facts = &call.view.facts;
    let sequence = sequence(call)?;
    if checks_rights {
        require(call, &sequence, &[Privilege::Usage, Privilege::Update])?;
    }
    if !sequence.counter.is_temporary() {
        facts.admit_change("nextval()")?;
    }
    let number = sequence
        .counter
        .next(&sequence.definition, &sequence.name)?;
    facts.taken().lock().note(sequence.oid, number);
    Ok(number.into())
}

fn current(call: &Call<'_>) -> Result<Cell, SqlError> {
    let sequence = sequence(call)?;
    require(call, &sequence, &[Privilege::Select, Privilege::Usage])?;
    let number = call.view.facts.taken().lock().of(sequence.oid);
    match number {
        Some(number) => Ok(number.into()),
        None => Err(SqlError::new(
            ErrorKind::ObjectNotInPrerequisiteState,
            format!(
                "currval of sequence \"{}\" is not yet defined in this session",
                sequence.name
            ),
        )),
    }
}

fn last(call: &Call<'_>) -> Result<Cell, SqlError> {
    let undefined = || {
        SqlError::new(
            ErrorKind::ObjectNotInPrerequisiteState,
            "lastval is not yet defined in this session",
        )
    };
    let facts = &call.view.facts;
    let (oid, number) = {
        let taken = facts.taken().lock();
        let oid = taken.last().ok_or_else(undefined)?;
        (oid, taken.of(oid).ok_or_else(undefined)?)
    };
    let sequence = facts.sequence(oid)?.ok_or_else(undefined)?;
    require(call, &sequence, &[Privilege::Select, Privilege::Usage])?;
    Ok(number.into())
}

fn set(call: &Call<'_>) -> Result<Cell, SqlError> {
    let facts = &call.view.facts;
    let sequence = sequence(call)?;
    require(call, &sequence, &[Privilege::Update])?;
    if !sequence.counter.is_temporary() {
        facts.admit_change("setval()")?;
    }
    let definition = &sequence.definition;
    let last_value = call.int(1).unwrap_or_default();
    if !(definition.min..=definition.max).contains(&last_value) {
        return Err(SqlError::new(
            ErrorKind::NumericValueOutOfRange,
            format!(
                "setval: value {last_value} is out of bounds for sequence \"{}\" ({}..{})",
                sequence.name, definition.min, definition.max
            ),
        ));
    }
    let is_called = *call.at(2) == Cell::Null || call.truth(2);
    sequence.counter.set(Position {
        last_value,
        is_called,
    })?;
    if is_called {
        facts.taken().lock().note_set(sequence.oid, last_value);
    }
    Ok(last_value.into())
}

/// The sequence that belongs to a column, by its qualified name.
fn serial_sequence(call: &Call<'_>) -> Result<Cell, SqlError> {
    let view = call.view;
    let oid = call.oid(0, Reg::Class)?;
    let Some(class) = view.class(oid) else {
        return Ok(Cell::Null);
    };
    let column = call.text(1);
    if !class.columns().iter().any(|known| known.name == column) {
        return Err(SqlError::new(
            ErrorKind::UndefinedColumn,
            format!(
                "column \"{column}\" of relation \"{}\" does not exist",
                class.name
            ),
        ));
    }
    let found = view
        .state
        .owned_sequences(RelationId(class.oid))
        .find(|(_, entry)| {
            let owner = entry.owned_by.as_ref();
            owner.is_some_and(|owner| owner.column == column)
        });
    Ok(found
        .map(|(schema, entry)| {
            format!("{}.{}", quote_ident(&schema.name), quote_ident(&entry.name))
        })
        .into())
}

/// The numbers of a sequence that is not in the catalogue yet.
pub fn numbers_of(sequence: &Arc<SequenceEntry>) -> Expr {
    let function = ScalarUDF::from(Numbers {
        sequence: Arc::clone(sequence),
        signature: Signature::nullary(Volatility::Volatile),
    });
    function.call(Vec::new())
}

/// See [`numbers_of`].
struct Numbers {
    sequence: Arc<SequenceEntry>,
    signature: Signature,
}

impl fmt::Debug for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Numbers({})", self.sequence.name)
    }
}

impl PartialEq for Numbers {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.sequence, &other.sequence)
    }
}

impl Eq for Numbers {}

impl Hash for Numbers {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.sequence.oid.hash(state);
    }
}

impl ScalarUDFImpl for Numbers {
    fn name(&self) -> &str {
        NEXT_OF_IDENTITY
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let SequenceEntry {
            counter,
            definition,
            name,
            ..
        } = &*self.sequence;
        let numbers = (0..call.number_rows)
            .map(|_| counter.next(definition, name).map_err(external))
            .collect::<Result<Vec<i64>>>()?;
        Ok(ColumnarValue::Array(Arc::new(Int64Array::from(numbers))))
    }
}
