//! Rules of transactions that only a bug can break: each test breaks one, and its assert fires.
//! `cargo test -p creamery-sim --features faults --test faults invariants`

use std::sync::{Arc, Weak};

use creamery_base::{InodeId, ObjectId, TreeId};
use creamery_device::BlockDevice;
use creamery_format::{Key, KeyType};
use creamery_mkfs::Profile;
use creamery_sim::{MadeBy, SimDevice, fresh_image};
use creamery_txn::{CommitParticipant, Engine, Handle, Options, ReserveItems};
use creamery_volume::{Mode, Volume};

const IMAGE: MadeBy = MadeBy {
    len: 64 << 20,
    node_size: 4096,
    data: Profile::Single,
    metadata: Profile::Single,
    mixed: false,
    no_holes: true,
};

fn open() -> Arc<Engine> {
    open_on(Arc::new(SimDevice::new(fresh_image(&IMAGE).expect("an image"))))
}

fn open_on(device: Arc<dyn BlockDevice>) -> Arc<Engine> {
    let volume = Volume::open(vec![device], Mode::ReadWrite).expect("it opens");
    Engine::open(volume, Options::default()).expect("it opens")
}

fn insert(engine: &Engine) {
    let handle = engine.start(ReserveItems::items(1)).expect("room");
    let tree = engine.tree(TreeId::FS).expect("the top level");
    let key = Key::new(ObjectId::new(1_000_000), KeyType::new(100), 0);
    tree.insert(&handle, &key, b"new").expect("a new key");
    handle.end();
}

#[test]
#[should_panic(expected = "TXN-GATE-2")]
fn a_handle_that_ends_in_another_transaction_is_a_bug() {
    let engine = open();
    let handle = engine.start(ReserveItems::items(1)).expect("room");
    engine.begin_next_beside_handles();
    handle.end();
}

#[test]
#[should_panic(expected = "TXN-GATE-3")]
fn data_that_no_commit_flushes_is_a_bug() {
    let engine = open();
    let extent = engine.allocate_data(TreeId::FS, 4096, 4096, None).expect("room");
    let written = engine.data().write(&extent, &[7; 4096]).expect("written");
    let handle = engine.start(ReserveItems::items(1)).expect("room");
    let owner = InodeId { subvolume: TreeId::FS, ino: ObjectId::new(1000) };
    handle.complete_data(extent, written, owner, 0, None).expect("room");
    handle.end();
    engine.begin_next_unflushed();
}

#[test]
#[should_panic(expected = "COMMIT-1")]
fn references_that_a_commit_leaves_are_a_bug() {
    let engine = open();
    insert(&engine);
    engine.settle_nothing();
    let _ = engine.commit();
}

#[test]
#[should_panic(expected = "WRITEOUT-1")]
fn two_transactions_that_are_written_at_once_are_a_bug() {
    open().write_out_two();
}

#[test]
#[should_panic(expected = "WRITEOUT-2")]
fn a_batch_that_is_lost_without_a_word_is_a_bug() {
    let _ = open().lose_a_batch();
}

/// Inserts more in a commit than the reservation allows.
struct Greedy(Weak<Engine>);

impl CommitParticipant for Greedy {
    fn settle(&self, handle: &Handle<'_>) -> creamery_base::Result<()> {
        let tree = self.0.upgrade().expect("it commits").tree(TreeId::FS)?;
        (0..300).try_for_each(|number| {
            let key = Key::new(ObjectId::new(2_000_000), KeyType::new(100), number);
            tree.insert(handle, &key, &[7; 3000])
        })
    }
}

#[test]
#[should_panic(expected = "RESERVE-1")]
fn a_commit_that_takes_more_than_was_left_for_it_is_a_bug() {
    let engine = open();
    insert(&engine);
    engine.register(Arc::new(Greedy(Arc::downgrade(&engine))));
    let _ = engine.commit();
}

/// A thread that panics in the middle of a commit stops the filesystem: the changes that it took for writing are lost.
#[test]
fn nobody_commits_after_somebody_who_died_in_a_commit() {
    let engine = open();
    insert(&engine);
    engine.settle_nothing();
    creamery_base::panics::catch(|| engine.commit()).expect_err("it leaves references");
    let abort = engine.aborted().expect("it aborted");
    assert!(abort.reason.contains("COMMIT-1") && abort.place.contains("settle.rs"), "{abort}");
    let told = engine.commit().expect_err("it is over").to_string();
    assert!(told.contains("COMMIT-1"), "{told}");
}

/// A superblock that is newer than its root could not be opened.
#[test]
fn a_commit_that_finds_nothing_to_do_leaves_the_last_one() {
    let device = Arc::new(SimDevice::new(fresh_image(&IMAGE).expect("an image")));
    let engine = open_on(Arc::<SimDevice>::clone(&device));
    insert(&engine);
    engine.commit().expect("a commit");
    let generation = engine.generation();
    engine.want_removal_of_nothing();
    engine.commit().expect("it has nothing to do");
    assert_eq!(engine.generation(), generation);
    drop(engine);
    assert_eq!(open_on(device).generation(), generation);
}
