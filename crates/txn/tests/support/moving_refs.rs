//! References that move from the queue into the extent tree while another thread counts them: each is seen in one of the two.

use std::sync::Arc;

use creamery_base::sync::shuttle::thread;
use creamery_base::{Generation, Logical, TreeId, Uuid, Wait};
use creamery_device::MemoryDevice;
use creamery_format::{BlockMut, BlockRef, Key, NewBlock};
use creamery_tree::CowHost;
use creamery_txn::{Options, ReserveItems};

use crate::neighbours::World;

/// Blocks whose references change.
const BLOCKS: usize = 4;
/// A limit so low that handles run some heads.
const REFS_MAX: usize = 8;
const ROUNDS: usize = 6;
/// A second tree that refers to them.
const OTHER: TreeId = TreeId::new(300);

/// A node that points to `blocks`.
fn node(bytes: &mut [u8], blocks: &[Logical]) {
    let (logical, generation) = (Logical::new(1 << 20), Generation::new(7));
    let nil = Uuid::nil();
    let new = NewBlock { logical, generation, owner: OTHER, level: 1, fsid: nil, chunk_tree_uuid: nil };
    let mut node = BlockMut::init(bytes, &new);
    for (slot, block) in blocks.iter().enumerate() {
        let key = Key { offset: slot as u64, ..Key::MIN };
        node.insert_ptr(slot, &key, *block, generation);
    }
}

/// One execution. With `unlocked`, a fault is planted.
pub(crate) fn execute(image: &Arc<MemoryDevice>, unlocked: bool) {
    let options = Options { delayed_refs_max: REFS_MAX, ..Options::default() };
    let world = Arc::new(World::with(image, options));
    if unlocked {
        world.engine.run_refs_unlocked();
    }
    let handle = world.engine.start(ReserveItems::items(BLOCKS as u32)).expect("room");
    let blocks: Vec<_> = (0..BLOCKS)
        .map(|_| handle.allocate(TreeId::FS, 0, Logical::new(0)).expect("it was promised"))
        .collect();
    handle.end();
    let runner = {
        let world = Arc::clone(&world);
        thread::spawn(move || {
            for _ in 0..ROUNDS {
                // Each new handle runs some.
                world.engine.start(ReserveItems::items(1)).expect("room").end();
            }
            world.engine.commit().expect("a commit");
        })
    };
    let mut bytes = vec![0; world.engine.node_size() as usize];
    node(&mut bytes, &blocks);
    for round in 0..ROUNDS {
        let before = 1 + (round % 2) as u64;
        let handle = world.engine.start(ReserveItems::items(1)).expect("room");
        let count = |at: &Logical| handle.references(*at, 0, Wait::Yes).expect("it is in use").count;
        assert!(blocks.iter().all(|at| count(at) == before), "what is there is seen, once (REF-2)");
        let node = BlockRef::new(&bytes);
        if before == 1 {
            handle.add_references(OTHER, node, false).expect("no damage");
        } else {
            handle.drop_references(OTHER, node, false).expect("no damage");
        }
        assert!(blocks.iter().all(|at| count(at) == 3 - before), "so is what was just queued");
        handle.end();
    }
    runner.join().expect("it ends well");
}
