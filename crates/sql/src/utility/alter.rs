//! The actions of ALTER TABLE: several, separated by commas, executed as a whole.
//!
//! Column definitions, constraints and expressions are parsed by `sqlparser`, each inside a
//! statement made around it; positions of its errors are mapped back to the original text.

use aerostat_types::{ErrorKind, SqlError};
use sqlparser::ast::{self, ColumnOption};

use super::{
    role::RoleName,
    sequence::{self, SequenceOptions},
    tokens::{Fragment, Tokens},
};
use crate::{
    deferral::{self, Deferral},
    names::QualifiedName,
    sequence_options::Options,
    tree,
};

/// One action of ALTER TABLE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableAction {
    /// ADD COLUMN.
    AddColumn {
        /// IF NOT EXISTS.
        if_not_exists: bool,
        /// The column with its constraints.
        definition: Box<ast::ColumnDef>,
    },
    /// DROP COLUMN.
    DropColumn {
        /// IF EXISTS.
        if_exists: bool,
        /// Which.
        name: String,
        /// CASCADE rather than RESTRICT.
        cascade: bool,
    },
    /// ALTER COLUMN … TYPE.
    SetType {
        /// Which.
        column: String,
        /// The type to come.
        data_type: ast::DataType,
        /// COLLATE.
        collation: Option<ast::ObjectName>,
        /// USING: what computes the new value from the old row.
        using: Option<Box<ast::Expr>>,
    },
    /// ALTER COLUMN … SET DEFAULT, or DROP DEFAULT.
    SetDefault {
        /// Which.
        column: String,
        /// `None` for DROP DEFAULT.
        default: Option<Box<ast::Expr>>,
    },
    /// ALTER COLUMN … SET NOT NULL, or DROP NOT NULL.
    SetNullable {
        /// Which.
        column: String,
        /// Whether it takes NULL from now on.
        nullable: bool,
    },
    /// ALTER COLUMN … ADD GENERATED … AS IDENTITY.
    AddIdentity {
        /// Which.
        column: String,
        /// ALWAYS rather than BY DEFAULT.
        is_always: bool,
        /// SEQUENCE NAME: what the sequence of its numbers is to be called.
        sequence: Option<QualifiedName>,
        /// What is said of its numbers.
        options: Box<Options>,
    },
    /// ALTER COLUMN … SET GENERATED …, SET of options of its numbers, RESTART.
    SetIdentity {
        /// Which.
        column: String,
        /// ALWAYS rather than BY DEFAULT, if that is said.
        is_always: Option<bool>,
        /// What is said of its numbers.
        options: Box<Options>,
    },
    /// ALTER COLUMN … DROP IDENTITY.
    DropIdentity {
        /// Which.
        column: String,
        /// IF EXISTS: the column need not be an identity column.
        if_exists: bool,
    },
    /// ADD CONSTRAINT, named or not.
    AddConstraint {
        /// The constraint.
        constraint: Box<ast::TableConstraint>,
        /// NOT VALID: rows that are there need not meet it.
        not_valid: bool,
    },
    /// ALTER CONSTRAINT: when a foreign key is checked.
    AlterConstraint {
        /// Which.
        name: String,
        /// What is said; nothing is NOT DEFERRABLE.
        deferral: Deferral,
    },
    /// VALIDATE CONSTRAINT.
    ValidateConstraint(String),
    /// DROP CONSTRAINT.
    DropConstraint {
        /// IF EXISTS.
        if_exists: bool,
        /// Which.
        name: String,
        /// CASCADE rather than RESTRICT.
        cascade: bool,
    },
    /// OWNER TO.
    Owner(RoleName),
}

impl TableAction {
    /// PostgreSQL's words for it.
    pub fn words(&self) -> &'static str {
        match self {
            TableAction::AddColumn { .. } => "ADD COLUMN",
            TableAction::DropColumn { .. } => "DROP COLUMN",
            TableAction::SetType { .. } => "ALTER COLUMN ... SET DATA TYPE",
            TableAction::SetDefault { .. } => "ALTER COLUMN ... SET DEFAULT",
            TableAction::SetNullable {
                nullable: false, ..
            } => "ALTER COLUMN ... SET NOT NULL",
            TableAction::SetNullable { nullable: true, .. } => "ALTER COLUMN ... DROP NOT NULL",
            TableAction::AddIdentity { .. } => "ALTER COLUMN ... ADD IDENTITY",
            TableAction::SetIdentity { .. } => "ALTER COLUMN ... SET",
            TableAction::DropIdentity { .. } => "ALTER COLUMN ... DROP IDENTITY",
            TableAction::AddConstraint { .. } => "ADD CONSTRAINT",
            TableAction::AlterConstraint { .. } => "ALTER CONSTRAINT",
            TableAction::ValidateConstraint(_) => "VALIDATE CONSTRAINT",
            TableAction::DropConstraint { .. } => "DROP CONSTRAINT",
            TableAction::Owner(_) => "OWNER TO",
        }
    }
}

/// Whether actions of this module begin here.
pub(super) fn is_here(tokens: &Tokens<'_>) -> bool {
    matches!(
        tokens.peek_word().as_str(),
        "ADD" | "DROP" | "ALTER" | "VALIDATE"
    )
}

/// # Errors
/// As PostgreSQL, at the place.
pub(super) fn parse(tokens: &mut Tokens<'_>) -> Result<Vec<TableAction>, SqlError> {
    tokens.list(action)
}

fn action(tokens: &mut Tokens<'_>) -> Result<TableAction, SqlError> {
    let word = tokens.next_word();
    match word.as_str() {
        "ADD" if begins_constraint(tokens) => add_constraint(tokens),
        "ADD" => {
            tokens.accept(&["COLUMN"]);
            let if_not_exists = tokens.accept(&["IF", "NOT", "EXISTS"]);
            Ok(TableAction::AddColumn {
                if_not_exists,
                definition: Box::new(column_definition(tokens)?),
            })
        }
        "DROP" if tokens.accept(&["CONSTRAINT"]) => {
            let if_exists = tokens.accept(&["IF", "EXISTS"]);
            Ok(TableAction::DropConstraint {
                if_exists,
                name: tokens.name()?,
                cascade: cascade(tokens),
            })
        }
        "DROP" => {
            tokens.accept(&["COLUMN"]);
            let if_exists = tokens.accept(&["IF", "EXISTS"]);
            Ok(TableAction::DropColumn {
                if_exists,
                name: tokens.name()?,
                cascade: cascade(tokens),
            })
        }
        "VALIDATE" => {
            tokens.expect(&["CONSTRAINT"])?;
            Ok(TableAction::ValidateConstraint(tokens.name()?))
        }
        "OWNER" => {
            tokens.expect(&["TO"])?;
            Ok(TableAction::Owner(RoleName::parse(tokens)?))
        }
        "ALTER" => {
            if tokens.accept(&["CONSTRAINT"]) {
                return Ok(TableAction::AlterConstraint {
                    name: tokens.name()?,
                    deferral: deferral(tokens)?,
                });
            }
            tokens.accept(&["COLUMN"]);
            let column = tokens.name()?;
            alter_column(tokens, column)
        }
        "SET" | "RESET" | "ENABLE" | "DISABLE" | "CLUSTER" | "INHERIT" | "NO" | "ATTACH"
        | "DETACH" | "REPLICA" | "FORCE" | "OF" | "NOT" => Err(not_supported(&word)),
        _ => Err(tokens.unexpected_before(&word)),
    }
}

/// DEFERRABLE, INITIALLY DEFERRED and their like, each at most once.
fn deferral(tokens: &mut Tokens<'_>) -> Result<Deferral, SqlError> {
    let (mut deferrable, mut initially) = (None, None);
    loop {
        let said = if tokens.accept(&["NOT", "DEFERRABLE"]) {
            deferrable.replace(false)
        } else if tokens.accept(&["DEFERRABLE"]) {
            deferrable.replace(true)
        } else if tokens.accept(&["INITIALLY"]) {
            let word = tokens.accept_one(&["DEFERRED", "IMMEDIATE"]);
            let word = word.ok_or_else(|| tokens.unexpected())?;
            initially.replace(word == "DEFERRED")
        } else {
            return deferral::deferral(deferrable, initially == Some(true));
        };
        if said.is_some() {
            let message = "conflicting constraint properties";
            return Err(SqlError::new(ErrorKind::SyntaxError, message));
        }
    }
}

fn cascade(tokens: &mut Tokens<'_>) -> bool {
    tokens.accept_one(&["CASCADE", "RESTRICT"]) == Some("CASCADE")
}

fn alter_column(tokens: &mut Tokens<'_>, column: String) -> Result<TableAction, SqlError> {
    if sets_identity(tokens) {
        return set_identity(tokens, column);
    }
    let word = tokens.next_word();
    match word.as_str() {
        "ADD" => {
            tokens.expect(&["GENERATED"])?;
            let is_always = generated(tokens)?;
            tokens.expect(&["AS", "IDENTITY"])?;
            let (options, sequence) = sequence::identity_options(tokens)?;
            Ok(TableAction::AddIdentity {
                column,
                is_always,
                sequence,
                options: Box::new(options),
            })
        }
        "DROP" if tokens.accept(&["IDENTITY"]) => Ok(TableAction::DropIdentity {
            column,
            if_exists: tokens.accept(&["IF", "EXISTS"]),
        }),
        "TYPE" => set_type(tokens, column),
        "SET" if tokens.accept(&["DATA"]) => {
            tokens.expect(&["TYPE"])?;
            set_type(tokens, column)
        }
        "SET" if tokens.accept(&["DEFAULT"]) => Ok(TableAction::SetDefault {
            column,
            default: Some(expression(tokens)?),
        }),
        "DROP" if tokens.accept(&["DEFAULT"]) => Ok(TableAction::SetDefault {
            column,
            default: None,
        }),
        "SET" | "DROP" if tokens.accept(&["NOT", "NULL"]) => Ok(TableAction::SetNullable {
            column,
            nullable: word == "DROP",
        }),
        // How values are stored is not the user's to say, and statistics are not kept.
        "SET"
            if tokens
                .accept_one(&["STATISTICS", "STORAGE", "COMPRESSION"])
                .is_some() =>
        {
            Err(not_supported(
                "ALTER COLUMN … SET STATISTICS, STORAGE or COMPRESSION",
            ))
        }
        "SET" | "DROP" => Err(not_supported(&format!("ALTER COLUMN … {word}"))),
        _ => Err(tokens.unexpected_before(&word)),
    }
}

/// Whether something is said of an identity column here.
fn sets_identity(tokens: &Tokens<'_>) -> bool {
    const SET: [&str; 11] = [
        "AS",
        "CACHE",
        "CYCLE",
        "GENERATED",
        "INCREMENT",
        "MAXVALUE",
        "MINVALUE",
        "NO",
        "OWNED",
        "RESTART",
        "START",
    ];
    match tokens.peek_word().as_str() {
        "RESTART" => true,
        "SET" => SET.contains(&tokens.peek_second_word().as_str()),
        _ => false,
    }
}

fn set_identity(tokens: &mut Tokens<'_>, column: String) -> Result<TableAction, SqlError> {
    let (mut is_always, mut options) = (None, SequenceOptions::default());
    loop {
        let is_set = tokens.accept(&["SET"]);
        if is_set && tokens.accept(&["GENERATED"]) {
            if is_always.replace(generated(tokens)?).is_some() {
                let message = "conflicting or redundant options";
                return Err(SqlError::new(ErrorKind::SyntaxError, message));
            }
        } else if is_set || tokens.peek_word() == "RESTART" {
            if !sequence::option(tokens, &mut options)? {
                return Err(tokens.unexpected());
            }
        } else {
            break;
        }
    }
    Ok(TableAction::SetIdentity {
        column,
        is_always,
        options: Box::new(sequence::of_identity(options)?),
    })
}

/// ALWAYS rather than BY DEFAULT, after GENERATED.
fn generated(tokens: &mut Tokens<'_>) -> Result<bool, SqlError> {
    if tokens.accept(&["ALWAYS"]) {
        return Ok(true);
    }
    tokens.expect(&["BY", "DEFAULT"])?;
    Ok(false)
}

fn set_type(tokens: &mut Tokens<'_>, column: String) -> Result<TableAction, SqlError> {
    let fragment = tokens.until(|tokens| tokens.peek_word() == "USING")?;
    let mut definition = Made::column("c ", &fragment)?;
    let collation = match definition.options.pop().map(|option| option.option) {
        None => None,
        Some(ColumnOption::Collation(name)) if definition.options.is_empty() => Some(name),
        Some(other) => {
            let message = format!("syntax error at or near \"{other}\"");
            return Err(SqlError::new(ErrorKind::SyntaxError, message));
        }
    };
    let using = match tokens.accept(&["USING"]) {
        true => Some(expression(tokens)?),
        false => None,
    };
    Ok(TableAction::SetType {
        column,
        data_type: definition.data_type,
        collation,
        using,
    })
}

fn begins_constraint(tokens: &Tokens<'_>) -> bool {
    match tokens.peek_word().as_str() {
        "CONSTRAINT" | "CHECK" | "EXCLUDE" | "UNIQUE" => true,
        "PRIMARY" | "FOREIGN" => tokens.peek_second_word() == "KEY",
        _ => false,
    }
}

fn add_constraint(tokens: &mut Tokens<'_>) -> Result<TableAction, SqlError> {
    let is_not_valid =
        |tokens: &Tokens<'_>| tokens.peek_word() == "NOT" && tokens.peek_second_word() == "VALID";
    let fragment = tokens.until(is_not_valid)?;
    let mut made = Made::table("", &fragment)?;
    let Some(constraint) = made.constraints.pop() else {
        return Err(tokens.unexpected());
    };
    Ok(TableAction::AddConstraint {
        constraint: Box::new(constraint),
        not_valid: tokens.accept(&["NOT", "VALID"]),
    })
}

fn column_definition(tokens: &mut Tokens<'_>) -> Result<ast::ColumnDef, SqlError> {
    let fragment = tokens.until(|_| false)?;
    Made::column("", &fragment)
}

fn expression(tokens: &mut Tokens<'_>) -> Result<Box<ast::Expr>, SqlError> {
    let fragment = tokens.until(|_| false)?;
    let statement = Made::statement("SELECT (", &fragment)?;
    let parsed = match statement {
        ast::Statement::Query(query) => match *query.body {
            ast::SetExpr::Select(mut select) => select.projection.pop(),
            _ => None,
        },
        _ => None,
    };
    match parsed {
        Some(ast::SelectItem::UnnamedExpr(ast::Expr::Nested(inner))) => Ok(inner),
        Some(ast::SelectItem::UnnamedExpr(other)) => Ok(Box::new(other)),
        _ => Err(tokens.unexpected()),
    }
}

/// A statement made around a piece of another.
struct Made;

impl Made {
    fn column(before: &str, fragment: &Fragment) -> Result<ast::ColumnDef, SqlError> {
        let mut made = Self::table(before, fragment)?;
        made.columns.pop().ok_or_else(|| {
            let message = "syntax error at end of input";
            SqlError::new(ErrorKind::SyntaxError, message).with_position(end_of(fragment))
        })
    }

    fn table(before: &str, fragment: &Fragment) -> Result<ast::CreateTable, SqlError> {
        match Self::statement(&format!("CREATE TABLE t ({before}"), fragment)? {
            ast::Statement::CreateTable(made) => Ok(made),
            other => Err(SqlError::new(
                ErrorKind::Internal,
                format!("a table's definition was read as {other}"),
            )),
        }
    }

    /// The statement `before`, the piece, and a closing parenthesis.
    fn statement(before: &str, fragment: &Fragment) -> Result<ast::Statement, SqlError> {
        let text = format!("{before}{})", fragment.text);
        let offset = before.chars().count();
        tree::of(&text).map_err(|error| moved(error, offset, fragment))
    }
}

/// The error at its place in the whole statement. What was missed behind the piece was
/// missed at its end.
fn moved(mut error: SqlError, offset: usize, fragment: &Fragment) -> SqlError {
    let Some(position) = error.position else {
        return error;
    };
    let at = (position as usize).saturating_sub(offset + 1);
    if at >= fragment.text.chars().count() && error.kind == ErrorKind::SyntaxError {
        "syntax error at end of input".clone_into(&mut error.message);
        return error.with_position(end_of(fragment));
    }
    error.with_position(fragment.position + u32::try_from(at).unwrap_or(u32::MAX))
}

fn end_of(fragment: &Fragment) -> u32 {
    let length = u32::try_from(fragment.text.chars().count()).unwrap_or(u32::MAX);
    fragment.position.saturating_add(length)
}

fn not_supported(what: &str) -> SqlError {
    SqlError::new(
        ErrorKind::FeatureNotSupported,
        format!("ALTER TABLE … {what} is not supported"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<TableAction>, SqlError> {
        let mut tokens = Tokens::new(text)?;
        let actions = parse(&mut tokens)?;
        tokens.end()?;
        Ok(actions)
    }

    #[test]
    fn actions_come_one_after_the_other() {
        let actions = parsed(
            "ADD COLUMN a numeric(5, 2) DEFAULT 1.5 NOT NULL, ADD b text CHECK (b IN ('x', 'y')), \
             DROP COLUMN IF EXISTS c CASCADE, DROP d, ALTER e TYPE varchar(3) USING left(e, 3), \
             ALTER COLUMN f SET DATA TYPE bigint, ALTER g SET DEFAULT coalesce(NULL, 2), \
             ALTER g DROP DEFAULT, ALTER h SET NOT NULL, ALTER h DROP NOT NULL, \
             ADD CONSTRAINT k CHECK (a > 0 AND a < 9) NOT VALID, ADD PRIMARY KEY (a, b), \
             VALIDATE CONSTRAINT k, DROP CONSTRAINT IF EXISTS k, OWNER TO CURRENT_USER, \
             ALTER i ADD GENERATED BY DEFAULT AS IDENTITY (START 5 INCREMENT BY 2), \
             ALTER i SET GENERATED ALWAYS SET NO MAXVALUE RESTART WITH 9, ALTER i RESTART, \
             ALTER COLUMN i DROP IDENTITY IF EXISTS",
        )
        .unwrap();
        let words: Vec<_> = actions.iter().map(TableAction::words).collect();
        assert_eq!(
            words,
            [
                "ADD COLUMN",
                "ADD COLUMN",
                "DROP COLUMN",
                "DROP COLUMN",
                "ALTER COLUMN ... SET DATA TYPE",
                "ALTER COLUMN ... SET DATA TYPE",
                "ALTER COLUMN ... SET DEFAULT",
                "ALTER COLUMN ... SET DEFAULT",
                "ALTER COLUMN ... SET NOT NULL",
                "ALTER COLUMN ... DROP NOT NULL",
                "ADD CONSTRAINT",
                "ADD CONSTRAINT",
                "VALIDATE CONSTRAINT",
                "DROP CONSTRAINT",
                "OWNER TO",
                "ALTER COLUMN ... ADD IDENTITY",
                "ALTER COLUMN ... SET",
                "ALTER COLUMN ... SET",
                "ALTER COLUMN ... DROP IDENTITY",
            ]
        );
        assert!(matches!(
            &actions[4],
            TableAction::SetType { using: Some(using), .. } if using.to_string() == "left(e, 3)"
        ));
        assert!(matches!(
            &actions[10],
            TableAction::AddConstraint { not_valid: true, constraint }
                if constraint.to_string() == "CONSTRAINT k CHECK (a > 0 AND a < 9)"
        ));
        assert!(matches!(
            &actions[11],
            TableAction::AddConstraint {
                not_valid: false,
                ..
            }
        ));
    }

    #[test]
    fn errors_say_where() {
        for (text, message, position) in [
            (
                "ADD COLUMN a int DEFAULT",
                "syntax error at end of input",
                25,
            ),
            ("ADD COLUMN a int,", "syntax error at end of input", 18),
            ("DROP", "syntax error at end of input", 5),
            ("ALTER a TYPE int USING", "syntax error at end of input", 23),
            (
                "ALTER a SET DEFAULT 1 + , DROP b",
                "syntax error at end of input",
                24,
            ),
            (
                "ALTER a ADD IDENTITY",
                "syntax error at or near \"IDENTITY\"",
                13,
            ),
            ("ALTER a WITH", "syntax error at or near \"WITH\"", 9),
        ] {
            let error = parsed(text).unwrap_err();
            assert_eq!(
                (error.kind, error.message.as_str(), error.position),
                (ErrorKind::SyntaxError, message, Some(position)),
                "{text}"
            );
        }
    }
}
