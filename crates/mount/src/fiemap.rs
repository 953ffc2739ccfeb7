//! Lists the extents of a file of a live mount. The kernel rejects `FS_IOC_FIEMAP` before it reaches a FUSE server, so this is a control.
//!
//! The control is sent to the file itself. Any process that could open the file may send it, as on Linux, so there is no permission to check; and the
//! file may have lost its name. An order is for a part of a listing; the answer is a batch of entries and where to go on. So a file with
//! a million extents comes in small parts, each on request.
//!
//! Data that was written to a shared mapping of the file stays with the kernel until it hands the pages over. The caller of the
//! listing makes it do that first: then the data is delayed, like all written data.

use creamery_base::Result;
use creamery_fs::{Fiemap, FiemapBatch, FiemapExtent, FiemapRequest, OpenFile};
use creamery_fuse::{Errno, control_number};
use serde::{Deserialize, Serialize};

use crate::control::{GROUP, PAGE, new_key, order_in};
use crate::live_file::LiveFile;
use crate::why::Why;

pub(crate) const FIEMAP: u32 = control_number::<PAGE>(GROUP, 15);

/// An order.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
struct FiemapOrder {
    offset: u64,
    len: u64,
    sync: bool,
    /// The end of the last batch.
    next: Option<u64>,
}

/// A part of a listing.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
struct FiemapAnswer {
    /// The error message, if it failed.
    failure: Option<String>,
    /// The kind of the failure.
    why: Why,
    /// For each extent its offset in the file, its address, its length and its flags.
    extents: Vec<FiemapExtent>,
    next: Option<u64>,
    ends_file: bool,
}

impl FiemapAnswer {
    fn of(batch: Result<FiemapBatch>) -> Self {
        match batch {
            Ok(FiemapBatch { extents, next, ends_file }) => {
                Self { extents, next, ends_file, ..Self::default() }
            }
            Err(error) => {
                Self { failure: Some(error.without_kind()), why: Why::of_error(&error), ..Self::default() }
            }
        }
    }

    fn into_batch(self) -> Result<FiemapBatch> {
        match self.failure {
            None => Ok(FiemapBatch { extents: self.extents, next: self.next, ends_file: self.ends_file }),
            Some(failure) => Err(self.why.error(failure)),
        }
    }
}

/// The mount's end: the text of the answer to the order in `page`.
pub(crate) fn answer(file: &OpenFile, page: &[u8]) -> creamery_fuse::Result<Vec<u8>> {
    let FiemapOrder { offset, len, sync, next } = order_in(page)?.ok_or(Errno::EINVAL)?;
    let answer = FiemapAnswer::of(file.fiemap_batch(&FiemapRequest { offset, len, sync }, next));
    serde_json::to_vec(&answer).map_err(|_| Errno::EIO)
}

impl LiveFile {
    /// Lists the extents of the file, like [`OpenFile::fiemap`], with data from its mappings.
    /// Errors: that data could not be handed over. Of each item: those of [`OpenFile::fiemap_batch`]; the server died, or does not know
    /// the control.
    pub fn fiemap(&self, request: &FiemapRequest) -> Result<Fiemap<'_>> {
        let FiemapRequest { offset, len, sync } = *request;
        if sync {
            self.file().sync_data()?;
        } else {
            // When a descriptor is closed, the kernel hands over the pages that mappings have changed.
            drop(self.file().try_clone()?);
        }
        let ask = move |next| {
            let order = FiemapOrder { offset, len, sync, next };
            self.channel().ask_with::<FIEMAP, FiemapAnswer>(new_key(), &order)?.into_batch()
        };
        Ok(Fiemap::new(ask))
    }
}

#[cfg(test)]
mod tests {
    use creamery_base::{Error, ErrorKind};
    use creamery_fs::FiemapFlags;

    use super::*;
    use crate::control::{HEAD, KEY};

    #[test]
    fn an_answer_is_read_as_it_was_meant() {
        let flags = FiemapFlags::ENCODED | FiemapFlags::SHARED;
        let batch = FiemapBatch {
            extents: vec![FiemapExtent::new(0, u64::MAX, 4096, flags)],
            next: Some(4096),
            ends_file: false,
        };
        let told = |answer: &FiemapAnswer| {
            serde_json::from_slice::<FiemapAnswer>(&serde_json::to_vec(answer).expect("JSON"))
        };
        let read = told(&FiemapAnswer::of(Ok(batch.clone()))).expect("JSON").into_batch();
        assert_eq!(read.expect("a batch"), batch);
        let refused = Error::invalid("empty range");
        let read = told(&FiemapAnswer::of(Err(refused))).expect("JSON").into_batch().expect_err("a refusal");
        assert_eq!(read.kind(), ErrorKind::InvalidInput);
        assert!(read.to_string().contains("empty range"));
    }

    #[test]
    fn an_order_is_json_behind_the_key_or_refused() {
        let page = |order: &[u8]| {
            let mut page = vec![7; HEAD + KEY];
            page.extend(order);
            page.resize(PAGE, 0);
            page
        };
        let order = FiemapOrder { offset: 4096, len: u64::MAX, sync: true, next: Some(8192) };
        let json = serde_json::to_vec(&order).expect("JSON");
        assert_eq!(order_in(&page(&json)), Ok(Some(order)));
        assert_eq!(order_in(&page(b"{}")), Ok(Some(FiemapOrder::default())));
        for bytes in [&b"{"[..], b"7", b"{\"len\":-1}", b"{\"next\":1e30}", b"\xff\xff", &[b'['; 3000]] {
            assert_eq!(order_in::<FiemapOrder>(&page(bytes)), Err(Errno::EINVAL));
        }
        for len in [0, 7, HEAD, HEAD + KEY] {
            assert_eq!(order_in::<FiemapOrder>(&page(&json)[..len]), Ok(None));
        }
        assert_eq!(order_in::<FiemapOrder>(&page(b"")), Ok(None));
    }
}
