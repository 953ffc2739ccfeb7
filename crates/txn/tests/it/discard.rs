//! Discards beside threads that want space.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use creamery_base::sync::{Condvar, Mutex};
use creamery_base::{ErrorKind, ObjectId, Result, TreeId};
use creamery_device::{BlockDevice, Hook, Hooked, Request};
use creamery_format::{Key, KeyType};
use creamery_testkit::{ThreadWatch, wait_until};
use creamery_txn::{DataExtent, DiscardPolicy, Engine, Options, ReserveItems};
use creamery_volume::{Mode, Volume};

use crate::neighbours::empty_image;

/// Holds discards back, and notes their ranges.
#[derive(Default)]
struct Gate {
    /// Discards in these ranges are held back.
    closed: Mutex<Vec<(u64, u64)>>,
    changed: Condvar,
    waiting: AtomicUsize,
    seen: Mutex<Vec<(u64, u64)>>,
}

impl Hook for Gate {
    fn before(&self, request: &Request) -> Result<()> {
        if let Request::Discard { offset, len } = request {
            self.seen.lock().push((*offset, *len));
            let closed = |closed: &mut Vec<(u64, u64)>| {
                closed.iter().any(|(start, size)| *start <= *offset && offset + len <= start + size)
            };
            let mut held_back = self.closed.lock();
            if closed(&mut held_back) {
                self.waiting.fetch_add(1, Ordering::SeqCst);
                drop(self.changed.wait_while(held_back, closed));
                self.waiting.fetch_sub(1, Ordering::SeqCst);
            }
        }
        Ok(())
    }
}

impl Gate {
    fn open(&self) {
        self.closed.lock().clear();
        self.changed.notify_all();
    }

    fn wait_for_somebody(&self) {
        while self.waiting.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
    }
}

fn open() -> Option<(Arc<Engine>, Arc<Hooked<Gate>>)> {
    let image = empty_image()?;
    let device = Arc::new(Hooked::new(image as Arc<dyn BlockDevice>, Gate::default()));
    let volume = Volume::open(vec![Arc::clone(&device)], Mode::ReadWrite).expect("a filesystem");
    Some((Engine::open(volume, Options::default()).expect("writable"), device))
}

/// Takes all data space.
fn take_all(engine: &Engine) -> Vec<DataExtent> {
    let mut taken = Vec::new();
    loop {
        match engine.allocate_data(TreeId::FS, 64 << 20, 4096, None) {
            Ok(extent) => taken.push(extent),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                return taken;
            }
        }
    }
}

fn on_device(engine: &Engine, extent: &DataExtent) -> (u64, u64) {
    let copies = engine.volume().map(extent.start(), extent.len()).expect("a place");
    (copies.mirrors()[0][0].at.offset, extent.len())
}

/// All data space, on the device; its chunks exist from now on.
fn all_of_it(engine: &Engine) -> (u64, Vec<(u64, u64)>) {
    let all = take_all(engine);
    (sum(&all), all.iter().map(|extent| on_device(engine, extent)).collect())
}

fn sum(extents: &[DataExtent]) -> u64 {
    extents.iter().map(DataExtent::len).sum()
}

#[test]
fn what_is_being_discarded_is_handed_to_nobody() {
    let Some((engine, device)) = open() else { return };
    let (_, places) = all_of_it(&engine);
    device.closed.lock().extend(places);
    std::thread::scope(|scope| {
        let trim = scope.spawn(|| engine.trim((0, u64::MAX), 0));
        device.wait_for_somebody();
        let (at, len) = *device.seen.lock().last().expect("one is held back");
        // Other threads find room, but not this range.
        for _ in 0..64 {
            let extent = engine.allocate_data(TreeId::FS, 64 << 10, 4096, None).expect("room");
            let (start, size) = on_device(&engine, &extent);
            assert!(start + size <= at || at + len <= start, "{start} of {size} bytes is being discarded");
            drop(extent);
        }
        device.open();
        assert!(trim.join().expect("no panic").expect("a trim").bytes > 0);
    });
    engine.commit().expect("a commit");
}

#[test]
fn who_finds_no_room_waits_for_what_is_being_discarded() {
    let Some((engine, device)) = open() else { return };
    let (all, places) = all_of_it(&engine);
    device.closed.lock().extend(places);
    let watch = ThreadWatch::default();
    std::thread::scope(|scope| {
        let trim = scope.spawn(|| engine.trim((0, u64::MAX), 0));
        device.wait_for_somebody();
        let everything = scope.spawn(|| {
            watch.this_thread();
            sum(&take_all(&engine))
        });
        // It takes the free space, and then waits for the discard; an error would end it too early.
        wait_until("it to wait for what is discarded", || everything.is_finished() || watch.waits());
        device.open();
        assert_eq!(everything.join().expect("no panic"), all, "some of it was told to be no space");
        trim.join().expect("no panic").expect("a trim");
    });
}

#[test]
fn what_is_freed_is_discarded_as_told() {
    for policy in [DiscardPolicy::Off, DiscardPolicy::Async, DiscardPolicy::Sync] {
        let Some((engine, device)) = open() else { return };
        engine.set_discard(policy);
        engine.commit().expect("nothing to do");
        // A commit copies blocks of trees and frees the old ones.
        let handle = engine.start(ReserveItems::items(1)).expect("room");
        let tree = engine.tree(TreeId::FS).expect("the top level");
        let key = Key::new(ObjectId::FIRST_FREE, KeyType::INODE_ITEM, 0);
        let sequence = 72;
        tree.update(&handle, &key, |item| item[sequence] = 7).expect("a readable tree").expect("the root");
        handle.end();
        engine.commit().expect("a commit");
        let by_commit = device.seen.lock().len();
        while engine.background_step(|_| 0).is_some() {}
        let all = device.seen.lock().len();
        match policy {
            DiscardPolicy::Off => assert_eq!((by_commit, all), (0, 0)),
            DiscardPolicy::Async => assert!(by_commit == 0 && all > 0),
            DiscardPolicy::Sync => assert!(by_commit > 0 && all == by_commit),
        }
    }
}
