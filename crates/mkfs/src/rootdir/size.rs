//! How large a filesystem a source tree needs: a first walk that looks at sizes only.
//!
//! It is a guess: who takes it tries again with more when it was too low. It depends on nothing but what is in the tree (not on how the host stores it), because the place of every
//! chunk follows from it, and equal trees shall make equal images.

use std::collections::HashSet;
use std::ffi::CStr;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use creamery_base::Result;
use rustix::fs::FileType;

use super::source::{Meta, SourceDir, at_path, data_parts, join};
use super::walk::{Stop, Visitor, walk};

/// What a tree holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Content {
    /// Names, the root included.
    pub(crate) entries: u64,
    /// Bytes of file data in whole blocks, without holes.
    pub(crate) data: u64,
    /// Bytes of items in trees, roughly.
    pub(crate) metadata: u64,
}

/// Files up to this size may have holes that are not looked for: their data is counted whole.
const LOOK_FOR_HOLES: u64 = 64 << 10;
/// Items of one name: its inode, reference, directory item and index with their heads, but for the name itself.
const ENTRY_BYTES: u64 = (160 + 25) + (10 + 25) + (30 + 25) * 2;
/// A file extent item and its extent item with their heads.
const EXTENT_BYTES: u64 = (53 + 25) + (53 + 25);
/// A file this small may be kept in its item.
const INLINE_MAX: u64 = 4096;

struct Sizer {
    content: Content,
    sector_size: u64,
    checksum_len: u64,
    seen: HashSet<(u64, u64)>,
}

impl Sizer {
    fn entry(&mut self, name_len: usize, meta: &Meta) {
        self.content.entries += 1;
        // The name is in three places. Xattrs of files are not looked at: that would cost as much as all the rest.
        self.content.metadata += ENTRY_BYTES + 3 * name_len as u64;
        for (name, value) in &meta.xattrs {
            self.content.metadata += (30 + 25) + name.len() as u64 + value.len() as u64;
        }
    }

    fn data(&mut self, bytes: u64, parts: u64) {
        let sectors = bytes.div_ceil(self.sector_size);
        self.content.data += sectors * self.sector_size;
        self.content.metadata += sectors * self.checksum_len + parts * EXTENT_BYTES;
        if bytes <= INLINE_MAX {
            self.content.metadata += bytes;
        }
    }

    fn regular(&mut self, name: &CStr, dir: &SourceDir, meta: &Meta) -> Result<()> {
        if meta.nlink > 1 && !self.seen.insert((meta.dev, meta.ino)) {
            return Ok(());
        }
        if meta.size <= LOOK_FOR_HOLES {
            self.data(meta.size, 1);
            return Ok(());
        }
        let file = dir.open_file(name)?;
        for (start, end) in data_parts(file.as_fd(), meta.size, self.sector_size)? {
            self.data(end - start, (end - start).div_ceil(super::reader::PIECE));
        }
        Ok(())
    }
}

impl Visitor for Sizer {
    fn enter(&mut self, name: &[u8], _: &SourceDir, meta: Meta) -> Result<(), Stop> {
        self.entry(name.len(), &meta);
        Ok(())
    }

    fn leave(&mut self) -> Result<(), Stop> {
        Ok(())
    }

    fn file(&mut self, name: &CStr, _: FileType, dir: &Arc<SourceDir>) -> Result<(), Stop> {
        let in_path = |error| at_path(&join(&dir.path, name.to_bytes()))(error);
        let meta = dir.stat(name).map_err(in_path)?;
        self.entry(name.to_bytes().len(), &meta);
        match meta.kind {
            FileType::RegularFile => self.regular(name, dir, &meta).map_err(in_path)?,
            // The target of a link is its size.
            FileType::Symlink => self.content.metadata += meta.size,
            _ => {}
        }
        Ok(())
    }
}

/// Walks the tree at `source` and adds up.
pub(crate) fn measure(source: &Path, sector_size: u32, checksum_len: usize) -> Result<Content> {
    let mut sizer = Sizer {
        content: Content::default(),
        sector_size: sector_size.into(),
        checksum_len: checksum_len as u64,
        seen: HashSet::new(),
    };
    match walk(SourceDir::root(source)?, &mut sizer) {
        Ok(()) | Err(Stop::Enough) => Ok(sizer.content),
        Err(Stop::Failed(error)) => Err(error),
    }
}

impl Content {
    /// A size with room for it all: trees are not packed densely, and what a transaction replaces stays until its end.
    /// Data that small files keep in their items is counted twice, which hardly matters in a sparse file.
    pub(crate) fn filesystem_size(&self, node_size: u32, data_copies: u64, metadata_copies: u64) -> u64 {
        const UNIT: u64 = 1 << 20;
        // An operation reserves for the worst case, in whole tree blocks.
        let spare = (u64::from(node_size) * 8192).max(64 << 20);
        let data = self.data.saturating_mul(data_copies);
        let metadata = self.metadata.saturating_mul(2).saturating_mul(metadata_copies);
        // Space is set aside in chunks of up to a tenth of the whole, in each of up to three kinds.
        let both = data.saturating_add(metadata);
        let size = both.saturating_add(both / 3).saturating_add(spare);
        size.checked_next_multiple_of(UNIT).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_and_further_names_of_a_file_cost_no_data() {
        let root = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(root.path().join("sparse")).unwrap();
        file.set_len(1 << 30).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[1; 5000], 1 << 29).unwrap();
        std::fs::hard_link(root.path().join("sparse"), root.path().join("again")).unwrap();
        let content = measure(root.path(), 4096, 4).unwrap();
        assert_eq!((content.entries, content.data), (3, 8192));
    }
}
