//! Data space on its way into a file.

use std::sync::Arc;

use creamery_base::Logical;

use crate::qgroup::Charge;
use crate::space_info::BlockGroup;

/// Space for data that no file refers to yet. It goes back when dropped, unless
/// [`Handle::complete_data`](crate::Handle::complete_data) made it part of a file.
///
/// ```no_run
/// # fn write(engine: &creamery_txn::Engine) -> creamery_base::Result<()> {
/// let extent = engine.allocate_data(creamery_base::TreeId::FS, 1 << 20, 4096, None)?;
/// println!("{} bytes at {}", extent.len(), extent.start());
/// # Ok(())
/// # }
/// ```
#[must_use]
pub struct DataExtent {
    group: Arc<BlockGroup>,
    start: Logical,
    len: u64,
    /// The part of quota limits reserved for it.
    charge: Option<Charge>,
    completed: bool,
}

impl DataExtent {
    /// Creates the extent from space taken out of `group`.
    pub(crate) fn new(group: Arc<BlockGroup>, start: Logical, len: u64) -> Self {
        Self { group, start, len, charge: None, completed: false }
    }

    /// Takes its part of `charge`, which reserves quota limits for it.
    pub(crate) fn charge_for(&mut self, charge: Option<Charge>) {
        self.charge = charge.map(|mut charge| charge.take(self.len));
    }

    /// Address of the first byte.
    #[must_use]
    pub fn start(&self) -> Logical {
        self.start
    }

    /// Bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "an extent is never empty")]
    pub fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn completed(mut self) {
        self.completed = true;
        if let Some(charge) = self.charge.take() {
            charge.written();
        }
    }
}

impl Drop for DataExtent {
    fn drop(&mut self) {
        match self.completed {
            true => self.group.complete_data(self.len),
            false => self.group.abandon_data(self.start, self.len),
        }
    }
}
