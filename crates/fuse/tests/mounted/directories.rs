//! Reading directories.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;

use creamery_testkit::wait_until;
use rustix::fs::RawDir;

use crate::harness::Mounted;

const NAMES: usize = 10_000;

fn fill(mount: &Mounted) {
    fs::create_dir(mount.path("big")).unwrap();
    for index in 0..NAMES {
        File::create(mount.path(format!("big/name-{index:05}"))).unwrap();
    }
}

/// Names and the cookies after them.
fn walk(dir: &File, from: u64) -> Vec<(String, u64)> {
    rustix::fs::seek(dir, rustix::fs::SeekFrom::Start(from)).unwrap();
    let mut room = [MaybeUninit::uninit(); 8192];
    let mut entries = RawDir::new(dir, &mut room);
    let mut found = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry.unwrap();
        found.push((entry.file_name().to_str().unwrap().to_owned(), entry.next_entry_cookie()));
    }
    found
}

#[test]
fn ten_thousand_names_are_read_once_each_from_any_cookie() {
    let Some(mount) = Mounted::new("ten_thousand_names_are_read_once_each_from_any_cookie") else { return };
    fill(&mount);
    let dir = File::open(mount.path("big")).unwrap();
    let all = walk(&dir, 0);
    assert_eq!(all.len(), NAMES + 2);
    assert_eq!((all[0].0.as_str(), all[1].0.as_str()), (".", ".."));
    assert_eq!(all.iter().map(|(name, _)| name).collect::<BTreeSet<_>>().len(), NAMES + 2);
    for index in [0, 1, 2, 77, 5000, NAMES, NAMES + 1] {
        assert_eq!(walk(&dir, all[index].1), all[index + 1..], "after entry {index}");
    }
}

#[test]
fn cookies_hold_while_names_come_and_go() {
    let Some(mount) = Mounted::new("cookies_hold_while_names_come_and_go") else { return };
    for name in ["a", "b", "c", "d"] {
        fs::write(mount.path(name), "").unwrap();
    }
    let dir = File::open(&mount.dir).unwrap();
    let all = walk(&dir, 0);
    let after_b = all.iter().find(|(name, _)| name == "b").unwrap().1;
    fs::remove_file(mount.path("a")).unwrap();
    fs::remove_file(mount.path("c")).unwrap();
    fs::write(mount.path("e"), "").unwrap();
    let rest: Vec<_> = walk(&dir, after_b).into_iter().map(|(name, _)| name).collect();
    assert_eq!(rest, ["d", "e"]);
}

#[test]
fn reading_with_attributes_saves_lookups_and_counts_references() {
    let Some(mut mount) = Mounted::new("reading_with_attributes_saves_lookups_and_counts_references") else {
        return;
    };
    fill(&mount);
    let sizes: u64 =
        fs::read_dir(mount.path("big")).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    assert_eq!(sizes, 0);
    assert!(mount.fs.counters.plus.load(Ordering::Relaxed) > 0);
    // Forgets never exceed references: asserted where they arrive.
    mount.finish();
}

#[test]
fn forgets_arrive_when_caches_are_dropped() {
    let Some(mount) = Mounted::new("forgets_arrive_when_caches_are_dropped") else { return };
    for index in 0..500 {
        fs::write(mount.path(format!("{index}")), "x").unwrap();
    }
    // Other processes may drop caches, too, and at any time: forgotten references count.
    let forgotten = || mount.fs.counters.forgotten.load(Ordering::SeqCst);
    assert!(mount.fs.references() + forgotten() >= 500);
    // Forgets have no answer: only the counters show their arrival, and a request of ours queues neither behind
    // nor before them.
    wait_until("500 references to go", || {
        fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
        forgotten() >= 500
    });
    // And a node without name and references is gone.
    fs::remove_file(mount.path("7")).unwrap();
    assert!(!mount.path("7").exists());
    assert_eq!(fs::read(mount.path("8")).unwrap(), b"x");
}
