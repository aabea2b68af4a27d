//! The grammar.
//!
//! ```text
//!  SELECT [DISTINCT | ALL] item, … FROM table [[AS] alias] WHERE conditions
//!         [ORDER BY column [ASC | DESC], …] [LIMIT n] [;]
//!  INSERT INTO table [(column, …)] VALUES (scalar, …), … [RETURNING item, …] [;]
//!  INSERT INTO table [(column, …)] VALUES (cell, …), … [ON CONFLICT [(column, …)]
//!         (DO NOTHING | DO UPDATE SET column = scalar, … [WHERE conditions])] [RETURNING item, …] [;]
//!  INSERT INTO table [(column, …)] SELECT * FROM unnest($n::type[], …) [AS alias [(column, …)]]
//!         [ON CONFLICT …] [;]
//!  UPDATE table [[AS] alias] SET column = scalar, … WHERE conditions [RETURNING item, …] [;]
//!  DELETE FROM table [[AS] alias] WHERE conditions [RETURNING item, …] [;]
//!
//!  item        * | scalar [AS name] | count(*) | count(c) | sum(c) | min(c) | max(c) [AS name]
//!  conditions  condition AND …
//!  condition   scalar (= | <> | < | <= | > | >=) scalar | scalar BETWEEN scalar AND scalar
//!              | ( conditions )
//!  cell        $n, literal, NULL, DEFAULT, TRUE, FALSE, CURRENT_TIMESTAMP, now()
//!  scalar      column, $n, literal, NULL, DEFAULT, CURRENT_TIMESTAMP, now(), + - * of these
//! ```
//!
//! An INSERT of one row has its literals lifted out, as other statements have. With more rows, or
//! in a long text, the cells stay in the text ([`ListedRows`](crate::ListedRows)), which may have
//! any length.
//!
//! Any other text gives `None`, which a caller must not treat as an error.

use aerostat_types::{KeywordCategory, NUMERIC_DEFAULT, SqlType, keyword_category};

use crate::{
    INSERT_ROWS_MAX, Literal, TEXT_BYTES_MAX,
    rows::{RowList, RowsPlace, row_list},
    shape::{
        Action, Aggregate, Arithmetic, ColumnName, Comparison, Insert, Item, LiteralType, Load,
        OnConflict, Operator, Order, Scalar, Select, Shape, TableName, Target, Update,
    },
    token::{Sign, Token, tokens, tokens_before},
};

/// How deep parentheses may nest.
const NESTING_MAX: usize = 16;

/// A statement that was read.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// All but the literals.
    pub shape: Shape,
    /// The literals, in the order of the text.
    pub literals: Vec<Literal>,
    /// The rows of an INSERT that are apart from its shape.
    pub rows: Option<RowsPlace>,
}

/// Tokens that may stand before the rows of an INSERT: a list of all columns there can be.
const HEAD_TOKENS_MAX: usize = 4_096;

/// Rows whose RETURNING is made here. More are gathered by the planner's way, which reserves
/// their memory.
const RETURNED_ROWS_MAX: usize = 8_192;

/// Reads a text that is one statement of the grammar; `None` for any other.
pub fn parse(text: &str) -> Option<Parsed> {
    if !may_begin(text) {
        return None;
    }
    let is_short = text.len() <= TEXT_BYTES_MAX;
    if let Some(parsed) = parse_listed(text) {
        let is_one = parsed.rows.is_some_and(|rows| rows.rows == 1);
        // The literals of a single row are lifted out below, and its program kept.
        if !is_one || !is_short || parsed.shape.has_on_conflict() {
            return Some(parsed);
        }
    }
    if !is_short {
        return None;
    }
    let mut parser = Parser::over(tokens(text)?);
    let shape = parser.statement()?;
    parser.end()?;
    Some(Parsed {
        shape,
        literals: parser.literals,
        rows: None,
    })
}

/// Reads an INSERT whose cells are all plain; `None` for any other text.
pub fn parse_listed(text: &str) -> Option<Parsed> {
    if !text
        .trim_start()
        .as_bytes()
        .first()?
        .eq_ignore_ascii_case(&b'i')
    {
        return None;
    }
    let (head, from) = tokens_before(text, "values", HEAD_TOKENS_MAX)?;
    let from = from + text[from..].find('(')?;
    let RowList { rows, width, end } = row_list(text, from)?;
    let tail = text
        .get(end..)
        .filter(|tail| tail.len() <= TEXT_BYTES_MAX)?;
    let mut parser = Parser::over(head);
    parser.require("insert")?;
    let (target, columns) = parser.insert_head()?;
    if !parser.is_at_end() {
        return None;
    }
    let mut parser = Parser::over(tokens(tail)?);
    let on_conflict = parser.on_conflict()?;
    let items = parser.returning()?;
    parser.end()?;
    if items.is_some() && (rows > RETURNED_ROWS_MAX || on_conflict.is_some()) {
        return None;
    }
    let load = Load {
        columns,
        width,
        arrays: Vec::new(),
        on_conflict,
    };
    Some(Parsed {
        shape: Shape {
            target,
            action: Action::Load(load),
            items,
        },
        literals: parser.literals,
        rows: Some(RowsPlace { from, rows }),
    })
}

/// Looks at the first letter, so that long texts of other statements cost nothing.
fn may_begin(text: &str) -> bool {
    let first = text.trim_start().bytes().next();
    first.is_some_and(|byte| matches!(byte.to_ascii_lowercase(), b's' | b'i' | b'u' | b'd'))
}

/// Reads the text of a column's default, with its literals.
pub(crate) fn scalar(text: &str) -> Option<(Scalar, Vec<Literal>)> {
    let mut parser = Parser::over(tokens(text)?);
    let scalar = parser.scalar()?;
    parser.is_at_end().then_some((scalar, parser.literals))
}

/// Reads the text of a CHECK.
pub(crate) fn conditions(text: &str) -> Option<(Vec<Comparison>, Vec<Literal>)> {
    let mut parser = Parser::over(tokens(text)?);
    let mut conditions = Vec::new();
    parser.conditions(&mut conditions)?;
    parser.is_at_end().then_some((conditions, parser.literals))
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
    literals: Vec<Literal>,
}

impl Parser {
    fn over(tokens: Vec<Token>) -> Self {
        Self {
            tokens,
            at: 0,
            depth: 0,
            literals: Vec::new(),
        }
    }

    fn is_at_end(&self) -> bool {
        self.at == self.tokens.len()
    }

    /// Nothing but semicolons comes.
    fn end(&mut self) -> Option<()> {
        while self.take(Sign::Semicolon) {}
        self.is_at_end().then_some(())
    }

    fn statement(&mut self) -> Option<Shape> {
        if self.word("select") {
            self.select()
        } else if self.word("insert") {
            self.insert()
        } else if self.word("update") {
            self.update()
        } else if self.word("delete") {
            self.delete()
        } else {
            None
        }
    }

    fn select(&mut self) -> Option<Shape> {
        let distinct = self.word("distinct");
        if !distinct {
            self.word("all");
        }
        let items = self.items()?;
        self.require("from")?;
        let target = self.target()?;
        let conditions = self.selection()?;
        let mut order = Vec::new();
        if self.word("order") {
            self.require("by")?;
            self.list(&mut order, Self::order)?;
        }
        let limit = if self.word("limit") {
            Some(self.operand()?)
        } else {
            None
        };
        Some(Shape {
            target,
            action: Action::Select(Select {
                distinct,
                conditions,
                order,
                limit,
            }),
            items: Some(items),
        })
    }

    /// What stands before VALUES.
    fn insert_head(&mut self) -> Option<(Target, Vec<String>)> {
        self.require("into")?;
        let target = Target {
            name: self.table_name()?,
            alias: None,
        };
        let columns = self.columns()?;
        Some((target, columns))
    }

    /// Names in parentheses; none where there are no parentheses.
    fn columns(&mut self) -> Option<Vec<String>> {
        let mut columns = Vec::new();
        if self.take(Sign::Open) {
            self.list(&mut columns, Self::name)?;
            self.require_sign(Sign::Close)?;
        }
        Some(columns)
    }

    /// `Some(None)` when there is no ON CONFLICT.
    fn on_conflict(&mut self) -> Option<Option<OnConflict>> {
        if !self.word("on") {
            return Some(None);
        }
        self.require("conflict")?;
        let target = self.columns()?;
        self.require("do")?;
        if self.word("nothing") {
            let update = None;
            return Some(Some(OnConflict { target, update }));
        }
        self.require("update")?;
        self.require("set")?;
        let assignments = self.assignments()?;
        let mut conditions = Vec::new();
        if self.word("where") {
            self.conditions(&mut conditions)?;
        }
        let update = Some(Update {
            assignments,
            conditions,
        });
        Some(Some(OnConflict { target, update }))
    }

    fn insert(&mut self) -> Option<Shape> {
        let (target, columns) = self.insert_head()?;
        if self.word("select") {
            return self.insert_arrays(target, columns);
        }
        self.require("values")?;
        let mut rows = Vec::new();
        self.list(&mut rows, Self::row)?;
        if rows.len() > INSERT_ROWS_MAX {
            return None;
        }
        Some(Shape {
            target,
            action: Action::Insert(Insert { columns, rows }),
            items: self.returning()?,
        })
    }

    /// What follows `INSERT INTO table (…) SELECT`.
    fn insert_arrays(&mut self, target: Target, columns: Vec<String>) -> Option<Shape> {
        self.require_sign(Sign::Star)?;
        for word in ["from", "unnest"] {
            self.require(word)?;
        }
        let mut arrays = Vec::new();
        self.require_sign(Sign::Open)?;
        self.list(&mut arrays, Self::array)?;
        self.require_sign(Sign::Close)?;
        let named = self.word("as");
        // Without AS the next word may begin what follows.
        if named {
            self.name()?;
            self.columns()?;
        }
        let load = Load {
            columns,
            width: arrays.len(),
            arrays,
            on_conflict: self.on_conflict()?,
        };
        Some(Shape {
            target,
            action: Action::Load(load),
            items: None,
        })
    }

    /// `$1::int[]`
    fn array(&mut self) -> Option<(usize, SqlType)> {
        let Token::Parameter(number) = *self.next()? else {
            return None;
        };
        self.require_sign(Sign::Cast)?;
        let Token::Word(name) = self.next()? else {
            return None;
        };
        let ty = match name.as_str() {
            "smallint" | "int2" => SqlType::SmallInt,
            "int" | "integer" | "int4" => SqlType::Integer,
            "bigint" | "int8" => SqlType::BigInt,
            "real" | "float4" => SqlType::Real,
            "float8" => SqlType::Double,
            "numeric" => NUMERIC_DEFAULT,
            "text" => SqlType::Text,
            "varchar" => SqlType::Varchar(None),
            "boolean" | "bool" => SqlType::Boolean,
            "uuid" => SqlType::Uuid,
            "date" => SqlType::Date,
            "timestamp" => SqlType::Timestamp,
            "timestamptz" => SqlType::TimestampTz,
            _ => return None,
        };
        self.require_sign(Sign::OpenBracket)?;
        self.require_sign(Sign::CloseBracket)?;
        Some((number, ty))
    }

    fn row(&mut self) -> Option<Vec<Scalar>> {
        let mut row = Vec::new();
        self.require_sign(Sign::Open)?;
        self.list(&mut row, Self::scalar_or_default)?;
        self.require_sign(Sign::Close)?;
        Some(row)
    }

    fn update(&mut self) -> Option<Shape> {
        let target = self.target()?;
        self.require("set")?;
        let assignments = self.assignments()?;
        let conditions = self.selection()?;
        Some(Shape {
            target,
            action: Action::Update(Update {
                assignments,
                conditions,
            }),
            items: self.returning()?,
        })
    }

    fn assignments(&mut self) -> Option<Vec<(String, Scalar)>> {
        let mut assignments = Vec::new();
        self.list(&mut assignments, |parser| {
            let column = parser.name()?;
            parser.require_sign(Sign::Equal)?;
            Some((column, parser.scalar_or_default()?))
        })?;
        Some(assignments)
    }

    fn delete(&mut self) -> Option<Shape> {
        self.require("from")?;
        let target = self.target()?;
        let conditions = self.selection()?;
        Some(Shape {
            target,
            action: Action::Delete(conditions),
            items: self.returning()?,
        })
    }

    /// `Some(None)` when there is no RETURNING.
    fn returning(&mut self) -> Option<Option<Vec<Item>>> {
        if self.word("returning") {
            self.items().map(Some)
        } else {
            Some(None)
        }
    }

    fn target(&mut self) -> Option<Target> {
        let name = self.table_name()?;
        let alias = if self.word("as") {
            Some(self.name()?)
        } else {
            match self.tokens.get(self.at) {
                // Any keyword may be what comes next.
                Some(Token::Word(word)) if keyword_category(word).is_none() => Some(self.name()?),
                Some(Token::Quoted(_)) => Some(self.name()?),
                _ => None,
            }
        };
        Some(Target { name, alias })
    }

    fn table_name(&mut self) -> Option<TableName> {
        let first = self.name()?;
        if self.take(Sign::Point) {
            let name = self.name()?;
            let schema = Some(first);
            return Some(TableName { schema, name });
        }
        Some(TableName {
            schema: None,
            name: first,
        })
    }

    fn items(&mut self) -> Option<Vec<Item>> {
        let mut items = Vec::new();
        self.list(&mut items, Self::item)?;
        Some(items)
    }

    fn item(&mut self) -> Option<Item> {
        if self.take(Sign::Star) {
            return Some(Item::All);
        }
        if let Some(aggregate) = self.aggregate() {
            let aggregate = aggregate?;
            return Some(Item::Aggregate(aggregate, self.output_alias()?));
        }
        let scalar = self.scalar()?;
        Some(Item::Scalar(scalar, self.output_alias()?))
    }

    fn output_alias(&mut self) -> Option<Option<String>> {
        if self.word("as") {
            self.name().map(Some)
        } else {
            Some(None)
        }
    }

    /// `None` where no aggregate begins, `Some(None)` where one is not of the grammar.
    fn aggregate(&mut self) -> Option<Option<Aggregate>> {
        let [Token::Word(word), Token::Sign(Sign::Open), ..] = self.tokens.get(self.at..)? else {
            return None;
        };
        let of: fn(ColumnName) -> Aggregate = match word.as_str() {
            "count" => Aggregate::Count,
            "sum" => Aggregate::Sum,
            "min" => Aggregate::Min,
            "max" => Aggregate::Max,
            _ => return None,
        };
        let counts = word == "count";
        self.at += 2;
        let aggregate = if counts && self.take(Sign::Star) {
            Some(Aggregate::CountRows)
        } else {
            self.column().map(of)
        };
        Some(aggregate.filter(|_| self.take(Sign::Close)))
    }

    fn order(&mut self) -> Option<Order> {
        let column = self.column()?;
        let descending = self.word("desc");
        if !descending {
            self.word("asc");
        }
        Some(Order { column, descending })
    }

    fn selection(&mut self) -> Option<Vec<Comparison>> {
        self.require("where")?;
        let mut conditions = Vec::new();
        self.conditions(&mut conditions)?;
        Some(conditions)
    }

    fn conditions(&mut self, all: &mut Vec<Comparison>) -> Option<()> {
        loop {
            self.condition(all)?;
            if !self.word("and") {
                return Some(());
            }
        }
    }

    fn condition(&mut self, all: &mut Vec<Comparison>) -> Option<()> {
        if self.tokens.get(self.at) == Some(&Token::Sign(Sign::Open)) {
            // Conditions in parentheses, or a scalar that begins with one.
            let (at, depth) = (self.at, self.depth);
            let (literals, known) = (self.literals.len(), all.len());
            self.at += 1;
            self.deeper()?;
            let read = self.conditions(all);
            self.depth = depth;
            if read.is_some() && self.take(Sign::Close) {
                return Some(());
            }
            self.at = at;
            self.literals.truncate(literals);
            all.truncate(known);
        }
        let left = self.scalar()?;
        if self.word("between") {
            let low = self.scalar()?;
            self.require("and")?;
            let high = self.scalar()?;
            // A literal or parameter twice is the same value twice.
            all.push(Comparison {
                left: left.clone(),
                operator: Operator::GreaterEqual,
                right: low,
            });
            all.push(Comparison {
                left,
                operator: Operator::LessEqual,
                right: high,
            });
            return Some(());
        }
        let operator = match self.next()? {
            Token::Sign(Sign::Equal) => Operator::Equal,
            Token::Sign(Sign::Unequal) => Operator::Unequal,
            Token::Sign(Sign::Less) => Operator::Less,
            Token::Sign(Sign::LessEqual) => Operator::LessEqual,
            Token::Sign(Sign::Greater) => Operator::Greater,
            Token::Sign(Sign::GreaterEqual) => Operator::GreaterEqual,
            _ => return None,
        };
        let right = self.scalar()?;
        all.push(Comparison {
            left,
            operator,
            right,
        });
        Some(())
    }

    fn scalar_or_default(&mut self) -> Option<Scalar> {
        if self.word("default") {
            return Some(Scalar::Default);
        }
        self.scalar()
    }

    fn scalar(&mut self) -> Option<Scalar> {
        let mut left = self.term()?;
        loop {
            let operator = if self.take(Sign::Plus) {
                Arithmetic::Add
            } else if self.take(Sign::Minus) {
                Arithmetic::Subtract
            } else {
                return Some(left);
            };
            let right = self.term()?;
            left = Scalar::Arithmetic(operator, Box::new(left), Box::new(right));
        }
    }

    fn term(&mut self) -> Option<Scalar> {
        let mut left = self.operand()?;
        while self.take(Sign::Star) {
            let right = self.operand()?;
            left = Scalar::Arithmetic(Arithmetic::Multiply, Box::new(left), Box::new(right));
        }
        Some(left)
    }

    fn operand(&mut self) -> Option<Scalar> {
        match self.tokens.get(self.at)? {
            Token::Parameter(number) => {
                let number = *number;
                self.at += 1;
                Some(Scalar::Parameter(number))
            }
            Token::Sign(Sign::Open) => {
                self.at += 1;
                self.deeper()?;
                let inner = self.scalar()?;
                self.depth -= 1;
                self.require_sign(Sign::Close)?;
                Some(inner)
            }
            Token::Sign(Sign::Minus) => {
                self.at += 1;
                self.literal(true)
            }
            Token::Integer(_) | Token::Decimal(..) | Token::Text(_) => self.literal(false),
            Token::Word(word) => match word.as_str() {
                "null" => {
                    self.at += 1;
                    Some(Scalar::Null)
                }
                "current_timestamp" => {
                    self.at += 1;
                    // With a precision it is another.
                    let plain = self.tokens.get(self.at) != Some(&Token::Sign(Sign::Open));
                    plain.then_some(Scalar::Now("current_timestamp"))
                }
                "now" if self.tokens.get(self.at + 1) == Some(&Token::Sign(Sign::Open)) => {
                    self.at += 2;
                    self.require_sign(Sign::Close)?;
                    Some(Scalar::Now("now"))
                }
                _ => self.column().map(Scalar::Column),
            },
            Token::Quoted(_) => self.column().map(Scalar::Column),
            Token::Sign(_) => None,
        }
    }

    fn literal(&mut self, negative: bool) -> Option<Scalar> {
        let (literal, ty) = match self.next()? {
            Token::Integer(value) => {
                let limits = [1 << 31, i64::MAX];
                let ty = match limits.iter().position(|limit| *value < *limit)? {
                    0 => LiteralType::Integer,
                    _ => LiteralType::BigInt,
                };
                // The least number of a type is not the least literal's negative.
                if negative && *value == 1 << 31 {
                    return None;
                }
                let value = if negative { -*value } else { *value };
                (Literal::Integer(value), ty)
            }
            Token::Decimal(digits, scale) => {
                let digits = if negative { -*digits } else { *digits };
                (Literal::Decimal(digits), LiteralType::Numeric(*scale))
            }
            Token::Text(text) if !negative => (Literal::Text(text.clone()), LiteralType::Unknown),
            _ => return None,
        };
        self.literals.push(literal);
        Some(Scalar::Literal(self.literals.len() - 1, ty))
    }

    fn column(&mut self) -> Option<ColumnName> {
        let first = self.name()?;
        // A function is none.
        if self.tokens.get(self.at) == Some(&Token::Sign(Sign::Open)) {
            return None;
        }
        if self.take(Sign::Point) {
            let name = self.name()?;
            let qualifier = Some(first);
            return Some(ColumnName { qualifier, name });
        }
        Some(ColumnName {
            qualifier: None,
            name: first,
        })
    }

    /// A word that means nothing in this grammar nor in PostgreSQL's.
    fn name(&mut self) -> Option<String> {
        match self.next()? {
            Token::Word(word)
                if matches!(
                    keyword_category(word),
                    None | Some(KeywordCategory::Unreserved)
                ) =>
            {
                Some(word.clone())
            }
            Token::Quoted(name) => Some(name.clone()),
            _ => None,
        }
    }

    fn list<T>(&mut self, list: &mut Vec<T>, one: impl Fn(&mut Self) -> Option<T>) -> Option<()> {
        loop {
            list.push(one(self)?);
            if !self.take(Sign::Comma) {
                return Some(());
            }
        }
    }

    fn deeper(&mut self) -> Option<()> {
        self.depth += 1;
        (self.depth <= NESTING_MAX).then_some(())
    }

    fn next(&mut self) -> Option<&Token> {
        let token = self.tokens.get(self.at)?;
        self.at += 1;
        Some(token)
    }

    fn take(&mut self, sign: Sign) -> bool {
        let is_next = self.tokens.get(self.at) == Some(&Token::Sign(sign));
        self.at += usize::from(is_next);
        is_next
    }

    fn require_sign(&mut self, sign: Sign) -> Option<()> {
        self.take(sign).then_some(())
    }

    /// Takes a word without quotes if it comes next.
    fn word(&mut self, word: &str) -> bool {
        let is_next = matches!(self.tokens.get(self.at), Some(Token::Word(next)) if next == word);
        self.at += usize::from(is_next);
        is_next
    }

    fn require(&mut self, word: &str) -> Option<()> {
        self.word(word).then_some(())
    }
}
