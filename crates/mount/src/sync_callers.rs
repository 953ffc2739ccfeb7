//! The users of a mount that call sync: each gets the error of a data loss once, independent of the others.
//!
//! A program that makes a mount durable opens it for that, so the open file has no history; its user does. So an
//! unprivileged user's sync leaves the report to root's.

use std::collections::BTreeMap;
use std::sync::Arc;

use creamery_base::lock::{RankedMutex, rank};
use creamery_fs::SyncCaller;

use crate::asker::Asker;

/// The users that have called sync; all users that are not visible here count as one.
#[derive(Default)]
pub(crate) struct SyncCallers(RankedMutex<BTreeMap<Option<u32>, Arc<SyncCaller>>, { rank::LEAF }>);

impl SyncCallers {
    /// The caller for the user of the thread `pid`.
    pub(crate) fn of(&self, pid: u32) -> Arc<SyncCaller> {
        self.of_user(Asker::of(pid).user())
    }

    fn of_user(&self, user: Option<u32>) -> Arc<SyncCaller> {
        Arc::clone(self.0.lock().entry(user).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_is_a_caller_of_its_own() {
        let callers = SyncCallers::default();
        let [first, again, root, unseen] =
            [Some(7), Some(7), Some(0), None].map(|user| callers.of_user(user));
        assert!(Arc::ptr_eq(&first, &again));
        assert!(!Arc::ptr_eq(&first, &root) && !Arc::ptr_eq(&root, &unseen));
    }
}
