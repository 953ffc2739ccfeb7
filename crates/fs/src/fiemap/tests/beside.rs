//! Listings while something else happens to the file.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use creamery_base::sync::Mutex;
use creamery_base::{Logical, Result};
use creamery_device::{Hook, Request};
use creamery_txn::{CommitParticipant, Handle};

use super::{MIB, all, delayed_file, list, text_of, write};
use crate::data::tests::support::*;
use crate::fallocate::Fallocate;
use crate::fiemap::batch::shared;
use crate::fiemap::layout::{BatchStart, ENTRIES_MAX, Layout, LayoutEntry};
use crate::fiemap::{FiemapExtent, FiemapFlags, FiemapRequest};
use crate::inode::InodeFlags;
use crate::ops::{SetAttributes, set_attributes};

const MARK: u8 = 0xee;

/// Says when it is reached, and waits until it is told to go on.
struct WaitsWhenReached {
    reached: Mutex<Sender<()>>,
    go: Mutex<Receiver<()>>,
}

impl WaitsWhenReached {
    fn new() -> (Self, Receiver<()>, Sender<()>) {
        let ((reached, is_reached), (go, wait_to_go)) = (channel(), channel());
        (Self { reached: Mutex::new(reached), go: Mutex::new(wait_to_go) }, is_reached, go)
    }

    fn pass(&self) {
        let _ = self.reached.lock().send(());
        let _ = self.go.lock().recv();
    }
}

impl Hook for WaitsWhenReached {
    fn before(&self, request: &Request) -> Result<()> {
        if let Request::Write { data, .. } = request
            && data.iter().all(|piece| piece.iter().all(|byte| *byte == MARK))
        {
            self.pass();
        }
        Ok(())
    }
}

impl CommitParticipant for WaitsWhenReached {
    fn settle(&self, _: &Handle<'_>) -> Result<()> {
        self.pass();
        Ok(())
    }

    fn prepare(&self) {}
}

#[test]
fn what_is_in_flight_is_delayed_until_it_is_in_the_tree() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let (gate, is_reached, go) = WaitsWhenReached::new();
    let (engine, _device) = fixture.behind(gate);
    let file = opened(Arc::new(new_delayed_file(&engine, 300, InodeFlags::empty(), 64 * MIB)));
    file.fallocate(Fallocate::Allocate { keep_size: false }, 0, 4 * SECTOR).expect("room");
    file.write_at(2 * SECTOR, &[MARK; 4 * SECTOR as usize]).expect("room");
    std::thread::scope(|scope| {
        let flush = scope.spawn(|| file.inode().flush());
        is_reached.recv().expect("it is written");
        // Written again in front of what is in flight, and beside it.
        write(&file, 5, 2);
        let listed = text_of(&all(&file));
        let delayed = "unknown_loc,delalloc";
        assert_eq!(listed, format!("0+2 unwritten; 2+2 {delayed}; 4+3 last,{delayed}"));
        drop(go);
        flush.join().expect("no panic").expect("room");
    });
    file.inode().flush().expect("room");
    assert_eq!(all(&file).iter().map(|entry| entry.length).sum::<u64>(), 7 * SECTOR);
    assert!(all(&file).iter().all(|entry| !entry.flags.contains(FiemapFlags::DELALLOC)));
}

/// Its commit hangs; who writes to the file does not.
#[test]
fn a_listing_waits_for_no_commit_with_the_file_locked() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let file = delayed_file(&fixture);
    write(&file, 0, 4);
    file.inode().flush().expect("room");
    let (gate, is_reached, go) = WaitsWhenReached::new();
    let gate: Arc<dyn CommitParticipant> = Arc::new(gate);
    fixture.register(gate);
    std::thread::scope(|scope| {
        let listed = scope.spawn(|| all(&file));
        is_reached.recv().expect("there is something to commit");
        write(&file, 0, 1);
        write(&file, 8, 1);
        drop(go);
        assert_eq!(text_of(&listed.join().expect("no panic")), "0+4 last", "as it was before");
    });
    assert_eq!(text_of(&all(&file)), "0+4; 8+1 last,unknown_loc,delalloc");
}

/// Sectors of which each second one is always data, more than a batch has room for, while all of them are written, made holes of,
/// written back and given other places. What is listed is in order (or the listing fails), has all that is always there, and
/// nothing that anybody shares.
#[test]
fn who_lists_beside_a_writer_misses_nothing() {
    const PAIRS: u64 = 2 * ENTRIES_MAX as u64;
    for kind in [Kind::DEFAULT, Kind::OLD] {
        let Some(fixture) = fixture(kind) else { return };
        let file = delayed_file(&fixture);
        let other = opened(Arc::new(new_delayed_file(&fixture, 301, InodeFlags::empty(), 64 * MIB)));
        for pair in 0..PAIRS {
            write(&file, 2 * pair, 1);
        }
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = Random(3);
                while !is_over.load(Ordering::Relaxed) {
                    let pair = random.below(PAIRS);
                    match random.below(8) {
                        0 => file
                            .fallocate(Fallocate::PunchHole, (2 * pair + 1) * SECTOR, SECTOR)
                            .expect("room"),
                        1 => file.inode().flush().expect("room"),
                        2 => write(&file, 2 * pair + 1, 1),
                        3 => {
                            let keep_size = true;
                            let mode = Fallocate::Allocate { keep_size };
                            file.fallocate(mode, (2 * pair + 1) * SECTOR, SECTOR).expect("room");
                        }
                        4 => {
                            // What the file gives up somebody else takes, and has twice.
                            write(&other, 2 * pair, 1);
                            let to = (2 * pair + 1) * SECTOR;
                            other.clone_range(&other, 2 * pair * SECTOR, SECTOR, to).expect("room");
                        }
                        _ => write(&file, 2 * pair, 1),
                    }
                }
            });
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    file.inode().context().writeback().step();
                    fixture.commit().expect("room");
                }
            });
            let listings = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                for round in 0..150 {
                    let request = FiemapRequest { sync: round % 5 == 0, ..FiemapRequest::default() };
                    let entries = list(&file, &request).expect("entries in order");
                    let mut has = vec![false; PAIRS as usize];
                    for entry in &entries {
                        assert!(!entry.flags.contains(FiemapFlags::SHARED), "{entry:?}");
                        if !entry.flags.contains(FiemapFlags::UNWRITTEN) {
                            let pairs = entry.logical.div_ceil(2 * SECTOR)..entry.end().div_ceil(2 * SECTOR);
                            pairs.for_each(|pair| has[pair as usize] = true);
                        }
                    }
                    let missed: Vec<_> =
                        (0..).zip(&has).filter(|(_, has)| !**has).map(|(at, _): (u64, _)| at).collect();
                    assert!(missed.is_empty(), "round {round}: {missed:?} of {}", text_of(&entries));
                }
            }));
            is_over.store(true, Ordering::Relaxed);
            listings.expect("listings that miss nothing");
        });
    }
}

#[test]
fn synced_listings_have_nothing_delayed_also_beside_a_writer() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let file = delayed_file(&fixture);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Where nothing is: of what is in the tree the old place is told.
            for number in (0..500).cycle().take_while(|_| !is_over.load(Ordering::Relaxed)) {
                if number == 0 {
                    set_attributes(file.inode(), &SetAttributes::truncate(0)).expect("room");
                }
                write(&file, 2 * number, 1);
            }
        });
        let listed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            // Those that were made before there was anything do not count.
            let mut listings = 0;
            while listings < 50 {
                let request = FiemapRequest { sync: true, ..FiemapRequest::default() };
                let entries = list(&file, &request).expect("a listing");
                listings += u32::from(!entries.is_empty());
                assert!(!entries.iter().any(|entry| entry.flags.contains(FiemapFlags::DELALLOC)));
            }
        }));
        is_over.store(true, Ordering::Relaxed);
        listed.expect("nothing delayed");
    });
}

/// An extent is overwritten in its midst, which takes several changes of its items: what lies behind is listed, whenever that is.
#[test]
fn an_extent_that_is_cut_is_listed_whole() {
    const SECTORS: u64 = 64;
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let file = opened(Arc::new(new_delayed_file(&fixture, 300, InodeFlags::NODATASUM, 64 * MIB)));
    write(&file, 0, SECTORS);
    file.inode().flush().expect("room");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let lister = || {
            while !is_over.load(Ordering::Relaxed) {
                let from = BatchStart::Anew((SECTORS - 2) * SECTOR);
                let layout = Layout::of(&file.inode().file(), from, u64::MAX).expect("a layout");
                let ends = layout.pieces.first().zip(layout.pieces.last());
                let ends = ends.map(|(first, last)| (first.entry.logical, last.entry.end()));
                let is_whole = |(start, end): (u64, u64)| start <= from.offset() && end == SECTORS * SECTOR;
                assert!(ends.is_some_and(is_whole), "{ends:?}");
            }
        };
        let listers = [(); 2].map(|()| scope.spawn(lister));
        for _ in 0..2000 {
            write(&file, 0, SECTORS);
            file.inode().flush().expect("room");
            for at in [8, 16, 24, 32, 40, 48] {
                write(&file, at, 1);
            }
            file.inode().flush().expect("room");
        }
        is_over.store(true, Ordering::Relaxed);
        for lister in listers {
            lister.join().expect("whole files");
        }
    });
}

/// What a file gives up while it is listed is not handed out again before it is known who shares it.
#[test]
fn places_that_are_given_up_meanwhile_are_nobody_elses_yet() {
    const TRIES: usize = 300;
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let [file, other] = [300, 301]
        .map(|ino| opened(Arc::new(new_delayed_file(&fixture, ino, InodeFlags::empty(), 64 * MIB))));
    let is_reused = |is_guarded: bool| {
        write(&file, 0, 8);
        file.inode().flush().expect("room");
        fixture.commit().expect("room");
        let guard = is_guarded.then(|| fixture.commit_root_guard());
        let layout = Layout::of(&file.inode().file(), BatchStart::Anew(0), u64::MAX).expect("a layout");
        let place = layout.pieces[0].entry.physical;
        let reused = (0..TRIES).any(|_| {
            file.fallocate(Fallocate::PunchHole, 0, 8 * SECTOR).expect("room");
            fixture.commit().expect("room");
            write(&other, 0, 8);
            other.inode().flush().expect("room");
            all(&other)
                .iter()
                .any(|entry| entry.physical < place + 8 * SECTOR && place < entry.physical + entry.length)
        });
        let told = shared(file.inode(), &fixture, &layout.pieces, false).expect("who shares it");
        let is_shared = told.iter().any(|entry| entry.flags.contains(FiemapFlags::SHARED));
        assert!(reused || !is_shared, "{}", text_of(&told));
        drop(guard);
        reused
    };
    assert!(is_reused(false), "without that it is: the test tells them apart");
    assert!(!is_reused(true));
}

fn piece(at: u64) -> LayoutEntry {
    let entry = FiemapExtent::new(at * SECTOR, MIB, SECTOR, FiemapFlags::empty());
    LayoutEntry { entry, extent: Some((Logical::new(MIB), 0)) }
}

#[test]
#[should_panic(expected = "FIEMAP-1")]
fn an_entry_before_the_last_one_is_a_bug() {
    let mut layout = Layout::empty();
    for at in [5, 4] {
        let _ = layout.push(piece(at));
    }
}

#[test]
#[should_panic(expected = "FIEMAP-4")]
fn a_batch_that_is_too_long_is_a_bug() {
    let mut layout = Layout::empty();
    layout.pieces = (0..=ENTRIES_MAX as u64).map(piece).collect();
    drop(layout.stopped(0));
}

/// A full file whose front half was punched out again, and another file.
fn half_emptied(fixture: &Fixture) -> (crate::OpenFile, crate::OpenFile) {
    let file = opened(Arc::new(new_file(fixture, 300, InodeFlags::empty())));
    let other = opened(Arc::new(new_file(fixture, 301, InodeFlags::empty())));
    let mut size = 0;
    while let Ok(written) = file.write_at(size, &vec![7; MIB as usize]) {
        size += written as u64;
    }
    fixture.commit().expect("a commit");
    file.fallocate(Fallocate::PunchHole, 0, size / 2).expect("it frees");
    (file, other)
}

#[test]
fn a_listing_keeps_no_space_from_who_writes_next() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let (file, other) = half_emptied(&fixture);
    all(&file);
    assert_eq!(other.write_at(0, &vec![7; MIB as usize]).expect("room"), MIB as usize);
}

/// What is freed is held back as long as somebody reads who may come to it, and no longer.
#[test]
fn what_a_reader_keeps_is_there_when_he_is_gone() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let (_, other) = half_emptied(&fixture);
    let guard = fixture.commit_root_guard();
    fixture.commit().expect("a commit");
    assert!(other.write_at(0, &vec![7; MIB as usize]).is_err(), "it is read");
    drop(guard);
    assert_eq!(other.write_at(0, &vec![7; MIB as usize]).expect("room"), MIB as usize);
}
