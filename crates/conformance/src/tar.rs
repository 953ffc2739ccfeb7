//! Archives, beside GNU tar: each program reads the other's archives, and nothing is lost.

use std::path::Path;

use anyhow::{Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::{Compare, Walk, expect_same};
use creamery_testkit::{FuseMount, Judge, Run, btrfs_check};

use crate::rescue::{FILES, SECTOR, damaged, source};
use crate::support::{JUDGED, MOUNTED, expect_refusal, inside, judge, mkfs_empty, mkfs_from, torture_source};

pub(crate) const TAR: [Judge; 4] = [Judge::Program, Judge::Root, Judge::BtrfsProgs, Judge::Tool("tar")];

/// Options with which GNU tar keeps as much as it can.
pub(crate) const ALL: [&str; 4] = ["--xattrs", "--xattrs-include=*", "--acls", "--numeric-owner"];

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("tar/read-by-gnu-tar", &TAR, read_by_gnu_tar),
        Case::new("tar/written-by-gnu-tar", &JUDGED, written_by_gnu_tar),
        Case::new("tar/read-and-written-by-us", &JUDGED, by_us),
        Case::new("tar/holes-of-all-formats", &JUDGED, holes),
        Case::new("tar/owners-of-any-size", &JUDGED, owners),
        Case::new("tar/listed-as-gnu-tar", &TAR, listed),
        Case::new("tar/hostile-archives", &TAR, hostile),
        Case::new("tar/packed", &TAR, packed),
        Case::new("tar/what-gnu-tar-adds", &TAR, what_gnu_tar_adds),
        Case::new("tar/one-member-ends-nothing", &JUDGED, one_member_ends_nothing),
        Case::new("tar/onto-an-image-in-use", &MOUNTED, onto_an_image_in_use),
        Case::new("tar/the-last-one-counts", &TAR, last_one_counts),
        Case::new("tar/cut-short-as-gnu-tar", &TAR, cut_short),
        Case::new("tar/ignore-errors", &JUDGED, ignore_errors),
    ]
}

/// The torture tree without sockets, which no archive holds.
pub(crate) fn tree(bench: &Bench) -> Result<(std::path::PathBuf, Walk)> {
    let (source, _) = torture_source(bench)?;
    Run::new("find").arg(&source).args(["-type", "s", "-delete"]).ok()?;
    let walk = Walk::take(&source)?;
    Ok((source, walk))
}

fn read_by_gnu_tar(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    let (source, _) = torture_source(bench)?;
    mkfs_from(bench.creamery(), &[], &source, &image)?;
    let archive = bench.scratch.file("a.tar");
    let said =
        bench.creamery().run(["tar", "-c", "-f"]).arg(&archive).arg("-C").arg(inside(&image, "/")).ok()?;
    let sockets = Run::new("find").arg(&source).args(["-type", "s"]).ok()?.stdout_text().lines().count();
    ensure!(said.stderr_text().matches("socket ignored").count() == sockets && sockets > 0, "{said}");
    Run::new("find").arg(&source).args(["-type", "s", "-delete"]).ok()?;
    let out = bench.scratch.dir("out")?;
    Run::new("tar").args(ALL).arg("-xpf").arg(&archive).arg("-C").arg(&out).ok()?;
    // Removing the sockets has changed their directories.
    let want = Walk::take(&source)?;
    let loose = Compare { mtime: false, ..Compare::default() };
    expect_same("what GNU tar made of it", &want, &Walk::take(&out)?, &loose)
}

fn written_by_gnu_tar(bench: &Bench) -> Result<()> {
    let (source, _) = tree(bench)?;
    // GNU tar writes no hole that is smaller than a block.
    std::fs::remove_file(source.join("holes/only-small"))?;
    let want = Walk::take(&source)?;
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "2G", &image)?;
    let archive = bench.scratch.file("a.tar");
    let tar = Run::new("tar").args(ALL).args(["--format=pax", "-S", "-cf"]).arg(&archive);
    tar.arg("-C").arg(&source).arg(".").ok()?;
    bench.creamery().run(["tar", "-x", "-f"]).arg(&archive).arg(inside(&image, "/")).ok()?;
    judge(bench, &image, &want, &Compare::default())
}

fn by_us(bench: &Bench) -> Result<()> {
    let (source, want) = tree(bench)?;
    let (one, other) = (bench.scratch.file("one.img"), bench.scratch.file("other.img"));
    mkfs_from(bench.creamery(), &[], &source, &one)?;
    mkfs_empty(bench.creamery(), &[], "2G", &other)?;
    let archive = bench.scratch.file("a.tar");
    for round in 0..2 {
        // Twice: existing files are replaced by equal ones.
        bench.creamery().run(["tar", "-c", "-f"]).arg(&archive).arg("-C").arg(inside(&one, "/")).ok()?;
        let said = bench.creamery().run(["tar", "-x", "-f"]).arg(&archive).arg(inside(&other, "/")).ok()?;
        ensure!(said.stderr.is_empty(), "round {round}: {said}");
    }
    judge(bench, &other, &want, &Compare::default())
}

fn holes(bench: &Bench) -> Result<()> {
    let dir = bench.scratch.dir("source")?;
    let script = "truncate -s 10M end; printf data | dd of=end conv=notrunc status=none; \
                  truncate -s 3G far; printf x | dd of=far bs=1 seek=2G conv=notrunc status=none; \
                  truncate -s 1M none; for i in $(seq 0 60); do \
                  printf %04096d $i | dd of=many bs=4096 seek=$((i * 3)) conv=notrunc status=none; done; \
                  printf all > all; : > empty";
    Run::new("sh").args(["-e", "-c", script]).within(&dir).ok()?;
    let want = Walk::take(&dir)?;
    for options in [
        &["--format=pax", "--sparse-version=1.0"][..],
        &["--format=pax", "--sparse-version=0.1"],
        &["--format=pax", "--sparse-version=0.0"],
        &["--format=gnu"],
    ] {
        let image = bench.scratch.file("disk.img");
        mkfs_empty(bench.creamery(), &["-f"], "512M", &image)?;
        let archive = bench.scratch.file("a.tar");
        Run::new("tar").args(options).args(["-Scf"]).arg(&archive).arg("-C").arg(&dir).arg(".").ok()?;
        bench.creamery().run(["tar", "-x", "-f"]).arg(&archive).arg(inside(&image, "/")).ok()?;
        let loose = Compare { mtime: options[0] != "--format=gnu", ..Compare::default() };
        judge(bench, &image, &want, &loose)?;
        std::fs::remove_file(&image)?;
    }
    Ok(())
}

/// Owners that do not fit into a header's digits, in both encodings, and invalid owners.
fn owners(bench: &Bench) -> Result<()> {
    let dir = bench.scratch.dir("source")?;
    for (number, owner) in [2_097_151_u32, 2_097_152, 4_000_000_000, u32::MAX - 1].into_iter().enumerate() {
        let file = dir.join(number.to_string());
        std::fs::write(&file, "x")?;
        std::os::unix::fs::chown(&file, Some(owner), Some(owner - 1))?;
    }
    let want = Walk::take(&dir)?;
    let archive = bench.scratch.file("a.tar");
    for format in ["--format=gnu", "--format=pax"] {
        let image = bench.scratch.file("disk.img");
        mkfs_empty(bench.creamery(), &[], "256M", &image)?;
        Run::new("tar").args([format, "-cf"]).arg(&archive).arg("-C").arg(&dir).arg(".").ok()?;
        bench.creamery().run(["tar", "-x", "-f"]).arg(&archive).arg(inside(&image, "/")).ok()?;
        let loose = Compare { mtime: format == "--format=pax", ..Compare::default() };
        judge(bench, &image, &want, &loose)?;
        std::fs::remove_file(&image)?;
    }
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let mut bytes = archive_of(&[("nobody", b'0', "", b"x"), ("fine", b'0', "", b"x")]);
    bytes[108..116].copy_from_slice(&(1_u64 << 63 | 5_000_000_000).to_be_bytes());
    bytes[148..156].fill(b' ');
    let sum: u32 = bytes[..512].iter().map(|&byte| u32::from(byte)).sum();
    bytes[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let said =
        bench.creamery().run(["tar", "-x", "-f", "-"]).arg(inside(&image, "/")).input(bytes).output()?;
    ensure!(said.code == Some(1) && said.stderr_text().contains("nobody: owner id 5000000000"), "{said}");
    let listed = bench.creamery().run(["ls"]).arg(inside(&image, "/")).ok()?.stdout_text();
    ensure!(listed == "fine\n", "{listed}");
    btrfs_check(&image)
}

/// Names and lines are those of GNU tar, including escapes in names that only a terminal would need.
fn listed(bench: &Bench) -> Result<()> {
    let dir = bench.scratch.dir("source")?;
    let script = "mkdir -p d/e; echo 1 > f; ln f h; ln -s f l; mkfifo p; mknod c c 5 1; mknod b b 8 300; truncate -s 3T big; \
                  chmod 6755 f; chmod 1777 d; touch -d 1960-01-01 d/e; touch -d @1700000000.5 p; chown 4000000:5000000 big; \
                  long=$(printf %0200d 7); echo x > $long; ln -s $long$long longer; seq 1000 > numbers; \
                  odd=$(printf 'a\\nb\\tc\\\\d \\033[31m\\177 \\001\\007\\010\\013\\014\\015 caf\\303\\251 \\377\\303 \\302\\205.'); \
                  ln -s \"$odd\" \"$odd\"; ln \"$odd\" \"$odd.2\"";
    Run::new("sh").args(["-e", "-c", script]).within(&dir).ok()?;
    let archive = bench.scratch.file("a.tar");
    for format in ["--format=pax", "--format=gnu"] {
        Run::new("tar").args([format, "-Scf"]).arg(&archive).arg("-C").arg(&dir).arg(".").ok()?;
        for words in [&["-t"][..], &["-t", "-v"]] {
            let theirs = Run::new("tar").args(["--numeric-owner", "-f"]).arg(&archive).args(words);
            let theirs = theirs.env("TZ", "UTC").env("LC_ALL", "C.UTF-8").ok()?.stdout_text();
            let ours = bench.creamery().run(["tar", "-f"]).arg(&archive).args(words).ok()?;
            ensure!(ours.stderr.is_empty() && ours.stdout_text() == theirs, "{theirs}\nand ours:\n{ours}");
        }
    }
    let json = bench.creamery().run(["tar", "-t", "--json", "-f"]).arg(&archive).ok()?.stdout_text();
    ensure!(json.matches("\"name\":").count() == 15, "{json}");
    ensure!(json.contains("\"type\":\"hard link\"") && json.contains("\"device\":[8,300]"), "{json}");
    // Members before the damage are listed.
    let bytes = std::fs::read(&archive)?;
    let half = bytes[..1100].to_vec();
    let cut = bench.creamery().run(["tar", "-t", "-f", "-"]).input(half).output()?;
    ensure!(cut.code == Some(1) && cut.stdout_text().starts_with("./\n"), "{cut}");
    ensure!(cut.stderr_text().lines().count() == 1 && cut.stderr_text().contains("within"), "{cut}");
    Ok(())
}

/// A member of an archive: name, kind, target of a link, data.
pub(crate) type Member<'a> = (&'a str, u8, &'a str, &'a [u8]);

pub(crate) fn archive_of(members: &[Member<'_>]) -> Vec<u8> {
    let mut archive = Vec::new();
    for (name, kind, link, data) in members {
        let mut header = [0; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        for (at, text) in [(100, "0000644"), (108, "0000000"), (116, "0000000"), (136, "00000000005")] {
            header[at..at + text.len()].copy_from_slice(text.as_bytes());
        }
        header[124..135].copy_from_slice(format!("{:011o}", data.len()).as_bytes());
        header[156] = *kind;
        header[157..157 + link.len()].copy_from_slice(link.as_bytes());
        header[257..265].copy_from_slice(b"ustar\x0000");
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        archive.extend_from_slice(&header);
        archive.extend_from_slice(data);
        archive.resize(archive.len().next_multiple_of(512), 0);
    }
    archive.resize(archive.len() + 1024, 0);
    archive
}

/// Rewrites a field of the member's header.
fn rewrite(archive: &mut [u8], name: &str, at: usize, field: &[u8]) {
    let name = [name.as_bytes(), b"\0"].concat();
    let headers = (0..archive.len()).step_by(512);
    let header = headers.into_iter().find(|&header| archive[header..].starts_with(&name)).expect("a member");
    archive[header + at..][..field.len()].copy_from_slice(field);
    archive[header + 148..header + 156].fill(b' ');
    let sum: u32 = archive[header..header + 512].iter().map(|&byte| u32::from(byte)).sum();
    archive[header + 148..header + 156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

fn hostile(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    for name in ["/secret", "/in"] {
        bench.creamery().run(["mkdir"]).arg(inside(&image, name)).ok()?;
    }
    bench.creamery().run(["cp", "-"]).arg(inside(&image, "/secret/key")).input("key").ok()?;
    let unpack = |members: &[Member<'_>]| {
        bench
            .creamery()
            .run(["tar", "-x", "-f", "-"])
            .arg(inside(&image, "/in"))
            .input(archive_of(members))
            .output()
    };
    let data = &b"bad"[..];
    let said = unpack(&[
        ("../secret/key", b'0', "", data),
        ("a/../../secret/key", b'0', "", data),
        ("out", b'2', "../secret", b""),
        ("out/key", b'0', "", data),
        ("far", b'2', "/secret", b""),
        ("far/key", b'0', "", data),
        ("hard", b'1', "../secret/key", b""),
        ("here", b'1', "/secret/key", b""),
        ("/absolute", b'0', "", b"fine"),
        ("loop", b'2', "loop", b""),
        ("loop/x", b'0', "", data),
        ("file", b'0', "", b"fine"),
        ("file/x", b'0', "", data),
    ])?;
    ensure!(said.code == Some(1) && said.stderr_text().lines().count() == 9, "{said}");
    let cat = |name: &str| bench.creamery().run(["cat"]).arg(inside(&image, name)).output();
    ensure!(cat("/secret/key")?.stdout_text() == "key", "it was written outside");
    ensure!(
        cat("/in/absolute")?.stdout_text() == "fine" && cat("/in/file")?.stdout_text() == "fine",
        "what is good"
    );
    let listed = bench.creamery().run(["ls"]).arg(inside(&image, "/secret")).ok()?.stdout_text();
    ensure!(listed == "key\n", "{listed}");
    // A link that leads outside is resolved below the directory, and the member is made there.
    let said = unpack(&[("secret/", b'5', "", b""), ("far/key", b'0', "", b"inside")])?;
    ensure!(said.code == Some(0) && cat("/in/secret/key")?.stdout_text() == "inside", "{said}");
    damaged_ones(bench, &image)?;
    btrfs_check(&image)
}

/// Damage ends the command with one line, and members before it are there.
fn damaged_ones(bench: &Bench, image: &Path) -> Result<()> {
    let whole = archive_of(&[("first", b'0', "", b"1"), ("second", b'0', "", &[7; 4000])]);
    let lying = |key: &str| {
        archive_of(&[("x", b'x', "", format!("{} {key}\n", key.len() + 4).as_bytes()), ("y", b'0', "", b"")])
    };
    let mut wrong_sum = whole.clone();
    wrong_sum[1024] ^= 1;
    for (bytes, word) in [
        (whole[..2000].to_vec(), "within"),
        (whole[..1100].to_vec(), "within"),
        (wrong_sum, "checksum"),
        (b"no archive".repeat(100), "not a tar archive"),
        (lying("size=99999999"), "within"),
        (lying("size=1x"), "not a number"),
        (archive_of(&[("rest", b'M', "", b"")]), "multi-volume"),
        (lying("GNU.sparse.map=1,2,3"), "sparse map"),
        (archive_of(&[("x", b'x', "", b"99 path=y\n"), ("y", b'0', "", b"")]), "record length"),
    ] {
        let run =
            bench.creamery().run(["tar", "-x", "-f", "-"]).arg(inside(image, "/in")).input(bytes).output()?;
        let stderr = run.stderr_text();
        ensure!(run.code == Some(1) && stderr.contains(word) && stderr.lines().count() == 1, "{word}: {run}");
    }
    let first = bench.creamery().run(["cat"]).arg(inside(image, "/in/first")).ok()?.stdout_text();
    ensure!(first == "1", "what came before is {first:?}");
    Ok(())
}

fn packed(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let archive = archive_of(&[("file", b'0', "", &[b'x'; 300_000])]);
    for (program, works) in [("gzip", true), ("zstd", true), ("xz", false), ("bzip2", false)] {
        if Run::new(program).arg("--version").output().is_err() {
            continue;
        }
        let bytes = Run::new(program).arg("-c").input(archive.clone()).ok()?.stdout;
        let unpack = |bytes: Vec<u8>| {
            bench.creamery().run(["tar", "-x", "-f", "-"]).arg(inside(&image, "/")).input(bytes).output()
        };
        let half = unpack(bytes[..bytes.len() / 2].to_vec())?;
        ensure!(half.code == Some(1), "{program}: {half}");
        // The checksum at the end, behind the last member.
        let mut wrong_sum = bytes.clone();
        let sum = wrong_sum.len() - 5;
        wrong_sum[sum] ^= 1;
        let wrong_sum = unpack(wrong_sum)?;
        ensure!(program != "gzip" || wrong_sum.code == Some(1), "{program}: {wrong_sum}");
        let run = unpack(bytes)?;
        if !works {
            ensure!(run.stderr_text().contains(&format!("{program} -dc FILE |")), "{run}");
            continue;
        }
        let size = bench.creamery().run(["cat"]).arg(inside(&image, "/file")).ok()?.stdout.len();
        ensure!(run.code == Some(0) && size == 300_000, "{program}: {size} {run}");
        bench.creamery().run(["rm"]).arg(inside(&image, "/file")).ok()?;
    }
    btrfs_check(&image)
}

fn ignore_errors(bench: &Bench) -> Result<()> {
    let (source, mut large) = source(bench)?;
    let image = damaged(bench, &source, &large)?;
    let archive = bench.scratch.file("a.tar");
    let tar = |words: &[&str]| {
        let run = bench.creamery().run(["tar", "-c", "-f"]).arg(&archive).args(words);
        run.arg("-C").arg(inside(&image, "/")).output()
    };
    let refused = tar(&[])?;
    ensure!(refused.code == Some(1) && refused.stderr_text().lines().count() == 1, "{refused}");
    let said = tar(&["--ignore-errors"])?;
    ensure!(said.code == Some(1) && said.stderr_text().contains("below/large: "), "{said}");
    let out = bench.scratch.dir("out")?;
    Run::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&out).ok()?;
    for sector in [0, 100, 101, 300] {
        let end = large.len().min((sector + 1) * SECTOR);
        large[sector * SECTOR..end].fill(0);
    }
    ensure!(std::fs::read(out.join("below/large"))? == large, "another content but for what is lost");
    ensure!(std::fs::read_to_string(out.join("below/deeper/last"))? == "the last one", "what is whole");
    let left = count(&out.join("many"))?;
    ensure!(left < FILES && left > FILES / 2, "{left} of {FILES}");
    Ok(())
}

fn count(dir: &Path) -> Result<usize> {
    Ok(std::fs::read_dir(dir)?.count())
}

/// Incremental archives and labels, both compressed, with further bytes behind.
fn what_gnu_tar_adds(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let source = bench.scratch.dir("source")?;
    std::fs::create_dir_all(source.join("d/e"))?;
    std::fs::write(source.join("d/f"), "1")?;
    std::fs::write(source.join("d/e/g"), "2")?;
    let archive = bench.scratch.file("archive");
    let snapshot = bench.scratch.file("snapshot");
    let snapshot = format!("--listed-incremental={}", snapshot.display());
    for (name, option) in [("incremental", &*snapshot), ("label", "--label=a label")] {
        let dir = inside(&image, &format!("/{name}"));
        bench.creamery().run(["mkdir"]).arg(&dir).ok()?;
        Run::new("tar").args([option, "-czf"]).arg(&archive).arg("-C").arg(&source).arg("d").ok()?;
        let mut bytes = std::fs::read(&archive)?;
        bytes.extend_from_slice(b"something that is no gzip");
        bench.creamery().run(["tar", "-x", "-f", "-"]).arg(&dir).input(bytes).ok()?;
        let list = bench.creamery().run(["find"]).arg(&dir).args(["-type", "f"]).ok()?.stdout_text();
        ensure!(
            list == format!("/{name}/d/e/g\n/{name}/d/f\n")
                || list == format!("/{name}/d/f\n/{name}/d/e/g\n"),
            "{list}"
        );
    }
    Ok(())
}

/// An archive onto a mounted image is refused: the mount would write into the archive.
fn onto_an_image_in_use(bench: &Bench) -> Result<()> {
    let (image, other) = (bench.scratch.file("disk.img"), bench.scratch.file("other.img"));
    for image in [&image, &other] {
        mkfs_empty(bench.creamery(), &[], "128M", image)?;
    }
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("mount"), "")?;
    let tar = bench.creamery().run(["tar", "-c", "-f"]).arg(&image).arg("-C").arg(inside(&other, "/"));
    expect_refusal(tar, &["disk.img", "in use"])?;
    std::fs::write(mount.dir().join("note"), "kept")?;
    mount.unmount()?;
    let note = bench.creamery().run(["cat"]).arg(inside(&image, "/note")).ok()?.stdout_text();
    ensure!(note == "kept", "{note}");
    Ok(())
}

/// Of two members for one directory, the last one's attributes count, also if another file has replaced another directory.
fn last_one_counts(bench: &Bench) -> Result<()> {
    let (source, archive) = (bench.scratch.dir("source")?, bench.scratch.file("a.tar"));
    let script = "mkdir d e; echo > d/f; chmod 777 d; touch -d @1000 d; tar -cf \"$0\" d e; \
                  chmod 700 d; touch -d @2000 d; rmdir e; echo > e; tar -rf \"$0\" d e";
    Run::new("sh").args(["-e", "-c", script]).arg(&archive).within(&source).ok()?;
    let (out, image) = (bench.scratch.dir("out")?, bench.scratch.file("disk.img"));
    Run::new("tar").arg("-xpf").arg(&archive).arg("-C").arg(&out).ok()?;
    let want = Walk::take(&out)?;
    bench.creamery().run(["mkfs", "-q", "--from-tar"]).arg(&archive).arg(&image).ok()?;
    let loose = Compare { root: false, ..Compare::default() };
    judge(bench, &image, &want, &loose)?;
    std::fs::remove_file(&image)?;
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    bench.creamery().run(["tar", "-x", "-f"]).arg(&archive).arg(inside(&image, "/")).ok()?;
    judge(bench, &image, &want, &loose)
}

/// An archive is reported as cut short where GNU tar says so, and in the middle of a header, too: everywhere but between two members.
fn cut_short(bench: &Bench) -> Result<()> {
    let bytes = archive_of(&[("a", b'0', "", &[b'a'; 700]), ("b", b'0', "", b"b"), ("c", b'1', "a", b"")]);
    let members = 1536 + 1024 + 512;
    for len in (0..=members).step_by(100).chain([1236, 1237, 1535, 1536, 1537, 2049, 2560, members]) {
        let gnu = Run::new("tar").args(["-tf", "-"]).input(bytes[..len].to_vec()).output()?;
        let ours = bench.creamery().run(["tar", "-t", "-f", "-"]).input(bytes[..len].to_vec()).output()?;
        ensure!(gnu.code == Some(0) || ours.code == Some(1), "{len}: {gnu}{ours}");
        ensure!((ours.code == Some(0)) == [1536, 2560, members].contains(&len), "{len}: {ours}");
    }
    Ok(())
}

/// An error of a member is reported for that member, and later members are unpacked.
fn one_member_ends_nothing(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let record = |key: &str, value: &str| {
        let rest = format!(" {key}={value}\n");
        let len = (rest.len()..).find(|len| len.to_string().len() + rest.len() == *len);
        format!("{}{rest}", len.unwrap_or_default()).into_bytes()
    };
    let (xattr, time) =
        (record("SCHILY.xattr.user.big", &"v".repeat(17_000)), record("mtime", "-9223372036854775808"));
    let mut bytes = archive_of(&[
        (".", b'0', "", b"no directory"),
        ("./PaxHeaders/x", b'x', "", &xattr),
        ("xattr", b'0', "", b"1"),
        ("./PaxHeaders/t", b'x', "", &time),
        ("time", b'0', "", b"2"),
        ("link", b'1', "last", b""),
        ("first", b'0', "", b"3"),
        ("device", b'3', "", b""),
        ("mode", b'0', "", b"4"),
        ("after", b'0', "", b"5"),
        ("dangling", b'2', "nowhere", b""),
        ("dangling/x", b'0', "", b"6"),
    ]);
    // A link in an old archive has the size of its target; the device and the mode do not exist on Linux.
    rewrite(&mut bytes, "link", 124, b"00000001130\0");
    rewrite(&mut bytes, "device", 329, b"0010001\0");
    rewrite(&mut bytes, "mode", 100, b"zzzzzzz\0");
    let said =
        bench.creamery().run(["tar", "-x", "-f", "-"]).arg(inside(&image, "/")).input(bytes).output()?;
    let lines = said.stderr_text();
    ensure!(said.code == Some(1) && lines.lines().count() == 8, "{said}");
    for words in [
        "tar: .: it would replace the target directory",
        "tar: xattr: the attribute",
        "tar: time: invalid time",
        "tar: link: ",
        "tar: device: device 4097:0",
        "tar: mode: invalid mode in a header",
        "tar: dangling/x: the link dangling is dangling: not found",
    ] {
        ensure!(lines.contains(words), "{words}: {said}");
    }
    let list = bench.creamery().run(["ls", "-A1"]).arg(inside(&image, "/")).ok()?.stdout_text();
    ensure!(list == "after\ndangling\nfirst\nxattr\n", "{list}");
    let nothing =
        bench.creamery().run(["tar", "-x", "-f", "-"]).arg(inside(&image, "/")).input("").output()?;
    ensure!(nothing.code == Some(1) && nothing.stderr_text().contains("it is empty"), "{nothing}");
    btrfs_check(&image)
}
