//! The model of operations on a file's data.

use std::sync::Arc;

use creamery_base::ErrorKind;
use creamery_fs::Fallocate;

use crate::model::{Effect, Model, Version};
use crate::operation::Outcome;

impl Model {
    pub(crate) fn write(&mut self, id: u64, offset: u64, len: usize, seed: u64) -> Effect {
        self.file(id)?;
        if len == 0 {
            return Ok(Outcome::Count(0));
        }
        self.keep_version(id);
        let data = crate::operation::content(len, seed);
        let at = usize::try_from(offset).expect("tests write small files");
        let file = self.file_mut(id);
        file.resize(file.len().max(at + len), 0);
        file[at..at + len].copy_from_slice(&data);
        Ok(Outcome::Count(len))
    }

    pub(crate) fn read(&self, id: u64, offset: u64, len: usize) -> Effect {
        let data = self.file(id)?;
        let start = usize::try_from(offset).expect("tests read small files").min(data.len());
        let end = (start + len).min(data.len());
        Ok(Outcome::Data(data[start..end].to_vec()))
    }

    pub(crate) fn truncate(&mut self, id: u64, size: u64) -> Effect {
        self.file(id)?;
        let size = usize::try_from(size).expect("small");
        self.file_mut(id).resize(size, 0);
        // The remaining data of the file is written back first. If that fails, it is lost, and truncating reports no error.
        let lossy = self.lossy;
        let versions = &mut self.node_mut(id).versions;
        versions.retain(|_| lossy);
        versions.iter_mut().for_each(|version| Arc::make_mut(&mut version.content).resize(size, 0));
        Ok(Outcome::Done)
    }

    pub(crate) fn fallocate(&mut self, id: u64, mode: Fallocate, offset: u64, len: u64) -> Effect {
        self.file(id)?;
        let [start, end] =
            [offset, offset + len].map(|at| usize::try_from(at).expect("tests change small files"));
        self.change_synced(id, |file| {
            if !matches!(mode, Fallocate::Allocate { .. }) {
                let size = file.len();
                file[start.min(size)..end.min(size)].fill(0);
            }
            if let Fallocate::Allocate { keep_size: false } | Fallocate::ZeroRange { keep_size: false } = mode
            {
                file.resize(file.len().max(end), 0);
            }
        });
        Ok(Outcome::Done)
    }

    /// The model of ioctl_ficlonerange(2).
    pub(crate) fn clone_range(&mut self, id: u64, (source, from): (u64, u64), len: u64, to: u64) -> Effect {
        const SECTOR: u64 = 4096;
        self.node(source)?;
        self.node(id)?;
        let (size, target_size) = (self.file(source)?.len() as u64, self.file(id)?.len() as u64);
        if len == 0 && from == size {
            return Ok(Outcome::Done);
        }
        let len = if len == 0 { size.checked_sub(from).ok_or(ErrorKind::InvalidInput)? } else { len };
        let ends = from + len == size && to + len >= target_size;
        let fits = [from, to].iter().all(|at| at % SECTOR == 0) && (len % SECTOR == 0 || ends);
        let overlaps = source == id && from < to + len && to < from + len;
        if !fits || overlaps || from + len > size {
            return Err(ErrorKind::InvalidInput);
        }
        let [start, end, at] = [from, from + len, to].map(|at| usize::try_from(at).expect("small"));
        let put = |file: &mut Vec<u8>, from: &[u8]| {
            file.resize(file.len().max(at + end - start), 0);
            let shared = &from[start.min(from.len())..end.min(from.len())];
            file[at..at + end - start].fill(0);
            file[at..at + shared.len()].copy_from_slice(shared);
        };
        // Both files are written back first.
        self.node_mut(source).is_synced();
        let (shared, target) = (self.nodes[&source].clone(), Arc::clone(self.file(id)?));
        let data = Arc::clone(self.file(source)?);
        self.change_synced(id, |file| put(file, &data));
        if let Some(unread) = &shared.unread {
            let sectors = [start, (end - start).next_multiple_of(4096), at].map(|bytes| bytes / 4096);
            let unread = unread.moved(sectors[0], sectors[1], sectors[2]);
            let node = self.node_mut(id);
            node.unread = Some(unread.or(node.unread.take()));
            node.versions.extend(shared.versions.iter().map(|version| {
                let mut content = target.to_vec();
                put(&mut content, &version.content);
                Version { content: Arc::new(content), mtime: None }
            }));
        }
        Ok(Outcome::Done)
    }
}
