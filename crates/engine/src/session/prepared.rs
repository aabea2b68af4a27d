//! Prepared statements, of the protocol and of PREPARE.

use std::{sync::Arc, time::Instant};

use aerostat_api::{ColumnDescription, ParameterType, Value};
use aerostat_query::plan::{
    Items, has_function_parameters, parameter_count, read_items, write_arrays,
};
use aerostat_sql::{
    statement::{Source, Statement, StatementKind},
    utility::{CursorCommand, PreparedCommand, SettingCommand, Utility},
};
use aerostat_types::{ErrorKind, SqlError, SqlType, text};
use datafusion::{
    arrow::datatypes::DataType,
    common::{ParamValues, ScalarValue},
    sql::sqlparser::ast,
};

use super::{
    ClientState, Executor, SessionView, TransactionState,
    admission::kind_of,
    cursor::cursor_query,
    described::Described,
    fast::FastStatement,
    infer::{infer, parameter_field},
    machine::Kind,
    reading::{Tree, drop_elsewhere, is_long, worked_out},
    run::{Parameters, at},
    settings::shown_name,
    shown::show_all_columns,
};

/// A prepared statement.
#[derive(Clone)]
pub struct Prepared {
    pub(crate) statement: Statement,
    /// The types of its parameters.
    pub parameters: Vec<ParameterType>,
    /// The columns it returns; `None` if it returns no rows.
    pub columns: Option<Arc<[ColumnDescription]>>,
    /// Whether some of its parameters are written into it before it is planned.
    is_written: bool,
    /// As the fast path reads it, if that can.
    pub(super) fast: Option<Arc<FastStatement>>,
}

impl Drop for Prepared {
    fn drop(&mut self) {
        drop_elsewhere(&mut self.statement);
    }
}

impl Prepared {
    /// The statement's text.
    pub fn text(&self) -> &str {
        self.statement.text()
    }

    /// What kind of statement it is for its transaction.
    pub(super) fn kind(&self) -> Kind {
        kind_of(&self.statement.kind)
    }

    /// Requires as many values as it has parameters.
    ///
    /// # Errors
    /// `ProtocolViolation`.
    pub(super) fn require_values(&self, values: &[Value]) -> Result<(), SqlError> {
        if values.len() == self.parameters.len() {
            return Ok(());
        }
        Err(SqlError::new(
            ErrorKind::ProtocolViolation,
            format!(
                "bind message supplies {} parameters, but prepared statement requires {}",
                values.len(),
                self.parameters.len()
            ),
        ))
    }

    /// Whether only the fast path has read its text.
    pub(super) fn is_unread(&self) -> bool {
        matches!(self.statement.kind, StatementKind::Unread)
    }

    /// Whether it is a query or DML.
    pub(super) fn is_planned(&self) -> bool {
        match &self.statement.kind {
            StatementKind::Sql(parsed) => matches!(
                &**parsed,
                ast::Statement::Query(_)
                    | ast::Statement::Insert(_)
                    | ast::Statement::Update(_)
                    | ast::Statement::Delete(_)
                    | ast::Statement::Merge(_)
            ),
            _ => false,
        }
    }
}

/// A prepared statement with values for its parameters.
pub(super) struct Bound<'a> {
    prepared: &'a Prepared,
    values: Vec<ScalarValue>,
    /// The values that are written into the statement, see [`write_arrays`].
    written: Vec<Option<Items>>,
    /// Whether the statement has its values instead of its parameters already.
    is_filled: bool,
}

impl<'a> Bound<'a> {
    /// A statement with values of its parameters.
    ///
    /// # Errors
    /// A value is not of its parameter's type.
    pub(super) fn new(prepared: &'a Prepared, values: &[Value]) -> Result<Self, SqlError> {
        let values = scalars(prepared, values)?;
        let written = if prepared.is_written {
            written_values(prepared, &values)?
        } else {
            Vec::new()
        };
        Ok(Self {
            prepared,
            values,
            written,
            is_filled: false,
        })
    }

    /// A statement that has been filled with the arguments of EXECUTE.
    pub(super) fn filled(prepared: &'a Prepared) -> Self {
        Self {
            prepared,
            values: Vec::new(),
            written: Vec::new(),
            is_filled: true,
        }
    }

    /// The columns that its client was told of.
    pub(super) fn described(&self) -> Described {
        let is_written = self.prepared.is_written || self.is_filled;
        Described::new(self.prepared.columns.clone(), is_written)
    }

    pub(super) fn parameters(&self) -> Parameters {
        Parameters {
            fields: self
                .prepared
                .parameters
                .iter()
                .map(|ty| Some(parameter_field(*ty)))
                .collect(),
            values: (!self.values.is_empty()).then(|| ParamValues::from(self.values.clone())),
            described: self.described(),
        }
    }

    /// Whether the statement is planned as it is written.
    pub(super) fn is_as_written(&self) -> bool {
        !self.prepared.is_written || self.is_filled
    }

    /// The types of its parameters.
    pub(super) fn types(&self) -> &[ParameterType] {
        &self.prepared.parameters
    }

    /// The statement with those of its parameters written out that cannot be planned.
    pub(super) fn write_arrays(
        bound: Option<&Self>,
        parsed: &Arc<ast::Statement>,
    ) -> Arc<ast::Statement> {
        let Some(bound) = bound.filter(|bound| bound.prepared.is_written && !bound.is_filled)
        else {
            return Arc::clone(parsed);
        };
        let types: Vec<_> = bound
            .prepared
            .parameters
            .iter()
            .copied()
            .map(Some)
            .collect();
        let mut written = (**parsed).clone();
        write_arrays(&mut written, &types, &[], &bound.written);
        Arc::new(written)
    }
}

impl ClientState {
    /// Prepares a statement whose text is yet to be read.
    async fn prepare_planned(
        &mut self,
        transaction: &TransactionState,
        executor: &Executor,
        text: &Arc<str>,
        types: Vec<Option<ParameterType>>,
    ) -> Result<Prepared, SqlError> {
        let started = Instant::now();
        let statement = executor.read_single(self, text).await?;
        self.read_for += started.elapsed();
        // Also where it is refused.
        let _tree = Tree {
            statement: statement.clone(),
        };
        transaction.machine.admit(kind_of(&statement.kind))?;
        let view = SessionView::of(self, transaction, executor);
        view.prepare_typed(statement, types).await
    }

    /// A statement of which only the fast path has read the text, as the planner takes it.
    pub(super) async fn as_planned(
        &mut self,
        transaction: &TransactionState,
        executor: &Executor,
        prepared: &Prepared,
    ) -> Result<Option<Prepared>, SqlError> {
        if !prepared.is_unread() {
            return Ok(None);
        }
        let text = &prepared.statement.source.text;
        let types = prepared.parameters.iter().copied().map(Some).collect();
        let planned = self.prepare_planned(transaction, executor, text, types);
        planned.await.map(Some)
    }

    /// The columns that a prepared statement gives if it is run now.
    pub(super) fn columns_now(&self, prepared: &Prepared) -> Option<Arc<[ColumnDescription]>> {
        match &prepared.statement.kind {
            StatementKind::Utility(utility) => self.utility_columns(utility),
            _ => prepared.columns.clone(),
        }
    }

    fn utility_columns(&self, utility: &Utility) -> Option<Arc<[ColumnDescription]>> {
        match utility {
            Utility::Cursor(CursorCommand::Fetch {
                name,
                is_move: false,
                ..
            }) => self.cursors.columns(name),
            Utility::Prepared(PreparedCommand::Execute { name, .. }) => {
                let (prepared, _) = self.prepared.get(name)?;
                prepared.columns.clone()
            }
            Utility::Setting(SettingCommand::Show(name)) => {
                Some([ColumnDescription::new(shown_name(name), SqlType::Text)].into())
            }
            Utility::Setting(SettingCommand::ShowAll) => Some(show_all_columns()),
            _ => None,
        }
    }
}

impl Executor {
    /// Prepares a statement: finds out the types of its parameters and columns.
    /// A parameter whose OID is 0 or missing gets its type from its place.
    ///
    /// # Errors
    /// Anything that can be wrong with a statement before it runs.
    pub(super) async fn prepare(
        &mut self,
        client: &mut ClientState,
        transaction: &TransactionState,
        text: &str,
        parameter_oids: &[u32],
    ) -> Result<Prepared, SqlError> {
        if let Some(prepared) = self.prepared_before(client, transaction, text, parameter_oids) {
            return Ok(prepared);
        }
        let mut types = Vec::with_capacity(parameter_oids.len());
        for (at, &oid) in parameter_oids.iter().enumerate() {
            // 0 is unspecified, 705 is `unknown`.
            types.push(match oid {
                0 | 705 => None,
                _ => Some(ParameterType::from_oid(oid).ok_or_else(|| {
                    SqlError::new(
                        ErrorKind::FeatureNotSupported,
                        format!(
                            "parameter ${} has a type that is not supported: OID {oid}",
                            at + 1
                        ),
                    )
                })?),
            });
        }
        let text: Arc<str> = text.into();
        let read = {
            let text = Arc::clone(&text);
            move || FastStatement::read_listed(&text)
        };
        let fast = match is_long(&text) {
            true => {
                let cancellation = client.cancel.begin(client.statement_timeout());
                let started = Instant::now();
                let fast = Box::pin(self.apart(read, &cancellation)).await?;
                client.read_for += started.elapsed();
                fast
            }
            false => read(),
        };
        let listed =
            fast.and_then(|fast| self.prepare_listed(client, transaction, &fast, &text, &types));
        let prepared = match listed {
            Some(prepared) => prepared,
            None => {
                self.follow_time_zone(client);
                client
                    .prepare_planned(transaction, self, &text, types)
                    .await?
            }
        };
        self.keep_prepared(client, transaction, &text, parameter_oids, &prepared);
        Ok(prepared)
    }

    /// Prepares an INSERT whose rows its text lists. It is parsed when the fast path does not
    /// take it.
    fn prepare_listed(
        &self,
        client: &mut ClientState,
        transaction: &TransactionState,
        fast: &FastStatement,
        text: &Arc<str>,
        types: &[Option<ParameterType>],
    ) -> Option<Prepared> {
        let parameters = self.listed_parameters(client, transaction, fast, types)?;
        // An array that the statement does not take as one is the planner's.
        let arrays = parameters.iter().filter(|ty| ty.item().is_some());
        if arrays.count() > fast.arrays() {
            return None;
        }
        let fast = fast.with_types(parameters.iter().map(|ty| ty.carrier()).collect());
        let source = Source::of(Arc::clone(text));
        Some(Prepared {
            statement: Statement {
                kind: StatementKind::Unread,
                source,
            },
            parameters,
            columns: None,
            is_written: false,
            fast: Some(fast),
        })
    }
}

impl SessionView<'_> {
    pub(super) async fn prepare_typed(
        self,
        mut statement: Statement,
        mut types: Vec<Option<ParameterType>>,
    ) -> Result<Prepared, SqlError> {
        let mut is_written = false;
        let columns = match &statement.kind {
            StatementKind::Empty | StatementKind::Unread => None,
            StatementKind::Utility(utility) => match &**utility {
                // The parameters are those of the cursor's query.
                Utility::Cursor(CursorCommand::Declare { query, .. }) => {
                    let query = cursor_query(query, &statement.source)?;
                    let mut inferred = Box::pin(self.prepare_typed(query, types)).await?;
                    is_written = inferred.is_written;
                    let parameters = std::mem::take(&mut inferred.parameters);
                    types = parameters.into_iter().map(Some).collect();
                    None
                }
                other => self.client.utility_columns(other),
            },
            StatementKind::Sql(parsed) => {
                let cancellation = self.client.cancel.begin(self.client.statement_timeout());
                let walked = Arc::clone(parsed);
                let walk = move || (has_function_parameters(&walked), parameter_count(&walked));
                let (written, count) = match is_long(statement.text()) {
                    true => Box::pin(self.executor.apart(walk, &cancellation)).await?,
                    false => walk(),
                };
                let count = count?;
                is_written = written;
                if types.len() < count {
                    types.resize(count, None);
                }
                let snapshot = self.executor.txns().snapshot();
                let context = self.context(&self.open_gate()?, snapshot)?;
                let (parsed, source) = (Arc::clone(parsed), statement.source.clone());
                let readers = Arc::clone(self.executor.engine.readers());
                let work = async move {
                    let inferred = async { infer(&context, &parsed, &mut types) };
                    let columns = worked_out(&readers, &source.text, inferred).await;
                    columns.map_err(at(&source)).map(|columns| (columns, types))
                };
                let (columns, inferred) = self
                    .executor
                    .on_query_runtime(work, &cancellation)
                    .await??;
                types = inferred;
                columns
            }
        };
        let parameters: Vec<ParameterType> = types
            .into_iter()
            .map(|ty| ty.unwrap_or(ParameterType::Value(SqlType::Text)))
            .collect();
        let takes_arrays = parameters.iter().any(|ty| ty.item().is_some());
        is_written |= takes_arrays;
        let values: Option<Vec<SqlType>> = parameters.iter().map(|ty| ty.value()).collect();
        // The caller charges the text where the statement is kept.
        statement.source.room = None;
        let fast = match (&statement.kind, values) {
            (StatementKind::Sql(_), Some(values)) => FastStatement::read(statement.text(), &values),
            _ => None,
        };
        Ok(Prepared {
            fast,
            statement,
            parameters,
            columns,
            is_written,
        })
    }
}

/// The values of parameters where one is a `char` with trailing blanks, which are no part of it.
pub(super) fn without_blanks(
    types: &[ParameterType],
    values: &Arc<[Value]>,
) -> Option<Arc<[Value]>> {
    let ends_blank = |(ty, value): (&ParameterType, &Value)| match (ty, value) {
        (ParameterType::Value(SqlType::Char(_)), Value::Text(text)) => text.ends_with(' '),
        _ => false,
    };
    if !types.iter().zip(&**values).any(ends_blank) {
        return None;
    }
    let trimmed = types.iter().zip(&**values).map(|pair| match pair {
        (ParameterType::Value(SqlType::Char(_)), Value::Text(text)) => {
            Value::Text(text.trim_end_matches(' ').into())
        }
        (_, value) => value.clone(),
    });
    Some(trimmed.collect())
}

/// The values of parameters as the planner takes them.
fn scalars(prepared: &Prepared, values: &[Value]) -> Result<Vec<ScalarValue>, SqlError> {
    let types = prepared.parameters.iter();
    let scalars = types.zip(values).enumerate().map(|(at, (ty, value))| {
        scalar(ty.carrier(), value).ok_or_else(|| {
            SqlError::new(
                ErrorKind::Internal,
                format!("parameter ${} is not of its type", at + 1),
            )
        })
    });
    scalars.collect()
}

/// A value as one of the type's Arrow type. `None` if it is of another type.
fn scalar(ty: SqlType, value: &Value) -> Option<ScalarValue> {
    Some(match (ty, value) {
        (_, Value::Null) => ScalarValue::try_from(&ty.arrow()).ok()?,
        _ if !value.is_of(ty) => return None,
        (_, Value::Bool(value)) => ScalarValue::Boolean(Some(*value)),
        (_, Value::I16(value)) => ScalarValue::Int16(Some(*value)),
        (SqlType::Date, Value::I32(value)) => ScalarValue::Date32(Some(*value)),
        (_, Value::I32(value)) => ScalarValue::Int32(Some(*value)),
        (SqlType::Time, Value::I64(value)) => ScalarValue::Time64Microsecond(Some(*value)),
        (SqlType::Timestamp | SqlType::TimestampTz, Value::I64(value)) => {
            let DataType::Timestamp(_, zone) = ty.arrow() else {
                return None;
            };
            ScalarValue::TimestampMicrosecond(Some(*value), zone)
        }
        (_, Value::I64(value)) => ScalarValue::Int64(Some(*value)),
        (SqlType::Numeric { .. }, Value::I128(value)) => {
            let DataType::Decimal128(precision, scale) = ty.arrow() else {
                return None;
            };
            ScalarValue::Decimal128(Some(*value), precision, scale)
        }
        (_, Value::F32(value)) => ScalarValue::Float32(Some(*value)),
        (_, Value::F64(value)) => ScalarValue::Float64(Some(*value)),
        (_, Value::Uuid(value)) => ScalarValue::FixedSizeBinary(16, Some(value.to_vec())),
        (_, Value::Interval(value)) => ScalarValue::IntervalMonthDayNano(Some(*value)),
        (_, Value::Text(value)) => ScalarValue::Utf8View(Some(value.to_string())),
        (_, Value::Bytes(value)) => ScalarValue::BinaryView(Some(value.to_vec())),
        (_, Value::I128(_)) => return None,
    })
}

/// The values of parameters as they are written into a statement.
fn written_values(
    prepared: &Prepared,
    values: &[ScalarValue],
) -> Result<Vec<Option<Items>>, SqlError> {
    let written = |(ty, value): (&ParameterType, &ScalarValue)| {
        let Some(text) = written_value(value)? else {
            return Ok(None);
        };
        match ty.item() {
            Some(_) => read_items(&text).map(Some),
            None => Ok(Some(vec![Some(text)])),
        }
    };
    prepared
        .parameters
        .iter()
        .zip(values)
        .map(written)
        .collect()
}

fn written_value(value: &ScalarValue) -> Result<Option<String>, SqlError> {
    let mut written = String::new();
    match value {
        ScalarValue::FixedSizeBinary(_, Some(bytes)) if bytes.len() == 16 => {
            let uuid = bytes.as_slice().try_into().unwrap_or_default();
            text::format_uuid(&uuid, &mut written);
        }
        ScalarValue::BinaryView(Some(bytes)) => text::format_bytea(bytes, &mut written),
        _ if value.is_null() => return Ok(None),
        other => match other.cast_to(&DataType::Utf8).map_err(super::plain)? {
            ScalarValue::Utf8(Some(text)) => written = text,
            _ => return Ok(None),
        },
    }
    Ok(Some(written))
}
