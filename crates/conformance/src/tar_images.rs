//! Images straight from archives: what the kernel finds in them is what GNU tar makes of the same archives.

use std::path::Path;

use anyhow::{Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::{Compare, Walk, expect_same};
use creamery_testkit::{Judge, LoopMount, Run, btrfs_check};

use crate::support::{JUDGED, expect_refusal, expect_untouched, judge, mkfs_empty};
use crate::tar::{ALL, Member, archive_of, tree};

const UUID: &str = "c0ffee00-1234-4abc-8def-0123456789ab";
const EPOCH: &str = "1700000000";

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("tar/mkfs-beside-gnu-tar", &[&JUDGED[..], &[Judge::Tool("zstd")]].concat(), beside_gnu_tar),
        Case::new("tar/mkfs-options", &JUDGED, options),
        Case::new("tar/mkfs-grows-with-what-is-in-it", &JUDGED, grows),
        Case::new("tar/mkfs-of-many-directories", &[Judge::Program, Judge::BtrfsProgs], many_directories),
        Case::new("tar/mkfs-is-all-or-nothing", &[Judge::Program, Judge::BtrfsProgs], all_or_nothing),
    ]
}

/// More than is kept in memory until the end: what is written on the way is the same each time, too.
fn many_directories(bench: &Bench) -> Result<()> {
    let (archive, text) = (bench.scratch.file("a.tar"), [b'x'; 1500]);
    let names: Vec<(String, String)> =
        (0..25_000).map(|number| (format!("{number}/"), format!("{number}/file"))).collect();
    let members: Vec<Member<'_>> = names
        .iter()
        .flat_map(|(dir, file)| [(&dir[..], b'5', "", &b""[..]), (&file[..], b'0', "", &text[..])])
        .collect();
    std::fs::write(&archive, archive_of(&members))?;
    let build = |name: &str| -> Result<Vec<u8>> {
        let image = bench.scratch.file(name);
        let mkfs = bench.creamery().run(["mkfs", "-q", "-U", UUID, "--shrink", "--from-tar"]).arg(&archive);
        mkfs.arg(&image).env("SOURCE_DATE_EPOCH", EPOCH).ok()?;
        let sum = Run::new("sha256sum").arg("-").input(std::fs::read(&image)?).ok()?.stdout;
        std::fs::remove_file(&image)?;
        Ok(sum)
    };
    ensure!(build("one.img")? == build("other.img")?, "the same archive makes two images");
    Ok(())
}

/// `tar -c` of all that is in a folder.
fn pack(source: &Path, archive: &Path) -> Result<()> {
    let tar = Run::new("tar").args(ALL).args(["--format=pax", "-S", "--sort=name", "-cf"]).arg(archive);
    tar.arg("-C").arg(source).arg(".").ok().map(drop)
}

fn beside_gnu_tar(bench: &Bench) -> Result<()> {
    let (source, want) = tree(bench)?;
    let plain = bench.scratch.file("a.tar");
    pack(&source, &plain)?;
    let out = bench.scratch.dir("out")?;
    Run::new("tar").args(ALL).arg("-xpf").arg(&plain).arg("-C").arg(&out).ok()?;
    let theirs = Walk::take(&out)?;
    let image = bench.scratch.file("disk.img");
    for packer in [None, Some("gzip"), Some("zstd")] {
        let archive = packer.map_or(Ok(plain.clone()), |packer| {
            let archive = bench.scratch.file(packer);
            let bytes = Run::new(packer).arg("-c").arg(&plain).ok()?.stdout;
            std::fs::write(&archive, bytes).map(|()| archive).map_err(anyhow::Error::from)
        })?;
        let said = bench.creamery().run(["mkfs", "-q", "--from-tar"]).arg(&archive).arg(&image).ok()?;
        ensure!(said.stderr.is_empty(), "{said}");
        judge(bench, &image, &theirs, &Compare::default())?;
        std::fs::remove_file(&image)?;
    }
    // GNU tar writes no hole that is smaller than a block.
    std::fs::remove_file(source.join("holes/only-small"))?;
    std::fs::remove_file(out.join("holes/only-small"))?;
    let loose = Compare { mtime: false, ..Compare::default() };
    ensure!(!want.is_empty(), "a tree with nothing in it");
    expect_same("GNU tar's copy", &Walk::take(&source)?, &Walk::take(&out)?, &loose)
}

fn options(bench: &Bench) -> Result<()> {
    let source = bench.scratch.dir("source")?;
    let script = "mkdir -p home/kim srv/data; echo x > home/kim/file; seq 200000 > srv/data/numbers; \
                  chown -R 7:8 home; touch -d @1800000000 home/kim/file; touch -d @1600000000 srv";
    Run::new("sh").args(["-e", "-c", script]).within(&source).ok()?;
    let archive = bench.scratch.file("a.tar");
    pack(&source, &archive)?;
    let build = |image: &Path, from: &str, input: Vec<u8>| {
        let words = ["mkfs", "-q", "-L", "system", "-U", UUID, "--shrink", "--compress", "zstd"];
        let run = bench.creamery().run(words).args(["--owner", "1:2", "--subvol", "ro:home/kim"]);
        let run = run.args(["--subvol", "default:home", "--from-tar", from]).arg(image).input(input);
        run.env("SOURCE_DATE_EPOCH", EPOCH).env("TMPDIR", bench.scratch.path()).ok()
    };
    let (one, other) = (bench.scratch.file("one.img"), bench.scratch.file("other.img"));
    build(&one, &archive.to_string_lossy(), Vec::new())?;
    // From a pipe it is the same image, byte for byte.
    build(&other, "-", std::fs::read(&archive)?)?;
    let same = Run::new("cmp").arg(&one).arg(&other).output()?;
    ensure!(same.code == Some(0), "from a pipe: {same}");
    ensure!(std::fs::metadata(&one)?.len() < 120 << 20, "it was not cut: {}", std::fs::metadata(&one)?.len());
    btrfs_check(&one)?;
    let mount = LoopMount::mount(&one, &bench.scratch.file("kernel"), "ro,subvolid=5")?;
    let listed = Run::new("btrfs").args(["subvolume", "list"]).arg(mount.dir()).ok()?.stdout_text();
    let paths: Vec<_> = listed.lines().filter_map(|line| line.split(" path ").nth(1)).collect();
    ensure!(paths == ["home", "home/kim"], "{listed}");
    let kim = mount.dir().join("home/kim");
    let ro = Run::new("btrfs").args(["property", "get"]).arg(&kim).arg("ro").ok()?.stdout_text();
    ensure!(ro.trim() == "ro=true", "{ro}");
    let show = |path: &Path| Run::new("stat").args(["-c", "%u:%g %X %Y %W"]).arg(path).ok();
    let file = show(&kim.join("file"))?.stdout_text();
    ensure!(file.trim() == format!("1:2 {EPOCH} {EPOCH} {EPOCH}"), "{file}");
    let srv = show(&mount.dir().join("srv"))?.stdout_text();
    ensure!(srv.trim() == format!("1:2 {EPOCH} 1600000000 {EPOCH}"), "{srv}");
    let label = Run::new("btrfs").args(["filesystem", "label"]).arg(mount.dir()).ok()?.stdout_text();
    ensure!(label.trim() == "system", "{label}");
    mount.unmount()?;
    let tree = Run::new("btrfs").args(["inspect-internal", "dump-tree", "-t", "5"]).arg(&one).ok()?;
    ensure!(tree.stdout_text().contains("compression 3 (zstd)"), "nothing is compressed");
    Ok(())
}

/// What is packed says nothing of how much it is, and a guess may be too low.
fn grows(bench: &Bench) -> Result<()> {
    let data = vec![b'x'; 300 << 20];
    let archive = archive_of(&[("large", b'0', "", &data)]);
    let image = bench.scratch.file("disk.img");
    let packed = Run::new("gzip").args(["-1", "-c"]).input(archive).ok()?.stdout;
    let run = bench.creamery().run(["mkfs", "-q", "--from-tar", "-"]).arg(&image).input(packed.clone());
    run.env("TMPDIR", bench.scratch.path()).ok()?;
    btrfs_check(&image)?;
    let size = bench.creamery().run(["ls", "-l"]).arg(&image).ok()?.stdout_text();
    ensure!(size.contains(&format!(" {} ", data.len())), "{size}");
    // A size that was asked for is kept, and told when it does not do.
    std::fs::remove_file(&image)?;
    let run = bench.creamery().run(["mkfs", "-b", "200M", "--from-tar", "-"]).arg(&image).input(packed);
    expect_refusal(run, &["the source does not fit into 209715200 bytes"])?;
    ensure!(!image.exists(), "an image that lacks something");
    Ok(())
}

/// What cannot be unpacked leaves no image.
fn all_or_nothing(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    let whole = archive_of(&[("first", b'0', "", b"1"), ("second", b'0', "", &[7; 4000])]);
    for (bytes, words) in [
        (archive_of(&[("../x", b'0', "", b"bad")]), &["../x", "contains '..'"][..]),
        (archive_of(&[("x", b'1', "nothing", b"")]), &["standard input: x: ", "not found"]),
        (whole[..2000].to_vec(), &["standard input", "within"]),
        (b"no archive".repeat(100), &["not a tar archive"]),
    ] {
        let run = bench.creamery().run(["mkfs", "--from-tar", "-"]).arg(&image).input(bytes);
        expect_refusal(run.env("TMPDIR", bench.scratch.path()), words)?;
        ensure!(!image.exists(), "{words:?}: an image is left");
    }
    let (taken, missing) = ("not a directory in the archives", "no archive has this directory");
    for (member, words) in [
        (("home", b'0', "", &b"1"[..]), taken),
        ((".wh.home", b'0', "", b""), missing),
        (("homes/x", b'0', "", b""), missing),
    ] {
        let run = bench.creamery().run(["mkfs", "--subvol", "home", "--oci-whiteouts", "--from-tar", "-"]);
        let run = run.arg(&image).input(archive_of(&[member])).env("TMPDIR", bench.scratch.path());
        expect_refusal(run, &["subvolume 'home'", words])?;
        ensure!(!image.exists(), "an image without its subvolume");
    }
    // Which of several it is, however it is packed.
    let (good, broken) = (bench.scratch.file("good.tar"), bench.scratch.file("broken.gz"));
    std::fs::write(&good, &whole)?;
    let mut packed = Run::new("gzip").arg("-c").input(whole).ok()?.stdout;
    let last = packed.len() - 6;
    packed[last] ^= 1;
    std::fs::write(&broken, packed)?;
    let archives =
        [&good, &broken].into_iter().flat_map(|archive| ["--from-tar".as_ref(), archive.as_os_str()]);
    let run = bench.creamery().run(["mkfs"]).args(archives).arg(&image);
    expect_refusal(run, &["broken.gz: "])?;
    ensure!(!image.exists(), "an image of half an archive");
    // A filesystem that is there stays, for the archives are looked through before it is overwritten; and where only unpacking shows that
    // something is wrong, the message says that it is gone.
    let old = bench.scratch.file("old.img");
    mkfs_empty(bench.creamery(), &["-L", "old"], "256M", &old)?;
    expect_untouched(&old, || {
        expect_refusal(
            bench.creamery().run(["mkfs", "-f", "--from-tar"]).arg(&broken).arg(&old),
            &["broken.gz: "],
        )
    })?;
    old_stays_before_a_subvolume(bench, &old)?;
    let out = archive_of(&[("../x", b'0', "", b"bad")]);
    let run = bench.creamery().run(["mkfs", "-f", "--from-tar", "-"]).arg(&old).input(out);
    let words = ["old.img: no filesystem is left there", "../x"];
    expect_refusal(run.env("TMPDIR", bench.scratch.path()), &words)?;
    // A file that no filesystem fits into is made longer, as by mkfs.btrfs.
    std::fs::write(&image, "hello")?;
    bench.creamery().run(["mkfs", "-q", "-f", "--from-tar"]).arg(&good).arg(&image).ok()?;
    btrfs_check(&image)?;
    for path in [image, good, broken, old] {
        std::fs::remove_file(path)?;
    }
    // Nothing of what came through a pipe stays.
    let left: Vec<_> = std::fs::read_dir(bench.scratch.path())?.collect();
    ensure!(left.is_empty(), "{left:?}");
    Ok(())
}

/// A filesystem stays where an archive has something else in the place of a subvolume.
fn old_stays_before_a_subvolume(bench: &Bench, old: &Path) -> Result<()> {
    for (subvolume, member) in
        [("home", ("home", b'0', "", &b"1"[..])), ("home/x", ("home", b'2', "to", b""))]
    {
        expect_untouched(old, || {
            let run = bench.creamery().run(["mkfs", "-f", "--subvol", subvolume, "--from-tar", "-"]);
            let run = run.arg(old).input(archive_of(&[member])).env("TMPDIR", bench.scratch.path());
            expect_refusal(run, &["subvolume 'home", "not a directory in the archives"])
        })?;
    }
    Ok(())
}
