//! The kinds of error a user can meet, by meaning.
//!
//! Crates name *what* went wrong; [`ErrorKind::sqlstate`] is the one place that maps it to a
//! SQLSTATE.

use thiserror::Error;

/// What went wrong, named as PostgreSQL's appendix "Error Codes" names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The statement is not SQL.
    SyntaxError,
    /// Valid SQL that Aerostat does not do.
    FeatureNotSupported,
    /// A table, view or other relation that is not there.
    UndefinedTable,
    /// A column that is not there.
    UndefinedColumn,
    /// A function or operator that is not there for these argument types.
    UndefinedFunction,
    /// Several functions or operators fit these argument types equally well.
    AmbiguousFunction,
    /// A role, collation or other object that is not there.
    UndefinedObject,
    /// A parameter `$n` that was never given.
    UndefinedParameter,
    /// A prepared statement that is not there.
    InvalidStatementName,
    /// A cursor or portal that is not there.
    InvalidCursorName,
    /// A database that is not there.
    InvalidCatalogName,
    /// A schema that is not there.
    InvalidSchemaName,
    /// A column name that several relations in scope have.
    AmbiguousColumn,
    /// A name that several relations in scope are called by.
    AmbiguousAlias,
    /// A relation with this name is there already.
    DuplicateTable,
    /// A column name is given twice.
    DuplicateColumn,
    /// An alias is given twice.
    DuplicateAlias,
    /// A database with this name is there already.
    DuplicateDatabase,
    /// A schema with this name is there already.
    DuplicateSchema,
    /// A role or other object with this name is there already.
    DuplicateObject,
    /// A cursor with this name is there already.
    DuplicateCursor,
    /// A prepared statement with this name is there already.
    DuplicatePreparedStatement,
    /// An object cannot be dropped because others need it.
    DependentObjectsStillExist,
    /// A column must appear in GROUP BY or in an aggregate function.
    GroupingError,
    /// A window function stands where none may.
    WindowingError,
    /// The types of an expression do not fit.
    DatatypeMismatch,
    /// A type cannot be converted to another.
    CannotCoerce,
    /// A data type could not be determined.
    IndeterminateDatatype,
    /// The object is of the wrong kind for the statement.
    WrongObjectType,
    /// A column reference that is not allowed here.
    InvalidColumnReference,
    /// A recursive query that has no meaning.
    InvalidRecursion,
    /// A definition of a table is contradictory.
    InvalidTableDefinition,
    /// A foreign key that refers to no key.
    InvalidForeignKey,
    /// A name that is reserved.
    ReservedName,
    /// A name that is too long or empty.
    InvalidName,
    /// A text is not a value of the type.
    InvalidTextRepresentation,
    /// Bytes are not a value of the type.
    InvalidBinaryRepresentation,
    /// A COPY line is not of the format.
    BadCopyFileFormat,
    /// Bytes are not UTF-8.
    CharacterNotInRepertoire,
    /// A character is none of the client's encoding, or a byte of it is no character.
    UntranslatableCharacter,
    /// A text is longer than `varchar(n)` or `char(n)` allows.
    StringDataRightTruncation,
    /// A number is outside its type.
    NumericValueOutOfRange,
    /// A date or time has a field outside its range.
    DatetimeFieldOverflow,
    /// A window frame has an offset below zero.
    InvalidPrecedingOrFollowingSize,
    /// A text names a place further from UTC than any.
    InvalidTimeZoneDisplacement,
    /// A text is not a date or time.
    InvalidDatetimeFormat,
    /// A division by zero.
    DivisionByZero,
    /// A subquery used as an expression gave more than one row.
    CardinalityViolation,
    /// A function or setting got a value it does not take.
    InvalidParameterValue,
    /// A regular expression is not one.
    InvalidRegularExpression,
    /// A NULL where a function takes none.
    NullValueNotAllowed,
    /// A number of array items that there are not.
    ArraySubscriptError,
    /// A share of a table's rows that is none.
    InvalidTablesampleArgument,
    /// A window function counts from one.
    InvalidArgumentForNthValue,
    /// A negative LIMIT.
    InvalidRowCountInLimit,
    /// A negative OFFSET.
    InvalidRowCountInOffset,
    /// A substring of negative length.
    SubstringError,
    /// A LIKE pattern that ends in its escape character.
    InvalidEscapeSequence,
    /// A logarithm of zero or of a negative number.
    InvalidArgumentForLogarithm,
    /// A power or root that no real number is.
    InvalidArgumentForPower,
    /// Buckets without a width or a number.
    InvalidArgumentForWidthBucket,
    /// A sequence has no more numbers.
    SequenceGeneratorLimitExceeded,
    /// A value for a column that gets its own always.
    GeneratedAlways,
    /// A value is wrong in a way that has no closer name.
    DataException,
    /// A NULL in a column that takes none.
    NotNullViolation,
    /// A key that is there already.
    UniqueViolation,
    /// A row that refers to none, or that others refer to.
    ForeignKeyViolation,
    /// A row that a CHECK refuses.
    CheckViolation,
    /// Two transactions cannot both go on; retrying helps.
    SerializationFailure,
    /// Transactions waited for each other in a circle.
    DeadlockDetected,
    /// A lock was not available.
    LockNotAvailable,
    /// A statement inside a transaction that failed before.
    InFailedTransaction,
    /// A transaction command outside a transaction.
    NoActiveTransaction,
    /// A savepoint that is not there.
    InvalidSavepoint,
    /// A statement that cannot run inside a transaction block.
    ActiveTransaction,
    /// Writing in a read-only transaction.
    ReadOnlyTransaction,
    /// The role may not do this.
    InsufficientPrivilege,
    /// The password is wrong.
    InvalidPassword,
    /// The role may not connect, or is not there.
    InvalidAuthorization,
    /// The memory budget is used up.
    OutOfMemory,
    /// Too many connections.
    TooManyConnections,
    /// The disk is full.
    DiskFull,
    /// A limit of the engine: row width, columns, value size.
    ProgramLimitExceeded,
    /// More columns than a table may have.
    TooManyColumns,
    /// More arguments than a function takes.
    TooManyArguments,
    /// The statement is too deep or too large to work on.
    StatementTooComplex,
    /// An object is in use.
    ObjectInUse,
    /// The object is not in the state the statement needs.
    ObjectNotInPrerequisiteState,
    /// The user or a timeout cancelled the statement.
    QueryCanceled,
    /// The server is stopping.
    AdminShutdown,
    /// A session has been idle in a transaction for longer than it may.
    IdleInTransactionTimeout,
    /// A session has been idle for longer than it may.
    IdleSessionTimeout,
    /// The server cannot take the connection now.
    CannotConnectNow,
    /// The client broke the wire protocol.
    ProtocolViolation,
    /// A file or the network failed.
    IoError,
    /// A commit failed half-way: whether it happened shows after a restart.
    TransactionResolutionUnknown,
    /// The connection to whoever does the work is lost.
    ConnectionFailure,
    /// Files of a database are not what was written to them.
    DataCorrupted,
    /// A limit that the operator has set, such as that of spilled bytes.
    ConfigurationLimitExceeded,
    /// A broken invariant of ours. Always a defect.
    Internal,
}

/// An error as the user sees it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct SqlError {
    /// What went wrong.
    pub kind: ErrorKind,
    /// One sentence without a full stop, as PostgreSQL words it where it can.
    pub message: String,
    /// Which values or objects were concerned.
    pub detail: Option<String>,
    /// What the user can do.
    pub hint: Option<String>,
    /// Where in the statement, as a 1-based count of characters.
    pub position: Option<u32>,
    /// The constraint that was violated.
    pub constraint: Option<String>,
    /// The schema, table and column concerned, as far as known.
    pub object: Option<Box<(String, String, Option<String>)>>,
}

impl SqlError {
    /// An error with a kind and a message alone.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            detail: None,
            hint: None,
            position: None,
            constraint: None,
            object: None,
        }
    }

    /// Adds which values or objects were concerned.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Adds what the user can do.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the place in the statement, a 1-based count of characters.
    #[must_use]
    pub fn with_position(mut self, position: u32) -> Self {
        self.position = Some(position);
        self
    }

    /// Adds the constraint that was violated.
    #[must_use]
    pub fn with_constraint(mut self, constraint: impl Into<String>) -> Self {
        self.constraint = Some(constraint.into());
        self
    }
}
