//! Clones among files that change, compared with vectors of bytes.

use creamery_base::{ErrorKind, Wait};
use creamery_format::file_extent::{Extent, encode_inline};

use super::model::{FileModel, change};
use super::support::{Fixture, Kind, Random, SECTOR, audit, fixture, items, new_file, put, set_flags};
use crate::data::{CloneRange, clone_range, is_shared, write};
use crate::inode::{Inode, InodeFlags};

const NAMES: [&str; 3] = ["f0", "f1", "f2"];

/// A range of a source of `size` bytes, and a place for it; `None` where the source is empty.
fn choose(size: u64, target: (u64, bool), random: &mut Random) -> Option<CloneRange> {
    let (target_size, is_source) = target;
    let from = random.below(size.checked_sub(1)? / SECTOR + 1) * SECTOR;
    let to = match random.below(3) {
        0 => target_size.next_multiple_of(SECTOR),
        _ => random.below(target_size / SECTOR + 3) * SECTOR,
    };
    let to_the_end = random.below(2) == 0 && to + (size - from) >= target_size;
    let len =
        if to_the_end { size - from } else { (random.below(size / SECTOR + 1) * SECTOR).min(size - from) };
    let len = if len == size - from && !to_the_end { len - len % SECTOR } else { len };
    let overlaps = is_source && from < to + len && to < from + len;
    (len > 0 && !overlaps).then_some(CloneRange { from, to, len, keep_times: false })
}

/// Three files that are cloned into each other, with these flags; also returns how many extents were written in place.
pub(super) fn live(fixture: &mut Fixture, seed: u64, flags: InodeFlags) -> ([FileModel; 3], u64) {
    println!("seed {seed}");
    let mut random = Random(seed);
    let mut models: [FileModel; 3] = Default::default();
    let scale = [3000, 20_000, 400_000][usize::try_from(seed % 3).expect("small")];
    let (mut cloned, mut in_place) = (0, 0);
    for _ in 0..3 {
        let files = NAMES.map(|name| fixture.named(name));
        files.iter().for_each(|file| set_flags(file, flags));
        for _ in 0..30 {
            let pick = |random: &mut Random| usize::try_from(random.below(3)).expect("small");
            let (one, other) = (pick(&mut random), pick(&mut random));
            let source = files[one].item(Wait::Yes).expect("it lives");
            let mut item = files[other].item(Wait::Yes).expect("it lives");
            if random.below(2) == 0 {
                change(&files[other], &mut item, &mut models[other], scale, &mut random);
            } else if let Some(range) = choose(source.size, (item.size, one == other), &mut random) {
                clone_range(&files[one], &source, &files[other].file(), &mut item, range, &mut 0)
                    .expect("room");
                let shown = models[one].range_of(range.from, range.from + range.len);
                models[other].clone_range(&shown, range.to);
                cloned += 1;
            }
            for (file, model) in files.iter().zip(&models) {
                let item = file.item(Wait::Yes).expect("it lives");
                model.compare(file, &item, &mut random);
                audit(fixture, file, &item);
            }
            if random.below(6) == 0 {
                fixture.commit().expect("a commit");
            }
        }
        in_place += files.iter().map(|file| file.context().counters().nocow.counters().written).sum::<u64>();
        drop(files);
        fixture.reopen();
    }
    assert!(cloned > 10, "{cloned} clones are no test");
    (models, in_place)
}

#[test]
fn random_clones_read_back_as_vectors_of_bytes() {
    for (seeds, kind) in [(0..6, Kind::DEFAULT), (6..12, Kind::OLD)] {
        for seed in seeds {
            let Some(mut fixture) = fixture(kind) else { return };
            let _ = live(&mut fixture, seed, InodeFlags::empty());
        }
    }
}

#[test]
fn the_kernel_and_btrfs_check_agree_on_what_random_clones_left() {
    for (seed, kind) in
        [(20, Kind::DEFAULT), (21, Kind::OLD), (22, Kind("--csum sha256")), (23, Kind::DEFAULT)]
    {
        let Some(mut fixture) = fixture(kind) else { return };
        let (models, _) = live(&mut fixture, seed, InodeFlags::empty());
        fixture.judge(|root| {
            for (name, model) in NAMES.iter().zip(&models) {
                model.compare_mounted(&root.join(name));
            }
        });
    }
}

fn clone(source: &Inode, target: &Inode, range: (u64, u64, u64)) -> creamery_base::Result<()> {
    let (from, to, len) = range;
    let range = CloneRange { from: from * SECTOR, to: to * SECTOR, len: len * SECTOR, keep_times: false };
    let source_item = source.item(Wait::Yes)?;
    let mut item = target.item(Wait::Yes)?;
    clone_range(source, &source_item, &target.file(), &mut item, range, &mut 0)
}

fn fill(inode: &Inode, at: u64, sectors: usize) {
    let mut item = inode.item(Wait::Yes).expect("it lives");
    let bytes = vec![7; sectors * SECTOR as usize];
    write(&inode.file(), &mut item, at * SECTOR, &bytes).expect("room");
}

#[test]
fn items_are_cut_to_the_range_and_what_is_in_the_way_goes() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let (source, target) = (
        new_file(&fixture.engine, 300, InodeFlags::empty()),
        new_file(&fixture.engine, 301, InodeFlags::empty()),
    );
    fill(&source, 0, 4);
    fill(&source, 6, 4);
    fill(&target, 0, 12);
    clone(&source, &target, (1, 2, 8)).expect("room");
    assert_eq!(items(&source), "0+4 a@0, 6+4 b@0");
    assert_eq!(items(&target), "0+2 a@0, 2+3 b@1, 7+3 c@0, 10+2 a@10");
    let range = |from: u64, to: u64, len: u64| CloneRange {
        from: from * SECTOR,
        to: to * SECTOR,
        len: len * SECTOR,
        keep_times: true,
    };
    assert!(is_shared(&source, &target, &range(1, 2, 8)).expect("readable trees"));
    assert!(is_shared(&source, &target, &range(7, 8, 2)).expect("readable trees"));
    assert!(!is_shared(&source, &target, &range(0, 1, 9)).expect("readable trees"));
    assert!(!is_shared(&source, &target, &range(1, 3, 2)).expect("readable trees"));
    // Onto itself, next to the cloned range.
    clone(&source, &source, (0, 4, 2)).expect("room");
    assert_eq!(items(&source), "0+4 a@0, 4+2 a@0, 6+4 b@0");
}

#[test]
fn a_source_that_is_damaged_changes_nothing() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let (source, target) = (
        new_file(&fixture.engine, 300, InodeFlags::empty()),
        new_file(&fixture.engine, 301, InodeFlags::empty()),
    );
    fill(&source, 0, 4);
    fill(&source, 4, 4);
    fill(&target, 0, 8);
    let generation = creamery_base::Generation::new(1);
    let overlapping = Extent::whole(generation, creamery_base::Logical::new(1 << 20), 2 * SECTOR);
    put(&fixture, &source, 2 * SECTOR, &overlapping.encode());
    assert_eq!(clone(&source, &target, (0, 0, 8)).expect_err("items overlap").kind(), ErrorKind::Corrupt);
    put(&fixture, &source, 2 * SECTOR, &encode_inline(generation, b"inline in the middle"));
    assert_eq!(clone(&source, &target, (0, 0, 8)).expect_err("damage").kind(), ErrorKind::Corrupt);
    assert_eq!(items(&target), "0+8 a@0");
}
