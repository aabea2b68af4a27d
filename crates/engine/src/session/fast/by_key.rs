//! A statement by key, as the guard has it run.

use std::sync::Arc;

use aerostat_api::Value;
use aerostat_fast::Kind;

use super::FastStatement;
use crate::session::Prepared;

/// A statement by key that is to run.
#[derive(Clone, Copy)]
pub(in crate::session) struct ByKey<'a> {
    pub(super) fast: &'a FastStatement,
    /// Nothing for a statement that was not prepared.
    pub(super) parameters: Option<&'a Arc<[Value]>>,
    /// What has told its client of the columns it returns.
    pub(super) told: Option<&'a Prepared>,
}

impl<'a> ByKey<'a> {
    /// One of the simple protocol.
    pub(in crate::session) fn sent(fast: &'a FastStatement) -> Self {
        Self {
            fast,
            parameters: None,
            told: None,
        }
    }

    /// One that was prepared, with its parameters.
    pub(in crate::session) fn prepared(
        fast: &'a FastStatement,
        parameters: &'a Arc<[Value]>,
        prepared: &'a Prepared,
    ) -> Self {
        Self {
            fast,
            parameters: Some(parameters),
            told: Some(prepared),
        }
    }

    /// Its text as others see it.
    pub(in crate::session) fn text(&self) -> &'a str {
        self.fast.text.trim_start()
    }

    /// The kind that metrics tell apart.
    pub(in crate::session) fn kind(&self) -> &'static str {
        match self.fast.shape.kind() {
            Kind::Select => "select",
            Kind::Insert => "insert",
            Kind::Update => "update",
            Kind::Delete => "delete",
        }
    }
}
