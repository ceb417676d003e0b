//! The pure parts of milestone: the stored document, the graph, the state machine, limits and errors.
//!
//! Nothing here does I/O or knows a clock: the time comes in with every event, in the database server's time. The runtime moves data and
//! time; what is decided is decided here, so that all of it is tested without a database.
//!
//! # One life
//! ```
//! use bson::DateTime;
//! use milestone_core::{
//!     graph::Action,
//!     lease::claim,
//!     limits::Limits,
//!     machine::{Event, NewMilestone, Task, advance, due_tasks},
//!     record::{Lease, MilestoneRecord, Status},
//! };
//!
//! let (now, until) = (DateTime::from_millis(0), DateTime::from_millis(10_000));
//! let limits = Limits::new();
//!
//! // A graph, and the document of a milestone that a store inserts.
//! let plan = Action::new("debit").next(["credit"]).into_plan(|_method| None)?;
//! let mut record = MilestoneRecord::new(NewMilestone::new("Transfer", plan), now, &limits)?;
//! let mut document = record.to_document()?;
//! assert_eq!(record.state, Status::Pending);
//!
//! // A worker takes it. Each change comes as a patch, which the store applies to the document if `rev` and the lease's token still hold.
//! let lease = Lease { owner: "w".into(), token: "random".into(), since: now, until };
//! claim(&mut record, lease).apply_to(&mut document, 2)?;
//!
//! // It runs what is due, until nothing is.
//! let mut rev = 2;
//! while let Some(task) = due_tasks(&record).first().map(|due| due.task) {
//!     let begin = Event::Begin { tasks: vec![task], worker: "w".into() };
//!     let mut patch = advance(&mut record, begin, now, &limits)?;
//!     let number = record.actions[task.action].attempts;
//!     let succeeded = Event::Succeeded { task, number, output: "done".into() };
//!     patch.merge(advance(&mut record, succeeded, now, &limits)?);
//!     rev += 1;
//!     patch.apply_to(&mut document, rev)?;
//! }
//! assert_eq!(record.state, Status::Completed);
//! assert_eq!(document.get_str("state")?, "completed");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How to read it
//! 1. [`record`]: what is stored, field by field, and [`record::MilestoneRecord::from_document`], which reads it.
//! 2. [`graph`]: where the actions of a milestone come from: const data that `milestone!` writes, or a tree built at run time; both become a
//!    validated [`graph::Plan`].
//! 3. [`machine`]: [`machine::advance`] carries out an [`machine::Event`] and says what changed. Each file of it has one concern:
//!    attempts, commands, undoing, what is due, the report; what follows from an event is in `propagate`. [`machine::check`] says what is
//!    true of every stored milestone.
//! 4. [`patch`]: a change as paths and values, applied in memory or rendered as an update for `MongoDB`.
//! 5. [`lease`]: who may work on a milestone. [`options`] and [`retry`]: what a developer says about an action. [`limits`]: how large
//!    things may become. [`waits`]: what a milestone waits for, for people.
//!
//! The states and who moves them are drawn in `docs/states.md`.

pub mod graph;
pub mod lease;
pub mod limits;
pub mod machine;
pub mod options;
pub mod patch;
pub mod record;
pub mod retry;
pub mod verdict;
pub mod waits;
