//! Types and values, with the edges of each type among them.

use crate::dice::Dice;

/// A column's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Boolean,
    Smallint,
    Integer,
    Bigint,
    Real,
    Double,
    Numeric(u32, u32),
    Char(usize),
    Varchar(usize),
    Text,
    Bytea,
    Uuid,
    Date,
    Time,
    Timestamp,
    Timestamptz,
    Interval,
}

/// Days, so that a month has them all.
const DAYS: u64 = 28;

impl Kind {
    pub(super) fn random(dice: &mut Dice) -> Kind {
        match dice.below(17) {
            0 => Kind::Boolean,
            1 => Kind::Smallint,
            2 => Kind::Integer,
            3 => Kind::Bigint,
            4 => Kind::Real,
            5 => Kind::Double,
            6 => {
                let precision = dice.pick(&[1, 4, 9, 12, 18, 19, 28]);
                Kind::Numeric(
                    precision,
                    dice.below(u64::from(precision).min(6) + 1) as u32,
                )
            }
            7 => Kind::Char(dice.pick(&[1, 3, 8, 20])),
            8 => Kind::Varchar(dice.pick(&[1, 5, 12, 40])),
            9 => Kind::Text,
            10 => Kind::Bytea,
            11 => Kind::Uuid,
            12 => Kind::Date,
            13 => Kind::Time,
            14 => Kind::Timestamp,
            15 => Kind::Timestamptz,
            _ => Kind::Interval,
        }
    }

    /// A type with enough values for a key of many rows; see [`Kind::numbered`].
    pub(super) fn random_key(dice: &mut Dice) -> Kind {
        dice.pick(&[
            Kind::Integer,
            Kind::Bigint,
            Kind::Numeric(12, 2),
            Kind::Varchar(40),
            Kind::Text,
            Kind::Char(20),
            Kind::Bytea,
            Kind::Uuid,
        ])
    }

    /// The type in SQL.
    pub(super) fn name(self) -> String {
        match self {
            Kind::Boolean => "boolean".into(),
            Kind::Smallint => "smallint".into(),
            Kind::Integer => "integer".into(),
            Kind::Bigint => "bigint".into(),
            Kind::Real => "real".into(),
            Kind::Double => "double precision".into(),
            Kind::Numeric(precision, scale) => format!("numeric({precision},{scale})"),
            Kind::Char(length) => format!("char({length})"),
            Kind::Varchar(length) => format!("varchar({length})"),
            Kind::Text => "text".into(),
            Kind::Bytea => "bytea".into(),
            Kind::Uuid => "uuid".into(),
            Kind::Date => "date".into(),
            Kind::Time => "time".into(),
            Kind::Timestamp => "timestamp".into(),
            Kind::Timestamptz => "timestamptz".into(),
            Kind::Interval => "interval".into(),
        }
    }

    /// Whether two columns are of one type, whatever its length or precision.
    pub(super) fn is_like(self, other: Kind) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }

    pub(super) fn is_integer(self) -> bool {
        matches!(self, Kind::Smallint | Kind::Integer | Kind::Bigint)
    }

    pub(super) fn is_text(self) -> bool {
        matches!(self, Kind::Char(_) | Kind::Varchar(_) | Kind::Text)
    }

    /// A value as text: mostly one of few, so that predicates and joins meet it again.
    pub(super) fn value(self, dice: &mut Dice) -> String {
        if dice.one_in(7) {
            self.edge(dice)
        } else {
            self.ordinary(dice)
        }
    }

    fn edge(self, dice: &mut Dice) -> String {
        let nines = |precision: u32, scale: u32| {
            let digits = "9".repeat(precision as usize);
            let (whole, fraction) = digits.split_at((precision - scale) as usize);
            match (whole, fraction) {
                (whole, "") => whole.to_owned(),
                ("", fraction) => format!("0.{fraction}"),
                (whole, fraction) => format!("{whole}.{fraction}"),
            }
        };
        let edges: &[&str] = match self {
            Kind::Boolean => &["t", "f", "yes", "off"],
            Kind::Smallint => &["-32768", "32767", "0"],
            Kind::Integer => &["-2147483648", "2147483647", "0"],
            Kind::Bigint => &["-9223372036854775808", "9223372036854775807", "0"],
            Kind::Real => &[
                "NaN",
                "Infinity",
                "-Infinity",
                "3.4028235e38",
                "-3.4028235e38",
                "1.1754944e-38",
                "0.1",
            ],
            Kind::Double => &[
                "NaN",
                "Infinity",
                "-Infinity",
                "1.7976931348623157e308",
                "2.2250738585072014e-308",
                "1e22",
                "0.1",
            ],
            Kind::Numeric(precision, scale) => {
                let sign = if dice.one_in(2) { "-" } else { "" };
                return format!("{sign}{}", nines(precision, scale));
            }
            Kind::Char(_) | Kind::Varchar(_) | Kind::Text => {
                let long = self == Kind::Text && dice.one_in(6);
                return self.fit(&strange_text(dice, long));
            }
            Kind::Bytea => &["\\x", "\\x00", "\\xff00ff", "\\x5c27222c0a09"],
            Kind::Uuid => &[
                "00000000-0000-0000-0000-000000000000",
                "ffffffff-ffff-ffff-ffff-ffffffffffff",
                "80000000-0000-0000-0000-000000000001",
            ],
            Kind::Date => &[
                "4713-11-24 BC",
                "5874897-12-31",
                "0001-01-01",
                "1969-12-31",
                "2000-02-29",
            ],
            Kind::Time => &["00:00:00", "23:59:59.999999", "24:00:00"],
            Kind::Timestamp => &[
                "4713-11-24 00:00:00 BC",
                "294246-12-31 23:59:59.999999",
                "1969-12-31 23:59:59.999999",
                "2000-02-29 00:00:00.000001",
            ],
            Kind::Timestamptz => &[
                "4713-11-25 00:00:00+00 BC",
                "294246-12-31 00:00:00+00",
                "1969-12-31 23:59:59.999999+00",
                "2024-03-31 01:30:00+00",
            ],
            Kind::Interval => &[
                "178000000 years",
                "-178000000 years",
                "1 microsecond",
                "-1 microsecond",
                "0",
            ],
        };
        dice.pick(edges).to_owned()
    }

    fn ordinary(self, dice: &mut Dice) -> String {
        let small = dice.below(40);
        match self {
            Kind::Boolean => dice.pick(&["true", "false"]).to_owned(),
            Kind::Smallint => format!("{}", small as i64 - 10),
            Kind::Integer | Kind::Bigint if dice.one_in(4) => {
                format!("{}", dice.below(2_000_000) as i64 - 1_000_000)
            }
            Kind::Integer | Kind::Bigint => format!("{}", small as i64 - 10),
            Kind::Real | Kind::Double => format!("{}", (small as f64 - 9.5) / 4.0),
            Kind::Numeric(precision, scale) => {
                let whole = 10_u64.pow((precision - scale).min(4));
                let fraction = 10_u64.pow(scale);
                let (whole, fraction) = (dice.below(whole).min(small), dice.below(fraction));
                let fraction = if dice.one_in(2) { 0 } else { fraction };
                let sign = if dice.one_in(3) { "-" } else { "" };
                match scale {
                    0 => format!("{sign}{whole}"),
                    scale => format!("{sign}{whole}.{fraction:0>0$}", scale as usize),
                }
            }
            Kind::Char(_) | Kind::Varchar(_) | Kind::Text => self.fit(&format!(
                "{}{small}",
                dice.pick(&["a", "b", "ab", "Ab", "ä", ""])
            )),
            Kind::Bytea => format!("\\x{:02x}{}", small, "a5".repeat(dice.below(9) as usize)),
            Kind::Uuid => format!("a0eebc99-9c0b-4ef8-bb6d-{small:012x}"),
            Kind::Date => format!(
                "20{:02}-{:02}-{:02}",
                small,
                small % 12 + 1,
                small % DAYS + 1
            ),
            Kind::Time => format!("{:02}:{:02}:00.{:03}", small % 24, small % 60, small),
            Kind::Timestamp => format!(
                "20{:02}-06-{:02} {:02}:00:00.{:06}",
                small,
                small % DAYS + 1,
                small % 24,
                dice.pick(&[0, 5, 999_999, 120_000])
            ),
            Kind::Timestamptz => format!(
                "2024-{:02}-{:02} {:02}:30:00{}",
                small % 12 + 1,
                small % DAYS + 1,
                small % 24,
                dice.pick(&["+00", "+02", "-08:30", "Z"])
            ),
            Kind::Interval => interval(dice, small),
        }
    }

    /// Value number `n`; another number is another value. Only for the types of keys.
    pub(super) fn numbered(self, n: i64) -> String {
        match self {
            Kind::Varchar(_) | Kind::Text | Kind::Char(_) => format!("k{n}"),
            Kind::Bytea => format!("\\x{n:08x}"),
            Kind::Uuid => format!("00000000-0000-0000-0000-{n:012}"),
            _ => n.to_string(),
        }
    }

    /// [`Kind::numbered`] as an expression of an integer `n`.
    pub(super) fn numbered_by(self, n: &str) -> String {
        match self {
            Kind::Varchar(_) | Kind::Text | Kind::Char(_) => format!("'k' || {n}"),
            Kind::Bytea => format!("decode(lpad(to_hex({n}), 8, '0'), 'hex')"),
            Kind::Uuid => format!("('00000000-0000-0000-0000-' || lpad({n}::text, 12, '0'))::uuid"),
            _ => n.to_owned(),
        }
    }

    /// Values for many rows: an expression of the integer `g` with so many different ones
    /// at most.
    pub(super) fn series(self, dice: &mut Dice) -> String {
        let few = dice.pick(&[1, 2, 7, 20, 500]);
        let g = format!("(g * {} % {few})", dice.pick(&[1, 3, 7, 11]));
        match self {
            Kind::Boolean => format!("{g} % 3 = 0"),
            Kind::Smallint | Kind::Integer | Kind::Bigint => format!("{g} - 10"),
            Kind::Real | Kind::Double => format!("{g} / 4.0"),
            Kind::Numeric(precision, scale) => {
                let most = 10_u64.pow((precision - scale).min(6));
                format!("({g} % {most}) * 0.75")
            }
            Kind::Char(length) | Kind::Varchar(length) => format!("left('v' || {g}, {length})"),
            Kind::Text if dice.one_in(3) => format!("repeat('long ', {g} % 60) || {g}"),
            Kind::Text => format!("'v' || {g}"),
            Kind::Bytea => format!(
                "decode(lpad(to_hex({g}), {}, '0'), 'hex')",
                dice.pick(&[4, 40])
            ),
            Kind::Uuid => Kind::Uuid.numbered_by(&g),
            Kind::Date => format!("date '2000-01-01' + {g}"),
            Kind::Time => format!("time '00:00' + {g} * interval '61 seconds'"),
            Kind::Timestamp => format!("timestamp '2000-01-01' + {g} * interval '37 minutes'"),
            Kind::Timestamptz => {
                format!("timestamptz '2000-01-01 00:00+00' + {g} * interval '1 hour'")
            }
            Kind::Interval => format!("({g} % 20) * interval '1 hour'"),
        }
    }

    /// A text that is not a value of the type; `None` where every text is one.
    pub(super) fn invalid(self, dice: &mut Dice) -> Option<String> {
        let text = match self {
            Kind::Smallint => dice.pick(&["32768", "x", "1.5"]).to_owned(),
            Kind::Integer => dice.pick(&["2147483648", "", "1e3"]).to_owned(),
            Kind::Bigint => dice.pick(&["9223372036854775808", "0x"]).to_owned(),
            Kind::Real => dice.pick(&["1e39", "1e-50", "x"]).to_owned(),
            Kind::Double => dice.pick(&["1e309", "1e-400", "x"]).to_owned(),
            Kind::Numeric(precision, scale) => "9".repeat((precision - scale) as usize + 1),
            Kind::Char(length) | Kind::Varchar(length) => "x".repeat(length + 1),
            Kind::Boolean => "maybe".to_owned(),
            Kind::Bytea => dice.pick(&["\\x0", "\\xzz"]).to_owned(),
            Kind::Uuid => "a0eebc99".to_owned(),
            Kind::Date => dice
                .pick(&["2023-02-29", "day", "5874898-01-01"])
                .to_owned(),
            Kind::Time => "25:00".to_owned(),
            Kind::Timestamp | Kind::Timestamptz => "2024-01-01 10:61:00".to_owned(),
            Kind::Interval => "many days".to_owned(),
            Kind::Text => return None,
        };
        Some(text)
    }

    /// As much of a text as the column takes.
    fn fit(self, text: &str) -> String {
        match self {
            Kind::Char(length) | Kind::Varchar(length) => text.chars().take(length).collect(),
            _ => text.to_owned(),
        }
    }
}

/// No two that are equal look different: no more days than a month has, no more hours
/// than a day, one sign.
fn interval(dice: &mut Dice, small: u64) -> String {
    let sign = if dice.one_in(3) { "-" } else { "" };
    match dice.below(3) {
        0 => format!("{sign}{} days", small % DAYS),
        1 => format!("{sign}{} months {sign}{} days", small, small % 5),
        _ => format!("{sign}{} hours {sign}{} seconds", small % 24, small),
    }
}

fn strange_text(dice: &mut Dice, long: bool) -> String {
    if long {
        return "0123456789 äöü ".repeat(1 + dice.below(300) as usize);
    }
    dice.pick(&[
        "",
        "O'Brien",
        "a\ttab",
        "two\nlines",
        "back\\slash",
        "\\N",
        "\\.",
        "NULL",
        "\"quoted\"",
        ",comma;",
        "100%",
        "under_score",
        " lead",
        "Ünïcödé €",
        "漢字",
        "😀",
        "a\r\nb",
        "$1",
    ])
    .to_owned()
}

/// A text as a literal in SQL, in one of the ways to write it.
pub(super) fn quoted(dice: &mut Dice, text: &str) -> String {
    let special = text.contains(['\\', '\n', '\t', '\r', '\'']);
    if special && dice.one_in(2) {
        let mut literal = String::from("E'");
        for char in text.chars() {
            match char {
                '\\' => literal.push_str("\\\\"),
                '\n' => literal.push_str("\\n"),
                '\t' => literal.push_str("\\t"),
                '\r' => literal.push_str("\\r"),
                '\'' => literal.push_str("\\'"),
                other => literal.push(other),
            }
        }
        literal.push('\'');
        return literal;
    }
    format!("'{}'", text.replace('\'', "''"))
}

/// A value as a literal in SQL: bare, quoted, or with its type.
pub(super) fn literal(dice: &mut Dice, kind: Kind, text: &str) -> String {
    if dice.one_in(5) {
        return typed(dice, kind, text);
    }
    plain(dice, kind, text)
}

/// A value as a literal that leaves its type to what is around it.
pub(super) fn plain(dice: &mut Dice, kind: Kind, text: &str) -> String {
    let bare = kind.is_integer() || matches!(kind, Kind::Numeric(..));
    match text.starts_with('-') {
        _ if !bare || dice.one_in(4) => quoted(dice, text),
        true => format!("({text})"),
        false => text.to_owned(),
    }
}

/// A value as a literal that says its type.
pub(super) fn typed(dice: &mut Dice, kind: Kind, text: &str) -> String {
    format!("{}::{}", quoted(dice, text), kind.name())
}
