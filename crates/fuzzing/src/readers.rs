//! Runs all readers, and a writer, on an image that may be damaged.

use std::io::{Error, ErrorKind, Result, Write};
use std::ops::ControlFlow;
use std::path::Component;
use std::sync::Arc;

use creamery::attributes::Timespec;
use creamery::check::scrub::{self, Scrub};
use creamery::env::FixedEnv;
use creamery::extents::ExtentPart;
use creamery::history::{NoSearchProgress, gone_files_of_device, history_of_device};
use creamery::id::{Generation, Logical};
use creamery::inspect::{SuperDump, TreeDump, dump_super_of, dump_tree_of};
use creamery::report::{Overview, PictureKind};
use creamery::rescue::{Rescue, scan_device};
use creamery::{Filesystem, Image, OpenOptions, WalkEntry};
use creamery_check::{CheckOptions, NoProgress, Report, check};
use creamery_device::BlockDevice;
use creamery_sim::SimDevice;
use creamery_volume::{Mode, Volume};

/// Maximum number of entries of a walk that are read.
const ENTRIES_MAX: usize = 500;
/// Bytes of a file that are read at each offset.
const READ_MAX: usize = 160 << 10;
/// The address of the first data for which mkfs allocates space.
const FIRST_DATA: u64 = 13_631_488;
/// Maximum number of addresses that are looked up.
const ADDRESSES_MAX: usize = 32;
/// One of this many images is searched for earlier commits.
const SEARCHED_ONE_OF: u64 = 32;
/// One of this many images is drawn.
const DRAWN_ONE_OF: u64 = 4;
/// One of this many images is scrubbed.
const SCRUBBED_ONE_OF: u64 = 2;
/// Maximum bytes of a dump.
const DUMP_MAX: usize = 4 << 20;

/// A writer that accepts this many bytes; then the medium is full.
struct Limited(usize);

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(Error::from(ErrorKind::StorageFull))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

fn dyn_device(device: &Arc<SimDevice>) -> Arc<dyn BlockDevice> {
    Arc::<SimDevice>::clone(device)
}

/// Runs every reader on the image, and checks that none changes it.
pub(crate) fn read_everything(device: &Arc<SimDevice>) {
    let before = device.image().hash();
    let mut out = Limited(DUMP_MAX);
    let what = SuperDump { full: true, all: true };
    // Errors are valid answers: each call must end, and without a panic.
    let _ = dump_super_of(device.as_ref(), "image", what, &mut out);
    let _ = dump_tree_of(dyn_device(device), "image", TreeDump::Everything, &mut out);
    let _ = checked(device);
    if before.is_multiple_of(SCRUBBED_ONE_OF) {
        let _ = Scrub::default().read_only().run_on([dyn_device(device)], &scrub::NoProgress);
    }
    if before.is_multiple_of(SEARCHED_ONE_OF) {
        search_history(device);
        let _ = scan_device(device.as_ref(), &NoSearchProgress);
    }
    // Reads past damage only if normal opening fails: the first reader covers the rest already.
    let past = |what| Image::options().rescue(what).open_device(dyn_device(device));
    let nothing = Rescue::default();
    let earlier = Rescue { use_backup_root: true, ..nothing };
    if let Ok(fs) = past(nothing).or_else(|_| past(earlier)).or_else(|_| past(Rescue::ALL)) {
        look(&fs);
        if before.is_multiple_of(DRAWN_ONE_OF) {
            draw(device);
        }
    }
    assert_eq!(device.image().hash(), before, "a reader has changed the image");
}

/// Makes the page that shows the filesystem: names in it come from the image.
fn draw(device: &Arc<SimDevice>) {
    let Ok(overview) = Overview::of_device(dyn_device(device), Image::options().rescue(Rescue::ALL)) else {
        return;
    };
    let page = overview.html();
    assert!(page.ends_with("</html>\n"), "the page is cut short");
    assert!(!page.contains("<script"), "a name has become a part of the page");
    for kind in [PictureKind::Map, PictureKind::Treemap] {
        assert!(overview.svg(kind).trim_end().ends_with("</svg>"), "the picture is cut short");
    }
}

/// Looks for earlier commits and lost files in them: that reads all places where a tree block can be.
fn search_history(device: &Arc<SimDevice>) {
    let _ = history_of_device(dyn_device(device));
    let mut files = 0;
    let _ = gone_files_of_device(dyn_device(device), &mut |_| {
        files += 1;
        if files > ENTRIES_MAX { Err(creamery_base::Error::invalid("enough")) } else { Ok(()) }
    });
}

/// The filesystem, open for writing with a stopped clock, if it can be opened.
pub(crate) fn opened(device: &Arc<SimDevice>) -> Option<Filesystem> {
    let env = Arc::new(FixedEnv::new(Timespec { sec: 1_700_000_000, nsec: 0 }, 1));
    Image::options().write().env(env).open_device(dyn_device(device)).ok()
}

/// The report of `check --check-data-csum`.
pub(crate) fn checked(device: &Arc<SimDevice>) -> creamery_base::Result<Report> {
    let volume = Volume::open(vec![dyn_device(device)], Mode::ReadOnly)?;
    let options = CheckOptions {
        check_data_csum: true,
        check_parity: true,
        threads: 1,
        memory_limit: 16 << 20,
        findings_limit: 100,
    };
    check(&volume, &options, &NoProgress)
}

/// Checks that the filesystem is clean, and panics if not.
pub(crate) fn assert_clean(device: &Arc<SimDevice>) {
    let report = checked(device).expect("what we wrote can be opened");
    assert!(report.is_clean(), "{:#?}", report.findings);
}

/// Walks the files and reads data of each.
pub(crate) fn look(fs: &Filesystem) {
    let _ = (fs.volume().notes(), fs.volume().label(), fs.volume().usage());
    for path in ["/level0/level1/level2/inline", "/circle", "/many/file-001/none", "/symlink"] {
        let _ = fs.read_dir(path).map(|entries| entries.take(ENTRIES_MAX).count());
        let _ = fs.metadata(path);
    }
    look_at_subvolumes(fs);
    walk_references(fs);
    let Ok(walk) = fs.walk("/") else { return };
    let mut errors = 0;
    for entry in walk.take(ENTRIES_MAX) {
        match entry {
            Ok(entry) => look_at(fs, &entry),
            Err(_) if errors < 20 => errors += 1,
            Err(_) => break,
        }
    }
}

/// Reads the information about subvolumes, and their new files.
fn look_at_subvolumes(fs: &Filesystem) {
    for listed in fs.subvolumes().list().unwrap_or_default().into_iter().take(ENTRIES_MAX) {
        let _ = listed.info.uuid.map(|uuid| fs.subvolumes().info_by_uuid(uuid));
        let mut left = ENTRIES_MAX;
        let _ = fs.extents().find_new(listed.info.id, Generation::new(0), |_| {
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
    }
    let _ = fs.extents().find_new(fs.subvolumes().opened(), Generation::new(0), |_| ControlFlow::Break(()));
}

/// Finds all files that share data, all files that refer to an extent, and their paths.
fn walk_references(fs: &Filesystem) {
    let _ = fs.extents().disk_usage("/", |_, usage| assert!(usage.exclusive <= usage.total, "{usage:?}"));
    for at in (FIRST_DATA..).step_by(64 << 10).take(ADDRESSES_MAX) {
        for user in fs.extents().users(Logical::new(at), ExtentPart::Whole).unwrap_or_default() {
            let _ =
                (fs.subvolumes().inode_paths(user.subvolume, user.ino), fs.subvolumes().path(user.subvolume));
        }
    }
}

/// A program that joins names to a path, for example a copy to the host, stays below its starting point.
fn assert_names_lead_nowhere_else(entry: &WalkEntry) {
    let path = entry.path();
    let below = path.components().skip(1);
    let plain =
        below.clone().all(|name| matches!(name, Component::Normal(_))) && below.count() == entry.depth();
    assert!(plain && !path.as_os_str().as_encoded_bytes().contains(&0), "a name in {path:?} leads elsewhere");
}

fn look_at(fs: &Filesystem, entry: &WalkEntry) {
    assert_names_lead_nowhere_else(entry);
    let Ok(meta) = entry.metadata() else { return };
    let path = entry.path();
    for name in fs.xattrs(path).unwrap_or_default().iter().take(20) {
        assert!(!name.is_empty() && !name.contains(&0), "an attribute called {name:?}");
        let _ = fs.xattr(path, name);
    }
    let _ = fs.read_link(path);
    if !meta.is_file() {
        return;
    }
    let Ok(file) = fs.open(path) else { return };
    let mut buffer = vec![0; READ_MAX];
    for at in [0, READ_MAX as u64, meta.len() / 2, meta.len().saturating_sub(4097)] {
        if let Ok(read) = file.read_at(&mut buffer, at) {
            assert!(read <= buffer.len(), "more was read than there is room for");
        }
    }
}

/// Opens for writing, changes files, and commits. No image may make that panic.
pub(crate) fn write_something(device: &Arc<SimDevice>) {
    let env = Arc::new(FixedEnv::new(Timespec { sec: 1_700_000_000, nsec: 0 }, 1));
    let Ok(fs) = Image::options().write().use_super_copy().env(env).open_device(dyn_device(device)) else {
        return;
    };
    let content = crate::base::plain(20_000);
    let _ = fs.create_dir_all("/new/directory");
    let _ = fs.write("/new/file", &content);
    let _ = fs.write("/new/small", "small");
    let _ = fs.write("/large", &content);
    // One after the other: the numbers of a directory's entries may run out at any of them.
    for name in ["/many/one", "/many/two", "/many/three"] {
        let _ = fs.write(name, "more");
    }
    let _ = fs.symlink("file", "/new/link");
    let _ = fs.hard_link("/many/file-001", "/new/hard");
    let _ = fs.rename("/many/file-002", "/many/file-003");
    let _ = fs.rename("/level0", "/new/level");
    let _ = fs.remove_file("/many/file-004");
    let _ = fs.set_xattr("/many", "user.new", &content[..100]);
    let _ = fs.remove_xattr("/large", "user.name1");
    for (name, clone) in [("/zlib", "/new/packed"), ("/large", "/new/clone"), ("/sparse", "/new/holes")] {
        let _ = fs.copy_between(name, &fs, clone).run();
    }
    let _ = fs.extents().dedupe(["/large", "/new/clone", "/new/holes"], &creamery::progress::NoProgress);
    let _ = fs.remove_file("/sparse");
    let _ = set_len(&fs, "/zlib", 1000);
    let _ = set_len(&fs, "/many/file-050", 1 << 20);
    let _ = fs.subvolumes().create("/new/subvolume");
    let _ = fs.write("/new/subvolume/file", &content);
    let _ = fs.sync();
    let _ = fs.remove_file("/large");
    let _ = fs.remove_dir_all("/many");
    let _ = fs.write("/home/letter", &content);
    let _ = fs.close();
}

fn set_len(fs: &Filesystem, path: &str, len: u64) -> creamery::Result<()> {
    OpenOptions::new().write(true).open(fs, path)?.set_len(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::base;
    use creamery_codec::ChecksumType;
    use creamery_format::{BlockMut, BlockRef, DirEntries, KeyType, seal};

    /// The base image with the entries called `name` of one directory pointing to inode `to`.
    fn redirected(name: &[u8], to: u64) -> Arc<SimDevice> {
        let base = base(0);
        let mut image = base.image.clone();
        let mut changed = 0;
        for block in &base.blocks {
            let mut bytes = block.bytes.clone();
            let found = BlockRef::new(&bytes);
            let is_entry = |slot: &usize| {
                let kind = found.key(*slot).kind;
                let entry = DirEntries::new(found.data(*slot)).next();
                (kind == KeyType::DIR_ITEM || kind == KeyType::DIR_INDEX)
                    && entry.is_some_and(|entry| entry.is_ok_and(|entry| entry.name == name))
            };
            let slots = if found.is_leaf() { 0..found.count() } else { 0..0 };
            let slots: Vec<usize> = slots.filter(is_entry).collect();
            changed += slots.len();
            for slot in slots {
                BlockMut::new(&mut bytes).data_mut(slot)[..8].copy_from_slice(&to.to_le_bytes());
            }
            seal(&mut bytes, ChecksumType::Crc32c);
            block.copies.iter().for_each(|&at| image.write(at, &bytes));
        }
        assert_eq!(changed, 2, "one entry by name and one by number");
        Arc::new(SimDevice::new(image))
    }

    /// The number of entries that a walk finds, and its errors.
    fn walked(device: &Arc<SimDevice>) -> (usize, Vec<String>) {
        let fs = Image::options().open_device(dyn_device(device)).expect("only an entry is damaged");
        let (mut found, mut errors) = (0, Vec::new());
        for entry in fs.walk("/").expect("the root is whole").take(10_000) {
            match entry {
                Ok(_) => found += 1,
                Err(error) => errors.push(error.to_string()),
            }
        }
        (found, errors)
    }

    #[test]
    fn a_walk_through_directories_in_a_circle_ends() {
        let (whole, errors) = walked(&base(0).device());
        assert_eq!(errors, [""; 0]);
        let fs = Image::options().open_device(dyn_device(&base(0).device())).expect("nothing is damaged");
        let inode = |path: &str| fs.metadata(path).expect("it is there").ino().get();
        for to in [inode("/"), inode("/level0"), inode("/level0/level1"), inode("/many")] {
            let (found, errors) = walked(&redirected(b"level2", to));
            assert!(found < whole, "{found} of {whole} entries, to {to}");
            assert_eq!(errors.len(), 1, "{errors:?}");
            assert!(errors[0].contains("level2") && errors[0].contains("elsewhere"), "{errors:?}");
        }
    }
}
