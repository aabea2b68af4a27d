//! COPY, in its present form `WITH (FORMAT csv, …)`, the one before 9.0
//! (`CSV HEADER NULL AS ''`) and the one before 7.3 (`COPY BINARY`,
//! `USING DELIMITERS`), which PostgreSQL still reads.

use aerostat_types::{
    CopyFormat, CopyHeader, CopyOptions, Encoding, ErrorKind, ForceQuote, Named, SqlError,
};
use sqlparser::tokenizer::Token;

use super::tokens::{Fragment, Tokens};
use crate::names::QualifiedName;

/// A COPY statement. Its options hold everything but the columns that options
/// name; [`CopyStatement::options_for`] puts those in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyStatement {
    /// What is copied.
    pub subject: CopySubject,
    /// Which way.
    pub direction: CopyDirection,
    options: CopyOptions,
    force_quote: ForceNames,
    force_not_null: ForceNames,
    force_null: ForceNames,
}

/// What COPY copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopySubject {
    /// A table's columns; all if none are named.
    Table {
        /// The table.
        name: QualifiedName,
        /// The columns.
        columns: Vec<String>,
    },
    /// What a query gives.
    Query(Fragment),
}

/// Which way COPY copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyDirection {
    /// FROM STDIN.
    In,
    /// TO STDOUT.
    Out,
}

/// Columns that an option of COPY names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ForceNames {
    /// None.
    #[default]
    None,
    /// `*`
    All,
    /// These.
    Columns(Vec<String>),
}

impl CopyStatement {
    /// The options once the columns that are copied are known, in their order.
    ///
    /// # Errors
    /// An option names a column that is not copied.
    pub fn options_for<S: AsRef<str>>(&self, columns: &[S]) -> Result<CopyOptions, SqlError> {
        let mut options = self.options.clone();
        let positions = |names: &ForceNames, option: &str| match names {
            ForceNames::None => Ok(Vec::new()),
            ForceNames::All => Ok((0..columns.len()).collect()),
            ForceNames::Columns(names) => names
                .iter()
                .map(|name| position(columns, name, option))
                .collect::<Result<Vec<_>, _>>(),
        };
        options.force_quote = match &self.force_quote {
            ForceNames::None => ForceQuote::None,
            ForceNames::All => ForceQuote::All,
            names => ForceQuote::Columns(positions(names, "FORCE_QUOTE")?),
        };
        options.force_not_null = positions(&self.force_not_null, "FORCE_NOT_NULL")?;
        options.force_null = positions(&self.force_null, "FORCE_NULL")?;
        Ok(options)
    }
}

fn position<S: AsRef<str>>(columns: &[S], name: &str, option: &str) -> Result<usize, SqlError> {
    columns
        .iter()
        .position(|column| column.as_ref() == name)
        .ok_or_else(|| {
            SqlError::new(
                ErrorKind::InvalidColumnReference,
                format!("{option} column \"{name}\" not referenced by COPY"),
            )
        })
}

/// Options as they were said; `None` where nothing was.
#[derive(Default)]
struct Said {
    format: Option<CopyFormat>,
    delimiter: Option<u8>,
    null: Option<String>,
    header: Option<CopyHeader>,
    quote: Option<u8>,
    escape: Option<u8>,
    force_quote: Option<ForceNames>,
    force_not_null: Option<ForceNames>,
    force_null: Option<ForceNames>,
    freeze: Option<()>,
    encoding: Option<Encoding>,
}

pub(super) fn parse(tokens: &mut Tokens<'_>) -> Result<CopyStatement, SqlError> {
    let mut said = Said::default();
    let subject = if tokens.accept_token(&Token::LParen) {
        let query = tokens.until_close(false)?;
        tokens.expect_token(&Token::RParen)?;
        CopySubject::Query(query)
    } else {
        if tokens.peek_word() == "BINARY"
            && !matches!(tokens.peek_second_word().as_str(), "FROM" | "TO")
        {
            tokens.skip();
            said.format = Some(CopyFormat::Binary);
        }
        let name = tokens.qualified_name()?;
        let columns = if tokens.peek() == Some(&Token::LParen) {
            tokens.parenthesized(Tokens::name)?
        } else {
            Vec::new()
        };
        CopySubject::Table { name, columns }
    };
    let direction = direction(tokens, &subject)?;
    endpoint(tokens, direction)?;
    if tokens.accept(&["USING"]) {
        tokens.expect(&["DELIMITERS"])?;
        said.delimiter(tokens)?;
    } else if tokens.accept(&["DELIMITERS"]) {
        said.delimiter(tokens)?;
    }
    tokens.accept(&["WITH"]);
    if tokens.accept_token(&Token::LParen) {
        tokens.list(|tokens| said.option(tokens))?;
        tokens.expect_token(&Token::RParen)?;
    } else {
        while !tokens.at_end() && tokens.peek_word() != "WHERE" {
            said.old_option(tokens)?;
        }
    }
    if tokens.peek_word() == "WHERE" {
        return Err(match direction {
            CopyDirection::In => not_supported("COPY FROM with WHERE is not supported")
                .with_hint("Copy into another table, then INSERT … SELECT … WHERE."),
            CopyDirection::Out => tokens.unexpected(),
        });
    }
    said.finish(subject, direction)
}

fn direction(tokens: &mut Tokens<'_>, subject: &CopySubject) -> Result<CopyDirection, SqlError> {
    match tokens.peek_word().as_str() {
        "FROM" if matches!(subject, CopySubject::Table { .. }) => {
            tokens.skip();
            Ok(CopyDirection::In)
        }
        "TO" => {
            tokens.skip();
            Ok(CopyDirection::Out)
        }
        _ => Err(tokens.unexpected()),
    }
}

/// The other end must be the client; PostgreSQL lets STDIN and STDOUT stand for either.
fn endpoint(tokens: &mut Tokens<'_>, direction: CopyDirection) -> Result<(), SqlError> {
    if tokens.accept_one(&["STDIN", "STDOUT"]).is_some() {
        return Ok(());
    }
    let (way, word) = match direction {
        CopyDirection::In => ("from", "FROM STDIN"),
        CopyDirection::Out => ("to", "TO STDOUT"),
    };
    let end = if tokens.accept(&["PROGRAM"]) {
        "an external program"
    } else {
        "a file"
    };
    if tokens.accept_string().is_none() {
        return Err(tokens.unexpected());
    }
    Err(
        not_supported(format!("COPY {way} {end} on the server is not supported"))
            .with_hint(format!("Use COPY {word}, or \\copy in psql.")),
    )
}

impl Said {
    /// One option of `WITH (…)`.
    fn option(&mut self, tokens: &mut Tokens<'_>) -> Result<(), SqlError> {
        let name = tokens.label()?;
        match name.as_str() {
            "format" => {
                let value = word_or_string(tokens)?;
                let format = match value.as_str() {
                    "text" => CopyFormat::Text,
                    "csv" => CopyFormat::Csv,
                    "binary" => CopyFormat::Binary,
                    _ => {
                        let message = format!("COPY format \"{value}\" not recognized");
                        return Err(tokens.error_before(ErrorKind::InvalidParameterValue, message));
                    }
                };
                once(tokens, &mut self.format, format)
            }
            "delimiter" => self.delimiter(tokens),
            "null" => {
                let text = tokens.string()?;
                once(tokens, &mut self.null, text)
            }
            "header" => {
                let header = header(tokens)?;
                once(tokens, &mut self.header, header)
            }
            "quote" => self.quote(tokens),
            "escape" => self.escape(tokens),
            "force_quote" => {
                let names = force_names(tokens)?;
                once(tokens, &mut self.force_quote, names)
            }
            "force_not_null" => {
                let names = force_names(tokens)?;
                once(tokens, &mut self.force_not_null, names)
            }
            "force_null" => {
                let names = force_names(tokens)?;
                once(tokens, &mut self.force_null, names)
            }
            "freeze" => {
                boolean(tokens, "freeze")?;
                once(tokens, &mut self.freeze, ())
            }
            "encoding" => self.encoding(tokens),
            "on_error" | "log_verbosity" => match word_or_string(tokens)?.as_str() {
                "stop" | "default" => Ok(()),
                value => Err(not_supported(format!(
                    "COPY {} {value} is not supported",
                    name.to_uppercase()
                ))),
            },
            "default" | "reject_limit" => Err(not_supported(format!(
                "COPY option {} is not supported",
                name.to_uppercase()
            ))),
            _ => Err(tokens.error_before(
                ErrorKind::SyntaxError,
                format!("option \"{name}\" not recognized"),
            )),
        }
    }

    /// One option of the form before 9.0.
    fn old_option(&mut self, tokens: &mut Tokens<'_>) -> Result<(), SqlError> {
        let Some(word) = tokens.accept_one(&[
            "BINARY",
            "FREEZE",
            "DELIMITER",
            "NULL",
            "CSV",
            "HEADER",
            "QUOTE",
            "ESCAPE",
            "FORCE",
            "ENCODING",
        ]) else {
            return Err(tokens.unexpected());
        };
        match word {
            "BINARY" => once(tokens, &mut self.format, CopyFormat::Binary),
            "CSV" => once(tokens, &mut self.format, CopyFormat::Csv),
            "FREEZE" => once(tokens, &mut self.freeze, ()),
            "HEADER" => once(tokens, &mut self.header, CopyHeader::Present),
            "DELIMITER" => self.delimiter(tokens),
            "QUOTE" => self.quote(tokens),
            "ESCAPE" => self.escape(tokens),
            "ENCODING" => self.encoding(tokens),
            "NULL" => {
                tokens.accept(&["AS"]);
                let text = tokens.string()?;
                once(tokens, &mut self.null, text)
            }
            _ => self.old_force(tokens),
        }
    }

    fn old_force(&mut self, tokens: &mut Tokens<'_>) -> Result<(), SqlError> {
        let slot = if tokens.accept(&["QUOTE"]) {
            &mut self.force_quote
        } else if tokens.accept(&["NULL"]) {
            &mut self.force_null
        } else {
            tokens.expect(&["NOT", "NULL"])?;
            &mut self.force_not_null
        };
        let names = if tokens.accept_token(&Token::Mul) {
            ForceNames::All
        } else {
            ForceNames::Columns(tokens.list(Tokens::name)?)
        };
        once(tokens, slot, names)
    }

    fn delimiter(&mut self, tokens: &mut Tokens<'_>) -> Result<(), SqlError> {
        let byte = one_byte(tokens, "delimiter")?;
        once(tokens, &mut self.delimiter, byte)
    }

    fn quote(&mut self, tokens: &mut Tokens<'_>) -> Result<(), SqlError> {
        let byte = one_byte(tokens, "quote")?;
        once(tokens, &mut self.quote, byte)
    }

    fn escape(&mut self, tokens: &mut Tokens<'_>) -> Result<(), SqlError> {
        let byte = one_byte(tokens, "escape")?;
        once(tokens, &mut self.escape, byte)
    }

    fn encoding(&mut self, tokens: &mut Tokens<'_>) -> Result<(), SqlError> {
        let name = tokens.string()?;
        let encoding = match Encoding::named(&name) {
            Some(Named::Spoken(encoding)) => encoding,
            Some(Named::Unspoken(name)) => {
                let message = format!("encoding \"{name}\" is not supported");
                return Err(tokens.error_before(ErrorKind::FeatureNotSupported, message));
            }
            None => {
                let message = "argument to option \"encoding\" must be a valid encoding name";
                return Err(tokens.error_before(ErrorKind::InvalidParameterValue, message));
            }
        };
        once(tokens, &mut self.encoding, encoding)
    }

    fn finish(
        self,
        subject: CopySubject,
        direction: CopyDirection,
    ) -> Result<CopyStatement, SqlError> {
        let mut options = CopyOptions::new(self.format.unwrap_or_default());
        self.check(options.format, direction)?;
        options.delimiter = self.delimiter.unwrap_or(options.delimiter);
        options.null = self.null.unwrap_or(options.null);
        options.header = self.header.unwrap_or(options.header);
        options.encoding = self.encoding;
        options.quote = self.quote.unwrap_or(options.quote);
        // A quote is escaped by doubling it unless something else is said.
        options.escape = self.escape.unwrap_or(options.quote);
        options.check()?;
        Ok(CopyStatement {
            subject,
            direction,
            options,
            force_quote: self.force_quote.unwrap_or_default(),
            force_not_null: self.force_not_null.unwrap_or_default(),
            force_null: self.force_null.unwrap_or_default(),
        })
    }

    /// Refuses options that do not go with the format or the direction.
    fn check(&self, format: CopyFormat, direction: CopyDirection) -> Result<(), SqlError> {
        if format == CopyFormat::Binary {
            for (name, said) in [
                ("DELIMITER", self.delimiter.is_some()),
                ("NULL", self.null.is_some()),
            ] {
                if said {
                    let message = format!("cannot specify {name} in BINARY mode");
                    return Err(SqlError::new(ErrorKind::SyntaxError, message));
                }
            }
        }
        let csv_only = [
            ("QUOTE", self.quote.is_some()),
            ("ESCAPE", self.escape.is_some()),
            ("FORCE_QUOTE", self.force_quote.is_some()),
            ("FORCE_NOT_NULL", self.force_not_null.is_some()),
            ("FORCE_NULL", self.force_null.is_some()),
        ];
        if let Some((name, _)) = csv_only
            .iter()
            .find(|(_, said)| *said && format != CopyFormat::Csv)
        {
            return Err(not_supported(format!("COPY {name} requires CSV mode")));
        }
        let one_way = [
            (
                "FORCE_QUOTE",
                self.force_quote.is_some(),
                CopyDirection::Out,
                "COPY FROM",
            ),
            (
                "FORCE_NOT_NULL",
                self.force_not_null.is_some(),
                CopyDirection::In,
                "COPY TO",
            ),
            (
                "FORCE_NULL",
                self.force_null.is_some(),
                CopyDirection::In,
                "COPY TO",
            ),
            (
                "FREEZE",
                self.freeze.is_some(),
                CopyDirection::In,
                "COPY TO",
            ),
        ];
        if let Some((name, _, _, used)) = one_way
            .iter()
            .find(|(_, said, way, _)| *said && *way != direction)
        {
            return Err(not_supported(format!(
                "COPY {name} cannot be used with {used}"
            )));
        }
        if self.header == Some(CopyHeader::Match) && direction == CopyDirection::Out {
            return Err(not_supported("cannot use \"match\" with HEADER in COPY TO"));
        }
        Ok(())
    }
}

fn once<T>(tokens: &Tokens<'_>, slot: &mut Option<T>, value: T) -> Result<(), SqlError> {
    if slot.replace(value).is_some() {
        return Err(tokens.error_before(ErrorKind::SyntaxError, "conflicting or redundant options"));
    }
    Ok(())
}

fn one_byte(tokens: &mut Tokens<'_>, what: &str) -> Result<u8, SqlError> {
    tokens.accept(&["AS"]);
    let text = tokens.string()?;
    match text.as_bytes() {
        [byte] => Ok(*byte),
        _ => Err(not_supported(format!(
            "COPY {what} must be a single one-byte character"
        ))),
    }
}

fn word_or_string(tokens: &mut Tokens<'_>) -> Result<String, SqlError> {
    match tokens.accept_string() {
        Some(text) => Ok(text.to_ascii_lowercase()),
        None => tokens.label(),
    }
}

/// An optional boolean; nothing means yes.
fn boolean(tokens: &mut Tokens<'_>, option: &str) -> Result<bool, SqlError> {
    if matches!(tokens.peek(), Some(Token::Comma | Token::RParen)) {
        return Ok(true);
    }
    let value = match tokens.accept_number() {
        Some(number) => number,
        None => word_or_string(tokens)?,
    };
    match value.as_str() {
        "true" | "on" | "1" => Ok(true),
        "false" | "off" | "0" => Ok(false),
        _ => Err(tokens.error_before(
            ErrorKind::SyntaxError,
            format!("{option} requires a Boolean value"),
        )),
    }
}

fn header(tokens: &mut Tokens<'_>) -> Result<CopyHeader, SqlError> {
    let text = tokens.peek().map(ToString::to_string).unwrap_or_default();
    if text.trim_matches('\'').eq_ignore_ascii_case("match") {
        tokens.skip();
        return Ok(CopyHeader::Match);
    }
    let present = boolean(tokens, "header").map_err(|error| SqlError {
        message: "header requires a Boolean value or \"match\"".to_owned(),
        ..error
    })?;
    Ok(if present {
        CopyHeader::Present
    } else {
        CopyHeader::None
    })
}

fn force_names(tokens: &mut Tokens<'_>) -> Result<ForceNames, SqlError> {
    if tokens.accept_token(&Token::Mul) {
        return Ok(ForceNames::All);
    }
    Ok(ForceNames::Columns(tokens.parenthesized(Tokens::name)?))
}

fn not_supported(message: impl Into<String>) -> SqlError {
    SqlError::new(ErrorKind::FeatureNotSupported, message)
}
