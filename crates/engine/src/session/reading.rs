//! From the text of a message to statements.
//!
//! A short text is read where it arrives. Neither `sqlparser` nor a walk over a tree can be
//! stopped, so a long one is read by a thread of its own, which holds up nobody: the session
//! answers when the statement is stopped, and the thread runs out by itself. So many may do
//! that at once (`Engine::readers`); the texts after them wait, and can be stopped meanwhile.
//!
//! ```text
//!  short ─────────────────────────────────────────► statements
//!  long ──► one of a few places    ── thread ──► statements
//!                    └─ stopped: 57014     └─ nobody waits: what it reads is dropped there
//! ```

use std::{sync::Arc, time::Instant};

use aerostat_fast::TEXT_BYTES_MAX;
use aerostat_query::{Cancellation, cache::PlanCache};
use aerostat_sql::{
    statement::{Source, Statement, StatementKind},
    utility::Fragment,
};
use aerostat_types::{ErrorKind, SqlError};
use tokio::{runtime::Handle, sync::Semaphore};

use super::{ClientState, Executor, fast::FastStatement, stream::QueryTask};
use crate::asleep::{asleep, hands_over};

/// The longest text that is read on the thread that it has come to. A thousand of its tokens
/// take about a millisecond.
const SHORT_BYTES_MAX: usize = TEXT_BYTES_MAX;

/// Whether a text is read and planned where others do not wait for it.
pub(super) fn is_long(text: &str) -> bool {
    text.len() > SHORT_BYTES_MAX
}

/// How many bytes a token becomes when it is read and planned. Measured in the process's size: 1.0 KB in an IN
/// list, 0.6 in VALUES, 1.2 in a list of which the types do not fit, 1.8 in the branches of a CASE. The
/// list of an INSERT, which stays in its text, is not priced.
const TOKEN_BYTES: u64 = 1_000;

/// How many bytes a text takes when it is read and planned, estimated by its tokens. The items of an array in
/// quotes become as much as those of a list: it begins with a brace, and has commas.
fn tree_bytes(text: &str) -> u64 {
    let (mut tokens, mut is_quoted, mut in_word) = (0, false, false);
    let (mut in_braces, mut before) = (false, 0);
    for byte in text.bytes() {
        is_quoted ^= byte == b'\'';
        in_braces = is_quoted && (in_braces || before == b'\'' && byte == b'{');
        tokens += u64::from(in_braces && byte == b',');
        before = byte;
        let is_word = is_quoted || byte == b'\'' || byte == b'_' || byte.is_ascii_alphanumeric();
        let begins = is_word && !in_word || !is_word && !byte.is_ascii_whitespace();
        tokens += u64::from(begins);
        in_word = is_word;
    }
    tokens * TOKEN_BYTES + text.len() as u64
}

/// A statement of the simple protocol.
#[derive(Clone)]
pub struct Sent(Form);

/// What a message was read as.
#[derive(Clone)]
pub(super) enum Form {
    /// One of the fast path's grammar, alone in its message.
    Fast(Arc<FastStatement>),
    Parsed(Tree),
}

impl Sent {
    /// The statement's text; of a simple one the whole message.
    pub fn text(&self) -> &str {
        match &self.0 {
            Form::Fast(fast) => &fast.text,
            Form::Parsed(tree) => tree.statement.text(),
        }
    }
}

/// Works out the plan of a text. A long text takes long to plan, too, and its planning cannot be
/// stopped: its query thread gives others' work to another thread first, and its place among
/// the statements that run.
pub(super) async fn worked_out<T>(
    readers: &Semaphore,
    text: &str,
    work: impl Future<Output = T>,
) -> T {
    if !is_long(text) || !hands_over() {
        return work.await;
    }
    let _place = readers.acquire().await;
    asleep(|| Handle::current().block_on(work))
}

/// A statement as it was read.
#[derive(Clone)]
pub(super) struct Tree {
    pub(super) statement: Statement,
}

impl Drop for Tree {
    fn drop(&mut self) {
        drop_elsewhere(&mut self.statement);
    }
}

/// Takes the tree of a long text apart on another thread, which takes as long as a walk over it.
pub(super) fn drop_elsewhere(statement: &mut Statement) {
    if is_long(statement.text())
        && let Ok(runtime) = Handle::try_current()
    {
        let tree = std::mem::replace(&mut statement.kind, StatementKind::Empty);
        let room = statement.source.room.take();
        runtime.spawn_blocking(move || {
            drop(tree);
            // The charge ends after the tree.
            drop(room);
        });
    }
}

impl Sent {
    pub(super) fn form(&self) -> &Form {
        &self.0
    }

    fn all(statements: Vec<Statement>) -> Vec<Self> {
        let tree = |statement| Sent(Form::Parsed(Tree { statement }));
        statements.into_iter().map(tree).collect()
    }
}

impl Executor {
    /// Does what cannot be stopped on a thread of its own, until it ends or the statement is
    /// stopped.
    pub(super) async fn apart<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
        cancellation: &Cancellation,
    ) -> Result<T, SqlError> {
        let places = Arc::clone(self.engine.readers());
        let work = async {
            let place = places.acquire_owned().await;
            let place = place.map_err(|_| SqlError::new(ErrorKind::Internal, "the node stops"))?;
            let task = self.engine.queries().spawn_blocking(move || {
                let done = work();
                drop(place);
                done
            });
            QueryTask::new(task).result().await
        };
        tokio::select! {
            biased;
            error = cancellation.stopped() => Err(error),
            done = work => done,
        }
    }

    /// The statement of a message that was read before, and has its plan kept.
    fn kept(&self, client: &ClientState, message: &str) -> Option<Vec<Sent>> {
        let may_be_kept = PlanCache::takes(message) && client.keeps_plans();
        let statement = may_be_kept.then(|| self.tenant.plans().statement(message))??;
        Some(vec![Sent(Form::Parsed(Tree { statement }))])
    }

    /// The only statement of a text.
    ///
    /// # Errors
    /// See [`Statement::single`]; a long text may be stopped.
    pub(super) async fn read_single(
        &self,
        client: &ClientState,
        text: &Arc<str>,
    ) -> Result<Statement, SqlError> {
        if !is_long(text) {
            return Statement::single(text);
        }
        let cancellation = client.cancel.begin(client.statement_timeout());
        let text = Arc::clone(text);
        let mut room = self.memory();
        let read = move || {
            room.grow(tree_bytes(&text))?;
            let mut statement = Statement::single(&text)?;
            statement.source.room = Some(Arc::new(room));
            Ok(statement)
        };
        self.apart(read, &cancellation).await?
    }

    /// Cuts a message of the simple protocol into statements.
    ///
    /// # Errors
    /// See [`Statement::split`]; a long text may be stopped.
    pub(super) async fn split(
        &self,
        client: &mut ClientState,
        message: &str,
    ) -> Result<Vec<Sent>, SqlError> {
        if is_long(message) {
            if let Some(kept) = self.kept(client, message) {
                return Ok(kept);
            }
            let cancellation = client.cancel.begin(client.statement_timeout());
            let text: Arc<str> = message.into();
            let mut room = self.memory();
            let read = move || match FastStatement::read(&text, &[]) {
                Some(fast) => Ok(vec![Sent(Form::Fast(fast))]),
                None => {
                    room.grow(tree_bytes(&text))?;
                    let mut statements = Statement::split(&text)?;
                    let room: Arc<dyn Send + Sync> = Arc::new(room);
                    for statement in &mut statements {
                        statement.source.room = Some(Arc::clone(&room));
                    }
                    Ok(Sent::all(statements))
                }
            };
            let started = Instant::now();
            let read = Box::pin(self.apart(read, &cancellation)).await;
            client.read_for = started.elapsed();
            return read?;
        }
        if let Some(fast) = FastStatement::read(message, &[]) {
            return Ok(vec![Sent(Form::Fast(fast))]);
        }
        match self.kept(client, message) {
            Some(kept) => Ok(kept),
            None => Ok(Sent::all(Statement::split(message)?)),
        }
    }
}

/// A statement inside another, its positions moved to where it stands.
pub(super) fn nested_statement(
    fragment: &Fragment,
    source: &Source,
) -> Result<Statement, SqlError> {
    let offset = source.offset + fragment.position.saturating_sub(1);
    let mut statement = Statement::single(&fragment.text).map_err(|mut error| {
        error.position = error.position.map(|at| at + offset);
        error
    })?;
    statement.source.offset += offset;
    Ok(statement)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_priced_by_their_tokens() {
        let tokens = |text: &str| (tree_bytes(text) - text.len() as u64) / TOKEN_BYTES;
        assert_eq!(tokens(""), 0);
        assert_eq!(tokens("select a_1, 'it''s one, of (many)' from t"), 6);
        assert_eq!(tokens("in (1,2,3)"), 8);
        assert_eq!(tokens("'ä b'||x"), 4);
        // An array counts for its items, a text for one.
        assert_eq!(tokens("any ('{1,2,3}')"), 6);
        assert_eq!(tokens("any ('1,{2,3}')"), 4);
        assert_eq!(tokens("('{1,2}', '3,4')"), 6);
    }
}
