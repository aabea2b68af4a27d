//! Prepared statements, of the protocol and of PREPARE.

use std::{sync::Arc, time::Instant};

use aerostat_types::{Column, ErrorKind, NUMERIC_DEFAULT, SqlError, SqlType};
use datafusion::{
    arrow::datatypes::{DataType, Field, FieldRef},
    common::{ParamValues, ScalarValue},
    logical_expr::LogicalPlan,
    sql::sqlparser::ast::{
        self, AssignmentTarget, OnConflictAction, OnInsert, SetExpr, TableObject,
    },
};

use super::{
    Session, control,
    cursor::cursor_query,
    described::Described,
    fast::FastStatement,
    memory::Held,
    named::NamedStatement,
    reading::{Tree, drop_elsewhere, is_long, worked_out},
    run::{Parameters, at, bind_work},
    settings::shown_name,
    steps::{bind_steps, has_steps},
};
use crate::{
    api::{ColumnDescription, Outcome, ParameterType, Value},
    plan::{
        Items, StatementContext, Work, analyze, array_parameters, bare_placeholder,
        column_identifiers, declare, declared_parameters, describe_columns,
        has_function_parameters, locking::without_locks, parameter_count, read_items,
        table_reference, write_arrays,
    },
    statement::{
        Source, Statement, StatementKind,
        merge::{Action, action},
        modifying::changes,
    },
    utility::{CursorCommand, PreparedCommand, SettingCommand, Utility},
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
    /// What is written of them into the statement, see [`write_arrays`].
    written: Vec<Option<Items>>,
    /// Whether the statement has its values instead of its parameters already.
    is_filled: bool,
}

impl<'a> Bound<'a> {
    /// One whose statement has been filled with the arguments of EXECUTE.
    pub(super) fn filled(prepared: &'a Prepared) -> Self {
        Self {
            prepared,
            values: Vec::new(),
            written: Vec::new(),
            is_filled: true,
        }
    }

    /// The result that its client was told of.
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

/// What a parameter is to the planner. One that goes into a `varchar(n)` or `char(n)` may be
/// longer: it is measured when it gets there.
pub(super) fn parameter_field(ty: ParameterType) -> FieldRef {
    let any_length = match ty.carrier() {
        SqlType::Varchar(_) => SqlType::Varchar(None),
        SqlType::Char(_) => SqlType::BPCHAR,
        other => other,
    };
    Arc::new(any_length.field("", true))
}

impl Session {
    /// Prepares a statement: finds out the types of its parameters and columns.
    /// A parameter whose OID is 0 or missing gets its type from its place.
    ///
    /// # Errors
    /// Anything that can be wrong with a statement before it runs.
    pub async fn prepare(
        &mut self,
        text: &str,
        parameter_oids: &[u32],
    ) -> Result<Prepared, SqlError> {
        if let Some(prepared) = self.prepared_before(text, parameter_oids) {
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
                let cancellation = self.cancel.begin(self.statement_timeout());
                let started = Instant::now();
                let fast = Box::pin(self.apart(read, &cancellation)).await?;
                self.read_for += started.elapsed();
                fast
            }
            false => read(),
        };
        let listed = fast.and_then(|fast| self.prepare_listed(&fast, &text, &types));
        let prepared = match listed {
            Some(prepared) => prepared,
            None => self.prepare_planned(&text, types).await?,
        };
        self.keep_prepared(&text, parameter_oids, &prepared);
        Ok(prepared)
    }

    /// Prepares an INSERT whose rows its text lists. It is parsed when the fast path does not
    /// take it.
    fn prepare_listed(
        &mut self,
        fast: &FastStatement,
        text: &Arc<str>,
        types: &[Option<ParameterType>],
    ) -> Option<Prepared> {
        let parameters = self.listed_parameters(fast, types)?;
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

    async fn prepare_planned(
        &mut self,
        text: &Arc<str>,
        types: Vec<Option<ParameterType>>,
    ) -> Result<Prepared, SqlError> {
        let started = Instant::now();
        let statement = self.read_single(text).await?;
        self.read_for += started.elapsed();
        // Also where it is refused.
        let _tree = Tree {
            statement: statement.clone(),
        };
        self.refuse_after_failure(&statement.kind)?;
        self.follow_time_zone();
        self.prepare_typed(statement, types).await
    }

    pub(super) async fn prepare_typed(
        &mut self,
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
                other => self.utility_columns(other),
            },
            StatementKind::Sql(parsed) => {
                let cancellation = self.cancel.begin(self.statement_timeout());
                let walked = Arc::clone(parsed);
                let walk = move || (has_function_parameters(&walked), parameter_count(&walked));
                let (written, count) = match is_long(statement.text()) {
                    true => Box::pin(self.apart(walk, &cancellation)).await?,
                    false => walk(),
                };
                let count = count?;
                is_written = written;
                if types.len() < count {
                    types.resize(count, None);
                }
                let snapshot = self.connection.database().store.txns().snapshot();
                let context = self.context(&self.open_gate()?, snapshot)?;
                let (parsed, source) = (Arc::clone(parsed), statement.source.clone());
                let readers = Arc::clone(self.engine.readers());
                let work = async move {
                    let inferred = async { infer(&context, &parsed, &mut types) };
                    let columns = worked_out(&readers, &source.text, inferred).await;
                    columns.map_err(at(&source)).map(|columns| (columns, types))
                };
                let (columns, inferred) = self.on_query_runtime(work, &cancellation).await??;
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
        // Who keeps it has charged it.
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

    /// Runs a prepared statement with values of its parameters, each of the type that
    /// [`ParameterType::carrier`] has.
    ///
    /// # Errors
    /// Anything that can be wrong with a statement. Nothing of it has happened then.
    pub async fn execute_prepared(
        &mut self,
        prepared: &Prepared,
        parameters: &Arc<[Value]>,
    ) -> Result<Outcome, SqlError> {
        if parameters.len() != prepared.parameters.len() {
            return Err(SqlError::new(
                ErrorKind::ProtocolViolation,
                format!(
                    "bind message supplies {} parameters, but prepared statement requires {}",
                    parameters.len(),
                    prepared.parameters.len()
                ),
            ));
        }
        let without_blanks = without_blanks(&prepared.parameters, parameters);
        let parameters = without_blanks.as_ref().unwrap_or(parameters);
        if let Some(fast) = &prepared.fast
            && let Some(outcome) = self.run_fast(fast, parameters, Some(prepared)).await?
        {
            return Ok(outcome);
        }
        if let Some(planned) = Box::pin(self.as_planned(prepared)).await? {
            return Box::pin(self.run_bound(&planned, parameters)).await;
        }
        Box::pin(self.run_bound(prepared, parameters)).await
    }

    /// The columns that a prepared statement gives if it is run now. FETCH gives its cursor's, and
    /// EXECUTE its statement's, whatever they were when it was prepared.
    pub fn columns_now(&self, prepared: &Prepared) -> Option<Arc<[ColumnDescription]>> {
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
            Utility::Setting(SettingCommand::ShowAll) => Some(super::command::show_all_columns()),
            _ => None,
        }
    }

    /// A statement of which only the fast path has read the text, as the planner takes it.
    pub(super) async fn as_planned(
        &mut self,
        prepared: &Prepared,
    ) -> Result<Option<Prepared>, SqlError> {
        if !matches!(prepared.statement.kind, StatementKind::Unread) {
            return Ok(None);
        }
        let text = &prepared.statement.source.text;
        let types = prepared.parameters.iter().copied().map(Some).collect();
        self.prepare_planned(text, types).await.map(Some)
    }

    /// Whether a prepared statement that has begun may go on.
    ///
    /// # Errors
    /// `InFailedTransaction`.
    pub fn admit_again(&self, prepared: &Prepared) -> Result<(), SqlError> {
        self.refuse_after_failure(&prepared.statement.kind)
    }

    /// Whether another prepared statement may have this name.
    ///
    /// # Errors
    /// `DuplicatePreparedStatement`, `ProgramLimitExceeded`.
    pub fn admit_name(&self, name: &str) -> Result<(), SqlError> {
        self.prepared.admit(name)
    }

    /// Keeps a prepared statement under a name, beside those of PREPARE. `oids` are the numbers of
    /// its parameters' types that the client is told.
    pub fn keep(&mut self, name: &str, prepared: Arc<Prepared>, oids: Arc<[u32]>, held: Held) {
        let named = NamedStatement::of_protocol(prepared, oids, held);
        self.prepared.keep(name, named);
    }

    /// The prepared statement of a name, of whoever, and the numbers of its parameters' types.
    pub fn named(&self, name: &str) -> Option<(Arc<Prepared>, Arc<[u32]>)> {
        self.prepared.get(name)
    }

    /// The same for an execution, which counts, without the numbers.
    pub fn named_to_run(&self, name: &str) -> Option<Arc<Prepared>> {
        self.prepared.count(name)
    }

    /// Forgets the prepared statement of a name, if there is one.
    pub fn forget(&mut self, name: &str) {
        // One that is not there is none to be forgotten.
        let _ = self.prepared.forget(name);
    }

    /// Runs a prepared statement the planner's way.
    async fn run_bound(
        &mut self,
        prepared: &Prepared,
        parameters: &Arc<[Value]>,
    ) -> Result<Outcome, SqlError> {
        if let Some(command) = control(&prepared.statement.kind) {
            return self.run_control(command, &prepared.statement).await;
        }
        let values = scalars(prepared, parameters)?;
        let written = if prepared.is_written {
            written_values(prepared, &values)?
        } else {
            Vec::new()
        };
        let bound = Bound {
            prepared,
            values,
            written,
            is_filled: false,
        };
        Box::pin(self.run(&prepared.statement, Some(&bound))).await
    }
}

/// The values of parameters where one is a `char` with trailing blanks, which are no part of it.
fn without_blanks(types: &[ParameterType], values: &Arc<[Value]>) -> Option<Arc<[Value]>> {
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
        let text = match value.cast_to(&DataType::Utf8).map_err(super::plain)? {
            ScalarValue::Utf8(Some(text)) => text,
            _ => return Ok(None),
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

/// Finds the types that are still open, and the columns of the result.
pub(super) fn infer(
    context: &StatementContext,
    parsed: &ast::Statement,
    types: &mut Vec<Option<ParameterType>>,
) -> datafusion::common::Result<Option<Arc<[ColumnDescription]>>> {
    take_digits(context, parsed, types);
    find_types(context, parsed, types)?;
    let mut written = parsed.clone();
    write_arrays(&mut written, types, &[], &[]);
    match plan_any(context, &written, &known(types))?.pop() {
        Some(Work::Query(plan, origins)) => {
            let analyzed = analyze(&context.state, plan)?;
            let schema = analyzed.schema().as_arrow();
            Ok(Some(describe_columns(&origins, schema)))
        }
        Some(Work::Dml(bound)) => {
            let analyzed = analyze(&context.state, bound.source.clone())?;
            Ok(bound.returned(&analyzed))
        }
        None if matches!(parsed, ast::Statement::Explain { .. }) => Ok(Some(
            [ColumnDescription::new("QUERY PLAN", SqlType::Text)].into(),
        )),
        None => Ok(None),
    }
}

/// A numeric that the client declares has no digits of its own: it takes those of the numeric that it stands
/// beside or goes into, lest a value loses what there is room for.
fn take_digits(
    context: &StatementContext,
    parsed: &ast::Statement,
    types: &mut [Option<ParameterType>],
) {
    let declared = Some(ParameterType::Value(NUMERIC_DEFAULT));
    if !types.contains(&declared) {
        return;
    }
    let mut found: Vec<_> = types
        .iter()
        .map(|ty| ty.filter(|_| *ty != declared))
        .collect();
    // What cannot be told without the type keeps it.
    if find_types(context, parsed, &mut found).is_err() {
        return;
    }
    for (ty, found) in types.iter_mut().zip(found) {
        if *ty == declared && found.is_some_and(|found| found.oid() == NUMERIC_DEFAULT.oid()) {
            *ty = found;
        }
    }
}

fn known(types: &[Option<ParameterType>]) -> Parameters {
    Parameters {
        fields: types.iter().map(|ty| ty.map(parameter_field)).collect(),
        ..Parameters::default()
    }
}

/// Finds the types that are still open: a first plan tells what DataFusion infers.
fn find_types(
    context: &StatementContext,
    parsed: &ast::Statement,
    types: &mut Vec<Option<ParameterType>>,
) -> datafusion::common::Result<()> {
    declared_parameters(parsed, types);
    declare_by_column(context, parsed, types);
    if types.iter().any(Option::is_none) {
        let arrays = array_parameters(parsed);
        let mut written = parsed.clone();
        write_arrays(&mut written, types, &arrays, &[]);
        let inferred_type = |n: usize, ty: SqlType| {
            if arrays.contains(&n) {
                ParameterType::Array(ty)
            } else {
                ParameterType::Value(ty)
            }
        };
        // A subquery that locks is planned apart, out of sight.
        let works = plan_any(context, &without_locks(&written), &known(types))?;
        let plans: Vec<&LogicalPlan> = works.iter().flat_map(Work::plans).collect();
        let take = |types: &mut Vec<Option<ParameterType>>,
                    plan: &LogicalPlan|
         -> datafusion::common::Result<()> {
            for (name, field) in plan.get_parameter_fields()? {
                let number = name.strip_prefix('$').and_then(|n| n.parse().ok());
                if let (Some(number), Some(field)) = (number, field)
                    && let Some(ty) = type_beside(&field)
                {
                    declare(types, number, inferred_type(number, ty));
                }
            }
            Ok(())
        };
        plans.iter().try_for_each(|plan| take(types, plan))?;
        // What stands beside others in CASE, COALESCE, UNION and the like is known once they are brought
        // to one type. A plan that cannot be made without all types is made below, or refused there.
        if types.iter().any(Option::is_none) {
            for plan in plans {
                let analyzed = analyze(&context.state, plan.clone());
                let _ = analyzed.and_then(|plan| take(types, &plan));
            }
        }
        for (at, ty) in types.iter_mut().enumerate() {
            ty.get_or_insert(inferred_type(at + 1, SqlType::Text));
        }
    }
    Ok(())
}

/// The type of a parameter that stands beside a value of this field, which for PostgreSQL is a text beside a
/// `varchar`, and a `bpchar` of any length, whose trailing blanks count for nothing, beside a `char`.
fn type_beside(field: &Field) -> Option<SqlType> {
    match SqlType::of_field(field)? {
        SqlType::Char(_) => Some(SqlType::BPCHAR),
        SqlType::Varchar(_) => Some(SqlType::Text),
        other => Some(other),
    }
}

/// What a statement does, step by step, itself last; nothing for one that is no query and
/// changes no rows.
fn plan_any(
    context: &StatementContext,
    parsed: &ast::Statement,
    parameters: &Parameters,
) -> datafusion::common::Result<Vec<Work>> {
    Ok(match parsed {
        ast::Statement::Query(_) if has_steps(context, parsed) => {
            let steps = bind_steps(context, parsed, parameters)?;
            steps.into_iter().map(|step| step.work).collect()
        }
        ast::Statement::Query(_)
        | ast::Statement::Insert(_)
        | ast::Statement::Update(_)
        | ast::Statement::Delete(_)
        | ast::Statement::Merge(_) => vec![bind_work(context, parsed, parameters)?],
        _ => Vec::new(),
    })
}

/// Parameters that stand alone as a column's new value have the column's type.
fn declare_by_column(
    context: &StatementContext,
    parsed: &ast::Statement,
    types: &mut Vec<Option<ParameterType>>,
) {
    let column_types = |name: &ast::ObjectName| {
        let reference = table_reference(name).ok()?;
        let (_, relation) = context.resolve(&reference).ok()?;
        Some(relation.columns().to_vec())
    };
    changes(parsed).for_each(|change| match change {
        ast::Statement::Insert(insert) => {
            let TableObject::TableName(name) = &insert.table else {
                return;
            };
            let Some(columns) = column_types(name) else {
                return;
            };
            if let Some(OnInsert::OnConflict(on)) = &insert.on
                && let OnConflictAction::DoUpdate(update) = &on.action
            {
                declare_assigned(&update.assignments, &columns, types);
            }
            let Some(query) = &insert.source else { return };
            let SetExpr::Values(values) = &*query.body else {
                return;
            };
            for row in &values.rows {
                declare_row(&row.content, &insert.columns, &columns, types);
            }
        }
        ast::Statement::Update(update) => {
            let ast::TableFactor::Table { name, .. } = &update.table.relation else {
                return;
            };
            let Some(columns) = column_types(name) else {
                return;
            };
            declare_assigned(&update.assignments, &columns, types);
        }
        ast::Statement::Merge(merge) => {
            let ast::TableFactor::Table { name, .. } = &merge.table else {
                return;
            };
            let Some(columns) = column_types(name) else {
                return;
            };
            for clause in &merge.clauses {
                match action(&clause.action) {
                    Some(Action::Update(set)) => declare_assigned(set, &columns, types),
                    Some(Action::Insert(row)) => {
                        let cells = row.values.unwrap_or_default();
                        declare_row(cells, row.columns, &columns, types);
                    }
                    Some(Action::Nothing | Action::Delete) | None => {}
                }
            }
        }
        _ => {}
    });
}

/// Parameters that the columns listed, or all, are inserted as.
fn declare_row(
    cells: &[ast::Expr],
    listed: &[ast::ObjectName],
    columns: &[Column],
    types: &mut Vec<Option<ParameterType>>,
) {
    let Ok(listed) = column_identifiers(listed) else {
        return;
    };
    for (at, cell) in cells.iter().enumerate() {
        let column = match listed.get(at) {
            Some(name) => columns.iter().find(|column| column.name == *name),
            None if listed.is_empty() => columns.get(at),
            None => None,
        };
        if let (Some(n), Some(column)) = (bare_placeholder(cell), column) {
            declare(types, n, ParameterType::Value(column.ty));
        }
    }
}

/// Parameters that a column is set to.
fn declare_assigned(
    assignments: &[ast::Assignment],
    columns: &[Column],
    types: &mut Vec<Option<ParameterType>>,
) {
    for assignment in assignments {
        if let AssignmentTarget::ColumnName(name) = &assignment.target
            && let Some(n) = bare_placeholder(&assignment.value)
            && let Ok(names) = column_identifiers(std::slice::from_ref(name))
            && let Some(column) = columns.iter().find(|column| column.name == names[0])
        {
            declare(types, n, ParameterType::Value(column.ty));
        }
    }
}
