//! A statement without its literals: the key under which programs are kept.

use aerostat_types::{SqlType, TableSchema};

/// A statement of the grammar. Names are folded, literals are numbered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// The table it is about.
    pub(crate) target: Target,
    pub(crate) action: Action,
    /// RETURNING, or the SELECT list; `None` where nothing is returned.
    pub(crate) items: Option<Vec<Item>>,
}

impl Shape {
    /// Whether it says what is done about rows that are in the way of new ones.
    pub fn has_on_conflict(&self) -> bool {
        self.on_conflict().is_some()
    }

    /// The parameters that are arrays, with their items' types.
    pub fn arrays(&self) -> &[(usize, SqlType)] {
        match &self.action {
            Action::Load(load) => &load.arrays,
            _ => &[],
        }
    }

    /// Whether it gives rows.
    pub fn returns(&self) -> bool {
        self.items.is_some()
    }

    /// The types of the columns that the cells of listed rows go to, if the table has them.
    pub fn listed_columns(&self, schema: &TableSchema) -> Option<Vec<SqlType>> {
        let Action::Load(load) = &self.action else {
            return None;
        };
        let ty = |at: usize| Some(schema.columns.get(at)?.ty);
        let cells = 0..load.width;
        match &load.columns[..] {
            [] => cells.map(ty).collect(),
            names if names.len() == load.width => names
                .iter()
                .map(|name| ty(schema.position(name)?))
                .collect(),
            _ => None,
        }
    }

    /// Whether what is done about rows in the way has parameters, of which listed rows tell
    /// nothing.
    pub fn has_parameters_on_conflict(&self) -> bool {
        let Some(Some(update)) = self.on_conflict().map(|on| on.update.as_ref()) else {
            return false;
        };
        let conditions = update.conditions.iter();
        let conditions = conditions.flat_map(|condition| [&condition.left, &condition.right]);
        let assigned = update.assignments.iter().map(|(_, scalar)| scalar);
        assigned.chain(conditions).any(Scalar::has_parameters)
    }

    /// Whether it updates rows that are in the way of new ones.
    pub fn updates_on_conflict(&self) -> bool {
        let on_conflict = self.on_conflict();
        on_conflict.is_some_and(|on_conflict| on_conflict.update.is_some())
    }

    /// Whether it says which rows are in the way of new ones.
    pub fn has_conflict_target(&self) -> bool {
        let on_conflict = self.on_conflict();
        on_conflict.is_some_and(|on_conflict| !on_conflict.target.is_empty())
    }

    fn on_conflict(&self) -> Option<&OnConflict> {
        match &self.action {
            Action::Load(load) => load.on_conflict.as_ref(),
            _ => None,
        }
    }

    /// The name of the one table it is about.
    pub fn table(&self) -> &TableName {
        &self.target.name
    }

    /// What it does.
    pub fn kind(&self) -> Kind {
        match &self.action {
            Action::Select(_) => Kind::Select,
            Action::Insert(_) | Action::Load(_) => Kind::Insert,
            Action::Update(_) => Kind::Update,
            Action::Delete(_) => Kind::Delete,
        }
    }
}

/// What a statement does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Returns rows.
    Select,
    /// Adds rows.
    Insert,
    /// Changes rows.
    Update,
    /// Removes rows.
    Delete,
}

/// A table's name, as written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TableName {
    /// Its schema, if that was written.
    pub schema: Option<String>,
    /// Its own name.
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    pub(crate) name: TableName,
    /// What the statement calls it instead.
    pub(crate) alias: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    Select(Select),
    Insert(Insert),
    Load(Load),
    Update(Update),
    Delete(Vec<Comparison>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Select {
    pub(crate) distinct: bool,
    pub(crate) conditions: Vec<Comparison>,
    pub(crate) order: Vec<Order>,
    pub(crate) limit: Option<Scalar>,
}

/// One key of ORDER BY.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Order {
    pub(crate) column: ColumnName,
    pub(crate) descending: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Insert {
    /// Empty for all.
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Vec<Scalar>>,
}

/// An INSERT of rows that the text lists or arrays make, however many these are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Load {
    /// Empty for all.
    pub(crate) columns: Vec<String>,
    /// Cells of each row.
    pub(crate) width: usize,
    /// The parameters that are the rows' columns, arrays with items of these types; none where
    /// the rows are in the text.
    pub(crate) arrays: Vec<(usize, SqlType)>,
    pub(crate) on_conflict: Option<OnConflict>,
}

/// ON CONFLICT.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OnConflict {
    /// The columns of the constraint whose keys count; empty for those of all.
    pub(crate) target: Vec<String>,
    /// DO UPDATE; `None` for DO NOTHING.
    pub(crate) update: Option<Update>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Update {
    pub(crate) assignments: Vec<(String, Scalar)>,
    pub(crate) conditions: Vec<Comparison>,
}

/// One output.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Item {
    All,
    Scalar(Scalar, Option<String>),
    Aggregate(Aggregate, Option<String>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Aggregate {
    CountRows,
    Count(ColumnName),
    Sum(ColumnName),
    Min(ColumnName),
    Max(ColumnName),
}

impl Aggregate {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Aggregate::CountRows | Aggregate::Count(_) => "count",
            Aggregate::Sum(_) => "sum",
            Aggregate::Min(_) => "min",
            Aggregate::Max(_) => "max",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ColumnName {
    /// The table, as the statement calls it.
    pub(crate) qualifier: Option<String>,
    pub(crate) name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Scalar {
    Column(ColumnName),
    Parameter(usize),
    /// A literal of the text, and its type, which does not vary within a shape.
    Literal(usize, LiteralType),
    Null,
    Default,
    /// `CURRENT_TIMESTAMP` or `now()`, by the name of its output.
    Now(&'static str),
    Arithmetic(Arithmetic, Box<Scalar>, Box<Scalar>),
}

impl Scalar {
    fn has_parameters(&self) -> bool {
        match self {
            Scalar::Parameter(_) => true,
            Scalar::Arithmetic(_, left, right) => left.has_parameters() || right.has_parameters(),
            Scalar::Column(_)
            | Scalar::Literal(..)
            | Scalar::Null
            | Scalar::Default
            | Scalar::Now(_) => false,
        }
    }
}

/// The types that PostgreSQL gives literals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LiteralType {
    Integer,
    BigInt,
    /// With so many digits after the point.
    Numeric(u8),
    /// None yet: the place it stands in gives it one.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
}

/// A condition. All of a statement's must be true.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Comparison {
    pub(crate) left: Scalar,
    pub(crate) operator: Operator,
    pub(crate) right: Scalar,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Operator {
    Equal,
    Unequal,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

impl Operator {
    pub(crate) fn mirrored(self) -> Self {
        match self {
            Operator::Less => Operator::Greater,
            Operator::LessEqual => Operator::GreaterEqual,
            Operator::Greater => Operator::Less,
            Operator::GreaterEqual => Operator::LessEqual,
            Operator::Equal | Operator::Unequal => self,
        }
    }

    /// Whether it holds of two values in this order.
    pub(crate) fn holds(self, order: std::cmp::Ordering) -> bool {
        match self {
            Operator::Equal => order.is_eq(),
            Operator::Unequal => order.is_ne(),
            Operator::Less => order.is_lt(),
            Operator::LessEqual => order.is_le(),
            Operator::Greater => order.is_gt(),
            Operator::GreaterEqual => order.is_ge(),
        }
    }
}
