//! The body of an action: run on the application's executor, with panics caught and its end always told.

use std::{
    backtrace::Backtrace,
    cell::RefCell,
    panic::{self, AssertUnwindSafe, PanicHookInfo},
    pin::Pin,
    sync::{
        Arc, Once,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context as TaskContext, Poll},
};

use bson::Bson;
use milestone_core::record::{AttemptError, AttemptKind};
use tokio::sync::mpsc::UnboundedSender;

use super::message::Message;
use crate::{
    action::{ActionFuture, Call, Ending, Failure, readable},
    mongo::tx,
    registry::Function,
};

thread_local! {
    /// Set while a body is polled on this thread: where its panic is noted.
    static PANIC: RefCell<Watch> = const { RefCell::new(Watch::Off) };
}

/// Whether panics of this thread are a body's, and what the hook has seen of one.
#[derive(Default)]
enum Watch {
    #[default]
    Off,
    On,
    Seen(Noted),
}

/// What the hook has seen of a panic.
struct Noted {
    location: Option<String>,
    backtrace: String,
}

/// Notes the place and the stack of panics in bodies, and leaves everything else to the hook that was there before.
pub(crate) fn install_panic_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info: &PanicHookInfo<'_>| {
            PANIC.with_borrow_mut(|slot| {
                if matches!(slot, Watch::On) {
                    *slot = Watch::Seen(Noted {
                        location: info.location().map(ToString::to_string),
                        backtrace: readable(&Backtrace::force_capture().to_string()),
                    });
                }
            });
            before(info);
        }));
    });
}

/// Runs a body. Its end is told by the guard, which is made before the body is given to the executor: also if that drops it at once.
pub(crate) async fn run(mut guard: Guard, function: Function, call: Call) {
    if !guard.start.begin() {
        return;
    }
    let action = call.context().action().to_owned();
    // Dropped before the guard tells of the end.
    let _ending = Ending(call.context().clone());
    if let Err(failure) = tx::settle_before_undo(&call).await {
        guard.result = Some(Err(failure));
        return;
    }
    let mut result = Caught {
        function: Some((function, call)),
        future: None,
    }
    .await;
    if let Err(failure) = &mut result
        && failure.kind == Some(AttemptKind::Refused)
    {
        // What refuses an output knows neither whose it is nor what follows.
        let reason = &failure.error.message;
        failure.error.message =
            format!("`{action}` took effect, but {reason}; it is not run again");
    }
    guard.result = Some(result);
}

/// Whether a body has begun: its executor begins it, or the engine revokes it before; one of them is first.
#[derive(Debug, Default)]
pub(crate) struct Start(AtomicU8);

impl Start {
    const NEW: u8 = 0;
    const BEGUN: u8 = 1;
    const REVOKED: u8 = 2;

    fn begin(&self) -> bool {
        self.turn(Self::BEGUN)
    }

    /// From now on the body cannot begin. `false`: it has begun.
    pub(crate) fn revoke(&self) -> bool {
        self.turn(Self::REVOKED)
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.0.load(Ordering::SeqCst) == Self::BEGUN
    }

    fn turn(&self, into: u8) -> bool {
        self.0
            .compare_exchange(Self::NEW, into, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }
}

/// Tells the engine of the end of a body, also if the task is aborted or its executor shuts down.
pub(crate) struct Guard {
    serial: u64,
    tell: UnboundedSender<Message>,
    start: Arc<Start>,
    result: Option<Result<Bson, Failure>>,
}

impl Guard {
    pub(crate) fn new(serial: u64, tell: UnboundedSender<Message>, start: Arc<Start>) -> Self {
        Self {
            serial,
            tell,
            start,
            result: None,
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let result = self.result.take().unwrap_or_else(|| Err(cut_off()));
        // Without a receiver the runtime is gone, and with it whoever wants to know.
        let _ = self.tell.send(Message::Ended {
            serial: self.serial,
            result,
        });
    }
}

/// An attempt that was dropped in its middle.
fn cut_off() -> Failure {
    Failure {
        error: Box::new(AttemptError {
            kind: "Cancelled".to_owned(),
            message: "the attempt was cut off before it ended".to_owned(),
            ..AttemptError::default()
        }),
        kind: Some(AttemptKind::Cancelled),
        ..Failure::default()
    }
}

/// Polls a body with panics caught.
struct Caught {
    function: Option<(Function, Call)>,
    future: Option<ActionFuture>,
}

impl Future for Caught {
    type Output = Result<Bson, Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Self::Output> {
        PANIC.set(Watch::On);
        let polled = panic::catch_unwind(AssertUnwindSafe(|| {
            let this = &mut *self;
            if let Some((function, call)) = this.function.take() {
                this.future = Some(function(call));
            }
            match &mut this.future {
                Some(future) => future.as_mut().poll(context),
                None => Poll::Pending,
            }
        }));
        let noted = match PANIC.take() {
            Watch::Seen(noted) => Some(noted),
            _ => None,
        };
        match polled {
            Ok(poll) => poll,
            Err(payload) => {
                self.future = None;
                let message = payload
                    .downcast_ref::<&str>()
                    .map(|text| (*text).to_owned())
                    .or_else(|| payload.downcast_ref::<String>().cloned())
                    .unwrap_or_else(|| "a panic with a value that is no text".to_owned());
                // The value may panic again as it is dropped.
                let _ = panic::catch_unwind(AssertUnwindSafe(|| drop(payload)));
                let (location, backtrace) = noted.map_or((None, None), |noted| {
                    (noted.location, Some(noted.backtrace))
                });
                Poll::Ready(Err(Failure {
                    error: Box::new(AttemptError {
                        kind: "panic".to_owned(),
                        message,
                        chain: Vec::new(),
                        backtrace,
                        location,
                    }),
                    kind: Some(AttemptKind::Panic),
                    ..Failure::default()
                }))
            }
        }
    }
}

/// The function of an action, as a registry holds it.
pub(crate) fn plain(call: fn(Call) -> ActionFuture) -> Function {
    Arc::new(call)
}
