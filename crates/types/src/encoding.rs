//! Character encodings of clients, as PostgreSQL names and converts them.
//!
//! Texts are UTF-8 here, in storage and in memory. A client may use a single-byte encoding
//! instead: its texts are converted on the way in and out. `encodings.txt` holds the meaning of
//! the bytes from 0x80 in each encoding, as PostgreSQL 15 defines it; bytes below are ASCII.

use std::{borrow::Cow, fmt, sync::LazyLock};

use crate::{ErrorKind, SqlError};

/// An encoding that a client may speak.
#[derive(Clone, Copy)]
pub struct Encoding {
    name: &'static str,
    /// `None` for those whose bytes are the server's own.
    charset: Option<&'static Charset>,
}

impl PartialEq for Encoding {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Encoding {}

impl fmt::Debug for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A name of a client's encoding, looked up.
#[derive(Clone, Copy, Debug)]
pub enum Named {
    /// One that is converted, or needs no conversion.
    Spoken(Encoding),
    /// PostgreSQL's name for one that Aerostat does not convert.
    Unspoken(&'static str),
}

/// PostgreSQL's encodings with their numbers and the names that it knows them by, folded.
const ENCODINGS: [(u32, &str, &[&str]); 42] = [
    (0, "SQL_ASCII", &["sqlascii"]),
    (1, "EUC_JP", &["eucjp"]),
    (2, "EUC_CN", &["euccn"]),
    (3, "EUC_KR", &["euckr"]),
    (4, "EUC_TW", &["euctw"]),
    (5, "EUC_JIS_2004", &["eucjis2004"]),
    (6, "UTF8", &["utf8", "unicode"]),
    (7, "MULE_INTERNAL", &["muleinternal"]),
    (8, "LATIN1", &["latin1", "iso88591"]),
    (9, "LATIN2", &["latin2", "iso88592"]),
    (10, "LATIN3", &["latin3", "iso88593"]),
    (11, "LATIN4", &["latin4", "iso88594"]),
    (12, "LATIN5", &["latin5", "iso88599"]),
    (13, "LATIN6", &["latin6", "iso885910"]),
    (14, "LATIN7", &["latin7", "iso885913"]),
    (15, "LATIN8", &["latin8", "iso885914"]),
    (16, "LATIN9", &["latin9", "iso885915"]),
    (17, "LATIN10", &["latin10", "iso885916"]),
    (18, "WIN1256", &["win1256", "windows1256"]),
    (
        19,
        "WIN1258",
        &["win1258", "windows1258", "abc", "tcvn", "tcvn5712", "vscii"],
    ),
    (20, "WIN866", &["win866", "windows866", "alt"]),
    (21, "WIN874", &["win874", "windows874"]),
    (22, "KOI8R", &["koi8r", "koi8"]),
    (23, "WIN1251", &["win1251", "windows1251", "win"]),
    (24, "WIN1252", &["win1252", "windows1252"]),
    (25, "ISO_8859_5", &["iso88595"]),
    (26, "ISO_8859_6", &["iso88596"]),
    (27, "ISO_8859_7", &["iso88597"]),
    (28, "ISO_8859_8", &["iso88598"]),
    (29, "WIN1250", &["win1250", "windows1250"]),
    (30, "WIN1253", &["win1253", "windows1253"]),
    (31, "WIN1254", &["win1254", "windows1254"]),
    (32, "WIN1255", &["win1255", "windows1255"]),
    (33, "WIN1257", &["win1257", "windows1257"]),
    (34, "KOI8U", &["koi8u"]),
    (
        35,
        "SJIS",
        &["sjis", "shiftjis", "mskanji", "win932", "windows932"],
    ),
    (36, "BIG5", &["big5", "win950", "windows950"]),
    (37, "GBK", &["gbk", "win936", "windows936"]),
    (38, "UHC", &["uhc", "win949", "windows949"]),
    (39, "GB18030", &["gb18030"]),
    (40, "JOHAB", &["johab"]),
    (41, "SHIFT_JIS_2004", &["shiftjis2004"]),
];

/// The encodings by PostgreSQL's numbers for them.
pub fn encoding_names() -> impl Iterator<Item = (u32, &'static str)> {
    ENCODINGS.iter().map(|&(number, name, _)| (number, name))
}

impl Encoding {
    /// The server's own.
    pub const UTF8: Self = Self {
        name: "UTF8",
        charset: None,
    };

    /// The encoding of this name, in any of the spellings that PostgreSQL takes: only letters and
    /// digits count, and not their case.
    pub fn named(name: &str) -> Option<Named> {
        let letters = name.chars().filter(char::is_ascii_alphanumeric);
        let folded: String = letters.map(|letter| letter.to_ascii_lowercase()).collect();
        let is_this = |(.., names): &&(u32, &str, &[&str])| names.contains(&folded.as_str());
        let &(_, name, _) = ENCODINGS.iter().find(is_this)?;
        let charset = Charset::named(name);
        Some(match (name, charset) {
            // Bytes go through as they are; what comes in must be the server's encoding.
            ("UTF8" | "SQL_ASCII", _) | (_, Some(_)) => Named::Spoken(Self { name, charset }),
            _ => Named::Unspoken(name),
        })
    }

    /// PostgreSQL's name for it.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// How to convert it; `None` if there is nothing to convert.
    pub fn charset(self) -> Option<&'static Charset> {
        self.charset
    }
}

/// The characters of an encoding of single bytes.
#[derive(Debug)]
pub struct Charset {
    name: &'static str,
    /// Of the bytes from 0x80; `None` where a byte is no character.
    characters: [Option<char>; 128],
    /// The same the other way, in order of characters.
    bytes: Vec<(char, u8)>,
}

static CHARSETS: LazyLock<Vec<Charset>> = LazyLock::new(|| {
    let lines = include_str!("encodings.txt").lines();
    lines.map(Charset::read).collect()
});

impl Charset {
    fn named(name: &str) -> Option<&'static Self> {
        CHARSETS.iter().find(|charset| charset.name == name)
    }

    fn read(line: &'static str) -> Self {
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default();
        let mut characters = [None; 128];
        for (character, word) in characters.iter_mut().zip(words) {
            *character = u32::from_str_radix(word, 16).ok().and_then(char::from_u32);
        }
        let with_bytes = (0x80..=0xff).zip(&characters);
        let mut bytes: Vec<(char, u8)> = with_bytes
            .filter_map(|(byte, character)| Some(((*character)?, byte)))
            .collect();
        bytes.sort_unstable();
        Self {
            name,
            characters,
            bytes,
        }
    }

    /// The encoding's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// A client's text.
    ///
    /// # Errors
    /// `UntranslatableCharacter` for a byte that is no character of the encoding.
    pub fn decode<'a>(&self, bytes: &'a [u8]) -> Result<Cow<'a, str>, SqlError> {
        // ASCII is UTF-8, and most texts are ASCII.
        if bytes.is_ascii()
            && let Ok(text) = std::str::from_utf8(bytes)
        {
            return Ok(Cow::Borrowed(text));
        }
        let mut text = String::with_capacity(bytes.len() + bytes.len() / 2);
        for &byte in bytes {
            text.push(match byte {
                0..=0x7f => char::from(byte),
                _ => self.characters[usize::from(byte - 0x80)]
                    .ok_or_else(|| untranslatable(&[byte], self.name, "UTF8"))?,
            });
        }
        Ok(Cow::Owned(text))
    }

    /// Appends a text in the client's encoding.
    ///
    /// # Errors
    /// `UntranslatableCharacter` for a character that the encoding has not; what was appended
    /// before it stays.
    pub fn encode(&self, text: &str, out: &mut Vec<u8>) -> Result<(), SqlError> {
        for character in text.chars() {
            match self.byte_of(character) {
                Some(byte) => out.push(byte),
                None => {
                    let mut bytes = [0; 4];
                    let bytes = character.encode_utf8(&mut bytes).as_bytes();
                    return Err(untranslatable(bytes, "UTF8", self.name));
                }
            }
        }
        Ok(())
    }

    /// Appends a text in the client's encoding, with question marks for what that has not.
    pub fn encode_lossy(&self, text: &str, out: &mut Vec<u8>) {
        let bytes = text.chars().map(|character| self.byte_of(character));
        out.extend(bytes.map(|byte| byte.unwrap_or(b'?')));
    }

    fn byte_of(&self, character: char) -> Option<u8> {
        if character.is_ascii() {
            return Some(character as u8);
        }
        let at = self
            .bytes
            .binary_search_by_key(&character, |&(known, _)| known);
        at.ok().map(|at| self.bytes[at].1)
    }
}

fn untranslatable(bytes: &[u8], from: &str, to: &str) -> SqlError {
    let shown: Vec<String> = bytes.iter().map(|byte| format!("0x{byte:02x}")).collect();
    SqlError::new(
        ErrorKind::UntranslatableCharacter,
        format!(
            "character with byte sequence {} in encoding \"{from}\" has no equivalent in encoding \"{to}\"",
            shown.join(" ")
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn charset(name: &str) -> &'static Charset {
        match Encoding::named(name) {
            Some(Named::Spoken(encoding)) => encoding.charset().unwrap(),
            other => panic!("{name}: {other:?}"),
        }
    }

    #[test]
    fn names_are_found_in_every_spelling() {
        for (spelling, name) in [
            ("latin1", "LATIN1"),
            ("ISO-8859-1", "LATIN1"),
            ("Latin_9", "LATIN9"),
            ("windows-1252", "WIN1252"),
            ("sql_ascii", "SQL_ASCII"),
            ("Unicode", "UTF8"),
            ("utf-8", "UTF8"),
        ] {
            match Encoding::named(spelling) {
                Some(Named::Spoken(encoding)) => assert_eq!(encoding.name(), name),
                other => panic!("{spelling}: {other:?}"),
            }
        }
        assert!(Encoding::named("nothing").is_none());
        assert!(matches!(
            Encoding::named("sjis"),
            Some(Named::Unspoken("SJIS"))
        ));
        let mut numbers = encoding_names().map(|(number, _)| number);
        assert!((0..42).all(|number| numbers.next() == Some(number)));
    }

    #[test]
    fn every_table_goes_both_ways() {
        assert_eq!(CHARSETS.len(), 27);
        for charset in &*CHARSETS {
            for byte in 0..=0xff {
                let byte = [byte];
                let Ok(text) = charset.decode(&byte) else {
                    continue;
                };
                let mut bytes = Vec::new();
                charset.encode(&text, &mut bytes).unwrap();
                assert_eq!(bytes, byte, "{}", charset.name);
            }
        }
    }

    #[test]
    fn latin1_is_no_windows_encoding() {
        assert_eq!(charset("latin1").decode(b"\x80\xe9").unwrap(), "\u{80}é");
        assert_eq!(charset("win1252").decode(b"\x80\xe9").unwrap(), "€é");
        assert_eq!(charset("latin9").decode(b"\xa4").unwrap(), "€");
        let none = charset("win1252").decode(b"a\x81").unwrap_err();
        assert_eq!(
            (none.kind, none.message.as_str()),
            (
                ErrorKind::UntranslatableCharacter,
                "character with byte sequence 0x81 in encoding \"WIN1252\" has no equivalent in encoding \"UTF8\""
            )
        );
        let mut bytes = Vec::new();
        let none = charset("latin1").encode("a€", &mut bytes).unwrap_err();
        assert_eq!(
            none.message,
            "character with byte sequence 0xe2 0x82 0xac in encoding \"UTF8\" has no equivalent in encoding \"LATIN1\""
        );
        bytes.clear();
        charset("latin1").encode_lossy("é€", &mut bytes);
        assert_eq!(bytes, b"\xe9?");
    }
}
