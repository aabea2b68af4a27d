//! The functions that answer from the catalogue.
//!
//! Each is a row in a table of definitions, evaluated value by value: they run on the few rows of
//! system relations, so clarity comes before speed. A function whose arguments are all constant
//! is evaluated once, when the statement is planned.

mod arrays;
mod balloon;
mod definitions;
mod listed;
mod names;
mod privileges;
mod recovery;
mod sequences;
mod session;
mod signals;
mod sizes;
mod waiting;

use std::{
    collections::HashSet,
    fmt,
    hash::{Hash, Hasher},
    sync::{Arc, OnceLock},
};

use aerostat_semantics::growth::{self, Growth};
use aerostat_sql::tree::RESERVED;
use aerostat_types::{ErrorKind, SqlError};
use datafusion::{
    arrow::{
        array::ArrayRef,
        datatypes::{DataType, Field, FieldRef},
    },
    common::{DataFusionError, Result, internal_err},
    logical_expr::{
        ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
        TypeSignature, Volatility,
    },
};

pub(crate) use arrays::{ANY, CAT, EMPTY, EXPAND, ITEM, JSON, OR_EMPTY, SUBSCRIPTS, parse_array};
pub(crate) use names::{Reg, resolve};
pub use sequences::numbers_of;
pub(crate) use session::LISTENING;
pub use waiting::parameter as waiting_parameter;

use crate::{
    CatalogView,
    cell::{self, Cell},
    types,
    view::facts::{FunctionDescription, FunctionKind},
};

/// One function.
pub(crate) struct Definition {
    name: &'static str,
    /// The types of the arguments; `?` ends one that may be left out, `*` the last one, given any number of times.
    arguments: &'static [&'static str],
    /// The type of the result: a `typname`, [`SAME`], [`ELEMENT`], or `shown:` and the `typname` of a type that is
    /// shown as text.
    result: &'static str,
    eval: fn(&Call<'_>) -> Result<Cell, SqlError>,
    /// Whether it is called with NULLs too; otherwise a NULL argument gives NULL.
    takes_null: bool,
    /// Whether it does something, and so must run once for each row.
    acts: bool,
}

/// The result has the type of the first argument.
const SAME: &str = "=";

/// The result has the type of the first argument's elements.
const ELEMENT: &str = "[]";

/// The result is an array of pairs of an item and its place.
const PAIRS: &str = "pairs";

/// What a function is called with.
pub(crate) struct Call<'a> {
    view: &'a CatalogView,
    arguments: &'a [Cell],
}

impl Call<'_> {
    fn at(&self, at: usize) -> &Cell {
        self.arguments.get(at).unwrap_or(&Cell::Null)
    }

    fn int(&self, at: usize) -> Option<i64> {
        self.at(at).int()
    }

    fn text(&self, at: usize) -> &str {
        self.at(at).str().unwrap_or_default()
    }

    fn truth(&self, at: usize) -> bool {
        match self.at(at) {
            Cell::Bool(value) => *value,
            Cell::Text(text) => matches!(&**text, "t" | "true" | "on" | "yes" | "1"),
            _ => false,
        }
    }

    /// The number of a catalogue entry, given as a number or by name.
    fn oid(&self, at: usize, kind: Reg) -> Result<i64, SqlError> {
        names::oid_of(self.view, kind, self.at(at))
    }
}

const fn function(
    name: &'static str,
    arguments: &'static [&'static str],
    result: &'static str,
    eval: fn(&Call<'_>) -> Result<Cell, SqlError>,
) -> Definition {
    Definition {
        name,
        arguments,
        result,
        eval,
        takes_null: false,
        acts: false,
    }
}

/// All functions of this module.
fn definitions() -> &'static [Definition] {
    static ALL: OnceLock<Vec<Definition>> = OnceLock::new();
    ALL.get_or_init(|| {
        [
            session::definitions(),
            names::definitions(),
            definitions::definitions(),
            sizes::definitions(),
            privileges::definitions(),
            sequences::definitions(),
            arrays::definitions(),
            waiting::definitions(),
            signals::definitions(),
            balloon::definitions(),
            recovery::definitions(),
        ]
        .into_iter()
        .flatten()
        .collect()
    })
}

/// Whether this module has a function of this name.
pub(crate) fn is_function(name: &str) -> bool {
    definitions()
        .iter()
        .any(|definition| definition.name == name)
}

/// Whether calls of this function do something, and so have an order.
pub fn acts(name: &str) -> bool {
    static ALL: OnceLock<HashSet<&str>> = OnceLock::new();
    ALL.get_or_init(|| {
        let acting = definitions().iter().filter(|definition| definition.acts);
        acting.map(|definition| definition.name).collect()
    })
    .contains(name)
}

/// Whether this is one of them, bound to a view.
pub fn is_bound(function: &ScalarUDF) -> bool {
    function.inner().is::<CatalogFunction>()
}

/// The functions as `pg_proc` shows them; those that only rewritten queries call are left out.
pub(crate) fn descriptions() -> &'static [FunctionDescription] {
    static ALL: OnceLock<Vec<FunctionDescription>> = OnceLock::new();
    ALL.get_or_init(|| {
        let sql_type = |name: &str| {
            let bare = name.trim_end_matches(['?', '*']);
            match bare.strip_prefix("shown:").unwrap_or(bare) {
                SAME => "anyarray".to_owned(),
                ELEMENT => "anyelement".to_owned(),
                PAIRS => "record".to_owned(),
                other => types::oid_of_typname(other)
                    .map_or_else(|| other.to_owned(), |oid| types::format_type(oid, None)),
            }
        };
        definitions()
            .iter()
            .filter(|definition| !definition.name.starts_with(INTERNAL))
            .map(|definition| FunctionDescription {
                name: definition.name.to_owned(),
                arguments: definition.arguments.iter().map(|ty| sql_type(ty)).collect(),
                result: sql_type(definition.result),
                kind: FunctionKind::Plain,
            })
            .collect()
    })
}

/// How the names of functions begin that only rewritten queries call, which no text can name.
pub(crate) const INTERNAL: char = RESERVED;

/// All functions, bound to a view.
pub(crate) fn all(view: &Arc<CatalogView>) -> Vec<ScalarUDF> {
    definitions()
        .iter()
        .map(|definition| ScalarUDF::from(CatalogFunction::new(definition, Arc::clone(view))))
        .collect()
}

/// A definition bound to a view, as DataFusion calls it.
struct CatalogFunction {
    definition: &'static Definition,
    view: Arc<CatalogView>,
    signature: Signature,
}

impl CatalogFunction {
    fn new(definition: &'static Definition, view: Arc<CatalogView>) -> Self {
        let volatility = if definition.acts {
            Volatility::Volatile
        } else {
            Volatility::Stable
        };
        let signature = Signature::one_of(
            vec![TypeSignature::Nullary, TypeSignature::VariadicAny],
            volatility,
        );
        Self {
            definition,
            view,
            signature,
        }
    }

    fn check_count(&self, given: usize) -> Result<()> {
        let arguments = self.definition.arguments;
        let least = arguments
            .iter()
            .filter(|name| !name.ends_with(['?', '*']))
            .count();
        let most = if arguments.last().is_some_and(|name| name.ends_with('*')) {
            usize::MAX
        } else {
            arguments.len()
        };
        if (least..=most).contains(&given) {
            return Ok(());
        }
        Err(external(SqlError::new(
            ErrorKind::UndefinedFunction,
            format!(
                "function {} does not take {given} arguments",
                self.definition.name
            ),
        )))
    }

    fn call(&self, arguments: &[Cell]) -> Result<Cell> {
        if !self.definition.takes_null && arguments.contains(&Cell::Null) {
            return Ok(Cell::Null);
        }
        (self.definition.eval)(&Call {
            view: &self.view,
            arguments,
        })
        .map_err(external)
    }
}

fn external(error: SqlError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

impl fmt::Debug for CatalogFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CatalogFunction")
            .field("name", &self.definition.name)
            .finish_non_exhaustive()
    }
}

impl PartialEq for CatalogFunction {
    fn eq(&self, other: &Self) -> bool {
        self.definition.name == other.definition.name && Arc::ptr_eq(&self.view, &other.view)
    }
}

impl Eq for CatalogFunction {}

impl Hash for CatalogFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.definition.name.hash(state);
    }
}

impl ScalarUDFImpl for CatalogFunction {
    fn name(&self) -> &str {
        self.definition.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        internal_err!("{} is asked for its field", self.definition.name)
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.check_count(arguments.arg_fields.len())?;
        let name = self.definition.name;
        let element_of = |array: Option<&FieldRef>| match array.map(|field| field.data_type()) {
            Some(
                DataType::List(element)
                | DataType::LargeList(element)
                | DataType::FixedSizeList(element, _),
            ) => element.data_type().clone(),
            _ => DataType::Utf8View,
        };
        let first = arguments.arg_fields.first();
        Ok(Arc::new(match self.definition.result {
            SAME => match first.map(|field| field.data_type()) {
                Some(list @ DataType::List(_)) => Field::new(name, list.clone(), true),
                Some(DataType::LargeList(element) | DataType::FixedSizeList(element, _)) => {
                    Field::new(name, DataType::List(Arc::clone(element)), true)
                }
                _ => types::field(name, "_text", true),
            },
            PAIRS => Field::new(name, cell::pairs_type(element_of(first)), true),
            ELEMENT => Field::new(name, element_of(first), true),
            result => match result.strip_prefix("shown:") {
                Some(typname) => types::text_field(name, typname),
                None => types::field(name, result, true),
            },
        }))
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if self.definition.name == OR_EMPTY {
            return arrays::or_empty(&call);
        }
        let constant = call
            .args
            .iter()
            .all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
        let rows = if constant && !self.definition.acts {
            1
        } else {
            call.number_rows
        };
        let mut growth = Growth::new();
        let columns = call
            .args
            .iter()
            .map(|argument| Column::of(argument, &mut growth))
            .collect::<Result<Vec<_>>>()?;
        let mut results = Vec::with_capacity(rows);
        let mut arguments = vec![Cell::Null; columns.len()];
        for row in 0..rows {
            let mut given = 0;
            for (argument, column) in arguments.iter_mut().zip(&columns) {
                argument.clone_from(column.at(row));
                given += argument.bytes();
            }
            growth.work(given)?;
            let result = self.call(&arguments)?;
            // Once here, and once in the array.
            growth.make(2 * result.bytes())?;
            results.push(result);
        }
        let array: ArrayRef = cell::array_of(&results, call.return_field.data_type())?;
        growth.finish(array, constant && !self.definition.acts)
    }
}

/// An argument's values: one for a constant.
struct Column {
    cells: Vec<Cell>,
    is_constant: bool,
}

impl Column {
    fn of(argument: &ColumnarValue, growth: &mut Growth) -> Result<Self> {
        let (array, is_constant) = match argument {
            ColumnarValue::Array(array) => (Arc::clone(array), false),
            ColumnarValue::Scalar(value) => (value.to_array()?, true),
        };
        // A cell of a list is a cell itself, which is several times the item.
        growth.make(growth::bytes_of(array.as_ref()).saturating_mul(CELL_TIMES))?;
        Ok(Self {
            cells: cell::cells_of(&array)?,
            is_constant,
        })
    }

    fn at(&self, row: usize) -> &Cell {
        &self.cells[if self.is_constant { 0 } else { row }]
    }
}

/// How many times the bytes of an array its cells take: a cell has 32, an item at least four, and
/// they are copied for the call.
const CELL_TIMES: usize = 12;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_function_is_defined_once_and_its_types_exist() {
        let mut names = HashSet::new();
        for definition in definitions() {
            assert!(names.insert(definition.name), "{} twice", definition.name);
            for ty in definition.arguments.iter().chain([&definition.result]) {
                let ty = ty.trim_end_matches(['?', '*']);
                let ty = ty.strip_prefix("shown:").unwrap_or(ty);
                assert!(
                    [SAME, ELEMENT, PAIRS].contains(&ty) || types::oid_of_typname(ty).is_some(),
                    "{}: {ty}",
                    definition.name
                );
            }
        }
    }
}
