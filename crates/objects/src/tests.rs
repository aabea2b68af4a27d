//! Backups, archives and restores through stores in memory, with and without faults, and
//! through a plain web server.

use std::{
    fmt,
    io::{self, Read},
    path::Path as FilePath,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use aerostat_memory::Governor;
use aerostat_storage::{
    OpenOptions, Recovered, ScanSpec, Table, TenantStore,
    backup::{BackupInfo, Restore, Restored, restore, verify},
};
use aerostat_types::{Column, Layout, SqlType, TableId, TableSchema, TenantId};
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use async_trait::async_trait;
use futures::{TryStreamExt, executor::block_on, stream::BoxStream};
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
    memory::InMemory, path::Path,
};

use super::*;

const TENANT: TenantId = TenantId(1);
const COPY: TenantId = TenantId(2);

fn open(tenant: TenantId, folder: &FilePath) -> (Arc<TenantStore>, Recovered) {
    let budget = Governor::new("1GB".parse().unwrap()).budget("test", None);
    TenantStore::open(tenant, budget, folder, &OpenOptions::default()).unwrap()
}

/// A table of its own for each call, so that images are several.
fn insert(store: &Arc<TenantStore>, numbers: std::ops::Range<i64>) -> Arc<Table> {
    let schema = TableSchema {
        name: "t".to_owned(),
        columns: vec![Column {
            name: "k".to_owned(),
            ty: SqlType::BigInt,
            nullable: false,
            default: None,
        }],
        primary_key: vec![0],
        primary_key_name: "t_pkey".to_owned(),
        checks: Vec::new(),
    };
    let id = TableId(1 + numbers.start as u32);
    let table = store
        .create_table(id, Arc::new(schema), &Layout::Column)
        .unwrap();
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
    let rows = RecordBatch::try_new(Arc::clone(table.arrow_schema()), vec![column]).unwrap();
    let txn = store.txns().begin();
    table.insert(&txn, &rows).unwrap();
    txn.commit().unwrap();
    table
}

/// How many rows the tenant in a folder has.
fn rows(tenant: TenantId, folder: &FilePath) -> usize {
    let (store, recovered) = open(tenant, folder);
    let count = |table: &Arc<Table>| {
        let scan = table.view(store.txns().snapshot()).scan(ScanSpec {
            projection: vec![0],
            ..ScanSpec::default()
        });
        let mut found = 0;
        let mut reader = scan.unwrap().reader();
        while let Some(batch) = reader.next_batch().unwrap() {
            found += batch.num_rows();
        }
        found
    };
    recovered.tables.values().map(count).sum()
}

fn back_up(
    places: &dyn Places,
    store: &TenantStore,
    to: &str,
    base: Option<&str>,
) -> std::result::Result<BackupInfo, BackupError> {
    let sink = places.for_backup(to, base)?;
    store.backup("shop", &*sink)
}

fn restore_to(
    places: &dyn Places,
    folder: &FilePath,
    backup: &str,
    logs: &[&str],
) -> std::result::Result<Restored, BackupError> {
    let backup = places.source(backup)?;
    let logs: Vec<_> = logs.iter().map(|log| places.source(log).unwrap()).collect();
    let logs: Vec<&dyn BackupSource> = logs.iter().map(|log| &**log).collect();
    let what = Restore {
        backup: &*backup,
        logs: &logs,
        until: None,
    };
    restore(&what, COPY, folder)
}

fn names(store: &dyn ObjectStore) -> Vec<String> {
    let objects: Vec<ObjectMeta> = block_on(store.list(None).try_collect()).unwrap();
    let names = objects.iter().map(|object| object.location.to_string());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// Backs a tenant up below a URL where nothing is, archives its log there, and restores it.
fn round_trip(places: &ObjectPlaces, root: &str) {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| format!("{root}/{name}");
    let (store, _) = open(TENANT, &folder.path().join("tenant"));
    let archive = places.for_archive(&at("log")).unwrap();
    store.archive_log_to(Some(archive));
    let mut tables = vec![insert(&store, 0..10)];
    let first = back_up(places, &store, &at("first"), None).unwrap();
    tables.push(insert(&store, 10..30));
    let second = back_up(places, &store, &at("second/"), Some(&at("first"))).unwrap();
    assert_eq!((first.rows, second.rows), (10, 30));
    tables.push(insert(&store, 30..60));
    store.archive_log().unwrap();
    drop((tables, store));

    let whole = places.source(root).unwrap();
    let mut all = whole.names().unwrap();
    all.sort();
    assert!(all.iter().all(|name| !name.contains("partial")), "{all:?}");
    for (backup, info) in [("first", &first), ("second", &second)] {
        let source = places.source(&at(backup)).unwrap();
        assert_eq!(verify(&*source).unwrap(), *info);
        let target = folder.path().join(backup);
        let restored = restore_to(places, &target, &at(backup), &[]);
        assert_eq!(restored.unwrap().at, info.at);
        assert_eq!(rows(COPY, &target) as u64, info.rows);
    }
    let target = folder.path().join("all");
    restore_to(places, &target, &at("second"), &[&at("log")]).unwrap();
    assert_eq!(rows(COPY, &target), 60);

    // What is not there is no backup, and where something is, none goes.
    assert!(matches!(verify(&*whole), Err(BackupError::NotABackup)));
    let (store, _) = open(TENANT, &folder.path().join("tenant"));
    for taken in [&at("first"), root] {
        let refused = back_up(places, &store, taken, None);
        assert!(matches!(refused, Err(BackupError::NotEmpty { .. })));
    }
    // One that is given up leaves nothing, of files in one request and in several.
    let sink = places.for_backup(&at("third"), None).unwrap();
    sink.put("small", &mut &[1; 10][..], 10).unwrap();
    let large: Vec<u8> = (0..20_u64 << 20)
        .map(|at| ((at * 7_919) >> 8) as u8)
        .collect();
    sink.put("large", &mut &*large, large.len() as u64).unwrap();
    assert!(sink.put("short", &mut &*large, 21 << 20).is_err());
    let source = places.source(&at("third")).unwrap();
    let mut read = Vec::new();
    let mut file = source.open("large").unwrap();
    file.read_to_end(&mut read).unwrap();
    assert!(read == large);
    drop((sink, file));
    let mut left = whole.names().unwrap();
    left.sort();
    assert_eq!(left, all);
}

#[test]
fn a_tenant_comes_back_from_an_object_store() {
    let places = ObjectPlaces::with_memory(Arc::new(InMemory::new()));
    round_trip(&places, "memory:///shop");
    round_trip(&places, "memory:///a/b%20c");
}

/// The same with a real store: `AEROSTAT_OBJECTS_URL=s3://bucket/prefix`, with the store's
/// own variables beside it and nothing below the prefix.
#[test]
fn a_tenant_comes_back_from_the_store_that_the_environment_names() {
    match std::env::var("AEROSTAT_OBJECTS_URL") {
        Ok(root) => round_trip(&ObjectPlaces::new(), &root),
        Err(_) => eprintln!("skipped: no AEROSTAT_OBJECTS_URL"),
    }
}

#[test]
fn folders_and_files_by_url_are_what_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let places = ObjectPlaces::new();
    let (store, _) = open(TENANT, &folder.path().join("tenant"));
    let _table = insert(&store, 0..10);
    let path = folder.path().join("a backup");
    let url = format!("file://{}", path.display().to_string().replace(' ', "%20"));
    back_up(&places, &store, &url, None).unwrap();
    let path = path.display().to_string();
    let info = verify(&*places.source(&path).unwrap()).unwrap();
    let again = back_up(&places, &store, &format!("{path} 2"), Some(&url)).unwrap();
    assert_eq!((info.rows, again.rows), (10, 10));

    for place in ["relative", "s3:/bucket", "memory:///a", "ftp://host/a"] {
        let refused = places.check(place);
        assert!(
            matches!(refused, Err(BackupError::NotAPlace { .. })),
            "{place}"
        );
    }
    places.check("s3://bucket/a").unwrap();
    // A backup and its base are in one place of one kind.
    let memory = ObjectPlaces::with_memory(Arc::new(InMemory::new()));
    for (to, base) in [("memory:///a", &*path), (&*path, "memory:///a")] {
        let refused = back_up(&memory, &store, to, Some(base)).unwrap_err();
        assert!(
            matches!(refused, BackupError::NotAPlace { .. }),
            "{refused}"
        );
    }
}

#[test]
fn one_of_many_takes_a_place() {
    let memory = Arc::new(InMemory::new());
    let places = ObjectPlaces::with_memory(Arc::clone(&memory) as _);
    let taken: Vec<_> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| places.for_backup("memory:///a", None)))
            .collect();
        let taken = all.into_iter().map(|one| one.join().unwrap());
        taken.collect()
    });
    let refused = |taken: &&std::result::Result<_, _>| matches!(taken, Err(BackupError::NotEmpty { place }) if place == "memory:///a");
    assert_eq!(taken.iter().filter(refused).count(), 7);
    drop(taken);
    assert_eq!(names(&*memory), Vec::<String>::new());
    places.for_backup("memory:///a", None).unwrap();
}

/// What a [`Faulty`] store cannot do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lacks {
    Nothing,
    /// As a WebDAV server: no parts, no conditions, no copies.
    Extras,
}

/// A store in memory whose writes fail from one on, and that may lack things.
#[derive(Debug)]
struct Faulty {
    inner: InMemory,
    lacks: Lacks,
    writes_left: AtomicUsize,
    parts: AtomicUsize,
    copies: AtomicUsize,
}

impl Faulty {
    fn new(lacks: Lacks, writes: usize) -> Arc<Faulty> {
        Arc::new(Faulty {
            inner: InMemory::new(),
            lacks,
            writes_left: AtomicUsize::new(writes),
            parts: AtomicUsize::new(0),
            copies: AtomicUsize::new(0),
        })
    }

    fn write(&self) -> Result<()> {
        let left = self
            .writes_left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(1)
            });
        left.map(drop).map_err(|_| Error::Generic {
            store: "faulty",
            source: "the store is full".into(),
        })
    }

    fn extra(&self) -> Result<()> {
        match self.lacks {
            Lacks::Nothing => Ok(()),
            Lacks::Extras => Err(Error::NotImplemented {
                operation: "this".to_owned(),
                implementer: self.to_string(),
            }),
        }
    }
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faulty")
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        if opts.mode != object_store::PutMode::Overwrite {
            self.extra()?;
        }
        self.write()?;
        self.inner.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.extra()?;
        self.write()?;
        self.parts.fetch_add(1, Ordering::Relaxed);
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.extra()?;
        self.write()?;
        self.copies.fetch_add(1, Ordering::Relaxed);
        self.inner.copy_opts(from, to, options).await
    }
}

#[test]
fn a_store_that_fails_at_any_write_has_no_half_backup() {
    let folder = tempfile::tempdir().unwrap();
    let (tenant, _) = open(TENANT, &folder.path().join("tenant"));
    let _tables = [insert(&tenant, 0..10), insert(&tenant, 10..30)];
    let mut failures = 0;
    for writes in 0.. {
        let store = Faulty::new(Lacks::Nothing, writes);
        let places = ObjectPlaces::with_memory(Arc::clone(&store) as _);
        let done = back_up(&places, &tenant, "memory:///a/b", None);
        let left = names(&store.inner);
        if let Ok(info) = done {
            let source = places.source("memory:///a/b").unwrap();
            assert_eq!(verify(&*source).unwrap(), info);
            break;
        }
        let shown = format!("{:?}", done.unwrap_err());
        assert!(
            shown.contains("memory:///a/b") && shown.contains("full"),
            "{shown}"
        );
        assert_eq!(left, Vec::<String>::new(), "after {writes} writes");
        failures += 1;
    }
    assert!(
        failures > 3,
        "claim, images, manifest and description: {failures}"
    );
}

#[test]
fn large_files_go_in_parts_where_the_store_takes_them() {
    const BYTES: usize = 37 << 20;
    let content: Vec<u8> = (0..BYTES).map(|at| ((at * 7_919) >> 8) as u8).collect();
    for lacks in [Lacks::Nothing, Lacks::Extras] {
        let store = Faulty::new(lacks, usize::MAX);
        let places = ObjectPlaces::with_memory(Arc::clone(&store) as _);
        let sink = places.for_backup("memory:///a", None).unwrap();
        sink.put("large", &mut &*content, BYTES as u64).unwrap();
        sink.put("empty", &mut io::empty(), 0).unwrap();
        // What is shorter than was said is not there.
        for bytes in [10, BYTES as u64 + 1] {
            assert!(sink.put("short", &mut &content[..9], bytes).is_err());
        }
        let parts = store.parts.load(Ordering::Relaxed);
        assert_eq!(parts, if lacks == Lacks::Nothing { 2 } else { 0 });
        sink.finish().unwrap();
        drop(sink);
        assert_eq!(names(&store.inner), ["a/empty", "a/large"]);
        let source = places.source("memory:///a").unwrap();
        let mut read = Vec::new();
        source
            .open("large")
            .unwrap()
            .read_to_end(&mut read)
            .unwrap();
        assert!(read == content, "{lacks:?}");
        assert_eq!(source.open("empty").unwrap().read(&mut [0]).unwrap(), 0);
        let missing = source.open("short").err().unwrap();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}

#[test]
fn a_store_copies_what_the_base_has_if_it_can() {
    let folder = tempfile::tempdir().unwrap();
    let (tenant, _) = open(TENANT, &folder.path().join("tenant"));
    let _tables = [insert(&tenant, 0..10), insert(&tenant, 10..30)];
    for (lacks, copies) in [(Lacks::Nothing, 2), (Lacks::Extras, 0)] {
        let store = Faulty::new(lacks, usize::MAX);
        let places = ObjectPlaces::with_memory(Arc::clone(&store) as _);
        back_up(&places, &tenant, "memory:///a", None).unwrap();
        let base = Some("memory:///a");
        let info = back_up(&places, &tenant, "memory:///b", base).unwrap();
        assert_eq!(store.copies.load(Ordering::Relaxed), copies);
        // Whole without the base.
        for name in names(&store.inner)
            .iter()
            .filter(|name| name.starts_with("a/"))
        {
            block_on(store.inner.delete(&Path::from(&**name))).unwrap();
        }
        let source = places.source("memory:///b").unwrap();
        assert_eq!(verify(&*source).unwrap(), info);
        // A base that is gone is none.
        let refused = back_up(&places, &tenant, "memory:///c", base);
        assert!(matches!(refused, Err(BackupError::NotABackup)));
    }
}

#[test]
fn names_lead_nowhere_else() {
    let memory = Arc::new(InMemory::new());
    block_on(memory.put(&Path::from("secret"), PutPayload::from_static(b"x"))).unwrap();
    let places = ObjectPlaces::with_memory(memory);
    let source = places.source("memory:///in").unwrap();
    for name in [
        "../secret",
        "/secret",
        "",
        "a/../../secret",
        "a//b",
        "secret",
    ] {
        assert!(source.open(name).is_err(), "{name}");
    }
}

/// Serves the files of a folder, and nothing more than one GET per connection.
#[cfg(feature = "cloud")]
fn serve(folder: &FilePath) -> std::net::SocketAddr {
    use std::{
        io::{BufRead, BufReader, Write},
        net::TcpListener,
    };

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, folder) = (listener.local_addr().unwrap(), folder.to_owned());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let first = lines.next().unwrap().unwrap();
            // Up to the empty line.
            lines
                .map_while(|line| line.ok().filter(|line| !line.is_empty()))
                .count();
            let name = first.split(' ').nth(1).unwrap().trim_start_matches('/');
            let (status, body) = match std::fs::read(folder.join(name)) {
                Ok(body) => ("200 OK", body),
                Err(_) => ("404 Not Found", Vec::new()),
            };
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\
                 Last-Modified: Sun, 22 Nov 2026 09:00:00 GMT\r\n\r\n",
                body.len()
            );
            // The client may have gone.
            let _ = stream
                .write_all(head.as_bytes())
                .and_then(|()| stream.write_all(&body));
        }
    });
    address
}

#[test]
#[cfg(feature = "cloud")]
fn backups_are_read_from_a_plain_web_server() {
    let folder = tempfile::tempdir().unwrap();
    let (tenant, _) = open(TENANT, &folder.path().join("tenant"));
    let _table = insert(&tenant, 0..10_000);
    let places = ObjectPlaces::new();
    let path = folder.path().join("site/backup");
    std::fs::create_dir(folder.path().join("site")).unwrap();
    let info = back_up(&places, &tenant, path.to_str().unwrap(), None).unwrap();
    let site = serve(&folder.path().join("site"));
    let source = places.source(&format!("http://{site}/backup")).unwrap();
    assert_eq!(verify(&*source).unwrap(), info);
    let target = folder.path().join("copy");
    restore_to(&places, &target, &format!("http://{site}/backup/"), &[]).unwrap();
    assert_eq!(rows(COPY, &target), 10_000);
    let none = places.source(&format!("http://{site}/none")).unwrap();
    assert!(matches!(verify(&*none), Err(BackupError::NotABackup)));
}
