//! A run of an import: what there is to do, by what the target knows of it, and again after a connection fails.

use std::{
    future::Future,
    pin::pin,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use aerostat_pgclient::Server;
use tokio::time::sleep;

use crate::{
    Action, Event, Options, Outcome, Progress, Summary,
    connect::{self, Connection},
    copy,
    counters::Counters,
    error::ImportError,
    follow::follow,
    following::Following,
    lsn::Lsn,
    plan::{Filter, Plan, complaint, server_complaints},
    record::{self, Record, RecordedTable, State},
    slot, sql, tables,
    wire::Wire,
};

/// The first wait after a failure, and the longest: each is twice the one before.
const WAIT_MIN: Duration = Duration::from_millis(200);
const WAIT_MAX: Duration = Duration::from_secs(15);

/// A connection that lasted so long was no failure to go on, though nothing came to be done.
const LASTED: Duration = Duration::from_secs(30);

/// The longest name of an object at the source.
const NAME_BYTES_MAX: usize = 63;

/// Runs an import until it is done, fails, or `stop` is there. Dropping the future at any time is as safe as `stop`:
/// what the target has committed stays, and a later run goes on from there.
///
/// # Errors
/// See [`ImportError`]. Those that pass by themselves come only if the import could not begin, or
/// [`Options::patience`] is over.
pub async fn run(
    options: Options,
    progress: &mut dyn Progress,
    stop: impl Future<Output = ()>,
) -> Result<Summary, ImportError> {
    let session = Session::new(options)?;
    let mut counters = Counters::default();
    let outcome = {
        let work = pin!(session.work(progress, &mut counters));
        let stop = pin!(stop);
        tokio::select! {
            outcome = work => outcome?,
            () = stop => Outcome::Stopped,
        }
    };
    Ok(Summary {
        name: session.name,
        outcome,
        rows: counters.rows,
        transactions: counters.transactions,
        changes: counters.changes,
        lsn: counters.lsn,
    })
}

/// What stays the same over all connections of a run.
struct Session {
    options: Options,
    source: Server,
    target: Server,
    name: String,
}

impl Session {
    fn new(options: Options) -> Result<Session, ImportError> {
        let mut source = aerostat_pgclient::config(&options.source)
            .map_err(|error| ImportError::Options(format!("the source is {error}")))?;
        if source.get_application_name().is_none() {
            source.application_name("aerostat import");
        }
        if source.get_user().is_none() {
            return Err(ImportError::Options(
                "the source's URL names no user".to_owned(),
            ));
        }
        let name = match &options.name {
            Some(name) => name.clone(),
            None => default_name(
                options
                    .target
                    .get_dbname()
                    .or(options.target.get_user())
                    .unwrap_or_default(),
            ),
        };
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(allowed) {
            return Err(ImportError::Options(format!(
                "{name:?} is no name of an import: lower-case letters, digits and underscores, at most 63"
            )));
        }
        let trust = options.trust.as_deref();
        let unusable = |error: aerostat_pgclient::Error| ImportError::Options(error.to_string());
        Ok(Session {
            source: Server::new(source, trust).map_err(unusable)?,
            target: Server::new(options.target.clone(), trust).map_err(unusable)?,
            options,
            name,
        })
    }

    async fn work(
        &self,
        progress: &mut dyn Progress,
        counters: &mut Counters,
    ) -> Result<Outcome, ImportError> {
        // Since when, with which wait, and after how many commits nothing goes on.
        let mut failing: Option<(Instant, Duration, u64)> = None;
        loop {
            let began = Instant::now();
            counters.batch_failed = 0;
            let error = match self.attempt(progress, counters).await {
                Ok(outcome) => return Ok(outcome),
                Err(error) => error,
            };
            // A lock that is still there after a failure of ours is that of our own connection before.
            let passes = error.is_transient()
                || (failing.is_some() && matches!(error, ImportError::Busy { .. }));
            if !passes {
                let others = counters.batch_failed;
                let taken_over = matches!(error, ImportError::Superseded { .. });
                if others == 0 || counters.singly > 0 || taken_over {
                    return Err(error);
                }
                // Those before the one that failed are made first, each by itself.
                counters.singly = others + 1;
                continue;
            }
            let (since, wait) = match failing {
                Some((since, wait, commits))
                    if commits == counters.commits && began.elapsed() < LASTED =>
                {
                    (since, wait)
                }
                _ => (Instant::now(), WAIT_MIN),
            };
            if !counters.begun || since.elapsed() >= self.options.patience {
                return Err(error);
            }
            progress.tell(&Event::Waiting {
                reason: chain(&error),
                wait,
            });
            sleep(wait).await;
            failing = Some((since, (wait * 2).min(WAIT_MAX), counters.commits));
        }
    }

    async fn attempt(
        &self,
        progress: &mut dyn Progress,
        counters: &mut Counters,
    ) -> Result<Outcome, ImportError> {
        let source = connect::source(&self.source).await?;
        slot::lock(&source, &self.name).await?;
        let target = connect::target(&self.target).await?;
        record::prepare(&target).await?;
        let identity = slot::identify(&source).await?;
        let found = Record::take(&target, &self.name).await?;
        if let Some(record) = found.as_ref().filter(|record| record.source != identity) {
            return Err(ImportError::Options(format!(
                "the import {} is of another source: {} and not {identity}",
                self.name, record.source
            )));
        }
        let unknown = || ImportError::Unknown {
            name: self.name.clone(),
        };
        match (self.options.action, found) {
            (Action::Drop, found) => {
                let record = found.ok_or_else(unknown)?;
                remove(&source, &target, &record).await?;
                Ok(Outcome::Dropped)
            }
            (_, Some(record)) if record.state == State::Finished => {
                remove(&source, &target, &record).await?;
                Ok(Outcome::Finished)
            }
            (Action::Finish, None) => Err(unknown()),
            (Action::Finish, Some(record)) if record.state == State::Copying => {
                Err(ImportError::Options(format!(
                    "the import {} has not copied all rows yet: run it first",
                    self.name
                )))
            }
            (Action::Once, Some(record)) if record.state == State::Following => {
                Err(ImportError::Options(format!(
                    "the import {} follows its source already: finish or drop it, or give this one another name",
                    self.name
                )))
            }
            (_, Some(record)) if record.state == State::Following => {
                self.follow(&source, &target, record, progress, counters)
                    .await
            }
            (_, found) => {
                let record = self
                    .copy(&source, &target, identity, found, progress, counters)
                    .await?;
                if self.options.action == Action::Once {
                    return Ok(Outcome::Copied);
                }
                self.follow(&source, &target, record, progress, counters)
                    .await
            }
        }
    }

    async fn filter(&self, source: &Connection) -> Result<Filter, ImportError> {
        let mut filter = Filter {
            schemas: self.options.schemas.clone(),
            tables: self.options.tables.clone(),
            exclude: self.options.exclude.clone(),
            published: None,
        };
        if let Some(name) = &self.options.publication {
            let rows = source
                .query(
                    "SELECT schemaname::text, tablename::text FROM pg_publication_tables WHERE pubname = $1::text",
                    &[name],
                )
                .await
                .map_err(ImportError::source("reading its publications"))?;
            filter.published = Some(rows.iter().map(|row| (row.get(0), row.get(1))).collect());
        }
        Ok(filter)
    }

    /// Makes tables and copies their rows, from the beginning. Gives the import as it then is.
    async fn copy(
        &self,
        source: &Connection,
        target: &Connection,
        identity: String,
        found: Option<Record>,
        progress: &mut dyn Progress,
        counters: &mut Counters,
    ) -> Result<Record, ImportError> {
        let follows = self.options.action == Action::Follow;
        let filter = self.filter(source).await?;
        let plan = Plan::read(source, &filter).await?;
        let ours = match &found {
            Some(record) => record.tables(target).await?,
            None => Vec::new(),
        };
        let created = self
            .check(source, target, &filter, &plan, found.as_ref(), &ours)
            .await?;
        for note in plan.notes(self.options.as_text) {
            progress.tell(&Event::Note(note));
        }
        if let Some(old) = &found {
            slot::remove(source, old).await?;
        }
        let record = self.record(identity, found);
        let pairs: Vec<_> = plan.tables.iter().zip(created.iter().copied()).collect();
        record.begin(target, &pairs).await?;
        counters.begun = true;
        // The snapshot is there until the first statement of its own transaction.
        let (lsn, snapshot) = self.snapshot(source, &record, &plan, progress).await?;
        if Plan::read(&snapshot, &filter).await? != plan {
            return Err(ImportError::Changed);
        }
        tables::make(target, &plan, &created, record.as_text, progress).await?;
        counters.rows += copy::rows(&snapshot, target, &plan, &record, progress).await?;
        counters.begun = true;
        tables::complete(target, &plan, &created, progress).await?;
        tables::set_sequences(source, target, &plan).await?;
        if !follows {
            tables::finish(target, &plan, progress).await?;
            record.forget(target).await?;
            return Ok(record);
        }
        move_to(&record, target, State::Following, lsn).await?;
        counters.applied(lsn, 0, 0);
        Ok(Record {
            state: State::Following,
            lsn,
            ..record
        })
    }

    /// Whether everything fits, before anything is changed. Gives which tables the importer makes.
    async fn check(
        &self,
        source: &Connection,
        target: &Connection,
        filter: &Filter,
        plan: &Plan,
        found: Option<&Record>,
        ours: &[RecordedTable],
    ) -> Result<Vec<bool>, ImportError> {
        let follows = self.options.action == Action::Follow;
        let as_text = self.options.as_text;
        let own = self.options.publication.is_none();
        let mut complaints = server_complaints(source, plan, follows, own).await?;
        complaints.extend(plan.complaints(filter, follows, as_text));
        let (created, of_target) =
            tables::check(target, plan, ours, self.options.truncate, as_text).await?;
        complaints.extend(of_target);
        if follows && found.is_none() && slot::exists(source, &self.name).await? {
            complaints.push(complaint(
                &self.name,
                "the source has a slot or a publication of this name, of which the target knows nothing",
                &format!(
                    "give the import another name, or if nobody uses it: SELECT pg_drop_replication_slot({0}); \
                     DROP PUBLICATION {1}",
                    sql::literal(&self.name),
                    sql::identifier(&self.name)
                ),
            ));
        }
        if let Some(publication) = &self.options.publication {
            complaints.extend(
                crate::plan::publication_complaints(source, publication, filter, plan).await?,
            );
        }
        if complaints.is_empty() {
            Ok(created)
        } else {
            Err(ImportError::Unfit(complaints))
        }
    }

    fn record(&self, source: String, found: Option<Record>) -> Record {
        let follows = self.options.action == Action::Follow;
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Record {
            name: self.name.clone(),
            source,
            slot: if follows {
                self.name.clone()
            } else {
                String::new()
            },
            publication: self
                .options
                .publication
                .clone()
                .unwrap_or_else(|| self.name.clone()),
            own_publication: follows && self.options.publication.is_none(),
            as_text: self.options.as_text,
            state: State::Copying,
            lsn: Lsn::default(),
            // No epoch of an import of this name that was before.
            epoch: found.map_or(
                i64::try_from(now.as_micros()).unwrap_or_default(),
                |record| record.epoch,
            ),
        }
    }

    /// A connection whose transaction sees one state of the source, and where in the log that is: that of the new
    /// slot, or of now if changes are not followed.
    async fn snapshot(
        &self,
        source: &Connection,
        record: &Record,
        plan: &Plan,
        progress: &mut dyn Progress,
    ) -> Result<(Lsn, Connection), ImportError> {
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
        let reader = connect::source(&self.source).await?;
        if record.slot.is_empty() {
            reader
                .batch_execute(begin)
                .await
                .map_err(ImportError::source(begin))?;
            return Ok((Lsn::default(), reader));
        }
        // The publication has to be there before the first change that is asked for by it.
        if record.own_publication {
            slot::publish(source, &record.publication, &plan.tables).await?;
        }
        progress.tell(&Event::MakingSlot);
        let mut wire = Wire::connect(&self.source).await?;
        let (lsn, snapshot) = slot::create(&mut wire, &record.slot).await?;
        let statements = format!(
            "{begin}; SET TRANSACTION SNAPSHOT {}",
            sql::literal(&snapshot)
        );
        reader
            .batch_execute(&statements)
            .await
            .map_err(ImportError::source("taking the slot's snapshot"))?;
        Ok((lsn, reader))
    }

    async fn follow(
        &self,
        source: &Connection,
        target: &Connection,
        record: Record,
        progress: &mut dyn Progress,
        counters: &mut Counters,
    ) -> Result<Outcome, ImportError> {
        let filter = self.filter(source).await?;
        let recorded = record.tables(target).await?;
        let stream = slot::open(source, &self.source, &record).await?;
        counters.begun = true;
        let finishes = self.options.action == Action::Finish;
        let until = if finishes {
            Some(slot::end_of_log(source).await?)
        } else {
            None
        };
        let mut following = Following {
            source,
            target,
            record: &record,
            tables: recorded.clone(),
            filter: &filter,
            until,
        };
        follow(&mut following, stream, progress, counters).await?;
        let plan = Plan::of_import(source, &recorded, &filter).await?;
        tables::set_sequences(source, target, &plan).await?;
        tables::finish(target, &plan, progress).await?;
        move_to(
            &record,
            target,
            State::Finished,
            counters.lsn.unwrap_or(record.lsn),
        )
        .await?;
        remove(source, target, &record).await?;
        Ok(Outcome::Finished)
    }
}

/// Takes away what an import needed.
async fn remove(
    source: &Connection,
    target: &Connection,
    record: &Record,
) -> Result<(), ImportError> {
    slot::remove(source, record).await?;
    record.forget(target).await
}

async fn move_to(
    record: &Record,
    target: &Connection,
    state: State,
    lsn: Lsn,
) -> Result<(), ImportError> {
    target
        .batch_execute("BEGIN")
        .await
        .map_err(ImportError::target("BEGIN"))?;
    record.fence(target, state, lsn).await?;
    target
        .batch_execute("COMMIT")
        .await
        .map_err(ImportError::target("COMMIT"))
}

/// A name by a database's: other characters become underscores.
fn default_name(database: &str) -> String {
    let letter = |letter: char| {
        if letter.is_ascii_alphanumeric() {
            letter.to_ascii_lowercase()
        } else {
            '_'
        }
    };
    let name: String = "aerostat_"
        .chars()
        .chain(database.chars().map(letter))
        .collect();
    name.chars().take(NAME_BYTES_MAX).collect()
}

/// An error with its causes.
fn chain(error: &ImportError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use tokio_postgres::Config;

    use super::*;

    #[test]
    fn names_come_from_databases() {
        assert_eq!(default_name("shop"), "aerostat_shop");
        assert_eq!(default_name("My Shop-é"), "aerostat_my_shop__");
        assert_eq!(default_name(&"x".repeat(99)).len(), NAME_BYTES_MAX);
    }

    #[test]
    fn a_password_is_in_no_error() {
        let options = Options::new("postgres://u:geheim@h:notaport/d", Config::new());
        let error = Session::new(options).err().expect("no port");
        assert!(!chain(&error).contains("geheim"), "{error}");
    }

    #[test]
    fn names_that_the_source_does_not_take_are_refused() {
        for name in ["", "A", "a-b", "é"] {
            let mut options = Options::new("postgres://u@h/d", Config::new());
            options.name = Some(name.to_owned());
            assert!(Session::new(options).is_err(), "{name:?}");
        }
    }
}
