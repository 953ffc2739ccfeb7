//! Random operations, and what each sector is by the rules of files.

use std::sync::Arc;

use super::{MIB, all, list};
use crate::data::tests::support::*;
use crate::fallocate::Fallocate;
use crate::fiemap::{FiemapExtent, FiemapFlags, FiemapRequest};
use crate::open_file::OpenFile;
use crate::ops::{SetAttributes, set_attributes};

/// What a sector is in the tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sector {
    Hole,
    Prealloc,
    Data,
}

/// What a listing says of a sector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Said {
    Nothing,
    Unwritten,
    Delayed,
    Data,
}

const SECTORS: usize = 120;

struct FiemapModel {
    size: u64,
    /// That in the tree.
    complete: u64,
    tree: [Sector; SECTORS],
    is_dirty: [bool; SECTORS],
}

impl FiemapModel {
    fn write(&mut self, at: u64, len: u64) {
        self.size = self.size.max(at + len);
        self.is_dirty[(at / SECTOR) as usize..(at + len).div_ceil(SECTOR) as usize].fill(true);
    }

    fn flush(&mut self) {
        if let Some(last) = self.is_dirty.iter().rposition(|dirty| *dirty) {
            self.complete = self.complete.max(self.size.min((last as u64 + 1) * SECTOR));
        }
        for (sector, dirty) in self.tree.iter_mut().zip(&mut self.is_dirty) {
            if std::mem::take(dirty) {
                *sector = Sector::Data;
            }
        }
    }

    fn cut(&mut self, size: u64) {
        let end = (size.div_ceil(SECTOR) as usize).min(SECTORS);
        let grows = size > self.size;
        if size < self.size {
            self.is_dirty[end..].fill(false);
            self.size = size;
        }
        self.flush();
        // Space behind the end goes with a cut, also where what grew over it was in memory alone.
        if !grows || size <= self.complete {
            self.tree[end..].fill(Sector::Hole);
        }
        (self.size, self.complete) = (size, size);
    }

    fn said(&self) -> Vec<Said> {
        let of = |(tree, dirty)| match (tree, dirty) {
            (Sector::Data, _) => Said::Data,
            (_, true) => Said::Delayed,
            (Sector::Prealloc, false) => Said::Unwritten,
            (Sector::Hole, false) => Said::Nothing,
        };
        self.tree.into_iter().zip(self.is_dirty).map(of).collect()
    }
}

fn said(entries: &[FiemapExtent]) -> Vec<Said> {
    let mut sectors = vec![Said::Nothing; SECTORS];
    for entry in entries {
        let said = match entry.flags {
            flags if flags.contains(FiemapFlags::DELALLOC) => {
                assert!(flags.contains(FiemapFlags::UNKNOWN) && entry.physical == 0);
                Said::Delayed
            }
            flags if flags.contains(FiemapFlags::UNWRITTEN) => Said::Unwritten,
            _ => Said::Data,
        };
        let is_inline = entry.flags.contains(FiemapFlags::DATA_INLINE);
        assert_eq!(entry.physical == 0, is_inline || said == Said::Delayed);
        let sectors = &mut sectors[(entry.logical / SECTOR) as usize..(entry.end() / SECTOR) as usize];
        assert!(!sectors.is_empty() && sectors.iter().all(|sector| *sector == Said::Nothing), "no overlap");
        sectors.fill(said);
    }
    sectors
}

fn compare(file: &OpenFile, model: &FiemapModel, random: &mut Random) {
    let entries = all(file);
    assert_eq!(said(&entries), model.said());
    let is_last: Vec<_> = entries.iter().map(|entry| entry.flags.contains(FiemapFlags::LAST)).collect();
    assert!(is_last.split_last().is_none_or(|(last, others)| *last && !others.contains(&true)));
    for pair in entries.windows(2) {
        let goes_on = pair[0].end() == pair[1].logical
            && pair[0].physical + pair[0].length == pair[1].physical
            && pair[0].flags == pair[1].flags - FiemapFlags::LAST;
        assert!(!goes_on, "what touches is one: {pair:?}");
    }
    let (offset, len) = (random.below(SECTORS as u64 * SECTOR), 1 + random.below(30 * SECTOR));
    let some = list(file, &FiemapRequest { offset, len, sync: false }).expect("a listing");
    let (first, end) = ((offset / SECTOR) as usize, ((offset + len).div_ceil(SECTOR) as usize).min(SECTORS));
    assert_eq!(said(&some)[first..end], model.said()[first..end]);
    let whole = |entry: &FiemapExtent| entry.logical < offset + len && offset - offset % SECTOR < entry.end();
    let delayed_apart = |entry: &FiemapExtent| entry.flags.contains(FiemapFlags::DELALLOC);
    let touching = |entry: &&FiemapExtent| !delayed_apart(entry);
    // Each is part of an entry of the whole listing, where the extents of a file that touch may be one.
    for entry in some.iter().filter(touching) {
        let is_part = |other: &FiemapExtent| {
            other.logical <= entry.logical
                && entry.end() <= other.end()
                && other.flags - FiemapFlags::LAST == entry.flags - FiemapFlags::LAST
        };
        assert!(entries.iter().any(is_part), "{entry:?}");
        let is_unwritten = entry.flags.contains(FiemapFlags::UNWRITTEN);
        assert!(whole(entry) || is_unwritten, "{entry:?} in {offset}+{len}");
    }
}

fn change(file: &OpenFile, model: &mut FiemapModel, random: &mut Random) {
    let most = SECTORS as u64 * SECTOR;
    let sectors = |random: &mut Random| {
        let at = random.below(SECTORS as u64 - 1);
        (at * SECTOR, (1 + random.below((SECTORS as u64 - at).min(30))) * SECTOR)
    };
    match random.below(14) {
        0 => {
            let to = if random.below(3) == 0 { random.below(6000) } else { random.below(most) };
            set_attributes(file.inode(), &SetAttributes::truncate(to)).expect("room");
            model.cut(to);
        }
        1 | 2 => {
            let (at, len) = sectors(random);
            let keep_size = random.below(2) == 0;
            file.fallocate(Fallocate::Allocate { keep_size }, at, len).expect("room");
            model.flush();
            let range = (at / SECTOR) as usize..((at + len) / SECTOR) as usize;
            let holes = model.tree[range].iter_mut().filter(|sector| **sector == Sector::Hole);
            holes.for_each(|sector| *sector = Sector::Prealloc);
            model.size = if keep_size { model.size } else { model.size.max(at + len) };
            model.complete = if keep_size { model.complete } else { model.size };
        }
        3 => {
            let (at, len) = sectors(random);
            file.fallocate(Fallocate::PunchHole, at, len).expect("room");
            model.flush();
            model.tree[(at / SECTOR) as usize..((at + len) / SECTOR) as usize].fill(Sector::Hole);
        }
        4 => {
            file.inode().flush().expect("room");
            model.flush();
        }
        5 => {
            let request = FiemapRequest { sync: true, ..FiemapRequest::default() };
            list(file, &request).expect("a listing");
            model.flush();
        }
        _ => {
            let at = if random.below(3) == 0 { model.size } else { random.below(most) }.min(most - 1);
            let len = match random.below(3) {
                0 => 1 + random.below(200),
                1 => 1 + random.below(40_000),
                _ => SECTOR,
            };
            let len = len.min(most - at);
            assert_eq!(file.write_at(at, &vec![7; len as usize]).expect("room"), len as usize);
            model.write(at, len);
        }
    }
}

#[test]
fn random_changes_are_listed_as_the_model_has_them() {
    for (seed, kind) in (0..16).zip([Kind::DEFAULT, Kind::OLD].into_iter().cycle()) {
        println!("seed {seed}");
        let Some(mut fixture) = fixture(kind) else { return };
        let mut random = Random(seed);
        let mut model =
            FiemapModel { size: 0, complete: 0, tree: [Sector::Hole; SECTORS], is_dirty: [false; SECTORS] };
        for _ in 0..4 {
            let file = opened(Arc::new(fixture.named_delayed("f1", 64 * MIB)));
            compare(&file, &model, &mut random);
            for step in 0..40 {
                println!("step {step}");
                change(&file, &mut model, &mut random);
                compare(&file, &model, &mut random);
            }
            file.sync().expect("room");
            model.flush();
            compare(&file, &model, &mut random);
            drop(file);
            fixture.reopen();
        }
    }
}
