//! The bytes of a device, in pages that copies share.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};

/// Bytes of a page, the smallest unit that Btrfs writes.
pub const PAGE: usize = 4096;

/// One page and its hash, computed once and shared by all images with this page.
#[derive(Debug)]
pub(crate) struct Page {
    bytes: [u8; PAGE],
    hash: u64,
}

impl Page {
    fn new(bytes: [u8; PAGE]) -> Arc<Self> {
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        Arc::new(Self { hash: hasher.finish(), bytes })
    }

    /// The pages of `data`, whose length is a multiple of [`PAGE`].
    pub(crate) fn split(data: &[u8]) -> Vec<Arc<Self>> {
        assert!(data.len().is_multiple_of(PAGE), "whole pages");
        data.chunks(PAGE).map(|bytes| Self::new(bytes.try_into().expect("a whole page"))).collect()
    }

    pub(crate) const fn bytes(&self) -> &[u8; PAGE] {
        &self.bytes
    }
}

/// The content of a device. Copies are cheap: they share the frozen part, and pages.
///
/// ```
/// use creamery_sim::Image;
/// let mut image = Image::new(1 << 30);
/// image.write(4096, b"cream");
/// let copy = image.clone();
/// image.write(4096, b"milk!");
/// let mut bytes = [0; 5];
/// copy.read(4096, &mut bytes);
/// assert_eq!(&bytes, b"cream");
/// ```
#[derive(Clone, Debug)]
pub struct Image {
    len: u64,
    base: Arc<HashMap<u64, Arc<Page>>>,
    changes: HashMap<u64, Arc<Page>>,
}

fn index(position: u64) -> usize {
    usize::try_from(position).expect("a position in a slice fits")
}

impl Image {
    /// An image of `len` zero bytes.
    #[must_use]
    pub fn new(len: u64) -> Self {
        Self { len, base: Arc::default(), changes: HashMap::new() }
    }

    /// Loads a file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn load(path: &Path) -> Result<Self> {
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::open(path).with_context(|| format!("opening {}", path.display()))?;
        let mut image = Self::new(file.metadata()?.len());
        let mut step = vec![0; 1 << 20];
        let mut at = 0;
        while at < image.len {
            let part = index((image.len - at).min(step.len() as u64));
            file.read_exact_at(&mut step[..part], at)?;
            image.write(at, &step[..part]);
            at += part as u64;
        }
        image.freeze();
        Ok(image)
    }

    /// Writes the image to a file, with holes in place of zeros.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::create(path).with_context(|| format!("making {}", path.display()))?;
        file.set_len(self.len)?;
        let hidden = |number: &u64| self.changes.contains_key(number);
        for (number, page) in
            self.base.iter().filter(|(number, _)| !hidden(number)).chain(self.changes.iter())
        {
            if page.bytes.iter().any(|&byte| byte != 0) {
                file.write_all_at(&page.bytes, number * PAGE as u64)?;
            }
        }
        Ok(())
    }

    /// The image on a device that is `more` bytes longer; these read as zeros.
    #[must_use]
    pub fn with_room(&self, more: u64) -> Self {
        Self { len: self.len + more, ..self.clone() }
    }

    /// Length in bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a device is never empty")]
    pub const fn len(&self) -> u64 {
        self.len
    }

    fn page(&self, number: u64) -> Option<&Arc<Page>> {
        self.changes.get(&number).or_else(|| self.base.get(&number))
    }

    /// Fills `out` from `offset` on.
    pub fn read(&self, offset: u64, out: &mut [u8]) {
        assert!(offset + out.len() as u64 <= self.len, "reading within the device");
        let mut done = 0;
        while done < out.len() {
            let at = offset + done as u64;
            let from = index(at % PAGE as u64);
            let len = (PAGE - from).min(out.len() - done);
            match self.page(at / PAGE as u64) {
                Some(page) => out[done..done + len].copy_from_slice(&page.bytes[from..from + len]),
                None => out[done..done + len].fill(0),
            }
            done += len;
        }
    }

    /// Writes `data` at `offset`.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        assert!(offset + data.len() as u64 <= self.len, "writing within the device");
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let (number, from) = (at / PAGE as u64, index(at % PAGE as u64));
            let len = (PAGE - from).min(data.len() - done);
            let mut bytes = self.page(number).map_or([0; PAGE], |page| page.bytes);
            let before = bytes;
            bytes[from..from + len].copy_from_slice(&data[done..done + len]);
            if bytes != before {
                self.put(number, Page::new(bytes));
            }
            done += len;
        }
    }

    /// Replaces a whole page.
    pub(crate) fn put(&mut self, number: u64, page: Arc<Page>) {
        self.changes.insert(number, page);
    }

    /// Writes `len` zeros from `offset` on.
    pub fn zero(&mut self, offset: u64, len: u64) {
        let end = offset + len;
        let (first, last) = (offset / PAGE as u64, end.div_ceil(PAGE as u64));
        let mut touched: Vec<u64> = self
            .base
            .keys()
            .chain(self.changes.keys())
            .copied()
            .filter(|n| (first..last).contains(n))
            .collect();
        touched.sort_unstable();
        touched.dedup();
        for number in touched {
            let start = number * PAGE as u64;
            let (from, to) = (offset.max(start), end.min(start + PAGE as u64));
            self.write(from, &vec![0; index(to - from)]);
        }
    }

    /// Makes the current content the part that copies share.
    pub fn freeze(&mut self) {
        let mut all = (*self.base).clone();
        all.extend(self.changes.drain());
        self.base = Arc::new(all);
    }

    /// A hash of the content: equal for equal content of two copies of one frozen image.
    #[must_use]
    pub fn hash(&self) -> u64 {
        let of = |number: &u64, page: &Arc<Page>| {
            let mut hasher = DefaultHasher::new();
            (number, page.hash).hash(&mut hasher);
            hasher.finish()
        };
        let zero = Page::new([0; PAGE]);
        self.changes.iter().fold(0, |sum, (number, page)| {
            let before = self.base.get(number).unwrap_or(&zero);
            sum ^ of(number, page) ^ of(number, before)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_tells_contents_apart_and_not_histories() {
        let mut base = Image::new(1 << 20);
        base.write(0, b"base");
        base.freeze();
        let (mut a, mut b) = (base.clone(), base.clone());
        a.write(8000, b"two pages, in part and one after the other");
        assert_ne!(a.hash(), b.hash());
        b.write(8000, b"something else altogether");
        b.write(8000, b"two pages, in part and one after the other");
        assert_eq!(a.hash(), b.hash());
        b.zero(8000, 100);
        assert_eq!(b.hash(), base.hash());
    }

    #[test]
    fn a_saved_image_loads_again() {
        let scratch = creamery_testkit::Scratch::new("sim-image").expect("a folder");
        let mut image = Image::new(1 << 20);
        image.write(5000, &[7; 9000]);
        image.save(&scratch.file("image")).expect("saved");
        let loaded = Image::load(&scratch.file("image")).expect("loaded");
        let mut bytes = vec![0; 1 << 20];
        loaded.read(0, &mut bytes);
        assert_eq!(bytes.iter().filter(|&&byte| byte == 7).count(), 9000);
        assert_eq!((bytes[4999], bytes[5000], bytes[13999], bytes[14000]), (0, 7, 7, 0));
    }
}
