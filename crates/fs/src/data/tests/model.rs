//! Random operations on a file, beside a plain vector of bytes with a note of which sectors have data.

use std::path::Path;

use creamery_base::{TreeId, Wait};
use creamery_txn::{DataExtent, Engine, ReserveItems};

use super::support::{Fixture, Kind, Random, SECTOR, audit, fixture, has, run, seek};
use crate::data::{Recompress, drop_last, prealloc, punch_hole, read, reserve, truncate, write, zero_range};
use crate::defragment::{self, Defragment};
use crate::inode::{Inode, InodeFlags, InodeItem};
use crate::operation::in_handle;
use crate::seek::SeekTarget;

/// The expected state of a file.
#[derive(Clone, Default)]
pub(crate) struct FileModel {
    pub(crate) bytes: Vec<u8>,
    /// Per sector: whether it is data.
    data: Vec<bool>,
}

fn len(number: u64) -> usize {
    usize::try_from(number).expect("small")
}

impl FileModel {
    pub(crate) fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(crate) fn write(&mut self, at: u64, data: &[u8]) {
        let end = at + data.len() as u64;
        self.truncate(self.size().max(end));
        self.bytes[len(at)..len(end)].copy_from_slice(data);
        self.data[len(at / SECTOR)..len(end.div_ceil(SECTOR))].fill(true);
    }

    pub(crate) fn truncate(&mut self, size: u64) {
        self.bytes.resize(len(size), 0);
        self.data.resize(len(size.div_ceil(SECTOR)), false);
    }

    /// The common part of fallocate's changes: the file grows unless it keeps its size.
    pub(crate) fn allocate(&mut self, end: u64, keep_size: bool) {
        if !keep_size {
            self.truncate(self.size().max(end));
        }
    }

    /// Makes a range zeros, and its whole sectors no data.
    pub(crate) fn zero(&mut self, at: u64, end: u64) {
        let size = self.size();
        self.bytes[len(at.min(size))..len(end.min(size))].fill(0);
        let sectors = self.data.len();
        let (first, last) = (len(at.div_ceil(SECTOR)).min(sectors), len(end / SECTOR).min(sectors));
        if first < last {
            self.data[first..last].fill(false);
        }
    }

    /// Copies a range of another file, from its [`FileModel::range_of`].
    pub(crate) fn clone_range(&mut self, (bytes, data): &(Vec<u8>, Vec<bool>), to: u64) {
        self.truncate(self.size().max(to + bytes.len() as u64));
        self.bytes[len(to)..][..bytes.len()].copy_from_slice(bytes);
        self.data[len(to / SECTOR)..][..data.len()].copy_from_slice(data);
    }

    /// The bytes of a range, and which sectors have data.
    pub(crate) fn range_of(&self, from: u64, end: u64) -> (Vec<u8>, Vec<bool>) {
        let sectors = len(from / SECTOR)..len(end.div_ceil(SECTOR));
        (self.bytes[len(from)..len(end)].to_vec(), self.data[sectors].to_vec())
    }

    pub(crate) fn seek(&self, at: u64, want: SeekTarget) -> Option<u64> {
        if at >= self.size() {
            return None;
        }
        let sectors = at / SECTOR..self.size().div_ceil(SECTOR);
        let found = sectors.clone().find(|sector| self.data[len(*sector)] == (want == SeekTarget::Data));
        match found {
            Some(sector) => Some((sector * SECTOR).max(at)),
            None => (want == SeekTarget::Hole).then_some(self.size()),
        }
    }

    /// Compares the model with our own reads.
    pub(crate) fn compare(&self, inode: &Inode, item: &InodeItem, random: &mut Random) {
        assert_eq!(item.size, self.size());
        for whole in [true, false] {
            let (at, count) = if whole {
                (0, self.size() + 10)
            } else {
                (random.below(self.size() + 5000), random.below(90_000))
            };
            let mut out = vec![0xaa; len(count)];
            let got = read(inode, item, at, &mut out, Wait::Yes).expect("a read");
            let (start, end) = (at.min(self.size()), (at + count).min(self.size()));
            assert_eq!(got as u64, end - start);
            assert!(out[..got] == self.bytes[len(start)..len(end)], "content differs in {at}+{count}");
        }
        for _ in 0..4 {
            let at = random.below(self.size() + SECTOR);
            for want in [SeekTarget::Data, SeekTarget::Hole] {
                let found = seek(inode, item, at, want).expect("a search");
                assert_eq!(found, self.seek(at, want), "{want:?} at {at}");
            }
        }
    }

    /// Compares the model with the kernel's view of the file at `path`.
    pub(crate) fn compare_mounted(&self, path: &Path) {
        let seen = Self::of_mounted(path);
        assert!(seen.bytes == self.bytes, "the kernel reads something else in {}", path.display());
        assert_eq!(seen.data, self.data, "the kernel sees other holes in {}", path.display());
    }

    /// The kernel's view of the file at `path`.
    pub(crate) fn of_mounted(path: &Path) -> Self {
        let file = std::fs::File::open(path).expect("the file");
        let mut model = Self { bytes: std::fs::read(path).expect("a read"), data: Vec::new() };
        model.truncate(model.size());
        let mut at = 0;
        while let Ok(start) = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(at)) {
            at = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(start)).expect("the end is a hole");
            model.data[len(start / SECTOR)..len(at.div_ceil(SECTOR))].fill(true);
        }
        model
    }
}

/// Takes the free data space into pieces of `piece` bytes with as much between them, as long as the result lives.
fn fragment(engine: &Engine, piece: u64) -> Vec<DataExtent> {
    let mut all = Vec::new();
    if piece > 0 {
        all.extend((0..400).map(|_| engine.allocate_data(TreeId::FS, piece, piece, None).expect("space")));
        let mut odd = false;
        all.sort_by_key(DataExtent::start);
        all.retain(|_| {
            odd = !odd;
            odd
        });
    }
    all
}

/// One of fallocate's changes.
fn allocate(inode: &Inode, item: &mut InodeItem, model: &mut FileModel, scale: u64, random: &mut Random) {
    let mut place = || match random.below(3) {
        0 => random.below(scale * 3 / 2) / SECTOR * SECTOR,
        1 => item.size,
        _ => random.below(scale * 3 / 2),
    };
    let (one, other) = (place(), place());
    let range = (one.min(other), one.max(other).max(one.min(other) + 1));
    let keep_size = random.below(2) == 0;
    let size = if keep_size { 0 } else { range.1 };
    match random.below(3) {
        0 => {
            prealloc(&inode.file(), item, range, size).expect("room");
            model.allocate(range.1, keep_size);
        }
        1 => {
            zero_range(&inode.file(), item, range, size).expect("room");
            model.allocate(range.1, keep_size);
            model.zero(range.0, range.1);
        }
        _ => {
            punch_hole(&inode.file(), item, range).expect("room");
            model.zero(range.0, range.1);
        }
    }
}

/// Defragments a range, which changes no visible content.
fn defragment(inode: &Inode, item: &mut InodeItem, random: &mut Random) {
    let compress = match random.below(4) {
        0 => Recompress::With("zstd".parse().expect("a method")),
        1 => Recompress::With("lzo".parse().expect("a method")),
        2 => Recompress::Plain,
        _ => Recompress::AsUsual,
    };
    let threshold = [SECTOR, 64 << 10, 32 << 20][len(random.below(3))];
    let wanted = Defragment { threshold, compress, ..Defragment::default() };
    let times = (item.mtime, item.ctime);
    let (mut at, end) = (random.below(item.size + 1) / SECTOR * SECTOR, item.size);
    while let Some((reached, _)) =
        defragment::step(&inode.file(), item, &wanted, (at, end), &|| false).expect("room")
    {
        assert!(reached > at && reached <= end.next_multiple_of(SECTOR));
        at = reached;
    }
    assert_eq!((item.mtime, item.ctime), times);
}

/// A write, a new size, a defragmentation, or one of fallocate's changes.
pub(crate) fn change(
    inode: &Inode,
    item: &mut InodeItem,
    model: &mut FileModel,
    scale: u64,
    random: &mut Random,
) {
    let size = item.size;
    let dice = random.below(15);
    if dice == 14 {
        defragment(inode, item, random);
    } else if dice >= 10 {
        allocate(inode, item, model, scale, random);
    } else if dice < 6 {
        let at = match random.below(4) {
            0 => size,
            1 => random.below(scale) / SECTOR * SECTOR,
            _ => random.below(scale),
        };
        let count = match random.below(3) {
            0 => random.below(200) + 1,
            1 => random.below(scale) + 1,
            _ => (random.below(scale / SECTOR + 1) + 1) * SECTOR,
        };
        let salt = random.next();
        let data: Vec<u8> = (0..count).map(|index| ((index ^ salt) % 251) as u8 + 1).collect();
        assert_eq!(write(&inode.file(), item, at, &data).expect("room"), data.len());
        model.write(at, &data);
    } else {
        let to = match random.below(3) {
            0 => random.below(size + 1),
            1 => random.below(scale * 2),
            _ => random.below(scale) / SECTOR * SECTOR,
        };
        truncate(&inode.file(), item, to).expect("room");
        model.truncate(to);
    }
}

/// One file's life; `keep` leaves it for the judges, else it goes at the end.
fn live(fixture: &mut Fixture, seed: u64, name: &str, flags: InodeFlags, keep: bool) -> FileModel {
    println!("seed {seed}");
    let mut random = Random(seed);
    let mut model = FileModel::default();
    let scale = [3000, 20_000, 400_000][len(seed % 3)];
    let pieces = [0, 4096, 16384][len(seed / 3 % 3)];
    let mut inode = fixture.named(name);
    let mut locked = inode.lock_exclusive().expect("it lives");
    in_handle(fixture, ReserveItems::items(1), |handle| {
        *locked.item_mut() = inode.update(handle, |item| item.flags |= flags)?;
        Ok(())
    })
    .expect("room");
    drop(locked);
    for _ in 0..4 {
        let held = fragment(fixture, pieces);
        let mut locked = inode.lock_exclusive().expect("it lives");
        let item = locked.item_mut();
        for _ in 0..25 {
            change(&inode, item, &mut model, scale, &mut random);
            model.compare(&inode, item, &mut random);
            audit(fixture, &inode, item);
            if random.below(6) == 0 {
                fixture.commit().expect("a commit");
            }
        }
        drop((locked, held));
        fixture.reopen();
        inode = fixture.named(name);
        model.compare(&inode, &inode.item(Wait::Yes).expect("it lives"), &mut random);
    }
    let mut locked = inode.lock_exclusive().expect("it lives");
    let item = locked.item_mut();
    if !keep {
        while drop_last(&inode.file(), item, reserve::DROP_EDITS_MAX).expect("room").is_some() {
            audit(fixture, &inode, item);
        }
        assert_eq!(item.nbytes, 0);
    }
    model
}

fn lives(kind: Kind, seeds: std::ops::Range<u64>, flags: InodeFlags) {
    for seed in seeds {
        let Some(mut fixture) = fixture(kind) else { return };
        let used = fixture.space().data_used;
        drop(live(&mut fixture, seed, "f1", flags, false));
        fixture.reopen();
        assert_eq!(fixture.space().data_used, used, "all data space came back");
    }
}

#[test]
fn random_changes_read_back_as_a_vector_of_bytes() {
    lives(Kind::DEFAULT, 0..9, InodeFlags::empty());
}

#[test]
fn random_changes_without_no_holes_read_back_as_a_vector_of_bytes() {
    lives(Kind::OLD, 9..18, InodeFlags::empty());
}

#[test]
fn random_changes_without_checksums_read_back_as_a_vector_of_bytes() {
    lives(Kind::DEFAULT, 18..21, InodeFlags::NODATASUM);
}

#[test]
fn random_changes_of_compressed_files_read_back_as_a_vector_of_bytes() {
    lives(Kind::DEFAULT, 21..30, InodeFlags::COMPRESS);
    lives(Kind::OLD, 30..33, InodeFlags::COMPRESS);
}

#[test]
fn the_kernel_and_btrfs_check_agree_on_what_random_changes_left() {
    let compressed = (Kind::DEFAULT, InodeFlags::COMPRESS);
    let plain = [Kind::DEFAULT, Kind::OLD, Kind("--csum sha256"), Kind("--csum xxhash --nodesize 65536")];
    for (kind, flags) in plain.map(|kind| (kind, InodeFlags::empty())).into_iter().chain([compressed]) {
        let Some(mut fixture) = fixture(kind) else { return };
        let names = ["f0", "f1", "f2", "f3"];
        let models: Vec<FileModel> = (100..)
            .step_by(5)
            .zip(names)
            .map(|(seed, name)| live(&mut fixture, seed, name, flags, true))
            .collect();
        fixture.judge(|mounted| {
            for (name, model) in names.iter().zip(&models) {
                model.compare_mounted(&mounted.join(name));
            }
        });
    }
}

/// Files that only the kernel makes.
fn make_with_kernel(fixture: &mut Fixture) -> bool {
    let text: Vec<u8> = (0..300_001_u32).map(|index| (index / 100 % 251) as u8 | 1).collect();
    for method in ["zlib", "lzo", "zstd"] {
        let made = fixture.with_kernel(&format!("compress-force={method}"), |root| {
            std::fs::write(root.join(method), &text).expect("room");
            std::fs::write(root.join(format!("{method}-inline")), &text[..1900]).expect("room");
        });
        if !made {
            return false;
        }
    }
    fixture.with_kernel("max_inline=4095", |root| {
        let path = |name: &str| root.join(name).to_str().expect("a plain name").to_owned();
        std::fs::write(root.join("inline"), &text[..3000]).expect("room");
        run("fallocate", &["-l", "300000", &path("prealloc")]);
        run("fallocate", &["-n", "-l", "500000", &path("prealloc")]);
        std::fs::write(root.join("inline-prealloc"), &text[..70]).expect("room");
        run("sync", &["-f", &path("")]);
        run("fallocate", &["-l", "20000", &path("inline-prealloc")]);
        std::fs::write(root.join("zeroed"), &text).expect("room");
        run("fallocate", &["-z", "-o", "50000", "-l", "100001", &path("zeroed")]);
        run("fallocate", &["-n", "-o", "400000", "-l", "100001", &path("zeroed")]);
        let file = std::fs::File::options().write(true).open(root.join("prealloc")).expect("the file");
        std::os::unix::fs::FileExt::write_all_at(&file, &text[..70_000], 50_000).expect("room");
        std::fs::write(root.join("punched"), &text).expect("room");
        run("fallocate", &["-p", "-o", "40960", "-l", "81920", &path("punched")]);
        run("sync", &["-f", &path("")]);
        std::fs::write(root.join("nocow"), b"").expect("room");
        run("chattr", &["+C", &path("nocow")]);
        std::fs::write(root.join("nocow"), &text).expect("room");
        run("sync", &["-f", &path("")]);
        run("cp", &["--reflink=always", &path("punched"), &path("clone")]);
        run("btrfs", &["subvolume", "snapshot", &path(""), &path("snapshot")]);
    })
}

const MADE_WITH_KERNEL: [&str; 13] = [
    "zlib",
    "zlib-inline",
    "lzo",
    "lzo-inline",
    "zstd",
    "zstd-inline",
    "inline",
    "prealloc",
    "inline-prealloc",
    "zeroed",
    "punched",
    "nocow",
    "clone",
];

#[test]
fn files_that_the_kernel_made_are_read_and_changed_and_their_snapshot_stays() {
    for kind in [Kind::DEFAULT, Kind::OLD] {
        let Some(mut fixture) = fixture(kind) else { return };
        if !has(&["btrfs", "fallocate", "chattr"]) || !make_with_kernel(&mut fixture) {
            return;
        }
        let mut models = Vec::new();
        fixture.with_kernel("ro", |root| {
            models.extend(MADE_WITH_KERNEL.map(|name| FileModel::of_mounted(&root.join(name))));
        });
        let originals: Vec<FileModel> = models.to_vec();
        for (number, (name, model)) in (0..).zip(MADE_WITH_KERNEL.iter().zip(&mut models)) {
            println!("{name}");
            let mut random = Random(number);
            let inode = fixture.named(name);
            let mut locked = inode.lock_exclusive().expect("it lives");
            let item = locked.item_mut();
            model.compare(&inode, item, &mut random);
            for _ in 0..25 {
                change(&inode, item, model, 300_000, &mut random);
                model.compare(&inode, item, &mut random);
                audit(&fixture, &inode, item);
            }
        }
        fixture.judge(|root| {
            for ((name, model), original) in MADE_WITH_KERNEL.iter().zip(&models).zip(&originals) {
                model.compare_mounted(&root.join(name));
                original.compare_mounted(&root.join("snapshot").join(name));
            }
        });
    }
}
