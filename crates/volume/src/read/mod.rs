//! Reading tree blocks and data: copy after copy until one is good.
//!
//! Copies are read in the order of their members' states (`members`), each piece of a range by itself; data with parity can be rebuilt
//! (`ways`). A tree block that no way returns whole is put together from all of them (`by_sector`).

mod attempt;
mod by_sector;
mod data;
mod full_stripes;
mod pieces;
mod search;
mod submit;
mod verdict;
mod ways;

use creamery_base::{DamagedBlock, Error, ErrorKind, Logical, Result, Wait};
use creamery_device::AlignedBuffer;
use creamery_format::{BlockRef, Expected, verify_block, verify_block_but_checksum};

use attempt::Attempt;
pub use full_stripes::FullStripes;
pub use submit::{ReadBatch, ReadDone, ReadReport, SharedVerifier};
pub use verdict::Verdict;
use ways::Kind;
pub use ways::{ReadWay, Ways};

use crate::index::index;
use crate::volume::Volume;

/// Called with the ways that returned a bad tree block, and its good bytes.
type TookBlock<'t> = &'t dyn Fn(&[(ReadWay, Error)], &[u8]);

impl Volume {
    /// Reads the tree block at `at`, which is the address in `want`, from the first copy that is as expected. If there is none, puts it
    /// together from all of them (`by_sector`).
    /// Bad copies before it are rewritten if the volume is open for writing.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] for [`Wait::No`]; [`ErrorKind::Unreadable`] or [`ErrorKind::Io`] if no copy is
    /// good, with the result of each; [`ErrorKind::Corrupt`] if no chunk covers the address.
    pub fn read_tree_block(&self, at: Logical, want: &Expected, wait: Wait) -> Result<AlignedBuffer> {
        self.search_tree_block(at, want, wait, &|bad, good| self.repair_tree_block(bad, good, want))
    }

    /// Reads a tree block like [`read_tree_block`](Self::read_tree_block), but rewrites nothing: for callers that only look, or have a
    /// [`Mender`](crate::Mender) that rewrites.
    ///
    /// # Errors
    /// Those of [`read_tree_block`](Self::read_tree_block).
    pub fn find_tree_block(&self, at: Logical, want: &Expected, wait: Wait) -> Result<AlignedBuffer> {
        self.search_tree_block(at, want, wait, &|_, _| ())
    }

    /// Tries the ways. `took` gets those that were bad, and the good bytes.
    fn search_tree_block(
        &self,
        at: Logical,
        want: &Expected,
        wait: Wait,
        took: TookBlock<'_>,
    ) -> Result<AlignedBuffer> {
        assert_eq!(at, want.logical);
        if !wait.allowed() {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.counters.tree_block_reads.add(1);
        let doing = || format!("reading the tree block at logical {at}");
        if !at.is_aligned(u64::from(self.sector_size())) {
            return Err(Error::new(ErrorKind::Corrupt, format!("{}: the address is not aligned", doing())));
        }
        let ways = || self.ways(at, self.node_size().into()).map_err(|error| error.context(doing()));
        let mut block = AlignedBuffer::zeroed(index(self.node_size()));
        let mut bad = Vec::new();
        for way in ways()? {
            let read = self.read_way(&way, at, &mut block);
            match read.and_then(|()| self.verify_read(&block, want).map_err(Error::from)) {
                Ok(()) => {
                    if !bad.is_empty() {
                        self.counters.mirror_fallbacks.add(1);
                        took(&bad, &block);
                    }
                    return Ok(block);
                }
                Err(error) => bad.push((way, error)),
            }
        }
        if bad.len() > 1 && self.read_by_sector(want, &mut block) {
            self.counters.mirror_fallbacks.add(1);
            took(&bad, &block);
            return Ok(block);
        }
        if self.rescue().ignore_meta_csums {
            for way in ways()? {
                if self.read_way(&way, at, &mut block).is_ok()
                    && verify_block_but_checksum(&block, want).is_ok()
                {
                    return Ok(block);
                }
            }
        }
        self.counters.unreadable.add(1);
        Err(no_good_copy(DamagedBlock::Tree(at), &bad))
    }

    /// Reads a range that begins at `at` in one of its ways.
    ///
    /// # Errors
    /// A device is missing, or fails.
    pub fn read_way(&self, way: &ReadWay, at: Logical, out: &mut [u8]) -> Result<()> {
        match &way.0 {
            Kind::Copy(mirror, _) => self.read_pieces(mirror, out),
            Kind::Without { .. } => self.read_attempt(&Attempt::of(way, at, out.len() as u64)?, out),
        }
    }

    /// Reads adjacent tree blocks, with one request for each device that has some, from their first copies. For callers that
    /// can do without: a block that is not as expected is `None`, and is neither repaired nor counted as unreadable.
    pub fn read_tree_blocks(&self, wants: &[Expected]) -> Vec<Option<AlignedBuffer>> {
        let node_size = index(self.node_size());
        let mut all = AlignedBuffer::zeroed(wants.len() * node_size);
        let Some(first) = wants.first() else { return Vec::new() };
        self.counters.tree_block_reads.add(wants.len() as u64);
        let read = self.ways(first.logical, all.len() as u64).and_then(|mut ways| match ways.next() {
            Some(way) => self.read_way(&way, first.logical, &mut all),
            None => Err(ErrorKind::Io.into()),
        });
        let verified = |(number, want): (usize, &Expected)| {
            assert_eq!(want.logical, first.logical + (number * node_size) as u64, "blocks side by side");
            let block = &all[number * node_size..(number + 1) * node_size];
            let is_good = read.is_ok() && self.verify_read(block, want).is_ok();
            is_good.then(|| AlignedBuffer::from_slice(block))
        };
        wants.iter().enumerate().map(verified).collect()
    }

    /// Rewrites the bad copies.
    fn repair_tree_block(&self, bad: &[(ReadWay, Error)], good: &[u8], want: &Expected) {
        if self.repair_later(want) {
            return;
        }
        let anything = Expected { level: None, generation: None, owner: None, first_key: None, ..*want };
        for (way, _) in bad {
            self.repair(way.direct(), good, 1, &|now| {
                let Err(_) = self.verify_read(now, want) else { return false };
                // An intact block of this place with a later generation is not damage: the space was freed and written
                // anew, and the reader of the old block is late. The new block must not be undone.
                let newer = verify_block(now, &anything).is_ok()
                    && BlockRef::new(now).generation() > BlockRef::new(good).generation();
                !newer
            });
        }
    }
}

/// Ways that an error lists.
const LISTED: usize = 4;

/// Returns an error that lists the result of each copy in one line.
fn no_good_copy(block: DamagedBlock, bad: &[(ReadWay, Error)]) -> Error {
    let is_io = bad.iter().all(|(_, error)| error.kind() == ErrorKind::Io);
    let kind = if is_io { ErrorKind::Io } else { ErrorKind::Unreadable };
    let told = |error: &Error| if error.kind() == kind { error.without_kind() } else { error.to_string() };
    let listed = bad.iter().take(LISTED).enumerate();
    let mut list: Vec<String> = listed
        .map(|(number, (way, error))| match way.is_rebuilt() {
            true => format!("{way}: {}", told(error)),
            false => format!("copy {} ({way}): {}", number + 1, told(error)),
        })
        .collect();
    if let more @ 1.. = bad.len().saturating_sub(LISTED) {
        list.push(format!("{more} other ways to rebuild it"));
    }
    Error::new(kind, format!("reading {block}: no good copy: {}", list.join("; "))).of_block(block)
}
