//! Quota groups: what is counted on the way is what a count of everything finds.

use std::sync::Arc;

use creamery_base::{QgroupId, TreeId};
use creamery_fs::{Filesystem, NewInode};
use creamery_sim::{MadeBy, SimDevice, Taste, fresh_image, random_run, random_run_beside};
use creamery_testkit::Random;
use creamery_txn::{Qgroup, QuotaMode};

/// Seeds whose runs count what is referred to.
const SEEDS: [u64; 4] = [1, 4, 7, 10];

#[test]
fn groups_count_what_a_walk_finds() {
    let made_by = MadeBy { node_size: 4096, ..MadeBy::default() };
    for seed in SEEDS {
        random_run(seed, 1500, &made_by, Taste::default()).unwrap_or_else(|error| panic!("{error:#}"));
        random_run_beside(seed, 400, &made_by, Taste::default()).unwrap_or_else(|error| panic!("{error:#}"));
    }
}

fn open() -> Arc<Filesystem> {
    let made_by = MadeBy { node_size: 4096, ..MadeBy::default() };
    let device = Arc::new(SimDevice::new(fresh_image(&made_by).expect("an image")));
    creamery_sim::open(&device).expect("a filesystem")
}

fn rescan(fs: &Filesystem) -> Vec<Qgroup> {
    let engine = fs.engine();
    engine.begin_quota_rescan().expect("none runs");
    while engine.quota_rescan_step().expect("no damage") {}
    engine.commit().expect("room");
    engine.qgroups().expect("quotas are on")
}

#[test]
fn a_rescan_beside_those_who_write_counts_right() {
    let fs = open();
    let (engine, mut random) = (fs.engine(), Random::new(7));
    engine.enable_quotas(QuotaMode::Full).expect("room");
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
                if let Err(error) = engine.begin_quota_rescan() {
                    assert_eq!(error.kind(), creamery_base::ErrorKind::Busy, "{error}");
                } else {
                    begun += 1;
                }
            }
            4 => {
                // Numbers that become wrong while it runs are counted anew.
                let (member, group) = (QgroupId::of(root.subvolume), QgroupId::new(1, 1).expect("small"));
                let _there = engine.create_qgroup(group);
                let _is_one = engine.assign_qgroup(member, group, round % 2 == 0);
            }
            _ => drop(fs.create(root, &name, &NewInode::file(0o644))),
        }
        engine.quota_rescan_step().expect("no damage");
    }
    while engine.quota_rescan_step().expect("no damage") {}
    engine.commit().expect("room");
    assert!(begun > 3, "{begun} rescans were begun");
    let counted = engine.qgroups().expect("quotas are on");
    let status = engine.quota_status().expect("quotas are on");
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
    let counted = engine.qgroups().expect("quotas are on");
    assert_eq!(counted, rescan(&fs));
    let counters = engine.qgroup_counters();
    assert!(counters.known > 50 && counters.walked > 10 && counters.rescanned > 100, "{counters:?}");
}

#[test]
fn ways_between_groups_are_walked_once() {
    let fs = open();
    let engine = fs.engine();
    engine.enable_quotas(QuotaMode::Full).expect("room");
    let id = |level: u16, number| QgroupId::new(level, number).expect("small");
    for level in 1..24 {
        (1..3).for_each(|number| engine.create_qgroup(id(level, number)).expect("room"));
    }
    for level in 1..24 {
        let members: Vec<_> = if level == 1 {
            vec![QgroupId::of(TreeId::FS)]
        } else {
            (1..3).map(|n| id(level - 1, n)).collect()
        };
        for member in members {
            (1..3).for_each(|number| engine.assign_qgroup(member, id(level, number), true).expect("room"));
        }
    }
    let top = fs.root(TreeId::FS).expect("the root");
    fs.create_snapshot(TreeId::FS, top, b"snapshot", false).expect("room");
    let groups = engine.qgroups().expect("quotas are on");
    let of = |wanted| groups.iter().find(|group| group.id == wanted).expect("it is there").usage;
    assert_eq!(of(id(23, 2)), of(QgroupId::of(TreeId::FS)));
}

#[test]
fn a_change_that_nothing_comes_of_takes_nothing_from_a_limit() {
    let fs = open();
    let engine = fs.engine();
    engine.enable_quotas(QuotaMode::Full).expect("room");
    engine.limit_qgroup(QgroupId::of(TreeId::FS), Some(2 << 20), false).expect("room");
    engine.commit().expect("room");
    for _ in 0..1000 {
        let units = creamery_txn::Units::items(8).of(TreeId::FS);
        engine.start(units).expect("the limit is far away").end();
    }
    assert!(
        engine.qgroup_counters().exceeded > 0,
        "what was promised stood in the way, until it was given back"
    );
}
