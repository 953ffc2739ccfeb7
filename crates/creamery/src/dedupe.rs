//! Deduplication: files with equal content share their extents.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};

use creamery_base::{ErrorKind, InodeId, Result};

use crate::Filesystem;
use crate::extents::Extents;
use crate::file::File;
use crate::fs::Deduped;
use crate::open_options::OpenOptions;
use crate::path::at;
use crate::progress::Progress;
use crate::salvage::for_each_piece;

/// Bytes that are compared and shared in one step; both files are locked during a step.
const PIECE: u64 = 16 << 20;
/// Shorter files have no extents to share.
const LEN_MIN: u64 = 4096;

/// The result of deduplication.
///
/// ```
/// assert_eq!(creamery::extents::DedupeReport::default().shared_bytes, 0);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct DedupeReport {
    /// Files that are long enough to have extents (4096 bytes); a file with several names counts once.
    pub files: u64,
    /// Files whose content equals that of an earlier file.
    pub equal_files: u64,
    /// Bytes of equal files that this call made share extents.
    pub shared_bytes: u64,
    /// Bytes of equal files that shared extents before this call.
    pub already_shared_bytes: u64,
    /// Files that cannot be changed, with the content of another file: they are in read-only subvolumes, or marked immutable.
    pub unchangeable_files: u64,
}

impl Extents<'_> {
    /// Compares the files at and below `paths` and makes those with equal content share their extents, as
    /// `FIDEDUPERANGE` of Linux (ioctl_fideduperange(2)) does for two: bytes are compared, and only the free space changes.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/one", vec![7; 1 << 20])?;
    /// fs.write("/other", vec![7; 1 << 20])?;
    /// let report = fs.extents().dedupe(["/"], &creamery::progress::NoProgress)?;
    /// assert_eq!((report.equal_files, report.shared_bytes), (1, 1 << 20));
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// A file that cannot be read; a path that does not exist; no space. Extents that are shared before the error stay shared.
    pub fn dedupe<P: AsRef<Path>>(
        self,
        paths: impl IntoIterator<Item = P>,
        progress: &dyn Progress,
    ) -> Result<DedupeReport> {
        let mut report = DedupeReport::default();
        let mut by_size: BTreeMap<u64, BTreeMap<InodeId, PathBuf>> = BTreeMap::new();
        for path in paths {
            for entry in self.0.walk(path.as_ref())? {
                let entry = entry?;
                progress.go_on()?;
                if !entry.file_type().is_file() {
                    continue;
                }
                let size = entry.metadata()?.len();
                if size >= LEN_MIN {
                    let known = by_size.entry(size).or_default().insert(entry.id, entry.path().to_owned());
                    report.files += u64::from(known.is_none());
                }
            }
        }
        for (size, files) in by_size {
            if files.len() > 1 {
                self.0.dedupe_equal(size, files.into_values(), &mut report, progress)?;
            }
        }
        Ok(report)
    }
}

impl Filesystem {
    /// Makes the files with equal content among `files`, all `size` bytes long, share their extents.
    fn dedupe_equal(
        &self,
        size: u64,
        files: impl Iterator<Item = PathBuf>,
        report: &mut DedupeReport,
        progress: &dyn Progress,
    ) -> Result<()> {
        let mut firsts: HashMap<u64, PathBuf> = HashMap::new();
        let mut files: Vec<PathBuf> = files.collect();
        // A changeable file can share the extents of an unchangeable one, but not the other way round.
        let is_changeable = |path: &PathBuf| OpenOptions::new().write(true).open(self, path).is_ok();
        files.sort_by_cached_key(is_changeable);
        for path in files {
            let file = OpenOptions::new().read(true).open(self, &path)?;
            progress.go_on()?;
            progress.entry(path.as_os_str().as_encoded_bytes(), size);
            let digest = digest(&file, size, progress).map_err(at(&path))?;
            let Some(first) = firsts.get(&digest) else {
                firsts.insert(digest, path);
                continue;
            };
            let first = OpenOptions::new().read(true).open(self, first)?;
            match OpenOptions::new().write(true).open(self, &path) {
                Ok(target) => share(&first, &target, size, report, progress).map_err(at(&path))?,
                Err(error) if matches!(error.kind(), ErrorKind::ReadOnly | ErrorKind::PermissionDenied) => {
                    report.unchangeable_files += 1;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A number that is the same for files with equal content, and rarely for others.
fn digest(file: &File, size: u64, progress: &dyn Progress) -> Result<u64> {
    let mut hasher = DefaultHasher::new();
    for_each_piece(file, size, |at, bytes| {
        progress.go_on()?;
        // A hole equals zeros.
        if bytes.iter().any(|byte| *byte != 0) {
            hasher.write_u64(at);
            hasher.write(bytes);
        }
        Ok(())
    })?;
    Ok(hasher.finish())
}

/// Makes `target` share its common beginning with `first`.
fn share(
    first: &File,
    target: &File,
    size: u64,
    report: &mut DedupeReport,
    progress: &dyn Progress,
) -> Result<()> {
    let mut done = 0;
    let mut counts = (0, 0);
    while done < size {
        progress.go_on()?;
        match target.dedupe_range(first, done, PIECE.min(size - done), done) {
            // One file has checksums and the other has none, or one was truncated meanwhile.
            Err(error) if error.kind() == ErrorKind::InvalidInput => return Ok(()),
            Err(error) => return Err(error),
            Ok(Deduped::Differ | Deduped::Shared(0) | Deduped::Already(0)) => return Ok(()),
            Ok(Deduped::Shared(bytes)) => {
                counts.0 += bytes;
                done += bytes;
            }
            Ok(Deduped::Already(bytes)) => {
                counts.1 += bytes;
                done += bytes;
            }
        }
    }
    report.equal_files += 1;
    report.shared_bytes += counts.0;
    report.already_shared_bytes += counts.1;
    Ok(())
}
