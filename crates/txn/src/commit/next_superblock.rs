//! The next commit's superblock: changes by operations in the meantime, and values that only the commit knows.

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{DevId, Generation};
use creamery_format::{CompatRo, Incompat, Key, RawDevItem, RawRootBackup, Superblock};
use creamery_tree::RootPointer;

/// Owner of the next superblock. All changes of it go through here.
pub(crate) struct NextSuperblock(RankedMutex<Superblock, { rank::LEAF }>);

/// Values of the transaction that a commit closes.
pub(crate) struct SuperblockUpdate {
    pub(crate) generation: Generation,
    pub(crate) root: RootPointer,
    pub(crate) chunk_root: RootPointer,
    pub(crate) extent_root: RootPointer,
    pub(crate) dev_root: RootPointer,
    pub(crate) csum_root: RootPointer,
    /// Root of the first subvolume.
    pub(crate) fs_root: RootPointer,
    /// The chunk tree's item of the superblock's device.
    pub(crate) device: RawDevItem,
    pub(crate) device_count: u64,
    /// Bytes in extents.
    pub(crate) bytes_used: u64,
}

impl NextSuperblock {
    pub(crate) fn new(last: Superblock) -> Self {
        Self(RankedMutex::new(last))
    }

    /// Features needed to open the filesystem.
    pub(crate) fn incompat(&self) -> Incompat {
        self.0.lock().incompat()
    }

    /// Adds features.
    pub(crate) fn add_incompat(&self, features: Incompat) {
        let mut superblock = self.0.lock();
        let flags = &mut superblock.raw_mut().incompat_flags;
        *flags = (flags.get() | features.bits()).into();
    }

    /// Features that a writer has to know.
    pub(crate) fn compat_ro(&self) -> CompatRo {
        self.0.lock().compat_ro()
    }

    /// Sets the features that a writer has to know.
    pub(crate) fn set_compat_ro(&self, features: CompatRo) {
        self.0.lock().raw_mut().compat_ro_flags = features.bits().into();
    }

    /// Its label.
    pub(crate) fn label(&self) -> Vec<u8> {
        self.0.lock().label().to_vec()
    }

    /// Sets its label.
    pub(crate) fn set_label(&self, label: &[u8]) {
        self.0.lock().set_label(label);
    }

    /// Adds `more` bytes to the total size of the devices.
    pub(crate) fn add_total_bytes(&self, more: u64) {
        let mut superblock = self.0.lock();
        let (total, sector) = (superblock.total_bytes(), u64::from(superblock.sector_size()));
        // As in Linux: bytes of a device after its last whole sector do not count.
        let total = total.saturating_add(more) / sector * sector;
        superblock.raw_mut().total_bytes = total.into();
    }

    /// Adds a system chunk's item; false when there is no room for it.
    #[must_use]
    pub(crate) fn push_system_chunk(&self, key: &Key, item: &[u8]) -> bool {
        self.0.lock().push_sys_chunk(key, item)
    }

    /// The device that the superblock is on.
    pub(crate) fn device(&self) -> DevId {
        self.0.lock().dev_item().dev_id()
    }

    /// The superblock to write for a closed transaction. The next one starts from it.
    pub(crate) fn close(&self, facts: &SuperblockUpdate) -> Superblock {
        let mut superblock = self.0.lock();
        let raw = superblock.raw_mut();
        assert!(
            facts.generation.get() > raw.generation.get(),
            "a commit's generation is newer than the last one's"
        );
        if raw.uuid_tree_generation == raw.generation {
            raw.uuid_tree_generation = facts.generation.get().into(); // the UUID tree stays complete
        }
        raw.generation = facts.generation.get().into();
        raw.num_devices = facts.device_count.into();
        raw.dev_item = RawDevItem { generation: 0.into(), ..facts.device };
        raw.root = facts.root.logical.get().into();
        raw.root_level = facts.root.level;
        raw.chunk_root = facts.chunk_root.logical.get().into();
        raw.chunk_root_level = facts.chunk_root.level;
        raw.chunk_root_generation = facts.chunk_root.generation.get().into();
        raw.bytes_used = facts.bytes_used.into();
        // A commit ends all logs.
        (raw.log_root, raw.log_root_transid, raw.log_root_level) = (0.into(), 0.into(), 0);
        // Space caches of the old kind are gone by now (CACHES-1). Without a free space tree this number stays, older than the filesystem's: Linux makes new ones.
        if CompatRo::from_bits_retain(raw.compat_ro_flags.get()).contains(CompatRo::FREE_SPACE_TREE) {
            raw.cache_generation = 0.into();
        }
        let newest = (0..4).max_by_key(|&slot| raw.super_roots[slot].tree_root_gen.get()).unwrap_or(3);
        raw.super_roots[(newest + 1) % 4] = backup(facts, raw.total_bytes.get());
        superblock.clone()
    }
}

/// The backup of the roots, one of the last four.
fn backup(facts: &SuperblockUpdate, total_bytes: u64) -> RawRootBackup {
    let SuperblockUpdate { root, chunk_root, extent_root, dev_root, csum_root, fs_root, .. } = facts;
    RawRootBackup {
        tree_root: root.logical.get().into(),
        tree_root_gen: root.generation.get().into(),
        tree_root_level: root.level,
        chunk_root: chunk_root.logical.get().into(),
        chunk_root_gen: chunk_root.generation.get().into(),
        chunk_root_level: chunk_root.level,
        extent_root: extent_root.logical.get().into(),
        extent_root_gen: extent_root.generation.get().into(),
        extent_root_level: extent_root.level,
        fs_root: fs_root.logical.get().into(),
        fs_root_gen: fs_root.generation.get().into(),
        fs_root_level: fs_root.level,
        dev_root: dev_root.logical.get().into(),
        dev_root_gen: dev_root.generation.get().into(),
        dev_root_level: dev_root.level,
        csum_root: csum_root.logical.get().into(),
        csum_root_gen: csum_root.generation.get().into(),
        csum_root_level: csum_root.level,
        total_bytes: total_bytes.into(),
        bytes_used: facts.bytes_used.into(),
        num_devices: facts.device_count.into(),
        unused_64: [0.into(); 4],
        unused_8: [0; 10],
    }
}
