//! The adapter as the kernel meets it, request by request, in orders that a kernel takes only now and then.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use creamery_base::Result as CreameryResult;
use creamery_fs::{Atime, AtimeOptions};
use creamery_fuse::protocol::{OpenReplyFlags, ReleaseFlags, RenameFlags};
use creamery_fuse::{
    Errno, FileHandle, NewInode, NodeId, OpenRequest, Operations, ReleaseRequest, RequestContext,
};
use creamery_mount::{Adapter, Owner};
use creamery_testkit::{Judge, Judges, Scratch};
use creamery_txn::{CommitParticipant, Handle};

const OPEN: OpenRequest = OpenRequest { flags: 0, kill_suidgid: false };

/// A fresh filesystem of mkfs.btrfs, and its adapter.
struct Served {
    fs: Arc<creamery_fs::Filesystem>,
    adapter: Adapter,
    scratch: Scratch,
}

fn open(image: &Path, read_only: bool) -> (Arc<creamery_fs::Filesystem>, Adapter) {
    let options = creamery_mount::Options::parse("image", [if read_only { "ro" } else { "rw" }]);
    let fs = creamery_mount::open(image, &mut options.expect("two words")).expect("a filesystem");
    let root = fs.root(fs.default_subvolume()).expect("a root");
    (Arc::clone(&fs), Adapter::new(fs, root, Owner::default()))
}

fn served(name: &str) -> Option<Served> {
    if !Judges::here().have(&[Judge::BtrfsProgs]) {
        println!("skipped: btrfs-progs missing");
        return None;
    }
    let scratch = Scratch::new(name).expect("a scratch folder");
    let image = scratch.file("image");
    std::fs::File::create(&image).and_then(|file| file.set_len(256 << 20)).expect("an image");
    let made = Command::new("mkfs.btrfs").arg("-q").arg(&image).status().expect("mkfs.btrfs");
    assert!(made.success());
    let (fs, adapter) = open(&image, false);
    Some(Served { fs, adapter, scratch })
}

fn ctx() -> RequestContext<'static> {
    RequestContext::new(0, 0, 0)
}

impl Served {
    fn make(&self, name: &[u8]) -> NodeId {
        let new = NewInode { mode: 0o100_644, ..NewInode::default() };
        self.adapter.mknod(&ctx(), NodeId::ROOT, name, &new).expect("a new file").node
    }

    fn lookup(&self, name: &[u8]) -> NodeId {
        self.adapter.lookup(&ctx(), NodeId::ROOT, name).expect("it is there").node
    }

    fn unlink(&self, name: &[u8]) {
        self.adapter.unlink(&ctx(), NodeId::ROOT, name).expect("it is unlinked");
    }

    fn links(&self, node: NodeId) -> Result<u32, Errno> {
        self.adapter.getattr(&ctx(), node, None).map(|reply| reply.attr.nlink)
    }
}

#[test]
fn an_unlinked_inode_lives_as_long_as_the_kernel_has_references() {
    let Some(served) = served("references") else { return };
    let node = served.make(b"file");
    for _ in 0..3 {
        assert_eq!(served.lookup(b"file"), node);
    }
    served.unlink(b"file");
    for (given_back, left) in [(1, true), (2, true), (1, false)] {
        served.adapter.forget(node, given_back);
        let want = if left { Ok(0) } else { Err(Errno::ESTALE) };
        assert_eq!(served.links(node), want, "after {given_back} were given back");
    }
}

#[test]
fn a_forget_that_a_lookup_overtook_forgets_no_more_than_it_says() {
    let Some(served) = served("overtaken") else { return };
    let node = served.make(b"file");
    served.lookup(b"file"); // the kernel threw the inode out meanwhile; the news of that come late
    served.unlink(b"file");
    served.adapter.forget(node, 1);
    assert_eq!(served.links(node), Ok(0), "the kernel has it from the second answer");
    served.adapter.forget(node, 1);
    assert_eq!(served.links(node), Err(Errno::ESTALE));
}

#[test]
fn listing_gives_references_too_and_what_nobody_knows_is_not_kept() {
    let Some(served) = served("listed") else { return };
    let node = served.make(b"file");
    let mut room = vec![0; 4096];
    let mut sink = creamery_fuse::protocol::DirectoryPlusSink::new(&mut room);
    served.adapter.readdirplus(&ctx(), NodeId::ROOT, FileHandle::default(), 0, &mut sink).expect("a listing");
    served.adapter.forget(node, 1);
    served.unlink(b"file");
    assert_eq!(served.links(node), Ok(0), "from the listing");
    served.adapter.forget(node, 1);
    assert_eq!(served.links(node), Err(Errno::ESTALE));
    // A FORGET of more references than the kernel got is a bug elsewhere, and must not count.
    served.adapter.forget(node, 7);
    let again = served.make(b"again");
    served.adapter.forget(again, 1);
    served.unlink(b"again");
    assert_eq!(served.links(again), Err(Errno::ESTALE), "the kernel had forgotten it before");
}

#[test]
fn a_listing_is_kept_until_a_name_changes_and_for_one_at_a_time() {
    let Some(served) = served("kept") else { return };
    let adapter = &served.adapter;
    let open = |node| adapter.opendir(&ctx(), node, &OPEN).expect("it opens");
    let close = |node, handle| {
        let release =
            ReleaseRequest { handle, flags: 0, release_flags: ReleaseFlags::empty(), lock_owner: 0 };
        adapter.releasedir(&ctx(), node, &release).expect("it closes");
    };
    let listed = |node| {
        let opened = open(node);
        close(node, opened.handle);
        opened.flags
    };
    let dir = |name: &[u8]| {
        let new = NewInode { mode: 0o755, ..NewInode::default() };
        adapter.mkdir(&ctx(), NodeId::ROOT, name, &new).expect("a new directory").node
    };
    let (one, other) = (dir(b"one"), dir(b"other"));
    let new = NewInode { mode: 0o100_644, ..NewInode::default() };
    let anew = OpenReplyFlags::CACHE_DIR;
    let kept = anew | OpenReplyFlags::KEEP_CACHE;
    let rename = |from, name: &[u8], to, new_name: &[u8], flags| {
        adapter.rename(&ctx(), from, name, to, new_name, flags).expect("it is renamed");
    };
    let changes: [&dyn Fn(); 9] = [
        &|| {
            adapter.mknod(&ctx(), one, b"a", &new).expect("made");
        },
        &|| {
            adapter.mkdir(&ctx(), one, b"b", &new).expect("made");
        },
        &|| {
            adapter.symlink(&ctx(), one, b"c", b"target").expect("made");
        },
        &|| {
            adapter.create(&ctx(), one, b"d", &new, &OPEN).expect("made");
        },
        &|| {
            adapter
                .link(&ctx(), adapter.lookup(&ctx(), one, b"a").expect("there").node, one, b"e")
                .expect("made");
        },
        &|| adapter.unlink(&ctx(), one, b"a").expect("removed"),
        &|| adapter.rmdir(&ctx(), one, b"b").expect("removed"),
        &|| rename(one, b"c", one, b"f", RenameFlags::empty()),
        &|| rename(NodeId::ROOT, b"one", other, b"moved", RenameFlags::empty()),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        assert_eq!(listed(one), anew, "before change {number}");
        assert_eq!(listed(one), kept);
        let begun = open(one);
        assert_eq!(listed(one), OpenReplyFlags::empty(), "somebody else may be filling it");
        change();
        assert_eq!(listed(one), OpenReplyFlags::empty());
        close(one, begun.handle);
    }
    assert_eq!(listed(one), anew, "its parent is another");
    assert_eq!((listed(other), listed(other)), (anew, kept));
    served.fs.set_atime(AtimeOptions { atime: Atime::Strict, ..AtimeOptions::default() });
    assert_eq!(listed(other), OpenReplyFlags::empty(), "every access is to be seen");
}

#[test]
fn syncing_what_is_mounted_read_only_succeeds() {
    let Some(served) = served("read-only") else { return };
    served.make(b"file");
    let Served { fs, adapter, scratch } = served;
    fs.sync().expect("a commit");
    drop((adapter, fs));
    let (fs, adapter) = open(&scratch.file("image"), true);
    let node = adapter.lookup(&ctx(), NodeId::ROOT, b"file").expect("it is there").node;
    let file = adapter.open(&ctx(), node, &OPEN).expect("it opens").handle;
    assert_eq!(adapter.fsync(&ctx(), node, file, false), Ok(()));
    assert_eq!(adapter.fsyncdir(&ctx(), NodeId::ROOT, FileHandle::default(), false), Ok(()));
    assert_eq!(adapter.syncfs(&ctx(), NodeId::ROOT), Ok(()));
    fs.settle().expect("nothing to do");
    let new = NewInode { mode: 0o100_644, ..NewInode::default() };
    let refused = adapter.mknod(&ctx(), NodeId::ROOT, b"new", &new).map(|entry| entry.node);
    assert_eq!(refused, Err(Errno::EROFS));
}

/// Dies in the middle of every commit.
struct Dies;

impl CommitParticipant for Dies {
    fn settle(&self, _: &Handle<'_>) -> CreameryResult<()> {
        panic!("dies in the middle of a commit")
    }
}

#[test]
fn a_panic_in_a_commit_aborts_with_its_words_and_its_place() {
    let Some(served) = served("panic") else { return };
    served.make(b"durable");
    served.fs.sync().expect("a commit");
    served.make(b"lost");
    let (send, told) = std::sync::mpsc::channel();
    served.fs.engine().tell_abort(move |abort| send.send(abort.to_string()).expect("somebody listens"));
    served.fs.engine().register(Arc::new(Dies));

    // As a worker of the transport does it.
    let adapter = &served.adapter;
    let sync = || adapter.syncfs(&ctx(), NodeId::ROOT);
    let panic = creamery_base::panics::catch(sync).expect_err("it panics");
    adapter.panicked(&panic);

    let abort = served.fs.engine().aborted().expect("it aborted").clone();
    assert_eq!(abort.reason, "a thread panicked: dies in the middle of a commit");
    assert!(abort.place.contains("tests/adapter.rs:"), "{abort}");
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [abort.to_string()], "told once");
    assert_eq!(sync(), Err(Errno::EROFS));
    let statistics = served.fs.statistics().aborted.expect("it is in the statistics");
    assert_eq!((statistics.reason, statistics.place), (abort.reason, abort.place));

    // Others go on reading, and what was committed stays.
    let Served { fs, adapter, scratch } = served;
    assert!(adapter.lookup(&ctx(), NodeId::ROOT, b"lost").is_ok_and(|entry| entry.node.get() > 1));
    let error = fs.settle().expect_err("it is lost");
    assert!(error.to_string().contains("dies in the middle of a commit"), "{error}");
    drop((adapter, fs));
    let (_fs, adapter) = open(&scratch.file("image"), false);
    let node = |name: &[u8]| adapter.lookup(&ctx(), NodeId::ROOT, name).expect("an answer").node.get();
    assert!(node(b"durable") > 1);
    assert_eq!(node(b"lost"), 0, "a negative entry");
}
