//! The controls that other programs send to Linux' Btrfs, sent to a live mount and to the kernel.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Judge, LoopMount, Run};

use crate::subvolumes::live::{AS_NOBODY, for_everybody, mount_point, names, subvolume};
use crate::support::{MOUNTED, inside, judge_mount, mkfs_empty};

const SUBVOLUMES_C: &str = include_str!("../programs/subvolumes.c");

pub(crate) fn cases() -> Vec<Case> {
    let compiled = [&MOUNTED[..], &[Judge::Tool("setpriv"), Judge::Tool("cc")]].concat();
    vec![
        Case::new("subvolumes/controls-change-as-on-linux", &compiled, controls_change),
        Case::new("subvolumes/controls-tell-as-on-linux", &compiled, controls_tell),
    ]
}

/// Builds the program that sends one control.
pub(crate) fn compile(bench: &Bench) -> Result<PathBuf> {
    let dir = bench.scratch.dir("program")?;
    std::fs::write(dir.join("subvolumes.c"), SUBVOLUMES_C)?;
    Run::new("cc").args(["-O1", "-o", "subvolumes", "subvolumes.c"]).within(&dir).ok()?;
    Ok(dir.join("subvolumes"))
}

/// The longest name, a longer one, and one that hardly fits the message.
const LONGEST: &str = text(&[b'n'; 255]);
const TOO_LONG: &str = text(&[b'n'; 256]);
const VERY_LONG: &str = text(&[b'n'; 4000]);

const fn text(bytes: &[u8]) -> &str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(_) => panic!("letters only"),
    }
}

/// Controls that change something, as root and as `nobody`, and the places that are compared after each.
const CHANGES: [(&str, &[&str]); 129] = [
    ("root", &["create", ".", "one"]),
    ("root", &["create", ".", "one"]),
    ("root", &["create", ".", "."]),
    ("root", &["create", ".", ".."]),
    ("root", &["create", ".", "a/b"]),
    ("root", &["create", "file", "new"]),
    ("root", &["create-v2", "one", "inner"]),
    ("root", &["create", "read-only", "new"]),
    ("nobody", &["create", ".", "not-there"]),
    ("nobody", &["create", ".", "one"]),
    ("nobody", &["create", "open", "mine"]),
    ("nobody", &["create", "open/mine", "inner"]),
    ("nobody", &["destroy", "open", "mine"]),
    ("nobody", &["destroy", "open", "missing"]),
    ("nobody", &["destroy-v2", "open/mine", "inner"]),
    ("nobody", &["destroy-id", ".", "256"]),
    ("nobody", &["default", ".", "256"]),
    ("nobody", &["flags", "one", "2"]),
    ("nobody", &["flags", "open/mine"]),
    ("nobody", &["flags", "open/mine", "2"]),
    ("nobody", &["flags", "open/mine"]),
    ("root", &["create", "open/mine", "new"]),
    ("nobody", &["flags", "open/mine", "0"]),
    ("root", &["flags", "open/mine", "1024"]),
    ("root", &["flags", "open", "2"]),
    ("root", &["flags", "open"]),
    ("root", &["destroy", ".", "one"]),
    ("root", &["destroy", ".", "open"]),
    ("root", &["destroy", ".", "file"]),
    ("root", &["destroy", ".", "missing"]),
    ("root", &["destroy", "one", "inner"]),
    ("root", &["default", ".", "258"]),
    ("root", &["destroy-id", ".", "258"]),
    ("root", &["default", ".", "0"]),
    ("root", &["default", ".", "999"]),
    ("root", &["destroy-id", ".", "999"]),
    ("root", &["destroy-id", ".", "5"]),
    ("root", &["destroy-v2", ".", "one"]),
    ("root", &["create", ".", ""]),
    ("root", &["create-v2", ".", ""]),
    ("root", &["create-v2", ".", "."]),
    ("root", &["create-v2", ".", ".."]),
    ("root", &["create-v2", ".", "a/b"]),
    ("root", &["create", ".", LONGEST]),
    ("root", &["create", ".", LONGEST]),
    ("root", &["create", ".", TOO_LONG]),
    ("root", &["create-v2", ".", TOO_LONG]),
    ("root", &["create", ".", VERY_LONG]),
    ("root", &["destroy", ".", ""]),
    ("root", &["destroy", ".", "."]),
    ("root", &["destroy", ".", ".."]),
    ("root", &["destroy-v2", ".", "."]),
    ("root", &["destroy-v2", ".", ""]),
    ("root", &["destroy", ".", "a/b"]),
    ("root", &["destroy", ".", TOO_LONG]),
    ("root", &["destroy", ".", LONGEST]),
    ("root", &["destroy", "one", "."]),
    ("root", &["destroy", "one", ".."]),
    ("root", &["destroy-id", ".", "0"]),
    ("root", &["destroy-id", ".", "1"]),
    ("root", &["destroy-id", ".", "2"]),
    ("root", &["destroy-id", ".", "6"]),
    ("root", &["destroy-id", ".", "255"]),
    ("root", &["destroy-id", ".", "18446744073709551615"]),
    ("root", &["destroy-id", ".", "18446744073709551360"]),
    ("root", &["destroy-id", ".", "18446744073709551607"]),
    ("root", &["default", ".", "5"]),
    ("root", &["default", ".", "1"]),
    ("root", &["default", ".", "7"]),
    ("root", &["default", ".", "255"]),
    ("root", &["default", ".", "18446744073709551615"]),
    ("root", &["default", ".", "18446744073709551360"]),
    ("root", &["default", ".", "18446744073709551607"]),
    ("root", &["flags", ".", "2"]),
    ("root", &["flags", "file", "2"]),
    ("root", &["flags", "open/mine", "18446744073709551615"]),
    ("root", &["destroy", "file", "x"]),
    ("nobody", &["create", ".", "not-there"]),
    ("nobody", &["create-v2", ".", "not-there", "2"]),
    ("nobody", &["create-v2", "open", "not-there"]),
    ("nobody", &["destroy", "open", "mine"]),
    ("root", &["destroy", "open", "mine"]),
    ("root", &["flags", ".", "0"]),
    ("nobody", &["create-v2", ".", "not-there", "2"]),
    ("root", &["create-v2", ".", "frozen", "2"]),
    ("root", &["create-v2", ".", "frozen", "2"]),
    ("root", &["create", "frozen", "inner"]),
    ("root", &["flags", "frozen"]),
    ("nobody", &["create-v2", "open", "frozen", "2"]),
    ("nobody", &["flags", "open/frozen"]),
    ("root", &["create-v2", ".", "", "2"]),
    ("root", &["create-v2", ".", "new", "1"]),
    ("root", &["create-v2", ".", "new", "3"]),
    ("root", &["create-v2", ".", "new", "4"]),
    ("root", &["create-v2", ".", "new", "6"]),
    ("root", &["create-v2", ".", "new", "12"]),
    ("root", &["create-v2", ".", "frozen", "4"]),
    ("root", &["create-v2", ".", "new", "8"]),
    ("root", &["create-v2", ".", "new", "16"]),
    ("root", &["create-v2", ".", "new", "1024"]),
    ("root", &["destroy", ".", "frozen"]),
    ("root", &["destroy", "frozen", "inner"]),
    ("root", &["destroy", ".", "frozen"]),
    ("root", &["flags", "open", "1"]),
    ("root", &["flags", "open", "4"]),
    ("root", &["flags", "open", "1024"]),
    ("root", &["flags", "file", "18446744073709551615"]),
    ("root", &["flags", "file", "3"]),
    ("nobody", &["flags", "file", "4"]),
    ("nobody", &["flags", ".", "4"]),
    ("nobody", &["destroy-id", ".", "0"]),
    ("nobody", &["destroy-id", ".", "5"]),
    ("nobody", &["destroy-id", ".", "255"]),
    ("nobody", &["destroy-id", ".", "999"]),
    ("nobody", &["destroy-id", ".", "256"]),
    ("root", &["create", ".", "going"]),
    ("root", &["gone", "going", "going", "266"]),
    ("root", &["create-v2", ".", "going", "2"]),
    ("root", &["gone", "going", "going", "267"]),
    ("root", &["search-once", ".", "5", "256", "0", "255", "0"]),
    ("root", &["search-once", ".", "5", "256", "1", "1", "1"]),
    ("root", &["search-once", ".", "5", "256", "268", "340", "2"]),
    ("root", &["search-once", ".", "5", "256", "256", "256", "3"]),
    ("root", &["search-once", ".", "5", "256", "257", "257", "3"]),
    ("root", &["search-once", ".", "5", "256", "511", "255", "3"]),
    ("root", &["search-once", ".", "5", "256", "510", "511", "3"]),
    ("root", &["search-once", ".", "5", "256", "256", "4294967295", "2"]),
    ("root", &["search-once", ".", "5", "256", "255", "0", "3"]),
    ("root", &["search-once", ".", "999", "0", "0", "255", "3"]),
];

/// The answers of the controls in order, with all names, modes and owners after each.
fn changes(program: &Path, dir: &Path) -> Result<Vec<String>> {
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755))?;
    std::fs::write(dir.join("file"), "")?;
    std::fs::create_dir(dir.join("open"))?;
    std::fs::set_permissions(dir.join("open"), std::fs::Permissions::from_mode(0o777))?;
    let mut said = Vec::new();
    for (who, words) in CHANGES {
        let run = match who {
            "root" => Run::new(program),
            _ => Run::new("setpriv").args(AS_NOBODY).arg(program),
        };
        // The kernel has cached before whether the name exists.
        let named = words.get(2).map(|name| dir.join(words[1]).join(name));
        let before = named.as_ref().is_some_and(|path| path.exists());
        let answer = run.args(words).within(dir).ok()?.stdout_text();
        let after = named.as_ref().is_some_and(|path| path.exists());
        let mut all = Vec::new();
        for sub in [".", "one", "open", "open/mine"] {
            let Ok(listed) = names(&dir.join(sub)) else { continue };
            for name in listed {
                let meta = std::fs::symlink_metadata(dir.join(sub).join(&name))?;
                all.push(format!("{sub}/{name} {:o} {}:{}", meta.mode(), meta.uid(), meta.gid()));
            }
        }
        said.push(format!("{who} {words:?}: {} {before} {after} {all:?}", answer.trim()));
    }
    Ok(said)
}

fn controls_change(bench: &Bench) -> Result<()> {
    for_everybody(bench)?;
    let program = compile(bench)?;
    let (image, theirs) = (bench.scratch.file("disk.img"), bench.scratch.file("theirs.img"));
    for image in [&image, &theirs] {
        mkfs_empty(bench.creamery(), &[], "300M", image)?;
        subvolume(bench, &["create"]).arg(inside(image, "/read-only")).ok()?;
        bench
            .creamery()
            .run(["property", "set"])
            .arg(inside(image, "/read-only"))
            .args(["ro", "true"])
            .ok()?;
    }
    let kernel = LoopMount::mount(&theirs, &bench.scratch.file("kernel"), "noatime")?;
    let want = changes(&program, kernel.dir())?;
    kernel.unmount()?;
    let mount = FuseMount::mount(bench.creamery(), &image, &mount_point(bench), "allow_other")?;
    let found = changes(&program, mount.dir())?;
    let differ = want.iter().zip(&found).filter(|(want, found)| want != found);
    let differ: Vec<String> = differ.map(|(want, found)| format!("Linux: {want}\n ours: {found}")).collect();
    ensure!(differ.is_empty(), "{}", differ.join("\n"));
    // A request that a server cannot see is refused, and the log has advice.
    let said = Run::new(&program)
        .args(["snapshot", ".", "read-only", "copy"])
        .within(mount.dir())
        .ok()?
        .stdout_text();
    ensure!(said.trim() == "error 95", "{said}");
    let stats = bench.creamery().run(["stats", "--json"]).arg(mount.dir()).ok()?.stdout_text();
    let stats: serde_json::Value = serde_json::from_str(&stats)?;
    let log = std::fs::read_to_string(stats["log"].as_str().context("a log")?)?;
    ensure!(log.contains("creamery subvolume snapshot"), "the log: {log}");
    judge_mount(bench, &image, mount)
}

/// Linux and we report the same about one image.
fn controls_tell(bench: &Bench) -> Result<()> {
    for_everybody(bench)?;
    let program = compile(bench)?;
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "300M", &image)?;
    let kernel = LoopMount::mount(&image, &bench.scratch.file("kernel"), "noatime")?;
    let btrfs = |words: &[&str]| Run::new("btrfs").args(["-q", "subvolume"]).args(words).within(kernel.dir());
    std::fs::create_dir_all(kernel.dir().join("some/dir"))?;
    btrfs(&["create", "some/dir/one"]).ok()?;
    std::fs::create_dir_all(kernel.dir().join("some/dir/one/deep"))?;
    for number in 0..300 {
        std::fs::write(kernel.dir().join(format!("some/dir/one/deep/file {number}")), vec![7; number * 9])?;
    }
    btrfs(&["snapshot", "-r", "some/dir/one", "two"]).ok()?;
    Run::new("setfattr")
        .args(["-n", "user.large", "-v", &"v".repeat(3970)])
        .arg(kernel.dir().join("some"))
        .ok()?;
    kernel.unmount()?;
    let rows: [&[&str]; 18] = [
        &["info", "."],
        &["info", "some/dir"],
        &["info", "some/dir/one/deep"],
        &["info", "two"],
        &["filesystem", "two"],
        &["lookup", ".", "0", "256"],
        &["lookup", "some/dir/one/deep", "0", "256"],
        &["lookup", ".", "256", "257"],
        &["lookup", ".", "256", "270"],
        &["lookup", ".", "5", "99999"],
        &["lookup", ".", "999", "256"],
        &["search", ".", "1", "1000"],
        &["search", ".", "1", "3"],
        &["search", ".", "1", "0"],
        &["search", ".", "5", "1000"],
        &["search", "some/dir/one", "0", "100"],
        &["search", ".", "2", "7"],
        &["search", ".", "999", "7"],
    ];
    let tell = |dir: &Path| -> Result<Vec<String>> {
        let mut said = Vec::new();
        for row in rows {
            for who in [&[][..], &AS_NOBODY] {
                let run = if who.is_empty() {
                    Run::new(&program)
                } else {
                    Run::new("setpriv").args(who).arg(&program)
                };
                said.push(format!("{row:?} {who:?}: {}", run.args(row).within(dir).ok()?.stdout_text()));
            }
        }
        Ok(said)
    };
    let kernel = LoopMount::mount(&image, &bench.scratch.file("kernel"), "ro,noatime")?;
    let want = tell(kernel.dir())?;
    kernel.unmount()?;
    let mount = FuseMount::mount(bench.creamery(), &image, &mount_point(bench), "ro,allow_other")?;
    let found = tell(mount.dir())?;
    mount.unmount()?;
    for (want, found) in want.iter().zip(&found) {
        ensure!(want == found, "Linux: {want}\n ours: {found}");
    }
    Ok(())
}
