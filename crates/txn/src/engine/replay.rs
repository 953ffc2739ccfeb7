//! The right to bring logs into the trees, before any other change. `tree_log` describes logs; the layer above
//! interprets their items.
//!
//! A replay is one transaction, of any size: a superblock without the log means that all of it was replayed. So nothing
//! commits before the end, and no queued change of the extent tree runs before: an extent that loses its last reference to
//! an item of the log gets it back.
//!
//! # Invariants
//! - REPLAY-1: space that only the logs reach is withheld until a superblock without them is durable. Shown by
//!   `logs_of_linux_are_replayed_as_linux_does`.
//! - REPLAY-2: while a log waits, nothing commits. Shown by `nothing_commits_before_a_log_is_replayed`.

use std::collections::BTreeMap;
use std::sync::Arc;

use creamery_base::{Error, ErrorKind, InodeId, Logical, Result, TreeId, Wait};
use creamery_format::BlockGroupFlags;

use super::Engine;
use crate::data_extent::DataExtent;
use crate::handle::Handle;
use crate::reserve_items::ReserveItems;
use crate::space_info::{BlockGroup, Space};
use crate::tree_log::{LogTree, open_logs};

/// Space that is not handed out until this is dropped.
struct WithheldBlock {
    group: Arc<BlockGroup>,
    at: Logical,
    len: u64,
}

impl WithheldBlock {
    /// Withholds the block of a log. Errors: damage: its space is not free, or not metadata's.
    fn of_a_log(space: &Space, at: Logical, len: u64) -> Result<Self> {
        let group = space.group_at(at).filter(|group| {
            group.holds(at, len)
                && group.flags.intersects(BlockGroupFlags::METADATA | BlockGroupFlags::SYSTEM)
        });
        let taken = group.and_then(|group| {
            let range = (at.get(), at.get() + len);
            group.take_part(range, len, len).map(|_| Self { group, at, len })
        });
        taken.ok_or_else(|| {
            let what = format!("log block {at} is already in use, or in no metadata block group");
            Error::new(ErrorKind::Corrupt, what)
        })
    }
}

impl Drop for WithheldBlock {
    fn drop(&mut self) {
        self.group.put_back(self.at, self.len);
    }
}

/// A data extent that items of logs name.
enum LoggedExtent {
    /// The extent tree has it, or will when all queued changes have run.
    Counted { len: u64 },
    /// The last commit does not have it, and no item in a tree refers to it yet.
    New(DataExtent),
}

impl LoggedExtent {
    fn len(&self) -> u64 {
        match self {
            Self::Counted { len } => *len,
            Self::New(extent) => extent.len(),
        }
    }
}

/// The replay of the logs of a filesystem that no other thread uses yet. If it is dropped unfinished, the logs stay on the devices, and
/// nothing can be written.
///
/// ```no_run
/// # fn replay(engine: &creamery_txn::Engine) -> creamery_base::Result<()> {
/// if let Some((replay, logs)) = engine.begin_replay()? {
///     // ... bring the items of the logs into the trees ...
///     println!("{} logs", logs.len());
///     replay.finish()?;
/// }
/// # Ok(())
/// # }
/// ```
#[must_use]
pub struct Replay<'e> {
    engine: &'e Engine,
    extents: BTreeMap<Logical, LoggedExtent>,
    _blocks: Vec<WithheldBlock>,
}

impl Engine {
    /// Opens the logs, if there are any and the filesystem can be written.
    /// Errors: device errors; damage of the logs. Nothing was changed.
    pub fn begin_replay(&self) -> Result<Option<(Replay<'_>, Vec<LogTree>)>> {
        if !self.logs.is_replay_due() {
            return Ok(None);
        }
        let (mut blocks, len) = (Vec::new(), u64::from(self.node_size()));
        let logs = open_logs(&self.store, &mut |at| {
            blocks.push(WithheldBlock::of_a_log(&self.space, at, len)?);
            Ok(())
        })?;
        Ok(Some((Replay { engine: self, extents: BTreeMap::new(), _blocks: blocks }, logs)))
    }
}

impl Replay<'_> {
    /// Checks a data extent that an item of a log names, before any change: it is in the extent tree, or its space is
    /// free and is withheld from now on.
    /// Errors: device errors; damage: neither is true.
    pub fn withhold_extent(&mut self, start: Logical, len: u64) -> Result<()> {
        if let Some(known) = self.extents.get(&start) {
            let same = known.len() == len;
            return if same { Ok(()) } else { Err(lies(start, len, "has two lengths")) };
        }
        let group = self.engine.space.group_at(start);
        let group =
            group.filter(|group| group.holds(start, len) && group.flags.contains(BlockGroupFlags::DATA));
        let group = group.ok_or_else(|| lies(start, len, "is in no data block group"))?;
        let extent = if self.engine.extent_tree.has_data(start, len)? {
            LoggedExtent::Counted { len }
        } else if group.claim_data(start, len) {
            LoggedExtent::New(DataExtent::new(group, start, len))
        } else {
            return Err(lies(start, len, "is already in use"));
        };
        self.extents.insert(start, extent);
        Ok(())
    }

    /// Queues one more reference to an extent that was [checked](Self::withhold_extent), by `owner`'s file extent item whose
    /// key offset less its offset into the extent is `offset`.
    /// Errors: damage; the caller aborts then.
    ///
    /// # Panics
    /// When it was not checked.
    pub fn refer(&mut self, handle: &Handle<'_>, start: Logical, owner: InodeId, offset: u64) -> Result<()> {
        let extent = self.extents.get_mut(&start).expect("all extents of logs were looked at");
        let len = extent.len();
        match std::mem::replace(extent, LoggedExtent::Counted { len }) {
            LoggedExtent::Counted { .. } => handle.add_data_ref(start, len, owner, offset),
            // The log is durable, and so is its data.
            LoggedExtent::New(extent) => {
                let written = self.engine.volume.nothing_written();
                handle.complete_data(extent, written, owner, offset, None)
            }
        }
    }

    /// Records the checksums of the sectors from `at` on, one after another, where the tree has none.
    /// Errors: device errors; damage: the tree has another checksum; the caller aborts then.
    pub fn insert_csums(&self, handle: &Handle<'_>, at: Logical, csums: &[u8]) -> Result<()> {
        let (tree, size) = (&self.engine.csum_tree, self.engine.checksum_type().size());
        let sector = u64::from(self.engine.sector_size());
        let known = tree.read(at, csums.len() / size, Wait::Yes)?;
        let mut missing: Option<(usize, usize)> = None;
        let insert = |run: Option<(usize, usize)>| match run {
            None => Ok(()),
            Some((from, to)) => {
                tree.insert(handle, at + from as u64 * sector, &csums[from * size..to * size])
            }
        };
        for (index, csum) in csums.chunks(size).enumerate() {
            match known.get(index) {
                None => missing = Some((missing.map_or(index, |(from, _)| from), index + 1)),
                Some(known) if known == csum => insert(missing.take())?,
                Some(_) => {
                    let what = format!(
                        "sector {} has two checksums, in a log and in its tree",
                        at + index as u64 * sector
                    );
                    return Err(Error::new(ErrorKind::Corrupt, what));
                }
            }
        }
        insert(missing)
    }

    /// Commits the replayed changes, and with them the end of the logs.
    /// Errors: those of the commit.
    pub fn finish(self) -> Result<()> {
        let engine = self.engine;
        engine.drop_space_caches()?;
        // All items of the logs may be in the trees already. The superblock changes all the same.
        let handle = engine.start(ReserveItems::items(1))?;
        let touched = engine.root_tree.touch(&handle, TreeId::FS);
        match touched {
            Ok(()) => handle.end(),
            Err(error) => return Err(handle.abort(error)),
        }
        engine.logs.replayed();
        engine.commit()
    }
}

fn lies(start: Logical, len: u64, what: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("extent {start} of {len} bytes in a log {what}"))
}
