//! Reading the quotas of a filesystem.

use std::sync::Arc;

use creamery_base::{Error, ErrorKind, Generation, Logical, QgroupId, Result, Wait};
use creamery_format::{Key, KeyType, RawQgroupInfo, RawQgroupLimit};
use creamery_tree::Tree;
use zerocopy::FromBytes;

use super::QuotaMode;
use super::forest::{Group, QgroupUsage};
use super::items::{STATUS, Status, no_limit};
use super::state::QuotaState;

/// Most memberships that are read, one for each pair. A bound for hostile images.
const RELATIONS_MAX: usize = 1 << 20;

impl QuotaState {
    /// Reads the quotas of a filesystem whose last transaction was `last`; `None`, when they are off.
    /// Errors: device errors; damage.
    pub(crate) fn load(tree: Arc<Tree>, last: Generation) -> Result<Option<Box<Self>>> {
        let Some(status) = tree.get(&STATUS, Wait::Yes, Status::parse)?.transpose()?.flatten() else {
            return Ok(None);
        };
        if !status.is_on {
            return Ok(None);
        }
        let mut state = Box::new(Self::new(Arc::clone(&tree), status.mode, status.enabled_in));
        state.rescan = status.rescan.filter(|_| status.mode == QuotaMode::Full);
        state.written_in = last;
        // A program without support for quotas has written since.
        let is_old = status.mode == QuotaMode::Full && status.generation != last;
        state.inconsistent = status.inconsistent || is_old;
        state.spoiled = is_old && state.rescan.is_some();
        let mut relations = Vec::new();
        let mut cursor = tree.cursor(&Key::MIN, Wait::Yes)?;
        while let Some((key, data)) = cursor.item() {
            let id = QgroupId::from_raw(key.offset);
            let short = || Error::new(ErrorKind::Corrupt, format!("quota item {key}: too short"));
            match key.kind {
                KeyType::QGROUP_INFO => {
                    let (info, _) = RawQgroupInfo::ref_from_prefix(data).map_err(|_| short())?;
                    let usage =
                        QgroupUsage { referenced: info.referenced.get(), exclusive: info.exclusive.get() };
                    state.forest.insert(id, Group::new(usage, no_limit()));
                }
                // Limits come after all sums.
                KeyType::QGROUP_LIMIT => {
                    let (limit, _) = RawQgroupLimit::ref_from_prefix(data).map_err(|_| short())?;
                    if let Some(group) = state.forest.get_mut(id) {
                        group.limit = *limit;
                    }
                }
                KeyType::QGROUP_RELATION => relations.push((QgroupId::from_raw(key.objectid.get()), id)),
                _ => {}
            }
            if relations.len() > RELATIONS_MAX {
                return Err(Error::new(ErrorKind::Corrupt, "quota tree: too many relations"));
            }
            cursor.advance()?;
        }
        drop(cursor);
        // Numbers of a rescan that has counted nothing yet would be counted twice (QGROUP-2).
        let is_first = state.rescan == Some(Logical::new(0));
        let has_numbers = |(_, group): (QgroupId, &mut Group)| group.usage != QgroupUsage::default();
        state.spoiled |= is_first && state.forest.iter_mut().any(has_numbers);
        for (one, other) in relations.into_iter().filter(|(one, other)| one < other) {
            // A relation with a group that does not exist is ignored, as in Linux.
            if state.forest.assign(one, other).is_err() {
                state.inconsistent |= status.mode == QuotaMode::Full;
            }
        }
        Ok(Some(state))
    }
}
