//! The extended protocol: Parse, Bind, Describe, Execute, Close.

use std::{borrow::Cow, pin::pin, sync::Arc};

use aerostat_types::{Charset, ErrorKind, SqlType};

use super::{
    Connection, cancelled,
    portal::{OpenRows, Portal, Progress, Unnamed, are_formats_of, spread},
};
use crate::{
    api::{
        BackendSession, ColumnDescription, Group, Outcome, ParameterType, RESULT_CHANGED, Value,
        is_shape_of, prepared_bytes,
    },
    limits::{KEPT_BYTES_MIN, PORTALS_MAX},
    sqlstate::{Fault, WireError},
    value::{self, RowEncoder, Texts, Zone, array_text, read_oid},
    wire::{Bind, Describe, Execute, Format, Parse, Target, count_of, format_of},
};

fn no_statement(name: &str) -> WireError {
    let message = if name.is_empty() {
        "unnamed prepared statement does not exist".to_owned()
    } else {
        format!("prepared statement \"{name}\" does not exist")
    };
    WireError::new(ErrorKind::InvalidStatementName, message)
}

fn no_portal(name: &str) -> WireError {
    WireError::new(
        ErrorKind::InvalidCursorName,
        format!("portal \"{name}\" does not exist"),
    )
}

fn too_many(what: &str, limit: usize) -> WireError {
    WireError::new(
        ErrorKind::ProgramLimitExceeded,
        format!("too many {what} in one session"),
    )
    .with_detail(format!("At most {limit} are allowed."))
    .with_hint("Close those that are not needed any more, or let the driver keep fewer.")
}

impl<S: BackendSession> Connection<S> {
    /// The charge for a statement or portal whose message has `sent` bytes. Without a name there is
    /// only one at a time, which is not charged if it is short.
    fn charge_kept(
        &self,
        name: &str,
        sent: usize,
        kept: impl FnOnce() -> usize,
    ) -> Result<Option<S::Held>, Fault> {
        if name.is_empty() && sent < KEPT_BYTES_MIN {
            return Ok(None);
        }
        let held = self.session.hold(kept());
        held.map(Some).map_err(|error| Fault::Sql(error.into()))
    }

    pub(super) async fn parse(&mut self, body: &[u8]) -> Result<(), Fault> {
        let parse = Parse::read(body)?;
        if parse.name.is_empty() {
            // The previous statement is gone even if the new one fails.
            self.unnamed = None;
        } else {
            let admitted = self.session.admit_name(parse.name);
            admitted.map_err(|error| Fault::Sql(error.into()))?;
        }
        let kept = || parse.name.len() + prepared_bytes(parse.query);
        let held = self.charge_kept(parse.name, parse.query.len(), kept)?;
        let preparing = self.session.prepare(parse.query, &parse.parameter_oids);
        let prepared = self.signals.engine(pin!(preparing)).await?;
        let chosen = S::parameters(&prepared).iter().enumerate();
        let parameter_oids = chosen
            .map(|(at, ty)| match parse.parameter_oids.get(at) {
                // 705 is "unknown".
                Some(&wish) if wish != 0 && wish != 705 => wish,
                _ => ty.oid(),
            })
            .collect();
        let prepared = Arc::new(prepared);
        match held {
            Some(held) if !parse.name.is_empty() => {
                let session = &mut self.session;
                session.keep(parse.name, prepared, parameter_oids, held);
            }
            held => {
                self.unnamed = Some(Unnamed {
                    kept: (prepared, parameter_oids),
                    held: held.map(Arc::new),
                });
            }
        }
        self.output.bare(b'1');
        Ok(())
    }

    /// The prepared statement with a name, to be run.
    fn statement_to_run(&self, name: &str) -> Result<Arc<S::Prepared>, WireError> {
        let found = match (name, &self.unnamed) {
            ("", unnamed) => unnamed.as_ref().map(|unnamed| Arc::clone(&unnamed.kept.0)),
            (name, _) => self.session.kept_to_run(name),
        };
        found.ok_or_else(|| no_statement(name))
    }

    pub(super) fn bind(&mut self, body: &[u8]) -> Result<(), Fault> {
        let bind = Bind::read(body)?;
        let prepared = self.statement_to_run(bind.statement)?;
        let types = S::parameters(&prepared);
        if bind.parameters.len() != types.len() {
            return Err(Fault::Sql(WireError::protocol(format!(
                "bind message supplies {} parameters, but prepared statement \"{}\" requires {}",
                bind.parameters.len(),
                bind.statement,
                types.len()
            ))));
        }
        if !are_formats_of(&bind.parameter_formats, types.len()) {
            return Err(Fault::Sql(WireError::protocol(format!(
                "bind message has {} parameter formats but {} parameters",
                bind.parameter_formats.len(),
                types.len()
            ))));
        }
        if !bind.portal.is_empty() {
            // In SQL a portal is a cursor.
            let is_taken = self.portals.get(bind.portal).is_some()
                || self.session.cursor_columns(bind.portal).is_some();
            if is_taken {
                let message = format!("cursor \"{}\" already exists", bind.portal);
                return Err(WireError::new(ErrorKind::DuplicateCursor, message).into());
            }
            if self.portals.named() >= PORTALS_MAX {
                return Err(too_many("portals", PORTALS_MAX).into());
            }
        }
        let kept = || body.len() + bind.parameters.len() * size_of::<Value>();
        let held = self.charge_kept(bind.portal, body.len(), kept)?;
        let parameters = if types.is_empty() {
            Arc::default()
        } else {
            let zone = self.zone();
            let formats = &bind.parameter_formats;
            let charset = self.output.charset;
            let parameters = bind.parameters.iter().zip(types).enumerate();
            let mut values = Vec::with_capacity(types.len());
            for (at, (bytes, ty)) in parameters {
                let format = format_of(formats, at);
                values.push(match charset {
                    None => parameter(*bytes, *ty, format, zone, at)?,
                    Some(charset) => {
                        let converted = decoded_parameter(charset, *bytes, *ty, format)?;
                        parameter(converted.as_deref(), *ty, format, zone, at)?
                    }
                });
            }
            values.into()
        };
        let portal = Portal {
            columns: self.session.columns_now(&prepared),
            prepared,
            _statement_held: match bind.statement {
                "" => self
                    .unnamed
                    .as_ref()
                    .and_then(|unnamed| unnamed.held.clone()),
                _ => None,
            },
            formats: bind.result_formats,
            progress: Progress::Bound(parameters),
            _held: held,
        };
        if let Some(columns) = &portal.columns {
            check_formats(&portal.formats, columns.len())?;
        }
        self.portals.insert(bind.portal, portal);
        self.output.bare(b'2');
        Ok(())
    }

    pub(super) fn describe(&mut self, body: &[u8]) -> Result<(), Fault> {
        let describe = Describe::read(body)?;
        let (columns, formats): (_, &[Format]) = match describe.target {
            Target::Statement => {
                let kept = match (describe.name, &self.unnamed) {
                    ("", unnamed) => unnamed.as_ref().map(|unnamed| unnamed.kept.clone()),
                    (name, _) => self.session.kept(name),
                };
                let (prepared, oids) = kept.ok_or_else(|| no_statement(describe.name))?;
                self.output.parameter_description(&oids)?;
                (S::columns(&prepared), &[])
            }
            Target::Portal => match self.portals.get(describe.name) {
                Some(portal) => (portal.columns.clone(), &portal.formats),
                None => {
                    let columns = self.session.cursor_columns(describe.name);
                    let columns = columns.ok_or_else(|| no_portal(describe.name))?;
                    (Some(columns), &[])
                }
            },
        };
        match columns {
            Some(columns) => {
                check_formats(formats, columns.len())?;
                self.output.row_description(&columns, formats)?;
            }
            None => self.output.bare(b'n'),
        }
        Ok(())
    }

    pub(super) fn close(&mut self, body: &[u8]) -> Result<(), Fault> {
        let close = Describe::read(body)?;
        match close.target {
            Target::Statement if close.name.is_empty() => self.unnamed = None,
            Target::Statement => self.session.forget(close.name),
            Target::Portal => drop(self.portals.remove(close.name)),
        }
        self.output.bare(b'3');
        Ok(())
    }

    pub(super) async fn execute(&mut self, body: &[u8]) -> Result<(), Fault> {
        let execute = Execute::read(body)?;
        // More messages may come before the Sync, and belong to one transaction with this one.
        // Nearly always the Sync has already arrived.
        if !self.signals.input.comes_next(b'S') {
            self.session.begin_group(Group::Pipeline);
        }
        // While the portal runs, it is not in the map.
        let mut portal = self
            .portals
            .remove(execute.portal)
            .ok_or_else(|| no_portal(execute.portal))?;
        let result = self
            .execute_portal(&mut portal, execute.portal, execute.rows_max)
            .await;
        // A portal that has failed stays until its transaction ends, and returns nothing more.
        self.portals.insert(execute.portal, portal);
        result
    }

    async fn execute_portal(
        &mut self,
        portal: &mut Portal<S>,
        name: &str,
        rows_max: Option<u64>,
    ) -> Result<(), Fault> {
        // The session itself checks whether a statement may begin.
        if !matches!(portal.progress, Progress::Bound(_)) {
            self.session.admit_again(&portal.prepared)?;
        }
        match std::mem::replace(&mut portal.progress, Progress::Done) {
            Progress::Bound(parameters) => self.start(portal, parameters, rows_max).await,
            Progress::Open(open) => self.go_on(portal, open, rows_max).await,
            Progress::Exhausted(tag) => {
                self.output.command_complete(&tag.after(0));
                portal.progress = Progress::Exhausted(tag);
                Ok(())
            }
            Progress::Done => {
                let message = format!("portal \"{name}\" cannot be run");
                Err(WireError::new(ErrorKind::ObjectNotInPrerequisiteState, message).into())
            }
        }
    }

    async fn start(
        &mut self,
        portal: &mut Portal<S>,
        parameters: Arc<[Value]>,
        rows_max: Option<u64>,
    ) -> Result<(), Fault> {
        let prepared = Arc::clone(&portal.prepared);
        assert_eq!(
            parameters.len(),
            S::parameters(&prepared).len(),
            "a portal has a value for each parameter of its statement"
        );
        let executing = self.session.execute_prepared(&prepared, &parameters);
        let outcome = self.signals.engine(pin!(executing)).await?;
        self.follow_encoding();
        self.notices();
        if self.signals.orders.is_cancelled()
            && matches!(outcome, Outcome::Rows { .. } | Outcome::CopyOut(_))
        {
            return Err(Fault::Sql(cancelled()));
        }
        match outcome {
            Outcome::Rows {
                columns,
                mut batches,
                tag,
            } => {
                check_shape(portal.columns.as_deref(), &columns)?;
                check_formats(&portal.formats, columns.len())?;
                count_of(columns.len())?;
                if rows_max.is_none()
                    && let Some(rows) = batches.take_rows()
                {
                    self.send_values(&rows, &portal.formats).await?;
                    self.notices();
                    self.output.command_complete(&tag.after(rows.len() as u64));
                    portal.progress = Progress::Exhausted(tag);
                    return Ok(());
                }
                let formats = spread(&portal.formats, columns.len());
                let numbers = RowEncoder::wants_numbers(&columns, &formats)
                    .then(|| self.session.entry_numbers())
                    .transpose()?;
                let mut encoder = RowEncoder::new(columns, formats, self.zone());
                if let Some(numbers) = numbers {
                    encoder = encoder.with_numbers(numbers);
                }
                let open = Box::new(OpenRows {
                    batches,
                    encoder,
                    tag,
                    current: None,
                });
                return self.go_on(portal, open, rows_max).await;
            }
            Outcome::Command { tag } => self.output.command_complete(&tag),
            Outcome::CopyIn(copy) => self.copy_in(copy).await?,
            Outcome::CopyOut(copy) => self.copy_out(copy).await?,
            Outcome::Empty => self.output.bare(b'I'),
        }
        Ok(())
    }

    /// Sends up to `rows_max` rows, and then that the portal is suspended or complete.
    async fn go_on(
        &mut self,
        portal: &mut Portal<S>,
        mut open: Box<OpenRows>,
        rows_max: Option<u64>,
    ) -> Result<(), Fault> {
        let mut sent = 0u64;
        loop {
            assert!(
                rows_max.is_none_or(|max| sent < max),
                "a portal that has sent {sent} rows goes on for more than {rows_max:?}"
            );
            if open.current.is_none() {
                match self.next_batch(&mut open.batches).await? {
                    Some(batch) => {
                        let columns = open.encoder.prepare(&batch)?;
                        open.current = Some((batch, columns, 0));
                    }
                    None => break,
                }
            }
            if let Some((batch, columns, from)) = &mut open.current {
                let left = batch.num_rows() - *from;
                let take = rows_max.map_or(left, |max| {
                    left.min(usize::try_from(max - sent).unwrap_or(left))
                });
                self.send_rows(&open.encoder, columns, *from, *from + take)
                    .await?;
                sent += take as u64;
                *from += take;
                if *from == batch.num_rows() {
                    open.current = None;
                }
            }
            if rows_max == Some(sent) {
                // As PostgreSQL does, without looking whether more rows come.
                self.output.bare(b's');
                portal.progress = Progress::Open(open);
                return Ok(());
            }
        }
        self.notices();
        self.output.command_complete(&open.tag.after(sent));
        portal.progress = Progress::Exhausted(open.tag);
        Ok(())
    }
}

/// Checks that rows have the columns that were described to the client. The engine has checked it
/// before the statement did anything; clients rely on this check, whatever the engine does.
fn check_shape(
    described: Option<&[ColumnDescription]>,
    columns: &[ColumnDescription],
) -> Result<(), WireError> {
    if described.is_some_and(|described| is_shape_of(described, columns)) {
        return Ok(());
    }
    Err(WireError::new(
        ErrorKind::FeatureNotSupported,
        RESULT_CHANGED,
    ))
}

fn check_formats(formats: &[Format], columns: usize) -> Result<(), WireError> {
    if are_formats_of(formats, columns) {
        return Ok(());
    }
    let given = formats.len();
    Err(WireError::protocol(format!(
        "bind message has {given} result formats but query has {columns} columns"
    )))
}

/// A parameter with its texts in the server's encoding.
fn decoded_parameter<'a>(
    charset: &Charset,
    bytes: Option<&'a [u8]>,
    ty: ParameterType,
    format: Format,
) -> Result<Option<Cow<'a, [u8]>>, WireError> {
    let texts = match (format, ty) {
        (Format::Text, _) => Some(Texts::Whole),
        (Format::Binary, ParameterType::Value(ty)) if ty.is_text() => Some(Texts::Whole),
        (Format::Binary, ParameterType::Array(item)) if item.is_text() => Some(Texts::Items),
        (Format::Binary, _) => None,
    };
    match (bytes, texts) {
        (Some(bytes), Some(texts)) => texts.decode(charset, bytes).map(Some),
        (bytes, _) => Ok(bytes.map(Cow::Borrowed)),
    }
}

fn parameter(
    bytes: Option<&[u8]>,
    ty: ParameterType,
    format: Format,
    zone: Zone,
    at: usize,
) -> Result<Value, WireError> {
    // A parameter of type varchar(n) or char(n) takes any length, because the column that it is
    // assigned to checks it.
    let any_length = |ty: SqlType| if ty.is_text() { SqlType::Text } else { ty };
    let read = match (bytes, ty, format) {
        (None, ..) => return Ok(Value::Null),
        (Some(bytes), ParameterType::Oid, Format::Binary) => read_oid(bytes).map(Value::I64),
        (Some(bytes), ParameterType::Array(item), Format::Binary) => {
            let item = any_length(item);
            array_text(bytes, item, item.oid(), zone).map(|text| Value::Text(text.into()))
        }
        (Some(bytes), ParameterType::OidArray, Format::Binary) => {
            let oid = ParameterType::Oid;
            array_text(bytes, oid.carrier(), oid.oid(), zone).map(|text| Value::Text(text.into()))
        }
        (Some(bytes), ..) => value::read(any_length(ty.carrier()), zone, bytes, format),
    };
    read.map_err(|error| error.with_context(format!("unnamed portal parameter ${}", at + 1)))
}
