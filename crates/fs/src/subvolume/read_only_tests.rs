//! Tests of changes in a subvolume while it becomes read-only, and after that.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use creamery_base::gate::{Chance, Turns, take_turns};
use creamery_base::sync::Mutex;
use creamery_base::{ErrorKind, Generation, InodeId, Result, TreeId, Wait};
use creamery_device::{Hook, Request};

use crate::data::tests::support::*;
use crate::defragment::Defragment;
use crate::fallocate::Fallocate;
use crate::filesystem::Filesystem;
use crate::inode::attributes::Attributes;
use crate::inode::xattr::XattrMode;
use crate::names::{NewInode, RenameMode};
use crate::open_file::OpenFile;
use crate::ops::{SetAttributes, WritingUser};
use crate::options::FsOptions;

/// Sends one message when this thread has to wait, and then runs `then`, which waits.
struct WhenWaiting<F: Fn()> {
    waits: RefCell<Option<Sender<()>>>,
    then: F,
}

impl<F: Fn()> Turns for WhenWaiting<F> {
    fn may_turn(&self, _: Chance) {}

    fn must_turn(&self) -> bool {
        if let Some(waits) = self.waits.borrow_mut().take() {
            let _ = waits.send(());
        }
        (self.then)();
        true
    }
}

/// Runs `work`. `waits` gets a message when it has to wait for the first time, or has ended.
fn tell_when_it_waits<T>(waits: Sender<()>, then: impl Fn() + 'static, work: impl FnOnce() -> T) -> T {
    take_turns(Rc::new(WhenWaiting { waits: RefCell::new(Some(waits)), then }), work)
}

/// A subvolume with two files of some data, one of them open.
struct Scene {
    fs: Arc<Filesystem>,
    subvolume: TreeId,
    root: InodeId,
    file: Arc<OpenFile>,
    source: Arc<OpenFile>,
}

/// The visible contents of the subvolume, and the transaction that changed it last.
#[derive(PartialEq, Debug)]
struct Seen {
    generation: Generation,
    names: Vec<Vec<u8>>,
    file: Attributes,
    xattrs: Vec<Vec<u8>>,
}

impl Scene {
    fn new(fs: Arc<Filesystem>) -> Self {
        let top = fs.root(fs.default_subvolume()).expect("a root");
        let root = fs.create_subvolume(top, b"subvolume", &NewInode::directory(0o755)).expect("room");
        let make = |name: &[u8]| {
            let file = fs.create_open(root, name, &NewInode::file(0o106_755)).expect("room").1;
            file.write_at(0, &[7; 2 * SECTOR as usize]).expect("room");
            file
        };
        let (file, source) = (make(b"file"), make(b"source"));
        fs.set_xattr(file.id(), b"user.old", b"value", XattrMode::Any).expect("room");
        fs.create_subvolume(root, b"nested", &NewInode::directory(0o755)).expect("room");
        fs.sync().expect("room");
        Self { subvolume: root.subvolume, root, file, source, fs }
    }

    fn seen(&self) -> Seen {
        let mut names = Vec::new();
        self.fs
            .read_dir(self.root, 0, Wait::Yes, &mut |entry| {
                names.push(entry.name.to_vec());
                ControlFlow::Continue(())
            })
            .expect("a listing");
        Seen {
            generation: self.fs.subvolume_info(self.subvolume).expect("it is there").generation,
            names,
            file: self.file.stat(Wait::Yes).expect("it lives"),
            xattrs: self.file.inode().list_xattrs(Wait::Yes).expect("a list"),
        }
    }

    fn set_read_only(&self) -> Seen {
        self.fs.set_subvolume_read_only(self.subvolume, true).expect("room");
        self.seen()
    }
}

/// The inode that an operation waits for.
#[derive(Clone, Copy)]
enum LockedInode {
    Root,
    File,
}

type Operation = fn(&Scene) -> Result<()>;

fn operations() -> Vec<(&'static str, LockedInode, Operation)> {
    vec![
        ("create", LockedInode::Root, |on| on.fs.create(on.root, b"new", &NewInode::file(0o644)).map(drop)),
        ("mkdir", LockedInode::Root, |on| {
            on.fs.create(on.root, b"new", &NewInode::directory(0o755)).map(drop)
        }),
        ("link", LockedInode::Root, |on| on.fs.link(on.file.id(), on.root, b"new").map(drop)),
        ("unlink", LockedInode::Root, |on| on.fs.unlink(on.root, b"source")),
        ("rename", LockedInode::Root, |on| {
            on.fs.rename(on.root, b"source", on.root, b"new", RenameMode::default())
        }),
        ("create subvolume", LockedInode::Root, |on| {
            on.fs.create_subvolume(on.root, b"new", &NewInode::directory(0o755)).map(drop)
        }),
        ("create snapshot", LockedInode::Root, |on| {
            on.fs.create_snapshot(TreeId::FS, on.root, b"new", false).map(drop)
        }),
        ("delete subvolume", LockedInode::Root, |on| on.fs.delete_subvolume(on.root, b"nested").map(drop)),
        ("chmod", LockedInode::File, |on| {
            let set = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
            on.fs.set_attributes(on.file.id(), &set).map(drop)
        }),
        ("truncate", LockedInode::File, |on| {
            on.fs.set_attributes(on.file.id(), &SetAttributes::truncate(5)).map(drop)
        }),
        ("set-user-id", LockedInode::File, |on| on.file.kill_privileges(|_| WritingUser::Stranger).map(drop)),
        ("set xattr", LockedInode::File, |on| {
            on.fs.set_xattr(on.file.id(), b"user.new", b"value", XattrMode::Any)
        }),
        ("remove xattr", LockedInode::File, |on| on.fs.remove_xattr(on.file.id(), b"user.old")),
        ("overwrite", LockedInode::File, |on| on.file.write_at(0, b"new").map(drop)),
        ("write behind the end", LockedInode::File, |on| on.file.write_at(3 * SECTOR, b"new").map(drop)),
        ("append", LockedInode::File, |on| on.file.append(b"new").map(drop)),
        ("fallocate", LockedInode::File, |on| {
            on.file.fallocate(Fallocate::Allocate { keep_size: false }, 0, 8 * SECTOR)
        }),
        ("clone", LockedInode::File, |on| on.file.clone_range(&on.source, 0, SECTOR, 4 * SECTOR)),
        ("defragment", LockedInode::File, |on| {
            on.file.defragment(&Defragment::default(), &|| false).map(drop)
        }),
    ]
}

/// Each operation waits for an inode while another thread makes its subvolume read-only.
#[test]
fn a_change_ends_before_its_subvolume_is_read_only_or_is_refused() {
    for (name, locked, operation) in operations() {
        let Some(fixture) = fixture(Kind::DEFAULT) else { return };
        let fs = Filesystem::open(Arc::clone(&fixture.engine), FsOptions::default()).expect("it opens");
        let on = Scene::new(fs);
        let inode = match locked {
            LockedInode::Root => on.fs.inode(on.root, Wait::Yes).expect("it is there"),
            LockedInode::File => Arc::clone(on.file.inode()),
        };
        let ((waits, it_waits), (closes, it_closes)) = (channel(), channel());
        let before = on.seen();
        let (done, seen) = std::thread::scope(|scope| {
            let held = inode.lock_exclusive().expect("it lives");
            let on = &on;
            let operation =
                scope.spawn(move || tell_when_it_waits(waits, std::thread::yield_now, || operation(on)));
            it_waits.recv().unwrap_or_else(|_| panic!("{name} waits for nothing"));
            let closer = scope
                .spawn(move || tell_when_it_waits(closes, std::thread::yield_now, || on.set_read_only()));
            // The closer waits for the operation, or has ended without waiting.
            let _ = it_closes.recv();
            drop(held);
            (operation.join().expect("no panic"), closer.join().expect("no panic"))
        });
        on.fs.sync().expect("room");
        assert_eq!(on.seen(), seen, "{name} changed something after the subvolume was read-only");
        match done {
            Ok(()) if name == "defragment" => {}
            Ok(()) => {
                assert_ne!(Seen { generation: before.generation, ..seen }, before, "{name} changed nothing")
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::ReadOnly, "{name}: {error}"),
        }
        let again = operation(&on).map_err(|error| error.kind());
        assert!(again == Err(ErrorKind::ReadOnly) || name == "set-user-id", "{name}: {again:?}");
        on.fs.shut_down().expect("it closes");
    }
}

const MARK: u8 = 0xee;
const MIB: usize = 1 << 20;

/// Holds writes of marked data until the test releases them.
struct Holding {
    reached: Mutex<Sender<()>>,
    go: Mutex<Receiver<()>>,
}

impl Hook for Holding {
    fn before(&self, request: &Request) -> Result<()> {
        if let Request::Write { data, .. } = request
            && data.iter().all(|data| data.iter().all(|byte| *byte == MARK))
        {
            let _ = self.reached.lock().send(());
            let _ = self.go.lock().recv();
        }
        Ok(())
    }
}

/// A file in another subvolume takes all the memory for delayed data, on a device that hangs.
#[test]
fn a_write_that_waits_for_memory_is_refused_when_its_subvolume_is_read_only_by_then() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let ((reached, is_reached), (go, wait_to_go)) = (channel(), channel());
    let (engine, _device) =
        fixture.behind(Holding { reached: Mutex::new(reached), go: Mutex::new(wait_to_go) });
    let options = FsOptions { delayed_bytes: MIB as u64, ..FsOptions::default() };
    let on = Scene::new(Filesystem::open(engine, options).expect("it opens"));
    let top = on.fs.root(on.fs.default_subvolume()).expect("a root");
    let other = on.fs.create_open(top, b"other", &NewInode::file(0o644)).expect("room").1;
    other.write_at(0, &vec![MARK; MIB]).expect("it is in memory");
    let ((waits, it_waits), (read_only, is_read_only)) = (channel(), channel::<()>());
    let seen = std::thread::scope(|scope| {
        scope.spawn(|| other.inode().context().writeback().step());
        is_reached.recv().expect("it is written back");
        let on = &on;
        let writer = scope.spawn(move || {
            let then = move || {
                let _ = is_read_only.recv();
            };
            tell_when_it_waits(waits, then, || on.file.write_at(0, b"late"))
        });
        it_waits.recv().expect("there is no memory");
        let seen = on.set_read_only();
        drop((read_only, go));
        let written = writer.join().expect("no panic").map_err(|error| error.kind());
        assert_eq!(written, Err(ErrorKind::ReadOnly));
        seen
    });
    on.fs.sync().expect("room");
    assert_eq!(on.seen(), seen);
    on.fs.shut_down().expect("it closes");
}

#[test]
fn a_subvolume_that_is_writable_again_takes_changes() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let fs = Filesystem::open(Arc::clone(&fixture.engine), FsOptions::default()).expect("it opens");
    let on = Scene::new(fs);
    for _ in 0..2 {
        on.set_read_only();
        on.set_read_only();
        assert_eq!(on.file.write_at(0, b"new").map_err(|error| error.kind()), Err(ErrorKind::ReadOnly));
        on.fs.set_subvolume_read_only(on.subvolume, false).expect("room");
        on.fs.set_subvolume_read_only(on.subvolume, false).expect("room");
        on.file.write_at(0, b"new").expect("it is writable");
    }
    on.set_read_only();
    on.fs.set_writable_by_force(on.subvolume).expect("room");
    on.file.write_at(0, b"new").expect("it is writable");
    on.fs.shut_down().expect("it closes");
}
