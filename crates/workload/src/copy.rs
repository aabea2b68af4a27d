//! Rows as the bytes of PostgreSQL's `COPY … FROM STDIN`, in text or CSV format.
//!
//! Numbers are written digit by digit and text is scanned once; no formatting
//! machinery runs per field, because rendering is most of a load's work.

/// How rows are rendered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// PostgreSQL's default: fields end in a tab, rows in a line feed, and
    /// backslash, tab, line feed and carriage return are escaped.
    #[default]
    Text,
    /// Comma-separated; fields that hold a comma, a quote or a line end are
    /// quoted, and so is the empty text (unquoted it would be NULL).
    Csv,
}

impl Format {
    /// The statement that reads these bytes into `table`.
    pub fn copy_statement(self, table: &str) -> String {
        match self {
            Self::Text => format!("COPY {table} FROM STDIN"),
            Self::Csv => format!("COPY {table} FROM STDIN WITH (FORMAT csv)"),
        }
    }
}

/// Appends rows to a byte buffer.
#[derive(Debug)]
pub struct RowWriter<'a> {
    out: &'a mut Vec<u8>,
    format: Format,
    first_field: bool,
}

impl<'a> RowWriter<'a> {
    /// A writer that appends to `out`.
    pub fn new(out: &'a mut Vec<u8>, format: Format) -> Self {
        Self {
            out,
            format,
            first_field: true,
        }
    }

    /// Appends an integer field.
    pub fn int(&mut self, value: impl Into<i64>) {
        self.separate();
        write_int(self.out, value.into());
    }

    /// Appends a text field.
    pub fn text(&mut self, value: &str) {
        self.separate();
        match self.format {
            Format::Text => write_escaped(self.out, value.as_bytes()),
            Format::Csv => write_quoted(self.out, value.as_bytes()),
        }
    }

    /// Appends a NULL field.
    pub fn null(&mut self) {
        self.separate();
        if self.format == Format::Text {
            self.out.extend_from_slice(b"\\N");
        }
    }

    /// Ends the row.
    pub fn end_row(&mut self) {
        self.out.push(b'\n');
        self.first_field = true;
    }

    fn separate(&mut self) {
        if !self.first_field {
            self.out.push(match self.format {
                Format::Text => b'\t',
                Format::Csv => b',',
            });
        }
        self.first_field = false;
    }
}

fn write_int(out: &mut Vec<u8>, value: i64) {
    // An i64 has at most 19 digits.
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    let mut rest = value.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

fn write_escaped(out: &mut Vec<u8>, value: &[u8]) {
    if !value.iter().any(|byte| b"\\\t\n\r".contains(byte)) {
        out.extend_from_slice(value);
        return;
    }
    for &byte in value {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            _ => out.push(byte),
        }
    }
}

fn write_quoted(out: &mut Vec<u8>, value: &[u8]) {
    // `\.` alone on a line ends CSV input in servers older than PostgreSQL 18.
    let plain =
        !value.is_empty() && value != b"\\." && !value.iter().any(|byte| b",\"\n\r".contains(byte));
    if plain {
        out.extend_from_slice(value);
        return;
    }
    out.push(b'"');
    for &byte in value {
        if byte == b'"' {
            out.push(b'"');
        }
        out.push(byte);
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(format: Format, fields: &[&str]) -> String {
        let mut out = Vec::new();
        let mut writer = RowWriter::new(&mut out, format);
        for field in fields {
            writer.text(field);
        }
        writer.end_row();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn integers_at_the_ends() {
        for value in [0, 1, -1, 9, 10, 1_234_567_890, i64::MAX, i64::MIN] {
            let mut out = Vec::new();
            RowWriter::new(&mut out, Format::Text).int(value);
            assert_eq!(String::from_utf8(out).unwrap(), value.to_string());
        }
    }

    #[test]
    fn text_format_escapes() {
        assert_eq!(
            render(Format::Text, &["a,b", "t\tn\nr\rb\\", ""]),
            "a,b\tt\\tn\\nr\\rb\\\\\t\n"
        );
    }

    #[test]
    fn csv_quotes_only_where_needed() {
        assert_eq!(
            render(Format::Csv, &["a b", "a,b", "a\"b", "", "\\.", "x\ny"]),
            "a b,\"a,b\",\"a\"\"b\",\"\",\"\\.\",\"x\ny\"\n"
        );
    }

    #[test]
    fn nulls_differ_from_empty_text() {
        for (format, expected) in [(Format::Text, "\\N\t\n"), (Format::Csv, ",\"\"\n")] {
            let mut out = Vec::new();
            let mut writer = RowWriter::new(&mut out, format);
            writer.null();
            writer.text("");
            writer.end_row();
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    #[test]
    fn statements_name_the_format() {
        assert_eq!(Format::Text.copy_statement("t"), "COPY t FROM STDIN");
        assert_eq!(
            Format::Csv.copy_statement("t"),
            "COPY t FROM STDIN WITH (FORMAT csv)"
        );
    }
}
