//! The clients of stores, configured from the environment.

use std::sync::Arc;

use aerostat_storage::backup::BackupError;
use object_store::ObjectStore;

use crate::{error::not_a_place, url::ObjectUrl};

/// Every URL is refused: this build has no clients.
///
/// # Errors
/// [`BackupError::NotAPlace`], with the feature's name.
#[cfg(not(feature = "cloud"))]
pub(crate) fn open(url: &ObjectUrl) -> Result<Arc<dyn ObjectStore>, BackupError> {
    Err(not_a_place(
        url,
        "is in an object store, and this build has no clients of any (feature \"cloud\")",
    ))
}

#[cfg(feature = "cloud")]
pub(crate) use cloud::open;

#[cfg(feature = "cloud")]
mod cloud {
    use std::{io, time::Duration};

    use object_store::{
        BackoffConfig, ClientOptions, ObjectStoreScheme, RetryConfig, aws::AmazonS3Builder,
        azure::MicrosoftAzureBuilder, gcp::GoogleCloudStorageBuilder, http::HttpBuilder,
    };

    use super::{Arc, BackupError, ObjectStore, ObjectUrl, not_a_place};
    use crate::error::to_io;

    /// So often a request is tried again after an error of the network or the store, with
    /// pauses that double from 0.1 s on: together about 6 s. Whoever waits is a statement, or a
    /// checkpoint that is tried again anyway.
    const RETRIES_MAX: usize = 6;

    /// No request is tried again after this, however often it was.
    const RETRY_TIMEOUT: Duration = Duration::from_secs(60);

    /// The longest pause between two tries.
    const BACKOFF_MAX: Duration = Duration::from_secs(15);

    fn retry() -> RetryConfig {
        RetryConfig {
            backoff: BackoffConfig {
                max_backoff: BACKOFF_MAX,
                ..BackoffConfig::default()
            },
            max_retries: RETRIES_MAX,
            retry_timeout: RETRY_TIMEOUT,
        }
    }

    /// A client of the store that the URL is in. Asks nothing of the store yet. A request that
    /// takes longer than 30 s fails, as long as the environment does not say otherwise.
    ///
    /// # Errors
    /// [`BackupError::Io`] when the environment's settings do not fit together.
    pub(crate) fn open(url: &ObjectUrl) -> Result<Arc<dyn ObjectStore>, BackupError> {
        let made: object_store::Result<Arc<dyn ObjectStore>> = match url.scheme {
            ObjectStoreScheme::AmazonS3 => AmazonS3Builder::from_env()
                .with_url(url.as_str())
                .with_retry(retry())
                .build()
                .map(|store| Arc::new(store) as _),
            ObjectStoreScheme::GoogleCloudStorage => GoogleCloudStorageBuilder::from_env()
                .with_url(url.as_str())
                .with_retry(retry())
                .build()
                .map(|store| Arc::new(store) as _),
            ObjectStoreScheme::MicrosoftAzure => MicrosoftAzureBuilder::from_env()
                .with_url(url.as_str())
                .with_retry(retry())
                .build()
                .map(|store| Arc::new(store) as _),
            // The URL says whether it is to be encrypted.
            ObjectStoreScheme::Http => HttpBuilder::new()
                .with_url(url.before_path())
                .with_client_options(ClientOptions::new().with_allow_http(true))
                .with_retry(retry())
                .build()
                .map(|store| Arc::new(store) as _),
            _ => return Err(not_a_place(url, "is of no store that is known")),
        };
        made.map_err(|error| BackupError::Io {
            name: url.to_string(),
            source: io::Error::other(to_io(url, &error)),
        })
    }
}
