//! Filesystems that random work has filled, by Linux and by us in turn: nested subvolumes, snapshots, clones, holes, preallocated space,
//! compressed files and files written in place. After every turn both see equal files, and equal items in every subvolume's tree, so equal
//! sharing, which `filesystem du` reports rightly.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::{Compare, Walk, expect_same};
use creamery_testkit::{FuseMount, LoopMount, Run, TreeItem, asked_seed, btrfs_check, rounds, tree_items};

use crate::item_types::{EXTENT_DATA, INODE_ITEM};
use crate::random_work::{RandomWork, State, TOP_LEVEL, WorkingSide, is_stub, subvolume_ids};
use crate::support::{MOUNTED, inside, mkfs_empty};

/// The program that made a filesystem, and its options.
#[derive(Clone, Copy)]
enum Made {
    ByUs(&'static [&'static str]),
    /// mkfs.btrfs, with its options, and those of a call of btrfstune if there are any.
    ByLinux(&'static [&'static str], &'static [&'static str]),
}

#[derive(Clone, Copy)]
struct PopulatedKind {
    name: &'static str,
    made: Made,
    linux: &'static str,
    ours: &'static str,
}

const fn kind(name: &'static str, made: Made, linux: &'static str, ours: &'static str) -> PopulatedKind {
    PopulatedKind { name, made, linux, ours }
}

const OLDEST: &[&str] = &["-O", "^extref,^skinny-metadata,^no-holes,^free-space-tree,^block-group-tree"];

const KINDS: [PopulatedKind; 13] = [
    kind("default", Made::ByUs(&[]), "", ""),
    kind("small-nodes", Made::ByUs(&["-n", "4096", "--csum", "xxhash"]), "", ""),
    kind("hole-extents", Made::ByUs(&["-O", "^no-holes"]), "", ""),
    kind("mixed", Made::ByUs(&["--mixed", "-n", "4096"]), "", "compress=lzo"),
    kind("of-linux", Made::ByLinux(&["-O", "block-group-tree", "--csum", "blake2"], &[]), "", ""),
    kind("of-linux-zstd", Made::ByLinux(&["-m", "dup"], &[]), "compress=zstd:1", "compress=zstd"),
    kind("of-linux-lzo", Made::ByLinux(&["-n", "65536"], &[]), "compress-force=lzo", "compress-force=lzo"),
    kind(
        "of-linux-zlib",
        Made::ByLinux(&["-O", "^no-holes"], &[]),
        "compress=zlib:9",
        "compress-force=zlib:1",
    ),
    kind("of-linux-quotas", Made::ByLinux(&["-O", "quota"], &[]), "compress=lzo", ""),
    kind("of-linux-simple-quotas", Made::ByLinux(&["-O", "squota"], &[]), "", "compress=zstd"),
    kind("of-linux-other-uuid", Made::ByLinux(&["--csum", "sha256"], &["-m"]), "nodatasum", "nodatasum"),
    kind("of-linux-oldest", Made::ByLinux(OLDEST, &[]), "space_cache=v1", ""),
    kind("of-linux-without-space-cache", Made::ByLinux(OLDEST, &[]), "nospace_cache", "max_inline=0"),
];

pub(crate) fn cases() -> Vec<Case> {
    let case = |(kind, seed): (PopulatedKind, u64)| {
        Case::new(format!("populated/{}", kind.name), &MOUNTED, move |bench| in_turn(bench, kind, seed))
            .long()
    };
    KINDS.into_iter().zip(21..).map(case).collect()
}

/// Rounds of [`in_turn`]: for every change, and in a proof.
const ROUNDS: (u64, u64) = (2, 20);
/// Operations of each side in a round.
const OPERATIONS: u64 = 130;
const INLINE: u8 = 0;
const PREALLOC: u8 = 2;
/// Offset of the flags in an inode item, and the flag of files with preallocated space.
const FLAGS_AT: usize = 64;
const PREALLOC_FLAG: u64 = 1 << 4;

/// The content of a mount: files, and the items of all subvolumes by their numbers.
struct SeenMount {
    walk: Walk,
    items: BTreeMap<u64, Vec<TreeItem>>,
}

/// Whether an inode has preallocated space without the flag.
fn has_unsaid_prealloc(items: &[TreeItem]) -> bool {
    let says_so = |item: &TreeItem| item.kind == INODE_ITEM && item.u64_at(FLAGS_AT) & PREALLOC_FLAG != 0;
    let saying: BTreeSet<u64> = items.iter().filter(|item| says_so(item)).map(|item| item.objectid).collect();
    let has = |item: &TreeItem| item.kind == EXTENT_DATA && item.data[20] == PREALLOC;
    items.iter().any(|item| has(item) && !saying.contains(&item.objectid))
}

/// A subvolume and the number of an inode in it.
type Inode = (u64, u64);

impl SeenMount {
    fn take(top: &Path) -> Result<Self> {
        // Linux shows an empty directory there, with the current time.
        let stub = |path: &[u8]| is_stub(&top.join(std::ffi::OsStr::new(&*String::from_utf8_lossy(path))));
        let walk = Walk::take_without(top, &stub)?;
        let ids = subvolume_ids(top)?.into_values().chain([TOP_LEVEL]);
        let items = ids.map(|id| Ok((id, tree_items(top, id)?)));
        Ok(Self { walk, items: items.collect::<Result<_>>()? })
    }

    /// Compares; `self` is our view.
    fn expect_as_linux(&self, what: &str, other: &Self) -> Result<()> {
        // Holes are compared separately.
        let all = Compare {
            ctime: true,
            btime: true,
            holes: false,
            xattrs_not: &["security.selinux"],
            ..Compare::default()
        };
        expect_same(what, &other.walk, &self.walk, &all)?;
        self.expect_data_as_linux(what, other)?;
        let ids = |seen: &Self| seen.items.keys().copied().collect::<Vec<_>>();
        ensure!(ids(self) == ids(other), "{what}: subvolumes {:?} and {:?}", ids(self), ids(other));
        for (id, items) in &self.items {
            let others = &other.items[id];
            for (one, other) in items.iter().zip(others) {
                ensure!(one == other, "{what}: in tree {id} {one:?} is {other:?}");
            }
            ensure!(items.len() == others.len(), "{what}: {} items, {}", items.len(), others.len());
        }
        Ok(())
    }

    /// If a file's inode lacks the flag of preallocated space, as a clone's does, and its bytes equal its length, Linux takes everything
    /// behind some data for data. Preallocated space is a hole, and we report it so.
    fn expect_data_as_linux(&self, what: &str, linux: &Self) -> Result<()> {
        let has_unsaid = self.items.values().any(|items| has_unsaid_prealloc(items));
        for (path, ours) in self.walk.entries() {
            let theirs = linux.walk.entry(path).context("a path that both have")?;
            let is_cut_short = || {
                let (start, end) = *theirs.data.last()?;
                let before = theirs.data.len() - 1;
                let same = ours.data.get(..before)? == &theirs.data[..before];
                Some(same && ours.data.get(before)?.0 == start && end == theirs.size)
            };
            ensure!(
                ours.data == theirs.data || has_unsaid && is_cut_short() == Some(true),
                "{what}: {}: data is {:?}, Linux says {:?}",
                String::from_utf8_lossy(path),
                ours.data,
                theirs.data
            );
        }
        Ok(())
    }

    /// For each inode of each subvolume: the bytes that are not inline, and those in extents to which no other user refers. Another user is
    /// another inode, or another place in this one.
    fn usage(&self) -> BTreeMap<Inode, (u64, u64)> {
        let data = |item: &TreeItem| {
            let is_on_disk = item.kind == EXTENT_DATA && item.data[20] != INLINE && item.u64_at(21) != 0;
            is_on_disk.then(|| {
                let begins = item.offset.wrapping_sub(item.u64_at(37));
                (item.objectid, item.u64_at(21), item.u64_at(45), begins)
            })
        };
        let all = || {
            let of_tree = |(id, items): (&u64, &Vec<TreeItem>)| {
                let id = *id;
                let parts: Vec<_> = items.iter().filter_map(data).collect();
                parts.into_iter().map(move |(inode, at, len, begins)| ((id, inode), at, len, begins))
            };
            self.items.iter().flat_map(of_tree)
        };
        let mut users: BTreeMap<u64, BTreeSet<(Inode, u64)>> = BTreeMap::new();
        for (user, at, _, begins) in all() {
            users.entry(at).or_default().insert((user, begins));
        }
        let mut usage: BTreeMap<Inode, (u64, u64)> = BTreeMap::new();
        for (user, at, len, _) in all() {
            let (total, exclusive) = usage.entry(user).or_default();
            *total += len;
            *exclusive += if users[&at].len() == 1 { len } else { 0 };
        }
        usage
    }
}

/// Total and exclusive bytes, by path.
type Usages = BTreeMap<String, (u64, u64)>;

/// The lines of `du --raw`, with paths below `top`.
fn du(run: Run, top: &str) -> Result<Usages> {
    let said = run.ok()?.stdout_text();
    let row = |line: &str| -> Result<_> {
        let (figures, path) = line.split_at_checked(36).context("a line of du")?;
        let mut figures = figures.split_whitespace().map(str::parse);
        let mut figure = || Ok::<_, anyhow::Error>(figures.next().context("a figure")??);
        let path = path.strip_prefix(top).with_context(|| line.to_owned())?;
        Ok((path.trim_matches('/').replace("//", "/"), (figure()?, figure()?)))
    };
    said.lines().skip(1).map(row).collect()
}

/// Compares our report of sharing with the items that Linux listed. Linux' own report counts for the sums only: it takes references by one
/// leaf for one, although they are of several files, and those by two leaves for two, although they are of one file.
fn expect_true_usage(ours: &Usages, state: &State, top: &Path, seen: &SeenMount) -> Result<()> {
    let shown = top.to_str().context("a path of ours")?;
    let theirs = du(Run::new("btrfs").args(["filesystem", "du", "--raw"]).arg(top), shown)?;
    let paths = |rows: &Usages| rows.keys().cloned().collect::<BTreeSet<_>>();
    ensure!(paths(ours) == paths(&theirs), "du: other paths: {ours:?}, Linux has {theirs:?}");
    let (ids, usage) = (subvolume_ids(top)?, seen.usage());
    for (path, found) in ours {
        let linux = theirs[path];
        ensure!(found.0 == linux.0, "du: {path} has {found:?}, Linux says {linux:?}");
        let meta = top.join(path).symlink_metadata()?;
        if meta.is_file() {
            let holder =
                Path::new(path).ancestors().find_map(|above| state.subvolumes.get_key_value(above.to_str()?));
            let holder = holder.and_then(|(holder, _)| ids.get(holder.rsplit('/').next()?));
            let user = (holder.copied().unwrap_or(TOP_LEVEL), meta.ino());
            let wanted = usage.get(&user).copied().unwrap_or_default();
            ensure!(
                *found == wanted,
                "du: {path} has {found:?}, from the items follows {wanted:?}, Linux says {linux:?}"
            );
        }
    }
    Ok(())
}

/// Runs a case; `CREAMERY_SEED` is added to its seed.
fn in_turn(bench: &Bench, kind: PopulatedKind, seed: u64) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    match kind.made {
        Made::ByUs(options) => mkfs_empty(bench.creamery(), options, "600M", &image)?,
        Made::ByLinux(options, tune) => {
            File::create_new(&image)?.set_len(600 << 20)?;
            Run::new("mkfs.btrfs").arg("-q").args(options).arg(&image).ok()?;
            if !tune.is_empty() {
                Run::new("btrfstune").args(tune).arg(&image).ok()?;
            }
        }
    }
    let seed = seed + asked_seed();
    let mut state = State::new(seed);
    // Linux subtracts an extent from a subvolume's group twice if its references change in one transaction of the drop and the subvolume's
    // own reference goes in another (docs/use/quotas.md).
    state.waits_for_drops = matches!(kind.made, Made::ByLinux(["-O", "quota"], _));
    let rounds = rounds(ROUNDS.0, ROUNDS.1);
    for round in 0..rounds {
        let what = format!("seed {seed}, round {round}");
        if rounds > ROUNDS.0 {
            // A failure after many rounds can be reproduced from the image before (`CREAMERY_TEST_KEEP`).
            let before = bench.scratch.file("before.img");
            Run::new("cp").args(["--sparse=always", "--reflink=auto"]).arg(&image).arg(before).ok()?;
        }
        one_round(bench, &image, kind, &mut state, &what).context(what)?;
    }
    Ok(())
}

fn one_round(bench: &Bench, image: &Path, kind: PopulatedKind, state: &mut State, what: &str) -> Result<()> {
    let (kernel, fuse) = (bench.scratch.file("kernel"), bench.scratch.file("fuse"));
    let options = |first: &str, more: &str| [first, more].join(",").trim_end_matches(',').to_owned();
    // Frequent commits let Linux' cleaner finish soon.
    let mount = LoopMount::mount(image, &kernel, &options("noatime,commit=1", kind.linux))?;
    RandomWork { top: mount.dir(), by: WorkingSide::Linux, state }
        .round(OPERATIONS)
        .context("Linux works")?;
    mount.unmount()?;
    btrfs_check(image).context("after Linux' turn")?;
    // Only now: without the feature no-holes Linux may show a larger size than it writes for a file with a hole.
    let mount = LoopMount::mount(image, &kernel, "ro,noatime")?;
    let linux = SeenMount::take(mount.dir())?;
    mount.unmount()?;

    let mount = FuseMount::mount(bench.creamery(), image, &fuse, &options("noatime", kind.ours))?;
    SeenMount::take(mount.dir())?
        .expect_as_linux(&format!("{what}: what Linux made, as we see it"), &linux)?;
    let by = WorkingSide::Us(bench.creamery());
    RandomWork { top: mount.dir(), by, state }.round(OPERATIONS).context("we work on a mount")?;
    let live = SeenMount::take(mount.dir())?;
    mount.unmount()?;
    // Holes are reported when no file is open for writing, and a mount learns that a little later.
    let mount = FuseMount::mount(bench.creamery(), image, &fuse, "ro")?;
    let again = SeenMount::take(mount.dir())?;
    mount.unmount()?;
    let compare = Compare { ctime: true, btime: true, holes: false, ..Compare::default() };
    expect_same(&format!("{what}: a second mount"), &live.walk, &again.walk, &compare)?;
    ensure!(live.items == again.items, "what was told of the trees while mounted is not what is there");
    expect_kept(bench, image, state, &again, what)?;
    work_on_the_image(bench, image, state).context("we work on the image")?;

    let mount = FuseMount::mount(bench.creamery(), image, &fuse, "ro")?;
    let ours = SeenMount::take(mount.dir())?;
    mount.unmount()?;
    expect_kept(bench, image, state, &ours, what)
}

/// Judges the image, and checks that Linux sees our view in it.
fn expect_kept(bench: &Bench, image: &Path, state: &State, ours: &SeenMount, what: &str) -> Result<()> {
    btrfs_check(image)?;
    let usage = bench.creamery().run(["filesystem", "du", "--raw"]).arg(inside(image, "/"));
    let usage = du(usage, &format!("{}:", image.display()))?;
    let mount = LoopMount::mount(image, &bench.scratch.file("kernel"), "ro,noatime")?;
    let theirs = SeenMount::take(mount.dir())?;
    ours.expect_as_linux(&format!("{what}: what we made, as Linux sees it"), &theirs)?;
    expect_true_usage(&usage, state, mount.dir(), &theirs)?;
    mount.unmount()
}

/// Work of the commands on an image: subvolumes, snapshots, clones, deduplication.
fn work_on_the_image(bench: &Bench, image: &Path, state: &mut State) -> Result<()> {
    let creamery = |words: &[&str]| bench.creamery().run(words);
    let at = |path: &str| inside(image, &format!("/{path}"));
    for options in [&["snapshot"][..], &["snapshot", "-r"]] {
        let (source, holder) = (state.pick_subvolume(false), state.pick_subvolume(true));
        let target = format!("{holder}/{}", state.new_name("image-snapshot"));
        let target = target.trim_start_matches('/').to_owned();
        let words = [&["subvolume"], options].concat();
        creamery(&words).arg(at(&source)).arg(at(&target)).ok()?;
        state.subvolumes.insert(target, options.len() > 1);
    }
    let holder = state.pick_subvolume(true);
    let made = format!("{holder}/{}", state.new_name("image-subvolume"));
    let made = made.trim_start_matches('/').to_owned();
    creamery(&["subvolume", "create"]).arg(at(&made)).ok()?;
    let source = state.pick_to_delete().filter(|source| !made.starts_with(&**source));
    if let Some(source) = source {
        creamery(&["cp", "-a", "--reflink=auto"]).arg(at(&source)).arg(at(&format!("{made}/copied"))).ok()?;
    }
    state.subvolumes.insert(made, false);
    if let Some(gone) = state.pick_to_delete() {
        creamery(&["subvolume", "delete"]).arg(at(&gone)).ok()?;
        state.subvolumes.remove(&gone);
    }
    creamery(&["dedupe"]).arg(at("")).ok()?;
    Ok(())
}
