//! The errors of devices. They are counted as on Linux and stored in the device tree: an item for each device, five numbers of 8 bytes.
//!
//! Linux reads numbers that an item is too short for as 0, and leaves bytes behind the five as they are; so does this. Of each number a mount of Linux keeps 32
//! bits.
//!
//! # Locking
//! A change reads the item before it begins a handle, and changes follow one another ([`rank::DEVICE_ERRORS`]). Readers see
//! the item before a change or the one after it.
//!
//! # After a crash
//! A change belongs to one transaction: the item is that of the last commit.
//!
//! [`rank::DEVICE_ERRORS`]: creamery_base::lock::rank::DEVICE_ERRORS

use creamery_base::{DevId, Error, ErrorKind, ObjectId, Result, TreeId, Wait};
use creamery_format::{Key, KeyType, RawDevStats};
use creamery_txn::ReserveItems;

use crate::Filesystem;
use crate::operation::in_handle;

/// `DEV_STATS` items: persistent items of the object 0.
const DEV_STATS: ObjectId = ObjectId::new(0);

/// The number of errors that a device had since its counters were last reset.
///
/// ```
/// let errors = creamery_fs::DeviceErrors { corruption: 3, ..Default::default() };
/// assert!(errors.any() && !creamery_fs::DeviceErrors::default().any());
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct DeviceErrors {
    /// Writes that failed.
    pub write: u64,
    /// Reads that failed.
    pub read: u64,
    /// Flushes that failed.
    pub flush: u64,
    /// Data that did not match its checksum.
    pub corruption: u64,
    /// Blocks of another transaction than the expected one.
    pub generation: u64,
}

impl DeviceErrors {
    /// Whether any number is greater than 0.
    #[must_use]
    pub fn any(&self) -> bool {
        *self != Self::default()
    }

    /// Takes numbers in Linux' order: write, read, flush, corruption, generation. Missing numbers are 0.
    #[must_use]
    pub fn of_counts(counts: &[u64]) -> Self {
        let count = |at: usize| counts.get(at).copied().unwrap_or(0);
        Self { write: count(0), read: count(1), flush: count(2), corruption: count(3), generation: count(4) }
    }

    /// Parses an item.
    #[must_use]
    pub fn of_item(data: &[u8]) -> Self {
        let (words, _) = data.as_chunks();
        Self::of_counts(&words.iter().map(|word| u64::from_le_bytes(*word)).collect::<Vec<_>>())
    }

    /// The numbers in Linux' order: write, read, flush, corruption, generation.
    #[must_use]
    pub const fn to_counts(self) -> [u64; 5] {
        let Self { write, read, flush, corruption, generation } = self;
        [write, read, flush, corruption, generation]
    }

    /// The sum of both, limited to [`u64::MAX`] for each number.
    const fn saturating_add(self, more: &Self) -> Self {
        Self {
            write: self.write.saturating_add(more.write),
            read: self.read.saturating_add(more.read),
            flush: self.flush.saturating_add(more.flush),
            corruption: self.corruption.saturating_add(more.corruption),
            generation: self.generation.saturating_add(more.generation),
        }
    }

    /// Writes the numbers into the item `data`, which grows if it is too short.
    fn put_into(self, data: &mut Vec<u8>) {
        data.resize(data.len().max(RawDevStats::LEN), 0);
        data[..RawDevStats::LEN].copy_from_slice(&self.to_counts().map(u64::to_le_bytes).concat());
    }
}

const fn key_of(id: DevId) -> Key {
    Key::new(DEV_STATS, KeyType::PERSISTENT_ITEM, id.get())
}

impl Filesystem {
    /// The errors of a device, with every change so far; 0 if it has no item.
    ///
    /// # Errors
    /// Device errors; damage.
    pub fn device_errors(&self, id: DevId) -> Result<DeviceErrors> {
        let tree = self.engine().tree(TreeId::DEV)?;
        Ok(tree.get(&key_of(id), Wait::Yes, DeviceErrors::of_item)?.unwrap_or_default())
    }

    /// Adds `errors` to the errors of a device, in the running transaction. A number that would be too large stays at the largest. Nothing is written if all are 0.
    ///
    /// ```no_run
    /// # fn example(fs: &creamery_fs::Filesystem) -> creamery_base::Result<()> {
    /// use creamery_base::DevId;
    /// use creamery_fs::DeviceErrors;
    /// fs.add_device_errors(DevId::new(1), &DeviceErrors { corruption: 1, ..Default::default() })?;
    /// assert!(fs.device_errors(DevId::new(1))?.any());
    /// fs.sync()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Not found: there is no such device; read-only: for example a filesystem on several devices; no space; device errors; damage.
    pub fn add_device_errors(&self, id: DevId, errors: &DeviceErrors) -> Result<()> {
        self.change_device_errors(id, |counted| counted.saturating_add(errors)).map(drop)
    }

    /// Sets the errors of a device to 0, in the running transaction. Returns the old numbers. Nothing is written if all are 0 already.
    ///
    /// ```no_run
    /// # fn example(fs: &creamery_fs::Filesystem) -> creamery_base::Result<()> {
    /// use creamery_base::DevId;
    /// let were = fs.reset_device_errors(DevId::new(1))?;
    /// println!("{} writes had failed", were.write);
    /// fs.sync()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Filesystem::add_device_errors`].
    pub fn reset_device_errors(&self, id: DevId) -> Result<DeviceErrors> {
        self.change_device_errors(id, |_| DeviceErrors::default())
    }

    /// Changes the numbers in the item of a device to `next` of the old ones. Returns the old ones.
    fn change_device_errors(
        &self,
        id: DevId,
        next: impl FnOnce(DeviceErrors) -> DeviceErrors,
    ) -> Result<DeviceErrors> {
        let engine = self.engine();
        engine.check_open()?;
        engine.check_writable()?;
        if !engine.devices().iter().any(|device| device.id == id) {
            return Err(Error::new(ErrorKind::NotFound, format!("no device {id}"))
                .advise("`creamery filesystem show` lists the devices"));
        }
        let _alone = self.count_alone();
        let (tree, key) = (engine.tree(TreeId::DEV)?, key_of(id));
        let mut data = tree.get(&key, Wait::Yes, <[u8]>::to_vec)?.unwrap_or_default();
        let counted = DeviceErrors::of_item(&data);
        let next = next(counted);
        if next != counted {
            next.put_into(&mut data);
            in_handle(engine, ReserveItems::items(1), |handle| tree.upsert(handle, &key, &data))?;
        }
        Ok(counted)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;
    use crate::data::tests::support::{Fixture, Kind, fixture};
    use crate::{FileContent, FsOptions, NewInode};

    const FIRST: DevId = DevId::new(1);
    const SOME: DeviceErrors = DeviceErrors { write: 1, read: 2, flush: 3, corruption: 4, generation: 5 };

    fn opened(fixture: &Fixture) -> Arc<Filesystem> {
        Filesystem::open(Arc::clone(&fixture.engine), FsOptions::default()).expect("opening writes nothing")
    }

    fn counted(fs: &Filesystem) -> DeviceErrors {
        fs.device_errors(FIRST).expect("a readable tree")
    }

    /// The bytes of the first device's item.
    fn item(fs: &Filesystem) -> Option<Vec<u8>> {
        let tree = fs.engine().tree(TreeId::DEV).expect("every filesystem has one");
        tree.get(&key_of(FIRST), Wait::Yes, <[u8]>::to_vec).expect("a readable tree")
    }

    /// Sets the bytes of the first device's item; `None` removes it.
    fn set_item(fs: &Filesystem, data: Option<&[u8]>) {
        let tree = fs.engine().tree(TreeId::DEV).expect("every filesystem has one");
        in_handle(fs.engine(), ReserveItems::items(1), |handle| {
            tree.remove(handle, &key_of(FIRST))?;
            data.map_or(Ok(()), |data| tree.insert(handle, &key_of(FIRST), data))
        })
        .expect("room");
    }

    #[test]
    fn what_is_not_there_is_no_error() {
        let words: Vec<u8> = [1_u64, 2, 3, 4, 5, 6].iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(DeviceErrors::of_item(&words), SOME);
        let short = DeviceErrors { corruption: 0, generation: 0, ..SOME };
        assert_eq!(DeviceErrors::of_item(&words[..31]), short);
        assert!(!DeviceErrors::of_item(&[]).any());
    }

    #[test]
    fn errors_add_up_over_commits_and_a_reset_tells_them() {
        let Some(mut fixture) = fixture(Kind::DEFAULT) else { return };
        let fs = opened(&fixture);
        fs.add_device_errors(FIRST, &SOME).expect("room");
        assert_eq!(counted(&fs), SOME, "before the commit");
        drop(fs);
        fixture.reopen();
        let fs = opened(&fixture);
        assert_eq!(counted(&fs), SOME, "of the last commit");
        let more = DeviceErrors { write: u64::MAX, read: 10, ..Default::default() };
        fs.add_device_errors(FIRST, &more).expect("room");
        let sum = DeviceErrors { write: u64::MAX, read: 12, ..SOME };
        assert_eq!(counted(&fs), sum);
        assert_eq!(fs.reset_device_errors(FIRST).expect("room"), sum);
        assert!(!counted(&fs).any(), "before the commit");
        drop(fs);
        fixture.reopen();
        let fs = opened(&fixture);
        assert!(!counted(&fs).any(), "of the last commit");
        assert_eq!(item(&fs).expect("it stays").len(), RawDevStats::LEN);
        fixture.judge(|_| ());
    }

    #[test]
    fn a_change_that_changes_nothing_writes_nothing() {
        let Some(fixture) = fixture(Kind::DEFAULT) else { return };
        let fs = opened(&fixture);
        fs.add_device_errors(FIRST, &DeviceErrors::default()).expect("nothing to do");
        assert!(!fs.reset_device_errors(FIRST).expect("nothing to do").any());
        assert!(!fs.engine().has_changes());
    }

    #[test]
    fn items_of_every_length_are_added_to_and_reset() {
        for kind in [Kind::DEFAULT, Kind::OLD] {
            let Some(fixture) = fixture(kind) else { return };
            let fs = opened(&fixture);
            for len in [None, Some(0), Some(7), Some(8), Some(39), Some(40), Some(41), Some(64), Some(3000)] {
                let old: Option<Vec<u8>> =
                    len.map(|len: usize| (0..len).map(|at| u8::try_from(at % 5).expect("small")).collect());
                set_item(&fs, old.as_deref());
                let old = old.unwrap_or_default();
                let before = DeviceErrors::of_item(&old);
                fs.add_device_errors(FIRST, &SOME).expect("room");
                assert_eq!(counted(&fs), before.saturating_add(&SOME), "{len:?}");
                assert_eq!(fs.reset_device_errors(FIRST).expect("room"), before.saturating_add(&SOME));
                let is = item(&fs).expect("it is there");
                assert_eq!(is[..40], [0; 40], "{len:?}");
                assert_eq!(is[40..], *old.get(40..).unwrap_or_default(), "{len:?}: what is not known stays");
            }
            fixture.engine.commit().expect("a commit");
        }
    }

    #[test]
    fn of_many_that_add_at_once_none_is_lost() {
        let Some(fixture) = fixture(Kind::DEFAULT) else { return };
        let fs = opened(&fixture);
        set_item(&fs, None);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        fs.add_device_errors(FIRST, &SOME).expect("room");
                    }
                });
            }
            scope.spawn(|| (0..10).for_each(|_| fs.engine().commit().expect("a commit")));
        });
        let times = |count: u64| count * 200;
        assert_eq!(counted(&fs).to_counts(), SOME.to_counts().map(times));
    }

    #[test]
    fn a_device_that_is_not_there_and_a_filesystem_for_reading_are_refused() {
        let Some(mut fixture) = fixture(Kind::DEFAULT) else { return };
        let fs = opened(&fixture);
        for id in [0, 2, u64::MAX].map(DevId::new) {
            let added = fs.add_device_errors(id, &SOME).expect_err("no such device");
            let reset = fs.reset_device_errors(id).expect_err("no such device");
            assert_eq!([added.kind(), reset.kind()], [ErrorKind::NotFound; 2]);
        }
        fs.add_device_errors(FIRST, &SOME).expect("room");
        drop(fs);
        fixture.reopen_for_reading();
        let fs = opened(&fixture);
        let added = fs.add_device_errors(FIRST, &SOME).expect_err("for reading");
        let reset = fs.reset_device_errors(FIRST).expect_err("for reading");
        assert_eq!([added.kind(), reset.kind()], [ErrorKind::ReadOnly; 2]);
        assert_eq!(counted(&fs), SOME);
    }

    /// Fills the filesystem: data takes all space that there is for it, and small files fill metadata.
    fn fill(fs: &Filesystem) {
        let root = fs.root(TreeId::FS).expect("it is there");
        let big = fs.create(root, b"big", &NewInode::file(0o600)).expect("room");
        let file = fs.open_file(big.id).expect("it is there");
        let mut len = 64 << 20;
        while len >= 4096 {
            let end = fs.stat(big.id, Wait::Yes).expect("it is there").size;
            match file.fallocate(crate::Fallocate::Allocate { keep_size: false }, end, len) {
                Ok(()) => {}
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::NoSpace);
                    len /= 2;
                }
            }
        }
        drop(file);
        let small = [7; 2000];
        let mut names = 0_u64..;
        let full = names.find_map(|name| {
            let content = FileContent { size: 2000, stretches: &[(0, &small)], packed: None };
            fs.create_file_with(root, format!("{name}").as_bytes(), &NewInode::file(0o600), &content).err()
        });
        assert_eq!(full.map(|error| error.kind()), Some(ErrorKind::NoSpace));
    }

    #[test]
    fn a_full_filesystem_counts_or_says_so_and_stays_sound() {
        let Some(fixture) = fixture(Kind::DEFAULT) else { return };
        let fs = opened(&fixture);
        set_item(&fs, None);
        fill(&fs);
        let mut counts = DeviceErrors::default();
        for _ in 0..3 {
            match fs.add_device_errors(FIRST, &SOME) {
                Ok(()) => counts = counts.saturating_add(&SOME),
                Err(error) => assert_eq!(error.kind(), ErrorKind::NoSpace),
            }
            assert_eq!(counted(&fs), counts);
            fs.sync().expect("a commit");
        }
        match fs.reset_device_errors(FIRST) {
            Ok(were) => assert_eq!(were, std::mem::take(&mut counts)),
            Err(error) => assert_eq!(error.kind(), ErrorKind::NoSpace),
        }
        assert_eq!(counted(&fs), counts);
        assert!(fs.engine().aborted().is_none());
        drop(fs);
        fixture.judge(|_| ());
    }
}
