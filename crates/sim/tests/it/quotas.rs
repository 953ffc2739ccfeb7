//! Quota groups: what is counted on the way is what a count of everything finds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use creamery_base::{ErrorKind, InodeId, ObjectId, QgroupId, TreeId};
use creamery_format::{Key, KeyType};
use creamery_fs::{Cleaning, Filesystem, NewInode, QuotaChange};
use creamery_sim::{
    MadeBy, SimDevice, Taste, ensure_counted, fresh_image, meddle_with_groups, random_run, random_run_beside,
};
use creamery_testkit::Random;
use creamery_txn::{Qgroup, QgroupUsage, QuotaMode, ReserveItems};

/// Seeds whose runs count what is referred to.
const SEEDS: [u64; 4] = [1, 4, 7, 10];

#[test]
fn groups_count_what_a_walk_finds() {
    let made_by = MadeBy { node_size: 4096, ..MadeBy::default() };
    for seed in SEEDS {
        random_run(seed, 1500, &made_by, Taste::default()).unwrap_or_else(|error| panic!("{error:#}"));
        // Simple quotas.
        random_run(seed + 1, 600, &made_by, Taste::default()).unwrap_or_else(|error| panic!("{error:#}"));
        random_run_beside(seed, 400, &made_by, Taste::default()).unwrap_or_else(|error| panic!("{error:#}"));
    }
}

fn device() -> Arc<SimDevice> {
    let made_by = MadeBy { node_size: 4096, ..MadeBy::default() };
    Arc::new(SimDevice::new(fresh_image(&made_by).expect("an image")))
}

fn open() -> Arc<Filesystem> {
    creamery_sim::open(&device()).expect("a filesystem")
}

fn rescan_to_its_end(fs: &Filesystem) {
    while fs.engine().quotas().rescan_step().expect("no damage") {}
    fs.engine().commit().expect("room");
}

fn rescan(fs: &Filesystem) -> Vec<Qgroup> {
    fs.engine().quotas().begin_rescan().expect("none runs");
    rescan_to_its_end(fs);
    fs.engine().quotas().list().expect("quotas are on")
}

#[test]
fn a_rescan_beside_those_who_write_counts_right() {
    let fs = open();
    let (engine, mut random) = (fs.engine(), Random::new(7));
    engine.quotas().enable(QuotaMode::Full).expect("room");
    let top = fs.root(TreeId::FS).expect("the root");
    let mut roots = vec![top];
    let mut begun = 0;
    for round in 0..400_u64 {
        let root = roots[random.below(roots.len() as u64) as usize];
        let name = format!("file {}", random.below(200)).into_bytes();
        match random.below(12) {
            0 if roots.len() < 8 => {
                let name = format!("snapshot {round}").into_bytes();
                roots.push(fs.create_snapshot(root.subvolume, top, &name, false).expect("room"));
            }
            1 if roots.len() < 8 => {
                let name = format!("subvolume {round}").into_bytes();
                roots.push(fs.create_subvolume(top, &name, &NewInode::directory(0o755)).expect("room"));
            }
            2 => engine.commit().expect("room"),
            3 => {
                if let Err(error) = engine.quotas().begin_rescan() {
                    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
                } else {
                    begun += 1;
                }
            }
            4 => {
                // Numbers that become wrong while it runs are counted anew.
                let (member, group) = (QgroupId::of(root.subvolume), QgroupId::new(1, 1).expect("small"));
                let _there = engine.quotas().create(group);
                let _is_one = engine.quotas().assign(member, group, round % 2 == 0);
            }
            _ => drop(fs.create(root, &name, &NewInode::file(0o644))),
        }
        engine.quotas().rescan_step().expect("no damage");
    }
    rescan_to_its_end(&fs);
    assert!(begun > 3, "{begun} rescans were begun");
    let counted = engine.quotas().list().expect("quotas are on");
    let status = engine.quotas().status().expect("quotas are on");
    let anew = rescan(&fs);
    if !status.inconsistent {
        assert_eq!(counted, anew);
    }
    // What is counted from there on is right in any case.
    for round in 0..100 {
        let root = roots[random.below(roots.len() as u64) as usize];
        drop(fs.create(root, format!("more {round}").as_bytes(), &NewInode::file(0o644)));
    }
    engine.commit().expect("room");
    let counted = engine.quotas().list().expect("quotas are on");
    assert_eq!(counted, rescan(&fs));
    let counters = engine.quotas().counters();
    assert!(counters.known > 50 && counters.walked > 10 && counters.rescanned > 100, "{counters:?}");
}

#[test]
fn ways_between_groups_are_walked_once() {
    let fs = open();
    let engine = fs.engine();
    engine.quotas().enable(QuotaMode::Full).expect("room");
    let id = |level: u16, number| QgroupId::new(level, number).expect("small");
    for level in 1..24 {
        (1..3).for_each(|number| engine.quotas().create(id(level, number)).expect("room"));
    }
    for level in 1..24 {
        let members: Vec<_> = if level == 1 {
            vec![QgroupId::of(TreeId::FS)]
        } else {
            (1..3).map(|n| id(level - 1, n)).collect()
        };
        for member in members {
            (1..3).for_each(|number| engine.quotas().assign(member, id(level, number), true).expect("room"));
        }
    }
    let top = fs.root(TreeId::FS).expect("the root");
    fs.create_snapshot(TreeId::FS, top, b"snapshot", false).expect("room");
    let groups = engine.quotas().list().expect("quotas are on");
    let of = |wanted| groups.iter().find(|group| group.id == wanted).expect("it is there").usage;
    assert_eq!(of(id(23, 2)), of(QgroupId::of(TreeId::FS)));
}

#[test]
fn a_change_that_nothing_comes_of_takes_nothing_from_a_limit() {
    let fs = open();
    let engine = fs.engine();
    engine.quotas().enable(QuotaMode::Full).expect("room");
    engine.quotas().limit(QgroupId::of(TreeId::FS), Some(2 << 20), false).expect("room");
    engine.commit().expect("room");
    for _ in 0..1000 {
        let units = ReserveItems::items(8).of(TreeId::FS);
        engine.start(units).expect("the limit is far away").end();
    }
    assert!(
        engine.quotas().counters().exceeded > 0,
        "what was promised stood in the way, until it was given back"
    );
}

/// Items that make no sense, in a tree that holds otherwise.
#[test]
fn a_quota_tree_that_says_anything_is_counted_anew() {
    let device = device();
    let fs = creamery_sim::open(&device).expect("a filesystem");
    fs.engine().quotas().enable(QuotaMode::Full).expect("room");
    rescan_to_its_end(&fs);
    let right = fs.engine().quotas().list().expect("quotas are on");
    let engine = fs.engine();
    let tree = engine.tree(TreeId::QUOTA).expect("it is there");
    let handle = engine.start(ReserveItems::items(16)).expect("room");
    let (top, missing) = (QgroupId::of(TreeId::FS).get(), QgroupId::new(1, 77).expect("small").get());
    let highest = [u64::MAX; 5].map(u64::to_le_bytes).concat();
    for (objectid, kind, offset, data) in [
        (0, KeyType::QGROUP_INFO, top, highest.as_slice()),
        (0, KeyType::QGROUP_LIMIT, top, &[0; 40]),
        // Of a group that has a limit and no numbers, one that is not there, and of one with itself.
        (0, KeyType::QGROUP_LIMIT, missing, &highest),
        (top, KeyType::QGROUP_RELATION, missing, &[]),
        (top, KeyType::QGROUP_RELATION, top, &[]),
        (missing, KeyType::QGROUP_RELATION, top, &[]),
        (0, KeyType::QGROUP_INFO, u64::MAX, &highest),
    ] {
        let key = Key::new(ObjectId::new(objectid), kind, offset);
        tree.upsert(&handle, &key, data).expect("room");
    }
    handle.end();
    fs.sync().expect("room");
    drop(tree);
    engine.volume().close().expect("it closes");
    drop(fs);
    let fs = creamery_sim::open(&device).expect("no reason to refuse it");
    assert!(fs.engine().quotas().status().expect("quotas are on").inconsistent);
    let root = fs.root(TreeId::FS).expect("the root");
    for number in 0..50 {
        fs.create(root, format!("file {number}").as_bytes(), &NewInode::file(0o644)).expect("room");
    }
    fs.create_snapshot(TreeId::FS, root, b"snapshot", false).expect("room");
    fs.sync().expect("nothing aborts");
    let counted = rescan(&fs);
    let of =
        |groups: &[Qgroup], id: u64| groups.iter().find(|group| group.id.get() == id).expect("a group").usage;
    assert!(!fs.engine().quotas().status().expect("quotas are on").inconsistent);
    assert!(of(&counted, top).referenced >= of(&right, top).referenced);
    assert!(of(&counted, top).referenced < 1 << 20, "{counted:?}");
    assert_eq!(of(&counted, u64::MAX).referenced, 0, "a group of no subvolume");
}

#[test]
fn what_comes_into_groups_from_its_beginning_counts_right() {
    let fs = open();
    let (engine, mut random) = (fs.engine(), Random::new(11));
    engine.quotas().enable(QuotaMode::Full).expect("room");
    rescan_to_its_end(&fs);
    let id = |level: u16, number| QgroupId::new(level, number).expect("small");
    let groups = [id(1, 1), id(1, 2), id(1, 3), id(2, 1), id(2, 2)];
    groups.iter().for_each(|&group| engine.quotas().create(group).expect("room"));
    for (member, group) in [(id(1, 1), id(2, 1)), (id(1, 2), id(2, 1)), (id(1, 2), id(2, 2))] {
        engine.quotas().assign(member, group, true).expect("room");
    }
    let top = fs.root(TreeId::FS).expect("the root");
    let mut roots = vec![top];
    let mut known = [0, 0];
    for round in 0..120_u64 {
        let root = roots[random.below(roots.len() as u64) as usize];
        (0..6).for_each(|number| {
            let name = format!("{round} {number}");
            fs.create(root, name.as_bytes(), &NewInode::file(0o644)).expect("room");
        });
        // One may be named twice.
        let into: Vec<_> = (0..random.below(4)).map(|_| groups[random.below(5) as usize]).collect();
        let name = format!("subvolume {round}").into_bytes();
        let made = match random.below(3) {
            0 => fs.create_subvolume_in_groups(top, &name, &NewInode::directory(0o755), &into),
            _ => fs.create_snapshot_in_groups(root.subvolume, top, &name, false, &into),
        };
        roots.push(made.expect("room"));
        engine.commit().expect("room");
        let status = engine.quotas().status().expect("quotas are on");
        let counted = engine.quotas().list().expect("quotas are on");
        let anew = rescan(&fs);
        known[usize::from(status.inconsistent)] += 1;
        if !status.inconsistent {
            assert_eq!(counted, anew, "round {round}");
        }
        let group = anew.iter().find(|group| group.id == QgroupId::of(roots[roots.len() - 1].subvolume));
        let parents = into.iter().copied().collect::<std::collections::BTreeSet<_>>();
        assert!(group.expect("a group").parents.iter().copied().eq(parents), "round {round}");
        if round % 15 == 14 {
            // Groups that have nothing, again.
            for root in roots.drain(1..) {
                let (dir, name) = fs.subvolume_entry(root.subvolume).expect("it is there");
                fs.delete_subvolume(dir, &name).expect("room");
            }
            while fs.clean_step().expect("no damage") == Cleaning::More {}
        }
    }
    assert!(known.iter().all(|rounds| *rounds > 10), "{known:?} of numbers that were known, and not");
    for (group, kind) in [(id(1, 9), ErrorKind::NotFound), (id(0, 5), ErrorKind::InvalidInput)] {
        let made = fs.create_snapshot_in_groups(TreeId::FS, top, b"none", false, &[id(1, 1), group]);
        assert_eq!(made.expect_err("no group to be in").kind(), kind);
        let new = NewInode::directory(0o755);
        let made = fs.create_subvolume_in_groups(top, b"none", &new, &[id(1, 1), group]);
        assert_eq!(made.expect_err("no group to be in").kind(), kind);
    }
}

#[test]
fn groups_that_come_and_go_with_their_subvolumes_count_right() {
    let mut compared = [0, 0];
    for (seed, mode) in [(1, QuotaMode::Full), (2, QuotaMode::Simple), (3, QuotaMode::Full)] {
        let fs = open();
        let (engine, mut random) = (fs.engine(), Random::new(seed));
        engine.quotas().enable(mode).expect("room");
        rescan_to_its_end(&fs);
        let top = fs.root(TreeId::FS).expect("the root");
        let mut roots = vec![top];
        for round in 0..600_u64 {
            let root = roots[random.below(roots.len() as u64) as usize];
            let name = format!("{round}").into_bytes();
            let groups = engine.quotas().list().expect("quotas are on");
            let mut groups: Vec<_> = groups.iter().map(|group| group.id).collect();
            groups.retain(|id| id.level() > 0 && random.below(3) == 0);
            match random.below(10) {
                0 if roots.len() < 6 => {
                    let new = NewInode::directory(0o755);
                    roots.push(fs.create_subvolume_in_groups(top, &name, &new, &groups).expect("room"));
                }
                1 if roots.len() < 6 => {
                    let made = fs.create_snapshot_in_groups(root.subvolume, top, &name, false, &groups);
                    roots.push(made.expect("room"));
                }
                2 if root != top => {
                    let (dir, name) = fs.subvolume_entry(root.subvolume).expect("it is there");
                    fs.delete_subvolume(dir, &name).expect("room");
                    roots.retain(|other| *other != root);
                }
                3..7 => meddle_with_groups(&fs, &mut random).expect("nothing goes wrong"),
                _ => drop(fs.create(root, &name, &NewInode::file(0o644))),
            }
            if round % 10 == 9 {
                let is_known = !engine.quotas().status().expect("quotas are on").inconsistent;
                ensure_counted(&fs).unwrap_or_else(|error| panic!("seed {seed}, round {round}: {error:#}"));
                compared[usize::from(is_known)] += 1;
            }
        }
    }
    assert!(compared[1] > 60, "{compared:?} of numbers that may be wrong, and not");
}

fn group(level: u16, number: u64) -> QgroupId {
    QgroupId::new(level, number).expect("small")
}

fn usage(fs: &Filesystem, id: QgroupId) -> Option<QgroupUsage> {
    let groups = fs.engine().quotas().list().expect("quotas are on");
    groups.into_iter().find(|group| group.id == id).map(|group| group.usage)
}

/// The numbers are right, and say so themselves.
fn ensure_right(fs: &Filesystem) {
    fs.engine().commit().expect("room");
    assert!(!fs.engine().quotas().status().expect("quotas are on").inconsistent);
    let counted = fs.engine().quotas().list().expect("quotas are on");
    assert_eq!(counted, rescan(fs));
}

#[test]
fn a_group_that_is_destroyed_with_its_subvolume_leaves_nothing_above() {
    for (mode, by_name) in [(QuotaMode::Full, true), (QuotaMode::Full, false), (QuotaMode::Simple, true)] {
        let made_by = MadeBy { node_size: 4096, len: 512 << 20, ..MadeBy::default() };
        let device = Arc::new(SimDevice::new(fresh_image(&made_by).expect("an image")));
        let fs = creamery_sim::open(&device).expect("a filesystem");
        let engine = fs.engine();
        engine.quotas().enable(mode).expect("room");
        rescan_to_its_end(&fs);
        let top = fs.root(TreeId::FS).expect("the root");
        engine.quotas().create(group(1, 1)).expect("room");
        let made = fs.create_subvolume_in_groups(top, b"s", &NewInode::directory(0o755), &[group(1, 1)]);
        let root = made.expect("room");
        for number in 0..300 {
            fs.create(root, format!("file {number}").as_bytes(), &NewInode::file(0o644)).expect("room");
        }
        fs.delete_subvolume(top, b"s").expect("room");
        engine.commit().expect("room");
        while fs.clean_step().expect("no damage") == Cleaning::More {}
        let id = QgroupId::of(root.subvolume);
        assert!(engine.root_item(root.subvolume).is_err(), "nothing is left of it");
        let left = usage(&fs, group(1, 1)).expect("a group").referenced;
        assert!(left > 0, "what was freed is not counted yet");
        let change = if by_name { QuotaChange::Destroy(id) } else { QuotaChange::ClearStale };
        fs.change_quotas(&change, TreeId::FS).expect("nothing is in the way");
        assert_eq!(usage(&fs, id), None);
        assert_eq!(usage(&fs, group(1, 1)), Some(QgroupUsage::default()), "{mode:?}");
        if mode == QuotaMode::Full {
            ensure_right(&fs);
        }
        let again = fs.change_quotas(&QuotaChange::Destroy(id), TreeId::FS).expect_err("it is gone");
        assert_eq!(again.kind(), ErrorKind::NotFound);
    }
}

#[test]
fn who_comes_into_a_group_by_two_ways_counts_once() {
    for mode in [QuotaMode::Full, QuotaMode::Simple] {
        let fs = open();
        let engine = fs.engine();
        engine.quotas().enable(mode).expect("room");
        rescan_to_its_end(&fs);
        let top = fs.root(TreeId::FS).expect("the root");
        let root = fs.create_subvolume(top, b"s", &NewInode::directory(0o755)).expect("room");
        for number in 0..100 {
            fs.create(root, format!("file {number}").as_bytes(), &NewInode::file(0o644)).expect("room");
        }
        engine.commit().expect("room");
        let member = QgroupId::of(root.subvolume);
        let (one, other, above) = (group(1, 1), group(1, 2), group(2, 1));
        for id in [one, other, above] {
            engine.quotas().create(id).expect("room");
        }
        for (member, group) in [(one, above), (other, above), (member, one), (member, other)] {
            engine.quotas().assign(member, group, true).expect("room");
        }
        let all = usage(&fs, member);
        assert!(all.is_some_and(|all| all.referenced > 0));
        assert_eq!([one, other, above].map(|id| usage(&fs, id)), [all; 3], "{mode:?}");
        engine.quotas().assign(member, other, false).expect("it is one");
        let none = Some(QgroupUsage::default());
        assert_eq!([one, other, above].map(|id| usage(&fs, id)), [all, none, all], "{mode:?}");
        engine.quotas().assign(one, above, false).expect("it is one");
        assert_eq!([one, other, above].map(|id| usage(&fs, id)), [all, none, none], "{mode:?}");
        if mode == QuotaMode::Full {
            ensure_right(&fs);
        }
    }
}

/// Data has its space in one transaction and its file in the next: the limit has it all the time.
#[test]
fn data_in_flight_counts_against_a_limit_when_a_transaction_closes() {
    const HALF: u64 = 6 << 20;
    let fs = open();
    let (engine, top) = (fs.engine(), fs.root(TreeId::FS).expect("the root"));
    engine.quotas().enable(QuotaMode::Full).expect("room");
    engine.quotas().limit(QgroupId::of(TreeId::FS), Some(HALF + HALF / 2), false).expect("room");
    let mut room =
        engine.reserve_delalloc(TreeId::FS, HALF, 5).expect("the limit is far away").expect("room");
    let in_flight = engine.allocate_reserved(HALF, HALF, None, &mut room).expect("room is kept");
    drop(room);
    fs.create(top, b"something to commit", &NewInode::file(0o644)).expect("room");
    fs.sync().expect("room");
    let more = engine.reserve_delalloc(TreeId::FS, HALF, 5).map(|room| room.is_some());
    assert_eq!(more.map_err(|error| error.kind()), Err(ErrorKind::QuotaExceeded));
    drop(in_flight);
    assert!(engine.reserve_delalloc(TreeId::FS, HALF, 5).expect("it came to nothing").is_some());
}

/// Writers and commits beside each other: a group is over its limit by no more than a tree block.
#[test]
fn what_is_referenced_never_exceeds_a_limit_by_more_than_a_node() {
    const LIMIT: u64 = 24 << 20;
    for mode in [QuotaMode::Full, QuotaMode::Simple] {
        let fs = open();
        let engine = fs.engine();
        engine.quotas().enable(mode).expect("room");
        rescan_to_its_end(&fs);
        let top = fs.root(TreeId::FS).expect("the root");
        engine.quotas().limit(QgroupId::of(TreeId::FS), Some(LIMIT), false).expect("room");
        engine.commit().expect("room");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..3)
                .map(|writer| {
                    let fs = &fs;
                    scope.spawn(move || write_until_exceeded(fs, top, writer))
                })
                .collect();
            scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    engine.commit().expect("room");
                }
            });
            let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
            done.store(true, Ordering::Release);
            ended.into_iter().for_each(|writer| writer.expect("it ends well"));
        });
        fs.sync().expect("room");
        let used = usage(&fs, QgroupId::of(TreeId::FS)).expect("a group").referenced;
        let most = LIMIT + u64::from(engine.node_size());
        assert!(used <= most, "{mode:?}: {used} bytes are referenced, and {LIMIT} is the limit");
        assert!(used > LIMIT * 3 / 4, "{mode:?}: only {used} bytes were accepted");
    }
}

/// Writes files and their data back, until several writes exceed the limit.
fn write_until_exceeded(fs: &Filesystem, top: InodeId, writer: u64) {
    let mut random = Random::new(writer);
    let mut exceeded = 0;
    for number in 0..500 {
        let name = format!("{writer}-{number}").into_bytes();
        let written = fs.create(top, &name, &NewInode::file(0o644)).and_then(|made| {
            let file = fs.open_file(made.id)?;
            let len = 1 + random.below(400_000) as usize;
            let written = file.write_at(0, &random.bytes(len));
            if number % 2 == 0 {
                file.sync()?;
            }
            fs.close(file);
            written
        });
        if let Err(error) = written {
            assert_eq!(error.kind(), ErrorKind::QuotaExceeded, "{error}");
            exceeded += 1;
        }
        if exceeded == 6 {
            return;
        }
    }
    panic!("the limit is never reached");
}
