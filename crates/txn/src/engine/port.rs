//! The engine as components beside it see it.

use creamery_base::{Generation, Result};

use super::Engine;
use crate::handle::Handle;
use crate::reserve_items::ReserveItems;
use crate::transaction_port::TransactionPort;

impl TransactionPort for Engine {
    fn check_writable(&self) -> Result<()> {
        self.check_writable()
    }

    fn start(&self, units: ReserveItems) -> Result<Handle<'_>> {
        self.start(units)
    }

    fn commit(&self) -> Result<()> {
        self.commit()
    }

    fn commit_through(&self, generation: Generation) -> Result<()> {
        self.commit_through(generation)
    }

    fn end_write_out(&self) -> Result<()> {
        self.end_write_out()
    }
}
