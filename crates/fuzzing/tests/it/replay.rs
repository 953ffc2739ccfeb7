//! Replays every file of the corpora, and every past crasher, in a plain build, each with a limit of CPU time.

use std::path::{Path, PathBuf};
use std::time::Duration;

use creamery_fuzzing::{TARGETS, Target};
use creamery_testkit::{HANG, cpu_of_this_thread, ends_within};

/// The limit for the thread that runs the target, many times the usual time.
const CPU_MAX: Duration = Duration::from_secs(120);

fn files(folder: &str, target: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz").join(folder).join(target);
    let Ok(entries) = std::fs::read_dir(&folder) else { return Vec::new() };
    let mut files: Vec<PathBuf> =
        entries.map(|entry| entry.expect("a folder that can be listed").path()).collect();
    files.sort();
    files
}

/// Runs a target on its own thread, which detects a panic and a hang.
fn replay((name, body): Target, path: &Path) {
    let bytes = std::fs::read(path).expect("a file that can be read");
    let shown = path.display();
    let run = move || {
        body(&bytes);
        cpu_of_this_thread()
    };
    match ends_within(HANG, run) {
        Some(Ok(taken)) => assert!(taken < CPU_MAX, "{name}: {shown} takes {taken:?} of CPU time"),
        Some(Err(_)) => panic!("{name}: {shown} panics"),
        None => panic!("{name}: {shown} hangs"),
    }
}

fn replay_all(name: &str) {
    let target = *TARGETS.iter().find(|target| target.0 == name).expect("a target of that name");
    let corpus = files("corpus", name);
    assert!(!corpus.is_empty(), "{name}: no corpus");
    for path in corpus.iter().chain(&files("crashers", name)) {
        replay(target, path);
    }
}

#[test]
fn image_bytes_replays() {
    replay_all("image_bytes");
}

#[test]
fn image_fields_replays() {
    replay_all("image_fields");
}

#[test]
fn member_sets_replays() {
    replay_all("member_sets");
}

#[test]
fn partition_table_replays() {
    replay_all("partition_table");
}

#[test]
fn operations_replay() {
    replay_all("operations");
}

#[test]
fn codec_replays() {
    replay_all("codec");
}

#[test]
fn tree_block_replays() {
    replay_all("tree_block");
}

#[test]
fn fuse_request_replays() {
    replay_all("fuse_request");
}

#[test]
fn every_crasher_belongs_to_a_target_and_is_told_of() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/crashers");
    let told = std::fs::read_to_string(folder.join("README.md")).expect("a list of crashers");
    let mut found = 0;
    for entry in std::fs::read_dir(&folder).expect("a folder of crashers") {
        let name =
            entry.expect("a folder that can be listed").file_name().into_string().expect("a name in UTF-8");
        if name == "README.md" {
            continue;
        }
        assert!(TARGETS.iter().any(|target| target.0 == name), "crashers of {name}, which is no target");
        for path in files("crashers", &name) {
            let file = path.file_name().expect("a name").to_string_lossy().into_owned();
            assert!(told.contains(&format!("`{name}/{file}`")), "{name}/{file} is not in the list");
            found += 1;
        }
    }
    assert!(found > 0, "no crashers at all");
}

#[test]
fn verity_replays() {
    replay_all("verity");
}

#[test]
fn quota_tree_replays() {
    replay_all("quota_tree");
}

#[test]
fn tree_log_replays() {
    replay_all("tree_log");
}

#[test]
fn archive_replays() {
    replay_all("archive");
}
