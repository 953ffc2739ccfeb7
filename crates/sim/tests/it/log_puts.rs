//! The logs of a transaction: what they accept, refuse and write.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use creamery_base::{Logical, ObjectId, TreeId, Wait};
use creamery_device::BlockDevice;
use creamery_format::{Incompat, Key, KeyType};
use creamery_fs::InodeItem;
use creamery_sim::{MadeBy, SimDevice, fresh_image};
use creamery_txn::{
    Engine, InodeLog, LogBase, LogGroup, LogLink, LogScope, LogTicket, Options, ReserveItems,
};
use creamery_volume::{Mode, Volume};

const ONE: ObjectId = ObjectId::new(1000);
const OTHER: ObjectId = ObjectId::new(1001);

struct Logs {
    device: Arc<SimDevice>,
    engine: Arc<Engine>,
    base: Arc<LogBase>,
}

impl Logs {
    fn new() -> Self {
        let device = Arc::new(SimDevice::new(fresh_image(&MadeBy::default()).expect("an image")));
        let engine = engine_on(&device);
        let tree = engine.tree(TreeId::FS).expect("it is there");
        let base = engine.logs().base(&tree).expect("it opens").expect("nothing is new");
        Self { device, engine, base }
    }

    fn put_with(&self, inode: InodeLog, gone: &[ObjectId]) -> Option<LogTicket> {
        let group = LogGroup { inodes: vec![inode], gone: gone.to_vec() };
        self.engine.logs().put(&self.base, &group).expect("nothing was aborted")
    }

    fn put(&self, inode: InodeLog) -> Option<LogTicket> {
        self.put_with(inode, &[])
    }

    /// The item of an inode in the log on the device.
    fn item(&self, ino: ObjectId) -> Option<InodeItem> {
        let left = engine_on(&Arc::new(SimDevice::new(self.device.image())));
        let (_replay, logs) = left.begin_replay().expect("it is well")?;
        let item = logs[0].tree().get(&item_key(ino), Wait::Yes, InodeItem::decode).expect("it can be read");
        item.map(|item| item.expect("it is well"))
    }
}

fn engine_on(device: &Arc<SimDevice>) -> Arc<Engine> {
    let device: Arc<dyn BlockDevice> = Arc::<SimDevice>::clone(device);
    let volume = Volume::open(vec![device], Mode::ReadWrite).expect("it opens");
    Engine::open(volume, Options::default()).expect("it opens")
}

const fn item_key(ino: ObjectId) -> Key {
    Key::new(ino, KeyType::INODE_ITEM, 0)
}

/// The state of an inode after `sequence` changes.
fn seen(ino: ObjectId, sequence: u64) -> InodeLog {
    let item = InodeItem { sequence, nlink: 1, ..InodeItem::default() };
    InodeLog { sequence, items: vec![(item_key(ino), item.encode().to_vec())], ..InodeLog::of(ino) }
}

fn named(ino: ObjectId, sequence: u64, index: u64, name: &str) -> InodeLog {
    let link = LogLink { dir: ObjectId::FIRST_FREE, index, name: name.as_bytes().to_vec() };
    InodeLog { links: vec![link], ..seen(ino, sequence) }
}

#[test]
fn an_older_look_at_an_inode_does_not_replace_a_newer_one() {
    let logs = Logs::new();
    assert!(logs.engine.logs().ticket_of(&logs.base, ONE, 0).is_none());
    for sequence in [7, 6, 8, 7] {
        logs.engine
            .logs()
            .sync(logs.put(seen(ONE, sequence)).expect("it can be said"))
            .expect("it is written");
    }
    let is_logged = |sequence| logs.engine.logs().ticket_of(&logs.base, ONE, sequence).is_some();
    assert!(is_logged(8) && !is_logged(9));
    assert_eq!(logs.item(ONE).expect("it was logged").sequence, 8);
}

#[test]
fn a_name_or_a_number_is_given_to_another_only_with_who_had_it() {
    for (index, name) in [(2, "a"), (3, "a"), (2, "b")] {
        let logs = Logs::new();
        let _unwritten = logs.put(named(ONE, 1, 2, "a")).expect("it can be said");
        assert!(logs.put(named(OTHER, 1, index, name)).is_none(), "{index} {name}");
        // The former owner of the name is logged, too, under its current name.
        let inodes = vec![named(ONE, 2, 4, "c"), named(OTHER, 1, index, name)];
        let group = LogGroup { inodes, gone: Vec::new() };
        let _unwritten = logs.engine.logs().put(&logs.base, &group).expect("room").expect("it can be said");
        assert!(logs.put(named(ONE, 3, index, name)).is_none(), "it is the other one's now");
        // Or the former owner is logged as gone, so a replay does not see it.
        let ticket = logs.put_with(named(ONE, 3, index, name), &[OTHER]).expect("it can be said");
        logs.engine.logs().sync(ticket).expect("it is written");
        assert_eq!(logs.item(ONE).map(|item| (item.sequence, item.nlink)), Some((3, 1)));
        assert_eq!(logs.item(OTHER).map(|item| item.nlink), Some(0));
    }
}

/// Another file's data is the first that is compressed with zstd.
#[test]
fn what_takes_a_new_feature_to_read_is_not_put_into_a_log() {
    let logs = Logs::new();
    let ticket = logs.put(seen(ONE, 1)).expect("it can be said");
    let handle = logs.engine.start(ReserveItems::items(1)).expect("room");
    assert!(!logs.engine.incompat().contains(Incompat::COMPRESS_ZSTD));
    handle.add_incompat(Incompat::COMPRESS_ZSTD);
    handle.end();
    assert!(logs.put(seen(OTHER, 1)).is_none(), "the superblock with the log does not say so");
    logs.engine.logs().sync(ticket).expect("it is written");
    assert!(logs.item(ONE).is_some() && logs.item(OTHER).is_none());
    let tree = logs.engine.tree(TreeId::FS).expect("it is there");
    assert!(logs.engine.logs().base(&tree).expect("it opens").is_none(), "nor is anybody asked what to put");
}

/// The file has other data by now.
#[test]
fn data_whose_checksums_are_gone_is_committed_and_the_others_log_on() {
    let logs = Logs::new();
    let data = vec![(Logical::new(logs.engine.space().data_total + (1 << 30)), 4096)];
    assert!(logs.put(InodeLog { data, ..seen(ONE, 1) }).is_none());
    logs.engine.logs().sync(logs.put(seen(OTHER, 1)).expect("it can be said")).expect("it is written");
    assert_eq!(logs.item(ONE), None);
    assert!(logs.item(OTHER).is_some());
}

#[test]
fn what_was_half_put_when_somebody_died_is_never_written() {
    let logs = Logs::new();
    let ticket = logs.put(seen(ONE, 1)).expect("it can be said");
    // An item that does not match its scope.
    let scope = LogScope::Names;
    let mut wrong = InodeLog { scope, ..seen(OTHER, 1) };
    wrong.items.push((Key::new(OTHER, KeyType::DIR_INDEX, 2), Vec::new()));
    let died = catch_unwind(AssertUnwindSafe(|| logs.put(wrong)));
    assert!(died.is_err(), "LOG-6");
    assert!(logs.engine.logs().sync(ticket).is_err(), "whose handle it was is gone");
    assert_eq!(logs.item(ONE), None);
}
