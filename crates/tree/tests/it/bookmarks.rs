//! Bookmarks: a cursor that begins at one finds the same items as from the root, whatever became of the leaf, as long as
//! those items have not changed.

use creamery_base::Wait;
use creamery_format::Key;

use crate::world::{Rng, World, key};

/// The object whose items stay the same, between others that change.
const OBJECT: u64 = 1000;
const ITEMS: u64 = 60;

fn item(number: u64) -> Key {
    key(OBJECT, number * 10)
}

/// The keys at and behind a place, from the last item at or before it.
fn seen(cursor: Option<creamery_tree::Cursor<'_>>) -> Option<Vec<Key>> {
    let mut cursor = cursor?;
    let mut found = Vec::new();
    while let Some((key, _)) = cursor.item()
        && found.len() < 5
    {
        if key.objectid.get() == OBJECT {
            found.push(key);
        }
        if key.objectid.get() > OBJECT {
            break;
        }
        cursor.advance().expect("a readable tree");
    }
    Some(found)
}

/// Changes items around those of the object, so that leaves are split, filled, emptied, merged, copied and written.
fn change(world: &World, rng: &mut Rng) {
    let near = [OBJECT - 1, OBJECT + 1][usize::try_from(rng.below(2)).expect("small")];
    for _ in 0..rng.below(60) {
        let key = key(near, rng.below(40));
        match rng.below(3) {
            0 => drop(world.tree.remove(&world.host, &key).expect("room")),
            _ => world.tree.upsert(&world.host, &key, &rng.bytes(400)).expect("room"),
        }
    }
    if rng.below(3) == 0 {
        world.commit();
    }
}

#[test]
fn who_begins_at_a_bookmark_comes_to_the_same() {
    let (mut used, mut refused) = (0, 0);
    for seed in 1..40 {
        let (mut rng, world) = (Rng(seed), World::new(1 << 20));
        for number in 0..ITEMS {
            world.tree.insert(&world.host, &item(number), &[1; 100]).expect("room");
        }
        for _ in 0..30 {
            change(&world, &mut rng);
            let from = key(OBJECT, rng.below(ITEMS * 10));
            let bookmark = world.tree.cursor_at_or_before(&from, Wait::Yes).expect("readable").bookmark();
            let Some(bookmark) = bookmark else { continue };
            for _ in 0..4 {
                change(&world, &mut rng);
                let at = key(OBJECT, rng.below(ITEMS * 10));
                let marked = world.tree.cursor_at_bookmark(&bookmark, &at, Wait::Yes).expect("readable");
                let Some(marked) = seen(marked) else {
                    refused += 1;
                    continue;
                };
                used += 1;
                let plain = world.tree.cursor_at_or_before(&at, Wait::Yes).expect("readable");
                assert_eq!(Some(marked), seen(Some(plain)), "seed {seed}: from {from}, at {at}");
            }
        }
    }
    assert!(used > 300 && refused > 300, "{used} begun at a bookmark, {refused} from the root");
}

/// Items from behind the leaf move into it.
#[test]
fn what_moves_into_the_leaf_of_a_bookmark_is_seen_once() {
    let world = World::new(1 << 20);
    for number in 0..10 {
        world.tree.insert(&world.host, &key(OBJECT - 1, number), &[1; 100]).expect("room");
    }
    for number in 0..29 {
        world.tree.insert(&world.host, &item(number), &[1; 100]).expect("room");
    }
    for number in 0..8 {
        world.tree.insert(&world.host, &key(OBJECT + 1, number), &[1; 100]).expect("room");
    }
    for number in 0..10 {
        assert!(world.tree.remove(&world.host, &key(OBJECT - 1, number)).expect("room"));
    }
    let bookmark = world.tree.cursor_at_or_before(&item(0), Wait::Yes).expect("readable").bookmark();
    let bookmark = bookmark.expect("an item");
    for number in 0..8 {
        assert!(world.tree.remove(&world.host, &key(OBJECT + 1, number)).expect("room"));
    }
    let all = |cursor: Option<creamery_tree::Cursor<'_>>| {
        let mut cursor = cursor.expect("the leaf");
        let mut found = Vec::new();
        while let Some((key, _)) = cursor.item() {
            found.push(key.offset / 10);
            cursor.advance().expect("readable");
        }
        found
    };
    let plain = all(Some(world.tree.cursor_at_or_before(&item(0), Wait::Yes).expect("readable")));
    // The bookmark may be refused, but must not be wrong.
    if let Some(cursor) = world.tree.cursor_at_bookmark(&bookmark, &item(0), Wait::Yes).expect("readable") {
        assert_eq!(all(Some(cursor)), plain);
    }
}
