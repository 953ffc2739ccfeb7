//! Reading tree blocks and data: copy after copy until one is good.
//!
//! The copies are asked in the order of their members' states (`members`), each piece of a range by itself.

mod data;
mod pieces;
mod verdict;

use creamery_base::{DamagedBlock, Error, ErrorKind, Logical, Result, Wait};
use creamery_device::AlignedBuffer;
use creamery_format::{BlockRef, Expected, verify_block, verify_block_but_checksum};

pub use verdict::Verdict;

use crate::mapping::MirrorSet;
use crate::volume::{Volume, index};

impl Volume {
    /// Reads the tree block at `at`, which is the address in `want`, from the first copy that is as expected.
    /// Bad copies before it are rewritten when the volume is open for writing.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] for [`Wait::No`]; [`ErrorKind::Unreadable`] or [`ErrorKind::Io`] when no copy is
    /// good, with what each of them had; [`ErrorKind::Corrupt`] when the address lies nowhere.
    pub fn read_tree_block(&self, at: Logical, want: &Expected, wait: Wait) -> Result<AlignedBuffer> {
        assert_eq!(at, want.logical);
        if !wait.allowed() {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.counters.tree_block_reads.add(1);
        let doing = || format!("reading the tree block at logical {at}");
        if !at.is_aligned(u64::from(self.sector_size())) {
            return Err(Error::new(ErrorKind::Corrupt, format!("{}: the address is not aligned", doing())));
        }
        let copies =
            self.map_for_reading(at, self.node_size().into()).map_err(|error| error.context(doing()))?;
        let mut block = AlignedBuffer::zeroed(index(self.node_size()));
        let mut errors = Vec::new();
        for (copy, mirror) in copies.mirrors().iter().enumerate() {
            let outcome = self.read_pieces(mirror, &mut block);
            match outcome.and_then(|()| self.verify_read(&block, want).map_err(Error::from)) {
                Ok(()) => {
                    if copy > 0 {
                        self.counters.mirror_fallbacks.add(1);
                        self.repair_tree_block(&copies, copy, &block, want);
                    }
                    return Ok(block);
                }
                Err(error) => errors.push(error),
            }
        }
        if self.rescue().ignore_meta_csums && self.read_by_all_but_checksum(&copies, &mut block, want) {
            return Ok(block);
        }
        self.counters.unreadable.add(1);
        Err(no_good_copy(DamagedBlock::Tree(at), &copies, errors))
    }

    /// Whether a copy is as expected in all but its checksum, which is then in `block`.
    fn read_by_all_but_checksum(&self, copies: &MirrorSet, block: &mut [u8], want: &Expected) -> bool {
        copies.mirrors().iter().any(|mirror| {
            self.read_pieces(mirror, block).is_ok() && verify_block_but_checksum(block, want).is_ok()
        })
    }

    /// Reads tree blocks that lie side by side, with one request for each device that has some, from their first copies. For who
    /// can do without: those that are not as expected are none, and nothing is repaired or counted as unreadable.
    pub fn read_tree_blocks(&self, wants: &[Expected]) -> Vec<Option<AlignedBuffer>> {
        let node_size = index(self.node_size());
        let mut all = AlignedBuffer::zeroed(wants.len() * node_size);
        let Some(first) = wants.first() else { return Vec::new() };
        self.counters.tree_block_reads.add(wants.len() as u64);
        let read = self.map_for_reading(first.logical, all.len() as u64).and_then(|copies| {
            match copies.mirrors().first() {
                Some(mirror) => self.read_pieces(mirror, &mut all),
                None => Err(ErrorKind::Io.into()),
            }
        });
        let verified = |(number, want): (usize, &Expected)| {
            assert_eq!(want.logical, first.logical + (number * node_size) as u64, "blocks side by side");
            let block = &all[number * node_size..(number + 1) * node_size];
            let is_good = read.is_ok() && self.verify_read(block, want).is_ok();
            is_good.then(|| AlignedBuffer::from_slice(block))
        };
        wants.iter().enumerate().map(verified).collect()
    }

    /// Rewrites the copies before `good_copy`, which were bad.
    fn repair_tree_block(&self, copies: &MirrorSet, good_copy: usize, good: &[u8], want: &Expected) {
        if self.repair_later(want) {
            return;
        }
        let anything = Expected { level: None, generation: None, owner: None, first_key: None, ..*want };
        for mirror in &copies.mirrors()[..good_copy] {
            self.repair(mirror, good, 1, &|now| {
                let Err(_) = self.verify_read(now, want) else { return false };
                // A whole block of this place with a later generation is not damage: it was freed and written
                // anew, and whoever asked for the old one is late. It must not be undone.
                let newer = verify_block(now, &anything).is_ok()
                    && BlockRef::new(now).generation() > BlockRef::new(good).generation();
                !newer
            });
        }
    }
}

/// One line that lists what each copy had.
pub(crate) fn no_good_copy(block: DamagedBlock, copies: &MirrorSet, errors: Vec<Error>) -> Error {
    let kinds: Vec<ErrorKind> = errors.iter().map(Error::kind).collect();
    let kind =
        if kinds.iter().all(|kind| *kind == ErrorKind::Io) { ErrorKind::Io } else { ErrorKind::Unreadable };
    let told = |error: &Error| if error.kind() == kind { error.without_kind() } else { error.to_string() };
    let list: Vec<String> = (copies.mirrors().iter().zip(&errors).enumerate())
        .map(|(copy, (mirror, error))| match mirror.first() {
            Some(piece) => format!("copy {} ({}): {}", copy + 1, piece.at, told(error)),
            None => format!("copy {}: {}", copy + 1, told(error)),
        })
        .collect();
    Error::new(kind, format!("reading {block}: no good copy: {}", list.join("; "))).of_block(block)
}
