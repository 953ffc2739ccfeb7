//! The devices of a filesystem by their names on this host.
//!
//! One device is named first. The others are named, too, or found beside it (`beside`); the search happens only if the first one is not
//! enough. Named devices win over found ones.

mod beside;
mod opening;

pub use beside::superblocks_of_host;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use creamery_base::{Error, ErrorKind, Result};
use creamery_device::{Access, BlockDevice, DeviceIo};
use creamery_format::Superblock;

use self::beside::{Beside, FoundMember};
use self::opening::Opening;
use crate::DeviceSet;
use crate::copies::{self, OpenPurpose};

/// The name of a filesystem that may have several devices: one path, or several.
///
/// Others of its devices are found beside the first one: in the directory of a file, among the block devices of the host for a block
/// device. Devices named with [`device`](Self::device) win over those that are found.
///
/// ```
/// use creamery_device::Access;
/// use creamery_volume::{Mode, NamedSet, Volume};
/// # fn example() -> creamery_base::Result<()> {
/// let set = NamedSet::new("a.img").device("b.img").degraded();
/// let volume = set.open(Access::ReadOnly, |devices| Volume::open(devices, Mode::ReadOnly))?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct NamedSet {
    first: PathBuf,
    others: Vec<PathBuf>,
    degraded: bool,
    io: DeviceIo,
}

impl NamedSet {
    /// Names the filesystem on this device, an image file or a block device, and on the devices found beside it.
    pub fn new(first: impl Into<PathBuf>) -> Self {
        Self { first: first.into(), ..Self::default() }
    }

    /// Names another of its devices.
    #[must_use]
    pub fn device(mut self, path: impl Into<PathBuf>) -> Self {
        self.others.push(path.into());
        self
    }

    /// Names others of its devices.
    #[must_use]
    pub fn devices<P: Into<PathBuf>>(mut self, paths: impl IntoIterator<Item = P>) -> Self {
        self.others.extend(paths.into_iter().map(Into::into));
        self
    }

    /// Accepts missing devices; see [`DeviceSet::degraded`].
    #[must_use]
    pub fn degraded(self) -> Self {
        Self { degraded: true, ..self }
    }

    /// Reads and writes the devices past the page cache of the host ([`DeviceIo::Direct`]).
    #[must_use]
    pub fn direct_io(self) -> Self {
        Self { io: DeviceIo::Direct, ..self }
    }

    /// Returns how the devices are read and written.
    #[must_use]
    pub const fn io(&self) -> DeviceIo {
        self.io
    }

    /// Returns the device that is named first.
    #[must_use]
    pub fn first(&self) -> &Path {
        &self.first
    }

    /// Whether missing devices are accepted.
    #[must_use]
    pub const fn is_degraded(&self) -> bool {
        self.degraded
    }

    /// Returns the named devices, the first one first.
    pub fn named(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(&self.first).chain(&self.others).map(PathBuf::as_path)
    }

    /// Opens something on its devices. Calls `open` with the named devices; if one is missing, calls it again with the found ones as well.
    ///
    /// # Errors
    /// A device cannot be opened; two found devices are equal; those of `open`.
    pub fn open<T>(&self, access: Access, open: impl FnMut(DeviceSet) -> Result<T>) -> Result<T> {
        self.open_on(Arc::new(self.opening(access).open(&self.first)?), access, open)
    }

    const fn opening(&self, access: Access) -> Opening {
        Opening { access, io: self.io }
    }

    /// Opens something like [`open`](Self::open), on a first device that is open already.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_on<T>(
        &self,
        first: Arc<dyn BlockDevice>,
        access: Access,
        mut open: impl FnMut(DeviceSet) -> Result<T>,
    ) -> Result<T> {
        let mut opened = None;
        self.try_on(first, access, &mut |devices| {
            opened = None; // the result of the previous attempt
            opened = Some(open(devices)?);
            Ok(())
        })?;
        Ok(opened.expect("what was tried last was opened"))
    }

    /// Calls `open` with sets of devices until it succeeds.
    fn try_on(&self, first: Arc<dyn BlockDevice>, access: Access, open: Open<'_>) -> Result<()> {
        let mut named = DeviceSet::from(first).degraded(self.degraded);
        let opening = self.opening(access);
        for path in &self.others {
            named.push(Arc::new(opening.open(path)?));
        }
        // A filesystem of several devices is not written to.
        if access == Access::ReadWrite {
            return open(named);
        }
        // If devices may be missing, only the superblock shows that one is.
        let missing = match self.degraded || beside::are_too_few(&named) {
            true => None,
            false => match open(named.clone()) {
                Err(error) if error.kind() == ErrorKind::DeviceMissing => Some(error),
                opened => return opened,
            },
        };
        let found = beside::find(&self.first, &named);
        let left_out = found.as_ref().map(|found| found.left_out.join("; ")).unwrap_or_default();
        if self.degraded && !left_out.is_empty() {
            named = named.noted(left_out.clone());
        }
        let opened = found.as_ref().map_or(Ok(false), |found| with_found(found, &named, opening, open));
        let error = match (opened, found) {
            (Ok(true), _) => return Ok(()),
            (Ok(false), Ok(_)) => match missing {
                None => return open(named).map_err(|error| self.advised(error, &left_out)),
                Some(error) => error,
            },
            // If missing devices are accepted, so are others that do not fit. Damage is no reason to use an earlier commit.
            (Err(error), Ok(found)) if self.degraded && does_not_fit(&error) => {
                let set = that_fit(&found, named, opening, open);
                return open(set).map_err(|_| error);
            }
            (Ok(false), Err(error)) if self.degraded && does_not_fit(&error) => {
                let note = format!("devices beside it are left out: {error}");
                return open(named.noted(note)).map_err(|_| error);
            }
            (Err(error), _) | (Ok(false), Err(error)) => error,
        };
        Err(self.advised(error, &left_out))
    }

    /// Returns the superblocks of its devices, named and found, each with the path of its device, without opening the filesystem. It may
    /// lack devices, even without [`degraded`](Self::degraded); `note` gets a sentence for each reason why a device beside it is left out.
    ///
    /// # Errors
    /// A named device cannot be opened, or has no usable superblock; two found devices are equal.
    pub fn superblocks(&self, note: &mut dyn FnMut(String)) -> Result<Vec<(PathBuf, Superblock)>> {
        let (mut named, mut all) = (DeviceSet::default(), Vec::new());
        for path in self.named() {
            let device: Arc<dyn BlockDevice> = Arc::new(self.opening(Access::ReadOnlyForced).open(path)?);
            all.push((path.to_owned(), copies::find(&*device, OpenPurpose::Reading)?.superblock));
            named.push(device);
        }
        let found = beside::find(&self.first, &named)?;
        all.extend(found.members.into_iter().map(|member| (member.path, member.superblock)));
        found.left_out.into_iter().for_each(note);
        Ok(all)
    }

    fn advised(&self, error: Error, left_out: &str) -> Error {
        if self.degraded || error.kind() != ErrorKind::DeviceMissing || error.advice().is_some() {
            return error;
        }
        let others = "name the others with --device PATH, or read without them with --degraded";
        error.advise(if left_out.is_empty() { others.to_owned() } else { format!("{left_out}; {others}") })
    }
}

/// Opens something on devices.
type Open<'o> = &'o mut dyn FnMut(DeviceSet) -> Result<()>;

/// Opens a filesystem on the named and found devices. Returns whether any device was found.
fn with_found(found: &Beside, named: &DeviceSet, opening: Opening, open: Open<'_>) -> Result<bool> {
    let all = with(named, &found.members, opening)?;
    // Only opening shows whether a seed belongs to this filesystem. A seed may have been made from a seed.
    let each = found.seeds.iter().map(|seed| vec![seed]);
    let together = (found.seeds.len() > 1).then(|| found.seeds.iter().collect());
    for seeds in each.chain(together) {
        let seeds = seeds.into_iter().flatten();
        if with(&all, seeds, opening).and_then(&mut *open).is_ok() {
            return Ok(true);
        }
    }
    if all.devices().len() == named.devices().len() { Ok(false) } else { open(all).map(|()| true) }
}

/// Returns the named devices and those found members that fit, added one after the other; a note gives the reason for each other one.
fn that_fit(found: &Beside, named: DeviceSet, opening: Opening, open: Open<'_>) -> DeviceSet {
    found.members.iter().fold(named, |set, one| {
        let with = with(&set, [one], opening);
        let opened = with.as_ref().map_or(Ok(()), |with| open(with.clone()));
        match (with, opened) {
            (Ok(with), Ok(())) => with,
            // It fits, but more devices are needed.
            (Ok(with), Err(error)) if error.kind() == ErrorKind::DeviceMissing => with,
            (_, Err(error)) | (Err(error), _) => {
                set.noted(format!("{} is left out: {error}", one.path.display()))
            }
        }
    })
}

/// Returns a set with found devices added.
fn with<'f>(
    set: &DeviceSet,
    found: impl IntoIterator<Item = &'f FoundMember>,
    opening: Opening,
) -> Result<DeviceSet> {
    let mut set = set.clone();
    for one in found {
        set.push(Arc::new(one.open(opening)?));
    }
    Ok(set)
}

/// Whether an error says that devices do not belong together, rather than that the filesystem is damaged.
const fn does_not_fit(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Unsupported | ErrorKind::InvalidInput | ErrorKind::Busy | ErrorKind::PermissionDenied
    )
}

impl<P: AsRef<Path>> From<P> for NamedSet {
    fn from(first: P) -> Self {
        Self::new(first.as_ref())
    }
}
