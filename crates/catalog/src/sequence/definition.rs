//! A sequence's definition, and how CREATE and ALTER SEQUENCE change it. Pure.

use aerostat_sql::sequence_options::Options;
use aerostat_types::{ErrorKind, SqlError, SqlType};
use serde::{Deserialize, Serialize};

use super::Position;

/// What numbers a sequence gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definition {
    /// `smallint`, `integer` or `bigint`.
    pub ty: SqlType,
    /// The first number.
    pub start: i64,
    /// From one number to the next; not 0.
    pub increment: i64,
    /// The least number.
    pub min: i64,
    /// The greatest.
    pub max: i64,
    /// CACHE, which changes nothing here: sessions take numbers one by one.
    pub cache: i64,
    /// Whether it begins again when it has come to its end.
    pub cycles: bool,
}

impl Default for Definition {
    fn default() -> Self {
        Self {
            ty: SqlType::BigInt,
            start: 1,
            increment: 1,
            min: 1,
            max: i64::MAX,
            cache: 1,
            cycles: false,
        }
    }
}

impl Definition {
    /// Where it stands when it is new.
    pub fn first(&self) -> Position {
        Position {
            last_value: self.start,
            is_called: false,
        }
    }

    /// The number that follows, if there is one.
    pub(super) fn after(&self, position: Position) -> Option<i64> {
        let Position {
            last_value,
            is_called,
        } = position;
        if !is_called {
            return Some(last_value);
        }
        match last_value.checked_add(self.increment) {
            Some(next) if (self.min..=self.max).contains(&next) => Some(next),
            _ if self.cycles => Some(if self.increment > 0 {
                self.min
            } else {
                self.max
            }),
            _ => None,
        }
    }

    /// The last number of a run that begins with this one and has at most so many, all
    /// inside the bounds, and how many it has.
    pub(super) fn run(&self, first: i64, count_max: u64) -> (i64, u64) {
        let bound = if self.increment > 0 {
            self.max
        } else {
            self.min
        };
        let room = (i128::from(bound) - i128::from(first)) / i128::from(self.increment);
        let steps = room.clamp(0, i128::from(count_max) - 1);
        let last = i128::from(first) + steps * i128::from(self.increment);
        let last = i64::try_from(last).expect("it is between the first number and a bound");
        let count = u64::try_from(steps).expect("it is not negative") + 1;
        (last, count)
    }

    /// The error of a sequence of this name that has come to its end.
    pub(super) fn used_up(&self, name: &str) -> SqlError {
        let (which, bound) = match self.increment > 0 {
            true => ("maximum", self.max),
            false => ("minimum", self.min),
        };
        SqlError::new(
            ErrorKind::SequenceGeneratorLimitExceeded,
            format!("nextval: reached {which} value of sequence \"{name}\" ({bound})"),
        )
    }
}

/// The least and greatest number of a type.
fn bounds(ty: SqlType) -> Option<(i64, i64)> {
    match ty {
        SqlType::SmallInt => Some((i16::MIN.into(), i16::MAX.into())),
        SqlType::Integer => Some((i32::MIN.into(), i32::MAX.into())),
        SqlType::BigInt => Some((i64::MIN, i64::MAX)),
        _ => None,
    }
}

impl Definition {
    /// A new sequence of this type, unless AS says another.
    ///
    /// # Errors
    /// As PostgreSQL: numbers that contradict each other.
    pub fn create(options: &Options, ty: SqlType) -> Result<(Self, Position), SqlError> {
        let ty = options.ty.unwrap_or(ty);
        let definition = Self {
            ty,
            ..Self::default()
        };
        definition.settle(options, None)
    }

    /// What a sequence becomes.
    ///
    /// # Errors
    /// As PostgreSQL: numbers that contradict each other.
    pub fn altered(
        &self,
        options: &Options,
        position: Position,
    ) -> Result<(Self, Position), SqlError> {
        self.clone().settle(options, Some(position))
    }

    /// PostgreSQL's `init_params`; `position` is where a sequence stands that is there.
    fn settle(
        self,
        options: &Options,
        position: Option<Position>,
    ) -> Result<(Self, Position), SqlError> {
        let before = self;
        let is_new = position.is_none();
        let ty = options.ty.unwrap_or(before.ty);
        let Some((type_min, type_max)) = bounds(ty) else {
            return Err(invalid(
                "sequence type must be smallint, integer, or bigint",
            ));
        };
        // Bounds that were those of the type follow it.
        let (follows_min, follows_max) = match bounds(before.ty) {
            Some((min, max)) if !is_new && options.ty.is_some() => {
                (before.min == min, before.max == max)
            }
            _ => (false, false),
        };
        let increment = options.increment.unwrap_or(before.increment);
        if increment == 0 {
            return Err(invalid("INCREMENT must not be zero"));
        }
        let max = match options.max {
            Some(Some(max)) => max,
            None if !is_new && !follows_max => before.max,
            _ if increment > 0 || follows_max => type_max,
            _ => -1,
        };
        if !(type_min..=type_max).contains(&max) {
            return Err(invalid(format!(
                "MAXVALUE ({max}) is out of range for sequence data type {ty}"
            )));
        }
        let min = match options.min {
            Some(Some(min)) => min,
            None if !is_new && !follows_min => before.min,
            _ if increment < 0 || follows_min => type_min,
            _ => 1,
        };
        if !(type_min..=type_max).contains(&min) {
            return Err(invalid(format!(
                "MINVALUE ({min}) is out of range for sequence data type {ty}"
            )));
        }
        if min >= max {
            return Err(invalid(format!(
                "MINVALUE ({min}) must be less than MAXVALUE ({max})"
            )));
        }
        let start = match options.start {
            Some(start) => start,
            None if !is_new => before.start,
            None if increment > 0 => min,
            None => max,
        };
        check_bounds("START", start, min, max)?;
        let position = match (options.restart, position) {
            (Some(at), _) => Position {
                last_value: at.unwrap_or(start),
                is_called: false,
            },
            (None, Some(position)) => position,
            (None, None) => Position {
                last_value: start,
                is_called: false,
            },
        };
        check_bounds("RESTART", position.last_value, min, max)?;
        let cache = options.cache.unwrap_or(before.cache);
        if cache <= 0 {
            return Err(invalid(format!(
                "CACHE ({cache}) must be greater than zero"
            )));
        }
        let definition = Definition {
            ty,
            start,
            increment,
            min,
            max,
            cache,
            cycles: options.cycles.unwrap_or(before.cycles),
        };
        Ok((definition, position))
    }
}

fn check_bounds(word: &str, value: i64, min: i64, max: i64) -> Result<(), SqlError> {
    if value < min {
        return Err(invalid(format!(
            "{word} value ({value}) cannot be less than MINVALUE ({min})"
        )));
    }
    if value > max {
        return Err(invalid(format!(
            "{word} value ({value}) cannot be greater than MAXVALUE ({max})"
        )));
    }
    Ok(())
}

fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(ErrorKind::InvalidParameterValue, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn created(options: &Options) -> Definition {
        Definition::create(options, SqlType::BigInt).unwrap().0
    }

    #[test]
    fn what_is_not_said_follows_from_what_is() {
        let small = created(&Options {
            ty: Some(SqlType::SmallInt),
            ..Options::default()
        });
        assert_eq!((small.min, small.max, small.start), (1, 32_767, 1));
        let down = created(&Options {
            increment: Some(-2),
            ..Options::default()
        });
        assert_eq!((down.min, down.max, down.start), (i64::MIN, -1, -1));
    }

    #[test]
    fn bounds_of_the_type_follow_the_type() {
        let small = Options {
            ty: Some(SqlType::SmallInt),
            ..Options::default()
        };
        let (small, position) = Definition::create(&small, SqlType::BigInt).unwrap();
        let wider = Options {
            ty: Some(SqlType::Integer),
            ..Options::default()
        };
        let (wide, same) = small.altered(&wider, position).unwrap();
        assert_eq!((wide.min, wide.max), (1, 2_147_483_647));
        assert_eq!(same, position);
    }

    #[test]
    fn runs_end_at_the_bounds() {
        let definition = Definition {
            max: 10,
            increment: 3,
            ..Definition::default()
        };
        assert_eq!(definition.run(1, 33), (10, 4));
        assert_eq!(definition.run(1, 2), (4, 2));
        assert_eq!(definition.run(10, 33), (10, 1));
        let edge = Definition::default();
        assert_eq!(edge.run(i64::MAX, 33), (i64::MAX, 1));
        let last = Position {
            last_value: i64::MAX,
            is_called: true,
        };
        assert_eq!(edge.after(last), None);
    }

    #[test]
    fn contradictions_are_refused() {
        for (options, message) in [
            (
                Options {
                    increment: Some(0),
                    ..Options::default()
                },
                "INCREMENT must not be zero",
            ),
            (
                Options {
                    min: Some(Some(5)),
                    max: Some(Some(5)),
                    ..Options::default()
                },
                "MINVALUE (5) must be less than MAXVALUE (5)",
            ),
            (
                Options {
                    ty: Some(SqlType::SmallInt),
                    max: Some(Some(40_000)),
                    ..Options::default()
                },
                "MAXVALUE (40000) is out of range for sequence data type smallint",
            ),
            (
                Options {
                    start: Some(0),
                    ..Options::default()
                },
                "START value (0) cannot be less than MINVALUE (1)",
            ),
            (
                Options {
                    cache: Some(0),
                    ..Options::default()
                },
                "CACHE (0) must be greater than zero",
            ),
        ] {
            let error = Definition::create(&options, SqlType::BigInt).unwrap_err();
            assert_eq!(error.kind, ErrorKind::InvalidParameterValue);
            assert_eq!(error.message, message);
        }
    }
}
