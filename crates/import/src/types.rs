//! Which type a column of the source has at the target.
//!
//! Values go by their texts, so a type that both sides have needs no more than a name. Types that the target has not
//! are refused by name, or taken as texts where the options say so.

use tokio_postgres::types::{Oid, Type};

/// What `numeric` without precision is at the target: 38 digits, ten of them after the point.
const NUMERIC_SCALE: i32 = 10;
const NUMERIC_DIGITS_MAX: i32 = 38;

/// A column's type at the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ColumnType {
    /// The type, by whose number parameters are declared.
    pub(crate) base: Type,
    /// Its modifier, -1 for none.
    pub(crate) typmod: i32,
    /// Whether the target's column may have any precision: the source's `numeric` has none.
    pub(crate) any_precision: bool,
}

impl ColumnType {
    fn of(base: Type, typmod: i32) -> ColumnType {
        ColumnType {
            base,
            typmod,
            any_precision: false,
        }
    }

    /// The type of a source's column, by its number and modifier there. `as_text` takes types that the target has not
    /// as texts; `None` is such a type without it.
    pub(crate) fn from_source(oid: Oid, typmod: i32, as_text: bool) -> Option<ColumnType> {
        let same = Type::from_oid(oid).and_then(|base| ColumnType::known(base, typmod));
        same.or_else(|| as_text.then(|| ColumnType::of(Type::TEXT, -1)))
    }

    fn known(base: Type, typmod: i32) -> Option<ColumnType> {
        match base {
            Type::BOOL
            | Type::INT2
            | Type::INT4
            | Type::INT8
            | Type::FLOAT4
            | Type::FLOAT8
            | Type::TEXT
            | Type::VARCHAR
            | Type::BYTEA
            | Type::UUID
            | Type::DATE => Some(ColumnType::of(base, typmod)),
            // A column of `bpchar` without a length does not exist at the target.
            Type::BPCHAR => (typmod >= 0).then(|| ColumnType::of(base, typmod)),
            // Values of fewer digits than six, or of fewer fields, are values of the whole type.
            Type::TIME | Type::TIMESTAMP | Type::TIMESTAMPTZ | Type::INTERVAL => {
                Some(ColumnType::of(base, -1))
            }
            Type::NUMERIC => ColumnType::numeric(typmod),
            _ => None,
        }
    }

    fn numeric(typmod: i32) -> Option<ColumnType> {
        if typmod < 0 {
            return Some(ColumnType {
                base: Type::NUMERIC,
                typmod: (NUMERIC_DIGITS_MAX << 16 | NUMERIC_SCALE) + 4,
                any_precision: true,
            });
        }
        let (digits, scale) = digits_and_scale(typmod);
        let had = (1..=NUMERIC_DIGITS_MAX).contains(&digits) && (0..=digits).contains(&scale);
        had.then(|| ColumnType::of(Type::NUMERIC, typmod))
    }

    /// Whether a column of the target has this type.
    pub(crate) fn fits(&self, oid: Oid, typmod: i32) -> bool {
        self.base.oid() == oid && (self.any_precision || self.typmod == typmod)
    }

    /// The type's name in a statement.
    pub(crate) fn sql(&self) -> String {
        type_sql(self.base.oid(), self.typmod)
    }

    /// How many digits after the point a target's column of `typmod` has, if values of the source may have more.
    pub(crate) fn scale_to_check(&self, typmod: i32) -> Option<u32> {
        if !self.any_precision || typmod < 0 {
            return None;
        }
        u32::try_from(digits_and_scale(typmod).1).ok()
    }
}

/// The name of a type that the target has, in a statement.
pub(crate) fn type_sql(oid: Oid, typmod: i32) -> String {
    let length = typmod - 4;
    match Type::from_oid(oid) {
        Some(Type::BOOL) => "boolean".to_owned(),
        Some(Type::INT2) => "smallint".to_owned(),
        Some(Type::INT4) => "integer".to_owned(),
        Some(Type::INT8) => "bigint".to_owned(),
        Some(Type::FLOAT4) => "real".to_owned(),
        Some(Type::FLOAT8) => "double precision".to_owned(),
        Some(Type::BPCHAR) if length > 0 => format!("character({length})"),
        Some(Type::VARCHAR) if length > 0 => format!("character varying({length})"),
        Some(Type::VARCHAR) => "character varying".to_owned(),
        Some(Type::TIMESTAMP) => "timestamp without time zone".to_owned(),
        Some(Type::TIMESTAMPTZ) => "timestamp with time zone".to_owned(),
        Some(Type::TIME) => "time without time zone".to_owned(),
        Some(Type::NUMERIC) if typmod >= 0 => {
            let (digits, scale) = digits_and_scale(typmod);
            format!("numeric({digits},{scale})")
        }
        Some(other) => other.name().to_owned(),
        None => format!("a type of number {oid}"),
    }
}

/// Precision and scale within a modifier; a scale has eleven bits, with its sign.
fn digits_and_scale(typmod: i32) -> (i32, i32) {
    let bits = typmod - 4;
    let scale = bits & 0x7FF;
    (bits >> 16 & 0xFFFF, (scale ^ 0x400) - 0x400)
}

/// How many digits that are not zero at its end a number's text has after the point.
pub(crate) fn scale_of(text: &[u8]) -> usize {
    let Some(point) = text.iter().position(|&byte| byte == b'.') else {
        return 0;
    };
    let digits = &text[point + 1..];
    digits.len()
        - digits
            .iter()
            .rev()
            .take_while(|&&byte| byte == b'0')
            .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn modifier(digits: i32, scale: i32) -> i32 {
        (digits << 16 | (scale & 0x7FF)) + 4
    }

    fn sql(base: &Type, typmod: i32) -> Option<String> {
        ColumnType::from_source(base.oid(), typmod, false).map(|column| column.sql())
    }

    #[test]
    fn types_that_both_have_keep_their_names() {
        for (base, typmod, expected) in [
            (Type::BOOL, -1, "boolean"),
            (Type::INT8, -1, "bigint"),
            (Type::BPCHAR, 9, "character(5)"),
            (Type::VARCHAR, 11, "character varying(7)"),
            (Type::VARCHAR, -1, "character varying"),
            (Type::NUMERIC, modifier(12, 2), "numeric(12,2)"),
            (Type::NUMERIC, -1, "numeric(38,10)"),
            (Type::TIMESTAMP, 3, "timestamp without time zone"),
            (Type::INTERVAL, -1, "interval"),
            (Type::UUID, -1, "uuid"),
        ] {
            assert_eq!(
                sql(&base, typmod).as_deref(),
                Some(expected),
                "{base} {typmod}"
            );
        }
    }

    #[test]
    fn types_that_the_target_has_not_are_refused_or_texts() {
        for (base, typmod) in [
            (Type::JSONB, -1),
            (Type::INT4_ARRAY, -1),
            (Type::BPCHAR, -1),
            (Type::NUMERIC, modifier(39, 2)),
            (Type::NUMERIC, modifier(5, -2)),
            (Type::NUMERIC, modifier(3, 5)),
            (Type::INET, -1),
        ] {
            assert_eq!(sql(&base, typmod), None, "{base} {typmod}");
            let text = ColumnType::from_source(base.oid(), typmod, true).map(|column| column.sql());
            assert_eq!(text.as_deref(), Some("text"), "{base} {typmod}");
        }
        assert_eq!(ColumnType::from_source(70_000, -1, false), None);
    }

    #[test]
    fn a_numeric_without_precision_fits_any() {
        let any = ColumnType::from_source(Type::NUMERIC.oid(), -1, false).expect("it is known");
        assert!(any.fits(Type::NUMERIC.oid(), modifier(38, 20)));
        assert_eq!(any.scale_to_check(modifier(38, 20)), Some(20));
        assert_eq!(any.scale_to_check(-1), None);
        let fixed = ColumnType::from_source(Type::NUMERIC.oid(), modifier(12, 2), false)
            .expect("it is known");
        assert!(!fixed.fits(Type::NUMERIC.oid(), modifier(12, 3)));
        assert_eq!(fixed.scale_to_check(modifier(12, 2)), None);
    }

    #[test]
    fn zeros_at_the_end_are_no_digits() {
        for (text, scale) in [
            ("1", 0),
            ("1.000", 0),
            ("-1.50", 1),
            ("0.0001", 4),
            ("NaN", 0),
            ("1.", 0),
        ] {
            assert_eq!(scale_of(text.as_bytes()), scale, "{text}");
        }
    }
}
