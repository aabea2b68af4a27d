//! The SQLSTATE of each kind of error.

use crate::ErrorKind;

impl ErrorKind {
    /// Its SQLSTATE (PostgreSQL 15, appendix A).
    pub const fn sqlstate(self) -> &'static str {
        match self {
            ErrorKind::SyntaxError => "42601",
            ErrorKind::FeatureNotSupported => "0A000",
            ErrorKind::UndefinedTable => "42P01",
            ErrorKind::UndefinedColumn => "42703",
            ErrorKind::UndefinedFunction => "42883",
            ErrorKind::AmbiguousFunction => "42725",
            ErrorKind::UndefinedObject => "42704",
            ErrorKind::UndefinedParameter => "42P02",
            ErrorKind::InvalidStatementName => "26000",
            ErrorKind::InvalidCursorName => "34000",
            ErrorKind::InvalidCatalogName => "3D000",
            ErrorKind::InvalidSchemaName => "3F000",
            ErrorKind::AmbiguousColumn => "42702",
            ErrorKind::AmbiguousAlias => "42P09",
            ErrorKind::DuplicateTable => "42P07",
            ErrorKind::DuplicateColumn => "42701",
            ErrorKind::DuplicateAlias => "42712",
            ErrorKind::DuplicateDatabase => "42P04",
            ErrorKind::DuplicateSchema => "42P06",
            ErrorKind::DuplicateObject => "42710",
            ErrorKind::DuplicateCursor => "42P03",
            ErrorKind::DuplicatePreparedStatement => "42P05",
            ErrorKind::DependentObjectsStillExist => "2BP01",
            ErrorKind::GroupingError => "42803",
            ErrorKind::WindowingError => "42P20",
            ErrorKind::DatatypeMismatch => "42804",
            ErrorKind::CannotCoerce => "42846",
            ErrorKind::IndeterminateDatatype => "42P18",
            ErrorKind::WrongObjectType => "42809",
            ErrorKind::InvalidColumnReference => "42P10",
            ErrorKind::InvalidTableDefinition => "42P16",
            ErrorKind::InvalidForeignKey => "42830",
            ErrorKind::ReservedName => "42939",
            ErrorKind::InvalidName => "42602",
            ErrorKind::InvalidTextRepresentation => "22P02",
            ErrorKind::InvalidBinaryRepresentation => "22P03",
            ErrorKind::BadCopyFileFormat => "22P04",
            ErrorKind::CharacterNotInRepertoire => "22021",
            ErrorKind::UntranslatableCharacter => "22P05",
            ErrorKind::StringDataRightTruncation => "22001",
            ErrorKind::NumericValueOutOfRange => "22003",
            ErrorKind::DatetimeFieldOverflow => "22008",
            ErrorKind::InvalidDatetimeFormat => "22007",
            ErrorKind::DivisionByZero => "22012",
            ErrorKind::CardinalityViolation => "21000",
            ErrorKind::InvalidParameterValue => "22023",
            ErrorKind::InvalidRegularExpression => "2201B",
            ErrorKind::InvalidRowCountInLimit => "2201W",
            ErrorKind::InvalidRowCountInOffset => "2201X",
            ErrorKind::SubstringError => "22011",
            ErrorKind::InvalidEscapeSequence => "22025",
            ErrorKind::NullValueNotAllowed => "22004",
            ErrorKind::ArraySubscriptError => "2202E",
            ErrorKind::InvalidArgumentForNthValue => "22016",
            ErrorKind::InvalidRecursion => "42P19",
            ErrorKind::InvalidArgumentForLogarithm => "2201E",
            ErrorKind::InvalidArgumentForPower => "2201F",
            ErrorKind::InvalidArgumentForWidthBucket => "2201G",
            ErrorKind::SequenceGeneratorLimitExceeded => "2200H",
            ErrorKind::GeneratedAlways => "428C9",
            ErrorKind::DataException => "22000",
            ErrorKind::NotNullViolation => "23502",
            ErrorKind::UniqueViolation => "23505",
            ErrorKind::ForeignKeyViolation => "23503",
            ErrorKind::CheckViolation => "23514",
            ErrorKind::SerializationFailure => "40001",
            ErrorKind::DeadlockDetected => "40P01",
            ErrorKind::LockNotAvailable => "55P03",
            ErrorKind::InFailedTransaction => "25P02",
            ErrorKind::NoActiveTransaction => "25P01",
            ErrorKind::InvalidSavepoint => "3B001",
            ErrorKind::ActiveTransaction => "25001",
            ErrorKind::ReadOnlyTransaction => "25006",
            ErrorKind::InsufficientPrivilege => "42501",
            ErrorKind::InvalidPassword => "28P01",
            ErrorKind::InvalidAuthorization => "28000",
            ErrorKind::OutOfMemory => "53200",
            ErrorKind::TooManyConnections => "53300",
            ErrorKind::DiskFull => "53100",
            ErrorKind::ProgramLimitExceeded => "54000",
            ErrorKind::TooManyColumns => "54011",
            ErrorKind::StatementTooComplex => "54001",
            ErrorKind::ObjectInUse => "55006",
            ErrorKind::ObjectNotInPrerequisiteState => "55000",
            ErrorKind::QueryCanceled => "57014",
            ErrorKind::AdminShutdown => "57P01",
            ErrorKind::IdleInTransactionTimeout => "25P03",
            ErrorKind::IdleSessionTimeout => "57P05",
            ErrorKind::CannotConnectNow => "57P03",
            ErrorKind::ProtocolViolation => "08P01",
            ErrorKind::IoError => "58030",
            ErrorKind::TransactionResolutionUnknown => "08007",
            ErrorKind::ConfigurationLimitExceeded => "53400",
            ErrorKind::DataCorrupted => "XX001",
            ErrorKind::Internal => "XX000",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_postgresqls() {
        for (kind, code) in [
            (ErrorKind::UniqueViolation, "23505"),
            (ErrorKind::QueryCanceled, "57014"),
            (ErrorKind::DivisionByZero, "22012"),
            (ErrorKind::Internal, "XX000"),
        ] {
            assert_eq!(kind.sqlstate(), code);
        }
    }
}
