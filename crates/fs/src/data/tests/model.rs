//! Random operations on a file, beside a plain vector of bytes with a note of which sectors have data.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use creamery_base::Wait;
use creamery_txn::{DataExtent, Engine};

use super::support::{Fixture, Kind, Random, SECTOR, audit, fixture};
use crate::data::{Want, drop_all, read, seek, truncate, write};
use crate::inode::{Inode, InodeFlags, InodeItem};

/// What a file should be.
#[derive(Default)]
struct Model {
    bytes: Vec<u8>,
    /// Per sector: whether it is data.
    data: Vec<bool>,
}

fn len(number: u64) -> usize {
    usize::try_from(number).expect("small")
}

impl Model {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn write(&mut self, at: u64, data: &[u8]) {
        let end = at + data.len() as u64;
        self.truncate(self.size().max(end));
        self.bytes[len(at)..len(end)].copy_from_slice(data);
        self.data[len(at / SECTOR)..len(end.div_ceil(SECTOR))].fill(true);
    }

    fn truncate(&mut self, size: u64) {
        self.bytes.resize(len(size), 0);
        self.data.resize(len(size.div_ceil(SECTOR)), false);
    }

    fn seek(&self, at: u64, want: Want) -> Option<u64> {
        if at >= self.size() {
            return None;
        }
        let sectors = at / SECTOR..self.size().div_ceil(SECTOR);
        let found = sectors.clone().find(|sector| self.data[len(*sector)] == (want == Want::Data));
        match found {
            Some(sector) => Some((sector * SECTOR).max(at)),
            None => (want == Want::Hole).then_some(self.size()),
        }
    }

    /// Compares what our own reading says.
    fn compare(&self, engine: &Engine, inode: &Inode, item: &InodeItem, random: &mut Random) {
        assert_eq!(item.size, self.size());
        for whole in [true, false] {
            let (at, count) = if whole {
                (0, self.size() + 10)
            } else {
                (random.below(self.size() + 5000), random.below(90_000))
            };
            let mut out = vec![0xaa; len(count)];
            let got = read(engine, inode, item, at, &mut out, Wait::Yes).expect("a read");
            let (start, end) = (at.min(self.size()), (at + count).min(self.size()));
            assert_eq!(got as u64, end - start);
            assert!(out[..got] == self.bytes[len(start)..len(end)], "content differs in {at}+{count}");
        }
        for _ in 0..4 {
            let at = random.below(self.size() + SECTOR);
            for want in [Want::Data, Want::Hole] {
                let found = seek(engine, inode, item, at, want).expect("a search");
                assert_eq!(found, self.seek(at, want), "{want:?} at {at}");
            }
        }
    }

    /// Compares what the kernel sees in the file at `path`.
    fn compare_mounted(&self, path: &Path) {
        let mut file = std::fs::File::open(path).expect("the file");
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).expect("a read");
        assert!(bytes == self.bytes, "the kernel reads something else in {}", path.display());
        file.seek(SeekFrom::Start(0)).expect("a seek");
    }
}

/// Takes the free data space into pieces of `piece` bytes with as much between them, as long as the result lives.
fn fragment(engine: &Engine, piece: u64) -> Vec<DataExtent> {
    let mut all = Vec::new();
    if piece > 0 {
        all.extend((0..400).map(|_| engine.allocate_data(piece, piece).expect("space")));
        let mut odd = false;
        all.sort_by_key(DataExtent::start);
        all.retain(|_| {
            odd = !odd;
            odd
        });
    }
    all
}

fn change(
    engine: &Engine,
    inode: &Inode,
    item: &mut InodeItem,
    model: &mut Model,
    scale: u64,
    random: &mut Random,
) {
    let size = item.size;
    if random.below(10) < 6 {
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
        assert_eq!(write(engine, inode, item, at, &data).expect("room"), data.len());
        model.write(at, &data);
    } else {
        let to = match random.below(3) {
            0 => random.below(size + 1),
            1 => random.below(scale * 2),
            _ => random.below(scale) / SECTOR * SECTOR,
        };
        truncate(engine, inode, item, to).expect("room");
        model.truncate(to);
    }
}

/// One file's life; `keep` leaves it for the judges, else it goes at the end.
fn live(fixture: &mut Fixture, seed: u64, number: u64, flags: InodeFlags, keep: bool) -> Model {
    println!("seed {seed}");
    let mut random = Random(seed);
    let mut model = Model::default();
    let scale = [3000, 20_000, 400_000][len(seed % 3)];
    let pieces = [0, 4096, 16384][len(seed / 3 % 3)];
    let mut inode = fixture.named(number);
    inode.item.write().flags |= flags;
    for _ in 0..4 {
        let held = fragment(fixture, pieces);
        let mut item = inode.item.write();
        for _ in 0..15 {
            change(fixture, &inode, &mut item, &mut model, scale, &mut random);
            model.compare(fixture, &inode, &item, &mut random);
            audit(fixture, &inode, &item);
            if random.below(6) == 0 {
                fixture.commit().expect("a commit");
            }
        }
        drop((item, held));
        fixture.reopen();
        inode = fixture.named(number);
        model.compare(fixture, &inode, &inode.item.read(), &mut random);
    }
    let mut item = inode.item.write();
    if !keep {
        drop_all(fixture, &inode, &mut item).expect("room");
        audit(fixture, &inode, &item);
        assert_eq!((item.size, item.nbytes), (0, 0));
    }
    model
}

fn lives(kind: Kind, seeds: std::ops::Range<u64>, flags: InodeFlags) {
    for seed in seeds {
        let Some(mut fixture) = fixture(kind) else { return };
        let used = fixture.space().data_used;
        drop(live(&mut fixture, seed, seed % 4, flags, false));
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
fn the_kernel_and_btrfs_check_agree_on_what_random_changes_left() {
    for kind in [Kind::DEFAULT, Kind::OLD, Kind("--csum sha256"), Kind("--csum xxhash --nodesize 65536")] {
        let Some(mut fixture) = fixture(kind) else { return };
        let models: Vec<Model> = (0..4)
            .map(|number| live(&mut fixture, 100 + number * 5, number, InodeFlags::empty(), true))
            .collect();
        fixture.judge(|mounted| {
            for (number, model) in models.iter().enumerate() {
                model.compare_mounted(&mounted.join(format!("f{number}")));
            }
        });
    }
}
