//! Asking a live mount which extents a file has: `FS_IOC_FIEMAP` reaches no server of FUSE, the kernel refuses it before.
//!
//! The control is sent to the file itself. Who could open that may ask, as on Linux, so there is nothing to judge here; and the
//! file may have lost its name. Its order is one for a part of a listing, the answer a batch of entries and where to go on. So a file of
//! a million extents is told in pieces, none of which is large, and each is asked for when the last one was read.
//!
//! What is written to a shared mapping of the file is the kernel's until that hands it over, and nobody here knows of it before. Who
//! lists has it handed over first: it is delayed then, as all that is written.

use creamery_base::Result;
use creamery_fs::{Fiemap, FiemapBatch, FiemapExtent, FiemapRequest, OpenFile};
use creamery_fuse::{Errno, control_number};
use serde::{Deserialize, Serialize};

use crate::control::{GROUP, PAGE, new_key, order_in};
use crate::live_file::LiveFile;
use crate::why::Why;

pub(crate) const FIEMAP: u32 = control_number::<PAGE>(GROUP, 15);

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
struct Order {
    offset: u64,
    len: u64,
    sync: bool,
    /// Where the last batch ended.
    next: Option<u64>,
}

/// A part of a listing.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
struct Answer {
    /// Why not.
    failure: Option<String>,
    /// What kind of a failure that is.
    why: Why,
    /// Of each where it begins in the file, where it lies, its length and its flags.
    extents: Vec<FiemapExtent>,
    next: Option<u64>,
    ends_file: bool,
}

impl Answer {
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
    let Order { offset, len, sync, next } = order_in(page)?.ok_or(Errno::EINVAL)?;
    let answer = Answer::of(file.fiemap_batch(&FiemapRequest { offset, len, sync }, next));
    serde_json::to_vec(&answer).map_err(|_| Errno::EIO)
}

impl LiveFile {
    /// Which extents it has, as [`OpenFile::fiemap`], with what was written to mappings of it.
    /// Errors: that could not be handed over; each item: those of [`OpenFile::fiemap_batch`]; the server is gone, or does not know
    /// the control.
    pub fn fiemap(&self, request: &FiemapRequest) -> Result<Fiemap<'_>> {
        let FiemapRequest { offset, len, sync } = *request;
        if sync {
            self.file().sync_data()?;
        } else {
            // With each descriptor that is closed the kernel hands over what mappings have changed.
            drop(self.file().try_clone()?);
        }
        let ask = move |next| {
            let order = Order { offset, len, sync, next };
            self.channel().ask_with::<FIEMAP, Answer>(new_key(), &order)?.into_batch()
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
        let told =
            |answer: &Answer| serde_json::from_slice::<Answer>(&serde_json::to_vec(answer).expect("JSON"));
        let read = told(&Answer::of(Ok(batch.clone()))).expect("JSON").into_batch();
        assert_eq!(read.expect("a batch"), batch);
        let refused = Error::invalid("a range without a length");
        let read = told(&Answer::of(Err(refused))).expect("JSON").into_batch().expect_err("a refusal");
        assert_eq!(read.kind(), ErrorKind::InvalidInput);
        assert!(read.to_string().contains("a range without a length"));
    }

    #[test]
    fn an_order_is_json_behind_the_key_or_refused() {
        let page = |order: &[u8]| {
            let mut page = vec![7; HEAD + KEY];
            page.extend(order);
            page.resize(PAGE, 0);
            page
        };
        let order = Order { offset: 4096, len: u64::MAX, sync: true, next: Some(8192) };
        let json = serde_json::to_vec(&order).expect("JSON");
        assert_eq!(order_in(&page(&json)), Ok(Some(order)));
        assert_eq!(order_in(&page(b"{}")), Ok(Some(Order::default())));
        for bytes in [&b"{"[..], b"7", b"{\"len\":-1}", b"{\"next\":1e30}", b"\xff\xff", &[b'['; 3000]] {
            assert_eq!(order_in::<Order>(&page(bytes)), Err(Errno::EINVAL));
        }
        for len in [0, 7, HEAD, HEAD + KEY] {
            assert_eq!(order_in::<Order>(&page(&json)[..len]), Ok(None));
        }
        assert_eq!(order_in::<Order>(&page(b"")), Ok(None));
    }
}
