//! Bad data whose files are not known yet: checksums are read before files.

use std::collections::BTreeMap;

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{ObjectId, Physical, TreeId};
use creamery_format::{Key, KeyType};

use crate::damaged_sector::{DamagedFile, DamagedSector};
use crate::problem::Problem;
use crate::report::{ProblemSite, Sink};

/// A sector with a bad copy.
pub(crate) struct BadSector {
    pub(crate) logical: u64,
    /// The place of the copy.
    pub(crate) at: Option<Physical>,
    pub(crate) problem: Problem,
    pub(crate) why: String,
}

/// The place of a sector in a file: tree, inode, byte of the file.
type Owner = (TreeId, ObjectId, u64);

/// Bad sectors by address, with one file for each.
pub(crate) struct BadData {
    sectors: BTreeMap<u64, Vec<BadSector>>,
    owners: RankedMutex<BTreeMap<u64, Owner>, { rank::LEAF }>,
}

impl BadData {
    pub(crate) fn new(found: Vec<BadSector>) -> Self {
        let mut sectors: BTreeMap<u64, Vec<BadSector>> = BTreeMap::new();
        for sector in found {
            sectors.entry(sector.logical).or_default().push(sector);
        }
        Self { sectors, owners: RankedMutex::new(BTreeMap::new()) }
    }

    /// Notes that a file has the data of `[start, end)`; `offset` gives the byte of the file for an address.
    pub(crate) fn claim(
        &self,
        (start, end): (u64, u64),
        tree: TreeId,
        ino: ObjectId,
        offset: impl Fn(u64) -> u64,
    ) {
        // Nearly always no sector is bad.
        if self.sectors.is_empty() || start >= end {
            return;
        }
        for logical in self.sectors.range(start..end).map(|(logical, _)| *logical) {
            let owner = (tree, ino, offset(logical));
            let mut owners = self.owners.lock();
            // Of several files the first one counts, regardless of the order of threads.
            owners.entry(logical).and_modify(|old| *old = owner.min(*old)).or_insert(owner);
        }
    }

    /// The number of bad sectors.
    pub(crate) fn len(&self) -> usize {
        self.sectors.values().map(Vec::len).sum()
    }

    /// Whether any of the data of `[start, end)` is bad.
    pub(crate) fn touches(&self, start: u64, end: u64) -> bool {
        start < end && self.sectors.range(start..end).next().is_some()
    }

    /// Reports all bad sectors, with the file if one is known.
    pub(crate) fn report(self, sink: &Sink) {
        let owners = self.owners.into_inner();
        for (logical, sectors) in self.sectors {
            let owner = owners.get(&logical);
            let place = owner.map_or_else(ProblemSite::default, |(tree, ino, offset)| ProblemSite {
                inode: Some(ino.get()),
                ..ProblemSite::key(*tree, Key::new(*ino, KeyType::EXTENT_DATA, *offset))
            });
            for sector in sectors {
                let message = match owner {
                    Some((_, ino, offset)) => {
                        format!("byte {offset} of inode {ino}, logical {logical}: {}", sector.why)
                    }
                    None => format!("logical {logical}: {}", sector.why),
                };
                let files = owner.map(|(tree, ino, offset)| DamagedFile::new(*tree, *ino, *offset));
                let damaged = DamagedSector {
                    logical,
                    devid: sector.at.map(|at| at.dev.get()),
                    device_offset: sector.at.map(|at| at.offset),
                    files: files.into_iter().collect(),
                    more_files: 0,
                };
                let place = ProblemSite { sector: Some(Box::new(damaged)), ..place.clone() };
                sink.add(sector.problem, place, message);
            }
        }
    }
}
