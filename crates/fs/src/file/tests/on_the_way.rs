//! Data between memory and the tree while other operations run on its file.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use creamery_base::sync::Mutex;
use creamery_base::{Error, ErrorKind, Result, Wait};
use creamery_device::{Hook, Request};
use creamery_txn::{CommitParticipant, Handle};

use super::{MARK, MIB, delayed, is_marked};
use crate::data::tests::support::*;
use crate::inode::InodeFlags;
use crate::ops::{SetAttributes, set_attributes};

/// Stops every commit, and with it threads that begin a handle meanwhile, until the test lets it go on.
struct CommitStop {
    reached: Mutex<Sender<()>>,
    go: Mutex<Receiver<()>>,
}

impl CommitParticipant for CommitStop {
    fn settle(&self, _: &Handle<'_>) -> Result<()> {
        let _ = self.reached.lock().send(());
        let _ = self.go.lock().recv();
        Ok(())
    }

    fn prepare(&self) {}
}

/// Inline data is alone in its file, also when the file grows while that data is on its way.
#[test]
fn a_small_file_that_grows_while_it_is_in_flight_grows_out_of_the_tree() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let file = opened(Arc::new(new_delayed_file(&fixture, 300, InodeFlags::empty(), 64 * MIB)));
    file.write_at(0, b"small").expect("room");
    let ((reached, is_reached), (go, wait_to_go)) = (channel(), channel());
    let stop: Arc<dyn CommitParticipant> =
        Arc::new(CommitStop { reached: Mutex::new(reached), go: Mutex::new(wait_to_go) });
    fixture.register(stop);
    let delalloc = file.inode().file().delalloc();
    std::thread::scope(|scope| {
        let commit = scope.spawn(|| fixture.commit());
        is_reached.recv().expect("there is something to commit");
        let flush = scope.spawn(|| file.inode().flush());
        while delalloc.begin(0, Duration::ZERO, |state| state.in_flight_range()) == (0, 0) {
            std::thread::yield_now();
        }
        file.write_at(5 * SECTOR, b"far").expect("room");
        drop(go);
        commit.join().expect("no panic").expect("it works");
        flush.join().expect("no panic").expect("room");
    });
    file.inode().flush().expect("room");
    assert_eq!(items(file.inode()), "0+1 a@0, 5+1 b@0");
    audit(&fixture, file.inode(), &file.inode().item(Wait::Yes).expect("it lives"));
}

#[test]
fn a_file_that_is_cut_in_memory_alone_was_modified_all_the_same() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let file = opened(Arc::new(new_delayed_file(&fixture, 300, InodeFlags::empty(), 64 * MIB)));
    file.write_at(0, b"written").expect("room");
    let written = file.stat(Wait::Yes).expect("it lives").times;
    let cut = SetAttributes { size: Some(0), ..SetAttributes::default() };
    set_attributes(file.inode(), &cut).expect("room");
    let after = file.stat(Wait::Yes).expect("it lives");
    assert_eq!(after.size, 0);
    assert!(after.times.modification >= written.modification && after.times.change >= written.change);
}

#[test]
fn room_is_kept_for_each_of_many_runs() {
    const RUNS: u64 = 64;
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let file = opened(Arc::new(new_delayed_file(&fixture, 300, InodeFlags::empty(), 64 * MIB)));
    for number in 0..RUNS {
        file.write_at(2 * number * SECTOR, &[7; SECTOR as usize]).expect("room");
    }
    let all = fixture.delalloc_metadata_bytes();
    for left in (0..RUNS).rev() {
        assert!(file.inode().context().writeback().step());
        let kept = fixture.delalloc_metadata_bytes();
        assert!(kept >= all / RUNS * left, "{kept} of {all} for {left} runs");
    }
    assert_eq!(fixture.delalloc_metadata_bytes(), 0);
}

/// Keeps writes of marked data, until the test lets them go on.
struct HoldsMarked {
    reached: Mutex<Sender<()>>,
    go: Mutex<Receiver<()>>,
}

impl Hook for HoldsMarked {
    fn before(&self, request: &Request) -> Result<()> {
        if let Request::Write { data, .. } = request
            && data.iter().all(is_marked)
        {
            let _ = self.reached.lock().send(());
            let _ = self.go.lock().recv();
        }
        Ok(())
    }
}

/// Threads that do not need a device do not wait for it.
#[test]
fn while_a_device_hangs_all_but_fsync_of_that_file_goes_on() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let ((reached, is_reached), (go, wait_to_go)) = (channel(), channel());
    let hanging = HoldsMarked { reached: Mutex::new(reached), go: Mutex::new(wait_to_go) };
    let (engine, _device) = fixture.behind(hanging);
    let [file, other] =
        [300, 301].map(|ino| opened(Arc::new(new_delayed_file(&engine, ino, InodeFlags::empty(), 64 * MIB))));
    file.write_at(0, &[MARK; MIB as usize]).expect("room");
    let (seen, ended) = std::thread::scope(|scope| {
        let fsync = scope.spawn(|| file.sync());
        is_reached.recv().expect("it is written back");
        let work = || -> Result<_> {
            let before = file.stat(Wait::Yes)?.size;
            file.write_at(SECTOR, &[1; SECTOR as usize])?;
            file.write_at(MIB, &[2; 10])?;
            let mut out = vec![0; 2 * SECTOR as usize];
            file.read_at(0, &mut out, Wait::Yes)?;
            other.write_at(0, &[3; SECTOR as usize])?;
            other.sync()?;
            engine.commit()?;
            Ok((before, file.stat(Wait::Yes)?.size, out))
        };
        let seen = work();
        let ended = fsync.is_finished();
        drop(go);
        fsync.join().expect("no panic").expect("room");
        (seen.expect("nobody waits"), ended)
    });
    assert!(!ended, "the device has not taken the data");
    assert_eq!((seen.0, seen.1), (MIB, MIB + 10));
    assert!(seen.2.iter().enumerate().all(|(at, byte)| *byte == if at < SECTOR as usize { MARK } else { 1 }));
    file.sync().expect("room");
    let mut out = vec![0; MIB as usize + 10];
    assert_eq!(file.read_at(0, &mut out, Wait::Yes).expect("data"), out.len());
    let wanted = [(0, MARK), (SECTOR, 1), (2 * SECTOR, MARK), (MIB, 2), (MIB + 10, 2)];
    for pair in wanted.windows(2) {
        assert!(out[pair[0].0 as usize..pair[1].0 as usize].iter().all(|byte| *byte == pair[0].1));
    }
}

/// The beginning of data whose write fails: longer than the checksum of a tree block could match by chance.
const LOST: &[u8] = &[MARK, b'm', b'a', b'l', b'l', 0, 0, 0];

/// Fails writes of data that has to be lost.
struct FailingAtTheMark;

impl Hook for FailingAtTheMark {
    fn before(&self, request: &Request) -> Result<()> {
        match request {
            Request::Write { data, .. } if data.iter().next().is_some_and(|data| data.starts_with(LOST)) => {
                Err(Error::new(ErrorKind::Io, "the device fails"))
            }
            _ => Ok(()),
        }
    }
}

/// Inline data would become a sector of its own before the data behind it, and that fails.
#[test]
fn what_is_behind_a_sector_that_is_lost_leaves_a_file_that_is_whole() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let (engine, _device) = fixture.behind(FailingAtTheMark);
    let file = opened(Arc::new(new_delayed_file(&engine, 300, InodeFlags::empty(), 64 * MIB)));
    file.write_at(0, b"small").expect("room");
    file.inode().flush().expect("room");
    file.write_at(0, &[MARK]).expect("room");
    file.write_at(5 * SECTOR, b"far").expect("room");
    assert_eq!(file.sync().map_err(|error| error.kind()), Err(ErrorKind::Io));
    assert_eq!(items(file.inode()), "0+1 a@0, 5+1 b@0");
    audit(&engine, file.inode(), &file.inode().item(Wait::Yes).expect("it lives"));
    let mut out = [1; 6];
    assert_eq!(file.read_at(0, &mut out, Wait::Yes).expect("data"), 6);
    assert_eq!(&out, b"small\0");
    assert_eq!((engine.delalloc_bytes(), engine.delalloc_metadata_bytes(), delayed(file.inode())), (0, 0, 0));
}
