//! DECLARE, FETCH, MOVE and CLOSE.

use aerostat_types::{ErrorKind, SqlError};
use sqlparser::tokenizer::Token;

use super::tokens::{Fragment, Tokens};

/// A command about cursors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CursorCommand {
    /// DECLARE name CURSOR FOR query.
    Declare {
        /// The name.
        name: String,
        /// SCROLL: it can go back.
        scroll: bool,
        /// WITH HOLD: it outlives its transaction.
        hold: bool,
        /// The query.
        query: Fragment,
    },
    /// FETCH, or MOVE, which returns no rows.
    Fetch {
        /// The cursor's name.
        name: String,
        /// Where to, and how far.
        direction: Direction,
        /// Whether the rows are only passed.
        is_move: bool,
    },
    /// CLOSE name.
    Close(String),
    /// CLOSE ALL.
    CloseAll,
}

/// Which rows FETCH returns, from where the cursor stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The next rows; `None` for all of them.
    Forward(Option<u64>),
    /// The rows before, the nearest first; `None` for all of them.
    Backward(Option<u64>),
    /// The row of this number from 1; from the end where it is negative.
    Absolute(i64),
    /// The row so many rows on.
    Relative(i64),
}

impl Direction {
    /// `FETCH n`: backward where n is negative, the row itself for 0.
    fn counted(count: i64) -> Self {
        match count {
            0 => Direction::Relative(0),
            1.. => Direction::Forward(Some(count.unsigned_abs())),
            _ => Direction::Backward(Some(count.unsigned_abs())),
        }
    }

    fn back(self) -> Self {
        match self {
            Direction::Forward(count) => Direction::Backward(count),
            Direction::Backward(count) => Direction::Forward(count),
            other => other,
        }
    }
}

impl CursorCommand {
    /// The command tag that ends the statement.
    pub fn tag(&self) -> &'static str {
        match self {
            CursorCommand::Declare { .. } => "DECLARE CURSOR",
            CursorCommand::Fetch { is_move: false, .. } => "FETCH",
            CursorCommand::Fetch { is_move: true, .. } => "MOVE",
            CursorCommand::Close(_) => "CLOSE CURSOR",
            CursorCommand::CloseAll => "CLOSE CURSOR ALL",
        }
    }
}

pub(super) fn parse(tokens: &mut Tokens<'_>, word: &str) -> Result<CursorCommand, SqlError> {
    match word {
        "DECLARE" => declare(tokens),
        "CLOSE" if tokens.accept(&["ALL"]) => Ok(CursorCommand::CloseAll),
        "CLOSE" => Ok(CursorCommand::Close(tokens.name()?)),
        _ => {
            let direction = direction(tokens)?;
            tokens.accept_one(&["FROM", "IN"]);
            Ok(CursorCommand::Fetch {
                name: tokens.name()?,
                direction,
                is_move: word == "MOVE",
            })
        }
    }
}

fn declare(tokens: &mut Tokens<'_>) -> Result<CursorCommand, SqlError> {
    let name = tokens.name()?;
    let mut scroll = false;
    loop {
        match tokens.accept_one(&["BINARY", "INSENSITIVE", "ASENSITIVE", "NO", "SCROLL"]) {
            Some("BINARY") => {
                return Err(tokens.error_before(
                    ErrorKind::FeatureNotSupported,
                    "BINARY cursors are not supported",
                ));
            }
            Some("NO") => tokens.expect(&["SCROLL"])?,
            Some("SCROLL") => scroll = true,
            // Every cursor reads one snapshot.
            Some(_) => {}
            None => break,
        }
    }
    tokens.expect(&["CURSOR"])?;
    let hold = match tokens.accept_one(&["WITH", "WITHOUT"]) {
        None => false,
        Some(word) => {
            tokens.expect(&["HOLD"])?;
            word == "WITH"
        }
    };
    tokens.expect(&["FOR"])?;
    Ok(CursorCommand::Declare {
        name,
        scroll,
        hold,
        query: tokens.rest()?,
    })
}

fn direction(tokens: &mut Tokens<'_>) -> Result<Direction, SqlError> {
    // A cursor may have the name of a direction: what ends here is the name.
    let mut rest = tokens.ahead();
    rest.skip();
    if rest.end().is_ok() {
        return Ok(Direction::Forward(Some(1)));
    }
    let words = [
        "NEXT", "PRIOR", "FIRST", "LAST", "ABSOLUTE", "RELATIVE", "ALL", "FORWARD", "BACKWARD",
    ];
    Ok(match tokens.accept_one(&words) {
        Some("NEXT") => Direction::Forward(Some(1)),
        Some("PRIOR") => Direction::Backward(Some(1)),
        Some("FIRST") => Direction::Absolute(1),
        Some("LAST") => Direction::Absolute(-1),
        Some("ABSOLUTE") => Direction::Absolute(i64::from(tokens.integer()?)),
        Some("RELATIVE") => Direction::Relative(i64::from(tokens.integer()?)),
        Some("ALL") => Direction::Forward(None),
        Some(word) => {
            let forward = if tokens.accept(&["ALL"]) {
                Direction::Forward(None)
            } else {
                Direction::counted(count(tokens)?.unwrap_or(1))
            };
            if word == "BACKWARD" {
                forward.back()
            } else {
                forward
            }
        }
        None => Direction::counted(count(tokens)?.unwrap_or(1)),
    })
}

fn count(tokens: &mut Tokens<'_>) -> Result<Option<i64>, SqlError> {
    match tokens.peek() {
        Some(Token::Number(..) | Token::Plus | Token::Minus) => {
            tokens.integer().map(|count| Some(i64::from(count)))
        }
        _ => Ok(None),
    }
}
