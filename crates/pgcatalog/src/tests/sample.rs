//! The catalogue that the tests query: two roles and a superuser, three databases, a few tables
//! with secondary indexes and a foreign key, a view, and a sequence. The golden files were
//! compared with the answers of a PostgreSQL with the same objects.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU8,
    sync::Arc,
    time::Duration,
};

use aerostat_advice::Machine;
use aerostat_catalog::{
    BuildName, ClusterFacts, CopiesRecord, CopyFacts, CopyState, Database, DatabaseRecord,
    ForeignKey, Grant, IndexEntry, NodeFacts, NodeRecord, OnCommit, PartComments, PeerFacts,
    PlacedFacts, ReferentialAction, Relation, RoleRecord, SchemaEntry, SequenceEntry, Standing,
    StatementsRecord, TableEntry, UnknownFields, ViewEntry,
    admin::DatabaseState,
    sequence::{Counter, Definition, Taken},
};
use aerostat_memory::Governor;
use aerostat_sql::{deferral::Deferral, grants::Privilege};
use aerostat_storage::{Table, TenantStore, Timeline};
use aerostat_types::{
    ByteSize, CheckConstraint, Column, CommitTs, ConstraintId, Epoch, ErrorKind, IndexId,
    IndexKind, Layout, NodeId, RelationId, RoleId, SchemaId, SqlError, SqlType, SystemClock,
    TableId, TableIndex, TableSchema, TenantId,
};
use parking_lot::Mutex;

use super::super::{
    CatalogView, ClassIndex, CopyDescription, CursorDescription, EvictionUse, Facts,
    FunctionDescription, FunctionKind, LogPlaces, MemoryLimit, MemoryUse, PreparedDescription,
    SessionDescription, Setting, Signal, StatementUse,
};
use crate::view::waits::Waits;

/// The relations' numbers, as golden files name them.
pub(super) const OIDS: [(&str, u32); 9] = [
    ("public.customer", 16_390),
    ("public.customer_pkey", 16_391),
    ("public.lineitem", 16_392),
    ("public.lineitem_pkey", 16_393),
    ("public.Odd Name", 16_394),
    ("public.rich", 16_395),
    ("sales.region", 16_397),
    ("sales.region_pkey", 16_398),
    ("public.ticket", 16_402),
];

/// The catalogue as `role` sees it in the database `shop`.
pub(super) fn view(role: &str) -> CatalogView {
    let node = node();
    let superuser = node.roles[role].superuser;
    CatalogView {
        node: Arc::new(node),
        database: "shop".to_owned(),
        state: {
            let database = Database::new(TenantId(1), "shop", "alice", store());
            let filled = database.define(|draft| {
                let mut change = draft.change()?;
                fill(&mut change.state.schemas);
                change.publish()
            });
            filled.unwrap();
            database.catalog.load()
        },
        role: role.to_owned(),
        session_role: role.to_owned(),
        superuser,
        search_path: vec![role.to_owned(), "public".to_owned()],
        backend_pid: 4_242,
        facts: Arc::new(SampleFacts::default()),
        functions: Arc::new([
            FunctionDescription {
                name: "lower".to_owned(),
                arguments: vec!["text".to_owned()],
                result: "text".to_owned(),
                kind: FunctionKind::Plain,
            },
            FunctionDescription {
                name: "sum".to_owned(),
                arguments: vec!["bigint".to_owned()],
                result: "numeric".to_owned(),
                kind: FunctionKind::Aggregate,
            },
        ]),
        index: Arc::new(ClassIndex::default()),
    }
}

fn node() -> NodeRecord {
    let role = |oid: u32, superuser: bool, login: bool| RoleRecord {
        oid: RoleId(oid),
        superuser,
        login,
        create_database: false,
        create_role: false,
        connection_limit: -1,
        verifier: None,
        comment: None,
        member_of: BTreeSet::new(),
        unknown: UnknownFields::new(),
    };
    let database = |oid: u32, owner: &str, comment: Option<&str>| DatabaseRecord {
        comment: comment.map(str::to_owned),
        ..DatabaseRecord::new(TenantId(oid), owner)
    };
    NodeRecord {
        roles: BTreeMap::from([
            ("admin".to_owned(), role(10, true, true)),
            ("alice".to_owned(), role(16_384, false, true)),
            ("reader".to_owned(), role(16_385, false, false)),
        ]),
        databases: BTreeMap::from([
            ("other".to_owned(), database(16_387, "admin", None)),
            (
                "postgres".to_owned(),
                DatabaseRecord {
                    connect: vec!["public".to_owned()],
                    ..database(5, "admin", None)
                },
            ),
            (
                "shop".to_owned(),
                DatabaseRecord {
                    nodes: BTreeSet::from(["alpha".to_owned(), "beta".to_owned()]),
                    copies_kept: NonZeroU8::new(2),
                    copies: Some(CopiesRecord {
                        timeline: Timeline::begin(&SystemClock),
                        home: NodeId(1),
                    }),
                    ..database(16_386, "alice", Some("the shop"))
                },
            ),
        ]),
        next_oid: 16_403,
        dropped: BTreeSet::new(),
        memory: None,
        unknown: UnknownFields::new(),
    }
}

fn column(name: &str, ty: SqlType, nullable: bool, default: Option<&str>) -> Column {
    Column {
        name: name.to_owned(),
        ty,
        nullable,
        default: default.map(str::to_owned),
    }
}

/// A table of the real storage, without rows.
fn table(
    oid: u32,
    name: &str,
    columns: Vec<Column>,
    primary_key: Vec<usize>,
    checks: Vec<CheckConstraint>,
) -> Arc<Table> {
    let schema = TableSchema {
        name: name.to_owned(),
        columns,
        primary_key,
        primary_key_name: format!("{name}_pkey"),
        checks,
    };
    store()
        .create_table(TableId(oid), Arc::new(schema), &Layout::Column)
        .unwrap()
}

fn store() -> Arc<TenantStore> {
    let budget = Governor::new(ByteSize(1 << 30)).budget("sample", None);
    TenantStore::new(TenantId(1), budget)
}

fn entry(oid: u32, name: &str, table: Arc<Table>) -> TableEntry {
    let key_oid = if table.schema().primary_key.is_empty() {
        IndexId::NONE
    } else {
        IndexId(oid + 1)
    };
    TableEntry {
        auto_layout: false,
        indexes: Vec::new(),
        foreign_keys: Vec::new(),
        identities: BTreeMap::new(),
        on_commit: OnCommit::PreserveRows,
        oid: RelationId(oid),
        key_oid,
        name: name.to_owned(),
        owner: "alice".to_owned(),
        table,
        comment: None,
        column_comments: BTreeMap::new(),
        part_comments: PartComments::default(),
        usage: Arc::default(),
        grants: Vec::new(),
    }
}

/// A secondary index of one column, with or without a UNIQUE constraint.
fn index(oid: u32, name: &str, column: usize, unique: bool) -> IndexEntry {
    IndexEntry {
        oid: IndexId(oid),
        index: TableIndex {
            name: name.to_owned(),
            kind: IndexKind::Ordered,
            columns: vec![column],
            unique,
            nulls_not_distinct: false,
        },
        is_constraint: unique,
        is_primary: false,
        deferral: Deferral::Never,
    }
}

fn sequence(oid: u32, name: &str) -> SequenceEntry {
    let definition = Definition::default();
    let table = store()
        .create_table(TableId(oid), Counter::schema(), &Layout::Row)
        .unwrap();
    SequenceEntry {
        oid: RelationId(oid),
        name: name.to_owned(),
        owner: "alice".to_owned(),
        counter: Counter::new(table, definition.first()),
        definition,
        owned_by: None,
        comment: None,
        grants: Vec::new(),
    }
}

fn grant(role: &str, privilege: Privilege) -> Grant {
    Grant {
        role: role.to_owned(),
        privilege,
    }
}

fn fill(schemas: &mut BTreeMap<String, Arc<SchemaEntry>>) {
    use SqlType::{
        BigInt, Boolean, Char, Date, Double, Integer, Numeric, SmallInt, Text, TimestampTz, Uuid,
        Varchar,
    };

    let customer = TableEntry {
        indexes: vec![
            index(16_399, "customer_name_key", 1, true),
            index(16_400, "customer_city_idx", 2, false),
        ],
        comment: Some("who buys".to_owned()),
        column_comments: BTreeMap::from([("name".to_owned(), "as on the card".to_owned())]),
        grants: vec![grant("reader", Privilege::Select)],
        ..entry(
            16_390,
            "customer",
            table(
                16_390,
                "customer",
                vec![
                    column("id", BigInt, false, None),
                    column("name", Varchar(Some(25)), false, None),
                    column("city", Char(10), true, Some("'HPI'::bpchar")),
                    column(
                        "balance",
                        Numeric {
                            precision: 12,
                            scale: 2,
                        },
                        false,
                        Some("0"),
                    ),
                    column("since", TimestampTz, true, Some("CURRENT_TIMESTAMP")),
                    column("note", Text, true, None),
                ],
                vec![0],
                vec![CheckConstraint {
                    name: "customer_balance_check".to_owned(),
                    expression: "balance >= 0".to_owned(),
                    not_valid: false,
                }],
            ),
        )
    };
    let lineitem = TableEntry {
        foreign_keys: vec![ForeignKey {
            oid: ConstraintId(16_401),
            name: "lineitem_orderkey_fkey".to_owned(),
            columns: vec![0],
            referenced: RelationId(16_390),
            referenced_columns: vec![0],
            index: IndexId(16_391),
            is_full: false,
            on_update: ReferentialAction::NoAction,
            on_delete: ReferentialAction::Cascade,
            deferral: Deferral::Never,
            is_valid: true,
        }],
        grants: vec![
            grant("public", Privilege::Select),
            grant("public", Privilege::Insert),
        ],
        ..entry(
            16_392,
            "lineitem",
            table(
                16_392,
                "lineitem",
                vec![
                    column("orderkey", Integer, false, None),
                    column("line", SmallInt, false, None),
                    column("flag", Boolean, true, None),
                    column("price", Double, true, None),
                    column("shipped", Date, true, None),
                ],
                vec![0, 1],
                Vec::new(),
            ),
        )
    };
    let odd = entry(
        16_394,
        "Odd Name",
        table(
            16_394,
            "Odd Name",
            vec![
                column("a", Integer, true, None),
                column("B c", Uuid, true, None),
            ],
            Vec::new(),
            Vec::new(),
        ),
    );
    let rich = ViewEntry {
        oid: RelationId(16_395),
        name: "rich".to_owned(),
        owner: "alice".to_owned(),
        query: "SELECT id, name FROM public.customer WHERE balance > 1000".to_owned(),
        columns: vec![
            column("id", BigInt, true, None),
            column("name", Varchar(Some(25)), true, None),
        ],
        comment: Some("the rich ones".to_owned()),
        column_comments: BTreeMap::new(),
        grants: Vec::new(),
    };
    let region = entry(
        16_397,
        "region",
        table(
            16_397,
            "region",
            vec![
                column("id", Integer, false, None),
                column("name", Text, true, None),
            ],
            vec![0],
            Vec::new(),
        ),
    );
    if let Some(public) = schemas.get_mut("public") {
        Arc::make_mut(public).relations = BTreeMap::from([
            ("customer".to_owned(), Relation::Table(Arc::new(customer))),
            ("lineitem".to_owned(), Relation::Table(Arc::new(lineitem))),
            ("Odd Name".to_owned(), Relation::Table(Arc::new(odd))),
            ("rich".to_owned(), Relation::View(Arc::new(rich))),
            (
                "ticket".to_owned(),
                Relation::Sequence(Arc::new(sequence(16_402, "ticket"))),
            ),
        ]);
    }
    let sales = SchemaEntry {
        oid: SchemaId(16_396),
        name: "sales".to_owned(),
        owner: "alice".to_owned(),
        relations: BTreeMap::from([("region".to_owned(), Relation::Table(Arc::new(region)))]),
        comment: None,
        grants: Vec::new(),
    };
    schemas.insert("sales".to_owned(), Arc::new(sales));
}

/// What the leader of `shop` knows of two other nodes: one that has all, and one that is behind.
fn copies() -> CopyFacts {
    let peer = |node, name: &str, address: &str, is_member, written| PeerFacts {
        node: NodeId(node),
        name: name.to_owned(),
        address: address.to_owned(),
        is_member,
        sent: CommitTs(0x1_0000_002A),
        written: CommitTs(written),
        durable: CommitTs(0x1_0000_0001),
        heard: None,
    };
    CopyFacts {
        epoch: Epoch(3),
        leader: Some(NodeId(1)),
        members: vec![NodeId(1), NodeId(2)],
        counts: true,
        written: CommitTs(0x1_0000_002B),
        durable: CommitTs(0x1_0000_0020),
        committed: CommitTs(0x1_0000_002A),
        heard: None,
        current: None,
        leads_until: None,
        peers: vec![
            peer(2, "beta", "10.0.0.2:5435", true, 0x1_0000_002A),
            peer(3, "gamma", "gamma.lan:5435", false, 0x1_0000_0009),
        ],
    }
}

#[derive(Default)]
struct SampleFacts {
    taken: Mutex<Taken>,
}

impl Facts for SampleFacts {
    fn notify(&self, _channel: &str, _payload: &str) -> Result<(), SqlError> {
        Ok(())
    }

    fn listening(&self) -> Vec<String> {
        Vec::new()
    }

    fn signal(&self, _pid: i32, _signal: Signal) -> Result<bool, SqlError> {
        Ok(false)
    }

    fn version(&self) -> String {
        "PostgreSQL 15.0 (Aerostat)".to_owned()
    }

    fn machine(&self) -> Arc<Machine> {
        Arc::default()
    }

    fn settings(&self) -> Vec<Setting> {
        let setting = |name: &str, value: &str, boot: &str, context| Setting {
            name: name.to_owned(),
            value: value.to_owned(),
            boot_value: boot.to_owned(),
            context,
            kind: "string",
            ..Setting::default()
        };
        vec![
            setting(
                "search_path",
                "\"$user\", public",
                "\"$user\", public",
                "user",
            ),
            setting("TimeZone", "Europe/Berlin", "UTC", "user"),
            setting("server_version", "15.0", "15.0", "internal"),
        ]
    }

    fn set(&self, name: &str, value: &str, _is_local: bool) -> Result<String, SqlError> {
        match name {
            "search_path" => Ok(value.to_owned()),
            _ => Err(SqlError::new(ErrorKind::UndefinedObject, "no such setting")),
        }
    }

    fn sequence(&self, _oid: RelationId) -> Result<Option<Arc<SequenceEntry>>, SqlError> {
        Ok(None)
    }

    fn taken(&self) -> &Mutex<Taken> {
        &self.taken
    }

    fn admit_change(&self, _function: &str) -> Result<(), SqlError> {
        Ok(())
    }

    fn waiting(&self) -> Option<&dyn Waits> {
        None
    }

    fn sessions(&self) -> Vec<SessionDescription> {
        let session = |pid: i32, role: &str, query: &str| SessionDescription {
            pid,
            database: "shop".to_owned(),
            role: role.to_owned(),
            state: "active",
            query: query.to_owned(),
            ..SessionDescription::default()
        };
        vec![
            session(4_242, "alice", "SELECT 1"),
            session(4_243, "admin", "SELECT secret"),
        ]
    }

    fn prepared_statements(&self) -> Vec<PreparedDescription> {
        vec![PreparedDescription {
            name: "p1".to_owned(),
            parameters: vec![23],
            ..PreparedDescription::default()
        }]
    }

    fn cursors(&self) -> Vec<CursorDescription> {
        vec![CursorDescription {
            name: "c1".to_owned(),
            statement: "DECLARE c1 SCROLL CURSOR FOR SELECT 1".into(),
            is_scrollable: true,
            ..CursorDescription::default()
        }]
    }

    fn database_state(&self, database: &str) -> DatabaseState {
        match database {
            "other" => DatabaseState::Unopened("its log is damaged".to_owned()),
            _ => DatabaseState::Open,
        }
    }

    fn database_bytes(&self, database: &str) -> Option<u64> {
        (database == "shop").then_some(7_715_840)
    }

    fn memory(&self) -> Vec<MemoryUse> {
        let of = |database: Option<&str>, class, bytes| MemoryUse {
            database: database.map(str::to_owned),
            class,
            bytes,
            bytes_reserved: bytes,
        };
        vec![
            of(Some("shop"), "hot values", 65_536),
            of(Some("other"), "log", 12),
            of(None, "program", 20 << 20),
        ]
    }

    fn set_balloon(&self, _: Option<ByteSize>) -> Result<(), SqlError> {
        Ok(())
    }

    fn memory_limits(&self) -> Vec<MemoryLimit> {
        let of = |database: Option<&str>, limit| MemoryLimit {
            database: database.map(str::to_owned),
            target: limit,
            limit,
            used: 65_536,
            promised: 0,
            unreserved: database.is_none().then_some(1),
        };
        vec![
            of(None, Some(1 << 30)),
            of(Some("shop"), None),
            of(Some("other"), None),
        ]
    }

    fn statements(&self) -> Vec<StatementUse> {
        vec![StatementUse {
            database: "shop".to_owned(),
            running: 2,
            waiting: 1,
            refused: 3,
            timed_out: 4,
        }]
    }

    fn statement_defaults(&self) -> StatementsRecord {
        StatementsRecord {
            queue_timeout_ms: Some(120_000),
            ..StatementsRecord::default()
        }
    }

    fn evictions(&self) -> Vec<EvictionUse> {
        vec![EvictionUse {
            database: "shop".to_owned(),
            evicted_now: 4_096,
            evicted: 16_384,
            read_back: 12_288,
            reads: 3,
            worth: vec![(1 << 20, 8_192), (2 << 20, 12_288)],
        }]
    }

    fn copy(&self) -> Option<Arc<CopyState>> {
        let copy = CopyState::new(NodeId(1));
        copy.set_leads(true);
        copy.tell(copies());
        Some(Arc::new(copy))
    }

    fn places(&self) -> LogPlaces {
        LogPlaces {
            shown: CommitTs(0x1_0000_002A),
            durable: Some(CommitTs(0x1_0000_0020)),
        }
    }

    fn copies(&self) -> Vec<CopyDescription> {
        let alone = CopyDescription {
            database: "other".to_owned(),
            standing: Standing::Alone,
            node: None,
            facts: None,
            places: LogPlaces {
                shown: CommitTs(7),
                durable: None,
            },
        };
        let led = CopyDescription {
            database: "shop".to_owned(),
            standing: Standing::Leads,
            node: Some(NodeId(1)),
            facts: Some(copies()),
            places: self.places(),
        };
        vec![alone, led]
    }

    fn cluster(&self) -> Option<ClusterFacts> {
        let build = |version: &str| BuildName {
            version: version.to_owned(),
            id: "0a1b2c".to_owned(),
        };
        let node = |id, name: &str| NodeFacts {
            name: name.to_owned(),
            id: NodeId(id),
            address: format!("10.0.0.{id}:5434"),
            clients: format!("10.0.0.{id}:5433"),
            build: (id < 4).then(|| build("1.2.3")),
            next_build: (id == 3).then(|| build("1.3.0")),
            is_draining: id == 3,
            is_stopped: id == 3,
            silent: (id < 4).then_some(Duration::from_millis(1_500)),
            memory_bytes: 1 << 30,
            memory_used: 1 << 20,
            load: 0.25,
        };
        let shop = PlacedFacts {
            leader: Some(NodeId(1)),
            epoch: 7,
            members: vec![NodeId(1), NodeId(9)],
            current: vec![NodeId(1)],
            bytes: 4_096,
            load: 0.5,
            load_beside_leader: 0.25,
        };
        Some(ClusterFacts {
            nodes: vec![node(1, "alpha"), node(3, "gamma"), node(4, "delta")],
            databases: BTreeMap::from([(TenantId(16_386), shop)]),
        })
    }

    fn started_at_us(&self) -> i64 {
        0
    }

    fn server_address(&self) -> Option<(String, u16)> {
        Some(("127.0.0.1".to_owned(), 5433))
    }

    fn client_address(&self) -> Option<(String, u16)> {
        None
    }
}
