//! Every field of a small filesystem at the edge of its numbers, one after the other: readers read it, and writers write to
//! whatever opens.
//!
//! Part of the cases run each time, chosen by a seed; `CREAMERY_EDGES=1` runs all of them, `CREAMERY_EDGES=n` one in n.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use creamery::{Filesystem, FixedEnv, Image as Facade};
use creamery_base::panics::catch;
use creamery_base::{Error, ErrorKind, Timespec, TreeId};
use creamery_device::BlockDevice;
use creamery_format::{
    BlockGroupFlags, BlockMut, BlockRef, Field, HEADER_LEN, ITEM_LEN, KEY_PTR_LEN, Key, KeyType,
    RawBlockGroupItem, RawChunk, RawSuperblock, edge_values, fields_of,
};
use creamery_sim::SimDevice;

use crate::base::{Base, base};
use crate::image_fields::{Damage, long};
use crate::readers::{read_everything, write_something};

/// One case in so many, where nobody asks for another share.
const SHARE: usize = 61;
/// However busy the machine is, a case that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(60);
const WORKERS: usize = 2;

/// Fields of a block's header, but for its checksum and identity.
const HEADER: [Field; 6] = [
    Field { name: "bytenr", offset: 48, len: 8 },
    Field { name: "flags", offset: 56, len: 8 },
    Field { name: "generation", offset: 80, len: 8 },
    Field { name: "owner", offset: 88, len: 8 },
    Field { name: "nritems", offset: 96, len: 4 },
    Field { name: "level", offset: 100, len: 1 },
];
const KEY: [Field; 3] = [
    Field { name: "objectid", offset: 0, len: 8 },
    Field { name: "type", offset: 8, len: 1 },
    Field { name: "offset", offset: 9, len: 8 },
];
const ITEM: [Field; 2] =
    [Field { name: "data offset", offset: 17, len: 4 }, Field { name: "data size", offset: 21, len: 4 }];
const POINTER: [Field; 2] =
    [Field { name: "blockptr", offset: 17, len: 8 }, Field { name: "generation", offset: 25, len: 8 }];

/// A number on the image.
#[derive(Clone)]
struct Place {
    what: String,
    /// A position in [`Base::blocks`]; none for the superblock.
    block: Option<usize>,
    at: usize,
    width: usize,
}

#[derive(Default)]
struct Places(Vec<Place>);

impl Places {
    fn add(&mut self, what: &str, block: Option<usize>, start: usize, end: usize, fields: &[Field]) {
        for (field, (at, width)) in fields.iter().flat_map(|field| field.numbers().map(move |it| (field, it)))
        {
            if start + at + width <= end {
                let what = format!("{what} {}+{}", field.name, at - field.offset);
                self.0.push(Place { what, block, at: start + at, width });
            }
        }
    }

    /// Five items of each type in each tree, the first and the last among them; the first block of each level of each tree;
    /// the superblock.
    fn of(base: &Base) -> Self {
        let mut places = Self::default();
        let superblock = RawSuperblock::FIELDS.iter().filter(|field| field.len <= 192 && field.offset > 0);
        let superblock: Vec<Field> = superblock.copied().collect();
        places.add("superblock", None, 0, base.superblock.len(), &superblock);
        let mut levels = HashSet::new();
        for (number, found) in base.blocks.iter().enumerate() {
            let block = BlockRef::new(&found.bytes);
            let tree = block.owner();
            if levels.insert((tree, block.level())) {
                let what = format!("tree {tree} level {}", block.level());
                places.add(&what, Some(number), 0, HEADER_LEN, &HEADER);
                for slot in [0, block.count() - 1].into_iter().filter(|_| !block.is_leaf()) {
                    let (what, start) = (format!("{what} pointer {slot}"), HEADER_LEN + slot * KEY_PTR_LEN);
                    places.add(&what, Some(number), start, found.bytes.len(), &KEY);
                    places.add(&what, Some(number), start, found.bytes.len(), &POINTER);
                }
            }
        }
        let mut kinds = BTreeMap::<_, Vec<_>>::new();
        for (tree, key, number, slot) in items(base) {
            kinds.entry((tree, key.kind)).or_default().push((key, number, slot));
        }
        for ((tree, _), mut items) in kinds {
            items.sort_unstable();
            let last = items.len() - 1;
            let mut chosen = [0, last / 4, last / 2, last * 3 / 4, last].map(|at| items[at]).to_vec();
            chosen.dedup();
            for (key, number, slot) in chosen {
                places.item(&format!("tree {tree} {key}"), base, number, slot);
            }
        }
        places
    }

    fn item(&mut self, what: &str, base: &Base, number: usize, slot: usize) {
        let bytes = &base.blocks[number].bytes;
        let block = BlockRef::new(bytes);
        let head = HEADER_LEN + slot * ITEM_LEN;
        self.add(&format!("{what} key"), Some(number), head, bytes.len(), &KEY);
        self.add(&format!("{what} item"), Some(number), head, bytes.len(), &ITEM);
        let data = block.data(slot);
        let mut start = data.as_ptr() as usize - bytes.as_ptr() as usize;
        let end = start + data.len();
        for fields in fields_of(block.key(slot).kind) {
            self.add(what, Some(number), start, end, fields);
            start += fields.last().map_or(0, |field| field.offset + field.len);
        }
    }
}

/// One number at one edge.
struct Case {
    place: Place,
    now: u64,
    value: u64,
}

fn cases(base: &Base) -> Vec<Case> {
    let mut cases = Vec::new();
    for place in Places::of(base).0 {
        let bytes = place.block.map_or(&base.superblock, |number| &base.blocks[number].bytes);
        let mask = u64::MAX >> (64 - 8 * place.width);
        let now = long(bytes, place.at) & mask;
        let values: std::collections::BTreeSet<u64> = edge_values(place.width, now).collect();
        let case = |value| Case { place: place.clone(), now, value };
        cases.extend(values.into_iter().filter(|value| *value != now).map(case));
    }
    cases
}

fn spoiled(base: &'static Base, case: &Case) -> Arc<SimDevice> {
    let mut damage = Damage::new(base);
    let bytes = match case.place.block {
        Some(number) => damage.block(number),
        None => &mut damage.superblock,
    };
    let Place { at, width, .. } = case.place;
    bytes[at..at + width].copy_from_slice(&case.value.to_le_bytes()[..width]);
    Arc::new(SimDevice::new(damage.image(true)))
}

/// Reads and writes the image; the panic, if there was one, or the hang.
fn complaint(base: &'static Base, case: &Case) -> Option<String> {
    let device = spoiled(base, case);
    let (done, finished) = channel();
    std::thread::spawn(move || {
        let outcome = catch(|| {
            read_everything(&device);
            write_something(&device);
            read_everything(&device);
        });
        // Nobody listens any more only when the time is over.
        let _ = done.send(outcome.err().map(|panic| panic.to_string()));
    });
    let what = match finished.recv_timeout(LIMIT) {
        Ok(outcome) => outcome?,
        Err(RecvTimeoutError::Timeout) => format!("takes longer than {LIMIT:?}"),
        Err(RecvTimeoutError::Disconnected) => "its thread is gone".to_owned(),
    };
    Some(format!("{}: {} -> {}: {what}", case.place.what, case.now, case.value))
}

/// Runs one case in `share` of the matrix, the first being number `seed`.
fn complaints(base: &'static Base, share: usize, seed: usize) -> Vec<String> {
    let chosen: Vec<Case> = cases(base).into_iter().skip(seed % share).step_by(share).collect();
    assert!(chosen.len() > 50, "{} cases are no matrix", chosen.len());
    let next = AtomicUsize::new(0);
    let work = || {
        let mut found = Vec::new();
        while let Some(case) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
            found.extend(complaint(base, case));
        }
        found
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("panics are caught")).collect()
    })
}

#[test]
fn what_fuzzing_did_not_find_is_among_the_cases() {
    let cases = cases(base(0));
    let has = |what: &str, value: u64| {
        cases.iter().any(|case| case.place.what.contains(what) && case.value == value)
    };
    assert!(has("DIR_INDEX", u64::MAX - 2) && has("key offset", u64::MAX - 2), "index numbers that wrap");
    assert!(has("superblock generation", u64::MAX) && has("superblock generation", u64::MAX - 1));
    assert!((0..=8).all(|level| has("level", level)), "every level, and one more");
}

#[test]
fn no_number_at_its_edge_makes_a_reader_or_a_writer_panic() {
    let share = std::env::var("CREAMERY_EDGES").ok().and_then(|share| share.parse().ok()).unwrap_or(SHARE);
    let found: Vec<String> =
        (0..2).flat_map(|number| complaints(base(number), share, 20_261_122 + number)).collect();
    assert!(found.is_empty(), "{} cases:\n{}", found.len(), found.join("\n"));
}

fn open(device: &Arc<SimDevice>, write: bool) -> Result<Filesystem, Error> {
    let env = Arc::new(FixedEnv::new(Timespec { sec: 1_700_000_000, nsec: 0 }, 1));
    Facade::options()
        .write(write)
        .env(env)
        .open_device(Arc::<SimDevice>::clone(device) as Arc<dyn BlockDevice>)
}

/// All items: their keys, and where they are.
fn items(base: &Base) -> impl Iterator<Item = (TreeId, Key, usize, usize)> {
    base.blocks.iter().enumerate().flat_map(|(number, block)| {
        let block = BlockRef::new(&block.bytes);
        let slots = if block.is_leaf() { 0..block.count() } else { 0..0 };
        slots.map(move |slot| (block.owner(), block.key(slot), number, slot))
    })
}

#[test]
fn index_numbers_of_a_directory_end_before_they_wrap() {
    let base = base(0);
    let many = open(&base.device(), false).and_then(|fs| fs.metadata("/many")).expect("it is there").ino();
    let index = |item: &(TreeId, Key, usize, usize)| {
        item.0 == TreeId::FS && item.1.objectid.get() == many && item.1.kind == KeyType::DIR_INDEX
    };
    let (_, key, number, slot) = items(base).filter(index).max_by_key(|item| item.1).expect("it has entries");
    let mut damage = Damage::new(base);
    BlockMut::new(damage.block(number)).set_item_key(slot, &Key { offset: u64::MAX - 2, ..key });
    let device = Arc::new(SimDevice::new(damage.image(true)));
    let fs = open(&device, true).expect("numbers as large as that are possible");
    fs.write("/many/one-more", "it gets the last number").expect("2^64-2 is left");
    for makes in 0..3 {
        let refused = match makes {
            0 => fs.write("/many/two-more", "none is left"),
            1 => fs.create_dir("/many/directory"),
            _ => fs.rename("/large", "/many/large"),
        };
        let error = refused.expect_err("the numbers are used up");
        assert_eq!(error.kind(), ErrorKind::TooManyLinks);
        assert!(error.to_string().contains("index numbers are used up"), "{error}");
    }
    fs.hard_link("/large", "/many/hard").expect_err("the numbers are used up");
    fs.create_subvolume("/many/subvolume").expect_err("the numbers are used up");
    assert_eq!(fs.read("/many/one-more").expect("it was made"), b"it gets the last number");
    fs.write("/elsewhere", "goes on").expect("other directories have numbers");
    fs.close().expect("the transaction is whole");
    assert_eq!(open(&device, false).and_then(|fs| fs.read("/elsewhere")).expect("it was made"), b"goes on");
}

/// Sets the generation of the superblock and of the root tree's root, which have to agree.
fn at_generation(generation: u64) -> Arc<SimDevice> {
    let base = base(0);
    let mut damage = Damage::new(base);
    let raw: &RawSuperblock =
        zerocopy::FromBytes::ref_from_bytes(&base.superblock).expect("a superblock's length");
    let root =
        base.blocks.iter().position(|block| block.logical.get() == raw.root.get()).expect("it was found");
    damage.block(root)[80..88].copy_from_slice(&generation.to_le_bytes());
    let field = RawSuperblock::FIELDS.iter().find(|field| field.name == "generation").expect("it has one");
    damage.superblock[field.offset..field.offset + 8].copy_from_slice(&generation.to_le_bytes());
    Arc::new(SimDevice::new(damage.image(true)))
}

#[test]
fn generations_that_are_used_up_are_not_continued() {
    for generation in [u64::MAX - 1, u64::MAX - 2, u64::MAX - (1 << 32)] {
        let device = at_generation(generation);
        let Err(error) = open(&device, true) else { panic!("{generation} is continued") };
        assert_eq!(error.kind(), ErrorKind::ReadOnly);
        assert!(
            error.to_string().contains(&format!("generation out of range, found {generation}")),
            "{error}"
        );
        open(&device, false).and_then(|fs| fs.read("/home/letter")).expect("it can be read");
    }
    let error = open(&at_generation(u64::MAX), false).err().expect("nothing follows 2^64-1");
    assert!(error.to_string().contains("generation"), "{error}");
}

#[test]
fn copies_that_promise_two_devices_and_lie_on_one_are_not_written() {
    let base = base(1);
    let mut damage = Damage::new(base);
    let kind = BlockGroupFlags::METADATA;
    let (dup, raid1) = (kind | BlockGroupFlags::DUP, kind | BlockGroupFlags::RAID1);
    let mut changed = 0;
    for (_, key, number, slot) in items(base) {
        let (fields, name) = match key.kind {
            KeyType::CHUNK_ITEM => (RawChunk::FIELDS, "kind"),
            KeyType::BLOCK_GROUP_ITEM => (RawBlockGroupItem::FIELDS, "flags"),
            _ => continue,
        };
        let at = fields.iter().find(|field| field.name == name).expect("it has flags").offset;
        let mut block = BlockMut::new(damage.block(number));
        let flags = &mut block.data_mut(slot)[at..at + 8];
        if *flags == dup.bits().to_le_bytes() {
            flags.copy_from_slice(&raid1.bits().to_le_bytes());
            changed += 1;
        }
    }
    assert_eq!(changed, 2);
    let device = Arc::new(SimDevice::new(damage.image(true)));
    open(&device, false).and_then(|fs| fs.read("/home/letter")).expect("it can be read");
    let Err(error) = open(&device, true) else { panic!("it is written to") };
    assert_eq!(error.kind(), ErrorKind::ReadOnly);
    assert!(error.to_string().contains("two of its stripes on one device"), "{error}");
}
