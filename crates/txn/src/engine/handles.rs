//! Beginning handles.

use creamery_base::Result;

use super::Engine;
use crate::handle::{Handle, HandleKind};
use crate::held;
use crate::reserve_items::ReserveItems;
use crate::space_info::Ticket;
use crate::transaction::Joined;

impl Engine {
    /// Joins the running transaction after reserving metadata for `units`.
    /// Errors: closed; read-only; aborted; no space; those of a commit that the reservation needed.
    pub fn start(&self, units: ReserveItems) -> Result<Handle<'_>> {
        held::assert_none("a thread holds at most one handle");
        self.check_open()?;
        self.check_writable()?;
        self.commit_if_due()?;
        self.store.prepare();
        self.charge_metadata(units)?;
        let (ticket, running) = self.join_with_promise(units)?;
        self.check_open()?;
        self.check_writable()?;
        Ok(Handle::new(self.handle_ports(), HandleKind::Operation(running, ticket)))
    }

    /// Joins the running transaction, with a promise that was given in it (RESERVE-5).
    fn join_with_promise(&self, units: ReserveItems) -> Result<(Ticket<'_>, Joined<'_>)> {
        loop {
            let ticket = self.promise(units)?;
            let running = self.transaction.join();
            if ticket.generation() == self.generation() {
                return Ok((ticket, running));
            }
            // A commit has closed the promise's transaction meanwhile; only another commit can do that again.
            drop(running);
        }
    }

    /// A handle for a step of running refs.
    pub(super) fn handle_for_refs(&self) -> Result<Handle<'_>> {
        held::assert_none("a thread holds at most one handle");
        let running = self.transaction.join();
        self.check_writable()?;
        Ok(Handle::new(self.handle_ports(), HandleKind::Refs(running)))
    }

    /// The committer's own handle: the gate is closed.
    pub(super) fn committing_handle(&self) -> Handle<'_> {
        Handle::new(self.handle_ports(), HandleKind::Committer)
    }
}
