use std::collections::BTreeSet;

use creamery_testkit::Random;

use super::*;

const SECTOR: u64 = 4096;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The bound of FREE-SPACE-1 for a group of `len` bytes.
fn memory_max(len: u64) -> u64 {
    len * 48 / MIB + 1024
}

/// Every other sector of a group is free.
fn alternating(start: u64, len: u64) -> FreeSpace {
    let mut space = FreeSpace::new(start, len, SECTOR);
    for at in (start..start + len).step_by(2 * SECTOR as usize) {
        assert!(space.add(at, SECTOR));
    }
    space
}

#[test]
fn memory_is_bounded_whatever_is_free() {
    for len in [MIB, 8 * MIB, 9 * MIB, 256 * MIB, GIB, GIB + 64 * 1024, 10 * GIB] {
        let mut space = alternating(3 * MIB, len);
        assert_eq!(space.total(), len / 2);
        assert!(space.memory() <= memory_max(len), "{} bytes for {len}", space.memory());
        let mut most = 0;
        while space.allocate_best(SECTOR, SECTOR).is_some() {
            most = most.max(space.memory());
        }
        assert!(most <= memory_max(len), "{most} bytes for {len} on the way");
        assert_eq!(space.memory(), 0, "nothing is free");
    }
}

#[test]
#[should_panic(expected = "FREE-SPACE-1")]
fn extents_that_take_more_memory_than_a_bitmap_are_a_bug() {
    let mut space = FreeSpace::new(0, MIB, SECTOR);
    let Form::Extents(extents) = &mut space.form else { panic!("nothing is free") };
    assert!((0..MIB).step_by(2 * SECTOR as usize).all(|at| extents.add(at, SECTOR)));
    space.check_form();
}

#[test]
fn what_is_wanted_near_a_place_is_there_if_it_is_free() {
    let mut space = FreeSpace::new(0, GIB, SECTOR);
    assert!(space.add(0, 8 * SECTOR) && space.add(16 * SECTOR, 64 * SECTOR));
    assert_eq!(space.allocate_near(20 * SECTOR, 4 * SECTOR), Some((20 * SECTOR, 4 * SECTOR)));
    assert_eq!(
        space.allocate_near(20 * SECTOR, 4 * SECTOR),
        Some((16 * SECTOR, 4 * SECTOR)),
        "where it fits best"
    );
    assert_eq!(space.allocate_near(22 * SECTOR, 61 * SECTOR), None, "not a part of it");
    assert_eq!(
        space.allocate_near(GIB - SECTOR, 56 * SECTOR),
        Some((24 * SECTOR, 56 * SECTOR)),
        "past the end"
    );
    let mut bitmap = alternating(0, 64 * MIB);
    assert!(bitmap.add(101 * SECTOR, SECTOR), "three in a row");
    assert_eq!(bitmap.allocate_near(101 * SECTOR, 2 * SECTOR), Some((101 * SECTOR, 2 * SECTOR)));
    assert_eq!(bitmap.allocate_near(101 * SECTOR, SECTOR), Some((0, SECTOR)));
}

#[test]
fn memory_is_bounded_in_many_groups() {
    let groups: Vec<_> = (0..1000).map(|number| alternating(number * 8 * MIB, 8 * MIB)).collect();
    let memory: u64 = groups.iter().map(FreeSpace::memory).sum();
    assert!(memory <= 1000 * memory_max(8 * MIB), "{memory} bytes");
}

#[test]
fn a_bitmap_joins_what_crosses_its_words_and_leaves() {
    let len = 64 * MIB;
    let mut space = alternating(0, len);
    assert!(matches!(space.form, Form::Bitmap(_)));
    assert_eq!(space.longest(), SECTOR);
    // One leaf ends at 8 MiB.
    for at in (8 * MIB - 9 * SECTOR..8 * MIB + 20 * SECTOR).step_by(2 * SECTOR as usize) {
        assert!(space.add(at, SECTOR));
    }
    assert_eq!(space.longest(), 31 * SECTOR);
    assert_eq!(space.allocate_aligned(16 * SECTOR, 0), Some(8 * MIB));
    assert_eq!(space.allocate_best(40 * SECTOR, 11 * SECTOR), None);
    assert_eq!(space.allocate_best(40 * SECTOR, 10 * SECTOR), Some((8 * MIB - 10 * SECTOR, 10 * SECTOR)));
    assert_eq!(space.allocate_aligned(SECTOR, len - 3 * SECTOR), Some(len - 2 * SECTOR));
    assert_eq!(space.allocate_aligned(SECTOR, len - 2 * SECTOR), Some(0));
}

#[test]
fn a_bitmap_goes_back_to_extents() {
    let mut space = alternating(0, GIB);
    for at in (SECTOR..GIB).step_by(2 * SECTOR as usize) {
        assert!(space.add(at, SECTOR));
        assert!(!space.add(at, SECTOR), "it is free already");
    }
    assert!(matches!(space.form, Form::Extents(_)));
    assert_eq!((space.total(), space.longest()), (GIB, GIB));
}

/// The free space of a group as a set of sectors, for comparison.
struct Model {
    start: u64,
    sectors: u64,
    free: BTreeSet<u64>,
}

impl Model {
    fn is_free(&self, at: u64, len: u64) -> bool {
        (at..at + len).step_by(SECTOR as usize).all(|sector| self.free.contains(&sector))
    }

    fn take(&mut self, at: u64, len: u64) {
        let taken = (at..at + len).step_by(SECTOR as usize).all(|sector| self.free.remove(&sector));
        assert!(taken, "{at} of {len} bytes was not free");
    }

    fn longest(&self) -> u64 {
        let (mut longest, mut run, mut next) = (0, 0, 0);
        for &sector in &self.free {
            run = if sector == next { run + SECTOR } else { SECTOR };
            next = sector + SECTOR;
            longest = longest.max(run);
        }
        longest
    }

    fn random_range(&self, random: &mut Random, most: u64) -> (u64, u64) {
        let first = random.below(self.sectors);
        let count = 1 + random.below(most.min(self.sectors - first));
        (self.start + first * SECTOR, count * SECTOR)
    }

    fn step(&mut self, space: &mut FreeSpace, random: &mut Random, filling: bool) {
        match random.below(if filling { 4 } else { 7 }) {
            0..4 => {
                let most = if random.below(8) == 0 { 3000 } else { 3 };
                let (at, len) = self.random_range(random, most);
                let range = (at..at + len).step_by(SECTOR as usize);
                let taken = range.clone().all(|sector| !self.free.contains(&sector));
                assert_eq!(space.overlaps(at, len), !taken);
                assert_eq!(space.add(at, len), taken, "{at} of {len} bytes");
                if taken {
                    self.free.extend(range);
                }
            }
            4 => {
                let (cursor, len) = (self.random_range(random, 1).0, SECTOR << random.below(5));
                let at = space.allocate_aligned(len, cursor);
                let places = (self.start.next_multiple_of(len)..).step_by(len as usize);
                let end = self.start + self.sectors * SECTOR;
                let mut places = places.take_while(|at| at + len <= end);
                assert_eq!(at.is_some(), places.any(|at| self.is_free(at, len)), "{len} bytes");
                if let Some(at) = at {
                    assert!(at.is_multiple_of(len));
                    self.take(at, len);
                }
            }
            _ => {
                let (len, longest) = (self.random_range(random, 64).1, self.longest());
                let min = SECTOR.max(len / 2 / SECTOR * SECTOR);
                let found = space.allocate_best(len, min);
                let want = Some(len.min(longest)).filter(|&len| len >= min);
                assert_eq!(found.map(|(_, len)| len), want);
                if let Some((at, len)) = found {
                    self.take(at, len);
                }
            }
        }
    }
}

#[test]
fn any_sequence_of_changes_equals_a_set_of_sectors() {
    for (seed, sectors) in [(1, 300), (2, 2048), (3, 5000), (4, 20_000), (5, 65)] {
        let mut random = Random::new(seed);
        let start = (1 + random.below(100)) * SECTOR;
        let mut space = FreeSpace::new(start, sectors * SECTOR, SECTOR);
        let mut model = Model { start, sectors, free: BTreeSet::new() };
        let (mut bitmaps, mut extents) = (0, 0);
        for step in 0..4000 {
            model.step(&mut space, &mut random, step / 500 % 2 == 0);
            assert_eq!(space.total(), model.free.len() as u64 * SECTOR);
            if step % 16 == 0 {
                assert_eq!(space.longest(), model.longest());
            }
            assert!(space.memory() <= memory_max(sectors * SECTOR));
            match space.form {
                Form::Bitmap(_) => bitmaps += 1,
                Form::Extents(_) => extents += 1,
            }
        }
        assert!(bitmaps > 100 && extents > 0, "{bitmaps} steps with a bitmap, {extents} with extents");
    }
}

#[test]
fn parts_are_taken_where_they_are_free_and_long_enough() {
    // As extents, and as a bitmap.
    for is_bitmap in [false, true] {
        let mut space =
            if is_bitmap { alternating(0, 64 * MIB) } else { FreeSpace::new(0, 64 * MIB, SECTOR) };
        let base = 32 * MIB;
        let at = |sector: u64| base + sector * SECTOR;
        // Only three runs are free from here on: of 2, 1 and 5 sectors.
        while space.take_part((base, 64 * MIB), SECTOR, GIB).is_some() {}
        assert!(space.add(at(10), 2 * SECTOR) && space.add(at(20), SECTOR) && space.add(at(30), 5 * SECTOR));
        assert_eq!(matches!(space.form, Form::Bitmap(_)), is_bitmap);
        let before = space.total();
        assert_eq!(space.take_part((base, at(10)), SECTOR, GIB), None);
        assert_eq!(space.take_part((base, at(30)), 3 * SECTOR, GIB), None, "they are shorter");
        assert_eq!(space.take_part((base, at(64)), SECTOR, 0), None);
        assert_eq!(
            space.take_part((at(11), at(64)), SECTOR, GIB),
            Some((at(11), SECTOR, 0)),
            "the rest of one"
        );
        let front = space.take_part((base, at(64)), 3 * SECTOR, 2 * SECTOR);
        assert_eq!(front, Some((at(30), 2 * SECTOR, 3 * SECTOR)), "its front");
        assert_eq!(space.take_part((base, at(64)), 4 * SECTOR, GIB), None, "what is left is shorter");
        assert_eq!(space.take_part((at(32), at(35)), 1, 2 * SECTOR), Some((at(32), 2 * SECTOR, SECTOR)));
        assert_eq!(space.take_part((at(34), at(64)), SECTOR, GIB), Some((at(34), SECTOR, 0)));
        assert_eq!(before - space.total(), 6 * SECTOR);
        assert!(space.overlaps(at(10), SECTOR) && space.overlaps(at(20), SECTOR));
    }
}
