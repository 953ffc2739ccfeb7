//! Checks a filesystem: nothing is written, and each finding has a permanent number.

pub mod scrub;

use std::path::{Path, PathBuf};

use creamery_base::{Error, Logical, Result};
use creamery_device::Access;
use creamery_volume::{DeviceSet, Mode, NamedSet, Rescue, Volume};

use crate::extents::ExtentPart;
use crate::resolve::DataUser;
use crate::{Filesystem, Image};

pub use creamery_check::{
    CheckOptions, Counts, DamagedFile, DamagedSector, Finding, NoProgress, Problem, ProblemSite, Progress,
    Report, Severity, exit_status,
};

/// Checks the whole filesystem on these devices or image files. The check searches for its other devices beside the first one.
///
/// ```
/// use creamery::check::{CheckOptions, NoProgress, check};
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// let report = check([&image], &CheckOptions::default(), &NoProgress)?;
/// assert!(report.is_clean(), "{:#?}", report.findings);
/// # Ok::<(), creamery::Error>(())
/// ```
///
/// # Errors
/// The filesystem cannot be opened, or has a feature that the check does not support. Damage is a finding and not an error.
pub fn check<P: AsRef<Path>>(
    devices: impl IntoIterator<Item = P>,
    options: &CheckOptions,
    progress: &dyn Progress,
) -> Result<Report> {
    let mut devices = devices.into_iter();
    let Some(first) = devices.next() else { return Err(Error::invalid("no device given")) };
    let others = devices.map(|device| device.as_ref().to_owned());
    check_set(NamedSet::new(first.as_ref()).devices(others), options, progress)
}

/// Checks a filesystem whose devices may be missing ([`NamedSet::degraded`]), like [`check`].
///
/// ```
/// use creamery::NamedSet;
/// use creamery::check::{CheckOptions, NoProgress, check_set};
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// let set = NamedSet::new(&image).degraded();
/// assert!(check_set(set, &CheckOptions::default(), &NoProgress)?.is_clean());
/// # Ok::<(), creamery::Error>(())
/// ```
///
/// # Errors
/// Those of [`check`].
pub fn check_set(
    image: impl Into<NamedSet>,
    options: &CheckOptions,
    progress: &dyn Progress,
) -> Result<Report> {
    image.into().open(Access::ReadOnly, |devices| {
        let volume = Volume::open(devices.clone(), Mode::ReadOnly)?;
        let mut report = creamery_check::check(&volume, options, progress)?;
        name_files(&mut report, &devices);
        Ok(report)
    })
}

/// Findings whose files are named. More names would not help in so much damage.
const NAMED_MAX: usize = 1_000;
/// Files that are named for a sector.
const FILES_MAX: usize = 8;

/// Finds the files of the damaged sectors: the check itself knows the first, by number. This judges nothing: a sector whose file cannot be
/// named stays a number.
fn name_files(report: &mut Report, devices: &DeviceSet) {
    let mut sectors = report
        .findings
        .iter_mut()
        .filter_map(|finding| finding.place.sector.as_mut())
        .take(NAMED_MAX)
        .peekable();
    if sectors.peek().is_none() {
        return;
    }
    let rescue = Rescue { ignore_bad_roots: true, ignore_super_flags: true, ..Rescue::default() };
    let Ok(fs) = Image::options().rescue(rescue).open_set(devices.clone()) else { return };
    for sector in sectors {
        name_files_of(&fs, sector);
    }
}

/// The files with data at an address, a few at most, and the number of further ones.
pub(crate) fn files_of(fs: &Filesystem, at: Logical) -> (Vec<DamagedFile>, u64) {
    let mut sector = DamagedSector { logical: at.get(), ..DamagedSector::default() };
    name_files_of(fs, &mut sector);
    (sector.files, sector.more_files)
}

fn name_files_of(fs: &Filesystem, sector: &mut DamagedSector) {
    // The files by the extent backreferences; if those are damaged, the file that the check met.
    if let Ok(users) = fs.extents().users(Logical::new(sector.logical), ExtentPart::Byte) {
        let user = |user: DataUser| DamagedFile::new(user.subvolume, user.ino, user.offset);
        sector.files = users.into_iter().map(user).collect();
    }
    let mut named = Vec::new();
    for file in std::mem::take(&mut sector.files) {
        let paths = match named.len() {
            0..FILES_MAX => paths_of(fs, &file),
            _ => Vec::new(),
        };
        match paths.is_empty() {
            true => named.push(file),
            false => named.extend(paths.iter().map(|path| file.clone().at(path))),
        }
    }
    sector.more_files = named.len().saturating_sub(FILES_MAX) as u64;
    named.truncate(FILES_MAX);
    sector.files = named;
}

fn paths_of(fs: &Filesystem, file: &DamagedFile) -> Vec<Vec<u8>> {
    let (Ok(top), Ok(paths)) =
        (fs.subvolumes().path(file.subvolume), fs.subvolumes().inode_paths(file.subvolume, file.inode))
    else {
        return Vec::new();
    };
    let path = |below: &PathBuf| Path::new("/").join(&top).join(below).into_os_string().into_encoded_bytes();
    paths.iter().map(path).collect()
}
