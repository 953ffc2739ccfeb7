//! Tests of the sink alone, with entries that images from this library do not have.

use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};

use creamery_base::Wait;

use super::*;
use crate::fs::FileType as Kind;
use crate::progress::NoProgress;
use crate::salvage::Salvage;
use crate::sink::KeptAttributes;
use crate::{File, Filesystem, Image, Permissions};

const OUTSIDE: &str = "nobody touches this";

/// Copies a file with the content of `data`.
fn copy_file(sink: &mut HostSink, dir: &HostDir, name: &[u8], source: &Source, data: &File) -> Result<()> {
    let salvage = Salvage::new(crate::progress::OnError::Stop, &NoProgress);
    let (path, size) = ("/file".as_ref(), source.attributes.size);
    sink.file(dir, name, source, &Data { file: data, path, size, salvage: &salvage })
}

/// A host with a secret beside the destination folder, and a file to copy.
struct Host {
    dir: tempfile::TempDir,
    fs: Filesystem,
}

impl Host {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("disk.img");
        Image::make(&image).size(128 << 20).run().unwrap();
        let fs = Image::options().write().open(&image).unwrap();
        fs.write("/file", "from the image").unwrap();
        fs.hard_link("/file", "/again").unwrap();
        std::fs::create_dir(dir.path().join("out")).unwrap();
        std::fs::create_dir(dir.path().join("outside")).unwrap();
        std::fs::write(dir.path().join("outside/secret"), OUTSIDE).unwrap();
        Self { dir, fs }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn sink(&self) -> (HostSink, HostDir) {
        HostSink::open(&self.path("out"), KeptAttributes::all(true)).unwrap()
    }

    /// The file, as if it had another type.
    fn source(&self, kind: Kind) -> Source {
        let id = self.fs.resolve("/file".as_ref(), crate::path::Last::Keep).unwrap();
        let attributes = self.fs.fs.stat(id, Wait::Yes).unwrap();
        Source {
            attributes: Attributes { kind, ..attributes },
            xattrs: Vec::new(),
            target: b"../outside".to_vec(),
        }
    }

    fn data(&self) -> File {
        self.fs.open("/file").unwrap()
    }

    /// Checks that nothing was made, changed or removed outside of `out`.
    fn assert_outside_untouched(&self) {
        let names = |dir: &str| {
            let entries = std::fs::read_dir(self.path(dir)).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(names("."), ["disk.img", "out", "outside"]);
        assert_eq!(names("outside"), ["secret"]);
        assert_eq!(std::fs::read_to_string(self.path("outside/secret")).unwrap(), OUTSIDE);
        assert_eq!(self.path("outside").metadata().unwrap().permissions().mode() & 0o7777, 0o755);
    }
}

#[test]
fn a_name_of_several_components_or_of_none_is_refused_by_every_call() {
    let host = Host::new();
    let absolute = host.path("outside/secret").into_os_string().into_encoded_bytes();
    let new = host.path("made").into_os_string().into_encoded_bytes();
    let names: [&[u8]; 9] =
        [b"../outside/secret", &absolute, &new, b"../made", b"folder/", b".", b"..", b"", b"half\0"];
    let (mut sink, dir) = host.sink();
    copy_file(&mut sink, &dir, b"file", &host.source(Kind::File), &host.data()).unwrap();
    for name in names {
        let file = host.source(Kind::File);
        let outcomes = [
            copy_file(&mut sink, &dir, name, &file, &host.data()),
            sink.enter(&dir, name, &host.source(Kind::Directory)).map(drop),
            sink.node(&dir, name, &host.source(Kind::Symlink)),
            sink.node(&dir, name, &host.source(Kind::Fifo)),
            sink.link(&dir, name, &file).map(drop),
        ];
        for (call, outcome) in outcomes.into_iter().enumerate() {
            let refusal = outcome.expect_err("a name like this leads elsewhere").kind();
            assert_eq!(refusal, ErrorKind::Corrupt, "{:?}, call {call}", name.escape_ascii().to_string());
        }
        host.assert_outside_untouched();
    }
    assert_eq!(host.path("out").read_dir().unwrap().count(), 1);
}

#[test]
fn a_link_that_has_a_folders_name_is_not_gone_through() {
    let host = Host::new();
    let (mut sink, dir) = host.sink();
    sink.node(&dir, b"d", &host.source(Kind::Symlink)).unwrap();
    let folder = sink.enter(&dir, b"d", &host.source(Kind::Directory));
    assert_eq!(folder.err().unwrap().kind(), ErrorKind::NotADirectory);
    // An older link of the host is another way to the same place.
    symlink("../outside", host.path("out/old")).unwrap();
    assert!(sink.enter(&dir, b"old", &host.source(Kind::Directory)).is_err());
    copy_file(&mut sink, &dir, b"old", &host.source(Kind::File), &host.data()).unwrap();
    assert!(host.path("out/old").symlink_metadata().unwrap().is_file());
    host.assert_outside_untouched();
}

#[test]
fn a_hard_link_to_a_first_copy_that_moved_is_a_copy_of_its_own() {
    let host = Host::new();
    let (mut sink, dir) = host.sink();
    let file = host.source(Kind::File);
    let folder = sink.enter(&dir, b"d", &host.source(Kind::Directory)).unwrap();
    copy_file(&mut sink, &folder, b"secret", &file, &host.data()).unwrap();
    // The path of the first copy leads to a file outside now.
    std::fs::rename(host.path("out/d"), host.path("out/moved")).unwrap();
    symlink("../outside", host.path("out/d")).unwrap();
    assert!(!sink.link(&dir, b"again", &file).unwrap());
    // Or its name has been taken by another file.
    copy_file(&mut sink, &dir, b"first", &file, &host.data()).unwrap();
    std::fs::write(host.path("out/another"), "another").unwrap();
    std::fs::rename(host.path("out/another"), host.path("out/first")).unwrap();
    assert!(!sink.link(&dir, b"again", &file).unwrap());
    assert!(!host.path("out/again").exists());
    host.assert_outside_untouched();
}

#[test]
fn hard_links_are_made_across_folders_and_over_what_is_there() {
    let host = Host::new();
    let (mut sink, dir) = host.sink();
    let file = host.source(Kind::File);
    let one = sink.enter(&dir, b"one", &host.source(Kind::Directory)).unwrap();
    let two = sink.enter(&dir, b"two", &host.source(Kind::Directory)).unwrap();
    copy_file(&mut sink, &one, b"first", &file, &host.data()).unwrap();
    std::fs::write(host.path("out/two/second"), "in the way").unwrap();
    assert!(sink.link(&two, b"second", &file).unwrap());
    let inode = |name: &str| host.path(name).metadata().unwrap().ino();
    assert_eq!(inode("out/one/first"), inode("out/two/second"));
    // The file has so many names; a further name gets its own copy.
    assert!(!sink.link(&two, b"third", &file).unwrap());
}

#[test]
fn one_name_twice_does_not_take_the_first_copy_away() {
    let host = Host::new();
    let (mut sink, dir) = host.sink();
    let file = host.source(Kind::File);
    copy_file(&mut sink, &dir, b"name", &file, &host.data()).unwrap();
    assert!(sink.link(&dir, b"name", &file).unwrap());
    assert_eq!(std::fs::read_to_string(host.path("out/name")).unwrap(), "from the image");
}

#[test]
fn a_node_gets_its_attributes_and_what_a_link_points_to_keeps_its_own() {
    let host = Host::new();
    let (mut sink, dir) = host.sink();
    let mut fifo = host.source(Kind::Fifo);
    fifo.attributes.mode = 0o640;
    fifo.attributes.times.modification.sec = 77;
    sink.node(&dir, b"fifo", &fifo).unwrap();
    let meta = host.path("out/fifo").symlink_metadata().unwrap();
    assert!(meta.file_type().is_fifo());
    assert_eq!((meta.permissions().mode() & 0o7777, meta.mtime()), (0o640, 77));
    let before = host.path("outside").metadata().unwrap();
    let mut link = host.source(Kind::Symlink);
    link.attributes.mode = 0o700;
    link.attributes.times.modification.sec = 78;
    sink.node(&dir, b"link", &link).unwrap();
    assert_eq!(host.path("out/link").symlink_metadata().unwrap().mtime(), 78);
    let after = host.path("outside").metadata().unwrap();
    assert_eq!((before.mtime(), before.mode()), (after.mtime(), after.mode()));
    host.assert_outside_untouched();
}

#[test]
fn a_plain_copy_gives_nobody_the_rights_of_its_new_owner() {
    let host = Host::new();
    host.fs.set_permissions("/file", Permissions::from_mode(0o6755)).unwrap();
    let (mut sink, dir) = HostSink::open(&host.path("out"), KeptAttributes::all(false)).unwrap();
    copy_file(&mut sink, &dir, b"file", &host.source(Kind::File), &host.data()).unwrap();
    assert_eq!(host.path("out/file").metadata().unwrap().permissions().mode() & 0o7000, 0);
}

#[test]
fn a_file_that_cannot_be_read_to_its_end_leaves_the_old_one() {
    let host = Host::new();
    std::fs::write(host.path("out/file"), "old").unwrap();
    let (mut sink, dir) = host.sink();
    let unreadable = crate::OpenOptions::new().write(true).open(&host.fs, "/file").unwrap();
    copy_file(&mut sink, &dir, b"file", &host.source(Kind::File), &unreadable).unwrap_err();
    copy_file(&mut sink, &dir, b"new", &host.source(Kind::File), &unreadable).unwrap_err();
    assert_eq!(std::fs::read_to_string(host.path("out/file")).unwrap(), "old");
    assert_eq!(host.path("out").read_dir().unwrap().count(), 1);
}

/// Replacing an image that is open fails, by each kind of file and each way (SINK-5).
#[test]
fn an_image_that_is_in_use_is_replaced_by_nothing() {
    let host = Host::new();
    let (mut sink, dir) = host.sink();
    let file = host.fs.open("/file").unwrap();
    copy_file(&mut sink, &dir, b"first", &host.source(Kind::File), &file).unwrap();
    let used = host.path("out/used.img");
    std::fs::File::create(&used).unwrap().set_len(1 << 20).unwrap();
    let device = creamery_device::FileDevice::open(&used, creamery_device::Access::ReadWrite).unwrap();
    let refused = [
        copy_file(&mut sink, &dir, b"used.img", &host.source(Kind::File), &file),
        sink.node(&dir, b"used.img", &host.source(Kind::Symlink)),
        sink.node(&dir, b"used.img", &host.source(Kind::Fifo)),
        sink.link(&dir, b"used.img", &host.source(Kind::File)).map(drop),
    ];
    for refused in refused {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Busy);
        assert_eq!(used.symlink_metadata().unwrap().len(), 1 << 20);
    }
    drop(device);
    sink.node(&dir, b"used.img", &host.source(Kind::Symlink)).unwrap();
    assert!(used.is_symlink());
}

/// One attribute does not fit with a file; the host may still have space for others.
#[test]
fn an_attribute_that_the_host_does_not_take_ends_nothing_else() {
    let host = Host::new();
    let (mut sink, dir) = host.sink();
    let mut file = host.source(Kind::File);
    // Linux does not know these attributes, or they are too large.
    file.xattrs = vec![
        (b"nothing.of_the_kind".to_vec(), b"value".to_vec()),
        (b"user.large".to_vec(), vec![1; (64 << 10) + 1]),
    ];
    copy_file(&mut sink, &dir, b"file", &file, &host.data()).unwrap();
    assert_eq!(std::fs::read_to_string(host.path("out/file")).unwrap(), "from the image");
    let left_out: Vec<_> =
        sink.take_left_out().into_iter().map(|(name, error)| (name, error.kind())).collect();
    assert_eq!(
        left_out,
        [
            (b"nothing.of_the_kind".to_vec(), ErrorKind::Unsupported),
            (b"user.large".to_vec(), ErrorKind::InvalidInput),
        ]
    );
    assert!(sink.take_left_out().is_empty());
    assert_eq!(refusal(Err(Errno::NOSPC)).unwrap().unwrap().kind(), ErrorKind::InvalidInput);
    assert_eq!(refusal(Err(Errno::PERM)).unwrap().unwrap().kind(), ErrorKind::PermissionDenied);
    assert!(refusal(Err(Errno::IO)).is_err() && refusal(Ok(())).unwrap().is_none());
}

/// Makes a file while a copy is written.
struct Meddler(PathBuf);

impl creamery_mkfs::Progress for Meddler {
    fn go_on(&self) -> Result<()> {
        std::fs::write(&self.0, "somebody else's").map_err(Error::from)
    }
}

#[test]
fn a_file_that_takes_a_free_name_meanwhile_stays() {
    let host = Host::new();
    let new = host.path("out/new");
    let meddler = Meddler(new.clone());
    let options = crate::copy::CopyOptions { replace_images: true, ..crate::copy::CopyOptions::default() };
    let refused = host.fs.copy_out("/file", &new).options(options).progress(&meddler).run().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AlreadyExists, "{refused}");
    assert_eq!(std::fs::read_to_string(&new).unwrap(), "somebody else's");
    std::fs::remove_file(&new).unwrap();
    let members = [crate::tar::TarMember::new("/file", "file")];
    let refused = host.fs.write_tar(&members).progress(&meddler).to_file(&new).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AlreadyExists, "{refused}");
    assert_eq!(std::fs::read_to_string(&new).unwrap(), "somebody else's");
    // An existing file is checked, and replaced.
    host.fs.copy_out("/file", &new).options(options).run().unwrap();
    assert_eq!(std::fs::read_to_string(&new).unwrap(), "from the image");
    assert_eq!(std::fs::read_dir(host.path("out")).unwrap().count(), 1);
}
