//! Compares two files with one name.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use creamery_base::{Error, ErrorKind, Wait};

use super::report::{DiffChange, DiffKind, DiffTrouble, Difference, SIDES};
use super::{Diff, DiffNode};
use crate::fs::{Access, Attributes, InodeFlags, OpenFile};
use crate::metadata::{file_type, xattrs_of};
use crate::path::at;
use crate::{FileType, Metadata};

/// Bytes of each file in one comparison.
const PIECE: usize = 256 << 10;

/// Flags that chattr(1) shows. The others concern the storage of data; so does NOCOMPRESS, which Linux sets by itself on data that does not
/// compress.
const FLAGS: InodeFlags = InodeFlags::SYNC
    .union(InodeFlags::IMMUTABLE)
    .union(InodeFlags::APPEND)
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::DIRSYNC)
    .union(InodeFlags::COMPRESS)
    .union(InodeFlags::NODATACOW)
    .union(InodeFlags::VERITY);

/// The reason why a comparison stops.
enum Stop {
    /// This side cannot be read.
    Lost(usize, Error),
    /// The observer cancels.
    Ended(Error),
}

/// The kind of a difference, or `None`.
type Outcome = std::result::Result<Option<DiffKind>, Stop>;

impl Diff<'_> {
    /// Compares `nodes`, which are at `below` in both trees, and reports the difference under the path `shown`. Returns whether their
    /// content can be compared, too.
    pub(super) fn compare(&mut self, below: &Path, shown: &Path, nodes: [DiffNode; 2]) -> bool {
        let Some(attributes) = self.attributes(below, nodes) else { return false };
        let lens = attributes.each_ref().map(|attributes| match file_type(attributes.kind) {
            FileType::File => Some(attributes.size),
            _ => None,
        });
        let len = lens[1].or(lens[0]).unwrap_or(0);
        let is_type = nodes[0].kind != nodes[1].kind || nodes[0].rank != nodes[1].rank;
        let kinds = if is_type {
            vec![DiffKind::Type]
        } else {
            let mut kinds = of_attributes(&attributes);
            if let Some(kind) = self.settle(below, Self::content, nodes, &attributes) {
                kinds.extend(kind);
            }
            if let Some(kind) = self.settle(below, Self::xattrs, nodes, &attributes) {
                kinds.extend(kind);
            }
            kinds.sort_unstable();
            kinds
        };
        self.progress.entry(shown.as_os_str().as_encoded_bytes(), len);
        if !kinds.is_empty() {
            let is_counted = kinds.iter().any(|kind| matches!(kind, DiffKind::Content | DiffKind::Type));
            let len = if is_counted { len } else { 0 };
            let (path, change) = (shown.to_owned(), DiffChange::Modified);
            self.ready.push_back(Ok(Difference { path, change, kinds, is_subvolume: false, len }));
        }
        true
    }

    fn attributes(&mut self, below: &Path, nodes: [DiffNode; 2]) -> Option<[Attributes; 2]> {
        let read = [0, 1].map(|side: usize| self.trees[side].fs.stat(nodes[side].id, Wait::Yes));
        let mut failed = |side: usize, error| self.lost(side, below, error);
        match read {
            [Ok(old), Ok(new)] => return Some([old, new]),
            [old, new] => {
                old.err().into_iter().for_each(|error| failed(0, error));
                new.err().into_iter().for_each(|error| failed(1, error));
            }
        }
        None
    }

    /// The kind that `compared` finds; `None` when it fails, which is reported.
    fn settle(
        &mut self,
        below: &Path,
        compared: fn(&mut Self, [DiffNode; 2], &[Attributes; 2]) -> Outcome,
        nodes: [DiffNode; 2],
        attributes: &[Attributes; 2],
    ) -> Option<Option<DiffKind>> {
        match compared(self, nodes, attributes) {
            Ok(kind) => return Some(kind),
            Err(Stop::Lost(side, error)) => self.lost(side, below, error),
            Err(Stop::Ended(error)) => self.end(error),
        }
        None
    }

    fn lost(&mut self, side: usize, below: &Path, error: Error) {
        let path = self.trees[side].path_of(below);
        self.trouble(SIDES[side], at(&path)(error));
    }

    /// Ends the comparison with an error.
    pub(super) fn end(&mut self, error: Error) {
        self.levels.clear();
        self.ready.push_back(Err(DiffTrouble { side: None, error }));
    }

    fn xattrs(&mut self, nodes: [DiffNode; 2], _: &[Attributes; 2]) -> Outcome {
        let of = |side: usize| {
            let mut all =
                xattrs_of(&self.trees[side].fs, nodes[side].id).map_err(|error| Stop::Lost(side, error))?;
            // The order in which the attributes were made does not count.
            all.sort_unstable();
            Ok(all)
        };
        Ok((of(0)? != of(1)?).then_some(DiffKind::Xattr))
    }

    fn content(&mut self, nodes: [DiffNode; 2], attributes: &[Attributes; 2]) -> Outcome {
        let [old, new] = attributes;
        let is_equal = match nodes[0].kind {
            FileType::File if old.size != new.size => false,
            FileType::File => self.has_equal_data(nodes, old.size)?,
            FileType::Symlink => {
                let target = |side: usize| {
                    let target = self.trees[side].fs.read_link(nodes[side].id, Wait::Yes);
                    target.map_err(|error| Stop::Lost(side, error))
                };
                target(0)? == target(1)?
            }
            FileType::CharDevice | FileType::BlockDevice => old.device == new.device,
            FileType::Directory | FileType::Fifo | FileType::Socket => true,
        };
        Ok((!is_equal).then_some(DiffKind::Content))
    }

    /// Whether two files of `len` bytes have the same data.
    fn has_equal_data(&mut self, nodes: [DiffNode; 2], len: u64) -> std::result::Result<bool, Stop> {
        let open = |side: usize| {
            let file = self.trees[side].fs.open_file_for(nodes[side].id, Access::Read);
            file.map_err(|error| Stop::Lost(side, error))
        };
        let files = [open(0)?, open(1)?];
        let mut done = 0;
        while done < len {
            // On damage here, the range counts as different: reading it then fails, and the error has the side.
            let differs = files[0].first_unshared(&files[1], done..len).unwrap_or(Some(done..len));
            let Some(range) = differs else { break };
            done = range.end;
            if !self.reads_equal(&files, range)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether both files have the same bytes in `range`.
    fn reads_equal(
        &mut self,
        files: &[Arc<OpenFile>; 2],
        range: Range<u64>,
    ) -> std::result::Result<bool, Stop> {
        self.buffers.iter_mut().for_each(|buffer| buffer.resize(PIECE, 0));
        let mut done = range.start;
        while done < range.end {
            self.progress.go_on().map_err(Stop::Ended)?;
            let len = usize::try_from(range.end - done).unwrap_or(usize::MAX).min(PIECE);
            for (side, (file, buffer)) in files.iter().zip(&mut self.buffers).enumerate() {
                let lost = |error| Stop::Lost(side, error);
                if file.read_at(done, &mut buffer[..len], Wait::Yes).map_err(lost)? < len {
                    return Err(lost(Error::new(ErrorKind::Stale, "it was truncated during the comparison")));
                }
            }
            let [old, new] = &self.buffers;
            if old[..len] != new[..len] {
                return Ok(false);
            }
            done += len as u64;
        }
        Ok(true)
    }
}

/// The kinds of difference that the attributes alone show.
fn of_attributes(attributes: &[Attributes; 2]) -> Vec<DiffKind> {
    let [old, new] = attributes.clone().map(Metadata::new);
    let flags = |meta: &Metadata| InodeFlags::from_bits_retain(meta.flags()) & FLAGS;
    [
        (DiffKind::Mode, old.permissions() != new.permissions()),
        (DiffKind::Owner, (old.uid(), old.gid()) != (new.uid(), new.gid())),
        (DiffKind::Time, old.mtime() != new.mtime()),
        (DiffKind::Flags, flags(&old) != flags(&new)),
    ]
    .into_iter()
    .filter_map(|(kind, differs)| differs.then_some(kind))
    .collect()
}
