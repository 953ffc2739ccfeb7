//! Data that was lost: what the model makes of it, and which callers have to learn of it.

use anyhow::{Context, Result, ensure};
use creamery_base::{InodeId, Wait};

use super::{Driver, Opener};
use crate::delayed_data::{Loss, explains};
use crate::operation::{Outcome, time_set};
use crate::seen_errors::Around;

impl Driver {
    /// From now on the device may fail.
    pub(crate) fn expect_losses(&mut self) {
        self.model.lossy = true;
    }

    /// The losses since the last call, for a run that follows what each commit has.
    pub(crate) fn take_losses(&mut self) -> Vec<Loss> {
        std::mem::take(&mut self.losses)
    }

    /// Delayed data that could not be written is lost: the file has what it had in some version before, sector by sector.
    pub(super) fn accept_losses(&mut self) -> Result<()> {
        let failures = self.failures();
        let before = std::mem::replace(&mut self.lost, failures);
        if before == failures {
            return Ok(());
        }
        for id in self.model.unsynced() {
            let (Ok(stat), Ok(file)) = (self.fs.stat(self.id(id), Wait::Yes), self.handle(id)) else {
                continue;
            };
            let mut found = vec![0; usize::try_from(stat.size)?];
            // What cannot be read is compared when it can be.
            if file.read_at(0, &mut found, Wait::Yes).is_err() {
                continue;
            }
            let node = &self.model.nodes[&id];
            let mtime = time_set(stat.times.modification.sec);
            let (versions, now) = node.unsynced().context("it has some")?;
            if found != **now || mtime != node.mtime {
                ensure!(explains(&versions, &found, mtime), "file {id} has something else after a loss");
                self.errors.lose(id, before);
                self.losses.push(Loss { file: id, content: found.clone(), mtime });
                self.model.set_content(id, found);
                self.model.nodes.get_mut(&id).context("a file")?.mtime = mtime;
            }
        }
        Ok(())
    }

    /// Runs of delayed data that were lost so far.
    pub(super) fn failures(&self) -> u64 {
        self.fs.statistics().writeback.failures
    }

    /// Asks for a sync of all, which has to report every failure once.
    pub(super) fn sync_that_reports(&mut self) -> Result<creamery_base::Result<(Outcome, Option<InodeId>)>> {
        let before = self.failures();
        let done = self.fs.sync();
        let around = Around { before, after: self.failures() };
        self.errors.sync(around, done.as_ref().err())?;
        Ok(done.map(|()| (Outcome::Done, None)))
    }

    /// Lets every opener of a file ask for an fsync of it, and one that comes now. Gives the first failure.
    pub(super) fn fsync_by_all(
        &mut self,
        inode: u64,
    ) -> Result<creamery_base::Result<(Outcome, Option<InodeId>)>> {
        let file = match self.fs.open_file(self.id(inode)) {
            Ok(file) => file,
            Err(error) => return Ok(Err(error)),
        };
        self.open.push(Opener { inode, file, place: self.errors.opened(inode) });
        let mut first = Ok((Outcome::Done, None));
        for at in 0..self.open.len() {
            if self.open[at].inode != inode {
                continue;
            }
            let before = self.failures();
            let done = self.open[at].file.sync(false);
            let around = Around { before, after: self.failures() };
            let opener = &mut self.open[at];
            self.errors.fsync(inode, opener.place, around, done.as_ref().err())?;
            opener.place = around;
            first = first.and_then(|outcome| done.map(|()| outcome));
        }
        self.open.pop();
        Ok(first)
    }
}
