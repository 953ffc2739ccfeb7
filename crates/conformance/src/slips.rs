//! Slips of the user that must not cost data: an image named without a place in it, two sources of one name, a copy that fails, and
//! permissions of files that change their owner. Compared with coreutils where behaviour is equal.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::{Compare, Walk, expect_same};
use creamery_testkit::{FuseMount, Judge, LoopMount, Run, btrfs_check};

use crate::support::{
    JUDGED, MOUNTED, expect_refusal, expect_untouched, flip_byte, inside, mkfs_empty, sparse_file,
};

pub(crate) fn cases() -> Vec<Case> {
    let with = |tool| [&JUDGED[..], &[Judge::Tool(tool)]].concat();
    vec![
        Case::new(
            "slips/images-are-not-replaced",
            &[&MOUNTED[..], &[Judge::Tool("sfdisk")]].concat(),
            images,
        ),
        Case::new("slips/links-of-others-in-sticky-directories", &JUDGED, links_of_others),
        Case::new("slips/two-of-one-name", &JUDGED, two_of_one_name),
        Case::new("slips/a-failed-copy-keeps-what-was-there", &JUDGED, failed_copy),
        Case::new("slips/rights-of-copies", &with("setpriv"), rights),
        Case::new("slips/over-files-as-coreutils", &with("setfacl"), over_files),
        Case::new("slips/capabilities-end", &JUDGED, capabilities),
        Case::new("slips/behind-what-cannot-be-changed", &JUDGED, goes_on),
        Case::new("slips/made-as-on-linux", &with("setfacl"), made_as_on_linux),
    ]
}

fn image(bench: &Bench, name: &str) -> Result<PathBuf> {
    let image = bench.scratch.file(name);
    mkfs_empty(bench.creamery(), &[], "200M", &image)?;
    Ok(image)
}

/// Writes `content` to the file `path` in the image.
fn put(bench: &Bench, image: &Path, path: &str, content: &[u8]) -> Result<()> {
    bench.creamery().run(["cp", "-"]).arg(inside(image, path)).input(content).ok().map(drop)
}

fn images(bench: &Bench) -> Result<()> {
    let (one, other) = (image(bench, "one.img")?, image(bench, "other.img")?);
    put(bench, &one, "/f", b"one")?;
    let cp = |from: &Path, to: &Path| bench.creamery().run(["cp"]).arg(inside(from, "/f")).arg(to);
    let link = bench.scratch.file("link");
    std::os::unix::fs::symlink(&one, &link)?;
    for to in [&one, &link, &other] {
        let place = format!("{}:/", to.display());
        expect_untouched(&one, || {
            expect_untouched(&other, || expect_refusal(cp(&one, to), &["overwritten", &place]))
        })?;
    }
    let tar = |words: &[&str], to: &Path| {
        bench.creamery().run(["tar", "-c"]).args(words).arg("-f").arg(to).arg(inside(&one, "/f"))
    };
    expect_untouched(&other, || {
        expect_refusal(tar(&[], &other), &["holds a Btrfs", "overwritten", "--force"])
    })?;
    // An open image is not replaced, neither with force nor as one file of a folder.
    let mount = FuseMount::mount(bench.creamery(), &other, &bench.scratch.file("mount"), "")?;
    let forced = |to: &Path| bench.creamery().run(["cp", "-f"]).arg(inside(&one, "/f")).arg(to);
    expect_refusal(forced(&other), &["other.img", "in use"])?;
    put(bench, &one, "/other.img", b"a file of that name")?;
    let folder =
        bench.creamery().run(["cp", "-a", "-f"]).arg(inside(&one, "/other.img")).arg(bench.scratch.path());
    expect_refusal(folder, &["other.img", "in use"])?;
    fs::write(mount.dir().join("later"), "written later")?;
    mount.unmount()?;
    let later = bench.creamery().run(["cat"]).arg(inside(&other, "/later")).ok()?;
    ensure!(later.stdout == b"written later", "{later}");
    expect_refusal(forced(&one), &["one.img", "in use"])?;
    forced(&other).ok()?;
    ensure!(fs::read(&other)? == b"one", "what is asked for by force is done");
    let third = image(bench, "third.img")?;
    tar(&["--force"], &third).ok()?;
    let listed = bench.creamery().run(["tar", "-t", "-f"]).arg(&third).ok()?;
    ensure!(listed.stdout == b"f\n", "{listed}");

    let disk = bench.scratch.file("disk.raw");
    sparse_file(&disk, 480 << 20)?;
    let table = "label: gpt\nstart=1MiB, size=200MiB\nstart=201MiB, size=200MiB\n";
    Run::new("sfdisk").arg("-q").arg(&disk).input(table).ok()?;
    let part = |number: u32| PathBuf::from(format!("{}@{number}", disk.display()));
    bench.creamery().run(["mkfs", "-q"]).arg(part(2)).ok()?;
    put(bench, &part(2), "/f", b"on a disk")?;
    expect_untouched(&disk, || {
        expect_refusal(cp(&part(2), &disk), &["partition table", "overwritten"])?;
        expect_refusal(cp(&part(2), &part(2)), &["disk.raw@2", "is a partition"])?;
        expect_refusal(cp(&part(2), &part(1)), &["disk.raw@1", "is a partition"])
    })
}

/// In a directory where everybody may create names the kernel can refuse to follow links of other users (`protected_symlinks`); cp(1)
/// obeys.
fn links_of_others(bench: &Bench) -> Result<()> {
    const SETTING: &str = "/proc/sys/fs/protected_symlinks";
    let image = image(bench, "disk.img")?;
    put(bench, &image, "/f", b"new")?;
    let (sticky, own) = (bench.scratch.dir("sticky")?, bench.scratch.dir("own")?);
    fs::set_permissions(&sticky, fs::Permissions::from_mode(0o1777))?;
    let precious = own.join("precious");
    for dir in [&sticky, &own] {
        std::os::unix::fs::symlink(&precious, dir.join("link"))?;
        std::os::unix::fs::lchown(dir.join("link"), Some(1000), Some(1000))?;
    }
    let before = fs::read(SETTING)?;
    fs::write(SETTING, "1")?;
    let outcome = (|| {
        for (dir, is_followed) in [(&sticky, false), (&own, true)] {
            let to = dir.join("link");
            let runs = [
                Run::new("cp").arg("/proc/self/comm").arg(&to),
                bench.creamery().run(["cp"]).arg(inside(&image, "/f")).arg(&to),
                bench.creamery().run(["tar", "-c", "-f"]).arg(&to).arg(inside(&image, "/f")),
            ];
            for run in runs {
                fs::write(&precious, "precious")?;
                let finished = run.output()?;
                let is_replaced = fs::read(&precious)? != b"precious";
                ensure!(finished.code.is_some_and(|code| (code == 0) == is_followed), "{finished}");
                ensure!(is_replaced == is_followed, "{finished}");
                ensure!(to.symlink_metadata()?.is_symlink(), "the link stays: {finished}");
            }
        }
        Ok(())
    })();
    fs::write(SETTING, before)?;
    outcome
}

fn two_of_one_name(bench: &Bench) -> Result<()> {
    let image = image(bench, "disk.img")?;
    let at = |path: &str| inside(&image, path);
    bench.creamery().run(["mkdir"]).args(["/a", "/b", "/d"].map(at)).ok()?;
    put(bench, &image, "/a/f", b"one")?;
    put(bench, &image, "/b/f", b"two")?;
    let (folder, target) = (bench.scratch.dir("folder")?, bench.scratch.dir("target")?);
    let host = ["x", "y"].map(|name| folder.join(name));
    for (dir, text) in host.iter().zip(["three", "four"]) {
        fs::create_dir(dir)?;
        fs::write(dir.join("f"), text)?;
    }
    let content =
        |path: &str| Ok::<_, anyhow::Error>(bench.creamery().run(["cat"]).arg(at(path)).ok()?.stdout);
    let words = ["not overwriting the file just made in"];
    expect_refusal(bench.creamery().run(["cp"]).args(["/a/f", "/b/f"].map(at)).arg(&target), &words)?;
    ensure!(fs::read(target.join("f"))? == b"one", "the first one is there");
    expect_refusal(bench.creamery().run(["cp"]).args(host.map(|dir| dir.join("f"))).arg(at("/d")), &words)?;
    ensure!(content("/d/f")? == b"three", "the first one is there");
    expect_refusal(bench.creamery().run(["mv"]).args(["/a/f", "/b/f", "/d"].map(at)), &words)?;
    ensure!(content("/d/f")? == b"one" && content("/b/f")? == b"two", "both are there");
    expect_refusal(bench.creamery().run(["ln", "-f"]).args(["/d/f", "/b/f", "/a"].map(at)), &words)?;
    ensure!(content("/a/f")? == b"one", "the first one is there");
    btrfs_check(&image)
}

/// A source with a lost sector.
fn failed_copy(bench: &Bench) -> Result<()> {
    let (damaged, image) = (image(bench, "damaged.img")?, image(bench, "disk.img")?);
    let content = [7; 300 << 10];
    put(bench, &damaged, "/f", &content)?;
    put(bench, &image, "/f", b"what was there")?;
    let map = bench
        .creamery()
        .run(["filesystem", "fiemap", "--json"])
        .arg(inside(&damaged, "/f"))
        .ok()?
        .stdout_text();
    let physical = map.split("\"physical\":").nth(1).and_then(|text| text.split([',', '}']).next());
    let at: u64 = physical.unwrap_or_default().trim().parse()?;
    flip_byte(&damaged, at + (200 << 10))?;
    let copy = bench.creamery().run(["cp"]).arg(inside(&damaged, "/f")).arg(inside(&image, "/f"));
    expect_refusal(copy, &["damaged.img:/f", "checksum"])?;
    let list = bench.creamery().run(["ls", "-A"]).arg(inside(&image, "/")).ok()?.stdout_text();
    ensure!(list.trim() == "f", "nothing else is left: {list}");
    let kept = bench.creamery().run(["cat"]).arg(inside(&image, "/f")).ok()?;
    ensure!(kept.stdout == b"what was there", "{kept}");
    btrfs_check(&image)?;
    // Without room for both the old file is removed first, as with cp(1).
    let large = bench.scratch.file("large");
    fs::write(&large, vec![1; 60 << 20])?;
    for _ in 0..2 {
        bench.creamery().run(["cp"]).arg(&large).arg(inside(&image, "/large")).ok()?;
    }
    btrfs_check(&image)?;
    // Without room even then, nothing is removed.
    let larger = bench.scratch.file("larger");
    fs::write(&larger, vec![1; 160 << 20])?;
    expect_refusal(bench.creamery().run(["cp"]).arg(&larger).arg(inside(&image, "/f")), &["no space left"])?;
    let kept = bench.creamery().run(["cat"]).arg(inside(&image, "/f")).ok()?;
    ensure!(kept.stdout == b"what was there", "{kept}");
    // Nor where nothing may be removed.
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "")?;
    Run::new("sh").args(["-ec", "mkdir log; echo old > log/f; chattr +a log"]).within(mount.dir()).ok()?;
    mount.unmount()?;
    let refused = bench.creamery().run(["cp"]).arg("/proc/version").arg(inside(&image, "/log/f"));
    expect_refusal(refused, &["an append-only directory"])?;
    let list = bench.creamery().run(["ls", "-A"]).arg(inside(&image, "/log")).ok()?.stdout_text();
    ensure!(list.trim() == "f", "{list}");
    btrfs_check(&image)
}

/// A copy by another user than the owner grants no user the permissions of another one.
fn rights(bench: &Bench) -> Result<()> {
    let image = image(bench, "disk.img")?;
    let dir = bench.scratch.dir("dir")?;
    let program = bench.scratch.file("program");
    fs::write(&program, "x")?;
    chown(&program, Some(1000), Some(1000))?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o6755))?;
    let modes = |path: &str| {
        let json = bench.creamery().run(["stat", "--json"]).arg(inside(&image, path)).ok()?.stdout_text();
        Ok::<_, anyhow::Error>(["\"mode\":\"0755\"", "\"mode\":\"6755\""].map(|mode| json.contains(mode)))
    };
    bench.creamery().run(["cp"]).arg(&program).arg(inside(&image, "/plain")).ok()?;
    bench.creamery().run(["cp", "-a"]).arg(&program).arg(inside(&image, "/kept")).ok()?;
    bench.creamery().run(["cp"]).arg(inside(&image, "/kept")).arg(inside(&image, "/copied")).ok()?;
    ensure!(
        modes("/plain")? == [true, false] && modes("/copied")? == [true, false],
        "no rights of another one"
    );
    ensure!(modes("/kept")? == [false, true], "an archive keeps them");
    // Copies out of the image by an ordinary user. Such a user cannot make devices either.
    let own = dir.join("creamery");
    bench.creamery().copy_to(&own)?;
    [(&dir, 0o777), (&own, 0o755), (&image, 0o644)]
        .iter()
        .try_for_each(|(path, mode)| fs::set_permissions(path, fs::Permissions::from_mode(*mode)))?;
    let source = bench.scratch.dir("source")?;
    Run::new("mknod").arg(source.join("a-device")).args(["c", "1", "3"]).ok()?;
    Run::new("cp").arg("-a").arg(&program).arg(source.join("program")).ok()?;
    fs::write(source.join("z"), "behind it")?;
    bench.creamery().run(["cp", "-a"]).arg(&source).arg(inside(&image, "/")).ok()?;
    let user =
        || Run::new("setpriv").args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(&own);
    let out = user().args(["cp", "-a"]).arg(inside(&image, "/source")).arg(dir.join("out")).output()?;
    ensure!(out.code == Some(1) && out.stderr_text().contains("a-device: left out"), "{out}");
    ensure!(fs::read(dir.join("out/z"))? == b"behind it", "what is behind it is there");
    ensure!(fs::metadata(dir.join("out/program"))?.mode() & 0o7777 == 0o755, "no rights of another one");
    // A copy over a file is no more public than that file was.
    let secret = dir.join("secret");
    fs::write(&secret, "old")?;
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600))?;
    chown(&secret, Some(7), Some(8))?;
    bench.creamery().run(["cp"]).arg(inside(&image, "/plain")).arg(&secret).ok()?;
    let meta = fs::metadata(&secret)?;
    ensure!(fs::read(&secret)? == b"x" && meta.mode() & 0o7777 == 0o600, "{:o}", meta.mode());
    ensure!((meta.uid(), meta.gid()) == (7, 8), "it belongs to whom it belonged to");
    let script =
        "echo old > a; chmod 750 a; setfacl -m u:9:rwx a; setfattr -n user.k -v v a; setfacl -d -m u:10:rwx .
        echo old > b; setfacl -b b; chmod 640 b";
    let shared = bench.scratch.dir("shared")?;
    Run::new("sh").args(["-ec", script]).within(&shared).ok()?;
    let is = || Run::new("getfacl").args(["-n", "a", "b"]).within(&shared).ok().map(|is| is.stdout);
    let before = is()?;
    for name in ["a", "b"] {
        bench.creamery().run(["cp"]).arg(inside(&image, "/plain")).arg(shared.join(name)).ok()?;
        ensure!(fs::read(shared.join(name))? == b"x", "{name} is copied");
    }
    ensure!(is()? == before, "{}", Run::new("getfacl").args(["-n", "a", "b"]).within(&shared).ok()?);
    let kept = Run::new("getfattr").args(["--only-values", "-n", "user.k"]).arg(shared.join("a")).ok()?;
    ensure!(kept.stdout == b"v", "{kept}");
    Ok(())
}

/// Commands that copy over files of a directory, which replaces `@`.
const OVER_FILES: [&str; 12] = [
    "cp SOURCE @/a",
    "cp @/in-it @/b",
    "cp SOURCE @/link",
    "cp -r SOURCE @/d",
    "cp /proc/version @/e",
    "cp -a SOURCE @/f",
    "cp -a @/in-it @/g",
    "cp SOURCE @/of-all",
    "cp SOURCE @/plain/packed",
    "cp LARGE @/nocow",
    "cp LARGE @/packed",
    "cp @/large @/inside",
];

/// A file that is copied over keeps its owner and permissions. An incomplete copy never gets the name, so another name of the old file keeps the old
/// content here, but not with cp(1).
fn over_files(bench: &Bench) -> Result<()> {
    let (image, kernel) = (image(bench, "disk.img")?, bench.scratch.file("kernel"));
    let source = bench.scratch.file("source");
    fs::write(&source, "source")?;
    fs::set_permissions(&source, fs::Permissions::from_mode(0o640))?;
    chown(&source, Some(3), Some(4))?;
    let large = bench.scratch.file("large");
    fs::write(&large, "much the same ".repeat(100_000))?;
    let mount = LoopMount::mount(&image, &kernel, "")?;
    for side in ["ours", "theirs"] {
        let dir = mount.dir().join(side);
        let script = "for f in a b c d e f g; do echo old > $f; chown 7:8 $f; chmod 4751 $f; setfattr -n user.o -v old $f; done
            setfacl -m u:55:rwx a b; setfattr -n security.capability -v 0x0100000200040000000000000000000000000000 a
            ln -s c link; setfacl -d -m u:66:rwx .; touch of-all; cp -p SOURCE in-it
            mkdir plain; echo old > plain/packed; btrfs property set plain/packed compression zstd; chattr +C plain
            touch nocow packed inside; chattr +CAS nocow; chattr +C inside; chattr +cd packed; cp LARGE large"
            .replace("SOURCE", &source.display().to_string())
            .replace("LARGE", &large.display().to_string());
        fs::create_dir(&dir)?;
        Run::new("sh").args(["-ec", &script]).within(&dir).ok()?;
    }
    let words = |call: &str, at: &str| -> Vec<String> {
        let word = |word: &str| {
            let word = word.replace("@/", &format!("{at}/")).replace("SOURCE", &source.display().to_string());
            word.replace("LARGE", &large.display().to_string())
        };
        call.split(' ').map(word).collect()
    };
    for call in OVER_FILES {
        let theirs = words(call, &mount.dir().join("theirs").display().to_string());
        Run::new(&theirs[0]).args(&theirs[1..]).ok()?;
    }
    // With attributes kept, all are kept here, also extended ones.
    for name in ["f", "g"] {
        Run::new("setfattr").args(["-x", "user.o"]).arg(mount.dir().join("theirs").join(name)).ok()?;
    }
    fs::hard_link(mount.dir().join("ours/d"), mount.dir().join("other"))?;
    mount.unmount()?;
    for call in OVER_FILES {
        bench.creamery().run(words(call, &format!("{}:/ours", image.display()))).ok()?;
    }
    let mount = LoopMount::mount(&image, &kernel, "ro")?;
    ensure!(fs::read(mount.dir().join("other"))? == b"old\n", "the other name has the new content");
    let take = |side: &str| Walk::take(&mount.dir().join(side));
    let compare = Compare { mtime: false, ..Compare::default() };
    expect_same("ours beside coreutils", &take("ours")?, &take("theirs")?, &compare)?;
    expect_same_flags(mount.dir())?;
    mount.unmount()?;
    btrfs_check(&image)
}

/// Checks that `ours` and `theirs` have equal flags, and that data is written by them.
fn expect_same_flags(top: &Path) -> Result<()> {
    let flags = |side: &str| {
        let list = Run::new("lsattr").arg("-R").within(top.join(side)).ok()?.stdout_text();
        let lines: BTreeSet<String> = list.lines().map(str::to_owned).collect();
        Ok::<_, anyhow::Error>(lines)
    };
    let (ours, theirs) = (flags("ours")?, flags("theirs")?);
    ensure!(ours == theirs, "{ours:?}\n{theirs:?}");
    for (name, is_packed) in [("nocow", false), ("packed", true), ("inside", false)] {
        let map = Run::new("filefrag").arg("-v").arg(top.join("ours").join(name)).ok()?.stdout_text();
        ensure!(map.contains("encoded") == is_packed, "{name}: {map}");
    }
    Ok(())
}

/// Changing a program removes its capabilities, whichever user changes it.
fn capabilities(bench: &Bench) -> Result<()> {
    let (image, kernel) = (image(bench, "disk.img")?, bench.scratch.file("kernel"));
    let names = ["copied", "cut", "filled"];
    let mount = LoopMount::mount(&image, &kernel, "")?;
    for name in names {
        fs::write(mount.dir().join(name), "old")?;
        let may = ["-n", "security.capability", "-v", "0x0100000200040000000000000000000000000000"];
        Run::new("setfattr").args(may).arg(mount.dir().join(name)).ok()?;
    }
    mount.unmount()?;
    bench.creamery().run(["cp", "-"]).arg(inside(&image, "/copied")).input("another").ok()?;
    bench.creamery().run(["truncate", "-s", "1"]).arg(inside(&image, "/cut")).ok()?;
    bench.creamery().run(["fallocate", "-l", "8K"]).arg(inside(&image, "/filled")).ok()?;
    let mount = LoopMount::mount(&image, &kernel, "ro")?;
    ensure!(fs::read(mount.dir().join("copied"))? == b"another", "cp - copies");
    for name in names {
        let may = Run::new("getfattr").args(["-d", "-m", "-"]).arg(mount.dir().join(name)).ok()?;
        ensure!(may.stdout.is_empty(), "another program may what the old one could: {may}");
    }
    mount.unmount()?;
    btrfs_check(&image)
}

fn goes_on(bench: &Bench) -> Result<()> {
    let image = image(bench, "disk.img")?;
    let at = |path: &str| inside(&image, path);
    bench.creamery().run(["mkdir"]).args(["/h", "/h/a", "/h/c"].map(at)).ok()?;
    bench.creamery().run(["subvolume", "create"]).arg(at("/s")).ok()?;
    put(bench, &image, "/s/x", b"x")?;
    bench.creamery().run(["subvolume", "snapshot", "-r"]).args(["/s", "/h/b"].map(at)).ok()?;
    put(bench, &image, "/h/c/y", b"y")?;
    for words in [["chown", "5"], ["chmod", "o-rx"]] {
        let run = bench.creamery().run(words).arg("-R").arg(at("/h")).output()?;
        let lines = run.stderr_text().lines().count();
        ensure!(run.code == Some(1) && lines == 2, "the root of the snapshot, and what is in it: {run}");
    }
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "ro")?;
    for (path, uid, mode) in [("h", 5, 0o750), ("h/b", 0, 0o755), ("h/b/x", 0, 0o644), ("h/c/y", 5, 0o640)] {
        let meta = fs::metadata(mount.dir().join(path))?;
        ensure!((meta.uid(), meta.mode() & 0o777) == (uid, mode), "{path}: {} {:o}", meta.uid(), meta.mode());
    }
    mount.unmount()?;
    // Nothing is moved out of it, and an attempt leaves nothing behind.
    let to = ["/h/b/x", "/h/c"].map(at);
    expect_refusal(bench.creamery().run(["mv"]).args(to), &["/h/b/x", "read-only"])?;
    bench.creamery().run(["mkdir", "-p"]).arg(at("/h/c/x/full")).ok()?;
    bench.creamery().run(["mkdir"]).arg(at("/s/x2")).ok()?;
    let onto = bench.creamery().run(["mv", "-T"]).args(["/s/x2", "/h/c/x"].map(at));
    expect_refusal(onto, &["disk.img:/h/c/x", "not empty"])?;
    let list = bench.creamery().run(["ls", "-A1"]).arg(at("/h/c")).ok()?.stdout_text();
    ensure!(list == "x\ny\n", "{list}");
    btrfs_check(&image)
}

/// Directories with inherited attributes, and dangling links: compared with the kernel and coreutils.
fn made_as_on_linux(bench: &Bench) -> Result<()> {
    let image = image(bench, "disk.img")?;
    let kernel = bench.scratch.file("kernel");
    let source = bench.scratch.file("source");
    fs::write(&source, "source")?;
    fs::set_permissions(&source, fs::Permissions::from_mode(0o644))?;
    let mount = LoopMount::mount(&image, &kernel, "")?;
    for side in ["ours", "theirs"] {
        let dir = mount.dir().join(side);
        fs::create_dir(&dir)?;
        for name in ["group", "acl"] {
            fs::create_dir(dir.join(name))?;
        }
        chown(dir.join("group"), None, Some(50))?;
        fs::set_permissions(dir.join("group"), fs::Permissions::from_mode(0o2775))?;
        Run::new("setfacl").args(["-d", "-m", "u:55:rwx"]).arg(dir.join("acl")).ok()?;
        std::os::unix::fs::symlink("missing", dir.join("link"))?;
        std::os::unix::fs::symlink("group/there", dir.join("through"))?;
        fs::write(dir.join("group/there"), "there")?;
    }
    let calls = [
        "mkdir -p @/group/x/y",
        "mkdir @/group/plain",
        "mkdir @/acl/x",
        "mkdir -p @/acl/y",
        "touch @/group/touched",
        "touch @/acl/touched",
        "truncate -s 5 @/acl/sized",
        "touch @/link",
        "cp SOURCE @/group/copied",
        "cp SOURCE @/acl/copied",
        "cp SOURCE @/through",
        "cp /proc/version @/version",
    ];
    let words = |call: &str, at: &str| -> Vec<String> {
        let word = |word: &str| {
            word.replace("@/", &format!("{at}/")).replace("SOURCE", &source.display().to_string())
        };
        call.split(' ').map(word).collect()
    };
    for call in calls {
        let theirs = words(call, &mount.dir().join("theirs").display().to_string());
        Run::new(&theirs[0]).args(&theirs[1..]).ok()?;
    }
    mount.unmount()?;
    for call in calls {
        bench.creamery().run(words(call, &format!("{}:/ours", image.display()))).ok()?;
    }
    // cp makes no file at the target of a dangling link, on either side.
    bench.creamery().run(["ln", "-s", "nowhere"]).arg(inside(&image, "/ours/dangling")).ok()?;
    let dangling = inside(&image, "/ours/dangling");
    expect_refusal(
        bench.creamery().run(["cp"]).arg(&source).arg(&dangling),
        &["dangling", "dangling symbolic link"],
    )?;
    bench.creamery().run(["rm"]).arg(dangling).ok()?;
    bench.creamery().run(["mkdir", "-p"]).arg(inside(&image, "/ours/group/x/y/..")).ok()?;
    let mount = LoopMount::mount(&image, &kernel, "ro")?;
    let take = |side: &str| Walk::take(&mount.dir().join(side));
    let compare = Compare { mtime: false, root: false, ..Compare::default() };
    expect_same("ours beside coreutils", &take("ours")?, &take("theirs")?, &compare)?;
    mount.unmount()?;
    btrfs_check(&image)
}
