//! Death at the worst moment.

/// The action after whose effect, and before its completion is stored, the process dies.
pub struct KillAfter(pub Option<String>);

impl KillAfter {
    /// Dies, if that is the action.
    pub fn reached(&self, action: &str) {
        if self.0.as_deref() == Some(action) {
            eprintln!("killed after {action}; run it again without --kill-after");
            std::process::abort();
        }
    }
}

/// The action in whose middle the process dies, and where in it.
pub struct KillIn {
    /// The action; none, and nobody dies.
    pub action: Option<String>,
    /// Where in it.
    pub moment: Moment,
}

/// A moment of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Moment {
    /// It has begun, and has had no effect yet.
    Before,
    /// It has had its effect, and its completion is not stored yet.
    After,
}

impl KillIn {
    /// Dies, if that is the action and the moment.
    pub fn reached(&self, action: &str, moment: Moment) {
        if self.action.as_deref() == Some(action) && self.moment == moment {
            eprintln!("killed in {action}; run it again without --kill-in");
            std::process::abort();
        }
    }
}
