//! While a thread finds out whether it may write in place, other threads can do everything, as it has released the file's leaf. With the
//! leaf kept, as in former versions, other users of the leaf wait.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use creamery_base::{InodeId, TreeId, Wait};
use creamery_device::BlockDevice;
use creamery_format::{Key, KeyType};
use creamery_fs::{Filesystem, FsOptions, InodeFlags, NewInode, SetAttributes, XattrMode};
use creamery_sim::{MadeBy, SimDevice, fresh_image};
use creamery_testkit::{ThreadWatch, wait_until};
use creamery_txn::{Engine, Options};
use creamery_volume::{Mode, Volume};

/// A file that is overwritten in place, and another file in the same leaf.
fn world(nocow_keeps_leaf: bool) -> (Arc<Filesystem>, InodeId, InodeId) {
    let device = Arc::new(SimDevice::new(fresh_image(&MadeBy::default()).expect("an image")));
    let volume = Volume::open(vec![device as Arc<dyn BlockDevice>], Mode::ReadWrite).expect("it opens");
    let engine = Engine::open(volume, Options::default()).expect("it opens");
    let options = FsOptions { delayed_bytes: 0, nocow_keeps_leaf, ..FsOptions::default() };
    let fs = Filesystem::open(engine, options).expect("it opens");
    let top = fs.root(TreeId::FS).expect("the top level");
    let make = |name: &[u8]| fs.create(top, name, &NewInode::file(0o600)).expect("made").id;
    let (file, neighbour) = (make(b"file"), make(b"neighbour"));
    let flags = Some(InodeFlags::NODATACOW);
    fs.set_attributes(file, &SetAttributes { flags, ..SetAttributes::default() }).expect("it is empty");
    write(&fs, file);
    fs.sync().expect("it commits");
    (fs, file, neighbour)
}

fn write(fs: &Filesystem, file: InodeId) {
    let open = fs.open_file(file).expect("it is there");
    open.write_at(0, &[7; 8192]).expect("room");
    fs.close(open);
}

/// Stops each thread that looks for checksums. The first end receives a message from that thread; a message to the second end lets it go
/// on.
fn hold_back(fs: &Filesystem) -> (Receiver<()>, Sender<()>) {
    let (is_looking, looks) = channel();
    let (go_on, goes_on) = channel::<()>();
    let goes_on = creamery_base::sync::Mutex::new(goes_on);
    fs.engine().before_csum_look_ups(move || {
        is_looking.send(()).expect("somebody waits for that");
        goes_on.lock().recv().expect("somebody says so");
    });
    (looks, go_on)
}

/// Whether a neighbour in the leaf changes while the writer looks for the checksums of the extent to overwrite.
fn changes_beside(nocow_keeps_leaf: bool) -> bool {
    let (fs, file, neighbour) = world(nocow_keeps_leaf);
    let ((looks, go_on), watch) = (hold_back(&fs), ThreadWatch::default());
    std::thread::scope(|scope| {
        let fs = &fs;
        let writer = scope.spawn(move || write(fs, file));
        looks.recv().expect("he looks for checksums");
        let watch = &watch;
        let neighbours = scope.spawn(move || {
            watch.this_thread();
            fs.set_xattr(neighbour, b"user.name", b"value", XattrMode::Any).expect("room");
            fs.create(fs.root(TreeId::FS).expect("the top level"), b"new", &NewInode::file(0o600))
                .expect("made");
        });
        wait_until("the neighbour", || neighbours.is_finished() || nocow_keeps_leaf && watch.waits());
        let beside = neighbours.is_finished();
        go_on.send(()).expect("he waits for that");
        writer.join().expect("it ends well");
        neighbours.join().expect("it ends when the leaf is let go of");
        let counters = fs.statistics().nocow;
        assert_eq!((counters.written, counters.looks_with_leaf), (1, u64::from(nocow_keeps_leaf)));
        beside
    })
}

#[test]
fn who_looks_for_checksums_keeps_nobody_from_the_leaf() {
    assert!(changes_beside(false));
}

#[test]
fn with_the_leaf_kept_everybody_waits_for_who_looks_for_checksums() {
    assert!(!changes_beside(true));
}

/// References of the extent are on their way into the extent tree, which takes arbitrarily long. A thread that wants to overwrite the
/// extent waits for that without holding a leaf, so other threads read and change everything.
#[test]
fn who_waits_for_references_keeps_nobody_from_any_leaf() {
    let (fs, file, neighbour) = world(false);
    let tree = fs.engine().tree(TreeId::FS).expect("the top level");
    let key = Key::new(file.ino, KeyType::EXTENT_DATA, 0);
    let at =
        tree.get(&key, Wait::Yes, |data| u64::from_le_bytes(data[21..29].try_into().expect("eight bytes")));
    let at = creamery_base::Logical::new(at.expect("a readable tree").expect("an extent"));
    let clone = |name: &[u8]| {
        let top = fs.root(TreeId::FS).expect("the top level");
        let id = fs.create(top, name, &NewInode::file(0o600)).expect("made").id;
        let flags = Some(InodeFlags::NODATACOW);
        fs.set_attributes(id, &SetAttributes { flags, ..SetAttributes::default() }).expect("it is empty");
        let (source, target) = (fs.open_file(file).expect("there"), fs.open_file(id).expect("there"));
        target.clone_range(&source, 0, 0, 0).expect("room");
        fs.close(source);
        fs.close(target);
    };
    clone(b"clone");
    let watch = ThreadWatch::default();
    std::thread::scope(|scope| {
        let (fs, watch, mut writer) = (&fs, &watch, None);
        let held = fs.engine().while_ref_head_runs(at, || {
            let writes = scope.spawn(move || {
                watch.this_thread();
                write(fs, file);
            });
            wait_until("the writer", || writes.is_finished() || watch.waits());
            assert!(!writes.is_finished(), "nobody knows yet who has it");
            writer = Some(writes);
            let others = scope.spawn(move || {
                fs.set_xattr(neighbour, b"user.name", b"value", XattrMode::Any).expect("room");
                let extents = fs.engine().tree(TreeId::EXTENT).expect("the extent tree");
                extents.cursor(&Key::MIN, Wait::Yes).map(drop).expect("its leaves can be read");
            });
            others.join().expect("nobody keeps them from it");
        });
        assert!(held, "a reference of the extent is queued");
        writer.expect("it was started").join().expect("it ends well");
    });
    let counters = fs.statistics().nocow;
    assert_eq!((counters.written, counters.shared), (0, 1), "a clone has it");
}
