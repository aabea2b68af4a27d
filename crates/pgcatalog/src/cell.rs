//! Values of catalogue rows, and rows turned into Arrow batches.

use std::{borrow::Cow, sync::Arc};

use aerostat_semantics::external;
use aerostat_types::{ConstraintId, IndexId, RelationId, RoleId, SchemaId, SqlError, TenantId};
use datafusion::{
    arrow::{
        array::{
            Array, ArrayBuilder, ArrayRef, AsArray, BinaryViewBuilder, BooleanBuilder,
            Decimal128Builder, Float32Builder, Float64Builder, Int16Builder, Int32Builder,
            Int64Builder, ListArray, ListBuilder, StringViewBuilder, StructArray,
            TimestampMicrosecondBuilder, new_null_array,
        },
        buffer::OffsetBuffer,
        compute::cast,
        datatypes::{
            DataType, Field, Fields, Float64Type, Int64Type, SchemaRef, TimeUnit,
            TimestampMicrosecondType,
        },
        record_batch::{RecordBatch, RecordBatchOptions},
    },
    common::{Result, internal_err},
};

/// One value. Numbers of catalogue entries are `Int`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Cow<'static, str>),
    /// Microseconds since 1970 UTC.
    Time(i64),
    List(Vec<Cell>),
}

impl Cell {
    /// Text, or NULL for none.
    pub(crate) fn text(value: Option<impl Into<Cow<'static, str>>>) -> Self {
        value.map_or(Cell::Null, |value| Cell::Text(value.into()))
    }

    /// The number, where this is one or a text of one.
    pub(crate) fn int(&self) -> Option<i64> {
        match self {
            Cell::Int(value) => Some(*value),
            Cell::Float(value) => Some(*value as i64),
            Cell::Bool(value) => Some(i64::from(*value)),
            Cell::Text(text) => {
                let text = text.trim();
                // A decimal comes as text.
                text.parse()
                    .ok()
                    .or_else(|| text.parse::<f64>().ok().map(|value| value as i64))
            }
            Cell::Null | Cell::Time(_) | Cell::List(_) => None,
        }
    }

    /// What it takes in memory, about.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>()
            + match self {
                Cell::Text(text) => text.len(),
                Cell::List(items) => items.iter().map(Self::bytes).sum(),
                _ => 0,
            }
    }

    /// The text, where this is one.
    pub(crate) fn str(&self) -> Option<&str> {
        match self {
            Cell::Text(text) => Some(text),
            _ => None,
        }
    }

    /// What PostgreSQL's output function writes; `None` for NULL.
    pub(crate) fn shown(&self) -> Option<String> {
        Some(match self {
            Cell::Null => return None,
            Cell::Bool(value) => if *value { "t" } else { "f" }.to_owned(),
            Cell::Int(value) | Cell::Time(value) => value.to_string(),
            Cell::Float(value) => value.to_string(),
            Cell::Text(text) => text.to_string(),
            Cell::List(items) => {
                let items: Vec<String> = items
                    .iter()
                    .map(|item| item.shown().unwrap_or_else(|| "NULL".to_owned()))
                    .collect();
                format!("{{{}}}", items.join(","))
            }
        })
    }
}

impl From<bool> for Cell {
    fn from(value: bool) -> Self {
        Cell::Bool(value)
    }
}

impl From<i64> for Cell {
    fn from(value: i64) -> Self {
        Cell::Int(value)
    }
}

impl From<i32> for Cell {
    fn from(value: i32) -> Self {
        Cell::Int(value.into())
    }
}

impl From<u32> for Cell {
    fn from(value: u32) -> Self {
        Cell::Int(value.into())
    }
}

macro_rules! from_oids {
    ($($id:ident),*) => {
        $(impl From<$id> for Cell {
            fn from(id: $id) -> Self {
                Cell::Int(id.into())
            }
        })*
    };
}

from_oids!(
    ConstraintId,
    IndexId,
    RelationId,
    RoleId,
    SchemaId,
    TenantId
);

impl From<u64> for Cell {
    fn from(value: u64) -> Self {
        Cell::Int(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<usize> for Cell {
    fn from(value: usize) -> Self {
        Cell::Int(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<f64> for Cell {
    fn from(value: f64) -> Self {
        Cell::Float(value)
    }
}

impl From<&'static str> for Cell {
    fn from(value: &'static str) -> Self {
        Cell::Text(Cow::Borrowed(value))
    }
}

impl From<String> for Cell {
    fn from(value: String) -> Self {
        Cell::Text(Cow::Owned(value))
    }
}

impl From<&String> for Cell {
    fn from(value: &String) -> Self {
        Cell::Text(Cow::Owned(value.clone()))
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Cell::Null, Into::into)
    }
}

impl<T: Into<Cell>> From<Vec<T>> for Cell {
    fn from(values: Vec<T>) -> Self {
        Cell::List(values.into_iter().map(Into::into).collect())
    }
}

/// Rows of a relation under construction. A column that a row does not name is
/// NULL, or the zero of its type where NULL may not be.
pub(crate) struct Rows {
    schema: SchemaRef,
    cells: Vec<Vec<Cell>>,
    /// Why a value could not be had.
    failure: Option<SqlError>,
}

impl Rows {
    /// No rows yet.
    pub(crate) fn new(schema: SchemaRef) -> Self {
        let cells = vec![Vec::new(); schema.fields().len()];
        Self {
            schema,
            cells,
            failure: None,
        }
    }

    /// A value of the relation could not be had, so that there is no relation.
    pub(crate) fn fail(&mut self, error: SqlError) {
        self.failure = Some(error);
    }

    /// Adds a row of named values.
    pub(crate) fn push<const N: usize>(&mut self, values: [(&str, Cell); N]) {
        let rows = self.cells.first().map_or(0, Vec::len);
        for (name, value) in values {
            match self.schema.index_of(name) {
                Ok(at) => self.cells[at].push(value),
                Err(_) => debug_assert!(false, "no column {name} in {}", self.schema),
            }
        }
        for (at, cells) in self.cells.iter_mut().enumerate() {
            if cells.len() == rows {
                let field = self.schema.field(at);
                cells.push(if field.is_nullable() {
                    Cell::Null
                } else {
                    zero(field.data_type())
                });
            }
        }
    }

    /// The batch.
    pub(crate) fn finish(self) -> Result<RecordBatch> {
        if let Some(error) = self.failure {
            return Err(external(error));
        }
        let rows = self.cells.first().map_or(0, Vec::len);
        let columns = self
            .cells
            .iter()
            .zip(self.schema.fields())
            .map(|(cells, field)| array_of(cells, field.data_type()))
            .collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(
            self.schema,
            columns,
            &options,
        )?)
    }
}

fn zero(data_type: &DataType) -> Cell {
    match data_type {
        DataType::Boolean => Cell::Bool(false),
        DataType::Utf8View | DataType::BinaryView => Cell::Text(Cow::Borrowed("")),
        DataType::List(_) => Cell::List(Vec::new()),
        DataType::Timestamp(..) => Cell::Time(0),
        DataType::Float32 | DataType::Float64 => Cell::Float(0.0),
        _ => Cell::Int(0),
    }
}

/// An Arrow array of cells.
pub(crate) fn array_of(cells: &[Cell], data_type: &DataType) -> Result<ArrayRef> {
    macro_rules! integers {
        ($builder:ty) => {{
            let mut builder = <$builder>::with_capacity(cells.len());
            for cell in cells {
                builder.append_option(cell.int().and_then(|value| value.try_into().ok()));
            }
            Arc::new(builder.finish())
        }};
    }
    Ok(match data_type {
        DataType::Null => new_null_array(&DataType::Null, cells.len()),
        DataType::Boolean => {
            let mut builder = BooleanBuilder::with_capacity(cells.len());
            for cell in cells {
                builder.append_option(match cell {
                    Cell::Bool(value) => Some(*value),
                    _ => None,
                });
            }
            Arc::new(builder.finish())
        }
        DataType::Int16 => integers!(Int16Builder),
        DataType::Int32 => integers!(Int32Builder),
        DataType::Int64 => integers!(Int64Builder),
        DataType::Float32 => {
            let mut builder = Float32Builder::with_capacity(cells.len());
            for cell in cells {
                builder.append_option(float(cell).map(|value| value as f32));
            }
            Arc::new(builder.finish())
        }
        DataType::Float64 => {
            let mut builder = Float64Builder::with_capacity(cells.len());
            for cell in cells {
                builder.append_option(float(cell));
            }
            Arc::new(builder.finish())
        }
        DataType::Decimal128(precision, scale) => {
            let mut builder = Decimal128Builder::with_capacity(cells.len())
                .with_precision_and_scale(*precision, *scale)?;
            for cell in cells {
                builder.append_option(cell.int().map(i128::from));
            }
            Arc::new(builder.finish())
        }
        DataType::Utf8View => {
            let mut builder = StringViewBuilder::with_capacity(cells.len());
            for cell in cells {
                match cell {
                    Cell::Text(text) => builder.append_value(text),
                    other => builder.append_option(other.shown()),
                }
            }
            Arc::new(builder.finish())
        }
        DataType::BinaryView => {
            let mut builder = BinaryViewBuilder::with_capacity(cells.len());
            for cell in cells {
                builder.append_option(cell.str());
            }
            Arc::new(builder.finish())
        }
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            let mut builder = TimestampMicrosecondBuilder::with_capacity(cells.len())
                .with_timezone_opt(zone.clone());
            for cell in cells {
                builder.append_option(match cell {
                    Cell::Time(value) => Some(*value),
                    _ => None,
                });
            }
            Arc::new(builder.finish())
        }
        DataType::List(element) => match element.data_type() {
            DataType::Utf8View => lists(
                cells,
                ListBuilder::new(StringViewBuilder::new()),
                |builder, cell| {
                    builder.append_option(cell.shown());
                },
            ),
            DataType::Int16 => lists(
                cells,
                ListBuilder::new(Int16Builder::new()),
                |builder, cell| {
                    builder.append_option(cell.int().and_then(|value| i16::try_from(value).ok()));
                },
            ),
            DataType::Int32 => lists(
                cells,
                ListBuilder::new(Int32Builder::new()),
                |builder, cell| {
                    builder.append_option(cell.int().and_then(|value| i32::try_from(value).ok()));
                },
            ),
            DataType::Int64 => lists(
                cells,
                ListBuilder::new(Int64Builder::new()),
                |builder, cell| {
                    builder.append_option(cell.int());
                },
            ),
            DataType::Boolean => lists(
                cells,
                ListBuilder::new(BooleanBuilder::new()),
                |builder, cell| {
                    builder.append_option(match cell {
                        Cell::Bool(value) => Some(*value),
                        _ => None,
                    });
                },
            ),
            DataType::Float32 | DataType::Float64 => {
                let doubles = lists(
                    cells,
                    ListBuilder::new(Float64Builder::new()),
                    |builder, cell| {
                        builder.append_option(float(cell));
                    },
                );
                cast(&doubles, data_type)?
            }
            DataType::Struct(fields) => pairs(cells, fields)?,
            other => return internal_err!("a catalogue array of {other}"),
        },
        other => return internal_err!("a catalogue column of {other}"),
    })
}

/// The type of an array of pairs: an item `x` and its place `n`.
pub(crate) fn pairs_type(item: DataType) -> DataType {
    let fields = Fields::from(vec![
        Field::new("x", item, true),
        Field::new("n", DataType::Int32, true),
    ]);
    DataType::List(Arc::new(Field::new_list_field(
        DataType::Struct(fields),
        true,
    )))
}

/// Arrays whose items get their places.
fn pairs(cells: &[Cell], fields: &Fields) -> Result<ArrayRef> {
    let (mut items, mut places, mut lengths, mut valid) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for cell in cells {
        let list: &[Cell] = match cell {
            Cell::List(list) => list,
            _ => &[],
        };
        items.extend_from_slice(list);
        places.extend((1..=list.len()).map(Cell::from));
        lengths.push(list.len());
        valid.push(matches!(cell, Cell::List(_)));
    }
    let columns = vec![
        array_of(&items, fields[0].data_type())?,
        array_of(&places, fields[1].data_type())?,
    ];
    let values = StructArray::try_new(fields.clone(), columns, None)?;
    let field = Arc::new(Field::new_list_field(
        DataType::Struct(fields.clone()),
        true,
    ));
    let lists = ListArray::try_new(
        field,
        OffsetBuffer::from_lengths(lengths),
        Arc::new(values),
        Some(valid.into()),
    )?;
    Ok(Arc::new(lists))
}

fn float(cell: &Cell) -> Option<f64> {
    match cell {
        Cell::Float(value) => Some(*value),
        Cell::Int(value) => Some(*value as f64),
        _ => None,
    }
}

fn lists<B: ArrayBuilder>(
    cells: &[Cell],
    mut builder: ListBuilder<B>,
    append: impl Fn(&mut B, &Cell),
) -> ArrayRef {
    for cell in cells {
        match cell {
            Cell::List(items) => {
                for item in items {
                    append(builder.values(), item);
                }
                builder.append(true);
            }
            _ => builder.append(false),
        }
    }
    Arc::new(builder.finish())
}

/// The cells of an Arrow array of any type a catalogue function may be given.
pub(crate) fn cells_of(array: &ArrayRef) -> Result<Vec<Cell>> {
    let rows = array.len();
    let at = |row: usize, cell: &dyn Fn(usize) -> Cell| {
        if array.is_null(row) {
            Cell::Null
        } else {
            cell(row)
        }
    };
    Ok(match array.data_type() {
        DataType::Null => vec![Cell::Null; rows],
        DataType::Boolean => {
            let values = array.as_boolean();
            (0..rows)
                .map(|row| at(row, &|row| Cell::Bool(values.value(row))))
                .collect()
        }
        DataType::Float16 | DataType::Float32 | DataType::Float64 => {
            let values = cast(array, &DataType::Float64)?;
            let values = values.as_primitive::<Float64Type>().clone();
            (0..rows)
                .map(|row| at(row, &|row| Cell::Float(values.value(row))))
                .collect()
        }
        data_type if data_type.is_integer() => {
            let values = cast(array, &DataType::Int64)?;
            let values = values.as_primitive::<Int64Type>().clone();
            (0..rows)
                .map(|row| at(row, &|row| Cell::Int(values.value(row))))
                .collect()
        }
        DataType::Timestamp(_, Some(_)) => {
            let micros = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
            let values = cast(array, &micros)?;
            let values = values.as_primitive::<TimestampMicrosecondType>().clone();
            (0..rows)
                .map(|row| at(row, &|row| Cell::Time(values.value(row))))
                .collect()
        }
        DataType::List(_) => {
            let lists = array.as_list::<i32>();
            (0..rows)
                .map(|row| {
                    if lists.is_null(row) {
                        return Ok(Cell::Null);
                    }
                    Ok(Cell::List(cells_of(&lists.value(row))?))
                })
                .collect::<Result<_>>()?
        }
        DataType::LargeList(element) | DataType::FixedSizeList(element, _) => {
            return cells_of(&cast(array, &DataType::List(Arc::clone(element)))?);
        }
        _ => {
            let values = cast(array, &DataType::Utf8View)?;
            let values = values.as_string_view().clone();
            (0..rows)
                .map(|row| at(row, &|row| Cell::Text(values.value(row).to_owned().into())))
                .collect()
        }
    })
}
