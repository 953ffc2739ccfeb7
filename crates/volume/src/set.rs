//! The set of devices for opening a volume.

use std::sync::Arc;

use creamery_device::BlockDevice;

/// The devices of a filesystem, in any order, and whether others of its devices may be missing.
///
/// ```
/// use creamery_device::MemoryDevice;
/// use creamery_volume::DeviceSet;
/// use std::sync::Arc;
/// let mut set = DeviceSet::default().degraded(true);
/// set.push(Arc::new(MemoryDevice::new(1 << 20)));
/// set.push(Arc::new(MemoryDevice::new(1 << 20)));
/// assert_eq!(set.devices().len(), 2);
/// assert!(set.is_degraded());
/// ```
#[derive(Clone, Default)]
pub struct DeviceSet {
    devices: Vec<Arc<dyn BlockDevice>>,
    degraded: bool,
    notes: Vec<String>,
}

impl DeviceSet {
    /// Adds a device.
    pub fn push(&mut self, device: Arc<dyn BlockDevice>) {
        self.devices.push(device);
    }

    /// Accepts missing devices, as many as the profiles of the chunks allow. For reading.
    #[must_use]
    pub fn degraded(self, degraded: bool) -> Self {
        Self { degraded, ..self }
    }

    /// Whether devices may be missing.
    #[must_use]
    pub const fn is_degraded(&self) -> bool {
        self.degraded
    }

    /// Adds a note on how the devices were found.
    pub(crate) fn noted(mut self, note: String) -> Self {
        self.notes.push(note);
        self
    }

    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns the given devices.
    #[must_use]
    pub fn devices(&self) -> &[Arc<dyn BlockDevice>] {
        &self.devices
    }
}

impl From<Vec<Arc<dyn BlockDevice>>> for DeviceSet {
    fn from(devices: Vec<Arc<dyn BlockDevice>>) -> Self {
        Self { devices, degraded: false, notes: Vec::new() }
    }
}

impl<D: BlockDevice + 'static> From<Vec<Arc<D>>> for DeviceSet {
    fn from(devices: Vec<Arc<D>>) -> Self {
        devices.into_iter().map(|device| device as Arc<dyn BlockDevice>).collect()
    }
}

impl From<Arc<dyn BlockDevice>> for DeviceSet {
    fn from(device: Arc<dyn BlockDevice>) -> Self {
        vec![device].into()
    }
}

impl FromIterator<Arc<dyn BlockDevice>> for DeviceSet {
    fn from_iter<I: IntoIterator<Item = Arc<dyn BlockDevice>>>(devices: I) -> Self {
        Vec::from_iter(devices).into()
    }
}
