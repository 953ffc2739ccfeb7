//! What is between memory and the tree while something else happens to its file.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use creamery_base::sync::Mutex;
use creamery_base::{Error, ErrorKind, Result, Wait};
use creamery_device::{Hook, Request};
use creamery_txn::{CommitParticipant, Handle};

use super::{MARK, MIB, delayed};
use crate::data::tests::support::*;
use crate::inode::InodeFlags;
use crate::inode::attributes::SetAttributes;
use crate::open_file::OpenFile;

/// Keeps every commit waiting, and with it who begins a handle meanwhile, until it is told to go on.
struct Stop {
    reached: Mutex<Sender<()>>,
    go: Mutex<Receiver<()>>,
}

impl CommitParticipant for Stop {
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
    let file = OpenFile::new(Arc::new(new_delayed_file(&fixture, 300, InodeFlags::empty(), 64 * MIB)));
    file.write_at(0, b"small").expect("room");
    let ((reached, is_reached), (go, wait_to_go)) = (channel(), channel());
    let stop: Arc<dyn CommitParticipant> =
        Arc::new(Stop { reached: Mutex::new(reached), go: Mutex::new(wait_to_go) });
    fixture.register(stop);
    let delalloc = file.inode().delalloc();
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
    let file = OpenFile::new(Arc::new(new_delayed_file(&fixture, 300, InodeFlags::empty(), 64 * MIB)));
    file.write_at(0, b"written").expect("room");
    let written = file.stat(Wait::Yes).expect("it lives").times;
    let cut = SetAttributes { size: Some(0), ..SetAttributes::default() };
    file.inode().set_attributes(&cut).expect("room");
    let after = file.stat(Wait::Yes).expect("it lives");
    assert_eq!(after.size, 0);
    assert!(after.times.modification >= written.modification && after.times.change >= written.change);
}

#[test]
fn room_is_kept_for_each_of_many_runs() {
    const RUNS: u64 = 64;
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let file = OpenFile::new(Arc::new(new_delayed_file(&fixture, 300, InodeFlags::empty(), 64 * MIB)));
    for number in 0..RUNS {
        file.write_at(2 * number * SECTOR, &[7; SECTOR as usize]).expect("room");
    }
    let all = fixture.delalloc_metadata_bytes();
    for left in (0..RUNS).rev() {
        assert!(file.inode().shared().writeback.step());
        let kept = fixture.delalloc_metadata_bytes();
        assert!(kept >= all / RUNS * left, "{kept} of {all} for {left} runs");
    }
    assert_eq!(fixture.delalloc_metadata_bytes(), 0);
}

/// Fails writes of data that begin with the mark.
struct FailingAtTheMark;

impl Hook for FailingAtTheMark {
    fn before(&self, request: &Request) -> Result<()> {
        match request {
            Request::Write { data, .. } if data.iter().next().is_some_and(|data| data[0] == MARK) => {
                Err(Error::new(ErrorKind::Io, "the device fails"))
            }
            _ => Ok(()),
        }
    }
}

/// What was stored inline would be a sector of its own before what is behind it, and that fails.
#[test]
fn what_is_behind_a_sector_that_is_lost_leaves_a_file_that_is_whole() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let (engine, _device) = fixture.behind(FailingAtTheMark);
    let file = OpenFile::new(Arc::new(new_delayed_file(&engine, 300, InodeFlags::empty(), 64 * MIB)));
    file.write_at(0, b"small").expect("room");
    file.inode().flush().expect("room");
    file.write_at(0, &[MARK]).expect("room");
    file.write_at(5 * SECTOR, b"far").expect("room");
    assert_eq!(file.sync(false).map_err(|error| error.kind()), Err(ErrorKind::Io));
    assert_eq!(items(file.inode()), "0+1 a@0, 5+1 b@0");
    audit(&engine, file.inode(), &file.inode().item(Wait::Yes).expect("it lives"));
    let mut out = [1; 6];
    assert_eq!(file.read_at(0, &mut out, Wait::Yes).expect("data"), 6);
    assert_eq!(&out, b"small\0");
    assert_eq!((engine.delalloc_bytes(), engine.delalloc_metadata_bytes(), delayed(file.inode())), (0, 0, 0));
}
