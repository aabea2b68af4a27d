//! Imports as tests run them: in a task that can be killed, with what they told.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use aerostat_import::{Action, Event, ImportError, Options, Progress, Summary, run};
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use crate::{compare::run as execute, servers::Pair};

/// How long a test waits for what must come.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

pub(crate) type Told = Arc<Mutex<Vec<Event>>>;

/// An import that runs in a task.
pub(crate) struct Running {
    task: JoinHandle<Result<Summary, ImportError>>,
    pub(crate) told: Told,
}

/// The options for a database that both sides have under the same name.
pub(crate) fn options(pair: &Pair, database: &str) -> Options {
    let mut options = Options::new(pair.source.url(database), pair.target.config(database));
    options.patience = Duration::from_secs(30);
    options
}

/// Starts an import.
pub(crate) fn start(options: Options) -> Running {
    let told = Told::default();
    let heard = Arc::clone(&told);
    let task = tokio::spawn(async move {
        let mut progress = |event: &Event| heard.lock().expect("nobody panics").push(event.clone());
        let result = run(options, &mut progress, std::future::pending()).await;
        if let Err(error) = &result {
            progress.tell(&Event::Note(format!("ended: {}", chain(error))));
        }
        result
    });
    Running { task, told }
}

/// Runs an import to its end.
pub(crate) async fn import(options: Options) -> (Result<Summary, ImportError>, Vec<Event>) {
    let running = start(options);
    let told = Arc::clone(&running.told);
    let result = running.result().await;
    let told = told.lock().expect("nobody panics").clone();
    (result, told)
}

/// Follows up to where the source is, and ends the import.
pub(crate) async fn finish(mut options: Options) -> Summary {
    options.action = Action::Finish;
    let (summary, _) = import(options).await;
    summary.unwrap_or_else(|error| panic!("{}", chain(&error)))
}

impl Running {
    /// What it ends with.
    pub(crate) async fn result(self) -> Result<Summary, ImportError> {
        tokio::time::timeout(LIMIT, self.task)
            .await
            .expect("it ends")
            .expect("it does not panic")
    }

    /// What it ends with, which must be an error; its text with its causes.
    pub(crate) async fn error(self) -> String {
        chain(&self.result().await.expect_err("an error"))
    }

    /// Ends it where it is.
    pub(crate) async fn kill(self) {
        self.task.abort();
        if let Ok(result) = self.task.await {
            panic!("it ended by itself: {result:?}");
        }
    }

    /// Waits until it tells something.
    pub(crate) async fn until(&self, what: impl Fn(&Event) -> bool) {
        let begun = Instant::now();
        while !self.told.lock().expect("nobody panics").iter().any(&what) {
            assert!(!self.task.is_finished(), "it ended before: {:?}", self.told);
            assert!(begun.elapsed() < LIMIT, "it did not tell: {:?}", self.told);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until it follows changes.
    pub(crate) async fn follows(&self) {
        self.until(|event| matches!(event, Event::Following { .. }))
            .await;
    }

    pub(crate) fn ended(&self) -> bool {
        self.task.is_finished()
    }
}

/// An error with its causes.
pub(crate) fn chain(error: &ImportError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

/// The notes among what was told.
pub(crate) fn notes(told: &[Event]) -> String {
    let notes = told.iter().filter_map(|event| match event {
        Event::Note(note) => Some(note.as_str()),
        _ => None,
    });
    notes.collect::<Vec<_>>().join("\n")
}

const SLOW_COMMITS: &str = "
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.1); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER slow AFTER UPDATE ON aerostat_import.progress
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slow()";

/// Has each COMMIT of an import that has begun take its time, so that importers and servers die within one. Only
/// PostgreSQL can be told to.
pub(crate) async fn slow_commits(pair: &Pair, target: &Client) {
    if !pair.target.is_aerostat() {
        execute(target, SLOW_COMMITS).await;
    }
}
