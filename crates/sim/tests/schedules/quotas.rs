//! Quotas are turned on and off beside writers: no thread waits for ever, the result is that of some sequential order, and the numbers
//! agree with a complete count.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use creamery_base::sync::shuttle::thread;
use creamery_base::{InodeId, QgroupId, TreeId};
use creamery_fs::{Filesystem, NewInode};
use creamery_sim::{Image, MadeBy, SimDevice, fresh_image};
use creamery_txn::{Qgroup, QuotaMode};

use crate::{explore_some, open};

/// Fewer than elsewhere: an execution has several commits.
const SCHEDULES: usize = 100;
const DATA: [u8; 5000] = [5; 5000];

/// The numbers of executions that ended without quotas, and with quotas.
static ENDED: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

/// A filesystem with a subvolume and a snapshot; quotas are on if it `counts`.
fn image(counts: bool) -> &'static Image {
    static IMAGES: [OnceLock<Image>; 2] = [OnceLock::new(), OnceLock::new()];
    IMAGES[usize::from(counts)].get_or_init(|| {
        let device = Arc::new(SimDevice::new(fresh_image(&MadeBy::default()).expect("an image")));
        let fs = open(&device);
        let top = fs.root(TreeId::FS).expect("the top level is there");
        let home = fs.create_subvolume(top, b"home", &NewInode::directory(0o755)).expect("made");
        put(&fs, home, b"old");
        fs.create_snapshot(home.subvolume, top, b"before", false).expect("taken");
        if counts {
            fs.engine().quotas().enable(QuotaMode::Full).expect("room");
            count_all(&fs);
        }
        fs.sync().expect("it commits");
        drop(fs);
        let mut image = device.image();
        image.freeze();
        image
    })
}

fn put(fs: &Filesystem, dir: InodeId, name: &[u8]) {
    let file = fs.create(dir, name, &NewInode::file(0o644)).expect("made").id;
    let opened = fs.open_file(file).expect("it is there");
    opened.write_at(0, &DATA).expect("room");
    fs.close(opened);
}

/// Takes a rescan to its end, and returns the groups.
fn count_all(fs: &Filesystem) -> Vec<Qgroup> {
    let engine = fs.engine();
    while engine.quotas().rescan_step().expect("no damage") {}
    engine.commit().expect("nothing was aborted");
    let status = engine.quotas().status().expect("quotas are on");
    assert!(!status.inconsistent && status.rescan.is_none(), "{status:?}");
    engine.quotas().list().expect("quotas are on")
}

/// One execution.
fn execute(counts: bool) {
    let device = Arc::new(SimDevice::new(image(counts).clone()));
    let fs = open(&device);
    let switch = |on: bool| {
        let engine = Arc::clone(fs.engine());
        thread::spawn(move || {
            let switched =
                if on { engine.quotas().enable(QuotaMode::Full) } else { engine.quotas().disable() };
            switched.expect("who comes second waits");
            engine.quotas().rescan_step().expect("no damage");
        })
    };
    let switches = [switch(true), switch(false)];
    let top = fs.root(TreeId::FS).expect("the top level is there");
    let home = fs.lookup(top, b"home", creamery_base::Wait::Yes).expect("it is there");
    put(&fs, home, b"new");
    let made = fs.create_subvolume(top, b"made", &NewInode::directory(0o755)).expect("made");
    let taken = fs.create_snapshot(home.subvolume, top, b"taken", false).expect("taken");
    fs.unlink(home, b"old").expect("it is there");
    put(&fs, made, b"new");
    switches.into_iter().for_each(|thread| thread.join().expect("it ends well"));
    fs.sync().expect("nothing was aborted");
    let engine = fs.engine();
    let is_on = engine.quotas().status().is_some();
    ENDED[usize::from(is_on)].fetch_add(1, Ordering::Relaxed);
    let counted = is_on.then(|| {
        let counted = count_all(&fs);
        engine.quotas().begin_rescan().expect("none runs");
        assert_eq!(counted, count_all(&fs));
        let has = |id| counted.iter().any(|group| group.id == QgroupId::of(id) && group.usage.referenced > 0);
        assert!(has(made.subvolume) && has(taken.subvolume), "{counted:?}");
        counted
    });
    drop(fs);
    let fs = open(&Arc::new(SimDevice::new(device.image())));
    assert_eq!(fs.engine().quotas().status().is_some(), is_on);
    assert_eq!(fs.engine().quotas().list().ok(), counted);
}

#[test]
fn quotas_begin_and_end_beside_who_writes() {
    explore_some("quotas switched", SCHEDULES, || execute(false));
    explore_some("quotas switched back", SCHEDULES, || execute(true));
    let [off, on] = ENDED.each_ref().map(|count| count.load(Ordering::Relaxed));
    assert!(off > 0 && on > 0, "{off} ended without, {on} with quotas");
}
