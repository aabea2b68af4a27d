//! A history: transactions as their clients saw them. One line of JSON for each, so that a
//! failing history can be kept, searched and cut.

use std::io::{BufRead, Write};

use serde::{Deserialize, Serialize};

/// Transactions of all clients, in any order. The number of one in reports is that of its line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// What the clients did.
    pub transactions: Vec<Transaction>,
}

/// One transaction of one client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transaction {
    /// Who: transactions of one process come one after the other, in one session.
    pub process: u32,
    /// When the client began, in nanoseconds of a clock that all clients share.
    pub invoked_ns: u64,
    /// When the client knew the outcome; of one that is unknown, when it gave up.
    pub completed_ns: u64,
    /// What the client knows of it.
    pub outcome: Outcome,
    /// Whether it read a copy, which may be behind: real time says nothing of it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub copy: bool,
    /// Whether it read when all was over, so that everything acknowledged must be there.
    #[serde(default, skip_serializing_if = "is_false")]
    pub last: bool,
    /// For whoever reads the history, such as the SQLSTATE behind the outcome.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// What it did, in this order.
    pub operations: Vec<Operation>,
}

/// What the client knows of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It was acknowledged.
    Ok,
    /// It certainly was not committed.
    Fail,
    /// It may or may not have been committed, or will be.
    Info,
}

/// One operation of a transaction that succeeded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// A value to the end of a list. Nobody else appends this value to this list.
    Append {
        /// Which list.
        key: u64,
        /// What was appended.
        value: u64,
    },
    /// What a list had in it, empty where there was none.
    Read {
        /// Which list.
        key: u64,
        /// Its values in their order.
        list: Vec<u64>,
    },
}

/// Why there is no history in a file.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The file cannot be read or written.
    #[error("cannot read or write a history")]
    File(#[from] std::io::Error),
    /// A line is no transaction.
    #[error("line {line} is no transaction")]
    Line {
        /// Which line, from 1.
        line: usize,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
}

impl History {
    /// Reads a line for each transaction.
    ///
    /// # Errors
    /// When the file cannot be read, or a line is no transaction.
    pub fn read(file: impl BufRead) -> Result<Self, HistoryError> {
        let mut transactions = Vec::new();
        for (at, line) in file.lines().enumerate() {
            let transaction =
                serde_json::from_str(&line?).map_err(|source| HistoryError::Line {
                    line: at + 1,
                    source,
                })?;
            transactions.push(transaction);
        }
        Ok(Self { transactions })
    }

    /// The same with a transaction that only reads, behind the others, for each that was not
    /// acknowledged: what it had read until then, of lists that it had not appended to. For a
    /// database that promises a snapshot to whoever reads, whatever becomes of him.
    #[must_use]
    pub fn with_reads_of_failed(&self) -> Self {
        let mut transactions = self.transactions.clone();
        for (at, transaction) in self.transactions.iter().enumerate() {
            let mut appended = Vec::new();
            let mut reads = transaction.operations.clone();
            reads.retain(|operation| match operation {
                Operation::Append { key, .. } => {
                    appended.push(*key);
                    false
                }
                Operation::Read { key, .. } => !appended.contains(key),
            });
            if transaction.outcome != Outcome::Ok && !reads.is_empty() {
                transactions.push(Transaction {
                    outcome: Outcome::Ok,
                    note: format!("reads of T{}", at + 1),
                    operations: reads,
                    ..transaction.clone()
                });
            }
        }
        Self { transactions }
    }

    /// Writes a line for each transaction.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, mut file: impl Write) -> Result<(), HistoryError> {
        for (at, transaction) in self.transactions.iter().enumerate() {
            let line = serde_json::to_string(transaction).map_err(|source| HistoryError::Line {
                line: at + 1,
                source,
            })?;
            writeln!(file, "{line}")?;
        }
        Ok(file.flush()?)
    }
}

impl Transaction {
    /// When it was over at the earliest, whatever a clock that went back says.
    pub(crate) fn end_ns(&self) -> u64 {
        self.completed_ns.max(self.invoked_ns)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let transaction = Transaction {
            process: 3,
            invoked_ns: 10,
            completed_ns: 20,
            outcome: Outcome::Info,
            copy: true,
            last: false,
            note: "08006".into(),
            operations: vec![
                Operation::Append { key: 1, value: 7 },
                Operation::Read {
                    key: 2,
                    list: vec![5, 6],
                },
            ],
        };
        let history = History {
            transactions: vec![transaction],
        };
        let mut file = Vec::new();
        history.write(&mut file).unwrap();
        assert_eq!(
            String::from_utf8(file.clone()).unwrap(),
            "{\"process\":3,\"invoked_ns\":10,\"completed_ns\":20,\"outcome\":\"info\",\"copy\":true,\
             \"note\":\"08006\",\"operations\":[{\"append\":{\"key\":1,\"value\":7}},\
             {\"read\":{\"key\":2,\"list\":[5,6]}}]}\n"
        );
        assert_eq!(History::read(file.as_slice()).unwrap(), history);
    }

    #[test]
    fn a_line_that_is_no_transaction_is_named() {
        let error = History::read("{\"process\":1}\n".as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), "line 1 is no transaction");
    }
}
