//! What a power cut may leave of data that was written and not synced.
//!
//! A write ends in memory. What is on the device of a file is what was written back by then, page by page, so after a power
//! cut each sector is as it was in some version that the file has had since it was synced. Its size is that of such a version,
//! or the end of pages that were complete. Everything else - names, owners, attributes - is as the commit has it, and a file
//! that was not written since it was synced is exact.
//!
//! The model keeps the versions; here they are held against what is found.

use std::collections::BTreeSet;
use std::sync::Arc;

use creamery_base::ErrorKind;

use crate::model::{Content, Model, Node, Version};
use crate::operation::Outcome;
use crate::snapshot::{Snapshot, Walked};

/// Bytes that are written back as one.
pub(crate) const SECTOR: usize = 4096;

/// The sector at `at`, as far as the file has it.
fn sector(content: &[u8], at: usize) -> &[u8] {
    &content[at.min(content.len())..(at + SECTOR).min(content.len())]
}

/// Whether two sectors are the same where what is behind the end is zeros.
fn same(one: &[u8], other: &[u8]) -> bool {
    let common = one.len().min(other.len());
    let zeros = |rest: &[u8]| rest.iter().all(|byte| *byte == 0);
    one[..common] == other[..common] && zeros(&one[common..]) && zeros(&other[common..])
}

/// Whether data that was delayed explains what a file is found to have, of these versions of it.
pub(crate) fn explains(versions: &[Version], found: &[u8], mtime: Option<u32>) -> bool {
    let most = versions.iter().map(|version| version.content.len()).max().unwrap_or(0);
    let complete = found.len().is_multiple_of(SECTOR) && found.len() <= most;
    let size = complete || versions.iter().any(|version| version.content.len() == found.len());
    let at = |at: usize| {
        let here = sector(found, at);
        // A version that ends within the sector says nothing of what a longer one has behind that.
        versions.iter().any(|version| {
            let was = sector(&version.content, at);
            same(here, &was[..was.len().min(here.len())])
        })
    };
    size && (0..found.len()).step_by(SECTOR).all(at) && versions.iter().any(|version| version.mtime == mtime)
}

/// What a file was found to be after delayed data of it was lost.
pub(crate) struct Loss {
    pub(crate) file: u64,
    pub(crate) content: Vec<u8>,
    pub(crate) mtime: Option<u32>,
}

impl Node {
    /// All that the file may be, if it has data that was not synced.
    pub(crate) fn unsynced(&self) -> Option<(Vec<Version>, &Arc<Vec<u8>>)> {
        let Content::File(content) = &self.content else { return None };
        let now = Version { content: Arc::clone(content), mtime: self.mtime };
        (!self.versions.is_empty()).then(|| (self.versions.iter().cloned().chain([now]).collect(), content))
    }

    /// Its data is on the device. A sector that was lost and could not be read since may be any of what it was, still.
    pub(crate) fn is_synced(&mut self) {
        let (Some(unread), Content::File(now)) = (&self.unread, &self.content) else {
            return self.versions.clear();
        };
        let Some(sectors) = &unread.sectors else { return };
        for version in &mut self.versions {
            let content = Arc::make_mut(&mut version.content);
            content.resize(now.len(), 0);
            for (number, (one, now)) in content.chunks_mut(SECTOR).zip(now.chunks(SECTOR)).enumerate() {
                if !sectors.contains(&number) {
                    one.copy_from_slice(now);
                }
            }
            version.mtime = self.mtime;
        }
    }
}

impl Model {
    /// What a file holds after a change that failed on the way.
    pub(crate) fn set_content(&mut self, id: u64, content: Vec<u8>) {
        *self.file_mut(id) = content;
    }

    /// Delayed data of a file was lost: it is this now, and on the device it may be what it was.
    pub(crate) fn lose(&mut self, loss: &Loss) {
        if self.file(loss.file).is_ok() {
            self.keep_version(loss.file);
            self.set_content(loss.file, loss.content.clone());
            self.node_mut(loss.file).mtime = loss.mtime;
        }
    }

    /// `change` is made to a file, after it was written back.
    pub(crate) fn change_synced(&mut self, id: u64, change: impl Fn(&mut Vec<u8>)) {
        let node = self.node_mut(id);
        node.is_synced();
        node.versions.iter_mut().for_each(|version| change(Arc::make_mut(&mut version.content)));
        change(self.file_mut(id));
    }

    /// A file is about to be written, in memory: on the device it may stay as it is.
    pub(crate) fn keep_version(&mut self, id: u64) {
        let node = self.node_mut(id);
        if let Content::File(content) = &node.content {
            let version = Version { content: Arc::clone(content), mtime: node.mtime };
            node.versions.push(version);
        }
    }

    /// What a walk must find after a power cut: what it did find, of files whose data was not synced, where that is one of the
    /// things they may be.
    pub(crate) fn snapshot_beside(&self, walked: &Walked) -> Snapshot {
        let mut wanted = self.snapshot();
        for (path, id) in self.all_paths() {
            let Some((versions, _)) = self.nodes[&id].unsynced() else { continue };
            let (Some(content), Some(found)) =
                (walked.contents.get(&path), walked.snapshot.entries.get(&path))
            else {
                continue;
            };
            if explains(&versions, content, found.mtime) {
                let entry = wanted.entries.get_mut(&path).expect("a path of the model");
                (entry.size, entry.content, entry.mtime) = (found.size, found.content, found.mtime);
            }
        }
        wanted
    }

    /// The model of what was found, which it explains: nothing is delayed any more.
    pub(crate) fn as_found(&self, walked: &Walked) -> Self {
        let mut model = self.clone();
        for (path, id) in self.all_paths() {
            if let (Some((..)), Some(content)) = (self.nodes[&id].unsynced(), walked.contents.get(&path)) {
                model.set_content(id, content.clone());
                model.node_mut(id).mtime = walked.snapshot.entries[&path].mtime;
            }
        }
        model.nodes.values_mut().for_each(|node| node.unread = None);
        model.is_synced();
        model
    }

    /// All data of a file is on the device.
    pub(crate) fn file_is_synced(&mut self, id: u64) -> Result<Outcome, ErrorKind> {
        self.file(id)?;
        self.node_mut(id).is_synced();
        Ok(Outcome::Done)
    }

    /// All data is on the device.
    pub(crate) fn is_synced(&mut self) -> Outcome {
        self.nodes.values_mut().for_each(Node::is_synced);
        Outcome::Done
    }

    /// Files of which data was lost that could not be read since.
    pub(crate) fn unread(&self) -> BTreeSet<u64> {
        self.nodes.iter().filter(|(_, node)| node.unread.is_some()).map(|(id, _)| *id).collect()
    }

    /// Files with data that was not synced.
    pub(crate) fn unsynced(&self) -> Vec<u64> {
        self.nodes.iter().filter(|(_, node)| node.unsynced().is_some()).map(|(id, _)| *id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(parts: &[(u8, usize)]) -> Version {
        let content = parts.iter().flat_map(|(byte, len)| vec![*byte; *len]).collect();
        Version { content: Arc::new(content), mtime: None }
    }

    #[test]
    fn each_sector_is_that_of_a_version_and_nothing_else() {
        let versions = [version(&[(1, 5000)]), version(&[(1, 4096), (2, 8192)]), version(&[(3, 9000)])];
        let rows: [(&[(u8, usize)], bool); 11] = [
            (&[(1, 5000)], true),
            (&[(1, 4096), (2, 8192)], true),
            (&[(3, 4096), (2, 4096)], true),
            (&[(1, 4096), (3, 4904)], true),
            (&[], true),
            (&[(1, 4096), (0, 4904)], false),
            (&[(1, 4096), (1, 904), (0, 3192)], true),
            (&[(1, 4096), (0, 4096), (2, 4096)], false),
            (&[(4, 5000)], false),
            (&[(1, 5001)], false),
            (&[(1, 4096), (2, 8192), (0, 4096)], false),
        ];
        for (found, legal) in rows {
            let found = version(found);
            assert_eq!(explains(&versions, &found.content, None), legal, "{:?}", found.content.len());
        }
        assert!(!explains(&versions, &versions[0].content, Some(7)), "a time that nobody set");
    }
}
