//! URLs of prefixes in object stores.

use std::fmt;

use aerostat_storage::backup::BackupError;
use object_store::{ObjectStoreScheme, path::Path};
use url::{Position, Url};

use crate::error::not_a_place;

/// Whether a text is meant as a URL. A path that has this in it is written with one slash.
pub(crate) fn is_url(text: &str) -> bool {
    text.contains("://")
}

/// A prefix in an object store. Shows nothing that is secret, for it has nothing.
#[derive(Clone, Debug)]
pub(crate) struct ObjectUrl {
    url: Url,
    pub(crate) scheme: ObjectStoreScheme,
    pub(crate) prefix: Path,
}

impl ObjectUrl {
    /// Takes a URL of a known scheme that has no password, query or fragment: that is where
    /// people put credentials.
    ///
    /// # Errors
    /// [`BackupError::NotAPlace`], which shows no more of the text than it may.
    pub(crate) fn parse(text: &str) -> Result<ObjectUrl, BackupError> {
        let mut url = Url::parse(text).map_err(|error| BackupError::NotAPlace {
            // It may be anything, with a secret anywhere.
            place: text.split("://").next().unwrap_or_default().to_owned() + "://…",
            why: format!("is no URL: {error}"),
        })?;
        // Azure's have the container before the @.
        let names_user = !url.username().is_empty() && !is_azure(&url);
        if names_user || url.password().is_some() || url[Position::AfterPath..] != *"" {
            let shown = format!("{}://{}…", url.scheme(), url.host_str().unwrap_or_default());
            return Err(BackupError::NotAPlace {
                place: shown,
                why: "has more than scheme, store and path; credentials and endpoints come from \
                      the environment"
                    .to_owned(),
            });
        }
        let path = url.path().trim_end_matches('/').to_owned();
        if !path.is_empty() {
            url.set_path(&path);
        }
        let (scheme, prefix) = ObjectStoreScheme::parse(&url)
            .map_err(|_| not_a_place(&url, "is of no store that is known"))?;
        Ok(ObjectUrl {
            url,
            scheme,
            prefix,
        })
    }

    /// The path of a `file:///…`.
    pub(crate) fn file_path(&self) -> Result<Option<String>, BackupError> {
        if self.scheme != ObjectStoreScheme::Local {
            return Ok(None);
        }
        let path = self.url.to_file_path().ok();
        let path = path.and_then(|path| path.to_str().map(str::to_owned));
        path.map(Some)
            .ok_or_else(|| not_a_place(&self.url, "is no path"))
    }

    pub(crate) fn is_memory(&self) -> bool {
        self.scheme == ObjectStoreScheme::Memory
    }

    /// The whole URL, for the client of its store.
    #[cfg_attr(not(feature = "cloud"), allow(dead_code))]
    pub(crate) fn as_str(&self) -> &str {
        self.url.as_str()
    }

    /// The URL without its path.
    pub(crate) fn before_path(&self) -> &str {
        &self.url[..Position::BeforePath]
    }

    /// Whether both are prefixes in one store.
    pub(crate) fn is_in_store_of(&self, other: &ObjectUrl) -> bool {
        self.before_path() == other.before_path() && self.container() == other.container()
    }

    /// The part of the path that says the store: some stores' `https` URLs have it there.
    fn container(&self) -> Option<&str> {
        let parts = || self.url.path().split('/').filter(|part| !part.is_empty());
        parts()
            .next()
            .filter(|_| parts().count() > self.prefix.parts_count())
    }
}

impl fmt::Display for ObjectUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url.as_str())
    }
}

fn is_azure(url: &Url) -> bool {
    matches!(url.scheme(), "az" | "adl" | "azure" | "abfs" | "abfss")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> ObjectUrl {
        ObjectUrl::parse(text).unwrap()
    }

    #[test]
    fn urls_are_told_from_paths_and_keep_their_parts() {
        assert!(is_url("s3://b") && !is_url("/b/c") && !is_url("b:/c"));
        for (text, scheme, prefix) in [
            ("s3://bucket", ObjectStoreScheme::AmazonS3, ""),
            ("s3://bucket/a/b/", ObjectStoreScheme::AmazonS3, "a/b"),
            ("gs://bucket/a", ObjectStoreScheme::GoogleCloudStorage, "a"),
            ("az://container/a", ObjectStoreScheme::MicrosoftAzure, "a"),
            (
                "abfss://container@account.dfs.core.windows.net/a",
                ObjectStoreScheme::MicrosoftAzure,
                "a",
            ),
            ("http://host:81/a/b", ObjectStoreScheme::Http, "a/b"),
            ("memory:///a%20b", ObjectStoreScheme::Memory, "a b"),
        ] {
            let url = parse(text);
            assert_eq!((&url.scheme, url.prefix.as_ref()), (&scheme, prefix));
            assert_eq!(url.to_string(), text.trim_end_matches('/'));
        }
        let file = parse("file:///a/b%20c").file_path().unwrap();
        assert_eq!(file.as_deref(), Some("/a/b c"));
    }

    #[test]
    fn one_store_has_many_prefixes() {
        let same = |a: &str, b: &str| parse(a).is_in_store_of(&parse(b));
        assert!(same("s3://bucket/a", "s3://bucket/b/c") && same("s3://b/a", "s3://b"));
        assert!(!same("s3://bucket/a", "s3://other/a") && !same("s3://b/a", "gs://b/a"));
        let r2 = "https://account.r2.cloudflarestorage.com";
        assert!(same(&format!("{r2}/bucket/a"), &format!("{r2}/bucket/b")));
        assert!(!same(&format!("{r2}/bucket/a"), &format!("{r2}/other/a")));
    }

    #[test]
    fn what_may_hold_a_secret_is_refused_and_not_shown() {
        for text in [
            "s3://AKIA:hidden@bucket/a",
            "s3://hidden@bucket/a",
            "az://container:hidden@account/a",
            "https://host/a?sig=hidden",
            "s3://bucket/a#hidden",
            "s3://bucket:hidden/a",
            "ftp://host/a",
            "memory://host/a",
        ] {
            let shown = ObjectUrl::parse(text).unwrap_err().to_string();
            assert!(!shown.contains("hidden"), "{shown}");
        }
    }
}
