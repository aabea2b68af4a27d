//! A cursor over a statement's tokens, with PostgreSQL's error messages for missing ones.

use std::rc::Rc;

use aerostat_types::{ErrorKind, SqlError};
use sqlparser::{
    dialect::PostgreSqlDialect,
    tokenizer::{Token, Tokenizer, TokenizerError, Word},
};

use crate::{
    lines::Lines,
    names::{self, QualifiedName},
    storage_parameters::StorageParameter,
};

/// A piece of a statement that someone else parses: a query, an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// The piece as the user wrote it.
    pub text: String,
    /// Where in the statement it begins, as a 1-based count of characters.
    /// An error at position p of the piece is at `position + p - 1`.
    pub position: u32,
}

struct Lexeme {
    token: Token,
    /// Bytes `start..end` of the text.
    start: usize,
    end: usize,
}

/// The cursor. White space and comments are gone.
pub(super) struct Tokens<'a> {
    text: &'a str,
    lexemes: Rc<[Lexeme]>,
    at: usize,
}

/// The word a statement begins with, after white space, comments and opening parentheses.
pub(super) fn first_word(text: &str) -> &str {
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        if let Some(comment) = rest.strip_prefix("--") {
            rest = comment.split_once('\n').map_or("", |(_, after)| after);
        } else if let Some(comment) = rest.strip_prefix("/*") {
            rest = after_comment(comment);
        } else {
            break;
        }
    }
    let end = rest
        .find(|c: char| !c.is_ascii_alphabetic())
        .unwrap_or(rest.len());
    &rest[..end]
}

/// What follows a block comment, which may hold others. The text begins inside it.
fn after_comment(text: &str) -> &str {
    let mut depth = 1;
    let mut at = 0;
    while depth > 0 {
        let Some(found) = text[at..].find(['*', '/']) else {
            return "";
        };
        at += found;
        match text.get(at..at + 2) {
            Some("*/") => depth -= 1,
            Some("/*") => depth += 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
    }
    &text[at..]
}

impl<'a> Tokens<'a> {
    /// # Errors
    /// The text has an unterminated quote or comment, or a character that begins no token.
    pub(super) fn new(text: &'a str) -> Result<Self, SqlError> {
        let lines = Lines::new(text);
        let spanned = Tokenizer::new(&PostgreSqlDialect {}, text)
            .tokenize_with_location()
            .map_err(|error| lexical_error(text, &lines, &error))?;
        let mut lexemes: Vec<Lexeme> = spanned
            .into_iter()
            .filter(|spanned| !matches!(spanned.token, Token::Whitespace(_) | Token::EOF))
            .map(|spanned| Lexeme {
                start: lines.byte(spanned.span.start),
                end: lines.byte(spanned.span.end),
                token: spanned.token,
            })
            .collect();
        while lexemes
            .last()
            .is_some_and(|last| last.token == Token::SemiColon)
        {
            lexemes.pop();
        }
        Ok(Self {
            text,
            lexemes: lexemes.into(),
            at: 0,
        })
    }

    fn lexeme(&self) -> Option<&Lexeme> {
        self.lexemes.get(self.at)
    }

    pub(super) fn peek(&self) -> Option<&Token> {
        self.lexeme().map(|lexeme| &lexeme.token)
    }

    /// The unquoted word here, in capitals; empty when there is none.
    pub(super) fn peek_word(&self) -> String {
        self.word_at(self.at)
    }

    /// The unquoted word after this token, in capitals; empty when there is none.
    pub(super) fn peek_second_word(&self) -> String {
        self.word_at(self.at + 1)
    }

    fn word_at(&self, at: usize) -> String {
        match self.lexemes.get(at).map(|lexeme| &lexeme.token) {
            Some(Token::Word(Word {
                value,
                quote_style: None,
                ..
            })) => value.to_ascii_uppercase(),
            _ => String::new(),
        }
    }

    /// Takes the unquoted word here; empty, and nothing taken, when there is none.
    pub(super) fn next_word(&mut self) -> String {
        let word = self.peek_word();
        if !word.is_empty() {
            self.at += 1;
        }
        word
    }

    /// Whether the token after this one is this.
    pub(super) fn is_second(&self, token: &Token) -> bool {
        self.lexemes
            .get(self.at + 1)
            .is_some_and(|lexeme| lexeme.token == *token)
    }

    /// Steps over one token.
    pub(super) fn skip(&mut self) {
        self.at += 1;
    }

    /// Takes these words if they stand here, all of them.
    pub(super) fn accept(&mut self, words: &[&str]) -> bool {
        let there = words
            .iter()
            .enumerate()
            .all(|(offset, word)| self.word_at(self.at + offset) == *word);
        if there {
            self.at += words.len();
        }
        there
    }

    /// Takes the first of these words that stands here.
    pub(super) fn accept_one(&mut self, words: &[&'static str]) -> Option<&'static str> {
        let here = self.peek_word();
        let found = words.iter().find(|word| **word == here).copied();
        if found.is_some() {
            self.at += 1;
        }
        found
    }

    /// # Errors
    /// These words do not stand here.
    pub(super) fn expect(&mut self, words: &[&str]) -> Result<(), SqlError> {
        for word in words {
            if !self.accept(&[word]) {
                return Err(self.unexpected());
            }
        }
        Ok(())
    }

    pub(super) fn accept_token(&mut self, token: &Token) -> bool {
        let there = self.peek() == Some(token);
        if there {
            self.at += 1;
        }
        there
    }

    /// # Errors
    /// The token does not stand here.
    pub(super) fn expect_token(&mut self, token: &Token) -> Result<(), SqlError> {
        if self.accept_token(token) {
            Ok(())
        } else {
            Err(self.unexpected())
        }
    }

    pub(super) fn at_end(&self) -> bool {
        self.at >= self.lexemes.len()
    }

    /// # Errors
    /// Something still follows.
    pub(super) fn end(&self) -> Result<(), SqlError> {
        if self.at_end() {
            Ok(())
        } else {
            Err(self.unexpected())
        }
    }

    /// An identifier, folded and cut as PostgreSQL does; reserved words only in quotes.
    ///
    /// # Errors
    /// None stands here.
    pub(super) fn name(&mut self) -> Result<String, SqlError> {
        match self.peek() {
            Some(Token::Word(word))
                if word.quote_style.is_some() || !names::is_reserved(&word.value) =>
            {
                self.label()
            }
            _ => Err(self.unexpected()),
        }
    }

    /// An identifier where reserved words are allowed too.
    ///
    /// # Errors
    /// None stands here, or it is empty.
    pub(super) fn label(&mut self) -> Result<String, SqlError> {
        let Some(Token::Word(word)) = self.peek() else {
            return Err(self.unexpected());
        };
        let folded = match word.quote_style {
            None => word.value.to_ascii_lowercase(),
            Some(_) if word.value.is_empty() => {
                return Err(SqlError::new(
                    ErrorKind::SyntaxError,
                    "zero-length delimited identifier at or near \"\"\"\"",
                )
                .with_position(self.position()));
            }
            Some(_) => word.value.clone(),
        };
        self.at += 1;
        Ok(names::cut(&folded).to_owned())
    }

    /// # Errors
    /// No `a`, `a.b` or `a.b.c` stands here.
    pub(super) fn qualified_name(&mut self) -> Result<QualifiedName, SqlError> {
        let position = self.position();
        let mut parts = vec![self.name()?];
        while self.accept_token(&Token::Period) {
            parts.push(self.label()?);
        }
        QualifiedName::from_parts(parts).map_err(|error| error.with_position(position))
    }

    /// # Errors
    /// As [`Tokens::qualified_name`], for each.
    pub(super) fn qualified_names(&mut self) -> Result<Vec<QualifiedName>, SqlError> {
        self.list(Tokens::qualified_name)
    }

    /// Items with commas between them.
    ///
    /// # Errors
    /// Those of `item`.
    pub(super) fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, SqlError>,
    ) -> Result<Vec<T>, SqlError> {
        let mut items = vec![item(self)?];
        while self.accept_token(&Token::Comma) {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// Items with commas between them in parentheses.
    ///
    /// # Errors
    /// Those of `item`, or a parenthesis is missing.
    pub(super) fn parenthesized<T>(
        &mut self,
        item: impl FnMut(&mut Self) -> Result<T, SqlError>,
    ) -> Result<Vec<T>, SqlError> {
        self.expect_token(&Token::LParen)?;
        let items = self.list(item)?;
        self.expect_token(&Token::RParen)?;
        Ok(items)
    }

    pub(super) fn accept_string(&mut self) -> Option<String> {
        let text = match self.peek()? {
            Token::SingleQuotedString(text)
            | Token::EscapedStringLiteral(text)
            | Token::UnicodeStringLiteral(text)
            | Token::NationalStringLiteral(text) => text.clone(),
            Token::DollarQuotedString(quoted) => quoted.value.clone(),
            _ => return None,
        };
        self.at += 1;
        Some(text)
    }

    /// # Errors
    /// No string literal stands here.
    pub(super) fn string(&mut self) -> Result<String, SqlError> {
        self.accept_string().ok_or_else(|| self.unexpected())
    }

    /// A signed number as it is written.
    pub(super) fn accept_number(&mut self) -> Option<String> {
        let (sign, at) = match self.peek()? {
            Token::Minus => ("-", self.at + 1),
            Token::Plus => ("", self.at + 1),
            _ => ("", self.at),
        };
        let Token::Number(digits, _) = &self.lexemes.get(at)?.token else {
            return None;
        };
        let number = format!("{sign}{digits}");
        self.at = at + 1;
        Some(number)
    }

    /// `name [= value]` of WITH and SET, where the value is a text, a number or a word.
    ///
    /// # Errors
    /// No such thing stands here.
    pub(super) fn storage_parameter(&mut self) -> Result<StorageParameter, SqlError> {
        let name = self.label()?;
        if !self.accept_token(&Token::Eq) {
            return Ok((name, None));
        }
        let value = match self.accept_string().or_else(|| self.accept_number()) {
            Some(value) => value,
            None => self.label()?,
        };
        Ok((name, Some(value)))
    }

    /// # Errors
    /// No whole number that fits 32 bits stands here.
    pub(super) fn integer(&mut self) -> Result<i32, SqlError> {
        let before = self.at;
        let number = self.accept_number().ok_or_else(|| self.unexpected())?;
        number.parse().map_err(|_| {
            self.at = before;
            self.unexpected()
        })
    }

    /// What stands between here and the end of the statement, all of it taken.
    ///
    /// # Errors
    /// Nothing stands here.
    pub(super) fn rest(&mut self) -> Result<Fragment, SqlError> {
        if self.at_end() {
            return Err(self.unexpected());
        }
        let fragment = self.fragment(self.at, self.lexemes.len());
        self.at = self.lexemes.len();
        Ok(fragment)
    }

    /// What stands between here and the parenthesis that closes the one before,
    /// or, with `commas`, the next comma outside inner parentheses. The end is not taken.
    ///
    /// # Errors
    /// Nothing stands here, or the parenthesis is missing.
    pub(super) fn until_close(&mut self, commas: bool) -> Result<Fragment, SqlError> {
        let from = self.at;
        let mut depth = 0usize;
        while let Some(token) = self.peek() {
            match token {
                Token::LParen | Token::LBracket => depth += 1,
                Token::RParen | Token::RBracket if depth > 0 => depth -= 1,
                Token::RParen | Token::RBracket => break,
                Token::Comma if commas && depth == 0 => break,
                _ => {}
            }
            self.at += 1;
        }
        if self.at_end() || self.at == from {
            return Err(self.unexpected());
        }
        Ok(self.fragment(from, self.at))
    }

    /// What stands between here and the next comma outside parentheses, where `is_end` says
    /// so outside parentheses, or the end of the statement. The end is not taken.
    ///
    /// # Errors
    /// Nothing stands here, or a parenthesis is missing.
    pub(super) fn until(&mut self, is_end: impl Fn(&Self) -> bool) -> Result<Fragment, SqlError> {
        let from = self.at;
        let mut depth = 0usize;
        while let Some(token) = self.peek() {
            match token {
                Token::LParen | Token::LBracket => depth += 1,
                Token::RParen | Token::RBracket if depth == 0 => return Err(self.unexpected()),
                Token::RParen | Token::RBracket => depth -= 1,
                Token::Comma if depth == 0 => break,
                _ if depth == 0 && is_end(self) => break,
                _ => {}
            }
            self.at += 1;
        }
        if depth > 0 || self.at == from {
            return Err(self.unexpected());
        }
        Ok(self.fragment(from, self.at))
    }

    fn fragment(&self, from: usize, to: usize) -> Fragment {
        let start = self.lexemes[from].start;
        let end = self.lexemes[to - 1].end;
        Fragment {
            text: self.text[start..end].to_owned(),
            position: self.position_of(start),
        }
    }

    /// Where the token here begins, as errors carry it.
    pub(super) fn position(&self) -> u32 {
        self.position_of(self.lexeme().map_or(self.text.len(), |lexeme| lexeme.start))
    }

    fn position_of(&self, byte: usize) -> u32 {
        let before = self.text[..byte].chars().count();
        u32::try_from(before + 1).unwrap_or(u32::MAX)
    }

    /// The error for the token that stands here.
    pub(super) fn unexpected(&self) -> SqlError {
        let message = match self.lexeme() {
            Some(lexeme) => format!(
                "syntax error at or near \"{}\"",
                &self.text[lexeme.start..lexeme.end]
            ),
            None => "syntax error at end of input".to_owned(),
        };
        SqlError::new(ErrorKind::SyntaxError, message).with_position(self.position())
    }

    /// The error for the token before the cursor if it is this word, else for the one here.
    pub(super) fn unexpected_before(&self, word: &str) -> SqlError {
        if word.is_empty() || self.at == 0 {
            return self.unexpected();
        }
        Tokens {
            at: self.at - 1,
            ..self.ahead()
        }
        .unexpected()
    }

    /// A cursor at the same place, to look ahead with.
    pub(super) fn ahead(&self) -> Tokens<'a> {
        Tokens {
            text: self.text,
            lexemes: Rc::clone(&self.lexemes),
            at: self.at,
        }
    }

    /// An error of this kind at the token before the cursor.
    pub(super) fn error_before(&self, kind: ErrorKind, message: impl Into<String>) -> SqlError {
        let start = self
            .lexemes
            .get(self.at.saturating_sub(1))
            .map_or(0, |lexeme| lexeme.start);
        SqlError::new(kind, message).with_position(self.position_of(start))
    }
}

fn lexical_error(text: &str, lines: &Lines<'_>, error: &TokenizerError) -> SqlError {
    let start = lines.byte(error.location);
    let near = &text[start..];
    let lower = error.message.to_ascii_lowercase();
    let words = if lower.contains("unterminated dollar") {
        "unterminated dollar-quoted string"
    } else if lower.contains("string literal") {
        "unterminated quoted string"
    } else if lower.contains("close delimiter") {
        "unterminated quoted identifier"
    } else if lower.contains("comment") {
        "unterminated /* comment"
    } else {
        "syntax error"
    };
    let message = if near.is_empty() {
        format!("{words} at end of input")
    } else {
        format!("{words} at or near \"{near}\"")
    };
    SqlError::new(ErrorKind::SyntaxError, message).with_position(lines.position(error.location))
}
