//! `aerostat load parquet`: row groups are decoded here, batch by batch, and sent
//! as COPY text. Nothing is held but one batch.

use std::fmt::Write;
use std::fs::File;
use std::path::PathBuf;
use std::time::Instant;

use aerostat_workload::load::copy_bytes;
use anyhow::{Context, Result};
use arrow::array::Array;
use arrow::compute::cast;
use arrow::datatypes::DataType;
use arrow::record_batch::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use bytes::Bytes;
use clap::Args;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tokio::sync::mpsc;

use super::infer::{self, Column};
use super::{file_summary, progress};
use crate::client::{Target, connect, ensure_database, quote_name, quote_table};

/// Rows decoded at once.
const BATCH_ROWS: usize = 8192;

/// Batches decoded ahead of the connection.
const BATCHES_IN_FLIGHT: usize = 4;

/// A Parquet file and where it goes.
#[derive(Args)]
pub(crate) struct ParquetArguments {
    /// The file
    path: PathBuf,
    /// Table to load into, with its schema where needed
    #[arg(long)]
    table: String,
    /// Database to load into; made when it is not there
    #[arg(long, default_value = "aerostat")]
    tenant: String,
    /// Create the table with the file's columns
    #[arg(long)]
    create: bool,
    /// Layout of a table that is created
    #[arg(long, requires = "create")]
    layout: Option<String>,
    #[command(flatten)]
    target: Target,
}

/// Loads the file.
///
/// # Errors
/// When it cannot be read or the node refuses it; then no row stays.
pub(super) async fn run(arguments: ParquetArguments) -> Result<()> {
    let started = Instant::now();
    let builder = open(&arguments.path)?;
    let rows_expected = u64::try_from(builder.metadata().file_metadata().num_rows()).unwrap_or(0);
    let columns = columns(&builder)?;
    ensure_database(&arguments.target, &arguments.tenant).await?;
    let client = connect(&arguments.target.database(&arguments.tenant)?).await?;
    if arguments.create {
        let create = infer::create_table(&arguments.table, &columns, arguments.layout.as_deref());
        client
            .batch_execute(&create)
            .await
            .with_context(|| format!("refused: {create}"))?;
    }
    let names: Vec<String> = columns
        .iter()
        .map(|column| quote_name(&column.name))
        .collect();
    let statement = format!(
        "COPY {} ({}) FROM STDIN",
        quote_table(&arguments.table),
        names.join(", ")
    );
    let bar = progress::bar(arguments.table.clone(), rows_expected);
    let (sender, mut receiver) = mpsc::channel(BATCHES_IN_FLIGHT);
    let reader = tokio::task::spawn_blocking(move || decode(builder, &sender));
    let chunks = futures::stream::poll_fn(|context| receiver.poll_recv(context));
    let counted = futures::StreamExt::map(chunks, |item: Result<(u64, Bytes)>| {
        item.map(|(rows, bytes)| {
            bar.inc(rows);
            bytes
        })
    });
    let copied = copy_bytes(&client, &statement, counted).await;
    bar.finish_and_clear();
    let copied = copied.with_context(|| format!("cannot load {}", arguments.path.display()))?;
    reader.await.context("the reader died")?;
    crate::print(&file_summary(&arguments.table, copied.rows, started))
}

type Builder = ParquetRecordBatchReaderBuilder<File>;

fn open(path: &std::path::Path) -> Result<Builder> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    Builder::try_new(file).with_context(|| format!("{} is no Parquet file", path.display()))
}

fn columns(builder: &Builder) -> Result<Vec<Column>> {
    let fields = builder.schema().fields().iter();
    fields
        .map(|field| {
            Ok(Column {
                name: field.name().clone(),
                sql_type: infer::of_field(field)?,
            })
        })
        .collect()
}

/// Decodes the file into chunks of COPY text until nobody takes them.
fn decode(builder: Builder, sender: &mpsc::Sender<Result<(u64, Bytes)>>) {
    let each = || -> Result<()> {
        for batch in builder.with_batch_size(BATCH_ROWS).build()? {
            let batch = batch?;
            let text = copy_text(&batch)?;
            if sender
                .blocking_send(Ok((batch.num_rows() as u64, text.into())))
                .is_err()
            {
                return Ok(());
            }
        }
        Ok(())
    };
    if let Err(error) = each() {
        // Nobody listening means the COPY has failed and says so itself.
        sender.blocking_send(Err(error)).ok();
    }
}

/// A batch as COPY's text format.
fn copy_text(batch: &RecordBatch) -> Result<String> {
    let options = FormatOptions::default()
        .with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.f"))
        .with_timestamp_tz_format(Some("%Y-%m-%d %H:%M:%S%.f%:z"));
    let columns: Vec<_> = batch
        .columns()
        .iter()
        .map(|column| plain(column))
        .collect::<Result<_>>()?;
    let formatters = columns
        .iter()
        .map(|column| ArrayFormatter::try_new(column.as_ref(), &options))
        .collect::<Result<Vec<_>, _>>()?;
    let mut out = String::new();
    let mut value = String::new();
    for row in 0..batch.num_rows() {
        for (at, (column, formatter)) in columns.iter().zip(&formatters).enumerate() {
            if at > 0 {
                out.push('\t');
            }
            if column.is_null(row) {
                out.push_str("\\N");
                continue;
            }
            value.clear();
            write!(value, "{}", formatter.value(row))?;
            push_field(&mut out, column.as_ref(), &value);
        }
        out.push('\n');
    }
    Ok(out)
}

/// Dictionaries unpacked, sixteen-byte values as bytes: kinds the formatter shows as we need them.
fn plain(column: &dyn Array) -> Result<arrow::array::ArrayRef> {
    let target = match column.data_type() {
        DataType::Dictionary(_, value) => value.as_ref().clone(),
        DataType::Date64 => DataType::Date32,
        other => other.clone(),
    };
    Ok(cast(column, &target)?)
}

fn push_field(out: &mut String, column: &dyn Array, value: &str) {
    match column.data_type() {
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
            out.push_str("\\\\x");
            out.push_str(value);
        }
        DataType::FixedSizeBinary(width) => {
            if *width != 16 {
                out.push_str("\\\\x");
            }
            out.push_str(value);
        }
        _ => push_escaped(out, value),
    }
}

/// COPY's escapes.
fn push_escaped(out: &mut String, value: &str) {
    for char in value.chars() {
        match char {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{
        BinaryArray, BooleanArray, Decimal128Array, Float64Array, Int32Array, StringArray,
    };
    use arrow::array::{Date32Array, TimestampMicrosecondArray};
    use std::sync::Arc;

    #[test]
    fn every_kind_becomes_copy_text() {
        let decimals = Decimal128Array::from(vec![Some(-150), None])
            .with_precision_and_scale(5, 2)
            .unwrap();
        let batch = RecordBatch::try_from_iter_with_nullable([
            (
                "i",
                Arc::new(Int32Array::from(vec![Some(7), None])) as arrow::array::ArrayRef,
                true,
            ),
            (
                "s",
                Arc::new(StringArray::from(vec![Some("a\tb\\c\nd"), Some("")])),
                true,
            ),
            ("b", Arc::new(BooleanArray::from(vec![true, false])), true),
            ("n", Arc::new(decimals), true),
            ("f", Arc::new(Float64Array::from(vec![1.5, f64::NAN])), true),
            ("d", Arc::new(Date32Array::from(vec![19_782, 0])), true),
            (
                "t",
                Arc::new(TimestampMicrosecondArray::from(vec![1_500_000, 0])),
                true,
            ),
            (
                "y",
                Arc::new(BinaryArray::from(vec![&[0u8, 255][..], &[]])),
                true,
            ),
        ])
        .unwrap();
        assert_eq!(
            copy_text(&batch).unwrap(),
            "7\ta\\tb\\\\c\\nd\ttrue\t-1.50\t1.5\t2024-02-29\t1970-01-01 00:00:01.500\t\\\\x00ff\n\
             \\N\t\tfalse\t\\N\tNaN\t1970-01-01\t1970-01-01 00:00:00\t\\\\x\n"
        );
    }
}
