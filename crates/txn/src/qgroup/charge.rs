//! Room taken from limits before a write.

use std::sync::Arc;

use creamery_base::{Error, ErrorKind, QgroupId, Result, TreeId};

use super::Qgroups;

/// Bytes to be written for a subvolume, of whose groups at least one has a limit. Dropping it gives them back
/// (QGROUP-3).
pub(crate) struct Charge {
    qgroups: Arc<Qgroups>,
    /// The epoch of the quotas at the time, and the groups from which it was taken.
    epoch: u64,
    groups: Arc<[QgroupId]>,
    bytes: u64,
}

impl Charge {
    /// Splits off `bytes` bytes, or all if there are fewer.
    pub(crate) fn take(&mut self, bytes: u64) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        let (qgroups, groups) = (Arc::clone(&self.qgroups), Arc::clone(&self.groups));
        Self { qgroups, epoch: self.epoch, groups, bytes }
    }

    /// Adds the bytes of `other`; if they come from other groups, they are given back.
    pub(crate) fn add(&mut self, mut other: Self) {
        if self.epoch == other.epoch && self.groups == other.groups {
            self.bytes += std::mem::take(&mut other.bytes);
        }
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Marks the bytes as written in the running transaction; they stay pending until it closes.
    pub(crate) fn written(mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        self.qgroups.settle_charge(self.epoch, &self.groups, bytes, true);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.qgroups.settle_charge(self.epoch, &self.groups, self.bytes, false);
        }
    }
}

impl Qgroups {
    /// Takes `bytes` from the limits of a subvolume's groups; `None` where no group has a limit.
    /// Errors: a limit would be exceeded.
    pub(crate) fn charge(self: &Arc<Self>, subvolume: TreeId, bytes: u64) -> Result<Option<Charge>> {
        self.charge_some(subvolume, bytes, bytes, 1)
    }

    /// Takes as many bytes as the limits have room for: `most`, or fewer, but not below `min`, in whole `unit`s. `None` where no group has a limit.
    pub(crate) fn charge_some(
        self: &Arc<Self>,
        subvolume: TreeId,
        min: u64,
        most: u64,
        unit: u64,
    ) -> Result<Option<Charge>> {
        if !self.is_limited() {
            return Ok(None);
        }
        let taken = self.with(|state| {
            let groups = state.forest.groups_of(subvolume);
            let mut tightest: Option<(QgroupId, u64)> = None;
            for &id in &groups {
                let left = state.forest.get(id).expect("it was found").left();
                if tightest.is_none_or(|(_, least)| left < least) {
                    tightest = Some((id, left));
                }
            }
            let (id, left) = tightest.unwrap_or((QgroupId::of(subvolume), u64::MAX));
            let bytes = if left < most { left / unit * unit } else { most };
            if bytes < min {
                let group = state.forest.get(id).expect("it was found");
                return Err((id, group.usage, group.limits()));
            }
            for id in &groups {
                let group = state.forest.get_mut(*id).expect("it was found");
                group.reserved = group.reserved.saturating_add(bytes);
            }
            Ok((state.epoch, groups.into(), bytes))
        });
        match taken {
            None => Ok(None),
            Some(Ok((epoch, groups, bytes))) => {
                Ok(Some(Charge { qgroups: Arc::clone(self), epoch, groups, bytes }))
            }
            Some(Err((id, usage, limits))) => {
                self.counting.exceeded.add(1);
                let most = |limit: Option<u64>| limit.map_or("none".to_owned(), |most| most.to_string());
                let message = format!(
                    "{min} bytes more in quota group {id}, which has {} bytes referenced (limit {}) and {} exclusive (limit {})",
                    usage.referenced,
                    most(limits.referenced),
                    usage.exclusive,
                    most(limits.exclusive)
                );
                Err(Error::new(ErrorKind::QuotaExceeded, message))
            }
        }
    }

    fn settle_charge(&self, epoch: u64, groups: &[QgroupId], bytes: u64, written: bool) {
        self.with(|state| {
            for id in groups.iter().filter(|_| state.epoch == epoch) {
                let Some(group) = state.forest.get_mut(*id) else { continue };
                let left = group.reserved.checked_sub(bytes);
                // A group that was removed and created again has none of it.
                group.reserved = left.unwrap_or(0);
                if written {
                    group.pending = group.pending.saturating_add(bytes);
                }
            }
        });
    }
}
