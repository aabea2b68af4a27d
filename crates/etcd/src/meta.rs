//! A document as a key of etcd.

use std::{fmt, io, path::PathBuf, sync::Arc, time::Duration};

use aerostat_storage::{MetaError, MetaStore, Swapped, Version, Versioned};
use aerostat_types::{Clock, SystemClock};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    Access, EtcdError,
    gateway::{Endpoints, Gateway},
    packing::{Word, pack, unpack},
};

/// How long a watch is trusted: a member that is cut off from others tells of nothing.
const WATCH: Duration = Duration::from_secs(5);

/// What one cluster of ours has in etcd.
#[derive(Clone)]
pub struct Etcd {
    endpoints: Endpoints,
    gateway: Arc<Gateway>,
}

impl Etcd {
    /// By where its members are. Nothing is asked yet.
    pub fn new(endpoints: Endpoints, access: &Access) -> Etcd {
        Etcd {
            gateway: Arc::new(Gateway::new(&endpoints, access)),
            endpoints,
        }
    }

    /// A document of a name.
    /// Has etcd forget what documents were before a revision: what they are now stays. Documents that are replaced all the
    /// time fill its disk otherwise.
    ///
    /// # Errors
    /// No member answers.
    pub fn forget_before(&self, revision: u64) -> Result<(), EtcdError> {
        let request = json!({ "revision": revision.to_string() });
        match self
            .gateway
            .ask::<serde::de::IgnoredAny>("/v3/kv/compaction", &request)
        {
            Ok(_) => Ok(()),
            // Somebody else has, or its own settings.
            Err(EtcdError::Refused(why)) if why.contains("compacted") => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The revision of all that etcd has now.
    ///
    /// # Errors
    /// No member answers.
    pub fn revision(&self) -> Result<u64, MetaError> {
        Ok(self.document("revision").look()?.1)
    }

    /// A document.
    pub fn document(&self, name: &str) -> EtcdMeta {
        EtcdMeta {
            key: self.endpoints.key(name),
            place: PathBuf::from(format!("{}/{name}", self.endpoints)),
            gateway: Arc::clone(&self.gateway),
        }
    }
}

impl PartialEq for Etcd {
    /// Whether it is the same by name.
    fn eq(&self, other: &Etcd) -> bool {
        self.endpoints == other.endpoints
    }
}

impl Eq for Etcd {}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.endpoints.fmt(f)
    }
}

impl fmt::Display for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.endpoints.fmt(f)
    }
}

/// A document.
#[derive(Debug)]
pub struct EtcdMeta {
    key: String,
    place: PathBuf,
    gateway: Arc<Gateway>,
}

/// Numbers are text in etcd's JSON; zero is left out.
#[derive(Deserialize)]
struct Header {
    revision: String,
}

#[derive(Deserialize)]
struct Kv {
    version: String,
    #[serde(default)]
    value: String,
}

#[derive(Deserialize)]
struct Range {
    #[serde(default)]
    header: Option<Header>,
    #[serde(default)]
    kvs: Vec<Kv>,
}

#[derive(Deserialize)]
struct Txn {
    #[serde(default)]
    succeeded: bool,
    #[serde(default)]
    responses: Vec<TxnResponse>,
}

#[derive(Deserialize)]
struct TxnResponse {
    #[serde(alias = "responseRange")]
    response_range: Option<Range>,
}

/// What is there, and whose it is.
struct Kept {
    word: Word,
    versioned: Versioned,
}

impl EtcdMeta {
    fn io(&self, source: impl Into<io::Error>) -> MetaError {
        MetaError::Io {
            path: self.place.clone(),
            source: source.into(),
        }
    }

    fn kept(&self, kvs: Vec<Kv>) -> Result<Option<Kept>, MetaError> {
        let Some(kv) = kvs.into_iter().next() else {
            return Ok(None);
        };
        let odd = |what: String| self.io(EtcdError::Odd(what));
        let version = self.version_of(&kv)?;
        let value = BASE64_STANDARD.decode(&kv.value);
        let value = value.map_err(|error| odd(error.to_string()))?;
        let (word, document) = unpack(&value).map_err(|error| self.io(error))?;
        Ok(Some(Kept {
            word,
            versioned: Versioned { version, document },
        }))
    }

    /// What is there, and the revision of all that etcd has.
    fn look(&self) -> Result<(Option<Kept>, u64), MetaError> {
        let (kvs, revision) = self.range(false)?;
        Ok((self.kept(kvs)?, revision))
    }

    /// The version that is there, without what it says, which may be long; and the revision of all that etcd has.
    fn look_at_version(&self) -> Result<(Option<Version>, u64), MetaError> {
        let (kvs, revision) = self.range(true)?;
        let version = kvs.first().map(|kv| self.version_of(kv)).transpose()?;
        Ok((version, revision))
    }

    fn version_of(&self, kv: &Kv) -> Result<Version, MetaError> {
        let odd = |_| self.io(EtcdError::Odd(format!("the version \"{}\"", kv.version)));
        kv.version.parse().map(Version).map_err(odd)
    }

    fn range(&self, keys_only: bool) -> Result<(Vec<Kv>, u64), MetaError> {
        let request = json!({
            "key": BASE64_STANDARD.encode(&self.key),
            "keys_only": keys_only,
        });
        let (range, _): (Range, _) = self
            .gateway
            .ask("/v3/kv/range", &request)
            .map_err(|error| self.io(error))?;
        let revision = range.header.and_then(|header| header.revision.parse().ok());
        let revision = revision.ok_or_else(|| self.io(EtcdError::Odd("no revision".to_owned())))?;
        Ok((range.kvs, revision))
    }

    fn swap_request(&self, expected: Option<Version>, value: &[u8]) -> Value {
        let key = BASE64_STANDARD.encode(&self.key);
        let version = expected.map_or(0, |version| version.0);
        json!({
            "compare": [{
                "key": key,
                "target": "VERSION",
                "result": "EQUAL",
                "version": version.to_string(),
            }],
            "success": [{ "requestPut": { "key": key, "value": BASE64_STANDARD.encode(value) } }],
            "failure": [{ "requestRange": { "key": key } }],
        })
    }
}

impl MetaStore for EtcdMeta {
    fn place(&self) -> PathBuf {
        self.place.clone()
    }

    fn load(&self) -> Result<Option<Versioned>, MetaError> {
        Ok(self.look()?.0.map(|kept| kept.versioned))
    }

    fn compare_and_swap(
        &self,
        expected: Option<Version>,
        document: &[u8],
    ) -> Result<Swapped, MetaError> {
        let word: Word = rand::random();
        let value = pack(word, document).map_err(|error| self.io(error))?;
        let request = self.swap_request(expected, &value);
        let next = Version(expected.map_or(0, |version| version.0) + 1);
        let (txn, is_only): (Txn, _) = self
            .gateway
            .ask("/v3/kv/txn", &request)
            .map_err(|error| self.io(error))?;
        if txn.succeeded {
            return Ok(Swapped::Done(next));
        }
        let found = txn.responses.into_iter().find_map(|one| one.response_range);
        let found = self.kept(found.map(|range| range.kvs).unwrap_or_default())?;
        match found {
            // It was done, and the answer was lost.
            Some(kept) if kept.word == word => Ok(Swapped::Done(next)),
            // It may have been, and have been replaced.
            Some(kept) if !is_only && kept.versioned.version > next => {
                Err(self.io(EtcdError::Unavailable("an answer was lost".to_owned())))
            }
            found => Ok(Swapped::Lost(found.map(|kept| kept.versioned))),
        }
    }

    fn wait_newer(
        &self,
        known: Option<Version>,
        timeout: Duration,
    ) -> Result<Option<Versioned>, MetaError> {
        let until = SystemClock.now().checked_add(timeout);
        loop {
            let (version, mut revision) = self.look_at_version()?;
            if version > known {
                let kept;
                (kept, revision) = self.look()?;
                if let Some(kept) = kept
                    && Some(kept.versioned.version) > known
                {
                    return Ok(Some(kept.versioned));
                }
            }
            let left = until.map_or(WATCH, |until| {
                until.saturating_duration_since(SystemClock.now())
            });
            if left.is_zero() {
                return Ok(None);
            }
            let request = json!({ "create_request": {
                "key": BASE64_STANDARD.encode(&self.key),
                "start_revision": (revision + 1).to_string(),
            }});
            if let Err(error) = self.gateway.await_put(&request, left.min(WATCH)) {
                tracing::debug!(%error, "etcd tells of nothing");
                std::thread::sleep(left.min(Duration::from_millis(100)));
            }
        }
    }
}
