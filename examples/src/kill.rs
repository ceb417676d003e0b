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
