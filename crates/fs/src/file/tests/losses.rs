//! The openers, and the waiting threads, that get the error of lost data.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};

use creamery_base::gate::{Chance, Turns, take_turns};
use creamery_base::sync::Mutex;
use creamery_base::{Error, ErrorKind, Result};
use creamery_device::{Hook, Request};

use super::{FailsData, MARK, MIB, is_marked, open};
use crate::data::tests::support::*;
use crate::filesystem::{Filesystem, SyncCaller};
use crate::inode::InodeFlags;
use crate::names::NewInode;
use crate::open_file::OpenFile;
use crate::options::FsOptions;

fn kind<T>(outcome: Result<T>) -> std::result::Result<T, ErrorKind> {
    outcome.map_err(|error| error.kind())
}

fn new_file_in(fs: &Filesystem, name: &str) -> Arc<OpenFile> {
    let root = fs.root(fs.default_subvolume()).expect("a root");
    fs.create_open(root, name.as_bytes(), &NewInode::file(0o644)).expect("room").1
}

#[test]
fn an_error_that_no_opener_has_seen_is_reported_to_the_next_ones() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let (engine, device) = fixture.behind(FailsData::default());
    device.0.store(true, Ordering::Release);
    let inode = Arc::new(new_delayed_file(&engine, 300, InodeFlags::empty(), 64 * MIB));
    let writer = opened(Arc::clone(&inode));
    writer.write_at(0, &[MARK; SECTOR as usize]).expect("it is in memory");
    drop(writer);
    assert!(inode.context().writeback().step(), "the background writes it back");
    let [second, third] = [(); 2].map(|()| opened(Arc::clone(&inode)));
    assert_eq!(kind(second.sync()), Err(ErrorKind::Io));
    let fourth = opened(Arc::clone(&inode));
    assert_eq!(kind(third.sync()), Err(ErrorKind::Io), "it had the file open when the second saw it");
    assert_eq!(kind(fourth.sync()), Ok(()), "somebody has seen the error before it came");
    assert_eq!((kind(second.sync()), kind(third.sync())), (Ok(()), Ok(())));
}

/// The table forgets unused objects, but none with an unreported error.
#[test]
fn an_error_that_nobody_has_seen_outlives_the_pressure_on_the_table() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let (engine, device) = fixture.behind(FailsData::default());
    let fs = open(&engine, FsOptions { inodes_cached: 1, ..FsOptions::default() });
    let file = new_file_in(&fs, "file");
    let id = file.id();
    fs.sync().expect("the device works");
    device.0.store(true, Ordering::Release);
    file.write_at(0, &[MARK; SECTOR as usize]).expect("it is in memory");
    assert!(file.inode().context().writeback().step(), "the background writes it back");
    drop(file);
    let crowd =
        |round: u32| (0..1000).for_each(|number| drop(new_file_in(&fs, &format!("{round}-{number}"))));
    crowd(0);
    let next = fs.open_file(id).expect("it is there");
    assert_eq!(kind(next.sync()), Err(ErrorKind::Io));
    let object = Arc::downgrade(next.inode());
    drop(next);
    crowd(1);
    assert!(object.upgrade().is_none(), "an error that was seen keeps nothing in memory");
}

/// Holds writes of marked data until the test lets go, and fails them then.
struct HeldThenFailing {
    reached: Mutex<Sender<()>>,
    go: Mutex<Receiver<()>>,
}

impl Hook for HeldThenFailing {
    fn before(&self, request: &Request) -> Result<()> {
        match request {
            Request::Write { data, .. } if data.iter().all(is_marked) => {
                let _ = self.reached.lock().send(());
                let _ = self.go.lock().recv();
                Err(Error::new(ErrorKind::Io, "the device fails"))
            }
            _ => Ok(()),
        }
    }
}

/// Lets the device go on as soon as this thread finds that it has to wait.
struct LetGoWhenWaiting(RefCell<Option<Sender<()>>>);

impl Turns for LetGoWhenWaiting {
    fn may_turn(&self, _: Chance) {}

    fn must_turn(&self) -> bool {
        drop(self.0.borrow_mut().take());
        std::thread::yield_now();
        true
    }
}

/// Runs `work` while another thread has the data of `file` in flight, which fails as soon as `work` waits for it.
fn beside_a_run_that_fails<T>(work: impl FnOnce(&Arc<Filesystem>, &Arc<OpenFile>) -> T) -> Option<T> {
    let fixture = fixture(Kind::DEFAULT)?;
    let ((reached, is_reached), (go, wait_to_go)) = (channel(), channel());
    let (engine, _device) =
        fixture.behind(HeldThenFailing { reached: Mutex::new(reached), go: Mutex::new(wait_to_go) });
    let fs = open(&engine, FsOptions::default());
    let file = new_file_in(&fs, "file");
    fs.sync().expect("the device works");
    file.write_at(0, &vec![MARK; MIB as usize]).expect("it is in memory");
    Some(std::thread::scope(|scope| {
        scope.spawn(|| file.inode().context().writeback().step());
        is_reached.recv().expect("it is written back");
        take_turns(Rc::new(LetGoWhenWaiting(RefCell::new(Some(go)))), || work(&fs, &file))
    }))
}

#[test]
fn what_has_time_is_left_while_what_is_due_is_in_flight() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let ((reached, is_reached), (go, wait_to_go)) = (channel(), channel());
    let (engine, _device) =
        fixture.behind(HeldThenFailing { reached: Mutex::new(reached), go: Mutex::new(wait_to_go) });
    let fs = open(&engine, FsOptions::default());
    let (due, other) = (new_file_in(&fs, "due"), new_file_in(&fs, "other"));
    fs.sync().expect("the device works");
    for file in [&due, &other] {
        file.write_at(0, &vec![MARK; MIB as usize]).expect("it is in memory");
    }
    due.inode().start_writeback();
    let writeback = due.inode().context().writeback();
    std::thread::scope(|scope| {
        scope.spawn(|| writeback.step_if_due(fs.engine()));
        is_reached.recv().expect("it is written back");
        assert!(!writeback.step_if_due(fs.engine()), "the other one has time");
        let in_flight =
            other.inode().file().delalloc().look(|state| state.map(|state| state.in_flight_range()));
        assert_eq!(in_flight, Some((0, 0)));
        drop(go);
    });
}

#[test]
fn a_flush_that_waits_for_the_run_of_another_thread_learns_that_it_failed() {
    let Some(flushed) = beside_a_run_that_fails(|_, file| file.inode().flush()) else { return };
    assert_eq!(kind(flushed), Err(ErrorKind::Io));
}

#[test]
fn a_snapshot_whose_data_another_thread_loses_fails() {
    let snapshot = |fs: &Arc<Filesystem>, _: &Arc<OpenFile>| {
        let source = fs.default_subvolume();
        fs.create_snapshot(source, fs.root(source).expect("a root"), b"snapshot", true)
    };
    let Some(made) = beside_a_run_that_fails(snapshot) else { return };
    assert_eq!(kind(made), Err(ErrorKind::Io));
}

#[test]
fn a_clone_of_data_that_another_thread_loses_fails() {
    let clone = |fs: &Arc<Filesystem>, file: &Arc<OpenFile>| {
        let target = new_file_in(fs, "target");
        let cloned = target.clone_range(file, 0, MIB, 0);
        (kind(cloned), target.inode().file().size(), kind(file.sync()))
    };
    let Some(found) = beside_a_run_that_fails(clone) else { return };
    assert_eq!(
        found,
        (Err(ErrorKind::Io), 0, Err(ErrorKind::Io)),
        "an opener learns of the error all the same"
    );
}

/// Data of a file without an opener is lost in the background.
fn filesystem_with_a_loss() -> Option<Arc<Filesystem>> {
    let (engine, device) = fixture(Kind::DEFAULT)?.behind(FailsData::default());
    let fs = open(&engine, FsOptions::default());
    let file = new_file_in(&fs, "file");
    fs.sync().expect("the device works");
    device.0.store(true, Ordering::Release);
    file.write_at(0, &[MARK; SECTOR as usize]).expect("it is in memory");
    assert!(file.inode().context().writeback().step(), "the background writes it back");
    device.0.store(false, Ordering::Release);
    Some(fs)
}

#[test]
fn each_caller_of_sync_is_told_of_a_loss_once() {
    let Some(fs) = filesystem_with_a_loss() else { return };
    let (one, other) = (SyncCaller::default(), SyncCaller::default());
    assert_eq!(kind(fs.sync_as(&one)), Err(ErrorKind::Io));
    assert_eq!(kind(fs.sync_as(&one)), Ok(()));
    assert_eq!(kind(fs.settle_as(&other)), Err(ErrorKind::Io));
    assert_eq!(kind(fs.settle_as(&other)), Ok(()));
    assert_eq!(kind(fs.sync()), Err(ErrorKind::Io), "the caller without a name is one of its own");
    assert_eq!(kind(fs.sync()), Ok(()));
    assert_eq!(kind(fs.shut_down()), Err(ErrorKind::Io), "closing says what is on the devices");
}

#[test]
fn operations_that_commit_on_their_way_consume_no_report_of_a_loss() {
    let Some(fs) = filesystem_with_a_loss() else { return };
    let grown = fs.resize(creamery_base::DevId::new(1), crate::NewSize::Max);
    assert!(grown.is_ok(), "{grown:?}");
    fs.make_durable().expect("a commit");
    fs.find_new(fs.default_subvolume(), creamery_base::Generation::default(), &mut |_| {
        std::ops::ControlFlow::Continue(())
    })
    .expect("a walk");
    assert_eq!(kind(fs.sync()), Err(ErrorKind::Io));
}
