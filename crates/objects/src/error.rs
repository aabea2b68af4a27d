//! Errors of stores converted to errors of files, with the place and without secrets.

use std::{fmt, io};

use aerostat_storage::backup::BackupError;
use object_store::Error;

/// So much of what a store answers is shown.
const SHOWN_CHARS_MAX: usize = 400;

/// What is wrong with a text that should name a place.
pub(crate) fn not_a_place(place: &impl fmt::Display, why: &str) -> BackupError {
    BackupError::NotAPlace {
        place: place.to_string(),
        why: why.to_owned(),
    }
}

/// The store cannot do this at all.
pub(crate) fn is_unsupported(error: &Error) -> bool {
    matches!(
        error,
        Error::NotImplemented { .. } | Error::NotSupported { .. }
    )
}

/// The error of a request about an object, which the message names.
pub(crate) fn to_io(place: &impl fmt::Display, error: &Error) -> io::Error {
    let kind = match error {
        Error::NotFound { .. } => io::ErrorKind::NotFound,
        Error::AlreadyExists { .. } | Error::Precondition { .. } => io::ErrorKind::AlreadyExists,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
            io::ErrorKind::PermissionDenied
        }
        Error::NotSupported { .. } | Error::NotImplemented { .. } => io::ErrorKind::Unsupported,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, format!("{place}: {}", shown(&error.to_string())))
}

/// An error's text in one line, without queries of URLs and without the document that S3 and
/// others answer with: it repeats keys and what was signed. Of that, code and message stay.
fn shown(text: &str) -> String {
    let (text, document) = match text.find("<?xml").or_else(|| text.find("<Error")) {
        Some(at) => text.split_at(at),
        None => (text, ""),
    };
    let words = text.split_whitespace().map(|word| {
        let is_url = word.contains("://");
        word.split_once('?')
            .filter(|_| is_url)
            .map_or(word, |(url, _)| url)
    });
    let mut line: Vec<&str> = words.collect();
    line.extend(element(document, "Code"));
    line.extend(element(document, "Message"));
    line.join(" ").chars().take(SHOWN_CHARS_MAX).collect()
}

/// The content of an element that has no elements.
fn element<'a>(document: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = document.split_once(&format!("<{name}>"))?;
    let (content, _) = rest.split_once(&format!("</{name}>"))?;
    Some(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_store_answers_is_shown_without_keys() {
        let text = "Error performing GET https://b.s3.eu.amazonaws.com/x?X-Amz-Signature=hidden \
            in 3ms - Server returned non-2xx status code: 403 Forbidden: \
            <?xml version=\"1.0\"?>\n<Error><Code>SignatureDoesNotMatch</Code>\
            <Message>No match.</Message><AWSAccessKeyId>hidden</AWSAccessKeyId></Error>";
        assert_eq!(
            shown(text),
            "Error performing GET https://b.s3.eu.amazonaws.com/x in 3ms - Server returned \
            non-2xx status code: 403 Forbidden: SignatureDoesNotMatch No match."
        );
        assert_eq!(shown(&"x".repeat(5_000)).len(), SHOWN_CHARS_MAX);
    }
}
