//! The size of a filesystem for a source tree: a first walk that reads sizes only.

use std::collections::HashSet;
use std::ffi::CStr;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use creamery_base::Result;
use rustix::fs::FileType;

use super::source::{Meta, SourceDir, at_path, data_parts, join};
use super::walk::{Visitor, WalkStop, walk};
use crate::source::Measure;

/// Holes of files up to this size, bytes, are not looked for: their data is counted completely.
const LOOK_FOR_HOLES: u64 = 64 << 10;
struct Sizer {
    measure: Measure,
    seen: HashSet<(u64, u64)>,
}

impl Sizer {
    fn entry(&mut self, name_len: usize, meta: &Meta) {
        self.measure.entry(name_len);
        // The xattrs of files are not read: that would cost as much as all the rest.
        for (name, value) in &meta.xattrs {
            self.measure.xattr(name, value);
        }
    }

    fn regular(&mut self, name: &CStr, dir: &SourceDir, meta: &Meta) -> Result<()> {
        if meta.nlink > 1 && !self.seen.insert((meta.dev, meta.ino)) {
            return Ok(());
        }
        if meta.size <= LOOK_FOR_HOLES {
            self.measure.data(meta.size);
            return Ok(());
        }
        let file = dir.open_file(name)?;
        for (start, end) in data_parts(file.as_fd(), meta.size, self.measure.sector_size())? {
            self.measure.lasting_data(end - start);
        }
        Ok(())
    }
}

impl Visitor for Sizer {
    fn enter(&mut self, name: &[u8], _: &SourceDir, meta: Meta) -> Result<(), WalkStop> {
        self.entry(name.len(), &meta);
        Ok(())
    }

    fn leave(&mut self) -> Result<(), WalkStop> {
        Ok(())
    }

    fn file(&mut self, name: &CStr, _: FileType, dir: &Arc<SourceDir>) -> Result<(), WalkStop> {
        let in_path = |error| at_path(&join(&dir.path, name.to_bytes()))(error);
        let meta = dir.stat(name).map_err(in_path)?;
        self.entry(name.to_bytes().len(), &meta);
        match meta.kind {
            FileType::RegularFile => self.regular(name, dir, &meta).map_err(in_path)?,
            // The target of a link is its size.
            FileType::Symlink => self.measure.items(meta.size),
            _ => {}
        }
        Ok(())
    }
}

/// Walks the tree at `source` and adds it to `measure`.
pub(crate) fn measure(source: &Path, measure: Measure) -> Result<Measure> {
    let mut sizer = Sizer { measure, seen: HashSet::new() };
    match walk(SourceDir::root(source)?, &mut sizer) {
        Ok(()) | Err(WalkStop::Enough) => Ok(sizer.measure),
        Err(WalkStop::Failed(error)) => Err(error),
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
        let content = measure(root.path(), Measure::new(4096, 4)).unwrap().content();
        assert_eq!((content.entries, content.data, content.least), (3, 8192, 8192));
    }
}
