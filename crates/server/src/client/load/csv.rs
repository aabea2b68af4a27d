//! `aerostat load csv`: the file's bytes go straight into `COPY … WITH (FORMAT csv)`;
//! the server does the parsing. Only `--create` looks at the first rows here.

use std::path::PathBuf;
use std::time::Instant;

use aerostat_workload::load::copy_bytes;
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use clap::Args;
use futures::StreamExt;
use futures::stream::{self, Stream};
use tokio::fs::File;
use tokio::io::AsyncReadExt;

use super::{file_summary, infer};
use crate::client::{Target, connect, ensure_database, quote_table};

/// Rows looked at to choose types for `--create`.
const SAMPLE_ROWS: usize = 1000;

/// Bytes read at once: a few of COPY's frames.
const READ_BYTES: usize = 256 * 1024;

/// A CSV file and how to read it.
#[derive(Args)]
pub(crate) struct CsvArguments {
    /// The file
    path: PathBuf,
    /// Table to load into, with its schema where needed
    #[arg(long)]
    table: String,
    /// Database to load into; made when it is not there
    #[arg(long, default_value = "aerostat")]
    tenant: String,
    /// Create the table, with types that fit the first 1,000 rows
    #[arg(long)]
    create: bool,
    /// Layout of a table that is created
    #[arg(long, requires = "create")]
    layout: Option<String>,
    /// The file has no line of names
    #[arg(long)]
    no_header: bool,
    /// Character between fields
    #[arg(long, default_value = ",")]
    delimiter: String,
    /// Text that stands for NULL
    #[arg(long, default_value = "")]
    null: String,
    #[command(flatten)]
    target: Target,
}

/// Loads the file.
///
/// # Errors
/// When it cannot be read or the node refuses it; then no row stays.
pub(super) async fn run(arguments: CsvArguments) -> Result<()> {
    ensure!(
        arguments.delimiter.len() == 1,
        "a delimiter is one ASCII character"
    );
    let started = Instant::now();
    let file = File::open(&arguments.path)
        .await
        .with_context(|| format!("cannot open {}", arguments.path.display()))?;
    ensure_database(&arguments.target, &arguments.tenant).await?;
    let client = connect(&arguments.target.database(&arguments.tenant)?).await?;
    if arguments.create {
        let create = create_table(&arguments)?;
        client
            .batch_execute(&create)
            .await
            .with_context(|| format!("refused: {create}"))?;
    }
    let bar = indicatif::ProgressBar::new(file.metadata().await?.len());
    let progress = bar.clone();
    let bytes = chunks(file).inspect(move |chunk| {
        if let Ok(chunk) = chunk {
            progress.inc(chunk.len() as u64);
        }
    });
    let copied = copy_bytes(&client, &copy_statement(&arguments), bytes).await;
    bar.finish_and_clear();
    let copied = copied.with_context(|| format!("cannot load {}", arguments.path.display()))?;
    crate::print(&file_summary(&arguments.table, copied.rows, started))
}

fn copy_statement(arguments: &CsvArguments) -> String {
    let quote = |text: &str| text.replace('\'', "''");
    format!(
        "COPY {} FROM STDIN WITH (FORMAT csv, HEADER {}, DELIMITER '{}', NULL '{}')",
        quote_table(&arguments.table),
        !arguments.no_header,
        quote(&arguments.delimiter),
        quote(&arguments.null)
    )
}

fn create_table(arguments: &CsvArguments) -> Result<String> {
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(!arguments.no_header)
        .delimiter(arguments.delimiter.as_bytes()[0])
        .flexible(true)
        .from_path(&arguments.path)
        .with_context(|| format!("cannot open {}", arguments.path.display()))?;
    let mut rows = Vec::new();
    for record in reader.records().take(SAMPLE_ROWS) {
        let record = record.with_context(|| format!("{} is no CSV", arguments.path.display()))?;
        rows.push(record.iter().map(str::to_owned).collect::<Vec<_>>());
    }
    let names: Vec<String> = if arguments.no_header {
        let width = rows.iter().map(Vec::len).max().unwrap_or(0);
        (1..=width).map(|at| format!("c{at}")).collect()
    } else {
        reader.headers()?.iter().map(str::to_owned).collect()
    };
    ensure!(
        !names.is_empty(),
        "{} has no columns",
        arguments.path.display()
    );
    let columns = infer::of_texts(&names, &rows, &arguments.null);
    Ok(infer::create_table(
        &arguments.table,
        &columns,
        arguments.layout.as_deref(),
    ))
}

/// The file's bytes in order.
fn chunks(file: File) -> impl Stream<Item = std::io::Result<Bytes>> {
    stream::try_unfold(file, async |mut file| {
        let mut buffer = bytes::BytesMut::with_capacity(READ_BYTES);
        let read = file.read_buf(&mut buffer).await?;
        Ok((read > 0).then(|| (buffer.freeze(), file)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(path: PathBuf) -> CsvArguments {
        CsvArguments {
            path,
            table: "t".to_owned(),
            tenant: "x".to_owned(),
            create: true,
            layout: None,
            no_header: false,
            delimiter: ";".to_owned(),
            null: "it's".to_owned(),
            target: Target {
                url: String::new(),
                trust: None,
            },
        }
    }

    #[test]
    fn the_statement_carries_the_options() {
        assert_eq!(
            copy_statement(&arguments(PathBuf::new())),
            "COPY \"t\" FROM STDIN WITH (FORMAT csv, HEADER true, DELIMITER ';', NULL 'it''s')"
        );
    }

    #[tokio::test]
    async fn a_file_arrives_whole_and_shows_its_columns() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        let text = format!("id;name\n{}", "1;x\n".repeat(100_000));
        std::fs::write(&path, &text).unwrap();
        let create = create_table(&arguments(path.clone())).unwrap();
        assert_eq!(create, "CREATE TABLE \"t\" (\"id\" bigint, \"name\" text)");
        let file = File::open(&path).await.unwrap();
        let parts: Vec<_> = chunks(file).collect().await;
        let read: Vec<u8> = parts
            .into_iter()
            .flat_map(|part| part.unwrap().to_vec())
            .collect();
        assert_eq!(read, text.as_bytes());
    }
}
