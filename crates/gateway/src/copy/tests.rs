//! COPY data as PostgreSQL reads and writes them; and the same results for all boundaries of
//! pieces.

use std::sync::Arc;

use aerostat_types::SqlType;
use arrow::{
    array::ArrayRef, compute::concat_batches, datatypes::Schema, record_batch::RecordBatch,
};
use proptest::prelude::*;

use super::{Decoder, Encoder};
use crate::{
    api::{ColumnDescription, CopyColumn, CopyFormat, CopyHeader, CopyOptions, ForceQuote},
    sqlstate::WireError,
    value::tests::{ZONE, any_text, build},
    wire::Output,
};

fn columns(types: &[SqlType]) -> Vec<CopyColumn> {
    let named = types.iter().enumerate();
    named
        .map(|(at, ty)| CopyColumn {
            name: ((b'a' + at as u8) as char).to_string(),
            ty: *ty,
            nullable: true,
        })
        .collect()
}

fn decode(
    types: &[SqlType],
    options: &CopyOptions,
    pieces: &[&[u8]],
) -> Result<Vec<RecordBatch>, WireError> {
    let mut decoder = Decoder::new("t", &columns(types), options, ZONE, None);
    let mut batches = Vec::new();
    for piece in pieces {
        decoder.push(piece)?;
        while let Some(batch) = decoder.next_batch()? {
            batches.push(batch);
        }
    }
    decoder.end();
    while let Some(batch) = decoder.next_batch()? {
        batches.push(batch);
    }
    Ok(batches)
}

fn encode(batch: &RecordBatch, types: &[SqlType], options: &CopyOptions) -> Vec<u8> {
    let described: Vec<_> = columns(types)
        .iter()
        .map(|c| ColumnDescription::new(&c.name, c.ty))
        .collect();
    let mut encoder = Encoder::new(described.into(), options.clone(), ZONE, None);
    let mut output = Output::default();
    encoder.put_header(&mut output).unwrap();
    let prepared = encoder.prepare(batch).unwrap();
    for row in 0..batch.num_rows() {
        encoder.put_row(&prepared, row, &mut output).unwrap();
    }
    encoder.put_end(&mut output);
    let mut data = Vec::new();
    let mut rest = &output.bytes[..];
    while !rest.is_empty() {
        let end = 1 + u32::from_be_bytes(rest[1..5].try_into().unwrap()) as usize;
        assert_eq!(rest[0], b'd');
        data.extend_from_slice(&rest[5..end]);
        rest = &rest[end..];
    }
    data
}

/// The rows as texts, with `None` for NULL.
fn rows(
    types: &[SqlType],
    options: &CopyOptions,
    data: &[u8],
) -> Result<Vec<Vec<Option<String>>>, WireError> {
    let batches = decode(types, options, &[data])?;
    let mut rows = Vec::new();
    for batch in &batches {
        let arrays: Vec<_> = batch
            .columns()
            .iter()
            .map(|c| arrow::compute::cast(c, &arrow::datatypes::DataType::Utf8).unwrap())
            .collect();
        for row in 0..batch.num_rows() {
            use arrow::array::{Array, AsArray};
            let value = |a: &ArrayRef| {
                let a = a.as_string::<i32>();
                a.is_valid(row).then(|| a.value(row).to_owned())
            };
            rows.push(arrays.iter().map(value).collect());
        }
    }
    Ok(rows)
}

const TWO_TEXTS: [SqlType; 2] = [SqlType::Text, SqlType::Text];

fn row(values: [Option<&str>; 2]) -> Vec<Option<String>> {
    values.map(|value| value.map(str::to_owned)).to_vec()
}

#[test]
fn text_is_read_as_postgresql_reads_it() {
    let options = CopyOptions::new(CopyFormat::Text);
    let data = b"a\\tb\t\\N\n\\x41\\101\\\\\t\nline\\\nend\tx\\qy\n\\\\N\tz\n\\.\nignored";
    let expected = [
        row([Some("a\tb"), None]),
        row([Some("AA\\"), Some("")]),
        row([Some("line\nend"), Some("xqy")]),
        row([Some("\\N"), Some("z")]),
    ];
    assert_eq!(rows(&TWO_TEXTS, &options, data).unwrap(), expected);
    // The last line needs no end, and lines may end with CR LF.
    assert_eq!(
        rows(&TWO_TEXTS, &options, b"1\t2\r\n3\t4").unwrap(),
        [row([Some("1"), Some("2")]), row([Some("3"), Some("4")])]
    );
    let options = CopyOptions {
        delimiter: b'|',
        null: "-".to_owned(),
        header: CopyHeader::Present,
        ..options
    };
    assert_eq!(
        rows(&TWO_TEXTS, &options, b"x|y\n-|\\-\n").unwrap(),
        [row([None, Some("-")])]
    );
}

#[test]
fn csv_is_read_as_postgresql_reads_it() {
    let options = CopyOptions::new(CopyFormat::Csv);
    let data = b"a,\n\"x \"\"y\"\"\",\"\"\n\"l1\nl2\",pre\"mid,\"post\n,\"a\r\nb\"\n";
    let expected = [
        row([Some("a"), None]),
        row([Some("x \"y\""), Some("")]),
        row([Some("l1\nl2"), Some("premid,post")]),
        row([None, Some("a\r\nb")]),
    ];
    assert_eq!(rows(&TWO_TEXTS, &options, data).unwrap(), expected);
    let forced = CopyOptions {
        force_not_null: vec![0],
        force_null: vec![1],
        ..options.clone()
    };
    assert_eq!(
        rows(&TWO_TEXTS, &forced, b",\"\"\n").unwrap(),
        [row([Some(""), None])]
    );
    let custom = CopyOptions {
        delimiter: b';',
        quote: b'\'',
        escape: b'\\',
        null: "NULL".to_owned(),
        ..options.clone()
    };
    assert_eq!(
        rows(&TWO_TEXTS, &custom, b"'it\\'s \\\\';NULL\n").unwrap(),
        [row([Some("it's \\"), None])]
    );
    let matching = CopyOptions {
        header: CopyHeader::Match,
        ..options
    };
    assert_eq!(
        rows(&TWO_TEXTS, &matching, b"a,\"b\"\n1,2\n").unwrap(),
        [row([Some("1"), Some("2")])]
    );
    let error = rows(&TWO_TEXTS, &matching, b"a,c\n1,2\n").unwrap_err();
    assert_eq!(
        error.error.message,
        "column name mismatch in header line field 2: got \"c\", expected \"b\""
    );
    assert_eq!(
        rows(&TWO_TEXTS, &matching, b"a\n")
            .unwrap_err()
            .error
            .message,
        "wrong number of fields in header line: got 1, expected 2"
    );
}

#[test]
fn errors_name_line_and_column() {
    let types = [SqlType::Integer, SqlType::Varchar(Some(3))];
    let check = |format, data: &[u8], code, message: &str, context: &str| {
        let error = decode(&types, &CopyOptions::new(format), &[data]).unwrap_err();
        assert_eq!(
            (
                error.code(),
                error.error.message.as_str(),
                error.context.as_deref()
            ),
            (code, message, Some(context))
        );
    };
    use CopyFormat::{Binary, Csv, Text};
    check(
        Text,
        b"1\ta\n2\n",
        "22P04",
        "missing data for column \"b\"",
        "COPY t, line 2: \"2\"",
    );
    check(
        Text,
        b"1\ta\tx\n",
        "22P04",
        "extra data after last expected column",
        "COPY t, line 1: \"1\ta\tx\"",
    );
    check(
        Text,
        b"1\ta\n\n",
        "22P02",
        "invalid input syntax for type integer: \"\"",
        "COPY t, line 2, column a: \"\"",
    );
    check(
        Text,
        b"1\tlong\n",
        "22001",
        "value too long for type character varying(3)",
        "COPY t, line 1, column b: \"long\"",
    );
    check(
        Csv,
        b"\"1\",a\n\n",
        "22P04",
        "missing data for column \"b\"",
        "COPY t, line 2: \"\"",
    );
    check(
        Csv,
        b"1,\"a\nb\"\n99999999999,c\n",
        "22003",
        "value \"99999999999\" is out of range for type integer",
        "COPY t, line 3, column a: \"99999999999\"",
    );
    check(
        Csv,
        b"1,\"a\n",
        "22P04",
        "unterminated CSV quoted field",
        "COPY t, line 1: \"1,\"a\n\"",
    );
    // The first error in the order of lines, not of columns.
    check(
        Text,
        b"1\ta\n2\tb\n3\tlong\nx\td\n4\n",
        "22001",
        "value too long for type character varying(3)",
        "COPY t, line 3, column b: \"long\"",
    );
    check(
        Csv,
        b"1,a\n2147483648,long\n",
        "22003",
        "value \"2147483648\" is out of range for type integer",
        "COPY t, line 2, column a: \"2147483648\"",
    );
    check(
        Text,
        b"1\t\xff\n",
        "22021",
        "invalid byte sequence for encoding \"UTF8\": 0xff",
        "COPY t, line 1, column b: \"\u{fffd}\"",
    );
    check(
        Binary,
        b"junk",
        "22P04",
        "COPY file signature not recognized",
        "COPY t, line 0",
    );
    let header = [&b"PGCOPY\n\xff\r\n\0"[..], &[0; 8]].concat();
    let tuple = |bytes: &[u8]| [&header[..], bytes].concat();
    check(
        Binary,
        &tuple(&[0, 1]),
        "22P04",
        "row field count is 1, expected 2",
        "COPY t, line 1",
    );
    check(
        Binary,
        &tuple(&[0, 2, 0, 0]),
        "22P04",
        "unexpected EOF in COPY data",
        "COPY t, line 0",
    );
    for (cut, message) in [(13, "(missing flags)"), (17, "(missing length)")] {
        let message = format!("invalid COPY file header {message}");
        check(Binary, &header[..cut], "22P04", &message, "COPY t, line 0");
    }
    check(
        Binary,
        &tuple(&[0xff, 0xff, 0]),
        "22P04",
        "received copy data after EOF marker",
        "COPY t, line 0",
    );
    for end in [&[][..], &[0], &[0xff, 0xff]] {
        let options = CopyOptions::new(Binary);
        for pieces in [&[&tuple(end)[..]][..], &[&header, end]] {
            assert_eq!(decode(&types, &options, pieces).unwrap(), []);
        }
    }
    check(
        Binary,
        &tuple(&[0, 2, 0xff, 0xff, 0xff, 0xfe]),
        "22P04",
        "invalid field size",
        "COPY t, line 1",
    );
    check(
        Binary,
        &tuple(&[0, 2, 0, 0, 0, 1, 9, 255, 255, 255, 255]),
        "22P03",
        "incorrect binary data format: 1 bytes where 8 were expected",
        "COPY t, line 1, column a",
    );
}

#[test]
fn csv_is_written_as_postgresql_writes_it() {
    let write = |values: [Option<&str>; 2], options: &CopyOptions| {
        let arrays: Vec<ArrayRef> = values
            .iter()
            .map(|v| build(SqlType::Text, &[v.map(str::to_owned)]))
            .collect();
        let schema = Schema::new(
            columns(&TWO_TEXTS)
                .iter()
                .map(|c| c.ty.field(&c.name, true))
                .collect::<Vec<_>>(),
        );
        String::from_utf8(encode(
            &RecordBatch::try_new(Arc::new(schema), arrays).unwrap(),
            &TWO_TEXTS,
            options,
        ))
        .unwrap()
    };
    let options = CopyOptions::new(CopyFormat::Csv);
    assert_eq!(write([Some(""), None], &options), "\"\",\n");
    assert_eq!(
        write([Some("a\"b,c"), Some(" d ")], &options),
        "\"a\"\"b,c\", d \n"
    );
    let all = CopyOptions {
        force_quote: ForceQuote::All,
        header: CopyHeader::Present,
        ..options.clone()
    };
    assert_eq!(write([Some("x"), None], &all), "a,b\n\"x\",\n");
    let one = CopyOptions {
        force_quote: ForceQuote::Columns(vec![1]),
        ..options
    };
    assert_eq!(write([Some("x"), Some("y")], &one), "x,\"y\"\n");
}

#[test]
fn full_batches_are_handed_over() {
    let data: String = (0..20_000).map(|n| format!("{n}\n")).collect();
    let batches = decode(
        &[SqlType::Integer],
        &CopyOptions::new(CopyFormat::Text),
        &[data.as_bytes()],
    )
    .unwrap();
    assert_eq!(
        batches
            .iter()
            .map(RecordBatch::num_rows)
            .collect::<Vec<_>>(),
        [8192, 8192, 3616]
    );
    let long = format!("{}\n", "x".repeat(300_000)).repeat(10);
    let batches = decode(
        &[SqlType::Text],
        &CopyOptions::new(CopyFormat::Csv),
        &[long.as_bytes()],
    )
    .unwrap();
    assert_eq!(
        batches
            .iter()
            .map(RecordBatch::num_rows)
            .collect::<Vec<_>>(),
        [4, 4, 2]
    );
}

fn any_format() -> impl Strategy<Value = CopyOptions> {
    let formats = vec![CopyFormat::Text, CopyFormat::Csv, CopyFormat::Binary];
    (prop::sample::select(formats), any::<bool>(), any::<bool>()).prop_map(
        |(format, header, other)| {
            let mut options = CopyOptions::new(format);
            if format != CopyFormat::Binary && header {
                options.header = CopyHeader::Match;
            }
            if format == CopyFormat::Csv && other {
                options = CopyOptions {
                    delimiter: b';',
                    quote: b'\'',
                    escape: b'\\',
                    null: "~".to_owned(),
                    ..options
                };
            }
            if format == CopyFormat::Text && other {
                options = CopyOptions {
                    delimiter: b'|',
                    null: "~".to_owned(),
                    ..options
                };
            }
            options
        },
    )
}

/// The data in pieces that end anywhere.
fn cut<'a>(data: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(data.len() + 1)).collect();
    at.extend([0, data.len()]);
    at.sort_unstable();
    at.windows(2).map(|ends| &data[ends[0]..ends[1]]).collect()
}

type Table = Vec<Vec<Option<String>>>;

fn any_table() -> impl Strategy<Value = Table> {
    let row = crate::tests_types()
        .into_iter()
        .map(any_text)
        .collect::<Vec<_>>();
    prop::collection::vec(row, 0..6)
}

fn batch_of(table: &Table) -> RecordBatch {
    let types = crate::tests_types();
    let schema = Schema::new(
        columns(&types)
            .iter()
            .map(|c| c.ty.field(&c.name, true))
            .collect::<Vec<_>>(),
    );
    let arrays = types.iter().enumerate().map(|(at, ty)| {
        build(
            *ty,
            &table.iter().map(|row| row[at].clone()).collect::<Vec<_>>(),
        )
    });
    RecordBatch::try_new(Arc::new(schema), arrays.collect()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn what_is_written_is_read_back(table in any_table(), options in any_format(), cuts: [prop::sample::Index; 4]) {
        let (types, batch) = (crate::tests_types(), batch_of(&table));
        // Only CSV can write a "~" that is not NULL.
        let ambiguous = options.format == CopyFormat::Text && table.iter().flatten().flatten().any(|t| t == "~");
        prop_assume!(!ambiguous);
        let data = encode(&batch, &types, &options);
        let read = decode(&types, &options, &cut(&data, &cuts)).unwrap();
        prop_assert_eq!(concat_batches(&batch.schema(), &read).unwrap(), batch);
    }

    #[test]
    fn any_bytes_give_rows_or_an_error(data: Vec<u8>, options in any_format(), cuts: [prop::sample::Index; 3]) {
        let _ = decode(&TWO_TEXTS, &options, &cut(&data, &cuts));
    }

    /// Byte by byte no line arrives as a whole, so each is read by the format's own reader.
    #[test]
    fn lines_together_are_lines_one_by_one(
        data in "((-?[0-9]{1,9}| 7|\\\\N|0|) ?[\t,](-?[0-9]{1,6}|\\\\N|)[\t,](~|[ab\u{e9}]{0,4} {0,2}|\"c\"|\\\\t)\r?\n){0,12}",
        bad in prop::option::weighted(0.3, "(1\t2\n|1,2\n|x\t1\ty\n|1,2,3,4\n|\\\\.\n|99999\t-99999\tz\n)(1\t1\ta\n|1,1,a\n)"),
        options in any_format(),
        null in prop::option::of(prop::sample::select(vec!["0", "7", "~", ""])),
    ) {
        let types = [SqlType::Integer, SqlType::SmallInt, SqlType::Char(4)];
        let mut options = CopyOptions { header: CopyHeader::None, ..options };
        if let Some(null) = null {
            options.null = null.to_owned();
        }
        let delimiter = (options.delimiter as char).to_string();
        let data = (data + bad.as_deref().unwrap_or("")).replace(['\t', ','], &delimiter);
        let bytes: Vec<&[u8]> = data.as_bytes().chunks(1).collect();
        let together = decode(&types, &options, &[data.as_bytes()]);
        prop_assert_eq!(together, decode(&types, &options, &bytes));
    }

    #[test]
    fn boundaries_change_nothing(data in "[a1,\"\\\\\t\n\r.N]{0,60}", options in any_format(), cuts: [prop::sample::Index; 3]) {
        let whole = decode(&TWO_TEXTS, &options, &[data.as_bytes()]);
        let pieces = decode(&TWO_TEXTS, &options, &cut(data.as_bytes(), &cuts));
        prop_assert_eq!(whole, pieces);
    }
}
