//! What whoever serves clients asks of an engine. `aerostat-engine` answers it, and in tests of the
//! gateway a double.

use std::{future::Future, io, sync::Arc};

use aerostat_transport::Parked;
use aerostat_types::{NodeId, SqlError, TenantId};
use futures::future::BoxFuture;

use crate::{
    Client, ClientSettings, ColumnDescription, EntryNumbers, Group, IdleLimit, Notice,
    Notification, Outcome, ParameterType, RoleInfo, TransactionStatus, Value,
};

/// Cancels what a session is running; does nothing when it runs nothing. Called from other tasks.
pub type Canceller = Arc<dyn Fn() + Send + Sync>;

/// How others stop a session, or have it go.
#[derive(Clone)]
pub struct Controls {
    /// Stops the statement that runs; does nothing when none does.
    pub cancel: Canceller,
    /// Ends the session with its connection; `None` for one that has no connection.
    pub terminate: Option<Canceller>,
    /// Has the session go to another node as soon as it can; `None` for one that has no connection.
    pub leave: Option<Canceller>,
}

/// A session that goes on, and the statement that was prepared without a name.
pub type Resumed<S> = (S, Option<Kept<<S as BackendSession>::Prepared>>);

/// Which copies of a database a session may be at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// The one that takes changes.
    Leader,
    /// That of the node that its client has connected to; any, where that has none.
    Here,
    /// Any, by what the nodes have to do.
    Any,
}

/// What a node has of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnCopy {
    /// Nothing.
    Missing,
    /// A copy that nobody may enter at the moment: another node is about to lead, or it is not known yet what is
    /// committed.
    Closed,
    /// A copy that may lack what was committed some time ago.
    Behind,
    /// A copy that commits wait for.
    Current,
}

impl OwnCopy {
    /// Whether sessions may read it.
    pub fn is_open(self) -> bool {
        matches!(self, OwnCopy::Behind | OwnCopy::Current)
    }
}

/// The copies of a database, for a session that only reads.
#[derive(Clone, Debug, PartialEq)]
pub struct Copies {
    /// That of this node.
    pub own: OwnCopy,
    /// The share of this node's threads that statements take.
    pub own_load: f64,
    /// Other nodes whose copies commits wait for, with the share of their threads that statements take.
    pub others: Vec<(NodeId, f64)>,
}

/// Which node takes the changes of a database, and so has its sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leader {
    /// This one.
    Here,
    /// Another one.
    Node(NodeId),
    /// One that is not known at the moment.
    Unknown,
    /// There is no such database, as far as is known here.
    NoDatabase,
}

/// The other nodes of a cluster, as whoever serves clients reaches them.
pub trait OtherNodes: Send + Sync + 'static {
    /// A connection to a node for one session, of which it is told this.
    ///
    /// # Errors
    /// The node is not reached.
    fn session(
        &self,
        node: NodeId,
        introduction: Vec<u8>,
    ) -> BoxFuture<'static, io::Result<Parked>>;

    /// The node that leads a database, by what the nodes share; `None` if none does, or that is not known. Waits for
    /// that.
    fn leader_of(&self, database: TenantId) -> Option<NodeId>;

    /// The nodes whose copies of a database commits wait for, by what the nodes share; none if that is not known. Waits for
    /// that.
    fn copies_of(&self, database: TenantId) -> Vec<NodeId>;

    /// The share of a node's threads that statements take, as it said some seconds ago; 0 if that is not known.
    fn load_of(&self, node: NodeId) -> f64;

    /// Whether a node is taken to run: it has not been silent for long, as far as is known.
    fn is_up(&self, node: NodeId) -> bool;

    /// The other nodes that are taken to run.
    fn up(&self) -> Vec<NodeId>;

    /// Whether a node is reached at the moment: its machine takes connections. Waits for that, for about a second.
    fn is_reached(&self, node: NodeId) -> BoxFuture<'static, bool>;

    /// Whether nothing is known against it that a node is reached. Waits for nobody.
    fn seems_reached(&self, node: NodeId) -> bool;

    /// Whether no other node is reached, and what the nodes share has not answered for a while: nobody says who leads.
    /// Waits for nobody: the first to ask has it looked at.
    fn is_alone(&self) -> bool;

    /// Has nodes cancel what the session with this key runs: one node, or all others.
    fn cancel(&self, node: Option<NodeId>, pid: i32, secret: i32);
}

/// An engine: roles and sessions.
pub trait Backend: Send + Sync + 'static {
    /// Its sessions.
    type Session: BackendSession;

    /// The role with this name.
    fn role(&self, name: &str) -> Option<RoleInfo>;

    /// The same, also if another node has made it a moment ago.
    fn ask_role(self: &Arc<Self>, name: &str) -> impl Future<Output = Option<RoleInfo>> + Send {
        std::future::ready(self.role(name))
    }

    /// A session of a role that has proved who it is. `settings` are the startup packet's. May take as
    /// long as the database's recovery does.
    ///
    /// # Errors
    /// Why the role may not use the database now.
    fn connect(
        self: &Arc<Self>,
        role: &str,
        database: &str,
        settings: &[(String, String)],
    ) -> impl Future<Output = Result<Self::Session, SqlError>> + Send;

    /// A session that goes on where another node's has left ([`BackendSession::leave`]), and the statement that was
    /// prepared without a name. Otherwise as [`Self::connect`].
    ///
    /// # Errors
    /// As [`Self::connect`].
    fn resume(
        self: &Arc<Self>,
        role: &str,
        database: &str,
        settings: &[(String, String)],
        state: &[u8],
    ) -> impl Future<Output = Result<Resumed<Self::Session>, SqlError>> + Send;

    /// Which copies a session with these settings may be at.
    fn reads(&self, _settings: &[(String, String)]) -> Reads {
        Reads::Leader
    }

    /// Which node leads a database.
    fn leader(&self, _database: &str) -> Leader {
        Leader::Here
    }

    /// The same, of what the nodes share: also where this one has not heard of it, or has no copy.
    fn ask_leader(self: &Arc<Self>, database: &str) -> impl Future<Output = Leader> + Send {
        std::future::ready(self.leader(database))
    }

    /// The copies of a database, by what the nodes share; `None` where sessions are here whatever there is: of no database
    /// that is known, or of one that is not copied.
    fn ask_copies(
        self: &Arc<Self>,
        _database: &str,
    ) -> impl Future<Output = Option<Copies>> + Send {
        std::future::ready(None)
    }

    /// The other nodes, if there are any.
    fn others(&self) -> Option<Arc<dyn OtherNodes>> {
        None
    }
}

/// A prepared statement that a session keeps, and the numbers of its parameters' types.
pub type Kept<P> = (Arc<P>, Arc<[u32]>);

/// One client's session. Dropping it ends its transaction.
pub trait BackendSession: Send + 'static {
    /// A statement of the simple protocol.
    type Statement: Send + Sync + 'static;
    /// A prepared statement.
    type Prepared: Send + Sync + 'static;

    /// Memory that the server has of the tenant's; given back when dropped.
    type Held: Send + Sync + 'static;

    /// Takes memory of the tenant's for what the server keeps, or has in its hands.
    ///
    /// # Errors
    /// The tenant, or the node, has not that much left.
    fn hold(&self, bytes: usize) -> Result<Self::Held, SqlError>;

    /// The number that the client is told, and that its own functions and views show. No two
    /// sessions that are there have the same, and none has 0.
    fn number(&self) -> i32;

    /// How to cancel what runs.
    fn canceller(&self) -> Canceller;

    /// Says how others stop this one, or have it go.
    fn set_controls(&mut self, controls: Controls);

    /// What another node needs to go on with the session, with the statement that was prepared without a name; `None`
    /// while it has what cannot go. Whoever serves its client drops it then.
    fn leave(&self, _unnamed: Option<&Kept<Self::Prepared>>) -> Option<Vec<u8>> {
        None
    }

    /// Comes back when others have said something that the client is to be told.
    fn notified(&self) -> impl Future<Output = ()> + Send;

    /// What others have said since the last call; nothing within a transaction.
    fn take_notifications(&mut self) -> Vec<Arc<Notification>>;

    /// The statements in a query string.
    ///
    /// # Errors
    /// A syntax error, or the reading of a long text was stopped.
    fn split(
        &mut self,
        sql: &str,
    ) -> impl Future<Output = Result<Vec<Self::Statement>, SqlError>> + Send;

    /// Parses and analyses one statement. `parameter_oids` are the client's wishes, 0 for none.
    fn prepare(
        &mut self,
        sql: &str,
        parameter_oids: &[u32],
    ) -> impl Future<Output = Result<Self::Prepared, SqlError>> + Send;

    /// Whether another prepared statement may have this name.
    ///
    /// # Errors
    /// There is one of this name, or there are too many.
    fn admit_name(&self, name: &str) -> Result<(), SqlError>;

    /// Keeps a prepared statement under a name, beside those of SQL's PREPARE.
    fn keep(
        &mut self,
        name: &str,
        prepared: Arc<Self::Prepared>,
        parameter_oids: Arc<[u32]>,
        held: Self::Held,
    );

    /// The prepared statement of a name, of whoever, and the numbers of its parameters' types.
    fn kept(&self, name: &str) -> Option<Kept<Self::Prepared>>;

    /// The same for an execution, which counts, without the numbers.
    fn kept_to_run(&self, name: &str) -> Option<Arc<Self::Prepared>>;

    /// Forgets the prepared statement of a name, if there is one.
    fn forget(&mut self, name: &str);

    /// The types of a statement's parameters.
    fn parameters(prepared: &Self::Prepared) -> &[ParameterType];

    /// The columns a statement gives; `None` when it gives no rows.
    fn columns(prepared: &Self::Prepared) -> Option<Arc<[ColumnDescription]>>;

    /// The columns that a statement gives if it is run now, where that is not told by itself alone: by
    /// FETCH those of its cursor.
    fn columns_now(&self, prepared: &Self::Prepared) -> Option<Arc<[ColumnDescription]>> {
        Self::columns(prepared)
    }

    /// The columns of an open cursor of SQL's, which to the protocol is a portal.
    fn cursor_columns(&self, name: &str) -> Option<Arc<[ColumnDescription]>>;

    /// What names of catalogue entries mean now. A result has them as texts, and their binary
    /// form is a number.
    ///
    /// # Errors
    /// The database is gone.
    fn entry_numbers(&self) -> Result<EntryNumbers, SqlError>;

    /// Whether a statement that has begun may go on where the session stands.
    ///
    /// # Errors
    /// Its transaction block has failed meanwhile.
    fn admit_again(&self, _prepared: &Self::Prepared) -> Result<(), SqlError> {
        Ok(())
    }

    /// Runs a statement.
    fn execute(
        &mut self,
        statement: &Self::Statement,
    ) -> impl Future<Output = Result<Outcome, SqlError>> + Send;

    /// Runs a prepared statement with values of the types `parameters[i].carrier()`.
    fn execute_prepared(
        &mut self,
        prepared: &Self::Prepared,
        parameters: &Arc<[Value]>,
    ) -> impl Future<Output = Result<Outcome, SqlError>> + Send;

    /// Says that the statements to come belong together, so that they are one transaction.
    fn begin_group(&mut self, group: Group);

    /// Commits what [`Self::begin_group`] has begun.
    fn end_group(&mut self) -> impl Future<Output = Result<(), SqlError>> + Send;

    /// Says that a statement has failed, wherever that was noticed: an open transaction block
    /// takes nothing more until its end then.
    fn fail(&mut self);

    /// Says that the client may send the next statements, and gives where the session stands.
    fn rest(&mut self) -> TransactionStatus;

    /// How long the client may be idle from now on; `None` for no limit.
    fn idle_limit(&mut self) -> Option<IdleLimit>;

    /// Says from where and how the client has come.
    fn set_client(&mut self, client: Client);

    /// The notices since the last call.
    fn take_notices(&mut self) -> Vec<Notice>;

    /// The settings a client is told of that have changed since the last call.
    fn parameter_changes(&mut self) -> Vec<(String, String)>;

    /// The settings a client is told of when it comes in, where the session knows better than
    /// the gateway.
    fn reported_parameters(&self) -> Vec<(String, String)>;

    /// How the client is written to from now on.
    fn client_settings(&mut self) -> ClientSettings;
}
