//! Every state of a file gives equal answers.

use std::sync::mpsc::{Receiver, Sender, channel};

use creamery_base::Result;
use creamery_base::sync::Mutex;
use creamery_device::{Hook, Request};

use super::*;
use crate::fallocate::Fallocate;
use crate::ops::{SetAttributes, set_attributes};

/// Keeps writes of data until the test lets them go on.
struct HoldsData {
    reached: Mutex<Sender<()>>,
    go: Mutex<Receiver<()>>,
}

impl Hook for HoldsData {
    fn before(&self, request: &Request) -> Result<()> {
        let is_data = |data: &[u8]| data.windows(32).any(|bytes| *bytes == [MARK; 32]);
        if let Request::Write { data, .. } = request
            && data.iter().any(is_data)
        {
            let _ = self.reached.lock().send(());
            let _ = self.go.lock().recv();
        }
        Ok(())
    }
}

/// Random content of up to `scale` bytes: some of it set aside and some of it in the tree before, the rest in memory.
fn fill(file: &OpenFile, model: &mut FileModel, scale: u64, random: &mut Random) {
    let place = |random: &mut Random| {
        let at = random.below(scale);
        if random.below(2) == 0 { at / SECTOR * SECTOR } else { at }
    };
    for _ in 0..random.below(4) {
        let (at, len) = (place(random), random.below(scale / 2) + 1);
        let keep_size = random.below(2) == 0;
        file.fallocate(Fallocate::Allocate { keep_size }, at, len).expect("room");
        model.allocate(at + len, keep_size);
    }
    for _ in 0..random.below(3) {
        write(file, model, place(random), random.below(3 * SECTOR) + 1);
    }
    file.inode().flush().expect("room");
    if random.below(3) == 0 {
        let to = random.below(scale * 2);
        set_attributes(file.inode(), &SetAttributes::truncate(to)).expect("room");
        model.truncate(to);
        let (at, len) = (place(random), random.below(scale / 2) + 1);
        file.fallocate(Fallocate::PunchHole, at, len).expect("room");
        model.zero(at, at + len);
    }
    for _ in 0..random.below(8) {
        write(file, model, place(random), random.below(4 * SECTOR) + 1);
    }
}

#[test]
fn answers_are_those_of_a_model_in_five_states() {
    for (seed, kind) in (0..30).zip([Kind::DEFAULT, Kind::OLD].into_iter().cycle()) {
        println!("seed {seed}");
        let Some(fixture) = fixture(kind) else { return };
        let ((reached, is_reached), (go, wait_to_go)) = (channel(), channel());
        let hanging = HoldsData { reached: Mutex::new(reached.clone()), go: Mutex::new(wait_to_go) };
        let mut random = Random(seed);
        let mut model = FileModel::default();
        let scale = [2000, 20_000, 200_000][seed as usize % 3];
        {
            let inode = fixture.named_delayed("f1", 64 * MIB);
            let file = opened(Arc::new(inode));
            fill(&file, &mut model, scale, &mut random);
            compare(&file, &model, "dirty");
            file.inode().flush().expect("room");
            compare(&file, &model, "flushed");
            // Half of the preallocated space is for the next part.
            file.fallocate(Fallocate::Allocate { keep_size: true }, 0, scale * 2).expect("room");
            compare(&file, &model, "set aside, also behind the end");
            file.sync().expect("room");
        }
        let (engine, device) = fixture.again(hanging);
        let file = opened(Arc::new(named_in(&engine, "f1", 64 * MIB)));
        compare(&file, &model, "remounted");
        write(&file, &mut model, scale / 3, scale / 4 + 1);
        compare(&file, &model, "set aside and dirty");
        std::thread::scope(|scope| {
            let flush = scope.spawn(|| {
                let flushed = file.inode().flush();
                let _ = reached.send(()); // inline data is written with the tree
                flushed
            });
            is_reached.recv().expect("one of them says so");
            compare(&file, &model, "in flight");
            write(&file, &mut model, scale / 3, SECTOR);
            write(&file, &mut model, scale, 1);
            compare(&file, &model, "in flight and dirty anew");
            drop(go);
            flush.join().expect("no panic").expect("room");
        });
        compare(&file, &model, "landed and dirty");
        file.sync().expect("room");
        compare(&file, &model, "written in what was set aside");
        engine.commit().expect("room");
        drop(file);
        drop(engine);
        let engine = open_device(device);
        compare(&opened(Arc::new(named_in(&engine, "f1", 0))), &model, "remounted at last");
    }
}

#[test]
fn a_file_of_any_inline_length_is_data_to_its_end() {
    for kind in [Kind::DEFAULT, Kind::OLD] {
        let Some(fixture) = fixture(kind) else { return };
        for len in (1..2100).step_by(97).chain([2047, 2048, 2049]) {
            let inode = Arc::new(new_delayed_file(&fixture, 300 + len, InodeFlags::empty(), 64 * MIB));
            let (file, mut model) = (opened(inode), FileModel::default());
            write(&file, &mut model, 0, len);
            compare(&file, &model, "dirty");
            file.inode().flush().expect("room");
            compare(&file, &model, "inline");
            set_attributes(file.inode(), &SetAttributes::truncate(3 * SECTOR + 5)).expect("room");
            model.truncate(3 * SECTOR + 5);
            compare(&file, &model, "with a hole at its end");
        }
    }
}

#[test]
fn what_the_kernel_compressed_is_data() {
    for method in ["zlib", "lzo", "zstd"] {
        let Some(mut fixture) = fixture(Kind::DEFAULT) else { return };
        let mut models = Vec::new();
        let made = fixture.with_kernel(&format!("compress-force={method}"), |root| {
            for (name, pieces) in [("f1", &[(0, 300_000), (900_000, 70_000)][..]), ("f2", &[(0, 700)][..])] {
                use std::os::unix::fs::FileExt;
                let path = root.join(name);
                let file = std::fs::File::options().write(true).open(&path).expect("a file");
                for (at, len) in pieces {
                    file.write_all_at(&vec![b'x'; *len], *at).expect("room");
                }
                file.sync_all().expect("room");
                models.push((name, FileModel::of_mounted(&path)));
            }
        });
        if !made {
            return;
        }
        for (name, mut model) in models {
            let file = opened(Arc::new(fixture.named_delayed(name, 64 * MIB)));
            assert!(items(file.inode()).contains(['z', 'i']), "{}", items(file.inode()));
            compare(&file, &model, method);
            write(&file, &mut model, 500_000, 1);
            write(&file, &mut model, 2_000_000, SECTOR);
            compare(&file, &model, method);
        }
    }
}

#[test]
fn a_file_that_is_cut_under_a_scan_answers_as_before_or_as_after() {
    const COUNT: u64 = 40;
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    for round in 0..40_u64 {
        let ino = 300 + round;
        let file = opened(Arc::new(new_delayed_file(&fixture, ino, InodeFlags::empty(), 64 * MIB)));
        let mut before = FileModel::default();
        (0..COUNT).for_each(|number| write(&file, &mut before, 2 * number * SECTOR, SECTOR));
        if round % 2 == 0 {
            file.inode().flush().expect("room");
        }
        let mut after = before.clone();
        after.truncate((round + 1) * SECTOR + 3);
        std::thread::scope(|scope| {
            let scan = scope.spawn(|| {
                for at in (0..2 * COUNT).cycle().take(400).map(|sector| sector * SECTOR) {
                    for want in WANTS {
                        let (found, wanted) = (ask(&file, at, want), [&before, &after]);
                        assert!(
                            wanted.iter().any(|model| model.seek(at, want) == found),
                            "{want:?} at {at}: {found:?}"
                        );
                    }
                }
            });
            set_attributes(file.inode(), &SetAttributes::truncate(after.size())).expect("room");
            scan.join().expect("no panic");
        });
        compare(&file, &after, "cut");
    }
}
