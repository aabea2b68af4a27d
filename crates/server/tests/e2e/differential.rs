//! Random tables and statements, side by side with PostgreSQL 15: rows, counts,
//! bytes of COPY and SQLSTATEs must be the same, and whole tables in the end.
//!
//! ```text
//! round   tables ─► stretch ─► crash ─► stretch ─► … ─► whole tables are the same
//! stretch           statements on both, one after another, in blocks and without
//!                     meanwhile on Aerostat alone, from a second connection:
//!                       VACUUM FREEZE, ALTER TABLE … SET (layout), CHECKPOINT
//!                     and a third that holds a snapshot and looks again
//! crash             SIGKILL between two statements or in the middle of one
//! ```
//!
//! A seed makes a round; a failure names it. `AEROSTAT_DIFF_SEED` begins with that one,
//! `AEROSTAT_DIFF_ROUNDS` says how many rounds. The statements are the same however fast
//! either side is (but for what a crash left, where it came into the middle of a statement);
//! what runs meanwhile ends when it ends, so a failure that depends on it may need a few
//! repetitions. The statements of a failed round are kept as a script that psql takes.
//!
//! What docs/sql.md says to differ is left alone: `numeric` without precision, its NaN
//! and quotients, infinite dates, LIKE patterns that end in their escape character.
//! Besides, the statements avoid what PostgreSQL itself leaves open: sums of floats,
//! negative zero, intervals that are equal and look different, keys that UPDATE
//! exchanges, and which of several wrong values is met first. Timestamps end at 294246.
//!
//! Found by these tests and left alone until it is mended: intervals that are equal and look
//! different in GROUP BY.

mod answers;
mod crash;
mod meanwhile;
mod queries;
mod statements;
mod tables;
mod values;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use tokio_postgres::Client;

use crate::dice::Dice;
use crate::harness::Aerostat;
use crate::postgres::Postgres;
use answers::{Answer, ask, difference};
use crash::set_zone;
use meanwhile::{Reader, Upkeep};
use statements::Statement;
use tables::Table;

/// The database on both sides.
const DATABASE: &str = "diff";

/// Rounds of `make test`, some 2 s each.
const ROUNDS: u64 = 12;

/// Complaints after which the test ends.
const COMPLAINTS_MAX: usize = 12;

/// What the node alone is told when a table is made; PostgreSQL takes it for a comment.
const LAYOUT: &str = " -- WITH (layout = ";

/// Statements of the round that a complaint shows; the script has them all.
const SHOWN: usize = 8;

/// The first round's seed where none is given: the same for every run, so that what is
/// known to differ (see above) does not come up by chance. `make crash` takes others.
const SEED: u64 = 1_795_331_753_296_085;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn random_statements_answer_as_postgresql() {
    let Some(postgres) = Postgres::find().await else {
        eprintln!("skipped: differential tests (no PostgreSQL server)");
        return;
    };
    let first = number("AEROSTAT_DIFF_SEED").unwrap_or(SEED);
    let rounds = number("AEROSTAT_DIFF_ROUNDS").unwrap_or(ROUNDS);
    let node = Aerostat::start();
    drop(node.create(DATABASE).await);
    // Texts order by their bytes; letters are Unicode's.
    postgres
        .create_with(
            DATABASE,
            "TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C.UTF-8'",
        )
        .await;
    let mut node = Some(node);
    let mut done = Done::default();
    let mut complaints = Vec::new();
    for seed in (0..rounds).map(|round| first.wrapping_add(round)) {
        eprintln!("AEROSTAT_DIFF_SEED={seed}");
        let running = node.take().expect("a round gives the node back");
        let mut round = Round::begin(seed, running, &postgres).await;
        if let Err(Stop) = round.run().await {
            round.recover().await;
        }
        round.end().await;
        done.add(&round.done);
        complaints.append(&mut round.complaints);
        node = round.node;
        if complaints.len() >= COMPLAINTS_MAX || node.is_none() {
            break;
        }
    }
    eprintln!("{done:?}");
    assert!(
        complaints.is_empty(),
        "{} differences from PostgreSQL:\n\n{}",
        complaints.len(),
        complaints.join("\n\n")
    );
}

/// The round cannot go on: the two sides are apart. The complaint says how.
#[derive(Debug)]
struct Stop;

/// What the rounds have done.
#[derive(Clone, Debug, Default)]
struct Done {
    statements: u64,
    /// Errors on both sides.
    errors: u64,
    rows: u64,
    upkeep: u64,
    snapshots: u64,
    crashes: u64,
}

impl Done {
    fn add(&mut self, other: &Done) {
        self.statements += other.statements;
        self.errors += other.errors;
        self.rows += other.rows;
        self.upkeep += other.upkeep;
        self.snapshots += other.snapshots;
        self.crashes += other.crashes;
    }
}

/// Where both sessions stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    Idle,
    Open,
    Failed,
}

/// What a statement does to the transaction block.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Effect {
    None,
    Begin,
    End,
    Savepoint(String),
    RollbackTo(String),
    Release(String),
}

struct Round<'a> {
    seed: u64,
    steps: u64,
    dice: Dice,
    node: Option<Aerostat>,
    postgres: &'a Postgres,
    ours: Client,
    theirs: Client,
    zone: &'static str,
    tables: Vec<Table>,
    stand: Stand,
    savepoints: Vec<String>,
    upkeep: Upkeep,
    reader: Option<Reader>,
    /// Everything that was sent, as a script.
    history: Vec<String>,
    complaints: Vec<String>,
    done: Done,
}

impl<'a> Round<'a> {
    async fn begin(seed: u64, node: Aerostat, postgres: &'a Postgres) -> Self {
        let mut dice = Dice::new(seed);
        let zone = dice.pick(&["UTC", "UTC", "Europe/Berlin", "Asia/Kolkata"]);
        let round = Self {
            seed,
            steps: 0,
            dice,
            ours: node.connect(DATABASE).await,
            theirs: postgres.connect(DATABASE).await,
            upkeep: Upkeep::new(node.connect(DATABASE).await),
            node: Some(node),
            postgres,
            zone,
            tables: Vec::new(),
            stand: Stand::Idle,
            savepoints: Vec::new(),
            reader: None,
            history: Vec::new(),
            complaints: Vec::new(),
            done: Done::default(),
        };
        set_zone(&round.ours, zone).await;
        set_zone(&round.theirs, zone).await;
        round
    }

    async fn run(&mut self) -> Result<(), Stop> {
        self.create_tables().await?;
        for stretch in 0..1 + self.dice.below(3) {
            if stretch > 0 {
                self.crash().await?;
            }
            for _ in 0..20 + self.dice.below(50) {
                self.step().await?;
            }
        }
        if self.stand != Stand::Idle {
            self.perform(Statement::new("COMMIT"), Effect::End).await?;
        }
        self.finish_meanwhile().await?;
        self.compare_tables("in the end").await
    }

    async fn create_tables(&mut self) -> Result<(), Stop> {
        for at in 0..1 + self.dice.below(3) {
            let table = Table::random(&mut self.dice, format!("t{at}"));
            let create = table.create();
            let layout = table.layout(&mut self.dice);
            let ours = Statement::new(format!("{create} WITH (layout = '{layout}')"));
            self.history.push(format!("{create}{LAYOUT}'{layout}')"));
            let ours = ask(&self.ours, &ours).await;
            let theirs = ask(&self.theirs, &Statement::new(create.clone())).await;
            self.check(&Statement::new(create), &ours, &theirs)?;
            if ours.failed() {
                continue;
            }
            self.tables.push(table);
        }
        if self.tables.is_empty() {
            return Err(Stop);
        }
        Ok(())
    }

    async fn step(&mut self) -> Result<(), Stop> {
        self.steps += 1;
        self.dice = Dice::of_step(self.seed, self.steps);
        self.meanwhile().await?;
        let (statement, effect) = self.choose();
        self.perform(statement, effect).await
    }

    fn choose(&mut self) -> (Statement, Effect) {
        let (sql, effect) = match self.stand {
            Stand::Idle if self.dice.one_in(8) => {
                let sql = self.dice.pick(&[
                    "BEGIN",
                    "BEGIN",
                    "START TRANSACTION",
                    "BEGIN ISOLATION LEVEL REPEATABLE READ",
                ]);
                (sql.to_owned(), Effect::Begin)
            }
            Stand::Idle => return self.choose_work(),
            Stand::Open => match self.dice.below(30) {
                0 | 1 => ("COMMIT".to_owned(), Effect::End),
                2 => ("ROLLBACK".to_owned(), Effect::End),
                3..=5 => self.at_savepoint("SAVEPOINT", Effect::Savepoint),
                6 | 7 if !self.savepoints.is_empty() => {
                    self.at_savepoint("ROLLBACK TO", Effect::RollbackTo)
                }
                8 if !self.savepoints.is_empty() => self.at_savepoint("RELEASE", Effect::Release),
                _ => return self.choose_work(),
            },
            Stand::Failed => match self.dice.below(8) {
                0 => return self.choose_work(),
                1 => ("COMMIT".to_owned(), Effect::End),
                _ if !self.savepoints.is_empty() => {
                    self.at_savepoint("ROLLBACK TO SAVEPOINT", Effect::RollbackTo)
                }
                _ => ("ROLLBACK".to_owned(), Effect::End),
            },
        };
        (Statement::new(sql), effect)
    }

    fn choose_work(&mut self) -> (Statement, Effect) {
        let statement = if self.dice.below(5) < 3 {
            statements::change(&mut self.dice, &mut self.tables)
        } else {
            queries::query(&mut self.dice, &self.tables)
        };
        (statement, Effect::None)
    }

    /// One of few names, so that some hide others and some are not there.
    fn at_savepoint(&mut self, word: &str, effect: fn(String) -> Effect) -> (String, Effect) {
        let known = self.savepoints.last().cloned();
        let name = match known {
            Some(name) if word != "SAVEPOINT" && !self.dice.one_in(4) => name,
            _ => self.dice.pick(&["s1", "s2", "s3"]).to_owned(),
        };
        (format!("{word} {name}"), effect(name))
    }

    /// Runs a statement on both sides and holds the answers against each other.
    async fn perform(&mut self, statement: Statement, effect: Effect) -> Result<(), Stop> {
        self.note(&statement);
        let (ours, theirs) =
            tokio::join!(ask(&self.ours, &statement), ask(&self.theirs, &statement));
        self.done.statements += 1;
        self.done.errors += u64::from(ours.failed());
        self.done.rows += theirs.count();
        self.check(&statement, &ours, &theirs)?;
        self.count_rows(&statement, &ours);
        self.take_effect(&effect, theirs.failed());
        Ok(())
    }

    fn note(&mut self, statement: &Statement) {
        self.history.push(statement.sql.clone());
        if let statements::Way::CopyIn(data) = &statement.way {
            // As psql takes it: the rows, and a line that ends them.
            let rows = String::from_utf8_lossy(data);
            self.history.push(format!("{rows}\\."));
        }
    }

    /// About how many rows the tables have; a ROLLBACK is left out.
    fn count_rows(&mut self, statement: &Statement, answer: &Answer) {
        for table in &mut self.tables {
            if statement
                .sql
                .starts_with(&format!("INSERT INTO {} ", table.name))
            {
                table.rows += answer.count();
            }
            if statement
                .sql
                .starts_with(&format!("DELETE FROM {} ", table.name))
            {
                table.rows = table.rows.saturating_sub(answer.count());
            }
        }
    }

    fn take_effect(&mut self, effect: &Effect, failed: bool) {
        if failed {
            if self.stand == Stand::Open {
                self.stand = Stand::Failed;
            }
            return;
        }
        let newest = |savepoints: &[String], name: &String| {
            let found = savepoints.iter().rposition(|known| known == name);
            found.expect("PostgreSQL knows the savepoint")
        };
        match effect {
            Effect::None => {}
            Effect::Begin => self.stand = Stand::Open,
            Effect::End => {
                self.stand = Stand::Idle;
                self.savepoints.clear();
            }
            Effect::Savepoint(name) => self.savepoints.push(name.clone()),
            Effect::RollbackTo(name) => {
                let at = newest(&self.savepoints, name);
                self.savepoints.truncate(at + 1);
                self.stand = Stand::Open;
            }
            Effect::Release(name) => {
                let at = newest(&self.savepoints, name);
                self.savepoints.truncate(at);
            }
        }
    }

    /// A difference in what a query gives is noted; one in what a statement did ends the
    /// round.
    fn check(&mut self, statement: &Statement, ours: &Answer, theirs: &Answer) -> Result<(), Stop> {
        let Some(found) = difference(statement, ours, theirs) else {
            return Ok(());
        };
        self.complain(&statement.sql, &found);
        let reads = statement.sql.starts_with("SELECT") || statement.sql.starts_with("COPY (");
        let gone = matches!(ours, Answer::Gone(_)) || matches!(theirs, Answer::Gone(_));
        let apart = gone || (self.stand == Stand::Open && ours.failed() != theirs.failed());
        if reads && !apart && self.complaints.len() < COMPLAINTS_MAX {
            return Ok(());
        }
        Err(Stop)
    }

    fn complain(&mut self, what: &str, found: &str) {
        let mut text = format!(
            "AEROSTAT_DIFF_SEED={} AEROSTAT_DIFF_ROUNDS=1, statement {}, timezone {}, {:?}\n{}\n{found}\n",
            self.seed,
            self.done.statements,
            self.zone,
            self.stand,
            cut(what),
        );
        text.push_str("  tables:\n");
        for line in self
            .history
            .iter()
            .filter(|line| line.starts_with("CREATE"))
        {
            writeln!(text, "    {line}").unwrap();
        }
        writeln!(
            text,
            "  before it (all of it in {}):",
            self.script().display()
        )
        .unwrap();
        let before = self.history.len().saturating_sub(1);
        for line in &self.history[before.saturating_sub(SHOWN)..before] {
            writeln!(text, "    {}", cut(line)).unwrap();
        }
        // At once, for a run of many rounds that is ended before the last.
        eprintln!("{text}");
        self.complaints.push(text);
        self.keep_script();
    }

    fn script(&self) -> PathBuf {
        let name = format!("differential-{}.sql", self.seed);
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
    }

    /// Writes the statements as a script that psql takes.
    fn keep_script(&self) {
        let line = |line: &String| match line.split_once(LAYOUT) {
            Some((create, layout)) => format!("{create};{LAYOUT}{layout}\n"),
            None if line.starts_with("--") || line.ends_with("\\.") => format!("{line}\n"),
            None => format!("{line};\n"),
        };
        let lines: String = self.history.iter().map(line).collect();
        let zone = format!("SET timezone = '{}';\n", self.zone);
        std::fs::write(self.script(), zone + &lines).unwrap();
    }

    /// Whole tables on both sides.
    async fn compare_tables(&mut self, when: &str) -> Result<(), Stop> {
        for at in 0..self.tables.len() {
            let statement = Statement::new(self.tables[at].everything()).ordered();
            let ours = ask(&self.ours, &statement).await;
            let theirs = ask(&self.theirs, &statement).await;
            if let Some(found) = difference(&statement, &ours, &theirs) {
                self.complain(&format!("{} {when}", statement.sql), &found);
                return Err(Stop);
            }
            self.tables[at].rows = ours.count();
        }
        Ok(())
    }

    /// After a difference: new sessions, if the node still takes them.
    async fn recover(&mut self) {
        self.reader = None;
        self.upkeep.abandon();
        let node = self.node.take();
        let Some(mut node) = node else { return };
        if !node.is_running() {
            let last = self.complaints.last().cloned().unwrap_or_default();
            panic!("the node is down\n{last}\n{}", node.log());
        }
        self.connect(&node).await;
        self.theirs = self.postgres.connect(DATABASE).await;
        self.node = Some(node);
    }

    /// Leaves both databases empty.
    async fn end(&mut self) {
        if self.node.is_none() {
            return;
        }
        self.reader = None;
        for at in 0..3 {
            let sql = Statement::new(format!("DROP TABLE IF EXISTS t{at}"));
            for (side, client) in [("aerostat", &self.ours), ("postgresql", &self.theirs)] {
                let answer = ask(client, &sql).await;
                if answer.failed() {
                    let text = format!("{side}: {} failed: {answer:?}", sql.sql);
                    self.complaints.push(text);
                }
            }
        }
    }
}

/// The beginning of a long text.
fn cut(text: &str) -> String {
    const CHARS_MAX: usize = 700;
    if text.chars().count() <= CHARS_MAX {
        return text.to_owned();
    }
    text.chars().take(CHARS_MAX).collect::<String>() + " …"
}
