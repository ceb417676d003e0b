//! A new milestone.

use std::{collections::BTreeMap, time::Duration};

use bson::{Bson, DateTime};

use crate::{
    graph::{GraphError, Plan, check_name},
    lease::hold_by,
    limits::{LimitError, Limits, check_new},
    patch::Patch,
    record::{
        ActionKind, ActionRecord, ActionState, Lease, MilestoneId, MilestoneRecord, SCHEMA, Status,
        UndoRecord, UndoState, VerifyRecord, VerifyState,
    },
};

use super::{attempts::later, editor::Editor, schedule::schedule};

/// What a milestone is started with.
#[derive(Clone, Debug)]
pub struct NewMilestone {
    /// Its id.
    pub id: MilestoneId,
    /// The name of its type.
    pub kind: String,
    /// Its parameters.
    pub parameters: Bson,
    /// Its graph.
    pub plan: Plan,
    /// For search.
    pub labels: BTreeMap<String, String>,
    /// How long it may take, from its start on; `None` is without end.
    pub deadline: Option<Duration>,
}

impl NewMilestone {
    /// A milestone of that type with a new id, without parameters and without labels.
    #[must_use]
    pub fn new(kind: impl Into<String>, plan: Plan) -> Self {
        Self {
            id: MilestoneId::new(),
            kind: kind.into(),
            parameters: Bson::Null,
            plan,
            labels: BTreeMap::new(),
            deadline: None,
        }
    }
}

/// Why a milestone cannot be started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Its graph or its name is wrong.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// It is too large.
    #[error(transparent)]
    Limit(#[from] LimitError),
}

impl StartError {
    /// A stable code, for programs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Graph(error) => error.code(),
            Self::Limit(error) => error.code(),
        }
    }
}

impl MilestoneRecord {
    /// The record of a new milestone, checked against the limits. Nobody holds it.
    ///
    /// # Errors
    /// [`StartError`] if its name cannot be used or it is too large.
    pub fn new(new: NewMilestone, now: DateTime, limits: &Limits) -> Result<Self, StartError> {
        check_name("a milestone type", &new.kind)?;
        if let MilestoneId::String(id) = &new.id {
            check_id(id)?;
        }
        for label in new.labels.keys() {
            check_label(label)?;
        }
        let actions = new
            .plan
            .into_actions()
            .into_iter()
            .map(|action| ActionRecord {
                kind: if action.method.is_some() {
                    ActionKind::Action
                } else {
                    ActionKind::Fork
                },
                name: action.name,
                method: action.method,
                mode: action.mode,
                after: action
                    .after
                    .into_iter()
                    .filter_map(|index| u32::try_from(index).ok())
                    .collect(),
                queue: action.queue,
                state: ActionState::Pending,
                attempts: 0,
                failures: 0,
                running: None,
                at: None,
                settle_after: None,
                output: None,
                verify: action.verify.map(|method| VerifyRecord {
                    method,
                    state: VerifyState::None,
                    attempts: 0,
                    failures: 0,
                    running: None,
                    at: None,
                }),
                undo: action.undo.map(|method| UndoRecord {
                    method,
                    state: UndoState::None,
                    attempts: 0,
                    failures: 0,
                    running: None,
                    at: None,
                }),
            });
        let mut record = Self {
            id: new.id,
            kind: new.kind,
            schema: SCHEMA,
            parameters: new.parameters,
            state: Status::Pending,
            hold: None,
            unwind: None,
            created_at: now,
            deadline: new.deadline.map(|deadline| later(now, deadline)),
            begin_date: None,
            end_date: None,
            actions: actions.collect(),
            report: Vec::new(),
            report_dropped: 0,
            epoch: 0,
            lease: None,
            losses: 0,
            rev: 1,
            due: Vec::new(),
            next: None,
            inbox: Vec::new(),
            mail: 0,
            answers: Vec::new(),
            priority: 0,
            labels: new.labels,
            expire_at: None,
            trace: None,
        };
        check_new(&record, limits)?;
        Editor::new(&mut record, now, limits).propagate();
        (record.due, record.next) = schedule(&record, now);
        Ok(record)
    }

    /// Gives a new milestone to the worker that stores it: it is born leased.
    pub fn born_leased(&mut self, lease: Lease) {
        self.epoch = 1;
        hold_by(self, lease, &mut Patch::default());
    }
}

/// Labels are searched by path, so their names must be parts of one.
fn check_label(name: &str) -> Result<(), GraphError> {
    check_name("a label", name)?;
    if !name.contains('.') {
        return Ok(());
    }
    Err(GraphError::Name {
        what: "a label",
        name: name.to_owned(),
        reason: "the name of a label cannot hold a dot",
    })
}

fn check_id(id: &str) -> Result<(), GraphError> {
    let reason = if id.is_empty() {
        "an id needs at least one character"
    } else if id.len() > 512 {
        "an id may have 512 bytes"
    } else if id.contains('\0') {
        "an id cannot hold a NUL character"
    } else {
        return Ok(());
    };
    Err(GraphError::Name {
        what: "a milestone",
        name: id.chars().take(64).collect(),
        reason,
    })
}
