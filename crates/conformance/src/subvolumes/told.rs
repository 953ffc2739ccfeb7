//! Information about subvolumes: `creamery subvolume list`, `show`, `get-default`, `find-new` and `creamery property` of an image, compared
//! with btrfs-progs on a mount of it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, LoopMount, Run, btrfs_check};

use crate::support::{MOUNTED, expect_refusal, inside, mkfs_empty};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("subvolumes/told-as-linux-of-its-own", &MOUNTED, made_by_linux).long(),
        Case::new("subvolumes/told-as-linux-of-ours", &MOUNTED, made_by_us).long(),
        Case::new("subvolumes/told-refused", &MOUNTED, refused),
    ]
}

/// Options of `subvolume list`.
const LISTS: [&[&str]; 16] = [
    &[],
    &["-p"],
    &["-a"],
    &["-o"],
    &["-s"],
    &["-r"],
    &["-d"],
    &["-t"],
    &["-d", "-t"],
    &["-pcguqR"],
    &["-tpcguqR"],
    &["-t", "-s", "-u"],
    &["--sort=-gen"],
    &["--sort=-path,ogen"],
    &["-G", "+9", "-c"],
    &["-C", "-10"],
];

fn btrfs(words: &[&str]) -> Run {
    Run::new("btrfs").env("TZ", "UTC").args(words)
}

/// `IMAGE:/PATH` for a path of any bytes.
fn inside_bytes(image: &Path, path: &[u8]) -> OsString {
    let mut word = image.as_os_str().as_bytes().to_vec();
    word.extend_from_slice(b":/");
    word.extend_from_slice(path);
    OsString::from_vec(word)
}

fn expect_same_text(what: &str, linux: &[u8], ours: &[u8]) -> Result<()> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ensure!(linux == ours, "{what}: Linux says\n{}and we say\n{}", text(linux), text(ours));
    Ok(())
}

/// Compares all information about the subvolumes of an image; `paths` are some of them.
fn expect_told_alike(bench: &Bench, image: &Path, paths: &[&[u8]]) -> Result<()> {
    let mount = LoopMount::mount(image, &bench.scratch.file("told"), "ro,subvolid=5")?;
    let at = |path: &[u8]| mount.dir().join(OsStr::from_bytes(path));
    let mut said = Vec::new();
    let places = [&b""[..]].into_iter().chain(paths.iter().copied());
    for path in places.clone() {
        for options in LISTS {
            let words = [&["subvolume", "list"], options].concat();
            said.push((words.clone(), path, None, btrfs(&words).arg(at(path)).ok()?.stdout));
        }
        let words = vec!["subvolume", "show"];
        said.push((words.clone(), path, None, btrfs(&words).arg(at(path)).ok()?.stdout));
        for since in ["0", "9", "11", "1000000"] {
            let words = vec!["subvolume", "find-new"];
            said.push((
                words.clone(),
                path,
                Some(since),
                btrfs(&words).arg(at(path)).arg(since).ok()?.stdout,
            ));
        }
        let words = vec!["property", "get", "-ts"];
        let ro = btrfs(&words).arg(at(path)).arg("ro").ok()?.stdout;
        said.push((words, path, Some("ro"), ro));
    }
    let words = vec!["subvolume", "get-default"];
    let default = btrfs(&words).arg(mount.dir()).ok()?.stdout;
    mount.unmount()?;
    for (words, path, last, linux) in &said {
        let run = bench.creamery().run(words).arg(inside_bytes(image, path)).args(last.as_slice());
        let what = format!("{words:?} of {:?} {last:?}", OsStr::from_bytes(path));
        let ours = run.args(["--subvolid", "5"]).ok().with_context(|| what.clone())?;
        expect_same_text(&what, linux, &ours.stdout)?;
    }
    let ours = bench.creamery().run(&words).arg(image).ok()?;
    expect_same_text("get-default", &default, &ours.stdout)?;
    let mount = FuseMount::mount(bench.creamery(), image, &bench.scratch.file("told-live"), "ro,subvolid=5")?;
    for (words, path, last, linux) in &said {
        let run = bench.creamery().run(words).arg(mount.dir().join(OsStr::from_bytes(path)));
        let what = format!("{words:?} of {:?} {last:?} of a live mount", OsStr::from_bytes(path));
        expect_same_text(
            &what,
            linux,
            &run.args(last.as_slice()).ok().with_context(|| what.clone())?.stdout,
        )?;
    }
    let ours = bench.creamery().run(words).arg(mount.dir()).ok()?;
    expect_same_text("get-default of a live mount", &default, &ours.stdout)?;
    mount.unmount()
}

fn long_name() -> Vec<u8> {
    vec![b'n'; 255]
}

/// Subvolumes, snapshots, a received subvolume and one that is being deleted, all made by Linux.
fn made_by_linux(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "300M", &image)?;
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "noatime,compress-force=zstd")?;
    let at = |path: &[u8]| mount.dir().join(OsStr::from_bytes(path));
    std::fs::create_dir_all(at(b"dir/deep"))?;
    std::fs::create_dir(at(b"received"))?;
    let odd: &[u8] = b"odd \xff\xfe\ttab\"";
    for path in [&b"a"[..], b"a/b", b"dir/deep/c", b"a/b/ro", odd, &long_name(), b"gone"] {
        btrfs(&["-q", "subvolume", "create"]).arg(at(path)).ok()?;
    }
    std::fs::create_dir(at(b"a/d"))?;
    std::fs::write(at(b"a/inline"), "x".repeat(900))?;
    std::fs::write(at(b"a/d/large"), vec![7; 700_000])?;
    std::fs::hard_link(at(b"a/d/large"), at(b"a/second name"))?;
    Run::new("fallocate").args(["-l", "1M"]).arg(at(b"a/d/set aside")).ok()?;
    btrfs(&["filesystem", "sync"]).arg(mount.dir()).ok()?;
    btrfs(&["-q", "subvolume", "snapshot", "-r"]).arg(at(b"a")).arg(at(b"snapshot-ro")).ok()?;
    btrfs(&["-q", "subvolume", "snapshot"]).arg(at(b"a")).arg(at(b"dir/snapshot")).ok()?;
    let stream = bench.scratch.file("stream");
    btrfs(&["-q", "send", "-f"]).arg(&stream).arg(at(b"snapshot-ro")).ok()?;
    btrfs(&["-q", "receive", "-f"]).arg(&stream).arg(at(b"received")).ok()?;
    btrfs(&["property", "set"]).arg(at(b"a/b/ro")).args(["ro", "true"]).ok()?;
    std::fs::write(at(b"a/late"), "later")?;
    btrfs(&["-q", "subvolume", "set-default"]).arg(at(b"a/b")).ok()?;
    btrfs(&["filesystem", "sync"]).arg(mount.dir()).ok()?;
    // An open file keeps the subvolume in the list when the mount ends.
    let open = std::fs::File::create(at(b"gone/file"))?;
    btrfs(&["-q", "subvolume", "delete"]).arg(at(b"gone")).ok()?;
    btrfs(&["filesystem", "sync"]).arg(mount.dir()).ok()?;
    drop(open);
    mount.unmount()?;
    let long = long_name();
    let paths: [&[u8]; 8] =
        [b"a", b"a/b", b"a/b/ro", b"dir/snapshot", b"snapshot-ro", b"received/snapshot-ro", odd, &long];
    expect_told_alike(bench, &image, &paths)?;
    let received = || bench.creamery().run(["property", "set", "--subvolid=5"]);
    let refused = received().arg(inside(&image, "/received/snapshot-ro")).args(["ro", "false"]);
    expect_refusal(refused, &["received", "snapshot"])?;
    by_number_and_uuid(bench, &image)?;
    btrfs_check(&image)
}

/// `show` finds a subvolume by path, number and UUID.
fn by_number_and_uuid(bench: &Bench, image: &Path) -> Result<()> {
    let show = || bench.creamery().run(["subvolume", "show", "--subvolid=5"]);
    let by_path = show().arg(inside(image, "/a/b")).ok()?.stdout_text();
    let field = |name: &str| -> Result<String> {
        let line = by_path.lines().find_map(|line| line.trim().strip_prefix(name));
        Ok(line.context("a line of show")?.trim().to_owned())
    };
    for (option, value) in [("-r", field("Subvolume ID:")?), ("-u", field("UUID:")?)] {
        let found = show().args([option, &value]).arg(image).ok()?.stdout_text();
        ensure!(found == by_path, "{option} {value}: {found}");
    }
    Ok(())
}

/// Subvolumes and snapshots made by us.
fn made_by_us(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "300M", &image)?;
    let creamery = |words: &[&str]| bench.creamery().run(words);
    let odd: &[u8] = b"odd \xff\xfe\ttab\"";
    let long = long_name();
    for path in [&b"a"[..], b"a/b", b"dir/deep/c", odd, &long] {
        creamery(&["subvolume", "create", "-p"]).arg(inside_bytes(&image, path)).ok()?;
    }
    let file = bench.scratch.file("file");
    std::fs::write(&file, vec![7; 300_000])?;
    creamery(&["cp"]).arg(&file).arg(inside(&image, "/a/file")).ok()?;
    creamery(&["subvolume", "snapshot", "-r"]).arg(inside(&image, "/a")).arg("/snapshot").ok()?;
    creamery(&["subvolume", "snapshot"]).arg(inside(&image, "/a")).arg("/dir/writable").ok()?;
    creamery(&["cp"]).arg(&file).arg(inside(&image, "/dir/writable/new")).ok()?;
    creamery(&["property", "set"]).arg(inside(&image, "/a/b")).args(["ro", "true"]).ok()?;
    btrfs_check(&image)?;
    let paths: [&[u8]; 7] = [b"a", b"a/b", b"dir/deep/c", b"snapshot", b"dir/writable", odd, &long];
    expect_told_alike(bench, &image, &paths)?;
    creamery(&["subvolume", "set-default"]).arg(inside(&image, "/dir/deep/c")).ok()?;
    btrfs_check(&image)?;
    expect_told_alike(bench, &image, &[b"a"])?;
    creamery(&["subvolume", "set-default", "5"]).arg(&image).ok()?;
    let said = creamery(&["subvolume", "get-default"]).arg(&image).ok()?.stdout_text();
    ensure!(said == "ID 5 (FS_TREE)\n", "{said}");
    creamery(&["property", "set"]).arg(inside(&image, "/a/b")).args(["ro", "false"]).ok()?;
    creamery(&["subvolume", "create"]).arg(inside(&image, "/a/b/inner")).ok()?;
    btrfs_check(&image)
}

/// The words before the path, the path, the words after it, and the message.
type Refused<'a> = (&'a [&'a str], &'a str, &'a [&'a str], &'a [&'a str]);

fn refused(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "300M", &image)?;
    let creamery = |words: &[&str]| bench.creamery().run(words);
    let at = |path: &str| inside(&image, path);
    creamery(&["subvolume", "create"]).arg(at("/one")).ok()?;
    creamery(&["mkdir"]).arg(at("/dir")).ok()?;
    let file = bench.scratch.file("file");
    std::fs::write(&file, "")?;
    creamery(&["cp"]).arg(&file).arg(at("/file")).ok()?;
    let nobody = "11111111-1111-1111-1111-111111111111";
    let rows: [Refused; 14] = [
        (&["subvolume", "show"], "/dir", &[], &["/dir", "not the root of a subvolume"]),
        (&["subvolume", "show"], "/file", &[], &["/file", "not the root of a subvolume"]),
        (&["subvolume", "show"], "/nothing", &[], &["/nothing", "not found"]),
        (&["subvolume", "show", "-r", "999"], "/", &[], &["999", "not found"]),
        (&["subvolume", "show", "-u", nobody], "/", &[], &[nobody, "not found"]),
        (&["subvolume", "set-default"], "/dir", &[], &["/dir", "not the root of a subvolume"]),
        (&["subvolume", "set-default", "999"], "/", &[], &["999", "not found"]),
        (&["subvolume", "set-default", "x"], "/", &[], &["invalid subvolume ID 'x'", "--help"]),
        (&["subvolume", "find-new"], "/dir", &["0"], &["/dir", "not the root of a subvolume"]),
        (&["subvolume", "find-new"], "/one", &["x"], &["invalid", "--help"]),
        (&["subvolume", "list", "--sort=size"], "/", &[], &["gen, ogen, rootid or path", "--help"]),
        (&["subvolume", "create", "-i", "1"], "/new", &[], &["LEVEL/NUMBER", "--help"]),
        (&["subvolume", "snapshot", "-i", "x/1"], "/one", &["/new"], &["LEVEL/NUMBER", "--help"]),
        (&["property", "set"], "/dir", &["ro", "true"], &["/dir", "no property ro"]),
    ];
    for (words, path, last, said) in rows {
        let run = creamery(words).arg(at(path)).args(last);
        expect_refusal(run, said).with_context(|| format!("{words:?} {path} {last:?}"))?;
    }
    let dir = bench.scratch.dir("mount")?;
    expect_refusal(
        creamery(&["subvolume", "list"]).arg(&dir),
        &["not on a mount of an image", "not mounted"],
    )?;
    let json = creamery(&["subvolume", "list", "--json"]).arg(&image).ok()?.stdout_text();
    ensure!(json.contains("\"path\":\"one\""), "{json}");
    btrfs_check(&image)
}
