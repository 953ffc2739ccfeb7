//! The way of a component beside the engine to change trees, in a transaction that other threads share.

use creamery_base::{Generation, Result};

use crate::handle::Handle;
use crate::reserve_items::ReserveItems;

/// Begins handles and commits. The engine implements it for components that it composes and that do not depend on it.
pub(crate) trait TransactionPort: Sync {
    /// Checks that the filesystem can be written.
    /// Errors: read-only, with the reason.
    fn check_writable(&self) -> Result<()>;

    /// Joins the running transaction ([`Engine::start`](crate::Engine::start)).
    fn start(&self, units: ReserveItems) -> Result<Handle<'_>>;

    /// Commits the running transaction ([`Engine::commit`](crate::Engine::commit)).
    fn commit(&self) -> Result<()>;

    /// Makes transaction `generation` durable ([`Engine::commit_through`](crate::Engine::commit_through)).
    fn commit_through(&self, generation: Generation) -> Result<()>;

    /// Waits until the transaction that closed last is durable, and writes batches of it meanwhile.
    /// Errors: those of the devices; the failure of another thread.
    fn end_write_out(&self) -> Result<()>;
}
