//! Data that was lost: what the model makes of it, and which callers have to learn of it.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use creamery_base::{InodeId, Wait};
use creamery_fs::OpenFile;

use super::{Driver, Opener};
use crate::delayed_data::{Loss, SECTOR, explains};
use crate::operation::{Outcome, time_set};
use crate::seen_errors::Around;
use crate::unread::Unread;

/// A file of `size` bytes, and the sectors that cannot be read: those are taken to be as they are in `now`.
fn readable(file: &OpenFile, size: usize, now: &[u8]) -> Result<(Vec<u8>, BTreeSet<usize>)> {
    let mut found = now.to_vec();
    found.resize(size, 0);
    let mut unread = BTreeSet::new();
    for (number, sector) in found.chunks_mut(SECTOR).enumerate() {
        let mut read = vec![0; sector.len()];
        match file.read_at((number * SECTOR) as u64, &mut read, Wait::Yes) {
            Ok(count) => {
                ensure!(count == read.len(), "{count} bytes of sector {number}, of {size} bytes");
                sector.copy_from_slice(&read);
            }
            Err(_) => drop(unread.insert(number)),
        }
    }
    Ok((found, unread))
}

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
        let mut looked_at = self.model.unread();
        if before != failures {
            looked_at.extend(self.model.unsynced());
        }
        for id in looked_at {
            let node = &self.model.nodes[&id];
            let before = node.unread.as_ref().map_or(before, |unread| unread.after);
            let (Ok(stat), Ok(file)) = (self.fs.stat(self.id(id), Wait::Yes), self.handle(id)) else {
                self.model.node_mut(id).unread = Some(Unread { after: before, sectors: None });
                continue;
            };
            let mtime = time_set(stat.times.modification.sec);
            let (versions, now) = node.unsynced().context("it has some")?;
            let (found, sectors) = readable(&file, usize::try_from(stat.size)?, now)?;
            let is_lost = found != **now || mtime != node.mtime;
            ensure!(
                !is_lost || explains(&versions, &found, mtime),
                "file {id} has something else after a loss"
            );
            let unread = (!sectors.is_empty()).then_some(Unread { after: before, sectors: Some(sectors) });
            self.model.node_mut(id).unread = unread;
            if is_lost {
                self.errors.lose(id, before);
                self.losses.push(Loss { file: id, content: found.clone(), mtime });
                self.model.set_content(id, found);
                self.model.node_mut(id).mtime = mtime;
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
            let done = self.open[at].file.sync();
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
