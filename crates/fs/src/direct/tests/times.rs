//! Times of overwriting writes: stat shows them at once, the tree gets them later, and an fsync or a snapshot writes them to the
//! tree first.

use creamery_base::{TreeId, Wait};

use super::snapshots::SnapshotWorld;
use super::*;
use crate::access_time::{Atime, AtimeOptions};
use crate::options::FsOptions;

/// The modification time, the change time, and the change counter: of the file, and in its tree.
fn told(file: &OpenFile) -> [(creamery_base::Timespec, creamery_base::Timespec, u64); 2] {
    let of = |item: &crate::inode::InodeItem| (item.mtime, item.ctime, item.sequence);
    let inode = file.inode();
    [of(&inode.item(Wait::Yes).expect("it lives")), of(&inode.tree_item())]
}

#[test]
fn a_write_over_what_a_file_has_changes_no_tree_and_its_times_follow() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let file = open_named(&fixture, "f0", IN_PLACE);
    direct(&file, 0, &sectors(8, 1));
    let [is, was] = told(&file);
    assert_eq!(is, was, "a write that makes the file longer changes its item");
    fixture.commit().expect("room");
    let kept = fixture.delalloc_metadata_bytes();
    direct(&file, SECTOR, &sectors(2, 2));
    direct(&file, 4 * SECTOR, &sectors(2, 3));
    let [is, in_tree] = told(&file);
    assert_eq!(in_tree, was, "nothing is written yet");
    assert!(is.0 > was.0 && is.1 > was.1 && is.0 == is.1);
    assert_eq!(is.2, was.2 + 2, "each write counts");
    let one = fixture.delalloc_metadata_bytes() - kept;
    direct(&file, 0, &sectors(8, 4));
    assert_eq!(fixture.delalloc_metadata_bytes() - kept, one, "one change of the item is enough for all");
    let [is, _] = told(&file);
    file.inode().context().overwrite_times().write_all().expect("room is kept");
    assert_eq!(told(&file), [is, is], "that is no change by itself");
    assert_eq!(fixture.delalloc_metadata_bytes(), kept, "its room is back");
    check(&fixture, &file, &sectors(8, 4), "in place");
}

#[test]
fn a_change_of_the_file_takes_the_times_of_writes_along() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let file = open_named(&fixture, "f0", IN_PLACE);
    direct(&file, 0, &sectors(8, 1));
    fixture.commit().expect("room");
    direct(&file, 0, &sectors(1, 2));
    let [is, _] = told(&file);
    try_direct(&file, DirectAt::End, &sectors(1, 3)).expect("room");
    let [now, in_tree] = told(&file);
    assert!(now == in_tree && now.2 > is.2, "ATIME-1: the item has both");
    assert_eq!(fixture.delalloc_metadata_bytes(), 0, "the room is back");
}

/// A sync writes the log or commits: a file that was only overwritten has its times there; without them the sync would not flush its data.
#[test]
fn what_is_overwritten_is_durable_with_its_times() {
    let Some(world) = SnapshotWorld::new(queued()) else { return };
    let SnapshotWorld { fs, file, .. } = &world;
    direct(file, 0, &sectors(8, 2));
    let [is, in_tree] = told(file);
    assert_ne!(is, in_tree);
    let before = fs.statistics().fsyncs;
    file.sync().expect("it is durable");
    let after = fs.statistics().fsyncs;
    assert_eq!(told(file), [is, is], "OVERWRITE-1");
    assert_eq!(after.logged, before.logged + 1, "it is not passed over");
}

#[test]
fn a_snapshot_has_the_times_of_what_it_shows() {
    let Some(world) = SnapshotWorld::new(queued()) else { return };
    let SnapshotWorld { fs, file, .. } = &world;
    direct(file, 0, &sectors(8, 2));
    let [is, _] = told(file);
    let snapshot = world.snapshot(b"then", &|| false).expect("nothing is in flight");
    let id = fs.lookup(snapshot, b"file", Wait::Yes).expect("it was there");
    let shown = fs.open_file(id).expect("a file");
    assert_eq!(told(&shown), [is, is], "OVERWRITE-1");
    assert!(world.content_in(snapshot) == sectors(8, 2));
}

/// Room is kept for the times of few files only. A reservation that does not fit writes them, which gives it back.
#[test]
fn times_wait_for_few_files_and_make_room_for_others() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let (engine, _) = fixture.on(answering::Answering::new);
    let fs = Filesystem::open(engine, queued()).expect("it opens");
    let top = fs.root(TreeId::FS).expect("a root");
    let files: Vec<_> = (0..70)
        .map(|number| {
            let (_, file) =
                fs.create_open(top, format!("{number}").as_bytes(), &NewInode::file(0o644)).expect("room");
            set_flags(file.inode(), IN_PLACE);
            direct(&file, 0, &sectors(1, 1));
            file
        })
        .collect();
    fs.sync().expect("room");
    let kept = fs.engine().delalloc_metadata_bytes();
    files.iter().for_each(|file| direct(file, 0, &sectors(1, 2)));
    let waiting = files.iter().filter(|file| told(file)[0] != told(file)[1]).count();
    assert_eq!(waiting, 64, "the others changed their items at once");
    let one = fs.engine().keep_at_once(1).expect("room").metadata_bytes();
    assert_eq!(fs.engine().delalloc_metadata_bytes() - kept, 64 * one);
    let unlinked = &files[0];
    fs.unlink(top, b"0").expect("room");
    assert_eq!(told(unlinked)[0], told(unlinked)[1], "losing its name took them along");
    direct(unlinked, 0, &sectors(1, 3));
    assert_eq!(told(unlinked)[0], told(unlinked)[1], "nobody would write them");
    let wish = fs.engine().start(creamery_txn::ReserveItems::items(1 << 16));
    assert_eq!(wish.map(drop).expect_err("so much there never is").kind(), ErrorKind::NoSpace);
    assert!(
        files.iter().all(|file| told(file)[0] == told(file)[1]),
        "who found no room has had them written"
    );
    assert_eq!(fs.engine().delalloc_metadata_bytes(), kept);
}

/// An access time is no change for an fsync, but the times of a write that are written with it are one.
#[test]
fn an_access_time_takes_along_what_an_fsync_has_to_see() {
    let strict = AtimeOptions { atime: Atime::Strict, ..AtimeOptions::default() };
    let Some(world) = SnapshotWorld::new(FsOptions { atime: strict, ..queued() }) else { return };
    let SnapshotWorld { fs, file, .. } = &world;
    file.accessed();
    direct(file, 0, &sectors(8, 2));
    fs.context().access_times().write_all(fs.engine()).expect("room");
    let [is, in_tree] = told(file);
    assert_eq!(is, in_tree, "both are written");
    let before = fs.statistics().fsyncs.logged;
    file.sync().expect("it is durable");
    assert_eq!(fs.statistics().fsyncs.logged, before + 1, "OVERWRITE-1: it is not passed over");
}

#[test]
fn delayed_data_of_before_does_not_hide_the_times_of_a_direct_write() {
    let Some(world) = SnapshotWorld::new(FsOptions { delayed_bytes: MIB, ..queued() }) else { return };
    let file = &world.file;
    file.write_at(4 * SECTOR, &[3; 10]).expect("room");
    let [delayed, _] = told(file);
    direct(file, 0, &sectors(2, 2));
    let [is, _] = told(file);
    assert!(is.0 > delayed.0 && is.1 > delayed.1 && is.2 > delayed.2);
    file.sync().expect("room");
    let [synced, in_tree] = told(file);
    assert!(synced == in_tree && synced.0 >= is.0, "writing back moves no time back");
}

/// The files of a subvolume that is deleted go with their times.
#[test]
fn files_of_deleted_subvolumes_leave_room_for_the_times_of_others() {
    let Some(world) = SnapshotWorld::new(queued()) else { return };
    let SnapshotWorld { fs, file, .. } = &world;
    let top = fs.root(TreeId::FS).expect("a root");
    for round in 0..3 {
        let name = format!("subvolume{round}");
        let root = fs.create_subvolume(top, name.as_bytes(), &NewInode::directory(0o755)).expect("room");
        for number in 0..40 {
            let new = NewInode::file(0o644);
            let (_, other) = fs.create_open(root, format!("{number}").as_bytes(), &new).expect("room");
            set_flags(other.inode(), IN_PLACE);
            direct(&other, 0, &sectors(1, 1));
            direct(&other, 0, &sectors(1, 2));
        }
        fs.delete_subvolume(top, name.as_bytes()).expect("room");
    }
    fs.sync().expect("room");
    direct(file, 0, &sectors(1, 2));
    assert_ne!(told(file)[0], told(file)[1], "its times are put off");
}
