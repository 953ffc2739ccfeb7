//! The tools for files, on an image and beside coreutils and findutils on a folder: what they do and say is the same.

use std::path::Path;

use anyhow::{Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::{Compare, Walk};
use creamery_testkit::{Judge, Run, btrfs_check};

use crate::support::{JUDGED, expect_refusal, inside, judge, mkfs_empty};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("file-tools/beside-coreutils", &JUDGED, beside_coreutils),
        Case::new("file-tools/find-beside-findutils", &[Judge::Program, Judge::Root], find),
        Case::new("file-tools/owners-by-the-images-names", &[Judge::Program, Judge::BtrfsProgs], owners),
        Case::new("file-tools/copies-of-pipes", &[Judge::Program, Judge::BtrfsProgs], pipes),
        Case::new("file-tools/moves-between-subvolumes", &JUDGED, between_subvolumes),
        Case::new("file-tools/a-failure-leaves-no-new-file", &[Judge::Program], no_new_file),
        Case::new("file-tools/label", &JUDGED, label),
        Case::new(
            "file-tools/deeper-than-files-may-be-open",
            &[Judge::Program, Judge::BtrfsProgs, Judge::Tool("prlimit"), Judge::Tool("python3")],
            deep,
        ),
        Case::new("file-tools/ls-beside-coreutils", &[Judge::Program, Judge::Root], ls),
    ]
}

/// What is called in turn: `@` is where the files are.
const CALLS: [&str; 47] = [
    "mkdir @/a",
    "mkdir @/a/b",
    "truncate -s 5000 @/a/f",
    "truncate -s +1K @/a/f",
    "truncate -s %4K @/a/g",
    "truncate -s <3 @/a/f",
    "truncate -s >70K @/a/f",
    "truncate -s /4096 @/a/f",
    "truncate -c -s 3 @/none",
    "touch -d @5.25 @/t",
    "touch -a -d @7 @/t",
    "touch -m -d @-3.5 @/t",
    "touch -c @/none",
    "touch -d 2026-11-25T18:00:00.123456789+01:00 @/u",
    "touch -r @/t @/v",
    "ln @/a/f @/a/hard",
    "ln @/a/f @/a/b",
    "ln -s a/f @/soft",
    "ln -s ../f @/a/b/deep",
    "ln -sf other @/soft",
    "ln -s a @/dir",
    "ln -s text @/dir",
    "ln -sfn a/b @/dir",
    "ln -sT x @/exactly",
    "touch -h -d @9 @/soft",
    "ln -t @/a/b @/t @/u",
    "chmod 4711 @/a/f",
    "chmod 2775 @/a/b",
    "chmod 755 @/a/b",
    "chmod g+w,o-rwx @/t",
    "chmod +x @/u",
    "chmod =rw @/v",
    "chmod -R u=rwX,go=rX @/a",
    "chmod -R a+X,+t @/a",
    "chmod u+s,g+s @/v",
    "chown 1000:2000 @/v",
    "chown :7 @/t",
    "chown -h 3 @/soft",
    "chown -R 5:6 @/a",
    "chown 1 @/dir",
    "mv @/t @/a",
    "mv @/a/t @/a/t2",
    "mv -n @/u @/v",
    "mv -f @/a/g @/v",
    "mv -T @/a/b @/moved",
    "mv -t @/moved @/exactly @/soft",
    "touch -h -d @11 @/moved/soft",
];

fn beside_coreutils(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let dir = bench.scratch.dir("dir")?;
    for call in CALLS {
        let words = |at: &str| -> Vec<String> {
            call.split(' ').map(|word| word.replace("@/", &format!("{at}/"))).collect()
        };
        bench.creamery().run(words(&format!("{}:", image.display()))).ok()?;
        let theirs = words(&dir.display().to_string());
        Run::new(&theirs[0]).args(&theirs[1..]).env("TZ", "UTC").ok()?;
    }
    let without_times = Compare { mtime: false, root: false, ..Compare::default() };
    judge(bench, &image, &Walk::take(&dir)?, &without_times)?;
    for name in ["/a/t2", "/moved/soft", "/moved/u"] {
        let json = bench.creamery().run(["stat", "--json"]).arg(inside(&image, name)).ok()?.stdout_text();
        let there = std::fs::symlink_metadata(dir.join(&name[1..]))?;
        let (sec, nsec) = mtime_of(&there);
        let date = Run::new("date").args(["-u", "-d"]).arg(format!("@{sec}")).arg("+%Y-%m-%dT%H:%M:%S");
        let date = format!("{}.{nsec:09}Z", date.ok()?.stdout_text().trim());
        ensure!(json.contains(&format!("\"mtime\":\"{}\"", date)), "{name}: {date} {json}");
    }
    // Each is refused on both sides, and nothing changes.
    for call in [
        "mv @/a @/a/inner",
        "mv @/v @/v",
        "mv @/a/f @/a/hard/x",
        "mv @/none @/a",
        "mv @/a @/v",
        "mv -T @/v @/a",
        "ln @/a @/b",
        "ln @/v @/a/hard",
        "ln -f @/a/f @/a/f",
        "ln -s x @/v",
        "chmod 644 @/none",
        "truncate -s 3 @/a",
        "mv -t @/v @/a @/moved",
    ] {
        let words = |at: &str| -> Vec<String> {
            call.split(' ').map(|word| word.replace("@/", &format!("{at}/"))).collect()
        };
        let ours = bench.creamery().run(words(&format!("{}:", image.display()))).output()?;
        ensure!(ours.code == Some(1) && ours.stderr_text().lines().count() >= 1, "{call}: {ours}");
        let theirs = words(&dir.display().to_string());
        let theirs = Run::new(&theirs[0]).args(&theirs[1..]).output()?;
        ensure!(theirs.code == Some(1), "{call}: {theirs}");
    }
    judge(bench, &image, &Walk::take(&dir)?, &without_times)
}

fn mtime_of(meta: &std::fs::Metadata) -> (i64, i64) {
    use std::os::unix::fs::MetadataExt;
    (meta.mtime(), meta.mtime_nsec())
}

/// A folder with something of each kind, and the same in an image.
fn some_files(bench: &Bench) -> Result<(std::path::PathBuf, std::path::PathBuf)> {
    let dir = bench.scratch.dir("dir")?;
    let script = "mkdir -p a/.hid/c empty Upper; printf 12345 > a/five; : > a/none; truncate -s 3M big.CONF; \
                  ln a/five a/.hid/other; ln -s a link; mkfifo pipe; mknod null c 1 3; printf x > 'new\nline'; \
                  printf y > \"$(printf 'bad\\377')\"; chmod 4755 a/five; chmod 600 a/none; chown 7:8 a/none; \
                  touch -d @100 a/none; touch -d @200 big.CONF; printf z > '[x]'";
    Run::new("sh").args(["-e", "-c", script]).within(&dir).ok()?;
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    bench.creamery().run(["cp", "-a"]).arg(dir.join(".")).arg(inside(&image, "/")).ok()?;
    Ok((dir, image))
}

fn find(bench: &Bench) -> Result<()> {
    let (dir, image) = some_files(bench)?;
    for words in [
        "",
        "-name *.CONF",
        "-iname *.conf",
        "-name .*",
        "-name \\[x\\]",
        "-path *a/*",
        "-type f",
        "-type d,l",
        "-type c -o -type p",
        "-size 5c",
        "-size +1M",
        "-size -2",
        "-perm 755",
        "-perm -4000",
        "-perm /6111",
        "-perm -u=x",
        "-uid 7",
        "-user 7",
        "-gid +7",
        "-group 8",
        "-type f -links 2",
        "-empty",
        "! -empty -type f",
        "-not ( -type f -o -type d )",
        "-maxdepth 1",
        "-mindepth 2 -type f",
        "-newer @/a/none -type f",
        "-print0",
    ] {
        let split = |at: &str| -> Vec<String> {
            words.split_whitespace().map(|word| word.replace("@/", &format!("{at}/"))).collect()
        };
        let ours = bench.creamery().run(["find"]).arg(inside(&image, "/")).args(split("")).ok()?.stdout;
        let theirs = Run::new("find").arg(dir.join("")).args(split(&dir.display().to_string())).ok()?.stdout;
        let end = if words == "-print0" { b'\0' } else { b'\n' };
        let prefix = dir.as_os_str().as_encoded_bytes().len();
        let mut theirs: Vec<&[u8]> = theirs.split(|&byte| byte == end).collect();
        for path in &mut theirs {
            if path.starts_with(dir.as_os_str().as_encoded_bytes()) {
                *path = &path[prefix..];
            }
        }
        let mut ours: Vec<&[u8]> = ours.split(|&byte| byte == end).collect();
        ours.sort();
        theirs.sort();
        ensure!(ours == theirs, "find {words}: {ours:?} and not {theirs:?}");
    }
    let json =
        bench.creamery().run(["find"]).arg(inside(&image, "/a")).args(["-name", "five", "--json"]).ok()?;
    ensure!(json.stdout_text().contains("\"path\":\"/a/five\""), "{json}");
    Ok(())
}

fn ls(bench: &Bench) -> Result<()> {
    let (dir, image) = some_files(bench)?;
    for (ours, theirs) in [("-A", "-A"), ("-a", "-a"), ("-1", "-A1"), ("-Ah", "-A")] {
        let said = bench.creamery().run(["ls", ours]).arg(inside(&image, "/")).ok()?;
        let want = Run::new("ls").arg(theirs).arg(&dir).env("LC_ALL", "C").ok()?;
        ensure!(said.stdout == want.stdout, "{ours}: {said} {want}");
    }
    let long = bench.creamery().run(["ls", "-lh"]).arg(inside(&image, "/big.CONF")).ok()?.stdout_text();
    ensure!(long.contains(" 3.0M "), "{long}");
    Ok(())
}

fn owners(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let creamery = |words: &str| bench.creamery().run(words.split(' ')).within(bench.scratch.path());
    creamery("mkdir disk.img:/etc").ok()?;
    creamery("touch disk.img:/f").ok()?;
    let none = creamery("chown ada disk.img:/f").output()?;
    ensure!(none.stderr_text().contains("has no /etc/passwd"), "{none}");
    creamery("cp - disk.img:/etc/passwd").input("root:x:0:0::/:/\nada:x:1234:99:Ada::\nbad:x:y:z\n").ok()?;
    creamery("cp - disk.img:/etc/group").input("root:x:0:\nmilk:x:77:ada\n").ok()?;
    for (owner, uid, gid) in [
        ("ada", 1234, 0),
        ("ada:", 1234, 99),
        (":milk", 1234, 77),
        ("0:5", 0, 5),
        ("root:root", 0, 0),
        ("4294967294:4294967294", 4_294_967_294_u64, 4_294_967_294_u64),
    ] {
        creamery(&format!("chown {owner} disk.img:/f")).ok()?;
        let said = creamery("stat disk.img:/f").ok()?.stdout_text();
        ensure!(said.contains(&format!("Uid: {uid}  Gid: {gid}\n")), "{owner}: {said}");
    }
    for owner in ["bob", "ada:bob", "bad", "1000:", "", "4294967295", "99999999999"] {
        let run = bench.creamery().run(["chown", owner]).arg(inside(&image, "/f")).output()?;
        ensure!(run.code == Some(1) && run.stderr_text().lines().count() == 1, "{owner}: {run}");
    }
    btrfs_check(&image)
}

fn pipes(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let at = image.display();
    let program = bench.creamery().path().display();
    let bash = |script: String| Run::new("bash").args(["-e", "-c", &script]).within(bench.scratch.path());
    bash(format!(
        "{program} cp <(seq 100000) {at}:/substituted; seq 100000 | {program} cp - {at}:/piped; mkfifo fifo; \
         seq 100000 > fifo & {program} cp fifo {at}:/read; {program} cp -r fifo {at}:/made; \
         {program} cp -p /etc/hostname {at}:/kept; {program} cp -f /etc/hostname {at}:/kept"
    ))
    .ok()?;
    let want = Run::new("seq").arg("100000").ok()?.stdout;
    for name in ["/substituted", "/piped", "/read"] {
        let have = bench.creamery().run(["cp"]).arg(inside(&image, name)).arg("-").ok()?.stdout;
        ensure!(have == want, "{name} has {} bytes", have.len());
    }
    let made = bench.creamery().run(["stat"]).arg(inside(&image, "/made")).ok()?.stdout_text();
    ensure!(made.contains("Type: fifo"), "{made}");
    bench.creamery().run(["chown", "7:8"]).arg(inside(&image, "/piped")).ok()?;
    bench.creamery().run(["cp", "-p"]).arg(inside(&image, "/piped")).arg(bench.scratch.file("out")).ok()?;
    bench.creamery().run(["cp", "-p"]).arg(inside(&image, "/piped")).arg(inside(&image, "/again")).ok()?;
    let again = bench.creamery().run(["stat"]).arg(inside(&image, "/again")).ok()?.stdout_text();
    ensure!(again.contains("Uid: 7  Gid: 8"), "{again}");
    crate::support::expect_refusal(
        bench.creamery().run(["cp", "-"]).arg(inside(&image, "/")),
        &["directory"],
    )?;
    btrfs_check(&image)
}

fn between_subvolumes(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "512M", &image)?;
    let (source, _) = crate::support::torture_source(bench)?;
    for name in ["/one", "/two"] {
        bench.creamery().run(["subvolume", "create"]).arg(inside(&image, name)).ok()?;
    }
    bench.creamery().run(["cp", "-a"]).arg(&source).arg(inside(&image, "/one")).ok()?;
    bench.creamery().run(["mv"]).arg(inside(&image, "/one/source")).arg(inside(&image, "/two")).ok()?;
    let listed = bench.creamery().run(["ls"]).arg(inside(&image, "/one")).ok()?.stdout_text();
    ensure!(listed.is_empty(), "{listed}");
    // A subvolume is moved as it is.
    bench.creamery().run(["mv"]).arg(inside(&image, "/two")).arg(inside(&image, "/one")).ok()?;
    btrfs_check(&image)?;
    let mount = creamery_testkit::LoopMount::mount(&image, &bench.scratch.file("kernel"), "ro")?;
    let want = Walk::take(&source)?;
    let have = Walk::take(&mount.dir().join("one/two/source"))?;
    creamery_testkit::walk::expect_same("what was moved", &want, &have, &Compare::default())?;
    mount.unmount()
}

fn label(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &["-L", "first"], "256M", &image)?;
    let ours = |words: &[&str]| bench.creamery().run(["filesystem", "label"]).arg(&image).args(words);
    let theirs = |words: &[&str]| Run::new("btrfs").args(["filesystem", "label"]).arg(&image).args(words);
    let same = |what: &str| -> Result<()> {
        let (ours, theirs) = (ours(&[]).ok()?.stdout_text(), theirs(&[]).ok()?.stdout_text());
        ensure!(ours == theirs && ours == format!("{what}\n"), "{ours} {theirs} {what}");
        btrfs_check(&image)
    };
    same("first")?;
    for label in ["zweiter \u{e4}", "", &"x".repeat(255)] {
        let said = ours(&[label]).ok()?;
        ensure!(said.stdout.is_empty() && theirs(&[label]).ok()?.stdout.is_empty(), "{said}");
        ours(&[label]).ok()?;
        same(label)?;
    }
    theirs(&["of theirs"]).ok()?;
    same("of theirs")?;
    for label in [&"x".repeat(256), "a\nb"] {
        crate::support::expect_refusal(ours(&[label]), &["label"])?;
    }
    bench.creamery().run(["property", "set"]).arg(&image).args(["label", "by property"]).ok()?;
    same("by property")?;
    let mount = creamery_testkit::LoopMount::mount(&image, &bench.scratch.file("kernel"), "rw")?;
    let told = Run::new("btrfs").args(["filesystem", "label"]).arg(mount.dir()).ok()?.stdout_text();
    ensure!(told == "by property\n", "{told}");
    std::fs::write(Path::new(mount.dir()).join("file"), "x")?;
    mount.unmount()?;
    same("by property")
}

/// Makes directories in directories, and a file in the last; no name of all that is short enough for the kernel.
const DEEP: &str = "import os, sys
os.chdir(sys.argv[1])
for _ in range(3000): os.mkdir('d'); os.chdir('d')
open('end', 'w').write('deep')";
/// Goes to the last, and takes all away again, which rm(1) does slowly.
const BACK: &str = "import os, sys
os.chdir(sys.argv[1])
for _ in range(3000): os.chdir('d')
assert open('end').read() == 'deep' and os.listdir() == ['end']
os.unlink('end')
for _ in range(3000): os.chdir('..'); os.rmdir('d')";

/// A copy holds the directories that it is in, and more of them than files may be open by the usual limit.
fn deep(bench: &Bench) -> Result<()> {
    let (image, tree) = (bench.scratch.file("disk.img"), bench.scratch.dir("tree")?);
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    Run::new("python3").args(["-c", DEEP]).arg(&tree).ok()?;
    let out = bench.scratch.dir("out")?;
    for places in [[tree.as_os_str(), &inside(&image, "/")], [&inside(&image, "/tree"), out.as_os_str()]] {
        let limited = Run::new("prlimit").arg("--nofile=256:4096").arg(bench.creamery().path());
        limited.args(["cp", "-a"]).args(places).ok()?;
    }
    for tree in [tree, out.join("tree")] {
        Run::new("python3").args(["-c", BACK]).arg(tree).ok()?;
    }
    bench.creamery().run(["rm", "-r"]).arg(inside(&image, "/tree")).ok()?;
    btrfs_check(&image)
}

/// A file that is made for a size it cannot have is not left behind, and one that was there before keeps its content.
fn no_new_file(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let run = |words: &[&str], path: &str| bench.creamery().run(words).arg(inside(&image, path));
    bench.creamery().run(["cp", "-"]).arg(inside(&image, "/old")).input("content").ok()?;
    for words in [&["truncate", "-s", "15E"][..], &["fallocate", "-l", "1T"]] {
        for path in ["/new", "/old"] {
            expect_refusal(run(words, path), &[path])?;
        }
        let listed = run(&["ls"], "/").ok()?.stdout_text();
        ensure!(listed == "old\n", "{words:?} leaves {listed:?}");
        let kept = run(&["cat"], "/old").ok()?;
        ensure!(kept.stdout == b"content", "{words:?}: {kept}");
    }
    Ok(())
}
