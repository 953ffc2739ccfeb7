//! What somebody names in a damaged image is had, whatever became of the rest: a subvolume, a path. And what is not there is said, by name.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::{Compare, Walk, expect_same};
use creamery_testkit::{Judge, LoopMount, Run, btrfs_check};

use crate::hostile::{CPU_MAX, Victim};
use crate::item_types::{DIR_INDEX, DIR_ITEM, INODE_REF, ROOT_ITEM};
use crate::rescue::lost::{lose_first_leaf, made, whole, write_files};
use crate::support::{MOUNTED, expect_failure, expect_refusal, flip_byte, inside, mkfs_empty};

pub(crate) fn cases() -> Vec<Case> {
    let with_xattrs = [&MOUNTED[..], &[Judge::Tool("setfattr"), Judge::Tool("getfattr")]].concat();
    vec![
        Case::new("restore/top-level-is-lost", &MOUNTED, top_level_is_lost),
        Case::new("rescue/entry-of-the-top-level", &MOUNTED, entry_of_the_top_level),
        Case::new("rescue/paths-of-lost-names", &MOUNTED, paths_of_lost_names),
        Case::new("rescue/attributes-too-large-for-an-image", &with_xattrs, too_large_for_an_image),
        Case::new("hostile/search-of-names", &MOUNTED, search_of_names),
    ]
}

/// Number of the subvolume that is made second.
const SECOND: u64 = 257;
const FILES: usize = 300;

fn subvolume(dir: &Path) -> Result<()> {
    Run::new("btrfs").args(["-q", "subvolume", "create"]).arg(dir).ok().map(drop)
}

/// The tree of a subvolume is whole, and that of the top level has no root any more.
fn top_level_is_lost(bench: &Bench) -> Result<()> {
    let image = made(bench, "disk.img", |dir| {
        subvolume(&dir.join("below"))?;
        subvolume(&dir.join("below/deeper"))?;
        write_files(&dir.join("below"), FILES)?;
        Ok(fs::write(dir.join("below/deeper/file"), "in both")?)
    })?;
    let tree = Run::new("btrfs").args(["inspect-internal", "dump-tree", "-t", "5"]).arg(&image).ok()?;
    let tree = tree.stdout_text();
    let root = tree.lines().find_map(|line| line.strip_prefix("leaf ").or(line.strip_prefix("node ")));
    let root = root.and_then(|line| line.split(' ').next()?.parse().ok()).context("no root")?;
    let (theirs, ours) = (bench.scratch.dir("theirs")?, bench.scratch.dir("ours")?);
    let btrfs = || Run::new("btrfs").args(["restore", "-r", "256", "-m"]).args([&image, &theirs]);
    btrfs().ok()?;
    // Metadata lies once, and where its addresses say.
    flip_byte(&image, root)?;
    ensure!(btrfs().output()?.code == Some(1), "btrfs restore can do without, too");
    let restore = |words: &[&str]| bench.creamery().run(["restore"]).args(words).args([&image, &ours]);
    expect_refusal(restore(&[]), &["disk.img", "content is damaged"])?;
    restore(&["-r", "256", "-m"]).ok()?;
    ensure!(whole(&ours, FILES) == FILES, "not all of it");
    ensure!(fs::read(ours.join("deeper/file"))? == b"in both", "not what is below");
    // As btrfs restore before.
    expect_same("-r", &Walk::take(&theirs)?, &Walk::take(&ours)?, &Compare::default())?;
    let out = bench.scratch.file("out");
    let copied = bench.creamery().run(["cp", "-a", "--subvolid", "256"]);
    copied.arg(inside(&image, "/deeper")).arg(&out).ok()?;
    ensure!(fs::read(out.join("file"))? == b"in both", "not what is below");
    Ok(())
}

/// An entry that leads to the top level is in none of its directories, and nobody goes round by it.
fn entry_of_the_top_level(bench: &Bench) -> Result<()> {
    let image = made(bench, "disk.img", |dir| {
        subvolume(&dir.join("sub"))?;
        subvolume(&dir.join("sub/inner"))?;
        fs::write(dir.join("sub/inner/file"), "inner")?;
        fs::write(dir.join("top"), "at the top")?;
        Ok(fs::write(dir.join("sub/after"), "behind it")?)
    })?;
    let mut victim = Victim::new(image.clone())?;
    let mut leads_up = |_: &mut [u8], data: &mut [u8]| {
        let is_it = data[8] == ROOT_ITEM && data[..8] == SECOND.to_le_bytes();
        if is_it {
            data[..8].copy_from_slice(&5_u64.to_le_bytes());
        }
        is_it
    };
    for kind in [DIR_ITEM, DIR_INDEX] {
        ensure!(victim.edit(kind, &mut leads_up)? > 0, "no entry");
    }
    let out = |name: &str| bench.scratch.dir(name);
    let run = |words: &[&str]| bench.creamery().run(words);
    let says = ["/sub/inner", "points to the top level", "filesystem is damaged"];
    expect_failure(run(&["cp", "-a"]).arg(inside(&image, "/.")).arg(out("first")?), &says)?;
    expect_refusal(run(&["ls"]).arg(inside(&image, "/sub/inner")), &says)?;
    let named = run(&["cp", "-a", "--ignore-errors"]).arg(inside(&image, "/sub/inner"));
    expect_refusal(named.arg(out("named")?), &says)?;
    let (copied, restored) = (out("copied")?, out("restored")?);
    for (dir, told) in [
        (&copied, run(&["cp", "-a", "--ignore-errors"]).arg(inside(&image, "/.")).arg(&copied)),
        (&restored, run(&["restore", "-i"]).args([&image, &restored])),
    ] {
        let told = told.output()?;
        let said = told.stderr_text();
        ensure!(told.code == Some(1) && said.contains("/sub/inner: left out: "), "{told}");
        ensure!(said.contains("top level"), "{told}");
        ensure!(fs::read(dir.join("sub/after"))? == b"behind it", "it did not go on");
        ensure!(!dir.join("sub/inner").exists(), "it stands for something");
    }
    Ok(())
}

/// What a copy of the root finds by its inode can be named, too.
fn paths_of_lost_names(bench: &Bench) -> Result<()> {
    let image = made(bench, "disk.img", |dir| {
        for name in ["first", "second"] {
            fs::create_dir(dir.join(name))?;
            write_files(&dir.join(name), FILES)?;
        }
        fs::write(dir.join("top"), "at the top")?;
        subvolume(&dir.join("below"))?;
        Ok(fs::write(dir.join("below/file"), "in a subvolume")?)
    })?;
    lose_first_leaf(&image)?;
    let run = |words: &[&str], path: &str| bench.creamery().run(words).arg(inside(&image, path));
    let (out, found) = (bench.scratch.file("out"), bench.scratch.file("found"));
    expect_refusal(run(&["cp", "-a"], "/second").arg(&out), &["/second", "content is damaged"])?;
    expect_refusal(run(&["cat"], "/top"), &["/top", "content is damaged"])?;
    run(&["cp", "-a", "--ignore-errors"], "/second").arg(&out).ok()?;
    ensure!(whole(&out, FILES) == FILES, "not all of it");
    let said = run(&["cp", "-a", "--ignore-errors"], "/lost+found-257").arg(&found).output()?;
    let attributes = said.stderr_text().contains("/lost+found-257: its attributes are lost");
    ensure!(said.code == Some(1) && attributes && whole(&found, FILES) == FILES, "{said}");
    for (words, path, wanted) in [
        (&["cat", "--ignore-errors"][..], "/second/7", "content 7"),
        (&["cat", "--ignore-errors"], "/top", "at the top"),
        (&["cat", "--rescue", "ibadroots"], "/below/file", "in a subvolume"),
        (&["cat", "--rescue", "ibadroots"], "/lost+found-257/7", "content 7"),
    ] {
        let said = run(words, path).ok()?;
        ensure!(said.stdout == wanted.as_bytes(), "{path}: {said}");
    }
    let listed = run(&["ls", "--rescue", "ibadroots"], "/second").ok()?.stdout_text();
    ensure!(listed.lines().count() == FILES, "{listed}");
    let archive = bench.scratch.file("archive.tar");
    let tar = bench.creamery().run(["tar", "-c", "--ignore-errors", "-f"]).arg(&archive);
    tar.arg(inside(&image, "/second")).ok()?;
    let listed = Run::new("tar").arg("-tf").arg(&archive).ok()?.stdout_text();
    ensure!(listed.lines().count() == FILES + 1, "{listed}");
    for nowhere in ["/first", "/second/nothing", "/nothing", "/lost+found-256", "/lost+found-9999"] {
        let said = run(&["cat", "--ignore-errors"], nowhere).output()?;
        ensure!(said.code == Some(1) && said.stdout.is_empty(), "{nowhere}: {said}");
    }
    Ok(())
}

/// One attribute is too large for smaller leaves, and the file is there without it.
fn too_large_for_an_image(bench: &Bench) -> Result<()> {
    let image = made(bench, "disk.img", |dir| {
        fs::create_dir(dir.join("folder"))?;
        fs::write(dir.join("folder/file"), "content")?;
        let set = |name: &str, value: &str, path: &str| {
            Run::new("setfattr").args(["-n", name, "-v", value]).arg(dir.join(path)).ok()
        };
        for path in ["folder", "folder/file"] {
            set("user.large", &"x".repeat(10_000), path)?;
            set("user.small", "1", path)?;
        }
        Ok(fs::hard_link(dir.join("folder/file"), dir.join("folder/link"))?)
    })?;
    let other = bench.scratch.file("other.img");
    mkfs_empty(bench.creamery(), &["--nodesize", "4k"], "256M", &other)?;
    let said = bench.creamery().run(["cp", "-a"]).arg(inside(&image, "/")).arg(inside(&other, "/"));
    let said = said.output()?;
    let text = said.stderr_text();
    for path in ["/folder", "/folder/file"] {
        let told = format!("disk.img:{path}: extended attribute user.large: it has 10000 bytes");
        ensure!(text.matches(&told).count() == 1, "{said}");
    }
    ensure!(said.code == Some(1) && text.lines().count() == 3, "{said}");
    ensure!(text.contains("2 extended attributes do not come along, each named above"), "{said}");
    btrfs_check(&other)?;
    let mount = LoopMount::mount(&other, &bench.scratch.file("kernel"), "ro")?;
    ensure!(fs::read(mount.dir().join("folder/link"))? == b"content", "another file");
    for path in ["folder", "folder/file"] {
        let names = Run::new("getfattr").arg("--absolute-names").arg(mount.dir().join(path)).ok()?;
        let names = names.stdout_text();
        ensure!(names.contains("user.small") && !names.contains("user.large"), "{path}: {names}");
    }
    mount.unmount()
}

type RescueEdit = fn(&mut [u8], &mut [u8]) -> bool;

fn set_parent(key: &mut [u8], parent: u64) -> bool {
    key[9..17].copy_from_slice(&parent.to_le_bytes());
    true
}

/// What inodes say of their names, once the names themselves are lost.
const LIES: [(&str, RescueEdit); 9] = [
    ("each is in itself", |key, _| {
        let own: [u8; 8] = key[..8].try_into().expect("eight bytes");
        set_parent(key, u64::from_le_bytes(own))
    }),
    ("each is in its neighbour", |key, _| {
        let own: [u8; 8] = key[..8].try_into().expect("eight bytes");
        set_parent(key, u64::from_le_bytes(own) ^ 1)
    }),
    ("each is in the next one", |key, _| {
        let own: [u8; 8] = key[..8].try_into().expect("eight bytes");
        set_parent(key, u64::from_le_bytes(own) + 1)
    }),
    ("each is in another that is not there", |key, _| {
        let own: [u8; 8] = key[..8].try_into().expect("eight bytes");
        set_parent(key, u64::from_le_bytes(own) << 20)
    }),
    ("all are in the root, with one number", |key, data| {
        data[..8].copy_from_slice(&2_u64.to_le_bytes());
        set_parent(key, 256)
    }),
    ("all have the last number", |_, data| {
        data[..8].fill(0xff);
        true
    }),
    ("names longer than their items", |_, data| {
        data[8..10].fill(0xff);
        true
    }),
    ("names of dots and slashes", |_, data| {
        let filler = b"../".iter().cycle();
        data[10..].iter_mut().zip(filler).for_each(|(byte, dot)| *byte = *dot);
        true
    }),
    ("names of no bytes", |_, data| {
        data[8..10].fill(0);
        true
    }),
];

/// It ends, tells of damage, and makes nothing elsewhere.
fn search_of_names(bench: &Bench) -> Result<()> {
    let image = made(bench, "disk.img", |dir| {
        for number in 0..FILES {
            fs::create_dir_all(dir.join(format!("folder {number}/deeper")))?;
        }
        write_files(dir, FILES)
    })?;
    lose_first_leaf(&image)?;
    let mut victim = Victim::new(image.clone())?;
    for (name, mut lie) in LIES {
        let changed = victim.edit(INODE_REF, &mut lie)?;
        ensure!(changed > FILES, "{name}: {changed} changes");
        ends_well(bench, &image).context(name)?;
        victim.restore()?;
    }
    Ok(())
}

fn ends_well(bench: &Bench, image: &Path) -> Result<()> {
    let around = bench.scratch.dir("around")?;
    let out = around.join("out");
    fs::create_dir(&out)?;
    let run = |words: &[&str]| bench.creamery().run(words);
    for told in [
        run(&["cp", "-a", "--ignore-errors"]).arg(inside(image, "/.")).arg(&out),
        run(&["restore", "-i", "-D"]).arg(image).arg(&out),
        run(&["tar", "-c", "--ignore-errors", "-f", "/dev/null"]).arg(inside(image, "/")),
        run(&["cat", "--ignore-errors"]).arg(inside(image, "/folder 7/deeper/nothing")),
        run(&["cat", "--rescue", "all"]).arg(inside(image, "/lost+found-300/lost+found-301/../x")),
    ] {
        let told = told.output()?;
        ensure!(told.code == Some(1) && !told.stderr_text().contains("panicked"), "{told}");
        ensure!(told.cpu < CPU_MAX, "{:?} of CPU time for {told}", told.cpu);
    }
    let names: Vec<PathBuf> = fs::read_dir(&around)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    ensure!(names == [out], "more than the copy was made: {names:?}");
    Ok(fs::remove_dir_all(around)?)
}
