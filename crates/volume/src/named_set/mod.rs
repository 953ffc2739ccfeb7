//! The devices of a filesystem by their names on this host.
//!
//! One device is named first. The others are named, too, or found beside it (`beside`), which is tried only where the first one does not do.
//! Devices that are named win over those that are found.

mod beside;

pub use beside::superblocks_of_host;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use creamery_base::{Error, ErrorKind, Result};
use creamery_device::{Access, BlockDevice, FileDevice};

use crate::DeviceSet;

/// How a filesystem is named that may have several devices: a path alone, or with others.
///
/// Others of its devices are found beside the first one: in the directory of a file, among the block devices of the host for a block device. Those
/// that are named with [`device`](Self::device) win over those that are found.
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
}

impl NamedSet {
    /// The filesystem on this device, an image file or a block device, and on those that are found beside it.
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

    /// Bears missing devices; see [`DeviceSet::degraded`].
    #[must_use]
    pub fn degraded(self) -> Self {
        Self { degraded: true, ..self }
    }

    /// The device that is named first.
    #[must_use]
    pub fn first(&self) -> &Path {
        &self.first
    }

    /// Whether missing devices are borne.
    #[must_use]
    pub const fn is_degraded(&self) -> bool {
        self.degraded
    }

    /// The devices that are named, the first one first.
    pub fn named(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(&self.first).chain(&self.others).map(PathBuf::as_path)
    }

    /// Opens something on its devices. `open` is called with those that are named; if one is missing, again with those that are found as well.
    ///
    /// # Errors
    /// A device cannot be opened; two devices that are found are equal; those of `open`.
    pub fn open<T>(&self, access: Access, open: impl FnMut(DeviceSet) -> Result<T>) -> Result<T> {
        self.open_on(Arc::new(FileDevice::open(&self.first, access)?), access, open)
    }

    /// Opens something as [`open`](Self::open) does, on a first device that is open already.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_on<T>(
        &self,
        first: Arc<dyn BlockDevice>,
        access: Access,
        mut open: impl FnMut(DeviceSet) -> Result<T>,
    ) -> Result<T> {
        let mut named = DeviceSet::from(first).degraded(self.degraded);
        for path in &self.others {
            named.push(Arc::new(FileDevice::open(path, access)?));
        }
        // A filesystem of several devices is not written to.
        if access == Access::ReadWrite {
            return open(named);
        }
        // Where a device may be missing, nothing but the superblock says that one is.
        let missing = match self.degraded || beside::are_too_few(&named) {
            true => None,
            false => match open(named.clone()) {
                Err(error) if error.kind() == ErrorKind::DeviceMissing => Some(error),
                opened => return opened,
            },
        };
        let mut barred = None;
        let beside = self.with_found(named.clone(), access, &mut open, &mut barred);
        let error = match (beside, missing) {
            (Ok(Some(opened)), _) => return Ok(opened),
            (Ok(None), None) => return open(named).map_err(|error| self.advised(error, barred.as_deref())),
            (Ok(None), Some(error)) | (Err(error), _) => error,
        };
        // Where missing devices are borne, so is it that others do not fit. Damage is no reason to go by an earlier commit.
        let does_not_fit = matches!(
            error.kind(),
            ErrorKind::Unsupported | ErrorKind::InvalidInput | ErrorKind::Busy | ErrorKind::PermissionDenied
        );
        if self.degraded && does_not_fit {
            let note = format!("devices beside it are left out: {error}");
            return open(named.noted(note)).map_err(|_| error);
        }
        Err(self.advised(error, barred.as_deref()))
    }

    /// Opens it on what is named and what is found, if anything is. Gives a file that may be a member and may not be read, where one is missing.
    fn with_found<T>(
        &self,
        named: DeviceSet,
        access: Access,
        open: &mut dyn FnMut(DeviceSet) -> Result<T>,
        barred: &mut Option<PathBuf>,
    ) -> Result<Option<T>> {
        let found = beside::find(&self.first, &named)?;
        *barred = found.barred;
        let with = |set: &DeviceSet, paths: &[PathBuf]| -> Result<DeviceSet> {
            let mut set = set.clone();
            for path in paths {
                set.push(Arc::new(FileDevice::open(path, access)?));
            }
            Ok(set)
        };
        let all = with(&named, &found.members)?;
        // Another filesystem's seed is no member, which is found out by opening.
        if !found.seeds.is_empty()
            && let Ok(opened) = with(&all, &found.seeds).and_then(&mut *open)
        {
            return Ok(Some(opened));
        }
        if all.devices().len() == named.devices().len() { Ok(None) } else { open(all).map(Some) }
    }

    fn advised(&self, error: Error, barred: Option<&Path>) -> Error {
        if self.degraded || error.kind() != ErrorKind::DeviceMissing || error.advice().is_some() {
            return error;
        }
        let others = "name the others with --device PATH, or read without them with --degraded";
        error.advise(match barred {
            Some(path) => format!("{} beside it may not be read by this user; {others}", path.display()),
            None => others.to_owned(),
        })
    }
}

impl<P: AsRef<Path>> From<P> for NamedSet {
    fn from(first: P) -> Self {
        Self::new(first.as_ref())
    }
}
