//! Bytes that change behind everybody's back: in one of two copies, and in both.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use creamery_base::ErrorKind;
use creamery_mkfs::Profile;
use creamery_sim::{
    Driver, Entry, Image, MadeBy, Model, SimDevice, Snapshot, image_with_files, open, walk_damaged,
};
use creamery_testkit::share_or_whole;

const NODE: u64 = 4096;
const FILES: u64 = 120;

/// Files of all sizes with attributes, durable.
fn prepared() -> (Image, Model) {
    let made_by = MadeBy { len: 256 << 20, node_size: 4096, data: Profile::Dup, ..MadeBy::default() };
    image_with_files(&made_by, FILES, |number| 1500 * (number as usize % 12)).expect("an image")
}

/// Both copies of every block of every chunk of two copies that holds anything, and whether it is data.
fn blocks(image: &Image) -> Vec<([u64; 2], bool)> {
    let fs = open(&Arc::new(SimDevice::new(image.clone()))).expect("it opens");
    let mut found = Vec::new();
    for chunk in fs.engine().volume().chunks() {
        let [first, second] = &chunk.stripes[..] else { panic!("two copies") };
        for at in (0..chunk.len).step_by(NODE as usize) {
            let mut bytes = vec![0; NODE as usize];
            image.read(first.offset + at, &mut bytes);
            if bytes.iter().any(|&byte| byte != 0) {
                let data = chunk.flags.contains(creamery_format::BlockGroupFlags::DATA);
                found.push(([first.offset + at, second.offset + at], data));
            }
        }
    }
    found
}

fn part(at: u64) -> Range<u64> {
    at + 200..at + 300
}

/// Entries that were found must be right; first paths depend on what else was found.
fn assert_right(found: &Snapshot, wanted: &Snapshot) {
    let plain = |entry: &Entry| Entry { first: Vec::new(), ..entry.clone() };
    for (path, entry) in &found.entries {
        let wanted = wanted.entries.get(path).map(plain);
        assert_eq!(wanted, Some(plain(entry)), "/{}", String::from_utf8_lossy(path));
    }
}

#[test]
fn rot_in_one_copy_of_everything_is_repaired() {
    let (image, model) = prepared();
    for copy in [0, 1] {
        let device = Arc::new(SimDevice::new(image.clone()));
        let blocks = blocks(&image);
        blocks.iter().for_each(|(copies, _)| device.rot(part(copies[copy])));
        let fs = open(&device).expect("one copy is enough");
        let driver = Driver::with_model(Arc::clone(&fs), model.clone()).expect("everything is right");
        fs.begin_changes().expect("the device takes it");
        assert_eq!(fs.engine().volume().counters().repaired > 0, copy == 0);
        drop((driver, fs));
        // What is read is repaired: no file's data and no block on the way to it is left damaged.
        if copy == 0 {
            blocks.iter().for_each(|(copies, _)| device.rot(part(copies[1])));
            let opened = open(&device).expect("the repaired copy is enough");
            let (found, errors) = walk_damaged(&opened).expect("a root");
            assert_eq!(model.snapshot().difference(&found.with_firsts()), None, "{errors:?}");
        }
    }
}

#[test]
fn sectors_that_cannot_be_read_are_repaired_from_the_other_copy() {
    let (image, model) = prepared();
    let device = Arc::new(SimDevice::new(image.clone()));
    blocks(&image).iter().for_each(|(copies, _)| device.make_unreadable(copies[0]..copies[0] + NODE));
    let fs = open(&device).expect("one copy is enough");
    drop(Driver::with_model(fs, model.clone()).expect("everything is right"));
    drop(Driver::with_model(open(&device).expect("again"), model).expect("everything is right"));
}

#[test]
fn rot_in_both_copies_is_told_and_everything_else_is_served() {
    let (image, model) = prepared();
    let wanted = model.snapshot();
    let mut outcomes: BTreeMap<&str, usize> = BTreeMap::new();
    for (copies, is_data) in blocks(&image).into_iter().step_by(share_or_whole(6, 1)) {
        let device = Arc::new(SimDevice::new(image.clone()));
        copies.iter().for_each(|at| device.rot(part(*at)));
        let fs = match open(&device) {
            Ok(fs) => fs,
            Err(error) => {
                assert!(!is_data && error.kind() == ErrorKind::Unreadable, "{error:?}");
                *outcomes.entry("not opened").or_default() += 1;
                continue;
            }
        };
        let (found, errors) = match walk_damaged(&fs) {
            Ok(seen) => seen,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unreadable, "{error:?}");
                *outcomes.entry("no root").or_default() += 1;
                continue;
            }
        };
        assert_right(&found, &wanted);
        assert!(errors.iter().all(|error| error.kind() == ErrorKind::Unreadable), "{errors:?}");
        let missing = wanted.entries.len() - found.entries.len();
        assert!(missing == 0 || !errors.is_empty(), "{missing} paths are missing and nobody said so");
        if is_data {
            assert!(errors.len() <= 1 && missing <= 1, "one sector costs {missing} files: {errors:?}");
        }
        *outcomes.entry(if missing == 0 { "all there" } else { "some missing" }).or_default() += 1;
        work_on(fs, &model);
    }
    println!("{outcomes:?}");
    assert!(outcomes["all there"] > 0 && outcomes["some missing"] > 0, "{outcomes:?}");
}

/// Work on what is damaged ends in an answer or an error, never in a panic.
fn work_on(fs: Arc<creamery_fs::Filesystem>, model: &Model) {
    let root = fs.root(fs.default_subvolume()).expect("it was walked");
    let new = creamery_fs::NewInode::file(0o600);
    let made = fs.create(root, b"a new file", &new);
    let mut errors: Vec<_> = made.err().into_iter().collect();
    for name in model.snapshot().entries.keys().filter(|name| !name.is_empty()).step_by(9) {
        errors.extend(fs.unlink(root, name).err());
    }
    errors.extend(fs.sync().err());
    let fair = [
        ErrorKind::Unreadable,
        ErrorKind::Corrupt,
        ErrorKind::ReadOnly,
        ErrorKind::Aborted,
        ErrorKind::Stale,
        ErrorKind::NotFound,
    ];
    assert!(errors.iter().all(|error| fair.contains(&error.kind())), "{errors:?}");
}
