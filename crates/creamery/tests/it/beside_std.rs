//! Edge cases of calls, compared with the results of the same calls of `std` on the host.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use creamery::id::TreeId;
use creamery::tar::TarMember;
use creamery::{Error, ErrorKind, Image, OpenOptions, Permissions};

use crate::paths::{Fixture, fixture, kind};

#[test]
fn an_empty_path_names_nothing() {
    let Fixture { fs, .. } = fixture();
    fs.write("/file", "text").unwrap();
    let host = tempfile::tempdir().unwrap();
    assert_eq!(kind(fs.metadata("")), ErrorKind::NotFound);
    assert!(!fs.try_exists("").unwrap());
    assert_eq!(kind(fs.canonicalize("")), ErrorKind::NotFound);
    assert_eq!(kind(fs.read_dir("")), ErrorKind::NotFound);
    assert_eq!(kind(fs.walk("")), ErrorKind::NotFound);
    assert_eq!(kind(fs.create_dir_all("")), ErrorKind::NotFound);
    assert_eq!(kind(fs.remove_dir_all("")), ErrorKind::NotFound);
    assert_eq!(kind(fs.subvolumes().snapshot("", "/copy").run()), ErrorKind::NotFound);
    assert_eq!(kind(fs.copy_out("", host.path()).recursive().run()), ErrorKind::NotFound);
    assert_eq!(kind(fs.copy_out("/", "").recursive().run()), ErrorKind::NotFound);
    assert!(fs.metadata("/").is_ok() && fs.exists("."));
}

#[test]
fn names_in_an_archive_lead_nowhere_but_down() {
    let Fixture { fs, .. } = fixture();
    fs.write("/secret", "old").unwrap();
    fs.create_dir_all("/home/user/out").unwrap();
    // A filesystem that allows such names makes the archive.
    let other = fixture();
    other.fs.create_dir("/at").unwrap();
    other.fs.symlink(".", "/at/<FS_TREE>").unwrap();
    other.fs.create_dir("/below").unwrap();
    for name in ["/below/secret", "/below/new"] {
        other.fs.write(name, "stranger").unwrap();
    }
    let mut archive = Vec::new();
    let members = [
        TarMember::new("/at/<FS_TREE>", "<FS_TREE>"),
        TarMember::new("/below/secret", "<FS_TREE>/secret"),
        TarMember::new("/below/new", "<FS_TREE>/new"),
    ];
    other.fs.write_tar(&members).to(&mut archive).unwrap();
    fs.read_tar("/home/user/out").from(&archive[..]).unwrap();
    assert_eq!(fs.read("/secret").unwrap(), b"old");
    assert!(!fs.exists("/new"));
    assert_eq!(fs.read("/home/user/out/secret").unwrap(), b"stranger");
    // A hard link to such a name leads to the member, too.
    other.fs.remove_file("/at/<FS_TREE>").unwrap();
    other.fs.create_dir("/at/<FS_TREE>").unwrap();
    other.fs.write("/at/<FS_TREE>/secret", "mine").unwrap();
    other.fs.hard_link("/at/<FS_TREE>/secret", "/at/link").unwrap();
    let mut archive = Vec::new();
    other.fs.write_tar(&[TarMember::new("/at", "")]).to(&mut archive).unwrap();
    fs.create_dir("/home/links").unwrap();
    fs.read_tar("/home/links").from(&archive[..]).unwrap();
    assert_eq!(fs.read("/home/links/link").unwrap(), b"mine");
    assert_eq!(fs.metadata("/secret").unwrap().nlink(), 1);
}

#[test]
fn a_link_leads_no_higher_than_the_subvolume_that_was_opened() {
    let Fixture { fs, dir } = fixture();
    fs.write("/secret", "old").unwrap();
    fs.subvolumes().create("/home").unwrap();
    fs.symlink("<FS_TREE>/secret", "/home/link").unwrap();
    fs.symlink("<FS_TREE>/new", "/home/other").unwrap();
    fs.close().unwrap();
    let image = dir.path().join("disk.img");
    std::fs::write(dir.path().join("hi"), "hi").unwrap();
    let home = Image::options().write().subvolume("home").open(&image).unwrap();
    for link in ["link", "/link"] {
        assert_eq!(kind(home.copy_in(dir.path().join("hi"), link).run()), ErrorKind::NotFound);
        assert_eq!(kind(home.write(link, "hi")), ErrorKind::NotFound);
    }
    assert_eq!(kind(home.write("other", "hi")), ErrorKind::NotFound);
    home.close().unwrap();
    let fs = Image::open(&image).unwrap();
    assert_eq!(fs.read("/secret").unwrap(), b"old");
    assert!(!fs.exists("/new"));
}

#[test]
fn two_names_of_a_subvolume_have_to_agree() {
    let Fixture { fs, dir } = fixture();
    fs.subvolumes().create("/home").unwrap();
    let id = fs.subvolumes().id_at("/home").unwrap();
    fs.close().unwrap();
    let image = dir.path().join("disk.img");
    let open = |id| Image::options().subvolume("home").subvolume_id(id).open(&image);
    assert_eq!(kind(open(TreeId::FS)), ErrorKind::InvalidInput);
    assert_eq!(open(id).unwrap().subvolumes().opened(), id);
}

#[test]
fn a_listing_ends_while_names_are_made_in_it() {
    let Fixture { fs, .. } = fixture();
    fs.create_dir("/many").unwrap();
    for number in 0..1100 {
        fs.write(format!("/many/{number}"), "").unwrap();
    }
    let mut seen = 0;
    for entry in fs.read_dir("/many").unwrap() {
        fs.rename(entry.unwrap().path(), format!("/many/renamed-{seen}")).unwrap();
        seen += 1;
        assert!(seen <= 1100, "the listing does not end");
    }
    assert_eq!((seen, fs.read_dir("/many").unwrap().count()), (1100, 1100));
}

#[test]
fn a_listing_is_refused_once_the_filesystem_is_closed() {
    let Fixture { fs, .. } = fixture();
    fs.write("/a", "").unwrap();
    fs.write("/b", "").unwrap();
    let mut listing = fs.read_dir("/").unwrap();
    listing.next().unwrap().unwrap();
    fs.close().unwrap();
    assert_eq!(kind(listing.next().unwrap()), ErrorKind::Stale);
    assert!(listing.next().is_none());
}

#[test]
fn a_new_owner_takes_set_user_id_away() {
    let Fixture { fs, .. } = fixture();
    fs.write("/program", "").unwrap();
    fs.set_permissions("/program", Permissions::from_mode(0o6755)).unwrap();
    fs.chown("/program", Some(1000), Some(1000)).unwrap();
    assert_eq!(fs.metadata("/program").unwrap().permissions().mode(), 0o755);
    assert_eq!(kind(fs.chown("/program", Some(u32::MAX), None)), ErrorKind::InvalidInput);
    assert_eq!(fs.metadata("/program").unwrap().uid(), 1000);
}

#[test]
fn what_std_refuses_to_open_is_refused() {
    let Fixture { fs, dir } = fixture();
    let host = dir.path().join("file");
    for bits in 0..64_u32 {
        let bit = |at: u32| bits >> at & 1 == 1;
        fs.write("/file", "text").unwrap();
        std::fs::write(&host, "text").unwrap();
        let mut ours = OpenOptions::new();
        ours.read(bit(0)).write(bit(1)).append(bit(2)).truncate(bit(3)).create(bit(4)).create_new(bit(5));
        let mut theirs = std::fs::OpenOptions::new();
        theirs.read(bit(0)).write(bit(1)).append(bit(2)).truncate(bit(3)).create(bit(4)).create_new(bit(5));
        let ours = ours.open(&fs, "/file").map(drop).map_err(|error| io::Error::from(error).kind());
        let theirs = theirs.open(&host).map(drop).map_err(|error| error.kind());
        assert_eq!(ours, theirs, "{bits:06b}");
        assert_eq!(fs.read("/file").unwrap(), std::fs::read(&host).unwrap(), "{bits:06b}");
    }
}

#[test]
fn positions_are_those_of_std() {
    let Fixture { fs, dir } = fixture();
    let host = dir.path().join("file");
    fs.write("/file", "0123456789").unwrap();
    std::fs::write(&host, "0123456789").unwrap();
    let (mut ours, mut theirs) = (fs.open("/file").unwrap(), std::fs::File::open(&host).unwrap());
    for to in [
        SeekFrom::Start(3),
        SeekFrom::Current(-4),
        SeekFrom::Start(u64::MAX),
        SeekFrom::Start(1 << 63),
        SeekFrom::Current(1),
        SeekFrom::End(-10),
        SeekFrom::End(i64::MAX),
        SeekFrom::End(-11),
    ] {
        let (one, other) = (ours.seek(to), theirs.seek(to));
        assert_eq!(one.as_ref().ok(), other.as_ref().ok(), "{to:?}");
        let kinds = [one.err(), other.err()].map(|error| error.map(|error| error.kind()));
        assert_eq!(kinds[0], kinds[1], "{to:?}");
    }
    assert_eq!(kind(ours.read_at(&mut [0], 1 << 63)), ErrorKind::InvalidInput);
    ours.seek(SeekFrom::End(0)).unwrap();
    let error = kind(ours.read_exact(&mut [0]).map_err(Error::from));
    assert_eq!(error, ErrorKind::UnexpectedEof);
}

#[test]
fn attributes_by_path_are_those_of_what_a_link_leads_to() {
    let Fixture { fs, .. } = fixture();
    fs.write("/file", "").unwrap();
    fs.symlink("file", "/link").unwrap();
    fs.set_xattr("/link", "user.note", "milk").unwrap();
    assert_eq!(fs.xattr("/file", "user.note").unwrap(), b"milk");
    assert_eq!(fs.xattrs("/link").unwrap(), [b"user.note"]);
    fs.remove_xattr("/link", "user.note").unwrap();
    assert!(fs.xattrs("/file").unwrap().is_empty());
}

#[test]
fn links_are_removed_with_what_is_removed_whole_and_made_by_no_slash() {
    let Fixture { fs, .. } = fixture();
    fs.create_dir("/dir").unwrap();
    fs.write("/dir/file", "").unwrap();
    fs.symlink("dir", "/link").unwrap();
    fs.symlink("nowhere", "/dangling").unwrap();
    fs.remove_dir_all("/link").unwrap();
    fs.remove_dir_all("/dangling").unwrap();
    assert!(fs.exists("/dir/file") && fs.symlink_metadata("/link").is_err());
    fs.symlink("new/", "/slash").unwrap();
    assert_eq!(kind(fs.write("/slash", "x")), ErrorKind::IsADirectory);
    assert!(!fs.exists("/new"));
}

#[test]
fn nothing_is_opened_for_writing_where_nothing_can_be_written() {
    let Fixture { fs, dir } = fixture();
    fs.write("/file", "").unwrap();
    fs.close().unwrap();
    let fs = Image::open(dir.path().join("disk.img")).unwrap();
    let open = |create| OpenOptions::new().write(true).create(create).open(&fs, "/file");
    assert_eq!([kind(open(false)), kind(open(true))], [ErrorKind::ReadOnly; 2]);
}

/// Returns some bytes, and then fails.
struct FailingReader<'a>(&'a [u8]);

impl Read for FailingReader<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.0.is_empty() { Err(io::ErrorKind::ConnectionReset.into()) } else { self.0.read(out) }
    }
}

/// Accepts no bytes.
struct Full;

impl Write for Full {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn streams_that_fail_leave_what_came_and_say_why() {
    let Fixture { fs, .. } = fixture();
    fs.write("/file", "precious").unwrap();
    assert!(fs.copy_in_stream(FailingReader(b"some"), "/file").is_err());
    assert_eq!(fs.read("/file").unwrap(), b"some");
    let members = [TarMember::new("/file", "file")];
    assert_eq!(kind(fs.write_tar(&members).to(Full)), ErrorKind::NoSpace);
    for name in ["../x", "a/../b", "/abs", "a\0b"] {
        let outcome = fs.write_tar(&[TarMember::new("/file", name)]).to(io::sink());
        assert_eq!(kind(outcome), ErrorKind::InvalidInput, "{name:?}");
    }
}

#[test]
fn the_host_is_told_by_its_kinds() {
    let Fixture { fs, dir } = fixture();
    let host = dir.path();
    std::fs::write(host.join("file"), "").unwrap();
    std::os::unix::fs::symlink("loop", host.join("loop")).unwrap();
    let copy = |name: &str| fs.copy_in(host.join(name), "/to").run();
    assert_eq!(kind(copy("file/below")), ErrorKind::NotADirectory);
    assert_eq!(kind(copy(&"n".repeat(300))), ErrorKind::NameTooLong);
    assert_eq!(kind(copy("loop/x")), ErrorKind::TooManySymlinks);
    fs.write("/bytes", [0xff]).unwrap();
    let error = fs.read_to_string("/bytes").unwrap_err();
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::InvalidData);
    for existing in [".", "/", "/bytes/.."] {
        let wanted =
            if existing == "/bytes/.." { ErrorKind::NotADirectory } else { ErrorKind::AlreadyExists };
        assert_eq!(kind(fs.create_dir(existing)), wanted, "{existing}");
    }
}

#[test]
fn types_can_be_printed() {
    let Fixture { fs, .. } = fixture();
    let listing = fs.read_dir("/").unwrap();
    assert_eq!(format!("{listing:?}"), "ReadDir(\"/\")");
    let shown = format!("{fs:?} {:?}", fs.create("/file").unwrap());
    assert_eq!(shown, "Filesystem { .. } File { .. }");
    let _: (&Path, PathBuf) = (listing.path(), fs.canonicalize("/file").unwrap());
}
