//! The engine as whoever serves clients knows it: the traits of `aerostat_api`.

use std::{future::Future, sync::Arc};

use aerostat_api::{
    Backend, BackendSession, Canceller, Client, ClientSettings, ColumnDescription, Controls,
    Copies, EntryNumbers, Group, IdleLimit, Kept, Leader, Notice, Notification, OtherNodes,
    Outcome, OwnCopy, ParameterType, Reads, Resumed, RoleInfo, TransactionStatus, Value,
};
use aerostat_catalog::admin::Node;
use aerostat_types::{NodeId, SqlError, text::parse_bool};

use crate::{
    engine::Engine,
    memory::Held,
    session::{Prepared, Sent, Session},
};

impl Backend for Engine {
    type Session = Session;

    fn role(&self, name: &str) -> Option<RoleInfo> {
        Engine::role(self, name)
    }

    async fn ask_role(self: &Arc<Self>, name: &str) -> Option<RoleInfo> {
        let known = Engine::role(self, name);
        let may_enter = known.as_ref().is_some_and(|role| role.login);
        if may_enter || self.others().is_none() {
            return known;
        }
        self.hear().await;
        Engine::role(self, name)
    }

    async fn connect(
        self: &Arc<Self>,
        role: &str,
        database: &str,
        settings: &[(String, String)],
    ) -> Result<Session, SqlError> {
        let connection = self.connection(role, database).await?;
        Session::new(Arc::clone(self), connection, role, settings)
    }

    async fn resume(
        self: &Arc<Self>,
        role: &str,
        database: &str,
        settings: &[(String, String)],
        state: &[u8],
    ) -> Result<Resumed<Session>, SqlError> {
        let connection = self.connection(role, database).await?;
        Session::resume(Arc::clone(self), connection, role, settings, state).await
    }

    fn reads(&self, settings: &[(String, String)]) -> Reads {
        let last = |wanted: &str| {
            let mut all = settings.iter().rev();
            let found = all.find(|(name, _)| name.eq_ignore_ascii_case(wanted));
            found.map(|(_, value)| value.as_str())
        };
        let is_read_only = || {
            last("default_transaction_read_only").is_some_and(|on| parse_bool(on).unwrap_or(false))
        };
        match last("aerostat.read_from") {
            Some(from) if from.eq_ignore_ascii_case("any") => Reads::Here,
            None if is_read_only() => Reads::Any,
            _ => Reads::Leader,
        }
    }

    fn leader(&self, database: &str) -> Leader {
        match self.others() {
            Some(_) => self.node().leader(database),
            None => Leader::Here,
        }
    }

    async fn ask_leader(self: &Arc<Self>, database: &str) -> Leader {
        let (node, others) = (Arc::clone(self.node()), self.others());
        // The keeper hears of all else in time; many may wait for a leader.
        if node.leader(database) == Leader::NoDatabase {
            self.hear().await;
        }
        let database = database.to_owned();
        // It may wait for what the cluster shares.
        let asked = self.queries().spawn_blocking(move || {
            let known = node.leader(&database);
            let record = node.record();
            let entry = record.databases.get(&database);
            match (known, others, entry) {
                (Leader::Unknown, Some(others), Some(entry)) => {
                    let leader = others.leader_of(entry.oid).filter(|id| !node.is(*id));
                    leader.map_or(Leader::Unknown, Leader::Node)
                }
                _ => known,
            }
        });
        asked.await.unwrap_or(Leader::Unknown)
    }

    async fn ask_copies(self: &Arc<Self>, database: &str) -> Option<Copies> {
        let (node, others) = (Arc::clone(self.node()), self.others()?);
        // Whoever looks after a node whose threads all wait is let in.
        if let Some((own, members)) = node.try_own_copy(database)
            && !members.is_empty()
        {
            return Some(copies(&node, &*others, own, members));
        }
        if !node.record().databases.contains_key(database) {
            self.hear().await;
        }
        let database = database.to_owned();
        let asked = self.queries().spawn_blocking(move || {
            let (own, mut members) = node.own_copy(&database)?;
            if members.is_empty() {
                let record = node.record();
                let entry = record.databases.get(&database)?;
                members = others.copies_of(entry.oid);
            }
            Some(copies(&node, &*others, own, members))
        });
        asked.await.ok().flatten()
    }

    fn others(&self) -> Option<Arc<dyn OtherNodes>> {
        Engine::others(self)
    }
}

/// A node's copy and those of others, with what the nodes have to do.
fn copies(node: &Node, others: &dyn OtherNodes, own: OwnCopy, members: Vec<NodeId>) -> Copies {
    let loads = members.into_iter().map(|id| (id, others.load_of(id)));
    let (own_load, others): (Vec<_>, Vec<_>) = loads.partition(|(id, _)| node.is(*id));
    Copies {
        own,
        own_load: own_load.first().map_or(0.0, |(_, load)| *load),
        others,
    }
}

impl BackendSession for Session {
    type Statement = Sent;
    type Prepared = Prepared;

    type Held = Held;

    fn hold(&self, bytes: usize) -> Result<Held, SqlError> {
        Session::hold(self, bytes)
    }

    fn number(&self) -> i32 {
        Session::number(self)
    }

    fn canceller(&self) -> Canceller {
        let handle = self.cancel_handle();
        Arc::new(move || handle.cancel())
    }

    fn set_controls(&mut self, controls: Controls) {
        Session::set_controls(self, controls);
    }

    fn leave(&self, unnamed: Option<&Kept<Prepared>>) -> Option<Vec<u8>> {
        Session::leave(self, unnamed)
    }

    fn notified(&self) -> impl Future<Output = ()> + Send {
        Session::notified(self)
    }

    fn take_notifications(&mut self) -> Vec<Arc<Notification>> {
        Session::take_notifications(self)
    }

    fn split(&mut self, sql: &str) -> impl Future<Output = Result<Vec<Sent>, SqlError>> + Send {
        Session::split(self, sql)
    }

    fn prepare(
        &mut self,
        sql: &str,
        parameter_oids: &[u32],
    ) -> impl Future<Output = Result<Prepared, SqlError>> + Send {
        Session::prepare(self, sql, parameter_oids)
    }

    fn admit_name(&self, name: &str) -> Result<(), SqlError> {
        Session::admit_name(self, name)
    }

    fn keep(
        &mut self,
        name: &str,
        prepared: Arc<Prepared>,
        parameter_oids: Arc<[u32]>,
        held: Held,
    ) {
        Session::keep(self, name, prepared, parameter_oids, held);
    }

    fn kept(&self, name: &str) -> Option<Kept<Prepared>> {
        Session::named(self, name)
    }

    fn kept_to_run(&self, name: &str) -> Option<Arc<Prepared>> {
        Session::named_to_run(self, name)
    }

    fn forget(&mut self, name: &str) {
        Session::forget(self, name);
    }

    fn parameters(prepared: &Prepared) -> &[ParameterType] {
        &prepared.parameters
    }

    fn columns(prepared: &Prepared) -> Option<Arc<[ColumnDescription]>> {
        prepared.columns.clone()
    }

    fn admit_again(&self, prepared: &Prepared) -> Result<(), SqlError> {
        Session::admit_again(self, prepared)
    }

    fn execute(
        &mut self,
        statement: &Sent,
    ) -> impl Future<Output = Result<Outcome, SqlError>> + Send {
        Session::execute(self, statement)
    }

    fn execute_prepared(
        &mut self,
        prepared: &Prepared,
        parameters: &Arc<[Value]>,
    ) -> impl Future<Output = Result<Outcome, SqlError>> + Send {
        Session::execute_prepared(self, prepared, parameters)
    }

    fn columns_now(&self, prepared: &Prepared) -> Option<Arc<[ColumnDescription]>> {
        Session::columns_now(self, prepared)
    }

    fn cursor_columns(&self, name: &str) -> Option<Arc<[ColumnDescription]>> {
        Session::cursor_columns(self, name)
    }

    fn entry_numbers(&self) -> Result<EntryNumbers, SqlError> {
        Session::entry_numbers(self)
    }

    fn begin_group(&mut self, group: Group) {
        Session::begin_group(self, group);
    }

    fn end_group(&mut self) -> impl Future<Output = Result<(), SqlError>> + Send {
        Session::end_group(self)
    }

    fn fail(&mut self) {
        Session::fail(self);
    }

    fn rest(&mut self) -> TransactionStatus {
        Session::rest(self)
    }

    fn idle_limit(&mut self) -> Option<IdleLimit> {
        Session::idle_limit(self)
    }

    fn set_client(&mut self, client: Client) {
        Session::set_client(self, client);
    }

    fn take_notices(&mut self) -> Vec<Notice> {
        Session::take_notices(self)
    }

    fn parameter_changes(&mut self) -> Vec<(String, String)> {
        Session::parameter_changes(self)
    }

    fn reported_parameters(&self) -> Vec<(String, String)> {
        Session::reported_parameters(self)
    }

    fn client_settings(&mut self) -> ClientSettings {
        Session::client_settings(self)
    }
}
