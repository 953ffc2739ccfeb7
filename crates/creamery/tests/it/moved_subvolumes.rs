//! Subvolumes that are moved.

use std::path::Path;

use creamery::check::{CheckOptions, NoProgress, check};
use creamery::{ErrorKind, Filesystem, Image, Result};

fn assert_sound(image: &Path) -> Result<()> {
    let report = check([image], &CheckOptions::default(), &NoProgress)?;
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
    Ok(())
}

fn refused(fs: &Filesystem, from: &str, to: &str) -> ErrorKind {
    fs.rename(from, to).expect_err("it does not go there").kind()
}

#[test]
fn a_subvolume_moves_into_another_but_never_into_itself() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let image = dir.path().join("disk.img");
    Image::make(&image).size(256 << 20).run()?;
    let fs = Image::options().write().open(&image)?;
    for path in ["/a", "/b", "/a/in", "/a/in/deep"] {
        fs.subvolumes().create(path)?;
    }
    fs.create_dir("/a/dir")?;
    fs.create_dir("/b/empty")?;
    fs.create_dir_all("/b/full/more")?;
    for path in ["/a/in/file", "/b/file"] {
        fs.write(path, "text")?;
    }
    fs.rename("/a/in", "/b/moved")?;
    assert_eq!(fs.read_to_string("/b/moved/file")?, "text");
    assert!(!fs.exists("/a/in") && fs.exists("/b/moved/deep"));
    assert_eq!(refused(&fs, "/b", "/b/moved/deep/b"), ErrorKind::InvalidInput);
    assert_eq!(refused(&fs, "/b", "/b/b"), ErrorKind::InvalidInput);
    assert_eq!(refused(&fs, "/a", "/b/full"), ErrorKind::DirectoryNotEmpty);
    assert_eq!(refused(&fs, "/a", "/b/moved"), ErrorKind::DirectoryNotEmpty);
    assert_eq!(refused(&fs, "/a", "/b/file"), ErrorKind::NotADirectory);
    assert_eq!(refused(&fs, "/a/dir", "/b/dir"), ErrorKind::CrossDevice);
    assert_eq!(refused(&fs, "/b/file", "/a/file"), ErrorKind::CrossDevice);
    assert_eq!(refused(&fs, "/a/none", "/b/none"), ErrorKind::CrossDevice);
    fs.subvolumes().snapshot("/a", "/read-only").read_only().run()?;
    fs.create_dir("/dir")?;
    for to in ["/dir/read-only", "/b/read-only"] {
        assert_eq!(refused(&fs, "/read-only", to), ErrorKind::ReadOnly, "{to}");
    }
    assert_eq!(refused(&fs, "/a", "/read-only/a"), ErrorKind::ReadOnly);
    fs.rename("/read-only", "/renamed")?;
    fs.rename("/b/moved/deep", "/deep")?;
    fs.rename("/a", "/deep/a")?;
    let paths = |fs: &Filesystem| -> Result<Vec<_>> {
        let mut paths: Vec<_> = fs.subvolumes().list()?.into_iter().map(|listed| listed.path).collect();
        paths.sort();
        Ok(paths)
    };
    let wanted = ["b", "b/moved", "deep", "deep/a", "renamed"].map(|path| Some(path.as_bytes().to_vec()));
    assert_eq!(paths(&fs)?, wanted);
    fs.close()?;
    assert_sound(&image)?;
    let fs = Image::options().write().open(&image)?;
    assert_eq!(paths(&fs)?, wanted);
    fs.subvolumes().delete("/deep/a")?;
    fs.remove_dir("/deep")?;
    fs.close()?;
    assert_sound(&image)
}
