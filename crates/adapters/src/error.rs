//! Why an adapter cannot be made, or cannot reach its program.

use std::{io, path::PathBuf};

/// Why options name no adapter.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    /// There is no adapter of this kind.
    #[error("{0:?} is none of mariadb, mysql, redis, valkey, jvm, cgroup and vm")]
    Kind(String),
    /// A part of the text is not `key=value`. It is not shown, since it may be the part of a password after
    /// a comma.
    #[error("a part of the options is not key=value")]
    Syntax,
    /// An option is given twice.
    #[error("the option {0} is given twice")]
    Twice(String),
    /// An adapter of this kind has no such option.
    #[error("there is no option {0} for this kind of program")]
    Unknown(String),
    /// An option without which there is no adapter.
    #[error("the option {0} is missing")]
    Missing(&'static str),
    /// The value of an option is not one.
    #[error("the option {key} cannot be {value:?}: {why}")]
    Value {
        /// The option.
        key: &'static str,
        /// The given value, which is never a password.
        value: String,
        /// The reason.
        why: String,
    },
    /// A file that an option names cannot be read.
    #[error("cannot read {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
}

/// Why an adapter does not reach its program.
#[derive(Debug, thiserror::Error)]
pub enum AdapterError {
    /// The connection to the program failed, or a file of the kernel cannot be read.
    #[error("cannot talk to the program")]
    Io(#[from] io::Error),
    /// The database refuses a statement or the connection.
    #[error("the database refuses")]
    Sql(#[from] mysql_async::Error),
    /// The program answers with an error.
    #[error("the program refuses {what}: {answer}")]
    Refused {
        /// The request.
        what: String,
        /// The program's answer.
        answer: String,
    },
    /// The program's answer lacks a part that the adapter needs.
    #[error("the program's answer has no usable {0}")]
    Answer(&'static str),
    /// The program did not answer in time.
    #[error("the program does not answer")]
    Silent,
    /// The number of the program's process is not known, or there is none of this number.
    #[error("cannot tell which process the program is; give its pid")]
    NoProcess,
    /// The process is not of the kind that the adapter is for.
    #[error("process {pid} is no {expected}")]
    NotThis {
        /// The process.
        pid: u32,
        /// The kind of program that it should be.
        expected: &'static str,
    },
    /// The task of the adapter ended in an unexpected way.
    #[error("the adapter's task broke")]
    Broken,
}
