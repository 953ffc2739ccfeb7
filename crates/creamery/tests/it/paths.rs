//! Paths, files and copies through the public interface.

use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

use creamery::attributes::{FileTimes, Timespec};
use creamery::copy::{CopyOptions, Reflink};
use creamery::id::TreeId;
use creamery::progress::OnError;
use creamery::{Error, ErrorKind, Filesystem, Image, OpenOptions, Permissions};

const EVERYTHING: CopyOptions = CopyOptions {
    recursive: true,
    archive: true,
    reflink: Reflink::Auto,
    on_error: OnError::Stop,
    preserve: false,
    replace_images: false,
};
const PLAIN: CopyOptions = CopyOptions {
    recursive: true,
    archive: false,
    reflink: Reflink::Auto,
    on_error: OnError::Stop,
    preserve: false,
    replace_images: false,
};

pub(crate) struct Fixture {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) fs: Filesystem,
}

pub(crate) fn fixture() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("disk.img");
    Image::make(&image).size(256 << 20).run().unwrap();
    let fs = Image::options().write().open(&image).unwrap();
    Fixture { dir, fs }
}

pub(crate) fn kind<T>(outcome: Result<T, creamery::Error>) -> ErrorKind {
    outcome.err().expect("it should have failed").kind()
}

/// The kind of an error of the host in this library.
fn kind_of_std(error: std::io::Error) -> ErrorKind {
    match error.kind() {
        std::io::ErrorKind::IsADirectory => ErrorKind::IsADirectory,
        std::io::ErrorKind::NotADirectory => ErrorKind::NotADirectory,
        _ => Error::from(error).kind(),
    }
}

#[test]
fn links_are_followed_inside_the_image() {
    let Fixture { fs, .. } = fixture();
    fs.create_dir_all("/a/b").unwrap();
    fs.write("/a/b/file", "deep").unwrap();
    fs.symlink("/a", "/a/absolute").unwrap();
    fs.symlink("../b", "/a/b/relative").unwrap();
    fs.symlink("b/file", "/a/to-file").unwrap();
    for path in ["/a/b/file", "a/b/file", "/a/./b//file", "/a/b/../b/file", "/../../a/b/file"] {
        assert_eq!(fs.read_to_string(path).unwrap(), "deep", "{path}");
    }
    for path in ["/a/absolute/absolute/b/file", "/a/b/relative/relative/file", "/a/to-file"] {
        assert_eq!(fs.read_to_string(path).unwrap(), "deep", "{path}");
    }
    assert!(fs.symlink_metadata("/a/to-file").unwrap().is_symlink());
    assert!(fs.metadata("/a/to-file").unwrap().is_file());
    assert_eq!(fs.read_link("/a/to-file").unwrap(), PathBuf::from("b/file"));
    assert!(fs.symlink_metadata("/a/absolute/").unwrap().is_dir());
}

#[test]
fn a_path_that_leads_nowhere_says_why() {
    let Fixture { fs, .. } = fixture();
    fs.write("/file", "").unwrap();
    fs.create_dir("/dir").unwrap();
    fs.symlink("loop", "/loop").unwrap();
    fs.symlink("none", "/dangling").unwrap();
    assert_eq!(kind(fs.metadata("/none")), ErrorKind::NotFound);
    assert_eq!(kind(fs.metadata("/none/below")), ErrorKind::NotFound);
    assert_eq!(kind(fs.metadata("/dangling")), ErrorKind::NotFound);
    assert_eq!(kind(fs.metadata("/file/below")), ErrorKind::NotADirectory);
    assert_eq!(kind(fs.metadata("/file/")), ErrorKind::NotADirectory);
    assert_eq!(kind(fs.metadata("/loop")), ErrorKind::TooManySymlinks);
    assert_eq!(kind(fs.open("/dir")), ErrorKind::IsADirectory);
    assert_eq!(kind(fs.read_dir("/file")), ErrorKind::NotADirectory);
    assert_eq!(kind(fs.create_dir("/dir")), ErrorKind::AlreadyExists);
    assert_eq!(kind(fs.create_dir_all("/file")), ErrorKind::AlreadyExists);
    assert_eq!(kind(fs.remove_file("/dir")), ErrorKind::IsADirectory);
    assert_eq!(kind(fs.remove_dir("/file")), ErrorKind::NotADirectory);
    assert_eq!(kind(fs.remove_dir("/")), ErrorKind::InvalidInput);
    assert_eq!(kind(fs.create_dir(format!("/{}", "n".repeat(256)))), ErrorKind::NameTooLong);
    let message = fs.metadata("/none/below").unwrap_err().to_string();
    assert!(message.contains("/none/below"), "{message}");
}

#[test]
fn open_options_mean_what_they_mean_in_std() {
    let Fixture { fs, .. } = fixture();
    let open = |options: &OpenOptions| options.open(&fs, "/file");
    assert_eq!(kind(open(OpenOptions::new().write(true))), ErrorKind::NotFound);
    assert_eq!(kind(open(OpenOptions::new().read(true).create(true))), ErrorKind::InvalidInput);
    let mut file = open(OpenOptions::new().write(true).create_new(true).mode(0o640)).unwrap();
    file.write_all(b"hello").unwrap();
    assert!(file.read_at(&mut [0], 0).is_err());
    assert_eq!(kind(open(OpenOptions::new().write(true).create_new(true))), ErrorKind::AlreadyExists);
    let mut file = open(OpenOptions::new().append(true)).unwrap();
    file.write_all(b" world").unwrap();
    let mut file = open(OpenOptions::new().read(true).write(true)).unwrap();
    file.seek(SeekFrom::End(-5)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "world");
    assert_eq!(fs.metadata("/file").unwrap().permissions().mode(), 0o640);
    file.set_len(2).unwrap();
    assert_eq!(fs.read("/file").unwrap(), b"he");
    open(OpenOptions::new().write(true).truncate(true)).unwrap();
    assert_eq!(fs.metadata("/file").unwrap().len(), 0);
}

#[test]
fn a_tree_goes_with_all_that_is_in_it_and_links_are_not_followed() {
    let Fixture { fs, .. } = fixture();
    fs.create_dir("/outside").unwrap();
    fs.write("/outside/kept", "yes").unwrap();
    let mut path = PathBuf::from("/tree");
    for level in 0..50 {
        fs.create_dir(&path).unwrap();
        fs.write(path.join("file"), "x").unwrap();
        path.push(format!("level-{level}"));
    }
    fs.symlink("/outside", "/tree/link").unwrap();
    fs.symlink("/outside", "/alone").unwrap();
    fs.remove_dir_all("/alone").unwrap();
    fs.remove_dir_all("/tree").unwrap();
    assert!(!fs.exists("/tree"));
    assert_eq!(fs.read_to_string("/outside/kept").unwrap(), "yes");
}

#[test]
fn what_was_closed_is_there_when_it_is_opened_again() {
    let Fixture { fs, dir } = fixture();
    fs.write("/file", "content").unwrap();
    fs.set_xattr("/file", "user.note", "cheese").unwrap();
    fs.set_permissions("/file", Permissions::from_mode(0o600)).unwrap();
    let time = Timespec { sec: -5, nsec: 7 };
    fs.set_times("/file", FileTimes::new().set_accessed(time).set_modified(time)).unwrap();
    fs.chown("/file", Some(12), Some(34)).unwrap();
    fs.subvolumes().create("/sub").unwrap();
    fs.write("/sub/inside", "sub").unwrap();
    fs.close().unwrap();
    let image = dir.path().join("disk.img");
    let fs = Image::open(&image).unwrap();
    let meta = fs.metadata("/file").unwrap();
    assert_eq!((meta.uid(), meta.gid(), meta.mtime()), (12, 34, time));
    assert_eq!(meta.permissions().to_string(), "rw-------");
    assert_eq!(fs.xattr("/file", "user.note").unwrap(), b"cheese");
    assert_eq!(kind(fs.xattr("/file", "user.none")), ErrorKind::NoAttribute);
    assert_eq!(kind(fs.write("/file", "no")), ErrorKind::ReadOnly);
    let sub = fs.metadata("/sub").unwrap().subvolume();
    assert_ne!(sub, TreeId::FS);
    drop(fs);
    let fs = Image::options().subvolume("sub").open(&image).unwrap();
    assert_eq!(fs.read_to_string("/inside").unwrap(), "sub");
    drop(fs);
    let fs = Image::options().subvolume_id(sub).open(&image).unwrap();
    assert!(fs.exists("inside") && !fs.exists("/file"));
}

#[test]
fn an_image_that_somebody_writes_to_is_not_opened_twice() {
    let Fixture { fs, dir } = fixture();
    let image = dir.path().join("disk.img");
    assert_eq!(kind(Image::open(&image)), ErrorKind::Busy);
    drop(fs);
    let (one, two) = (Image::open(&image).unwrap(), Image::open(&image).unwrap());
    assert_eq!(kind(Image::options().write().open(&image)), ErrorKind::Busy);
    drop((one, two));
}

#[test]
fn copies_go_where_cp_would_put_them() {
    let Fixture { fs, dir } = fixture();
    let host = dir.path().join("host");
    std::fs::create_dir_all(host.join("below")).unwrap();
    std::fs::write(host.join("below/file"), "content").unwrap();
    fs.create_dir("/there").unwrap();
    fs.copy_in(&host, "/there").options(PLAIN).run().unwrap();
    assert!(fs.exists("/there/host/below/file"));
    fs.copy_in(&host, "/fresh").options(PLAIN).run().unwrap();
    assert!(fs.exists("/fresh/below/file"));
    fs.copy_in(host.join("."), "/there").options(PLAIN).run().unwrap();
    assert!(fs.exists("/there/below/file"));
    fs.copy_in(host.join("below/file"), "/there").run().unwrap();
    fs.copy_in(host.join("below/file"), "/there/renamed").run().unwrap();
    assert_eq!(fs.read_to_string("/there/renamed").unwrap(), "content");
    let refused = fs.copy_in(&host, "/no-r").run();
    assert_eq!(kind(refused), ErrorKind::IsADirectory);
    let nowhere = fs.copy_in(&host, "/none/x").options(PLAIN).run();
    assert_eq!(kind(nowhere), ErrorKind::NotFound);

    let out = dir.path().join("out");
    fs.copy_out("/there", &out).options(PLAIN).run().unwrap();
    assert!(out.join("host/below/file").exists());
    fs.copy_out("/there", &out).options(PLAIN).run().unwrap();
    assert!(out.join("there/host/below/file").exists());
    fs.copy_out("/there/file", out.join("one")).run().unwrap();
    assert_eq!(std::fs::read_to_string(out.join("one")).unwrap(), "content");
}

#[test]
fn a_copy_over_what_is_there_replaces_files_and_merges_directories() {
    let Fixture { fs, dir } = fixture();
    let host = dir.path().join("host");
    std::fs::create_dir(&host).unwrap();
    std::fs::write(host.join("file"), "new").unwrap();
    fs.create_dir("/host").unwrap();
    fs.write("/host/file", "old and longer").unwrap();
    fs.write("/host/other", "stays").unwrap();
    for options in [PLAIN, EVERYTHING] {
        fs.copy_in(&host, "/").options(options).run().unwrap();
        assert_eq!(fs.read_to_string("/host/file").unwrap(), "new");
        assert_eq!(fs.read_to_string("/host/other").unwrap(), "stays");
    }
    fs.write("/other", "in the way").unwrap();
    assert!(fs.copy_in(&host, "/other").options(PLAIN).run().is_err());
}

#[test]
fn a_copy_within_one_image_works_but_not_into_itself() {
    let Fixture { fs, .. } = fixture();
    fs.create_dir_all("/a/b").unwrap();
    fs.write("/a/b/file", "content").unwrap();
    fs.copy_between("/a", &fs, "/copy").options(EVERYTHING).run().unwrap();
    assert_eq!(fs.read_to_string("/copy/b/file").unwrap(), "content");
    for into in ["/a/b", "/a", "/a/new"] {
        assert_eq!(kind(fs.copy_between("/a", &fs, into).options(EVERYTHING).run()), ErrorKind::InvalidInput);
    }
    assert_eq!(kind(fs.copy_between("/", &fs, "/copy").options(EVERYTHING).run()), ErrorKind::InvalidInput);
    assert_eq!(fs.copy("/a/b/file", "/plain").unwrap(), 7);
    assert_eq!(fs.read("/plain").unwrap(), b"content");
}

#[test]
fn an_archive_copy_keeps_everything_both_ways() {
    let Fixture { fs, dir } = fixture();
    fs.create_dir("/tree").unwrap();
    fs.write("/tree/file", vec![3; 10_000]).unwrap();
    fs.hard_link("/tree/file", "/tree/again").unwrap();
    fs.set_permissions("/tree/file", Permissions::from_mode(0o754)).unwrap();
    let sparse = OpenOptions::new().write(true).create(true).open(&fs, "/tree/sparse").unwrap();
    sparse.write_all_at(&[1; 4096], 1 << 20).unwrap();
    sparse.set_len(3 << 20).unwrap();
    fs.symlink("file", "/tree/link").unwrap();
    let time = Timespec { sec: 1_234_567_890, nsec: 123_456_789 };
    for path in ["/tree/file", "/tree/link", "/tree/sparse", "/tree"] {
        fs.set_times(path, FileTimes::new().set_accessed(time).set_modified(time)).unwrap();
    }
    let out = dir.path().join("out");
    fs.copy_out("/tree", &out).options(EVERYTHING).run().unwrap();
    let meta = std::fs::metadata(out.join("file")).unwrap();
    assert_eq!((meta.permissions().mode() & 0o7777, meta.nlink()), (0o754, 2));
    for name in ["file", "link", "sparse", "."] {
        let meta = std::fs::symlink_metadata(out.join(name)).unwrap();
        assert_eq!((meta.mtime(), meta.mtime_nsec()), (time.sec, 123_456_789), "{name}");
    }
    let sparse = std::fs::metadata(out.join("sparse")).unwrap();
    assert_eq!(sparse.len(), 3 << 20);
    assert!(sparse.blocks() * 512 < 1 << 20, "holes were filled");

    let second = dir.path().join("second.img");
    Image::make(&second).size(256 << 20).run().unwrap();
    let second = Image::options().write().open(second).unwrap();
    second.copy_in(&out, "/in").options(EVERYTHING).run().unwrap();
    fs.copy_between("/tree", &second, "/between").options(EVERYTHING).run().unwrap();
    for copy in ["/in", "/between"] {
        let meta = second.metadata(format!("{copy}/file")).unwrap();
        assert_eq!((meta.permissions().mode(), meta.nlink(), meta.mtime()), (0o754, 2, time));
        let sparse = second.open(format!("{copy}/sparse")).unwrap();
        assert_eq!(sparse.seek_data(0).unwrap(), Some(1 << 20));
        assert_eq!(sparse.metadata().unwrap().len(), 3 << 20);
        assert_eq!(second.metadata(copy).unwrap().mtime(), time);
        assert_eq!(second.symlink_metadata(format!("{copy}/link")).unwrap().mtime(), time);
    }
}

#[test]
fn a_link_that_the_user_names_is_followed_and_none_below_it() {
    let Fixture { fs, dir } = fixture();
    fs.write("/file", "content").unwrap();
    fs.create_dir("/tree").unwrap();
    fs.write("/tree/file", "content").unwrap();
    let host = |name: &str| dir.path().join(name);
    std::fs::create_dir(host("folder")).unwrap();
    std::fs::write(host("target"), "old").unwrap();
    for (to, link) in
        [("target", "to-file"), ("folder", "to-folder"), ("none", "to-nothing"), ("self", "self")]
    {
        std::os::unix::fs::symlink(to, host(link)).unwrap();
    }
    let copy = |to: &str| fs.copy_out("/file", host(to)).run();
    copy("to-file").unwrap();
    assert!(host("to-file").symlink_metadata().unwrap().is_symlink());
    assert_eq!(std::fs::read_to_string(host("target")).unwrap(), "content");
    copy("to-folder").unwrap();
    fs.copy_out("/tree", host("to-folder")).options(PLAIN).run().unwrap();
    assert!(host("folder/file").exists() && host("folder/tree/file").exists());
    assert_eq!(kind(copy("to-nothing")), ErrorKind::NotFound);
    assert!(copy("self").is_err() && !host("none").exists());
    // Below the named folder a link is replaced.
    std::fs::remove_file(host("folder/tree/file")).unwrap();
    std::os::unix::fs::symlink("../../target", host("folder/tree/file")).unwrap();
    std::fs::write(host("target"), "old").unwrap();
    fs.copy_out("/tree", host("folder")).options(PLAIN).run().unwrap();
    assert!(host("folder/tree/file").symlink_metadata().unwrap().is_file());
    assert_eq!(std::fs::read_to_string(host("target")).unwrap(), "old");
}

#[test]
fn a_pipe_or_device_is_not_replaced_by_a_file() {
    let Fixture { fs, dir } = fixture();
    fs.write("/file", "content").unwrap();
    let socket = dir.path().join("socket");
    let _open = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let refused = fs.copy_out("/file", &socket).run().unwrap_err();
    assert!(refused.to_string().contains("socket"), "{refused}");
    assert!(!socket.symlink_metadata().unwrap().is_file());
}

#[test]
fn what_threads_append_through_handles_of_their_own_is_all_there() {
    const LINES: usize = 2000;
    let Fixture { fs, dir: _dir } = fixture();
    let append = |thread: usize| {
        let mut log = OpenOptions::new().append(true).create(true).open(&fs, "/log").unwrap();
        for number in 0..LINES {
            log.write_all(format!("{thread} {number:04}\n").as_bytes()).unwrap();
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|thread| drop(scope.spawn(move || append(thread)))));
    let text = fs.read_to_string("/log").unwrap();
    assert_eq!(text.len(), 2 * LINES * "0 0000\n".len());
    for thread in ["0", "1"] {
        let mine = text.lines().filter_map(|line| line.split_once(' ')).filter(|(who, _)| *who == thread);
        let numbers: Vec<usize> = mine.map(|(_, number)| number.parse().unwrap()).collect();
        assert_eq!(numbers, (0..LINES).collect::<Vec<_>>(), "the lines of thread {thread}");
    }
}

#[test]
fn a_file_is_refused_everything_once_the_filesystem_is_closed() {
    let Fixture { fs, dir } = fixture();
    let image = dir.path().join("disk.img");
    fs.create_dir("/dir").unwrap();
    fs.write("/dir/inside", "x").unwrap();
    fs.write("/file", "content").unwrap();
    let mut file = OpenOptions::new().read(true).write(true).open(&fs, "/file").unwrap();
    let mut log = OpenOptions::new().append(true).create(true).open(&fs, "/log").unwrap();
    let mut listing = fs.read_dir("/dir").unwrap();
    let mut walk = fs.walk("/dir").unwrap();
    fs.close().unwrap();

    assert_eq!(kind(file.write_at(b"lost", 0)), ErrorKind::Stale);
    assert!(log.write(b"lost").is_err());
    assert_eq!(kind(file.set_len(1)), ErrorKind::Stale);
    assert_eq!(kind(file.sync_all()), ErrorKind::Stale);
    assert_eq!(kind(file.read_at(&mut [0; 7], 0)), ErrorKind::Stale);
    assert_eq!(kind(file.seek_hole(0)), ErrorKind::Stale);
    let refused = file.metadata().err().unwrap();
    assert!(refused.to_string().contains("the filesystem was closed"), "{refused}");
    assert!(file.read(&mut [0; 7]).is_err());
    assert_eq!(kind(listing.next().unwrap()), ErrorKind::Stale);
    assert_eq!(kind(walk.next().unwrap()), ErrorKind::Stale);

    // The image is unlocked, although all of these still exist.
    let fs = Image::options().write().open(&image).unwrap();
    assert_eq!(fs.read_to_string("/file").unwrap(), "content");
    fs.write("/file", "changed").unwrap();
    fs.close().unwrap();
    drop((file, log, listing, walk));
    assert_eq!(Image::open(&image).unwrap().read_to_string("/file").unwrap(), "changed");
}

#[test]
fn what_was_written_with_success_while_the_filesystem_is_closed_is_durable() {
    for round in 0..8 {
        let Fixture { fs, dir } = fixture();
        let image = dir.path().join("disk.img");
        let mut logs: Vec<_> = (0..2)
            .map(|number| {
                OpenOptions::new().append(true).create(true).open(&fs, format!("/log{number}")).unwrap()
            })
            .collect();
        let begun = std::sync::Barrier::new(logs.len() + 1);
        let written: Vec<u64> = std::thread::scope(|scope| {
            let running: Vec<_> = logs
                .iter_mut()
                .map(|log| {
                    let begun = &begun;
                    scope.spawn(move || {
                        let mut written = 0;
                        while log.write_all(b"line\n").is_ok() {
                            written += 5;
                            if written == 500 {
                                begun.wait();
                            }
                        }
                        written
                    })
                })
                .collect();
            begun.wait();
            fs.close().unwrap();
            running.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let fs = Image::open(&image).unwrap();
        for (number, written) in written.into_iter().enumerate() {
            let len = fs.metadata(format!("/log{number}")).unwrap().len();
            assert_eq!(len, written, "round {round}, log {number}");
        }
    }
}

#[test]
fn a_path_that_ends_in_a_slash_is_a_directorys_as_in_std() {
    let Fixture { fs, dir } = fixture();
    let host = |path: &str| dir.path().join(path.trim_start_matches('/'));
    // Both sides have the same file.
    std::fs::write(host("/file"), "content").unwrap();
    std::fs::create_dir(host("/dir")).unwrap();
    std::fs::write(host("/dir/kept"), "").unwrap();
    std::os::unix::fs::symlink("dir", host("/link")).unwrap();
    fs.write("/file", "content").unwrap();
    fs.create_dir("/dir").unwrap();
    fs.write("/dir/kept", "").unwrap();
    fs.symlink("dir", "/link").unwrap();
    let std_kind = |outcome: std::io::Result<()>| outcome.err().map(kind_of_std);
    let our_kind = |outcome: Result<(), Error>| outcome.err().map(|error| error.kind());
    let open = || OpenOptions::new().write(true).create_new(true).clone();
    let std_open = || std::fs::OpenOptions::new().write(true).create_new(true).clone();
    for path in ["/new/", "/file/", "/dir/", "/link/", "/none/x/", "/new//"] {
        let at = host(path);
        assert_eq!(our_kind(fs.write(path, "x")), std_kind(std::fs::write(&at, "x")), "write {path}");
        let opened = our_kind(open().open(&fs, path).map(drop));
        assert_eq!(opened, std_kind(std_open().open(&at).map(drop)), "open {path}");
        let linked = std_kind(std::os::unix::fs::symlink("x", &at));
        assert_eq!(our_kind(fs.symlink("x", path)), linked, "symlink {path}");
        let linked = std_kind(std::fs::hard_link(host("/file"), &at));
        assert_eq!(our_kind(fs.hard_link("/file", path)), linked, "link to {path}");
        let renamed = std_kind(std::fs::rename(host("/file"), &at));
        assert_eq!(our_kind(fs.rename("/file", path)), renamed, "rename to {path}");
        let copied = our_kind(fs.copy("/file", path).map(drop));
        assert_eq!(copied, std_kind(std::fs::copy(host("/file"), &at).map(drop)), "copy to {path}");
        let removed = std_kind(std::fs::remove_file(&at));
        assert_eq!(our_kind(fs.remove_file(path)), removed, "remove {path}");
    }
    for path in ["/file/", "/link/", "/none/"] {
        let renamed = std_kind(std::fs::rename(host(path), host("/elsewhere")));
        assert_eq!(our_kind(fs.rename(path, "/elsewhere")), renamed, "rename {path}");
        let linked = std_kind(std::fs::hard_link(host(path), host("/elsewhere")));
        assert_eq!(our_kind(fs.hard_link(path, "/elsewhere")).is_some(), linked.is_some(), "link {path}");
        let removed = std_kind(std::fs::remove_dir(host(path)));
        assert_eq!(our_kind(fs.remove_dir(path)), removed, "rmdir {path}");
    }
    // A link is not followed: its target's files stay.
    assert_eq!(kind(fs.remove_dir_all("/link/")), ErrorKind::NotADirectory);
    assert!(fs.exists("/dir/kept") && !fs.exists("/elsewhere") && !fs.exists("/new"));
    // The path of a directory may end with a slash.
    fs.create_dir("/made/").unwrap();
    fs.create_dir_all("/deep/er/").unwrap();
    fs.subvolumes().create("/sub/").unwrap();
    fs.rename("/made/", "/moved/").unwrap();
    fs.remove_dir("/moved/").unwrap();
    fs.remove_dir_all("/dir/").unwrap();
    assert!(fs.exists("/deep/er") && fs.exists("/sub") && !fs.exists("/dir"));
}

#[test]
fn a_path_with_dots_means_what_it_means_in_std() {
    let Fixture { fs, dir } = fixture();
    let host = |path: &str| dir.path().join(path.trim_start_matches('/'));
    std::fs::write(host("/file"), "content").unwrap();
    std::fs::create_dir(host("/dir")).unwrap();
    std::os::unix::fs::symlink("dir", host("/link")).unwrap();
    std::os::unix::fs::symlink("file", host("/to-file")).unwrap();
    fs.write("/file", "content").unwrap();
    fs.create_dir("/dir").unwrap();
    fs.symlink("dir", "/link").unwrap();
    fs.symlink("file", "/to-file").unwrap();
    let paths =
        ["/file/.", "/to-file/.", "/file/..", "/dir/.", "/link/.", "/dir/./.", "/none/.", "/dir/../file"];
    for path in paths {
        let (ours, theirs) = (fs.metadata(path), std::fs::metadata(host(path)));
        let theirs = theirs.map(|meta| meta.is_dir()).map_err(kind_of_std);
        assert_eq!(ours.map(|meta| meta.is_dir()).map_err(|error| error.kind()), theirs, "{path}");
        let (ours, theirs) = (fs.symlink_metadata(path), std::fs::symlink_metadata(host(path)));
        let theirs = theirs.map(|meta| meta.is_dir()).map_err(kind_of_std);
        assert_eq!(ours.map(|meta| meta.is_dir()).map_err(|error| error.kind()), theirs, "{path}");
        let (ours, theirs) = (fs.read(path), std::fs::read(host(path)));
        assert_eq!(ours.map_err(|error| error.kind()).is_ok(), theirs.is_ok(), "{path}");
    }
    for path in ["/new/../other", "/new/below/..", "/dir/./x", "/dir/../y/../y/z", "/link/../w", "/file/../v"]
    {
        let (ours, theirs) = (fs.create_dir_all(path), std::fs::create_dir_all(host(path)));
        assert_eq!(ours.is_ok(), theirs.is_ok(), "{path}");
    }
    fs.create_dir_all("/as/mkdir/.").unwrap();
    assert!(fs.metadata("/as/mkdir").unwrap().is_dir());
    for path in ["/new", "/other", "/new/below", "/dir/x", "/y/z", "/w", "/v"] {
        assert_eq!(fs.exists(path), host(path).exists(), "{path}");
    }
}

#[test]
fn a_directory_that_cannot_be_removed_by_that_name_keeps_what_is_in_it() {
    let Fixture { fs, .. } = fixture();
    fs.create_dir_all("/dir/sub").unwrap();
    fs.write("/dir/sub/kept", "kept").unwrap();
    fs.symlink("dir", "/link").unwrap();
    for path in ["/", "//", "/.", "/..", "/dir/.", "/dir/sub/..", "/dir/..", "/link/.", "/link/sub/..", ""] {
        assert!(fs.remove_dir_all(path).is_err(), "{path}");
        assert_eq!(fs.read("/dir/sub/kept").unwrap(), b"kept", "{path}");
    }
    fs.remove_dir_all("/link/sub").unwrap();
    fs.remove_dir_all("/dir/").unwrap();
    assert!(!fs.exists("/dir"));
}

#[test]
fn a_file_is_not_copied_onto_itself() {
    let Fixture { fs, .. } = fixture();
    fs.create_dir("/dir").unwrap();
    fs.write("/file", "content").unwrap();
    fs.hard_link("/file", "/dir/hard").unwrap();
    fs.symlink("../file", "/dir/soft").unwrap();
    fs.hard_link("/file", "/dir/file").unwrap();
    let options = CopyOptions::default();
    for to in ["/file", "/dir/../file", "/dir/hard", "/dir/soft", "/dir"] {
        let error = fs.copy_between("/file", &fs, to).options(options).run().expect_err(to);
        assert!(error.to_string().contains("same file"), "{error}");
    }
    assert!(fs.symlink_metadata("/dir/soft").unwrap().is_symlink());
    fs.copy_between("/file", &fs, "/copy").options(options).run().unwrap();
    assert_eq!(fs.read("/copy").unwrap(), b"content");
}

#[test]
fn a_file_is_not_copied_to_a_directory_that_is_not_there() {
    let Fixture { fs, dir } = fixture();
    let host = dir.path().join("host");
    std::fs::create_dir_all(host.join("below")).unwrap();
    std::fs::write(host.join("file"), "content").unwrap();
    fs.write("/file", "content").unwrap();
    fs.create_dir("/there").unwrap();
    let plain = CopyOptions::default();
    let new = |parent: &str| format!("{}/", host.join(parent).display());
    assert_eq!(kind(fs.copy_in(host.join("file"), "/new/").options(plain).run()), ErrorKind::NotADirectory);
    assert_eq!(kind(fs.copy_out("/file", new("new")).options(plain).run()), ErrorKind::NotADirectory);
    assert_eq!(kind(fs.copy_out("/file", new("file")).options(plain).run()), ErrorKind::NotADirectory);
    assert_eq!(kind(fs.copy_between("/file", &fs, "/new/").options(plain).run()), ErrorKind::NotADirectory);
    assert!(!fs.exists("/new") && !host.join("new").exists());
    fs.copy_in(host.join("file"), "/there/").options(plain).run().unwrap();
    fs.copy_in(host.join("below"), "/new/").options(PLAIN).run().unwrap();
    fs.copy_out("/there", new("new")).options(PLAIN).run().unwrap();
    fs.copy_between("/there", &fs, "/newer/").options(PLAIN).run().unwrap();
    assert!(fs.exists("/there/file") && fs.exists("/newer/file") && host.join("new/file").exists());
}

/// A move between subvolumes copies: an existing file with the new name goes when the copy is whole, and not before.
#[test]
fn what_cannot_be_moved_to_another_subvolume_costs_nothing_there() {
    let Fixture { fs, .. } = fixture();
    let exact = creamery::copy::NameOptions { exact: true, ..Default::default() };
    let names = |dir: &str| -> Vec<_> {
        fs.read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().to_owned()).collect()
    };
    fs.subvolumes().create("/sub").unwrap();
    fs.create_dir_all("/dir/below").unwrap();
    fs.write("/dir/below/file", "from").unwrap();
    fs.write("/sub/file", "kept").unwrap();
    fs.create_dir_all("/sub/full/entry").unwrap();
    assert_eq!(kind(exact.rename(&fs, "/dir", "/sub/file")), ErrorKind::NotADirectory);
    assert_eq!(kind(exact.rename(&fs, "/dir", "/sub/full")), ErrorKind::DirectoryNotEmpty);
    assert_eq!(fs.read("/sub/file").unwrap(), b"kept");
    assert_eq!(names("/sub"), ["file", "full"]);
    assert_eq!(names("/sub/full"), ["entry"]);
    assert_eq!(fs.read("/dir/below/file").unwrap(), b"from");
    fs.create_dir("/sub/empty").unwrap();
    assert!(exact.rename(&fs, "/dir", "/sub/empty").unwrap());
    fs.write("/other", "new").unwrap();
    assert!(exact.rename(&fs, "/other", "/sub/file").unwrap());
    assert_eq!(fs.read("/sub/empty/below/file").unwrap(), b"from");
    assert_eq!(fs.read("/sub/file").unwrap(), b"new");
    assert_eq!(names("/sub"), ["file", "full", "empty"]);
    assert!(!fs.exists("/dir") && !fs.exists("/other"));
}
