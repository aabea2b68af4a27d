//! Tables on the terminal.

use comfy_table::{Cell, CellAlignment, ContentArrangement, Row, Table, TableComponent, presets};

/// A table with a heading; every column but the first is right-aligned.
pub(crate) fn table<const N: usize>(
    headings: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> Table {
    let mut table = plain_table(headings, rows);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// A table with a heading; all is left-aligned.
pub(crate) fn plain_table(
    headings: impl IntoIterator<Item = impl Into<Cell>>,
    rows: impl IntoIterator<Item = impl Into<Row>>,
) -> Table {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    for line in [
        TableComponent::HeaderLines,
        TableComponent::MiddleHeaderIntersections,
    ] {
        table.set_style(line, '─');
    }
    table.set_header(headings.into_iter().map(Into::into).collect::<Vec<Cell>>());
    for row in rows {
        table.add_row(row);
    }
    table
}

/// Bytes for people: `12.3 MiB`.
pub(crate) fn bytes(value: u64) -> String {
    let mut scaled = value as f64;
    let mut unit = "B";
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if scaled < 1024.0 {
            break;
        }
        scaled /= 1024.0;
        unit = next;
    }
    if unit == "B" {
        format!("{value} B")
    } else {
        format!("{scaled:.1} {unit}")
    }
}

/// A count with thousands separated.
pub(crate) fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(bytes(17), "17 B");
        assert_eq!(bytes(3 << 19), "1.5 MiB");
        assert_eq!(count(1), "1");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(123_456), "123,456");
    }

    #[test]
    fn a_table_has_its_cells() {
        let text = table(["name", "n"], [["a".to_owned(), "1".to_owned()]]).to_string();
        assert!(
            text.contains("name") && text.contains('a') && text.contains('1'),
            "{text}"
        );
    }
}
