//! The commands that work without a mount.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::{Compare, Walk, expect_same};
use creamery_testkit::{Judge, LoopMount, Run, btrfs_check, tree};

use crate::support::{JUDGED, flip_byte, inside, judge, mkfs_empty, mkfs_from, sparse_file, torture_source};

const DUMPED: [Judge; 2] = [Judge::Program, Judge::BtrfsProgs];

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("commands/show-as-btrfs-progs", &JUDGED, show),
        Case::new("commands/usage-as-btrfs-progs", &JUDGED, usage),
        Case::new("commands/copy-in-and-out", &JUDGED, copy_in_and_out),
        Case::new("commands/options-among-operands", &[Judge::Program], options_among_operands),
        Case::new("commands/list-and-show", &[Judge::Program], list_and_show),
        Case::new("commands/change", &JUDGED, change),
        Case::new("commands/those-behind-a-failure", &JUDGED, behind_a_failure),
        Case::new("commands/dump-super-equal", &DUMPED, dump_super_equal),
        Case::new("commands/dump-tree-equal", &DUMPED, dump_tree_equal),
        Case::new("commands/dump-tree-goes-on-past-damage", &[Judge::Program], dump_tree_goes_on),
        Case::new("commands/dump-tree-of-a-kernel-image", &JUDGED, dump_tree_of_a_kernel_image),
    ]
}

fn copy_in_and_out(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    let (source, want) = torture_source(bench)?;
    mkfs_empty(bench.creamery(), &[], "2G", &image)?;
    bench.creamery().run(["cp", "-a"]).arg(&source).arg(inside(&image, "/tree")).ok()?;
    btrfs_check(&image)?;
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "ro")?;
    expect_same("a tree copied in", &want, &Walk::take(&mount.dir().join("tree"))?, &Compare::default())?;
    mount.unmount()?;
    let out = bench.scratch.file("out");
    bench.creamery().run(["cp", "-a"]).arg(inside(&image, "/tree")).arg(&out).ok()?;
    expect_same("a tree copied out", &want, &Walk::take(&out)?, &Compare::default())
}

/// As getopt_long(3) has it: an option stands where it likes among the operands, and behind "--" there is none.
fn options_among_operands(bench: &Bench) -> Result<()> {
    let here = bench.scratch.dir("here")?;
    mkfs_empty(bench.creamery(), &[], "200M", &here.join("x.img"))?;
    for name in ["a", "b", "-p"] {
        std::fs::write(here.join(name), name)?;
    }
    for call in [
        "cp a -p b x.img:/",
        "cp -a a -- x.img:/c",
        "cp a --reflink=auto x.img:/d",
        "cp -v -- -p x.img:/",
        "cp x.img:/d --preserve out",
        "mv x.img:/c -f x.img:/e",
        "ln x.img:/d -s x.img:/f",
        "rm x.img:/f -f x.img:/none",
        "chmod 600 --usesupercopy x.img:/d",
        "mkdir x.img:/g -p x.img:/h/i",
        "subvolume set-default 5 --usesupercopy x.img",
        "ls x.img:/g -l x.img:/h",
    ] {
        bench.creamery().run(call.split(' ')).within(&here).ok()?;
    }
    let found = bench.creamery().run(["ls", "x.img"]).within(&here).ok()?.stdout_text();
    ensure!(found == "-p\na\nb\nd\ne\ng\nh\n", "{found}");
    ensure!(std::fs::read(here.join("out"))? == b"a", "it is another one");
    Ok(())
}

fn list_and_show(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    let source = bench.scratch.dir("source")?;
    std::fs::create_dir_all(source.join("folder/below"))?;
    std::fs::write(source.join("folder/file"), b"the content\n")?;
    std::os::unix::fs::symlink("file", source.join("folder/link"))?;
    mkfs_from(bench.creamery(), &[], &source, &image)?;
    let say = |args: &[&str], path: &str| -> Result<String> {
        Ok(bench.creamery().run(args).arg(inside(&image, path)).ok()?.stdout_text())
    };
    ensure!(say(&["ls"], "/")? == "folder\n", "ls says {:?}", say(&["ls"], "/")?);
    let mut names: Vec<String> = say(&["ls"], "/folder")?.lines().map(str::to_owned).collect();
    names.sort();
    ensure!(names == ["below", "file", "link"], "ls /folder says {names:?}");
    let long = say(&["ls", "-l"], "/folder")?;
    ensure!(long.contains("link -> file") && long.contains("-rw"), "ls -l says:\n{long}");
    let deep = say(&["ls", "-R"], "/")?;
    ensure!(deep.contains("below") && deep.contains("file"), "ls -R says:\n{deep}");
    ensure!(say(&["cat"], "/folder/file")? == "the content\n", "cat says something else");
    let stat = say(&["stat"], "/folder/file")?;
    ensure!(stat.contains("12"), "stat does not tell the size:\n{stat}");
    bench.creamery().run(["df"]).arg(&image).ok()?;
    for (command, path) in [("cat", "/folder/none"), ("ls", "/none"), ("stat", "/none"), ("cat", "/folder")] {
        crate::support::expect_refusal(bench.creamery().run([command]).arg(inside(&image, path)), &[path])?;
    }
    Ok(())
}

fn change(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "512M", &image)?;
    let want = bench.scratch.dir("want")?;
    tree::generate(&want, 200, 2_000_000, 3)?;
    bench.creamery().run(["mkdir"]).arg(inside(&image, "/new")).ok()?;
    bench.creamery().run(["cp", "-a"]).arg(&want).arg(inside(&image, "/new/tree")).ok()?;
    bench.creamery().run(["rm", "-r"]).arg(inside(&image, "/new/tree")).ok()?;
    bench.creamery().run(["cp"]).arg("/etc/hostname").arg(inside(&image, "/new/hostname")).ok()?;
    bench.creamery().run(["rm"]).arg(inside(&image, "/new/hostname")).ok()?;
    let empty = bench.scratch.dir("empty")?;
    std::fs::create_dir(empty.join("new"))?;
    let loose = Compare { mtime: false, root: false, ..Compare::default() };
    judge(bench, &image, &Walk::take(&empty)?, &loose)?;
    crate::support::expect_refusal(
        bench.creamery().run(["rm"]).arg(inside(&image, "/new")),
        &["/new", "directory"],
    )
}

/// A command, places of which two fail, where they go to, and what is said of the others.
type Behind<'a> = (&'a [&'a str], &'a [&'a str], Option<&'a Path>, &'a [&'a str]);

/// As coreutils do it: of several places each is done, each failure is a line, and the status is 1.
fn behind_a_failure(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let host = bench.scratch.dir("host")?;
    for name in ["one", "two"] {
        std::fs::write(host.join(name), format!("{name}\n"))?;
        bench.creamery().run(["cp"]).arg(host.join(name)).arg(inside(&image, "/")).ok()?;
    }
    let out = bench.scratch.dir("out")?;
    let rows: [Behind<'_>; 9] = [
        (&["mkdir"], &["/a", "/one", "/a/b", "/none/c", "/c"], None, &[]),
        (&["cat"], &["/one", "/none", "/a", "/two"], None, &["one\n", "two\n"]),
        (&["ls"], &["/none", "/two", "/nothing", "/a"], None, &["/two\n", "/a:\nb\n"]),
        (&["ls", "--json"], &["/none", "/two", "/nothing", "/a"], None, &["\"/two\"", "\"/a/b\""]),
        (&["stat"], &["/none", "/two", "/nothing", "/a"], None, &["File: /two\n", "File: /a\n"]),
        (&["filesystem", "du"], &["/none", "/two", "/nothing", "/a"], None, &[":/two\n", ":/a\n"]),
        (&["cp"], &["/none", "/one", "/a", "/two"], Some(&out), &[]),
        (&["subvolume", "create"], &["/s", "/none/t", "/one", "/t"], None, &["/s'\n", "/t'\n"]),
        (&["rm"], &["/none", "/one", "/a", "/two"], None, &[]),
    ];
    for (words, paths, to, said) in rows {
        let run = bench.creamery().run(words).args(paths.iter().map(|path| inside(&image, path)));
        let run = if let Some(to) = to { run.arg(to) } else { run };
        let finished = run.output()?;
        let (stdout, stderr) = (finished.stdout_text(), finished.stderr_text());
        ensure!(finished.code == Some(1) && stderr.lines().count() == 2, "{finished}");
        for part in said {
            ensure!(stdout.contains(part), "does not say {part:?}: {finished}");
        }
    }
    ensure!(out.join("one").is_file() && out.join("two").is_file(), "what was copied");
    let listed = bench.creamery().run(["ls"]).arg(inside(&image, "/")).ok()?.stdout_text();
    ensure!(listed == "a\nc\ns\nt\n", "what is left: {listed:?}");
    for words in [&["df"][..], &["inspect-internal", "dump-super"]] {
        let finished = bench.creamery().run(words).arg("none.img").arg(&image).arg("no.img").output()?;
        let lines = finished.stderr_text().lines().count();
        ensure!(finished.code == Some(1) && lines == 2, "{finished}");
        ensure!(finished.stdout_text().contains("disk.img"), "{finished}");
    }
    btrfs_check(&image)
}

fn dump_super_equal(bench: &Bench) -> Result<()> {
    for (number, options) in
        [&[][..], &["--csum", "sha256", "-L", "label"], &["--mixed"]].into_iter().enumerate()
    {
        let image = bench.scratch.file(&format!("{number}.img"));
        mkfs_empty(bench.creamery(), options, "300M", &image)?;
        for flags in [&[][..], &["-f"], &["-a"]] {
            same_output(bench, &[&["inspect-internal", "dump-super"], flags].concat(), &image)?;
        }
    }
    Ok(())
}

fn dump_tree_equal(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    let (source, _) = torture_source(bench)?;
    for options in [&[][..], &["--csum", "xxhash", "-n", "4096", "-O", "^no-holes,^block-group-tree"]] {
        if options.contains(&"4096") {
            std::fs::remove_file(source.join("symlinks/long-4095"))?;
        }
        mkfs_from(bench.creamery(), &[options, &["-f"]].concat(), &source, &image)?;
        same_output(bench, &["inspect-internal", "dump-tree"], &image)?;
    }
    Ok(())
}

/// An image that the kernel filled: snapshots, shared blocks, full backrefs, compressed and reserved extents.
fn dump_tree_of_a_kernel_image(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    sparse_file(&image, 1 << 30)?;
    Run::new("mkfs.btrfs").args(["-q", "-O", "block-group-tree"]).arg(&image).ok()?;
    let (source, _) = torture_source(bench)?;
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "compress=zstd")?;
    let root = mount.dir();
    Run::new("btrfs").args(["subvolume", "create"]).arg(root.join("one")).ok()?;
    Run::new("cp").args(["-a", "--"]).arg(&source).arg(root.join("one")).ok()?;
    Run::new("btrfs").args(["subvolume", "snapshot"]).arg(root.join("one")).arg(root.join("two")).ok()?;
    Run::new("btrfs")
        .args(["subvolume", "snapshot", "-r"])
        .arg(root.join("two"))
        .arg(root.join("three"))
        .ok()?;
    std::fs::remove_dir_all(root.join("one/source/large"))?;
    std::fs::write(root.join("two/source/sizes/4096"), b"shorter")?;
    mount.unmount()?;
    same_output(bench, &["inspect-internal", "dump-tree"], &image)
}

/// One damaged leaf among many is named, and all others are printed.
fn dump_tree_goes_on(bench: &Bench) -> Result<()> {
    let source = bench.scratch.dir("source")?;
    for number in 0..300 {
        std::fs::write(source.join(format!("file-{number}")), b"content")?;
    }
    let image = bench.scratch.file("disk.img");
    mkfs_from(bench.creamery(), &["-m", "single"], &source, &image)?;
    let dump = |args: &[&str]| bench.creamery().run(["inspect-internal", "dump-tree"]).args(args).arg(&image);
    let leaves = |text: &str| -> Vec<u64> {
        let of = |line: &str| line.strip_prefix("leaf ")?.split_once(" items ")?.0.parse().ok();
        text.lines().filter_map(of).collect()
    };
    let whole = leaves(&dump(&["-t", "5"]).ok()?.stdout_text());
    ensure!(whole.len() > 4, "{whole:?}");
    let bytes = std::fs::read(&image)?;
    let is_leaf = |block: &&[u8]| block[48..56] == whole[1].to_le_bytes();
    let at = bytes.chunks(4096).position(|block| is_leaf(&block)).context("the leaf is nowhere")? * 4096;
    // In the name of the fsid: the leaf can still be shown.
    flip_byte(&image, at as u64 + 33)?;
    for args in [&["-t", "5"][..], &[]] {
        let said = dump(args).output()?;
        ensure!(said.code == Some(1) && said.stderr_text().lines().count() == 1, "{said}");
        let text = said.stdout_text();
        ensure!(text.matches("\ndamaged: ").count() == 1, "{text}");
        ensure!(whole.iter().all(|leaf| leaves(&text).contains(leaf)), "{text}");
        ensure!(text.contains("\ntotal bytes "), "{text}");
    }
    let alone = dump(&["-b", &whole[1].to_string()]).output()?;
    ensure!(alone.code == Some(1) && alone.stdout_text().starts_with("damaged: "), "{alone}");
    Ok(())
}

/// Our output and btrfs-progs' must be equal but for the line with the version.
fn same_output(bench: &Bench, args: &[&str], image: &Path) -> Result<()> {
    let lines = |text: String| -> Vec<String> {
        text.lines().filter(|line| !line.starts_with("btrfs-progs v")).map(str::to_owned).collect()
    };
    let ours = lines(bench.creamery().run(args).arg(image).ok()?.stdout_text());
    let theirs = lines(Run::new("btrfs").args(args).arg(image).ok()?.stdout_text());
    let differing: Vec<(usize, (&String, &String))> =
        ours.iter().zip(&theirs).enumerate().filter(|(_, (ours, theirs))| ours != theirs).collect();
    let shown: Vec<String> = differing
        .iter()
        .take(12)
        .map(|(number, (ours, theirs))| {
            format!("  line {}:\n    ours   {ours}\n    theirs {theirs}", number + 1)
        })
        .collect();
    ensure!(
        differing.is_empty() && ours.len() == theirs.len(),
        "{args:?}: {} lines of ours, {} of theirs, {} differ:\n{}",
        ours.len(),
        theirs.len(),
        differing.len(),
        shown.join("\n")
    );
    Ok(())
}

/// What `btrfs filesystem show` says of an image, and of the features what the kernel says of a mount.
fn show(bench: &Bench) -> Result<()> {
    let kinds: [&[&str]; 4] =
        [&[], &["-L", "a label"], &["-m", "single", "-O", "^no-holes"], &["-M", "-O", "^block-group-tree"]];
    for (number, options) in kinds.into_iter().enumerate() {
        let image = bench.scratch.file(&format!("{number}.img"));
        sparse_file(&image, 300 << 20)?;
        Run::new("mkfs.btrfs").args(["-q", "-f"]).args(options).arg(&image).ok()?;
        let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "")?;
        std::fs::write(mount.dir().join("file"), vec![1; 20 << 20])?;
        let json = |said: &str| -> Result<Vec<String>> {
            let said: serde_json::Value = serde_json::from_str(said)?;
            let names = said[0]["features"].as_array().into_iter().flatten();
            Ok(names.filter_map(|name| name.as_str().map(str::to_owned)).collect())
        };
        let uuid = Run::new("findmnt").args(["-no", "UUID"]).arg(mount.dir()).ok()?.stdout_text();
        let theirs = std::fs::read_dir(Path::new("/sys/fs/btrfs").join(uuid.trim()).join("features"))?;
        let theirs: Vec<String> = theirs
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<Result<_>>()?;
        mount.unmount()?;
        for units in ["--human-readable", "--raw", "--kbytes", "--si"] {
            let theirs =
                Run::new("btrfs").args(["filesystem", "show", units]).arg(&image).ok()?.stdout_text();
            let ours = bench.creamery().run(["filesystem", "show", units]).arg(&image).ok()?.stdout_text();
            ensure!(ours == theirs, "{options:?}, {units}:\n{ours}\nbtrfs-progs:\n{theirs}");
        }
        let ours = bench.creamery().run(["filesystem", "show", "--json"]).arg(&image).ok()?.stdout_text();
        let mut ours = json(&ours)?;
        // The kernel does not tell whether the free space tree is valid, nor of what every filesystem has for long.
        ours.retain(|name| !["free_space_tree_valid", "mixed_backref", "big_metadata"].contains(&&**name));
        let [ours, theirs] = [ours, theirs].map(|mut names| {
            names.sort();
            names
        });
        ensure!(ours == theirs, "{options:?}: features {ours:?}, and the kernel says {theirs:?}");
    }
    Ok(())
}

/// What `btrfs filesystem df` and `usage` say of a mount of the kernel, we say of the image: but for the reserve, which a kernel keeps
/// and no image has, and what is free by `statfs`, from which a kernel takes that.
fn usage(bench: &Bench) -> Result<()> {
    let kinds: [&[&str]; 4] = [&[], &["-m", "single"], &["-M"], &["-b", "256M"]];
    for (number, options) in kinds.into_iter().enumerate() {
        let image = bench.scratch.file(&format!("{number}.img"));
        sparse_file(&image, 300 << 20)?;
        Run::new("mkfs.btrfs").args(["-q", "-f"]).args(options).arg(&image).ok()?;
        let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "")?;
        std::fs::write(mount.dir().join("file"), vec![1; 20 << 20])?;
        let mount = mount.again_read_only(&image)?;
        let device = Run::new("findmnt").args(["-no", "SOURCE"]).arg(mount.dir()).ok()?.stdout_text();
        let units =
            ["", "-b", "-h", "-H", "-k", "-m", "-g", "-t", "--raw", "--iec", "--si", "--kbytes", "--tbytes"];
        let calls = units.iter().flat_map(|units| ["df", "usage"].map(|command| (command, *units)));
        let said = |program: &Path, command: &str, units: &str, place: &Path| -> Result<String> {
            let words = ["filesystem", command, units];
            let run = Run::new(program).args(words.into_iter().filter(|word| !word.is_empty())).arg(place);
            Ok(run.ok()?.stdout_text())
        };
        let theirs =
            calls.clone().map(|(command, units)| said("btrfs".as_ref(), command, units, mount.dir()));
        let theirs: Vec<String> = theirs.collect::<Result<_>>()?;
        mount.unmount()?;
        // With data and trees in the same groups a kernel takes its reserve from what is free, too.
        let is_mixed = options.contains(&"-M");
        let of_a_kernel = |line: &&str| {
            let line = line.trim_start();
            let starts = ["GlobalReserve", "Global reserve", "Free (statfs"];
            starts.iter().any(|start| line.starts_with(start))
                || (is_mixed && line.starts_with("Free (estimated"))
        };
        let lines = |text: &str| -> Vec<String> {
            text.lines().filter(|line| !of_a_kernel(line)).map(str::to_owned).collect()
        };
        for ((command, units), theirs) in calls.zip(theirs) {
            let ours = said(bench.creamery().path(), command, units, &image)?;
            let ours = ours.replace(&image.display().to_string(), device.trim());
            ensure!(
                lines(&ours) == lines(&theirs) && !lines(&theirs).is_empty(),
                "{options:?}, {command} {units}:\n{ours}\nbtrfs-progs:\n{theirs}"
            );
        }
    }
    Ok(())
}
