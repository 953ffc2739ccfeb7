//! Every field of a small filesystem at the limits of its numbers, one after the other: readers read it, and writers write to each image
//! that opens.
//!
//! Part of the cases run each time, chosen by a seed; `CREAMERY_EDGES=1` runs all of them, `CREAMERY_EDGES=n` one in n.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use creamery::env::FixedEnv;
use creamery::id::QgroupId;
use creamery::quota::QuotaChange;
use creamery::{Filesystem, Image as Facade};
use creamery_base::panics::catch;
use creamery_base::{Error, ErrorKind, ObjectId, Timespec, TreeId};
use creamery_device::BlockDevice;
use creamery_edges::{Edge, edges_of};
use creamery_format::{
    BlockGroupFlags, BlockMut, BlockRef, Key, KeyType, RawBlockGroupItem, RawChunk, RawRootItem,
    RawSuperblock,
};
use creamery_fs::NewInode;
use creamery_sim::SimDevice;
use creamery_testkit::{HANG, ends_within, one_in};

use crate::base::{Base, base};
use crate::image_fields::Damage;
use crate::readers::{checked, read_everything, write_something};

/// One case in this many by default.
const SHARE: usize = 61;
const WORKERS: usize = 2;

fn cases(base: &Base) -> Vec<Edge> {
    let blocks: Vec<&[u8]> = base.blocks.iter().map(|block| &block.bytes[..]).collect();
    edges_of(&base.superblock, &blocks)
}

fn spoiled(base: &'static Base, case: &Edge) -> Arc<SimDevice> {
    let mut damage = Damage::new(base);
    case.set(match case.block {
        Some(number) => damage.block(number),
        None => &mut damage.superblock,
    });
    Arc::new(SimDevice::new(damage.image(true)))
}

/// Reads and writes the image; returns the panic or the hang, if there was one.
fn complaint(base: &'static Base, case: &Edge) -> Option<String> {
    let device = spoiled(base, case);
    let work = move || {
        catch(|| {
            read_everything(&device);
            write_something(&device);
            read_everything(&device);
        })
    };
    let what = match ends_within(HANG, work) {
        Some(Ok(outcome)) => outcome.err()?.to_string(),
        Some(Err(_)) => "its thread is gone".to_owned(),
        None => "it hangs".to_owned(),
    };
    Some(format!("{case}: {what}"))
}

/// Runs one case in `share` of the matrix, beginning with number `seed`.
fn complaints(base: &'static Base, share: usize, seed: usize) -> Vec<String> {
    let chosen: Vec<Edge> = cases(base).into_iter().skip(seed % share).step_by(share).collect();
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
        cases.iter().any(|case| case.to_string().contains(what) && case.value == value)
    };
    assert!(has("DIR_INDEX", u64::MAX - 2) && has("key offset", u64::MAX - 2), "index numbers that wrap");
    assert!(has("superblock generation", u64::MAX) && has("superblock generation", u64::MAX - 1));
    assert!((0..=8).all(|level| has("level", level)), "every level, and one more");
}

#[test]
fn no_number_at_its_edge_makes_a_reader_or_a_writer_panic() {
    let share = one_in(SHARE);
    let found: Vec<String> =
        (0..2).flat_map(|number| complaints(base(number), share, 20_261_122 + number)).collect();
    assert!(found.is_empty(), "{} cases:\n{}", found.len(), found.join("\n"));
}

fn open(device: &Arc<SimDevice>, write: bool) -> Result<Filesystem, Error> {
    let env = Arc::new(FixedEnv::new(Timespec { sec: 1_700_000_000, nsec: 0 }, 1));
    let options = Facade::options().env(env);
    let options = if write { options.write() } else { options };
    options.open_device(Arc::<SimDevice>::clone(device) as Arc<dyn BlockDevice>)
}

/// All items: their keys and places.
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
    let many =
        open(&base.device(), false).and_then(|fs| fs.metadata("/many")).expect("it is there").ino().get();
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
        assert!(error.to_string().contains("no free index number"), "{error}");
    }
    fs.hard_link("/large", "/many/hard").expect_err("the numbers are used up");
    fs.subvolumes().create("/many/subvolume").expect_err("the numbers are used up");
    assert_eq!(fs.read("/many/one-more").expect("it was made"), b"it gets the last number");
    fs.write("/elsewhere", "goes on").expect("other directories have numbers");
    fs.close().expect("the transaction is whole");
    assert_eq!(open(&device, false).and_then(|fs| fs.read("/elsewhere")).expect("it was made"), b"goes on");
}

/// Sets the generation of the superblock and of the root tree's root, which must agree.
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
            error.to_string().contains("generation out of range")
                && error.to_string().contains(&format!("found {generation}")),
            "{error}"
        );
        open(&device, false).and_then(|fs| fs.read("/home/letter")).expect("it can be read");
    }
    let error = open(&at_generation(u64::MAX), false).expect_err("nothing follows 2^64-1");
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

#[test]
fn a_tree_that_is_said_to_have_all_bytes_grows_and_stays_there() {
    let base = base(0);
    let field = RawRootItem::FIELDS.iter().find(|field| field.name == "bytes_used").expect("it has one");
    for said in [u64::MAX, u64::MAX - 4095, 1 << 63, 0] {
        let mut damage = Damage::new(base);
        for (_, key, number, slot) in items(base) {
            if key.kind == KeyType::ROOT_ITEM {
                let mut block = BlockMut::new(damage.block(number));
                block.data_mut(slot)[field.offset..field.offset + 8].copy_from_slice(&said.to_le_bytes());
            }
        }
        let device = Arc::new(SimDevice::new(damage.image(true)));
        let fs = creamery_sim::open(&device).expect("it is a number for people");
        let root = fs.root(TreeId::FS).expect("it is whole");
        let file = NewInode::file(0o644);
        for number in 0..200 {
            fs.create(root, format!("one-more-{number}").as_bytes(), &file).expect("there is room");
        }
        fs.sync().expect("a commit");
        let told = fs.engine().root_item(TreeId::FS).expect("it is there").bytes_used.get();
        assert!(if said == 0 { told < 1 << 20 } else { told >= said - 4095 }, "{said} became {told}");
        drop(fs);
        let fs = open(&device, true).expect("nothing was damaged");
        assert!(fs.exists("/one-more-199"));
        fs.close().expect("nothing to do");
        let report = checked(&device).expect("it opens");
        assert!(report.findings.is_empty(), "{:#?}", report.findings);
    }
}

#[test]
fn numbers_of_subvolumes_end_where_those_of_groups_of_groups_begin() {
    let base = base(0);
    let of_home = |item: &(TreeId, Key, usize, usize)| item.0 == TreeId::ROOT && item.1.objectid.get() == 256;
    for id in [(1 << 48) - 1, (1 << 48) + 1] {
        let mut damage = Damage::new(base);
        for (_, key, number, slot) in items(base).filter(of_home) {
            BlockMut::new(damage.block(number))
                .set_item_key(slot, &Key { objectid: ObjectId::new(id), ..key });
        }
        let device = Arc::new(SimDevice::new(damage.image(true)));
        let fs = open(&device, true).expect("a subvolume may have that number");
        for made in [fs.subvolumes().create("/more"), fs.subvolumes().snapshot("/", "/more").run()] {
            let error = made.expect_err("the numbers are used up");
            assert_eq!(error.kind(), ErrorKind::NoSpace);
            assert!(error.to_string().contains("no free subvolume id"), "{error}");
        }
        fs.quotas().change(&QuotaChange::Enable { simple: false }, "/").expect("room");
        fs.quotas().change(&QuotaChange::Create(QgroupId::new(1, 1).expect("small")), "/").expect("room");
        fs.write("/elsewhere", "goes on").and_then(|()| fs.sync()).expect("room");
        let groups: Vec<_> = fs
            .quotas()
            .report()
            .expect("no damage there")
            .groups
            .iter()
            .map(|group| group.id.get())
            .collect();
        let one_one = (1 << 48) + 1;
        let wanted = if id < 1 << 48 { vec![5, id, one_one] } else { vec![5, one_one] };
        assert_eq!(groups, wanted);
        fs.close().expect("the transaction is whole");
    }
}
