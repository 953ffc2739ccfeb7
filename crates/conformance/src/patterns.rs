//! Patterns in IMAGE:/PATH, beside a shell on a mount of the kernel.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{LoopMount, Run, btrfs_check};

use crate::support::{MOUNTED, expect_failure, expect_refusal, inside, mkfs_empty, mkfs_from};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("patterns/as-a-shell", &MOUNTED, as_a_shell),
        Case::new("patterns/of-every-command", &MOUNTED, of_every_command),
        Case::new("mkfs/rootdirs-with-targets", &MOUNTED, rootdirs_with_targets),
    ]
}

const NAMES: [&str; 14] = [
    "a.conf",
    "b.conf",
    ".hidden.conf",
    "x y",
    "B",
    "ab",
    "a]b",
    "a-b",
    "[ab",
    "\u{e9}t\u{e9}",
    "dir1/f",
    "dir2/f",
    "dir2/.g",
    "dir2/sub/f",
];

fn populate(dir: &Path) -> Result<()> {
    for name in NAMES {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().unwrap_or(dir))?;
        std::fs::write(path, name)?;
    }
    std::fs::write(dir.join(std::ffi::OsStr::from_bytes(b"bytes\xff")), "")?;
    std::os::unix::fs::symlink("dir2", dir.join("link"))?;
    Ok(std::os::unix::fs::symlink("nowhere", dir.join("dangling"))?)
}

fn as_a_shell(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let linux = LoopMount::mount(&image, &bench.scratch.file("kernel"), "")?;
    populate(linux.dir())?;
    let patterns = [
        "*",
        "*.conf",
        ".*.conf",
        "?",
        "??",
        "[ab]*",
        "[!ab]*",
        "[a-b].conf",
        "a[]-]b",
        "*b",
        "dir?/f",
        "dir*/*",
        "dir2/.*g",
        "*/f",
        "*/*/f",
        "link/*",
        "l*/*",
        "*/",
        "dang*",
        "x?y",
        "bytes?",
        "./dir?/f",
        "dir1/../dir?/f",
        "[[:upper:]]",
        "dir?/sub/../f",
    ];
    let mut wanted = Vec::new();
    for pattern in patterns {
        let script = format!("printf '/%s\\n' {pattern}");
        let run = Run::new("sh").args(["-c", &script]).env("LC_ALL", "C").within(linux.dir());
        wanted.push(run.ok()?.stdout);
    }
    linux.unmount()?;
    for (pattern, wanted) in patterns.iter().zip(wanted) {
        let found =
            bench.creamery().run(["ls", "-d"]).arg(inside(&image, &format!("/{pattern}"))).output()?;
        // A shell leaves what matches nothing as it is; "." and ".." are no names of ours.
        let wanted: Vec<&[u8]> =
            wanted.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
        let matched = wanted != [format!("/{pattern}").as_bytes()];
        let lines: Vec<&[u8]> =
            found.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
        let without_dot = |line: &[u8]| String::from_utf8_lossy(line).replacen("/./", "/", 1);
        let (found_names, wanted_names): (Vec<_>, Vec<_>) = (
            lines.iter().map(|line| without_dot(line)).collect(),
            wanted.iter().map(|line| without_dot(line)).collect(),
        );
        ensure!(matched == (found.code == Some(0)), "{pattern}: {found}");
        ensure!(
            !matched || found_names == wanted_names,
            "{pattern}: {found_names:?}, of sh {wanted_names:?}"
        );
    }
    Ok(())
}

/// Those that read, and `rm`; a name that is there as it is wins.
fn of_every_command(bench: &Bench) -> Result<()> {
    let source = bench.scratch.dir("source")?;
    populate(&source)?;
    std::fs::write(source.join("a*"), "literal")?;
    let image = bench.scratch.file("disk.img");
    mkfs_from(bench.creamery(), &["-b", "256M"], &source, &image)?;
    let run = |words: &[&str], path: &str| bench.creamery().run(words).arg(inside(&image, path));
    ensure!(run(&["cat"], "/?.conf").ok()?.stdout_text() == "a.confb.conf", "cat");
    ensure!(run(&["cat"], "/a*").ok()?.stdout_text() == "literal", "the literal name does not win");
    let target = bench.scratch.dir("target")?;
    run(&["cp"], "/*.conf").arg(&target).ok()?;
    for name in ["a.conf", "b.conf"] {
        ensure!(std::fs::read_to_string(target.join(name))? == name, "{name} was not copied");
    }
    ensure!(!target.join(".hidden.conf").exists(), "a hidden file was copied");
    // Several go into a directory, and into nothing else.
    expect_failure(run(&["cp"], "/*.conf").arg(bench.scratch.file("none")), &["several sources"])?;
    bench.creamery().run(["mkdir"]).arg(inside(&image, "/new")).ok()?;
    run(&["cp", "-r"], "/dir?").arg(inside(&image, "/new")).ok()?;
    let archive = bench.scratch.file("archive.tar");
    bench.creamery().run(["tar", "-c", "-f"]).arg(&archive).arg(inside(&image, "/dir?/f")).ok()?;
    let listed = Run::new("tar").args(["-t", "-f"]).arg(&archive).ok()?.stdout_text();
    ensure!(listed == "dir1/f\ndir2/f\n", "{listed}");
    let mut directory = OsString::from("-C");
    directory.push(inside(&image, "/dir2"));
    bench.creamery().run(["tar", "-c", "-f"]).arg(&archive).arg(directory).arg("s*").ok()?;
    let listed = Run::new("tar").args(["-t", "-f"]).arg(&archive).ok()?.stdout_text();
    ensure!(listed == "sub/\nsub/f\n", "{listed}");
    run(&["rm"], "/*.conf").ok()?;
    let left = run(&["ls"], "/").ok()?.stdout_text();
    ensure!(!left.contains("a.conf") && left.contains(".hidden.conf"), "{left}");
    for command in ["ls", "cat", "rm"] {
        expect_refusal(run(&[command], "/*.conf"), &["/*.conf", "no name matches"])?;
    }
    run(&["rm", "-f"], "/*.conf").ok()?;
    btrfs_check(&image)
}

/// What is merged on the host is what several sources make; a directory with a colon in its name wins.
fn rootdirs_with_targets(bench: &Bench) -> Result<()> {
    let (one, two, merged) =
        (bench.scratch.dir("one")?, bench.scratch.dir("two:/x")?, bench.scratch.dir("merged")?);
    populate(&one)?;
    std::fs::create_dir_all(one.join("srv/www"))?;
    std::fs::write(one.join("srv/www/index"), "old")?;
    std::fs::create_dir(two.join("deep"))?;
    std::fs::write(two.join("index"), "new")?;
    std::fs::write(two.join("deep/file"), "file")?;
    std::fs::hard_link(two.join("deep/file"), two.join("second"))?;
    let copy = |from: &Path, to: &Path| Run::new("cp").arg("-a").arg(from.join(".")).arg(to).ok().map(drop);
    copy(&one, &merged)?;
    copy(&two, &merged.join("srv/www"))?;
    std::fs::create_dir_all(merged.join("opt/app"))?;
    copy(&two, &merged.join("opt/app"))?;
    let image = bench.scratch.file("disk.img");
    let with_target = |dir: &Path, target: &str| {
        let mut text = dir.as_os_str().to_owned();
        text.push(target);
        text
    };
    let made =
        bench.creamery().run(["mkfs", "-q", "-b", "256M", "--subvol", "ro:opt/app", "--rootdir"]).arg(&one);
    let made = made.arg("--rootdir").arg(with_target(&two, ":/srv/www"));
    made.arg("--rootdir").arg(with_target(&two, ":/opt//./app/")).arg(&image).ok()?;
    btrfs_check(&image)?;
    let linux = LoopMount::mount(&image, &bench.scratch.file("kernel"), "ro")?;
    Run::new("diff").args(["-r", "--no-dereference"]).args([&merged, linux.dir()]).ok()?;
    let listed = Run::new("btrfs").args(["subvolume", "list", "-r"]).arg(linux.dir()).ok()?.stdout_text();
    ensure!(listed.contains("path opt/app"), "{listed}");
    linux.unmount()?;
    let other = bench.scratch.file("other.img");
    let refused = |dir: &Path, target: &str| {
        let run = bench.creamery().run(["mkfs", "-q", "-b", "256M", "--rootdir"]);
        run.arg(with_target(dir, target)).arg(&other)
    };
    expect_refusal(refused(&one, ":/../x"), &["contains \"..\""])?;
    expect_refusal(refused(&bench.scratch.file("none"), ":/x"), &["none"])?;
    // A file where another source has a directory.
    std::fs::write(one.join("clash"), "")?;
    let clash =
        bench.creamery().run(["mkfs", "-q", "-b", "256M", "--rootdir"]).arg(with_target(&two, ":/clash"));
    let clash = clash.arg("--rootdir").arg(&one).arg(&other);
    expect_refusal(clash, &["/clash is a directory", "give one of them another target"])?;
    ensure!(!other.exists(), "an image was made");
    Ok(())
}
