//! A store, limited to a prefix.

use std::{future::Future, io, sync::Arc};

use object_store::{Error, ObjectStore, path::Path};

use crate::{error::to_io, requests::Requests, url::ObjectUrl};

/// The objects of a store whose names begin with a prefix.
pub(crate) struct Prefix {
    url: ObjectUrl,
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) requests: Arc<Requests>,
}

impl Prefix {
    pub(crate) fn new(
        url: ObjectUrl,
        store: Arc<dyn ObjectStore>,
        requests: Arc<Requests>,
    ) -> Prefix {
        Prefix {
            url,
            store,
            requests,
        }
    }

    /// Another prefix in the same store.
    pub(crate) fn beside(&self, url: ObjectUrl) -> Prefix {
        Prefix {
            url,
            store: Arc::clone(&self.store),
            requests: Arc::clone(&self.requests),
        }
    }

    pub(crate) fn url(&self) -> &ObjectUrl {
        &self.url
    }

    /// The prefix itself.
    pub(crate) fn path(&self) -> &Path {
        &self.url.prefix
    }

    /// Where the file of a name is: behind the prefix, wherever the name would lead.
    pub(crate) fn path_of(&self, name: &str) -> io::Result<Path> {
        let invalid = |_| io::Error::new(io::ErrorKind::InvalidInput, "no file name");
        let relative = Path::parse(name).map_err(invalid)?;
        if name.is_empty() || relative.as_ref() != name {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no file name"));
        }
        let mut path = self.path().clone();
        path.extend(relative.parts());
        Ok(path)
    }

    /// Runs a request about a file.
    pub(crate) fn wait<T: Send + 'static>(
        &self,
        name: &str,
        work: impl Future<Output = object_store::Result<T>> + Send + 'static,
    ) -> io::Result<T> {
        let done = self.requests.wait(work);
        done.map_err(|error| self.error(name, &error))
    }

    /// An error about a file.
    pub(crate) fn error(&self, name: &str, error: &Error) -> io::Error {
        to_io(&format!("{}/{name}", self.url), error)
    }
}
