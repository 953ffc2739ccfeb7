//! Finds the files that findings of a mount's scrub affect.

use std::collections::BTreeMap;

use creamery_base::{Logical, ObjectId, TreeId};
use creamery_fs::{ExtentPart, Filesystem};
use creamery_maint::scrub::{FILES_MAX, file_line};
use serde::{Deserialize, Serialize};

/// A place of a file that a finding affects, as it is sent.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct FileText {
    pub(super) subvolume: u64,
    pub(super) inode: u64,
    pub(super) byte: u64,
    /// The path, any bytes; `None` if it is unknown.
    pub(super) path: Option<Vec<u8>>,
}

impl FileText {
    /// Its line in a report.
    pub(super) fn line(&self) -> String {
        let inode = (TreeId::new(self.subvolume), ObjectId::new(self.inode));
        file_line(self.path.as_deref(), inode, self.byte)
    }
}

/// Bytes of all paths that are kept.
const PATHS_MAX: usize = 4 << 20;

/// Files by the address of their data: each bad copy is a separate finding.
#[derive(Default)]
pub(super) struct KnownFiles {
    files: BTreeMap<Logical, (Vec<FileText>, u64)>,
    /// Bytes of the paths so far.
    paths: usize,
}

impl KnownFiles {
    /// Finds a few of the files with data at an address, and the number of further ones, as of the last commit, which a scrub reads. Files
    /// that cannot be found are left out. If there are too many paths, a file comes without one.
    pub(super) fn files_of(&mut self, fs: &Filesystem, at: Logical) -> (Vec<FileText>, u64) {
        if let Some(files) = self.files.get(&at) {
            return files.clone();
        }
        let (mut files, more) = files_of(fs, at);
        for file in &mut files {
            let len = file.path.as_ref().map_or(0, Vec::len);
            match self.paths + len <= PATHS_MAX {
                true => self.paths += len,
                false => file.path = None,
            }
        }
        self.files.insert(at, (files.clone(), more));
        (files, more)
    }
}

fn files_of(fs: &Filesystem, at: Logical) -> (Vec<FileText>, u64) {
    let (mut files, mut more) = (Vec::new(), 0);
    for (id, byte) in fs.resolve_committed(at, ExtentPart::Byte).unwrap_or_default() {
        if files.len() >= FILES_MAX {
            more += 1;
            continue;
        }
        let file = |path| FileText { subvolume: id.subvolume.get(), inode: id.ino.get(), byte, path };
        let top = fs.subvolume_path(id.subvolume);
        match top.and_then(|top| Ok((top, fs.inode_paths(id)?))) {
            Ok((top, paths)) => files.extend(paths.iter().map(|path| {
                let parts = [&top[..], path].into_iter().filter(|part| !part.is_empty());
                file(Some(parts.flat_map(|part| [b"/", part].concat()).collect()))
            })),
            Err(_) => files.push(file(None)),
        }
    }
    more += files.len().saturating_sub(FILES_MAX) as u64;
    files.truncate(FILES_MAX);
    (files, more)
}
