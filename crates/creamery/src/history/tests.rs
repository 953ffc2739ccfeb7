use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use creamery_base::{ErrorKind, Generation, Result, Wait};
use creamery_format::{Expected, seal};

use super::*;
use crate::progress::NoProgress;
use crate::{Filesystem, Image};

/// A new image in a directory of its own.
fn made() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("disk.img");
    Image::make(&image).size(128 << 20).run().unwrap();
    (dir, image)
}

/// The volume in an image, with all chunks mapped.
fn mapped(image: &Path) -> Volume {
    let set = NamedSet::from(image);
    set.open(Access::ReadOnly, |devices| open_mapped(devices, passed_over(false))).unwrap().0
}

/// Changes the image, and returns the generation of the commit with the change.
fn change(image: &Path, work: impl FnOnce(&Filesystem)) -> Generation {
    let fs = Image::options().write().open(image).unwrap();
    work(&fs);
    fs.close().unwrap();
    list(image).commits[0].generation
}

fn list(image: &Path) -> History {
    history(image, &NoSearchProgress).unwrap()
}

fn at(image: &Path, generation: Generation) -> Result<Filesystem> {
    Image::options().generation(generation).open(image)
}

fn gone(image: &Path) -> Vec<(Generation, String)> {
    let mut all = Vec::new();
    let each = &mut |file: GoneFile| {
        all.push((file.generation, file.path.display().to_string()));
        Ok(())
    };
    gone_files(image, &NoSearchProgress, each).unwrap();
    all
}

fn back(image: &Path, path: &str, options: UndeleteOptions) -> Result<(Undeleted, Vec<u8>)> {
    let out = image.with_file_name("out");
    let undeleted = undelete(image, path, &out, &options, &NoProgress)?;
    let bytes = std::fs::read(&out).unwrap();
    std::fs::remove_file(out).unwrap();
    Ok((undeleted, bytes))
}

#[test]
fn commits_are_listed_the_newest_first_and_whole_ones_show_what_they_had() {
    let (_dir, image) = made();
    let generations: Vec<Generation> =
        (0..4).map(|number| change(&image, |fs| fs.write("/number", number.to_string()).unwrap())).collect();
    let commits = list(&image).commits;
    assert!(commits.windows(2).all(|two| two[0].generation > two[1].generation));
    assert_eq!(commits.iter().filter(|commit| commit.is_current).count(), 1);
    assert!(commits[0].is_current && commits[0].state == CommitState::Whole && commits[0].time.is_some());
    let mut earlier = 0;
    for (number, generation) in generations.iter().enumerate() {
        let Some(commit) = commits.iter().find(|commit| commit.generation == *generation) else { continue };
        if commit.state == CommitState::Whole {
            let fs = at(&image, *generation).unwrap();
            assert_eq!(fs.read_to_string("/number").unwrap(), number.to_string());
            earlier += usize::from(!commit.is_current);
        }
    }
    assert!(earlier > 0, "{commits:#?}");
}

#[test]
fn a_generation_that_is_not_there_is_an_error_that_names_the_list() {
    let (_dir, image) = made();
    change(&image, |fs| fs.write("/a", "a").unwrap());
    for (generation, why) in [(0, "no root of the commit"), (1 << 40, "there is no commit")] {
        let error = at(&image, Generation::new(generation)).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains(why), "{error}");
        assert!(error.advice().is_some_and(|advice| advice.contains("creamery history")), "{error}");
    }
}

#[test]
fn an_earlier_commit_is_for_reading_and_one_thing_says_which() {
    let (_dir, image) = made();
    let generation = list(&image).commits[0].generation;
    let options = Image::options().generation(generation);
    let write = options.clone().write().open(&image).err().unwrap();
    assert!(write.to_string().contains("can only be read"), "{write}");
    let both = options.use_backup_root().open(&image).err().unwrap();
    assert!(both.to_string().contains("usebackuproot"), "{both}");
}

#[test]
fn a_removed_file_is_listed_and_comes_back_as_the_newest_commit_had_it() {
    let (_dir, image) = made();
    change(&image, |fs| fs.write("/note", "first").unwrap());
    let last = change(&image, |fs| fs.write("/note", "second").unwrap());
    assert_eq!(gone(&image), []);
    change(&image, |fs| fs.remove_file("/note").unwrap());
    assert_eq!(gone(&image), [(last, "/note".to_owned())]);
    let (undeleted, bytes) = back(&image, "/note", UndeleteOptions::default()).unwrap();
    assert_eq!((undeleted.generation, &bytes[..]), (last, &b"second"[..]));
}

#[test]
fn renamed_and_linked_files_are_not_gone() {
    let (_dir, image) = made();
    change(&image, |fs| {
        fs.write("/a", "a").unwrap();
        fs.write("/b", "b").unwrap();
        fs.hard_link("/b", "/c").unwrap();
        fs.create_dir("/dir").unwrap();
    });
    change(&image, |fs| {
        fs.rename("/a", "/dir/moved").unwrap();
        fs.remove_file("/b").unwrap();
    });
    assert_eq!(gone(&image), []);
    let error = back(&image, "/a", UndeleteOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.advice().is_some_and(|advice| advice.contains("--generation")), "{error}");
}

#[test]
fn a_directory_and_a_subvolume_are_gone_with_all_that_was_in_them() {
    let (dir, image) = made();
    change(&image, |fs| {
        fs.create_dir("/dir").unwrap();
        fs.write("/dir/file", "in a directory").unwrap();
        fs.symlink("file", "/dir/link").unwrap();
        fs.subvolumes().create("/sub").unwrap();
        fs.write("/sub/file", "in a subvolume").unwrap();
    });
    change(&image, |fs| {
        fs.remove_dir_all("/dir").unwrap();
        fs.subvolumes().delete("/sub").unwrap();
    });
    let paths: Vec<String> = gone(&image).into_iter().map(|(_, path)| path).collect();
    assert_eq!(paths, ["/dir", "/dir/file", "/dir/link", "/sub", "/sub/file"]);
    let out = dir.path().join("tree");
    undelete(&image, "/dir", &out, &UndeleteOptions::default(), &NoProgress).unwrap();
    assert_eq!(std::fs::read(out.join("file")).unwrap(), b"in a directory");
    assert_eq!(std::fs::read_link(out.join("link")).unwrap(), Path::new("file"));
    assert_eq!(back(&image, "/sub/file", UndeleteOptions::default()).unwrap().1, b"in a subvolume");
}

#[test]
fn what_is_there_on_the_host_is_replaced_by_force_alone() {
    let (dir, image) = made();
    change(&image, |fs| fs.write("/note", "old").unwrap());
    change(&image, |fs| fs.remove_file("/note").unwrap());
    let out = dir.path().join("note");
    std::fs::write(&out, "mine").unwrap();
    for to in [&out, &dir.path().to_owned()] {
        let error = undelete(&image, "/note", to, &UndeleteOptions::default(), &NoProgress).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
        assert_eq!(std::fs::read(&out).unwrap(), b"mine");
    }
    let force = UndeleteOptions { force: true, ..UndeleteOptions::default() };
    undelete(&image, "/note", dir.path(), &force, &NoProgress).unwrap();
    assert_eq!(std::fs::read(&out).unwrap(), b"old");
}

#[test]
fn data_that_was_overwritten_since_is_an_error_and_never_other_bytes() {
    let (_dir, image) = made();
    let len = usize::try_from(Image::open(&image).unwrap().volume().usage().available).unwrap() / 10 * 7;
    let had = change(&image, |fs| fs.write("/old", vec![b'o'; len]).unwrap());
    change(&image, |fs| fs.remove_file("/old").unwrap());
    assert!(back(&image, "/old", UndeleteOptions::default()).unwrap().1 == vec![b'o'; len]);
    // Both files do not fit at the same time.
    change(&image, |fs| fs.write("/new", vec![b'n'; len]).unwrap());
    let read = at(&image, had).and_then(|fs| fs.read("/old"));
    assert!(
        read.as_ref().is_err_and(|error| error.kind().is_damage()),
        "{:?}",
        read.map(|bytes| bytes.len())
    );
    assert!(back(&image, "/old", UndeleteOptions::default()).is_err());
    assert!(!image.with_file_name("out").exists());
}

/// Replaces the byte `old` by `new` in every sector of the image that is full of it.
fn overwrite(image: &Path, old: u8, new: u8) {
    let mut bytes = std::fs::read(image).unwrap();
    let sectors = bytes.chunks_mut(4096).filter(|sector| sector.iter().all(|byte| *byte == old));
    assert!(sectors.map(|sector| sector.fill(new)).count() > 0, "no sector has it");
    std::fs::write(image, bytes).unwrap();
}

#[test]
fn data_is_judged_by_the_checksums_of_its_own_commit() {
    let (_dir, image) = made();
    let had = change(&image, |fs| {
        fs.write("/file", vec![b'2'; 40_960]).unwrap();
        fs.write("/small", "inline").unwrap();
    });
    change(&image, |fs| fs.remove_file("/file").unwrap());
    assert_eq!(back(&image, "/file", UndeleteOptions::default()).unwrap().0.generation, had);
    overwrite(&image, b'2', b'3');
    let fs = at(&image, had).unwrap();
    assert!(fs.read("/file").is_err_and(|error| error.kind().is_damage()));
    assert_eq!(fs.read_to_string("/small").unwrap(), "inline");
    let error = back(&image, "/file", UndeleteOptions::default()).unwrap_err();
    assert!(error.kind().is_damage(), "{error}");
}

#[test]
fn files_without_checksums_are_marked_and_copied_on_request() {
    let (_dir, image) = made();
    let fs = Image::options().write().nodatacow().open(&image).unwrap();
    fs.write("/plain", vec![b'p'; 100_000]).unwrap();
    fs.close().unwrap();
    change(&image, |fs| fs.remove_file("/plain").unwrap());
    let mut marked = Vec::new();
    let each = &mut |file: GoneFile| {
        marked.push(file.is_unverified);
        Ok(())
    };
    gone_files(&image, &NoSearchProgress, each).unwrap();
    assert_eq!(marked, [true]);
    let error = back(&image, "/plain", UndeleteOptions::default()).unwrap_err();
    assert!(error.advice().is_some_and(|advice| advice.contains("--unverified")), "{error}");
    let unverified = UndeleteOptions { unverified: true, ..UndeleteOptions::default() };
    assert_eq!(back(&image, "/plain", unverified).unwrap().1, vec![b'p'; 100_000]);
}

#[test]
fn another_file_with_the_same_number_is_not_the_same() {
    let (_dir, image) = made();
    let had = change(&image, |fs| fs.write("/file", "text").unwrap());
    let commits = commits::Commits::open(&(&image).into(), None, &NoSearchProgress).unwrap();
    let fs = Image::open(&image).unwrap();
    let id = fs.resolve(Path::new("/file"), crate::path::Last::Keep).unwrap();
    assert_eq!(commits.current.fate(id, had).unwrap(), commits::Fate::There);
    assert_eq!(commits.current.fate(id, Generation::new(had.get() - 1)).unwrap(), commits::Fate::Gone);
}

#[test]
fn a_block_of_a_root_tree_that_is_no_root_is_no_commit() {
    let (_dir, image) = made();
    // The root tree gets a second level.
    let generation = change(&image, |fs| {
        (0..60).for_each(|number| fs.subvolumes().create(format!("/sub-{number}")).unwrap());
    });
    let commits = list(&image).commits;
    assert!(commits[0].level > 0, "{commits:?}");
    let volume = mapped(&image);
    let mut judge = Judge::new(&volume, &NoSearchProgress);
    let ends = judge.ends();
    let all = Candidates::search(&volume, CandidateSearch::Only(generation), &NoSearchProgress)
        .of(generation)
        .unwrap();
    let leaves: Vec<_> = all.iter().copied().filter(|one| !one.is_named).collect();
    assert!(!leaves.is_empty() && leaves.iter().all(|one| one.level < commits[0].level));
    assert!(judge.pick(&leaves, ends).is_none());
    assert_eq!(judge.pick(&all, ends).unwrap().candidate.logical, commits[0].root);
}

#[test]
fn a_root_tree_of_the_midst_of_a_transaction_is_no_commit() {
    let (_dir, image) = made();
    let [old, new] = ["old", "new"].map(|text| change(&image, |fs| fs.write("/file", text).unwrap()));
    let commits = list(&image).commits;
    let root = commits.iter().find(|commit| commit.generation == old).expect("it is left").root;
    // A block that Linux leaves: it has the generation of the transaction, and the items of the commit before.
    let volume = mapped(&image);
    let want = Expected::anything(root, &volume.superblock());
    let mut block = volume.read_tree_block(root, &want, Wait::Yes).unwrap();
    block[80..88].copy_from_slice(&new.get().to_le_bytes());
    seal(&mut block, volume.superblock().checksum_type());
    let file = std::fs::File::options().write(true).open(&image).unwrap();
    for copy in volume.map(root, u64::from(volume.node_size())).unwrap().mirrors() {
        copy.iter().for_each(|piece| file.write_all_at(&block, piece.at.offset).unwrap());
    }
    drop(volume);
    let volume = mapped(&image);
    let mut judge = Judge::new(&volume, &NoSearchProgress);
    let ends = judge.ends();
    let all = Candidates::search(&volume, CandidateSearch::Only(new), &NoSearchProgress).of(new).unwrap();
    let midst: Vec<_> = all.iter().copied().filter(|one| one.logical == root).collect();
    assert_eq!(midst.len(), 1, "{all:?}");
    assert!(judge.pick(&midst, ends).is_none());
}
