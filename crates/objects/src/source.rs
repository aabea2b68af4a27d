//! Files on their way from a store.

use std::{
    io::{self, Read},
    sync::Arc,
};

use aerostat_storage::backup::BackupSource;
use bytes::{Buf, Bytes};
use futures::{StreamExt, TryStreamExt, executor::block_on};
use object_store::{ObjectStoreExt, Result};
use tokio::{
    sync::mpsc::{self, Receiver},
    task::JoinHandle,
};

use crate::prefix::Prefix;

/// Pieces of a file that come ahead of whoever reads it. A piece is what the network gives at
/// a time, some 16 KiB.
const PIECES_AHEAD: usize = 64;

/// A prefix of a store that gives files.
pub(crate) struct ObjectSource {
    at: Prefix,
}

impl ObjectSource {
    pub(crate) fn new(at: Prefix) -> ObjectSource {
        ObjectSource { at }
    }

    pub(crate) fn into_prefix(self) -> Prefix {
        self.at
    }
}

impl BackupSource for ObjectSource {
    fn names(&self) -> io::Result<Vec<String>> {
        let (store, prefix) = (Arc::clone(&self.at.store), self.at.path().clone());
        let objects: Vec<_> =
            self.at.wait(
                "",
                async move { store.list(Some(&prefix)).try_collect().await },
            )?;
        let names = objects.iter().filter_map(|object| {
            let parts = object.location.prefix_match(self.at.path())?;
            let parts: Vec<_> = parts.collect();
            let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
            Some(parts.join("/")).filter(|name| !name.is_empty())
        });
        Ok(names.collect())
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + '_>> {
        let (store, path) = (Arc::clone(&self.at.store), self.at.path_of(name)?);
        let found = self.at.wait(name, async move { store.get(&path).await })?;
        let left = found.range.end - found.range.start;
        let mut pieces = found.into_stream();
        let (sender, receiver) = mpsc::channel(PIECES_AHEAD);
        let sending = self.at.requests.spawn(async move {
            while let Some(piece) = pieces.next().await {
                if sender.send(piece).await.is_err() {
                    return;
                }
            }
        });
        Ok(Box::new(Content {
            at: &self.at,
            name: name.to_owned(),
            receiver,
            sending,
            piece: Bytes::new(),
            left,
        }))
    }
}

/// A file that is being read.
struct Content<'a> {
    at: &'a Prefix,
    name: String,
    receiver: Receiver<Result<Bytes>>,
    sending: JoinHandle<()>,
    /// What came and was not read.
    piece: Bytes,
    /// Bytes that have not come.
    left: u64,
}

impl Read for Content<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match block_on(self.receiver.recv()) {
                Some(Ok(piece)) => {
                    self.left = self.left.saturating_sub(piece.len() as u64);
                    self.piece = piece;
                }
                Some(Err(error)) => return Err(self.at.error(&self.name, &error)),
                None if self.left > 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                None => return Ok(0),
            }
        }
        let count = buffer.len().min(self.piece.len());
        self.piece.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}

impl Drop for Content<'_> {
    fn drop(&mut self) {
        self.sending.abort();
    }
}
