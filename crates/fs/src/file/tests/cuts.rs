//! Cuts of files with delayed data.

use creamery_base::Wait;

use super::{MIB, open};
use crate::data::tests::support::*;
use crate::names::NewInode;
use crate::options::FsOptions;

/// On a full filesystem the cut of the tree may fail, and then the file still has what was written behind the new end.
#[test]
fn a_cut_that_may_fail_writes_delayed_data_back() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let fs = open(&fixture, FsOptions { delayed_bytes: 64 * MIB, ..FsOptions::default() });
    let root = fs.root(fs.default_subvolume()).expect("a root");
    let file = fs.create_open(root, b"file", &NewInode::file(0o644)).expect("room").1;
    let (old, new) = (vec![1; 8 * SECTOR as usize], vec![2; 8 * SECTOR as usize]);
    let cut_to = 3 * SECTOR + 100;
    for has_room in [true, false] {
        file.write_at(0, &old).expect("room");
        file.sync().expect("a sync");
        file.write_at(0, &new).expect("room");
        let kept: Vec<_> =
            if has_room { Vec::new() } else { std::iter::from_fn(|| fs.engine().keep_at_once(16)).collect() };
        assert_eq!(fs.engine().has_room_to_spare(), has_room);
        let inode = file.inode();
        let mut locked = inode.lock_exclusive().expect("it lives");
        inode.regular().expect("a file").settle_cut(&mut locked, cut_to);
        drop(locked);
        drop(kept);
        let mut found = vec![0; old.len()];
        assert_eq!(file.read_at(0, &mut found, Wait::Yes).expect("data"), found.len());
        let at = cut_to as usize;
        assert!(found[..at] == new[..at], "the front was written back");
        // The tree is not cut here: it has what was written back last.
        let (sector_rest, behind) = found[at..].split_at(SECTOR as usize - at % SECTOR as usize);
        let (rest, value) = if has_room { (0, 1) } else { (2, 2) };
        assert!(sector_rest.iter().all(|byte| *byte == rest) && behind.iter().all(|byte| *byte == value));
    }
}
