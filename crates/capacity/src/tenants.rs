//! The list of tenants: a CSV file.
//!
//! ```text
//! name,size,rate,goal
//! acme,6 Mrows,20/s,50 ms
//! zoo,2 GB,90/min,
//! ```
//!
//! `goal` is that of the 99th percentile of response times; without one, the model's. Lines
//! that begin with `#` are comments.

use std::path::Path;

use crate::PlanError;
use crate::model::Model;
use crate::units::{Size, parse_rate, parse_size, parse_time_ms};

/// A tenant to be placed.
#[derive(Clone, Debug, PartialEq)]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// Rows of its fact table.
    pub rows: f64,
    /// Bytes in a node's memory.
    pub bytes: f64,
    /// Requests per second.
    pub rate: f64,
    /// The goal of its 99th percentile, ms.
    pub goal_ms: f64,
}

/// The tenants in a file. What a size does not tell, rows or bytes, is by the model.
///
/// # Errors
/// [`PlanError::Read`]; [`PlanError::Line`] with what is wrong in it; [`PlanError::NoTenants`].
pub fn read_tenants(path: &Path, model: &Model) -> Result<Vec<Tenant>, PlanError> {
    let text = std::fs::read_to_string(path).map_err(|source| PlanError::Read {
        path: path.to_owned(),
        source,
    })?;
    parse_tenants(&text, model)
}

/// The same of a text.
///
/// # Errors
/// As [`read_tenants`].
pub fn parse_tenants(text: &str, model: &Model) -> Result<Vec<Tenant>, PlanError> {
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .comment(Some(b'#'))
        .from_reader(text.as_bytes());
    let headings = reader.headers().map_err(PlanError::Csv)?.clone();
    let column = |name: &'static str| headings.iter().position(|heading| heading == name);
    let needed = |name: &'static str| column(name).ok_or(PlanError::Column { name });
    let columns = [needed("name")?, needed("size")?, needed("rate")?];
    let known = ["name", "size", "rate", "goal"];
    if let Some(other) = headings.iter().find(|heading| !known.contains(heading)) {
        return Err(PlanError::UnknownColumn {
            name: other.to_owned(),
        });
    }
    let goal = column("goal");
    let mut tenants: Vec<Tenant> = Vec::new();
    for record in reader.records() {
        let record = record.map_err(PlanError::Csv)?;
        let line = record.position().map_or(0, csv::Position::line);
        let field = |column: usize| record.get(column).unwrap_or_default();
        let texts = columns.map(field);
        let goal = goal.map(field).filter(|goal| !goal.is_empty());
        let tenant = tenant(texts, goal, model).map_err(|source| PlanError::Line {
            line,
            source: Box::new(source),
        })?;
        if tenants.iter().any(|known| known.name == tenant.name) {
            return Err(PlanError::Line {
                line,
                source: Box::new(PlanError::Duplicate { name: tenant.name }),
            });
        }
        tenants.push(tenant);
    }
    if tenants.is_empty() {
        return Err(PlanError::NoTenants);
    }
    Ok(tenants)
}

fn tenant(
    [name, size, rate]: [&str; 3],
    goal: Option<&str>,
    model: &Model,
) -> Result<Tenant, PlanError> {
    if name.is_empty() {
        return Err(PlanError::NoName);
    }
    let bytes_per_row = model.measured.bytes_per_row;
    let (rows, bytes) = match parse_size(size)? {
        Size::Rows(rows) => (rows, rows * bytes_per_row),
        Size::Bytes(bytes) => (bytes / bytes_per_row, bytes),
    };
    Ok(Tenant {
        name: name.to_owned(),
        rows,
        bytes,
        rate: parse_rate(rate)?,
        goal_ms: goal.map_or(Ok(model.measured.goal_ms), parse_time_ms)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tests::model;

    #[test]
    fn a_list_is_read() {
        let text =
            "name,size,rate,goal\n# the large ones\nacme, 6 Mrows, 20/s, 1 s\nzoo,200 MB,90/min,\n";
        let tenants = parse_tenants(text, &model()).unwrap();
        assert_eq!(tenants.len(), 2);
        assert_eq!(tenants[0].goal_ms, 1000.0);
        assert_eq!(
            (tenants[0].rows, tenants[0].bytes, tenants[0].rate),
            (6e6, 120e6, 20.0)
        );
        assert_eq!(
            (tenants[1].rows, tenants[1].rate),
            (200.0 * 1048576.0 / 20.0, 1.5)
        );
        assert_eq!(tenants[1].goal_ms, 50.0);
        // Columns are found by name.
        let tenants = parse_tenants("rate,name,size\n3,a,1 GB\n", &model()).unwrap();
        assert_eq!((tenants[0].rate, tenants[0].name.as_str()), (3.0, "a"));
    }

    #[test]
    fn mistakes_are_told_with_their_line() {
        let refused = |text: &str| {
            let error = parse_tenants(text, &model()).unwrap_err();
            let source = std::error::Error::source(&error).map(ToString::to_string);
            format!("{error}: {}", source.unwrap_or_default())
        };
        let twice = refused("name,size,rate\na,1 GB,1\nb,1 GB,1\na,2 GB,1\n");
        assert!(
            twice.contains("line 4") && twice.contains("\"a\""),
            "{twice}"
        );
        let unit = refused("name,size,rate\na,1 light year,1\n");
        assert!(
            unit.contains("line 2") && unit.contains("1 light year"),
            "{unit}"
        );
        assert!(refused("name,size\na,1 GB\n").contains("rate"));
        assert!(refused("name,size,rate,colour\na,1 GB,1,red\n").contains("colour"));
        assert!(refused("name,size,rate\n").contains("no tenant"));
        assert!(refused("name,size,rate\n,1 GB,1\n").contains("no name"));
        assert!(refused("name,size,rate\na,1 GB\n").contains("CSV"));
        let error = read_tenants(Path::new("/nowhere.csv"), &model()).unwrap_err();
        assert!(error.to_string().contains("/nowhere.csv"));
    }
}
