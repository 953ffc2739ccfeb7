//! A snapshot is dropped while blocks that it shares are changed in its source: the thread that drops the last reference to a block knows
//! that it did.

use std::sync::{Arc, OnceLock};

use creamery_base::sync::shuttle::thread;
use creamery_base::{TreeId, Wait};
use creamery_fs::{Cleaning, Filesystem, NewInode, XattrMode};
use creamery_sim::{Image, MadeBy, SimDevice, fresh_image};

use crate::{explore, is_caught, open};

const FILES: u64 = 4;
/// Two files fill a leaf. Each has data, whose references follow those of its leaf.
const ATTRIBUTES: usize = 2;
const ATTRIBUTE: [u8; 3000] = [3; 3000];
const DATA: [u8; 5000] = [5; 5000];
const SNAPSHOT: &[u8] = b"snapshot";

fn name(number: u64) -> Vec<u8> {
    format!("file{number}").into_bytes()
}

fn make_files(fs: &Filesystem) {
    let top = fs.root(TreeId::FS).expect("the top level is there");
    for number in 0..FILES {
        let file = fs.create(top, &name(number), &NewInode::file(0o644)).expect("made").id;
        for attribute in 0..ATTRIBUTES {
            let called = format!("user.{attribute}");
            fs.set_xattr(file, called.as_bytes(), &ATTRIBUTE, XattrMode::Any).expect("room");
        }
        let opened = fs.open_file(file).expect("it is there");
        opened.write_at(0, &DATA).expect("room");
        fs.close(opened);
    }
}

/// An image with files, and a deleted snapshot of them that is not dropped yet.
fn image() -> &'static Image {
    static IMAGE: OnceLock<Image> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let device = Arc::new(SimDevice::new(fresh_image(&MadeBy::default()).expect("an image")));
        let fs = open(&device);
        make_files(&fs);
        let top = fs.root(TreeId::FS).expect("the top level is there");
        fs.create_snapshot(TreeId::FS, top, SNAPSHOT, true).expect("taken");
        fs.delete_subvolume(top, SNAPSHOT).expect("deleted");
        fs.sync().expect("it commits");
        drop(fs);
        let mut image = device.image();
        image.freeze();
        image
    })
}

/// Takes all steps of the cleaner.
fn clean(fs: &Filesystem) {
    while fs.clean_step().expect("nothing was aborted") == Cleaning::More {}
}

/// One execution. `forgetful` sets a failpoint.
fn execute(forgetful: bool) {
    let device = Arc::new(SimDevice::new(image().clone()));
    let fs = open(&device);
    if forgetful {
        fs.engine().tree(TreeId::FS).expect("it is there").store().forget_turns();
    }
    assert_eq!(fs.dead_subvolumes().len(), 1, "it is still to be dropped");
    let top = fs.root(TreeId::FS).expect("the top level is there");
    let files: Vec<_> = (0..FILES).map(|number| fs.lookup(top, &name(number), Wait::Yes)).collect();
    let beside = {
        let fs = Arc::clone(&fs);
        thread::spawn(move || clean(&fs))
    };
    for file in files {
        let file = file.expect("it is there");
        fs.set_xattr(file, b"user.0", b"short", XattrMode::Any).expect("room");
    }
    beside.join().expect("it ends well");
    fs.sync().expect("nothing was aborted");
    clean(&fs);
    (0..FILES).for_each(|number| fs.unlink(top, &name(number)).expect("it is there"));
    clean(&fs);
    fs.sync().expect("nothing was aborted");
    assert_eq!(fs.dead_subvolumes(), []);
    assert_eq!(fs.engine().space().data_used, 0, "all references to data are gone with those who had them");
}

#[test]
fn a_snapshot_is_dropped_beside_who_copies_what_it_shares() {
    explore("snapshot dropped", || execute(false));
    is_caught("turns forgotten", || execute(true));
}
