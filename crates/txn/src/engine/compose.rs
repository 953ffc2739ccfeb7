//! The owners that each component borrows: it gets those that it uses, and not the engine.
//!
//! Long lists are never inlined: their callers are many, and each copy costs bytes of the program.

use super::Engine;
use crate::commit::{CommittedPort, WriteOutPorts};
use crate::commit_due::CommitDue;
use crate::conversion::Converter;
use crate::data_io::DataIo;
use crate::discarder::Discarder;
use crate::group_loader::GroupLoader;
use crate::group_records::GroupRecords;
use crate::handle::HandlePorts;
use crate::headroom::{CommitNeed, Headroom};
use crate::idle_groups::IdleGroups;
use crate::log_writer::LogWriter;
use crate::quota_accounting::QuotaAccounting;
use crate::run_refs::Ports;

impl Engine {
    /// The reckoning of what can still be promised.
    #[inline(never)]
    pub(super) fn headroom(&self) -> Headroom<'_> {
        let Self { root_tree, dev_tree, extent_tree, csum_tree, free_space_tree, block_groups, .. } = self;
        let Self { store, space, chunks, reservations, qgroups, .. } = self;
        let Self { transaction, delalloc, room_claims, superblock, .. } = self;
        let need = CommitNeed {
            store,
            root_tree,
            dev_tree,
            extent_tree,
            csum_tree,
            free_space_tree,
            block_groups,
            space,
            chunks,
            reservations,
            qgroups,
            node_size: self.node_size(),
        };
        Headroom { need, transaction, delalloc, room_claims, superblock }
    }

    /// The reader of block groups.
    pub(super) fn group_loader(&self) -> GroupLoader<'_> {
        let Self { volume, chunks, space, block_groups, extent_tree, free_space_tree, .. } = self;
        GroupLoader { volume, chunks, space, block_groups, extent_tree, free_space_tree }
    }

    /// The items of block groups.
    pub(super) fn group_records(&self) -> GroupRecords<'_> {
        let Self { chunks, space, block_groups, free_space_tree, superblock, .. } = self;
        GroupRecords { chunks, space, block_groups, free_space_tree, superblock }
    }

    /// Block groups that are empty.
    pub(super) fn idle_groups(&self) -> IdleGroups<'_> {
        IdleGroups { records: self.group_records(), headroom: self.headroom() }
    }

    /// Free space, to be discarded.
    pub(super) fn discarder(&self) -> Discarder<'_> {
        let Self { discards, volume, background, .. } = self;
        Discarder { discards, volume, background, headroom: self.headroom() }
    }

    /// The owners that running delayed refs changes.
    pub(super) fn ports(&self) -> Ports<'_> {
        let Self { extent_tree, csum_tree, qgroups, .. } = self;
        Ports { extent_tree, csum_tree, qgroups, groups: self.group_records() }
    }

    /// The conversions of trees that describe space.
    pub(super) fn converter(&self) -> Converter<'_> {
        let Self { conversions, volume, root_tree, runner, .. } = self;
        Converter { conversions, volume, root_tree, runner, refs: self.ports() }
    }

    /// The changes that wait for a commit.
    #[inline]
    pub(super) fn commit_due(&self) -> CommitDue<'_> {
        let Self { store, extent_tree, qgroups, options, .. } = self;
        let (dirty_max, refs_max) = (options.dirty_bytes, options.delayed_refs_max);
        CommitDue { store, extent_tree, qgroups, dirty_max, refs_max }
    }

    /// The owners that writing a closed transaction out takes.
    pub(super) fn write_out_ports<'e>(&'e self, committed: &'e CommittedPort<'e>) -> WriteOutPorts<'e> {
        WriteOutPorts { transaction: &self.transaction, volume: self.volume(), store: &self.store, committed }
    }

    /// The owners that a handle changes.
    #[inline]
    pub(super) fn handle_ports(&self) -> HandlePorts<'_> {
        let Self { transaction, root_tree, extent_tree, csum_tree, space, superblock, qgroups, .. } = self;
        let (env, node_size) = (self.env(), self.node_size());
        HandlePorts {
            transaction,
            root_tree,
            extent_tree,
            csum_tree,
            space,
            superblock,
            qgroups,
            env,
            node_size,
        }
    }

    /// The data of files.
    #[inline]
    #[must_use]
    pub fn data(&self) -> DataIo<'_> {
        let Self { volume, csum_tree, extent_tree, space, transaction, takes_unchecked_data, .. } = self;
        let takes_unchecked_data = *takes_unchecked_data;
        DataIo { volume, csum_tree, extent_tree, space, transaction, takes_unchecked_data }
    }

    /// The quotas.
    #[inline(never)]
    #[must_use]
    pub fn quotas(&self) -> QuotaAccounting<'_> {
        let Self { qgroups, store, root_tree, extent_tree, transaction, background, .. } = self;
        let commit_roots = &self.pipeline.roots;
        QuotaAccounting {
            qgroups,
            store,
            root_tree,
            extent_tree,
            commit_roots,
            transaction,
            background,
            port: self,
        }
    }

    /// The logs of the running transaction.
    #[inline(never)]
    #[must_use]
    pub fn logs(&self) -> LogWriter<'_> {
        let Self {
            logs, volume, store, csum_tree, chunks, superblock, transaction, pipeline, counters, ..
        } = self;
        LogWriter {
            logs,
            volume,
            store,
            csum_tree,
            chunks,
            superblock,
            transaction,
            pipeline,
            counters,
            env: self.env(),
            port: self,
            is_on: self.options.tree_log && !self.is_opened_for_reading(),
        }
    }
}
