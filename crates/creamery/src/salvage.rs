//! Reading on past damage: a damaged filesystem gives everything in it that can be read.
//!
//! Three kinds of things can be lost. Each loss is reported once:
//! - Sectors of a file with a wrong checksum or a read error. A piece with such a sector is read again sector by sector; the lost
//!   sectors become a hole in the copy.
//! - The rest of a file, when the items that map its data cannot be read.
//! - Entries of a directory, when a leaf with them cannot be read. The listing continues with the first entry behind that leaf, and
//!   ends with the lost entries that are found elsewhere (`lost_names`).
//!
//! In a damaged filesystem directories can contain each other, in as many ways as there are directories. A walk past damage
//! therefore enters each directory once.

use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;

use creamery_base::{Error, ErrorKind, InodeId, ObjectId, PieceBuffer, Result, Wait};

use crate::fs::{self, Attributes};
use crate::lost_names::Searches;
use crate::path::at;
use crate::progress::{Lost, OnError, Progress};
use crate::read_dir::ReadDir;
use crate::{File, FileType};

/// Bytes of one read.
const PIECE: u64 = 1 << 20;

/// How a copy or a walk handles errors.
pub(crate) struct Salvage<'a> {
    on_error: OnError,
    progress: &'a dyn Progress,
    /// Directories that the walk has entered.
    entered: HashSet<InodeId>,
    searches: Searches,
}

impl<'a> Salvage<'a> {
    pub(crate) fn new(on_error: OnError, progress: &'a dyn Progress) -> Self {
        Self { on_error, progress, entered: HashSet::new(), searches: Searches::new() }
    }

    /// Whether the readable parts of a damaged file or directory are returned.
    pub(crate) fn passes_damage(&self) -> bool {
        self.on_error == OnError::PastDamage
    }

    /// The value of `outcome`. `None` when the operation on `path` failed and the rest goes on without it.
    pub(crate) fn settle<T>(&self, path: &Path, what: Lost, outcome: Result<T>) -> Result<Option<T>> {
        match outcome {
            Ok(value) => Ok(Some(value)),
            Err(error) if self.on_error != OnError::Stop && !ends_all(&error) => {
                self.progress.lost(path.as_os_str().as_encoded_bytes(), what, &error);
                Ok(None)
            }
            Err(error) if error.to_string().starts_with(&path.display().to_string()) => Err(error),
            Err(error) => Err(at(path)(error)),
        }
    }

    /// Errors: the observer of the progress cancels.
    pub(crate) fn go_on(&self) -> Result<()> {
        self.progress.go_on()
    }

    /// Decides whether the walk enters a directory. Without damage each directory has one name, except the empty one that stands for every
    /// subvolume in a snapshot.
    pub(crate) fn enters(&mut self, id: InodeId) -> Result<()> {
        let is_stub = id.ino == ObjectId::EMPTY_SUBVOLUME_DIR;
        if self.on_error != OnError::Stop && !is_stub && !self.entered.insert(id) {
            return Err(Error::new(
                ErrorKind::Corrupt,
                "the directory was already copied under another name",
            ));
        }
        Ok(())
    }

    /// Whether a listing at its end continues with lost entries.
    pub(crate) fn finds_more(&mut self, dir: &mut ReadDir) -> bool {
        self.passes_damage() && self.searches.go_on(dir, &self.entered)
    }

    /// The attributes of an inode, and whether they are its own. Unreadable attributes of a directory are reported as lost; its entries can
    /// still be listed.
    pub(crate) fn attributes(
        &self,
        fs: &fs::Filesystem,
        id: InodeId,
        kind: FileType,
        path: &Path,
    ) -> Result<(Attributes, bool)> {
        let error = match fs.stat(id, Wait::Yes) {
            Err(error) if self.passes_damage() && kind.is_dir() && error.kind().is_damage() => error,
            found => return found.map(|attributes| (attributes, true)),
        };
        if fs.take_for_directory(id).is_err() {
            return Err(error);
        }
        self.settle(path, Lost::Xattrs, Err::<(), _>(error))?;
        fs.stat(id, Wait::Yes).map(|attributes| (attributes, false))
    }

    /// Reports bytes of the file at `path` as lost.
    fn lost(&self, path: &Path, bytes: Range<u64>, error: &Error) {
        self.progress.lost(path.as_os_str().as_encoded_bytes(), Lost::Bytes(bytes), error);
    }
}

/// The content of a file to copy.
pub(crate) struct Data<'a> {
    pub(crate) file: &'a File,
    pub(crate) path: &'a Path,
    pub(crate) size: u64,
    pub(crate) salvage: &'a Salvage<'a>,
}

/// Whether every later operation would fail too. A full host does not count: it may have room for a smaller file, as in cp(1).
fn ends_all(error: &Error) -> bool {
    let is_full_host = error.kind().is_no_room() && error.host().is_some();
    error.kind().ends_all() && !is_full_host
}

impl Data<'_> {
    /// Reports that the data goes into an existing file of the host, in place.
    pub(crate) fn goes_in_place(&self) {
        self.salvage.progress.in_place(self.path.as_os_str().as_encoded_bytes());
    }

    /// Errors: the observer of the progress cancels.
    pub(crate) fn go_on(&self) -> Result<()> {
        self.salvage.go_on()
    }

    /// Reports bytes that are lost after all.
    pub(crate) fn lost(&self, bytes: Range<u64>, error: &Error) {
        self.salvage.lost(self.path, bytes, error);
    }

    /// Calls `each` with every piece of data and its offset. Skips holes and lost bytes.
    pub(crate) fn for_each_piece(&self, mut each: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let each = |at, bytes: &[u8]| {
            self.salvage.go_on()?;
            each(at, bytes)
        };
        if self.salvage.passes_damage() {
            let lost = |bytes: Range<u64>, error: &Error| self.salvage.lost(self.path, bytes, error);
            for_each_readable_piece(self.file, self.size, lost, each)
        } else {
            for_each_piece(self.file, self.size, each)
        }
    }
}

impl File {
    /// Calls `each` with every readable piece of the data and its offset, in order and without holes. Calls `lost` with each unreadable
    /// range, once, and the error. Use it to recover files from a damaged filesystem.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// # fs.write("/diary", "dear diary")?;
    /// let (mut text, mut lost) = (Vec::new(), 0);
    /// fs.open("/diary")?.read_past_damage(
    ///     |bytes, _| lost += bytes.end - bytes.start,
    ///     |_, bytes| Ok(text.extend_from_slice(bytes)),
    /// )?;
    /// assert_eq!((&text[..], lost), (&b"dear diary"[..], 0));
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of `each`, and an error when the inode itself cannot be read.
    pub fn read_past_damage(
        &self,
        lost: impl FnMut(Range<u64>, &Error),
        each: impl FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        for_each_readable_piece(self, self.metadata()?.len(), lost, each)
    }
}

/// Calls `each` with every piece of data of `file` and its offset. Skips holes.
pub(crate) fn for_each_piece(
    file: &File,
    len: u64,
    mut each: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let mut buffer = PieceBuffer::default();
    let mut at = 0;
    while at < len
        && let Some(start) = file.seek_data(at)?
    {
        let end = file.seek_hole(start)?.unwrap_or(len).min(len);
        at = start;
        while at < end {
            let want = usize::try_from((end - at).min(PIECE)).expect("a piece fits in memory");
            let buffer = buffer.of(want);
            let count = file.read_at(buffer, at)?;
            if count == 0 {
                return Ok(()); // the file became shorter meanwhile
            }
            each(at, &buffer[..count])?;
            at += count as u64;
        }
        at = at.max(end);
    }
    Ok(())
}

/// Calls `each` with every readable piece of data of `file` and its offset. Calls `lost` with each unreadable range, in order, once.
/// Errors: those of `each`.
pub(crate) fn for_each_readable_piece(
    file: &File,
    len: u64,
    lost: impl FnMut(Range<u64>, &Error),
    mut each: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let sector = file.sector_size();
    let mut buffer = PieceBuffer::default();
    let mut gap = Gap { lost, is: None };
    let mut at = 0;
    while at < len {
        let place = file.seek_data(at).and_then(|start| match start {
            Some(start) => Ok(Some((start, file.seek_hole(start)?.unwrap_or(len).min(len)))),
            None => Ok(None),
        });
        let end = match place {
            Ok(Some((start, end))) => {
                at = start;
                end
            }
            Ok(None) => break,
            Err(error) => {
                gap.widen(at..len, error);
                break;
            }
        };
        // From an unreadable sector to this offset each sector is read alone.
        let mut singly_up_to = at;
        while at < end {
            let piece = if at < singly_up_to { sector - at % sector } else { PIECE };
            let piece = piece.min(end - at);
            let buffer = buffer.of(usize::try_from(piece).expect("a piece fits in memory"));
            match file.read_at(buffer, at) {
                Ok(0) => break,
                Ok(count) => {
                    gap.end();
                    each(at, &buffer[..count])?;
                    at += count as u64;
                }
                Err(_) if piece > sector => singly_up_to = at + piece,
                Err(error) => {
                    gap.widen(at..at + piece, error);
                    at += piece;
                }
            }
        }
        at = at.max(end);
    }
    gap.end();
    Ok(())
}

/// The range that is being lost, and the error.
struct Gap<L> {
    lost: L,
    is: Option<(Range<u64>, Error)>,
}

impl<L: FnMut(Range<u64>, &Error)> Gap<L> {
    fn widen(&mut self, more: Range<u64>, error: Error) {
        match &mut self.is {
            Some((bytes, _)) if bytes.end == more.start => bytes.end = more.end,
            _ => {
                self.end();
                self.is = Some((more, error));
            }
        }
    }

    fn end(&mut self) {
        if let Some((bytes, error)) = self.is.take() {
            (self.lost)(bytes, &error);
        }
    }
}
