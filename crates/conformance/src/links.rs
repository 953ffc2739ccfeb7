//! The program under the names of other programs, called as scripts and image builders call these.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Judge, LoopMount, Run, btrfs_check};

use crate::support::{MOUNTED, expect_refusal, inside, mkfs_empty};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("links/btrfs", &MOUNTED, btrfs),
        Case::new("links/format-json", &MOUNTED, format_json),
        Case::new("links/abbreviated", &MOUNTED, abbreviated),
        Case::new("links/words-of-delete", &MOUNTED, words_of_delete),
        Case::new("links/systemd-repart", &MOUNTED, systemd_repart),
        Case::new("links/mkosi", &[Judge::Program, Judge::Fuse], mkosi),
    ]
}

/// The program under another name.
fn link(bench: &Bench, name: &str) -> Result<PathBuf> {
    let link = bench.scratch.file(name);
    symlink(bench.creamery().path(), &link)?;
    Ok(link)
}

/// `btrfs --format json` of a mount of the kernel, and ours of the image: equal except for the reserve that only a kernel has.
fn format_json(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let linux = LoopMount::mount(&image, &bench.scratch.file("mount"), "")?;
    let dir = linux.dir().to_owned();
    let said = |program: &Path, words: &str, place: &Path| -> Result<serde_json::Value> {
        let run = Run::new(program).args(["--format", "json"]).args(words.split(' ')).arg(place).ok()?;
        Ok(serde_json::from_str(&run.stdout_text())?)
    };
    Run::new("btrfs").args(["quota", "enable"]).arg(&dir).ok()?;
    Run::new("btrfs").args(["subvolume", "create"]).arg(dir.join("a")).ok()?;
    fs::write(dir.join("a/file"), vec![7; 2_000_000])?;
    Run::new("btrfs").args(["qgroup", "limit", "10M"]).arg(dir.join("a")).ok()?;
    creamery_testkit::sync_filesystem(&dir)?;
    Run::new("btrfs").args(["quota", "rescan", "-w"]).arg(&dir).ok()?;
    let linux = linux.again_read_only(&image)?;
    let commands = ["filesystem df", "qgroup show"];
    let theirs: Vec<_> =
        commands.iter().map(|words| said("btrfs".as_ref(), words, &dir)).collect::<Result<_>>()?;
    linux.unmount()?;
    let link = link(bench, "btrfs")?;
    for (words, mut theirs) in commands.iter().zip(theirs) {
        if let Some(groups) = theirs.get_mut("filesystem-df").and_then(serde_json::Value::as_array_mut) {
            groups.retain(|group| group["bg-type"] != "GlobalReserve");
        }
        let ours = said(&link, words, &image)?;
        ensure!(ours == theirs, "{words}: {ours:#}\nbtrfs-progs: {theirs:#}");
    }
    expect_refusal(Run::new(&link).args(["--format", "json", "sub", "list"]).arg(&image), &["unsupported"])
}

/// Equal calls of btrfs-progs' `btrfs`, and of ours, print equal output.
fn btrfs(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let dir = bench.scratch.file("mount");
    let linux = LoopMount::mount(&image, &dir, "")?;
    let said = |program: &str, words: &str, place: &str| {
        let run = Run::new(program).args(words.split_whitespace()).arg(place);
        run.ok().map(|finished| finished.stdout_text())
    };
    let place = dir.display().to_string();
    said("btrfs", "sub cr", &format!("{place}/a"))?;
    said("btrfs", "quo ena", &place)?;
    said("btrfs", "quo resc -w", &place)?;
    fs::write(dir.join("a/file"), vec![7; 200_000])?;
    said("btrfs", "sub sn -r", &format!("{place}/a"))
        .err()
        .map_or_else(|| anyhow::bail!("a snapshot without a name was taken"), |_| Ok(()))?;
    Run::new("btrfs").args(["subvolume", "snapshot", "-r"]).args([dir.join("a"), dir.join("s")]).ok()?;
    let linux = linux.again_read_only(&image)?;
    let words = [
        "sub l",
        "sub l -puq",
        "subvolume get-default",
        "qg s -re --raw",
        "--format text qg sh",
        "-q su list -o",
    ];
    let wanted: Vec<String> =
        words.iter().map(|words| said("btrfs", words, &place)).collect::<Result<_>>()?;
    linux.unmount()?;
    let ours = link(bench, "btrfs")?;
    let ours = ours.to_str().unwrap_or_default();
    let mount = FuseMount::mount(bench.creamery(), &image, &dir, "")?;
    for (words, wanted) in words.iter().zip(wanted) {
        let found = said(ours, words, &place)?;
        // In place of the plural "s", btrfs-progs 6.14 prints a zero byte for a count of one.
        let wanted = wanted.replace('\0', "");
        ensure!(found == wanted, "{words}: ours is\n{found}btrfs-progs' is\n{wanted}");
    }
    let quiet = said(ours, "-q sub cr", &format!("{place}/quiet"))?;
    ensure!(quiet.is_empty() && dir.join("quiet").is_dir(), "-q: {quiet}");
    let told = said(ours, "sub del", &format!("{place}/quiet"))?;
    ensure!(told.contains("Delete subvolume") && !dir.join("quiet").exists(), "{told}");
    said(ours, "fi sync", &place)?;
    mount.unmount()?;
    let image = image.display().to_string();
    for words in ["inspect-internal dump-super -f", "ins dump-t -t chunk"] {
        let (found, wanted) = (said(ours, words, &image)?, said("btrfs", words, &image)?);
        let without_version = |text: &str| {
            text.lines()
                .filter(|line| !line.starts_with("btrfs-progs"))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        ensure!(without_version(&found) == without_version(&wanted), "{words}: ours is\n{found}");
    }
    said(ours, "check", &image)?;
    let version = Run::new(ours).arg("version").ok()?.stdout_text();
    ensure!(version.starts_with("btrfs, part of creamery"), "{version}");
    alone(ours)?;
    refusals(ours)
}

/// Without an operand both print a list of commands on standard output, and end with 1; ours lists those names of btrfs-progs that it has.
fn alone(ours: &str) -> Result<()> {
    let told = |program: &str, words: &[&str], status| {
        let told = Run::new(program).args(words).output()?;
        ensure!(told.code == Some(status), "{words:?}: {told}");
        let name = |line: &str| line.strip_prefix("  ")?.split_whitespace().next().map(str::to_owned);
        Ok(told.stdout_text().lines().filter_map(name).filter(|name| !name.starts_with('-')).collect())
    };
    let (have, theirs): (Vec<String>, Vec<String>) = (told(ours, &[], 1)?, told("btrfs", &[], 1)?);
    ensure!(told(ours, &["-v"], 1)? == have && told(ours, &["help"], 0)? == have, "{have:?}");
    ensure!(have.iter().all(|name| theirs.contains(name)), "{have:?} and {theirs:?}");
    for name in theirs.iter().filter(|name| !have.contains(name)) {
        let missing = Run::new(ours).args([name, "start"]).output()?;
        ensure!(missing.stderr_text().contains("is not part of creamery"), "{name}: {missing}");
    }
    Ok(())
}

/// Long options may be abbreviated to an unambiguous prefix; an ambiguous one is refused with the same status.
fn abbreviated(bench: &Bench) -> Result<()> {
    let (mkfs, btrfs) = (link(bench, "mkfs.btrfs")?, link(bench, "btrfs")?);
    let image = bench.scratch.file("disk.img");
    for (words, is_clear) in [
        (&["--lab", "x", "--qui"][..], true),
        (&["--lab=y", "--forc", "--met", "single", "--nodis"], true),
        (&["--forc", "--s", "4096"], false),
        (&["--forc", "--nod"], false),
        (&["--forc", "--unknown"], false),
    ] {
        for program in [&mkfs, Path::new("mkfs.btrfs")] {
            let _ = fs::remove_file(&image);
            fs::File::create_new(&image)?.set_len(300 << 20)?;
            let done = Run::new(program).args(words).arg(&image).output()?;
            ensure!(done.code == Some(if is_clear { 0 } else { 1 }), "{words:?}: {done}");
        }
    }
    mkfs_empty(bench.creamery(), &["--force"], "256M", &image)?;
    let told = |words: &[&str]| Run::new(&btrfs).args(words).arg(&image).ok().map(|done| done.stdout_text());
    ensure!(told(&["fi", "df", "--ra"])? == told(&["fi", "df", "--raw"])?, "an option of `btrfs`");
    expect_refusal(bench.creamery().run(["filesystem", "df", "--ra"]).arg(&image), &["--ra"])
}

/// The output of btrfs-progs' `subvolume delete` on a mount of the kernel, and of ours on one of ours.
fn words_of_delete(bench: &Bench) -> Result<()> {
    let ours = link(bench, "btrfs")?;
    let mut told = Vec::new();
    for program in [Path::new("btrfs"), &ours] {
        let (image, dir) = (bench.scratch.file("disk.img"), bench.scratch.file("mount"));
        mkfs_empty(bench.creamery(), &["--force"], "256M", &image)?;
        let (linux, mount) = match program == ours {
            false => (Some(LoopMount::mount(&image, &dir, "")?), None),
            true => (None, Some(FuseMount::mount(bench.creamery(), &image, &dir, "")?)),
        };
        let mut said = String::new();
        for name in ["a", "b", "c", "d", "e", "e/in", "e/in/most"] {
            Run::new(program).args(["-q", "subvolume", "create"]).arg(dir.join(name)).ok()?;
        }
        let place = dir.display().to_string();
        for words in
            [&["a"][..], &["-c", "./b"], &["-i", "258", "."], &["-C", "-i", "259", &place], &["-R", "e"]]
        {
            let run = Run::new(program).within(&dir).args(["subvolume", "delete"]).args(words);
            said += &run.ok()?.stdout_text();
        }
        told.push(said);
        linux.map_or(Ok(()), LoopMount::unmount)?;
        mount.map_or(Ok(()), FuseMount::unmount)?;
    }
    ensure!(told[0] == told[1] && told[0].lines().count() == 7, "btrfs-progs\n{}ours\n{}", told[0], told[1]);
    Ok(())
}

/// Refusals have the exit status of btrfs-progs.
fn refusals(ours: &str) -> Result<()> {
    for (words, says) in [
        ("nonsense", "unknown command 'nonsense'"),
        ("s", "scrub, send, subvolume"),
        ("send", "send is not part of creamery"),
        ("balance start", "balance start is not part of creamery"),
        ("subvolume list", "required"),
    ] {
        expect_refusal(Run::new(ours).args(words.split_whitespace()), &[says])?;
        let status = |program: &str| Run::new(program).args(words.split_whitespace()).output();
        ensure!(status(ours)?.code == status("btrfs")?.code, "{words}: another exit status");
    }
    Ok(())
}

/// The calls of mkfs.btrfs by systemd-repart, for a partition in the form of a file or a loop device: label and UUID, a root to copy,
/// subvolumes, compression.
fn systemd_repart(bench: &Bench) -> Result<()> {
    const UUID: &str = "0d6f2b5c-6d0b-4c8e-9a39-5b2f7b0c8f11";
    let (mkfs, root) = (link(bench, "mkfs.btrfs")?, bench.scratch.dir("root")?);
    fs::create_dir_all(root.join("home/user"))?;
    fs::create_dir_all(root.join("var"))?;
    fs::write(root.join("home/user/text"), "some text that is there many times\n".repeat(5_000))?;
    let root = root.to_str().unwrap_or_default();
    let begin = ["-q", "-L", "root-x86-64", "-U", UUID];
    for (number, more) in [
        &[][..],
        &["--nodiscard"],
        &["--nodiscard", "-r", root],
        &["-r", root, "--subvol", "/home", "--subvol", "default:/var"],
        &["--nodiscard", "-r", root, "--compress", "zstd:3"],
        &["-r", root, "--subvol", "ro:/home", "--compress", "zlib", "--sectorsize", "4096"],
    ]
    .into_iter()
    .enumerate()
    {
        let image = bench.scratch.file(&format!("{number}.raw"));
        fs::File::create_new(&image)?.set_len(400 << 20)?;
        let told = Run::new(&mkfs).args(begin).arg(&image).args(more).ok()?;
        ensure!(told.stdout_text().is_empty(), "-q: {}", told.stdout_text());
        btrfs_check(&image)?;
        let said = Run::new("blkid").args(["-o", "export", "-p"]).arg(&image).ok()?.stdout_text();
        ensure!(said.contains(&format!("UUID={UUID}")) && said.contains("LABEL=root-x86-64"), "{said}");
        if more.contains(&"-r") {
            let linux = LoopMount::mount(&image, &bench.scratch.file("kernel"), "ro,subvolid=5")?;
            let text = fs::read_to_string(linux.dir().join("home/user/text"))?;
            ensure!(text.lines().count() == 5_000, "{more:?}: the file is something else");
            linux.unmount()?;
        }
    }
    Ok(())
}

/// The calls of `btrfs` by mkosi, which keeps its trees as subvolumes: on a mount of ours.
fn mkosi(bench: &Bench) -> Result<()> {
    let (image, btrfs) = (bench.scratch.file("disk.img"), link(bench, "btrfs")?);
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("mount"), "")?;
    let (root, copy) = (mount.dir().join("root"), mount.dir().join("copy"));
    let call = |word: &str| Run::new(&btrfs).args(["subvolume", word]);
    call("create").arg(&root).ok()?;
    fs::write(root.join("file"), "content")?;
    call("show").arg(&root).ok()?;
    expect_refusal(call("show").arg(mount.dir().join("root/file")), &["subvolume"])?;
    call("snapshot").args([&root, &copy]).ok()?;
    fs::write(copy.join("file"), "another")?;
    call("delete").args([&root, &copy]).ok()?;
    ensure!(!root.exists() && !copy.exists(), "they are there");
    mount.unmount()?;
    bench.creamery().run(["subvolume", "sync"]).arg(inside(&image, "/")).ok()?;
    bench.creamery().run(["check"]).arg(&image).ok().map(drop)
}
